"""Reading the report of the walls: what the kernel says of a worker, and what is required of it. Host side."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sandbox import landlock, walls
from sandbox.errors import WallMissing
from sandbox.jail import WALLS, elsewhere
from sandbox.walls import NoWall

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

ALL: Final = "all"  # as `require=`: the strict mode
REQUIRED_ON_LINUX: Final = ("process", "no_new_privs", "rlimits", "seccomp")
_ON_LINUX: Final = sys.platform == "linux"


def stands(pid: int) -> dict[str, str]:
    """What the kernel says of a process, for the host, which does not take a worker's word that a wall stands.

    Returns:
        seccomp, no_new_privs, capabilities, uid -> why it does not stand. A worker's own reason counts beside it: see
        `found`.
    """
    if not _ON_LINUX:
        return {wall: elsewhere()[wall] for wall in said_by_kernel("")}
    try:
        ours, its = (Path(f"/proc/{who}/status").read_text("utf-8", "replace") for who in ("self", pid))
        return said_by_kernel(its, ours)
    except OSError as error:
        reason = f"/proc/{pid}/status cannot be read: {walls.named(error.errno or 0)}"
        return dict.fromkeys(said_by_kernel(""), reason)


def found(report: Mapping[str, str], kernel: Mapping[str, str]) -> dict[str, str]:
    """A worker's own report with what the kernel says of it: a wall stands where neither has anything against it."""
    return {**report, **{wall: why or report.get(wall, "not reported") for wall, why in kernel.items()}}


def said_by_kernel(status: str, host: str = "") -> dict[str, str]:
    """Read the text of /proc/<pid>/status: `stands`, without the file. What it does not say, does not stand.

    Args:
        status: The worker's.
        host: The host's own. A container's profile is a filter, too: a worker must have one more than its host.
    """
    rows, around = (_rows(text) for text in (status, host))
    uids = rows.get("Uid", "not said").split("\t")
    sets = {name: rows.get(name, "not said") for name in ("CapEff", "CapPrm", "CapInh", "CapAmb")}
    filters, outer = (int(which.get("Seccomp_filters", -1)) for which in (rows, around))  # kernel 5.9; or not said
    inherited = f"it has no filter but the {outer} of its host" if 0 <= filters <= outer else ""
    return {
        "seccomp": _said(rows, "Seccomp", "2") or inherited,
        "no_new_privs": _said(rows, "NoNewPrivs", "1"),
        "capabilities": ", ".join(f"{name} is {held}" for name, held in sets.items() if held.strip("0")),
        "uid": f"Uid is {' '.join(uids)}" if "0" in uids or len(uids) != 4 else "",
    }


def _rows(status: str) -> dict[str, str]:
    return dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)


def _said(rows: Mapping[str, str], name: str, wanted: str) -> str:
    value = rows.get(name, "not said")
    return "" if value == wanted else f"{name} is {value}, not {wanted}"


def required(require: Collection[str] | None = None) -> tuple[str, ...]:
    """The walls without which a sandbox does not start, on this machine.

    Args:
        require: Names of walls; `"all"` of them; or None, for what is required unless somebody says otherwise.

    Raises:
        ValueError: It names what is no wall.
    """
    if require is not None:
        named = WALLS if require == ALL else (require,) if isinstance(require, str) else require
        if unknown := sorted(set(named) - set(WALLS)):
            raise ValueError(
                f"require= names {', '.join(unknown)}, but the walls are {', '.join(WALLS)}; {ALL!r} is all of them"
            )
        return tuple(wall for wall in WALLS if wall in named)
    if not _ON_LINUX:
        return ("process",)
    try:
        landlock.version()
    except NoWall:
        return REQUIRED_ON_LINUX
    return (*REQUIRED_ON_LINUX, "landlock")


def demand(report: Mapping[str, str], require: Collection[str]) -> None:
    """Refuse a report in which a required wall does not stand.

    Raises:
        WallMissing: One does not; the text names each, why, and the ways out.
        ValueError: `require` names what is no wall.
    """
    missing = {wall: report.get(wall, "not reported") for wall in required(require) if report.get(wall) != ""}
    if missing:
        lines = [f"the wall {wall!r} ({WALLS[wall]}) does not stand: {reason}" for wall, reason in missing.items()]
        raise WallMissing(
            "; ".join(lines) + ". Run where the kernel and the container's profile allow it (`sandbridge doctor` lists "
            f"what they do), or leave {', '.join(map(repr, missing))} out of Sandbox(require=...) and go without"
        )
