"""Signing in to a server with OAuth: the SDK's flow, tokens in a file, and a page on loopback that takes the code.

The person signs in once in a browser; afterwards the refresh token in the file does. The file is the owner's alone
(mode 0600), one entry for each server URL; whoever reads it can act as that person.
"""

from __future__ import annotations

import inspect
import json
import os
import tempfile
import time
import webbrowser
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs, urlsplit

import anyio
from anyio.abc import SocketStream
from mcp.client.auth import OAuthClientProvider
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthClientMetadata, OAuthToken
from pydantic import AnyUrl

from bridge.dialect import is_object

if TYPE_CHECKING:
    from bridge.mcp import OAuth

REQUEST_BYTES: Final = 16 << 10  # of the browser's request; real ones have a few hundred
PAGE: Final = "<!doctype html><meta charset=utf-8><title>Signed in</title><p>{} You can close this page.</p>"


class TokenFile:
    """The SDK's token storage in a JSON file, for one server.

    Args:
        path: The file; made, with its directory, when there is something to keep.
        url: The server.
        loaded: Called with the time (seconds since the epoch) at which stored tokens expire, or None.
        registered: As whom the client was registered by hand; then no registration is kept in the file.
    """

    def __init__(
        self,
        path: Path,
        url: str,
        loaded: Callable[[float | None], None] = lambda at: None,
        registered: OAuthClientInformationFull | None = None,
    ) -> None:
        self._path = path
        self._url = url
        self._registered = registered
        self.loaded = loaded

    async def get_tokens(self) -> OAuthToken | None:
        """The stored tokens, or None."""
        entry = self._entry()
        if "tokens" not in entry:
            return None
        self.loaded(entry.get("expires_at"))
        return OAuthToken.model_validate(entry["tokens"])

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Keep tokens, with the time they expire: `expires_in` alone says nothing tomorrow."""
        at = None if tokens.expires_in is None else time.time() + tokens.expires_in
        self._change(tokens=tokens.model_dump(mode="json", exclude_none=True), expires_at=at)

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """As whom this client is registered, or None."""
        if self._registered is not None:
            return self._registered
        entry = self._entry()
        return OAuthClientInformationFull.model_validate(entry["client"]) if "client" in entry else None

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Keep the registration."""
        self._change(client=client_info.model_dump(mode="json", exclude_none=True))

    def _all(self) -> dict[str, Any]:
        try:
            found = json.loads(self._path.read_text("utf-8"))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise ValueError(f"the token store {self._path} cannot be read ({error}): mend or remove it") from None
        return found if is_object(found) else {}

    def _entry(self) -> dict[str, Any]:
        entry = self._all().get(self._url)
        return entry if is_object(entry) else {}

    def _change(self, **values: Any) -> None:
        everything = self._all()
        everything[self._url] = {**self._entry(), **values}
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        # mkstemp makes the file 0600; the rename replaces a wider one and is never half done.
        number, name = tempfile.mkstemp(dir=self._path.parent, prefix=f".{self._path.name}.")
        try:
            with os.fdopen(number, "w", encoding="utf-8") as file:
                json.dump(everything, file, indent=1)
            Path(name).replace(self._path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise


def provider(settings: OAuth, url: str, extend: Callable[[float], None]) -> OAuthClientProvider:
    """The SDK's OAuth for one connection.

    Args:
        settings: The developer's.
        url: The server.
        extend: Called with seconds when a person is asked to sign in.
    """
    storage = TokenFile(Path(settings.store), url, registered=_registered(settings))
    redirect = Redirect(settings.redirect_uri, settings.sign_in_s)

    async def ask(address: str) -> None:
        extend(settings.sign_in_s)
        await redirect.listen()
        open_browser: Callable[[str], Awaitable[None] | object] = settings.open_browser or webbrowser.open
        answer = open_browser(address)
        if inspect.isawaitable(answer):
            await answer

    made = OAuthClientProvider(
        url,
        OAuthClientMetadata(
            redirect_uris=[AnyUrl(settings.redirect_uri)],
            client_name=settings.client_name,
            scope=" ".join(settings.scopes) or None,
            token_endpoint_auth_method="none",  # noqa: S106  a public client: PKCE instead of a secret
        ),
        storage,
        redirect_handler=ask,
        callback_handler=redirect.code,
        client_metadata_url=settings.client_metadata_url,
    )

    def loaded(expires_at: float | None) -> None:
        made.context.token_expiry_time = expires_at

    storage.loaded = loaded
    return made


def _registered(settings: OAuth) -> OAuthClientInformationFull | None:
    if settings.client_id is None:
        return None
    return OAuthClientInformationFull(
        client_id=settings.client_id,
        client_secret=settings.client_secret,
        redirect_uris=[AnyUrl(settings.redirect_uri)],
        token_endpoint_auth_method="none" if settings.client_secret is None else "client_secret_basic",
    )


class Redirect:
    """The page on loopback to which the browser comes back with the code (RFC 8252, 7.3)."""

    def __init__(self, uri: str, seconds: float) -> None:
        parts = urlsplit(uri)
        self._host, self._port, self._path = parts.hostname or "127.0.0.1", parts.port or 80, parts.path or "/"
        self._seconds = seconds
        self._listener: Any = None

    async def listen(self) -> None:
        """Be there before the browser is.

        Raises:
            OSError: The port is taken.
        """
        self._listener = await anyio.create_tcp_listener(local_host=self._host, local_port=self._port)

    async def code(self) -> AuthorizationCodeResult:
        """What the browser brought.

        Raises:
            TimeoutError: Nobody signed in in time.
            ValueError: The server sent an error in place of a code.
        """
        found: list[dict[str, str]] = []
        listener, self._listener = self._listener, None

        async def serve(stream: SocketStream) -> None:
            async with stream:
                with suppress(anyio.BrokenResourceError, anyio.EndOfStream, ValueError):
                    query = _query(await _request(stream), self._path)
                    fine = query is not None and ("code" in query or "error" in query)
                    said = "Signed in." if query and "code" in query else "Not signed in."
                    page = PAGE.format(said).encode() if fine else b"not found"
                    status = "200 OK" if fine else "404 Not Found"
                    about = f"Content-Type: text/html\r\nContent-Length: {len(page)}\r\nConnection: close"
                    await stream.send(f"HTTP/1.1 {status}\r\n{about}\r\n\r\n".encode() + page)
                    if query is not None and fine:
                        found.append(query)
                        serving.cancel_scope.cancel()

        async with listener:
            with anyio.fail_after(self._seconds):
                async with anyio.create_task_group() as serving:
                    await listener.serve(serve)
        query = found[0]
        if "code" not in query:
            raise ValueError(f"the server refused to sign in: {query.get('error_description') or query['error']}")
        return AuthorizationCodeResult(code=query["code"], state=query.get("state"), iss=query.get("iss"))


async def _request(stream: SocketStream) -> str:
    """The first line of an HTTP request, all of whose head has been read."""
    data = b""
    while b"\r\n\r\n" not in data and len(data) < REQUEST_BYTES:
        data += await stream.receive()
    return data.split(b"\r\n", 1)[0].decode("latin-1")


def _query(line: str, path: str) -> dict[str, str] | None:
    """The query of a `GET` of the redirect's path, or None for anything else (browsers ask for an icon too)."""
    method, _, rest = line.partition(" ")
    parts = urlsplit(rest.partition(" ")[0])
    if method != "GET" or parts.path != path:
        return None
    return {key: values[0] for key, values in parse_qs(parts.query).items()}
