"""Tools and clients that the tests of this vendor share."""

from __future__ import annotations

import gc
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from openai import AsyncOpenAI, OpenAI

from bridge import Executor, Tool, ToolContext, ToolError, openai
from sandbox import Sandbox
from tests.providers.openai_wire import Wire, calls

NUMBERS = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    "required": ["a", "b"],
    "additionalProperties": False,
}
ADD = "return await tools.add({a: 1, b: 2})"
ADDED = "[sandbridge] completed; 1 call\n3"


# The SDK ends the reading of a stream early (at [DONE], or when it is closed) and leaves its generators to trio, which
# warns of each when it is collected. Nothing is open by then: the response is closed.
STREAMS = pytest.mark.filterwarnings("ignore:Exception ignored in.*async_generator")


class Tools:
    """`reached` lists what came to a tool."""

    def __init__(self) -> None:
        self.reached: list[Any] = []

    async def add(self, arguments: Any, context: ToolContext) -> Any:
        self.reached.append(arguments)
        return arguments["a"] + arguments["b"]

    async def pay(self, arguments: Any, context: ToolContext) -> Any:
        self.reached.append(arguments)
        return {"paid": arguments["a"]}

    async def name(self, arguments: Any, context: ToolContext) -> Any:
        return "Ada"

    async def fail(self, arguments: Any, context: ToolContext) -> Any:
        raise ToolError("EMPTY", "nothing there", retryable=True)

    def all(self) -> list[Tool]:
        return [
            Tool(name="add", input_schema=NUMBERS, output_schema={"type": "integer"}, handler=self.add),
            Tool(name="pay", input_schema=NUMBERS, handler=self.pay),
            Tool(name="name", handler=self.name),
            Tool(name="fail", handler=self.fail),
            Tool(name="person", input_schema=NUMBERS),
        ]


def executor_of(tools: Tools, sandbox: Sandbox, **options: Any) -> Executor:
    return Executor(tools.all(), sandbox=sandbox, **options)


@asynccontextmanager
async def client_of(wire: Wire, kind: str = "async", **options: Any) -> AsyncGenerator[Any]:
    """The real client, closed afterwards."""
    options = {"api_key": "sk-none", "max_retries": 0, "base_url": wire.base_url} | options
    try:
        if kind == "sync":
            with OpenAI(**options) as client:
                yield client
        else:
            async with AsyncOpenAI(**options) as client:
                yield client
    finally:
        if any(request.get("stream") for request in wire.requests):
            gc.collect()  # what the SDK leaves of a stream is to trouble no other test: see STREAMS


def program(text: str, number: int = 1) -> Any:
    """The code tool as a function."""
    return calls("run_program", {"program": text}, number)


def outputs(wire: Wire, request: int = -1) -> list[str]:
    """What went back for calls in a request, in its order."""
    return [item["output"] for item in wire.requests[request]["input"] if "output" in item]


async def loop(client: Any, executor: Executor, **options: Any) -> Any:
    return await openai.run(client, executor, **{"model": "m", "input": "hi"} | options)
