"""The commands that decide: approve, deny, edit, answer; and the approver's key, where verdicts have to be signed.

All need the store alone. What `sandbridge serve` runs takes signed verdicts only: the passphrase is asked for at the
terminal, or is in SANDBRIDGE_APPROVER_KEY, which is for places that no model reaches.
"""

from __future__ import annotations

import getpass
import json
import os
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, cast

import typer

from bridge import approver_key, config, screen, where, working
from bridge.approval import Answer, Approve, Deny, Edit
from bridge.errors import ConfigurationError
from bridge.working import COMPLETED, ConfigOption, StoreOption

if TYPE_CHECKING:
    from bridge.approval import Scope
    from bridge.store import Store

PASSPHRASE: Final = "SANDBRIDGE_APPROVER_KEY"  # noqa: S105  the name of a variable
VERIFIER: Final = "SANDBRIDGE_APPROVER"
RunArgument = Annotated[str, typer.Argument(metavar="RUN", help="A run's id.")]
CallArgument = Annotated[str, typer.Argument(metavar="CALL", help="A call's id, or the number at its end.")]
CallsArgument = Annotated[list[str], typer.Argument(metavar="CALL...", help="Ids of calls, or their numbers.")]
JsonArgument = Annotated[str, typer.Argument(metavar="JSON|-", help="The value; - reads it from standard input.")]
ByOption = Annotated[str | None, typer.Option("--by", metavar="NAME", help="Who decides. Default: you, on this host.")]


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
    arguments: Annotated[
        str, typer.Argument(metavar="JSON|-", help="All arguments, not only those that change; - reads them.")
    ],
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
    with opened_store(store, config_file) as opened:
        key = unlocked(opened, run)
        state = verdicts.judge(opened, run, given, by=_person() if by is None else by, key=key)
    told = screen.Screen()
    for call in given:
        known = next(each for each in state.calls.values() if each.id == call)
        told.say(f"{call} ({known.tool}): {known.verdict}")
    if state.waiting:
        told.say(f"still waiting: {', '.join(state.waiting)}")
    if state.approver:
        told.say(f"to go on: tell the host's model to resume run {run} (resume_program)")
    else:
        options = working.store_options(store, config_file)
        told.say(f"to go on: sandbridge resume {run}{options}    (with the --config and --mcp of its start)")
    return COMPLETED


# ---- the key --------------------------------------------------------------------------------------------------------


def approver(
    new: Annotated[bool, typer.Option("--new", help="Make another: runs that wait then take no verdict more.")] = False,
) -> int:
    """Make the key that signs your verdicts, from a passphrase; or show its verifier, by which `serve` checks them."""
    file = key_file()
    if new or not file.exists():
        given = os.environ.get(PASSPHRASE) or _asked("a new passphrase: ", "the same again: ")
        key = approver_key.ApproverKey.make(given)
        try:
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            fresh = file.with_suffix(f".{os.getpid()}")
            with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
                out.write(f"{key.verifier}\n")
            fresh.replace(file)
        except OSError as error:
            raise ConfigurationError(f"{file} cannot be written: {error.strerror or error}") from None
        screen.Screen().say(f"kept in {file}, without the passphrase; start `sandbridge serve` again to use it")
    screen.out(approver_key.check(_read(file)))
    return COMPLETED


def key_file() -> Path:
    """Where the verifier is kept, outside of any working tree."""
    return where.state_directory() / "approver"


def verifier(option: str | None) -> str:
    """The verifier that `serve` checks verdicts with: as given, of the environment, or as kept; else nobody's.

    Raises:
        ConfigurationError: What is given is none.
    """
    given = option or os.environ.get(VERIFIER)
    if given:
        return approver_key.check(given)
    file = key_file()
    return approver_key.check(_read(file)) if file.exists() else approver_key.NOBODY


def unlocked(store: Store, run: str) -> approver_key.ApproverKey | None:
    """The key that a run wants, of a passphrase that the person gives; None where it wants none.

    Raises:
        ConfigurationError: There is no terminal to ask at, and the environment does not say.
        StateError: It is not the right one; the run is unknown.
    """
    from bridge.journal import decode
    from bridge.state import fold

    wanted = fold(decode(store.read(run))).approver
    if wanted in ("", approver_key.NOBODY):
        return None
    return approver_key.ApproverKey.unlock(wanted, os.environ.get(PASSPHRASE) or _asked("approver's passphrase: "))


def _asked(*prompts: str) -> str:
    """A passphrase, not shown while it is typed; the same as often as it is asked for."""
    if not (screen.is_terminal(sys.stdin) and screen.is_terminal(sys.stderr)):
        raise ConfigurationError(
            "the approver's passphrase is asked for at a terminal, and there is none: use one that no model reaches, "
            f"or set {PASSPHRASE} there"
        )
    given = {getpass.getpass(prompt) for prompt in prompts}
    if len(given) > 1:
        raise ConfigurationError("these were two different passphrases: nothing was made")
    return given.pop()


def _read(file: Path) -> str:
    try:
        return file.read_text("utf-8", "replace")
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be read: {error.strerror or error}") from None


# ---- what the options say -------------------------------------------------------------------------------------------


def opened_store(store: str | None, config_file: Path | None) -> Store:
    """The store that the options, or what stands for them, name. It has to be there."""
    file = working.chosen(config_file)
    return where.place(store, config.store_of(file) if file is not None else None).open(make=False)


def _value(text: str) -> Any:
    given = sys.stdin.read() if text == "-" else text
    try:
        return json.loads(given, parse_constant=working.no_json)
    except (ValueError, RecursionError) as error:
        hint = "a text needs its quotes: '\"...\"'"
        raise ConfigurationError(f"{given.strip()[:60]!r} is no JSON ({error}); {hint}") from None


def _person() -> str:
    try:
        name = getpass.getuser()
    except (OSError, KeyError):  # no such user on this host: containers
        name = f"user {os.getuid()}" if hasattr(os, "getuid") else "somebody"
    return f"{name}@{socket.gethostname()}"
