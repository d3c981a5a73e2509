"""An MCP server made with the SDK, over Streamable HTTP on loopback, in a thread of the test's own process.

It speaks both revisions, so clients get 2026-07-28; with `oauth` it is its own authorization server, which says yes.
"""

from __future__ import annotations

import secrets
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import anyio
import mcp_types as types
import uvicorn
from mcp.server import Server
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    ProviderTokenVerifier,
    RefreshToken,
    construct_redirect_uri,
)
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from pydantic import AnyHttpUrl

OBJECT = {"type": "object"}


class Served:
    """The server's state; everything in it may be changed from the test's thread."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.names = ["echo", "big", "who"]
        self.bus = InMemorySubscriptionBus()
        self.auth = AlwaysYes()
        self.cancelled = threading.Event()
        self._loop: Any = None

    async def list_tools(self, context: Any, params: Any) -> types.ListToolsResult:
        self._loop = anyio.lowlevel.current_token()
        tools = [types.Tool(name=name, input_schema=OBJECT) for name in [*self.names, "sleep", "change"]]
        return types.ListToolsResult(tools=tools)

    async def call_tool(self, context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        arguments = params.arguments or {}
        if params.name == "big":
            await context.session.send_progress_notification("x", 1)  # makes the answer a stream of events
            return types.CallToolResult(content=[types.TextContent(text="x" * arguments["bytes"])])
        if params.name == "sleep":
            try:
                await anyio.sleep_forever()
            finally:
                self.cancelled.set()
        if params.name == "change":
            self.names.append(arguments["name"])
            await self.bus.publish(ToolsListChanged())
        return types.CallToolResult(content=[], structured_content=arguments)


class AlwaysYes:
    """An authorization server in memory whose one user agrees to everything at once."""

    def __init__(self) -> None:
        self.clients: dict[str, OAuthClientInformationFull] = {}
        self.codes: dict[str, AuthorizationCode] = {}
        self.access: dict[str, AccessToken] = {}
        self.refresh: dict[str, RefreshToken] = {}
        self.expires_in = 3600
        self.refused = False

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return self.clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        assert client_info.client_id is not None
        self.clients[client_info.client_id] = client_info

    async def authorize(self, client: OAuthClientInformationFull, params: AuthorizationParams) -> str:
        back = str(params.redirect_uri)
        if self.refused:
            return construct_redirect_uri(back, error="access_denied", state=params.state)
        code = AuthorizationCode(
            code=secrets.token_urlsafe(24),
            scopes=params.scopes or [],
            expires_at=time.time() + 60,
            client_id=client.client_id or "",
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
            resource=params.resource,
        )
        self.codes[code.code] = code
        return construct_redirect_uri(back, code=code.code, state=params.state)

    async def load_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: str
    ) -> AuthorizationCode | None:
        return self.codes.get(authorization_code)

    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        del self.codes[authorization_code.code]
        return self._issue(client.client_id or "", authorization_code.scopes, authorization_code.resource)

    def _access(self, token: str) -> AccessToken:
        return AccessToken(token=token, client_id="somebody", scopes=[])

    def _issue(self, client_id: str, scopes: list[str], resource: str | None) -> OAuthToken:
        access, refresh = secrets.token_urlsafe(24), secrets.token_urlsafe(24)
        self.access[access] = AccessToken(token=access, client_id=client_id, scopes=scopes, resource=resource)
        self.refresh[refresh] = RefreshToken(token=refresh, client_id=client_id, scopes=scopes)
        return OAuthToken(
            access_token=access, refresh_token=refresh, expires_in=self.expires_in, scope=" ".join(scopes)
        )

    async def load_refresh_token(self, client: OAuthClientInformationFull, refresh_token: str) -> RefreshToken | None:
        return self.refresh.get(refresh_token)

    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        del self.refresh[refresh_token.token]
        return self._issue(client.client_id or "", scopes, None)

    async def load_access_token(self, token: str) -> AccessToken | None:
        return self.access.get(token)

    async def revoke_token(self, token: AccessToken | RefreshToken) -> None:
        self.access.pop(token.token, None)


@contextmanager
def served(*, oauth: bool = False, subscriptions: bool = True) -> Iterator[Served]:
    """The server, while the block lasts."""
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        root = f"http://127.0.0.1:{listening.getsockname()[1]}"
        state = Served(f"{root}/mcp")
        server: Server[Any] = Server(
            "sdk",
            instructions="Ask nicely.",
            on_list_tools=state.list_tools,
            on_call_tool=state.call_tool,
            on_subscriptions_listen=ListenHandler(state.bus) if subscriptions else None,
        )
        settings = AuthSettings(
            issuer_url=AnyHttpUrl(root),
            resource_server_url=AnyHttpUrl(state.url),
            validate_token_resource=False,
            client_registration_options=ClientRegistrationOptions(enabled=True),
        )
        guards: dict[str, Any] = {
            "auth": settings,
            "auth_server_provider": state.auth,
            "token_verifier": ProviderTokenVerifier(state.auth),
        }
        app = server.streamable_http_app(**(guards if oauth else {}))
        config = uvicorn.Config(app, log_level="critical", ws="none", timeout_graceful_shutdown=0, lifespan="on")
        web = uvicorn.Server(config)
        thread = threading.Thread(target=web.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield state
        finally:
            web.should_exit = web.force_exit = True
            thread.join()
