"""The single step of the Responses API, for loops of one's own."""

from __future__ import annotations

from typing import Any

import pytest
from openai.types.responses import Response

import bridge
from bridge import StateError, allow, openai
from sandbox import Sandbox
from tests.providers.openai_shop import ADD, ADDED, STREAMS, Tools, executor_of, program
from tests.providers.openai_wire import Wire, calls, says

pytestmark = [pytest.mark.anyio, STREAMS]


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
