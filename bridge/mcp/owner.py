"""One task that owns one server's sessions, and the calls that it makes for others.

A session is entered and left by this task alone, and every call runs in a task of this task's group. So the SDK's
cancel scopes never reach a caller, its exception groups become values here, and a caller that gives up cancels its own
call and nothing else. The SDK never connects again by itself: after a loss the next call does, with a growing pause.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeVar

import anyio
import mcp_types as types
from anyio.abc import TaskGroup
from mcp import Client
from mcp.client.session import ElicitationFnT
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import ServerEvent, ToolsListChanged
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from pydantic import ValidationError

from bridge.mcp.changes import event_of, listen, lists_of
from bridge.mcp.repair import repaired
from bridge.mcp.saying import said

PAGES: Final = 100  # of one list of tools
TOOLS: Final = 2_000  # of one server; more than any real one by a factor of ten
CLOSE_S: Final = 8.0  # for leaving a session; stdio alone may take 4
DRAIN_S: Final = 2.0  # for the other calls of a session that the server forgot; they mostly hear the same
CANCEL_S: Final = 1.0  # for the notification that a call was cancelled
PAUSES_S: Final = (0.2, 5.0)  # before connecting again: the first, and the longest
POLL_S: Final = 60.0  # between two looks at the list of a server that does not tell of changes
T = TypeVar("T")
Progress = Callable[[float, float | None, str | None], None]
Outcome = types.CallToolResult | Exception | None
"""What a call came back with; None when the session ended around it."""


class Connection(Protocol):
    """A transport that has not been opened yet."""

    fell: str | None
    """How the server ended it, or None."""
    unlaunched: bool
    """Whether there was nothing that could be started."""

    def streams(self) -> AbstractAsyncContextManager[tuple[Any, Any]]: ...
    def last_lines(self) -> list[str]: ...


class Down(Exception):
    """The server is not there and cannot be reached: nothing was sent."""


@dataclass
class Link:
    """A session that stands. `over` is set by who finds out that it does not, `quiet` when no call runs any more."""

    client: Client
    connection: Connection
    tasks: TaskGroup
    over: anyio.Event
    ended: bool = False
    answered: bool = False
    running: int = 0
    quiet: anyio.Event = field(default_factory=anyio.Event)

    @property
    def modern(self) -> bool:
        """Whether the server speaks 2026-07-28 or later, rather than a revision with a handshake."""
        return self.client.protocol_version not in HANDSHAKE_PROTOCOL_VERSIONS

    async def call(self, tool: str, arguments: dict[str, Any], told: Progress) -> Outcome:
        """Call a tool; see `ask`."""

        async def report(progress: float, total: float | None, message: str | None) -> None:
            told(progress, total, message)

        outcome = await self.ask(
            lambda client: client.call_tool(tool, arguments, progress_callback=report), f"mcp call {tool}"
        )
        if isinstance(outcome, (types.CallToolResult, MCPError)) and not self.ended:
            self.answered = True
        return outcome

    async def ask(self, question: Callable[[Client], Awaitable[T]], name: str) -> T | Exception | None:
        """Put a question in the owner's group. Cancelling the asker cancels this one, and the server is told once."""
        done, scope, outcome = anyio.Event(), anyio.CancelScope(), list[T | Exception]()

        async def perform() -> None:
            try:
                with scope:
                    outcome.append(await question(self.client))
            except Exception as error:  # noqa: BLE001  whatever the SDK raises is the outcome of this one, and of no other
                outcome.append(error)
            finally:
                self.running -= 1
                if not self.running:
                    self.quiet.set()
                    self.quiet = anyio.Event()
                done.set()

        self.running += 1
        self.tasks.start_soon(perform, name=name)
        try:
            await done.wait()
        except BaseException:
            scope.cancel()
            with anyio.move_on_after(CANCEL_S, shield=True):
                await done.wait()
            raise
        return outcome[0] if outcome else None


class Owner:
    """Connects, lists, listens for changes and reconnects, in the one task that runs `run`.

    Args:
        connect: Makes a fresh transport, given what grants the connection more time.
        describe: What to say of an attempt that failed or a session that ended: (connection, what happened).
        listed: Takes every list of tools as soon as it is read, and the client that has read it.
        warn: Takes what a person should know and nobody fails for.
        connect_s: Seconds for connecting and for listing.
        local: Whether it is a process of ours. One that ends before it is ready is tried once more with the older
            handshake: some exit on a first message that they do not know.
        client_info: Who the server is told that we are.
        elicit: Answers the server's questions; None: it is told that it cannot ask.
        told: Called for lists of prompts and resources that changed, and of resources that a session of the older
            revision has subscribed to.

    Attributes:
        link: The session, or None.
        attempts: How often connecting has succeeded or failed.
        closed: Whether `run` has ended.
    """

    def __init__(
        self,
        *,
        connect: Callable[[Callable[[float], None]], Connection],
        describe: Callable[[Connection | None, str], None],
        listed: Callable[[list[types.Tool], Client], None],
        warn: Callable[[str], None],
        connect_s: float,
        local: bool,
        client_info: types.Implementation,
        elicit: ElicitationFnT | None = None,
        told: Callable[[ServerEvent], None] = lambda event: None,
    ) -> None:
        self.link: Link | None = None
        self.attempts = 0
        self.closed = False
        self._connect = connect
        self._describe = describe
        self._listed = listed
        self._warn = warn
        self._connect_s = connect_s
        self._local = local
        self._client_info = client_info
        self._elicit = elicit
        self._told = told
        self._mode = "auto"
        self._failures = 0
        self._wanted = True
        self._stopping = False
        self._changed = anyio.Event()
        self._dirty = anyio.Event()
        self._scope: anyio.CancelScope | None = None

    # ---- for other tasks --------------------------------------------------------------------------------------------

    async def connected(self) -> Link:
        """The session; asks for one and waits for the next attempt if there is none.

        Raises:
            Down: The attempt failed, or the owner has been stopped.
        """
        before = self.attempts
        while self.link is None:
            if self.closed or self._stopping or self.attempts > before:
                raise Down
            self._wanted = True
            self._tell()
            await self._changed.wait()
        return self.link

    async def attempted(self) -> bool:
        """Wait for the end of the first attempt; whether it made a session."""
        while self.link is None and self.attempts == 0 and not self.closed:
            await self._changed.wait()
        return self.link is not None

    def lost(self, link: Link) -> None:
        """Give up a session that does not work any more; the next call makes another."""
        if self.link is link:
            self.link = None
        link.over.set()

    async def stop(self) -> None:
        """End the session in its own task and wait for that; at most about `CLOSE_S`."""
        self._stopping = True
        self._tell()
        if self.link is not None:
            self.link.over.set()
        elif self._scope is not None:
            self._scope.cancel()
        while not self.closed:
            await self._changed.wait()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    # ---- the owner's task -------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Own the server until `stop`, or until cancelled."""
        try:
            while not self._stopping:
                if not self._wanted:
                    await self._changed.wait()
                    continue
                first, longest = PAUSES_S
                with anyio.move_on_after(min(first * 2 ** (self._failures - 1), longest) if self._failures else 0):
                    while not self._stopping:
                        await self._changed.wait()
                if not self._stopping:
                    await self._attempt()
        finally:
            self.link, self.closed = None, True
            self._tell()

    async def _attempt(self) -> None:
        """Connect and serve until the session is over. Never raises but for cancellation."""
        self._wanted = False
        ready, fell = await self._session(self._mode)
        if not ready and fell and self._local and self._mode == "auto" and not self._stopping:
            ready, _ = await self._session("legacy")
        if not ready:
            self.attempts += 1
        self._tell()

    async def _session(self, mode: str) -> tuple[bool, bool]:
        """One connection: whether it became ready, and whether the server ended it."""
        link: Link | None = None
        connection: Connection | None = None
        over = anyio.Event()
        what = "closed its connection"
        scope = self._scope = anyio.CancelScope(deadline=anyio.current_time() + self._connect_s)

        def extend(seconds: float) -> None:
            scope.deadline += seconds

        def ended() -> None:
            if link is not None:
                link.ended = True
            over.set()

        try:
            connection = self._connect(extend)
            streams = repaired(connection.streams(), self._warn, ended, asks=self._elicit is not None)
            with scope:
                async with Client(
                    streams,
                    mode=mode,
                    cache=None,
                    message_handler=self._heard,
                    client_info=self._client_info,
                    elicitation_callback=self._elicit,
                ) as client:
                    # The SDK would drop a result over its schema, and run the server's patterns in Python's `re`.
                    client.session.validate_tool_result = _unchecked
                    self._listed(await self._list(client), client)
                    if client.protocol_version in HANDSHAKE_PROTOCOL_VERSIONS and self._local:
                        self._mode = "legacy"  # spares the probe when this process is started again
                    scope.deadline = math.inf
                    async with anyio.create_task_group() as tasks:
                        self.link = link = Link(client, connection, tasks, over)
                        self.attempts += 1
                        self._tell()
                        for event in lists_of(client) if self.attempts > 1 else ():
                            self._told(event)  # what it has was not listed while it was away
                        tasks.start_soon(self._refresh, client)
                        tasks.start_soon(self._watch, client)
                        try:
                            await over.wait()
                            if link.running and not link.ended and not self._stopping:
                                with anyio.move_on_after(DRAIN_S):  # a session that one call was told is gone
                                    await link.quiet.wait()
                        finally:
                            self.link = None
                            scope.deadline = anyio.current_time() + CLOSE_S
                            tasks.cancel_scope.cancel()
        except Exception as error:  # noqa: BLE001  the SDK's groups and errors end here and become a sentence
            what = said(error)
        except BaseExceptionGroup as group:  # a cancellation and an error that it brought about
            errors, others = group.split(Exception)
            what = said(errors) if errors else what
            if others is not None:
                raise others from None
        if link is None and scope.cancelled_caught:
            what = f"was not ready within {self._connect_s:g} s (connect_s)"
        self._failures = 0 if link is not None and link.answered else self._failures + 1
        if not self._stopping:
            self._describe(connection, what)
        return link is not None, connection is not None and connection.fell is not None

    async def _list(self, client: Client) -> list[types.Tool]:
        """All pages of the server's tools."""
        found: list[types.Tool] = []
        seen: set[str] = set()
        cursor: str | None = None
        for _ in range(PAGES):
            try:
                page = await client.list_tools(cursor=cursor)
            except MCPError as error:
                if error.code == types.METHOD_NOT_FOUND and cursor is None:
                    self._warn("it has no tools (it does not know tools/list)")
                    return []
                raise
            found.extend(page.tools)
            cursor = page.next_cursor
            if cursor is None:
                return found
            if cursor in seen or len(found) > TOOLS:
                break
            seen.add(cursor)
        self._warn(f"its list of tools does not end: reading stopped after {min(len(found), TOOLS):,} tools")
        return found[:TOOLS]

    async def _heard(self, message: Any) -> None:
        """The SDK's message handler; must not wait for the session that calls it."""
        event = event_of(message)
        if event is not None:
            self._hear(event)
        elif isinstance(message, Exception):
            self._warn("it sent a message that cannot be read")

    def _hear(self, event: ServerEvent) -> None:
        if isinstance(event, ToolsListChanged):
            self._dirty.set()
        else:
            self._told(event)

    async def _refresh(self, client: Client) -> None:
        """Read the list again whenever it may have changed."""
        while True:
            await self._dirty.wait()
            self._dirty = anyio.Event()
            try:
                with anyio.fail_after(self._connect_s):
                    tools = await self._list(client)
            except (MCPError, ValidationError, TimeoutError) as error:
                self._warn(f"its list of tools changed and could not be read again: {said(error)}")
                continue
            self._listed(tools, client)

    async def _watch(self, client: Client) -> None:
        """Hear of changes as the server tells them, and read the list now and then where it may not."""
        await listen(client, self._hear)
        tools = client.server_capabilities.tools
        promised = tools is not None and tools.list_changed
        if promised and self._local and client.protocol_version in HANDSHAKE_PROTOCOL_VERSIONS:
            return  # over HTTP a stateless server cannot keep that promise, and the stream of another may be lost
        while True:
            await anyio.sleep(POLL_S)
            self._dirty.set()


async def _unchecked(name: str, result: types.CallToolResult) -> None:
    return None
