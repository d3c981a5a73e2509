"""A model that writes programs, over the Responses API: the real clients against the vendor's wire."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from bridge import Approve, Deny, Policy, StateError, ask, deny
from bridge.code_tool import RepeatedFailure, TurnsExceeded
from sandbox import Limits, Sandbox
from tests.providers.openai_shop import ADD, ADDED, STREAMS, Tools, client_of, executor_of, loop, outputs, program
from tests.providers.openai_wire import Wire, calls, refuses, says, thinks, writes

pytestmark = [pytest.mark.anyio, STREAMS]


# ---- the loop ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "stream", "store", "raw"),
    [
        ("async", False, True, False),
        ("async", False, False, True),
        ("async", True, False, False),
        ("async", True, True, True),
        ("sync", False, False, False),
        ("sync", True, True, True),
    ],
)
async def test_a_program_is_run_and_its_result_goes_back(
    wire: Wire, tools: Tools, opened: Sandbox, kind: str, stream: bool, store: bool, raw: bool
) -> None:
    wire.play([thinks(), writes(ADD) if raw else program(ADD)], [says("It is "), says("three.", 2)])
    async with client_of(wire, kind) as client, executor_of(tools, opened) as executor:
        sealed = ["reasoning.encrypted_content"]  # also where it is stored: the history goes on without storage below
        reply = await loop(client, executor, store=store, stream=stream, raw=raw, include=sealed)
        assert (reply.status, reply.text, reply.turns) == ("finished", "It is three.", 2)
        assert [run.result.value for run in reply.runs] == [3]
        assert outputs(wire) == [ADDED]
        assert (tools.reached, wire.refusals) == ([{"a": 1, "b": 2}], [])
        wire.play([says("bye")])  # the history that is left goes on as it is
        more = [*reply.transcript, {"role": "user", "content": "and now?"}]
        assert (await loop(client, executor, input=more, store=False)).text == "bye"
        assert wire.refusals == []


async def test_nothing_but_the_code_tool_is_offered_and_how_to_use_it_is_in_the_instructions(
    wire: Wire, client: Any, tools: Tools, opened: Sandbox
) -> None:
    wire.play([says("hi")])
    async with executor_of(tools, opened) as executor:
        await loop(client, executor, instructions="Be brief.", name="js")
        [request] = wire.requests
        assert [tool["name"] for tool in request["tools"]] == ["js"]
        assert request["tools"][0]["strict"] is True
        assert request["instructions"] == f"Be brief.\n\n{executor.instructions()}"
        assert "include" not in request


async def test_reasoning_is_asked_for_where_nothing_is_stored(
    wire: Wire, client: Any, tools: Tools, opened: Sandbox
) -> None:
    wire.play([says("hi")], [says("hi")])
    async with executor_of(tools, opened) as executor:
        await loop(client, executor, store=False)
        await loop(client, executor, store=False, include=[])
    assert [request["include"] for request in wire.requests] == [["reasoning.encrypted_content"], []]


async def test_tools_that_the_model_may_call_itself_come_after_the_code_tool_and_through_the_gate(
    wire: Wire, client: Any, tools: Tools, opened: Sandbox
) -> None:
    policy = Policy([deny("pay", caller="direct")])
    wire.play(
        [calls("add", {"a": 1, "b": 1}), calls("pay", {"a": 1, "b": 1}, 2), calls("name", "", 3), program(ADD, 4)],
        [says("ok")],
    )
    async with executor_of(tools, opened, policy=policy) as executor:
        await loop(client, executor, direct=["add", "pay", "name"])
    assert [tool["name"] for tool in wire.requests[0]["tools"]] == ["run_program", "add", "pay", "name"]
    found = outputs(wire)
    assert (found[0], found[2], found[3]) == ("2", "Ada", ADDED)
    assert found[1].startswith("[sandbridge] error denied: pay was denied")
    assert sorted(given["b"] for given in tools.reached) == [1, 2]


async def test_a_call_of_a_tool_that_was_not_offered_reaches_nobody(
    wire: Wire, client: Any, tools: Tools, opened: Sandbox
) -> None:
    wire.play([calls("add", {"a": 1, "b": 1}), calls("nope", {}, 2)], [says("ok")])
    async with executor_of(tools, opened) as executor:
        await loop(client, executor)
    assert tools.reached == []
    assert [text.split(":")[0] for text in outputs(wire)] == [
        "[sandbridge] error denied",
        "[sandbridge] error unknown_tool",
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"program": "return 1', "the arguments of run_program are no JSON (line 1, column 13: Unterminated string"),
        ("[1]", "run_program takes"),
        ('{"text": "return 1"}', "run_program takes"),
    ],
)
async def test_malformed_arguments_are_answered_with_what_to_do(
    wire: Wire, client: Any, tools: Tools, opened: Sandbox, text: str, said: str
) -> None:
    wire.play([calls("run_program", text)], [program(ADD, 2)], [says("ok")])
    async with executor_of(tools, opened) as executor:
        reply = await loop(client, executor)
        assert reply.text == "ok"
    assert outputs(wire, 1)[0].startswith(f"[sandbridge] error invalid_arguments: {said}")
    assert outputs(wire, 2) == [ADDED]


@pytest.mark.parametrize(
    ("text", "starts"),
    [
        ("throw new Error('no')", "[sandbridge] failed"),
        ("return (", "[sandbridge] failed"),
        ("for (;;) {}", "[sandbridge] exceeded"),
        ("await new Promise(() => {})", "[sandbridge] stalled"),
        ("return await tools.fail()", "[sandbridge] failed"),
        ("return await tools.pay({a: 1, b: 1})", "[sandbridge] failed"),
        ("const a = []; for (;;) a.push(new Array(1e6).fill(a.length));", "[sandbridge] exceeded"),
    ],
)
async def test_a_program_that_fails_is_answered_and_the_model_may_try_again(
    wire: Wire, client: Any, tools: Tools, opened: Sandbox, text: str, starts: str
) -> None:
    wire.play([thinks(), program(text)], [program(ADD, 2)], [says("ok")])
    async with executor_of(tools, opened, policy=Policy([deny("pay")]), limits=Limits(cpu_s=0.3)) as executor:
        reply = await loop(client, executor, store=False)
        assert (reply.status, reply.text, len(reply.runs)) == ("finished", "ok", 2)
    assert outputs(wire, 1)[0].startswith(starts)
    assert wire.refusals == []


async def test_a_model_that_fails_the_same_way_three_times_is_stopped_and_told_what_it_tried(
    wire: Wire, client: Any, tools: Tools, opened: Sandbox
) -> None:
    for number in (1, 2, 3):
        wire.play([program(f"return await tools.fail() // {number}", number)])
    async with executor_of(tools, opened) as executor:
        with pytest.raises(RepeatedFailure, match="the model failed 3 times in the same way:\n1\\.") as caught:
            await loop(client, executor, store=False)
        reply = caught.value.reply
        assert (reply.status, reply.turns, len(reply.runs)) == ("ready", 3, 3)
        wire.play([says("I give up")])
        more = [*reply.transcript, {"role": "user", "content": "stop"}]
        assert (await loop(client, executor, input=more, store=False)).text == "I give up"
        assert wire.refusals == []


async def test_a_loop_ends_after_as_many_requests_as_it_may_send_and_makes_no_call_after_that(
    wire: Wire, client: Any, tools: Tools, opened: Sandbox
) -> None:
    wire.play(*([program(ADD, number)] for number in range(5)))
    async with executor_of(tools, opened) as executor:
        with pytest.raises(TurnsExceeded, match=r"after 2 requests \(turns=2\)") as caught:
            await loop(client, executor, turns=2, store=False)
        assert (len(wire.requests), len(tools.reached)) == (2, 1)
        reply = caught.value.reply
        with pytest.raises(TurnsExceeded):
            await reply.go()
        assert outputs(wire) == [ADDED]
        wire.turns[:] = [[program(ADD, 6)], [says("ok")]]
        assert (await reply.say("go on")).text == "ok"
        assert (reply.turns, len(tools.reached)) == (4, 2)
    assert outputs(wire)[1] == "[sandbridge] error limit: not carried out: the bound of 2 requests was reached"
    assert wire.refusals == []


async def test_a_refusal_is_the_last_word(wire: Wire, client: Any, tools: Tools, opened: Sandbox) -> None:
    wire.play([refuses("I cannot.")])
    async with executor_of(tools, opened) as executor:
        reply = await loop(client, executor)
    assert (reply.status, reply.text) == ("finished", "I cannot.")


async def test_commentary_beside_a_call_and_alone_is_not_the_last_word(
    wire: Wire, client: Any, tools: Tools, opened: Sandbox
) -> None:
    note = says("Let me see.", 7, phase="commentary")
    wire.play([note, program(ADD)], [note | {"id": "msg_8"}], [says("three", phase="final_answer")])
    async with executor_of(tools, opened) as executor:
        reply = await loop(client, executor)
    assert (reply.status, reply.text, reply.turns) == ("finished", "three", 3)
    assert wire.requests[2]["input"] == []


@pytest.mark.parametrize(
    "choice",
    [
        "required",
        {"type": "function", "name": "run_program"},
        {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "run_program"}]},
    ],
)
async def test_a_forced_tool_is_forced_once(
    wire: Wire, client: Any, tools: Tools, opened: Sandbox, choice: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "check_choice", lambda *_: None)
    wire.play([program(ADD)], [says("ok")])
    async with executor_of(tools, opened) as executor:
        await loop(client, executor, tool_choice=choice)
    kept = choice | {"mode": "auto"} if "mode" in choice else None
    assert [request.get("tool_choice") for request in wire.requests] == [choice, kept]


async def test_in_a_stored_conversation_only_what_is_new_is_sent(
    wire: Wire, client: Any, tools: Tools, opened: Sandbox
) -> None:
    wire.play([says("hi")], [program(ADD)], [says("ok")])
    async with executor_of(tools, opened) as executor:
        first = await loop(client, executor)
        more = await loop(client, executor, input="more", previous_response_id=first.response.id)
        wire.play([says("bye")])
        assert (await more.say("and?")).text == "bye"
        assert [item.get("content") or item.get("type") for item in more.transcript[::2]] == [
            "more",
            "function_call_output",
            "and?",
        ]
    assert [request.get("previous_response_id") for request in wire.requests] == [None, "resp_1", "resp_2", "resp_3"]
    assert [len(request["input"]) for request in wire.requests] == [1, 1, 1, 1]


async def test_pictures_of_a_program_are_shown_to_the_model(
    wire: Wire, client: Any, tools: Tools, opened: Sandbox
) -> None:
    data = base64.b64encode(b"\x89PNG\r\n\x1a\n").decode()
    other = base64.b64encode(b"<svg/>").decode()
    images = f"image('data:image/jpeg;base64,{data}'); image('data:image/png;base64,{other}'); return 1"
    wire.play([program(images)], [says("ok")])
    async with executor_of(tools, opened) as executor:
        await loop(client, executor)
    [[text, picture]] = outputs(wire)
    assert text["text"].startswith("[sandbridge] completed")
    assert text["text"].endswith("[sandbridge] picture 2 was left out: it is no PNG, JPEG, GIF or WebP")
    assert picture == {"type": "input_image", "image_url": f"data:image/png;base64,{data}", "detail": "auto"}


# ---- pauses --------------------------------------------------------------------------------------------------------


async def test_a_call_that_is_asked_about_pauses_the_loop_and_the_verdict_goes_on(
    wire: Wire, client: Any, tools: Tools, opened: Sandbox
) -> None:
    wire.play([thinks(), program("return await tools.pay({a: 5, b: 0})"), program(ADD, 2)], [says("paid")])
    async with executor_of(tools, opened, policy=Policy([ask("pay")])) as executor:
        reply = await loop(client, executor, store=False)
        assert (reply.status, reply.turns, tools.reached) == ("paused", 1, [{"a": 1, "b": 2}])
        [request] = reply.approvals
        assert (request.tool, request.arguments, reply.pending) == ("pay", {"a": 5, "b": 0}, [])
        with pytest.raises(StateError, match="call nope does not wait"):
            await reply.resume({"nope": Approve()})
        reply = await reply.resume({request.id: Approve()})
        assert (reply.status, reply.text, reply.approvals) == ("finished", "paid", [])
        with pytest.raises(StateError, match="the conversation is finished: only a paused one"):
            await reply.resume({})
    assert outputs(wire) == ['[sandbridge] completed; 1 call\n{"paid":5}', ADDED]
    assert wire.refusals == []


async def test_a_denial_is_told_to_the_model(wire: Wire, client: Any, tools: Tools, opened: Sandbox) -> None:
    wire.play([program("return await tools.pay({a: 5, b: 0})")], [says("not paid")])
    async with executor_of(tools, opened, policy=Policy([ask("pay")])) as executor:
        reply = await loop(client, executor)
        reply = await reply.resume({reply.approvals[0].id: Deny("use staging")})
        assert reply.text == "not paid"
    assert "use staging" in outputs(wire)[0]
    assert tools.reached == []


async def test_calls_that_the_application_owns_pause_the_loop_in_a_program_and_beside_it(
    wire: Wire, client: Any, tools: Tools, opened: Sandbox
) -> None:
    twice = "return await tools.person({a: await tools.person({a: 1, b: 1}), b: 2})"
    wire.play([program(twice), calls("person", {"a": 9, "b": 9}, 2)], [says("ok")])
    async with executor_of(tools, opened) as executor:
        reply = await loop(client, executor, direct=["person"])
        assert [call.arguments for call in reply.pending] == [{"a": 1, "b": 1}, {"a": 9, "b": 9}]
        first, second = reply.pending
        reply = await reply.resume({first.id: 7})
        assert [call.arguments for call in reply.pending] == [{"a": 7, "b": 2}, {"a": 9, "b": 9}]
        reply = await reply.resume({second.id: "nine", reply.pending[0].id: 8})
        assert reply.text == "ok"
    assert outputs(wire) == ["[sandbridge] completed; 2 calls\n8", "nine"]


async def test_a_loop_that_is_given_up_in_a_pause_leaves_a_history_that_goes_on(
    wire: Wire, client: Any, tools: Tools, opened: Sandbox
) -> None:
    wire.play([thinks(), program("return await tools.person({a: 1, b: 1})"), calls("person", {"a": 1, "b": 2}, 2)])
    async with executor_of(tools, opened) as executor:
        reply = await (await loop(client, executor, store=False, direct=True)).cancel()
        assert (reply.status, reply.pending) == ("ready", [])
        wire.play([says("never mind")])
        more = [*reply.transcript, {"role": "user", "content": "forget it"}]
        assert (await loop(client, executor, input=more, store=False, direct=True)).text == "never mind"
    assert [text.split("\n")[0] for text in outputs(wire)] == [
        "[sandbridge] cancelled; 1 call (1 not started)",
        "[sandbridge] error cancelled: the run was cancelled",
    ]
    assert wire.refusals == []
