"""A model that writes programs, over Chat Completions: the real clients against the vendor's wire and odd servers."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from bridge import Approve, ConfigurationError, Executor, Policy, StateError, ask
from bridge.code_tool import LoopError, RepeatedFailure, TurnsExceeded
from bridge.openai import chat
from bridge.openai.client import _sum  # what chunks add up to has no other way in
from sandbox import Sandbox
from tests.providers.openai_shop import ADD, ADDED, STREAMS, Tools, client_of, executor_of
from tests.providers.openai_wire import Turn, Wire, chat_calls, chat_says

pytestmark = [pytest.mark.anyio, STREAMS]

HI = [{"role": "user", "content": "hi"}]


def program(text: str, number: int = 1) -> Any:
    return chat_calls("run_program", {"program": text}, number)


def results(wire: Wire, request: int = -1) -> list[tuple[str, str]]:
    messages = wire.requests[request]["messages"]
    return [(each["tool_call_id"], each["content"]) for each in messages if each["role"] == "tool"]


async def loop(client: Any, executor: Executor, **options: Any) -> Any:
    return await chat.run(client, executor, **{"model": "m", "messages": HI} | options)


@pytest.mark.parametrize(
    ("kind", "stream", "raw"),
    [("async", False, False), ("async", True, False), ("sync", True, True), ("sync", False, False)],
)
async def test_a_program_is_run_and_its_result_goes_back(
    wire: Wire, tools: Tools, opened: Sandbox, kind: str, stream: bool, raw: bool
) -> None:
    call = {"id": "call_1", "type": "custom", "custom": {"name": "run_program", "input": ADD}} if raw else program(ADD)
    wire.play([chat_says("Let me see.", call)], [chat_says("three")])
    async with client_of(wire, kind) as client, executor_of(tools, opened) as executor:
        reply = await loop(client, executor, stream=stream, raw=raw)
        assert (reply.status, reply.text, reply.turns) == ("finished", "three", 2)
        assert results(wire) == [("call_1", ADDED)]
        assert wire.requests[1]["messages"][2] == {"role": "assistant", "content": "Let me see.", "tool_calls": [call]}
        wire.play([chat_says("bye")])
        more = [*reply.transcript, {"role": "user", "content": "and now?"}]
        assert (await loop(client, executor, messages=more, raw=raw)).text == "bye"
    assert wire.refusals == []


async def test_how_to_write_a_program_stands_in_the_system_message_and_not_in_the_history(
    wire: Wire, client: Any, tools: Tools, opened: Sandbox
) -> None:
    wire.play(*([chat_says("hi")] for _ in range(3)))
    async with executor_of(tools, opened) as executor:
        reply = await loop(client, executor)
        await loop(client, executor, messages=[{"role": "developer", "content": "Be brief."}, *HI])
        parts = [{"type": "text", "text": "Be brief."}]
        await loop(client, executor, messages=[{"role": "system", "content": parts}, *HI])
        how = executor.instructions()
    first = [request["messages"][0] for request in wire.requests]
    assert first == [
        {"role": "system", "content": how},
        {"role": "developer", "content": f"Be brief.\n\n{how}"},
        {"role": "system", "content": [*parts, {"type": "text", "text": how}]},
    ]
    assert [message["role"] for message in reply.transcript] == ["user", "assistant"]
    assert [tool["function"]["name"] for tool in wire.requests[0]["tools"]] == ["run_program"]


async def test_parallel_calls_are_answered_under_their_ids(
    wire: Wire, client: Any, tools: Tools, opened: Sandbox
) -> None:
    wire.play(
        [chat_says(None, program(ADD), chat_calls("add", {"a": 5, "b": 5}, 2), chat_calls("run_program", "{", 3))],
        [chat_says("ok")],
    )
    async with executor_of(tools, opened) as executor:
        await loop(client, executor, direct=["add"], stream=True)
    found = results(wire)
    assert found[:2] == [("call_1", ADDED), ("call_2", "10")]
    assert found[2][1].startswith("[sandbridge] error invalid_arguments: the arguments of run_program are no JSON")


@pytest.mark.parametrize("ids", [["", ""], ["call_0", "call_0"], [None, "call_0"], ["call_1", "call_1"]])
@pytest.mark.parametrize("stream", [False, True])
async def test_ids_that_are_missing_or_the_same_twice_are_made_unique(
    wire: Wire, client: Any, tools: Tools, opened: Sandbox, ids: list[str | None], stream: bool, monkeypatch: Any
) -> None:
    async def odd(client: Any, request: Any, **_: Any) -> Any:
        made = await real(client, request, stream=stream, on_event=None)
        for call, identity in zip(made.choices[0].message.tool_calls or (), ids, strict=False):
            call.id = identity
        return made

    real = chat.clients.complete
    monkeypatch.setattr(chat.clients, "complete", odd)
    wire.play([chat_says(None, program("return 1"), program("return 2", 2))], [chat_says("ok")])
    async with executor_of(tools, opened) as executor:
        assert (await loop(client, executor)).text == "ok"
    found = results(wire)
    assert [text.split("\n")[1] for _, text in found] == ["1", "2"]
    assert len({identity for identity, _ in found}) == 2
    assert wire.refusals == []


def chunk(delta: Any, finish: str | None = None) -> Any:
    from openai.types.chat import ChatCompletionChunk

    choices = [{"index": 0, "delta": delta, "finish_reason": finish}]
    return ChatCompletionChunk.construct(id="c", created=1, model="m", object="chat.completion.chunk", choices=choices)


def piece(number: int, name: str | None, arguments: str, identity: str | None = None) -> Any:
    return {"tool_calls": [{"index": number, "id": identity, "function": {"name": name, "arguments": arguments}}]}


def test_chunks_add_up_also_where_every_call_is_numbered_0_and_unknown_fields_arrive() -> None:
    whole = _sum(
        [
            chunk({"role": "assistant", "content": "", "reasoning_content": "hm"}),
            chunk({"content": "He", "reasoning_content": "m."}),
            chunk({"content": "llo"}),
            chunk(piece(0, "f", '{"a":', "one")),
            chunk(piece(0, "", "1}")),
            chunk(piece(0, "g", '{"b":', "two")),
            chunk(piece(0, None, "2}", "two")),
            chunk({}, "tool_calls"),
        ]
    ).choices[0]
    message = whole.message.to_dict()
    assert (message["content"], message["reasoning_content"], whole.finish_reason) == ("Hello", "hmm.", "tool_calls")
    calls = whole.message.tool_calls or []
    assert [(call.id, call.to_dict()["function"]) for call in calls] == [
        ("one", {"name": "f", "arguments": '{"a":1}'}),
        ("two", {"name": "g", "arguments": '{"b":2}'}),
    ]


def test_a_stream_that_breaks_off_is_no_message() -> None:
    with pytest.raises(LoopError, match="the stream ended in the middle of a message"):
        _sum([chunk({"role": "assistant", "content": "Hel"})])


async def test_a_message_that_was_cut_off_makes_no_last_call(
    wire: Wire, client: Any, tools: Tools, opened: Sandbox
) -> None:
    wire.play(
        Turn([chat_says(None, program(ADD), chat_calls("run_program", '{"program": "ret', 2))], "incomplete", "length"),
        Turn([chat_says("It is th")], "incomplete", "length"),
    )
    async with executor_of(tools, opened) as executor:
        reply = await loop(client, executor)
    assert (reply.status, reply.text) == ("incomplete", "It is th")
    first, second = results(wire)
    assert first == ("call_1", ADDED)
    assert second[1].startswith("[sandbridge] error not_made: the response was cut off (length)")


async def test_a_message_that_was_filtered_makes_no_call_at_all(
    wire: Wire, client: Any, tools: Tools, opened: Sandbox
) -> None:
    wire.play(Turn([chat_says(None, program(ADD))], "incomplete", "content_filter"), [chat_says("sorry")])
    async with executor_of(tools, opened) as executor:
        assert (await loop(client, executor)).text == "sorry"
    assert tools.reached == []


async def test_pauses_bounds_and_repeated_failures_are_those_of_every_loop(
    wire: Wire, client: Any, tools: Tools, opened: Sandbox
) -> None:
    async with executor_of(tools, opened, policy=Policy([ask("pay")])) as executor:
        wire.play([chat_says(None, program("return await tools.pay({a: 1, b: 0})"))], [chat_says("paid")])
        reply = await loop(client, executor)
        assert reply.status == "paused"
        assert (await reply.resume({reply.approvals[0].id: Approve()})).text == "paid"
        with pytest.raises(StateError, match="the conversation is finished: only a paused one"):
            await reply.resume({})
        for number in (1, 2, 3):
            wire.play([chat_says(None, program("return await tools.fail()", number))])
        with pytest.raises(RepeatedFailure) as caught:
            await loop(client, executor)
        wire.play([chat_says("ok")])
        assert (await loop(client, executor, messages=[*caught.value.reply.transcript, *HI])).text == "ok"
        wire.play([chat_says(None, program(ADD))])
        with pytest.raises(TurnsExceeded):
            await loop(client, executor, turns=1)
    assert tools.reached == [{"a": 1, "b": 0}]
    assert wire.refusals == []


async def test_a_forced_tool_is_forced_once(wire: Wire, client: Any, tools: Tools, opened: Sandbox) -> None:
    wire.play([chat_says(None, program(ADD))], [chat_says("ok")])
    async with executor_of(tools, opened) as executor:
        await loop(client, executor, tool_choice="required")
    assert [request.get("tool_choice") for request in wire.requests] == ["required", None]


async def test_a_tool_message_that_cannot_hold_pictures_says_so(
    wire: Wire, client: Any, tools: Tools, opened: Sandbox
) -> None:
    data = base64.b64encode(b"\x89PNG").decode()
    wire.play([chat_says(None, program(f"image('data:image/png;base64,{data}'); return 1"))], [chat_says("ok")])
    async with executor_of(tools, opened) as executor:
        await loop(client, executor)
    [(_, text)] = results(wire)
    assert text.endswith("[sandbridge] 1 picture(s) were made; a tool message cannot hold them")


async def test_refusals_and_empty_messages_are_last_words_that_can_be_sent_back(
    wire: Wire, client: Any, tools: Tools, opened: Sandbox
) -> None:
    async with executor_of(tools, opened) as executor:
        for said, text in ((chat_says(None, refusal="no"), "no"), (chat_says(None), "")):
            wire.play([said], [chat_says("ok")])
            reply = await loop(client, executor)
            assert (reply.status, reply.text) == ("finished", text)
            assert (await loop(client, executor, messages=[*reply.transcript, *HI])).text == "ok"
    assert wire.refusals == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"n": 2}, "a loop follows one choice"),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "the tool 'f' belongs into the executor"),
        ({"functions": [{"name": "f"}]}, "were replaced by tools"),
    ],
)
async def test_options_that_cannot_be_meant_stop_before_anything_is_sent(
    wire: Wire, client: Any, tools: Tools, opened: Sandbox, options: Any, said: str
) -> None:
    async with executor_of(tools, opened) as executor:
        with pytest.raises(ConfigurationError, match=said):
            await loop(client, executor, **options)
    assert wire.requests == []


async def test_the_single_step_serves_a_loop_of_ones_own(
    wire: Wire, client: Any, tools: Tools, opened: Sandbox
) -> None:
    wire.play([chat_says(None, program(ADD), chat_calls("mine", {}, 2))], [chat_says("ok")])
    mine = {"type": "function", "function": {"name": "mine"}}
    async with executor_of(tools, opened) as executor:
        messages: list[Any] = [{"role": "system", "content": executor.instructions()}, *HI]
        request = {"model": "m", "tools": [*chat.tools(executor), mine]}
        step = None
        while step is None or not step.final:
            completion = await client.chat.completions.create(messages=messages, **request)
            step = await chat.handle(completion, executor, after=step)
            messages += step.transcript
            messages += [{"role": "tool", "tool_call_id": call["id"], "content": "42"} for call in step.left]
    assert messages[-1] == {"role": "assistant", "content": "ok"}
    assert wire.refusals == []
