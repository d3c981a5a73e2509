"""Recordings: what is written, that no secret is, and what a replay says where a program differs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bridge import Diverged, Executor, Policy, StateError, Tool, ToolContext, ToolError, ask
from bridge.approval import ApprovalRequest, Deny
from bridge.cassettes import exported, read
from bridge.redaction import Redaction
from bridge.results import Result
from bridge.testing import Cassette, record, replay
from sandbox import Limits, Sandbox

pytestmark = pytest.mark.anyio

SECRET = "hunter2-hunter2"
KEY = "sk-proj-0123456789abcdefABCDEF"
PROGRAM = """\
const page = await tools.page({n: 1});
const rest = await Promise.all([tools.page({n: 2}), tools.page({n: 3})]);
await sleep(1);
text("three pages");
try { await tools.page({n: 4}) } catch (e) { text(e.code + ": " + e.message) }
return [page, ...rest].map(one => one.title);"""


class Library:
    """Counts what reaches it."""

    def __init__(self) -> None:
        self.reached: list[Any] = []

    async def page(self, arguments: Any, context: ToolContext) -> Any:
        self.reached.append(arguments)
        if arguments["n"] > 3:
            raise ToolError("NO_PAGE", f"there is no page {arguments['n']}", details={"last": 3})
        return {"title": f"page {arguments['n']}", "next": arguments["n"] + 1}

    async def sign_in(self, arguments: Any, context: ToolContext) -> Any:
        self.reached.append(arguments)
        return {"token": SECRET, "user": "ada", "pin": 4711, "note": f"use {KEY} today"}

    async def send(self, arguments: Any, context: ToolContext) -> Any:
        self.reached.append(arguments)
        return {"sent": True}

    def all(self) -> list[Tool]:
        return [Tool(name=name, handler=getattr(self, name)) for name in ("page", "sign_in", "send")]


@pytest.fixture(scope="module", params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def library() -> Library:
    return Library()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "cassettes" / "one.jsonl"


def bytes_of(file: Path) -> bytes:
    return file.read_bytes()


def there(file: Path) -> bool:
    return file.exists()


def put(file: Path, text: str) -> None:
    file.write_text(text)


def drop(file: Path) -> None:
    file.unlink()


async def recorded(file: Path, library: Library, opened: Sandbox, program: str = PROGRAM, **options: Any) -> Result:
    """Record, and forget what reached the tools."""
    async with Executor(library.all(), sandbox=opened, policy=options.pop("policy", None)) as executor:
        result = await record(file, executor, program, **options)
    library.reached.clear()
    return result


# ---- exactly -------------------------------------------------------------------------------------------------------


async def test_the_recorded_program_comes_back_as_it_was_and_no_tool_is_called(
    file: Path, library: Library, opened: Sandbox
) -> None:
    result = await recorded(file, library, opened)
    for program in (None, PROGRAM):
        again = await replay(file, program, sandbox=opened)
        assert (again.status, again.value, again.emitted, library.reached) == (
            "completed",
            ["page 1", "page 2", "page 3"],
            ("three pages", "NO_PAGE: there is no page 4"),
            [],
        )
        assert [(row.tool, row.arguments, row.outcome, row.error) for row in again.calls] == [
            (row.tool, row.arguments, row.outcome, row.error) for row in result.calls
        ]


async def test_recording_the_same_again_writes_the_same_file(file: Path, library: Library, opened: Sandbox) -> None:
    program = PROGRAM.replace(
        "await Promise.all([tools.page({n: 2}), tools.page({n: 3})])", "[await tools.page({n: 2})]"
    )
    await recorded(file, library, opened, program)
    first = bytes_of(file)
    await recorded(file, library, opened, program)
    assert bytes_of(file) == first
    assert [line for line in first.split(b"\n")[:-1] if not line.startswith(b'{"type":')] == []


@pytest.mark.parametrize(
    "program",
    [
        "return [Date.now() > 0, Math.random() < 1]",
        "const before = Date.now(); await sleep(2); return Date.now() > before",
        "text(new Date().toISOString()); return (await tools.page({n: 1, at: Date.now()})).title",
        "throw new Error('as it should')",
        "await tools.page({n: 9})",
        "tools.page({n: 1}); return 1",
        "return await Promise.race([tools.page({n: 1}), tools.page({n: 2})])",
    ],
)
async def test_time_chance_and_failures_are_replayed_too(
    file: Path, library: Library, opened: Sandbox, program: str
) -> None:
    result = await recorded(file, library, opened, program)
    again = await replay(file, sandbox=opened)
    assert (again.status, again.value, again.emitted, again.error) == (
        result.status,
        result.value,
        result.emitted,
        result.error,
    )
    assert library.reached == []


async def test_a_limit_that_ended_a_run_is_recorded_and_not_reproduced(
    file: Path, library: Library, opened: Sandbox
) -> None:
    program = "await tools.page({n: 1}); while (true) {}"
    result = await recorded(file, library, opened, program, limits=Limits(cpu_s=0.2))
    assert result.error is not None
    again = await replay(file, sandbox=opened)
    assert (again.status, again.error) == ("exceeded", result.error)


async def test_a_changed_file_is_a_difference_with_both_sides(file: Path, library: Library, opened: Sandbox) -> None:
    await recorded(file, library, opened)
    put(file, bytes_of(file).decode().replace('"arguments":[{"n":3}]', '"arguments":[{"n":5}]'))
    with pytest.raises(Diverged) as differed:
        await replay(file, sandbox=opened)
    assert str(differed.value) == (
        f"{file}: run cassette: wave 2 at line 2 is not the recorded one\n"
        '  recorded: page({"n":5}) id 3 line 2\n'
        '  now:      page({"n":3}) id 3 line 2\n'
        "  nothing was executed after it"
    )


async def test_decisions_of_people_are_part_of_a_recording(file: Path, library: Library, opened: Sandbox) -> None:
    def never(requests: list[ApprovalRequest]) -> dict[str, Deny]:
        return {request.id: Deny("no") for request in requests}

    program = "try { await tools.send({}) } catch (e) { return e.message }"
    async with Executor(library.all(), sandbox=opened, policy=Policy([ask("send")]), approver=never) as executor:
        await record(file, executor, program)
    again = await replay(file, sandbox=opened)
    assert (again.value, again.calls[0].decision) == ("send was denied: no", "deny")
    other = await replay(file, program.replace("e.message", "e.code"), sandbox=opened)
    assert other.value == "denied"


# ---- another program -----------------------------------------------------------------------------------------------


async def test_another_program_gets_the_recorded_replies_for_the_calls_that_it_makes_alike(
    file: Path, library: Library, opened: Sandbox
) -> None:
    await recorded(file, library, opened)
    program = """\
const all = await Promise.allSettled([4, 3, 1].map(n => tools.page({n})));
return all.map(one => one.value?.title ?? [one.reason.code, one.reason.details.last])"""
    result = await replay(file, program, sandbox=opened)
    assert (result.value, library.reached) == ([["NO_PAGE", 3], "page 3", "page 1"], [])
    assert [(warning.code, warning.message) for warning in result.warnings if warning.code == "unused_replies"] == [
        ("unused_replies", '1 recorded call(s) were not made: page({"n":2})')
    ]


async def test_equal_calls_get_their_replies_in_order_of_occurrence(
    file: Path, library: Library, opened: Sandbox
) -> None:
    count = iter(range(100))

    async def next_one(arguments: Any, context: ToolContext) -> Any:
        return next(count)

    async with Executor([Tool(name="next", handler=next_one)], sandbox=opened) as executor:
        await record(file, executor, "await tools.next({}); await tools.next({}); return 1")
    program = "return [await tools.next({}), await tools.next({}), await tools.next({}).catch(e => e.code)]"
    with pytest.raises(Diverged):
        await replay(file, program, sandbox=opened)
    result = await replay(file, "const one = await tools.next({}); return [one, await tools.next({})]", sandbox=opened)
    assert result.value == [0, 1]


async def test_a_call_that_was_not_recorded_is_shown_beside_the_nearest_that_was(
    file: Path, library: Library, opened: Sandbox
) -> None:
    await recorded(file, library, opened)
    with pytest.raises(Diverged) as differed:
        await replay(file, "await tools.page({n: 1});\nreturn await tools.page({n: 33}).catch(() => 0)", sandbox=opened)
    assert str(differed.value) == (
        f'{file}: call 2 at line 2 has no recorded reply\n  recorded: page({{"n":3}})\n  now:      page({{"n":33}})'
    )
    assert (differed.value.line, differed.value.wave) == (2, 1)
    with pytest.raises(Diverged) as differed:
        await replay(file, "await tools.send({to: 1})", sandbox=opened)
    assert differed.value.recorded == (
        'no (further) call of send; not made so far: page({"n":1}); page({"n":2}); page({"n":3})'
    )


async def test_other_inputs_make_it_another_run_of_the_same_program(
    file: Path, library: Library, opened: Sandbox
) -> None:
    program = "return (await Promise.all(inputs.pages.map(n => tools.page({n})))).map(page => page.title)"
    await recorded(file, library, opened, program, inputs={"pages": [1, 2]})
    same = await replay(file, sandbox=opened)
    again = await replay(file, inputs={"pages": [2]}, sandbox=opened)
    assert (same.value, again.value) == (["page 1", "page 2"], ["page 2"])
    with pytest.raises(Diverged):
        await replay(file, program, inputs={"pages": [3]}, sandbox=opened)


# ---- secrets -------------------------------------------------------------------------------------------------------

HANDS_ON = """\
const me = await tools.sign_in({password: "pass-word-1", user: "ada"});
text("as " + me.user + " with " + me.token);
await tools.send({headers: {"X-Auth": "Bearer " + me.token}, pin: me.pin, via: me.note});
return me.token"""


async def test_secrets_are_redacted_wherever_they_went_and_the_program_still_replays(
    file: Path, library: Library, opened: Sandbox
) -> None:
    result = await recorded(file, library, opened, HANDS_ON)
    assert result.value == SECRET
    text = bytes_of(file).decode()
    assert [secret for secret in (SECRET, KEY, "pass-word-1", "4711") if secret in text] == []
    again = await replay(file, HANDS_ON, sandbox=opened)
    stand_in = again.value
    assert stand_in.startswith("[redacted ")
    assert again.emitted == (f"as ada with {stand_in}",)
    assert again.calls[1].arguments["headers"] == {"X-Auth": f"Bearer {stand_in}"}
    other = await replay(file, HANDS_ON.replace("return me.token", "return me.user"), sandbox=opened)
    assert other.value == "ada"


async def test_a_program_that_depends_on_what_is_redacted_is_no_recording(
    file: Path, library: Library, opened: Sandbox
) -> None:
    program = "const me = await tools.sign_in({}); return await tools.page({n: me.token.length > 14 ? 1 : 2})"
    async with Executor(library.all(), sandbox=opened) as executor:
        with pytest.raises(Diverged) as differed:
            await record(file, executor, program)
        assert (differed.value.recorded, differed.value.now, there(file)) == (
            'page({"n":1}) id 2 line 1',
            'page({"n":2}) id 2 line 1',
            False,
        )
        assert str(differed.value).endswith(
            "the program depends on what was redacted: keep the secret out of it, or change the rules"
        )
        await record(file, executor, program, redaction=Redaction(off=True))
    assert SECRET in bytes_of(file).decode()


# ---- files ---------------------------------------------------------------------------------------------------------


async def test_what_is_no_recording_is_named(file: Path, library: Library, opened: Sandbox) -> None:
    with pytest.raises(StateError) as refused:
        await replay(file)
    assert str(refused.value) == f"{file}: cannot be read: No such file or directory"
    file.parent.mkdir()
    put(file, "hello\n")
    with pytest.raises(StateError) as refused:
        await replay(file)
    hint = "this is no journal of a run, as `sandbridge export RUN FILE` writes one"
    assert str(refused.value) == f"{file}: {hint}: its first record cannot be read"
    await recorded(file, library, opened)
    whole = bytes_of(file)
    assert exported(whole.splitlines(), Redaction()) == (whole.splitlines(), 0)
    put(file, "\n".join(whole.decode().splitlines()[:-1]))
    assert len(read(file)) == len(whole.splitlines()) - 1
    with pytest.raises(StateError) as refused:
        await replay(file)
    assert str(refused.value) == (f"{file}: the run had not ended when it was written: a cassette holds finished runs")


async def test_a_run_that_pauses_is_no_recording(file: Path, library: Library, opened: Sandbox) -> None:
    with pytest.raises(StateError) as refused:
        await recorded(file, library, opened, "await tools.send({})", policy=Policy([ask("send")]))
    assert str(refused.value) == (
        "the run paused, and a cassette holds finished runs: give the executor an approver (send)"
    )
    assert (there(file), len(opened.resting)) == (False, 0)


# ---- for test frameworks -------------------------------------------------------------------------------------------


async def test_a_cassette_records_replays_and_does_neither_with_an_executor_that_is_not_open_yet(
    file: Path, library: Library, opened: Sandbox
) -> None:
    def executor() -> Executor:
        return Executor(library.all(), sandbox=opened)

    with pytest.raises(StateError) as refused:
        await Cassette(file).run(executor(), PROGRAM)
    assert str(refused.value) == f"{file}: there is no recording: run the test with --cassettes=record"
    recording = Cassette(file, "record")
    for _ in range(2):
        assert (await recording.run(executor(), PROGRAM)).status == "completed"
    assert sorted(each.name for each in file.parent.iterdir()) == ["one-2.jsonl", "one.jsonl"]
    assert len(library.reached) == 8
    library.reached.clear()
    async with executor() as already:
        assert (await Cassette(file).run(already, PROGRAM)).value == ["page 1", "page 2", "page 3"]
    assert library.reached == []
    drop(file)
    assert (await Cassette(file, "off").run(executor(), PROGRAM)).status == "completed"
    assert (len(library.reached), there(file)) == (4, False)
