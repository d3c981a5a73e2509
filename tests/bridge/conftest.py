"""One sandbox for all tests of a module on each event loop: forking is fast, starting V8 is not."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest

from sandbox import Limits, Sandbox

LIMITS = Limits(cpu_s=5, wall_s=30, memory_bytes=64 << 20)


@pytest.fixture(scope="module")
async def opened(anyio_backend: str) -> AsyncGenerator[Sandbox]:
    """Needs an `anyio_backend` of module scope."""
    async with Sandbox(limits=LIMITS) as sandbox:
        yield sandbox
