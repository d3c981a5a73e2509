"""The journal of one run in a store, under the lease by which it may be written."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

import anyio
import anyio.to_thread

from bridge.errors import StateError
from bridge.journal import Ended, Record, encode

if TYPE_CHECKING:
    from bridge.store import Lease, RunRow, Store

T = TypeVar("T")


class StoreSink:
    """The journal of one run in a store, and the lease under which it is written.

    Attributes:
        lease: None while nobody drives the run.
        claim: What the state of the paused run holds.
        found: How the run stood before it was taken; None where it began here.
        used: Digest of the claim by which it was taken; None where it was by its id.
    """

    def __init__(
        self,
        store: Store,
        lease: Lease | None,
        seq: int,
        *,
        lease_s: float,
        found: RunRow | None = None,
        used: str | None = None,
    ) -> None:
        self.lease = lease
        self.claim = ""
        self.seq = seq
        self.found, self.used = found, used
        self._store = store
        self._lease_s = lease_s
        self._busy = anyio.Lock()

    async def write(self, records: Sequence[Record]) -> None:
        """Append records; durable when it returns. `StateError`: the run is somebody else's by now."""
        lines = [encode(record) for record in records]
        async with self._busy:
            lease = self.lease
            if lease is None:
                raise StateError("the run was given back, and nothing may be written to it")
            self.lease = await blocking(
                lambda: self._store.append(lease, self.seq, lines, now=time.time(), lease_s=self._lease_s)
            )
            self.seq += len(lines)

    async def renew(self) -> None:
        """Keep the lease while nothing is written. `StateError`: it is lost."""
        async with self._busy:
            lease = self.lease
            if lease is not None:
                self.lease = await blocking(lambda: self._store.renew(lease, now=time.time(), lease_s=self._lease_s))

    async def put_back(self, ended: Ended | None) -> None:
        """Give the run back as it was found, or as `ended` where it is: nothing was done with it.

        Raises:
            StoreFailed: The store could not.
        """
        found, lease = self.found, self.lease
        if found is None or lease is None:
            return
        self.lease = None
        if ended is not None:
            await blocking(lambda: self._store.release(lease, now=time.time(), status=ended.status))
        else:
            await blocking(lambda: put_back(self._store, lease, found, now=time.time(), used=self.used))


def put_back(store: Store, lease: Lease, found: RunRow, *, now: float, used: str | None = None) -> None:
    """Give a run back as it was found before it was taken.

    Args:
        found: Its row from before.
        used: Digest of the claim that it was taken by, which is open again. None: by its id; an open claim stays open.
    """
    claim = store.row(lease.run_id).claim_digest if used is None else used
    store.release(
        lease,
        now=now,
        status=found.status,
        claim_digest=claim if found.status == "paused" else None,
        waiting=found.waiting,
        expires_at=found.expires_at,
    )


async def blocking(work: Callable[[], T]) -> T:
    """Work of the store in a thread. A cancellation waits until what was written is known."""
    with anyio.CancelScope(shield=True):
        return await anyio.to_thread.run_sync(work)
    raise AssertionError("nobody cancels this scope itself")
