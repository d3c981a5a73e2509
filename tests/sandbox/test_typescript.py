"""TypeScript without its types: what is left stands where it stood, and means what it meant."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox.source import edits, syntax, typescript
from sandbox.source.edits import Text

from .scripts_v8 import ScriptsV8


@pytest.fixture(scope="module")
def v8() -> Iterator[ScriptsV8]:
    with ScriptsV8() as opened:
        yield opened


def stripped(program: str) -> str:
    text = Text(program.encode())
    tree = syntax.typescript(text.data)
    assert tree is not None, program
    return edits.apply(text, typescript.strip(tree, text))[0].decode()


# Each: TypeScript, and the JavaScript that is left of it, column for column.
BLANKED = [
    ("const a: number = 1;", "const a         = 1;"),
    ("const a: 'é😀' = b;", "const a        = b;"),
    ("let a!: A, b: B;", "let a    , b   ;"),
    ("const { p }: { p: A } = q;", "const { p }           = q;"),
    ("const f = (a: A, b?: B): C => a;", "const f = (a   , b    )    => a;"),
    ("const f = (a): a is B => a;", "const f = (a)         => a;"),
    ("function f<T>(this: A, a?: T): asserts a is T {}", "function f   (         a    )                 {}"),
    ("function f(this: A) {}", "function f(       ) {}"),
    ("async <T,>(a: T) => a;", "async     (a   ) => a;"),
    ("try {} catch (e: unknown) {}", "try {} catch (e         ) {}"),
    ("x as const; y satisfies Y;", "x         ; y            ;"),
    ("a = b as unknown as C;", "a = b                ;"),
    ("(x as any).y!.z![0]!();", "(x       ).y .z [0] ();"),
    ("for (const x of y as T[]) {}", "for (const x of y       ) {}"),
    ("new Map<string, number>();", "new Map                ();"),
    ("const g = f<string>;", "const g = f        ;"),
    ("const s = sql<Row>`x`; let t: T;", "const s = sql     `x`; let t   ;"),
    ("type A = B;", ";          "),
    ("interface A {\n  a: 'é';\n}", ";            \n         \n "),
    ("declare const z: A;", ";                  "),
    ("declare module 'x' { }", ";                     "),
    ("function f(a: A): void;\nfunction f(a) {}", ";                      \nfunction f(a) {}"),
    ("import type { A } from 'x';", ";                          "),
    ("import { type A, b } from 'x';", "import {         b } from 'x';"),
    ("import { type A } from 'x';", ";                          "),
    ("export type { A };", ";                 "),
    ("export { a, type B };", "export { a,        };"),
    ("export interface A {}", ";                    "),
    ("import a = require('x');", "const  a = require('x');"),
    ("abstract class A {}", "         class A {}"),
    ("class A<T> extends B<T> implements C {}", "class A    extends B                 {}"),
    ("class A { private readonly x = 1 }", "class A { ;                x = 1 }"),
    ("class A { x: number; y?: A }", "class A { x       ;; y   ; }"),
    ("class A { declare x: A; z }", "class A { ;           ; z }"),
    ("class A { [k: string]: A; z }", "class A { ;             ; z }"),
    ("class A { a(x: A): void; a(x) {} }", "class A { ;            ; a(x) {} }"),
    ("class A { static override async a?(): B {} }", "class A { static          async a ()    {} }"),
    ("abstract class A { protected abstract a(): B; }", "         class A { ;                        ; }"),
    # Where blanks alone would change the meaning.
    ("const a = b\ntype A = B\n(c)", "const a = b\n;         \n(c)"),
    ("const a = b as B\n(c)", "const a = b    ;\n(c)"),
    ("const f = (a)\n: A => a;", "const f = (a \n  ) => a;"),
    ("async <\nT>(a: T) => a;", "async (\n   a   ) => a;"),
    ("class A { a = 1\n private ['b'] = 2 }", "class A { a = 1\n ;       ['b'] = 2 }"),
    ("class A { get: A\n foo() {} }", "class A { get  ;\n foo() {} }"),
    ("const f = () => <A>{};", "const f = () => (  {});"),
]


@pytest.mark.parametrize(("program", "left"), BLANKED)
def test_types_become_blanks(program: str, left: str) -> None:
    assert stripped(program) == left


VALUES: dict[str, tuple[str, Any]] = {
    "enum": ("enum C { A, B = 5, D, S = 's' }\nreturn [C.A, C.D, C[5], C.S]", [0, 6, "B", "s"]),
    "enum with comments": ("enum C {\n  A, // first\n  B // last\n}\nreturn C.B", 1),
    "enum that refers to itself": ("const enum C { A = 1 << 2, B = A | 1, E = C.B }\nreturn C.E", 5),
    "enum with odd names": ("enum C { 'a-b', default = 4, next }\nreturn [C['a-b'], C.next]", [0, 5]),
    "exported enum": ("export enum C { A = 5 }\nC.A", 5),
    "empty enum": ("enum C {}\nreturn C", {}),
    "namespace": ("namespace N { export const a = 4; export function f() { return a + 1 } }\nreturn N.f()", 5),
    "parameter properties": (
        "class P { constructor(private a: number, public b = 2) {} sum() { return this.a + this.b } }\nnew P(3).sum()",
        5,
    ),
    "parameter property of a subclass": (
        "class B {}\nclass P extends B { constructor(readonly a: number) { super(); } }\nreturn new P(5).a",
        5,
    ),
    "abstract class": (
        (
            "abstract class S { abstract a(): number; b(): number { return this.a() } }\n"
            "class C extends S { a() { return 5 } }\nnew C().b()"
        ),
        5,
    ),
    "generic arrow": ("const f = <T,>(x: T): T => x;\n(f as any)(5)", 5),
    "interface and generics": (
        (
            "interface O { n: number }\nconst xs: O[] = [{ n: 2 }, { n: 3 }];\n"
            "xs.map((o: O) => o.n).reduce<number>((a, b) => a + b, 0)"
        ),
        5,
    ),
    "type arguments that are also comparisons": ("return [2, 3].reduce<number>((a, b) => a + b, 0)", 5),
    "trailing as": ("const o = { a: 5 };\no.a as number", 5),
    "main with types": (
        "export default async function main(inputs: { n: number }): Promise<number> { return inputs.n }",
        5,
    ),
    "import of a type": ("import type { A } from './types';\nconst a: A = 5;\nreturn a", 5),
}


@pytest.mark.parametrize("form", VALUES)
def test_typescript_means_what_it_meant(v8: ScriptsV8, form: str) -> None:
    program, value = VALUES[form]
    ended = v8(program)
    assert (ended.threw, ended.value, ended.notices) == (None, value, ["typescript_stripped"])


def test_the_notice_names_the_first_line_with_a_type(v8: ScriptsV8) -> None:
    script = v8("// a\nconst x: number = 1;\nx").script
    assert script is not None
    assert [(each.message, each.line) for each in script.notices] == [
        ("the program is TypeScript: its types were left out, not checked", 2)
    ]


NAMES = st.sampled_from(["a", "b", "é", "$x", "value"])
TYPES = st.recursive(
    st.sampled_from(["number", "string", "'é😀'", "A.B", "unknown", "void", "1", "typeof a", "null"]),
    lambda inner: st.one_of(
        inner.map("({})[]".format),
        inner.map("Array<{}>".format),
        st.tuples(inner, inner).map(lambda two: f"{two[0]} | {two[1]}"),
        st.tuples(inner, inner).map(lambda two: f"(x: {two[0]},\n y?: {two[1]}) => {two[0]}"),
        inner.map("{{ a: {},\r\n b?: string }}".format),
        inner.map("readonly ({})[]".format),
    ),
    max_leaves=4,
)
# What is kept of a statement is in the first of each pair, in pieces between which types stand.
STATEMENTS = st.one_of(
    st.builds(lambda n, t: ["const ", n, f": {t}", " = 1;"], NAMES, TYPES),
    st.builds(lambda n, t: ["const f = (", n, f": {t}", ") => ", n, f" as {t}", ";"], NAMES, TYPES),
    st.builds(lambda n, t: ["function g(", n, f"?: {t}", ")", f": {t}", " { return ", n, "!", "; }"], NAMES, TYPES),
    st.builds(lambda n, t: ["class K { x", f": {t}", " = 1; m(", n, f": {t}", ") {} }"], NAMES, TYPES),
    st.builds(lambda t: ["new Map", f"<{t}, {t}>", "();"], TYPES),
    st.builds(lambda t: ["", f"type T = {t};"], TYPES),
    st.builds(lambda t: ["", f"interface I {{ a: {t} }}"], TYPES),
    st.just(["const s = `😀${1}`; // : number"]),
)
_IS_TYPE = (": ", "?: ", " as ", "<", "type ", "interface ", "!")


@settings(max_examples=300, deadline=None)
@given(st.lists(STATEMENTS, min_size=1, max_size=5))
def test_stripping_moves_no_character_that_is_kept_and_no_line(statements: list[list[str]]) -> None:
    program = "\n".join("".join(pieces) for pieces in statements)
    left = stripped(program)
    assert edits.terminators(left.encode()) == edits.terminators(program.encode())
    wide, narrow = program.encode("utf-16-le"), left.encode("utf-16-le")
    assert len(wide) == len(narrow)
    offset = 0
    for pieces in statements:
        for piece in pieces:
            size = len(piece.encode("utf-16-le"))
            if not piece.startswith(_IS_TYPE):
                assert narrow[offset : offset + size] == wide[offset : offset + size]
            else:
                assert set(narrow[offset : offset + size].decode("utf-16-le")) <= set(" ;)\r\n")
            offset += size
        offset += 2
    assert syntax.javascript(left.encode()) is not None
