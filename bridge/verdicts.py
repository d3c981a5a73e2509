"""Verdicts on calls of paused runs, from any process that has the store: no tools, no executor, no program is needed.

`judge` takes the run's lease, folds its journal, checks the verdicts as a whole, appends what they come to, and gives
the lease back: the run stays paused until somebody resumes it. What needs the tool itself is checked by who resumes:
edited arguments against schema and deny rules, the definition against the one that was approved.

Everything here blocks; beside an event loop call it in a worker thread. What a live run and `judge` must say alike of a
verdict stands here too.
"""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from bridge import ending, open_calls, replies
from bridge.approval import (
    Answer,
    ApprovalRequest,
    Approve,
    Defer,
    Deny,
    Edit,
    Grant,
    Grants,
    Verdict,
    canonical,
)
from bridge.approver_key import NOBODY, ApproverKey
from bridge.calls import CallState
from bridge.errors import StateError, ToolError
from bridge.gate import refusal, rejected, replied
from bridge.journal import Began, CameBack, Judged, Record, Stage, decode, encode
from bridge.keeping import waiting_rows
from bridge.loading import binding
from bridge.proofs import signed
from bridge.results import PendingCall
from bridge.sink import put_back
from bridge.state import RunState, fold

if TYPE_CHECKING:
    from bridge.store import Lease, RunRow, RunStatus, Store

LEASE_S: Final = 10.0  # a verdict takes milliseconds; who dies in between holds the run up for no longer
COVERED: Final = "covered by a grant"


@dataclass(frozen=True, kw_only=True)
class WaitingRun:
    """What one paused run waits for, in call order.

    Titles, descriptions and annotations of tools are not in a journal: requests come without them.
    """

    run_id: str
    approvals: tuple[ApprovalRequest, ...]
    pending: tuple[PendingCall, ...]


def waiting(store: Store, run_id: str | None = None, *, limit: int = 1000) -> list[WaitingRun]:
    """What paused runs wait for, the newest run first; of one run where it is named.

    Raises:
        StateError: The run is not known, or its journal cannot be read.
        StoreFailed: The database could not say.
    """
    rows = [store.row(run_id)] if run_id is not None else store.runs("paused", limit=limit)
    states = [fold(decode(store.read(row.id))) for row in rows if row.status == "paused"]
    return [
        WaitingRun(
            run_id=state.id, approvals=tuple(open_calls.requests(state)), pending=tuple(open_calls.pending(state))
        )
        for state in states
    ]


# ---- deciding -------------------------------------------------------------------------------------------------------


def judge(
    store: Store,
    run_id: str,
    answers: Mapping[str, Any],
    *,
    by: str = "",
    key: ApproverKey | None = None,
    now: float | None = None,
) -> RunState:
    """Decide calls of a paused run; whoever resumes it, in whatever process, finds the verdicts.

    Args:
        answers: By call id: `Approve`, `Deny`, `Edit`, `Answer`, `Defer`, or a `ToolError`; a bare value is `Answer`,
            and only for a client-owned call.
        by: Who decides, for the journal.
        key: The approver's key, where the run wants verdicts signed.
        now: Seconds since 1970, UTC; None: what the clock says.

    Returns:
        The run as it stands now.

    Raises:
        StateError: The run is not paused, somebody drives it, a call does not wait (any more), has expired, the verdict
            does not fit it, or the key is not the one that the run wants: nothing was applied.
        StoreFailed: The database could not do it.
    """
    now = time.time() if now is None else now
    row = store.row(run_id)
    if row.status != "paused":
        raise StateError(_not_paused(row, now))
    lease, lines = store.acquire(run_id, owner=_owner(), lease_s=LEASE_S, now=now)
    try:
        state = fold(decode(lines))
        _check_key(state, key)
        records, grants = decide(state, answers, by=by, key=key if state.approver else None, now=now)
    except BaseException:
        put_back(store, lease, row, now=now)
        raise
    _release(store, lease, state, len(lines), records, now)
    for grant in grants:  # after the verdict itself: what was granted without a record would be worse than asking again
        store.grants.add(grant, now=now)
    return state


def decide(
    state: RunState, answers: Mapping[str, Any], *, by: str = "", key: ApproverKey | None = None, now: float
) -> tuple[list[Record], list[Grant]]:
    """What verdicts come to: records, taken into the state already, and grants for the tool in every run.

    Raises:
        StateError: As `judge`; nothing was applied.
    """
    if not isinstance(answers, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]  from outside
        raise StateError(f"answers are a mapping from call id to verdict, not a {type(answers).__name__}")
    checked: list[tuple[CallState, Verdict | ToolError]] = []
    for call_id, answer in answers.items():
        call = state.waiting.get(call_id)
        if call is None:
            raise StateError(why_not(state, call_id))
        if call.expires_at <= now:
            raise StateError(f"call {call_id} has expired: the verdict came too late and was not applied")
        checked.append((call, read(call, answer)))
    made = _Verdicts(state, by, key, now)
    for call, verdict in sorted(checked, key=lambda each: not stops(each[1])):
        if state.stopped is None:
            made.take(call, verdict)
    if state.stopped is None:
        made.cover(checked)
    return made.records, made.grants


def stops(verdict: Verdict | ToolError) -> bool:
    """Whether the run ends with it."""
    return isinstance(verdict, Deny) and verdict.stop


def read(call: CallState, answer: Any) -> Verdict | ToolError:
    """What was given for a call, as a verdict that fits it.

    Raises:
        StateError: It does not fit.
    """
    if isinstance(answer, (Approve, Edit)) and call.stage == "client":
        raise StateError(f"call {call.id} is client-owned and was let through already: give its value")
    if not isinstance(answer, (Approve, Deny, Edit, Answer, Defer, ToolError)):
        if call.stage != "client":
            ways = "Approve(), Deny(reason), Edit(arguments) or Answer(value)"
            raise StateError(f"call {call.id} waits for a verdict, not for a value: {ways}")
        answer = Answer(answer)
    if isinstance(answer, Answer):
        try:
            replies.encode(answer.value)
        except ToolError:
            kind = type(answer.value).__name__
            raise StateError(f"the answer to call {call.id} is a {kind}, which has no JSON form") from None
    if isinstance(answer, Edit):
        try:
            canonical(answer.arguments)
        except (TypeError, ValueError) as error:
            raise StateError(f"edited arguments of call {call.id} are no JSON: {error}") from None
    return answer


def why_not(state: RunState, call_id: Any) -> str:
    """Why no verdict can be given for a call that does not wait."""
    known = next((call for call in state.calls.values() if call.id == call_id), None)
    waits = ", ".join(state.waiting) or "none"
    if known is None:
        return f"call {call_id} does not wait in run {state.id}; waiting: {waits}"
    if known.outcome == "expired":
        return f"call {call_id} has expired: the verdict came too late and was not applied; waiting: {waits}"
    said = f"its verdict was {known.verdict}" if known.verdict else f"it is {known.outcome or known.stage}"
    return f"call {call_id} does not wait any more ({said}); waiting: {waits}"


def denied(call: CallState, reason: str) -> CameBack:
    """The outcome of a call that a person denied."""
    return refusal(call, "denied", f"{call.tool} was denied: {reason or ending.NO_REASON}")


def overdue(state: RunState, now: float) -> list[CameBack]:
    """The outcomes of calls that nobody answered in time."""
    return [
        refusal(call, "expired", f"nobody answered {call.tool} within {state.limits.expires_s:g} s (expires_s)")
        for call in state.waiting.values()
        if call.expires_at <= now
    ]


class _Verdicts:
    """Verdicts on calls of one run, as records that are taken into its state one by one."""

    def __init__(self, state: RunState, by: str, key: ApproverKey | None, now: float) -> None:
        self.records: list[Record] = []
        self.grants: list[Grant] = []
        self._state = state
        self._by = by
        self._key = key
        self._now = now
        self._wide: list[tuple[str, tuple[str, str | None]]] = []  # tools that a grant covers from now on

    def take(self, call: CallState, verdict: Verdict | ToolError) -> None:
        """One verdict. Raises StateError where the journal does not say enough of the call's tool."""
        if isinstance(verdict, Answer):
            record = replied(call, verdict.value, self._state.limits, outcome="answered")
            if record.code:
                raise StateError(f"the answer to call {call.id} cannot be given: {record.message}")
            self._judged(call, "answer", "done", reply=record)
        elif isinstance(verdict, ToolError):
            self._judged(call, "toolerror", "done", reply=rejected(call, "failed", verdict))
        elif isinstance(verdict, Deny):
            reply = denied(call, verdict.reason)
            self._judged(call, "deny", "done", reply=reply, reason=verdict.reason, stop=verdict.stop)
        elif isinstance(verdict, Edit):
            self._judged(call, "edit", self._next_stage(call), arguments=verdict.arguments)
        elif isinstance(verdict, Approve):
            known, stage = self._binding(call), self._next_stage(call)
            if verdict.scope == "tool":
                until = verdict.until if verdict.until is not None else self._now + Grants.expires_s
                self.grants.append(
                    Grant(tool=call.tool, server_identity=known[1], definition_digest=known[0], until=until)
                )
            if verdict.scope != "call":
                self._wide.append((call.tool, known))
            self._judged(call, "approve", stage, scope=verdict.scope, until=verdict.until)

    def cover(self, given: Sequence[tuple[CallState, Verdict | ToolError]]) -> None:
        """What a grant for the run or the tool lets through besides; a call with a verdict of its own has that one."""
        named = {call.id for call, verdict in given if not isinstance(verdict, Defer)}
        for call in list(self._state.waiting.values()):
            if call.stage == "asked" and call.id not in named and (call.tool, binding(self._state, call)) in self._wide:
                self._judged(call, "approve", self._next_stage(call), reason=COVERED)

    def _binding(self, call: CallState) -> tuple[str, str | None]:
        known = binding(self._state, call)
        if known is None:
            raise StateError(
                f"the journal of run {self._state.id} does not hold the definition of {call.tool}: decide call "
                f"{call.id} where the run was started"
            )
        return known

    def _next_stage(self, call: CallState) -> Stage:
        self._binding(call)
        tool = next(tool for tool in self._state.began.tools if tool.name == call.tool)
        return "client" if tool.client else "queued"

    def _judged(
        self, call: CallState, verdict: Any, stage: Stage, *, reply: CameBack | None = None, **details: Any
    ) -> None:
        expires_at = self._now + self._state.limits.expires_s if stage == "client" else 0.0
        record = Judged(
            call=call.number,
            at=self._now,
            verdict=verdict,
            stage=stage,
            expires_at=expires_at,
            by=self._by,
            **details,
        )
        if self._key is not None:
            record = signed(self._state, record, reply, self._key)
        for each in (record,) if reply is None else (record, reply):
            self._state.apply(each)
            self.records.append(each)


# ---- the store ------------------------------------------------------------------------------------------------------


def expire(store: Store, *, now: float | None = None) -> list[str]:
    """Refuse what nobody answered in time, in all paused runs that nobody drives; the ids of the calls.

    The runs stay paused: their programs learn of it when they are resumed.

    Raises:
        StoreFailed: The database could not do it.
    """
    now = time.time() if now is None else now
    refused: list[str] = []
    for row in store.expired(now=now):
        try:
            lease, lines = store.acquire(row.id, owner=_owner(), lease_s=LEASE_S, now=now)
        except StateError:
            continue  # somebody goes on with it, and sees to it
        try:
            state = fold(decode(lines))
        except BaseException:
            put_back(store, lease, row, now=now)
            raise
        records = overdue(state, now)
        refused += [state.calls[record.call].id for record in records]
        for record in records:
            state.apply(record)
        _release(store, lease, state, len(lines), records, now)
    return refused


def keep(store: Store, records: Sequence[Record], *, audience: str, outcome: str = "") -> None:
    """Put a run that is paused or finished, and that no store has had so far, into one.

    Raises:
        StateError: There is a run of that id already.
        StoreFailed: The database could not do it.
    """
    state, now = fold(records), time.time()
    began = records[0]
    assert isinstance(began, Began), "a journal begins so"
    lease = store.create(
        state.id,
        [encode(record) for record in records],
        owner=_owner(),
        lease_s=LEASE_S,
        now=now,
        program=began.program,
        audience=audience,
        engine_digest=began.engine,
    )
    if state.ended is not None:
        store.release(lease, now=now, status=state.ended.status, outcome=outcome[:200])
    else:
        _release(store, lease, state, len(records), (), now)


def _release(store: Store, lease: Lease, state: RunState, seq: int, records: Sequence[Record], now: float) -> None:
    """Paused, as before: a state that was dumped before can still be loaded, and finds what is new."""
    rows = waiting_rows(state)
    store.release(
        lease,
        now=now,
        status="paused",
        first_seq=seq,
        records=[encode(record) for record in records],
        claim_digest=store.row(lease.run_id).claim_digest,
        waiting=rows,
        expires_at=min((row.expires_at for row in rows), default=None),
    )


def _check_key(state: RunState, key: ApproverKey | None) -> None:
    if state.approver == NOBODY:
        raise StateError(
            f"whoever holds run {state.id} was started without an approver key, and takes no verdict from elsewhere: "
            "make one with `sandbridge approver-key`, start it again, and have it resume the run"
        )
    if state.approver and (key is None or key.verifier != state.approver):
        raise StateError(f"run {state.id} takes only verdicts that are signed with the approver key it was begun with")


def _not_paused(row: RunRow, now: float) -> str:
    status: RunStatus = row.status
    if status != "running":
        return f"run {row.id} is finished ({status}): nothing of it waits for a verdict"
    if row.lease_owner is not None and row.lease_until > now:
        return f"run {row.id} is running, driven by {row.lease_owner}: nothing of it waits for a verdict"
    return f"run {row.id} was running when its process ended: resume it first, to where it pauses"


def _owner() -> str:
    return f"{socket.gethostname()}/{os.getpid()}/{secrets.token_hex(4)}"
