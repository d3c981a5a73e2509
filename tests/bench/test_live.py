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
from sandbox import Sandbox
from tests.providers import anthropic_wire
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


def looks(form: str, number: int = 7) -> Any:
    """A call of the search tool."""
    given = {"query": " ".join(call.tool for call in CALLS), "limit": 50}
    return calls("search_tools", given, number) if form == "responses" else chat_calls("search_tools", given, number)


@pytest.mark.anyio
@pytest.mark.parametrize("form", ["responses", "chat"])
@pytest.mark.parametrize("arm", ["direct-search", "prog-search"])
async def test_a_live_model_searches_and_calls_what_it_found(opened: Sandbox, wire: Wire, arm: str, form: str) -> None:
    if form == "responses":
        made = [calls("run_program", {"program": PROGRAM})] if arm == "prog-search" else direct()
        wire.play([looks(form)], made, [says("Done.")])
    else:
        program = [chat_calls("run_program", {"program": PROGRAM})]
        direct_calls = [chat_calls(call.tool, dict(call.arguments), number) for number, call in enumerate(CALLS, 1)]
        made = program if arm == "prog-search" else direct_calls
        wire.play([chat_says(None, looks(form))], [chat_says(None, *made)], [chat_says("Done.")])
    found, _ = await played(opened, arm, form)
    assert wire.refusals == []
    assert found.executed
    assert found.searches == 1
    before, after, _ = [{(each.get("function") or each)["name"] for each in sent["tools"]} for sent in wire.requests]
    wanted = {call.tool for call in CALLS}
    assert before == ({"search_tools"} if arm == "direct-search" else {"run_program", "search_tools"})
    assert (wanted <= after) == (arm == "direct-search")  # to direct calls they are loaded, to programs declared
    if arm == "prog-search":
        assert all(f"{name}(" in found.requests[1][0].text for name in wanted)


@pytest.mark.anyio
async def test_a_search_that_cannot_be_meant_is_answered_beside_the_calls_of_the_same_message(
    opened: Sandbox, wire: Wire
) -> None:
    wire.play([calls("search_tools", {"words": 1}, 7), *direct()], [says("Done.")])
    found, _ = await played(opened, "direct-search", "responses")
    assert wire.refusals == []
    assert "error invalid_arguments" in found.requests[-1][0].text
    assert found.executed


@pytest.mark.anyio
@pytest.mark.parametrize("arm", ["direct-par", "prog-decl", "direct-search", "prog-search"])
async def test_a_strict_messages_server_takes_every_body(
    opened: Sandbox, monkeypatch: pytest.MonkeyPatch, arm: str
) -> None:
    with anthropic_wire.serving() as wire:
        monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-secret-of-a-test")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", wire.base_url)
        search = {"query": " ".join(call.tool for call in CALLS), "limit": 50}
        if arm.endswith("search"):
            wire.play([use("search_tools", search, "toolu_0")])
        program = [use("run_program", {"program": PROGRAM}, "toolu_1")]
        made = [use(call.tool, dict(call.arguments), f"toolu_{number}") for number, call in enumerate(CALLS, 1)]
        wire.play(program if "prog" in arm else made, [{"type": "text", "text": "Done."}])
        async with calibrate.client_of("anthropic") as client:
            respond = live.live("anthropic", "claude-test", client)
            format_ = FORMATS["anthropic"]
            found, answers = await live.play(TASK, ARMS[arm], policy("projection"), format_, opened, respond)
    assert wire.refusals == []
    assert found.executed
    assert answers[0].usage["input"] == 100


def use(name: str, given: dict[str, Any], call_id: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": given, "caller": {"type": "direct"}}


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
