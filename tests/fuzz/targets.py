"""What is fuzzed: one function a parser, bytes in; what is raised but its documented error is a fault.

Each target also bounds what it takes: `run.py` ends an input that computes for long, and one that takes much memory.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import json
import os
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import msgspec

from bridge import config, references
from bridge.ending import assemble, result
from bridge.errors import BridgeError, CatalogError, ConfigurationError, StateError, ToolError
from bridge.journal import Ended, decode, encode
from bridge.keeping import Keeper
from bridge.results import decode_value
from bridge.schema import Checker
from bridge.state import fold
from sandbox import Fired, Limits, RemoteProtocolError, Resolved, Start, Threw, ToolName, source
from sandbox.messages import Wave
from sandbox.protocol import Connection

LONGEST: Final = 1 << 16  # bytes of one input
LIMITS: Final = Limits(frame_bytes=1 << 20, value_bytes=1 << 16, reply_bytes=1 << 16, argument_bytes=1 << 16)
TOOLS: Final = [ToolName("echo", ("echo",)), ToolName("get_order", ("get_order",)), ToolName("c/t", ("c", "t"))]
START: Final = Start("", TOOLS, msgspec.Raw(b"null"), 1, 0.0, 1, 1, 1, 1)
KEY: Final = b"k" * 32


def printable(said: object) -> None:
    """What is said to a person shows no control characters, whoever wrote the input."""
    assert str(said).replace("\n", "").isprintable(), str(said)


def wire(data: bytes) -> None:
    """A worker's bytes, in pieces whose length the first byte says: messages or `RemoteProtocolError`."""
    size, data = (data[0] or 1 << 16, data[1:]) if data else (1, b"")
    host = Connection(LIMITS)
    for begin in range(0, len(data), size):
        try:
            messages = host.receive(data[begin : begin + size])
        except RemoteProtocolError as error:
            printable(error)
            return
        for message in messages:
            if isinstance(message, Wave):
                for call in message.calls:
                    with contextlib.suppress(ValueError):
                        decode_value(bytes(call.arguments))
        if host.state == "ready":
            host.start(START)
        elif host.state == "waiting":
            wave = messages[-1]
            assert isinstance(wave, Wave)
            cleared = {*wave.cleared}
            host.deliver(
                0,
                [
                    *(Resolved(call.id, msgspec.Raw(b"1")) for call in wave.calls),
                    *(Fired(timer.id) for timer in wave.timers if timer.id not in cleared),
                ],
            )


def forms(data: bytes) -> None:
    """A program's text: a script or a failure with a line of the text; never an exception."""
    program = data.decode("utf-8", "replace")
    made = source.prepare(program, TOOLS)
    lines = len(program.splitlines()) + program.count("\\n") + 2
    if isinstance(made, Threw):
        assert 0 <= made.line <= lines, made
        return
    assert made.js.startswith(source.HEAD)
    assert made.js.endswith(source.TAIL)
    for line in (0, 1, 2, 1 << 20):
        assert min(made.position(line, line)) >= 0
    threw = Threw("threw", "TypeError", program[:200], line=1, column=len(program) % 7)
    assert isinstance(source.explain(program, made, threw, TOOLS), Threw)
    assert isinstance(source.syntax_error(program, made, "SyntaxError: x", 1, 1), Threw)


def schema(data: bytes) -> None:
    """A line with a JSON Schema, then lines with values: a checker or `CatalogError`; a value or `ToolError`."""
    head, *rows = data.split(b"\n")
    try:
        given = json.loads(head)
    except (ValueError, RecursionError):
        return
    try:
        checker = Checker(given, "fuzzed")
    except CatalogError:
        return
    assert isinstance(checker.signature, str)
    for row in rows[:4]:
        try:
            value = decode_value(row)
        except ValueError:
            continue
        arguments = value if isinstance(value, list) else [value]
        with contextlib.suppress(ToolError):
            checker.arguments(arguments)


def state(data: bytes) -> None:
    """Lines of a journal: a run with its result and the same lines again, or `StateError`.

    Then the same as a sealed state that our own key signs, and as one that it does not.
    """
    try:
        records = decode(data.split(b"\n"))
        known = fold(records)
    except StateError:
        known = None
    else:
        again = [encode(record) for record in records]
        assert decode(again) == decode([encode(record) for record in decode(again)])
        if known.ended is not None:
            assert result(known).text
        else:
            assert assemble(known, Ended(at=0.0, status="paused"), None, notices=known.notices()).text
    keeper = Keeper(None, [KEY], "a")
    for key in (KEY, b"x" * 32):
        with contextlib.suppress(StateError):
            keeper._unseal(sealed(data, key))
    with contextlib.suppress(StateError):
        keeper._unseal("sbstate1." + data.decode("latin-1"))


def sealed(data: bytes, key: bytes) -> str:
    """A state as `dump` writes it, of any content."""
    header = msgspec.json.encode({"audience": "a", "run": "r", "expires": 1e12})
    text = base64.urlsafe_b64encode(zlib.compress(header + b"\n" + data, 1)).decode().rstrip("=")
    mac = hmac.new(key, f"sbstate1.{text}".encode(), hashlib.sha256).digest()
    return f"sbstate1.{text}.{base64.urlsafe_b64encode(mac).decode().rstrip('=')}"


def configuration(data: bytes) -> None:
    """A `sandbridge.toml` (or, after a first byte of `{`, an `mcp.json`): a configuration or `ConfigurationError`."""
    hosts_file = data[:1] == b"{"
    path = _folder() / ("mcp.json" if hosts_file else "sandbridge.toml")
    path.write_bytes(data)
    try:
        with patch.object(references, "resolve", no_import):
            made = config.load(None if hosts_file else path, [path] if hosts_file else (), environment={"HOME": "/h"})
    except ConfigurationError as error:
        printable(error)
        return
    for warning in made.warnings:
        printable(warning)


_made: dict[int, tempfile.TemporaryDirectory[str]] = {}


def _folder() -> Path:
    if os.getpid() not in _made:
        _made[os.getpid()] = tempfile.TemporaryDirectory(prefix="sandbridge-fuzz-")
    return Path(_made[os.getpid()].name)


def no_import(reference: str, folder: Path) -> Any:
    """In the place of `references.resolve`: nothing is imported because fuzzed bytes name it."""
    raise BridgeError(f"{reference!r}: nothing is imported here")


TARGETS: Final[dict[str, Callable[[bytes], None]]] = {
    "wire": wire,
    "source": forms,
    "schema": schema,
    "state": state,
    "configuration": configuration,
}
