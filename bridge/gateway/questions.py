"""Questions of the servers behind, put to the person at the host of the run: "server X asks".

The server's words are shown as the server's, escaped; the answer goes to that server alone and approves nothing. What
cannot be put to a person is declined, and the program's error says so.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import anyio
import mcp_types as types
from mcp.shared.exceptions import MCPError, NoBackChannelError
from pydantic import ValidationError

from bridge.dialect import is_list, is_object
from bridge.elicitation import Elicitation, ElicitationAnswer
from bridge.gateway.asking import QUESTION_CHARACTERS, modern
from bridge.gateway.progress import Told
from bridge.mcp.server import CallProgress
from bridge.mcp.text import well_formed
from bridge.text import cut, visible

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext
    from mcp.shared.subscriptions import ServerEvent

SCHEMA_CHARACTERS: Final = 8_000  # of the form that a server wants filled in
LABEL: Final = 500  # characters of a title or description in it
_HEAD: Final = (
    "Sandbridge: a server behind it asks you something. Your answer goes to that server only, and approves nothing."
)
_LABELS: Final = frozenset({"title", "description"})


@dataclass(eq=False)
class Waiting:
    """One question that nobody has answered yet.

    Attributes:
        shown: Whether a host has been given it with a result (2026-07-28).
        over: Set when it is answered or taken back.
    """

    question: Elicitation
    shown: bool = False
    answer: ElicitationAnswer = field(default_factory=ElicitationAnswer.cancel)
    over: anyio.Event = field(default_factory=anyio.Event)


class Asked:
    """What servers ask and say during one run, or another request. It is its context, so that both find its host.

    Attributes:
        id: Names it, and cannot be guessed.
        open: What waits for an answer, by its name towards the host, in the order of arrival.
        changed: Called when there is one more, or one less.
        unasked: What could be put to nobody, and why; a line each.
        told: What the host is told of the run meanwhile.
    """

    def __init__(self) -> None:
        self.id = secrets.token_hex(16)
        self.open: dict[str, Waiting] = {}
        self.changed: Callable[[], None] = lambda: None
        self.unasked: list[str] = []
        self.told = Told()
        self._count = 0

    async def ask(self, question: Elicitation) -> ElicitationAnswer:
        """Wait for the person's answer."""
        self._count += 1
        name, waiting = f"question-{self._count}", Waiting(question)
        self.open[name] = waiting
        self.changed()
        try:
            await waiting.over.wait()
        finally:
            self.give(name, waiting.answer)
        return waiting.answer

    def give(self, name: str, answer: ElicitationAnswer) -> None:
        """Answer one; harmless where it is answered or was taken back."""
        waiting = self.open.pop(name, None)
        if waiting is not None:
            waiting.answer = answer
            waiting.over.set()
            self.changed()

    def refuse(self, name: str, why: str) -> None:
        """Decline one that nobody can be asked."""
        question = self.open[name].question
        what = question.tool or question.request
        during = f" during {what}" if what else ""
        text = f"server {question.server} asked a person something{during}, and it was declined: {why}"
        if text not in self.unasked:
            self.unasked.append(text)
        self.give(name, ElicitationAnswer.decline(why))

    def hear(self, answers: Mapping[str, Any]) -> None:
        """Take what a host's person said to the questions that it was given; what they left out is put off."""
        for name, waiting in list(self.open.items()):
            if waiting.shown:
                self.give(name, _answer(answers.get(name)))


async def elicit(question: Elicitation) -> ElicitationAnswer:
    """The executor's `elicit`: to the host whose program made the call."""
    asked = question.caller_context
    if isinstance(asked, Asked):
        return await asked.ask(question)
    return ElicitationAnswer.decline("calls of several programs are in flight, and it did not say which it is about")


def heard(what: ServerEvent | CallProgress) -> None:
    """What a server says of a call: to the host whose program made it."""
    if isinstance(what, CallProgress):
        asked = what.context.caller_context
        if isinstance(asked, Asked):
            asked.told.hear_server(what)


def unaskable(ctx: ServerRequestContext[Any, Any], question: Elicitation, *, back_channel: bool) -> str:
    """Why a question cannot be put to this host's person; an empty text where it can.

    Args:
        back_channel: Whether the request can be answered by a question at all.
    """
    capabilities = ctx.session.client_capabilities
    can = None if capabilities is None else capabilities.elicitation
    if can is None or not back_channel:
        return "the host has no way to ask its person (elicitation)"
    if question.mode == "url" and can.url is None:
        return "the host cannot send its person to a page (elicitation by URL)"
    if question.mode == "form" and can.form is None and can.url is not None:
        return "the host cannot show its person a form (elicitation by form)"
    if len(_message(question)) > QUESTION_CHARACTERS or len(json.dumps(_form(question))) > SCHEMA_CHARACTERS:
        return "it is too long to be read in a dialogue"
    return ""


async def ask(ctx: ServerRequestContext[Any, Any], asked: Asked, state: str) -> types.InputRequiredResult | None:
    """Ask all that is open; None where it was asked in the middle of the request, or of nobody.

    Args:
        state: Names what waits, for the request that brings the answers (2026-07-28).
    """
    later = modern(ctx)
    for name, waiting in list(asked.open.items()):
        if name not in asked.open:
            continue  # taken back while another was asked
        if why := unaskable(ctx, waiting.question, back_channel=later or ctx.session.can_send_request):
            asked.refuse(name, why)
        elif not later:
            await ask_now(ctx, asked, name)
    return ask_next(state, asked) if asked.open and later else None


async def ask_now(ctx: ServerRequestContext[Any, Any], asked: Asked, name: str) -> None:
    """Ask one in the middle of the request (2025-11-25), until it is answered or taken back."""
    waiting = asked.open[name]
    question = waiting.question
    async with anyio.create_task_group() as tasks:

        async def taken_back() -> None:
            await waiting.over.wait()
            tasks.cancel_scope.cancel()

        tasks.start_soon(taken_back)
        try:
            if question.url is not None:
                answer = await ctx.session.elicit_url(
                    _message(question), question.url, f"{asked.id}-{name}", related_request_id=ctx.request_id
                )
            else:
                answer = await ctx.session.elicit_form(
                    _message(question), _form(question), related_request_id=ctx.request_id
                )
        except (MCPError, NoBackChannelError, ValidationError):
            asked.refuse(name, "the host says that it can ask its person, and did not")
        else:
            asked.give(name, _answer(answer))
        tasks.cancel_scope.cancel()


def ask_next(state: str, asked: Asked) -> types.InputRequiredResult:
    """Ask all with the result of the request (2026-07-28)."""
    requests: dict[str, Any] = {}
    for name, waiting in asked.open.items():
        waiting.shown = True
        question = waiting.question
        params: types.ElicitRequestParams = (
            types.ElicitRequestFormParams(message=_message(question), requested_schema=_form(question))
            if question.url is None
            else types.ElicitRequestURLParams(message=_message(question), url=question.url)
        )
        requests[name] = types.ElicitRequest(params=params)
    return types.InputRequiredResult(request_state=json.dumps({"run": state}), input_requests=requests)


def _answer(given: Any) -> ElicitationAnswer:
    if not isinstance(given, types.ElicitResult):
        return ElicitationAnswer.cancel()
    return ElicitationAnswer(given.action, given.content if given.action == "accept" else None)


def _message(question: Elicitation) -> str:
    return well_formed("\n".join([_HEAD, "", *question.lines()]))


def _form(question: Elicitation) -> dict[str, Any]:
    """The form with its words on one line each, without invisible characters."""
    form: Any = well_formed(_labelled(dict(question.requested_schema or {"type": "object", "properties": {}})))
    return form


def _labelled(schema: Any, *, names: bool = False) -> Any:
    """A schema with its labels shown.

    Args:
        names: The keys are names of fields, not words of JSON Schema.
    """
    if is_object(schema):
        return {
            key: cut(visible(part), LABEL)
            if key in _LABELS and not names and isinstance(part, str)
            else _labelled(part, names=key == "properties" and not names)
            for key, part in schema.items()
        }
    return [_labelled(part) for part in schema] if is_list(schema) else schema
