"""What the model reads when arguments do not fit: where, what was expected, what came, and no more than that."""

from __future__ import annotations

from typing import Any

import pytest

from tests.bridge.schemas import EXPENSES, ITEMS, LIST_ORDERS, NUMBER, TEXT, WHOLE, closed, reason, refused


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
