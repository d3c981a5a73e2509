"""Runs as lines for a person, and as JSON data: lists, one run whole, and what its program saw wave by wave.

What programs, servers and models wrote is escaped by whoever prints these lines (`screen.show`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from bridge import ending, open_calls
from bridge.approval import canonical
from bridge.clock import moment_text
from bridge.journal import Judged, Loaded, Record
from bridge.screen import plural, table
from bridge.state import RunState, fold
from sandbox import Fired, Rejected, Reply, Resolved, Threw, Wave

if TYPE_CHECKING:
    from bridge.store import RunRow

SHOWN: Final = 2_000  # characters of arguments, replies and texts that replay shows of each
_START: Final = 60  # characters of a program in a list
Line = tuple[str, str]  # text and style


def runs(rows: Sequence[RunRow], now: float) -> list[Line]:
    """A list of runs, in the order given."""
    if not rows:
        return [("no runs", "")]
    cells = [("run", "status", "began", "waits for", "program")]
    for row in rows:
        waits = ", ".join(each.tool for each in row.waiting[:3]) + (" ..." if len(row.waiting) > 3 else "")
        start = " ".join(row.program_start.split())
        cut = start if len(start) <= _START else f"{start[:_START]}..."
        cells.append((row.id, standing(row, now), moment_text(row.created), waits or "-", cut))
    first, *rest = table(cells)
    return [(first, "dim"), *((text, "") for text in rest)]


def standing(row: RunRow, now: float) -> str:
    """How a run stands, in a word or two more than its status."""
    if row.status == "running" and (row.lease_owner is None or row.lease_until <= now):
        return "running (process gone)"
    if row.status != "paused":
        return row.status
    if not row.waiting:
        return "paused (decided)"
    return "paused (expired)" if row.expires_at is not None and row.expires_at <= now else "paused"


# ---- one run --------------------------------------------------------------------------------------------------------


def run(records: Sequence[Record], row: RunRow | None, now: float) -> list[Line]:
    """All that is known of a run. Its last lines are what it waits for, or its result."""
    state = fold(records)
    began = state.began
    status = standing(row, now) if row is not None else state.ended.status if state.ended is not None else "not ended"
    owner = f", driven by {row.lease_owner}" if row is not None and row.lease_owner and row.lease_until > now else ""
    lines = [(f"run {state.id}: {status}{owner}", "bold"), (f"began {moment_text(began.at)}, seed {began.seed}", "")]
    if began.reuse:
        lines.append((f"takes over completed calls of run {began.reuse}", ""))
    lines += [("", ""), *program(state)]
    inputs = bytes(began.inputs).decode("utf-8", "replace")
    if inputs != "null":
        lines += [("", ""), ("inputs:", ""), (f"  {inputs}", "")]
    if state.calls:
        lines += [("", ""), (f"{plural(len(state.calls), 'call')}:", ""), *calls(state)]
    said = list(decisions(records, state))
    if said:
        lines += [("", ""), ("decisions:", ""), *said]
    if state.output.emitted:
        lines += [("", ""), ("text() so far:" if state.ended is None else "text():", "")]
        lines += [(f"  {piece}", "") for piece in state.output.emitted]
    if state.ended is not None:
        return [*lines, ("", ""), ("result:", ""), *((f"  {each}", "") for each in _lines(ending.result(state).text))]
    return [*lines, *_waiting(state, now)]


def program(state: RunState) -> list[Line]:
    """The program with its line numbers; lines of calls that wait are marked."""
    from bridge.terminal import numbered

    if state.began.calls:
        return [("no program: the calls were made elsewhere", "")]
    marked = {call.line for call in state.waiting.values()}
    return [
        ("the program, as the model wrote it:", ""),
        *((each, "") for each in numbered(state.began.program, marked)),
    ]


def calls(state: RunState) -> list[Line]:
    """A line each: id, line, the call, what was decided, what came of it."""
    cells: list[tuple[str, ...]] = []
    for call in state.calls.values():
        row = ending.row(call)
        outcome = f"{row.outcome} (reused)" if row.reused else row.outcome
        came = row.error or row.preview
        cells.append(
            (
                f"  {call.id}",
                f"line {call.line or '?'}",
                row.decision or "-",
                outcome if call.stage in ("done", "asked", "client") else call.stage,
                f"{call.tool}({ending.short(canonical(row.arguments).encode())})" + (f" = {came}" if came else ""),
            )
        )
    return [(text, "") for text in table(cells)]


def decisions(records: Iterable[Record], state: RunState) -> Iterable[Line]:
    """Who decided what, and when; and that the run was taken over."""
    for record in records:
        if isinstance(record, Judged):
            call = state.calls[record.call]
            by = f" by {record.by}" if record.by else ""
            details = f" for the {record.scope}" if record.verdict == "approve" and record.scope != "call" else ""
            details += " and the run ended" if record.stop else ""
            details += f" to {canonical(record.arguments)}" if record.arguments is not msgspec.UNSET else ""
            details += f": {record.reason}" if record.reason else ""
            yield f"  {moment_text(record.at)}  {call.id} {call.tool}: {record.verdict}{by}{details}", ""
        elif isinstance(record, Loaded):
            changed = f"; changed since: {', '.join(record.changed)}" if record.changed else ""
            yield f"  {moment_text(record.at)}  taken over by another process{changed}", ""


def _waiting(state: RunState, now: float) -> list[Line]:
    from bridge.terminal import describe

    lines: list[Line] = []
    for request in open_calls.requests(state):
        lines += [("", ""), (f"call {request.id} waits for a verdict, {_until(request.expires_at, now)}:", "bold")]
        lines += [(f"  {each}", "") for each in describe([request])]
    for call in open_calls.pending(state):
        text = f"call {call.id} waits for the answer of an application, {_until(call.expires_at, now)}:"
        lines += [("", ""), (text, "bold"), (f"  call of {call.tool}", "")]
        lines += [(f"  {each}", "") for each in _lines(json.dumps(call.arguments, ensure_ascii=False, indent=2))]
    return lines


def _until(expires_at: float, now: float) -> str:
    return f"until {moment_text(expires_at)}" if expires_at > now else f"and has EXPIRED at {moment_text(expires_at)}"


def data(records: Sequence[Record], row: RunRow | None) -> dict[str, Any]:
    """The same as JSON data."""
    state = fold(records)
    began, ended = state.began, state.ended
    return {
        "id": state.id,
        "status": row.status if row is not None else ended.status if ended is not None else None,
        "began": began.at,
        "program": began.program,
        "inputs": json.loads(bytes(began.inputs)),
        "seed": began.seed,
        "reuse": began.reuse or None,
        "engine": began.engine,
        "limits": msgspec.to_builtins(state.limits),
        "calls": [msgspec.to_builtins(ending.row(call)) for call in state.calls.values()],
        "verdicts": [
            {"call": state.calls[record.call].id, **_verdict(record)}
            for record in records
            if isinstance(record, Judged)
        ],
        "approvals": [msgspec.to_builtins(request) for request in open_calls.requests(state)],
        "pending": [msgspec.to_builtins(call) for call in open_calls.pending(state)],
        "emitted": list(state.output.emitted),
        "logs": [msgspec.to_builtins(line) for line in state.output.logs],
        "result": json.loads(ending.result(state).to_json()) if ended is not None else None,
    }


def _verdict(record: Judged) -> dict[str, Any]:
    given = msgspec.to_builtins(record)
    return {key: given[key] for key in ("verdict", "at", "scope", "until", "arguments", "reason", "by") if key in given}


def row_data(row: RunRow, now: float) -> dict[str, Any]:
    """A row of a list as JSON data; without what only a store needs."""
    given = msgspec.to_builtins(row)
    left_out = ("claim_digest", "fence", "seq")
    return {key: value for key, value in given.items() if key not in left_out} | {"standing": standing(row, now)}


# ---- what a program saw --------------------------------------------------------------------------------------------


def wave(state: RunState, number: int) -> list[Line]:
    """One wave of a run (counted from 0): what the program did, and what it was answered."""
    made = state.waves[number]
    lines = [(f"wave {number + 1} of {len(state.waves)}", "bold")]
    lines += [(f"  {each}", "") for each in _did(made)]
    if number < len(state.deliveries):
        delivery = state.deliveries[number]
        lines.append((f"  answered, at {moment_text(delivery.now_ms / 1000)} of the program's clock:", ""))
        replies = state.replies(delivery)
        lines += [(f"    {_reply(state, each)}", "") for each in replies] or [("    nothing: it goes on", "")]
    elif made.end is None:
        lines.append(("  not answered", ""))
    return lines


def _did(made: Wave) -> Iterable[str]:
    for call in made.calls:
        yield f"calls {call.id} (line {call.line or '?'}): {call.tool}({_cut(bytes(call.arguments)[1:-1])})"
    for timer in made.timers:
        yield f"sets timer {timer.id} (line {timer.line or '?'}): {timer.ms:g} ms"
    if made.cleared:
        yield f"clears timers {', '.join(map(str, made.cleared))}"
    for piece in made.text:
        yield f"text: {_cut(piece.encode('utf-8', 'replace'))}"
    for line in made.logs:
        yield f"console.{line.level}: {_cut(line.message.encode('utf-8', 'replace'))}"
    if made.images:
        yield plural(len(made.images), "picture")
    if isinstance(made.end, Threw):
        line = f" at line {made.end.line}" if made.end.line else ""
        yield f"throws {made.end.code}{line}: {made.end.message}"
    elif made.end is not None:
        yield f"returns {_cut(bytes(made.end.value)) or 'nothing'}"


def _reply(state: RunState, reply: Reply) -> str:
    if isinstance(reply, Fired):
        return f"timer {reply.id} fires"
    tool = state.calls[reply.id].tool
    if isinstance(reply, Rejected):
        return f"call {reply.id} of {tool} fails with {reply.code}: {reply.message}"
    assert isinstance(reply, Resolved), "there are three kinds"
    return f"call {reply.id} of {tool} gives {_cut(bytes(reply.value))}"


def _cut(text: bytes) -> str:
    shown = text.decode("utf-8", "replace")
    return shown if len(shown) <= SHOWN else f"{shown[:SHOWN]}... ({len(shown):,} characters)"


def _lines(text: str) -> list[str]:
    return text.split("\n")
