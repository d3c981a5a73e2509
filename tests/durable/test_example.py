"""The story of three processes: one starts a run and is killed, another approves, a third goes on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SHOWN = """\
killed: -9; so far: reserved 2 x lamp
approved: charge {'customer': 'C-215', 'amount': 98} at line 3
[sandbridge] completed; 2 calls
{"parcel":"P-1","paid":"98 EUR"}
in the end: reserved 2 x lamp, charged C-215 98 EUR
"""


def test_one_process_starts_a_run_and_is_killed_another_approves_and_a_third_goes_on() -> None:
    done = subprocess.run(
        [sys.executable, "examples/durable.py"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=ROOT,
    )
    assert (done.stdout, done.stderr, done.returncode) == (SHOWN, "", 0)
