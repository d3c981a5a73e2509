"""The calls of one run that were let through: queued in call order, then executed, at most `in_flight` at once."""

from __future__ import annotations

import time
import weakref
from collections import deque
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, cast

from bridge.calls import CallState
from bridge.errors import BridgeError
from bridge.gate import Flight, read_only
from bridge.journal import Sent

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from bridge.run import Run


class Flights:
    """Sends calls through the gate; each is in the journal, durably where there is a store, before it is sent."""

    def __init__(self, run: Run, context: Any) -> None:
        self.queue: deque[CallState] = deque()
        self.flying: dict[int, Flight] = {}
        self.most = 0
        self._run = cast("Run", weakref.proxy(run))  # no cycle: what a finished run holds goes at once, not some day
        self._context = context

    def __len__(self) -> int:
        return len(self.flying)

    @property
    def busy(self) -> bool:
        """Whether one of them is being executed; one that waits for a person is not."""
        return any(not flight.on_hold for flight in self.flying.values())

    def start(self, tasks: TaskGroup) -> None:
        """Start what is queued, as far as `in_flight` allows, each in a task of its own."""
        while self.queue and len(self.flying) < self._run.limits.in_flight:
            tasks.start_soon(self.perform, self.send())

    def send(self) -> Flight:
        """The next call: from here on it is sent, whatever the program does."""
        call = self.queue.popleft()
        flight = self.flying[call.number] = Flight(call, self._run.held)
        self._run.add(Sent(call.number, time.time()))
        self.most = max(self.most, len(self.flying))
        return flight

    async def perform(self, flight: Flight) -> None:
        """Execute one call and take in what comes back."""
        run = self._run
        try:
            if run.journal.sink is not None:
                await run.journal.flush()
            with nullcontext() if run.trace is None else run.trace.within(flight.call):
                reply = await run.gate.perform(flight, run_id=run.id, limits=run.limits, context=self._context)
            run.back(reply)
            run.write_on()
        except BridgeError as error:  # the store fails, or somebody else drives the run by now: nothing more is sent
            run.lose(error)
        finally:
            del self.flying[flight.call.number]
            run.start_queued()
            run.wake()

    def give_up_readers(self) -> None:
        """The program has ended: what only reads need not be waited for."""
        for flight in tuple(self.flying.values()):
            if read_only(flight.call.owner.tool):
                flight.give_up()
