"""Text that is costly to read: what reading it takes grows no faster than the text. Work is counted, not timed."""

from __future__ import annotations

import re
from typing import Any

import pytest
from tree_sitter import Parser

from sandbox.source import Script, prepare, refusals, syntax, syntax_error

pytestmark = pytest.mark.threat("source.cost")

BYTES = 50_000
COSTLY = {
    "double quotes": '"',
    "single quotes": "'",
    "escaped quotes": '\\"',
    "quotes in turns": "\"'",
    "backticks": "`",
    "slashes and brackets": "/[",
    "regular expressions that only the end closes": "(/[",
    "escaped slashes": "/\\",
    "comments in comments": "/*/",
    "templates in templates": "`${",
    "empty lines": "\n",
    "blank lines": " \n",
    "fences": "~~~x\n",
    "Python that closes nothing": "def a()",
    "types that end nowhere": "):a",
    "annotations": "const a ",
    "imports": 'import "',
}


class Counting:
    """A pattern that counts how much text it is given to look at."""

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self.seen = 0
        self._pattern = pattern

    def match(self, text: str, start: int) -> re.Match[str] | None:
        end = re.compile(r"[\n\r]|\Z").search(text, start)
        assert end is not None
        self.seen += end.start() - start
        return self._pattern.match(text, start)


def text_of(piece: str) -> str:
    return piece * (BYTES // len(piece))


@pytest.mark.parametrize("piece", COSTLY.values(), ids=COSTLY)
def test_a_grammar_is_given_a_text_a_few_times_at_most(piece: str, monkeypatch: pytest.MonkeyPatch) -> None:
    readers: list[syntax.Reader] = []

    class Kept(syntax.Reader):
        def __init__(self, data: bytes) -> None:
            super().__init__(data)
            readers.append(self)

    monkeypatch.setattr(syntax, "Reader", Kept)
    program = text_of(piece) + "@"
    script = prepare(program, [])
    if isinstance(script, Script):  # quadratic work on these took from ten seconds to minutes: it ends
        assert syntax_error(program, script, "SyntaxError: Invalid or unexpected token", 2, 1).code == "syntax_error"
    assert len(readers) <= 8
    assert [reader for reader in readers if reader.given > reader.allowed + 512] == []
    assert sum(reader.given for reader in readers) <= 8 * (17 * BYTES + 65_536)


def test_without_its_bound_a_grammar_reads_such_a_text_again_for_each_slash() -> None:
    given = 0
    data = text_of("/[").encode()[:10_000]

    def piece(offset: int, _point: Any) -> bytes:
        nonlocal given
        given += len(data[offset : offset + 512])
        return data[offset : offset + 512]

    parser: Parser = syntax._JAVASCRIPT
    try:
        parser.parse(piece, encoding="utf8", progress_callback=lambda _offset, failed: failed)
    except ValueError:
        parser.reset()
    assert given > 100 * len(data)  # or the bound guards nothing any more


@pytest.mark.parametrize("piece", COSTLY.values(), ids=COSTLY)
def test_looking_for_what_is_unclosed_reads_no_line_again_for_each_slash(
    piece: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    counting = Counting(refusals._REGEX)
    monkeypatch.setattr(refusals, "_REGEX", counting)
    refusals.unclosed(text_of(piece) + "]")
    assert counting.seen <= 2 * BYTES


def test_a_strange_character_in_a_very_long_line_is_looked_for_where_the_engine_points() -> None:
    line = "x = 1;" * 1_000
    assert refusals.strange_character(line + "\u201c", "\u201c").startswith("U+201C")
    assert refusals.strange_character(line + "\u201c", "") == ""


def test_a_regular_expression_that_its_line_ends_hides_no_bracket_on_the_next() -> None:
    found = refusals.unclosed("a = /[x\nb = (/]/)\nc = {")
    assert found is not None
    assert (found.what, found.offset, found.extra) == ("`{`", 22, False)
