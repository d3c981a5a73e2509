"""Hosts side by side on one store: a run goes on in one of them, is over for all, and is read as it was written."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import anyio
import anyio.from_thread
import anyio.lowlevel
import msgspec
import pytest

from bridge import Answer, Approve, Deny, StateError, Tool, ToolContext
from bridge.journal import Ended, decode
from bridge.run import Run
from bridge.state import fold
from bridge.store import Store, StoreFailed
from sandbox import Sandbox
from tests.durable.world import ANY, HOUR, Effects, Host, Tools, assert_is_its_journal, in_flight, of_kind, quiet

pytestmark = pytest.mark.anyio

TWO = "const a = await tools.write({n: 1}); const b = await tools.gated({n: 2}); return [a, b]"


# ---- a host that lives on beside others ----------------------------------------------------------------------------


async def test_a_paused_run_that_another_host_took_and_died_with_is_taken_back_by_the_first(
    opened: Sandbox, tools: Tools, store: Store
) -> None:
    program = "const a = await tools.gated({n: 1}); return [a, await tools.write({n: 2}).catch(e => e.code)]"
    for hibernates in (0.0, HOUR):
        async with Host(opened, tools.all(), store, hibernate_after_s=hibernates) as first:
            run = await first.executor.start(program)
            other = Tools(tools.effects)
            async with anyio.create_task_group() as tasks:
                async with Host(opened, other.all(), store) as second:
                    taken = await second.executor.load(run.id)
                    other.held = True
                    tasks.start_soon(_resumed, taken, {f"{run.id}.1": Approve()})
                    other.reply(await in_flight(taken, other, 1))
                    await in_flight(taken, other, 2)
                    second.die()
                tasks.cancel_scope.cancel()
            assert first.store is not None
            first.store.ahead_s = HOUR
            with anyio.fail_after(30):
                await run.resume({})
            assert run.result is not None
            assert run.result.value == ["gated 1", "unknown_outcome"]
            assert [tools.effects.times(f"{run.id}.{number}") for number in (1, 2)] == [1, 1]
            assert_is_its_journal(run)


async def _resumed(run: Run, answers: dict[str, Any]) -> None:
    with suppress(StoreFailed, StateError):
        await run.resume(answers)


async def test_a_state_can_be_loaded_once_and_the_run_goes_on_in_one_host_only(
    opened: Sandbox, tools: Tools, store: Store
) -> None:
    async with Host(opened, tools.all(), store) as first, Host(opened, tools.all(), store) as second:
        run = await first.executor.start(TWO)
        state = run.dump()
        loaded = await second.executor.load(state)
        with pytest.raises(StateError, match=rf"^this state of run {run.id} was used already: each can be loaded "):
            await first.executor.load(state)
        await loaded.resume({f"{run.id}.2": Approve()})
        with pytest.raises(StateError, match=rf"^run {run.id} is finished \(completed\)$"):
            await run.resume({f"{run.id}.2": Deny("late")})
    assert loaded.result is not None
    assert loaded.result.value == ["write 1", "gated 2"]
    assert [row[3] for row in tools.effects.rows()] == [1, 2]


async def test_two_who_resume_the_same_run_at_once_resume_it_once(opened: Sandbox, tools: Tools, store: Store) -> None:
    async with Host(opened, tools.all(), store) as host:
        run = await host.executor.start(TWO)
        assert host.store is not None
        operations: list[str] = []
        host.store.before = operations.append
        tools.held = True
        said: list[str] = []

        async def resume() -> None:
            try:
                await run.resume({f"{run.id}.2": Approve()})
            except StateError as error:
                said.append(str(error))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(resume)
            tasks.start_soon(resume)
            with anyio.fail_after(60):
                while not said or run.status == "paused":
                    await anyio.lowlevel.checkpoint()
            await quiet(run, tools)
            assert said == [f"run {run.id} is running: only a paused run can be resumed"]
            assert "release" not in operations
            tools.reply(f"{run.id}.2")
        assert run.result is not None
        assert run.result.value == ["write 1", "gated 2"]
        assert operations.count("acquire") == operations.count("release") == 1
    assert [row[3] for row in tools.effects.rows()] == [1, 2]


# ---- cancelling ----------------------------------------------------------------------------------------------------


async def test_a_paused_run_that_is_cancelled_is_finished_everywhere(
    opened: Sandbox, tools: Tools, store: Store
) -> None:
    for hibernates in (0.0, HOUR):
        async with Host(opened, tools.all(), store, hibernate_after_s=hibernates) as host:
            run = await host.executor.start(TWO)
            while hibernates == 0 and run.seat.worker is not None:
                await anyio.lowlevel.checkpoint()
            await run.cancel()
            assert run.result is not None
            assert (run.result.status, store.row(run.id).status) == ("cancelled", "cancelled")
            assert host.executor._roster.runs == {}
            assert of_kind(store, run.id, Ended)[0].status == "cancelled"
        assert fold(decode(store.read(run.id))).ended is not None


@pytest.mark.parametrize("during", ["append", "release"])
async def test_a_run_that_is_cancelled_during_a_write_is_finished_everywhere(
    opened: Sandbox, tools: Tools, store: Store, during: str
) -> None:
    async with Host(opened, tools.all(), store) as host, anyio.create_task_group() as tasks:
        assert host.store is not None

        def cancel(operation: str) -> None:
            if operation == during:
                assert host.store is not None
                host.store.after = lambda operation: None
                [run] = host.executor._roster.runs.values()
                anyio.from_thread.run_sync(tasks.start_soon, run.cancel)
                anyio.from_thread.run(anyio.lowlevel.checkpoint)  # its driver is told

        host.store.after = cancel
        run = await host.executor.start(TWO)
        with anyio.fail_after(30):
            while run.status != "finished":
                await run.journal.change()
    assert run.result is not None
    assert (run.result.status, store.row(run.id).status) == ("cancelled", "cancelled")


async def test_a_verdict_that_comes_too_late_does_not_keep_the_run_from_going_on(
    opened: Sandbox, tools: Tools, store: Store
) -> None:
    for hibernates in (0.0, HOUR):
        async with Host(opened, tools.all(), store, hibernate_after_s=hibernates) as host:
            program = "try { return await tools.person({}) } catch (e) { return e.code }"
            run = await host.executor.start(program)
            while hibernates == 0 and run.seat.worker is not None:
                await anyio.lowlevel.checkpoint()
            run.people.waiting[f"{run.id}.1"].expires_at = 0.0  # as if the time had passed
            with pytest.raises(StateError, match=rf"^call {run.id}.1 has expired: the verdict came too late and was "):
                await run.resume({f"{run.id}.1": Answer(1)})
            with anyio.fail_after(30):
                while run.status != "finished":
                    await run.journal.change()
            assert run.result is not None
            assert run.result.value == "expired"


# ---- what is written is read ---------------------------------------------------------------------------------------

ODD = [
    pytest.param(msgspec.Raw(b'{\n  "a": [1,\r\n 2]\n}'), {"a": [1, 2]}, id="line-breaks-between-values"),
    pytest.param("a\nb\u2028c", "a\nb\u2028c", id="line-breaks-in-text"),
    pytest.param(2**70, str(2**70), id="an-integer-over-64-bits"),
    pytest.param("\ud800x", "\ufffdx", id="half-a-character"),
    pytest.param([[[[["deep"]]]]], [[[[["deep"]]]]], id="nested"),
    pytest.param(1e300, 1e300, id="a-large-number"),
]


@pytest.mark.parametrize(("reply", "seen"), ODD)
@pytest.mark.parametrize("kept", [True, False], ids=["store", "sealed"])
async def test_any_reply_survives_a_dump_and_a_load(
    opened: Sandbox, store: Store, kept: bool, reply: Any, seen: Any
) -> None:
    async def odd(arguments: Any, context: ToolContext) -> Any:
        return reply

    catalog = [Tool(name="odd", input_schema=ANY, handler=odd), Tool(name="person", input_schema=ANY)]
    program = "const a = await tools.odd({t: '\\ud800\\u0000\\n', n: 1e21, s: 9007199254740993n.toString()});"
    program += " await tools.person({'\\udfff': [-0, 1.5]}); return a // \ud800"
    async with Host(opened, catalog, store if kept else None) as host:
        state = (await host.executor.start(program, inputs={"half\ud800": "\n"})).dump()
    async with Host(opened, catalog, store if kept else None) as host:
        run = await host.executor.load(state)
        [call] = run.pending
        await run.resume({call.id: None})
        assert run.result is not None
        assert (run.result.value, run.result.error) == (seen, None)
        assert_is_its_journal(run)


async def test_the_effects_table_counts(effects: Effects) -> None:
    effects.take("write", {"n": 1}, ToolContext(run_id="r", call_id="r.1", idempotency_key="r.1"))
    assert (effects.times("r.1"), effects.times("r.2")) == (1, 0)
