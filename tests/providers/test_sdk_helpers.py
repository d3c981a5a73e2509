"""The SDKs' own ways to read a response, with clients of `local()`: they check more than `create` does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anthropic as sdk
import openai as other_sdk
import pytest

from bridge import Executor, anthropic, openai
from sandbox import Sandbox
from tests.providers import anthropic_wire as messages
from tests.providers.anthropic_shop import speaking
from tests.providers.openai_application import item_of, stock
from tests.providers.openai_shop import STREAMS, Tools, client_of, executor_of
from tests.providers.openai_wire import Wire, calls, chat_calls, chat_says, says

pytestmark = [pytest.mark.anyio, STREAMS]

PLAIN = {"type": "object", "properties": {"sku": {"type": "string"}}, "required": ["sku"]}
STOCK = {"type": "function", "name": "stock", "strict": False, "parameters": PLAIN, "allowed_callers": ["programmatic"]}
REQUEST: dict[str, Any] = {"model": "m", "tools": [STOCK, {"type": "programmatic_tool_calling"}]}
COUNT = {"program": 'return (await tools.stock({ sku: "a" })).units'}
ADD = {"program": "return await tools.add({ a: 1, b: 2 })"}


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


async def streamed(client: Any, items: Any, previous: Any = None) -> Any:
    """What the SDK's own reader of a stream makes of it; it refuses a stream whose response gets another id."""
    given = REQUEST | ({"previous_response_id": previous} if previous else {})
    async with client.responses.stream(input=items, **given) as stream:
        ids = [event.response.id async for event in stream if hasattr(event, "response")]
        response = await stream.get_final_response()
    assert set(ids) == {response.id}
    return response


@pytest.mark.parametrize("api", ["responses", "chat"])
async def test_the_sdk_reads_a_stream_to_its_end_whether_a_program_waits_or_has_ended(
    wire: Wire, client: Any, tools: Tools, opened: Sandbox, api: Any
) -> None:
    if api == "chat":
        wire.play(
            [chat_says(None, chat_calls("run_program", ADD))], [chat_says(None, chat_calls("run_program", COUNT))]
        )
        wire.play([chat_says("ten")], [chat_says("bye")])
    else:
        wire.play([calls("run_program", ADD)], [calls("run_program", COUNT, 2)], [says("ten")], [says("bye")])
    async with executor_of(tools, opened) as executor:
        local = openai.local(client, executor, api=api)
        first = await streamed(local, "?")
        assert [item.type for item in first.output] == ["program", "program_output", "program", "function_call"]
        call = first.output[-1].to_dict()
        last = await streamed(local, [item_of(call, stock(call))], first.id)
        assert (last.output_text, last.output[0].result) == ("ten", "10")
        after = await streamed(local, "thanks", last.id)
        assert after.output_text == "bye"
        wire.play([chat_says("again") if api == "chat" else says("again")])
        plain = await local.responses.create(model="m", input="?", previous_response_id=after.id)  # without programs
        assert plain.output_text == "again"
    assert wire.refusals == []


async def test_a_streamed_response_that_waits_is_known_by_its_id_in_another_process(
    wire: Wire, client: Any, opened: Sandbox, tmp_path: Path
) -> None:
    kept = f"sqlite:///{tmp_path / 'runs.db'}"
    wire.play([calls("run_program", COUNT)], [says("ten")])
    async with Executor([], sandbox=opened, store=kept) as executor:
        first = await streamed(openai.local(client, executor), "?")
    call = first.output[-1].to_dict()
    async with Executor([], sandbox=opened, store=kept) as executor:
        last = await streamed(openai.local(client, executor), [item_of(call, stock(call))], first.id)
    assert (last.output_text, wire.requests[1]["previous_response_id"]) == ("ten", "resp_1")
    assert wire.refusals == []


async def test_what_a_client_of_local_does_not_serve_is_said_in_words(wire: Wire, opened: Sandbox) -> None:
    with messages.serving() as other:
        async with client_of(wire) as client, speaking(other) as speaker, Executor([], sandbox=opened) as executor:
            with pytest.raises(other_sdk.NotFoundError, match=r"serves responses\.create: use the original client"):
                await openai.local(client, executor).models.list()
            local = anthropic.local(speaker, executor)
            for ask in (local.models.list, lambda: local.messages.count_tokens(model="m", messages=[])):
                with pytest.raises(sdk.NotFoundError, match=r"messages\.stream: use the original client for others"):
                    await ask()
