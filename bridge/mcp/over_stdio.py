"""One server process and its two streams, bounded: the stdio transport.

The SDK's own reader is quadratic and without a bound, prints a traceback for every log line on stdout, and its process
ends with the host only if it cares to. Here a line has at most `LINE_BYTES`, what is no message is skipped and counted,
stderr is always read and its end kept, and the whole process group goes when the connection or the host does.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

import anyio
from anyio import abc
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCRequest

from bridge.mcp import guard, wire
from bridge.mcp.server import Process
from bridge.mcp.text import Tail, printable

CHUNK_BYTES: Final = 1 << 18
GRACE_S: Final = 1.0  # for a server to end by itself once its stdin is closed, then once more after SIGTERM
REAP_S: Final = 2.0  # for the event loop to see a process that was killed
EPITAPH_S: Final = 1.0  # for a status to arrive after the streams have closed

Streams = tuple[MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]]
_CLOSED: Final = (anyio.ClosedResourceError, anyio.BrokenResourceError, anyio.EndOfStream, OSError)


class LaunchError(Exception):
    """The server could not be started at all; the text says why and what to do."""


def executable(place: Process) -> str:
    """The file that a command is, found as a shell in the server's directory and environment would find it.

    Raises:
        LaunchError: There is no such file, it may not be executed, or the directory is not there.
    """
    command = place.command
    if not Path(place.cwd).is_dir():
        raise LaunchError(f"cannot be started: its directory {place.cwd} does not exist")
    if os.path.dirname(command):  # noqa: PTH120  whether there is a separator at all, which Path normalises away
        file = Path(place.cwd, command)
        if not file.is_file():
            raise LaunchError(
                f"cannot be started: command {command!r} was not found; give the path of a file that exists"
            )
        if not os.access(file, os.X_OK):
            raise LaunchError(f"cannot be started: command {command!r} is not executable; chmod +x it")
        return str(file)
    search = place.env.get("PATH", os.defpath)
    found = shutil.which(command, path=search)
    if found is None:
        raise LaunchError(
            f"cannot be started: command {command!r} was not found on PATH={search}; install it or give its full path"
        )
    return str(Path(place.cwd, found))


class StdioConnection:
    """One server process, from its start to the end of its group. Used once.

    Attributes:
        tail: The last bytes of its stderr.
        noise: Lines of its stdout that were no message.
        fell: How it ended by itself (`exit code 3`, `signal SIGKILL`, `closed its stdout`); None while it has not.
        unlaunched: Whether it could not even be started.
    """

    def __init__(self, place: Process, warn: Callable[[str], None], *, line_bytes: int = wire.LINE_BYTES) -> None:
        self.place = place
        self.line_bytes = line_bytes
        self.tail = Tail()
        self.noise = 0
        self.fell: str | None = None
        self.unlaunched = False
        self._warn = warn
        self._status: str | None = None
        self._guarded = False
        self._ended = anyio.Event()
        self._drained = anyio.Event()
        self._stopping = False

    def last_lines(self) -> list[str]:
        """The end of what it wrote to stderr, safe to print."""
        return self.tail.lines()

    @asynccontextmanager
    async def streams(self) -> AsyncGenerator[Streams]:
        """Start the server and carry messages until the block is left; leaving it is finite and leaves no process.

        Raises:
            LaunchError: The server cannot be started.
        """
        try:
            path = executable(self.place)
        except LaunchError:
            self.unlaunched = True
            raise
        line, theirs = _socket_pair()
        into, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        write, out = anyio.create_memory_object_stream[SessionMessage](0)
        with ExitStack() as closing:
            for end in (line, theirs, into, read, write, out):
                if end is not None:
                    closing.callback(end.close)
            try:
                process = await self._open(path, theirs)
            except OSError as error:
                self.unlaunched = True
                raise LaunchError(f"cannot be started: {error.strerror or error}") from None
            # From here to the task group nothing waits: a cancellation in between would leave the process behind.
            if theirs is not None:
                theirs.close()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._read, process, into)
                tasks.start_soon(self._write, process, out, into)
                tasks.start_soon(self._drain, process)
                if line is not None:
                    self._guarded = True
                    tasks.start_soon(self._watch, line, into)
                try:
                    yield read, write
                finally:
                    self._stopping = True
                    with anyio.CancelScope(shield=True):
                        read.close()
                        write.close()
                        await self._stop(process)
                    tasks.cancel_scope.cancel()

    async def _open(self, path: str, theirs: socket.socket | None) -> abc.Process:
        command = [path, *self.place.args]
        passed: tuple[int, ...] = ()
        if theirs is not None:
            passed = (theirs.fileno(),)
            command = [sys.executable, "-I", "-S", guard.__file__, str(passed[0]), *command]
        return await anyio.open_process(
            command, env=dict(self.place.env), cwd=self.place.cwd, start_new_session=True, pass_fds=passed
        )

    async def _read(self, process: abc.Process, into: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
        assert process.stdout is not None
        lines = _Lines(self.line_bytes)
        async with into:
            with suppress(*_CLOSED):
                while True:
                    for whole, tail in lines.add(await process.stdout.receive(CHUNK_BYTES)):
                        await self._deliver(whole, tail, into)
            await self._fall("closed its stdout")

    async def _fall(self, otherwise: str) -> None:
        """Note how it ended, before anybody who waits is told that it did."""
        if self._stopping:
            return
        with anyio.move_on_after(EPITAPH_S if self._guarded else 0):
            await self._ended.wait()
            await self._drained.wait()
        self.fell = self.fell or self._status or otherwise

    async def _deliver(
        self, line: bytes, tail: bytes | None, into: MemoryObjectSendStream[SessionMessage | Exception]
    ) -> None:
        if tail is None:
            found = wire.read(line)
        else:
            why = f"with more than {self.line_bytes:,} bytes: ask it for less"
            answer = wire.unreadable(line, tail, why, "too_large")
            found = wire.Read() if answer is None else wire.Read((answer,))
            if answer is None:
                self._warn(
                    f"a line of more than {self.line_bytes:,} bytes was dropped; it does not say which call it answers"
                )
        if found.noise:
            self.noise += 1
            if self.noise == 1:
                first = printable(line[:200].decode("utf-8", "replace").strip(), 80)
                self._warn(
                    f"it writes to stdout what is no message (skipped; the first: {first!r}): logs belong on stderr"
                )
        for message in found.messages:
            await into.send(SessionMessage(message))

    async def _write(
        self,
        process: abc.Process,
        out: MemoryObjectReceiveStream[SessionMessage],
        into: MemoryObjectSendStream[SessionMessage | Exception],
    ) -> None:
        assert process.stdin is not None
        async with into:
            with suppress(*_CLOSED):
                async with out:
                    async for item in out:
                        try:
                            text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
                        except (
                            ValueError
                        ) as error:  # pydantic's, for what nests too deeply: it never left, others shall
                            if isinstance(item.message, JSONRPCRequest):
                                said = f"the request has no JSON form: {type(error).__name__}"
                                await into.send(SessionMessage(wire.error(item.message.id, "refused", said)))
                            continue
                        await process.stdin.send(text.encode() + b"\n")
            await self._fall("closed its stdin")

    async def _drain(self, process: abc.Process) -> None:
        assert process.stderr is not None
        with suppress(*_CLOSED):
            while True:
                self.tail.add(await process.stderr.receive(CHUNK_BYTES))
        self._drained.set()

    async def _watch(self, line: socket.socket, into: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
        """Wait for the guard to say how the server ended; needs no polling and no end of a stream."""
        said = b""
        while True:
            await anyio.wait_readable(line)
            try:
                part = line.recv(64)
            except BlockingIOError:
                continue
            except OSError:
                part = b""
            if not part:
                break
            said += part
        self._status = _how(said)
        self._ended.set()
        # What it wrote before is still read. Then whoever got away and holds the pipe is no server.
        await anyio.sleep(2 * EPITAPH_S)
        if self.fell is None and not self._stopping:
            self.fell = self._status
        into.close()

    async def _stop(self, process: abc.Process) -> None:
        """Close its stdin, ask it, kill it: at most `2 * GRACE_S + REAP_S` seconds."""
        assert process.stdin is not None
        with suppress(*_CLOSED), anyio.move_on_after(GRACE_S):
            await process.stdin.aclose()
        for number in (None, signal.SIGTERM, getattr(signal, "SIGKILL", signal.SIGTERM)):
            if number is not None:
                _signal(process, number)
            if await _gone(process, REAP_S if number == getattr(signal, "SIGKILL", None) else GRACE_S):
                break
        with anyio.move_on_after(REAP_S):
            await process.wait()  # on asyncio this also waits for the pipes, which closes them
        _close(process)
        with suppress(*_CLOSED):
            await process.aclose()


class _Lines:
    """Cuts a stream into lines. Of a line over the limit only both ends are kept."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0

    def add(self, chunk: bytes) -> list[tuple[bytes, bytes | None]]:
        """The lines that are complete now: (line, None), or (head, tail) of one that was too long."""
        *whole, rest = chunk.split(b"\n")
        found: list[tuple[bytes, bytes | None]] = []
        for part in whole:
            self._take(part)
            line = b"".join(self._parts)
            over = self._size > self._limit
            found.append((line[: wire.EDGE_BYTES], line[-wire.EDGE_BYTES :]) if over else (line, None))
            self._parts, self._size = [], 0
        self._take(rest)
        return found

    def _take(self, part: bytes) -> None:
        self._size += len(part)
        self._parts.append(part)
        if self._size > self._limit:
            line = b"".join(self._parts)
            edge = wire.EDGE_BYTES
            self._parts = [line[:edge], line[max(edge, len(line) - edge) :]]


def _socket_pair() -> tuple[socket.socket | None, socket.socket | None]:
    """Two ends for the host and the guard, or none where there can be no guard (Windows, an embedded Python)."""
    if os.name != "posix" or not sys.executable:
        return None, None
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    return ours, theirs


def _how(said: bytes) -> str:
    """The guard's first word, for people."""
    word, _, number = said.split(b"\n")[0].decode("ascii", "replace").partition(" ")
    if word == "exit":
        return f"exit code {number}"
    if word == "signal":
        with suppress(ValueError):
            return f"signal {signal.Signals(int(number)).name}"
    if word == "start":
        with suppress(ValueError):
            return f"could not be executed: {os.strerror(int(number))}"
    return "killed"


def _signal(process: abc.Process, number: int) -> None:
    if os.name == "posix":
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)  # its own group: `start_new_session`
    else:
        with suppress(ProcessLookupError):
            process.send_signal(signal.Signals(number))


async def _gone(process: abc.Process, seconds: float) -> bool:
    """Whether the process has ended, asked until it has or the time is up.

    Not `process.wait()`: on asyncio that waits for the end of its pipes too, which a grandchild may hold.
    """
    end = anyio.current_time() + seconds
    while process.returncode is None:
        if anyio.current_time() >= end:
            return False
        await anyio.sleep(0.005)
    return True


def _close(process: abc.Process) -> None:
    """Close asyncio's transport if a process that got away still holds a pipe; nothing public reaches it."""
    transport: Any = getattr(getattr(process, "_process", None), "_transport", None)
    if transport is not None and hasattr(transport, "close"):
        with suppress(PermissionError, ProcessLookupError):
            transport.close()
