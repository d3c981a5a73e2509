"""The threat manifest: what somebody may try, what stands against it, where, how far that reaches, and who says so.

`threats.toml` is the data. Every threat has a test and every test of an attack names a threat; `test_threats.py` checks
both. A test names its threat by `@pytest.mark.threat("...")`, a program of the corpus and an attempt of native code by
their `threat`; tests of one wall are named by the threat itself. `python -m tests.threats` prints the README's table,
with `--full` those of SECURITY.md.
"""

from __future__ import annotations

import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

_FILE: Final = Path(__file__).with_name("threats.toml")


@dataclass(frozen=True, kw_only=True)
class Boundary:
    """Where attacks meet a defence.

    Attributes:
        between: The two sides.
        attacker: Who tries.
        defence: What stands there, in a line.
    """

    between: str
    attacker: str
    defence: str


@dataclass(frozen=True, kw_only=True)
class Threat:
    """One thing that somebody may try.

    Attributes:
        id: What tests name it by.
        boundary: Where it is tried.
        tried: What the attacker does.
        defence: What stands against it.
        where: Files that hold the defence.
        limit: What the defence does not do.
        source: Who described it: a specification, a published weakness of others, a law of ours.
        tests: Tests that belong to it without a marker: `FILE` (all of them) or `FILE::TEST`.
    """

    id: str
    boundary: str
    tried: str
    defence: str
    where: tuple[str, ...]
    limit: str
    source: str
    tests: tuple[str, ...] = ()


_DATA: Final = tomllib.loads(_FILE.read_text("utf-8"))
BOUNDARIES: Final = msgspec.convert(_DATA["boundary"], dict[str, Boundary])
THREATS: Final = msgspec.convert(_DATA["threat"], tuple[Threat, ...])

_SANDBOX = "attacks jail walls seccomp wire protocol hostile_bytes hostile_worker"
_BRIDGE = "hostile_server state_attacks approval_text approver_key"
# Files that are about attacks only: each of their tests must be named by a threat.
ATTACK_FILES: Final = (
    *(f"tests/sandbox/test_{name}.py" for name in _SANDBOX.split()),
    *(f"tests/bridge/test_{name}.py" for name in _BRIDGE.split()),
)


def table() -> str:
    """The README's: a row for each boundary."""
    rows = ["| between | who attacks | threats | what stands there |", "|---|---|---|---|"]
    for name, boundary in BOUNDARIES.items():
        count = sum(threat.boundary == name for threat in THREATS)
        rows.append(f"| {boundary.between} | {boundary.attacker} | {count} | {boundary.defence} |")
    return "\n".join(rows) + "\n"


def full_table() -> str:
    """SECURITY.md's: a row for each threat."""
    lines: list[str] = []
    for name, boundary in BOUNDARIES.items():
        lines += [f"### Between {boundary.between}", "", f"The attacker: {boundary.attacker}.", ""]
        lines += ["| threat | what is tried | what stands against it | what that does not do |", "|---|---|---|---|"]
        lines += [
            f"| `{threat.id}` | {threat.tried} | {threat.defence} | {threat.limit} |"
            for threat in THREATS
            if threat.boundary == name
        ]
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    print(full_table() if "--full" in sys.argv else table(), end="")
