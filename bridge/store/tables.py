"""The tables, and the numbered steps that bring an older database up to them.

A step that was released is never changed: what comes later is a further step. A database that a newer version has
written to is refused, because what this version would not understand it could also not keep.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Double,
    ForeignKey,
    Index,
    LargeBinary,
    MetaData,
    Table,
    Text,
    func,
    insert,
    inspect,
    select,
    update,
)

from bridge.errors import ConfigurationError

# Prefixed, because a PostgreSQL database may be shared with the application.
metadata: Final = MetaData()
meta: Final = Table(
    "sandbridge_meta",
    metadata,
    Column("key", Text, primary_key=True),
    Column("value", Text, nullable=False),
)
runs: Final = Table(
    "sandbridge_runs",
    metadata,
    Column("id", Text, primary_key=True),
    Column("status", Text, nullable=False),
    Column("created", Double, nullable=False),
    Column("updated", Double, nullable=False),
    Column("expires_at", Double),
    Column("program_digest", Text, nullable=False),
    Column("program_start", Text, nullable=False),
    Column("audience", Text, nullable=False),
    Column("engine_digest", Text, nullable=False),
    Column("lease_owner", Text),
    Column("lease_until", Double, nullable=False),
    Column("fence", BigInteger, nullable=False),
    Column("seq", BigInteger, nullable=False),
    Column("claim_digest", Text),
    Column("spent_claim", Text),  # the one used last, so that using it again can be called that
    Column("waiting", Text, nullable=False),  # JSON
    Column("outcome", Text, nullable=False),
)
Index("sandbridge_runs_created", runs.c.created)
Index("sandbridge_runs_status_created", runs.c.status, runs.c.created)
records: Final = Table(
    "sandbridge_records",
    metadata,
    Column("run_id", Text, ForeignKey(runs.c.id, ondelete="CASCADE"), primary_key=True),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),  # from 0, without holes
    Column("data", LargeBinary, nullable=False),
)
grants: Final = Table(
    "sandbridge_grants",
    metadata,
    Column("id", Text, primary_key=True),
    Column("given", Double, nullable=False),
    Column("tool", Text, nullable=False),
    Column("server_identity", Text),
    Column("definition_digest", Text, nullable=False),
    Column("run_id", Text),
    Column("call_id", Text),
    Column("arguments_digest", Text),
    Column("until", Double, nullable=False),  # infinity where only the end of the run ends it
)
definitions: Final = Table(  # what tools said when somebody was asked about them, so that a change can be shown
    "sandbridge_definitions",
    metadata,
    Column("digest", Text, primary_key=True),
    Column("definition", Text, nullable=False),  # JSON
    Column("seen", Double, nullable=False),
)
Index("sandbridge_grants_tool", grants.c.tool)
Index("sandbridge_grants_run", grants.c.run_id)

Migration = Callable[[Connection], None]
_LOCK: Final = 0x73616E6462726467  # PostgreSQL's advisory locks have numbers; this one is "sandbrdg"


def _first(connection: Connection) -> None:
    """Version 1. The step that changes a table first copies the old definitions to here."""
    metadata.create_all(connection, tables=[meta, runs, records, grants], checkfirst=False)


def _second(connection: Connection) -> None:
    """Version 2: definitions are kept."""
    metadata.create_all(connection, tables=[definitions], checkfirst=False)


MIGRATIONS: Final[Sequence[Migration]] = (_first, _second)


def version(connection: Connection) -> int:
    """The version of the schema; 0 where there is none.

    Raises:
        ConfigurationError: The table that should say it says something else.
    """
    if not inspect(connection).has_table(meta.name):
        return 0
    value = connection.execute(select(meta.c.value).where(meta.c.key == "schema")).scalar_one_or_none()
    if value is None or not value.isdecimal():
        raise ConfigurationError(f"the table {meta.name} has no version: it was not made by sandbridge, or is damaged")
    return int(value)


def is_current(connection: Connection, migrations: Sequence[Migration]) -> bool:
    """Whether there is nothing to do.

    Raises:
        ConfigurationError: A newer version made it.
    """
    found = version(connection)
    if found > len(migrations):
        raise ConfigurationError(
            f"the database has schema {found}, this version of sandbridge knows up to {len(migrations)}: upgrade it"
        )
    return found == len(migrations)


def migrate(connection: Connection, migrations: Sequence[Migration]) -> None:
    """Bring the schema up to the last of the steps, within the caller's transaction. Only one process does so at once.

    Raises:
        ConfigurationError: A newer version made it, meanwhile perhaps.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_advisory_xact_lock(_LOCK)))
    if is_current(connection, migrations):
        return
    found = version(connection)
    for step in migrations[found:]:
        step(connection)
    if found:
        connection.execute(update(meta).where(meta.c.key == "schema").values(value=str(len(migrations))))
    else:
        connection.execute(insert(meta).values(key="schema", value=str(len(migrations))))
