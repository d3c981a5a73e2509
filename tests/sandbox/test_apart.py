"""Where a worker runs: off its host's core while steps are short, and where the kernel says otherwise."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Generator
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from sandbox import Resolved, Returned, Sandbox, Worker, apart, process
from sandbox.apart import Place, cores
from tests.sandbox.conftest import SMALL, start_of

pytestmark = pytest.mark.skipif(cores() < 2, reason="there is one core only")


@pytest.fixture
def pid() -> Generator[int]:
    """A process that waits."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process.pid
        process.communicate(b"\n")


@pytest.fixture
def place(pid: int) -> Generator[Place]:
    pidfd = os.pidfd_open(pid)
    yield Place(pid, pidfd)
    os.close(pidfd)


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> int:
    """The core that the caller is on, as long as the test lasts, on a machine that does nothing else."""
    core = min(os.sched_getaffinity(0))
    monkeypatch.setattr(apart, "crowded", lambda _: False)
    monkeypatch.setattr(apart, "_core", lambda: core)
    return core


@pytest.mark.parametrize(
    ("said", "found"),
    [("max 100000", None), ("100000 100000", 1), ("150000 100000", 1), ("20000 100000", 1), ("900000000 100000", None)],
)
def test_whose_time_is_limited_has_as_many_cores_as_that_is_enough_for(
    tmp_path: Path, said: str, found: int | None
) -> None:
    (tmp_path / "cpu.max").write_text(said)
    assert cores(str(tmp_path / "cpu.max")) == (found or len(os.sched_getaffinity(0)))
    assert cores(str(tmp_path / "none")) == len(os.sched_getaffinity(0))


def test_a_process_is_kept_off_the_callers_core_until_it_is_let_loose_for_good(
    pid: int, place: Place, here: int
) -> None:
    everywhere = os.sched_getaffinity(pid)
    assert place.keep_off()
    assert place.keep_off()
    assert os.sched_getaffinity(pid) == everywhere - {here}
    place.let_loose()
    assert os.sched_getaffinity(pid) == everywhere
    assert not place.keep_off()
    assert os.sched_getaffinity(pid) == everywhere


def test_a_caller_that_is_on_another_core_now_is_made_way_for(
    pid: int, place: Place, here: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = max(os.sched_getaffinity(0))
    assert place.keep_off()
    monkeypatch.setattr(apart, "_core", lambda: other)
    assert place.keep_off()
    assert other not in os.sched_getaffinity(pid)


def test_a_process_that_may_use_one_core_only_is_left_there(pid: int, place: Place, here: int) -> None:
    os.sched_setaffinity(pid, {here})
    assert not place.keep_off()
    assert os.sched_getaffinity(pid) == {here}


@pytest.mark.usefixtures("here")
def test_nobody_is_placed_where_none_of_the_cores_that_it_may_use_is_idle_for_certain(
    pid: int, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    everywhere, asked = os.sched_getaffinity(pid), []

    def crowded(count: int) -> bool:
        asked.append(count)
        return True

    monkeypatch.setattr(apart, "crowded", crowded)
    assert not place.keep_off()
    assert os.sched_getaffinity(pid) == everywhere
    assert asked == [len(everywhere)]


def test_cores_are_crowded_when_as_many_processes_run() -> None:
    assert apart.crowded(1)  # this test runs
    assert not apart.crowded(100_000)


@pytest.mark.usefixtures("here")
def test_who_may_not_say_where_a_process_runs_asks_once(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def refuse(*given: Any) -> None:
        asked.append(given)
        raise PermissionError

    monkeypatch.setattr(os, "sched_setaffinity", refuse)
    assert not place.keep_off()
    assert not place.keep_off()
    place.let_loose()
    assert len(asked) == 1


@pytest.mark.usefixtures("here")
def test_whoever_got_the_id_of_a_process_that_is_gone_runs_where_he_likes(pid: int) -> None:
    """Ids come round: what dies with its zygote is reaped by another, and its run may wait for days."""
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        pidfd = os.pidfd_open(gone.pid)
    place, everywhere = Place(pid, pidfd), os.sched_getaffinity(pid)
    assert not place.keep_off()
    place.let_loose()
    os.close(pidfd)
    assert os.sched_getaffinity(pid) == everywhere


@pytest.mark.usefixtures("here")
def test_whoever_gets_the_id_later_is_not_let_loose_either(pid: int) -> None:
    everywhere = os.sched_getaffinity(pid)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        pidfd = os.pidfd_open(process.pid)
        place = Place(process.pid, pidfd)
        assert place.keep_off()
        process.communicate(b"\n")
    os.sched_setaffinity(pid, {min(everywhere)})
    place._pid = pid
    place.let_loose()
    os.close(pidfd)
    assert os.sched_getaffinity(pid) == {min(everywhere)}


class Stopped:
    """A worker that stands still until its host waits for it; `slept` has where it might run when the host slept."""

    def __init__(self, worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
        self.slept: list[set[int]] = []
        self._pid = worker.pid
        for name in ("wait_readable", "wait_writable"):
            monkeypatch.setattr(process.anyio, name, self._asleep(getattr(process.anyio, name)))
        monkeypatch.setattr(process.anyio.lowlevel, "checkpoint", self._awake(process.anyio.lowlevel.checkpoint))
        os.kill(self._pid, signal.SIGSTOP)

    def _asleep(self, wait: Callable[[Any], Awaitable[None]]) -> Callable[[Any], Awaitable[None]]:
        async def waits(channel: Any) -> None:
            self.slept.append(os.sched_getaffinity(self._pid))
            os.kill(self._pid, signal.SIGCONT)
            await wait(channel)

        return waits

    def _awake(self, checkpoint: Callable[[], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
        async def goes_on() -> None:
            os.kill(self._pid, signal.SIGCONT)
            await checkpoint()

        return goes_on


@pytest.mark.anyio
@pytest.mark.parametrize("awake", [True, False])
@pytest.mark.parametrize("size", [1, 1 << 20])
async def test_a_worker_is_off_its_hosts_core_until_the_host_sleeps_and_then_wherever_the_kernel_likes(
    here: int, monkeypatch: pytest.MonkeyPatch, awake: bool, size: int
) -> None:
    program = "const got = await tools.echo(1); await tools.echo(2); return got.length"
    # No spare is made meanwhile: whoever makes one waits for it with the same functions.
    async with Sandbox(limits=SMALL, spares=0) as sandbox, sandbox.worker() as worker:
        everywhere = os.sched_getaffinity(worker.pid)
        monkeypatch.setattr(process, "IN_PLACE_S", 60.0)
        wave = await sandbox.start(worker, start_of(program, ["echo"]), SMALL)
        assert wave is not None
        assert os.sched_getaffinity(worker.pid) == everywhere - {here}
        monkeypatch.setattr(process, "IN_PLACE_S", 0.0)
        monkeypatch.setattr(process, "AWAKE_S", 60.0 if awake else 1e-9)
        stopped = Stopped(worker, monkeypatch)
        text = b'"' + b"x" * size + b'"'  # the larger one is more than the channel holds: whoever sends it has to wait
        wave = await sandbox.deliver(worker, 0.0, [Resolved(wave.calls[0].id, Raw(text))])
        assert wave is not None
        assert os.sched_getaffinity(worker.pid) == (everywhere - {here} if awake else everywhere)
        assert not stopped.slept if awake else stopped.slept[0] == everywhere
        wave = await sandbox.deliver(worker, 0.0, [Resolved(wave.calls[0].id, Raw(b"0"))])
        assert wave is not None
        assert wave.end == Returned(Raw(str(size).encode()))
        assert os.sched_getaffinity(worker.pid) == (everywhere - {here} if awake else everywhere)  # for good


def threads_of(pid: int) -> list[int]:
    return [int(each.name) for each in Path(f"/proc/{pid}/task").iterdir()]


@pytest.mark.anyio
@pytest.mark.usefixtures("here")
async def test_a_spawned_worker_is_left_alone_because_its_first_thread_is_not_the_one_that_computes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with Sandbox(limits=SMALL, fork=False, spares=0) as sandbox, sandbox.worker() as worker:
        everywhere = os.sched_getaffinity(worker.pid)
        monkeypatch.setattr(process, "AWAKE_S", 60.0)
        assert await sandbox.start(worker, start_of("await tools.echo(1)", ["echo"]), SMALL)
        threads = threads_of(worker.pid)
        assert len(threads) > 1
        assert [os.sched_getaffinity(thread) for thread in threads] == [everywhere] * len(threads)


@pytest.mark.anyio
@pytest.mark.usefixtures("here")
async def test_whose_time_is_enough_for_one_core_places_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "SEVERAL_CORES", False)
    monkeypatch.setattr(process, "IN_PLACE_S", 60.0)
    async with Sandbox(limits=SMALL, spares=0) as sandbox, sandbox.worker() as worker:
        everywhere = os.sched_getaffinity(worker.pid)
        assert await sandbox.start(worker, start_of("await tools.echo(1)", ["echo"]), SMALL) is not None
        assert os.sched_getaffinity(worker.pid) == everywhere


@pytest.mark.anyio
async def test_a_worker_that_computes_beside_another_one_is_not_waited_for_awake(sandbox: Sandbox) -> None:
    async with sandbox.worker() as first, sandbox.worker() as second:
        await sandbox._begin_step(first)
        assert first.alone
        await sandbox._begin_step(second)
        assert not first.alone
        assert not second.alone
        for worker in (first, second):
            sandbox._end_step(worker)
        await sandbox._begin_step(second)
        assert second.alone
        sandbox._end_step(second)
