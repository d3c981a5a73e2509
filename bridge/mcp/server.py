"""`Server`: one MCP server as an executor sees it. Its settings come from `mcp.stdio` and `mcp.http`.

What the SDK does is behind `owner`, which is imported when a server is started.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from importlib import metadata
from typing import TYPE_CHECKING, Any, Final, TypeVar

import anyio

from bridge.errors import ServerUnavailable, StateError, ToolError
from bridge.mcp.rate import Rate
from bridge.mcp.result import Blobs, failure_of, value_of
from bridge.mcp.text import depth, hidden, last_words, printable, well_formed
from bridge.mcp.tools import Settings, tools_of
from bridge.tools import Handler, Tool, ToolContext

if TYPE_CHECKING:
    import httpx2
    import mcp_types as types
    from anyio.abc import TaskGroup
    from mcp import Client
    from mcp.shared.subscriptions import ServerEvent
    from mcp_types import CallToolResult

    from bridge.elicitation import Elicit
    from bridge.mcp import OAuth
    from bridge.mcp.owner import Connection, Link, Outcome, Owner
    from bridge.mcp.questions import Call, Questions

T = TypeVar("T")
ARGUMENT_DEPTH: Final = 200  # levels; the SDK's serialiser stops at 255, with some of its own around them
INSTRUCTIONS: Final = 16_000  # characters
WARNINGS: Final = 100  # kept for one server: one that is wrong all the time must not fill memory


@dataclass(frozen=True)
class Process:
    """How a server is started; `env` is its whole environment."""

    command: str
    args: tuple[str, ...]
    env: Mapping[str, str] = field(repr=False)
    cwd: str


@dataclass(frozen=True)
class Remote:
    """Where a server is, and as whom it is spoken to."""

    url: str
    headers: Mapping[str, str] = field(repr=False)
    token: Callable[[], Awaitable[str] | str] | None = field(repr=False)
    oauth: OAuth | httpx2.Auth | None = field(repr=False)


@dataclass(frozen=True)
class CallProgress:
    """What a server says of a call that it is doing. Numbers and words are its own: show them as such.

    Attributes:
        tool: Its full name.
        context: Of the call.
    """

    tool: str
    context: ToolContext
    progress: float
    total: float | None
    message: str | None


class Server:
    """One configured server. Made by `stdio` and `http`, opened by an executor; may be opened again after `stop`.

    Attributes:
        name: Its name.
        optional: Whether an executor may open without it.
        identity: Digest of what it is: transport, command, arguments, directory or URL, and hashes of the credentials
            and variables it was given. With another key it is another server: grants are asked for again.
        tools: What it offers now, sorted by name; replaced as a whole. Kept while it is down.
        version: Rises when `tools` changed.
        error: Why it is down, for an operator (with its last output), or None.
        warnings: What was repaired, left out or skipped; each once.
        revision: Of the protocol, as it was spoken last (`2025-11-25`); None before.
        instructions: What it tells models about itself, untrusted, or None.
        blobs: Bytes that its tools returned, by handle; the oldest go when there are more than 64 MiB.
        listeners: Called with what it says unasked, in the server's own task: how calls get on, which resources and
            lists have changed. They must not wait.
    """

    def __init__(
        self,
        name: str,
        settings: Settings,
        place: Process | Remote,
        *,
        shown: str,
        identity: str,
        secrets: tuple[str, ...] = (),
    ) -> None:
        self.name = name
        self.optional = settings.optional
        self.identity = identity
        self.tools: tuple[Tool, ...] = ()
        self.version = 0
        self.error: str | None = None
        self.warnings: list[str] = []
        self.revision: str | None = None
        self.instructions: str | None = None
        self.blobs = Blobs()
        self.settings = settings
        self.place = place
        self.shown = shown
        self._secrets = secrets
        self._why = "is not open"
        self._owner: Owner | None = None
        self._slots: anyio.Semaphore | None = None
        self._rate: Rate | None = None
        self._questions: Questions | None = None
        self.listeners: set[Callable[[ServerEvent | CallProgress], None]] = set()

    @property
    def down(self) -> str | None:
        """Why it is down, in words that a model may read; None where it is up, or has not been opened."""
        return self._why if self.error else None

    def __repr__(self) -> str:
        state = "not open" if self._owner is None else "down" if self.error else f"{len(self.tools)} tools"
        return f"<Server {self.name!r} ({self.shown}): {state}>"

    # ---- life -------------------------------------------------------------------------------------------------------

    async def start(self, task_group: TaskGroup, *, elicit: Elicit | None = None) -> None:
        """Connect and list; returns when that is done, or is known to have failed (`error` says why).

        Args:
            task_group: Runs the server's one task until `stop`.
            elicit: Who answers what it asks. Without it, it is told that there is nobody to ask.

        Raises:
            ServerUnavailable: It is down, and `optional=False`.
            StateError: It is open already.
        """
        if self._owner is not None:
            raise StateError(f"server {self.name!r} is open already: describe it twice to open it in two executors")
        import mcp_types as types

        from bridge.mcp.owner import Owner

        limit = self.settings.max_concurrent
        self._slots = anyio.Semaphore(limit) if limit is not None else None
        self._rate = Rate(*self.settings.rate) if self.settings.rate is not None else None
        self._questions = None
        if elicit is not None:
            from bridge.mcp.questions import Questions

            self._questions = Questions(self.name, elicit, self._warn, in_turn=limit is None)
        self._owner = owner = Owner(
            connect=self._connection,
            describe=self._fell,
            listed=self._publish,
            warn=self._warn,
            connect_s=self.settings.connect_s,
            local=isinstance(self.place, Process),
            client_info=types.Implementation(name="sandbridge", version=_version()),
            elicit=self._questions,
            told=self._said,
        )
        task_group.start_soon(owner.run, name=f"mcp server {self.name}")
        if not await owner.attempted() and not self.optional:
            await self.stop()
            raise ServerUnavailable(f"{self.error}\nIt was declared with optional=False, so nothing opens without it.")

    async def stop(self) -> None:
        """Close the session, and end the process with all that it started. Finite; harmless when it is not open."""
        owner, self._owner = self._owner, None
        if owner is not None:
            await owner.stop()
        self._why = "is not open"

    def _connection(self, extend: Callable[[float], None]) -> Connection:
        place = self.place
        if isinstance(place, Process):
            from bridge.mcp.over_stdio import StdioConnection

            return StdioConnection(place, self._warn)
        from bridge.mcp.over_http import HttpConnection

        return HttpConnection(place, extend, self.settings.connect_s)

    def _publish(self, definitions: list[types.Tool], client: Client) -> None:
        """Take a list of tools; the new ones replace the old at once."""
        tools, warnings = tools_of(
            definitions, server=self.name, identity=self.identity, settings=self.settings, handler=self._handler
        )
        for warning in warnings:
            self._warn(warning)
        if [tool.digest for tool in tools] != [tool.digest for tool in self.tools] or self.version == 0:
            self.tools = tools
            self.version += 1
        self.revision = client.protocol_version
        self.instructions = client.instructions[:INSTRUCTIONS] if client.instructions else None
        self.error = None

    def _fell(self, connection: Connection | None, what: str) -> None:
        """Say why there is no session: in full to the operator, in short to programs."""
        fell = None if connection is None else connection.fell
        lines = [hidden(line, self._secrets) for line in connection.last_lines()] if connection else []
        what = hidden(printable(what, 1_000), self._secrets)
        if fell is not None:
            what = f"ended ({fell})" if self.tools else f"ended before it was ready ({fell})"
        self._why = what + (f": {last_words(lines)}" if fell and last_words(lines) else "")
        if connection is not None and connection.unlaunched:
            self._why = "could not be started; its operator can see why"  # the reason has paths
        output = "".join(f"\n  | {line}" for line in lines)
        self.error = f"server {self.name!r} ({self.shown}) {what}" + (
            f"; it wrote to stderr:{output}" if output else ""
        )

    def _said(self, what: ServerEvent | CallProgress) -> None:
        for listener in tuple(self.listeners):
            listener(what)

    def _warn(self, warning: str) -> None:
        warning = hidden(warning, self._secrets)
        if warning not in self.warnings and len(self.warnings) < WARNINGS:
            self.warnings.append(warning)
            if len(self.warnings) == WARNINGS:
                self.warnings.append("further warnings were left out")

    async def ask(
        self,
        question: Callable[[Client], Awaitable[T]],
        what: str = "",
        context: ToolContext | None = None,
    ) -> T:
        """Put a question that is no call of a tool to the server's session: its resources, its prompts.

        Args:
            question: Awaited in the server's own task; the client is to be kept by nobody.
            what: What is asked, in words for the person whom the server asks something meanwhile.
            context: Whom such questions are for; without it they are nobody's.

        Raises:
            ToolError: `failed`: the server is down, or its session ended meanwhile.
            Exception: What the question raised (`MCPError` where the server refused).
        """
        from bridge.mcp.owner import Down

        try:
            if self._owner is None:
                raise Down
            link = await self._owner.connected()
        except Down:
            raise ToolError("failed", f"server {self.name!r} {self._why}.", retryable=True) from None
        async with nullcontext() if context is None else self._asking(what, context, link) as call:
            outcome = await link.ask(question, f"mcp question to {self.name}")
            refused = outcome if isinstance(outcome, Exception) else None
            if call is not None and self._questions is not None and await self._questions.sent_to_pages(refused, call):
                outcome = await link.ask(question, f"mcp question to {self.name}")
        if isinstance(outcome, Exception):
            raise outcome
        if outcome is None:
            raise ToolError("failed", f"server {self.name!r}: {self._ended(link)}", retryable=True)
        return outcome

    # ---- calls ------------------------------------------------------------------------------------------------------

    def _handler(self, tool: Tool) -> Handler:
        async def handler(arguments: Any, context: ToolContext) -> Any:
            async with self._slots or nullcontext():  # first come, first served
                if self._rate is not None:
                    await self._rate.turn(lambda: context.progress(0, None, None))
                return await self._call(tool, arguments, context)

        return handler

    async def _call(self, tool: Tool, arguments: Any, context: ToolContext) -> Any:
        """One call, sent at most once unless the server is known not to have seen it."""
        from mcp_types import CallToolResult

        from bridge.mcp.fate import aside_for_operator, failure, was_not_seen

        def told(progress: float, total: float | None, message: str | None) -> None:
            context.progress(progress, total, message)
            self._said(CallProgress(tool.full_name, context, progress, total, message))

        sent = _sendable(tool, arguments)
        for last in (False, True):
            link = await self._link(tool)
            again = False
            async with self._asking(tool, context, link) as call:
                outcome: Outcome = await link.call(tool.name, sent, told)
                if isinstance(outcome, CallToolResult):
                    return self._value(tool, outcome)
                if call is not None and self._questions is not None and not last:
                    again = await self._questions.sent_to_pages(outcome, call)
            if again:
                continue
            if not last and self._owner is not None and was_not_seen(outcome):
                self._owner.lost(link)  # the server forgot the session: make another, and ask again
                continue
            if aside := aside_for_operator(outcome):
                self._warn(f"a call of {tool.name!r} was not sent: {aside}")
            error = failure(outcome, link, server=self.name, tool=tool.full_name, ended=self._ended(link))
            raise error if call is None else call.explained(error)
        raise AssertionError("unreachable")

    def _asking(self, what: Tool | str, context: ToolContext, link: Link) -> AbstractAsyncContextManager[Call | None]:
        if self._questions is None:
            return nullcontext()
        return self._questions.during(what, context, modern=link.modern)

    async def _link(self, tool: Tool) -> Link:
        """A session in which the tool is what it was when it was approved.

        Raises:
            ToolError: `failed`: the server is down, or the tool is not the same any more. Nothing was sent.
        """
        from bridge.mcp.owner import Down

        owner = self._owner
        try:
            if owner is None:
                raise Down
            link = await owner.connected()
        except Down:
            raise ToolError("failed", f"server {self.name!r} {self._why}. Nothing was sent.", retryable=True) from None
        live = next((found for found in self.tools if found.name == tool.name), None)
        if live is None:
            raise ToolError("failed", f"server {self.name!r} does not offer {tool.name!r} any more")
        if live.digest != tool.digest:
            raise ToolError(
                "failed",
                f"server {self.name!r} changed the definition of {tool.name!r}; nothing was sent. Call again to have "
                "the new one checked.",
                retryable=True,
            )
        return link

    def _ended(self, link: Link) -> str:
        """How a session ended under a call, for a program."""
        lines = [hidden(line, self._secrets) for line in link.connection.last_lines()]
        words = last_words(lines)
        return (link.connection.fell or "connection lost") + (f"; last output: {words}" if words else "")

    def _value(self, tool: Tool, result: CallToolResult) -> Any:
        from bridge.mcp.repair import WRAPPED, WRITTEN

        if result.is_error:
            raise failure_of(result)
        return value_of(
            result,
            described=tool.output_schema is not None,
            unwrap=tool.wraps_result,
            blobs=self.blobs,
            wrapped=WRAPPED in (result.meta or ()),
            written=WRITTEN in (result.meta or ()),
        )


def _sendable(tool: Tool, arguments: Any) -> dict[str, Any]:
    """Arguments as the wire can carry them: one object, well-formed texts, not too deep."""
    if not isinstance(arguments, dict):
        raise ToolError("invalid_arguments", f"{tool.full_name} takes one object, not {type(arguments).__name__}")
    if depth(arguments, ARGUMENT_DEPTH) > ARGUMENT_DEPTH:
        raise ToolError("invalid_arguments", f"the arguments nest more than {ARGUMENT_DEPTH} levels deep")
    return well_formed(arguments)


def _version() -> str:
    try:
        return metadata.version("sandbridge")
    except metadata.PackageNotFoundError:
        return "0"
