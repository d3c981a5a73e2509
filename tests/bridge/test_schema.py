"""Argument lists, the one check, and what the model reads when it fails."""

from __future__ import annotations

import copy
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.errors import CatalogError, ToolError
from bridge.schema import Checked, Checker
from bridge.tools import Catalog, Tool
from sandbox import Notice
from tests.conftest import cases


def closed(*required: str, **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


TEXT, WHOLE, NUMBER, TRUTH = ({"type": kind} for kind in ("string", "integer", "number", "boolean"))
EXPENSES = closed("user_id", "quarter", user_id=TEXT, quarter=TEXT)
LIST_ORDERS = closed(status={"enum": ["open", "late"]}, page=WHOLE)


def refused(schema: Any, *positional: Any, name: str = "f") -> ToolError:
    with pytest.raises(ToolError) as caught:
        Checker(schema, name).arguments(list(positional))
    assert caught.value.code == "invalid_arguments"
    assert len(caught.value.message) <= 500
    return caught.value


def reason(schema: Any, *positional: Any) -> str:
    """The text without the tool's name and its signature."""
    return refused(schema, *positional).message.removeprefix("f: ").partition(". Signature: ")[0]


def broken(schema: Any) -> str:
    with pytest.raises(CatalogError) as caught:
        Checker(schema, "f")
    return str(caught.value)


# ---- compiling --------------------------------------------------------------------------------------------------


def test_an_entrys_schemas_are_both_compiled_and_the_text_names_the_tool() -> None:
    (entry,) = Catalog([Tool(name="get", server="s", output_schema={"type": "strng"})]).entries
    with pytest.raises(CatalogError) as caught:
        Checker(entry)
    assert str(caught.value).startswith("tool 's/get': output schema cannot be used: \"strng\" is not valid")


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"pattern": "("}, 'tool \'f\': schema cannot be used: "(" is not a "regex"'),
        ({"$ref": "#/$defs/x"}, "tool 'f': schema cannot be used: Pointer '/$defs/x' does not exist"),
        (
            {"$ref": "file:///etc/hosts"},
            "tool 'f': schema refers to 'file:///etc/hosts', outside of it, and nothing is fetched: put it under $defs",
        ),
        (
            {"$schema": "http://example.com/x"},
            "tool 'f': schema has $schema 'http://example.com/x': known are drafts 4, 6, 7, 2019-09 and 2020-12",
        ),
        ({"$schema": 7}, "tool 'f': schema has $schema 7: known are drafts 4, 6, 7, 2019-09 and 2020-12"),
        ([], "tool 'f': schema must be a JSON Schema (an object, true or false), not list"),
    ],
)
def test_a_schema_that_cannot_be_used_is_refused_with_its_reason(schema: Any, text: str) -> None:
    assert broken(schema) == text


@pytest.fixture
def asked() -> Iterator[tuple[str, list[str]]]:
    """A web server, and the paths that it was asked for."""
    paths: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            paths.append(self.path)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"{}")

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", paths
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("word", ["$ref", "$dynamicRef"])
def test_a_remote_reference_is_refused_and_nothing_is_fetched(asked: tuple[str, list[str]], word: str) -> None:
    url, paths = asked
    text = broken({"type": "object", "properties": {"a": {word: f"{url}/x.json"}}})
    assert text == (
        f"tool 'f': schema refers to '{url}/x.json', outside of it, and nothing is fetched: put it under $defs"
    )
    assert paths == []


def test_a_schema_nested_2000_deep_is_refused() -> None:
    schema: Any = {"type": "string"}
    for _ in range(2000):
        schema = {"type": "object", "properties": {"a": schema}}
    assert broken(schema) == "tool 'f': schema is nested more than 100 levels deep"


def test_references_that_multiply_without_end_are_refused() -> None:
    laughs = {f"a{i}": {"allOf": [{"$ref": f"#/$defs/a{i + 1}"}] * 2} for i in range(60)}
    schema = {"$defs": {**laughs, "a60": {"type": "object"}}, "$ref": "#/$defs/a0"}
    assert broken(schema) == "tool 'f': schema stands for over 10^12 checks of one value, over 100,000: nest less"


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"allOf": [{"$ref": "#"}]},
        {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
    ],
)
def test_references_in_a_circle_end(schema: Any) -> None:
    assert Checker(schema, "f").arguments([1]) == Checked(1)


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"items": [TEXT]}, ["a"], [1]),  # a tuple before 2020-12, without $schema
        ({"$schema": "https://json-schema.org/draft-07/schema", "items": [TEXT]}, ["a"], [1]),
        ({"$schema": "http://json-schema.org/draft-07/schema#", "items": [TEXT]}, ["a"], [1]),
        ({"$schema": "https://json-schema.org/draft/2020-12/schema", "prefixItems": [TEXT]}, ["a"], [1]),
        ({"type": "number", "minimum": 0, "exclusiveMinimum": True}, 1, 0),  # draft 4, without $schema
        ({"type": "string", "nullable": True}, None, 1),  # OpenAPI
        ({"type": "string", "nullable": True, "enum": ["a"]}, None, "b"),
    ],
)
def test_older_dialects_mean_what_their_writers_meant(schema: Any, good: Any, bad: Any) -> None:
    assert Checker(schema, "f").arguments([good]) == Checked(good)
    refused(schema, bad)


def test_formats_are_not_asserted() -> None:
    schema = {"$schema": "http://json-schema.org/draft-07/schema#", "type": "string", "format": "date-time"}
    assert Checker(schema, "f").arguments(["soon"]) == Checked("soon")


def test_references_into_an_embedded_document_are_followed() -> None:
    schema = {
        "$id": "https://example.com/root",
        "type": "object",
        "properties": {"a": {"$ref": "part#/$defs/z"}},
        "$defs": {"part": {"$id": "part", "$defs": {"z": TEXT}}},
    }
    assert reason(schema, {"a": 5}) == "/a: expected string, got number 5"


def test_a_reference_is_read_where_it_stands() -> None:
    part = {"$id": "part", **closed(z={"$ref": "#/$defs/z"}), "$defs": {"z": TEXT}}
    schema = {"$id": "https://example.com/root", **closed(a={"$ref": "part"}), "$defs": {"part": part, "z": WHOLE}}
    assert Checker(schema, "f").arguments([{"a": {"z": "5"}}]) == Checked({"a": {"z": "5"}})
    refused_ = refused(schema, {"a": {"z": 5}})
    assert refused_.message == "f: /a/z: expected string, got number 5. Signature: f({ a?: { z?: string } })"


def test_before_2019_the_neighbours_of_a_reference_mean_nothing() -> None:
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        **closed(a={"$ref": "#/definitions/x", "maxLength": 1, "type": "integer"}, b=WHOLE),
        "definitions": {"x": TEXT},
    }
    assert reason(schema, {"a": "12", "b": "x"}) == '/b: expected integer, got string "x"'
    assert Checker(schema, "f").arguments([{"a": "12", "b": "7"}]) == Checked({"a": "12", "b": 7})


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


# ---- what the model reads ---------------------------------------------------------------------------------------

ITEMS = closed(items={"type": "array", "items": closed("qty", qty=WHOLE, note=TEXT)})


@pytest.mark.parametrize(
    ("schema", "value", "text"),
    [
        (closed(query=TEXT, limit=WHOLE), {"query": "x", "kind": "y"}, 'unknown argument "kind" (have: query, limit)'),
        (closed(), {"a": 1, "b": 2}, 'unknown arguments "a", "b" (have: none)'),
        (ITEMS, {"items": [{"qty": 1, "x": 2}]}, '/items/0: unknown property "x" (have: qty, note)'),
        (ITEMS, {"items": [{"qty": 1, "x": 2, "y": 1}]}, '/items/0: unknown properties "x", "y" (have: qty, note)'),
        (ITEMS, {"items": [{"qty": 1}, {"qty": "x"}]}, '/items/1/qty: expected integer, got string "x"'),
        (ITEMS, {"items": [{}]}, '/items/0: missing "qty"'),
        (ITEMS, {"items": {}}, "/items: expected array, got object"),
        (EXPENSES, {}, 'missing "user_id", "quarter"'),
        (LIST_ORDERS, {"status": "shut"}, '/status: expected one of "open", "late", got "shut"'),
        (closed(n={"const": 5}), {"n": 6}, "/n: expected 5, got 6"),
        (closed(n={**WHOLE, "minimum": 1}), {"n": 0}, "/n: must be at least 1, got 0"),
        (closed(n={**WHOLE, "maximum": 9}), {"n": 10}, "/n: must be at most 9, got 10"),
        (closed(n={**NUMBER, "exclusiveMinimum": 1}), {"n": 1}, "/n: must be more than 1, got 1"),
        (closed(n={**NUMBER, "exclusiveMaximum": 1}), {"n": 1}, "/n: must be less than 1, got 1"),
        (closed(n={**NUMBER, "multipleOf": 5}), {"n": 7}, "/n: must be a multiple of 5, got 7"),
        (closed(s={**TEXT, "minLength": 2}), {"s": "a"}, "/s: must have at least 2 characters, has 1"),
        (closed(s={**TEXT, "maxLength": 2}), {"s": "abc"}, "/s: must have at most 2 characters, has 3"),
        (closed(s={**TEXT, "pattern": "^A"}), {"s": "b"}, '/s: must match the pattern ^A, got "b"'),
        (closed(a={"type": "array", "minItems": 1}), {"a": []}, "/a: must have at least 1 items, has 0"),
        (closed(a={"type": "array", "maxItems": 1}), {"a": [1, 2]}, "/a: must have at most 1 items, has 2"),
        (closed(a={"uniqueItems": True}), {"a": [1, 1]}, "/a: has the same item more than once"),
        (closed(o={"minProperties": 1}), {"o": {}}, "/o: must have at least 1 properties, has 0"),
        (closed(o={"maxProperties": 0}), {"o": {"a": 1}}, "/o: must have at most 0 properties, has 1"),
        (
            closed(o={"dependentRequired": {"a": ["b"]}}),
            {"o": {"a": 1}},
            "/o: does not fit the schema's 'dependentRequired'",
        ),
        (closed(n={"not": WHOLE}), {"n": 1}, "/n: 1 is excluded here"),
        (closed(n=False), {"n": 1}, "/n: nothing may stand here"),
        (closed(n={"anyOf": [WHOLE, {"type": "null"}]}), {"n": "x"}, '/n: expected integer or null, got string "x"'),
        (
            closed(n={"anyOf": [{"const": "a"}, {"enum": ["b", 1]}]}),
            {"n": "c"},
            '/n: expected "a" or "b" or 1, got "c"',
        ),
        (
            closed(n={"oneOf": [WHOLE, {"minimum": 0}]}),
            {"n": 1},
            "/n: fits more than one of the alternatives, of which exactly one is allowed",
        ),
        (closed(n={"if": WHOLE, "then": {"minimum": 5}}), {"n": 1}, "/n: must be at least 5, got 1"),
        (closed(n={"if": WHOLE, "else": TEXT}), {"n": True}, "/n: expected string, got boolean true"),
        (closed(o={"dependentSchemas": {"a": {"required": ["b"]}}}), {"o": {"a": 1}}, '/o: missing "b"'),
        (
            closed(p={"prefixItems": [TEXT, WHOLE], "items": False}),
            {"p": ["a", "b"]},
            '/p/1: expected integer, got string "b"',
        ),
        (closed(p={"prefixItems": [TEXT], "items": False}), {"p": ["a", "b"]}, "/p/1: nothing may stand here"),
        (closed(o={"patternProperties": {"^x": WHOLE}}), {"o": {"xy": "a"}}, '/o/xy: expected integer, got string "a"'),
        (closed(o={"propertyNames": {"maxLength": 1}}), {"o": {"xy": 1}}, "does not fit the schema"),
        (closed(**{"a/b~c": WHOLE}), {"a/b~c": "x"}, '/a~1b~0c: expected integer, got string "x"'),
        (closed(n=WHOLE), {"n": "x\u202e\n\u0000"}, '/n: expected integer, got string "x\\n\\u0000"'),
        (
            {"allOf": [closed("a", a=TEXT)], "unevaluatedProperties": False},
            {"a": "x", "b": 1},
            'unknown argument "b" (have: a)',
        ),
    ],
)
def test_a_refusal_says_where_what_was_expected_and_what_came(schema: Any, value: Any, text: str) -> None:
    assert reason(schema, value) == text


def test_of_a_unions_members_the_one_that_was_meant_is_explained() -> None:
    circle = closed("kind", "r", kind={"const": "circle"}, r=NUMBER)
    square = closed("kind", "side", kind={"const": "square"}, side=closed("w", w=WHOLE))
    schema = closed(shape={"anyOf": [circle, square, {"type": "null"}]})
    assert reason(schema, {"shape": {"kind": "circle"}}) == '/shape: missing "r"'
    assert reason(schema, {"shape": {"kind": "square", "side": {}}}) == '/shape/side: missing "w"'
    assert reason(schema, {"shape": {"kind": "line"}}) == '/shape/kind: expected "circle", got "line"'


def test_a_refusal_shows_the_signature_and_gives_path_and_keyword_to_the_program() -> None:
    error = refused(ITEMS, {"items": [{"qty": "x"}]}, name="shop.order")
    assert error.message == (
        'shop.order: /items/0/qty: expected integer, got string "x". '
        "Signature: shop.order({ items?: { qty: number; note?: string }[] })"
    )
    assert error.details == {"path": "/items/0/qty", "keyword": "type"}


def test_a_refusal_stays_short_whatever_schema_and_value_are() -> None:
    wide = closed(**{f"property_{i}": {"enum": [f"value {i} {j}" for j in range(40)]} for i in range(300)})
    for value in (
        {"x" * 10_000: 1},
        {"property_7": "y" * 10_000_000},
        {"property_7": [1] * 1000},
        {"property_7": "\x00" * 999},
    ):
        assert 100 < len(refused(wide, value).message) <= 500


# ---- hostile schemas and values ---------------------------------------------------------------------------------


@pytest.mark.parametrize("pattern", ["^(a+)+$", r"^(?=a)(a*)*\1b$", "^(a|a)*$", r"(x+x+)+y"])
def test_a_catastrophic_pattern_is_answered_at_once(pattern: str) -> None:
    text = "a" * 50_000 + "!" if "x" not in pattern else "x" * 50_000
    assert reason(closed(s={**TEXT, "pattern": pattern}), {"s": text}).startswith("/s: must match the pattern ")


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def test_values_may_nest_128_levels_and_no_more() -> None:
    assert Checker({}, "f").arguments([nested(128)]) == Checked(nested(128))
    assert reason({}, nested(129)) == "nested more than 128 levels deep"
    assert reason(closed(a={}), {"a": nested(100_000)}) == "nested more than 128 levels deep"
    assert Checker({}, "f").result(nested(100_000)) == "nested more than 128 levels deep"


def test_a_value_that_would_take_minutes_to_check_is_refused() -> None:
    wide = {"anyOf": [{"const": i} for i in range(1_000)]}
    value = list(range(300_000))
    assert reason({"type": "array", "items": wide}, value) == "too large to be checked (300,001 values)"


def test_a_lone_surrogate_is_refused() -> None:
    assert reason(closed(s={**TEXT, "maxLength": 5}), {"s": "\ud800"}) == "holds a lone surrogate, which is no text"


def test_the_members_of_a_recursive_union_are_explained_without_exploding() -> None:
    number = {"type": "number"}
    pair = closed("l", "r", l={"$ref": "#/$defs/e"}, r={"$ref": "#/$defs/e"})
    schema = {**closed(e={"$ref": "#/$defs/e"}), "$defs": {"e": {"anyOf": [number, pair]}}}
    value: Any = "bad"
    for _ in range(40):
        value = {"l": value, "r": 1}
    assert reason(schema, {"e": value}) == f'/e{"/l" * 40}: expected number or object, got string "bad"'


def test_a_search_for_a_reason_ends() -> None:
    tree = {f"a{i}": {"anyOf": [{"$ref": f"#/$defs/a{i + 1}"}] * 2} for i in range(14)}
    schema = {**closed(v={"$ref": "#/$defs/a0"}), "$defs": {**tree, "a14": TEXT}}
    assert reason(schema, {"v": 5}) == "does not fit the schema"


def test_a_deep_item_of_a_long_list_is_found() -> None:
    items = [{"qty": 1}] * 5_000
    assert reason(ITEMS, {"items": [*items, {"qty": "x"}]}) == '/items/5000/qty: expected integer, got string "x"'


# ---- results ----------------------------------------------------------------------------------------------------


def checker_of(output_schema: Any) -> Checker:
    (entry,) = Catalog([Tool(name="f", output_schema=output_schema)]).entries
    return Checker(entry)


def test_a_result_fits_or_the_reason_is_given() -> None:
    checker = checker_of(closed("id", id=WHOLE))
    assert checker.result({"id": 9007199254740993}) is None
    assert checker.result({"id": "x"}) == '/id: expected integer, got string "x"'
    assert checker.result([]) == "expected object, got array"


def test_a_tool_without_an_output_schema_returns_anything() -> None:
    assert checker_of(None).result({"a": [1]}) is None


def test_results_are_never_coerced() -> None:
    assert checker_of(WHOLE).result("5") == 'expected integer, got string "5"'


def test_a_wrapped_result_is_checked_as_the_value_that_the_program_gets() -> None:
    schema = {**closed("result", result={"type": "array", "items": WHOLE}), "x-fastmcp-wrap-result": True}
    checker = checker_of(schema)
    assert checker.result([1, 2]) is None
    assert checker.result([1, "x"]) == '/1: expected integer, got string "x"'
    assert checker.result("x") == 'expected array, got string "x"'


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
