"""Questions of one server (elicitation): which call each belongs to, and the way to the executor's `elicit` and back.

In 2026-07-28 a question is the result of a call, so it is known whose it is. In 2025-11-25 it is a request of the
server that names no call: over stdio it belongs to the only call in flight, or to none that is known, though to a run
where all are of one. So once such a server has asked something, its calls are made one after the other, unless
`max_concurrent` says otherwise.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import ExitStack, asynccontextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

import anyio
import mcp_types as types
from mcp.client.session import ClientRequestContext
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from bridge.elicitation import Elicit, Elicitation, answered
from bridge.errors import CatalogError, ToolError
from bridge.mcp.text import printable, well_formed
from bridge.tools import Tool, ToolContext

MESSAGE: Final = 20_000  # characters of a question; a longer one is cut, and the cut is said
PAGES: Final = 5  # that a person is sent to for one call
URL: Final = 4_000  # characters; a longer address is not shown in full by anything, so it is not asked about


@dataclass(eq=False)
class Call:
    """A call in flight, and the questions that wait for it.

    Attributes:
        what: The tool; or, in words, what else was asked of the server.
    """

    what: Tool | str
    context: ToolContext
    scopes: list[anyio.CancelScope] = field(default_factory=list[anyio.CancelScope])
    unasked: list[str] = field(default_factory=list[str])

    @property
    def name(self) -> str:
        """For errors."""
        return self.what if isinstance(self.what, str) else self.what.full_name

    def explained(self, error: ToolError) -> ToolError:
        """The error of the call, with why its questions were declined where nobody could be asked."""
        if not self.unasked:
            return error
        text = f"{error.message} (it asked a person something, which was declined: {'; '.join(self.unasked)})"
        return ToolError(error.code, text, retryable=error.retryable, details=error.details)


_current: Final[ContextVar[Call | None]] = ContextVar("bridge.mcp.questions", default=None)


class Questions:
    """What one server asks, and the turns that its calls take because of that.

    Args:
        server: Its name.
        elicit: Who is asked.
        warn: Told of questions that cannot be asked.
        in_turn: Whether calls of a session of the older revision wait for each other.
    """

    def __init__(self, server: str, elicit: Elicit, warn: Callable[[str], None], *, in_turn: bool) -> None:
        self._server = server
        self._elicit = elicit
        self._warn = warn
        self._turn = anyio.Semaphore(1) if in_turn else None
        self._calls: list[Call] = []
        self._has_asked = False

    @asynccontextmanager
    async def during(self, what: Tool | str, context: ToolContext, *, modern: bool) -> AsyncGenerator[Call]:
        """Surrounds a call: questions that come meanwhile are asked, and taken back when it ends.

        Args:
            what: The tool; or, in words, what else is asked of the server (`context.run_id` is then the request's own).
            modern: Whether questions name their call.

        Raises:
            ToolError: `timeout`: another call kept its turn for longer than people are waited for.
        """
        turn = self._turn if self._has_asked and not modern else None
        call = Call(what, context)
        if turn is not None:
            await self._wait(turn, call)
        token = _current.set(call)
        self._calls.append(call)
        try:
            yield call
        except ToolError as error:
            raise call.explained(error) from None
        finally:
            self._calls.remove(call)
            with suppress(ValueError):  # left in another context than it was entered in: nothing is set there
                _current.reset(token)
            for scope in call.scopes:
                scope.cancel()
            if turn is not None:
                turn.release()

    @staticmethod
    async def _wait(turn: anyio.Semaphore, call: Call) -> None:
        try:
            turn.acquire_nowait()
        except anyio.WouldBlock:
            came = False
            with call.context.on_hold():  # it has not been sent, and whoever has the turn may be waiting for a person
                await turn.acquire()
                came = True
            if not came:
                text = f"{call.name} waited too long for an earlier call of its server. Nothing was sent."
                raise ToolError("timeout", text, retryable=True) from None

    async def __call__(
        self, context: ClientRequestContext, params: types.ElicitRequestParams
    ) -> types.ElicitResult | types.ErrorData:
        """The SDK's callback, for both revisions."""
        self._has_asked = True
        call = _current.get()
        if call not in self._calls:  # its context is nobody's, or that of a call that is over
            call = self._calls[0] if len(self._calls) == 1 else None
        return await self.ask(params, call)

    async def ask(self, params: types.ElicitRequestParams, call: Call | None) -> types.ElicitResult | types.ErrorData:
        """Ask one question."""
        question = self._question(params, call)
        why = _cannot_be_asked(question)
        if why is not None:
            self._warn(f"it asked what cannot be asked: {why}")
            return types.ErrorData(code=types.INVALID_PARAMS, message=why)
        with ExitStack() as waiting:
            scope = waiting.enter_context(anyio.CancelScope())
            for each in [call] if call is not None else list(self._calls):
                each.scopes.append(scope)
                waiting.enter_context(each.context.on_hold())
            answer = await answered(self._elicit, question)
            if answer.reason:
                for each in [call] if call is not None else self._calls:
                    each.unasked.append(answer.reason)
            content = None if answer.content is None else dict(answer.content)
            return types.ElicitResult(action=answer.action, content=content)
        return types.ElicitResult(action="cancel")  # taken back, or nobody answered in time

    async def sent_to_pages(self, error: Exception | None, call: Call) -> bool:
        """Whether a call was refused until the person has been to some pages, and has been there (2025-11-25)."""
        if not isinstance(error, MCPError) or error.code != types.URL_ELICITATION_REQUIRED:
            return False
        try:
            pages = types.ElicitationRequiredErrorData.model_validate(error.data).elicitations[:PAGES]
        except ValidationError:
            return False
        for page in pages:
            answer = await self.ask(page, call)
            if not isinstance(answer, types.ElicitResult) or answer.action != "accept":
                return False
        return bool(pages)

    def _question(self, params: types.ElicitRequestParams, call: Call | None) -> Elicitation:
        is_form = isinstance(params, types.ElicitRequestFormParams)
        request = call.what if call is not None and isinstance(call.what, str) else None
        context = call.context if call is not None else None
        around = context or self._of_one_run()
        message = well_formed(params.message)
        if len(message) > MESSAGE:
            message = f"{message[:MESSAGE]}… ({len(message):,} characters)"
        return Elicitation(
            server=self._server,
            message=message,
            mode="form" if is_form else "url",
            requested_schema=params.requested_schema if is_form else None,
            url=None if is_form else params.url,
            run_id=around.run_id if around is not None and request is None else None,
            call_id=context.call_id if context is not None and request is None else None,
            tool=call.name if call is not None and request is None else None,
            request=request,
            caller_context=around.caller_context if around is not None else None,
        )

    def _of_one_run(self) -> ToolContext | None:
        """Of any call in flight, where all are of one run."""
        contexts = [call.context for call in self._calls]
        return contexts[0] if len({context.run_id for context in contexts}) == 1 else None


def _cannot_be_asked(question: Elicitation) -> str | None:
    if question.url is not None:
        try:
            parts = urlsplit(question.url)
            fine = parts.scheme in ("http", "https") and bool(parts.hostname) and question.url.isprintable()
        except ValueError:
            fine = False
        if not fine or len(question.url) > URL:
            return f"{printable(question.url, 200)!r} is no http or https address that a person could be sent to"
        return None
    try:
        question.mismatch({})
    except (CatalogError, RecursionError) as error:
        return printable(str(error), 500)
    return None
