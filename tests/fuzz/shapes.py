"""Changes to inputs that keep their shape: JSON values in lines or in frames, to reach what is behind a parser.

A fuzzer that flips bytes mostly finds that JSON is broken. `changed` is pure: `random` decides everything.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any, Final, cast

POOL: Final[list[Any]] = [
    *(0, 1, 2, -1, 2**53, 2**63, 2**64, 10**30, 1.5, 1e308, -1e308, float("inf"), float("nan"), None, True, False),
    *("", "x", "echo", "\ud800", "\x1b[2J", "a\nb", "é" * 300, "__proto__", "#/$defs/a", "^(a+)+$", "r.1"),
    *("done", "asked", "client", "queued", "running", "completed", "string", "integer", "object", "array", "null"),
    *([], {}, [1], {"a": 1}, [[[]]], [None], {"type": "wave"}, {"$ref": "#"}),
]


def changed(value: Any, chance: random.Random) -> Any:
    """A JSON value in which one place is another, gone, or there twice."""
    if chance.random() < 0.15:
        return chance.choice(POOL)
    if isinstance(value, dict) and value:
        fields = dict(cast("dict[str, Any]", value))
        key = chance.choice(list(fields))
        match chance.randrange(8):
            case 0:
                del fields[key]
            case 1:
                fields[chance.choice(list(fields))] = fields[key]
            case _:
                fields[key] = changed(fields[key], chance)
        return fields
    if isinstance(value, list) and value:
        items = list(cast("list[Any]", value))
        at = chance.randrange(len(items))
        match chance.randrange(6):
            case 0:
                del items[at]
            case 1:
                items.insert(chance.randrange(len(items) + 1), items[at])
            case _:
                items[at] = changed(items[at], chance)
        return items
    if isinstance(value, int) and not isinstance(value, bool):
        return chance.choice((value + 1, value - 1, 0, -value, 7, 2**53))
    return chance.choice(POOL)


def text_of(part: bytes, chance: random.Random) -> bytes:
    """JSON text with a change; other text as it is."""
    try:
        value = json.loads(part)
    except (ValueError, RecursionError):
        return part
    return json.dumps(changed(value, chance), ensure_ascii=chance.random() < 0.7).encode("utf-8", "surrogatepass")


def shuffled(parts: list[bytes], chance: random.Random) -> list[bytes]:
    """Some of the parts changed, moved, left out or doubled."""
    made = list(parts)
    for _ in range(chance.choice((1, 1, 2, 3, 6))):
        if not made:
            break
        at, to = chance.randrange(len(made)), chance.randrange(len(made))
        match chance.randrange(12):
            case 0:
                del made[at]
            case 1:
                made.insert(to, made[at])
            case 2:
                made[at], made[to] = made[to], made[at]
            case _:
                made[at] = text_of(made[at], chance)
    return made


def lines(data: bytes, chance: random.Random) -> bytes:
    """Lines of JSON: a journal; a schema and its values."""
    return b"\n".join(shuffled(data.split(b"\n"), chance))


def frames(data: bytes, chance: random.Random) -> bytes:
    """A byte, then frames, whose headers are right again afterwards."""
    parts: list[bytes] = []
    at = 1
    while at + 4 <= len(data) and len(parts) < 100:
        size = int.from_bytes(data[at : at + 4], "big")
        parts.append(data[at + 4 : at + 4 + size])
        at += 4 + size
    made = b"".join(len(part).to_bytes(4, "big") + part for part in shuffled(parts, chance))
    # In pieces as long as a frame, the host answers between two of them.
    first = len(made) // max(1, len(parts)) if chance.random() < 0.5 else chance.randrange(256)
    return bytes([min(255, first)]) + made


SHAPES: Final[dict[str, Callable[[bytes, random.Random], bytes]]] = {"state": lines, "schema": lines, "wire": frames}
