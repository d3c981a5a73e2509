"""Cuts JSON values and texts to a number of bytes, so that what is left is still JSON and says what is gone.

A cut list keeps its first items and ends in "... 49,900 more items"; a cut text ends in "... 1,934,464 more
characters"; an object that cannot show all its keys gets one more, "...", that counts the rest. All keys of an object
share the room, so that a large member does not push out the small ones. Where the data itself holds such a mark, the
marks get more dots.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, cast

import msgspec

FLOOR: Final = 80  # bytes that hold the longest mark, its brackets and the longest key for it
_DEEPEST_CUT: Final = 32  # below that a value is shown whole or not at all: bounds the work, and nobody reads deeper
_DEEPEST_WHOLE: Final = 200  # half of what the encoder's recursion stands, whatever stack we are called on
_FEW_ITEMS: Final = 8  # a list this short is shown like an object: all items, each with its share
_MANY_KEYS: Final = 256  # an object with more is shown like a list: its first keys
_MARKS: Final = re.compile(rb"(?<!\.)(\.{3,}+) [0-9,]+ more (?:items|keys|characters|digits)")
_MOST_DOTS: Final = 12


def encode(value: Any) -> bytes:
    """The JSON text by which sizes are counted: compact, UTF-8."""
    return msgspec.json.encode(value)


def cut(value: Any, max_bytes: int) -> tuple[Any, bool]:
    """A JSON value of at most `max_bytes` bytes of JSON text, and whether anything is gone.

    What fits comes back as it is. Deterministic. The value is encoded once, whatever its size; all else is bounded by
    `max_bytes`. Fewer than `FLOOR` bytes are taken as `FLOOR`.

    Args:
        value: JSON without lone surrogates. Not changed; the result shares its uncut parts.
    """
    try:
        text = encode(value)
    except RecursionError:
        text = b""
    if text and len(text) <= max_bytes:
        return value, False
    return _Cutter(_mark(text)).fit(value, max(max_bytes, FLOOR), 0)[0], True


def cut_text(text: str, max_bytes: int) -> tuple[str, bool]:
    """The beginning of a text with a mark for the rest, in at most `max_bytes` bytes of UTF-8, and whether it was cut.

    No character is broken. Fewer than `FLOOR` bytes are taken as `FLOOR`.
    """
    if len(text) <= max_bytes and len(text.encode("utf-8", "replace")) <= max_bytes:
        return text, False
    mark = _mark(text.encode("utf-8", "replace"))
    room = max(max_bytes, FLOOR) - len(f"{mark} {len(text):,} more characters")
    head = text[:room].encode("utf-8", "replace")[:room].decode("utf-8", "ignore")
    return f"{head}{mark} {len(text) - len(head):,} more characters", True


def share(sizes: Sequence[int], room: int) -> list[int]:
    """Divide `room` among parts: small ones get what they need, the others equal parts of what is left."""
    given = [0] * len(sizes)
    order = sorted(range(len(sizes)), key=lambda index: sizes[index])
    for done, index in enumerate(order):
        given[index] = min(sizes[index], max(0, room) // (len(order) - done))
        room -= given[index]
    return given


def measure(value: Any, limit: int) -> int | None:
    """Bytes of the JSON text of `value` if that is at most `limit`, else None. The work is bounded by `limit`."""
    total, depth, level = 0, 0, [value]
    while level:
        depth += 1
        if depth > _DEEPEST_WHOLE:
            return None
        below: list[Any] = []
        for item in level:
            if isinstance(item, str):
                if total + len(item) + 2 > limit:
                    return None
                total += len(encode(item))
            elif isinstance(item, list):
                items = cast("list[Any]", item)
                total += 2 + max(0, len(items) - 1)
                if total + len(items) > limit:
                    return None
                below += items
            elif isinstance(item, dict):
                members = cast("dict[str, Any]", item)
                total += 2 + max(0, 2 * len(members) - 1)
                if total + 3 * len(members) > limit:
                    return None
                for key in members:
                    total += len(encode(key)) if len(key) <= limit else limit
                    if total > limit:
                        return None
                below += members.values()
            else:
                total += len(encode(item))
            if total > limit:
                return None
        level = below
    return total


def _mark(text: bytes) -> str:
    """Dots that the data does not use itself in this way."""
    used: set[int] = set()
    if b"... " in text:
        used = {len(dots) for dots in _MARKS.findall(text)}
    return "." * next((dots for dots in range(3, _MOST_DOTS) if dots not in used), _MOST_DOTS)


class _Cutter:
    """Cuts values that are known not to fit. Each method returns a value and its exact size."""

    def __init__(self, mark: str) -> None:
        self.mark = mark

    def fit(self, value: Any, room: int, depth: int) -> tuple[Any, int]:
        """Cut to `room` bytes, at least `FLOOR`."""
        if isinstance(value, str):
            return self._text(value, room)
        if isinstance(value, list):
            items = cast("list[Any]", value)
            return self._items(items, room, depth) if depth < _DEEPEST_CUT else self._gone(len(items), "items")
        if isinstance(value, dict):
            members = cast("dict[str, Any]", value)
            return self._members(members, room, depth) if depth < _DEEPEST_CUT else self._gone(len(members), "keys")
        return self._gone(len(str(value)), "digits")

    def _gone(self, count: int, what: str) -> tuple[str, int]:
        text = f"{self.mark} {count:,} more {what}"
        return text, len(text) + 2

    def _text(self, text: str, room: int) -> tuple[str, int]:
        room -= self._gone(len(text), "characters")[1]
        low, high = 0, min(len(text), max(0, room))
        while low < high:  # the longest beginning whose escaped form fits
            middle = (low + high + 1) // 2
            low, high = (middle, high) if len(encode(text[:middle])) - 2 <= room else (low, middle - 1)
        gone, size = self._gone(len(text) - low, "characters")
        return text[:low] + gone, len(encode(text[:low])) - 2 + size

    def _items(self, items: list[Any], room: int, depth: int) -> tuple[list[Any], int]:
        if len(items) <= _FEW_ITEMS:
            parts = self._all(items, room - 1 - len(items), depth)
            if parts is not None:
                return [part for part, _ in parts], 1 + len(items) + sum(size for _, size in parts)
        kept, used = self._first(
            [(0, item) for item in items[:room]], room - 2, self._gone(len(items), "items")[1], depth
        )
        shown = [part for part, _ in kept]
        if len(shown) < len(items):
            gone, size = self._gone(len(items) - len(shown), "items")
            return [*shown, gone], 2 + used + size
        return shown, 2 + used - 1

    def _members(self, members: dict[str, Any], room: int, depth: int) -> tuple[Any, int]:
        keys = list(members)
        if len(keys) <= _MANY_KEYS and sum(map(len, keys)) < room:
            names = sum(len(encode(key)) + 2 for key in keys)
            parts = self._all(list(members.values()), room - 1 - names, depth)
            if parts is not None:
                sizes = sum(size for _, size in parts)
                return {key: part for key, (part, _) in zip(keys, parts, strict=True)}, 1 + names + sizes
        rest = self.mark
        while rest in members:
            rest += "."
        if len(rest) > 2 * _MOST_DOTS:  # somebody plays with us
            return self._gone(len(keys), "keys")
        head = [(len(encode(key)) + 1 if len(key) < room else room, members[key]) for key in keys[:room]]
        kept, used = self._first(head, room - 2, len(rest) + 3 + self._gone(len(keys), "keys")[1], depth)
        shown = {key: part for key, (part, _) in zip(keys, kept, strict=False)}
        if len(shown) == len(keys):
            return shown, 2 + used - 1
        gone, size = self._gone(len(keys) - len(shown), "keys")
        return {**shown, rest: gone}, 2 + used + len(rest) + 3 + size

    def _all(self, values: list[Any], room: int, depth: int) -> list[tuple[Any, int]] | None:
        """Every value within its share of the room; None where that leaves one less than `FLOOR`."""
        sizes = [measure(value, FLOOR) for value in values]
        if sum(FLOOR if size is None else size for size in sizes) > room:
            return None
        bound = FLOOR
        while bound < room and None in sizes:
            # A bound of twice the even share costs at most twice the room, and it doubles each time round.
            even = (room - sum(size for size in sizes if size is not None)) // sizes.count(None)
            if even <= bound:
                break
            bound = 2 * even
            sizes = [measure(value, bound) if size is None else size for value, size in zip(values, sizes, strict=True)]
        shares = share([room if size is None else size for size in sizes], room)
        return [
            (value, size) if size is not None and size <= given else self.fit(value, given, depth + 1)
            for value, size, given in zip(values, sizes, shares, strict=True)
        ]

    def _first(
        self, values: list[tuple[int, Any]], room: int, mark: int, depth: int
    ) -> tuple[list[tuple[Any, int]], int]:
        """As many of the first values as fit beside a mark, none with more than a quarter of the room; and the bytes
        used, commas included. Each value comes with the bytes of its key."""
        most = max(FLOOR, room // 4)
        kept: list[tuple[Any, int]] = []
        used = 0
        for key, value in values:
            left = min(room - mark - used - key - 1, most)
            if left < 1:
                break
            size = measure(value, left)
            if size is None:
                if left < FLOOR:
                    break
                kept.append(self.fit(value, left, depth + 1))
            else:
                kept.append((value, size))
            used += key + kept[-1][1] + 1
        return kept, used
