"""More programs than there is room for, and a host without descriptors: refused in words, and nothing is left."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import NoReturn

import anyio
import anyio.lowlevel
import pytest

from sandbox import Overloaded, Sandbox
from tests.sandbox.conftest import SMALL, play

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"  # what waits is anyio's own


FULL = (
    r"^2 programs wait for a worker \(max_queued\), and 1 have one \(max_waiting\): "
    r"run this one later, or raise a bound$"
)
NONE_LEFT = r"^no worker can be made now: Too many open files \(EMFILE\)\. Run this program later, or raise that limit$"


def forked(sandbox: Sandbox) -> list[int]:
    """Processes that the zygote has not reaped."""
    zygote = sandbox._origin.process.pid
    tasks = Path(f"/proc/{zygote}/task").iterdir()
    return [int(pid) for task in tasks for pid in task.joinpath("children").read_text("ascii").split()]


async def test_a_program_over_max_queued_is_refused_at_once_and_those_that_wait_run() -> None:
    ended: list[int] = []
    async with Sandbox(limits=SMALL, spares=0, max_waiting=1, max_queued=2) as sandbox:

        async def run(number: int, begun: bool) -> None:
            async with sandbox.worker(begun=begun):
                ended.append(number)

        async with anyio.create_task_group() as tasks, sandbox.worker():
            tasks.start_soon(run, 1, False)
            tasks.start_soon(run, 2, False)
            tasks.start_soon(run, 3, True)  # who has begun is never refused
            while sandbox.occupancy.queued < 3:
                await anyio.lowlevel.checkpoint()
            with pytest.raises(Overloaded, match=FULL):
                await run(4, begun=False)
        assert ended == [1, 2, 3]
        assert (await play(sandbox, "return 5")).value == 5


@pytest.mark.parametrize("call", ["socket.socketpair", "os.pidfd_open"])
async def test_a_host_without_descriptors_refuses_programs_keeps_its_zygote_and_recovers(
    call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def exhausted(*_: object) -> NoReturn:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    async with Sandbox(limits=SMALL, spares=0) as sandbox:
        await play(sandbox, "return 1")
        zygote = sandbox._origin  # no public name
        with monkeypatch.context() as patch:
            patch.setattr(call, exhausted)
            with pytest.raises(Overloaded, match=NONE_LEFT):
                await play(sandbox, "return 2")
        assert (await play(sandbox, "return 3")).value == 3
        with anyio.fail_after(30):
            while forked(sandbox):
                await anyio.lowlevel.checkpoint()
        assert sandbox._origin is zygote
