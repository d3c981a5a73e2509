"""The hosted form of programmatic calls, served on this machine: `local(client, executor)` in place of the client.

An application that declares code execution and `allowed_callers` gets the blocks that the hosted service sends, in the
same order, from any model; the programs are JavaScript, run here under the executor's policy and limits, and may call
the executor's own tools besides those of the request. What the vendor's service owns is owned here: containers (a
program that waits for the application) and the turn that goes on after a program has ended. Requests without code
execution go through unchanged.

Nobody can be asked for an approval over this wire: what the executor's approver does not decide is denied.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Final, cast, overload

import anyio.to_thread
import httpx2
from anthropic import Anthropic, APIStatusError, AsyncAnthropic
from anthropic.types import Message

from bridge.anthropic import dialect, wire
from bridge.anthropic.streaming import events
from bridge.anthropic.wire import Block
from bridge.approval import Deny
from bridge.code_tool import CodeTool
from bridge.errors import BridgeError, StateError, ToolError
from bridge.loop import Refused, Step

if TYPE_CHECKING:
    from bridge.executor import Executor
    from bridge.tools import Catalog

TURNS: Final = (
    10  # requests to the model within one of the application's; then it gets `pause_turn`, as from the vendor
)
_NOBODY: Final = "it has to be approved, and nobody can be asked here (the executor has no approver)"


@overload
def local(client: AsyncAnthropic, executor: Executor) -> AsyncAnthropic: ...
@overload
def local(client: Anthropic, executor: Executor) -> Anthropic: ...
def local(client: AsyncAnthropic | Anthropic, executor: Executor) -> AsyncAnthropic | Anthropic:
    """A client whose programs run here: the line to change in an application that speaks the hosted form.

    Args:
        client: Reaches the model. It is not changed.
        executor: Open, as long as the new client is used; with `with Executor(...)` for a synchronous client.

    Returns:
        A client of the same kind. `messages.create` and `messages.stream` work as with the hosted service; streamed
        responses arrive in one piece, when they are complete.
    """
    if isinstance(client, AsyncAnthropic):
        service = _Service(executor, partial(_ask, client))
        asynchronous = httpx2.AsyncClient(transport=_AsyncTransport(service))
        return client.with_options(http_client=asynchronous, max_retries=0)  # what has run is not run again
    service = _Service(executor, partial(_ask_in_thread, client))
    synchronous = httpx2.Client(transport=_Transport(service, executor))
    return client.with_options(http_client=synchronous, max_retries=0)


async def _ask(client: AsyncAnthropic, body: Block, headers: Mapping[str, str]) -> Block:
    options = {"headers": dict(headers)}
    response = await client.post("/v1/messages", body=body, cast_to=Message, options=options)  # pyright: ignore[reportArgumentType]
    return response.to_dict(mode="json")


async def _ask_in_thread(client: Anthropic, body: Block, headers: Mapping[str, str]) -> Block:
    def ask() -> Block:
        options = {"headers": dict(headers)}
        return client.post("/v1/messages", body=body, cast_to=Message, options=options).to_dict(mode="json")  # pyright: ignore[reportArgumentType]

    return await anyio.to_thread.run_sync(ask, abandon_on_cancel=True)


class _Refusal(Exception):
    """A request that is answered with 400, as the vendor would."""


@dataclass
class _Container:
    """A turn that waits for the application: programs, and calls that the model made itself beside them."""

    id: str
    expires_at: datetime
    step: Step
    code: CodeTool
    calls: dict[str, str] = field(default_factory=dict[str, str])  # id on the wire -> id of the program's call
    beside: set[str] = field(default_factory=set[str])


class _Service:
    """Answers requests of the hosted form. One for each client."""

    def __init__(self, executor: Executor, ask: Callable[[Block, Mapping[str, str]], Awaitable[Block]]) -> None:
        self._executor = executor
        self._ask = ask
        self._containers: dict[str, _Container] = {}
        self._last: tuple[str, Catalog, Executor] | None = None

    async def serve(self, body: Block, headers: Mapping[str, str]) -> tuple[int, Block]:
        """Status and body of the response to a request, which never streams."""
        try:
            if not dialect.speaks_hosted(body.get("tools", ())):
                return 200, await self._ask(body, headers)
            return 200, await self._turn(body, headers)
        except (_Refusal, BridgeError) as error:
            return 400, _error("invalid_request_error", str(error))
        except APIStatusError as error:
            known = isinstance(error.body, dict)
            return error.status_code, cast("Block", error.body) if known else _error("api_error", error.message)

    async def _turn(self, body: Block, headers: Mapping[str, str]) -> Block:
        container = await self._continued(body)
        tools: list[Block] = body["tools"]
        if container is not None:
            code, turn = container.code, _Turn(container.id)
            if not await self._goes_on(container, turn):
                return self._message(body, turn, "tool_use", container.expires_at)
        else:
            code = CodeTool(self._executor_for(tools))
            turn = _Turn(_given_container(body) or f"container_{secrets.token_hex(12)}")
        code_tool = {"name": code.name, "description": code.description, "input_schema": dict(code.schema)}
        ours = {"messages", "tools", "tool_choice", "container", "stream"}
        params: Block = {key: part for key, part in body.items() if key not in ours}
        params["tools"] = dialect.for_model(tools, code_tool)
        choice = None if container else dialect.choice_for_model(body.get("tool_choice"), code.name)
        for _ in range(TURNS):
            so_far = [*body["messages"], *([{"role": "assistant", "content": turn.content}] if turn.content else [])]
            params["messages"] = dialect.plain_messages(so_far, code.name)
            response = await self._ask({**params, **({"tool_choice": choice} if choice is not None else {})}, headers)
            choice = None  # a forced tool is for the first request
            turn.count(response)
            stop = wire.Stop(response.get("stop_reason") or "")
            content = wire.content_of(response)
            step = await self._programs(code, content, stop, turn)
            beside = {call["id"] for call in wire.calls_in(content) if call["name"] != code.name}
            if step is None:
                return self._message(body, turn, "tool_use" if beside and not stop.cut else stop.reason or "end_turn")
            waits = self._waiting(turn, code, step, beside)
            if waits is not None:
                return self._message(body, turn, "tool_use", waits.expires_at)
            if stop.cut or stop.refused:
                return self._message(body, turn, stop.reason)
            if beside:
                return self._message(body, turn, "tool_use")
        return self._message(body, turn, "pause_turn")

    def _executor_for(self, tools: list[Block]) -> Executor:
        """The executor with the request's tools; kept, for a conversation has the same ones in every request."""
        key, catalog = json.dumps(tools), self._executor.catalog
        if self._last is None or self._last[0] != key or self._last[1] is not catalog:
            self._last = (key, catalog, self._executor.with_tools(dialect.for_programs(tools)))
        return self._last[2]

    async def _programs(self, code: CodeTool, content: list[Block], stop: wire.Stop, turn: _Turn) -> Step | None:
        """Start the programs of a response and add its blocks; None where it has none."""
        calls = [wire.model_call(block) for block in wire.calls_in(content) if block["name"] == code.name]
        texts: dict[str, str] = {}
        for call in calls:
            try:
                texts[call.id] = code.program_of(call)
            except ToolError:
                texts[call.id] = ""  # the answer to the call says what is wrong with it
        turn.content += [
            dialect.hosted_block(block, code.name, texts.get(block.get("id", ""), "")) for block in content
        ]
        if not calls:
            return None
        if stop.cut or stop.refused:
            cut = ToolError("limit", f"not carried out: the response was cut off before its end ({stop.reason})")
            return await code.begin(calls, [Refused(call, cut) for call in calls])
        step = await code.answer(calls)
        await _deny(step)
        return step

    def _waiting(self, turn: _Turn, code: CodeTool, step: Step, beside: set[str]) -> _Container | None:
        """Add what a step came to: results, or the calls that it waits for and a container that keeps it."""
        if step.status == "finished":
            turn.content += map(dialect.hosted_result, step.answers)
            return None
        soonest = min(call.expires_at for call in step.pending)
        container = _Container(turn.container, datetime.fromtimestamp(soonest, UTC), step, code, beside=beside)
        self._containers[container.id] = container
        self._show(container, turn)
        return container

    def _show(self, container: _Container, turn: _Turn) -> None:
        programs = container.step.programs
        pending = container.step.pending
        turn.content += [dialect.hosted_call(call, programs[call.run_id]) for call in pending]
        container.calls = {dialect.call_id(call): call.id for call in pending}

    async def _continued(self, body: Block) -> _Container | None:
        """The container that a request continues; its waiting calls are answered. None where nothing waits."""
        waiting = wire.Programs(body["messages"]).live
        if not waiting:
            return None
        given = _given_container(body)
        if given is None:
            raise _Refusal("container_id is required when there are pending tool uses generated by code execution")
        container = self._containers.get(given)
        if container is None or container.expires_at <= datetime.now(UTC):
            raise _Refusal(f"container {given!r} has expired or is not known here: the program that waited is gone")
        results = {block["tool_use_id"]: block for block in _results_only(body["messages"][-1])}
        wanted = {*container.calls, *container.beside}
        if set(results) != wanted:
            missing, odd = sorted(wanted - set(results)), sorted(set(results) - wanted)
            raise _Refusal(f"a tool_result is needed for every pending call; missing: {missing}, unknown: {odd}")
        answers = {call_id: dialect.answer_of(results[on_wire]) for on_wire, call_id in container.calls.items()}
        container.beside = set()  # their results are in the conversation now
        await container.step.resume(answers)
        await _deny(container.step)
        return container

    async def _goes_on(self, container: _Container, turn: _Turn) -> bool:
        """Whether the programs of a container have ended, so that it is the model's turn."""
        if container.step.status == "finished":
            del self._containers[container.id]
            turn.content += map(dialect.hosted_result, container.step.answers)
            return True
        soonest = min(call.expires_at for call in container.step.pending)
        container.expires_at = datetime.fromtimestamp(soonest, UTC)
        self._show(container, turn)
        return False

    def _message(self, body: Block, turn: _Turn, reason: str, expires_at: datetime | None = None) -> Block:
        now = datetime.now(UTC)
        for known in [each for each in self._containers.values() if each.expires_at <= now]:
            del self._containers[known.id]  # its runs have ended by themselves: what they awaited has expired
        expires = expires_at or now + timedelta(seconds=self._executor.limits.expires_s)
        used = _given_container(body) is not None or any(b["type"] == "server_tool_use" for b in turn.content)
        return {
            "id": turn.id,
            "type": "message",
            "role": "assistant",
            "model": turn.model or body["model"],
            "content": turn.content,
            "stop_reason": reason,
            "stop_sequence": turn.stop_sequence,
            "usage": turn.usage,
            "container": {"id": turn.container, "expires_at": expires.isoformat()} if used else None,
        }


class _Turn:
    """What is put together for one response to the application, of one or more of the model's."""

    def __init__(self, container: str) -> None:
        self.container = container
        self.id = f"msg_{secrets.token_hex(12)}"
        self.model = ""
        self.content: list[Block] = []
        self.stop_sequence: str | None = None
        self.usage: Block = {"input_tokens": 0, "output_tokens": 0}

    def count(self, response: Block) -> None:
        self.model = response.get("model", "")
        self.stop_sequence = response.get("stop_sequence")
        usage: Block = response.get("usage") or {}
        for key, spent in usage.items():
            if isinstance(spent, int):
                self.usage[key] = (self.usage.get(key) or 0) + spent


async def _deny(step: Step) -> None:
    """Deny what nobody decided, as often as the programs ask."""
    while step.approvals:
        await step.resume({request.id: Deny(_NOBODY) for request in step.approvals})


def _given_container(body: Block) -> str | None:
    container = body.get("container")
    return wire.field(container, "id") if isinstance(container, dict) else container


def _results_only(message: Block) -> list[Block]:
    content = message["content"]
    if message["role"] != "user" or isinstance(content, str) or any(b["type"] != "tool_result" for b in content):
        raise _Refusal("only `tool_result` blocks may answer the pending calls of a program")
    return content


def _error(kind: str, message: str) -> Block:
    return {"type": "error", "error": {"type": kind, "message": message}}


# ---- in place of the network -----------------------------------------------------------------------------------------


class _Request:
    """An HTTP request of the SDK, read; and the HTTP response to it."""

    def __init__(self, request: httpx2.Request, content: bytes) -> None:
        if not request.url.path.endswith("/v1/messages"):
            text = "a client of local() serves messages.create and messages.stream: use the original client for others"
            raise StateError(text)
        self.body: Block = json.loads(content)
        self.stream = bool(self.body.pop("stream", False))
        kept = ("anthropic-beta", "anthropic-version")
        self.headers = {name: request.headers[name] for name in kept if name in request.headers}

    def response(self, status: int, body: Block) -> httpx2.Response:
        if status == 200 and self.stream:
            text = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events(body))
            return httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=text.encode())
        return httpx2.Response(status, json=body)


class _AsyncTransport(httpx2.AsyncBaseTransport):
    def __init__(self, service: _Service) -> None:
        self._service = service

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        given = _Request(request, await request.aread())
        return given.response(*await self._service.serve(given.body, given.headers))


class _Transport(httpx2.BaseTransport):
    def __init__(self, service: _Service, executor: Executor) -> None:
        self._service = service
        self._executor = executor

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        given = _Request(request, request.read())
        return given.response(*self._executor.call_sync(self._service.serve, given.body, given.headers))
