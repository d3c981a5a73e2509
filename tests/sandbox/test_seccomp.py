"""The filter as a table: every call of a current kernel, on both machines, interpreted without a kernel.

What is expected is written down here a second time, from the design and not from the module's own tables.
"""

from __future__ import annotations

import json
import platform
import struct
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sandbox import seccomp
from sandbox.seccomp import ARCHES, Arch

from .bpf import accepted, answer, run

CALLS: dict[str, dict[str, int]] = json.loads(
    Path(seccomp.__file__).parent.joinpath("attacks", "syscalls.json").read_text("ascii")
)
PID, CHANNEL = 4242, 3
PROGRAMS = {arch.name: seccomp.build(PID, CHANNEL, arch=arch) for arch in ARCHES.values()}

ALWAYS = set(
    "brk exit exit_group getcpu getpid getrandom getrusage gettid gettimeofday madvise mremap munmap nanosleep "
    "restart_syscall rseq rt_sigprocmask rt_sigreturn sched_yield set_robust_list sigaltstack".split()
)
ERRORS = {
    "clone3": "ENOSYS",
    "ioctl": "ENOTTY",
    "openat": "EPERM",
    "sched_getparam": "EPERM",
    "sched_getscheduler": "EPERM",
}
KILLS = set(
    "execve execveat fork vfork ptrace kill rt_sigqueueinfo process_vm_readv process_vm_writev process_madvise socket "
    "socketpair connect unshare setns mount chroot pivot_root bpf io_uring_setup userfaultfd perf_event_open keyctl "
    "memfd_create seccomp pidfd_open pidfd_getfd kexec_load init_module personality modify_ldt open_by_handle_at "
    "setuid".split()
)


def low(value: int) -> int:
    return value & 0xFFFFFFFF


# call -> whether these six arguments are allowed
CONDITIONS: dict[str, Callable[[Sequence[int]], bool]] = {
    "read": lambda a: low(a[0]) == CHANNEL,
    "write": lambda a: low(a[0]) == CHANNEL,
    "mmap": lambda a: a[3] & 0x20 != 0 and a[3] & (0x1 | 0x100 | 0x2000 | 0x40000) == 0 and a[2] & 4 == 0,
    "mprotect": lambda a: a[2] & 4 == 0,
    "futex": lambda a: low(a[1]) & ~0x180 in (0, 1, 3, 4, 9, 10),
    "prctl": lambda a: low(a[0]) in (15, 0x53564D41),
    "prlimit64": lambda a: low(a[0]) == 0 and a[2] == 0,
    "sched_getaffinity": lambda a: low(a[0]) in (0, PID),
    "tgkill": lambda a: low(a[0]) == PID and low(a[2]) == 6,
    "clock_gettime": lambda a: low(a[0]) < 16,
    "clock_getres": lambda a: low(a[0]) < 16,
    "clock_nanosleep": lambda a: low(a[0]) < 16,
}

machines = pytest.mark.parametrize("arch", ARCHES.values(), ids=list(ARCHES))
# Small numbers, single bits and their unions find edges that a random 64-bit number never meets.
argument = st.one_of(
    st.integers(-64, 64),
    st.sampled_from((PID, PID + 1, ~PID << 3 | 2, 0x53564D41, 0x22, 0x20, 0x21, 0x23)),
    st.lists(st.integers(0, 63), max_size=4).map(lambda bits: sum(1 << bit for bit in set(bits))),
    st.integers(0, (1 << 64) - 1),
).map(lambda value: value & (1 << 64) - 1)
arguments = st.lists(argument, min_size=6, max_size=6)


@machines
def test_the_kernel_would_take_the_filter(arch: Arch) -> None:
    accepted(PROGRAMS[arch.name])
    accepted(seccomp.build(PID, CHANNEL, arch=arch, violations=(), default=seccomp.KILL))


@machines
def test_every_number_is_the_kernels_own(arch: Arch) -> None:
    known = CALLS[arch.name]
    assert {name: numbers[arch.column] for name, numbers in seccomp.NUMBERS.items()} == {
        name: known.get(name) for name in seccomp.NUMBERS
    }


@machines
def test_the_table_of_calls_is_that_of_a_current_kernel_without_a_gap(arch: Arch) -> None:
    """Linux 7.3. Both machines count alike from 424 on; before, either has its own numbers."""
    expected = {"x86_64": {*range(337)}, "aarch64": {*range(244), *range(260, 295)}}[arch.name]
    assert set(CALLS[arch.name].values()) == expected | {*range(424, 473)}
    assert len(CALLS[arch.name]) == len(set(CALLS[arch.name].values()))


@machines
@given(given_arguments=arguments)
@example(given_arguments=[0] * 6)
@example(given_arguments=[(1 << 64) - 1] * 6)
def test_every_call_of_the_kernel_gets_the_answer_of_the_table(arch: Arch, given_arguments: list[int]) -> None:
    wrong: dict[str, str] = {}
    for name, number in CALLS[arch.name].items():
        expected = "EPERM"
        if name in ALWAYS or (name in CONDITIONS and CONDITIONS[name](given_arguments)):
            expected = "allow"
        elif name in KILLS:
            expected = "kill"
        elif name in ERRORS:
            expected = ERRORS[name]
        got = answer(PROGRAMS[arch.name], arch.audit, number, given_arguments)
        if got != expected:
            wrong[name] = got
    assert wrong == {}


@pytest.mark.parametrize(
    ("call", "given_arguments", "expected"),
    [
        ("read", [CHANNEL], "allow"),
        ("read", [0], "EPERM"),
        ("write", [CHANNEL], "allow"),
        ("write", [1], "EPERM"),
        ("write", [2], "EPERM"),
        ("mmap", [0, 4096, 3, 0x22], "allow"),
        ("mmap", [0, 4096, 0, 0x4022], "allow"),
        ("mmap", [0, 4096, 3, 0x02], "EPERM"),
        ("mmap", [0, 4096, 3, 0x21], "EPERM"),
        ("mmap", [0, 4096, 3, 0x23], "EPERM"),
        ("mmap", [0, 4096, 7, 0x22], "EPERM"),
        ("mmap", [0, 4096, 5, 0x22], "EPERM"),
        ("mmap", [0, 4096, 3, 0x22 | 0x40000], "EPERM"),
        ("mmap", [0, 4096, 3, 0x22 | 0x2000], "EPERM"),
        ("mmap", [0, 4096, 3, 0x22 | 0x100], "EPERM"),
        ("mprotect", [0, 4096, 3], "allow"),
        ("mprotect", [0, 4096, 0x13], "allow"),
        ("mprotect", [0, 4096, 5], "EPERM"),
        ("futex", [0, 128 | 9], "allow"),
        ("futex", [0, 256 | 128], "allow"),
        ("futex", [0, 6], "EPERM"),
        ("futex", [0, 12], "EPERM"),
        ("clock_gettime", [1], "allow"),
        ("clock_gettime", [~PID << 3 | 2], "EPERM"),
        ("clock_nanosleep", [~PID << 3 | 2], "EPERM"),
        ("prlimit64", [0, 7, 0, 1], "allow"),
        ("prlimit64", [0, 7, 1 << 32, 1], "EPERM"),
        ("prlimit64", [PID, 7, 0, 1], "EPERM"),
        ("sched_getaffinity", [PID], "allow"),
        ("sched_getaffinity", [PID + 1], "EPERM"),
        ("tgkill", [PID, PID, 6], "allow"),
        ("tgkill", [1, 1, 9], "EPERM"),
        ("tgkill", [1, 1, 6], "EPERM"),
        *(("tgkill", [PID, PID, number], "EPERM") for number in (1, 2, 3, 9, 15, 31)),
        ("prctl", [15], "allow"),
        ("prctl", [4, 1], "EPERM"),
        ("prctl", [22, 2], "EPERM"),
    ],
)
@machines
def test_an_argument_decides(arch: Arch, call: str, given_arguments: list[int], expected: str) -> None:
    assert answer(PROGRAMS[arch.name], arch.audit, CALLS[arch.name][call], given_arguments) == expected


@machines
@given(number=st.integers(0, (1 << 32) - 1), given_arguments=arguments)
@example(number=0x40000000 + 39, given_arguments=[0] * 6)
@example(number=0x3FFFFFFF, given_arguments=[0] * 6)
@example(number=0xFFFFFFFF, given_arguments=[0] * 6)
def test_a_number_that_no_kernel_has_is_refused(arch: Arch, number: int, given_arguments: list[int]) -> None:
    if number in CALLS[arch.name].values():
        return
    expected = "kill" if arch.name == "x86_64" and number >= 0x40000000 else "EPERM"
    assert answer(PROGRAMS[arch.name], arch.audit, number, given_arguments) == expected


@machines
@given(audit=st.integers(0, (1 << 32) - 1), number=st.integers(0, 600), given_arguments=arguments)
@example(audit=0x40000003, number=1, given_arguments=[CHANNEL, 0, 0, 0, 0, 0])  # the 32-bit entry of x86
@example(audit=0x40000028, number=4, given_arguments=[CHANNEL, 0, 0, 0, 0, 0])  # the 32-bit entry of arm
def test_another_machines_entry_kills(arch: Arch, audit: int, number: int, given_arguments: list[int]) -> None:
    if audit != arch.audit:
        assert answer(PROGRAMS[arch.name], audit, number, given_arguments) == "kill"


@machines
def test_with_a_default_of_kill_the_soft_answers_stay(arch: Arch) -> None:
    program = seccomp.build(PID, CHANNEL, arch=arch, default=seccomp.KILL)
    known = CALLS[arch.name]
    got = {name: answer(program, arch.audit, known[name]) for name in ERRORS}
    assert got == ERRORS
    assert answer(program, arch.audit, known["statx"]) == "kill"


@machines
def test_without_violations_every_one_of_them_is_an_error(arch: Arch) -> None:
    program = seccomp.build(PID, CHANNEL, arch=arch, violations=())
    known = CALLS[arch.name]
    assert {answer(program, arch.audit, known[name]) for name in KILLS if name in known} == {"EPERM"}


@machines
def test_the_channel_is_asked_about_first(arch: Arch) -> None:
    known, program = CALLS[arch.name], PROGRAMS[arch.name]
    steps = {name: run(program, arch.audit, known[name], [CHANNEL] * 6)[1] for name in known}
    assert sorted(steps, key=steps.__getitem__)[:2] == ["read", "write"]


@machines
@given(pid=st.integers(1, 1 << 22), channel=st.integers(3, 1023))
def test_the_packed_filter_is_the_built_one(arch: Arch, pid: int, channel: int) -> None:
    built = seccomp.build(pid, channel, arch=arch)
    assert list(struct.iter_unpack("<HBBI", seccomp.packed(pid, channel, arch=arch))) == [tuple(step) for step in built]


def test_a_machine_without_a_table_is_said_to_have_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    assert seccomp.here() is None


def test_a_thread_that_cannot_be_locked_is_named() -> None:
    code = seccomp.packed(PID, CHANNEL, arch=ARCHES["x86_64"])
    with pytest.raises(OSError, match=r"^\[Errno 3\] thread 77 did not take the filter$"):
        seccomp.install(code, arch=ARCHES["x86_64"], syscall=lambda *_: 77)
