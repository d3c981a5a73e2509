"""The commands that decide a call that waits, and what an operator cannot do."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest

from tests.bridge.kept_project import ONE, command, effects, paused, plain


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
