"""Tool search in the hosted form, served here: what applications that were written for it get, from any model."""

from __future__ import annotations

from typing import Any

import anthropic as sdk
import anyio.to_thread
import openai as sdk_of_openai
import pytest

from bridge import Executor, anthropic, openai
from sandbox import Sandbox
from tests.providers import anthropic_wire as messages
from tests.providers.anthropic_application import CODE, said
from tests.providers.anthropic_application import Application as OtherApplication
from tests.providers.anthropic_shop import speaking
from tests.providers.openai_application import Application
from tests.providers.openai_shop import STREAMS, client_of
from tests.providers.openai_wire import calls, chat_calls, chat_says, says, searches, served
from tests.providers.test_tool_search import FINDS, ID, TOOLS, TRACK, shop, written

pytestmark = [pytest.mark.anyio, STREAMS]

SEARCH = {"type": "tool_search"}
HOSTED = {"type": "programmatic_tool_calling"}
PROGRAM = {"allowed_callers": ["programmatic"]}
WEIGH = {"type": "function", "name": "weigh", "description": "Weight of a parcel.", "parameters": ID, "strict": True}
LATER = WEIGH | PROGRAM | {"defer_loading": True}
CRM = {"type": "namespace", "name": "crm", "description": "Customers", "tools": [LATER | {"name": "parcels_of"}]}


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


BOTH_CALLERS = {"allowed_callers": ["direct", "programmatic"]}


def code(text: str, number: int) -> Any:
    return calls("run_program", {"program": text}, number)


BOTH = "return [await tools.weigh({id: '1Z'}), await tools.crm.parcels_of({id: 'x'}), await tools.track({id: '1Z'})]"


@pytest.mark.parametrize(("store", "stream"), [(True, False), (False, True), (False, False), (True, True)])
async def test_deferred_tools_of_application_and_executor_are_found_and_shown_as_the_service_does(
    opened: Sandbox, store: bool, stream: bool
) -> None:
    with served() as wire:
        wire.play([calls("search_tools", '{ "query": "parcel" }')], [code(BOTH, 2)], [says("done")])
        async with client_of(wire) as client, shop(opened) as executor:
            local = openai.local(client, executor)
            tools = [HOSTED, LATER, CRM, SEARCH]
            application = Application(local, store=store, stream=stream, tools=tools)
            assert await application.run(lambda call: "7") == "done"
    assert wire.refusals == []
    assert [item["type"] for item in application.seen] == [
        "tool_search_call",
        "tool_search_output",
        "program",
        "function_call",
        "function_call",
        "program_output",
        "message",
    ]
    call, output = application.seen[:2]
    assert (call["execution"], call["arguments"]) == ("server", FINDS)
    found = [tool.get("tools", [tool])[0]["name"] for tool in output["tools"]]
    assert sorted(found) == ["parcels_of", "track", "weigh"]
    assert CRM in output["tools"]
    text = next(item["output"] for item in wire.requests[1]["input"] if item.get("output"))
    assert "weigh(args: { id: string })" in written(text)
    assert [tool["name"] for tool in wire.requests[0]["tools"]] == ["run_program", "search_tools"]
    assert [request["tools"] for request in wire.requests] == [wire.requests[0]["tools"]] * 3
    assert "weigh(" not in wire.requests[0]["instructions"]
    assert application.seen[5]["result"] == '["7","7",{"at":"1Z"}]'


async def test_models_that_speak_chat_completions_only_search_as_well(opened: Sandbox) -> None:
    with served() as wire:
        wire.play([chat_says(None, chat_calls("search_tools", FINDS))], [chat_says("found")])
        async with client_of(wire) as client, shop(opened) as executor:
            application = Application(openai.local(client, executor, api="chat"), tools=[HOSTED, LATER, SEARCH])
            assert await application.run() == "found"
    assert wire.refusals == []
    assert "weigh(" in wire.requests[1]["messages"][-1]["content"]


async def test_what_the_model_itself_may_call_stays_for_the_search_of_its_own_api(opened: Sandbox) -> None:
    client_search = SEARCH | {"execution": "client", "description": "x", "parameters": {"type": "object"}}
    beside = WEIGH | {"name": "by_itself", "defer_loading": True}
    with served() as wire:
        wire.play([searches({"q": 1}), code(TRACK, 2)], [says("done")])
        async with client_of(wire) as client, shop(opened) as executor:
            local = openai.local(client, executor)
            request = {"model": "m", "tools": [HOSTED, LATER, client_search]}
            first = await local.responses.create(input="?", **request)
            assert [item.type for item in first.output] == ["tool_search_call", "program", "program_output"]
            loaded = {"type": "tool_search_output", "call_id": "call_1", "execution": "client", "status": "completed"}
            again = await local.responses.create(
                input=[loaded | {"tools": [beside | BOTH_CALLERS]}], previous_response_id=first.id, **request
            )
            with pytest.raises(
                sdk_of_openai.BadRequestError, match="'weigh' is for programs, which no tool_search_output"
            ):
                await local.responses.create(
                    input=[loaded | {"tools": [LATER]}], previous_response_id=again.id, **request
                )
    assert (again.output_text, wire.refusals) == ("done", [])
    assert wire.requests[1]["input"][-1]["tools"] == [beside]
    assert [tool.get("name", tool["type"]) for tool in wire.requests[0]["tools"]] == [
        "run_program",
        "search_tools",
        "tool_search",
    ]


@pytest.mark.parametrize("name", ["run_program", "search_tools"])
async def test_a_tool_of_the_application_cannot_have_the_name_of_ours(opened: Sandbox, name: str) -> None:
    with served() as wire:
        async with client_of(wire) as client, shop(opened) as executor:
            local = openai.local(client, executor)
            with pytest.raises(Exception, match=f"cannot be named '{name}' here"):
                await local.responses.create(model="m", input="?", tools=[HOSTED, WEIGH | {"name": name}])


async def test_a_synchronous_stream_arrives_as_it_is_made() -> None:
    with served() as wire:
        wire.play([code("return await tools.stock({id: '1'})", 1)], [says("one")])

        def synchronously() -> list[int]:
            with Executor(TOOLS) as executor:
                local = openai.local(made, executor)
                stream = local.responses.create(model="m", input="?", tools=[HOSTED, SEARCH], stream=True)
                return [len(wire.requests) for event in stream if event.type == "response.output_item.done"]

        async with client_of(wire, "sync") as made:
            seen = await anyio.to_thread.run_sync(synchronously)
    assert seen == [1, 1, 2]


# ---- the other vendor's form -----------------------------------------------------------------------------------------

BM25 = {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"}
CODED = {"allowed_callers": ["code_execution_20260120"], "defer_loading": True}
WEIGHED = {"name": "weigh", "description": "Weight of a parcel.", "input_schema": ID, **CODED}
TWO = "return [await tools.weigh({id: '1Z'}), await tools.track({id: '1Z'})]"


@pytest.mark.parametrize("stream", [False, True])
async def test_the_other_hosted_form_shows_what_was_found_as_its_service_does(opened: Sandbox, stream: bool) -> None:
    with messages.serving() as wire:
        wire.play(
            [messages.call("search_tools", FINDS), messages.call("search_tools", {"words": ""}, "toolu_2")],
            [messages.program(TWO, "toolu_3")],
            [messages.text("done")],
        )
        async with speaking(wire) as client, shop(opened) as executor:
            local = anthropic.local(client, executor)
            application = OtherApplication(local, [CODE, BM25, WEIGHED], lambda call: "7", stream=stream)
            assert said(await application.ask("where?")) == "done"
    assert wire.refusals == []
    assert application.kinds == [
        [*["server_tool_use"] * 2, *["tool_search_tool_result"] * 2, "server_tool_use", "tool_use"],
        ["code_execution_tool_result", "text"],
    ]
    shown = application.messages[1]["content"]
    assert (shown[0]["name"], shown[0]["input"]) == ("tool_search_tool_bm25", FINDS)
    assert [part["tool_name"] for part in shown[2]["content"]["tool_references"]] == ["track", "weigh"]
    assert shown[3]["content"]["error_code"] == "invalid_tool_input"
    asked = wire.requests[2]["messages"]
    assert asked[1]["content"][0] == messages.call("search_tools", FINDS)
    found, refused = asked[2]["content"]
    assert "weigh(args: { id: string })" in written(found["content"])
    assert refused["is_error"]
    assert asked[:3] == wire.requests[1]["messages"]
    assert [tool["name"] for tool in wire.requests[0]["tools"]] == ["run_program", "search_tools"]
    assert [request["tools"] for request in wire.requests] == [wire.requests[0]["tools"]] * 3


async def test_what_an_application_found_itself_reaches_programs_and_model(opened: Sandbox) -> None:
    find = {"name": "find", "input_schema": {"type": "object"}}
    both = WEIGHED | {"allowed_callers": ["direct", *CODED["allowed_callers"]]}
    alone = WEIGHED | {"name": "alone"}
    references = [{"type": "tool_reference", "tool_name": name} for name in ("weigh", "alone")]

    def answer(call: Any) -> Any:
        return {"content": references} if call.name == "find" else "7"

    with messages.serving() as wire:
        wire.play([messages.call("find", {})], [messages.program("return await tools.alone({id: '1'})", "toolu_2")])
        wire.play([messages.call("weigh", {"id": "1"}, "toolu_3")], [messages.text("done")])
        async with speaking(wire) as client, Executor([], sandbox=opened) as executor:
            application = OtherApplication(anthropic.local(client, executor), [CODE, find, both, alone], answer)
            assert said(await application.ask("?")) == "done"
    assert wire.refusals == []
    [result] = wire.requests[1]["messages"][2]["content"]
    declared, *kept = result["content"]
    assert kept == references[:1]
    assert "alone(args" in declared["text"]
    assert "weigh(args" in declared["text"]


async def test_a_synchronous_stream_of_the_other_form_arrives_as_it_is_made() -> None:
    with messages.serving() as wire:
        wire.play([messages.program("return await tools.stock({id: '1'})")], [messages.text("one")])
        kinds: list[tuple[str, int]] = []

        def synchronously() -> None:
            with sdk.Anthropic(api_key="none", base_url=wire.base_url) as client, Executor(TOOLS) as executor:
                given: dict[str, Any] = {"model": "m", "max_tokens": 9, "tools": [CODE, BM25]}
                local = anthropic.local(client, executor)
                with local.messages.stream(messages=[{"role": "user", "content": "?"}], **given) as events:
                    stops = (event for event in events if event.type == "content_block_stop")
                    kinds.extend((event.content_block.type, len(wire.requests)) for event in stops)

        await anyio.to_thread.run_sync(synchronously)
    assert kinds == [("server_tool_use", 1), ("code_execution_tool_result", 1), ("text", 2)]
