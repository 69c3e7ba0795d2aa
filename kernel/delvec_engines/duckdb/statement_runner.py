"""Runs statements on DuckDB, and translates its errors into errors that name table and file.

Tested in `tests/integration/client/engines/duckdb/test_row_changes.py`.
"""

import os
import sys
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any, Final

import duckdb
import pyarrow as pa

from delvec_engines.calendar import holds_times, is_legacy, may_ask_for_early, shows_early
from delvec_engines.data_file import DataFile
from delvec_engines.duckdb.assignment import FAILED
from delvec_engines.duckdb.file_columns import BEYOND_TYPE, NOT_TEXT
from delvec_engines.duckdb.file_names import PROTOCOL, as_pattern, file_list, file_names, is_remote
from delvec_engines.duckdb.scan import LOOKUP, ScanSource
from delvec_engines.duckdb.variants import INCOMPLETE
from delvec_engines.file_schemas import mismatch
from delvec_engines.footers import rows_in
from delvec_engines.interrupts import interruptible, stoppable
from delvec_engines.scan import Scan, missing_data_file
from delvec_errors import (
    CorruptTable,
    DelvecError,
    EngineUnavailable,
    InternalError,
    InvalidPredicate,
    SchemaMismatch,
    StorageError,
    UnsupportedTable,
)
from delvec_kernel.expressions.predicate import Predicate
from delvec_kernel.locations import resolve
from delvec_kernel.schema.file_types import FileTypeMismatch
from delvec_kernel.schema.types import DataType
from delvec_storage import files as storage

__all__ = ["ChangeExpressions", "DuckDBSession", "Evaluated", "damage", "errors", "rows_of", "streamed"]

_CONFIG: Final = {
    # Extensions would be downloaded; none is needed.
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    # If the optimizer swapped the sides of the lookup's join, it would hold the files' rows in memory.
    "disabled_optimizers": "build_side_probe_side",
    # An unknown table name must be an error, not a Python variable of the caller.
    "python_enable_replacements": "false",
}
_SETTINGS: Final = "SET TimeZone = 'UTC'"
_PROGRESS_SETTINGS: Final = (
    f"{_SETTINGS}; SET enable_progress_bar = true; SET enable_progress_bar_print = false"
)
"""Settings for progress; only if requested, as they cost a third of a millisecond."""
_BATCH_ROWS: Final = 1 << 17
_BYTES_OF_A_THREAD: Final = 48 << 20
"""Memory per thread for encoded and decoded row groups; bounds the number of threads."""
_MAX_LOOKED_UP: Final = 100
_MAX_READ_AGAIN: Final = 1 << 30
"""Bytes of files that are read one by one to find the one that DuckDB cannot read."""
_FATAL: Final = ("INTERNAL Error", "FATAL Error")
_CORRUPT: Final = "Data Corruption Error"
"""How the texts of errors begin that end a database."""
_INVALIDATED: Final = "invalidated because of a previous fatal error"
_NOT_SUPPORTED: Final = " is only supported for "
"""What DuckDB says of encodings of types for which it lacks them: such a file is not damaged."""
_ENCRYPTED: Final = ("File is encrypted", "' is encrypted")
"""What errors about encrypted files say; those about a single column do not name the file."""


@dataclass(frozen=True)
class ChangeExpressions:
    """All expressions of an UPDATE or MERGE.

    Attributes:
        texts: original SQL of the expressions that compute something.
        columns: the table's columns they read.
        early: whether they compare with dates before 1582-10-15 or timestamps before 1900.
    """

    texts: Sequence[str]
    columns: frozenset[str]
    early: bool = False

    @property
    def text(self) -> str:
        """The texts joined, for errors."""
        return "; ".join(self.texts)


Evaluated = Predicate | ChangeExpressions
"""The expressions that a statement evaluates."""


class DuckDBSession:
    """A DuckDB database; thread-safe, as each statement has its own connection.

    Args:
        connection: DuckDB connection whose database and settings are used; by default a new in-memory database.
        memory_limit: bytes, for a new database; DuckDB's default if None.
        temp_directory: spill directory of a new database; DuckDB's default if None.
        threads: maximum threads of a new database.
        parquet_bytes: whether page indexes are read; see :func:`~delvec_parquet.use.uses_parquet_bytes`.
    """

    def __init__(
        self,
        connection: Any = None,
        memory_limit: int | None = None,
        temp_directory: str | None = None,
        threads: int | None = None,
        *,
        parquet_bytes: bool = True,
    ) -> None:
        self.parquet_bytes = parquet_bytes
        self._own = connection is None
        self._limits = memory_limit, temp_directory
        # A copy, so that these settings do not become defaults of other sessions.
        config = dict(_CONFIG)
        if temp_directory is not None:
            config["temp_directory"] = temp_directory
        if memory_limit is not None:
            most = max(1, min(os.cpu_count() or 1, memory_limit // _BYTES_OF_A_THREAD))
            threads = most if threads is None else min(most, threads)
            config["memory_limit"] = f"{memory_limit}B"
        if threads is not None:
            config["threads"] = str(threads)
        self._config = config
        self._connection = connection
        self._lock = threading.Lock()
        self._cursors: weakref.WeakSet[Any] | None = None
        self._progress_of: DuckDBSession | None = None
        """The session whose progress() reports on the statements of this one, if another."""

    def progress(self) -> float | None:
        """Return the progress of the slowest running statement from 0 to 1; None if unknown.

        Only statements that start after the first call report progress.
        """
        with self._lock:
            if self._cursors is None:
                self._cursors = weakref.WeakSet()
            running = list(self._cursors)
        percentages: list[float] = []
        for cursor in running:
            with suppress(duckdb.Error):  # closed meanwhile
                percentages.append(cursor.query_progress())
        return min((percent / 100 for percent in percentages if percent >= 0), default=None)

    def close(self) -> None:
        """Close the database, unless it was passed in."""
        if self._own and self._connection is not None:
            self._connection.close()

    @contextmanager
    def reading_ahead(self, scan: Scan) -> Iterator["DuckDBSession"]:
        """Lend a session that reads with one thread: one thread encodes the rows, so more readers would only need memory.

        Object stores, where reading waits, and a connection of the caller keep their threads.
        """
        if not self._own or not scan.location.startswith("file:"):
            yield self
            return
        with closing(DuckDBSession(None, *self._limits, threads=1)) as session:
            session._progress_of = self  # noqa: SLF001 - its own class
            yield session

    @contextmanager
    def connected(self) -> Iterator[Any]:
        """Lend a connection for several statements, with temporary tables of its own."""
        with interruptible(), closing(self._cursor()) as cursor:
            yield cursor

    def table(
        self, scan: Scan, source: ScanSource, sql: str, predicate: Evaluated | None, *, on: Any = None
    ) -> pa.Table:
        """Run a statement over ``source`` and return all of its rows.

        Args:
            scan: what is read.
            source: the part to read.
            sql: the statement.
            predicate: the expressions it evaluates, for errors.
            on: connection from :meth:`connected`; by default a new one.
        """
        with self._prepared(scan, source, predicate, on) as cursor:
            found = rows_of(cursor, sql)
            if shows_early(found):
                _check_calendar(cursor, scan, source)
            return found

    def batches(
        self, scan: Scan, source: ScanSource, sql: str, predicate: Evaluated | None, *, on: Any = None
    ) -> Iterator[pa.RecordBatch]:
        """Run a statement over ``source`` and yield its rows in batches; see :meth:`table`.

        The connection is busy until the last batch.
        """
        with self._prepared(scan, source, predicate, on) as cursor:
            is_checked = False
            for batch in streamed(cursor, sql):
                if not is_checked and shows_early(batch):
                    with self.connected() as other:
                        _check_calendar(other, scan, source)
                    is_checked = True
                yield batch

    def hashes(self, names: Sequence[str]) -> pa.Array:
        """Return DuckDB's hash of each name, to compare with ``scan.FILE_HASH``."""
        # A list keeps its order, and a parameter costs a fifth of a registered table.
        sql = "SELECT list_transform(?::VARCHAR[], lambda name: hash(name))"
        with self.connected() as cursor:
            ((hashes,),) = cursor.execute(sql, [list(names)]).fetchall()
            return pa.array(hashes, pa.uint64())

    def over(self, name: str, rows: pa.RecordBatch, sql: str) -> pa.Table:
        """Run a statement over in-memory rows, as a table named ``name``.

        Raises:
            duckdb.Error: it fails for a row.
        """
        with self.connected() as cursor:
            cursor.register(name, pa.Table.from_batches([rows]))
            return cursor.sql(sql).to_arrow_table()

    def _cursor(self) -> Any:
        """Return a new connection to the database; to a new database if a fatal error has ended the old one.

        DuckDB refuses every further statement on a database in which an internal error occurred, and a damaged file
        can cause one.

        Raises:
            EngineUnavailable: the connection was passed in.
        """
        watching = self._progress_of or self
        cursors = watching._cursors  # noqa: SLF001 - its own class
        settings = _SETTINGS if cursors is None else _PROGRESS_SETTINGS
        with self._lock:
            try:
                cursor = self._set_up(settings)
            except duckdb.FatalException as error:
                if not self._own:
                    raise EngineUnavailable(
                        "The DuckDB connection of this engine no longer works after a fatal error. Open another one, and "
                        "pass it to a new DuckDBEngine."
                    ) from error
                with suppress(duckdb.Error):
                    self._connection.close()
                self._connection = None
                cursor = self._set_up(settings)
        if cursors is not None:
            with watching._lock:  # noqa: SLF001
                cursors.add(cursor)
        return cursor

    def _set_up(self, settings: str) -> Any:
        """Return a connection with settings of its own; those of a connection that was passed in stay."""
        cursor = self._database().cursor()
        cursor.execute(settings).fetchall()
        return cursor

    def _database(self) -> Any:
        """Return the database; it opens at the first statement, as that costs more than many a command without one."""
        if self._connection is None:
            self._connection = duckdb.connect(":memory:", config=self._config)
        return self._connection

    @contextmanager
    def _prepared(
        self, scan: Scan, source: ScanSource, predicate: Evaluated | None, on: Any
    ) -> Iterator[Any]:
        self.mount(source)
        given = self.connected() if on is None else nullcontext(on)
        with given as cursor, errors(scan, source, predicate):
            if source.lookup is not None:
                cursor.register(LOOKUP, source.lookup)
            if predicate is not None:
                kinds = (scan.schema.field(name).type for name in predicate.columns)
                if _may_ask_for_early(predicate, list(kinds)):
                    _check_calendar(cursor, scan, source)
            yield cursor

    def check_calendar(self, scan: Scan, source: ScanSource) -> None:
        """Check all footers of ``source`` for Spark 2's calendar, in which DuckDB reads early times days off.

        Raises:
            UnsupportedTable: a file uses it.
            CorruptTable: or a subclass: a file cannot be read.
        """
        with self.connected() as cursor, errors(scan, source, None):
            _check_calendar(cursor, scan, source)

    def mount(self, source: ScanSource) -> None:
        """Register the storage file system with DuckDB if ``source`` has remote files."""
        if not any(is_remote(name) for name in source.names):
            return
        with self._lock:
            if self._database().filesystem_is_registered(PROTOCOL):
                return
            try:
                from delvec_engines.duckdb.remote import StorageFileSystem
            except ModuleNotFoundError as error:
                raise EngineUnavailable(
                    f"The DuckDB engine needs {error.name} to read object stores: pip install '.[local]' in Delvec's clone"
                ) from error
            self._database().register_filesystem(StorageFileSystem())


def rows_of(connection: Any, sql: str) -> pa.Table:
    """Return all rows of a statement, which Ctrl-C ends."""
    with stoppable(connection.interrupt) as run:
        return run(lambda: connection.sql(sql).to_arrow_table())


def streamed(connection: Any, sql: str, batch_rows: int | None = None) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a statement in batches; Ctrl-C ends it."""
    with stoppable(connection.interrupt) as run:
        reader = run(lambda: connection.sql(sql).to_arrow_reader(batch_rows or _BATCH_ROWS))
        while (batch := run(lambda: next(reader, None))) is not None:
            yield batch


def _may_ask_for_early(evaluated: Evaluated, kinds: Sequence[DataType]) -> bool:
    if isinstance(evaluated, ChangeExpressions) and evaluated.early:
        return any(holds_times(kind) for kind in kinds)
    return may_ask_for_early(evaluated.text, kinds)


def _check_calendar(cursor: Any, scan: Scan, source: ScanSource) -> None:
    """Refuse files in Spark 2's calendar, whose early dates and timestamps DuckDB reads days off."""
    sql = f"SELECT file_name, key, value FROM parquet_kv_metadata({file_list(source.names)})"  # noqa: S608 - quoted
    footers: dict[str, dict[str, str]] = {}
    for name, key, value in cursor.sql(sql).fetchall():
        footers.setdefault(name, {})[_text(key)] = _text(value)
    legacy = {name for name, footer in footers.items() if is_legacy(footer)}
    for path, name in zip(source.files["path"].to_pylist(), source.names, strict=True):
        if name in legacy:
            raise UnsupportedTable(
                f"The data file '{path}' of table '{scan.name}' (version {scan.version}) has dates before 1582 or "
                "timestamps before 1900 in the calendar of Spark 2, which DuckDB does not convert; read it with Spark.",
                table=scan.name,
                version=scan.version,
                file=path,
            )


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


@contextmanager
def errors(scan: Scan, source: ScanSource | None, predicate: Evaluated | None) -> Iterator[None]:
    """Translate DuckDB's exceptions into errors that name table, version and file.

    Args:
        scan: what is read.
        source: the part that is read; None if no file is.
        predicate: the expressions that are evaluated.
    """
    try:
        with interruptible():
            yield
    except (DelvecError, duckdb.InterruptException):
        raise
    except (duckdb.Error, pa.ArrowException, OSError) as error:
        raise _translated(error, scan, source, predicate) from error


def damage(error: Exception, scan: Scan) -> DelvecError | None:
    """Return the error about a missing or damaged file of a scan; None if DuckDB's error has another cause."""
    text = str(error)
    where = f"table '{scan.name}' (version {scan.version})"
    refused = (
        _of_storage(text, scan)
        or _incomplete(text, scan)
        or _not_text(text, scan, None, where)
        or _beyond_type(text, scan, None)
        or _encrypted(text, scan, None, where)
        or _miscounted(text, scan, None, where)
    )
    if refused is not None:
        return refused
    source = _whole_scan(scan)
    paths = zip(scan.files["path"].to_pylist(), source.names, strict=True)
    if not isinstance(error, OSError | duckdb.IOException) and not any(
        spelling in text for path, name in paths for spelling in _spellings(scan, path, name)
    ):
        return _unnamed_file(error, scan, source, where)
    return _damaged_file(text, scan, source, where)


def _whole_scan(scan: Scan) -> ScanSource:
    """Return all files of a scan, to ask about the files themselves."""
    return ScanSource(scan.files, file_names(scan.location, scan.files, scan.roots), None, "", None)


def _translated(
    error: Exception, scan: Scan, source: ScanSource | None, predicate: Evaluated | None
) -> DelvecError:
    text = str(error)
    reason = text.partition("\n")[0]
    where = f"table '{scan.name}' (version {scan.version})"
    facts = {"table": scan.name, "version": scan.version}
    if isinstance(error, duckdb.OutOfMemoryException):
        return EngineUnavailable(
            f"DuckDB ran out of memory on {where}: {reason}; raise its memory_limit, or use Spark.", **facts
        )
    # By text: while rows are streamed, Arrow raises an OSError with it.
    if text.startswith(_FATAL):
        return _fatal(reason, scan, source, where)
    specific_error = (
        _of_storage(text, scan)
        or _incomplete(text, scan)
        or _refused(text, where, facts)
        or _miscounted(text, scan, source, where)
        or _not_text(text, scan, source, where)
        or _beyond_type(text, scan, source)
        or _encrypted(text, scan, source, where)
        or (_damaged_file(text, scan, source, where) if source is not None else None)
        or (_unnamed_file(error, scan, source, where) if source is not None else None)
    )
    if specific_error is not None:
        return specific_error
    if isinstance(error, OSError | duckdb.IOException):
        return StorageError(f"Reading {where} failed: {reason}; retry, or check storage.", **facts)
    if predicate is not None:
        what = f"The predicate {predicate.text!r}"
        if isinstance(predicate, ChangeExpressions):
            texts = predicate.texts[:5]
            several = f"One of the expressions {', '.join(map(repr, texts))}"
            what = f"The expression {texts[0]!r}" if len(texts) == 1 else several
        return InvalidPredicate(f"{what} failed on rows of {where}: {reason}", **facts)
    return CorruptTable(f"DuckDB cannot read {where}: {reason}", **facts)


def _fatal(reason: str, scan: Scan, source: ScanSource | None, where: str) -> DelvecError:
    """Return the error about an internal error of DuckDB, which names the file that causes it."""
    facts: dict[str, Any] = {"table": scan.name, "version": scan.version}
    if _INVALIDATED in reason:
        return EngineUnavailable(
            f"Reading {where} was stopped, because another statement of this engine ended its DuckDB database. Run the "
            "command again.",
            **facts,
        )
    path = None
    if source is not None:
        paths = source.files["path"].to_pylist()
        # One file is to blame even if it can be read in another way.
        path = paths[0] if len(paths) == 1 else _unreadable_file(source)
    if path is None:
        return InternalError(
            f"DuckDB failed on {where}: {reason}. Nothing was committed; use Spark.", **facts
        )
    return _damaged(path, reason, scan, where)


def _unnamed_file(error: Exception, scan: Scan, source: ScanSource, where: str) -> DelvecError | None:
    """Return the error about a damaged file that DuckDB's error does not name; None if there is none.

    DuckDB gives errors of expressions a class, but its Parquet reader has some without one, and internal ones. By text,
    too: while rows are streamed, Arrow raises an OSError with it.
    """
    is_of_reader = type(error) is duckdb.Error or str(error).startswith((*_FATAL, _CORRUPT))
    path = _unreadable_file(source) if is_of_reader else None
    return None if path is None else _damaged(path, str(error).partition("\n")[0], scan, where)


def _damaged(path: str, reason: str, scan: Scan, where: str) -> DelvecError:
    facts: dict[str, Any] = {"table": scan.name, "version": scan.version, "file": path}
    if _NOT_SUPPORTED in reason:
        return UnsupportedTable(
            f"The data file '{path}' of {where} cannot be read by DuckDB: {reason}. Use Spark, or write the file's rows again.",
            **facts,
        )
    return CorruptTable(
        f"The data file '{path}' of {where} cannot be read, because it is damaged: {reason}. Restore it from a backup.",
        **facts,
    )


def _unreadable_file(source: ScanSource) -> str | None:
    """Return the first file that DuckDB cannot read as a whole; None if there is none among the first few."""
    paths = source.files["path"].to_pylist()
    size = 0
    with closing(DuckDBSession(threads=1)) as session:  # the next such error must not end a database in use
        session.mount(source)
        for path, name, length in zip(paths, source.names, source.files["size"].to_pylist(), strict=True):
            size += length
            if size > _MAX_READ_AGAIN:
                return None
            with closing(session._cursor()) as cursor:  # noqa: SLF001 - its own module
                # Hashes need every value; a count is answered from the footer.
                sql = f"SELECT bit_xor(hash(COLUMNS(*))) FROM read_parquet({file_list([name])})"  # noqa: S608 - quoted
                try:
                    cursor.execute(sql).fetchall()
                except duckdb.Error:
                    return str(path)
    return None


def _refused(text: str, where: str, facts: dict[str, Any]) -> DelvecError | None:
    """Return the typed error for a check inside the statement that failed; None if none did."""
    reason = text.partition("\n")[0]
    if "delvec: DuckDB read a file" in text:
        return InternalError(
            f"The scan of {where} was stopped, because it would return wrong rows: {reason}", **facts
        )
    if FAILED in text:
        column = text.partition(FAILED)[2].partition("'")[2].partition("'")[0]
        return SchemaMismatch(
            f"{where[:1].upper()}{where[1:]}: {reason.partition('delvec: ')[2]}. Nothing was committed; correct the "
            "value, or cast it.",
            **facts,
            column=column,
        )
    return None


def _miscounted(text: str, scan: Scan, source: ScanSource | None, where: str) -> DelvecError | None:
    """Return the error about a file with a deletion vector and more rows than it should have; None for other errors."""
    if not text.startswith("Out of Range Error: bit index"):
        return None
    files = (source or _whole_scan(scan)).files
    path = next(
        (path for path in files["path"].to_pylist()[:_MAX_LOOKED_UP] if _has_more_rows(scan, path)), None
    )
    what = "A file with a deletion vector" if path is None else f"The data file '{path}'"
    return CorruptTable(
        f"{what} of {where} has more rows than its statistics say, so its deleted rows are uncertain. If the statistics "
        "are wrong, as `delvec check` tells, `delvec repair` corrects them; otherwise restore the file from a backup.",
        table=scan.name,
        version=scan.version,
        file=path,
    )


def _has_more_rows(scan: Scan, path: str) -> bool:
    one = scan.only([path])
    stated = one.files["num_records"][0].as_py()
    try:
        return stated is not None and path in one.deletion_vectors and rows_in(one, path) > stated
    except (DelvecError, OSError, pa.ArrowException):
        return False


def _not_text(text: str, scan: Scan, source: ScanSource | None, where: str) -> DelvecError | None:
    """Return the error about bytes in a text column; None for other errors."""
    if NOT_TEXT not in text:
        return None
    column = text.partition(NOT_TEXT)[2].partition("'")[2].partition("' of ")[0]
    facts = {"table": scan.name, "version": scan.version, "column": column}
    path = _named(text, scan, source or _whole_scan(scan))
    return CorruptTable(
        f"The data file '{path}' of {where} has bytes in column '{column}' that are not text in UTF-8; restore the table to a "
        "version without this file, or read it with Spark.",
        **facts,
        file=path,
    )


def _beyond_type(text: str, scan: Scan, source: ScanSource | None) -> DelvecError | None:
    """Return the error about a number that is too large for its column; None for other errors."""
    if BEYOND_TYPE not in text:
        return None
    column, _, rest = text.partition(BEYOND_TYPE)[2].removeprefix("'").partition("' of ")
    reason = rest.partition("; ")[2].partition("\n")[0]
    path = _named(text, scan, source or _whole_scan(scan))
    return mismatch(DataFile.of(scan, str(path)), FileTypeMismatch(column, reason))


def _encrypted(text: str, scan: Scan, source: ScanSource | None, where: str) -> DelvecError | None:
    """Return the error about a file of which DuckDB reads an encrypted part; None for other errors."""
    if not any(phrase in text for phrase in _ENCRYPTED):
        return None
    source = source or _whole_scan(scan)
    path = _named(text, scan, source) or _unreadable_file(source)
    if path is None:
        return None
    return UnsupportedTable(
        f"The data file '{path}' of {where} is encrypted, and Delvec does not decrypt files. Write its rows without "
        "encryption; columns that are not encrypted can be read.",
        table=scan.name,
        version=scan.version,
        file=path,
    )


def _named(text: str, scan: Scan, source: ScanSource) -> str | None:
    """Return the path of the file that an error text names; None if it names none."""
    paths = zip(source.files["path"].to_pylist(), source.names, strict=True)
    return next(
        (path for path, name in paths if any(spelling in text for spelling in _spellings(scan, path, name))),
        None,
    )


def _incomplete(text: str, scan: Scan) -> DelvecError | None:
    """Return the error about a variant without metadata; None for other errors."""
    if INCOMPLETE not in text:
        return None
    reason = text.partition("delvec: ")[2].partition("\n")[0]
    return CorruptTable(
        f"Table '{scan.name}' (version {scan.version}) is damaged: {reason}; restore its files from a backup.",
        table=scan.name,
        version=scan.version,
        column=reason.partition("'")[2].rpartition(f"' {INCOMPLETE}")[0],
    )


def _of_storage(text: str, scan: Scan) -> DelvecError | None:
    """Return the storage error that DuckDB's text repeats, with its class, and so still retryable; or None."""
    remote = sys.modules.get("delvec_engines.duckdb.remote")
    found: DelvecError | None = remote.raised(text) if remote is not None else None
    if found is None:
        return None
    return type(found)(
        f"Reading table '{scan.name}' (version {scan.version}) failed. {found.message}",
        **(found.details | {"table": scan.name, "version": scan.version}),
    )


def _damaged_file(text: str, scan: Scan, source: ScanSource, where: str) -> DelvecError | None:
    """Return the error about a missing file, or the file that DuckDB's error names; None if there is none.

    If the text names no file, only a few files are looked up in storage: a table can have a million.
    """
    paths = source.files["path"].to_pylist()
    named_paths = [
        path
        for path, name in zip(paths, source.names, strict=True)
        if any(spelling in text for spelling in _spellings(scan, path, name))
    ]
    for path in named_paths or paths[:_MAX_LOOKED_UP]:
        if _is_missing(scan, path):
            return missing_data_file(scan, path)
    if not named_paths:
        return None
    return CorruptTable(
        f"The data file '{named_paths[0]}' of {where} cannot be read: {text.partition(chr(10))[0]}",
        table=scan.name,
        version=scan.version,
        file=named_paths[0],
    )


def _spellings(scan: Scan, path: str, name: str) -> Iterator[str]:
    """Yield the spellings of a file in error texts: DuckDB's name, its glob pattern, storage's URL."""
    yield name
    # The name of files that are read as bytes.
    yield f" {scan.location} {path}"
    if not is_remote(name):
        yield as_pattern(name)
    else:
        yield resolve(scan.location, path)


def _is_missing(scan: Scan, path: str) -> bool:
    try:
        return storage.stat(scan.location, path, is_allowed=scan.roots.allows) is None
    except StorageError:
        return False
