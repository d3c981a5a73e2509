"""The host's side of one worker: steps with a deadline, kills that cannot be refused, and how an end is read."""

from __future__ import annotations

import os
import select
import signal
import socket
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

import anyio
import anyio.lowlevel

from sandbox.apart import Place, cores
from sandbox.errors import RemoteProtocolError
from sandbox.jail import memory_plan
from sandbox.limits import LimitName, Limits
from sandbox.messages import Broken, FromWorker, Ready, Reply, Start, Wave
from sandbox.origin import Exit
from sandbox.protocol import Connection
from sandbox.standing import found, stands

if TYPE_CHECKING:
    from sandbox.origin import Born, Origin

CHUNK_BYTES: Final = 1 << 18
READY_S: Final = 30.0
# Most steps take less than a turn of an event loop costs. While no other worker computes, the loop may as well wait for
# this one in place, so briefly that nothing else on it is held up: measured, a third of the time of a step.
BRIEF_S: Final = 0.0005
# To be woken costs 50 us of a step's 250. So after a step that took no longer most of that is waited awake; and with a
# core for each of the two every step is, in place at first, then with a turn of the loop between two looks.
IN_PLACE_S: Final = 0.0003
AWAKE_S: Final = 0.002
IN_PLACE: Final = 8  # steps in a row that may be taken so; a worker that always answers at once would have the loop
SELECTABLE: Final = 1024  # FD_SETSIZE: what select() can look at
SEVERAL_CORES: Final = cores() > 1
DYING_S: Final = 1.0
PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
# Nothing inside a worker can send these: the filter lets a process send itself nothing but SIGABRT.
FROM_OUTSIDE: Final = ("SIGKILL", "SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT")
# A table that doubles makes V8 give up when its heap is half full: "at the limit" begins there.
AT_LIMIT: Final = 0.5
FULL: Final = 0.9


@dataclass(frozen=True)
class Death:
    """A worker ended without an answer.

    Attributes:
        outcome: `exceeded` (then `limit` says what), `crashed`, `violation` or `cancelled`.
        reason: For an operator; holds nothing that the worker said.
        outside: A signal ended it that neither we, nor a limit, nor the program can have caused: somebody killed it or
            its zygote, or the machine ran out of memory. The same program may well complete in another worker. False
            wherever that is not certain, as where the filter of system calls does not stand.
    """

    outcome: Literal["exceeded", "crashed", "violation", "cancelled"]
    limit: LimitName | None = None
    reason: str = ""
    outside: bool = False


Why = LimitName | Literal["protocol", "cancelled", "over"]


class Worker:
    """One jailed process for one program: `ready`, `start`, `deliver` until a wave has an end, then `close`."""

    def __init__(self, born: Born, origin: Origin, limits: Limits, bound: Limits) -> None:
        """`limits` are the run's own, `bound` those that kernel and V8 were given when the worker was locked."""
        self.pid = born.pid
        self.origin = origin
        self.limits = limits
        self.walls: dict[str, str] = {}
        self.engine_digest = ""
        self.computing = False
        self._in_place = 0  # steps in a row for which nobody else had a turn
        self.alone = False  # no other worker of the sandbox computes; the sandbox says so
        self._awake_until = 0.0  # the moment, while the worker is kept off our core
        self._quick = False  # its last step took less than `IN_PLACE_S`
        self.memory_at_ready = 0
        self.peak_bytes = 0
        self.killed_for: Why | None = None
        self.reason = ""
        self._place = Place(born.pid, born.pidfd)
        self._placeable = SEVERAL_CORES and born.threads == 1  # what is placed is a thread
        self._born = born
        self._bound = bound
        self._connection = Connection(bound)
        self._cpu_at_ready = 0.0
        self._cpu_spent = 0.0
        self._closed = False
        self._lost = False  # its end of the channel closed without our doing
        self._ended_alone = False  # and it was dead before we killed it

    def __repr__(self) -> str:
        return f"<Worker {self.pid} {self._connection.state}{' computing' if self.computing else ''}>"

    @property
    def largest_frame(self) -> int:
        """Bytes of the largest frame that came from it."""
        return self._connection.largest_frame

    async def ready(self) -> str:
        """Wait until it is jailed and its realm stands; why it is not, or an empty text."""
        message = await self._step(b"", READY_S)
        if isinstance(message, Ready):
            self.walls = found(message.walls, stands(self.pid))
            self.engine_digest = message.digest
            self.memory_at_ready = self.memory()
            self._cpu_at_ready = self._cpu()
            return ""
        return message.reason if isinstance(message, Broken) else "the worker ended before it was ready"

    async def start(self, start: Start, limits: Limits, timeout_s: float | None = None) -> Wave | None:
        """Hand the program over and wait for its first wave, at most `timeout_s` seconds.

        Without `timeout_s` the caller has a deadline of its own round this: cancelled, the worker is killed.

        Returns:
            The wave, or None when the worker has ended: `close` then says how.
        """
        self.limits = limits
        return self._wave(await self._step(self._connection.start(start), timeout_s))

    async def deliver(self, now_ms: float, replies: Sequence[Reply], timeout_s: float | None = None) -> Wave | None:
        """Hand replies over, in the order in which they settle, and wait for the next wave as `start` does."""
        return self._wave(await self._step(self._connection.deliver(now_ms, replies), timeout_s))

    def idle(self) -> bool:
        """Whether it lives and says nothing, as a spare should."""
        return self._peek() is None

    @property
    def gone(self) -> bool:
        """Whether its end of the channel is closed: it will never answer."""
        return self._peek() == b""

    def _peek(self) -> bytes | None:
        try:
            return self._born.channel.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return None
        except OSError:
            return b""

    def kill(self, why: Why, reason: str = "") -> None:
        """End the process now; the first reason given stands."""
        if self.killed_for is None:
            self.killed_for, self.reason = why, reason
        if self._closed:
            return
        with suppress(ProcessLookupError):
            if self._born.pidfd >= 0:
                signal.pidfd_send_signal(self._born.pidfd, signal.SIGKILL)
            else:
                os.kill(self.pid, signal.SIGKILL)

    async def close(self) -> Death:
        """Kill it if it lives, reap it, and read how it ended: afterwards nothing of it is left. Call once."""
        ended = Exit(None, None, 0, 0.0)
        with anyio.CancelScope(shield=True):  # whoever is cancelled still leaves no process behind
            if self._lost and self._born.pidfd >= 0:
                with anyio.move_on_after(DYING_S):  # its end of the channel closed: let it die of what it died of
                    await anyio.wait_readable(self._born.pidfd)
                    self._ended_alone = True
            self.kill("over")
            self._born.channel.close()
            self._closed = True
            if self._born.pidfd >= 0:
                await anyio.wait_readable(self._born.pidfd)
                os.close(self._born.pidfd)
            ended = await self.origin.reap(self.pid)
        return self._read(ended)

    def _read(self, ended: Exit) -> Death:
        """Read how the process ended. Only the host names a limit: what a program says of itself is not heard here."""
        if self.killed_for == "protocol":
            return Death("crashed", None, self.reason)
        if self.killed_for == "cancelled":
            return Death("cancelled")
        if self.killed_for == "cpu_s":
            return Death("exceeded", self._cpu_or_memory(ended))
        if self.killed_for is not None and self.killed_for != "over":
            return Death("exceeded", self.killed_for)
        if self.killed_for == "over" and not self._lost:
            return Death("cancelled")  # its work was done; what ended it tells nothing
        if ended.signal in (signal.SIGPROF, signal.SIGXCPU):
            return Death("exceeded", self._cpu_or_memory(ended))
        if ended.signal == signal.SIGSYS:
            return Death("violation", None, "it made a system call that no program needs")
        cpu_spent = max(self._cpu_spent, ended.cpu_s - self._cpu_at_ready)
        if ended.signal == signal.SIGKILL and cpu_spent >= self._bound.cpu_s:
            return Death("exceeded", "cpu_s")  # RLIMIT_CPU, behind a blocked SIGPROF
        grown = self._peak_growth(ended)
        aborted = (signal.SIGTRAP, signal.SIGABRT, signal.SIGILL, signal.SIGSEGV, signal.SIGBUS)
        if ended.signal in aborted and grown >= self._bound.memory_bytes * AT_LIMIT:
            return Death("exceeded", "memory_bytes")
        if ended.signal is not None:
            name = signal.Signals(ended.signal).name
            within = cpu_spent < self._bound.cpu_s and grown < self._bound.memory_bytes * AT_LIMIT
            sure = self._ended_alone and within and self.walls.get("seccomp") == ""
            return Death("crashed", None, f"ended by {name}", outside=sure and name in FROM_OUTSIDE)
        return Death("crashed", None, f"ended without a result (status {ended.status})")

    def _peak_growth(self, ended: Exit) -> int:
        return max(self.peak_bytes, ended.memory_bytes) - self.memory_at_ready

    def _cpu_or_memory(self, ended: Exit) -> LimitName:
        """Which limit a worker met that ran out of CPU time.

        With its memory full, V8 collects garbage again and again before it gives up: how often hangs on where its pages
        happen to lie (measured: 1.2 to 5 s for one program). What such a program lacks is memory.
        """
        bound = min(self.limits.memory_bytes, self._bound.memory_bytes)
        return "memory_bytes" if self._peak_growth(ended) >= bound * FULL else "cpu_s"

    # ---- what it uses ---------------------------------------------------------------------------------------------

    def cpu_s(self) -> float:
        """CPU seconds of all its threads since it was ready."""
        self._cpu_spent = max(self._cpu_spent, self._cpu() - self._cpu_at_ready)
        return self._cpu_spent

    def _cpu(self) -> float:
        try:
            return time.clock_gettime((~self.pid << 3) | 2)  # the process's CPU clock, by the kernel's clock id rule
        except (OSError, AttributeError):
            return self._cpu_spent

    def memory(self) -> int:
        """Resident bytes now; 0 where the platform does not say."""
        try:
            resident = int(self._said("statm").split()[1]) * PAGE_BYTES
        except (OSError, IndexError, ValueError):
            return 0
        self.peak_bytes = max(self.peak_bytes, resident)
        return resident

    def grown(self) -> int:
        """Peak of what the program added to a ready worker, in bytes."""
        with suppress(OSError, IndexError, ValueError):
            peak = self._said("status").split(b"VmHWM:", 1)[1].split(None, 1)[0]
            self.peak_bytes = max(self.peak_bytes, int(peak) << 10)
        return max(0, self.peak_bytes - self.memory_at_ready)

    def _said(self, name: str) -> bytes:
        """What the kernel says of it."""
        file = os.open(f"/proc/{self.pid}/{name}", os.O_RDONLY)
        try:
            return os.read(file, 4096)
        finally:
            os.close(file)

    def watch(self) -> None:
        """The watchdog's look: kill what is over its memory, or over a CPU limit lower than the kernel was told."""
        if self.memory() - self.memory_at_ready > memory_plan(self.limits.memory_bytes).watchdog_bytes:
            self.kill("memory_bytes")
        elif self.cpu_s() > self.limits.cpu_s:
            self.kill("cpu_s")

    # ---- one step ---------------------------------------------------------------------------------------------------

    async def _step(self, data: bytes | bytearray, timeout_s: float | None) -> FromWorker | None:
        """Send, then wait for one message; None when there will be none."""
        channel = self._born.channel
        self.computing = True
        self._in_place += 1
        try:
            with nullcontext() if timeout_s is None else anyio.move_on_after(timeout_s):
                short = bool(data) and self.alone
                apart = short and self._placeable and self._place.keep_off()
                if data and not short:
                    self._place.let_loose()
                self._awake_until = time.perf_counter() + AWAKE_S if apart else 0.0
                view = memoryview(data)
                while view:
                    try:
                        view = view[channel.send(view) :]
                    except BlockingIOError:
                        await self._until(anyio.wait_writable)
                if self._in_place > IN_PLACE:
                    self._in_place = 0
                    await anyio.lowlevel.checkpoint()
                if short:
                    self._wait_in_place(channel, apart=self._awake_until > 0)
                return await self._message(channel)
            self.kill("wall_s")
        except OSError:
            self._lost = True  # the pipe broke: how it ended says why
        except RemoteProtocolError as error:
            self.kill("protocol", str(error))
        except BaseException:
            self.kill("cancelled")
            raise
        finally:
            self.computing = False
        return None

    async def _message(self, channel: socket.socket) -> FromWorker | None:
        """One message; None when there will be none."""
        if self._awake_until:
            self._awake_until = time.perf_counter() + AWAKE_S
        while True:
            try:
                received = channel.recv(CHUNK_BYTES)
            except BlockingIOError:
                await self._until(anyio.wait_readable)
                continue
            if not received:
                self._lost = True
                return None
            messages = self._connection.receive(received)
            if messages:  # one: the state table lets no second one follow
                return messages[0]
            # A worker that drips always has the next byte ready: others have their turn, and the deadline has.
            await anyio.lowlevel.checkpoint()

    async def _until(self, ready: Callable[[socket.socket], Awaitable[None]]) -> None:
        """Wait for the channel, at first awake. Whoever sleeps is woken on its worker's core: it is loose by then."""
        self._in_place = 0
        if self.alone and time.perf_counter() < self._awake_until:
            await anyio.lowlevel.checkpoint()
            return
        if self._awake_until:
            self._place.let_loose()
            self._awake_until = 0.0
        await ready(self._born.channel)

    def _wait_in_place(self, channel: socket.socket, *, apart: bool) -> None:
        """Wait a moment for an answer, `IN_PLACE_S` and `BRIEF_S` at most, and keep the event loop meanwhile."""
        began = time.perf_counter()
        while (apart or self._quick) and time.perf_counter() < began + IN_PLACE_S:
            if self._peek() is not None:
                return
            os.sched_yield()  # whoever wants this core has it: the worker too, where there is no other
        if not apart and channel.fileno() < SELECTABLE:
            select.select([channel], [], [], BRIEF_S)
        self._quick = SEVERAL_CORES and time.perf_counter() < began + IN_PLACE_S

    @staticmethod
    def _wave(message: FromWorker | None) -> Wave | None:
        return message if isinstance(message, Wave) else None
