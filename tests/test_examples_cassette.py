"""The example of a test without tools, as a reader starts it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[1] / "examples"


def started(*arguments: str, cwd: Path = EXAMPLES.parent) -> list[str]:
    """Lines that Python prints when it is started so."""
    environment = {**os.environ, "PYTHONPATH": str(EXAMPLES.parent), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    environment.pop("PYTEST_ADDOPTS", None)
    done = subprocess.run(
        [sys.executable, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=environment,
        cwd=cwd,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    return done.stdout.splitlines()


def test_the_recorded_refund_replays_without_a_shop(tmp_path: Path) -> None:
    for name in ("test_refund.py", "cassettes/test_refund", "shop/refund.js"):
        source, target = EXAMPLES / name, tmp_path / name
        target.parent.mkdir(exist_ok=True)
        (shutil.copytree if source.is_dir() else shutil.copy)(source, target)
    lines = started(
        "-m", "pytest", "-q", "-p", "bridge.pytest_plugin", "-p", "no:cacheprovider", "test_refund.py", cwd=tmp_path
    )
    assert lines[-1].startswith("1 passed in ")
