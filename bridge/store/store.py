"""The operations of a store: who may write to a run, and in which order.

Each is one transaction. What decides stands in the condition of the statement that writes (append, renew, release), or
is read under the row's lock (acquire), so that it holds between processes and hosts too.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, replace
from types import TracebackType
from typing import Any, Final, Self, cast

from sqlalchemy import ColumnElement, Connection, Delete, Select, delete, or_, select
from sqlalchemy.exc import IntegrityError

from bridge.errors import StateError
from bridge.store.database import Database
from bridge.store.grants import KeptGrants
from bridge.store.leases import check_free, lost, unknown, until
from bridge.store.rows import (
    FINISHED,
    START,
    Lease,
    LeaseLost,
    RunRow,
    RunStatus,
    Waiting,
    check_status,
    kept,
    moment,
    name,
    plain,
    shown,
)
from bridge.store.statements import ACQUIRE, APPEND, COLUMNS, CREATE, INSERT, LOCKED, READ, RELEASE, RENEW, ROW
from bridge.store.tables import definitions, grants, runs

_PRUNED_AT_ONCE: Final = 500  # runs in one transaction: nobody who writes waits longer than for these


class Store:
    """Runs, their journals and the grants that still hold, in one database. Thread-safe; every method blocks.

    Opening it creates the tables, or brings those of an older version up to date.

    Args:
        url: `memory`; `sqlite:///runs.db` (relative to the working directory; four slashes: absolute); or
            `postgresql://user:password@host/database` with the options of libpq.

    Attributes:
        grants: Approvals that still hold.

    Raises:
        ConfigurationError: No such kind of database, its driver is missing, it cannot be opened, is none, was made by a
            newer version, or would not keep what it has acknowledged.
    """

    def __init__(self, url: str) -> None:
        self._database = Database(url)
        self.grants = KeptGrants(self._database)

    def __repr__(self) -> str:
        return f"<Store: {self._database.name.removeprefix('the store ')}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close its connections. What is in memory is lost."""
        self._database.close()

    def create(
        self,
        run_id: str,
        records: Sequence[bytes],
        *,
        owner: str,
        lease_s: float,
        now: float,
        program: str,
        audience: str,
        engine_digest: str,
    ) -> Lease:
        """Begin a run with its first records, and take its lease.

        Args:
            owner: Who will drive it: a name that no other process uses.
            program: Only its digest and its first 200 characters are kept here.

        Raises:
            StateError: There is a run of that id, or a text that cannot be stored.
            StoreFailed: The database could not do it.
        """
        lease = Lease(
            run_id=name("the run's id", run_id), owner=name("the owner", owner), fence=1, until=until(now, lease_s)
        )
        row = {
            "id": run_id,
            "status": "running",
            "created": now,
            "updated": now,
            "expires_at": None,
            "program_digest": hashlib.sha256(program.encode("utf-8", "surrogatepass")).hexdigest(),
            "program_start": kept(program[:START]),
            "audience": plain("the audience", audience),
            "engine_digest": plain("the engine's digest", engine_digest),
            "lease_owner": owner,
            "lease_until": lease.until,
            "fence": lease.fence,
            "seq": len(records),
            "claim_digest": None,
            "spent_claim": None,
            "waiting": "[]",
            "outcome": "",
        }
        with self._database.writing() as connection:
            try:
                connection.execute(CREATE, row)
            except IntegrityError as error:
                raise StateError(f"there is a run {shown(run_id)} already") from error
            _insert(connection, run_id, 0, records)
        return lease

    def append(self, lease: Lease, first_seq: int, records: Sequence[bytes], *, now: float, lease_s: float) -> Lease:
        """Write all of the records, or none, and renew the lease.

        Args:
            first_seq: How many records the journal has so far, as the caller knows it.

        Raises:
            LeaseLost: Another owner has the run, or has written to it; nothing was written.
            StoreFailed: The database could not do it.
        """
        ends = until(now, lease_s)
        with self._database.writing() as connection:
            _append(connection, lease, first_seq, records, now=now, ends=ends)
        return replace(lease, until=ends)

    def renew(self, lease: Lease, *, now: float, lease_s: float) -> Lease:
        """Keep the run for longer.

        Raises:
            LeaseLost: Another owner has it, or it was released.
            StoreFailed: The database could not do it.
        """
        ends = until(now, lease_s)
        with self._database.writing() as connection:
            if connection.execute(RENEW, _held(lease) | {"until": ends}).rowcount != 1:
                raise _lost(connection, lease)
        return replace(lease, until=ends)

    def release(
        self,
        lease: Lease,
        *,
        now: float,
        status: RunStatus,
        first_seq: int | None = None,
        records: Sequence[bytes] = (),
        claim_digest: str | None = None,
        waiting: Sequence[Waiting] = (),
        expires_at: float | None = None,
        outcome: str = "",
    ) -> None:
        """Give the lease back, and say how the run stands. The fence stays: whoever held the lease writes no more.

        Args:
            status: `running` leaves the run to whoever takes it next.
            first_seq, records: The last records, written in the same transaction, as by `append`.
            claim_digest: What `acquire` may be given, once; takes the place of an earlier one.
            waiting, expires_at: For `paused` only.
            outcome: A line for lists.

        Raises:
            LeaseLost: Another owner has it, or has written to it; nothing was changed.
            StateError: A status that is none, or something that only a paused run has, for another.
            StoreFailed: The database could not do it.
        """
        check_status(status)
        if status != "paused" and (waiting or claim_digest is not None or expires_at is not None):
            raise StateError(
                f"only a paused run waits for something and has a claim: run {shown(lease.run_id)} is {status}"
            )
        if records and first_seq is None:
            raise StateError("records need first_seq: how many the journal has so far")
        values = {
            "now": moment("now", now),
            "new_status": status,
            "new_claim_digest": None if claim_digest is None else plain("the claim's digest", claim_digest),
            "new_waiting": json.dumps([asdict(call) for call in waiting], allow_nan=False),
            "new_expires_at": None if expires_at is None else moment("expires_at", expires_at),
            "new_outcome": kept(outcome),
        }
        with self._database.writing() as connection:
            if first_seq is not None:
                _append(connection, lease, first_seq, records, now=now, ends=lease.until)
            if connection.execute(RELEASE, _held(lease) | values).rowcount != 1:
                raise _lost(connection, lease)

    def acquire(
        self, run_id: str, *, owner: str, lease_s: float, now: float, claim_digest: str | None = None
    ) -> tuple[Lease, list[bytes]]:
        """Take a run that nobody drives, or whose driver's lease is over, and read its journal. It is `running` then.

        Args:
            claim_digest: Of the claim that the state holds; it is used up. None: an operator's access, without one;
                an open claim stays open.

        Returns:
            The lease, and all records in order.

        Raises:
            StateError: Unknown or finished, held by somebody, or the claim was used, replaced or never for this run;
                nothing was changed.
            StoreFailed: The database could not do it.
        """
        ends = until(now, lease_s)
        name("the owner", owner)
        with self._database.writing() as connection:
            found = connection.execute(LOCKED, {"run": name("the run's id", run_id)}).mappings().one_or_none()
            if found is None:
                raise unknown(run_id)
            check_free(found, now=now, claim_digest=claim_digest)
            lease = Lease(run_id=run_id, owner=owner, fence=found["fence"] + 1, until=ends)
            values = {
                "new_claim_digest": found["claim_digest"] if claim_digest is None else None,
                "new_spent_claim": found["spent_claim"] if claim_digest is None else claim_digest,
                "new_lease_owner": owner,
                "new_lease_until": ends,
                "new_fence": lease.fence,
                "now": now,
                "run": run_id,
            }
            connection.execute(ACQUIRE, values)
            return lease, list(connection.execute(READ, {"run": run_id, "after": 0}).scalars())

    def read(self, run_id: str, after: int = 0) -> list[bytes]:
        """The records of a run in order, without the first `after`; whoever drives it may be writing more.

        Raises:
            StateError: Unknown.
            StoreFailed: The database could not do it.
        """
        name("the run's id", run_id)
        with self._database.reading() as connection:
            found = list(connection.execute(READ, {"run": run_id, "after": after}).scalars())
            if not found and connection.execute(ROW, {"run": run_id}).one_or_none() is None:
                raise unknown(run_id)
        return found

    def row(self, run_id: str) -> RunRow:
        """What is known of a run.

        Raises:
            StateError: Unknown.
            StoreFailed: The database could not do it.
        """
        name("the run's id", run_id)
        with self._database.reading() as connection:
            found = connection.execute(ROW, {"run": run_id}).mappings().one_or_none()
        if found is None:
            raise unknown(run_id)
        return _row(found)

    def runs(self, status: RunStatus | None = None, *, limit: int = 50, since: float | None = None) -> list[RunRow]:
        """Runs, the newest first.

        Args:
            since: Only those created then or later; seconds since 1970, UTC.

        Raises:
            StateError: A status that is none.
            StoreFailed: The database could not do it.
        """
        query = select(*COLUMNS)
        if status is not None:
            check_status(status)
            query = query.where(runs.c.status == status)
        if since is not None:
            query = query.where(runs.c.created >= since)
        return self._rows(query.order_by(runs.c.created.desc(), runs.c.id.desc()).limit(limit))

    def expired(self, *, now: float, limit: int = 1000) -> list[RunRow]:
        """Paused runs that wait for something whose time is over and that nobody drives; the longest overdue first.

        Raises:
            StoreFailed: The database could not do it.
        """
        over = (runs.c.status == "paused", runs.c.expires_at <= now, _free(now))
        return self._rows(select(*COLUMNS).where(*over).order_by(runs.c.expires_at, runs.c.id).limit(limit))

    def abandoned(self, *, now: float, limit: int = 1000) -> list[RunRow]:
        """Runs that say `running` while nobody holds their lease: their process is gone. The oldest first.

        Raises:
            StoreFailed: The database could not do it.
        """
        gone = (runs.c.status == "running", _free(now))
        return self._rows(select(*COLUMNS).where(*gone).order_by(runs.c.created, runs.c.id).limit(limit))

    def prune(self, *, before: float, now: float, statuses: Collection[RunStatus] = FINISHED) -> int:
        """Delete runs with all that belongs to them, grants included; never one that somebody drives.

        Args:
            before: Those last changed before this time; seconds since 1970, UTC.
            statuses: Of which kinds.

        Returns:
            How many there were.

        Raises:
            StateError: A status that is none.
            StoreFailed: The database could not do it; some may have been deleted.
        """
        for status in statuses:
            check_status(status)
        old = (
            select(runs.c.id)
            .where(runs.c.status.in_(sorted(statuses)), runs.c.updated < before, _free(now))
            .limit(_PRUNED_AT_ONCE)
            .with_for_update(skip_locked=True)  # one that is being taken is not old
        )
        pruned = 0
        while True:
            with self._database.writing() as connection:
                ids = list(connection.execute(old).scalars())
                if not ids:
                    connection.execute(_forgotten(before))
                    return pruned
                connection.execute(delete(grants).where(grants.c.run_id.in_(ids)))
                connection.execute(delete(runs).where(runs.c.id.in_(ids)))  # and their records
                pruned += len(ids)

    def _rows(self, query: Select[tuple[Any, ...]]) -> list[RunRow]:
        with self._database.reading() as connection:
            return [_row(found) for found in connection.execute(query).mappings()]


def _forgotten(before: float) -> Delete:
    held = select(grants.c.definition_digest)
    return delete(definitions).where(definitions.c.seen < before, definitions.c.digest.not_in(held))


def _free(now: float) -> ColumnElement[bool]:
    return or_(runs.c.lease_owner.is_(None), runs.c.lease_until <= now)


def _held(lease: Lease) -> dict[str, Any]:
    return {"run": lease.run_id, "lease_by": lease.owner, "lease_fence": lease.fence}


def _append(
    connection: Connection, lease: Lease, first_seq: int, records: Sequence[bytes], *, now: float, ends: float
) -> None:
    values = {"first": first_seq, "count": first_seq + len(records), "now": moment("now", now), "until": ends}
    if connection.execute(APPEND, _held(lease) | values).rowcount != 1:
        raise _lost(connection, lease, first_seq)
    _insert(connection, lease.run_id, first_seq, records)


def _insert(connection: Connection, run_id: str, first_seq: int, records: Sequence[bytes]) -> None:
    if records:
        rows = [{"run_id": run_id, "seq": seq, "data": data} for seq, data in enumerate(records, first_seq)]
        connection.execute(INSERT, rows)


def _lost(connection: Connection, lease: Lease, first_seq: int | None = None) -> LeaseLost:
    return lost(connection.execute(ROW, {"run": lease.run_id}).mappings().one_or_none(), lease, first_seq)


def _row(found: Mapping[Any, Any]) -> RunRow:
    values = dict(cast("Mapping[str, Any]", found))
    values["waiting"] = tuple(Waiting(**call) for call in json.loads(values["waiting"]))
    return RunRow(**values)
