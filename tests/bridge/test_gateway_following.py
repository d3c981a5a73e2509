"""Hosts hear of changes of single resources of servers behind the gateway, in both revisions on both sides."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError

from bridge import Executor, mcp
from bridge.gateway import Gateway, following
from sandbox import Sandbox
from tests.bridge.odd_servers import ROOT

pytestmark = pytest.mark.anyio
SCRIPT = ROOT / "tests" / "servers" / "watched.py"
URI = "sandbridge://watched/memo://note"
CHANGE = {"program": "return await tools.watched.change({})"}


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(params=["2025-11-25", "2026-07-28"])
def revision(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module", params=[[], ["--older"]], ids=["server 2026", "server 2025"])
async def gateway(request: pytest.FixtureRequest, opened: Sandbox) -> AsyncGenerator[Gateway]:
    server = mcp.stdio("watched", sys.executable, [str(SCRIPT), *request.param], require_approval="never")
    async with Executor([server], sandbox=opened) as executor, anyio.create_task_group() as tasks:
        gateway = Gateway(executor)
        tasks.start_soon(gateway.watch)
        yield gateway
        tasks.cancel_scope.cancel()


class Heard:
    """What a host was told."""

    def __init__(self) -> None:
        self.uris: list[str] = []
        self.told = anyio.Event()

    async def __call__(self, message: Any) -> None:
        if isinstance(message, types.ResourceUpdatedNotification):
            self.hear(str(message.params.uri))

    def hear(self, uri: str) -> None:
        self.uris.append(uri)
        self.told.set()


@asynccontextmanager
async def host(gateway: Gateway, revision: str, heard: Heard | None = None) -> AsyncGenerator[Client]:
    mode = "legacy" if revision == "2025-11-25" else "auto"
    with anyio.fail_after(60):
        async with Client(gateway.server, mode=mode, message_handler=heard) as client:
            yield client


@asynccontextmanager
async def subscribed(client: Client, heard: Heard) -> AsyncGenerator[None]:
    """As a host of its revision subscribes, until the block is left."""
    if client.protocol_version == "2025-11-25":
        request = types.SubscribeRequest(params=types.SubscribeRequestParams(uri=URI))
        await client.session.send_request(request, types.EmptyResult)
        yield
        done = types.UnsubscribeRequest(params=types.UnsubscribeRequestParams(uri=URI))
        await client.session.send_request(done, types.EmptyResult)
        return
    async with client.listen(resource_subscriptions=[URI]) as events, anyio.create_task_group() as tasks:

        async def listen() -> None:
            async for event in events:
                heard.hear(event.uri)

        tasks.start_soon(listen)
        yield
        tasks.cancel_scope.cancel()


async def changed(client: Client, heard: Heard) -> None:
    """Change the resource until the host has heard of it: who subscribes has no word from the server behind."""
    while not heard.told.is_set():
        await client.call_tool("run_program", CHANGE)


async def test_a_host_hears_of_a_change_and_reads_what_is_new(gateway: Gateway, revision: str) -> None:
    heard = Heard()
    async with host(gateway, revision, heard) as client, subscribed(client, heard):
        await changed(client, heard)
        (content,) = (await client.read_resource(URI)).contents
    assert set(heard.uris) == {URI}
    assert isinstance(content, types.TextResourceContents)
    assert content.text == "second"


async def test_a_resource_is_followed_once_and_no_longer_than_somebody_wants(gateway: Gateway, revision: str) -> None:
    one, other = Heard(), Heard()
    async with host(gateway, revision, one) as client, subscribed(client, one):
        async with host(gateway, "2026-07-28", other) as second, subscribed(second, other):
            assert list(gateway._following._followed) == [URI]
            await changed(client, other)
        assert list(gateway._following._followed) == [URI]
    with anyio.fail_after(30):
        while gateway._following._followed:
            await anyio.lowlevel.checkpoint()


async def test_a_resource_of_no_server_cannot_be_followed(gateway: Gateway) -> None:
    async with host(gateway, "2025-11-25") as client:
        params = types.SubscribeRequestParams(uri="sandbridge://nobody/x")
        with pytest.raises(MCPError) as caught:
            await client.session.send_request(types.SubscribeRequest(params=params), types.EmptyResult)
    assert str(caught.value) == "there is no resource sandbridge://nobody/x to follow"


async def test_one_session_follows_no_more_than_its_share(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "EACH", 0)
    async with host(gateway, "2025-11-25") as client:
        params = types.SubscribeRequestParams(uri=URI)
        with pytest.raises(MCPError) as caught:
            await client.session.send_request(types.SubscribeRequest(params=params), types.EmptyResult)
    assert str(caught.value) == "0 resources are followed in this session: unsubscribe from one"
