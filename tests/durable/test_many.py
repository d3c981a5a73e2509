"""Many sleeping runs in one process, and one run of many waves."""

from __future__ import annotations

import gc
import os
import random
import tracemalloc

import anyio.lowlevel
import pytest

from bridge import Answer
from bridge.run import Run
from sandbox import Limits, Sandbox
from tests.durable.world import Host, Tools

pytestmark = pytest.mark.anyio
NIGHTLY = bool(os.environ.get("SANDBRIDGE_NIGHTLY"))
PROGRAM = "const a = await tools.write({n: inputs}); return [a, await tools.person({n: inputs})]"
EACH_BYTES = 20_000  # 10,000 runs within 200 MB


async def asleep(host: Host, number: int) -> Run:
    run = await host.executor.start(PROGRAM, inputs=number)
    assert run.status == "paused"
    return run


async def test_sleeping_runs_are_little_more_than_their_journals(opened: Sandbox, tools: Tools) -> None:
    async with Host(opened, tools.all(), None, hibernate_after_s=0.0) as host:
        for number in range(5):
            await (await asleep(host, number)).cancel()
        gc.collect()
        tracemalloc.start()
        try:
            before, _ = tracemalloc.get_traced_memory()
            runs = [await asleep(host, number) for number in range(40)]
            gc.collect()
            after, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert (after - before) / len(runs) < EACH_BYTES
        while opened.resting:  # the last one goes to sleep
            await anyio.lowlevel.checkpoint()


async def test_sleeping_runs_are_resumed_in_any_order(opened: Sandbox, tools: Tools) -> None:
    count = 10_000 if NIGHTLY else 120
    async with Host(opened, tools.all(), None, hibernate_after_s=0.0) as host:
        runs = [(number, await asleep(host, number)) for number in range(count)]
        random.Random(7).shuffle(runs)
        for number, run in runs:
            await run.resume({run.pending[0].id: Answer(number)})
            assert run.result is not None
            assert run.result.value == [f"write {number}", number]
        assert host.executor._roster.runs == {}
    assert sorted(row[3] for row in tools.effects.rows()) == list(range(count))


async def test_a_run_of_many_waves_is_resumed_after_each(tools: Tools) -> None:
    waves = 500 if NIGHTLY else 60
    program = f"let sum = 0; for (let n = 0; n < {waves}; n++) sum += (await tools.person({{n}})).n; return sum"
    patient = Sandbox(limits=Limits(cpu_s=5, wall_s=600, memory_bytes=64 << 20))  # replay counts as the run's own time
    async with patient, Host(patient, tools.all(), None, hibernate_after_s=0.0) as host:
        run = await host.executor.start(program)
        while run.status == "paused":
            [call] = run.pending
            await run.resume({call.id: Answer(call.arguments)})
        assert run.result is not None
        assert run.result.value == waves * (waves - 1) // 2, run.result.text
