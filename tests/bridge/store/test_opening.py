"""What a store may be opened on, and what is said of the rest."""

from __future__ import annotations

import sqlite3
import stat
import sys
import tempfile
from pathlib import Path

import pytest

from bridge.errors import ConfigurationError
from bridge.store import Store, StoreFailed
from tests.bridge.store.conftest import begin
from tests.bridge.store.processes import driver

FORMS = "`memory`, `sqlite:///runs.db` (three slashes and a path) or `postgresql://user@host/database`"


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("", f"store is no URL of a database: it must be {FORMS}"),
        ("runs.db", f"store is no URL of a database: it must be {FORMS}"),
        ("postgresql://host:port/database", f"store is no URL of a database: it must be {FORMS}"),
        ("sqlite://", f"store names no file, or has options, and SQLite takes none: it must be {FORMS}"),
        ("sqlite:///:memory:", f"store names no file, or has options, and SQLite takes none: it must be {FORMS}"),
        ("sqlite://runs.db", f"store names no file, or has options, and SQLite takes none: it must be {FORMS}"),
        (
            "sqlite:///runs.db?mode=ro",
            f"store names no file, or has options, and SQLite takes none: it must be {FORMS}",
        ),
        ("sqlite:///runs\0.db", f"store names no file, or has options, and SQLite takes none: it must be {FORMS}"),
        ("mysql://user:secret@host/database", f"store cannot be mysql: it must be {FORMS}"),
        ("postgresql+asyncpg://u:secret@host/d", f"store cannot be postgresql+asyncpg: it must be {FORMS}"),
    ],
)
def test_what_is_no_store_is_refused_with_what_is_one(url: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        Store(url)
    assert str(refused.value) == said


def test_without_its_driver_postgresql_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)  # what an import finds that is not installed
    with pytest.raises(ConfigurationError) as refused:
        Store("postgresql://user:secret@host/database")
    said = str(refused.value)
    assert said.startswith("the store postgresql://host/database needs psycopg (")
    assert said.endswith("): install it with `pip install 'sandbridge[postgresql]'`")


def test_a_server_that_is_not_there_is_named_without_the_password() -> None:
    pytest.importorskip("psycopg")
    with pytest.raises(ConfigurationError) as refused:
        Store("postgresql://user:secret@127.0.0.1:1/database?application_name=secret")
    said = str(refused.value)
    assert said.startswith("the store postgresql://127.0.0.1:1/database cannot be used: ")
    assert "onnection refused" in said
    assert "secret" not in said


def test_a_new_file_is_its_owners_only_and_its_log_too(tmp_path: Path) -> None:
    with Store(f"sqlite:///{tmp_path}/runs.db") as store:
        begin(store)
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
        assert modes == {"runs.db": 0o600, "runs.db-wal": 0o600, "runs.db-shm": 0o600}
    assert [path.name for path in tmp_path.iterdir()] == ["runs.db"]  # closing merged the log into it


def test_the_mode_of_a_file_that_exists_stays(tmp_path: Path) -> None:
    (tmp_path / "runs.db").touch()
    (tmp_path / "runs.db").chmod(0o640)
    with Store(f"sqlite:///{tmp_path}/runs.db") as store:
        begin(store)
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
        assert modes == {"runs.db": 0o640, "runs.db-wal": 0o640, "runs.db-shm": 0o640}


def test_a_relative_path_is_of_the_directory_in_which_it_was_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with Store("sqlite:///runs.db") as store:
        monkeypatch.chdir(tmp_path)
        begin(store)
        assert repr(store) == f"<Store: {tmp_path}/here/runs.db>"
    with Store(f"sqlite:///{tmp_path}/here/runs.db") as store:
        assert store.row("run").id == "run"


def test_commits_are_synced_on_every_connection(tmp_path: Path) -> None:
    with Store(f"sqlite:///{tmp_path}/runs.db") as store:
        database = store._database
        with database.reading() as first, database.reading() as second, database.writing() as third:
            for connection in (first, second, third):
                asked = (
                    "journal_mode",
                    "synchronous",
                    "fullfsync",
                    "checkpoint_fullfsync",
                    "foreign_keys",
                    "busy_timeout",
                )
                found = [connection.exec_driver_sql(f"PRAGMA {each}").scalar_one() for each in asked]
                assert found == ["wal", 2, 1, 1, 1, 10_000]  # 2: FULL


def test_stores_in_memory_have_nothing_in_common() -> None:
    with Store("memory") as one, Store("memory") as two:
        begin(one)
        assert two.runs() == []
        assert repr(one) == "<Store: in memory>"


def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("these are my notes\n" * 100)
    with pytest.raises(ConfigurationError) as refused:
        Store(f"sqlite:///{path}")
    assert str(refused.value) == f"the store {path} cannot be used: file is not a database"
    assert path.read_text() == "these are my notes\n" * 100


def test_another_programs_database_is_shared_with_it(tmp_path: Path) -> None:
    other = sqlite3.connect(tmp_path / "app.db")
    other.execute("CREATE TABLE runs (mine TEXT)")
    with Store(f"sqlite:///{tmp_path}/app.db") as store:
        begin(store)
    assert other.execute("SELECT * FROM runs").fetchall() == []
    other.close()


def test_a_damaged_file_says_so(tmp_path: Path) -> None:
    with Store(f"sqlite:///{tmp_path}/runs.db") as store:
        begin(store, records=(b"a" * 100_000,))
    path = tmp_path / "runs.db"
    whole = path.read_bytes()
    path.write_bytes(whole[:8192] + b"\xff" * (len(whole) - 8192))
    with pytest.raises((ConfigurationError, StoreFailed)) as damaged, Store(f"sqlite:///{path}") as store:
        store.read("run")
    assert str(damaged.value).endswith("database disk image is malformed")


def test_a_directory_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as refused:
        Store(f"sqlite:///{tmp_path}")
    assert str(refused.value) == f"the store {tmp_path} cannot be used: it is a directory; name a file in it"


def test_a_directory_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as refused:
        Store(f"sqlite:///{tmp_path}/none/runs.db")
    said = "No such file or directory: its directory must exist and be writable"
    assert str(refused.value) == f"the store {tmp_path}/none/runs.db cannot be made: {said}"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("there", [True, False])
def test_a_directory_that_may_only_be_read_is_refused(there: bool) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "runs.db")
        if there:
            Store(f"sqlite:///{path}").close()
            path.chmod(0o666)
        Path(directory).chmod(0o555)
        with driver("open_as_nobody", f"sqlite:///{path}") as [opener]:
            said = opener.hear()
        Path(directory).chmod(0o755)
    if there:
        reason = "cannot be used: file and directory must be writable, its log lies beside it"
    else:
        reason = "cannot be made: Permission denied: its directory must exist and be writable"
    assert said == {"error": "ConfigurationError", "text": f"the store {path} {reason}"}


def test_a_file_that_may_only_be_read_is_refused() -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "runs.db")
        Store(f"sqlite:///{path}").close()
        path.chmod(0o444)
        Path(directory).chmod(0o777)
        with driver("open_as_nobody", f"sqlite:///{path}") as [opener]:
            said = opener.hear()
    reason = "cannot be used: file and directory must be writable, its log lies beside it"
    assert said == {"error": "ConfigurationError", "text": f"the store {path} {reason}"}


def test_a_writer_that_never_ends_is_not_waited_for_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bridge.store.database.BUSY_S", 0)
    with Store(f"sqlite:///{tmp_path}/runs.db") as store:
        lease = begin(store)
        other = sqlite3.connect(tmp_path / "runs.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreFailed) as failed:
            store.append(lease, 0, [b"a"], now=101, lease_s=10)
        assert str(failed.value) == f"the store {tmp_path}/runs.db: another process has been writing for more than 0 s"
        assert store.read("run") == []  # reading waits for nobody
        other.execute("ROLLBACK")
        other.close()
        store.append(lease, 0, [b"a"], now=101, lease_s=10)


def test_errors_of_the_database_hold_no_record_and_no_text_of_a_run(tmp_path: Path) -> None:
    with Store(f"sqlite:///{tmp_path}/runs.db") as store:
        with store._database.writing() as connection:
            connection.exec_driver_sql("DROP TABLE sandbridge_runs")
        with pytest.raises(StoreFailed) as failed:
            begin(store, records=(b"secret",), program="secret")
        assert str(failed.value) == f"the store {tmp_path}/runs.db: no such table: sandbridge_runs"
        assert "INSERT INTO sandbridge_runs" in str(failed.value.__cause__)
        assert "secret" not in str(failed.value.__cause__)
