"""`sandbridge.lock`: the definitions of MCP tools that a team has read and accepted, as a file beside its code.

A server can change what its tools say at any time, and what they say is read by a model. So with a lock, a tool whose
definition is not the one in the file is left out: no model reads it, no search finds it, no program can call it, and a
warning says so. `sandbridge tools --check` shows the difference, `sandbridge tools --lock` accepts it, and both states
of the file can be compared in a review: JSON, sorted, one line for each line of a description, with everything that
nobody sees as an escape.

Client functions are not in it: they are the team's own code. Nor is where a server runs, which differs between people.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from bridge.approval import escape
from bridge.definitions import Definition, definition, differences, digest
from bridge.errors import ConfigurationError
from bridge.tools import Tool

if TYPE_CHECKING:
    from bridge.mcp import Server

DEFAULT_FILE: Final = "sandbridge.lock"
VERSION: Final = 1
_NAMED: Final = 5  # tools of one warning, by name; the rest is counted
_WAYS: Final = "`sandbridge tools --check` shows the difference, `sandbridge tools --lock` accepts it"


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """How tools differ from a lock: full names in order; of changed ones the lines of `definitions.differences`."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed)

    def lines(self) -> list[str]:
        """The same for a person, with the servers' own words: to be escaped by whoever prints it."""
        found = [f"added: {name}" for name in self.added] + [f"removed: {name}" for name in self.removed]
        for name, changes in self.changed.items():
            found += [f"changed: {name}", *(f"  {each}" for each in changes)]
        return found

    def counts(self) -> str:
        """`1 added, 0 removed, 2 changed`."""
        return f"{len(self.added):,} added, {len(self.removed):,} removed, {len(self.changed):,} changed"


@dataclass(frozen=True)
class Lock:
    """Definitions by server and tool.

    Attributes:
        name: The file, as warnings name it.
        servers: Server -> tool -> its definition.
    """

    servers: Mapping[str, Mapping[str, Definition]]
    name: str = DEFAULT_FILE

    @classmethod
    def of(cls, tools: Iterable[Tool]) -> Lock:
        """What these tools say now; client functions are left out."""
        servers: dict[str, dict[str, Definition]] = {}
        for tool in tools:
            if tool.server is not None:
                servers.setdefault(tool.server, {})[tool.name] = definition(tool)
        return cls(servers)

    @classmethod
    def read(cls, file: str | os.PathLike[str]) -> Lock:
        """A lock file.

        Raises:
            ConfigurationError: It is not there, was edited by hand, or a newer version wrote it.
        """
        path = Path(file)
        try:
            data: Any = json.loads(path.read_text("utf-8"))
        except FileNotFoundError:
            raise ConfigurationError(f"{path}: is not there: `sandbridge tools --lock` makes it") from None
        except OSError as error:
            raise ConfigurationError(f"{path}: cannot be read: {error.strerror or error}") from None
        except (ValueError, RecursionError) as error:  # UnicodeDecodeError is a ValueError
            raise ConfigurationError(f"{path}: is no lock file: {error}; `sandbridge tools --lock` makes one") from None
        try:
            return cls(_servers(data), str(path))
        except _Wrong as wrong:
            raise ConfigurationError(f"{path}: {wrong}") from None

    def text(self) -> str:
        """The file. The same tools give the same bytes."""
        servers = {
            server: {name: {"digest": digest(said), **_written(said)} for name, said in sorted(tools.items())}
            for server, tools in sorted(self.servers.items())
        }
        lines = json.dumps({"version": VERSION, "servers": servers}, ensure_ascii=False, indent=2).split("\n")
        return "\n".join(line if escape(line) == line else "".join(map(_escaped, line)) for line in lines) + "\n"

    def compare(self, tools: Iterable[Tool]) -> Comparison:
        """How tools of servers differ from it."""
        now = Lock.of(tools)
        known, found = _flat(self), _flat(now)
        changed = {
            name: tuple(differences(known[name], said))
            for name, said in found.items()
            if name in known and digest(known[name]) != digest(said)
        }
        added, removed = (
            [name for name in one if name not in other] for one, other in ((found, known), (known, found))
        )
        return Comparison(added=tuple(added), removed=tuple(removed), changed=changed)

    def admit(self, server: str, tools: Iterable[Tool]) -> tuple[list[Tool], list[str]]:
        """The tools of a server that are what the lock says, in their order, and warnings about the others."""
        known = self.servers.get(server, {})
        kept: list[Tool] = []
        changed: list[str] = []
        added: list[str] = []
        for tool in tools:
            if tool.name not in known:
                added.append(tool.name)
            elif digest(known[tool.name]) != digest(definition(tool)):
                changed.append(tool.name)
            else:
                kept.append(tool)
        why = ((changed, "not what"), (added, "not in"))
        warnings = [
            f"server {server}: {_named(names)} {'is' if len(names) == 1 else 'are'} {what} {self.name}"
            f"{' says' if what == 'not what' else ''}, and left out; {_WAYS}"
            for names, what in why
            if names
        ]
        return kept, warnings


def lock_of(given: Lock | str | os.PathLike[str] | None) -> Lock | None:
    """What was given as a lock: the lock itself, or its file. `ConfigurationError`: the file cannot be used."""
    return given if given is None or isinstance(given, Lock) else Lock.read(given)


def admitted(lock: Lock | None, servers: Iterable[Server]) -> tuple[list[Tool], list[str]]:
    """The tools of some servers that a lock lets through (all, where there is none), and warnings about the others."""
    tools: list[Tool] = []
    warnings: list[str] = []
    for server in servers:
        kept, said = (server.tools, list[str]()) if lock is None else lock.admit(server.name, server.tools)
        tools += kept
        warnings += said
    return tools, warnings


def _flat(lock: Lock) -> dict[str, Definition]:
    return {
        f"{server}/{name}": said
        for server, tools in sorted(lock.servers.items())
        for name, said in sorted(tools.items())
    }


def _named(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    return f"{'tool' if len(names) == 1 else 'tools'} {', '.join(names[:_NAMED])}{more}"


def _written(said: Definition) -> dict[str, Any]:
    """A definition with sorted keys and the lines of its description apart, so that a review shows what changed."""
    text = said.get("description", "")
    own = {**said, "description": text.split("\n")} if "\n" in text else said
    return json.loads(json.dumps(own, sort_keys=True))


def _escaped(character: str) -> str:
    if escape(character) == character:
        return character
    return "\\u007f" if character == "\x7f" else json.dumps(character)[1:-1]


class _Wrong(Exception):
    """What is wrong with the file."""


def _servers(data: Any) -> dict[str, dict[str, Definition]]:
    top = cast("dict[str, Any]", data) if isinstance(data, dict) else {}
    version, servers = top.get("version"), top.get("servers")
    if isinstance(version, int) and version > VERSION:
        raise _Wrong(f"has version {version}, and this sandbridge knows up to {VERSION}: upgrade it")
    if version != VERSION or not isinstance(servers, dict):
        raise _Wrong("is no lock file: it has no version and servers; `sandbridge tools --lock` makes one")
    found: dict[str, dict[str, Definition]] = {}
    for server, tools in cast("dict[str, Any]", servers).items():
        if not isinstance(tools, dict):
            raise _Wrong(f"{server}: must be an object of tools")
        for name, given in cast("dict[str, Any]", tools).items():
            found.setdefault(server, {})[name] = _read(given, f"{server}/{name}")
    return found


def _read(given: Any, who: str) -> Definition:
    if not isinstance(given, dict):
        raise _Wrong(f"{who}: must be an object")
    said = dict(cast("dict[str, Any]", given))
    wanted, text = said.pop("digest", None), said.get("description")
    if isinstance(text, list) and all(isinstance(line, str) for line in cast("list[Any]", text)):
        said["description"] = "\n".join(cast("list[str]", text))
    if digest(said) != wanted:
        raise _Wrong(
            f"{who}: its digest is not that of the definition beside it: `sandbridge tools --lock` writes both"
        )
    return said
