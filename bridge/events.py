"""What happens in a run, as typed events, in order."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Event:
    """Every event names its run; those of a call name the call, and `parent` is what contains it."""

    run_id: str
    call_id: str = ""
    parent: str = ""


@dataclass(frozen=True, kw_only=True)
class ProgramStarted(Event):
    """A worker has the program."""


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
