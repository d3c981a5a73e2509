"""A contender that runs programs inside its host's process gets a process of its own here, and is timed there.

`python -m bridge.bench.speed.apart MODULE:CLASS NAME` reads lines `workload count` and answers each with a line of
JSON: numbers, or a text where the contender gave another value than it must.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, Final, Self

from bridge.bench.speed.contender import Contender, Mismatch, environment
from bridge.bench.speed.workloads import WORKLOADS, Workload

_LINE_BYTES: Final = 1 << 20


class Apart(Contender):
    """A contender in a process of its own: V8 is initialised once a process, and memory is read by process."""

    def __init__(self, name: str, inside: Callable[[str], Contender]) -> None:
        super().__init__(name)
        self.inside = inside

    async def __aenter__(self) -> Self:
        kind: Any = self.inside
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "bridge.bench.speed.apart", f"{kind.__module__}:{kind.__name__}", self.name),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=_LINE_BYTES,
            env=environment(),
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._process.wait()

    async def measure(self, workload: Workload, count: int) -> list[float]:
        if workload.name == "W1":
            return await super().measure(workload, count)
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(f"{workload.name} {count}\n".encode())
        line = await stdout.readline()
        if not line:
            raise Mismatch(f"{workload.name}: the process of {self.name} ended")
        answer: list[float] | str = json.loads(line)
        if isinstance(answer, str):
            raise Mismatch(answer)
        return answer

    async def run(self, workload: Workload) -> Any:
        raise NotImplementedError("timed in its own process: measure it")

    def cold(self) -> Sequence[str]:
        return self.inside(self.name).cold()

    async def paused_bytes(self, count: int) -> list[float]:
        raise NotImplementedError("read in its own process: measure it")


async def _serve(kind: str, name: str) -> None:
    """Until standard input ends. Reading blocks the loop, which has nothing to do meanwhile."""
    module, _, word = kind.partition(":")
    inside: Contender = getattr(import_module(module), word)(name)
    for line in iter(sys.stdin.readline, ""):
        wanted, count = line.split()
        try:
            answer: list[float] | str = await inside.measure(WORKLOADS[wanted], int(count))
        except Mismatch as error:
            answer = str(error)
        sys.stdout.write(f"{json.dumps(answer)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(_serve(*sys.argv[1:]))
