"""What happens in a run, as typed events, in order: another reading of its journal, for applications."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bridge import journal

if TYPE_CHECKING:
    from bridge.calls import CallState
    from bridge.state import RunState

log: Final = logging.getLogger("sandbridge")


@dataclass(frozen=True, kw_only=True)
class Event:
    """Every event names its run; those of a call name the call, and `parent` is what contains it."""

    run_id: str
    call_id: str = ""
    parent: str = ""


@dataclass(frozen=True, kw_only=True)
class ProgramStarted(Event):
    """The run began."""


@dataclass(frozen=True, kw_only=True)
class CallStarted(Event):
    """A call was sent to its tool."""

    tool: str
    line: int


@dataclass(frozen=True, kw_only=True)
class CallFinished(Event):
    """A call has its outcome (see `CallRow.outcome`)."""

    tool: str
    outcome: str
    duration_s: float


@dataclass(frozen=True, kw_only=True)
class ApprovalAsked(Event):
    """A call waits for a verdict."""

    tool: str
    line: int


@dataclass(frozen=True, kw_only=True)
class TextEmitted(Event):
    """The program called `text()`."""

    text: str


@dataclass(frozen=True, kw_only=True)
class Paused(Event):
    """All that is outstanding waits for people or the application."""


@dataclass(frozen=True, kw_only=True)
class Finished(Event):
    """The run has its outcome."""

    status: str


def of(record: journal.Record, state: RunState) -> Iterator[Event]:
    """The events that a record of a run stands for; `state` is the run's, with the record taken in."""
    match record:
        case journal.Began():
            yield ProgramStarted(run_id=state.id)
        case journal.Waved(wave=wave) if wave.text:
            for piece in wave.text:
                yield TextEmitted(run_id=state.id, text=piece)
        case journal.Decided(stage="asked") | journal.Redefined():
            call = state.calls[record.call]
            yield ApprovalAsked(**_naming(state, call), line=call.line)
        case journal.Sent():
            call = state.calls[record.call]
            yield CallStarted(**_naming(state, call), line=call.line)
        case journal.CameBack():
            call = state.calls[record.call]
            yield CallFinished(**_naming(state, call), outcome=record.outcome, duration_s=record.duration_s)
        case journal.Rested():
            yield Paused(run_id=state.id)
        case journal.Ended():
            yield Finished(run_id=state.id, status=record.status)
        case _:
            pass


def _naming(state: RunState, call: CallState) -> dict[str, str]:
    return {"run_id": state.id, "call_id": call.id, "parent": state.id, "tool": call.tool}


def tell(listener: Callable[[Event], None], record: journal.Record, state: RunState) -> None:
    """Give a record's events to a listener; one that raises is logged."""
    for event in of(record, state):
        try:
            listener(event)
        except Exception:
            log.exception("on_event failed in run %s at %s", event.run_id, type(event).__name__)
