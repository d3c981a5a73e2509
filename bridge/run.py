"""One run: drives a worker wave by wave, sends its calls through the gate, pauses when only people are waited for."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal

import anyio
import msgspec

from bridge import ending
from bridge.approval import Answer, ApprovalRequest, Approve, Approver, Defer, Deny, Edit, Verdict, validate
from bridge.calls import CallState
from bridge.errors import StateError, ToolError
from bridge.events import ApprovalAsked, CallFinished, CallStarted, Event, Finished, Paused, ProgramStarted, TextEmitted
from bridge.gate import Gate, new_call, refusal, refuse, rejected
from bridge.results import PendingCall
from bridge.tools import Entry, Tool
from sandbox import Fired, LimitName, Limits, Notice, Reply, Sandbox, Start, Threw, Timer, Wave, Worker

if TYPE_CHECKING:
    from bridge.results import Result

log: Final = logging.getLogger("sandbridge")
KEPT_NOTICES: Final = 200


class Run:
    """One execution of one program. Made by `Executor.start`; `resume` goes on with a paused one.

    Attributes:
        id: Unique.
        status: `running` (seen from other tasks), `paused` or `finished`.
        pending: Client-owned calls that wait for the application, in call order.
        approvals: Requests that wait for a verdict, in call order.
        result: The `Result`, once finished; None before.
    """

    def __init__(
        self,
        *,
        run_id: str,
        program: str,
        inputs: bytes,
        seed: int,
        limits: Limits,
        sandbox: Sandbox,
        gate: Gate,
        approver: Approver | None,
        context: Any,
        live: Callable[[Entry], Tool | None],
        on_event: Callable[[Event], None] | None,
    ) -> None:
        self.id = run_id
        self.program = program
        self.limits = limits
        self.status: Literal["running", "paused", "finished"] = "running"
        self.result: Result | None = None
        self.seed = seed
        self.gate = gate
        self.calls: dict[int, CallState] = {}
        self.emitted: list[str] = []
        self.images: list[Any] = []
        self.logs: list[Any] = []
        self.dropped_logs = 0
        self.notices: list[Notice] = []
        self.wall_s = 0.0
        self.cpu_s = 0.0
        self.memory_bytes = 0
        self.largest_frame = 0
        self.most_in_flight = 0
        self.timers_made = 0
        self.longest_wait_s = 0.0
        self.heard: frozenset[int] = frozenset()
        self.left_behind: frozenset[int] = frozenset()  # calls that nobody awaited when the program ended
        self.end: ending.Ending | None = None
        self._inputs = inputs
        self._sandbox = sandbox
        self._approver = approver
        self._context = context
        self._live = live
        self._on_event = on_event
        self._timers: dict[int, float] = {}
        self._queue: deque[CallState] = deque()
        self._in_flight: dict[int, anyio.CancelScope] = {}
        self._asking = 0
        self._ready: list[Reply] = []
        self._events: list[Event] = []
        self._wake, self._changed = anyio.Event(), anyio.Event()
        self._scope = anyio.CancelScope()
        self._awaits: list[int] = []

    def __repr__(self) -> str:
        return f"<Run {self.id} {self.status}, {len(self.calls)} calls>"

    # ---- for the one who embeds it ------------------------------------------------------------------------------

    @property
    def pending(self) -> list[PendingCall]:
        """Client-owned calls that wait for the application."""
        return [
            PendingCall(
                id=call.id,
                run_id=self.id,
                tool=call.entry.name,
                arguments=call.checked,
                line=call.line or None,
                expires_at=call.expires_at,
            )
            for call in self.calls.values()
            if call.stage == "client"
        ]

    @property
    def approvals(self) -> list[ApprovalRequest]:
        """Requests that wait for a verdict."""
        return [self._request(call) for call in self.calls.values() if call.stage == "asked"]

    async def resume(self, answers: Mapping[str, Any]) -> Run:
        """Give verdicts and answers by call id, and go on to the next pause or to the end. Partial answers are fine.

        Args:
            answers: `Approve`, `Deny`, `Edit`, `Answer`, `Defer`, or a `ToolError` for any waiting call; a bare value
                is `Answer`, and only for a client-owned call.

        Raises:
            StateError: The run is not paused, an id does not wait, or a verdict does not fit; nothing was applied.
        """
        if self.status != "paused":
            raise StateError(f"run {self.id} is {self.status}: only a paused run can be resumed")
        waiting = {call.id: call for call in self.calls.values() if call.stage in ("asked", "client")}
        verdicts: dict[str, Verdict | ToolError] = {}
        for call_id, answer in answers.items():
            call = waiting.get(call_id)
            if call is None:
                raise StateError(
                    f"call {call_id} does not wait in run {self.id}; waiting: {', '.join(waiting) or 'none'}"
                )
            verdicts[call_id] = self._verdict(call, answer)
        for call_id, verdict in verdicts.items():
            self._apply(waiting[call_id], verdict)
        self._unpause()
        await self.settled()
        return self

    async def cancel(self) -> None:
        """End the run and its calls; its result says `cancelled`. Does nothing once it is finished."""
        self._scope.cancel()
        while self.status != "finished":
            await self._changed.wait()

    async def settled(self) -> None:
        """Wait until the run is paused or finished. If the waiting task is cancelled, so is the run."""
        try:
            while self.status == "running":
                await self._changed.wait()
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self.cancel()
            raise

    async def events(self) -> AsyncIterator[Event]:
        """Every event of the run from its beginning, in order, until it is finished."""
        seen = 0
        while True:
            while seen < len(self._events):
                seen += 1
                yield self._events[seen - 1]
            if self.status == "finished":
                return
            await self._changed.wait()

    # ---- driving ------------------------------------------------------------------------------------------------

    async def drive(self) -> None:
        """Run the program to its end. Called once, as a task of the executor."""
        try:
            with self._scope:
                async with anyio.create_task_group() as self._tasks:
                    await self._program()
                    self._drop_what_never_started()
                    if self.end is not None and self.end.by_program:
                        await self._await_effects()
                    self._tasks.cancel_scope.cancel()
        except Exception:
            log.exception("run %s failed inside", self.id)
            self.end = ending.crashed("the host failed inside; its log has the details")
        finally:
            self._unpause()
            if self.end is None:
                self.end = ending.cancelled()
            for call in self.calls.values():
                if call.stage != "done":
                    refuse(call, "cancelled", ToolError("cancelled", "the run ended"))
            self.gate.grants.forget(self.id)
            self.result = ending.result(self)
            self.status = "finished"
            self.emit(Finished(run_id=self.id, status=self.result.status))

    async def _program(self) -> None:
        if len(self.program.encode("utf-8", "replace")) > self.limits.source_bytes:
            self.exceeded("source_bytes", f"the program is larger than {self.limits.source_bytes:,} bytes")
            return
        async with self._sandbox.worker() as worker:
            self.emit(ProgramStarted(run_id=self.id))
            try:
                await self._waves(worker)
            finally:
                self.cpu_s, self.memory_bytes = worker.cpu_s(), worker.grown()
                self.largest_frame = worker.largest_frame

    async def _waves(self, worker: Worker) -> None:
        limits = self.limits
        start = Start(
            program=self.program.encode("utf-8", "replace").decode(),
            tools=self.gate.names,
            inputs=msgspec.Raw(self._inputs),
            seed=self.seed,
            now_ms=now_ms(),
            argument_bytes=limits.argument_bytes,
            value_bytes=limits.value_bytes,
            log_bytes=limits.log_bytes,
            frame_bytes=limits.frame_bytes,
        )
        began = time.perf_counter()
        wave = await self._sandbox.start(worker, start, limits, limits.wall_s)
        while True:
            self.wall_s += time.perf_counter() - began
            if wave is None:
                self.end = ending.died(await self._sandbox.bury(worker), limits, self)
                return
            self._take(wave)
            replies: list[Reply] | None = []
            if not wave.more and self.end is None:
                replies = await self._next_replies()
            if self.end is not None or replies is None:
                return
            began = time.perf_counter()
            left = max(0.001, limits.wall_s - self.wall_s)
            wave = await self._sandbox.deliver(worker, now_ms(), replies, left)

    def _take(self, wave: Wave) -> None:
        """Take in what a wave brought."""
        for piece in wave.text:
            self.emitted.append(piece)
            self.emit(TextEmitted(run_id=self.id, text=piece))
        self.images += wave.images
        self.logs += wave.logs
        self.dropped_logs = wave.dropped_logs or self.dropped_logs
        self.notices += wave.warnings[: KEPT_NOTICES - len(self.notices)]
        self._awaits = wave.awaits
        bytes_out = sum(map(len, self.emitted)) + sum(len(image.data) for image in self.images)
        if bytes_out > self.limits.value_bytes or sum(len(line.message) for line in self.logs) > self.limits.log_bytes:
            self.end = ending.crashed("the worker sent more output than it may")  # an honest one keeps count itself
            return
        for cleared in wave.cleared:
            self._timers.pop(cleared, None)
        for timer in wave.timers:
            self._add_timer(timer)
        calls = [self._add_call(call) for call in wave.calls]
        if wave.end is not None:
            self.heard = frozenset(wave.heard)
            self.end = ending.threw(wave.end, self) if isinstance(wave.end, Threw) else ending.returned(wave.end)
        if len(self.calls) > self.limits.calls:
            self.exceeded("calls", f"the program made more than {self.limits.calls:,} calls")
        elif len(self._timers) > self.limits.timers:
            self.exceeded("timers", f"more than {self.limits.timers:,} timers are pending")
        if self.end is None or self.end.by_program:  # a call made before the end was made
            for call in calls:
                self._admit(call)
            self._start_queued()
            self._ask([call for call in calls if call.stage == "asked"])

    def _add_timer(self, timer: Timer) -> None:
        self.timers_made += 1
        self._timers[timer.id] = anyio.current_time() + timer.ms / 1000

    def _add_call(self, call: Any) -> CallState:
        entry = self.gate.catalog.lookup(call.tool)
        assert entry is not None, "the protocol lets only tools of the catalog through"
        state = self.calls[call.id] = new_call(call, entry, self.id)
        return state

    def _admit(self, call: CallState) -> None:
        self.gate.admit(call, run_id=self.id)
        if call.stage == "done":
            self._ready.append(refusal(call))
            self._finished(call)
        elif call.stage == "queued":
            self._queue.append(call)
        else:
            call.asked_at = time.time()
            call.expires_at = call.asked_at + self.limits.expires_s
            if call.stage == "asked":
                self.emit(
                    ApprovalAsked(run_id=self.id, call_id=call.id, parent=self.id, tool=call.entry.name, line=call.line)
                )

    async def _next_replies(self) -> list[Reply] | None:
        """Wait for what the program waits for; None when the run has ended instead."""
        while True:
            now = anyio.current_time()
            due = sorted((at, number) for number, at in self._timers.items() if at <= now)
            for _, number in due:
                del self._timers[number]
                self._ready.append(Fired(number))
            if self._ready:
                replies, self._ready = self._ready, []
                return replies
            people = [call for call in self.calls.values() if call.stage in ("asked", "client")]
            hosting = bool(self._in_flight)
            first_timer = min(self._timers.values(), default=float("inf"))
            left = self.limits.wall_s - self.wall_s
            if not (hosting or people or self._timers):
                self.end = ending.stalled(self, self._awaits)
                return None
            if self._timers and not hosting and not people and first_timer - now > left:
                delay = f"the program sleeps {first_timer - now:,.1f} s, but {left:,.1f} s of wall_s are left"
                self.exceeded("wall_s", delay)
                return None
            running = hosting or bool(self._timers)
            if not running and not self._asking:
                self._pause()
            wait_s = min(first_timer - now, left if running else float("inf"))
            if people:
                wait_s = min(wait_s, min(call.expires_at for call in people) - time.time())
            self._wake = anyio.Event()
            with anyio.move_on_after(max(0.0, wait_s)):
                await self._wake.wait()
            if running:
                self.wall_s += anyio.current_time() - now
                if self.wall_s >= self.limits.wall_s and not self._ready:
                    self.exceeded("wall_s", f"the run took more than {self.limits.wall_s:g} s")
                    return None
            self._expire(people)
            if self.end is not None:
                return None

    def exceeded(self, limit: LimitName, message: str) -> None:
        """End the run by a limit."""
        self.end = ending.exceeded(limit, message, self)

    # ---- calls ----------------------------------------------------------------------------------------------------

    def _start_queued(self) -> None:
        while self._queue and len(self._in_flight) < self.limits.in_flight:
            call = self._queue.popleft()
            self._in_flight[call.number] = anyio.CancelScope()
            self.most_in_flight = max(self.most_in_flight, len(self._in_flight))
            self.emit(
                CallStarted(run_id=self.id, call_id=call.id, parent=self.id, tool=call.entry.name, line=call.line)
            )
            self._tasks.start_soon(self._perform, call)

    async def _perform(self, call: CallState) -> None:
        try:
            with self._in_flight[call.number]:
                reply = await self.gate.perform(call, run_id=self.id, limits=self.limits, context=self._context)
                self._ready.append(reply)  # not around the await: the list is another one by then
        finally:
            del self._in_flight[call.number]
            self._finished(call)
            if self.end is None:
                self._start_queued()
            self._wake.set()

    def _finished(self, call: CallState) -> None:
        self.emit(
            CallFinished(
                run_id=self.id,
                call_id=call.id,
                parent=self.id,
                tool=call.entry.name,
                outcome=call.outcome or "cancelled",
                duration_s=call.duration_s,
            )
        )

    def _drop_what_never_started(self) -> None:
        self.left_behind = frozenset(
            call.number for call in self.calls.values() if call.stage != "done" or call.number not in self.heard
        )
        self._timers.clear()
        self._queue.clear()
        for call in self.calls.values():
            if call.stage in ("queued", "asked", "client"):
                refuse(call, "not_started", ToolError("cancelled", "the program ended before this call was started"))
                self._finished(call)

    async def _await_effects(self) -> None:
        """Calls already sent: those that may change something are awaited, so that their end is known."""
        for number, scope in tuple(self._in_flight.items()):
            if self.calls[number].read_only:
                scope.cancel()
        while self._in_flight:
            self._wake = anyio.Event()
            await self._wake.wait()  # each has a deadline of its own

    # ---- people and the application ---------------------------------------------------------------------------------

    def _request(self, call: CallState) -> ApprovalRequest:
        before = tuple(ending.brief(done) for done in self.calls.values() if done.stage == "done")
        return self.gate.request(call, run_id=self.id, program=self.program, before=before[-50:])

    def _ask(self, calls: list[CallState]) -> None:
        if calls and self._approver is not None:
            self._asking += 1
            self._tasks.start_soon(self._ask_approver, self._approver, calls)

    async def _ask_approver(self, approver: Approver, calls: list[CallState]) -> None:
        by_id = {call.id: call for call in calls}
        try:
            requests = [self._request(call) for call in calls]
            answer = approver(requests)
            verdicts = answer if isinstance(answer, Mapping) else await answer
            for call_id, verdict in validate(verdicts, requests).items():
                call = by_id[call_id]
                if call.stage == "asked":
                    self._apply(call, self._verdict(call, verdict))
        except Exception:
            log.exception("the approver failed in run %s: its calls stay undecided", self.id)
        finally:
            self._asking -= 1
            self._wake.set()

    def _verdict(self, call: CallState, answer: Any) -> Verdict | ToolError:
        """Check one answer against the call that it is for."""
        if isinstance(answer, Edit):
            try:
                self.gate.check(call.entry, answer.arguments)
            except ToolError as error:
                raise StateError(f"edited arguments of call {call.id} do not fit: {error.message}") from None
        if isinstance(answer, (Approve, Edit)) and call.stage == "client":
            raise StateError(f"call {call.id} is client-owned and was let through already: give its value")
        if isinstance(answer, (Approve, Deny, Edit, Answer, Defer, ToolError)):
            return answer
        if call.stage == "client":
            return Answer(answer)
        raise StateError(
            f"call {call.id} waits for a verdict, not for a value: Approve(), Deny(reason), Edit(arguments), Answer(value)"
        )

    def _apply(self, call: CallState, verdict: Verdict | ToolError) -> None:
        """Carry out one checked verdict."""
        if isinstance(verdict, Defer):
            return
        self.longest_wait_s = max(self.longest_wait_s, time.time() - call.asked_at)
        call.verdict = type(verdict).__name__.lower()
        if isinstance(verdict, (Approve, Edit)):
            if self._definition_changed(call):
                return
            if isinstance(verdict, Edit):
                self.gate.edited(call, verdict.arguments, run_id=self.id)
            else:
                if verdict.scope != "call":  # this very call is let through here and now
                    self.gate.grants.add(verdict, self._request(call))
                call.stage = "client" if call.entry.tool.handler is None else "queued"
            if call.stage == "queued":
                self._queue.append(call)
                self._start_queued()
            elif call.stage == "done":
                self._ready.append(refusal(call))
                self._finished(call)
            self._apply_grants()
            return
        if isinstance(verdict, Answer):
            call.outcome = "answered"
            self._ready.append(self.gate.answered(call, verdict.value, self.limits))
        elif isinstance(verdict, ToolError):
            self._ready.append(rejected(call, "failed", verdict))
        else:
            reason = verdict.reason or "a person denied it"
            refuse(call, "denied", ToolError("denied", f"{call.entry.name} was denied: {reason}"))
            self._ready.append(refusal(call))
            if verdict.stop:
                self.end = ending.stopped(call, reason)
        self._finished(call)

    def _apply_grants(self) -> None:
        """A grant for the run or the tool decides what else waits and is covered by it."""
        for call in self.calls.values():
            if call.stage == "asked":
                self.gate.judge(call, call.checked, run_id=self.id)
                if call.stage == "queued":
                    self._queue.append(call)
        self._start_queued()

    def _definition_changed(self, call: CallState) -> bool:
        """Compare with the live definition before sending; a difference asks again and shows it."""
        if call.entry.tool.server is None:
            return False
        live = self._live(call.entry)
        if live is not None and (live.digest, live.server_identity) == (
            call.entry.tool.digest,
            call.entry.tool.server_identity,
        ):
            return False
        if live is None:
            refuse(call, "failed", ToolError("failed", f"{call.entry.name} is not offered any more"))
            self._ready.append(refusal(call))
            self._finished(call)
            return True
        call.entry = Entry(live, call.entry.name, call.entry.path)
        call.definition_changed = True
        return True

    def _expire(self, people: list[CallState]) -> None:
        now = time.time()
        for call in people:
            if call.stage in ("asked", "client") and call.expires_at <= now:
                text = f"nobody answered {call.entry.name} within {self.limits.expires_s:g} s (expires_s)"
                refuse(call, "expired", ToolError("expired", text))
                self._ready.append(refusal(call))
                self._finished(call)
                self._unpause()

    def _pause(self) -> None:
        if self.status == "running":
            self.status = "paused"
            self._sandbox.paused += 1
            self.emit(Paused(run_id=self.id))

    def _unpause(self) -> None:
        if self.status == "paused":
            self.status = "running"
            self._sandbox.paused -= 1
        self._wake.set()

    def emit(self, event: Event) -> None:
        """Record an event and tell who listens."""
        self._events.append(event)
        changed, self._changed = self._changed, anyio.Event()
        changed.set()
        if self._on_event is not None:
            self._on_event(event)


def now_ms() -> float:
    """The host's clock, as a delivery tells it to a program: whole milliseconds since 1970."""
    return float(int(time.time() * 1000))
