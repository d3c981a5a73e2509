"""The command line of the benchmark: one command measures and reports, another counts it all again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

DEADLINE_S = 120


def command(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
    return subprocess.run(
        [sys.executable, "-m", "bridge.cli", "bench", "context", *words],
        env=kept | environment,
        text=True,
        capture_output=True,
        check=False,
        timeout=DEADLINE_S,
        input="",
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    folder = tmp_path_factory.mktemp("run")
    words = ["--workload", "adverse", "--tasks", "1", "--arms", "prog-decl", "--model", "scripted:explore+faulty@1"]
    return folder, command("run", *words, "--seed", "7", "--jobs", "1", "--out", str(folder))


def test_one_command_measures_and_builds_the_page(run: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    folder, done = run
    assert (done.returncode, done.stderr) == (0, "")
    first, second, *_ = done.stdout.splitlines()
    assert first == f"8 rows in {folder}; plan executed in 8"  # the baseline came along
    assert second == "losses first (tokens / cost saved, cached; median task):"
    assert done.stdout.splitlines()[-1] == f"the whole page: {folder / 'report.html'}"
    assert (folder / "report.html").is_file()


def test_verify_is_0_where_all_agrees_and_1_where_not(run: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    folder, _ = run
    done = command("verify", "--out", str(folder))
    assert (done.returncode, "counted again" in done.stdout) == (0, True)
    rows = (folder / "rows.jsonl").read_text()
    (folder / "rows.jsonl").write_text(rows.replace('"prefix":0', '"prefix":1', 1))
    done = command("verify", "--out", str(folder))
    (folder / "rows.jsonl").write_text(rows)
    assert (done.returncode, done.stdout.count("WRONG: ")) == (1, 1)


def test_sweep_prints_where_programs_begin_to_need_less() -> None:
    done = command("sweep")
    assert (done.returncode, done.stderr) == (0, "")
    head, *lines = done.stdout.splitlines()
    assert head.split()[:4] == ["given", "least", "number", "of"]
    assert len(lines) > 10


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "--workload", "nothing", "--out", "x"], "there is no workload 'nothing'; there is: orders"),
        (["run", "--arms", "some", "--out", "x"], "there is no arm 'some'; there is: direct-par"),
        (["run", "--model", "clever", "--arms", "prog-decl", "--out", "x"], "model 'clever': 'clever' is none of"),
        (["run", "--policy", "most", "--arms", "prog-decl", "--out", "x"], "result policy 'most': write full"),
        (["run", "--format", "gemini", "--out", "x"], "there is no format 'gemini'; there is: responses"),
        (["run", "--workload", "bfcl", "--out", "x"], "the data set 'bfcl' is not here: sandbridge bench context"),
        (["run", "--out", "/dev/null/x"], "/dev/null/x/rows.jsonl cannot be written: Not a directory"),
        (["verify", "--out", "nowhere"], "a manifest, as `sandbridge bench context run` writes one"),
        (["report", "--out", "nowhere"], "a manifest, as `sandbridge bench context run` writes one"),
        (["sweep", "--price", "free"], "there is no price of 'free'"),
        (["fetch", "bfcl", "--wheel", "nowhere.whl"], "nowhere.whl: No such file or directory"),
        (["fetch", "nothing"], "there is no data set 'nothing'; there is: bfcl"),
        (["calibrate", "--out", "x", "--provider", "openai", "--model", "m"], "no key in OPENAI_API_KEY"),
        (["record", "--out", "x", "--provider", "anthropic", "--model", "m", "--max-usd", "1"], "ANTHROPIC_API_KEY"),
        (["run", "--out", "x", "--model", "live:openai/m", "--max-usd", "1"], "openai: no key in OPENAI_API_KEY"),
        (["run", "--out", "x", "--model", "live:openai"], "write live:PROVIDER/NAME"),
        (["replay", "nowhere.jsonl", "--out", "x"], "nowhere.jsonl cannot be read: No such file or directory"),
    ],
)
def test_what_cannot_be_meant_exits_with_2_and_says_what_to_do(tmp_path: Path, words: list[str], said: str) -> None:
    done = command(*words, SANDBRIDGE_BENCH_CACHE=str(tmp_path))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("sandbridge: ")
    assert said in done.stderr
    assert "Traceback" not in done.stderr
