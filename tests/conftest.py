"""What every test may use: both event loops, and the case files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

DATA = Path(__file__).parent / "data"


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Both event loops: everything asynchronous must work on each."""
    return request.param


def cases(name: str) -> list[dict[str, Any]]:
    """The rows of a case file in tests/data."""
    return [json.loads(line) for line in (DATA / f"{name}.jsonl").read_text("utf-8").split("\n") if line]
