"""One call of a run, as its journal tells it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

from bridge.journal import Outcome, Stage
from bridge.replies import read
from bridge.tools import Entry
from sandbox import Notice, Rejected, Reply, Resolved


@dataclass(kw_only=True, slots=True, eq=False)
class CallState:
    """Everything known of one call. `stage` says where it is; `outcome` how it ended.

    Attributes:
        number: The worker's id. `id` is unique over runs: what `resume` and verdicts use.
        tool: Full name.
        made: The argument list as the program made it; `checked`: what policy and approver see; `executed`: what the
            handler gets.
        text: JSON text of the reply's value, when it came back with one.
        entry: The tool itself, where this process has it. No part of the journal.
        changes: How the tool differs from what it was, for whoever approves.
        redefined: Digest and identity of the tool that was last shown in place of the one that the run began with.
    """

    number: int
    id: str
    tool: str
    made: msgspec.Raw
    line: int
    column: int
    entry: Entry | None = None
    is_checked: bool = False
    checked: Any = None
    executed: Any = None
    stage: Stage = "made"
    decision: str = ""
    reason: str = ""
    verdict: str = ""
    outcome: Outcome | None = None
    started: float | None = None
    duration_s: float = 0.0
    asked_at: float = 0.0
    expires_at: float = 0.0
    text: bytes = b""
    error_code: str = ""
    error_message: str = ""
    retryable: bool = False
    details: bytes = b"null"
    definition_changed: bool = False
    changes: tuple[str, ...] = ()
    redefined: tuple[str, str | None] | None = None
    reused: bool = False
    notices: list[Notice] = field(default_factory=list[Notice])

    @property
    def owner(self) -> Entry:
        """The tool itself, in a process that drives the run."""
        assert self.entry is not None, "a run that is driven has the tools of its calls"
        return self.entry

    @property
    def client_owned(self) -> bool:
        """Whether the application answers it."""
        return self.owner.tool.handler is None

    def reply(self) -> Reply:
        """What the program gets."""
        if self.error_code:
            details = msgspec.Raw(self.details)
            return Rejected(self.number, self.error_code, self.tool, self.error_message, self.retryable, details)
        return Resolved(self.number, msgspec.Raw(self.text))

    def first_argument(self) -> Any:
        """The one argument as the program made it; the whole list where it made more or none."""
        made = read(self.made)
        return made[0] if len(made) == 1 else made
