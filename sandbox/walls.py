"""How each wall of the Linux jail is raised, one function a wall. `jail.py` says which, when, and what is reported.

A function returns when its wall stands, having looked, and raises `NoWall` with the reason or the `OSError` of the call
that failed. Where the C library has a name for a call it is used; the rest have one number on every machine.
Order, and what survives fork, exec and a change of user, is `jail.py`'s business.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import math
import mmap
import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

if sys.platform != "win32":  # which has none, and where this module must still import
    import resource

if TYPE_CHECKING:
    from collections.abc import Iterable

NOBODY: Final = 65534  # the user and group that own nothing; also what a number outside a user namespace looks like


class NoWall(Exception):
    """A wall does not stand; the text is the reason, for an operator."""


_ARGUMENTS: Final = {"prctl": 5, "syscall": 6, "capget": 2, "capset": 2, "unshare": 1, "mprotect": 3}


@functools.cache
def _libc() -> ctypes.CDLL:
    library = ctypes.CDLL(None, use_errno=True)
    for function, count in _ARGUMENTS.items():
        getattr(library, function).argtypes = [ctypes.c_long] * count
    library.syscall.restype = ctypes.c_long
    return library


def named(number: int) -> str:
    """The name of an errno, as operators search for it."""
    return errno.errorcode.get(number, f"errno {number}")


def _call(function: str, *arguments: int, says: str = "") -> int:
    """Call a function of the C library that answers -1 and sets errno when it fails."""
    answer: int = getattr(_libc(), function)(*arguments)
    if answer == -1:
        raise OSError(ctypes.get_errno(), says or function)
    return answer


def syscall(name: str, number: int, *arguments: int) -> int:
    """Make a system call with up to five arguments, one that the C library may not have. Its error has the name."""
    return _call("syscall", number, *arguments, *(0,) * (5 - len(arguments)), says=name)


_PDEATHSIG, _GET_PDEATHSIG, _GET_DUMPABLE, _DUMPABLE, _CAPBSET_DROP, _SECUREBITS = 1, 2, 3, 4, 24, 28
_NO_NEW_PRIVS, _GET_NO_NEW_PRIVS, _MDWE, _GET_MDWE = 38, 39, 65, 66


def _prctl(option: int, *arguments: int) -> int:
    return _call("prctl", option, *arguments, *(0,) * (4 - len(arguments)))


# ---- inherited by everything that is forked later ----------------------------------------------------------------


def no_new_privs() -> None:
    """No exec gives privileges any more; without privileges the kernel takes a filter from such a process only."""
    _prctl(_NO_NEW_PRIVS, 1)
    if _prctl(_GET_NO_NEW_PRIVS) != 1:
        raise NoWall("the kernel did not keep it")


_NAMESPACES: Final = {
    "user": 0x10000000,
    "net": 0x40000000,
    "ipc": 0x08000000,
    "uts": 0x04000000,
    "cgroup": 0x02000000,
    "mount": 0x00020000,
}
_WHY_NOT: Final = {
    errno.EPERM: "an AppArmor or container profile forbids them",
    errno.EINVAL: "this process has more than one thread, or the kernel has no such namespace",
    errno.ENOSPC: "the limit in /proc/sys/user is reached",
    errno.ENOSYS: "the kernel has none",
}


def namespaces(wanted: tuple[str, ...]) -> None:
    """Leave the host's namespaces, as many of the wanted as are to be had. Needs a process with one thread.

    Who may, takes them directly: a user namespace would leave root root in the kernel's eyes, and keep it from becoming
    nobody, which is the stronger wall. Others, and a root that cannot change its user, take a user namespace first.
    Its maps must be written while the process is dumpable: afterwards they belong to root.
    """
    refused: dict[str, int] = {}
    held = capabilities_held()
    if not held & 1 << _CAP_SYS_ADMIN and (os.geteuid() != 0 or not held >> _CAP_SETUID & 1):
        try:
            _enter_user_namespace()
        except OSError as error:
            why = error.errno or 0
            raise NoWall(f"no user namespace: {named(why)} ({_WHY_NOT.get(why, 'see unshare(2)')})") from error
    for kind in wanted:
        try:
            _call("unshare", _NAMESPACES[kind])
        except OSError as error:
            refused[kind] = error.errno or 0
    if refused:
        got = [kind for kind in wanted if kind not in refused]
        why = next(iter(refused.values()))
        raise NoWall(
            f"got {', '.join(got) or 'none'}; missing {', '.join(refused)}: "
            f"{named(why)} ({_WHY_NOT.get(why, 'see unshare(2)')})"
        )


def _enter_user_namespace() -> None:
    uid, gid = os.geteuid(), os.getegid()
    _call("unshare", _NAMESPACES["user"])
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        Path("/proc/self", name).write_text(text, "ascii")


_CAP_KILL, _CAP_SETGID, _CAP_SETUID, _CAP_SYS_ADMIN = 5, 6, 7, 21
_CAPABILITY_VERSION: Final = 0x20080522  # version 3 of linux/capability.h: two words each
_NO_ROOT_NO_FIXUP_NO_RAISE_ALL_LOCKED: Final = 0xEF  # every securebit but KEEP_CAPS, each with its lock


class _Capabilities(ctypes.Structure):
    _fields_ = (
        ("version", ctypes.c_uint32),
        ("pid", ctypes.c_int),
        ("words", ctypes.c_uint32 * 6),  # effective, permitted, inheritable; then their upper halves
    )


def _capability_call(function: str, held: _Capabilities) -> None:
    address = ctypes.addressof(held)
    _call(function, address, address + _Capabilities.words.offset)


def capabilities_held() -> int:
    """The effective set of the calling thread, as bits."""
    held = _Capabilities(_CAPABILITY_VERSION, 0)
    _capability_call("capget", held)
    return held.words[0] | held.words[3] << 32


def lock_capabilities() -> None:
    """Empty the bounding set and lock the rules by which root gets capabilities. Not a wall but a help to one.

    Needs a capability, so it comes before the change of user. Where it fails, no_new_privs has the same effect.
    """
    with contextlib.suppress(OSError):  # EINVAL past the last capability, EPERM where none may be dropped
        for capability in range(64):
            _prctl(_CAPBSET_DROP, capability)
    with contextlib.suppress(OSError):
        _prctl(_SECUREBITS, _NO_ROOT_NO_FIXUP_NO_RAISE_ALL_LOCKED)


def drop_capabilities() -> None:
    """Give up every capability of the calling thread; the ambient set follows the others."""
    _capability_call("capset", _Capabilities(_CAPABILITY_VERSION, 0))
    held = _Capabilities(_CAPABILITY_VERSION, 0)
    _capability_call("capget", held)
    if any(held.words):
        raise NoWall("the kernel did not take them away")
    if _prctl(_GET_NO_NEW_PRIVS) != 1:
        raise NoWall("an exec could give them back: no_new_privs does not stand")


def become_nobody(*, started_as_root: bool) -> None:
    """Give up root: user, group and supplementary groups. An ordinary user stays who it is, for it cannot change.

    Clears the parent-death signal, so `parent_death` comes again after it. All of it or nothing: a worker of another
    user that the host may not signal could be neither killed nor taken along.
    """
    if not started_as_root:
        return
    names = {"CAP_KILL": _CAP_KILL, "CAP_SETGID": _CAP_SETGID, "CAP_SETUID": _CAP_SETUID}
    held = capabilities_held()
    missing = [name for name, number in names.items() if not held >> number & 1]
    if missing:
        reason = "to leave root" if missing != ["CAP_KILL"] else "for the host to end a process of another user"
        raise NoWall(f"still root: {', '.join(missing)} is missing, which it takes {reason}")
    try:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    except OSError as error:
        raise NoWall(f"still root: {named(error.errno or 0)} on becoming {NOBODY} (is it mapped here?)") from error
    if {*os.getresuid(), *os.getresgid(), *os.getgroups()} != {NOBODY}:
        raise NoWall("the kernel did not keep the new user")


def not_dumpable() -> None:
    """No core file, not even through a pipe (RLIMIT_CORE does not stop that), and no ptrace by the same user."""
    _prctl(_DUMPABLE, 0)
    if _prctl(_GET_DUMPABLE) != 0:
        raise NoWall("the kernel did not keep it")


# ---- written and executed ----------------------------------------------------------------------------------------


def _writable_code(maps: bytes) -> list[tuple[int, int]]:
    """Spans of memory that can be written and executed, from the text of /proc/<pid>/maps."""
    if b" rwx" not in maps:
        return []  # as it should be, without taking hundreds of lines apart
    rows = [line.split(maxsplit=2) for line in maps.splitlines()]
    return [(int(a, 16), int(b, 16)) for a, b in (row[0].split(b"-") for row in rows if row[1].startswith(b"rwx"))]


_CALLBACK_PAGES: Final = 1 << 20  # larger spans are V8's, which knows what it does to them


def seal_code_pages() -> None:
    """Take the write bit off the page on which ctypes keeps its callbacks; none can be made or freed afterwards."""
    for start, end in _writable_code(_maps()):
        if end - start <= _CALLBACK_PAGES:
            _call("mprotect", start, end - start, mmap.PROT_READ | mmap.PROT_EXEC)


def never_writable_code() -> bool:
    """Have the kernel refuse such pages from now on, in this process and all that it forks (MDWE, kernel 6.3).

    Returns:
        Whether it does. It does not look for pages that are there already: `no_writable_code`, once, after it.
    """
    with contextlib.suppress(OSError):
        _prctl(_MDWE, 1)
        return _prctl(_GET_MDWE) & 1 == 1
    return False


def no_writable_code(maps_fd: int | None = None) -> None:
    """Look whether any page can be written and executed.

    Args:
        maps_fd: /proc/self/maps, opened before landlock; None opens it.
    """
    size = sum(end - start for start, end in _writable_code(_maps(maps_fd)))
    if size:
        raise NoWall(f"{size >> 10} KiB can be written and executed")


def _maps(fd: int | None = None) -> bytes:
    try:
        if fd is None:
            return Path("/proc/self/maps").read_bytes()
        return b"".join(iter(lambda: os.read(fd, 1 << 16), b""))
    except OSError as error:
        raise NoWall(f"/proc/self/maps cannot be read: {named(error.errno or 0)}") from error


# ---- of one process ----------------------------------------------------------------------------------------------


def parent_death() -> None:
    """SIGKILL when the parent *thread* ends. Fork and a change of user clear it."""
    _prctl(_PDEATHSIG, signal.SIGKILL)
    armed = ctypes.c_int()
    _prctl(_GET_PDEATHSIG, ctypes.addressof(armed))
    if armed.value != signal.SIGKILL:
        raise NoWall("the kernel did not keep it")


def close_all_but(kept: set[int]) -> None:
    """Close every other descriptor."""
    first = 0
    for last in [*(fd - 1 for fd in sorted(kept)), 0xFFFFFFFF]:
        if first <= last:
            try:
                syscall("close_range", _CLOSE_RANGE, first, last, 0)
            except OSError:  # a kernel before 5.9, or a container's profile that does not know the call
                for fd in [fd for fd in _may_be_open() if first <= fd <= last]:
                    os.closerange(fd, fd + 1)  # which does not mind the descriptor of the listing, closed by now
        first = last + 2


_CLOSE_RANGE: Final = 436  # one number on every machine


def _may_be_open() -> Iterable[int]:
    try:
        return [int(name) for name in os.listdir("/proc/self/fd")]  # noqa: PTH208  # numbers, not paths
    except OSError:  # no /proc, or landlock is in force
        return range(resource.getrlimit(resource.RLIMIT_NOFILE)[1])


def limit(name: str, value: int) -> None:
    """Set RLIMIT_<name> of this process, soft and hard. One that is lower already stays."""
    which = getattr(resource, f"RLIMIT_{name}")
    hard = resource.getrlimit(which)[1]
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    try:
        resource.setrlimit(which, (value, value))
    except ValueError as error:  # which is how Python says EPERM and EINVAL here
        raise NoWall(f"RLIMIT_{name}: {error}") from error
    if resource.getrlimit(which) != (value, value):
        raise NoWall(f"RLIMIT_{name}: the kernel did not keep it")


def cpu_backstop(cpu_s: float) -> None:
    """SIGKILL after the CPU seconds of now and `cpu_s`, rounded up: stands behind `cpu_timer`, which can be blocked."""
    limit("CPU", math.ceil(time.process_time() + cpu_s) + 1)


def cpu_timer(cpu_s: float) -> None:
    """SIGPROF, which ends the process, after `cpu_s` CPU seconds of all threads; waiting is free."""
    signal.setitimer(signal.ITIMER_PROF, cpu_s)
    if signal.getitimer(signal.ITIMER_PROF)[0] <= 0:
        raise NoWall("the CPU timer did not start")


def signals_as_new() -> None:
    """Undo what a host ignores or blocks, for exec and fork pass that on.

    An ignored SIGPROF would be no CPU limit, and an ignored SIGCHLD leaves nothing to wait for: no usage, no status.
    Python makes an exception of SIGINT, which then reads like a worker that gave up.
    """
    for number in (signal.SIGPROF, signal.SIGCHLD, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


_MAP_NORESERVE: Final = 0x4000  # a probe must fail for the limit, not for what the machine has left


def memory_limit(status_fd: int, allowance: int) -> None:
    """RLIMIT_DATA: what is mapped now and the allowance. Counts private writable memory, touched or not.

    Relative, and after the isolate exists, for V8's code range counts. Then looks: some kernels only pretend.
    """
    if status_fd < 0:
        raise NoWall("/proc/self/status cannot be opened, so nobody knows what is mapped now")
    mapped_kib = int(os.pread(status_fd, 1 << 16, 0).partition(b"VmData:")[2].split(maxsplit=1)[0])
    limit("DATA", (mapped_kib << 10) + allowance)
    size = allowance + (1 << 20)
    try:
        mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE).close()
    except OSError:
        return
    raise NoWall("RLIMIT_DATA is set, but the kernel does not keep to it")
