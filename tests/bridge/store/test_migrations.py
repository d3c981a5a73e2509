"""Databases of older versions are brought up to date, those of newer ones are refused.

`store_1.sql` is a database of version 1 with a paused run and a grant. It is never made anew: as long as version 1 can
be opened, this is what it looks like. A further version adds a file of its own.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from sqlalchemy import Connection, inspect, text

from bridge.errors import ConfigurationError
from bridge.store import Store, Waiting
from bridge.store.database import Database
from bridge.store.tables import MIGRATIONS, metadata, version
from tests.bridge.store.conftest import begin
from tests.conftest import DATA


def add_a_column(connection: Connection) -> None:
    connection.execute(text("ALTER TABLE sandbridge_runs ADD COLUMN parent TEXT"))
    connection.execute(text("UPDATE sandbridge_runs SET parent = 'none'"))


def fail(connection: Connection) -> None:
    connection.execute(text("CREATE TABLE half (made INTEGER)"))
    connection.execute(text("SELECT no_such_column FROM sandbridge_runs"))


def schema_of(path: Path) -> list[tuple[str, str]]:
    with sqlite3.connect(path) as connection:
        found = connection.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name").fetchall()
    connection.close()
    return [(name, " ".join(sql.split())) for name, sql in found]


def old(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.executescript((DATA / "store_1.sql").read_text("utf-8"))
    connection.close()


def test_a_database_of_version_1_is_opened_and_has_all_it_had(tmp_path: Path) -> None:
    old(tmp_path / "runs.db")
    with Store(f"sqlite:///{tmp_path}/runs.db") as store:
        row = store.row("old")
        assert (row.status, row.seq, row.fence, row.claim_digest) == ("paused", 2, 1, "claim")
        assert row.waiting == (Waiting(call="c1", tool="pay", kind="approval", expires_at=500, line=3),)
        assert [grant.tool for grant in store.grants.valid(now=100).values()] == ["pay"]
        lease, records = store.acquire("old", owner="two", lease_s=10, now=200, claim_digest="claim")
        assert records == [b"\0program", b"reply"]
        store.append(lease, 2, [b"more"], now=201, lease_s=10)


def test_what_version_1_makes_has_not_changed(tmp_path: Path) -> None:
    old(tmp_path / "old.db")
    Database(f"sqlite:///{tmp_path}/new.db", MIGRATIONS[:1]).close()
    assert schema_of(tmp_path / "new.db") == schema_of(tmp_path / "old.db")


def test_all_steps_together_make_the_tables_that_the_statements_are_built_on(url: str) -> None:
    with Store(url) as store, store._database.reading() as connection:
        found = inspect(connection)
        for table in metadata.sorted_tables:
            assert [column["name"] for column in found.get_columns(table.name)] == [*table.columns.keys()]
            assert {index["name"] for index in found.get_indexes(table.name)} == {index.name for index in table.indexes}
        assert version(connection) == len(MIGRATIONS)


def test_a_further_step_is_taken_once_and_keeps_what_is_there(url: str) -> None:
    with Store(url) as store:
        begin(store, records=(b"a",))
    for _ in range(2):
        database = Database(url, [*MIGRATIONS, add_a_column])
        with database.reading() as connection:
            assert version(connection) == len(MIGRATIONS) + 1
            assert connection.execute(text("SELECT id, parent FROM sandbridge_runs")).all() == [("run", "none")]
        database.close()


def test_an_empty_database_takes_all_steps(url: str) -> None:
    database = Database(url, [*MIGRATIONS, add_a_column])
    with database.reading() as connection:
        assert version(connection) == len(MIGRATIONS) + 1
        assert "parent" in {column["name"] for column in inspect(connection).get_columns("sandbridge_runs")}
    database.close()


def test_a_step_that_fails_leaves_the_database_as_it_was(url: str) -> None:
    with Store(url) as store:
        begin(store, records=(b"a",))
    with pytest.raises(ConfigurationError, match="no_such_column"):
        Database(url, [*MIGRATIONS, add_a_column, fail])
    with Store(url) as store, store._database.reading() as connection:
        assert version(connection) == len(MIGRATIONS)
        assert "half" not in inspect(connection).get_table_names()
        assert "parent" not in {column["name"] for column in inspect(connection).get_columns("sandbridge_runs")}
        assert store.read("run") == [b"a"]


def test_a_database_of_a_newer_version_is_refused(url: str) -> None:
    Database(url, [*MIGRATIONS, add_a_column]).close()
    with pytest.raises(ConfigurationError) as refused:
        Store(url)
    newer = f"the database has schema {len(MIGRATIONS) + 1}, this version of sandbridge knows up to {len(MIGRATIONS)}"
    assert str(refused.value).endswith(f" cannot be used: {newer}: upgrade it")


@pytest.mark.parametrize("damage", ["DELETE FROM sandbridge_meta", "UPDATE sandbridge_meta SET value = 'one'"])
def test_a_database_that_does_not_say_its_version_is_refused(url: str, damage: str) -> None:
    with Store(url) as store, store._database.writing() as connection:
        connection.execute(text(damage))
    with pytest.raises(ConfigurationError) as refused:
        Store(url)
    said = "the table sandbridge_meta has no version: it was not made by sandbridge, or is damaged"
    assert str(refused.value).endswith(f" cannot be used: {said}")
