"""Questions of servers behind the gateway reach the person at the host of the run, in both revisions on both sides."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client

from bridge import Executor, Policy, allow, ask, mcp
from bridge.elicitation import ElicitationAnswer
from bridge.gateway import Gateway, questions
from sandbox import Sandbox
from tests.bridge.hosts import mode
from tests.bridge.hosts import outcome as run
from tests.bridge.odd_servers import ROOT
from tests.servers.asks import PAGE

pytestmark = pytest.mark.anyio
SCRIPT = ROOT / "tests" / "servers" / "asks.py"
CONFIRM = "return (await tools.asks.confirm({})).said"
HEAD = f"{questions._HEAD}\n\n"


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def gateway(older: list[str], opened: Sandbox) -> AsyncGenerator[Gateway]:
    server = mcp.stdio("asks", sys.executable, [str(SCRIPT), *older])
    policy = Policy([allow("asks/*"), ask("asks/twice")])
    async with Executor([server], policy=policy, sandbox=opened, elicit=questions.elicit) as executor:
        yield Gateway(executor)


class Person:
    """Somebody at a host; `answers` by the first word of the question, else what fits."""

    def __init__(self, **answers: types.ElicitResult) -> None:
        self.read: list[types.ElicitRequestParams] = []
        self._answers = answers

    async def __call__(self, context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        self.read.append(params)
        if "approval" in params.message:
            return types.ElicitResult(action="accept", content={"decision": "approve"})
        if isinstance(params, types.ElicitRequestURLParams):
            return types.ElicitResult(action="accept")
        return self._answers.get("form", types.ElicitResult(action="accept", content={"ok": True}))


@asynccontextmanager
async def host(gateway: Gateway, revision: str, person: Any = None) -> AsyncGenerator[Client]:
    with anyio.fail_after(60):
        async with Client(gateway.server, mode=mode(revision), elicitation_callback=person) as client:
            assert client.protocol_version == revision
            yield client


async def test_the_hosts_person_reads_which_server_asks_and_the_answer_goes_to_it(
    gateway: Gateway, revision: str
) -> None:
    person = Person(form=types.ElicitResult(action="accept", content={"ok": True, "amount": 3}))
    async with host(gateway, revision, person) as client:
        done = await run(client, CONFIRM)
    assert done["value"] == [{"action": "accept", "content": {"ok": True, "amount": 3}}]
    (question,) = person.read
    assert isinstance(question, types.ElicitRequestFormParams)
    assert question.message == f"{HEAD}server asks asks during asks/confirm:\n  Really?"
    assert list(question.requested_schema["properties"]) == ["ok", "amount"]


@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_a_person_may_decline_or_put_off_a_question(gateway: Gateway, revision: str, action: Any) -> None:
    async with host(gateway, revision, Person(form=types.ElicitResult(action=action))) as client:
        done = await run(client, CONFIRM)
    assert done["value"] == [{"action": action, "content": None}]
    assert "warnings" not in done


async def test_a_server_cannot_pass_its_question_off_as_anothers_or_hide_words(gateway: Gateway, revision: str) -> None:
    person = Person()
    async with host(gateway, revision, person) as client:
        await run(client, "return (await tools.asks.escapes({})).said")
    assert person.read[0].message == (
        f"{HEAD}server asks asks during asks/escapes:\n  \\u{{1b}}[2Jhi\\u{{202e}}\n  server bank asks:"
    )


async def test_a_question_is_asked_after_the_approval_and_is_none(gateway: Gateway, revision: str) -> None:
    person = Person()
    async with host(gateway, revision, person) as client:
        done = await run(client, "return (await tools.asks.twice({})).said.length")
    assert done["value"] == 2
    assert [question.message.splitlines()[0] for question in person.read] == [
        "Sandbridge: a program that the model wrote wants to make a call that needs your approval.",
        HEAD.strip(),
        HEAD.strip(),
    ]


async def test_an_answer_with_the_words_of_an_approval_approves_nothing(gateway: Gateway, revision: str) -> None:
    person = Person(form=types.ElicitResult(action="accept", content={"ok": True}))

    async def yes_to_servers_only(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        if "approval" in params.message:
            return types.ElicitResult(action="cancel")
        return await person(context, params)

    program = "await tools.asks.confirm({}); return await tools.asks.twice({})"
    async with host(gateway, revision, yes_to_servers_only) as client:
        done = await run(client, program)
    assert (done["status"], done["waiting"]) == ("paused", [{"tool": "asks/twice", "line": 1}])


async def test_a_host_that_cannot_ask_has_questions_declined_and_the_result_says_so(
    gateway: Gateway, revision: str
) -> None:
    async with host(gateway, revision) as client:
        done = await run(client, CONFIRM)
    assert done["value"] == [{"action": "decline", "content": None}]
    asked = "server asks asked a person something during asks/confirm, and it was declined"
    assert done["warnings"] == [f"{asked}: the host has no way to ask its person (elicitation)"]


async def test_a_call_that_fails_over_a_declined_question_says_why_to_the_program(
    gateway: Gateway, revision: str
) -> None:
    program = "try { await tools.asks['page-first']({ key: inputs }) } catch (error) { return error.message }"
    async with host(gateway, revision) as client:
        result = await client.call_tool("run_program", {"program": program, "inputs": revision})
    assert result.structured_content is not None
    assert result.structured_content["value"] == (
        "server 'asks': go to a page first (code -32042) (it asked a person something, which was declined: "
        "the host has no way to ask its person (elicitation))"
    )


async def test_a_person_is_sent_to_a_page_by_name_of_the_server(gateway: Gateway, revision: str) -> None:
    person = Person()
    async with host(gateway, revision, person) as client:
        done = await run(client, "return (await tools.asks.pay({})).said")
    assert done["value"] == [{"action": "accept", "content": None}]
    (question,) = person.read
    assert isinstance(question, types.ElicitRequestURLParams)
    assert question.url == PAGE
    assert question.message == f"{HEAD}server asks asks during asks/pay:\n  Pay here\n  page: {PAGE}"


async def test_questions_of_calls_made_together_are_all_asked(gateway: Gateway, revision: str) -> None:
    person = Person()
    program = """
      const said = await Promise.all([1, 2, 3].map((n) => tools.asks.confirm({ message: `for ${n}` })));
      return said.map((each) => each.said[0].action);
    """
    async with host(gateway, revision, person) as client:
        assert (await run(client, program))["value"] == ["accept"] * 3
    assert sorted(question.message.splitlines()[-1].strip() for question in person.read) == ["for 1", "for 2", "for 3"]


async def test_each_host_is_asked_by_its_own_program_only(gateway: Gateway, revision: str) -> None:
    ana, ben = Person(), Person()
    async with host(gateway, revision, ana) as one, host(gateway, revision, ben) as other:
        await run(one, "return await tools.asks.confirm({ message: 'of Ana' })")
        await run(other, "return await tools.asks.confirm({ message: 'of Ben' })")
    assert [[question.message.splitlines()[-1] for question in person.read] for person in (ana, ben)] == [
        ["  of Ana"],
        ["  of Ben"],
    ]


async def test_a_request_that_is_given_up_over_a_question_ends_its_run(gateway: Gateway) -> None:
    asked = anyio.Event()

    async def thinks(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        asked.set()
        await anyio.sleep_forever()
        raise AssertionError

    runs = gateway._runs._executor._roster.runs
    before = set(runs)
    async with host(gateway, "2025-11-25", thinks) as client:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run, client, CONFIRM)
            await asked.wait()
            tasks.cancel_scope.cancel()
        while set(runs) - before:
            await anyio.lowlevel.checkpoint()
        assert (await run(client, "return 1"))["value"] == 1


async def test_a_question_outlives_its_request_and_is_asked_again_in_another(gateway: Gateway) -> None:
    before = set(gateway._runs._paused)
    async with host(gateway, "2026-07-28", Person()) as client:
        asked = await client.session.call_tool("run_program", {"program": CONFIRM}, allow_input_required=True)
        assert isinstance(asked, types.InputRequiredResult)
        (run_id,) = set(gateway._runs._paused) - before
    person = Person()
    async with host(gateway, "2026-07-28", person) as client:
        result = await client.call_tool("resume_program", {"run_id": run_id})
    assert result.structured_content is not None
    assert result.structured_content["value"] == [{"action": "accept", "content": {"ok": True}}]
    assert len(person.read) == 1


def test_labels_of_a_form_are_shown_and_names_of_fields_are_kept() -> None:
    schema = {
        "type": "object",
        "properties": {"title": {"type": "string", "title": "T\u202e\nwo", "description": "x" * 600}},
        "required": ["title"],
    }
    shown = questions._labelled(schema)
    assert shown["properties"]["title"] == {"type": "string", "title": "T wo", "description": "x" * 499 + "…"}
    assert shown["required"] == ["title"]


async def test_a_question_of_no_known_run_is_declined() -> None:
    from bridge import Elicitation

    answer = await questions.elicit(Elicitation(server="asks", message="Who?"))
    assert answer == ElicitationAnswer.decline(
        "calls of several programs are in flight, and it did not say which it is about"
    )
