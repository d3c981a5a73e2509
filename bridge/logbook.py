"""A run as lines of a log: the whole chain from the program to the answer, by ids, without secrets.

A third reading of the journal, beside events (for applications that react) and traces (for what takes how long). Every
entry is plain JSON data with `time`, `event` and `run_id`; those of a call have its `call_id` too. The order is that of
the journal:

    program_started                       what the model wrote, and the tools that it could call
    call_made, call_decided               with the arguments as made, and what policy said
    approval_asked, verdict_given         a person or the application
    call_started, call_finished           with the reply or the error
    replies_delivered, text_emitted, console
    program_ended, paused, loaded
    finished                              the answer: what the model reads, what was spent and what was saved

A run is written when it pauses and when it ends, not line by line: a secret is known by the name of its key, and that
may come after a text that repeats it. What was written before a pause cannot know what came after it.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Self, TextIO

import msgspec

from bridge import ending, journal
from bridge.journal import Record
from bridge.redaction import Redaction
from bridge.state import RunState
from sandbox import Returned

log: Final = logging.getLogger("sandbridge")
Entry = Mapping[str, Any]
CUT_BYTES: Final = 16 << 10  # of one value: a log is read by people, the journal has the whole


class Logbook:
    """Where entries go. One may serve several executors.

    Args:
        write: Gets each entry, in the event loop's thread. What it raises is logged and ends no run.
        redaction: Rules beyond the built-in ones; `Redaction(off=True)` for none at all.
    """

    def __init__(self, write: Callable[[Entry], None], *, redaction: Redaction | None = None) -> None:
        self._write = write
        self._redaction = redaction or Redaction()

    @classmethod
    def lines(cls, file: str | os.PathLike[str] | TextIO, *, redaction: Redaction | None = None) -> Self:
        """JSON lines, appended to a file (opened for each entry, so that it may be rotated) or written to a stream."""

        def write(entry: Entry) -> None:
            line = json.dumps(entry, ensure_ascii=True, separators=(",", ":")) + "\n"
            if isinstance(file, (str, os.PathLike)):
                with Path(file).open("a", encoding="ascii") as opened:
                    opened.write(line)
            else:
                file.write(line)
                file.flush()

        return cls(write, redaction=redaction)

    @classmethod
    def logger(cls, logger: logging.Logger, level: int = logging.INFO, *, redaction: Redaction | None = None) -> Self:
        """Records of `logging`: the message is the entry as JSON, and `record.sandbridge` is the entry itself."""

        def write(entry: Entry) -> None:
            if logger.isEnabledFor(level):
                logger.log(level, "%s", json.dumps(entry, ensure_ascii=True), extra={"sandbridge": entry})

        return cls(write, redaction=redaction)

    def follow(self, records: Sequence[Record]) -> Callable[[Record], None]:
        """What is to be called with each further record of a run, once it is in `records`."""
        written = 0 if len(records) == 1 else len(records)  # of a run that was loaded, the rest is in another's log

        def take(record: Record) -> None:
            nonlocal written
            if isinstance(record, (journal.Rested, journal.Ended)):
                try:
                    for entry in entries(records, self._redaction, written):
                        self._write(entry)
                except Exception:
                    log.exception("the logbook of a run could not be written")
                written = len(records)

        return take


def entries(records: Sequence[Record], redaction: Redaction, start: int = 0) -> Iterator[Entry]:
    """The entries of a journal from record `start` on, with whatever the whole of it shows to be a secret left out.

    Raises:
        StateError: It is no journal.
    """
    lines, _ = redaction.apply([journal.encode(record) for record in records])
    state: RunState | None = None
    for number, record in enumerate(journal.decode(lines)):
        if state is None:
            assert isinstance(record, journal.Began), "a journal begins with its beginning"
            state = RunState(record)
        else:
            state.apply(record)
        if number >= start:
            for at, entry in _of(record, state):
                when = state.began.at if at is None else at
                time = datetime.fromtimestamp(when, UTC).isoformat(timespec="milliseconds")
                yield {"time": time.replace("+00:00", "Z"), "event": entry.pop("event"), "run_id": state.id} | entry


_Told = tuple[float | None, dict[str, Any]]


def _of(record: Record, state: RunState) -> Iterator[_Told]:
    match record:
        case journal.Began():
            tools = [tool.name for tool in record.tools]
            told = {"program": record.program, "inputs": _value(record.inputs), "seed": record.seed, "tools": tools}
            yield record.at, {"event": "program_started", **told, "reuse": record.reuse, "engine": record.engine}
        case journal.Waved():
            for told in _wave(record, state):
                yield record.at, told
        case journal.Decided():
            call = state.calls[record.call]
            if record.kind:
                told = {"decision": record.kind, "reason": record.reason}
                yield record.at, {"event": "call_decided", **_named(state, record.call), **told}
            if record.stage in ("asked", "client"):
                told = {"of": "person" if record.stage == "asked" else "application", "line": call.line}
                yield record.at, {"event": "approval_asked", **_named(state, record.call), **told}
        case journal.Judged():
            told = {"verdict": record.verdict, "scope": record.scope, "by": record.by, "reason": record.reason}
            if record.arguments is not msgspec.UNSET:
                told["arguments"] = _value(msgspec.json.encode(record.arguments))
            yield record.at, {"event": "verdict_given", **_named(state, record.call), **told}
        case journal.Redefined():
            yield None, {"event": "definition_changed", **_named(state, record.call), "digest": record.digest}
        case journal.Sent():
            yield record.at, {"event": "call_started", **_named(state, record.call)}
        case journal.Again():
            yield None, {"event": "call_queued_again", **_named(state, record.call)}
        case journal.CameBack():
            told: dict[str, Any] = {"outcome": record.outcome, "duration_s": record.duration_s, "reused": record.reused}
            if record.value is not msgspec.UNSET:
                told["reply"] = _value(record.value)
            if record.code:
                told |= {"code": record.code, "message": record.message}
            yield record.at, {"event": "call_finished", **_named(state, record.call), **told}
        case journal.Delivered():
            known = [state.calls[number].id for number in record.ids if number in state.calls]
            yield record.now_ms / 1000, {"event": "replies_delivered", "call_ids": known}
        case journal.Rested():
            yield record.at, {"event": "paused", "waits_for": list(state.waiting)}
        case journal.Loaded():
            yield record.at, {"event": "loaded", "changed": list(record.changed), "engine": record.engine}
        case journal.Ended():
            yield record.at, _ended(record, state)


def _wave(record: journal.Waved, state: RunState) -> Iterator[dict[str, Any]]:
    for call in record.wave.calls:
        told = {"line": call.line, "arguments": _value(call.arguments)}
        yield {"event": "call_made", **_named(state, call.id), **told}
    for text in record.wave.text:
        yield {"event": "text_emitted", "text": _cut(text)}
    for line in record.wave.logs:
        yield {"event": "console", "level": line.level, "message": _cut(line.message)}
    for notice in record.wave.warnings:
        yield {"event": "warning", "code": notice.code, "message": notice.message, "line": notice.line}
    end = record.wave.end
    if isinstance(end, Returned):
        yield {"event": "program_ended", "value": _value(end.value) if bytes(end.value) else None}
    elif end is not None:
        told = {"code": end.code, "name": end.name, "message": end.message, "line": end.line or None}
        yield {"event": "program_ended", "error": told}


def _ended(record: journal.Ended, state: RunState) -> dict[str, Any]:
    result = ending.result(state)
    count = result.ledger.in_bytes
    return {
        "event": "finished",
        "status": record.status,
        "error": None if record.failure is None else msgspec.to_builtins(record.failure),
        "answer": _cut(result.text),
        "usage": msgspec.to_builtins(result.usage),
        "context_bytes": {"program": count.program.total, "direct": count.direct.total},
    }


def _named(state: RunState, number: int) -> dict[str, Any]:
    call = state.calls[number]
    return {"call_id": call.id, "tool": call.tool}


def _value(text: bytes | msgspec.Raw) -> Any:
    """JSON text as data; a long one as the beginning of its text."""
    raw = bytes(text)
    if len(raw) > CUT_BYTES:
        return {"cut": True, "bytes": len(raw), "beginning": raw[:CUT_BYTES].decode("utf-8", "replace")}
    return json.loads(raw)


def _cut(text: str) -> str:
    left = len(text) - CUT_BYTES
    return text if left <= 0 else f"{text[:CUT_BYTES]}... {left:,} more characters"
