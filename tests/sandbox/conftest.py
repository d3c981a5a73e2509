"""A sandbox to test against, and a way to run one program in it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from sandbox import (
    Death,
    Fired,
    Limits,
    Log,
    Notice,
    Rejected,
    Reply,
    Resolved,
    Returned,
    Sandbox,
    Start,
    Threw,
    ToolName,
    Wave,
)

SMALL = Limits(memory_bytes=64 << 20, cpu_s=2, wall_s=5)


@dataclass
class Outcome:
    """What one program did, with tools played by a function."""

    end: Returned | Threw | None = None
    death: Death | None = None
    calls: list[tuple[str, Any]] = field(default_factory=list)
    text: list[str] = field(default_factory=list)
    logs: list[Log] = field(default_factory=list)
    warnings: list[Notice] = field(default_factory=list)
    waves: list[Wave] = field(default_factory=list)

    @property
    def value(self) -> Any:
        assert isinstance(self.end, Returned), self.end or self.death
        return msgspec.json.decode(self.end.value) if bytes(self.end.value) else None


def start_of(program: str, tools: Sequence[str] = (), limits: Limits = SMALL, inputs: Any = None) -> Start:
    return Start(
        program=program,
        tools=[ToolName(name, tuple(name.split("/"))) for name in tools],
        inputs=msgspec.Raw(msgspec.json.encode(inputs)),
        seed=1,
        now_ms=1_800_000_000_000.0,
        argument_bytes=limits.argument_bytes,
        value_bytes=limits.value_bytes,
        log_bytes=limits.log_bytes,
        frame_bytes=limits.frame_bytes,
    )


async def play(
    sandbox: Sandbox,
    program: str,
    answer: Callable[[str, list[Any]], Any] = lambda tool, arguments: arguments,
    tools: Sequence[str] = ("echo",),
    limits: Limits = SMALL,
    inputs: Any = None,
) -> Outcome:
    """Run a program; `answer` gives each call's value, or raises for a tool error. Timers fire at once."""
    out = Outcome()
    now = 1_800_000_000_000.0
    async with sandbox.worker() as worker:
        wave = await sandbox.start(worker, start_of(program, tools, limits, inputs), limits, limits.wall_s)
        while True:
            if wave is None:
                out.death = await sandbox.bury(worker)
                return out
            out.waves.append(wave)
            out.text += wave.text
            out.logs += wave.logs
            out.warnings += wave.warnings
            replies: list[Reply] = []
            for call in wave.calls:
                arguments = msgspec.json.decode(call.arguments)
                out.calls.append((call.tool, arguments))
                try:
                    replies.append(Resolved(call.id, msgspec.Raw(msgspec.json.encode(answer(call.tool, arguments)))))
                except ValueError as error:
                    replies.append(Rejected(call.id, "failed", call.tool, str(error)))
            due = [timer.id for timer in wave.timers if timer.id not in wave.cleared]
            replies += [Fired(number) for number in due]
            if wave.end is not None:
                out.end = wave.end
                return out
            if not replies and not wave.more:
                return out  # it waits for something that cannot happen
            now += 1
            wave = await sandbox.deliver(worker, now, replies, limits.wall_s)


@pytest.fixture
async def sandbox(anyio_backend: str) -> AsyncGenerator[Sandbox]:
    async with Sandbox(limits=SMALL, spares=1) as opened:
        yield opened
