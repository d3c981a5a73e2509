"""What a loop over the Responses API sends: the form of the code tool, other tools, and what is stopped before that."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from bridge import ConfigurationError, Executor, Tool
from sandbox import Sandbox
from tests.providers.openai_shop import ADD, STREAMS, Tools, client_of, executor_of, loop, outputs, program
from tests.providers.openai_wire import Wire, calls, says, writes

pytestmark = [pytest.mark.anyio, STREAMS]


# ---- the code tool's form --------------------------------------------------------------------------------------------


class Redirected(httpx2.AsyncHTTPTransport):
    """Sends what is for the vendor's own host to the local server."""

    def __init__(self, wire: Wire) -> None:
        super().__init__()
        self._url = httpx2.URL(wire.base_url)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        request.url = request.url.copy_with(scheme="http", host=self._url.host, port=self._url.port)
        return await super().handle_async_request(request)


async def test_the_vendors_own_endpoint_gets_raw_text_and_one_that_refuses_it_a_function(
    wire: Wire, tools: Tools, opened: Sandbox
) -> None:
    wire.play([writes(ADD)], [says("raw")])
    options = {
        "base_url": "https://api.openai.com/v1",
        "http_client": httpx2.AsyncClient(transport=Redirected(wire)),
    }
    async with client_of(wire, **options) as client, executor_of(tools, opened) as executor:
        assert (await loop(client, executor)).text == "raw"
        assert wire.requests[-1]["tools"][0]["type"] == "custom"
        wire.custom = False
        wire.play([program(ADD)], [says("function")])
        reply = await loop(client, executor)
        assert (reply.text, reply.turns) == ("function", 2)
        assert [request["tools"][0]["type"] for request in wire.requests[2:]] == ["custom", "function", "function"]
        with pytest.raises(Exception, match="Invalid value: 'custom'"):
            await loop(client, executor, raw=True)


# ---- what cannot be meant --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"background": True}, "a loop waits for every response"),
        ({"messages": []}, "messages belong to Chat Completions"),
        ({"tools": [{"type": "function", "name": "f"}]}, "the function tool 'f' belongs into the executor"),
        ({"tools": [{"type": "shell"}]}, "a loop cannot answer shell calls"),
        ({"turns": 0}, "turns must be a whole number from 1 on"),
        ({"direct": ["nope"]}, "direct='nope' fits no tool"),
    ],
)
async def test_options_that_cannot_be_meant_stop_before_anything_is_sent(
    wire: Wire, client: Any, tools: Tools, opened: Sandbox, options: Any, said: str
) -> None:
    async with executor_of(tools, opened) as executor:
        with pytest.raises(ConfigurationError, match=said):
            await loop(client, executor, **options)
        with pytest.raises(ConfigurationError, match="must be an AsyncOpenAI"):
            await loop(object(), executor)
    assert wire.requests == []


async def test_tools_that_the_vendor_runs_are_passed_on(wire: Wire, client: Any, tools: Tools, opened: Sandbox) -> None:
    found = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "x"}}
    wire.play([found, program(ADD)], [says("ok")])
    async with executor_of(tools, opened) as executor:
        reply = await loop(client, executor, tools=[{"type": "web_search"}], store=False)
        assert reply.text == "ok"
    assert [tool["type"] for tool in wire.requests[1]["tools"]] == ["function", "web_search"]
    assert found in wire.requests[1]["input"]


async def test_a_catalog_that_the_vendor_would_refuse_reaches_programs_all_the_same(
    wire: Wire, client: Any, opened: Sandbox
) -> None:
    async def same(arguments: Any) -> Any:
        return arguments

    odd = [
        Tool(name="array", input_schema={"type": "object", "properties": {"a": {"type": "array"}}}, handler=same),
        Tool(name="object", input_schema={"type": "object"}, handler=same),
        Tool(name="any thing/at all" * 8, server=None, input_schema={}, handler=same),
        Tool(name="number", input_schema={"type": "number"}, handler=same),
        Tool(
            name="choice",
            input_schema={
                "$schema": "http://json-schema.org/draft-07/schema#",
                "anyOf": [{"type": "object", "properties": {"u": {"type": "string", "format": "uri"}}}],
            },
            handler=same,
        ),
        Tool(
            name="tree",
            input_schema={
                "type": "object",
                "properties": {"left": {"$ref": "#"}, "pair": {"type": "array", "items": [{"type": "string"}, True]}},
            },
            handler=same,
        ),
    ]
    wire.play([program("return [await tools.array({a: [1]}), await tools.number(4)]")], [says("ok")])
    wire.play([calls("number", {"value": 4}), calls("tree", {"left": {"left": {}}}, 2)], [says("ok")])
    async with Executor(odd, sandbox=opened) as executor:
        assert (await loop(client, executor)).runs[0].result.value == [{"a": [1]}, 4]
        assert (await loop(client, executor, direct=True)).text == "ok"
    assert outputs(wire) == ["4", '{"left":{"left":{}}}']
    assert wire.refusals == []
