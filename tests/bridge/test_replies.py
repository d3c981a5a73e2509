"""JSON text of replies: no digit of an integer is lost on the way to JavaScript."""

from __future__ import annotations

import json

import pytest

from bridge.replies import SAFE_INTEGER, digits_kept


@pytest.mark.parametrize("before", range(20))
@pytest.mark.parametrize("number", [SAFE_INTEGER + 1, -SAFE_INTEGER - 1, 10**40])
def test_an_integer_that_javascript_cannot_hold_becomes_a_string_wherever_in_the_text_it_stands(
    before: int, number: int
) -> None:
    text = json.dumps(["x" * before, number, 1.5]).encode()
    kept, changed = digits_kept(text)
    assert (json.loads(kept), changed) == (["x" * before, str(number), 1.5], 1)


@pytest.mark.parametrize(
    "value", [SAFE_INTEGER, "1234567890123456789012", "2026-03-01T10:00:00.000000Z", 0.1234567890123456789]
)
def test_any_other_text_is_left_as_it_is(value: object) -> None:
    text = json.dumps({"a": value}).encode()
    assert digits_kept(text) == (text, 0)
