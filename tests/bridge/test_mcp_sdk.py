"""Against a server made with the SDK, which speaks 2026-07-28 over HTTP: changes, streams, cancelling."""

from __future__ import annotations

from collections.abc import Iterator

import anyio
import pytest

from bridge import ToolError, mcp
from bridge.mcp import owner
from tests.bridge.odd_servers import call, opened, tool
from tests.servers.sdk_http import Served, served

pytestmark = pytest.mark.anyio


@pytest.fixture
def sdk() -> Iterator[Served]:
    with served() as state:
        yield state


@pytest.fixture
def silent() -> Iterator[Served]:
    with served(subscriptions=False) as state:
        yield state


async def test_the_newest_revision_is_spoken_where_the_server_has_it(sdk: Served) -> None:
    server = mcp.http("sdk", sdk.url)
    async with opened(server):
        assert server.revision == "2026-07-28"
        assert await call(server, "echo", {"a": 2**60}) == {"a": 2**60}
        assert server.instructions == "Ask nicely."
        assert (server.warnings, server.error) == ([], None)


async def test_a_change_of_the_list_is_heard_by_subscription(sdk: Served) -> None:
    server = mcp.http("sdk", sdk.url)
    async with opened(server):
        await call(server, "change", {"name": "brand-new"})
        while not any(each.name == "brand-new" for each in server.tools):
            await anyio.lowlevel.checkpoint()
        assert server.version == 2
        assert [each.name for each in server.tools] == ["big", "brand-new", "change", "echo", "sleep", "who"]


async def test_a_change_is_found_where_there_are_no_subscriptions(
    silent: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, "POLL_S", 0.05)
    server = mcp.http("sdk", silent.url)
    async with opened(server):
        await call(server, "change", {"name": "brand-new"})
        while not any(each.name == "brand-new" for each in server.tools):
            await anyio.lowlevel.checkpoint()


async def test_an_answer_of_many_megabytes_arrives_as_a_stream_of_events_too(sdk: Served) -> None:
    server = mcp.http("sdk", sdk.url)
    async with opened(server):
        assert len(await call(server, "big", {"bytes": 5 << 20})) == 5 << 20


async def test_a_cancelled_call_is_cancelled_at_the_server(sdk: Served) -> None:
    server = mcp.http("sdk", sdk.url)
    async with opened(server):
        with anyio.move_on_after(0.2):
            await call(server, "sleep")
        assert await anyio.to_thread.run_sync(sdk.cancelled.wait, 10)
        assert await call(server, "echo", {"next": 1}) == {"next": 1}


async def test_a_tool_that_the_server_does_not_list_any_more_is_not_called(sdk: Served) -> None:
    server = mcp.http("sdk", sdk.url)
    async with opened(server):
        handler = tool(server, "who").handler
        sdk.names.remove("who")
        await call(server, "change", {"name": "other"})
        while any(each.name == "who" for each in server.tools):
            await anyio.lowlevel.checkpoint()
        assert handler is not None
        with pytest.raises(ToolError) as caught:
            await handler({}, None)  # never reached
        assert caught.value.message == "server 'sdk' does not offer 'who' any more"
