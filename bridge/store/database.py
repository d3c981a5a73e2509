"""From a URL to transactions: which databases there are, when a commit is durable, how failures read.

The one place that knows a dialect. SQLite's write transactions begin IMMEDIATE, so that none fails half-way because it
read before it wrote; within a process they queue for a lock, because SQLite itself only polls. What an engine says
(`__cause__`, logs) has statements without their parameters: those are journals.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any, Final

from sqlalchemy import URL, Connection, Engine, StaticPool, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError

from bridge.errors import BridgeError, ConfigurationError
from bridge.store.rows import StoreFailed, shown
from bridge.store.tables import MIGRATIONS, Migration, is_current, migrate

BUSY_S: Final = 10  # how long a write waits for another process's; one write takes milliseconds
_FORMS: Final = "`memory`, `sqlite:///runs.db` (three slashes and a path) or `postgresql://user@host/database`"
_NEEDED: Final = ("fsync", "full_page_writes", "synchronous_commit")  # without any of them a commit may be lost


class Database:
    """Connections to one database whose schema is current.

    Args:
        url: See `Store`.
        migrations: The steps to the current schema.

    Raises:
        ConfigurationError: As `Store`.
    """

    def __init__(self, url: str, migrations: Sequence[Migration] | None = None) -> None:
        steps = MIGRATIONS if migrations is None else migrations
        self.name, self._engine, in_memory = _engine(url)
        self._writing_engine = self._engine.execution_options(sandbridge_writes=True)
        self._turn = threading.Lock() if self._engine.dialect.name == "sqlite" else contextlib.nullcontext()
        # In memory there is one connection, and so one transaction at a time, reading ones included.
        self._reading_turn = self._turn if in_memory else contextlib.nullcontext()
        try:
            with self.reading() as connection:
                current = is_current(connection, steps)
            if not current:
                with self.writing() as connection:
                    migrate(connection, steps)
        except (BridgeError, OSError) as error:
            self.close()
            raise ConfigurationError(f"{self.name} cannot be used: {_bare(error, self.name)}") from error

    @contextlib.contextmanager
    def reading(self) -> Generator[Connection]:
        """A transaction that only reads: in SQLite a snapshot, in PostgreSQL what is committed at each statement.

        Raises:
            StoreFailed: The database could not do it.
        """
        with self._said(), self._reading_turn, self._engine.connect() as connection:
            yield connection

    @contextlib.contextmanager
    def writing(self) -> Generator[Connection]:
        """A transaction that is durable when the block has been left, and did not happen where it raised.

        Raises:
            StoreFailed: The database could not do it; whether it took place is open only where the connection was lost.
        """
        with self._said(), self._turn, self._writing_engine.begin() as connection:
            yield connection

    def close(self) -> None:
        """Close all connections that are not in use. For SQLite in a file the log is merged into it."""
        self._engine.dispose()

    @contextlib.contextmanager
    def _said(self) -> Generator[None]:
        try:
            yield
        except SQLAlchemyError as error:
            raise StoreFailed(f"{self.name}: {_reason(error)}") from error


def _engine(url: str) -> tuple[str, Engine, bool]:
    """What to call it, the engine, and whether it is in memory.

    Raises:
        ConfigurationError: No such database, options that are not for it, or its driver is not installed.
    """
    if url == "memory":
        return "the store in memory", _sqlite("sqlite://", poolclass=StaticPool), True
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):  # the latter for a port that is no number
        raise ConfigurationError(f"store is no URL of a database: it must be {_FORMS}") from None
    dialect, _, driver = parsed.drivername.partition("+")
    if dialect == "sqlite" and driver in ("", "pysqlite"):
        return _file(parsed)
    if dialect in ("postgresql", "postgres") and driver in ("", "psycopg"):
        return _postgresql(parsed)
    raise ConfigurationError(f"store cannot be {shown(parsed.drivername)}: it must be {_FORMS}")


def _file(url: URL) -> tuple[str, Engine, bool]:
    if url.host is not None or url.query or url.database in (None, "", ":memory:") or "\0" in url.database:
        raise ConfigurationError(f"store names no file, or has options, and SQLite takes none: it must be {_FORMS}")
    path = Path(url.database).absolute()  # now: the working directory may change
    name = f"the store {shown(path)}"
    try:
        path = path.resolve()
        _create(path)
    except OSError as error:
        raise ConfigurationError(
            f"{name} cannot be made: {error.strerror}: its directory must exist and be writable"
        ) from error
    if path.is_dir():
        raise ConfigurationError(f"{name} cannot be used: it is a directory; name a file in it")
    if not (os.access(path, os.R_OK | os.W_OK) and os.access(path.parent, os.W_OK | os.X_OK)):
        raise ConfigurationError(f"{name} cannot be used: file and directory must be writable, its log lies beside it")
    return name, _sqlite(URL.create("sqlite", database=str(path)), max_overflow=-1), False


def _create(path: Path) -> None:
    """Make the file for its owner only. Never opens one that exists: closing it would drop SQLite's locks on it."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        return
    directory = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _sqlite(url: str | URL, **pool: Any) -> Engine:
    engine = create_engine(
        url, connect_args={"check_same_thread": False, "timeout": BUSY_S}, hide_parameters=True, **pool
    )

    def begin(connection: Connection) -> None:
        writes = connection.get_execution_options().get("sandbridge_writes")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", begin)
    return engine


def _prepare_sqlite(connection: sqlite3.Connection, _: object) -> None:
    """Make commits durable; see the package's docstring."""
    connection.isolation_level = None  # transactions are begun by the engine alone
    try:
        mode = connection.execute("PRAGMA journal_mode=WAL").fetchone()[0]
        if mode not in ("wal", "memory"):
            raise ConfigurationError(
                f"SQLite keeps no write-ahead log there (it says {mode}): the file must be on a local file system"
            )
        for setting in ("synchronous=FULL", "fullfsync=ON", "checkpoint_fullfsync=ON", "foreign_keys=ON"):
            connection.execute(f"PRAGMA {setting}")
    except BaseException:
        connection.close()
        raise


def _postgresql(url: URL) -> tuple[str, Engine, bool]:
    where = f"{url.host or 'local socket'}{f':{url.port}' if url.port else ''}/{url.database or ''}"
    name = f"the store postgresql://{shown(where)}"  # never the user's name, password or options
    try:
        # A pooled connection that the server has closed meanwhile is noticed before a transaction begins on it.
        engine = create_engine(url.set(drivername="postgresql+psycopg"), pool_pre_ping=True, hide_parameters=True)
    except ImportError as error:
        raise ConfigurationError(
            f"{name} needs psycopg ({error}): install it with `pip install 'sandbridge[postgresql]'`"
        ) from error
    event.listen(engine, "connect", _check_postgresql)
    return name, engine, False


def _check_postgresql(connection: Any, _: object) -> None:
    """Refuse a server on which a commit may be lost, or which cannot keep every text.

    Raises:
        ConfigurationError: What is set how, and what it must be.
    """
    try:
        with connection.cursor() as cursor:
            names = (*_NEEDED, "server_encoding")
            cursor.execute("SELECT " + ", ".join(f"current_setting('{name}')" for name in names))
            found = dict(zip(names, cursor.fetchone(), strict=True))
        connection.rollback()
        if lossy := [name for name in _NEEDED if found[name] == "off"]:
            raise ConfigurationError(
                f"the server may lose what it has acknowledged: {', '.join(lossy)} must not be off (ALTER SYSTEM, or "
                "ALTER ROLE for synchronous_commit)"
            )
        if found["server_encoding"] != "UTF8":
            raise ConfigurationError(f"the database must have the encoding UTF8, not {found['server_encoding']}")
    except BaseException:
        connection.close()
        raise


def _reason(error: SQLAlchemyError) -> str:
    """The database's own words, on one line, without the statement and its parameters."""
    said = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    text = " ".join(str(said).split())
    if "database is locked" in text:
        return f"another process has been writing for more than {BUSY_S} s"
    return shown(text, 500) or type(said).__name__


def _bare(error: Exception, name: str) -> str:
    return str(error).removeprefix(f"{name}: ")
