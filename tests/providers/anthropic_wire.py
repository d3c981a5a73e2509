"""A local server that speaks the Messages API, streamed or not, and plays a script.

It takes nothing that the vendor would refuse: every request is compared with the SDK's own request types and with the
rules of a conversation (`anthropic_rules.py`); what it sends is read back by the SDK's models first. The model is a
list of turns: each request plays the next one.
"""

from __future__ import annotations

import copy
import itertools
import json
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from anthropic.types import Message, RawMessageStreamEvent
from anthropic.types.message_create_params import MessageCreateParamsNonStreaming, MessageCreateParamsStreaming
from pydantic import TypeAdapter

from tests.providers.anthropic_rules import HOSTED, Block, Refused, check_request, every
from tests.providers.openai_types import Mismatch, check

EVENTS: TypeAdapter[Any] = TypeAdapter(RawMessageStreamEvent)
EXPIRES = "2999-01-01T00:00:00Z"


@dataclass
class Turn:
    """What the model does in one response. Without a `stop`: `tool_use` where it calls a tool, `end_turn` elsewhere."""

    content: list[Block]
    stop: str = ""
    expires_at: str = EXPIRES  # of the container, where there is one
    input_text: dict[str, str] = field(default_factory=dict)  # streamed as the input of a call, in place of its JSON


Scripted = list[Block] | Turn | Callable[[Block], list[Block] | Turn]


@dataclass
class Wire:
    """The server and what came to it.

    Attributes:
        turns: Still to be played, first first.
        requests: The bodies of all requests that were taken, as they came.
        refusals: What was refused, in words: a test that expects none compares with [].
        failures: Statuses to answer the next requests with, before anything else.
    """

    base_url: str = ""
    turns: list[Scripted] = field(default_factory=list)
    requests: list[Block] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    failures: list[int] = field(default_factory=list)
    issued: dict[str, list[Block]] = field(default_factory=dict)
    containers: dict[str, Block] = field(default_factory=dict)  # id -> tools of the request that opened it
    expired: set[str] = field(default_factory=set)
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def play(self, *turns: Scripted) -> None:
        """Add turns to the script."""
        self.turns.extend(turns)

    @property
    def tools(self) -> list[Block]:
        """Of the last request."""
        return self.requests[-1]["tools"]

    @property
    def results(self) -> list[Block]:
        """The `tool_result` blocks of the last request's last message."""
        content = self.requests[-1]["messages"][-1]["content"]
        return [block for block in content if block["type"] == "tool_result"] if isinstance(content, list) else []

    def answer(self, request: Block) -> tuple[Block, Turn]:
        """The response to a request. Raises `Refused`."""
        kind = MessageCreateParamsStreaming if request.get("stream") else MessageCreateParamsNonStreaming
        try:
            check(request, kind)
        except Mismatch as error:
            raise Refused(f"Extra or wrong inputs: {error}") from None
        check_request(request, self.issued)
        self._check_container(request)
        self.requests.append(copy.deepcopy(request))
        if not self.turns:
            raise Refused("the script is over: this request was one too many", status=500)
        turn = self.turns.pop(0)
        if callable(turn):
            turn = turn(request)
        turn = turn if isinstance(turn, Turn) else Turn(turn)
        return self._message(request, turn), turn

    def _check_container(self, request: Block) -> None:
        given = request.get("container")
        given = given.get("id") if isinstance(given, dict) else given
        if given is None:
            return
        if given not in self.containers:
            raise Refused(f"container: no container {given!r}")
        if given in self.expired:
            raise Refused(f"container: {given!r} has expired")
        if self.containers[given] != request.get("tools"):
            raise Refused("tools: they must be the same as in the request that this one continues")

    def _message(self, request: Block, turn: Turn) -> Block:
        calls = any(block["type"] == "tool_use" for block in turn.content)
        message: Block = {
            "id": f"msg_{next(self.numbers)}",
            "type": "message",
            "role": "assistant",
            "model": request["model"],
            "content": turn.content,
            "stop_reason": turn.stop or ("tool_use" if calls else "end_turn"),
            "stop_sequence": None,
            "usage": {"input_tokens": 100, "output_tokens": 10},
            "container": self._container(request, turn),
        }
        Message.model_validate_json(json.dumps(message), strict=True)
        for block in turn.content:
            if block.get("id") in turn.input_text:  # cut in the middle: each reader makes something else of it
                continue
            for key in ("id", "signature", "tool_use_id"):
                if key in block:
                    self.issued.setdefault(f"{block['type']}:{block[key]}", []).append(copy.deepcopy(block))
        return message

    def _container(self, request: Block, turn: Turn) -> Block | None:
        given = request.get("container")
        given = given.get("id") if isinstance(given, dict) else given
        uses = [*every(request["messages"]), *turn.content]
        if given is None:
            if not any(tool.get("type") in HOSTED for tool in request.get("tools", [])):
                return None
            if not any(block["type"] == "server_tool_use" for block in uses):
                return None
            given = f"container_{next(self.numbers)}"
        self.containers[given] = copy.deepcopy(request.get("tools", []))
        if turn.expires_at != EXPIRES:
            self.expired.add(given)
        return {"id": given, "expires_at": turn.expires_at}


def events(message: Block, turn: Turn) -> Iterator[Block]:
    """A message as the vendor streams it: in pieces, with what is known late sent last."""
    start = {**message, "content": [], "stop_reason": None, "container": None}
    yield {"type": "message_start", "message": start}
    yield {"type": "ping"}
    for index, block in enumerate(message["content"]):
        begun, pieces = pieces_of(block, turn)
        yield {"type": "content_block_start", "index": index, "content_block": begun}
        for piece in pieces:
            yield {"type": "content_block_delta", "index": index, "delta": piece}
        yield {"type": "content_block_stop", "index": index}
    delta = {"stop_reason": message["stop_reason"], "stop_sequence": None, "container": message["container"]}
    yield {"type": "message_delta", "delta": delta, "usage": {"output_tokens": 10}}
    yield {"type": "message_stop"}


def pieces_of(block: Block, turn: Turn) -> tuple[Block, list[Block]]:
    match block["type"]:
        case "text":
            halves = split(block["text"])
            return {**block, "text": ""}, [{"type": "text_delta", "text": half} for half in halves]
        case "thinking":
            thoughts = [{"type": "thinking_delta", "thinking": half} for half in split(block["thinking"])]
            signed = {"type": "signature_delta", "signature": block["signature"]}
            return {**block, "thinking": "", "signature": ""}, [*thoughts, signed]
        case "tool_use" | "server_tool_use":
            text = turn.input_text.get(block["id"], json.dumps(block["input"]))
            return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": half} for half in split(text)]
        case _:
            return block, []


def split(text: str) -> list[str]:
    return [text[: len(text) // 2], text[len(text) // 2 :]]


@contextmanager
def serving() -> Generator[Wire]:
    """The server, as long as the block lasts."""
    wire = Wire()
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            pass

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["content-length"])))
            with lock:
                try:
                    if wire.failures:
                        raise Refused("Overloaded", wire.failures.pop(0))
                    if self.path.partition("?")[0] != "/v1/messages":
                        raise Refused(f"no such path: {self.path}", 404)
                    if not (self.headers.get("authorization") or self.headers.get("x-api-key")):
                        raise Refused("a key is required", 401)
                    if not self.headers.get("anthropic-version"):
                        raise Refused("anthropic-version: header is required")
                    message, turn = wire.answer(request)
                except Refused as refused:
                    if refused.status == 400:
                        wire.refusals.append(str(refused))
                    kind = "invalid_request_error" if refused.status == 400 else "api_error"
                    body = {"type": "error", "error": {"type": kind, "message": str(refused)}}
                    self._send(refused.status, "application/json", json.dumps(body).encode())
                    return
            if not request.get("stream"):
                self._send(200, "application/json", json.dumps(message).encode())
                return
            text = ""
            for event in events(message, turn):
                if event["type"] != "ping":
                    EVENTS.validate_json(json.dumps(event), strict=True)
                text += f"event: {event['type']}\ndata: {json.dumps(event)}\n\n"
            self._send(200, "text/event-stream", text.encode())

        def _send(self, status: int, kind: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    wire.base_url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield wire
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


# ---- what models say -------------------------------------------------------------------------------------------------


def text(said: str) -> Block:
    return {"type": "text", "text": said}


def program(code: str, id: str = "toolu_1", name: str = "run_program") -> Block:  # noqa: A002  the wire's word
    return {"type": "tool_use", "id": id, "name": name, "input": {"program": code}}


def call(name: str, given: Block, id: str = "toolu_1", parent: str | None = None) -> Block:  # noqa: A002
    """A call of a tool: the model's own, or one of a program that the vendor runs."""
    block: Block = {"type": "tool_use", "id": id, "name": name, "input": given}
    if parent is not None:
        block["caller"] = {"type": "code_execution_20260120", "tool_id": parent}
    return block


def hosted_program(code: str, id: str = "srvtoolu_1") -> Block:  # noqa: A002
    return {"type": "server_tool_use", "id": id, "name": "code_execution", "input": {"code": code}}


def hosted_result(stdout: str, id: str = "srvtoolu_1", status: int = 0, stderr: str = "") -> Block:  # noqa: A002
    content = {
        "type": "code_execution_result",
        "stdout": stdout,
        "stderr": stderr,
        "return_code": status,
        "content": [],
    }
    return {"type": "code_execution_tool_result", "tool_use_id": id, "content": content}
