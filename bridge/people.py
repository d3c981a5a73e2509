"""What a run waits for from outside: verdicts of approvers and answers of the application."""

from __future__ import annotations

import copy
import inspect
import logging
import math
import time
import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, cast

import anyio

from bridge import ending, open_calls, verdicts
from bridge.approval import Answer, ApprovalRequest, Approve, Approver, Defer, Deny, Edit, Verdict, validate
from bridge.calls import CallState
from bridge.errors import StateError, ToolError
from bridge.gate import refusal, rejected
from bridge.journal import Judged, Redefined, Stage
from bridge.results import PendingCall
from bridge.tools import Entry, Tool
from sandbox import Notice

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from bridge.run import Run

log: Final = logging.getLogger("sandbridge")


class People:
    """The calls of one run that wait for a person or for the application."""

    def __init__(self, run: Run, approver: Approver | None, live: Callable[[Entry], Tool | None]) -> None:
        self.asking = 0  # approvers that were asked and have not answered
        self._run = cast("Run", weakref.proxy(run))  # no cycle: as in `Flights`
        self._approver = approver
        self._live = live

    @property
    def waiting(self) -> dict[str, CallState]:
        """By public id, in call order."""
        return self._run.state.waiting

    def pending(self) -> list[PendingCall]:
        """Client-owned calls, in call order."""
        return [
            PendingCall(
                id=call.id,
                run_id=self._run.id,
                tool=call.tool,
                arguments=copy.deepcopy(call.executed),  # theirs to change: ours was checked
                line=call.line or None,
                expires_at=call.expires_at,
            )
            for call in self.waiting.values()
            if call.stage == "client"
        ]

    def requests(self) -> list[ApprovalRequest]:
        """Calls that wait for a verdict, in call order."""
        return [self._request(call) for call in self.waiting.values() if call.stage == "asked"]

    def ask(self, calls: list[CallState], tasks: TaskGroup) -> None:
        """Ask the approver about the calls of one wave, together."""
        if calls and self._approver is not None:
            self.asking += 1
            tasks.start_soon(self._ask, self._approver, calls)

    async def _ask(self, approver: Approver, calls: list[CallState], *, again: bool = False) -> None:
        by_id = {call.id: call for call in calls}
        try:
            requests = [self._request(call) for call in calls]
            answer = approver(requests)
            given = validate(await answer if inspect.isawaitable(answer) else answer, requests)
            still = [(by_id[call_id], verdict) for call_id, verdict in given.items() if call_id in self.waiting]
            self.apply([(call, self._read_one(call, verdict)) for call, verdict in still])
        except Exception as error:
            log.exception("the approver failed in run %s: its calls stay undecided", self._run.id)
            # Our own words say what the verdicts lack; an exception of the approver's may hold what no model may see.
            why = str(error) if isinstance(error, StateError) else f"{type(error).__name__}; the log has the details"
            undecided = f"{len(calls)} call(s) stay undecided" if len(calls) > 1 else f"{calls[0].tool} stays undecided"
            text = f"the approver failed, so {undecided}: {why}"
            self._run.remarks.append(Notice("approver_failed", text, calls[0].line or None))
        finally:
            self.asking -= 1
            self._run.wake()
        changed = [call for call in calls if call.id in self.waiting and call.definition_changed]
        if changed and not again:  # what was approved is not what would be sent: ask once more and show it
            self.asking += 1
            await self._ask(approver, changed, again=True)

    def read(self, answers: Mapping[str, Any]) -> list[tuple[CallState, Verdict | ToolError]]:
        """Check answers to this run as a whole.

        Raises:
            StateError: An id does not wait, or a verdict does not fit its call; nothing is to be applied.
        """
        if not isinstance(answers, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]  from outside
            raise StateError(f"answers are a mapping from call id to verdict, not a {type(answers).__name__}")
        checked: list[tuple[CallState, Verdict | ToolError]] = []
        for call_id, answer in answers.items():
            call = self.waiting.get(call_id)
            if call is None:
                raise StateError(verdicts.why_not(self._run.state, call_id))
            checked.append((call, self._read_one(call, answer)))
        return checked

    def _read_one(self, call: CallState, answer: Any) -> Verdict | ToolError:
        if isinstance(answer, Edit):
            try:
                self._run.gate.check(call.owner, answer.arguments)
            except ToolError as error:
                raise StateError(f"edited arguments of call {call.id} do not fit: {error.message}") from None
        return verdicts.read(call, answer)

    def apply(self, given: list[tuple[CallState, Verdict | ToolError]]) -> None:
        """Carry out checked verdicts, given together.

        One that ends the run goes first, and nothing is sent after it. What a grant lets through besides comes last: a
        call that has a verdict of its own gets that one.
        """
        if self._run.over:  # given up, or its worker is dead: what is sent now would be an effect that nobody awaits
            self._run.wake()
            return
        for call, verdict in sorted(given, key=lambda each: not verdicts.stops(each[1])):
            if self._run.end is None and not isinstance(verdict, Defer):
                self._apply(call, verdict)
        if any(isinstance(verdict, Approve) and verdict.scope != "call" for _, verdict in given):
            self._apply_grants()
        self._run.start_queued()
        self._run.wake()

    def _apply(self, call: CallState, verdict: Approve | Deny | Edit | Answer | ToolError) -> None:
        run, gate = self._run, self._run.gate
        if isinstance(verdict, (Approve, Edit)) and self.redefined(call):
            return
        if isinstance(verdict, Answer):
            self._judge(call, "answer", "done")
            run.back(gate.answered(call, verdict.value, run.limits, outcome="answered"))
        elif isinstance(verdict, ToolError):
            self._judge(call, "toolerror", "done")
            run.back(rejected(call, "failed", verdict))
        elif isinstance(verdict, Deny):
            self._judge(call, "deny", "done", reason=verdict.reason, stop=verdict.stop)
            run.back(verdicts.denied(call, verdict.reason))
            if verdict.stop:
                run.end = ending.stopped(run.state)
        elif isinstance(verdict, Edit):
            gate.grants.remember(self._request(call))
            arguments = gate.check(call.owner, verdict.arguments)
            denied = gate.denial(call, arguments, run.state.began.caller)
            self._judge(call, "edit", "done" if denied else self._next_stage(call), arguments=arguments)
            if denied:
                run.back(refusal(call, "denied", f"{call.tool} was denied: {denied}"))
            else:
                run.go_on(call)
        else:
            request = self._request(call)
            gate.grants.remember(request)
            if verdict.scope != "call":  # this very call is let through here and now
                gate.grants.add(verdict, request)
            self._judge(call, "approve", self._next_stage(call), scope=verdict.scope, until=verdict.until)
            run.go_on(call)

    def _judge(self, call: CallState, verdict: Any, stage: Stage, **details: Any) -> None:
        now = time.time()
        expires_at = now + self._run.limits.expires_s if stage == "client" else 0.0
        self._run.add(Judged(call=call.number, at=now, verdict=verdict, stage=stage, expires_at=expires_at, **details))

    @staticmethod
    def _next_stage(call: CallState) -> Stage:
        return "client" if call.client_owned else "queued"

    def _apply_grants(self) -> None:
        """A grant for the run or the tool decides what else waits and is covered by it."""
        for call in list(self.waiting.values()) if self._run.end is None else ():
            if call.stage == "asked" and self._run.gate.covered(call, self._run.id):
                self._judge(call, "approve", self._next_stage(call), reason=verdicts.COVERED)
                self._run.go_on(call)

    def redefined(self, call: CallState) -> bool:
        """Compare with the live definition before sending; a difference asks again and shows it."""
        known = call.owner.tool
        live = self._live(call.owner)
        if live is known:
            return False
        if live is None:
            self._run.back(refusal(call, "failed", f"{call.tool} is not offered any more"))
            return True
        changed = (live.digest, live.server_identity) != (known.digest, known.server_identity)
        if changed:
            call.entry = Entry(live, call.owner.name, call.owner.path)
            seen = self._run.gate.grants.seen
            seen.add(known)
            seen.add(live)
            changes = seen.changes((known.digest, known.server_identity), live)
            self._run.add(Redefined(call.number, live.digest, live.server_identity, changes=changes))
        return changed

    def first_expiry(self) -> float:
        """When the first of them expires, on the event loop's clock; infinity when nothing waits."""
        if not self.waiting:
            return math.inf
        return anyio.current_time() + self.expires_at() - time.time()

    def expires_at(self) -> float:
        """When the first of them expires, seconds since 1970; infinity when nothing waits."""
        return min((call.expires_at for call in self.waiting.values()), default=math.inf)

    def expire(self) -> None:
        """Refuse what nobody answered in time."""
        for record in verdicts.overdue(self._run.state, time.time()):
            self._run.back(record)

    def _request(self, call: CallState) -> ApprovalRequest:
        before = tuple(ending.brief(done) for done in self._run.state.calls.values() if done.stage == "done")
        return self._run.gate.request(
            call, run_id=self._run.id, program=self._run.state.began.program, before=before[-open_calls.SHOWN_BEFORE :]
        )
