"""The commands about runs that are kept: list, show, decide, resume, replay, report, export, prune.

All but `resume` need the store alone: no tool is imported and no server started to look at a run or to decide a call.
"""

from __future__ import annotations

import dataclasses
import getpass
import json
import os
import re
import socket
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, cast

import anyio
import typer

from bridge import config, screen, where, working
from bridge.approval import Answer, Approve, Deny, Edit
from bridge.errors import ConfigurationError, Diverged, StateError
from bridge.working import (
    COMPLETED,
    FAILED,
    AllowOption,
    AskOption,
    ConfigOption,
    DenyOption,
    JsonOption,
    McpOption,
    NoApproverOption,
    StoreOption,
)

if TYPE_CHECKING:
    from bridge.approval import Scope, Verdict
    from bridge.executor import Executor
    from bridge.journal import Record
    from bridge.results import Result
    from bridge.run import Run
    from bridge.store import RunRow, RunStatus, Store

_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
Reporting = Callable[[Callable[..., int]], Callable[..., None]]
RunArgument = Annotated[str, typer.Argument(metavar="RUN", help="A run's id.")]
RunOrFile = Annotated[str, typer.Argument(metavar="RUN|FILE", help="A run's id, or a file that `export` wrote.")]
CallArgument = Annotated[str, typer.Argument(metavar="CALL", help="A call's id, or the number at its end.")]
CallsArgument = Annotated[list[str], typer.Argument(metavar="CALL...", help="Ids of calls, or their numbers.")]
JsonArgument = Annotated[str, typer.Argument(metavar="JSON|-", help="The value; - reads it from standard input.")]
ByOption = Annotated[str | None, typer.Option("--by", metavar="NAME", help="Who decides. Default: you, on this host.")]


def add(app: typer.Typer, reporting: Reporting) -> None:
    """Give the command its part about runs.

    Args:
        reporting: Makes a command's status the exit status, and its errors lines for people.
    """
    for command in (runs, show, approve, deny, edit, answer, resume, replay, report, export, prune):
        app.command()(reporting(command))


# ---- looking --------------------------------------------------------------------------------------------------------


def runs(
    status: Annotated[str | None, typer.Option(metavar="STATUS", help="Only these: paused, failed, ...")] = None,
    limit: Annotated[int, typer.Option(min=1, help="So many, the newest first.")] = 50,
    store: StoreOption = None,
    config_file: ConfigOption = None,
    as_json: JsonOption = False,
) -> int:
    """List the runs that are kept, the newest first."""
    from bridge import showing

    with _opened(store, config_file) as opened:
        rows = opened.runs(cast("RunStatus | None", status), limit=limit)
    now = time.time()
    if as_json:
        screen.out(json.dumps([showing.row_data(row, now) for row in rows], ensure_ascii=False))
    else:
        screen.show(showing.runs(rows, now))
    return COMPLETED


def show(
    run: RunOrFile, store: StoreOption = None, config_file: ConfigOption = None, as_json: JsonOption = False
) -> int:
    """Show a run: program, calls, decisions, and what it waits for with full arguments."""
    from bridge import showing

    records, row = _journal(run, store, config_file)
    if as_json:
        screen.out(json.dumps(showing.data(records, row), ensure_ascii=False))
    else:
        screen.show(showing.run(records, row, time.time()))
    return COMPLETED


# ---- deciding -------------------------------------------------------------------------------------------------------


def approve(
    run: RunArgument,
    calls: CallsArgument,
    scope: Annotated[str, typer.Option(metavar="call|run|tool", help="What it holds for.")] = "call",
    by: ByOption = None,
    store: StoreOption = None,
    config_file: ConfigOption = None,
) -> int:
    """Let calls run that wait for a verdict. The run goes on when it is resumed."""
    try:
        verdict = Approve(cast("Scope", scope))
    except ValueError:
        raise ConfigurationError(f"--scope {scope}: must be call, run or tool") from None
    return _judge(run, dict.fromkeys(calls, verdict), by, store, config_file)


def deny(
    run: RunArgument,
    calls: CallsArgument,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="For the model, which reads it.")] = "",
    stop: Annotated[bool, typer.Option("--stop", help="End the run with it.")] = False,
    by: ByOption = None,
    store: StoreOption = None,
    config_file: ConfigOption = None,
) -> int:
    """Refuse calls that wait. The program gets the reason when the run is resumed."""
    return _judge(run, dict.fromkeys(calls, Deny(reason, stop=stop)), by, store, config_file)


def edit(
    run: RunArgument,
    call: CallArgument,
    arguments: JsonArgument,
    by: ByOption = None,
    store: StoreOption = None,
    config_file: ConfigOption = None,
) -> int:
    """Let a call run with other arguments. Schema and deny rules see them when the run is resumed."""
    return _judge(run, {call: Edit(_value(arguments))}, by, store, config_file)


def answer(
    run: RunArgument,
    call: CallArgument,
    value: JsonArgument,
    by: ByOption = None,
    store: StoreOption = None,
    config_file: ConfigOption = None,
) -> int:
    """Give a value to the program in place of the tool, or for a call that an application answers."""
    return _judge(run, {call: Answer(_value(value))}, by, store, config_file)


def _judge(run: str, answers: Mapping[str, Any], by: str | None, store: str | None, config_file: Path | None) -> int:
    from bridge import verdicts

    given = {f"{run}.{call}" if call.isdecimal() else call: verdict for call, verdict in answers.items()}
    with _opened(store, config_file) as opened:
        state = verdicts.judge(opened, run, given, by=_person() if by is None else by)
    told = screen.Screen()
    for call in given:
        known = next(each for each in state.calls.values() if each.id == call)
        told.say(f"{call} ({known.tool}): {known.verdict}")
    if state.waiting:
        told.say(f"still waiting: {', '.join(state.waiting)}")
    told.say(f"to go on: sandbridge resume {run}{_options(store, config_file)}")
    return COMPLETED


# ---- going on -------------------------------------------------------------------------------------------------------


def resume(
    run: RunArgument,
    config_file: ConfigOption = None,
    mcp: McpOption = None,
    allow: AllowOption = None,
    ask: AskOption = None,
    deny: DenyOption = None,
    store: StoreOption = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Where somebody drives the run, or did until it died: wait for its lease.")
    ] = False,
    as_json: JsonOption = False,
    no_approver: NoApproverOption = False,
) -> int:
    """Go on with a run that is paused, or whose process died: 0 completed, 1 failed, 3 paused again."""
    settings = config.load(working.chosen(config_file), mcp or (), rules=working.rules(allow, ask, deny))
    place = where.place(store, settings.store)
    with place.open(make=False) as opened:
        row = opened.row(run)
    told = screen.Screen()
    told.warn(settings.warnings)
    approver = None if no_approver else told.prompt()
    settings = dataclasses.replace(settings, store=place.url)

    async def go_on() -> Result:
        elicit = None if approver is None else told.form()
        async with settings.executor(approver=approver, elicit=elicit, on_event=told.on_event) as executor:
            told.warn(config.remarks(executor.catalog, settings))
            loaded = await _loaded(executor, row, wait=wait)
            if loaded.status == "paused":  # nothing was decided: ask here, and let expire what nobody answered
                expired = any(each.expires_at <= time.time() for each in (*loaded.approvals, *loaded.pending))
                requests = loaded.approvals
                given: Mapping[str, Verdict] = {}
                if approver is not None and requests and not expired:
                    answer = approver(requests)
                    given = answer if isinstance(answer, Mapping) else await answer
                if expired or given:
                    await loaded.resume(given)
            return loaded.result if loaded.result is not None else loaded.paused_result()

    result = working.work(go_on, told.progress)
    return told.result(result, as_json=as_json, kept=place.shown, options=_options(store, config_file, mcp))


async def _loaded(executor: Executor, row: RunRow, *, wait: bool) -> Run:
    while True:
        try:
            return await executor.load(row.id)
        except StateError as error:
            held = re.search(r"its lease lasts ([0-9.]+) s", str(error))
            if held is None:
                raise
            if not wait:
                text = "if that process is gone, try again then, or use --wait"
                raise StateError(f"{error}; {text}") from None
        await anyio.sleep(float(held[1]) + 0.1)


def replay(
    run: RunOrFile,
    until: Annotated[int | None, typer.Option(min=1, metavar="WAVE", help="Stop after so many waves.")] = None,
    jit: Annotated[bool, typer.Option("--jit/--no-jit", help="As the run had it.")] = False,
    store: StoreOption = None,
    config_file: ConfigOption = None,
) -> int:
    """Run a program again from its journal alone, and show what it saw: no tool is called and nobody is asked."""
    from bridge import showing
    from bridge.state import fold

    records, _ = _journal(run, store, config_file)
    state = fold(records)
    wanted = len(state.waves) if until is None else min(until, len(state.waves))
    diverged: Diverged | None = None
    try:
        working.work(lambda: _replay(records, wanted, jit=jit))
    except Diverged as error:
        diverged, wanted = error, error.wave
    for number in range(wanted):
        screen.show(showing.wave(state, number))
    told = screen.Screen()
    if diverged is not None:
        for line in str(diverged).split("\n"):
            told.say(line, "red")
        return FAILED
    told.say(f"{screen.plural(wanted, 'wave')} of {len(state.waves)} replayed: the same calls, timers and end", "green")
    return COMPLETED


async def _replay(records: list[Record], waves: int, *, jit: bool) -> None:
    from bridge import replay as replaying
    from bridge.made import Made
    from bridge.state import fold
    from sandbox import Sandbox

    state = fold(records)
    if state.began.calls:
        made = Made(state.began.calls)
        await replaying.replay(cast("Sandbox", made), state, until=waves)
        return
    async with Sandbox(limits=state.limits, jit=jit, spares=0) as sandbox:
        await replaying.replay(sandbox, state, until=waves)


# ---- keeping house --------------------------------------------------------------------------------------------------


def report(
    run: RunOrFile,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Default: run-ID.html, here.")] = None,
    store: StoreOption = None,
    config_file: ConfigOption = None,
) -> int:
    """Write a run as one HTML page that needs nothing else: its program, waves, calls, approvals, limits, context."""
    from bridge.report import page
    from bridge.state import fold

    records, _ = _journal(run, store, config_file)
    file = out or Path(f"run-{fold(records).id}.html")
    try:
        file.write_text(page(records), "utf-8")
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be written: {error.strerror or error}") from None
    screen.out(str(file))
    return COMPLETED


def export(
    run: RunArgument,
    file: Annotated[Path, typer.Argument(metavar="FILE|-", help="- writes to standard output.")],
    keys: Annotated[
        list[str] | None, typer.Option("--redact-key", metavar="NAME", help="Further keys with secrets.")
    ] = None,
    patterns: Annotated[
        list[str] | None, typer.Option("--redact", metavar="REGEX", help="Further texts that are secrets.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it is there.")] = False,
    store: StoreOption = None,
    config_file: ConfigOption = None,
) -> int:
    """Write a run's journal to a file, JSON lines, without secrets: for `show`, `replay` and tests."""
    from bridge import cassettes
    from bridge.redaction import Redaction

    rules = Redaction(keys=keys or (), patterns=patterns or ())
    with _opened(store, config_file) as opened:
        lines, secrets = cassettes.exported(opened.read(run), rules)
    if str(file) == "-":
        screen.out(b"\n".join(lines).decode())
    else:
        if file.exists() and not force:
            raise ConfigurationError(f"{file} exists: give another name, or --force")
        cassettes.write(file, lines)
    screen.Screen().say(f"{screen.plural(len(lines), 'record')}, {screen.plural(secrets, 'secret')} redacted")
    return COMPLETED


def prune(
    before: Annotated[str, typer.Option(metavar="AGE", help="Untouched for so long: 12h, 30d, 8w.")] = "30d",
    status: Annotated[
        list[str] | None, typer.Option(metavar="STATUS", help="Of these; default: all that are finished.")
    ] = None,
    store: StoreOption = None,
    config_file: ConfigOption = None,
) -> int:
    """Delete runs that nobody needs any more. What somebody drives is never deleted."""
    from bridge.store import FINISHED

    age_s, now = _seconds(before), time.time()
    with _opened(store, config_file) as opened:
        count = opened.prune(before=now - age_s, now=now, statuses=cast("Any", status) or FINISHED)
    screen.Screen().say(f"{screen.plural(count, 'run')} deleted")
    return COMPLETED


# ---- what the options say -------------------------------------------------------------------------------------------


def _opened(store: str | None, config_file: Path | None) -> Store:
    file = working.chosen(config_file)
    return where.place(store, config.store_of(file) if file is not None else None).open(make=False)


def _journal(run: str, store: str | None, config_file: Path | None) -> tuple[list[Record], RunRow | None]:
    """The records of a run in the store, or in a file; a file's run has no row."""
    from bridge import cassettes
    from bridge.journal import decode

    if Path(run).is_file():
        return cassettes.read(run), None
    if "/" in run or "." in run:  # no id has these
        raise ConfigurationError(f"there is no file {run}")
    with _opened(store, config_file) as opened:
        return decode(opened.read(run)), opened.row(run)


def _options(store: str | None, config_file: Path | None, mcp: list[Path] | None = None) -> str:
    return screen.words([("--store", store), ("--config", config_file), *(("--mcp", path) for path in mcp or ())])


def _value(text: str) -> Any:
    given = sys.stdin.read() if text == "-" else text
    try:
        return json.loads(given, parse_constant=working.no_json)
    except (ValueError, RecursionError) as error:
        hint = "a text needs its quotes: '\"...\"'"
        raise ConfigurationError(f"{given.strip()[:60]!r} is no JSON ({error}); {hint}") from None


def _seconds(age: str) -> float:
    found = re.fullmatch(r"(\d+)([smhdw])", age)
    if found is None:
        raise ConfigurationError(f"--before {age}: write a number and s, m, h, d or w, such as 30d")
    return int(found[1]) * _UNITS[found[2]]


def _person() -> str:
    try:
        name = getpass.getuser()
    except (OSError, KeyError):  # no such user on this host: containers
        name = f"user {os.getuid()}" if hasattr(os, "getuid") else "somebody"
    return f"{name}@{socket.gethostname()}"
