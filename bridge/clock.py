"""The wall clock of one run: it stands while only people or the application are waited for."""

from __future__ import annotations

import math

import anyio


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
