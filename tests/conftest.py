"""What every test may use: both event loops, and the case files."""

from __future__ import annotations

import json
import os
from collections.abc import Generator
from pathlib import Path
from typing import Any

import anyio.from_thread
import pytest

DATA = Path(__file__).parent / "data"
# What stands on the executor and starts nothing on the event loop itself: on the second one each night only.
LIKE_THE_FIRST = (
    "tests/providers/",
    "tests/bridge/test_gateway",
    "tests/bridge/test_elicitation",
    "tests/bridge/test_mcp",
)

# Files that take longest, first: the others fill what time is left on every core.
LONGEST = (
    "tests/durable/test_crashes.py",
    "tests/sandbox/test_attacks.py",
    "tests/conformance/",
    "tests/bridge/test_serving",
    "tests/hosts/",
    "tests/test_load.py",
    "tests/bridge/test_cli.py",
    "tests/test_examples.py",
    "tests/sandbox/test_pool.py",
    "tests/bridge/test_runs_command.py",
    "tests/bridge/test_deciding_command.py",
    "tests/bridge/test_search_names.py",
    "tests/durable/",
    "tests/providers/",
    "tests/sandbox/",
)
# What these run is in other processes, or is run by other tests too: counting its lines would only take time.
UNCOUNTED = (
    "tests/durable/test_crashes.py",
    "tests/sandbox/test_attacks.py",
    "tests/sandbox/test_hostile",
    "tests/conformance/",
    "tests/bridge/test_serving",
    "tests/bridge/test_search_names.py",
    "tests/hosts/",
    "tests/test_load.py",
    "tests/test_examples.py",
    "tests/fuzz/",
)


@pytest.fixture(scope="session", autouse=True)
def _own_state(tmp_path_factory: pytest.TempPathFactory) -> Generator[None]:
    """What commands keep by default goes into a directory of the tests, not of who runs them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        patch.delenv("SANDBRIDGE_STORE", raising=False)
        yield


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Begin with what takes longest; leave to the nightly run what costs time and hardly ever differs."""
    items.sort(key=lambda item: next((at for at, name in enumerate(LONGEST) if item.nodeid.startswith(name)), 99))
    for item in items:
        if item.nodeid.startswith(UNCOUNTED):
            item.add_marker("no_cover")
    if os.environ.get("SANDBRIDGE_NIGHTLY"):
        return
    left = [item for item in items if item.nodeid.startswith(LIKE_THE_FIRST) and _on_trio(item)]
    if left:
        config.hook.pytest_deselected(items=left)
        gone = set(left)
        items[:] = [item for item in items if item not in gone]


def _on_trio(item: pytest.Item) -> bool:
    spec = getattr(item, "callspec", None)
    return spec is not None and spec.params.get("anyio_backend") == "trio"


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Both event loops: everything asynchronous must work on each."""
    return request.param


@pytest.fixture(scope="module")
def portal() -> Generator[anyio.from_thread.BlockingPortal]:
    """An event loop in a thread of its own, for tests that share what is open on it."""
    with anyio.from_thread.start_blocking_portal() as opened:
        yield opened


def cases(name: str) -> list[dict[str, Any]]:
    """The rows of a case file in tests/data."""
    return [json.loads(line) for line in (DATA / f"{name}.jsonl").read_text("utf-8").split("\n") if line]
