"""Nothing is sent for a run that is over, nobody changes a decision, and nothing is lost without a word."""

from __future__ import annotations

import os
import signal
from typing import Any

import anyio
import pytest

from bridge import ApprovalRequest, Approve, CatalogError, Executor, Policy, StateError, Tool, ask, deny, mcp
from bridge.run import Run
from sandbox import Limits, Worker

pytestmark = pytest.mark.anyio

AMOUNT = {"type": "object", "properties": {"amount": {"type": "number"}}}


class Till:
    """A tool with an effect, and what it did."""

    def __init__(self) -> None:
        self.paid: list[Any] = []

    async def pay(self, arguments: Any) -> int:
        self.paid.append(arguments)
        return len(self.paid)

    @property
    def tools(self) -> list[Tool]:
        return [
            Tool(name="pay", handler=self.pay, input_schema=AMOUNT),
            Tool(name="wipe", handler=self.pay, input_schema={"type": "object", "properties": {}}),
        ]


async def test_a_program_that_is_no_text_is_a_type_error() -> None:
    async with Executor([]) as executor:
        with pytest.raises(TypeError, match=r"a program is the text that the model wrote \(str\), not NoneType"):
            await executor.run(None)  # what an agent loop sends when the model left it out


async def test_a_verdict_after_cancelling_sends_nothing() -> None:
    till, asked, go_on = Till(), anyio.Event(), anyio.Event()

    async def approver(requests: list[ApprovalRequest]) -> dict[str, Approve]:
        with anyio.CancelScope(shield=True):
            asked.set()
            await go_on.wait()
        return {request.call_id: Approve() for request in requests}

    async with (
        Executor(till.tools, policy=Policy([ask("pay")]), approver=approver) as executor,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(executor.run, "return await tools.pay({ amount: 1 })")
        await asked.wait()
        tasks.cancel_scope.cancel()
        with anyio.CancelScope(shield=True):
            await anyio.wait_all_tasks_blocked()  # the run knows by now
        go_on.set()
    assert till.paid == []


async def paused_on_pay(executor: Executor) -> Run:
    run = await executor.start("return await tools.pay({ amount: 1 })")
    assert run.status == "paused"
    return run


async def test_approving_a_run_whose_worker_was_killed_sends_its_call_once_and_completes() -> None:
    till = Till()
    async with Executor(till.tools, policy=Policy([ask("pay")])) as executor:
        run = await paused_on_pay(executor)
        worker = run.seat.worker
        assert isinstance(worker, Worker)
        os.kill(worker.pid, signal.SIGKILL)
        await anyio.wait_readable(worker._born.pidfd)
        await run.resume({request.call_id: Approve() for request in run.approvals})
        assert run.result is not None
        assert run.result.status == "completed"
    assert len(till.paid) == 1


async def test_an_approver_that_changes_what_it_was_shown_changes_nothing() -> None:
    till = Till()
    policy = Policy([ask("pay"), deny("pay", when=lambda given: given.get("amount", 0) > 1000)])

    def approver(requests: list[ApprovalRequest]) -> dict[str, Approve]:
        requests[0].arguments["amount"] = 5000
        return {requests[0].call_id: Approve()}

    async with Executor(till.tools, policy=policy, approver=approver) as executor:
        await executor.run("return await tools.pay({ amount: 1 })")
    assert till.paid == [{"amount": 1}]


@pytest.mark.parametrize(
    "program",
    [
        "const { wipe } = tools;",
        "return tools.wipe",
        "tools.wipe",
        "return tools.wipe.bind(null)",
    ],
)
async def test_a_program_that_only_names_a_tool_does_not_call_it(program: str) -> None:
    till = Till()
    async with Executor(till.tools) as executor:
        result = await executor.run(program)
    assert till.paid == []
    assert "lossy_value" in [warning.code for warning in result.warnings]


async def test_an_answer_after_its_time_is_too_late() -> None:
    till = Till()
    async with Executor(till.tools, policy=Policy([ask("pay")]), limits=Limits(expires_s=0.05)) as executor:
        run = await paused_on_pay(executor)
        while run.approvals:
            await anyio.lowlevel.checkpoint()
        with pytest.raises(StateError, match="a paused run can be resumed"):
            await run.resume({f"{run.id}.1": Approve()})
    assert till.paid == []


@pytest.mark.parametrize("output", ["text('x')", "console.log('x')", "print('x')"])
async def test_output_at_the_end_of_the_stack_is_a_range_error_and_no_crash(output: str) -> None:
    async with Executor([]) as executor:
        result = await executor.run("function f() { try { f() } finally { " + output + " } }\nf();")
    assert result.error is not None
    assert (result.status, result.error.name) == ("failed", "RangeError")


async def test_timers_that_never_fire_are_said() -> None:
    async with Executor([]) as executor:
        result = await executor.run("setTimeout(() => text('late'), 50_000);\nreturn 1;")
    assert [warning.code for warning in result.warnings] == ["unfired_timers"]


@pytest.mark.parametrize("value", ["new Map().values()", "new ArrayBuffer(2)", "new WeakMap()", "(function* () {})()"])
async def test_what_json_cannot_say_is_said(value: str) -> None:
    async with Executor([]) as executor:
        result = await executor.run(f"return {{ a: {value} }};")
    assert result.value == {"a": {}}
    assert [warning.message for warning in result.warnings] == ["$.a has no JSON form and became {}"]


async def test_a_name_as_long_as_the_program_is_cut_in_the_error() -> None:
    async with Executor([]) as executor:
        result = await executor.run("tools.x" + "y" * 100_000 + "({})")
    assert len(result.text) < 10_000


def test_a_handler_that_cannot_be_called_stops_construction() -> None:
    async def handler() -> None: ...

    with pytest.raises(CatalogError, match=r"tool 'x': handler takes \(\) -> 'None', but it is called with"):
        Tool(name="x", handler=handler)  # the mistake that is tested


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"tools": Tool(name="a")}, "Executor takes a list of tools, not one Tool: write Executor([...])"),
        ({"tools": [], "policy": [deny("a")]}, "Executor(policy=) takes a Policy, not a list"),
        ({"tools": [], "limits": {"cpu_s": 1}}, "Executor(limits=) takes a Limits, not a dict"),
        (
            {"tools": [], "approver": Approve()},
            "Executor(approver=) takes a function of a list of requests: Approve",
        ),
    ],
)
def test_what_cannot_be_meant_stops_construction(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError) as caught:
        Executor(**arguments)
    assert str(caught.value) == message


def test_two_servers_of_one_name_stop_construction() -> None:
    with pytest.raises(CatalogError, match="two servers are named 's'"):
        Executor([mcp.stdio("s", "a"), mcp.stdio("s", "b")])


def test_a_rule_that_matches_no_tool_is_warned_about() -> None:
    executor = Executor(Till().tools, policy=Policy([deny("payy")]))
    assert executor.warnings == ['a rule names "payy", which matches no tool; the nearest is pay']


async def test_a_call_that_nobody_approved_was_not_started() -> None:
    till = Till()
    async with Executor(till.tools, policy=Policy([ask("pay")])) as executor:
        run = await paused_on_pay(executor)
        await run.cancel()
    assert run.result is not None
    assert [row.outcome for row in run.result.calls] == ["not_started"]
