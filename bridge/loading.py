"""A run that was read from its journal is made ready to go on: what was sent and not heard of, what has changed."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from bridge.approval import Grant, Grants, canonical
from bridge.calls import CallState
from bridge.errors import ToolError
from bridge.gate import Gate, bind, may_send_again, refusal
from bridge.journal import Again, Decided, Judged, Loaded, Record, Redefined, Stage
from bridge.state import RunState


def taken_over(
    state: RunState, gate: Gate, engine: str, *, approver: str = "", proved: Collection[int] | None = None
) -> list[Record]:
    """What is to be written before the run goes on. The calls get the tools of this process.

    A call that was sent and not heard of is sent again only if its tool is idempotent; the program learns of any other
    that nobody knows what became of it. A call that waits, or was let through and not sent, of a tool that has changed
    since, is asked about (again).

    Args:
        approver: Verifier of the key that this process wants verdicts to be signed with.
        proved: As for `settled`.
    """
    bind(state, gate)
    records: list[Record] = [Loaded(at=time.time(), engine=engine, changed=sorted(gate.changed), approver=approver)]
    return records + settled(state, gate, proved)


def settled(state: RunState, gate: Gate, proved: Collection[int] | None = None) -> list[Record]:
    """What became of calls while others had the run, in a process that has its tools.

    Args:
        proved: Numbers of the calls whose verdicts count; any other that was let through is decided again by policy,
            whatever the journal says. None: all count.
    """
    return [record for call in state.calls.values() for record in _settle(call, gate, state, proved)]


def binding(state: RunState, call: CallState) -> tuple[str, str | None] | None:
    """Digest and server identity of a call's tool, as last shown to who approves; None where nothing is known of it."""
    if call.redefined is not None:
        return call.redefined
    return next(((tool.digest, tool.identity) for tool in state.began.tools if tool.name == call.tool), None)


def _settle(call: CallState, gate: Gate, state: RunState, proved: Collection[int] | None) -> list[Record]:
    if call.stage in ("done", "made"):
        return []
    if call.entry is None:
        if call.stage == "running":
            return [_unknown(call)]
        return [refusal(call, "failed", f"{call.tool} is not offered any more")]
    counts = proved is None or call.number in proved
    if call.stage == "running":
        same = call.tool not in gate.changed and (counts or not _decided_again(call, gate, state))
        return [Again(call.number)] if same and may_send_again(call.entry.tool) else [_unknown(call)]
    tool = call.entry.tool
    if call.tool in gate.changed and call.redefined != (tool.digest, tool.server_identity):
        expires_at = call.expires_at or time.time() + state.limits.expires_s
        gate.grants.seen.add(tool)
        changes = gate.grants.seen.changes(gate.changed[call.tool], tool)
        return [Redefined(call.number, tool.digest, tool.server_identity, expires_at, changes)]
    if call.stage in ("queued", "client") and not counts:
        return _decided_again(call, gate, state)
    if call.stage in ("queued", "client") and call.verdict == "edit":
        return _recheck(call, gate, state)
    return []


def _decided_again(call: CallState, gate: Gate, state: RunState) -> list[Record]:
    """What policy makes of a call whose verdict does not count; nothing where that is what the journal says too."""
    first, *rest = gate.admit(call, run_id=state.id, expires_s=state.limits.expires_s, caller=state.began.caller)
    assert isinstance(first, Decided)
    stage: Stage = "queued" if call.stage == "running" else call.stage
    if first.stage == stage and canonical(first.checked) == canonical(call.executed):
        return []
    return [msgspec.structs.replace(first, notices=()), *rest]


def _recheck(call: CallState, gate: Gate, state: RunState) -> list[Record]:
    """Edited arguments may come from an operator without the tools: they pass schema and deny rules here."""
    try:
        arguments = gate.check(call.owner, call.executed)
    except ToolError as error:
        return [refusal(call, "invalid", f"edited arguments do not fit: {error.message}", code="invalid_arguments")]
    denied = gate.denial(call, arguments, state.began.caller)
    if denied:
        return [refusal(call, "denied", f"{call.tool} was denied: {denied}")]
    if canonical(arguments) == canonical(call.executed):
        return []
    details: dict[str, Any] = {"stage": call.stage, "arguments": arguments, "expires_at": call.expires_at}
    return [Judged(call=call.number, at=time.time(), verdict="edit", **details)]  # the check has changed them


def _unknown(call: CallState) -> Record:
    text = f"{call.tool} was sent and not heard of: nobody knows whether it took effect; look before you call it again"
    return refusal(call, "unknown", text, code="unknown_outcome")


def regrant(records: Sequence[Record], state: RunState, grants: Grants, *, signed: bool = False) -> None:
    """Approvals for the whole run, from its journal.

    Args:
        signed: The records are verdicts that the approver's key has signed: those for a tool count too, which are
            otherwise taken from the store.
    """
    for record in records:
        if not isinstance(record, Judged) or record.verdict != "approve" or record.scope == "call":
            continue
        of_run = record.scope == "run"
        call = state.calls[record.call]
        known = binding(state, call)
        if known is not None and (of_run or signed):
            until = math.inf if of_run else record.at + grants.expires_s
            grants.hold(
                Grant(
                    tool=call.tool,
                    server_identity=known[1],
                    definition_digest=known[0],
                    run_id=state.id if of_run else None,
                    until=until if record.until is None else record.until,
                )
            )


def is_at_rest(state: RunState) -> bool:
    """Whether all that the run waits for is people or the application: nothing is to be driven."""
    busy = state.ready or state.timers or any(call.stage in ("made", "queued") for call in state.calls.values())
    return bool(state.at_wave and state.waiting and not busy and not state.waves[-1].more)
