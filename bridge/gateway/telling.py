"""Telling hosts of the older revision (2025-11-25) that something has changed: each on its own stream."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, TypeVar

import anyio
from mcp.shared.exceptions import MCPError

if TYPE_CHECKING:
    from mcp.server.session import ServerSession

PATIENCE_S: Final = 5.0
Key = TypeVar("Key")


async def tell(sessions: dict[Key, ServerSession], send: Callable[[ServerSession], Awaitable[None]]) -> None:
    """Tell all of them at once. Whoever is gone, or takes nothing for `PATIENCE_S`, is told no more.

    A host can open its stream and never read: the others do not wait for it.
    """

    async def one(key: Key, session: ServerSession) -> None:
        with anyio.move_on_after(PATIENCE_S):
            try:
                await send(session)
            except (MCPError, anyio.ClosedResourceError, anyio.BrokenResourceError):
                pass
            else:
                return
        if sessions.get(key) is session:
            del sessions[key]

    async with anyio.create_task_group() as tasks:
        for key, session in list(sessions.items()):
            tasks.start_soon(one, key, session)
