"""A zygote and its workers behind all walls, for `test_jail.py`: a process of its own, so that pytest is not jailed.

    python locked.py '{"job": "attacks", ...}'    prints what was found as JSON

The workers are real: V8 loaded, an isolate made in the zygote and forked on its own thread, every wall up. Only the
program is replaced, by what `sandbox/attacks/native.py` has; it does its deeds on the worker's other thread, which the
filter has to bind as well.
"""

from __future__ import annotations

import _thread
import ctypes
import importlib.util
import json
import mmap
import os
import queue
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sandbox import jail, seccomp, standing, walls
from sandbox.attacks.native import CALLS, attempts, libc, make, with_python

# ---- the engine, as little of it as proves that a locked isolate works ---------------------------------------------


class _Value(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("integer", ctypes.c_int64), ("length", ctypes.c_size_t), ("kind", ctypes.c_uint8))


Callback = ctypes.CFUNCTYPE(None, ctypes.c_uint64, ctypes.POINTER(_Value))
answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
visits: list[Callable[[], None]] = []


@Callback
def answered(_: int, value: Any) -> None:
    if visits:
        visits.pop()()
    answers.put(value)


def open_engine() -> tuple[ctypes.CDLL, Path]:
    spec = importlib.util.find_spec("py_mini_racer")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    folder = Path(spec.submodule_search_locations[0])
    dll = ctypes.CDLL(str(folder / "libmini_racer.so"))
    dll.mr_init_context.restype = ctypes.c_uint64
    dll.mr_alloc_string_val.restype = ctypes.POINTER(_Value)
    dll.mr_alloc_string_val.argtypes = [ctypes.c_uint64, ctypes.c_char_p, ctypes.c_uint64, ctypes.c_uint8]
    dll.mr_eval.argtypes = [ctypes.c_uint64, ctypes.POINTER(_Value), ctypes.c_uint64]
    return dll, folder


def start_v8(dll: ctypes.CDLL, folder: Path, *, jit: bool) -> None:
    flags = "--single-threaded --max-heap-size=64" + ("" if jit else " --jitless")
    dll.mr_init_v8(flags.encode(), str(folder / "icudtl.dat").encode())


class Isolate:
    """Evaluates an expression that gives a small whole number."""

    def __init__(self, dll: ctypes.CDLL) -> None:
        self.dll, self.context = dll, dll.mr_init_context(answered)

    def send(self, expression: str) -> None:
        text = expression.encode()
        self.dll.mr_eval(self.context, self.dll.mr_alloc_string_val(self.context, text, len(text), 5), 1)

    def number(self, expression: str) -> int:
        self.send(expression)
        return answers.get().contents.integer

    def fork(self, worker: Callable[[], None]) -> int:
        """Fork on the isolate's thread: there `worker` raises its part of the walls and starts the other thread."""
        pids: list[int] = []
        alone = _thread.allocate_lock()
        alone.acquire()

        def there() -> None:
            alone.acquire()
            pid = os.fork()
            if pid == 0:
                try:
                    worker()
                except BaseException:  # noqa: BLE001  a worker must not go on as a second zygote
                    os._exit(1)
            pids.append(pid)

        visits.append(there)
        self.send("0")
        alone.release()
        answers.get()
        return pids[0]


# ---- the machinery -------------------------------------------------------------------------------------------------


def pretend(rows: list[dict[str, int | str]]) -> None:
    """Filter some calls of this process, as a container's profile does. An errno of 0 pretends success.

    Row: `call`, `errno`, and where only some arguments are meant `argument` and `value` (or `not_null`).
    """
    arch = seccomp.here()
    assert arch is not None
    step = seccomp.Instruction
    program = [step(seccomp.LOAD, 0, 0, 0)]
    for row in rows:
        answer = step(seccomp.RETURN, 0, 0, seccomp.REFUSE | int(row["errno"]))
        body = [answer]
        if "argument" in row:
            load = step(seccomp.LOAD, 0, 0, 16 + 8 * int(row["argument"]))
            test = step(seccomp.EQUAL, 0, 1, int(row["value"])) if "value" in row else step(seccomp.EQUAL, 1, 0, 0)
            body = [load, test, answer, step(seccomp.LOAD, 0, 0, 0)]
        program += [step(seccomp.EQUAL, 0, len(body), CALLS[str(row["call"])]), *body]
    program.append(step(seccomp.RETURN, 0, 0, seccomp.ALLOW))
    walls.no_new_privs()
    seccomp.install(bytearray(b"".join(struct.pack("<HBBI", *s) for s in program)), arch=arch, syscall=walls.syscall)


def become_an_ordinary_user() -> None:
    os.setgroups([])
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, 65534, 65534)
    libc.prctl(4, 1, 0, 0, 0)  # as after an exec, which is how an ordinary user would have come here


def give_up(capability: int) -> None:
    """Take one capability of root's away, as a container does."""
    held = (ctypes.c_uint32 * 8)(0x20080522, 0)
    libc.capget(ctypes.byref(held), ctypes.byref(held, 8))
    for word in (2, 3, 4):  # effective, permitted, inheritable
        held[word] &= ~(1 << capability)
    assert libc.capset(ctypes.byref(held), ctypes.byref(held, 8)) == 0


class Zygote:
    """Raises its part of the walls round this process, then forks workers that do something after theirs."""

    def __init__(self, given: dict[str, Any], dll: ctypes.CDLL, folder: Path, **cell: Any) -> None:
        self.jail = jail.Jail(**{"cpu_s": 20.0, "data_bytes": 192 << 20, "jit": given.get("jit", False)} | cell)
        self.dll, self.parent = dll, os.getppid()
        self.raised = jail.in_zygote(self.jail, parent=self.parent)
        start_v8(dll, folder, jit=self.jail.jit)
        jail.seal_code_pages(self.jail, self.raised)
        jail.before_forking(self.jail, self.raised, parent=self.parent)
        self.isolate = Isolate(dll)

    def run(
        self, attack: Callable[[jail.Raised, Isolate], object], *, before: Callable[[], object] = lambda: None
    ) -> tuple[Any, int]:
        """What the attack returned in a worker, and the worker's wait status."""
        reading, writing = os.pipe()
        me = os.getpid()

        def there() -> None:
            jail.in_worker(self.jail, self.raised, channel=writing, parent=me)
            before()
            _thread.start_new_thread(on_its_other_thread, ())

        def on_its_other_thread() -> None:
            try:
                answers.get()  # the isolate's thread is back
                jail.before_program(self.jail, self.raised)
                data = memoryview(json.dumps(attack(self.raised, self.isolate)).encode())
                while data:
                    data = data[os.write(self.jail.channel, data) :]
                os._exit(0)
            except BaseException as error:  # noqa: BLE001  whatever it is, it has to be seen
                os.write(self.jail.channel, json.dumps(f"{type(error).__name__}: {error}").encode())
                os._exit(1)

        pid = self.isolate.fork(there)
        os.close(writing)
        data = b"".join(iter(lambda: os.read(reading, 65536), b""))
        os.close(reading)
        return json.loads(data) if data else None, os.waitpid(pid, 0)[1]


def ending(status: int) -> str:
    if os.WIFSIGNALED(status):
        return signal.Signals(os.WTERMSIG(status)).name
    return f"exit {os.WEXITSTATUS(status)}"


# ---- jobs ----------------------------------------------------------------------------------------------------------


def attacks(given: dict[str, Any], dll: ctypes.CDLL, folder: Path) -> object:
    zygote = Zygote(given, dll, folder, violations=())
    groups = attempts(os.getpid(), zygote.jail.channel)

    def all_of_them(raised: jail.Raised, isolate: Isolate) -> object:
        done = {group: {what: make(call, given) for what, call, given in rows} for group, rows in groups.items()}
        return done | {"Python": with_python(), "V8": {"6 * 7": isolate.number("6 * 7")}, "walls": raised.walls}

    found, status = zygote.run(all_of_them)
    return found or ending(status)


def violations(given: dict[str, Any], dll: ctypes.CDLL, folder: Path) -> object:
    zygote = Zygote(given, dll, folder)
    calls: dict[str, int] = {name: CALLS[name] for name in seccomp.VIOLATIONS if name in CALLS}
    if (arch := seccomp.here()) is not None and arch.x32:
        calls["getpid by its x32 number"] = 0x40000000 + CALLS["getpid"]
    return {
        name: ending(zygote.run(lambda *_, number=number: make(number, (0,) * 6))[1]) for name, number in calls.items()
    }


def report(given: dict[str, Any], dll: ctypes.CDLL, folder: Path) -> object:
    """The walls as the worker says, perhaps of one that maps code of its own before the isolate."""
    zygote = Zygote(given, dll, folder)
    pages: list[mmap.mmap] = []

    def map_code() -> None:
        if given.get("maps_code"):
            pages.append(mmap.mmap(-1, 4096, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, 7))

    found, status = zygote.run(lambda raised, _: raised.walls, before=map_code)
    return {"walls": found, "ending": ending(status), "required": standing.required()}


def before_the_filter(given: dict[str, Any], dll: ctypes.CDLL, folder: Path) -> object:
    """What the kernel refuses by the other walls alone."""
    zygote = Zygote(given, dll, folder)
    name = b"\0sandbridge-test"
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(name)
    listening.listen()
    tries: dict[str, Callable[[], object]] = {
        "read a file": lambda: os.open(__file__, os.O_RDONLY),
        "read the seeds": lambda: os.open("/dev/urandom", os.O_RDONLY),
        "write the seeds": lambda: os.open("/dev/urandom", os.O_WRONLY),
        "bind TCP": lambda: socket.socket().bind(("127.0.0.1", 0)),
        "connect TCP": lambda: socket.socket().connect(("127.0.0.1", 1)),
        "connect to a socket outside": lambda: socket.socket(socket.AF_UNIX).connect(name),
        "signal the zygote": lambda: os.kill(os.getppid(), 0),
        "map code": lambda: mmap.mmap(-1, 4096, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, 7),
    }
    found: dict[str, str] = {}

    def try_all() -> None:
        for what, attempt in tries.items():
            try:
                attempt()
                found[what] = "done"
            except OSError as error:
                found[what] = walls.named(error.errno or 0)

    return zygote.run(lambda *_: found, before=try_all)[0]


def held(given: dict[str, Any], dll: ctypes.CDLL, folder: Path) -> object:
    """Leave a locked worker waiting on the given descriptor, and wait to be killed: it must go along."""
    zygote = Zygote(given, dll, folder)
    me = os.getpid()

    def there() -> None:
        jail.in_worker(zygote.jail, zygote.raised, channel=given["fd"], parent=me)
        _thread.start_new_thread(wait, ())

    def wait() -> None:
        answers.get()
        jail.before_program(zygote.jail, zygote.raised)
        os.write(zygote.jail.channel, b"%d %d\n" % (os.getpid(), zygote.isolate.number("6 * 7")))
        os.read(zygote.jail.channel, 1)
        os._exit(0)

    zygote.isolate.fork(there)
    os.close(given["fd"])
    while True:
        signal.pause()


def orphan(given: dict[str, Any], dll: ctypes.CDLL, folder: Path) -> object:
    """A worker whose parent is another one than it was told."""
    zygote = Zygote(given, dll, folder)
    pid = zygote.isolate.fork(lambda: jail.in_worker(zygote.jail, zygote.raised, channel=1, parent=1 << 22))
    return ending(os.waitpid(pid, 0)[1])


def open_descriptors() -> dict[str, bool]:
    """Descriptor -> whether it is /dev/null."""
    found: dict[str, bool] = {}
    for fd in range(200):
        try:
            found[str(fd)] = os.fstat(fd).st_rdev == os.makedev(1, 3)
        except OSError:
            continue
    return found


def descriptors(given: dict[str, Any], dll: ctypes.CDLL, folder: Path) -> object:
    """Which descriptors are open when the isolate is made, and when the filter closes: it is left out, to look."""
    strays = [os.open("/", os.O_RDONLY) for _ in range(given.get("strays", 20))]
    zygote = Zygote(given, dll, folder, channel=given.get("channel", 3))
    early: dict[str, bool] = {}
    late: dict[str, bool] = {}

    def left_open_by_an_engine() -> None:
        early.update(open_descriptors())
        os.dup(0)

    jail._lock = lambda _: late.update(open_descriptors())
    (_, landlock), _ = zygote.run(lambda raised, _: [None, raised.walls["landlock"]], before=left_open_by_an_engine)
    found, _ = zygote.run(lambda *_: [early, late], before=left_open_by_an_engine)
    del strays
    return {"early": found[0], "late": found[1], "landlock": landlock}


def groups(given: dict[str, Any], dll: ctypes.CDLL, folder: Path) -> object:
    """The groups of a worker whose host was root with some more."""
    os.setgroups([0, 27])
    zygote = Zygote(given, dll, folder)
    jail._lock = lambda _: None
    return zygote.run(lambda *_: [*os.getgroups(), *os.getresgid()])[0]


def cpu(given: dict[str, Any], dll: ctypes.CDLL, folder: Path) -> object:
    zygote = Zygote(given, dll, folder, cpu_s=0.2)

    def in_python(*_: object) -> None:
        while True:
            pass

    def in_v8(_: jail.Raised, isolate: Isolate) -> None:
        isolate.number("for (;;) {}")

    def block() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGPROF])

    return {
        "in Python": ending(zygote.run(in_python)[1]),
        "in V8": ending(zygote.run(in_v8)[1]),
        "with the timer's signal blocked": ending(zygote.run(in_python, before=block)[1]),
        "waiting": zygote.run(lambda *_: time.sleep(0.4) or "back")[0],
    }


def memory(given: dict[str, Any], dll: ctypes.CDLL, folder: Path) -> object:
    zygote = Zygote(given, dll, folder, data_bytes=64 << 20)

    def in_native(*_: object) -> int:
        taken: list[mmap.mmap] = []
        try:
            while len(taken) < 1000:
                taken.append(mmap.mmap(-1, 1 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
        except OSError:
            pass
        return len(taken)

    def in_v8(_: jail.Raised, isolate: Isolate) -> int:
        return isolate.number(
            "let n = 0; try { new ArrayBuffer(1 << 27); } catch (e) { n = e instanceof RangeError ? 1 : 2; } n"
        )

    return {
        "mapped MiB": zygote.run(in_native)[0],
        "a buffer over the limit is a RangeError": zygote.run(in_v8)[0] == 1,
    }


def main() -> None:
    given = json.loads(sys.argv[1])
    dll, folder = open_engine()
    if "ignored" in given:
        signal.signal(signal.SIGPROF, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # then nobody can be waited for
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGPROF])
    if "without_capability" in given:
        give_up(given["without_capability"])
    if given.get("user") == "nobody":
        become_an_ordinary_user()
    if given.get("pretend"):
        pretend(given["pretend"])
    found = globals()[given["job"]](given, dll, folder)
    os.write(1, json.dumps(found).encode())
    os._exit(0)  # an ordinary exit frees callbacks on the page that was sealed, and crashes


if __name__ == "__main__":
    main()
