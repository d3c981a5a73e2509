"""Turns program text, as a model wrote it, into a script for V8, with a map back to the model's lines.

Runs in the worker, after the lock: no files, no imports, no threads; grammars and patterns are made when this module is
imported, in the zygote. The order: wrapping comes off (unwrap.py), then JavaScript is tried, then TypeScript
(typescript.py), then repairs; the form decides the value (forms.py), tool names are checked (names.py). Text that no
grammar takes goes to V8 as it is: V8 has the last word on syntax. What needs no change is embedded byte for byte.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from sandbox.messages import Notice, Threw, ToolName
from sandbox.source import edits, forms, hints, modules, names, refusals, syntax, typescript, unwrap
from sandbox.source.edits import Edit, Shift, Text

HEAD: Final = "(async function(){'use strict';"
TAIL: Final = "\n})\n//# sourceURL=program"
_REPAIRABLE_BYTES: Final = 65_536  # text above this is not parsed again and again to guess what was meant
# What decides how text becomes a script; part of the digest that a journal carries.
_FINGERPRINT: Final = "".join(
    Path(str(module.__file__)).read_text("utf-8")
    for module in (edits, forms, hints, modules, names, refusals, syntax, typescript, unwrap)
) + Path(__file__).read_text("utf-8")


@dataclass(frozen=True, kw_only=True)
class Script:
    """A program ready for V8.

    Attributes:
        js: A JavaScript expression in parentheses: an async function of no arguments.
        line_offset: V8's line minus the model's; negative where prose above a fence was left out.
        shifts: (V8's line, from column, delta): columns there are the model's plus delta; the last that matches counts.
        notices: What was changed, for the model.
        awaits: The model's lines of `await`s that wait for anything but a tool or a timer.
    """

    js: str
    line_offset: int
    shifts: tuple[Shift, ...] = ()
    notices: tuple[Notice, ...] = ()
    awaits: tuple[int, ...] = ()

    def position(self, line: int, column: int) -> tuple[int, int]:
        """The model's line and column of V8's; both from 1, 0 where V8 knows none."""
        return max(0, line - self.line_offset), max(1, edits.back(list(self.shifts), line, column)) if column else 0


def prepare(program: str, tools: Sequence[ToolName]) -> Script | Threw:
    """Make a script of a program, or say why it cannot run. Never raises.

    Positions count lines as ECMAScript does (LF, CR LF, CR, U+2028, U+2029). A program inside JSON, or with its line
    breaks escaped, has the lines that it has once unpacked.
    """
    try:
        return _prepare(program, names.Names(tools))
    except (modules.NoModule, names.Unknown, typescript.Unsupported) as refused:
        return refused.threw
    except Exception:  # noqa: BLE001  a fault of ours must not cost the model its program
        return _wrapped(program, 0, forms.Plan(), [], [])


def syntax_error(program: str, script: Script, message: str, line: int, column: int) -> Threw:
    """What the model is told when V8 refuses a script. Never raises.

    Args:
        program: The text as the model sent it.
        script: What `prepare` made of it.
        message: V8's, with or without the name of the error in front.
        line: V8's line; 0 if it gave none.
        column: V8's column.
    """
    at = script.position(line, column) if line else (0, 0)
    return refusals.syntax_error(program, message, *at)


def explain(program: str, script: Script | None, threw: Threw, tools: Sequence[ToolName]) -> Threw:
    """Give an error that a program threw its code and, where we know one, a hint. Never raises.

    Args:
        program: The text as the model sent it.
        script: What `prepare` made of it, if it came so far.
        threw: As the realm reported it; its position is the model's already.
        tools: The catalog.
    """
    del script  # the realm has mapped the position; the text says the rest
    return hints.explain(program, threw, names.Names(tools))


def warm() -> None:
    """Do once what every program does, so that forked workers find it done."""
    tools = [ToolName("get_order", ("get_order",)), ToolName("carrier/track", ("carrier", "track"))]
    for program in (
        "const r = await tools.getOrder({ id: 'a' });\nfor (const x of [1]) console.log(x);\nr.total",
        "```ts\ninterface A { b: number }\nenum E { F }\nconst a: A[] = [] as A[];\nreturn a;\n```",
        "export default async function main(tools) { return 1 }",
        "return &quot;a&quot;",
        "return (",
    ):
        script = prepare(program, tools)
        if isinstance(script, Script):
            syntax_error(program, script, "SyntaxError: Unexpected token '}'", 3, 1)
            threw = Threw(code="", name="TypeError", message="r.total.x is not a function", line=1, column=1)
            explain(program, script, threw, tools)


def fingerprint() -> str:
    """The text of everything that decides what a program becomes."""
    return _FINGERPRINT


def _prepare(program: str, catalog: names.Names) -> Script | Threw:
    # JSON and tags first: the grammars take both for expressions, V8 takes neither for a program.
    for inside, why in (
        (unwrap.from_json(program), "the program was taken out of a JSON object, and its lines are counted from there"),
        (unwrap.without_tag(program), "the program was taken out of a tag"),
    ):
        if inside is not None:
            script = _read(inside, catalog) or _wrapped(inside, 0, forms.Plan(), [], [])
            return _noticed(script, why)
    script = _read(program, catalog)
    if script is not None:
        return script
    plain = unwrap.unescaped(program) if len(program) <= _REPAIRABLE_BYTES else None
    script = _read(plain, catalog) if plain is not None else None
    if script is not None:
        return _noticed(
            script, "the text did not parse, so its escapes were undone, and its lines are counted from there"
        )
    inner = unwrap.unfenced(program)
    return inner if isinstance(inner, Threw) else _wrapped(inner.text, inner.before, forms.Plan(), [], [])


def _noticed(script: Script | Threw, why: str) -> Script | Threw:
    return replace(script, notices=(_repaired(why), *script.notices)) if isinstance(script, Script) else script


def _read(program: str, catalog: names.Names) -> Script | Threw | None:
    """The script of a program that a grammar takes; None if none does."""
    inner = unwrap.unfenced(program)
    if isinstance(inner, Threw):
        return inner
    body, before = inner
    if not body.strip("\ufeff \t\r\n\v\f\u2028\u2029\u00a0"):
        return Threw(
            code="empty_program",
            name="SyntaxError",
            message="the program is empty",
            line=1,
            column=1,
            hint="send JavaScript that returns a value",
        )
    data = body.encode()
    for changes, notices in _readings(data):
        text, shifts = Text(data), list[Shift]()
        if changes:
            changed, shifts = edits.apply(text, changes)
            text = Text(changed)
        script = _scripted(text, before, shifts, notices, catalog)
        if script is not None:
            return script
    return None


def _repaired(why: str) -> Notice:
    return Notice("source_repaired", f"{why}: send the program as plain JavaScript text")


def _readings(data: bytes) -> Iterator[tuple[list[Edit], list[Notice]]]:
    """What the text may be, likeliest first; the first that parses is taken."""
    word = unwrap.without_word(data)
    if word is not None:
        yield [word], []
    yield [], []
    if len(data) <= _REPAIRABLE_BYTES:
        entities = unwrap.without_entities(data)
        if entities:
            yield entities, [_repaired("the text did not parse, so its HTML entities were decoded")]
            if word is not None:
                yield [word, *entities], [_repaired("the text did not parse, so its HTML entities were decoded")]


def _scripted(
    text: Text, before: int, shifts: list[Shift], notices: list[Notice], catalog: names.Names
) -> Script | None:
    """The script if the text parses in either language, or None."""
    tree = syntax.javascript(text.data)
    if tree is None or typescript.hidden(text.data):
        typed = syntax.typescript(text.data)
        changes = typescript.strip(typed, text) if typed is not None else []
        if changes:
            line = text.place(min(changes)[0])[0] + before
            notices = [
                *notices,
                Notice("typescript_stripped", "the program is TypeScript: its types were left out, not checked", line),
            ]
            stripped, moved = edits.apply(text, changes)
            text, shifts = Text(stripped), edits.compose(shifts, moved)
            tree = syntax.javascript(stripped)
            if tree is None:
                return _wrapped(stripped.decode(), before, forms.Plan(), shifts, notices)
    if tree is None:
        return None
    try:
        made = forms.plan(tree.root_node, text, catalog)
        changed, moved = edits.apply(text, made.edits)
    except (modules.NoModule, names.Unknown) as refused:
        threw = refused.threw
        column = edits.back(shifts, threw.line, threw.column)
        moved_threw = Threw(
            code=threw.code,
            name=threw.name,
            message=threw.message,
            line=threw.line + before,
            column=column,
            hint=threw.hint,
        )
        raise type(refused)(moved_threw) from None
    return _wrapped(changed.decode(), before, made, edits.compose(shifts, moved), notices)


def _wrapped(body: str, before: int, made: forms.Plan, shifts: list[Shift], notices: list[Notice]) -> Script:
    after = f"\n;return {made.after}" if made.after else ""
    return Script(
        js=f"{HEAD}{made.before}\n{body}{after}{TAIL}",
        line_offset=1 - before,
        shifts=tuple((line + 1, start, delta) for line, start, delta in shifts),
        notices=(*notices, *(Notice(n.code, n.message, n.line + before if n.line else None) for n in made.notices)),
        awaits=tuple(line + before for line in made.awaits),
    )
