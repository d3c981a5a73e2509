"""In place of the network: an HTTP transport of the SDK's client that answers from this process.

So everything that the SDK does (types, streams, errors) is done as with the vendor. Knows nothing of what is served.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING, Final

import httpx2
from openai import APIStatusError

from bridge.dialect import is_object
from bridge.errors import BridgeError
from bridge.openai.turns import Item
from bridge.streamed import HEADERS, Lines, SyncLines, options_of

if TYPE_CHECKING:
    from bridge.executor import Executor

Serve = Callable[[Item, Item], AsyncGenerator[Item]]
"""Takes body and options of a request and gives the events of its response; the last one holds the response."""


class Refusal(Exception):
    """A request that is answered with 400, as the vendor would."""

    def __init__(self, message: str, param: str = "input") -> None:
        super().__init__(message)
        self.param = param


_REFUSED: Final = (Refusal, BridgeError, APIStatusError)


class _Exchange:
    """One request, and its response from the first event on: what cannot be served is refused before."""

    def __init__(self, request: httpx2.Request, content: bytes, serve: Serve) -> None:
        self.refused: httpx2.Response | None = None
        self.stream = False
        if request.method != "POST" or not request.url.path.endswith("/responses"):
            text = "a client of local() serves responses.create: use the original client for anything else"
            self.refused = httpx2.Response(404, json=_error(text))
            return
        body = json.loads(content)
        self.stream = bool(body.pop("stream", False))
        self._events = serve(body | ({"stream": True} if self.stream else {}), options_of(request))

    async def begin(self) -> httpx2.Response | None:
        """Wait for the first event; a response where the request is refused."""
        if self.refused is None:
            try:
                self._first = await anext(self._events)
            except _REFUSED as error:
                self.refused = _response(error)
        return self.refused

    async def lines(self) -> AsyncGenerator[bytes]:
        """The lines of a stream. What fails on the way is its last event: the status was sent long ago."""
        try:
            yield _line(self._first)
            async for event in self._events:
                yield _line(event)
        except _REFUSED as error:
            said = {"type": "error", "code": "server_error", "message": str(error), "param": None}
            yield _line(said | {"sequence_number": 0})

    async def whole(self) -> httpx2.Response:
        """The response that is not streamed."""
        last = self._first
        try:
            async for event in self._events:
                last = event
        except _REFUSED as error:
            return _response(error)
        return httpx2.Response(200, json=last["response"])

    async def close(self) -> None:
        """Give up what is still to come."""
        await self._events.aclose()


class AsyncTransport(httpx2.AsyncBaseTransport):
    """For an asynchronous client; streams arrive as they are made."""

    def __init__(self, serve: Serve) -> None:
        self._serve = serve

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        exchange = _Exchange(request, await request.aread(), self._serve)
        refused = await exchange.begin()
        if refused is not None:
            return refused
        return (
            httpx2.Response(200, headers=HEADERS, stream=Lines(exchange.lines(), exchange.close))
            if exchange.stream
            else await exchange.whole()
        )


class Transport(httpx2.BaseTransport):
    """For a synchronous client and a `with Executor(...)`; streams arrive as they are made, too."""

    def __init__(self, serve: Serve, executor: Executor) -> None:
        self._serve = serve
        self._executor = executor

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        return self._executor.call_sync(self._handle, request, request.read())

    async def _handle(self, request: httpx2.Request, content: bytes) -> httpx2.Response:
        exchange = _Exchange(request, content, self._serve)
        refused = await exchange.begin()
        if refused is not None:
            return refused
        if not exchange.stream:
            return await exchange.whole()
        lines = SyncLines(exchange.lines(), exchange.close, self._executor)
        return httpx2.Response(200, headers=HEADERS, stream=lines)


def _response(error: Refusal | BridgeError | APIStatusError) -> httpx2.Response:
    if isinstance(error, APIStatusError):
        said = error.body
        return httpx2.Response(error.status_code, json={"error": said} if is_object(said) else _error(error.message))
    return httpx2.Response(400, json=_error(str(error), error.param if isinstance(error, Refusal) else None))


def _error(message: str, param: str | None = None) -> Item:
    return {"error": {"message": message, "type": "invalid_request_error", "param": param, "code": None}}


def _line(event: Item) -> bytes:
    return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()
