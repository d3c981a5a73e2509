"""The hosted form of programmatic calls, served on this machine: `local(client, executor)` in place of the client.

An application that declares code execution and `allowed_callers` gets the blocks that the hosted service sends, in the
same order, from any model; the programs are JavaScript, run here under the executor's policy and limits, and may call
the executor's own tools besides those of the request. Deferred tools of programs are searched here too, and shown as
the vendor's tool search shows it. What the vendor's service owns is owned here: containers (a program that waits for
the application) and the turn that goes on after a program has ended. With a store, a program that waits goes on in
another process: the ids of its calls hold the run's. Requests without code execution go through unchanged.

Nobody can be asked for an approval over this wire: what the executor's approver does not decide is denied.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final, overload

import httpx2
from anthropic import Anthropic, APIError, AsyncAnthropic
from anthropic.types import Message

from bridge.anthropic import dialect, wire
from bridge.anthropic.offer import own_tools
from bridge.anthropic.transport import AsyncTransport, Refusal, Transport
from bridge.anthropic.wire import Block
from bridge.approval import Deny
from bridge.code_tool import CodeTool
from bridge.errors import StateError, ToolError
from bridge.loop import ModelCall, Program, Refused, Step, given_up_on_error
from bridge.threads import in_thread

if TYPE_CHECKING:
    from bridge.executor import Executor
    from bridge.tools import Catalog

TURNS: Final = (
    10  # requests to the model within one of the application's; then it gets `pause_turn`, as from the vendor
)
_GONE: Final = "container {!r} has expired or is not known here: the program that waited is gone"
_End = tuple[str | None, datetime | None]
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
        blocks arrive as they are there, each in one piece.
    """
    if isinstance(client, AsyncAnthropic):
        service = _Service(executor, partial(_ask, client))
        asynchronous = httpx2.AsyncClient(transport=AsyncTransport(service.serve))
        return client.with_options(http_client=asynchronous, max_retries=0)  # what has run is not run again
    service = _Service(executor, partial(_ask_in_thread, client))
    synchronous = httpx2.Client(transport=Transport(service.serve, executor))
    return client.with_options(http_client=synchronous, max_retries=0)


async def _ask(client: AsyncAnthropic, body: Block, options: Block) -> Block:
    response = await client.post("/v1/messages", body=body, cast_to=Message, options=_sent(options))
    return response.to_dict(mode="json")


async def _ask_in_thread(client: Anthropic, body: Block, options: Block) -> Block:
    def ask() -> Block:
        return client.post("/v1/messages", body=body, cast_to=Message, options=_sent(options)).to_dict(mode="json")

    return await in_thread(ask)


def _sent(options: Block) -> Any:
    """Options of a method as those of a request."""
    timeout = {"timeout": options["timeout"]} if "timeout" in options else {}
    return {"headers": options["extra_headers"], "params": options["extra_query"], **timeout}


@dataclass
class _Container:
    """A turn that waits for the application: programs, and calls that the model made itself beside them."""

    id: str
    expires_at: datetime
    step: Step
    code: CodeTool
    plain: dialect.Reader
    told: set[str] = field(default_factory=set[str])  # ids of the model's calls whose end the application has
    calls: dict[str, str] = field(default_factory=dict[str, str])  # id on the wire -> id of the program's call
    beside: set[str] = field(default_factory=set[str])
    answered: set[str] = field(default_factory=set[str])  # the last that were, on the wire


class _Service:
    """Answers requests of the hosted form. One for each client."""

    def __init__(self, executor: Executor, ask: Callable[[Block, Block], Awaitable[Block]]) -> None:
        self._executor = executor
        self._ask = ask
        self._containers: dict[str, _Container] = {}
        self._last: tuple[str, Catalog, Executor] | None = None

    async def serve(self, body: Block, options: Block) -> AsyncGenerator[Block]:
        """The message that answers a request, as far as it is made; the last one is the whole.

        Raises:
            Refusal, BridgeError, APIStatusError: The request cannot be served.
        """
        if not dialect.speaks_hosted(body.get("tools", ())):
            yield await self._ask(body, options)
            return
        turn = _Turn(_given_container(body) or f"container_{secrets.token_hex(12)}")
        async with given_up_on_error(turn.begun), aclosing(self._turn(body, options, turn)) as ends:
            async for reason, expires_at in ends:
                yield self._message(body, turn, reason, expires_at)

    async def _turn(self, body: Block, options: Block, turn: _Turn) -> AsyncGenerator[_End]:
        """Why and until when it stopped, each time that blocks were added; the reason is None but for the last."""
        container = await self._continued(body)
        tools: list[Block] = body["tools"]
        if container is not None:
            code = container.code
            if not self._goes_on(container, turn):
                yield "tool_use", container.expires_at
                return
            yield None, None
        else:
            code = CodeTool(self._executor_for(tools))
        own = own_tools(code)
        ours = {"messages", "tools", "tool_choice", "container", "stream"}
        params: Block = {key: part for key, part in body.items() if key not in ours}
        params["tools"] = dialect.for_model(tools, own)
        if taken := {tool["name"] for tool in own} & {tool.get("name") for tool in params["tools"][len(own) :]}:
            raise Refusal(f"tools: a tool of the model cannot be named {min(taken)!r} here: rename it")
        plain = dialect.Reader(code, params["tools"], dialect.search_name(tools))
        choice = None if container else dialect.choice_for_model(body.get("tool_choice"), code.name)
        for _ in range(TURNS):
            so_far = [*body["messages"], *([{"role": "assistant", "content": turn.content}] if turn.content else [])]
            params["messages"] = plain.messages(so_far)
            try:
                asked = params if choice is None else {**params, "tool_choice": choice}
                response = await self._ask(asked, options)
            except APIError:
                if not turn.begun:
                    raise  # the request can be sent again
                break  # what has run is not to be run again: the application goes on from here
            if container is not None:
                self._containers.pop(container.id, None)
                container = None
            choice = None  # a forced tool is for the first request
            turn.count(response)
            stop = wire.Stop(response.get("stop_reason") or "")
            content = wire.Programs(params["messages"]).apart(wire.content_of(response), "")
            turn.content += [plain.shown(block) for block in content]
            calls = [wire.model_call(block) for block in wire.calls_in(content) if plain.is_ours(block)]
            beside = {call["id"] for call in wire.calls_in(content) if not plain.is_ours(call)}
            if not calls:
                yield ("tool_use" if beside and not stop.cut else stop.reason or "end_turn"), None
                return
            yield None, None
            step = await self._programs(code, calls, stop)
            turn.begun.append(step)
            await _deny(step)
            waits = self._waiting(turn, code, step, beside, plain)
            if waits is not None:
                yield "tool_use", waits.expires_at
                return
            if stop.cut or stop.refused or beside:
                yield (stop.reason if stop.cut or stop.refused else "tool_use"), None
                return
            yield None, None
        yield "pause_turn", None

    def _executor_for(self, tools: list[Block]) -> Executor:
        """The executor with the request's tools; kept, for a conversation has the same ones in every request."""
        key, catalog = json.dumps(tools), self._executor.catalog
        if self._last is None or self._last[0] != key or self._last[1] is not catalog:
            self._last = (key, catalog, self._executor.with_tools(dialect.for_programs(tools)))
        return self._last[2]

    async def _programs(self, code: CodeTool, calls: list[ModelCall], stop: wire.Stop) -> Step:
        """Start the programs of a response, and answer its searches."""
        if stop.cut or stop.refused:
            cut = ToolError("limit", f"not carried out: the response was cut off before its end ({stop.reason})")
            return await code.begin(calls, [Refused(call, cut) for call in calls])
        return await code.answer(calls)

    def _waiting(
        self, turn: _Turn, code: CodeTool, step: Step, beside: set[str], plain: dialect.Reader
    ) -> _Container | None:
        """Add what a step came to: results, or the calls that it waits for and a container that keeps it."""
        container = _Container(turn.container, datetime.now(UTC), step, code, plain, beside=beside)
        if self._goes_on(container, turn):
            return None
        self._containers[container.id] = container
        return container

    async def _continued(self, body: Block) -> _Container | None:
        """The container that a request continues; its waiting calls are answered. None where nothing waits."""
        waiting = wire.Programs(body["messages"]).live
        if not waiting:
            return None
        given = _given_container(body)
        if given is None:
            raise Refusal("container_id is required when there are pending tool uses generated by code execution")
        results = {block["tool_use_id"]: block for block in _results_only(body["messages"][-1])}
        container = self._containers.get(given) or await self._from_store(given, body, waiting)
        if container.expires_at <= datetime.now(UTC):
            raise Refusal(_GONE.format(given))
        container.told = dialect.ended_in(body["messages"])
        if results.keys() == container.answered:
            return container  # the request is sent again, since its response did not come
        wanted = {*container.calls, *container.beside}
        if set(results) != wanted:
            missing, odd = sorted(wanted - set(results)), sorted(set(results) - wanted)
            raise Refusal(f"a tool_result is needed for every pending call; missing: {missing}, unknown: {odd}")
        answers = {call_id: dialect.answer_of(results[on_wire]) for on_wire, call_id in container.calls.items()}
        container.answered = wanted
        container.beside = set()  # their results are in the conversation now
        await container.step.resume(answers)
        await _deny(container.step)
        return container

    async def _from_store(self, given: str, body: Block, programs: Mapping[str, str]) -> _Container:
        """Programs that another process left waiting in the executor's store."""
        code = CodeTool(self._executor_for(body["tools"]))
        runs = dialect.runs_of(body["messages"])
        parts: list[Program] = []
        for program in programs:
            part = Program(ModelCall(id=dialect.plain_id(program), name=code.name), "", {})
            try:
                part.run = await code.executor.load(runs.get(program, ""))
            except StateError:
                raise Refusal(_GONE.format(given)) from None
            parts.append(part)
        step = Step([part.call for part in parts], parts)
        asked = wire.calls_in(wire.content_of(body["messages"][-2]))
        beside = {call["id"] for call in asked if not dialect.is_nested(call)}
        plain = dialect.Reader(code, [], dialect.search_name(body["tools"]))
        container = _Container(given, _soonest(step), step, code, plain, beside=beside)
        container.calls = {dialect.call_id(call): call.id for call in step.pending}
        self._containers[given] = container  # the run is ours now, whatever is wrong with the rest of the request
        return container

    def _goes_on(self, container: _Container, turn: _Turn) -> bool:
        """Show what has ended and what is waited for; whether it is the model's turn."""
        step = container.step
        for answered in step.ended:
            if answered.id not in container.told:
                container.told.add(answered.id)
                turn.content.append(container.plain.result(answered))
        if step.status == "finished":
            return True
        programs = step.programs
        turn.content += [dialect.hosted_call(call, programs[call.run_id]) for call in step.pending]
        container.calls = {dialect.call_id(call): call.id for call in step.pending}
        container.expires_at = _soonest(step)
        return False

    def _message(self, body: Block, turn: _Turn, reason: str | None, expires_at: datetime | None) -> Block:
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
            "content": list(turn.content),
            "stop_reason": reason,
            "stop_sequence": turn.stop_sequence,
            "usage": dict(turn.usage),
            "container": {"id": turn.container, "expires_at": expires.isoformat()} if used else None,
        }


class _Turn:
    """What is put together for one response to the application, of one or more of the model's."""

    def __init__(self, container: str) -> None:
        self.container = container
        self.id = f"msg_{secrets.token_hex(12)}"
        self.model = ""
        self.content: list[Block] = []
        self.begun: list[Step] = []
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


def _soonest(step: Step) -> datetime:
    """When the first of the calls that are waited for expires."""
    soonest = min((call.expires_at for call in step.pending), default=None)
    return datetime.now(UTC) + timedelta(days=1) if soonest is None else datetime.fromtimestamp(soonest, UTC)


def _given_container(body: Block) -> str | None:
    container = body.get("container")
    return wire.field(container, "id") if isinstance(container, dict) else container


def _results_only(message: Block) -> list[Block]:
    content = message["content"]
    if message["role"] != "user" or isinstance(content, str) or any(b["type"] != "tool_result" for b in content):
        raise Refusal("only `tool_result` blocks may answer the pending calls of a program")
    return content
