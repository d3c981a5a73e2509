"""What happens in a run, as typed events, in order."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import Final

import anyio

log: Final = logging.getLogger("sandbridge")


@dataclass(frozen=True, kw_only=True)
class Event:
    """Every event names its run; those of a call name the call, and `parent` is what contains it."""

    run_id: str
    call_id: str = ""
    parent: str = ""


@dataclass(frozen=True, kw_only=True)
class ProgramStarted(Event):
    """A worker has the program."""


@dataclass(frozen=True, kw_only=True)
class CallStarted(Event):
    """A call was sent to its tool."""

    tool: str
    line: int


@dataclass(frozen=True, kw_only=True)
class CallFinished(Event):
    """A call has its outcome (see `CallRow.outcome`)."""

    tool: str
    outcome: str
    duration_s: float


@dataclass(frozen=True, kw_only=True)
class ApprovalAsked(Event):
    """A call waits for a verdict."""

    tool: str
    line: int


@dataclass(frozen=True, kw_only=True)
class TextEmitted(Event):
    """The program called `text()`."""

    text: str


@dataclass(frozen=True, kw_only=True)
class Paused(Event):
    """All that is outstanding waits for people or the application."""


@dataclass(frozen=True, kw_only=True)
class Finished(Event):
    """The run has its outcome."""

    status: str


class History:
    """The events of one run from its beginning, for any number of readers."""

    def __init__(self, listener: Callable[[Event], None] | None) -> None:
        self._events: list[Event] = []
        self._listener = listener
        self._changed: anyio.Event | None = None  # made when somebody waits for a change
        self._over = False

    def add(self, event: Event) -> None:
        """Record an event and tell who listens; a listener that raises is logged."""
        self._events.append(event)
        self._over = isinstance(event, Finished)
        if self._changed is not None:
            self._changed.set()
            self._changed = None
        if self._listener is not None:
            try:
                self._listener(event)
            except Exception:
                log.exception("on_event failed in run %s at %s", event.run_id, type(event).__name__)

    async def change(self) -> None:
        """Wait for the next event."""
        if self._changed is None:
            self._changed = anyio.Event()
        await self._changed.wait()

    async def read(self) -> AsyncGenerator[Event]:
        """Every event in order, until the run is finished."""
        seen = 0
        while True:
            while seen < len(self._events):
                seen += 1
                yield self._events[seen - 1]
            if self._over:
                return
            await self.change()
