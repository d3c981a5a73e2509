"""How the host waits for one step: in place for a moment, awake where each of the two has a core."""

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


@pytest.fixture
def pair() -> Generator[tuple[socket.socket, socket.socket]]:
    here, there = socket.socketpair()
    here.setblocking(False)
    with here, there:
        yield here, there


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """How somebody waits, under a clock that goes on by `TICK` at each look."""
    found: list[str] = []
    clock = itertools.count()

    def select(*given: Any) -> tuple[list[Any], ...]:
        found.append(f"asleep {given[3]}")
        return [], [], []

    monkeypatch.setattr(process.time, "perf_counter", lambda: TICK * next(clock))
    monkeypatch.setattr(process.os, "sched_yield", lambda: found.append("awake"))
    monkeypatch.setattr(process.select, "select", select)
    return found


def worker_on(channel: socket.socket) -> Worker:
    return Worker(Born(os.getpid(), -1, channel), None, Limits(), Limits())


def test_a_worker_on_a_core_of_its_own_is_awaited_awake_and_any_other_one_asleep(
    looks: list[str], pair: tuple[socket.socket, socket.socket]
) -> None:
    worker = worker_on(pair[0])
    worker._wait_in_place(pair[0], awake=True)
    assert looks == ["awake"] * 3
    looks.clear()
    worker._wait_in_place(pair[0], awake=False)
    assert looks == [f"asleep {BRIEF_S}"]


def test_what_has_come_is_found_without_sleep(looks: list[str], pair: tuple[socket.socket, socket.socket]) -> None:
    pair[1].send(b"x")
    worker_on(pair[0])._wait_in_place(pair[0], awake=True)
    assert looks == []
