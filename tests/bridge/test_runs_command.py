"""The command about runs that are kept: from a pause, or a killed process, to their end; what it lists and shows."""

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

import pytest

from bridge import ApprovalRequest, Approve
from bridge.screen import Screen
from bridge.store import Store
from tests.bridge.kept_project import CONFIG, ONE, ROOT, STORY, command, effects, lapse, paused, plain, process

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
