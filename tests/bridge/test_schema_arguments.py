"""Argument lists as programs write them: which object each means, and what is read of text."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.errors import ToolError
from bridge.schema import Checked, Checker
from sandbox import Notice
from tests.bridge.schemas import EXPENSES, LIST_ORDERS, NUMBER, TEXT, TRUTH, WHOLE, closed, reason, refused
from tests.conftest import cases

# ---- argument lists ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("positional", [[], [None], [{}]])
def test_nothing_and_null_are_an_empty_object(positional: list[Any]) -> None:
    assert Checker(LIST_ORDERS, "f").arguments(positional) == Checked({})


def test_one_object_is_taken_as_it_is() -> None:
    given = {"status": "open"}
    checked = Checker(LIST_ORDERS, "f").arguments([given])
    assert checked.arguments is given
    assert checked.notices == ()


@pytest.mark.parametrize(
    ("schema", "positional", "read"),
    [
        (EXPENSES, ["u1", "Q3"], {"user_id": "u1", "quarter": "Q3"}),
        (closed("order_id", order_id=TEXT, verbose=TRUTH), ["A1"], {"order_id": "A1"}),
        (LIST_ORDERS, ["open"], {"status": "open"}),
        (closed("ids", ids={"type": "array"}), [[1, 2]], {"ids": [1, 2]}),
        (closed("b", a=WHOLE, b=TEXT), ["x"], {"b": "x"}),  # by order it would be `a`, which is an integer
        (closed("b", a=TEXT, b=TEXT), ["x"], {"b": "x"}),  # by order `b` would be missing
        (closed("a", "b", a=TEXT, b=WHOLE), ["x", "5"], {"a": "x", "b": 5}),
        (closed("o", "n", o={"type": "object"}, n=WHOLE), [{"k": 1}, 2], {"o": {"k": 1}, "n": 2}),
        (closed("a", a=TEXT, b=TEXT, c=TEXT), ["x", None, "z"], {"a": "x", "c": "z"}),
        ({"allOf": [closed("a", a=TEXT)]}, ["x"], {"a": "x"}),
        ({"$ref": "#/$defs/x", "$defs": {"x": closed("a", a=TEXT)}}, ["x"], {"a": "x"}),
    ],
)
def test_positional_arguments_are_read_by_the_schemas_order(schema: Any, positional: list[Any], read: Any) -> None:
    checked = Checker(schema, "f").arguments(positional)
    assert checked.arguments == read
    assert checked.notices[0].code == "positional_arguments"


def test_the_notice_shows_how_the_call_is_written() -> None:
    assert Checker(EXPENSES, "get_expenses").arguments(["u1", "Q3"]).notices == (
        Notice(
            "positional_arguments",
            "get_expenses takes one object: get_expenses({ user_id: string; quarter: string }). "
            'These arguments were read as "user_id", "quarter", in this order.',
        ),
    )


AS_STATUS = 'These arguments were read as "status", in this order.'
NOTHING = "null, undefined and functions tell it nothing, and no callback is called."


@pytest.mark.parametrize(
    ("schema", "positional", "read", "said"),
    [
        (LIST_ORDERS, [{}, None], {}, f"f takes one object: {{}}. The last argument was left out: {NOTHING}"),
        (LIST_ORDERS, [None, None], {}, f"f takes one object: {{}}. The last argument was left out: {NOTHING}"),
        (LIST_ORDERS, [{}, None, None], {}, f"f takes one object: {{}}. The last 2 arguments were left out: {NOTHING}"),
        ({}, [5, None], 5, f"f takes one argument: {{}}. The last argument was left out: {NOTHING}"),
        (
            LIST_ORDERS,
            ["open", None],
            {"status": "open"},
            f"f takes one object: {{}}. {AS_STATUS} The last argument was left out: {NOTHING}",
        ),
    ],
)
def test_what_says_nothing_after_the_arguments_is_left_out_and_said(
    schema: Any, positional: list[Any], read: Any, said: str
) -> None:
    checker = Checker(schema, "f")
    notices = (Notice("positional_arguments", said.format(checker.signature)),)
    assert checker.arguments(positional) == Checked(read, notices)


def test_a_signature_of_any_length_leaves_room_for_what_was_left_out() -> None:
    schema = closed(**{f"property_number_{n}": TEXT for n in range(50)})
    ((notice,),) = [Checker(schema, "f").arguments([{}, None]).notices]
    assert len(notice.message) == 500
    assert notice.message.endswith(f"…. The last argument was left out: {NOTHING}")


@pytest.mark.parametrize(
    ("schema", "positional", "text"),
    [
        (EXPENSES, ["u1", "Q3", "x"], "takes one object, got 3 arguments"),
        (EXPENSES, [{"user_id": "u1", "quarter": "Q3"}, {"verbose": True}], "takes one object, got 2 arguments"),
        (EXPENSES, [{"user_id": "u1", "quarter": "Q3"}, 5], "takes one object, got 2 arguments"),
        (closed(), ["x"], 'takes one object, got "x"'),
        (closed(), [["x"]], "takes one object, got an array"),
        (EXPENSES, ["u1"], 'missing "quarter"'),
        (EXPENSES, ["u1", 3], "/quarter: expected string, got number 3"),
    ],
)
def test_arguments_that_have_no_one_reading_are_refused(schema: Any, positional: list[Any], text: str) -> None:
    assert reason(schema, *positional) == text


@pytest.mark.parametrize("schema", [{}, True, {"type": ["object", "string"]}, {"anyOf": [{"type": "object"}, TEXT]}])
def test_a_tool_whose_schema_is_not_an_objects_takes_its_argument_as_it_is(schema: Any) -> None:
    checker = Checker(schema, "echo")
    assert checker.arguments(["x"]) == Checked("x")
    assert checker.arguments([{"a": 1}]) == Checked({"a": 1})
    assert refused(schema, 1, 2, name="echo").message.startswith(
        "echo: takes one argument, got 2. Signature: echo(value: "
    )


def test_no_argument_is_null_for_a_tool_that_takes_anything() -> None:
    assert Checker({}, "echo").arguments([]) == Checked(None)
    assert reason(TEXT) == "expected string, got null"


@pytest.mark.parametrize(
    "schema", [{"properties": {"a": TEXT}}, {"required": ["a"]}, {"anyOf": [closed(a=TEXT), closed(b=TEXT)]}]
)
def test_a_schema_that_only_speaks_of_properties_is_an_objects(schema: Any) -> None:
    assert Checker(schema, "f")._takes_object


# ---- coercion ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        (WHOLE, "5", 5),
        (WHOLE, "-12", -12),
        (WHOLE, "0", 0),
        (WHOLE, "9007199254740993", 9007199254740993),
        (WHOLE, "1" + "0" * 40, 10**40),
        (NUMBER, "5", 5),
        (NUMBER, "0.5", 0.5),
        (NUMBER, "-2.50", -2.5),
        (NUMBER, "1e3", 1000.0),
        (TRUTH, "true", True),
        (TRUTH, "false", False),
        ({"type": ["integer", "null"]}, "5", 5),
        ({"anyOf": [WHOLE, {"type": "null"}]}, "5", 5),
        ({"oneOf": [TRUTH, WHOLE]}, "7", 7),
        ({"allOf": [WHOLE, {"minimum": 3}]}, "7", 7),
        ({"$ref": "#/$defs/n"}, "7", 7),
    ],
)
def test_a_string_that_is_the_values_exact_text_is_read(schema: Any, text: str, value: Any) -> None:
    checked = Checker({**closed(n=schema), "$defs": {"n": WHOLE}}, "f").arguments([{"n": text}])
    assert json.dumps(checked.arguments) == json.dumps({"n": value})
    assert checked.notices == ()


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        *(
            (WHOLE, text)
            for text in ("5.5", "5.0", "", " 5", "5 ", "+5", "05", "-0", "1e3", "0x5", "\u0665", "five", "1_000")
        ),
        *((NUMBER, text) for text in ("1e400", "0.1000000000000000000001", "NaN", "Infinity", ".5", "5.", "-0", "1,5")),
        *((TRUTH, value) for value in ("True", "yes", "1", 1, 0, "")),
        (TEXT, 5),
        (TEXT, True),
        (WHOLE, 5.5),
        (WHOLE, True),
        (WHOLE, ["5"]),
        ({"type": "array"}, "5"),
        ({**WHOLE, "maximum": 3}, "5"),
    ],
)
def test_what_would_lose_or_guess_is_not_read(schema: Any, value: Any) -> None:
    refused(closed(n=schema), {"n": value})


def test_a_string_stays_one_where_a_string_is_allowed() -> None:
    for schema in ({"type": ["string", "integer"]}, {"anyOf": [WHOLE, TEXT]}, {}):
        assert Checker(closed(n=schema), "f").arguments([{"n": "5"}]).arguments == {"n": "5"}


def test_a_string_stays_one_beside_a_value_that_is_read() -> None:
    schema = closed(a={"type": ["string", "integer"]}, b={"anyOf": [WHOLE, TEXT]}, c={}, n=WHOLE)
    checked = Checker(schema, "f").arguments([{"a": "5", "b": "5", "c": "5", "n": "5"}])
    assert checked.arguments == {"a": "5", "b": "5", "c": "5", "n": 5}


def test_a_null_dropped_on_a_way_that_led_nowhere_is_not_said() -> None:
    first = closed("k", a=TEXT, k=TEXT, n=WHOLE)
    second = closed(a={"type": "null"}, n=WHOLE)
    checked = Checker(closed(o={"anyOf": [first, second]}), "f").arguments([{"o": {"a": None, "n": "5"}}])
    assert checked == Checked({"o": {"a": None, "n": 5}})


def test_values_are_read_at_any_place() -> None:
    schema = closed(
        items={"type": "array", "items": closed(qty=WHOLE)},
        pair={"type": "array", "prefixItems": [TEXT, WHOLE]},
        rest={"type": "object", "additionalProperties": TRUTH},
    )
    given_ = {"items": [{"qty": "1"}, {"qty": 2}], "pair": ["1", "2"], "rest": {"a": "true"}}
    assert Checker(schema, "f").arguments([given_]).arguments == {
        "items": [{"qty": 1}, {"qty": 2}],
        "pair": ["1", 2],
        "rest": {"a": True},
    }


def test_a_member_of_a_union_is_read_as_the_first_that_then_fits() -> None:
    circle = closed("kind", "r", kind={"const": "circle"}, r=NUMBER)
    square = closed("kind", "side", kind={"const": "square"}, side=WHOLE)
    checked = Checker(closed(shape={"anyOf": [circle, square]}), "f").arguments(
        [{"shape": {"kind": "square", "side": "3"}}]
    )
    assert checked.arguments == {"shape": {"kind": "square", "side": 3}}


def test_null_for_an_optional_argument_that_may_not_be_null_is_left_out_and_said() -> None:
    schema = closed("q", q=TEXT, page=WHOLE, filter=closed(status=TEXT))
    checked = Checker(schema, "s.find").arguments([{"q": "x", "page": None, "filter": {"status": None}}])
    assert checked.arguments == {"q": "x", "filter": {}}
    assert checked.notices == (
        Notice(
            "null_argument",
            "s.find: left out /page, /filter/status: null is not allowed there; leave optional arguments out instead",
        ),
    )


def test_null_stays_where_it_is_allowed_and_is_refused_where_something_is_required() -> None:
    assert Checker(closed(a={"type": ["string", "null"]}), "f").arguments([{"a": None}]).arguments == {"a": None}
    assert reason(closed("a", a=TEXT), {"a": None}) == "/a: expected string, got null"
    assert reason({**closed(), "additionalProperties": TEXT}, {"a": None}) == "/a: expected string, got null"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abn"), inner, max_size=3),
    max_leaves=8,
)
schemas = st.recursive(
    st.sampled_from([TEXT, WHOLE, NUMBER, TRUTH, {"type": "null"}, {"const": 1}, {"enum": ["a", 2]}, {}, True, False]),
    lambda inner: st.one_of(
        st.builds(lambda a, b: closed("a", a=a, b=b), inner, inner),
        st.builds(lambda a: {"type": "object", "additionalProperties": a}, inner),
        st.builds(lambda a: {"type": "array", "items": a}, inner),
        st.builds(lambda w, a, b: {w: [a, b]}, st.sampled_from(["anyOf", "oneOf", "allOf"]), inner, inner),
        st.builds(lambda a: {"not": a}, inner),
        st.builds(lambda a, b: {"properties": {"n": a}, "dependentSchemas": {"a": b}}, inner, inner),
    ),
    max_leaves=8,
)


@given(schemas, st.lists(json_values, max_size=3))
def test_any_call_fits_or_is_refused_and_the_input_is_never_changed(schema: Any, positional: list[Any]) -> None:
    before = copy.deepcopy(positional)
    checker = Checker(schema, "f")
    refusal, checked = None, Checked(None)
    try:
        checked = checker.arguments(positional)
    except ToolError as error:
        refusal = error
    if refusal is not None:
        assert refusal.code == "invalid_arguments"
        assert len(refusal.message) <= 500
    else:
        # What was read once is read the same again: an approver's edit of nothing changes nothing.
        if checker._takes_object or len(positional) <= 1:
            assert checker.arguments([checked.arguments]).arguments == checked.arguments
        assert checker.result(checked.arguments) is None
    assert repr(positional) == repr(before)


# ---- the public cases -------------------------------------------------------------------------------------------

SHOP: dict[str, Any] = {
    "P099": EXPENSES,
    "P100": closed("order_id", order_id=TEXT),
    "P103": closed(status=TEXT, page=WHOLE, endless=TRUTH),
    "P104": closed("ms", ms=NUMBER),
    "P105": closed("order_id", order_id=TEXT),
}
LISTS: dict[str, list[Any]] = {
    "P099": ["u1", "Q3"],
    "P100": ["A1"],
    "P103": [None],
    "P104": [{"ms": "5"}],
    "P105": [{"order_id": "A1", "verbose": True}],
}


@pytest.mark.parametrize(
    "case", [case for case in cases("programs") if case["id"] in SHOP], ids=lambda case: case["form"]
)
def test_forms_of_arguments_that_models_write_do_as_the_case_says(case: dict[str, Any]) -> None:
    checker, expected = Checker(SHOP[case["id"]], "f"), case["expect"]
    if expected["status"] == "ok":
        codes = [notice.code for notice in checker.arguments(LISTS[case["id"]]).notices]
        assert codes == ([expected["warn"]] if "warn" in expected else [])
    else:
        error = refused(SHOP[case["id"]], *LISTS[case["id"]])
        assert error.code == expected["code"]
        assert expected["contains"] in error.message
