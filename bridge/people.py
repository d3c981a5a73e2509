"""What a run waits for from outside: verdicts of approvers and answers of the application."""

from __future__ import annotations

import copy
import logging
import math
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import anyio

from bridge import ending, replies
from bridge.approval import Answer, ApprovalRequest, Approve, Approver, Defer, Deny, Edit, Verdict, validate
from bridge.calls import CallState
from bridge.errors import StateError, ToolError
from bridge.gate import refuse, rejected
from bridge.results import PendingCall
from bridge.tools import Entry, Tool

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from bridge.run import Run

log: Final = logging.getLogger("sandbridge")
SHOWN_BEFORE: Final = 50  # earlier calls that an approval request lists


class People:
    """The calls of one run that wait for a person or for the application."""

    def __init__(self, run: Run, approver: Approver | None, live: Callable[[Entry], Tool | None]) -> None:
        self.waiting: dict[str, CallState] = {}
        self.asking = 0  # approvers that were asked and have not answered
        self.longest_wait_s = 0.0
        self._run = run
        self._approver = approver
        self._live = live

    def add(self, call: CallState) -> None:
        """A call waits from now on."""
        call.asked_at = time.time()
        call.expires_at = call.asked_at + self._run.limits.expires_s
        self.waiting[call.id] = call

    def pending(self) -> list[PendingCall]:
        """Client-owned calls, in call order."""
        return [
            PendingCall(
                id=call.id,
                run_id=self._run.id,
                tool=call.entry.name,
                arguments=copy.deepcopy(call.checked),  # theirs to change: ours was checked
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

    async def _ask(self, approver: Approver, calls: list[CallState]) -> None:
        by_id = {call.id: call for call in calls}
        try:
            requests = [self._request(call) for call in calls]
            answer = approver(requests)
            given = validate(answer if isinstance(answer, Mapping) else await answer, requests)
            verdicts = [(by_id[call_id], verdict) for call_id, verdict in given.items() if call_id in self.waiting]
            self.apply([(call, self._read_one(call, verdict)) for call, verdict in verdicts])
        except Exception:
            log.exception("the approver failed in run %s: its calls stay undecided", self._run.id)
        finally:
            self.asking -= 1
            self._run.wake()
        again = [call for call in calls if call.id in self.waiting and call.definition_changed and not call.asked_again]
        if again:  # what was approved is not what would be sent: ask once more and show it; then it waits for a person
            for call in again:
                call.asked_again = True
            self.asking += 1
            await self._ask(approver, again)

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
                waits = ", ".join(self.waiting) or "none"
                raise StateError(f"call {call_id} does not wait in run {self._run.id}; waiting: {waits}")
            checked.append((call, self._read_one(call, answer)))
        return checked

    def _read_one(self, call: CallState, answer: Any) -> Verdict | ToolError:
        if isinstance(answer, Edit):
            try:
                self._run.gate.check(call.entry, answer.arguments)
            except ToolError as error:
                raise StateError(f"edited arguments of call {call.id} do not fit: {error.message}") from None
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
        return answer

    def apply(self, verdicts: list[tuple[CallState, Verdict | ToolError]]) -> None:
        """Carry out checked verdicts, given together.

        One that ends the run goes first, and nothing is sent after it. What a grant lets through besides comes last: a
        call that has a verdict of its own gets that one.
        """
        if self._run.over:  # given up, or its worker is dead: what is sent now would be an effect that nobody awaits
            self._run.wake()
            return
        for call, verdict in sorted(verdicts, key=lambda each: not (isinstance(each[1], Deny) and each[1].stop)):
            if self._run.end is None and not isinstance(verdict, Defer):
                self._apply(call, verdict)
        if any(isinstance(verdict, Approve) and verdict.scope != "call" for _, verdict in verdicts):
            self._apply_grants()
        self._run.start_queued()
        self._run.wake()

    def _apply(self, call: CallState, verdict: Approve | Deny | Edit | Answer | ToolError) -> None:
        run, gate = self._run, self._run.gate
        self.longest_wait_s = max(self.longest_wait_s, time.time() - call.asked_at)
        if isinstance(verdict, (Approve, Edit)) and self._definition_changed(call):
            return
        call.verdict = type(verdict).__name__.lower()
        del self.waiting[call.id]
        if isinstance(verdict, Answer):
            call.outcome = "answered"
            run.reply(call, gate.answered(call, verdict.value, run.limits))
        elif isinstance(verdict, ToolError):
            run.reply(call, rejected(call, "failed", verdict))
        elif isinstance(verdict, Deny):
            reason = verdict.reason or "a person denied it"
            refuse(call, "denied", ToolError("denied", f"{call.entry.name} was denied: {reason}"))
            run.go_on(call)
            if verdict.stop:
                run.end = ending.stopped(call, reason)
        else:
            request = self._request(call)
            gate.grants.remember(request)
            if isinstance(verdict, Edit):
                gate.edited(call, verdict.arguments, run_id=run.id)
            else:
                if verdict.scope != "call":  # this very call is let through here and now
                    gate.grants.add(verdict, request)
                call.stage = "client" if call.entry.tool.handler is None else "queued"
            self._let_through(call)

    def _let_through(self, call: CallState) -> None:
        if call.stage == "client":
            self.add(call)
        else:
            self._run.go_on(call)

    def _apply_grants(self) -> None:
        """A grant for the run or the tool decides what else waits and is covered by it."""
        for call in list(self.waiting.values()) if self._run.end is None else ():
            if call.stage == "asked" and self._run.gate.judge(call, call.checked, run_id=self._run.id) != "asked":
                del self.waiting[call.id]
                self._let_through(call)

    def _definition_changed(self, call: CallState) -> bool:
        """Compare with the live definition before sending; a difference asks again and shows it."""
        known = call.entry.tool
        live = self._live(call.entry)
        if live is known:
            return False
        if live is None:
            del self.waiting[call.id]
            refuse(call, "failed", ToolError("failed", f"{call.entry.name} is not offered any more"))
            self._run.go_on(call)
            return True
        changed = (live.digest, live.server_identity) != (known.digest, known.server_identity)
        if changed:
            call.entry = Entry(live, call.entry.name, call.entry.path)
            call.definition_changed = True
        return changed

    def first_expiry(self) -> float:
        """When the first of them expires, on the event loop's clock; infinity when nothing waits."""
        if not self.waiting:
            return math.inf
        return anyio.current_time() + min(call.expires_at for call in self.waiting.values()) - time.time()

    def expire(self) -> None:
        """Refuse what nobody answered in time."""
        now = time.time()
        for call in [call for call in self.waiting.values() if call.expires_at <= now]:
            del self.waiting[call.id]
            text = f"nobody answered {call.entry.name} within {self._run.limits.expires_s:g} s (expires_s)"
            refuse(call, "expired", ToolError("expired", text))
            self._run.go_on(call)

    def _request(self, call: CallState) -> ApprovalRequest:
        before = tuple(ending.brief(done) for done in self._run.calls.values() if done.stage == "done")
        return self._run.gate.request(
            call, run_id=self._run.id, program=self._run.program, before=before[-SHOWN_BEFORE:]
        )
