"""The table of mutants: each takes one defence away, and names the tests that have to notice."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Final

import msgspec

ROOT: Final = Path(__file__).resolve().parent.parent.parent
ATTACK: Final = "attack:"  # before a threat, or the name of a program of the corpus


class Mutant(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One defence, taken away.

    Attributes:
        name: What is then possible.
        file: Where, from the root of the checkout.
        old, new: The text, which stands there once, and what takes its place.
        tests: What must fail: `FILE`, `FILE::TEST`, or `attack:THREAT` for programs of the corpus. One is enough.
    """

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


def load() -> list[Mutant]:
    """All of them, area by area."""
    found: list[Mutant] = []
    for path in sorted(Path(__file__).parent.glob("*.toml")):
        found += msgspec.convert(tomllib.loads(path.read_text("utf-8"))["mutant"], list[Mutant])
    return found


def wrong(mutant: Mutant) -> str:
    """Why it does not apply; empty where it does."""
    times = (ROOT / mutant.file).read_text("utf-8").count(mutant.old)
    return "" if times == 1 else f"its old text stands {times} times in {mutant.file}"
