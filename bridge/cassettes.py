"""Cassettes: journals of finished runs as files, for tests and for those who look into a run elsewhere.

A file is the journal, one record a line of JSON, secrets redacted (`redaction.py`). One that is recorded for tests is
stable besides: whatever differs from one recording to the next without the program noticing (the run's id, times, what
was spent) is left out, so that a new recording of the same behaviour is the same file.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from bridge.errors import StateError
from bridge.journal import (
    Began,
    CameBack,
    Decided,
    Delivered,
    Ended,
    Judged,
    Loaded,
    Record,
    Redefined,
    Rested,
    Sent,
    Waved,
    decode,
    encode,
)
from bridge.redaction import Redaction

RUN_ID: Final = "cassette"  # in place of the run's own
CLOCK_MS: Final = 1_767_225_600_000.0  # 2026-01-01: what a program's clock says where it does not look at it


def read(path: str | os.PathLike[str]) -> list[Record]:
    """The journal in a file.

    Raises:
        StateError: It cannot be read, or is no journal; names the file.
    """
    try:
        text = Path(path).read_bytes()
    except OSError as error:
        raise StateError(f"{path}: cannot be read: {error.strerror or error}") from None
    try:
        return decode([line for line in text.split(b"\n") if line.strip()])
    except StateError as error:
        raise StateError(f"{path}: {error}") from None


def write(path: str | os.PathLike[str], lines: Iterable[bytes]) -> None:
    """Write a journal's lines to a file, whole or not at all; its directory is made.

    Raises:
        StateError: It cannot be written; names the file.
    """
    target = Path(path)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=target.parent, prefix=f".{target.name}.", delete=False) as file:
            file.write(b"".join(line + b"\n" for line in lines))
        mask = os.umask(0)
        os.umask(mask)
        Path(file.name).chmod(0o666 & ~mask)  # a temporary file is its owner's alone; this one is a source file
        Path(file.name).replace(target)
    except OSError as error:
        raise StateError(f"{path}: cannot be written: {error.strerror or error}") from None


def exported(lines: Sequence[bytes], redaction: Redaction) -> tuple[list[bytes], int]:
    """A journal as it was, without its secrets, and how many of them there were."""
    decode(lines)  # only what is a journal
    return redaction.apply(lines)


def stable(records: Sequence[Record], *, clock: bool) -> list[bytes]:
    """The lines of a journal without what differs from one recording to the next.

    Args:
        clock: The program's clock too: only where the program does not look at it.
    """
    return [encode(_stable(record, clock=clock)) for record in records]


def _stable(record: Record, *, clock: bool) -> Record:
    changes: dict[str, Any] = {}
    match record:
        case Began():
            tools = [msgspec.structs.replace(tool, identity=None) for tool in record.tools]  # paths of one machine
            changes = {"at": 0.0, "run_id": RUN_ID, "reuse": "", "tools": tools}
            changes |= {"now_ms": CLOCK_MS} if clock else {}
        case Delivered():
            changes = {"wall_s": 0.0} | ({"now_ms": CLOCK_MS} if clock else {})
        case CameBack():
            changes = {"at": 0.0, "duration_s": 0.0}
        case Decided() | Judged():
            changes = {"at": 0.0, "expires_at": 0.0}
        case Redefined():
            changes = {"expires_at": 0.0, "identity": None}
        case Rested():
            changes = {"at": 0.0, "wall_s": 0.0}
        case Ended():
            spent = dict.fromkeys(("at", "cpu_s", "wall_s"), 0.0)
            changes = {**spent, "memory_bytes": 0, "frame_bytes": 0, "in_flight": 0}
        case Waved() | Sent() | Loaded():
            changes = {"at": 0.0}
        case _:
            pass
    return msgspec.structs.replace(record, **changes) if changes else record
