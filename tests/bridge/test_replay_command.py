"""The commands that go over runs that were kept: replay, export, prune."""

from __future__ import annotations

import json
import sqlite3
import time
from pathlib import Path

from tests.bridge.kept_project import ONE, STORY, command, effects, paused, plain


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
