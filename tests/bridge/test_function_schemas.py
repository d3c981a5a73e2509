"""Signatures of Python functions as schemas, and what cannot become a tool."""

from __future__ import annotations

import datetime
import decimal
import json
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Annotated, Any, Literal, Optional

import msgspec
import pytest
from pydantic import BaseModel, Field

from bridge.declarations import declare
from bridge.errors import CatalogError
from bridge.functions import from_function
from bridge.tools import Catalog, tool
from tests.bridge.annotated import Line, Options, Order, Point, Status, properties


def refusal(function: Callable[..., Any], **options: Any) -> str:
    with pytest.raises(CatalogError) as caught:
        from_function(function, **options)
    return str(caught.value).replace(f"{__name__}.", "").replace("<locals>.", "")


# ---- schemas ----------------------------------------------------------------------------------------------------


def test_parameters_become_the_properties_of_one_closed_object() -> None:
    def find(order_id: str, status: Status, limit: int = 10, tag: str | None = None) -> None: ...

    assert from_function(find).input_schema == {
        "type": "object",
        "properties": {
            "order_id": {"type": "string"},
            "status": {"enum": ["open", "late"], "type": "string"},
            "limit": {"type": "integer", "default": 10},
            "tag": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
        },
        "required": ["order_id", "status"],
        "additionalProperties": False,
    }


def test_a_function_without_parameters_takes_an_empty_object() -> None:
    def ping() -> None: ...

    assert from_function(ping).input_schema == {"type": "object", "properties": {}, "additionalProperties": False}


@pytest.mark.parametrize(
    ("hint", "schema"),
    [
        (str, {"type": "string"}),
        (bool, {"type": "boolean"}),
        (Any, {}),
        (Literal["a", 2], {"enum": ["a", 2]}),
        (Optional[int], {"anyOf": [{"type": "integer"}, {"type": "null"}]}),  # noqa: UP045 - people write it
        (int | str, {"anyOf": [{"type": "integer"}, {"type": "string"}]}),
        (list[int], {"type": "array", "items": {"type": "integer"}}),
        (dict[str, float], {"type": "object", "additionalProperties": {"type": "number"}}),
        (datetime.date, {"type": "string", "format": "date"}),
        (uuid.UUID, {"type": "string", "format": "uuid"}),
        (
            Annotated[int, Field(ge=1, description="How many.")],
            {"type": "integer", "minimum": 1, "description": "How many."},
        ),
        (
            Point,
            {
                "type": "object",
                "properties": {"x": {"type": "number"}, "y": {"type": "number", "default": 0.0}},
                "required": ["x"],
            },
        ),
        (
            Options,
            {
                "type": "object",
                "description": "Old-style on purpose: this is what people write.",
                "properties": {"limit": {"type": "integer"}, "order": {"type": "string"}},
                "required": ["order"],
            },
        ),
        (
            list[Options | None],
            {
                "type": "array",
                "items": {
                    "anyOf": [
                        {
                            "type": "object",
                            "description": "Old-style on purpose: this is what people write.",
                            "properties": {"limit": {"type": "integer"}, "order": {"type": "string"}},
                            "required": ["order"],
                        },
                        {"type": "null"},
                    ]
                },
            },
        ),
    ],
)
def test_an_annotation_becomes_a_schema_without_noise(hint: Any, schema: dict[str, Any]) -> None:
    def f(value: Any) -> None: ...

    f.__annotations__["value"] = hint
    written = properties(from_function(f))["value"]
    assert (
        json.loads(
            json.dumps(written)
            .replace(', "additionalProperties": false', "")
            .replace('"additionalProperties": false, ', "")
        )
        == schema
    )


def test_a_recursive_model_keeps_its_definition_and_what_is_used_once_does_not() -> None:
    def save(order: Order) -> None: ...

    schema = from_function(save).input_schema
    assert isinstance(schema, dict)
    assert list(schema["$defs"]) == ["Order"]
    assert schema["properties"]["order"] == {"$ref": "#/$defs/Order"}
    assert schema["$defs"]["Order"]["properties"]["lines"]["items"]["properties"]["sku"] == {"type": "string"}
    assert '"title"' not in json.dumps(schema)


def test_a_description_beside_a_reference_is_kept() -> None:
    def move(start: Annotated[Point, Field(description="From here.")], end: Point) -> None: ...

    written = properties(from_function(move))
    assert written["start"] == {"$ref": "#/$defs/Point", "description": "From here."}
    assert written["end"] == {"$ref": "#/$defs/Point"}


def test_fields_named_like_keywords_survive() -> None:
    class Page(BaseModel):
        title: str
        reference: str = Field(alias="$ref", default="")
        default: Line

    def save(page: Page) -> None: ...

    fields = properties(from_function(save, namespace={"Page": Page}))["page"]["properties"]
    assert list(fields) == ["title", "$ref", "default"]
    assert list(fields["default"]["properties"]) == ["sku", "qty"]


@pytest.mark.parametrize(
    "text",
    [
        """Finds orders.

        Newest first.

        Args:
            query: What to look for.
                Any words.
            limit: How many.
        """,
        """Finds orders.

        Newest first.

        Parameters
        ----------
        query : str
            What to look for.
            Any words.
        limit : int
            How many.
        """,
        """Finds orders.

        Newest first.

        :param query: What to look for.
            Any words.
        :param limit: How many.
        """,
    ],
    ids=["google", "numpy", "rest"],
)
def test_a_docstring_describes_tool_and_parameters(text: str) -> None:
    def find(query: str, limit: Annotated[int, Field(description="Annotated wins.")] = 5) -> None: ...

    find.__doc__ = text
    made = from_function(find)
    assert made.description == "Finds orders.\n\nNewest first."
    assert properties(made)["query"]["description"] == "What to look for. Any words."
    assert properties(made)["limit"]["description"] == "Annotated wins."


def test_an_old_typed_dict_works_within_annotated() -> None:
    def f(options: Annotated[Options, Field(description="How.")]) -> None: ...

    written = properties(from_function(f))["options"]
    assert (written["description"], list(written["properties"])) == ("How.", ["limit", "order"])


def test_a_default_that_has_no_json_form_makes_the_parameter_optional() -> None:
    marker = object()

    def f(a: Any = marker) -> bool:
        return a is marker

    made = from_function(f)
    assert made.input_schema == {"type": "object", "properties": {"a": {}}, "additionalProperties": False}


@pytest.mark.parametrize(
    ("hint", "schema"),
    [
        (int, {"type": "integer"}),
        (None, {"type": "null"}),
        (list[str], {"type": "array", "items": {"type": "string"}}),
        (decimal.Decimal, {"type": "string"}),
        (Any, None),
        (msgspec.Raw, None),
        (Awaitable[int], {"type": "integer"}),
    ],
)
def test_the_return_annotation_becomes_the_output_schema_whatever_its_type(hint: Any, schema: Any) -> None:
    def f() -> Any: ...

    f.__annotations__["return"] = hint
    written = from_function(f).output_schema
    assert written is None if schema is None else isinstance(written, dict) and written["type"] == schema["type"]
    if isinstance(written, dict) and hint is not decimal.Decimal:
        assert written == schema


def test_no_return_annotation_is_no_output_schema() -> None:
    assert from_function(lambda: 1, name="f").output_schema is None


def test_a_result_has_all_its_fields_those_with_defaults_too() -> None:
    def f() -> Line: ...

    made = from_function(f)
    assert made.output_schema == {
        "type": "object",
        "properties": {"sku": {"type": "string"}, "qty": {"type": "integer", "default": 1}},
        "required": ["sku", "qty"],
    }


def test_a_converted_function_declares_its_types() -> None:
    @tool
    def search(query: str, limit: Annotated[int, Field(ge=1, le=50)] = 10) -> list[Line]:
        """Finds lines.

        Args:
            query: Words.
        """
        return []

    assert declare(Catalog([search]).entries) == (
        "declare const tools: {\n"
        "  /** Finds lines. */\n"
        "  search(args: {\n"
        "    query: string; // Words.\n"
        "    limit?: number; // 1..50; default 10\n"
        "  }): Promise<{ sku: string; qty: number }[]>;\n"
        "};\n"
    )


# ---- what cannot become a tool ----------------------------------------------------------------------------------


def test_star_arguments_are_refused() -> None:
    def f(*names: str) -> None: ...

    def g(**names: str) -> None: ...

    assert refusal(f) == (
        "function test_star_arguments_are_refused.f takes *names, which has no schema: name each parameter"
    )
    assert refusal(g) == (
        "function test_star_arguments_are_refused.g takes **names, which has no schema: name each parameter"
    )


def test_a_method_without_its_object_is_refused() -> None:
    class Shop:
        def price(self, item: str) -> float: ...

    assert refusal(Shop.price) == (
        "function test_a_method_without_its_object_is_refused.Shop.price is a method without its object: "
        "decorate the bound one, tool(obj.method)"
    )


def test_what_yields_is_refused() -> None:
    def f() -> Iterator[int]:
        yield 1

    async def g() -> AsyncIterator[int]:
        yield 1

    assert refusal(f) == "function test_what_yields_is_refused.f yields: a tool has one result, so return a list"
    assert refusal(g) == "function test_what_yields_is_refused.g yields: a tool has one result, so return a list"


@pytest.mark.parametrize("thing", [Line, 5, "f"])
def test_what_is_no_function_is_refused(thing: Any) -> None:
    assert refusal(thing).endswith("is no function: give a function, a bound method or an object with __call__")


def test_a_tool_is_not_decorated_twice() -> None:
    made = tool(lambda: 1, name="f")
    assert refusal(made).endswith("is a tool already: give the options where it is made")


def test_a_function_without_a_name_needs_one() -> None:
    assert refusal(lambda: 1).endswith("<lambda> has no name: give one with tool(function, name=...)")


def test_an_annotation_that_cannot_be_resolved_names_function_and_parameter() -> None:
    def f(a: Missing) -> None: ...  # noqa: F821 - on purpose

    assert refusal(f) == (
        "function test_an_annotation_that_cannot_be_resolved_names_function_and_parameter.f, parameter 'a': annotation "
        "'Missing' cannot be resolved (name 'Missing' is not defined): define or import the name before the function "
        "is made a tool"
    )


def test_a_return_annotation_that_cannot_be_resolved_is_named() -> None:
    def f() -> list[Missing]: ...  # noqa: F821 - on purpose

    assert refusal(f).partition(" cannot")[0] == (
        "function test_a_return_annotation_that_cannot_be_resolved_is_named.f, return annotation 'list[Missing]'"
    )


def test_a_type_without_a_json_form_names_function_and_parameter() -> None:
    class Connection: ...

    def f(a: int, b: Connection) -> None: ...

    def g() -> Connection: ...

    place = "function test_a_type_without_a_json_form_names_function_and_parameter"
    found = [refusal(function, namespace={"Connection": Connection}) for function in (f, g)]
    assert found[0].startswith(f"{place}.f, parameter 'b': Unable to generate pydantic-core schema for ")
    assert found[1].startswith(f"{place}.g, return annotation: Unable to generate pydantic-core schema for ")
    assert all(text.endswith(": annotate it with a type that has a JSON form") for text in found)


def test_local_classes_are_found_where_the_decorator_stands() -> None:
    class Local(BaseModel):
        a: int

    @tool
    def f(value: Local) -> Local: ...

    assert properties(f)["value"]["properties"] == {"a": {"type": "integer"}}
