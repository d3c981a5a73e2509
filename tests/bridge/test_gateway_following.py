"""Hosts hear of changes of servers behind the gateway, of resources and of lists, in both revisions on both sides."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import mcp_types as types
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import PromptsListChanged, ResourcesListChanged, ServerEvent, ToolsListChanged

from bridge import Executor, mcp
from bridge.gateway import Gateway, following, upstream
from sandbox import Sandbox
from tests.bridge.hosts import mode
from tests.bridge.odd_servers import ROOT

pytestmark = pytest.mark.anyio
SCRIPT = ROOT / "tests" / "servers" / "watched.py"
URI = "sandbridge://watched/memo://note"
CHANGE = {"program": "return await tools.watched.change({})"}


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def gateway(older: list[str], opened: Sandbox) -> AsyncGenerator[Gateway]:
    server = mcp.stdio("watched", sys.executable, [str(SCRIPT), *older], require_approval="never")
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
async def host(gateway: Gateway, revision: str, heard: Heard | Lists | None = None) -> AsyncGenerator[Client]:
    with anyio.fail_after(60):
        async with Client(gateway.server, mode=mode(revision), message_handler=heard) as client:
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


async def test_a_resource_that_its_server_cannot_tell_of_is_said_so_once_in_the_log(
    opened: Sandbox, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "tools.json").write_text("[]")
    monkeypatch.setattr(following, "AGAIN_S", 0)
    server = mcp.stdio("small", sys.executable, [str(SCRIPT.with_name("listed.py")), str(tmp_path / "tools.json")])
    tries: list[str] = []
    follow = server.ask

    async def ask(*given: Any) -> Any:
        tries.append("")
        return await follow(*given)

    monkeypatch.setattr(server, "ask", ask)
    async with Executor([server], sandbox=opened) as executor, anyio.create_task_group() as tasks:
        gateway = Gateway(executor)
        tasks.start_soon(gateway.watch)
        async with host(gateway, "2025-11-25") as client:
            params = types.SubscribeRequestParams(uri="sandbridge://small/memo://note")
            await client.session.send_request(types.SubscribeRequest(params=params), types.EmptyResult)
            while len(tries) < 3:
                await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()
    (said,) = [line for line in caplog.messages if "memo://note" in line]
    assert said == "sandbridge://small/memo://note cannot be followed now, and is tried again: unknown"


async def test_one_session_follows_no_more_than_its_share(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "EACH", 0)
    async with host(gateway, "2025-11-25") as client:
        params = types.SubscribeRequestParams(uri=URI)
        with pytest.raises(MCPError) as caught:
            await client.session.send_request(types.SubscribeRequest(params=params), types.EmptyResult)
    assert str(caught.value) == "0 resources are followed in this session: unsubscribe from one"


async def test_a_list_that_is_cut_is_said_so_in_the_log(
    opened: Sandbox, revision: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(upstream, "PAGES", 3)
    (tmp_path / "tools.json").write_text("[]")
    server = mcp.stdio("endless", sys.executable, [str(SCRIPT.with_name("listed.py")), str(tmp_path / "tools.json")])
    async with Executor([server], sandbox=opened) as executor, host(Gateway(executor), revision) as client:
        listed = (await client.list_resources()).resources
    assert [resource.name for resource in listed] == ["endless/0", "endless/1", "endless/2"]
    assert caplog.messages == ["server endless: a list of it goes on after 3 pages, and the rest was left out"]


# ---- lists ----------------------------------------------------------------------------------------------------------


class Lists:
    """What a host was told of changed lists."""

    def __init__(self) -> None:
        self.changed: set[str] = set()
        self.told = anyio.Event()

    async def __call__(self, message: Any) -> None:
        match message:
            case types.PromptListChangedNotification():
                self.hear("prompt")
            case types.ResourceListChangedNotification():
                self.hear("resource")
            case types.ToolListChangedNotification():
                self.hear("tool")
            case _:
                pass

    def hear(self, kind: str) -> None:
        self.changed.add(kind)
        self.told.set()


@asynccontextmanager
async def following_lists(client: Client, lists: Lists) -> AsyncGenerator[None]:
    """As a host of its revision does: the newer one asks for a stream of changes."""
    if client.protocol_version == "2025-11-25":
        yield
        return
    kinds: dict[type[ServerEvent], str] = {
        PromptsListChanged: "prompt",
        ResourcesListChanged: "resource",
        ToolsListChanged: "tool",
    }
    async with (
        client.listen(tools_list_changed=True, prompts_list_changed=True, resources_list_changed=True) as events,
        anyio.create_task_group() as tasks,
    ):

        async def listen() -> None:
            async for event in events:
                lists.hear(kinds[type(event)])

        tasks.start_soon(listen)
        yield
        tasks.cancel_scope.cancel()


async def listed(client: Client, kind: str) -> list[str]:
    if kind == "prompt":
        return [prompt.name for prompt in (await client.list_prompts(cache_mode="refresh")).prompts]
    return [resource.name for resource in (await client.list_resources(cache_mode="refresh")).resources]


@pytest.mark.parametrize("kind", ["prompt", "resource"])
async def test_a_host_hears_that_a_server_has_other_prompts_or_resources(
    gateway: Gateway, revision: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bridge.gateway.server.WATCH_S", 0.01)
    lists, name = Lists(), f"more for {revision}"
    program = {"program": "await tools.watched.more(inputs)", "inputs": {"kind": kind, "name": name}}
    async with host(gateway, revision, lists) as client, following_lists(client, lists):
        capabilities = client.server_capabilities
        assert capabilities.prompts is not None
        assert capabilities.resources is not None
        assert (capabilities.prompts.list_changed, capabilities.resources.list_changed) == (True, True)
        assert f"watched/{name}" not in await listed(client, kind)
        await client.call_tool("run_program", program)
        await lists.told.wait()
        assert f"watched/{name}" in await listed(client, kind)
    assert lists.changed == {kind}


async def test_a_server_that_comes_back_has_its_lists_announced(
    opened: Sandbox, revision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bridge.gateway.server.WATCH_S", 0.01)
    server = mcp.stdio("watched", sys.executable, [str(SCRIPT)], require_approval="never")
    lists = Lists()
    async with Executor([server], sandbox=opened) as executor, anyio.create_task_group() as tasks:
        gateway = Gateway(executor)
        tasks.start_soon(gateway.watch)
        async with host(gateway, revision, lists) as client, following_lists(client, lists):
            assert await listed(client, "prompt") == ["watched/greet"]
            await client.call_tool("run_program", {"program": "await tools.watched.end({})"})
            while server.error is None:
                await anyio.lowlevel.checkpoint()
            assert await listed(client, "prompt") == []
            await client.call_tool("run_program", {"program": "await tools.watched.say({})"})
            while lists.changed != {"prompt", "resource"}:
                await lists.told.wait()
                lists.told = anyio.Event()
            assert await listed(client, "prompt") == ["watched/greet"]
        tasks.cancel_scope.cancel()
