"""Hosts of a gateway, in the same process: what their person answers, what they call and what they read."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
import mcp_types as types
from mcp import Client

from bridge import Tool, ToolContext
from bridge.gateway import Gateway

TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


class Person:
    """Somebody at a host, who answers each question by a plan."""

    def __init__(self, *answers: types.ElicitResult) -> None:
        self.read: list[str] = []
        self.forms: list[Any] = []
        self._answers = list(answers)

    async def __call__(self, context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        assert isinstance(params, types.ElicitRequestFormParams)
        self.read.append(params.message)
        self.forms.append(params.requested_schema)
        return self._answers.pop(0)


def says(decision: str, reason: str = "") -> types.ElicitResult:
    return types.ElicitResult(action="accept", content={"decision": decision, "reason": reason})


class Paid:
    """Tools of a shop: `pay` is asked about, `slow` waits until it is let go or cancelled."""

    def __init__(self) -> None:
        self.payments: list[str] = []
        self.started, self.cancelled, self.release = anyio.Event(), anyio.Event(), anyio.Event()

    async def pay(self, arguments: Any, context: ToolContext) -> Any:
        self.payments.append(arguments["text"])
        return f"paid {arguments['text']}"

    async def echo(self, arguments: Any, context: ToolContext) -> Any:
        return arguments["text"]

    async def slow(self, arguments: Any, context: ToolContext) -> Any:
        self.started.set()
        try:
            await self.release.wait()
        except anyio.get_cancelled_exc_class():
            self.cancelled.set()
            raise

    def tools(self) -> list[Tool]:
        return [
            Tool(name=name, description=f"To {name}.", input_schema=TEXT, handler=getattr(self, name))
            for name in ("pay", "echo", "slow")
        ]


def mode(revision: str) -> str:
    return "legacy" if revision == "2025-11-25" else "auto"


@asynccontextmanager
async def host(gateway: Gateway, revision: str, person: Person | None = None) -> AsyncGenerator[Client]:
    with anyio.fail_after(30):
        async with Client(gateway.server, mode=mode(revision), elicitation_callback=person) as client:
            assert client.protocol_version == revision
            yield client


async def run(client: Client, program: str, **arguments: Any) -> types.CallToolResult:
    return await client.call_tool("run_program", {"program": program, **arguments})


def text(result: types.CallToolResult) -> str:
    assert isinstance(result.content[0], types.TextContent)
    return result.content[0].text


def data(result: types.CallToolResult) -> Mapping[str, Any]:
    assert isinstance(result.structured_content, dict)
    return result.structured_content


async def outcome(client: Client, program: str) -> Mapping[str, Any]:
    return data(await run(client, program))
