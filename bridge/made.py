"""Calls that were made elsewhere, in the place of a sandbox: a worker that has made them and ends when all came back.

So a run of a model's own calls is a run like any other: one wave, the same gate, the same journal, the same replay.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol

from sandbox import Call, Death, Limits, Reply, Returned, Start, Wave


class AnyWorker(Protocol):
    """What a run asks of a worker."""

    engine_digest: str

    @property
    def largest_frame(self) -> int: ...
    def cpu_s(self) -> float: ...
    def grown(self) -> int: ...


class Workers(Protocol):
    """What a run asks of a sandbox."""

    resting: dict[object, Callable[[], None]]

    def worker(self, *, begun: bool = False) -> AbstractAsyncContextManager[Any]: ...
    async def start(self, worker: Any, start: Start, limits: Limits) -> Wave | None: ...
    async def deliver(self, worker: Any, now_ms: float, replies: Sequence[Reply]) -> Wave | None: ...
    async def bury(self, worker: Any) -> Death: ...


class MadeWorker:
    """Knows how many of its calls have come back."""

    def __init__(self) -> None:
        self.engine_digest = ""
        self.largest_frame = 0
        self.came_back = 0

    def cpu_s(self) -> float:
        """It computes nothing."""
        return 0.0

    def grown(self) -> int:
        """It holds nothing."""
        return 0


class Made:
    """One wave of calls, as a sandbox."""

    def __init__(self, calls: Sequence[Call]) -> None:
        self.resting: dict[object, Callable[[], None]] = {}
        self._calls = list(calls)

    @asynccontextmanager
    async def worker(self, *, begun: bool = False) -> AsyncGenerator[MadeWorker]:
        """The one that has made the calls."""
        yield MadeWorker()

    async def start(self, worker: MadeWorker, start: Start, limits: Limits) -> Wave:
        """All calls at once."""
        return Wave(calls=self._calls)

    async def deliver(self, worker: MadeWorker, now_ms: float, replies: Sequence[Reply]) -> Wave:
        """Nothing more, until the last of them came back."""
        worker.came_back += len(replies)
        if worker.came_back < len(self._calls):
            return Wave()
        return Wave(heard=[call.id for call in self._calls], end=Returned())

    async def bury(self, worker: MadeWorker) -> Death:
        """There is no process that could die."""
        return Death("cancelled")
