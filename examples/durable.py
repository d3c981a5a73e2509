"""A run that three processes share: one starts it and is killed, one approves, one goes on. Nothing is repeated.

python examples/durable.py

The store is all that they have in common. Each of the three is `python examples/durable.py STEP FOLDER`.
"""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path

import anyio

from bridge import Approve, Executor, Policy, ask, tool
from bridge.store import Store
from bridge.verdicts import judge, waiting

PROGRAM = """
const parcel = await tools.reserve({article: "lamp", pieces: 2});
const paid = await tools.charge({customer: "C-215", amount: parcel.price});
return {parcel: parcel.id, paid};
"""


class Shop:
    """Two tools with effects, each a row in a table that outlives the processes."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "book.db"

    def reserve(self, article: str, pieces: int) -> dict[str, object]:
        """Set articles aside."""
        self._write(f"reserved {pieces} x {article}")
        return {"id": "P-1", "price": 49.0 * pieces}

    def charge(self, customer: str, amount: float) -> str:
        """Take a customer's money."""
        self._write(f"charged {customer} {amount:g} EUR")
        return f"{amount:g} EUR"

    def entries(self) -> list[str]:
        """Everything that took effect."""
        with closing(sqlite3.connect(self._path)) as book:
            return [entry for (entry,) in book.execute("SELECT entry FROM book")]

    def _write(self, entry: str) -> None:
        with closing(sqlite3.connect(self._path)) as book, book:
            book.execute("CREATE TABLE IF NOT EXISTS book (entry TEXT)")
            book.execute("INSERT INTO book VALUES (?)", (entry,))


def executor(folder: Path) -> Executor:
    """As each process makes it: the tools are the process's own, the runs are in the store."""
    shop = Shop(folder)
    tools = [tool(shop.reserve), tool(shop.charge)]
    return Executor(tools, policy=Policy([ask("charge")]), store=f"sqlite:///{folder}/runs.db")


async def start(folder: Path) -> None:
    """Start the program; it pauses before the charge, and this process is killed."""
    async with executor(folder) as opened:
        run = await opened.start(PROGRAM)
        print(run.id, flush=True)
        await anyio.sleep_forever()


def approve(folder: Path) -> None:
    """Decide what waits. No tool and no program is needed for that."""
    with Store(f"sqlite:///{folder}/runs.db") as store:
        for run in waiting(store):
            for request in run.approvals:
                print(f"approved: {request.tool} {request.arguments} at line {request.line}")
            judge(store, run.run_id, {request.id: Approve() for request in run.approvals}, by="a colleague")


async def resume(folder: Path, run_id: str) -> None:
    """Go on where the journal ends."""
    async with executor(folder) as opened:
        run = await opened.load(run_id)
        assert run.result is not None, "nothing else was to be decided"
        print(run.result.text)


def story() -> None:
    """All three, one after the other."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__]
        with subprocess.Popen([*command, "start", folder], stdout=subprocess.PIPE, text=True) as first:
            assert first.stdout is not None
            run_id = first.stdout.readline().strip()
            first.kill()  # SIGKILL: it gets to say nothing
        print(f"killed: {first.returncode}; so far: {', '.join(Shop(Path(folder)).entries())}", flush=True)
        subprocess.run([*command, "approve", folder], check=True)
        subprocess.run([*command, "resume", folder, run_id], check=True)
        print("in the end:", ", ".join(Shop(Path(folder)).entries()))


if __name__ == "__main__":
    match sys.argv[1:]:
        case []:
            story()
        case ["start", folder]:
            anyio.run(start, Path(folder))
        case ["approve", folder]:
            approve(Path(folder))
        case ["resume", folder, run_id]:
            anyio.run(resume, Path(folder), run_id)
        case _:
            sys.exit("python examples/durable.py [start FOLDER | approve FOLDER | resume FOLDER RUN]")
