"""How a run ended, in words for the model that has to mend its program, and its `Result`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

import msgspec

from bridge.approval import ApprovalRequest
from bridge.calls import CallState
from bridge.journal import Ended
from bridge.ledger import Traffic
from bridge.results import CallRow, Failure, PendingCall, Result, Status, decode_value, finish
from bridge.state import RunState
from bridge.tools import Catalog
from sandbox import Death, LimitName, Limits, Notice, Returned, Threw, Usage

_KEPT_CODES: Final = frozenset(("invalid_arguments", "unknown_tool", "denied", "expired"))
NO_REASON: Final = "a person denied it"  # where a denial gives none
_FAILED: Final = frozenset(("failed", "denied", "invalid", "unknown_tool", "timeout", "unknown", "expired"))


@dataclass(frozen=True, kw_only=True)
class Ending:
    """The outcome of a run.

    Attributes:
        value: JSON text of the program's value; empty where it has none.
        by_program: The program came to its own end, so that calls it left behind are awaited.
    """

    status: Status
    value: bytes = b""
    failure: Failure | None = None
    by_program: bool = False


def returned(end: Returned) -> Ending:
    """The program returned."""
    return Ending(status="completed", value=bytes(end.value), by_program=True)


def threw(end: Threw, state: RunState) -> Ending:
    """The program threw, or could not be prepared."""
    call = state.calls.get(end.call)
    code, message, line, column = end.code, end.message, end.line, end.column
    if end.tool and call is not None and call.error_code:  # what the host knows of a call stands above a claim
        code, message, line, column = error_code(call), call.error_message, call.line, call.column
    failure = Failure(
        code=code, name=end.name, message=message, line=line or None, column=column or None, limit=None, hint=end.hint
    )
    return Ending(status="failed", failure=failure, by_program=True)


def stalled(state: RunState) -> Ending:
    """Nothing can run any more and nothing is outstanding."""
    last = max((call.line for call in state.calls.values()), default=0)
    awaits = state.awaits
    candidates = sorted({line for line in awaits if line >= last}) or sorted(set(awaits))
    where = f" at line {candidates[0]}" if len(candidates) == 1 else ""
    if len(candidates) > 1:
        where = " at one of the lines " + ", ".join(map(str, candidates[:5]))
    return _failed(
        "stalled",
        f"the program waits{where} for a promise that nothing can settle: no call and no timer is outstanding",
        line=candidates[0] if candidates else None,
        hint="await a tool call, sleep(ms), or a promise that your own code resolves",
        status="stalled",
    )


def exceeded(limit: LimitName, message: str, state: RunState) -> Ending:
    """A limit of the host ended it."""
    last = max(state.calls.values(), key=lambda call: call.number, default=None)
    hints: dict[str, str] = {
        "calls": "ask for more in one call (filters, pages, lists of ids), or stop earlier",
        "timers": "clear timers that are not needed, or wait in one sleep(ms)",
        "wall_s": "wait less, start independent calls together with Promise.all, or do less in one program",
        "source_bytes": "send a shorter program: data belongs into inputs or tools",
        "cpu_s": "do less work: filter early, avoid nested loops over large lists, let a tool do the search",
        "memory_bytes": "keep less at once: take what you need of each reply and drop the rest",
    }
    line = last.line if last is not None and limit == "calls" else None
    hint = hints.get(limit, "")
    return _failed("limit", f"{message} ({limit})", limit=limit, line=line, hint=hint, status="exceeded")


def died(death: Death, limits: Limits, state: RunState) -> Ending:
    """The worker ended without an answer."""
    if death.outcome == "exceeded" and death.limit is not None:
        spent = {
            "cpu_s": f"the program computed for more than {limits.cpu_s:g} s of CPU time",
            "memory_bytes": f"the program needed more than {limits.memory_bytes >> 20:,} MiB of memory",
            "wall_s": f"the run took more than {limits.wall_s:g} s",
        }
        return exceeded(death.limit, spent[death.limit], state)
    if death.outcome == "cancelled":
        return cancelled()
    if death.outcome == "violation":
        message = "the program's process made a system call that no program needs, and was ended"
        return _failed("violation", message, status="violation")
    return crashed(death.reason)


def crashed(reason: str) -> Ending:
    """The engine or the worker failed, not the program's own logic."""
    return _failed(
        "crashed",
        f"the engine ended without a result: {reason}",
        hint="nothing of the program is left; a single huge allocation can do this: work on less data at once",
        status="crashed",
    )


def cancelled() -> Ending:
    """The application gave it up."""
    return _failed("cancelled", "the run was cancelled", status="cancelled")


def stopped(state: RunState) -> Ending | None:
    """A person denied a call and ended the run with it; None where nobody did."""
    if state.stopped is None:
        return None
    call, given = state.stopped
    reason = given or NO_REASON
    message = f"{call.tool} was denied and the run was ended: {reason}"
    return _failed("denied", message, line=call.line or None, hint="do not look for another way to the same end; ask")


def _failed(
    code: str,
    message: str,
    *,
    limit: LimitName | None = None,
    line: int | None = None,
    hint: str = "",
    status: Status = "failed",
) -> Ending:
    failure = Failure(code=code, name="", message=message, line=line, column=None, limit=limit, hint=hint)
    return Ending(status=status, failure=failure)


def error_code(call: CallState) -> str:
    """The code of a failure that an uncaught tool error makes of a run."""
    return call.error_code if call.error_code in _KEPT_CODES else "tool_error"


def brief(call: CallState) -> str:
    """One line on what a call did."""
    arguments = call.made if call.executed is None else msgspec.json.encode(call.executed)
    return f"{call.tool}({short(bytes(arguments))}) {call.outcome or call.stage}"


def short(text: bytes, length: int = 80) -> str:
    """The beginning of JSON text."""
    shown = text[: length * 4].decode("utf-8", "replace")
    return shown if len(shown) <= length else shown[: length - 3] + "..."


# ---- from a run to its result -------------------------------------------------------------------------------------


def truth(state: RunState, end: Ending) -> Ending:
    """The outcome as it is to be told: a call that failed with nobody listening makes the run failed."""
    return (_unheard(state) or end) if end.status == "completed" else end


def result(state: RunState, catalog: Catalog | None = None) -> Result:
    """What a finished run comes back with; without a catalog its ledger knows of no definitions."""
    ended = state.ended
    assert ended is not None, "only a finished run has a result"
    value = b""
    if ended.status == "completed" and isinstance(state.program_end, Returned):
        value = bytes(state.program_end.value)
    notices = state.notices()
    if ended.by_program and isinstance(state.program_end, Returned):
        notices += _about_calls(state, ended)
    if ended.status == "completed":
        notices += _about_value(state, value)
    return assemble(state, ended, catalog, value=value, notices=notices)


def assemble(
    state: RunState,
    ended: Ended,
    catalog: Catalog | None,
    *,
    value: bytes = b"",
    notices: Sequence[Notice],
    pending: Sequence[PendingCall] = (),
    approvals: Sequence[ApprovalRequest] = (),
) -> Result:
    """All parts of a `Result`."""
    calls = list(state.calls.values())
    program = state.began.program
    usage = Usage(
        cpu_s=ended.cpu_s,
        wall_s=ended.wall_s,
        memory_bytes=ended.memory_bytes,
        source_bytes=len(program.encode("utf-8", "replace")),
        calls=len(calls),
        in_flight=ended.in_flight,
        timers=state.timers_made,
        call_s=max((call.duration_s for call in calls), default=0.0),
        expires_s=state.longest_wait_s,
        argument_bytes=max((memoryview(call.made).nbytes for call in calls), default=0),
        reply_bytes=max((len(call.text) for call in calls), default=0),
        value_bytes=len(value),
        log_bytes=sum(len(line.message.encode("utf-8", "replace")) for line in state.output.logs),
        frame_bytes=ended.frame_bytes,
    )
    return finish(
        status=ended.status,
        value_json=value or None,
        emitted=state.output.emitted,
        images=state.output.images,
        logs=state.output.logs,
        dropped_logs=state.output.dropped_logs,
        failure=ended.failure,
        notices=notices,
        rows=[row(call) for call in calls],
        usage=usage,
        limits=state.limits,
        program=program,
        run_id=state.id,
        pending=pending,
        approvals=approvals,
        handle=None if ended.status == "paused" else state.id,  # of a run that goes on nothing is kept yet
        traffic=Traffic(
            catalog=catalog,
            replies={call.id: call.text for call in calls if call.text},
            levels={call.id: state.levels.of[call.number] for call in calls},
            cap_bytes=state.limits.output_bytes,
        ),
    )


def row(call: CallState) -> CallRow:
    """A call as a row of the result."""
    return CallRow(
        id=call.id,
        tool=call.tool,
        arguments=call.executed if call.is_checked else _as_made(call),
        decision=call.verdict or call.decision,
        outcome=call.outcome or ("waiting" if call.stage in ("asked", "client") else "cancelled"),
        started=call.started,
        duration_s=call.duration_s,
        argument_bytes=memoryview(call.made).nbytes,
        reply_bytes=len(call.text),
        reused=call.reused,
        line=call.line or None,
        error=f"{call.error_code}: {call.error_message}" if call.error_code else "",
        preview=short(call.text) if call.text else "",
    )


def _as_made(call: CallState) -> Any:
    try:
        made = cast("list[Any]", decode_value(bytes(call.made)))
        return made[0] if len(made) == 1 else made or {}
    except (ValueError, TypeError):  # only a worker that is no longer ours makes such
        return None


def _unheard(state: RunState) -> Ending | None:
    """A call that failed with nobody listening makes the run failed: nobody must read success."""
    for call in state.calls.values():
        if call.outcome in _FAILED and call.number not in state.heard:
            failure = Failure(
                code=error_code(call),
                name="ToolError",
                message=f"{call.tool}: {call.error_message} (the call was not awaited, and it failed)",
                line=call.line or None,
                column=call.column or None,
                limit=None,
                hint="await every call whose failure matters, or handle it with .catch",
            )
            return Ending(status="failed", failure=failure, by_program=True)
    return None


def _about_calls(state: RunState, ended: Ended) -> list[Notice]:
    notices: list[Notice] = []
    calls = state.calls.values()
    left = [call for call in calls if call.number in ended.left_behind]
    if left:
        what = ", ".join(f"{call.tool} (line {call.line}): {call.outcome}" for call in left[:10])
        more = f" and {len(left) - 10} more" if len(left) > 10 else ""
        text = f"{len(left)} call(s) were not awaited when the program ended: {what}{more}; write `await`"
        notices.append(Notice("unawaited_calls", text, left[0].line or None))
    failed = [call for call in calls if call.outcome in _FAILED and call.number in state.heard]
    if failed:
        what = "; ".join(f"{call.tool}: {call.error_message[:200]}" for call in failed[:5])
        text = f"{len(failed)} of {len(state.calls)} call(s) failed and the program went on: {what}"
        notices.append(Notice("tool_errors_caught", text, failed[0].line or None))
    return notices


def _about_value(state: RunState, value: bytes) -> list[Notice]:
    if not value and state.output.nothing:
        return [Notice("no_value", "the program ended without a value: return what you found, or call text()")]
    if value[:2] in (b'"{', b'"['):
        try:
            json.loads(decode_value(value))
        except (ValueError, RecursionError):
            return []
        return [Notice("string_was_json", "the value is JSON text: return the value itself, without JSON.stringify")]
    return []
