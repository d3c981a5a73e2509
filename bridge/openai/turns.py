"""What both of the vendor's APIs have in common: one response with its answers (`Handled`), and the loop (`Reply`).

Decides when a loop ends and what is left of it: whatever happens, `Reply.transcript` is a history that the vendor
takes, with an answer for every call in it. What a request holds and how a response is read are the APIs' own
(responses.py, chat.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, Self

from bridge.code_tool import Answered, Bounds, LoopError
from bridge.errors import StateError
from bridge.loop import Step

if TYPE_CHECKING:
    from bridge.approval import ApprovalRequest
    from bridge.results import PendingCall
    from bridge.run import Run

Item = dict[str, Any]
EMPTY: Final = 3  # responses in a row with neither a call nor a message: the model does not go on
INTERRUPTED: Final = (
    "[sandbridge] error not_made: the response was cut off ({reason}) in the middle of this call, so it was not made; "
    "send it again, shorter or in parts"
)


class Handled:
    """One response with what the executor did about it.

    Attributes:
        response: As it came.
        left: Calls that the application answers by itself; what it answers goes along with `items`.
    """

    def __init__(
        self, response: Any, step: Step, *, calls: bool, left: list[Item], cut: Mapping[str, str], reason: str
    ) -> None:
        self.response: Any = response
        self.left = left
        self._step = step
        self._calls = calls  # whether it made any that are answered here
        self._cut = cut  # id -> name of the calls in the middle of which the response ended
        self._reason = reason

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.status}, {len(self.runs)} runs>"

    @property
    def status(self) -> Literal["continue", "paused", "final", "incomplete"]:
        """`continue`: send `items`; `paused`: something waits for people or the application, `resume` first; `final`:
        the model has said its last word; `incomplete`: the response was cut off before it said any."""
        if self._step.status == "paused":
            return "paused"
        return "continue" if self._calls or self._cut or self.left else self._ending

    @property
    def done(self) -> bool:
        """Whether nothing is to be sent any more."""
        return self.status in ("final", "incomplete")

    @property
    def answers(self) -> list[Answered]:
        """What was answered, refusals included. `StateError` while something waits."""
        text = INTERRUPTED.format(reason=self._reason)
        cut = [Answered(id=call_id, name=name, text=text, failed=True) for call_id, name in self._cut.items()]
        return [*self._step.answers, *cut]

    @property
    def items(self) -> list[Item]:
        """What goes back to the vendor, in the order of the calls. `StateError` while something waits."""
        raise NotImplementedError

    @property
    def transcript(self) -> list[Item]:
        """What the model sent, as it came, and then `items`: what a history grows by."""
        raise NotImplementedError

    @property
    def runs(self) -> list[Run]:
        """Programs and calls that were run for this response."""
        return self._step.runs

    @property
    def pending(self) -> list[PendingCall]:
        """Client-owned calls that wait for the application."""
        return self._step.pending

    @property
    def approvals(self) -> list[ApprovalRequest]:
        """Calls that wait for a verdict."""
        return self._step.approvals

    async def resume(self, answers: Mapping[str, Any]) -> Self:
        """Give verdicts and answers by call id (of `pending` and `approvals`), as `Run.resume` takes them.

        Raises:
            StateError: Nothing waits, an id does not, or a verdict does not fit.
        """
        await self._step.resume(answers)
        return self

    async def cancel(self) -> Self:
        """Give up what waits: the model is told that its calls were cancelled."""
        await self._step.cancel()
        return self

    @property
    def _ending(self) -> Literal["continue", "final", "incomplete"]:
        """What a response without calls means."""
        raise NotImplementedError


class Reply:
    """Where a conversation stands.

    Attributes:
        status: `final`: the model has said its last word; `paused`: something waits for people or the application, and
            `resume` goes on; `incomplete`: the last response was cut off, or the loop was given up.
        response: The last response; None before the first.
        transcript: Whole ordered history, that of the application first: the next conversation's beginning, a new
            message appended.
    """

    def __init__(self, transcript: list[Item], runs: list[Run], bounds: Bounds) -> None:
        self.status: Literal["final", "paused", "incomplete"] = "incomplete"
        self.response: Any = None
        self.transcript = transcript
        self._runs = runs
        self._bounds = bounds
        self._handled: Handled | None = None
        self._empty = 0

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.status} after {self.turns} requests, {len(self.runs)} runs>"

    @property
    def text(self) -> str:
        """What the model said in the last response, a refusal included."""
        raise NotImplementedError

    @property
    def turns(self) -> int:
        """Requests so far."""
        return self._bounds.used

    @property
    def runs(self) -> list[Run]:
        """Every run so far, in the order of their start: of programs, and one for the direct calls of each response."""
        return self._runs

    @property
    def pending(self) -> list[PendingCall]:
        """Client-owned calls that wait for the application."""
        return self._handled.pending if self._handled is not None else []

    @property
    def approvals(self) -> list[ApprovalRequest]:
        """Calls that wait for a verdict."""
        return self._handled.approvals if self._handled is not None else []

    async def resume(self, answers: Mapping[str, Any]) -> Self:
        """Give verdicts and answers by call id (of `pending` and `approvals`), and go on with the loop.

        Raises:
            StateError: Nothing waits, an id does not, or a verdict does not fit.
            LoopError: As for `run`.
        """
        handled = self._paused()
        if answers or handled.status == "paused":  # else: what was waited for has expired meanwhile
            await handled.resume(answers)
        return await self.loop() if self._go_on(handled) else self

    async def cancel(self) -> Self:
        """Give up what waits, and the loop: the transcript says of those calls that they were cancelled.

        Raises:
            StateError: Nothing waits.
        """
        handled = self._paused()
        self.status, self._handled = "incomplete", None
        self._take(await handled.cancel())
        return self

    async def loop(self) -> Self:
        """Send requests until something ends the loop. `run` does it; there is no need to call it again."""
        while True:
            self._bounds.turn()
            self.response = await self._send()
            if self._bounds.spent and self._has_calls(self.response):
                raise self._bounds.exceeded(self)
            handled = await self._answer(self.response)
            if handled.left:
                kinds = ", ".join(sorted({str(item.get("type")) for item in handled.left}))
                raise LoopError(f"nobody here answers {kinds}: use `handle` in a loop of your own for such tools", self)
            if not self._go_on(handled):
                return self

    def _paused(self) -> Handled:
        if self._handled is None:
            raise StateError("nothing of this conversation waits: only a paused one can be resumed or cancelled")
        return self._handled

    def _go_on(self, handled: Handled) -> bool:
        """Take in what was done about a response; whether another request follows."""
        if handled.status == "paused":
            self.status, self._handled = "paused", handled
            return False
        self.status, self._handled = "incomplete", None  # until a response says otherwise
        self._take(handled)
        self._bounds.saw(handled.answers, self)
        if handled.done:
            self.status = "final" if handled.status == "final" else "incomplete"
            return False
        self._empty = 0 if handled.items else self._empty + 1
        if self._empty >= EMPTY:
            raise LoopError(f"{EMPTY} responses in a row held neither a call nor a message", self)
        if self._bounds.spent:
            raise self._bounds.exceeded(self)
        return True

    def _take(self, handled: Handled) -> None:
        """Let the transcript grow by a response and its answers."""
        self.transcript += handled.transcript

    async def _send(self) -> Any:
        """Send the next request."""
        raise NotImplementedError

    async def _answer(self, response: Any) -> Handled:
        """Answer what a response calls for."""
        raise NotImplementedError

    def _has_calls(self, response: Any) -> bool:
        raise NotImplementedError
