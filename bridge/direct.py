"""Calls that no program of ours made: a model's own, or those of a program that a vendor runs. The same gate for them.

Nothing is decided here. Calls made elsewhere become the one wave of a run, whose "program" ends when all of them came
back; so lookup, check, policy, approval, pause, limits, events and rows are those of every other run, and no worker is
used. `Wave` calls are numbered from 1, in the order in which they were given.
"""

from __future__ import annotations

import difflib
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from bridge import replies
from bridge.approval import canonical
from bridge.calls import CallState
from bridge.errors import ToolError
from bridge.executor import Executor
from bridge.gate import Gate
from bridge.results import CallRow, Failure, Result, finish
from bridge.tools import Caller, Catalog, Tool
from sandbox import Call, Death, Limits, Rejected, Reply, Resolved, Returned, Usage, Wave

if TYPE_CHECKING:
    from bridge.calls import Outcome, Stage
    from bridge.run import Run


_OUTCOMES: Final[dict[str, Outcome]] = {
    "unknown_tool": "unknown_tool",
    "denied": "denied",
    "invalid_arguments": "invalid",
}


@dataclass(frozen=True)
class ToolCall:
    """A call that was made elsewhere. `arguments` is a JSON value; `tool` an exact name of the catalog."""

    tool: str
    arguments: Any


class DirectRun:
    """Calls that were made together, as a run: `run` pauses and is resumed like any other.

    Attributes:
        run: The run of those calls that may be made; None if there is none.
    """

    def __init__(self, calls: Sequence[ToolCall], refused: dict[int, ToolError], limits: Limits) -> None:
        self.run: Run | None = None
        self._calls = calls
        self._refused = refused
        self._limits = limits
        self.replies: dict[int, Reply] = {}  # by the call's number, as they come back

    def results(self) -> list[Result]:
        """A result for each call, in their order, once the run is finished (calls that never came back: cancelled)."""
        rows = {} if self.run is None or self.run.result is None else {row.id: row for row in self.run.result.calls}
        return [self._result(number, call, rows) for number, call in enumerate(self._calls, 1)]

    def _result(self, number: int, call: ToolCall, rows: dict[str, CallRow]) -> Result:
        run_id = self.run.id if self.run is not None else ""
        reply, error = self.replies.get(number), self._refused.get(number)
        row = rows.get(f"{run_id}.{number}")
        if isinstance(reply, Rejected):
            details = msgspec.json.decode(reply.details)
            error = ToolError(reply.code, reply.message, retryable=reply.retryable, details=details)
        elif reply is None and error is None:
            ended = self.run.result.error if self.run is not None and self.run.result is not None else None
            error = ToolError("cancelled", ended.message if ended is not None else "the call was cancelled")
        failure = None
        if error is not None:
            message = error.message if error.details is None else f"{error.message}\n{canonical(error.details)}"
            hint = "the same call may succeed later" if error.retryable else ""
            failure = Failure(code=error.code, name="ToolError", message=message, hint=hint)
        if row is None:
            outcome = _OUTCOMES.get(error.code if error is not None else "", "not_started")
            row = CallRow(id="", tool=call.tool, arguments=call.arguments, decision="", outcome=outcome)
        return finish(
            status="completed" if failure is None else "failed",
            value_json=bytes(reply.value) if isinstance(reply, Resolved) else None,
            emitted=(),
            images=(),
            logs=(),
            dropped_logs=0,
            failure=failure,
            notices=(),
            rows=[row],
            usage=Usage(calls=1, call_s=row.duration_s, reply_bytes=row.reply_bytes),
            limits=self._limits,
            program="",
            run_id=run_id,
            pending=(),
            approvals=(),
            handle=None,
        )


async def start(
    executor: Executor,
    calls: Sequence[ToolCall],
    *,
    caller: Caller = "direct",
    program: str = "",
    limits: Limits | None = None,
    context: Any = None,
) -> DirectRun:
    """Make calls through an executor's gate; returns when all came back, or when the rest waits for people.

    A call whose tool is not there, or may not be called by this caller, is refused and reaches nobody.

    Args:
        caller: Who made them: the model itself, or a program that somebody else runs.
        program: The text of that program, for those who approve.
        limits: Lower than the executor's, field by field.

    Raises:
        StateError: The executor is not open.
    """
    # The gate of the next run is this run's.
    gate = executor._current()  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    bounds = executor.limits if limits is None else executor.limits.lowered(limits)
    refused: dict[int, ToolError] = {}
    made: list[Call] = []
    for number, call in enumerate(calls, 1):
        entry = gate.catalog.lookup(call.tool)
        if entry is None:
            known = [each.name for each in gate.catalog.entries if caller in each.tool.callers]
            near = difflib.get_close_matches(call.tool, known, 3)
            hint = f"did you mean {' or '.join(near)}?" if near else f"there is: {', '.join(known[:20]) or 'none'}"
            refused[number] = ToolError("unknown_tool", f"there is no tool {call.tool!r}; {hint}")
        elif caller not in entry.tool.callers:
            ways = "from within a program only" if caller == "direct" else "directly only, not from within a program"
            refused[number] = ToolError("denied", f"{call.tool} may be called {ways}")
        else:
            try:
                arguments = replies.encode([call.arguments])
            except ToolError as error:
                refused[number] = ToolError("invalid_arguments", f"{call.tool}: {error.message}")
                continue
            if len(arguments) > bounds.argument_bytes:
                size = f"{len(arguments):,} bytes of arguments, more than {bounds.argument_bytes:,} (argument_bytes)"
                refused[number] = ToolError("invalid_arguments", f"{call.tool}: {size}")
                continue
            made.append(Call(number, call.tool, msgspec.Raw(arguments)))
    direct = DirectRun(calls, refused, bounds)
    if made:
        view = _View(executor, _GateOf(gate, caller), _Made(made, direct.replies))
        direct.run = await view.start(program, limits=limits, context=context)
    return direct


def with_tools(executor: Executor, tools: Sequence[Tool], *, alone: bool = False) -> Executor:
    """The same executor with more tools in its catalog, after its own: for requests that bring tools along.

    Args:
        alone: In place of its own.

    Raises:
        CatalogError: They cannot stand beside its own.
    """
    own = [] if alone else [entry.tool for entry in executor.catalog.entries]
    catalog = Catalog([*own, *tools])
    return cast("Executor", _View(executor, Gate(catalog, executor.policy, executor.grants)))


class _View:
    """An executor with its own gate and, for direct calls, something else as its sandbox; the rest is shared."""

    def __init__(self, executor: Executor, gate: Gate, sandbox: _Made | None = None) -> None:
        own: dict[str, Any] = {"_executor": executor, "catalog": gate.catalog, "_current": lambda: gate}
        if sandbox is not None:
            own["sandbox"] = sandbox
            sandbox.limits = executor.sandbox.limits
        self.__dict__.update(own)

    def instructions(self) -> str:
        return Executor.instructions(cast("Executor", self))

    async def start(self, program: str, **options: Any) -> Run:
        return await Executor.start(cast("Executor", self), program, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._executor, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._executor, name, value)


class _GateOf(Gate):
    """A gate whose calls come from one kind of caller."""

    def __init__(self, gate: Gate, caller: Caller) -> None:
        self.__dict__.update(gate.__dict__)
        self._caller: Caller = caller

    def admit(self, call: CallState, *, run_id: str, caller: Caller = "direct") -> None:
        super().admit(call, run_id=run_id, caller=self._caller)

    def judge(self, call: CallState, arguments: Any, *, run_id: str, caller: Caller = "direct") -> Stage:
        return super().judge(call, arguments, run_id=run_id, caller=self._caller)


class _Made:
    """What a run takes for a sandbox: its worker has made these calls, and ends when all of them came back."""

    gone = False
    largest_frame = 0

    def __init__(self, calls: list[Call], replies: dict[int, Reply]) -> None:
        self.limits = Limits()
        self.paused = 0  # of workers: there is none to hold
        self._calls = calls
        self._replies = replies

    @asynccontextmanager
    async def worker(self) -> AsyncGenerator[_Made]:
        yield self

    async def start(self, *_: Any) -> Wave:
        return Wave(calls=self._calls)

    async def deliver(self, worker: Any, now_ms: float, replies: Sequence[Reply], *_: Any) -> Wave:
        self._replies.update((reply.id, reply) for reply in replies)
        if len(self._replies) < len(self._calls):
            return Wave()
        return Wave(heard=[call.id for call in self._calls], end=Returned())

    async def bury(self, worker: Any) -> Death:
        raise AssertionError("there is no worker that could die")

    def cpu_s(self) -> float:
        return 0.0

    def grown(self) -> int:
        return 0
