"""Run thousands of programs, attacks among them, and see what is left: `python benchmarks/soak.py [--programs N]`.

Ordinary programs must give their values, whatever ran beside them; attacks that have an expected value must give it, or
hit a limit (`cpu_s` is lowered, so that those that compute for ever end soon). Every case runs once before anything is
compared: caches fill, and the kept results of the executor reach their bound. Exits with 1 and says what is left.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import gc
import json
import os
import random
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parent.parent))  # run as a script, this folder's parent is not on the path

from bridge import Executor, Result, Tool, ToolContext, ToolError
from bridge.bench.speed.contender import children
from sandbox import Limits

ATTACKS: Final = Path(__file__).parent.parent / "sandbox" / "attacks" / "public.jsonl"
LIMITS: Final = Limits(cpu_s=0.3, wall_s=5.0, memory_bytes=64 << 20)
AT_ONCE: Final = 8
GROWTH_BYTES: Final = 20 << 20
SETTLE_S: Final = 30.0  # for the last workers to be reaped
NOTHING: Final = object()


@dataclass(frozen=True)
class Case:
    """A program and, where it has one, the value it must give."""

    name: str
    program: str
    value: Any = NOTHING
    may_exceed: bool = False


@dataclass(frozen=True)
class Held:
    """What this process holds at one moment."""

    processes: int
    descriptors: int
    threads: int
    tasks: int
    resident_bytes: int

    def __str__(self) -> str:
        counts = f"{self.processes} processes, {self.descriptors} descriptors, {self.threads} threads"
        return f"{counts}, {self.tasks} tasks, {self.resident_bytes / (1 << 20):.1f} MiB resident"


def ordinary() -> list[Case]:
    """What models write: data, calls one by one and together, timers, failures that are caught."""
    return [
        Case("sum", "return 1 + 1", 2),
        Case("call", "return await tools.add({ a: 2, b: 3 })", 5),
        Case("calls", "let n = 0; for (let i = 0; i < 10; i++) n = await tools.add({ a: n, b: i }); return n", 45),
        Case(
            "together",
            "return (await Promise.all([1, 2, 3, 4].map(a => tools.add({ a, b: a })))).reduce((x, y) => x + y)",
            20,
        ),
        Case("caught", "try { await tools.fail({ message: 'no' }) } catch (error) { return error.name }", "ToolError"),
        Case("timer", "await sleep(5); return 'slept'", "slept"),
        Case("data", "return (await tools.echo(Array.from({ length: 2000 }, (_, i) => ({ i })))).length", 2000),
        Case("clean", "return [typeof secret, typeof WebAssembly, ({}).zz === undefined]", ["undefined"] * 2 + [True]),
    ]


def attacks() -> list[Case]:
    """The attacks of the test suite."""
    rows = [json.loads(line) for line in ATTACKS.read_text("utf-8").split("\n") if line]
    return [
        Case(row["id"], row["js"], row["expect"].get("ok", row["expect"].get("frozen_ok", NOTHING)), may_exceed=True)
        for row in rows
    ]


def tools() -> list[Tool]:
    """What the attacks call: schemas are open, because arguments are part of the attack."""

    async def add(given: Any, _: ToolContext) -> Any:
        match given:
            case {"a": a, "b": b}:
                return a + b
            case _:
                return 0

    async def echo(given: Any, _: ToolContext) -> Any:
        return given

    async def fail(_: Any, __: ToolContext) -> Any:
        raise ToolError("NO", "tool says no")

    async def evil_then(_: Any, __: ToolContext) -> Any:
        return {"then": "x"}

    async def evil_proto(_: Any, __: ToolContext) -> Any:
        return {"__proto__": {"constructor": "x"}, "constructor": 1}

    handlers = {"add": add, "echo": echo, "get": echo, "fail": fail, "evil_then": evil_then, "evil_proto": evil_proto}
    return [Tool(name=name, input_schema={}, handler=handler) for name, handler in handlers.items()]


def fault(case: Case, result: Result) -> str | None:
    """What is wrong with an outcome; None when nothing is."""
    if case.value is NOTHING or (case.may_exceed and result.status == "exceeded"):
        return None
    if result.status == "completed" and result.value == case.value:
        return None
    told = result.error.message if result.error else f"{result.value!r}"
    return f"{case.name}: {result.status} with {told[:200]}, not {case.value!r}"


def entries(folder: str) -> int:
    """How many descriptors (`fd`) or threads (`task`) this process has, its libraries' own included."""
    return sum(1 for _ in Path(f"/proc/self/{folder}").iterdir())


def held() -> Held:
    """Look at this process; its garbage collected first."""
    gc.collect()
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    processes = sum(1 + len(children(child)) for child in children())
    return Held(processes, entries("fd"), entries("task"), len(asyncio.all_tasks()), resident)


async def run_all(executor: Executor, cases: Iterable[Case], outcomes: collections.Counter[str]) -> list[str]:
    """Run the cases, eight at a time; returns what went wrong."""
    waiting, faults = iter(cases), list[str]()

    async def serve() -> None:
        for case in waiting:
            result = await executor.run(case.program)
            unusual = result.status in ("crashed", "violation")
            outcomes[f"{result.status} ({case.name})" if unusual else result.status] += 1
            found = fault(case, result)
            if found is not None:
                faults.append(found)

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(serve())
    return faults


async def settled(executor: Executor, reference: Held | None = None) -> Held:
    """What is held once the last workers are reaped and the spares are there; at the latest after `SETTLE_S`."""
    until = time.monotonic() + SETTLE_S
    before = held()
    while time.monotonic() < until:
        await asyncio.sleep(0.3)
        now = held()
        counts = (now.processes, now.descriptors, now.tasks)
        if counts == (before.processes, before.descriptors, before.tasks) and (
            reference is None or counts == (reference.processes, reference.descriptors, reference.tasks)
        ):
            return now
        before = now
    return before


def left(before: Held, after: Held) -> list[str]:
    """What `after` has over `before`."""
    found = [
        f"{getattr(after, what) - getattr(before, what)} {what} left"
        for what in ("processes", "descriptors", "threads", "tasks")
        if getattr(after, what) > getattr(before, what)
    ]
    grown = after.resident_bytes - before.resident_bytes
    if grown > GROWTH_BYTES:
        found.append(f"host memory grew by {grown / (1 << 20):.1f} MiB")
    return found


async def soak(count: int, seed: int) -> list[str]:
    """Warm up, run, compare; returns what is wrong."""
    good, bad = ordinary(), attacks()
    dice = random.Random(seed)
    mixed = [dice.choice(good if dice.random() < 0.5 else bad) for _ in range(count)]
    outcomes: collections.Counter[str] = collections.Counter()
    outside = held()
    async with Executor(tools(), limits=LIMITS) as executor:
        faults = await run_all(executor, bad + good * 5, collections.Counter())
        before = await settled(executor)
        print(f"warm:   {before}", flush=True)
        began = time.perf_counter()
        faults += await run_all(executor, mixed, outcomes)
        took = time.perf_counter() - began
        after = await settled(executor, before)
        print(f"after:  {after}")
        faults += left(before, after)
    # Resident memory of an empty interpreter is no measure for one that ran; all the rest must be as it was.
    closed = await settled(executor, outside)
    print(f"closed: {closed}; before anything: {outside}")
    faults += [f"closed: {what}" for what in left(outside, closed) if not what.startswith("host memory")]
    ended = ", ".join(f"{number} {status}" for status, number in outcomes.most_common())
    print(f"{count} programs in {took:.1f} s, {count / took:.1f} a second: {ended}")
    return faults


def main() -> None:
    """Run, print, and exit with 1 when something is left."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--programs", type=int, default=2000, help="how many (default 2000)")
    parser.add_argument("--seed", type=int, default=1, help="of their order (default 1)")
    given = parser.parse_args()
    faults = collections.Counter(asyncio.run(soak(given.programs, given.seed)))
    for what, times in faults.items():
        print(f"WRONG: {what}" + (f" ({times} times)" if times > 1 else ""))
    if faults:
        raise SystemExit(1)
    print("nothing is left")


if __name__ == "__main__":
    main()
