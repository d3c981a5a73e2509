"""A worker that is no longer ours, as a process behind real pipes: what reaches tools, what is left, who waits.

`SANDBRIDGE_EXCHANGES` says how many runs there are; a failure prints the seed from which it can be played again.
"""

from __future__ import annotations

import gc
import os
import resource
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from bridge import Executor, Policy, Result, Tool, ToolContext, allow
from sandbox import EngineUnavailable, Limits, Sandbox, Worker, origin
from sandbox.messages import Settings
from sandbox.origin import Born

from .test_pool import children, descriptors

pytestmark = pytest.mark.anyio
ZYGOTE = Path(__file__).with_name("hostile_zygote.py")
RUNS = min(int(os.environ.get("SANDBRIDGE_EXCHANGES") or 80), 5000)
FIRST = int(os.environ.get("SANDBRIDGE_SEED") or 0)
LIMITS = Limits(wall_s=0.5, cpu_s=2, calls=50, memory_bytes=64 << 20, expires_s=1)
BIG = msgspec.Raw(b'"' + b"x" * (4 << 20) + b'"')  # far over what a socket holds


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"  # processes and bytes are the matter here; `test_pool.py` has both event loops


class Effects:
    """Counts what reaches a tool."""

    def __init__(self) -> None:
        self.times: Counter[str] = Counter()

    def tools(self) -> list[Tool]:
        async def echo(arguments: Any, context: ToolContext) -> Any:
            self.times[context.call_id] += 1
            return arguments

        async def big(_: Any, context: ToolContext) -> Any:
            self.times[context.call_id] += 1
            return BIG

        schema = {"type": "object"}
        return [
            Tool(name="echo", input_schema=schema, handler=echo),
            Tool(name="big", input_schema=schema, handler=big),
        ]


@asynccontextmanager
async def hosts(
    monkeypatch: pytest.MonkeyPatch, behaviour: str, seed: int = FIRST, limits: Limits = LIMITS
) -> AsyncGenerator[tuple[Executor, Effects]]:
    """An executor whose zygote is the hostile one; afterwards nothing of it is left."""
    number = [seed]

    def command(entry: str, settings: Settings) -> list[str]:
        number[0] += 1000  # a retired zygote's successor goes on elsewhere, and a failure can be played again
        given = msgspec.json.encode(settings).decode()
        code = f"import sys; sys.path.insert(0, {str(ZYGOTE.parent)!r}); import hostile_zygote; hostile_zygote.main()"
        return [sys.executable, "-I", "-S", "-c", code, given, str(number[0]), behaviour]

    monkeypatch.setattr(origin, "command", command)
    gc.collect()
    before, effects = (children(), descriptors()), Effects()
    async with (
        Sandbox(limits=limits, spares=0, require=()) as sandbox,
        Executor(effects.tools(), policy=Policy([allow("*")]), sandbox=sandbox) as executor,
    ):
        yield executor, effects
    gc.collect()
    assert (children(), descriptors()) == before


def assert_each_effect_once(result: Result, effects: Effects) -> None:
    rows = {row.id for row in result.calls}
    own = {call: times for call, times in effects.times.items() if call.startswith(f"{result.run_id}.")}
    assert set(own.values()) <= {1}, own
    assert set(own) <= rows
    assert len(own) <= LIMITS.calls


async def test_no_exchange_does_more_than_its_calls_and_nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    statuses: Counter[str] = Counter()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    async with hosts(monkeypatch, "any") as (executor, effects):

        async def some(count: int) -> None:
            for _ in range(count):
                result = await executor.run("return 1")
                assert_each_effect_once(result, effects)
                assert json_of(result)
                assert result.text.isprintable() or "\n" in result.text
                statuses[result.status] += 1

        async with anyio.create_task_group() as tasks:
            for _ in range(8):
                tasks.start_soon(some, RUNS // 8)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert statuses.total() == RUNS // 8 * 8
    rare = {"completed"} if RUNS >= 1000 else set[str]()  # one in a hundred
    assert {"crashed", "exceeded", *rare} <= set(statuses)
    assert grown < 300 << 10, f"the host grew by {grown >> 10} MiB"


def json_of(result: Result) -> str:
    return msgspec.json.encode(result.to_json()).decode()


ENDS = {  # behaviour -> how its runs may end
    "speaks": {"completed", "failed", "crashed", "exceeded", "stalled"},
    "never_reads": {"exceeded"},
    "reads_slowly": {"exceeded"},
    "drips": {"crashed", "exceeded"},  # a frame of white space is complete in the end, and no message
    "floods": {"crashed", "stalled"},  # the first wave may call nothing, and nobody listens any more
    "calls_again": {"crashed"},
    "says_more": {"crashed", "exceeded"},
    "closes": {"crashed", "exceeded"},
    "ends": {"crashed", "exceeded", "violation"},
    "goes_on": {"completed", "crashed"},
}


@pytest.mark.parametrize("behaviour", ENDS)
async def test_each_behaviour_ends_in_its_way(monkeypatch: pytest.MonkeyPatch, behaviour: str) -> None:
    async with hosts(monkeypatch, behaviour) as (executor, effects):
        turns = 0

        async def others() -> None:
            nonlocal turns
            while True:
                turns += 1
                await anyio.sleep(0.001)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(others)
            for _ in range(2):
                before = turns
                with anyio.fail_after(20):
                    result = await executor.run("return 1")
                assert result.status in ENDS[behaviour], result.text
                assert_each_effect_once(result, effects)
                if result.error is not None and result.error.limit == "wall_s":
                    assert turns - before > 20  # of 500: the host was not blocked meanwhile
            tasks.cancel_scope.cancel()


class Dripping:
    """A channel on which the next byte of a large frame is always there."""

    def __init__(self) -> None:
        self.given = 0

    def send(self, data: bytes) -> int:
        return len(data)

    def recv(self, size: int, flags: int = 0) -> bytes:
        self.given += 1
        # The header first: the largest frame that a greeting may be, nearly.
        return b"\x00\x00\xff\xf0"[self.given - 1 : self.given] or b" "

    def fileno(self) -> int:
        return 5000  # over what select() can look at

    def close(self) -> None:
        pass


async def test_a_worker_that_drips_without_a_pause_is_ended_at_its_deadline_before_its_frame_is_whole() -> None:
    channel = Dripping()
    with subprocess.Popen(["sleep", "60"]) as process:  # noqa: ASYNC220  started at once
        worker = Worker(Born(process.pid, -1, channel), None, LIMITS, LIMITS)
        assert await worker._step(b"", 0.05) is None
        assert worker.killed_for == "wall_s"
        assert process.wait(20) == -9
    assert channel.given < 65_000


async def test_a_worker_that_greets_wrongly_serves_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    ends: Counter[str] = Counter()
    for seed in range(FIRST, FIRST + 4 * 1000, 1000):
        try:
            async with hosts(monkeypatch, "greets_wrongly", seed) as (executor, effects):
                result = await executor.run("return 1")
                assert_each_effect_once(result, effects)
                ends["served"] += 1
        except EngineUnavailable as error:
            ends["refused" if str(error).isprintable() else "refused, and not to be printed"] += 1
    assert ends["refused"] >= 1
    assert set(ends) <= {"refused", "served"}


async def test_a_zygote_that_answers_nothing_any_more_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(origin, "ANSWER_S", 0.2)
    async with hosts(monkeypatch, "goes_on") as (executor, _):
        first = executor.sandbox._origin  # nothing public shows it
        assert isinstance(first, origin.Zygote)
        await executor.sandbox.bury(executor.sandbox._spares.popleft())
        first.process.send_signal(19)
        with anyio.fail_after(20):
            result = await executor.run("return 1")
        assert result.status in ("completed", "crashed")
        assert executor.sandbox._origin is not first
