"""The loop over the Responses API: request, answers, request, until the model has said its last word.

Decides what each request holds: only what is new after `previous_response_id` or in a `conversation`, the whole ordered
history with `store=False`, or after a response that gave ids again. When a loop ends is decided in turns.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from bridge.code_tool import TOOL_NAME, TURNS, Bounds, LoopError
from bridge.errors import ConfigurationError, ToolError
from bridge.openai import client as clients
from bridge.openai import turns as base
from bridge.openai.answering import Offer, Turn, answer, restored
from bridge.openai.definitions import HOSTED
from bridge.openai.items import FOREIGN, is_call, listed, plain, spoken
from bridge.openai.turns import Item, Sending

if TYPE_CHECKING:
    from openai.types.responses import Response

    from bridge.executor import Executor
    from bridge.openai.client import OnEvent
    from sandbox import Limits

_OF_APPLICATION: Final = frozenset(["function", "custom", "namespace"])
_OF_CLIENT: Final = frozenset(["local_shell", "shell", "apply_patch", "computer", "computer_use_preview"])


class Conversation(base.Conversation):
    """Where a conversation over the Responses API stands. With `store=False`, `transcript` is the next `input`."""

    def __init__(
        self, client: Any, offer: Offer, request: Item, bounds: Bounds, sending: Sending, beside: list[Item]
    ) -> None:
        super().__init__(request.pop("input"), offer.tool.runs, bounds)
        self._client = client
        self._offer = offer
        self._request = request
        self._sending = sending
        self._beside = beside  # tools that the vendor runs
        self._new = list(self.transcript)
        self._previous: str | None = None  # the last response that is answered
        self._renamed = False  # it has calls whose ids the vendor does not know

    api = "responses"

    async def _restored(self, response: Item, step: Item, context: Any) -> base.Turn:
        from openai.types.responses import Response

        self._offer.programs.saw(self.transcript)
        self._offer.programs.answered(self.transcript)
        return await restored(Response.construct(**response), self._offer, step, context)

    @property
    def text(self) -> str:
        return "" if self.response is None else spoken(plain(self.response.output))

    def _take(self, turn: base.Turn) -> None:
        assert isinstance(turn, Turn)
        super()._take(turn)
        self._new = turn.items
        self._previous = turn.response.id
        self._renamed = turn.renamed

    def _add(self, message: Item) -> None:
        super()._add(message)
        self._new = [*self._new, message]

    async def _send(self) -> Response:
        stateless = self._request.get("store") is False
        whole = stateless or self._renamed
        request = self._request | {"input": self.transcript if whole else self._new}
        if self._previous is not None:
            request["tool_choice"] = _after_first(request.pop("tool_choice", None))
            request = {name: value for name, value in request.items() if name != "tool_choice" or value is not None}
            if not whole and request.get("conversation") is None:
                request["previous_response_id"] = self._previous
        raw = self._sending.raw
        try:
            return await self._respond(request, raw=raw is not False)
        except Exception as error:
            if raw is None and self._previous is None and clients.refuses_raw_text(error):
                self._sending.raw = False
                return await self._respond(request, raw=False)
            raise

    async def _respond(self, request: dict[str, Any], *, raw: bool) -> Response:
        sending = self._sending
        request = request | {"tools": [*self._offer.tools(raw=raw), *self._beside]}
        return await clients.respond(self._client, request, stream=sending.stream, on_event=sending.on_event)

    async def _answer(self, response: Response, refusal: ToolError | None = None) -> base.Turn:
        if response.status not in (None, "completed", "incomplete"):
            error = f": {response.error.code}: {response.error.message}" if response.error else ""
            raise LoopError(f"the vendor's response {response.id} is {response.status}{error}", self)
        kinds = {item["type"] for item in plain(response.output)} & FOREIGN
        if kinds:  # before anything is run: the response does not become part of the transcript
            text = f"nobody here answers {', '.join(sorted(kinds))}: use `handle` in a loop of your own for such tools"
            raise LoopError(text, self)
        return await answer(response, self._offer, refusal)

    def _has_calls(self, response: Response) -> bool:
        return any(is_call(item) or item["type"] in FOREIGN for item in plain(response.output))


async def run(
    client: Any,
    executor: Executor,
    *,
    model: str,
    input: str | Iterable[Any] | None = None,  # noqa: A002  the vendor's name
    stream: bool = False,
    on_event: OnEvent | None = None,
    direct: bool | Iterable[str] = False,
    hosted: bool = False,
    budget: int | None = None,
    raw: bool | None = None,
    name: str = TOOL_NAME,
    turns: int = TURNS,
    inputs: Any = None,
    limits: Limits | None = None,
    context: Any = None,
    **request: Any,
) -> Conversation:
    """Let a model work with programs, to its final message or to a pause.

    Args:
        client: `AsyncOpenAI()`, `OpenAI()` (then in a thread), or any client with the same `responses.create`.
        executor: Open; its tools are what programs can call.
        input: As for `responses.create`.
        stream: Have responses streamed; every event goes to `on_event` as it arrives.
        on_event: A function, or an async one, of the vendor's event; it is awaited before the next event is read.
        direct: Tools that the model may also call by itself: True for all that allow it, or names and patterns.
        hosted: The vendor runs the programs (`programmatic_tool_calling`), and their calls are answered here. Giving
            that tool in `tools` means the same.
        budget: Tokens of declarations that the model reads at once; what does not fit, and deferred tools, it finds
            with `search_tools`. None: all that is not deferred. With `hosted`, deferred tools are found by the
            vendor's `tool_search`, executed here (or there, where that tool is in `tools`).
        raw: Whether the code tool takes raw text, which is shorter than JSON. None: where the endpoint is known to
            have such tools, and its model takes them.
        name: Of the code tool.
        turns: At most so many requests.
        inputs, limits, context: Of every program, as for `Executor.start`.
        **request: Anything else that `responses.create` takes: `instructions`, `reasoning`, `store`,
            `previous_response_id`, `conversation`, tools that the vendor runs itself (`tools`), ...

    Returns:
        The conversation: `finished`, or `paused` when something waits: decide its `approvals`, answer its `pending`,
        and `await conversation.resume({id: verdict or value})`.

    Raises:
        ConfigurationError: Options that cannot be meant.
        TurnsExceeded: The model still called tools after `turns` requests; those last calls were not made.
        RepeatedFailure: Programs or calls failed the same way three times in a row.
        LoopError: The vendor's response failed, or the loop goes nowhere. All three have the conversation as `.reply`.
        openai.OpenAIError: What the client raises: connection, key, refused requests.
        SandboxError: V8 or the walls are not there.
    """
    options = {"direct": direct, "hosted": hosted, "budget": budget, "name": name}
    options |= {"inputs": inputs, "limits": limits, "context": context}
    request = {"model": model, "input": input, **request}
    return await _made(client, executor, request, turns, options, Sending(stream, on_event, raw)).go()


async def load(client: Any, executor: Executor, state: str, **options: Any) -> Conversation:
    """Take up a paused conversation that `Conversation.dump` put away, in this or another process.

    Args:
        state: What `dump` returned. Each works once where the executor has a store.
        **options: Those of `run`, but for `input`: the model, the bounds and the tools offered are not in the state.

    Returns:
        The conversation, `paused`: `resume` goes on (with `{}` where nothing is waited for any more).

    Raises:
        StateError: The state cannot be used (again); the text says why.
    """
    return await base.load(partial(_made, client, executor), state, options | {"input": ()})


def _made(client: Any, executor: Executor, request: Item, turns: int, options: Item, sending: Sending) -> Conversation:
    """A conversation of which nothing was sent yet."""
    clients.check(client, "responses")
    tools = checked_tools(request.pop("tools", None))
    if request.pop("background", None):
        raise ConfigurationError("a loop waits for every response: leave background out")
    if "messages" in request:
        raise ConfigurationError("messages belong to Chat Completions: bridge.openai.chat.run(...); here it is input")
    kept = [tool for tool in tools if tool.get("type") != HOSTED["type"]]
    if kept != tools:
        options["hosted"] = True
    offer = Offer(executor, vendor_searches=any(tool.get("type") == "tool_search" for tool in kept), **options)
    said = request.get("instructions")
    request["instructions"] = f"{said}\n\n{offer.instructions}" if said else offer.instructions
    if request.get("store") is False and request.get("include") is None:
        request["include"] = ["reasoning.encrypted_content"]
    if offer.hosted or (sending.raw is None and not clients.takes_raw_text(client)):
        sending.raw = False
    request["input"] = listed(request["input"])
    kept_there = request.get("previous_response_id") or request.get("conversation")
    offer.whole = not kept_there or request.get("store") is False
    offer.programs.saw(request["input"])
    offer.programs.answered(request["input"])
    return Conversation(client, offer, request, Bounds(turns), sending, kept)


async def handle(
    response: Response,
    executor: Executor,
    *,
    after: Turn | None = None,
    history: Sequence[Any] = (),
    direct: bool | Iterable[str] = False,
    hosted: bool = False,
    budget: int | None = None,
    name: str = TOOL_NAME,
    inputs: Any = None,
    limits: Limits | None = None,
    context: Any = None,
) -> Turn:
    """Answer what one response calls for: the single step, for a loop of your own.

    Args:
        after: What this gave for the response before: options and programs of the conversation are taken from it.
        history: Or the items before this response, in order: a call of the vendor's program is answered only when
            its program is there and has not ended.
        direct, hosted, budget, name, inputs, limits, context: As for `run`; give `tools` the same first four.

    Returns:
        What to send next (`items`), or why nothing is (`status`). Calls of tools that are not the executor's are the
        application's, and are `left`; those in the middle of which the response was cut off are nobody's, and are
        answered here. Where the whole history is sent, append `transcript`, not the response's own output: a call whose
        id was there before has a new one there.

    Raises:
        StateError: The response failed or is not there yet.
        SandboxError: V8 or the walls are not there.
    """
    if after is not None:
        return await answer(response, after.offer)
    own = {"direct": direct, "budget": budget, "name": name, "inputs": inputs, "limits": limits, "context": context}
    hosted = hosted or any(tool.type == HOSTED["type"] for tool in response.tools or ())
    offer = Offer(executor, hosted=hosted, leave=True, **cast("Any", own))
    offer.programs.saw(listed(history))
    offer.programs.answered(listed(history))
    return await answer(response, offer)


def tools(
    executor: Executor,
    *,
    direct: bool | Iterable[str] = False,
    hosted: bool = False,
    budget: int | None = None,
    name: str = TOOL_NAME,
    raw: bool = False,
) -> list[Item]:
    """Definitions for `tools=` in a loop of your own. What the model must know besides: `executor.instructions()`."""
    return Offer(executor, direct=direct, hosted=hosted, budget=budget, name=name).tools(raw=raw)


def checked_tools(given: Any) -> list[Item]:
    """Tools of the application beside ours.

    Raises:
        ConfigurationError: A tool that a loop cannot answer.
    """
    found: list[Item] = listed(given)
    for tool in found:
        kind = tool.get("type")
        if kind in _OF_APPLICATION:
            name = tool.get("name", kind)
            raise ConfigurationError(
                f"the {kind} tool {name!r} belongs into the executor: Executor([Tool(name=..., input_schema=...)]), "
                f"with a handler, or without one: then its calls pause the loop. direct=[{name!r}] lets the model call "
                "it by itself too"
            )
        if kind in _OF_CLIENT:
            raise ConfigurationError(f"a loop cannot answer {kind} calls: use `handle` in a loop of your own")
        if kind == "tool_search" and tool.get("execution") == "client":
            text = "tool_search with execution=client is offered here, where tools of the executor are deferred"
            raise ConfigurationError(f"{text}: leave it out, or leave its execution to the vendor")
    return found


def _after_first(choice: Any) -> Any:
    """A choice that forces a tool is for the first request: kept, it would force one for ever."""
    choice = plain(choice)
    if not isinstance(choice, dict):
        return None if choice == "required" else choice
    made = cast("Item", choice)
    return made | {"mode": "auto"} if made.get("type") == "allowed_tools" else None
