"""One test, three databases: each gets an empty one of its own."""

from __future__ import annotations

import os
import uuid
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from bridge.store import Lease, Store

SERVER = os.environ.get("SANDBRIDGE_TEST_POSTGRESQL")
needs_server = pytest.mark.skipif(SERVER is None, reason="SANDBRIDGE_TEST_POSTGRESQL names no server")
postgresql = pytest.param("postgresql", marks=needs_server)


@pytest.fixture
def schema() -> Iterator[str]:
    """The URL of an empty schema in the server of the tests."""
    import psycopg

    assert SERVER is not None
    name = f"test_{uuid.uuid4().hex}"
    with psycopg.connect(SERVER, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {name}".encode())
        yield f"{SERVER}?options=-csearch_path%3D{name}"
        connection.execute(f"DROP SCHEMA {name} CASCADE".encode())


def _url(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if kind == "postgresql":
        return request.getfixturevalue("schema")
    return "memory" if kind == "memory" else f"sqlite:///{tmp_path}/runs.db"


@pytest.fixture(params=["memory", "file", postgresql])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[Store]:
    """An empty one of each kind."""
    with Store(_url(request.param, request, tmp_path)) as opened:
        yield opened


@pytest.fixture(params=["file", postgresql])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Of an empty database of each kind that processes can share."""
    return _url(request.param, request, tmp_path)


def begin(store: Store, run_id: str = "run", records: tuple[bytes, ...] = (), **other: Any) -> Lease:
    """A run of owner `one` with a lease from 100 to 110."""
    settings: dict[str, Any] = {
        "owner": "one",
        "lease_s": 10,
        "now": 100,
        "program": "return 1",
        "audience": "tests",
        "engine_digest": "v8",
    }
    return store.create(run_id, records, **(settings | other))
