"""Tools of the application in a loop of its own: their calls are `left` to it, alike over the three wires."""

from __future__ import annotations

from typing import Any

import pytest
from anthropic import AsyncAnthropic
from anthropic.types import Message

from bridge import Policy, anthropic, ask, openai
from bridge.openai import chat
from sandbox import Sandbox
from tests.providers import anthropic_wire
from tests.providers.anthropic_wire import call, hosted_program, hosted_result, program, text
from tests.providers.openai_shop import ADD, ADDED, STREAMS, Tools, executor_of
from tests.providers.openai_wire import Turn, Wire, calls, chat_calls, chat_says, says

pytestmark = [pytest.mark.anyio, STREAMS]

HELLO: list[Any] = [{"role": "user", "content": "hi"}]
MINE: Any = {"name": "mine", "input_schema": {"type": "object", "properties": {}}}
NOT_BY_ITSELF = (
    "[sandbridge] error denied: add is not to be called by itself: write a program that calls it, and give it to "
    "run_program"
)
CLAUDE: dict[str, Any] = {"model": "m", "max_tokens": 9}


def own_results(turn: anthropic.Turn) -> list[dict[str, Any]]:
    return [{"type": "tool_result", "tool_use_id": each["id"], "content": "42"} for each in turn.left]


@pytest.mark.parametrize("stream", [False, True])
async def test_over_messages_the_application_answers_its_own_calls_beside_ours(
    messages_wire: anthropic_wire.Wire, claude: AsyncAnthropic, tools: Tools, opened: Sandbox, stream: bool
) -> None:
    messages_wire.play([call("mine", {}), program(ADD, "toolu_2"), call("mine", {}, "toolu_3")])
    messages_wire.play([call("mine", {}, "toolu_4")], [text("ok")])
    messages = list(HELLO)
    finals: list[bool] = []
    async with executor_of(tools, opened) as executor:
        offer = anthropic.Offer(executor)
        while not any(finals):
            given: Any = {"messages": messages, "tools": [*offer.tools, MINE], **CLAUDE}
            response: Message
            if stream:
                async with claude.messages.stream(**given) as events:
                    response = await events.get_final_message()
            else:
                response = await claude.messages.create(**given)
            turn = await offer.handle(response)
            messages += turn.messages
            if turn.left:
                messages[-1]["content"] += own_results(turn)
            finals.append(turn.final)
    assert finals == [False, False, True]
    sent = [message["content"] for message in messages_wire.requests[-1]["messages"] if message["role"] == "user"]
    assert [[block["content"] for block in content] for content in sent[1:]] == [[ADDED, "42", "42"], ["42"]]
    assert tools.reached == [{"a": 1, "b": 2}]


async def test_over_messages_what_is_left_is_known_while_the_rest_waits(tools: Tools, opened: Sandbox) -> None:
    said = {"stop_reason": "tool_use", "content": [program(ADD), call("mine", {}, "toolu_2")]}
    async with executor_of(tools, opened, policy=Policy([ask("add")])) as executor:
        turn = await anthropic.handle(said, executor)
        assert (turn.status, turn.final, [each["name"] for each in turn.left]) == ("paused", False, ["mine"])
        await turn.cancel()
    assert [block["tool_use_id"] for block in turn.messages[1]["content"]] == ["toolu_1"]


async def test_over_messages_a_program_of_the_vendors_calls_a_tool_of_the_application(
    messages_wire: anthropic_wire.Wire, claude: AsyncAnthropic, tools: Tools, opened: Sandbox
) -> None:
    version = "code_execution_20260120"
    parent = "srvtoolu_1"
    given = {"a": 1, "b": 2}
    messages_wire.play(
        [hosted_program("x"), call("mine", {}, parent=parent), call("add", given, "toolu_2", parent=parent)],
        [hosted_result("45"), text("ok")],
    )
    async with executor_of(tools, opened) as executor:
        offer = anthropic.Offer(executor, hosted=True)
        request: Any = {"tools": [*offer.tools, MINE | {"allowed_callers": [version]}], **CLAUDE}
        response = await claude.messages.create(messages=HELLO, **request)
        turn = await offer.handle(response)
        messages = [*HELLO, *turn.messages]
        messages[-1]["content"] += own_results(turn)
        assert response.container is not None
        response = await claude.messages.create(messages=messages, container=response.container.id, **request)
        turn = await offer.handle(response)
    assert (turn.final, turn.left, turn.content[-1]["text"]) == (True, [], "ok")
    assert [block["content"] for block in messages_wire.results] == ["3", "42"]


@pytest.mark.parametrize("stop", ["max_tokens", "refusal", "model_context_window_exceeded"])
async def test_over_messages_nothing_of_a_response_that_was_cut_off_is_left(
    tools: Tools, opened: Sandbox, stop: str
) -> None:
    said = {"stop_reason": stop, "content": [call("mine", {})]}
    async with executor_of(tools, opened) as executor:
        turn = await anthropic.handle(said, executor)
    [result] = turn.messages[1]["content"]
    assert (turn.left, result["is_error"], "not carried out" in result["content"]) == ([], True, True)


# ---- the same over the three ----------------------------------------------------------------------------------------


async def test_a_tool_of_the_executor_is_never_left_though_only_programs_may_call_it(
    wire: Wire, client: Any, tools: Tools, opened: Sandbox
) -> None:
    given = {"a": 1, "b": 2}
    wire.play([calls("add", given), calls("mine", {}, 2)], [chat_says(None, chat_calls("add", given))])
    async with executor_of(tools, opened) as executor:
        response = await client.responses.create(model="m", input="hi", tools=openai.tools(executor))
        over_responses = await openai.handle(response, executor)
        completion = await client.chat.completions.create(model="m", messages=HELLO, tools=chat.tools(executor))
        over_chat = await chat.handle(completion, executor)
        said = {"stop_reason": "tool_use", "content": [call("add", given), call("mine", {}, "toolu_2")]}
        over_messages = await anthropic.handle(said, executor)
    assert [each["name"] for each in (*over_responses.left, *over_messages.left, *over_chat.left)] == ["mine", "mine"]
    [result] = over_messages.messages[1]["content"]
    found = [over_responses.items[0]["output"], over_chat.items[0]["content"], result["content"]]
    assert found == [NOT_BY_ITSELF] * 3
    assert tools.reached == []


async def test_a_call_that_was_cut_off_is_not_left(wire: Wire, client: Any, tools: Tools, opened: Sandbox) -> None:
    whole, cut = calls("mine", {}), calls("mine", '{"a', 2, status="incomplete")
    wire.play(Turn([whole, cut], "incomplete", "max_output_tokens"))
    wire.play(Turn([chat_says(None, chat_calls("mine", {}), chat_calls("mine", '{"a', 2))], "incomplete", "length"))
    async with executor_of(tools, opened) as executor:
        response = await client.responses.create(model="m", input="hi", tools=openai.tools(executor))
        over_responses = await openai.handle(response, executor)
        completion = await client.chat.completions.create(model="m", messages=HELLO, tools=chat.tools(executor))
        over_chat = await chat.handle(completion, executor)
    assert [call["call_id"] for call in over_responses.left] == ["call_1"]
    assert [call["id"] for call in over_chat.left] == ["call_1"]
    [first], [second] = over_responses.items, over_chat.items
    assert (first["call_id"], second["tool_call_id"]) == ("call_2", "call_2")
    assert first["output"].startswith("[sandbridge] error not_made: ")
    assert second["content"] == first["output"].replace("max_output_tokens", "length")


async def test_a_loop_of_ours_leaves_nothing(wire: Wire, client: Any, tools: Tools, opened: Sandbox) -> None:
    wire.play([calls("mine", {})], [says("ok")])
    async with executor_of(tools, opened) as executor:
        assert (await openai.run(client, executor, model="m", input="hi")).text == "ok"
    [answer] = [item["output"] for item in wire.requests[1]["input"] if "output" in item]
    assert answer.startswith("[sandbridge] error unknown_tool: there is no tool 'mine' to call by itself")
