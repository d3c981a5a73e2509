"""What many of these tests stand on.

One sandbox for all tests of a module on each event loop: forking is fast, starting V8 is not.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bridge import Executor, Policy, ask
from bridge.store import Store
from sandbox import Limits, Sandbox
from tests.bridge.kept_project import CONFIG, TOOLS
from tests.bridge.scripted import Tools

if TYPE_CHECKING:  # MCP takes half a second to load, and most of these tests need none
    from bridge.gateway import Gateway
    from tests.bridge.hosts import Paid

LIMITS = Limits(cpu_s=5, wall_s=30, memory_bytes=64 << 20)


@pytest.fixture(scope="module")
async def opened(anyio_backend: str) -> AsyncGenerator[Sandbox]:
    """Needs an `anyio_backend` of module scope."""
    async with Sandbox(limits=LIMITS) as sandbox:
        yield sandbox


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project whose configuration names a store beside it, and the directory that we are in."""
    (tmp_path / "tools.py").write_text(TOOLS)
    (tmp_path / "sandbridge.toml").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def tools() -> Tools:
    return Tools()


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'runs.db'}"


@pytest.fixture
def store(url: str) -> Generator[Store]:
    """The store as the one who decides has it: nothing else of the process that runs programs."""
    with Store(url) as opened:
        yield opened


@pytest.fixture(params=["2025-11-25", "2026-07-28"])
def revision(request: pytest.FixtureRequest) -> str:
    """Of the protocol, as a host speaks it."""
    return request.param


@pytest.fixture(scope="module", params=[[], ["--older"]], ids=["server 2026", "server 2025"])
def older(request: pytest.FixtureRequest) -> list[str]:
    """What a server of tests/servers is told, to speak the newer revision or the older one."""
    return request.param


@pytest.fixture
def shop() -> Paid:
    from tests.bridge.hosts import Paid

    return Paid()


@pytest.fixture
async def gateway(shop: Paid, opened: Sandbox) -> AsyncGenerator[Gateway]:
    """In front of the shop; `pay` is asked about."""
    from bridge.gateway import Gateway

    async with Executor(shop.tools(), policy=Policy([ask("pay")]), sandbox=opened) as executor:
        yield Gateway(executor)
