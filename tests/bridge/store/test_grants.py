"""Approvals that outlive their process."""

from __future__ import annotations

import math

import pytest

from bridge.approval import Grant
from bridge.errors import StateError
from bridge.store import Store


def grant(tool: str = "pay", identity: str | None = "id", definition: str = "d1", **other: object) -> Grant:
    settings = {"tool": tool, "server_identity": identity, "definition_digest": definition} | other
    return Grant(**settings)


@pytest.mark.parametrize(
    "given",
    [
        grant(),
        grant(until=1_764_493_999.123457),
        grant(identity=None, run_id="run", until=math.inf),
        grant("🙂 'tool'", run_id="run", call_id="c1", arguments_digest="abc", until=200.5),
    ],
)
def test_a_grant_comes_back_as_it_was(store: Store, given: Grant) -> None:
    grant_id = store.grants.add(given, now=100)
    assert store.grants.valid(now=100) == {grant_id: given}


def test_a_grant_without_end_never_ends(store: Store) -> None:
    store.grants.add(grant(), now=100)
    (kept,) = store.grants.valid(now=1e300).values()
    assert kept.until == math.inf


def test_grants_are_listed_in_the_order_in_which_they_were_given(store: Store) -> None:
    for now in (3, 1, 2):
        store.grants.add(grant(f"tool {now}"), now=now)
    assert [each.tool for each in store.grants.valid(now=3).values()] == ["tool 1", "tool 2", "tool 3"]
    assert [each.tool for each in store.grants.valid(now=3, tool="tool 2").values()] == ["tool 2"]


def test_a_grant_ends_at_its_time_and_is_dropped_when_the_next_is_added(store: Store) -> None:
    old = store.grants.add(grant(until=200), now=100)
    assert list(store.grants.valid(now=199)) == [old]
    assert store.grants.valid(now=200) == {}
    new = store.grants.add(grant(until=300), now=200)
    assert list(store.grants.valid(now=0)) == [new]


def test_a_grant_is_used_up_once(store: Store) -> None:
    used, other = store.grants.add(grant(), now=100), store.grants.add(grant(), now=101)
    assert [store.grants.spend(used), store.grants.spend(used)] == [True, False]
    assert list(store.grants.valid(now=100)) == [other]
    assert store.grants.spend("no such grant") is False


@pytest.mark.parametrize("identity", ["id", None])
def test_a_changed_definition_voids_what_was_granted_to_the_old_one_of_that_server(
    store: Store, identity: str | None
) -> None:
    void = [grant(identity=identity), grant(identity=identity, definition="d0", run_id="run")]
    stay = [grant(identity=identity, definition="d2"), grant(identity="another"), grant("other", identity=identity)]
    for each in void + stay:
        store.grants.add(each, now=100)
    assert store.grants.void(tool="pay", server_identity=identity, definition_digest="d2") == 2
    left = list(store.grants.valid(now=100).values())
    assert len(left) == len(stay)
    assert all(each in left for each in stay)
    assert store.grants.void(tool="pay", server_identity=identity, definition_digest="d2") == 0


def test_the_end_of_a_run_ends_what_was_granted_within_it(store: Store) -> None:
    for run_id in ("run", "run", "other", None):
        store.grants.add(grant(run_id=run_id), now=100)
    assert store.grants.forget("run") == 2
    assert sorted(str(each.run_id) for each in store.grants.valid(now=100).values()) == ["None", "other"]


@pytest.mark.parametrize("field", ["tool", "identity", "definition", "run_id", "call_id", "arguments_digest"])
def test_a_grant_with_text_that_cannot_be_kept_is_refused(store: Store, field: str) -> None:
    with pytest.raises(StateError, match=r" of the grant holds NUL or half of a surrogate pair, "):
        store.grants.add(grant(**{field: "a\0"}), now=100)
    assert store.grants.valid(now=0) == {}


def test_a_grant_until_no_time_is_refused(store: Store) -> None:
    with pytest.raises(StateError, match=r"^until of the grant must be a time or infinity, not nan$"):
        store.grants.add(grant(until=math.nan), now=100)
