"""Random programs, replies in any order, pauses, hibernation, dumps and loads, killed workers and hosts; and a model.

Whatever happens to a run: its value is what the replies make of the program, no effect is doubled or lost, what is
known of it is what its journal says, and its journal replays.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import anyio.from_thread
import anyio.lowlevel
import pytest
from anyio.abc import TaskStatus
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from bridge import Answer, Approve, Defer, Deny, Edit, StateError, ToolError
from bridge.journal import Delivered, decode, encode
from bridge.replay import replay
from bridge.state import fold
from bridge.store import Store, StoreFailed
from sandbox import Limits, Sandbox
from tests.durable.programs import Failed, Program, programs
from tests.durable.world import HOUR, Effects, Host, Tools, assert_is_its_journal, settled

IDEMPOTENT = ("again", "echo")
READS = ("echo",)
EXAMPLES = os.environ.get("SANDBRIDGE_EXAMPLES")  # the nightly run has thousands, of other seeds each time
VERDICTS = st.sampled_from(["approve", "approve", "approve_run", "deny", "edit", "answer", "fail", "defer"])


def again(lines: list[bytes]) -> list[bytes]:
    """The same records, written by one who has read them: 5 s and 5.0 s are the same then."""
    return [encode(record) for record in decode(lines)]


class Play:
    """One run, the host that has it now, and everything that was done to it; on the event loop."""

    def __init__(self, sandbox: Sandbox, directory: Path, *, stored: bool, hibernates: bool, in_flight: int) -> None:
        self.effects = Effects(directory / "effects.db")
        self.tools = Tools(self.effects, held=True)
        self.store = Store(f"sqlite:///{directory}/runs.db") if stored else None
        self.sandbox = sandbox
        self.hibernate_after_s = 0.0 if hibernates else HOUR
        self.limits = Limits(in_flight=in_flight)
        self.ahead_s = 0.0
        self.crashes = 0
        self.lost: set[int] = set()
        self.answers: dict[int, Any] = {}
        self.faults: list[BaseException] = []

    async def live(self, *, task_status: TaskStatus[None]) -> None:
        """Hosts and whatever waits for them are tasks in here."""
        async with anyio.create_task_group() as self.tasks:
            self.over = anyio.Event()
            task_status.started()
            await self.over.wait()

    async def _keep(
        self, host: Host, closing: anyio.Event, closed: anyio.Event, *, task_status: TaskStatus[None]
    ) -> None:
        try:
            async with host:
                task_status.started()
                await closing.wait()
        finally:
            closed.set()

    async def open(self) -> None:
        """A new host."""
        self.host = Host(
            self.sandbox,
            self.tools.all(),
            self.store,
            ahead_s=self.ahead_s,
            hibernate_after_s=self.hibernate_after_s,
        )
        self.closing, self.closed = anyio.Event(), anyio.Event()
        await self.tasks.start(self._keep, self.host, self.closing, self.closed)

    async def close(self) -> None:
        """Leave the host as it is."""
        self.closing.set()
        await self.closed.wait()
        self.tools.in_flight.clear()

    async def end(self) -> None:
        """Nothing is left."""
        await self.close()
        self.over.set()

    async def begin(self, program: Program) -> None:
        """Start the program."""
        await self.open()
        self.program = program
        await self._meanwhile(self.host.executor.start, program.text, limits=self.limits)

    async def _meanwhile(self, act: Any, *arguments: Any, **options: Any) -> None:
        """Begin, load or resume in the background, until nothing more happens by itself."""
        done = False
        before = self.host.executor._roster.runs.copy()

        async def task() -> None:
            nonlocal done
            host = self.host
            try:
                self.run = await act(*arguments, **options)
            except (StoreFailed, StateError) as error:
                if host.store is None or not host.store.dead:
                    self.faults.append(error)
            finally:
                done = True

        self.tasks.start_soon(task)
        with anyio.fail_after(60):
            while not done:  # a held reply keeps it from coming back
                await anyio.lowlevel.checkpoint()
                for run_id, run in self.host.executor._roster.runs.items():
                    if run_id not in before or act == run.resume:
                        self.run = run
                if hasattr(self, "run") and self.run.status == "running" and settled(self.run, self.tools):
                    return
            await self.quiet()

    async def quiet(self) -> None:
        """Wait until nothing more happens by itself."""
        self.tools.entered = self.run.journal.changed
        with anyio.fail_after(60):
            while not settled(self.run, self.tools):
                await self.run.journal.change()

    async def reply(self, call_id: str) -> None:
        """Let one call come back."""
        self.tools.reply(call_id)
        await self.until_taken(call_id)
        await self.quiet()

    async def until_taken(self, call_id: str) -> None:
        number = int(call_id.partition(".")[2])
        with anyio.fail_after(60):
            while number in self.run.flights.flying:
                await self.run.journal.change()

    async def resume(self, verdicts: dict[str, Any]) -> None:
        """Answer some calls."""
        await self._meanwhile(self.run.resume, verdicts)

    async def dump_and_load(self, *, by_id: bool) -> None:
        """Go on in another host."""
        state = self.run.id if by_id else self.run.dump()
        closing, closed = self.closing, self.closed
        await self.open()
        await self._meanwhile(self.host.executor.load, state)
        closing.set()
        await closed.wait()

    def kill_worker(self) -> None:
        """From outside."""
        worker = self.run.seat.worker
        if worker is not None:
            with suppress(ProcessLookupError):
                os.kill(worker.pid, signal.SIGKILL)

    async def crash(self) -> None:
        """The host dies; another one takes the run over once its lease has passed."""
        assert self.store is not None
        self.host.die()
        durable = fold(decode(self.store.read(self.run.id)))
        await self.close()
        self.crashes += 1
        self.ahead_s += HOUR
        self.lost |= {number for number, call in durable.calls.items() if call.stage == "running"}
        await self.open()
        await self._meanwhile(self.host.executor.load, self.run.id)

    async def flushed(self) -> None:
        """What the run did so far is durable."""
        if self.run.journal.sink is not None and self.run.journal.sink.lease is not None:
            await self.run.journal.flush()

    async def finish(self) -> None:
        """Let everything come back, and approve what waits, until it is over."""
        while self.run.status != "finished":
            if self.tools.in_flight:
                await self.reply(next(iter(self.tools.in_flight)))
            elif self.run.status == "paused":
                await self.resume(self.verdicts(dict.fromkeys(self.run.people.waiting, "approve")))
            else:
                await self.quiet()
            assert not self.faults, self.faults

    def verdicts(self, kinds: dict[str, str]) -> dict[str, Any]:
        """Answers of these kinds, as far as they fit."""
        made: dict[str, Any] = {}
        for call_id, kind in kinds.items():
            call = self.run.people.waiting[call_id]
            n = json.loads(bytes(call.made))[0]["n"]
            if kind == "defer":
                made[call_id] = Defer()
            elif kind == "deny":
                made[call_id] = Deny("no")
            elif kind == "fail":
                made[call_id] = ToolError("BAD", "it does not work")
            elif kind == "answer" or call.stage == "client":
                made[call_id] = Answer(f"answer {n}")
            elif kind == "edit":
                made[call_id] = Edit({"n": n, "edited": True})
            else:
                made[call_id] = Approve(scope="run" if kind == "approve_run" else "call")
        return made

    # ---- what must be so ------------------------------------------------------------------------------------------

    def check(self) -> None:
        """At any time."""
        assert not self.faults, self.faults
        assert_is_its_journal(self.run)
        for number, call in self.run.state.calls.items():
            times = self.effects.times(call.id)
            assert times <= (1 + self.crashes if call.tool in IDEMPOTENT else 1), f"call {number} took effect {times}x"
        if self.store is not None:
            kept = self.store.read(self.run.id)
            assert again(kept) == again([encode(record) for record in self.run.journal.records[: len(kept)]])

    async def check_the_end(self) -> None:
        """Once it is finished."""
        run, state = self.run, self.run.state
        assert run.fault is None, run.fault
        assert run.result is not None
        came_to: dict[int, Any] = {}
        order: dict[int, float] = {}
        told = [number for record in run.journal.records if isinstance(record, Delivered) for number in record.ids]
        unheard = False
        for number, call in state.calls.items():
            times = self.effects.times(call.id)
            failed = bool(call.error_code)
            unheard |= number not in state.heard and call.outcome in ("failed", "denied", "unknown")
            if call.outcome == "unknown":
                assert number in self.lost, f"call {number} is known"
            elif call.outcome in ("completed", "failed") and call.verdict not in ("answer", "toolerror"):
                assert times == 1 or (call.tool in IDEMPOTENT and number in self.lost), (
                    f"call {number}: {times} effects"
                )
            elif call.tool not in READS:
                assert times == 0, f"call {number} is {call.outcome} and took effect"
            made = json.loads(bytes(call.made))[0]
            if "n" in made:
                n = made["n"]
                came_to[n] = Failed(call.error_code) if failed else json.loads(call.text or b"null")
                if number in told:
                    order[n] = told.index(number)
        if unheard:
            assert run.result.status == "failed"
        else:
            assert run.result.status == "completed", run.result.text
            self.program.accepts(run.result.value, came_to, order)
        waves = await replay(self.sandbox, state)
        assert len(waves) == len(state.waves)
        if self.store is not None:
            assert self.store.row(run.id).status == run.result.status

    def dispose(self) -> None:
        """Close the files."""
        self.effects.close()
        if self.store is not None:
            self.store.close()


class Runs(RuleBasedStateMachine):
    """What may happen to a run."""

    portal: anyio.from_thread.BlockingPortal
    sandbox: Sandbox

    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None)

    @initialize(program=programs(), stored=st.booleans(), hibernates=st.booleans(), in_flight=st.sampled_from([100, 2]))
    def begin(self, program: Program, stored: bool, hibernates: bool, in_flight: int) -> None:
        path = Path(self.directory.name)
        self.play = Play(self.sandbox, path, stored=stored, hibernates=hibernates, in_flight=in_flight)
        self.life, _ = self.portal.start_task(self.play.live)
        self.portal.call(self.play.begin, program)

    @property
    def waits(self) -> bool:
        return self.play.run.status == "paused"

    # What is drawn never depends on the run, so that an example can be tried again whatever the clock does.

    @rule(which=st.integers(0, 7))
    def a_call_comes_back(self, which: int) -> None:
        flying = sorted(self.play.tools.in_flight)
        if flying:
            self.portal.call(self.play.reply, flying[which % len(flying)])

    @rule(given=st.dictionaries(st.integers(0, 5), VERDICTS, min_size=1, max_size=4))
    def somebody_answers(self, given: dict[int, str]) -> None:
        waiting = list(self.play.run.people.waiting) if self.waits else []
        if waiting:
            kinds = {waiting[which % len(waiting)]: verdict for which, verdict in given.items()}
            self.portal.call(self.play.resume, self.play.verdicts(kinds))

    @rule(by_id=st.booleans())
    def another_host_loads_it(self, by_id: bool) -> None:
        async def act() -> None:
            await self.play.dump_and_load(by_id=by_id and self.play.store is not None)

        if self.waits:
            self.portal.call(act)

    @rule()
    def its_worker_is_killed(self) -> None:
        self.portal.call(self.play.kill_worker)

    @rule()
    def its_host_dies(self) -> None:
        if self.play.store is not None and self.play.run.status != "finished":
            self.portal.call(self.play.crash)

    @rule()
    def it_is_written(self) -> None:
        self.portal.call(self.play.flushed)

    @invariant()
    def it_is_its_journal(self) -> None:
        if hasattr(self, "play"):
            self.play.check()

    def teardown(self) -> None:
        if hasattr(self, "play"):
            try:
                self.portal.call(self.play.finish)
                self.play.check()
                self.portal.call(self.play.check_the_end)
            finally:
                self.portal.call(self.play.end)
                self.life.result()
                self.play.dispose()
        self.directory.cleanup()


@pytest.fixture(scope="module", params=["asyncio", "trio"])
def world(request: pytest.FixtureRequest) -> Iterator[tuple[anyio.from_thread.BlockingPortal, Sandbox]]:
    with anyio.from_thread.start_blocking_portal(request.param) as portal:
        sandbox = Sandbox(limits=Limits(cpu_s=5, wall_s=120, memory_bytes=64 << 20))
        with portal.wrap_async_context_manager(sandbox) as opened:
            yield portal, opened


def test_whatever_happens_to_a_run_it_comes_to_what_its_replies_make_of_it(
    world: tuple[anyio.from_thread.BlockingPortal, Sandbox], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL + 1, "sandbridge")

    class OfThisWorld(Runs):
        portal, sandbox = world

    run_state_machine_as_test(
        OfThisWorld,
        settings=settings(
            max_examples=int(EXAMPLES or 25),
            stateful_step_count=20,
            deadline=None,
            derandomize=EXAMPLES is None,
            suppress_health_check=list(HealthCheck),
            database=None,
            phases=[Phase.generate, Phase.shrink] if os.environ.get("SANDBRIDGE_SHRINK") else [Phase.generate],
            report_multiple_bugs=False,
        ),
    )
