"""Measures: contenders of a workload are open at once and take turns, each round beginning with another one.

So what disturbs the machine disturbs them alike. The first measurement of each is thrown away.
"""

from __future__ import annotations

import asyncio
import os
import platform
import statistics
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import Final

import msgspec

from bridge.bench.speed.contenders import contender, versions
from bridge.bench.speed.workloads import WORKLOADS, Workload
from bridge.errors import ConfigurationError

OURS: Final = "sandbridge"


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """What one contender needed for one workload, in the workload's unit. `best` is the least disturbed measurement."""

    median: float
    best: float
    measured: list[float]


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """One workload. `refused` says of a contender why it has no figures."""

    title: str
    unit: str
    remark: str
    figures: dict[str, Figures]
    refused: dict[str, str]
    goals: list[str]


class Speed(msgspec.Struct, frozen=True, kw_only=True):
    """A whole measurement. `contenders` has a version, or null for one that is absent; the machine has no name."""

    date: str
    cores: int
    processor: str
    system: str
    python: str
    contenders: dict[str, str | None]
    workloads: dict[str, Measured]


def measure(names: Sequence[str], rounds: int, tell: Callable[[str, Measured], None]) -> Speed:
    """Measure workloads by name (none: all of them).

    Args:
        rounds: Turns of every contender.
        tell: Called with each workload that is measured.

    Raises:
        ConfigurationError: There is no workload of that name.
        Mismatch: A contender gave another value than it must.
    """
    found = versions()
    workloads = chosen(names)
    measured: dict[str, Measured] = {}
    for workload in workloads:
        here = [name for name in workload.entrants if found[name.split()[0]] is not None]
        measured[workload.name] = asyncio.run(_measured(workload, here, rounds))
        tell(workload.name, measured[workload.name])
    return Speed(
        date=datetime.now(tz=UTC).strftime("%Y-%m-%d"),
        cores=len(os.sched_getaffinity(0)),
        processor=platform.machine(),
        system=f"{platform.system()} {'.'.join(platform.release().split('.')[:2])}",
        python=platform.python_version(),
        contenders=found,
        workloads=measured,
    )


def chosen(names: Sequence[str]) -> list[Workload]:
    """Workloads by name; `W6` is both of its parts; none is all.

    Raises:
        ConfigurationError: A name that is none.
    """
    wanted = {name.lower() for name in names}
    found = [
        work
        for work in WORKLOADS.values()
        if not wanted or wanted & {work.name.lower(), work.name.rstrip("ab").lower()}
    ]
    known = {word.lower() for work in found for word in (work.name, work.name.rstrip("ab"))}
    if wanted - known:
        unknown = next(name for name in names if name.lower() not in known)
        raise ConfigurationError(f"there is no workload {unknown!r}; there is: {', '.join(WORKLOADS)}")
    return found


async def _measured(workload: Workload, names: Sequence[str], rounds: int) -> Measured:
    taken: dict[str, list[float]] = {name: [] for name in names}
    refused: dict[str, str] = {}
    async with AsyncExitStack() as stack:
        entrants = [await stack.enter_async_context(contender(name)) for name in names]
        for turn in range(-1, rounds):  # the first is thrown away
            first = max(0, turn) % len(entrants)
            for entrant in entrants[first:] + entrants[:first]:
                count = max(1, workload.samples // 5) if entrant.name in workload.few else workload.samples
                try:
                    figures = await entrant.measure(workload, count if turn >= 0 else 1)
                except PermissionError as error:  # memory of a worker that gave up its user id: root may read it
                    refused[entrant.name] = str(error)
                else:
                    taken[entrant.name] += figures if turn >= 0 else ()
    figures_of = {name: _figures(workload, found) for name, found in taken.items() if found}
    return Measured(
        title=workload.title,
        unit=workload.unit,
        remark=workload.remark,
        figures=figures_of,
        refused=refused,
        goals=goals(workload, {name: figures.median for name, figures in figures_of.items()}),
    )


def _figures(workload: Workload, found: Sequence[float]) -> Figures:
    best = max(found) if workload.unit == "/s" else min(found)
    return Figures(median=statistics.median(found), best=best, measured=[round(each, 4) for each in found])


def goals(workload: Workload, medians: dict[str, float]) -> list[str]:
    """What was to be reached, and whether it was: a line for each goal that these figures can tell about."""
    lines: list[str] = []
    for goal in workload.goals:
        if OURS in medians and (goal.times is None or goal.times in medians):
            reached = medians[OURS] / (medians[goal.times] if goal.times else 1)
            met = reached >= goal.bound if workload.unit == "/s" else reached <= goal.bound
            lines.append(f"goal: {goal.text(workload.unit)}: {reached:.2f}, {'reached' if met else 'not reached'}")
    return lines
