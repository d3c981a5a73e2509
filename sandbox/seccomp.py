"""The filter of system calls: what a locked worker may still ask the kernel, as tables, and their assembly into BPF.

Everything here but `install` is pure, so the filter of every machine can be read and tested without a kernel. Calls
that are not named are refused with EPERM. `tests/sandbox/bpf.py` interprets what `build` returns.

Numbers and argument positions are those of the kernel's own tables (`include/uapi/asm-generic/unistd.h`,
`arch/x86/entry/syscalls/syscall_64.tbl`); the layout that a filter reads is `struct seccomp_data` of `linux/seccomp.h`.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import platform
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


@dataclass(frozen=True)
class Arch:
    """A machine: its audit number, its column in `NUMBERS`, and whether x32 numbers exist beside its own."""

    name: str
    audit: int
    column: int
    x32: bool = False


ARCHES: Final = {
    "x86_64": Arch("x86_64", 0xC000003E, 0, x32=True),
    "aarch64": Arch("aarch64", 0xC00000B7, 1),
}


def here() -> Arch | None:
    """The machine that this process is compiled for, or None where there is no table for it.

    A 32-bit process on a 64-bit kernel has other numbers: it counts as having no table.
    """
    return ARCHES.get(platform.machine()) if ctypes.sizeof(ctypes.c_void_p) == 8 else None


# ---- conditions on arguments -------------------------------------------------------------------------------------

OWN: Final = -1  # as a value: the worker's own process id, known only after the fork
CHANNEL: Final = -2  # as a value: the worker's one descriptor
_ALL: Final = 0xFFFFFFFF


@dataclass(frozen=True)
class OneOf:
    """The low half of an argument, masked, is one of the values. For what the kernel reads as 32 bits."""

    argument: int
    values: tuple[int, ...]
    mask: int = _ALL


@dataclass(frozen=True)
class Has:
    """The low half of an argument has one of the bits."""

    argument: int
    bits: int


@dataclass(frozen=True)
class Lacks:
    """The low half of an argument has none of the bits."""

    argument: int
    bits: int


@dataclass(frozen=True)
class IsNull:
    """All 64 bits of an argument are zero; for pointers."""

    argument: int


Condition = OneOf | Has | Lacks | IsNull

_PROT_EXEC: Final = 0x4
_MAP_SHARED: Final = 0x01  # also a bit of MAP_SHARED_VALIDATE: shared pages are not counted by RLIMIT_DATA
_MAP_ANONYMOUS: Final = 0x20
_MAP_GROWSDOWN_LOCKED_HUGETLB: Final = 0x100 | 0x2000 | 0x40000
_FUTEX_PRIVATE_REALTIME: Final = 128 | 256
# wait, wake, requeue, cmp_requeue, wait_bitset, wake_bitset; none with priority inheritance, where the bugs were
_FUTEX_PLAIN: Final = (0, 1, 3, 4, 9, 10)
_PR_SET_NAME, _PR_SET_VMA = 15, 0x53564D41
_SIGABRT: Final = 6  # on both machines
_BEYOND_16_CLOCKS: Final = 0xFFFFFFF0  # an id with one of these bits names the CPU clock of some process, any process

# ---- the tables --------------------------------------------------------------------------------------------------

ALLOWED: Final[dict[str, tuple[Condition, ...]]] = {
    # The filter asks in this order, so what a program makes often comes first; no condition means always.
    "read": (OneOf(0, (CHANNEL,)),),
    "write": (OneOf(0, (CHANNEL,)),),
    "futex": (OneOf(1, _FUTEX_PLAIN, _ALL ^ _FUTEX_PRIVATE_REALTIME),),
    "madvise": (),
    # Nothing executable, with or without JIT: V8 maps its whole code range when the isolate is made, before the lock.
    "mprotect": (Lacks(2, _PROT_EXEC),),
    "mmap": (Has(3, _MAP_ANONYMOUS), Lacks(3, _MAP_SHARED | _MAP_GROWSDOWN_LOCKED_HUGETLB), Lacks(2, _PROT_EXEC)),
    "munmap": (),
    "clock_gettime": (Lacks(0, _BEYOND_16_CLOCKS),),
    "gettid": (),
    "getpid": (),
    "mremap": (),
    "brk": (),
    "clock_nanosleep": (Lacks(0, _BEYOND_16_CLOCKS),),
    "clock_getres": (Lacks(0, _BEYOND_16_CLOCKS),),
    "exit": (),
    "exit_group": (),
    "getcpu": (),
    "getrandom": (),
    "getrusage": (),
    "gettimeofday": (),
    "nanosleep": (),
    "prctl": (OneOf(0, (_PR_SET_NAME, _PR_SET_VMA)),),
    "prlimit64": (OneOf(0, (0,)), IsNull(2)),  # its own limits, and only to read them
    "restart_syscall": (),
    "rseq": (),
    "rt_sigprocmask": (),
    "rt_sigreturn": (),
    "sched_getaffinity": (OneOf(0, (0, OWN)),),
    "sched_yield": (),
    "set_robust_list": (),
    "sigaltstack": (),
    "tgkill": (OneOf(0, (OWN,)), OneOf(2, (_SIGABRT,))),  # what abort() sends itself; no other, for the host reads them
}

# libc, V8 and Python make these now and then and cope with an error (sched_getparam: one program in about 3,000).
SOFT: Final[dict[str, int]] = {
    "clone3": errno.ENOSYS,  # libc falls back to clone
    "ioctl": errno.ENOTTY,
    "openat": errno.EPERM,
    "sched_getparam": errno.EPERM,
    "sched_getscheduler": errno.EPERM,
}

# No honest path makes these: they end the process at once, and the host reports a violation.
VIOLATIONS: Final[tuple[str, ...]] = (
    "bpf", "chroot", "connect", "execve", "execveat", "fork", "init_module", "io_uring_setup", "kexec_load",
    "keyctl", "kill", "memfd_create", "modify_ldt", "mount", "open_by_handle_at", "perf_event_open", "personality",
    "pidfd_getfd", "pidfd_open", "pivot_root", "process_madvise", "process_vm_readv", "process_vm_writev", "ptrace",
    "rt_sigqueueinfo", "seccomp", "setns", "setuid", "socket", "socketpair", "unshare", "userfaultfd", "vfork",
)  # fmt: skip

# name -> (x86_64, aarch64); None where the machine has no such call
NUMBERS: Final[dict[str, tuple[int | None, int | None]]] = {
    "bpf": (321, 280), "brk": (12, 214), "chroot": (161, 51), "clock_getres": (229, 114),
    "clock_gettime": (228, 113), "clock_nanosleep": (230, 115), "clone3": (435, 435), "connect": (42, 203),
    "execve": (59, 221), "execveat": (322, 281), "exit": (60, 93), "exit_group": (231, 94), "fork": (57, None),
    "futex": (202, 98), "getcpu": (309, 168), "getpid": (39, 172), "getrandom": (318, 278), "getrusage": (98, 165),
    "gettid": (186, 178), "gettimeofday": (96, 169), "init_module": (175, 105), "io_uring_setup": (425, 425),
    "ioctl": (16, 29), "kexec_load": (246, 104), "keyctl": (250, 219), "kill": (62, 129), "madvise": (28, 233),
    "memfd_create": (319, 279), "mmap": (9, 222), "modify_ldt": (154, None), "mount": (165, 40),
    "mprotect": (10, 226), "mremap": (25, 216), "munmap": (11, 215), "nanosleep": (35, 101),
    "open_by_handle_at": (304, 265), "openat": (257, 56), "perf_event_open": (298, 241), "personality": (135, 92),
    "pidfd_getfd": (438, 438), "pidfd_open": (434, 434), "pivot_root": (155, 41), "prctl": (157, 167),
    "prlimit64": (302, 261), "process_madvise": (440, 440), "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271), "ptrace": (101, 117), "read": (0, 63), "restart_syscall": (219, 128),
    "rseq": (334, 293), "rt_sigprocmask": (14, 135), "rt_sigqueueinfo": (129, 138), "rt_sigreturn": (15, 139),
    "sched_getaffinity": (204, 123), "sched_getparam": (143, 121), "sched_getscheduler": (145, 120),
    "sched_yield": (24, 124), "seccomp": (317, 277), "set_robust_list": (273, 99), "setns": (308, 268),
    "setuid": (105, 146), "sigaltstack": (131, 132), "socket": (41, 198), "socketpair": (53, 199),
    "tgkill": (234, 131), "unshare": (272, 97), "userfaultfd": (323, 282), "vfork": (58, None), "write": (1, 64),
}  # fmt: skip

# ---- assembly ----------------------------------------------------------------------------------------------------

LOAD, AND, EQUAL, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x54, 0x15, 0x35, 0x45, 0x06  # classic BPF, 32-bit operands
ALLOW, KILL, REFUSE = 0x7FFF0000, 0x80000000, 0x00050000  # seccomp's answers; REFUSE carries an errno in its low half
_NUMBER_AT, _ARCH_AT, _ARGUMENTS_AT = 0, 4, 16  # offsets in struct seccomp_data; both machines are little endian
_X32_NUMBERS: Final = 0x40000000
_TO_REFUSAL: Final = -1  # a jump to the end of the rule's own block, resolved when the block is complete


class Instruction(NamedTuple):
    """One step of classic BPF: jumps are counted from the step after it."""

    code: int
    yes: int
    no: int
    operand: int


def _low(argument: int) -> int:
    return _ARGUMENTS_AT + 8 * argument


def _steps(condition: Condition) -> list[Instruction]:
    """One condition; falls out at its end when it holds."""
    load = Instruction(LOAD, 0, 0, _low(condition.argument))
    match condition:
        case OneOf(_, values, mask):
            last = len(values) - 1
            tests = [Instruction(EQUAL, last - i, _TO_REFUSAL if i == last else 0, v) for i, v in enumerate(values)]
            masking = [] if mask == _ALL else [Instruction(AND, 0, 0, mask)]
            return [load, *masking, *tests]
        case Has(_, bits):
            return [load, Instruction(ANY_BIT, 0, _TO_REFUSAL, bits)]
        case Lacks(_, bits):
            return [load, Instruction(ANY_BIT, _TO_REFUSAL, 0, bits)]
        case IsNull(argument):
            high = Instruction(LOAD, 0, 0, _low(argument) + 4)
            zero = Instruction(EQUAL, 0, _TO_REFUSAL, 0)
            return [load, zero, high, zero]


def _block(number: int, conditions: tuple[Condition, ...]) -> list[Instruction]:
    """The rule of one allowed call. Past it the accumulator still holds the call's number."""
    body = [step for condition in conditions for step in _steps(condition)]
    refusal = [Instruction(RETURN, 0, 0, REFUSE | errno.EPERM)] if body else []
    block = [Instruction(EQUAL, 0, len(body) + 1 + len(refusal), number)]
    for i, (code, yes, no, operand) in enumerate(body):
        distance = len(body) - i  # from the step after this one to the refusal, which stands behind the ALLOW
        block.append(
            Instruction(code, distance if yes == _TO_REFUSAL else yes, distance if no == _TO_REFUSAL else no, operand)
        )
    return [*block, Instruction(RETURN, 0, 0, ALLOW), *refusal]


def _template(arch: Arch, violations: tuple[str, ...], default: int) -> list[Instruction]:
    """The whole filter, with OWN and CHANNEL still unresolved."""
    program = [
        Instruction(LOAD, 0, 0, _ARCH_AT),
        Instruction(EQUAL, 1, 0, arch.audit),
        Instruction(RETURN, 0, 0, KILL),
        Instruction(LOAD, 0, 0, _NUMBER_AT),
    ]
    if arch.x32:
        program += [Instruction(AT_LEAST, 0, 1, _X32_NUMBERS), Instruction(RETURN, 0, 0, KILL)]
    for name, conditions in ALLOWED.items():
        number = NUMBERS[name][arch.column]
        if number is not None:
            program += _block(number, conditions)
    for name, error in SOFT.items():
        number = NUMBERS[name][arch.column]
        if number is not None:
            program += [Instruction(EQUAL, 0, 1, number), Instruction(RETURN, 0, 0, REFUSE | error)]
    kills = [n for n in (NUMBERS[name][arch.column] for name in violations) if n is not None]
    program += [Instruction(EQUAL, len(kills) - i, 0, number) for i, number in enumerate(kills)]
    return [*program, Instruction(RETURN, 0, 0, default), Instruction(RETURN, 0, 0, KILL)]


def build(
    pid: int,
    channel: int,
    *,
    arch: Arch,
    violations: Iterable[str] = VIOLATIONS,
    default: int = REFUSE | errno.EPERM,
) -> list[Instruction]:
    """Assemble the filter of one worker.

    Args:
        pid: The worker's own process id, as it sees itself.
        channel: The one descriptor that it may read and write.
        arch: Whose numbers to use; another machine's only to look at its filter.
        violations: The calls that kill. None of them, so that a test may try them all in one process.
        default: The answer to every call that no table names. KILL works too, because `SOFT` is answered before it.
    """
    resolved = {OWN: pid, CHANNEL: channel}
    return [
        step._replace(operand=resolved.get(step.operand, step.operand))
        for step in _template(arch, tuple(violations), default)
    ]


_STEP: Final = struct.Struct("<HBBI")  # struct sock_filter


@functools.cache
def _packed(channel: int, arch: Arch, violations: tuple[str, ...], default: int) -> tuple[bytes, tuple[int, ...]]:
    """The filter as the kernel takes it, and where its own process id belongs: made once, in the zygote."""
    template = _template(arch, violations, default)
    own = tuple(i * _STEP.size + 4 for i, step in enumerate(template) if step.operand == OWN)
    return b"".join(
        _STEP.pack(*step) for step in build(0, channel, arch=arch, violations=violations, default=default)
    ), own


def packed(
    pid: int,
    channel: int,
    *,
    arch: Arch,
    violations: tuple[str, ...] = VIOLATIONS,
    default: int = REFUSE | errno.EPERM,
) -> bytearray:
    """What `build` returns, in the kernel's bytes; cheap after the first time, which costs half a millisecond."""
    code, own = _packed(channel, arch, violations, default)
    filled = bytearray(code)
    for offset in own:
        struct.pack_into("<I", filled, offset, pid)
    return filled


class _FilterProgram(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))  # struct sock_fprog


def install(code: bytearray, *, arch: Arch, syscall: Callable[..., int]) -> None:
    """Lock all threads of this process behind a filter (TSYNC: an isolate has a thread of its own).

    Args:
        code: What `packed` returned.
        arch: The machine that this process runs on.
        syscall: `walls.syscall`, which raises an `OSError`.

    Raises:
        OSError: The kernel has no filters, or a thread could not take this one (its id is in the text).
    """
    held = (ctypes.c_char * len(code)).from_buffer(code)
    header = _FilterProgram(len(code) // _STEP.size, ctypes.addressof(held))
    set_mode_filter, tsync = 1, 1
    number = NUMBERS["seccomp"][arch.column]
    answer = syscall("seccomp", number, set_mode_filter, tsync, ctypes.addressof(header))
    if answer > 0:
        raise OSError(errno.ESRCH, f"thread {answer} did not take the filter")
