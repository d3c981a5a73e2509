"""Finished runs are kept for `fetch` and `reuse`, within a bound of memory."""

from __future__ import annotations

from typing import Any

import pytest

from bridge import Executor, Policy, StateError, Tool, ToolContext, allow, roster
from sandbox import Sandbox

pytestmark = pytest.mark.anyio

BOUND = 1 << 20
FULL = {  # what a run may be full of -> a program of a third of the bound
    "value": "return 'v'.repeat(110000)",
    "text": "text('t'.repeat(170000)); return 1",
    "pieces of text": "for (let i = 0; i < 2800; i++) text(''); return 1",
    "arguments": "await small({ text: 'a'.repeat(180000) }); return 1",
    "replies": "await large({}); return 1",
    "calls": "await Promise.all(Array.from({ length: 180 }, () => small({}))); return 1",
    "waves": "for (let i = 0; i < 350; i++) await sleep(0); return 1",
    "program": "// " + "p" * 200_000 + "\nreturn 1",
    "inputs": "return 1",
}


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


async def small(_: Any, __: ToolContext) -> int:
    return 1


async def large(_: Any, __: ToolContext) -> str:
    return "r" * 350_000


@pytest.mark.parametrize("what", FULL)
async def test_whatever_runs_are_full_of_no_more_is_kept_than_the_bound_holds(
    opened: Sandbox, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.setattr(roster, "KEPT_BYTES", BOUND)
    tools = [Tool(name=each.__name__, input_schema={"type": "object"}, handler=each) for each in (small, large)]
    async with Executor(tools, policy=Policy([allow("*")]), sandbox=opened) as executor:
        inputs = "i" * 350_000 if what == "inputs" else None
        results = [await executor.run(FULL[what], inputs=inputs) for _ in range(8)]
        assert [result.status for result in results] == ["completed"] * 8
        with pytest.raises(StateError, match="is known"):
            await executor.run("return 1", reuse=results[0].run_id)
        assert (await executor.run("return 1", reuse=results[-1].run_id)).status == "completed"
