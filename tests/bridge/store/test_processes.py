"""Stores that processes share, and processes that are killed."""

from __future__ import annotations

import os
import random
import signal
from typing import Any

import pytest

from bridge.approval import Grant
from bridge.errors import StateError
from bridge.store import Store
from tests.bridge.store.conftest import begin
from tests.bridge.store.driver import PART, record, renewed
from tests.bridge.store.processes import driver


def test_the_run_of_a_killed_process_passes_when_its_lease_is_over(url: str) -> None:
    with driver("hold", url) as [holder], Store(url) as store:
        assert holder.hear()["lease"] == {"run_id": "run", "owner": "child", "fence": 1, "until": 110}
        holder.process.send_signal(signal.SIGKILL)
        holder.process.wait()
        with pytest.raises(
            StateError, match=r"^run run is driven by child: its lease lasts 2.0 s more, until 1970-01-01 00:01:50Z$"
        ):
            store.acquire("run", owner="parent", lease_s=10, now=108)
        lease, records = store.acquire("run", owner="parent", lease_s=10, now=110)
        assert lease.fence == 2
        assert records == [record(0)]


def test_a_process_that_slept_past_its_lease_writes_no_more(url: str) -> None:
    with driver("hold", url) as [holder], Store(url) as store:
        stale = renewed(holder.hear()["lease"])
        store.acquire("run", owner="parent", lease_s=10, now=stale.until)
        holder.tell("its clock says 105")
        assert holder.hear() == {
            "error": "LeaseLost",
            "text": "run run is driven by parent under fence 2, this lease had 1",
        }
        assert store.read("run") == [record(0)]


def test_a_process_writes_under_a_lease_that_nobody_took(url: str) -> None:
    with driver("hold", url) as [holder], Store(url) as store:
        holder.hear()
        holder.tell()
        assert holder.hear() == {"error": None}
        assert store.read("run") == [record(0), record(1)]


def test_whatever_was_acknowledged_survives_a_kill_and_no_append_is_half_there(url: str) -> None:
    chance = random.Random(7)
    with Store(url) as store, driver("loop", url) as [loop]:
        store.release(begin(store), now=101, status="paused")
        held, fence = 0, 1
        for turn in range(12):
            loop.tell(str(1000 * (turn + 1)))
            started = loop.hear()
            assert started["found"] == held
            said: list[dict[str, Any]] = [loop.hear() for _ in range(chance.randrange(8))]
            os.kill(started["child"], signal.SIGKILL)
            while "dead" not in (last := loop.hear()):
                said.append(last)
            acknowledged = said[-1]["acknowledged"] if said else held
            # Taking the run waits for a commit that a server may still be at, and lets none come later.
            lease, records = store.acquire("run", owner="parent", lease_s=10, now=1000 * (turn + 1) + 10)
            store.release(lease, now=101, status="paused")
            held, fence = len(records), fence + 2
            assert lease.fence == fence
            assert acknowledged <= held <= acknowledged + PART  # the last one may have been written and not said
            assert held % PART == 0
            assert records == [record(number) for number in range(held)]
            assert store.row("run").seq == held
        assert held > 0


def test_of_several_processes_one_takes_a_run(url: str) -> None:
    with Store(url) as store, driver("take", url, 3) as takers:
        store.release(begin(store), now=101, status="paused", claim_digest="claim")
        for taker in takers:
            assert taker.hear() == {"ready": True}
        for taker in takers:
            taker.tell()
        said = [taker.hear() for taker in takers]
        assert sorted(map(list, said)) == [["error"]] * 2 + [["fence"]]
        used = "this state of run run was used already: each can be loaded once"
        assert [one["error"] for one in said if "error" in one] == [used] * 2


def test_of_several_processes_one_uses_a_grant(url: str) -> None:
    with Store(url) as store, driver("spend", url, 3) as spenders:
        grant = store.grants.add(Grant(tool="pay", server_identity=None, definition_digest="d"), now=100)
        for spender in spenders:
            assert spender.hear() == {"ready": True}
        for spender in spenders:
            spender.tell(grant)
        assert sorted(spender.hear()["spent"] for spender in spenders) == [False, False, True]


def test_several_processes_may_open_an_empty_database_at_once(url: str) -> None:
    with driver("open_only", url, 3) as openers:
        for opener in openers:
            assert opener.hear() == {"ready": True}
        for opener in openers:
            opener.tell()
        assert [opener.hear() for opener in openers] == [{"opened": True}] * 3
