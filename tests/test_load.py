"""Programs at full load while workers, zygote, servers, disk and descriptors fail: effects are as journals say."""

from __future__ import annotations

import asyncio
import collections
import logging

import pytest

from benchmarks.effects import unlike
from benchmarks.load import Load
from bridge.journal import Outcome
from bridge.results import CallRow


def row(key: str, outcome: Outcome) -> CallRow:
    return CallRow(id=key, tool="append", arguments={"key": key}, decision="allow", outcome=outcome)


def test_effects_that_are_lost_doubled_or_untold_are_found() -> None:
    journal = [row("a/0", "completed"), row("a/1", "completed"), row("a/2", "not_started"), row("a/3", "unknown")]
    happened = collections.Counter({"a/1": 2, "a/2": 1, "b/0": 1, "c/0": 1})
    assert unlike(happened, journal, untold=["b"]) == [
        "doubled: a/1 happened 2 times",
        "lost: a/0 is said to have happened",
        "untold: a/2 happened and is said to be not_started",
        "untold: c/0 happened in no run",
    ]
    assert unlike(collections.Counter(["a/0", "a/1"]), [*journal[:2], *journal[3:]], untold=[]) == []


def test_no_effect_is_lost_or_doubled_whatever_fails_and_nothing_is_left(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "sandbridge")  # it tells of each fault
    report = asyncio.run(Load(programs=80, faults=True, timed=False).measure())
    assert report.wrong == []
    assert {name: count >= 1 for name, count in report.faults.items()} == dict.fromkeys(FAULTS, True)
    assert report.ended["completed"] > 40
    assert " 0 were refused" not in report.flood


FAULTS = [
    "a worker is killed",
    "the zygote is killed",
    "an MCP server is killed",
    "the disk is full",
    "descriptors are used up",
    "more programs than may wait",
]
