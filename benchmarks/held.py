"""What a process holds: a measurement compares what it held at rest before with what is left of it afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from benchmarks.faults import below

SETTLE_S: Final = 30.0


@dataclass(frozen=True)
class Held:
    """What this process holds at one moment."""

    processes: int
    descriptors: int
    threads: int
    tasks: int


def held(pooled: str = "-") -> Held:
    """Look at this process; its garbage collected first.

    Args:
        pooled: Files whose names begin so are kept open by a pool of connections, more or fewer as they are needed:
            their descriptors count only when the pool is closed.
    """
    gc.collect()
    threads = sum(1 for _ in Path("/proc/self/task").iterdir())
    return Held(len(below(os.getpid())), _descriptors(pooled), threads, len(asyncio.all_tasks()))


def _descriptors(pooled: str) -> int:
    count = 0
    for each in os.scandir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the one that reads the folder
            count += not str(Path(each.path).readlink()).startswith(pooled)
    return count


async def settled(reference: Held, pooled: str = "-") -> Held:
    """What is held once no more is than in the reference; at the latest after `SETTLE_S`."""
    until = time.monotonic() + SETTLE_S
    while left(reference, held(pooled)) and time.monotonic() < until:  # noqa: ASYNC110  nobody tells of an end
        await asyncio.sleep(0.2)
    return held(pooled)


async def at_rest(pooled: str) -> Held:
    """What is held once it has stayed the same for a second: spares are made a while after the last program."""
    seen: list[Held] = []
    until = time.monotonic() + SETTLE_S
    while (len(seen) < 6 or len(set(seen[-6:])) > 1) and time.monotonic() < until:
        seen.append(held(pooled))
        await asyncio.sleep(0.2)
    return seen[-1]


def left(before: Held, after: Held) -> list[str]:
    """What `after` has over `before`."""
    pairs = [(name, getattr(before, name), getattr(after, name)) for name in asdict(before)]
    return [f"leaked: {now - then} {name}" for name, then, now in pairs if now > then]


def resident() -> int:
    """Bytes of this process that are in memory and its own: neither files nor shared memory."""
    _, all_pages, shared = Path("/proc/self/statm").read_text("ascii").split()[:3]
    return (int(all_pages) - int(shared)) * os.sysconf("SC_PAGE_SIZE")


def resident_at_least() -> int:
    """The same, once what nobody holds was given back: the C library keeps pages for what may come."""
    gc.collect()
    with contextlib.suppress(AttributeError):  # GNU's has it
        ctypes.CDLL(None).malloc_trim(0)
    return resident()
