"""What a store takes and gives back, its errors, and which text it can keep."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Literal, get_args

from bridge.approval import escape
from bridge.errors import BridgeError, StateError
from bridge.results import Status

RunStatus = Literal["running"] | Status
FINISHED: Final[frozenset[Status]] = frozenset(get_args(Status)) - {"paused"}
_STATUSES: Final = FINISHED | {"running", "paused"}
LONGEST_NAME: Final = 200  # characters of a run id or an owner: both are in an index, whose rows PostgreSQL bounds
START: Final = 200  # characters of a program that lists show


class StoreFailed(BridgeError):
    """The database could not do it: gone, full, locked for too long, broken. The text has its reason, no password."""


class LeaseLost(StateError):
    """The run is not this owner's to write (any more), or the records do not fit its sequence; nothing was written."""


class LeaseHeld(StateError):
    """Somebody drives the run: it can be taken once that lease is over.

    Attributes:
        until: Seconds since 1970, UTC.
    """

    def __init__(self, text: str, until: float) -> None:
        super().__init__(text)
        self.until = until


@dataclass(frozen=True, kw_only=True)
class Lease:
    """The right to write to one run. Pass on the newest: `append` and `renew` give back one with a later `until`.

    Attributes:
        fence: Grows each time that the run changes hands; a write with an older one is refused.
        until: Seconds since 1970, UTC: from then on somebody else may take the run.
    """

    run_id: str
    owner: str
    fence: int
    until: float


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """A call that a paused run waits for: somebody's verdict (`approval`), or its value (`client`).

    Attributes:
        expires_at: Seconds since 1970, UTC.
        line: Of the program's text, from 1; 0 where it is not known.
    """

    call: str
    tool: str
    kind: Literal["approval", "client"]
    expires_at: float
    line: int = 0


@dataclass(frozen=True, kw_only=True)
class RunRow:
    """What a store knows of a run without reading its journal. Times are seconds since 1970, UTC.

    Attributes:
        status: `running` until the run is released with another one, so also where the process that drove it is gone.
        updated: When it was last taken, written to or released; renewing a lease does not count.
        expires_at: When the first of what a paused run waits for expires.
        program_digest: SHA-256 (hex) of the program's text in UTF-8; `program_start` is how it begins.
        seq: How many records its journal has.
        lease_owner: Who drives it; None where nobody does. `lease_until` is in the past where that one may be gone.
        claim_digest: Of the claim that may still be used; None where there is none, or it was used.
        waiting: Empty unless the run is paused.
        outcome: A line for lists.
    """

    id: str
    status: RunStatus
    created: float
    updated: float
    expires_at: float | None
    program_digest: str
    program_start: str
    audience: str
    engine_digest: str
    lease_owner: str | None
    lease_until: float
    fence: int
    seq: int
    claim_digest: str | None
    waiting: tuple[Waiting, ...]
    outcome: str


def shown(text: object, characters: int = LONGEST_NAME) -> str:
    """What somebody else wrote, safe to print and short enough to read."""
    whole = escape(str(text))
    return whole if len(whole) <= characters else f"{whole[:characters]}..."


def name(what: str, text: object) -> str:
    """The text, if it can be a key of every database.

    Raises:
        StateError: No text, empty, too long, or with characters that cannot be kept.
    """
    if not isinstance(text, str) or not text:
        raise StateError(f"{what} must be a text that is not empty, not {shown(repr(text))}")
    if len(text) > LONGEST_NAME:
        raise StateError(f"{what} has {len(text)} characters, at most {LONGEST_NAME} are kept: {shown(text)}")
    return plain(what, text)


def plain(what: str, text: str) -> str:
    """The text, if every database gives it back as it is.

    Raises:
        StateError: It holds NUL, which PostgreSQL does not keep, or half of a surrogate pair, which has no UTF-8.
    """
    if kept(text) != text:
        raise StateError(f"{what} holds NUL or half of a surrogate pair, which cannot be stored: {shown(text)}")
    return text


def kept(text: str) -> str:
    """The text with U+FFFD in place of what a database cannot keep: for text that is only shown."""
    if "\0" in text or not text.isascii():
        return "".join("\N{REPLACEMENT CHARACTER}" if c == "\0" or "\ud800" <= c <= "\udfff" else c for c in text)
    return text


def check_status(status: str) -> None:
    """Refuse what no run can be.

    Raises:
        StateError: It names them all.
    """
    if status not in _STATUSES:
        raise StateError(f"a run is {', '.join(sorted(_STATUSES))}, not {shown(status)}")


def moment(what: str, seconds: float) -> float:
    """The time or duration, if it is a number that can be compared.

    Raises:
        StateError: NaN or infinite.
    """
    if not math.isfinite(seconds):
        raise StateError(f"{what} must be a finite number of seconds, not {seconds!r}")
    return float(seconds)
