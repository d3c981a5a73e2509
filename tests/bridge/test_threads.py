"""Threads of synchronous tools, and that none of them keeps the process."""

from __future__ import annotations

import subprocess
import sys
import threading

import anyio
import anyio.lowlevel
import pytest

from bridge import threads
from bridge.threads import in_thread

pytestmark = pytest.mark.anyio

STUCK = """
import threading, anyio
from bridge.threads import in_thread

async def main():
    with anyio.move_on_after(0.05):
        await in_thread(threading.Event().wait)
    print("gone on", flush=True)

anyio.run(main, backend={backend!r})
"""


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_stuck_thread_does_not_keep_the_process(backend: str) -> None:
    # On anyio's own worker threads this process would never end.
    script = STUCK.format(backend=backend)
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout == "gone on\n"


async def test_abandoned_threads_keep_their_place_until_they_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "THREADS", 1)
    started, release = threading.Event(), threading.Event()

    def stuck() -> None:
        started.set()
        release.wait(30)

    second: list[str] = []

    async def call() -> None:
        second.append(await in_thread(lambda: "ran"))

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(in_thread, stuck)
            while not started.is_set():
                await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await anyio.wait_all_tasks_blocked()
            assert second == []
            release.set()
    assert second == ["ran"]
