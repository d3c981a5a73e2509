"""Configuration files and options of the command line, as arguments of an `Executor`.

`sandbridge.toml` is checked strictly: an unknown key is an error. `mcp.json` is the `mcpServers` file that other hosts
read too: what only they know is a warning. All that is wrong is said at once, each with file, line and key.

- Texts of a server (command, args, env, cwd, url, headers, token) may hold `${VAR}` and `${VAR:-default}`.
- A server's `cwd` is the folder of its file where it is not set, and relative to that folder where it is.
- The commands `python` and `python3` are the interpreter that runs this.
- A `[servers.NAME]` without command and url adds options to the server of that name in an `mcp.json`.
- A function is `file.py:name` (relative to the file) or `package.module:name`; `*` for the name is every `@tool` there.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import anyio

from bridge.errors import BridgeError, ConfigurationError, ServerUnavailable
from bridge.options import limit_of, rules_of_options
from bridge.policy import Kind, Policy, Rule
from bridge.tools import Catalog, Tool
from sandbox import Limits

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from bridge.approval import Approver
    from bridge.elicitation import Elicit, Elicitation
    from bridge.events import Event
    from bridge.executor import Executor
    from bridge.logbook import Logbook
    from bridge.mcp import Server
    from bridge.sections import Problems

DEFAULT_FILE: Final = "sandbridge.toml"


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """What files and options come to.

    Attributes:
        functions, servers: In the order of the files; functions come first in the catalog.
        sandbox: Keyword arguments of `Sandbox`, without `limits`.
        store: Where runs are kept; None: nowhere.
        lock: The lock file whose definitions alone are offered (`bridge.lock`); None: there is none.
        approver_key, logbook: As for `Executor`. No file says them: the command does.
        warnings: What was read and not used, a line each.
    """

    functions: tuple[Tool, ...] = ()
    servers: tuple[Server, ...] = ()
    policy: Policy = field(default_factory=Policy)
    limits: Limits = field(default_factory=Limits)
    sandbox: Mapping[str, Any] = field(default_factory=dict[str, Any])
    store: str | None = None
    lock: Path | None = None
    approver_key: str | None = None
    logbook: Logbook | None = None
    warnings: tuple[str, ...] = ()

    @asynccontextmanager
    async def executor(
        self,
        *,
        approver: Approver | None = None,
        elicit: Elicit | None = None,
        on_event: Callable[[Event], None] | None = None,
    ) -> AsyncGenerator[Executor]:
        """An open executor, with its sandbox."""
        from bridge.executor import Executor
        from sandbox import Sandbox

        sandbox = Sandbox(limits=self.limits, **self.sandbox)
        tools = [*self.functions, *self.servers]
        executor = Executor(
            tools,
            policy=self.policy,
            approver=approver,
            elicit=elicit,
            sandbox=sandbox,
            on_event=on_event,
            logbook=self.logbook,
            store=self.store,
            lock=self.lock,
            approver_key=self.approver_key,
        )
        sandbox.launch()  # V8 loads in its own process; nothing stands between this and entering
        async with sandbox, executor:
            yield executor

    @asynccontextmanager
    async def catalog(self, down: dict[str, str] | None = None, *, unlocked: bool = False) -> AsyncGenerator[Catalog]:
        """The tools as an executor would have them, with the servers up, and no sandbox.

        Args:
            down: Filled with servers that are not optional and did not start: name -> why.
            unlocked: With the tools that the lock file leaves out, too.

        Raises:
            ServerUnavailable: There are such servers, and `down` is None.
            ConfigurationError: The lock file cannot be used.
        """
        from bridge.elicitation import ElicitationAnswer
        from bridge.lock import admitted, lock_of
        from bridge.offer import down as down_of

        failed: dict[str, str] = {} if down is None else down
        lock = None if unlocked else lock_of(self.lock)

        def nobody(question: Elicitation) -> ElicitationAnswer:
            return ElicitationAnswer.decline("the tools are listed only, and nobody is there")

        async def start(server: Server, tasks: TaskGroup) -> None:
            try:
                await server.start(tasks, elicit=nobody)  # some have tools only for those who can be asked
            except ServerUnavailable as error:
                failed[server.name] = str(error)

        async with anyio.create_task_group() as tasks:
            try:
                async with anyio.create_task_group() as starting:
                    for server in self.servers:
                        starting.start_soon(start, server, tasks)
                if not failed or down is not None:
                    tools, left_out = admitted(lock, self.servers)
                    names = [server.name for server in self.servers]
                    why = {**down_of(self.servers), **dict.fromkeys(failed, "did not start")}
                    yield Catalog([*self.functions, *tools], names, warnings=left_out, down=lambda: why)
            finally:
                with anyio.CancelScope(shield=True):
                    for server in self.servers:
                        await server.stop()
                tasks.cancel_scope.cancel()
        if failed and down is None:
            raise ServerUnavailable("\n".join(failed.values()))


def load(
    file: Path | None = None,
    mcp: Iterable[Path] = (),
    *,
    rules: Iterable[tuple[Kind, str]] = (),
    limits: Iterable[str] = (),
    jit: bool | None = None,
    strict: bool = False,
    environment: Mapping[str, str] | None = None,
) -> Configuration:
    """Read and check everything; import functions, construct servers, start nothing.

    Args:
        file: A `sandbridge.toml`, or None.
        mcp: Files with `mcpServers`.
        rules: Decisions and patterns of the command line; beside those of the file, the strictest decides.
        limits: Settings of the command line, `cpu_s=2`; they replace those of the file.
        strict: Require every wall, whatever the file says.
        environment: For `${VAR}`; that of this process where it is None.

    Raises:
        ConfigurationError: Something is wrong; one line for each thing that is.
    """
    mistakes: list[str] = []
    warnings: list[str] = []
    sources: list[Problems] = []
    functions: tuple[Tool, ...] = ()
    servers: tuple[Server, ...] = ()
    made: list[Rule] = []
    defaults: dict[str, Kind] = {}
    chosen: dict[str, Any] = {}
    options: dict[str, Any] = {}
    store: str | None = None
    lock: Path | None = None
    paths = list(mcp)
    environment = {**os.environ} if environment is None else environment
    if file is not None or paths:
        from bridge import sections  # pydantic loads here
        from bridge.servers import Specs

        specs = Specs(environment)
        for path in paths:
            text = _read(path, mistakes)
            if text is not None and (parsed := _json(path, text, mistakes)) is not None:
                data, lines, twice = parsed
                problems = sections.Problems(str(path), lines)
                sources.append(problems)
                for key in twice:
                    problems.add(key, "stands twice")
                specs.add_hosts_file(data, path, problems, warnings)
        if file is not None and (text := _read(file, mistakes)) is not None:
            data, problems = _toml(file, text, mistakes)
            if problems is not None:
                sources.append(problems)
                parts = sections.parts(data, problems)
                specs.add(parts.servers, file, problems)
                functions = _functions(parts.functions, file, problems)
                made = _rules(parts.rules, problems)
                defaults, chosen, options = parts.policy, parts.limits, parts.sandbox
                _check_limits(chosen, problems)
                _check_walls(options, problems)
                store = _store(parts.store, file, environment, problems)
                lock = file.resolve().parent / parts.lock if parts.lock else None
        servers = tuple(specs.build())
    for problems in sources:
        mistakes += problems.texts()
    made += rules_of_options(rules, mistakes)
    overriding: dict[str, Any] = dict(limit for each in limits if (limit := limit_of(each, mistakes)) is not None)
    if jit is not None:
        options["jit"] = jit
    if strict:
        options["require"] = "all"
    bounds = Limits()
    if not mistakes:
        try:
            bounds = Limits(**{**chosen, **overriding})
        except (TypeError, ValueError) as error:
            mistakes.append(f"--limit: {error}")
    if mistakes:
        raise ConfigurationError("\n".join(mistakes))
    return Configuration(
        functions=functions,
        servers=servers,
        policy=Policy(made, **defaults),
        limits=bounds,
        sandbox=options,
        store=store,
        lock=lock,
        warnings=tuple(warnings),
    )


def store_of(file: Path, environment: Mapping[str, str] | None = None) -> str | None:
    """Where a configuration file has runs kept, without looking at the rest of it: no function is imported.

    Raises:
        ConfigurationError: The file cannot be read, is not TOML, or its `[store]` is wrong.
    """
    from bridge.sections import StoreOptions

    mistakes: list[str] = []
    url: str | None = None
    text = _read(file, mistakes)
    data, problems = ({}, None) if text is None else _toml(file, text, mistakes)
    if problems is not None and "store" in data:
        given = problems.check(StoreOptions, data["store"], ("store",))
        url = _store(given or {}, file, {**os.environ} if environment is None else environment, problems)
        mistakes += problems.texts()
    if mistakes:
        raise ConfigurationError("\n".join(mistakes))
    return url


def remarks(catalog: Catalog, configuration: Configuration) -> list[str]:
    """What somebody should know of a catalog whose servers were started: servers that are down, tools that were renamed
    or left out, rules that match no tool. A line each."""
    said = [server.error for server in configuration.servers if server.error]
    said += [f"server {server.name}: {each}" for server in configuration.servers for each in server.warnings]
    said += catalog.warnings
    if any(server.error for server in configuration.servers):
        return said  # what matches no tool may match one of theirs
    names = [name for entry in catalog.entries for name in (entry.name, entry.expression)]
    return said + configuration.policy.idle(names)


# ---- files ----------------------------------------------------------------------------------------------------------


def _read(path: Path, mistakes: list[str]) -> str | None:
    try:
        return path.read_text("utf-8-sig")
    except OSError as error:
        mistakes.append(f"{path}: cannot be read: {error.strerror or error}")
    except UnicodeDecodeError as error:
        mistakes.append(f"{path}: is not UTF-8 text (byte {error.start:,})")
    return None


def _toml(path: Path, text: str, mistakes: list[str]) -> tuple[dict[str, Any], Problems | None]:
    from bridge.lines import toml_lines
    from bridge.sections import Problems

    try:
        data = tomllib.loads(text)
        return data, Problems(str(path), toml_lines(text))
    except tomllib.TOMLDecodeError as error:
        found = re.fullmatch(r"(.*) \(at line (\d+), column (\d+)\)", str(error), re.DOTALL)
        what, line, column = found.groups() if found else (str(error), str(text.count("\n") + 1), "")
        mistakes.append(f"{path}, line {line}{column and f', column {column}'}: is not TOML: {what}")
    except RecursionError:
        mistakes.append(f"{path}: is nested too deeply")
    return {}, None


def _json(path: Path, text: str, mistakes: list[str]) -> tuple[Any, Any, Any] | None:
    from bridge.lines import json_lines

    try:
        data = json.loads(text)
        return data, *json_lines(text)
    except json.JSONDecodeError as error:
        mistakes.append(f"{path}, line {error.lineno}, column {error.colno}: is not JSON: {error.msg}")
    except RecursionError:
        mistakes.append(f"{path}: is nested too deeply")
    return None


# ---- sections -------------------------------------------------------------------------------------------------------


def _rules(rules: Mapping[int, dict[str, Any]], problems: Problems) -> list[Rule]:
    from bridge.lines import line_of
    from bridge.predicates import predicate_from_data

    made: list[Rule] = []
    for number, fields in rules.items():
        place = ("rules", number)
        for name in ("when", "unless"):
            given: Any = fields.get(name)
            patterns = isinstance(given, str) or (
                isinstance(given, list) and all(isinstance(each, str) for each in cast("list[Any]", given))
            )
            if given is None or (name == "unless" and patterns):
                continue
            try:
                fields[name] = predicate_from_data(given, where=problems.where((*place, name)))
            except ConfigurationError as error:  # its text begins with file, line and key
                problems.found.append((line_of(problems.lines, (*place, name)), str(error)))
                fields[name] = None
        try:
            made.append(Rule(fields.pop("tool"), fields.pop("decision"), **fields))
        except ConfigurationError as error:
            problems.add((*place, "tool"), str(error))
    return made


def _check_limits(chosen: Mapping[str, Any], problems: Problems) -> None:
    try:
        Limits(**chosen)
    except (TypeError, ValueError) as error:
        named = re.search(r"Limits\.(\w+)", str(error))
        problems.add(("limits", *(named.groups() if named and named[1] in chosen else ())), str(error))


def _check_walls(options: Mapping[str, Any], problems: Problems) -> None:
    from sandbox import WALLS

    for number, wall in enumerate(options.get("require", ())):
        if wall not in WALLS:
            problems.add(("sandbox", "require", number), f"there is no such wall. There are: {', '.join(WALLS)}")


def _store(given: Mapping[str, Any], file: Path, environment: Mapping[str, str], problems: Problems) -> str | None:
    from bridge.servers import expanded
    from bridge.where import beside

    if "url" not in given:
        return None
    url, said = expanded(given["url"], environment)
    for each in said:
        problems.add(("store", "url"), each)
    return beside(url, file.resolve().parent)


def _functions(references: Sequence[str], file: Path, problems: Problems) -> tuple[Tool, ...]:
    from bridge.references import resolve

    tools: dict[str, Tool] = {}
    for number, reference in enumerate(references):
        try:
            found = resolve(reference, file.resolve().parent)
        except BridgeError as error:
            problems.add(("functions", number), str(error))
            continue
        for tool in found:
            other = tools.setdefault(tool.full_name, tool)
            if other is not tool:
                problems.add(("functions", number), f"a second tool {tool.full_name!r}: rename one (`@tool(name=...)`)")
    return tuple(tools.values())
