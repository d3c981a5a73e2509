"""Every attack against a sandbox as somebody would have it here, and of each whether it was held."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import anyio
import msgspec
from anyio import to_thread

from sandbox import seccomp
from sandbox.attacks.corpus import HELD, Case, load
from sandbox.attacks.player import play
from sandbox.limits import Limits, MiB
from sandbox.messages import Settings, Threw
from sandbox.pool import Sandbox

LIMITS: Final = Limits(cpu_s=2, wall_s=20, memory_bytes=64 * MiB)
SHORT: Final = Limits(cpu_s=0.4, wall_s=20, memory_bytes=64 * MiB)  # for what may be endless: a good part of the corpus
DEADLINE_S: Final = 110.0  # of all of it: under two minutes, with what comes before and after
NATIVE_S: Final = 40.0
CANARY: Final = "return [1 + await tools.echo(1), typeof secret, ({}).zz, Object.keys(tools).length]"
SUNG: Final[list[Any]] = [2, "undefined", None, 1]
REFUSED: Final = frozenset("EPERM ENOSYS ENOTTY EACCES PermissionError RuntimeError".split())  # and nothing else is
# group of `native.attempts` -> threat, and what holds when all of them were refused
NATIVE: Final[dict[str, tuple[str, str]]] = {
    "files": ("jail.files", "native code opens, lists, changes and finds no file"),
    "network": ("jail.network", "native code reaches no network"),
    "processes": ("jail.processes", "native code starts, signals and reads no process"),
    "kernel surface": ("jail.kernel", "the kernel's rarely tested parts are out of reach"),
    "own walls": ("jail.walls", "native code takes no wall down"),
    "descriptors": ("jail.descriptors", "native code has no descriptor but its channel"),
    "memory": ("jail.memory", "no memory becomes executable, shared, huge or locked"),
    "violations, answered": ("jail.violations", "calls that no honest path makes are refused"),
    "Python": ("jail.native", "the interpreter's own means find the same"),
}
ENDED: Final = ("jail.ended", "each call that no honest path makes ends the worker at once")


@dataclass(frozen=True)
class Attempt:
    """One attack.

    Attributes:
        threat: What it belongs to.
        name: The case, or the system call.
        held: Whether it came to nothing.
        seen: What happened instead, where it did not; an operator's words.
    """

    threat: str
    name: str
    held: bool
    seen: str = ""


@dataclass(frozen=True)
class LeftOut:
    """Attacks of one threat that were not made.

    Attributes:
        attacks: How many; 0 where nobody could count them.
        why: An operator's words.
        absent: Whether there is nothing to attack here: they are not missed.
    """

    threat: str
    attacks: int
    why: str
    absent: bool = False


@dataclass
class Siege:
    """What all attacks found.

    Attributes:
        walls: Wall -> why it does not stand here; an empty text where it does.
        words: Threat -> what holds when all its attacks were held.
        attempts: In order of the corpus, native code last.
        left_out: What was not run on this machine, and why, by threat.
        seconds: How long it took.
    """

    walls: dict[str, str] = field(default_factory=dict[str, str])
    words: dict[str, str] = field(default_factory=dict[str, str])
    attempts: list[Attempt] = field(default_factory=list[Attempt])
    left_out: list[LeftOut] = field(default_factory=list[LeftOut])
    seconds: float = 0.0

    @property
    def fallen(self) -> list[Attempt]:
        """The attacks that were not held."""
        return [attempt for attempt in self.attempts if not attempt.held]


async def attack(
    *,
    only: Sequence[str] = (),
    deadline_s: float = DEADLINE_S,
    progress: Callable[[int, int], None] = lambda done, of: None,
    **options: Any,
) -> Siege:
    """Attack a sandbox of one's own, made for this and closed afterwards.

    Args:
        only: Beginnings of threats, such as `realm` or `jail.files`: nothing else is tried. Empty: everything.
        deadline_s: Seconds for all of it; programs that do not fit are left out, and said.
        progress: Called with how many programs have ended, and of how many.
        options: For `Sandbox`. Its limits are `LIMITS`, and `SHORT` for what may be endless, or the lower ones given.

    Raises:
        EngineUnavailable, WallMissing: The sandbox cannot start.
        ValueError: `only` names no threat.
    """
    began = time.monotonic()
    siege = Siege(words={**HELD, **dict(NATIVE.values()), ENDED[0]: ENDED[1]})
    wanted = {threat for threat in siege.words if not only or threat.startswith(tuple(only))}
    if unknown := [each for each in only if not any(threat.startswith(each) for threat in wanted)]:
        raise ValueError(f"there is no threat {', '.join(unknown)}: they are {', '.join(siege.words)}")
    programs = [case for case in load() if case.threat in wanted]
    found: dict[str, list[Attempt]] = {}
    given: Limits = options.pop("limits", None) or Limits()

    async def run(cases: list[Case], tight: Limits) -> None:
        async with Sandbox(**options, limits=_lowered(given, tight)) as sandbox:
            siege.walls = dict(sandbox.walls)
            slots = anyio.CapacityLimiter(sandbox.max_workers)

            async def one(case: Case) -> None:
                async with slots:
                    attempts = await meet(sandbox, case)
                found[case.id] = attempts
                progress(len(found), len(programs))

            with anyio.move_on_after(began + deadline_s - time.monotonic()):
                async with anyio.create_task_group() as tasks:
                    for case in cases:
                        tasks.start_soon(one, case)

    native: list[Attempt] = []
    if any(threat.startswith("jail.") for threat in wanted):  # first: the programs get what it leaves of the time
        native, why = await to_thread.run_sync(lambda: _native(options, given), abandon_on_cancel=True)
        siege.left_out = [each for each in _native_left_out(why) if each.threat in wanted]
    await run([case for case in programs if not case.endless], LIMITS)
    if endless := [case for case in programs if case.endless]:
        await run(endless, SHORT)  # last: it is what takes time
    siege.attempts = [attempt for case in programs for attempt in found.get(case.id, ())]
    missing = Counter(case.threat for case in programs if case.id not in found)
    late = [LeftOut(threat, count, f"{deadline_s:g} s were over") for threat, count in missing.items()]
    siege.left_out = [*late, *siege.left_out]
    siege.attempts += [attempt for attempt in native if attempt.threat in wanted]
    siege.seconds = time.monotonic() - began
    return siege


def _lowered(given: Limits, tight: Limits) -> Limits:
    """Time and memory; what a run may send and be sent is part of what the corpus expects, and stays."""
    lower = given.lowered(tight)
    return Limits(cpu_s=lower.cpu_s, wall_s=lower.wall_s, memory_bytes=lower.memory_bytes)


async def meet(sandbox: Sandbox, case: Case) -> list[Attempt]:
    """Run a case, and then a program that has to find everything as it should be."""
    out = await play(sandbox, case.js, case.answer, case.tools, sandbox.limits)
    broken = case.broken(out)
    found = [Attempt(case.threat, case.id, not broken, broken)]
    after = await play(sandbox, CANARY, case.answer, ("echo",), sandbox.limits)
    if after.end is None or isinstance(after.end, Threw) or after.value != SUNG:
        seen = f"after it, a program found {after.end or after.death}"
        found.append(Attempt("engine.persistence", case.id, held=False, seen=seen))
    return found


def _native_left_out(why: str) -> list[LeftOut]:
    """What native code did not try: all of it, for a reason, or what this machine has no system call for."""
    if why:
        return [LeftOut(threat, 0, why) for threat, _ in (*NATIVE.values(), ENDED)]
    from sandbox.attacks.native import absent  # it asks the C library for what only Linux has

    arch = seccomp.here()
    return [
        LeftOut(NATIVE[group][0], len(names), f"{arch.name} has no {', '.join(names)}", absent=True)
        for group, names in absent().items()
        if names and group in NATIVE and arch is not None
    ]


def _native(options: Mapping[str, Any], limits: Limits) -> tuple[list[Attempt], str]:
    """What native code found in a worker like the sandbox's own; or why nobody can tell."""
    if sys.platform != "linux" or seccomp.here() is None:
        return [], f"there are no walls on {sys.platform} to try it against"
    settings = Settings(
        jit=options.get("jit", False),
        cpu_s=10,
        memory_bytes=limits.memory_bytes,
        namespaces=options.get("namespaces", True),
        channel=3,
        parent=os.getpid(),
    )
    path = [str(Path(__file__).resolve().parent.parent.parent), *(p for p in sys.path if p)]
    code = f"import sys; sys.path[:] = {path!r}; from sandbox.attacks.locked import main; main()"
    command = [sys.executable, "-I", "-S", "-c", code, msgspec.json.encode(settings).decode()]
    try:
        ended = subprocess.run(  # noqa: S603  # the interpreter that runs this, and our own words
            command, check=False, env={}, cwd="/", timeout=NATIVE_S, stdin=subprocess.DEVNULL, capture_output=True
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return [], f"its process could not run: {error}"
    try:
        found = json.loads(ended.stdout)
    except ValueError:
        return [], f"its process ended with status {ended.returncode}"
    if not found["attempts"]:
        return [], "its worker ended before it could tell"
    return judged(found), ""


def judged(found: dict[str, Any]) -> list[Attempt]:
    """What locked.py prints, as attempts: refused is held, done is not, nor is an answer from beyond the walls."""
    attempts: list[Attempt] = []
    for group, rows in found["attempts"].items():
        if group == "allowed":  # what a worker needs, so that it is known to be alive
            continue
        threat = NATIVE[group][0]
        attempts += [
            Attempt(threat, what, answer in REFUSED, "" if answer in REFUSED else _beyond(answer))
            for what, answer in rows.items()
        ]
    attempts += [
        Attempt(ENDED[0], call, end == "ended", "" if end == "ended" else f"the worker lived on: {end}")
        for call, end in found["violations"].items()
    ]
    return attempts


def _beyond(answer: str) -> str:
    return "it was done" if answer == "done" else f"it reached the kernel, which answered {answer}"
