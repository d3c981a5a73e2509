"""A run as one HTML page that needs nothing else: no network, no script, no file beside it.

Everything on it comes from the run's journal. Whatever a program, a model, a tool or a server wrote is shown escaped,
unseen characters made visible, and can neither start a script nor load anything (the page's own policy forbids both).
Time on the page is the run's own: stretches in which it waited for people only are named, not drawn to scale.
"""

from __future__ import annotations

import json
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import msgspec

from bridge import ending
from bridge.approval import canonical, escape
from bridge.calls import CallState
from bridge.journal import CameBack, Decided, Ended, Judged, Loaded, Record, Rested, Sent, Waved
from bridge.state import RunState, fold

if TYPE_CHECKING:
    from jinja2 import Template

    from bridge.ledger import Side
    from bridge.results import Result
    from bridge.tools import Catalog

SHOWN_BYTES: Final = 20_000  # of one argument, reply or output; the page says what it leaves out
SHORT: Final = 70  # characters of a call on one line
TICKS: Final = 8
FOLDED: Final = 12  # calls of one wave; a larger one is opened by its reader
LISTED: Final = 40  # calls that did not complete, by name; the rest is counted
_WORDS: Final = {"completed": "good", "answered": "good", "waiting": "wait"}


@dataclass(frozen=True, kw_only=True)
class CallView:
    """One call as the page shows it. Offsets and widths are percent of the run's own time."""

    number: int
    anchor: str
    tool: str
    line: int
    wave: int
    outcome: str
    kind: str
    decision: str
    reason: str
    short: str
    made: str
    executed: str
    reply: str
    error: str
    left: float
    width: float
    waited_left: float
    waited_width: float
    duration: str
    argument_bytes: int
    reply_bytes: int
    reused: bool


@dataclass(frozen=True, kw_only=True)
class WaveView:
    """The calls that were made together. `left` and `width` span all of their bars."""

    number: int
    calls: Sequence[CallView]
    text: str
    left: float
    width: float
    kind: str


@dataclass(frozen=True, kw_only=True)
class Mark:
    """The calls of one tool that one line made."""

    tool: str
    first: CallView
    count: int
    failed: int


@dataclass(frozen=True, kw_only=True)
class LineView:
    """One line of the program and the calls that it made."""

    number: int
    text: str
    marks: Sequence[Mark]
    fault: bool


@dataclass(frozen=True, kw_only=True)
class Meter:
    """What was spent of one limit."""

    name: str
    spent: str
    limit: str
    percent: float


@dataclass
class _Times:
    """The run's own time: seconds since it began, without those in which only people were waited for."""

    now: float = 0.0
    at: float = 0.0
    resting: bool = False
    pauses: list[str] = field(default_factory=list[str])
    made: dict[int, float] = field(default_factory=dict[int, float])
    wave_of: dict[int, int] = field(default_factory=dict[int, int])
    asked: dict[int, float] = field(default_factory=dict[int, float])
    judged: dict[int, float] = field(default_factory=dict[int, float])
    sent: dict[int, float] = field(default_factory=dict[int, float])
    back: dict[int, float] = field(default_factory=dict[int, float])

    def move(self, at: float) -> float:
        """The run's own time of a moment."""
        passed = max(0.0, at - self.at)
        if self.resting and passed > 1.0:
            self.pauses.append(f"at {seconds(self.now)}: waited {seconds(passed)} for people or the application")
            passed = 0.0
        self.resting = False
        self.at, self.now = max(at, self.at), self.now + passed
        return self.now


def page(records: Sequence[Record], catalog: Catalog | None = None) -> str:
    """The page of a run, finished or not.

    Args:
        records: Its journal.
        catalog: Its tools, for the definitions in the ledger; without it the ledger counts none.
    """
    state = fold(records)
    times = _times(state, records)
    result = _result(state, catalog)
    calls = [_call(state, call, times) for call in state.calls.values()]
    by_line: defaultdict[int, list[CallView]] = defaultdict(list)
    for call in calls:
        by_line[call.line].append(call)
    waves: defaultdict[int, list[CallView]] = defaultdict(list)
    for call in calls:
        waves[call.wave].append(call)
    failure = result.error
    fault = failure.line if failure is not None else None
    program = state.began.program.replace("\r\n", "\n").split("\n")
    return _template().render(
        result=result,
        state=state,
        began=time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(state.began.at)),
        total=seconds(times.now),
        calls=calls,
        lines=[
            LineView(number=number, text=escape(text), marks=_marks(by_line.get(number, ())), fault=number == fault)
            for number, text in enumerate(program, 1)
        ],
        unplaced=_marks(by_line.get(0, ())),
        waves=[_wave(number, made) for number, (_, made) in enumerate(sorted(waves.items()), 1)],
        outcomes=Counter(call.outcome for call in calls).most_common(),
        troubled=[call for call in calls if call.kind == "bad"],
        listed=LISTED,
        folded=FOLDED,
        ticks=[(100 * tick / TICKS, seconds(times.now * tick / TICKS)) for tick in range(TICKS + 1)],
        pauses=times.pauses,
        failure=failure,
        failure_text=shown(failure.message) if failure is not None else "",
        value=_pretty(result.value) if result.value is not None else "",
        emitted=[shown(text) for text in result.emitted],
        logs=[(line.level, shown(line.message)) for line in result.logs],
        warnings=[(warning.code, shown(warning.message), warning.line) for warning in result.warnings],
        waiting=[call for call in calls if call.outcome == "waiting"],
        meters=_meters(state, result),
        ledger=_ledger(result, defined=catalog is not None),
        text=shown(result.text),
    )


def _result(state: RunState, catalog: Catalog | None) -> Result:
    if state.ended is not None:
        return ending.result(state, catalog)
    standing = Ended(at=state.began.at, status="paused", wall_s=state.wall_s)
    return ending.assemble(state, standing, catalog, notices=state.notices())


def _times(state: RunState, records: Sequence[Record]) -> _Times:
    times, waves = _Times(at=state.began.at), 0
    for record in records:
        match record:
            case Waved():
                now = times.move(record.at)
                waves += 1
                for call in record.wave.calls:
                    times.made[call.id], times.wave_of[call.id] = now, waves
            case Decided():
                now = times.move(record.at)
                if record.stage in ("asked", "client"):
                    times.asked[record.call] = now
            case Judged():
                times.judged[record.call] = times.move(record.at)
            case Sent():
                times.sent[record.call] = times.move(record.at)
            case CameBack():
                times.back[record.call] = times.move(record.at)
            case Rested():
                times.move(record.at)
                times.resting = True
            case Loaded() | Ended():
                times.move(record.at)
            case _:
                pass
    return times


def _call(state: RunState, call: CallState, times: _Times) -> CallView:
    number = call.number
    made = times.made.get(number, 0.0)
    sent = times.sent.get(number)
    back = times.back.get(number, times.now)
    asked = times.asked.get(number)
    until = times.judged.get(number, back) if asked is not None else made
    begins = sent if sent is not None else back
    row = ending.row(call)
    outcome = str(row.outcome)
    return CallView(
        number=number,
        anchor=f"call-{number}",
        tool=escape(call.tool),
        line=call.line,
        wave=times.wave_of.get(number, 0),
        outcome=outcome.replace("_", " "),
        kind=_WORDS.get(outcome, "bad"),
        decision=str(row.decision),
        reason=escape(call.reason),
        short=_short(row.arguments),
        made=_pretty(row.arguments),
        executed=_pretty(call.executed) if call.verdict == "edit" else "",
        reply=_pretty_text(call.text) if call.text else "",
        error=shown(row.error),
        left=_percent(begins, times.now),
        width=max(0.3, _percent(back - begins, times.now)),
        waited_left=_percent(asked if asked is not None else made, times.now),
        waited_width=_percent(until - asked, times.now) if asked is not None else 0.0,
        duration=seconds(call.duration_s) if sent is not None else "",
        argument_bytes=row.argument_bytes,
        reply_bytes=row.reply_bytes,
        reused=call.reused,
    )


def _wave(number: int, calls: Sequence[CallView]) -> WaveView:
    drawn = [call for call in calls if call.duration] or list(calls)
    left = min(call.left for call in drawn)
    kinds = {call.kind for call in calls}
    return WaveView(
        number=number,
        calls=calls,
        text=_counted(calls),
        left=left,
        width=max(0.3, round(max(call.left + call.width for call in drawn) - left, 3)),
        kind=next((kind for kind in ("bad", "wait") if kind in kinds), "good"),
    )


def _marks(calls: Sequence[CallView]) -> list[Mark]:
    by_tool: dict[str, list[CallView]] = {}
    for call in calls:
        by_tool.setdefault(call.tool, []).append(call)
    return [
        Mark(tool=tool, first=made[0], count=len(made), failed=sum(call.kind == "bad" for call in made))
        for tool, made in by_tool.items()
    ]


def _counted(calls: Sequence[CallView]) -> str:
    outcomes = Counter(call.outcome for call in calls)
    kinds = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.most_common())
    return f"{len(calls)} call{'' if len(calls) == 1 else 's'} ({kinds})"


def _meters(state: RunState, result: Result) -> list[Meter]:
    meters: list[Meter] = []
    for name in result.usage.__dataclass_fields__:
        spent, limit = getattr(result.usage, name), getattr(state.limits, name)
        write = seconds if name.endswith("_s") else _whole
        meters.append(Meter(name=name, spent=write(spent), limit=write(limit), percent=min(100.0, 100 * spent / limit)))
    return sorted(meters, key=lambda meter: -meter.percent)


def _whole(number: float) -> str:
    return f"{number:,.0f}"


def _ledger(result: Result, *, defined: bool) -> dict[str, Any]:
    count = result.ledger.in_tokens or result.ledger.in_bytes
    most = max(count.direct.total, count.program.total, 1)
    share = f"{abs(count.saved_share):.0%}"
    return {
        "unit": "tokens" if count is result.ledger.in_tokens else "bytes",
        "line": result.ledger.line().removeprefix("context: "),
        "share": f"{share} less" if count.saved >= 0 else f"{share} more",
        "sides": [
            _side("direct parallel calls", count.direct, most),
            _side("with the program", count.program, most),
        ],
        "defined": defined,
        "loses": count.saved < 0,
        "by_tool": sorted(count.by_tool.items(), key=lambda item: -item[1].total),
    }


def _side(name: str, side: Side, most: int) -> dict[str, Any]:
    """One bar of the ledger, by what it is made of."""
    parts = [
        (word, amount, round(100 * amount / most, 3))
        for word, amount in (
            ("definitions", side.definitions),
            ("written", side.calls),
            ("read", side.results),
            ("sent again", side.resent),
        )
    ]
    return {"name": name, "total": side.total, "requests": side.requests, "parts": parts}


# ---- text ---------------------------------------------------------------------------------------------------------


def seconds(value: float) -> str:
    """A duration for people: `312 ms`, `4.2 s`, `3 h 5 min`, `2 d 4 h`."""
    if value < 1:
        return f"{value * 1000:.0f} ms"
    if value < 120:
        return f"{value:.3g} s"
    minutes = round(value / 60)
    if minutes < 120:
        return f"{minutes} min"
    hours = minutes // 60
    return f"{hours} h {minutes % 60} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


def shown(text: str) -> str:
    """Text with its lines, everything unseen made visible, cut where it is long."""
    cut, left_out = text[:SHOWN_BYTES], len(text) - SHOWN_BYTES
    lines = "\n".join(escape(line) for line in cut.split("\n"))
    return f"{lines}\n... {left_out:,} more characters" if left_out > 0 else lines


def _pretty(value: Any) -> str:
    try:
        return shown(json.dumps(value, ensure_ascii=False, indent=2))
    except (TypeError, ValueError, RecursionError):
        return shown(str(type(value).__name__))


def _pretty_text(text: bytes) -> str:
    if len(text) > SHOWN_BYTES:
        return shown(text[: SHOWN_BYTES * 4].decode("utf-8", "replace")) + f"\n... {len(text):,} bytes in all"
    try:
        return _pretty(msgspec.json.decode(text))
    except (msgspec.MsgspecError, RecursionError):
        return shown(text.decode("utf-8", "replace"))


def _short(value: Any) -> str:
    try:
        text = canonical(value)
    except (TypeError, ValueError):
        text = "?"
    return escape(text if len(text) <= SHORT else text[: SHORT - 3] + "...")


def _percent(part: float, whole: float) -> float:
    return round(100 * max(0.0, part) / whole, 3) if whole > 0 else 0.0


@cache
def _template() -> Template:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    made = Environment(
        loader=PackageLoader("bridge", "templates"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    made.filters["seconds"] = seconds
    return made.get_template("run.html")
