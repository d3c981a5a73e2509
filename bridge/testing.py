"""Tests without tools: a run is recorded once, and its program runs again against the replies of that recording.

`record` writes a cassette (`cassettes.py`); `replay` runs a program against one, offline. The recorded program is
replayed exactly: its clock, its chance, the frames in which replies came, and every wave is compared. Another program
gets the recorded replies for the calls that it makes alike (tool and arguments, in order of occurrence); a call that
was not recorded ends it. Either way a difference is `Diverged`, with both sides.

With pytest, the fixture `cassette` does both; see `pytest_plugin.py`.
"""

from __future__ import annotations

import functools
import json
import math
import os
import re
import time
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace as changed
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, cast

import anyio
import msgspec
from msgspec import UNSET

from bridge import cassettes, ending, replies
from bridge import replay as replaying
from bridge.approval import Grants, canonical
from bridge.calls import CallState
from bridge.errors import Diverged, StateError
from bridge.gate import Gate, refusal
from bridge.journal import CameBack, Decided, Record, decode
from bridge.keeping import Keeper
from bridge.made import Made
from bridge.offer import Offer
from bridge.policy import Policy
from bridge.redaction import STAND_IN, Redaction
from bridge.replies import inputs_text
from bridge.roster import Order, Roster
from bridge.state import RunState, fold
from bridge.tools import Caller, Catalog, Entry, Tool
from sandbox import Notice, Sandbox

if TYPE_CHECKING:
    from bridge.executor import Executor
    from bridge.results import Result
    from bridge.run import Run

SEED: Final = 0  # of recordings that name none: chance that differs each time would make each recording another file
Mode = Literal["replay", "record", "off"]
Path_ = str | os.PathLike[str]

__all__ = ["Cassette", "Redaction", "record", "replay"]


async def record(
    path: Path_, executor: Executor, program: str, *, redaction: Redaction | None = None, **options: Any
) -> Result:
    """Run a program with the tools of an open executor, and write its journal to a file.

    The file is written whatever the outcome: a program that fails is a fixture too. It is replayed first: what cannot
    be replayed is no cassette.

    Args:
        path: Its directory is made; a file that is there is replaced.
        executor: With an approver, if anything is asked about: a cassette holds a run from its beginning to its end.
        redaction: What is a secret besides what the built-in rules find.
        **options: As for `Executor.start`; `seed` is 0 where it is not given.

    Raises:
        StateError: The run paused, or the file cannot be written.
        Diverged: What the program does depends on something that is redacted.
    """
    given: dict[str, Any] = {"seed": SEED, **options}
    run = await executor.start(program, **given)
    if run.result is None:
        waits = ", ".join(sorted({each.tool for each in (*run.approvals, *run.pending)}))
        await run.cancel()
        raise StateError(f"the run paused, and a cassette holds finished runs: give the executor an approver ({waits})")
    lines = await _lines(executor.sandbox, run.journal.records, redaction or Redaction())
    cassettes.write(path, lines)
    return run.result


async def _lines(sandbox: Sandbox, records: list[Record], rules: Redaction) -> list[bytes]:
    """The stable form that replays alike: with a clock of its own, if the program does not look at it."""
    lines: list[bytes] = []
    for clock in (True, False):
        lines, _ = rules.apply(cassettes.stable(records, clock=clock))
        try:
            await _compared(sandbox, fold(decode(lines)))
        except Diverged as error:
            difference = error
        else:
            return lines
    text = f"{difference}\n  the program depends on what was redacted: keep the secret out of it, or change the rules"
    raise Diverged(text, recorded=difference.recorded, now=difference.now, line=difference.line, wave=difference.wave)


async def _compared(sandbox: Sandbox, state: RunState) -> None:
    """Replay a journal, and compare what the program showed as well as what it called."""
    __tracebackhide__ = True
    workers = cast("Sandbox", Made(state.began.calls)) if state.began.calls else sandbox
    waves = await replaying.replay(workers, state)
    for number, (old, new) in enumerate(zip(state.waves, waves, strict=True)):
        before, now = ([*wave.text, *(line.message for line in wave.logs)] for wave in (old, new))
        if before != now:
            text = f"run {state.id}: wave {number + 1} shows something else than recorded"
            shown = f"{text}\n  recorded: {before}\n  now:      {now}"
            raise Diverged(shown, recorded=str(before), now=str(now), line=0, wave=number)


async def replay(
    path: Path_, program: str | None = None, *, inputs: Any = UNSET, sandbox: Sandbox | None = None
) -> Result:
    """Run a program against a cassette: no tool, no server, no network, nobody asked.

    Args:
        path: What `record`, or `sandbridge export`, wrote.
        program: None, or the very text that was recorded: replayed exactly. Any other is given the recorded replies;
            its clock is this machine's, and it has the recorded seed.
        inputs: In place of the recorded ones.
        sandbox: An open one, so that V8 need not start for each replay; with the limits of the recorded run or more.

    Returns:
        The result as it was, for the recorded program; that of the new run, for another. Recorded replies that it did
        not ask for are the warning `unused_replies`.

    Raises:
        Diverged: The recorded program does something else than it did, or another one makes a call that was not
            recorded. The text has both sides.
        StateError: No such cassette, or one that cannot be read.
    """
    __tracebackhide__ = True  # of pytest: the difference is what its reader wants
    state = fold(cassettes.read(path))
    if state.ended is None:
        raise StateError(f"{path}: the run had not ended when it was written: a cassette holds finished runs")
    same = (program is None or _fits(program, state.began.program)) and (
        inputs is UNSET or _fits(json.loads(inputs_text(inputs)[0]), json.loads(bytes(state.began.inputs)))
    )
    try:
        async with _open(sandbox, state) as workers:
            if same:
                await _compared(workers, state)
                return ending.result(state)
            given = bytes(state.began.inputs) if inputs is UNSET else inputs_text(inputs)[0]
            return await _matched(workers, state, state.began.program if program is None else program, given)
    except Diverged as error:
        error.args = (f"{path}: {error}",)
        raise


@asynccontextmanager
async def _open(sandbox: Sandbox | None, state: RunState) -> AsyncGenerator[Sandbox]:
    if sandbox is not None:
        yield sandbox
        return
    async with Sandbox(limits=state.limits, spares=0) as own:
        yield own


# ---- another program ------------------------------------------------------------------------------------------------


async def _matched(sandbox: Sandbox, state: RunState, program: str, inputs: bytes) -> Result:
    __tracebackhide__ = True
    tape = _Tape(state)
    roster = Roster(
        sandbox,
        _Recorded(tape),
        Keeper(None, [], "sandbridge"),
        limits=state.limits,
        grants=tape.grants,
        approver=None,
        on_event=None,
        hibernate_after_s=math.inf,
    )
    begun: list[Run] = []
    failed: list[Exception] = []
    async with anyio.create_task_group() as roster.tasks:
        try:
            begun.append(await roster.begin(Order(program=program, inputs=inputs, seed=state.began.seed)))
        except Exception as error:  # noqa: BLE001  raised below, out of the group that would wrap it
            failed.append(error)
    if failed:
        raise failed[0]
    [run] = begun
    if tape.missed is not None:
        made, recorded = tape.missed
        now = _call(made)
        wave = next(n for n, each in enumerate(run.state.waves) if any(call.id == made.number for call in each.calls))
        where = f" at line {made.line}" if made.line else ""
        text = f"call {made.number}{where} has no recorded reply\n  recorded: {recorded}\n  now:      {now}"
        raise Diverged(text, recorded=recorded, now=now, line=made.line, wave=wave)
    assert run.result is not None, "every call has its reply at once: nothing can pause it"
    left = tape.unused()
    if not left:
        return run.result
    text = f"{len(left)} recorded call(s) were not made: {'; '.join(map(_call, left[:5]))}"
    return changed(run.result, warnings=(*run.result.warnings, Notice("unused_replies", text)))


class _Tape(Gate):
    """A gate that lets nothing through: each call comes back at once with what was recorded for one like it.

    Attributes:
        missed: The first call that nothing was recorded for, and what comes nearest.
    """

    def __init__(self, state: RunState) -> None:
        entries = [Entry(Tool(name=known.name), known.name, known.path) for known in state.began.tools]
        super().__init__(Catalog.of(entries), Policy(), Grants())
        self.missed: tuple[CallState, str] | None = None
        self._left: dict[str, deque[CallState]] = {}
        for call in state.calls.values():
            self._left.setdefault(call.tool, deque()).append(call)

    def admit(self, call: CallState, *, run_id: str, expires_s: float, caller: Caller = "programmatic") -> list[Record]:
        """The recorded decision and outcome."""
        now = time.time()
        earlier = None if self.missed is not None else self._take(call)
        if earlier is None:
            self.missed = self.missed or (call, self._nearest(call))
            text = f"{call.tool}: no reply was recorded for this call"
            return [Decided(call=call.number, at=now, stage="done"), refusal(call, "failed", text)]
        return [
            Decided(
                call=call.number,
                at=now,
                stage="done",
                kind=cast("Any", earlier.decision),
                checked=earlier.executed if earlier.is_checked else UNSET,
            ),
            CameBack(
                call=call.number,
                at=now,
                outcome=earlier.outcome or "cancelled",
                value=msgspec.Raw(earlier.text) if not earlier.error_code else UNSET,
                code=earlier.error_code,
                message=earlier.error_message,
                retryable=earlier.retryable,
                details=msgspec.Raw(earlier.details),
                reused=earlier.reused,
            ),
        ]

    def unused(self) -> list[CallState]:
        """Recorded calls that were not made, in their order."""
        return sorted((call for left in self._left.values() for call in left), key=lambda call: call.number)

    def _take(self, call: CallState) -> CallState | None:
        left = self._left.get(call.tool, deque())
        made = replies.read(call.made)
        found = next((each for each in left if _fits(made, replies.read(each.made))), None)
        if found is not None:
            left.remove(found)
        return found

    def _nearest(self, call: CallState) -> str:
        left = [_call(each) for each in self._left.get(call.tool, ())]
        if left:
            return (get_close_matches(_call(call), left, 1, 0.0) or left)[0]
        others = [_call(each) for each in self.unused()[:3]]
        return f"no (further) call of {call.tool}" + (f"; not made so far: {'; '.join(others)}" if others else "")


class _Recorded(Offer):
    """The tools of a cassette."""

    def __init__(self, tape: _Tape) -> None:
        super().__init__([], tape.policy, tape.grants)
        self._tape = tape

    def gate(self) -> Gate:
        """The only one."""
        return self._tape


def _call(call: CallState) -> str:
    text = bytes(call.made).decode("utf-8", "replace")[1:-1]
    cut = text if len(text) <= replaying.SHOWN else f"{text[: replaying.SHOWN]}... ({len(text):,} characters)"
    return f"{call.tool}({cut})"


def _fits(now: Any, recorded: Any) -> bool:
    """Whether data is what was recorded, where a stand-in for a secret may be any text."""
    if isinstance(now, str) and isinstance(recorded, str):
        if now == recorded or not STAND_IN.search(recorded):
            return now == recorded
        pieces = map(re.escape, STAND_IN.split(recorded))
        return re.fullmatch(".+?".join(pieces), now, re.DOTALL) is not None
    if isinstance(now, dict) and isinstance(recorded, dict):
        given, known = cast("dict[str, Any]", now), cast("dict[str, Any]", recorded)
        return given.keys() == known.keys() and all(_fits(part, known[key]) for key, part in given.items())
    if isinstance(now, list) and isinstance(recorded, list):
        ours, theirs = cast("list[Any]", now), cast("list[Any]", recorded)
        return len(ours) == len(theirs) and all(map(_fits, ours, theirs))
    return canonical(now) == canonical(recorded)


# ---- for test frameworks --------------------------------------------------------------------------------------------


class Cassette:
    """The recordings of one test: `run` records, replays, or does neither, as whoever runs the tests has chosen.

    Args:
        path: Of the first; a second `run` of the same test has `-2` before the ending, and so on.
        mode: `replay`: no tool is called. `record`: tools are called, and the file is written. `off`: tools are called.
    """

    def __init__(self, path: Path, mode: Mode = "replay", redaction: Redaction | None = None) -> None:
        self.path = path
        self.mode: Mode = mode
        self.redaction = redaction or Redaction()
        self._runs = 0

    def __repr__(self) -> str:
        return f"<Cassette {self.path} {self.mode}>"

    async def run(self, executor: Executor, program: str, **options: Any) -> Result:
        """The result of a program, by the tools of an executor or by the recording.

        Args:
            executor: Open, or not: then it is opened only where its tools are called.
            **options: As for `Executor.start`; in a replay only `inputs` counts.

        Raises:
            StateError, Diverged: As `record` and `replay`; there is no recording.
        """
        __tracebackhide__ = True
        self._runs += 1
        path = self.path if self._runs == 1 else self.path.with_stem(f"{self.path.stem}-{self._runs}")
        if self.mode == "replay":
            if not path.is_file():
                raise StateError(f"{path}: there is no recording: run the test with --cassettes=record")
            sandbox = executor.sandbox if executor.opened else None
            return await replay(path, program, inputs=options.get("inputs"), sandbox=sandbox)
        if not executor.opened:
            async with executor:
                return await self._real(path, executor, program, options)
        return await self._real(path, executor, program, options)

    def run_sync(self, executor: Executor, program: str, **options: Any) -> Result:
        """`run` for tests without an event loop."""
        __tracebackhide__ = True
        return anyio.run(functools.partial(self.run, executor, program, **options))

    async def _real(self, path: Path, executor: Executor, program: str, options: dict[str, Any]) -> Result:
        __tracebackhide__ = True
        if self.mode == "record":
            return await record(path, executor, program, redaction=self.redaction, **options)
        return await executor.run(program, **options)
