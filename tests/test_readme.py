"""The README's promises, executed."""

from __future__ import annotations

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
