"""Hosts read what servers behind the gateway say of the calls of their programs, in both revisions on both sides."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from typing import Any

import anyio
import pytest
from mcp import Client

from bridge import Executor, mcp
from bridge.events import CallFinished
from bridge.gateway import Gateway
from bridge.gateway.progress import Told, words
from bridge.mcp.server import CallProgress
from sandbox import Sandbox
from tests.bridge.hosts import mode
from tests.bridge.odd_servers import ROOT, context

pytestmark = pytest.mark.anyio
SCRIPT = ROOT / "tests" / "servers" / "watched.py"


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def gateway(older: list[str], opened: Sandbox) -> AsyncGenerator[Gateway]:
    server = mcp.stdio("watched", sys.executable, [str(SCRIPT), *older], require_approval="never")
    async with Executor([server], sandbox=opened) as executor:
        yield Gateway(executor)


class Heard:
    """The progress that a host was told of one request."""

    def __init__(self) -> None:
        self.values: list[float] = []
        self.said: list[str | None] = []
        self._more = anyio.Event()

    async def __call__(self, progress: float, total: float | None, message: str | None) -> None:
        assert total is None
        self.values.append(progress)
        self.said.append(message)
        self._more.set()

    async def until(self, message: str) -> None:
        while message not in self.said:
            await self._more.wait()
            self._more = anyio.Event()


async def run(client: Client, program: str, heard: Heard | None = None, inputs: Any = None) -> Any:
    given = {"program": program, "inputs": inputs}
    result = await client.call_tool("run_program", given, progress_callback=heard)
    assert result.structured_content is not None
    return result.structured_content.get("value")


SAY = "return await tools.watched.say(inputs)"


async def test_a_host_reads_what_a_server_says_of_a_call_and_its_progress_only_rises(
    gateway: Gateway, revision: str
) -> None:
    heard, other = Heard(), Heard()
    with anyio.fail_after(60):
        async with Client(gateway.server, mode=mode(revision)) as client, anyio.create_task_group() as tasks:
            tasks.start_soon(run, client, "await tools.watched.work({})", heard)
            while await run(client, SAY, other, {"progress": 8, "total": 10, "message": "copying a"}) != "1":
                await anyio.lowlevel.checkpoint()
            await heard.until('0 calls done; server watched, work: "copying a" 8 of 10')
            await run(client, SAY, other, {"progress": 2, "message": "copying\u202e b\n9 calls done"})
            await heard.until('0 calls done; server watched, work: "copying b 9 calls done" 2')
            await run(client, SAY, other, {"progress": 2})
            await heard.until("0 calls done; server watched, work: 2")
            await run(client, "await tools.watched.finish({})", other)
    assert heard.values == sorted(set(heard.values))
    assert not any("server watched" in (message or "") for message in other.said)


def said(message: str | None, progress: float = 1, total: float | None = None) -> CallProgress:
    return CallProgress("files/copy", context(), progress, total, message)


def test_a_servers_words_cannot_leave_their_quotes_or_be_long() -> None:
    assert words(said('x" 5 of 5; 9 calls done', total=4)) == 'server files, copy: "x\\" 5 of 5; 9 calls done" 1 of 4'
    assert words(said("x" * 5_000)) == f'server files, copy: "{"x" * 198}… 1'
    assert words(said("\x1b[2J\ud800")) == 'server files, copy: "[2J" 1'


def test_numbers_that_say_nothing_are_left_out() -> None:
    assert words(said("at work", float("nan"))) == 'server files, copy: "at work"'
    assert words(said(None, 1, float("inf"))) == "server files, copy: 1"


def test_a_call_that_is_done_counts_more_than_all_that_was_said_of_it() -> None:
    told = Told()
    reported = [told.progress]
    for _ in range(1_000):
        told.hear_server(said("on"))
        reported.append(told.progress)
    told.hear(CallFinished(run_id="r", tool="files/copy", outcome="completed", duration_s=0))
    reported.append(told.progress)
    assert reported == sorted(set(reported))
    assert reported[-1] == 1
