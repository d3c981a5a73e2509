"""What Python functions return: its JSON, and the warning where it is not what they declare."""

from __future__ import annotations

import datetime
import decimal
import enum
import typing
import uuid
from typing import Annotated, Any, TypedDict

import msgspec
import pytest
from pydantic import BaseModel, Field

from bridge.approval import Grants
from bridge.calls import CallState
from bridge.functions import from_function
from bridge.gate import Flight, Gate
from bridge.policy import Policy
from bridge.schema import Checker
from bridge.tools import Catalog, Tool, tool
from sandbox import Limits
from tests.bridge.annotated import CONTEXT, Line, Point, Status, call

pytestmark = pytest.mark.anyio


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
