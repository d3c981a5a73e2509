"""The server, the client and the tools that the tests of this vendor share; files import the fixtures that they use."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from anthropic import AsyncAnthropic

from bridge import Executor, anthropic
from tests.bridge.scripted import Tools
from tests.providers.anthropic_wire import Block, Wire

HELLO: list[Block] = [{"role": "user", "content": "hello"}]
WRITE = "return await tools.write({ n: 1 })"
WROTE = '[sandbridge] completed; 1 call\n{"wrote":{"n":1}}'


@pytest.fixture
def tools() -> Tools:
    return Tools()


@pytest.fixture
def wire(messages_wire: Wire) -> Wire:
    return messages_wire


@pytest.fixture
def client(claude: AsyncAnthropic) -> AsyncAnthropic:
    return claude


@asynccontextmanager
async def speaking(wire: Wire) -> AsyncGenerator[AsyncAnthropic]:
    """The real client, closed afterwards."""
    async with AsyncAnthropic(api_key="none", base_url=wire.base_url, max_retries=0) as client:
        yield client


async def talk(client: Any, executor: Executor, **options: Any) -> anthropic.Conversation:
    given = {"model": "some-model", "max_tokens": 1000, "messages": HELLO, **options}
    return await anthropic.run(client, executor, **given)


def said(*content: Block, stop: str = "tool_use") -> Block:
    """A response as plain data."""
    return {"role": "assistant", "content": list(content), "stop_reason": stop}
