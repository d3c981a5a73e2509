"""What a model is told when its program does not parse or throws: the code, the place, and what to write instead."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sandbox import source
from sandbox.messages import Threw
from sandbox.source import refusals

from .scripts_v8 import TOOLS, ScriptsV8


@pytest.fixture(scope="module")
def v8() -> Iterator[ScriptsV8]:
    with ScriptsV8() as opened:
        yield opened


CUT_OFF = "the program seems cut off: nothing of it has run; send the whole program"
ASYNC = (
    "this `await` stands in a function that is not async: write `async` before its parameters, and "
    "`await Promise.all(items.map(async item => ...))` for a callback of map"
)
GLOBALS = (
    "the globals here are tools, inputs, text, image, exit, sleep, setTimeout, console, URL, TextEncoder, TextDecoder, "
    "atob, btoa, structuredClone, crypto.randomUUID and JavaScript's own"
)
NETWORK = "there is no network here: what a program reaches outside goes through `tools`"
MODULES = "there are no modules here: the tools are the global `tools`, everything else is plain JavaScript"

# Each: the program, the message, the line and column, the hint.
SYNTAX: list[tuple[str, str, int, int, str]] = [
    ("const ids = [1];\nids.map(id => (await tools.echo({})).x);", "Unexpected identifier 'tools'", 2, 16, ASYNC),
    ("[1].map(x => await x)", "missing ) after argument list", 1, 14, ASYNC),
    (
        "[1].forEach(function (x) { await x });",
        "await is only valid in async functions and the top level bodies of modules",
        1,
        28,
        ASYNC,
    ),
    (
        'return "a\nb";',
        "Invalid or unexpected token",
        1,
        8,
        "the string that begins on line 1 has a line break in it: use a template literal (`...`) or write \\n",
    ),
    (
        "return “a”;",
        "Invalid or unexpected token",
        1,
        8,
        'U+201C (“) is a typographic quote: use " instead',
    ),
    (
        "const x = 1;\nreturn x\u200b;",
        "Invalid or unexpected token",
        2,
        9,
        "an invisible character, U+200B (ZERO WIDTH SPACE), stands in this line: remove it",
    ),
    (
        "return 5 \u2212 3;",
        "Invalid or unexpected token",
        1,
        10,
        "U+2212 (\u2212, minus sign) is not JavaScript: write - instead",
    ),
    (
        "const r = 1;\nreturn r.filter(o => o.st",
        "Unexpected end of input: the `(` opened on line 2 is never closed",
        2,
        26,
        CUT_OFF,
    ),
    ("if (a) {\n  b()\n\n", "Unexpected end of input: the `{` opened on line 1 is never closed", 2, 6, CUT_OFF),
    ("return `a", "Unexpected end of input: the template literal (`) opened on line 1 is never closed", 1, 10, CUT_OFF),
    ('return "a', 'Unexpected end of input: the string (") opened on line 1 is never closed', 1, 10, CUT_OFF),
    ("/* a", "Unexpected end of input: the comment (/*) opened on line 1 is never closed", 1, 5, CUT_OFF),
    (
        "return 1 +",
        "Unexpected end of input (Unexpected token '}')",
        1,
        11,
        "the program stops in the middle of a statement: send the whole program",
    ),
    ("return 1 }", "Unexpected token '}'", 1, 10, "the `}` on line 1 closes nothing that is open"),
    ("return [1, (2]", "Unexpected token ']'", 1, 14, "the `(` of line 1 is still open where the `]` on line 1 stands"),
    (
        "import asyncio\norders = await tools.list_orders()",
        "Cannot use import statement outside a module",
        1,
        1,
        "this looks like Python: programs here are JavaScript",
    ),
    ("SELECT a FROM b WHERE c", "Unexpected identifier 'a'", 1, 8, "this looks like SQL: programs here are JavaScript"),
    (
        "curl https://a.example/b",
        "Unexpected identifier 'https'",
        1,
        6,
        "this looks like a shell command: programs here are JavaScript",
    ),
    (
        "return <b>hi</b>",
        "Unexpected token '<'",
        1,
        8,
        "JSX and HTML are no JavaScript here: build text with template literals",
    ),
    (
        "const x = 1;\nconst x = 2;",
        "Identifier 'x' has already been declared",
        2,
        7,
        "`x` is declared twice in one scope: rename one, or assign without `const` or `let`",
    ),
    (
        "Here is what I would do: nothing.",
        "Unexpected identifier 'is'",
        1,
        6,
        "send exactly one code block: the whole program, and nothing else",
    ),
    (
        "return import.meta",
        "Cannot use 'import.meta' outside a module",
        1,
        15,
        "there are no modules here: the tools are the global `tools`",
    ),
    (
        "function f() { export default 1 }",
        "Unexpected token 'export'",
        1,
        16,
        "there are no modules here: leave out `export` and return the value",
    ),
    ("@a class B {}", "Invalid or unexpected token", 1, 1, "decorators are not supported: call the function instead"),
    (
        "return 010;",
        "Octal literals are not allowed in strict mode.",
        1,
        8,
        "programs are strict: write it as a module would",
    ),
]


@pytest.mark.parametrize("row", SYNTAX, ids=[row[0] for row in SYNTAX])
def test_a_program_that_does_not_parse_is_explained(v8: ScriptsV8, row: tuple[str, str, int, int, str]) -> None:
    program, message, line, column, hint = row
    assert v8(program).threw == Threw("syntax_error", "SyntaxError", message, line, column, hint)


# Each: the program, the code, the hint.
RUNTIME: list[tuple[str, str, str]] = [
    ("await fetch('https://a.example')", "reference_error", NETWORK),
    (
        "process.env.KEY",
        "reference_error",
        "there is no process and no environment here: what the host gives a program is in `inputs`",
    ),
    ("require('node:fs')", "reference_error", MODULES),
    ("return None", "reference_error", "programs are JavaScript, not Python: write `null`"),
    ("pwd", "reference_error", "this is no shell: programs are JavaScript"),
    (
        "await callTool('get_order', {})",
        "reference_error",
        "call the tool itself: `await tools.get_order({ ... })`",
    ),
    ("await codemode.getOrder({})", "reference_error", "tools are called as `await tools.get_order({ ... })`"),
    (
        "await carrier.track_parcel({})",
        "reference_error",
        "tools are called as `await tools.carrier.track_parcel({ ... })`",
    ),
    ("await getOrder({})", "reference_error", "did you mean `tools.get_order`?"),
    ("const orders = 1; ordrs", "reference_error", "did you mean `orders`?"),
    ("total = 5", "reference_error", "declare it first: `let total = ...`"),
    (
        "for (const o of [1]) { const z = o }\nz",
        "reference_error",
        "`z` is declared on line 1, inside a block or function that this line is not in",
    ),
    (
        "b();\nconst b = 1;",
        "reference_error",
        "`b` is used before the line that declares it (line 2): move one of them",
    ),
    ("unheardOf", "reference_error", GLOBALS),
    (
        "const x = 1; x &lt; 5",
        "reference_error",
        "the text has HTML entities in it: send the characters themselves",
    ),
    (
        "[1].map<Foo>(5)",
        "reference_error",
        GLOBALS,
    ),
    (
        "const n = await tools.echo({ value: 1 })\n(async () => {})()",
        "type_error",
        "line 2 begins with `(` and continues line 1: a semicolon is missing at the end of line 1",
    ),
    (
        "const a = 1\n[1, 2].forEach(x => x)",
        "type_error",
        "line 2 begins with `[` and continues line 1: a semicolon is missing at the end of line 1",
    ),
    (
        "const r = tools.list_orders({});\nreturn r.items.length;",
        "type_error",
        "`await` is missing: `r` is a promise; write `await tools.list_orders(...)` on line 1",
    ),
    (
        "const r = tools.list_orders({});\nreturn r.map(x => x);",
        "type_error",
        "`await` is missing: `r` is a promise; write `await tools.list_orders(...)` on line 1",
    ),
    (
        "async function all() { return [1] }\nconst r = all();\nreturn r.map(x => x)",
        "type_error",
        "`await` is missing: `r` is a promise; write `await all(...)` on line 2",
    ),
    (
        "return await tools.list_orders({}).items.length",
        "type_error",
        "`await` is missing: write `(await tools.list_orders(...))` with the brackets, then the member",
    ),
    (
        "for (const o of tools.list_orders({})) {}",
        "type_error",
        "`await` is missing: write `await tools.list_orders(...)`",
    ),
    (
        "const r = [1].map(async (x) => x);\nreturn r[0].a.b",
        "type_error",
        "`r` is an array of promises: write `await Promise.all(...)` around the map",
    ),
    (
        "const r = await tools.list_orders({});\nreturn r.map(x => x);",
        "type_error",
        "what tools.list_orders returned (line 1) is not an array: look at it first (`return Object.keys(r)`)",
    ),
    (
        "const o = await tools.nothing({});\nreturn o.items.length;",
        "type_error",
        "`o` is what tools.nothing returned on line 1: null; check for it before reading `items`",
    ),
    (
        "const o = await tools.get_order({ order_id: 'A1' });\nreturn o.customer.name;",
        "type_error",
        (
            "`o.customer` is undefined: what tools.get_order returned on line 1 has no such member; "
            "look at it first (`return o;`)"
        ),
    ),
    (
        "const { a } = await tools.nothing({});",
        "type_error",
        "tools.nothing returned null: check for it before taking `a` out of it",
    ),
    (
        "const name = 'list_order';\nawait tools[name]({})",
        "type_error",
        "there is no tool of that name: the nearest tools are tools.list_orders, tools.get_order",
    ),
    (
        "const t = tools;\nawait t.list_order({})",
        "type_error",
        "`t` is `tools`, and there is no tool list_order: the nearest tools are tools.list_orders, tools.get_order",
    ),
    (
        "const { list_order } = tools;\nawait list_order({})",
        "type_error",
        "`tools` has no list_order: the nearest tools are tools.list_orders, tools.get_order",
    ),
    ("const x = 3; x = 4;", "type_error", "declare the variable with `let` to assign to it again"),
    (
        "return JSON.parse(await tools.list_orders({}))",
        "threw",
        "the value is already an object, or plain text: use it as it is, without JSON.parse",
    ),
    ("return JSON.parse(tools.list_orders({}))", "threw", "`await` is missing: JSON.parse was given a promise"),
    ("return eval('1')", "eval_disabled", "eval and Function are switched off: write the code itself into the program"),
    (
        "const f = () => f();\nf()",
        "threw",
        "a function calls itself without end, or too deeply: use a loop",
    ),
    ("throw new TypeError('mine')", "type_error", ""),
    ("throw new Error('mine')", "threw", ""),
]


@pytest.mark.parametrize("row", RUNTIME, ids=[row[0] for row in RUNTIME])
def test_an_error_is_explained(v8: ScriptsV8, row: tuple[str, str, str]) -> None:
    program, code, hint = row
    threw = v8(program).threw
    assert threw is not None
    assert (threw.code, threw.hint) == (code, hint)


def test_a_dynamic_import_fails_as_a_static_one_does(v8: ScriptsV8) -> None:
    threw = v8("const m = 1;\nawait import('node:fs')").threw
    assert threw is not None
    assert (threw.code, threw.message, threw.line, threw.hint) == (
        "module_not_available",
        'import of "node:fs": there are no modules here',
        2,
        "remove the import; there are no files or processes here: call a tool",
    )


@pytest.mark.parametrize("text", ["", "a /* b */ `${`c${d}`}` // e", "x = a / b / c; /[/(]/.test(x)", "'(' + \"[\""])
def test_nothing_is_open_in_balanced_text(text: str) -> None:
    assert refusals.unclosed(text) is None


def test_a_hint_that_cannot_be_found_costs_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: str) -> str:
        raise RecursionError

    monkeypatch.setattr("sandbox.source.unwrap.visible", broken)
    threw = Threw("", "TypeError", "x is not a function", 1, 1)
    assert source.explain("x()", None, threw, TOOLS) == Threw("type_error", "TypeError", "x is not a function", 1, 1)
    script = source.prepare("x", TOOLS)
    assert isinstance(script, source.Script)
    assert source.syntax_error("x", script, "SyntaxError: no", 2, 1) == Threw("syntax_error", "SyntaxError", "no", 1, 1)
