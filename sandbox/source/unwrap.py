"""What models put around a program: fences, prose, a language word, JSON, tags, escapes.

A fence is always taken off, because fenced text parses (as tagged templates). Everything else here is only a proposal:
`source.py` takes it where the text does not parse as it is and the proposal does.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final, NamedTuple, cast

from sandbox.messages import Threw
from sandbox.source.edits import Edit, Text, terminators

_FENCE: Final = re.compile(r"^[ \t>]{0,12}(`{3,}|~{3,})([^\r\n`]*)\r?$", re.MULTILINE)
_TILDES: Final = re.compile(r"^[ \t>]{0,12}~{3,}[ \t]*\r?$", re.MULTILINE)
_ON_ONE_LINE: Final = re.compile(r"^```(?:[ \t]?(?:javascript|typescript|js|ts|jsx|tsx|mjs)\b)?(.*)```$", re.IGNORECASE)
_QUOTED: Final = re.compile(r"^[ \t]*>", re.MULTILINE)
_WORD: Final = re.compile(r"^\s*(?:javascript|typescript|js|ts|node(?:\.?js)?)[ \t]*(?=\r?\n)", re.IGNORECASE)
_TAG: Final = re.compile(
    r"^\s*<(script|code|pre|program|javascript)(?:\s[^<>]*)?>(.*)</\1>\s*$", re.DOTALL | re.IGNORECASE
)
_ENTITY: Final = re.compile(rb"&(?:quot|amp|lt|gt|apos|nbsp|#\d{1,7}|#[xX][0-9a-fA-F]{1,6});")
_ESCAPED_TOGETHER: Final = frozenset("\"'`<>")
_HARMLESS: Final = frozenset(" &/=")  # what escapers make besides; a backslash is never among it
_ESCAPED: Final = re.compile(r"\\(?:[nrt\"'`\\/]|u[0-9a-fA-F]{4})")
_PLAIN: Final = {"n": "\n", "r": "\r", "t": "\t"}
_MEMBERS: Final = frozenset(("code", "source", "script", "program"))

ONE_BLOCK: Final = "send exactly one code block: the whole program, and nothing else"


class Inner(NamedTuple):
    """The program inside its wrapping: its text, and how many lines stand before its first."""

    text: str
    before: int


def unfenced(program: str) -> Inner | Threw:
    """The text inside the only Markdown fence, or the text as it is if there is no fence.

    A fence line inside a block comment or a template literal is no fence. An opening fence that is never closed is
    taken off; two blocks are refused, because nobody can know which was meant.
    """
    if "```" not in program and "~~~" not in program:
        return Inner(program, 0)
    whole = program.strip()
    single = _ON_ONE_LINE.match(whole) if "\n" not in whole else None
    if single is not None:
        start = program.index(whole) + single.start(1)
        return Inner(" " * (start - _line_start(program, start)) + single[1], _lines(program[:start]))
    blocks = list(islice(_blocks(program), 2))
    if not blocks:
        return Inner(program, 0)
    if len(blocks) > 1:
        line = _lines(program[: blocks[1][0]]) + 1
        return Threw(
            code="syntax_error",
            name="SyntaxError",
            message="the text has more than one code block, and which one is the program is not clear",
            line=line,
            column=1,
            hint=ONE_BLOCK,
        )
    fence, start, end, closed = blocks[0]
    text = program[start:end]
    if ">" in program[fence : program.find(program[fence:].lstrip(" \t>")[0], fence)]:
        text = _QUOTED.sub(lambda quoted: " " * len(quoted[0]), text)
    if not text.strip() and not closed:
        start, text = 0, program[: blocks[0][0]]  # only the closing fence was sent
    elif not closed and text.rstrip().endswith("```"):
        text = text.rstrip()[:-3]
    return Inner(text, _lines(program[:start]))


def visible(program: str) -> str:
    """The program as its positions count: out of its JSON, and nothing but empty lines around a fence."""
    inside = from_json(program)
    inner = unfenced(program if inside is None else inside)
    return program if isinstance(inner, Threw) else "\n" * inner.before + inner.text


def _blocks(program: str) -> Iterator[tuple[int, int, int, bool]]:
    """Where each block's fence, its text and its end are, and whether it is closed.

    What stands in a comment or in a template literal is no fence: it is text, which must not become the program.
    """
    opening: re.Match[str] | None = None
    commented, ticks, read = False, 0, 0  # of what was read: an open comment; an odd number leaves a template open
    tildes = max((each.start() for each in _TILDES.finditer(program)), default=0)
    for fence in _FENCE.finditer(program):
        if opening is None:
            before, read = program[read : fence.start()], fence.start()
            ticks += before.count("`") - before.count("\\`")
            began, ended = before.rfind("/*"), before.rfind("*/")
            commented = commented if began == ended else began > ended
            if fence[1][0] == "~" and fence.start() >= tildes:
                continue  # `~~~x` is an expression
            if not commented and ticks % 2 == 0:
                opening = fence
        elif fence[1].startswith(opening[1]) and not fence[2].strip():
            yield opening.start(), _after(program, opening), fence.start(), True
            opening, read, commented, ticks = None, fence.end(), False, 0
    if opening is not None:
        yield opening.start(), _after(program, opening), len(program), False


def _after(program: str, fence: re.Match[str]) -> int:
    return min(fence.end() + 1, len(program))  # past the LF that ends the fence's line


def _lines(before: str) -> int:
    return len(terminators(before.encode()))


def _line_start(text: str, offset: int) -> int:
    return max(text.rfind("\n", 0, offset), text.rfind("\r", 0, offset)) + 1


def without_word(data: bytes) -> Edit | None:
    """Blanks a first line that is only the name of the language."""
    found = _WORD.match(data[:64].decode("utf-8", "ignore"))
    return Text(data).blank(0, len(found[0].encode())) if found else None


def without_entities(data: bytes) -> list[Edit]:
    """Puts the characters in the place of HTML entities, as far as whoever escaped the program can have made them.

    Who escapes a quote or a bracket escapes each of them. So where one stands as itself, its entity is somebody's data
    within a string, and must not end that string.
    """
    if b"&" not in data:
        return []
    found = [(each, html.unescape(each[0].decode()).replace("\xa0", " ")) for each in _ENTITY.finditer(data)]
    return [
        Edit(each.start(), each.end(), new.encode())
        for each, new in found
        if new in _HARMLESS or (new in _ESCAPED_TOGETHER and new.encode() not in data)
    ]


def without_tag(text: str) -> str | None:
    """What stands inside one tag around the whole text, at its old place; None if there is no such tag."""
    found = _TAG.match(text)
    if found is None:
        return None
    before = text[: found.start(2)]
    return re.sub(r"[^\r\n]", " ", before) + found[2]


def from_json(text: str) -> str | None:
    """The program if the text is a JSON object with one string in it, called code, source, script or program.

    None if a name stands twice in it: a reader takes the first for the program, and JSON the last.
    """
    if not text.lstrip().startswith("{"):
        return None
    try:  # a raw line break inside the string is a common slip
        value: Any = json.loads(text, strict=False, object_pairs_hook=_once)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    texts = {key: each for key, each in cast("dict[str, Any]", value).items() if isinstance(each, str)}
    if len(texts) != 1 or not _MEMBERS.issuperset(texts):
        return None
    return next(iter(texts.values()))


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("a name stands twice")
    return members


def unescaped(text: str) -> str | None:
    """The text with one layer of string escapes taken off, if it is one line that has some.

    Who escapes a double quote escapes each of them. So where a quote stands as itself, an escaped one of its kind is
    within a string, and must not end it; where a double one does, nobody has escaped backslashes either.
    """
    if "\n" in text.strip() or not _ESCAPED.search(text):
        return None
    kept = {quote for quote in "\"'`" if re.search(rf"(?<!\\)(?:\\\\)*{quote}", text)}
    kept |= {"\\"} if '"' in kept else set()

    def plain(found: re.Match[str]) -> str:
        escape = found[0][1:]
        made = chr(int(escape[1:], 16)) if escape[0] == "u" else _PLAIN.get(escape, escape)
        return found[0] if made in kept else made

    once = _ESCAPED.sub(plain, text)
    return None if any("\ud800" <= each <= "\udfff" for each in once) else once
