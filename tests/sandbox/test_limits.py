"""Every limit that worker, kernel or watchdog enforce: each ends what it should, under its own name."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import pytest

from sandbox import Limits, Returned, Sandbox
from sandbox.process import Death
from tests.sandbox.conftest import SMALL, play

pytestmark = pytest.mark.anyio
BRIEF = Limits(memory_bytes=64 << 20, cpu_s=0.2, wall_s=10)


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"  # what is looked at happens in the worker


@pytest.fixture(scope="module")
async def shared(anyio_backend: str) -> AsyncGenerator[Sandbox]:
    async with Sandbox(limits=BRIEF) as opened:
        yield opened


SPINNING = {
    "loop": "for (;;);",
    "microtask": "await null; for (;;);",
    "chain of promises": "(async () => { for (;;) await null })(); return 5",
    "getter": "return { get a() { for (;;); } }",
    "toJSON": "return { toJSON() { for (;;); } }",
    "proxy": "return new Proxy({}, { ownKeys() { for (;;); } })",
    "getter of an error": "throw Object.defineProperty(new Error(), 'message', { get() { for (;;); } })",
    "stack of an error": "throw Object.defineProperty(new Error(), 'stack', { get() { for (;;); } })",
    "thenable": "return { then() { for (;;); } }",
    "argument": "await tools.echo({ get a() { for (;;); } })",
    "text": "text({ toJSON() { for (;;); } })",
    "console": "console.log({ get a() { for (;;); } })",
    "timer": "setTimeout(() => { for (;;); }, 1); await sleep(1000)",
    "after a reply": "await tools.echo(1); for (;;);",
    "recursion": "const f = () => { try { f() } finally { f() } }; f()",
    "generator": "function* g() { for (;;) yield 1 } for (const x of g());",
    "regular expression": "return /(a+)+b/.test('a'.repeat(40))",
    "comparator": "[1, 2].sort(() => { for (;;); })",
    "reviver": "JSON.parse('[1]', () => { for (;;); })",
    "toString": "return `${{ toString() { for (;;); } }}`",
    "species": "class Q extends Promise { then() { for (;;); } } return Q.resolve(1)",
    "timers without end": "for (;;) setTimeout(() => {}, 1e6)",
}


@pytest.mark.parametrize("program", SPINNING.values(), ids=SPINNING.keys())
async def test_whatever_computes_for_too_long_ends_by_cpu_s(program: str, shared: Sandbox) -> None:
    out = await play(shared, program, limits=BRIEF)
    assert out.death in (Death("exceeded", "cpu_s"), Death("exceeded", "memory_bytes"))
    if program != SPINNING["timers without end"]:
        assert out.death == Death("exceeded", "cpu_s")


HOARDING = {
    "array": "const a = []; for (;;) a.push({ n: a.length, s: 'x'.repeat(100) })",
    "one large array": "new Array(5e8).fill(0); return 1",
    "buffers": "const b = []; for (;;) { const u = new Uint8Array(2e6); u.fill(1); b.push(u) }",
    "strings": "let s = 'ab'; for (;;) s = (s + s + Math.random()).split('').join('')",
    "value": "const a = 'x'.repeat(1 << 20); return Array(400).fill(a).map((x, i) => x + i).map(x => x.split(''))",
}


@pytest.mark.parametrize("program", HOARDING.values(), ids=HOARDING.keys())
async def test_whatever_keeps_too_much_ends_by_memory_bytes(program: str) -> None:
    async with Sandbox(limits=Limits(memory_bytes=32 << 20, cpu_s=10, wall_s=30), spares=0) as sandbox:
        out = await play(sandbox, program, limits=sandbox.limits)
        assert out.death == Death("exceeded", "memory_bytes"), out.end


@pytest.mark.parametrize(("kept", "limit"), [(62, "memory_bytes"), (40, "cpu_s")])
async def test_who_computes_with_its_memory_full_lacked_memory(kept: int, limit: str) -> None:
    program = f"const full = new Uint8Array({kept} << 20).fill(1); for (;;) full[0]++"
    async with Sandbox(limits=Limits(memory_bytes=64 << 20, cpu_s=0.5)) as small:
        out = await play(small, program)
    assert out.death == Death("exceeded", limit)


async def test_surplus_console_lines_are_counted_and_cost_nothing_else(shared: Sandbox) -> None:
    out = await play(shared, "for (let i = 0; i < 5000; i++) console.log('line ' + i); return 1", limits=BRIEF)
    assert out.value == 1
    kept = len(out.logs)
    assert 0 < kept < 5000
    assert sum(len(log.message) for log in out.logs) <= BRIEF.log_bytes
    assert [log.message for log in out.logs] == [f"line {i}" for i in range(kept)]
    assert out.waves[-1].dropped_logs == 5000 - kept


async def test_surplus_text_is_dropped_with_a_warning(shared: Sandbox) -> None:
    limits = Limits(memory_bytes=64 << 20, cpu_s=0.2, value_bytes=1000)
    out = await play(shared, "for (let i = 0; i < 300; i++) text('0123456789'); return 1", limits=limits)
    assert (out.value, set(out.text)) == (1, {"0123456789"})
    dropped = 300 - len(out.text)
    assert [(notice.code, notice.message) for notice in out.warnings] == [
        (
            "truncated",
            f"{dropped} piece(s) given to text() or image() were dropped: together they are over 1000 bytes",
        )
    ]


async def test_a_value_that_is_too_large_is_cut_and_stays_json(shared: Sandbox) -> None:
    limits = Limits(memory_bytes=64 << 20, cpu_s=0.2, value_bytes=1000)
    out = await play(shared, "return Array.from({length: 1000}, (_, n) => ({n}))", limits=limits)
    assert isinstance(out.end, Returned)
    assert out.value[0] == {"n": 0}
    assert out.value[-1] == f"... {1000 - len(out.value) + 1} more items"
    assert [notice.code for notice in out.warnings] == ["truncated"]


async def test_recursion_without_end_is_an_error_that_a_program_can_catch(shared: Sandbox) -> None:
    program = "const f = () => f(); try { f() } catch (e) { return e instanceof RangeError }"
    assert (await play(shared, program, limits=BRIEF)).value is True


async def test_a_wave_that_no_frame_holds_comes_in_several(shared: Sandbox) -> None:
    limits = Limits(
        memory_bytes=64 << 20, cpu_s=2, frame_bytes=6000, argument_bytes=2000, value_bytes=3000, source_bytes=2000,
        reply_bytes=2000,
    )  # fmt: skip
    program = "return (await Promise.all([1,2,3,4,5,6].map(n => tools.echo('x'.repeat(1500) + n)))).length"
    out = await play(shared, program, limits=limits)
    assert out.value == 6
    assert [call[1][0][-1] for call in out.calls] == ["1", "2", "3", "4", "5", "6"]
    assert sum(wave.more for wave in out.waves) >= 2


# ---- Limits itself ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "error", "text"),
    [
        ({"cpu_s": 0}, ValueError, "Limits.cpu_s must be positive and finite, not 0: none can be unset"),
        ({"wall_s": float("inf")}, ValueError, "Limits.wall_s must be positive and finite, not inf: none can be unset"),
        ({"calls": -1}, ValueError, "Limits.calls must be positive and finite, not -1: none can be unset"),
        ({"calls": None}, TypeError, "Limits.calls must be a whole number, not None"),
        ({"calls": 1.5}, TypeError, "Limits.calls must be a whole number, not 1.5"),
        ({"timers": True}, TypeError, "Limits.timers must be a whole number, not True"),
        ({"call_s": "60"}, TypeError, "Limits.call_s must be a number of seconds, not '60'"),
        ({"memory_bytes": 1000}, ValueError, "Limits.memory_bytes must be at least 8388608 (8 MiB), not 1000"),
        (
            {"frame_bytes": 1 << 20},
            ValueError,
            "Limits.argument_bytes=1048576 needs frame_bytes of at least 2097152, but frame_bytes=1048576: "  # noqa: ISC004
            "raise frame_bytes or lower argument_bytes",
        ),
    ],
)
def test_limits_that_cannot_hold_are_refused(wrong: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error) as refused:
        Limits(**wrong)
    assert str(refused.value) == text


def test_the_lower_of_two_limits_holds_field_by_field() -> None:
    lowered = SMALL.lowered(Limits(cpu_s=9, calls=5))
    assert (lowered.cpu_s, lowered.calls, lowered.memory_bytes) == (2, 5, 64 << 20)
