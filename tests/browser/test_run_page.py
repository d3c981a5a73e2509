"""The page of a run in a real Chromium: what people see, hear and reach by keyboard, and that it asks for nothing.

Needs Chromium (`chromium` on the path, or SANDBRIDGE_CHROMIUM), playwright to drive it, and axe-core for the rules of
accessibility. With SANDBRIDGE_SCREENSHOTS set to a folder, what was looked at is kept there.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Generator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

WHY = "needs Chromium, playwright and axe-core, which .ci/nightly installs"
sync_api = pytest.importorskip("playwright.sync_api", reason=WHY)
axe = pytest.importorskip("axe_playwright_python", reason=WHY)
CHROMIUM = os.environ.get("SANDBRIDGE_CHROMIUM") or shutil.which("chromium")
if CHROMIUM is None:
    pytest.skip(WHY, allow_module_level=True)

SHOP = Path(__file__).parent.parent.parent / "examples" / "shop"
AXE = files("axe_playwright_python").joinpath("axe.min.js").read_text("utf-8")
WIDE, NARROW = {"width": 1200, "height": 900}, {"width": 400, "height": 800}
Open = Callable[..., Any]


@pytest.fixture(scope="module")
def browser() -> Generator[Any]:
    with sync_api.sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"] if os.geteuid() == 0 else [])
        yield made
        made.close()


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a run of 313 calls, 13 of which failed, made anew; by the command: here tokens may be loaded."""
    file = tmp_path_factory.mktemp("page") / "run.html"
    words = ["report", str(SHOP / "late_orders.jsonl"), "--out", str(file)]
    subprocess.run([sys.executable, "-m", "bridge.cli", *words], check=True, capture_output=True, timeout=60)
    return file


@pytest.fixture
def opened(browser: Any, page_file: Path) -> Generator[Open]:
    """Opens the page; whatever it asks for beside itself, and whatever it complains of, ends the test."""
    trouble: list[str] = []
    pages: list[Any] = []

    def open_page(scheme: str = "light", viewport: dict[str, int] = WIDE) -> Any:
        page = browser.new_page(color_scheme=scheme, viewport=viewport)
        pages.append(page)
        page.on("request", lambda request: trouble.append(request.url))
        page.on("console", lambda message: trouble.append(message.text))
        page.on("pageerror", lambda error: trouble.append(str(error)))
        page.goto(page_file.as_uri())
        trouble.remove(page_file.as_uri())
        return page

    yield open_page
    for page in pages:
        page.close()
    assert trouble == []


def kept(page: Any, name: str) -> bytes:
    """A picture of what is seen, kept where somebody wants to look."""
    folder = os.environ.get("SANDBRIDGE_SCREENSHOTS")
    if folder is None:
        return page.screenshot()
    Path(folder).mkdir(parents=True, exist_ok=True)
    return page.screenshot(path=Path(folder) / f"{name}.png")


BOXES = """selector => [...document.querySelectorAll(selector)].filter(each => each.checkVisibility())
  .map(each => each.getBoundingClientRect()).map(({ x, y, width, height }) => ({ x, y, width, height }))"""


def boxes(page: Any, selector: str) -> list[dict[str, float]]:
    """Where elements are, in the order of the document; those that are folded away left out."""
    return page.evaluate(BOXES, selector)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_rule_of_accessibility_is_broken(opened: Open, scheme: str) -> None:
    page = opened(scheme)
    page.evaluate("() => document.querySelectorAll('details').forEach((each, n) => { each.open = n % 20 < 2; })")
    page.evaluate(AXE)
    found = page.evaluate("() => axe.run(document, { resultTypes: ['violations'] })")["violations"]
    assert [(each["id"], [node["html"] for node in each["nodes"][:3]]) for each in found] == []


def test_light_and_dark_are_two_pictures_of_one_page(opened: Open) -> None:
    light, dark = opened("light"), opened("dark")
    colours = [page.evaluate("() => getComputedStyle(document.body).backgroundColor") for page in (light, dark)]
    assert colours == ["rgb(255, 255, 255)", "rgb(20, 23, 27)"]
    assert kept(light, "top-light") != kept(dark, "top-dark")
    for name, page in (("light", light), ("dark", dark)):
        for place in ("h-waves", "calls", "h-ledger"):
            page.evaluate(f"document.getElementById('{place}').scrollIntoView()")
            kept(page, f"{place}-{name}")


def test_waves_stand_in_the_order_in_which_they_were_made_and_bars_inside_their_tracks(opened: Open) -> None:
    page = opened()
    rows = boxes(page, ".wave")
    assert [row["y"] for row in rows] == sorted(row["y"] for row in rows)
    spans = boxes(page, ".wave > .track .bar, .wave > summary .bar")
    assert len(spans) == len(rows) == 18
    assert [bar["x"] for bar in spans] == sorted(bar["x"] for bar in spans)
    track = boxes(page, ".track")[0]
    right = track["x"] + track["width"] + 3.5  # a bar of no length is drawn three pixels wide
    assert all(track["x"] <= bar["x"] and bar["x"] + bar["width"] <= right for bar in boxes(page, ".bar"))


def test_hundreds_of_calls_take_few_rows_until_somebody_opens_them(opened: Open) -> None:
    page = opened()
    assert len(boxes(page, ".track")) < 40
    page.get_by_text("wave 3: 230 calls").click()
    assert len(boxes(page, ".track")) > 230
    kept(page, "wave-open")


def test_arguments_and_replies_are_folded_until_their_call_is_opened(opened: Open) -> None:
    page = opened()
    call = page.locator("#call-3")
    assert not call.locator("pre").first.is_visible()
    call.locator("summary").click()
    assert call.locator("pre").first.inner_text() == (
        '{\n  "promised_from": "2026-03-06",\n  "promised_to": "2026-03-12",\n  "page": 3\n}'
    )
    page.evaluate("document.getElementById('call-3').scrollIntoView()")
    kept(page, "call-open")


def test_a_call_that_failed_is_two_links_away_from_the_top(opened: Open) -> None:
    page = opened()
    page.get_by_role("region", name="Not completed (13)").get_by_role("link").first.click()
    assert page.evaluate("() => document.querySelector(':target').id") == "call-9"
    assert page.locator("#call-9 summary").is_visible()
    page.locator("#call-9 summary").click()
    page.locator("#call-9").get_by_role("link", name="23").click()
    assert page.evaluate("() => document.querySelector(':target').id") == "line-23"


def focused(page: Any) -> str:
    return page.evaluate("() => document.activeElement.outerHTML.slice(0, 90)")


def test_everything_that_acts_is_reached_by_the_keyboard_in_the_order_of_the_page(opened: Open) -> None:
    page = opened()
    page.keyboard.press("Tab")
    assert "Skip to the calls" in focused(page)
    assert page.locator(".skip").first.is_visible()
    kept(page, "keyboard")
    wanted = page.evaluate(
        "() => [...document.querySelectorAll('a[href], summary, [tabindex]')]"
        ".filter(each => each.checkVisibility()).slice(0, 60).map(each => each.outerHTML.slice(0, 90))"
    )
    reached = [focused(page)]
    for _ in wanted[1:]:
        page.keyboard.press("Tab")
        reached.append(focused(page))
    assert reached == wanted


def test_a_call_is_opened_by_the_keyboard_from_the_link_that_skips_to_the_calls(opened: Open) -> None:
    page = opened()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert "#1" in focused(page)
    page.keyboard.press("Enter")
    assert page.locator("#call-1 pre").first.is_visible()


def test_names_and_roles_say_what_a_bar_shows(opened: Open) -> None:
    page = opened()
    first = page.get_by_role("img").first
    assert first.get_attribute("aria-label") == "shop/list_orders: completed, 55 ms"
    assert page.get_by_role("region", name="Waves").is_visible()
    assert [page.get_by_role("heading", level=level).count() for level in (1, 2)] == [1, 8]
    assert page.get_by_role("meter").count() == page.locator("meter").count() > 10
    bar = page.get_by_role("img", name="direct parallel calls: 1,085,394 bytes")
    assert "822,845 sent again" in (bar.get_attribute("aria-label") or "")


def test_on_a_narrow_screen_nothing_hangs_over_the_edge(opened: Open) -> None:
    page = opened(viewport=NARROW)
    assert page.evaluate("() => document.documentElement.scrollWidth") == NARROW["width"]
    kept(page, "narrow")
