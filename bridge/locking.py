"""`sandbridge tools --lock` and `--check`: write a lock file, or say how the tools differ from it.

Exit status of `--check`: 0 the tools are what the file says, 1 they are not, 2 it could not be told: no file, or a
server that is down.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bridge import screen, working
from bridge.errors import ConfigurationError
from bridge.lock import DEFAULT_FILE, Comparison, Lock
from bridge.tools import Tool

if TYPE_CHECKING:
    from bridge.config import Configuration


@dataclass(frozen=True)
class Offered:
    """What servers offer now: their tools, those that are down with why, and what else is to be said."""

    tools: tuple[Tool, ...]
    down: Mapping[str, str]
    warnings: tuple[str, ...]


def place(settings: Configuration, config_file: Path | None) -> Path:
    """The lock file: `lock` of the configuration, else `sandbridge.lock` beside it, else here."""
    return settings.lock or (config_file or Path(DEFAULT_FILE)).parent / DEFAULT_FILE


async def offered(settings: Configuration) -> Offered:
    """Start the servers and read what they offer, whatever a lock file says."""
    down: dict[str, str] = {}
    async with settings.catalog(down, unlocked=True) as catalog:
        down |= {server.name: server.error for server in settings.servers if server.error}
        tools = tuple(entry.tool for entry in catalog.entries if entry.tool.server is not None)
        return Offered(tools, down, (*settings.warnings, *catalog.warnings))


def write(settings: Configuration, file: Path, told: screen.Screen) -> int:
    """Write the lock file, and say what is other than before.

    Raises:
        ConfigurationError: A server is down, whose tools would be missing; the file cannot be written.
    """
    now = working.work(lambda: offered(settings))
    told.warn(now.warnings)
    if now.down:
        why = "\n".join(now.down.values())
        raise ConfigurationError(f"{file}: was not written, for tools would be missing from it:\n{why}")
    before = Lock.read(file) if file.exists() else Lock({})
    lock, changes = Lock.of(now.tools), before.compare(now.tools)
    try:
        file.write_text(lock.text(), "utf-8")
    except OSError as error:
        raise ConfigurationError(f"{file}: cannot be written: {error.strerror or error}") from None
    for line in changes.lines() if before.servers else ():
        told.say(line)
    told.say(f"{file}: {screen.plural(len(now.tools), 'tool')} ({changes.counts()})", "dim")
    return working.COMPLETED


def check(settings: Configuration, file: Path, told: screen.Screen, *, as_json: bool) -> int:
    """Say how the tools differ from the lock file, and whether they do.

    Raises:
        ConfigurationError: The file cannot be used.
    """
    lock = Lock.read(file)
    now = working.work(lambda: offered(settings))
    told.warn(now.warnings)
    known = {name: tools for name, tools in lock.servers.items() if name not in now.down}
    changes = Lock(known).compare(tool for tool in now.tools if tool.server not in now.down)
    for why in now.down.values():
        told.say(f"cannot be checked: {why}", "red")
    if as_json:
        screen.out(json.dumps(_data(changes, now.down), ensure_ascii=False))
    else:
        screen.show([*((line, _style(line)) for line in changes.lines()), (f"{file}: {changes.counts()}", "")])
    return working.USAGE if now.down else working.FAILED if changes else working.COMPLETED


def _data(changes: Comparison, down: Mapping[str, str]) -> dict[str, Any]:
    return {
        "added": list(changes.added),
        "removed": list(changes.removed),
        "changed": {name: list(lines) for name, lines in changes.changed.items()},
        "down": dict(down),
    }


def _style(line: str) -> str:
    sign = line.strip()[:2]
    return "red" if sign == "- " else "green" if sign == "+ " else "bold" if line[:1] != " " else ""
