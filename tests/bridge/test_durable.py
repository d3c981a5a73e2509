"""A paused run goes on elsewhere, once, with what it had; a state is good for its own executors only."""

from __future__ import annotations

import dataclasses
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from bridge import Approve, ConfigurationError, Executor, Policy, StateError, Tool, ask
from bridge import keeping as keeping_module
from bridge.events import ApprovalAsked, CallStarted, Event
from bridge.journal import decode, encode
from bridge.state import fold
from sandbox import Limits, Sandbox, Worker
from tests.bridge.scripted import Tools

pytestmark = pytest.mark.anyio

KEY, OTHER = b"k" * 32, b"o" * 32
PROGRAM = """\
const before = [Date.now(), Math.random(), crypto.randomUUID()];
text("one");
const wrote = await tools.write({ n: 1 });
const said = await tools.person({ n: 2 });
return { before, after: [Math.random()], wrote, said };"""
Make = Callable[..., Executor]


@pytest.fixture(scope="module", params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(params=["key", "sqlite", "key, asleep"])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    """How an executor keeps its runs."""
    if request.param == "key":
        return {"key": KEY}
    if request.param == "sqlite":
        return {"store": f"sqlite:///{tmp_path / 'runs.db'}"}
    return {"key": KEY, "hibernate_after_s": 0}


@pytest.fixture
async def make(tools: Tools, opened: Sandbox) -> Make:
    def executor(**options: Any) -> Executor:
        policy = options.pop("policy", Policy([ask("write")]))
        return Executor(options.pop("tools", tools.all()), sandbox=opened, policy=policy, **options)

    return executor


async def paused_on_write(executor: Executor) -> Any:
    run = await executor.start(PROGRAM)
    assert [request.tool for request in run.approvals] == ["write"]
    return run


# ---- going on


async def test_a_run_goes_on_in_another_executor_as_if_nothing_had_happened(
    make: Make, tools: Tools, kept: dict[str, Any]
) -> None:
    async with make(**kept) as first:
        state = (await paused_on_write(first)).dump()
    async with make(**kept) as second:
        run = await second.load(state)
        assert (run.status, run.state.output.emitted) == ("paused", ["one"])
        await run.resume({run.approvals[0].id: Approve()})
        state = run.dump()
    async with make(**kept) as third:
        run = await third.load(state)
        await run.resume({run.pending[0].id: "yes"})
    assert run.result is not None
    assert (run.result.status, run.result.value["said"], tools.reached) == ("completed", "yes", [{"n": 1}])
    async with make(policy=Policy(), **kept) as fourth:
        began = run.state.began
        again = await fourth.start(PROGRAM, seed=began.seed)
        await again.resume({again.pending[0].id: "yes"})
    assert again.result is not None
    assert again.result.value["before"][1:] == run.result.value["before"][1:]
    assert again.result.value["after"] == run.result.value["after"]


async def test_a_sleeping_run_has_no_worker_and_goes_on_in_a_new_one(make: Make, opened: Sandbox) -> None:
    async with make(hibernate_after_s=0) as executor:
        run = await paused_on_write(executor)
        await fast_asleep(run)
        assert not opened.resting
        await run.resume({run.approvals[0].id: Approve()})
        await run.resume({run.pending[0].id: None})
    assert run.result is not None
    assert run.result.status == "completed"


async def test_what_is_driven_says_the_same_as_what_its_journal_is_read_to_say(
    make: Make, kept: dict[str, Any]
) -> None:
    async with make(**kept) as executor:
        run = await paused_on_write(executor)
        await run.resume({run.approvals[0].id: Approve()})
        await run.resume({run.pending[0].id: {"deep": [1, None]}})
    again = fold(decode([encode(record) for record in run.journal.records]))
    assert plain(again) == plain(run.state)


async def test_a_worker_that_is_killed_between_two_waves_is_replaced_and_nobody_notices(
    make: Make, tools: Tools
) -> None:
    async with make(policy=Policy()) as executor:
        killed: list[int] = []

        def kill(event: Event) -> None:
            if isinstance(event, CallStarted) and not tools.reached:
                worker = executor._roster.runs[event.run_id].seat.worker
                assert isinstance(worker, Worker)
                killed.append(worker.pid)
                os.kill(worker.pid, signal.SIGKILL)

        result = await executor.run("const a = await tools.write({n: 1}); return [a, Math.random()]", on_event=kill)
        assert (result.status, len(killed), tools.reached) == ("completed", 1, [{"n": 1}])


# ---- states


async def test_a_state_of_a_store_can_be_used_once(make: Make, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'runs.db'}"
    async with make(store=store) as executor:
        state = (await paused_on_write(executor)).dump()
        await executor.load(state)
        with pytest.raises(StateError, match="used already"):
            await executor.load(state)


async def test_two_loads_of_a_sealed_state_are_two_runs_that_do_not_touch_each_other(make: Make, tools: Tools) -> None:
    async with make(key=KEY) as executor:
        state = (await paused_on_write(executor)).dump()
        first, second = await executor.load(state), await executor.load(state)
        await first.resume({first.approvals[0].id: Approve()})
        assert [request.tool for request in second.approvals] == ["write"]
        assert (len(first.pending), len(second.pending), len(tools.reached)) == (1, 0, 1)


@pytest.mark.parametrize("place", [20, -60, -3])
async def test_a_state_that_was_changed_is_refused(make: Make, place: int) -> None:
    async with make(key=KEY) as executor:
        state = (await paused_on_write(executor)).dump()
        other = "A" if state[place] != "A" else "B"
        place %= len(state)
        with pytest.raises(StateError, match=r"not signed with a key of this executor|damaged"):
            await executor.load(state[:place] + other + state[place + 1 :])


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"key": OTHER}, "not signed with a key"),
        ({"key": KEY, "audience": "billing"}, "for 'sandbridge', and this executor is 'billing'"),
        ({}, "give the executor the same key="),
    ],
)
async def test_a_state_is_good_for_its_own_executors_only(make: Make, options: dict[str, Any], reason: str) -> None:
    async with make(key=KEY) as executor:
        state = (await paused_on_write(executor)).dump()
    async with make(**options) as other:
        with pytest.raises(StateError, match=reason):
            await other.load(state)


async def test_a_key_is_rotated_by_naming_the_new_one_first(make: Make) -> None:
    async with make(key=KEY) as executor:
        state = (await paused_on_write(executor)).dump()
    async with make(key=[OTHER, KEY]) as both:
        state = (await both.load(state)).dump()
    async with make(key=OTHER) as new:
        assert (await new.load(state)).status == "paused"


async def test_without_key_and_store_nothing_can_be_dumped(make: Make) -> None:
    async with make() as executor:
        with pytest.raises(StateError, match=r"give the executor a key= \(or a store=\)"):
            (await paused_on_write(executor)).dump()


@pytest.mark.parametrize(
    "text", ["", "nonsense", "sbstate1", "sbstate1.", "sbstate1.AA.BB", "sbrun1.x.y", "\x00", "é.é"]
)
async def test_what_is_no_state_is_refused_with_words(make: Make, text: str, kept: dict[str, Any]) -> None:
    async with make(**kept) as executor:
        with pytest.raises(StateError):
            await executor.load(text)


async def test_a_state_that_nobody_waits_for_any_more_is_refused(
    make: Make, kept: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with make(**kept) as executor:
        run = await paused_on_write(executor)
        state, late = run.dump(), max(call.expires_at for call in run.state.waiting.values()) + 1
        monkeypatch.setattr(keeping_module.time, "time", lambda: late)
        with pytest.raises(StateError, match="has expired: nobody answered in time"):
            await executor.load(state)
        monkeypatch.undo()


async def test_a_finished_run_cannot_be_loaded(make: Make, tmp_path: Path) -> None:
    async with make(store=f"sqlite:///{tmp_path / 'runs.db'}", policy=Policy()) as executor:
        result = await executor.run("return 1")
        with pytest.raises(StateError, match=rf"{result.run_id} is completed|finished"):
            await executor.load(result.run_id)


def test_a_key_that_can_be_guessed_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="at least 16 bytes"):
        Executor([], key=b"short")


async def test_a_journal_of_another_version_is_refused_with_words(make: Make) -> None:
    async with make() as executor:
        lines = [encode(record) for record in (await paused_on_write(executor)).journal.records]
    with pytest.raises(StateError, match=r"version 2 and was written by a newer Sandbridge; this one reads 1"):
        decode([lines[0].replace(b'"version":1', b'"version":2'), *lines[1:]])
    with pytest.raises(StateError, match="no journal of a run"):
        decode([b"[]"])
    with pytest.raises(StateError, match="record 2 of the journal stands at the wrong place: Began"):
        decode([lines[0], lines[0]])
    with pytest.raises(StateError, match="record 2 of the journal cannot be read"):
        decode([lines[0], b'{"type":"later"}'])


async def test_a_dump_of_a_run_with_a_hundred_small_calls_is_small(make: Make) -> None:
    program = "for (let n = 0; n < 100; n++) await tools.write({ n }); return await tools.person({})"
    async with make(key=KEY, policy=Policy()) as executor:
        assert len((await executor.start(program)).dump()) < 64 << 10


# ---- tools that changed meanwhile


def other_write(tools: Tools) -> list[Tool]:
    return [
        dataclasses.replace(tool, description="something else now") if tool.name == "write" else tool
        for tool in tools.all()
    ]


async def test_a_call_whose_tool_was_changed_meanwhile_is_asked_about_again(
    make: Make, tools: Tools, kept: dict[str, Any]
) -> None:
    async with make(**kept) as first:
        state = (await paused_on_write(first)).dump()
    async with make(tools=other_write(tools), **kept) as second:
        run = await second.load(state)
        [request] = run.approvals
        assert request.definition_changed
        await run.resume({request.id: Approve()})
        assert tools.reached == [{"n": 1}]


async def test_a_change_of_other_tools_asks_nobody_again(make: Make, tools: Tools, kept: dict[str, Any]) -> None:
    others = [
        dataclasses.replace(tool, description="something else now") if tool.name == "big" else tool
        for tool in tools.all()
        if tool.name != "boom"
    ]
    async with make(**kept) as first:
        state = (await paused_on_write(first)).dump()
    async with make(tools=others, **kept) as second:
        run = await second.load(state)
        assert not run.approvals[0].definition_changed


async def test_a_run_whose_tools_are_not_here_stays_as_it_was(make: Make, tools: Tools, kept: dict[str, Any]) -> None:
    async with make(**kept) as first:
        state = (await paused_on_write(first)).dump()
    without = [tool for tool in tools.all() if tool.name != "write"]
    async with make(tools=without, policy=Policy(), **kept) as second:
        with pytest.raises(
            StateError, match=r"has calls of write, which are not offered here\. Nothing of it was changed"
        ):
            await second.load(state)
    async with make(**kept) as third:
        run = await third.load(state)
        assert [request.tool for request in run.approvals] == ["write"]


async def test_a_load_by_id_that_fails_leaves_the_state_that_was_dumped_good(
    make: Make, tools: Tools, tmp_path: Path
) -> None:
    store = f"sqlite:///{tmp_path / 'runs.db'}"
    async with make(store=store) as first:
        run = await paused_on_write(first)
        state = run.dump()
    async with make(tools=[], policy=Policy(), store=store) as second:
        with pytest.raises(StateError, match=r"which are not offered here"):
            await second.load(run.id)
    async with make(store=store) as third:
        assert (await third.load(state)).status == "paused"
        with pytest.raises(StateError, match=r"was used already: each can be loaded once"):
            await third.load(state)


async def test_a_run_that_is_resumed_just_when_its_call_expires_is_driven_once(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with make(store=f"sqlite:///{tmp_path / 'runs.db'}", hibernate_after_s=0) as first:
        run_id = (await paused_on_write(first)).id
    async with make(store=f"sqlite:///{tmp_path / 'runs.db'}", hibernate_after_s=0) as executor:
        run = await executor.load(run_id)
        driven: list[str] = []
        spawn = run._around.spawn
        object.__setattr__(
            run, "_around", dataclasses.replace(run._around, spawn=lambda it: (driven.append(it.id), spawn(it)))
        )
        async with anyio.create_task_group() as tasks, run._taking:  # both wait for their turn, in this order
            tasks.start_soon(run.resume, {run.approvals[0].id: Approve()})
            await anyio.wait_all_tasks_blocked()
            tasks.start_soon(run.expire_asleep)
            await anyio.wait_all_tasks_blocked()
        assert driven == [run_id]


# ---- edit and continue


async def test_a_corrected_program_repeats_no_effect(make: Make, tools: Tools) -> None:
    async with make(policy=Policy()) as executor:
        program = "for (const n of [1, 2, 2, 3]) await tools.write({ n });"
        failed = await executor.run(program + "\nthrow new Error('typo')")
        assert "4 completed calls can be reused" in failed.text
        result = await executor.run(program + "\nawait tools.write({ n: 4 }); return 'ok'", reuse=failed.run_id)
    assert [row.reused for row in result.calls] == [True, True, True, True, False]
    assert tools.reached == [{"n": n} for n in (1, 2, 2, 3, 4)]
    [notice] = [notice for notice in result.warnings if notice.code == "reused_calls"]
    assert notice.message == f"4 call(s) took over their replies from run {failed.run_id}; 1 executed now (write)"


async def test_nobody_is_asked_about_a_call_that_is_taken_over(make: Make, tools: Tools) -> None:
    seen: list[Event] = []
    async with make() as executor:
        first = await paused_on_write(executor)
        await first.resume({first.approvals[0].id: Approve()})
        await first.resume({first.pending[0].id: "yes"})
        again = await executor.start(PROGRAM, reuse=first.id, seed=first.state.began.seed, on_event=seen.append)
    assert again.result is not None
    assert (again.result.status, tools.reached) == ("completed", [{"n": 1}])
    assert [row.reused for row in again.result.calls] == [True, True]
    assert not [event for event in seen if isinstance(event, ApprovalAsked)]


async def test_each_earlier_call_is_taken_over_once_and_a_volatile_tool_never(make: Make, tools: Tools) -> None:
    volatile = [dataclasses.replace(tool, volatile=True) if tool.name == "big" else tool for tool in tools.all()]
    async with make(tools=volatile, policy=Policy()) as executor:
        first = await executor.run("await tools.write({ n: 1 }); await tools.big({ n: 1 })")
        program = "await tools.write({ n: 1 }); await tools.write({ n: 1 }); await tools.big({ n: 1 })"
        second = await executor.run(program, reuse=first.run_id)
    assert [row.reused for row in second.calls] == [True, False, False]


async def test_a_run_that_nobody_knows_cannot_be_reused(make: Make) -> None:
    async with make() as executor:
        with pytest.raises(StateError, match="no run nothing is known here"):
            await executor.run("return 1", reuse="nothing")


# ---- expiry


async def test_a_sleeping_run_whose_approval_expires_goes_on_by_itself(make: Make, tools: Tools) -> None:
    async with make(hibernate_after_s=0) as executor:
        run = await executor.start(
            "try { await tools.write({ n: 1 }) } catch (e) { return e.code }", limits=Limits(expires_s=0.2)
        )
        while run.status != "finished":
            await run.journal.change()
    assert run.result is not None
    assert (run.result.value, tools.reached) == ("expired", [])


# ---- helpers


async def fast_asleep(run: Any) -> None:
    while run.seat.worker is not None:
        await anyio.lowlevel.checkpoint()


def plain(state: Any) -> dict[str, Any]:
    """All that is known of a run, without the tools of this process."""
    known = {name: value for name, value in vars(state).items() if name not in ("calls", "waiting", "levels")}
    known["output"] = vars(state.output)
    known["calls"] = [
        {name: getattr(call, name) for name in call.__slots__ if name != "entry"} for call in state.calls.values()
    ]
    known["waiting"] = list(state.waiting)
    known["levels"] = state.levels.of
    return known
