"""A host that is killed at every moment that counts, in a process of its own, over a real store and real effects.

Which moments count, and why they are all, says victim.py.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from anyio.from_thread import BlockingPortal

from bridge.journal import decode
from bridge.state import RunState, fold
from bridge.store import Store
from sandbox import Sandbox
from tests.durable.victim import LIMITS, carry_out
from tests.durable.world import HOUR, Effects

ROOT = Path(__file__).parents[2]
SERVER = os.environ.get("SANDBRIDGE_TEST_POSTGRESQL")
NIGHTLY = bool(os.environ.get("SANDBRIDGE_NIGHTLY"))
IDEMPOTENT = ("again", "echo")  # echo reads only
DONE = ["write 1", "write 2", "again 3", "NO", 5, "gated 6", "person 7", "again 8", "again 9", "person 10", "gated 11"]
needs_server = pytest.mark.skipif(SERVER is None, reason="SANDBRIDGE_TEST_POSTGRESQL names no server")


class Victims:
    """The process that forks hosts."""

    def __init__(self, portal: BlockingPortal, sandbox: Sandbox) -> None:
        self._portal = portal
        self._sandbox = sandbox
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.durable.victim"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={"PYTHONPATH": str(ROOT), "PATH": os.defpath},
        )

    def host(self, order: dict[str, Any]) -> dict[str, Any]:
        """Have one host carry out an order; what it said, and whether it was killed.

        One that is to live is in this process, which is another one too.
        """
        if not order["kill_after"]:
            return {"killed": False, **self._portal.call(carry_out, order, self._sandbox)}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the process that forks hosts has ended"
        said = json.loads(line)
        assert "error" not in said, said["error"]
        return said

    def end(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.kill()
        self._process.wait()
        self._process.stdout.close()


@pytest.fixture(scope="module")
def victims(portal: BlockingPortal) -> Iterator[Victims]:
    with portal.wrap_async_context_manager(Sandbox(limits=LIMITS)) as sandbox:
        started = Victims(portal, sandbox)
        yield started
        started.end()


@pytest.fixture
def folder() -> Iterator[Path]:
    """In memory where there is such: a process that is killed needs no disk to survive it."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as name:
        yield Path(name)


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=needs_server)])
def url(request: pytest.FixtureRequest, folder: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{folder}/runs.db"
        return
    import psycopg

    assert SERVER is not None
    name = f"test_{uuid.uuid4().hex}"
    with psycopg.connect(SERVER, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {name}".encode())
        yield f"{SERVER}?options=-csearch_path%3D{name}"
        connection.execute(f"DROP SCHEMA {name} CASCADE".encode())


def sent_and_not_heard_of(state: RunState) -> set[int]:
    return {number for number, call in state.calls.items() if call.stage == "running"}


def check(effects: Effects, run_id: str, crashes: list[RunState], end: RunState, said: dict[str, Any]) -> None:
    """No effect doubled, none lost, and what is not known is said to be so, exactly where it is not."""
    lost = {number for crash in crashes for number in sent_and_not_heard_of(crash)}
    unknown = {number for number, call in end.calls.items() if call.outcome == "unknown"}
    assert unknown == {number for number in lost if end.calls[number].tool not in IDEMPOTENT}
    keys = {call: key for _, call, key, _ in effects.rows()}
    assert all(call == key for call, key in keys.items())
    for number, call in end.calls.items():
        times = effects.times(f"{run_id}.{number}")
        if call.tool in ("person", "both"):
            assert times == 0
        elif call.tool in IDEMPOTENT:
            assert 1 <= times <= 1 + sum(number in sent_and_not_heard_of(crash) for crash in crashes)
        elif number in unknown:
            assert times <= 1
        else:
            assert times == 1, f"call {number} ({call.tool}) is {call.outcome} and took effect {times} times"
    ns = {number: json.loads(bytes(call.made))[0]["n"] for number, call in end.calls.items()}
    assert sorted(ns.values()) == list(range(1, 13))
    nobody_awaits = any(ns[number] == 12 for number in unknown)
    expected = [
        "unknown_outcome" if n in {ns[number] for number in unknown} else done for n, done in enumerate(DONE, 1)
    ]
    assert said["status"] == ("failed" if nobody_awaits else "completed")
    assert said["value"] == (None if nobody_awaits else expected)


def kept_state(url: str) -> tuple[str, list[bytes]] | None:
    with Store(url) as store:
        rows = store.runs()
        return (rows[0].id, store.read(rows[0].id)) if rows else None


def killed_at(victims: Victims, folder: Path, url: str, backend: str, moments: list[int]) -> bool:
    """One run, whose hosts are killed after these numbers of moments in turn; False when none was killed."""
    path = folder / f"effects-{uuid.uuid4().hex}.db"
    effects = Effects(path)
    crashes: list[RunState] = []
    journal: list[bytes] = []
    run_id, killed = "", False
    try:
        for moment in [*moments, 0]:
            order = {"run": run_id, "url": url, "effects": str(path), "backend": backend, "kill_after": moment}
            order["ahead_s"] = HOUR * len(crashes)
            said = victims.host(order)
            if not said["killed"]:
                break
            killed = True
            found = kept_state(url)
            if found is None:
                assert effects.rows() == []
                continue
            run_id, lines = found
            assert lines[: len(journal)] == journal, "what was written is not written again"
            journal = lines
            crashes.append(fold(decode(lines)))
            if crashes[-1].ended is not None:
                return killed  # only its release was missing
        found = kept_state(url)
        assert found is not None
        assert found[1][: len(journal)] == journal
        check(effects, found[0], crashes, fold(decode(found[1])), said)
        return killed
    finally:
        effects.close()
        with Store(url) as store:
            store.prune(before=1e12, now=1e12, statuses=["running", "paused", "completed", "failed"])


@pytest.mark.parametrize("backend", ["asyncio", "trio"] if NIGHTLY else ["asyncio"])
def test_a_host_that_is_killed_at_any_moment_doubles_and_loses_no_effect(
    victims: Victims, folder: Path, url: str, backend: str
) -> None:
    moment = 1
    while killed_at(victims, folder, url, backend, [moment]):
        moment += 1
    assert moment > 24  # a dozen calls


def test_a_host_that_is_killed_again_while_it_takes_over_doubles_and_loses_no_effect(
    victims: Victims, folder: Path, url: str
) -> None:
    for first in range(5, 40, 3 if NIGHTLY else 15):
        for second in range(2, 6, 1 if NIGHTLY else 3):
            killed_at(victims, folder, url, "asyncio", [first, second])
