"""W1 to W8 for pytest-benchmark: `pytest benchmarks`. The contenders and workloads of `sandbridge bench speed`.

Each group is one workload; the numbers in brackets are ratios to the fastest of it. That command lets contenders take
turns and therefore compares better; this is for `--benchmark-save` and `--benchmark-compare`, which hold one version of
this project against another.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from typing import Any

import pytest
from _pytest.mark.structures import ParameterSet  # pytest gives the type no public name
from pytest_benchmark.fixture import BenchmarkFixture

from bridge.bench.speed.apart import Apart
from bridge.bench.speed.contender import Contender
from bridge.bench.speed.contenders import contender, versions
from bridge.bench.speed.workloads import WORKLOADS, Workload

HERE = {name for name, version in versions().items() if version is not None}


def cases(*, timed: bool) -> list[ParameterSet]:
    """Each workload with each contender; those whose unit is a time, or the others."""
    return [
        pytest.param(
            *(workload, name),
            id=f"{workload.name}-{name}",
            marks=pytest.mark.skipif(name.split()[0] not in HERE, reason=f"{name.split()[0]} is not installed"),
        )
        for workload in WORKLOADS.values()
        for name in workload.entrants
        if (workload.unit == "ms") == timed
    ]


Await = Callable[[Awaitable[Any]], Any]


@pytest.fixture
def wait() -> Generator[Await]:
    """Runs an awaitable in a loop that lasts as long as the test: what a contender keeps warm lives in it."""
    with asyncio.Runner() as runner:

        async def call(awaitable: Awaitable[Any]) -> Any:
            return await awaitable

        yield lambda awaitable: runner.run(call(awaitable))


@pytest.fixture
def entrant(wait: Await, name: str) -> Generator[Contender]:
    """The contender, open. One task opens and closes it, as structured concurrency wants."""
    made = contender(name)
    if isinstance(made, Apart):  # nothing else is measured meanwhile, so that it needs no process of its own
        made = made.inside(name)
    opened, close = asyncio.Event(), asyncio.Event()

    async def live() -> None:
        async with made:
            opened.set()
            await close.wait()

    async def begin() -> asyncio.Task[None]:
        task = asyncio.create_task(live())
        done, _ = await asyncio.wait({task, asyncio.create_task(opened.wait())}, return_when=asyncio.FIRST_COMPLETED)
        if task in done:
            task.result()
        return task

    async def end() -> None:
        close.set()
        await task

    task = wait(begin())
    yield made
    wait(end())


@pytest.mark.parametrize(("workload", "name"), cases(timed=True))
def test_a_program_gives_its_value(
    benchmark: BenchmarkFixture, wait: Await, entrant: Contender, workload: Workload, name: str
) -> None:
    benchmark.group = f"{workload.name} {workload.title}"
    benchmark.extra_info["contender"] = name
    rounds = max(2, workload.samples // 5) if name in workload.few else max(3, workload.samples)

    def rest() -> None:
        wait(entrant.rest(workload))

    benchmark.pedantic(lambda: wait(entrant.once(workload)), setup=rest, rounds=rounds, warmup_rounds=1)
    rest()


@pytest.mark.parametrize(("workload", "name"), cases(timed=False))
def test_what_is_no_time_is_measured_once(
    benchmark: BenchmarkFixture, wait: Await, entrant: Contender, workload: Workload, name: str
) -> None:
    """Memory and rates: in `extra_info`, because pytest-benchmark's columns are times."""
    benchmark.group = f"{workload.name} {workload.title}: see extra_info, the time is that of measuring"
    try:
        found = benchmark.pedantic(lambda: wait(entrant.measure(workload, workload.samples)), rounds=1)
    except PermissionError as error:
        pytest.skip(f"{name}: its worker gave up its user id, so its memory is for root to read: {error}")
    benchmark.extra_info[f"{name}, {workload.unit}"] = found
