"""A paused conversation that goes on in another process: what was waited for, the transcript, the bounds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bridge import Approve, Deny, Policy, StateError, ask, openai
from bridge.openai import chat
from sandbox import Sandbox
from tests.providers.openai_shop import Tools, executor_of
from tests.providers.openai_wire import (
    Wire,
    called_by,
    calls,
    chat_calls,
    chat_says,
    program,
    program_output,
    says,
    thinks,
)

pytestmark = pytest.mark.anyio

PAY = "return [await tools.pay({a: 1, b: 0}), await tools.person({a: 2, b: 0})]"


def world(opened: Sandbox, tmp_path: Path) -> Any:
    """An executor with the same store as the one before it."""
    options = {"policy": Policy([ask("pay")]), "store": f"sqlite:///{tmp_path / 'runs.db'}"}
    return executor_of(Tools(), opened, **options)


@pytest.mark.parametrize("store", [True, False])
async def test_programs_and_direct_calls_go_on_where_they_stood(
    wire: Wire, client: Any, opened: Sandbox, tmp_path: Path, store: bool
) -> None:
    wire.play([thinks(), calls("run_program", {"program": PAY}), calls("person", {"a": 3, "b": 0}, 2)])
    wire.play([calls("run_program", {"program": "return 7"}, 3)], [says("done")])
    own = {"model": "m", "store": store, "direct": ["person"], "turns": 3}
    async with world(opened, tmp_path) as executor:
        talk = await openai.run(client, executor, input="hi", **own)
        state = talk.dump()
    assert json.loads(state)["turns"] == 1
    async with world(opened, tmp_path) as executor:
        talk = await openai.load(client, executor, state, **own)
        assert (talk.status, talk.turns, len(talk.runs)) == ("paused", 1, 2)
        [request], [pending] = talk.approvals, talk.pending
        talk = await talk.resume({request.id: Approve(), pending.id: "three"})
        assert [call.arguments for call in talk.pending] == [{"a": 2, "b": 0}]
        talk = await talk.resume({talk.pending[0].id: "two"})
        assert (talk.status, talk.text, talk.turns) == ("finished", "done", 3)
        with pytest.raises(StateError):
            await openai.load(client, executor, state, **own)
    first = [item["output"] for item in wire.requests[1]["input"] if "output" in item]
    assert [text.split("\n")[-1] for text in first] == ['[{"paid":1},"two"]', "three"]
    assert wire.refusals == []


async def test_a_wave_of_the_vendors_program_goes_on_and_what_had_ended_is_kept(
    wire: Wire, client: Any, opened: Sandbox, tmp_path: Path
) -> None:
    wire.play(
        [
            program("one", 1),
            calls("add", {"a": 1, "b": 2}, 1, **called_by(1)),
            program("two", 2),
            calls("pay", {"a": 5, "b": 0}, 2, **called_by(2)),
        ],
        [program_output("x", 1), program_output("y", 2), says("ok")],
    )
    async with world(opened, tmp_path) as executor:
        state = (await openai.run(client, executor, model="m", input="hi", hosted=True)).dump()
    async with world(opened, tmp_path) as executor:
        talk = await openai.load(client, executor, state, model="m", hosted=True)
        talk = await talk.resume({talk.approvals[0].id: Deny("no")})
        assert talk.text == "ok"
    first, second = (item["output"] for item in wire.requests[1]["input"])
    assert first == "3"
    assert json.loads(second)["error"]["code"] == "denied"
    assert wire.refusals == []


async def test_a_conversation_over_chat_completions_goes_on_where_it_stood(
    wire: Wire, client: Any, opened: Sandbox, tmp_path: Path
) -> None:
    wire.play([chat_says(None, chat_calls("run_program", {"program": "return await tools.pay({a: 4, b: 0})"}))])
    wire.play([chat_says("done")])
    hi = [{"role": "user", "content": "hi"}]
    async with world(opened, tmp_path) as executor:
        state = (await chat.run(client, executor, model="m", messages=hi)).dump()
    async with world(opened, tmp_path) as executor:
        talk = await chat.load(client, executor, state, model="m")
        talk = await talk.resume({talk.approvals[0].id: Approve()})
        assert (talk.text, talk.transcript[0]) == ("done", hi[0])
    assert wire.requests[1]["messages"][-1]["content"].endswith('{"paid":4}')
    assert wire.refusals == []


async def test_what_is_no_state_is_refused(wire: Wire, client: Any, opened: Sandbox, tmp_path: Path) -> None:
    wire.play([calls("run_program", {"program": PAY})], [says("ok")])
    asked = {"type": "mcp_approval_request", "id": "mcpr_1", "server_label": "c", "name": "t", "arguments": "{}"}
    wire.play([asked])
    mcp = {"type": "mcp", "server_label": "c", "server_url": "https://example.com"}
    async with world(opened, tmp_path) as executor:
        talk = await openai.run(client, executor, model="m", input="hi")
        for state in ("{", "[]", '{"version": 1}', talk.dump().replace('"version": 1', '"version": 9')):
            with pytest.raises(StateError, match=r"this is no state|has version 9"):
                await openai.load(client, executor, state, model="m")
        with pytest.raises(StateError, match="of 'responses', and only version 1 of chat is known here"):
            await chat.load(client, executor, talk.dump(), model="m")
    async with executor_of(Tools(), opened) as executor:
        wire.turns[:] = [[asked]]
        talk = await openai.run(client, executor, model="m", input="hi", tools=[mcp])
        with pytest.raises(StateError, match="approvals of calls that the vendor makes cannot be put away"):
            talk.dump()
        wire.turns[:] = [[says("ok")]]
        assert (await talk.resume({talk.approvals[0].id: Deny()})).text == "ok"
        with pytest.raises(StateError, match="the conversation is finished"):
            talk.dump()


async def test_the_same_failure_again_and_again_is_counted_over_pauses(
    wire: Wire, client: Any, opened: Sandbox, tmp_path: Path
) -> None:
    worse = "await tools.person({a: 1, b: 0}); throw new Error('no')"
    wire.play(*([calls("run_program", {"program": worse}, number)] for number in (1, 2, 3)))
    async with world(opened, tmp_path) as executor:
        talk = await openai.run(client, executor, model="m", input="hi")
        for _ in range(2):
            talk = await openai.load(client, executor, talk.dump(), model="m")
            await talk.resume({talk.pending[0].id: 1})
        talk = await openai.load(client, executor, talk.dump(), model="m")
        with pytest.raises(openai.RepeatedFailure, match="the model failed 3 times in the same way"):
            await talk.resume({talk.pending[0].id: 1})
    assert len(wire.requests) == 3
