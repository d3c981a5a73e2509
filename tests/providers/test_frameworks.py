"""Agents of three frameworks whose one tool runs programs: no key, no network. All in this process: loading is slow."""

from __future__ import annotations

import os
import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = ["openai_agents", "pydantic_ai", "langchain"]
KEYS = ("OPENAI_", "ANTHROPIC_", "LANGSMITH_", "LANGCHAIN_", "LOGFIRE_")


@pytest.mark.parametrize("name", NAMES)
def test_the_agent_reads_what_its_programs_found_and_that_nobody_approved(
    name: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for key in os.environ:
        if key.startswith(KEYS):
            monkeypatch.delenv(key)
    runpy.run_path(str(EXAMPLES / f"loop_{name}.py"), run_name="__main__")
    printed, errors = capfd.readouterr()
    assert errors == ""
    late, refund, answer = printed.rstrip("\n").split("\n\n")
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
    assert len((EXAMPLES / f"loop_{name}.py").read_text("utf-8").splitlines()) < 40
