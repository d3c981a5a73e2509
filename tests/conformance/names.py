"""A host for the conformance suite that knows how the gateway names things.

The suite calls `test_simple_text`, reads `test://static-text` and gets the prompt `test_simple_prompt`, because the
reference server has them. Behind the gateway they are a tool that a program calls, a resource below the server's name,
and a prompt with it before its own. This application stands before the gateway and translates just that, and nothing of
what comes back but those names, so that the suite's own checks see what the gateway makes of a result.
"""

from __future__ import annotations

import json
import socket
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager, contextmanager
from threading import Thread
from typing import Any

import httpx2
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

SERVER = "reference"
OWN = ("run_program", "search_tools", "resume_program")
PROGRAM = "return await tools[{name}](inputs)"
HOP = ("content-length", "transfer-encoding", "connection", "content-encoding", "accept-encoding")


def inward(message: Any) -> str | None:
    """Translate a request in place; the name that it carries now, for the header that repeats it."""
    params = message.get("params") if isinstance(message, dict) else None
    if not isinstance(params, dict):
        return None
    method, name = message.get("method"), params.get("name")
    if method == "tools/call" and name not in OWN:
        inputs = params.get("arguments", {})
        params["name"] = OWN[0]
        params["arguments"] = {"program": PROGRAM.format(name=json.dumps(f"{SERVER}/{name}")), "inputs": inputs}
        return OWN[0]
    if method == "prompts/get" and isinstance(name, str):
        params["name"] = f"{SERVER}/{name}"
        return params["name"]
    uri = params.get("uri")
    if method in ("resources/read", "resources/subscribe", "resources/unsubscribe") and isinstance(uri, str):
        params["uri"] = f"sandbridge://{SERVER}/{uri}"
        return params["uri"]
    reference = params.get("ref")
    if method == "completion/complete" and isinstance(reference, dict):
        for key, before in (("name", f"{SERVER}/"), ("uri", f"sandbridge://{SERVER}/")):
            if isinstance(reference.get(key), str):
                reference[key] = before + reference[key]
                return reference[key]
    return None


def outward(line: bytes) -> bytes:
    """A line of an answer, with the names that the suite knows."""
    return line.replace(f"sandbridge://{SERVER}/".encode(), b"").replace(f'"{SERVER}/'.encode(), b'"')


def application(gateway: str) -> Starlette:
    """The application, before the gateway at this address."""

    async def forward(request: Request) -> StreamingResponse:
        body = await request.body()
        headers = {key: value for key, value in request.headers.items() if key not in HOP}
        try:
            message = json.loads(body)
        except ValueError:
            message = None
        asked = message.get("params", {}).get("name") if isinstance(message, dict) else None
        name = inward(message)
        if name is not None:
            body = json.dumps(message).encode()
            told = headers.get("mcp-name")
            if told is not None and told in (asked, name.removeprefix(f"sandbridge://{SERVER}/")):
                headers["mcp-name"] = name
        context = client.stream(request.method, gateway, content=body, headers=headers)
        answer = await context.__aenter__()

        async def lines() -> AsyncGenerator[bytes]:
            rest = b""
            try:
                async for part in answer.aiter_bytes():
                    *whole, rest = (rest + part).split(b"\n")
                    for line in whole:
                        yield outward(line) + b"\n"
                yield outward(rest)
            finally:
                await context.__aexit__(None, None, None)

        kept = {key: value for key, value in answer.headers.items() if key not in HOP}
        return StreamingResponse(lines(), answer.status_code, kept)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncGenerator[None]:
        async with client:
            yield

    client = httpx2.AsyncClient(timeout=None, limits=httpx2.Limits(max_connections=None))
    return Starlette(routes=[Route("/mcp", forward, methods=["GET", "POST", "DELETE"])], lifespan=lifespan)


@contextmanager
def translated(gateway: str) -> Iterator[str]:
    """The address of the application, while the block lasts."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = uvicorn.Server(
            uvicorn.Config(application(gateway), log_config=None, access_log=False, timeout_graceful_shutdown=1)
        )
        thread = Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}/mcp"
        finally:
            server.should_exit = True
            thread.join()
