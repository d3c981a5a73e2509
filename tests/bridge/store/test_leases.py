"""Who may write to a run, in which order, and what is said to the others."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from anyio import to_thread

from bridge.errors import StateError
from bridge.store import Lease, LeaseLost, Store, Waiting
from tests.bridge.store.conftest import begin

OPERATIONS: list[Callable[[Store, Lease], object]] = [
    lambda store, lease: store.append(lease, 1, [b"late"], now=120, lease_s=10),
    lambda store, lease: store.renew(lease, now=120, lease_s=10),
    lambda store, lease: store.release(lease, now=120, status="paused"),
    lambda store, lease: store.release(lease, now=120, status="completed", first_seq=1, records=[b"late"]),
]


def test_a_run_has_its_first_records_and_the_lease_of_who_began_it(store: Store) -> None:
    lease = begin(store, records=(b"program", b"inputs"))
    assert lease == Lease(run_id="run", owner="one", fence=1, until=110)
    assert store.read("run") == [b"program", b"inputs"]


def test_records_come_back_in_order_and_as_they_were(store: Store) -> None:
    every_byte = bytes(range(256))
    lease = begin(store)
    lease = store.append(lease, 0, [b"", every_byte], now=101, lease_s=10)
    store.append(lease, 2, [b"\0" * 100_000], now=102, lease_s=10)
    assert store.read("run") == [b"", every_byte, b"\0" * 100_000]
    assert store.read("run", after=1) == [every_byte, b"\0" * 100_000]
    assert store.read("run", after=3) == []
    assert store.row("run").seq == 3


def test_no_two_runs_have_one_id(store: Store) -> None:
    begin(store, records=(b"first",))
    with pytest.raises(StateError, match=r"^there is a run run already$"):
        begin(store, records=(b"second",))
    assert store.read("run") == [b"first"]


def test_appending_renews_the_lease(store: Store) -> None:
    lease = store.append(begin(store), 0, [b"a"], now=105, lease_s=30)
    assert lease.until == store.row("run").lease_until == 135
    assert store.renew(lease, now=120, lease_s=30).until == store.row("run").lease_until == 150


def test_renewing_is_no_change_of_the_run(store: Store) -> None:
    store.renew(begin(store), now=105, lease_s=30)
    assert store.row("run").updated == 100


@pytest.mark.parametrize("first_seq", [0, 2, 3])
def test_records_that_do_not_follow_are_not_written(store: Store, first_seq: int) -> None:
    lease = begin(store, records=(b"a",))
    with pytest.raises(LeaseLost) as lost:
        store.append(lease, first_seq, [b"b", b"c"], now=101, lease_s=10)
    assert str(lost.value) == f"run run has 1 records, not {first_seq}: its journal must be read again"
    assert store.read("run") == [b"a"]


def test_an_append_that_fails_half_way_leaves_nothing(store: Store) -> None:
    lease = begin(store)
    bad: Any = object()  # no database takes it; the record before it could be written
    with pytest.raises(Exception, match=r"object"):
        store.append(lease, 0, [b"good", bad], now=101, lease_s=10)
    assert store.read("run") == []
    assert store.row("run").seq == 0
    store.append(lease, 0, [b"again"], now=102, lease_s=10)
    assert store.read("run") == [b"again"]


def test_a_held_run_cannot_be_taken(store: Store) -> None:
    begin(store)
    with pytest.raises(StateError) as held:
        store.acquire("run", owner="two", lease_s=10, now=109.5)
    assert str(held.value) == "run run is driven by one: its lease lasts 0.5 s more, until 1970-01-01 00:01:50Z"
    assert store.row("run").fence == 1


def test_a_run_whose_lease_is_over_passes_to_who_takes_it(store: Store) -> None:
    begin(store, records=(b"a", b"b"))
    lease, records = store.acquire("run", owner="two", lease_s=10, now=110)
    assert lease == Lease(run_id="run", owner="two", fence=2, until=120)
    assert records == [b"a", b"b"]
    assert store.row("run").lease_owner == "two"


@pytest.mark.parametrize("operation", OPERATIONS)
def test_who_lost_its_lease_writes_no_more(store: Store, operation: Callable[[Store, Lease], object]) -> None:
    stale = begin(store, records=(b"a",))
    store.acquire("run", owner="two", lease_s=10, now=115)
    before = store.row("run")
    with pytest.raises(LeaseLost) as lost:
        operation(store, stale)
    assert str(lost.value) == "run run is driven by two under fence 2, this lease had 1"
    assert store.row("run") == before
    assert store.read("run") == [b"a"]


@pytest.mark.parametrize("operation", OPERATIONS)
def test_the_same_owner_is_fenced_off_from_its_earlier_lease(
    store: Store, operation: Callable[[Store, Lease], object]
) -> None:
    stale = begin(store, records=(b"a",))
    store.acquire("run", owner="one", lease_s=10, now=115)
    with pytest.raises(LeaseLost, match=r"^run run is driven by one under fence 2, this lease had 1$"):
        operation(store, stale)
    assert store.read("run") == [b"a"]


@pytest.mark.parametrize("operation", OPERATIONS)
def test_who_gave_its_lease_back_writes_no_more(store: Store, operation: Callable[[Store, Lease], object]) -> None:
    lease = begin(store, records=(b"a",))
    store.release(lease, now=101, status="paused")
    before = store.row("run")
    with pytest.raises(LeaseLost, match=r"^run run was released: acquire it again before writing to it$"):
        operation(store, lease)
    assert store.row("run") == before


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_run_that_was_pruned_is_written_to_no_more(store: Store, operation: Callable[[Store, Lease], object]) -> None:
    lease = begin(store, records=(b"a",))
    store.release(lease, now=101, status="completed")
    store.prune(before=200, now=200)
    with pytest.raises(LeaseLost, match=r"^run run is not in this store \(any more\)$"):
        operation(store, lease)


def test_a_lease_past_its_time_still_writes_while_nobody_took_it(store: Store) -> None:
    lease = store.append(begin(store), 0, [b"a"], now=500, lease_s=10)
    assert lease.until == 510
    assert store.read("run") == [b"a"]


def test_last_records_and_release_are_one_step(store: Store) -> None:
    lease = begin(store, records=(b"a",))
    with pytest.raises(LeaseLost):
        store.release(lease, now=101, status="completed", first_seq=0, records=[b"z"])
    assert store.row("run").status == "running"
    store.release(lease, now=101, status="completed", first_seq=1, records=[b"z"], outcome="4 rows")
    assert store.read("run") == [b"a", b"z"]
    row = store.row("run")
    assert (row.status, row.outcome, row.lease_owner, row.lease_until, row.fence) == ("completed", "4 rows", None, 0, 1)


def test_a_paused_run_says_what_it_waits_for_until_it_is_taken(store: Store) -> None:
    waiting = (
        Waiting(call="c1", tool="shop/refund", kind="approval", expires_at=500, line=3),
        Waiting(call="c2", tool="ask 🙂 \0", kind="client", expires_at=400.25),
    )
    store.release(begin(store), now=101, status="paused", waiting=waiting, expires_at=400.25, claim_digest="claim")
    row = store.row("run")
    assert (row.status, row.waiting, row.expires_at, row.claim_digest) == ("paused", waiting, 400.25, "claim")
    store.acquire("run", owner="two", lease_s=10, now=102)
    row = store.row("run")
    assert (row.status, row.waiting, row.expires_at) == ("running", (), None)


def test_a_finished_run_cannot_be_taken(store: Store) -> None:
    store.release(begin(store), now=101, status="failed")
    with pytest.raises(StateError, match=r"^run run is finished \(failed\)$"):
        store.acquire("run", owner="two", lease_s=10, now=200)


def test_an_unknown_run_is_said_to_be_unknown(store: Store) -> None:
    for ask in (
        lambda: store.acquire("nope", owner="two", lease_s=10, now=200),
        lambda: store.acquire("nope", owner="two", lease_s=10, now=200, claim_digest="claim"),
        lambda: store.read("nope"),
        lambda: store.row("nope"),
    ):
        with pytest.raises(StateError) as unknown:
            ask()
        assert str(unknown.value) == "no run nope in this store: it was pruned, or belongs to another"


def test_a_claim_is_used_once(store: Store) -> None:
    store.release(begin(store), now=101, status="paused", claim_digest="claim")
    lease, _ = store.acquire("run", owner="two", lease_s=10, now=102, claim_digest="claim")
    assert store.row("run").claim_digest is None
    store.release(lease, now=103, status="running")
    with pytest.raises(StateError) as used:
        store.acquire("run", owner="three", lease_s=10, now=104, claim_digest="claim")
    assert str(used.value) == "this state of run run was used already: each can be loaded once"


@pytest.mark.parametrize("foreign", ["another", "", "cl\udc80", "claim "])
def test_a_claim_that_is_not_open_is_refused(store: Store, foreign: str) -> None:
    store.release(begin(store), now=101, status="paused", claim_digest="claim")
    before = store.row("run")
    with pytest.raises(StateError) as refused:
        store.acquire("run", owner="two", lease_s=10, now=102, claim_digest=foreign)
    assert str(refused.value) == "this is no current state of run run: the run went on since, or it is another run's"
    assert store.row("run") == before


def test_a_claim_where_none_was_ever_given_is_refused(store: Store) -> None:
    begin(store)
    with pytest.raises(StateError, match=r"^this is no current state of run run: "):
        store.acquire("run", owner="two", lease_s=10, now=200, claim_digest="claim")


def test_a_new_pause_takes_the_place_of_an_open_claim(store: Store) -> None:
    store.release(begin(store), now=101, status="paused", claim_digest="first")
    lease, _ = store.acquire("run", owner="two", lease_s=10, now=102)
    assert store.row("run").claim_digest == "first"  # an operator's access uses none up
    store.release(lease, now=103, status="paused", claim_digest="second")
    with pytest.raises(StateError, match=r"^this is no current state of run run: "):
        store.acquire("run", owner="two", lease_s=10, now=104, claim_digest="first")
    store.acquire("run", owner="two", lease_s=10, now=104, claim_digest="second")


def test_a_claim_does_not_take_a_run_that_somebody_drives(store: Store) -> None:
    store.release(begin(store), now=101, status="paused", claim_digest="claim")
    lease, _ = store.acquire("run", owner="two", lease_s=10, now=102)
    with pytest.raises(StateError, match=r"^run run is driven by two: "):
        store.acquire("run", owner="three", lease_s=10, now=103, claim_digest="claim")
    store.release(lease, now=104, status="paused", claim_digest="claim")
    store.acquire("run", owner="three", lease_s=10, now=105, claim_digest="claim")  # the refusal used nothing up


def test_of_twenty_threads_one_takes_a_run(store: Store) -> None:
    store.release(begin(store), now=101, status="paused", claim_digest="claim")
    start = threading.Barrier(20)
    taken: list[Lease] = []
    refused: list[str] = []

    def take(number: int) -> None:
        start.wait()
        try:
            claim = "claim" if number % 2 else None
            lease, _ = store.acquire("run", owner=f"thread {number}", lease_s=10, now=102, claim_digest=claim)
            taken.append(lease)
        except StateError as error:
            refused.append(str(error))

    threads = [threading.Thread(target=take, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [lease.fence for lease in taken] == [2]
    assert len(refused) == 19
    assert store.row("run").lease_owner == taken[0].owner


def test_threads_that_write_and_read_runs_of_their_own_do_not_disturb_each_other(store: Store) -> None:
    failed: list[BaseException] = []

    def drive(number: int) -> None:
        try:
            lease = begin(store, f"run {number}")
            for count in range(20):
                lease = store.append(lease, count, [b"%d" % count], now=101, lease_s=10)
                assert store.read(f"run {number}", after=count) == [b"%d" % count]
        except BaseException as error:  # noqa: BLE001 - raised in the test
            failed.append(error)

    threads = [threading.Thread(target=drive, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    for number in range(8):
        assert store.read(f"run {number}") == [b"%d" % count for count in range(20)]


@pytest.mark.anyio
async def test_worker_threads_of_an_event_loop_may_use_it(store: Store) -> None:
    lease = await to_thread.run_sync(begin, store)
    lease = await to_thread.run_sync(lambda: store.append(lease, 0, [b"a"], now=101, lease_s=10))
    assert await to_thread.run_sync(store.read, "run") == [b"a"]


@pytest.mark.parametrize("lease_s", [0, -1, float("nan"), float("inf")])
def test_a_lease_has_an_end(store: Store, lease_s: float) -> None:
    with pytest.raises(StateError, match=r"^lease_s must be "):
        begin(store, lease_s=lease_s)
    lease = begin(store)
    for use in (
        lambda: store.append(lease, 0, [b"a"], now=101, lease_s=lease_s),
        lambda: store.renew(lease, now=101, lease_s=lease_s),
        lambda: store.acquire("run", owner="two", lease_s=lease_s, now=200),
    ):
        with pytest.raises(StateError, match=r"^lease_s must be "):
            use()
    assert store.row("run").seq == 0


def test_what_only_a_paused_run_has_is_refused_for_others(store: Store) -> None:
    lease = begin(store)
    with pytest.raises(StateError) as refused:
        store.release(lease, now=101, status="completed", claim_digest="claim")
    assert str(refused.value) == "only a paused run waits for something and has a claim: run run is completed"
    with pytest.raises(StateError, match=r"^records need first_seq: how many the journal has so far$"):
        store.release(lease, now=101, status="completed", records=[b"z"])
    done: Any = "done"
    with pytest.raises(StateError, match=r"^a run is cancelled, completed, .*, stalled, violation, not done$"):
        store.release(lease, now=101, status=done)
    assert store.row("run").lease_owner == "one"
