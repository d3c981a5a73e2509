"""`Executor`: one catalog, one policy, one sandbox, and the runs on them."""

from __future__ import annotations

import copy
import os
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Self

import anyio

from bridge.approval import Approver, Grants
from bridge.approver_key import check
from bridge.errors import StateError
from bridge.keys import checked_keys
from bridge.lock import Lock, lock_of
from bridge.offer import Offer, checked_arguments
from bridge.policy import Policy
from bridge.portal import Portal
from bridge.tools import Caller, Catalog, Tool
from sandbox import Call, Limits, Notice, Sandbox

if TYPE_CHECKING:
    from types import TracebackType

    from anyio.abc import TaskGroup

    from bridge.elicitation import Elicit
    from bridge.events import Event
    from bridge.keeping import Keeper
    from bridge.logbook import Logbook
    from bridge.mcp import Server
    from bridge.results import Result
    from bridge.roster import Roster
    from bridge.run import Run

HIBERNATE_AFTER_S: Final = 30.0


class Executor:
    """Runs programs that call tools.

    An async context manager (or a plain one, for code without an event loop: then use `run_sync`).

    Args:
        tools: Python functions, `Tool`s and MCP servers (`mcp.stdio`, `mcp.http`), in the order of the catalog.
        policy: What is allowed, asked about, or denied. Default: functions allowed, MCP tools asked about.
        approver: Who answers what is asked; called once a wave with all requests. Without one a run pauses.
        elicit: Who answers what MCP servers ask during their calls. Without one they are told that they cannot ask.
        limits: Bounds of every run; a run may lower them.
        sandbox: An open `Sandbox` to share, or None for one of its own.
        on_event: Called with every event of every run, in the loop's thread; must not block.
        logbook: Where every run is written as lines of JSON when it pauses and when it ends, secrets left out.
        store: Where runs are kept: `sqlite:///runs.db`, `postgresql://...` or `memory`. None: a run ends with its
            process, unless it is dumped.
        key: Authenticates states where there is no store; of several the first signs and all are accepted.
        audience: Who may load a state: executors that name the same.
        approver_key: Verifier of the key (`ApproverKey.make(passphrase).verifier`) that signs verdicts of other
            processes: no other counts then. A call that is to be asked about is sent on no other word of the store.
            None: whoever can write to the store can decide.
        lock: A `sandbridge.lock`: tools of servers that are not what it says, or not in it, are left out.
        hibernate_after_s: Seconds after which a paused run gives its worker back.

    Raises:
        CatalogError: At construction, when tools cannot stand together.
        ConfigurationError: A key that can be guessed, or none; a lock file that cannot be used; on
            entering, a store that cannot be used.
    """

    def __init__(
        self,
        tools: Iterable[Tool | Server | Callable[..., Any]],
        *,
        policy: Policy | None = None,
        approver: Approver | None = None,
        elicit: Elicit | None = None,
        limits: Limits | None = None,
        sandbox: Sandbox | None = None,
        on_event: Callable[[Event], None] | None = None,
        logbook: Logbook | None = None,
        store: str | None = None,
        key: bytes | str | Sequence[bytes | str] | None = None,
        audience: str = "sandbridge",
        approver_key: str | None = None,
        lock: Lock | str | os.PathLike[str] | None = None,
        hibernate_after_s: float = HIBERNATE_AFTER_S,
    ) -> None:
        given = checked_arguments(tools, policy, approver, limits, elicit)
        self.policy = policy or Policy()
        self.approver = approver
        self.elicit = elicit
        self.limits = limits or (sandbox.limits if sandbox else Limits())
        self.grants = Grants()
        self.on_event = on_event
        self._own = sandbox is None
        self.sandbox = sandbox or Sandbox(limits=self.limits)
        self._offer = Offer(given, self.policy, self.grants, lock_of(lock))
        self._approved_by = "" if approver_key is None else check(approver_key)
        self._keeps = (store, checked_keys(key), audience)
        self._hibernate_after_s, self._logbook = hibernate_after_s, logbook
        self._tasks: TaskGroup | None = None
        self._open = False
        self._portal = Portal()

    @cached_property
    def _keeper(self) -> Keeper:
        from bridge.keeping import Keeper

        return Keeper(*self._keeps, approver=self._approved_by)

    @cached_property
    def _roster(self) -> Roster:
        from bridge.roster import Roster

        return Roster(
            self.sandbox,
            self._offer,
            self._keeper,
            limits=self.limits,
            grants=self.grants,
            approver=self.approver,
            on_event=self.on_event,
            hibernate_after_s=self._hibernate_after_s,
            logbook=self._logbook,
        )

    # ---- life -----------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        if self._open:
            raise StateError("this executor is open already")
        self._open = True
        if self._own:
            self.sandbox.launch()  # V8 loads in its own process while the rest happens here
        try:
            self._roster.tasks = None  # imports what drives runs
            if self._own:
                await self.sandbox.__aenter__()
            await self._keeper.open()
            self._tasks = await anyio.create_task_group().__aenter__()
            self._tasks.start_soon(self._roster.expiring)
            if self._keeper.store is not None:
                self._tasks.start_soon(self._keeper.renewing)
            await self._offer.start(self._tasks, self.elicit)
            self._roster.tasks = self._tasks
        except BaseException:
            await self._shut()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._shut()

    async def _shut(self) -> None:
        """Leave nothing behind, whatever the reason; what the block raised goes on as it is, in no group."""
        tasks, self._tasks, self._roster.tasks = self._tasks, None, None
        try:
            if tasks is not None:
                with anyio.CancelScope(shield=True):
                    await self._roster.put_down()
                    await self._offer.stop()
                tasks.cancel_scope.cancel()
                await tasks.__aexit__(None, None, None)
        finally:
            self._open = False
            self._roster.runs.clear()
            with anyio.CancelScope(shield=True):
                await self._keeper.close()
            if self._own:
                await self.sandbox.__aexit__(None, None, None)

    def __enter__(self) -> Self:
        """For code without an event loop: one thread runs it, as long as the block lasts."""
        if self._open or self._portal.opened:
            raise StateError("this executor is open already")
        self._portal.enter(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._portal.leave(kind, error, traceback)

    # ---- what a model is told ---------------------------------------------------------------------------------------

    @property
    def opened(self) -> bool:
        """Whether it has been entered, and not left."""
        return self._open

    @property
    def servers(self) -> list[Server]:
        """The MCP servers among its tools."""
        return self._offer.servers

    @property
    def catalog(self) -> Catalog:
        """The tools of the next run, in their order; servers' tools once the executor is open."""
        return self._offer.gate().catalog

    @property
    def warnings(self) -> list[str]:
        """What an operator should know of the catalog: renamed and dropped tools, servers that are down."""
        return self._offer.warnings()

    def instructions(self) -> str:
        """For the model: how to write a program, and the declarations of the catalog."""
        from bridge.declarations import instructions

        return instructions(self.catalog)

    def with_tools(self, tools: Iterable[Tool | Callable[..., Any]], *, alone: bool = False) -> Executor:
        """This executor, open as it is, with more tools after its own: for requests that bring tools along.

        Args:
            tools: As at construction.
            alone: In place of its own.

        Raises:
            CatalogError: They cannot stand beside its own.
        """
        other = copy.copy(self)
        other._offer = self._offer.beside(tools, alone=alone)  # noqa: SLF001  its own
        other._roster = self._roster.with_offer(other._offer)  # noqa: SLF001
        return other

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
        return run.result if run.result is not None else run.paused_result()

    async def start(
        self,
        program: str,
        *,
        inputs: Any = None,
        limits: Limits | None = None,
        seed: int | None = None,
        context: Any = None,
        on_event: Callable[[Event], None] | None = None,
        reuse: str | None = None,
        wait: bool = True,
    ) -> Run:
        """Start a program and return at its first pause or at its end.

        Args:
            program: What the model wrote, as it is.
            inputs: JSON value; the global `inputs` of the program.
            limits: Lower than the executor's, field by field; what is higher does not count.
            seed: Of `Math.random` and `crypto.randomUUID`; random when None.
            context: Any object of yours; a tool finds it in `ToolContext.caller_context`.
            on_event: In place of the executor's.
            reuse: Id of an earlier run, whose completed calls it takes over: same tool, same arguments, in order of
                occurrence, except of `volatile` tools.
            wait: False returns at once, while it runs; `await run.settled()` waits.

        Raises:
            StateError: No run of that id is known (any more).
            TypeError: `inputs` has no JSON form.
            ValueError: `inputs` is more than half of what one message to the worker may hold.
        """
        from bridge.replies import inputs_text
        from bridge.roster import Order

        if not isinstance(program, str):  # pyright: ignore[reportUnnecessaryIsInstance]  what a model left out
            raise TypeError(f"a program is the text that the model wrote (str), not {type(program).__name__}")
        (given, changed), room = inputs_text(inputs), self.sandbox.limits.frame_bytes // 2
        if len(given) > room:
            text = f"inputs are {len(given):,} bytes of JSON text, more than {room:,} (half of frame_bytes)"
            raise ValueError(f"{text}: let a tool return what the program needs of it")
        text = f"{changed} integer(s) beyond 2^53 in inputs were delivered as strings"
        return await self._roster.begin(
            Order(
                program=program,
                inputs=given,
                limits=limits,
                seed=seed,
                notices=(Notice("big_integers", text),) if changed else (),
                reuse=reuse,
                context=context,
                on_event=on_event,
            ),
            wait=wait,
        )

    async def start_calls(
        self,
        calls: Sequence[Call],
        *,
        caller: Caller = "direct",
        program: str = "",
        limits: Limits | None = None,
        context: Any = None,
        on_event: Callable[[Event], None] | None = None,
    ) -> Run:
        """Make calls that no program of ours made, together, through the same gate; returns as `start` does.

        Args:
            calls: Numbered from 1, of tools in the catalog; `bridge.direct` makes them of plain data and checks them.
            caller: Who made them: the model itself, or a program that somebody else runs.
            program: The text of that program, for those who approve.
            limits, context, on_event: As for `start`.
        """
        from bridge.roster import Order

        return await self._roster.begin(
            Order(program=program, limits=limits, calls=tuple(calls), caller=caller, context=context, on_event=on_event)
        )

    async def load(
        self,
        state: str,
        *,
        context: Any = None,
        on_event: Callable[[Event], None] | None = None,
        wait: bool = True,
    ) -> Run:
        """Go on with a run from its state, in this or another process; with a store also from its id.

        What waits for people or the application comes back paused. A run whose process died is driven on, to its next
        pause or its end: no completed call is sent again, and one that was sent and not heard of is sent again only if
        its tool is idempotent; else the program gets `unknown_outcome`.

        Args:
            state: What `Run.dump` gave; or, with a store, a run's id, once nobody drives it.
            context, on_event, wait: As for `start`.

        Raises:
            StateError: Tampered with, for another audience, expired, used already, finished, driven by somebody.
            Diverged: The program did something else than its journal says.
        """
        return await self._roster.load(state, context, on_event, wait=wait)

    async def resume(self, run_id: str, answers: dict[str, Any]) -> Run:
        """`Run.resume` by id, for a run that paused in this executor."""
        run = self._roster.runs.get(run_id)
        if run is None:
            raise StateError(f"no paused run {run_id} here: it is finished, or belongs to another executor")
        return await run.resume(answers)

    def fetch(self, handle: str) -> Any:
        """Whole data behind a handle: a result that the model saw cut, or the bytes of a picture.

        Raises:
            StateError: Nothing is kept under it (any more).
        """
        run = self._roster.kept(handle)
        if run is not None and run.result is not None:
            return run.result.value
        for server in self.servers:
            blob = server.blobs.get(handle)
            if blob is not None:
                return blob
        from bridge.roster import KEPT_RUNS

        raise StateError(f"nothing is kept under {handle!r}: the last {KEPT_RUNS} results are")

    def run_sync(self, program: str, **options: Any) -> Result:
        """`run` for code without an event loop, inside `with Executor(...)` or on its own.

        Raises:
            StateError: Called where an event loop runs, which it would block: `await executor.run(...)` there.
        """
        with suppress(RuntimeError):  # no event loop: as it should be
            anyio.get_current_task()
            raise StateError("an event loop runs in this thread and would be blocked: use `await executor.run(...)`")
        if self._portal.opened:
            return self._portal.call(lambda: self.run(program, **options))
        if self._open:
            raise StateError("this executor was opened with `async with`: use `await executor.run(...)`")
        with self:
            return self.run_sync(program, **options)

    def call_sync(self, function: Callable[..., Awaitable[Any]], *arguments: Any) -> Any:
        """Any other coroutine method (`start`, `run.resume`) from code without an event loop."""
        if not self._portal.opened:
            raise StateError("open the executor first: `with Executor(...) as executor`")
        return self._portal.call(function, *arguments)
