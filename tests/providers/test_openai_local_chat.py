"""The hosted form served here, from models that speak Chat Completions only."""

from __future__ import annotations

from typing import Any

import pytest

from bridge import Executor, openai
from sandbox import Sandbox
from tests.providers.openai_application import CODE, SUM, TOOLS, Application, item_of, shape
from tests.providers.openai_shop import STREAMS
from tests.providers.openai_wire import (
    EVENTS,
    Turn,
    Wire,
    called_by,
    calls,
    chat_calls,
    chat_says,
    program,
    program_output,
    says,
)

pytestmark = [pytest.mark.anyio, STREAMS]


def code(text: str, number: int = 1) -> Any:
    return chat_says(None, chat_calls("run_program", {"program": text}, number))


@pytest.mark.parametrize(("store", "stream"), [(True, False), (False, True)])
async def test_an_application_gets_the_same_items_from_a_model_that_speaks_chat_completions(
    wire: Wire, client: Any, opened: Sandbox, store: bool, stream: bool
) -> None:
    waves = [calls("stock", {"sku": sku}, number, **called_by()) for number, sku in enumerate(("a", "b", "c20"), 11)]
    for item in waves:
        item["arguments"] = item["arguments"].replace(" ", "")
    wire.play([program(CODE), *waves[:2]], [waves[2]], [program_output(SUM), says("30 units")])
    there = Application(client, store=store, stream=stream)
    assert await there.run() == "30 units"
    wire.play([code(CODE)], [chat_says("30 units")])
    async with Executor([], sandbox=opened) as executor:
        here = Application(openai.local(client, executor, api="chat"), store=store, stream=stream)
        assert await here.run() == "30 units"
        wire.play([chat_says("bye")])
        here.history.append({"role": "user", "content": "thanks"})
        await here.create(here.history[-1:])
    assert shape(here.seen[:-1]) == shape(there.seen)
    assert wire.refusals == []
    roles = [message["role"] for message in wire.requests[-1]["messages"]]
    assert roles == ["system", "user", "assistant", "tool", "assistant", "user"]
    for event in here.events:
        EVENTS.validate_python(event.to_dict(mode="json"))
    text = [event.delta for event in here.events if event.type == "response.output_text.delta"]
    assert text == (["30 units", "bye"] if stream else [])


async def test_ids_that_a_server_gives_again_and_again_are_told_apart(wire: Wire, client: Any, opened: Sandbox) -> None:
    wire.play([code("return 1")], [code("return 2")], [chat_says("three")])
    async with Executor([], sandbox=opened) as executor:
        application = Application(openai.local(client, executor, api="chat"))
        assert await application.run() == "three"
    programs = [item["call_id"] for item in application.seen if item["type"] == "program"]
    assert len(set(programs)) == 2
    assert [item["result"] for item in application.seen if item["type"] == "program_output"] == ["1", "2"]
    assert wire.refusals == []


async def test_what_a_model_thought_goes_back_to_it(wire: Wire, client: Any, opened: Sandbox) -> None:
    wire.play([code("return 1") | {"reasoning_content": "hm"}], [chat_says("one")])
    with pytest.raises(Exception, match=r"messages\[2\]\.reasoning_content: unknown field"):  # of a vendor who has none
        async with Executor([], sandbox=opened) as executor:
            await Application(openai.local(client, executor, api="chat"), store=False).run()
    assert wire.requests[-1]["messages"][2]["reasoning_content"] == "hm"


async def test_a_message_that_was_cut_off_runs_no_last_program(wire: Wire, client: Any, opened: Sandbox) -> None:
    cut = chat_says("Well", *code("return 1")["tool_calls"])
    wire.play(Turn([cut], "incomplete", "length"), [chat_says("ok")])
    async with Executor([], sandbox=opened) as executor:
        application = Application(openai.local(client, executor, api="chat"))
        message, _, output = await application.create(application.history)
        assert (message["phase"], application.response.status) == ("commentary", "incomplete")
        assert "the response was cut off (max_output_tokens)" in output["result"]
        assert (await application.create([]))[0]["content"][0]["text"] == "ok"


async def test_a_request_is_translated_as_far_as_it_goes(wire: Wire, client: Any, opened: Sandbox) -> None:
    wire.play([chat_says(None, chat_calls("note", {"sku": "n"}))], [chat_says("ok")])
    form = {"type": "json_schema", "name": "answer", "schema": {"type": "object"}, "strict": None}
    picture = [{"type": "input_text", "text": "this?"}, {"type": "input_image", "image_url": "data:x", "detail": "low"}]
    async with Executor([], sandbox=opened) as executor:
        application = Application(
            openai.local(client, executor, api="chat"),
            temperature=0.5,
            max_output_tokens=9,
            reasoning={"effort": "low"},
            text={"format": form, "verbosity": "low"},
            tool_choice={"type": "function", "name": "note"},
            instructions="Be brief.",
        )
        application.history[0]["content"] = picture
        [call] = await application.create(application.history)
        await application.create([item_of(call, "noted")])
    request = wire.requests[0]
    assert [tool["function"]["name"] for tool in request["tools"]] == ["run_program", "note"]
    assert request["tool_choice"] == {"type": "function", "function": {"name": "note"}}
    assert request["messages"][1]["content"][1] == {
        "type": "image_url",
        "image_url": {"url": "data:x", "detail": "low"},
    }
    assert request["messages"][0]["content"].startswith("Be brief.\n\nWrite one JavaScript program.")
    wanted = {"temperature": 0.5, "max_completion_tokens": 9, "reasoning_effort": "low", "verbosity": "low"}
    assert {name: request[name] for name in wanted} == wanted
    assert request["response_format"]["json_schema"]["name"] == "answer"
    assert wire.requests[1]["messages"][-1] == {"role": "tool", "tool_call_id": call["call_id"], "content": "noted"}
    assert wire.refusals == []


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        ({"conversation": "conv_1"}, "conversation cannot be had over Chat Completions"),
        ({"tools": [*TOOLS, {"type": "web_search"}]}, "a tool of type web_search cannot be had"),
        ({"previous_response_id": "resp_9"}, "Previous response with id 'resp_9' not found"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "an item of type item_reference cannot be had"),
    ],
)
async def test_what_cannot_be_had_is_refused_before_anything_is_sent(
    wire: Wire, client: Any, opened: Sandbox, request_: Any, said: str
) -> None:
    async with Executor([], sandbox=opened) as executor:
        local = openai.local(client, executor, api="chat")
        with pytest.raises(Exception, match=said):
            await local.responses.create(**{"model": "m", "input": "hi", "tools": TOOLS} | request_)
        wire.play([chat_says("plain")])
        assert (await local.responses.create(model="m", input="hi")).output_text == "plain"
    assert len(wire.requests) == 1


async def test_raw_text_goes_both_ways_and_under_an_id_of_its_own(wire: Wire, client: Any, opened: Sandbox) -> None:
    raw = {"id": "call_0", "type": "custom", "custom": {"name": "run_program", "input": "return 1"}}
    wire.play([chat_says(None, raw)], [chat_says(None, raw)], [chat_says("two")])
    async with Executor([], sandbox=opened) as executor:
        application = Application(openai.local(client, executor, api="chat", raw=True), store=False)
        assert await application.run() == "two"
    assert [item["type"] for item in application.seen] == ["program", "program_output"] * 2 + ["message"]
    assert application.seen[0]["call_id"] != application.seen[2]["call_id"]
    assert [call["custom"] for m in wire.requests[-1]["messages"] for call in m.get("tool_calls", ())] == [
        raw["custom"],
        raw["custom"],
    ]
    assert wire.refusals == []
