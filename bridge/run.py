"""One run, for the one who embeds it: its status, what it waits for, how it goes on, what came of it.

All that happens is a record in the run's journal, and what is known of the run is the fold over it (`state.py`).
`driver.py` drives it; between two drives a paused run is its journal and nothing else.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncGenerator, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal

import anyio

from bridge import ending, events
from bridge.approval import ApprovalRequest
from bridge.calls import CallState
from bridge.driver import Driver
from bridge.errors import BridgeError, StateError
from bridge.flights import Flights
from bridge.gate import read_only, refusal
from bridge.journal import CameBack, Ended, Journal, Record
from bridge.people import People
from bridge.results import PendingCall, Status
from bridge.reuse import Reuse
from bridge.seat import Seat
from bridge.state import RunState
from bridge.surroundings import Surroundings
from sandbox import Notice, Overloaded

if TYPE_CHECKING:
    from bridge.results import Result

log: Final = logging.getLogger("sandbridge")


class Run:
    """One execution of one program. Made by `Executor.start` and `load`; `resume` goes on with a paused one.

    Attributes:
        id: Unique.
        status: `running` (seen from other tasks), `paused` or `finished`.
        pending: Client-owned calls that wait for the application, in call order.
        approvals: Requests that wait for a verdict, in call order.
        result: The `Result`, once finished; None before.
    """

    def __init__(
        self,
        state: RunState,
        kept: Journal,
        around: Surroundings,
        *,
        reuse: Reuse | None = None,
        paused: bool = False,
        ask_again: bool = False,
    ) -> None:
        self.id = state.id
        self.state = state
        self.journal = kept
        self.limits = state.limits
        self.gate = around.gate
        self.status: Literal["running", "paused", "finished"] = "paused" if paused else "running"
        self.result: Result | None = None
        self.end: ending.Ending | None = None
        self.fault: Exception | None = None
        self.reuse = reuse
        self.remarks: list[Notice] = []
        self.left_behind: list[int] = []
        self.people = People(self, around.approver, around.live)
        self.flights = Flights(self, around.context)
        self.seat = Seat(around.sandbox)
        self.trace = around.trace
        self._around = around
        self._driver: Driver | None = None
        self._ask_again = ask_again  # the one who was asked may have died with the process that asked
        self._cancelled = False
        self._rest: anyio.Event | None = None  # made when somebody waits for the next pause or the end
        self._taking = anyio.Lock()  # a call may expire just when somebody goes on: one of the two takes the run

    def __repr__(self) -> str:
        return f"<Run {self.id} {self.status}, {len(self.state.calls)} calls>"

    # ---- for the one who embeds it ------------------------------------------------------------------------------

    @property
    def pending(self) -> list[PendingCall]:
        """Client-owned calls that wait for the application."""
        return self.people.pending()

    @property
    def approvals(self) -> list[ApprovalRequest]:
        """Requests that wait for a verdict."""
        return self.people.requests()

    async def resume(self, answers: Mapping[str, Any], *, wait: bool = True) -> Run:
        """Give verdicts and answers by call id, and go on to the next pause or to the end. Partial answers are fine.

        Args:
            answers: `Approve`, `Deny`, `Edit`, `Answer`, `Defer`, or a `ToolError` for any waiting call; a bare value
                is `Answer`, and only for a client-owned call.
            wait: False returns at once, while it runs.

        Raises:
            StateError: The run is not paused, an id does not wait, or a verdict does not fit: nothing was applied. With
                a store also: somebody else drives the run.
            Diverged: A new worker did something else than the journal says.
        """
        async with self._taking:
            if self.status == "paused" and not self._cancelled:
                await self._around.keeper.retake(self)
            if self.status != "paused" or self._cancelled:  # before, or while it was taken
                status = "cancelled" if self.status == "paused" else self.status
                raise StateError(f"run {self.id} is {status}: only a paused run can be resumed")
            try:
                self.people.expire()
                verdicts = self.people.read(answers)
            except StateError:
                if self.state.ready:  # what has expired meanwhile goes on, whatever else was wrong
                    self._go_on()
                else:
                    await self.give_back()
                raise
            self.people.apply(verdicts)
            self._go_on()
        if wait:
            await self.settled()
        return self

    def _go_on(self) -> None:
        self.unpause()
        if self._driver is None:
            self._around.spawn(self)

    def dump(self) -> str:
        """The paused run as text that `Executor.load` takes, in this or another process.

        With a store it is the run's id and a claim that can be used once; without one the whole journal, authenticated
        by the executor's key.

        Raises:
            StateError: It is not paused, or there is neither a store nor a key.
        """
        if self.status != "paused":
            raise StateError(f"run {self.id} is {self.status}: only a paused run can be dumped")
        return self._around.keeper.dump(self)

    @property
    def over(self) -> bool:
        """Whether nothing may be sent for it any more: it has ended or was given up."""
        return self.end is not None or self.fault is not None or self._cancelled

    async def cancel(self) -> None:
        """End the run and its calls; its result says `cancelled`. Does nothing once it is finished."""
        try:
            if self.status == "paused":
                await self._take()
        except BridgeError as error:  # it goes on elsewhere, or nobody can say: it is no longer ours to cancel
            self.fault = self.fault or error
        self._cancelled = True
        if self._driver is not None:
            self._driver.scope.cancel()
        elif self.status == "paused":
            await self._finish()
        while self.status != "finished":
            await self.journal.change()

    async def settled(self) -> None:
        """Wait until the run is paused or finished. If the waiting task is cancelled, so is the run.

        Raises:
            SandboxError: There was no worker for it: an operator's fault, not the program's.
            Diverged, StateError: As `resume`.
        """
        try:
            while self.status == "running":
                self._rest = self._rest or anyio.Event()
                await self._rest.wait()
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self.cancel()
            raise
        if self.fault is not None:
            raise self.fault

    async def events(self) -> AsyncGenerator[events.Event]:
        """Every event of the run from its beginning, in order, until it is finished."""
        seen = 0
        while True:
            while seen < len(self.journal.records):
                seen += 1
                for event in events.of(self.journal.records[seen - 1], self.state):
                    yield event
            if self.status == "finished":
                return
            await self.journal.change()

    def paused_result(self) -> Result:
        """What `run()` returns when it must pause."""
        return ending.assemble(
            self.state,
            self._spent("paused"),
            self.gate.catalog,
            notices=[*self.state.notices(), *self.remarks],
            pending=self.pending,
            approvals=self.approvals,
        )

    # ---- the journal ----------------------------------------------------------------------------------------------

    def add(self, record: Record) -> None:
        """Something happened: into the state and the journal."""
        self.state.apply(record)
        self.journal.add(record)

    def back(self, record: CameBack) -> None:
        """A call has its outcome: the next delivery takes its reply along."""
        self.add(record)
        self.wake()

    def go_on(self, call: CallState) -> None:
        """Send a call that was let through on its way."""
        if call.stage == "queued":
            self.flights.queue.append(call)

    def start_queued(self) -> None:
        """Start what is queued, as far as `in_flight` allows; later, where nobody drives the run now."""
        if self._driver is not None:
            self._driver.start_queued()

    def write_on(self) -> None:
        """Have the store written while the program goes on."""
        if self._driver is not None:
            self._driver.write_on()

    def wake(self) -> None:
        """Let the run look again at what it waits for."""
        if self._driver is not None:
            self._driver.wake()

    def held(self) -> None:
        """A call begins or ends to wait for a person."""
        if self._driver is not None:
            self._driver.held()

    def lose(self, fault: Exception) -> None:
        """Nothing more may be done for it here."""
        self.fault = self.fault or fault
        if self._driver is not None:
            self._driver.scope.cancel()

    # ---- driving ------------------------------------------------------------------------------------------------

    async def drive(self) -> None:
        """Run the program to its end, or until it hibernates. A task of the executor."""
        if self._driver is not None:  # a call expired just when somebody went on: one of the two drives
            return
        around = self._around
        self._driver = Driver(
            self, around.sandbox, hibernate_after_s=around.hibernate_after_s, ask_again=self._ask_again
        )
        self._ask_again = False
        around.keeper.driven(self)
        if self._cancelled:
            self._driver.scope.cancel()
        try:
            await self._driver.drive()
        except Exception:
            log.exception("run %s failed inside", self.id)
            self.end = ending.crashed("the host failed inside; its log has the details")
        finally:
            with anyio.CancelScope(shield=True):
                await self.seat.leave()
                if self.status == "paused":
                    self._driver.gets_up()
                cancelled, wall_s = self._driver.scope.cancel_called, self._driver.clock.spent_s
                self._driver, self.state.wall_s = None, wall_s
                if self.over or cancelled:
                    await self._finish()
                elif self.status == "running":  # somebody has resumed it while it went to sleep
                    try:
                        around.spawn(self)
                    except StateError as error:
                        self.fault = error
                        await self._finish()

    async def expire_asleep(self) -> None:
        """Go on with a sleeping run whose calls have expired; nothing where somebody drives it, here or elsewhere."""
        if self._driver is not None or self.status != "paused" or not await self.regained():
            return
        if self.status == "paused":  # or somebody has resumed it while we waited for our turn, and drives it
            self.people.expire()
            self.unpause()
            self._around.spawn(self)

    async def put_down(self) -> None:
        """The executor closes: a paused run that a store has stays paused, any other is cancelled."""
        if self.status == "paused" and self.journal.sink is not None:
            if self._driver is not None:
                self._driver.lie_down()
        else:
            await self.cancel()

    async def give_back(self) -> None:
        """Paused: the store has everything, and whoever comes next may drive it."""
        await self.journal.flush()
        await self._around.keeper.give_back(self)

    async def regained(self) -> bool:
        """Whether it is ours to go on with; what is paused may have gone on elsewhere."""
        if self.status == "running":  # most often, and in every step
            return True
        try:
            await self._take()
        except StateError:
            return False
        return self.status != "finished"

    async def _take(self) -> None:
        async with self._taking:
            if self.status == "paused":
                await self._around.keeper.retake(self)

    def rests(self, status: Literal["paused", "finished"]) -> None:
        """It is paused or finished: tell those who wait."""
        self.status = status
        self.journal.changed()
        if self._rest is not None:
            self._rest.set()
            self._rest = None

    def unpause(self) -> None:
        """What was paused goes on."""
        if self.status == "paused":
            self.status = "running"
            if self._driver is not None:
                self._driver.gets_up()
        self.wake()

    async def _finish(self) -> None:
        """Write down how it ended, and tell those who wait. With a store, a fault of ours leaves it to the next one."""
        state = self.state
        if self.end is None:
            self.end = ending.crashed(str(self.fault)) if self.fault is not None else ending.cancelled()
        try:
            if self.fault is None and self.journal.sink is not None:
                async with self._taking:
                    await self._around.keeper.retake(self)  # it may have been cancelled just when it was given back
            refused = isinstance(self.fault, Overloaded) and not state.waves  # nothing of it ran, and nobody resumes it
            if self.fault is None or self.journal.sink is None or refused:
                for call in state.calls.values():
                    if call.stage != "done":
                        self.add(self._given_up(call))
                self.end = ending.truth(state, self.end)
                if self.reuse is not None:
                    self.remarks.append(self.reuse.remark(state))
                self.add(self._spent(self.end.status, self.end))
                self.result = ending.result(state, self.gate.catalog)
            summary = self.result.text.partition("\n")[0] if self.result is not None else ""
            await self._around.keeper.finish(self, summary)
        except (BridgeError, OSError) as error:
            log.exception("run %s: its end could not be written down", self.id)
            self.fault = self.fault or error
        finally:  # whatever happens: somebody waits for this
            if self.trace is not None and state.ended is None:
                self.trace.close()
            self.gate.grants.forget(self.id)
            self.rests("finished")
            self._around.over(self)

    def _given_up(self, call: CallState) -> CameBack:
        why = self.end.failure.message if self.end is not None and self.end.failure is not None else "the run ended"
        if call.started is None:
            return refusal(call, "not_started", why, code="cancelled")
        harmless = call.entry is not None and read_only(call.entry.tool)
        return refusal(call, "cancelled" if harmless else "unknown", why, code="cancelled")

    def _spent(self, status: Status, end: ending.Ending | None = None) -> Ended:
        seat = self.seat
        return Ended(
            at=time.time(),
            status=status,
            by_program=end is not None and end.by_program,
            failure=end.failure if end is not None else None,
            left_behind=self.left_behind,
            notices=self.remarks,
            cpu_s=seat.cpu_s,
            wall_s=self._driver.clock.total_s if self._driver is not None else self.state.wall_s,
            memory_bytes=seat.memory_bytes,
            frame_bytes=seat.frame_bytes,
            in_flight=self.flights.most,
        )
