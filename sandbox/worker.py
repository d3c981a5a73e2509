"""The whole life of a worker: walls, isolate, realm, self-check, lock, `Ready`, one program, and the end.

It speaks on one descriptor with plain read and write, which is all that the filter allows. What runs here after the
lock is trusted to be correct, not to be safe: V8 is assumed breakable, so the host believes nothing of it.
"""

from __future__ import annotations

import contextlib
import encodings.idna  # noqa: F401  # pyright: ignore[reportUnusedImport]  Python imports it late: not after the lock
import os
import re
import sys
from typing import TYPE_CHECKING, Any, Final, NoReturn

import msgspec

from sandbox import engine, jail, realm, source
from sandbox.messages import Broken, Ready, Returned, Settings, Start, Threw, Wave
from sandbox.wire import HEADER_BYTES, decode_to_worker, encode

if TYPE_CHECKING:
    import ctypes

CHUNK_BYTES: Final = 1 << 20
ABSENT: Final = (
    "WebAssembly SharedArrayBuffer Atomics FinalizationRegistry WeakRef ShadowRealm gc __timer_manager "
    "__TimerManager Worker process require"
).split()
# What V8 says when it cannot parse: place, message, the line, and a caret under the column.
_REFUSED: Final = re.compile(r"[^\n]*?:(\d+): (SyntaxError: [^\n]*)\n?([^\n]*)\n?( *\t*)\^?")
_KEPT_CODES: Final = frozenset(("invalid_arguments", "unknown_tool", "denied", "expired"))


class Channel:
    """Frames on one descriptor."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def send(self, text: bytes) -> None:
        data = memoryview(len(text).to_bytes(HEADER_BYTES, "big") + text)
        while data:
            data = data[os.write(self._descriptor, data) :]

    def receive(self) -> bytes:
        """The next frame; ends the process when the host has closed its end."""
        size = int.from_bytes(self._exactly(HEADER_BYTES), "big")
        return self._exactly(size)

    def _exactly(self, size: int) -> bytes:
        parts: list[bytes] = []
        while size > 0:
            data = os.read(self._descriptor, min(size, CHUNK_BYTES))
            if not data:
                os._exit(0)
            parts.append(data)
            size -= len(data)
        return parts[0] if len(parts) == 1 else b"".join(parts)


class Engine:
    """V8 with its flags, in this process: loaded once, before any fork."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.heap_bytes = jail.memory_plan(settings.memory_bytes).heap_bytes
        flags = engine.flags(heap_bytes=self.heap_bytes, jit=settings.jit)
        self.dll: ctypes.CDLL = engine.load(flags)
        self.realm_text, self.web_text = realm.text(), realm.web_text()
        self.digest = engine.digest(flags, self.realm_text, self.web_text, source.fingerprint())

    def warm_up(self) -> None:
        """Touch the common paths once, so that children share the pages; leaves no isolate and no thread behind."""
        source.warm()
        isolate = engine.Isolate(self.dll)
        isolate.evaluate(self.realm_text)
        isolate.evaluate("[new Date(0).toLocaleString('en'), 'e'.normalize('NFD'), 'a'.localeCompare('b')].length")
        isolate.close()


class Realm:
    """An isolate with the realm built in it: what the worker drives."""

    def __init__(self, dll: ctypes.CDLL, text: str) -> None:
        self.isolate = engine.Isolate(dll)
        holder = self.isolate.evaluate(text)
        if not isinstance(holder, engine.Handle):
            raise engine.JSError("the realm has no holder")
        self._holder = holder
        self._keys = {
            name: self.isolate.key(name) for name in ("boot", "program", "inbox", "outbox", "web", "rehearsal", "reset")
        }

    def put(self, name: str, value: bytes | engine.Handle) -> None:
        self.isolate.set(self._holder, self._keys[name], value)

    def take(self) -> bytes:
        return self.isolate.text(self._holder, self._keys["outbox"])

    def install_web(self, text: str) -> None:
        """Define the web's part, before any program text."""
        install = self.isolate.evaluate(text)
        assert isinstance(install, engine.Handle), "it is one function"
        self.put("web", install)

    def rehearse(self) -> None:
        """Go once through what every program needs, so that its first touch of each page is paid by a spare."""
        script = source.prepare("const a = 1;\nreturn a", [])
        if isinstance(script, source.Script):
            compile_script(self.isolate, "", script)
        self.put("rehearsal", b"")
        self.take()
        self.put("inbox", b'{"now_ms":0,"replies":[{"type":"value","id":1,"value":{"a":[1]}}]}')
        self.take()
        self.put("reset", b"")

    def check(self, *, heap_bytes: int, jit: bool) -> str:
        """Why this realm may not serve, or an empty text."""
        reason = self.isolate.check(heap_bytes=heap_bytes, jit=jit)
        if reason:
            return reason
        found = self.isolate.evaluate("+".join(f"typeof {name}" for name in ABSENT))
        return "" if found == "undefined" * len(ABSENT) else "the realm has a global that it must not have"


def cell(settings: Settings) -> jail.Jail:
    """The walls that these settings ask for."""
    return jail.Jail(
        cpu_s=settings.cpu_s,
        data_bytes=jail.memory_plan(settings.memory_bytes).data_bytes,
        jit=settings.jit,
        namespaces=jail.NAMESPACES if settings.namespaces else (),
    )


def serve(loaded: Engine, raised: jail.Raised, *, channel: int, parent: int) -> NoReturn:
    """Raise the rest of the walls, say `Ready`, run one program.

    Args:
        raised: The walls so far; a forked worker has its zygote's.
        channel: The descriptor to speak on.
        parent: Process id of who made this process.
    """
    settings, walls = loaded.settings, cell(loaded.settings)
    reason, made = "", None
    try:
        jail.before_isolate(walls, raised, channel=channel, parent=parent)
        channel = walls.channel if sys.platform == "linux" else channel
        stay_on_one_core()
        made = Realm(loaded.dll, loaded.realm_text)
        reason = made.check(heap_bytes=loaded.heap_bytes, jit=settings.jit)
        if not reason:
            made.rehearse()
            jail.after_isolate(walls, raised)
    except (OSError, engine.JSError) as error:
        reason = f"{type(error).__name__}: {error}"
    line = Channel(channel)
    if reason or made is None:
        line.send(encode(Broken(reason=reason)))
        os._exit(1)
    line.send(encode(Ready(walls=raised.walls, engine=engine.VERSION, digest=loaded.digest)))
    run(made, loaded.web_text, line)


def stay_on_one_core() -> None:
    """Keep both threads of this process on one core: they take turns, and handing over between cores costs more.

    The host lets a program that computes for long go where there is room (`Worker.watch`).
    """
    with contextlib.suppress(OSError, AttributeError):  # not on this platform, or not by this container
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[os.getpid() % len(cores)]})


def run(made: Realm, web_text: str, channel: Channel) -> NoReturn:
    """Run one program: prepare its text, then waves out and replies in until the host ends the process."""
    start = decode_to_worker(channel.receive())
    if not isinstance(start, Start):
        os._exit(1)
    script = source.prepare(start.program, start.tools)
    if isinstance(script, source.Script):
        if realm.needs_web(script.js):
            made.install_web(web_text)
        function = compile_script(made.isolate, start.program, script)
        if isinstance(function, Threw):
            end(channel, Wave(warnings=list(script.notices), end=function))
        made.put("boot", boot(start, script))
        made.put("program", function)
    else:
        end(channel, Wave(end=script))
    while True:
        out = made.take()
        if out[:1] == b"!":
            os._exit(1)  # the realm failed: the host reads it as a crash
        wave = memoryview(out)[1:]
        channel.send(explained(bytes(wave), start, script) if out[:1] == b"T" else bytes(wave))
        made.put("inbox", channel.receive())


def compile_script(isolate: engine.Isolate, program: str, script: source.Script) -> engine.Handle | Threw:
    """Let V8 say whether the text is one function, without running any of it; then make the function."""
    body = script.js[1 : script.js.rindex(")")]
    # In brackets it must parse as well as in parentheses: text that closes the wrapper early cannot do both.
    for text in (f"throw 0;[{body}]\n//# sourceURL=program", script.js):
        try:
            value = isolate.evaluate(text)
        except engine.JSError as error:
            refused = _REFUSED.match(str(error))
            if refused is None and text is not script.js:
                continue  # the 0 that we threw: it parses
            line, message, _, caret = refused.groups() if refused else ("0", f"SyntaxError: {error}", "", "")
            return source.syntax_error(program, script, message, int(line), len(caret) + 1)
        if isinstance(value, engine.Handle):
            return value
    return source.syntax_error(program, script, "SyntaxError: this is not one program", 0, 0)


def boot(start: Start, script: source.Script) -> bytes:
    """What the realm has to know before the program starts."""
    settings: dict[str, Any] = {
        "now_ms": start.now_ms,
        "seed": start.seed,
        "argument_bytes": start.argument_bytes,
        "value_bytes": start.value_bytes,
        "log_bytes": start.log_bytes,
        "frame_bytes": start.frame_bytes,
        "line_offset": script.line_offset,
        "shifts": script.shifts,
        "awaits": script.awaits,
        "notices": script.notices,
        "tools": start.tools,
        "inputs": start.inputs,
    }
    return msgspec.json.encode(settings)


def explained(text: bytes, start: Start, script: source.Script) -> bytes:
    """A wave that ends with an error, with the error's code and a hint for the model."""
    wave = msgspec.json.decode(text, type=Wave)
    threw = wave.end
    if not isinstance(threw, Threw):
        return text
    if threw.tool:
        threw = msgspec.structs.replace(threw, code=threw.code if threw.code in _KEPT_CODES else "tool_error")
    else:
        threw = source.explain(start.program, script, threw, start.tools)
    return encode(msgspec.structs.replace(wave, end=short(threw)))


def short(said: Returned | Threw | None) -> Returned | Threw | None:
    """An error's texts, cut: names in it may be as long as the program."""
    if not isinstance(said, Threw):
        return said
    return msgspec.structs.replace(said, name=said.name[:100], message=said.message[:4000], hint=said.hint[:2000])


def end(channel: Channel, wave: Wave) -> NoReturn:
    """Say the last word and wait to be killed."""
    channel.send(encode(msgspec.structs.replace(wave, end=short(wave.end))))
    while True:
        channel.receive()


def main() -> NoReturn:
    """A spawned worker, where processes cannot be forked: all walls, one program."""
    settings = msgspec.json.decode(sys.argv[1], type=Settings)
    walls = cell(settings)
    raised = jail.in_zygote(walls, parent=settings.parent)
    loaded = Engine(settings)
    source.warm()
    jail.seal_code_pages(walls, raised)
    jail.before_forking(walls, raised, parent=settings.parent)
    serve(loaded, raised, channel=settings.channel, parent=settings.parent)
