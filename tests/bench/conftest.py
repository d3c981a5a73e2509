"""The benchmark runs on asyncio only: there calls that are made together start in their order (runner.py says why)."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from bridge import tokens
from bridge.bench import rows, runner
from sandbox import Sandbox

VARIANTS = (
    ("direct-par",),
    ("direct-seq",),
    ("prog-decl", "oracle", "projection"),
    ("prog-decl", "explore+faulty@1", "projection"),
)


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def opened(anyio_backend: str) -> AsyncGenerator[Sandbox]:
    async with Sandbox() as sandbox:
        yield sandbox


@pytest.fixture(scope="session")
def counter() -> tokens.Tokens:
    return tokens.load()


@pytest.fixture(scope="session")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small measurement, written: two workloads, in one process."""
    folder = tmp_path_factory.mktemp("measured")
    found, manifest = runner.run([runner.Plan("adverse", VARIANTS, 1), runner.Plan("expenses", VARIANTS, 1)], seed=7)
    rows.write(folder, found, manifest)
    return folder
