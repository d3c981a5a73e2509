"""Calls that no program of ours made: a model's own, or those of a program that a vendor runs. The same gate for them.

Nothing is decided here. Calls made elsewhere become the one wave of a run, whose "program" ends when all of them came
back; so lookup, check, policy, approval, pause, limits, events and rows are those of every other run, and no worker is
used. `Wave` calls are numbered from 1, in the order in which they were given.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from bridge import replies
from bridge.approval import canonical
from bridge.dialect import is_list, is_object
from bridge.errors import ToolError
from bridge.executor import Executor
from bridge.results import CallRow, Failure, Result, finish
from bridge.tools import Caller
from sandbox import Call, Limits, Usage

if TYPE_CHECKING:
    from bridge.calls import Outcome
    from bridge.run import Run


_NOT_PLAIN: Final = (float, dict, list)
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

    def dump(self) -> dict[str, Any]:
        """Itself as JSON data for `load`. Raises `StateError` where the run cannot be dumped."""
        assert self.run is not None, "what never ran is not waited for"
        refused = {str(number): [error.code, error.message] for number, error in self._refused.items()}
        calls = [[call.tool, call.arguments] for call in self._calls]
        return {"calls": calls, "refused": refused, "output_bytes": self._limits.output_bytes, "state": self.run.dump()}

    def results(self) -> list[Result]:
        """A result for each call, in their order, once the run is finished (calls that never came back: cancelled)."""
        rows = {} if self.run is None or self.run.result is None else {row.id: row for row in self.run.result.calls}
        return [self._result(number, call, rows) for number, call in enumerate(self._calls, 1)]

    def _result(self, number: int, call: ToolCall, rows: dict[str, CallRow]) -> Result:
        run_id = self.run.id if self.run is not None else ""
        state = self.run.state.calls.get(number) if self.run is not None else None
        error, row = self._refused.get(number), rows.get(f"{run_id}.{number}")
        if state is not None and state.error_code:
            details = msgspec.json.decode(state.details)
            error = ToolError(state.error_code, state.error_message, retryable=state.retryable, details=details)
        elif error is None and not (state is not None and state.text):
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
            value_json=state.text if state is not None and state.text else None,
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
    catalog = executor.catalog
    bounds = executor.limits if limits is None else executor.limits.lowered(limits)
    refused: dict[int, ToolError] = {}
    made: list[Call] = []
    for number, call in enumerate(calls, 1):
        entry = catalog.lookup(call.tool)
        if entry is None:
            known = [each.name for each in catalog.entries if caller in each.tool.callers]
            near = difflib.get_close_matches(call.tool, known, 3)
            hint = f"did you mean {' or '.join(near)}?" if near else f"there is: {', '.join(known[:20]) or 'none'}"
            refused[number] = ToolError("unknown_tool", f"there is no tool {call.tool!r}; {hint}")
        elif caller not in entry.tool.callers:
            ways = "from within a program only" if caller == "direct" else "directly only, not from within a program"
            refused[number] = ToolError("denied", f"{call.tool} may be called {ways}")
        else:
            try:
                _check_numbers(call.arguments)
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
        direct.run = await executor.start_calls(made, caller=caller, program=program, limits=limits, context=context)
    return direct


def _check_numbers(arguments: Any) -> None:
    """Raises `ToolError` for a number that JSON has not: `NaN` and `1e999`, which parsers take, would come as null."""
    waiting: list[tuple[Any, str]] = [(arguments, "arguments")]
    while waiting:
        value, path = waiting.pop()
        if isinstance(value, float) and not math.isfinite(value):
            text = f"{path} is {json.dumps(value)}, which JSON cannot say: send a finite number or null"
            raise ToolError("invalid_arguments", text)
        if is_object(value):
            waiting += [(part, f"{path}.{name}") for name, part in value.items() if isinstance(part, _NOT_PLAIN)]
        elif is_list(value):
            waiting += [(part, f"{path}[{index}]") for index, part in enumerate(value) if isinstance(part, _NOT_PLAIN)]


async def load(executor: Executor, data: Mapping[str, Any], context: Any = None) -> DirectRun:
    """Direct calls from what `DirectRun.dump` gave. Raises `StateError`, as `Executor.load`."""
    calls = [ToolCall(tool, arguments) for tool, arguments in data["calls"]]
    refused = {int(number): ToolError(code, message) for number, (code, message) in data["refused"].items()}
    bounds = dataclasses.replace(executor.limits, output_bytes=data["output_bytes"])
    direct = DirectRun(calls, refused, bounds)
    direct.run = await executor.load(data["state"], context=context)
    return direct
