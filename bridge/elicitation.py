"""What an MCP server asks of a person during one of its calls, and what that person says.

The question is the server's and the answer goes to the server alone: it approves nothing, and neither program nor model
sees it. Whatever the callback does, the server gets one of the three answers that the protocol knows.
"""

from __future__ import annotations

import inspect
import logging
import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, Self, cast, get_args

import anyio

from bridge.approval import escape
from bridge.dialect import is_list, is_object
from bridge.errors import CatalogError
from bridge.schema import Checker
from bridge.threads import in_thread

if TYPE_CHECKING:
    from rich.console import Console

log: Final = logging.getLogger("sandbridge")
Action = Literal["accept", "decline", "cancel"]


@dataclass(frozen=True, kw_only=True)
class Elicitation:
    """One question of a server. Everything in it but the ids was written by the server: show it escaped (`lines`).

    Attributes:
        server: The server's name, as the executor knows it.
        message: The server's words.
        mode: `form`: wants data; `url`: wants the person to go to a page, for what no host should see.
        requested_schema: JSON Schema of the data (an object of texts, numbers, booleans and choices); None for `url`.
        url: An http or https address that nobody has opened yet, to be shown in full; None for `form`. Accept when the
            person has been there: the server may be asked again at once.
        run_id, call_id, tool: The call during which it asks, and its tool's full name. None where the protocol does not
            say which call that is, and several are in flight (2025-11-25); the run is known where all are of one.
        request: In words, what else it asks during: `the prompt greet`. None where that is a call.
        caller_context: The object that was given to `Executor.run(..., context=)`, where the run is known.
    """

    server: str
    message: str
    mode: Literal["form", "url"] = "form"
    requested_schema: Mapping[str, Any] | None = None
    url: str | None = None
    run_id: str | None = None
    call_id: str | None = None
    tool: str | None = None
    request: str | None = None
    caller_context: Any = field(default=None, repr=False)

    def mismatch(self, content: Any) -> str | None:
        """Why data does not answer the question; None where it does.

        Raises:
            CatalogError: The schema is none.
        """
        if not is_object(content):
            return f"content is an object of the fields that were asked for, not a {type(content).__name__}"
        for name, value in content.items():
            if isinstance(value, float) and not math.isfinite(value):
                return f"/{name}: {value} is not JSON"
            texts = is_list(value) and all(isinstance(item, str) for item in value)
            if not texts and not isinstance(value, (str, int, float, bool, type(None))):
                return f"/{name}: a {type(value).__name__} is no text, number, boolean or list of texts"
        return Checker(self.requested_schema or {}, "elicitation").result(content)

    def lines(self) -> list[str]:
        """What a person is to read: who asks, during what, and the server's own words, escaped."""
        what = self.tool or self.request
        during = f" during {escape(what)}" if what is not None else ""
        said = [f"  {escape(line)}" for line in self.message.split("\n")]
        page = [f"  page: {escape(self.url)}"] if self.url is not None else []
        return [f"server {escape(self.server)} asks{during}:", *said, *page]


@dataclass(frozen=True)
class ElicitationAnswer:
    """What the person says: `accept` with the data, `decline`, or `cancel` where there is no answer.

    Args:
        content: For `accept` in form mode: a value for each field, as the schema wants them.
        reason: For `decline`: why nobody could be asked; the program reads it where its call fails, the server never.
    """

    action: Action
    content: Mapping[str, Any] | None = None
    reason: str = ""

    def __post_init__(self) -> None:
        if self.action not in get_args(Action):
            raise ValueError(f"ElicitationAnswer.action must be accept, decline or cancel, not {self.action!r}")
        if self.content is not None and self.action != "accept":
            raise ValueError(f"ElicitationAnswer: only accept has content, {self.action} has none")
        if self.reason and self.action != "decline":
            raise ValueError(f"ElicitationAnswer: only decline has a reason, {self.action} has none")

    @classmethod
    def accept(cls, content: Mapping[str, Any] | None = None) -> Self:
        """The person agrees; with the data, in form mode."""
        return cls("accept", content)

    @classmethod
    def decline(cls, reason: str = "") -> Self:
        """The person says no; or, with a reason, there is nobody who could be asked."""
        return cls("decline", None, reason)

    @classmethod
    def cancel(cls) -> Self:
        """The person was not there, or went away without an answer."""
        return cls("cancel")


Elicit = Callable[[Elicitation], Awaitable[ElicitationAnswer] | ElicitationAnswer]
"""Asks a person. Awaited where it is async; any other function is called in a thread, so that it may block. It is
cancelled (or, in a thread, left alone) when the call ends or `Limits.expires_s` is over."""


def terminal_elicit(console: Console | None = None, *, read: Callable[[], str] | None = None) -> Elicit:
    """An `elicit` that asks the person at the terminal; see `bridge.form`.

    Without a terminal everything is declined; at the end of input it is cancelled. Takes turns with
    `terminal_approver`.

    Args:
        console: Where to write; standard error where there is none, so that piped output stays clean.
        read: Returns the next line, an empty text at the end; standard input where there is none.
    """
    from bridge.form import Form  # rich loads only where somebody is asked

    return Form(console, read)


async def answered(elicit: Elicit, question: Elicitation) -> ElicitationAnswer:
    """The answer to a question: one that fits it, or `cancel` where the callback fails or gives anything else.

    Never raises but for cancellation. What is wrong is in the operator's log, without what the person said.
    """
    try:
        answer = await _called(elicit, question)
        why = _wrong(question, answer)
    except (Exception, SystemExit):
        log.exception("elicit failed for a question of server %s: it counts as cancel", question.server)
    except BaseException as error:
        if not isinstance(error, anyio.get_cancelled_exc_class()) or anyio.current_effective_deadline() == -math.inf:
            raise
        # Nobody cancelled this question: something that the callback itself waited for was cancelled.
        log.exception("elicit was cancelled for a question of server %s: it counts as cancel", question.server)
    else:
        if why is None:
            return answer
        log.error("elicit answered server %s with no answer, which counts as cancel: %s", question.server, why)
    return ElicitationAnswer.cancel()


async def _called(elicit: Elicit, question: Elicitation) -> Any:
    is_async = inspect.iscoroutinefunction(elicit) or inspect.iscoroutinefunction(getattr(elicit, "__call__", None))  # noqa: B004  the method itself is looked at
    given: Any = elicit(question) if is_async else await in_thread(lambda: cast("Any", elicit(question)))
    return await given if inspect.isawaitable(given) else given


def _wrong(question: Elicitation, answer: Any) -> str | None:
    """Why something is no answer to the question."""
    if not isinstance(answer, ElicitationAnswer):
        what = f"the class {answer.__name__}" if isinstance(answer, type) else f"a {type(answer).__name__}"
        return f"it must be an ElicitationAnswer, not {what}"
    if answer.action != "accept":
        return None
    if question.mode == "url":
        return None if answer.content is None else "a page that is accepted has no content"
    try:
        why = question.mismatch(dict(answer.content or {}))
    except CatalogError as error:
        return str(error)
    if why is None:
        return None
    where = why.partition(": ")[0] if why.startswith("/") else "the top"
    return f"its content does not fit the requested schema at {where}"  # without what was said: it may be private
