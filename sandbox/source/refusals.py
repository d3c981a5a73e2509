"""Why V8 refused a program, in words that help a model to write it right."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import Final

from sandbox.messages import Threw
from sandbox.source import modules, unwrap
from sandbox.source.edits import Text

_PYTHON: Final = re.compile(
    r"^[ \t]*(?:def \w+\(.*:|import [a-z_]\w*(?: as \w+)?[ \t]*|from [\w.]+ import \w.*"
    r"|(?:if|elif|while|for|with|class) [^{\n]*[^{;:\n]:|(?:else|try|finally|except[^:\n]*):)[ \t]*(?:#.*)?\r?$"
    r"|\bprint\(f[\"']|\b(?:not in|is not None|is None)\b|^[ \t]*async def ",
    re.MULTILINE,
)
_SHELL: Final = re.compile(
    r"\A\s*(?:#!\s*/(?:usr/)?bin/(?:env )?(?:ba|z)?sh|(?:\$ )?(?:curl|wget|ls|cat|cd|grep|echo|npm|npx|pip3?|python3?"
    r"|git|sudo|mkdir|export|bash|sh)(?:[ \t]+[-./\w\"'$]|[ \t]*$))",
    re.MULTILINE,
)
_SQL: Final = re.compile(r"\A\s*(?:SELECT\s.+\sFROM\s|INSERT INTO |UPDATE \w+ SET )", re.IGNORECASE | re.DOTALL)
_PROSE: Final = re.compile(
    r"\A\s*(?:Here(?:'s| is| are)|Sure|Certainly|Okay|The following|This (?:program|code|script)|I(?:'ll| will))\b"
)
_TYPED: Final = re.compile(
    r"^[ \t]*(?:export\s+)?(?:interface|type|enum|namespace|declare|abstract)\s+\w|^[ \t]*@\w+"
    r"|\b(?:const|let|var)\s+\w+\s*:\s*\w|\)\s*:\s*[\w<>\[\]|]+\s*(?:=>|\{)",
    re.MULTILINE,
)
_IMPORT: Final = re.compile(r"\b(?:import|from)\s*\(?\s*[\"']([^\"']+)[\"']")
_DOUBLE: Final = frozenset("\u201c\u201d\u201e\u201f\u00ab\u00bb\u2033\uff02")
_SINGLE: Final = frozenset("\u2018\u2019\u201a\u201b\u2032\uff07\u00b4")
_ASCII: Final = {
    "\u2013": "-",
    "\u2014": "-",
    "\u2212": "-",
    "\u2026": "...",
    "\u00d7": "*",
    "\u2264": "<=",
    "\u2265": ">=",
    "\u2260": "!==",
}
_CLOSERS: Final = {"(": ")", "[": "]", "{": "}", "${": "}"}
_LINE_CHARACTERS: Final = 4_000  # of a line whose characters are looked at one by one; a person writes no longer ones
_ENDS: Final = re.compile("[\n\r]|\\Z")
_BEFORE_REGEX: Final = frozenset("(,=:[!&|?{};+-*%~^<>\n")
_TOKEN: Final = re.compile(
    r"//[^\n\r\u2028\u2029]*|/\*.*?(?P<comment>\*/|\Z)|\"(?:\\.|[^\"\\\n\r])*(?P<double>\"?)|'(?:\\.|[^'\\\n\r])*(?P<single>'?)"
    r"|[()\[\]{}`/]|[\w$]+|[^\s\w$]",
    re.DOTALL,
)
_IN_TEMPLATE: Final = re.compile(r"(?:\\.|\$(?!\{)|[^`\\$])*(?P<end>`|\$\{|\Z)", re.DOTALL)
_REGEX: Final = re.compile(r"/(?:\\.|\[(?:\\.|[^\]\\\n\r])*\]|[^/\\\[\n\r])+/[a-z]*")
_WORDS_BEFORE_REGEX: Final = frozenset(
    "return typeof case in of delete void throw await yield else do new instanceof".split()
)


@dataclass(frozen=True)
class Open:
    """Something opened and never closed, or that closes something else (`extra`; `inside` is what was open)."""

    what: str
    offset: int
    extra: bool = False
    inside: tuple[str, int] | None = None


def syntax_error(program: str, message: str, line: int, column: int) -> Threw:
    """The failure of a program that V8 cannot parse, with a hint. Positions are the model's."""
    message = message.strip().removeprefix("SyntaxError:").strip()
    try:
        return _diagnosed(program, message, line, column)
    except Exception:  # noqa: BLE001  a hint is a courtesy: the error itself must arrive
        return Threw(code="syntax_error", name="SyntaxError", message=message, line=line, column=column)


def _diagnosed(program: str, message: str, line: int, column: int) -> Threw:
    text = Text(unwrap.visible(program).encode("utf-8", "replace"))
    last = _last_line(text)
    rest = text.line(line).encode("utf-16-le")[(column - 1) * 2 :].decode("utf-16-le", "ignore") if column else ""
    code = "syntax_error"
    foreign = language(program)
    named = _IMPORT.search(text.line(line))
    opened, awaiting = None, 0
    if foreign:
        hint = f"this looks like {foreign}: programs here are JavaScript"
    elif "import statement" in message and named is not None:
        return modules.not_available(named[1], line, column)
    elif strange := strange_character(text.line(line), rest):
        hint = strange
    elif rest.startswith("await") or "await is only valid" in message or (awaiting := _awaiting(text.line(line), rest)):
        column -= awaiting
        hint = (
            "this `await` stands in a function that is not async: write `async` before its parameters, and "
            "`await Promise.all(items.map(async item => ...))` for a callback of map"
        )
    elif rest[:1] in ('"', "'") and "Invalid or unexpected token" in message and line < last:
        hint = (
            f"the string that begins on line {line} has a line break in it: use a template literal (`...`) or write \\n"
        )
    elif (opened := unclosed(text.data.decode())) is not None and not opened.extra and _at_end(message, line, last):
        at = text.place(opened.offset)
        message = f"Unexpected end of input: the {opened.what} opened on line {at[0]} is never closed"
        line, column = last, len(text.line(last).encode("utf-16-le")) // 2 + 1
        hint = "the program seems cut off: nothing of it has run; send the whole program"
    elif opened is not None and opened.extra and (line > last or message.startswith("Unexpected token")):
        line, column = text.place(opened.offset)
        hint = f"the {opened.what} on line {line} closes nothing that is open"
        if opened.inside is not None:
            hint = (
                f"the `{opened.inside[0]}` of line {text.place(opened.inside[1])[0]} is still open "
                f"where the {opened.what} on line {line} stands"
            )
    elif line > last:
        message = f"Unexpected end of input ({message})"
        line, column = last, len(text.line(last).encode("utf-16-le")) // 2 + 1
        hint = "the program stops in the middle of a statement: send the whole program"
    else:
        hint = _by_message(program, text, message, rest, opened)
    return Threw(code=code, name="SyntaxError", message=message, line=line, column=column, hint=hint)


def _awaiting(line: str, rest: str) -> int:
    """How many columns before the rest of a line an `await` begins that V8 took for a name; 0 if there is none."""
    found = re.search(r"\bawait\s+$", line[: len(line) - len(rest)] if rest else line)
    return len(found[0].encode("utf-16-le")) // 2 if found else 0


def _at_end(message: str, line: int, last: int) -> bool:
    return (
        line == 0 or line >= last or "end of input" in message or "Unterminated" in message or "Invalid or" in message
    )


def _last_line(text: Text) -> int:
    """The last line with something on it."""
    last = text.lines
    while last > 1 and not text.line(last).strip():
        last -= 1
    return last


def _by_message(program: str, text: Text, message: str, rest: str, opened: Open | None) -> str:
    declared = re.search(r"Identifier '([^']+)' has already", message)
    if declared:
        return f"`{declared[1]}` is declared twice in one scope: rename one, or assign without `const` or `let`"
    if "import.meta" in message or "import statement" in message:
        return "there are no modules here: the tools are the global `tools`"
    if "regular expression" in message:
        return "the regular expression is wrong: escape what should stand for itself"
    if "'export'" in message:
        return "there are no modules here: leave out `export` and return the value"
    if "strict mode" in message.lower() and "reserved word" not in message:
        return "programs are strict: write it as a module would"
    if _PROSE.match(program) or "```" in program:
        return unwrap.ONE_BLOCK
    if "'<'" in message and re.match(r"<[A-Za-z/!]", rest):
        return "JSX and HTML are no JavaScript here: build text with template literals"
    if rest.startswith("@"):
        return "decorators are not supported: call the function instead"
    if _TYPED.search(text.data.decode()):
        return "if this is TypeScript, a part of it is not understood: write that part as plain JavaScript"
    if rest.startswith(("&quot;", "&amp;", "&lt;", "&gt;", "&#")):
        return "the text has HTML entities in it: send the characters themselves"
    if opened is not None and not opened.extra:
        return f"the {opened.what} opened on line {text.place(opened.offset)[0]} is never closed"
    if "missing )" in message:
        return "a `)` or a `,` is missing before this place"
    return "programs are JavaScript: the body of an async function, with `return` for the value"


def language(program: str) -> str:
    """The language that a program is in if it looks like another one than JavaScript; empty otherwise."""
    if _SHELL.match(program):
        return "a shell command"
    if _SQL.match(program):
        return "SQL"
    found = _PYTHON.search(program)
    braces = "=>" in program or "const " in program or "let " in program or "function" in program or "};" in program
    return "Python" if found is not None and not braces else ""


def strange_character(line: str, rest: str) -> str:
    """Says which character of a line no JavaScript has, with what to write instead; empty if there is none."""
    for each in (rest[:1], *_bare(line)):
        if not each or each.isascii() or each.isidentifier() or each in "\u00a0\ufeff\u2028\u2029":
            continue
        number = f"U+{ord(each):04X}"
        if each in _DOUBLE or each in _SINGLE:
            plain = '"' if each in _DOUBLE else "'"
            return f"{number} ({each}) is a typographic quote: use {plain} instead"
        if unicodedata.category(each) in ("Cf", "Cc"):
            name = unicodedata.name(each, "unnamed")
            return f"an invisible character, {number} ({name}), stands in this line: remove it"
        if unicodedata.category(each) == "Zs":
            continue
        plain = _ASCII.get(each) or unicodedata.normalize("NFKC", each)
        what = unicodedata.name(each, "unnamed").lower()
        wanted = f"write {plain} instead" if plain.isascii() and plain else "it can stand in a string or a comment only"
        return f"{number} ({each}, {what}) is not JavaScript: {wanted}"
    return ""


def _bare(line: str) -> str:
    """A line without what is in quotes and comments, where any character may stand; nothing of one that is very long.

    Each quote that is never closed reads the rest of the line once more.
    """
    if len(line) > _LINE_CHARACTERS:
        return ""
    return re.sub(r"\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'|`(?:\\.|[^`\\])*`|//.*", "", line)


def unclosed(text: str) -> Open | None:
    """The bracket, string, template or comment that is open at the end, or that closes nothing. A guess: no grammar."""
    stack: list[tuple[str, int]] = []
    offset, before = 0, "\n"
    no_regex = 0  # up to here there is none: where one has no end on its line, each slash would read it once more

    def at(place: int) -> int:
        return len(text[:place].encode())

    while offset < len(text):
        if stack and stack[-1][0] == "`":
            part = _IN_TEMPLATE.match(text, offset)
            if part is None or not part["end"]:
                return Open("template literal (`)", at(stack[-1][1]))
            if part["end"] == "`":
                stack.pop()
            else:
                stack.append(("${", part.end() - 2))
            offset, before = part.end(), "`"
            continue
        token = _TOKEN.search(text, offset)
        if token is None:
            break
        word = token[0]
        if word.startswith(("//", "/*")):
            if word.startswith("/*") and not token["comment"]:
                return Open("comment (/*)", at(token.start()))
            offset = token.end()
            continue
        if word[0] in "\"'":
            if not (token["double"] or token["single"]) or len(word) == 1:
                return Open(f"string ({word[0]})", at(token.start()))
        elif word == "/":
            may_be = token.start() >= no_regex and (before in _BEFORE_REGEX or before in _WORDS_BEFORE_REGEX)
            regex = _REGEX.match(text, token.start()) if may_be else None
            if regex is not None:
                offset, before = regex.end(), "/"
                continue
            if may_be and (end := _ENDS.search(text, offset)) is not None:
                no_regex = end.start()
        elif word in ("(", "[", "{", "`"):
            stack.append((word, token.start()))
        elif word in (")", "]", "}"):
            if not stack or _CLOSERS[stack[-1][0]] != word:
                inside = (stack[-1][0], at(stack[-1][1])) if stack else None
                return Open(f"`{word}`", at(token.start()), extra=True, inside=inside)
            stack.pop()
        offset, before = token.end(), word
    if not stack:
        return None
    what, place = stack[-1]
    return Open("template literal (`)" if what == "`" else f"`{what}`", at(place))
