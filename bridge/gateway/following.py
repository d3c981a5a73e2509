"""Subscriptions of hosts to single resources of the servers behind, in both revisions on both sides.

A resource is followed once, however many hosts have subscribed to it, and no longer than one has. A server that is down
is asked again when it is back: what changed meanwhile is not told, as nothing is replayed in either revision.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import anyio
import mcp_types as types
from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost
from mcp.server.subscriptions import ResourceUpdated
from mcp.shared.exceptions import MCPError

from bridge.errors import ToolError
from bridge.gateway.runs import Owner, owner_of
from bridge.gateway.telling import tell
from bridge.text import cut, visible

if TYPE_CHECKING:
    from anyio.abc import TaskGroup
    from mcp.server.session import ServerSession
    from mcp.server.subscriptions import SubscriptionBus

    from bridge.gateway.upstream import Upstreams

log: Final = logging.getLogger("sandbridge")
EACH: Final = 100  # resources that one client follows
AGAIN_S: Final = 5.0  # before a server that refused or ended it is asked again


@dataclass(eq=False)
class _Followed:
    """One resource, and who wants to hear of it.

    Attributes:
        sessions: Of hosts of the older revision, by their session's key.
        streams: How many subscriptions of the newer one.
    """

    sessions: dict[tuple[Owner, str], ServerSession] = field(default_factory=dict[tuple[Owner, str], "ServerSession"])
    streams: int = 0
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)


class Following:
    """Who follows what.

    Args:
        bus: Where hosts of the newer revision hear of changes.
    """

    def __init__(self, bus: SubscriptionBus) -> None:
        self.tasks: TaskGroup | None = None
        self.upstreams: Upstreams | None = None
        self._bus = bus
        self._followed: dict[str, _Followed] = {}

    def subscribe(self, uri: str, key: str, session: ServerSession) -> None:
        """A host of the older revision wants to hear of a resource. `MCPError`: it cannot."""
        owner = owner_of()
        held = sum((owner, key) in followed.sessions for followed in self._followed.values())
        if held >= EACH:
            raise MCPError(types.INVALID_PARAMS, f"{EACH} resources are followed in this session: unsubscribe from one")
        self._follow(uri).sessions[owner, key] = session

    def unsubscribe(self, uri: str, key: str) -> None:
        """It does not any more."""
        followed = self._followed.get(uri)
        if followed is not None:
            followed.sessions.pop((owner_of(), key), None)
            self._unless_wanted(uri, followed)

    async def during(self, uris: list[str], work: Callable[[], Awaitable[None]]) -> None:
        """Have resources followed for a host of the newer revision, as long as its stream is served."""
        known = [uri for uri in dict.fromkeys(uris) if self.upstreams is not None and self.upstreams.knows(uri)][:EACH]
        for uri in known:
            self._follow(uri).streams += 1
        try:
            await work()
        finally:
            for uri in known:
                self._followed[uri].streams -= 1
                self._unless_wanted(uri, self._followed[uri])

    def _follow(self, uri: str) -> _Followed:
        if self.tasks is None or self.upstreams is None or not self.upstreams.knows(uri):
            raise MCPError(types.INVALID_PARAMS, f"there is no resource {cut(visible(uri), 200)} to follow")
        followed = self._followed.get(uri)
        if followed is None:
            followed = self._followed[uri] = _Followed()
            self.tasks.start_soon(self._keep, self.upstreams, uri, followed)
        return followed

    def _unless_wanted(self, uri: str, followed: _Followed) -> None:
        if not followed.sessions and not followed.streams and self._followed.get(uri) is followed:
            del self._followed[uri]
            followed.scope.cancel()

    async def _keep(self, upstreams: Upstreams, uri: str, followed: _Followed) -> None:
        async def changed() -> None:
            await self._bus.publish(ResourceUpdated(uri=uri))
            await tell(followed.sessions, lambda session: session.send_resource_updated(uri))
            self._unless_wanted(uri, followed)

        said = False
        with followed.scope:
            while True:
                try:
                    await upstreams.follow(uri, changed)
                except (MCPError, ToolError, SubscriptionLost, ListenNotSupportedError, TimeoutError) as error:
                    if not said:  # the host has been told that it is: what hears of it is the log
                        said_by_it = error.message if isinstance(error, ToolError) else str(error)
                        why = cut(visible(said_by_it or type(error).__name__), 200)
                        log.warning("%s cannot be followed now, and is tried again: %s", cut(visible(uri), 200), why)
                        said = True
                await anyio.sleep(AGAIN_S)
