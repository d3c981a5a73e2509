"""The agent loop over the Anthropic Messages API: requests, pauses, and what it ends with.

A `Conversation` owns the transcript. It is sound after every step: each `tool_use` is paired with its `tool_result`,
whatever happened; so a request that failed (network, rate limit) can be sent again with `go` and nothing is run twice.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

from bridge.anthropic import wire
from bridge.bounds import TURNS, Bounds, LoopError
from bridge.errors import ConfigurationError, StateError, ToolError
from bridge.threads import in_thread

if TYPE_CHECKING:
    from anthropic import Anthropic, AsyncAnthropic
    from anthropic.types import Message

    from bridge.anthropic.offer import Offer, Turn
    from bridge.approval import ApprovalRequest
    from bridge.results import PendingCall, Result
    from bridge.run import Run

VERSION: Final = 1  # of a dumped conversation
_OF_CLIENT: Final = ("bash_", "text_editor_", "memory_", "computer_", "browser_")  # defined there, carried out here
OnEvent = Callable[[Any], Awaitable[None] | None]


class Conversation:
    """A conversation with a model that writes programs. Made by `run`; `resume` goes on after a pause.

    Attributes:
        status: `ready` (a request may be sent), `paused` or `finished`.
        messages: The transcript: what the application gave, then all that was added. While paused it ends before the
            response that is being answered.
        message: The last response; None before the first.
        turns: Requests so far.
        offer: Tools, and every run.
    """

    def __init__(
        self,
        client: AsyncAnthropic | Anthropic,
        offer: Offer,
        messages: Iterable[Any],
        *,
        turns: int = TURNS,
        stream: bool = False,
        on_event: OnEvent | None = None,
        tools: Iterable[Any] = (),
        container: Any = None,
        **params: Any,
    ) -> None:
        _check(client)
        self.offer = offer
        self.messages: list[Any] = list(messages)
        self.message: Message | None = None
        self.status: Literal["ready", "paused", "finished"] = "ready"
        self.turns = 0
        self._client = client
        self._bounds = Bounds(turns)
        self._stream = stream or on_event is not None
        self._on_event = on_event
        beside = _server_tools(tools)
        if offer.hosted:  # it has one already
            beside = [tool for tool in beside if wire.field(tool, "name") != wire.CODE_EXECUTION]
        self._tools = [*offer.tools, *beside]
        self._given_container: Any = container
        self._container: Any = None  # as the last response had it
        self._params = _checked(params, hosted=offer.hosted)
        self._turn: Turn | None = None
        self._results: list[Result] = []
        self._unsaid: list[Any] = []  # of the user: nothing but results may be sent to a program that still runs
        offer.programs.see_all(self.messages)

    def __repr__(self) -> str:
        return f"<Conversation {self.status}, {self.turns} requests, {len(self.runs)} runs>"

    @property
    def text(self) -> str:
        """The text of the last response."""
        content = [] if self.message is None else wire.content_of(self.message)
        return "".join(block["text"] for block in content if block.get("type") == "text")

    @property
    def runs(self) -> list[Run]:
        """Every run of the conversation, in the order in which they were started."""
        return self.offer.runs

    @property
    def results(self) -> list[Result]:
        """Of all programs and direct calls that have ended, in order."""
        return list(self._results)

    @property
    def pending(self) -> list[PendingCall]:
        """Client-owned calls that wait for the application."""
        return [] if self._turn is None else self._turn.pending

    @property
    def approvals(self) -> list[ApprovalRequest]:
        """Requests that wait for a verdict."""
        return [] if self._turn is None else self._turn.approvals

    async def go(self) -> Conversation:
        """Send requests and answer calls until the final message, or until all that is left waits for people.

        Raises:
            LoopError: `TurnsExceeded` or `RepeatedFailure`; its `reply` is this conversation.
            StateError: It is paused (then `resume`) or finished (then `say`).
            anthropic.APIError: A request failed; `go` sends it again.
            SandboxError: V8 or the walls are not there.
        """
        if self.status != "ready":
            way = "resume(...) goes on" if self.status == "paused" else "say(...) begins the next question"
            raise StateError(f"the conversation is {self.status}: {way}")
        while self.status == "ready":
            if self._bounds.spent:
                raise self._bounds.exceeded(self)
            try:
                self.message = response = await self._request()
            except LoopError as error:  # of a stream that broke off: the request can be sent again
                error.reply = self
                raise
            self._bounds.turn()
            self.turns += 1
            self._container = response.container or self._container
            self._force_no_more()
            if self._bounds.spent and wire.calls_in(wire.content_of(response)):
                text = f"not carried out: the bound of {self._bounds.turns} requests was reached"
                self._take(await self.offer.answer(response, refusal=ToolError("limit", text)), count=False)
                raise self._bounds.exceeded(self)
            turn = await self.offer.answer(response)
            if turn.status == "paused":
                self._turn, self.status = turn, "paused"
                return self
            self._take(turn)
        return self

    async def resume(self, answers: Mapping[str, Any]) -> Conversation:
        """Give verdicts and answers by call id (`Run.resume` says which), and go on. Partial answers are fine.

        Raises:
            StateError: It is not paused, an id does not wait (any more), or a verdict does not fit.
            Others: As `go`.
        """
        turn = self._paused()
        if answers or turn.status == "paused":  # what nobody answered in time may have ended the pause by itself
            await turn.resume(answers)
        if turn.status == "paused":
            return self
        self._turn, self.status = None, "ready"
        self._take(turn)
        return await self.go() if self.status == "ready" else self

    async def cancel(self) -> Conversation:
        """Give up what waits, without another request. The transcript is sound: the calls were answered `cancelled`."""
        turn = self._paused()
        await turn.cancel()
        self._turn, self.status = None, "ready"
        self._take(turn, count=False)
        return self

    def dump(self) -> str:
        """The paused conversation as text for `load`, in this or another process; it goes on there and not here.

        It holds the whole transcript. What runs may do is the store's to say, or is authenticated by the executor's
        key; the rest of the text is not: keep it where nobody else writes.

        Raises:
            StateError: It is not paused, or the executor has neither a store nor a key.
        """
        turn = self._paused()
        step = turn.step
        state = {
            "version": VERSION,
            "messages": wire.plain(self.messages),
            "unsaid": wire.plain(self._unsaid),
            "content": turn.content,
            "stop": turn.stop.reason,
            "step": None if step is None else step.dump(),
            "container": wire.plain(self._container),
            "used": self._bounds.used,
            "failed": self._bounds.failed,
            "turns": self.turns,
        }
        return json.dumps(state)

    async def restore(self, state: str, context: Any = None) -> Conversation:
        """Take up what `dump` gave; `load` does it with a new conversation.

        Raises:
            StateError: It is no such state, or a run of it cannot be loaded (used already, expired, tampered with).
        """
        try:
            data: Any = json.loads(state)
            version = data["version"]
        except (ValueError, TypeError, KeyError):
            raise StateError("this is no state of a conversation: give what Conversation.dump() returned") from None
        if version != VERSION:
            raise StateError(f"this state has version {version!r}, and only {VERSION} is known here")
        self.messages, self._unsaid = data["messages"], data.get("unsaid", [])
        self.offer.programs.see_all(self.messages)
        self._turn = await self.offer.restore(data["content"], data["stop"], data["step"], context)
        self._container, self.turns = data["container"], data["turns"]
        self._bounds.restore(data["used"], data.get("failed", ()))
        self.status = "paused"
        return self

    async def say(self, content: Any) -> Conversation:
        """Add a message of the user, and go on; the bounds begin anew.

        Where a program of the vendor's still waits for results, it gets those first, and the message when it has ended.
        """
        if self.status == "paused":
            raise StateError("the conversation is paused: resume or cancel it first")
        self._unsaid.append({"role": "user", "content": content})
        if self.status == "finished" or not self.offer.programs.live:
            self._add_unsaid()
        self._bounds = Bounds(self._bounds.turns)
        self.status = "ready"
        return await self.go()

    def _paused(self) -> Turn:
        if self._turn is None:
            way = "only a paused one can be resumed, cancelled or dumped"
            raise StateError(f"the conversation is {self.status}: {way}")
        return self._turn

    def _take(self, turn: Turn, *, count: bool = True) -> None:
        self.messages += turn.messages
        self._results += turn.results
        self.status = "finished" if turn.final else "ready"
        if self._unsaid and (turn.final or not self.offer.programs.live):
            self._add_unsaid()
            self.status = "ready"
        if turn.step is not None and count and not turn.final:
            programs = {call["id"] for call in wire.calls_in(turn.content) if wire.caller_of(call).program is not None}
            own = [answered for answered in turn.step.answers if answered.id not in programs]
            if own:  # what fails within a program is for the program to deal with
                self._bounds.saw(own, self)

    def _add_unsaid(self) -> None:
        self.messages += self._unsaid
        self._unsaid = []

    def _force_no_more(self) -> None:
        """A forced tool was for the first request: forced again, the model would never come to an end."""
        choice = self._params.get("tool_choice")
        if wire.field(choice, "type") in ("any", "tool"):
            one = wire.field(choice, "disable_parallel_tool_use")
            self._params["tool_choice"] = {
                "type": "auto",
                **({} if one is None else {"disable_parallel_tool_use": one}),
            }

    async def _request(self) -> Message:
        params = {**self._params, "messages": list(self.messages), "tools": self._tools}
        container = self._given_container
        if self._container is not None:
            container = wire.continued(container, self._container)
        if container is not None:
            params["container"] = container
        return await request(self._client, params, stream=self._stream, on_event=self._on_event)


async def request(
    client: AsyncAnthropic | Anthropic,
    params: Mapping[str, Any],
    *,
    stream: bool = False,
    on_event: OnEvent | None = None,
) -> Message:
    """One request by whichever client it is; a synchronous one works in a thread.

    Args:
        stream: Read the response as it is written: the API wants that for long ones.
        on_event: Gets the events of the SDK's stream, in the event loop's thread.
    """
    from anthropic.resources import AsyncMessages

    given: Any = client.messages  # typed params are the application's: they are passed on as they came
    if not isinstance(given, AsyncMessages):
        return await _in_thread(given, params, stream=stream, on_event=on_event)
    messages: Any = given
    if not stream:
        return await messages.create(**params)
    async with messages.stream(**params) as events:
        async for event in events:
            await _tell(on_event, event)
        return _whole(await events.get_final_message())


async def _in_thread(messages: Any, params: Mapping[str, Any], *, stream: bool, on_event: OnEvent | None) -> Message:
    if not stream:
        return await in_thread(partial(messages.create, **params))
    manager = messages.stream(**params)
    events = await in_thread(manager.__enter__)  # it sends the request
    try:
        pieces, end = iter(events), object()
        while (event := await in_thread(lambda: next(pieces, end))) is not end:
            await _tell(on_event, event)
        return _whole(events.get_final_message())
    finally:
        manager.__exit__(None, None, None)


def _whole(message: Message) -> Message:
    """A message that was streamed to its end. Raises `LoopError` for one in the middle of which the stream ended."""
    if message.stop_reason is None:
        raise LoopError("the stream ended in the middle of a message: the connection was closed on the way")
    return message


async def _tell(on_event: OnEvent | None, event: Any) -> None:
    if on_event is not None:
        waits = on_event(event)
        if waits is not None:
            await waits


def _check(client: Any) -> None:
    """Raises `ConfigurationError` where the client cannot send requests, or keeps their responses to itself."""
    if type(client).__name__.endswith(("WithRawResponse", "WithStreamedResponse")):
        raise ConfigurationError("a loop reads responses itself: give the client, without .with_raw_response")
    if not callable(getattr(getattr(client, "messages", None), "create", None)):
        what = f"a {type(client).__name__}" if not isinstance(client, type) else f"the class {client.__name__}"
        raise ConfigurationError(
            f"the client must be an AsyncAnthropic() or Anthropic() of the anthropic package, not {what}"
        )


def _server_tools(tools: Iterable[Any]) -> list[Any]:
    """Tools of the vendor's, which answer themselves. Raises `ConfigurationError` for one that nobody would answer."""
    kept = list(tools)
    for tool in kept:
        kind, name = str(wire.field(tool, "type") or "custom"), wire.field(tool, "name")
        if kind.startswith(_OF_CLIENT):
            raise ConfigurationError(
                f"a loop cannot answer calls of {name!r} ({kind}): the application carries them out"
            )
        if kind == "custom":
            text = f"tools= is for the vendor's own tools, and {name!r} is a function"
            raise ConfigurationError(
                f"{text}: give it to the executor, as Tool(name=...) if the application answers it"
            )
    return kept


def _checked(params: dict[str, Any], *, hosted: bool) -> dict[str, Any]:
    for name in ("model", "max_tokens"):
        if name not in params:
            raise ConfigurationError(f"{name}= is missing: every request of the Messages API needs it")
    choice = params.get("tool_choice")
    if hosted and wire.field(choice, "type") in ("any", "tool"):
        raise ConfigurationError("tool_choice cannot force a tool with hosted=True: the API refuses that")
    if hosted and wire.field(choice, "disable_parallel_tool_use"):
        raise ConfigurationError("disable_parallel_tool_use cannot be set with hosted=True: the API refuses that")
    return params
