"""How the host waits for one step: in place and for a moment, awake only for a worker that was quick."""

from __future__ import annotations

import itertools
import os
import socket
from collections.abc import Generator
from typing import Any

import pytest

from sandbox import Limits, process
from sandbox.origin import Born
from sandbox.process import AWAKE_S, BRIEF_S, Worker

TICK = AWAKE_S / 4


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

    def wait(self) -> list[str]:
        """How it was waited for one step."""
        self.looks.clear()
        self.worker._wait_in_place(self.channel)
        return list(self.looks)


@pytest.fixture
def pair() -> Generator[tuple[socket.socket, socket.socket]]:
    here, there = socket.socketpair()
    here.setblocking(False)
    with here, there:
        yield here, there


def test_a_worker_is_awaited_awake_only_after_a_step_that_was_quick(
    monkeypatch: pytest.MonkeyPatch, pair: tuple[socket.socket, socket.socket]
) -> None:
    waits, asleep = Waits(monkeypatch, pair[0]), f"asleep {BRIEF_S}"
    assert waits.wait() == [asleep]
    waits.answers = True
    assert waits.wait() == [asleep]
    waits.answers = False
    awake = waits.wait()
    assert awake[-1] == asleep
    assert 0 < awake.count("awake") == len(awake) - 1 <= AWAKE_S / TICK
    assert waits.wait() == [asleep]


def test_what_has_come_is_found_without_sleep(
    monkeypatch: pytest.MonkeyPatch, pair: tuple[socket.socket, socket.socket]
) -> None:
    waits = Waits(monkeypatch, pair[0])
    waits.answers = True
    waits.wait()
    pair[1].send(b"x")
    assert waits.wait() == []


def test_nobody_stays_awake_on_the_only_core(
    monkeypatch: pytest.MonkeyPatch, pair: tuple[socket.socket, socket.socket]
) -> None:
    waits = Waits(monkeypatch, pair[0])
    monkeypatch.setattr(process, "SEVERAL_CORES", False)
    waits.answers = True
    assert waits.wait() == waits.wait() == [f"asleep {BRIEF_S}"]
