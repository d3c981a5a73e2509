"""Where workers come from: forked by a zygote, or spawned where processes cannot be forked. Host side."""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio
import msgspec

from sandbox import bubblewrap
from sandbox.errors import EngineUnavailable, SandboxError
from sandbox.messages import Settings
from sandbox.wire import EXIT, FORK, FORK_SPARE, REAP, ZYGOTE_READY

START_S: Final = 60.0  # a cold disk may take long; a hang must not take for ever
ANSWER_S: Final = 30.0  # of a zygote, which needs milliseconds: one that is stopped is given up, its workers with it
ENVIRONMENT: Final = {"TZ": "UTC", "LC_ALL": "C.UTF-8", "LANG": "en_US.UTF-8"}
EXHAUSTED: Final = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS)  # it passes when others give back
CAN_FORK: Final = sys.platform == "linux"


class ZygoteLost(SandboxError):
    """The zygote is gone; its workers died with it. The pool starts another one."""


@dataclass(frozen=True)
class Exit:
    """How a worker's process ended: a signal or a status, and what it used by the kernel's account."""

    signal: int | None
    status: int | None
    memory_bytes: int
    cpu_s: float


@dataclass(frozen=True)
class Born:
    """A new process: its id, a pidfd of it (-1 where there are none), our end of its channel, and its threads."""

    pid: int
    pidfd: int
    channel: socket.socket
    threads: int = 1


def command(entry: str, settings: Settings) -> list[str]:
    """`python -I -S` with the module path handed over: no environment, user site or .pth file has a say.

    Without its collector of cycles: a zygote makes none, a worker lives for one program, and a collection in it would
    write to every page that it shares with the others.
    """
    path = [str(Path(__file__).resolve().parent.parent), *(p for p in sys.path if p)]
    code = f"import gc, sys; gc.disable(); sys.path[:] = {path!r}; from sandbox.{entry} import main; main()"
    return [sys.executable, "-I", "-S", "-c", code, msgspec.json.encode(settings).decode()]


def start(
    entry: str, settings: Settings, ours: socket.socket, theirs: socket.socket, bwrap: str = ""
) -> subprocess.Popen[bytes]:
    """Start an interpreter of our own package, from this very thread: it dies with the thread that started it."""
    parent = 0 if settings.bubblewrap else os.getpid()
    settings = msgspec.structs.replace(settings, channel=theirs.fileno(), parent=parent)
    words = command(entry, settings)
    if bwrap:
        words = bubblewrap.wrapped(words, bwrap=bwrap, root=os.geteuid() == 0)
    ours.setblocking(False)
    try:
        with theirs:
            return subprocess.Popen(  # noqa: S603  our own interpreter and text
                words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,  # V8's last words hold addresses and paths: nobody may see them
                env=ENVIRONMENT,
                cwd="/",
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
    except OSError as error:
        ours.close()
        reason = f"{sys.executable}: {error.strerror}"
        raise EngineUnavailable(f"no process for V8 can be started ({reason}): may this user run it?") from error


class Zygote:
    """A zygote process and our line to it. Not for two tasks at once except through its lock."""

    def __init__(self, settings: Settings) -> None:
        bwrap = bubblewrap.find() if settings.bubblewrap else ""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.control = ours
        self.process = start("zygote", settings, ours, theirs, bwrap)
        self.wrapped = settings.bubblewrap
        self._wrapped = -1  # a pidfd of the zygote itself, where `process` is its wrapper
        self.forked = 0
        self.alive = 0  # workers that were not reaped yet: it must outlive them, they die with it
        self.retired = False
        self.is_ready = False
        self._lock = anyio.Lock()

    async def ready(self) -> None:
        """Wait until V8 is loaded.

        Raises:
            EngineUnavailable: It said why it cannot serve, or said nothing in time.
        """
        answer = b""
        with anyio.move_on_after(START_S), suppress(OSError):
            answer = await self._receive(4096)
        if answer == ZYGOTE_READY:
            if self.wrapped:
                self._wrapped = bubblewrap.child(self.process.pid)
            self.is_ready = True
            return
        ended = self.process.poll()
        self.kill()
        silence = f"no answer within {START_S:.0f} s" if ended is None else f"its process ended with status {ended}"
        reason = answer.decode("utf-8", "replace") or silence
        if self.wrapped and not answer:
            reason += " under bubblewrap (does `bwrap --ro-bind / / true` work here?)"
        raise EngineUnavailable(f"V8 did not start: {reason}. `sandbridge doctor` checks each part")

    async def make(self, *, spare: bool = False) -> Born:
        """Fork a worker; a spare takes longer to be ready, and less long to answer.

        Raises:
            ZygoteLost: The zygote is dead.
            OSError: This process has no more of what it takes (`EXHAUSTED`); the zygote is as good as before.
        """
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        answer = b""
        try:
            async with self._lock:
                with self._answering():
                    socket.send_fds(self.control, [FORK_SPARE if spare else FORK], [theirs.fileno()])
                    theirs.close()
                    answer = await self._receive(16)
            if len(answer) != 4:
                raise ZygoteLost("the zygote ended")
            pid = int.from_bytes(answer, "little")
            self.forked += 1
            self.alive += 1
            try:
                return Born(pid, os.pidfd_open(pid), ours)
            except OSError:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)  # nobody has reaped it: the id is still its own
                await self.reap(pid)
                raise
        except OSError as error:
            ours.close()
            if error.errno in EXHAUSTED:
                raise
            raise ZygoteLost(f"the zygote ended: {error}") from error
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()

    async def reap(self, pid: int) -> Exit:
        """Collect a worker that has ended; `Exit` says how."""
        answer = b""
        with suppress(OSError):
            async with self._lock:
                with self._answering():
                    self.control.send(REAP + pid.to_bytes(4, "little"))
                    answer = await self._receive(64)
        self.alive -= 1
        if self.retired and self.alive <= 0:
            self.kill()
        if len(answer) != EXIT.size:
            return Exit(signal.SIGKILL, None, 0, 0.0)  # it died with its zygote
        status, memory_bytes, cpu_us = EXIT.unpack(answer)
        if os.WIFSIGNALED(status):
            return Exit(os.WTERMSIG(status), None, memory_bytes, cpu_us / 1e6)
        return Exit(None, os.WEXITSTATUS(status), memory_bytes, cpu_us / 1e6)

    def retire(self) -> None:
        """Fork no more; end when the last worker was reaped."""
        self.retired = True
        if self.alive <= 0:
            self.kill()

    def kill(self) -> None:
        """End it now, and with it every worker of it."""
        with suppress(OSError):
            self.control.close()
        if self._wrapped >= 0:  # bubblewrap has given up the power to take along what became another user
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._wrapped, signal.SIGKILL)
            os.close(self._wrapped)
            self._wrapped = -1
        self.process.kill()
        self.process.wait()

    @contextmanager
    def _answering(self) -> Generator[None]:
        """Not to be cancelled: a request whose answer nobody reads would shift them all. But it has a deadline."""
        with anyio.move_on_after(ANSWER_S, shield=True) as waiting:
            yield
        if waiting.cancelled_caught:
            self.kill()

    async def _receive(self, size: int) -> bytes:
        while True:
            try:
                return self.control.recv(size)
            except BlockingIOError:
                await anyio.wait_readable(self.control)


class Spawner:
    """Workers that are spawned one by one: the same protocol, about ten times slower."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.forked = 0
        self.alive = 0
        self.retired = False
        self.is_ready = True
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    async def ready(self) -> None:
        """Nothing to wait for."""

    async def make(self, *, spare: bool = False) -> Born:
        """Start a worker; each of them is as ready as a spare."""
        del spare
        ours, theirs = socket.socketpair()
        process = start("worker", self.settings, ours, theirs)
        self._processes[process.pid] = process
        self.forked += 1
        self.alive += 1
        pidfd = os.pidfd_open(process.pid) if hasattr(os, "pidfd_open") else -1
        return Born(process.pid, pidfd, ours, threads=2)  # the first one waits for ever, V8 has the second

    async def reap(self, pid: int) -> Exit:
        """Collect a worker that has ended."""
        code = self._processes.pop(pid).wait()
        self.alive -= 1
        return Exit(-code, None, 0, 0.0) if code < 0 else Exit(None, code, 0, 0.0)

    def retire(self) -> None:
        """Nothing to do: there is no process between us and the workers."""
        self.retired = True

    def kill(self) -> None:
        """End every worker that is left."""
        for process in self._processes.values():
            process.kill()
            process.wait()
        self._processes.clear()


Origin = Zygote | Spawner
