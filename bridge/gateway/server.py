"""`Gateway`: the handlers of the MCP server, on an executor that may still be opening.

A host's handshake does not wait for slow servers behind; its first request for tools does. Changes of the lists (of
tools, prompts and resources) are published in both revisions, and what a running program has stays as it was.
"""

from __future__ import annotations

import base64
import logging
from importlib import metadata
from typing import TYPE_CHECKING, Any, Final

import anyio
import mcp_types as types
from mcp.server.lowlevel.server import NotificationOptions, Server
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import (
    PromptsListChanged,
    ResourcesListChanged,
    ServerEvent,
    ToolsListChanged,
    event_to_notification,
)

from bridge import replies
from bridge.declarations import BUDGET
from bridge.errors import StateError, ToolError
from bridge.gateway import asking, offer, questions
from bridge.gateway.clients import Listening
from bridge.gateway.fetching import Fetching
from bridge.gateway.following import Following
from bridge.gateway.runs import SESSION_HEADER, Runs
from bridge.gateway.telling import tell
from bridge.gateway.upstream import NOT_FOUND, Upstreams
from bridge.mcp.result import Blob
from bridge.schema import Checker
from bridge.search import Session

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext
    from mcp.server.models import InitializationOptions
    from mcp.server.session import ServerSession

    from bridge.executor import Executor
    from bridge.mcp.server import CallProgress
    from bridge.ranking import Embed

log: Final = logging.getLogger("sandbridge")
NAME: Final = "sandbridge"
WATCH_S: Final = 1.0  # between two looks at whether a server behind has other tools
LISTENERS: Final = 1_000  # sessions of the older revision that are told of changes
INSTRUCTIONS: Final = (
    "Sandbridge runs JavaScript programs that call tools. Find tools with search_tools, then give run_program one "
    "program that makes all the calls and returns only what is needed. What needs an approval is asked of a person."
)

Context = Any  # ServerRequestContext[Any, Any], whose parameters say nothing here


class _Server(Server[Any]):
    """With its changes announced to hosts of the older revision, which are told nothing otherwise."""

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> InitializationOptions:
        told = notification_options or NotificationOptions(
            prompts_changed=True, resources_changed=True, tools_changed=True
        )
        return super().create_initialization_options(told, experimental_capabilities, extensions)


class Gateway:
    """An executor as an MCP server. Serves any number of hosts at once; each sees its own runs only.

    Args:
        budget: Tokens of declarations in the description of `run_program`.
        embed: For ranking by meaning in `search_tools`.
        elsewhere: For the result of a paused run: how a person decides beside the host, `{run}` being the run's id.

    Attributes:
        server: The SDK's server, for any of its transports.
    """

    def __init__(
        self,
        executor: Executor | None = None,
        *,
        budget: int = BUDGET,
        embed: Embed | None = None,
        elsewhere: str = "",
    ) -> None:
        self._budget = budget
        self._elsewhere = elsewhere
        self._embed = embed
        self._executor: Executor | None = None
        self._opened = anyio.Event()
        self._failed: str | None = None
        self._bus = InMemorySubscriptionBus()
        self._following = Following(self._bus)
        self._fetching = Fetching()
        self._told: dict[str, ServerSession] = {}
        self._checkers = {name: Checker(schema, name) for name, schema in offer.SCHEMAS.items()}
        self.server: Server[Any] = _Server(
            NAME,
            version=_version(),
            title="Sandbridge",
            instructions=INSTRUCTIONS,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_list_resources=self._list_resources,
            on_list_resource_templates=self._list_templates,
            on_read_resource=self._read_resource,
            on_list_prompts=self._list_prompts,
            on_get_prompt=self._get_prompt,
            on_completion=self._complete,
            on_subscriptions_listen=Listening(ListenHandler(self._bus), self._following.during),
            on_subscribe_resource=self._subscribe,
            on_unsubscribe_resource=self._unsubscribe,
        )
        # A state that comes back from a host is sealed, bound to its request and credential, and lives as long as what
        # it waits for.
        security = RequestStateSecurity.ephemeral(ttl=86_400.0)
        self.server.middleware.append(RequestStateBoundary(security, default_audience=NAME))
        if executor is not None:
            self.opened(executor)

    def opened(self, executor: Executor) -> None:
        """Take the executor, open and without an approver: requests that waited for it go on."""
        if executor.approver is not None:
            raise StateError("the gateway asks its hosts: give it an executor without an approver")
        self._executor = executor
        self._session = Session(executor.catalog, budget=self._budget, limits=executor.limits, embed=self._embed)
        self._runs = Runs(executor, self._elsewhere)
        self._upstreams = self._following.upstreams = Upstreams(executor.servers)
        for server in executor.servers:
            server.listeners.add(questions.heard)
        self._opened.set()

    def failed(self, why: str) -> None:
        """Say that there will be no executor: requests that wait for it fail with the reason."""
        self._failed = why
        self._opened.set()

    async def watch(self) -> None:
        """Publish changes of lists and of resources, until cancelled. Runs beside the transport."""
        try:
            async with anyio.create_task_group() as tasks:
                self._following.tasks = self._fetching.tasks = tasks
                await self._opened.wait()
                if self._executor is not None:
                    await self._watch(self._executor)
        finally:
            self._following.tasks = self._fetching.tasks = None

    async def _watch(self, executor: Executor) -> None:
        lists: set[ServerEvent] = set()

        def changed(what: ServerEvent | CallProgress) -> None:
            if isinstance(what, (PromptsListChanged, ResourcesListChanged)):
                lists.add(what)

        for server in executor.servers:
            server.listeners.add(changed)
        try:
            while True:
                await anyio.sleep(WATCH_S)
                catalog = executor.catalog
                if catalog.digest != self._session.catalog.digest:
                    for line in self._session.update(catalog):
                        log.info("%s", line)
                    lists.add(ToolsListChanged())
                while lists:
                    await self._publish(lists.pop())
        finally:
            for server in executor.servers:
                server.listeners.discard(changed)

    async def _publish(self, changed: ServerEvent) -> None:
        """Tell hosts of both revisions."""
        await self._bus.publish(changed)
        await tell(self._told, lambda session: session.send_notification(event_to_notification(changed, {})))

    async def _ready(self) -> Executor:
        await self._opened.wait()
        if self._executor is None:
            raise MCPError(types.INTERNAL_ERROR, f"sandbridge could not start: {self._failed}")
        return self._executor

    # ---- tools ------------------------------------------------------------------------------------------------------

    async def _list_tools(self, ctx: Context, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        await self._ready()
        self._remember(ctx)
        return types.ListToolsResult(tools=offer.tools(self._session))

    async def _call_tool(
        self, ctx: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        await self._ready()
        checker = self._checkers.get(params.name)
        if checker is None:
            raise MCPError(types.INVALID_PARAMS, f"there is no tool {params.name[:100]!r}: {', '.join(self._checkers)}")
        try:
            given: Any = checker.arguments([params.arguments or {}]).arguments
            if params.name == offer.SEARCH:
                return offer.found(self._session.search(**given))
        except ToolError as error:
            return offer.failed(error.message)
        if params.request_state is not None:
            return await self._runs.answered(ctx, params.request_state, params.input_responses or {})
        if params.name == offer.RESUME:
            return await self._runs.resume(ctx, given["run_id"])
        return await self._runs.start(ctx, given["program"], given.get("inputs"), given.get("reuse"))

    def _remember(self, ctx: ServerRequestContext[Any, Any]) -> None:
        """Keep the session of a host that can only be told of changes by it."""
        key = _key(ctx)
        if not asking.modern(ctx):
            self._told[key] = ctx.session
            while len(self._told) > LISTENERS:
                self._told.pop(next(iter(self._told)))

    # ---- resources and prompts --------------------------------------------------------------------------------------

    async def _list_resources(self, ctx: Context, params: Any) -> types.ListResourcesResult:
        await self._ready()
        self._remember(ctx)
        return types.ListResourcesResult(resources=await self._upstreams.resources())

    async def _subscribe(self, ctx: Context, params: types.SubscribeRequestParams) -> types.EmptyResult:
        await self._ready()
        self._following.subscribe(str(params.uri), _key(ctx), ctx.session)
        return types.EmptyResult()

    async def _unsubscribe(self, ctx: Context, params: types.UnsubscribeRequestParams) -> types.EmptyResult:
        self._following.unsubscribe(str(params.uri), _key(ctx))
        return types.EmptyResult()

    async def _list_templates(self, ctx: Context, params: Any) -> types.ListResourceTemplatesResult:
        await self._ready()
        self._remember(ctx)
        return types.ListResourceTemplatesResult(resource_templates=await self._upstreams.templates())

    async def _list_prompts(self, ctx: Context, params: Any) -> types.ListPromptsResult:
        await self._ready()
        self._remember(ctx)
        return types.ListPromptsResult(prompts=await self._upstreams.prompts())

    async def _get_prompt(
        self, ctx: Context, params: types.GetPromptRequestParams
    ) -> types.GetPromptResult | types.InputRequiredResult:
        await self._ready()
        return await self._fetching.fetch(
            ctx, params, lambda asked: self._upstreams.prompt(params.name, params.arguments, asked)
        )

    async def _complete(self, ctx: Context, params: types.CompleteRequestParams) -> types.CompleteResult:
        await self._ready()
        return await self._upstreams.complete(params)

    async def _read_resource(
        self, ctx: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult | types.InputRequiredResult:
        executor, uri = await self._ready(), str(params.uri)
        try:
            if uri.startswith(offer.RESULTS):
                return self._result(executor, uri)
            return await self._fetching.fetch(ctx, params, lambda asked: self._upstreams.read(uri, asked))
        except MCPError as error:
            if error.code not in (NOT_FOUND, types.INVALID_PARAMS):
                raise
            # One thing with two codes: the server behind may speak another revision than the host.
            code = types.INVALID_PARAMS if asking.modern(ctx) else NOT_FOUND
            raise MCPError(code, error.message, {"uri": uri}) from None

    def _result(self, executor: Executor, uri: str) -> types.ReadResourceResult:
        name = uri.removeprefix(offer.RESULTS)
        if not self._runs.owns(name):
            raise MCPError(NOT_FOUND, f"there is no result {name[:100]!r} of yours")
        kept: Any = self._runs.picture(name)
        if kept is None:
            try:
                kept = executor.fetch(name)
            except StateError as error:
                raise MCPError(NOT_FOUND, str(error)) from None
        if isinstance(kept, Blob):
            blob = base64.b64encode(kept.data).decode()
            return types.ReadResourceResult(
                contents=[types.BlobResourceContents(uri=uri, mime_type=kept.mime_type, blob=blob)]
            )
        text = replies.encode(kept).decode()
        return types.ReadResourceResult(
            contents=[types.TextResourceContents(uri=uri, mime_type="application/json", text=text)]
        )


def _key(ctx: ServerRequestContext[Any, Any]) -> str:
    """Which session a request is of; an empty text where there is one only."""
    headers: Any = getattr(ctx.request, "headers", None)
    return "" if headers is None else headers.get(SESSION_HEADER) or ""


def _version() -> str:
    try:
        return metadata.version("sandbridge")
    except metadata.PackageNotFoundError:
        return "0"
