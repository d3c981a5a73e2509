"""Replay does again what was done, frame by frame, in any worker; and says what differs where it does not."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import anyio
import msgspec
import pytest

from bridge import Answer, Approve, Diverged, EngineChanged
from bridge.journal import Began, Delivered, Record, Waved, decode, encode
from bridge.replay import replay
from bridge.run import Run
from bridge.state import fold
from bridge.store import Store
from sandbox import Limits, Sandbox
from tests.durable.world import HOUR, KEY, Effects, Host, Tools, assert_is_its_journal, quiet

pytestmark = pytest.mark.anyio


async def finished(run: Run) -> Run:
    """Approve and answer until it is over."""
    while run.status == "paused":
        answers: dict[str, Any] = {request.id: Approve() for request in run.approvals}
        await run.resume(answers | {call.id: Answer(call.arguments) for call in run.pending})
    return run


async def assert_replays(opened: Sandbox, run: Run) -> None:
    """From its journal as bytes, in another worker: the same waves, byte for byte."""
    assert_is_its_journal(run)
    state = fold(decode([encode(record) for record in run.journal.records]))
    waves = await replay(opened, state)
    assert [msgspec.json.encode(wave) for wave in waves] == [msgspec.json.encode(wave) for wave in run.state.waves]


EXACT = {
    "chance and time": """
        const seen = [];
        for (let i = 0; i < 3; i++) {
          seen.push([Math.random(), Date.now(), new Date().getTimezoneOffset(), crypto.randomUUID()]);
          await tools.write({n: i, seen});
        }
        return seen""",
    "sorting by chance": """
        const many = Array.from({length: 30}, (_, i) => i).sort(() => Math.random() - 0.5);
        await tools.write({n: 1, many}); return many""",
    "timers": """
        const order = [];
        const later = (name, ms) => sleep(ms).then(() => order.push(name));
        const cleared = setTimeout(() => order.push('never'), 2);
        const written = tools.write({n: 1}).then(() => order.push('w'));
        await Promise.all([later('c', 3), later('a', 1), later('b', 2), written]);
        clearTimeout(cleared);
        await tools.write({n: 2, order}); return order""",
    "a race": "const one = n => tools.write({n}); return await Promise.race([one(1), one(2), one(3), sleep(1)])",
    "any": "return await Promise.any([tools.fail({n: 1}), tools.write({n: 2}), tools.write({n: 3})])",
    "errors": """
        const seen = [];
        for (const call of [tools.fail({n: 1}), tools.write(7), tools.write({n: 3})])
          seen.push(await call.catch(error => [error.code, error.message, error.details]));
        await tools.write({n: 4, seen}); return seen""",
    "calls that nobody awaits": "tools.write({n: 1}); tools.fail({n: 2}).catch(() => 0); await tools.write({n: 3})",
    "parallel approvals": "return await Promise.all([1, 2, 3].map(n => tools.gated({n})))",
    "people and tools": "return await Promise.all([tools.person({n: 1}), tools.write({n: 2}), tools.both({n: 3})])",
    "text and logs": "text('a'); console.log('b', {c: 1}); await tools.write({n: 1}); text({d: 2}); console.warn('e')",
    "a program that throws": "await tools.write({n: 1}); null.x",
    "a program that does not parse": "await tools.write({n: 1",
    "many waves": "let sum = 0; for (let n = 0; n < 300; n++) sum += (await tools.echo({n})).n; return sum",
}


@pytest.mark.parametrize("program", [pytest.param(text, id=name) for name, text in EXACT.items()])
async def test_a_run_replays_byte_for_byte(opened: Sandbox, tools: Tools, program: str) -> None:
    async with Host(opened, tools.all(), None) as host:
        run = await finished(await host.executor.start(program))
        before = len(tools.effects.rows())
        await assert_replays(opened, run)
    assert len(tools.effects.rows()) == before


@pytest.mark.parametrize("program", [EXACT[name] for name in ("chance and time", "any", "timers")])
async def test_a_run_replays_in_another_zygote(opened: Sandbox, tools: Tools, program: str) -> None:
    async with Host(opened, tools.all(), None) as host:
        run = await finished(await host.executor.start(program))
    async with Sandbox(limits=opened.limits) as other:
        await assert_replays(other, run)


@pytest.mark.parametrize("order", [(2, 1, 3), (3, 2, 1), (2, 3, 1)])
async def test_the_winner_of_a_race_is_the_recorded_one_whatever_the_batch(
    opened: Sandbox, tools: Tools, order: tuple[int, ...]
) -> None:
    program = """
        const won = []; const one = n => tools.write({n}).then(value => (won.push(n), value));
        const first = await Promise.race([one(1), one(2), one(3)]);
        await tools.person({n: 4}); return [first, won]"""
    tools.held = True
    async with Host(opened, tools.all(), None) as host, anyio.create_task_group() as tasks:
        began = anyio.Event()
        tasks.start_soon(lambda: host.executor.start(program, on_event=lambda event: began.set()))
        await began.wait()
        [run] = host.executor._roster.runs.values()
        await quiet(run, tools)
        for number in order:  # together: one frame takes what came back meanwhile
            tools.reply(f"{run.id}.{number}")
        while run.status == "running":
            await run.journal.change()
        state = run.dump()
        tools.held = False
        async with Host(opened, tools.all(), None) as other:
            loaded = await other.executor.load(state)
            for each in (loaded, run):
                await each.resume({f"{run.id}.4": Answer(0)})
        assert run.result is not None
        assert loaded.result is not None
        told = [number for record in run.state.deliveries for number in record.ids][:3]
        assert sorted(told) == [1, 2, 3]
        assert run.result.value == loaded.result.value == [f"write {told[0]}", told]
        await assert_replays(opened, loaded)


async def test_waves_and_deliveries_that_were_split_replay_split(tools: Tools) -> None:
    sizes = "source_bytes argument_bytes reply_bytes value_bytes output_bytes log_bytes".split()
    small = Limits(frame_bytes=4096, **dict.fromkeys(sizes, 1024))
    program = """
        const all = await Promise.all(Array.from({length: 40}, (_, n) => tools.echo({n, pad: 'x'.repeat(500)})));
        await tools.person({n: 1}); return all.reduce((sum, one) => sum + one.n, 0)"""
    async with Sandbox(limits=small) as sandbox, Host(sandbox, tools.all(), None, limits=small) as host:
        run = await host.executor.start(program)
        assert sum(wave.more for wave in run.state.waves) > 3
        state = run.dump()
        async with Host(sandbox, tools.all(), None, limits=small) as other:
            loaded = await finished(await other.executor.load(state))
        assert loaded.result is not None
        assert loaded.result.value == 780
        await assert_replays(sandbox, loaded)


# ---- differences ---------------------------------------------------------------------------------------------------

PROGRAM = """\
const a = await tools.write({n: 1});
await sleep(1);
const b = await tools.gated({n: 2, a});
return [a, b]"""


def altered(lines: list[bytes], change: Callable[[dict[str, Any], int], None]) -> list[bytes]:
    """A journal that somebody has changed by hand: `change` gets each wave and its number."""
    made: list[bytes] = []
    number = 0
    for line in lines:
        data = json.loads(line)
        if data["type"] == "wave":
            change(data["wave"], number)
            number += 1
        made.append(json.dumps(data).encode())
    return made


def _tool(wave: dict[str, Any], number: int) -> None:
    for call in wave["calls"] if number == 0 else ():
        call["tool"] = "again"


def _arguments(wave: dict[str, Any], number: int) -> None:
    for call in wave["calls"] if number == 0 else ():
        call["arguments"] = [{"n": 9}]


def _id(wave: dict[str, Any], number: int) -> None:
    for call in wave["calls"] if number == 2 else ():
        call["id"] += 1


def _timer(wave: dict[str, Any], number: int) -> None:
    for timer in wave["timers"] if number == 1 else ():
        timer["ms"] = 5


def _number(wave: dict[str, Any], number: int) -> None:
    if number == 1:
        wave["timers"] = []


def _end(wave: dict[str, Any], number: int) -> None:
    if number == 3:
        wave["end"]["value"] = ["other"]


A = "write 1"
DIFFERENCES: dict[str, tuple[Any, int, str, str, int]] = {
    "the tool": (_tool, 0, 'again({"n": 1}) id 1 line 1', 'write({"n":1}) id 1 line 1', 1),
    "the arguments": (_arguments, 0, 'write({"n": 9}) id 1 line 1', 'write({"n":1}) id 1 line 1', 1),
    "the id": (_id, 2, f'gated({{"n": 2, "a": "{A}"}}) id 4 line 3', f'gated({{"n":2,"a":"{A}"}}) id 3 line 3', 3),
    "a timer": (_timer, 1, "timer 2 of 5 ms line 2", "timer 2 of 1 ms line 2", 2),
    "the number": (_number, 1, "0 timers", "1 timers (only now: timer 2 of 1 ms line 2)", 2),
    "the end": (_end, 3, 'the program returns ["other"]', f'the program returns ["{A}","gated 2"]', 0),
}


@pytest.mark.parametrize("what", DIFFERENCES)
async def test_a_difference_is_shown_with_both_sides_and_its_line(opened: Sandbox, tools: Tools, what: str) -> None:
    change, wave, recorded, now, line = DIFFERENCES[what]
    async with Host(opened, tools.all(), None) as host:
        run = await finished(await host.executor.start(PROGRAM))
    lines = [encode(record) for record in run.journal.records]
    changed = altered(lines, change)
    if what == "the id":
        changed = [line.replace(b'"call": 3', b'"call": 4').replace(b'"ids": [3]', b'"ids": [4]') for line in changed]
    before = tools.effects.rows()
    with pytest.raises(Diverged) as caught:
        await replay(opened, fold(decode(changed)))
    where = f" at line {line}" if line else ""
    assert (caught.value.recorded, caught.value.now, caught.value.line, caught.value.wave) == (
        recorded,
        now,
        line,
        wave,
    )
    assert str(caught.value) == (
        f"run {run.id}: wave {wave + 1}{where} is not the recorded one\n  recorded: {recorded}\n  now:      {now}\n"
        "  nothing was executed after it"
    )
    assert not isinstance(caught.value, EngineChanged)
    assert tools.effects.rows() == before


def _written(store: Store, run: Run, records: list[Record], engine: str | None = None) -> str:
    """The journal of a paused run under another id, in a store."""
    began = records[0]
    assert isinstance(began, Began)
    began = msgspec.structs.replace(began, run_id="copy", engine=engine or began.engine)
    lease = store.create(
        "copy",
        [encode(record) for record in (began, *records[1:])],
        owner="test",
        lease_s=1,
        now=0,
        program=began.program,
        audience="sandbridge",
        engine_digest=began.engine,
    )
    store.release(lease, now=0, status="paused")
    return "copy"


def _other_arguments(records: list[Record]) -> list[Record]:
    """As if its first call had been another one."""
    changed = list(records)
    for index, record in enumerate(changed):
        if isinstance(record, Waved) and record.wave.calls:
            call = msgspec.structs.replace(record.wave.calls[0], arguments=msgspec.Raw(b'[{"n":9}]'))
            wave = msgspec.structs.replace(record.wave, calls=[call])
            changed[index] = msgspec.structs.replace(record, wave=wave)
            break
    return changed


async def test_nothing_is_executed_after_a_difference_and_nobody_is_asked(
    opened: Sandbox, tools: Tools, store: Store
) -> None:
    asked: list[Any] = []
    program = "await tools.write({n: 1}); await tools.gated({n: 2}); await tools.write({n: 3}); return 1"
    async with Host(opened, tools.all(), store) as host:
        run = await host.executor.start(program)
        copy = _written(store, run, _other_arguments(run.journal.records))
    before = tools.effects.rows()

    def approver(requests: list[Any]) -> dict[str, Any]:
        asked.append(requests)
        return {}

    async with Host(opened, tools.all(), store, approver=approver) as host:
        loaded = await host.executor.load(copy)
        with pytest.raises(Diverged) as caught:
            await loaded.resume({"copy.2": Answer("by hand")})
        assert (caught.value.recorded, caught.value.wave) == ('write({"n":9}) id 1 line 1', 0)
        assert loaded.result is None
    assert (tools.effects.rows(), asked) == (before, [])
    assert store.row("copy").status == "running"  # left as it was, for whoever mends it


async def test_another_build_that_disagrees_is_engine_changed(opened: Sandbox, tools: Tools, store: Store) -> None:
    async with Host(opened, tools.all(), store) as host:
        run = await host.executor.start("await tools.write({n: 1}); await tools.gated({n: 2}); return 1")
        copy = _written(store, run, _other_arguments(run.journal.records), engine="another build")
        loaded = await host.executor.load(copy)
        with pytest.raises(EngineChanged, match=r"\n  it was recorded by another build of engine, flags or "):
            await loaded.resume({"copy.2": Approve()})


async def test_another_build_that_agrees_goes_on_and_says_so(opened: Sandbox, tools: Tools, store: Store) -> None:
    async with Host(opened, tools.all(), store) as host:
        run = await host.executor.start("await tools.write({n: 1}); return await tools.gated({n: 2})")
        copy = _written(store, run, run.journal.records, engine="another build")
        loaded = await host.executor.load(copy)
        await loaded.resume({"copy.2": Approve()})
    assert loaded.result is not None
    assert loaded.result.value == "gated 2"
    [warning] = [warning for warning in loaded.result.warnings if warning.code == "engine_changed"]
    assert warning.message == (
        "the run went on with another build of engine, flags or realm than it began on: waves are compared"
    )
    assert_is_its_journal(loaded)


# ---- many waves ----------------------------------------------------------------------------------------------------


async def test_a_run_of_many_waves_that_sleeps_after_each_comes_to_its_end(
    opened: Sandbox, effects: Effects, store: Store
) -> None:
    tools = Tools(effects)
    program = "let sum = 0; for (let n = 0; n < 40; n++) sum += (await tools.person({n})).n; return sum"
    async with Host(opened, tools.all(), store, hibernate_after_s=0.0) as host:
        run = await host.executor.start(program)
        while run.status == "paused":
            [call] = run.pending
            run = await run.resume({call.id: Answer(call.arguments)})
        assert run.result is not None
        assert run.result.value == 780
        assert sum(isinstance(record, Delivered) for record in run.journal.records) == 40


async def test_a_sealed_run_of_many_waves_moves_to_another_host_after_each(opened: Sandbox, tools: Tools) -> None:
    program = "let sum = 0; for (let n = 0; n < 15; n++) sum += (await tools.person({n})).n; return sum"
    async with Host(opened, tools.all(), None) as host:
        run = await host.executor.start(program)
        state = run.dump()
    while True:
        async with Host(opened, tools.all(), None, hibernate_after_s=HOUR) as host:
            run = await host.executor.load(state)
            [call] = run.pending
            await run.resume({call.id: Answer(call.arguments)})
            if run.status == "finished":
                break
            state = run.dump()
    assert run.result is not None
    assert run.result.value == 105
    assert KEY not in state.encode()
