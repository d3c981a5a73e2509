"""One executor and its runs: calls at once, limits, what a program may learn, and that nothing is left behind."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import anyio
import pytest

from bridge import Executor, Result, StateError, Tool, ToolContext
from bridge.events import Event
from sandbox import Limits, Sandbox, SandboxClosed
from tests.bridge.scripted import OBJECT, Tools

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module", params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return request.param


async def run(tools: Tools, opened: Sandbox, program: str, **options: Any) -> Result:
    async with Executor(tools.all(), sandbox=opened) as executor:
        return await executor.run(program, **options)


# ---- what a program learns of a call --------------------------------------------------------------------------------


async def test_nothing_of_a_tools_exception_reaches_the_program_and_all_of_it_the_log(
    tools: Tools, opened: Sandbox, caplog: pytest.LogCaptureFixture
) -> None:
    program = "try { await tools.boom({}) } catch (e) { return [e.code, e.message, String(e.stack), e.retryable] }"
    result = await run(tools, opened, program)
    call = f"{result.run_id}.1"
    message = f"boom failed inside; its operator has the details in the log (call {call})"
    assert result.value[:2] == ["failed", message]
    assert "secret" not in result.to_json()
    [record] = caplog.records
    assert record.getMessage() == f"tool boom failed in run {result.run_id}, call {call}"
    assert record.exc_info is not None
    assert str(record.exc_info[1]) == "/secret/path password=1"


async def test_a_tool_that_exits_or_is_cancelled_by_itself_fails_and_the_run_goes_on(
    tools: Tools, opened: Sandbox, caplog: pytest.LogCaptureFixture, anyio_backend_name: str
) -> None:
    async def gives_up(arguments: Any, context: ToolContext) -> Any:
        raise asyncio.CancelledError  # what awaiting a future that somebody cancelled comes to

    given = [*tools.all(), Tool(name="gives_up", input_schema=OBJECT, handler=gives_up)]
    names = ["leave", "gives_up"] if anyio_backend_name == "asyncio" else ["leave"]
    async with Executor(given, sandbox=opened) as executor:
        for name in names:
            program = f"try {{ await tools.{name}({{}}) }} catch (e) {{ return [e.code, await tools.big({{n: 1}})] }}"
            result = await executor.run(program)
            assert result.value == ["failed", "x"], result.text
    assert len(caplog.records) == len(names)


async def test_a_tools_own_error_reaches_the_program_whole(tools: Tools, opened: Sandbox) -> None:
    program = """
        try { await tools.refuse({}) } catch (e) {
          return [e instanceof Error, e instanceof ToolError, e.name, e.code, e.tool, e.message, e.retryable, e.details]
        }"""
    result = await run(tools, opened, program)
    assert result.value == [True, True, "ToolError", "EMPTY", "refuse", "nothing there", True, {"left": 0}]


async def test_a_call_over_its_time_is_a_retryable_error(tools: Tools, opened: Sandbox) -> None:
    program = "try { await tools.hang({}) } catch (e) { return [e.code, e.message, e.retryable] }"
    result = await run(tools, opened, program, limits=Limits(call_s=0.05))
    assert result.value == ["timeout", "hang did not answer within 0.05 s (call_s)", True]
    assert (result.calls[0].outcome, tools.cancelled) == ("timeout", 1)


async def test_a_reply_over_its_bytes_is_an_error_that_says_its_size(tools: Tools, opened: Sandbox) -> None:
    program = "try { await tools.big({n: 1000}) } catch (e) { return [e.code, e.message] }"
    result = await run(tools, opened, program, limits=Limits(reply_bytes=100))
    assert result.value == ["too_large", "big returned 1,002 bytes, more than 100 (reply_bytes): ask it for less"]


async def test_big_integers_keep_their_digits_and_half_characters_break_nothing(tools: Tools, opened: Sandbox) -> None:
    result = await run(tools, opened, "const r = await tools.ids({}); return [r.id, r.small, r.half]")
    assert result.value == ["9007199254740993", 7, "\ufffd"]
    [notice] = [notice for notice in result.warnings if notice.code == "big_integers"]
    assert notice.message == "1 integer(s) beyond 2^53 in a reply of ids were delivered as strings"
    assert notice.line == 1


async def test_half_characters_in_arguments_and_values_break_nothing(tools: Tools, opened: Sandbox) -> None:
    program = """
        const half = "😀".slice(0, 1);
        text(half); console.log(half);
        return [half, JSON.rawJSON('"\\\\ud83d"'), {[half]: 1}]"""
    result = await run(tools, opened, program)
    assert (result.status, result.value, result.emitted) == ("completed", ["�", "�", {"�": 1}], ("�",))
    result.to_json()


async def test_a_tool_that_returns_text_that_is_no_json_fails_its_call_only(tools: Tools, opened: Sandbox) -> None:
    result = await run(tools, opened, "try { await tools.garbage({}) } catch (e) { return [e.code, e.message] }")
    assert result.value == ["failed", "the tool returned text that is no JSON"]


async def test_a_handler_learns_whose_call_it_serves(tools: Tools, opened: Sandbox) -> None:
    mine = object()
    result = await run(tools, opened, "await tools.write({n: 1}); await tools.write({n: 2})", context=mine)
    first, second = tools.contexts
    assert (first.run_id, first.call_id) == (result.run_id, f"{result.run_id}.1")
    assert first.caller_context is mine
    assert first.idempotency_key != second.idempotency_key
    assert [row.id for row in result.calls] == [first.call_id, second.call_id]


async def test_progress_extends_the_time_of_a_call(opened: Sandbox) -> None:
    async def slow(arguments: Any, context: ToolContext) -> Any:
        for step in range(6):
            await anyio.sleep(0.05)
            context.progress(step, 6, None)
        return "done"

    async with Executor([Tool(name="slow", input_schema=OBJECT, handler=slow, timeout_s=0.15)], sandbox=opened) as made:
        assert (await made.run("return await tools.slow({})")).value == "done"


# ---- calls at once --------------------------------------------------------------------------------------------------


async def test_no_more_calls_than_in_flight_run_at_once_and_the_rest_follows_in_order(
    tools: Tools, opened: Sandbox
) -> None:
    results: list[Result] = []
    async with Executor(tools.all(), sandbox=opened) as executor, anyio.create_task_group() as tasks:

        async def one() -> None:
            program = "return await Promise.all([1,2,3,4,5,6,7,8].map(n => tools.gate({n})))"
            results.append(await executor.run(program, limits=Limits(in_flight=3)))

        tasks.start_soon(one)
        with anyio.fail_after(10):
            await tools.began.wait()
        await anyio.wait_all_tasks_blocked()
        assert sorted(given["n"] for given in tools.reached) == [1, 2, 3]  # trio starts tasks in any order
        tools.go.set()
    assert tools.most == 3
    assert [result.usage.in_flight for result in results] == [3]
    assert [result.value for result in results] == [[{"n": n} for n in range(1, 9)]]


async def test_queued_calls_start_in_the_order_in_which_they_were_made(tools: Tools, opened: Sandbox) -> None:
    program = "await Promise.all([1,2,3,4,5,6].map(n => tools.write({n})))"
    await run(tools, opened, program, limits=Limits(in_flight=1))
    assert [given["n"] for given in tools.reached] == [1, 2, 3, 4, 5, 6]


async def test_thirteen_calls_of_which_one_raises_all_have_an_end(
    tools: Tools, opened: Sandbox, caplog: pytest.LogCaptureFixture
) -> None:
    program = """
        const calls = Array.from({length: 13}, (_, n) => n === 3 ? tools.boom({n}) : tools.write({n}));
        return (await Promise.allSettled(calls)).map(one => one.status)"""
    result = await run(tools, opened, program)
    assert result.value == ["fulfilled"] * 3 + ["rejected"] + ["fulfilled"] * 9
    assert [row.outcome for row in result.calls] == ["completed"] * 3 + ["failed"] + ["completed"] * 9
    assert len(caplog.records) == 1


async def test_replies_too_large_for_one_frame_come_in_several(tools: Tools) -> None:
    limits = Limits(
        frame_bytes=4000, reply_bytes=2000, argument_bytes=1000, value_bytes=2000, source_bytes=2000, cpu_s=5
    )
    program = "return (await Promise.all([1,2,3,4,5].map(() => tools.big({n: 1500})))).map(x => x.length)"
    async with Sandbox(limits=limits, spares=0) as small:  # its frames are what the wire allows
        result = await run(tools, small, program)
    assert result.value == [1500] * 5, result.text


# ---- calls that nobody awaited --------------------------------------------------------------------------------------


async def test_a_call_that_changes_something_is_awaited_when_the_program_has_ended(
    tools: Tools, opened: Sandbox
) -> None:
    result = await run(tools, opened, "tools.write({n: 1}); return 'early'")
    assert (result.status, result.value, tools.reached) == ("completed", "early", [{"n": 1}])
    assert result.calls[0].outcome == "completed"
    assert [(notice.code, notice.message) for notice in result.warnings] == [
        (
            "unawaited_calls",
            "1 call(s) were not awaited when the program ended: write (line 1): completed; write `await`",
        )
    ]


async def test_a_call_that_only_reads_is_cancelled_when_the_program_has_ended(tools: Tools, opened: Sandbox) -> None:
    result = await run(tools, opened, "tools.read({n: 1}); await tools.write({n: 2}); return 'early'")
    assert (result.status, [row.outcome for row in result.calls]) == ("completed", ["cancelled", "completed"])


async def test_a_call_that_fails_with_nobody_listening_makes_the_run_failed(tools: Tools, opened: Sandbox) -> None:
    result = await run(tools, opened, "tools.refuse({});\nreturn 'fine'")
    assert result.status == "failed"
    assert result.error is not None
    assert (result.error.code, result.error.line) == ("tool_error", 1)
    assert result.error.message == "refuse: nothing there (the call was not awaited, and it failed)"


async def test_calls_that_wait_for_their_turn_are_not_started_once_the_program_has_ended(
    tools: Tools, opened: Sandbox
) -> None:
    program = "for (let n = 1; n <= 4; n++) tools.read({n}); tools.person({}); await tools.missing; return 1"
    result = await run(tools, opened, program, limits=Limits(in_flight=1))
    assert [row.outcome for row in result.calls] == ["cancelled", *["not_started"] * 4]
    assert len(tools.reached) <= 1


# ---- limits and inputs ----------------------------------------------------------------------------------------------


async def test_a_run_may_lower_every_limit_and_raise_none(tools: Tools, opened: Sandbox) -> None:
    async with Executor(tools.all(), sandbox=opened, limits=Limits(calls=2)) as executor:
        assert (await executor.run("await tools.big({n: 1})", limits=Limits(calls=1))).status == "completed"
        program = "for (let n = 1; n < 9; n++) await tools.write({n})"
        result = await executor.run(program, limits=Limits(calls=1_000))
        assert result.error is not None
        assert (result.status, result.error.code, result.error.limit) == ("exceeded", "limit", "calls")
        assert result.error.message == "the program made more than 2 calls (calls)"
    assert tools.reached == [{"n": 1}, {"n": 2}]


@pytest.mark.parametrize(
    ("program", "limits", "limit", "message"),
    [
        ("for (;;);", Limits(cpu_s=0.1), "cpu_s", "the program computed for more than 0.1 s of CPU time (cpu_s)"),
        ("await tools.hang({})", Limits(wall_s=0.1), "wall_s", "the run took more than 0.1 s (wall_s)"),
        ("for (;;) await sleep(1)", Limits(wall_s=0.1), "wall_s", "the "),
        ("await sleep(1e6)", Limits(wall_s=9), "wall_s", "the program sleeps longer than the "),
        ("return " + "1" * 100, Limits(source_bytes=50), "source_bytes", "the program has 107 bytes, more than 50"),
        ("for (;;) setTimeout(() => {}, 1e6)", Limits(cpu_s=0.1), "cpu_s", ""),
        (
            "for (let i = 0; i < 11; i++) setTimeout(() => {}, 1e6); await sleep(1)",
            Limits(timers=10),
            "timers",
            "more than 10 timers are pending (timers)",
        ),
    ],
    ids=["cpu", "call", "timer", "sleep", "source", "flood", "timers"],
)
async def test_a_limit_ends_a_run_under_its_own_name(
    program: str, limits: Limits, limit: str, message: str, tools: Tools, opened: Sandbox
) -> None:
    result = await run(tools, opened, program, limits=limits)
    assert result.error is not None
    assert (result.status, result.error.code, result.error.limit) == ("exceeded", "limit", limit)
    assert result.error.message.startswith(message)


async def test_inputs_are_a_global_of_the_program(tools: Tools, opened: Sandbox) -> None:
    result = await run(tools, opened, "return inputs.a", inputs={"a": [1, "😀", "\ud83d", 2**60]})
    assert result.value == [1, "😀", "\ufffd", str(2**60)]
    assert [(notice.code, notice.message) for notice in result.warnings] == [
        ("big_integers", "1 integer(s) beyond 2^53 in inputs were delivered as strings")
    ]
    async with Executor(tools.all(), sandbox=opened) as executor:
        with pytest.raises(TypeError, match=r"^inputs hold a object that has no JSON form$"):
            await executor.run("return 1", inputs=object())


async def test_inputs_that_no_frame_holds_are_refused_to_the_application(tools: Tools, opened: Sandbox) -> None:
    async with Executor(tools.all(), sandbox=opened) as executor:
        with pytest.raises(ValueError, match=r"^inputs are 40,000,002 bytes of JSON text"):
            await executor.run("return 1", inputs="x" * 40_000_000)


async def test_the_same_seed_gives_the_same_chance(tools: Tools, opened: Sandbox) -> None:
    program = "return [Math.random(), crypto.randomUUID()]"
    first = await run(tools, opened, program, seed=7)
    assert first.value == (await run(tools, opened, program, seed=7)).value
    assert first.value != (await run(tools, opened, program, seed=8)).value
    assert first.value != (await run(tools, opened, program)).value


async def test_a_timer_that_is_cleared_at_once_never_fires(tools: Tools, opened: Sandbox) -> None:
    program = "const t = setTimeout(() => text('fired'), 1); clearTimeout(t); await sleep(20); return 'end'"
    result = await run(tools, opened, program)
    assert (result.value, result.emitted) == ("end", ())


# ---- events and results ---------------------------------------------------------------------------------------------


async def test_events_come_in_order_and_name_their_call(tools: Tools, opened: Sandbox) -> None:
    seen: list[Event] = []
    async with Executor(tools.all(), sandbox=opened) as executor:
        started = await executor.start("text('a'); await tools.write({n: 1}); return 1", on_event=seen.append)
        told = [event async for event in started.events()]
    assert told == seen
    assert [(type(event).__name__, event.call_id) for event in seen] == [
        ("ProgramStarted", ""),
        ("TextEmitted", ""),
        ("CallStarted", f"{started.id}.1"),
        ("CallFinished", f"{started.id}.1"),
        ("Finished", ""),
    ]
    assert {event.run_id for event in seen} == {started.id}


async def test_a_listener_that_fails_costs_nothing_but_a_line_in_the_log(
    tools: Tools, opened: Sandbox, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(event: Event) -> None:
        raise RuntimeError("the screen is gone")

    with caplog.at_level(logging.ERROR, "sandbridge"):
        result = await run(tools, opened, "return 1", on_event=fails)
    assert (result.status, result.value) == ("completed", 1)
    assert [record.getMessage() for record in caplog.records] == [
        f"on_event failed in run {result.run_id} at ProgramStarted",
        f"on_event failed in run {result.run_id} at Finished",
    ]


async def test_a_result_that_the_model_saw_cut_is_fetched_whole_by_its_handle(tools: Tools, opened: Sandbox) -> None:
    async with Executor(tools.all(), sandbox=opened) as executor:
        result = await executor.run("return Array(500).fill('abcdefgh')", limits=Limits(output_bytes=1024))
        assert result.handle is not None
        assert executor.fetch(result.handle) == ["abcdefgh"] * 500
        assert len(result.text.encode()) <= 1024
        with pytest.raises(StateError, match=r"^nothing is kept under 'x': the last 100 results are$"):
            executor.fetch("x")


# ---- life -----------------------------------------------------------------------------------------------------------


async def test_two_executors_share_a_sandbox(opened: Sandbox) -> None:
    one, two = Tools(), Tools()
    async with Executor(one.all(), sandbox=opened) as first, Executor(two.all(), sandbox=opened) as second:
        await first.run("await tools.write({n: 1})")
        await second.run("await tools.write({n: 2})")
    assert (one.reached, two.reached) == ([{"n": 1}], [{"n": 2}])
    async with Executor(one.all(), sandbox=opened) as third:
        assert (await third.run("return 1")).value == 1


async def test_what_the_block_raises_comes_out_as_it_is(tools: Tools, opened: Sandbox) -> None:
    with pytest.raises(KeyError) as raised:  # noqa: PT012  the block is the subject
        async with Executor(tools.all(), sandbox=opened) as executor:
            await executor.start("await tools.person({})")
            raise KeyError("mine")
    assert raised.value.args == ("mine",)


async def test_cancelling_a_run_cancels_its_tool(tools: Tools, opened: Sandbox) -> None:
    async with Executor(tools.all(), sandbox=opened) as executor:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(executor.run, "await Promise.all([tools.hang({}), tools.hang({})])")
            with anyio.fail_after(10):
                await tools.began.wait()
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
        assert tools.cancelled == 2
        assert (await executor.run("return 1")).value == 1


async def test_a_run_that_is_cancelled_says_so(tools: Tools, opened: Sandbox) -> None:
    async with Executor(tools.all(), sandbox=opened) as executor:
        started = await executor.start("await tools.person({})")
        await started.cancel()
        assert started.result is not None
        assert started.result.error is not None
        assert (started.result.status, started.result.error.message) == ("cancelled", "the run was cancelled")
        await started.cancel()


async def test_an_executor_that_is_not_open_or_open_already_says_so(tools: Tools, opened: Sandbox) -> None:
    executor = Executor(tools.all(), sandbox=opened)
    with pytest.raises(StateError, match=r"^enter the executor first: `async with Executor\(...\) as executor`$"):
        await executor.run("return 1")
    async with executor:
        with pytest.raises(StateError, match=r"^this executor is open already$"):
            await executor.__aenter__()
        with pytest.raises(StateError, match=r"^an event loop runs in this thread and would be blocked"):
            executor.run_sync("return 1")
        said: list[str] = []

        def elsewhere() -> None:
            with pytest.raises(StateError) as refused:
                executor.run_sync("return 1")
            said.append(str(refused.value))

        await anyio.to_thread.run_sync(elsewhere)
        assert said == ["this executor was opened with `async with`: use `await executor.run(...)`"]
    async with executor:  # and once more
        assert (await executor.run("return 1")).value == 1


async def test_paused_runs_give_their_workers_to_those_that_compute(tools: Tools) -> None:
    async with (
        Sandbox(limits=Limits(memory_bytes=64 << 20), max_waiting=1, spares=0) as small,
        Executor(tools.all(), sandbox=small) as executor,
    ):
        paused = [await executor.start("return await tools.person({})") for _ in range(3)]
        assert (await executor.run("return 1")).value == 1
        for number, run in enumerate(paused):
            await run.resume({run.pending[0].id: number})
        assert [run.result.value for run in paused if run.result is not None] == [0, 1, 2]


async def test_a_sandbox_that_is_not_open_is_the_operators_fault_and_raises(tools: Tools) -> None:
    async with Executor(tools.all(), sandbox=Sandbox()) as executor:
        with pytest.raises(SandboxClosed, match=r"^enter the sandbox first: `async with Sandbox\(\) as sandbox`$"):
            await executor.run("return 1")
