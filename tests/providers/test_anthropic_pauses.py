"""What policy denies or asks about in a loop over the Messages API, and conversations that wait for people."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from anthropic import AsyncAnthropic

from bridge import Approve, Deny, Edit, Executor, Policy, StateError, ask
from bridge import deny as forbid
from sandbox import Limits, Sandbox
from tests.bridge.scripted import Tools
from tests.providers.anthropic_shop import HELLO, WRITE, client, talk, tools, wire
from tests.providers.anthropic_wire import Wire, call, program, text

__all__ = ["client", "tools", "wire"]

pytestmark = pytest.mark.anyio


async def test_a_denied_call_is_paired_and_nothing_is_sent(
    wire: Wire, client: AsyncAnthropic, tools: Tools, opened: Sandbox
) -> None:
    wire.play([program(WRITE, "toolu_1"), call("write", {"n": 2}, "toolu_2")], [text("understood")])
    async with Executor(tools.all(), sandbox=opened, policy=Policy([forbid("write")])) as executor:
        conversation = await talk(client, executor, direct=True)
    assert tools.reached == []
    assert [result.error and result.error.code for result in conversation.results] == ["denied", "denied"]
    assert wire.results[1]["content"] == '[sandbridge] error denied: write was denied: rule deny "write"'


async def test_rules_for_one_caller_hold_for_that_caller_only(
    wire: Wire, client: AsyncAnthropic, tools: Tools, opened: Sandbox
) -> None:
    wire.play([program(WRITE, "toolu_1"), call("write", {"n": 2}, "toolu_2")], [text("ok")])
    async with Executor(tools.all(), sandbox=opened, policy=Policy([forbid("write", caller="direct")])) as executor:
        await talk(client, executor, direct=True)
    assert tools.reached == [{"n": 1}]


async def test_the_approver_is_asked_about_direct_calls_together_and_about_programs(
    wire: Wire, client: AsyncAnthropic, tools: Tools, opened: Sandbox
) -> None:
    asked: list[list[Any]] = []

    async def approver(requests: list[Any]) -> dict[str, Any]:
        asked.append([request.arguments for request in requests])
        return {request.id: Edit({"n": 9}) if request.arguments["n"] == 2 else Approve() for request in requests}

    wire.play([call("write", {"n": 1}, "toolu_1"), call("write", {"n": 2}, "toolu_2")], [text("ok")])
    policy = Policy([ask("write")])
    async with Executor(tools.all(), sandbox=opened, policy=policy, approver=approver) as executor:
        await talk(client, executor, direct=True)
    assert asked == [[{"n": 1}, {"n": 2}]]
    assert [block["content"] for block in wire.results] == ['{"wrote":{"n":1}}', '{"wrote":{"n":9}}']


async def test_without_an_approver_the_conversation_pauses_and_goes_on(
    wire: Wire, client: AsyncAnthropic, tools: Tools, opened: Sandbox, stream: bool
) -> None:
    wire.play(
        [
            program("return [await tools.write({ n: 1 }), await tools.person({ n: 2 })]", "toolu_1"),
            call("write", {"n": 3}, "toolu_2"),
            program("return 4", "toolu_3"),
        ],
        [text("done")],
    )
    async with Executor(tools.all(), sandbox=opened, policy=Policy([ask("write")])) as executor:
        conversation = await talk(client, executor, direct=["write"], stream=stream)
        assert conversation.status == "paused"
        assert conversation.messages == HELLO
        assert [request.arguments for request in conversation.approvals] == [{"n": 1}, {"n": 3}]
        first, second = conversation.approvals
        await conversation.resume({first.id: Approve()})  # a partial answer
        assert [pending.arguments for pending in conversation.pending] == [{"n": 2}]
        with pytest.raises(StateError) as refused:
            await conversation.resume({"nothing": Approve()})
        assert conversation.status == "paused"
        await conversation.resume({conversation.pending[0].id: "Ada", second.id: Deny("not now")})
    assert str(refused.value).startswith("call nothing does not wait in this step; waiting: ")
    assert (conversation.status, conversation.text) == ("finished", "done")
    assert [block["content"] for block in wire.results] == [
        '[sandbridge] completed; 2 calls (1 answered)\n[{"wrote":{"n":1}},"Ada"]'.replace(" (1 answered)", ""),
        "[sandbridge] error denied: write was denied: not now",
        "[sandbridge] completed\n4",
    ]
    assert tools.reached == [{"n": 1}]


async def test_giving_up_a_pause_leaves_a_transcript_that_can_be_continued(
    wire: Wire, client: AsyncAnthropic, tools: Tools, opened: Sandbox
) -> None:
    wire.play([program(WRITE, "toolu_1"), call("person", {"n": 1}, "toolu_2")], [text("then not")])
    async with Executor(tools.all(), sandbox=opened, policy=Policy([ask("write")])) as executor:
        conversation = await talk(client, executor, direct=True)
        with pytest.raises(StateError) as refused:
            await conversation.say("hello?")
        await conversation.cancel()
        assert len(wire.requests) == 1
        await conversation.say("forget it")
    assert str(refused.value) == "the conversation is paused: resume or cancel it first"
    first, second = (block["content"] for block in wire.requests[1]["messages"][2]["content"])
    assert first.split("\n")[0] == "[sandbridge] cancelled; 1 call (1 not started)"
    assert second == "[sandbridge] error cancelled: the run was cancelled"
    assert (conversation.text, tools.reached) == ("then not", [])


async def test_what_nobody_answers_in_time_expires_and_the_conversation_can_go_on(
    wire: Wire, client: AsyncAnthropic, tools: Tools, opened: Sandbox
) -> None:
    wire.play([call("person", {"n": 1})], [text("too late")])
    async with Executor(tools.all(), sandbox=opened) as executor:
        conversation = await talk(client, executor, direct=True, limits=Limits(expires_s=0.05))
        [run] = conversation.runs
        with anyio.fail_after(10):
            async for _ in run.events():
                pass
        assert conversation.pending == []
        await conversation.resume({})
    assert conversation.text == "too late"
    assert wire.results[0]["content"] == "[sandbridge] error expired: nobody answered person within 0.05 s (expires_s)"


async def test_a_program_that_goes_on_after_an_expiry_is_waited_for(
    wire: Wire, client: AsyncAnthropic, tools: Tools, opened: Sandbox
) -> None:
    code = "try { await tools.person({ n: 1 }) } catch { return await tools.gate({ n: 2 }) }"
    wire.play([program(code)], [text("done")])
    async with Executor(tools.all(), sandbox=opened) as executor:
        conversation = await talk(client, executor, limits=Limits(expires_s=0.05))
        with anyio.fail_after(10):
            await tools.began.wait()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(conversation.resume, {})
                tools.go.set()
    assert conversation.text == "done"
    assert wire.results[0]["content"].split("\n")[1] == '{"n":2}'
