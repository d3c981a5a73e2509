"""The commands about runs that are kept: list, show, resume, replay, report, export, prune; `deciding` has the others.

All but `resume` need the store alone: no tool is imported and no server started to look at a run.
"""

from __future__ import annotations

import dataclasses
import json
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, cast

import anyio
import typer

from bridge import config, deciding, screen, where, working
from bridge.deciding import RunArgument, opened_store
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
    from bridge.approval import Verdict
    from bridge.executor import Executor
    from bridge.journal import Record
    from bridge.results import Result
    from bridge.run import Run
    from bridge.store import RunRow, RunStatus

_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
Reporting = Callable[[Callable[..., int]], Callable[..., None]]
RunOrFile = Annotated[str, typer.Argument(metavar="RUN|FILE", help="A run's id, or a file that `export` wrote.")]


def add(app: typer.Typer, reporting: Reporting) -> None:
    """Give the command its part about runs.

    Args:
        reporting: Makes a command's status the exit status, and its errors lines for people.
    """
    app.command()(reporting(runs))
    app.command()(reporting(show))
    for command in (deciding.approve, deciding.deny, deciding.edit, deciding.answer):
        app.command()(reporting(command))
    app.command("approver-key")(reporting(deciding.approver))
    for command in (resume, replay, report, export, prune):
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

    with opened_store(store, config_file) as opened:
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
        key = deciding.unlocked(opened, run)
    told = screen.Screen()
    told.warn(settings.warnings)
    approver = None if no_approver else told.prompt()
    verifier = None if key is None else key.verifier
    settings = dataclasses.replace(settings, store=place.url, approver_key=verifier)

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
    options, tools = working.store_options(store, config_file), working.tool_options(mcp)
    return told.result(result, as_json=as_json, kept=place.shown, options=options, tools=tools)


async def _loaded(executor: Executor, row: RunRow, *, wait: bool) -> Run:
    from bridge.store import LeaseHeld

    while True:
        try:
            return await executor.load(row.id)
        except LeaseHeld as held:
            if not wait:
                text = "if that process is gone, try again then, or use --wait"
                raise StateError(f"{held}; {text}") from None
            until = held.until
        await anyio.sleep(until - time.time() + 0.1)


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
    with opened_store(store, config_file) as opened:
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
    with opened_store(store, config_file) as opened:
        count = opened.prune(before=now - age_s, now=now, statuses=cast("Any", status) or FINISHED)
    screen.Screen().say(f"{screen.plural(count, 'run')} deleted")
    return COMPLETED


# ---- what the options say -------------------------------------------------------------------------------------------


def _journal(run: str, store: str | None, config_file: Path | None) -> tuple[list[Record], RunRow | None]:
    """The records of a run in the store, or in a file; a file's run has no row."""
    from bridge import cassettes
    from bridge.journal import decode

    if Path(run).is_file():
        return cassettes.read(run), None
    if "/" in run or "." in run:  # no id has these
        raise ConfigurationError(f"there is no file {run}")
    with opened_store(store, config_file) as opened:
        return decode(opened.read(run)), opened.row(run)


def _seconds(age: str) -> float:
    found = re.fullmatch(r"(\d+)([smhdw])", age)
    if found is None:
        raise ConfigurationError(f"--before {age}: write a number and s, m, h, d or w, such as 30d")
    return int(found[1]) * _UNITS[found[2]]
