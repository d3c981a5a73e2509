"""Servers in an executor: a program calls them through the one gate."""

from __future__ import annotations

import pytest

from bridge import Executor, Policy, mcp
from tests.bridge.odd_servers import odd

pytestmark = pytest.mark.anyio


async def test_a_program_calls_a_server_and_reads_its_errors() -> None:
    program = """
    const found = await tools.odd.big_integer({});
    const both = await Promise.all([tools.odd.echo({n: 1}), tools.odd["say"]({result: {content: []}})]);
    let caught = null;
    try { await tools.odd.exits({}) } catch (error) { caught = [error.code, error instanceof Error] }
    return {found, both, caught, after: await tools.odd.echo({n: 2})};
    """
    async with Executor([odd(require_approval="never")], policy=Policy()) as executor:
        result = await executor.run(program)
    assert result.error is None
    assert result.value == {
        "found": {"id": "9007199254740993", "bigger": "123456789012345678901234567890"},
        "both": [{"n": 1}, {"text": "", "images": [], "resources": []}],
        "caught": ["unknown_outcome", True],
        "after": {"n": 2},
    }


async def test_a_picture_of_a_server_can_be_fetched_by_its_handle() -> None:
    server = odd(require_approval="never")
    async with Executor([server]) as executor:
        result = await executor.run("return (await tools.odd.picture({})).images[0]")
        assert result.value["mime_type"] == "image/png"
        assert executor.fetch(result.value["handle"]) == server.blobs[result.value["handle"]]


async def test_a_server_that_is_down_leaves_the_rest_of_the_executor_usable() -> None:
    down = mcp.stdio("down", "no-such-command")
    async with Executor([down, odd(require_approval="never")]) as executor:
        result = await executor.run("return await tools.odd.echo({n: 1})")
    assert result.value == {"n": 1}


async def test_a_deadline_of_the_gate_ends_a_call_to_a_server_that_never_answers() -> None:
    async with Executor([odd(require_approval="never", call_s=0.2)]) as executor:
        result = await executor.run(
            "try { await tools.odd.silence({}) } catch (error) { return [error.code, await tools.odd.echo({n: 1})] }"
        )
    assert result.value == ["timeout", {"n": 1}]
