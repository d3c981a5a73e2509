"""What others have written to the journal of a paused run is taken into the run that is here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge import ending
from bridge.gate import bind
from bridge.journal import Delivered, Record
from bridge.loading import regrant, settled
from bridge.proofs import Proofs
from bridge.state import fold

if TYPE_CHECKING:
    from bridge.run import Run


def adopt(run: Run, records: list[Record], approver: str) -> None:
    """Take in what others have written to the journal of this run while it was paused.

    Args:
        approver: Verifier of the key that verdicts have to be signed with, or an empty text.

    Raises:
        StateError: It has to be signed with the approver's key, and is not: nothing of it was taken.
    """
    state = run.state
    proved: set[int] | None = None
    if approver:
        proofs = Proofs(approver)
        proofs.take(fold(run.journal.records), records)
        proved = proofs.calls | {call.number for call in state.calls.values() if call.stage in ("queued", "client")}
    for record in records:
        run.add(record)
    run.journal.came_from_sink()
    bind(state, run.gate)
    regrant(records, state, run.gate.grants, signed=bool(approver))
    for record in settled(state, run.gate, proved):  # whoever judged had no tools; whoever drove may have died
        run.add(record)
    run.end = run.end or ending.stopped(state)
    run.seat.stale = run.seat.stale or any(isinstance(record, Delivered) for record in records)
    for call in state.calls.values():
        if call.stage == "queued" and call not in run.flights.queue and not run.people.redefined(call):
            run.flights.queue.append(call)
