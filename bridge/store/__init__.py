"""Where the journals of runs are kept: SQLite in a file or in memory, or PostgreSQL; one code path.

A map: `Store` (store.py) has the operations, statements.py their SQL; leases.py decides who may take a run and write to
it; rows.py is what goes in and out; grants.py keeps approvals that still hold; tables.py is the schema and its
migrations; database.py turns a URL into connections and decides when a commit is durable. A store knows no journal:
records are bytes in a fixed order.

**Who may write.** A run is written only under a lease: (owner, fence, until). Taking one raises the fence, and every
write names owner and fence in its condition, so that an owner which lost its lease can never write again, however wrong
its clock is. Times are the caller's (`now`, seconds since 1970, UTC): hosts that share a store should agree on the time
to within a fraction of `lease_s`; where they do not, a lease passes too early or too late, but never to two. A lease
past its time that nobody took still writes.

**What is durable when.** Every method is one transaction and returns after its commit.
SQLite: write-ahead log with `synchronous=FULL`, so a commit is appended to `FILE-wal` and fsynced before the method
returns (on macOS with F_FULLFSYNC); the database file itself is fsynced at checkpoints, before the log is used anew.
The directory is fsynced when the file is created, and by SQLite when the log is. A killed process loses nothing that
was acknowledged, and neither does a power loss on a disk that honours fsync. A new file is readable by its owner only
(0600), and its log has the file's mode. Not for network file systems: all processes must be on one host. Where several
processes write to one file, SQLite before 3.51.3 (3.50.7, 3.44.6) can in rare cases damage it (its "WAL-reset bug":
one process checkpoints while another begins the log anew); the threads of one process cannot, they write in turn.
PostgreSQL: a commit returns when its log is flushed, which needs `fsync`, `full_page_writes` and `synchronous_commit`
(any value but `off`); each new connection looks, and a server without them is refused. Whether a failover loses commits
is the server's `synchronous_standby_names`.
In memory: nothing survives the process.

**When a method raises `StoreFailed`** its transaction was rolled back, except that a connection lost during the commit
leaves open whether it took place: read the run again before writing to it. A repeated `append` cannot write twice,
because its place in the sequence is taken.

Every method blocks and may be called from any thread; beside an event loop call them in a worker thread.
"""

from __future__ import annotations

from bridge.store.grants import KeptGrants
from bridge.store.rows import FINISHED, Lease, LeaseHeld, LeaseLost, RunRow, RunStatus, StoreFailed, Waiting
from bridge.store.store import Store

__all__ = [
    "FINISHED",
    "KeptGrants",
    "Lease",
    "LeaseHeld",
    "LeaseLost",
    "RunRow",
    "RunStatus",
    "Store",
    "StoreFailed",
    "Waiting",
]
