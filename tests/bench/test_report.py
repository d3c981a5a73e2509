"""The page: losses and the claim box before anything else, and nothing that a scripted row cannot say."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bridge.bench import page, report
from bridge.bench.calibrate import Calibration
from bridge.bench.count import prices
from bridge.bench.rows import read_rows
from bridge.bench.summary import summarize
from bridge.cli import app
from bridge.errors import ConfigurationError
from tests.bench.test_stats import row


@pytest.fixture(scope="module")
def html(measured: Path) -> str:
    return report.build(measured).read_text("utf-8")


class Outline(HTMLParser):
    """Headings, captions and whatever would be loaded, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.loads: list[str] = []
        self._in = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._in = tag
        self.loads += [
            str(value) for name, value in attrs if name in ("src", "href") and not str(value).startswith("#")
        ]
        self.loads += [tag] if tag in ("script", "link", "iframe", "img") else []

    def handle_data(self, data: str) -> None:
        if self._in in ("h1", "h2", "h3", "caption") and data.strip():
            self.found.append(data.strip())
            self._in = ""


def test_the_claim_box_and_the_losses_come_first(html: str) -> None:
    outline = Outline()
    outline.feed(html)
    assert outline.found[:4] == [
        "What programs save in context: scripted models",
        "What may be concluded",
        "What may not be concluded",
        "Losses first",
    ]
    assert outline.found.index("The adverse set") < outline.found.index("Workload: expenses")


def test_the_page_loads_nothing(html: str) -> None:
    outline = Outline()
    outline.feed(html)
    assert outline.loads == []
    assert "url(" not in re.sub(r"url\(#", "", html)


def test_a_scripted_page_says_plan_executed_and_never_how_well_a_model_does(html: str) -> None:
    words = re.sub(r"<svg.*?</svg>", "", html, flags=re.DOTALL)
    assert "plan executed" in words
    assert not report.REFUSED.search(words)


def test_a_page_that_says_more_is_not_built(measured: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "_MAY", ("How accuracy is improved.",))
    with pytest.raises(ConfigurationError, match="would say 'accuracy': it may not"):
        report.build(measured)


def test_the_same_rows_give_the_same_page_and_plots(measured: Path, html: str) -> None:
    plots = {file.name: file.read_bytes() for file in (measured / "plots").iterdir()}
    assert report.build(measured).read_text("utf-8") == html
    assert {file.name: file.read_bytes() for file in (measured / "plots").iterdir()} == plots


def test_every_plot_is_there_as_png_and_svg_and_says_that_it_is_scripted(measured: Path, html: str) -> None:
    names = sorted(file.name for file in (measured / "plots").iterdir())
    assert "break-even-scripted.png" in names
    assert "tasks-expenses-scripted.svg" in names
    assert all("scripted" in name for name in names)
    assert {name.rpartition(".")[0] for name in names if name.endswith(".png")} == {
        name.rpartition(".")[0] for name in names if name.endswith(".svg")
    }
    assert (measured / "plots" / "break-even-scripted.png").read_bytes().startswith(b"\x89PNG")


def test_the_losses_are_those_of_the_rows(measured: Path) -> None:
    summary = summarize(read_rows(measured), prices().models[prices().default], 7)
    worst = summary.losses[0]
    assert worst.compared.tokens.value == min(
        line.compared.tokens.value for line in summary.groups if line.names[0] == "prog-decl"
    )
    shown = report.lines(summary)
    assert shown[0] == "losses first (tokens / cost saved, cached; median task):"
    assert worst.group in shown[1]
    assert f"{100 * worst.compared.tokens.value:+.1f}%" in shown[1]


def test_a_small_loss_does_not_hide_behind_large_ones() -> None:
    rows = [row(task, arm, size) for task in "ab" for arm, size in (("direct-par", 100), ("prog-decl", 101))]
    for number in range(15):
        other = f"other-{number}"
        rows += [row("c", arm, size, workload=other) for arm, size in (("direct-par", 100), ("prog-decl", 200))]
    summary = summarize(rows, prices().models[prices().default], 1)
    assert len(summary.losses) == 17
    assert [line.workload for line in summary.losses_shown][-1] == rows[0].workload


def test_a_loss_in_the_terminal_says_where_it_is_also_of_a_workload_without_groups() -> None:
    rows = [row(f"{n}", arm, size) for n in range(20) for arm, size in (("direct-par", 100), ("prog-decl", 101))]
    summary = summarize(rows, prices().models[prices().default], 1)
    assert report.lines(summary)[1].startswith("  w: prog-decl · scripted/oracle · full: -1.0%")


def test_a_loss_is_said_to_those_who_hear_the_page(html: str) -> None:
    shown = page.share(-0.1)
    assert shown == '<span class="loss">-10.0%<span class="heard"> (loss)</span></span>'
    assert " hidden" not in re.sub(r"<style>.*?</style>", "", html, flags=re.DOTALL)  # that is hidden from ears, too


def test_the_page_names_the_date_and_source_of_the_prices_that_were_taken(measured: Path, tmp_path: Path) -> None:
    file = tmp_path / "prices.json"
    models = '{"mine": {"input": 1, "cached": 0.1, "output": 2}}'
    file.write_text(f'{{"date": "2030-01-01", "source": "my bill", "default": "mine", "models": {models}}}')
    said = report.build(measured, None, str(file)).read_text("utf-8")
    assert "input / cached / output (file of 2030-01-01; my bill)." in said
    report.build(measured)  # as it was, for the other tests


def test_the_command_that_the_page_names_is_one(measured: Path, html: str) -> None:
    found = re.search(r"from the stored bodies: sandbridge ([^<]+)\.<", html)
    assert found is not None
    assert CliRunner().invoke(app, found[1].replace("DIR", str(measured)).split()).exit_code == 0


def test_the_summary_is_there_for_programs_too(measured: Path, html: str) -> None:
    found = json.loads((measured / "summary.json").read_bytes())
    assert (found["scripted"], found["price"]) == (True, prices().default)
    figures = {(each["workload"], each["group"], each["label"]): each["compared"] for each in found["compared"]}
    worst = figures["adverse", "", "prog-decl · scripted/explore+faulty@1 · projection"]
    assert f"{100 * worst['tokens']['value']:+.1f}%" in html
    assert not report.REFUSED.search((measured / "summary.json").read_text())


def test_a_program_is_compared_with_the_baseline_of_the_same_cap() -> None:
    rows = [row(task, "direct-par", 100) for task in "ab"]
    rows += [row(task, "direct-par", 50, policy="cap:600") for task in "ab"]
    rows += [row(task, "prog-decl", 40, policy="projection+cap:600") for task in "ab"]
    rows += [row(task, "prog-decl", 40, policy="projection") for task in "ab"]
    found = {
        line.names[2]: line.compared.tokens.value
        for line in summarize(rows, prices().models[prices().default], 1).lines
    }
    assert found["projection+cap:600"] == pytest.approx(0.2)
    assert found["projection"] == pytest.approx(0.6)


def test_scripted_and_live_rows_are_never_in_one_table() -> None:
    rows = [row("a", "direct-par", 100), row("a", "direct-par", 100, model="live/some")]
    with pytest.raises(
        ConfigurationError, match="rows of live and scripted models in one measurement: report them apart"
    ):
        summarize(rows, prices().models[prices().default], 1)


def test_rows_without_a_baseline_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="no rows of direct-par"):
        summarize([row("a", "prog-decl", 100)], prices().models[prices().default], 1)


def test_a_calibration_is_a_level_of_its_own(measured: Path) -> None:
    page = report.build(measured, calibration=Calibration("p", "some-model", 1.25, 40.0, 20, 3.0)).read_text("utf-8")
    assert "Level 2: wire tokens times 1.250 plus 40 a request, for some-model." in page


def test_a_price_that_is_not_there_is_refused(measured: Path) -> None:
    with pytest.raises(ConfigurationError, match="there is no price of 'free'; there is: gpt"):
        report.build(measured, "free")
