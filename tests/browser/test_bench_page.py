"""The page of a measurement in a real Chromium; needs what test_run_page.py needs, and is left out with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bridge.bench import report, rows, runner
from tests.browser.test_run_page import AXE, NARROW, WIDE, browser

__all__ = ["browser"]
VARIANTS = (("direct-par",), ("prog-decl", "oracle", "projection"))


@pytest.fixture(scope="module")
def bench_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bench")
    plans = [runner.Plan("adverse", VARIANTS, 1)]
    found, manifest = runner.run(plans, seed=7, jobs=2)  # in processes of their own: the driver has this one's loop
    rows.write(folder, found, manifest)
    return report.build(folder)


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
