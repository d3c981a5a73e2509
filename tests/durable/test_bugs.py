"""What hurt users of comparable software when runs paused, were approved, or ran side by side: one test each.

Those of shared/cases/bugs.jsonl that other files cover are not repeated: RES-01, RES-05 and RES-18 are test_crashes.py
and test_exactness.py; grants and verdicts have tests/bridge/test_approval.py and test_run.py.
"""

from __future__ import annotations

import gc
import random
from typing import Any

import anyio
import anyio.lowlevel
import msgspec
import pytest

from bridge import Answer, Approve, Deny, Edit, Policy, StateError, Tool, ToolContext, ToolError, ask
from bridge.journal import Began, decode, encode
from bridge.state import fold
from bridge.store import Store
from sandbox import Limits, Sandbox
from tests.durable.world import ANY, HOUR, POLICY, Host, Tools, assert_is_its_journal, fields

pytestmark = pytest.mark.anyio


# ---- side by side --------------------------------------------------------------------------------------------------


async def test_a_hundred_runs_at_once_all_finish(opened: Sandbox, tools: Tools) -> None:  # ENG-19
    values: dict[int, Any] = {}
    async with Host(opened, tools.all(), None) as host:

        async def run(n: int) -> None:
            values[n] = (await host.executor.run(f"return (await tools.echo({{n: {n}}})).n")).value

        async with anyio.create_task_group() as tasks:
            for n in range(100):
                tasks.start_soon(run, n)
        assert host.executor._roster.runs == {}
    assert values == {n: n for n in range(100)}


async def test_calls_in_transit_when_the_program_ends_all_have_an_end(opened: Sandbox, tools: Tools) -> None:  # ENG-20
    chance = random.Random(20)

    async def slow(arguments: Any, context: ToolContext) -> Any:
        for _ in range(chance.randrange(6)):
            await anyio.lowlevel.checkpoint()
        return arguments

    catalog = [Tool(name="slow", input_schema=ANY, handler=slow)]
    async with Host(opened, catalog, None) as host:
        for _ in range(10):
            result = await host.executor.run("for (let i = 0; i < 50; i++) tools.slow({i}); return 1")
            assert (result.status, result.value) == ("completed", 1)
            assert {call.outcome for call in result.calls} <= {"completed", "cancelled", "not_started"}
            assert len(result.calls) == 50


async def test_when_one_of_several_calls_fails_the_end_of_the_others_is_known(opened: Sandbox, tools: Tools) -> None:
    # CON-03
    async with Host(opened, tools.all(), None) as host:
        result = await host.executor.run(
            "await Promise.all([tools.fail({n: 1}), tools.write({n: 2}), tools.write({n: 3})])"
        )
    assert result.status == "failed"
    assert [call.outcome for call in result.calls] == ["failed", "completed", "completed"]
    assert len(tools.effects.rows()) == 3


# ---- pauses --------------------------------------------------------------------------------------------------------


async def test_the_same_state_loaded_twice_gives_two_runs_that_know_nothing_of_each_other(
    opened: Sandbox, tools: Tools
) -> None:  # RES-07
    async with Host(opened, tools.all(), None) as host:
        state = (await host.executor.start("return await tools.gated({n: 1}).catch(e => e.code)")).dump()
        one, other = await host.executor.load(state), await host.executor.load(state)
        gc.collect()
        [first], [second] = one.approvals, other.approvals
        assert first.id == second.id
        await one.resume({first.id: Approve()})
        gc.collect()
        await other.resume({second.id: Deny()})
    assert one.result is not None
    assert other.result is not None
    assert (one.result.value, other.result.value) == ("gated 1", "denied")


async def test_of_two_who_load_the_same_state_from_a_store_one_wins(
    opened: Sandbox, tools: Tools, store: Store
) -> None:  # RES-07
    async with Host(opened, tools.all(), store) as first, Host(opened, tools.all(), store) as second:
        state = (await first.executor.start("return await tools.gated({n: 1})")).dump()
        won: list[Any] = []
        said: list[str] = []

        async def load(host: Host) -> None:
            try:
                won.append(await host.executor.load(state))
            except StateError as error:
                said.append(str(error))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(load, first)
            tasks.start_soon(load, second)
    assert (len(won), len(said)) == (1, 1)
    assert said[0].endswith("was used already: each can be loaded once")


async def test_a_state_with_everything_set_survives_its_round_trip(opened: Sandbox, tools: Tools) -> None:  # RES-08
    program = """\
text('a'); console.warn('b'); const t = sleep(1);
const seen = await Promise.allSettled([tools.write({n: 1}), tools.fail({n: 2}), tools.gated({n: 3}), tools.write(7)]);
await t; return [seen.length, await tools.person({n: 4}), await tools.both({n: 5})]"""
    async with Host(opened, tools.all(), None) as host:
        run = await host.executor.start(program, inputs={"a": [1, None]}, seed=7, limits=Limits(calls=50))
        await run.resume({run.approvals[0].id: Edit({"n": 33})})
        assert_is_its_journal(run)
        lines = [encode(record) for record in run.journal.records]
        later = [line[:-1] + b',"what_a_newer_version_adds":{"x":1}}' for line in lines]
        assert fields(fold(decode(later))) == fields(run.state)
        loaded = await host.executor.load(run.dump())
        assert [call.id for call in loaded.pending] == [call.id for call in run.pending]
    with pytest.raises(StateError, match=r"^record 3 of the journal cannot be read: Invalid value 'dreamt'"):
        decode([*lines[:2], b'{"type":"dreamt"}'])
    newer = lines[0].replace(b'"version":1', b'"version":9')
    with pytest.raises(StateError, match=r"^the journal has version 9 and was written by a newer Sandbridge; this "):
        decode([newer])


async def test_policy_is_asked_once_for_each_call_whatever_becomes_of_the_run(
    opened: Sandbox, tools: Tools, store: Store
) -> None:  # RES-10
    asked: list[Any] = []

    def flips(arguments: Any) -> bool:
        asked.append(arguments["n"])
        return asked.count(arguments["n"]) == 1

    policy = Policy([ask("write", when=flips)])
    program = "await tools.write({n: 1}); return await tools.write({n: 2})"
    async with Host(opened, tools.all(), store, policy=policy, hibernate_after_s=0.0) as host:
        run = await host.executor.start(program)
        await run.resume({run.approvals[0].id: Approve()})
        state = run.dump()
    async with Host(opened, tools.all(), store, policy=policy) as host:
        run = await host.executor.load(state)
        await run.resume({run.approvals[0].id: Approve()})
    assert run.result is not None
    assert (run.result.value, asked) == ("write 2", [1, 2])


async def test_parallel_calls_take_different_verdicts_one_after_the_other_in_any_order(
    opened: Sandbox, tools: Tools
) -> None:  # RES-11, RES-12
    program = """\
const all = await Promise.allSettled([1, 2, 3, 4, 5].map(n => tools.gated({n})));
return all.map(one => one.value ?? [one.reason.code, one.reason.message])"""
    async with Host(opened, tools.all(), None) as host:
        run = await host.executor.start(program)
        ids = [request.id for request in run.approvals]
        assert ids == [f"{run.id}.{number}" for number in range(1, 6)]
        for index, verdict in ((3, Answer("given")), (1, Deny("no")), (4, ToolError("BAD", "bad"))):
            await run.resume({ids[index]: verdict})
            assert run.status == "paused"
            run = await host.executor.load(run.dump())
        with pytest.raises(StateError, match=rf"^edited arguments of call {ids[2]} do not fit: "):
            await run.resume({ids[0]: Approve(), ids[2]: Edit(["no object"])})
        assert (run.status, len(run.approvals)) == ("paused", 2)
        await run.resume({ids[2]: Edit({"n": 33}), ids[0]: Approve()})
    assert run.result is not None
    denied = ["denied", "gated was denied: no"]
    assert run.result.value == ["gated 1", denied, "gated 33", "given", ["BAD", "bad"]]
    assert sorted(row[3] for row in tools.effects.rows()) == [1, 33]
    assert run.result.calls[2].arguments == {"n": 33}


async def test_a_pause_of_thirty_days_holds_no_process(opened: Sandbox, tools: Tools, store: Store) -> None:  # RES-13
    month = 30 * 24 * HOUR
    async with Host(opened, tools.all(), store, hibernate_after_s=0.0, limits=Limits(expires_s=month)) as host:
        run = await host.executor.start("return await tools.gated({n: 1})")
        while run.seat.worker is not None:
            await anyio.lowlevel.checkpoint()
        assert not opened.resting
        [row] = store.runs("paused")
        assert (row.lease_owner, round((row.expires_at or 0) - row.created)) == (None, month)


async def test_where_workers_are_scarce_a_resume_waits_its_turn_and_is_not_lost(tools: Tools) -> None:  # RES-14
    tools.held = True
    limits = Limits(cpu_s=5, wall_s=60, memory_bytes=64 << 20)
    sandbox = Sandbox(limits=limits, max_waiting=2, spares=0)
    async with sandbox, Host(sandbox, tools.all(), None, hibernate_after_s=0.0) as host:
        paused = [await host.executor.start("return await tools.person({})") for _ in range(4)]
        async with anyio.create_task_group() as tasks:
            for _ in range(2):
                tasks.start_soon(host.executor.run, "return await tools.write({n: 1})")
            while len(tools.in_flight) < 2:
                await anyio.lowlevel.checkpoint()
            for run in paused:
                tasks.start_soon(run.resume, {run.pending[0].id: Answer("back")})
            for call_id in list(tools.in_flight):
                tools.reply(call_id)
    assert [run.result.value if run.result else run.fault for run in paused] == ["back"] * 4


# ---- what was done is not done again -------------------------------------------------------------------------------


async def test_a_corrected_program_repeats_none_of_the_forty_effects_before_its_failure(
    opened: Sandbox, tools: Tools, store: Store
) -> None:  # RES-16
    forty = "for (let n = 0; n < 40; n++) await tools.write({n});"
    async with Host(opened, tools.all(), store) as host:
        failed = await host.executor.run(f"{forty} null.x")
        assert failed.status == "failed"
        assert sum(call.outcome == "completed" for call in failed.calls) == 40
        mended = await host.executor.run(f"{forty} return await tools.write({{n: 40}})", reuse=failed.run_id)
    assert mended.value == "write 40"
    assert [row[3] for row in tools.effects.rows()] == list(range(41))
    assert sum(call.reused for call in mended.calls) == 40


# ---- approval ------------------------------------------------------------------------------------------------------

LONG = "x" * 512
OTHERS = [
    pytest.param({"c": f"{LONG} rm -rf"}, id="another tail"),
    pytest.param({"c": f"{LONG} ok", "d": None}, id="one field more"),
    pytest.param({"c": [f"{LONG} ok"]}, id="in a list"),
    pytest.param({"c": f"{LONG} ok\0"}, id="a NUL at its end"),
    pytest.param({}, id="nothing"),
]


@pytest.mark.parametrize("other", OTHERS)
async def test_an_approval_of_long_arguments_lets_no_others_through(
    opened: Sandbox, tools: Tools, other: Any
) -> None:  # APR-02
    async with Host(opened, tools.all(), None) as host:
        given = {"c": f"{LONG} ok"}
        run = await host.executor.start("for (const one of inputs) await tools.gated(one)", inputs=[given, other])
        [request] = run.approvals
        assert request.arguments == given  # whole: nothing that is approved is hidden
        await run.resume({request.id: Approve()})
        [request] = run.approvals
        assert (run.status, request.arguments) == ("paused", other)


async def test_a_tool_that_changed_between_pause_and_resume_is_asked_about_again(
    opened: Sandbox, tools: Tools, store: Store
) -> None:  # APR-05
    def catalog(description: str, schema: dict[str, Any]) -> list[Tool]:
        [gated] = [tool for tool in tools.all() if tool.name == "gated"]
        changed = Tool(name="gated", description=description, input_schema=schema, handler=gated.handler)
        return [changed, *(tool for tool in tools.all() if tool.name != "gated")]

    first = {"type": "object", "properties": {"n": {"type": "integer"}, "a": {}}}
    reordered = {"properties": {"a": {}, "n": {"type": "integer"}}, "type": "object"}
    async with Host(opened, catalog("Pays.", first), store) as host:
        run = await host.executor.start("return await tools.gated({n: 1})")
    async with Host(opened, catalog("Pays.", reordered), store) as host:
        run = await host.executor.load(run.id)
        assert [request.definition_changed for request in run.approvals] == [False]
    async with Host(opened, catalog("Pays twice.", first), store) as host:
        run = await host.executor.load(run.id)
        assert [request.definition_changed for request in run.approvals] == [True]
        await run.resume({run.approvals[0].id: Approve()})
    assert run.result is not None
    assert (run.result.value, len(tools.effects.rows())) == ("gated 1", 1)


async def test_an_approver_that_never_answers_lets_the_call_expire(opened: Sandbox, tools: Tools) -> None:  # APR-13
    async def never(requests: list[Any]) -> dict[str, Any]:
        await anyio.sleep_forever()
        return {}

    async with Host(opened, tools.all(), None, approver=never) as host:
        result = await host.executor.run(
            "return await tools.gated({n: 1}).catch(e => e.code)", limits=Limits(expires_s=0.05)
        )
    assert (result.value, tools.effects.rows()) == ("expired", [])


async def test_a_denial_stands_in_what_the_model_reads_whatever_the_program_says(
    opened: Sandbox, tools: Tools
) -> None:  # APR-15
    async with Host(opened, tools.all(), None, policy=POLICY) as host:
        run = await host.executor.start("await tools.gated({n: 1}).catch(() => 0); return 'sent'")
        await run.resume({run.approvals[0].id: Deny("use staging")})
    assert run.result is not None
    assert run.result.value == "sent"
    assert [line for line in run.result.text.splitlines() if "use staging" in line and line.startswith("[sandbridge]")]


async def test_a_journal_names_what_it_began_with(opened: Sandbox, tools: Tools) -> None:  # RES-08
    async with Host(opened, tools.all(), None) as host:
        run = await host.executor.start("return 1", inputs=[1], seed=3)
    began = run.journal.records[0]
    assert isinstance(began, Began)
    assert (began.seed, msgspec.json.decode(began.inputs), began.engine) == (3, [1], opened.engine_digest)
    assert [tool.name for tool in began.tools] == [tool.name for tool in tools.all()]
