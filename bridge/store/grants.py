"""Approvals that outlive the process in which they were given.

Which grant covers a call is decided in `bridge.approval`; here is only what still holds, and who may use it up.
"""

from __future__ import annotations

import contextlib
import json
import math
import uuid
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Final

from sqlalchemy import Row, bindparam, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from bridge.approval import Grant
from bridge.errors import StateError
from bridge.store.database import Database
from bridge.store.rows import moment, plain
from bridge.store.tables import definitions, grants

if TYPE_CHECKING:
    from bridge.definitions import Definition

_FIELDS: Final = ("tool", "server_identity", "definition_digest", "run_id", "call_id", "arguments_digest", "until")
_ADD: Final = insert(grants)
_DROP_OVER: Final = delete(grants).where(grants.c.until <= bindparam("now"))
_SPEND: Final = delete(grants).where(grants.c.id == bindparam("grant"))
_SEEN_AGAIN: Final = update(definitions).where(definitions.c.digest == bindparam("key")).values(seen=bindparam("now"))
_FORGET: Final = delete(grants).where(grants.c.run_id == bindparam("run"))


class KeptGrants:
    """The grants of one store; `Store.grants` is one."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def valid(self, *, now: float, tool: str | None = None) -> dict[str, Grant]:
        """Those that hold, by id, oldest first; only those of one tool where it is named.

        Raises:
            StoreFailed: The database could not say.
        """
        query = select(grants.c.id, *(grants.c[field] for field in _FIELDS)).where(grants.c.until > now)
        if tool is not None:
            query = query.where(grants.c.tool == plain("the tool's name", tool))
        with self._database.reading() as connection:
            rows = connection.execute(query.order_by(grants.c.given, grants.c.id)).all()
        return {row.id: _grant(row) for row in rows}

    def add(self, grant: Grant, *, now: float) -> str:
        """Keep it, and drop those that no longer hold.

        Args:
            grant: `until` may be infinity.

        Returns:
            Its id, for `spend`.

        Raises:
            StateError: Text that cannot be stored, or a time that is not a number.
            StoreFailed: The database could not do it.
        """
        values = {field: getattr(grant, field) for field in _FIELDS}
        for field, value in values.items():
            if isinstance(value, str):
                plain(f"{field} of the grant", value)
        if math.isnan(grant.until):
            raise StateError("until of the grant must be a time or infinity, not nan")
        grant_id = uuid.uuid4().hex
        with self._database.writing() as connection:
            connection.execute(_DROP_OVER, {"now": moment("now", now)})
            connection.execute(_ADD, {"id": grant_id, "given": now, **values})
        return grant_id

    def spend(self, grant_id: str) -> bool:
        """Use it up. True for exactly one caller, in whatever process: only that one may send the call.

        Raises:
            StoreFailed: The database could not do it.
        """
        with self._database.writing() as connection:
            return connection.execute(_SPEND, {"grant": plain("the grant's id", grant_id)}).rowcount == 1

    def void(self, *, tool: str, server_identity: str | None, definition_digest: str) -> int:
        """Drop what was granted to other definitions of this tool of this server, for good; how many there were.

        Raises:
            StoreFailed: The database could not do it.
        """
        others = delete(grants).where(
            grants.c.tool == plain("the tool's name", tool),
            grants.c.server_identity.is_not_distinct_from(server_identity),
            grants.c.definition_digest != definition_digest,
        )
        with self._database.writing() as connection:
            return connection.execute(others).rowcount

    def keep_definitions(self, seen: Mapping[str, Definition], *, now: float) -> None:
        """Keep what tools say, by their digests, for whoever has to show what changed.

        Raises:
            StoreFailed: The database could not do it.
        """
        with self._database.writing() as connection:
            for digest, said in seen.items():
                if connection.execute(_SEEN_AGAIN, {"key": digest, "now": moment("now", now)}).rowcount:
                    continue
                row = {"digest": digest, "definition": json.dumps(said), "seen": now}
                with contextlib.suppress(IntegrityError), connection.begin_nested():  # another process was faster
                    connection.execute(insert(definitions), row)

    def definitions(self, digests: Collection[str]) -> dict[str, Definition]:
        """What tools of these digests say; those that nobody kept are left out.

        Raises:
            StoreFailed: The database could not say.
        """
        if not digests:
            return {}
        query = select(definitions.c.digest, definitions.c.definition).where(definitions.c.digest.in_(sorted(digests)))
        with self._database.reading() as connection:
            return {row.digest: json.loads(row.definition) for row in connection.execute(query).all()}

    def forget(self, run_id: str) -> int:
        """Drop what was granted within a run; how many there were. `Store.prune` does so too.

        Raises:
            StoreFailed: The database could not do it.
        """
        with self._database.writing() as connection:
            return connection.execute(_FORGET, {"run": plain("the run's id", run_id)}).rowcount


def _grant(row: Row[tuple[object, ...]]) -> Grant:
    return Grant(**{field: getattr(row, field) for field in _FIELDS})
