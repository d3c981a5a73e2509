"""The command about runs that are kept: what it lists, shows, decides, resumes, replays, exports and deletes."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import bridge
from bridge import ApprovalRequest, Approve, where
from bridge.cli import app
from bridge.screen import Screen
from bridge.store import Store

ROOT = Path(bridge.__file__).parents[1]
TOOLS = '''
import os, signal, sqlite3
from pathlib import Path
from bridge import Tool, tool

LEDGER = Path(__file__).parent / "ledger.db"


def booked(what: str) -> None:
    with sqlite3.connect(LEDGER) as ledger:
        ledger.execute("CREATE TABLE IF NOT EXISTS effects (what TEXT)")
        ledger.execute("INSERT INTO effects VALUES (?)", (what,))
    ledger.close()


@tool
def order(number: int) -> dict:
    """One order."""
    booked(f"order {number}")
    return {"number": number, "token": "tok-0123456789"}


@tool
def refund(number: int, amount: int) -> str:
    """Gives money back."""
    booked(f"refund {number} {amount}")
    return f"{amount} for {number}"


@tool
def crash() -> str:
    """Takes its host down the first time."""
    flag = LEDGER.with_name("crashed")
    booked("crash")
    if not flag.exists():
        flag.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return "survived"


person = Tool(name="person", description="Asks a person.", input_schema={"type": "object"})
'''
CONFIG = """
functions = ["tools.py:*", "tools.py:person"]
[[rules]]
tool = "refund"
decision = "ask"
reason = "money"
[store]
url = "sqlite:///runs.db"
"""
ONE = "return await tools.refund({number: 1, amount: 5})"
STORY = """\
const first = await tools.order({number: 1});
text("one");
const both = await Promise.all([tools.refund({number: 1, amount: 5}), tools.refund({number: 2, amount: 6})]);
return [first.number, ...both];"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project whose configuration names a store beside it, and the directory that we are in."""
    (tmp_path / "tools.py").write_text(TOOLS)
    (tmp_path / "sandbridge.toml").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def command(*words: str, program: str | None = None, given: str = "") -> Result:
    """The command in this process; a program given here is `p.js`."""
    if program is not None:
        Path("p.js").write_text(program)
    return CliRunner().invoke(app, list(words), input=given)


def process(*words: str, program: str | None = None) -> subprocess.CompletedProcess[str]:
    """The command as a process of its own."""
    if program is not None:
        Path("p.js").write_text(program)
    line = [sys.executable, "-W", "error", "-m", "bridge.cli", *words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        line, env=environment, capture_output=True, text=True, check=False, timeout=120, stdin=subprocess.DEVNULL
    )


def paused(program: str = STORY, *options: str) -> str:
    """The id of a run that waits in the store."""
    done = command("run", "p.js", *options, "--json", program=program)
    assert (done.exit_code, json.loads(done.stdout)["status"]) == (3, "paused"), done.output
    return json.loads(done.stdout)["run_id"]


def effects(folder: Path) -> list[str]:
    """What the tools did, counted where it was done."""
    with sqlite3.connect(folder / "ledger.db") as ledger:
        rows = [row[0] for row in ledger.execute("SELECT what FROM effects ORDER BY what")]
    ledger.close()
    return rows


def lapse(folder: Path) -> None:
    """Time has passed: the lease of whoever died is over."""
    with sqlite3.connect(folder / "runs.db") as store:
        store.execute("UPDATE sandbridge_runs SET lease_until = 1")
    store.close()


def plain(text: str, run_id: str) -> list[str]:
    """Lines without what differs from run to run."""
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ", "TIME", text.replace(run_id, "RUN"))
    return re.sub(r"seed \d+", "seed N", text).split("\n")


# ---- the story -----------------------------------------------------------------------------------------------------


def test_a_run_whose_process_is_killed_is_taken_over_decided_and_resumed_by_others(folder: Path) -> None:
    program = STORY.replace("const both", "try { await tools.crash({}) } catch (e) { text(e.code) }\nconst both")
    killed = process("run", "p.js", program=program)
    assert (killed.returncode, killed.stdout) == (-signal.SIGKILL, "")
    with Store("sqlite:///runs.db") as store:
        [row] = store.runs()
    refused = process("resume", row.id)
    assert refused.returncode == 2
    assert re.fullmatch(
        rf"sandbridge: run {row.id} is driven by \S+: its lease lasts [\d.]+ s more, until [-\d]+ [:\d]+Z; if that "
        r"process is gone, try again then, or use --wait\n",
        refused.stderr,
    )
    lapse(folder)
    early = command("approve", row.id, "3")
    assert (early.exit_code, early.stderr) == (
        2,
        f"sandbridge: run {row.id} was running when its process ended: resume it first, to where it pauses\n",
    )
    taken = process("resume", row.id)
    assert (taken.returncode, taken.stdout.split("\n")[:3]) == (
        3,
        ["[sandbridge] paused; 4 calls (1 unknown, 2 waiting)", "one", "unknown_outcome"],
    )
    approved = process("approve", row.id, "3", "4")
    assert (approved.returncode, approved.stdout, approved.stderr.split("\n")) == (
        0,
        "",
        [
            f"{row.id}.3 (refund): approve",
            f"{row.id}.4 (refund): approve",
            f"to go on: sandbridge resume {row.id}    (with the --config and --mcp of its start)",
            "",
        ],
    )
    done = process("resume", row.id)
    assert (done.returncode, done.stdout.split("\n")[3]) == (0, '[1,"5 for 1","6 for 2"]'), done.stdout
    assert effects(folder) == ["crash", "order 1", "refund 1 5", "refund 2 6"]
    replayed = process("replay", row.id)
    assert replayed.returncode == 0
    assert re.fullmatch(r"(\d) waves of \1 replayed: the same calls, timers and end\n", replayed.stderr)
    assert effects(folder) == ["crash", "order 1", "refund 1 5", "refund 2 6"]


def test_resume_waits_until_the_lease_of_whoever_died_is_over_and_asks_the_person_at_the_terminal(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = paused(ONE)
    with sqlite3.connect(folder / "runs.db") as store:
        store.execute(
            "UPDATE sandbridge_runs SET status = 'running', lease_owner = 'gone', lease_until = ?", (time.time() + 1,)
        )
    store.close()

    def person(requests: list[ApprovalRequest]) -> dict[str, Approve]:
        return {request.id: Approve() for request in requests}

    monkeypatch.setattr(Screen, "prompt", lambda _: person)
    done = command("resume", run_id, "--wait")
    assert (done.exit_code, done.stdout) == (0, "[sandbridge] completed; 1 call\n5 for 1\n")


HOST = """
import sys
import anyio
from pathlib import Path
from bridge import config

async def main():
    settings = config.load(Path("sandbridge.toml"))
    async with settings.executor() as executor:
        run = await executor.start(Path("p.js").read_text())
        print(run.id, flush=True)
        sys.stdin.read()

anyio.run(main)
"""


def test_a_run_that_is_held_by_a_process_which_is_killed_is_approved_and_resumed_by_others(folder: Path) -> None:
    (folder / "p.js").write_text(STORY)
    (folder / "host.py").write_text(HOST)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [sys.executable, "host.py"], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as first:
        assert first.stdout is not None
        run_id = first.stdout.readline().strip()
        first.kill()
    second = process("approve", run_id, "2", "--scope", "tool")
    third = process("resume", run_id, "--json")
    assert (second.returncode, third.returncode) == (0, 0), (second.stderr, third.stderr)
    assert json.loads(third.stdout)["value"] == [1, "5 for 1", "6 for 2"]
    assert effects(folder) == ["order 1", "refund 1 5", "refund 2 6"]
    fourth = command("run", "p.js", program=ONE)
    assert (fourth.exit_code, fourth.stdout) == (0, "[sandbridge] completed; 1 call\n5 for 1\n")


# ---- pausing -------------------------------------------------------------------------------------------------------


def test_a_pause_says_where_the_run_is_kept_and_the_next_commands(folder: Path) -> None:
    refund = "tools.refund({number: 1, amount: 5})"
    program = f"await Promise.all([{refund}, tools.person({{}}), {refund}])"
    done = command("run", "p.js", "--store", "sqlite:///other.db", program=program)
    with Store("sqlite:///other.db") as store:
        [row] = store.runs()
    assert done.exit_code == 3
    assert plain(done.stderr, row.id)[-6:] == [
        f"run RUN is kept in {folder}/other.db; to go on:",
        "  sandbridge show RUN --store sqlite:///other.db",
        "  sandbridge approve RUN 1 3 --store sqlite:///other.db    (or deny, edit, answer)",
        "  sandbridge answer RUN 2 JSON --store sqlite:///other.db",
        "  sandbridge resume RUN --store sqlite:///other.db",
        "",
    ]


def test_without_a_chosen_store_only_what_can_be_gone_on_with_is_kept_for_its_owner(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
    (folder / "sandbridge.toml").write_text(CONFIG.partition("[store]")[0])
    file = folder / "state/sandbridge/runs.db"
    command("run", "p.js", program="return 1")
    command("run", "p.js", program="throw new Error('before any call')")
    command("run", "p.js", "--no-store", program=ONE)
    assert not file.exists()
    run_id = paused()
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert command("approve", run_id, "2", "--scope", "run").exit_code == 0
    done = command("resume", run_id)
    assert (done.exit_code, done.stdout.split("\n")[-2]) == (0, '[1,"5 for 1","6 for 2"]')
    failed = command("run", "p.js", program="await tools.order({number: 7}); throw new Error('after it')")
    assert failed.exit_code == 1
    [row] = json.loads(command("runs", "--json", "--status", "failed").stdout)
    assert failed.stderr.split("\n")[-2] == (
        f"run {row['id']} is kept in {file}: `--reuse {row['id']}` takes over its completed calls"
    )
    again = command(
        "run", "p.js", "--reuse", row["id"], "--json", program="return (await tools.order({number: 7})).number"
    )
    assert (json.loads(again.stdout)["value"], [row["reused"] for row in json.loads(again.stdout)["calls"]]) == (
        7,
        [True],
    )
    assert effects(folder) == ["order 1", "order 7", "refund 1 5", "refund 2 6"]


def test_a_default_store_that_cannot_be_made_costs_the_run_nothing_but_its_keeping(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "state").write_text("no directory")
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
    (folder / "sandbridge.toml").write_text(CONFIG.partition("[store]")[0])
    done = command("run", "p.js", program=ONE)
    lines = done.stderr.split("\n")
    assert (done.exit_code, lines[0]) == (
        3,
        (
            f"warning: the run is not kept: {folder}/state/sandbridge, where runs are kept, cannot be made: Not a "
            "directory; "
            "name a store with --store"
        ),
    )
    assert lines[-2].startswith("this run ends here: ")


# ---- looking -------------------------------------------------------------------------------------------------------


def test_show_has_the_program_the_calls_and_what_waits_in_full(folder: Path) -> None:
    run_id = paused(STORY.replace('"one"', '"one\\u001b[31m"'), "--seed", "7", "--input", "a=1")
    done = command("show", run_id)
    assert done.exit_code == 0
    assert plain(done.stdout, run_id) == [
        "run RUN: paused",
        "began TIME, seed N",
        "",
        "the program, as the model wrote it:",
        "  1 | const first = await tools.order({number: 1});",
        '  2 | text("one\\u001b[31m");',
        "> 3 | const both = await Promise.all([tools.refund({number: 1, amount: 5}), tools.refund({number: 2, amount: 6})]);",  # noqa: E501  one line of the program
        "  4 | return [first.number, ...both];",
        "",
        "inputs:",
        '  {"a":1}',
        "",
        "3 calls:",
        '  RUN.1  line 1  allow  completed  order({"number":1}) = {"number":1,"token":"tok-0123456789"}',
        '  RUN.2  line 3  ask    waiting    refund({"amount":5,"number":1})',
        '  RUN.3  line 3  ask    waiting    refund({"amount":6,"number":2})',
        "",
        "text() so far:",
        "  one\\u{1b}[31m",
        "",
        "call RUN.2 waits for a verdict, until TIME:",
        "  call of refund",
        '  asked because: rule ask "refund": money',
        "  before this, the run did:",
        '    order({"number":1}) completed',
        "  arguments, in full (26 bytes):",
        "    {",
        '      "number": 1,',
        '      "amount": 5',
        "    }",
        "  by the program's claim: line 3: const both = await Promise.all([tools.refund({number: 1, amount: 5}), tools.refund({number: 2, amount: 6})]);",  # noqa: E501  one line of the program
        "",
        "call RUN.3 waits for a verdict, until TIME:",
        "  call of refund",
        '  asked because: rule ask "refund": money',
        "  before this, the run did:",
        '    order({"number":1}) completed',
        "  arguments, in full (26 bytes):",
        "    {",
        '      "number": 2,',
        '      "amount": 6',
        "    }",
        "  by the program's claim: line 3: const both = await Promise.all([tools.refund({number: 1, amount: 5}), tools.refund({number: 2, amount: 6})]);",  # noqa: E501  one line of the program
        "",
    ]  # fmt: skip
    data = json.loads(command("show", run_id, "--json").stdout)
    assert (data["seed"], data["inputs"], data["status"], data["result"]) == (7, {"a": 1}, "paused", None)
    assert [request["arguments"] for request in data["approvals"]] == [
        {"number": 1, "amount": 5},
        {"number": 2, "amount": 6},
    ]


def test_runs_are_listed_with_what_they_wait_for(folder: Path) -> None:
    first, second = paused(ONE), paused()
    assert command("run", "p.js", program="return 1").exit_code == 0
    command("approve", first, "1")
    listed = command("runs", "--status", "paused")
    lines = [re.split(r"  +", line) for line in listed.stdout.split("\n")[:-1]]
    assert [line[:2] + line[3:4] for line in lines] == [
        ["run", "status", "waits for"],
        [second, "paused", "refund, refund"],
        [first, "paused (decided)", "-"],
    ]
    rows = json.loads(command("runs", "--json").stdout)
    assert [row["status"] for row in rows] == ["completed", "paused", "paused"]
    assert len(json.loads(command("runs", "--limit", "1", "--json").stdout)) == 1
    assert command("runs", "--status", "stalled").stdout == "no runs\n"


# ---- deciding ------------------------------------------------------------------------------------------------------


def test_every_verdict_can_be_given_at_the_command_line_and_is_shown_with_who_gave_it(folder: Path) -> None:
    program = """\
const all = [1, 2, 3, 4].map(number => tools.refund({number, amount: 1}));
return (await Promise.allSettled([...all, tools.person({})])).map(one => one.value ?? one.reason.message)"""
    run_id = paused(program)
    for words in (
        ["approve", run_id, f"{run_id}.1", "--by", "ada"],
        ["deny", run_id, "2", "--reason", "enough", "--by", "bob"],
        ["edit", run_id, "3", '{"number": 3, "amount": 2}', "--by", "ada"],
        ["answer", run_id, "4", '"nothing"', "--by", "ada"],
    ):
        done = command(*words)
        assert done.exit_code == 0, done.stderr
    assert command("answer", run_id, "5", "-", "--by", "bob", given='{"said": "yes"}').exit_code == 0
    value = json.loads(command("resume", run_id, "--json").stdout)["value"]
    assert value == ["1 for 1", "refund was denied: enough", "2 for 3", "nothing", {"said": "yes"}]
    shown = plain(command("show", run_id).stdout, run_id)
    start = shown.index("decisions:")
    assert shown[start + 1 : start + 7] == [
        "  TIME  RUN.1 refund: approve by ada",
        "  TIME  RUN.2 refund: deny by bob: enough",
        '  TIME  RUN.3 refund: edit by ada to {"amount":2,"number":3}',
        "  TIME  RUN.4 refund: answer by ada",
        "  TIME  RUN.5 person: answer by bob",
        "  TIME  taken over by another process",
    ]


def test_a_denial_can_end_the_run(folder: Path) -> None:
    run_id = paused()
    assert command("deny", run_id, "3", "--stop", "--reason", "no more").exit_code == 0
    done = command("resume", run_id)
    assert (done.exit_code, done.stdout.split("\n")[2]) == (1, "refund was denied and the run was ended: no more")
    assert effects(folder) == ["order 1"]


def test_a_run_is_not_lost_when_it_is_resumed_without_its_tools(folder: Path) -> None:
    run_id = paused(ONE)
    assert command("approve", run_id, "1").exit_code == 0
    (folder / "other.toml").write_text('functions = ["tools.py:order"]\n[store]\nurl = "sqlite:///runs.db"\n')
    refused = command("resume", run_id, "--config", "other.toml")
    assert (refused.exit_code, f"run {run_id} has calls of refund, which are not offered here" in refused.stderr) == (
        2,
        True,
    ), refused.output
    assert f"{run_id}  paused (decided)" in command("runs").stdout
    again = command("approve", run_id, "1")
    assert again.stderr == (
        f"sandbridge: call {run_id}.1 does not wait any more (its verdict was approve); waiting: none\n"
    )
    done = command("resume", run_id)
    assert (done.exit_code, effects(folder)) == (0, ["refund 1 5"])


def test_a_call_that_nobody_answered_in_time_expires_when_the_run_is_resumed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id, clock = paused(ONE, "--limit", "expires_s=60"), time.time
    monkeypatch.setattr(time, "time", lambda: clock() + 61)
    listed = command("runs").stdout.split("\n")[1]
    assert re.split(r"  +", listed)[1] == "paused (expired)"
    late = command("approve", run_id, "1")
    assert (late.exit_code, late.stderr) == (
        2,
        f"sandbridge: call {run_id}.1 has expired: the verdict came too late and was not applied\n",
    )
    done = command("resume", run_id)
    assert (done.exit_code, json.loads(command("runs", "--json").stdout)[0]["status"]) == (1, "failed"), done.output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["approve", "RUN", "9"], "call RUN.9 does not wait in run RUN; waiting: RUN.1"),
        (["approve", "RUN", "1", "--scope", "all"], "--scope all: must be call, run or tool"),
        (["approve", "none", "1"], "no run none in this store: it was pruned, or belongs to another"),
        (
            ["edit", "RUN", "1", "{x"],
            (
                "'{x' is no JSON (Expecting property name enclosed in double quotes: line 1 column 2 (char 1)); a text "
                "needs its quotes: '\"...\"'"
            ),
        ),
        (["show", "nothing.jsonl"], "there is no file nothing.jsonl"),
        (
            ["show", "tools.py"],
            (
                "tools.py: this is no journal of a run, as `sandbridge export RUN FILE` writes one: its first record "
                "cannot be read"
            ),
        ),
        (
            ["runs", "--status", "lost"],
            ("a run is cancelled, completed, crashed, exceeded, failed, paused, running, stalled, violation, not lost"),
        ),
        (
            ["runs", "--store", "sqlite:///none.db"],
            ("there is no store FOLDER/none.db (--store): no run was kept there; name another with --store"),
        ),
        (["runs", "--store", "memory"], "--store: a store in memory ends with the command: name a file or a server"),
        (["prune", "--before", "soon"], "--before soon: write a number and s, m, h, d or w, such as 30d"),
        (["export", "RUN", "p.js"], "p.js exists: give another name, or --force"),
        (
            ["export", "RUN", "x.jsonl", "--redact", "("],
            ("'(' is no regular expression: missing ), unterminated subpattern at position 0"),
        ),
        (
            ["run", "p.js", "--no-store", "--reuse", "RUN"],
            ("--no-store stands against --store and --reuse: leave out one of them"),
        ),
        (["run", "p.js", "--reuse", "none"], "no run none in this store: it was pruned, or belongs to another"),
    ],
)
def test_what_cannot_be_done_is_a_line_for_the_operator_and_exits_with_2(
    folder: Path, words: list[str], said: str
) -> None:
    run_id = paused(ONE)
    done = command(*[word.replace("RUN", run_id) for word in words])
    shown = done.stderr.replace(run_id, "RUN").replace(str(folder), "FOLDER")
    assert (done.exit_code, done.stdout, shown) == (2, "", f"sandbridge: {said}\n")


# ---- replay, export, prune -------------------------------------------------------------------------------------------


def test_replay_shows_what_the_program_saw_and_calls_nothing(folder: Path) -> None:
    program = STORY.replace('text("one");', 'console.warn("two"); await sleep(5); text("one");')
    run_id = paused(program)
    command("deny", run_id, "3", "4", "--reason", "no")
    assert command("resume", run_id).exit_code == 1
    before = effects(folder)
    done = command("replay", run_id)
    assert (done.exit_code, done.stderr) == (0, "4 waves of 4 replayed: the same calls, timers and end\n")
    assert plain(done.stdout, run_id) == [
        "wave 1 of 4",
        '  calls 1 (line 1): order({"number":1})',
        "  answered, at TIME of the program's clock:",
        '    call 1 of order gives {"number":1,"token":"tok-0123456789"}',
        "wave 2 of 4",
        "  sets timer 2 (line 2): 5 ms",
        "  console.warn: two",
        "  answered, at TIME of the program's clock:",
        "    timer 2 fires",
        "wave 3 of 4",
        '  calls 3 (line 3): refund({"number":1,"amount":5})',
        '  calls 4 (line 3): refund({"number":2,"amount":6})',
        "  text: one",
        "  answered, at TIME of the program's clock:",
        "    call 3 of refund fails with denied: refund was denied: no",
        "    call 4 of refund fails with denied: refund was denied: no",
        "wave 4 of 4",
        "  throws denied at line 3: refund was denied: no",
        "",
    ]
    first = command("replay", run_id, "--until", "1")
    assert (first.stdout, first.stderr) == (
        done.stdout.partition("wave 2")[0],
        "1 wave of 4 replayed: the same calls, timers and end\n",
    )
    assert effects(folder) == before


def test_a_replay_that_differs_shows_both_sides_and_exits_with_1(folder: Path) -> None:
    run_id = paused()
    assert command("export", run_id, "x.jsonl").exit_code == 0
    text = Path("x.jsonl").read_text()
    Path("x.jsonl").write_text(text.replace("amount: 6", "amount: 7"))
    done = command("replay", "x.jsonl")
    assert (done.exit_code, done.stdout.split("\n")[0], done.stderr.split("\n")) == (
        1,
        "wave 1 of 2",
        [
            f"run {run_id}: wave 2 at line 3 is not the recorded one",
            '  recorded: refund({"number":2,"amount":6}) id 3 line 3',
            '  now:      refund({"number":2,"amount":7}) id 3 line 3',
            "  nothing was executed after it",
            "",
        ],
    )


def test_an_exported_journal_has_no_secrets_and_can_be_shown_and_replayed_anywhere(folder: Path) -> None:
    run_id = paused()
    done = command("export", run_id, "x.jsonl", "--redact", "o(n)e")
    assert (done.exit_code, done.stderr) == (0, "10 records, 2 secrets redacted\n")
    text = Path("x.jsonl").read_text()
    assert ("tok-0123456789" in text, [json.loads(line)["type"] for line in text.splitlines()]) == (
        False,
        ["began", "wave", "decided", "sent", "reply", "delivered", "wave", "decided", "decided", "rested"],
    )
    Path("runs.db").unlink()
    assert command("replay", "x.jsonl").exit_code == 0
    assert command("show", "x.jsonl").stdout.split("\n")[0] == f"run {run_id}: not ended"
    assert command("export", run_id, "-").exit_code == 2


def test_prune_deletes_what_is_finished_and_old_enough(folder: Path) -> None:
    run_id = paused(ONE)
    command("run", "p.js", program="return 1")
    with sqlite3.connect(folder / "runs.db") as store:
        store.execute("UPDATE sandbridge_runs SET updated = ?", (time.time() - 31 * 86_400,))
    store.close()
    assert command("prune", "--before", "5w").stderr == "0 runs deleted\n"
    assert command("prune").stderr == "1 run deleted\n"
    assert [row["id"] for row in json.loads(command("runs", "--json").stdout)] == [run_id]
    assert command("prune", "--status", "paused").stderr == "1 run deleted\n"


# ---- where ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "variable", "configured", "url", "by"),
    [
        ("sqlite:///a", "sqlite:///b", "sqlite:///c", "sqlite:///a", "--store"),
        (None, "sqlite:///b", "sqlite:///c", "sqlite:///b", "SANDBRIDGE_STORE"),
        (None, "", "sqlite:///c", "sqlite:///c", "[store] of the configuration"),
        (None, "", None, "sqlite:////state/sandbridge/runs.db", "the default"),
    ],
)
def test_the_nearest_word_on_where_runs_are_kept_holds(
    option: str | None, variable: str, configured: str | None, url: str, by: str
) -> None:
    found = where.place(option, configured, {"XDG_STATE_HOME": "/state", "SANDBRIDGE_STORE": variable})
    assert (found.url, found.by, found.chosen) == (url, by, by != "the default")


def test_a_place_is_shown_without_its_password() -> None:
    assert where.place("postgresql://me:secret@db:5432/runs", None, {}).shown == "postgresql://db:5432/runs"


def test_a_store_of_the_configuration_may_take_its_password_from_the_environment(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "sandbridge.toml").write_text('[store]\nurl = "sqlite:///${NAME}.db"\n')
    unset = command("runs")
    assert (unset.exit_code, unset.stderr) == (
        2,
        (
            "sandbridge: sandbridge.toml, line 2: store.url: the variable NAME is not set: set it, or write "
            "${NAME:-default}\n"
        ),
    )
    monkeypatch.setenv("NAME", "mine")
    assert command("runs").stderr.startswith(f"sandbridge: there is no store {folder}/mine.db ([store] of")
    (folder / "sandbridge.toml").write_text("[store]\nfile = 1\n")
    assert command("runs").stderr == (
        "sandbridge: sandbridge.toml, line 1: store.url: is missing\n"
        "sandbridge: sandbridge.toml, line 2: store.file: there is no such key. There are: url\n"
    )


def test_doctor_says_where_runs_are_kept(folder: Path) -> None:
    paused(ONE)
    report: dict[str, Any] = json.loads(command("doctor", "--json").stdout)["store"]
    assert report == {
        "where": str(folder / "runs.db"),
        "by": "[store] of the configuration",
        "exists": True,
        "runs": 1,
        "reason": "",
    }
    (folder / "broken.db").write_text("no database at all, and long enough to be seen as none" * 40)
    broken = command("doctor", "--store", "sqlite:///broken.db")
    assert broken.exit_code == 1
    [line] = [line for line in broken.stdout.split("\n") if line.startswith("store ")]
    assert line == (
        f"store (--store): DOES NOT WORK: the store {folder}/broken.db cannot be used: file is not a database"
    )
