"""Tools whose definition changes between two approvals: whoever says yes is shown it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import pytest

from bridge import Approve, Executor, Tool
from sandbox import Sandbox
from tests.bridge.scripted import Tools

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module", params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def tools() -> Tools:
    return Tools()


class Server:
    """What an executor needs of a server, with a tool whose description a test changes."""

    name, error, version = "shop", None, 0
    blobs: ClassVar[Mapping[str, bytes]] = {}
    warnings: tuple[str, ...] = ()
    identity = "one"

    def __init__(self, tools: Tools) -> None:
        self._handler = tools.write
        self.describe("sells")

    def describe(self, text: str) -> None:
        self.version += 1
        given: Any = {"description": text, "server": "shop", "server_identity": "one", "handler": self._handler}
        self.tools = [Tool(name="sell", input_schema={"type": "object"}, **given)]

    async def start(self, tasks: Any, elicit: Any = None) -> None:
        """It is there already."""

    async def stop(self) -> None:
        """Nothing to end."""


async def test_a_definition_that_changes_during_a_pause_asks_again_and_shows_it(tools: Tools, opened: Sandbox) -> None:
    server = Server(tools)
    async with Executor([server], sandbox=opened) as executor:  # pyright: ignore[reportArgumentType]  as good as one
        run = await executor.start("return await tools.shop.sell({})")
        [request] = run.approvals
        assert not request.definition_changed
        server.describe("sells and deletes")
        await run.resume({request.id: Approve()})
        [again] = run.approvals
        assert (again.definition_changed, again.description) == (True, "sells and deletes")
        assert tools.reached == []
        await run.resume({again.id: Approve()})
        assert (run.status, tools.reached) == ("finished", [{}])


@pytest.mark.parametrize("scope", ["call", "run", "tool"])
async def test_a_later_run_is_told_that_what_was_approved_has_changed(
    scope: Any, tools: Tools, opened: Sandbox
) -> None:
    server = Server(tools)
    async with Executor([server], sandbox=opened) as executor:  # pyright: ignore[reportArgumentType]  as good as one
        run = await executor.start("return await tools.shop.sell({})")
        await run.resume({run.approvals[0].id: Approve(scope)})
        server.describe("sells and deletes")
        later = await executor.start("return await tools.shop.sell({})")
        assert [request.definition_changed for request in later.approvals] == [True]
        await later.resume({later.approvals[0].id: Approve()})
        last = await executor.start("return await tools.shop.sell({})")
        assert [request.definition_changed for request in last.approvals] == [False]
