"""The SQL database: connecting, migrating, and transactions that are as short as possible."""

import hashlib
import importlib
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Connection, Engine, Executable, create_engine, event, make_url, text
from sqlalchemy.engine import URL
from sqlalchemy.exc import (
    ArgumentError,
    DatabaseError,
    DBAPIError,
    DisconnectionError,
    InterfaceError,
    OperationalError,
    ProgrammingError,
)
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.orm import Session
from sqlalchemy.pool import ConnectionPoolEntry, QueuePool

from delvec_errors import BadRequest, ServiceUnavailable
from delvec_service.store.models import FIRST_REVISION, REVISION

__all__ = ["Database", "Upsert", "insert_into", "migrations_directory", "visible_rows"]

_MIGRATION_LOCK: Final = 0x44454C564543  # an arbitrary number, the same in every replica
_BUSY_SECONDS: Final = 30
_PIECE_PAGES: Final = 1000
_MAX_PIECES: Final = 100
_WRITES: Final = {"delvec_writes": True}
_NO_TRANSACTION: Final = {"delvec_no_transaction": True}


@dataclass(frozen=True, slots=True)
class Connections:
    """Connections of a process to the database: in use, idle, and the maximum."""

    in_use: int
    idle: int
    limit: int


class Database:
    """A SQLite or PostgreSQL database; safe to share between threads.

    Args:
        url: an SQLAlchemy URL. ``sqlite://`` is an in-memory database that lasts until :meth:`close`.

    Attributes:
        is_in_memory: whether it ends with this process, so that nothing needs to be saved to it for the next one.

    Raises:
        BadRequest: the URL is for neither SQLite nor PostgreSQL.
    """

    def __init__(self, url: str) -> None:
        parsed = _parse(url)
        self._engine = _engine(parsed)
        self.is_in_memory = _is_in_memory(parsed)
        sqlite = self._engine.dialect.name == "sqlite"
        self._turns = threading.Lock() if sqlite else None
        self._writing = self._engine.execution_options(**_WRITES)
        # SQLite's driver never begins a transaction by itself: see _begin_sqlite.
        options: dict[str, Any] = _NO_TRANSACTION if sqlite else {"isolation_level": "AUTOCOMMIT"}
        self._autocommit = self._engine.execution_options(**options)

    def migrate(self) -> None:
        """Migrate the schema to this Delvec's revision.

        Several processes may do so at once, and older ones continue to work. The schema of a newer Delvec stays as it
        is.

        Raises:
            ServiceUnavailable: the database does not answer, or has a schema that this Delvec does not support: of a
                development version, or of a newer Delvec that changed too much.
        """
        with _failures(self._engine):
            revision = self._supported_revision()
            if revision is not None and revision >= REVISION:
                return  # saves importing Alembic on every start
            with self._engine.connect().execution_options(**_WRITES) as connection, connection.begin():
                if self._engine.dialect.name == "postgresql":
                    connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _MIGRATION_LOCK})
                _run_alembic(connection)

    def check(self) -> None:
        """Check that the database answers.

        Raises:
            ServiceUnavailable: it does not answer, or the service does not support its schema.
        """
        with _failures(self._engine):
            revision = self._supported_revision()
        if revision is None or revision < REVISION:
            raise ServiceUnavailable(
                f"The service's database has schema revision {revision}, but the service needs {REVISION}; restart "
                "the service."
            )

    @contextmanager
    def read(self) -> Iterator[Session]:
        """Open a read-only session.

        Raises:
            ServiceUnavailable: the database does not answer.
        """
        with self._answering(), Session(self._engine, expire_on_commit=False) as session:
            yield session

    @contextmanager
    def write(self) -> Iterator[Session]:
        """Open a session that commits at the end of the block.

        Raises:
            ServiceUnavailable: the database does not answer; nothing was written.
        """
        with (
            self._answering(),
            self._turn(),
            Session(self._engine, expire_on_commit=False) as session,
            session.begin(),
        ):
            session.connection(execution_options=_WRITES)
            yield session

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        """Open a connection for single SELECTs, without the cost of a session or a transaction.

        Each statement sees the latest state. Every request runs some, and a transaction would add two statements to
        each: round trips, with PostgreSQL.

        Raises:
            ServiceUnavailable: the database does not answer.
        """
        with self._answering(), self._autocommit.connect() as connection:
            yield connection

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Open a connection that commits at the end of the block, without the cost of a session.

        Raises:
            ServiceUnavailable: the database does not answer; nothing was written.
        """
        with self._answering(), self._turn(), self._writing.begin() as connection:
            yield connection

    def give_back_space(self) -> None:
        """Shrink an SQLite file after deletions, a piece at a time; PostgreSQL reuses the space itself.

        Raises:
            ServiceUnavailable: the database does not answer.
        """
        if self._engine.dialect.name != "sqlite":
            return
        with _failures(self._engine), self._engine.connect() as connection:
            for _ in range(_MAX_PIECES):
                if not connection.execute(text("PRAGMA freelist_count")).scalar():
                    return
                connection.rollback()
                # One step frees one page and returns no result; only executescript runs the pragma to its end.
                raw = connection.connection.driver_connection
                assert isinstance(raw, sqlite3.Connection)  # noqa: S101 - of SQLite, as said above
                raw.executescript(f"PRAGMA incremental_vacuum({_PIECE_PAGES})")

    def connections(self) -> Connections:
        """Return the numbers of connections."""
        pool = self._engine.pool
        if not isinstance(pool, QueuePool):
            return Connections(0, 0, 0)
        most = pool.size() + max(0, pool._max_overflow)  # noqa: SLF001 - it does not say otherwise
        return Connections(pool.checkedout(), pool.checkedin(), most)

    def close(self) -> None:
        """Close the connections."""
        self._engine.dispose()

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Wait for this thread's turn to write.

        SQLite has one writer, and makes others sleep, longer each time, until they find it idle: with commits to many tables
        at once they sleep most of the time.

        Raises:
            ServiceUnavailable: another thread has been writing for as long as SQLite would have waited.
        """
        if self._turns is None:
            yield
            return
        if not self._turns.acquire(timeout=_BUSY_SECONDS):
            raise ServiceUnavailable(
                f"The service's database does not answer: it has been busy for {_BUSY_SECONDS} seconds; try again."
            )
        try:
            yield
        finally:
            self._turns.release()

    @contextmanager
    def _answering(self) -> Iterator[None]:
        with _failures(self._engine):
            try:
                yield
            except DBAPIError as error:
                if not _lacks_tables(error):
                    raise
                # Somebody deleted the database file; no table data is lost. Create it again for the next request.
                self._make_again()
                raise ServiceUnavailable(
                    "The service's database was empty and has been created again; register your tables again."
                ) from error

    def revision(self) -> str | None:
        """Return the revision of the schema, or None before the first migration.

        Raises:
            ServiceUnavailable: the database does not answer.
        """
        with _failures(self._engine):
            return self._revision()

    @contextmanager
    def alone(self, subject: str) -> Iterator[bool]:
        """Try to become the only process on this PostgreSQL database that does something, until the end of the block.

        Also True if that cannot be checked (SQLite, or a database that does not answer): the lock only avoids
        duplicate work, which must be correct without it. It belongs to the connection and ends with the process.

        Args:
            subject: what is done, and to which table.
        """
        connection, key = None, _lock_key(subject)
        if self._engine.dialect.name == "postgresql":
            with suppress(DBAPIError, PoolTimeoutError):
                connection = self._autocommit.connect()
        if connection is None:
            yield True
            return
        with connection:
            try:
                ours = bool(connection.scalar(text("SELECT pg_try_advisory_lock(:key)"), {"key": key}))
            except DBAPIError:
                connection.invalidate()
                ours, connection = True, None
            try:
                yield ours
            finally:
                if ours and connection is not None:
                    try:
                        connection.execute(text("SELECT pg_advisory_unlock(:key)"), {"key": key})
                    except DBAPIError:
                        connection.invalidate()  # this also releases the lock

    def _supported_revision(self) -> str | None:
        """Return the revision of the schema, or None before the first migration.

        Raises:
            ServiceUnavailable: this Delvec supports neither that schema nor an upgrade from it.
        """
        revision = self._revision()
        if revision is None or revision == REVISION:
            return revision
        if revision < FIRST_REVISION:
            raise ServiceUnavailable(
                f"The service's database ({self._engine.url.render_as_string()}) has schema revision {revision}, of a "
                f"development version; this Delvec upgrades from {FIRST_REVISION} on. Move the database away, or set "
                "another DELVEC_DATABASE_URL: the service creates a new one, and no table's data depends on it. To "
                "keep names, policies and grants, run `delvec database backup` with the version that created it, and "
                "`delvec database restore` with this one."
            )
        if revision > REVISION:
            self._check_newer(revision)
        return revision

    def _check_newer(self, revision: str) -> None:
        with self._engine.connect() as connection:
            oldest = connection.execute(text("SELECT oldest FROM schema_compatibility")).scalar()
        if oldest is None or oldest > REVISION:
            raise ServiceUnavailable(
                f"The service's database has schema revision {revision}, but this Delvec supports revisions up to "
                f"{REVISION}; upgrade Delvec, or use another database with DELVEC_DATABASE_URL."
            )

    def _make_again(self) -> None:
        try:
            self.migrate()
        except DBAPIError as error:
            reason = str(error.orig).partition("\n")[0][:300]
            raise ServiceUnavailable(
                f"The service's database is empty and cannot be created again: {reason}; try again."
            ) from error

    def _revision(self) -> str | None:
        try:
            with self._engine.connect() as connection:
                return connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
        except DBAPIError as error:
            if _lacks_tables(error):
                return None
            raise


def _lock_key(subject: str) -> int:
    return int.from_bytes(hashlib.blake2b(subject.encode(), digest_size=8).digest(), "big", signed=True)


def visible_rows(
    session: Session, query: Any, limit: int, visible: Callable[[str, str], bool] | None
) -> Iterator[Any]:
    """Return the first rows of a query that a caller may see.

    Args:
        session: reads them.
        query: its first two columns are id and name of a table.
        limit: how many.
        visible: decides by both whether to show a row; None shows all.
    """
    rows = session.execute(query.limit(limit) if visible is None else query).yield_per(1000)
    return islice((row for row in rows if visible is None or visible(row[0], row[1])), limit)


def insert_into(session: Session, row: Any) -> Any:
    """Return an INSERT of the session's dialect, which has ``on_conflict_do_update`` and ``on_conflict_do_nothing``.

    Args:
        session: a session of the database.
        row: a mapped class, or a table.
    """
    return _insert(session.get_bind().dialect.name)(row)


class Upsert:
    """An INSERT with ``ON CONFLICT``, built once for each kind of database; every commit runs it.

    Args:
        build: builds the statement from a dialect's ``insert``.
    """

    def __init__(self, build: Callable[[Any], Executable]) -> None:
        self._build = build
        self._statements: dict[str, Executable] = {}

    def on(self, connection: Connection) -> Executable:
        """Return the statement for a connection's database."""
        name = connection.dialect.name
        if name not in self._statements:
            self._statements[name] = self._build(_insert(name))
        return self._statements[name]


def _insert(dialect: str) -> Any:
    """Return the ``insert`` of a dialect, without importing the other one."""
    return importlib.import_module(f"sqlalchemy.dialects.{dialect}").insert


def migrations_directory() -> Path:
    """Return the directory of the Alembic scripts: next to the modules in a wheel, at the root in a checkout."""
    packaged = Path(__file__).parents[1] / "migrations"
    return packaged if packaged.is_dir() else Path(__file__).parents[3] / "migrations"


def _run_alembic(connection: Connection, revision: str = "head") -> None:
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(migrations_directory()).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    command.upgrade(config, revision)


def _parse(url: str) -> URL:
    try:
        database_url = make_url(url)
    except ArgumentError:
        database_url = None  # the original message would repeat the URL with its password
    if database_url is not None and database_url.drivername in ("postgresql", "postgres"):
        database_url = database_url.set(drivername="postgresql+psycopg")
    if database_url is None or database_url.get_backend_name() not in ("sqlite", "postgresql"):
        raise BadRequest(
            "The database URL must be for SQLite (sqlite:////path/file.db) or PostgreSQL "
            "(postgresql://user@host/database)."
        )
    return database_url


def _is_in_memory(url: URL) -> bool:
    return url.get_backend_name() == "sqlite" and url.database in (None, "", ":memory:")


def _engine(url: URL) -> Engine:
    if url.get_backend_name() == "postgresql":
        engine = create_engine(
            url, pool_pre_ping=True, pool_size=10, max_overflow=30, isolation_level="READ COMMITTED"
        )
        event.listen(engine, "connect", _prepare_postgresql)
        return engine
    options: dict[str, Any] = {}
    if _is_in_memory(url):
        # One connection for all threads, used by one at a time: every other connection would be a different database.
        options = {"poolclass": QueuePool, "pool_size": 1, "max_overflow": 0}
    else:
        Path(str(url.database)).absolute().parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    engine = create_engine(
        url, connect_args={"check_same_thread": False, "timeout": _BUSY_SECONDS}, **options
    )
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    if "poolclass" not in options:
        path = str(url.database)
        if not path.startswith("file:"):
            # Before each connection: the file may have been deleted.
            event.listen(engine, "do_connect", lambda *_: _create_private(path))
        _follow_file(engine, path)
    return engine


_CREATION: Final = threading.Lock()


def _create_private(path: str) -> None:
    """Create a database file that only its owner can read: it has hashes of tokens, grants and the audit log.

    SQLite would create it as the umask says; its journal gets the permissions of the file. Those of an existing file
    are the operator's choice.

    An existing file is never opened: closing it again would release the locks of all of the process's connections to it,
    and another process would remove the journal that they are using.
    """
    # One thread at a time, so that no connection has locks on the new file when it is closed.
    with _CREATION, suppress(OSError):  # SQLite's own error is the better one
        # With O_EXCL, a link to a file that does not exist yet would count as a file.
        flags = os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC
        os.close(os.open(os.path.realpath(path), flags, 0o600))


def _prepare_postgresql(connection: Any, _record: object) -> None:
    # Single statements have no BEGIN that could name a level; SERIALIZABLE, if it is the server's default, could reject them.
    connection.execute("SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED")
    connection.commit()


def _prepare_sqlite(connection: sqlite3.Connection, _record: object) -> None:
    connection.isolation_level = None  # transactions begin in _begin_sqlite, not at the first write
    if connection.execute("PRAGMA page_count").fetchone() == (0,):
        # Only a new file can turn it on; otherwise it would wait for the write lock, and have no effect.
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    connection.execute("PRAGMA journal_mode = WAL")
    # Survives a killed process. A power failure may lose the last rows, of a ledger that only speeds up a search.
    connection.execute("PRAGMA synchronous = NORMAL")


def _follow_file(engine: Engine, path: str) -> None:
    """Drop connections to a deleted file: they would continue to work, on a separate database."""

    def note(_connection: object, record: ConnectionPoolEntry) -> None:
        record.info["inode"] = _inode(path)

    def compare(_connection: object, record: ConnectionPoolEntry, _proxy: object) -> None:
        if record.info["inode"] != _inode(path):
            raise DisconnectionError("the database file was replaced")

    event.listen(engine, "connect", note)
    event.listen(engine, "checkout", compare)


def _inode(path: str) -> int | None:
    try:
        return os.stat(path).st_ino  # noqa: PTH116 - on every use of a connection, so no detour
    except FileNotFoundError:
        return None


def _begin_sqlite(connection: Connection) -> None:
    options = connection.get_execution_options()
    if "delvec_no_transaction" not in options:
        # Taking the write lock at once waits for it; taking it later in the transaction would fail instead.
        connection.exec_driver_sql("BEGIN IMMEDIATE" if "delvec_writes" in options else "BEGIN")


_DAMAGE_MESSAGES: Final = ("is not a database", "malformed")


def _lacks_tables(error: DBAPIError) -> bool:
    """Whether the database has no tables, for which each driver has its own error class."""
    return isinstance(error, ProgrammingError) or "no such table" in str(error.orig)


@contextmanager
def _failures(engine: Engine) -> Iterator[None]:
    try:
        yield
    except (OperationalError, InterfaceError, PoolTimeoutError) as error:
        reason = str(getattr(error, "orig", None) or error).partition("\n")[0][:300]
        raise ServiceUnavailable(f"The service's database does not answer: {reason}; try again.") from error
    except DatabaseError as error:
        reason = str(error.orig).partition("\n")[0][:300]
        if not any(words in reason for words in _DAMAGE_MESSAGES):
            raise
        raise ServiceUnavailable(
            f"The service's database '{engine.url.database}' is not an SQLite database, or is damaged: {reason}. Move it "
            "away: the service creates another one, and no table's data depends on it. Then `delvec database restore` a "
            "backup of names, policies and grants."
        ) from error
