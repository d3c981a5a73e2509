"""`sandbridge attack`: what it says of an installation, and its exit status."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bridge import Policy, allow, ask, mcp
from bridge.attacking import opened, report, show
from bridge.config import Configuration
from sandbox import WALLS, Attempt, LeftOut, Siege

STANDS = dict.fromkeys(WALLS, "")
WORDS = {"realm.tools": "the tools cannot be replaced", "jail.files": "native code opens no file"}


def command(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "bridge.cli", "attack", *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        timeout=120,
    )


def made(*attempts: Attempt, **other: Any) -> dict[str, Any]:
    return report(Siege(walls=STANDS, words=WORDS, attempts=list(attempts), **other), Configuration())


def test_attacks_of_one_kind_on_this_installation_are_held_and_it_exits_with_0(tmp_path: Path) -> None:
    done = command("--only", "realm.end", "--only", "jail", "--json", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert found["outcome"] == "held"
    assert [row["name"] for row in found["walls"]] == list(WALLS)
    rows = {row["threat"]: row for row in found["threats"]}
    assert "realm.end" in rows
    assert "jail.files" in rows
    assert all(row["held"] == row["attacks"] > 0 for row in rows.values())


def test_what_could_not_be_run_is_said_and_it_exits_with_2(tmp_path: Path) -> None:
    done = command("--only", "realm.tools", "--seconds", "0", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout.split("\n")[-3].startswith("not run: ")
    assert done.stdout.split("\n")[-2].startswith("NOT all attacks could be run; the 0 that were, were held")


def test_a_configuration_that_cannot_start_a_sandbox_exits_with_2(tmp_path: Path) -> None:
    (tmp_path / "sandbridge.toml").write_text('[sandbox]\nrequire = ["moat"]\n')
    done = command("--only", "realm.tools", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("sandbridge: ")


def test_a_threat_that_does_not_exist_exits_with_2_and_names_those_that_do(tmp_path: Path) -> None:
    done = command("--only", "moon", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("sandbridge: --only: there is no threat moon: they are realm.surface, ")


def test_one_attack_that_was_not_held_makes_the_outcome_fallen_and_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    found = made(
        Attempt("realm.tools", "a", held=True), Attempt("jail.files", "open\x1b[2J", held=False, seen="it was done")
    )
    assert found["outcome"] == "fallen"
    assert found["fallen"] == [{"threat": "jail.files", "attack": "open\x1b[2J", "seen": "it was done"}]
    show(found)
    lines = capsys.readouterr().out.split("\n")
    assert "  what a program sees      1 of 1  held  the tools cannot be replaced" in lines
    assert "  native code in the jail  0 of 1  FELL  native code opens no file" in lines
    assert lines[-3:-1] == [
        "FELL: open\\u{1b}[2J (jail.files): it was done",
        "1 of 2 attacks were NOT held, in 0 s",
    ]


def test_one_attack_that_fell_counts_more_than_those_that_could_not_be_run() -> None:
    fell = Attempt("jail.files", "open", held=False, seen="it was done")
    left_out = [LeftOut("jail.files", 0, "its process could not run")]
    assert made(fell, left_out=left_out)["outcome"] == "fallen"
    assert made(left_out=left_out)["outcome"] == "incomplete"


def test_each_row_says_what_was_left_out_of_it_on_this_machine_and_why(capsys: pytest.CaptureFixture[str]) -> None:
    left_out = [
        LeftOut("realm.tools", 3, "110 s were over"),
        LeftOut("jail.files", 0, "there are no walls on moon to try it against"),
    ]
    found = made(Attempt("realm.tools", "a", held=True), left_out=left_out)
    assert [row["left_out"] for row in found["threats"]] == [
        [{"attacks": 3, "why": "110 s were over", "absent": False}],
        [{"attacks": 0, "why": "there are no walls on moon to try it against", "absent": False}],
    ]
    show(found)
    lines = capsys.readouterr().out.split("\n")
    assert [
        line.split("  ")[-1].strip() for line in lines if line.startswith(("  what a program sees", "  native code"))
    ] == [
        "the tools cannot be replaced (3 attacks left out: 110 s were over)",
        "native code opens no file (all attacks left out: there are no walls on moon to try it against)",
    ]
    assert lines[-4:-1] == [
        "not run: realm.tools, 3 attacks: 110 s were over",
        "not run: jail.files, all attacks: there are no walls on moon to try it against",
        "NOT all attacks could be run; the 1 that were, were held, in 0 s",
    ]


def test_what_this_machine_does_not_have_is_said_and_is_not_missed() -> None:
    absent = LeftOut("jail.files", 2, "aarch64 has no open, stat", absent=True)
    found = made(Attempt("jail.files", "openat", held=True), left_out=[absent])
    assert (found["outcome"], found["left_out"]) == ("held", [])
    assert found["threats"][0]["left_out"] == [{"attacks": 2, "why": "aarch64 has no open, stat", "absent": True}]


def test_a_wall_that_does_not_stand_is_shown_with_its_reason(capsys: pytest.CaptureFixture[str]) -> None:
    walls = {**STANDS, "seccomp": "EINVAL (no filter)", "namespaces": "EPERM (not allowed)"}
    show(report(Siege(walls=walls, words=WORDS), Configuration()))
    lines = capsys.readouterr().out.split("\n")
    assert "  seccomp: EINVAL (no filter)" in lines
    assert next(line for line in lines if line.startswith("  seccomp  ")).split()[1:3] == ["MISSING", "(required)"]
    assert next(line for line in lines if line.startswith("  namespaces  ")).split()[1] == "missing"


def test_what_the_configuration_opens_is_said_in_words() -> None:
    settings = Configuration(
        servers=(mcp.stdio("crm", "crm", trusted=True), mcp.stdio("wiki", "wiki", require_approval="never")),
        policy=Policy([allow("pay"), ask("crm.*")]),
        sandbox={"jit": True, "require": []},
    )
    assert opened(settings) == [
        "JIT is on: V8's compilers run, and some memory is writable and executable",
        "[sandbox] require: it starts where nothing stands, whatever else is missing",
        "server 'crm' is trusted: its own word that a tool is read-only is believed",
        "server 'wiki': nobody is asked before its tools are called",
        "rule 'pay' allows without asking: what such a tool can do, every program can do",
    ]
    assert opened(Configuration()) == []
