"""The hosted form of programmatic calls, served on this machine: `local(client, executor)` in place of the client.

An application that declares `programmatic_tool_calling` and `allowed_callers` gets the items that the hosted service
sends, in the same order, from any model; the programs run here under the executor's policy and limits, and may call the
executor's own tools besides those of the request. Deferred tools of programs are searched here too, in place of the
vendor's `tool_search`, and shown as that shows it. What the vendor's service owns is owned here: programs that wait for
the application, and the responses that it continues. Requests without programs go through unchanged.

A response that waits has an id of ours, which holds the vendor's; the last one of a turn has the vendor's own. A stream
has one id from its first event to its last, as the SDK wants it: ours, which holds that of the model's first response;
where the model gave several, only this client knows the last one. With a store, a program that waits goes on in another
process: the ids of its calls hold the run's. What policy asks about and the executor's approver leaves open is sent as
`mcp_approval_request`.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final, overload

import httpx2
from openai import APIError, AsyncOpenAI, OpenAI

from bridge.code_tool import CodeTool, LoopError, ModelCall, Step
from bridge.errors import StateError, ToolError
from bridge.loop import Program, Refused, given_up_on_error
from bridge.openai import client as clients
from bridge.openai import definitions, dialect
from bridge.openai.apart import Apart
from bridge.openai.definitions import Api
from bridge.openai.items import FOREIGN, called, listed
from bridge.openai.output import END, Output
from bridge.openai.over_chat import Chat
from bridge.openai.transport import AsyncTransport, Refusal, Transport
from bridge.openai.turns import INTERRUPTED, Item
from bridge.openai.waiting import RequestTools, Waiting

if TYPE_CHECKING:
    from bridge.executor import Executor
    from bridge.tools import Catalog

TURNS: Final = 25  # requests to the model within one of the application's; then it gets what there is, and goes on
KEPT: Final = 1_000  # responses that wait, and ids that stand for one of the vendor's
_NOT_PASSED_ON: Final = frozenset(["input", "previous_response_id", "tools", "tool_choice", "instructions"])


@overload
def local(
    client: AsyncOpenAI, executor: Executor, *, api: Api = "responses", raw: bool | None = None
) -> AsyncOpenAI: ...
@overload
def local(client: OpenAI, executor: Executor, *, api: Api = "responses", raw: bool | None = None) -> OpenAI: ...
def local(
    client: AsyncOpenAI | OpenAI, executor: Executor, *, api: Api = "responses", raw: bool | None = None
) -> AsyncOpenAI | OpenAI:
    """A client whose programs run here: the line to change in an application that speaks the hosted form.

    Args:
        client: Reaches the model. It is not changed.
        executor: Open, as long as the new client is used; with `with Executor(...)` for a synchronous client.
        api: What the model speaks: `responses`, or `chat` for servers that have Chat Completions only.
        raw: Whether the code tool takes raw text. None: where the endpoint is known to have such tools.

    Returns:
        A client of the same kind, for `responses.create`. Streamed events arrive as the model makes them; those of
        Chat Completions item by item.
    """
    raw = api == "responses" and clients.takes_raw_text(client) if raw is None else raw
    service = _Service(executor, Chat(client) if api == "chat" else _Responses(client), raw=raw)
    if isinstance(client, AsyncOpenAI):
        asynchronous = httpx2.AsyncClient(transport=AsyncTransport(service.serve))
        return client.with_options(http_client=asynchronous, max_retries=0)  # what has run is not run again
    synchronous = httpx2.Client(transport=Transport(service.serve, executor))
    return client.with_options(http_client=synchronous, max_retries=0)


class _Service:
    """Answers requests of the hosted form. One for each client."""

    def __init__(self, executor: Executor, model: Chat | _Responses, *, raw: bool) -> None:
        self._executor = executor
        self._model = model
        self._raw = raw
        self._waiting: dict[str, Waiting] = {}  # by response id of ours
        self._vendors: dict[str, str] = {}  # response id of ours -> the vendor's
        self._last: tuple[str, Catalog, RequestTools] | None = None

    async def serve(self, body: Item, options: Item) -> AsyncGenerator[Item]:
        """The events of the response to a request; the last one holds the response.

        Args:
            options: Headers, query and timeout, of every request to the model that it takes.
        """
        previous, items = body.get("previous_response_id"), listed(body.get("input"))
        if dialect.speaks_hosted(listed(body.get("tools"))):
            if body.get("background"):
                raise Refusal("programs do not run in the background here: leave background out", "background")
            if unknown := dialect.loaded_for_programs(items):
                where = "declare it in tools, with defer_loading: it is searched here"
                raise Refusal(f"{unknown[0]!r} is for programs, which no tool_search_output can load here: {where}")
            waiting = self._found(previous, items) or await self._from_store(body, items)
            events = self._turn(body, options, waiting)
        elif previous in self._waiting:
            raise Refusal("a program waits: its continuation needs programmatic_tool_calling in tools", "tools")
        else:
            params = body | {"input": items} if isinstance(self._model, Chat) else dict(body)
            if previous is not None:
                params["previous_response_id"] = self._vendors_id(previous)
            events = self._model.ask(params, options, stream=bool(params.pop("stream", False)))
        async with aclosing(events):
            async for event in events:
                yield event

    def _found(self, previous: Any, items: list[Item]) -> Waiting | None:
        """The programs that a request continues; None where nothing waits."""
        if isinstance(previous, str):
            return self._waiting.get(previous)
        live = dialect.live_programs(items)
        for waiting in self._waiting.values():
            if not waiting.types.keys().isdisjoint(live) or self._is_beside(waiting, items):
                return waiting
        return None

    async def _from_store(self, body: Item, items: list[Item]) -> Waiting | None:
        """Programs that another process left waiting in the executor's store; None where a request continues none."""
        live = dialect.live_programs(items)
        parts: list[Program] = []
        offer = self._request_tools(listed(body["tools"])) if live else None
        code = CodeTool(offer.executor) if offer is not None else None
        if offer is None or code is None:
            return None
        for call_id, run_id in live.items():
            try:
                run = await offer.executor.load(run_id)
            except StateError as error:
                raise Refusal(f"program {call_id} does not wait here: {error}") from None
            parts.append(Program(ModelCall(id=call_id, name=code.name), "", {}))
            parts[-1].run = run
        step = Step([part.call for part in parts], parts)
        vendors = dialect.vendors_id(body.get("previous_response_id") or "")
        response: Item = {"id": vendors, "object": "response", "created_at": int(time.time()), "model": body["model"]}
        response |= {"output": [], "parallel_tool_calls": True, "error": None, "incomplete_details": None}
        types = dict.fromkeys(live, "custom_tool_call" if self._raw else "function_call")
        waiting = Waiting(step, code, offer, response, types, dialect.direct_calls(items))
        waiting.listed = waiting.open_ids
        return waiting

    def _is_beside(self, waiting: Waiting, items: list[Item]) -> bool:
        """Whether a history ends with answers to the calls beside programs that have ended."""
        return bool(items) and items[-1].get("call_id") in waiting.beside

    async def _turn(self, body: Item, options: Item, waiting: Waiting | None) -> AsyncGenerator[Item]:
        """The events of one response; what it began is given up when the application does not wait for its end."""
        begun: list[Step] = []
        async with given_up_on_error(begun), aclosing(self._events(body, options, waiting, begun)) as events:
            async for event in events:
                yield event

    async def _events(
        self, body: Item, options: Item, waiting: Waiting | None, begun: list[Step]
    ) -> AsyncGenerator[Item]:
        items, tools = listed(body.get("input")), listed(body["tools"])
        chained = body.get("previous_response_id") is not None or body.get("conversation") is not None
        offer = self._request_tools(tools) if waiting is None else waiting.offer
        code = CodeTool(offer.executor) if waiting is None else waiting.code
        own = definitions.of(code, raw=self._raw)  # it offers nothing beside the code tool and the search
        code_tool, search = own[0], code.search
        plain = dialect.for_model(tools, own, searches=not isinstance(self._model, Chat))
        if taken := {tool["name"] for tool in own} & {tool.get("name") for tool in plain[len(own) :]}:
            raise Refusal(f"a tool of the model cannot be named {min(taken)!r} here: rename it", "tools")
        echoed = {name: body.get(name) for name in ("tools", "instructions", "previous_response_id")}
        echoed["tool_choice"] = body.get("tool_choice") or "auto"
        out, stream = Output(code, code_tool, echoed), bool(body.get("stream"))
        choice = dialect.choice_for_model(body.get("tool_choice"), code_tool)
        previous = self._vendors_id(body.get("previous_response_id"))
        new = dialect.plain_items(items, code_tool, search)
        if waiting is not None:
            choice = None  # a forced tool is for the first request
            said = await waiting.take(items, whole=not chained)
            for event in out.begin(waiting.response):
                yield event
            for event in self._news(out, waiting):
                yield event
            if not waiting.ended:
                yield self._pause(out, waiting, stream=stream)
                return
            previous, new = waiting.response["id"], [*waiting.outputs(), *dialect.plain_items(said, code_tool, search)]
        params: Item = {name: part for name, part in body.items() if name not in (*_NOT_PASSED_ON, "stream")}
        params["tools"] = plain
        params["instructions"] = "\n\n".join(filter(None, (body.get("instructions"), code.instructions)))
        for _ in range(TURNS):
            params["input"] = new if chained else dialect.plain_items([*items, *out.items], code_tool, search)
            if chained and body.get("conversation") is None:
                params["previous_response_id"] = previous
            response: Item = {}
            before, ran, given = waiting, bool(begun), len(out.items)
            apart = Apart(params["input"] if params.get("store") is False else None)
            asked = params if choice is None else params | {"tool_choice": choice}
            try:
                async with aclosing(self._model.ask(asked, options, stream=stream)) as events:
                    async for given_event in events:
                        event = apart.event(given_event)
                        if event is None:
                            continue
                        response = event["response"] if event["type"] in END else response
                        for shown in out.passed_on(event):
                            yield shown
            except BaseException as error:
                if before is None:
                    raise
                if not ran or not isinstance(error, (APIError, LoopError)):
                    before.told = False  # the request can be sent again
                    raise
                del out.items[given:]
                begun.clear()
                # What has run is not to be run again: an empty continuation goes on.
                yield self._pause(out, before, stream=stream)
                return
            if before is not None:
                self._forget(before)
            choice, previous = None, response["id"]
            waiting = await self._programs(code, offer, response, code_tool)
            if waiting is not None:
                waiting.again = apart.again
                begun.append(waiting.step)
            else:
                if stream:
                    self._remember(out.id, previous)
                yield out.end(response, out.id if stream else previous)
                return
            for event in self._news(out, waiting):
                yield event
            if not waiting.ended or response.get("status") == "incomplete":
                break
            new = waiting.outputs()
        assert waiting is not None
        begun.clear()  # the application knows how to go on
        yield self._pause(out, waiting, stream=stream)  # where nothing waits, an empty continuation goes on

    def _request_tools(self, tools: list[Item]) -> RequestTools:
        """The executor with the request's tools; kept, for a conversation has the same ones in every request."""
        key, catalog = json.dumps(tools), self._executor.catalog
        if self._last is None or self._last[0] != key or self._last[1] is not catalog:
            made = dialect.for_programs(tools)
            offer = RequestTools(self._executor.with_tools(made), {tool.full_name: tool for tool in made}, tools)
            self._last = (key, catalog, offer)
        return self._last[2]

    async def _programs(self, code: CodeTool, offer: RequestTools, response: Item, code_tool: Item) -> Waiting | None:
        """Start the programs of a response; None where it has none, or has failed."""
        status = response.get("status")
        found = called(response["output"], status=status)
        searches = code.search is not None
        programs = [
            call
            for call in found
            if dialect.is_code(call.item, code_tool) or (searches and dialect.is_search(call.item))
        ]
        if not programs or status not in (None, "completed", "incomplete"):
            return None
        details: Item = response.get("incomplete_details") or {}
        reason = details.get("reason") or "incomplete"
        stopped = status == "incomplete" and reason != "max_output_tokens"
        cut = [call.model_call for call in programs if call.cut or stopped]
        error = ToolError("not_made", INTERRUPTED.format(reason=reason).partition("not_made: ")[2])
        parts = [
            *code.parts([call.model_call for call in programs if call.model_call not in cut]),
            *(Refused(call, error) for call in cut),
        ]
        beside = {call.id for call in found if call not in programs}
        beside |= {item["call_id"] for item in response["output"] if item.get("type") in FOREIGN}
        types: dict[str, str] = {call.id: call.item["type"] for call in programs}
        step = await code.begin([call.model_call for call in programs], parts)
        return Waiting(step, code, offer, response, types, beside)

    def _news(self, out: Output, waiting: Waiting) -> list[Item]:
        return [event for item in waiting.news() for event in out.add(item)]

    def _pause(self, out: Output, waiting: Waiting, *, stream: bool) -> Item:
        """The response with which the application is to go on, under an id of ours."""
        self._forget(waiting)
        own = out.id if stream else dialect.id_that_waits(waiting.response["id"])
        self._waiting[own] = waiting
        while len(self._waiting) > KEPT:
            del self._waiting[next(iter(self._waiting))]
        return out.end(waiting.response, own)

    def _forget(self, waiting: Waiting) -> None:
        self._waiting = {key: each for key, each in self._waiting.items() if each is not waiting}

    def _vendors_id(self, given: Any) -> Any:
        """What the vendor knows a response by, whose id the application gives."""
        return self._vendors.get(given) or dialect.vendors_id(given) if isinstance(given, str) else given

    def _remember(self, own: str, vendors: str) -> None:
        """In a stream the application has our id."""
        self._vendors[own] = vendors
        while len(self._vendors) > KEPT:
            del self._vendors[next(iter(self._vendors))]


class _Responses:
    """Asks a model over the Responses API."""

    def __init__(self, client: AsyncOpenAI | OpenAI) -> None:
        self._client = client

    async def ask(self, params: Item, options: Item, *, stream: bool) -> AsyncGenerator[Item]:
        """One request, and its events; that of its end is the only one where it is not streamed."""
        request = options | {"extra_body": params}
        if not stream:
            response = await clients.respond(self._client, request, stream=False, on_event=None)
            made = response.to_dict(mode="json")
            yield {"type": f"response.{made.get('status') or 'completed'}", "response": made}
            return
        done: list[Item] = []
        ended = False
        async with aclosing(clients.events(self._client, self._client.responses.create, request)) as arriving:
            async for each in arriving:
                event: Item = each.to_dict(mode="json")
                if event["type"] == "error":
                    raise LoopError(f"the vendor ended the stream: {event.get('code')}: {event.get('message')}")
                if event["type"] == "response.output_item.done":
                    done.append(event["item"])
                elif event["type"] in END and not event["response"].get("output"):
                    event["response"]["output"] = done  # some servers leave the items out of the last event
                ended = ended or event["type"] in END
                yield event
        if not ended:
            raise LoopError("the stream ended without a response: the connection was closed on the way")
