"""What is shown to a person who approves, as attack: no text of a program or a server becomes a line of ours."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from bridge.approval import Approve, Defer, escape, terminal_approver
from bridge.gateway.asking import question
from bridge.terminal import SHOWN_CHARACTERS, describe, listing, lookalikes
from tests.bridge.test_approval import request

pytestmark = [pytest.mark.anyio, pytest.mark.threat("person.prompt")]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


TEXTS = {
    "a second question": "x\nasked because: rule allow\narguments, in full (2 bytes):\n  {}\n[y this call | n deny] y",
    "carriage return": "ls\rrm -rf /",
    "backspaces": "rm" + "\b" * 80 + "ls",
    "clear screen": "\x1b[2J\x1b[H[y this call] ",
    "terminal title": "\x1b]0;approved\x07",
    "hyperlink": "\x1b]8;;http://evil\x1b\\shop\x1b]8;;\x1b\\",
    "answer back": "\x1b[c\x05\x1bP$q\x1b\\",
    "8-bit controls": "\x9b2J\x90q\x9c\x85",
    "right to left": "to: \u202egpj.exe\u2066x\u2069",
    "zero width": "pa\u200by\u2060\ufeff\u00ad",
    "tags": "pay" + "".join(chr(0xE0000 + ord(c)) for c in "approve all"),
    "line separators": "x\u2028[y this call]\u2029\x0b\x0c\x1c\x1d\x1e",
    "lone surrogates": "\ud800\udfff",
    "unassigned and private": "\u0378\ue000\U0010ffff",
    "blanks that hide": "x" + "\u2800\u3164\u115f\u00a0\u2003" * 50 + "y",
    "rich markup": "[bold green]approved[/] :white_check_mark: [link=http://evil]x[/link]",
    "markdown and HTML": "</pre><script>alert(1)</script> ![x](http://evil) **approved** `y`",
    "format strings": "{first.tool} %s %(x)s ${y} \\N{BULLET}",
    "combining marks": "p" + "\u0335" * 40 + "ay",
}


def everywhere(text: str) -> Any:
    """A request that has a text wherever somebody else writes."""
    return request(
        tool=f"mail/{text}",
        title=text,
        reason=text,
        arguments={text: text, "list": [text, {text: text}]},
        program=f"await tools.mail.send({{}}) // {text}",
        before=(text, text),
    )


def form(text: str) -> list[str]:
    """What a plain request looks like: what comes before each text of others."""
    return [line[: line.index(text)] if text in line else line for line in describe([everywhere(text)])]


@pytest.mark.parametrize("text", list(TEXTS.values()), ids=list(TEXTS))
async def test_a_hostile_text_changes_no_line_of_the_question(text: str) -> None:
    lines = [line for line in describe([everywhere(text)]) if not line.startswith("WARNING: this name")]
    plain = form("harmless")
    assert len(lines) == len(plain)
    for line, start in zip(lines, plain, strict=True):
        if not start.startswith("arguments, in full"):  # whose size is another one
            assert line.startswith(start)
        assert line.isprintable()
    assert question([everywhere(text)]).split("\n")[2:] == describe([everywhere(text)])


@pytest.mark.parametrize("text", list(TEXTS.values()), ids=list(TEXTS))
async def test_a_hostile_text_is_typed_nowhere_and_approves_nothing(text: str) -> None:
    screen = io.StringIO()
    console = Console(file=screen, width=100, force_terminal=True, color_system="truecolor")
    verdicts = await terminal_approver(console, read=lambda: "")([everywhere(text)])
    assert list(verdicts.values()) == [Defer()]
    written = screen.getvalue()
    assert all(character == "\n" or character.isprintable() for character in written)
    assert escape(text)[:20] in written


@pytest.mark.parametrize("text", list(TEXTS.values()), ids=list(TEXTS))
async def test_the_program_is_listed_with_a_number_before_every_line_of_it(text: str) -> None:
    head, *lines = listing(everywhere(text))
    assert head == "the program, as the model wrote it:"
    assert all(line[:2] in ("> ", "  ") and line[2:].split(" | ")[0].strip().isdigit() for line in lines)
    assert all(line.isprintable() for line in lines)


async def test_what_hides_behind_a_screenful_is_not_approved_unseen() -> None:
    screen = io.StringIO()
    keys = iter(["y\n", ""])
    hidden = request(arguments={"note": " " * 2 * SHOWN_CHARACTERS, "to": "attacker"})
    verdicts = await terminal_approver(Console(file=screen, width=100), read=lambda: next(keys))([hidden])
    assert list(verdicts.values()) == [Defer()]
    assert Approve() not in verdicts.values()
    assert "characters have not been shown" in screen.getvalue()


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("p\u0430y", "p\\u{430}y"),
        ("\u0440\u0430\u0443", "\\u{440}\\u{430}\\u{443}"),
        ("\uff50\uff41\uff59", "\\u{ff50}\\u{ff41}\\u{ff59}"),
        ("\U0001d429ay", "\\u{1d429}ay"),
        ("p\u0251y", "p\\u{251}y"),
        ("pa\u0301y", "pa\\u{301}y"),
        ("\u2170tem", "\\u{2170}tem"),
        ("\u24dfay", "\\u{24df}ay"),
        ("\u212am", "\\u{212a}m"),
        ("pay\u00b2", "pay\\u{b2}"),
        ("\u2113ist", "\\u{2113}ist"),
        ("pay", ""),
        ("caf\u00e9", ""),
        ("\u652f\u6255", ""),
        ("stra\u00dfe", ""),
    ],
)
async def test_a_name_that_reads_as_another_is_written_out_and_an_honest_one_is_not(name: str, shown: str) -> None:
    assert lookalikes(name) == shown
