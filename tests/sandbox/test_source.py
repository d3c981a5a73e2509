"""The forms of programs: what each means, what is refused before anything runs, and that positions are the model's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sandbox import source
from sandbox.messages import Threw, ToolName
from sandbox.source import Script, edits, forms
from tests.conftest import cases

from .scripts_v8 import TOOLS, ScriptsV8

PLAIN = "(async function(){{'use strict';\n{}\n}})\n//# sourceURL=program"
FENCE = "```"


@pytest.fixture(scope="module")
def v8() -> Iterator[ScriptsV8]:
    with ScriptsV8() as opened:
        yield opened


def prepared(program: str) -> Script:
    script = source.prepare(program, TOOLS)
    assert isinstance(script, Script), script
    return script


# Each: the program, its value, the codes of its notices.
FORMS: dict[str, tuple[str, Any, list[str]]] = {
    "fence": (f"{FENCE}js\nreturn 5;\n{FENCE}", 5, []),
    "prose around a fence": (f"Here:\n\n{FENCE}javascript\nreturn 5;\n{FENCE}\nIt returns 5.", 5, []),
    "fence that is not closed": (f"{FENCE}\nreturn 5", 5, []),
    "fence that is not opened": (f"return 5\n{FENCE}", 5, []),
    "fence on one line": (f"{FENCE}js return 5; {FENCE}", 5, []),
    "tilde fence": ("~~~js\nreturn 5\n~~~", 5, []),
    "indented fence in a list": (f"1. Do this:\n   {FENCE}js\n   return 5\n   {FENCE}", 5, []),
    "quoted fence": (f"> {FENCE}js\n> return 5\n> {FENCE}", 5, []),
    "fence closed on the last line of code": (f"{FENCE}js\nreturn 5;{FENCE}", 5, []),
    "fence in a comment is code": (f"/*\n{FENCE}js\nfoo()\n{FENCE}\n*/\nreturn 5", 5, []),
    "fence in a string is data": (f'return "{FENCE}js\\nreturn 1\\n{FENCE}"', f"{FENCE}js\nreturn 1\n{FENCE}", []),
    "language word": ("TypeScript\n\nreturn 5", 5, []),
    "language word that is a variable": ("const js = 5;\njs", 5, []),
    "JSON": ('{"code": "const x = 4;\\nreturn x + 1;"}', 5, ["source_repaired"]),
    "JSON with another member": ('{"script": "return 5", "timeout": 3}', 5, ["source_repaired"]),
    "JSON around a fence": (f'{{"program": "{FENCE}js\\nreturn 5\\n{FENCE}"}}', 5, ["source_repaired"]),
    "JSON that is the value": ('{"total": 5}', {"total": 5}, []),
    "tag": ("<script>\nreturn 5\n</script>", 5, ["source_repaired"]),
    "HTML entities": ("return &quot;a&quot; === 'a' &amp;&amp; 5 &gt; 4", True, ["source_repaired"]),
    "HTML entities in a string": ('return "a &amp; b"', "a &amp; b", []),
    "escaped line breaks": ('const x = \\"a\\";\\nreturn x;', "a", ["source_repaired"]),
    "escapes in a string": ('return "a\\nb".length', 3, []),
    "trailing expression": ("const x = 4;\nx + 1 // done", 5, []),
    "trailing expression with semicolons": ("const x = 4;\nx + 1;;\n// done", 5, []),
    "trailing object": ("const a = 1;\n({ a })", {"a": 1}, []),
    "trailing object without brackets": ("const a = 1, b = 2;\n{ a, b }", {"a": 1, "b": 2}, []),
    "trailing template": ("`a\n${1 + 1}`", "a\n2", []),
    "trailing expression after a return": ("if (inputs.n > 9) return 'big';\n'small'", "small", []),
    "return before a trailing expression": ("if (inputs.n > 3) return 'big';\n'small'", "big", []),
    "trailing loop": ("for (let i = 0; i < 2; i++) { i }", None, []),
    "directive alone": ("'use strict'", None, []),
    "string alone": ("'hello'", "hello", []),
    "arrow alone": ("async () => { return 5 }", 5, []),
    "arrow with tools": ("async (tools) => (await tools.get_order({ order_id: 'A1' })).total", 10, []),
    "arrow with both": ("async ({ tools, inputs }) => inputs.n", 5, []),
    "arrow with a context": ("async (ctx) => typeof ctx.tools.get_order", "function", []),
    "anonymous function alone": ("function () { return 5 }", 5, []),
    "function alone": ("async function report(inputs) { return inputs.n }", 5, []),
    "function and helpers": ("const inc = (x) => x + 1;\nfunction report() { return inc(4) }", 5, []),
    "main": ("const k = 4;\nasync function main() { return k + 1 }", 5, []),
    "main as a constant": ("const main = async () => 5;", 5, []),
    "main that is called": ("main();\nasync function main() { return 5 }", 5, []),
    "two of them": (
        "function main() { return 1 }\nfunction run() { return 2 }\nconst x = 5;",
        5,
        ["value_from_last_binding"],
    ),
    "immediately called": ("(async () => 5)()", 5, []),
    "class": ("class Job { async run() { return 5 } }\nnew Job().run()", 5, []),
    "export default function": (
        "export default async function run(tools) { return typeof tools.echo }",
        "function",
        [],
    ),
    "export default anonymous": ("export default async function () { return 5 }\n(1 + 1)", 5, []),
    "export default arrow": ("const k = 5;\nexport default async () => k", 5, []),
    "export default object": ("export default { async run(inputs) { return inputs.n } }", 5, []),
    "export default class": ("export default class Job { run() { return 5 } }", 5, []),
    "export default name": ("export default main;\nfunction main() { return 5 }", 5, []),
    "export default value": ("export default\n  2 + 3;", 5, []),
    "export as default": ("function f() { return 5 }\nexport { f as default };", 5, []),
    "export function": ("export async function handler() { return 5 }", 5, []),
    "module.exports": ("module.exports = async () => 5", 5, []),
    "module.exports object": ("module.exports = { run: async (inputs) => inputs.n };", 5, []),
    "exports.main": ("exports.main = async () => 5;", 5, []),
    "last binding": ("const a = 4;\nlet b = a + 1;", 5, ["value_from_last_binding"]),
    "last binding of a promise": ("const r = (async () => 5)();", 5, ["value_from_last_binding"]),
    "last binding of a pattern": (
        "const { a, b: [c] } = { a: 1, b: [2] };",
        {"a": 1, "c": 2},
        ["value_from_last_binding"],
    ),
    "result": ("result = (await tools.echo({ value: 5 }));", 5, []),
    "result in a loop": ("result = [];\nfor (const i of [1, 2]) result.push(i);", [1, 2], []),
    "result, then a log": ("answer = 5; console.log(answer)", 5, []),
    "result that is declared": ("let result = 4; result = 5;", 5, []),
    "import from tools": (
        'import { get_order as g } from "./tools.js";\nreturn (await g({ order_id: "A1" })).total',
        10,
        ["import_rewritten"],
    ),
    "import all tools": ('import * as tools from "tools";\nreturn typeof tools.echo', "function", ["import_rewritten"]),
    "import a twin": (
        'import {\n  getOrder\n} from "tools";\nreturn typeof getOrder',
        "function",
        ["import_rewritten"],
    ),
    "import a namespace": (
        'import { trackParcel } from "@tools/carrier";\nreturn await trackParcel({})',
        "moving",
        ["import_rewritten"],
    ),
    "require tools": ('const tools = require("tools");\nreturn typeof tools.echo', "function", ["import_rewritten"]),
    "require a tool": ('const { echo } = require("./tools");\nreturn typeof echo', "function", ["import_rewritten"]),
    "twin": ("return (await tools.getOrder({ order_id: 'A1' })).total", 10, ["tool_alias"]),
    "twin in brackets": ("return (await tools['get-order']({ order_id: 'A1' })).total", 10, ["tool_alias"]),
    "twin of a kebab name": ("return (await tools.getTeamMembers({})).length", 2, ["tool_alias"]),
    "twin in a namespace": ("return await tools.carrier.trackParcel({})", "moving", ["tool_alias"]),
    "twin across a namespace": ("return await tools.carrier_track_parcel({})", "moving", ["tool_alias"]),
    "unknown tool behind a guard": ("return tools.nope ? await tools.nope() : 5", 5, []),
    "unknown tool behind typeof": ("return typeof tools.nope === 'function' ? tools.nope() : 5", 5, []),
    "unknown tool behind in": ("return 'nope' in tools ? tools.nope() : 5", 5, []),
    "unknown tool called optionally": ("return tools.nope?.() ?? 5", 5, []),
    "tools of its own": ("const f = (tools) => tools.nope(); return f({ nope: () => 5 })", 5, []),
    "name of every object": ("try { tools.constructor() } catch (e) { return e.name }", "TypeError", []),
    "hashbang": ("#!/usr/bin/env node\nreturn 5", 5, []),
    "HTML comments": ("<!-- plan -->\n5\n--> done", 5, []),
    "byte order mark": ("\ufeffconst x = 5;\nx", 5, []),
    "CR LF": ("const x = 5;\r\nx\r\n", 5, []),
    "line separator in a string": ("'a\u2028b'.length", 3, []),
    "NUL in a string": ("'a\0b'.length", 3, []),
    "using": ("using r = null;\n5", 5, []),
    "for await": ("let n = 0;\nfor await (const x of [2, 3]) n += x;\nn", 5, []),
    "regular expression": ("const x = 10 / 2 / 1;\n/[/]/u.test('/') && x", 5, []),
    "looks like TypeScript": ("const a = 1, b = 2, c = 3, f = (x) => x;\nreturn f(a < b, c > (1))", True, []),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_form_has_its_value(v8: ScriptsV8, form: str) -> None:
    program, value, notices = FORMS[form]
    ended = v8(program)
    assert (ended.threw, ended.value, ended.notices) == (None, value, notices)


REFUSED: dict[str, tuple[str, str, str, int, int]] = {
    "two fences": (
        f"{FENCE}js\nreturn 1;\n{FENCE}\nthen\n{FENCE}js\nreturn 2;\n{FENCE}",
        "syntax_error",
        "the text has more than one code block, and which one is the program is not clear",
        5,
        1,
    ),
    "nothing": (" \n\t", "empty_program", "the program is empty", 1, 1),
    "import": (
        '// a\nimport _ from "lodash";',
        "module_not_available",
        'import of "lodash": there are no modules here',
        2,
        1,
    ),
    "re-export": ('export * from "x"', "module_not_available", 'import of "x": there are no modules here', 1, 1),
    "import in a fence": (
        f"Look:\n{FENCE}js\nimport fs from 'fs';\n{FENCE}",
        "module_not_available",
        'import of "fs": there are no modules here',
        3,
        1,
    ),
    "unknown tool": (
        "const a = 1;\nreturn await tools.get_orders_by_customer({})",
        "unknown_tool",
        "there is no tool tools.get_orders_by_customer: the nearest tools are tools.get_order, tools.list_orders",
        2,
        14,
    ),
    "unknown tool in a namespace": (
        "tools.carrier.nope({})",
        "unknown_tool",
        "there is no tool tools.carrier.nope: the nearest tool is tools.carrier.track_parcel",
        1,
        1,
    ),
    "unknown imported tool": (
        'import { list_order } from "tools";',
        "unknown_tool",
        "there is no tool tools.list_order: the nearest tools are tools.list_orders, tools.get_order",
        1,
        10,
    ),
    "unknown tool in TypeScript": (
        "const a: Array<string> = []; tools.list_order({})",
        "unknown_tool",
        "there is no tool tools.list_order: the nearest tools are tools.list_orders, tools.get_order",
        1,
        30,
    ),
    "dotted namespace": (
        "namespace A.B { export const x = 1 }",
        "syntax_error",
        "a TypeScript namespace with the name `A.B` cannot run here",
        1,
        1,
    ),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_cannot_run_is_refused_before_anything_runs(kind: str) -> None:
    program, code, message, line, column = REFUSED[kind]
    threw = source.prepare(program, TOOLS)
    assert isinstance(threw, Threw)
    assert (threw.code, threw.message, threw.line, threw.column) == (code, message, line, column)


def test_two_code_blocks_are_refused_with_what_to_send() -> None:
    threw = source.prepare(f"{FENCE}\n1\n{FENCE}\n{FENCE}\n2\n{FENCE}", [])
    assert isinstance(threw, Threw)
    assert threw.hint == "send exactly one code block: the whole program, and nothing else"


def test_a_catalog_without_tools_says_so() -> None:
    threw = source.prepare("await tools.echo({})", [])
    assert isinstance(threw, Threw)
    assert threw.message == "there is no tool tools.echo: no tool was given to this program"


@pytest.mark.parametrize(
    ("program", "text"),
    [
        ("const x = 1;\nreturn x;", "const x = 1;\nreturn x;"),
        ("\tif (a) {\n return `é${1}` }\n// end", "\tif (a) {\n return `é${1}` }\n// end"),
        (f"{FENCE}js\n return 5;\n{FENCE}", " return 5;\n"),
        ("this is not JavaScript", "this is not JavaScript"),
    ],
)
def test_what_needs_no_change_is_embedded_byte_for_byte(program: str, text: str) -> None:
    assert prepared(program).js == PLAIN.format(text)


# Each: the program, where V8 stops in it, and what stands there in the model's text.
PLACES = [
    "throw new Error('x')",
    f"Prose.\n{FENCE}js\n\n  throw new Error('x')\n{FENCE}",
    "const a = 1;\nconst b: Map<string, number> = new Map<string, number>(); throw new Error('x')",
    "const é = '😀', z = tools.getOrder({ order_id: 'A1' }); throw new Error('x')",
    "import {\n  echo,\n  list_orders } from 'tools'; throw new Error('x')",
    "const s = &quot;a&quot;, t = 1 &amp;&amp; 2; throw new Error('x')",
    "enum E { A, B = 3 } const e: E = E.A; throw new Error('x')",
    "class P { constructor(private a: number) { throw new Error('x') } }\nnew P(1)",
    "const a = 'a\u2028b';\r\nthrow new Error('x')",
    "result = 1;\nexport default async () => { throw new Error('x') }",
]


@pytest.mark.parametrize("program", PLACES)
def test_an_error_is_placed_in_the_text_that_the_model_sent(v8: ScriptsV8, program: str) -> None:
    threw = v8(program).threw
    assert threw is not None
    assert (threw.line, threw.column) == edits.Text(program.encode()).place(program.encode().index(b"new Error"))


def test_a_trailing_expression_keeps_its_place(v8: ScriptsV8) -> None:
    threw = v8("const x = null;\n  x.total.sum").threw
    assert threw is not None
    assert (threw.line, threw.column) == (2, 5)


@pytest.mark.parametrize(
    ("program", "notices"),
    [
        (
            "const a = 1;\nconst v = tools.echo({ value: a });\nreturn v.x;",
            [("missing_await", "`x` is read from a promise and is undefined: write `await tools.echo(...)`", 3)],
        ),
        (
            "return tools.carrier.track_parcel({}).x",
            [
                (
                    "missing_await",
                    "`x` is read from a promise and is undefined: write `await tools.carrier.track_parcel(...)`",
                    1,
                )
            ],
        ),
        ("return (await tools.echo({})).x", []),
        ("const v = await tools.echo({});\nreturn v.x", []),
        ("const v = tools.echo({});\nreturn v.then((x) => x)", []),
        ("const v = tools.echo({});\nreturn (await v).x", []),
        ("let v = tools.echo({});\nv = await v;\nreturn v.x", []),
        ("const v = tools.echo;\nreturn v.name", []),
    ],
)
def test_a_member_read_from_the_promise_of_a_call_is_warned_of(
    program: str, notices: list[tuple[str, str, int]]
) -> None:
    assert [(each.code, each.message, each.line) for each in prepared(program).notices] == notices


@pytest.mark.parametrize(
    ("program", "lines"),
    [
        ("await new Promise(() => {});\nreturn 1", (1,)),
        ("await tools.echo({});\nawait (tools.carrier.track_parcel({}));\nawait echo({});\nawait sleep(5);", ()),
        (f"Prose\n{FENCE}\nconst p = tools.echo({{}});\nfor await (const x of p) await x;\n{FENCE}", (4,)),
        ("await Promise.all([tools.echo({})]);\nawait tools.echo({}).then((x) => x);", (1, 2)),
    ],
)
def test_awaits_that_wait_for_no_tool_are_named(program: str, lines: tuple[int, ...]) -> None:
    assert prepared(program).awaits == lines


def test_a_fault_in_the_preparer_leaves_the_program_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> forms.Plan:
        raise RecursionError

    monkeypatch.setattr(forms, "plan", broken)
    assert prepared("1 + 1").js == PLAIN.format("1 + 1")


@pytest.mark.parametrize("opening", ["[", "(", "{", "`${", "a(", "!", "a=>", "a+", "a.b?", "<a>", "a<b>("])
def test_deep_nesting_is_prepared_like_anything_else(opening: str) -> None:
    closing = {"[": "]", "(": ")", "{": "}", "`${": "}`", "a(": ")"}.get(opening, "")
    for program in (opening * 20_000 + "1" + closing * 20_000, opening * 20_000):
        assert isinstance(source.prepare(program, TOOLS), Script | Threw)


def test_the_fingerprint_names_the_text_that_decides() -> None:
    assert "def strip(" in source.fingerprint()


def test_a_warm_up_raises_nothing() -> None:
    source.warm()


PROGRAMS = [case["js"] for case in cases("programs")]
_PIECES = st.sampled_from(
    [
        *PROGRAMS,
        FENCE,
        "js\n",
        "\n",
        "}",
        "{",
        "(",
        "`",
        '"',
        "export default ",
        "import x from ",
        "enum A {",
        ": number",
        "tools.",
        "\u2028",
        "\0",
        "😀",
    ]
)


@settings(max_examples=300, deadline=None)
@given(st.one_of(st.text(), st.lists(_PIECES, max_size=6).map("".join)))
@example("{" * 100 + '"code":1')
def test_no_text_makes_the_preparer_raise_or_lose_a_line(program: str) -> None:
    script = source.prepare(program, TOOLS)
    if isinstance(script, Script):
        assert isinstance(source.syntax_error(program, script, "SyntaxError: Unexpected token '}'", 2, 1), Threw)
        threw = Threw(code="", name="TypeError", message="a.b is not a function", line=1, column=1)
        assert source.explain(program, script, threw, TOOLS).code == "type_error"


@settings(max_examples=100, deadline=None)
@given(st.text(st.characters(codec="utf-8")), st.integers(0, 50), st.integers(0, 50))
def test_any_position_of_v8_becomes_one_of_the_model(program: str, line: int, column: int) -> None:
    script = source.prepare(program, [ToolName("a", ("a",))])
    if isinstance(script, Script):
        at = script.position(line, column)
        assert at[0] >= 0
        assert at[1] >= 0
