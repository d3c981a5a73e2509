"""Tool results as JSON text that JavaScript can read without losing a digit."""

from __future__ import annotations

import json
from typing import Any, Final

import msgspec

from bridge.errors import ToolError

SAFE_INTEGER: Final = 2**53 - 1  # Number.MAX_SAFE_INTEGER of ECMA-262
_DIGITS: Final = bytes(ord("9") if chr(c).isdigit() and c < 128 else c for c in range(256))
_LONG: Final = b"9" * 16  # shorter integers are below 2^53


def encode(value: Any) -> bytes:
    """JSON text of a JSON value, or the text that a handler made already (`msgspec.Raw`).

    Lone surrogates become U+FFFD; NaN and infinities become null.

    Raises:
        ToolError: `failed`, when the value is no JSON; the text names its type only.
    """
    if isinstance(value, msgspec.Raw):
        return bytes(value)
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
    return text.encode("utf-8", "surrogatepass").decode("utf-8", "replace").encode()


def digits_kept(text: bytes) -> tuple[bytes, int]:
    """JSON text in which integers beyond 2^53 are strings, and how many there were."""
    if _LONG not in text.translate(_DIGITS):
        return text, 0
    changed = 0

    def integer(digits: str) -> int | str:
        nonlocal changed
        number = int(digits) if len(digits) < 4000 else SAFE_INTEGER + 1
        if abs(number) <= SAFE_INTEGER:
            return number
        changed += 1
        return digits

    value = json.loads(text, parse_int=integer)
    return (msgspec.json.encode(value), changed) if changed else (text, 0)
