"""The gateway over Streamable HTTP: who may reach it, and as whom.

On loopback every local process may, as on any local port; Host and Origin are checked, so no web page does. Anywhere
else a bearer token is required: construction fails without one. Sessions belong to the credential that opened them.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from mcp.server.transport_security import TransportSecuritySettings

from bridge.errors import ConfigurationError
from bridge.gateway import clients
from bridge.gateway.clients import Share

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from bridge.gateway.server import Gateway

PATH: Final = "/mcp"
TOKEN_CHARACTERS: Final = 16  # of a token at least
BODY_BYTES: Final = 4 << 20  # of one request; a program has at most 256 KiB
SESSIONS: Final = 1_000  # of all clients
IDLE_S: Final = 1_800.0


class Tokens:
    """Bearer tokens, each a client of its own. Only their hashes are kept.

    Args:
        tokens: `name:token`, or a token alone, which is a client named by its hash.

    Raises:
        ConfigurationError: A token is short, or there are two clients of one name; no text repeats a token.
    """

    def __init__(self, tokens: Iterable[str]) -> None:
        self._clients: dict[str, bytes] = {}
        for number, line in enumerate(tokens, 1):
            name, colon, token = line.strip().partition(":")
            token = token if colon else name
            if len(token) < TOKEN_CHARACTERS or not token.isascii() or any(c.isspace() for c in token):
                raise ConfigurationError(
                    f"token {number} must have {TOKEN_CHARACTERS} visible ASCII characters or more"
                )
            known = hashlib.sha256(token.encode()).digest()
            client = name if colon else f"client-{known.hex()[:12]}"
            if client in self._clients:
                raise ConfigurationError(f"two tokens are for the client {client!r}: one each")
            self._clients[client] = known

    def __len__(self) -> int:
        return len(self._clients)

    async def verify_token(self, token: str) -> AccessToken | None:
        """The client of a token, or None. Takes as long for a wrong one as for a right one."""
        given = hashlib.sha256(token.encode("utf-8", "replace")).digest()
        found: str | None = None
        for client, known in self._clients.items():
            if hmac.compare_digest(given, known):
                found = client
        return None if found is None else AccessToken(token=token, client_id=found, scopes=[])


def http_app(
    gateway: Gateway, *, host: str = "127.0.0.1", tokens: Tokens | None = None, allowed_hosts: Sequence[str] = ()
) -> Starlette:
    """The gateway as an ASGI application.

    Args:
        gateway: Whose `watch` runs beside it.
        host: What it is bound to.
        tokens: Required where that is not loopback.
        allowed_hosts: Names that it is reached by (`tools.example`, `tools.example:8443`), for the Host header; needed
            off loopback. Web pages of these origins may call it too.

    Raises:
        ConfigurationError: It would be open to others.
    """
    if not is_loopback(host):
        if not tokens:
            raise ConfigurationError(f"{host} can be reached by others: give a file of tokens, or bind to 127.0.0.1")
        if not allowed_hosts:
            raise ConfigurationError(f"{host}: say by which names it is reached (--allow-host), for the Host header")
    local = ["127.0.0.1", "127.0.0.1:*", "localhost", "localhost:*", "[::1]", "[::1]:*"] if is_loopback(host) else []
    names = [each for name in allowed_hosts for each in ([name] if ":" in name else [name, f"{name}:*"])]
    security = TransportSecuritySettings(
        enable_dns_rebinding_protection=True,
        allowed_hosts=[*local, *names],
        allowed_origins=[f"{scheme}://{name}" for name in [*local, *names] for scheme in ("http", "https")],
    )
    auth: dict[str, Any] = {}
    if tokens:
        # The SDK wants an issuer; with a resource URL of None it publishes nothing about it.
        settings = AuthSettings.model_validate({"issuer_url": f"http://{NO_ISSUER}", "resource_server_url": None})
        auth = {"auth": settings, "token_verifier": tokens}
    app = gateway.server.streamable_http_app(
        streamable_http_path=PATH,
        host=host,
        transport_security=security,
        max_request_body_size=BODY_BYTES,
        max_sessions=SESSIONS,
        session_idle_timeout=IDLE_S,
        **auth,
    )
    app.add_middleware(Share, idle_s=IDLE_S, sessions=clients.SESSIONS if tokens else SESSIONS)
    return app


NO_ISSUER: Final = "localhost"  # tokens come from a file: nobody is sent there


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach what is bound to it."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"
