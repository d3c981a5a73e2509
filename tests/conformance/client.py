"""The client that the conformance suite drives: `bridge.mcp`, as an executor uses it, does what a scenario asks for.

The suite names the scenario in MCP_CONFORMANCE_SCENARIO, gives what it needs beyond that as JSON in
MCP_CONFORMANCE_CONTEXT, and the address of its server as the last argument. Exit status: 0 when the scenario was played
to its end, 1 when the server could not be used; what was right about it the suite decides from what it received.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import tempfile
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import httpx2
from mcp.client.auth.extensions.client_credentials import (
    ClientCredentialsOAuthProvider,
    PrivateKeyJWTOAuthProvider,
    SignedJWTParameters,
)
from mcp.client.auth.extensions.identity_assertion import IdentityAssertionOAuthProvider
from mcp.client.auth.utils import build_protected_resource_metadata_discovery_urls

from bridge import Elicitation, ElicitationAnswer, ToolError, mcp
from bridge.mcp.oauth import TokenFile
from bridge.tools import ToolContext

SCENARIO = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
CONTEXT: dict[str, Any] = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
DOCUMENT = "https://conformance-test.local/client-metadata.json"  # the one that the suite's server knows
STUBS: dict[str, Any] = {"string": "x", "integer": 0, "number": 0, "boolean": False, "object": {}, "array": []}


async def call(server: mcp.Server, name: str, arguments: dict[str, Any] | None = None) -> None:
    """Call a tool of the server. One that it does not offer is left alone, and a tool's failure is no failure here."""
    tool = next((each for each in server.tools if each.name == name), None)
    if tool is None or tool.handler is None:
        print(f"not offered: {name}", file=sys.stderr)
        return
    try:
        print(name, await tool.handler(arguments or {}, ToolContext(run_id="r", call_id="c", idempotency_key="c")))
    except ToolError as error:
        print(name, error, file=sys.stderr)


def needed(schema: Any) -> dict[str, Any]:
    """Arguments that a schema's `required` is content with."""
    properties = schema.get("properties", {})
    return {name: STUBS.get(properties.get(name, {}).get("type"), "x") for name in schema.get("required", [])}


async def accept(question: Elicitation) -> ElicitationAnswer:
    """Say yes, with the defaults that the question has."""
    fields = (question.requested_schema or {}).get("properties", {})
    given = {name: field["default"] for name, field in fields.items() if "default" in field}
    return ElicitationAnswer.accept(given or dict.fromkeys(fields, True))


# ---- scenarios ------------------------------------------------------------------------------------------------------


async def adds(server: mcp.Server) -> None:
    await call(server, "add_numbers", {"a": 5, "b": 3})


async def reconnects(server: mcp.Server) -> None:
    await call(server, "test_reconnection")


async def takes_defaults(server: mcp.Server) -> None:
    await call(server, "test_client_elicitation_defaults")


async def goes_rounds(server: mcp.Server) -> None:
    for name in ("test_mrtr_echo_state", "test_mrtr_unrelated", "test_mrtr_no_state", "test_mrtr_no_result_type"):
        await call(server, name)


async def calls_everything(server: mcp.Server) -> None:
    for tool in server.tools:
        await call(server, tool.name, needed(tool.input_schema))


async def calls_as_told(server: mcp.Server) -> None:
    for told in CONTEXT.get("toolCalls", []):
        await call(server, told["name"], told.get("arguments"))


async def echoes_a_schema(server: mcp.Server) -> None:
    schema = next(tool.input_schema for tool in server.tools if tool.name == "json_schema_2020_12_tool")
    await call(server, "json_schema_echo", {"schema": schema})


async def uses_all(server: mcp.Server) -> None:
    await calls_everything(server)
    for resource in (await server.ask(lambda client: client.list_resources())).resources[:1]:
        await server.ask(lambda client, uri=resource.uri: client.read_resource(uri))
    for prompt in (await server.ask(lambda client: client.list_prompts())).prompts[:1]:
        await server.ask(lambda client, name=prompt.name: client.get_prompt(name))


async def calls_the_first(server: mcp.Server) -> None:
    if server.tools:
        await call(server, server.tools[0].name)


async def only_lists(server: mcp.Server) -> None:
    pass


SCENARIOS: dict[str, Callable[[mcp.Server], Awaitable[None]]] = {
    "initialize": only_lists,
    "tools_call": adds,
    "request-metadata": adds,
    "sse-retry": reconnects,
    "elicitation-sep1034-client-defaults": takes_defaults,
    "sep-2322-client-request-state": goes_rounds,
    "http-standard-headers": uses_all,
    "http-invalid-tool-headers": calls_everything,
    "http-custom-headers": calls_as_told,
    "json-schema-ref-no-deref": only_lists,
    "json-schema-2020-12-preservation": echoes_a_schema,
}


# ---- signing in -----------------------------------------------------------------------------------------------------


class Browser:
    """A person who follows an address at once, in a browser of their own."""

    def __call__(self, address: str) -> None:
        threading.Thread(target=self._visit, args=(address,), daemon=True).start()

    def _visit(self, address: str) -> None:
        with httpx2.Client(follow_redirects=True, timeout=20) as client:
            client.get(address)


def signing_in(url: str, directory: Path) -> Any:
    """What an application gives to `mcp.http(oauth=...)` in a scenario."""
    store = TokenFile(directory / "client.json", url)
    if SCENARIO == "auth/client-credentials-basic":
        return ClientCredentialsOAuthProvider(url, store, CONTEXT["client_id"], CONTEXT["client_secret"])
    if SCENARIO == "auth/client-credentials-jwt":
        signed = SignedJWTParameters(
            issuer=CONTEXT["client_id"],
            subject=CONTEXT["client_id"],
            signing_algorithm=CONTEXT.get("signing_algorithm", "ES256"),
            signing_key=CONTEXT["private_key_pem"],
        )
        return PrivateKeyJWTOAuthProvider(url, store, CONTEXT["client_id"], signed.create_assertion_provider())
    if SCENARIO == "auth/enterprise-managed-authorization":
        return IdentityAssertionOAuthProvider(
            url,
            store,
            CONTEXT["client_id"],
            CONTEXT["client_secret"],
            issuer=issuer_of(url),
            assertion_provider=assertion,
            token_endpoint_auth_method="client_secret_basic",
        )
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return mcp.OAuth(
        store=directory / "tokens.json",
        redirect_uri=f"http://127.0.0.1:{port}/callback",
        open_browser=Browser(),
        sign_in_s=20,
        client_id=CONTEXT.get("client_id"),
        client_secret=CONTEXT.get("client_secret"),
        client_metadata_url=None if "client_id" in CONTEXT else DOCUMENT,
    )


def issuer_of(url: str) -> str:
    """The authorization server of a company, which its people would know; the suite tells it by its metadata only."""
    (place, *_) = build_protected_resource_metadata_discovery_urls(None, url)
    return httpx2.get(place, timeout=20).raise_for_status().json()["authorization_servers"][0]


async def assertion(audience: str, resource: str) -> str:
    """What the company's identity provider gives for this person's token (RFC 8693)."""
    data = {
        "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
        "requested_token_type": "urn:ietf:params:oauth:token-type:id-jag",
        "subject_token": CONTEXT["idp_id_token"],
        "subject_token_type": "urn:ietf:params:oauth:token-type:id_token",
        "audience": audience,
        "resource": resource,
        "client_id": CONTEXT["idp_client_id"],
    }
    async with httpx2.AsyncClient(timeout=20) as client:
        answer = await client.post(CONTEXT["idp_token_endpoint"], data=data)
    return answer.raise_for_status().json()["access_token"]


async def main(url: str, directory: Path) -> int:
    play = SCENARIOS.get(SCENARIO, calls_the_first)
    oauth = signing_in(url, directory) if SCENARIO.startswith("auth/") else None
    server = mcp.http("suite", url, oauth=oauth, connect_s=60)
    async with anyio.create_task_group() as tasks:
        await server.start(tasks, elicit=accept)
        try:
            if server.error is None:
                await play(server)
        finally:
            await server.stop()
    if server.error is not None:
        print(server.error, file=sys.stderr)
    return 0 if server.error is None else 1


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        sys.exit(anyio.run(main, sys.argv[-1], Path(made)))
