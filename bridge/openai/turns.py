"""What both of the vendor's APIs have in common: a response with its answers (`Turn`), and the loop (`Conversation`).

Decides when a loop ends and what is left of it: whatever happens, `Conversation.transcript` is a history that the
vendor takes, with an answer for every call in it. What a request holds and how a response is read are the APIs' own
(responses.py, chat.py).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypeVar

from bridge.code_tool import TURNS, Answered, Bounds, LoopError
from bridge.errors import StateError, ToolError
from bridge.loop import Step

if TYPE_CHECKING:
    from bridge.approval import ApprovalRequest
    from bridge.openai.client import OnEvent
    from bridge.results import PendingCall
    from bridge.run import Run

Item = dict[str, Any]
VERSION: Final = 1  # of a dumped conversation
EMPTY: Final = 3  # responses in a row with neither a call nor a message: the model does not go on
_OFFERED: Final = frozenset(["direct", "hosted", "budget", "name", "inputs", "limits", "context"])
_SENDING: Final = frozenset(["stream", "on_event", "raw"])
INTERRUPTED: Final = (
    "[sandbridge] error not_made: the response was cut off ({reason}) in the middle of this call, so it was not made; "
    "send it again, shorter or in parts"
)


class Turn:
    """One response with what the executor did about it.

    Attributes:
        response: As it came.
        left: Calls that the application answers by itself; what it answers goes along with `items`.
        step: What was started for its calls.
    """

    def __init__(
        self, response: Any, step: Step, *, calls: bool, left: list[Item], cut: Mapping[str, str], reason: str
    ) -> None:
        self.response: Any = response
        self.left = left
        self.step = step
        self._calls = calls  # whether it made any that are answered here
        self._cut = cut  # id -> name of the calls in the middle of which the response ended
        self._reason = reason

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.status}, {len(self.runs)} runs>"

    @property
    def status(self) -> Literal["continue", "paused", "finished", "incomplete"]:
        """`continue`: send `items`; `paused`: something waits for people or the application, `resume` first;
        `finished`: the model has said its last word; `incomplete`: the response was cut off before it said any."""
        if self.step.status == "paused":
            return "paused"
        return "continue" if self._calls or self._cut or self.left else self._ending

    @property
    def final(self) -> bool:
        """Whether nothing is to be sent any more."""
        return self.status in ("finished", "incomplete")

    @property
    def answers(self) -> list[Answered]:
        """What was answered, refusals included. `StateError` while something waits."""
        text = INTERRUPTED.format(reason=self._reason)
        cut = [Answered(id=call_id, name=name, text=text, failed=True) for call_id, name in self._cut.items()]
        return [*self.step.answers, *cut]

    @property
    def own(self) -> list[Answered]:
        """The answers to the model itself: what fails within a program of the vendor is for that program to mind."""
        return self.answers

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
        return self.step.runs

    @property
    def pending(self) -> list[PendingCall]:
        """Client-owned calls that wait for the application."""
        return self.step.pending

    @property
    def approvals(self) -> list[ApprovalRequest]:
        """Calls that wait for a verdict."""
        return self.step.approvals

    async def resume(self, answers: Mapping[str, Any]) -> Self:
        """Give verdicts and answers by call id (of `pending` and `approvals`), as `Run.resume` takes them.

        Raises:
            StateError: Nothing waits, an id does not, or a verdict does not fit.
        """
        await self.step.resume(answers)
        return self

    async def cancel(self) -> Self:
        """Give up what waits: the model is told that its calls were cancelled."""
        await self.step.cancel()
        return self

    @property
    def _ending(self) -> Literal["continue", "finished", "incomplete"]:
        """What a response without calls means."""
        raise NotImplementedError


class Conversation:
    """Where a conversation stands. `resume` goes on after a pause, `say` after its end.

    Attributes:
        status: `ready`: a request may be sent (`go`); `paused`: something waits for people or the application;
            `finished`: the model has said its last word; `incomplete`: its last response was cut off.
        response: The last response; None before the first.
        transcript: Whole ordered history, that of the application first. An answer stands in it for every call.
    """

    api = ""

    def __init__(self, transcript: list[Item], runs: list[Run], bounds: Bounds) -> None:
        self.status: Literal["ready", "paused", "finished", "incomplete"] = "ready"
        self.response: Any = None
        self.transcript = transcript
        self.turns = 0
        self._runs = runs
        self._bounds = bounds
        self._turn: Turn | None = None
        self._empty = 0

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.status}, {self.turns} requests, {len(self.runs)} runs>"

    @property
    def text(self) -> str:
        """What the model said in the last response, a refusal included."""
        raise NotImplementedError

    @property
    def runs(self) -> list[Run]:
        """Every run so far, in the order of their start: of programs, and one for the direct calls of each response."""
        return self._runs

    @property
    def pending(self) -> list[PendingCall]:
        """Client-owned calls that wait for the application."""
        return self._turn.pending if self._turn is not None else []

    @property
    def approvals(self) -> list[ApprovalRequest]:
        """Calls that wait for a verdict."""
        return self._turn.approvals if self._turn is not None else []

    async def go(self) -> Self:
        """Send requests and answer calls until the model's last word, or until all that is left waits for people.

        Raises:
            LoopError: As for `run`; its `reply` is this conversation.
            StateError: It is paused or has ended.
            openai.OpenAIError: A request failed; `go` sends it again, and nothing is run twice.
        """
        if self.status != "ready":
            way = "resume(...) goes on" if self.status == "paused" else "say(...) begins the next question"
            raise StateError(f"the conversation is {self.status}: {way}")
        while self.status == "ready":
            if self._bounds.spent:
                raise self._bounds.exceeded(self)
            try:
                self.response = response = await self._send()
            except LoopError as error:  # of a stream that broke off: the request can be sent again
                error.reply = self
                raise
            self._bounds.turn()
            self.turns += 1
            if self._bounds.spent and self._has_calls(response):
                text = f"not carried out: the bound of {self._bounds.turns} requests was reached"
                self._take(await self._answer(response, ToolError("limit", text)))
                raise self._bounds.exceeded(self)
            turn = await self._answer(response)
            self._see(turn)
        return self

    async def resume(self, answers: Mapping[str, Any]) -> Self:
        """Give verdicts and answers by call id (of `pending` and `approvals`), and go on. Partial answers are fine.

        Raises:
            StateError: Nothing waits, an id does not, or a verdict does not fit.
            Others: As for `go`.
        """
        turn = self._paused()
        if answers or turn.status == "paused":  # else: what was waited for has expired meanwhile
            await turn.resume(answers)
        self._see(turn)
        return await self.go() if self.status == "ready" else self

    async def cancel(self) -> Self:
        """Give up what waits, without another request: the transcript says of those calls that they were cancelled.

        Raises:
            StateError: Nothing waits.
        """
        turn = await self._paused().cancel()
        self.status, self._turn = "ready", None
        self._take(turn)
        return self

    def dump(self) -> str:
        """The paused conversation as text for `load`, in this or another process; it goes on there and not here.

        It holds the whole transcript. What runs may do is the store's to say, or is authenticated by the executor's
        key; the rest of the text is not: keep it where nobody else writes.

        Raises:
            StateError: It is not paused, or the executor has neither a store nor a key.
        """
        turn = self._paused()
        state = {
            "version": VERSION,
            "api": self.api,
            "transcript": self.transcript,
            "response": turn.response.to_dict(mode="json"),
            "step": turn.step.dump(),
            "used": self._bounds.used,
            "failed": self._bounds.failed,
            "turns": self.turns,
        }
        return json.dumps(state)

    async def restore(self, state: str, context: Any = None) -> Self:
        """Take up what `dump` gave; `load` does it with a new conversation.

        Raises:
            StateError: It is no such state, or a run of it cannot be loaded (used already, expired, tampered with).
        """
        try:
            data: Any = json.loads(state)
            version, api = data["version"], data["api"]
        except (ValueError, TypeError, KeyError):
            raise StateError("this is no state of a conversation: give what Conversation.dump() returned") from None
        if (version, api) != (VERSION, self.api):
            known = f"only version {VERSION} of {self.api} is known here"
            raise StateError(f"this state has version {version!r} of {api!r}, and {known}")
        self.transcript = data["transcript"]
        self._turn = await self._restored(data["response"], data["step"], context)
        self.response, self.turns = self._turn.response, data["turns"]
        self._bounds.restore(data["used"], data.get("failed", ()))
        self.status = "paused"
        return self

    async def say(self, content: Any) -> Self:
        """Add a message of the user, and go on; the bounds begin anew.

        Raises:
            StateError: It is paused.
            Others: As for `go`.
        """
        if self._turn is not None:
            raise StateError("the conversation is paused: resume or cancel it first")
        self._add({"role": "user", "content": content})
        self._bounds, self._empty, self.status = Bounds(self._bounds.turns), 0, "ready"
        return await self.go()

    def _paused(self) -> Turn:
        if self._turn is None:
            raise StateError(
                f"the conversation is {self.status}: only a paused one can be resumed, cancelled or dumped"
            )
        return self._turn

    def _see(self, turn: Turn) -> None:
        """Take in what was done about a response."""
        if turn.status == "paused":
            self.status, self._turn = "paused", turn
            return
        self.status, self._turn = "ready", None
        self._take(turn)
        if own := turn.own:
            self._bounds.saw(own, self)
        if turn.status in ("finished", "incomplete"):
            self.status = turn.status
            return
        self._empty = 0 if turn.items else self._empty + 1
        if self._empty >= EMPTY:
            raise LoopError(f"{EMPTY} responses in a row held neither a call nor a message", self)

    def _take(self, turn: Turn) -> None:
        """Let the transcript grow by a response and its answers."""
        self.transcript += turn.transcript

    def _add(self, message: Item) -> None:
        """Let the transcript grow by a message of the user."""
        self.transcript.append(message)

    async def _restored(self, response: Item, step: Item, context: Any) -> Turn:
        """The paused turn of a response and a step as plain data."""
        raise NotImplementedError

    async def _send(self) -> Any:
        """Send the next request."""
        raise NotImplementedError

    async def _answer(self, response: Any, refusal: ToolError | None = None) -> Turn:
        """Answer what a response calls for, or refuse every call in it."""
        raise NotImplementedError

    def _has_calls(self, response: Any) -> bool:
        raise NotImplementedError


@dataclass
class Sending:
    """How requests are sent. `raw`: whether the code tool takes raw text; None where the endpoint decides."""

    stream: bool = False
    on_event: OnEvent | None = None
    raw: bool | None = None


_Made = TypeVar("_Made", bound=Conversation)


async def load(make: Callable[[Item, int, Item, Sending], _Made], state: str, options: Item) -> _Made:
    """A conversation that `Conversation.dump` put away, from the options of `run`.

    Args:
        make: Gives one of which nothing was sent yet, from what the vendor gets, the bound on turns, what is offered
            to the model, and how it is sent.

    Raises:
        StateError: The state cannot be used (again); the text says why.
    """
    offered = {name: options.pop(name) for name in _OFFERED & options.keys()}
    sending = Sending(**{name: options.pop(name) for name in _SENDING & options.keys()})
    conversation = make(options, options.pop("turns", TURNS), offered, sending)
    return await conversation.restore(state, offered.get("context"))
