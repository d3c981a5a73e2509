"""The worker of one run: taken when the program has its turn, given back while it sleeps, replaced when it dies."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

from bridge.made import AnyWorker, Workers
from sandbox import Death


class Seat:
    """At most one worker at a time, and what all of them have spent together.

    Attributes:
        stale: What the worker knows is not where the journal ends: a fresh one is needed.
    """

    def __init__(self, sandbox: Workers) -> None:
        self.worker: AnyWorker | None = None
        self.stale = False
        self._sandbox = sandbox
        self._holding: AbstractAsyncContextManager[AnyWorker] | None = None
        self._cpu_s = 0.0
        self._memory_bytes = 0
        self._frame_bytes = 0

    @property
    def cpu_s(self) -> float:
        """CPU seconds of all workers so far."""
        return self._cpu_s + (self.worker.cpu_s() if self.worker is not None else 0.0)

    @property
    def memory_bytes(self) -> int:
        """The most that one of them added to a ready worker."""
        return max(self._memory_bytes, self.worker.grown() if self.worker is not None else 0)

    @property
    def frame_bytes(self) -> int:
        """The largest frame that came from one of them."""
        return max(self._frame_bytes, self.worker.largest_frame if self.worker is not None else 0)

    async def take(self, *, begun: bool) -> AnyWorker:
        """A fresh worker, for a program that has not run before or has `begun`. `SandboxError`: there is none."""
        holding = self._sandbox.worker(begun=begun)
        worker = self.worker = await holding.__aenter__()
        self._holding, self.stale = holding, False
        return worker

    async def leave(self) -> None:
        """Give the worker back; nothing where there is none."""
        holding, self._holding = self._holding, None
        if holding is None:
            return
        self._cpu_s, self._memory_bytes, self._frame_bytes = self.cpu_s, self.memory_bytes, self.frame_bytes
        self.worker = None
        await holding.__aexit__(None, None, None)

    async def bury(self) -> Death:
        """Read how the worker ended, and leave it."""
        worker = self.worker
        assert worker is not None, "only who has a worker buries it"
        worker.cpu_s()
        worker.grown()
        death = await self._sandbox.bury(worker)
        await self.leave()
        return death
