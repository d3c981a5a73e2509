"""What hurt users of comparable software with MCP servers and with tools' schemas: what no other file covers.

The ids are those of tests/data/bugs.jsonl; tests/test_bugs.py has the list of all with the tests that cover them.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import weakref
from pathlib import Path
from typing import Any

import anyio
import pytest

from bridge import Approve, Executor, Policy, Tool, allow, ask, mcp
from bridge.approval import ApprovalRequest
from bridge.errors import CatalogError
from sandbox import Sandbox

pytestmark = pytest.mark.anyio

SERVER = Path(__file__).parents[1] / "servers" / "listed.py"


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


def listing(folder: Path, name: str, *tools: str) -> mcp.Server:
    """A server with these tools."""
    file = folder / f"{name}.json"
    file.write_text(json.dumps([{"name": tool, "inputSchema": {"type": "object"}} for tool in tools]))
    return mcp.stdio(name, sys.executable, [str(SERVER), str(file)])


# ---- connections ---------------------------------------------------------------------------------------------------


async def test_a_connection_that_failed_leaves_no_task_and_nothing_that_runs_again() -> None:  # MCC-10
    before = asyncio.all_tasks()

    async def fail() -> list[weakref.ref[mcp.Server]]:
        servers = [
            mcp.http("refused", "http://127.0.0.1:9/mcp", connect_s=5),
            mcp.stdio("dead", sys.executable, ["-c", "raise SystemExit(1)"]),
            mcp.stdio("missing", "no-such-command-anywhere"),
        ]
        async with anyio.create_task_group() as tasks:
            for server in servers:
                await server.start(tasks)
                assert server.error is not None
            for server in servers:
                await server.stop()
        return [weakref.ref(server) for server in servers]

    gone = await fail()
    gc.collect()
    assert asyncio.all_tasks() == before
    assert [server() for server in gone] == [None, None, None]
    turns = 0  # a cancellation that is scheduled for ever would make the loop turn without anybody waiting

    def count() -> None:
        nonlocal turns
        turns += 1

    loop: Any = asyncio.get_running_loop()
    ready, timers = len(loop._ready), len([timer for timer in loop._scheduled if not timer.cancelled()])
    loop.call_soon(count)
    await anyio.lowlevel.checkpoint()
    assert (turns, ready, timers) == (1, 0, 0)


# ---- names ---------------------------------------------------------------------------------------------------------


async def test_a_wrong_name_is_answered_with_the_nearest_ones_before_anything_ran(opened: Sandbox) -> None:  # SCH-08
    reached: list[str] = []

    async def handler(arguments: Any, context: Any) -> str:
        reached.append("yes")
        return "ok"

    tools = [Tool(name=name, handler=handler) for name in ("get_sites", "get_site")]
    async with Executor([*tools, Tool(name="ping", server="net", handler=handler)], sandbox=opened) as executor:
        for program, nearest in (
            ("await tools.get_sites({}); await tools.list_sites({})", "tools.get_sites, tools.get_site"),
            ("await tools.net.pong({})", "tools.net.ping"),
        ):
            result = await executor.run(program)
            assert (result.status, result.error and result.error.code, reached) == ("failed", "unknown_tool", [])
            assert result.error is not None
            assert result.error.message.endswith(nearest)
        dynamic = await executor.run("return await tools['nope']({}).catch(e => [e.code, e.message])")
        assert (dynamic.status, dynamic.calls) == ("failed", ())
        checks = await executor.run("return [typeof tools.get_site, typeof tools.nope, 'nope' in tools]")
        assert checks.value == ["function", "undefined", False]


async def test_one_name_on_two_servers_and_a_function_is_three_tools_with_three_grants(
    opened: Sandbox, tmp_path: Path
) -> None:  # SCH-15
    async def own(arguments: Any, context: Any) -> str:
        return "own"

    asked: list[str] = []

    async def approver(requests: list[ApprovalRequest]) -> dict[str, Approve]:
        asked.extend(request.tool for request in requests)
        return {request.id: Approve("tool") for request in requests}

    tools = [
        Tool(name="send_email", handler=own),
        listing(tmp_path, "mail", "send_email"),
        listing(tmp_path, "crm", "send_email", "send_email"),
    ]
    async with Executor(tools, policy=Policy([allow("send_email")]), approver=approver, sandbox=opened) as executor:
        program = "return [await tools.send_email({}), await tools.mail.send_email({}), await tools.crm.send_email({})]"
        assert (await executor.run(program)).value == ["own", "send_email {}", "send_email {}"]
        assert asked == ["mail/send_email", "crm/send_email"]  # a yes to one is none to the other
        await executor.run(program)
        assert asked == ["mail/send_email", "crm/send_email"]
        twice = "it lists the tool 'send_email' more than once: only its first definition is used"
        assert f"server crm: {twice}" in executor.warnings


# ---- arguments -----------------------------------------------------------------------------------------------------

ORDER = {
    "type": "object",
    "properties": {"id": {"type": "string"}, "n": {"type": "integer"}},
    "required": ["id"],
    "additionalProperties": False,
}


async def test_arguments_are_checked_before_policy_and_people_see_them(opened: Sandbox) -> None:  # SCH-13
    seen: list[Any] = []
    asked: list[Any] = []
    reached: list[Any] = []

    async def handler(arguments: Any, context: Any) -> str:
        reached.append(arguments)
        return "ok"

    def approver(requests: list[ApprovalRequest]) -> dict[str, Approve]:
        asked.extend(request.arguments for request in requests)
        return {request.id: Approve() for request in requests}

    def looks(arguments: Any) -> bool:
        seen.append(arguments)
        return True

    policy = Policy([ask("order", when=looks)])
    tool = Tool(name="order", input_schema=ORDER, handler=handler)
    async with Executor([tool], policy=policy, approver=approver, sandbox=opened) as executor:
        for wrong in ("{}", "{id: 'a', extra: 1}", "{id: null}", "{id: 'a', n: 'five'}", "{id: 'a', n: 1.5}"):
            result = await executor.run(f"return await tools.order({wrong}).catch(e => e.code)")
            assert result.value == "invalid_arguments", wrong
        assert (seen, asked, reached) == ([], [], [])
        result = await executor.run("return await tools.order({id: 'a', n: '5'})")
        assert (result.value, seen, asked, reached) == ("ok", *[[{"id": "a", "n": 5}]] * 3)  # one value for all three


async def test_a_wrong_argument_is_explained_by_path_in_few_words(opened: Sandbox) -> None:  # SCH-12
    schema = {
        "type": "object",
        "properties": {"query": {"type": "string"}, "limit": {"type": "integer"}, "in": {"enum": ["a", "b"]}},
        "required": ["query"],
        "additionalProperties": False,
    }

    async def handler(arguments: Any, context: Any) -> str:
        return "ok"

    async with Executor([Tool(name="search", input_schema=schema, handler=handler)], sandbox=opened) as executor:
        for wrong, said in (
            ("{query: 'x', kind: 'repos'}", "kind"),
            ("{}", "query"),
            ("{query: 'x', limit: 'many'}", "limit"),
            ("{query: 'x', in: 'c'}", "in"),
        ):
            result = await executor.run(f"return await tools.search({wrong}).catch(e => e.message)")
            assert said in result.value, wrong
            assert len(result.value) <= 500
            assert "call[" not in result.value
            assert "http" not in result.value


async def test_a_programs_own_mistakes_are_explained_and_a_tools_exception_is_not(opened: Sandbox) -> None:  # SCH-09
    async def leaks(arguments: Any, context: Any) -> None:
        raise RuntimeError("password hunter2 in /srv/app/config.py")

    tools = [Tool(name="leaks", handler=leaks), Tool(name="order", input_schema=ORDER, handler=leaks)]
    async with Executor(tools, sandbox=opened) as executor:
        for program, words in (
            ("return 1 +", "line 1"),
            ("await tools.nope({})", "tools.nope"),
            ("await tools.order({})", "id"),
        ):
            result = await executor.run(program)
            assert result.status == "failed"
            assert words in result.text
        masked = await executor.run("await tools.leaks({})")
        assert masked.status == "failed"
        assert "leaks" in masked.text
        assert "hunter2" not in masked.text
        assert "config.py" not in masked.text


async def test_a_recursive_schema_is_declared_called_and_costs_no_other_tool(opened: Sandbox) -> None:  # SCH-01, SCH-02
    node = {"type": "object", "properties": {"children": {"type": "array", "items": {"$ref": "#"}}}}
    deep: Any = {"type": "string"}
    for _ in range(2_000):
        deep = {"type": "array", "items": deep}
    missing = {"type": "object", "properties": {"a": {"$ref": "#/$defs/nowhere"}}}
    remote = {"type": "object", "properties": {"a": {"$ref": "https://schemas.example/a.json"}}}

    async def handler(arguments: Any, context: Any) -> Any:
        return arguments

    class Server:
        name, error, version, identity, down = "odd", None, 1, "one", None
        warnings: tuple[str, ...] = ()
        tools: tuple[Tool, ...] = tuple(
            Tool(name=name, server="odd", input_schema=schema, handler=handler)
            for name, schema in (("tree", node), ("missing", missing), ("remote", remote))
        )

        async def start(self, tasks: Any, elicit: Any = None) -> None:
            """It is there already."""

        async def stop(self) -> None:
            """Nothing to end."""

    with pytest.raises(CatalogError):
        Tool(name="deep", input_schema=deep)
    given: Any = [Server(), Tool(name="plain", handler=handler)]
    async with Executor(given, policy=Policy([allow("*")]), sandbox=opened) as executor:
        text = executor.instructions()
        assert "tree" in text
        assert "plain" in text
        assert len(text) < 8_000
        result = await executor.run("return await tools.odd.tree({children: [{children: []}]})")
        assert result.value == {"children": [{"children": []}]}
        assert (await executor.run("return await tools.plain({})")).value == {}
        left_out = [line for line in executor.warnings if "is left out" in line]
        assert sorted(line.split(" ")[0] for line in left_out) == ["odd/missing", "odd/remote"]
