"""The clocks of a run: what a program is told, and the wall clock, which stands while only people are waited for."""

from __future__ import annotations

import math
import time

import anyio


def now_ms() -> float:
    """The host's clock, as a delivery tells it to a program: whole milliseconds since 1970."""
    return float(int(time.time() * 1000))


class WallClock:
    """Counts the seconds in which a run ran, and cancels `scope` when they are spent.

    Attributes:
        spent_s: Without the stretch that runs now.
        scope: To be entered round all that the clock bounds.
    """

    def __init__(self, wall_s: float, spent_s: float = 0.0) -> None:
        self.spent_s = spent_s
        self.scope = anyio.CancelScope()
        self._wall_s = wall_s
        self._since: float | None = None

    @property
    def total_s(self) -> float:
        """With the stretch that runs now."""
        return self.spent_s + (0.0 if self._since is None else anyio.current_time() - self._since)

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
