"""Agent loops over the Messages API: a model writes programs, they run here. Real clients against a strict server."""

from __future__ import annotations

import copy
import json
from collections.abc import AsyncGenerator, Generator
from typing import Any

import anthropic as sdk
import anyio
import pytest
from anthropic import Anthropic, AsyncAnthropic

from bridge import (
    Approve,
    ConfigurationError,
    Deny,
    Edit,
    Executor,
    Policy,
    StateError,
    Tool,
    ToolError,
    anthropic,
    ask,
)
from bridge import deny as forbid
from sandbox import Limits, Sandbox
from tests.bridge.scripted import Tools
from tests.providers.anthropic_wire import Block, Turn, Wire, call, program, serving, text

pytestmark = pytest.mark.anyio

HELLO: list[Block] = [{"role": "user", "content": "hello"}]
WRITE = "return await tools.write({ n: 1 })"
NOT_OURS = (
    "tools= is for the vendor's own tools, and 'mine' is a function: give it to the executor, as Tool(name=...) if the "
    "application answers it"
)
WROTE = '[sandbridge] completed; 1 call\n{"wrote":{"n":1}}'


@pytest.fixture
def tools() -> Tools:
    return Tools()


@pytest.fixture
def wire() -> Generator[Wire]:
    with serving() as wire:
        yield wire
    assert wire.refusals == []  # whatever a test does, nothing is sent that the vendor would refuse


@pytest.fixture
async def client(wire: Wire) -> AsyncGenerator[AsyncAnthropic]:
    async with AsyncAnthropic(api_key="none", base_url=wire.base_url, max_retries=0) as client:
        yield client


@pytest.fixture(params=[False, True], ids=["whole", "streamed"])
def stream(request: pytest.FixtureRequest) -> bool:
    return request.param


async def talk(client: Any, executor: Executor, **options: Any) -> anthropic.Conversation:
    given = {"model": "some-model", "max_tokens": 1000, "messages": HELLO, **options}
    return await anthropic.run(client, executor, **given)


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


# ---- policy, people --------------------------------------------------------------------------------------------------


async def test_a_denied_call_is_paired_and_nothing_is_sent(
    wire: Wire, client: AsyncAnthropic, tools: Tools, opened: Sandbox
) -> None:
    wire.play([program(WRITE, "toolu_1"), call("write", {"n": 2}, "toolu_2")], [text("understood")])
    async with Executor(tools.all(), sandbox=opened, policy=Policy([forbid("write")])) as executor:
        conversation = await talk(client, executor, direct=True)
    assert tools.reached == []
    assert [result.error and result.error.code for result in conversation.results] == ["denied", "denied"]
    assert wire.results[1]["content"] == '[sandbridge] error denied: write was denied: rule deny "write"'


async def test_rules_for_one_caller_hold_for_that_caller_only(
    wire: Wire, client: AsyncAnthropic, tools: Tools, opened: Sandbox
) -> None:
    wire.play([program(WRITE, "toolu_1"), call("write", {"n": 2}, "toolu_2")], [text("ok")])
    async with Executor(tools.all(), sandbox=opened, policy=Policy([forbid("write", caller="direct")])) as executor:
        await talk(client, executor, direct=True)
    assert tools.reached == [{"n": 1}]


async def test_the_approver_is_asked_about_direct_calls_together_and_about_programs(
    wire: Wire, client: AsyncAnthropic, tools: Tools, opened: Sandbox
) -> None:
    asked: list[list[Any]] = []

    async def approver(requests: list[Any]) -> dict[str, Any]:
        asked.append([request.arguments for request in requests])
        return {request.id: Edit({"n": 9}) if request.arguments["n"] == 2 else Approve() for request in requests}

    wire.play([call("write", {"n": 1}, "toolu_1"), call("write", {"n": 2}, "toolu_2")], [text("ok")])
    policy = Policy([ask("write")])
    async with Executor(tools.all(), sandbox=opened, policy=policy, approver=approver) as executor:
        await talk(client, executor, direct=True)
    assert asked == [[{"n": 1}, {"n": 2}]]
    assert [block["content"] for block in wire.results] == ['{"wrote":{"n":1}}', '{"wrote":{"n":9}}']


async def test_without_an_approver_the_conversation_pauses_and_goes_on(
    wire: Wire, client: AsyncAnthropic, tools: Tools, opened: Sandbox, stream: bool
) -> None:
    wire.play(
        [
            program("return [await tools.write({ n: 1 }), await tools.person({ n: 2 })]", "toolu_1"),
            call("write", {"n": 3}, "toolu_2"),
            program("return 4", "toolu_3"),
        ],
        [text("done")],
    )
    async with Executor(tools.all(), sandbox=opened, policy=Policy([ask("write")])) as executor:
        conversation = await talk(client, executor, direct=["write"], stream=stream)
        assert conversation.status == "paused"
        assert conversation.messages == HELLO
        assert [request.arguments for request in conversation.approvals] == [{"n": 1}, {"n": 3}]
        first, second = conversation.approvals
        await conversation.resume({first.id: Approve()})  # a partial answer
        assert [pending.arguments for pending in conversation.pending] == [{"n": 2}]
        with pytest.raises(StateError) as refused:
            await conversation.resume({"nothing": Approve()})
        assert conversation.status == "paused"
        await conversation.resume({conversation.pending[0].id: "Ada", second.id: Deny("not now")})
    assert str(refused.value).startswith("call nothing does not wait in this step; waiting: ")
    assert (conversation.status, conversation.text) == ("finished", "done")
    assert [block["content"] for block in wire.results] == [
        '[sandbridge] completed; 2 calls (1 answered)\n[{"wrote":{"n":1}},"Ada"]'.replace(" (1 answered)", ""),
        "[sandbridge] error denied: write was denied: not now",
        "[sandbridge] completed\n4",
    ]
    assert tools.reached == [{"n": 1}]


async def test_giving_up_a_pause_leaves_a_transcript_that_can_be_continued(
    wire: Wire, client: AsyncAnthropic, tools: Tools, opened: Sandbox
) -> None:
    wire.play([program(WRITE, "toolu_1"), call("person", {"n": 1}, "toolu_2")], [text("then not")])
    async with Executor(tools.all(), sandbox=opened, policy=Policy([ask("write")])) as executor:
        conversation = await talk(client, executor, direct=True)
        with pytest.raises(StateError) as refused:
            await conversation.say("hello?")
        await conversation.cancel()
        assert len(wire.requests) == 1
        await conversation.say("forget it")
    assert str(refused.value) == "the conversation is paused: resume or cancel it first"
    first, second = (block["content"] for block in wire.requests[1]["messages"][2]["content"])
    assert first.split("\n")[0] == "[sandbridge] cancelled; 1 call (1 not started)"
    assert second == "[sandbridge] error cancelled: the run was cancelled"
    assert (conversation.text, tools.reached) == ("then not", [])


async def test_what_nobody_answers_in_time_expires_and_the_conversation_can_go_on(
    wire: Wire, client: AsyncAnthropic, tools: Tools, opened: Sandbox
) -> None:
    wire.play([call("person", {"n": 1})], [text("too late")])
    async with Executor(tools.all(), sandbox=opened) as executor:
        conversation = await talk(client, executor, direct=True, limits=Limits(expires_s=0.05))
        [run] = conversation.runs
        with anyio.fail_after(10):
            async for _ in run.events():
                pass
        assert conversation.pending == []
        await conversation.resume({})
    assert conversation.text == "too late"
    assert wire.results[0]["content"] == "[sandbridge] error expired: nobody answered person within 0.05 s (expires_s)"


async def test_a_program_that_goes_on_after_an_expiry_is_waited_for(
    wire: Wire, client: AsyncAnthropic, tools: Tools, opened: Sandbox
) -> None:
    code = "try { await tools.person({ n: 1 }) } catch { return await tools.gate({ n: 2 }) }"
    wire.play([program(code)], [text("done")])
    async with Executor(tools.all(), sandbox=opened) as executor:
        conversation = await talk(client, executor, limits=Limits(expires_s=0.05))
        with anyio.fail_after(10):
            await tools.began.wait()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(conversation.resume, {})
                tools.go.set()
    assert conversation.text == "done"
    assert wire.results[0]["content"].split("\n")[1] == '{"n":2}'


# ---- how a loop ends -------------------------------------------------------------------------------------------------


async def test_the_bound_on_requests_ends_the_loop_with_a_sound_transcript(
    wire: Wire, client: AsyncAnthropic, tools: Tools, opened: Sandbox
) -> None:
    wire.play([program(WRITE)], [program("return await tools.write({ n: 2 })", "toolu_2")], [text("at last")])
    async with Executor(tools.all(), sandbox=opened) as executor:
        with pytest.raises(anthropic.TurnsExceeded) as ended:
            await talk(client, executor, turns=2)
        conversation = ended.value.reply
        assert str(ended.value) == "the model still called tools after 2 requests (turns=2)"
        assert tools.reached == [{"n": 1}]  # what nobody would read the result of is not done
        await conversation.say("finish, please")
    assert conversation.text == "at last"
    [last, _] = wire.requests[-1]["messages"][4:]
    assert last["content"][0]["content"] == (
        "[sandbridge] error limit: not carried out: the bound of 2 requests was reached"
    )


async def test_the_same_failure_three_times_ends_the_loop_with_what_was_tried(
    wire: Wire, client: AsyncAnthropic, tools: Tools, opened: Sandbox
) -> None:
    wire.play(*([program(f"throw new Error('no {n}')", f"toolu_{n}")] for n in range(5)))
    async with Executor(tools.all(), sandbox=opened) as executor:
        with pytest.raises(anthropic.RepeatedFailure) as ended:
            await talk(client, executor)
    assert len(wire.requests) == 3
    first, one, *_ = str(ended.value).split("\n")
    assert first == "the model failed 3 times in the same way:"
    assert one == "1. [sandbridge] failed"
    assert "Error: no 2" in str(ended.value)
    assert len(ended.value.reply.messages) == 7


async def test_different_failures_and_successes_between_do_not_end_it(
    wire: Wire, client: AsyncAnthropic, tools: Tools, opened: Sandbox
) -> None:
    for n, code in enumerate(["throw 1", "throw 'b'", WRITE, "throw 1", "throw 1", WRITE, "throw 1"]):
        wire.play([program(code, f"toolu_{n}")])
    wire.play([text("done")])
    async with Executor(tools.all(), sandbox=opened) as executor:
        assert (await talk(client, executor)).text == "done"


async def test_a_call_that_was_cut_off_is_not_made_and_the_model_is_told(
    wire: Wire, client: AsyncAnthropic, tools: Tools, opened: Sandbox, stream: bool
) -> None:
    cut = {**program("return await tools.write({ n: 1 })"), "input": {"program": "return await tools.wri"}}
    before = program(WRITE, "toolu_0")
    wire.play(Turn([before, cut], "max_tokens", input_text={"toolu_1": '{"program": "return await tools.wri'}))
    wire.play([text("shorter")])
    async with Executor(tools.all(), sandbox=opened) as executor:
        conversation = await talk(client, executor, stream=stream)
    said = (
        "not carried out: the response was cut off before its end (max_tokens); send the call again, whole and shorter"
    )
    assert [block["content"] for block in wire.results] == [f"[sandbridge] error limit: {said}"] * 2
    assert (conversation.text, tools.reached) == ("shorter", [])


@pytest.mark.parametrize(
    "reason", ["max_tokens", "stop_sequence", "end_turn", "refusal", "model_context_window_exceeded"]
)
async def test_a_response_without_calls_is_final_whatever_ended_it(
    wire: Wire, client: AsyncAnthropic, tools: Tools, opened: Sandbox, reason: str
) -> None:
    wire.play(Turn([text("so far")], reason))
    async with Executor(tools.all(), sandbox=opened) as executor:
        conversation = await talk(client, executor)
    assert conversation.message is not None
    assert (conversation.status, conversation.message.stop_reason) == ("finished", reason)


@pytest.mark.parametrize("reason", ["refusal", "model_context_window_exceeded"])
async def test_calls_of_a_response_that_was_ended_are_paired_but_not_made(
    wire: Wire, client: AsyncAnthropic, tools: Tools, opened: Sandbox, reason: str
) -> None:
    wire.play(Turn([program(WRITE)], reason), [text("again")])
    async with Executor(tools.all(), sandbox=opened) as executor:
        conversation = await talk(client, executor)
        assert (conversation.status, tools.reached, len(wire.requests)) == ("finished", [], 1)
        await conversation.say("try something else")  # the server takes the transcript
    assert conversation.text == "again"


async def test_a_paused_turn_is_sent_back_as_it_is(
    wire: Wire, client: AsyncAnthropic, tools: Tools, opened: Sandbox
) -> None:
    search = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}}
    wire.play(Turn([text("searching"), search], "pause_turn"), [text("found")])
    async with Executor(tools.all(), sandbox=opened) as executor:
        web = {"type": "web_search_20250305", "name": "web_search"}
        conversation = await talk(client, executor, tools=[web])
    assert [message["role"] for message in wire.requests[1]["messages"]] == ["user", "assistant"]
    assert wire.requests[1]["messages"][1]["content"] == [text("searching"), search]
    assert [tool["name"] for tool in wire.tools] == ["run_program", "web_search"]
    assert conversation.text == "found"


async def test_calls_are_answered_whatever_the_stop_reason_says(
    wire: Wire, client: AsyncAnthropic, tools: Tools, opened: Sandbox
) -> None:
    wire.play(Turn([program(WRITE)], "end_turn"), [text("done")])  # some services of this wire say so
    async with Executor(tools.all(), sandbox=opened) as executor:
        assert (await talk(client, executor)).text == "done"
    assert tools.reached == [{"n": 1}]


async def test_an_empty_response_is_final_and_adds_nothing(
    wire: Wire, client: AsyncAnthropic, tools: Tools, opened: Sandbox
) -> None:
    wire.play([program(WRITE)], [], [text("yes?")])
    async with Executor(tools.all(), sandbox=opened) as executor:
        conversation = await talk(client, executor)
        assert (conversation.status, conversation.text) == ("finished", "")
        await conversation.say("well?")
    assert conversation.text == "yes?"


async def test_a_tool_is_forced_in_the_first_request_only(
    wire: Wire, client: AsyncAnthropic, tools: Tools, opened: Sandbox
) -> None:
    wire.play([program(WRITE)], [text("done")])
    choice = {"type": "tool", "name": "run_program", "disable_parallel_tool_use": True}
    async with Executor(tools.all(), sandbox=opened) as executor:
        await talk(client, executor, tool_choice=choice)
    assert [request["tool_choice"] for request in wire.requests] == [
        choice,
        {"type": "auto", "disable_parallel_tool_use": True},
    ]


async def test_a_request_that_failed_is_sent_again_and_nothing_is_run_twice(
    wire: Wire, client: AsyncAnthropic, tools: Tools, opened: Sandbox
) -> None:
    wire.play([program(WRITE)], [text("done")])
    async with Executor(tools.all(), sandbox=opened) as executor:
        offer = anthropic.Offer(executor)
        conversation = anthropic.Conversation(client, offer, HELLO, model="m", max_tokens=10)

        def fails_once(event: Any) -> None:
            if not wire.failures and len(wire.requests) == 1:
                wire.failures.append(529)

        conversation = anthropic.Conversation(client, offer, HELLO, model="m", max_tokens=10, on_event=fails_once)
        with pytest.raises(sdk.APIStatusError) as failed:
            await conversation.go()
        await conversation.go()
    assert failed.value.status_code == 529
    assert (conversation.text, tools.reached) == ("done", [{"n": 1}])


async def test_a_fault_of_the_operator_is_raised_and_not_told_to_the_model(
    wire: Wire, client: AsyncAnthropic, tools: Tools
) -> None:
    wire.play([program(WRITE)])
    executor = Executor(tools.all())
    with pytest.raises(StateError) as refused:
        await talk(client, executor)
    assert str(refused.value) == "enter the executor first: `async with Executor(...) as executor`"


async def test_cancelling_the_loop_cancels_its_runs(
    wire: Wire, client: AsyncAnthropic, tools: Tools, opened: Sandbox
) -> None:
    wire.play([program("await tools.hang({})", "toolu_1"), program("await tools.hang({})", "toolu_2")])
    async with Executor(tools.all(), sandbox=opened) as executor, anyio.create_task_group() as tasks:
        tasks.start_soon(talk, client, executor)
        await tools.began.wait()
        tasks.cancel_scope.cancel()
    assert tools.cancelled >= 1


# ---- the single step -------------------------------------------------------------------------------------------------


def said(*content: Block, stop: str = "tool_use") -> Block:
    """A response as plain data."""
    return {"role": "assistant", "content": list(content), "stop_reason": stop}


async def test_the_single_step_fits_into_a_loop_of_ones_own(
    wire: Wire, client: AsyncAnthropic, tools: Tools, opened: Sandbox
) -> None:
    wire.play([program(WRITE)], [text("done")])
    messages: list[Any] = list(HELLO)
    async with Executor(tools.all(), sandbox=opened) as executor:
        offer = anthropic.Offer(executor)
        while True:
            response = await client.messages.create(
                model="m",
                max_tokens=10,
                messages=messages,
                tools=offer.tools,
            )
            turn = await offer.handle(response)
            messages += turn.messages
            if turn.final:
                break
    assert [message["role"] for message in messages] == ["user", "assistant", "user", "assistant"]
    assert wire.results[0]["content"] == WROTE


async def test_a_paused_step_has_no_messages_until_it_is_resumed(tools: Tools, opened: Sandbox) -> None:
    async with Executor(tools.all(), sandbox=opened, policy=Policy([ask("write")])) as executor:
        turn = await anthropic.handle(said(program(WRITE)), executor)
        with pytest.raises(StateError) as refused:
            _ = turn.messages
        await turn.resume({turn.approvals[0].id: ToolError("BUSY", "try again")})
        with pytest.raises(StateError) as over:
            await turn.resume({})
    assert str(refused.value) == "the step is paused: resume it with verdicts and answers, or cancel it"
    assert str(over.value) == "nothing of this step waits: only a paused step can be resumed"
    assert turn.results[0].error is not None
    assert turn.results[0].error.message.startswith("try again")


async def test_fields_that_nobody_knows_go_back_as_they_came(tools: Tools, opened: Sandbox) -> None:
    odd = {**program("return 1"), "citations": None, "brand_new": {"deep": [None, 1]}}
    async with Executor(tools.all(), sandbox=opened) as executor:
        turn = await anthropic.handle(said({"type": "unheard_of", "x": 1}, odd), executor)
    assert turn.messages[0]["content"] == [
        {"type": "unheard_of", "x": 1},
        {**program("return 1"), "brand_new": {"deep": [None, 1]}},
    ]


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
