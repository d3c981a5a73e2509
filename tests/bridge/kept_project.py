"""A project whose runs are kept in a store beside it, and the command in it."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import subprocess
import sys
from pathlib import Path

from typer.testing import CliRunner, Result

import bridge
from bridge.cli import app

ROOT = Path(bridge.__file__).parents[1]
TOOLS = '''
import os, signal, sqlite3
from pathlib import Path
from bridge import Tool, tool

LEDGER = Path(__file__).parent / "ledger.db"


def booked(what: str) -> None:
    with sqlite3.connect(LEDGER) as ledger:
        ledger.execute("CREATE TABLE IF NOT EXISTS effects (what TEXT)")
        ledger.execute("INSERT INTO effects VALUES (?)", (what,))
    ledger.close()


@tool
def order(number: int) -> dict:
    """One order."""
    booked(f"order {number}")
    return {"number": number, "token": "tok-0123456789"}


@tool
def refund(number: int, amount: int) -> str:
    """Gives money back."""
    booked(f"refund {number} {amount}")
    return f"{amount} for {number}"


@tool
def crash() -> str:
    """Takes its host down the first time."""
    flag = LEDGER.with_name("crashed")
    booked("crash")
    if not flag.exists():
        flag.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return "survived"


person = Tool(name="person", description="Asks a person.", input_schema={"type": "object"})
'''
CONFIG = """
functions = ["tools.py:*", "tools.py:person"]
[[rules]]
tool = "refund"
decision = "ask"
reason = "money"
[store]
url = "sqlite:///runs.db"
"""
ONE = "return await tools.refund({number: 1, amount: 5})"
STORY = """\
const first = await tools.order({number: 1});
text("one");
const both = await Promise.all([tools.refund({number: 1, amount: 5}), tools.refund({number: 2, amount: 6})]);
return [first.number, ...both];"""


def command(*words: str, program: str | None = None, given: str = "") -> Result:
    """The command in this process; a program given here is `p.js`."""
    if program is not None:
        Path("p.js").write_text(program)
    return CliRunner().invoke(app, list(words), input=given)


def process(*words: str, program: str | None = None) -> subprocess.CompletedProcess[str]:
    """The command as a process of its own."""
    if program is not None:
        Path("p.js").write_text(program)
    line = [sys.executable, "-W", "error", "-m", "bridge.cli", *words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        line, env=environment, capture_output=True, text=True, check=False, timeout=120, stdin=subprocess.DEVNULL
    )


def paused(program: str = STORY, *options: str) -> str:
    """The id of a run that waits in the store."""
    done = command("run", "p.js", *options, "--json", program=program)
    assert (done.exit_code, json.loads(done.stdout)["status"]) == (3, "paused"), done.output
    return json.loads(done.stdout)["run_id"]


def effects(folder: Path) -> list[str]:
    """What the tools did, counted where it was done."""
    with sqlite3.connect(folder / "ledger.db") as ledger:
        rows = [row[0] for row in ledger.execute("SELECT what FROM effects ORDER BY what")]
    ledger.close()
    return rows


def lapse(folder: Path) -> None:
    """Time has passed: the lease of whoever died is over."""
    with sqlite3.connect(folder / "runs.db") as store:
        store.execute("UPDATE sandbridge_runs SET lease_until = 1")
    store.close()


def plain(text: str, run_id: str) -> list[str]:
    """Lines without what differs from run to run."""
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ", "TIME", text.replace(run_id, "RUN"))
    return re.sub(r"seed \d+", "seed N", text).split("\n")
