"""The example does what it says, as a reader starts it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.providers.anthropic_wire import call, hosted_program, hosted_result, program, serving, text
from tests.test_examples import SHOP, WORST

ROOT = Path(__file__).parents[2]


def started(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    keys = ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "ANTHROPIC_AUTH_TOKEN")
    kept = {name: value for name, value in os.environ.items() if name not in keys}
    return subprocess.run(
        [sys.executable, "examples/live_anthropic.py", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=ROOT,
        env={**kept, "PYTHONPATH": str(ROOT), **environment},
    )


def test_the_example_answers_decides_and_says_what_it_took() -> None:
    found: list[str] = []

    def answer(request: dict[str, Any]) -> list[dict[str, Any]]:
        found.extend(block["content"] for m in request["messages"][2::2] for block in m["content"])
        return [text("Refunded.")]

    with serving() as wire:
        wire.play([program((SHOP / "late_orders.js").read_text("utf-8"), "toolu_1")])
        wire.play([program((SHOP / "refund.js").read_text("utf-8"), "toolu_2")], answer)
        done = started(ANTHROPIC_API_KEY="none", ANTHROPIC_BASE_URL=wire.base_url)
        assert wire.refusals == []
    assert (done.stderr, done.returncode) == ("", 0)
    assert done.stdout.splitlines() == ["Refunded.", "3 requests, 2 runs, 317 calls"]
    late, refund = found
    assert WORST[0][0] in late
    assert '"amount":28.56' in refund


def test_the_example_answers_the_program_that_the_vendor_runs() -> None:
    refund = {"order_id": "O-12660", "amount": 238, "reason": "late"}
    wave = [
        call("goodwill", {"total": 238, "days_late": 7}, "toolu_1", "srvtoolu_1"),
        call("shop__issue_refund", refund, "toolu_2", "srvtoolu_1"),
    ]
    with serving() as wire:
        wire.play([hosted_program("..."), *wave], [hosted_result("denied"), text("It needs a colleague.")])
        done = started("--hosted", ANTHROPIC_API_KEY="none", ANTHROPIC_BASE_URL=wire.base_url)
        assert wire.refusals == []
    assert (done.stderr, done.returncode) == ("", 0)
    assert done.stdout.splitlines() == ["It needs a colleague.", "2 requests, 1 runs, 2 calls"]
    owed, denied = (result["content"] for result in wire.results)
    assert owed == "28.56"
    assert denied.endswith("refunds over 50 EUR need a colleague")


def test_the_example_says_when_there_is_no_key() -> None:
    done = started()
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "ANTHROPIC_API_KEY is not set, so there is no model to ask: set it to a key of the API\n"


def test_the_example_fits_on_a_page() -> None:
    assert len((ROOT / "examples" / "live_anthropic.py").read_text("utf-8").splitlines()) < 50
