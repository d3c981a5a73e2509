"""The jail: which walls there are, in which order they go up, and which of them stand.

Each wall is tried, looked at, and reported: a wall that cannot be raised never stops the rest, and never goes unsaid.
Whoever reads the report decides (`standing.py`). The order is part of the jail:

    zygote, one thread      in_zygote        no_new_privs, parent-death signal, namespaces
                            (V8 and every ctypes callback are made)
                            seal_code_pages  no page stays writable and executable
                            before_forking   user, capabilities, limits, not dumpable; landlock's rules are prepared
                            (the isolate with its thread, the realm; fork, on that thread)
    worker, one thread      in_worker        parent-death signal, descriptors, CPU limit, landlock
                            (the thread that drives the isolate)
                            before_program   code pages looked at, memory limit, CPU timer, the filter of system calls
                            (only now does program text arrive)

What fork passes on is done once, in the zygote, which then has no more rights than its workers but files and forks;
what the kernel keeps by thread comes before there is a second one. Fork does not pass on the parent-death signal, and
landlock's scopes are to part one worker from the next: those are the worker's, while it has one thread. Nothing may be
imported, opened or started after `before_program`, and the process must end with `os._exit`.
A process that does not fork calls all five in the same order, and makes its isolate before the last.

On other systems than Linux every wall but `process` says that it is not there.
"""

from __future__ import annotations

import functools
import json
import os
import platform
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from sandbox import landlock, seccomp, walls
from sandbox.walls import NoWall

if sys.platform != "win32":  # which has none, and where this module must still import
    import fcntl

if TYPE_CHECKING:
    from collections.abc import Callable

WALLS: Final[dict[str, str]] = {
    "process": "the program has a process of its own, with no descriptor but its channel",
    "no_new_privs": "no exec gives privileges",
    "parent_death": "the process dies with its parent",
    "namespaces": "no network, no IPC, no host names or mounts in reach",
    "landlock": "the kernel refuses every file, TCP and signals outside",
    "rlimits": "bounds on CPU seconds, processes, descriptors, files, locked memory",
    "uid": "the process does not run as root",
    "capabilities": "the process has none of root's powers",
    "dumpable": "no core file, no tracing by other processes of the user",
    "seccomp": "a filter refuses all but some 30 system calls",
    "memory_limit": "the kernel bounds the process's private memory",
    "code_pages": "no memory is writable and executable",
}
"""Every wall, in the order of the report, with what it says."""

NAMESPACES: Final = ("net", "ipc", "uts", "cgroup", "mount")  # no pid: its first child would be every spare's init

_ON_LINUX: Final = sys.platform == "linux"
_NOT_YET: Final = "not raised yet"
_ORPHANED: Final = 70  # exit status of a process whose parent was gone before it could ask to die with it


@dataclass(frozen=True, kw_only=True)
class Jail:
    """What to raise. Plain data: the host makes it, zygote and worker read it.

    Attributes:
        cpu_s: CPU seconds that a program may take, counted from the end of `before_program`.
        data_bytes: Private memory that it may map on top of what is mapped then: `memory_plan(...).data_bytes`.
        jit: V8's compilers are on, so `code_pages` cannot stand.
        channel: Number of the one descriptor that a worker reads and writes; 0 to 2 are /dev/null.
        namespaces: Which to leave behind, of net, ipc, uts, cgroup, mount.
        violations: System calls that end the worker at once; the rest of the unnamed ones are refused.
    """

    cpu_s: float
    data_bytes: int
    jit: bool = False
    channel: int = 3
    namespaces: tuple[str, ...] = NAMESPACES
    violations: tuple[str, ...] = seccomp.VIOLATIONS

    def __post_init__(self) -> None:
        if self.cpu_s <= 0 or self.data_bytes <= 0:
            raise ValueError(f"Jail needs cpu_s and data_bytes above 0, not {self.cpu_s} and {self.data_bytes}")
        if self.channel < 3:
            raise ValueError(
                f"Jail.channel={self.channel} is a standard stream, which a worker has on /dev/null: use 3"
            )
        if unknown := [kind for kind in self.namespaces if kind not in NAMESPACES]:
            raise ValueError(
                f"Jail.namespaces has {', '.join(unknown)}, but only {', '.join(NAMESPACES)} are to be left"
            )
        if unknown := [name for name in self.violations if name not in seccomp.NUMBERS]:
            raise ValueError(
                f"Jail.violations has {', '.join(unknown)}, whose numbers sandbox/seccomp.py does not have"
            )


@dataclass(frozen=True)
class MemoryPlan:
    """Three bounds on one worker's memory, each above the one before: the first that is met decides.

    Attributes:
        heap_bytes: V8's `--max-heap-size`: decisive for what the program makes of objects and strings.
        watchdog_bytes: Growth of resident memory since `Ready` at which the host kills.
        data_bytes: `Jail.data_bytes`, the kernel's backstop, which works when the host is slow or gone.
    """

    heap_bytes: int
    watchdog_bytes: int
    data_bytes: int


def memory_plan(memory_bytes: int) -> MemoryPlan:
    """Derive the three bounds from `Limits.memory_bytes`."""
    mib = 1 << 20
    return MemoryPlan(
        heap_bytes=memory_bytes,
        # Room over a full heap for pages that V8 has not given back, and for JSON text and ICU, which are outside it.
        watchdog_bytes=memory_bytes + memory_bytes // 4 + 16 * mib,
        # Counts what is mapped, not what is resident, so it has to be well above: met first, it drives rarely tested
        # out-of-memory paths (of ICU, for one) into a crash, where the watchdog would have said `memory_bytes`.
        data_bytes=2 * memory_bytes + 64 * mib,
    )


@dataclass
class Raised:
    """How far one process is, forked along with it: `walls` is the report, the rest is between the steps.

    Attributes:
        walls: Wall -> why it does not stand; an empty text when it stands.
    """

    walls: dict[str, str] = field(default_factory=lambda: dict.fromkeys(WALLS, _NOT_YET))
    faults: dict[str, list[str]] = field(default_factory=lambda: {wall: [] for wall in WALLS})
    started_as_root: bool = False
    code_is_sealed: bool = False
    ruleset: int = -1
    status: int = -1
    maps: int = -1

    def attempt(self, wall: str, *steps: Callable[[], object], complete: bool = True) -> None:
        """Take all steps of a wall, whether or not one fails, and report with the last of its parts."""
        for step in steps:
            try:
                step()
            except NoWall as reason:
                self.faults[wall].append(str(reason))
            except OSError as error:
                self.faults[wall].append(f"{walls.named(error.errno or 0)} ({error.strerror})")
        if complete:
            self.walls[wall] = "; ".join(self.faults[wall])
            self.faults[wall] = []  # a worker raises again what its zygote had, and then its own result counts


def elsewhere() -> dict[str, str]:
    """The report of a system that has no such walls."""
    return {wall: "" if wall == "process" else f"no such wall on {platform.system()}" for wall in WALLS}


def _stay_with(parent: int) -> None:
    """Arm the parent-death signal; end here if the parent ended before it was armed."""
    walls.parent_death()
    if os.getppid() != parent:
        os._exit(_ORPHANED)


def _not_asked_for() -> None:
    raise NoWall("namespaces were not asked for")


def in_zygote(jail: Jail, *, parent: int) -> Raised:
    """First, while the process has one thread and before V8 is loaded.

    Args:
        jail: What to raise.
        parent: Process id of the host. If it is not the parent any more, this process ends with status 70.
    """
    if not _ON_LINUX:
        return Raised(walls=elsewhere())
    raised = Raised(started_as_root=0 in os.getresuid())  # asked here: in a user namespace numbers may lie
    raised.attempt("no_new_privs", walls.no_new_privs)
    raised.attempt("parent_death", functools.partial(_stay_with, parent))
    left = functools.partial(walls.namespaces, jail.namespaces) if jail.namespaces else _not_asked_for
    raised.attempt("namespaces", left)
    return raised


def seal_code_pages(jail: Jail, raised: Raised) -> None:
    """Once V8 and every ctypes callback are made; afterwards none can be made, and an ordinary exit crashes."""
    if not _ON_LINUX:
        return
    raised.attempt("code_pages", walls.seal_code_pages, complete=False)
    if not jail.jit and walls.never_writable_code():
        raised.code_is_sealed = True  # and stays so in all workers: looking once is enough
        raised.attempt("code_pages", walls.no_writable_code)


def before_forking(jail: Jail, raised: Raised, *, parent: int) -> None:
    """Last in the zygote: give up, once for all workers, what no worker may have.

    Afterwards the zygote is nobody, where the host is root: what it must read, it has read.

    Args:
        parent: As for `in_zygote`: a change of user disarms the parent-death signal.
    """
    if not _ON_LINUX:
        return
    raised.attempt("landlock", lambda: _prepare_landlock(jail, raised), complete=False)
    walls.lock_capabilities()
    limits = [functools.partial(walls.limit, name, 0) for name in ("CORE", "FSIZE", "MEMLOCK", "MSGQUEUE")]
    raised.attempt("rlimits", walls.signals_as_new, *limits, complete=False)
    raised.attempt("uid", functools.partial(walls.become_nobody, started_as_root=raised.started_as_root))
    raised.attempt("capabilities", walls.drop_capabilities)
    raised.attempt("dumpable", walls.not_dumpable)
    raised.attempt("parent_death", functools.partial(_stay_with, parent))
    if (arch := seccomp.here()) is not None:
        seccomp.packed(0, jail.channel, arch=arch, violations=jail.violations)  # assembled once, for all workers


def _prepare_landlock(jail: Jail, raised: Raised) -> None:
    made = landlock.rules()
    raised.ruleset = fcntl.fcntl(made, fcntl.F_DUPFD_CLOEXEC, jail.channel + 1)  # where no channel will be put
    os.close(made)


def in_worker(jail: Jail, raised: Raised, *, channel: int, parent: int) -> None:
    """First in a worker, while it has one thread: landlock binds only that and those that it starts.

    Args:
        channel: The descriptor to keep; it becomes number `jail.channel`, and all others are closed.
        parent: Process id of the zygote (of the host, where nothing forks). If it is gone, this process ends.
    """
    if not _ON_LINUX:
        return
    raised.attempt("parent_death", functools.partial(_stay_with, parent))
    raised.attempt("process", lambda: _only_channel(jail, raised, channel), complete=False)
    raised.attempt("rlimits", functools.partial(walls.cpu_backstop, jail.cpu_s), complete=False)
    rules_hold = [functools.partial(landlock.restrict, raised.ruleset)] if raised.ruleset >= 0 else []
    raised.attempt("landlock", *rules_hold)


def _only_channel(jail: Jail, raised: Raised, channel: int) -> None:
    if channel != jail.channel:
        os.dup2(channel, jail.channel, inheritable=False)
    null = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(null, stream)
    raised.status = _open("/proc/self/status")  # here, because landlock is to come
    raised.maps = -1 if raised.code_is_sealed else _open("/proc/self/maps")
    walls.close_all_but({0, 1, 2, jail.channel, raised.ruleset, raised.status, raised.maps} - {-1})


def _open(path: str) -> int:
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return -1


def before_program(jail: Jail, raised: Raised) -> None:
    """Last in a worker: limits that count from here, and the filter on all its threads. `raised.walls` is complete."""
    if not _ON_LINUX:
        return
    if not raised.code_is_sealed:
        raised.attempt("code_pages", lambda: walls.no_writable_code(raised.maps))
        if jail.jit and raised.walls["code_pages"]:
            raised.walls["code_pages"] += ": JIT was asked for"
    raised.attempt("memory_limit", lambda: walls.memory_limit(raised.status, jail.data_bytes))
    raised.attempt("process", lambda: walls.close_all_but({0, 1, 2, jail.channel}))
    raised.attempt(
        "rlimits",
        functools.partial(walls.limit, "NPROC", 0),
        functools.partial(walls.limit, "NOFILE", 0),
        functools.partial(walls.cpu_timer, jail.cpu_s),
    )
    raised.attempt("seccomp", lambda: _lock(jail))


def _lock(jail: Jail) -> None:
    arch = seccomp.here()
    if arch is None:
        raise NoWall(f"no table of system calls for {platform.machine()}")
    code = seccomp.packed(os.getpid(), jail.channel, arch=arch, violations=jail.violations)
    seccomp.install(code, arch=arch, syscall=walls.syscall)
    if os.getppid() != -1:  # looks: a harmless call that the filter refuses
        raise NoWall("the filter is in force, but a refused call went through")


# ---- without a sandbox ---------------------------------------------------------------------------------------------

_PROBE: Final = "import sys; sys.path[:] = sys.argv[1:]; from sandbox import jail; jail.probe()"


def available() -> dict[str, str]:
    """Which walls stand here, found by raising them all round a process of its own, without V8. Takes a Python's start.

    Returns:
        Wall -> why it would not stand. `code_pages` is as for a sandbox without JIT.
    """
    if not _ON_LINUX:
        return elsewhere()
    import subprocess  # with it comes threading, some of which runs in every fork: not in a zygote

    command = [sys.executable, "-I", "-c", _PROBE, *sys.path]
    null, pipe = subprocess.DEVNULL, subprocess.PIPE
    try:
        ended = subprocess.run(  # noqa: S603  # the interpreter that runs this, and our own words
            command, check=False, env={}, timeout=60, stdin=null, stdout=pipe, stderr=null
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return dict.fromkeys(WALLS, f"the probe could not run: {error}")
    if not ended.stdout:
        return dict.fromkeys(WALLS, f"the probe ended with status {ended.returncode}")
    return json.loads(ended.stdout)


def probe() -> None:
    """Raise every wall round this process, write the report to standard output, and end. For `available`."""
    jail, parent = Jail(cpu_s=10, data_bytes=64 << 20), os.getppid()
    raised = in_zygote(jail, parent=parent)
    seal_code_pages(jail, raised)
    before_forking(jail, raised, parent=parent)
    in_worker(jail, raised, channel=1, parent=parent)
    before_program(jail, raised)
    os.write(jail.channel, json.dumps(raised.walls).encode())
    os._exit(0)  # the sealed page makes an ordinary exit crash
