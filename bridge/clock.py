"""The clocks of one run: its timers, and its wall clock, which stands while only people are waited for."""

from __future__ import annotations

import math
import time

import anyio

from sandbox import Fired, Wave


def now_ms() -> float:
    """The host's clock, as a delivery tells it to a program: whole milliseconds since 1970."""
    return float(int(time.time() * 1000))


class WallClock:
    """Counts the seconds in which a run ran, and cancels `scope` when they are spent.

    Attributes:
        spent_s: Without the stretch that runs now.
        scope: To be entered round all that the clock bounds.
    """

    def __init__(self, wall_s: float) -> None:
        self.spent_s = 0.0
        self.scope = anyio.CancelScope()
        self._wall_s = wall_s
        self._since: float | None = None

    @property
    def deadline(self) -> float:
        """When they are spent, on the event loop's clock; infinity while it stands."""
        return self.scope.deadline

    def run(self) -> None:
        """Go on; nothing where it runs."""
        if self._since is None:
            self._since = anyio.current_time()
            self.scope.deadline = self._since + self._wall_s - self.spent_s

    def stop(self) -> None:
        """Stand still; nothing where it stands."""
        if self._since is not None:
            self.spent_s += anyio.current_time() - self._since
            self._since, self.scope.deadline = None, math.inf


class Timers:
    """The timers of one run that have not fired; times are the event loop's.

    Attributes:
        made: How many there ever were.
    """

    def __init__(self) -> None:
        self.made = 0
        self._due: dict[int, float] = {}

    def __len__(self) -> int:
        return len(self._due)

    def take(self, wave: Wave) -> None:
        """New ones and given-up ones; often a wave brings both of one timer."""
        for timer in wave.timers:
            self.made += 1
            self._due[timer.id] = anyio.current_time() + timer.ms / 1000
        for cleared in wave.cleared:
            self._due.pop(cleared, None)

    def fire(self) -> list[Fired]:
        """Those that are due, in order of time, then id; they are forgotten."""
        if not self._due:
            return []
        now = anyio.current_time()
        due = sorted((at, number) for number, at in self._due.items() if at <= now)
        for _, number in due:
            del self._due[number]
        return [Fired(number) for _, number in due]

    def first(self) -> float:
        """When the first is due; infinity where there is none."""
        return min(self._due.values(), default=math.inf)

    def clear(self) -> None:
        """Forget them all."""
        self._due.clear()
