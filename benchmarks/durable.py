"""Measure what durable runs cost: `python benchmarks/durable.py [PAUSED]`.

Replay of a run with 100 calls against what the same program computes (goal: 3 times that at most, and 20 ms above it at
most); what keeping the journal costs a call, in memory (goal 0.3 ms) and in SQLite with every write durable before the
call is sent (goal 2 ms), in a file of the current directory's file system; how large `dump` is of a run with 100 small
calls (goal 64 KiB); and the memory of PAUSED sleeping runs (default 1,000; goal 200 MB for 10,000), which are then
resumed in random order. Exits with 1 where a goal is missed.
"""

from __future__ import annotations

import gc
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import anyio

sys.path.insert(0, str(Path(__file__).parent.parent))  # run as a script, this folder's parent is not on the path

from bridge import Answer, Executor, Tool, ToolContext
from bridge.journal import decode, encode
from bridge.replay import replay
from bridge.run import Run
from bridge.state import fold
from sandbox import Limits, Reply, Sandbox, Start, Wave

CALLS = 100
ROUNDS = 15
KEY = b"benchmark-benchmark-benchmark-00"
PROGRAM = f"""\
let sum = 0
for (let n = 0; n < {CALLS}; n++) {{
  const row = await tools.lookup({{id: n, with: ['name', 'price']}})
  sum += row.price
}}
"""
MB = 1e6
REACHED: list[float] = []  # when the tool was reached


async def lookup(arguments: Any, context: ToolContext) -> Any:
    """A tool that costs nothing."""
    REACHED.append(time.perf_counter())
    return {"id": arguments["id"], "name": f"article {arguments['id']}", "price": 1.5, "in_stock": True}


TOOLS = [
    Tool(name="lookup", input_schema={"type": "object"}, handler=lookup),
    Tool(name="person", input_schema={"type": "object"}),
]


class Timed(Sandbox):
    """Counts the seconds in which programs compute."""

    computed_s = 0.0

    async def start(self, worker: Any, start: Start, limits: Limits, timeout_s: float | None = None) -> Wave | None:
        """As `Sandbox.start`."""
        return await self._timed(super().start(worker, start, limits, timeout_s))

    async def deliver(
        self, worker: Any, now_ms: float, replies: Sequence[Reply], timeout_s: float | None = None
    ) -> Wave | None:
        """As `Sandbox.deliver`."""
        return await self._timed(super().deliver(worker, now_ms, replies, timeout_s))

    async def _timed(self, step: Awaitable[Wave | None]) -> Wave | None:
        began = time.perf_counter()
        wave = await step
        self.computed_s += time.perf_counter() - began
        return wave


def line(what: str, figure: str, goal: str, kept: bool) -> bool:
    """Print a figure beside its goal."""
    print(f"{what:52} {figure:>28}   goal {goal:18} {'' if kept else 'MISSED'}")
    return kept


async def median(act: Callable[[], Awaitable[float]]) -> float:
    """Of what several rounds give; the first two only warm up."""
    return statistics.median([await act() for _ in range(ROUNDS + 2)][2:])


async def replays() -> bool:
    """Replay beside the program's own compute time."""
    async with Timed() as sandbox, Executor(TOOLS, sandbox=sandbox) as executor:
        runs: list[Run] = []

        async def compute() -> float:
            sandbox.computed_s = 0.0
            runs.append(await executor.start(PROGRAM + "return sum"))
            await anyio.sleep(0.05)  # the next spare is made meanwhile
            return sandbox.computed_s

        own_s = await median(compute)

        async def again() -> float:
            began = time.perf_counter()
            await replay(sandbox, runs[-1].state)
            taken = time.perf_counter() - began
            await anyio.sleep(0.05)
            return taken

        replay_s = await median(again)
    figure = f"{replay_s * 1000:.1f} ms for {own_s * 1000:.1f} ms"
    kept = replay_s <= 3 * own_s and replay_s <= own_s + 0.020
    return line(f"replay of a run with {CALLS} calls", figure, "3x, 20 ms above", kept)


async def journals() -> bool:
    """What a journal costs a call: from one call that reached the tool to the next, with a store and without."""

    async def gap_s(executor: Executor) -> float:
        """The median of one run: what else the machine does shows in few of them."""
        REACHED.clear()
        result = await executor.run(PROGRAM + "return sum")
        assert result.status == "completed", result.text
        await anyio.sleep(0.05)
        return statistics.median(after - before for before, after in pairwise(REACHED))

    async with Executor(TOOLS) as executor:
        run = await executor.start(PROGRAM + "return sum")
        taken: list[float] = []
        for _ in range(ROUNDS):
            began = time.perf_counter()
            fold(run.journal.records)
            taken.append(time.perf_counter() - began)
        in_memory_ms = statistics.median(taken) / CALLS * 1000
        plain_s = await median(lambda: gap_s(executor))
    kept = line("journal in memory, a call", f"{in_memory_ms:.4f} ms", "0.3 ms", in_memory_ms <= 0.3)
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as directory:
        print(f"one fsync of 4 KiB takes this disk {fsync_s(Path(directory, 'probe')) * 1000:.3f} ms (median)")
        for store in ("memory", f"sqlite:///{directory}/runs.db"):
            async with Executor(TOOLS, store=store) as executor:
                ms = (await median(lambda executor=executor: gap_s(executor)) - plain_s) * 1000
            name = "SQLite, durable" if store != "memory" else "SQLite, in memory"
            kept &= line(f"journal in {name}, a call", f"{ms:.3f} ms", "2 ms", ms <= 2)
    return kept


def fsync_s(path: Path) -> float:
    """What making something durable costs here, whoever does it."""
    taken: list[float] = []
    with path.open("wb", buffering=0) as file:
        for _ in range(200):
            file.write(b"x" * 4096)
            began = time.perf_counter()
            os.fsync(file.fileno())
            taken.append(time.perf_counter() - began)
    return statistics.median(taken)


async def dumps() -> bool:
    """How large a state is."""
    async with Executor(TOOLS, key=KEY) as executor:
        run = await executor.start(PROGRAM + "return await tools.person({sum})")
        size = len(run.dump())
        journal = sum(len(encode(record)) for record in run.journal.records)
    figure = f"{size / 1024:.1f} KiB ({journal / 1024:.1f} as text)"
    return line(f"dump of a run with {CALLS} small calls", figure, "64 KiB", size <= 64 << 10)


def resident() -> int:
    """Bytes of this process in memory."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * 4096


async def sleepers(count: int) -> bool:
    """The memory of runs that sleep, and their way back."""
    program = "const a = await tools.lookup({id: 1}); const b = await tools.person({a}); return [a.name, b]"
    async with Executor(TOOLS, hibernate_after_s=0.0) as executor:
        for _ in range(20):  # what the first ones load is not theirs
            await (await executor.start(program)).cancel()
        before = resident()
        runs: list[Run] = []
        began = time.perf_counter()
        for _ in range(count):
            run = await executor.start(program)
            assert run.status == "paused"
            runs.append(run)
        paused_s = time.perf_counter() - began
        grown = resident() - before
        journal = statistics.mean(sum(len(line) for line in lines(run)) for run in runs[:100])
        random.Random(1).shuffle(runs)
        began = time.perf_counter()
        for run in runs:
            [call] = run.pending
            await run.resume({call.id: Answer(run.id)})
            assert run.result is not None
            assert run.result.value == ["article 1", run.id], run.result.text
        resumed_s = time.perf_counter() - began
    each = [seconds / count * 1000 for seconds in (paused_s, resumed_s)]
    print(f"{count} runs: {each[0]:.1f} ms each to a pause, {each[1]:.1f} ms each to resume and end")
    figure = f"{grown / MB:.1f} MB, {grown / count:,.0f} B each"
    kept = grown / count <= 200 * MB / 10_000
    return line(f"memory of {count} sleeping runs ({journal:,.0f} B of journal)", figure, "20,000 B each", kept)


def lines(run: Run) -> list[bytes]:
    """Its journal as text."""
    encoded = [encode(record) for record in run.journal.records]
    assert len(decode(encoded)) == len(encoded)
    return encoded


async def main(paused: int) -> bool:
    """All figures; whether every goal is met."""
    return all(
        [await sleepers(paused), await replays(), await journals(), await dumps()]
    )  # memory first: none is free yet


if __name__ == "__main__":
    sys.exit(0 if anyio.run(main, int(sys.argv[1]) if sys.argv[1:] else 1_000) else 1)
