"""What a run that was read from its journal waits for, as its live run would say it, without the tools themselves."""

from __future__ import annotations

from typing import Final

from bridge import ending
from bridge.approval import ApprovalRequest, digest
from bridge.loading import binding
from bridge.results import PendingCall
from bridge.state import RunState
from bridge.tools import Annotations

SHOWN_BEFORE: Final = 50  # earlier calls that an approval request lists


def requests(state: RunState) -> list[ApprovalRequest]:
    """What a person is asked about a run that was read from its journal, in call order."""
    done = tuple(ending.brief(call) for call in state.calls.values() if call.stage == "done")
    found: list[ApprovalRequest] = []
    for call in state.waiting.values():
        if call.stage != "asked":
            continue
        known = binding(state, call)
        of_server = known is not None and known[1] is not None
        found.append(
            ApprovalRequest(
                call_id=call.id,
                run_id=state.id,
                tool=call.tool,
                title=None,
                description="",
                server=call.tool.partition("/")[0] if of_server else None,
                arguments=call.checked,
                arguments_digest=digest(call.checked),
                program=state.began.program,
                line=call.line,
                reason=call.reason,
                definition_digest=known[0] if known is not None else "",
                server_identity=known[1] if known is not None else None,
                before=done[-SHOWN_BEFORE:],
                expires_at=call.expires_at,
                annotations=Annotations(),
                definition_changed=call.definition_changed or bool(call.changes),
                changes=call.changes,
            )
        )
    return found


def pending(state: RunState) -> list[PendingCall]:
    """Client-owned calls that wait for the application, in call order."""
    return [
        PendingCall(
            id=call.id,
            run_id=state.id,
            tool=call.tool,
            arguments=call.executed,
            line=call.line or None,
            expires_at=call.expires_at,
        )
        for call in state.waiting.values()
        if call.stage == "client"
    ]
