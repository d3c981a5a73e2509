"""The wall landlock: the kernel itself refuses files, TCP, unix sockets and signals, whatever the filter lets through.

A second layer: it does not stop stat, UDP or fork. Numbers and bits are those of `linux/landlock.h`.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from typing import Final

from sandbox.walls import NoWall, named, syscall

_CREATE, _ADD, _RESTRICT = 444, 445, 446  # one number on every machine
_READ_FILE: Final = 1 << 2
# How many rights on files each version knows; all are taken away. linux/landlock.h; newer versions know at least these
_FILE_RIGHTS: Final = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16, 6: 16, 7: 16, 8: 16, 9: 17}
_SEEDS: Final = "/dev/urandom"  # V8 seeds each isolate from it, and falls back to the clock in silence


def version() -> int:
    """Version of landlock's interface.

    Raises:
        NoWall: The kernel has none.
    """
    try:
        return syscall("landlock_create_ruleset", _CREATE, 0, 0, 1)
    except OSError as error:
        if error.errno == errno.EOPNOTSUPP:
            raise NoWall("the kernel has it, but it was left out when it booted (see its parameter lsm=)") from error
        raise NoWall(f"the kernel has none ({named(error.errno or 0)})") from error


def rules() -> int:
    """A ruleset as a descriptor: no file but the one that V8 seeds from, no TCP, no unix socket or signal outside."""
    known = min(version(), max(_FILE_RIGHTS))
    words = [(1 << _FILE_RIGHTS[known]) - 1, 0b11, 0b11][: 1 if known < 4 else 2 if known < 6 else 3]
    attributes = ctypes.create_string_buffer(struct.pack(f"<{len(words)}Q", *words), 8 * len(words))
    ruleset = syscall("landlock_create_ruleset", _CREATE, ctypes.addressof(attributes), len(attributes), 0)
    try:
        seeds = os.open(_SEEDS, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return ruleset  # a machine without it: V8 could not have read it either
    rule = ctypes.create_string_buffer(struct.pack("<Qi", _READ_FILE, seeds), 12)
    try:
        syscall("landlock_add_rule", _ADD, ruleset, 1, ctypes.addressof(rule), 0)
    finally:
        os.close(seeds)
    return ruleset


def restrict(ruleset: int) -> None:
    """Put the calling thread, and what it starts later, under a ruleset; then look whether it holds."""
    syscall("landlock_restrict_self", _RESTRICT, ruleset, 0)
    try:
        os.close(os.open("/", os.O_RDONLY | os.O_DIRECTORY))
    except OSError:
        return
    raise NoWall("the rules are in force, but a directory could still be opened")
