"""Tool results as JSON text that JavaScript can read without losing a digit."""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple, cast

import msgspec

from bridge.errors import ToolError
from bridge.results import decode_value
from sandbox import Rejected, Reply, Resolved

SAFE_INTEGER: Final = 2**53 - 1  # Number.MAX_SAFE_INTEGER of ECMA-262
_ENVELOPE_BYTES: Final = 200  # of one reply, and the delivery's own once
_DIGITS: Final = bytes(ord("9") if chr(c).isdigit() and c < 128 else c for c in range(256))
_LONG: Final = b"9" * 16  # shorter integers are below 2^53
_STRIDE: Final = 4  # of sixteen digits in a row every fourth one is seen, wherever they begin


class Misfit(NamedTuple):
    """JSON text of a result that is not what its tool declares: it reaches the program, and why it does not fit."""

    text: msgspec.Raw
    why: str


def encode(value: Any) -> bytes:
    """JSON text of a JSON value, or the text that a handler made already (`msgspec.Raw`).

    Lone surrogates become U+FFFD; NaN and infinities become null.

    Raises:
        ToolError: `failed`, when the value is no JSON; the text names its type only.
    """
    if isinstance(value, msgspec.Raw):
        try:
            return bytes(msgspec.json.decode(value, type=msgspec.Raw))
        except (msgspec.MsgspecError, RecursionError):
            pass  # half characters, which JSON's grammar allows, or no JSON at all
        try:
            value = decode_value(bytes(value))
        except ValueError:
            raise ToolError("failed", "the tool returned text that is no JSON") from None
    try:
        return msgspec.json.encode(value)
    except (UnicodeEncodeError, OverflowError, RecursionError):
        pass  # lone surrogates, integers over 64 bits: the slower encoder knows what to do
    except (TypeError, ValueError, msgspec.MsgspecError):
        raise ToolError("failed", f"the tool returned a {type(value).__name__}, which has no JSON form") from None
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        raise ToolError("failed", f"the tool returned a {type(value).__name__}, which has no JSON form") from None
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


def read(made: msgspec.Raw) -> list[Any]:
    """The argument list of a call, half characters mended. `ValueError`: no JSON, no list, or too deep."""
    try:
        found = msgspec.json.decode(made)
    except (msgspec.MsgspecError, RecursionError):
        found = decode_value(bytes(made))
    if not isinstance(found, list):  # in a damaged journal: of a worker nothing else is taken
        raise ValueError("it is no list of arguments")  # noqa: TRY004  as whatever else is wrong with it
    return cast("list[Any]", found)


def digits_kept(text: bytes) -> tuple[bytes, int]:
    """JSON text in which integers beyond 2^53 are strings, and how many there were.

    Raises:
        ToolError: `failed`: nested deeper than can be looked through.
    """
    seen = text[::_STRIDE].translate(_DIGITS)  # a quarter of the time, and most texts need no closer look
    if _LONG[::_STRIDE] not in seen or _LONG not in text.translate(_DIGITS):
        return text, 0
    changed = 0

    def integer(digits: str) -> int | str:
        nonlocal changed
        number = int(digits) if len(digits) < 4000 else SAFE_INTEGER + 1
        if abs(number) <= SAFE_INTEGER:
            return number
        changed += 1
        return digits

    try:
        value = json.loads(text, parse_int=integer)
    except (ValueError, RecursionError):
        raise ToolError("failed", "the tool returned a value that is nested too deeply") from None
    return (encode(value), changed) if changed else (text, 0)


def fitting(ready: list[Reply], frame_bytes: int) -> tuple[list[Reply], list[Reply]]:
    """Split replies, in their order, into those that one frame holds (one at least) and the rest."""
    left = frame_bytes
    for index, reply in enumerate(ready):
        left -= _ENVELOPE_BYTES
        if isinstance(reply, Resolved):
            left -= memoryview(reply.value).nbytes
        elif isinstance(reply, Rejected):
            left -= 6 * (len(reply.message) + len(reply.tool) + len(reply.code)) + memoryview(reply.details).nbytes
        if left < 0 and not index and isinstance(reply, Rejected):  # frames are small here: the code says enough
            details = msgspec.Raw(b"null")
            ready[0] = msgspec.structs.replace(reply, message=reply.message[: frame_bytes // 12], details=details)
        if left < 0 and index:
            return ready[:index], ready[index:]
    return ready, []


def inputs_text(inputs: Any) -> tuple[bytes, int]:
    """`inputs` as a program gets them, and how many integers became strings. `TypeError`: they have no JSON form."""
    try:
        return digits_kept(encode(inputs))
    except ToolError:
        raise TypeError(f"inputs hold a {type(inputs).__name__} that has no JSON form") from None
