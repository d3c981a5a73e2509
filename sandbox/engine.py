"""V8, driven through mini-racer's C ABI with strings only: the one file that knows it.

What never happens here, because each was seen to crash, hang or forge (mini-racer 0.14.1): its Python object API on
what a program made, its `MiniRacer` class (whose timer shim cannot be removed from a realm), Python callables in a
realm, and writing to an object that a program can reach. The realm gives private functions; a step is one call that
brings the replies (microtasks drain when it has returned) and one that takes the wave.

An isolate has a thread of its own, and whoever drives it from another one pays for two changes of thread with every
call. So Python drives it from that very thread: all that uses an isolate is one coroutine, which goes on where V8
reports an answer, and where V8 goes on when it awaits the next. The functions of the library that wait for the
isolate's thread would wait for ever there: only those that report are called.
"""

from __future__ import annotations

import _thread  # the small half of threading, whose own half would run in every fork
import contextlib
import ctypes
import hashlib
import importlib.util
import json
import os
import sys
import types
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

from sandbox.errors import EngineUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator

VERSION: Final = "14.4.258.23"  # what mini-racer 0.14.1 carries; another one is refused until its globals were reviewed
STACK_KIB: Final = 700  # of the isolate's thread; deep recursion is then a RangeError long before the guard page
# Of new objects before the first collection: one reply of a MiB makes more than V8's 1 MiB holds, and copying what all
# of it is still needed took an eighth of the whole program. Memory that is not used is not touched.
YOUNG_MIB: Final = 4

_NULL, _BOOL, _INTEGER, _DOUBLE, _STRING, _UNDEFINED = 1, 2, 3, 4, 5, 11
_ERRORS = range(200, 207)


class _Union(ctypes.Union):
    _fields_ = (("pointer", ctypes.c_void_p), ("integer", ctypes.c_int64), ("double", ctypes.c_double))


class _Value(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("value", _Union), ("length", ctypes.c_size_t), ("kind", ctypes.c_uint8))


_Pointer = ctypes.POINTER(_Value)
_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_uint64, _Pointer)


_life: Coroutine[Any, Any, object] | None = None  # what drives the one isolate of this process


@_CALLBACK
def _answered(call_id: int, raw: Any) -> None:
    """The one native callback of the process; made at import, before the page that holds it is sealed."""
    with contextlib.suppress(BaseException):  # nothing is left that could say more than the end of this process does
        if _life is not None:
            _life.send(raw)
            return
    os._exit(1)


@types.coroutine
def _answer() -> Generator[None, Any, Any]:
    """Let V8 go on; what it reports next."""
    return (yield)


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
    given += [f"--max-heap-size={heap_bytes >> 20}", f"--min-semi-space-size={YOUNG_MIB}", f"--stack-size={STACK_KIB}"]
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
        ("mr_call_function", [context, pointer, pointer, pointer, ctypes.c_uint64], ctypes.c_uint64),
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
    """One isolate with one bare realm and a thread of its own, on which one coroutine drives it.

    Attributes:
        heap_limit: Bytes that V8 says its heap may have.
    """

    def __init__(self, dll: ctypes.CDLL) -> None:
        self._dll = dll
        self._context = dll.mr_init_context(_answered)
        self.heap_limit: int = json.loads(str(self._take(dll.mr_heap_stats(self._context))))["heap_size_limit"]
        self._nothing = self._string(b"")
        self._no_arguments = self._nothing

    def live(self, life: Callable[[], Coroutine[Any, Any, NoReturn]]) -> NoReturn:
        """Give the isolate's thread to `life`; the calling thread waits in Python for ever.

        A fork that `life` makes has that thread alone, and with it a whole isolate.
        """
        global _life
        left = _thread.allocate_lock()
        left.acquire()

        async def begun() -> NoReturn:
            await _answer()
            left.acquire()  # a thread that is still inside V8 may hold a lock there, which a fork would keep for ever
            ctypes.pythonapi.PyGILState_Ensure()  # Python keeps its state of this thread, and makes none each time
            none = await self.evaluate("[]")
            assert isinstance(none, Handle), "an array"
            self._no_arguments = none.raw
            await life()

        _life = begun()
        _life.send(None)
        self._dll.mr_eval(self._context, self._nothing, 1)
        left.release()
        for_ever = _thread.allocate_lock()
        for_ever.acquire()
        while True:
            for_ever.acquire()

    async def evaluate(self, source: str) -> Handle | str | float | bool | None:
        """Run text in the global scope and drain its microtasks."""
        text = self._string(source.encode("utf-8", "replace"))
        self._dll.mr_eval(self._context, text, 1)
        try:
            return self._take(await _answer())
        finally:
            self._dll.mr_free_value(self._context, text)

    async def give(self, function: Handle, value: bytes | Handle) -> Handle | str | float | bool | None:
        """Call a function that *we* made, which must not throw, with a value as its `this`. Microtasks then drain.

        Args:
            function: A strict one: it gets the very value.
            value: UTF-8, which becomes a string, or something that is in the isolate.
        """
        raw = value.raw if isinstance(value, Handle) else self._string(value)
        self._dll.mr_call_function(self._context, function.raw, raw, self._no_arguments, 1)
        try:
            return self._take(await _answer())
        finally:
            if not isinstance(value, Handle):
                self._dll.mr_free_value(self._context, raw)

    async def text(self, function: Handle) -> bytes:
        """Call a function that *we* made and that returns a string: that, as UTF-8."""
        self._dll.mr_call_function(self._context, function.raw, self._nothing, self._no_arguments, 1)
        raw = await _answer()
        value = raw.contents
        data = ctypes.string_at(value.value.pointer, value.length) if value.kind == _STRING else b""
        self._dll.mr_free_value(self._context, raw)
        return data

    async def check(self, *, heap_bytes: int) -> str:
        """Why this engine may not serve, or an empty text. Each line has caught a real mistake."""
        if self.heap_limit > heap_bytes:
            return f"V8's heap limit is {self.heap_limit} bytes, not {heap_bytes}: its flags were dropped"
        try:
            await self.evaluate("new Function('return 1')")
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
