"""What functions that become tools are annotated with, and a call of such a tool."""

from __future__ import annotations

import dataclasses
import enum
import json
from typing import Any, NotRequired, TypedDict

import msgspec
from pydantic import BaseModel, Field

from bridge.tools import Tool, ToolContext

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


async def call(made: Tool, **arguments: Any) -> Any:
    assert made.handler is not None
    reply = await made.handler(arguments, CONTEXT)
    assert isinstance(reply, msgspec.Raw)
    return json.loads(bytes(reply))
