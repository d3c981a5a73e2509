"""What may happen to a host that runs programs, done to it on purpose, one thing at a time."""

from __future__ import annotations

import asyncio
import os
import random
import resource
import signal
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from bridge import Executor
from sandbox import Overloaded, Sandbox

HELD_S: Final = 0.2  # that something stays full


def below(pid: int) -> list[int]:
    """All processes under one, nearest first."""
    found: list[int] = []
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in task.joinpath("children").read_text("ascii").split():
                found += [int(child), *below(int(child))]
    return found


def said(pid: int) -> bytes:
    """What a process was started with; nothing where it is gone."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def end(pid: int) -> None:
    """SIGKILL, where it is still there."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


@contextmanager
def lowered(which: int, soft: int) -> Generator[None]:
    """A lower limit of this process, for a while, and of none that it starts meanwhile for longer."""
    before = resource.getrlimit(which)
    resource.setrlimit(which, (soft, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(which, before)
        for pid in below(os.getpid()):
            with suppress(OSError):
                if resource.prlimit(pid, which) == (soft, before[1]):
                    resource.prlimit(pid, which, before)


class Faults:
    """Everything that is done to one sandbox and its executors.

    Attributes:
        done: Name of a fault -> how often it was done.
        refused: Programs of floods that were refused in words, and `ran` those that ran.
        wrong: Programs of floods that ended otherwise.
    """

    def __init__(self, sandbox: Sandbox, executor: Executor, server: str, seed: int) -> None:
        self.done: dict[str, int] = {}
        self.refused = self.ran = 0
        self.wrong: list[str] = []
        self._sandbox = sandbox
        self._executor = executor
        self._server = server.encode()
        self._dice = random.Random(seed)
        self.kinds: list[tuple[str, Callable[[], Awaitable[None]]]] = [
            ("a worker is killed", self._worker),
            ("the zygote is killed", self._zygote),
            ("an MCP server is killed", self._mcp),
            ("the disk is full", self._disk),
            ("descriptors are used up", self._descriptors),
            ("more programs than may wait", self._flood),
        ]

    async def next(self) -> str:
        """Do the next kind; its name."""
        name, do = self.kinds[sum(self.done.values()) % len(self.kinds)]
        await do()
        self.done[name] = self.done.get(name, 0) + 1
        return name

    async def _worker(self) -> None:
        workers = [worker.pid for worker in self._sandbox._live]  # pyright: ignore[reportPrivateUsage]  as a killer finds them
        if workers:
            end(self._dice.choice(sorted(workers)))

    async def _zygote(self) -> None:
        origin = self._sandbox._origin  # pyright: ignore[reportPrivateUsage]
        if origin is not None:
            end(origin.process.pid)  # type: ignore[union-attr]  one that forks, on Linux

    async def _mcp(self) -> None:
        for pid in below(os.getpid()):
            if self._server in said(pid):
                end(pid)

    async def _disk(self) -> None:
        with lowered(resource.RLIMIT_FSIZE, 1 << 12):
            await asyncio.sleep(HELD_S)

    async def _descriptors(self) -> None:
        with lowered(resource.RLIMIT_NOFILE, 3):
            await asyncio.sleep(HELD_S)

    async def _flood(self) -> None:
        async def one() -> None:
            try:
                result = await self._executor.run("return 1")
            except Overloaded:
                self.refused += 1
                return
            self.ran += 1
            if result.status != "completed":
                self.wrong.append(f"a program of a flood ended as {result.status}: {result.error}")

        count = self._sandbox.max_queued + self._sandbox.max_waiting + 20
        await asyncio.gather(*(one() for _ in range(count)))
