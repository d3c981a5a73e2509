"""How often a server is called: so many calls in any stretch of time at most, the rest in the order of their coming."""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Callable
from typing import Final

import anyio

_RATE: Final = re.compile(r"(\d+)/(s|m|h)")
_SECONDS: Final = {"s": 1.0, "m": 60.0, "h": 3600.0}
_TOLD_S: Final = 0.5  # between two signs of life of a call that waits its turn: its own deadline is for the server


def rate_of(text: str) -> tuple[int, float]:
    """Calls, and the seconds in which so many may begin, of `5/s`, `100/m`, `1000/h`.

    Raises:
        ValueError: It is none of these.
    """
    found = _RATE.fullmatch(text)
    if found is None or int(found[1]) < 1:
        raise ValueError(f"must be calls per second, minute or hour, such as '5/s', '100/m' or '1000/h', not {text!r}")
    return int(found[1]), _SECONDS[found[2]]


class Rate:
    """The turns of one server.

    Args:
        calls: That may begin in any stretch of `seconds`.
    """

    def __init__(self, calls: int, seconds: float) -> None:
        self._seconds = seconds
        self._turns = deque([-math.inf] * calls, calls)  # when the last so many calls began, or will

    async def turn(self, waits: Callable[[], None]) -> None:
        """Return when it is this call's turn.

        Args:
            waits: Called now and then meanwhile.
        """
        before = self._turns[0]
        at = max(anyio.current_time(), before + self._seconds)
        self._turns.append(at)
        try:
            while (left := at - anyio.current_time()) > 0:
                await anyio.sleep(min(left, _TOLD_S))
                waits()
        except BaseException:
            if at in self._turns:  # nothing was sent; where later turns were given by then, they stand as they are
                self._turns.remove(at)
                self._turns.appendleft(before)
            raise
