"""V8, driven through mini-racer's C ABI with strings only: the one file that knows it.

What never happens here, because each was seen to crash, hang or forge (mini-racer 0.14.1): its Python object API on
what a program made, its `MiniRacer` class (whose timer shim cannot be removed from a realm), Python callables in a
realm, and writing to an object that a program can reach. The realm gives one private object with accessors; a step is
one write to it (replies in, microtasks drain) and one read (wave out).
"""

from __future__ import annotations

import _thread  # the small half of threading, whose own half would run in every fork
import ctypes
import hashlib
import importlib.util
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sandbox.errors import EngineUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable

VERSION: Final = "14.4.258.23"  # what mini-racer 0.14.1 carries; another one is refused until its globals were reviewed
STACK_KIB: Final = 700  # of the isolate's thread; deep recursion is then a RangeError long before the guard page

_NULL, _BOOL, _INTEGER, _DOUBLE, _STRING, _UNDEFINED = 1, 2, 3, 4, 5, 11
_ERRORS = range(200, 207)


class _Union(ctypes.Union):
    _fields_ = (("pointer", ctypes.c_void_p), ("integer", ctypes.c_int64), ("double", ctypes.c_double))


class _Value(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("value", _Union), ("length", ctypes.c_size_t), ("kind", ctypes.c_uint8))


_Pointer = ctypes.POINTER(_Value)
_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_uint64, _Pointer)


class _Answer:
    """What the isolate's thread hands to the one that drives it: one answer at a time."""

    def __init__(self) -> None:
        self._raw: Any = None
        self._arrived = _thread.allocate_lock()
        self._arrived.acquire()

    def put(self, raw: Any) -> None:
        self._raw = raw
        self._arrived.release()

    def get(self) -> Any:
        self._arrived.acquire()
        return self._raw


_answer = _Answer()
_guest: list[Callable[[], None]] = []  # what the isolate's thread has been lent for


@_CALLBACK
def _answered(call_id: int, raw: Any) -> None:
    """The one native callback of the process; made at import, before the page that holds it is sealed."""
    if _guest:
        _guest.pop()()
    _answer.put(raw)


def forked() -> None:
    """First in a fork: forget the thread that waits for an answer there and does not exist here."""
    global _answer
    _answer = _Answer()


class JSError(Exception):
    """V8 reported an exception. The text is the program's: treat it as such."""


class Handle:
    """A value that stays in the isolate. Python never looks inside."""

    __slots__ = ("raw",)

    def __init__(self, raw: Any) -> None:
        self.raw = raw


def flags(*, heap_bytes: int, jit: bool) -> list[str]:
    """V8's flags. It drops every flag after one that it does not know, in silence: `Isolate.check` finds out."""
    given = ["--single-threaded", "--disallow-code-generation-from-strings"]
    given += [f"--max-heap-size={heap_bytes >> 20}", f"--stack-size={STACK_KIB}"]
    return given if jit else [*given, "--jitless"]


def load(v8_flags: list[str]) -> ctypes.CDLL:
    """Load the library and initialise V8, once per process.

    Raises:
        EngineUnavailable: There is no library for this platform, or not the version that this file drives.
    """
    suffix = {"darwin": "dylib", "win32": "dll"}.get(sys.platform, "so")
    name = "mini_racer.dll" if sys.platform == "win32" else f"libmini_racer.{suffix}"
    spec = importlib.util.find_spec("py_mini_racer")  # not imported: it would load asyncio
    folder = Path(next(iter(spec.submodule_search_locations or ()), "")) if spec else Path()
    library = folder / name
    if spec is None or not library.exists():
        raise EngineUnavailable(
            f"V8 is missing: no {name} for {sys.platform} ({_machine()}). Install `mini-racer==0.14.1` as a wheel "
            "(it has wheels for Linux x86_64 and aarch64, macOS and Windows)"
        )
    try:
        dll = ctypes.CDLL(str(library))
    except OSError as error:
        raise EngineUnavailable(
            f"V8 cannot be loaded on {sys.platform} ({_machine()}): {error}. If a library such as libatomic is named, "
            "install it; if the address space is limited (ulimit -v), lift that: V8 reserves about 1.1 TB"
        ) from error
    context, pointer = ctypes.c_uint64, _Pointer
    for function, arguments, result in (
        ("mr_init_v8", [ctypes.c_char_p, ctypes.c_char_p], None),
        ("mr_init_context", [_CALLBACK], context),
        ("mr_free_context", [context], None),
        ("mr_eval", [context, pointer, ctypes.c_uint64], ctypes.c_uint64),
        ("mr_free_value", [context, pointer], None),
        ("mr_alloc_string_val", [context, ctypes.c_char_p, ctypes.c_uint64, ctypes.c_uint8], pointer),
        ("mr_get_object_item", [context, pointer, pointer], pointer),
        ("mr_set_object_item", [context, pointer, pointer, pointer], pointer),
        ("mr_heap_stats", [context], pointer),
        ("mr_v8_version", [], ctypes.c_char_p),
        ("mr_v8_is_using_sandbox", [], ctypes.c_bool),
    ):
        getattr(dll, function).argtypes = arguments
        getattr(dll, function).restype = result
    version = dll.mr_v8_version().decode()
    if version != VERSION:
        raise EngineUnavailable(
            f"V8 is {version}, but this release was reviewed with {VERSION}: pin mini-racer==0.14.1"
        )
    dll.mr_init_v8(" ".join(v8_flags).encode(), str(folder / "icudtl.dat").encode())
    return dll


def _machine() -> str:
    import platform

    return platform.machine()


class Isolate:
    """One isolate with one bare realm; it starts a thread of its own."""

    def __init__(self, dll: ctypes.CDLL) -> None:
        self._dll = dll
        self._context = dll.mr_init_context(_answered)

    def evaluate(self, source: str) -> Handle | str | float | bool | None:
        """Run text in the global scope and drain its microtasks."""
        text = self._string(source.encode("utf-8", "replace"))
        self._dll.mr_eval(self._context, text, 1)
        try:
            return self._take(_answer.get())
        finally:
            self._dll.mr_free_value(self._context, text)

    def key(self, name: str) -> Handle:
        """A property name for `get` and `set`, made once."""
        return Handle(self._string(name.encode()))

    def text(self, holder: Handle, key: Handle) -> bytes:
        """Read a property whose value is a string, as UTF-8."""
        raw = self._dll.mr_get_object_item(self._context, holder.raw, key.raw)
        value = raw.contents
        data = ctypes.string_at(value.value.pointer, value.length) if value.kind == _STRING else b""
        self._dll.mr_free_value(self._context, raw)
        return data

    def set(self, holder: Handle, key: Handle, value: bytes | Handle) -> None:
        """Write a property of an object that *we* made; its setter must not throw. Microtasks then drain."""
        raw = value.raw if isinstance(value, Handle) else self._string(value)
        self._take(self._dll.mr_set_object_item(self._context, holder.raw, key.raw, raw))
        if not isinstance(value, Handle):
            self._dll.mr_free_value(self._context, raw)

    def check(self, *, heap_bytes: int, jit: bool) -> str:
        """Why this engine may not serve, or an empty text. Each line has caught a real mistake."""
        limit = json.loads(str(self._take(self._dll.mr_heap_stats(self._context))))["heap_size_limit"]
        if limit > heap_bytes:
            return f"V8's heap limit is {limit} bytes, not {heap_bytes}: its flags were dropped"
        try:
            self.evaluate("new Function('return 1')")
        except JSError:
            pass
        else:
            return "code from strings is not switched off"
        if not self._dll.mr_v8_is_using_sandbox():
            return (
                "the V8 sandbox is off: the address space is limited (ulimit -v, or a container's limit). "
                "Lift that limit; V8 reserves about 1.1 TB without using it"
            )
        return ""

    def lend_thread(self, work: Callable[[], None]) -> None:
        """Run a function on the isolate's own thread, between two of its tasks, while this thread waits in Python.

        A fork made there has that thread, and with it a whole isolate. In the fork this call never comes back: `work`
        calls `forked`, starts the thread that is to drive the isolate, and returns.
        """
        left = _thread.allocate_lock()
        left.acquire()

        def once_alone() -> None:
            left.acquire()  # a thread that is still inside V8 may hold a lock there, which a fork would keep for ever
            work()

        text = self._string(b"0")
        _guest.append(once_alone)
        self._dll.mr_eval(self._context, text, 1)
        left.release()
        self.returned()

    def returned(self) -> None:
        """Wait until the isolate's thread is back from `lend_thread`: in a fork, on the thread that drives from now."""
        self._take(_answer.get())

    def _string(self, data: bytes) -> Any:
        return self._dll.mr_alloc_string_val(self._context, data, len(data), _STRING)

    def _take(self, raw: Any) -> Handle | str | float | bool | None:
        """A primitive as a Python value, its memory freed; anything else as an opaque `Handle`."""
        value = raw.contents
        kind = value.kind
        result: str | float | bool | None = None
        error = None
        if kind == _STRING:
            result = ctypes.string_at(value.value.pointer, value.length).decode("utf-8", "replace")
        elif kind == _BOOL:
            result = value.value.integer == 1
        elif kind == _INTEGER:
            result = value.value.integer
        elif kind == _DOUBLE:
            result = value.value.double
        elif kind in _ERRORS:
            error = ctypes.string_at(value.value.pointer, min(value.length, 8000)).decode("utf-8", "replace")
        elif kind not in (_NULL, _UNDEFINED):
            return Handle(raw)
        self._dll.mr_free_value(self._context, raw)
        if error is not None:
            raise JSError(error)
        return result


def digest(v8_flags: list[str], *texts: str) -> str:
    """Names what decides how a run replays: engine, flags and the texts that build a realm.

    The size of the heap is left out: a limit that ends a run is recorded, not reproduced.
    """
    parts = [VERSION, *(flag for flag in v8_flags if not flag.startswith("--max-heap-size")), *texts]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
