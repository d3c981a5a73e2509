"""Lines that a server wrote -> JSON-RPC messages, forgiving what real servers get wrong.

Pure functions. A line that the SDK cannot parse would leave its caller waiting for the timeout, so everything that can
be read is repaired, and what cannot is turned into an error for the call that it must have answered.
"""

from __future__ import annotations

import json
import re
import secrets
from dataclasses import dataclass
from typing import Any, Final, Literal

import mcp_types as types
from mcp_types import JSONRPCError, JSONRPCMessage

from bridge.dialect import is_list, is_object
from bridge.mcp.text import well_formed

LINE_BYTES: Final = 32 << 20  # of one message; a longer one is an error for the call it answers
EDGE_BYTES: Final = 256  # of an unreadable line, at each end, that are searched for the id it answers
MARK: Final = f"sandbridge/{secrets.token_hex(8)}"
"""Key in the data of errors that are made here. Random, so that no server can make one."""

Fate = Literal["not_sent", "refused", "session_gone", "lost", "unreadable", "too_large"]
"""What became of a request: never left; turned away before anything ran; its session is forgotten; sent, and then the
connection ended; answered in a way that cannot be read, or with too much."""

_ID: Final = rb'"id"\s*:\s*(-?\d{1,15}|"[^"\\]{1,64}")'
_ID_FIRST: Final = re.compile(rb'^\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?' + _ID + rb"\s*,")
_ID_LAST: Final = re.compile(_ID + rb'\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*$')
_START: Final = b'{"jsonrpc"'


@dataclass(frozen=True)
class Read:
    """What a line held: messages, and whether there was anything in it that is no message."""

    messages: tuple[JSONRPCMessage, ...] = ()
    noise: bool = False


def read(line: bytes, *, glued: bool = True) -> Read:
    """The messages of one line: usually one, none of a blank line or a log line, several of a batch.

    Args:
        line: Without its newline.
        glued: Whether a message may follow other text, a print without a newline.
    """
    line = line.strip().removeprefix(b"\xef\xbb\xbf")  # a byte order mark
    if not line:
        return Read()
    if not line.startswith((b"{", b"[")):
        return Read(_after(line) if glued else (), noise=True)
    try:
        return Read((types.jsonrpc_message_adapter.validate_json(line, by_name=False),))
    except ValueError:
        pass
    try:
        value = well_formed(json.loads(line.decode("utf-8", "replace")))
    except (ValueError, RecursionError):
        if glued and (messages := _after(line)):
            return Read(messages, noise=True)
        answer = unreadable(line[:EDGE_BYTES], line[-EDGE_BYTES:], "it is no JSON that can be read")
        return Read((answer,)) if answer is not None else Read(noise=True)
    items: list[Any] = value if is_list(value) else [value]
    messages = [message for message in map(_typed, items) if message is not None]
    return Read(tuple(messages), noise=not messages)


def unreadable(head: bytes, tail: bytes, why: str, fate: Fate = "unreadable") -> JSONRPCError | None:
    """An error for the call that a line answers whose two ends are given, or None if it does not say which."""
    found = _ID_FIRST.search(head) or _ID_LAST.search(tail)
    if found is None:
        return None
    number = json.loads(found[1].decode("utf-8", "replace"))
    return error(number, fate, f"the server answered, but {why}")


def error(request_id: str | int, fate: Fate, message: str, aside: str = "") -> JSONRPCError:
    """An error in place of an answer that cannot come; `fate_of` and `aside_of` read it back."""
    data = types.ErrorData(code=types.INTERNAL_ERROR, message=message, data={MARK: fate, "aside": aside})
    return JSONRPCError(jsonrpc="2.0", id=request_id, error=data)


def fate_of(data: Any) -> Fate | None:
    """What this side said became of a request, or None for an error that the server sent."""
    return data.get(MARK) if is_object(data) else None


def aside_of(data: Any) -> str:
    """What this side added to an error for the operator alone; empty for an error that the server sent."""
    return data["aside"] if fate_of(data) else ""


def _after(line: bytes) -> tuple[JSONRPCMessage, ...]:
    """The message that follows other text: looked for once, or a line could be made to cost its square."""
    found = line.find(_START, 1)
    return read(line[found:], glued=False).messages if found > 0 else ()


def _typed(value: Any) -> JSONRPCMessage | None:
    """A message from JSON data that the strict parser refused."""
    if not is_object(value):
        return None
    message: dict[str, Any] = {**value, "jsonrpc": "2.0"}
    number = message.get("id")
    if isinstance(number, float) and number.is_integer():
        number = message["id"] = int(number)
    if "method" not in message:
        if isinstance(number, bool) or not isinstance(number, (int, str)):
            return None
        if is_object(message.get("error")):
            message.pop("result", None)
            message["error"] = _error(message["error"])
        elif isinstance(message.get("error"), str):
            message.pop("result", None)
            message["error"] = _error({"message": message["error"]})
        elif "result" not in message:
            return None
        elif not is_object(message["result"]):
            return error(number, "unreadable", "the server answered, but its result is no object")
        else:
            message.pop("error", None)
    try:
        return types.jsonrpc_message_adapter.validate_python(message, by_name=False)
    except (ValueError, RecursionError):
        return None


def _error(given: dict[str, Any]) -> dict[str, Any]:
    code, text = given.get("code"), given.get("message")
    whole = isinstance(code, int) and not isinstance(code, bool)
    said = text if isinstance(text, str) else json.dumps(text)
    return {
        "code": code if whole else types.INTERNAL_ERROR,
        "message": said if whole or code is None else f"{said} ({code})",
        "data": given.get("data"),
    }
