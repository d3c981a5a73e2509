"""One sandbox for all tests of a module on each event loop, as in tests/bridge; and the OpenAI wire with its client.

Tests of the other vendor import a `wire`, `client` and `tools` of their own from `anthropic_shop.py`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from typing import Any

import pytest

from tests.bridge.conftest import opened
from tests.providers.openai_shop import Tools, client_of
from tests.providers.openai_wire import Wire, served

__all__ = ["opened"]


@pytest.fixture(scope="module", params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Of module scope, as the sandbox is."""
    return request.param


@pytest.fixture
def wire() -> Generator[Wire]:
    """A new server with an empty script."""
    with served() as wire:
        yield wire


@pytest.fixture
def tools() -> Tools:
    """What programs can call, and what came to it."""
    return Tools()


@pytest.fixture
async def client(wire: Wire) -> AsyncGenerator[Any]:
    """The real asynchronous client."""
    async with client_of(wire) as client:
        yield client
