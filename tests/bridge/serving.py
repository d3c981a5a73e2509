"""`sandbridge serve` as a process, and hosts of it over stdio and over Streamable HTTP."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

from tests.bridge.hosts import mode
from tests.bridge.odd_servers import ROOT

SMALL = ROOT / "tests" / "servers" / "small.py"
HEADERS = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
ANA, BEN = "a" * 32, "b" * 32


def command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "bridge.cli", "serve", *map(str, arguments)]


def started(*arguments: str | Path, cwd: Path, stdin: int) -> subprocess.Popen[str]:
    """The command, with its output at hand."""
    return subprocess.Popen(
        command(*arguments),
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@asynccontextmanager
async def over_stdio(
    revision: str, *arguments: str | Path, cwd: Path, errors: Path, **options: Any
) -> AsyncGenerator[Client]:
    program, *rest = command(*arguments)
    place = StdioServerParameters(
        command=program, args=rest, cwd=cwd, env={"PYTHONPATH": str(ROOT), "XDG_STATE_HOME": str(cwd / "state")}
    )
    with anyio.fail_after(60), errors.open("w") as log:
        async with Client(stdio_client(place, errlog=log), mode=mode(revision), **options) as client:
            assert client.protocol_version == revision
            yield client


@contextmanager
def served(*arguments: str | Path, cwd: Path) -> Generator[tuple[str, subprocess.Popen[str]]]:
    """The command with `--http`, once it says where it is; its address and its process."""
    process = started("--http", "127.0.0.1:0", *arguments, cwd=cwd, stdin=subprocess.DEVNULL)
    try:
        assert process.stderr is not None
        for line in process.stderr:
            if found := re.search(r"serving (http://\S+)", line):
                yield found[1], process
                break
        else:
            raise AssertionError("it ended without serving")
    finally:
        process.kill()
        process.communicate(timeout=20)


@asynccontextmanager
async def over_http(url: str, revision: str, token: str | None = None, **options: Any) -> AsyncGenerator[Client]:
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    with anyio.fail_after(60):
        async with (
            httpx2.AsyncClient(headers=headers, timeout=30) as http,
            Client(streamable_http_client(url, http_client=http), mode=mode(revision), **options) as client,
        ):
            assert client.protocol_version == revision
            yield client
