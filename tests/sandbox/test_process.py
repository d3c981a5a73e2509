"""How the host waits for one step: in place for a moment, awake for a worker that was quick or has another core."""

from __future__ import annotations

import itertools
import os
import socket
from collections.abc import Generator
from typing import Any

import pytest

from sandbox import Limits, process
from sandbox.origin import Born
from sandbox.process import BRIEF_S, IN_PLACE_S, Worker

TICK = IN_PLACE_S / 4
ASLEEP = f"asleep {BRIEF_S}"


class Waits:
    """A worker that is silent, under a clock that goes on by `TICK` at each look."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, here: socket.socket) -> None:
        self.channel = here
        self.worker = Worker(Born(os.getpid(), -1, here), None, Limits(), Limits())
        self.looks: list[str] = []
        self.answers = False
        clock = itertools.count()
        monkeypatch.setattr(process.time, "perf_counter", lambda: TICK * next(clock))
        monkeypatch.setattr(process.os, "sched_yield", lambda: self.looks.append("awake"))
        monkeypatch.setattr(process.select, "select", self._select)
        monkeypatch.setattr(process, "SEVERAL_CORES", True)

    def _select(self, *given: Any) -> tuple[list[Any], ...]:
        self.looks.append(f"asleep {given[3]}")
        if not self.answers:
            for _ in range(4):
                process.time.perf_counter()
        return [], [], []

    def wait(self, *, apart: bool = False) -> list[str]:
        """How it was waited for one step."""
        self.looks.clear()
        self.worker._wait_in_place(self.channel, apart=apart)
        return list(self.looks)


@pytest.fixture
def pair() -> Generator[tuple[socket.socket, socket.socket]]:
    here, there = socket.socketpair()
    here.setblocking(False)
    with here, there:
        yield here, there


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch, pair: tuple[socket.socket, socket.socket]) -> Waits:
    return Waits(monkeypatch, pair[0])


def test_a_worker_is_awaited_awake_only_after_a_step_that_was_quick(waits: Waits) -> None:
    assert waits.wait() == [ASLEEP]
    waits.answers = True
    assert waits.wait() == [ASLEEP]
    waits.answers = False
    awake = waits.wait()
    assert awake[-1] == ASLEEP
    assert 0 < awake.count("awake") == len(awake) - 1 <= IN_PLACE_S / TICK
    assert waits.wait() == [ASLEEP]


def test_a_worker_on_another_core_is_awaited_awake_alone(waits: Waits) -> None:
    assert waits.wait(apart=True) == ["awake"] * 3


def test_what_has_come_is_found_without_sleep(waits: Waits, pair: tuple[socket.socket, socket.socket]) -> None:
    pair[1].send(b"x")
    assert waits.wait(apart=True) == []
    waits.answers = True
    waits.wait()
    assert waits.wait() == []


def test_nobody_stays_awake_on_the_only_core(waits: Waits, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "SEVERAL_CORES", False)
    waits.answers = True
    assert waits.wait() == waits.wait() == [ASLEEP]
