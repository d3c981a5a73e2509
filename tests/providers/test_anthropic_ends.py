"""How a loop over the Messages API ends, and what is sent again after a response that is cut off, paused or empty."""

from __future__ import annotations

from typing import Any

import anthropic as sdk
import anyio
import pytest
from anthropic import AsyncAnthropic

from bridge import Executor, StateError, anthropic
from sandbox import Sandbox
from tests.bridge.scripted import Tools
from tests.providers.anthropic_shop import HELLO, WRITE, client, talk, tools, wire
from tests.providers.anthropic_wire import Turn, Wire, program, text

__all__ = ["client", "tools", "wire"]

pytestmark = pytest.mark.anyio


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
