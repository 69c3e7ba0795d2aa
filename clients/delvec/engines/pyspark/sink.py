"""``df.write.format("delvec")``: rows that Spark hands to a Python data source become files of a table, and a commit.

Spark calls the parts in processes of their own: one on the driver makes the writer, which begins the transaction;
tasks write final files; another one on the driver commits what the tasks say they wrote. Only that one and the first
ask the service. What a failed job leaves carries the id of a transaction that the service has in its ledger.

What tasks cannot do here is evaluate Spark's SQL, and number rows: tables with CHECK constraints, generated or identity
columns, and ``replaceWhere``, need ``table.append(df)`` or ``table.overwrite(df, ...)``, which can.
"""

import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import types as T  # noqa: N812 - as everyone calls it
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from delvec.commands.append import add_rows
from delvec.commands.new_rows import NewRows, WriteOptions
from delvec.commands.overwrite import Replacement, replace_rows
from delvec.connection import Connection, connect
from delvec.engines.engine import WriteTarget
from delvec.engines.parquet_writer import write_data_files
from delvec.engines.row_checks import RowChecks
from delvec.protocol import locations
from delvec.protocol.errors import (
    BadRequest,
    DelvecError,
    NotFound,
    StorageError,
    UnsupportedOperation,
    from_wire,
)
from delvec.protocol.types import schema_from
from delvec.protocol.wire import AddFile
from delvec.table import DeltaTable

__all__ = ["DelvecWriter", "WriteRequest"]

_FLAGS: Final = {"mergeschema": "merge_schema", "overwriteschema": "overwrite_schema"}
_TEXTS: Final = {
    "path": "path",
    "url": "url",
    "token": "token",
    "txnappid": "txn_app",
    "txnversion": "txn_version",
    "usermetadata": "user_metadata",
    "partitionoverwritemode": "partitions",
}
_KNOWN: Final = "path, url, token, mergeSchema, overwriteSchema, partitionOverwriteMode, txnAppId, txnVersion, userMetadata"


@dataclass(frozen=True)
class WriteRequest:
    """What ``option()`` was given."""

    path: str
    url: str | None = None
    token: str | None = field(default=None, repr=False)
    merge_schema: bool = False
    overwrite_schema: bool = False
    partitions: str = "static"
    txn_app: str | None = None
    txn_version: str | None = None
    user_metadata: str | None = None

    @classmethod
    def of(cls, given: Mapping[str, str]) -> "WriteRequest":
        """Return the options as they are meant.

        Raises:
            BadRequest: there is no such option, or it has no such value.
            UnsupportedOperation: ``replaceWhere``.
        """
        values: dict[str, Any] = {}
        for key, value in given.items():
            name = key.lower()
            if name == "replacewhere":
                raise UnsupportedOperation(
                    "format('delvec') cannot evaluate replaceWhere where it writes; use Delvec's "
                    "table.overwrite(df, replace_where=...)"
                )
            if name in _FLAGS:
                if value.strip().lower() not in ("true", "false"):
                    raise BadRequest(f"the option {key} is true or false, not {value!r}")
                values[_FLAGS[name]] = value.strip().lower() == "true"
            elif name in _TEXTS:
                values[_TEXTS[name]] = value
            else:
                raise BadRequest(f"writing by format('delvec') has no option '{key}'; it has {_KNOWN}")
        if "path" not in values:
            raise BadRequest("format('delvec') needs a table: .save('/path/to/table'), or its name")
        if ("txn_app" in values) != ("txn_version" in values):
            raise BadRequest("txnAppId and txnVersion belong together: give both")
        if not values.get("txn_version", "0").strip().isdecimal():
            raise BadRequest(f"the option txnVersion must be a whole number, not {values['txn_version']!r}")
        values["partitions"] = values.get("partitions", "static").lower()
        return cls(**values)

    @property
    def options(self) -> WriteOptions:
        """What the commands take."""
        txn = None if self.txn_app is None else (self.txn_app, int(self.txn_version or 0))
        return WriteOptions(self.merge_schema, self.overwrite_schema, None, txn, self.user_metadata)


@dataclass
class _Written(WriterCommitMessage):  # type: ignore[misc]
    """What a task did: files, as JSON, or the error that it met."""

    adds: list[str]
    error: str | None = None


class DelvecWriter(DataSourceArrowWriter):  # type: ignore[misc]
    """Writes the rows of one job, and commits them."""

    def __init__(self, request: WriteRequest, schema: T.StructType, *, overwrite: bool) -> None:
        self._replacement = Replacement(None, request.partitions) if overwrite else None  # type: ignore[arg-type]
        if not overwrite and request.overwrite_schema:
            raise BadRequest("overwriteSchema goes with mode('overwrite')")
        if self._replacement is not None:
            self._replacement.check(request.options)
        columns = schema_from(schema)
        with connect(request.url, token=request.token) as lake:
            table = _table(request, lake, columns)
            nothing = columns.to_arrow().empty_table()
            rows = NewRows.begin(table._service, table, nothing, request.options)  # noqa: SLF001
        self._request = request
        self._begun, self._changes, self._target = rows.begun, rows.changes, rows.target
        self._already_applied = rows.already_applied
        _check(rows.target, request)
        self._secret = _Secret(request.token)

    def __getstate__(self) -> dict[str, Any]:
        # Tasks get this object, too, and need no token.
        state = dict(self.__dict__)
        state["_request"] = WriteRequest(**{**self._request.__dict__, "token": None})
        return state

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Runs on executors."""
        from pyspark import TaskContext

        context = TaskContext.get()
        try:
            if self._already_applied:
                return _Written([])
            adds = _write(iterator, self._target, context.partitionId() if context else 0)
        except DelvecError as error:
            # Raised here, it would be tried again, and reach the driver as text.
            return _Written([], json.dumps(error.to_wire()))
        return _Written([add.model_dump_json(by_alias=True) for add in adds])

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Commit what tasks wrote, in a process of the driver's.

        Raises:
            DelvecError: what a task met, or the commit.
        """
        written = [message for message in messages if isinstance(message, _Written)]
        for message in written:
            if message.error:
                self._secret.forget()
                raise from_wire(json.loads(message.error))
        if self._already_applied:
            self._secret.forget()
            return
        adds = [AddFile.model_validate_json(add) for message in written for add in message.adds]
        with connect(self._request.url, token=self._secret.take()) as lake:
            table = lake.table(self._target.location, engine=_WrittenFiles(adds))
            rows = NewRows(
                table._service,  # noqa: SLF001
                table,
                self._begun,
                None,
                self._target,
                self._request.options,
                self._changes,
            )
            if self._replacement is None:
                add_rows(rows)
            else:
                replace_rows(rows, self._replacement)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:  # noqa: ARG002
        """Leave the files: the service has the transaction in its ledger, and nothing refers to them."""
        self._secret.forget()


class _WrittenFiles:
    """Stands in for an engine: the rows are in files already."""

    name = "delvec-spark-sink"

    def __init__(self, adds: Sequence[AddFile] = ()) -> None:
        self._adds = adds

    def write(self, data: Any, target: WriteTarget) -> Sequence[AddFile]:  # noqa: ARG002
        """Return the files of the tasks."""
        return self._adds

    def _refuse(self, *_: Any) -> Any:
        raise NotImplementedError("format('delvec') writes in tasks")

    find_rows = rewrite = read = count = merge_source = change_rows = copy_rows = _refuse


class _Secret:
    """The token on its way from one process of the driver's to another, in a file that only the user can read."""

    def __init__(self, token: str | None) -> None:
        self._path: str | None = None
        if token is not None:
            handle, self._path = tempfile.mkstemp(prefix="delvec-")
            with os.fdopen(handle, "w") as file:
                file.write(token)

    def take(self) -> str | None:
        """Return the token, once."""
        if self._path is None:
            return None
        token = Path(self._path).read_text()
        self.forget()
        return token

    def forget(self) -> None:
        """Remove the file."""
        if self._path is not None:
            with suppress(OSError):
                Path(self._path).unlink()


def _table(request: WriteRequest, lake: Connection, columns: Any) -> DeltaTable:
    """Return the table; one that is not there is created, as delta-spark does."""
    engine = _WrittenFiles()
    try:
        return lake.table(request.path, engine=engine)
    except NotFound:
        is_location = "/" in request.path or request.path.startswith(".")
        where = locations.absolute(request.path) if is_location else request.path
        return lake.create_table(where, columns, engine=engine)


def _check(target: WriteTarget, request: WriteRequest) -> None:
    if target.identity:
        # How many tasks there will be is not told, so that several would give the same numbers.
        raise UnsupportedOperation(
            f"Table '{request.path}' has the identity column '{target.identity[0].name}', to which format('delvec') cannot "
            "give numbers; use Delvec's table.append(df) or table.overwrite(df)."
        )
    if RowChecks(target).constraints.has_expressions:
        raise UnsupportedOperation(
            f"Table '{request.path}' has CHECK constraints or generated columns, which format('delvec') cannot evaluate "
            "where it writes; use Delvec's table.append(df) or table.overwrite(df), where Spark evaluates them."
        )


def _write(batches: Iterator[pa.RecordBatch], target: WriteTarget, task: int) -> list[AddFile]:
    checks = RowChecks(target)
    try:
        return write_data_files(checks.checked(batches) if checks.is_needed else batches, target, task=task)
    except OSError as error:
        raise StorageError(
            f"Cannot write the files of a task to {target.location}: {error}; try again, or check storage."
        ) from error
