"""Measure what keeping a journal costs: `python benchmarks/store.py [URL ...]`.

For each store (in memory, SQLite in a file of the current directory's file system, and the PostgreSQL server that
SANDBRIDGE_TEST_POSTGRESQL names, where it does; or those that are given) the time of one `append` of three records of
200 bytes, from an event loop through a worker thread and back, and without the thread. Each append is durable when it
returns, but for the store in memory. SQLite's slowest appends are those that also move its log into the file.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import anyio
from anyio import to_thread

sys.path.insert(0, str(Path(__file__).parent.parent))  # run as a script, this folder's parent is not on the path

from bridge.store import Lease, Store

APPENDS = 2_000
RECORDS = (b"x" * 200,) * 3


def begin(store: Store) -> Lease:
    """A run of its own."""
    return store.create(
        uuid.uuid4().hex, [], owner="benchmark", lease_s=30, now=0, program="", audience="", engine_digest=""
    )


def appender(store: Store) -> Callable[[], None]:
    """A function that appends the next records to a new run."""
    lease, count = begin(store), 0

    def append() -> None:
        nonlocal lease, count
        lease = store.append(lease, count, RECORDS, now=0, lease_s=30)
        count += len(RECORDS)

    return append


async def through_a_thread(store: Store) -> list[float]:
    """Seconds of each append as an event loop sees them."""
    append, taken = appender(store), list[float]()
    for _ in range(APPENDS):
        began = time.perf_counter()
        await to_thread.run_sync(append)
        taken.append(time.perf_counter() - began)
    return taken


def directly(store: Store) -> list[float]:
    """Seconds of each append as its thread sees them."""
    append, taken = appender(store), list[float]()
    for _ in range(APPENDS):
        began = time.perf_counter()
        append()
        taken.append(time.perf_counter() - began)
    return taken


def figures(taken: list[float]) -> str:
    """Median, 99th percentile and maximum in milliseconds; the first ones, which compile statements, left out."""
    kept = sorted(seconds * 1000 for seconds in taken[20:])
    return f"{statistics.median(kept):8.3f} {kept[len(kept) * 99 // 100]:8.3f} {kept[-1]:8.3f}"


def main() -> None:
    """Print a line for each store and way."""
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as directory:
        server = os.environ.get("SANDBRIDGE_TEST_POSTGRESQL")
        urls = sys.argv[1:] or ["memory", f"sqlite:///{directory}/runs.db", *([server] if server else [])]
        print(f"append of {len(RECORDS)} records of {len(RECORDS[0])} bytes, ms: median, 99th percentile, maximum")
        for url in urls:
            with Store(url) as store:
                kind = url.split(":", 1)[0]
                print(f"{kind:12} with the thread    {figures(anyio.run(through_a_thread, store))}")
                print(f"{kind:12} without            {figures(directly(store))}")
                store.prune(before=1, now=1e12, statuses=["running"])


if __name__ == "__main__":
    main()
