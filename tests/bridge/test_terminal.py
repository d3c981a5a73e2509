"""The approver at the terminal: what it shows, and what each key decides."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

import anyio
import anyio.from_thread
import anyio.lowlevel
import pytest
from rich.console import Console

from bridge.approval import Approve, Defer, Deny, Edit, Verdict, canonical, terminal_approver
from bridge.terminal import SHOWN_CHARACTERS, describe, groups, listing, shortened
from tests.bridge.test_approval import request

pytestmark = pytest.mark.anyio
KEYS = "y this call | r this tool in this run | n deny | x deny and end the run | e edit"


def typing(*lines: str) -> Callable[[], str]:
    """A person who types these lines and then closes the terminal."""
    left = list(lines)
    return lambda: f"{left.pop(0)}\n" if left else ""


async def asked(requests: list[Any], *lines: str) -> tuple[Mapping[str, Verdict], str]:
    screen = io.StringIO()
    approver = terminal_approver(Console(file=screen, width=80), read=typing(*lines))
    verdicts = approver(requests)
    assert not isinstance(verdicts, Mapping)
    return await verdicts, screen.getvalue()


def many(count: int) -> list[Any]:
    return [request(f"r.{n}", arguments={"to": "ada", "amount": n}, line=n) for n in range(1, count + 1)]


async def test_one_call_is_shown_with_everything_that_is_known_of_it() -> None:
    shown = request(before=tuple(f"call {n}" for n in range(12)), definition_changed=True)
    _, screen = await asked([shown], "q")
    assert screen.splitlines() == [
        "call of mail/send",
        "WARNING: the definition or the server of this tool changed since an earlier approval",
        "title (the server's words): Send a mail",
        "server: mail",
        'asked because: rule ask "mail.*"',
        "before this, the run did (2 earlier ones not listed):",
        *(f"  call {n}" for n in range(2, 12)),
        "arguments, in full (26 bytes):",
        "  {",
        '    "to": "ada",',
        '    "amount": 1',
        "  }",
        'by the program\'s claim: line 1: await tools.mail.send({to: "ada", amount: 1})',
        f"[{KEYS} | s show the program | q later] ",
    ]


async def test_a_group_is_shown_with_what_its_calls_share_and_where_they_differ() -> None:
    _, screen = await asked(many(3), "q")
    assert screen.splitlines()[:11] == [
        "3 calls of mail/send",
        "title (the server's words): Send a mail",
        "server: mail",
        'asked because: rule ask "mail.*"',
        "arguments that all of them have:",
        "  {",
        '    "to": "ada"',
        "  }",
        "arguments that differ:",
        '  1. {"amount": 1}   (by the program\'s claim: line 1: await tools.mail.send({to: "ada", amount: 1}))',
        '  2. {"amount": 2}   (the program does not say where)',
    ]


@pytest.mark.parametrize(
    ("lines", "verdicts"),
    [
        (["y", "y", "y"], [Approve(), Approve(), Approve()]),
        (["Y", "a"], [Approve(), Approve(), Approve()]),
        (["a"], [Approve(), Approve(), Approve()]),
        (["r"], [Approve("run")] * 3),
        (["n", "use staging", "y", "q"], [Deny("use staging"), Approve(), Defer()]),
        (["d", ""], [Deny(), Deny(), Deny()]),
        (["y", "x", " too many "], [Approve(), Deny("too many", stop=True), Defer()]),
        (["e", '{"amount": 5}', "q"], [Edit({"amount": 5}), Defer(), Defer()]),
        (["e", "", "y", "q"], [Approve(), Defer(), Defer()]),
        (["s", "", "yes", "y"], [Approve(), Defer(), Defer()]),
        (["n"], [Defer(), Defer(), Defer()]),
        (["e"], [Defer(), Defer(), Defer()]),
        ([], [Defer(), Defer(), Defer()]),
    ],
)
async def test_each_key_decides_what_it_says_and_the_end_of_input_defers(
    lines: list[str], verdicts: list[Verdict]
) -> None:
    given, _ = await asked(many(3), *lines)
    assert given == dict(zip(["r.1", "r.2", "r.3"], verdicts, strict=True))


async def test_calls_of_other_tools_are_asked_about_one_group_after_the_other() -> None:
    requests = [request("r.1"), request("r.2", tool="mail/read"), request("r.3")]
    assert [[each.call_id for each in group] for group in groups(requests)] == [["r.1", "r.3"], ["r.2"]]
    verdicts, _ = await asked(requests, "a", "n", "no")
    assert verdicts == {"r.1": Approve(), "r.2": Deny("no"), "r.3": Approve()}


async def test_arguments_that_are_no_json_are_asked_for_again() -> None:
    verdicts, screen = await asked([request()], "e", "{amount: 5}", "NaN", '["\x1b"]', "[5]")
    assert verdicts == {"r.1": Edit([5])}
    assert [line.partition("that is no JSON: ")[2] for line in screen.splitlines() if "no JSON: " in line] == [
        "Expecting property name enclosed in double quotes: line 1 column 2 (char 1)",
        "NaN is not JSON",
        "Invalid control character at: line 1 column 3 (char 2)",
    ]


async def test_what_a_worker_or_a_server_wrote_reaches_the_terminal_escaped() -> None:
    hostile = "\x1b[2J\u202e[bold]x[/bold]:smile:\r\n"
    shown = request(
        tool=hostile, title=hostile, arguments={hostile: hostile}, program=hostile, reason=hostile, before=(hostile,)
    )
    _, screen = await asked([shown, request("r.2", tool=hostile)], hostile, "s")
    assert not any(character in screen for character in "\x1b\u202e\r")
    assert screen.count("\\u{1b}[2J\\u{202e}[bold]x[/bold]:smile:") >= 5


async def test_what_was_not_shown_in_full_cannot_be_approved() -> None:
    long = request(arguments={"command": "x" * 20_000 + "; rm -rf /"})
    verdicts, screen = await asked([long], "y", "a", "r", "f", "y")
    assert verdicts == {"r.1": Approve()}
    lines = screen.splitlines()
    hidden = sum(map(len, describe([long]))) - SHOWN_CHARACTERS
    assert lines.count(f"... {hidden:,} more characters are NOT shown; f shows them") == 1
    assert (
        sum(f"{hidden:,} characters have not been shown: f shows them, and then you can approve" in x for x in lines)
        == 3
    )
    assert sum("; rm -rf /" in line for line in lines) == 1


async def test_what_was_not_shown_in_full_can_be_denied() -> None:
    verdicts, _ = await asked([request(arguments={"command": "x" * 20_000})], "y", "n", "too long to read")
    assert verdicts == {"r.1": Deny("too long to read")}


def test_shortening_says_exactly_how_much_it_hides() -> None:
    assert shortened(["abc", "defg", "h"], 5) == (["abc", "de"], 3)
    assert shortened(["abc", "defg", "h"], 8) == (["abc", "defg", "h"], 0)
    assert shortened(["abc", "d"], 3) == (["abc"], 1)


def test_the_program_is_shown_with_numbers_and_the_line_of_the_call() -> None:
    assert listing(request(program="a\r\nb\u2028c", line=2)) == [
        "the program, as the model wrote it:",
        "  1 | a",
        "> 2 | b",
        "  3 | c",
    ]


def test_arguments_nested_deeper_than_the_stack_are_shown_too() -> None:
    deep: Any = []
    for _ in range(sys.getrecursionlimit() * 2):
        deep = [deep]
    assert f"  {canonical(deep)}" in describe([request(arguments=deep)])


async def test_without_a_terminal_everything_is_deferred(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    approver = terminal_approver(Console(file=io.StringIO(), force_terminal=True))
    assert await approver([request()]) == {"r.1": Defer()}
    monkeypatch.setattr(sys, "stdin", None)
    assert await approver([request()]) == {"r.1": Defer()}


async def test_a_real_terminal_is_read_line_by_line(monkeypatch: pytest.MonkeyPatch) -> None:
    keyboard, terminal = os.openpty()
    with os.fdopen(terminal) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        os.write(keyboard, b"n\nuse staging\n")
        approver = terminal_approver(Console(file=io.StringIO(), force_terminal=True))
        assert await approver([request()]) == {"r.1": Deny("use staging")}
    os.close(keyboard)


async def test_a_cancelled_question_swallows_no_line_and_writes_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    keyboard, terminal = os.openpty()
    with os.fdopen(terminal) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        screen = io.StringIO()
        approver = terminal_approver(Console(file=screen, force_terminal=True))
        with anyio.move_on_after(0.01) as scope:
            await approver([request()])
        assert scope.cancelled_caught
        written = screen.getvalue()
        os.write(keyboard, b"q\n")
        assert await approver([request()]) == {"r.1": Defer()}
        assert screen.getvalue().startswith(written)
    os.close(keyboard)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_an_interrupt_at_the_prompt_goes_on(backend: str) -> None:
    def interrupted() -> str:
        raise KeyboardInterrupt

    async def ask() -> None:
        await terminal_approver(Console(file=io.StringIO()), read=interrupted)([request()])

    with pytest.raises(KeyboardInterrupt):
        anyio.run(ask, backend=backend)


async def test_two_runs_that_ask_at_once_take_turns() -> None:
    screen = io.StringIO()
    asked_so_far: list[int] = []

    def read() -> str:
        for _ in range(20):  # whoever else wants to ask has every chance to
            anyio.from_thread.run(anyio.lowlevel.checkpoint)
        asked_so_far.append(screen.getvalue().count("call of mail/send"))
        return "y\n"

    approver = terminal_approver(Console(file=screen, width=80), read=read)
    given: dict[str, Verdict] = {}

    async def ask(call_id: str) -> None:
        given.update(await approver([request(call_id)]))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask, "a.1")
        tasks.start_soon(ask, "b.1")
    assert asked_so_far == [1, 2]
    assert given == {"a.1": Approve(), "b.1": Approve()}
