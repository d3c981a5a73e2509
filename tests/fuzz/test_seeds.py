"""Every input that fuzzing started from, and every one that it found a fault with, without a fuzzer."""

from __future__ import annotations

from pathlib import Path

import pytest

from .targets import TARGETS

HERE = Path(__file__).parent
FILES = sorted(path for kind in ("seeds", "crashers") for path in (HERE / kind).glob("*/*"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: "/".join(path.parts[-3:]))
def test_an_input_gives_what_is_typed_or_the_error_that_is_documented(path: Path) -> None:
    TARGETS[path.parent.name](path.read_bytes())


def test_every_target_has_seeds() -> None:
    assert {path.parent.name for path in (HERE / "seeds").glob("*/*")} == {*TARGETS}
