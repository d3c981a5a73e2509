"""`sandbridge attack`: every attack that comes with the package, against this installation and its configuration.

The report is by wall, in words: what holds, how many attacks say so, and which were not held. Nothing is run but the
sandbox: no server is started, no tool is called.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from bridge import config, screen, working
from bridge.errors import ConfigurationError
from bridge.screen import COMPLETED, FAILED, USAGE
from bridge.working import ConfigOption, JsonOption

if TYPE_CHECKING:
    from bridge.config import Configuration
    from sandbox import Siege

SHOWN: Final = 20  # attacks that were not held, by name; more say nothing new
SECONDS: Final = 110.0
_GROUPS: Final = (  # the first part of a threat's name, and the wall that it is about
    ("source", "program text"),
    ("realm", "what a program sees"),
    ("limits", "limits"),
    ("engine", "one process a program"),
    ("jail", "native code in the jail"),
)


def command(
    config_file: ConfigOption = None,
    jit: Annotated[bool | None, typer.Option("--jit/--no-jit", help="As for run; else what the file says.")] = None,
    seconds: Annotated[float, typer.Option(min=0, help="For all of it; what does not fit is said.")] = SECONDS,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="THREAT", help="A threat of the report or its beginning: realm, jail.files."),
    ] = None,
    as_json: JsonOption = False,
) -> int:
    """Attack this installation with all that the package has: 0 all held, 1 something fell, 2 it could not be run.

    Hostile programs run in a sandbox as your configuration makes it, each followed by one that must find everything
    clean; native code then tries every system call from inside the jail. It takes less than two minutes, starts no
    server and calls no tool.
    """
    from sandbox import attack  # with the corpus: no other command needs it

    settings = config.load(working.chosen(config_file), (), jit=jit)
    told = screen.Screen()
    told.warn(settings.warnings)

    def progress(done: int, of: int) -> None:
        if told.console is not None and (done % 50 == 0 or done == of):
            told.say(f"{done} of {of} programs", "dim")

    options: dict[str, Any] = {**settings.sandbox, "limits": settings.limits, "only": only or ()}
    try:
        siege = working.work(lambda: attack(deadline_s=seconds, progress=progress, **options))
    except ValueError as error:
        raise ConfigurationError(f"--only: {error}") from None
    made = report(siege, settings)
    if as_json:
        screen.out(json.dumps(made, ensure_ascii=False))
    else:
        show(made)
    return {"held": COMPLETED, "fallen": FAILED, "incomplete": USAGE}[made["outcome"]]


def report(siege: Siege, settings: Configuration) -> dict[str, Any]:
    """What was found, as JSON data.

    Returns:
        `outcome` (held, fallen, incomplete), `system`, `walls` (a row each: name, stands, required, reason, meaning),
        `threats` (a row each: threat, wall, holds, attacks, held, and `left_out`: what was not tried of it on this
        machine, a row each: attacks, why, absent), `fallen` (a row each: threat, attack, seen), `opened` (what the
        configuration gives away, a line each), `left_out` (a line each; without what is absent), `seconds`.
    """
    from sandbox import ENGINE_VERSION, WALLS, required_walls

    needed = required_walls(settings.sandbox.get("require"))
    walls = [
        {
            "name": name,
            "stands": siege.walls.get(name) == "",
            "required": name in needed,
            "reason": siege.walls.get(name, "not reported"),
            "meaning": meaning,
        }
        for name, meaning in WALLS.items()
    ]
    threats: list[dict[str, Any]] = []
    for prefix, wall in _GROUPS:
        for threat, holds in siege.words.items():
            of_it = [attempt for attempt in siege.attempts if attempt.threat == threat]
            left_out = [each for each in siege.left_out if each.threat == threat]
            if threat.split(".")[0] == prefix and (of_it or left_out):
                row: dict[str, Any] = {"threat": threat, "wall": wall, "holds": holds, "attacks": len(of_it)}
                row["held"] = sum(attempt.held for attempt in of_it)
                row["left_out"] = [
                    {"attacks": each.attacks, "why": each.why, "absent": each.absent} for each in left_out
                ]
                threats.append(row)
    fallen = [{"threat": each.threat, "attack": each.name, "seen": each.seen} for each in siege.fallen]
    missed = [each for each in siege.left_out if not each.absent]
    return {
        "outcome": "fallen" if fallen else "incomplete" if missed else "held",
        "system": f"{platform.platform()}, Python {platform.python_version()}, V8 {ENGINE_VERSION}, {_user()}",
        "walls": walls,
        "threats": threats,
        "fallen": fallen,
        "opened": opened(settings),
        "left_out": [f"{each.threat}, {_attacks(each.attacks)}: {each.why}" for each in missed],
        "seconds": round(siege.seconds, 1),
    }


def opened(settings: Configuration) -> list[str]:
    """What a configuration gives away that no wall gives back, a line each: to be looked at, not to be mended."""
    from sandbox import required_walls

    jit = "JIT is on: V8's compilers run, and some memory is writable and executable"
    lines = [jit] if settings.sandbox.get("jit") else []
    required = settings.sandbox.get("require")
    if required is not None and len(required_walls(required)) < len(required_walls()):
        required = ", ".join(required) or "nothing"
        lines.append(f"[sandbox] require: it starts where {required} stands, whatever else is missing")
    for server in settings.servers:
        if server.settings.trusted:
            lines.append(f"server {server.name!r} is trusted: its own word that a tool is read-only is believed")
        if server.settings.require_approval == "never":
            lines.append(f"server {server.name!r}: nobody is asked before its tools are called")
    lines += [
        f"rule {rule.pattern!r} allows without asking: what such a tool can do, every program can do"
        for rule in settings.policy.rules
        if rule.decision == "allow"
    ]
    return lines


def show(made: Mapping[str, Any]) -> None:
    """Print a report: tables on a terminal, plain lines where it is piped."""
    screen.show([(made["system"], ""), ("", ""), ("walls on this machine:", "")])
    rows = [(row["name"], _standing(row), row["meaning"]) for row in made["walls"]]
    _table(("wall", "", "what it says"), rows, [_colour(row) for row in made["walls"]])
    missing = [(f"  {row['name']}: {row['reason']}", "") for row in made["walls"] if not row["stands"]]
    screen.show([*missing, ("", ""), ("attacks:", "")])
    rows, colours = zip(*map(_attacked, made["threats"]), strict=True) if made["threats"] else ((), ())
    _table(("wall", "held", "", "what holds"), list(rows), list(colours))
    lines = [(f"FELL: {row['attack']} ({row['threat']}): {row['seen']}", "red") for row in made["fallen"][:SHOWN]]
    if len(made["fallen"]) > SHOWN:
        lines.append((f"and {len(made['fallen']) - SHOWN} more: --json has them all", "red"))
    lines += [(f"not run: {line}", "yellow") for line in made["left_out"]]
    lines += [(f"your configuration: {line}", "yellow") for line in made["opened"]]
    count = sum(row["attacks"] for row in made["threats"])
    verdict = {
        "held": (f"all {count:,} attacks were held", "green"),
        "fallen": (f"{len(made['fallen'])} of {count:,} attacks were NOT held", "red"),
        "incomplete": (f"NOT all attacks could be run; the {count:,} that were, were held", "yellow"),
    }
    text, style = verdict[made["outcome"]]
    screen.show([("", ""), *lines, (f"{text}, in {made['seconds']:g} s", style)])


def _attacked(row: Mapping[str, Any]) -> tuple[tuple[str, ...], str]:
    """A threat's line in the report, with what was left out of it, and its colour."""
    said, colour = ("held", "green") if row["held"] == row["attacks"] else ("FELL", "red")
    if not row["attacks"]:
        said, colour = "not run", "yellow"
    left_out = "; ".join(f"{_attacks(each['attacks'])} left out: {each['why']}" for each in row["left_out"])
    words = f"{row['holds']} ({left_out})" if left_out else row["holds"]
    return (row["wall"], f"{row['held']} of {row['attacks']}", said, words), colour


def _attacks(number: int) -> str:
    return f"{number:,} attack{'' if number == 1 else 's'}" if number else "all attacks"


def _table(titles: tuple[str, ...], rows: list[tuple[str, ...]], styles: list[str]) -> None:
    if not screen.is_terminal(sys.stdout):
        screen.show([(f"  {text}", "") for text in screen.table(rows)])
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    made = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for title in titles:
        made.add_column(title)
    for row, style in zip(rows, styles, strict=True):
        *short, words = row
        made.add_row(*(Text(cell, style=style) for cell in short), Text(words))
    Console().print(made)


def _standing(row: Mapping[str, Any]) -> str:
    return "stands" if row["stands"] else "MISSING (required)" if row["required"] else "missing"


def _colour(row: Mapping[str, Any]) -> str:
    return "green" if row["stands"] else "red" if row["required"] else "yellow"


def _user() -> str:
    return "run by root" if hasattr(os, "geteuid") and os.geteuid() == 0 else "run by an ordinary user"
