"""Rows, lists and pruning; and text that not every database would keep."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from bridge.approval import Grant
from bridge.errors import StateError
from bridge.store import FINISHED, RunRow, Store
from tests.bridge.store.conftest import begin

HOSTILE = [
    "'; DROP TABLE sandbridge_runs; --",
    '"quoted" `back` \\ %s :name ${x} {0} ?',
    "🙂 e\u0301 \u202e\u200b",
    "line\nline\r\t\x1b[31m",
    " ",
    "x" * 200,
]


def names(rows: list[RunRow]) -> list[str]:
    return [row.id for row in rows]


def test_a_row_says_all_about_a_new_run(store: Store) -> None:
    program = "return '🙂'" + " " * 300
    begin(store, records=(b"a", b"b"), program=program)
    assert store.row("run") == RunRow(
        id="run",
        status="running",
        created=100,
        updated=100,
        expires_at=None,
        program_digest=hashlib.sha256(program.encode()).hexdigest(),
        program_start=program[:200],
        audience="tests",
        engine_digest="v8",
        lease_owner="one",
        lease_until=110,
        fence=1,
        seq=2,
        claim_digest=None,
        waiting=(),
        outcome="",
    )


def test_times_keep_their_microseconds(store: Store) -> None:
    now = 1_764_493_999.123457
    begin(store, now=now, lease_s=0.25)
    assert (store.row("run").created, store.row("run").lease_until) == (now, now + 0.25)


def test_the_newest_run_comes_first(store: Store) -> None:
    for number in (1, 3, 2):
        begin(store, f"run {number}", now=100 + number)
    assert names(store.runs()) == ["run 3", "run 2", "run 1"]
    assert names(store.runs(limit=2)) == ["run 3", "run 2"]
    assert names(store.runs(since=102)) == ["run 3", "run 2"]


def test_runs_are_listed_by_status(store: Store) -> None:
    store.release(begin(store, "a"), now=101, status="paused")
    store.release(begin(store, "b"), now=101, status="completed")
    begin(store, "c")
    assert names(store.runs("paused")) == ["a"]
    assert names(store.runs("completed")) == ["b"]
    assert names(store.runs("running")) == ["c"]
    assert names(store.runs("failed")) == []
    unknown: Any = "done"
    with pytest.raises(StateError, match=r"^a run is cancelled, .*, not done$"):
        store.runs(unknown)


def test_runs_whose_wait_is_over_are_found(store: Store) -> None:
    for name, expires_at in (("late", 300), ("early", 200), ("never", None)):
        store.release(begin(store, name), now=101, status="paused", expires_at=expires_at)
    store.release(begin(store, "over"), now=101, status="completed")
    assert names(store.expired(now=199)) == []
    assert names(store.expired(now=200)) == ["early"]
    assert names(store.expired(now=300)) == ["early", "late"]
    lease, _ = store.acquire("early", owner="two", lease_s=10, now=300)
    assert names(store.expired(now=300)) == ["late"]
    store.release(lease, now=301, status="paused", expires_at=250)
    assert names(store.expired(now=300)) == ["early", "late"]


def test_runs_whose_process_is_gone_are_found(store: Store) -> None:
    begin(store, "held", lease_s=1000)
    begin(store, "gone", now=90)
    store.release(begin(store, "given back"), now=101, status="running")
    store.release(begin(store, "paused"), now=101, status="paused")
    assert names(store.abandoned(now=99)) == ["given back"]
    assert names(store.abandoned(now=100)) == ["gone", "given back"]


def test_pruning_takes_finished_runs_and_all_that_is_theirs(store: Store) -> None:
    for status in sorted(FINISHED):
        store.release(begin(store, status, records=(b"a",)), now=101, status=status)
    store.release(begin(store, "paused", records=(b"a",)), now=101, status="paused")
    store.release(begin(store, "young", records=(b"a",)), now=150, status="completed")
    for run_id in ("failed", "young", None):
        store.grants.add(Grant(tool="pay", server_identity=None, definition_digest="d", run_id=run_id), now=100)
    assert store.prune(before=150, now=1000) == len(FINISHED)
    assert sorted(names(store.runs())) == ["paused", "young"]
    assert sorted(str(grant.run_id) for grant in store.grants.valid(now=100).values()) == ["None", "young"]
    for status in FINISHED:
        with pytest.raises(StateError, match=r"^no run "):
            store.read(status)
    assert store.read("young") == [b"a"]
    begin(store, "failed")  # nothing of the old one is left, or its first record could not be written
    store.append(store.acquire("failed", owner="two", lease_s=10, now=200)[0], 0, [b"new"], now=201, lease_s=10)
    assert store.prune(before=150, now=1000) == 0


def test_pruning_leaves_what_somebody_drives(store: Store) -> None:
    begin(store, "driven", lease_s=1000)
    begin(store, "gone")
    assert store.prune(before=500, now=500, statuses=["running", "paused"]) == 1
    assert names(store.runs()) == ["driven"]


def test_pruning_takes_more_than_fits_into_one_transaction(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    small = [f"run {number}" for number in range(7)]
    monkeypatch.setattr("bridge.store.store._PRUNED_AT_ONCE", 3)
    for name in small:
        store.release(begin(store, name, records=(b"a",)), now=101, status="completed")
    assert store.prune(before=200, now=200) == 7
    assert store.runs() == []


@pytest.mark.parametrize("text", HOSTILE)
def test_any_text_is_only_text(store: Store, text: str) -> None:
    begin(store, "other", records=(b"other",))
    lease = begin(store, text, owner=text, audience=text, engine_digest=text, program=text)
    lease = store.append(lease, 0, [b"a"], now=101, lease_s=10)
    row = store.row(text)
    assert (row.id, row.lease_owner, row.audience, row.engine_digest, row.program_start) == (text,) * 5
    store.release(lease, now=102, status="paused", claim_digest=text, outcome=text)
    assert (store.row(text).claim_digest, store.row(text).outcome) == (text, text)
    assert store.acquire(text, owner=text, lease_s=10, now=103, claim_digest=text)[1] == [b"a"]
    assert store.read("other") == [b"other"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "must be a text that is not empty, not ''"),
        ("a\0b", "holds NUL or half of a surrogate pair, which cannot be stored: a\\u{0}b"),
        ("a\ud800b", "holds NUL or half of a surrogate pair, which cannot be stored: a\\u{d800}b"),
        ("x" * 201, f"has 201 characters, at most 200 are kept: {'x' * 200}..."),
        (7, "must be a text that is not empty, not 7"),
    ],
)
def test_an_id_that_cannot_be_kept_is_refused_everywhere(store: Store, text: Any, said: str) -> None:
    for use in (
        lambda: begin(store, text),
        lambda: store.read(text),
        lambda: store.row(text),
        lambda: store.acquire(text, owner="two", lease_s=10, now=100),
    ):
        with pytest.raises(StateError) as refused:
            use()
        assert str(refused.value) == f"the run's id {said}"
    with pytest.raises(StateError) as refused:
        begin(store, "run", owner=text)
    assert str(refused.value) == f"the owner {said}"
    assert store.runs() == []


def test_nul_is_refused_where_it_would_matter_and_shown_where_it_would_not(store: Store) -> None:
    with pytest.raises(StateError, match=r"^the audience holds NUL "):
        begin(store, audience="a\0")
    with pytest.raises(StateError, match=r"^the engine's digest holds NUL "):
        begin(store, engine_digest="a\0")
    lease = begin(store, program="a\0b\udc00🙂")
    assert store.row("run").program_start == "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}🙂"
    with pytest.raises(StateError, match=r"^the claim's digest holds NUL "):
        store.release(lease, now=101, status="paused", claim_digest="\0")
    store.release(lease, now=101, status="completed", outcome="said \0")
    assert store.row("run").outcome == "said \N{REPLACEMENT CHARACTER}"
