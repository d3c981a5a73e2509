"""Edits of program text that keep its lines, and the map from V8's columns back to the model's.

Offsets are bytes of UTF-8 (what tree-sitter counts), columns are UTF-16 units from 1 (what V8 counts), lines end where
ECMAScript ends them: LF, CR LF, CR, U+2028, U+2029. No edit adds or removes a line.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from functools import cached_property
from typing import Final, NamedTuple

Shift = tuple[int, int, int]
"""(line, from_column, delta): from that column of that line on, the old column is the new one minus delta."""

_TERMINATOR: Final = re.compile(rb"\r\n|[\n\r]|\xe2\x80[\xa8\xa9]")
_BLANKED: Final = re.compile(r"[^\n\r\u2028\u2029]")


class Edit(NamedTuple):
    """Put `new` in the place of the bytes from `start` to `end`."""

    start: int
    end: int
    new: bytes


def units(piece: bytes) -> int:
    """How many UTF-16 units a piece of UTF-8 has."""
    return len(piece) if piece.isascii() else len(piece.decode().encode("utf-16-le")) // 2


def terminators(piece: bytes) -> list[bytes]:
    """The line ends of a piece, in order."""
    return _TERMINATOR.findall(piece)


def blanked(piece: bytes) -> bytes:
    """Spaces of the same width, line ends kept."""
    if piece.isascii():
        return _BLANKED.sub(" ", piece.decode()).encode()
    return _BLANKED.sub(lambda found: "  " if found[0] > "\uffff" else " ", piece.decode()).encode()


class Text:
    """Program text with places in it."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    @cached_property
    def _starts(self) -> list[int]:
        return [0, *(found.end() for found in _TERMINATOR.finditer(self.data))]

    def place(self, offset: int) -> tuple[int, int]:
        """Line and column, both from 1, of a byte offset."""
        line = bisect_right(self._starts, offset)
        return line, units(self.data[self._starts[line - 1] : offset]) + 1

    def line(self, number: int) -> str:
        """One line without its end; empty if there is no such line."""
        if not 1 <= number <= len(self._starts):
            return ""
        end = self._starts[number] if number < len(self._starts) else len(self.data)
        return self.data[self._starts[number - 1] : end].decode().rstrip("\r\n\u2028\u2029")

    @property
    def lines(self) -> int:
        """How many lines there are; one at least."""
        return len(self._starts)

    def blank(self, start: int, end: int, first: bytes = b"", last: bytes = b"") -> Edit:
        """An edit that blanks a range, with one ASCII character put at either end of it if wanted."""
        new = blanked(self.data[start:end])
        if first:
            new = first + new[1:]
        if last:
            new = new[:-1] + last
        return Edit(start, end, new)


def apply(text: Text, edits: list[Edit]) -> tuple[bytes, list[Shift]]:
    """Do edits that do not overlap, and say which columns they moved.

    Insertions at one offset keep the order in which they are given.

    Raises:
        ValueError: Two edits overlap, or one changes the number of lines.
    """
    if not edits:
        return text.data, []
    parts: list[bytes] = []
    shifts: list[Shift] = []
    done, moved_line, moved = 0, 0, 0
    for edit in sorted(edits, key=lambda each: each[:2]):
        old = text.data[edit.start : edit.end]
        if edit.start < done or len(terminators(old)) != len(terminators(edit.new)):
            raise ValueError(f"an edit at byte {edit.start} overlaps another one or changes the lines")
        parts += (text.data[done : edit.start], edit.new)
        done = edit.end
        delta = units(_tail(edit.new)) - units(_tail(old))
        if delta == 0:
            continue
        line, column = text.place(edit.end)
        moved = delta + (moved if line == moved_line and not terminators(old) else 0)
        moved_line = line
        shifts.append((line, column + moved, moved))
    parts.append(text.data[done:])
    whole = b"".join(parts)
    if b"\r" in whole and len(terminators(whole)) != text.lines - 1:
        raise ValueError("a CR and a LF that an edit brought together are one line end")
    return whole, shifts


def _tail(piece: bytes) -> bytes:
    ends = list(_TERMINATOR.finditer(piece))
    return piece[ends[-1].end() :] if ends else piece


def back(shifts: list[Shift], line: int, column: int) -> int:
    """The old column of a new one; the last matching shift counts."""
    old = column
    for at, start, delta in shifts:
        if at == line and column >= start:
            old = column - delta
    return old


def compose(first: list[Shift], second: list[Shift]) -> list[Shift]:
    """The shifts of doing `first`, then `second`."""
    if not first or not second:
        return first or second
    shifts: list[Shift] = []
    for line in sorted({each[0] for each in (*first, *second)}):
        starts = {start for at, start, _ in second if at == line}
        deltas = {0, *(delta for at, _, delta in second if at == line)}
        starts |= {start + delta for at, start, _ in first if at == line for delta in deltas}  # wherever it may be now
        known = 0
        for start in sorted(starts):
            delta = start - back(first, line, back(second, line, start))
            if delta != known:
                shifts.append((line, start, delta))
                known = delta
    return shifts
