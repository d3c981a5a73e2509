"""Defences behind others: what each is for is seen only where the one before it is not in the way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import msgspec
import pytest

from sandbox import EngineUnavailable, Limits, RemoteProtocolError, Returned, Sandbox, Threw, ToolName, origin
from sandbox.jail import NAMESPACES
from sandbox.process import Death
from sandbox.wire import decode_from_worker
from tests.sandbox.conftest import SMALL, Outcome, play, start_of
from tests.sandbox.jailed import ENVIRONMENT, linux, root

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"  # what is looked at happens in workers


@pytest.fixture(scope="module")
async def shared(anyio_backend: str) -> AsyncGenerator[Sandbox]:
    async with Sandbox(limits=SMALL) as opened:
        yield opened


def failing(tool: str, arguments: list[Any]) -> Any:
    raise ValueError("no")


def altered(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """Let code run in each zygote before it does anything."""
    kept = origin.command

    def command(entry: str, settings: Any) -> list[str]:
        words = kept(entry, settings)
        at = words.index("-c") + 1
        before, _, after = words[at].partition(f"from sandbox.{entry}")
        words[at] = f"{before}exec({code!r}); from sandbox.{entry}{after}"
        return words

    monkeypatch.setattr(origin, "command", command)


def zygote(sandbox: Sandbox) -> int:
    return sandbox._origin.process.pid


# ---- the realm -------------------------------------------------------------------------------------------------------

SEEN: dict[str, tuple[str, Any]] = {
    "a getter inherited by descriptors": (
        "Object.prototype.get = () => 1; try { await tools.echo(1) } catch (e) { return [e.code, e.tool] }",
        ["failed", "echo"],
    ),
    "members inherited by replies": (
        ("Object.prototype.retryable = true; Object.prototype.details = 'forged';"
        "try { await tools.echo(1) } catch (e) { return [e.retryable, e.details] }"),
        [False, None],
    ),
    "how texts become primitive": (
        ("String.prototype.toString = String.prototype.valueOf = () => 'forged';"
        "try { await tools.echo(1) } catch (e) { return e.message }"),
        "no",
    ),
    "a push of its own": (
        "Array.prototype.push = () => { throw new Error('asked') }; return [new Set([1]), new Map([[1, 2]])]",
        [[1], [[1, 2]]],
    ),
    "the source of what it was given": (
        ("const text_of = Function.prototype.toString;"
        "return [tools.echo, setTimeout, text, console.log, exit, Date.now, Math.random].filter("
        "f => !text_of.call(f).includes('[native code]')).length"),
        0,
    ),
    "species of an adopted promise": (
        ("Object.defineProperty(Promise, Symbol.species, { get() { throw new Error('asked') } });"
        "return () => ({ then(resolve) { resolve(5) } })"),
        5,
    ),
    "a getter asked twice": ("let n = 0; return { get a() { return ++n } }", {"a": 1}),
    "an exit that waits": ("exit([1, sleep(1).then(() => 2)])", [1, 2]),
    "the parts of a date": (
        ("const f = new Intl.DateTimeFormat('en', { dateStyle: 'short', timeStyle: 'medium', timeZone: 'UTC' });"
        "return [f.format(), f.format(Date.now())].map(said =>"
        " said === f.formatToParts().map(part => part.value).join(''))"),
        [True, True],
    ),
    "many small entries": ("for (let i = 0; i < 52000; i++) clearTimeout(setTimeout(() => {}, 1)); return 1", 1),
}  # fmt: skip


@pytest.mark.parametrize(("program", "value"), SEEN.values(), ids=SEEN.keys())
async def test_a_program_meets_nothing_of_its_own_in_what_drives_it(program: str, value: Any, shared: Sandbox) -> None:
    out = await play(shared, program, failing)
    assert out.value == value


async def test_an_error_is_not_made_a_tools_by_a_patched_map(shared: Sandbox) -> None:
    forged = "{ __proto__: null, line: 9, column: 9, tool: 'echo', call: 1, code: 'denied' }"
    out = await play(shared, f"WeakMap.prototype.get = () => ({forged}); throw new TypeError('x')")
    assert isinstance(out.end, Threw)
    assert (out.end.tool, out.end.call, out.end.code) == ("", 0, "type_error")


async def test_a_value_is_told_for_what_it_is_or_not_at_all_near_the_end_of_the_stack(shared: Sandbox) -> None:
    program = """
        const map = new Map([['a', 1]]), boxed = Object(1);
        const f = () => { try { f() } catch {} try { text(map) } catch {} try { text(boxed) } catch {} };
        f()"""
    out = await play(shared, program)
    assert {said for said in out.text if "Throws" not in said} == {'{"a":1}', "1"}


async def test_a_list_of_numbers_is_cut_to_its_bytes(shared: Sandbox) -> None:
    limits = Limits(memory_bytes=64 << 20, cpu_s=2, value_bytes=1000)
    out = await play(shared, "return Array.from({ length: 5000 }, (_, n) => n)", limits=limits)
    assert isinstance(out.end, Returned)
    assert len(bytes(out.end.value)) < 1100
    assert out.value[-1].endswith(" more items")


async def test_a_long_message_is_cut_before_it_takes_the_memory_of_the_worker(shared: Sandbox) -> None:
    out = await play(shared, "throw new Error('m'.repeat(20e6))")
    assert isinstance(out.end, Threw)
    assert out.end.message == "m" * 4000


async def test_a_thousand_warnings_are_kept_and_the_rest_is_counted(shared: Sandbox) -> None:
    out = await play(shared, "for (let i = 0; i < 1500; i++) text(1n); return 1")
    assert len(out.warnings) == 1001
    assert out.warnings[-1].message == "500 more warnings were dropped"


async def test_a_tool_whose_name_makes_promises_of_objects_is_no_member_of_tools(shared: Sandbox) -> None:
    start = msgspec.structs.replace(start_of("return typeof (await tools).then_"), tools=[ToolName("then", ("then_",))])
    async with shared.worker() as worker:
        wave = await shared.start(worker, start, SMALL, 5)
    assert wave is not None
    assert wave.end == Returned(msgspec.Raw(b'"function"'))


# ---- the engine ------------------------------------------------------------------------------------------------------

FLAGS = "from sandbox import engine; kept = engine.flags; engine.flags = lambda **given: "
REFUSED = {
    "a flag that V8 does not know": (
        FLAGS + "[*(f for f in kept(**given) if 'heap' not in f), '--no-such-flag', '--max-heap-size=64']",
        r"V8's heap limit is \d+ bytes, not 67108864: its flags were dropped",
    ),
    "code from strings": (
        FLAGS + "[flag for flag in kept(**given) if 'strings' not in flag]",
        "code from strings is not switched off",
    ),
    "another V8": (
        "from sandbox import engine; engine.VERSION = '1.2'",
        r"V8 is [\d.]+, but this release was reviewed with 1\.2: pin mini-racer",
    ),
    "little address space": (
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (1300 << 30, 1300 << 30))",
        "the V8 sandbox is off: the address space is limited",
    ),
    "a realm that keeps what it should lose": (
        (
            "from sandbox import realm; kept = realm.text; "
            "realm.text = lambda: kept().replace(\"'SharedArrayBuffer', \", '')"
        ),
        "the realm has a global that it must not have",
    ),
}


@linux
@pytest.mark.parametrize(("code", "reason"), REFUSED.values(), ids=REFUSED.keys())
async def test_an_engine_that_is_not_as_reviewed_serves_nobody(
    code: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    altered(monkeypatch, code)
    with pytest.raises(EngineUnavailable, match=reason):
        async with Sandbox(limits=SMALL):
            pass


@linux
async def test_a_zygote_has_two_threads_so_that_its_forks_are_whole(shared: Sandbox) -> None:
    assert len(os.listdir(f"/proc/{zygote(shared)}/task")) == 2  # noqa: PTH208


async def test_recursion_ends_where_the_engine_was_told(shared: Sandbox) -> None:
    # In frames of the interpreter, whose size is that of this version: V8's own default is 40% more.
    out = await play(shared, "let n = 0; const f = () => { n++; f() }; try { f() } catch {} return n")
    assert 6_000 < out.value < 9_000


NESTED = [
    b'{"type":"wave","unknown":' + b"[" * 100_000,
    b'{"type":"wave","end":{"type":"returned","value":' + b"[" * 100_000,
    b'{"type":"wave","calls":[{"id":1,"tool":"a","arguments":' + b"[" * 300_000,
]


@pytest.mark.parametrize("text", NESTED, ids=["unknown", "value", "arguments"])
def test_nesting_wherever_it_stands_is_a_protocol_error(text: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match=r"^malformed message: "):
        decode_from_worker(text)


# ---- processes -------------------------------------------------------------------------------------------------------

SOCKET = """
import _socket
from sandbox import worker
kept = worker.boot
def boot(start, script):
    if 'SOCKET' in start.program:
        _socket.socket()
    return kept(start, script)
worker.boot = boot
"""


@linux
async def test_a_call_that_the_filter_kills_for_is_a_violation_and_retires_the_zygote(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    altered(monkeypatch, SOCKET)
    async with Sandbox(limits=SMALL) as sandbox:
        before = zygote(sandbox)
        out: Outcome = await play(sandbox, "return 'SOCKET'")
        assert out.death == Death("violation", None, "it made a system call that no program needs")
        assert (await play(sandbox, "return 1")).value == 1
        assert zygote(sandbox) != before


async def test_a_worker_whose_step_is_cancelled_is_killed_before_its_block_is_left(shared: Sandbox) -> None:
    async with shared.worker() as worker:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(shared.start, worker, start_of("for (;;);"), SMALL)
            while not worker.computing:
                await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()
        assert worker.killed_for == "cancelled"
        with anyio.fail_after(30):
            while not worker.gone:
                await anyio.lowlevel.checkpoint()


async def test_the_watchdog_ends_a_run_long_before_the_kernel_would() -> None:
    async with Sandbox(limits=Limits(memory_bytes=64 << 20, cpu_s=600)) as sandbox:
        out = await play(sandbox, "for (;;);", limits=Limits(memory_bytes=64 << 20, cpu_s=0.2, wall_s=20))
    assert out.death == Death("exceeded", "cpu_s")


@linux
async def test_a_zygote_has_nothing_of_the_hosts_environment_streams_and_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = tmp_path / "found"
    monkeypatch.setenv("SECRET", "of the host")
    look = (
        "import os, json; streams = [os.readlink(f'/proc/self/fd/{n}') for n in range(3)]; "
        f"open({str(found)!r}, 'w').write(json.dumps([sorted(os.environ), os.getcwd(), streams]))"
    )
    altered(monkeypatch, look)
    async with Sandbox(limits=SMALL, spares=0):
        names, folder, streams = msgspec.json.decode(found.read_bytes())
    assert set(names) - {"LC_CTYPE"} == set(origin.ENVIRONMENT)
    assert (folder, streams) == ("/", [os.devnull] * 3)


@linux
@root
async def test_a_zygote_shares_no_namespace_that_its_report_says_it_left(shared: Sandbox) -> None:
    if shared.walls["namespaces"]:
        pytest.skip("this machine gives none")
    names = [{"mount": "mnt"}.get(kind, kind) for kind in NAMESPACES]
    ours, its = Path("/proc/self/ns"), Path(f"/proc/{zygote(shared)}/ns")
    assert [name for name in names if (ours / name).readlink() == (its / name).readlink()] == []


HOST = """
import asyncio, sys
from sandbox import Limits, Sandbox
async def host():
    async with Sandbox(limits=Limits(memory_bytes=64 << 20)) as sandbox:
        print(sandbox._origin.process.pid, flush=True)
        await asyncio.sleep(600)
asyncio.run(host())
"""


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(") ")[2][0]


@linux
async def test_a_zygote_that_is_stopped_still_dies_with_its_host() -> None:
    host = subprocess.Popen(  # noqa: ASYNC220  its first line is waited for in place
        [sys.executable, "-c", HOST], env=ENVIRONMENT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
    )
    try:
        assert host.stdout is not None
        pid = int(host.stdout.readline())
        handle = os.pidfd_open(pid)
        os.kill(pid, signal.SIGSTOP)  # it cannot see that its channel closes
        with anyio.fail_after(30):
            while _state(pid) != "T":  # what runs on another core stops a moment later
                await anyio.lowlevel.checkpoint()
        host.kill()
        with anyio.fail_after(30):
            await anyio.wait_readable(handle)
        os.close(handle)
    finally:
        host.kill()
        host.communicate()
