"""What hurt users of comparable adapters, where no other file covers it. tests/test_bugs.py has the list of all."""

from __future__ import annotations

import copy
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import pytest
from anthropic import Anthropic, AsyncAnthropic
from openai import AsyncOpenAI, OpenAI

from bridge import anthropic, openai
from sandbox import Sandbox
from tests.providers import anthropic_wire, openai_wire
from tests.providers.openai_shop import ADD, Tools, executor_of

pytestmark = pytest.mark.anyio

ASKED = {"role": "user", "content": "What is 2?"}
GO_ON = {"role": "user", "content": "And 1 + 2?"}
ITEM = openai_wire.calls("run_program", {"program": "return 2"}, 9)
TOOL_CALL = openai_wire.chat_calls("run_program", {"program": "return 2"}, 9)
BLOCK = anthropic_wire.program("return 2", "toolu_9")

APIS = {
    "responses": (
        partial(openai.run, model="m", store=False),
        "input",
        [ASKED, ITEM, {"type": "function_call_output", "call_id": "call_9", "output": "2"}, GO_ON],
        [[openai_wire.calls("run_program", {"program": ADD})], [openai_wire.says("3.")]],
    ),
    "chat": (
        partial(openai.chat.run, model="m"),
        "messages",
        [
            ASKED,
            {"role": "assistant", "content": None, "tool_calls": [TOOL_CALL]},
            {"role": "tool", "tool_call_id": "call_9", "content": "2"},
            GO_ON,
        ],
        [
            [openai_wire.chat_says(None, openai_wire.chat_calls("run_program", {"program": ADD}))],
            [openai_wire.chat_says("3.")],
        ],
    ),
    "messages": (
        partial(anthropic.run, model="m", max_tokens=100),
        "messages",
        [
            ASKED,
            {"role": "assistant", "content": [BLOCK]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_9", "content": "2"}]},
            {"role": "assistant", "content": "2."},
            GO_ON,
        ],
        [[anthropic_wire.program(ADD)], [anthropic_wire.text("3.")]],
    ),
}


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.mark.parametrize("api", APIS)
async def test_both_kinds_of_client_send_the_same_and_change_nothing_that_they_were_given(
    api: str, opened: Sandbox
) -> None:  # ANT-04, and the same for the other vendor
    run, name, history, script = APIS[api]
    serving: Any = anthropic_wire.serving if api == "messages" else openai_wire.served
    sent: list[Any] = []
    for kind in (Anthropic, AsyncAnthropic) if api == "messages" else (OpenAI, AsyncOpenAI):
        given = copy.deepcopy(history)
        with serving() as wire:
            wire.play(*copy.deepcopy(script))
            async with AsyncExitStack() as stack:
                client: Any = kind(api_key="none", base_url=wire.base_url, max_retries=0)
                await stack.enter_async_context(client) if "Async" in kind.__name__ else stack.enter_context(client)
                executor = await stack.enter_async_context(executor_of(Tools(), opened))
                assert (await run(client, executor, **{name: given})).text == "3."
            assert wire.refusals == []
        assert given == history
        sent.append(wire.requests)
    assert sent[0] == sent[1]
