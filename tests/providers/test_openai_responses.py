"""Responses of the Responses API as they come: cut off, empty, failed, and in a stream."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.code_tool import LoopError, RepeatedFailure
from sandbox import Sandbox
from tests.providers.openai_shop import ADD, ADDED, STREAMS, Tools, client_of, executor_of, loop, outputs, program
from tests.providers.openai_wire import Turn, Wire, says, thinks, writes

pytestmark = [pytest.mark.anyio, STREAMS]


# ---- responses that are cut, empty or failed -----------------------------------------------------------------------


async def test_a_call_that_was_cut_off_is_not_made_and_the_model_is_told(
    wire: Wire, client: Any, tools: Tools, opened: Sandbox
) -> None:
    cut = writes("return await tools.add({a: 1, b: 2}); // and", 2)
    wire.play(Turn([thinks(), writes(ADD), cut], "incomplete", "max_output_tokens"), [says("ok")])
    async with executor_of(tools, opened) as executor:
        reply = await loop(client, executor, raw=True, store=False)
        assert (reply.text, len(reply.runs), len(tools.reached)) == ("ok", 1, 1)
    first, second = outputs(wire)
    assert first == ADDED
    assert second.startswith("[sandbridge] error not_made: the response was cut off (max_output_tokens)")


async def test_no_call_of_a_response_that_was_filtered_is_made(
    wire: Wire, client: Any, tools: Tools, opened: Sandbox
) -> None:
    wire.play(Turn([program(ADD), program(ADD, 2)], "incomplete", "content_filter"), [says("ok")])
    async with executor_of(tools, opened) as executor:
        await loop(client, executor)
    assert tools.reached == []
    assert len(outputs(wire)) == 2


async def test_calls_that_are_cut_off_again_and_again_end_the_loop(
    wire: Wire, client: Any, tools: Tools, opened: Sandbox
) -> None:
    for number in range(4):
        wire.play(Turn([writes("return", number)], "incomplete", "max_output_tokens"))
    async with executor_of(tools, opened) as executor:
        with pytest.raises(RepeatedFailure, match="cut off"):
            await loop(client, executor, raw=True)
    assert len(wire.requests) == 3


@pytest.mark.parametrize("output", [[thinks()], [thinks(), says("I was")]])
async def test_a_response_that_was_cut_off_without_a_call_is_given_back_as_such(
    wire: Wire, client: Any, tools: Tools, opened: Sandbox, output: Any
) -> None:
    wire.play(Turn(output, "incomplete", "max_output_tokens"))
    async with executor_of(tools, opened) as executor:
        reply = await loop(client, executor, store=False)
        assert (reply.status, reply.turns) == ("incomplete", 1)
        assert reply.response.incomplete_details.reason == "max_output_tokens"
        assert len(reply.transcript) == (1 if len(output) == 1 else 3)


async def test_a_response_with_nothing_in_it_is_continued_with_nothing(
    wire: Wire, client: Any, tools: Tools, opened: Sandbox
) -> None:
    wire.play([], [thinks()], [says("ok")], [], [], [])
    async with executor_of(tools, opened) as executor:
        assert (await loop(client, executor)).text == "ok"
        with pytest.raises(LoopError, match="3 responses in a row held neither a call nor a message"):
            await loop(client, executor)
    assert [request["input"] for request in wire.requests[1:3]] == [[], []]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_response_that_failed_ends_the_loop_with_the_vendors_words(
    wire: Wire, client: Any, tools: Tools, opened: Sandbox, stream: bool
) -> None:
    wire.play(Turn([program(ADD)], "failed", "out of order"))
    async with executor_of(tools, opened) as executor:
        with pytest.raises(LoopError, match="resp_1 is failed: server_error: out of order") as caught:
            await loop(client, executor, stream=stream)
    assert (caught.value.reply.turns, tools.reached) == (1, [])


# ---- streams -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_every_event_of_a_stream_is_given_to_the_application_in_order(
    wire: Wire, tools: Tools, opened: Sandbox, kind: str
) -> None:
    wire.play([program(ADD)], [says("It is three.")])
    seen: list[Any] = []

    async def see(event: Any) -> None:
        seen.append(event)

    async with client_of(wire, kind) as client, executor_of(tools, opened) as executor:
        await loop(client, executor, stream=True, on_event=see)
        wire.play([says("plain")])
        await loop(client, executor, stream=True, on_event=seen.append)
    text = [event.delta for event in seen if event.type == "response.output_text.delta"]
    assert text == ["It is t", "hree.", "plain"]
    assert [event.type for event in seen].count("response.completed") == 3


async def test_items_that_a_server_leaves_out_of_its_last_event_are_taken_from_the_stream(
    wire: Wire, client: Any, tools: Tools, opened: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_output(response: Any) -> Any:
        for event in events(response):
            yield event | ({"response": response | {"output": []}} if event["type"] == "response.completed" else {})

    events = wire.events
    monkeypatch.setattr(wire, "events", without_output)
    wire.play([program(ADD)], [says("three")])
    async with executor_of(tools, opened) as executor:
        assert (await loop(client, executor, stream=True)).text == "three"


async def test_an_application_that_raises_on_an_event_gets_its_own_error(
    wire: Wire, client: Any, tools: Tools, opened: Sandbox
) -> None:
    wire.play([says("hi")])

    def refuse(event: Any) -> None:
        raise LookupError(event.type)

    async with executor_of(tools, opened) as executor:
        with pytest.raises(LookupError, match=r"response\.created"):
            await loop(client, executor, stream=True, on_event=refuse)
