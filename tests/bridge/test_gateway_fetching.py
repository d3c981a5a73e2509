"""Servers behind the gateway ask the person at the host before they give a prompt or a resource, in both revisions on
both sides."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import mcp_types as types
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError

from bridge import Executor, Policy, allow, mcp
from bridge.gateway import Gateway, fetching, questions
from sandbox import Sandbox
from tests.bridge.odd_servers import ROOT
from tests.bridge.serving import over_http, over_stdio, served
from tests.bridge.test_gateway_questions import HEAD, Person, host, run
from tests.servers.asks import PAGE

pytestmark = pytest.mark.anyio
SCRIPT = ROOT / "tests" / "servers" / "asks.py"
RESOURCE = "sandbridge://asks/ask://confirm"


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def gateway(older: list[str], opened: Sandbox) -> AsyncGenerator[Gateway]:
    async with watched(opened, *older) as gateway:
        yield gateway


@asynccontextmanager
async def watched(sandbox: Sandbox, *arguments: str) -> AsyncGenerator[Gateway]:
    server = mcp.stdio("asks", sys.executable, [str(SCRIPT), *arguments])
    policy = Policy([allow("asks/*")])
    async with (
        Executor([server], policy=policy, sandbox=sandbox, elicit=questions.elicit) as executor,
        anyio.create_task_group() as tasks,
    ):
        gateway = Gateway(executor)
        tasks.start_soon(gateway.watch)
        yield gateway
        tasks.cancel_scope.cancel()


async def prompt(client: Client, name: str = "asks/confirm", arguments: dict[str, str] | None = None) -> Any:
    content = (await client.get_prompt(name, arguments)).messages[0].content
    assert isinstance(content, types.TextContent)
    return json.loads(content.text)


async def resource(client: Client, uri: str = RESOURCE) -> Any:
    (content,) = (await client.read_resource(uri)).contents
    assert isinstance(content, types.TextResourceContents)
    return json.loads(content.text)


@pytest.mark.parametrize(
    ("fetch", "during"), [(prompt, "the prompt confirm"), (resource, "the resource ask://confirm")]
)
async def test_the_hosts_person_reads_which_server_asks_and_before_what(
    gateway: Gateway, revision: str, fetch: Callable[[Client], Awaitable[Any]], during: str
) -> None:
    person = Person(form=types.ElicitResult(action="accept", content={"ok": True, "amount": 3}))
    async with host(gateway, revision, person) as client:
        assert await fetch(client) == [{"action": "accept", "content": {"ok": True, "amount": 3}}]
    (question,) = person.read
    assert question.message == f"{HEAD}server asks asks during {during}:\n  Really?"
    assert gateway._fetching._waiting == {}


async def test_several_questions_are_all_asked(gateway: Gateway, revision: str) -> None:
    person = Person()
    async with host(gateway, revision, person) as client:
        assert [each["action"] for each in await prompt(client, "asks/twice")] == ["accept", "accept"]
    assert sorted(question.message.splitlines()[-1] for question in person.read) == ["  One?", "  Two?"]


async def test_a_person_is_sent_to_a_page_before_a_prompt(gateway: Gateway, revision: str) -> None:
    person = Person()
    async with host(gateway, revision, person) as client:
        assert await prompt(client, "asks/pay") == [{"action": "accept", "content": None}]
        assert await prompt(client, "asks/page-first", {"key": revision}) == []
    pages = [question.url for question in person.read if isinstance(question, types.ElicitRequestURLParams)]
    assert set(pages) == {PAGE}


@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_a_person_may_decline_or_put_off_a_question(gateway: Gateway, revision: str, action: Any) -> None:
    async with host(gateway, revision, Person(form=types.ElicitResult(action=action))) as client:
        assert await prompt(client) == [{"action": action, "content": None}]


async def test_a_host_that_cannot_ask_has_the_question_declined(gateway: Gateway, revision: str) -> None:
    async with host(gateway, revision) as client:
        assert await prompt(client) == [{"action": "decline", "content": None}]


async def test_a_prompt_that_fails_over_a_declined_question_says_why(gateway: Gateway, revision: str) -> None:
    async with host(gateway, revision) as client:
        with pytest.raises(MCPError) as caught:
            await prompt(client, "asks/page-first", {"key": f"nobody at {revision}"})
    assert str(caught.value) == (
        "server asks: go to a page first (server asks asked a person something during the prompt page-first, and it "
        "was declined: the host has no way to ask its person (elicitation))"
    )


async def test_each_host_is_asked_about_what_it_wants_only(gateway: Gateway, revision: str) -> None:
    ana, ben = Person(), Person()
    async with host(gateway, revision, ana) as one, host(gateway, revision, ben) as other:
        await resource(one)  # a server of the older revision is known to ask from now on
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(prompt, one, "asks/confirm", {"message": "of Ana"})
                tasks.start_soon(run, other, "return await tools.asks.confirm({ message: 'of Ben' })")
    assert [question.message.splitlines()[-1] for question in ana.read[1:]] == ["  of Ana"] * 3
    assert [question.message.splitlines()[-1] for question in ben.read] == ["  of Ben"] * 3


async def test_a_request_that_is_given_up_over_a_question_is_ended(gateway: Gateway) -> None:
    asked = anyio.Event()

    async def thinks(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        asked.set()
        await anyio.sleep_forever()
        raise AssertionError

    async with host(gateway, "2025-11-25", thinks) as client, anyio.create_task_group() as tasks:
        tasks.start_soon(prompt, client)
        await asked.wait()
        tasks.cancel_scope.cancel()
    async with host(gateway, "2025-11-25", Person()) as client:  # it has not kept its turn
        assert await prompt(client) == [{"action": "accept", "content": {"ok": True}}]


async def test_answers_are_taken_for_what_was_asked_and_once(gateway: Gateway) -> None:
    yes: Any = types.ElicitResult(action="accept", content={"ok": True})
    async with host(gateway, "2026-07-28", Person()) as client:
        get = client.session.get_prompt
        asked = await get("asks/confirm", allow_input_required=True)
        assert isinstance(asked, types.InputRequiredResult)
        assert asked.input_requests is not None
        given: dict[str, Any] = {
            "input_responses": dict.fromkeys(asked.input_requests, yes),
            "request_state": asked.request_state,
        }
        with pytest.raises(MCPError) as caught:
            await get("asks/twice", **given)
        assert str(caught.value) == "Invalid or expired requestState"
        done = await get("asks/confirm", **given)
        assert isinstance(done.messages[0].content, types.TextContent)
        assert json.loads(done.messages[0].content.text) == [{"action": "accept", "content": {"ok": True}}]
        with pytest.raises(MCPError) as caught:
            await get("asks/confirm", **given)
    assert str(caught.value) == "nothing waits for these answers any more: ask for it again"


async def test_one_host_has_no_more_waiting_than_its_share(opened: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "WAITING", 1)
    async with watched(opened) as gateway, host(gateway, "2026-07-28", Person()) as client:
        await client.session.get_prompt("asks/confirm", allow_input_required=True)
        with pytest.raises(MCPError) as caught:
            await prompt(client)
    assert str(caught.value) == "1 requests of yours wait for answers: answer one first"


async def test_a_question_that_nobody_answers_is_over_when_the_patience_is(
    opened: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bridge.gateway.upstream.ANSWER_S", 0.05)
    async with watched(opened, "--older") as gateway, host(gateway, "2026-07-28", Person()) as client:
        await client.session.get_prompt("asks/confirm", allow_input_required=True)
        while gateway._fetching._waiting:
            await anyio.lowlevel.checkpoint()


@pytest.mark.parametrize("over", ["stdio", "http"])
async def test_the_command_passes_on_what_a_server_asks_before_a_prompt(
    tmp_path: Path, revision: str, over: str
) -> None:
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps({"mcpServers": {"asks": {"command": sys.executable, "args": [str(SCRIPT), "--older"]}}}))
    options = ("--no-store", "--mcp", file)
    person = Person()
    if over == "stdio":
        log = tmp_path / "log"
        async with over_stdio(revision, *options, cwd=tmp_path, errors=log, elicitation_callback=person) as client:
            assert await prompt(client) == [{"action": "accept", "content": {"ok": True}}]
    else:
        with served(*options, cwd=tmp_path) as (url, _):
            async with over_http(url, revision, elicitation_callback=person) as client:
                assert await prompt(client) == [{"action": "accept", "content": {"ok": True}}]
    assert [question.message for question in person.read] == [
        f"{HEAD}server asks asks during the prompt confirm:\n  Really?"
    ]
