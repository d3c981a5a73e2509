"""A model that writes programs, over the Responses API: the real clients against the vendor's wire."""

from __future__ import annotations

import base64
from typing import Any

import httpx2
import pytest
from openai.types.responses import Response

import bridge
from bridge import Approve, ConfigurationError, Deny, Executor, Policy, StateError, Tool, allow, ask, deny, openai
from bridge.code_tool import LoopError, RepeatedFailure, TurnsExceeded
from sandbox import Limits, Sandbox
from tests.providers.openai_shop import STREAMS, Tools, client_of, executor_of
from tests.providers.openai_wire import Turn, Wire, calls, refuses, says, thinks, writes

pytestmark = [pytest.mark.anyio, STREAMS]

ADD = "return await tools.add({a: 1, b: 2})"
ADDED = "[sandbridge] completed; 1 call\n3"


def program(text: str, number: int = 1) -> Any:
    """The code tool as a function."""
    return calls("run_program", {"program": text}, number)


def outputs(wire: Wire, request: int = -1) -> list[str]:
    """What went back for calls in a request, in its order."""
    return [item["output"] for item in wire.requests[request]["input"] if "output" in item]


async def loop(client: Any, executor: Executor, **options: Any) -> Any:
    return await openai.run(client, executor, **{"model": "m", "input": "hi"} | options)


# ---- the loop ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "stream", "store", "raw"),
    [
        ("async", False, True, False),
        ("async", False, False, True),
        ("async", True, False, False),
        ("async", True, True, True),
        ("sync", False, False, False),
        ("sync", True, True, True),
    ],
)
async def test_a_program_is_run_and_its_result_goes_back(
    wire: Wire, tools: Tools, opened: Sandbox, kind: str, stream: bool, store: bool, raw: bool
) -> None:
    wire.play([thinks(), writes(ADD) if raw else program(ADD)], [says("It is "), says("three.", 2)])
    async with client_of(wire, kind) as client, executor_of(tools, opened) as executor:
        sealed = ["reasoning.encrypted_content"]  # also where it is stored: the history goes on without storage below
        reply = await loop(client, executor, store=store, stream=stream, raw=raw, include=sealed)
        assert (reply.status, reply.text, reply.turns) == ("finished", "It is three.", 2)
        assert [run.result.value for run in reply.runs] == [3]
        assert outputs(wire) == [ADDED]
        assert (tools.reached, wire.refusals) == ([{"a": 1, "b": 2}], [])
        wire.play([says("bye")])  # the history that is left goes on as it is
        more = [*reply.transcript, {"role": "user", "content": "and now?"}]
        assert (await loop(client, executor, input=more, store=False)).text == "bye"
        assert wire.refusals == []


async def test_nothing_but_the_code_tool_is_offered_and_how_to_use_it_is_in_the_instructions(
    wire: Wire, client: Any, tools: Tools, opened: Sandbox
) -> None:
    wire.play([says("hi")])
    async with executor_of(tools, opened) as executor:
        await loop(client, executor, instructions="Be brief.", name="js")
        [request] = wire.requests
        assert [tool["name"] for tool in request["tools"]] == ["js"]
        assert request["tools"][0]["strict"] is True
        assert request["instructions"] == f"Be brief.\n\n{executor.instructions()}"
        assert "include" not in request


async def test_reasoning_is_asked_for_where_nothing_is_stored(
    wire: Wire, client: Any, tools: Tools, opened: Sandbox
) -> None:
    wire.play([says("hi")], [says("hi")])
    async with executor_of(tools, opened) as executor:
        await loop(client, executor, store=False)
        await loop(client, executor, store=False, include=[])
    assert [request["include"] for request in wire.requests] == [["reasoning.encrypted_content"], []]


async def test_tools_that_the_model_may_call_itself_come_after_the_code_tool_and_through_the_gate(
    wire: Wire, client: Any, tools: Tools, opened: Sandbox
) -> None:
    policy = Policy([deny("pay", caller="direct")])
    wire.play(
        [calls("add", {"a": 1, "b": 1}), calls("pay", {"a": 1, "b": 1}, 2), calls("name", "", 3), program(ADD, 4)],
        [says("ok")],
    )
    async with executor_of(tools, opened, policy=policy) as executor:
        await loop(client, executor, direct=["add", "pay", "name"])
    assert [tool["name"] for tool in wire.requests[0]["tools"]] == ["run_program", "add", "pay", "name"]
    found = outputs(wire)
    assert (found[0], found[2], found[3]) == ("2", "Ada", ADDED)
    assert found[1].startswith("[sandbridge] error denied: pay was denied")
    assert sorted(given["b"] for given in tools.reached) == [1, 2]


async def test_a_call_of_a_tool_that_was_not_offered_reaches_nobody(
    wire: Wire, client: Any, tools: Tools, opened: Sandbox
) -> None:
    wire.play([calls("add", {"a": 1, "b": 1}), calls("nope", {}, 2)], [says("ok")])
    async with executor_of(tools, opened) as executor:
        await loop(client, executor)
    assert tools.reached == []
    assert [text.split(":")[0] for text in outputs(wire)] == [
        "[sandbridge] error denied",
        "[sandbridge] error unknown_tool",
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"program": "return 1', "the arguments of run_program are no JSON (line 1, column 13: Unterminated string"),
        ("[1]", "run_program takes"),
        ('{"text": "return 1"}', "run_program takes"),
    ],
)
async def test_malformed_arguments_are_answered_with_what_to_do(
    wire: Wire, client: Any, tools: Tools, opened: Sandbox, text: str, said: str
) -> None:
    wire.play([calls("run_program", text)], [program(ADD, 2)], [says("ok")])
    async with executor_of(tools, opened) as executor:
        reply = await loop(client, executor)
        assert reply.text == "ok"
    assert outputs(wire, 1)[0].startswith(f"[sandbridge] error invalid_arguments: {said}")
    assert outputs(wire, 2) == [ADDED]


@pytest.mark.parametrize(
    ("text", "starts"),
    [
        ("throw new Error('no')", "[sandbridge] failed"),
        ("return (", "[sandbridge] failed"),
        ("for (;;) {}", "[sandbridge] exceeded"),
        ("await new Promise(() => {})", "[sandbridge] stalled"),
        ("return await tools.fail()", "[sandbridge] failed"),
        ("return await tools.pay({a: 1, b: 1})", "[sandbridge] failed"),
        ("const a = []; for (;;) a.push(new Array(1e6).fill(a.length));", "[sandbridge] exceeded"),
    ],
)
async def test_a_program_that_fails_is_answered_and_the_model_may_try_again(
    wire: Wire, client: Any, tools: Tools, opened: Sandbox, text: str, starts: str
) -> None:
    wire.play([thinks(), program(text)], [program(ADD, 2)], [says("ok")])
    async with executor_of(tools, opened, policy=Policy([deny("pay")]), limits=Limits(cpu_s=0.3)) as executor:
        reply = await loop(client, executor, store=False)
        assert (reply.status, reply.text, len(reply.runs)) == ("finished", "ok", 2)
    assert outputs(wire, 1)[0].startswith(starts)
    assert wire.refusals == []


async def test_a_model_that_fails_the_same_way_three_times_is_stopped_and_told_what_it_tried(
    wire: Wire, client: Any, tools: Tools, opened: Sandbox
) -> None:
    for number in (1, 2, 3):
        wire.play([program(f"return await tools.fail() // {number}", number)])
    async with executor_of(tools, opened) as executor:
        with pytest.raises(RepeatedFailure, match="the model failed 3 times in the same way:\n1\\.") as caught:
            await loop(client, executor, store=False)
        reply = caught.value.reply
        assert (reply.status, reply.turns, len(reply.runs)) == ("ready", 3, 3)
        wire.play([says("I give up")])
        more = [*reply.transcript, {"role": "user", "content": "stop"}]
        assert (await loop(client, executor, input=more, store=False)).text == "I give up"
        assert wire.refusals == []


async def test_a_loop_ends_after_as_many_requests_as_it_may_send_and_makes_no_call_after_that(
    wire: Wire, client: Any, tools: Tools, opened: Sandbox
) -> None:
    wire.play(*([program(ADD, number)] for number in range(5)))
    async with executor_of(tools, opened) as executor:
        with pytest.raises(TurnsExceeded, match=r"after 2 requests \(turns=2\)") as caught:
            await loop(client, executor, turns=2, store=False)
        assert (len(wire.requests), len(tools.reached)) == (2, 1)
        reply = caught.value.reply
        with pytest.raises(TurnsExceeded):
            await reply.go()
        assert outputs(wire) == [ADDED]
        wire.turns[:] = [[program(ADD, 6)], [says("ok")]]
        assert (await reply.say("go on")).text == "ok"
        assert (reply.turns, len(tools.reached)) == (4, 2)
    assert outputs(wire)[1] == "[sandbridge] error limit: not carried out: the bound of 2 requests was reached"
    assert wire.refusals == []


async def test_a_refusal_is_the_last_word(wire: Wire, client: Any, tools: Tools, opened: Sandbox) -> None:
    wire.play([refuses("I cannot.")])
    async with executor_of(tools, opened) as executor:
        reply = await loop(client, executor)
    assert (reply.status, reply.text) == ("finished", "I cannot.")


async def test_commentary_beside_a_call_and_alone_is_not_the_last_word(
    wire: Wire, client: Any, tools: Tools, opened: Sandbox
) -> None:
    note = says("Let me see.", 7, phase="commentary")
    wire.play([note, program(ADD)], [note | {"id": "msg_8"}], [says("three", phase="final_answer")])
    async with executor_of(tools, opened) as executor:
        reply = await loop(client, executor)
    assert (reply.status, reply.text, reply.turns) == ("finished", "three", 3)
    assert wire.requests[2]["input"] == []


@pytest.mark.parametrize(
    "choice",
    [
        "required",
        {"type": "function", "name": "run_program"},
        {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "run_program"}]},
    ],
)
async def test_a_forced_tool_is_forced_once(
    wire: Wire, client: Any, tools: Tools, opened: Sandbox, choice: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "check_choice", lambda *_: None)
    wire.play([program(ADD)], [says("ok")])
    async with executor_of(tools, opened) as executor:
        await loop(client, executor, tool_choice=choice)
    kept = choice | {"mode": "auto"} if "mode" in choice else None
    assert [request.get("tool_choice") for request in wire.requests] == [choice, kept]


async def test_in_a_stored_conversation_only_what_is_new_is_sent(
    wire: Wire, client: Any, tools: Tools, opened: Sandbox
) -> None:
    wire.play([says("hi")], [program(ADD)], [says("ok")])
    async with executor_of(tools, opened) as executor:
        first = await loop(client, executor)
        more = await loop(client, executor, input="more", previous_response_id=first.response.id)
        wire.play([says("bye")])
        assert (await more.say("and?")).text == "bye"
        assert [item.get("content") or item.get("type") for item in more.transcript[::2]] == [
            "more",
            "function_call_output",
            "and?",
        ]
    assert [request.get("previous_response_id") for request in wire.requests] == [None, "resp_1", "resp_2", "resp_3"]
    assert [len(request["input"]) for request in wire.requests] == [1, 1, 1, 1]


async def test_pictures_of_a_program_are_shown_to_the_model(
    wire: Wire, client: Any, tools: Tools, opened: Sandbox
) -> None:
    data = base64.b64encode(b"\x89PNG\r\n\x1a\n").decode()
    other = base64.b64encode(b"<svg/>").decode()
    images = f"image('data:image/jpeg;base64,{data}'); image('data:image/png;base64,{other}'); return 1"
    wire.play([program(images)], [says("ok")])
    async with executor_of(tools, opened) as executor:
        await loop(client, executor)
    [[text, picture]] = outputs(wire)
    assert text["text"].startswith("[sandbridge] completed")
    assert text["text"].endswith("[sandbridge] picture 2 was left out: it is no PNG, JPEG, GIF or WebP")
    assert picture == {"type": "input_image", "image_url": f"data:image/png;base64,{data}", "detail": "auto"}


# ---- pauses --------------------------------------------------------------------------------------------------------


async def test_a_call_that_is_asked_about_pauses_the_loop_and_the_verdict_goes_on(
    wire: Wire, client: Any, tools: Tools, opened: Sandbox
) -> None:
    wire.play([thinks(), program("return await tools.pay({a: 5, b: 0})"), program(ADD, 2)], [says("paid")])
    async with executor_of(tools, opened, policy=Policy([ask("pay")])) as executor:
        reply = await loop(client, executor, store=False)
        assert (reply.status, reply.turns, tools.reached) == ("paused", 1, [{"a": 1, "b": 2}])
        [request] = reply.approvals
        assert (request.tool, request.arguments, reply.pending) == ("pay", {"a": 5, "b": 0}, [])
        with pytest.raises(StateError, match="call nope does not wait"):
            await reply.resume({"nope": Approve()})
        reply = await reply.resume({request.id: Approve()})
        assert (reply.status, reply.text, reply.approvals) == ("finished", "paid", [])
        with pytest.raises(StateError, match="the conversation is finished: only a paused one"):
            await reply.resume({})
    assert outputs(wire) == ['[sandbridge] completed; 1 call\n{"paid":5}', ADDED]
    assert wire.refusals == []


async def test_a_denial_is_told_to_the_model(wire: Wire, client: Any, tools: Tools, opened: Sandbox) -> None:
    wire.play([program("return await tools.pay({a: 5, b: 0})")], [says("not paid")])
    async with executor_of(tools, opened, policy=Policy([ask("pay")])) as executor:
        reply = await loop(client, executor)
        reply = await reply.resume({reply.approvals[0].id: Deny("use staging")})
        assert reply.text == "not paid"
    assert "use staging" in outputs(wire)[0]
    assert tools.reached == []


async def test_calls_that_the_application_owns_pause_the_loop_in_a_program_and_beside_it(
    wire: Wire, client: Any, tools: Tools, opened: Sandbox
) -> None:
    twice = "return await tools.person({a: await tools.person({a: 1, b: 1}), b: 2})"
    wire.play([program(twice), calls("person", {"a": 9, "b": 9}, 2)], [says("ok")])
    async with executor_of(tools, opened) as executor:
        reply = await loop(client, executor, direct=["person"])
        assert [call.arguments for call in reply.pending] == [{"a": 1, "b": 1}, {"a": 9, "b": 9}]
        first, second = reply.pending
        reply = await reply.resume({first.id: 7})
        assert [call.arguments for call in reply.pending] == [{"a": 7, "b": 2}, {"a": 9, "b": 9}]
        reply = await reply.resume({second.id: "nine", reply.pending[0].id: 8})
        assert reply.text == "ok"
    assert outputs(wire) == ["[sandbridge] completed; 2 calls\n8", "nine"]


async def test_a_loop_that_is_given_up_in_a_pause_leaves_a_history_that_goes_on(
    wire: Wire, client: Any, tools: Tools, opened: Sandbox
) -> None:
    wire.play([thinks(), program("return await tools.person({a: 1, b: 1})"), calls("person", {"a": 1, "b": 2}, 2)])
    async with executor_of(tools, opened) as executor:
        reply = await (await loop(client, executor, store=False, direct=True)).cancel()
        assert (reply.status, reply.pending) == ("ready", [])
        wire.play([says("never mind")])
        more = [*reply.transcript, {"role": "user", "content": "forget it"}]
        assert (await loop(client, executor, input=more, store=False, direct=True)).text == "never mind"
    assert [text.split("\n")[0] for text in outputs(wire)] == [
        "[sandbridge] cancelled; 1 call (1 not started)",
        "[sandbridge] error cancelled: the run was cancelled",
    ]
    assert wire.refusals == []


# ---- responses that are cut, empty or failed -----------------------------------------------------------------------


async def test_a_call_that_was_cut_off_is_not_made_and_the_model_is_told(
    wire: Wire, client: Any, tools: Tools, opened: Sandbox
) -> None:
    cut = writes("return await tools.add({a: 1, b: 2}); // and", 2)
    wire.play(Turn([thinks(), writes(ADD), cut], "incomplete", "max_output_tokens"), [says("ok")])
    async with executor_of(tools, opened) as executor:
        reply = await loop(client, executor, raw=True, store=False)
        assert (reply.text, len(reply.runs), len(tools.reached)) == ("ok", 1, 1)
    first, second = outputs(wire)
    assert first == ADDED
    assert second.startswith("[sandbridge] error not_made: the response was cut off (max_output_tokens)")


async def test_no_call_of_a_response_that_was_filtered_is_made(
    wire: Wire, client: Any, tools: Tools, opened: Sandbox
) -> None:
    wire.play(Turn([program(ADD), program(ADD, 2)], "incomplete", "content_filter"), [says("ok")])
    async with executor_of(tools, opened) as executor:
        await loop(client, executor)
    assert tools.reached == []
    assert len(outputs(wire)) == 2


async def test_calls_that_are_cut_off_again_and_again_end_the_loop(
    wire: Wire, client: Any, tools: Tools, opened: Sandbox
) -> None:
    for number in range(4):
        wire.play(Turn([writes("return", number)], "incomplete", "max_output_tokens"))
    async with executor_of(tools, opened) as executor:
        with pytest.raises(RepeatedFailure, match="cut off"):
            await loop(client, executor, raw=True)
    assert len(wire.requests) == 3


@pytest.mark.parametrize("output", [[thinks()], [thinks(), says("I was")]])
async def test_a_response_that_was_cut_off_without_a_call_is_given_back_as_such(
    wire: Wire, client: Any, tools: Tools, opened: Sandbox, output: Any
) -> None:
    wire.play(Turn(output, "incomplete", "max_output_tokens"))
    async with executor_of(tools, opened) as executor:
        reply = await loop(client, executor, store=False)
        assert (reply.status, reply.turns) == ("incomplete", 1)
        assert reply.response.incomplete_details.reason == "max_output_tokens"
        assert len(reply.transcript) == (1 if len(output) == 1 else 3)


async def test_a_response_with_nothing_in_it_is_continued_with_nothing(
    wire: Wire, client: Any, tools: Tools, opened: Sandbox
) -> None:
    wire.play([], [thinks()], [says("ok")], [], [], [])
    async with executor_of(tools, opened) as executor:
        assert (await loop(client, executor)).text == "ok"
        with pytest.raises(LoopError, match="3 responses in a row held neither a call nor a message"):
            await loop(client, executor)
    assert [request["input"] for request in wire.requests[1:3]] == [[], []]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_response_that_failed_ends_the_loop_with_the_vendors_words(
    wire: Wire, client: Any, tools: Tools, opened: Sandbox, stream: bool
) -> None:
    wire.play(Turn([program(ADD)], "failed", "out of order"))
    async with executor_of(tools, opened) as executor:
        with pytest.raises(LoopError, match="resp_1 is failed: server_error: out of order") as caught:
            await loop(client, executor, stream=stream)
    assert (caught.value.reply.turns, tools.reached) == (1, [])


# ---- streams -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_every_event_of_a_stream_is_given_to_the_application_in_order(
    wire: Wire, tools: Tools, opened: Sandbox, kind: str
) -> None:
    wire.play([program(ADD)], [says("It is three.")])
    seen: list[Any] = []

    async def see(event: Any) -> None:
        seen.append(event)

    async with client_of(wire, kind) as client, executor_of(tools, opened) as executor:
        await loop(client, executor, stream=True, on_event=see)
        wire.play([says("plain")])
        await loop(client, executor, stream=True, on_event=seen.append)
    text = [event.delta for event in seen if event.type == "response.output_text.delta"]
    assert text == ["It is t", "hree.", "plain"]
    assert [event.type for event in seen].count("response.completed") == 3


async def test_items_that_a_server_leaves_out_of_its_last_event_are_taken_from_the_stream(
    wire: Wire, client: Any, tools: Tools, opened: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_output(response: Any) -> Any:
        for event in events(response):
            yield event | ({"response": response | {"output": []}} if event["type"] == "response.completed" else {})

    events = wire.events
    monkeypatch.setattr(wire, "events", without_output)
    wire.play([program(ADD)], [says("three")])
    async with executor_of(tools, opened) as executor:
        assert (await loop(client, executor, stream=True)).text == "three"


async def test_an_application_that_raises_on_an_event_gets_its_own_error(
    wire: Wire, client: Any, tools: Tools, opened: Sandbox
) -> None:
    wire.play([says("hi")])

    def refuse(event: Any) -> None:
        raise LookupError(event.type)

    async with executor_of(tools, opened) as executor:
        with pytest.raises(LookupError, match=r"response\.created"):
            await loop(client, executor, stream=True, on_event=refuse)


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


# ---- a loop of one's own ---------------------------------------------------------------------------------------------


async def test_the_single_step_serves_a_loop_of_ones_own(
    wire: Wire, client: Any, tools: Tools, opened: Sandbox
) -> None:
    wire.play(
        [program(ADD), calls("mine", {"q": 1}, 2)],
        [program("return await tools.person({a: 1, b: 1})", 3)],
        [says("ok")],
    )
    mine = {"type": "function", "name": "mine", "parameters": {"type": "object", "properties": {}}, "strict": False}
    async with executor_of(tools, opened) as executor:
        request = {"model": "m", "tools": [*openai.tools(executor), mine], "instructions": executor.instructions()}
        response = await client.responses.create(input="hi", **request)
        step = await openai.handle(response, executor)
        assert (step.status, step.final, [item["name"] for item in step.left]) == ("continue", False, ["mine"])
        own = {"type": "function_call_output", "call_id": step.left[0]["call_id"], "output": "42"}
        response = await client.responses.create(input=[*step.items, own], previous_response_id=response.id, **request)
        step = await openai.handle(response, executor, after=step)
        assert step.status == "paused"
        with pytest.raises(StateError, match="the step is paused"):
            print(step.items)
        step = await step.resume({step.pending[0].id: 5})
        response = await client.responses.create(input=step.items, previous_response_id=response.id, **request)
        step = await openai.handle(response, executor, after=step)
        assert (step.status, step.final, step.items) == ("finished", True, [])
    assert wire.refusals == []


async def test_what_nobody_here_knows_goes_back_as_it_came(
    wire: Wire, client: Any, tools: Tools, opened: Sandbox
) -> None:
    wire.play([program(ADD)])
    async with executor_of(tools, opened) as executor:
        response = await client.responses.create(model="m", input="hi", tools=openai.tools(executor))
        odd = [
            {"type": "telepathy_call", "id": "tp_1", "thought": {"deep": [1, None]}},
            {**response.output[0].to_dict(), "agent": {"agent_name": "x"}},
        ]
        step = await openai.handle(Response.construct(**{**response.to_dict(), "output": odd}), executor)
        assert step.transcript[:2] == odd
        assert step.items[0]["output"] == ADDED


async def test_a_response_that_is_not_there_yet_cannot_be_answered(
    wire: Wire, client: Any, tools: Tools, opened: Sandbox
) -> None:
    wire.play([says("hi")])
    async with executor_of(tools, opened) as executor:
        response = await client.responses.create(model="m", input="hi")
        queued = response.model_copy(update={"status": "queued"})
        with pytest.raises(StateError, match="response resp_1 is queued: there is nothing to answer"):
            await openai.handle(queued, executor)


def test_the_vendors_package_is_imported_only_when_a_client_is_used() -> None:
    assert bridge.openai is openai
    assert allow  # the names of the root stand beside it


async def test_a_response_with_a_call_that_nobody_here_answers_runs_nothing(
    wire: Wire, client: Any, tools: Tools, opened: Sandbox
) -> None:
    shell = {"type": "shell_call", "id": "sh_1", "call_id": "call_9", "status": "completed", "environment": None}
    shell |= {"action": {"commands": ["ls"], "timeout_ms": None, "max_output_length": None}}
    wire.play([calls("run_program", {"program": "return await tools.add({a: 1, b: 2})"}), shell], [says("ok")])
    async with executor_of(tools, opened) as executor:
        with pytest.raises(openai.LoopError, match="nobody here answers shell_call: use `handle`") as ended:
            await openai.run(client, executor, model="m", input="hi")
        assert (ended.value.reply.runs, tools.reached) == ([], [])
        assert (await ended.value.reply.go()).text == "ok"
    assert wire.refusals == []
