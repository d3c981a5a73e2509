"""Calls that wait in the hosted form served here: who answers them, in what order and process, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bridge import Executor, Policy, ask, deny, openai
from sandbox import Sandbox
from tests.providers.openai_application import CODE, NOTE, SUM, Application, item_of, stock
from tests.providers.openai_shop import STREAMS, Tools, executor_of
from tests.providers.openai_wire import Wire, calls, says, thinks

pytestmark = [pytest.mark.anyio, STREAMS]


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
