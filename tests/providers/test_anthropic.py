"""Agent loops over the Messages API: a model writes programs, they run here. Real clients against a strict server."""

from __future__ import annotations

import copy
import json
from typing import Any

import anyio
import pytest
from anthropic import Anthropic, AsyncAnthropic

from bridge import Approve, ConfigurationError, Executor, Policy, StateError, Tool, anthropic, ask
from sandbox import Limits, Sandbox
from tests.bridge.scripted import Tools
from tests.providers.anthropic_shop import HELLO, WRITE, WROTE, client, said, talk, tools, wire
from tests.providers.anthropic_wire import Wire, call, program, text

__all__ = ["client", "tools", "wire"]

pytestmark = pytest.mark.anyio

NOT_OURS = (
    "tools= is for the vendor's own tools, and 'mine' is a function: give it to the executor, as Tool(name=...) if the "
    "application answers it"
)


# ---- what is offered -------------------------------------------------------------------------------------------------


async def test_the_code_tool_is_offered_alone_with_the_declarations(
    wire: Wire, client: AsyncAnthropic, tools: Tools, opened: Sandbox
) -> None:
    wire.play([text("hi")])
    async with Executor(tools.all(), sandbox=opened) as executor:
        conversation = await talk(client, executor, system="be brief", metadata={"user_id": "u"})
        [tool] = wire.tools
        assert tool["name"] == "run_program"
        assert tool["description"].endswith(executor.instructions())
    assert list(tool["input_schema"]["properties"]) == ["program"]
    assert wire.requests[0]["system"] == "be brief"
    assert (conversation.status, conversation.text, conversation.runs) == ("finished", "hi", [])


async def test_direct_tools_come_after_it_under_names_that_the_vendor_takes(
    wire: Wire, client: AsyncAnthropic, opened: Sandbox
) -> None:
    async def handler(arguments: Any) -> Any:
        return arguments

    long = "n" * 100
    either = {"oneOf": [{"properties": {name: {"type": "string"}}, "required": [name]} for name in "ab"]}
    given = [
        Tool(name="run_program", handler=handler),
        Tool(name="a.b", server="s", handler=handler),
        Tool(name="a b", server="s", handler=handler),
        Tool(name=long, handler=handler),
        Tool(name="number", input_schema={"type": "integer"}, handler=handler),
        Tool(name="either", input_schema={"type": "object", **either}, handler=handler),
        Tool(name="odd", input_schema={"type": "object", "properties": {"$x y": {}, "z": {}}}, handler=handler),
        Tool(name="later", defer=True, handler=handler),
        Tool(name="programs_only", callers={"programmatic"}, handler=handler),
    ]
    wire.play([call("number", {"value": 7})], [call("either", {"a": "x"}, "toolu_2")], [text("ok")])
    async with Executor(given, sandbox=opened) as executor:
        await talk(client, executor, direct=True)
    names = [tool["name"] for tool in wire.tools]
    assert names[0] == "run_program"
    assert len(set(names)) == len(names) == 9
    assert names[6:] == ["number", "either", "odd"]
    assert all(len(name) <= 64 for name in names)
    by_name = {tool["name"]: tool for tool in wire.tools}
    assert list(by_name["either"]["input_schema"]["properties"]) == ["a", "b"]
    assert json.dumps(either["oneOf"], separators=(",", ":")) in by_name["either"]["description"]
    assert list(by_name["odd"]["input_schema"]["properties"]) == ["z"]
    assert '"$x y"' in by_name["odd"]["description"]
    results = [block["content"] for m in wire.requests[-1]["messages"][2::2] for block in m["content"]]
    assert results == ["7", '{"a":"x"}']


async def test_direct_takes_patterns_and_a_name_that_fits_nothing_is_an_error(
    wire: Wire, client: AsyncAnthropic, tools: Tools, opened: Sandbox
) -> None:
    wire.play([text("hi")])
    async with Executor(tools.all(), sandbox=opened) as executor:
        await talk(client, executor, direct=["re*"])
        with pytest.raises(ConfigurationError) as refused:
            await talk(client, executor, direct=["wriet"])
    assert [tool["name"] for tool in wire.tools] == ["run_program", "refuse", "read"]
    there = ", ".join(tool.name for tool in tools.all())
    assert str(refused.value) == f"direct='wriet' fits no tool that has this caller; those: {there}"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"turns": 0}, "turns must be a whole number from 1 on, not 0"),
        (
            {"tools": [{"name": "mine", "input_schema": {"type": "object"}}]},
            NOT_OURS,
        ),
        (
            {"tools": [{"type": "bash_20250124", "name": "bash"}]},
            "a loop cannot answer calls of 'bash' (bash_20250124): the application carries them out",
        ),
        ({"max_tokens": None, "model": None}, ""),
        (
            {"hosted": True, "tool_choice": {"type": "any"}},
            "tool_choice cannot force a tool with hosted=True: the API refuses that",
        ),
        (
            {"hosted": True, "tool_choice": {"type": "auto", "disable_parallel_tool_use": True}},
            "disable_parallel_tool_use cannot be set with hosted=True: the API refuses that",
        ),
        ({"name": "run program"}, "the code tool cannot be named 'run program': 1 to 64 letters, digits, _ and -"),
    ],
)
async def test_options_that_cannot_be_meant_stop_before_anything_is_sent(
    client: AsyncAnthropic, tools: Tools, opened: Sandbox, options: dict[str, Any], message: str
) -> None:
    given = {"model": "m", "max_tokens": 10, "messages": HELLO, **options}
    given = {key: value for key, value in given.items() if value is not None}
    async with Executor(tools.all(), sandbox=opened) as executor:
        with pytest.raises(ConfigurationError) as refused:
            await anthropic.run(client, executor, **given)
    assert str(refused.value) == (message or "model= is missing: every request of the Messages API needs it")


# ---- programs --------------------------------------------------------------------------------------------------------


async def test_a_program_runs_and_its_text_goes_back(
    wire: Wire, client: AsyncAnthropic, tools: Tools, opened: Sandbox, stream: bool
) -> None:
    thought = {"type": "thinking", "thinking": "let me see", "signature": "c2lnbmVk"}
    wire.play([thought, text("One moment."), program(WRITE)], [text("Written.")])
    given = copy.deepcopy(HELLO)
    async with Executor(tools.all(), sandbox=opened) as executor:
        conversation = await talk(client, executor, messages=given, stream=stream)
    assert given == HELLO  # what the application gave is its own
    assert (conversation.text, conversation.turns, conversation.status) == ("Written.", 2, "finished")
    assert wire.results == [{"type": "tool_result", "tool_use_id": "toolu_1", "content": WROTE}]
    assert [run.status for run in conversation.runs] == ["finished"]
    assert [result.value for result in conversation.results] == [{"wrote": {"n": 1}}]
    roles = [message["role"] for message in conversation.messages]
    assert roles == ["user", "assistant", "user", "assistant"]
    assert conversation.messages[1]["content"][0] == thought


async def test_a_synchronous_client_works_in_the_loop_and_without_one(wire: Wire, tools: Tools) -> None:
    heard: list[str] = []
    wire.play([program(WRITE)], [text("a")], [program(WRITE, "toolu_2")], [text("b")], [program(WRITE, "toolu_3")])
    wire.play([text("c")])
    given = {"model": "m", "max_tokens": 10, "messages": HELLO}

    def without_a_loop() -> str:
        with (
            Executor(tools.all(), policy=Policy([ask("write")])) as executor,
            Anthropic(api_key="none", base_url=wire.base_url, max_retries=0) as client,
        ):
            conversation = anthropic.run_sync(client, executor, **given)
            verdicts = {request.id: Approve() for request in conversation.approvals}
            return executor.call_sync(conversation.resume, verdicts).text

    with Anthropic(api_key="none", base_url=wire.base_url, max_retries=0) as client:
        async with Executor(tools.all()) as executor:
            whole = await anthropic.run(client, executor, **given)
            streamed = await anthropic.run(client, executor, on_event=lambda event: heard.append(event.type), **given)
    assert (whole.text, streamed.text) == ("a", "b")
    assert heard.count("message_stop") == 2
    assert await anyio.to_thread.run_sync(without_a_loop) == "c"


async def test_events_of_the_stream_come_as_they_are(
    wire: Wire, client: AsyncAnthropic, tools: Tools, opened: Sandbox
) -> None:
    said: list[str] = []

    async def hear(event: Any) -> None:
        if event.type == "text":
            said.append(event.text)

    wire.play([text("ab"), program(WRITE)], [text("cd")])
    async with Executor(tools.all(), sandbox=opened) as executor:
        await talk(client, executor, on_event=hear)
    assert said == ["a", "b", "c", "d"]


async def test_parallel_calls_are_answered_together_in_their_order(
    wire: Wire, client: AsyncAnthropic, tools: Tools, opened: Sandbox
) -> None:
    tools.go.set()
    wire.play(
        [
            program("return await tools.gate({ n: 1 })", "toolu_1"),
            call("write", {"n": 2}, "toolu_2"),
            program("throw new Error('no')", "toolu_3"),
            call("refuse", {}, "toolu_4"),
        ],
        [text("done")],
    )
    async with Executor(tools.all(), sandbox=opened) as executor:
        conversation = await talk(client, executor, direct=["write", "refuse"])
    assert [block["tool_use_id"] for block in wire.results] == ["toolu_1", "toolu_2", "toolu_3", "toolu_4"]
    assert [block.get("is_error", False) for block in wire.results] == [False, False, True, True]
    assert wire.results[1]["content"] == '{"wrote":{"n":2}}'
    said = '[sandbridge] error EMPTY: nothing there\n{"left":0} (the same call may succeed later)'
    assert wire.results[3]["content"] == said
    assert len(conversation.runs) == 3  # two programs, and the direct calls together


async def test_several_programs_and_questions_make_one_conversation(
    wire: Wire, client: AsyncAnthropic, tools: Tools, opened: Sandbox
) -> None:
    wire.play([program(WRITE)], [program("return 2", "toolu_2")], [text("first")])
    wire.play([program("return 3", "toolu_3")], [text("second")])
    async with Executor(tools.all(), sandbox=opened) as executor:
        conversation = await talk(client, executor)
        await conversation.say("and now?")
        with pytest.raises(StateError) as refused:
            await conversation.go()
    assert (conversation.text, conversation.turns) == ("second", 5)
    assert [result.value for result in conversation.results] == [{"wrote": {"n": 1}}, 2, 3]
    assert [tuple(request["tools"][0]["description"]) for request in wire.requests] == [
        tuple(wire.tools[0]["description"])
    ] * 5
    assert str(refused.value) == "the conversation is finished: say(...) begins the next question"


@pytest.mark.parametrize(
    ("code", "first_line"),
    [
        ("const a = ;", "[sandbridge] failed"),
        ("throw new Error('no luck')", "[sandbridge] failed"),
        ("return await tools.refuse({})", "[sandbridge] failed; 1 call (1 failed)"),
        ("for (;;);", "[sandbridge] exceeded cpu_s"),
        ("for (;;) await tools.write({})", "[sandbridge] exceeded calls; 4 calls (1 not started)"),
        ("await new Promise(() => {})", "[sandbridge] stalled"),
        ("return await tools.nothing_like_it({})", "[sandbridge] failed"),
    ],
)
async def test_a_program_that_fails_is_a_result_and_the_conversation_goes_on(
    wire: Wire, client: AsyncAnthropic, tools: Tools, opened: Sandbox, code: str, first_line: str
) -> None:
    wire.play([program(code)], [program(WRITE, "toolu_2")], [text("mended")])
    async with Executor(tools.all(), sandbox=opened) as executor:
        conversation = await talk(client, executor, limits=Limits(cpu_s=0.2, calls=3))
    [failed] = wire.requests[1]["messages"][-1]["content"]
    assert failed["is_error"] is True
    assert failed["content"].split("\n")[0] == first_line
    assert conversation.text == "mended"


async def test_a_crash_of_the_engine_is_a_result(
    wire: Wire, client: AsyncAnthropic, tools: Tools, opened: Sandbox
) -> None:
    wire.play([program("const held = []; for (;;) held.push('x'.repeat(1 << 20) + held.length)")], [text("sorry")])
    async with Executor(tools.all(), sandbox=opened) as executor:
        conversation = await talk(client, executor, limits=Limits(memory_bytes=16 << 20))
    assert wire.results[0]["is_error"] is True
    assert conversation.results[0].status in ("exceeded", "crashed")
    assert conversation.text == "sorry"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, 'run_program takes {"program": "<JavaScript text>"}, not {}: send the whole program'),
        ({"program": 7}, 'run_program takes {"program": "<JavaScript text>"}, not {…}: send the whole program'),
        (["return 1"], 'run_program takes {"program": "<JavaScript text>"}, not […]: send the whole program'),
    ],
)
async def test_arguments_without_a_program_are_told_in_words(
    client: AsyncAnthropic, tools: Tools, opened: Sandbox, given: Any, message: str
) -> None:
    async with Executor(tools.all(), sandbox=opened) as executor:
        turn = await anthropic.handle(said({**program(""), "input": given}), executor)
    [result] = turn.messages[1]["content"]
    assert result["content"] == f"[sandbridge] error invalid_arguments: {message}"
    assert result["is_error"] is True


@pytest.mark.parametrize("given", [{"code": "return 5"}, {"program": ["const a = 5", "return a"]}, "return 5"])
async def test_programs_are_found_where_models_put_them(tools: Tools, opened: Sandbox, given: Any) -> None:
    given = json.dumps(given) if isinstance(given, str) else given
    async with Executor(tools.all(), sandbox=opened) as executor:
        turn = await anthropic.handle(said({**program(""), "input": given}), executor)
    assert turn.messages[1]["content"][0]["content"] == "[sandbridge] completed\n5"


async def test_a_tool_that_is_not_offered_is_refused_with_what_to_do(
    wire: Wire, client: AsyncAnthropic, tools: Tools, opened: Sandbox
) -> None:
    wire.play([call("write", {"n": 1}, "toolu_1"), call("wriet", {}, "toolu_2")], [text("ok")])
    async with Executor(tools.all(), sandbox=opened) as executor:
        await talk(client, executor)
    denied, unknown = (block["content"] for block in wire.results)
    assert denied == (
        "[sandbridge] error denied: write is not to be called by itself: write a program that calls it, and give it to "
        "run_program"
    )
    assert unknown == (
        "[sandbridge] error unknown_tool: there is no tool 'wriet' to call by itself; there is: run_program"
    )
    assert tools.reached == []


async def test_a_call_that_claims_a_program_as_its_caller_is_refused(tools: Tools, opened: Sandbox) -> None:
    async with Executor(tools.all(), sandbox=opened) as executor:
        offer = anthropic.Offer(executor, direct=True)
        turn = await offer.handle(said(call("write", {"n": 1}, parent="srvtoolu_9")))
    assert turn.messages[1]["content"][0]["content"] == (
        "[sandbridge] error denied: the call says that the program 'srvtoolu_9' made it, and no such program is running"
    )
    assert tools.reached == []


async def test_a_large_value_is_cut_once_and_says_so_in_the_first_lines(
    wire: Wire, client: AsyncAnthropic, tools: Tools, opened: Sandbox
) -> None:
    wire.play(
        [program("return Array.from({ length: 5000 }, (_, i) => i)", "toolu_1"), call("big", {"n": 90_000}, "toolu_2")]
    )
    wire.play([text("ok")])
    async with Executor(tools.all(), sandbox=opened) as executor:
        await talk(client, executor, direct=True, limits=Limits(output_bytes=4096))
    for block in wire.results:
        assert len(block["content"].encode()) <= 4096
    program_text, direct_text = (block["content"].split("\n") for block in wire.results)
    assert program_text[0] == "[sandbridge] completed, truncated"
    assert program_text[1].startswith("[sandbridge] truncated: the whole is ")
    assert direct_text[0].startswith("[sandbridge] truncated: the whole is ")


PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


async def test_pictures_come_after_the_text_and_what_is_none_is_left_out_in_words(
    wire: Wire, client: AsyncAnthropic, tools: Tools, opened: Sandbox
) -> None:
    code = f"""
image({{ data: "{PIXEL}", mimeType: "image/webp" }});
image({{ data: "bm8gcGljdHVyZQ==", mimeType: "image/png" }});
image({{ data: "{PIXEL[:20]}?", mimeType: "image/png" }});
return 1;
"""
    wire.play([program(code)], [text("nice")])
    async with Executor(tools.all(), sandbox=opened) as executor:
        conversation = await talk(client, executor)
    assert [len(result.images) for result in conversation.results] == [3]
    said, picture = wire.results[0]["content"]
    assert said["text"].split("\n")[-2:] == [
        "[sandbridge] picture 2 was left out: it is no PNG, JPEG, GIF or WebP",
        "[sandbridge] picture 3 was left out: its data is no base64 text",
    ]
    assert picture == {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}
