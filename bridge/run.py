"""One run: drives a worker wave by wave, sends its calls through the gate, pauses when only people are waited for."""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal

import anyio
import msgspec

from bridge import ending
from bridge.approval import ApprovalRequest, Approver
from bridge.calls import CallState
from bridge.clock import Timers, WallClock, now_ms
from bridge.errors import StateError, ToolError
from bridge.events import (
    ApprovalAsked,
    CallFinished,
    CallStarted,
    Event,
    Finished,
    History,
    Paused,
    ProgramStarted,
    TextEmitted,
)
from bridge.gate import Gate, new_call, refusal, refuse
from bridge.ledger import Levels
from bridge.output import Output
from bridge.people import People
from bridge.replies import fitting
from bridge.results import PendingCall
from bridge.tools import Entry, Tool
from sandbox import (
    Fired,
    LimitName,
    Limits,
    Notice,
    ProtocolError,
    Reply,
    Sandbox,
    SandboxError,
    Start,
    Threw,
    Wave,
    Worker,
)

if TYPE_CHECKING:
    from bridge.results import Result

log: Final = logging.getLogger("sandbridge")


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
        self.output = Output()
        self.cpu_s = 0.0
        self.memory_bytes = 0
        self.largest_frame = 0
        self.most_in_flight = 0
        self.timers = Timers()
        self.levels = Levels()
        self.heard: frozenset[int] = frozenset()
        self.left_behind: frozenset[int] = frozenset()  # calls that nobody awaited when the program ended
        self.end: ending.Ending | None = None
        self._inputs = inputs
        self._sandbox = sandbox
        self._context = context
        self.people = People(self, approver, live)
        self.history = History(on_event)
        self._queue: deque[CallState] = deque()
        self._in_flight: dict[int, CallState] = {}
        self._ready: list[Reply] = []
        self._wake = anyio.Event()
        self._scope = anyio.CancelScope()
        self._clock = WallClock(limits.wall_s)
        self._awaits: list[int] = []
        self._worker: Worker | None = None
        self._fault: SandboxError | None = None

    def __repr__(self) -> str:
        return f"<Run {self.id} {self.status}, {len(self.calls)} calls>"

    # ---- for the one who embeds it ------------------------------------------------------------------------------

    @property
    def wall_spent_s(self) -> float:
        """Seconds that count against `wall_s`."""
        return self._clock.spent_s

    @property
    def pending(self) -> list[PendingCall]:
        """Client-owned calls that wait for the application."""
        return self.people.pending()

    @property
    def approvals(self) -> list[ApprovalRequest]:
        """Requests that wait for a verdict."""
        return self.people.requests()

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
        self.people.expire()
        verdicts = self.people.read(answers)
        self.people.apply(verdicts)
        self._unpause()
        await self.settled()
        return self

    @property
    def over(self) -> bool:
        """Whether nothing may be sent for it any more: it has ended, was given up, or its worker is gone."""
        return self.end is not None or self._scope.cancel_called or (self._worker is not None and self._worker.gone)

    async def cancel(self) -> None:
        """End the run and its calls; its result says `cancelled`. Does nothing once it is finished."""
        self._scope.cancel()
        while self.status != "finished":
            await self.history.change()

    async def settled(self) -> None:
        """Wait until the run is paused or finished. If the waiting task is cancelled, so is the run.

        Raises:
            SandboxError: There was no worker for it: an operator's fault, not the program's.
        """
        try:
            while self.status == "running":
                await self.history.change()
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self.cancel()
            raise
        if self._fault is not None:
            raise self._fault

    def events(self) -> AsyncGenerator[Event]:
        """Every event of the run from its beginning, in order, until it is finished."""
        return self.history.read()

    # ---- driving ------------------------------------------------------------------------------------------------

    async def drive(self) -> None:
        """Run the program to its end. Called once, as a task of the executor."""
        try:
            with self._scope:
                async with anyio.create_task_group() as self._tasks:
                    try:
                        await self._program()
                    except ProtocolError:
                        raise  # a bug of ours: the log has it
                    except SandboxError as error:
                        self._fault = error
                    self._drop_what_never_started()
                    if self.end is not None and self.end.by_program:
                        await self._await_effects()
                    self._tasks.cancel_scope.cancel()
        except Exception:
            log.exception("run %s failed inside", self.id)
            self.end = ending.crashed("the host failed inside; its log has the details")
        finally:
            self._unpause()
            if self._fault is not None:
                self.end = ending.crashed(str(self._fault))
            elif self.end is None:
                self.end = ending.cancelled()
            for call in self.calls.values():
                if call.stage != "done":
                    outcome = "cancelled" if call.started is not None else "not_started"
                    refuse(call, outcome, ToolError("cancelled", "the run ended"))
            self.gate.grants.forget(self.id)
            try:
                self.result = ending.result(self)
            finally:  # whatever happens: somebody waits for this
                self.status = "finished"
                self.history.add(Finished(run_id=self.id, status=self.result.status if self.result else "crashed"))

    async def _program(self) -> None:
        size = len(self.program.encode("utf-8", "replace"))
        if size > self.limits.source_bytes:
            self.exceeded("source_bytes", f"the program has {size:,} bytes, more than {self.limits.source_bytes:,}")
            return
        async with self._sandbox.worker() as worker:
            self._worker = worker
            self.history.add(ProgramStarted(run_id=self.id))
            try:
                with self._clock.scope:
                    self._clock.run()
                    await self._waves(worker)
                if self._clock.scope.cancelled_caught:
                    self.exceeded("wall_s", f"the run took more than {self.limits.wall_s:g} s")
            finally:
                self._clock.stop()
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
        wave = await self._sandbox.start(worker, start, limits)
        while wave is not None:
            self._take(wave)
            replies: list[Reply] | None = []
            if not wave.more and self.end is None:
                replies = await self._next_replies()
            if self.end is not None or replies is None:
                return
            self.levels.delivered(replies)
            wave = await self._sandbox.deliver(worker, now_ms(), replies)
        self.end = ending.died(await self._sandbox.bury(worker), limits, self)

    def _take(self, wave: Wave) -> None:
        """Take in what a wave brought."""
        if not self.output.take(wave, self.limits):
            self.end = ending.crashed("the worker sent more output than it may")  # an honest one keeps count itself
            return
        for piece in wave.text:
            self.history.add(TextEmitted(run_id=self.id, text=piece))
        self._awaits = wave.awaits
        self.timers.take(wave)
        self._ready = [one for one in self._ready if not isinstance(one, Fired) or one.id not in wave.cleared]
        self.levels.made(call.id for call in wave.calls)
        calls = [self._add_call(call) for call in wave.calls]
        if wave.end is not None:
            self.heard = frozenset(wave.heard)
            self.end = ending.threw(wave.end, self) if isinstance(wave.end, Threw) else ending.returned(wave.end)
        if len(self.calls) > self.limits.calls:
            self.exceeded("calls", f"the program made more than {self.limits.calls:,} calls")
        elif len(self.timers) > self.limits.timers:
            self.exceeded("timers", f"more than {self.limits.timers:,} timers are pending")
        if self.end is None or self.end.by_program:  # a call made before the end was made
            for call in calls:
                self._admit(call)
            if self.end is not None:
                self.start_queued()
            self.people.ask([call for call in calls if call.stage == "asked"], self._tasks)

    def _add_call(self, call: Any) -> CallState:
        entry = self.gate.catalog.lookup(call.tool)
        assert entry is not None, "the protocol lets only tools of the catalog through"
        state = self.calls[call.id] = new_call(call, entry, self.id)
        return state

    def _admit(self, call: CallState) -> None:
        self.gate.admit(call, run_id=self.id)
        if call.stage in ("asked", "client"):
            self.people.add(call)
            if call.stage == "asked":
                self.history.add(ApprovalAsked(**self.naming(call), line=call.line))
        else:
            self.go_on(call)

    def go_on(self, call: CallState) -> None:
        """Send a call that was let through on its way, or tell the program that it was refused."""
        if call.stage == "done":
            self.reply(call, refusal(call))
        elif call.stage == "queued":
            self._queue.append(call)

    def reply(self, call: CallState, reply: Reply) -> None:
        """A call came back: the next delivery takes its reply along."""
        self._ready.append(reply)
        self.finished(call)
        self.wake()

    async def _next_replies(self) -> list[Reply] | None:
        """Wait for what the program waits for; None when the run has ended instead."""
        if len(self._queue) == 1 and not (self._in_flight or self.timers or self._ready or self.people.waiting):
            await self._perform(self._sent())  # nothing else can happen meanwhile: it needs no task of its own
        self.start_queued()
        while True:
            self._ready += self.timers.fire()
            if self._ready or (self.people.waiting and self.over):  # to a dead worker nothing is delivered: it says so
                self._unpause()  # an expired call goes on without anybody's `resume`
                self._clock.run()
                replies, self._ready = fitting(self._ready, self.limits.frame_bytes)
                return replies
            if self._in_flight or self.timers:
                self._clock.run()
            elif not self.people.waiting:
                self.end = ending.stalled(self, self._awaits)
                return None
            else:
                self._clock.stop()
                if not self.people.asking:
                    self._pause()
            first = self.timers.first()
            if self.timers and first > self._clock.deadline and not self._in_flight and not self.people.waiting:
                left = self._clock.deadline - anyio.current_time()
                self.exceeded("wall_s", f"the program sleeps longer than the {left:,.1f} s that are left of wall_s")
                return None
            self._wake = anyio.Event()
            first = min(first, self.people.first_expiry())
            if first == math.inf:
                await self._wake.wait()
            else:
                with anyio.CancelScope(deadline=first):
                    await self._wake.wait()
                self.people.expire()
            if self.end is not None:
                return None

    def exceeded(self, limit: LimitName, message: str) -> None:
        """End the run by a limit."""
        self.end = ending.exceeded(limit, message, self)

    # ---- calls ----------------------------------------------------------------------------------------------------

    def start_queued(self) -> None:
        """Start what is queued, as far as `in_flight` allows."""
        if self.end is not None and not self.end.by_program:
            return
        while self._queue and len(self._in_flight) < self.limits.in_flight:
            self._tasks.start_soon(self._perform, self._sent())

    def _sent(self) -> CallState:
        call = self._queue.popleft()
        call.stage = "running"  # from here on it is sent, whatever the program does
        self._in_flight[call.number] = call
        self.most_in_flight = max(self.most_in_flight, len(self._in_flight))
        self.history.add(CallStarted(**self.naming(call), line=call.line))
        return call

    async def _perform(self, call: CallState) -> None:
        try:
            reply = await self.gate.perform(call, run_id=self.id, limits=self.limits, context=self._context)
            self._ready.append(reply)  # not around the await: the list is another one by then
        finally:
            del self._in_flight[call.number]
            self.finished(call)
            if self.end is None:
                self.start_queued()
            self._wake.set()

    def naming(self, call: CallState) -> dict[str, str]:
        """What every event of a call says."""
        return {"run_id": self.id, "call_id": call.id, "parent": self.id, "tool": call.entry.name}

    def finished(self, call: CallState) -> None:
        """Tell that a call has its outcome."""
        self.history.add(
            CallFinished(**self.naming(call), outcome=call.outcome or "cancelled", duration_s=call.duration_s)
        )

    def _drop_what_never_started(self) -> None:
        self.left_behind = frozenset(
            call.number for call in self.calls.values() if call.stage != "done" or call.number not in self.heard
        )
        if self.timers and self.end is not None and self.end.by_program:
            text = f"{len(self.timers)} timer(s) were pending when the program ended and did not fire: await sleep(ms)"
            self.output.notices.append(Notice("unfired_timers", text))
        self.timers.clear()
        self._queue.clear()
        for call in self.calls.values():
            if call.stage in ("queued", "asked", "client"):
                refuse(call, "not_started", ToolError("cancelled", "the program ended before this call was started"))
                self.finished(call)

    async def _await_effects(self) -> None:
        """Calls already sent: those that may change something are awaited, so that their end is known."""
        for call in tuple(self._in_flight.values()):
            if call.read_only:
                call.give_up()
        while self._in_flight:
            self._wake = anyio.Event()
            await self._wake.wait()  # each has a deadline of its own

    def _pause(self) -> None:
        if self.status == "running":
            self.status = "paused"
            self._sandbox.paused += 1
            self.history.add(Paused(run_id=self.id))

    def _unpause(self) -> None:
        if self.status == "paused":
            self.status = "running"
            self._sandbox.paused -= 1
        self.wake()

    def wake(self) -> None:
        """Let the run look again at what it waits for."""
        self._wake.set()
