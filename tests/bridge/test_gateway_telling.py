"""Hosts of the older revision are told of changes, and none of them holds up the others."""

from __future__ import annotations

import anyio
import pytest
from mcp.shared.exceptions import MCPError

from bridge.gateway import telling

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_who_never_reads_keeps_nobody_waiting_and_is_told_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    sessions, heard, all_others = {"deaf": 0, "first": 1, "second": 2}, [], anyio.Event()

    async def send(session: int) -> None:
        if session == 0:
            await all_others.wait()  # they are told while this one still holds
            await anyio.sleep_forever()
        heard.append(session)
        if len(heard) == 2:
            all_others.set()

    monkeypatch.setattr(telling, "PATIENCE_S", 0.05)
    with anyio.fail_after(20):
        await telling.tell(sessions, send)
    assert heard == [1, 2]
    assert sessions == {"first": 1, "second": 2}


async def test_who_is_gone_is_told_no_more_unless_it_came_back_meanwhile() -> None:
    sessions = {"gone": 0, "back": 1, "here": 2}

    async def send(session: int) -> None:
        if session == 0:
            raise anyio.ClosedResourceError
        if session == 1:
            sessions["back"] = 3
            raise MCPError(-32000, "gone")

    await telling.tell(sessions, send)
    assert sessions == {"back": 3, "here": 2}
