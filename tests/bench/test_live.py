"""Live models through the vendor's own client, against a server that speaks the wire strictly.

What the server refuses would be refused by the vendor: so the bodies that the benchmark counts can be sent.
"""

from __future__ import annotations

import json
from collections.abc import Generator
from typing import Any

import pytest

from bridge.bench import calibrate, live
from bridge.bench.arms import ARMS, policy
from bridge.bench.wire import FORMATS
from bridge.bench.workloads import workload
from bridge.errors import ConfigurationError
from sandbox import Sandbox
from tests.providers.openai_wire import Wire, calls, chat_calls, chat_says, says, served

TASK = workload("adverse")(3, 1)[3]  # two independent calls
CALLS = TASK.turns[0].calls
PROGRAM = TASK.turns[0].programs.oracle["projection"]


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Generator[Wire]:
    with served() as wire:
        monkeypatch.setenv("OPENAI_API_KEY", "sk-secret-of-a-test")
        monkeypatch.setenv("OPENAI_BASE_URL", wire.base_url)
        yield wire


def direct() -> list[Any]:
    return [calls(call.tool, dict(call.arguments), number) for number, call in enumerate(CALLS, 1)]


async def played(sandbox: Sandbox, arm: str, form: str) -> tuple[Any, list[live.Answer]]:
    respond = live.live(form, "gpt-test", calibrate.client_of("openai"))
    return await live.play(TASK, ARMS[arm], policy("projection"), FORMATS[form], sandbox, respond)


@pytest.mark.anyio
@pytest.mark.parametrize("arm", ["direct-par", "prog-decl", "prog-equal"])
async def test_a_strict_responses_server_takes_every_body(opened: Sandbox, wire: Wire, arm: str) -> None:
    wire.play([calls("run_program", {"program": PROGRAM})] if "prog" in arm else direct(), [says("Done.")])
    found, answers = await played(opened, arm, "responses")
    assert wire.refusals == []
    assert found.executed
    assert [answer.usage for answer in answers] == [
        {"input": 100, "cached": 0, "output": 10, "cache_write": 0, "reasoning": 0}
    ] * 2
    sent = [json.loads(body.text) for body, _ in found.requests]
    assert [request["input"] for request in wire.requests] == [body["input"] for body in sent]
    assert [request["tools"] for request in wire.requests] == [body["tools"] for body in sent]


@pytest.mark.anyio
@pytest.mark.parametrize("arm", ["direct-par", "prog-decl"])
async def test_a_strict_chat_server_takes_every_body(opened: Sandbox, wire: Wire, arm: str) -> None:
    made = [chat_calls(call.tool, dict(call.arguments), number) for number, call in enumerate(CALLS, 1)]
    program = [chat_calls("run_program", {"program": PROGRAM})]
    wire.play([chat_says(None, *(program if "prog" in arm else made))], [chat_says("Done.")])
    found, _ = await played(opened, arm, "chat")
    assert wire.refusals == []
    assert found.executed


@pytest.mark.anyio
async def test_a_model_that_makes_other_calls_has_not_executed_the_plan(opened: Sandbox, wire: Wire) -> None:
    wire.play(direct()[:1], [says("I did one only.")])
    found, _ = await played(opened, "direct-par", "responses")
    assert not found.executed
    assert len(found.made) == 1


@pytest.mark.anyio
async def test_a_model_that_never_ends_is_ended(opened: Sandbox, wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "TURNS", 3)
    call = CALLS[0]
    wire.play(*[[calls(call.tool, dict(call.arguments), number)] for number in range(live.TURNS)])
    found, answers = await played(opened, "direct-par", "responses")
    assert not found.executed
    assert len(answers) == live.TURNS


@pytest.mark.anyio
async def test_live_models_have_no_search(opened: Sandbox, wire: Wire) -> None:
    with pytest.raises(ConfigurationError, match="prog-search: live models have no search here"):
        await played(opened, "prog-search", "responses")


@pytest.mark.anyio
@pytest.mark.parametrize("form", ["responses", "chat"])
async def test_a_call_of_a_tool_that_is_not_there_is_answered(opened: Sandbox, wire: Wire, form: str) -> None:
    if form == "responses":
        wire.play([calls("invented", {}), *direct()[1:]], [says("Done.")])
    else:
        wire.play([chat_says(None, chat_calls("invented", {}))], [chat_says("Done.")])
    found, _ = await played(opened, "direct-par", form)
    assert wire.refusals == []
    assert "there is no tool 'invented'" in found.requests[-1][0].text
    assert not found.executed
