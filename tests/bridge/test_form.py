"""The form at the terminal: what it shows of a server's question, and what typing becomes."""

from __future__ import annotations

import inspect
import io
from typing import Any

import anyio
import pytest
from rich.console import Console

from bridge import Elicitation, ElicitationAnswer, terminal_elicit
from bridge.approval import terminal_approver
from tests.bridge.test_approval import request
from tests.bridge.test_terminal import typing

pytestmark = pytest.mark.anyio
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "title": "Name", "minLength": 2},
        "agree": {"type": "boolean", "description": "The terms\x1b[2J"},
        "age": {"type": "integer", "minimum": 1},
        "colour": {"type": "string", "oneOf": [{"const": "r", "title": "Red"}, {"const": "g", "title": "Green"}]},
        "pets": {"type": "array", "items": {"type": "string", "enum": ["cat", "dog"]}, "maxItems": 2},
        "note": {"type": "string", "format": "email", "default": "a@b.example"},
    },
    "required": ["name", "agree"],
}


async def filled(*lines: str, **options: Any) -> tuple[ElicitationAnswer, list[str]]:
    """The answer of a person who types these lines, and the screen."""
    screen = io.StringIO()
    elicit = terminal_elicit(Console(file=screen, width=200), read=typing(*lines))
    question = {"server": "shop", "tool": "shop/buy", "message": "Who\nare you?", "requested_schema": SCHEMA, **options}
    answer = elicit(Elicitation(**question))
    assert inspect.isawaitable(answer)
    return await answer, screen.getvalue().splitlines()


async def test_a_form_shows_who_asks_and_sends_what_was_typed_after_it_was_shown() -> None:
    answer, screen = await filled("Ada", "y", "36", "2", "cat, 2", "", "y")
    content = {"name": "Ada", "agree": True, "age": 36, "colour": "g", "pets": ["cat", "dog"], "note": "a@b.example"}
    assert answer == ElicitationAnswer.accept(content)
    assert screen == [
        "server shop asks during shop/buy:",
        "  Who",
        "  are you?",
        "  name; Name",
        "  text>   agree; The terms\\u{1b}[2J",
        "  y or n>   age (optional)",
        "  an integer; empty: left out>   colour (optional)",
        "    1. Red (r)",
        "    2. Green (g)",
        "  a number; empty: left out>   pets (optional)",
        "    1. cat",
        "    2. dog",
        "  numbers, with commas; empty: left out>   note (optional)",
        '  text (email); empty: "a@b.example"> to be sent:',
        "  {",
        '    "name": "Ada",',
        '    "agree": true,',
        '    "age": 36,',
        '    "colour": "g",',
        '    "pets": [',
        '      "cat",',
        '      "dog"',
        "    ],",
        '    "note": "a@b.example"',
        "  }",
        "server shop gets this: [y send | n decline | q not now] ",
    ]


async def test_what_may_be_left_out_is_left_out() -> None:
    answer, _ = await filled("Ada", "n", "", "", "", "", "y")
    assert answer == ElicitationAnswer.accept({"name": "Ada", "agree": False, "note": "a@b.example"})


async def test_a_value_that_does_not_fit_is_asked_for_again() -> None:
    answer, screen = await filled("", "A", "Ada", "maybe", "yes", "0", "x", "7", "3", "g", "cat,cow", "", "", "y")
    assert answer == ElicitationAnswer.accept(
        {"name": "Ada", "agree": True, "age": 7, "colour": "g", "note": "a@b.example"}
    )
    assert sum("that does not fit: " in line for line in screen) == 7


@pytest.mark.parametrize(
    ("keys", "answer"),
    [
        (["n"], ElicitationAnswer.decline()),
        (["q"], ElicitationAnswer.cancel()),
        ([], ElicitationAnswer.cancel()),
        (["", "?", "n"], ElicitationAnswer.decline()),
    ],
)
async def test_only_y_sends(keys: list[str], answer: ElicitationAnswer) -> None:
    assert (await filled("Ada", "y", "", "", "", "", *keys))[0] == answer


async def test_the_end_of_input_cancels() -> None:
    assert (await filled("Ada"))[0] == ElicitationAnswer.cancel()


async def test_a_page_is_shown_in_full_and_not_opened() -> None:
    page = "https://pay.example/" + "x" * 300
    answer, screen = await filled("y", mode="url", url=page, requested_schema=None)
    assert answer == ElicitationAnswer.accept()
    assert "".join(screen).count(page) == 1
    assert screen[-1].endswith("go there yourself, then [y I was there | n decline | q not now] ")


async def test_a_form_of_any_length_is_not_begun() -> None:
    many = {"type": "object", "properties": {f"f{n}": {"type": "string"} for n in range(51)}}
    answer, screen = await filled(requested_schema=many)
    assert answer == ElicitationAnswer.cancel()
    assert screen[-1] == "it wants 51 fields, more than can be filled in here (50): cancelled"


async def test_without_a_terminal_everything_is_declined() -> None:
    answer = terminal_elicit(Console(file=io.StringIO()))(Elicitation(server="s", message="?"))
    assert inspect.isawaitable(answer)
    assert await answer == ElicitationAnswer.decline()


async def test_questions_of_servers_and_approvals_take_turns() -> None:
    screen, order = io.StringIO(), list[str]()
    console = Console(file=screen, width=200)
    asked = anyio.Event()

    def slowly() -> str:
        anyio.from_thread.run_sync(asked.set)
        order.append("approval read")
        return "q\n"

    def read() -> str:
        order.append("form read")
        return "n\n"

    async def form() -> None:
        await asked.wait()
        elicit: Any = terminal_elicit(console, read=read)
        await elicit(Elicitation(server="s", message="?", requested_schema={"type": "object"}))

    async def approval() -> None:
        approver: Any = terminal_approver(console, read=slowly)
        await approver([request()])
        order.append("approval done")

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(approval)
            tasks.start_soon(form)
    assert order == ["approval read", "approval done", "form read"]
