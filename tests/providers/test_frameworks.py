"""Agents of three frameworks whose one tool runs programs, as a reader starts them: no key, no network."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAMES = ["openai_agents", "pydantic_ai", "langchain"]
KEYS = ("OPENAI_", "ANTHROPIC_", "LANGSMITH_", "LANGCHAIN_", "LOGFIRE_")


@pytest.mark.parametrize("name", NAMES)
def test_the_agent_reads_what_its_programs_found_and_that_nobody_approved(name: str) -> None:
    environment = {key: value for key, value in os.environ.items() if not key.startswith(KEYS)}
    done = subprocess.run(
        [sys.executable, "-W", "error", f"examples/loop_{name}.py"],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        cwd=ROOT,
        env={**environment, "PYTHONPATH": str(ROOT)},
    )
    assert (done.stderr, done.returncode) == ("", 0)
    late, refund, answer = done.stdout.rstrip("\n").split("\n\n")
    status, found = late.split("\n")
    assert status == "[sandbridge] completed; 313 calls (13 failed)"
    assert found.startswith('{"orders":230,"late":45,"goodwill":810.93,"worst":[{"order":"O-12660"')
    assert refund.split("\n")[:3] == [
        "[sandbridge] failed; 4 calls (1 denied)",
        "[sandbridge] error denied at line 17, column 33:",
        "ToolError: shop/issue_refund was denied: refunds need a colleague",
    ]
    assert answer == "O-12660 waits longest; a colleague must approve its refund."


@pytest.mark.parametrize("name", NAMES)
def test_the_example_fits_on_a_page(name: str) -> None:
    assert len((ROOT / "examples" / f"loop_{name}.py").read_text("utf-8").splitlines()) < 40
