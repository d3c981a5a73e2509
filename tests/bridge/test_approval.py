"""Requests, verdicts and grants: what a yes covers, and what it does not."""

from __future__ import annotations

import dataclasses
import json
import math
import sys
import unicodedata
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.approval import (
    Answer,
    ApprovalRequest,
    Approve,
    Defer,
    Deny,
    Edit,
    Grants,
    canonical,
    digest,
    escape,
    validate,
)
from bridge.definitions import IDENTITY, UNKNOWN
from bridge.errors import StateError
from bridge.tools import Annotations, Tool

NOW = 1_000_000.0
ARGUMENTS = {"to": "ada", "amount": 1}
WAYS = "Approve(), Deny(reason), Edit(arguments), Answer(value) or Defer()"


def request(call_id: str = "r.1", **changes: Any) -> ApprovalRequest:
    arguments = changes.pop("arguments", ARGUMENTS)
    made = ApprovalRequest(
        call_id=call_id,
        run_id="r",
        tool="mail/send",
        title="Send a mail",
        description="",
        server="mail",
        arguments=arguments,
        arguments_digest=digest(arguments),
        program='await tools.mail.send({to: "ada", amount: 1})',
        line=1,
        reason='rule ask "mail.*"',
        definition_digest="d1",
        server_identity="s1",
        before=(),
        expires_at=NOW + 60,
        annotations=Annotations(),
    )
    return dataclasses.replace(made, **changes)


def covers(grants: Grants, **changes: Any) -> bool:
    asked: dict[str, Any] = {
        "tool": "mail/send",
        "server_identity": "s1",
        "definition_digest": "d1",
        "arguments_digest": digest(ARGUMENTS),
        "run_id": "r",
        "call_id": "r.1",
        "now": NOW,
    }
    return grants.covers(**(asked | changes))


# ---- digests

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


@given(value=json_values)
def test_a_digest_depends_on_nothing_but_the_value(value: Any) -> None:
    def reordered(part: Any) -> Any:
        if isinstance(part, dict):
            return {key: reordered(part[key]) for key in reversed(part)}
        return [reordered(each) for each in part] if isinstance(part, list) else part

    assert digest(value) == digest(reordered(value)) == digest(json.loads(json.dumps(value)))


@given(one=json_values, other=json_values)
def test_two_values_share_a_digest_only_if_they_are_the_same_json(one: Any, other: Any) -> None:
    same = json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
    assert (digest(one) == digest(other)) is same


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": 1}, {"a": 1.0}),
        ({"a": 1}, {"a": "1"}),
        ({"a": 1}, {"a": True}),
        ({"a": ""}, {}),
        ({"a": None}, {}),
        ({"a": "x" * 599 + "y"}, {"a": "x" * 599 + "z"}),
        ({"a": list(range(32))}, {"a": list(range(33))}),
        ({"a": "b"}, {"a": "b\x00"}),
        ({"a": "\u00e9"}, {"a": "e\u0301"}),
        ({"a": 9007199254740993}, {"a": 9007199254740992}),
        ({"a": [1, 2]}, {"a": [2, 1]}),
        ({"a": "\ud83d"}, {"a": "\\ud83d"}),
    ],
)
def test_arguments_that_differ_at_all_have_different_digests(one: Any, other: Any) -> None:
    assert digest(one) != digest(other)


@pytest.mark.parametrize("value", [math.nan, math.inf, {1, 2}, b"x", [object()]])
def test_what_is_no_json_has_no_digest(value: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        digest(value)


def test_a_value_nested_deeper_than_the_stack_has_the_digest_of_its_canonical_text() -> None:
    deep: Any = {"z": [], "b": {}, "a": [1, 2.5, None, True, "\ud83d", 10**30]}
    inner = canonical(deep)
    depth = sys.getrecursionlimit() * 3
    for _ in range(depth):
        deep = {"x": [deep, 1], "é": "y"}
    assert canonical(deep) == '{"x":[' * depth + inner + ',1],"\\u00e9":"y"}' * depth


def test_a_circle_has_no_digest() -> None:
    circle: list[Any] = []
    circle.append(circle)
    with pytest.raises(ValueError, match="Circular reference detected"):
        digest(circle)


# ---- verdicts


def test_every_request_gets_a_verdict_and_what_is_left_out_is_deferred() -> None:
    requests = [request("r.1"), request("r.2"), request("r.3")]
    verdicts = validate({"r.3": Deny("no"), "r.1": Approve()}, requests)
    assert list(verdicts.items()) == [("r.1", Approve()), ("r.2", Defer()), ("r.3", Deny("no"))]


@pytest.mark.parametrize(
    ("verdicts", "text"),
    [
        (
            {"r.9": Approve()},
            "no call 'r.9' waits for a verdict; those that do: r.1, r.2",
        ),
        (
            {"r.1": True},
            f"the verdict on call r.1 must be {WAYS}, not a bool",
        ),
        (
            {"r.2": Approve},
            f"the verdict on call r.2 must be {WAYS}, not the class Approve",
        ),
        (
            [Approve()],
            f"verdicts are a mapping from call id to {WAYS}, not list",
        ),
        (
            {"r.1": Edit({"a": math.nan})},
            "what Edit holds for call r.1 is no JSON: Out of range float values are not JSON compliant",
        ),
        (
            {"r.1": Answer({1})},
            "what Answer holds for call r.1 is no JSON: Object of type set is not JSON serializable",
        ),
    ],
    ids=["unknown", "bool", "class", "list", "nan", "set"],
)
def test_a_verdict_that_fits_nothing_is_refused_by_name(verdicts: Any, text: str) -> None:
    with pytest.raises(StateError) as caught:
        validate(verdicts, [request("r.1"), request("r.2")])
    assert str(caught.value) in (text, f"{text}: nan")  # newer interpreters name the float


def test_a_verdict_where_nothing_waits_is_refused() -> None:
    with pytest.raises(StateError) as caught:
        validate({"r.1": Approve()}, [])
    assert str(caught.value) == "no call 'r.1' waits for a verdict; those that do: none"


def test_an_approval_of_an_impossible_scope_or_time_cannot_be_made() -> None:
    with pytest.raises(ValueError, match=r"^Approve\.scope must be call, run or tool, not 'all'$"):
        Approve("all")
    with pytest.raises(ValueError, match=r"^Approve\.until must be a time in seconds since 1970, not inf$"):
        Approve("tool", until=math.inf)


def test_a_request_has_the_id_that_a_verdict_is_given_for() -> None:
    assert request("r.7").id == "r.7"


# ---- grants


def test_nothing_is_covered_without_a_grant() -> None:
    assert not covers(Grants())


@pytest.mark.parametrize("verdict", [Deny(), Answer(1), Defer()])
def test_only_an_approval_grants_anything(verdict: Any) -> None:
    grants = Grants()
    assert grants.add(verdict, request(), now=NOW) is None
    assert not covers(grants)


OTHERS = {
    "tool": "mail/delete",
    "server_identity": "s2",
    "definition_digest": "d2",
    "arguments_digest": digest({"to": "bob", "amount": 1}),
    "run_id": "q",
    "call_id": "r.2",
}


@pytest.mark.parametrize(
    ("scope", "bound"),
    [
        ("call", {"tool", "server_identity", "definition_digest", "arguments_digest", "run_id", "call_id"}),
        ("run", {"tool", "server_identity", "definition_digest", "run_id"}),
        ("tool", {"tool", "server_identity", "definition_digest"}),
    ],
)
@pytest.mark.parametrize("field", list(OTHERS))
def test_a_grant_is_bound_to_what_its_scope_says(scope: Any, bound: set[str], field: str) -> None:
    grants = Grants()
    grants.add(Approve(scope), request(), now=NOW)
    assert covers(grants, **{field: OTHERS[field]}) is (field not in bound)


def test_a_grant_for_a_call_is_used_once() -> None:
    grants = Grants()
    grants.add(Approve(), request(), now=NOW)
    assert [covers(grants), covers(grants)] == [True, False]


@pytest.mark.parametrize("scope", ["run", "tool"])
def test_a_wider_grant_is_used_again_and_again(scope: Any) -> None:
    grants = Grants()
    grants.add(Approve(scope), request(), now=NOW)
    assert [covers(grants), covers(grants)] == [True, True]


def test_a_grant_for_a_tool_ends_by_itself() -> None:
    grants = Grants(expires_s=100)
    grants.add(Approve("tool"), request(), now=NOW)
    assert covers(grants, now=NOW + 99)
    assert not covers(grants, now=NOW + 100)


def test_a_verdict_may_say_until_when_its_grant_holds() -> None:
    grants = Grants()
    grants.add(Approve("run", until=NOW + 10), request(), now=NOW)
    assert covers(grants, now=NOW + 9)
    assert not covers(grants, now=NOW + 10)


def test_an_edit_grants_its_own_arguments_and_not_those_asked_about() -> None:
    edited = {"to": "ada", "amount": 2}
    grants = Grants()
    grants.add(Edit(edited), request(), now=NOW)
    assert not covers(grants)
    assert covers(grants, arguments_digest=digest(edited))


def test_a_grant_can_be_for_the_arguments_as_executed() -> None:
    grants = Grants()
    grants.add(Edit({"amount": "2"}), request(), now=NOW, arguments_digest=digest({"amount": 2}))
    assert not covers(grants, arguments_digest=digest({"amount": "2"}))
    assert covers(grants, arguments_digest=digest({"amount": 2}))


def test_a_changed_definition_voids_a_grant_for_good() -> None:
    grants = Grants()
    grants.add(Approve("tool"), request(), now=NOW)
    assert not covers(grants, definition_digest="d2")
    assert not covers(grants, definition_digest="d1")


def test_another_identity_of_a_server_leaves_a_grant_alone() -> None:
    grants = Grants()
    grants.add(Approve("tool"), request(), now=NOW)
    assert not covers(grants, server_identity="s2")
    assert covers(grants)


def test_a_change_since_an_approval_is_known_until_it_is_approved_too() -> None:
    grants = Grants()

    def tool(description: str, identity: str = "s1", name: str = "send") -> Tool:
        return Tool(name=name, server="mail", server_identity=identity, description=description)

    first, second = tool("Sends."), tool("Sends, and copies the boss.")
    assert grants.differences(second) == ()
    grants.seen.add(first)
    grants.add(Approve(), request(definition_digest=first.digest), now=NOW)
    assert grants.differences(first) == ()
    assert grants.differences(second) == ("description:", "  - Sends.", "  + Sends, and copies the boss.")
    assert grants.differences(tool("Sends.", "s2")) == (IDENTITY,)
    assert grants.differences(tool("Reads.", name="read")) == ()
    grants.add(Approve(), request(definition_digest=second.digest), now=NOW)
    assert grants.differences(second) == ()
    assert grants.differences(first) == (UNKNOWN,)  # nobody was asked about the second one here


def test_grants_of_a_run_are_forgotten_with_it() -> None:
    grants = Grants()
    grants.add(Approve("run"), request(), now=NOW)
    grants.add(Approve(), request(), now=NOW)
    grants.add(Approve("tool"), request(tool="mail/read"), now=NOW)
    grants.forget("r")
    assert not covers(grants)
    assert covers(grants, tool="mail/read", run_id="q")


# ---- what a person is shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain é ü 日本 😀", "plain é ü 日本 😀"),
        ("a\x1b[31mred", "a\\u{1b}[31mred"),
        ("a\nb\r\tc\x00\x7f\x9b", "a\\nb\\r\\tc\\u{0}\\u{7f}\\u{9b}"),
        ("\u202egnp.exe\u2066", "\\u{202e}gnp.exe\\u{2066}"),
        ("a\u200bb\ufeffc\u00add", "a\\u{200b}b\\u{feff}c\\u{ad}d"),
        ("\u2028\u2029\u00a0", "\\u{2028}\\u{2029}\\u{a0}"),
        ("tag\U000e0041", "tag\\u{e0041}"),
        ("half \ud83d", "half \\u{d83d}"),
        ("\u3164\u115f\ufe0f\U000e0101\u2800", "\\u{3164}\\u{115f}\\u{fe0f}\\u{e0101}\\u{2800}"),
    ],
)
def test_what_acts_unseen_is_made_visible(text: str, shown: str) -> None:
    assert escape(text) == shown


@given(text=st.text(st.characters(), max_size=50))
def test_an_escaped_text_is_one_printable_line(text: str) -> None:
    shown = escape(text)
    assert not any(unicodedata.category(character) in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp") for character in shown)
    assert escape(shown) == shown
    assert len(shown.splitlines()) <= 1


def test_a_request_is_plain_data() -> None:
    assert msgspec.json.decode(msgspec.json.encode(request()))["arguments"] == ARGUMENTS
