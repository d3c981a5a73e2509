"""Durable runs: one sandbox a module and event loop, a table of effects, stores that several hosts share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bridge.store import Store
from tests.bridge.conftest import opened
from tests.durable.world import Effects, Tools

__all__ = ["opened"]


@pytest.fixture(scope="module", params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def effects(tmp_path: Path) -> Iterator[Effects]:
    table = Effects(tmp_path / "effects.db")
    yield table
    table.close()


@pytest.fixture
def tools(effects: Effects) -> Tools:
    return Tools(effects)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """In a file: several hosts share it."""
    with Store(f"sqlite:///{tmp_path}/runs.db") as kept:
        yield kept
