"""What native code tries in a locked worker: ctypes in the place of a program that has broken V8.

`locked.py` runs it, and so do the tests of the jail. Every attempt is harmless where it succeeds: signals are number 0,
pointers are bad, magic numbers are wrong.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import resource
import signal
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

from sandbox import seccomp

CALLS: dict[str, int] = json.loads(Path(__file__).with_name("syscalls.json").read_text("ascii"))[
    (seccomp.here() or seccomp.ARCHES["x86_64"]).name
]
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long

buffer = ctypes.create_string_buffer(8192)
B = ctypes.addressof(buffer)
PAGE = (B + 4095) // 4096 * 4096
vector = (ctypes.c_uint64 * 2)(B, 64)
clone_arguments = (ctypes.c_uint64 * 11)(0, 0, 0, 0, signal.SIGCHLD)
VECTOR, CLONE = ctypes.addressof(vector), ctypes.addressof(clone_arguments)
AT, NONE, PRIVATE, SHARED = -100, -1, 0x22, 0x21
FILE, SHELL, NEW = b"/etc/passwd", b"/bin/sh", b"/tmp/planted"
TERMINAL, READABLE = 0x5412, 0x541B  # ioctls: type into a terminal, count what can be read

Attempt = tuple[str, str, tuple[int | bytes, ...]]  # what, the call's name, its arguments


def attempts(parent: int, channel: int) -> dict[str, list[Attempt]]:
    """Group -> attempts that this machine has a call for. All but those of `allowed` must be refused."""
    return {group: [row for row in rows if row[1] in CALLS] for group, rows in _every(parent, channel).items()}


def absent() -> dict[str, list[str]]:
    """Group -> attempts that are none here: this machine's architecture has no such call."""
    return {group: [row[0] for row in rows if row[1] not in CALLS] for group, rows in _every(0, 0).items()}


def _every(parent: int, channel: int) -> dict[str, list[Attempt]]:
    both = [("read", channel), ("write", channel)]
    # uprobe and uretprobe are missing: the kernel lets them past every filter, for its own trampolines, and ends or
    # refuses whoever makes them from anywhere else.
    simple = {
        "files": """
            open openat2 creat stat lstat newfstatat statx access faccessat faccessat2 readlink readlinkat
            getcwd chdir fchdir unlink unlinkat mkdir mkdirat rename renameat renameat2 link linkat symlink
            symlinkat chmod fchmodat fchmodat2 chown fchownat truncate mknod mknodat getdents64 statfs utimensat
            setxattr getxattr setxattrat name_to_handle_at fanotify_init inotify_init1 quotactl quotactl_fd
            lookup_dcookie swapoff file_getattr file_setattr cachestat sync syncfs fallocate
        """,
        "network": """
            bind listen accept accept4 getsockname getpeername sendto sendmsg sendmmsg recvfrom recvmsg recvmmsg
            shutdown setsockopt getsockopt
        """,
        "processes": """
            clone tkill rt_tgsigqueueinfo pidfd_send_signal process_mrelease kcmp get_robust_list wait4 waitid
            sched_setaffinity sched_setscheduler sched_setparam sched_setattr sched_getattr setpriority
            getpriority ioprio_set ioprio_get setpgid getpgid setsid getsid getppid migrate_pages move_pages
        """,
        "kernel surface": """
            umount2 fsopen fsconfig fsmount fspick move_mount open_tree open_tree_attr mount_setattr statmount
            listmount listns fchroot rseq_slice_yield
            io_uring_enter io_uring_register add_key request_key memfd_secret
            landlock_create_ruleset
            landlock_add_rule landlock_restrict_self kexec_file_load finit_module delete_module syslog acct
            swapon reboot sethostname setdomainname settimeofday clock_settime clock_adjtime adjtimex iopl
            ioperm arch_prctl vhangup uname sysinfo times membarrier map_shadow_stack mseal get_mempolicy
            set_mempolicy mbind set_mempolicy_home_node lsm_get_self_attr lsm_set_self_attr lsm_list_modules
        """,
        "own walls": """
            setgid setreuid setregid setresuid setresgid setfsuid setgroups capset capget setrlimit setitimer
            getitimer alarm rt_sigaction rt_sigsuspend rt_sigtimedwait set_tid_address getuid geteuid getgroups
            umask
        """,
        "descriptors": """
            pread64 pwrite64 readv writev preadv pwritev preadv2 pwritev2 lseek close close_range dup dup2 dup3
            fcntl flock fstat pipe2 eventfd2 signalfd4 epoll_create1 epoll_wait poll ppoll select pselect6
            timerfd_create timer_create splice vmsplice tee sendfile copy_file_range shmget shmat msgget semget
            mq_open io_setup io_submit
        """,
        "memory": """
            pkey_mprotect pkey_alloc remap_file_pages msync mincore mlock mlockall munlockall futex_waitv
            futex_wait futex_wake futex_requeue
        """,
    }
    table: dict[str, list[Attempt]] = {
        group: [(name, name, (0, 0, 0, 0, 0, 0)) for name in names.split()] for group, names in simple.items()
    }
    table["files"] += [
        ("openat", "openat", (AT, FILE, 0)),
        ("open for writing", "open", (NEW, 0o102, 0o600)),
        ("own memory as a file", "openat", (AT, b"/proc/self/mem", 2)),
        ("stat a file", "newfstatat", (AT, FILE, B, 0)),
        ("read a link", "readlinkat", (AT, b"/proc/self/exe", B, 100)),
    ]
    table["processes"] += [
        ("clone, new user namespace", "clone", (0x10000011, 0, 0, 0, 0)),
        ("clone3", "clone3", (CLONE, 88)),
        ("signal to the parent's thread", "tgkill", (parent, parent, 0)),
        ("CPU clock of the parent", "clock_gettime", (~parent << 3 | 2, B)),
        ("CPU clock of the parent, resolution", "clock_getres", (~parent << 3 | 2, B)),
        ("CPU clock of the parent, sleep", "clock_nanosleep", (~parent << 3 | 2, 0, B, 0)),
        ("affinity of the parent", "sched_getaffinity", (parent, 128, B)),
        ("scheduler of the parent", "sched_getscheduler", (parent,)),
        ("limits of the parent", "prlimit64", (parent, 7, 0, B)),
    ]
    table["own walls"] += [
        ("raise a limit", "prlimit64", (0, resource.RLIMIT_DATA, B, 0)),
        *((f"prctl {option}", "prctl", (option, 0, 0, 0, 0)) for option in (1, 4, 22, 24, 28, 35, 38, 47, 59, 65)),
        ("prctl, a tracer of its own", "prctl", (0x59616D61, -1, 0, 0, 0)),
    ]
    table["descriptors"] += [
        *((f"{name} {fd}", name, (fd, B, 1)) for name, own in both for fd in range(-1, 12) if fd != own),
        ("hand a descriptor over", "sendmsg", (channel, B, 0)),
        ("type into a terminal", "ioctl", (0, TERMINAL, B)),
        ("count what can be read", "ioctl", (channel, READABLE, B)),
    ]
    table["memory"] += [
        ("map a descriptor", "mmap", (0, 4096, 1, 2, channel, 0)),
        ("map, writable and executable", "mmap", (0, 4096, 7, PRIVATE, NONE, 0)),
        ("map, executable", "mmap", (0, 4096, 5, PRIVATE, NONE, 0)),
        ("map, shared: outside RLIMIT_DATA", "mmap", (0, 4096, 3, SHARED, NONE, 0)),
        ("map, huge", "mmap", (0, 2 << 20, 3, PRIVATE | 0x40000, NONE, 0)),
        ("map, locked", "mmap", (0, 4096, 3, PRIVATE | 0x2000, NONE, 0)),
        ("map, growing", "mmap", (0, 4096, 3, PRIVATE | 0x100, NONE, 0)),
        ("make executable", "mprotect", (PAGE, 4096, 5)),
        ("make writable and executable", "mprotect", (PAGE, 4096, 7)),
        ("futex, priority inheritance", "futex", (B, 6, 0, 0)),
        ("futex, requeue with inheritance", "futex", (B, 12, 1, 1, B, 0)),
    ]
    zeros = (0, 0, 0, 0, 0, 0)
    table["violations, answered"] = [(name, name, zeros) for name in seccomp.VIOLATIONS if name != "vfork"]
    table["violations, answered"] += [
        ("run a shell", "execve", (SHELL, 0, 0)),
        ("signal to the parent", "kill", (parent, 0)),
        ("signal to everyone", "kill", (-1, 0)),
        ("read the parent's memory", "process_vm_readv", (parent, VECTOR, 1, VECTOR, 1, 0)),
        ("trace the parent", "ptrace", (16, parent, 0, 0)),
        *((f"socket of family {family}", "socket", (family, kind, 0)) for family, kind in FAMILIES),
        *((f"unshare {name}", "unshare", (flag,)) for name, flag in (("user", 0x10000000), ("net", 0x40000000))),
    ]
    table["allowed"] = [
        ("map memory", "mmap", (0, 4096, 3, PRIVATE, NONE, 0)),
        ("wake a futex", "futex", (B, 1, 0, 0)),
        ("own process id", "getpid", ()),
        ("name the thread", "prctl", (15, B, 0, 0, 0)),
        ("own CPU clock", "clock_gettime", (2, B)),
    ]
    return table


FAMILIES = ((1, 1), (2, 1), (2, 2), (10, 1), (16, 3), (17, 3), (38, 5), (40, 1))  # unix, inet, netlink, packet, ...


def make(call: str | int, arguments: tuple[int | bytes, ...]) -> str:
    """Make one system call: `done`, or the name of its errno."""
    me = os.getpid()
    converted = [ctypes.c_char_p(x) if isinstance(x, bytes) else ctypes.c_void_p(x) for x in arguments]
    number = call if isinstance(call, int) else CALLS[call]
    result = libc.syscall(ctypes.c_long(number), *converted)
    if os.getpid() != me:
        os._exit(0)  # a fork got through: the parent reports it
    return "done" if result != -1 else errno.errorcode[ctypes.get_errno()]


def with_python() -> dict[str, str]:
    """The same attacker with Python's own means."""
    tries: dict[str, Callable[[], object]] = {
        "open a file": lambda: os.open(FILE, os.O_RDONLY),
        "list a folder": lambda: os.listdir("/"),  # noqa: PTH208  # the call itself is the attack
        "fork": os.fork,
        "run a command": lambda: subprocess.run(["/usr/bin/id"], check=False),
        "start a thread": lambda: threading.Thread(target=int).start(),
    }
    found: dict[str, str] = {}
    for what, attempt in tries.items():
        try:
            attempt()
            found[what] = "done"
        except (OSError, RuntimeError) as error:
            found[what] = type(error).__name__
    return found
