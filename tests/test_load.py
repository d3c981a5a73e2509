"""Programs at full load while workers, zygote, servers, disk and descriptors fail: effects are as journals say."""

from __future__ import annotations

import collections
import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.effects import unlike
from benchmarks.load import Load

ROOT = Path(__file__).parent.parent


def test_effects_that_are_lost_doubled_or_untold_are_found() -> None:
    journal = [("a/0", "completed"), ("a/1", "completed"), ("a/2", "not_started"), ("a/3", "unknown")]
    happened = collections.Counter({"a/1": 2, "a/2": 1, "b/0": 1, "c/0": 1})
    assert unlike(happened, journal, untold=["b"]) == [
        "doubled: a/1 happened 2 times",
        "lost: a/0 is said to have happened",
        "untold: a/2 happened and is said to be not_started",
        "untold: c/0 happened in no run",
    ]
    assert unlike(collections.Counter(["a/0", "a/1"]), [*journal[:2], *journal[3:]], untold=[]) == []


GREW = "memory grew by {}% after the warm-up"
LEFT = "21 MB of memory are left when everything is closed"


@pytest.mark.parametrize(
    ("programs", "attacks", "grown", "rest", "wrong"),
    [
        (2000, True, 2.0, 19, []),
        (2000, True, 2.0, 21, [LEFT]),
        (2000, False, 1.06, 21, [GREW.format("6.0"), LEFT]),
        (math.inf, False, 1.04, 21, []),
        (math.inf, False, 1.06, 19, [GREW.format("6.0")]),
        (math.inf, True, 1.09, 21, []),
        (math.inf, True, 1.11, 19, [GREW.format("11.0")]),
    ],
)
def test_memory_is_judged_at_rest_after_so_many_programs_and_by_its_growth_over_hours(
    programs: float, attacks: bool, grown: float, rest: int, wrong: list[str]
) -> None:
    load = Load(programs=programs, attacks=attacks)
    load.report.seconds, load.report.memory_bytes = 1.0, [50 << 20] * 9 + [int(grown * (50 << 20))] * 9
    load.report.rest_bytes = [50_000_000, 50_000_000 + rest * 1_000_000]
    load._summed()
    assert [what for what in load.report.wrong if "memory" in what] == wrong


MEASURE = """
import asyncio, json, logging
from benchmarks.load import Load
logging.disable()  # it tells of each fault
report = asyncio.run(Load(programs=80, faults=True, timed=False).measure())
print(json.dumps([report.wrong, dict(report.faults), report.ended["completed"], report.flood]))
"""


def test_no_effect_is_lost_or_doubled_whatever_fails_and_nothing_is_left() -> None:
    command = [sys.executable, "-c", MEASURE]  # a process of its own: its descriptors are counted
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert ended.returncode == 0, ended.stderr
    wrong, faults, completed, flood = json.loads(ended.stdout)
    assert wrong == []
    assert {name: count >= 1 for name, count in faults.items()} == dict.fromkeys(FAULTS, True)
    assert completed > 40
    assert " 0 were refused" not in flood


FAULTS = [
    "a worker is killed",
    "the zygote is killed",
    "an MCP server is killed",
    "the disk is full",
    "descriptors are used up",
    "more programs than may wait",
]
