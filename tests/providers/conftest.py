"""One sandbox for all tests of a module on each event loop, as in tests/bridge; and the wires with their clients.

`wire`, `client` and `tools` are OpenAI's; files about the other vendor import its own from `anthropic_shop.py`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from typing import Any

import pytest
from anthropic import AsyncAnthropic

from tests.bridge.conftest import opened
from tests.providers import anthropic_wire
from tests.providers.anthropic_shop import speaking
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


@pytest.fixture
def messages_wire() -> Generator[anthropic_wire.Wire]:
    """The same of the other vendor."""
    with anthropic_wire.serving() as wire:
        yield wire
    assert wire.refusals == []  # whatever a test does, nothing is sent that the vendor would refuse


@pytest.fixture
async def claude(messages_wire: anthropic_wire.Wire) -> AsyncGenerator[AsyncAnthropic]:
    """Its real asynchronous client."""
    async with speaking(messages_wire) as client:
        yield client


@pytest.fixture(params=[False, True], ids=["whole", "streamed"])
def stream(request: pytest.FixtureRequest) -> bool:
    """Both ways to receive a response."""
    return request.param
