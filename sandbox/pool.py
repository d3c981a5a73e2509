"""`Sandbox`: keeps spares ready, hands out one fresh worker for each program, watches those that compute."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, Self

import anyio
from anyio.abc import TaskGroup

from sandbox import standing, walls
from sandbox.apart import cores
from sandbox.errors import EngineUnavailable, Overloaded, SandboxClosed, SandboxError
from sandbox.limits import Limits, MiB
from sandbox.messages import Reply, Settings, Start, Wave
from sandbox.origin import CAN_FORK, EXHAUSTED, Origin, Spawner, Zygote, ZygoteLost
from sandbox.process import Death, Worker

log: Final = logging.getLogger("sandbridge")
QUIET_S: Final = 0.001  # spares are made after this much of nothing computing, so that they delay no running step
AFTER_S: Final = 0.002  # a worker is killed so long after its program ended: by then the caller goes on
LONG_S: Final = 0.02  # a step that computes for longer than this is not delayed noticeably by a fork
WATCH_S: Final = 0.004  # between two looks of the watchdog; a program that ends sooner is never looked at
WAITING_BYTES: Final = 12 * MiB  # what a waiting worker is counted with when memory bounds their number


@dataclass(frozen=True, kw_only=True)
class Occupancy:
    """How busy a sandbox is at one moment.

    Attributes:
        spares: Workers that are ready and wait for a program.
        workers: All that are alive, spares among them.
        computing: Those that compute.
        queued: Programs that wait to compute, or for a worker, because `max_workers` or `max_waiting` is reached.
    """

    spares: int
    workers: int
    computing: int
    queued: int


class Sandbox:
    """One trust domain: a zygote, spares, and the bounds on what computes and what waits.

    An async context manager. Two tenants need two of these: children of one zygote share their address layout.

    Args:
        limits: What kernel and V8 are told; a run may lower any of them.
        jit: Let V8 compile. Faster on tight number loops (3-4x), at the price of the wall `code_pages` and of the part
            of V8 where most of its memory bugs were.
        spares: Workers kept ready. A program that finds one starts by writing one frame.
        max_workers: Programs that compute at once; waiting ones do not count. Default: twice the cores.
        max_waiting: Workers that may exist at once. Default: what half of the available memory holds.
        max_queued: Programs that may wait for a worker at once; one more is refused with `Overloaded`.
        require: Walls without which no worker serves, looked at in each: names of `WALLS`, or `"all"`, the strict mode.
            Default on Linux: `standing.required()`.
        recycle_after: Forks after which a zygote is replaced.
        namespaces: Try to enter namespaces (a bonus that most containers refuse).
        fork: Fork from a zygote. False spawns each worker, as on platforms without fork.
        bubblewrap: Start the zygote by `bwrap`, in a file tree that has the interpreter and nothing of the host's.

    Raises:
        EngineUnavailable, WallMissing: On entering; also later, where a wall cannot be raised any more.
        ValueError: `require` names what is no wall.
    """

    def __init__(
        self,
        *,
        limits: Limits | None = None,
        jit: bool = False,
        spares: int = 2,
        max_workers: int | None = None,
        max_waiting: int | None = None,
        max_queued: int = 10_000,
        require: Collection[str] | None = None,
        recycle_after: int = 1_000,
        namespaces: bool = True,
        fork: bool = CAN_FORK,
        bubblewrap: bool = False,
    ) -> None:
        if sys.platform == "win32":
            raise EngineUnavailable("workers need descriptors that a child inherits, which Windows has not: use WSL")
        counts = (recycle_after, max_queued, *(count for count in (max_workers, max_waiting) if count is not None))
        if spares < 0 or min(counts) < 1:
            raise ValueError(
                "spares must be 0 or more, recycle_after, max_workers and max_waiting 1 or more, and so must max_queued"
            )
        if bubblewrap and not fork:
            raise ValueError("bubblewrap=True wraps a zygote, which fork=False has not: leave out one of them")
        self.limits = limits or Limits()
        self.walls: dict[str, str] = {}
        self.engine_digest = ""
        self.max_workers = max_workers or 2 * cores()
        self.max_waiting = max_waiting or max(64, available_bytes() // 2 // WAITING_BYTES)
        self.max_queued = max_queued
        self._spare_count = spares
        self._require = standing.required(require)
        self._recycle_after = recycle_after
        self._fork = fork
        self._settings = Settings(
            jit=jit,
            cpu_s=self.limits.cpu_s,
            memory_bytes=self.limits.memory_bytes,
            namespaces=namespaces,
            channel=-1,
            parent=os.getpid(),
            bubblewrap=bubblewrap,
        )
        self._origin: Origin | None = None
        self._retired: list[Origin] = []
        self._spares: deque[Worker] = deque()
        self._live: set[Worker] = set()
        self._computing: set[Worker] = set()
        self._last_step = 0.0
        self._tasks: TaskGroup | None = None
        # Workers whose run waits for people or the application only, oldest first, and how each is asked to go.
        self.resting: dict[object, Callable[[], None]] = {}

    def launch(self) -> None:
        """Start the zygote's process now, so that V8 loads while the caller does other work before entering."""
        if self._fork and self._origin is None:
            self._origin = Zygote(self._settings)

    async def __aenter__(self) -> Self:
        self._slots = anyio.Semaphore(self.max_workers, fast_acquire=True)
        self._places = anyio.Semaphore(self.max_waiting, fast_acquire=True)
        self._wanted, self._busy, self._renewing = anyio.Event(), anyio.Event(), anyio.Lock()
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        try:
            first = await self._make(spare=True)
            self.walls, self.engine_digest = first.walls, first.engine_digest
            self._spares.append(first)
            self._tasks.start_soon(self._breed)
            self._tasks.start_soon(self._watch)
        except BaseException:
            await self._shut()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._shut()

    @property
    def occupancy(self) -> Occupancy:
        """How busy it is now; all zero while it is closed."""
        if self._tasks is None:
            return Occupancy(spares=0, workers=0, computing=0, queued=0)
        return Occupancy(
            spares=len(self._spares),
            workers=len(self._live),
            computing=len(self._computing),
            queued=sum(each.statistics().tasks_waiting for each in (self._slots, self._places)),
        )

    @asynccontextmanager
    async def worker(self, *, begun: bool = False) -> AsyncGenerator[Worker]:
        """A fresh worker for one program; it is killed and reaped afterwards, however the block is left.

        Waits when `max_waiting` workers exist, and asks the one that has rested longest to go.

        Args:
            begun: The program has run before, and others count on it to go on: it waits, however many do.

        Raises:
            Overloaded: `max_queued` programs wait already, or the machine has no descriptor or memory for one more.
            EngineUnavailable, WallMissing: There are no workers here any more.
        """
        if self._tasks is None:
            raise SandboxClosed("enter the sandbox first: `async with Sandbox() as sandbox`")
        if not self._places.value and self.resting:
            self.resting.pop(next(iter(self.resting)))()
        if not (begun or self._places.value) and self._places.statistics().tasks_waiting >= self.max_queued:
            raise Overloaded(
                f"{self.max_queued:,} programs wait for a worker (max_queued), and {self.max_waiting:,} have one "
                "(max_waiting): run this one later, or raise a bound"
            )
        async with self._places:
            worker = await self._spare() or await self._make()
            if len(self._spares) < self._spare_count:
                self._wanted.set()
            try:
                yield worker
            finally:
                if worker in self._live:
                    self._tasks.start_soon(self._clear_away, worker)

    async def start(self, worker: Worker, start: Start, limits: Limits, timeout_s: float | None = None) -> Wave | None:
        """`Worker.start` in one of the `max_workers` slots; waits for a slot first."""
        await self._begin_step(worker)
        try:
            return await worker.start(start, limits, timeout_s)
        finally:
            self._end_step(worker)

    async def deliver(
        self, worker: Worker, now_ms: float, replies: Sequence[Reply], timeout_s: float | None = None
    ) -> Wave | None:
        """`Worker.deliver` in one of the `max_workers` slots."""
        await self._begin_step(worker)
        try:
            return await worker.deliver(now_ms, replies, timeout_s)
        finally:
            self._end_step(worker)

    async def _clear_away(self, worker: Worker) -> None:
        """Out of the way of whoever waits for the result: a process that dies takes a core for a millisecond."""
        await anyio.sleep(AFTER_S)
        await self.bury(worker)

    async def bury(self, worker: Worker) -> Death:
        """Kill and reap a worker, and renew the zygote when what ended it may have shown its address layout."""
        self._live.discard(worker)
        death = await worker.close()
        if death.outcome in ("violation", "crashed"):
            self._retire(worker.origin)
        return death

    # ---- workers ---------------------------------------------------------------------------------------------------

    async def _spare(self) -> Worker | None:
        while self._spares:
            worker = self._spares.pop()  # the one that was made last: caches still hold most of it
            if worker.idle():
                return worker
            self._retire(worker.origin)  # it died while it waited, and most likely its zygote with it
            await self.bury(worker)
        return None

    async def _make(self, *, spare: bool = False) -> Worker:
        try:
            return await self._made(spare=spare)
        except OSError as error:
            if error.errno not in EXHAUSTED:
                raise
            why = f"no worker can be made now: {error.strerror} ({walls.named(error.errno)})"
            raise Overloaded(f"{why}. Run this program later, or raise that limit") from error

    async def _made(self, *, spare: bool) -> Worker:
        attempt = 0
        while attempt < 3:
            attempt += 1
            origin = await self._current()
            try:
                born = await origin.make(spare=spare)
            except ZygoteLost:
                self._retire(origin)
                continue
            worker = Worker(born, origin, self.limits, self.limits)
            self._live.add(worker)
            try:
                reason = await worker.ready()
            except BaseException:
                await self.bury(worker)
                raise
            if not reason and origin.retired:  # meanwhile: it has the address layout that may have been seen
                await self.bury(worker)
                attempt -= 1  # no fault of its own
                continue
            if not reason:
                try:
                    standing.demand(worker.walls, self._require)
                except BaseException:
                    await self.bury(worker)
                    raise
                return worker
            death = await self.bury(worker)
            if attempt == 3 or "before it was ready" not in reason:
                raise EngineUnavailable(f"a worker refused to serve: {reason} ({death.reason or death.outcome})")
        raise EngineUnavailable("no worker could be started: the zygote ended three times in a row")

    async def _current(self) -> Origin:
        async with self._renewing:
            if self._origin is None or self._origin.retired:
                self._origin = Zygote(self._settings) if self._fork else Spawner(self._settings)
            origin = self._origin
            if not origin.is_ready:
                try:
                    await origin.ready()
                except BaseException:
                    origin.kill()
                    self._origin = None
                    raise
            return origin

    def _retire(self, origin: Origin) -> None:
        if origin.retired:
            return
        for spare in [spare for spare in self._spares if spare.origin is origin]:
            self._spares.remove(spare)
            spare.kill("over")
            if self._tasks is not None:
                self._tasks.start_soon(self.bury, spare)
        self._retired = [old for old in self._retired if old.alive > 0]
        self._retired.append(origin)
        origin.retire()
        self._wanted.set()

    async def _breed(self) -> None:
        """Keep spares ready, in quiet moments."""
        while True:
            if len(self._spares) >= self._spare_count:
                self._wanted = anyio.Event()
                if self._origin is not None and self._origin.forked >= self._recycle_after:
                    self._retire(self._origin)
                    continue
                await self._wanted.wait()
            since = time.monotonic() - self._last_step
            crowded = len(self._live) >= self.max_waiting + self._spare_count  # those that are dying count, too
            if crowded or since < (LONG_S if self._computing else QUIET_S):
                await anyio.sleep(QUIET_S)
                continue
            if len(self._spares) < self._spare_count:
                try:
                    self._spares.append(await self._make(spare=True))
                except (SandboxError, OSError):
                    log.exception("no spare could be made; the next program tries again")
                    self._wanted = anyio.Event()
                    await self._wanted.wait()

    # ---- watching ----------------------------------------------------------------------------------------------------

    async def _begin_step(self, worker: Worker) -> None:
        try:
            self._slots.acquire_nowait()  # a third of the time that the event loop's own checks take
        except anyio.WouldBlock:
            await self._slots.acquire()
        worker.alone = not self._computing
        for other in self._computing:
            other.alone = False  # and need not be waited for awake any more
        self._computing.add(worker)
        self._last_step = time.monotonic()
        self._busy.set()

    def _end_step(self, worker: Worker) -> None:
        self._computing.discard(worker)
        self._slots.release()

    async def _watch(self) -> None:
        while True:
            if not self._computing:
                self._busy = anyio.Event()
                await self._busy.wait()
            await anyio.sleep(WATCH_S)
            for worker in tuple(self._computing):
                worker.watch()

    # ---- ends --------------------------------------------------------------------------------------------------------

    async def _shut(self) -> None:
        tasks, self._tasks = self._tasks, None
        if tasks is None:
            return
        tasks.cancel_scope.cancel()
        try:
            await tasks.__aexit__(None, None, None)
        finally:  # whoever is cancelled while leaving still leaves no process behind
            with anyio.CancelScope(shield=True):
                for worker in tuple(self._live):
                    worker.kill("cancelled")
                    self._live.discard(worker)
                    await worker.close()
            self._spares.clear()
            for origin in (*self._retired, self._origin):
                if origin is not None:
                    origin.kill()
            self._origin = None


def available_bytes() -> int:
    """Memory that is free for new processes, as far as the platform says; a container's limit included."""
    found = [2048 * MiB]
    try:
        with open("/proc/meminfo") as file:  # noqa: PTH123  read once, two lines
            found = [int(line.split()[1]) << 10 for line in file if line.startswith("MemAvailable")]
        with open("/sys/fs/cgroup/memory.max") as file:  # noqa: PTH123
            found.append(int(file.read()))
    except (OSError, ValueError):
        pass
    return min(found or [2048 * MiB])
