"""Runs whose host dies: another one takes them over from the journal, repeats nothing and forgets nothing."""

from __future__ import annotations

import logging
import os
import signal
from contextlib import suppress
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from bridge import ApprovalRequest, Approve, StateError
from bridge.journal import Again, CameBack, Ended, Sent
from bridge.run import Run
from bridge.store import Store, StoreFailed
from sandbox import Sandbox
from tests.durable.world import HOUR, Host, Tools, assert_is_its_journal, of_kind, quiet

pytestmark = pytest.mark.anyio


async def begun(host: Host, program: str, tools: Tools, tasks: Any, **options: Any) -> Run:
    """A run that is driven in the background, as far as it gets by itself."""
    known = set(host.executor._roster.runs)
    began = anyio.Event()

    async def start() -> None:
        with suppress(StoreFailed, StateError):  # its host may die
            await host.executor.start(program, on_event=lambda event: began.set(), **options)

    tasks.start_soon(start)
    await began.wait()
    [run_id] = set(host.executor._roster.runs) - known
    run = host.executor._roster.runs[run_id]
    await quiet(run, tools)
    return run


async def crashed(opened: Sandbox, tools: Tools, store: Store, program: str, replies: tuple[int, ...] = ()) -> str:
    """A run whose host died while calls of it were in flight; those named had come back."""
    tools.held = True
    async with anyio.create_task_group() as tasks:
        async with Host(opened, tools.all(), store) as host:
            run = await begun(host, program, tools, tasks)
            for number in replies:
                tools.reply(f"{run.id}.{number}")
                await quiet(run, tools)
                await run.journal.flush()
            host.die()
        tasks.cancel_scope.cancel()
    tools.held = False
    tools.in_flight.clear()
    return run.id


# ---- what was sent and not heard of --------------------------------------------------------------------------------


async def test_a_call_that_was_not_heard_of_is_not_sent_again_and_the_program_is_told(
    opened: Sandbox, tools: Tools, store: Store
) -> None:
    program = "try { return await tools.write({n: 1}) } catch (e) { return [e.code, e.tool, e.retryable] }"
    run_id = await crashed(opened, tools, store, program)
    async with Host(opened, tools.all(), store, ahead_s=HOUR) as host:
        run = await host.executor.load(run_id)
    assert run.result is not None
    assert (run.result.value, run.result.calls[0].outcome) == (["unknown_outcome", "write", False], "unknown")
    assert tools.effects.times(f"{run_id}.1") == 1
    assert_is_its_journal(run)


async def test_an_idempotent_call_is_sent_again_with_the_same_key(opened: Sandbox, tools: Tools, store: Store) -> None:
    run_id = await crashed(opened, tools, store, "return await tools.again({n: 1})")
    async with Host(opened, tools.all(), store, ahead_s=HOUR) as host:
        run = await host.executor.load(run_id)
    assert run.result is not None
    assert run.result.value == "again 1"
    assert tools.effects.rows() == [("again", f"{run_id}.1", f"{run_id}.1", 1)] * 2
    assert [len(of_kind(store, run_id, kind)) for kind in (Sent, Again, CameBack)] == [2, 1, 1]


async def test_an_idempotent_call_that_nobody_awaits_gets_an_end_though_the_program_had_ended(
    opened: Sandbox, tools: Tools, store: Store
) -> None:
    run_id = await crashed(
        opened, tools, store, "tools.again({n: 1}); tools.again({n: 2}); tools.echo({n: 3}); return 1"
    )
    async with Host(opened, tools.all(), store, ahead_s=HOUR) as host:
        run = await host.executor.load(run_id)
    assert run.result is not None
    assert (run.result.status, run.result.value) == ("completed", 1)
    assert [row.outcome for row in run.result.calls] == ["completed", "completed", "cancelled"]
    assert [tools.effects.times(f"{run_id}.{number}") for number in (1, 2, 3)] == [2, 2, 1]


async def test_a_completed_call_is_never_sent_again(opened: Sandbox, tools: Tools, store: Store) -> None:
    program = "const a = await tools.write({n: 1}); return [a, await tools.again({n: 2})]"
    run_id = await crashed(opened, tools, store, program, replies=(1,))
    async with Host(opened, tools.all(), store, ahead_s=HOUR) as host:
        run = await host.executor.load(run_id)
    assert run.result is not None
    assert run.result.value == ["write 1", "again 2"]
    assert (tools.effects.times(f"{run_id}.1"), tools.effects.times(f"{run_id}.2")) == (1, 2)


async def test_a_run_that_somebody_drives_is_not_taken(opened: Sandbox, tools: Tools, store: Store) -> None:
    run_id = await crashed(opened, tools, store, "return await tools.write({n: 1})")
    async with Host(opened, tools.all(), store) as host:
        with pytest.raises(StateError, match=rf"^run {run_id} is driven by .*: its lease lasts \d+\.\d s more, until "):
            await host.executor.load(run_id)


async def test_the_old_host_writes_and_sends_nothing_once_another_has_the_run(
    opened: Sandbox, tools: Tools, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "sandbridge")
    tools.held = True
    async with anyio.create_task_group() as tasks, Host(opened, tools.all(), store) as old:
        run = await begun(old, "await tools.write({n: 1}); return await tools.write({n: 2})", tools, tasks)
        other = Tools(tools.effects)
        async with Host(opened, other.all(), store, ahead_s=HOUR) as new:
            taken = await new.executor.load(run.id)
        assert taken.result is not None
        written = store.read(run.id)
        tools.reply(f"{run.id}.1")  # it comes back to the host that lost the run
        with anyio.fail_after(30):
            while run.status != "finished":
                await run.journal.change()
        assert store.read(run.id) == written
        assert tools.effects.times(f"{run.id}.2") == 0
        assert run.result is None
        assert str(run.fault).startswith(f"run {run.id} ")


# ---- the state of affairs at the crash -----------------------------------------------------------------------------


async def test_what_reuse_took_over_before_a_crash_is_taken_over_after_it(
    opened: Sandbox, tools: Tools, store: Store
) -> None:
    async with Host(opened, tools.all(), store) as host:
        earlier = await host.executor.run(
            "await tools.write({n: 1}); await tools.write({n: 1}); await tools.write({n: 3}); throw 1"
        )
    assert earlier.status == "failed"
    tools.held = True
    mended = """\
        const a = await tools.write({n: 1}); await tools.again({n: 9});
        return [a, await tools.write({n: 1}), await tools.write({n: 3}), await tools.write({n: 1})]"""
    async with anyio.create_task_group() as tasks:
        async with Host(opened, tools.all(), store) as host:
            run = await begun(host, mended, tools, tasks, reuse=earlier.run_id)
            host.die()
        tasks.cancel_scope.cancel()
    tools.held = False
    async with Host(opened, tools.all(), store, ahead_s=HOUR) as host:
        run = await host.executor.load(run.id)
    assert run.result is not None
    assert [row.reused for row in run.result.calls] == [True, False, True, True, False]
    assert [row[3] for row in tools.effects.rows()] == [1, 1, 3, 9, 9, 1]
    [said] = [warning.message for warning in run.result.warnings if warning.code == "reused_calls"]
    assert said == f"3 call(s) took over their replies from run {earlier.run_id}; 2 executed now (again, write)"


async def test_the_approver_of_the_next_host_is_asked_what_the_last_one_was_not_heard_to_say(
    opened: Sandbox, tools: Tools, store: Store
) -> None:
    asked: list[str] = []

    async def never(requests: list[ApprovalRequest]) -> dict[str, Any]:
        asked.extend(request.id for request in requests)
        waiting.set()
        await anyio.sleep_forever()
        return {}

    def approve(requests: list[ApprovalRequest]) -> Any:
        asked.extend(request.id for request in requests)
        return {request.id: Approve() for request in requests}

    waiting = anyio.Event()
    async with anyio.create_task_group() as tasks:
        async with Host(opened, tools.all(), store, approver=never) as host:

            async def start() -> None:
                with suppress(StoreFailed, StateError):
                    await host.executor.start("return await tools.gated({n: 2})")

            tasks.start_soon(start)
            await waiting.wait()
            [run] = host.executor._roster.runs.values()
            await run.journal.flush()
            host.die()
        tasks.cancel_scope.cancel()
    async with Host(opened, tools.all(), store, ahead_s=HOUR, approver=approve) as host:
        loaded = await host.executor.load(run.id)
    assert loaded.result is not None
    assert loaded.result.value == "gated 2"
    assert asked == [f"{run.id}.1"] * 2


async def test_a_crash_between_the_last_record_and_the_release_leaves_a_finished_run(
    opened: Sandbox, tools: Tools, store: Store
) -> None:
    async with Host(opened, tools.all(), store) as host:
        assert host.store is not None
        kept = host.store

        def die_at_release(operation: str) -> None:
            if operation == "release":
                kept.dead = True
                raise StoreFailed("this host is dead")

        kept.before = die_at_release
        with pytest.raises(StoreFailed):
            await host.executor.start("return await tools.write({n: 1})")
    [row] = store.runs()
    assert (row.status, len(of_kind(store, row.id, Ended))) == ("running", 1)
    async with Host(opened, tools.all(), store, ahead_s=HOUR) as host:
        with pytest.raises(StateError, match=rf"^run {row.id} is finished \(completed\): nothing of it can "):
            await host.executor.load(row.id)
    assert (store.row(row.id).status, store.row(row.id).lease_owner) == ("completed", None)
    assert store.abandoned(now=1e12) == []


async def test_a_journal_that_cannot_be_read_does_not_keep_its_lease(
    opened: Sandbox, tools: Tools, store: Store
) -> None:
    lease = store.create(
        "broken",
        [b'{"type":"began"}'],
        owner="one",
        lease_s=1,
        now=0,
        program="",
        audience="sandbridge",
        engine_digest="",
    )
    assert lease.fence == 1
    async with Host(opened, tools.all(), store) as host:
        with pytest.raises(StateError, match=r"^the journal has version 0 and was written by no Sandbridge that "):
            await host.executor.load("broken")
    assert store.row("broken").lease_owner is None


# ---- workers that die ----------------------------------------------------------------------------------------------


async def test_a_worker_that_is_killed_from_outside_is_replaced_and_nobody_notices(
    opened: Sandbox, tools: Tools, caplog: pytest.LogCaptureFixture
) -> None:
    tools.held = True
    program = "const r = Math.random(); return [await tools.write({n: 1}), await tools.write({n: 2}), r > 0]"
    async with anyio.create_task_group() as tasks, Host(opened, tools.all(), None) as host:
        run = await begun(host, program, tools, tasks)
        for number in (1, 2):
            assert run.seat.worker is not None
            os.kill(run.seat.worker.pid, signal.SIGKILL)
            tools.reply(f"{run.id}.{number}")
            await quiet(run, tools)
    assert run.result is not None
    assert run.result.value == ["write 1", "write 2", True]
    assert [row[3] for row in tools.effects.rows()] == [1, 2]
    assert [record.message for record in caplog.records] == [
        f"run {run.id}: its worker was ended from outside; a new one goes on"
    ] * 2


# ---- databases that fail -------------------------------------------------------------------------------------------


async def test_a_store_that_fails_leaves_the_run_to_the_next_host(
    opened: Sandbox, tools: Tools, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL + 1, "sandbridge")
    async with Host(opened, tools.all(), store) as host:
        assert host.store is not None
        appends = 0

        def full(operation: str) -> None:
            nonlocal appends
            appends += operation == "append"
            if operation == "append" and appends == 2:
                raise StoreFailed("the disk is full")

        host.store.before = full
        with pytest.raises(StoreFailed, match=r"^the disk is full$"):
            await host.executor.run("await tools.write({n: 1}); return await tools.write({n: 2})")
        assert (await host.executor.run("return 1")).value == 1  # the executor is none the worse for it
    [row] = store.runs("running")
    assert of_kind(store, row.id, Ended) == []
    async with Host(opened, tools.all(), store, ahead_s=HOUR) as host:
        run = await host.executor.load(row.id)
    assert run.result is not None
    assert tools.effects.times(f"{row.id}.1") == 1


async def test_a_lease_that_could_not_be_renewed_once_is_renewed_the_next_time(
    opened: Sandbox, tools: Tools, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL + 1, "sandbridge")
    tools.held = True
    renewals = 0
    renewed = anyio.Event()
    host = Host(opened, tools.all(), store)
    host.executor._keeper.lease_s = 0.03
    assert host.store is not None

    def fails_once(operation: str) -> None:
        nonlocal renewals
        if operation == "renew":
            renewals += 1
            if renewals == 1:
                raise StoreFailed("the database is locked")

    host.store.before = fails_once
    async with anyio.create_task_group() as tasks, host:
        host.executor._keeper.lease_s = 0.03
        run = await begun(host, "return await tools.write({n: 1})", tools, tasks)
        with anyio.fail_after(30):
            while renewals < 3:
                await anyio.lowlevel.checkpoint()
        renewed.set()
        tools.reply(f"{run.id}.1")
        await quiet(run, tools)
    assert run.result is not None
    assert run.result.value == "write 1"
