"""Drives one run, wave by wave, from where its journal ends until it pauses for long or has its outcome.

A worker is a cache of the journal: one that is killed from outside, or was given back while the run slept, is replaced
by a fresh one that replay brings to the same point.
"""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from typing import TYPE_CHECKING, Final

import anyio
import msgspec

from bridge import ending
from bridge.calls import CallState
from bridge.clock import WallClock, now_ms
from bridge.errors import BridgeError
from bridge.gate import read_only, refusal
from bridge.journal import Decided, Delivered, Rested, Waved
from bridge.made import Workers
from bridge.replay import catch_up
from bridge.replies import fitting
from sandbox import Fired, LimitName, Notice, ProtocolError, Returned, SandboxError, Threw, Wave

if TYPE_CHECKING:
    from bridge.run import Run

log: Final = logging.getLogger("sandbridge")
LINGER_S: Final = 0.005  # that a reply may be unwritten while nothing else is to be written: half as many writes
HEALS: Final = 3  # workers that may die from outside while a program takes one and the same step


class Driver:
    """One stretch of a run between two sleeps. `drive` is called once, as a task of the executor.

    Attributes:
        scope: Cancelling it ends the run.
        clock: Counts what the run takes; it stands while only people are waited for.
    """

    def __init__(self, run: Run, sandbox: Workers, *, hibernate_after_s: float, ask_again: bool) -> None:
        self.scope = anyio.CancelScope()
        self.clock = WallClock(run.limits.wall_s, run.state.wall_s)
        self._run = run
        self._state = run.state
        self._sandbox = sandbox
        self._hibernate_after_s = hibernate_after_s
        self._ask_again = ask_again
        self._accepts = False
        self._alone = False
        self._lingers = False
        self._bed_at = math.inf
        self._wake = anyio.Event()
        self._size = len(run.state.began.program.encode("utf-8", "replace"))

    async def drive(self) -> None:
        """Go on with the run until it sleeps, ends, or is cancelled. Raises nothing but what is a bug of ours."""
        with self.scope:
            async with anyio.create_task_group() as self._tasks:
                await self._program()
                if self._run.flights.flying or self._run.people.asking or self._lingers:
                    self._tasks.cancel_scope.cancel()

    async def _program(self) -> None:
        run = self._run
        try:
            with self.clock.scope:
                self.clock.run()
                self._take_up()
                await self._waves()
            if self.clock.scope.cancelled_caught:
                self.exceeded("wall_s", f"the run took more than {run.limits.wall_s:g} s")
        except ProtocolError:
            raise  # a bug of ours: the log has it
        except (SandboxError, BridgeError) as error:
            run.fault = error
        finally:
            self._accepts = False
            self.clock.stop()
        if run.end is not None:
            self._close_down()
            if run.end.by_program:
                await self._await_effects()

    def _take_up(self) -> None:
        """Go on where the journal ends: calls that are to be decided, queued, or asked about."""
        run, state = self._run, self._state
        self._accepts = True
        made = [call for call in state.calls.values() if call.stage == "made"]
        asked = [call for call in state.waiting.values() if call.stage == "asked"] if self._ask_again else []
        run.flights.queue = deque(call for call in state.calls.values() if call.stage == "queued")
        if state.program_end is not None:
            self._program_ended(state.program_end)
        elif state.stopped is not None:
            run.end = ending.stopped(state)
            return
        self._admit(made)
        run.people.ask(asked + [call for call in made if call.stage == "asked"], self._tasks)

    # ---- waves --------------------------------------------------------------------------------------------------

    async def _waves(self) -> None:
        run, state = self._run, self._state
        if self._size > run.limits.source_bytes:
            self.exceeded(
                "source_bytes", f"the program has {self._size:,} bytes, more than {run.limits.source_bytes:,}"
            )
        while run.end is None:
            if state.at_wave:
                ids = [] if state.waves[-1].more else await self._next_replies()
                if ids is None or run.end is not None:
                    return
                run.add(Delivered(now_ms(), ids, self.clock.total_s))
            wave = await self._turn()
            if wave is not None:
                self._take(wave)

    async def _turn(self) -> Wave | None:
        """The program's turn: in its worker, or in a fresh one that is brought to this point first."""
        run, state, seat = self._run, self._state, self._run.seat
        for attempt in range(HEALS + 1):
            if seat.stale:
                await seat.leave()
            if seat.worker is None:
                wave = await self._caught_up()
            else:
                delivery = state.deliveries[-1]
                wave = await self._sandbox.deliver(seat.worker, delivery.now_ms, state.replies(delivery))
            if wave is not None:
                return wave
            death = await seat.bury()
            if not death.outside or attempt == HEALS:
                run.end = ending.died(death, run.limits, state)
                return None
            log.warning("run %s: its worker was ended from outside; a new one goes on", run.id)
        return None

    async def _caught_up(self) -> Wave | None:
        """The wave of a fresh worker where the journal ends. Only its last step counts against `wall_s` anew."""
        run, state, worker = self._run, self._state, await self._run.seat.take(begun=bool(self._state.waves))
        recorded = len(state.deliveries)
        if not recorded:
            return await catch_up(self._sandbox, worker, state)

        def seen(number: int, wave: Wave) -> bool:
            if number == recorded - 1:
                self.clock.run()
            return True

        self.clock.stop()
        try:
            with anyio.fail_after(run.limits.wall_s):
                return await catch_up(self._sandbox, worker, state, seen)
        except TimeoutError:
            self.exceeded("wall_s", f"the replay of the run took more than {run.limits.wall_s:g} s")
            return None
        finally:
            self.clock.run()

    def _take(self, wave: Wave) -> None:
        """Take in what a wave brought."""
        run, state = self._run, self._state
        run.add(Waved(time.time(), wave))
        if state.overrun:
            run.end = ending.crashed("the worker sent more output than it may")  # an honest one keeps count itself
            return
        made = [state.calls[call.id] for call in wave.calls]
        if wave.end is not None:
            self._program_ended(wave.end)
        if len(state.calls) > run.limits.calls:
            self.exceeded("calls", f"the program made more than {run.limits.calls:,} calls")
        elif len(state.timers) > run.limits.timers:
            self.exceeded("timers", f"more than {run.limits.timers:,} timers are pending")
        if run.end is None or run.end.by_program:  # a call made before the end was made
            self._admit(made)
            if run.end is not None:
                self.start_queued()
            run.people.ask([call for call in made if call.stage == "asked"], self._tasks)

    def _program_ended(self, end: Returned | Threw) -> None:
        self._run.end = ending.threw(end, self._state) if isinstance(end, Threw) else ending.returned(end)

    def _admit(self, made: list[CallState]) -> None:
        run, state = self._run, self._state
        for call in made:
            call.entry = run.gate.catalog.lookup(call.tool)
            if call.entry is None:  # a run that was loaded where this tool is not offered any more
                run.add(Decided(call=call.number, at=time.time(), stage="done"))
                run.add(refusal(call, "failed", f"{call.tool} is not offered any more"))
                continue
            decided, *refused = run.gate.admit(
                call, run_id=run.id, expires_s=run.limits.expires_s, caller=state.began.caller
            )
            reused = run.reuse.take(call) if run.reuse is not None and not refused else None
            if reused is not None:  # nothing is executed, so nobody is asked
                run.add(msgspec.structs.replace(decided, stage="queued", expires_at=0.0))
                run.add(reused)
                continue
            for record in (decided, *refused):
                run.add(record)
            run.go_on(call)

    # ---- waiting ------------------------------------------------------------------------------------------------

    async def _next_replies(self) -> list[int] | None:
        """Wait for what the program waits for; None when the run has ended or sleeps instead."""
        run, state = self._run, self._state
        flights, people = run.flights, run.people
        if len(flights.queue) == 1 and not (flights.flying or state.timers or state.ready or state.waiting):
            self._alone = True  # nothing else can happen meanwhile: it needs no task of its own
            await flights.perform(flights.send())
            self._alone = False
        self.start_queued()
        while run.end is None:
            ids = self._deliverable()
            if ids and await run.regained():
                run.unpause()  # an expired call goes on without anybody's `resume`
                self.clock.run()
                return ids
            if flights.busy or state.timers:
                self.clock.run()
            elif not (state.waiting or flights.flying):
                run.end = ending.stalled(state)
                return None
            else:
                self.clock.stop()
                if not (people.asking or flights.flying) and run.status == "running":
                    await self._pause()
            first = self._first_timer()
            if state.timers and first > self.clock.deadline and not flights.flying and not state.waiting:
                left = self.clock.deadline - anyio.current_time()
                self.exceeded("wall_s", f"the program sleeps longer than the {left:,.1f} s that are left of wall_s")
                return None
            if self._sleeps():
                return None
            self._wake = anyio.Event()
            first = min(first, people.first_expiry(), self._bed_at if run.status == "paused" else math.inf)
            with anyio.CancelScope(deadline=first):
                await self._wake.wait()
            if people.expires_at() <= time.time():
                if not await run.regained():
                    return None
                people.expire()
        return None

    def _deliverable(self) -> list[int]:
        """Ids of what one frame can take of all that came back and is due; an empty list where there is nothing."""
        state = self._state
        due: list[tuple[float, int]] = []
        if state.timers:
            now = time.time()
            due = sorted((at, number) for number, at in state.timers.items() if at <= now)
        if not (state.ready or due):
            return []
        replies = [*(state.calls[number].reply() for number in state.ready), *(Fired(number) for _, number in due)]
        return [reply.id for reply in fitting(replies, self._run.limits.frame_bytes)[0]]

    def _first_timer(self) -> float:
        if not self._state.timers:
            return math.inf
        return anyio.current_time() + min(self._state.timers.values()) - time.time()

    async def _pause(self) -> None:
        run = self._run
        run.add(Rested(time.time(), self.clock.total_s))
        await run.give_back()
        self._sandbox.resting[self] = self.lie_down
        self._bed_at = min(self._bed_at, anyio.current_time() + self._hibernate_after_s)
        run.rests("paused")

    def _sleeps(self) -> bool:
        """Whether a paused run is to give its worker back now: after a while, or to somebody who waits for one."""
        return self._run.status == "paused" and self._bed_at <= anyio.current_time()

    def gets_up(self) -> None:
        """The run is not paused any more, or its worker is gone."""
        self._sandbox.resting.pop(self, None)

    def lie_down(self) -> None:
        """Give the worker back as soon as the run is paused."""
        self._bed_at = -math.inf
        self.wake()

    def wake(self) -> None:
        """Look again at what is waited for."""
        self._wake.set()

    def held(self) -> None:
        """A call begins or ends to wait for a person: the clock stands while that is all that is waited for."""
        if self._alone and self._run.flights.busy:
            self.clock.run()
        elif self._alone:
            self.clock.stop()
        self.wake()

    def exceeded(self, limit: LimitName, message: str) -> None:
        """End the run by a limit."""
        self._run.end = ending.exceeded(limit, message, self._state)

    def start_queued(self) -> None:
        """Start what is queued, as far as `in_flight` allows."""
        end = self._run.end
        if (self._accepts and end is None) or (end is not None and end.by_program):
            self._run.flights.start(self._tasks)

    def write_on(self) -> None:
        """Have the store written while the program goes on."""
        if self._run.journal.sink is not None and not self._lingers:
            self._lingers = True
            self._tasks.start_soon(self._flush)

    async def _flush(self) -> None:
        await anyio.sleep(LINGER_S)  # most often the next call is written meanwhile, and takes this along
        self._lingers = False
        try:
            await self._run.journal.flush()
        except BridgeError as error:
            self._run.lose(error)

    # ---- the program's end --------------------------------------------------------------------------------------

    def _close_down(self) -> None:
        """The program has ended: what was never started never will be.

        What was sent before a crash and may be sent again is: it may have taken effect, and its end must be known.
        """
        run, state = self._run, self._state
        run.left_behind = [
            call.number for call in state.calls.values() if call.stage != "done" or call.number not in state.heard
        ]
        if state.timers and run.end is not None and run.end.by_program:
            count = len(state.timers)
            text = f"{count} timer(s) were pending when the program ended and did not fire: await sleep(ms)"
            run.remarks.append(Notice("unfired_timers", text))
        run.flights.queue.clear()
        for call in list(state.calls.values()):
            if call.stage == "queued" and call.started is not None:
                if run.end is not None and run.end.by_program and not read_only(call.owner.tool):
                    run.flights.queue.append(call)
            elif call.stage in ("made", "queued", "asked", "client"):
                text = "the program ended before this call was started"
                run.add(refusal(call, "not_started", text, code="cancelled"))

    async def _await_effects(self) -> None:
        """Calls already sent: those that may change something are awaited, so that their end is known."""
        flights = self._run.flights
        flights.give_up_readers()
        self.start_queued()
        while flights.flying:
            self._wake = anyio.Event()
            await self._wake.wait()  # each has a deadline of its own
