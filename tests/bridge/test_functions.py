"""Python functions as tools: how they are called, in which thread, and what they raise."""

from __future__ import annotations

import contextvars
import datetime
import functools
import threading
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import anyio
import pytest
from pydantic import AfterValidator, Field

from bridge.errors import ToolError
from bridge.functions import from_function
from bridge.schema import Checker
from bridge.tools import Catalog, ToolContext, tool
from tests.bridge.annotated import Options, Order, Point, Status, call, properties

pytestmark = pytest.mark.anyio


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


async def test_what_the_check_reads_the_function_accepts() -> None:
    @tool
    def f(n: int, ratio: float, yes: bool, tag: str | None = None) -> list[Any]:
        return [n, ratio, yes, tag]

    (entry,) = Catalog([f]).entries
    checked = Checker(entry).arguments([{"n": "9007199254740993", "ratio": "0.5", "yes": "true"}])
    assert await call(f, **checked.arguments) == [9007199254740993, 0.5, True, None]


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
