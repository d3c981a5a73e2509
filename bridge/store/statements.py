"""The statements of a store, built once: building one takes longer than SQLite takes to run it.

What decides who may write stands in their conditions, so that it holds between processes and hosts too.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Final

from sqlalchemy import bindparam, insert, select, update

from bridge.store.rows import RunRow
from bridge.store.tables import records, runs

COLUMNS: Final = tuple(runs.c[field.name] for field in fields(RunRow))

ROW: Final = select(*COLUMNS).where(runs.c.id == bindparam("run"))
LOCKED: Final = select(*COLUMNS, runs.c.spent_claim).where(runs.c.id == bindparam("run")).with_for_update()
READ: Final = (
    select(records.c.data)
    .where(records.c.run_id == bindparam("run"), records.c.seq >= bindparam("after"))
    .order_by(records.c.seq)
)
CREATE: Final = insert(runs)
INSERT: Final = insert(records)
_HELD: Final = (
    runs.c.id == bindparam("run"),
    runs.c.lease_owner == bindparam("lease_by"),
    runs.c.fence == bindparam("lease_fence"),
)
RENEW: Final = update(runs).where(*_HELD).values(lease_until=bindparam("until"))
APPEND: Final = (
    update(runs)
    .where(*_HELD, runs.c.seq == bindparam("first"))
    .values(seq=bindparam("count"), updated=bindparam("now"), lease_until=bindparam("until"))
)
RELEASE: Final = (
    update(runs)
    .where(*_HELD)
    .values(
        status=bindparam("new_status"),
        updated=bindparam("now"),
        expires_at=bindparam("new_expires_at"),
        lease_owner=None,
        lease_until=0.0,
        claim_digest=bindparam("new_claim_digest"),
        waiting=bindparam("new_waiting"),
        outcome=bindparam("new_outcome"),
    )
)
ACQUIRE: Final = (
    update(runs)
    .where(runs.c.id == bindparam("run"))
    .values(
        status="running",
        updated=bindparam("now"),
        expires_at=None,
        lease_owner=bindparam("new_lease_owner"),
        lease_until=bindparam("new_lease_until"),
        fence=bindparam("new_fence"),
        claim_digest=bindparam("new_claim_digest"),
        spent_claim=bindparam("new_spent_claim"),
        waiting="[]",
    )
)
