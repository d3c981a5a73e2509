"""Measure every workload beside what a user would pick instead: `python benchmarks/speed.py [W2 W3 ...] [--json FILE]`.

All contenders of a workload are open at once and take turns, round by round, each round beginning with another one, so
that what disturbs the machine disturbs them alike. On a machine that does other work trust ratios and minima, not the
medians. `sandbridge / it` is this project's figure in times of the row's: below 1 it is faster or smaller.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import statistics
import subprocess
import sys
from contextlib import AsyncExitStack
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))  # run as a script, this folder's parent is not on the path

from benchmarks.contender import Mismatch
from benchmarks.contenders import contender, installed
from benchmarks.workloads import WORKLOADS, Workload

Figures = dict[str, list[float]]


async def measured(workload: Workload, rounds: int) -> Figures:
    """All measurements of one workload, by contender; the first of each is thrown away."""
    figures: Figures = {}
    async with AsyncExitStack() as stack:
        entrants = [await stack.enter_async_context(contender(name)) for name in workload.entrants if installed(name)]
        for entrant in entrants:
            await entrant.measure(workload, 1)
            figures[entrant.name] = []
        for turn in range(rounds):
            first = turn % len(entrants)
            for entrant in entrants[first:] + entrants[:first]:
                count = max(1, workload.samples // 5) if entrant.name in workload.few else workload.samples
                try:
                    figures[entrant.name] += await entrant.measure(workload, count)
                except PermissionError as error:  # memory of a worker that gave up its user id
                    print(f"  {entrant.name}: {error}", file=sys.stderr)
    return {name: found for name, found in figures.items() if found}


def best(workload: Workload, found: list[float]) -> float:
    """The least disturbed measurement."""
    return max(found) if workload.unit == "/s" else min(found)


def table(workload: Workload, figures: Figures) -> list[str]:
    """One workload for a person."""
    lines = [f"{workload.name}  {workload.title}" + (f"\n    ({workload.remark})" if workload.remark else "")]
    lines.append(f"    {'':<16}{'median':>10}{'best':>10} {'':<4}{'n':>4}   sandbridge / it: median   best")
    ours = figures.get("sandbridge")
    for name, found in figures.items():
        middle, least = statistics.median(found), best(workload, found)
        line = f"    {name:<16}{middle:>10.2f}{least:>10.2f} {workload.unit:<4}{len(found):>4}"
        if ours and name != "sandbridge":
            line += f"{statistics.median(ours) / middle:>27.2f}{best(workload, ours) / least:>7.2f}"
        lines.append(line)
    for goal in workload.goals:
        if ours and (goal.times is None or goal.times in figures):
            reached = statistics.median(ours) / (statistics.median(figures[goal.times]) if goal.times else 1)
            met = reached >= goal.bound if workload.unit == "/s" else reached <= goal.bound
            lines.append(f"    goal: {goal.text(workload.unit)}: {reached:.2f}, {'reached' if met else 'not reached'}")
    return lines


def machine() -> dict[str, Any]:
    """What the figures depend on; names no host."""
    versions = {"python": platform.python_version()}
    for package in ("sandbridge", "pydantic-monty", "mini-racer"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = "not installed"
    try:
        found = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True)
        versions["node"] = found.stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        versions["node"] = "not installed"
    return {
        "cores": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "versions": versions,
    }


def chosen(names: list[str]) -> list[Workload]:
    """Workloads by name; `W6` is both of its parts; none is all. Raises `SystemExit` for a name that is none."""
    if not names:
        return list(WORKLOADS.values())
    found = [work for work in WORKLOADS.values() for name in names if work.name.rstrip("ab").lower() == name.lower()]
    found += [work for work in WORKLOADS.values() if work.name in names and work not in found]
    if len({work.name.rstrip("ab") for work in found}) < len(set(names)):
        raise SystemExit(f"no such workload in {' '.join(names)}: there are {' '.join(WORKLOADS)}")
    return found


def main() -> None:
    """Run, print, and write the figures where they were asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("workload", nargs="*", help=f"of {' '.join(WORKLOADS)}; W6 is W6a and W6b; default: all")
    parser.add_argument("--rounds", type=int, default=5, help="turns of every contender (default 5)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every measurement there")
    given = parser.parse_args()
    workloads, about = chosen(given.workload), machine()
    packages = ", ".join(f"{name} {what}" for name, what in about["versions"].items())
    print(f"{about['cores']} cores, Linux {about['kernel']} {about['machine']}; {packages}\n")
    everything: dict[str, Any] = {}
    for workload in workloads:
        try:
            figures = asyncio.run(measured(workload, given.rounds))
        except Mismatch as error:
            raise SystemExit(f"the contenders do not agree: {error}") from None
        everything[workload.name] = {"title": workload.title, "unit": workload.unit, "figures": figures}
        print("\n".join(table(workload, figures)), end="\n\n", flush=True)
    if given.json is not None:
        given.json.write_text(json.dumps({**about, "workloads": everything}, indent=1) + "\n")


if __name__ == "__main__":
    main()
