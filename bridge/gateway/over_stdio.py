"""The gateway over this process's standard streams. It can be stopped while it waits for its host.

The SDK's own transport reads in a thread that nothing can interrupt: a server that has to end would stay until its host
says something. While this one serves, descriptor 0 is empty and 1 is standard error: what anything else in the process
reads or prints touches no message.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, Final

import anyio
import anyio.lowlevel
import mcp_types as types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage

from bridge.dialect import is_object
from bridge.mcp.text import well_formed

log: Final = logging.getLogger("sandbridge")
LINE_BYTES: Final = 8 << 20  # of one message of a host; a program has at most 256 KiB, inputs some more
READ_BYTES: Final = 1 << 16
EDGE_BYTES: Final = 512  # of the beginning and of the end of a message that is too long: its id is in one of them
_ID: Final = rb'"id"\s*:\s*(-?\d{1,15}|"[^"\\\x00-\x1f]{1,100}")'
_BEGINNING: Final = rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?'
# As the official SDKs write messages. An id elsewhere may be of an answer, and answers are not answered.
_BEGINS: Final = re.compile(_BEGINNING + _ID + rb'\s*,\s*"method"')
_ANSWERS: Final = re.compile(_BEGINNING + rb"(?:" + _ID + rb')?\s*,?\s*"(?:result|error)"')
_ENDS: Final = re.compile(rb'\s*\{\s*"method".*' + _ID + rb"\s*\}\s*", re.DOTALL)
WRITE_BYTES: Final = 4_096  # PIPE_BUF of Linux: a pipe that can be written to takes as much without blocking

Streams = tuple[MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]]


@asynccontextmanager
async def stdio_streams() -> AsyncGenerator[Streams]:
    """Messages of the host, and to it, until the block is left; the first stream ends when the host closes its end."""
    into, received = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    sent, out = anyio.create_memory_object_stream[SessionMessage](0)
    with _standard_streams() as (reading, writing), into, received, sent, out:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_read, reading, into, sent.clone())
            tasks.start_soon(_write, writing, out)
            yield received, sent
            tasks.cancel_scope.cancel()


@contextmanager
def _standard_streams() -> Generator[tuple[int, int]]:
    """Duplicates of descriptors 0 and 1, which are diverted meanwhile."""
    reading, writing = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    try:
        os.dup2(nothing, 0)
        os.dup2(2, 1)
        yield reading, writing
    finally:
        os.dup2(reading, 0)
        os.dup2(writing, 1)
        for each in (nothing, reading, writing):
            os.close(each)


async def _read(
    descriptor: int,
    into: MemoryObjectSendStream[SessionMessage | Exception],
    back: MemoryObjectSendStream[SessionMessage],
) -> None:
    """Lines to messages, until the end of the input. What is no message, or too long, is answered with an error."""
    parts: list[bytes] = []
    size = 0
    with into, back:
        while True:
            await _able(anyio.wait_readable, descriptor)
            chunk = os.read(descriptor, READ_BYTES)
            if not chunk:
                return
            *lines, rest = chunk.split(b"\n")
            for line in lines:
                whole = b"".join([*parts, line])
                if size > LINE_BYTES:
                    log.warning("a message of more than %d bytes was left out", LINE_BYTES)
                    if (refusal := _too_long(whole)) is not None:
                        await back.send(refusal)
                elif whole.strip():
                    if (message := _message(whole)) is not None:
                        await into.send(message)
                    elif (refusal := _refusal(whole)) is not None:
                        await back.send(refusal)
                parts, size = [], 0
            size += len(rest)
            parts.append(rest)
            if size > LINE_BYTES:
                whole = b"".join(parts)
                parts = [whole[:EDGE_BYTES], whole[-EDGE_BYTES:]]


def _message(line: bytes) -> SessionMessage | None:
    try:
        return SessionMessage(types.jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError:
        return None


def _refusal(line: bytes) -> SessionMessage | None:
    """The error that answers what is no message; None for what was an answer itself."""
    code, text, asked = types.PARSE_ERROR, "this line is no JSON", None
    with suppress(ValueError, RecursionError):
        found: Any = json.loads(line)
        code, text = types.INVALID_REQUEST, "this is no message of JSON-RPC, or a batch, which MCP has not"
        if is_object(found):
            if "result" in found or "error" in found:
                return None
            named = found.get("id")
            asked = named if isinstance(named, (str, int)) and not isinstance(named, bool) else None
    error = types.ErrorData(code=code, message=text)
    return SessionMessage(types.JSONRPCError(jsonrpc="2.0", id=well_formed(asked), error=error))


def _too_long(edges: bytes) -> SessionMessage | None:
    """The error that answers what is too long to be read, without which a host would wait for ever; None for what was
    an answer itself.

    Args:
        edges: Its beginning and its end.
    """
    if _ANSWERS.match(edges):
        return None
    found = _BEGINS.match(edges) or _ENDS.fullmatch(edges)
    error = types.ErrorData(
        code=types.INVALID_REQUEST,
        message=f"the message has more than {LINE_BYTES:,} bytes and was left out: send less",
    )
    asked = None if found is None else well_formed(json.loads(found[1].decode("utf-8", "replace")))
    return SessionMessage(types.JSONRPCError(jsonrpc="2.0", id=asked, error=error))


async def _write(descriptor: int, out: MemoryObjectReceiveStream[SessionMessage]) -> None:
    """Messages to lines. A host that has gone is told nothing more."""
    async for message in out:
        text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
        data = memoryview(text.encode() + b"\n")
        while data:
            await _able(anyio.wait_writable, descriptor)
            try:
                data = data[os.write(descriptor, data[:WRITE_BYTES]) :]
            except BrokenPipeError:
                return


async def _able(wait: Callable[[Any], Awaitable[None]], descriptor: int) -> None:
    """Wait until a descriptor can be used; a file always can, and there is nothing that would wait for it."""
    try:
        await wait(descriptor)
    except PermissionError:
        await anyio.lowlevel.checkpoint()
