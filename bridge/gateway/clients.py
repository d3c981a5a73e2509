"""What one client may keep open: no more than its share, so that none can take the places of the others.

Hosts of the older revision (2025-11-25) have sessions, over HTTP; those of the newer one have subscriptions. For a
session a client is its credential as it stands in the request; what is behind this checks it, and opens none for a
wrong one.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import mcp_types as types
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from starlette.datastructures import Headers
from starlette.responses import JSONResponse

from bridge.gateway.runs import SESSION_HEADER, Owner, owner_of

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext
    from mcp.server.subscriptions import ListenHandler
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

SESSIONS: Final = 50  # of one client
LISTENING: Final = 50  # subscriptions of one client
_GONE: Final = (404, 410)


@dataclass
class _Session:
    busy: int = 0
    seen: float = 0.0


def _credential(headers: Headers) -> str:
    """The token of a request as the SDK reads it: the scheme before it may be written in many ways."""
    return headers.get("authorization", "")[len("Bearer ") :]


class Listening:
    """`subscriptions/listen`, as the SDK serves it.

    Args:
        following: Has resources followed while it does what it is given.
    """

    def __init__(
        self,
        serve: ListenHandler,
        following: Callable[[list[str], Callable[[], Awaitable[None]]], Awaitable[None]],
    ) -> None:
        self._serve = serve
        self._following = following
        self._open: Counter[Owner] = Counter()

    async def __call__(
        self, ctx: ServerRequestContext[Any, Any], params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        """Serve one stream until its client has gone. `MCPError`: the client has its share of them."""
        owner = owner_of()
        if self._open[owner] >= LISTENING:
            raise MCPError(types.INTERNAL_ERROR, f"{LISTENING} subscriptions of yours are open: end one of them")
        self._open[owner] += 1
        try:
            done: list[types.SubscriptionsListenResult] = []

            async def work() -> None:
                done.append(await self._serve(ctx, params))

            await self._following([str(uri) for uri in params.notifications.resource_subscriptions or ()], work)
            return done[0]
        finally:
            self._open[owner] -= 1
            if not self._open[owner]:
                del self._open[owner]


class Share:
    """Refuses a session to a client that has its share of them; ASGI.

    Args:
        idle_s: Seconds after which a session is closed that nobody uses, by what is behind this.
        sessions: Of one client.
    """

    def __init__(self, app: ASGIApp, *, idle_s: float, sessions: int = SESSIONS) -> None:
        self._app = app
        self._idle_s = idle_s
        self._share = sessions
        self._open: dict[str, dict[str, _Session]] = {}
        self._opening: dict[str, int] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        client, session = _credential(headers), headers.get(SESSION_HEADER)
        if session is not None:
            await self._within(client, session, scope, receive, send)
        elif scope["method"] == "POST" and headers.get("mcp-protocol-version") not in MODERN_PROTOCOL_VERSIONS:
            await self._first(client, scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _within(self, client: str, name: str, scope: Scope, receive: Receive, send: Send) -> None:
        """A request of a session; one that ends it, or finds that it is over, gives its place back."""
        sessions = self._open.get(client, {})
        session = sessions.get(name) or _Session()
        session.busy += 1

        async def seen(message: Message) -> None:
            if message["type"] == "http.response.start":
                ended = scope["method"] == "DELETE" and message["status"] < 300
                if ended or message["status"] in _GONE:
                    sessions.pop(name, None)
            await send(message)

        try:
            await self._app(scope, receive, seen)
        finally:
            session.busy -= 1
            session.seen = time.monotonic()

    async def _first(self, client: str, scope: Scope, receive: Receive, send: Send) -> None:
        """A request that may open a session."""
        over = time.monotonic() - self._idle_s
        sessions = {
            name: session for name, session in self._open.pop(client, {}).items() if session.busy or session.seen > over
        }
        if sessions:
            self._open[client] = sessions
        if len(sessions) + self._opening.get(client, 0) >= self._share:
            text = f"{self._share} sessions of yours are open: end one (DELETE), or let one be idle"
            error = {"jsonrpc": "2.0", "id": None, "error": {"code": -32603, "message": text}}
            await JSONResponse(error, status_code=429)(scope, receive, send)
            return

        async def opened(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] < 300:
                name = Headers(raw=message["headers"]).get(SESSION_HEADER)
                if name is not None:
                    self._open.setdefault(client, {})[name] = _Session(0, time.monotonic())
            await send(message)

        self._opening[client] = self._opening.get(client, 0) + 1
        try:
            await self._app(scope, receive, opened)
        finally:
            self._opening[client] -= 1
            if not self._opening[client]:
                del self._opening[client]
