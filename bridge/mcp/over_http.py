"""The Streamable HTTP transport, so that one failed request costs one call and not the connection.

In the SDK an exception of the HTTP client ends the transport and every call on it, and a status arrives without its
number. `Client` therefore never raises for a POST: what went wrong comes back as the JSON-RPC error of that request,
with what is known of its fate.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import httpx2
import mcp_types as types
from mcp.client.streamable_http import MCP_SESSION_ID, streamable_http_client

from bridge.dialect import is_object
from bridge.mcp import OAuth, wire
from bridge.mcp.server import Remote
from bridge.mcp.text import printable

Token = Callable[[], Awaitable[str] | str]
NOT_SENT: Final = (
    httpx2.ConnectError,
    httpx2.ConnectTimeout,
    httpx2.PoolTimeout,
    httpx2.UnsupportedProtocol,
    httpx2.ProxyError,
)
REDIRECTED: Final = range(300, 400)
CONNECT_S: Final = 30.0  # at most; answers have no deadline here, calls and lists have their own
CONNECTIONS: Final = 1_000  # at once; each call in flight holds one


class HttpConnection:
    """One connection to a server over Streamable HTTP. Used once.

    Args:
        place: Where and as whom.
        extend: Called with seconds when a person must act (sign in) before the connection can be made.
        connect_s: Seconds for each new TCP connection.
    """

    def __init__(self, place: Remote, extend: Callable[[float], None], connect_s: float) -> None:
        self.place = place
        self.fell: str | None = None
        self.unlaunched = False
        self._extend = extend
        self._connect_s = connect_s

    def last_lines(self) -> list[str]:
        """Nothing: a server that is reached over HTTP has no stderr here."""
        return []

    @asynccontextmanager
    async def streams(self) -> AsyncGenerator[tuple[Any, Any]]:
        """Carry messages until the block is left. There is no connection that lasts, so it never ends by itself."""
        client = Client(
            headers=dict(self.place.headers),
            timeout=httpx2.Timeout(min(self._connect_s, CONNECT_S), read=None),
            auth=self._auth(),
            limits=httpx2.Limits(max_connections=CONNECTIONS, max_keepalive_connections=20),
        )
        url, size = self.place.url, wire.LINE_BYTES
        async with client, streamable_http_client(url, http_client=client, max_sse_event_size=size) as streams:
            yield streams

    def _auth(self) -> httpx2.Auth | None:
        oauth = self.place.oauth
        if isinstance(oauth, OAuth):
            from bridge.mcp.oauth import provider

            return provider(oauth, self.place.url, self._extend)
        return oauth if self.place.token is None else Bearer(self.place.token)


class Client(httpx2.AsyncClient):
    """An HTTP client whose POSTs of JSON-RPC requests always have an answer."""

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """As `httpx2.AsyncClient.send`, but a POST never raises an `Exception`."""
        if request.method != "POST":
            return await super().send(request, **options)
        try:
            response = await super().send(request, **options)
        except NOT_SENT as error:
            return _answer(request, "not_sent", f"cannot connect to {_shown(request.url)}: {_said(error)}")
        except httpx2.RequestError as error:
            return _answer(request, "lost", f"the connection to {_shown(request.url)} was lost: {_said(error)}")
        except Exception as error:  # noqa: BLE001  sign-in flows and token providers may raise anything
            return _answer(request, "not_sent", f"signing in to {_shown(request.url)} failed", _said(error))
        if response.status_code in REDIRECTED:
            return response
        if response.status_code == 202:
            await response.aclose()
            return _answer(request, "lost", f"{_shown(request.url)} took the request and will not answer it")
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if response.status_code < 400 and kind != "application/json":
            return response
        try:
            body = await _body(response)
        except httpx2.RequestError as error:
            return _answer(request, "lost", f"the connection to {_shown(request.url)} was lost: {_said(error)}")
        if body is None:
            said = f"the server answered, but with more than {wire.LINE_BYTES:,} bytes: ask it for less"
            return _answer(request, "too_large", said)
        return _judged(request, response, kind, body)


def _judged(request: httpx2.Request, response: httpx2.Response, kind: str, body: bytes) -> httpx2.Response:
    """The response as the SDK is to see it, its body being known."""
    status = response.status_code
    if status == 404 and MCP_SESSION_ID in request.headers:
        return _answer(request, "session_gone", "the server does not know this session any more")
    if status >= 500 or (status >= 400 and status != 404 and not _is_error(body)):
        # What never reached a tool is safe to try again; behind a 5xx anything may have happened.
        fate: wire.Fate = "refused" if status < 500 else "lost"
        return _answer(request, fate, f"{_shown(request.url)} answered with HTTP status {status}{_hint(status)}")
    found = wire.read(body).messages if kind == "application/json" and status < 400 else ()
    if len(found) == 1:
        body = found[0].model_dump_json(by_alias=True, exclude_unset=True).encode()
    headers = [
        (key, value) for key, value in response.headers.items() if key not in ("content-encoding", "content-length")
    ]
    return httpx2.Response(status, headers=headers, content=body, request=request)


async def _body(response: httpx2.Response) -> bytes | None:
    """All of a response, decompressed, or None if it is over the bound. The response is closed."""
    parts: list[bytes] = []
    size = 0
    try:
        async for part in response.aiter_bytes():
            size += len(part)
            if size <= wire.LINE_BYTES:
                parts.append(part)
            elif not response.is_closed:
                parts.clear()
                # Ends the iteration too. Leaving it instead would leave its generators to the garbage collector.
                await response.aclose()
    except Exception:
        if size <= wire.LINE_BYTES:
            raise
    finally:
        await response.aclose()
    return b"".join(parts) if size <= wire.LINE_BYTES else None


def _answer(request: httpx2.Request, fate: wire.Fate, message: str, aside: str = "") -> httpx2.Response:
    """A response made here: the error of the request that was posted, or an empty one to a notification.

    Args:
        request: What was posted.
        fate: What became of it.
        message: What a program may know.
        aside: What only the operator may (exceptions of token providers and stores hold paths and more).
    """
    try:
        posted: Any = json.loads(request.content)
    except (ValueError, httpx2.RequestNotRead):
        posted = None
    number = posted.get("id") if is_object(posted) and "method" in posted else None
    if number is None:
        return httpx2.Response(202, request=request)  # nobody waits for it; the next request meets the same trouble
    text = wire.error(number, fate, message, aside=aside).model_dump_json(by_alias=True, exclude_unset=True)
    return httpx2.Response(200, headers={"content-type": "application/json"}, content=text.encode(), request=request)


def _hint(status: int) -> str:
    if status in (401, 403):
        return ": the credentials are missing, expired or not sufficient"
    return ": too many requests, try later" if status == 429 else ""


def _is_error(body: bytes) -> bool:
    """Whether it is what a server says in JSON-RPC, rather than what something before it says in JSON."""
    try:
        return isinstance(types.jsonrpc_message_adapter.validate_json(body, by_name=False), types.JSONRPCError)
    except ValueError:
        return False


def _shown(url: httpx2.URL) -> str:
    return str(url.copy_with(userinfo=b"", query=None, fragment=None))


def _said(error: Exception) -> str:
    return printable(str(error), 500) or type(error).__name__


class Bearer(httpx2.Auth):
    """`Authorization: Bearer` with a token from a provider, asked for each request, and once more after a 401."""

    def __init__(self, provider: Token) -> None:
        self._provider = provider

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Sign the request; a 401 is answered with a fresh token if the provider has another one."""
        token = await self._token()
        request.headers["Authorization"] = f"Bearer {token}"
        response = yield request
        if response.status_code == 401:
            again = await self._token()
            if again != token:
                request.headers["Authorization"] = f"Bearer {again}"
                yield request

    async def _token(self) -> str:
        given = self._provider()
        token = await given if inspect.isawaitable(given) else given
        if not isinstance(token, str) or not token or not token.isprintable():  # pyright: ignore[reportUnnecessaryIsInstance]  callers without a type checker
            raise ValueError("the token provider returned no token")
        return token
