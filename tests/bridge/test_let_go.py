"""What a finished run holds is given back when nobody asks for it any more, and not when a collector comes by."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Generator
from typing import Any

import pytest

from bridge import Answer, Executor, Tool
from bridge.run import Run
from sandbox import Sandbox

pytestmark = pytest.mark.anyio
ANY = {"type": "object"}


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"  # references are the matter here


@pytest.fixture
def no_collector() -> Generator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


async def echo(arguments: Any) -> Any:
    return arguments


async def ended(executor: Executor, program: str) -> weakref.ref[Run]:
    run = await executor.start(program)
    if run.status == "paused":
        run = await run.resume({call.id: Answer(1) for call in run.pending})
    assert run.status == "finished"
    return weakref.ref(run)


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("program", ["return await tools.echo({})", "return await tools.client({})", "throw 1"])
async def test_a_run_goes_when_the_executor_keeps_it_no_longer(opened: Sandbox, program: str) -> None:
    tools = [Tool(name="echo", input_schema=ANY, handler=echo), Tool(name="client", input_schema=ANY)]
    async with Executor(tools, sandbox=opened) as executor:
        run = await ended(executor, program)
        assert run() is not None  # kept for `fetch`
        executor._roster._kept.clear()  # as a hundred later runs do
        await ended(executor, "return 1")  # and the loop has let go of its tasks
        assert run() is None
