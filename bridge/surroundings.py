"""What a run needs of its executor, and no journal holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bridge.approval import Approver
from bridge.gate import Gate
from bridge.keeping import Keeper
from bridge.made import Workers
from bridge.tools import Entry, Tool
from bridge.tracing import Trace

if TYPE_CHECKING:
    from bridge.run import Run


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What a run needs of its executor, and no journal holds.

    Attributes:
        live: The definition of a tool as its owner has it now; None where it is gone.
        spawn: Has `Run.drive` called in a task of its own.
        over: Told once, when the run is finished.
        hibernate_after_s: Seconds after which a paused run gives its worker back.
    """

    sandbox: Workers
    gate: Gate
    approver: Approver | None
    context: Any
    live: Callable[[Entry], Tool | None]
    spawn: Callable[[Run], None]
    over: Callable[[Run], None]
    keeper: Keeper
    hibernate_after_s: float
    trace: Trace | None = None
