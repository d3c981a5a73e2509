"""The page of a measurement in a real Chromium; needs what test_run_page.py needs, and is left out with it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.browser.test_run_page import AXE, NARROW, WIDE, browser

__all__ = ["browser"]


@pytest.fixture(scope="module")
def bench_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bench")
    words = ["--workload", "adverse", "--tasks", "1", "--arms", "prog-decl", "--out", str(folder)]
    command = [sys.executable, "-m", "bridge.cli", "bench", "context", "run", *words]
    subprocess.run(command, check=True, capture_output=True, timeout=100)  # here it would load what counts tokens
    return folder / "report.html"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_of_it_breaks_a_rule_of_accessibility(browser: Any, bench_page: Path, scheme: str) -> None:
    asked: list[str] = []
    page = browser.new_page(color_scheme=scheme, viewport=WIDE)
    page.on("request", lambda request: asked.append(request.url))
    page.goto(bench_page.as_uri())
    page.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")
    page.evaluate(AXE)
    found = page.evaluate("async () => (await axe.run()).violations.map((each) => each.id)")
    page.close()
    assert (found, asked) == ([], [bench_page.as_uri()])


def test_a_narrow_window_moves_tables_and_never_the_page(browser: Any, bench_page: Path) -> None:
    page = browser.new_page(viewport=NARROW)
    page.goto(bench_page.as_uri())
    wide = page.evaluate("document.documentElement.scrollWidth")
    page.close()
    assert wide == NARROW["width"]


def test_a_loss_is_heard_as_one(browser: Any, bench_page: Path) -> None:
    page = browser.new_page(viewport=WIDE)
    page.goto(bench_page.as_uri())
    heard = page.get_by_role("table").first.aria_snapshot()
    page.close()
    assert heard.count("% (loss)") > 4
