"""The pytest plugin in a pytest of its own: what each mode does, and where recordings lie."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import bridge
from bridge import Executor, tool
from bridge.pytest_plugin import path_of
from bridge.testing import Cassette

ROOT = Path(bridge.__file__).parents[1]
TESTS = '''
import pytest
from bridge import Executor, tool
from bridge.testing import Redaction


@tool
def page(n: int) -> dict:
    """One page."""
    with open("reached", "a") as reached:
        reached.write(f"{n} ")
    return {"title": f"page {n}", "shelf": "b-7"}


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture
def cassette_redaction():
    return Redaction(keys=["shelf"])


@pytest.mark.anyio
async def test_pages(cassette):
    one = await cassette.run(Executor([page]), "return (await tools.page({n: 1})).title")
    two = await cassette.run(Executor([page]), "return (await tools.page({n: 2})).title")
    assert (one.value, two.value) == ("page 1", "page 2")


@pytest.mark.parametrize("n", [3])
def test_sync(cassette, n):
    result = cassette.run_sync(Executor([page]), "return (await tools.page({n: inputs})).title", inputs=n)
    assert result.value == f"page {n}"
'''


def pytest_in(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run pytest there, with the plugin and the one of anyio, and nothing else that may be installed."""
    line = [sys.executable, "-m", "pytest", "-p", "anyio", "-p", "bridge.pytest_plugin", "-p", "no:cacheprovider"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    environment.pop("PYTEST_ADDOPTS", None)
    return subprocess.run(
        [*line, *words], cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=120
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "test_library.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    return tmp_path


def test_what_was_recorded_is_replayed_without_tools_and_a_difference_is_what_the_test_shows(folder: Path) -> None:
    recorded = pytest_in(folder, "--cassettes=record")
    assert recorded.returncode == 0, recorded.stdout
    assert "sandbridge: cassettes=record, tools are really called" in recorded.stdout.split("\n")
    files = sorted(path.relative_to(folder) for path in folder.rglob("*.jsonl"))
    assert list(map(str, files)) == [
        "cassettes/test_library/test_pages-2.jsonl",
        "cassettes/test_library/test_pages.jsonl",
        "cassettes/test_library/test_sync-3.jsonl",
    ]
    assert [path for path in files if "b-7" in (folder / path).read_text()] == []
    assert (folder / "reached").read_text() == "1 2 3 "
    replayed = pytest_in(folder)
    assert (replayed.returncode, "sandbridge" in replayed.stdout) == (0, False), replayed.stdout
    assert (folder / "reached").read_text() == "1 2 3 "
    (folder / "test_library.py").write_text(TESTS.replace("{n: 2}", "{n: 22}"))
    differs = pytest_in(folder)
    lines = [line[1:].strip() for line in differs.stdout.split("\n") if line.startswith("E  ")]
    place = f"{folder}/cassettes/test_library/test_pages-2.jsonl"
    assert (differs.returncode, lines) == (
        1,
        [
            f"bridge.errors.Diverged: {place}: call 1 at line 1 has no recorded reply",
            'recorded: page({"n":2})',
            'now:      page({"n":22})',
        ],
    )
    assert "bridge/testing.py:" not in differs.stdout
    (folder / "test_library.py").write_text(TESTS)
    off = pytest_in(folder, "--cassettes=off", "-k", "pages")
    assert (off.returncode, (folder / "reached").read_text()) == (0, "1 2 3 1 2 ")


def test_without_a_recording_a_test_fails_and_says_how_to_make_one(folder: Path) -> None:
    done = pytest_in(folder, "-k", "sync")
    [line] = [line[1:].strip() for line in done.stdout.split("\n") if line.startswith("E  ")]
    place = f"{folder}/cassettes/test_library/test_sync-3.jsonl"
    said = f"bridge.errors.StateError: {place}: there is no recording: run the test with --cassettes=record"
    assert (done.returncode, line, (folder / "reached").exists()) == (1, said, False)


@pytest.mark.parametrize(
    ("nodeid", "name"),
    [
        ("tests/test_a.py::test_one", "test_one"),
        ("tests/test_a.py::TestIt::test_one", "TestIt.test_one"),
        ("tests/test_a.py::test_one[trio-3]", "test_one-trio-3"),
        ("tests/test_a.py::test_one[a/b]", "test_one-a-b-d2765ba8"),
        ("tests/test_a.py::test_one[a b]", "test_one-a-b-14e99c8f"),
    ],
)
def test_each_test_has_a_file_of_its_own(nodeid: str, name: str) -> None:
    assert path_of(Path("tests/test_a.py"), nodeid) == Path("tests/cassettes/test_a") / f"{name}.jsonl"


def test_a_long_name_is_cut_and_still_its_own() -> None:
    one, two = (path_of(Path("test_a.py"), f"test_a.py::test_{'x' * 300}{end}") for end in "ab")
    assert one != two
    assert len(one.name) < 150


def test_the_plugin_is_found_by_every_pytest_where_the_package_is_installed() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"sandbridge": "bridge.pytest_plugin"}


def test_the_plugin_loads_nothing_before_a_test_asks_for_it() -> None:
    code = "import sys, bridge.pytest_plugin; print(sorted(each for each in sys.modules if each.startswith('bridge.')))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "['bridge.errors', 'bridge.pytest_plugin']\n"


def test_a_cassette_serves_tests_without_an_event_loop(tmp_path: Path) -> None:
    reached: list[int] = []

    @tool
    def page(n: int) -> str:
        """One page."""
        reached.append(n)
        return f"page {n}"

    for mode in ("record", "replay"):
        result = Cassette(tmp_path / "sync.jsonl", mode).run_sync(Executor([page]), "return await tools.page({n: 1})")
        assert (result.value, reached) == ("page 1", [1])
