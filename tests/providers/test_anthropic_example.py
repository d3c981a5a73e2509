"""The example does what it says, as a reader starts it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.providers.anthropic_wire import program, serving, text
from tests.test_examples import SHOP, WORST

ROOT = Path(__file__).parents[2]


def started(**environment: str) -> subprocess.CompletedProcess[str]:
    keys = ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "ANTHROPIC_AUTH_TOKEN")
    kept = {name: value for name, value in os.environ.items() if name not in keys}
    return subprocess.run(
        [sys.executable, "examples/anthropic_loop.py"],
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
    assert done.stdout.splitlines() == ["Refunded.", "3 requests, 2 programs, 317 calls"]
    late, refund = found
    assert WORST[0][0] in late
    assert '"amount":28.56' in refund


def test_the_example_says_when_there_is_no_key() -> None:
    done = started()
    assert (done.returncode, done.stderr) == (1, "ANTHROPIC_API_KEY is not set: there is no model to ask\n")


def test_the_example_fits_on_a_page() -> None:
    assert len((ROOT / "examples" / "anthropic_loop.py").read_text("utf-8").splitlines()) < 50
