"""Schemas that can be used and those that cannot, hostile ones and hostile values, and results."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from bridge.errors import CatalogError
from bridge.schema import Checked, Checker
from bridge.tools import Catalog, Tool
from tests.bridge.schemas import ITEMS, TEXT, WHOLE, closed, reason, refused


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
