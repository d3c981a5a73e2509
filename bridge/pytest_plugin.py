"""A pytest plugin: the fixture `cassette`, and `--cassettes=replay|record|off`.

    async def test_the_refund_is_given(cassette):
        result = await cassette.run(Executor([mcp.stdio("shop", ...)], policy=...), PROGRAM)
        assert result.value["refunded"] == 28.56

Recordings lie in `cassettes/` beside the test file, one for each test. `replay` (the default) needs neither tools nor
network; `record` calls the tools and writes; `off` calls them and writes nothing. Override the fixture
`cassette_redaction` to name further secrets.

Loaded by every pytest where the package is installed: nothing is imported before a test asks for the fixture.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from bridge.testing import Cassette, Redaction

MODES: Final = ("replay", "record", "off")
_LONGEST: Final = 120  # characters of a file's name, which file systems bound


def pytest_addoption(parser: pytest.Parser) -> None:
    """The option."""
    group = parser.getgroup("sandbridge")
    group.addoption(
        "--cassettes",
        choices=MODES,
        default="replay",
        help="What the fixture `cassette` does: replay recorded runs (default), record them, or neither (off).",
    )


def pytest_report_header(config: pytest.Config) -> str | None:
    """Say so where tools are really called."""
    mode = config.getoption("--cassettes")
    return None if mode == "replay" else f"sandbridge: cassettes={mode}, tools are really called"


@pytest.fixture
def cassette_redaction() -> Redaction:
    """The rules by which secrets are kept out of recordings; to be overridden."""
    from bridge.testing import Redaction

    return Redaction()


@pytest.fixture
def cassette(request: pytest.FixtureRequest, cassette_redaction: Redaction) -> Cassette:
    """The recordings of this test; see `bridge.testing.Cassette`."""
    from bridge.testing import Cassette

    mode: Any = request.config.getoption("--cassettes")
    return Cassette(path_of(request.path, request.node.nodeid), mode, cassette_redaction)


def path_of(test_file: Path, nodeid: str) -> Path:
    """Where the recording of a test lies: told from its name, which need not be one that files can have."""
    name = ".".join(nodeid.split("::")[1:])
    plain = re.sub(r"[^\w.-]+", "-", name.replace("[", "-").removesuffix("]"))[:_LONGEST]
    if plain != name.replace("[", "-", 1).removesuffix("]"):  # told apart from names that look alike by then
        plain += f"-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
    return test_file.parent / "cassettes" / test_file.stem / f"{plain}.jsonl"
