"""Structural cuts: what is left is JSON, fits, and says what is gone."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge import cut as module
from bridge.cut import FLOOR, cut, cut_text, encode, measure, share

scalars = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
texts = st.text(max_size=300) | st.sampled_from(["x" * 5000, "ü€😀" * 500, "\x00\n" * 400, "... 5 more items", "...."])
values = st.recursive(
    scalars | texts,
    lambda inner: st.lists(inner, max_size=30) | st.dictionaries(st.text(max_size=20) | texts, inner, max_size=12),
    max_leaves=80,
)
budgets = st.integers(FLOOR, 3000)


@given(value=values, budget=budgets)
def test_a_cut_value_is_json_within_its_budget(value: Any, budget: int) -> None:
    shown, was_cut = cut(value, budget)
    text = encode(shown)
    assert len(text) <= budget
    assert msgspec.json.decode(text) == json.loads(text) == shown
    assert was_cut is (len(encode(value)) > budget)


@given(value=values, budget=budgets)
def test_what_fits_comes_back_as_it_is(value: Any, budget: int) -> None:
    shown, was_cut = cut(value, max(budget, len(encode(value))))
    assert shown is value
    assert was_cut is False


@given(value=values, budget=budgets)
def test_cutting_is_deterministic_and_changes_nothing(value: Any, budget: int) -> None:
    before = encode(value)
    assert cut(value, budget) == cut(value, budget)
    assert encode(value) == before


@given(value=values, limit=st.integers(0, 3000))
def test_a_measured_size_is_the_size_of_the_text(value: Any, limit: int) -> None:
    size = len(encode(value))
    assert measure(value, limit) == (size if size <= limit else None)


@given(text=st.text() | texts, budget=budgets)
def test_a_cut_text_is_within_its_budget_and_breaks_no_character(text: str, budget: int) -> None:
    shown, was_cut = cut_text(text, budget)
    assert len(shown.encode()) <= budget
    assert was_cut is (len(text.encode()) > budget)
    head = shown[: shown.rindex("...")].rstrip(".") if was_cut else shown
    assert text.startswith(head)


@given(sizes=st.lists(st.integers(0, 1000), max_size=20), room=st.integers(0, 5000))
def test_shares_never_exceed_the_room_and_small_parts_get_all_they_need(sizes: list[int], room: int) -> None:
    given = share(sizes, room)
    assert sum(given) <= room
    assert all(part <= size for part, size in zip(given, sizes, strict=True))
    cut_short = [part for part, size in zip(given, sizes, strict=True) if part < size]
    assert all(size <= max(cut_short, default=1000) or part < size for part, size in zip(given, sizes, strict=True))
    if not cut_short:
        assert given == sizes


def test_a_long_list_keeps_its_first_items_and_counts_the_rest() -> None:
    rows = [{"i": i, "s": f"row {i}"} for i in range(50_000)]
    shown, was_cut = cut(rows, 1024)
    assert was_cut is True
    assert shown[:-1] == rows[: len(shown) - 1]
    assert shown[-1] == f"... {50_000 - len(shown) + 1:,} more items"
    assert len(shown) > 35


def test_a_long_text_keeps_its_beginning_and_counts_the_rest() -> None:
    assert cut("x" * 2_000_000, 100) == ("x" * (100 - 2 - 29) + "... 1,999,931 more characters", True)


def test_a_large_member_does_not_push_out_the_small_ones() -> None:
    value = {"rows": ["x" * 50] * 1000, "total": 1000, "note": "all of them", "next": None}
    shown, _ = cut(value, 600)
    assert {key: shown[key] for key in ("total", "note", "next")} == {
        "total": 1000,
        "note": "all of them",
        "next": None,
    }
    assert shown["rows"][0] == "x" * 50
    assert shown["rows"][-1] == "... 991 more items"


def test_two_large_members_share_the_room() -> None:
    shown, _ = cut({"a": "x" * 5000, "b": "y" * 5000}, 1000)
    assert shown["a"].startswith("x" * 400)
    assert shown["b"].startswith("y" * 400)


def test_an_object_with_too_many_keys_counts_the_rest_under_a_key_of_its_own() -> None:
    value = {f"key{i}": i for i in range(5000)}
    shown, _ = cut(value, 256)
    assert shown["..."] == f"... {5000 - len(shown) + 1:,} more keys"
    assert list(shown)[:3] == ["key0", "key1", "key2"]


def test_marks_are_not_mistaken_for_data_that_looks_like_one() -> None:
    shown, _ = cut(["... 7 more items", *range(5000)], 256)
    assert shown[0] == "... 7 more items"
    assert shown[-1].startswith(".... ")


def test_a_key_that_looks_like_the_mark_keeps_its_value() -> None:
    shown, _ = cut({"...": 1} | {f"key{i}": i for i in range(5000)}, 256)
    assert shown["..."] == 1
    assert shown["...."].endswith(" more keys")


def test_an_object_that_uses_up_every_mark_is_counted_as_a_whole() -> None:
    value = {"." * n: n for n in range(3, 300)}
    assert cut(value, 256) == ("... 297 more keys", True)


def test_a_value_nested_deeper_than_the_encoder_can_go_is_cut() -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    for room in (65_536, 1 << 20):
        shown, was_cut = cut(deep, room)
        assert was_cut is True
        assert encode(shown) == b"[" * 32 + b'"... 1 more items"' + b"]" * 32


def test_a_large_value_costs_a_bounded_number_of_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    chain: Any = [0] * 2_000_000
    for _ in range(100):
        chain = {"next": chain, "id": 1}
    encoded = 0

    def counted(value: Any) -> bytes:
        nonlocal encoded
        text = msgspec.json.encode(value)
        encoded += len(text)
        return text

    monkeypatch.setattr(module, "encode", counted)
    shown, was_cut = cut(chain, 65_536)
    assert was_cut is True
    assert len(msgspec.json.encode(shown)) <= 65_536
    assert encoded < 2 * 4_001_500


def test_a_number_that_is_too_long_says_how_long() -> None:
    assert cut(10**200, 100) == ("... 201 more digits", True)
