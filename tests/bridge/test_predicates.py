"""Wildcards, and conditions on arguments that a configuration file can hold."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.errors import ConfigurationError
from bridge.predicates import OPS, Comparison, Undecidable, predicate_from_data, wildcard


def test_everything_but_star_and_question_mark_stands_for_itself() -> None:
    assert wildcard("a.b+c$(d)^", "a.b+c$(d)^")
    assert not wildcard("a.b", "aXb")
    assert wildcard("a*b?", "a/.\nbX")
    assert not wildcard("a*b?", "ab")


@given(pattern=st.text("ab*?", max_size=8), text=st.text("ab", max_size=10))
def test_wildcards_agree_with_their_plain_definition(pattern: str, text: str) -> None:
    def plain(p: str, t: str) -> bool:
        if not p:
            return not t
        if p[0] == "*":
            return plain(p[1:], t) or (bool(t) and plain(p, t[1:]))
        return bool(t) and p[0] in ("?", t[0]) and plain(p[1:], t[1:])

    assert wildcard(pattern, text) is plain(pattern, text)


def test_a_hostile_name_cannot_make_matching_slow() -> None:
    assert not wildcard("*a" * 30 + "*b", "a" * 20_000)


ARGUMENTS = {
    "amount": 150,
    "to": "ada@example.com",
    "tags": ["a", 1, True],
    "deep": {"x/y": [{"z~": None}]},
    "ok": True,
}


@pytest.mark.parametrize(
    ("path", "op", "value", "holds"),
    [
        ("/amount", "==", 150.0, True),
        ("/amount", "==", "150", False),
        ("/amount", "!=", 150, False),
        ("/amount", "<", 151, True),
        ("/amount", "<=", 149, False),
        ("/amount", ">", 100, True),
        ("/amount", ">=", 150, True),
        ("/to", ">", "a", True),
        ("/to", "in", ["ada@example.com", "x"], True),
        ("/to", "not in", ["x"], True),
        ("/to", "contains", "@example", True),
        ("/to", "starts_with", "ada", True),
        ("/to", "ends_with", ".org", False),
        ("/to", "matches", "*@example.???", True),
        ("/to", "matches", "ada", False),
        ("/tags", "contains", 1, True),
        ("/tags/2", "==", 1, False),
        ("/ok", "==", True, True),
        ("/ok", "in", [1], False),
        ("/deep/x~1y/0/z~0", "==", None, True),
        ("/deep", "==", {"x/y": [{"z~": None}]}, True),
        ("/deep", "==", {"x/y": []}, False),
        ("/nothing", "exists", True, False),
        ("/nothing", "exists", False, True),
        ("/tags/3", "exists", True, False),
        ("/tags/-", "exists", True, False),
        ("/amount/x", "exists", True, False),
        ("", "==", 1, False),
    ],
)
def test_a_comparison_as_data(path: str, op: str, value: Any, holds: bool) -> None:
    assert predicate_from_data({"path": path, "op": op, "value": value})(ARGUMENTS) is holds


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ({"path": "/nothing", "op": "!=", "value": 1}, "there is nothing at '/nothing'"),
        ({"path": "/to", "op": ">", "value": 1}, "what is at '/to' cannot be ordered against 1"),
        ({"path": "/ok", "op": "<", "value": 1}, "what is at '/ok' cannot be ordered against 1"),
        ({"path": "/amount", "op": "matches", "value": "1*"}, "what is at '/amount' is no text"),
        ({"path": "/amount", "op": "contains", "value": 1}, "what is at '/amount' is neither text nor a list"),
        ({"path": "/to", "op": "contains", "value": 1}, "what is at '/to' is text, which contains text only"),
    ],
)
def test_a_comparison_that_the_arguments_do_not_answer_is_undecidable(data: dict[str, Any], text: str) -> None:
    with pytest.raises(Undecidable) as caught:
        predicate_from_data(data)(ARGUMENTS)
    assert str(caught.value) == text


YES = {"path": "/amount", "op": "==", "value": 150}
NO = {"path": "/amount", "op": "==", "value": 0}
DOUBT = {"path": "/nothing", "op": "==", "value": 0}


@pytest.mark.parametrize(
    ("data", "holds"),
    [
        ([YES, YES], True),
        ([YES, NO], False),
        ([DOUBT, NO], False),
        ({"any": [DOUBT, YES]}, True),
        ({"any": [NO, NO]}, False),
        ({"all": [YES, {"any": [NO, YES]}]}, True),
        ([YES, DOUBT], None),
        ({"any": [NO, DOUBT]}, None),
    ],
)
def test_conditions_combine_and_doubt_stays_unless_another_settles_it(data: Any, holds: bool | None) -> None:
    condition = predicate_from_data(data)
    if holds is None:
        with pytest.raises(Undecidable):
            condition(ARGUMENTS)
    else:
        assert condition(ARGUMENTS) is holds


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("x", "rules[2].when: a condition is a table or a list of tables, not 'x'"),
        ([], "rules[2].when: 'all' stands alone and holds a list of one condition or more"),
        ({"any": [{}], "op": "=="}, "rules[2].when: 'any' stands alone and holds a list of one condition or more"),
        (
            {"path": "/a", "op": "==", "valeu": 1},
            "rules[2].when: unknown key 'valeu'; a condition has path, op and value",
        ),
        (
            {"path": "a", "op": "==", "value": 1},
            "rules[2].when: path must be a JSON Pointer such as \"/amount\", not 'a'",
        ),
        (
            {"path": "/~2", "op": "==", "value": 1},
            "rules[2].when: path must be a JSON Pointer such as \"/amount\", not '/~2'",
        ),
        ({"path": "/a", "op": "=="}, "rules[2].when: value is missing"),
        ({"path": "/a", "op": "in", "value": 1}, "rules[2].when: value of 'in' must be a list, not 1"),
        ({"path": "/a", "op": ">", "value": True}, "rules[2].when: value of '>' must be a number or text, not True"),
        ({"path": "/a", "op": "matches", "value": 1}, "rules[2].when: value of 'matches' must be text, not 1"),
        ({"path": "/a", "op": "exists", "value": 1}, "rules[2].when: value of 'exists' must be true or false, not 1"),
        (
            [{"path": "/a", "op": "~", "value": 1}],
            f"rules[2].when.all[0]: unknown op '~'; there are {', '.join(OPS)}",
        ),
    ],
)
def test_a_condition_that_cannot_be_read_says_where_and_why(data: Any, text: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        predicate_from_data(data, where="rules[2].when")
    assert str(caught.value) == text


def test_exists_needs_no_value() -> None:
    assert predicate_from_data({"path": "/amount", "op": "exists"}) == Comparison("/amount", "exists", True)
