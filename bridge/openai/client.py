"""Sends one request through whichever client the application has, streamed or not, and gives back the whole response.

Decides nothing about a conversation. A synchronous client works in a thread beside the event loop, one request at a
time. Of a stream, every event goes to the application as it arrives; the response is what the stream's last event holds
(Responses), or what its chunks add up to (Chat Completions).
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import urlsplit

from bridge.code_tool import LoopError
from bridge.errors import ConfigurationError
from bridge.threads import in_thread

if TYPE_CHECKING:
    from openai.types.chat import ChatCompletion
    from openai.types.responses import Response

OnEvent = Callable[[Any], Awaitable[None] | None]
_RAW_HOSTS: Final = ("openai.com", "openai.azure.com")  # whose endpoints are known to take custom tools
_NAMING: Final = frozenset(["role", "id", "type", "name"])
_ENDS: Final = frozenset(["response.completed", "response.incomplete", "response.failed"])


def takes_raw_text(client: Any) -> bool:
    """Whether the client's endpoint is known to have tools that take raw text."""
    host = urlsplit(str(getattr(client, "base_url", ""))).hostname or ""
    return any(host == known or host.endswith(f".{known}") for known in _RAW_HOSTS)


def refuses_raw_text(error: Exception) -> bool:
    """Whether an endpoint refused a request because of its custom tool: not every model has such tools."""
    status = getattr(error, "status_code", None)
    return status in (400, 404, 422) and "custom" in str(error).lower()


def check(client: Any, api: str) -> None:
    """Raises `ConfigurationError` where the client cannot send such requests."""
    place: Any = client
    if type(client).__name__.endswith(("WithRawResponse", "WithStreamedResponse")):
        raise ConfigurationError("a loop reads responses itself: give the client, without .with_raw_response")
    for name in {"responses": ("responses", "create"), "chat": ("chat", "completions", "create")}[api]:
        place = getattr(place, name, None)
    if not callable(place):
        what = f"a {type(client).__name__}" if not isinstance(client, type) else f"the class {client.__name__}"
        raise ConfigurationError(f"the client must be an AsyncOpenAI() or OpenAI() of the openai package, not {what}")


async def respond(client: Any, request: dict[str, Any], *, stream: bool, on_event: OnEvent | None) -> Response:
    """One request to the Responses API, from the client's `create`.

    Raises:
        LoopError: A stream that ended without its response.
        openai.OpenAIError: Whatever the client raises.
    """
    if not stream:
        return await _call(client, client.responses.create, request)
    ended: Any = None
    done: list[Any] = []
    async with aclosing(events(client, client.responses.create, request)) as arriving:
        async for event in arriving:
            if event.type in _ENDS:
                ended = event.response
            elif event.type == "response.output_item.done":
                done.append(event.item)
            elif event.type == "error":
                raise LoopError(f"the vendor ended the stream: {event.code}: {event.message}")
            await _tell(on_event, event)
    if ended is None:
        raise LoopError("the stream ended without a response: the connection was closed on the way")
    if done and not ended.output:  # some servers leave the items out of the last event
        return ended.model_copy(update={"output": done})
    return ended


async def complete(client: Any, request: dict[str, Any], *, stream: bool, on_event: OnEvent | None) -> ChatCompletion:
    """One request to the Chat Completions API.

    Raises:
        LoopError: A stream that ended before its message did.
        openai.OpenAIError: Whatever the client raises.
    """
    if not stream:
        return await _call(client, client.chat.completions.create, request)
    chunks: list[Any] = []
    async with aclosing(events(client, client.chat.completions.create, request)) as arriving:
        async for chunk in arriving:
            chunks.append(chunk)
            await _tell(on_event, chunk)
    return _sum(chunks)


# ---- the two kinds of client -----------------------------------------------------------------------------------------


def is_synchronous(client: Any) -> bool:
    """Whether a call of the client blocks its thread."""
    import openai

    return isinstance(client, openai.OpenAI)


async def _call(client: Any, create: Callable[..., Any], request: dict[str, Any]) -> Any:
    if is_synchronous(client):
        return await in_thread(lambda: create(**request))
    made = create(**request)
    return await made if inspect.isawaitable(made) else made


async def events(client: Any, create: Callable[..., Any], request: dict[str, Any]) -> AsyncGenerator[Any]:
    """What the SDK makes of a stream, piece by piece; close it (`aclosing`)."""
    stream = await _call(client, create, request | {"stream": True})
    if not is_synchronous(client):
        try:
            async for event in stream:
                yield event
        finally:
            await stream.close()
        return
    pieces, end = iter(cast("Iterable[Any]", stream)), object()
    try:
        while (event := await in_thread(lambda: next(pieces, end))) is not end:
            yield event
    finally:
        stream.close()


async def _tell(on_event: OnEvent | None, event: Any) -> None:
    if on_event is not None:
        told = on_event(event)
        if inspect.isawaitable(told):
            await told


# ---- chunks ----------------------------------------------------------------------------------------------------------


def _sum(chunks: list[Any]) -> ChatCompletion:
    """The completion that chunks add up to (first choice only, as there is no second), unknown fields included."""
    from openai.types.chat import ChatCompletion

    message: dict[str, Any] = {"role": "assistant", "content": None}
    calls: list[dict[str, Any]] = []
    at: dict[int, int] = {}  # the vendor's number of a call -> where it is in `calls`
    finish: str | None = None
    usage: Any = None
    for chunk in chunks:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            if choice.index != 0:
                continue
            finish = choice.finish_reason or finish
            delta: dict[str, Any] = choice.delta.to_dict() if choice.delta is not None else {}
            for part in delta.pop("tool_calls", None) or ():
                _add_call(calls, at, part)
            _add(message, delta)
    if finish is None:
        raise LoopError("the stream ended in the middle of a message: the connection was closed on the way")
    if calls:
        message["tool_calls"] = calls
    first = chunks[0]
    return ChatCompletion.construct(
        id=first.id,
        object="chat.completion",
        created=first.created,
        model=first.model,
        choices=[{"index": 0, "finish_reason": finish, "message": message, "logprobs": None}],
        usage=usage,
    )


def _add_call(calls: list[dict[str, Any]], at: dict[int, int], part: dict[str, Any]) -> None:
    """One piece of a tool call. Some servers number every call 0: a new id is a new call."""
    number = part.pop("index", None) or 0
    place = at.get(number)
    if place is None or (part.get("id") and calls[place].get("id") not in (None, part["id"])):
        place = at[number] = len(calls)
        calls.append({})
    _add(calls[place], part)


def _add(whole: dict[str, Any], piece: dict[str, Any]) -> None:
    """Texts are appended, objects merged, the rest replaced; what names something is given once, or repeated whole."""
    for name, value in piece.items():
        known = whole.get(name)
        if name in _NAMING:
            whole[name] = value or known
        elif value is None:
            whole.setdefault(name, None)
        elif isinstance(value, str) and isinstance(known, str):
            whole[name] = known + value
        elif isinstance(value, dict) and isinstance(known, dict):
            _add(cast("dict[str, Any]", known), cast("dict[str, Any]", value))
        else:
            whole[name] = value
