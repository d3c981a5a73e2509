"""The whole life of a worker: walls, isolate, realm, self-check, lock, `Ready`, one program, and the end.

It speaks on one descriptor with plain read and write, which is all that the filter allows. What runs here after the
lock is trusted to be correct, not to be safe: V8 is assumed breakable, so the host believes nothing of it.
"""

from __future__ import annotations

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
READ_BYTES: Final = 1 << 16  # at once, where no more is known to come: the C library then reuses the memory of the last
ABSENT: Final = (
    "WebAssembly SharedArrayBuffer Atomics FinalizationRegistry WeakRef ShadowRealm gc __timer_manager "
    "__TimerManager Worker process require"
).split()
# What V8 says when it cannot parse: place, message, the line, and a caret under the column.
_REFUSED: Final = re.compile(r"[^\n]*?:(\d+): (SyntaxError: [^\n]*)\n?([^\n]*)\n?( *\t*)\^?")
_REHEARSAL: Final = (  # a `Start`, but for its program
    b'{"type":"start","program":%b,"tools":[{"name":"a","path":["a"]},{"name":"b/c","path":["b","c"]}],'
    b'"inputs":{"d":[1]},"seed":1,"now_ms":0,"argument_bytes":1000000,"value_bytes":1000000,"log_bytes":1000000,'
    b'"frame_bytes":1000000}'
)
_REHEARSED: Final = """\
const found = [], wanted = '%s';
for (let page = 1; page < 3; page++) {
  const { rows } = await tools.a({ page, wanted });
  for (const row of rows) if (row.total > 1.5 && row.name !== wanted) found.push({ ...row, page });
}
const all = await Promise.all(found.map(async (one) => (await b.c({ id: one.id })).name ?? `${one.id}`));
text(`${all.length} found`);
return { count: all.length, first: all.slice(0, 3) };
"""
_REHEARSED_REPLY: Final = b'{"type":"deliver","now_ms":0,"replies":[{"type":"value","id":1,"value":{"a":[1]}}]}'
_KEPT_CODES: Final = frozenset(("invalid_arguments", "unknown_tool", "denied", "expired"))


class Channel:
    """Frames on one descriptor, or on one for each direction."""

    def __init__(self, reading: int, writing: int) -> None:
        self._reading = reading
        self._writing = writing
        self._ahead = b""  # what was read beyond what was asked for

    def send(self, text: bytes) -> None:
        data = memoryview(framed(text))
        while data:
            data = data[os.write(self._writing, data) :]

    def receive(self) -> bytes:
        """The next frame; nothing when the host has closed its end."""
        header = self._exactly(HEADER_BYTES)
        return self._exactly(int.from_bytes(header, "big")) if header else b""

    def _exactly(self, size: int) -> bytes:
        parts: list[bytes] = []
        data = self._ahead
        while len(data) < size:
            parts.append(data)
            size -= len(data)
            data = os.read(self._reading, min(max(size, READ_BYTES), CHUNK_BYTES))
            if not data:
                return b""
        self._ahead = data[size:]
        parts.append(data[:size])
        return parts[0] if len(parts) == 1 else b"".join(parts)


def framed(text: bytes) -> bytes:
    """A frame on the wire."""
    return len(text).to_bytes(HEADER_BYTES, "big") + text


class Engine:
    """V8 with its flags, in this process: loaded once, before any fork."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.heap_bytes = jail.memory_plan(settings.memory_bytes).heap_bytes
        flags = engine.flags(heap_bytes=self.heap_bytes, jit=settings.jit)
        self.dll: ctypes.CDLL = engine.load(flags)
        self.realm_text, self.web_text = realm.text(), realm.web_text()
        self.digest = engine.digest(flags, self.realm_text, self.web_text, source.fingerprint())

    async def realm(self, isolate: engine.Isolate) -> Realm:
        """The realm of an isolate, built, looked at and rehearsed.

        Raises:
            JSError: It may not serve; the text says why.
        """
        reason = await isolate.check(heap_bytes=self.heap_bytes)
        if reason:
            raise engine.JSError(reason)
        made = await Realm.build(isolate, self.realm_text)
        found = await isolate.evaluate("+".join(f"typeof {name}" for name in ABSENT))
        if found != "undefined" * len(ABSENT):
            raise engine.JSError("the realm has a global that it must not have")
        await isolate.evaluate(
            "[new Date(0).toLocaleString('en'), 'e'.normalize('NFD'), 'a'.localeCompare('b')].length"
        )
        await made.rehearse("in the zygote")
        return made


class Realm:
    """A realm in its isolate: what the worker drives."""

    def __init__(self, isolate: engine.Isolate, functions: dict[str, engine.Handle]) -> None:
        self.isolate = isolate
        self._functions = functions

    @classmethod
    async def build(cls, isolate: engine.Isolate, text: str) -> Realm:
        """Evaluate the realm's text and ask it for its functions."""
        held = await isolate.evaluate(text)
        assert isinstance(held, engine.Handle), "it is one function"
        functions: dict[str, engine.Handle] = {}
        for name in ("boot", "program", "inbox", "outbox", "web", "rehearsal", "reset"):
            function = await isolate.give(held, name.encode())
            assert isinstance(function, engine.Handle), "it has them all"
            functions[name] = function
        return cls(isolate, functions)

    async def put(self, name: str, value: bytes | engine.Handle) -> None:
        await self.isolate.give(self._functions[name], value)

    async def take(self) -> bytes:
        return await self.isolate.text(self._functions["outbox"])

    async def install_web(self, text: str) -> None:
        """Define the web's part, before any program text."""
        install = await self.isolate.evaluate(text)
        assert isinstance(install, engine.Handle), "it is one function"
        await self.put("web", install)

    async def rehearse(self, text: str) -> None:
        """Go once through what every program needs, so that nobody waits for what is done once: compiling, page faults.

        It is the very life of a program, for whatever it touches for the first time is a page to be copied. Only the
        program itself is one that the realm brings, and what that leaves behind is undone.

        Args:
            text: Any; another one each time, for V8 compiles no text twice.

        Raises:
            JSError: It did not go as a program's life goes.
        """
        program = _REHEARSED % text
        (reading, source_end), (sink, writing) = os.pipe(), os.pipe()
        os.write(source_end, framed(_REHEARSAL % msgspec.json.encode(program)) + framed(_REHEARSED_REPLY))
        os.close(source_end)
        await run(self, "", Channel(reading, writing), rehearsing=True)
        await self.put("reset", b"")
        said = os.read(sink, READ_BYTES)
        for descriptor in (reading, sink, writing):
            os.close(descriptor)
        if b'"tool":"a"' not in said or b'"returned"' not in said:
            raise engine.JSError(f"a rehearsal failed: {said[:1000].decode('utf-8', 'replace')}")


def cell(settings: Settings) -> jail.Jail:
    """The walls that these settings ask for."""
    return jail.Jail(
        cpu_s=settings.cpu_s,
        data_bytes=jail.memory_plan(settings.memory_bytes).data_bytes,
        jit=settings.jit,
        namespaces=jail.NAMESPACES if settings.namespaces else (),
    )


async def serve(
    loaded: Engine, made: Realm, raised: jail.Raised, *, channel: int, parent: int, spare: bool
) -> NoReturn:
    """In a fork: raise what walls are a worker's own, then live.

    Args:
        loaded, made: The zygote's; `made` is this process's own copy.
        raised: The walls so far; a forked worker has its zygote's.
        channel: The descriptor to speak on.
        parent: Process id of the zygote.
        spare: No program waits for this worker yet: rehearse, so that the first touch of each page is paid now.
    """
    walls = cell(loaded.settings)
    jail.in_worker(walls, raised, channel=channel, parent=parent)
    if spare:
        await made.rehearse("in a spare")
    await live(loaded, made, raised, walls)


async def live(loaded: Engine, made: Realm, raised: jail.Raised, walls: jail.Jail) -> NoReturn:
    """Raise the last walls, say `Ready`, run one program."""
    jail.before_program(walls, raised)
    channel = walls.channel if sys.platform == "linux" else loaded.settings.channel
    line = Channel(channel, channel)
    line.send(encode(Ready(walls=raised.walls, engine=engine.VERSION, digest=loaded.digest)))
    await run(made, loaded.web_text, line)
    os._exit(0)


async def run(made: Realm, web_text: str, channel: Channel, *, rehearsing: bool = False) -> None:
    """Run one program: prepare its text, then waves out and replies in until the host closes its end."""
    secret = "s" + os.urandom(8).hex()
    start = decode_to_worker(data) if (data := channel.receive()) else None
    if not isinstance(start, Start):
        return
    script = source.prepare(start.program, start.tools)
    if not isinstance(script, source.Script):
        end(channel, Wave(end=script))
        return
    if realm.needs_web(script.js):
        await made.install_web(web_text)
    function = await compile_script(made.isolate, start.program, script, secret)
    if isinstance(function, Threw):
        end(channel, Wave(warnings=list(script.notices), end=function))
        return
    settings = boot(start, script)
    if rehearsing:
        await made.put("rehearsal", settings)
    else:
        await made.put("boot", settings)
        await made.put("program", function)
    while True:
        out = await made.take()
        if out[:1] == b"!":
            return  # the realm failed: the host reads it as a crash
        wave = memoryview(out)[1:]
        channel.send(explained(bytes(wave), start, script) if out[:1] == b"T" else bytes(wave))
        if not (replies := channel.receive()):
            return
        await made.put("inbox", replies)


async def compile_script(
    isolate: engine.Isolate, program: str, script: source.Script, secret: str
) -> engine.Handle | Threw:
    """Let V8 say whether the text is one function, without running any of it, and make the function.

    Args:
        isolate: Where to make it.
        program: The text as the model sent it.
        script: What became of it.
        secret: An identifier that whoever wrote the program cannot know.
    """
    # The last line leaves a block that only the first line opens: it parses nowhere but inside that block, in the same
    # function, so text that closes the wrapper early does not parse. `let` cannot end an unfinished statement.
    head, rest = script.js[: len(source.HEAD)], script.js[len(source.HEAD) : -len(source.TAIL)]
    made = await _evaluated(isolate, f"{head}{secret}:{{{rest}\nlet {secret};break {secret}}}{source.TAIL}")
    if isinstance(made, engine.Handle):
        return made
    # Not a program, or one that no block may hold (two functions of one name). The error is that of the text alone, in
    # brackets; text that parses so may still be several functions, unless V8 objects to a name declared at both ends.
    refused = await _evaluated(isolate, f"throw 0;[{head[1:]}{rest}\n}}]\n//# sourceURL=program")
    if isinstance(refused, str) and (said := _REFUSED.match(refused)):
        line, message, _, caret = said.groups()
        return source.syntax_error(program, script, message, int(line), len(caret) + 1)
    twice = await _evaluated(isolate, f"throw 0;{head}let {secret};{rest}\nlet {secret}{source.TAIL}")
    declared_twice = isinstance(twice, str) and f"'{secret}' has already" in twice
    made = await _evaluated(isolate, script.js) if declared_twice else refused
    if isinstance(made, engine.Handle):
        return made
    if said := _REFUSED.match(made or ""):
        line, message, _, caret = said.groups()
        return source.syntax_error(program, script, message, int(line), len(caret) + 1)
    too_deep = isinstance(refused, str) and "RangeError: Maximum call stack" in refused
    why = "the program is nested too deeply to be read" if too_deep else "this is not one program"
    return source.syntax_error(program, script, f"SyntaxError: {why}", 0, 0)


async def _evaluated(isolate: engine.Isolate, text: str) -> engine.Handle | str | None:
    """What text evaluates to, if it is nothing that Python may look into; the text of the error if it throws."""
    try:
        value = await isolate.evaluate(text)
    except engine.JSError as error:
        return str(error)
    return value if isinstance(value, engine.Handle) else None


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


def end(channel: Channel, wave: Wave) -> None:
    """Say the last word and wait to be killed."""
    channel.send(encode(msgspec.structs.replace(wave, end=short(wave.end))))
    while channel.receive():
        pass


def main() -> NoReturn:
    """A spawned worker, where processes cannot be forked: all walls, one program."""
    settings = msgspec.json.decode(sys.argv[1], type=Settings)
    walls = cell(settings)
    raised = jail.in_zygote(walls, parent=settings.parent)
    loaded = Engine(settings)
    source.warm()
    jail.seal_code_pages(walls, raised)
    jail.before_forking(walls, raised, parent=settings.parent)
    jail.in_worker(walls, raised, channel=settings.channel, parent=settings.parent)
    isolate = engine.Isolate(loaded.dll)

    async def life() -> NoReturn:
        try:
            made = await loaded.realm(isolate)
        except engine.JSError as error:
            channel = walls.channel if sys.platform == "linux" else settings.channel
            Channel(channel, channel).send(encode(Broken(reason=str(error))))
            os._exit(1)
        await live(loaded, made, raised, walls)

    isolate.live(life)
