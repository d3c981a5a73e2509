"""The gateway as hosts see it: three tools, programs and their results, and what servers behind it change."""

from __future__ import annotations

import base64
import json
from typing import Any

import anyio
import anyio.lowlevel
import mcp_types as types
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError

from bridge import Executor, StateError, Tool, ToolContext
from bridge.gateway import Gateway, offer, runs, upstream
from sandbox import Sandbox
from tests.bridge.catalogue import tools as many_tools
from tests.bridge.hosts import Paid, data, host, mode, run, text
from tests.bridge.odd_servers import odd

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module", params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return request.param


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
    async with Executor([server], sandbox=opened) as executor, anyio.create_task_group() as tasks:
        gateway = Gateway(executor, budget=100_000)
        tasks.start_soon(gateway.watch)
        with anyio.fail_after(30):
            async with Client(gateway.server, mode=mode(revision), message_handler=heard) as client:
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
