"""`Executor`: one catalog, one policy, one sandbox, and the runs on them."""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any, Final, Self, cast

import anyio
import anyio.from_thread

from bridge import ending, replies
from bridge.approval import Approver, Grants
from bridge.errors import CatalogError, StateError, ToolError
from bridge.gate import Gate, usable
from bridge.policy import Policy
from bridge.run import Run
from bridge.tools import Catalog, Entry, Tool
from sandbox import Limits, Notice, Sandbox

if TYPE_CHECKING:
    from anyio.abc import TaskGroup
    from typing_extensions import TypeIs

    from bridge.events import Event
    from bridge.mcp import Server
    from bridge.results import Result

KEPT_RUNS: Final = 100  # finished runs whose whole result `fetch` still has
KEPT_BYTES: Final = 64 << 20  # of their values together


class Executor:
    """Runs programs that call tools.

    An async context manager (or a plain one, for code without an event loop: then use `run_sync`).

    Args:
        tools: Python functions, `Tool`s and MCP servers (`mcp.stdio`, `mcp.http`), in the order of the catalog.
        policy: What is allowed, asked about, or denied. Default: functions allowed, MCP tools asked about.
        approver: Who answers what is asked; called once a wave with all requests. Without one a run pauses.
        limits: Bounds of every run; a run may lower them.
        sandbox: An open `Sandbox` to share, or None for one of its own.
        on_event: Called with every event of every run, in the loop's thread; must not block.

    Raises:
        CatalogError: At construction, when tools cannot stand together.
    """

    def __init__(
        self,
        tools: Iterable[Tool | Server | Callable[..., Any]],
        *,
        policy: Policy | None = None,
        approver: Approver | None = None,
        limits: Limits | None = None,
        sandbox: Sandbox | None = None,
        on_event: Callable[[Event], None] | None = None,
    ) -> None:
        given = checked_arguments(tools, policy, approver, limits)
        self.servers: list[Server] = [tool for tool in given if is_server(tool)]
        self._given = given
        self.policy = policy or Policy()
        self.approver = approver
        self.limits = limits or (sandbox.limits if sandbox else Limits())
        self.grants = Grants()
        self.on_event = on_event
        self._own = sandbox is None
        self.sandbox = sandbox or Sandbox(limits=self.limits)
        self._catalog = Catalog(
            [tool for tool in given if not is_server(tool)], [server.name for server in self.servers]
        )
        self._gate: Gate | None = None
        self._versions: tuple[int, ...] = ()
        self._warnings: dict[str, list[str]] = {}
        self._runs: dict[str, Run] = {}
        self._kept: OrderedDict[str, Result] = OrderedDict()
        self._kept_bytes = 0
        self._tasks: TaskGroup | None = None
        self._open = False
        self._sync: ExitStack | None = None
        self._portal: anyio.from_thread.BlockingPortal | None = None

    # ---- life -----------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        if self._open:
            raise StateError("this executor is open already")
        self._open = True
        if self._own:
            self.sandbox.launch()  # V8 loads in its own process while the rest happens here
        try:
            if self._own:
                await self.sandbox.__aenter__()
            self._tasks = await anyio.create_task_group().__aenter__()
            await self._start_servers(self._tasks)
        except BaseException:
            await self._shut()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._shut()

    async def _start_servers(self, tasks: TaskGroup) -> None:
        refused: list[Exception] = []

        async def start(server: Server) -> None:
            try:
                await server.start(tasks)
            except Exception as error:  # noqa: BLE001  handed to whoever enters the executor, in no group
                refused.append(error)

        async with anyio.create_task_group() as starting:
            for server in self.servers:
                starting.start_soon(start, server)
        if refused:
            raise refused[0]

    async def _shut(self) -> None:
        """Leave nothing behind, whatever the reason; what the block raised goes on as it is, in no group."""
        tasks, self._tasks = self._tasks, None
        try:
            if tasks is not None:
                with anyio.CancelScope(shield=True):
                    for run in list(self._runs.values()):
                        await run.cancel()
                    for server in self.servers:
                        await server.stop()
                tasks.cancel_scope.cancel()
                await tasks.__aexit__(None, None, None)
        finally:
            self._open = False
            if self._own:
                await self.sandbox.__aexit__(None, None, None)

    def __enter__(self) -> Self:
        """For code without an event loop: one thread runs it, as long as the block lasts."""
        if self._open or self._sync is not None:
            raise StateError("this executor is open already")
        self._sync = ExitStack()
        try:
            self._portal = self._sync.enter_context(anyio.from_thread.start_blocking_portal())
            self._sync.enter_context(self._portal.wrap_async_context_manager(self))
        except BaseException:
            sync, self._sync, self._portal = self._sync, None, None
            sync.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        sync, self._sync, self._portal = self._sync, None, None
        if sync is not None:
            sync.__exit__(*error)  # pyright: ignore[reportArgumentType]  the three that a with block gives

    # ---- what a model is told ---------------------------------------------------------------------------------------

    @property
    def catalog(self) -> Catalog:
        """The tools of the next run, in their order; servers' tools once the executor is open."""
        return self._current().catalog

    @property
    def warnings(self) -> list[str]:
        """What an operator should know of the catalog: renamed and dropped tools, servers that are down."""
        found = list(self.catalog.warnings)
        for server in self.servers:
            if server.error:
                found.append(f"server {server.name} is down: {server.error}")
            found += [f"server {server.name}: {warning}" for warning in server.warnings]
            found += self._warnings.get(server.name, [])
        unmatched = self.policy.unmatched(entry.name for entry in self.catalog.entries)
        return found + [f"a rule matches no tool: {pattern}" for pattern in unmatched]

    def instructions(self) -> str:
        """For the model: how to write a program, and the declarations of the catalog."""
        from bridge.declarations import instructions

        return instructions(self.catalog)

    # ---- runs -----------------------------------------------------------------------------------------------------

    async def run(self, program: str, **options: Any) -> Result:
        """Run a program to its outcome, or to a pause.

        Args:
            program: What the model wrote, as it is.
            **options: As for `start`.

        Returns:
            The result. `paused` when something waits for people or the application: `resume` goes on.

        Raises:
            SandboxError: V8 or the walls are not there.
        """
        run = await self.start(program, **options)
        if run.result is not None:
            return run.result
        return ending.paused(run)

    async def start(
        self,
        program: str,
        *,
        inputs: Any = None,
        limits: Limits | None = None,
        seed: int | None = None,
        context: Any = None,
        on_event: Callable[[Event], None] | None = None,
    ) -> Run:
        """Start a program and return at its first pause or at its end.

        Args:
            program: What the model wrote, as it is.
            inputs: JSON value; the global `inputs` of the program.
            limits: Lower than the executor's, field by field; what is higher does not count.
            seed: Of `Math.random` and `crypto.randomUUID`; random when None.
            context: Any object of yours; a tool finds it in `ToolContext.caller_context`.
            on_event: In place of the executor's.

        Raises:
            TypeError: `inputs` has no JSON form.
            ValueError: `inputs` is more than half of what one message to the worker may hold.
        """
        if not isinstance(program, str):  # pyright: ignore[reportUnnecessaryIsInstance]  what a model left out
            raise TypeError(f"a program is the text that the model wrote (str), not {type(program).__name__}")
        if self._tasks is None:
            raise StateError("enter the executor first: `async with Executor(...) as executor`")
        (given, changed), room = json_text(inputs), self.sandbox.limits.frame_bytes // 2
        if len(given) > room:
            text = f"inputs are {len(given):,} bytes of JSON text, more than {room:,} (half of frame_bytes)"
            raise ValueError(f"{text}: let a tool return what the program needs of it")
        run = Run(
            run_id=secrets.token_hex(8),
            program=program,
            inputs=given,
            seed=secrets.randbits(32) if seed is None else seed & 0xFFFFFFFF,
            limits=self.limits if limits is None else self.limits.lowered(limits),
            sandbox=self.sandbox,
            gate=self._current(),
            approver=self.approver,
            context=context,
            live=self._live,
            on_event=on_event or self.on_event,
        )
        for server in self.servers:
            if server.error:  # why it is down is for the operator: `tools` and `doctor` say it
                run.output.notices.append(
                    Notice("server_down", f"the server {server.name} is down, so its tools are missing")
                )
        if changed:
            text = f"{changed} integer(s) beyond 2^53 in inputs were delivered as strings"
            run.output.notices.append(Notice("big_integers", text))
        self._runs[run.id] = run
        self._tasks.start_soon(self._drive, run)
        await run.settled()
        return run

    async def resume(self, run_id: str, answers: dict[str, Any]) -> Run:
        """`Run.resume` by id, for a run that paused in this executor."""
        run = self._runs.get(run_id)
        if run is None:
            raise StateError(f"no paused run {run_id} here: it is finished, or belongs to another executor")
        return await run.resume(answers)

    def fetch(self, handle: str) -> Any:
        """Whole data behind a handle: a result that the model saw cut, or the bytes of a picture.

        Raises:
            StateError: Nothing is kept under it (any more).
        """
        if handle in self._kept:
            return self._kept[handle].value
        for server in self.servers:
            blob = server.blobs.get(handle)
            if blob is not None:
                return blob
        raise StateError(f"nothing is kept under {handle!r}: the last {KEPT_RUNS} results are")

    def run_sync(self, program: str, **options: Any) -> Result:
        """`run` for code without an event loop, inside `with Executor(...)` or on its own.

        Raises:
            StateError: Called where an event loop runs, which it would block: `await executor.run(...)` there.
        """
        with suppress(RuntimeError):  # no event loop: as it should be
            anyio.get_current_task()
            raise StateError("an event loop runs in this thread and would be blocked: use `await executor.run(...)`")
        if self._portal is not None:
            return self._portal.call(lambda: self.run(program, **options))
        if self._open:
            raise StateError("this executor was opened with `async with`: use `await executor.run(...)`")
        with self:
            return self.run_sync(program, **options)

    def call_sync(self, function: Callable[..., Awaitable[Any]], *arguments: Any) -> Any:
        """Any other coroutine method (`start`, `run.resume`) from code without an event loop."""
        if self._portal is None:
            raise StateError("open the executor first: `with Executor(...) as executor`")
        return self._portal.call(function, *arguments)

    async def _drive(self, run: Run) -> None:
        try:
            await run.drive()
        finally:
            self._runs.pop(run.id, None)
            if run.result is not None:
                self._keep(run.id, run.result)

    def _keep(self, handle: str, result: Result) -> None:
        self._kept[handle] = result
        self._kept_bytes += result.usage.value_bytes
        while len(self._kept) > KEPT_RUNS or self._kept_bytes > KEPT_BYTES:
            _, dropped = self._kept.popitem(last=False)
            self._kept_bytes -= dropped.usage.value_bytes

    def _current(self) -> Gate:
        """The gate of the next run: rebuilt when a server changed its list; a run keeps the one it started with."""
        versions = tuple(server.version for server in self.servers)
        if self._gate is None or versions != self._versions:
            if self.servers:
                tools: list[Tool | Callable[..., Any]] = []
                for given in self._given:
                    if is_server(given):
                        kept, left_out = usable(given.tools)
                        tools += kept
                        self._warnings[given.name] = left_out
                    else:
                        tools.append(given)
                self._catalog = Catalog(tools, [server.name for server in self.servers])
            self._gate, self._versions = Gate(self._catalog, self.policy, self.grants), versions
        return self._gate

    def _live(self, entry: Entry) -> Tool | None:
        """The definition of a tool as its server has it now."""
        for server in self.servers:
            if server.name == entry.tool.server:
                return next((tool for tool in server.tools if tool.name == entry.tool.name), None)
        return entry.tool


def json_text(inputs: Any) -> tuple[bytes, int]:
    """`inputs` as a program gets them, and how many integers became strings. `TypeError`: they have no JSON form."""
    try:
        return replies.digits_kept(replies.encode(inputs))
    except ToolError:
        raise TypeError(f"inputs hold a {type(inputs).__name__} that has no JSON form") from None


def checked_arguments(tools: Any, policy: Any, approver: Any, limits: Any) -> list[Any]:
    """The tools as a list; what cannot be meant stops construction, in words."""
    if isinstance(tools, (Tool, str)) or not isinstance(tools, Iterable):
        raise TypeError(f"Executor takes a list of tools, not one {type(tools).__name__}: write Executor([...])")
    for name, value, kind in (("policy", policy, Policy), ("limits", limits, Limits)):
        if value is not None and not isinstance(value, kind):
            raise TypeError(f"Executor({name}=) takes a {kind.__name__}, not a {type(value).__name__}")
    if approver is not None and not callable(approver):
        raise TypeError(f"Executor(approver=) takes a function of a list of requests: {type(approver).__name__}")
    given: list[Any] = list(cast("Iterable[Any]", tools))
    names = [tool.name for tool in given if is_server(tool)]
    for name in names:
        if names.count(name) > 1:
            raise CatalogError(f"two servers are named {name!r}: rename one, for rules and grants go by the name")
    return given


def is_server(tool: Tool | Server | Callable[..., Any]) -> TypeIs[Server]:
    """Whether it is an MCP server rather than a tool; asked without importing the SDK."""
    return hasattr(tool, "start") and hasattr(tool, "tools") and hasattr(tool, "identity")
