"""One call of a run, from the moment a program made it to its reply."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import anyio
import msgspec

from bridge.policy import Decision
from bridge.tools import Entry

Stage = Literal["queued", "asked", "running", "client", "done"]
Outcome = Literal[
    "completed",
    "failed",
    "denied",
    "invalid",
    "unknown_tool",
    "cancelled",
    "timeout",
    "unknown",
    "not_started",
    "expired",
    "answered",
    "waiting",
]


@dataclass(kw_only=True)
class CallState:
    """Everything known of one call. `stage` says where it is; `outcome` how it ended.

    Attributes:
        number: The worker's id. `id` is unique over runs: what `resume` and verdicts use.
        made: The argument list as the program made it; `checked`: what policy and approver see; `executed`: what the
            handler gets.
        text: JSON text of the reply's value, when it came back with one.
    """

    number: int
    id: str
    entry: Entry
    made: msgspec.Raw
    line: int
    column: int
    checked: Any = None
    executed: Any = None
    stage: Stage = "queued"
    decision: Decision | None = None
    verdict: str = ""
    outcome: Outcome | None = None
    started: float | None = None
    duration_s: float = 0.0
    asked_at: float = 0.0
    expires_at: float = 0.0
    text: bytes = b""
    error_code: str = ""
    error_message: str = ""
    definition_changed: bool = False
    asked_again: bool = False
    scope: anyio.CancelScope | None = None
    given_up: bool = False
    notices: list[Any] = field(default_factory=list)

    def give_up(self) -> None:
        """Nobody waits for it any more: end its execution."""
        self.given_up = True
        if self.scope is not None:
            self.scope.cancel()

    @property
    def read_only(self) -> bool:
        """Whether it certainly changes nothing: only a hint that is trusted counts."""
        annotations = self.entry.tool.annotations
        trusted = annotations.trusted or self.entry.tool.server is None
        return bool(annotations.read_only) and trusted
