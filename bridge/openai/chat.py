"""The loop over Chat Completions, which most models speak (`AsyncOpenAI(base_url=...)`).

Decides how a message is read and sent back. Servers differ: ids of tool calls may be missing or the same twice in one
message (they get new ones, in the message and in the answers alike; those of an earlier message may come again, since
answers stand right after their calls), arguments may come as objects, `finish_reason` may
say `stop` beside tool calls. What a model sent goes back as it came otherwise, fields included that nobody here knows.
How to write a program goes along as system message of each request; it is no part of the transcript.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from bridge.code_tool import TOOL_NAME, TURNS, Bounds, CodeTool, LoopError, ModelCall
from bridge.errors import ConfigurationError, StateError, ToolError
from bridge.loop import Refused, Step, told_apart
from bridge.openai import client as clients
from bridge.openai import definitions
from bridge.openai import turns as base
from bridge.openai.items import json_text, plain
from bridge.openai.turns import Item, Sending

if TYPE_CHECKING:
    from openai.types.chat import ChatCompletion

    from bridge.executor import Executor
    from bridge.openai.client import OnEvent
    from sandbox import Limits

_SYSTEM: Final = ("system", "developer")
_NOT_SENT: Final = frozenset(["annotations", "function_call", "refusal", "audio", "tool_calls"])
_PICTURES: Final = "[sandbridge] {count} picture(s) were made; a tool message cannot hold them"


class Turn(base.Turn):
    """One chat completion with what the executor did about it; `items` are the messages of its tools."""

    def __init__(self, completion: ChatCompletion, tool: CodeTool, step: Step, read: _Read) -> None:
        cut = {call.id: call.name for call in read.cut}
        calls = bool(read.calls)
        super().__init__(completion, step, calls=calls, left=read.left, cut=cut, reason=read.finish)
        self.tool = tool  # the next completion is handled with the same
        self._read = read

    @property
    def items(self) -> list[Item]:
        found: dict[str, Item] = {}
        for answered in self.answers:
            text = answered.text
            if answered.result is not None and answered.result.images:
                text += "\n" + _PICTURES.format(count=len(answered.result.images))
            found[answered.id] = {"role": "tool", "tool_call_id": answered.id, "content": text}
        return [found[call.id] for call in self._read.all]

    @property
    def transcript(self) -> list[Item]:
        return [self._read.message, *self.items]

    @property
    def _ending(self) -> Literal["continue", "finished", "incomplete"]:
        return "incomplete" if self._read.finish in ("length", "content_filter") else "finished"


class _Read:
    """A message as it is sent back, and its calls by who answers them."""

    def __init__(self, completion: ChatCompletion, tool: CodeTool, *, leave: bool) -> None:
        choice = completion.choices[0]
        given: Item = plain(choice.message)
        self.finish: str = choice.finish_reason or ""
        made: list[Item] = [dict(call) for call in given.get("tool_calls") or ()]
        self.message: Item = {name: part for name, part in given.items() if name not in _NOT_SENT or _says(name, part)}
        self.message["role"] = "assistant"
        self.message.setdefault("content", None)
        _make_sound(made)
        if made:
            self.message["tool_calls"] = made
        elif self.message["content"] is None:
            self.message["content"] = ""  # a message must have one or the other
        found = [_model_call(call) for call in made]
        # The message ended in the middle of its last call, or nothing in it is meant.
        self.cut = {"length": found[-1:], "content_filter": found}.get(self.finish, [])
        self.all = [call for call in found if not leave or call in self.cut or tool.answers_to(call.name)]
        self.left = [item for item, call in zip(made, found, strict=True) if call not in self.all]
        self.calls = [call for call in self.all if call not in self.cut]


def _says(name: str, part: Any) -> bool:
    return name == "refusal" and bool(part)


def _make_sound(calls: list[Item]) -> None:
    """Give calls what the wire wants of them: ids that tell them apart, a type, arguments as text."""
    ids = told_apart(call.get("id") for call in calls)
    for call, identity in zip(calls, ids, strict=True):
        call["id"] = identity
        call["type"] = call.get("type") or "function"
        inner = call.get("function")
        if isinstance(inner, Mapping):
            function = dict(cast("Mapping[str, Any]", inner))
            if not isinstance(function.get("arguments"), str):
                given = function.get("arguments")
                function["arguments"] = "{}" if given is None else json_text(given)
            call["function"] = function


def _model_call(call: Item) -> ModelCall:
    if call["type"] == "custom":
        own: Item = call.get("custom") or {}
        return ModelCall(id=call["id"], name=str(own.get("name") or ""), program=str(own.get("input") or ""))
    inner: Item = call.get("function") or {}
    return ModelCall(id=call["id"], name=str(inner.get("name") or ""), arguments=inner.get("arguments"))


class Conversation(base.Conversation):
    """Where a conversation over Chat Completions stands. `transcript` is the next `messages`."""

    def __init__(self, client: Any, tool: CodeTool, request: dict[str, Any], bounds: Bounds, sending: Sending) -> None:
        super().__init__(request.pop("messages"), tool.runs, bounds)
        self._client = client
        self._tool = tool
        self._request = request
        self._sending = sending

    api = "chat"

    async def _restored(self, response: Item, step: Item, context: Any) -> base.Turn:
        from openai.types.chat import ChatCompletion

        completion = ChatCompletion.construct(**response)
        loaded = await Step.load(self._tool.executor, step, context)
        self._tool.runs += loaded.runs
        return Turn(completion, self._tool, loaded, _Read(completion, self._tool, leave=False))

    @property
    def text(self) -> str:
        if self.response is None or not self.response.choices:
            return ""
        message = self.response.choices[0].message
        return message.content or getattr(message, "refusal", None) or ""

    async def _send(self) -> ChatCompletion:
        sending = self._sending
        request = self._request | {"messages": with_instructions(self.transcript, self._tool.instructions)}
        if self.turns and _forces(request.get("tool_choice")):
            del request["tool_choice"]
        request["tools"] = definitions.of(self._tool, api="chat", raw=bool(sending.raw))
        return await clients.complete(self._client, request, stream=sending.stream, on_event=sending.on_event)

    async def _answer(self, response: ChatCompletion, refusal: ToolError | None = None) -> base.Turn:
        if not response.choices:
            raise LoopError("the completion has no choices", self)
        return await answer(response, self._tool, leave=False, refusal=refusal)

    def _has_calls(self, response: ChatCompletion) -> bool:
        return bool(response.choices and response.choices[0].message.tool_calls)


async def run(
    client: Any,
    executor: Executor,
    *,
    model: str,
    messages: Iterable[Any],
    stream: bool = False,
    on_event: OnEvent | None = None,
    direct: bool | Iterable[str] = False,
    budget: int | None = None,
    raw: bool = False,
    name: str = TOOL_NAME,
    turns: int = TURNS,
    inputs: Any = None,
    limits: Limits | None = None,
    context: Any = None,
    **request: Any,
) -> Conversation:
    """Let a model work with programs, to its final message or to a pause.

    Args:
        client: `AsyncOpenAI(base_url=...)`, `OpenAI()` (then in a thread), or any with `chat.completions.create`.
        executor: Open; its tools are what programs can call.
        messages: As for `chat.completions.create`.
        stream: Have completions streamed; every chunk goes to `on_event` as it arrives.
        on_event: A function, or an async one, of a chunk; it is awaited before the next chunk is read.
        direct: Tools that the model may also call by itself: True for all that allow it, or names and patterns.
        budget: Tokens of declarations that the model reads at once; what does not fit, and deferred tools, it finds
            with `search_tools`. None: all that is not deferred.
        raw: The code tool takes raw text (a custom tool). Few servers have that here.
        name: Of the code tool.
        turns: At most so many requests.
        inputs, limits, context: Of every program, as for `Executor.start`.
        **request: Anything else that `chat.completions.create` takes.

    Returns:
        The conversation: `finished`, or `paused` when something waits: decide its `approvals`, answer its `pending`,
        and `await conversation.resume({id: verdict or value})`.

    Raises:
        ConfigurationError: Options that cannot be meant.
        TurnsExceeded, RepeatedFailure, LoopError: The loop ended without a final message; `.reply` is where it stood.
        openai.OpenAIError: What the client raises: connection, key, refused requests.
        SandboxError: V8 or the walls are not there.
    """
    options = {"direct": direct, "budget": budget, "name": name}
    options |= {"inputs": inputs, "limits": limits, "context": context}
    request = {"model": model, "messages": messages, **request}
    return await _made(client, executor, request, turns, options, Sending(stream, on_event, raw)).go()


async def load(client: Any, executor: Executor, state: str, **options: Any) -> Conversation:
    """Take up a paused conversation that `Conversation.dump` put away, in this or another process.

    Args:
        state: What `dump` returned. Each works once where the executor has a store.
        **options: Those of `run`, but for `messages`: the model, the bounds and the tools offered are not in the state.

    Returns:
        The conversation, `paused`: `resume` goes on (with `{}` where nothing is waited for any more).

    Raises:
        StateError: The state cannot be used (again); the text says why.
    """
    return await base.load(partial(_made, client, executor), state, options | {"messages": ()})


def _made(client: Any, executor: Executor, request: Item, turns: int, options: Item, sending: Sending) -> Conversation:
    """A conversation of which nothing was sent yet."""
    clients.check(client, "chat")
    if request.get("n", 1) != 1:
        raise ConfigurationError("a loop follows one choice: leave n out")
    beside: list[Item] = plain(list(request.pop("tools", None) or ()))
    if beside:
        named = cast("Item", beside[0].get(str(beside[0].get("type"))) or {}).get("name", "?")
        raise ConfigurationError(
            f"the tool {named!r} belongs into the executor: Executor([Tool(name=..., input_schema=...)]), with a "
            f"handler, or without one: then its calls pause the loop. direct=[{named!r}] lets the model call it by "
            "itself too"
        )
    if request.get("functions") or request.get("function_call"):
        raise ConfigurationError("functions and function_call were replaced by tools: give the tools to the executor")
    request["messages"] = plain(list(request["messages"]))
    return Conversation(client, CodeTool(executor, **options), request, Bounds(turns), sending)


async def handle(
    completion: ChatCompletion,
    executor: Executor,
    *,
    after: Turn | None = None,
    direct: bool | Iterable[str] = False,
    budget: int | None = None,
    name: str = TOOL_NAME,
    inputs: Any = None,
    limits: Limits | None = None,
    context: Any = None,
) -> Turn:
    """Answer what one completion calls for: the single step, for a loop of your own.

    Args:
        after: What this gave for the completion before: its options are taken over.
        direct, budget, name, inputs, limits, context: As for `run`; give `tools` the same first three.

    Returns:
        What to append (`transcript`: the message and its tools' messages), or why nothing is to be sent (`status`).
        Calls of tools that are not the executor's are the application's, and are `left`; those in the middle of which
        the completion was cut off are nobody's, and are answered here.

    Raises:
        StateError: It has no choices.
        SandboxError: V8 or the walls are not there.
    """
    if not completion.choices:
        raise StateError(f"completion {completion.id} has no choices: there is nothing to answer")
    tool = after.tool if after is not None else None
    if tool is None:
        own: Item = {"inputs": inputs, "limits": limits, "context": context}
        tool = CodeTool(executor, direct=direct, budget=budget, name=name, **own)
    return await answer(completion, tool, leave=True)


async def answer(completion: ChatCompletion, tool: CodeTool, *, leave: bool, refusal: ToolError | None = None) -> Turn:
    """Answer what one completion calls for (or refuse every call in it); returns when all is answered, or waits."""
    read = _Read(completion, tool, leave=leave)
    parts = tool.parts(read.calls) if refusal is None else [Refused(call, refusal) for call in read.calls]
    return Turn(completion, tool, await tool.begin(read.calls, parts), read)


def tools(
    executor: Executor,
    *,
    direct: bool | Iterable[str] = False,
    budget: int | None = None,
    name: str = TOOL_NAME,
    raw: bool = False,
) -> list[Item]:
    """Definitions for `tools=` in a loop of your own. What the model must know besides: `executor.instructions()`."""
    return definitions.of(CodeTool(executor, direct=direct, budget=budget, name=name), api="chat", raw=raw)


def with_instructions(messages: Sequence[Item], instructions: str) -> list[Item]:
    """The messages with the instructions at the end of the first system message, or as one before all others."""
    if not messages or messages[0].get("role") not in _SYSTEM:
        return [{"role": "system", "content": instructions}, *messages]
    first = messages[0]
    content = first.get("content") or ""
    if isinstance(content, str):
        joined: Any = f"{content}\n\n{instructions}" if content else instructions
    else:
        joined = [*content, {"type": "text", "text": instructions}]
    return [{**first, "content": joined}, *messages[1:]]


def _forces(choice: Any) -> bool:
    """Whether a choice forces a tool: it is for the first request; kept, it would force one for ever."""
    return choice == "required" or isinstance(choice, Mapping)
