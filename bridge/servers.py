"""Servers as configuration files describe them, collected from all files and made into `mcp.stdio` and `mcp.http`."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from bridge import sections
from bridge.errors import BridgeError

if TYPE_CHECKING:
    from bridge.lines import Path as Place
    from bridge.mcp import Server

_STDIO: Final = ("command", "args", "env", "cwd", "inherit_env")
_HTTP: Final = ("url", "headers", "token", "oauth")
_HOSTS_KEYS: Final = ("command", "args", "env", "cwd", "url", "headers", "disabled")  # of mcp.json, beside type
_TYPES: Final = {"stdio": "command", "http": "url", "streamable-http": "url", "streamableHttp": "url"}
PYTHONS: Final = frozenset({"python", "python3"})  # these alone are the interpreter that runs this
_VARIABLE: Final = re.compile(r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_ANY_VARIABLE: Final = re.compile(r"\$\{[^}]*\}?")


@dataclass
class _Spec:
    """One server: what it is given, and for each key the file that gives it."""

    given: dict[str, Any]
    problems: dict[str, tuple[sections.Problems, Place]]
    folder: Path

    def add(self, key: str, text: str) -> None:
        """Note what is wrong with a key, or with the whole (an empty key)."""
        problems, place = self.problems.get(key) or self.problems[""]
        problems.add((*place, key) if key in self.given else place, text)


class Specs:
    """The servers of all files. `add_hosts_file` and `add` in any number, then `build`."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._specs: dict[str, _Spec] = {}

    def add_hosts_file(self, data: Any, file: Path, problems: sections.Problems, warnings: list[str]) -> None:
        """Take the servers of an `mcp.json`."""
        if not isinstance(data, dict) or not isinstance(data.get("mcpServers"), dict):  # pyright: ignore[reportUnknownMemberType]
            problems.add((), 'must be an object with the key "mcpServers", an object of servers by name')
            return
        top = cast("dict[str, Any]", data)
        warnings += [f"{problems.where((key,))}: is not read here" for key in top if key != "mcpServers"]
        for name, given in cast("dict[str, Any]", top["mcpServers"]).items():
            place: Place = ("mcpServers", name)
            if not isinstance(given, dict):
                problems.add(place, f"must be an object, not {sections.shown(given)}")
                continue
            server = cast("dict[str, Any]", given)
            kind = server.get("type", "http" if "url" in server else "stdio")
            known = {key: value for key, value in server.items() if key in _HOSTS_KEYS and value is not None}
            warnings += [
                f"{problems.where((*place, key))}: is not read here"
                for key in server
                if key not in (*_HOSTS_KEYS, "type")
            ]
            if problems.check(sections.Server, known, place) is None:
                continue
            if kind == "sse":
                problems.add((*place, "type"), "the sse transport is not supported: the server's `http` one is")
            elif kind not in _TYPES:
                problems.add((*place, "type"), f'must be "stdio" or "http", not {sections.shown(kind)}')
            elif _TYPES[kind] not in known:
                problems.add(place, f"has no {_TYPES[kind]}, which a server of type {kind} has")
            elif name in self._specs:
                problems.add(place, f"is configured twice: {self._first(name)} has it too; rename one")
            else:
                self._specs[name] = _Spec(known, {"": (problems, place)}, file.resolve().parent)

    def add(self, servers: Mapping[str, dict[str, Any]], file: Path, problems: sections.Problems) -> None:
        """Take the `[servers.*]` of a `sandbridge.toml`; after the hosts' files, whose servers it adds options to."""
        for name, given in servers.items():
            place: Place = ("servers", name)
            complete = "command" in given or "url" in given
            folder = file.resolve().parent
            earlier = self._specs.get(name)
            if earlier is None and not complete:
                problems.add(place, "has neither command nor url, and no --mcp file has a server of this name")
            elif earlier is None:
                self._specs[name] = _Spec(given, {"": (problems, place)}, folder)
            elif complete:
                problems.add(
                    place,
                    f"is configured twice: {self._first(name)} has it too; rename one, or leave out command and url to "
                    "add options to that one",
                )
            else:
                if "oauth" in given:
                    given["oauth"]["store"] = str(folder / given["oauth"]["store"])
                if "cwd" in given:
                    given["cwd"] = str(folder / given["cwd"])
                for key in ("env", "headers"):
                    if key in given and key in earlier.given:
                        given[key] = {**earlier.given[key], **given[key]}
                earlier.problems.update(dict.fromkeys(given, (problems, place)))
                earlier.given.update(given)

    def build(self) -> list[Server]:
        """The servers that are not disabled, in the order in which they were added."""
        made: list[Server] = []
        for name, spec in self._specs.items():
            options = dict(spec.given)
            if options.pop("disabled", False):
                continue
            over_http = "url" in options
            if over_http and "command" in options:
                spec.add("url", "stands beside command: a server has one of them")
                continue
            for key in _STDIO if over_http else _HTTP:
                if key in options:
                    wanted, has = ("command", "url") if over_http else ("url", "command")
                    spec.add(key, f"is for servers with a {wanted}; this one has a {has}")
            fine = True
            for key in (*_STDIO, *_HTTP):
                if key in options and key != "inherit_env":
                    options[key], mistakes = expanded(options[key], self._environment)
                    for mistake in mistakes:
                        spec.add(key, mistake)
                        fine = False
            if not fine:
                continue
            from bridge import mcp

            try:
                if over_http:
                    if "oauth" in options:
                        oauth = options["oauth"]
                        oauth["scopes"] = tuple(oauth.get("scopes", ()))
                        options["oauth"] = mcp.OAuth(**{**oauth, "store": spec.folder / oauth["store"]})
                    made.append(mcp.http(name, options.pop("url"), **options))
                else:
                    options["cwd"] = str(spec.folder / options.get("cwd", "."))
                    command, args = options.pop("command"), options.pop("args", [])
                    made.append(mcp.stdio(name, sys.executable if command in PYTHONS else command, args, **options))
            except (BridgeError, TypeError, ValueError) as error:
                spec.add("", str(error))
        return made

    def _first(self, name: str) -> str:
        problems, place = self._specs[name].problems[""]
        return problems.where(place)


def expanded(value: Any, environment: Mapping[str, str]) -> tuple[Any, list[str]]:
    """A text, or the texts in a list or table, with variables filled in, and what could not be."""
    if isinstance(value, dict):
        parts = {key: expanded(part, environment) for key, part in cast("dict[str, Any]", value).items()}
        return {key: part for key, (part, _) in parts.items()}, [each for _, said in parts.values() for each in said]
    if isinstance(value, list):
        items = [expanded(part, environment) for part in cast("list[Any]", value)]
        return [part for part, _ in items], [each for _, said in items for each in said]
    if not isinstance(value, str):
        return value, []
    mistakes: list[str] = []

    def filled(found: re.Match[str]) -> str:
        exact = _VARIABLE.fullmatch(found[0])
        if exact is None:
            mistakes.append(f"{sections.shown(found[0])} is not understood: write ${{NAME}} or ${{NAME:-default}}")
            return ""
        name, default = exact.groups()
        text = environment.get(name)
        if text is None and default is None:
            mistakes.append(f"the variable {name} is not set: set it, or write ${{{name}:-default}}")
        return text or default or ""

    return _ANY_VARIABLE.sub(filled, value), mistakes
