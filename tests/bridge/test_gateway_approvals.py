"""Approvals by the person at a host, or beside it: one decision for one call, and nothing of one host for another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp.shared.exceptions import MCPError

from bridge import Approve, Deny, Executor, Policy, ask
from bridge.gateway import Gateway, asking, runs
from bridge.store import Store
from bridge.verdicts import judge, waiting
from sandbox import Limits, Sandbox
from tests.bridge.hosts import Paid, Person, data, host, run, says, text

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module", params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return request.param


async def test_the_hosts_person_sees_everything_and_the_program_goes_on(
    gateway: Gateway, shop: Paid, revision: str
) -> None:
    person = Person(says("approve"))
    async with host(gateway, revision, person) as client:
        result = await run(client, "\nreturn await tools.pay({ text: 'Ana\u202e' })")
    assert "\n".join(person.read) == (
        "Sandbridge: a program that the model wrote wants to make a call that needs your approval.\n"
        "\n"
        "call of pay\n"
        'asked because: rule ask "pay"\n'
        "arguments, in full (18 bytes):\n"
        "  {\n"
        '    "text": "Ana\\u{202e}"\n'
        "  }\n"
        "by the program's claim: line 2: return await tools.pay({ text: 'Ana\\u{202e}' })"
    )
    assert data(result)["value"] == "paid Ana\u202e"
    assert shop.payments == ["Ana\u202e"]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (says("deny", "too much"), "pay was denied: too much"),
        (says("deny"), "pay was denied: a person denied it"),
        (types.ElicitResult(action="decline"), "pay was denied: a person declined it"),
        (
            types.ElicitResult(action="decline", content={"decision": "approve"}),
            "pay was denied: a person declined it",
        ),
    ],
)
async def test_a_denial_reaches_the_program(
    gateway: Gateway, shop: Paid, revision: str, answer: types.ElicitResult, said: str
) -> None:
    program = "try { await tools.pay({ text: 'Ana' }) } catch (error) { return [error.code, error.message] }"
    async with host(gateway, revision, Person(answer)) as client:
        result = await run(client, program)
    assert data(result)["value"] == ["denied", said]
    assert shop.payments == []


@pytest.mark.parametrize(
    "answer",
    [
        types.ElicitResult(action="cancel"),
        types.ElicitResult(action="cancel", content={"decision": "approve"}),
        types.ElicitResult(action="accept"),
        types.ElicitResult(action="accept", content={}),
        types.ElicitResult(action="accept", content={"decision": "yes"}),
        types.ElicitResult(action="accept", content={"approve": True}),
    ],
)
async def test_an_answer_that_decides_nothing_pauses_the_run(
    gateway: Gateway, shop: Paid, revision: str, answer: types.ElicitResult
) -> None:
    async with host(gateway, revision, Person(answer)) as client:
        result = await run(client, "return await tools.pay({ text: 'Ana' })")
    assert data(result)["status"] == "paused"
    assert data(result)["waiting"] == [{"tool": "pay", "line": 1}]
    assert shop.payments == []


async def test_a_run_that_was_put_off_is_asked_about_again_when_it_is_resumed(
    gateway: Gateway, shop: Paid, revision: str
) -> None:
    person = Person(types.ElicitResult(action="cancel"), says("approve"))
    async with host(gateway, revision, person) as client:
        paused = await run(client, "return await tools.pay({ text: 'Ana' })")
        assert shop.payments == []
        result = await client.call_tool("resume_program", {"run_id": data(paused)["run_id"]})
        assert data(result)["value"] == "paid Ana"
        again = await client.call_tool("resume_program", {"run_id": data(paused)["run_id"]})
    assert data(again) == data(result)
    assert shop.payments == ["Ana"]


async def test_calls_that_are_decided_alike_are_one_question(gateway: Gateway, shop: Paid, revision: str) -> None:
    person = Person(says("approve"))
    program = "return await Promise.all(['Ana', 'Ben'].map((text) => tools.pay({ text })))"
    async with host(gateway, revision, person) as client:
        result = await run(client, program)
    assert len(person.read) == 1
    assert "2 calls of pay" in person.read[0]
    assert data(result)["value"] == ["paid Ana", "paid Ben"]


async def test_each_later_call_is_asked_about_unless_the_run_was_approved(
    gateway: Gateway, shop: Paid, revision: str
) -> None:
    program = "for (const text of ['Ana', 'Ben', 'Cyd']) await tools.pay({ text })"
    each, once = Person(says("approve"), says("approve"), says("approve")), Person(says("approve_run"))
    async with host(gateway, revision, each) as client:
        await run(client, program)
    async with host(gateway, revision, once) as client:
        await run(client, program)
    assert (len(each.read), len(once.read)) == (3, 1)
    assert "before this, the run did:" in each.read[2]
    assert len(shop.payments) == 6


async def test_a_host_that_cannot_ask_gets_a_pause_that_says_how_to_go_on(
    gateway: Gateway, shop: Paid, revision: str
) -> None:
    async with host(gateway, revision) as client:
        result = await run(client, "return await tools.pay({ text: 'Ana' })")
        run_id = data(result)["run_id"]
        again = await client.call_tool("resume_program", {"run_id": run_id})
    assert result.is_error is False
    assert text(result).startswith("[sandbridge] paused; 1 call (1 waiting)")
    assert (
        f'It waits for the decision of a person, not yours. Once there is one, resume_program({{ run_id: "{run_id}"'
        in (text(result))
    )
    assert data(again)["status"] == "paused"
    assert shop.payments == []


async def test_a_question_too_long_to_be_read_is_not_asked(gateway: Gateway, shop: Paid, revision: str) -> None:
    person = Person(says("approve"))
    async with host(gateway, revision, person) as client:
        result = await run(client, "return await tools.pay({ text: 'x'.repeat(20_000) })")
    assert data(result)["status"] == "paused"
    assert data(result)["warnings"] == [
        "the host's person was not asked: what would be asked is too long to be read in a dialogue"
    ]
    assert person.read == []


async def test_a_run_that_does_not_wait_cannot_be_resumed(gateway: Gateway, revision: str) -> None:
    async with host(gateway, revision) as client:
        result = await client.call_tool("resume_program", {"run_id": "no such run"})
    assert result.is_error is True
    assert text(result) == "there is no run 'no such run' of yours that waits: start the program again"


async def test_a_run_goes_on_in_another_session_of_its_host(gateway: Gateway, shop: Paid, revision: str) -> None:
    async with host(gateway, revision) as client:
        paused = await run(client, "return await tools.pay({ text: 'Ana' })")
    async with host(gateway, revision, Person(says("approve"))) as client:
        result = await client.call_tool("resume_program", {"run_id": data(paused)["run_id"]})
    assert data(result)["value"] == "paid Ana"
    assert shop.payments == ["Ana"]


async def test_a_person_decides_beside_the_gateway_and_the_run_goes_on(
    opened: Sandbox, shop: Paid, revision: str, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path / 'runs.db'}"
    async with (
        Executor(shop.tools(), policy=Policy([ask("pay")]), sandbox=opened, store=url) as executor,
        host(Gateway(executor), revision) as client,
    ):
        paused = await run(client, "return [await tools.pay({ text: 'Ana' }), await tools.pay({ text: 'Ben' })]")
        run_id = data(paused)["run_id"]
        await anyio.to_thread.run_sync(decide, url, run_id, Approve())
        again = await client.call_tool("resume_program", {"run_id": run_id})
        assert (data(again)["status"], data(again)["waiting"]) == ("paused", [{"tool": "pay", "line": 1}])
        await anyio.to_thread.run_sync(decide, url, run_id, Approve())
        result = await client.call_tool("resume_program", {"run_id": run_id})
    assert data(result)["value"] == ["paid Ana", "paid Ben"]
    assert shop.payments == ["Ana", "Ben"]


async def test_a_run_outlives_the_gateway_that_started_it(
    opened: Sandbox, shop: Paid, revision: str, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path / 'runs.db'}"
    policy = Policy([ask("pay")])
    program = "return [await tools.echo({ text: 'Hi' }), await tools.pay({ text: 'Ana' })]"
    async with (
        Executor(shop.tools(), policy=policy, sandbox=opened, store=url) as executor,
        host(Gateway(executor), revision) as client,
    ):
        run_id = data(await run(client, program))["run_id"]
    await anyio.to_thread.run_sync(decide, url, run_id, Approve())
    async with (
        Executor(shop.tools(), policy=policy, sandbox=opened, store=url) as executor,
        host(Gateway(executor), revision) as client,
    ):
        result = await client.call_tool("resume_program", {"run_id": run_id})
        unknown = await client.call_tool("resume_program", {"run_id": "0" * 16})
    assert data(result)["value"] == ["Hi", "paid Ana"]
    assert shop.payments == ["Ana"]
    assert unknown.is_error is True
    assert text(unknown).startswith("there is no run '0000000000000000' of yours that waits")


def decide(url: str, run_id: str, verdict: Approve) -> None:
    """What `sandbridge approve` does, in a process of its own."""
    store = Store(url)
    try:
        (found,) = waiting(store, run_id)
        judge(store, run_id, {request.call_id: verdict for request in found.approvals})
    finally:
        store.close()


async def test_a_run_that_nobody_decides_expires_and_its_result_is_kept(
    opened: Sandbox, shop: Paid, revision: str
) -> None:
    limits = Limits(expires_s=0.2)
    policy = Policy([ask("pay")])
    async with (
        Executor(shop.tools(), policy=policy, sandbox=opened, limits=limits) as executor,
        host(Gateway(executor), revision) as client,
    ):
        result = await run(client, "try { await tools.pay({ text: 'Ana' }) } catch (error) { return error.code }")
        run_id = data(result)["run_id"]
        while data(result)["status"] == "paused":
            result = await client.call_tool("resume_program", {"run_id": run_id})
    assert data(result)["value"] == "expired"


async def test_a_host_cannot_have_more_paused_runs_than_its_share(
    gateway: Gateway, revision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "PAUSED", 2)
    async with host(gateway, revision) as client:
        for _ in range(2):
            await run(client, "await tools.pay({ text: 'Ana' })")
        result = await run(client, "return 1")
    assert text(result) == "2 runs of yours wait for a person: resume_program goes on with one of them"


async def test_answers_to_another_programs_question_are_refused(gateway: Gateway, shop: Paid) -> None:
    async with host(gateway, "2026-07-28", Person()) as client:
        call = client.session.call_tool
        asked = await call(
            "run_program", {"program": "return await tools.pay({ text: 'Ana' })"}, allow_input_required=True
        )
        assert isinstance(asked, types.InputRequiredResult)
        assert asked.input_requests is not None
        answers: Any = dict.fromkeys(asked.input_requests, says("approve"))
        for program, state in [
            ("return await tools.pay({ text: 'Eve' })", asked.request_state),
            ("return await tools.pay({ text: 'Ana' })", f"{asked.request_state}x"),
            ("return await tools.pay({ text: 'Ana' })", '{"run": "x"}'),
        ]:
            with pytest.raises(MCPError) as caught:
                await call("run_program", {"program": program}, input_responses=answers, request_state=state)
            assert str(caught.value) == "Invalid or expired requestState"
    assert shop.payments == []


async def test_an_answer_without_a_state_decides_nothing(gateway: Gateway, shop: Paid) -> None:
    async with host(gateway, "2026-07-28", Person()) as client:
        call = client.session.call_tool
        program = {"program": "return await tools.pay({ text: 'Ana' })"}
        asked = await call("run_program", program, allow_input_required=True)
        assert isinstance(asked, types.InputRequiredResult)
        assert asked.input_requests is not None
        answers: Any = dict.fromkeys(asked.input_requests, says("approve"))
        again = await call("run_program", program, input_responses=answers, allow_input_required=True)
    assert isinstance(again, types.InputRequiredResult)
    assert shop.payments == []


def test_states_that_are_none_of_ours_name_no_run() -> None:
    assert asking.run_of_state('{"run": "abc"}') == "abc"
    for state in ("", "{", "[]", "null", '{"run": 7}', "7"):
        assert asking.run_of_state(state) is None


def test_the_words_of_a_verdict_decide_every_call_of_the_group() -> None:
    assert asking._verdict(says("approve")) == Approve()
    assert asking._verdict(says("approve_run")) == Approve("run")
    assert asking._verdict(says("deny", "no")) == Deny("no")
    assert asking._verdict(None) is None
    assert asking._verdict({"action": "accept", "content": {"decision": "approve"}}) is None
