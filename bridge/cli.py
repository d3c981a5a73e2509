"""The `sandbridge` command.

Exit status: 0 completed, 1 the program failed or a limit ended it, 2 usage, configuration or a sandbox that cannot
start, 3 paused, 128 + the signal that ended it (Ctrl-C: 130). Results go to standard output, the rest to stderr.
"""

from __future__ import annotations

import functools
import io
import json
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NoReturn, ParamSpec, TypeVar, cast

import anyio
import typer

from bridge import config, screen, serving
from bridge.bench import commands
from bridge.errors import BridgeError, ConfigurationError
from sandbox import SandboxError

if TYPE_CHECKING:
    from anyio.abc import TaskStatus

    from bridge.approval import Approver
    from bridge.policy import Kind
    from bridge.results import Result

COMPLETED, FAILED, USAGE, PAUSED = 0, 1, 2, 3
_SIGNALS: Final = [signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]

P = ParamSpec("P")
T = TypeVar("T")

app = typer.Typer(
    add_completion=False,
    no_args_is_help=False,
    pretty_exceptions_enable=False,  # a traceback is for reports of a bug: as everybody knows it
    rich_markup_mode=None,  # help is plain text: it is piped as often as read
    help="Run the JavaScript that a model wrote, in a jailed V8, with your tools as its only way out.",
)

ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="Functions, servers, rules, limits. Default: ./sandbridge.toml."),
]
McpOption = Annotated[
    list[Path] | None, typer.Option("--mcp", metavar="FILE", help="An mcp.json, as hosts have it. May be repeated.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="JSON on standard output, and nothing else there.")]


class Ended(Exception):
    """A signal ended the work."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@app.callback(invoke_without_command=True)
def _top(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
) -> None:
    if version:
        from bridge.doctor import version as text

        screen.out(text())
        raise typer.Exit(COMPLETED)
    if context.invoked_subcommand is None:
        screen.out(context.get_help())
        raise typer.Exit(COMPLETED)


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
    allow: Annotated[list[str] | None, typer.Option(metavar="PATTERN", help="Tools to allow: 'shop.*'.")] = None,
    ask: Annotated[list[str] | None, typer.Option(metavar="PATTERN", help="Tools to ask about.")] = None,
    deny: Annotated[
        list[str] | None, typer.Option(metavar="PATTERN", help="Tools to deny; the strictest wins.")
    ] = None,
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
    no_approver: Annotated[
        bool, typer.Option("--no-approver", help="Pause on what is to be asked, never ask.")
    ] = False,
    count_tokens: Annotated[
        bool, typer.Option("--tokens", help="Count the context in tokens, too: takes half a second more.")
    ] = False,
) -> int:
    """Run a program: 0 completed, 1 failed, 2 usage or configuration, 3 paused."""
    given_rules: dict[Kind, list[str] | None] = {"allow": allow, "ask": ask, "deny": deny}
    rules: list[tuple[Kind, str]] = [
        (kind, pattern) for kind, patterns in given_rules.items() for pattern in patterns or ()
    ]
    settings = config.load(_chosen(config_file), mcp or (), rules=rules, limits=limit or (), jit=jit)
    program, values = _program(file), _inputs(given or [], inputs)
    if count_tokens:
        from bridge import tokens

        tokens.load()
    told = screen.Screen()
    told.warn(settings.warnings)
    approver: Approver | None = None
    if not no_approver and screen.is_terminal(sys.stdin) and screen.is_terminal(sys.stderr):
        from bridge.approval import terminal_approver

        approver = told.asking(terminal_approver(told.console))
    try:
        result = _work(lambda: _run(settings, program, values, seed, approver, told), told.progress)
    except Ended:
        told.say(screen.given_up(told))
        raise
    if as_json:
        screen.out(result.to_json())
    else:
        screen.out(screen.result_text(result.text))
        for line in screen.summary(result, told.asked):
            told.say(line, "dim")
    if result.status == "paused":
        for line in screen.pause(result):
            told.say(line)
        return PAUSED
    return COMPLETED if result.status == "completed" else FAILED


@app.command()
@_reporting
def tools(config_file: ConfigOption = None, mcp: McpOption = None, as_json: JsonOption = False) -> int:
    """Show what a model would read: how to write a program, and the tools as TypeScript."""
    settings = config.load(_chosen(config_file), mcp or ())
    told = screen.Screen()
    listing = _work(lambda: _tools(settings))
    told.warn(listing["warnings"])
    if as_json:
        screen.out(json.dumps(listing, ensure_ascii=False))
        return COMPLETED
    screen.out(screen.result_text(listing["instructions"].rstrip("\n")))
    sizes = listing["bytes"]
    told.say(
        f"{screen.plural(len(listing['tools']), 'tool')}: {sizes['instructions']:,} bytes; of them "
        f"{sizes['declarations']:,} bytes of declarations, in place of {sizes['schemas']:,} bytes of JSON schemas",
        "dim",
    )
    return COMPLETED


@app.command()
@_reporting
def doctor(config_file: ConfigOption = None, mcp: McpOption = None, as_json: JsonOption = False) -> int:
    """Look at the engine, every wall, and the configured servers: 0 if programs can run here, 1 if not."""
    from bridge.doctor import describe, examine

    settings = config.load(_chosen(config_file), mcp or ())
    report = _work(lambda: examine(settings))
    if as_json:
        screen.out(json.dumps(report, ensure_ascii=False))
    else:
        screen.show(describe(report))
    return COMPLETED if report["ready"] else FAILED


app.command()(_reporting(serving.serve))


app.add_typer(commands.app(_reporting), name="bench")


# ---- what the commands do -------------------------------------------------------------------------------------------


async def _run(
    settings: config.Configuration,
    program: str,
    inputs: Any,
    seed: int | None,
    approver: Approver | None,
    told: screen.Screen,
) -> Result:
    async with settings.executor(approver=approver, on_event=told.on_event) as executor:
        told.warn(config.remarks(executor.catalog, settings))
        return await executor.run(program, inputs=inputs, seed=seed)


async def _tools(settings: config.Configuration) -> dict[str, Any]:
    from bridge.declarations import declare, instructions

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
            }
            for entry in catalog.entries
        ]
        schemas = [{key: row[key] for key in ("name", "description", "input_schema", "output_schema")} for row in rows]
        return {
            "instructions": text,
            "tools": rows,
            "warnings": [*settings.warnings, *config.remarks(catalog, settings)],
            "bytes": {
                "instructions": len(text.encode("utf-8", "replace")),
                "declarations": len(declare(catalog.entries).encode("utf-8", "replace")),
                "schemas": len(json.dumps(schemas, ensure_ascii=False).encode("utf-8", "replace")),
            },
        }


def _work(work: Callable[[], Awaitable[T]], beside: Callable[[], Coroutine[Any, Any, None]] | None = None) -> T:
    """Run async work to its end, or until a signal: then it is cancelled, and what it opened is closed.

    Args:
        beside: Runs as long.

    Raises:
        Ended: There was a signal.
    """
    done: list[T] = []
    failed: list[Exception] = []
    signals: list[int] = []

    async def guarded() -> None:
        async with anyio.create_task_group() as tasks:

            async def listen(*, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
                with anyio.open_signal_receiver(*_SIGNALS) as received:
                    task_status.started()
                    async for number in received:
                        signals.append(number)
                        tasks.cancel_scope.cancel()

            await tasks.start(listen)
            if beside is not None:
                tasks.start_soon(beside)
            try:
                done.append(await work())
            except Exception as error:  # noqa: BLE001  raised below, out of the group that would wrap it
                failed.append(error)
            tasks.cancel_scope.cancel()

    anyio.run(guarded)
    if signals:
        raise Ended(signals[0])
    if failed:
        raise failed[0]
    return done[0]


# ---- what the options say -------------------------------------------------------------------------------------------


def _chosen(file: Path | None) -> Path | None:
    default = Path(config.DEFAULT_FILE)
    return file or (default if default.is_file() else None)


def _program(file: str) -> str:
    read = sys.stdin.buffer.read if file == "-" else Path(file).read_bytes
    return _loaded(lambda: read().decode("utf-8-sig"), file, "the program")


def _inputs(given: list[str], file: Path | None) -> Any:
    values: Any = None
    if file is not None:
        values = _loaded(lambda: json.loads(file.read_bytes(), parse_constant=_no_json), str(file), "--inputs")
    for each in given:
        name, sign, text = each.partition("=")
        if not sign or not name:
            raise ConfigurationError(f"--input {each}: write NAME=JSON")
        if values is not None and not isinstance(values, dict):
            raise ConfigurationError(f"--input {each}: {file} holds no object that it could be added to")
        try:
            values = {**cast("dict[str, Any]", values or {}), name: json.loads(text, parse_constant=_no_json)}
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


def _no_json(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def main() -> None:
    """Entry point of the `sandbridge` command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # whatever the locale: no result is lost to its encoding
    app(prog_name="sandbridge")


if __name__ == "__main__":
    main()
