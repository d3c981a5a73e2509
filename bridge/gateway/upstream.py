"""Resources and prompts of the servers behind: listed with their server's name, read where they are.

A resource of the server `files` that is `file:///a.txt` there is `sandbridge://files/file:///a.txt` here; a prompt
`greet` is `files/greet`. A server that is down, slow or without such things takes nothing from the others. What servers
say of their things is shown on one line, without invisible characters.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar
from urllib.parse import quote, unquote

import anyio
import mcp_types as types
from mcp import Client, InputRequiredRoundsExceededError
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import ResourceUpdated, ServerEvent
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from pydantic import BaseModel, ValidationError

from bridge.clock import CallClock
from bridge.errors import ToolError
from bridge.mcp.text import well_formed
from bridge.text import cut, visible
from bridge.tools import ToolContext

if TYPE_CHECKING:
    from bridge.gateway.questions import Asked
    from bridge.mcp import Server
    from bridge.mcp.server import CallProgress

log: Final = logging.getLogger("sandbridge")
SCHEME: Final = "sandbridge://"
PAGES: Final = 50  # of one list of one server
LIST_S: Final = 15.0  # for the lists of one server
UNSUBSCRIBE_S: Final = 2.0
READ_S: Final = 60.0  # for one resource or prompt
ANSWER_S: Final = 600.0  # that a person has, when the server asks something first
SAID: Final = 1_000  # characters of a description
NOT_FOUND: Final = -32002  # "resource not found" until 2026-07-28, which says "invalid params" of it

Kept = TypeVar("Kept", bound=BaseModel)
T = TypeVar("T")


class _Page(Protocol):
    @property
    def next_cursor(self) -> str | None: ...


Page = TypeVar("Page", bound=_Page)


def uri_of(server: str, uri: str) -> str:
    """A resource of a server, as hosts see it."""
    return f"{SCHEME}{quote(server, safe='')}/{uri}"


class Upstreams:
    """The servers of one executor."""

    def __init__(self, servers: Iterable[Server]) -> None:
        self._servers = {server.name: server for server in servers}

    async def resources(self) -> list[types.Resource]:
        """All resources, in the order of the servers."""

        async def one(server: Server) -> list[types.Resource]:
            pages = await _pages(server, lambda client, cursor: client.list_resources(cursor=cursor))
            return [_resource(server.name, each) for page in pages for each in page.resources]

        return await self._all(one)

    async def templates(self) -> list[types.ResourceTemplate]:
        """All templates of resources, in the order of the servers."""

        async def one(server: Server) -> list[types.ResourceTemplate]:
            pages = await _pages(server, lambda client, cursor: client.list_resource_templates(cursor=cursor))
            return [
                _named(server.name, each, uri_template=uri_of(server.name, each.uri_template))
                for page in pages
                for each in page.resource_templates
            ]

        return await self._all(one)

    async def prompts(self) -> list[types.Prompt]:
        """All prompts, in the order of the servers."""

        async def one(server: Server) -> list[types.Prompt]:
            pages = await _pages(server, lambda client, cursor: client.list_prompts(cursor=cursor))
            return [_named(server.name, each) for page in pages for each in page.prompts]

        return await self._all(one)

    async def read(self, uri: str, asked: Asked | None = None) -> types.ReadResourceResult:
        """Read a resource where it is.

        Args:
            asked: Takes what its server asks a person meanwhile; declined without.

        Raises:
            MCPError: There is no such server, or what the server said.
        """
        server, inner = self._place(uri)
        if server is None:
            raise MCPError(NOT_FOUND, f"there is no resource {cut(visible(uri), 200)}")
        what = f"the resource {cut(visible(inner), 200)}"
        result = await _asked(server, lambda client: client.read_resource(inner), what, asked)
        contents = [each.model_copy(update={"uri": uri_of(server.name, each.uri)}) for each in result.contents]
        return types.ReadResourceResult(contents=[_mended(each) for each in contents])

    def knows(self, uri: str) -> bool:
        """Whether a resource is of one of the servers."""
        return uri.startswith(SCHEME) and unquote(uri.removeprefix(SCHEME).partition("/")[0]) in self._servers

    async def follow(self, uri: str, changed: Callable[[], Awaitable[None]]) -> None:
        """Tell of every change of a resource, until cancelled or until its server's session is over.

        Raises:
            MCPError, ToolError: The server cannot tell of changes, or is down.
        """
        place, _, inner = uri.removeprefix(SCHEME).partition("/")
        server = self._servers[unquote(place)]

        async def newer(client: Client) -> None:
            async with client.listen(resource_subscriptions=[inner]) as events:
                async for _ in events:
                    await changed()

        async def older(client: Client) -> None:
            again = anyio.Event()

            def heard(what: ServerEvent | CallProgress) -> None:
                if what == ResourceUpdated(inner):
                    again.set()

            server.listeners.add(heard)
            try:
                await client.session.send_request(
                    types.SubscribeRequest(params=types.SubscribeRequestParams(uri=inner)), types.EmptyResult
                )
                while True:
                    await again.wait()
                    again = anyio.Event()
                    await changed()
            finally:
                server.listeners.discard(heard)
                with anyio.move_on_after(UNSUBSCRIBE_S, shield=True), suppress(MCPError):
                    await client.session.send_request(
                        types.UnsubscribeRequest(params=types.UnsubscribeRequestParams(uri=inner)), types.EmptyResult
                    )

        async def either(client: Client) -> None:
            await (older if client.protocol_version in HANDSHAKE_PROTOCOL_VERSIONS else newer)(client)

        await server.ask(either)

    async def prompt(
        self, name: str, arguments: dict[str, str] | None, asked: Asked | None = None
    ) -> types.GetPromptResult:
        """A prompt with its arguments filled in by its server.

        Args:
            asked: As for `read`.

        Raises:
            MCPError: There is no such server, or what the server said.
        """
        server, inner = self._prompt(name)
        if server is None:
            raise MCPError(types.INVALID_PARAMS, f"there is no prompt {cut(visible(name), 200)}")
        what = f"the prompt {cut(visible(inner), 200)}"
        result = await _asked(server, lambda client: client.get_prompt(inner, arguments), what, asked)
        return types.GetPromptResult(
            description=None if result.description is None else cut(visible(result.description), SAID),
            messages=[_mended(_moved(server.name, message)) for message in result.messages],
        )

    async def complete(self, params: types.CompleteRequestParams) -> types.CompleteResult:
        """What could be filled in for an argument of a prompt, or of a template of resources: its server knows.

        Raises:
            MCPError: There is no such server, or what the server said.
        """
        ref = params.ref
        if isinstance(ref, types.PromptReference):
            server, inner = self._prompt(ref.name)
            there: Any = ref.model_copy(update={"name": inner})
        else:
            server, inner = self._place(ref.uri)
            there = ref.model_copy(update={"uri": inner})
        if server is None:
            raise MCPError(types.INVALID_PARAMS, "there is no such prompt or template of resources")
        argument = {"name": params.argument.name, "value": params.argument.value}
        given = None if params.context is None else params.context.arguments
        result = await _asked(server, lambda client: client.complete(there, argument, given))
        return types.CompleteResult(completion=_mended(result.completion))

    def _place(self, uri: str) -> tuple[Server | None, str]:
        """The server of a resource, and what the resource is there."""
        place, _, inner = uri.removeprefix(SCHEME).partition("/")
        return (self._servers.get(unquote(place)) if uri.startswith(SCHEME) else None), inner

    def _prompt(self, name: str) -> tuple[Server | None, str]:
        """The server of a prompt, and what the prompt is there."""
        place, _, inner = name.partition("/")
        return (self._servers.get(place) if inner else None), inner

    async def _all(self, one: Callable[[Server], Awaitable[list[Kept]]]) -> list[Kept]:
        """One list of every server, together; the servers' order."""
        found: dict[str, list[Kept]] = {}

        async def ask(server: Server) -> None:
            try:
                with anyio.fail_after(LIST_S):
                    found[server.name] = await one(server)
            except MCPError as error:
                if error.code != types.METHOD_NOT_FOUND:
                    log.warning("server %s did not list: %s", server.name, cut(visible(str(error)), SAID))
            except (ToolError, ValidationError, TimeoutError) as error:
                said = error.message if isinstance(error, ToolError) else type(error).__name__
                log.warning("server %s did not list: %s", server.name, cut(visible(said), SAID))

        async with anyio.create_task_group() as tasks:
            for server in self._servers.values():
                if not server.error:  # one that is down is not waited for
                    tasks.start_soon(ask, server)
        return [each for name in self._servers for each in found.get(name, [])]


async def _pages(server: Server, ask: Callable[[Client, str | None], Awaitable[Page]]) -> list[Page]:
    """All pages of a list, up to a bound; one that goes on after it is said to be cut."""
    pages: list[Page] = []
    cursors: set[str | None] = set()
    cursor: str | None = None
    while cursor not in cursors and len(pages) < PAGES:
        cursors.add(cursor)
        asked = cursor
        pages.append(await server.ask(lambda client, at=asked: ask(client, at)))
        cursor = pages[-1].next_cursor
        if cursor is None:
            return pages
    log.warning("server %s: a list of it goes on after %d pages, and the rest was left out", server.name, len(pages))
    return pages


async def _asked(
    server: Server, question: Callable[[Client], Awaitable[T]], what: str = "", asked: Asked | None = None
) -> T:
    """Ask one server; its deadline stands while a person is asked in turn."""
    clock = CallClock(READ_S, ceiling_s=READ_S, patience_s=ANSWER_S, changed=lambda: None)
    context = None
    if asked is not None:
        context = ToolContext(
            run_id=asked.id, call_id="", idempotency_key="", caller_context=asked, on_hold=clock.on_hold
        )
    try:
        with clock.scope:
            return await server.ask(question, what, context)
        raise TimeoutError
    except MCPError as error:
        raise MCPError(error.code, f"server {server.name}: {cut(visible(str(error)), SAID)}") from None
    except ToolError as error:
        raise MCPError(types.INTERNAL_ERROR, cut(visible(error.message), SAID)) from None
    except TimeoutError:
        raise MCPError(types.INTERNAL_ERROR, f"server {server.name} did not answer within {READ_S:g} s") from None
    except (ValidationError, InputRequiredRoundsExceededError):
        raise MCPError(types.INTERNAL_ERROR, f"server {server.name} answered what cannot be read") from None


def _named(server: str, thing: Kept, **more: Any) -> Kept:
    """A thing with its server's name before its own, and its words on one line."""
    had: Any = thing
    title = None if had.title is None else cut(visible(had.title), SAID)
    said = None if had.description is None else cut(visible(had.description), SAID)
    name = f"{server}/{had.name}"
    return _mended(thing.model_copy(update={"name": name, "title": title, "description": said, "icons": None, **more}))


def _resource(server: str, resource: types.Resource) -> types.Resource:
    return _named(server, resource, uri=uri_of(server, resource.uri))


def _moved(server: str, message: types.PromptMessage) -> types.PromptMessage:
    """A message whose resources are named as hosts see them."""
    content = message.content
    if isinstance(content, types.ResourceLink):
        content = content.model_copy(update={"uri": uri_of(server, content.uri)})
    elif isinstance(content, types.EmbeddedResource):
        inner = content.resource.model_copy(update={"uri": uri_of(server, content.resource.uri)})
        content = content.model_copy(update={"resource": inner})
    return message.model_copy(update={"content": content})


def _mended(thing: Kept) -> Kept:
    """The same with no half characters in it: one would end the host's connection."""
    return type(thing).model_validate(well_formed(thing.model_dump(by_alias=True, exclude_none=True)))
