"""Replay: a fresh worker is fed what a journal recorded, and every wave is held against the recorded one.

Nothing is executed and nobody is asked: replies come from the journal, in the frames in which they were delivered. The
first difference ends it: a program that is a function of its journal makes none, on one build of engine, flags and
realm. Compared are the calls (id, tool, arguments in canonical form), the timers, and how the program ended.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

import msgspec

from bridge.approval import canonical
from bridge.errors import Diverged, EngineChanged
from bridge.made import AnyWorker, Workers
from bridge.replies import read
from bridge.state import RunState
from sandbox import Call, Start, Threw, Timer, Wave

SHOWN: Final = 300  # characters of arguments in a difference


def start_of(state: RunState) -> Start:
    """The first frame of a run."""
    began, limits = state.began, state.limits
    return Start(
        program=began.program.encode("utf-8", "replace").decode(),
        tools=began.names(),
        inputs=began.inputs,
        seed=began.seed,
        now_ms=began.now_ms,
        argument_bytes=limits.argument_bytes,
        value_bytes=limits.value_bytes,
        log_bytes=limits.log_bytes,
        frame_bytes=limits.frame_bytes,
    )


async def catch_up(
    sandbox: Workers, worker: AnyWorker, state: RunState, seen: Callable[[int, Wave], bool] = lambda number, wave: True
) -> Wave | None:
    """Bring a fresh worker to where its journal ends, and return the wave after the last delivery.

    Args:
        seen: Called with each recorded wave (counted from 0) once the worker has made the same; False stops there.

    Returns:
        The first wave that no record answers; None when the worker died, or `seen` said stop.

    Raises:
        Diverged: The program did something else than it did before; `EngineChanged` where another build may be why.
    """
    limits = state.limits
    wave = await sandbox.start(worker, start_of(state), limits)
    for number, delivery in enumerate(tuple(state.deliveries)):
        if wave is None:
            return None
        compare(state, number, wave, worker.engine_digest)
        if not seen(number, wave):
            return None
        wave = await sandbox.deliver(worker, delivery.now_ms, state.replies(delivery))
    return wave


def compare(state: RunState, number: int, wave: Wave, engine: str) -> None:
    """Hold a wave against the recorded one of the same number, if there is one. Raises as `catch_up`."""
    if number >= len(state.waves) or wave == state.waves[number]:
        return
    before = state.waves[number]
    difference = _difference(before, wave)
    if difference is None:
        return
    old, new, line = difference
    where = f" at line {line}" if line else ""
    text = f"run {state.id}: wave {number + 1}{where} is not the recorded one\n  recorded: {old}\n  now:      {new}"
    if engine and set(state.engines) != {engine}:
        why = "it was recorded by another build of engine, flags or realm, which this one does not agree with further"
        raise EngineChanged(f"{text}\n  {why}", recorded=old, now=new, line=line, wave=number)
    raise Diverged(f"{text}\n  nothing was executed after it", recorded=old, now=new, line=line, wave=number)


def _difference(before: Wave, now: Wave) -> tuple[str, str, int] | None:
    for old, new in zip(before.calls, now.calls, strict=False):
        if (old.id, old.tool) != (new.id, new.tool) or not _same(old.arguments, new.arguments):
            return _call(old), _call(new), new.line or old.line
    for old, new in zip(before.timers, now.timers, strict=False):
        if (old.id, old.ms) != (new.id, new.ms):
            return _timer(old), _timer(new), new.line or old.line
    for what, olds, news in (("calls", before.calls, now.calls), ("timers", before.timers, now.timers)):
        if len(olds) != len(news):
            extra: Any = (olds if len(olds) > len(news) else news)[min(len(olds), len(news))]
            which = _call(extra) if isinstance(extra, Call) else _timer(extra)
            longer = "recorded" if len(olds) > len(news) else "now"
            return f"{len(olds)} {what}", f"{len(news)} {what} (only {longer}: {which})", extra.line
    if sorted(before.cleared) != sorted(now.cleared):
        return f"timers {before.cleared} cleared", f"timers {now.cleared} cleared", 0
    if _end(before) != _end(now):
        end = now.end if isinstance(now.end, Threw) else before.end
        return _end(before), _end(now), end.line if isinstance(end, Threw) else 0
    return None


def _same(old: msgspec.Raw, new: msgspec.Raw) -> bool:
    if bytes(old) == bytes(new):
        return True
    try:
        return canonical(read(old)) == canonical(read(new))
    except (ValueError, TypeError):
        return False


def _call(call: Call) -> str:
    text = bytes(call.arguments).decode("utf-8", "replace")[1:-1]
    cut = text if len(text) <= SHOWN else f"{text[:SHOWN]}... ({len(text):,} characters)"
    return f"{call.tool}({cut}) id {call.id} line {call.line or '?'}"


def _timer(timer: Timer) -> str:
    return f"timer {timer.id} of {timer.ms:g} ms line {timer.line or '?'}"


def _end(wave: Wave) -> str:
    if wave.end is None:
        return "the program goes on"
    if isinstance(wave.end, Threw):
        return f"the program throws {wave.end.code}: {json.dumps(wave.end.message[:SHOWN])}"
    return f"the program returns {bytes(wave.end.value)[:SHOWN].decode('utf-8', 'replace') or 'nothing'}"


async def replay(sandbox: Workers, state: RunState, *, until: int | None = None) -> list[Wave]:
    """Run a recorded program again from its journal alone, and return the waves that it made, compared.

    Args:
        until: How many waves; None: all that are recorded.

    Raises:
        Diverged: As `catch_up`; also where a recorded wave was not reached.
    """
    waves: list[Wave] = []
    wanted = len(state.waves) if until is None else min(until, len(state.waves))

    def seen(number: int, wave: Wave) -> bool:
        waves.append(wave)
        return len(waves) < wanted

    if not wanted:
        return waves
    async with sandbox.worker() as worker:
        last = await catch_up(sandbox, worker, state, seen)
        if last is not None and len(waves) < wanted:
            compare(state, len(waves), last, worker.engine_digest)
            waves.append(last)
        elif last is None and len(waves) < wanted:
            death = await sandbox.bury(worker)
            what = f"the worker ended ({death.limit or death.reason or death.outcome})"
            text = f"run {state.id}: wave {len(waves) + 1} was recorded and is not reached again: {what}"
            raise Diverged(text, recorded="a wave", now=what, line=0, wave=len(waves))
    return waves
