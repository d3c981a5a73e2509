"""The gateway as hosts see it: three tools, results, approvals by their person, and nothing of one host for another."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import mcp_types as types
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError

from bridge import Approve, Deny, Executor, Policy, StateError, Tool, ToolContext, ask
from bridge.gateway import Gateway, asking, offer, runs, upstream
from bridge.store import Store
from bridge.verdicts import judge, waiting
from sandbox import Limits, Sandbox
from tests.bridge.catalogue import tools as many_tools
from tests.bridge.odd_servers import odd

pytestmark = pytest.mark.anyio
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
REVISIONS = ["2025-11-25", "2026-07-28"]


@pytest.fixture(scope="module", params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(params=REVISIONS)
def revision(request: pytest.FixtureRequest) -> str:
    return request.param


class Person:
    """Somebody at a host, who answers each question by a plan."""

    def __init__(self, *answers: types.ElicitResult) -> None:
        self.read: list[str] = []
        self.forms: list[Any] = []
        self._answers = list(answers)

    async def __call__(self, context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        assert isinstance(params, types.ElicitRequestFormParams)
        self.read.append(params.message)
        self.forms.append(params.requested_schema)
        return self._answers.pop(0)


def says(decision: str, reason: str = "") -> types.ElicitResult:
    return types.ElicitResult(action="accept", content={"decision": decision, "reason": reason})


class Paid:
    """Tools of a shop: `pay` is asked about, `slow` waits until it is let go or cancelled."""

    def __init__(self) -> None:
        self.payments: list[str] = []
        self.started, self.cancelled, self.release = anyio.Event(), anyio.Event(), anyio.Event()

    async def pay(self, arguments: Any, context: ToolContext) -> Any:
        self.payments.append(arguments["text"])
        return f"paid {arguments['text']}"

    async def echo(self, arguments: Any, context: ToolContext) -> Any:
        return arguments["text"]

    async def slow(self, arguments: Any, context: ToolContext) -> Any:
        self.started.set()
        try:
            await self.release.wait()
        except anyio.get_cancelled_exc_class():
            self.cancelled.set()
            raise

    def tools(self) -> list[Tool]:
        return [
            Tool(name=name, description=f"To {name}.", input_schema=TEXT, handler=getattr(self, name))
            for name in ("pay", "echo", "slow")
        ]


@pytest.fixture
def shop() -> Paid:
    return Paid()


@pytest.fixture
async def gateway(shop: Paid, opened: Sandbox) -> AsyncGenerator[Gateway]:
    async with Executor(shop.tools(), policy=Policy([ask("pay")]), sandbox=opened) as executor:
        yield Gateway(executor)


@asynccontextmanager
async def host(gateway: Gateway, revision: str, person: Person | None = None) -> AsyncGenerator[Client]:
    mode = "legacy" if revision == "2025-11-25" else "auto"
    with anyio.fail_after(30):
        async with Client(gateway.server, mode=mode, elicitation_callback=person) as client:
            assert client.protocol_version == revision
            yield client


async def run(client: Client, program: str, **arguments: Any) -> types.CallToolResult:
    return await client.call_tool("run_program", {"program": program, **arguments})


def text(result: types.CallToolResult) -> str:
    assert isinstance(result.content[0], types.TextContent)
    return result.content[0].text


def data(result: types.CallToolResult) -> Mapping[str, Any]:
    assert isinstance(result.structured_content, dict)
    return result.structured_content


# ---- what is offered --------------------------------------------------------------------------------------------


async def test_a_host_sees_three_tools_whatever_the_catalog_has(gateway: Gateway, revision: str) -> None:
    async with host(gateway, revision) as client:
        listed = (await client.list_tools()).tools
    assert [tool.name for tool in listed] == ["run_program", "search_tools", "resume_program"]
    assert "pay(args: { text: string }): Promise<unknown>;" in (listed[0].description or "")
    assert next(iter(listed[0].input_schema["properties"])) == "program"


async def test_no_tool_takes_a_verdict(gateway: Gateway, revision: str) -> None:
    async with host(gateway, revision) as client:
        listed = {tool.name: tool.input_schema for tool in (await client.list_tools()).tools}
    assert list(listed["resume_program"]["properties"]) == ["run_id"]
    assert listed["resume_program"]["additionalProperties"] is False
    assert list(listed["run_program"]["properties"]) == ["program", "inputs", "reuse"]


async def test_three_hundred_tools_are_declared_within_the_budget_and_the_rest_is_searched_for(
    opened: Sandbox, revision: str
) -> None:
    async def handler(arguments: Any, context: ToolContext) -> Any:
        return {"sunny": True}

    catalog = [
        Tool(
            name=tool.name,
            server=tool.server,
            description=tool.description,
            input_schema=tool.input_schema,
            handler=handler,
            require_approval="never",
        )
        for tool in many_tools()
    ]
    async with Executor(catalog, sandbox=opened) as executor, host(Gateway(executor), revision) as client:
        description = (await client.list_tools()).tools[0].description or ""
        assert len(description.encode()) < 2_000 * 4 + 3_000
        assert "tools are not declared here. Find what you need with search_tools first" in description
        found = await client.call_tool("search_tools", {"query": "will it rain, weather forecast"})
        assert data(found)["tools"][0]["call"] == "tools.weather.get_forecast"
        assert "get_forecast(args: {" in data(found)["declarations"]
        result = await run(client, "return await tools.weather.get_forecast({ latitude: 1, longitude: 2 })")
    assert data(result)["value"] == {"sunny": True}


async def test_the_description_is_the_same_bytes_whatever_was_searched(gateway: Gateway, revision: str) -> None:
    async with host(gateway, revision) as client:
        before = (await client.list_tools()).tools
        await client.call_tool("search_tools", {"query": "pay"})
        assert (await client.list_tools()).tools == before


async def test_a_search_that_cannot_be_meant_is_refused_in_words(gateway: Gateway, revision: str) -> None:
    async with host(gateway, revision) as client:
        result = await client.call_tool("search_tools", {"query": "pay", "server": "bank"})
    assert result.is_error is True
    assert text(result) == 'search: there is no server "bank". There are: none'


async def test_a_host_can_shake_hands_while_the_executor_is_opening(opened: Sandbox, shop: Paid, revision: str) -> None:
    gateway = Gateway()
    async with host(gateway, revision) as client:  # initialize, or server/discover, has been answered
        async with Executor(shop.tools(), sandbox=opened) as executor, anyio.create_task_group() as tasks:
            found: list[types.ListToolsResult] = []

            async def asks() -> None:
                found.append(await client.list_tools())

            tasks.start_soon(asks)
            await anyio.wait_all_tasks_blocked()
            assert found == []
            gateway.opened(executor)
        assert len(found[0].tools) == 3


async def test_a_gateway_that_cannot_start_says_so_to_its_host(revision: str) -> None:
    gateway = Gateway()
    gateway.failed("no server today")
    async with host(gateway, revision) as client:
        with pytest.raises(MCPError) as caught:
            await client.list_tools()
    assert str(caught.value) == "sandbridge could not start: no server today"


async def test_an_executor_with_an_approver_is_refused(opened: Sandbox) -> None:
    async with Executor([], sandbox=opened, approver=lambda requests: {}) as executor:
        with pytest.raises(StateError):
            Gateway(executor)


# ---- programs ---------------------------------------------------------------------------------------------------


async def test_a_program_comes_back_as_text_and_as_data_that_says_the_same(gateway: Gateway, revision: str) -> None:
    async with host(gateway, revision) as client:
        program = "text('working'); return [await tools.echo({ text: inputs.who }), 1]"
        result = await run(client, program, inputs={"who": "Ana"})
    assert text(result) == '[sandbridge] completed; 1 call\nworking\n["Ana",1]'
    assert data(result) == {
        "status": "completed",
        "run_id": data(result)["run_id"],
        "calls": 1,
        "value": ["Ana", 1],
        "emitted": ["working"],
    }
    assert result.is_error is False


async def test_a_program_that_fails_is_an_error_that_names_its_line(gateway: Gateway, revision: str) -> None:
    async with host(gateway, revision) as client:
        result = await run(client, "const a = 1;\nthrow new RangeError('too far')")
    assert result.is_error is True
    assert data(result)["error"] == {"code": "threw", "message": "too far", "line": 2}
    assert "at line 2" in text(result)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, 'run_program: missing "program".'),
        ({"program": 7}, "run_program: /program: expected"),
        ({"program": "1", "approve": True}, 'run_program: unknown argument "approve"'),
    ],
)
async def test_arguments_that_do_not_fit_are_an_error_for_the_model(
    gateway: Gateway, revision: str, arguments: dict[str, Any], said: str
) -> None:
    async with host(gateway, revision) as client:
        result = await client.call_tool("run_program", arguments)
    assert result.is_error is True
    assert text(result).startswith(said)


async def test_a_tool_that_is_not_there_is_a_protocol_error(gateway: Gateway, revision: str) -> None:
    async with host(gateway, revision) as client:
        with pytest.raises(MCPError) as caught:
            await client.call_tool("approve", {"run_id": "x"})
    assert str(caught.value) == "there is no tool 'approve': run_program, search_tools, resume_program"


async def test_half_characters_of_a_program_do_not_end_the_connection(gateway: Gateway, revision: str) -> None:
    async with host(gateway, revision) as client:
        result = await run(client, "text('a\\ud800'); return { ['k\\udc00']: 'b\\ud800' }")
        assert data(result)["value"] == {"k\ufffd": "b\ufffd"}
        assert data(await run(client, "return 1"))["value"] == 1


async def test_a_value_too_deep_for_parsers_is_text_only(gateway: Gateway, revision: str) -> None:
    async with host(gateway, revision) as client:
        result = await run(client, "let v = 0; for (let i = 0; i < 150; i++) v = [v]; return v")
    assert "value" not in data(result)
    assert text(result).endswith("[" * 150 + "0" + "]" * 150)


async def test_a_large_result_is_a_link_to_the_whole(gateway: Gateway, revision: str) -> None:
    async with host(gateway, revision) as client:
        result = await run(client, "return Array.from({ length: 30000 }, (_, n) => n)")
        link = result.content[1]
        assert isinstance(link, types.ResourceLink)
        assert data(result)["whole"] == link.uri
        assert "value" not in data(result)
        assert len(text(result)) < 70_000
        (content,) = (await client.read_resource(link.uri)).contents
    assert isinstance(content, types.TextResourceContents)
    assert json.loads(content.text) == list(range(30_000))


async def test_a_picture_of_a_program_is_a_link_to_its_bytes(gateway: Gateway, revision: str) -> None:
    data_url = base64.b64encode(b"not really a picture").decode()
    async with host(gateway, revision) as client:
        result = await run(client, f"image('data:image/png;base64,{data_url}')")
        link = result.content[1]
        assert isinstance(link, types.ResourceLink)
        (content,) = (await client.read_resource(link.uri)).contents
    assert isinstance(content, types.BlobResourceContents)
    assert (content.mime_type, base64.b64decode(content.blob)) == ("image/png", b"not really a picture")


async def test_a_program_cannot_open_a_result_by_claiming_that_it_is_a_picture(gateway: Gateway, revision: str) -> None:
    async with host(gateway, revision) as client:
        other = await run(client, "return 'x'.repeat(100_000)")
        result = await run(client, f"image({{ handle: '{data(other)['run_id']}', mime_type: 'image/png' }})")
    assert [block.type for block in result.content] == ["text"]


@pytest.mark.parametrize("name", ["nothing", "", "../x", "blob_" + "a" * 24])
async def test_a_result_that_was_not_given_is_not_there(gateway: Gateway, revision: str, name: str) -> None:
    async with host(gateway, revision) as client:
        with pytest.raises(MCPError) as caught:
            await client.read_resource(offer.RESULTS + name)
    assert str(caught.value) == f"there is no result {name!r} of yours"


async def test_progress_counts_the_calls_that_are_done(gateway: Gateway, revision: str) -> None:
    told: list[tuple[float, str | None]] = []

    async def progress(done: float, total: float | None, message: str | None) -> None:
        told.append((done, message))

    async with host(gateway, revision) as client:
        program = "for (let n = 0; n < 3; n++) await tools.echo({ text: 'x' }); await sleep(50)"
        await client.call_tool("run_program", {"program": program}, progress_callback=progress)
    assert told[-1] == (3, "3 calls done; echo")
    assert [done for done, _ in told] == sorted({done for done, _ in told})


async def test_a_request_that_is_given_up_ends_its_run_and_its_calls(
    gateway: Gateway, shop: Paid, revision: str
) -> None:
    async with host(gateway, revision) as client:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run, client, "await tools.slow({ text: 'x' })")
            await shop.started.wait()
            tasks.cancel_scope.cancel()
        await shop.cancelled.wait()


async def test_one_host_cannot_run_more_programs_at_once_than_its_share(
    gateway: Gateway, shop: Paid, revision: str
) -> None:
    async with host(gateway, revision) as client, anyio.create_task_group() as tasks:
        for _ in range(runs.RUNNING):
            tasks.start_soon(run, client, "await tools.slow({ text: 'x' })")
        await shop.started.wait()
        while (result := await run(client, "return 1")).is_error is False:
            await anyio.lowlevel.checkpoint()
        shop.release.set()
    assert text(result) == "8 programs of yours are running: wait until one has ended"


# ---- approvals --------------------------------------------------------------------------------------------------


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


# ---- servers behind ---------------------------------------------------------------------------------------------


async def test_a_change_of_a_servers_tools_reaches_hosts_of_both_revisions(
    opened: Sandbox, revision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bridge.gateway.server.WATCH_S", 0.01)
    changed = anyio.Event()

    async def heard(message: Any) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            changed.set()

    server = odd(require_approval="never")
    mode = "legacy" if revision == "2025-11-25" else "auto"
    async with Executor([server], sandbox=opened) as executor, anyio.create_task_group() as tasks:
        gateway = Gateway(executor, budget=100_000)
        tasks.start_soon(gateway.watch)
        with anyio.fail_after(30):
            async with Client(gateway.server, mode=mode, message_handler=heard) as client:
                before = (await client.list_tools()).tools[0].description or ""
                async with anyio.create_task_group() as listening:
                    if revision != "2025-11-25":
                        listening.start_soon(_listen, client, changed)
                        await anyio.wait_all_tasks_blocked()
                    await run(client, CHANGE)
                    await changed.wait()
                    listening.cancel_scope.cancel()
                after = (await client.list_tools(cache_mode="refresh")).tools[0].description or ""
        tasks.cancel_scope.cancel()
    assert before != after


CHANGE = "await tools.odd.add_tool({ name: 'more' })"


async def _listen(client: Client, changed: anyio.Event) -> None:
    async with client.listen(tools_list_changed=True) as events:
        async for _ in events:
            changed.set()


def test_what_servers_say_of_their_things_is_visible_and_on_one_line() -> None:
    resource = types.Resource(
        name="a", uri="file:///a", title="T\u202e\U000e0041", description="one\ntwo\ud800" + "x" * 2_000
    )
    shown = upstream._resource("my files", resource)
    assert (shown.name, shown.uri, shown.title) == ("my files/a", "sandbridge://my%20files/file:///a", "T")
    assert shown.description == "one two" + "x" * 992 + "…"


def test_the_words_of_a_verdict_decide_every_call_of_the_group() -> None:
    assert asking._verdict(says("approve")) == Approve()
    assert asking._verdict(says("approve_run")) == Approve("run")
    assert asking._verdict(says("deny", "no")) == Deny("no")
    assert asking._verdict(None) is None
    assert asking._verdict({"action": "accept", "content": {"decision": "approve"}}) is None
