"""In place of the network: an HTTP transport of the SDK's client that answers from this process.

So everything that the SDK does (types, streams, errors) is done as with the vendor. Knows nothing of what is served.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING, Final, cast

import httpx2
from anthropic import APIStatusError

from bridge.anthropic.streaming import Streamed
from bridge.anthropic.wire import Block
from bridge.errors import BridgeError
from bridge.streamed import HEADERS, Lines, SyncLines, options_of

if TYPE_CHECKING:
    from bridge.executor import Executor

Serve = Callable[[Block, Block], AsyncGenerator[Block]]
"""Takes body and options of a request and gives its message as far as it is made; the last one is the whole."""


class Refusal(Exception):
    """A request that is answered with 400, as the vendor would."""


_REFUSED: Final = (Refusal, BridgeError, APIStatusError)


class _Exchange:
    """One request, and its response from the first part on: what cannot be served is refused before."""

    def __init__(self, request: httpx2.Request, content: bytes, serve: Serve) -> None:
        self.refused: httpx2.Response | None = None
        self.stream = False
        if request.method != "POST" or not request.url.path.endswith("/v1/messages"):
            text = "a client of local() serves messages.create and messages.stream: use the original client for others"
            said = {"type": "error", "error": {"type": "not_found_error", "message": text}}
            self.refused = httpx2.Response(404, json=said)
            return
        body: Block = json.loads(content)
        self.stream = bool(body.pop("stream", False))
        self._made = serve(body, options_of(request))

    async def response(self) -> httpx2.Response | None:
        """The response where it is not streamed, or refused; None where `lines` are to be read."""
        if self.refused is not None:
            return self.refused
        try:
            self._message = await anext(self._made)
            if self.stream:
                return None
            async for message in self._made:
                self._message = message
        except _REFUSED as error:
            return httpx2.Response(_status(error), json=_said(error))
        return httpx2.Response(200, json=self._message)

    async def lines(self) -> AsyncGenerator[bytes]:
        """The lines of a stream. What fails on the way is its last event: the status was sent long ago."""
        streamed = Streamed()
        try:
            for event in streamed.so_far(self._message):
                yield _line(event)
            async for message in self._made:
                self._message = message
                for event in streamed.so_far(message):
                    yield _line(event)
            for event in streamed.end(self._message):
                yield _line(event)
        except _REFUSED as error:
            yield _line(_said(error))

    async def close(self) -> None:
        """Give up what is still to come."""
        await self._made.aclose()


class AsyncTransport(httpx2.AsyncBaseTransport):
    """For an asynchronous client."""

    def __init__(self, serve: Serve) -> None:
        self._serve = serve

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        exchange = _Exchange(request, await request.aread(), self._serve)
        whole = await exchange.response()
        return whole or httpx2.Response(200, headers=HEADERS, stream=Lines(exchange.lines(), exchange.close))


class Transport(httpx2.BaseTransport):
    """For a synchronous client and a `with Executor(...)`."""

    def __init__(self, serve: Serve, executor: Executor) -> None:
        self._serve = serve
        self._executor = executor

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        exchange = _Exchange(request, request.read(), self._serve)
        whole = self._executor.call_sync(exchange.response)
        if whole is not None:
            return whole
        lines = SyncLines(exchange.lines(), exchange.close, self._executor)
        return httpx2.Response(200, headers=HEADERS, stream=lines)


def _status(error: Exception) -> int:
    return error.status_code if isinstance(error, APIStatusError) else 400


def _said(error: Exception) -> Block:
    if isinstance(error, APIStatusError):
        if isinstance(error.body, dict):
            return cast("Block", error.body)
        return {"type": "error", "error": {"type": "api_error", "message": error.message}}
    return {"type": "error", "error": {"type": "invalid_request_error", "message": str(error)}}


def _line(event: Block) -> bytes:
    return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()
