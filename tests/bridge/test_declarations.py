"""Schemas as TypeScript: types that parse and say what is so, whatever the schema and within bounds."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.declarations import signature
from bridge.tools import Catalog, Tool
from tests.bridge.schemas import TEXT, WHOLE, closed
from tests.bridge.typescript import PARSER, declared


def typed(schema: Any) -> str:
    """The type of a result, with the named types before it."""
    text = declared(Tool(name="f", output_schema=schema))
    types, _, rest = text.partition("declare const tools: {\n  f(args?: Record<string, unknown>): Promise<")
    return types + rest.removesuffix(">;\n};\n")


# ---- types ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        (True, "unknown"),
        (False, "never"),
        ({}, "unknown"),
        ({"description": "anything"}, "unknown"),
        (TEXT, "string"),
        (WHOLE, "number"),
        ({"type": "number"}, "number"),
        ({"type": "boolean"}, "boolean"),
        ({"type": "null"}, "null"),
        ({"type": "file"}, "unknown"),
        ({"type": "string", "format": "date-time"}, "string /* date-time */"),
        ({"type": "string", "format": "*/ x"}, "string"),
        ({"type": ["string", "null"]}, "string | null"),
        ({"type": "string", "nullable": True}, "string | null"),
        ({"const": "a"}, '"a"'),
        ({"const": None}, "null"),
        ({"const": {"a": 1}}, "Record<string, unknown>"),
        ({"enum": ["a", 1, True, None]}, '"a" | 1 | true | null'),
        ({"enum": []}, "never"),
        ({"enum": ['"', "\n", "*/", "\u2028"]}, '"\\"" | "\\n" | "*/" | "\\u2028"'),
        ({"enum": [f"value {i}" for i in range(100)]}, "string"),
        ({"anyOf": [TEXT, WHOLE, TEXT]}, "string | number"),
        ({"oneOf": [TEXT, {"type": "null"}]}, "string | null"),
        ({"anyOf": [TEXT, {}]}, "unknown"),
        ({"anyOf": [TEXT, False]}, "string"),
        ({"allOf": [closed("a", a=TEXT), closed("b", b=WHOLE)]}, "{ a: string } & { b: number }"),
        ({"allOf": [{"anyOf": [TEXT, WHOLE]}, {"const": 1}]}, "(string | number) & 1"),
        ({"allOf": [TEXT, {"pattern": "x"}]}, "string"),
        ({"allOf": [TEXT, False]}, "never"),
        ({"not": TEXT}, "unknown"),
        ({"type": "array"}, "unknown[]"),
        ({"items": TEXT}, "string[]"),
        ({"type": "array", "items": {"type": ["string", "null"]}}, "(string | null)[]"),
        ({"type": "array", "items": {"enum": ["a|b"]}}, '"a|b"[]'),
        ({"type": "array", "items": {"type": "string", "format": "uri"}}, "(string /* uri */)[]"),
        ({"prefixItems": [TEXT, WHOLE], "items": False}, "[string, number]"),
        ({"prefixItems": [TEXT], "minItems": 1, "maxItems": 1}, "[string]"),
        ({"prefixItems": [TEXT], "items": WHOLE}, "[string, ...number[]]"),
        ({"items": [TEXT, WHOLE], "additionalItems": False}, "[string, number]"),
        ({"items": [TEXT]}, "[string, ...unknown[]]"),
        ({"type": "object"}, "Record<string, unknown>"),
        ({"type": "object", "properties": {}}, "{}"),
        ({"additionalProperties": WHOLE}, "Record<string, number>"),
        ({"patternProperties": {"^x": WHOLE}}, "Record<string, number>"),
        (closed("a", a=TEXT, b=WHOLE), "{ a: string; b?: number }"),
        ({**closed(a=TEXT), "additionalProperties": WHOLE}, "{ a?: string; [k: string]: unknown }"),
        ({"type": "object", "properties": {"a": TEXT}, "required": ["a", "b"]}, "{ a: string; b: unknown }"),
        (
            closed(**{"a-b": TEXT, "1x": TEXT, '"': TEXT, "class": TEXT, "größe": TEXT, "\n": TEXT}),
            '{ "a-b"?: string; "1x"?: string; "\\""?: string; class?: string; "größe"?: string; "\\n"?: string }',
        ),
        (
            {**closed("a", a=TEXT, b=TEXT), "oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
            "{ a: string; b?: string }",
        ),
        (
            {**closed(a=TEXT), "anyOf": [closed("b", b=TEXT), closed("c", c=TEXT)]},
            "{ a?: string } & ({ b: string } | { c: string })",
        ),
        ({"$ref": "#/$defs/x", "description": "d", "$defs": {"x": TEXT}}, "string"),
        (
            {"$ref": "#/$defs/x", "properties": {"b": TEXT}, "$defs": {"x": closed(a=TEXT)}},
            "{ a?: string } & { b?: string }",
        ),
        ({"$ref": "#here", "$defs": {"x": {"$anchor": "here", **TEXT}}}, "string"),
        ({"$ref": "#/$defs/missing"}, "unknown"),
        ({"$ref": "https://example.com/x"}, "unknown"),
        ({"$ref": "#"}, "unknown"),
        ({"properties": {"a": {"type": "strin"}}, "required": True, "enum": 5, "anyOf": {}}, "{ a?: unknown }"),
    ],
)
def test_a_schema_is_written_as_the_type_that_it_means(schema: Any, text: str) -> None:
    assert typed(schema) == text


def test_what_refers_to_itself_gets_a_name() -> None:
    schema = {**closed("name", name=TEXT, children={"type": "array", "items": {"$ref": "#"}})}
    assert typed(schema) == "type FResult = { name: string; children?: FResult[] };\nFResult"


def test_a_map_of_itself_is_written_as_typescript_allows() -> None:
    schema = {"type": "object", "additionalProperties": {"$ref": "#"}}
    assert typed(schema) == "type FResult = { [k: string]: FResult };\nFResult"


def test_brackets_and_quotes_in_a_comment_group_nothing() -> None:
    item = {"anyOf": [closed(a={"type": "string", "description": 'see ( or "'}), TEXT]}
    assert typed({"items": item}) == '({\n    a?: string; // see ( or "\n  } | string)[]'


def test_definitions_that_refer_to_each_other_get_names() -> None:
    schema = {
        "$ref": "#/$defs/folder",
        "$defs": {
            "folder": closed(files={"items": {"$ref": "#/$defs/file"}}),
            "file": closed(parent={"$ref": "#/$defs/folder"}),
        },
    }
    assert typed(schema) == "type Folder = { files?: File[] };\ntype File = { parent?: Folder };\nFolder"


def test_a_definition_used_once_is_written_in_place_and_one_used_twice_gets_a_name() -> None:
    point = closed("x", x={"type": "number"})
    once = {**closed(a={"$ref": "#/$defs/point"}), "$defs": {"point": point}}
    twice = {**closed(a={"$ref": "#/$defs/point"}, b={"$ref": "#/$defs/point"}), "$defs": {"point": point}}
    assert typed(once) == "{ a?: { x: number } }"
    assert typed(twice) == "type Point = { x: number };\n{ a?: Point; b?: Point }"


def test_types_that_would_only_name_each_other_are_unknown() -> None:
    schema = {
        **closed(a={"$ref": "#/$defs/a"}, b={"$ref": "#/$defs/b"}),
        "$defs": {
            "a": {"$ref": "#/$defs/b"},
            "b": {"anyOf": [{"$ref": "#/$defs/a"}, {"items": {"$ref": "#/$defs/b"}}]},
        },
    }
    assert typed(schema) == "type A = unknown;\ntype B = unknown;\n{ a?: A; b?: B }"


def test_equal_definitions_of_several_tools_share_a_name_and_others_get_a_number() -> None:
    def over(point: dict[str, Any]) -> dict[str, Any]:
        return {**closed(a={"$ref": "#/$defs/point"}, b={"$ref": "#/$defs/point"}), "$defs": {"point": point}}

    flat, round_ = closed(x=WHOLE), closed(r=WHOLE)
    text = declared(*(Tool(name=f"f{i}", output_schema=over(point)) for i, point in enumerate((flat, round_, flat))))
    assert text == (
        "type Point = { x?: number };\n"
        "type Point2 = { r?: number };\n"
        "declare const tools: {\n"
        "  f0(args?: Record<string, unknown>): Promise<{ a?: Point; b?: Point }>;\n"
        "  f1(args?: Record<string, unknown>): Promise<{ a?: Point2; b?: Point2 }>;\n"
        "  f2(args?: Record<string, unknown>): Promise<{ a?: Point; b?: Point }>;\n"
        "};\n"
    )


def test_a_schema_too_large_or_too_deep_becomes_unknown_in_places() -> None:
    deep: Any = TEXT
    for _ in range(40):
        deep = closed(a=deep)
    assert "a?: unknown" in typed(deep)
    wide = closed(**{f"o{i}": closed(**{f"p{j}": closed(a=TEXT, b=WHOLE) for j in range(20)}) for i in range(30)})
    text = typed(wide)
    assert len(text) < 20_000
    assert "p19?: unknown" in text
    assert "o29?: unknown" in text


def test_a_chain_of_many_definitions_ends() -> None:
    chain = {f"d{i}": closed(a={"$ref": f"#/$defs/d{i + 1}"}, b={"$ref": f"#/$defs/d{i + 1}"}) for i in range(2000)}
    text = typed({"$ref": "#/$defs/d0", "$defs": {**chain, "d2000": TEXT}})
    assert len(text) < 60_000
    assert text.startswith("type D1 = { a?: D2; b?: D2 };\n")


# ---- any schema -------------------------------------------------------------------------------------------------

words = st.sampled_from(
    ["a", "b", "a-b", "1x", "class", '"', "*/", "// x", '"; } evil', "__proto__", "then", "日本", "\n", "\u2028"]
)
literals = st.none() | st.booleans() | st.integers() | st.floats() | words | st.just([1]) | st.just({"a": 1})
references = st.sampled_from(
    ["#", "#/$defs/A", "#/$defs/B", "#/$defs/C", "#/$defs/none", "https://x/y", "#/properties/a", 5]
)
leaves = st.one_of(
    st.booleans(),
    st.just({}),
    st.builds(
        lambda t, f, d: {"type": t, "format": f, "description": d},
        st.sampled_from(["string", "integer", "null", ["string", "null"], 5]),
        words,
        words,
    ),
    st.builds(lambda r: {"$ref": r}, references),
    st.builds(lambda v: {"const": v}, literals),
    st.builds(lambda v: {"enum": v}, st.lists(literals, max_size=4)),
)
schemas: st.SearchStrategy[Any] = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(
            lambda p, r, a, d: {
                "type": "object",
                "properties": p,
                "required": r,
                "additionalProperties": a,
                "description": d,
            },
            st.dictionaries(words, inner, max_size=3),
            st.lists(words, max_size=2),
            inner,
            st.text(max_size=20),
        ),
        st.builds(lambda i: {"type": "array", "items": i}, inner),
        st.builds(
            lambda p, i, m: {"prefixItems": p, "items": i, "minItems": m},
            st.lists(inner, min_size=1, max_size=3),
            inner,
            st.integers(0, 3),
        ),
        st.builds(lambda p, i: {"items": p, "additionalItems": i}, st.lists(inner, max_size=3), inner),
        st.builds(
            lambda w, p, t: {w: p, "type": t},
            st.sampled_from(["anyOf", "oneOf", "allOf"]),
            st.lists(inner, max_size=3),
            st.sampled_from(["object", None]),
        ),
        st.builds(lambda r, p: {"$ref": r, "properties": {"z": p}, "patternProperties": {"^x": p}}, references, inner),
    ),
    max_leaves=12,
)
documents = st.builds(
    lambda root, a, b, c: {**root, "$defs": {"A": a, "B": b, "C": c}} if isinstance(root, dict) else root,
    schemas,
    schemas,
    schemas,
    schemas,
)


@given(documents, documents, st.text(max_size=60))
def test_any_schema_is_declared_in_bounds_and_parses(inputs: Any, outputs: Any, description: str) -> None:
    tools = [
        Tool(name="f", server="s", description=description, input_schema=inputs, output_schema=outputs),
        Tool(name="g", input_schema=outputs, output_schema=inputs),
    ]
    text = declared(*tools)
    assert text == declared(*tools)
    assert len(text) < 200_000
    assert "\0" not in text
    for entry in Catalog(tools).entries:
        assert "\n" not in signature(entry)
        inside = signature(entry).partition("(")[2].removesuffix(")").removeprefix("value: ")
        assert not PARSER.parse(f"type T = {inside or '{}'};".encode()).root_node.has_error
    declared(*tools, with_descriptions=False)
