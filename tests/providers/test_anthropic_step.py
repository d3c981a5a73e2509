"""The single step of the Messages API, for loops of one's own."""

from __future__ import annotations

from typing import Any

import pytest
from anthropic import AsyncAnthropic

from bridge import Executor, Policy, StateError, ToolError, anthropic, ask
from sandbox import Sandbox
from tests.bridge.scripted import Tools
from tests.providers.anthropic_shop import HELLO, WRITE, WROTE, client, said, tools, wire
from tests.providers.anthropic_wire import Wire, program, text

__all__ = ["client", "tools", "wire"]

pytestmark = pytest.mark.anyio


async def test_the_single_step_fits_into_a_loop_of_ones_own(
    wire: Wire, client: AsyncAnthropic, tools: Tools, opened: Sandbox
) -> None:
    wire.play([program(WRITE)], [text("done")])
    messages: list[Any] = list(HELLO)
    async with Executor(tools.all(), sandbox=opened) as executor:
        offer = anthropic.Offer(executor)
        while True:
            response = await client.messages.create(
                model="m",
                max_tokens=10,
                messages=messages,
                tools=offer.tools,
            )
            turn = await offer.handle(response)
            messages += turn.messages
            if turn.final:
                break
    assert [message["role"] for message in messages] == ["user", "assistant", "user", "assistant"]
    assert wire.results[0]["content"] == WROTE


async def test_a_paused_step_has_no_messages_until_it_is_resumed(tools: Tools, opened: Sandbox) -> None:
    async with Executor(tools.all(), sandbox=opened, policy=Policy([ask("write")])) as executor:
        turn = await anthropic.handle(said(program(WRITE)), executor)
        with pytest.raises(StateError) as refused:
            _ = turn.messages
        await turn.resume({turn.approvals[0].id: ToolError("BUSY", "try again")})
        with pytest.raises(StateError) as over:
            await turn.resume({})
    assert str(refused.value) == "the step is paused: resume it with verdicts and answers, or cancel it"
    assert str(over.value) == "nothing of this step waits: only a paused step can be resumed"
    assert turn.results[0].error is not None
    assert turn.results[0].error.message.startswith("try again")


async def test_fields_that_nobody_knows_go_back_as_they_came(tools: Tools, opened: Sandbox) -> None:
    odd = {**program("return 1"), "citations": None, "brand_new": {"deep": [None, 1]}}
    async with Executor(tools.all(), sandbox=opened) as executor:
        turn = await anthropic.handle(said({"type": "unheard_of", "x": 1}, odd), executor)
    assert turn.messages[0]["content"] == [
        {"type": "unheard_of", "x": 1},
        {**program("return 1"), "brand_new": {"deep": [None, 1]}},
    ]
