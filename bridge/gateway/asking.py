"""Approvals towards a host: the question that its person reads, and the verdict that the answer is.

The question has everything in full and escaped, with what the program supplied labelled as its claim. One that is too
long to be read whole in a host's dialogue is not asked there: the run pauses instead, for `sandbridge approve`. A host
that cannot ask, a cancelled dialogue and an answer that fits no form decide nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import mcp_types as types
from mcp.shared.exceptions import MCPError, NoBackChannelError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from bridge.approval import ApprovalRequest, Approve, Deny, Verdict
from bridge.mcp.text import well_formed
from bridge.terminal import describe, groups

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext

    from bridge.run import Run

QUESTION_CHARACTERS: Final = 16_000  # about four screens; a longer question would be answered unread
UNREADABLE: Final = "the host's person was not asked: what would be asked is too long to be read in a dialogue"
REASON_CHARACTERS: Final = 2_000
_HEAD: Final = "Sandbridge: a program that the model wrote wants to make a call that needs your approval."
_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "decision": {
            "type": "string",
            "title": "Decision",
            "oneOf": [
                {"const": "approve", "title": "Approve what is shown, once"},
                {"const": "approve_run", "title": "Approve this tool for the rest of this program"},
                {"const": "deny", "title": "Deny"},
            ],
        },
        "reason": {"type": "string", "title": "Reason, for the model", "maxLength": REASON_CHARACTERS},
    },
    "required": ["decision"],
}


def can_ask(ctx: ServerRequestContext[Any, Any]) -> bool:
    """Whether the host's person can be asked by a form, within this request."""
    capabilities = ctx.session.client_capabilities
    elicitation = None if capabilities is None else capabilities.elicitation
    if elicitation is None or (elicitation.form is None and elicitation.url is not None):
        return False
    return modern(ctx) or ctx.session.can_send_request


def modern(ctx: ServerRequestContext[Any, Any]) -> bool:
    """Whether questions are the request's result, and answers come with the next one (2026-07-28)."""
    return ctx.protocol_version in MODERN_PROTOCOL_VERSIONS


def questions(run: Run) -> dict[str, types.ElicitRequest]:
    """What to ask about a paused run: one question for calls that are decided alike, by the id of the first of them.

    Questions that are too long are left out.
    """
    asked: dict[str, types.ElicitRequest] = {}
    for group in groups(run.approvals):
        text = question(group)
        if len(text) <= QUESTION_CHARACTERS:
            params = types.ElicitRequestFormParams(message=text, requested_schema=_SCHEMA)
            asked[group[0].call_id] = types.ElicitRequest(params=params)
    return asked


def question(group: Sequence[ApprovalRequest]) -> str:
    """What the person reads."""
    return well_formed("\n".join([_HEAD, "", *describe(group)]))


def verdicts(run: Run, answers: Mapping[str, Any]) -> dict[str, Verdict]:
    """What answers decide, for every call of the group that each was asked for. What decides nothing is left out."""
    given: dict[str, Verdict] = {}
    for group in groups(run.approvals):
        verdict = _verdict(answers.get(group[0].call_id))
        if verdict is not None:
            given.update({request.call_id: verdict for request in group})
    return given


def _verdict(answer: Any) -> Verdict | None:
    if not isinstance(answer, types.ElicitResult) or answer.action == "cancel":
        return None
    if answer.action == "decline":
        return Deny("a person declined it")
    content = answer.content or {}
    decision, reason = content.get("decision"), content.get("reason")
    if decision == "approve":
        return Approve()
    if decision == "approve_run":
        return Approve("run")
    if decision == "deny":
        return Deny(reason[:REASON_CHARACTERS] if isinstance(reason, str) else "")
    return None


async def ask_now(ctx: ServerRequestContext[Any, Any], run: Run) -> dict[str, Verdict]:
    """Ask in the middle of the request (2025-11-25), one question after the other; the first that is put off ends it.

    What nobody answers is left out; a host that says that it can ask and cannot is one that cannot.
    """
    given: dict[str, Verdict] = {}
    for call_id, request in questions(run).items():
        assert isinstance(request.params, types.ElicitRequestFormParams)
        try:
            answer = await ctx.session.elicit_form(
                request.params.message, request.params.requested_schema, related_request_id=ctx.request_id
            )
        except (MCPError, NoBackChannelError, ValidationError):
            break
        decided = verdicts(run, {call_id: answer})
        if not decided:
            break
        given |= decided
    return given


def ask_next(run: Run) -> types.InputRequiredResult:
    """Ask with the result of the request (2026-07-28)."""
    requests: dict[str, Any] = dict(questions(run))
    return types.InputRequiredResult(request_state=json.dumps({"run": run.id}), input_requests=requests)


def run_of_state(state: str) -> str | None:
    """The run id in a state that `ask_next` made; None where it is none of ours (the SDK has verified its seal)."""
    try:
        data: Any = json.loads(state)
    except ValueError:
        return None
    run = data.get("run") if isinstance(data, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return run if isinstance(run, str) else None
