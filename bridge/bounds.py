"""What ends an agent loop that goes nowhere.

BridgeError
└── LoopError            the loop ended without a final message; `reply` is where it stood, a sound transcript
    ├── TurnsExceeded    the model still called tools after as many requests as `turns` allows
    └── RepeatedFailure  the same failure came back `SAME_FAILURES` times
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from bridge.errors import BridgeError, ConfigurationError

if TYPE_CHECKING:
    from bridge.loop import Answered

TURNS: Final = 25  # requests of one loop; a long task takes about ten when it is done with programs
_TOLD: Final = 600  # characters of each failure, in what was tried
SAME_FAILURES: Final = 3  # the same failure so many times: the model does not find a way out of it


class LoopError(BridgeError):
    """A loop that ended without a final message. `reply` is where it stood: transcript, runs, last response."""

    def __init__(self, message: str, reply: Any = None) -> None:
        super().__init__(message)
        self.reply = reply


class TurnsExceeded(LoopError):
    """The bound on requests was reached while the model still called tools; those last calls were not made."""


class RepeatedFailure(LoopError):
    """The model failed the same way again and again; the text says what it tried."""


class Bounds:
    """What ends a loop that goes nowhere: a number of requests, and the same failure again and again."""

    def __init__(self, turns: int = TURNS) -> None:
        if isinstance(turns, bool) or not isinstance(turns, int) or turns < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(f"turns must be a whole number from 1 on, not {turns!r}")
        self.turns = turns
        self.used = 0
        self.failed: list[tuple[str, str]] = []  # how and with what, since the last success

    @property
    def spent(self) -> bool:
        """Whether no further request may be sent."""
        return self.used >= self.turns

    def restore(self, used: int, failed: Iterable[Sequence[str]]) -> None:
        """Go on counting where a loop stood when it was put away."""
        self.used, self.failed = used, [(how, text) for how, text in failed]

    def turn(self) -> None:
        """Count one request."""
        self.used += 1

    def exceeded(self, reply: Any) -> TurnsExceeded:
        """The error for a model that still calls tools."""
        return TurnsExceeded(f"the model still called tools after {self.turns} requests (turns={self.turns})", reply)

    def saw(self, answers: Iterable[Answered], reply: Any) -> None:
        """Take in the answers of one step. What failed alike within one counts once; any success is progress.

        Raises:
            RepeatedFailure: The same failure came back in `SAME_FAILURES` steps with no success in between.
        """
        given = list(answers)
        if not given or not all(answered.failed for answered in given):
            self.failed.clear()
            return
        self.failed += {_likeness(answered): answered.text[:_TOLD] for answered in given}.items()
        for likeness, _ in self.failed[-len(given) :]:
            alike = [text for other, text in self.failed if other == likeness]
            if len(alike) >= SAME_FAILURES:
                tried = "\n".join(f"{number}. {text}" for number, text in enumerate(alike, 1))
                raise RepeatedFailure(f"the model failed {len(alike)} times in the same way:\n{tried}", reply)


def _likeness(answered: Answered) -> str:
    """What two failures have in common when they are the same: code and message, without numbers and ids."""
    error = answered.result.error if answered.result is not None else None
    text = answered.text if error is None else f"{error.code} {error.name} {error.message}"
    return re.sub(r"[0-9]+", "#", text[:600])
