"""What the command shows to a person: on standard error, plain where that is no terminal.

Standard output carries results and nothing else. What programs, servers and models wrote is escaped.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
import unicodedata
from collections import Counter
from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TextIO

import anyio

from bridge.approval import escape
from bridge.errors import ConfigurationError
from bridge.events import ApprovalAsked, CallFinished, CallStarted, Event

if TYPE_CHECKING:
    from rich.console import Console
    from rich.status import Status

    from bridge.approval import ApprovalRequest, Approver, Verdict
    from bridge.elicitation import Elicit, Elicitation
    from bridge.results import Result

COMPLETED, FAILED, USAGE, PAUSED = 0, 1, 2, 3  # exit status
SHOWN_AFTER_S: Final = 0.4  # a run that is over sooner needs no progress
_TOOLS_NAMED: Final = 8  # of a run, by name; the rest is counted


def is_terminal(stream: TextIO | None) -> bool:
    """Whether a person sees, or types into, this stream."""
    return stream is not None and not stream.closed and stream.isatty()


class Screen:
    """Standard error: lines, and the progress of one run."""

    def __init__(self) -> None:
        self.console: Console | None = None
        if is_terminal(sys.stderr):
            from rich.console import Console  # loads only where somebody looks

            self.console = Console(stderr=True, highlight=False)
        self.started: Counter[str] = Counter()
        self.finished = 0
        self.asked: set[str] = set()
        self._running: set[str] = set()
        self._waiting: set[str] = set()
        self._status: Status | None = None
        self._visible = False
        self._asking = 0

    def say(self, text: str, style: str = "") -> None:
        """A line, escaped, with what follows it indented; the style is for terminals that have colours."""
        shown = layout(text)
        if self.console is None:
            with contextlib.suppress(OSError, ValueError):  # nobody reads it: no reason to lose the result
                print(shown, file=sys.stderr, flush=True)
        else:
            self.console.print(shown, style=style or None, markup=False, emoji=False, soft_wrap=True)

    def warn(self, lines: Iterable[str]) -> None:
        """Warnings, a line each."""
        for line in lines:
            self.say(f"warning: {line}", "yellow")

    def on_event(self, event: Event) -> None:
        """Count what happens in the run."""
        match event:
            case CallStarted():
                self.started[event.tool] += 1
                self._running.add(event.call_id)
                self._waiting.discard(event.call_id)
            case CallFinished():
                self.finished += 1
                self._running.discard(event.call_id)
                self._waiting.discard(event.call_id)
            case ApprovalAsked():
                self.asked.add(event.call_id)
                self._waiting.add(event.call_id)
            case _:
                return
        if self._status is not None:
            self._status.update(self._counts())

    async def progress(self) -> None:
        """Show the counts until cancelled, once the run has taken a while; nothing where nobody looks."""
        if self.console is None:
            return
        self._status = self.console.status(self._counts(), spinner="line")
        try:
            await anyio.sleep(SHOWN_AFTER_S)
            self._visible = True
            self._draw()
            await anyio.sleep_forever()
        finally:
            self._visible = False
            self._status.stop()
            self._status = None

    def prompt(self) -> Approver | None:
        """An approver that asks the person at the terminal; None where nobody sits there."""
        if not (is_terminal(sys.stdin) and is_terminal(sys.stderr)):
            return None
        from bridge.approval import terminal_approver

        return self.asking(terminal_approver(self.console))

    def form(self) -> Elicit | None:
        """What asks the person at the terminal for servers; None where nobody sits there."""
        if not (is_terminal(sys.stdin) and is_terminal(sys.stderr)):
            return None
        from bridge.elicitation import ElicitationAnswer, terminal_elicit

        ask = terminal_elicit(self.console)

        async def elicit(question: Elicitation) -> ElicitationAnswer:
            with self._aside():
                answer = ask(question)
                return answer if isinstance(answer, ElicitationAnswer) else await answer

        return elicit

    def result(self, result: Result, *, as_json: bool, kept: str = "", options: str = "", tools: str = "") -> int:
        """Print a result, say what it cost and what it waits for, and return the exit status.

        Args:
            kept, options, tools: As for `pause`.
        """
        if as_json:
            out(result.to_json())
        else:
            out(result_text(result.text))
            for line in summary(result, self.asked):
                self.say(line, "dim")
        if result.status == "paused":
            for line in pause(result, kept, options, tools):
                self.say(line)
            return PAUSED
        if kept and result.status != "completed":
            self.say(
                f"run {result.run_id} is kept in {kept}: `--reuse {result.run_id}` takes over its completed calls",
                "dim",
            )
        return COMPLETED if result.status == "completed" else FAILED

    def asking(self, approver: Approver) -> Approver:
        """The same approver, with no progress in its way."""

        async def ask(requests: list[ApprovalRequest]) -> Mapping[str, Verdict]:
            with self._aside():
                answers = approver(requests)
                return answers if isinstance(answers, Mapping) else await answers

        return ask

    @contextlib.contextmanager
    def _aside(self) -> Generator[None]:
        """No progress is shown as long as the block lasts."""
        self._asking += 1
        self._draw()
        try:
            yield
        finally:
            self._asking -= 1
            self._draw()

    def _draw(self) -> None:
        if self._status is None:
            return
        if self._visible and not self._asking:
            self._status.start()
        else:
            self._status.stop()

    def _counts(self) -> str:
        parts = [f"{plural(len(self._running), 'call')} running", f"{self.finished} done"]
        parts += [f"{len(self._waiting)} to be approved"] if self._waiting else []
        return ", ".join(parts)


def summary(result: Result, asked: set[str]) -> list[str]:
    """What the run cost, and what stayed out of the model's context."""
    by_tool = Counter(row.tool for row in result.calls)
    named = [f"{tool} {count:,}" for tool, count in by_tool.most_common(_TOOLS_NAMED)]
    if len(by_tool) > _TOOLS_NAMED:
        named.append(f"{len(by_tool) - _TOOLS_NAMED} more tools")
    calls = plural(len(result.calls), "call") + (f" ({', '.join(named)})" if named else "")
    lines = [f"{calls} in {result.usage.wall_s:.2f} s, {result.usage.cpu_s:.2f} s of CPU time"]
    if result.calls:
        lines.append(result.ledger.line())
    if asked:
        words = {"approve": "approved", "edit": "edited", "answer": "answered", "deny": "denied"}
        verdicts = Counter(words.get(row.decision, "open") for row in result.calls if row.id in asked)
        lines.append(
            f"approvals: {len(asked):,} asked for, {', '.join(f'{n:,} {word}' for word, n in verdicts.items())}"
        )
    return lines


def pause(result: Result, kept: str = "", options: str = "", tools: str = "") -> list[str]:
    """What a paused run waits for, and what the person at the command line can do.

    Args:
        kept: Where the run is kept; an empty text where it ends here.
        options: What the next commands need, beside the run's id.
        tools: What `resume` needs beside that, for it alone starts servers.
    """
    lines = [f"paused: {plural(len(result.approvals) + len(result.pending), 'call')} waiting"]
    lines += [f"  {each.tool}{_line(each.line)} waits for approval: {each.reason}" for each in result.approvals]
    lines += [f"  {each.tool}{_line(each.line)} waits for the answer of an application" for each in result.pending]
    if kept:
        asked, owned = ([each.id.rpartition(".")[2] for each in some] for some in (result.approvals, result.pending))
        run = result.run_id
        lines.append(f"run {run} is kept in {kept}; to go on:")
        lines.append(f"  sandbridge show {run}{options}")
        if asked:
            lines.append(f"  sandbridge approve {run} {' '.join(asked)}{options}    (or deny, edit, answer)")
        lines += [f"  sandbridge answer {run} {call} JSON{options}" for call in owned]
        lines.append(f"  sandbridge resume {run}{options}{tools}")
        return lines
    by_default = [each.tool for each in result.approvals if not each.reason.startswith("rule ")]
    ways = ["on a terminal, which asks you"]
    if by_default:
        patterns = dict.fromkeys(tool.replace("/", ".", 1) for tool in by_default)
        ways.append(f"with {' '.join(f'--allow {shlex.quote(pattern)}' for pattern in patterns)}")
    if len(by_default) < len(result.approvals):
        ways.append("with other rules: one that asks is stronger than one that allows")
    if result.approvals:
        lines.append(f"to go on, run it again {'; or '.join(ways)}")
    lines.append("this run ends here: calls that it has made are not undone, and are made again when it is run again")
    return lines


def words(options: Iterable[tuple[str, object]]) -> str:
    """Options as they are to be repeated in a command, each after a space; those that were not given are left out."""
    return "".join(f" {name} {shlex.quote(str(value))}" for name, value in options if value is not None)


def given_up(screen: Screen) -> str:
    """What is known of a run that a signal ended."""
    calls = sum(screen.started.values())
    named = ", ".join(f"{tool} {count:,}" for tool, count in screen.started.most_common(_TOOLS_NAMED))
    return f"cancelled; {plural(calls, 'call')} had been sent" + (f" ({named})" if named else "")


def plural(count: int, word: str) -> str:
    """`1 call`, `2 calls`."""
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def result_text(text: str) -> str:
    """Text for standard output: no control characters but tabs and ends of lines; on a terminal nothing unseen."""
    if is_terminal(sys.stdout):
        return "\n".join("\t".join(map(escape, line.split("\t"))) for line in text.split("\n"))
    return "".join(
        f"\\u{{{ord(sign):x}}}" if unicodedata.category(sign) in ("Cc", "Cs") and sign not in "\n\t" else sign
        for sign in text
    )


def out(text: str) -> None:
    """Write a line to standard output. A reader that has gone away is no error: it has had enough.

    Raises:
        ConfigurationError: It cannot be written there, as where a disk is full.
    """
    try:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the interpreter complains when it ends
        if not isinstance(error, BrokenPipeError):
            what = f"standard output cannot be written: {error.strerror}: what was to be shown there is lost"
            raise ConfigurationError(what) from None


def show(lines: Iterable[tuple[str, str]]) -> None:
    """Texts with their styles on standard output, laid out; the styles only where that is a terminal."""
    if not is_terminal(sys.stdout):
        out("\n".join(layout(text) for text, _ in lines))
        return
    from rich.console import Console

    console = Console(highlight=False)
    for text, style in lines:
        console.print(layout(text), style=style or None, markup=False, emoji=False, soft_wrap=True)


def layout(text: str) -> str:
    """Text escaped line by line; all but the first are indented, so that no server's words begin a line of ours."""
    first, *rest = map(escape, text.split("\n"))
    return "\n".join([first, *(f"    {line}" for line in rest)])


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows as lines, in columns; the last column is as wide as it likes."""
    widths = [max((len(row[column]) for row in rows), default=0) for column in range(len(rows[0]) - 1 if rows else 0)]
    return [
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]]).rstrip()
        for row in rows
    ]


def _line(line: int | None) -> str:
    return f" (line {line})" if line else ""
