"""Every contender by its name, and which of them are here.

A peer is added in three lines: its class (one of the modules beside this one shows how), an entry below, and its name
in `PEERS` of workloads.py.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from bridge.bench.speed.apart import Apart
from bridge.bench.speed.contender import Contender
from bridge.bench.speed.monty import Monty
from bridge.bench.speed.ours import Sandbridge
from bridge.bench.speed.processes import Deno, Node
from bridge.bench.speed.quickjs import QuickJSNG, QuickJSRS
from bridge.bench.speed.racer import MiniRacer


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A contender that can be had.

    Attributes:
        found: Its version; None where it is not installed.
        made: The contender, by its full name: the words after the first are a variant.
        installs: How to get it.
    """

    found: Callable[[], str | None]
    made: Callable[[str], Contender]
    installs: str


def _package(name: str) -> Callable[[], str | None]:
    def found() -> str | None:
        try:
            return version(name)
        except PackageNotFoundError:
            return None

    return found


def _asked(binary: Callable[[], str | None]) -> Callable[[], str | None]:
    """The version that a binary states: the last word of its first line, without a `v`."""

    def found() -> str | None:
        place = binary()
        if place is None:
            return None
        try:
            done = subprocess.run([place, "--version"], capture_output=True, text=True, check=True, timeout=30)  # noqa: S603  a peer of ours
        except (OSError, subprocess.SubprocessError):
            return None
        words = [word for word in done.stdout.partition("\n")[0].split() if word.lstrip("v")[:1].isdigit()]
        return words[0].lstrip("v") if words else None

    return found


def _deno() -> str | None:
    """The binary of the package `deno`, or one that is on the path."""
    try:
        return str(import_module("deno").find_deno_bin())
    except (ImportError, OSError):
        return shutil.which("deno")


CONTENDERS: Final[Mapping[str, Entry]] = {
    "sandbridge": Entry(found=_package("sandbridge"), made=Sandbridge, installs="pip install sandbridge"),
    "monty": Entry(found=_package("pydantic-monty"), made=Monty, installs="pip install pydantic-monty"),
    "quickjs-ng": Entry(
        found=_package("quickjs-ng"), made=lambda name: Apart(name, QuickJSNG), installs="pip install quickjs-ng"
    ),
    "quickjs-rs": Entry(
        found=_package("quickjs-rs"), made=lambda name: Apart(name, QuickJSRS), installs="pip install quickjs-rs"
    ),
    "mini-racer": Entry(
        found=_package("mini-racer"), made=lambda name: Apart(name, MiniRacer), installs="pip install mini-racer"
    ),
    "node": Entry(found=_asked(lambda: shutil.which("node")), made=Node, installs="https://nodejs.org"),
    "deno": Entry(found=_asked(_deno), made=lambda _: Deno(_deno() or "deno"), installs="pip install deno"),
}


def contender(name: str) -> Contender:
    """By name, with its variant: `monty`, `monty text`.

    Raises:
        LookupError: There is none of that name.
    """
    return CONTENDERS[name.split()[0]].made(name)


def versions() -> dict[str, str | None]:
    """Of every contender; None for one that is absent."""
    return {name: entry.found() for name, entry in CONTENDERS.items()}
