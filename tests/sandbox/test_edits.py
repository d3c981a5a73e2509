"""Edits that keep lines, and the way back from a new column to the old one."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox.source import edits
from sandbox.source.edits import Edit, Text

ALPHABET = st.sampled_from(["a", "é", "😀", " ", "\n", "\r\n", "\u2028"])
TEXTS = st.lists(ALPHABET, max_size=25).map("".join)


def test_lines_end_where_ecmascript_ends_them() -> None:
    text = Text("a\nb\r\nc\rd\u2028e\u2029😀f".encode())
    assert [text.line(number) for number in range(8)] == ["", "a", "b", "c", "d", "e", "😀f", ""]
    assert text.place(text.data.index(b"f")) == (6, 3)


def test_edits_that_overlap_are_refused() -> None:
    with pytest.raises(ValueError, match="an edit at byte 1 overlaps another one or changes the lines"):
        edits.apply(Text(b"abc"), [Edit(0, 2, b""), Edit(1, 3, b"")])


def test_an_edit_that_changes_the_lines_is_refused() -> None:
    with pytest.raises(ValueError, match="an edit at byte 1 overlaps another one or changes the lines"):
        edits.apply(Text(b"abc"), [Edit(1, 1, b"\n")])


def test_an_edit_that_makes_one_line_end_of_two_is_refused() -> None:
    with pytest.raises(ValueError, match="a CR and a LF that an edit brought together are one line end"):
        edits.apply(Text(b"\ra\n"), [Edit(1, 2, b"")])


def test_insertions_at_one_place_keep_their_order() -> None:
    assert edits.apply(Text(b"ab"), [Edit(1, 1, b"x"), Edit(1, 1, b"y")])[0] == b"axyb"


@st.composite
def edited(draw: st.DrawFn, source: str) -> list[Edit]:
    """Edits between whole characters; CR LF stays whole."""
    pieces = [each.encode() for each in source.replace("\r\n", "\0")]
    offsets = [0]
    for each in pieces:
        offsets.append(offsets[-1] + (2 if each == b"\0" else len(each)))
    data = source.encode()
    found: list[Edit] = []
    at = 0
    while at < len(offsets) - 1:
        at += draw(st.integers(0, 4))
        to = at + draw(st.integers(0, 3))
        if to >= len(offsets):
            break
        old = data[offsets[at] : offsets[to]]
        new = draw(st.sampled_from(["", "x", "return ", "😀"])).encode() + b"".join(edits.terminators(old))
        found.append(Edit(offsets[at], offsets[to], new))
        at = to + 1
    return found


def marked(source: str, changes: list[Edit]) -> list[int]:
    """Byte offsets of characters that no edit touches."""
    free: list[int] = []
    offset = 0
    for each in source:
        size = len(each.encode())
        if not any(change.start < offset + size and offset < change.end for change in changes):
            free.append(offset)
        offset += size
    return free


def moved(offset: int, changes: list[Edit]) -> int:
    return offset + sum(len(each.new) - (each.end - each.start) for each in changes if each.end <= offset)


@settings(max_examples=300, deadline=None)
@given(st.data(), TEXTS)
def test_every_kept_character_finds_its_way_back_through_two_rounds_of_edits(data: st.DataObject, source: str) -> None:
    first = Text(source.encode())
    changes = data.draw(edited(source))
    second_data, one = edits.apply(first, changes)
    second = Text(second_data)
    again = data.draw(edited(second_data.decode()))
    third_data, two = edits.apply(second, again)
    third = Text(third_data)
    assert len(edits.terminators(third_data)) == len(edits.terminators(first.data))
    shifts = edits.compose(one, two)
    kept = set(marked(second_data.decode(), again))
    for offset in marked(source, changes):
        middle = moved(offset, changes)
        if middle not in kept:
            continue
        line, column = third.place(moved(middle, again))
        assert (line, edits.back(shifts, line, column)) == first.place(offset)
