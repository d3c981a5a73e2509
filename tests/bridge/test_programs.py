"""The forms in which models write programs, through the whole of it: each does what its row says."""

from __future__ import annotations

import json
from collections.abc import Generator
from typing import Any

import anyio.from_thread
import pytest

from bridge import Executor, Result
from sandbox import Limits, Sandbox
from tests.bridge.shop import Shop
from tests.conftest import cases

PROGRAMS = cases("programs")
LIMITS = Limits(cpu_s=2, wall_s=20, memory_bytes=64 << 20)


@pytest.fixture(scope="module")
def shared(portal: anyio.from_thread.BlockingPortal) -> Generator[Sandbox]:
    with portal.wrap_async_context_manager(Sandbox(limits=LIMITS)) as sandbox:
        yield sandbox


async def run(sandbox: Sandbox, program: str) -> tuple[Result, Shop]:
    shop = Shop()
    async with Executor(shop.tools(), sandbox=sandbox) as executor:
        return await executor.run(program), shop


def value_of(result: Result) -> Any:
    """What the case file calls the value: emitted text or console output stands in where there is none."""
    if result.value is not None or not (result.emitted or result.logs):
        return result.value
    return "\n".join(result.emitted or [log.message for log in result.logs])


def same(got: Any, wanted: Any) -> bool:
    if got == wanted:
        return True
    try:  # a row may give the value of JSON text
        return isinstance(got, str) and json.loads(got) == wanted
    except ValueError:
        return False


@pytest.mark.parametrize("case", PROGRAMS, ids=[f"{case['id']}-{case['form']}" for case in PROGRAMS])
def test_a_program_does_what_its_row_says(
    case: dict[str, Any], portal: anyio.from_thread.BlockingPortal, shared: Sandbox
) -> None:
    result, shop = portal.call(run, shared, case["js"])
    expect = case["expect"]
    assert (result.status == "completed") == (expect["status"] == "ok"), result.text
    if "value" in expect:
        assert same(value_of(result), expect["value"]), result.text
    if "calls" in expect:
        assert len(shop.reached) == expect["calls"], result.text
    if "code" in expect:
        assert result.error is not None
        assert result.error.code == expect["code"], result.text
    if "limit" in expect:
        assert result.error is not None
        assert result.error.limit in expect["limit"]
    if "contains" in expect:
        assert expect["contains"] in result.text
    if "warn" in expect:
        assert expect["warn"] in [warning.code for warning in result.warnings], result.text
    if "logs" in expect:
        assert [log.message for log in result.logs] == expect["logs"]
    json.loads(result.to_json())
    assert len(result.text.encode()) <= LIMITS.output_bytes
