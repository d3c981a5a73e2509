"""The optional wrapper: what a worker's file tree holds, that all else is as without it, and what is said without it.

Where bubblewrap is not installed only the last part is there; `.ci/nightly` installs it.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from pathlib import Path

import anyio
import pytest

from sandbox import EngineUnavailable, Sandbox, bubblewrap

from .conftest import SMALL, play
from .jailed import linux
from .test_pool import children, descriptors, gone

pytestmark = [pytest.mark.anyio, linux]

INTERPRETER = os.path.realpath(sys.executable)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"  # the same code on both event loops, and another process's file tree is the matter here


def tree(pid: int) -> tuple[list[str], set[str]]:
    """Mount points of a process, and what is in its root folder (nothing, where we may not look)."""
    points = [line.split()[4] for line in Path(f"/proc/{pid}/mountinfo").read_text().splitlines()]
    root = Path(f"/proc/{pid}/root")
    return points, {entry.name for entry in root.iterdir()} if os.geteuid() == 0 else set()


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


async def test_a_wrapped_worker_has_every_wall_and_no_file_of_the_host() -> None:
    async with Sandbox(limits=SMALL, spares=1, bubblewrap=True, require=()) as sandbox:
        async with Sandbox(limits=SMALL, spares=1, require=()) as plain:
            assert sandbox.walls == plain.walls
        assert (await play(sandbox, "return (await tools.echo('a'))[0]")).value == "a"
        assert (await play(sandbox, "for (;;);")).death is not None
        async with sandbox.worker() as worker:
            points, entries = tree(worker.pid)
    bound = {*map(str, bubblewrap.read()), INTERPRETER}
    others = {"/", "/dev/null", "/dev/urandom", "/proc"}
    assert others <= {*points}
    assert {point for point in points if not point.startswith("/proc/")} <= bound | others
    assert entries <= {Path(path).parts[1] for path in (*bound, "/dev", "/proc")}
    assert "etc" not in entries


async def test_a_wrapped_zygote_that_is_killed_is_replaced_and_nothing_is_left() -> None:
    before = children(), descriptors()
    async with Sandbox(limits=SMALL, spares=0, bubblewrap=True) as sandbox:
        [spare] = sandbox._spares
        os.kill(parent_of(spare.pid), signal.SIGKILL)
        with anyio.fail_after(20):
            while spare.idle():  # noqa: ASYNC110  another process's doing
                await anyio.sleep(0.001)
            assert (await play(sandbox, "return 1")).value == 1
        await gone(sandbox)
    assert (children(), descriptors()) == before


async def test_a_wrapped_zygote_that_stands_still_goes_with_its_sandbox() -> None:
    async with Sandbox(limits=SMALL, spares=0, bubblewrap=True) as sandbox:
        [spare] = sandbox._spares
        zygote = os.pidfd_open(parent_of(spare.pid))
        signal.pidfd_send_signal(zygote, signal.SIGSTOP)
        spare.origin.kill()
        with anyio.fail_after(20):
            await anyio.wait_readable(zygote)
        os.close(zygote)


if shutil.which("bwrap") is None:  # no skip: what is installed decides what there is to test
    del test_a_wrapped_worker_has_every_wall_and_no_file_of_the_host
    del test_a_wrapped_zygote_that_is_killed_is_replaced_and_nothing_is_left
    del test_a_wrapped_zygote_that_stands_still_goes_with_its_sandbox


async def test_without_the_program_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    before = children(), descriptors()
    with pytest.raises(
        EngineUnavailable, match=r"^bubblewrap=True needs the program bwrap, which is not on PATH: inst"
    ):
        async with Sandbox(limits=SMALL, bubblewrap=True):
            pass
    assert (children(), descriptors()) == before


async def test_where_it_may_not_make_namespaces_it_is_said_how_to_look(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    refusing = tmp_path / "bwrap"
    refusing.write_text("#!/bin/sh\nexit 1\n")
    refusing.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(EngineUnavailable, match=r"under bubblewrap \(does `bwrap --ro-bind / / true` work here\?\)"):
        async with Sandbox(limits=SMALL, bubblewrap=True):
            pass


def test_a_worker_that_is_not_forked_is_not_wrapped() -> None:
    with pytest.raises(
        ValueError, match=r"^bubblewrap=True wraps a zygote, which fork=False has not: leave out one of"
    ):
        Sandbox(bubblewrap=True, fork=False)


def test_the_tree_holds_each_path_once_and_folders_that_all_may_enter() -> None:
    words = bubblewrap.wrapped(["/usr/bin/env", "-I"], bwrap="bwrap", root=False)
    bound = [Path(words[at + 1]) for at, word in enumerate(words) if word == "--ro-bind"]
    assert not [path for path in bound if set(bound).intersection(path.parents)]
    made = [words[at + 1] for at, word in enumerate(words) if word == "--dir"]
    assert "/dev" in made
    assert "/" not in made
    assert words[-2:] == [os.path.realpath("/usr/bin/env"), "-I"]
    assert "--cap-add" not in words
