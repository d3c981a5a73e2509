"""Workers in numbers: queues, kills from outside, zygotes that go away, and that nothing is ever left behind."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from sandbox import Limits, Returned, Sandbox, SandboxClosed, WallMissing, Worker
from sandbox.process import Death
from tests.sandbox.conftest import SMALL, Outcome, play, start_of

pytestmark = pytest.mark.anyio


def children() -> set[int]:
    """Processes that this one started and has not collected."""
    return {int(pid) for path in Path("/proc/self/task").glob("*/children") for pid in path.read_text().split()}


def descriptors() -> set[str]:
    """What is open, without the event loop's own."""
    found: set[str] = set()
    for entry in Path("/proc/self/fd").iterdir():
        try:
            target = str(entry.readlink())
        except OSError:
            continue
        if target.startswith(("socket:", "anon_inode:[pidfd]", "pipe:")):
            found.add(f"{entry.name} {target}")
    return found


def statuses(pid: int) -> list[dict[str, str]]:
    """What the kernel says of each thread of a process."""
    texts = [(task / "status").read_text() for task in Path(f"/proc/{pid}/task").iterdir()]
    return [dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line) for text in texts]


async def gone(sandbox: Sandbox) -> None:
    """Until every worker but the spares is collected."""
    with anyio.fail_after(10):
        while len(sandbox._live) > len(sandbox._spares):  # noqa: ASYNC110  # no event
            await anyio.sleep(0.001)


# ---- walls ---------------------------------------------------------------------------------------------------------


async def test_every_wall_is_reported(sandbox: Sandbox) -> None:
    assert {"process", "no_new_privs", "rlimits", "seccomp"} <= set(sandbox.walls)
    assert all(sandbox.walls[wall] == "" for wall in ("process", "no_new_privs", "rlimits", "seccomp"))


async def test_every_thread_of_a_worker_is_behind_the_walls(sandbox: Sandbox) -> None:
    async with sandbox.worker() as worker:
        wave = await sandbox.start(worker, start_of("await tools.echo(1)", ["echo"]), SMALL, 5)
        assert wave is not None
        threads = statuses(worker.pid)
        assert len(threads) == 1  # the isolate's own, which drives it too
        for said in threads:
            assert (said["Seccomp"], said["NoNewPrivs"], said["CapEff"].strip("0")) == ("2", "1", "")
            assert os.getuid() != 0 or "0" not in said["Uid"].split("\t")


async def test_a_spare_and_a_worker_made_when_asked_for_give_the_same_waves() -> None:
    program = """
        const seen = [Math.random(), Date.now(), crypto.randomUUID(), typeof inputs, Object.keys(tools)];
        setTimeout(() => text('due'), 5);
        try { await tools.echo(seen) } catch (e) { console.log(e.message) }
        text(Object.getOwnPropertyNames(globalThis).sort().join());
        await sleep(10); return [seen, await tools.echo(new Error('x').stack.length)]
    """
    found: list[list[Any]] = []
    for spares in (0, 1):
        async with Sandbox(limits=SMALL, spares=spares) as sandbox:
            if not spares:
                await sandbox.bury(sandbox._spares.popleft())  # left by entering
            assert len(sandbox._spares) == spares
            out = await play(sandbox, program)
            assert out.end is not None
            found.append(out.waves)
    assert found[0] == found[1]


def test_nothing_of_pythons_runs_in_a_fork_by_itself() -> None:
    """Each handler that a module registers costs every worker, and none is needed there."""
    code = "import os, sys; os.register_at_fork = lambda **_: print(sys._getframe(1).f_globals['__name__'])\n"
    ended = subprocess.run(
        [sys.executable, "-I", "-c", f"{code}sys.path[:] = {sys.path!r}; import sandbox.zygote"],
        capture_output=True,
        check=True,
    )
    assert ended.stdout == b""


async def test_a_sandbox_refuses_to_start_without_a_wall_that_is_required() -> None:
    before = children(), descriptors()
    with pytest.raises(WallMissing) as refused:
        async with Sandbox(limits=SMALL, jit=True, require=["code_pages"]):
            pass
    assert str(refused.value).startswith(
        "the wall 'code_pages' (no memory is writable and executable) does not stand: "
    )
    assert (children(), descriptors()) == before


async def test_namespaces_that_are_not_asked_for_do_not_stand() -> None:
    with pytest.raises(WallMissing, match=r"^the wall 'namespaces' .* does not stand: namespaces were not asked for\."):
        async with Sandbox(limits=SMALL, namespaces=False, require="all"):
            pass


async def test_a_wall_that_is_lost_later_ends_the_service_and_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    ready = Worker.ready
    lost = [""]

    async def without_one(worker: Worker) -> str:
        said = await ready(worker)
        worker.walls["landlock"] = lost[0]
        return said

    monkeypatch.setattr(Worker, "ready", without_one)
    async with Sandbox(limits=SMALL, spares=0, require=["landlock"]) as sandbox:
        assert (await play(sandbox, "return 1")).value == 1
        lost[0] = "gone since"
        with pytest.raises(WallMissing, match=r"^the wall 'landlock' .* does not stand: gone since\."):
            await play(sandbox, "return 1")
        lost[0] = ""
        assert (await play(sandbox, "return 1")).value == 1
        await gone(sandbox)


async def test_a_sandbox_that_is_not_open_says_so() -> None:
    with pytest.raises(SandboxClosed, match=r"^enter the sandbox first: `async with Sandbox\(\) as sandbox`$"):
        await play(Sandbox(), "return 1")


@pytest.mark.parametrize("wrong", [{"spares": -1}, {"recycle_after": 0}, {"max_workers": 0}, {"max_waiting": 0}])
def test_impossible_numbers_stop_at_construction(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"^spares must be 0 or more, recycle_after, max_workers and max_waiting 1 or"):
        Sandbox(**wrong)


# ---- numbers ---------------------------------------------------------------------------------------------------------


async def test_two_hundred_programs_finish_with_two_that_compute_at_once() -> None:
    values: list[Any] = []
    async with Sandbox(limits=SMALL, max_workers=2) as sandbox, anyio.create_task_group() as tasks:

        async def one(n: int) -> None:
            values.append((await play(sandbox, f"return (await tools.echo({n}))[0]")).value)

        for n in range(200):
            tasks.start_soon(one, n)
    assert sorted(values) == list(range(200))


async def test_workers_over_max_waiting_queue_and_none_is_lost() -> None:
    values: list[Any] = []
    async with Sandbox(limits=SMALL, max_waiting=2) as sandbox, anyio.create_task_group() as tasks:

        async def one(n: int) -> None:
            values.append((await play(sandbox, f"return (await tools.echo({n}))[0]")).value)

        for n in range(12):
            tasks.start_soon(one, n)
    assert sorted(values) == list(range(12))


# ---- workers that are killed ---------------------------------------------------------------------------------------


async def ended_by(sandbox: Sandbox, act: Callable[[Worker], Any], program: str, timeout_s: float = 5) -> Death:
    """How a program ends whose worker `act` is done to while it computes."""
    death = Death("cancelled")
    async with sandbox.worker() as worker, anyio.create_task_group() as tasks:

        async def soon() -> None:
            with anyio.fail_after(10):
                while not worker.computing or worker.cpu_s() < 0.02:  # noqa: ASYNC110  another process's doing
                    await anyio.sleep(0.001)
            act(worker)

        tasks.start_soon(soon)
        assert await sandbox.start(worker, start_of(program), SMALL, timeout_s) is None
        death = await sandbox.bury(worker)
    return death  # noqa: RET504  a task group may swallow: a type checker wants this here


async def test_a_worker_killed_while_it_computes_has_crashed_and_the_next_program_runs(sandbox: Sandbox) -> None:
    death = await ended_by(sandbox, lambda worker: os.kill(worker.pid, signal.SIGKILL), "for (;;);")
    assert death == Death("crashed", None, "ended by SIGKILL", outside=True)
    assert (await play(sandbox, "return 1")).value == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT])
async def test_a_worker_that_somebody_ends_politely_was_ended_from_outside(
    number: signal.Signals, sandbox: Sandbox
) -> None:
    death = await ended_by(sandbox, lambda worker: os.kill(worker.pid, number), "for (;;);")
    assert death == Death("crashed", None, f"ended by {number.name}", outside=True)


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGABRT, signal.SIGTRAP, signal.SIGUSR1])
async def test_a_signal_that_a_broken_engine_may_cause_is_not_from_outside(
    number: signal.Signals, sandbox: Sandbox
) -> None:
    death = await ended_by(sandbox, lambda worker: os.kill(worker.pid, number), "for (;;);")
    assert death == Death("crashed", None, f"ended by {number.name}", outside=False)


async def test_a_worker_killed_at_its_memory_is_not_ended_from_outside(sandbox: Sandbox) -> None:
    def once_grown(worker: Worker) -> None:
        while worker.memory() - worker.memory_at_ready < SMALL.memory_bytes * 0.6:
            assert not worker.gone
        os.kill(worker.pid, signal.SIGKILL)

    program = "const kept = []; for (let n = 0; n < 44; n++) kept.push(new Uint8Array(1 << 20).fill(1)); for (;;);"
    death = await ended_by(sandbox, once_grown, program)
    assert death == Death("crashed", None, "ended by SIGKILL", outside=False)


async def test_without_the_filter_nobody_knows_who_ended_a_worker(sandbox: Sandbox) -> None:
    def unfiltered(worker: Worker) -> None:
        worker.walls["seccomp"] = "the kernel has none"
        os.kill(worker.pid, signal.SIGKILL)

    assert await ended_by(sandbox, unfiltered, "for (;;);") == Death("crashed", None, "ended by SIGKILL")


async def test_what_we_end_is_not_ended_from_outside(sandbox: Sandbox) -> None:
    async with sandbox.worker() as worker:
        worker._lost = True  # a worker that closes its channel and lives on
        assert await sandbox.bury(worker) == Death("crashed", None, "ended by SIGKILL", outside=False)


async def test_a_worker_killed_while_it_waits_has_crashed_and_the_next_program_runs(sandbox: Sandbox) -> None:
    async with sandbox.worker() as worker:
        wave = await sandbox.start(worker, start_of("await tools.echo(1)", ["echo"]), SMALL, 5)
        assert wave is not None
        os.kill(worker.pid, signal.SIGKILL)
        assert await sandbox.deliver(worker, 0, [], 5) is None
        assert await sandbox.bury(worker) == Death("crashed", None, "ended by SIGKILL", outside=True)
    assert (await play(sandbox, "return 1")).value == 1


async def test_a_worker_that_is_stopped_ends_at_its_deadline(sandbox: Sandbox) -> None:
    with anyio.fail_after(60):
        death = await ended_by(sandbox, lambda worker: os.kill(worker.pid, signal.SIGSTOP), "for (;;);", 1)
    assert death == Death("exceeded", "wall_s")
    async with sandbox.worker() as worker:
        os.kill(worker.pid, signal.SIGSTOP)  # it does not even read
        start = start_of("//" + "x" * 4_000_000)
        with anyio.fail_after(60):
            assert await sandbox.start(worker, start, SMALL, 0.2) is None
        assert await sandbox.bury(worker) == Death("exceeded", "wall_s")
    assert (await play(sandbox, "return 1")).value == 1


async def test_a_zygote_that_is_killed_takes_its_programs_along_and_no_other(sandbox: Sandbox) -> None:
    def kill_zygote(worker: Worker) -> None:
        worker.origin.process.kill()  # a zygote

    death = await ended_by(sandbox, kill_zygote, "for (;;);")
    assert death == Death("crashed", None, "ended by SIGKILL", outside=True)
    assert (await play(sandbox, "return 1")).value == 1


async def test_a_program_never_starts_on_a_spare_that_died_with_its_zygote(sandbox: Sandbox) -> None:
    [spare] = sandbox._spares  # nothing public shows them
    spare.origin.process.kill()  # a zygote
    with anyio.fail_after(10):
        while spare.idle():  # noqa: ASYNC110  another process's doing
            await anyio.sleep(0.001)
    assert (await play(sandbox, "return 1")).value == 1


async def test_a_zygote_is_replaced_after_its_number_of_forks_and_after_a_crash() -> None:
    zygotes: set[int] = set()
    async with Sandbox(limits=SMALL, spares=1, recycle_after=3) as sandbox:
        for n in range(8):
            async with sandbox.worker() as worker:
                zygotes.add(id(worker.origin))
                wave = await sandbox.start(worker, start_of(f"return {n}"), SMALL, 5)
                assert wave is not None
                assert isinstance(wave.end, Returned)
            await gone(sandbox)
        assert len(zygotes) >= 2
    async with Sandbox(limits=SMALL, spares=1) as sandbox:  # one that no number of forks renews meanwhile
        async with sandbox.worker() as worker:
            old = worker.origin
            os.kill(worker.pid, signal.SIGSEGV)
            assert await sandbox.start(worker, start_of("return 1"), SMALL, 5) is None
            assert (await sandbox.bury(worker)).outcome == "crashed"
        async with sandbox.worker() as worker:
            assert worker.origin is not old
        assert len(children()) <= 3


# ---- spawned instead of forked -----------------------------------------------------------------------------------


async def test_spawned_workers_do_the_same() -> None:
    before = children(), descriptors()
    async with Sandbox(limits=SMALL, fork=False, spares=1) as sandbox:
        assert {"process", "rlimits", "seccomp"} <= {wall for wall, why in sandbox.walls.items() if not why}
        assert (await play(sandbox, "return (await tools.echo('a'))[0]")).value == "a"
        out = await play(sandbox, "for (;;);", limits=Limits(memory_bytes=64 << 20, cpu_s=0.1, wall_s=5))
        assert out.death == Death("exceeded", "cpu_s")
        death = await ended_by(sandbox, lambda worker: os.kill(worker.pid, signal.SIGKILL), "for (;;);")
        assert death.outcome == "crashed"
    assert (children(), descriptors()) == before


# ---- limits of one run ----------------------------------------------------------------------------------------------


async def test_a_run_with_less_memory_than_the_sandbox_is_ended_by_the_watchdog(sandbox: Sandbox) -> None:
    lower = Limits(memory_bytes=8 << 20, cpu_s=2, wall_s=5)
    program = "const kept = []; for (;;) { const a = new Uint8Array(1 << 20); a.fill(1); kept.push(a); }"
    assert (await play(sandbox, program, limits=lower)).death == Death("exceeded", "memory_bytes")


async def test_a_run_with_less_time_than_the_sandbox_is_ended_by_the_watchdog(sandbox: Sandbox) -> None:
    out = await play(sandbox, "for (;;);", limits=Limits(memory_bytes=64 << 20, cpu_s=0.1, wall_s=5))
    assert out.death == Death("exceeded", "cpu_s")


# ---- cancellation ----------------------------------------------------------------------------------------------------


async def test_a_cancelled_task_leaves_nothing_whenever_it_is_cancelled(anyio_backend_name: str) -> None:
    """Cut off after every number of turns of the event loop, from entering to leaving."""
    gc.collect()
    before = children(), descriptors()

    async def whole() -> Outcome:
        async with Sandbox(limits=SMALL, spares=1) as sandbox:
            return await play(sandbox, "return (await tools.echo('a'))[0]")

    assert (await whole()).value == "a"
    for delay_s in [0.0, *(0.01 * 1.35**step for step in range(14))]:
        with anyio.move_on_after(delay_s):
            await whole()
        gc.collect()
        assert (children(), descriptors()) == before, delay_s


async def test_a_program_that_is_cancelled_at_any_moment_leaves_nothing(sandbox: Sandbox) -> None:
    program = "for (let n = 0; n < 20; n++) await tools.echo(n)"
    assert (await play(sandbox, program)).end is not None
    for step in range(25):
        with anyio.move_on_after(0.0005 * step):
            await play(sandbox, program)
    await gone(sandbox)
    assert (await play(sandbox, "return 1")).value == 1
    await gone(sandbox)
    assert len(children()) == 1


async def test_a_worker_that_was_made_while_its_zygote_was_retired_serves_no_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with Sandbox(limits=SMALL, spares=0) as sandbox:
        first = sandbox._origin
        ready = Worker.ready

        async def retired_meanwhile(worker: Worker) -> str:
            reason = await ready(worker)
            if worker.origin is first:
                sandbox._retire(worker.origin)
            return reason

        monkeypatch.setattr(Worker, "ready", retired_meanwhile)
        await sandbox.bury(sandbox._spares.popleft())  # the one that entering has left
        async with sandbox.worker() as worker:
            assert worker.origin is not first


async def test_a_crowd_of_dying_workers_does_not_hold_the_loop() -> None:
    async with Sandbox(limits=SMALL, spares=1, max_waiting=1) as sandbox:
        with anyio.fail_after(60):
            while not sandbox.occupancy.spares:
                await anyio.lowlevel.checkpoint()
            crowd = [await sandbox._make() for _ in range(2)]  # as many as may be, and none of them is given back yet
            async with sandbox.worker():
                pass  # the spare was taken: another one is wanted, and there is no room for it
            await anyio.sleep(0.05)
            for worker in crowd:
                await sandbox.bury(worker)
            assert (await play(sandbox, "return 1")).value == 1
