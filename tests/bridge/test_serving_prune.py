"""`sandbridge serve` keeps the store that nobody chose small as long as it serves, and no other."""

from __future__ import annotations

import logging
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from bridge import config, screen, serving, where
from bridge.gateway import Gateway
from bridge.store import Store
from tests.bridge.store.conftest import begin


def place(folder: Path) -> where.Place:
    return where.place(None, None, {"XDG_STATE_HOME": str(folder)})


def old_run(store: Store) -> None:
    """One that ended in 1970."""
    store.release(begin(store, "old", records=(b"a",)), now=101, status="completed")


def names(kept: where.Place) -> list[str]:
    with kept.open() as store:
        return [row.id for row in store.runs()]


def test_runs_that_nobody_touches_are_dropped_while_it_serves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "PRUNE_S", 0.0)
    kept = place(tmp_path)
    with kept.open() as store:
        begin(store, "driven", lease_s=1e12)
    left: list[list[str]] = []

    async def host(stop: anyio.Event) -> None:
        with anyio.fail_after(60):
            for _ in range(2):  # not once only
                with kept.open() as store:
                    old_run(store)
                while "old" in names(kept):
                    await anyio.lowlevel.checkpoint()
                left.append(names(kept))

    assert serving._work(config.load(), Gateway(), screen.Screen(), kept, host) == 0
    assert left == [["driven"], ["driven"]]


def test_a_store_that_fails_is_said_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    kept = place(tmp_path)
    with kept.open() as store:
        old_run(store)
    file = tmp_path / "sandbridge" / "runs.db"
    good = file.rename(tmp_path / "good.db")
    file.write_bytes(b"no database" * 100)

    async def watch() -> None:
        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(serving._prepare_again, kept, 0.0)
                while not caplog.records:
                    await anyio.lowlevel.checkpoint()
                good.replace(file)
                while await anyio.to_thread.run_sync(is_there):
                    await anyio.lowlevel.checkpoint()
                tasks.cancel_scope.cancel()

    def is_there() -> bool:
        return "old" in names(kept)

    with caplog.at_level(logging.WARNING, "sandbridge"):
        anyio.run(watch)
    assert caplog.records[0].message.startswith("old runs are not dropped: ")
