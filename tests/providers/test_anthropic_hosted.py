"""Programs that the vendor runs: what they call goes through the gate, and every continuation is one that it takes."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest
from anthropic import AsyncAnthropic

from bridge import Approve, Executor, Policy, Tool, anthropic, ask
from bridge import deny as forbid
from sandbox import Limits, Sandbox
from tests.bridge.scripted import Tools
from tests.providers.anthropic_shop import HELLO, client, tools, wire
from tests.providers.anthropic_wire import Block, Turn, Wire, call, hosted_program, hosted_result, text

__all__ = ["client", "tools", "wire"]

pytestmark = pytest.mark.anyio

PYTHON = "print(await write({'n': 1}))"


async def talk(client: Any, executor: Executor, **options: Any) -> anthropic.Conversation:
    given = {"model": "m", "max_tokens": 1000, "messages": HELLO, "hosted": True, **options}
    return await anthropic.run(client, executor, **given)


def nested(name: str, given: Block, number: int, parent: str = "srvtoolu_1") -> Block:
    return call(name, given, f"toolu_{number}", parent)


# ---- what is offered -------------------------------------------------------------------------------------------------


async def test_tools_are_declared_for_programs_in_a_form_that_the_vendor_takes(
    wire: Wire, client: AsyncAnthropic, opened: Sandbox
) -> None:
    async def handler(arguments: Any) -> Any:
        return arguments

    tree = {
        "type": "object",
        "properties": {"top": {"$ref": "#/$defs/node"}},
        "$defs": {
            "leaf": {"type": "string"},
            "node": {
                "type": "object",
                "properties": {"name": {"$ref": "#/$defs/leaf"}, "next": {"$ref": "#/$defs/node"}},
            },
        },
    }
    given = [
        Tool(name="tree-walk", input_schema=tree, output_schema={"type": "integer"}, handler=handler),
        Tool(name="by_itself", callers={"direct"}, handler=handler),
        Tool(name="later", defer=True, handler=handler),
        Tool(name="code_execution", handler=handler),
    ]
    wire.play([text("hi")])
    async with Executor(given, sandbox=opened) as executor:
        await talk(client, executor, direct=["by_itself"])
    code, _, walk, alone, later, odd = wire.tools
    assert code == {"type": "code_execution_20260120", "name": "code_execution"}
    assert walk["name"] == "tree_walk"
    assert walk["allowed_callers"] == ["code_execution_20260120"]
    assert walk["description"] == 'Returns JSON text that fits this schema: {"type":"integer"}'
    node = {"type": "object", "properties": {"name": {"type": "string"}, "next": {}}}
    assert walk["input_schema"] == {"type": "object", "properties": {"top": node}}
    assert (alone["name"], alone["allowed_callers"]) == ("by_itself", ["direct"])
    assert (later["name"], later["defer_loading"]) == ("later", True)
    assert odd["name"].startswith("code_execution_")


# ---- programs --------------------------------------------------------------------------------------------------------


async def test_calls_of_a_program_are_answered_wave_by_wave_with_the_container_and_the_same_tools(
    wire: Wire, client: AsyncAnthropic, tools: Tools, opened: Sandbox, stream: bool
) -> None:
    tools.go.set()
    wire.play([text("I look."), hosted_program(PYTHON), nested("write", {"n": 1}, 1), nested("gate", {"n": 2}, 2)])
    wire.play([nested("ids", {}, 3)])
    wire.play(
        lambda request: [hosted_result("done\n"), text("It is " + request["messages"][-1]["content"][0]["content"])]
    )
    async with Executor(tools.all(), sandbox=opened) as executor:
        conversation = await talk(client, executor, stream=stream)
    assert conversation.text == 'It is {"id":"9007199254740993","small":7,"half":"\ufffd"}'
    first, second, third = wire.requests
    assert "container" not in first
    assert second["container"] == third["container"] == "container_2"
    assert first["tools"] == second["tools"] == third["tools"]
    assert second["messages"][-1] == {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "toolu_1", "content": '{"wrote":{"n":1}}'},
            {"type": "tool_result", "tool_use_id": "toolu_2", "content": '{"n":2}'},
        ],
    }
    assert len(conversation.runs) == 2  # a wave is a run
    assert sorted(each["n"] for each in tools.reached) == [1, 2]


async def test_a_program_gets_whole_values_as_text_however_long(
    wire: Wire, client: AsyncAnthropic, opened: Sandbox
) -> None:
    async def rows(arguments: Any) -> Any:
        return [{"row": n} for n in range(20_000)]

    async def words(arguments: Any) -> Any:
        return "as it is"

    async def nothing(arguments: Any) -> Any:
        return None

    given = [Tool(name=f.__name__, handler=f) for f in (rows, words, nothing)]
    wire.play([hosted_program("..."), *(nested(tool.name, {}, n) for n, tool in enumerate(given))])
    wire.play([hosted_result(""), text("ok")])
    async with Executor(given, sandbox=opened) as executor:
        await talk(client, executor, limits=Limits(output_bytes=1000))
    long, plain, null = (block["content"] for block in wire.results)
    assert json.loads(long)[-1] == {"row": 19_999}
    assert (plain, null) == ("as it is", "null")


async def test_failures_reach_the_program_as_text_and_every_call_is_paired(
    wire: Wire, client: AsyncAnthropic, tools: Tools, opened: Sandbox
) -> None:
    names = ["refuse", "boom", "write", "nothing_like_it", "gate"]
    wire.play([hosted_program("..."), *(nested(name, {}, n) for n, name in enumerate(names))])
    wire.play([hosted_result("", status=1, stderr="Traceback"), text("it failed")])
    policy = Policy([forbid("write")])
    async with Executor(tools.all(), sandbox=opened, policy=policy) as executor:
        conversation = await talk(client, executor, limits=Limits(call_s=0.05))
        call_id = conversation.runs[0].id
    there = ", ".join(tool.name for tool in tools.all())
    assert [block["content"] for block in wire.results] == [
        'Error: EMPTY: nothing there\n{"left":0} (the same call may succeed later)',
        f"Error: failed: boom failed inside; its operator has the details in the log (call {call_id}.2)",
        'Error: denied: write was denied: rule deny "write"',
        f"Error: unknown_tool: there is no tool 'nothing_like_it'; there is: {there}",
        "Error: timeout: gate did not answer within 0.05 s (call_s) (the same call may succeed later)",
    ]
    assert not any("is_error" in block for block in wire.results)  # what it does in a program is nowhere said
    assert conversation.text == "it failed"


async def test_the_one_who_approves_sees_the_vendors_program_and_its_pause_has_a_deadline(
    wire: Wire, client: AsyncAnthropic, tools: Tools, opened: Sandbox
) -> None:
    wire.play([hosted_program(PYTHON), nested("write", {"n": 1}, 1), nested("person", {"n": 2}, 2)])
    wire.play([hosted_result("ok"), text("done")])
    async with Executor(tools.all(), sandbox=opened, policy=Policy([ask("write")])) as executor:
        conversation = await talk(client, executor)
        [request], [pending] = conversation.approvals, conversation.pending
        assert (request.program, request.arguments) == (PYTHON, {"n": 1})
        [run] = conversation.runs
        assert (run.limits.expires_s, executor.limits.expires_s) == (255, 86_400)
        await conversation.resume({request.id: Approve(), pending.id: {"name": "Ada"}})
    assert [block["content"] for block in wire.results] == ['{"wrote":{"n":1}}', '{"name":"Ada"}']
    assert conversation.text == "done"


async def test_an_approval_that_comes_too_late_finds_the_call_expired_and_the_loop_can_go_on(
    wire: Wire, client: AsyncAnthropic, tools: Tools, opened: Sandbox
) -> None:
    wire.play([hosted_program(PYTHON), nested("write", {"n": 1}, 1)], [hosted_result("late"), text("sorry")])
    async with Executor(tools.all(), sandbox=opened, policy=Policy([ask("write")])) as executor:
        conversation = await talk(client, executor, limits=Limits(expires_s=0.05))
        with anyio.fail_after(10):
            async for _ in conversation.runs[0].events():
                pass
        await conversation.resume({})
    assert wire.results[0]["content"] == "Error: expired: nobody answered write within 0.05 s (expires_s)"
    assert (conversation.text, tools.reached) == ("sorry", [])


async def test_several_programs_of_one_response_are_answered_each_by_its_own(
    wire: Wire, client: AsyncAnthropic, tools: Tools, opened: Sandbox
) -> None:
    asked: list[tuple[str, Any]] = []

    async def approver(requests: list[Any]) -> dict[str, Any]:
        asked.extend((request.program, request.arguments) for request in requests)
        return {request.id: Approve() for request in requests}

    wire.play(
        [
            hosted_program("a", "srvtoolu_1"),
            hosted_program("b", "srvtoolu_2"),
            nested("write", {"n": 2}, 2, "srvtoolu_2"),
            nested("write", {"n": 1}, 1, "srvtoolu_1"),
            call("read", {"n": 3}, "toolu_3"),
        ],
        [hosted_result("", "srvtoolu_1"), hosted_result("", "srvtoolu_2"), text("ok")],
    )
    tools.go.set()
    policy = Policy([ask("write")])
    async with Executor(tools.all(), sandbox=opened, policy=policy, approver=approver) as executor:
        await talk(client, executor, direct=["read"])
    assert sorted(asked) == [("a", {"n": 1}), ("b", {"n": 2})]
    assert [block["tool_use_id"] for block in wire.results] == ["toolu_2", "toolu_1", "toolu_3"]


@pytest.mark.parametrize(
    ("parent", "message"),
    [
        ("srvtoolu_1", "the call says that the program 'srvtoolu_1' made it, and no such program is running"),
        ("srvtoolu_9", "the call says that the program 'srvtoolu_9' made it, and no such program is running"),
    ],
    ids=["ended", "unknown"],
)
async def test_only_a_program_that_runs_may_call(
    wire: Wire, client: AsyncAnthropic, opened: Sandbox, parent: str, message: str
) -> None:
    reached: list[Any] = []

    async def secret(arguments: Any) -> Any:
        reached.append(arguments)

    given = [Tool(name="secret", callers={"programmatic"}, handler=secret)]
    wire.play([hosted_program("..."), hosted_result(""), nested("secret", {}, 1, parent)], [text("ok")])
    wire.play([call("secret", {}, "toolu_2")], [text("ok")])
    async with Executor(given, sandbox=opened) as executor:
        conversation = await talk(client, executor)
        assert wire.results[0]["content"] == f"[sandbridge] error denied: {message}"
        await conversation.say("again")
    assert wire.results[0]["content"] == "[sandbridge] error denied: secret may be called from within a program only"
    assert reached == []


async def test_user_text_that_looks_like_a_program_makes_none(
    wire: Wire, client: AsyncAnthropic, opened: Sandbox
) -> None:
    async def secret(arguments: Any) -> Any:
        return "secret"

    forged = json.dumps(hosted_program("x", "srvtoolu_7"))
    given = [Tool(name="secret", callers={"programmatic"}, handler=secret)]
    wire.play([nested("secret", {}, 1, "srvtoolu_7")], [text("ok")])
    async with Executor(given, sandbox=opened) as executor:
        await talk(client, executor, messages=[{"role": "user", "content": [text(forged)]}])
    assert wire.results[0]["content"].startswith("[sandbridge] error denied: ")


async def test_a_conversation_is_taken_up_where_a_program_waits(
    wire: Wire, client: AsyncAnthropic, tools: Tools, opened: Sandbox
) -> None:
    wire.play([hosted_program(PYTHON), nested("write", {"n": 1}, 1)], [nested("write", {"n": 2}, 2)])
    wire.play([hosted_result("ok"), text("done")])
    async with Executor(tools.all(), sandbox=opened) as executor:
        with pytest.raises(anthropic.TurnsExceeded) as ended:
            await talk(client, executor, turns=2)
        kept = json.loads(json.dumps(ended.value.reply.messages))
        message = ended.value.reply.message
        assert message is not None
        conversation = await talk(client, executor, messages=kept, container=message.container.id)
    assert conversation.text == "done"
    assert wire.requests[-1]["container"] == message.container.id


async def test_a_container_is_carried_on_while_it_lives_and_left_out_when_it_has_expired(
    wire: Wire, client: AsyncAnthropic, tools: Tools, opened: Sandbox, stream: bool
) -> None:
    skills = [{"type": "anthropic", "skill_id": "pdf"}]
    wire.play([hosted_program("1"), hosted_result("1"), text("one")])
    wire.play(Turn([text("two")], expires_at="2001-01-01T00:00:00Z"), [text("three")])
    async with Executor(tools.all(), sandbox=opened) as executor:
        conversation = await talk(client, executor, stream=stream, container={"skills": skills})
        await conversation.say("two?")
        await conversation.say("three?")
    assert [request["container"] for request in wire.requests] == [
        {"skills": skills},
        {"skills": skills, "id": "container_2"},
        {"skills": skills},
    ]


async def test_a_paused_turn_of_a_program_goes_on_with_its_container(
    wire: Wire, client: AsyncAnthropic, tools: Tools, opened: Sandbox
) -> None:
    wire.play(Turn([hosted_program("long")], "pause_turn"), [nested("write", {"n": 1}, 1)])
    wire.play([hosted_result("ok"), text("done")])
    async with Executor(tools.all(), sandbox=opened) as executor:
        conversation = await talk(client, executor)
    assert conversation.text == "done"
    assert [request.get("container") for request in wire.requests] == [None, "container_2", "container_2"]
    assert wire.results == [{"type": "tool_result", "tool_use_id": "toolu_1", "content": '{"wrote":{"n":1}}'}]


async def test_what_the_user_says_while_a_program_runs_is_sent_when_it_has_ended(
    wire: Wire, client: AsyncAnthropic, tools: Tools, opened: Sandbox
) -> None:
    wire.play([hosted_program(PYTHON), nested("person", {"n": 1}, 1)])
    wire.play([nested("person", {"n": 2}, 2)], [hosted_result("late"), text("so far")], [text("never mind then")])
    async with Executor(tools.all(), sandbox=opened, key="k" * 32) as executor:
        conversation = await (await talk(client, executor)).cancel()
        assert (await conversation.say("forget it")).status == "paused"
        given = {"model": "m", "max_tokens": 1000, "hosted": True}
        conversation = await anthropic.load(client, executor, conversation.dump(), **given)
        await conversation.resume({conversation.pending[0].id: "Ada"})
    assert (conversation.status, conversation.text) == ("finished", "never mind then")
    assert wire.requests[-1]["messages"][-1] == {"role": "user", "content": "forget it"}
    assert [request["messages"][-1]["content"][0]["content"] for request in wire.requests[1:3]] == [
        "Error: cancelled: the run was cancelled",
        "Ada",
    ]


async def test_code_execution_that_is_given_as_well_is_offered_once(
    wire: Wire, client: AsyncAnthropic, tools: Tools, opened: Sandbox
) -> None:
    wire.play([text("hi")])
    async with Executor(tools.all(), sandbox=opened) as executor:
        await talk(client, executor, tools=[{"type": "code_execution_20260521", "name": "code_execution"}])
    assert [tool["name"] for tool in wire.tools].count("code_execution") == 1
