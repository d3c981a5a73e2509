"""What is measured: a `Contender` runs a `Workload` in a fresh sandbox, and one loop times it, whoever it is.

Results are compared with the value that the workload must give; a contender that gives another one stops the benchmark.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Self

from bridge.bench.speed.workloads import Workload
from bridge.errors import BridgeError

RATE_TASKS: Final = 8
RATE_S: Final = 2.0
_UNFAIR: Final = ("PYTHONDONTWRITEBYTECODE",)  # with it every start compiles every module: no deployment is so


class Mismatch(BridgeError):
    """A contender gave another value than the workload must give: its time means nothing."""


class Contender(ABC):
    """One way to run programs. An async context manager; what it keeps warm lives that long."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._left: list[asyncio.subprocess.Process] = []  # cold processes that gave their result and are ending

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    @abstractmethod
    async def run(self, workload: Workload) -> Any:
        """Run the program in a fresh sandbox and return its value."""

    @abstractmethod
    def cold(self) -> Sequence[str]:
        """The command of a process that prints the value of `1+1`."""

    @abstractmethod
    async def paused_bytes(self, count: int) -> list[float]:
        """Private memory of each of `count` programs that await a tool.

        Raises:
            PermissionError: The process is not ours to look into.
        """

    async def measure(self, workload: Workload, count: int) -> list[float]:
        """`count` measurements, in the workload's unit."""
        if workload.unit == "MiB":
            return [found / (1 << 20) for found in await self.paused_bytes(count)]
        if workload.unit == "/s":
            return [await self._rate(workload) for _ in range(count)]
        return [await self._timed(workload) for _ in range(count)]

    def check(self, workload: Workload, value: Any) -> None:
        """Compare with what must come out."""
        if value != workload.expected:
            raise Mismatch(f"{workload.name}: {self.name} gave {value!r}, not {workload.expected!r}")

    async def once(self, workload: Workload) -> None:
        """Run the workload as often as it says, together, and check what comes out."""
        if workload.name == "W1":
            self.check(workload, await self._cold())
        elif workload.together == 1:
            self.check(workload, await self.run(workload))
        else:
            for value in await asyncio.gather(*(self.run(workload) for _ in range(workload.together))):
                self.check(workload, value)

    async def rest(self, workload: Workload) -> None:
        """Between two measurements: what the last one left ends, then peace."""
        while self._left:
            await self._left.pop().wait()
        await asyncio.sleep(workload.idle_s)

    async def _timed(self, workload: Workload) -> float:
        await self.rest(workload)
        began = time.perf_counter()
        await self.once(workload)
        took = time.perf_counter() - began
        while self._left:
            await self._left.pop().wait()
        return took * 1000

    async def _cold(self) -> Any:
        process = await asyncio.create_subprocess_exec(*self.cold(), stdout=asyncio.subprocess.PIPE, env=environment())
        assert process.stdout is not None
        line = await process.stdout.readline()
        self._left.append(process)
        if not line:
            raise Mismatch(f"{self.name}: its cold process printed nothing; what it said is above")
        return json.loads(line)

    async def _rate(self, workload: Workload) -> float:
        began, done = time.perf_counter(), 0

        async def repeat() -> None:
            nonlocal done
            while time.perf_counter() - began < RATE_S:
                self.check(workload, await self.run(workload))
                done += 1

        await asyncio.gather(*(repeat() for _ in range(RATE_TASKS)))
        return done / (time.perf_counter() - began)


def environment() -> dict[str, str]:
    """The environment of processes that are timed: as it is, but with Python's own caches allowed."""
    return {name: value for name, value in os.environ.items() if name not in _UNFAIR}


def private_bytes(pid: int | str) -> float:
    """Memory that only this process has.

    Raises:
        PermissionError: For a worker that is not dumpable, unless root.
    """
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith(("Private_Clean", "Private_Dirty")))


def children(pid: int | str = "self") -> set[str]:
    """Process ids of the children of a process."""
    found: set[str] = set()
    for task in Path(f"/proc/{pid}/task").iterdir():
        found.update((task / "children").read_text().split())
    return found
