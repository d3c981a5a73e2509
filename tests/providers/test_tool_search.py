"""Tool search in agent loops: one search, and what it finds reaches the model in each vendor's own way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from bridge import Approve, ConfigurationError, Executor, Policy, Tool, ToolContext, anthropic, ask, openai
from bridge.code_tool import CodeTool, ModelCall
from sandbox import Sandbox
from tests.providers import anthropic_wire as messages
from tests.providers import openai_wire as responses
from tests.providers.anthropic_shop import speaking
from tests.providers.openai_shop import STREAMS, client_of
from tests.providers.openai_wire import called_by, calls, chat_calls, chat_says, program, program_output, says, searches

pytestmark = [pytest.mark.anyio, STREAMS]

FINDS = {"query": "parcel"}
TRACK = "return await tools.track({id: '1Z'})"
TRACKED = "[sandbridge] completed; 1 call\n" + '{"at":"1Z"}'
ID = {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"], "additionalProperties": False}
SEARCH = ["query", "server", "limit"]  # what a search takes where the vendor loads what is found


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


async def handler(arguments: Any, context: ToolContext) -> Any:
    return {"at": arguments["id"]}


def tool(name: str, description: str, **more: Any) -> Tool:
    return Tool(name=name, description=description, input_schema=ID, handler=handler, **more)


TOOLS = [
    tool("stock", "How many pieces of an article there are."),
    tool("track", "Where a parcel is.", defer=True),
    tool("refund", "Give money back.", defer=True),
    tool("stop", "Stop a parcel on its way.", defer=True, callers=frozenset(["direct"])),
]


def shop(sandbox: Sandbox) -> Executor:
    return Executor(TOOLS, sandbox=sandbox)


def written(text: str) -> str:
    """The declarations in the answer to a search."""
    return text.partition("```ts\n")[2]


# ---- any model -------------------------------------------------------------------------------------------------------


async def test_a_model_finds_deferred_tools_and_its_program_calls_them(opened: Sandbox) -> None:
    with responses.served() as wire:
        wire.play(
            [calls("search_tools", FINDS)],
            [calls("run_program", {"program": TRACK}, 2)],
            [says("on its way")],
        )
        async with client_of(wire) as client, shop(opened) as executor:
            reply = await openai.run(client, executor, model="m", input="where is it?", store=False)
    found, ran = [item["output"] for item in wire.requests[2]["input"] if "output" in item]
    assert (reply.text, ran, wire.refusals) == ("on its way", TRACKED, [])
    track = "  /** Where a parcel is. */\n  track(args: { id: string }): Promise<unknown>;\n"
    assert written(found) == f"declare const tools: {{\n{track}}};\n```\n"
    assert [[tool["name"] for tool in request["tools"]] for request in wire.requests] == [
        ["run_program", "search_tools"]
    ] * 3
    assert wire.requests[0]["tools"] == wire.requests[2]["tools"]
    assert (
        "2 more tools are not declared here. Find what you need with search_tools" in wire.requests[0]["instructions"]
    )


async def test_the_same_search_serves_chat_completions_and_messages(opened: Sandbox) -> None:
    with responses.served() as wire:
        wire.play([chat_says(None, chat_calls("search_tools", FINDS))], [chat_says("found")])
        async with client_of(wire) as client, shop(opened) as executor:
            chat = await openai.chat.run(client, executor, model="m", messages=[{"role": "user", "content": "?"}])
    with messages.serving() as other:
        other.play([messages.call("search_tools", FINDS)], [messages.text("found")])
        async with speaking(other) as client, shop(opened) as executor:
            talk = await anthropic.run(
                client, executor, model="m", max_tokens=9, messages=[{"role": "user", "content": "?"}]
            )
    [result] = other.results
    assert chat.transcript[-2]["content"] == result["content"]
    assert (chat.text, talk.text, wire.refusals, other.refusals) == ("found", "found", [], [])
    assert [tool["name"] for tool in other.tools] == ["run_program", "search_tools"]


async def test_what_does_not_fit_the_budget_is_searched_for(opened: Sandbox) -> None:
    async with Executor([tool(f"ship_{n}", "Send a parcel.") for n in range(30)], sandbox=opened) as executor:
        whole, small = CodeTool(executor), CodeTool(executor, budget=10)
        assert whole.search is None
        assert "ship_1(" in whole.instructions
        assert small.search is not None
        assert "ship_1(" not in small.instructions
        step = await small.answer([ModelCall(id="c", name="search_tools", arguments={"query": "ship_7"})])
        assert "ship_7(" in step.answers[0].text


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"words": "x"}, "search_tools takes query, detail, server, limit, and no words"),
        ({}, "search: query must be a text, not null"),
        ('{"query": "x"', "the arguments of search_tools are no JSON"),
        ({"query": "x", "server": "mars"}, "search: there is no server mars"),
    ],
)
async def test_a_search_that_cannot_be_meant_is_answered_with_what_to_do(
    opened: Sandbox, given: Any, said: str
) -> None:
    async with shop(opened) as executor:
        step = await CodeTool(executor).answer([ModelCall(id="c", name="search_tools", arguments=given)])
    [answered] = step.answers
    assert answered.failed
    assert answered.text.removeprefix("[sandbridge] error invalid_arguments: ").replace('"', "").startswith(said)


async def test_names_and_budgets_that_cannot_be_meant_stop_before_anything_is_sent(opened: Sandbox) -> None:
    async with shop(opened) as executor:
        for options in ({"name": "search_tools"}, {"budget": -1}, {"budget": True}):
            with pytest.raises(ConfigurationError):
                CodeTool(executor, **options)


# ---- the vendor runs the programs ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("stream", "store"), [(False, False), (True, True)])
async def test_a_hosted_model_gets_definitions_and_its_programs_call_them(
    opened: Sandbox, stream: bool, store: bool
) -> None:
    with responses.served() as wire:
        wire.play(
            [searches(FINDS)],
            [program("..."), calls("track", {"id": "1Z"}, 2, **called_by())],
            [program_output("{}"), calls("stop", {"id": "1Z"}, 3)],
            [searches({"query": "money"}, 4)],
            [says("done")],
        )
        async with client_of(wire) as client, shop(opened) as executor:
            options = {"hosted": True, "direct": True, "stream": stream, "store": store}
            reply = await openai.run(client, executor, model="m", input="stop it", **options)
    assert (reply.text, wire.refusals) == ("done", [])
    sent = [request["tools"] for request in wire.requests]
    assert sent == [sent[0]] * 5
    assert [tool.get("name", tool["type"]) for tool in sent[0]] == ["programmatic_tool_calling", "stock", "tool_search"]
    assert list(sent[0][2]["parameters"]["properties"]) == SEARCH
    assert sent[0][2]["description"].endswith("By server: no server 3.")
    found = [item for item in reply.transcript if item.get("type") == "tool_search_output"]
    assert [[(tool["name"], tool["allowed_callers"]) for tool in item["tools"]] for item in found] == [
        [("track", ["direct", "programmatic"]), ("stop", ["direct"])],
        [("refund", ["direct", "programmatic"])],
    ]
    assert all(tool["defer_loading"] for item in found for tool in item["tools"])


async def test_a_search_that_finds_nothing_or_cannot_be_meant_loads_nothing(opened: Sandbox) -> None:
    with responses.served() as wire:
        wire.play([searches({"query": "qqq"}), searches({"nothing": 1}, 2), searches('{"query": "money"}', 3)])
        wire.play([says("none")])
        async with client_of(wire) as client, shop(opened) as executor:
            reply = await openai.run(client, executor, model="m", input="?", hosted=True)
    found = [item for item in reply.transcript if item.get("type") == "tool_search_output"]
    assert [[tool["name"] for tool in item["tools"]] for item in found] == [[], [], ["refund"]]
    assert wire.refusals == []


async def test_a_search_of_the_vendors_own_gets_the_deferred_tools_to_search(opened: Sandbox) -> None:
    own = {"type": "tool_search"}
    theirs = {"type": "tool_search_call", "id": "tsc_1", "call_id": None, "execution": "server", "arguments": {}}
    with responses.served() as wire:
        wire.play([theirs | {"status": "completed"}, says("none")])
        async with client_of(wire) as client, shop(opened) as executor:
            reply = await openai.run(client, executor, model="m", input="?", hosted=True, tools=[own], turns=1)
    assert (reply.text, wire.refusals) == ("none", [])
    named = {tool["name"]: tool.get("defer_loading") for tool in wire.requests[0]["tools"] if "name" in tool}
    assert named == {"stock": None, "track": True, "refund": True}
    assert wire.requests[0]["tools"][-1] == own
    async with client_of(wire) as client, shop(opened) as executor:
        tools = [{"type": "tool_search", "execution": "client"}]
        with pytest.raises(ConfigurationError, match="is offered here"):
            await openai.run(client, executor, model="m", input="?", hosted=True, tools=tools)


async def test_a_hosted_model_of_the_other_vendor_gets_references(opened: Sandbox) -> None:
    with messages.serving() as wire:
        wire.play(
            [messages.call("search_tools", FINDS)],
            [messages.hosted_program("..."), messages.call("track", {"id": "1Z"}, "toolu_2", "srvtoolu_1")],
            [messages.hosted_result("..."), messages.call("stop", {"id": "1Z"}, "toolu_3")],
            [messages.call("search_tools", {"query": "qqq"}, "toolu_4")],
            [messages.text("done")],
        )
        async with speaking(wire) as client, shop(opened) as executor:
            hello = [{"role": "user", "content": "stop it"}]
            options = {"hosted": True, "direct": ["stop"], "max_tokens": 9, "messages": hello}
            reply = await anthropic.run(client, executor, model="m", **options)
    assert (reply.text, wire.refusals) == ("done", [])
    sent = [request["tools"] for request in wire.requests]
    assert sent == [sent[0]] * 5
    assert {tool["name"]: tool.get("defer_loading", False) for tool in sent[0]} == {
        "code_execution": False,
        "search_tools": False,
        "stock": False,
        "track": True,
        "refund": True,
        "stop": True,
    }
    results = [message["content"][0] for message in wire.requests[4]["messages"][2::2]]
    assert results[0]["content"] == [
        {"type": "tool_reference", "tool_name": "track"},
        {"type": "tool_reference", "tool_name": "stop"},
    ]
    assert [result["content"] for result in results[1:3]] == ['{"at":"1Z"}'] * 2
    assert results[3]["content"] == "No tool matches. By server: no server 3.\n"


async def test_a_search_of_the_other_vendors_own_gets_the_deferred_tools_to_search(opened: Sandbox) -> None:
    own = {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"}
    with messages.serving() as wire:
        wire.play([messages.text("hi")])
        async with speaking(wire) as client, shop(opened) as executor:
            hello = [{"role": "user", "content": "?"}]
            options = {"hosted": True, "max_tokens": 9, "messages": hello, "tools": [own]}
            await anthropic.run(client, executor, model="m", **options)
    assert [tool["name"] for tool in wire.tools] == ["code_execution", "stock", "track", "refund", own["name"]]
    assert wire.refusals == []


async def test_what_was_found_beside_a_call_that_waits_is_loaded_in_another_process_too(opened: Sandbox) -> None:
    options = {"sandbox": opened, "policy": Policy([ask("stock")]), "key": "0123456789abcdef0123456789abcdef"}
    given: dict[str, Any] = {"hosted": True, "model": "m"}
    with responses.served() as wire, messages.serving() as other:
        wire.play([searches(FINDS), program("..."), calls("stock", {"id": "1"}, 2, **called_by())])
        wire.play([program_output(""), says("done")])
        nested = messages.call("stock", {"id": "1"}, "toolu_2", "srvtoolu_1")
        other.play([messages.call("search_tools", FINDS), messages.hosted_program("..."), nested])
        other.play([messages.hosted_result(""), messages.text("done")])
        async with client_of(wire) as client, speaking(other) as speaker:
            async with Executor(TOOLS, **options) as executor:
                state = (await openai.run(client, executor, input="?", **given)).dump()
                asked = {"messages": [{"role": "user", "content": "?"}], "max_tokens": 9}
                other_state = (await anthropic.run(speaker, executor, **given, **asked)).dump()
            async with Executor(TOOLS, **options) as executor:
                for reply in (
                    await openai.load(client, executor, state, **given),
                    await anthropic.load(speaker, executor, other_state, **given, max_tokens=9),
                ):
                    await reply.resume({request.id: Approve() for request in reply.approvals})
                    assert reply.text == "done"
    assert [tool["name"] for tool in wire.requests[1]["input"][0]["tools"]] == ["track"]
    assert other.results[0]["content"] == [{"type": "tool_reference", "tool_name": "track"}]
    assert (wire.refusals, other.refusals) == ([], [])


# ---- the servers are strict about it ---------------------------------------------------------------------------------

LOADED = {"type": "tool_search_output", "call_id": "call_1", "execution": "client", "status": "completed"}
FUNCTION = {"type": "function", "name": "track", "parameters": {"type": "object", "properties": {}}, "strict": False}
CLIENT_SEARCH = {"type": "tool_search", "execution": "client"}


@pytest.mark.parametrize(
    ("items", "tools", "said"),
    [
        ([searches(FINDS)], [CLIENT_SEARCH], "No tool output found for tool search call call_1."),
        ([LOADED | {"tools": []}], [CLIENT_SEARCH], "No tool call found for tool search output with call_id call_1."),
        (
            [calls("track", {}, 2), {"type": "function_call_output", "call_id": "call_2", "output": ""}],
            [CLIENT_SEARCH],
            "Tool 'track' was called before it was loaded.",
        ),
        (
            [searches(FINDS), LOADED | {"tools": [FUNCTION]}],
            [CLIENT_SEARCH, FUNCTION],
            "Tool names must be unique: 'track' was loaded before.",
        ),
        ([searches(FINDS), LOADED | {"tools": []}], [], "A tool_search_output needs the tool_search tool in tools."),
        ([], [FUNCTION | {"defer_loading": True}], "Deferred tools need the tool_search tool."),
    ],
)
def test_the_server_refuses_searches_that_do_not_fit(items: Any, tools: Any, said: str) -> None:
    with pytest.raises(responses.Refused) as caught:
        responses.Wire(turns=[[says("hi")]]).respond(
            {"model": "m", "input": [{"role": "user", "content": "?"}, *items], "tools": tools}
        )
    assert str(caught.value) == said


def refers(name: str) -> list[Any]:
    content = [{"type": "tool_reference", "tool_name": name}]
    return [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": content}]}]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda given: given["tools"].pop(0),
            "All tools have defer_loading set. At least one tool must be non-deferred.",
        ),
        (
            lambda given: given["messages"].extend(refers("x")),
            "Tool reference 'x' has no corresponding tool definition",
        ),
        (
            lambda given: (
                given["messages"][1]["content"].append(messages.call("track", {}, "toolu_2"))
                or given["messages"].extend(refers("track"))
                or given["messages"][2]["content"].append({"type": "tool_result", "tool_use_id": "toolu_2"})
            ),
            "tool_use: track was called before a search has loaded it",
        ),
    ],
)
def test_the_other_server_refuses_references_that_do_not_fit(change: Callable[[Any], Any], said: str) -> None:
    schema = {"input_schema": {"type": "object"}}
    given: Any = {
        "model": "m",
        "max_tokens": 9,
        "tools": [{"name": "find", **schema}, {"name": "track", **schema, "defer_loading": True}],
        "messages": [
            {"role": "user", "content": "?"},
            {"role": "assistant", "content": [messages.call("find", FINDS)]},
        ],
    }
    change(given)
    with pytest.raises(messages.Refused) as caught:
        messages.Wire(turns=[[messages.text("hi")]]).answer(given)
    assert str(caught.value) == said
