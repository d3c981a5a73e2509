"""What is the same for requests of both vendors' SDKs that are answered in this process: options, and streamed bodies.

A synchronous client reads in its own thread, and each line is made in the executor's event loop when it asks for it.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

import httpx2

from bridge.errors import StateError

if TYPE_CHECKING:
    from bridge.executor import Executor

HEADERS: Final = {"content-type": "text/event-stream"}
Close = Callable[[], Awaitable[None]]


_OWN: Final = frozenset(
    ["host", "connection", "user-agent", "authorization", "x-api-key", "idempotency-key"]
)  # that a client sets anew
_OWN_KINDS: Final = ("content-", "accept", "x-stainless-")


def options_of(request: httpx2.Request) -> dict[str, Any]:
    """What an application set for one request beside its body, as the SDKs' methods take it."""
    sent = {name: value for name, value in request.headers.items() if name not in _OWN}
    made: dict[str, Any] = {
        "extra_headers": {name: value for name, value in sent.items() if not name.startswith(_OWN_KINDS)},
        "extra_query": dict(request.url.params),
    }
    if timeout := request.extensions.get("timeout"):
        made["timeout"] = httpx2.Timeout(**timeout)
    return made


class Lines(httpx2.AsyncByteStream):
    """For an asynchronous client; `close` gives up what is still to come."""

    def __init__(self, lines: AsyncGenerator[bytes], close: Close) -> None:
        self._lines = lines
        self._close = close

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for line in self._lines:
            yield line

    async def aclose(self) -> None:
        await self._lines.aclose()
        await self._close()


class SyncLines(httpx2.SyncByteStream):
    """For a synchronous client and a `with Executor(...)`."""

    def __init__(self, lines: AsyncGenerator[bytes], close: Close, executor: Executor) -> None:
        self._lines = lines
        self._close = close
        self._executor = executor

    def __iter__(self) -> Iterator[bytes]:
        async def line() -> bytes | None:
            return await anext(self._lines, None)

        while (made := self._executor.call_sync(line)) is not None:
            yield made

    def close(self) -> None:
        async def close() -> None:
            await self._lines.aclose()
            await self._close()

        with contextlib.suppress(StateError):  # the executor was closed first, and nothing of it goes on
            self._executor.call_sync(close)
