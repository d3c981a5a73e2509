"""A run as lines of a log: the chain from program to answer by ids, without secrets, where it was asked for."""

from __future__ import annotations

import io
import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bridge import Approve, Executor, Logbook, Policy, Tool, ToolError, ask, tool
from bridge.logbook import CUT_BYTES, Entry
from bridge.redaction import Redaction
from sandbox import Sandbox

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module", params=["asyncio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return request.param


@tool
async def login(user: str, password: str) -> dict[str, str]:
    """Log in."""
    return {"token": f"t-{password}-0123456789", "user": user}


@tool
async def look(token: str) -> str:
    """Look."""
    if not token:
        raise ToolError("NO_TOKEN", "log in first")
    return f"seen with {token}"


LOGIN = "const { token } = await tools.login({ user: 'ann', password: 'hunter22' });"
PERSON = Tool(name="person", input_schema={"type": "object"})


async def logged(opened: Sandbox, program: str, *, policy: Policy | None = None, **options: Any) -> list[Entry]:
    found: list[Entry] = []
    book = Logbook(found.append, **options)
    async with Executor([login, look, PERSON], sandbox=opened, policy=policy, logbook=book) as executor:
        run = await executor.start(program)
        if run.status == "paused":
            verdicts: dict[str, Any] = {request.id: Approve() for request in run.approvals}
            await run.resume(verdicts | {call.id: "said" for call in run.pending})
    return found


def events(found: list[Entry]) -> list[str]:
    return [entry["event"] for entry in found]


async def test_the_chain_goes_from_the_program_to_the_answer_and_every_link_has_its_ids(opened: Sandbox) -> None:
    program = f"{LOGIN}\nreturn await tools.look({{ token }})"
    found = await logged(opened, program, policy=Policy([ask("look")]))
    assert events(found) == [
        "program_started",
        *("call_made", "call_decided", "call_started", "call_finished", "replies_delivered"),
        *("call_made", "call_decided", "approval_asked", "paused"),
        *("verdict_given", "call_started", "call_finished", "replies_delivered"),
        *("program_ended", "finished"),
    ]
    run_id = found[0]["run_id"]
    assert {entry["run_id"] for entry in found} == {run_id}
    assert [entry["call_id"] for entry in found if entry["event"] == "call_finished"] == [f"{run_id}.1", f"{run_id}.2"]
    assert [entry["call_ids"] for entry in found if entry["event"] == "replies_delivered"] == [
        [f"{run_id}.1"],
        [f"{run_id}.2"],
    ]
    (asked,) = [entry for entry in found if entry["event"] == "approval_asked"]
    assert (asked["tool"], asked["line"], asked["of"]) == ("look", 2, "person")
    assert [entry["time"] for entry in found] == sorted(entry["time"] for entry in found)
    last = found[-1]
    assert last["status"] == "completed"
    assert last["answer"].startswith("[sandbridge] completed; 2 calls\nseen with ")
    assert last["usage"]["calls"] == 2
    assert last["context_bytes"]["program"] > 0
    json.dumps(found)  # plain data, all of it


async def test_a_secret_is_in_no_entry_not_even_in_the_program_that_was_written_before_it_was_known(
    opened: Sandbox,
) -> None:
    program = (
        "const { token } = await tools.login({ user: 'ann', password: 'hunter22' }); console.log(token); return token"
    )
    told = json.dumps(await logged(opened, program))
    assert "hunter22" not in told
    assert "password: '[redacted " in told
    assert '"ann"' in told


async def test_further_rules_take_further_secrets_out(opened: Sandbox) -> None:
    program = "return await tools.look({ token: 'x' }).then(() => 'customer 4711')"
    told = json.dumps(await logged(opened, program, redaction=Redaction(patterns=[r"customer \d+"])))
    assert "4711" not in told


async def test_a_failure_is_told_with_its_code_and_line(opened: Sandbox) -> None:
    found = await logged(opened, "\nawait tools.look({ token: '' })")
    (failed,) = [entry for entry in found if entry["event"] == "call_finished"]
    assert (failed["outcome"], failed["code"], failed["message"]) == ("failed", "NO_TOKEN", "log in first")
    assert (found[-1]["status"], found[-1]["error"]["line"]) == ("failed", 2)


async def test_what_is_long_is_cut_and_says_how_long_it_was(opened: Sandbox) -> None:
    found = await logged(opened, f"text('y'.repeat({CUT_BYTES} + 5)); return 'z'.repeat({CUT_BYTES})")
    text = next(entry["text"] for entry in found if entry["event"] == "text_emitted")
    assert text.endswith("yy... 5 more characters")
    value = next(entry["value"] for entry in found if entry["event"] == "program_ended")
    assert (value["cut"], value["bytes"]) == (True, CUT_BYTES + 2)


async def test_a_run_that_goes_on_elsewhere_is_logged_from_there_on(opened: Sandbox) -> None:
    first: list[Entry] = []
    second: list[Entry] = []
    options: dict[str, Any] = {"sandbox": opened, "key": "k" * 32}
    async with Executor([PERSON], logbook=Logbook(first.append), **options) as executor:
        run = await executor.start("return await tools.person({})")
        state, call = run.dump(), run.pending[0].id
    async with Executor([PERSON], logbook=Logbook(second.append), **options) as executor:
        await (await executor.load(state)).resume({call: "said"})
    assert events(first)[:5] == ["program_started", "call_made", "call_decided", "approval_asked", "paused"]
    assert events(second)[0] == "loaded"
    assert events(second)[-1] == "finished"
    assert second[-1]["run_id"] == first[0]["run_id"]


async def test_a_logbook_that_cannot_be_written_ends_no_run(opened: Sandbox, caplog: pytest.LogCaptureFixture) -> None:
    def full(entry: Entry) -> None:
        raise OSError("no space left")

    async with Executor([look], sandbox=opened, logbook=Logbook(full)) as executor:
        assert (await executor.run("return 1")).value == 1
    assert "the logbook of a run could not be written" in caplog.text


async def test_lines_go_to_a_stream_and_records_to_logging(opened: Sandbox, caplog: pytest.LogCaptureFixture) -> None:
    stream = io.StringIO()
    async with Executor([look], sandbox=opened, logbook=Logbook.lines(stream)) as executor:
        await executor.run("return 1")
    written = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert events(written) == ["program_started", "program_ended", "finished"]

    logger = logging.getLogger("application.programs")
    with caplog.at_level(logging.INFO, logger.name):
        async with Executor([look], sandbox=opened, logbook=Logbook.logger(logger)) as executor:
            await executor.run("return 1")
    records = [record for record in caplog.records if record.name == logger.name]
    assert [json.loads(record.getMessage())["event"] for record in records] == events(written)
    assert [record.__dict__["sandbridge"]["event"] for record in records] == events(written)


def command(*words: str) -> subprocess.CompletedProcess[str]:
    words = ("-m", "bridge.cli", "run", "-", "--no-store", *words)
    program = "text('hello'); return 1 + 1"
    return subprocess.run(
        [sys.executable, *words], input=program, text=True, capture_output=True, check=False, timeout=60
    )


def test_the_command_appends_a_run_to_the_file_that_is_named(tmp_path: Path) -> None:
    file = tmp_path / "runs.jsonl"
    file.write_text('{"event": "another"}\n')
    done = command("--log", str(file))
    assert done.returncode == 0
    wanted = ["another", "program_started", "text_emitted", "program_ended", "finished"]
    assert [json.loads(line)["event"] for line in file.read_text().splitlines()] == wanted


def test_a_log_that_cannot_be_written_is_refused_before_anything_runs(tmp_path: Path) -> None:
    done = command("--log", str(tmp_path / "nowhere" / "runs.jsonl"))
    assert (done.returncode, done.stdout) == (2, "")
    assert "runs.jsonl cannot be written: No such file or directory" in done.stderr
