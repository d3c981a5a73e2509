"""The text that the model reads. Every path to it goes through `render` and its one cap.

The first line is the host's and says how the run ended. Later lines of the host start with the same label; a line that
a program wrote and that starts with it gets a "> " in front, so no program can speak for the host.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from bridge.approval import escape
from bridge.cut import FLOOR, cut, cut_text, encode, share

if TYPE_CHECKING:
    from bridge.approval import ApprovalRequest
    from bridge.results import CallRow, Failure, PendingCall
    from sandbox import Log, Notice

LABEL: Final = "[sandbridge]"
_ARGUMENT_BYTES: Final = 160  # of one call in a list of calls
_REPLY_CHARACTERS: Final = 160
_MESSAGE_CHARACTERS: Final = 600  # of a warning, a hint or a reason: they are written to be short
_SOURCE_CHARACTERS: Final = 120  # of a line of the program around the column at fault
_BREAKS: Final = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"  # whatever a reader may take for a new line
# What nobody sees, or what only changes the letter before it: control and format characters, marks, fillers.
_UNSEEN: Final = (
    "\\0-\\x08\\x0e-\\x1b\\x1f\\x7f-\\x84\\x86-\\x9f\\xad\\u0300-\\u036f\\u0483-\\u0489\\u061c\\u115f\\u1160\\u17b4\\u17b5"
    "\\u180b-\\u180f\\u1ab0-\\u1aff\\u1dc0-\\u1dff\\u200b-\\u200f\\u202a-\\u202e\\u2060-\\u206f\\u20d0-\\u20ff\\u2800\\u3164"
    "\\ufe00-\\ufe0f\\ufe20-\\ufe2f\\ufeff\\uffa0\\ufff0-\\ufffb\\ue000-\\uf8ff\\ud800-\\udfff\\U000e0000-\\U0010ffff"
)
_BLANK: Final = f"(?:\x1b\\[[\\d;]*m|(?![{_BREAKS}])[\\s{_UNSEEN}])*+"  # a colour is as blank as a space
_LETTERS: Final = _BLANK.join(f"(?:{letter}|[^\\0-\\x7f])" for letter in "sandbridge")
_FORGED: Final = re.compile(f"([{_BREAKS}]{_BLANK})(?=((?:\\[|[^\\0-\\x7f]){_BLANK}{_LETTERS}))", re.IGNORECASE)
_BLANKS: Final = re.compile(f"\x1b\\[[\\d;]*m|[\\s{_UNSEEN}]")
_BREAKS_OF_JSON: Final = re.compile("[\x85\u2028\u2029]")  # JSON lets them stand in a text as they are
_GROWTH: Final = 3  # times, at most, that a text of nothing else takes when they are escapes
_LINES: Final = re.compile("\r\n|[\n\r\u2028\u2029]")  # line ends of ECMA-262
_IDENTIFIER: Final = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")
REUSABLE: Final = frozenset(("completed", "answered"))  # outcomes of calls that a corrected program may take over
_OUTCOMES: Final = {
    "failed": "failed",
    "denied": "denied",
    "invalid": "not sent, the arguments were refused",
    "unknown_tool": "not sent, there is no such tool",
    "cancelled": "cancelled, it may have run",
    "timeout": "no answer in time, it may have run",
    "unknown": "sent, and no answer came: it may have run",
    "not_started": "not sent, the program had ended",
    "expired": "not sent, nobody answered in time",
    "waiting": "not sent yet, it waits for an answer",
}


@dataclass(frozen=True, kw_only=True)
class Parts:
    """Everything that a text is made of. `value_bytes` is -1 where there is no value."""

    status: str
    value: Any
    value_bytes: int
    emitted: Sequence[str]
    images: int
    logs: Sequence[Log]
    dropped_logs: int
    failure: Failure | None
    warnings: Sequence[Notice]
    rows: Sequence[CallRow]
    program: str
    pending: Sequence[PendingCall]
    approvals: Sequence[ApprovalRequest]
    handle: str | None


@dataclass(frozen=True)
class _Section:
    """A part of the text: its size in full (bytes), and itself within a number of bytes, at least `least`."""

    size: int
    within: Callable[[int], str]
    least: int = FLOOR


def render(parts: Parts, max_bytes: int) -> tuple[str, bool]:
    """The text in at most `max_bytes` bytes of UTF-8, and whether it shows less than there is.

    Sections share the room: a large one is cut before a small one loses anything. Values stay JSON when they are cut.
    """
    shows_logs = bool(parts.logs or parts.dropped_logs) and (
        parts.failure is not None or (parts.value_bytes < 0 and not parts.emitted)
    )
    output = [*_emitted(parts), *_value(parts), *(_logs(parts) if shows_logs else [])]
    ending = [*_failure(parts), *_calls(parts)]
    sections = [*ending, *output] if parts.failure is not None else [*output, *ending]
    sections += [*_waiting(parts), *_denied(parts), *_warnings(parts)]
    hidden_logs = 0 if shows_logs else len(parts.logs) + parts.dropped_logs
    first = _status_line(parts, hidden_logs)
    full = _size(first) + sum(1 + section.size for section in sections)
    if full <= max_bytes:
        return "\n".join([first, *(section.within(section.size) for section in sections)]), False
    first = _status_line(parts, hidden_logs, ", truncated")
    announcement = (
        f'{LABEL} truncated: the whole is {full:,} bytes, the limit {max_bytes:,}; "... N more" marks what is left '
        "out; return less: filter, count, slice"
    )
    if parts.handle:
        announcement += f'; the host keeps the whole as "{parts.handle}"'
    room = max_bytes - _size(first) - 1 - _size(announcement) - len(sections)
    shares = share([section.size for section in sections], room)
    shown = [
        section.within(given)
        for section, given in zip(sections, shares, strict=True)
        if given >= min(section.size, section.least)
    ]
    text = "\n".join([first, announcement, *shown])
    return text.encode("utf-8", "replace")[:max_bytes].decode("utf-8", "ignore"), True


def guard(text: str) -> str:
    """Mark lines of a program that start like the host's, or that a reader could take for it."""
    if text.isascii() and not {*"sandbridge["} <= {*text.lower()}:
        return text
    return _FORGED.sub(_marked, f"\n{text}")[1:]


def _marked(found: re.Match[str]) -> str:
    """A beginning of a line, with the mark where what follows reads as ours.

    Wide and decorated letters count as the plain ones. One of another alphabet may stand for any as long as three are
    ours: a bracket and ten Cyrillic letters are a word.
    """
    bracket, *letters = unicodedata.normalize("NFKC", _BLANKS.sub("", found[2])).casefold()
    same = sum(letter == ours for letter, ours in zip(letters, "sandbridge", strict=False))
    return f"{found[1]}> " if unicodedata.category(bracket) == "Ps" and same >= 3 else found[0]


def tool_call(name: str) -> str:
    """How a program writes a tool: `tools.carrier.track`, or `tools["get-team"]` where that is no identifier."""
    pieces = name.split("/", 1)
    if all(_IDENTIFIER.fullmatch(piece) for piece in pieces):
        return f"tools.{'.'.join(pieces)}"
    return f"tools[{json.dumps(escape(name), ensure_ascii=False)}]"


# ---- sections ---------------------------------------------------------------------------------------------------


def _status_line(parts: Parts, hidden_logs: int, truncated: str = "") -> str:
    said = [parts.status]
    if parts.failure is not None and parts.failure.limit:
        said[0] += f" {parts.failure.limit}"
    said[0] += truncated
    if parts.rows:
        outcomes = Counter(row.outcome for row in parts.rows if row.outcome not in ("completed", "answered"))
        detail = ", ".join(f"{count} {outcome.replace('_', ' ')}" for outcome, count in sorted(outcomes.items()))
        said.append(_count(len(parts.rows), "call") + (f" ({detail})" if detail else ""))
    if parts.images:
        said.append(_count(parts.images, "image"))
    if hidden_logs:
        said.append(f"{_count(hidden_logs, 'console line')} not shown")
    return f"{LABEL} {'; '.join(said)}"


def _emitted(parts: Parts) -> list[_Section]:
    if not parts.emitted:
        return []
    return [_text("\n".join(parts.emitted), f"{LABEL} output before the failure:\n" if parts.failure else "")]


def _value(parts: Parts) -> list[_Section]:
    if parts.value_bytes < 0:
        return []
    if isinstance(parts.value, str):
        return [_text(parts.value)]
    try:
        size = _size(_json(parts.value))
    except RecursionError:
        size = parts.value_bytes
    return [_Section(size, lambda room: _json_within(parts.value, room))]


def _json_within(value: Any, room: int) -> str:
    text = _json(cut(value, room)[0])
    return text if len(text) <= room and _size(text) <= room else _json(cut(value, room // _GROWTH)[0])


def _json(value: Any) -> str:
    """JSON text on one line, whatever a reader takes for the end of a line."""
    return _BREAKS_OF_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", encode(value).decode())


def _logs(parts: Parts) -> list[_Section]:
    lines = [log.message if log.level in ("log", "info") else f"{log.level}: {log.message}" for log in parts.logs]
    sections = [_text("\n".join(lines), f"{LABEL} console:\n")]
    if parts.dropped_logs:
        sections.append(_line(f"{_count(parts.dropped_logs, 'more console line')} did not fit into log_bytes"))
    return sections


def _failure(parts: Parts) -> list[_Section]:
    failure = parts.failure
    if failure is None:
        return []
    where = f" at line {failure.line}" if failure.line else ""
    where += f", column {failure.column}" if failure.line and failure.column else ""
    head = f"{LABEL} error {_short(failure.code, 60)}{where}:\n"
    name = f"{_short(failure.name, 100)}: " if failure.name else ""
    sections = [_text(name + failure.message, head)]
    excerpt = _excerpt(parts.program, failure.line or 0, failure.column or 0)
    if excerpt:
        sections.append(_plain(excerpt))
    if failure.hint:
        sections.append(_line(f"hint: {_short(failure.hint)}"))
    return sections


def _excerpt(program: str, number: int, column: int) -> str:
    """The line at fault, and a caret under the column; empty where there is no such line."""
    lines = _LINES.split(program)
    if not 1 <= number <= len(lines):
        return ""
    line = lines[number - 1]
    # V8 counts UTF-16 units: what is beyond the basic plane takes two.
    at = len(line.encode("utf-16-le", "surrogatepass")[: 2 * max(0, column - 1)].decode("utf-16-le", "ignore"))
    begin = max(0, min(at - _SOURCE_CHARACTERS // 2, len(line) - _SOURCE_CHARACTERS))
    before, after = escape(line[begin:at]), escape(line[at : begin + _SOURCE_CHARACTERS])
    margin = " " * len(str(number))
    left, right = "... " if begin else "", " ..." if begin + _SOURCE_CHARACTERS < len(line) else ""
    shown = f"  {number} | {left}{before}{after}{right}"
    return f"{shown}\n  {margin} | {' ' * len(left + before)}^" if column else shown


def _calls(parts: Parts) -> list[_Section]:
    if parts.failure is None or not parts.rows:
        return []
    rows = parts.rows

    def gone(left_out: Sequence[CallRow]) -> str:
        counts = Counter(row.tool for row in left_out).most_common(5)
        return f"  ... {len(left_out):,} more calls: " + ", ".join(f"{_dotted(tool)} x {n}" for tool, n in counts)

    sections = [
        _line("calls so far, in order; what ran is not undone, so do not repeat its effects:"),
        _list(rows, lambda index: _call(index + 1, rows[index]), gone),
    ]
    reusable = sum(row.outcome in REUSABLE for row in rows)
    if reusable and parts.handle:
        what = "1 completed call" if reusable == 1 else f"{reusable:,} completed calls"
        text = f'{what} can be reused: a corrected program run with reuse "{parts.handle}" gets the same replies for'
        sections.append(_line(f"{text} the same calls, which are not executed again"))
    return sections


def _call(number: int, row: CallRow) -> str:
    if row.outcome in ("completed", "answered"):
        reply = _short(row.preview, _REPLY_CHARACTERS) or "done"
        end = reply + (" (answered in place of the tool)" if row.outcome == "answered" else "")
    else:
        end = _OUTCOMES[row.outcome]
        end += f": {_short(_reason(row), _REPLY_CHARACTERS)}" if row.error else ""
    return f"  {number}. {_written(row.tool, row.arguments)} -> {end}{' (reused)' if row.reused else ''}"


def _waiting(parts: Parts) -> list[_Section]:
    if parts.status != "paused":
        return []
    waits = [(request.tool, request.arguments, request.line, "approval of") for request in parts.approvals]
    waits += [(call.tool, call.arguments, call.line, "an answer to") for call in parts.pending]

    def one(index: int) -> str:
        tool, arguments, line, what = waits[index]
        return f"  {what} {_written(tool, arguments)}{f' at line {line}' if line else ''}"

    head = _line("the program goes on where it stopped once these are decided; do not send it again. It waits for:")
    return [head, _list(waits, one, lambda left_out: f"  ... {len(left_out):,} more")]


def _denied(parts: Parts) -> list[_Section]:
    """Never left to the program: a denied call must not read as done."""
    rows = [row for row in parts.rows if row.outcome == "denied"]
    if not rows:
        return []
    counts = Counter((row.tool, _reason(row)) for row in rows)
    told = [
        _dotted(tool) + (f" ({_short(reason)})" if reason else "") + (f" x {count}" if count > 1 else "")
        for (tool, reason), count in counts.items()
    ]
    more = f", ... {len(told) - 10} more" if len(told) > 10 else ""
    return [_line(f"{_count(len(rows), 'call')} denied: {', '.join(told[:10])}{more}")]


def _warnings(parts: Parts) -> list[_Section]:
    warnings = parts.warnings
    if not warnings:
        return []

    def one(index: int) -> str:
        notice = warnings[index]
        where = f" (line {notice.line})" if notice.line else ""
        return f"{LABEL} warning {_short(notice.code, 60)}{where}: {_short(notice.message)}"

    return [_list(warnings, one, lambda left_out: f"{LABEL} ... {len(left_out):,} more warnings")]


# ---- pieces -----------------------------------------------------------------------------------------------------


def _text(text: str, head: str = "") -> _Section:
    """Words of a program, under a line of the host."""
    guarded = guard(text)
    above = _size(head)
    return _Section(above + _size(guarded), lambda room: head + cut_text(guarded, room - above)[0], above + FLOOR)


def _line(text: str) -> _Section:
    return _plain(f"{LABEL} {text}")


def _plain(text: str) -> _Section:
    return _Section(_size(text), lambda room: cut_text(text, room)[0])


def _list(items: Sequence[Any], one: Callable[[int], str], gone: Callable[[Sequence[Any]], str]) -> _Section:
    """A line for each item; cut in the middle, so that the first and the last stay."""
    lines = [one(index) for index in range(len(items))]
    full = "\n".join(lines)

    def within(room: int) -> str:
        if _size(full) <= room:
            return full
        first, last = 0, len(lines)
        most = room // 3  # of the line that stands for what is gone
        room -= most + 1
        while first < last:
            from_start = first <= len(lines) - last
            size = _size(lines[first if from_start else last - 1]) + 1
            if size > room:
                break
            room -= size
            first, last = (first + 1, last) if from_start else (first, last - 1)
        mark = cut_text(gone(items[first:last]), most)[0]
        return "\n".join([*lines[:first], mark, *lines[last:]])

    return _Section(_size(full), within, 3 * FLOOR + 1)


def _written(tool: str, arguments: Any) -> str:
    """A call as a program would write it, its arguments cut."""
    try:
        text = encode(cut(arguments, _ARGUMENT_BYTES)[0]).decode()
    except (UnicodeEncodeError, TypeError, OverflowError, msgspec.MsgspecError):
        text = "..."  # arguments of the application's own making
    return f"{tool_call(tool)}({escape(text)})"


def _reason(row: CallRow) -> str:
    """Why it failed, without what the line says already."""
    reason = row.error.removeprefix(f"{row.outcome}: ")
    return reason.removeprefix(f"{row.tool} was denied: ")


def _dotted(tool: str) -> str:
    return escape(tool.replace("/", ".", 1))


def _short(text: str, characters: int = _MESSAGE_CHARACTERS) -> str:
    """One line of a text that may come from anywhere."""
    shown = escape(text[:characters])
    return f"{shown}... {len(text) - characters:,} more characters" if len(text) > characters else shown


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _size(text: str) -> int:
    return len(text.encode("utf-8", "replace"))
