"""A local server that speaks the vendor's wire (Responses and Chat Completions, streamed or not) and plays a script.

It takes nothing that the vendor would refuse: every request is compared with the SDK's own types (`openai_types.py`)
and with the rules of a conversation (`openai_rules.py`); what it sends is checked against the SDK's models. The model
is a list of turns: each request plays the next one.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.chat.completion_create_params import CompletionCreateParamsNonStreaming as ChatParams
from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming as ChatStreamParams
from openai.types.responses import Response, ResponseStreamEvent
from openai.types.responses.response_create_params import ResponseCreateParamsNonStreaming as Params
from openai.types.responses.response_create_params import ResponseCreateParamsStreaming as StreamParams
from pydantic import TypeAdapter

from tests.providers import openai_rules as rules
from tests.providers.openai_rules import Item, Refused
from tests.providers.openai_types import Mismatch, check

EVENTS: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
USAGE = {
    "input_tokens": 100,
    "output_tokens": 10,
    "total_tokens": 110,
    "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
    "output_tokens_details": {"reasoning_tokens": 0},
}


@dataclass
class Turn:
    """What the model does in one response. `status` and `reason` say how it ended."""

    output: list[Item]
    status: str = "completed"
    reason: str | None = None


Scripted = list[Item] | Turn | Callable[[list[Item]], list[Item] | Turn]


@dataclass
class Wire:
    """The server and what came to it.

    Attributes:
        turns: Still to be played, first first.
        requests: The bodies of all requests, as they came.
        refusals: What was refused, in words: a test that expects none compares with [].
        custom: Whether custom tools are taken; many servers that speak this wire know function tools only.
    """

    base_url: str = ""
    turns: list[Scripted] = field(default_factory=list)
    requests: list[dict[str, Any]] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    custom: bool = True
    stored: dict[str, tuple[list[Item], list[Item]]] = field(default_factory=dict)
    issued: list[list[Item]] = field(default_factory=list)

    def play(self, *turns: Scripted) -> None:
        """Add turns to the script."""
        self.turns.extend(turns)

    def next(self, history: list[Item]) -> Turn:
        if not self.turns:
            raise Refused("the script is over: this request was one too many", status=500)
        turn = self.turns.pop(0)
        if callable(turn):
            turn = turn(history)
        return turn if isinstance(turn, Turn) else Turn(turn)

    # ---- Responses -------------------------------------------------------------------------------------------------

    def respond(self, body: dict[str, Any]) -> dict[str, Any]:
        """The response to one request. Raises `Refused`."""
        check(without_callers(body), StreamParams if body.get("stream") else Params)
        for name in ("model", "input"):
            if name not in body:
                raise Refused(f"Missing required parameter: '{name}'.", name)
        tools = body.get("tools", [])
        if not self.custom and any(tool["type"] == "custom" for tool in tools):
            raise Refused("Invalid value: 'custom'. Supported values are: 'function'.", "tools[0].type")
        rules.check_tools(tools)
        self.check_choice(body.get("tool_choice"), tools)
        given = body["input"]
        if isinstance(given, str):
            given = [{"role": "user", "content": given}]
        before: list[Item] = []
        if body.get("previous_response_id") is not None:
            if body["previous_response_id"] not in self.stored:
                raise Refused(
                    f"Previous response with id '{body['previous_response_id']}' not found.", "previous_response_id"
                )
            before = self.stored[body["previous_response_id"]][0]
        elif not any(item.get("type", "message") == "message" for item in given):
            raise Refused("input must hold a message", "input")
        if body.get("store") is False:
            rules.check_replayed(given, self.issued)
        history = [*before, *given]
        rules.check_history(history, tools)
        turn = self.next(history)
        encrypted = "reasoning.encrypted_content" in (body.get("include") or [])
        for item in turn.output:
            if item["type"] == "reasoning":
                item["encrypted_content"] = f"sealed {item['id']}" if encrypted else None
            for name, value in item.items():
                assert value is not ..., f"{item['type']}.{name} is left open"
        number = len(self.issued) + 1
        response = {
            "id": f"resp_{number}",
            "object": "response",
            "created_at": 1_790_000_000 + number,
            "status": turn.status,
            "error": {"code": "server_error", "message": turn.reason} if turn.status == "failed" else None,
            "incomplete_details": {"reason": turn.reason} if turn.status == "incomplete" else None,
            "instructions": body.get("instructions"),
            "model": body["model"],
            "output": turn.output,
            "parallel_tool_calls": body.get("parallel_tool_calls", True),
            "previous_response_id": body.get("previous_response_id"),
            "store": body.get("store", True),
            "tool_choice": body.get("tool_choice", "auto"),
            "tools": tools,
            "usage": USAGE,
        }
        Response.model_validate(response)
        self.issued.append(turn.output)
        if body.get("store") is not False:
            self.stored[response["id"]] = ([*history, *turn.output], tools)
        return response

    def check_choice(self, choice: Any, tools: list[Item]) -> None:
        if isinstance(choice, dict):
            named = [tool for tool in tools if tool["type"] == choice["type"]]
            if not any(tool.get("name") == choice.get("name") for tool in named):
                raise Refused(f"Tool choice {choice} not found in 'tools' parameter.", "tool_choice")
        elif choice == "required" and not tools:
            raise Refused("tool_choice is only allowed when 'tools' are specified.", "tool_choice")

    def events(self, response: dict[str, Any]) -> Iterator[Item]:
        """The events of a streamed response, in the vendor's order."""
        number = -1

        def event(kind: str, **fields: Any) -> Item:
            nonlocal number
            number += 1
            made = {"type": kind, "sequence_number": number, **fields}
            EVENTS.validate_python(made)
            return made

        begun = response | {"status": "in_progress", "output": [], "usage": None, "incomplete_details": None}
        yield event("response.created", response=begun)
        yield event("response.in_progress", response=begun)
        for index, item in enumerate(response["output"]):
            place = {"output_index": index, "item_id": item["id"]}
            yield event("response.output_item.added", output_index=index, item=opened(item))
            if item["type"] == "message":
                for part_index, part in enumerate(item["content"]):
                    here = place | {"content_index": part_index}
                    if part["type"] == "output_text":
                        yield event("response.content_part.added", **here, part=part | {"text": ""})
                        for piece in pieces(part["text"]):
                            yield event("response.output_text.delta", **here, delta=piece, logprobs=[])
                        yield event("response.output_text.done", **here, text=part["text"], logprobs=[])
                    else:
                        yield event("response.content_part.added", **here, part=part | {"refusal": ""})
                        yield event("response.refusal.delta", **here, delta=part["refusal"])
                        yield event("response.refusal.done", **here, refusal=part["refusal"])
                    yield event("response.content_part.done", **here, part=part)
            elif item["type"] == "function_call":
                kind = "response.function_call_arguments"
                for piece in pieces(item["arguments"]):
                    yield event(f"{kind}.delta", **place, delta=piece)
                yield event(f"{kind}.done", **place, arguments=item["arguments"], name=item["name"])
            elif item["type"] == "custom_tool_call":
                for piece in pieces(item["input"]):
                    yield event("response.custom_tool_call_input.delta", **place, delta=piece)
                yield event("response.custom_tool_call_input.done", **place, input=item["input"])
            yield event("response.output_item.done", output_index=index, item=item)
        yield event(f"response.{response['status']}", response=response)

    # ---- Chat Completions ------------------------------------------------------------------------------------------

    def complete(self, body: dict[str, Any]) -> dict[str, Any]:
        """The chat completion for one request. Raises `Refused`."""
        check(body, ChatStreamParams if body.get("stream") else ChatParams)
        tools = body.get("tools", [])
        if "tools" in body and not tools:
            raise Refused("[] is too short - 'tools'", "tools")
        if not self.custom and any(tool["type"] == "custom" for tool in tools):
            raise Refused("Invalid value: 'custom'. Supported values are: 'function'.", "tools[0].type")
        rules.check_tools(tools, chat=True)
        rules.check_messages(body["messages"])
        turn = self.next(body["messages"])
        [message] = turn.output
        calls = message.get("tool_calls")
        finish = {"completed": "tool_calls" if calls else "stop", "incomplete": turn.reason}[turn.status]
        number = len(self.issued) + 1
        completion = {
            "id": f"chatcmpl-{number}",
            "object": "chat.completion",
            "created": 1_790_000_000 + number,
            "model": body["model"],
            "choices": [{"index": 0, "message": message, "finish_reason": finish, "logprobs": None}],
            "usage": {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110},
        }
        ChatCompletion.model_validate(completion)
        self.issued.append(turn.output)
        return completion

    def chunks(self, completion: dict[str, Any], *, usage: bool) -> Iterator[Item]:
        """The chunks of a streamed completion."""
        [choice] = completion["choices"]
        message = choice["message"]
        head = {name: completion[name] for name in ("id", "created", "model")} | {"object": "chat.completion.chunk"}

        def chunk(delta: Item, finish: str | None = None) -> Item:
            made = head | {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
            ChatCompletionChunk.model_validate(made)
            return made

        yield chunk({"role": "assistant", "content": ""})
        for word in ("content", "refusal"):
            for piece in pieces(message.get(word) or ""):
                yield chunk({word: piece})
        for index, call in enumerate(message.get("tool_calls") or []):
            kind = call["type"]
            word = "arguments" if kind == "function" else "input"
            first = {"index": index, "id": call["id"], "type": kind, kind: {"name": call[kind]["name"], word: ""}}
            yield head | {"choices": [{"index": 0, "delta": {"tool_calls": [first]}, "finish_reason": None}]}
            for piece in pieces(call[kind][word]):
                delta = {"tool_calls": [{"index": index, kind: {word: piece}}]}
                yield head | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
        yield chunk({}, choice["finish_reason"])
        if usage:
            yield head | {"choices": [], "usage": completion["usage"]}


def without_callers(body: dict[str, Any]) -> dict[str, Any]:
    """The service sends `caller` with MCP items of a program, where its types have none; what it sent comes back."""
    if not isinstance(body.get("input"), list):
        return body
    items = [
        {name: part for name, part in item.items() if name != "caller"}
        if isinstance(item, dict) and str(item.get("type")).startswith("mcp_")
        else item
        for item in body["input"]
    ]
    return body | {"input": items}


def opened(item: Item) -> Item:
    """An item as it is announced, before its content has arrived."""
    empty = {"message": {"content": []}, "function_call": {"arguments": ""}, "custom_tool_call": {"input": ""}}
    begun = item | empty.get(item["type"], {})
    return begun | {"status": "in_progress"} if item["type"] in ("message", "function_call") else begun


def pieces(text: str) -> list[str]:
    """A text in pieces that cut through words."""
    return [text[start : start + 7] for start in range(0, len(text), 7)]


# ---- what a model says -----------------------------------------------------------------------------------------------


def says(text: str, number: int = 1, **more: Any) -> Item:
    part = {"type": "output_text", "text": text, "annotations": []}
    said = {"type": "message", "id": f"msg_{number}", "role": "assistant", "status": "completed", "content": [part]}
    return said | more


def refuses(text: str) -> Item:
    part = {"type": "refusal", "refusal": text}
    return {"type": "message", "id": "msg_r", "role": "assistant", "status": "completed", "content": [part]}


def thinks(number: int = 1) -> Item:
    return {"type": "reasoning", "id": f"rs_{number}", "summary": []}


def writes(program: str, number: int = 1, name: str = "run_program") -> Item:
    """The code tool called with raw text."""
    return {
        "type": "custom_tool_call",
        "id": f"ctc_{number}",
        "call_id": f"call_{number}",
        "name": name,
        "input": program,
    }


def calls(name: str, arguments: Any, number: int = 1, **more: Any) -> Item:
    """A function call; arguments that are a text go as they are."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    call = {"type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}", "name": name, "arguments": text}
    return call | {"status": "completed"} | more


def searches(arguments: Any, number: int = 1) -> Item:
    """A tool search that the client is to carry out."""
    made = {"type": "tool_search_call", "id": f"tsc_{number}", "call_id": f"call_{number}", "execution": "client"}
    return made | {"arguments": arguments, "status": "completed"}


def program(code: str, number: int = 1) -> Item:
    prog = f"prog_{number}"
    return {"type": "program", "id": prog, "call_id": f"call_{prog}", "code": code, "fingerprint": f"seal {number}"}


def called_by(number: int = 1) -> Item:
    """The `caller` of a call that a hosted program made."""
    return {"caller": {"type": "program", "caller_id": f"call_prog_{number}"}}


def program_output(result: str, number: int = 1, status: str = "completed") -> Item:
    prog = f"prog_{number}"
    return {
        "type": "program_output",
        "id": f"out_{prog}",
        "call_id": f"call_{prog}",
        "result": result,
        "status": status,
    }


def chat_says(text: str | None, *tool_calls: Item, **more: Any) -> Item:
    message: Item = {"role": "assistant", "content": text, "refusal": None}
    return message | ({"tool_calls": list(tool_calls)} if tool_calls else {}) | more


def chat_calls(name: str, arguments: Any, number: int = 1) -> Item:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {"id": f"call_{number}", "type": "function", "function": {"name": name, "arguments": text}}


# ---- HTTP ------------------------------------------------------------------------------------------------------------


@contextmanager
def served() -> Generator[Wire]:
    """The server on a port of the loopback."""
    wire = Wire()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            wire.requests.append(body)
            try:
                chat = self.path.partition("?")[0].endswith("/chat/completions")
                made = wire.complete(body) if chat else wire.respond(body)
                if not body.get("stream"):
                    self.send(200, json.dumps(made).encode())
                    return
                usage = bool((body.get("stream_options") or {}).get("include_usage"))
                events = list(wire.chunks(made, usage=usage) if chat else wire.events(made))
                lines = [
                    (f"event: {one['type']}\n" if "type" in one else "") + f"data: {json.dumps(one)}\n\n"
                    for one in events
                ]
                self.send(200, "".join([*lines, *(["data: [DONE]\n\n"] if chat else [])]).encode(), "text/event-stream")
            except (Refused, Mismatch) as error:
                wire.refusals.append(str(error))
                said = {"message": str(error), "type": "invalid_request_error", "param": getattr(error, "param", None)}
                self.send(getattr(error, "status", 400), json.dumps({"error": said | {"code": None}}).encode())

        def send(self, status: int, body: bytes, kind: str = "application/json") -> None:
            self.send_response(status)
            for name, value in (("content-type", kind), ("content-length", str(len(body))), ("connection", "close")):
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    wire.base_url = f"http://127.0.0.1:{server.server_port}/v1"
    try:
        yield wire
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
