"""The clocks of a run: what a program is told, the wall clock, and that of one call; and a time as people read it.

Wall clock and call clock stand while people are waited for.
"""

from __future__ import annotations

import datetime
import math
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

import anyio


def now_ms() -> float:
    """The host's clock, as a delivery tells it to a program: whole milliseconds since 1970."""
    return float(int(time.time() * 1000))


def moment_text(seconds: float) -> str:
    """A time for people, UTC; a number where it is none of our calendar's, as a journal of others may say."""
    try:
        return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return f"{seconds:g} s since 1970"


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
        return self.spent_s + (0.0 if self._since is None else time.monotonic() - self._since)

    @property
    def deadline(self) -> float:
        """When they are spent, on the event loop's clock; infinity while it stands."""
        return self.scope.deadline

    def run(self) -> None:
        """Go on; nothing where it runs."""
        if self._since is None:
            self._since = time.monotonic()  # asking the event loop costs ten times as much
            self.scope.deadline = anyio.current_time() + self._wall_s - self.spent_s

    def stop(self) -> None:
        """Stand still; nothing where it stands."""
        if self._since is not None:
            self.spent_s += time.monotonic() - self._since
            self._since, self.scope.deadline = None, math.inf


class CallClock:
    """How long one call may take. Progress starts it anew, up to a ceiling; it stands while a person is asked.

    Args:
        call_s: Seconds for the call, and from each report of progress.
        ceiling_s: Seconds that it may take with all its progress.
        patience_s: Seconds that it may wait for people, together.
        changed: Called when it begins or ends to stand.

    Attributes:
        scope: To be entered round the call.
        stands: Whether a person is waited for.
    """

    def __init__(self, call_s: float, *, ceiling_s: float, patience_s: float, changed: Callable[[], None]) -> None:
        now = anyio.current_time()
        self.scope = anyio.CancelScope(deadline=now + call_s)
        self._call_s = call_s
        self._ceiling = now + ceiling_s
        self._patience_s = patience_s
        self._changed = changed
        self._holds = 0
        self._since = self._left_s = 0.0

    @property
    def stands(self) -> bool:
        """Whether a person is waited for."""
        return self._holds > 0

    def progress(self) -> None:
        """The call has come further."""
        now = self._since if self.stands else anyio.current_time()
        deadline = min(now + self._call_s, self._ceiling)
        if self.stands:
            self._left_s = deadline - now
        else:
            self.scope.deadline = deadline

    @contextmanager
    def on_hold(self) -> Generator[None]:
        """Stand as long as the block lasts; what is in it is cancelled, quietly, when no patience is left."""
        if not self.stands:
            self._since = anyio.current_time()
            self._left_s = self.scope.deadline - self._since
            self.scope.deadline = math.inf
        self._holds += 1
        self._changed()
        try:
            with anyio.CancelScope(deadline=self._since + self._patience_s):
                yield
        finally:
            self._holds -= 1
            if not self.stands:
                now = anyio.current_time()
                waited = now - self._since
                self._patience_s -= waited
                self._ceiling += waited
                self.scope.deadline = now + self._left_s
            self._changed()
