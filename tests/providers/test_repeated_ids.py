"""Servers that give one id to two calls, in one response or over several: the history that goes back tells them apart.

Strict servers of the three wires take it; without that they refuse the transcript of programs that have run.
"""

from __future__ import annotations

from typing import Any

import pytest
from anthropic import AsyncAnthropic

from bridge import Approve, Executor, Policy, anthropic, ask, openai
from bridge.loop import told_apart
from bridge.openai import chat
from sandbox import Sandbox
from tests.providers import anthropic_wire
from tests.providers.anthropic_application import CODE, QUERY
from tests.providers.anthropic_application import Application as Claude
from tests.providers.openai_application import Application
from tests.providers.openai_shop import STREAMS, Tools, executor_of
from tests.providers.openai_wire import Wire, calls, chat_calls, chat_says, says, thinks

pytestmark = [pytest.mark.anyio, STREAMS]

HELLO: list[Any] = [{"role": "user", "content": "hi"}]
CLAUDE: dict[str, Any] = {"model": "m", "max_tokens": 9}
KEY = "k" * 32
PAY = "return await tools.pay({a: %s, b: 0})"
ASKED = Policy([ask("pay")])


def runs(text: str, number: int = 1, **more: Any) -> Any:
    return calls("run_program", {"program": text}, number, **more)


def pays(amount: int) -> Any:
    return runs(PAY % amount)


def answers(body: dict[str, Any]) -> list[str]:
    """The values that went back for programs, in order."""
    return [item["output"].split("\n")[1] for item in body["input"] if "output" in item]


def results(body: dict[str, Any]) -> list[str]:
    blocks = [block for message in body["messages"] for block in message["content"] if isinstance(block, dict)]
    return [block["content"].split("\n")[1] for block in blocks if block["type"] == "tool_result"]


def test_a_new_id_is_none_of_those_given_and_the_same_for_the_same() -> None:
    given = ["a", "a", "a_2", "", None, "b", "x" * 64, "x" * 64]
    made = told_apart(given, ["b"])
    assert made == ["a", "a_3", "a_2", "call_2", "call_3", "b_2", "x" * 64, "x" * 56 + "_2"]
    assert told_apart(given, ["b"]) == made
    assert told_apart(["a", "b"]) == ["a", "b"]


# ---- Responses -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("store", [True, False])
async def test_calls_of_one_response_with_one_id_each_get_their_own_answer(
    wire: Wire, client: Any, tools: Tools, opened: Sandbox, stream: bool, store: bool
) -> None:
    wire.play([thinks(), runs("return 1"), runs("return 2")], [runs("return 3", 7)], [says("ok")])
    async with executor_of(tools, opened) as executor:
        talk = await openai.run(client, executor, model="m", input="hi", stream=stream, store=store)
    assert (talk.text, [run.result.value for run in talk.runs], wire.refusals) == ("ok", [1, 2, 3], [])
    assert answers(wire.requests[1]) == ["1", "2"]
    chained = [request.get("previous_response_id") for request in wire.requests]
    assert chained == ([None, None, "resp_2"] if store else [None, None, None])  # the second told the vendor all


@pytest.mark.parametrize("store", [True, False])
async def test_an_id_of_an_earlier_response_is_given_again_in_the_transcript_under_another(
    wire: Wire, client: Any, tools: Tools, opened: Sandbox, stream: bool, store: bool
) -> None:
    wire.play([runs("return 1")], [runs("return 2")], [runs("return 3"), says("hm", 8)], [says("ok")], [says("bye", 9)])
    async with executor_of(tools, opened) as executor:
        talk = await openai.run(client, executor, model="m", input="hi", stream=stream, store=store)
        assert (talk.text, answers(wire.requests[3])) == ("ok", ["1", "2", "3"])
        await talk.say("more")
    assert (talk.text, wire.refusals) == ("bye", [])


@pytest.mark.parametrize("store", [True, False])
async def test_they_are_told_apart_the_same_way_in_another_process(
    wire: Wire, client: Any, opened: Sandbox, store: bool
) -> None:
    wire.play([runs("return 1")], [pays(2), pays(3)], [says("ok")])
    own: Any = {"model": "m", "store": store}
    async with executor_of(Tools(), opened, policy=ASKED, key=KEY) as executor:
        state = (await openai.run(client, executor, input="hi", **own)).dump()
    async with executor_of(Tools(), opened, policy=ASKED, key=KEY) as executor:
        talk = await openai.load(client, executor, state, **own)
        talk = await talk.resume({request.id: Approve() for request in talk.approvals})
    assert (talk.text, wire.refusals) == ("ok", [])
    assert answers(wire.requests[2]) == ["1", '{"paid":2}', '{"paid":3}']


async def test_where_the_vendor_keeps_the_history_only_the_first_is_carried_out_and_its_answer_says_so(
    wire: Wire, client: Any, tools: Tools, opened: Sandbox
) -> None:
    wire.play([says("hello", 5)], [pays(1), pays(2)])
    async with executor_of(tools, opened, policy=ASKED) as executor:
        await client.responses.create(model="m", input="hi")
        talk = await openai.run(client, executor, model="m", input="pay", previous_response_id="resp_1")
        [request] = talk.approvals
        assert request.arguments == {"a": 1, "b": 0}
        talk = await talk.cancel()
    _, call, answer = talk.transcript
    assert (call["call_id"], answer["call_id"]) == ("call_1", "call_1")
    assert answer["output"].split("\n")[-1] == (
        "[sandbridge] note: 2 calls of this response had the same id, so only the first was carried out, and this is "
        "its answer; send the others again"
    )


async def test_a_single_step_that_does_not_know_what_is_sent_answers_once_and_its_transcript_is_sound(
    wire: Wire, client: Any, tools: Tools, opened: Sandbox
) -> None:
    wire.play([runs("return await tools.add({a: 1, b: 1})"), pays(2)], [runs("return 7")], [says("ok")])
    async with executor_of(tools, opened) as executor:
        request: Any = {"model": "m", "tools": openai.tools(executor)}
        history = list(HELLO)
        step = await openai.handle(await client.responses.create(input=history, **request), executor)
        assert ([item["type"] for item in step.transcript], tools.reached) == (
            ["function_call", "function_call_output"],
            [{"a": 1, "b": 1}],
        )
        history += step.transcript
        while not step.final:  # no chain: the whole history was sent, so ids can be changed from here on
            response = await client.responses.create(input=history, **request)
            step = await openai.handle(response, executor, after=step)
            assert (await openai.handle(response, executor, after=step)).transcript == step.transcript  # asked again
            history += step.transcript
    assert [item["call_id"] for item in history if "call_id" in item] == ["call_1"] * 2 + ["call_1_2"] * 2
    assert wire.refusals == []


async def test_a_chain_of_ones_own_is_answered_under_the_vendors_ids(
    wire: Wire, client: Any, tools: Tools, opened: Sandbox
) -> None:
    wire.play([runs("return 1")], [runs("return 2"), calls("mine", {}, 2)])
    async with executor_of(tools, opened) as executor:
        request: Any = {"model": "m", "tools": openai.tools(executor)}
        response = await client.responses.create(input="hi", **request)
        step = await openai.handle(response, executor)
        response = await client.responses.create(input=step.items, previous_response_id=response.id, **request)
        step = await openai.handle(response, executor, after=step)
    assert ([item["call_id"] for item in step.items], step.left[0]["call_id"]) == (["call_1"], "call_2")


async def test_a_single_step_without_storage_tells_them_apart(
    wire: Wire, client: Any, tools: Tools, opened: Sandbox
) -> None:
    wire.play([runs("return 1"), calls("mine", {}), calls("mine", {})], [says("ok")])
    mine: Any = {"type": "function", "name": "mine", "parameters": {"type": "object", "properties": {}}}
    async with executor_of(tools, opened) as executor:
        request: Any = {"model": "m", "store": False, "tools": [*openai.tools(executor), mine | {"strict": False}]}
        step = await openai.handle(await client.responses.create(input=HELLO, **request), executor)
        own = [{"type": "function_call_output", "call_id": call["call_id"], "output": "1"} for call in step.left]
        assert [each["call_id"] for each in own] == ["call_1_2", "call_1_3"]
        response = await client.responses.create(input=[*HELLO, *step.transcript, *own], **request)
    assert (response.output_text, wire.refusals) == ("ok", [])


# ---- Chat Completions ------------------------------------------------------------------------------------------------


def chat_runs(text: str) -> Any:
    return chat_calls("run_program", {"program": text})


async def test_over_chat_they_are_told_apart_also_in_another_process_and_come_again_in_later_messages(
    wire: Wire, client: Any, opened: Sandbox, stream: bool
) -> None:
    wire.play([chat_says(None, chat_runs("return 1"))], [chat_says(None, chat_runs(PAY % 2), chat_runs(PAY % 3))])
    wire.play([chat_says("ok")])
    own: Any = {"model": "m", "stream": stream}
    async with executor_of(Tools(), opened, policy=ASKED, key=KEY) as executor:
        state = (await chat.run(client, executor, messages=HELLO, **own)).dump()
    async with executor_of(Tools(), opened, policy=ASKED, key=KEY) as executor:
        talk = await chat.load(client, executor, state, **own)
        talk = await talk.resume({request.id: Approve() for request in talk.approvals})
    said = [message for message in wire.requests[2]["messages"] if message["role"] == "tool"]
    assert [message["tool_call_id"] for message in said] == ["call_1", "call_1", "call_1_2"]
    assert [message["content"].split("\n")[1] for message in said] == ["1", '{"paid":2}', '{"paid":3}']
    assert (talk.text, wire.refusals) == ("ok", [])


# ---- Messages --------------------------------------------------------------------------------------------------------


async def test_over_messages_each_call_gets_an_id_of_its_own(
    messages_wire: anthropic_wire.Wire, claude: AsyncAnthropic, tools: Tools, opened: Sandbox, stream: bool
) -> None:
    one, two, three = (anthropic_wire.program(f"return {number}") for number in (1, 2, 3))
    messages_wire.play([one, two], [three], [anthropic_wire.text("ok")])
    async with executor_of(tools, opened) as executor:
        talk = await anthropic.run(claude, executor, messages=HELLO, stream=stream, **CLAUDE)
    assert (talk.text, results(messages_wire.requests[-1])) == ("ok", ["1", "2", "3"])
    uses = [block["id"] for message in talk.messages[1:] for block in message["content"] if block["type"] == "tool_use"]
    assert uses == ["toolu_1", "toolu_1_2", "toolu_1_3"]


async def test_over_messages_they_are_told_apart_in_another_process_too(
    messages_wire: anthropic_wire.Wire, claude: AsyncAnthropic, opened: Sandbox, stream: bool
) -> None:
    paid = [anthropic_wire.program(PAY % number) for number in (2, 3)]
    messages_wire.play([anthropic_wire.program("return 1")], paid, paid[:1], [anthropic_wire.text("ok")])
    async with executor_of(Tools(), opened, policy=ASKED, key=KEY) as executor:
        talk = await anthropic.run(claude, executor, messages=HELLO, stream=stream, **CLAUDE)
        state = talk.dump()
    async with executor_of(Tools(), opened, policy=ASKED, key=KEY) as executor:
        talk = await anthropic.load(claude, executor, state, stream=stream, **CLAUDE)
        for _ in range(2):
            talk = await talk.resume({request.id: Approve() for request in talk.approvals})
    assert talk.text == "ok"
    assert results(messages_wire.requests[-1]) == ["1", '{"paid":2}', '{"paid":3}', '{"paid":2}']


async def test_over_messages_a_step_that_is_asked_again_gives_the_same_ids(
    messages_wire: anthropic_wire.Wire, claude: AsyncAnthropic, tools: Tools, opened: Sandbox
) -> None:
    messages_wire.play([anthropic_wire.program("return 1"), anthropic_wire.program("return 2")])
    async with Executor(tools.all(), sandbox=opened) as executor:
        offer = anthropic.Offer(executor)
        response = await claude.messages.create(messages=HELLO, tools=offer.tools, **CLAUDE)
        first, again = await offer.handle(response), await offer.handle(response)
    assert [block["tool_use_id"] for block in first.messages[1]["content"]] == ["toolu_1", "toolu_1_2"]
    assert first.messages == again.messages


# ---- the hosted form, served here ------------------------------------------------------------------------------------

STOCK = 'return await tools.stock({sku: "%s"})'


async def test_the_hosted_form_of_responses_tells_them_apart_in_a_history_that_is_sent_whole(
    wire: Wire, client: Any, opened: Sandbox, stream: bool
) -> None:
    note = calls("note", '{"sku":"n"}')
    wire.play([runs(STOCK % "a"), runs(STOCK % "b"), note], [runs("return 3"), runs("return 4", 9)], [says("ok")])
    async with Executor([], sandbox=opened) as executor:
        local = openai.local(client, executor)
        application = Application(local, store=False, stream=stream)
        assert await application.run() == "ok"
    programs = [item["call_id"] for item in application.seen if item["type"] == "program"]
    assert programs == ["call_1", "call_1_2", "call_1_4", "call_9"]
    assert [item["call_id"] for item in application.seen if item.get("name") == "note"] == ["call_1_3"]
    found = {item["call_id"]: item["output"] for item in wire.requests[-1]["input"] if "output" in item}
    assert sorted(found) == ["call_1", "call_1_2", "call_1_3", "call_1_4", "call_9"]
    assert ['"a"' in found["call_1"], '"b"' in found["call_1_2"], found["call_1_4"]] == [True, True, "3"]
    assert wire.refusals == []


async def test_the_hosted_form_of_responses_answers_once_where_the_vendor_keeps_the_history(
    wire: Wire, client: Any, opened: Sandbox, stream: bool
) -> None:
    def look(history: list[Any]) -> Any:
        asked.append([item for item in history if "output" in item])
        return [says("ok")]

    asked: list[Any] = []
    wire.play([runs("return 1"), runs("return 2")], look)
    async with Executor([], sandbox=opened) as executor:
        application = Application(openai.local(client, executor), stream=stream)
        assert await application.run() == "ok"
    [[answer]] = asked
    assert answer["output"].split("\n")[0] == "1"
    assert answer["output"].startswith("1\n[sandbridge] note: 2 calls of this response had the same id")
    assert [item["type"] for item in application.seen] == ["program", "program_output", "message"]
    assert wire.refusals == []


async def test_the_hosted_form_of_messages_tells_them_apart(
    messages_wire: anthropic_wire.Wire, claude: AsyncAnthropic, opened: Sandbox, stream: bool
) -> None:
    query = "return await tools.query({sql: '%s'})"
    one, two, three = (anthropic_wire.program(query % sql) for sql in "abc")
    messages_wire.play([one, two], [three], [anthropic_wire.text("ok")])
    async with Executor([], sandbox=opened) as executor:
        application = Claude(anthropic.local(claude, executor), [CODE, QUERY], stream=stream)
        await application.ask("how many?")
    blocks = [block for message in messages_wire.requests[-1]["messages"] for block in message["content"]]
    found = {block["tool_use_id"]: block["content"] for block in blocks if block["type"] == "tool_result"}
    assert found == {"toolu_1": '[{"sql":"a"}]', "toolu_1_2": '[{"sql":"b"}]', "toolu_1_3": '[{"sql":"c"}]'}
