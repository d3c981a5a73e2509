"""The README's promises, executed."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text("utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def test_the_example_prints_what_stands_under_it(tmp_path: Path) -> None:
    code = next(block for block in blocks("python") if "anyio.run(main)" in block)
    shown = next(block for block in blocks("text") if '{"owed"' in block)
    (tmp_path / "example.py").write_text(code)
    done = subprocess.run(
        [sys.executable, str(tmp_path / "example.py")],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        timeout=60,
    )
    assert done.stdout.endswith(shown)
    assert "goodwill(args: {" in done.stdout
    assert done.stderr == ""


def test_the_first_two_commands_are_one_line_each() -> None:
    first, second, *_ = blocks("sh")
    assert first.count("\n") == second.count("\n") == 1
    assert "sandbridge run examples/shop/late_orders.js" in first
    assert "pytest" in second


def test_every_file_that_the_readme_names_exists() -> None:
    names = set(re.findall(r"(?:examples|benchmarks|\.ci)/[\w./-]+\w", README))
    assert names >= {"examples/approve.py", "benchmarks/speed.py", ".ci/run"}
    missing = [name for name in names if not (ROOT / name).exists()]
    assert missing == []


def test_the_story_of_three_processes_is_what_its_example_prints() -> None:
    done = subprocess.run(
        [sys.executable, "examples/durable.py"], cwd=ROOT, capture_output=True, text=True, check=True, timeout=120
    )
    assert f"```text\n{done.stdout}```" in README


def test_every_name_in_the_pieces_of_python_is_there() -> None:
    from bridge import Executor, Run, anthropic, openai

    for block in blocks("python"):
        compile(block, "README.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    for owner, names in (
        (Executor, "run start load with_tools"),
        (Run, "resume dump"),
        (anthropic, "run local"),
        (openai, "run local chat"),
    ):
        assert [name for name in names.split() if not hasattr(owner, name)] == []


def test_every_command_in_the_table_is_there() -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "bridge.cli", "--help"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    table = README.split("## Commands")[1].split("Exit status")[0]
    named = {
        name
        for cell in re.findall(r"^\| (`[^|]*(?:\\\|[^|]*)*) \|", table, re.MULTILINE)
        for name in re.findall(r"(?:sandbridge |`, `|\\\|)([a-z]+)", cell)
    }
    assert named >= {"run", "approve", "deny", "show", "report", "prune", "serve", "bench"}
    assert [name for name in named if not re.search(rf"^[ │]*{name}\b", shown, re.MULTILINE)] == []
