"""Asks the person at a terminal about calls.

Requests for the same tool are shown as a group: what they share once, what differs a line each. Everything that a
worker, a model or a server wrote is escaped. What is too long is shown in part, with the size of the rest, and then no
key approves before the whole has been shown.
"""

from __future__ import annotations

import json
import os
import re
import select
import sys
import threading
import unicodedata
from typing import TYPE_CHECKING, Any, Final, cast

import anyio
from anyio import lowlevel, to_thread
from rich.console import Console

from bridge.approval import ApprovalRequest, Approve, Defer, Deny, Edit, Verdict, canonical, digest, escape

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

SHOWN_CHARACTERS: Final = 4_000  # about a screen and a half: what a person reads before the first key
_LOOKALIKE: Final = frozenset("ARMENIAN CHEROKEE COPTIC CYRILLIC FULLWIDTH GREEK LISU MATHEMATICAL".split())
SHOWN_BEFORE: Final = 10  # lines of what the run did before
_turn: lowlevel.RunVar[anyio.Lock] = lowlevel.RunVar("bridge.terminal")
_POLL_S: Final = 0.1  # how long a cancelled question keeps its thread
_NEWLINES: Final = re.compile("\r\n|[\n\r\u2028\u2029]")  # line ends of ECMA-262, so that numbers agree with V8's


def groups(requests: Sequence[ApprovalRequest]) -> list[list[ApprovalRequest]]:
    """Requests that can be decided as one (same tool, definition, identity, reason), in order of the first of each."""
    found: dict[tuple[Any, ...], list[ApprovalRequest]] = {}
    for request in requests:
        definition = (request.definition_digest, request.definition_changed)
        key = (request.tool, request.server_identity, request.reason, *definition)
        found.setdefault(key, []).append(request)
    return list(found.values())


def describe(group: Sequence[ApprovalRequest]) -> list[str]:
    """What a person needs to decide on a group: escaped lines. Of `before` the end is shown and the rest counted."""
    first, many = group[0], len(group) > 1
    lines = [f"{len(group)} calls of {escape(first.tool)}" if many else f"call of {escape(first.tool)}"]
    if strange := lookalikes(first.tool):
        lines.append(f"WARNING: this name has letters that look like others: {strange}")
    if first.definition_changed:
        lines.append("WARNING: the definition or the server of this tool changed since an earlier approval")
        if first.changes:
            lines.append("what changed (the server's words; - was, + is):")
            lines += [f"  {escape(line)}" for line in first.changes]
    if first.title:
        lines.append(f"title (the server's words): {escape(first.title)}")
    if first.server:
        lines.append(f"server: {escape(first.server)}")
    lines.append(f"asked because: {escape(first.reason)}")
    if first.before:
        left_out = len(first.before) - SHOWN_BEFORE
        lines.append(f"before this, the run did{f' ({left_out} earlier ones not listed)' if left_out > 0 else ''}:")
        lines += [f"  {escape(line)}" for line in first.before[-SHOWN_BEFORE:]]
    if not many:
        size = len(_json(first.arguments).encode("utf-8", "replace"))
        lines.append(f"arguments, in full ({size:,} bytes):")
        lines += _indented(first.arguments)
        return [*lines, _claim(first)]
    shared, differing = _differences([request.arguments for request in group])
    if shared:
        lines.append("arguments that all of them have:")
        lines += _indented(shared)
    lines.append("arguments that differ:" if shared else "arguments, in full:")
    lines += [
        f"  {number}. {escape(_json(own))}   ({_claim(request)})"
        for number, (request, own) in enumerate(zip(group, differing, strict=True), 1)
    ]
    return lines


def lookalikes(name: str) -> str:
    r"""A name with its unusual letters written out, if it has some that read as ASCII; else an empty text.

    `p\u{430}y`, with a Cyrillic letter, reads as `pay` and is another name.
    """
    strange = any(not character.isascii() and _reads_as_ascii(character) for character in name)
    return "".join(c if c.isascii() and c.isprintable() else f"\\u{{{ord(c):x}}}" for c in name) if strange else ""


def _reads_as_ascii(character: str) -> bool:
    script = unicodedata.name(character, "").split(" ")[0]
    plain = unicodedata.normalize("NFKC", character)
    if script == "COMBINING" or (plain.isascii() and plain.strip()):
        return True  # `a` and an accent read as one letter that has a code of its own; a Roman numeral reads as letters
    bare = unicodedata.normalize("NFKD", character)[0]  # an accent leaves an ASCII letter
    rare = character > "\u017f" or character == "\u0131"  # beyond the alphabets of Europe; the i without its dot
    return script in _LOOKALIKE or (script == "LATIN" and rare and not bare.isascii())


def shortened(lines: Sequence[str], characters: int = SHOWN_CHARACTERS) -> tuple[list[str], int]:
    """The first `characters` of the lines, and how many characters are left out."""
    shown: list[str] = []
    for line in lines:
        if len(line) > characters:
            if characters > 0:
                shown.append(line[:characters])
            hidden = sum(map(len, lines)) - sum(map(len, shown))
            return shown, hidden
        shown.append(line)
        characters -= len(line)
    return shown, 0


def listing(request: ApprovalRequest) -> list[str]:
    """The program with line numbers, escaped; the line of the call is marked."""
    return ["the program, as the model wrote it:", *numbered(request.program, {request.line})]


def numbered(program: str, marked: Collection[int]) -> list[str]:
    """A program with line numbers, escaped; some of its lines are marked."""
    lines = _NEWLINES.split(program)
    width = len(str(len(lines)))
    return [f"{'>' if n in marked else ' '} {n:>{width}} | {escape(line)}" for n, line in enumerate(lines, 1)]


class Terminal:
    """Where a person reads and types. One question at a time, whatever number of runs and servers ask."""

    def __init__(self, console: Console | None, read: Callable[[], str] | None) -> None:
        self._console = console or Console(stderr=True)
        self._read = read

    @property
    def attended(self) -> bool:
        """Whether somebody can read and type."""
        terminal = bool(sys.stdin) and sys.stdin.isatty() and self._console.is_terminal  # a service may have no stdin
        return self._read is not None or terminal

    @staticmethod
    def turn() -> anyio.Lock:
        """To be held while a question is open: one lock for each event loop, as there is one person."""
        try:
            return _turn.get()
        except LookupError:
            _turn.set(lock := anyio.Lock())
            return lock

    async def line(self, question: str) -> str | None:
        """What the person typed, or None at the end of input."""
        self._console.print(question, end="", markup=False, highlight=False, emoji=False, soft_wrap=True)
        gone = threading.Event()
        read = self._read or (lambda: _typed(gone))
        try:
            return await to_thread.run_sync(read, abandon_on_cancel=True) or None
        finally:
            gone.set()

    def write(self, line: str) -> None:
        """A line, as it is: what others wrote has to be escaped before."""
        self._console.print(line, markup=False, highlight=False, emoji=False, soft_wrap=True)


class Prompt(Terminal):
    """The approver that `terminal_approver` returns."""

    async def __call__(self, requests: list[ApprovalRequest]) -> Mapping[str, Verdict]:
        """Verdicts for all requests; what the person did not decide is deferred."""
        verdicts: dict[str, Verdict] = {request.call_id: Defer() for request in requests}
        if not self.attended:
            return verdicts
        async with self.turn():
            for group in groups(requests):
                if not await self._decide(group, verdicts):
                    break
        return verdicts

    async def _decide(self, group: list[ApprovalRequest], verdicts: dict[str, Verdict]) -> bool:
        """Ask until every request of the group is decided; False: the person wants to be asked nothing more."""
        while group:
            lines = describe(group)
            shown, hidden = shortened(lines)
            self._show(shown, hidden)
            decided = await self._answer(group, lines, hidden, verdicts)
            if decided == 0:
                return False
            group = group[decided:]
        return True

    async def _answer(
        self, group: list[ApprovalRequest], lines: list[str], hidden: int, verdicts: dict[str, Verdict]
    ) -> int:
        """Ask until a key decides; how many of the group, from its first, are decided. 0: leave the rest."""
        first, all_of_it = group[0], len(group)
        while True:
            key = await self.line(_question(all_of_it, hidden))
            match key.strip().lower() if key is not None else "q":
                case "q":
                    return 0
                case "f":
                    self._show(lines, 0)
                    hidden = 0
                case "s":
                    self._show(listing(first), 0)
                case "y" | "a" | "r" if hidden:
                    self.write(f"{hidden:,} characters have not been shown: f shows them, and then you can approve")
                case "y":
                    verdicts[first.call_id] = Approve()
                    return 1
                case "a" | "r" as wide:
                    verdict = Approve("run") if wide == "r" else Approve()
                    verdicts.update({request.call_id: verdict for request in group})
                    return all_of_it
                case "n" | "d" | "x" as refusing:
                    reason = await self.line("reason, for the model (may be empty): ")
                    if reason is None:
                        return 0
                    denied = group if refusing == "d" else group[:1]
                    verdict = Deny(reason.strip(), stop=refusing == "x")
                    verdicts.update({request.call_id: verdict for request in denied})
                    return 0 if verdict.stop else len(denied)
                case "e":
                    edited = await self._edit()
                    if edited is not None:
                        verdicts[first.call_id] = edited
                        return 1
                case other:
                    self.write(f"no such key: {escape(other)!s}" if other else "nothing is decided by an empty line")

    async def _edit(self) -> Edit | None:
        """Arguments typed in place of those asked about; None where the person went back."""
        while True:
            text = await self.line("arguments for this call, as JSON in one line (empty: back): ")
            if text is None or not text.strip():
                return None
            try:
                return Edit(json.loads(text, parse_constant=_no_json))
            except (ValueError, RecursionError) as error:
                self.write(f"that is no JSON: {escape(str(error))}")

    def _show(self, lines: Sequence[str], hidden: int) -> None:
        for line in lines:
            self.write(line)
        if hidden:
            self.write(f"... {hidden:,} more characters are NOT shown; f shows them")


def _question(many: int, hidden: int) -> str:
    keys = ["y this call", *([f"a all {many}"] if many > 1 else []), "r this tool in this run"] if not hidden else []
    keys += ["f show all of it"] if hidden else []
    keys += ["n deny", *([f"d deny all {many}"] if many > 1 else []), "x deny and end the run", "e edit"]
    return f"[{' | '.join([*keys, 's show the program', 'q later'])}] "


def _typed(gone: threading.Event) -> str:
    """The next line of standard input. Looks up now and then: a cancelled question must not swallow the next line, nor
    keep the process from ending."""
    if os.name == "nt":  # pragma: no cover - select knows only sockets there
        return sys.stdin.readline()
    while not gone.is_set():
        ready = select.select([sys.stdin], [], [], _POLL_S)[0]
        if ready and not gone.is_set():
            return sys.stdin.readline()
    return ""


def _differences(arguments: Sequence[Any]) -> tuple[dict[str, Any], list[Any]]:
    """What all of them share, and what each has of its own."""
    if not all(isinstance(each, dict) for each in arguments):
        return {}, list(arguments)
    objects = cast("list[dict[str, Any]]", list(arguments))
    first = objects[0]
    same = {
        key: part
        for key, part in first.items()
        if all(key in each and digest(each[key]) == digest(part) for each in objects[1:])
    }
    return same, [{key: part for key, part in each.items() if key not in same} for each in objects]


def _claim(request: ApprovalRequest) -> str:
    """Where the program says that it makes the call, and what stands there."""
    lines = _NEWLINES.split(request.program)
    if not 1 <= request.line <= len(lines):
        return "the program does not say where"
    return f"by the program's claim: line {request.line}: {escape(lines[request.line - 1].strip())}"


def _json(value: Any, indent: int | None = None) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, indent=indent)
    except RecursionError:
        return canonical(value)


def _indented(value: Any) -> list[str]:
    # dumps escapes line ends inside texts, so every line here is one of JSON's own.
    return [f"  {escape(line)}" for line in _json(value, indent=2).split("\n")]


def _no_json(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
