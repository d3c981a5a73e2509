"""What a program sees: its globals, its clock and chance, how values leave it, and what is refused."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import pytest

from sandbox import Sandbox, Threw
from tests.sandbox.conftest import SMALL, Outcome, play

pytestmark = pytest.mark.anyio

# Reviewed: each is of ECMAScript, of Intl, or made by the realm. An engine that adds one has to be looked at.
GLOBALS = """
AggregateError Array ArrayBuffer AsyncDisposableStack BigInt BigInt64Array BigUint64Array Boolean DataView Date
DisposableStack Error EvalError Float16Array Float32Array Float64Array Function Infinity Int16Array Int32Array Int8Array
Intl Iterator JSON Map Math NaN Number Object Promise Proxy RangeError ReferenceError Reflect RegExp Set String
SuppressedError Symbol SyntaxError Temporal TextDecoder TextEncoder ToolError TypeError URIError URL URLSearchParams
Uint16Array Uint32Array Uint8Array Uint8ClampedArray WeakMap WeakSet atob btoa clearTimeout console crypto decodeURI
decodeURIComponent echo encodeURI encodeURIComponent escape eval exit globalThis image inputs isFinite isNaN output
parseFloat parseInt print setTimeout sleep structuredClone text tools undefined unescape
""".split()


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"  # what is looked at happens in the worker


@pytest.fixture(scope="module")
async def shared(anyio_backend: str) -> AsyncGenerator[Sandbox]:
    async with Sandbox(limits=SMALL) as opened:
        yield opened


def failing(tool: str, arguments: list[Any]) -> Any:
    raise ValueError("no")


async def test_the_globals_are_the_reviewed_ones(shared: Sandbox) -> None:
    out = await play(shared, "return Object.getOwnPropertyNames(globalThis).sort()")
    assert out.value == sorted(GLOBALS)


async def test_the_clock_stands_still_while_a_program_computes(shared: Sandbox) -> None:
    program = """
        const at = () => [Date.now(), new Date().getTime(), new Date(new Intl.DateTimeFormat('en', {
          dateStyle: 'short', timeStyle: 'medium', timeZone: 'UTC' }).format() + ' UTC').getTime()];
        const before = at();
        for (let i = 0; i < 1e5; i++);
        const after = at();
        await tools.echo(1);
        return [before, after, at()]"""
    start = 1_800_000_000_000
    out = await play(shared, program)
    assert out.value == [[start] * 3, [start] * 3, [start + 1, start + 1, start]]


async def test_the_same_seed_gives_the_same_chance(shared: Sandbox) -> None:
    program = "return [Math.random(), Math.random(), crypto.randomUUID()]"
    first, second = await play(shared, program), await play(shared, program)
    assert first.value == second.value
    assert first.value[0] != first.value[1]
    assert all(0 <= number < 1 for number in first.value[:2])


async def test_timers_are_told_to_the_host_and_run_when_it_says_so(shared: Sandbox) -> None:
    program = """
        const order = [];
        setTimeout(x => order.push(x), 30, 'a');
        const gone = setTimeout(() => order.push('never'), 10);
        clearTimeout(gone);
        setTimeout(() => order.push('b'), '5');
        await sleep(100);
        return order"""
    out = await play(shared, program)
    assert out.value == ["a", "b"]  # in the order in which the host fires them
    assert [timer.ms for timer in out.waves[0].timers] == [30, 10, 5, 100]
    assert out.waves[0].cleared == [out.waves[0].timers[1].id]


CONVERSIONS: list[tuple[str, Any, list[str]]] = [
    ("10n ** 20n", "100000000000000000000", ["$ was a BigInt and became a string"]),
    ("NaN", None, ["$ was NaN and became null"]),
    ("[1 / 0, -1 / 0]", [None, None], ["$[0] was Infinity and became null; $[1] was -Infinity and became null"]),
    ("new Date(0)", "1970-01-01T00:00:00.000Z", []),
    ("new Map([['a', 1]])", {"a": 1}, ["$ was a Map and became an object"]),
    ("new Map([[1, 2]])", [[1, 2]], ["$ was a Map and became a list of entries"]),
    ("({ s: new Set([1]) })", {"s": [1]}, ["$.s was a Set and became a list"]),
    ("({ e: new TypeError('x') })", {"e": {"name": "TypeError", "message": "x"}}, []),
    ("({ f: () => 1, u: undefined })", {}, ["$.f is a function and was dropped"]),
    ("({ s: Symbol('x') })", {}, ["$.s is a symbol and was dropped"]),
    ("(a => a.c = a)({})", {"c": "[Circular]"}, ["$.c refers back to an object that contains it"]),
    ("({ get a() { throw new Error('no') }, b: 1 })", {"a": "[Throws: no]", "b": 1}, ["$.a throws"]),
    ("({ toJSON() { throw 'no' } })", "[Throws: no]", ["$ throws"]),
    ("new Uint8Array([1, 2])", [1, 2], []),
    ("[Object('a'), Object(1), Object(false)]", ["a", 1, False], []),
    ("'😀'.slice(0, 1)", "\ufffd", []),
    ("({ ['😀'.slice(1)]: 1 })", {"\ufffd": 1}, []),
    ("JSON.rawJSON('\"\\\\ud83d\"')", "\ufffd", []),
    ("JSON.rawJSON('12345678901234567890')", 12345678901234567890, []),
    ("JSON.parse('{\"__proto__\": 1}')", {"__proto__": 1}, []),
]  # fmt: skip


@pytest.mark.parametrize(("expression", "value", "notices"), CONVERSIONS, ids=[row[0][:30] for row in CONVERSIONS])
async def test_a_value_leaves_as_the_table_says(
    expression: str, value: Any, notices: list[str], shared: Sandbox
) -> None:
    out = await play(shared, f"return {expression}")
    assert out.value == value
    assert [notice.message for notice in out.warnings if notice.code == "lossy_value"] == notices


async def test_no_value_is_told_from_null(shared: Sandbox) -> None:
    undefined, null = await play(shared, "return undefined"), await play(shared, "return null")
    assert bytes(undefined.end.value) == b""
    assert bytes(null.end.value) == b"null"


REFUSED = [
    ("NaN", "argument is NaN, which JSON cannot say: send a finite number or null"),
    ("{ a: [1n] }", "argument.a[0] is a BigInt, which JSON cannot say: send String(value) or Number(value)"),
    ("1, Infinity", "argument 2 is Infinity, which JSON cannot say: send a finite number or null"),
    ("CIRCLE", "argument[0] refers back to an object that contains it, which JSON cannot say"),
    ("'x'.repeat(2 << 20)", "the arguments are larger than 1048576 bytes (argument_bytes): send less, or a reference"),
    ("DEEP", "argument" + "[0]" * 97 + "[ is nested more than 200 levels deep"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "message"), REFUSED, ids=[row[0][:20] for row in REFUSED])
async def test_arguments_that_json_cannot_say_are_refused_where_they_are_made(
    arguments: str, message: str, shared: Sandbox
) -> None:
    program = """
        const CIRCLE = []; CIRCLE.push(CIRCLE);
        let DEEP = 1; for (let i = 0; i < 300; i++) DEEP = [DEEP];
        try { await tools.echo(%s) } catch (e) { return e.message }"""
    out = await play(shared, program % arguments)
    assert (out.value, out.calls) == (message, [])


async def test_half_characters_in_arguments_reach_the_host_mended(shared: Sandbox) -> None:
    out = await play(shared, "return await tools.echo('😀'.slice(0, 1), JSON.rawJSON('\"\\\\udc00\"'))")
    assert out.calls == [("echo", ["\ufffd", "\ufffd"])]


async def test_a_tools_error_is_an_error_of_the_realm(shared: Sandbox) -> None:
    program = """
        try { await tools.echo(1) } catch (e) {
          return [e instanceof Error, e instanceof ToolError, e.name, e.code, e.tool, e.retryable, e.details, e.message,
            Object.keys(e).sort(), e.stack]
        }"""
    out = await play(shared, program, failing)
    assert out.value[:8] == [True, True, "ToolError", "failed", "echo", False, None, "no"]
    assert out.value[8] == ["code", "details", "retryable", "tool"]
    assert out.value[9] == "ToolError: no\n    at echo (line 2)"


async def test_an_error_of_a_tool_that_nobody_catches_names_its_call(shared: Sandbox) -> None:
    out = await play(shared, "\nawait tools.echo(1)", failing)
    assert isinstance(out.end, Threw)
    assert (out.end.code, out.end.tool, out.end.message, out.end.line) == ("tool_error", "echo", "no", 2)


async def test_text_takes_anything_and_its_other_names_do_the_same(shared: Sandbox) -> None:
    out = await play(shared, "text('a', 1, {b: [null]}, undefined); print('p'); output(new Error('e')); return 1")
    assert out.text == ['a 1 {"b":[null]} undefined', "p", "Error: e"]
    out = await play(shared, "text(tools.echo(1)); return 1")
    assert [notice.message for notice in out.warnings if notice.code == "missing_await"] == [
        "text() was given a promise: write text(await ...)"
    ]


async def test_pictures_come_as_data_urls_or_parts(shared: Sandbox) -> None:
    out = await play(shared, "image('data:image/png;base64,AAAA'); image({mime_type: 'image/gif', data: 'BBBB'})")
    assert [(image.mime_type, image.data) for wave in out.waves for image in wave.images] == [
        ("image/png", "AAAA"),
        ("image/gif", "BBBB"),
    ]
    out = await play(shared, "image('AAAA')")
    assert isinstance(out.end, Threw)
    assert out.end.message == (
        'image() needs a data URL ("data:image/png;base64,..."), { mime_type, data } or a picture that a tool returned'
    )


@pytest.mark.parametrize(
    ("program", "value"),
    [
        ("exit(7); text('after')", 7),
        ("try { exit(7) } catch {} return 8", 7),
        ("try { exit(7) } finally { text('cleaned') }", 7),
        ("await null; exit()", None),
        ("setTimeout(() => exit(9), 1); await sleep(1e6)", 9),
    ],
)
async def test_exit_ends_the_program_with_its_value(program: str, value: Any, shared: Sandbox) -> None:
    out: Outcome = await play(shared, program)
    assert out.value == value
    assert "after" not in out.text


async def test_the_console_has_levels_and_cannot_be_replaced(shared: Sandbox) -> None:
    program = "for (const l of ['log', 'info', 'warn', 'error', 'debug']) console[l](l, {a: 1}); console.log = null"
    out = await play(shared, program)
    assert [(log.level, log.message) for log in out.logs] == [
        (level, f'{level} {{"a":1}}') for level in ("log", "info", "warn", "error", "debug")
    ]
    assert isinstance(out.end, Threw)
    assert out.end.name == "TypeError"


async def test_strings_make_no_code(shared: Sandbox) -> None:
    for code in ("eval('1')", "new Function('return 1')", "(async () => {}).constructor('1')", "setTimeout('1', 1)"):
        out = await play(shared, f"return {code}")
        assert isinstance(out.end, Threw), code


# ---- a program is one function ---------------------------------------------------------------------------------------

CLOSING = [
    "}); text('ran'); (async function(){",
    "}}); text('ran'); (async function(){{",
    "} text('ran'); {",
    "}} text('ran'); {{",
    "}]; text('ran'); [async function(){",
    "}, text('ran'), async function(){",
    "}})); text('ran'); ((async function(){{",
    "}, text('ran'), async () => {",
    "}, function a() {}, function a() {}, async function(){ function a() {} function a() {}",
    "}; static { text('ran') } static x = function(){",
    "*/ }); text('ran'); (async function(){ /*",
    "let s; break s }}); text('ran'); (async function(){ s: {",
]
UNFINISHED = [
    "if (true)", "if (true); else", "x =", "const x =", "here:", "while (false)", "do", "for (;;)", "throw", "new",
    "return (", "async () =>", "class A extends", "await", "return `", "return 1 /*", "a ? b :", "switch (1) {",
    "return {", "try {} finally",
]  # fmt: skip
WHOLE = {
    "function a() { return 1 }\nfunction a() { return 2 }\nreturn a()": 2,
    "var a = 3; function a() {}\nreturn a": 3,
    "return 4 // the last line": 4,
    "return 5\n<!-- of a page": 5,
    "s: for (;;) { break s }\nreturn 6": 6,
    "let s = 7\nreturn s": 7,
    "const late = () => early\nconst early = 8\nreturn late()": 8,
    "'use strict'; return this === undefined ? 9 : 0": 9,
}


@pytest.mark.parametrize("program", [*CLOSING, *UNFINISHED])
async def test_text_that_is_not_one_function_is_refused_and_nothing_of_it_runs(program: str, shared: Sandbox) -> None:
    out = await play(shared, program)
    assert isinstance(out.end, Threw)
    assert (out.end.code, out.text) == ("syntax_error", [])


async def test_text_that_is_nested_too_deeply_is_refused_with_the_reason(shared: Sandbox) -> None:
    out = await play(shared, f"return {'[' * 20_000}{']' * 20_000}")
    assert isinstance(out.end, Threw)
    assert (out.end.code, out.end.message) == ("syntax_error", "the program is nested too deeply to be read")


@pytest.mark.parametrize(("program", "value"), WHOLE.items())
async def test_text_that_is_one_function_runs_whatever_it_is_wrapped_in(
    program: str, value: int, shared: Sandbox
) -> None:
    assert (await play(shared, program)).value == value
