"""Runs that wait for people: what pauses them, what each verdict does, and that nothing is applied by half."""

from __future__ import annotations

import logging
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from bridge import Answer, Approve, Defer, Deny, Edit, Executor, Policy, StateError, ToolError, ask
from bridge.approval import ApprovalRequest
from bridge.policy import deny
from sandbox import Limits, Sandbox
from tests.bridge.scripted import Tools

pytestmark = pytest.mark.anyio


def is_thirteen(given: Any) -> bool:
    return given == {"n": 13}


ASK = Policy([ask("write"), deny("write", when=is_thirteen)])
ONE = "return await tools.write({n: 1})"
TWO = """\
const all = await Promise.allSettled([tools.write({n: 1}), tools.write({n: 2})]);
return all.map(one => one.value ?? one.reason.code)"""


@pytest.fixture(scope="module", params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return request.param


def executor_of(tools: Tools, opened: Sandbox, **options: Any) -> Executor:
    return Executor(tools.all(), sandbox=opened, policy=ASK, **options)


# ---- pausing -------------------------------------------------------------------------------------------------------


async def test_a_run_that_nobody_approves_pauses_and_says_what_it_waits_for(tools: Tools, opened: Sandbox) -> None:
    async with executor_of(tools, opened) as executor:
        result = await executor.run("text('a');\n" + ONE)
        assert (result.status, result.error, result.value, result.pending) == ("paused", None, None, ())
        [request] = result.approvals
        assert (request.id, request.tool, request.arguments, request.line) == (
            f"{result.run_id}.1",
            "write",
            {"n": 1},
            2,
        )
        assert request.program == "text('a');\n" + ONE
        [row] = result.calls
        assert (row.outcome, row.decision, row.started) == ("waiting", "ask", None)
        assert result.text.splitlines()[0] == "[sandbridge] paused; 1 call (1 waiting)"
        assert tools.reached == []
        assert len(opened.resting) == 1
        run = await executor.resume(result.run_id, {request.id: Approve()})
        assert run.result is not None
        assert run.result.value == {"wrote": {"n": 1}}
    assert not opened.resting


async def test_a_run_left_paused_ends_with_its_executor(tools: Tools, opened: Sandbox) -> None:
    async with executor_of(tools, opened) as executor:
        run = await executor.start(ONE)
        assert (run.status, repr(run)) == ("paused", f"<Run {run.id} paused, 1 calls>")
    assert run.result is not None
    assert (run.status, run.result.status, len(opened.resting)) == ("finished", "cancelled", 0)


async def test_the_wall_clock_stands_while_people_are_waited_for(tools: Tools, opened: Sandbox) -> None:
    async with executor_of(tools, opened) as executor:
        run = await executor.start(ONE, limits=Limits(wall_s=0.5))
        await anyio.sleep(0.8)  # longer than the whole of wall_s: the passing of time is the subject here
        await run.resume({run.approvals[0].id: Approve()})
        assert run.result is not None
        assert run.result.status == "completed", run.result.text
        assert run.result.usage.expires_s >= 0.8
        assert run.result.usage.wall_s < 0.5


async def test_an_answer_that_never_comes_expires_and_the_run_goes_on(tools: Tools, opened: Sandbox) -> None:
    async with executor_of(tools, opened) as executor:
        program = "try { return await tools.person({}) } catch (e) { return [e.code, e.message] }"
        run = await executor.start(program, limits=Limits(expires_s=0.01))
        async for _ in run.events():
            pass
        assert run.result is not None
        assert run.result.value == ["expired", "nobody answered person within 0.01 s (expires_s)"]
        assert run.result.calls[0].outcome == "expired"
        with pytest.raises(StateError, match=r"^run [0-9a-f]+ is finished: only a paused run can be resumed$"):
            await run.resume({})
    assert not opened.resting


async def test_the_calls_of_a_wave_that_need_nobody_do_not_wait(tools: Tools, opened: Sandbox) -> None:
    async with executor_of(tools, opened) as executor:
        program = "const a = tools.write({n: 1}); const b = await tools.big({n: 3}); text(b); return [await a, b]"
        run = await executor.start(program)
        assert (run.status, run.state.output.emitted) == ("paused", ["xxx"])
        await run.resume({run.approvals[0].id: Approve()})
        assert run.result is not None
        assert run.result.value == [{"wrote": {"n": 1}}, "xxx"]


# ---- verdicts ------------------------------------------------------------------------------------------------------


async def test_a_denied_call_rejects_with_the_reason(tools: Tools, opened: Sandbox) -> None:
    async with executor_of(tools, opened) as executor:
        run = await executor.start(ONE)
        await run.resume({run.approvals[0].id: Deny("use staging")})
        assert run.result is not None
        assert run.result.error is not None
        assert (run.result.status, run.result.error.code) == ("failed", "denied")
        assert run.result.error.message == "write was denied: use staging"
        assert (run.result.calls[0].outcome, run.result.calls[0].decision, tools.reached) == ("denied", "deny", [])


async def test_a_denial_that_stops_ends_the_run_and_sends_nothing_more(tools: Tools, opened: Sandbox) -> None:
    async with executor_of(tools, opened) as executor:
        run = await executor.start(TWO)
        first, second = run.approvals
        await run.resume({first.id: Approve("run"), second.id: Deny("no", stop=True)})
        assert run.result is not None
        assert run.result.error is not None
        assert run.result.error.message == "write was denied and the run was ended: no"
        assert [row.outcome for row in run.result.calls] == ["not_started", "denied"]
    assert tools.reached == []


async def test_edited_arguments_are_checked_executed_and_shown(tools: Tools, opened: Sandbox) -> None:
    async with executor_of(tools, opened) as executor:
        run = await executor.start(ONE)
        [request] = run.approvals
        with pytest.raises(StateError) as refused:
            await run.resume({request.id: Edit({"n": "many"})})
        assert str(refused.value).startswith(f"edited arguments of call {request.id} do not fit: ")
        assert run.status == "paused"
        await run.resume({request.id: Edit({"n": 5})})
        assert run.result is not None
        assert (run.result.value, tools.reached) == ({"wrote": {"n": 5}}, [{"n": 5}])
        assert (run.result.calls[0].decision, run.result.calls[0].arguments) == ("edit", {"n": 5})


async def test_edited_arguments_meet_the_deny_rules(tools: Tools, opened: Sandbox) -> None:
    async with executor_of(tools, opened) as executor:
        run = await executor.start(ONE)
        await run.resume({run.approvals[0].id: Edit({"n": 13})})
        assert run.result is not None
        assert run.result.calls[0].outcome == "denied"
    assert tools.reached == []


async def test_an_answer_takes_the_place_of_the_tool(tools: Tools, opened: Sandbox) -> None:
    async with executor_of(tools, opened) as executor:
        run = await executor.start(ONE)
        await run.resume({run.approvals[0].id: Answer({"id": 2**53})})
        assert run.result is not None
        assert (run.result.value, tools.reached) == ({"id": str(2**53)}, [])
        assert (run.result.calls[0].outcome, run.result.calls[0].decision) == ("answered", "answer")


async def test_a_tool_error_rejects_the_call(tools: Tools, opened: Sandbox) -> None:
    async with executor_of(tools, opened) as executor:
        run = await executor.start(
            "try { await tools.person({}) } catch (e) { return [e.code, e.message, e.retryable, e.details] }"
        )
        await run.resume({run.pending[0].id: ToolError("AWAY", "on leave", retryable=True, details={"until": 3})})
        assert run.result is not None
        assert run.result.value == ["AWAY", "on leave", True, {"until": 3}]


async def test_a_bare_value_answers_a_client_owned_call(tools: Tools, opened: Sandbox) -> None:
    async with executor_of(tools, opened) as executor:
        run = await executor.start("return await tools.person({n: 3})")
        [call] = run.pending
        assert (call.tool, call.arguments, call.line, call.run_id) == ("person", {"n": 3}, 1, run.id)
        with pytest.raises(StateError) as refused:
            await run.resume({call.id: Approve()})
        assert str(refused.value) == f"call {call.id} is client-owned and was let through already: give its value"
        await run.resume({call.id: None})
        assert run.result is not None
        assert (run.result.status, run.result.value) == ("completed", None)


async def test_a_bare_value_decides_nothing_that_was_asked(tools: Tools, opened: Sandbox) -> None:
    async with executor_of(tools, opened) as executor:
        run = await executor.start(ONE)
        with pytest.raises(StateError) as refused:
            await run.resume({run.approvals[0].id: True})
        assert str(refused.value) == (
            f"call {run.id}.1 waits for a verdict, not for a value: Approve(), Deny(reason), Edit(arguments) or "
            "Answer(value)"
        )


@pytest.mark.parametrize("answer", [object(), Answer(dict)], ids=["object", "class"])
async def test_an_answer_that_is_no_json_is_refused_to_the_application(
    answer: Any, tools: Tools, opened: Sandbox
) -> None:
    async with executor_of(tools, opened) as executor:
        run = await executor.start("return await tools.person({})")
        with pytest.raises(StateError) as refused:
            await run.resume({run.pending[0].id: answer})
        kind = type(answer.value if isinstance(answer, Answer) else answer).__name__
        assert str(refused.value) == f"the answer to call {run.id}.1 is a {kind}, which has no JSON form"
        assert (run.status, len(run.pending)) == ("paused", 1)


async def test_one_wrong_answer_applies_none(tools: Tools, opened: Sandbox) -> None:
    async with executor_of(tools, opened) as executor:
        run = await executor.start(TWO)
        first, second = run.approvals
        with pytest.raises(StateError) as refused:
            await run.resume({first.id: Approve(), "elsewhere.7": Approve()})
        assert str(refused.value) == (
            f"call elsewhere.7 does not wait in run {run.id}; waiting: {first.id}, {second.id}"
        )
        assert (run.status, len(run.approvals), tools.reached) == ("paused", 2, [])
        with pytest.raises(StateError, match=r"^no paused run nowhere here"):
            await executor.resume("nowhere", {})


async def test_answers_may_come_in_parts_and_in_any_order(tools: Tools, opened: Sandbox) -> None:
    async with executor_of(tools, opened) as executor:
        run = await executor.start(TWO)
        first, second = run.approvals
        await run.resume({second.id: Approve(), first.id: Defer()})
        assert (run.status, [request.id for request in run.approvals]) == ("paused", [first.id])
        assert tools.reached == [{"n": 2}]
        await run.resume({first.id: Deny()})
        assert run.result is not None
        assert run.result.value == ["denied", {"wrote": {"n": 2}}]


async def test_an_approval_for_the_run_covers_its_later_calls_and_no_other_run(tools: Tools, opened: Sandbox) -> None:
    async with executor_of(tools, opened) as executor:
        run = await executor.start(TWO)
        await run.resume({run.approvals[0].id: Approve("run")})
        assert run.status == "finished"
        assert len(tools.reached) == 2
        assert (await executor.run(ONE)).status == "paused"


async def test_an_approval_for_the_tool_covers_later_runs(tools: Tools, opened: Sandbox) -> None:
    async with executor_of(tools, opened) as executor:
        run = await executor.start(ONE)
        await run.resume({run.approvals[0].id: Approve("tool")})
        assert (await executor.run(ONE)).status == "completed"


@pytest.mark.parametrize("order", [1, -1])
async def test_a_verdict_of_its_own_stands_above_a_grant_given_with_it(
    order: int, tools: Tools, opened: Sandbox
) -> None:
    async with executor_of(tools, opened) as executor:
        run = await executor.start(TWO)
        first, second = run.approvals
        await run.resume(dict([(first.id, Approve("run")), (second.id, Deny("not this one"))][::order]))
        assert run.result is not None
        assert (run.result.value, tools.reached) == ([{"wrote": {"n": 1}}, "denied"], [{"n": 1}])


# ---- approvers -----------------------------------------------------------------------------------------------------


async def test_an_approver_is_asked_once_for_each_wave(tools: Tools, opened: Sandbox) -> None:
    waves: list[list[Any]] = []

    async def approver(requests: list[ApprovalRequest]) -> dict[str, Any]:
        waves.append([request.arguments["n"] for request in requests])
        await anyio.lowlevel.checkpoint()
        return {request.id: Approve() for request in requests}

    async with executor_of(tools, opened, approver=approver) as executor:
        program = "await Promise.all([1, 2, 3].map(n => tools.write({n}))); return await tools.write({n: 4})"
        result = await executor.run(program)
    assert (result.status, waves) == ("completed", [[1, 2, 3], [4]])


async def test_an_approver_may_be_a_plain_function_and_see_what_ran_before(tools: Tools, opened: Sandbox) -> None:
    before: list[tuple[str, ...]] = []

    def approver(requests: list[ApprovalRequest]) -> dict[str, Any]:
        before.extend(request.before for request in requests)
        return {request.id: Deny("no") for request in requests}

    async with executor_of(tools, opened, approver=approver) as executor:
        result = await executor.run("await tools.big({n: 1}); " + ONE)
    assert (result.status, before) == ("failed", [('big({"n":1}) completed',)])


async def test_an_approver_that_fails_decides_nothing(
    tools: Tools, opened: Sandbox, caplog: pytest.LogCaptureFixture
) -> None:
    async def approver(requests: list[ApprovalRequest]) -> dict[str, Any]:
        raise OSError("no terminal")

    async with executor_of(tools, opened, approver=approver) as executor:
        with caplog.at_level(logging.ERROR, "sandbridge"):
            result = await executor.run(ONE)
        assert (result.status, len(result.approvals), tools.reached) == ("paused", 1, [])
        assert [record.getMessage() for record in caplog.records] == [
            f"the approver failed in run {result.run_id}: its calls stay undecided"
        ]


async def test_one_wrong_verdict_of_an_approver_applies_none(
    tools: Tools, opened: Sandbox, caplog: pytest.LogCaptureFixture
) -> None:
    def approver(requests: list[ApprovalRequest]) -> dict[str, Any]:
        return {requests[0].id: Approve(), requests[1].id: Edit({"n": "many"})}

    async with executor_of(tools, opened, approver=approver) as executor:
        result = await executor.run(TWO)
    assert (result.status, len(result.approvals), tools.reached) == ("paused", 2, [])
    assert len(caplog.records) == 1


async def test_an_approver_that_defers_or_leaves_out_pauses_the_run(tools: Tools, opened: Sandbox) -> None:
    def approver(requests: list[ApprovalRequest]) -> dict[str, Any]:
        return {requests[0].id: Defer()}

    async with executor_of(tools, opened, approver=approver) as executor:
        result = await executor.run(TWO)
    assert (result.status, len(result.approvals)) == ("paused", 2)


async def test_a_cancelled_run_cancels_its_approver(tools: Tools, opened: Sandbox) -> None:
    asked, gone = anyio.Event(), anyio.Event()

    async def approver(requests: list[ApprovalRequest]) -> dict[str, Any]:
        asked.set()
        try:
            await anyio.sleep_forever()
        finally:
            gone.set()
        return {}

    async with executor_of(tools, opened, approver=approver) as executor, anyio.create_task_group() as tasks:
        tasks.start_soon(executor.run, ONE)
        await asked.wait()
        tasks.cancel_scope.cancel()
    assert gone.is_set()
    assert tools.reached == []
