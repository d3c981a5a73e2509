"""Python functions as tools: their schemas, how they are called, and what comes out."""

from __future__ import annotations

import contextvars
import dataclasses
import datetime
import decimal
import enum
import functools
import json
import threading
import typing
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Annotated, Any, Literal, NotRequired, Optional, TypedDict

import anyio
import msgspec
import pytest
from pydantic import AfterValidator, BaseModel, Field

from bridge.approval import Grants
from bridge.calls import CallState
from bridge.declarations import declare
from bridge.errors import CatalogError, ToolError
from bridge.functions import from_function
from bridge.gate import Flight, Gate
from bridge.policy import Policy
from bridge.schema import Checker
from bridge.tools import Catalog, Tool, ToolContext, tool
from sandbox import Limits

pytestmark = pytest.mark.anyio
CONTEXT = ToolContext(run_id="r1", call_id="r1.1", idempotency_key="r1.1", caller_context={"user": "ada"})


class Status(enum.Enum):
    open = "open"
    late = "late"


class Line(BaseModel):
    sku: str
    qty: int = 1


class Order(BaseModel):
    """One order of the shop."""

    id: str = Field(description="Number such as A1.")
    status: Status = Status.open
    lines: list[Line] = []
    parent: Order | None = None


@dataclasses.dataclass
class Point:
    x: float
    y: float = 0.0


class Options(TypedDict):
    """Old-style on purpose: this is what people write."""

    limit: NotRequired[int]
    order: str


def properties(made: Tool) -> dict[str, Any]:
    assert isinstance(made.input_schema, dict)
    return made.input_schema["properties"]


def refusal(function: Callable[..., Any], **options: Any) -> str:
    with pytest.raises(CatalogError) as caught:
        from_function(function, **options)
    return str(caught.value).replace(f"{__name__}.", "").replace("<locals>.", "")


async def call(made: Tool, **arguments: Any) -> Any:
    assert made.handler is not None
    reply = await made.handler(arguments, CONTEXT)
    assert isinstance(reply, msgspec.Raw)
    return json.loads(bytes(reply))


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


# ---- calls ------------------------------------------------------------------------------------------------------


async def test_async_functions_get_pythons_own_types_and_return_json() -> None:
    @tool
    async def ship(
        order: Order, at: datetime.datetime, status: Status, where: Point, options: Options, ids: set[int]
    ) -> dict[str, Any]:
        return {
            "types": [type(value).__name__ for value in (order, order.lines[0], at, status, where, options, ids)],
            "at": at,
        }

    reply = await call(
        ship,
        order={"id": "A1", "lines": [{"sku": "x"}]},
        at="2026-01-02T03:04:05Z",
        status="late",
        where={"x": 1},
        options={"order": "asc"},
        ids=[1, 2, 2],
    )
    assert reply == {
        "types": ["Order", "Line", "datetime", "Status", "Point", "dict", "set"],
        "at": "2026-01-02T03:04:05Z",
    }


async def test_defaults_are_the_functions_own() -> None:
    marker: list[int] = []

    @tool
    def f(a: int = 1, b: Annotated[int, Field(ge=0)] = 2, c: int = Field(default=3), d: Any = marker) -> list[Any]:
        return [a, b, c, d is marker]

    assert await call(f) == [1, 2, 3, True]
    assert await call(f, a=5, d=None) == [5, 2, 3, False]


async def test_names_that_meet_pydantics_own_work() -> None:
    @tool
    def f(schema: int, model_config: int, copy: int, _x: int, json: int = 0) -> list[int]:
        return [schema, model_config, copy, _x, json]

    assert await call(f, schema=1, model_config=2, copy=3, _x=4) == [1, 2, 3, 4, 0]


async def test_an_alias_is_the_name_that_a_program_uses() -> None:
    @tool
    def f(from_: Annotated[str, Field(alias="from", description="Start.")]) -> str:
        return from_

    assert properties(f) == {"from": {"type": "string", "description": "Start."}}
    assert await call(f, **{"from": "a"}) == "a"


async def test_positional_only_and_keyword_only_parameters_work() -> None:
    @tool
    def f(a: int, context: ToolContext, b: int = 2, /, c: int = 3, *, d: int) -> list[Any]:
        return [a, context.run_id, b, c, d]

    assert list(properties(f)) == ["a", "b", "c", "d"]
    assert await call(f, a=1, d=4) == [1, "r1", 2, 3, 4]
    assert await call(f, a=1, b=7, c=8, d=4) == [1, "r1", 7, 8, 4]


@pytest.mark.parametrize("hint", [ToolContext, ToolContext | None, Annotated[ToolContext, "x"]])
async def test_a_context_parameter_gets_the_context_and_is_no_argument(hint: Any) -> None:
    def f(who: Any, n: int) -> Any:
        return [who.caller_context, n]

    f.__annotations__["who"] = hint
    made = from_function(f)
    assert list(properties(made)) == ["n"]
    assert await call(made, n=1) == [{"user": "ada"}, 1]
    with pytest.raises(ToolError) as caught:
        await call(made, n=1, who="me")
    assert str(caught.value) == "invalid_arguments: f: /who: Extra inputs are not permitted"


async def test_methods_partials_and_callable_objects_become_tools() -> None:
    class Shop:
        """The shop."""

        def __init__(self, rate: float) -> None:
            self.rate = rate

        def price(self, n: int) -> float:
            return n * self.rate

        async def later(self, n: int) -> float:
            return n * self.rate

        @classmethod
        def kind(cls, n: int) -> str:
            return cls.__name__ * n

        @staticmethod
        def plus(n: int) -> int:
            return n + 1

        async def __call__(self, n: int) -> float:
            return n * self.rate

    shop = Shop(2.5)
    found = [
        (made.name, made.description, await call(made, n=2))
        for made in (
            tool(shop.price),
            tool(shop.later),
            tool(Shop.kind),
            tool(shop.plus),
            tool(shop, name="buy"),
            tool(functools.partial(Shop.price, shop)),
            tool(functools.partial(shop.later)),
        )
    ]
    assert found == [
        ("price", "", 5.0),
        ("later", "", 5.0),
        ("kind", "", "ShopShop"),
        ("plus", "", 3),
        ("buy", "The shop.", 5.0),
        ("price", "", 5.0),
        ("later", "", 5.0),
    ]


async def test_what_a_partial_has_bound_no_program_can_set() -> None:
    def find(query: str, tenant: str, limit: int = 5) -> str:
        return f"{tenant}:{query}:{limit}"

    made = tool(functools.partial(find, tenant="acme"))
    assert list(properties(made)) == ["query", "limit"]
    assert await call(made, query="x") == "acme:x:5"
    with pytest.raises(ToolError, match="/tenant: Extra inputs are not permitted"):
        await call(made, query="x", tenant="other")


async def test_a_wrapped_function_keeps_its_signature_and_its_wrapper() -> None:
    def shouting(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        return wrapper

    @tool
    @shouting
    async def f(a: int) -> str:
        """Says it."""
        return "a" * a

    assert (f.name, f.description, list(properties(f))) == ("f", "Says it.", ["a"])
    assert await call(f, a=3) == "aaa"


async def test_a_function_that_returns_an_awaitable_is_awaited() -> None:
    async def inner(n: int) -> int:
        return n + 1

    @tool
    def f(n: int) -> Awaitable[int]:
        return inner(n)

    assert await call(f, n=1) == 2


# ---- threads ----------------------------------------------------------------------------------------------------

who: contextvars.ContextVar[str] = contextvars.ContextVar("who", default="nobody")


async def test_a_synchronous_function_runs_in_a_daemon_thread_with_the_callers_context() -> None:
    @tool
    def f() -> list[Any]:
        thread = threading.current_thread()
        seen = who.get()
        who.set("the tool")
        return [thread is threading.main_thread(), thread.daemon, seen]

    who.set("ada")
    assert await call(f) == [False, True, "ada"]
    assert who.get() == "ada"


async def test_synchronous_functions_do_not_hold_up_the_event_loop() -> None:
    met = threading.Barrier(3)

    @tool
    def f() -> None:
        met.wait(30)

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call, f)
            tasks.start_soon(call, f)
            tasks.start_soon(anyio.to_thread.run_sync, met.wait)


async def test_a_cancelled_call_abandons_its_thread() -> None:
    started, release, ended = threading.Event(), threading.Event(), threading.Event()

    @tool
    def f() -> None:
        started.set()
        release.wait(30)
        ended.set()

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call, f)
            while not started.is_set():
                await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()
        assert not ended.is_set()
        release.set()
        await anyio.to_thread.run_sync(ended.wait)
        assert await call(tool(lambda: 1, name="g")) == 1


async def test_a_synchronous_function_may_run_an_event_loop_of_its_own() -> None:
    async def inner() -> int:
        await anyio.lowlevel.checkpoint()
        return 7

    assert await call(tool(lambda: anyio.run(inner), name="f")) == 7


# ---- failures ---------------------------------------------------------------------------------------------------


async def test_a_tool_error_and_any_other_exception_pass_unchanged() -> None:
    error = ToolError("NOT_FOUND", "no such order", retryable=True, details={"id": "A9"})

    @tool
    def refuses() -> None:
        raise error

    @tool
    async def breaks() -> None:
        raise KeyError("secret")

    @tool
    def stops() -> None:
        raise StopIteration

    with pytest.raises(ToolError) as refused:
        await call(refuses)
    assert refused.value is error
    with pytest.raises(KeyError):
        await call(breaks)
    with pytest.raises(RuntimeError) as stopped:
        await call(stops)
    assert str(stopped.value) == "the function raised StopIteration"


async def test_what_pydantic_refuses_is_told_to_the_model_without_links() -> None:
    def even(n: int) -> int:
        if n % 2:
            raise ValueError("must be even")
        return n

    @tool
    def f(n: Annotated[int, AfterValidator(even)], lines: list[Annotated[int, AfterValidator(even)]]) -> None: ...

    with pytest.raises(ToolError) as caught:
        await call(f, n=3, lines=[1, 2, 3, 5])
    error = caught.value
    assert error.code == "invalid_arguments"
    assert error.message == "f: /n: must be even; /lines/0: must be even; /lines/2: must be even (and 1 more)"
    assert error.details == {"path": "/n", "keyword": "value_error"}


# ---- results ----------------------------------------------------------------------------------------------------


class Raw(msgspec.Struct):
    a: int


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC), '"2026-01-02T00:00:00Z"'),
        (datetime.timedelta(days=1), '"P1D"'),
        (decimal.Decimal("1.10"), '"1.10"'),
        (uuid.UUID(int=1), '"00000000-0000-0000-0000-000000000001"'),
        ({1}, "[1]"),
        ((1, "a"), '[1,"a"]'),
        (Point(1.5), '{"x":1.5,"y":0.0}'),
        (Line(sku="a"), '{"sku":"a","qty":1}'),
        (Status.late, '"late"'),
        (b"abc", '"abc"'),
        ([float("nan"), float("inf")], "[null,null]"),
        (2**70, str(2**70)),
        (Raw(1), '{"a":1}'),
        (msgspec.Raw(b'{"made": 1}'), '{"made": 1}'),
        (
            {"nested": [Point(1.0), {"at": datetime.date(2026, 1, 2)}]},
            '{"nested":[{"x":1.0,"y":0.0},{"at":"2026-01-02"}]}',
        ),
    ],
)
async def test_an_undescribed_result_is_encoded_by_what_it_is(value: Any, text: str) -> None:
    made = from_function(lambda: value, name="f")
    assert made.handler is not None
    assert bytes(await made.handler({}, CONTEXT)).decode() == text


@pytest.mark.parametrize(("value", "kind"), [(object(), "object"), (b"\xff", "bytes"), (lambda: 1, "function")])
async def test_a_result_without_a_json_form_is_an_error_for_the_operator(value: Any, kind: str) -> None:
    with pytest.raises(TypeError, match=f"^tool 'f' returned a {kind} that has no JSON form: "):
        await call(from_function(lambda: value, name="f"))


async def test_a_described_result_is_written_as_its_schema_says() -> None:
    class Page(BaseModel):
        next_page: int | None = Field(default=None, serialization_alias="nextPage")
        at: datetime.date = datetime.date(2026, 1, 2)

    @tool
    def pages() -> list[Page]:
        return [Page(next_page=2)]

    assert await call(pages) == [{"nextPage": 2, "at": "2026-01-02"}]
    (entry,) = Catalog([pages]).entries
    assert Checker(entry).result(await call(pages)) is None


class Colour(enum.Enum):
    RED = "red"


class Priced(BaseModel):
    sku: str
    price: decimal.Decimal = decimal.Decimal(1)


NO_NUMBER = "Input should be a valid number, unable to parse string as a number"


class Total(TypedDict):
    total: int


STAMP = datetime.datetime(2026, 1, 2, 3, 4, tzinfo=datetime.UTC)
Positive = Annotated[int, Field(ge=1)]


def returning(hint: Any, value: Any) -> Tool:
    def f() -> Any:
        return value

    f.__annotations__["return"] = hint
    return tool(f)


async def outcome(made: Tool) -> tuple[str, list[str]]:
    """What the gate makes of a call: the JSON text, or the error, and the warnings."""
    catalog = Catalog([made])
    (entry,) = catalog.entries
    gate = Gate(catalog, Policy(), Grants())
    call = CallState(number=1, id="r.1", tool="f", made=msgspec.Raw(b"[{}]"), line=1, column=1, entry=entry)
    call.executed = {}
    came = await gate.perform(Flight(call), run_id="r", limits=Limits(), context=None)
    text = "" if came.value is msgspec.UNSET else bytes(came.value).decode()
    return text or came.code, [f"{notice.code}: {notice.message}" for notice in came.notices]


@pytest.mark.parametrize(
    ("hint", "value", "text"),
    [
        (Priced, Priced(sku="a"), '{"sku":"a","price":"1"}'),
        (Priced, {"sku": "a", "price": "2"}, '{"sku":"a","price":"2"}'),
        (
            list[Priced],
            [Priced(sku="a"), {"sku": "b", "price": "2"}],
            '[{"sku":"a","price":"1"},{"sku":"b","price":"2"}]',
        ),
        (Point, Point(1.0), '{"x":1.0,"y":0.0}'),
        (Point, {"x": 1.0, "y": 2.0}, '{"x":1.0,"y":2.0}'),
        (Total, {"total": 1}, '{"total":1}'),
        (Priced | None, None, "null"),
        (datetime.datetime, STAMP, '"2026-01-02T03:04:00Z"'),
        (datetime.datetime, "2026-01-02T03:04:00", '"2026-01-02T03:04:00"'),
        (decimal.Decimal, decimal.Decimal("1.50"), '"1.50"'),
        (Colour, Colour.RED, '"red"'),
        (Colour, "red", '"red"'),
        (bytes, b"abc", '"abc"'),
        (float, 1, "1.0"),
        (None, None, "null"),
    ],
)
async def test_a_result_that_fits_its_annotation_brings_no_warning(hint: Any, value: Any, text: str) -> None:
    assert await outcome(returning(hint, value)) == (text, [])


@pytest.mark.parametrize(
    ("hint", "value", "text", "why"),
    [
        (int, "five", '"five"', "Input should be a valid integer, unable to parse string as an integer"),
        (int, "5", '"5"', 'expected integer, got string "5"'),
        (Priced, {"sku": 7, "price": "1"}, '{"sku":7,"price":"1"}', "/sku: Input should be a valid string"),
        (Priced, {"sku": "a"}, '{"sku":"a"}', 'missing "price"'),
        (Priced, Point(1.0), "{}", 'missing "sku", "price"'),
        (Priced, None, "null", "expected object, got null"),
        (list[Priced], [{"price": "1"}], '[{"price":"1"}]', "/0/sku: Field required"),
        (
            Point,
            Point(typing.cast("float", "far")),
            '{"x":"far","y":0.0}',
            f"/x: {NO_NUMBER}",
        ),
        (Total, {}, "{}", 'missing "total"'),
        (Priced | None, 3, "3", "Input should be an object"),
        (datetime.datetime, "soon", '"soon"', "Input should be a valid datetime or date, input is too short"),
        (decimal.Decimal, 1.5, "1.5", "expected string, got number 1.5"),
        (Colour, "blue", '"blue"', "Input should be 'red'"),
        (bytes, 5, "5", "Input should be a valid bytes"),
        (float, float("nan"), "null", "expected number, got null"),
        (None, 5, "5", "Input should be null"),
        (Positive, 0, "0", "must be at least 1, got 0"),
    ],
)
async def test_a_result_that_does_not_fit_its_annotation_reaches_the_program_with_a_warning(
    hint: Any, value: Any, text: str, why: str
) -> None:
    made = await outcome(returning(hint, value))
    assert made == (text, [f"output_schema: a reply of f is not what its output schema says: {why}"])


async def test_a_misfit_is_in_the_operators_log_without_its_value(caplog: pytest.LogCaptureFixture) -> None:
    await outcome(returning(int, "secret"))
    (record,) = caplog.records
    assert record.getMessage() == (
        "tool f returned a str that is not what it declares: "
        "Input should be a valid integer, unable to parse string as an integer"
    )


async def test_a_result_without_a_json_form_fails_whatever_is_declared() -> None:
    assert await outcome(returning(bytes, b"\xff")) == ("failed", [])
    assert await outcome(returning(Priced, object())) == ("failed", [])


async def test_of_a_large_result_the_types_are_checked() -> None:
    assert (await outcome(returning(list[int], ["x"] * 300_000)))[1] != []
    assert (await outcome(returning(list[Positive], [0] * 600_000)))[1] == []


async def test_a_handler_that_breaks_the_promise_of_its_schema_brings_a_warning() -> None:
    async def handler(arguments: Any) -> Any:
        return 5

    made = Tool(name="f", output_schema={"type": "string"}, handler=handler)
    why = "output_schema: a reply of f is not what its output schema says: expected string, got number 5"
    assert await outcome(made) == ("5", [why])


async def test_what_the_check_reads_the_function_accepts() -> None:
    @tool
    def f(n: int, ratio: float, yes: bool, tag: str | None = None) -> list[Any]:
        return [n, ratio, yes, tag]

    (entry,) = Catalog([f]).entries
    checked = Checker(entry).arguments([{"n": "9007199254740993", "ratio": "0.5", "yes": "true"}])
    assert await call(f, **checked.arguments) == [9007199254740993, 0.5, True, None]


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
