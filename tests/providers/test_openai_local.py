"""The hosted form served here: one application, unchanged, against the vendor's service and against this machine."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest

from bridge import Executor, Policy, allow, openai
from sandbox import Limits, Sandbox
from tests.providers.openai_application import CODE, SUM, TEXT, TOOLS, Application, item_of, shape
from tests.providers.openai_shop import STREAMS, Tools, client_of, executor_of
from tests.providers.openai_wire import (
    EVENTS,
    Turn,
    Wire,
    called_by,
    calls,
    program,
    program_output,
    says,
    thinks,
    writes,
)

pytestmark = [pytest.mark.anyio, STREAMS]


@pytest.mark.parametrize(
    ("kind", "store", "stream", "raw"),
    [
        ("async", True, False, False),
        ("async", False, False, True),
        ("async", True, True, True),
        ("async", False, True, False),
        ("sync", True, True, False),
        ("sync", False, False, True),
    ],
)
async def test_an_application_gets_the_same_items_in_the_same_order_from_here(
    wire: Wire, opened: Sandbox, kind: str, store: bool, stream: bool, raw: bool
) -> None:
    code = writes(CODE) if raw else calls("run_program", {"program": CODE})
    a, b = calls("stock", {"sku": "a"}, 11, **called_by()), calls("stock", {"sku": "b"}, 12, **called_by())
    c = calls("stock", {"sku": "c20"}, 13, **called_by())
    for item in (a, b, c):
        item["arguments"] = item["arguments"].replace(" ", "")
    async with client_of(wire) as vendor:
        wire.play([thinks(), program(CODE), a, b], [c], [program_output(SUM), says("30 units")])
        there = Application(vendor, store=store, stream=stream)
        assert await there.run() == "30 units"
    wire.play([thinks(2), code], [says("30 units", 2)])
    async with client_of(wire, kind) as client:
        if kind == "async":
            async with Executor([], sandbox=opened) as executor:
                here = Application(openai.local(client, executor, raw=raw), store=store, stream=stream)
                assert await here.run() == "30 units"
        else:

            def synchronously() -> Application:
                with Executor([]) as executor:
                    here = Application(openai.local(client, executor, raw=raw), store=store, stream=stream)
                    return drive(here)

            here = await anyio.to_thread.run_sync(synchronously)
    assert shape(here.seen) == shape(there.seen)
    assert wire.refusals == []
    if stream:
        types = [event.type for event in here.events if "output_item" in event.type]
        assert types == [event.type for event in there.events if "output_item" in event.type]
        output: list[Any] = []
        for event in here.events:
            EVENTS.validate_python(event.to_dict(mode="json"))
            output = [] if event.type == "response.created" else output
            if event.type == "response.output_item.done":
                assert event.output_index == len(output)
                output.append(event.item)
            elif event.type == "response.completed":
                assert event.response.output == output
        assert [event.sequence_number for event in here.events[-3:]] == list(
            range(here.events[-3].sequence_number, here.events[-1].sequence_number + 1)
        )


def drive(application: Application) -> Application:
    """Run a coroutine that never waits."""
    running = application.run()
    with pytest.raises(StopIteration) as ended:
        running.send(None)
    assert ended.value.value == "30 units"
    return application


async def test_the_model_gets_the_code_tool_and_what_it_may_call_itself(
    wire: Wire, client: Any, opened: Sandbox
) -> None:
    wire.play([says("hi")])
    async with Executor([], sandbox=opened) as executor:
        application = Application(openai.local(client, executor), instructions="Be brief.")
        await application.run()
    [request] = wire.requests
    assert [tool["name"] for tool in request["tools"]] == ["run_program", "note"]
    assert not {"allowed_callers", "output_schema"} & {name for tool in request["tools"] for name in tool}
    assert request["instructions"].startswith("Be brief.\n\nWrite one JavaScript program.")
    assert "stock(args: { sku: string }): Promise<{ units?: number }>" in request["instructions"]
    assert "note(" not in request["instructions"]
    echoed = application.response
    assert [tool.type for tool in echoed.tools] == ["function", "function", "programmatic_tool_calling"]
    assert echoed.instructions == "Be brief."


async def test_a_forced_program_is_forced_once(wire: Wire, client: Any, opened: Sandbox) -> None:
    wire.play([calls("run_program", {"program": "return 1"})], [says("one")])
    async with Executor([], sandbox=opened) as executor:
        application = Application(openai.local(client, executor), tool_choice={"type": "programmatic_tool_calling"})
        assert await application.run() == "one"
    choices = [request.get("tool_choice") for request in wire.requests]
    assert choices == [{"type": "function", "name": "run_program"}, None]


async def test_a_program_that_waits_for_nobody_and_the_final_message_come_in_one_response(
    wire: Wire, client: Any, tools: Tools, opened: Sandbox
) -> None:
    wire.play([calls("run_program", {"program": "return await tools.add({a: 1, b: 2})"})], [says("three")])
    async with executor_of(tools, opened) as executor:
        application = Application(openai.local(client, executor))
        assert await application.run() == "three"
        assert [item["type"] for item in application.seen] == ["program", "program_output", "message"]
        assert application.response.id == "resp_2"
        assert application.response.usage.total_tokens == 220
        wire.play([says("bye")])
        assert await application.create([{"role": "user", "content": "thanks"}])
    assert wire.refusals == []
    assert wire.requests[-1]["previous_response_id"] == "resp_2"


async def test_a_failure_is_told_in_the_result_which_is_completed_all_the_same(
    wire: Wire, client: Any, opened: Sandbox
) -> None:
    wire.play(
        [calls("run_program", {"program": "throw new Error('no')"})], [calls("run_program", "{", 2)], [says("ok")]
    )
    async with Executor([], sandbox=opened) as executor:
        application = Application(openai.local(client, executor), store=False)
        assert await application.run() == "ok"
    outputs = [item for item in application.seen if item["type"] == "program_output"]
    assert [item["status"] for item in outputs] == ["completed", "completed"]
    assert outputs[0]["result"].startswith("[sandbridge] failed")
    assert outputs[1]["result"].startswith(
        "[sandbridge] error invalid_arguments: the arguments of run_program are no JSON"
    )
    assert wire.refusals == []


async def test_a_program_that_was_cut_off_is_not_run(wire: Wire, client: Any, opened: Sandbox) -> None:
    wire.play(Turn([thinks(), writes("return await tools.sto")], "incomplete", "max_output_tokens"), [says("ok")])
    async with Executor([], sandbox=opened) as executor:
        application = Application(openai.local(client, executor, raw=True))
        output = await application.create(application.history)
        assert [item["type"] for item in output] == ["reasoning", "program", "program_output"]
        assert "the response was cut off (max_output_tokens)" in output[2]["result"]
        assert application.response.status == "incomplete"
        assert [item["type"] for item in await application.create([])] == ["message"]
    assert wire.refusals == []


async def test_several_programs_of_one_response_are_told_apart_by_their_callers(
    wire: Wire, client: Any, opened: Sandbox
) -> None:
    one = calls("run_program", {"program": "return (await tools.stock({sku: 'one'})).sku"}, 1)
    two = calls("run_program", {"program": "return (await tools.stock({sku: 'two'})).sku"}, 2)
    wire.play([one, two], [says("both")])
    async with Executor([], sandbox=opened) as executor:
        application = Application(openai.local(client, executor), store=False)
        assert await application.run() == "both"
    outputs = {item["call_id"]: item["result"] for item in application.seen if item["type"] == "program_output"}
    asked = [item for item in application.seen if item["type"] == "function_call"]
    for call in asked:
        assert outputs[call["caller"]["caller_id"]] == json.loads(call["arguments"])["sku"]
    assert len(asked) == 2
    assert wire.refusals == []


async def test_raw_text_tools_namespaces_and_content_lists_reach_programs(
    wire: Wire, client: Any, opened: Sandbox
) -> None:
    code = """
    const rows = await tools.sql("select 1");
    const who = await tools.crm.get({ sku: "x" });
    return { rows, who };"""
    sql = {"type": "custom", "name": "sql", "allowed_callers": ["programmatic"]}
    inner = {"type": "function", "name": "get", "parameters": TEXT, "allowed_callers": ["direct", "programmatic"]}
    crm = {"type": "namespace", "name": "crm", "description": "Customers", "tools": [inner]}
    wire.play([calls("run_program", {"program": code})], [says("ok")])
    async with Executor([], sandbox=opened) as executor:
        application = Application(openai.local(client, executor), tools=[sql, crm, TOOLS[-1]])
        _, call = await application.create(application.history)
        assert (call["type"], call["name"], call["input"]) == ("custom_tool_call", "sql", "select 1")
        answer = {"type": "custom_tool_call_output", "call_id": call["call_id"], "caller": call["caller"]}
        [call] = await application.create([answer | {"output": "[1]"}])
        assert (call["name"], call["namespace"]) == ("get", "crm")
        picture = {"type": "input_image", "image_url": "data:x", "detail": "auto"}
        content = [{"type": "input_text", "text": "Ada"}, picture]
        output, _ = await application.create([item_of(call, "") | {"output": content}])
        assert json.loads(output["result"]) == {
            "rows": [1],
            "who": {"text": "Ada", "images": ["data:x"], "resources": []},
        }
    assert [tool["name"] for tool in wire.requests[0]["tools"]] == ["run_program", "crm"]


async def test_an_executors_own_tools_run_here_beside_those_of_the_application(
    wire: Wire, client: Any, tools: Tools, opened: Sandbox
) -> None:
    code = "return await tools.add({a: (await tools.stock({sku: 'a'})).units, b: 1})"
    wire.play([calls("run_program", {"program": code})], [says("11")])
    async with executor_of(tools, opened, policy=Policy([allow("*")])) as executor:
        application = Application(openai.local(client, executor))
        assert await application.run() == "11"
    assert tools.reached == [{"a": 10, "b": 1}]


async def test_requests_without_programs_and_errors_of_the_vendor_go_through_as_they_are(
    wire: Wire, client: Any, opened: Sandbox
) -> None:
    async with Executor([], sandbox=opened) as executor:
        local = openai.local(client, executor)
        wire.play([says("plain")], [says("streamed")])
        assert (await local.responses.create(model="m", input="hi")).output_text == "plain"
        assert "tools" not in wire.requests[0]
        async for event in await local.responses.create(model="m", input="hi", stream=True):
            last = event
        assert last.response.output_text == "streamed"
        with pytest.raises(Exception, match="Error code: 404 - a client of local"):
            await local.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}])
        for stream in (False, True):
            with pytest.raises(Exception, match="Error code: 400 - Missing required parameter: 'model'"):
                await local.responses.create(input="hi", tools=TOOLS, stream=stream)
        with pytest.raises(Exception, match="programs do not run in the background here"):
            await local.responses.create(model="m", input="hi", tools=TOOLS, background=True)
        mcp = {"type": "mcp", "server_label": "x", "server_url": "https://x", "allowed_callers": ["programmatic"]}
        with pytest.raises(Exception, match=r"type mcp is the vendor's, .* give the server to the executor"):
            await local.responses.create(model="m", input="hi", tools=[mcp, TOOLS[-1]])


async def test_a_program_over_a_limit_and_one_that_stalls_are_results_too(
    wire: Wire, client: Any, opened: Sandbox
) -> None:
    wire.play([calls("run_program", {"program": "for (;;) {}"})])
    wire.play([calls("run_program", {"program": "await new Promise(() => {})"}, 2)], [says("ok")])
    async with Executor([], sandbox=opened, limits=Limits(cpu_s=0.2)) as executor:
        application = Application(openai.local(client, executor), store=False)
        assert await application.run() == "ok"
    starts = [
        item["result"].split(";")[0].split(":")[0] for item in application.seen if item["type"] == "program_output"
    ]
    assert [text.split()[1] for text in starts] == ["exceeded", "stalled"]
    assert wire.refusals == []
