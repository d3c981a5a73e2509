"""What a measurement writes down of each program, where it does not count as memory of the host that is measured."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from typing import Final

ROOM: Final = 256 << 20  # bytes of address space; only what is written takes memory


class Notes:
    """Lines in shared memory: no part of what a host holds of its own, and under no limit of files and disks."""

    def __init__(self) -> None:
        self._room = mmap.mmap(-1, ROOM)
        self._end = 0

    def add(self, *words: object) -> None:
        """One line more."""
        line = " ".join(map(str, words)).encode() + b"\n"
        self._room[self._end : self._end + len(line)] = line
        self._end += len(line)

    def clear(self) -> None:
        """Forget all of them."""
        self._end = 0

    def __iter__(self) -> Iterator[list[str]]:
        """The words of each line, in order."""
        self._room.seek(0)
        while self._room.tell() < self._end:
            yield self._room.readline().decode().split()
