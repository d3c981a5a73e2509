"""A sandbox to test against, and a way to run one program in it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any

import pytest

from sandbox import Limits, Sandbox, Start
from sandbox.attacks import player
from sandbox.attacks.player import Outcome as Outcome

SMALL = Limits(memory_bytes=64 << 20, cpu_s=2, wall_s=5)


def start_of(program: str, tools: Sequence[str] = (), limits: Limits = SMALL, inputs: Any = None) -> Start:
    return player.start_of(program, tools, limits, inputs)


async def play(
    sandbox: Sandbox,
    program: str,
    answer: Callable[[str, list[Any]], Any] = lambda tool, arguments: arguments,
    tools: Sequence[str] = ("echo",),
    limits: Limits = SMALL,
    inputs: Any = None,
) -> Outcome:
    """Run a program; `answer` gives each call's value, or raises for a tool error. Timers fire at once."""
    return await player.play(sandbox, program, answer, tools, limits, inputs)


@pytest.fixture
async def sandbox(anyio_backend: str) -> AsyncGenerator[Sandbox]:
    async with Sandbox(limits=SMALL, spares=1) as opened:
        yield opened
