"""What only a server can do to a store."""

from __future__ import annotations

import uuid

import pytest
from sqlalchemy import text

from bridge.errors import ConfigurationError
from bridge.store import Store, StoreFailed
from tests.bridge.store.conftest import begin, needs_server

pytestmark = needs_server


def named(schema: str, name: str) -> str:
    """The same place, with a name on each connection: a test ends those of its own store and no others."""
    return f"{schema}&application_name={name}"


def end_connections(name: str, by: Store) -> None:
    """What a restart of the server does to connections that are open."""
    ended = text("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = :name")
    with by._database.reading() as connection:
        assert connection.execute(ended, {"name": name}).scalar_one() == 1


def test_a_connection_that_the_server_has_closed_is_replaced(schema: str) -> None:
    name = uuid.uuid4().hex
    with Store(named(schema, name)) as store, Store(schema) as other:
        lease = begin(store)
        end_connections(name, by=other)
        store.append(lease, 0, [b"a"], now=101, lease_s=10)
        assert store.read("run") == [b"a"]


def test_a_connection_lost_within_a_transaction_undoes_it(schema: str) -> None:
    name = uuid.uuid4().hex

    def lose(store: Store, other: Store) -> None:
        with store._database.writing() as connection:
            connection.execute(text("UPDATE sandbridge_runs SET seq = 7"))
            end_connections(name, by=other)
            connection.execute(text("SELECT 1"))

    with Store(named(schema, name)) as store, Store(schema) as other:
        begin(store)
        with pytest.raises(StoreFailed, match=r"^the store postgresql://"):
            lose(store, other)
        assert store.row("run").seq == 0


def test_a_server_that_would_lose_commits_is_refused(schema: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        Store(f"{schema}%20-csynchronous_commit%3Doff")
    assert str(refused.value).endswith(
        " cannot be used: the server may lose what it has acknowledged: synchronous_commit must not be off (ALTER "
        "SYSTEM, or ALTER ROLE for synchronous_commit)"
    )


@pytest.mark.parametrize("level", ["local", "remote_write", "on", "remote_apply"])
def test_every_other_level_of_commit_is_durable_where_it_is(schema: str, level: str) -> None:
    with Store(f"{schema}%20-csynchronous_commit%3D{level}") as store:
        begin(store)


def test_a_database_of_another_encoding_is_refused(schema: str) -> None:
    import psycopg

    name = f"test_{uuid.uuid4().hex}"
    with psycopg.connect(schema, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} ENCODING LATIN1 TEMPLATE template0 LOCALE 'C'".encode())
        try:
            with pytest.raises(ConfigurationError) as refused:
                Store(f"{schema.split('?')[0].rsplit('/', 1)[0]}/{name}")
        finally:
            connection.execute(f"DROP DATABASE {name}".encode())
    assert str(refused.value).endswith(" cannot be used: the database must have the encoding UTF8, not LATIN1")


def test_all_ways_to_write_the_scheme_are_one(schema: str) -> None:
    for scheme in ("postgres", "postgresql", "postgresql+psycopg"):
        with Store(f"{scheme}://{schema.split('://', 1)[1]}") as store:
            assert store.runs() == []


def test_neither_name_nor_text_of_a_store_has_its_password(schema: str) -> None:
    password = schema.split("@", maxsplit=1)[0].rsplit(":", 1)[1]
    with Store(schema) as store:
        assert password not in repr(store)
        assert repr(store).startswith("<Store: postgresql://")
