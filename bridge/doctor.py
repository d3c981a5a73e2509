"""What stands on this machine: the engine, every wall, a real program, every configured server."""

from __future__ import annotations

import os
import platform
import sys
import time
from importlib import metadata
from typing import TYPE_CHECKING, Any, Final

from anyio import to_thread

from bridge.errors import BridgeError
from bridge.screen import plural, table
from sandbox import ENGINE_VERSION, WALLS, Sandbox, SandboxError, available_walls, required_walls

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bridge.config import Configuration
    from bridge.mcp import Server
    from bridge.where import Place

PROGRAM: Final = "return 1+1"


async def examine(configuration: Configuration, place: Place | None = None) -> dict[str, Any]:
    """Look at everything, without trusting that anything works.

    Returns:
        JSON data: `system`, `engine`, `walls` (a row each: name, stands, required, reason, meaning), `program`,
        `servers`, `store` (where runs are kept), `warnings`, and `ready`: whether a program could run with the walls
        that are required.
    """
    options = dict(configuration.sandbox)
    needed = required_walls(options.pop("require", None))
    engine: dict[str, Any] = {
        "v8": ENGINE_VERSION,
        "mini_racer": _version("mini-racer"),
        "loads": False,
        "start_s": None,
    }
    program: dict[str, Any] = {"text": PROGRAM, "works": False, "run_s": None, "reason": "the engine does not load"}
    walls: Mapping[str, str]
    began = time.perf_counter()
    try:
        async with Sandbox(limits=configuration.limits, require=(), **options) as sandbox:
            engine.update(loads=True, start_s=time.perf_counter() - began, digest=sandbox.engine_digest, reason="")
            walls = sandbox.walls
            program.update(await _try(sandbox))
    except (SandboxError, OSError) as error:  # an interpreter that may not be started is an answer too
        engine.update(reason=str(error))
        walls = await to_thread.run_sync(available_walls)
    rows = [
        {
            "name": name,
            "stands": walls.get(name, "not reported") == "",
            "required": name in needed,
            "reason": walls.get(name, "not reported"),
            "meaning": meaning,
        }
        for name, meaning in WALLS.items()
    ]
    down: dict[str, str] = {}
    async with configuration.catalog(down) as catalog:
        servers = [state(server, down) for server in configuration.servers]
        warnings = [*configuration.warnings, *catalog.warnings]
    store = await to_thread.run_sync(_store, place) if place is not None else None
    missing = [row["name"] for row in rows if row["required"] and not row["stands"]]
    return {
        "version": _version("sandbridge"),
        "system": {
            "platform": platform.platform(),
            "python": platform.python_version(),
            "root": hasattr(os, "geteuid") and os.geteuid() == 0,
        },
        "engine": engine,
        "walls": rows,
        "missing": missing,
        "program": program,
        "servers": servers,
        "store": store,
        "warnings": warnings,
        "ready": bool(
            engine["loads"] and program["works"] and not missing and not down and not (store and store["reason"])
        ),
    }


async def _try(sandbox: Sandbox) -> dict[str, Any]:
    from bridge.executor import Executor

    async with Executor([], sandbox=sandbox) as executor:
        began = time.perf_counter()
        result = await executor.run(PROGRAM)
        took_s = time.perf_counter() - began
    works = result.status == "completed" and result.value == 2
    return {"works": works, "run_s": took_s, "reason": "" if works else result.text}


def _store(place: Place) -> dict[str, Any]:
    """Where runs are kept: the default is not made by looking at it, any other must be usable."""
    report: dict[str, Any] = {"where": place.shown, "by": place.by, "exists": place.exists, "runs": None, "reason": ""}
    if place.exists:
        try:
            with place.open() as store:
                report["runs"] = len(store.runs(limit=1000))
        except BridgeError as error:
            report["reason"] = str(error)
    return report


def state(server: Server, down: Mapping[str, str]) -> dict[str, Any]:
    """A started server, as JSON data: `name`, `up`, `reason` (empty where it is up), `tools`, `revision`."""
    reason = down.get(server.name) or server.error or ""
    return {
        "name": server.name,
        "up": not reason,
        "reason": reason,
        "tools": len(server.tools),
        "revision": server.revision,
        "warnings": list(server.warnings),
    }


def describe(report: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The report as lines, each with its style: empty, `green`, `yellow` or `red`."""
    system, engine, program = report["system"], report["engine"], report["program"]
    lines = [(f"sandbridge {report['version']} on {system['platform']}, Python {system['python']}", "")]
    who = "root" if system["root"] else "an ordinary user"
    lines.append((f"run by {who}", ""))
    if engine["loads"]:
        lines.append(
            (
                f"engine: V8 {engine['v8']} (mini-racer {engine['mini_racer']}) is up in {_ms(engine['start_s'])}",
                "green",
            )
        )
    else:
        lines.append(
            (f"engine: V8 {engine['v8']} (mini-racer {engine['mini_racer']}) DOES NOT LOAD: {engine['reason']}", "red")
        )
    lines += [("", ""), ("walls:", "")]
    cells = [[row["name"], _standing(row), row["meaning"]] for row in report["walls"]]
    for row, text in zip(report["walls"], table(cells), strict=True):
        lines.append((f"  {text}", "green" if row["stands"] else "red" if row["required"] else "yellow"))
        if not row["stands"]:
            lines.append((f"    why not: {row['reason']}", ""))
    lines.append(("", ""))
    if program["works"]:
        lines.append((f"program: `{program['text']}` gives 2 in {_ms(program['run_s'])}", "green"))
    else:
        lines.append((f"program: `{program['text']}` DOES NOT WORK: {program['reason']}", "red"))
    for server in report["servers"]:
        if server["up"]:
            text = f"server {server['name']}: up, {plural(server['tools'], 'tool')}"
            text += f", protocol {server['revision']}" if server["revision"] else ""
            lines.append((text, "green"))
        else:
            lines.append((f"DOWN: {server['reason']}", "red"))
        lines += [(f"  {warning}", "yellow") for warning in server["warnings"]]
    if report["store"]:
        lines.append(_stands(report["store"]))
    lines += [(f"warning: {warning}", "yellow") for warning in report["warnings"]]
    lines.append(("", ""))
    if report["ready"]:
        lines.append(("ready: programs can run", "green"))
    elif not engine["loads"]:
        lines.append(("NOT ready: the engine does not load", "red"))
    elif report["missing"]:
        text = f"NOT ready: {', '.join(report['missing'])} must stand, or be left out of `require` in [sandbox]"
        lines.append((text, "red"))
    else:
        lines.append(("NOT ready: see above", "red"))
    return lines


def _stands(store: Mapping[str, Any]) -> tuple[str, str]:
    if store["reason"]:
        return f"store ({store['by']}): DOES NOT WORK: {store['reason']}", "red"
    runs = "not made yet" if store["runs"] is None else plural(store["runs"], "run")
    return f"store ({store['by']}): {store['where']}, {runs}", ""


def _standing(row: Mapping[str, Any]) -> str:
    return "stands" if row["stands"] else "MISSING (required)" if row["required"] else "missing"


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:,.0f} ms" if seconds >= 0.0095 else f"{seconds * 1000:.1f} ms"


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:  # a checkout that was not installed
        return "(not installed)"


def version() -> str:
    """What `--version` prints."""
    python = ".".join(map(str, sys.version_info[:3]))
    return f"sandbridge {_version('sandbridge')} (V8 {ENGINE_VERSION}, Python {python})"
