"""The hosted form served here: one application, unchanged, against the vendor's service and against this machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from bridge import Executor, Policy, allow, ask, deny, openai
from sandbox import Limits, Sandbox
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

TEXT = {"type": "object", "properties": {"sku": {"type": "string"}}, "required": ["sku"], "additionalProperties": False}
STOCK = {
    "type": "function",
    "name": "stock",
    "description": "Stock of one SKU.",
    "strict": True,
    "parameters": TEXT,
    "output_schema": {"type": "object", "properties": {"units": {"type": "number"}}},
    "allowed_callers": ["programmatic"],
}
NOTE = {"type": "function", "name": "note", "parameters": TEXT, "strict": True}
TOOLS = [STOCK, NOTE, {"type": "programmatic_tool_calling"}]
CODE = """\
const found = await Promise.all(["a", "b"].map((sku) => tools.stock({ sku })));
const last = await tools.stock({ sku: `c${found[0].units + found[1].units}` });
return { sum: found[0].units + found[1].units + last.units }"""
SUM = '{"sum":30}'


def stock(call: Any) -> str:
    return json.dumps({"units": 10, **json.loads(call["arguments"])})


def item_of(call: Any, output: str) -> Any:
    made = {"type": "function_call_output", "call_id": call["call_id"], "output": output}
    return made | ({"caller": call["caller"]} if call.get("caller") else {})


class Application:
    """What such an application does: answer every call, wave by wave, until the final message."""

    def __init__(self, client: Any, *, store: bool = True, stream: bool = False, **request: Any) -> None:
        self.client = client
        self.request = {"model": "m", "tools": TOOLS, "store": store} | request
        if not store:
            self.request["include"] = ["reasoning.encrypted_content"]
        self.store = store
        self.stream = stream
        self.history: list[Any] = [{"role": "user", "content": "How many?"}]
        self.seen: list[Any] = []
        self.events: list[Any] = []
        self.response: Any = None

    async def create(self, new: list[Any]) -> list[Any]:
        request: dict[str, Any] = {"input": new}
        if not self.store:
            request = {"input": self.history}
        elif self.response is not None:
            request["previous_response_id"] = self.response.id
        made = self.client.responses.create(**self.request, **request, stream=self.stream)
        if hasattr(made, "__await__"):
            made = await made
        if self.stream:
            events = [event async for event in made] if hasattr(made, "__aiter__") else list(made)
            self.events += events
            made = events[-1].response
        self.response = made
        output = [item.to_dict(mode="json") for item in made.output]
        self.history += output
        self.seen += output
        return output

    async def run(self, answer: Any = stock) -> str:
        output = await self.create(list(self.history))
        while not any(item["type"] == "message" for item in output):
            waits = [item for item in output if item["type"] == "function_call"]
            new = [item_of(call, answer(call)) for call in waits]
            self.history += new
            output = await self.create(new)
        return self.response.output_text


def shape(items: list[Any]) -> list[Any]:
    """Items with what differs between two runs put out of the way: ids by their order of appearance."""
    known: dict[str, str] = {}

    def plain(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {name: plain(part, name) for name, part in sorted(value.items()) if part is not None}
        if isinstance(value, list):
            return [plain(part) for part in value]
        if key in ("id", "call_id", "caller_id", "fingerprint", "encrypted_content"):
            return known.setdefault(value, f"{len(known)}")
        return value

    return [plain(item) for item in items]


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


async def test_calls_that_the_model_makes_itself_wait_beside_a_program(
    wire: Wire, client: Any, opened: Sandbox
) -> None:
    for store in (True, False):
        wire.play([calls("note", {"sku": "n"}, 5), calls("run_program", {"program": "return 1"})], [says("ok")])
        async with Executor([], sandbox=opened) as executor:
            application = Application(openai.local(client, executor), store=store)
            assert await application.run(lambda call: "noted") == "ok"
        assert [item["type"] for item in application.seen] == ["function_call", "program", "program_output", "message"]
    assert wire.refusals == []


async def test_calls_may_be_answered_one_by_one_and_those_that_wait_are_told_again(
    wire: Wire, client: Any, opened: Sandbox
) -> None:
    wire.play([calls("run_program", {"program": CODE})], [says("30 units")])
    async with Executor([], sandbox=opened) as executor:
        application = Application(openai.local(client, executor))
        _, a, b = await application.create(application.history)
        assert await application.create([item_of(b, stock(b))]) == [a]
        assert await application.create([]) == [a]
        [c] = await application.create([item_of(a, stock(a)) | {"caller": None}])
        assert json.loads(c["arguments"]) == {"sku": "c20"}
        assert [item["type"] for item in await application.create([item_of(c, stock(c))])] == [
            "program_output",
            "message",
        ]
    assert len(wire.requests) == 2


async def test_answers_that_fit_nothing_are_refused_and_change_nothing(
    wire: Wire, client: Any, opened: Sandbox
) -> None:
    wire.play([calls("run_program", {"program": CODE})], [says("30 units")])
    async with Executor([], sandbox=opened) as executor:
        application = Application(openai.local(client, executor))
        _, a, b = await application.create(application.history)
        good = item_of(a, stock(a))
        wrong = [
            ([good, good], "Duplicate tool output"),
            ([good | {"call_id": "call_x"}], "No tool call found for function call output with call_id call_x"),
            ([good | {"caller": {"type": "program", "caller_id": "other"}}], "was not echoed"),
            ([good | {"caller": {"type": "direct"}}], "was not echoed"),
            (
                [{"type": "mcp_approval_response", "approval_request_id": a["call_id"], "approve": True}],
                "does not answer",
            ),
        ]
        for items, said in wrong:
            with pytest.raises(Exception, match=said):
                await application.create(items)
        with pytest.raises(Exception, match="its continuation needs programmatic_tool_calling"):
            await client_without_programs(application, good)
        [c] = await application.create([good, item_of(b, stock(b))])
        assert json.loads(c["arguments"]) == {"sku": "c20"}


async def client_without_programs(application: Application, item: Any) -> None:
    request = {"model": "m", "previous_response_id": application.response.id}
    await application.client.responses.create(**request, input=[item], tools=[NOTE])


async def test_a_history_whose_program_is_not_here_is_refused(wire: Wire, client: Any, opened: Sandbox) -> None:
    wire.play([calls("run_program", {"program": CODE})])
    async with Executor([], sandbox=opened) as executor:
        application = Application(openai.local(client, executor), store=False)
        _, a, b = await application.create([])
        application.history += [item_of(a, "1"), item_of(b, "1")]
        application.client = openai.local(client, executor)
        with pytest.raises(Exception, match="program call_1 does not wait here: "):
            await application.create([])


@pytest.mark.parametrize("store", [True, False])
async def test_a_program_that_waits_goes_on_in_another_process_with_a_store(
    wire: Wire, client: Any, opened: Sandbox, store: bool, tmp_path: Path
) -> None:
    kept = f"sqlite:///{tmp_path / 'runs.db'}"
    wire.play([thinks(), calls("note", {"sku": "n"}, 5), calls("run_program", {"program": CODE})], [says("30 units")])
    async with Executor([], sandbox=opened, store=kept) as executor:
        application = Application(openai.local(client, executor), store=store)
        _, note, _, a, b = await application.create(application.history)
        application.history += [item_of(a, stock(a))]
        assert await application.create([item_of(a, stock(a))]) == [b]
        if not store:  # told again, it is in the history twice
            application.history.pop()
    async with Executor([], sandbox=opened, store=kept) as executor:
        application.client = openai.local(client, executor)
        application.history += [item_of(b, stock(b)), item_of(note, "noted")]
        [c] = await application.create([item_of(b, stock(b)), item_of(note, "noted")])
        assert json.loads(c["arguments"]) == {"sku": "c20"}
        application.history += [item_of(c, stock(c))]
        output, message = await application.create([item_of(c, stock(c))])
        assert (output["result"], message["type"]) == (SUM, "message")
    assert wire.refusals == []


async def test_what_policy_asks_about_is_an_approval_request_on_the_wire(
    wire: Wire, client: Any, tools: Tools, opened: Sandbox
) -> None:
    pay = "const said = await Promise.allSettled([tools.pay({a: 1, b: 0}), tools.pay({a: 2, b: 0})]);\n"
    wire.play([calls("run_program", {"program": pay + "return said.map((one) => one.value ?? one.reason.code)"})])
    wire.play([says("ok")])
    async with executor_of(tools, opened, policy=Policy([ask("pay")])) as executor:
        application = Application(openai.local(client, executor))
        made, first, second = await application.create(application.history)
        assert (first["type"], first["name"], first["server_label"]) == ("mcp_approval_request", "pay", "sandbridge")
        assert first["caller"] == {"type": "program", "caller_id": made["call_id"]}
        approve = {"type": "mcp_approval_response", "approval_request_id": first["id"], "approve": True}
        refuse = {
            "type": "mcp_approval_response",
            "approval_request_id": second["id"],
            "approve": False,
            "reason": "no",
        }
        output, message = await application.create([approve, refuse])
        assert json.loads(output["result"].split("\n")[0]) == [{"paid": 1}, "denied"]
        assert message["type"] == "message"
    assert tools.reached == [{"a": 1, "b": 0}]


async def test_a_history_without_callers_and_with_approvals_is_the_models_own_again(
    wire: Wire, client: Any, tools: Tools, opened: Sandbox
) -> None:
    code = "await tools.pay({a: 1, b: 0}); return (await tools.stock({sku: 'a'})).units"
    wire.play([thinks(), calls("run_program", {"program": code})], [says("10")], [says("bye", 2)])
    async with executor_of(tools, opened, policy=Policy([ask("pay")])) as executor:
        application = Application(openai.local(client, executor), store=False)
        *_, asked = await application.create([])
        application.history.append(
            {"type": "mcp_approval_response", "approval_request_id": asked["id"], "approve": True}
        )
        [call] = await application.create([])
        application.history.append(item_of(call, stock(call)) | {"caller": None})
        await application.create([])
        application.history.append({"role": "user", "content": "thanks"})
        await application.create([])
    types = [item.get("type") for item in wire.requests[-1]["input"]]
    assert types == [None, "reasoning", "function_call", "function_call_output", "message", None]
    assert wire.refusals == []


async def test_rules_hold_for_the_applications_own_functions(wire: Wire, client: Any, opened: Sandbox) -> None:
    wire.play([calls("run_program", {"program": "return await tools.stock({sku: 'a'})"})], [says("ok")])
    async with Executor([], sandbox=opened, policy=Policy([deny("stock")])) as executor:
        application = Application(openai.local(client, executor))
        assert await application.run() == "ok"
    assert "stock was denied" in application.seen[1]["result"]


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
