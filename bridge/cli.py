"""The `sandbridge` command.

Exit status: 0 completed, 1 the program failed or a limit ended it, 2 usage, configuration or a sandbox that cannot
start, 3 paused, 128 + the signal that ended it (Ctrl-C: 130). Results go to standard output, the rest to stderr.
"""

from __future__ import annotations

import dataclasses
import functools
import io
import json
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ParamSpec, TypeVar, cast

import typer

from bridge import attacking, config, runs_command, screen, serving, where, working
from bridge.bench import commands
from bridge.errors import BridgeError, ConfigurationError
from bridge.working import (
    COMPLETED,
    FAILED,
    USAGE,
    AllowOption,
    AskOption,
    ConfigOption,
    DenyOption,
    Ended,
    JsonOption,
    LogOption,
    McpOption,
    NoApproverOption,
    StoreOption,
    StrictOption,
)
from sandbox import SandboxError

if TYPE_CHECKING:
    from bridge.approval import Approver
    from bridge.journal import Record
    from bridge.results import Result

P = ParamSpec("P")
T = TypeVar("T")

app = typer.Typer(
    add_completion=False,
    no_args_is_help=False,
    pretty_exceptions_enable=False,  # a traceback is for reports of a bug: as everybody knows it
    rich_markup_mode=None,  # help is plain text: it is piped as often as read
    help="Run the JavaScript that a model wrote, in a jailed V8, with your tools as its only way out.",
)


@app.callback(invoke_without_command=True)
def _top(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
) -> None:
    if version:
        from bridge.doctor import version as text

        _reporting(_shown)(text())
    if context.invoked_subcommand is None:
        _reporting(_shown)(context.get_help())


def _shown(text: str) -> int:
    screen.out(text)
    return COMPLETED


def _reporting(command: Callable[P, int]) -> Callable[P, None]:
    """The command with its status as exit status, and errors that have a reader as lines for that reader."""

    @functools.wraps(command)
    def reporting(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            status = command(*args, **kwargs)
        except (BridgeError, SandboxError) as error:
            told = screen.Screen()
            for line in str(error).split("\n"):
                told.say(f"sandbridge: {line}", "red")
            status = USAGE
        except Ended as ended:
            status = 128 + ended.number
        except KeyboardInterrupt:
            screen.Screen().say("cancelled")
            status = 128 + signal.SIGINT
        raise typer.Exit(status)

    return reporting


@app.command()
@_reporting
def run(
    file: Annotated[str, typer.Argument(metavar="FILE|-", help="The program; - reads it from standard input.")],
    config_file: ConfigOption = None,
    mcp: McpOption = None,
    allow: AllowOption = None,
    ask: AskOption = None,
    deny: DenyOption = None,
    limit: Annotated[list[str] | None, typer.Option(metavar="NAME=NUMBER", help="A limit, such as cpu_s=2.")] = None,
    given: Annotated[
        list[str] | None, typer.Option("--input", metavar="NAME=JSON", help="A member of the global `inputs`.")
    ] = None,
    inputs: Annotated[
        Path | None, typer.Option("--inputs", metavar="FILE", help="JSON file with the global `inputs`.")
    ] = None,
    as_json: JsonOption = False,
    seed: Annotated[int | None, typer.Option(min=0, max=2**32 - 1, help="Of the program's random numbers.")] = None,
    jit: Annotated[
        bool | None, typer.Option("--jit/--no-jit", help="Let V8 compile: faster loops, one wall less.")
    ] = None,
    strict: StrictOption = False,
    no_approver: NoApproverOption = False,
    store: StoreOption = None,
    no_store: Annotated[bool, typer.Option("--no-store", help="Keep nothing: a run that pauses ends here.")] = False,
    reuse: Annotated[
        str | None, typer.Option(metavar="RUN", help="Take over the completed calls of an earlier run.")
    ] = None,
    count_tokens: Annotated[
        bool, typer.Option("--tokens", help="Count the context in tokens, too: takes half a second more.")
    ] = False,
    log_file: LogOption = None,
) -> int:
    """Run a program: 0 completed, 1 failed, 2 usage or configuration, 3 paused."""
    rules = working.rules(allow, ask, deny)
    chosen = working.chosen(config_file)
    settings = config.load(chosen, mcp or (), rules=rules, limits=limit or (), jit=jit, strict=strict)
    place = where.place(store, settings.store)
    if no_store and (store or reuse):
        raise ConfigurationError("--no-store stands against --store and --reuse: leave out one of them")
    kept = not no_store and (place.chosen or reuse is not None)
    if kept and reuse is not None and not place.exists:
        raise ConfigurationError(f"--reuse {reuse}: there is no store {place.shown} ({place.by})")
    settings = dataclasses.replace(settings, store=place.url if kept else None, logbook=working.logbook(log_file))
    program, values = _program(file), _inputs(given or [], inputs)
    if count_tokens:
        from bridge import tokens

        tokens.load()
    told = screen.Screen()
    told.warn(settings.warnings)
    approver = None if no_approver else told.prompt()
    start: dict[str, Any] = {"inputs": values, "seed": seed, "reuse": reuse}
    try:
        result, records = working.work(lambda: _run(settings, program, start, approver, told), told.progress)
    except Ended:
        told.say(screen.given_up(told))
        raise
    kept = kept or (not no_store and _worth_keeping(result) and _keep(place, records, told))
    options, tools = working.store_options(store, config_file), working.tool_options(mcp)
    return told.result(result, as_json=as_json, kept=place.shown if kept else "", options=options, tools=tools)


@app.command()
@_reporting
def tools(
    config_file: ConfigOption = None,
    mcp: McpOption = None,
    as_json: JsonOption = False,
    lock: Annotated[
        bool, typer.Option("--lock", help="Write sandbridge.lock: the servers' tools as they are now are accepted.")
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Compare with sandbridge.lock: 0 the same, 1 other tools, 2 cannot tell.")
    ] = False,
) -> int:
    """Show what a model would read: how to write a program, and the tools as TypeScript."""
    chosen = working.chosen(config_file)
    settings = config.load(chosen, mcp or ())
    told = screen.Screen()
    if lock or check:
        from bridge import locking

        if lock and check:
            raise ConfigurationError("--lock stands against --check: leave out one of them")
        file = locking.place(settings, chosen)
        return locking.write(settings, file, told) if lock else locking.check(settings, file, told, as_json=as_json)
    listing = working.work(lambda: _tools(settings))
    told.warn(listing["warnings"])
    if as_json:
        screen.out(json.dumps(listing, ensure_ascii=False))
        return COMPLETED
    screen.out(screen.result_text(listing["instructions"].rstrip("\n")))
    if not listing["tools"] and not listing["down"]:
        told.say("no tools are given: name them in sandbridge.toml, or with --config FILE or --mcp FILE", "dim")
    sizes = listing["bytes"]
    told.say(
        f"{screen.plural(len(listing['tools']), 'tool')}: {sizes['instructions']:,} bytes; of them "
        f"{sizes['declarations']:,} bytes of declarations, in place of {sizes['schemas']:,} bytes of JSON schemas",
        "dim",
    )
    return COMPLETED


@app.command()
@_reporting
def doctor(
    config_file: ConfigOption = None,
    mcp: McpOption = None,
    store: StoreOption = None,
    strict: StrictOption = False,
    as_json: JsonOption = False,
) -> int:
    """Look at the engine, every wall, the servers and the store: 0 if programs can run here, 1 if not."""
    from bridge.doctor import describe, examine

    settings = config.load(working.chosen(config_file), mcp or (), strict=strict)
    report = working.work(lambda: examine(settings, where.place(store, settings.store)))
    if as_json:
        screen.out(json.dumps(report, ensure_ascii=False))
    else:
        screen.show(describe(report))
    return COMPLETED if report["ready"] else FAILED


app.command()(_reporting(serving.serve))
app.command("attack")(_reporting(attacking.command))
runs_command.add(app, _reporting)

app.add_typer(commands.app(_reporting), name="bench")


# ---- what the commands do -------------------------------------------------------------------------------------------


async def _run(
    settings: config.Configuration,
    program: str,
    options: dict[str, Any],
    approver: Approver | None,
    told: screen.Screen,
) -> tuple[Result, list[Record]]:
    """The result, and the journal as it is before the executor closes: that ends a run that no store has."""
    elicit = None if approver is None else told.form()  # `--no-approver`: nobody is to be asked anything
    async with settings.executor(approver=approver, elicit=elicit, on_event=told.on_event) as executor:
        told.warn(config.remarks(executor.catalog, settings))
        run = await executor.start(program, **options)
        return run.result if run.result is not None else run.paused_result(), list(run.journal.records)


def _worth_keeping(result: Result) -> bool:
    """Whether somebody can do more with the run: resume it, or reuse its calls."""
    from bridge.render import REUSABLE

    if result.status == "paused":
        return True
    return result.status != "completed" and any(row.outcome in REUSABLE for row in result.calls)


def _keep(place: where.Place, records: list[Record], told: screen.Screen) -> bool:
    """Put a run into the store that nobody chose; False, and it is said why, where that cannot be."""
    from bridge import verdicts

    try:
        with place.open() as store:
            where.prune(store, time.time())
            verdicts.keep(store, records, audience="sandbridge")
    except BridgeError as error:
        told.warn([f"the run is not kept: {error}"])
        return False
    return True


async def _tools(settings: config.Configuration) -> dict[str, Any]:
    from bridge.declarations import declare, instructions
    from bridge.policy import effect

    async with settings.catalog() as catalog:
        text = instructions(catalog, settings.limits)
        rows = [
            {
                "name": entry.name,
                "call": f"tools.{entry.expression}",
                "server": entry.tool.server,
                "title": entry.tool.title,
                "description": entry.tool.description,
                "input_schema": entry.tool.input_schema,
                "output_schema": entry.tool.output_schema,
                "callers": sorted(entry.tool.callers),
                "deferred": entry.tool.defer,
                "effect": effect(entry.tool),
                "policy": [
                    line.strip() for line in settings.policy.explain(entry.tool, path=entry.path).splitlines()[1:]
                ],
            }
            for entry in catalog.entries
        ]
        schemas = [{key: row[key] for key in ("name", "description", "input_schema", "output_schema")} for row in rows]
        return {
            "instructions": text,
            "tools": rows,
            "down": dict(catalog.down()),
            "warnings": [*settings.warnings, *config.remarks(catalog, settings)],
            "bytes": {
                "instructions": len(text.encode("utf-8", "replace")),
                "declarations": len(declare(catalog.entries).encode("utf-8", "replace")),
                "schemas": len(json.dumps(schemas, ensure_ascii=False).encode("utf-8", "replace")),
            },
        }


# ---- what the options say -------------------------------------------------------------------------------------------


def _program(file: str) -> str:
    read = sys.stdin.buffer.read if file == "-" else Path(file).read_bytes
    return _loaded(lambda: read().decode("utf-8-sig"), file, "the program")


def _inputs(given: list[str], file: Path | None) -> Any:
    values: Any = None
    if file is not None:
        values = _loaded(lambda: json.loads(file.read_bytes(), parse_constant=working.no_json), str(file), "--inputs")
    for each in given:
        name, sign, text = each.partition("=")
        if not sign or not name:
            raise ConfigurationError(f"--input {each}: write NAME=JSON")
        if values is not None and not isinstance(values, dict):
            raise ConfigurationError(f"--input {each}: {file} holds no object that it could be added to")
        try:
            values = {**cast("dict[str, Any]", values or {}), name: json.loads(text, parse_constant=working.no_json)}
        except (ValueError, RecursionError):
            hint = f"a text needs its quotes: '{name}=\"...\"'"
            raise ConfigurationError(f"--input {each}: {text!r} is no JSON; {hint}") from None
    return values


def _loaded(read: Callable[[], T], file: str, what: str) -> T:
    try:
        return read()
    except OSError as error:
        raise ConfigurationError(f"{what}: {file} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{what}: {file} is not UTF-8 text (byte {error.start:,})") from None
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"{what}: {file} is no JSON: {error}") from None


def main() -> None:
    """Entry point of the `sandbridge` command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # whatever the locale: no result is lost to its encoding
    app(prog_name="sandbridge")


if __name__ == "__main__":
    main()
