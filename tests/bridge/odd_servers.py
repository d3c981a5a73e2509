"""Servers for the tests of `bridge.mcp`: how to describe, open and call the odd one."""

from __future__ import annotations

import json
import os
import select
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from bridge import ToolError, mcp
from bridge.tools import Tool, ToolContext

ROOT = Path(__file__).parent.parent.parent
SCRIPT = Path(__file__).parent.parent / "servers" / "odd.py"
SERVERS = ROOT / ".servers"  # real ones, as .ci/servers installs them
NODE = SERVERS / "npm" / "node_modules" / "@modelcontextprotocol"
EVERYTHING = NODE / "server-everything" / "dist" / "index.js"


def odd(*words: str, log: Path | None = None, **options: Any) -> mcp.Server:
    """The odd server, with `words` for its start."""
    args = [str(SCRIPT), *words, *(["--log", str(log)] if log else [])]
    return mcp.stdio(options.pop("name", "odd"), sys.executable, args, **options)


@asynccontextmanager
async def opened(*servers: mcp.Server) -> AsyncGenerator[None]:
    """Start servers side by side, and stop them whatever happens."""
    with anyio.fail_after(60):  # a test that hangs says so
        async with anyio.create_task_group() as tasks:
            try:
                async with anyio.create_task_group() as starting:
                    for server in servers:
                        starting.start_soon(server.start, tasks)
                yield
            finally:
                with anyio.CancelScope(shield=True):
                    for server in servers:
                        await server.stop()


def tool(server: mcp.Server, name: str) -> Tool:
    """One of its tools, by its exact name."""
    return next(each for each in server.tools if each.name == name)


def context(progress: Callable[[float, float | None, str | None], None] | None = None) -> ToolContext:
    """What the gate would give a handler."""
    made = ToolContext(run_id="run", call_id="run.1", idempotency_key="run.1")
    return made if progress is None else ToolContext(run_id="run", call_id="c", idempotency_key="c", progress=progress)


async def call(server: mcp.Server, name: str, arguments: dict[str, Any] | None = None, **options: Any) -> Any:
    """Call a tool as the gate does; JSON text comes back as its value."""
    handler = tool(server, name).handler
    assert handler is not None
    value = await handler(arguments or {}, context(**options))
    return json.loads(bytes(value)) if isinstance(value, msgspec.Raw) else value


async def refused(server: mcp.Server, name: str, arguments: dict[str, Any] | None = None) -> ToolError:
    """The error that a call ends in."""
    with pytest.raises(ToolError) as caught:
        await call(server, name, arguments)
    return caught.value


def frames(log: Path) -> list[dict[str, Any]]:
    """What the odd server has received."""
    return [json.loads(line) for line in log.read_text("utf-8").splitlines()]


def pids_of(told: dict[str, Any]) -> list[int]:
    return [told["server"], told["child"]]


def all_gone(watched: list[int]) -> bool:
    """Whether every process ends within the deadline; a pidfd is readable from then on."""
    try:
        return all(select.select([number], [], [], 10.0)[0] for number in watched)
    finally:
        for number in watched:
            os.close(number)


def script(path: Path, text: str, mode: int = 0o755) -> Path:
    path.write_text(text, "utf-8")
    path.chmod(mode)
    return path
