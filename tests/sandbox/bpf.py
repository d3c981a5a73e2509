"""Interprets a filter of system calls as the kernel would, without a kernel and for any machine.

Written from the kernel's description of classic BPF (`Documentation/networking/filter.rst`) and of what seccomp allows
of it (`kernel/seccomp.c`): `accepted` refuses what the kernel would refuse, so a filter that passes can be installed.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Sequence

from sandbox.seccomp import ALLOW, AND, ANY_BIT, AT_LEAST, EQUAL, KILL, LOAD, RETURN, Instruction

DATA_BYTES = 64  # struct seccomp_data: number, machine, instruction pointer, six arguments
LONGEST = 4096
JUMPS = (EQUAL, AT_LEAST, ANY_BIT)


def accepted(program: Sequence[Instruction]) -> None:
    """Raise ValueError for a program that the kernel would not take."""
    if not 0 < len(program) <= LONGEST:
        raise ValueError(f"{len(program)} instructions")
    for at, (code, yes, no, operand) in enumerate(program):
        if not (0 <= yes <= 0xFF and 0 <= no <= 0xFF and 0 <= operand <= 0xFFFFFFFF):
            raise ValueError(f"instruction {at} does not fit its fields")
        if code in JUMPS:
            if at + 1 + max(yes, no) >= len(program):
                raise ValueError(f"instruction {at} jumps out of the program")
        elif code == LOAD:
            if operand % 4 or operand >= DATA_BYTES:
                raise ValueError(f"instruction {at} loads from {operand}")
        elif code not in (AND, RETURN):
            raise ValueError(f"instruction {at} has the code {code:#x}")
    if program[-1].code != RETURN:
        raise ValueError("the last instruction does not return")


def run(program: Sequence[Instruction], audit: int, number: int, arguments: Sequence[int] = ()) -> tuple[int, int]:
    """The filter's answer to one system call, and how many instructions it took."""
    values = [argument & (1 << 64) - 1 for argument in arguments] + [0] * (6 - len(arguments))
    data = struct.pack("<IIQ6Q", number & 0xFFFFFFFF, audit, 0, *values)
    accumulator, at, taken = 0, 0, 0
    while True:
        code, yes, no, operand = program[at]
        at, taken = at + 1, taken + 1
        if code == LOAD:
            (accumulator,) = struct.unpack_from("<I", data, operand)
        elif code == AND:
            accumulator &= operand
        elif code == RETURN:
            return operand, taken
        else:
            met = {EQUAL: accumulator == operand, AT_LEAST: accumulator >= operand, ANY_BIT: accumulator & operand != 0}
            at += yes if met[code] else no


def answer(program: Sequence[Instruction], audit: int, number: int, arguments: Sequence[int] = ()) -> str:
    """The answer as a word: `allow`, `kill`, or the name of an errno."""
    value, _ = run(program, audit, number, arguments)
    return {ALLOW: "allow", KILL: "kill"}.get(value) or errno.errorcode[value & 0xFFFF]
