"""Programs that the vendor runs: their calls through the gate, wave by wave, and approvals answered from policy."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bridge import Answer, Approve, Deny, Edit, Policy, Tool, allow, ask, deny, openai
from bridge.openai import definitions
from bridge.openai.items import Programs, called
from bridge.tools import Catalog
from sandbox import Sandbox
from tests.providers.openai_shop import NUMBERS, Tools, client_of, executor_of
from tests.providers.openai_wire import Turn, Wire, called_by, calls, program, program_output, says, thinks

pytestmark = pytest.mark.anyio

HOSTED = {"type": "programmatic_tool_calling"}
CARRIER = {"type": "mcp", "server_label": "carrier", "server_url": "https://example.com/mcp"}
CARRIER |= {"allowed_callers": ["programmatic"]}


async def loop(client: Any, executor: Any, **options: Any) -> Any:
    return await openai.run(client, executor, **{"model": "m", "input": "hi", "hosted": True} | options)


def nested(name: str, arguments: Any, number: int) -> Any:
    return calls(name, arguments, number, **called_by())


def outputs(wire: Wire, request: int = -1) -> list[Any]:
    return [item["output"] for item in wire.requests[request]["input"] if "output" in item]


@pytest.mark.parametrize(
    ("kind", "stream", "store"),
    [("async", False, True), ("async", True, False), ("sync", False, False), ("sync", True, True)],
)
async def test_every_wave_of_the_vendors_program_is_answered_until_the_final_message(
    wire: Wire, tools: Tools, opened: Sandbox, kind: str, stream: bool, store: bool
) -> None:
    wire.play(
        [thinks(), program("..."), nested("add", {"a": 1, "b": 2}, 1), nested("name", {}, 2)],
        [nested("pay", {"a": 3, "b": 0}, 3)],
        [],
        [program_output("done"), says("paid")],
    )
    async with client_of(wire, kind) as client, executor_of(tools, opened) as executor:
        reply = await loop(client, executor, store=store, stream=stream)
    assert (reply.status, reply.text, reply.turns) == ("finished", "paid", 4)
    first = outputs(wire, 1)
    assert first == ["3", "Ada"]
    assert outputs(wire, 2)[-1] == '{"paid":3}'
    assert [call.tool for run in reply.runs for call in run.result.calls] == ["add", "name", "pay"]
    assert wire.refusals == []
    for item in wire.requests[2]["input"]:
        if item.get("type") == "function_call_output":
            assert item["caller"] == {"type": "program", "caller_id": "call_prog_1"}


async def test_the_vendor_is_told_of_every_tool_that_programs_may_call_and_of_what_comes_back(
    wire: Wire, client: Any, tools: Tools, opened: Sandbox
) -> None:
    wire.play([says("hi")])
    async with executor_of(tools, opened) as executor:
        await loop(client, executor, hosted=False, tools=[HOSTED], direct=["pay"])
    [request] = wire.requests
    first, add, pay, *_ = request["tools"]
    assert first == HOSTED
    assert (add["allowed_callers"], add["output_schema"], add["strict"]) == (
        ["programmatic"],
        {"type": "integer"},
        True,
    )
    assert pay["allowed_callers"] == ["direct", "programmatic"]
    assert "run_program" not in [tool.get("name") for tool in request["tools"]]
    assert request["instructions"] == definitions.FAILURES


async def test_a_failure_is_told_inside_the_value_for_the_wire_has_no_other_place(
    wire: Wire, client: Any, tools: Tools, opened: Sandbox
) -> None:
    wire.play(
        [
            program("..."),
            nested("fail", {}, 1),
            nested("pay", {"a": 1, "b": 1}, 2),
            nested("add", '{"a": 1', 3),
            nested("add", {"a": "x", "b": 1}, 4),
            nested("nope", {}, 5),
        ],
        [program_output("bad"), says("sorry")],
    )
    async with executor_of(tools, opened, policy=Policy([deny("pay")])) as executor:
        assert (await loop(client, executor)).text == "sorry"
    errors = [json.loads(text)["error"] for text in outputs(wire)]
    assert [error["code"] for error in errors] == [
        "EMPTY",
        "denied",
        "invalid_arguments",
        "invalid_arguments",
        "unknown_tool",
    ]
    assert errors[0] == {"code": "EMPTY", "message": "nothing there", "retryable": True, "tool": "fail"}
    assert tools.reached == []


async def test_what_fails_within_a_program_is_for_the_program_to_mind_however_often(
    wire: Wire, client: Any, tools: Tools, opened: Sandbox
) -> None:
    wire.play([program("..."), nested("fail", {}, 1)], *([nested("fail", {}, number)] for number in range(2, 6)))
    wire.play([program_output("gave up"), says("sorry")])
    async with executor_of(tools, opened) as executor:
        assert (await loop(client, executor)).text == "sorry"


@pytest.mark.parametrize("state", ["unknown", "ended"])
async def test_a_call_whose_program_is_not_there_or_has_ended_reaches_nobody(
    wire: Wire, client: Any, tools: Tools, opened: Sandbox, state: str
) -> None:
    forged = calls("add", {"a": 1, "b": 2}, 1, **called_by(7 if state == "unknown" else 1))
    output = [program("..."), forged] if state == "unknown" else [program("..."), program_output("1"), forged]
    wire.play(output)
    async with executor_of(tools, opened) as executor:
        with pytest.raises(Exception, match=r"No program found|has ended"):  # what the vendor says of its own forgery
            await loop(client, executor)
    [text] = outputs(wire)
    assert json.loads(text)["error"]["code"] == "denied"
    assert tools.reached == []


async def test_a_program_output_that_is_incomplete_leaves_its_program_alive(
    wire: Wire, client: Any, tools: Tools, opened: Sandbox
) -> None:
    wire.play(
        [program("..."), program_output("so far", status="incomplete")],
        [nested("add", {"a": 1, "b": 2}, 1)],
        [program_output("3"), says("three")],
    )
    async with executor_of(tools, opened) as executor:
        assert (await loop(client, executor)).text == "three"
    assert outputs(wire) == ["3"]


async def test_an_incomplete_response_with_whole_calls_is_answered(
    wire: Wire, client: Any, tools: Tools, opened: Sandbox
) -> None:
    wire.play(
        Turn([program("..."), nested("add", {"a": 1, "b": 2}, 1)], "incomplete", "max_output_tokens"),
        [program_output("3"), says("three")],
    )
    async with executor_of(tools, opened) as executor:
        assert (await loop(client, executor)).text == "three"
    assert outputs(wire) == ["3"]


async def test_programs_only_tools_are_refused_to_the_model_itself(
    wire: Wire, client: Any, tools: Tools, opened: Sandbox
) -> None:
    wire.play([calls("add", {"a": 1, "b": 2}), calls("pay", {"a": 2, "b": 0}, 2)], [says("ok")])
    async with executor_of(tools, opened) as executor:
        await loop(client, executor, direct=["pay"])
    first, second = outputs(wire)
    assert first == "[sandbridge] error denied: add may be called from within a program only"
    assert second == '{"paid":2}'


async def test_calls_of_one_wave_are_asked_about_together_with_the_vendors_program(
    wire: Wire, client: Any, tools: Tools, opened: Sandbox
) -> None:
    asked: list[Any] = []

    def approver(requests: Any) -> Any:
        asked.append(requests)
        return {requests[0].id: Approve(), requests[1].id: Deny("too much")}

    wire.play(
        [program("the code"), nested("pay", {"a": 1, "b": 0}, 1), nested("pay", {"a": 2, "b": 0}, 2)],
        [program_output("x"), says("ok")],
    )
    async with executor_of(tools, opened, policy=Policy([ask("pay")]), approver=approver) as executor:
        assert (await loop(client, executor)).text == "ok"
    [requests] = asked
    assert [(request.program, request.arguments["a"]) for request in requests] == [("the code", 1), ("the code", 2)]
    first, second = outputs(wire)
    assert first == '{"paid":1}'
    assert "too much" in json.loads(second)["error"]["message"]


async def test_a_wave_that_nobody_decides_pauses_the_loop(
    wire: Wire, client: Any, tools: Tools, opened: Sandbox
) -> None:
    wire.play(
        [program("..."), nested("pay", {"a": 1, "b": 0}, 1), nested("person", {"a": 2, "b": 0}, 2)],
        [program_output("x"), says("ok")],
    )
    async with executor_of(tools, opened, policy=Policy([ask("pay")])) as executor:
        reply = await loop(client, executor, store=False)
        assert (reply.status, len(wire.requests)) == ("paused", 1)
        reply = await reply.resume({reply.pending[0].id: [1], reply.approvals[0].id: Edit({"a": 5, "b": 0})})
        assert reply.text == "ok"
    assert outputs(wire) == ['{"paid":5}', "[1]"]
    assert wire.refusals == []


# ---- MCP servers that the vendor calls -------------------------------------------------------------------------------


def request(name: str, number: int = 1, **more: Any) -> Any:
    made = {"type": "mcp_approval_request", "id": f"mcpr_{number}", "server_label": "carrier", "name": name}
    return made | {"arguments": '{"id": "1Z"}'} | more


async def test_approvals_that_the_vendor_asks_for_are_answered_from_the_policy(
    wire: Wire, client: Any, tools: Tools, opened: Sandbox
) -> None:
    policy = Policy([allow("carrier.track"), deny("carrier.cancel", when=lambda given: given == {"id": "1Z"})])
    wire.play(
        [program("..."), request("track", 1, **called_by()), request("cancel", 2, **called_by()), request("track", 3)],
        [program_output("x"), says("ok")],
    )
    async with executor_of(tools, opened, policy=policy) as executor:
        assert (await loop(client, executor, tools=[CARRIER], store=False)).text == "ok"
    answers = [item for item in wire.requests[-1]["input"] if item.get("type") == "mcp_approval_response"]
    assert [(each["approval_request_id"], each["approve"]) for each in answers] == [
        ("mcpr_1", True),
        ("mcpr_2", False),
        ("mcpr_3", True),
    ]
    assert answers[1]["reason"].startswith("carrier/cancel was denied")
    assert all("caller" not in each for each in answers)
    assert wire.refusals == []


@pytest.mark.parametrize(
    ("verdict", "approve", "reason"),
    [
        (Approve(), True, None),
        (Deny("not today"), False, "carrier/track was denied: not today"),
        (Edit({"id": "2Z"}), False, "its arguments were changed by the one who approves"),
        (Edit({"id": "1Z"}), True, None),
        (Answer(1), False, "it was answered in place of the tool: 1"),
    ],
)
async def test_what_policy_does_not_decide_is_asked_about_and_only_yes_and_no_fit_the_wire(
    wire: Wire, client: Any, tools: Tools, opened: Sandbox, verdict: Any, approve: bool, reason: str | None
) -> None:
    known = {"type": "mcp_list_tools", "id": "mcpl_1", "server_label": "carrier"}
    known["tools"] = [
        {
            "name": "track",
            "description": "Where it is.",
            "input_schema": {"type": "object"},
            "annotations": {"readOnlyHint": True},
        }
    ]
    wire.play([known, program("..."), request("track", **called_by())], [program_output("x"), says("ok")])
    async with executor_of(tools, opened) as executor:
        reply = await loop(client, executor, tools=[CARRIER])
        [asked] = reply.approvals
        assert (asked.tool, asked.server, asked.description, asked.arguments) == (
            "carrier/track",
            "carrier",
            "Where it is.",
            {"id": "1Z"},
        )
        assert (asked.annotations.read_only, asked.annotations.trusted) == (True, False)
        assert (await reply.resume({asked.id: verdict})).text == "ok"
    [answer] = wire.requests[-1]["input"]
    assert answer["approve"] is approve
    assert reason is None or answer["reason"].startswith(reason)


# ---- definitions -----------------------------------------------------------------------------------------------------


def test_names_that_the_vendor_does_not_take_are_mapped_one_to_one() -> None:
    same = {"input_schema": NUMBERS}
    tools = [Tool(name="a b", **same), Tool(name="a_b", **same), Tool(name="x" * 100, **same)]
    given = definitions.hosted(Catalog([*tools[:1], *tools[2:]]), ())
    made, known = given.definitions, given.tools
    assert [tool["name"] for tool in made[1:]] == list(known)
    assert all(len(name) <= 64 for name in known)
    assert [known[name].entry.name for name in known] == ["a b", "x" * 100]


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (NUMBERS, True),
        ({"type": "object", "properties": {}, "additionalProperties": False}, True),
        ({"type": "object", "properties": {}}, False),
        (NUMBERS | {"required": ["a"]}, False),
        (NUMBERS | {"properties": {"a": {"type": "string", "minLength": 1}, "b": {}}}, False),
        (NUMBERS | {"properties": {"a": {"type": "string", "format": "uri"}, "b": {"type": "null"}}}, False),
    ],
)
def test_strict_mode_is_asked_for_only_where_nothing_has_to_be_changed(schema: Any, expected: bool) -> None:
    made = definitions.function("f", "", schema)
    assert made["strict"] is expected
    assert not expected or made["parameters"] == schema


@pytest.mark.parametrize("caller", [{"type": "agent", "caller_id": "call_prog_7"}, {"type": "program"}, "program"])
def test_a_caller_of_a_kind_that_nobody_knows_is_not_the_model(caller: Any) -> None:
    [call] = called([calls("add", {"a": 1, "b": 2}, caller=caller)], status="completed")
    assert call.parent is not None
    assert Programs().fault(call.parent) is not None
    for direct in (None, {}, {"type": "direct"}):
        assert called([calls("add", {}, caller=direct)], status="completed")[0].parent is None
