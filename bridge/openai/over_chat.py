"""The Responses API, as far as the hosted form needs it, over Chat Completions: for models that speak nothing else.

Items become messages and a completion becomes items; what a server without storage cannot know (the response that a
request continues) is kept here, for the last `KEPT` responses. Calls get ids of ours, since many servers begin at
`call_0` with every message. What a model thought (`reasoning_content`) is a `reasoning` item, and goes back as it came.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncGenerator, Iterable
from typing import TYPE_CHECKING, Any, Final

from bridge.dialect import is_list, is_object
from bridge.openai import client as clients
from bridge.openai.items import json_text, plain
from bridge.openai.transport import Refusal
from bridge.openai.turns import Item

if TYPE_CHECKING:
    from openai.types.chat import ChatCompletion

KEPT: Final = 1_000  # histories of responses
_AS_IT_IS: Final = frozenset(
    "model temperature top_p parallel_tool_calls metadata user service_tier safety_identifier prompt_cache_key "
    "top_logprobs".split()
)
_LEFT_OUT: Final = frozenset(  # what has no meaning there, or is done here
    "input tools tool_choice instructions previous_response_id store include stream stream_options truncation".split()
)
_THOUGHT: Final = "reasoning_content"
_ENDED_BY: Final = {"length": "max_output_tokens", "content_filter": "content_filter"}


class Chat:
    """Asks a model over Chat Completions as if over Responses."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._histories: dict[str, list[Item]] = {}

    async def ask(self, params: Item, options: Item, *, stream: bool) -> AsyncGenerator[Item]:
        """One request; its only event is the end, whether the application streams or not."""
        previous = params.get("previous_response_id")
        if previous is not None and previous not in self._histories:
            raise Refusal(f"Previous response with id '{previous}' not found.", "previous_response_id")
        history = [*self._histories.get(previous or "", ()), *params["input"]]
        request = request_of(params, history) | options
        completion = await clients.complete(self._client, request, stream=False, on_event=None)
        if not completion.choices:
            raise Refusal("the model's server gave a completion without choices")
        response = response_of(completion, params)
        if params.get("store") is not False:
            self._histories[response["id"]] = [*history, *response["output"]]
            while len(self._histories) > KEPT:
                del self._histories[next(iter(self._histories))]
        yield {"type": f"response.{response['status']}", "response": response}


def request_of(params: Item, history: Iterable[Item]) -> Item:
    """A request of Chat Completions.

    Raises:
        Refusal: It asks for what cannot be had there.
    """
    made: Item = {}
    for name, part in params.items():
        if part is None or name in _LEFT_OUT:
            continue
        if name in _AS_IT_IS:
            made[name] = part
        elif name == "max_output_tokens":
            made["max_completion_tokens"] = part
        elif name == "reasoning" and is_object(part):
            made |= {"reasoning_effort": part["effort"]} if part.get("effort") else {}
        elif name == "text" and is_object(part):
            made |= _text_of(part)
        else:
            raise Refusal(f"{name} cannot be had over Chat Completions: leave it out", name)
    if tools := [_tool_of(tool) for tool in params.get("tools") or ()]:
        made["tools"] = tools
    if (choice := params.get("tool_choice")) is not None:
        made["tool_choice"] = _choice_of(choice)
    return made | {"messages": messages_of(history, params.get("instructions"))}


def _text_of(text: Item) -> Item:
    made: Item = {"verbosity": text["verbosity"]} if text.get("verbosity") else {}
    form = text.get("format")
    if is_object(form) and form.get("type") == "json_schema":
        schema = {name: part for name, part in form.items() if name != "type"}
        made["response_format"] = {"type": "json_schema", "json_schema": schema}
    elif is_object(form) and form.get("type") == "json_object":
        made["response_format"] = {"type": "json_object"}
    return made


def _tool_of(tool: Item) -> Item:
    kind = tool.get("type")
    inner = {name: part for name, part in tool.items() if name not in ("type", "defer_loading") and part is not None}
    if kind == "function":
        if inner.get("strict") is False:
            del inner["strict"]  # many servers do not know it
        return {"type": "function", "function": inner}
    if kind == "custom":
        return {"type": "custom", "custom": inner}
    raise Refusal(f"a tool of type {kind} cannot be had over Chat Completions: leave it out", "tools")


def _choice_of(choice: Any) -> Any:
    if not is_object(choice):
        return choice
    kind = choice.get("type")
    if kind in ("function", "custom"):
        return {"type": kind, kind: {"name": choice["name"]}}
    raise Refusal(f"tool_choice of type {kind} cannot be had over Chat Completions: leave it out", "tool_choice")


# ---- items to messages -----------------------------------------------------------------------------------------------


def messages_of(items: Iterable[Item], instructions: str | None) -> list[Item]:
    """A history of items as messages. What one response held becomes one message of the assistant."""
    made: list[Item] = [{"role": "system", "content": instructions}] if instructions else []
    thought = ""
    for item in items:
        kind = item.get("type", "message")
        if kind == "reasoning":
            thought = "".join(part.get("text") or "" for part in item.get("content") or ())
        elif kind == "message" and item["role"] == "assistant":
            made.append({"role": "assistant", "content": _spoken(item["content"])} | _thought(thought))
            thought = ""
        elif kind == "message":
            made.append({"role": item["role"], "content": _content(item["content"])})
        elif kind in ("function_call", "custom_tool_call"):
            if not made or made[-1]["role"] != "assistant":
                made.append({"role": "assistant", "content": None} | _thought(thought))
            thought = ""
            made[-1].setdefault("tool_calls", []).append(_call_of(item))
        elif kind in ("function_call_output", "custom_tool_call_output"):
            made.append({"role": "tool", "tool_call_id": item["call_id"], "content": _result(item["output"])})
        else:
            raise Refusal(f"an item of type {kind} cannot be had over Chat Completions")
    return made


def _thought(text: str) -> Item:
    return {_THOUGHT: text} if text else {}


def _call_of(item: Item) -> Item:
    if item["type"] == "custom_tool_call":
        return {"id": item["call_id"], "type": "custom", "custom": {"name": item["name"], "input": item["input"]}}
    function = {"name": item["name"], "arguments": item["arguments"]}
    return {"id": item["call_id"], "type": "function", "function": function}


def _spoken(content: Any) -> str:
    if not is_list(content):
        return str(content)
    return "".join(part.get("text") or part.get("refusal") or "" for part in content)


def _content(content: Any) -> Any:
    if not is_list(content):
        return content
    made: list[Item] = []
    for part in content:
        kind = part.get("type")
        if kind == "input_text":
            made.append({"type": "text", "text": part["text"]})
        elif kind == "input_image" and part.get("image_url"):
            image = {"url": part["image_url"]} | ({"detail": part["detail"]} if part.get("detail") else {})
            made.append({"type": "image_url", "image_url": image})
        elif kind == "input_file":
            made.append({"type": "file", "file": {name: value for name, value in part.items() if name != "type"}})
        else:
            raise Refusal(f"content of type {kind} cannot be had over Chat Completions")
    return made


def _result(output: Any) -> str:
    if not is_list(output):
        return str(output)
    if all(part.get("type") == "input_text" for part in output):
        return "".join(part["text"] for part in output)
    return json_text(output)  # a tool message holds text only


# ---- a completion to items -------------------------------------------------------------------------------------------


def response_of(completion: ChatCompletion, params: Item) -> Item:
    """A completion as a response."""
    choice = completion.choices[0]
    message: Item = plain(choice.message)
    reason = _ENDED_BY.get(choice.finish_reason or "")
    return {
        "id": f"resp_{secrets.token_hex(16)}",
        "object": "response",
        "created_at": completion.created or int(time.time()),
        "status": "completed" if reason is None else "incomplete",
        "error": None,
        "incomplete_details": None if reason is None else {"reason": reason},
        "model": completion.model or params["model"],
        "output": _items_of(message, cut=reason is not None),
        "parallel_tool_calls": params.get("parallel_tool_calls", True),
        "store": params.get("store", True),
        "usage": _usage_of(plain(completion.usage) if completion.usage is not None else {}),
    }


def _items_of(message: Item, *, cut: bool) -> list[Item]:
    made: list[Item] = []
    if message.get(_THOUGHT):
        content = [{"type": "reasoning_text", "text": message[_THOUGHT]}]
        made.append({"type": "reasoning", "id": _new("rs"), "summary": [], "content": content})
    parts: list[Item] = []
    if message.get("content"):
        parts.append({"type": "output_text", "text": message["content"], "annotations": []})
    if message.get("refusal"):
        parts.append({"type": "refusal", "refusal": message["refusal"]})
    called: list[Item] = message.get("tool_calls") or []
    if parts or not called:
        parts = parts or [{"type": "output_text", "text": "", "annotations": []}]
        said: Item = {"type": "message", "id": _new("msg"), "role": "assistant", "content": parts}
        made.append(said | {"status": "completed"} | ({"phase": "commentary"} if called else {}))
    for position, call in enumerate(called):
        last = cut and position == len(called) - 1
        made.append(_item_of(call, status="incomplete" if last else "completed"))
    return made


def _item_of(call: Item, *, status: str) -> Item:
    if call.get("type") == "custom":
        own: Item = {"type": "custom_tool_call", "id": _new("ctc"), "call_id": _new("call")}
        return own | {"name": call["custom"]["name"], "input": call["custom"]["input"]}
    inner: Item = call.get("function") or {}
    given = inner.get("arguments")
    text = given if isinstance(given, str) else json_text({} if given is None else given)
    own = {"type": "function_call", "id": _new("fc"), "call_id": _new("call"), "name": inner.get("name") or ""}
    return own | {"arguments": text, "status": status}


def _new(kind: str) -> str:
    return f"{kind}_{secrets.token_hex(12)}"


def _usage_of(usage: Item) -> Item:
    details: Item = usage.get("prompt_tokens_details") or {}
    spent: Item = usage.get("completion_tokens_details") or {}
    given, taken = usage.get("prompt_tokens") or 0, usage.get("completion_tokens") or 0
    return {
        "input_tokens": given,
        "output_tokens": taken,
        "total_tokens": usage.get("total_tokens") or given + taken,
        "input_tokens_details": {"cached_tokens": details.get("cached_tokens") or 0, "cache_write_tokens": 0},
        "output_tokens_details": {"reasoning_tokens": spent.get("reasoning_tokens") or 0},
    }
