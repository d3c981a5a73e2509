"""The runs of one executor: begun, loaded, driven as its tasks, and kept for a while when they are over."""

from __future__ import annotations

import copy
import heapq
import math
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import anyio
import msgspec

from bridge import events
from bridge.approval import Approver, Grants
from bridge.clock import now_ms
from bridge.errors import StateError
from bridge.gate import Gate
from bridge.journal import VERSION, Began, Ended, Journal, Record, Sink
from bridge.keeping import Keeper
from bridge.loading import is_at_rest, regrant, taken_over
from bridge.made import Made
from bridge.offer import Offer
from bridge.proofs import Proofs
from bridge.reuse import Reuse
from bridge.run import Run
from bridge.state import RunState, fold
from bridge.surroundings import Surroundings
from bridge.tools import Caller
from bridge.tracing import trace
from sandbox import Call, Limits, Notice, Sandbox

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from bridge.logbook import Logbook

KEPT_RUNS: Final = 100  # finished runs whose whole result `fetch` still has, and whose calls may be used again
KEPT_BYTES: Final = 64 << 20  # of memory for them, about


@dataclass(frozen=True, kw_only=True)
class Order:
    """What somebody wants run: a program, or calls that were made elsewhere."""

    program: str
    inputs: bytes = b"null"
    limits: Limits | None = None
    seed: int | None = None
    notices: tuple[Notice, ...] = ()
    reuse: str | None = None
    calls: tuple[Call, ...] = ()
    caller: Caller = "programmatic"
    context: Any = None
    on_event: Callable[[events.Event], None] | None = None


class Roster:
    """Begins and loads runs.

    Attributes:
        tasks: Where runs are driven; None while the executor is closed.
        runs: Those that are not over, by id.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        offer: Offer,
        keeper: Keeper,
        *,
        limits: Limits,
        grants: Grants,
        approver: Approver | None,
        on_event: Callable[[events.Event], None] | None,
        hibernate_after_s: float,
        logbook: Logbook | None = None,
    ) -> None:
        self.tasks: TaskGroup | None = None
        self.runs: dict[str, Run] = {}
        self._sandbox = sandbox
        self._offer = offer
        self._keeper = keeper
        self._limits = limits
        self._grants = grants
        self._approver = approver
        self._on_event = on_event
        self._logbook = logbook
        self._hibernate_after_s = hibernate_after_s
        self._kept: OrderedDict[str, tuple[Run, int]] = OrderedDict()  # finished runs, and the bytes that they hold
        self._kept_bytes = 0
        self._alarms: list[tuple[float, str]] = []
        self._alarm = anyio.Event()

    async def begin(self, order: Order, *, wait: bool = True) -> Run:
        """Start a run and return at its first pause or at its end; or at once."""
        self._must_be_open()
        reuse = Reuse(await self.past(order.reuse)) if order.reuse is not None else None
        gate = self._offer.gate()
        began = Began(
            version=VERSION,
            run_id=secrets.token_hex(8),
            at=time.time(),
            program=order.program.encode("utf-8", "replace").decode(),  # half characters have no place in a journal
            inputs=msgspec.Raw(order.inputs),
            seed=secrets.randbits(32) if order.seed is None else order.seed & 0xFFFFFFFF,
            now_ms=now_ms(),
            limits=self._limits if order.limits is None else self._limits.lowered(order.limits),
            tools=gate.bound,
            engine=self._sandbox.engine_digest,
            notices=[*self._servers_down(), *order.notices],
            reuse=reuse.run_id if reuse is not None else "",
            calls=list(order.calls),
            caller=order.caller,
            approver=self._keeper.approver,
        )
        await self._keeper.exchange(self._grants)
        sink = await self._keeper.begin(began)
        listener = order.on_event or self._on_event
        run = self._make(RunState(began), [began], sink, gate, order.context, listener, reuse=reuse)
        if listener is not None:
            events.tell(listener, began, run.state)
        self._spawn(run)
        if wait:
            await run.settled()
        return run

    async def load(
        self, state: str, context: Any, on_event: Callable[[events.Event], None] | None, *, wait: bool = True
    ) -> Run:
        """Go on with a run from its journal; see `Executor.load`."""
        self._must_be_open()
        records, sink = await self._keeper.read(state)
        ended: Ended | None = None
        try:
            proofs = Proofs(self._keeper.approver) if self._keeper.approver else None
            kept = fold(records) if proofs is None else proofs.fold(records)
            if (ended := kept.ended) is not None:
                raise StateError(f"run {kept.id} is finished ({ended.status}): nothing of it can be resumed")
            if kept.approver and proofs is None:
                raise StateError(
                    f"run {kept.id} counts signed verdicts only: open the executor with the same approver_key="
                )
            kept.limits = self._sandbox.limits.lowered(kept.limits)
            rested = kept.rests
            reuse = await self._reuse_on(kept) if kept.began.reuse else None
            await self._keeper.exchange(self._grants, [tool.digest for tool in kept.began.tools])
            if proofs is None:
                regrant(records, kept, self._grants)
            else:
                regrant(proofs.records, kept, self._grants, signed=True)
            gate = self._offer.gate_for(kept)
            self._must_have_tools(kept, gate)
        except BaseException:
            await self._keeper.let_go(sink, ended)
            raise
        run = self._make(
            kept,
            records,
            sink,
            gate,
            context,
            on_event or self._on_event,
            reuse=reuse,
            paused=True,
            ask_again=not rested,
        )
        if kept.began.reuse and reuse is None:
            text = f"run {kept.began.reuse} is not known any more: once loaded, this one took nothing more over from it"
            run.remarks.append(Notice("reused_calls", text))
        proved = None if proofs is None else proofs.calls
        engine = self._sandbox.engine_digest
        for record in taken_over(kept, gate, engine, approver=self._keeper.approver, proved=proved):
            run.add(record)
        if rested and is_at_rest(kept):
            await run.give_back()
            self._watch(run)
            return run
        run.status = "running"
        self._spawn(run)
        if wait:
            await run.settled()
        return run

    def _must_have_tools(self, kept: RunState, gate: Gate) -> None:
        """Nothing of a run is lost because somebody goes on with it without what it waits for."""
        open_calls = [call for call in kept.calls.values() if call.stage != "done"]
        missing = sorted({call.tool for call in open_calls if gate.catalog.lookup(call.tool) is None})
        if missing:
            down = "".join(f"; {notice.message}" for notice in self._servers_down())
            raise StateError(
                f"run {kept.id} has calls of {', '.join(missing)}, which are not offered here{down}. Nothing of it was "
                "changed: go on with the tools and servers that it began with"
            )

    async def _reuse_on(self, kept: RunState) -> Reuse | None:
        """What a run that goes on may still take over; None where the earlier run is not known any more."""
        try:
            return Reuse(await self.past(kept.began.reuse), kept)
        except StateError:
            return None

    async def past(self, run_id: str) -> RunState:
        """A run that is or was here, or that the store has, to be read only. `StateError`: nobody knows it."""
        known = self.runs.get(run_id) or self.kept(run_id)
        return known.state if known is not None else await self._keeper.past(run_id)

    def kept(self, run_id: str) -> Run | None:
        """A finished run that is still at hand."""
        run, _ = self._kept.get(run_id, (None, 0))
        return run

    def with_offer(self, offer: Offer) -> Roster:
        """The same runs in one book, with other tools for new ones."""
        other = copy.copy(self)
        other._offer = offer  # noqa: SLF001  its own
        return other

    async def expiring(self) -> None:
        """Go on with sleeping runs whose calls nobody answered in time. A task of the executor."""
        while True:
            while self._alarms and self._alarms[0][0] <= time.time():
                run = self.runs.get(heapq.heappop(self._alarms)[1])
                if run is not None:
                    await run.expire_asleep()
            self._alarm = anyio.Event()
            left = self._alarms[0][0] - time.time() if self._alarms else math.inf
            with anyio.move_on_after(left):
                await self._alarm.wait()

    async def put_down(self) -> None:
        """The executor closes: see `Run.put_down`."""
        for run in list(self.runs.values()):
            await run.put_down()

    def _must_be_open(self) -> None:
        if self.tasks is None:
            raise StateError("enter the executor first: `async with Executor(...) as executor`")

    def _servers_down(self) -> list[Notice]:
        return [  # why it is down is for the operator: `tools` and `doctor` say it
            Notice("server_down", f"the server {server.name} is down, so its tools are missing")
            for server in self._offer.servers
            if server.error
        ]

    def _make(
        self,
        state: RunState,
        records: list[Record],
        sink: Sink | None,
        gate: Gate,
        context: Any,
        listener: Callable[[events.Event], None] | None,
        *,
        reuse: Reuse | None = None,
        paused: bool = False,
        ask_again: bool = False,
    ) -> Run:
        around = Surroundings(
            sandbox=Made(state.began.calls) if state.began.calls else self._sandbox,
            gate=gate,
            approver=self._approver,
            context=context,
            live=self._offer.live,
            spawn=self._spawn,
            over=self._over,
            keeper=self._keeper,
            hibernate_after_s=self._hibernate_after_s,
            trace=trace(state, self._sandbox),
        )

        write = self._logbook.follow(records) if self._logbook is not None else None

        def tell(record: Record) -> None:
            if listener is not None:
                events.tell(listener, record, state)
            if around.trace is not None:
                around.trace.take(record)
            if write is not None:
                write(record)

        told = listener is not None or around.trace is not None or write is not None
        kept = Journal(records, sink, tell if told else None)
        run = self.runs[state.id] = Run(state, kept, around, reuse=reuse, paused=paused, ask_again=ask_again)
        return run

    def _spawn(self, run: Run) -> None:
        if self.tasks is None:
            raise StateError("the executor is closed: load the run in another one")
        self.tasks.start_soon(self._drive, run)

    async def _drive(self, run: Run) -> None:
        try:
            await run.drive()
        finally:
            if run.status != "finished" and self.runs.get(run.id) is run:
                self._watch(run)

    def _over(self, run: Run) -> None:
        if self.runs.get(run.id) is run:
            del self.runs[run.id]
            self._keep(run)

    def _watch(self, run: Run) -> None:
        """A run sleeps: somebody has to notice when its calls expire."""
        first = run.people.expires_at()
        heapq.heappush(self._alarms, (first, run.id))
        if self._alarms[0] == (first, run.id):
            self._alarm.set()

    def _keep(self, run: Run) -> None:
        size = run.state.size
        self._kept[run.id] = run, size
        self._kept_bytes += size
        while len(self._kept) > KEPT_RUNS or self._kept_bytes > KEPT_BYTES:
            _, (_, size) = self._kept.popitem(last=False)
            self._kept_bytes -= size
