"""``spark.read.format("delvec")``: a table as a Python data source.

Spark calls parts of a source in processes of their own: one makes the source and asks for the schema, one plans,
others read. What must not change in between travels in the pickled object: the version, found when the schema is
asked for. The service is asked on the driver only; tasks get the files to read, and no token.

Filters are not taken from Spark (``pushFilters``). PySpark 4.1 to 4.3 keep what a filtered query planned, and read
just that in later queries of the same DataFrame or view, whatever these ask for: rows would be missing.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import types as T  # noqa: N812 - as everyone calls it
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)

from delvec.engines.pyspark.driver_connection import driver_connection
from delvec.engines.pyspark.scan import spark_schema
from delvec.engines.pyspark.task_side import FileSlice, TableRead, read_slices
from delvec.protocol.errors import BadRequest, SchemaMismatch, UnsupportedOperation, UnsupportedTable
from delvec.protocol.types import StructType, has_variant
from delvec.scan import Scan
from delvec.table import DeltaTable

__all__ = ["DelvecSource"]

_OPTIONS: Final = {
    "path": "path",
    "url": "url",
    "token": "token",
    "version": "version",
    "versionasof": "version",
    "timestamp": "timestamp",
    "timestampasof": "timestamp",
    "columns": "columns",
    "skipfilesunless": "skip_files_unless",
    "partitionbytes": "partition_bytes",
}
_PARTITION_BYTES: Final = 64 << 20
_OPENING_BYTES: Final = 4 << 20
"""What opening a file counts as, so that many small ones are not one task."""


@dataclass(frozen=True)
class _Options:
    """What ``option()`` was given. Not shown anywhere: it holds the token."""

    path: str
    url: str | None = None
    token: str | None = None
    version: int | None = None
    timestamp: str | None = None
    columns: tuple[str, ...] | None = None
    skip_files_unless: str | None = None
    partition_bytes: int = _PARTITION_BYTES

    def __repr__(self) -> str:
        return f"delvec({self.path!r})"

    @classmethod
    def of(cls, given: Mapping[str, str]) -> "_Options":
        values: dict[str, Any] = {}
        for key, value in given.items():
            name = _OPTIONS.get(key.lower())
            if name is None:
                known = "path, url, token, version, timestamp, columns, skipFilesUnless, partitionBytes"
                raise BadRequest(f"format('delvec') has no option '{key}'; it has {known}")
            if name in values and values[name] != value:
                raise BadRequest(f"the option '{key}' is given twice, under two spellings")
            values[name] = value
        if "path" not in values:
            raise BadRequest("format('delvec') needs a table: .load('/path/to/table'), or its name")
        for name in ("version", "partition_bytes"):
            if name in values:
                values[name] = _whole_number(name, values[name])
        if "version" in values and "timestamp" in values:
            raise BadRequest("give the option version or timestamp, not both")
        if "columns" in values:
            values["columns"] = tuple(name.strip() for name in values["columns"].split(","))
        return cls(**values)


def _whole_number(name: str, text: str) -> int:
    if not text.strip().isdecimal():
        raise BadRequest(f"the option {name} must be a whole number, not {text!r}")
    return int(text)


class DelvecSource(DataSource):  # type: ignore[misc]
    """A table of a service; options are in docs/engines.md."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(dict(options))
        self._pin: _Pin | None = None
        self._planned = False

    def __getstate__(self) -> dict[str, Any]:
        # Spark sends the source to tasks too, along with what it planned; they have no use for the token.
        return {"options": {}, "_pin": None, "_planned": True} if self._planned else self.__dict__

    @classmethod
    def name(cls) -> str:
        """Return what ``format()`` takes."""
        return "delvec"

    def schema(self) -> T.StructType:
        """Return the table's schema, and pin the version.

        Raises:
            TableNotFound: or another error of the service, as the cause that Spark shows.
        """
        pin = self._pinned()
        columns = pin.options.columns
        schema = pin.schema if columns is None else pin.schema.select(columns)
        if has_variant(schema):
            raise UnsupportedTable(
                f"Table '{pin.options.path}' (version {pin.version}) has a column of type variant, which Spark does not "
                "take from Python data sources; leave it out by the option columns, or use DeltaTable.to_df()",
                table=pin.options.path,
                version=pin.version,
            )
        return spark_schema(schema)

    def reader(self, schema: T.StructType) -> DataSourceReader:
        """Return what plans the tasks.

        Args:
            schema: the columns to read: those of :meth:`schema`, or the ones that ``.schema()`` was given.
        """
        if self._pin is None and _Options.of(self.options).version is None:
            raise BadRequest(
                "with .schema() Spark asks for the version only when a query runs, so that it could differ from query "
                "to query; use the option columns instead, or give the option version too"
            )
        self._planned = True
        return _Reader(self._pinned(), schema)

    def writer(self, schema: T.StructType, overwrite: bool) -> DataSourceWriter:
        """Return what writes rows with these columns; see :mod:`delvec.engines.pyspark.sink`."""
        from delvec.engines.pyspark.sink import DelvecWriter
        from delvec.engines.pyspark.sink_options import WriteRequest

        return DelvecWriter(WriteRequest.of(self.options, overwrite=overwrite), schema, overwrite=overwrite)

    def streamWriter(self, schema: T.StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 - Spark's
        """Return what writes batches of a stream; see :mod:`delvec.engines.pyspark.stream_sink`.

        Raises:
            UnsupportedOperation: PySpark 4.0, which does not give rows as Arrow.
        """
        from delvec.engines.pyspark.sink_options import WriteRequest

        try:
            from delvec.engines.pyspark.stream_sink import DelvecStreamWriter
        except ImportError as error:
            raise UnsupportedOperation(
                "writeStream.format('delvec') needs PySpark 4.1 or later; write each batch with foreachBatch, and the options "
                "txnAppId and txnVersion (the batch's id) so that none is written twice"
            ) from error
        request = WriteRequest.of(self.options, overwrite=overwrite, streaming=True)
        return DelvecStreamWriter(request, schema, overwrite=overwrite)

    def _pinned(self) -> "_Pin":
        if self._pin is None:
            options = _Options.of(self.options)
            found = _table(options).snapshot(options.version, options.timestamp)
            self._pin = _Pin(options, found.version, StructType.from_json(found.table_schema))
        return self._pin


@dataclass(frozen=True)
class _Pin:
    """What a source reads from the moment when it is first asked."""

    options: _Options
    version: int
    schema: StructType


def _table(options: _Options) -> DeltaTable:
    return driver_connection(options.url, options.token).table(options.path, engine=_TaskSide())


class _TaskSide:
    """Stands in for an engine: rows are read by tasks."""

    name = "delvec-spark-source"

    def _refuse(self, *_: Any) -> Any:
        raise NotImplementedError("format('delvec') reads in tasks")

    find_rows = rewrite = write = read = count = _refuse
    merge_source = change_rows = copy_rows = _refuse


class _Files(InputPartition):  # type: ignore[misc]
    """What one task reads."""

    def __init__(self, read: TableRead, slices: Sequence[FileSlice]) -> None:
        super().__init__(None)
        self.read = read
        self.slices = slices

    def __repr__(self) -> str:
        return f"{len(self.slices)} files"


class _Reader(DataSourceReader):  # type: ignore[misc]
    def __init__(self, pin: _Pin, schema: T.StructType) -> None:
        self._pin = pin
        self._names = _checked_names(pin, schema)

    def __getstate__(self) -> dict[str, Any]:
        # Executors get the reader too, and need neither the service nor the token.
        return {}

    def partitions(self) -> Sequence[InputPartition]:
        """Ask the service for files, and group them by bytes."""
        options = self._pin.options
        scan, _ = _table(options).plan(self._names, options.skip_files_unless, self._pin.version)
        read = TableRead(
            scan.location,
            scan.name,
            scan.version,
            scan.schema.select(self._names),
            frozenset(scan.schema.field(name).name for name in scan.partition_columns),
            scan.configuration.get("delta.columnMapping.mode", "none").lower(),
        )
        return [_Files(read, group) for group in _groups(scan, options.partition_bytes)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Runs on executors."""
        return read_slices(partition.read, partition.slices)


def _checked_names(pin: _Pin, schema: T.StructType) -> list[str]:
    """Return the table's names for the columns asked for."""
    names = pin.schema.select(schema.names).names
    wanted = spark_schema(pin.schema.select(names))
    for item, field in zip(wanted.fields, schema.fields, strict=True):
        if item.dataType != field.dataType or item.name != field.name:
            raise SchemaMismatch(
                f"Column '{item.name}' of table '{pin.options.path}' (version {pin.version}) is "
                f"{item.dataType.simpleString()}, but .schema() says {field.name} {field.dataType.simpleString()}; "
                "leave .schema() out, or use it to choose columns only",
                column=item.name,
            )
    return names


def _groups(scan: Scan, size: int) -> Iterator[list[FileSlice]]:
    """Cut large files into slices, and put small ones together, so that tasks have about ``size`` bytes each."""
    group: list[FileSlice] = []
    taken = 0
    for part, nbytes in _slices(scan, size):
        if group and taken + nbytes > size:
            yield group
            group, taken = [], 0
        group.append(part)
        taken += nbytes + _OPENING_BYTES
    if group:
        yield group


def _slices(scan: Scan, size: int) -> Iterator[tuple[FileSlice, int]]:
    names = ("path", "size", "partition_values", "deletion_vector", "deleted_rows")
    columns = (scan.files[name].to_pylist() for name in names)
    for path, length, values, descriptor, deleted in zip(*columns, strict=True):
        part = FileSlice(path, 0, None, dict(values or ()), descriptor, deleted)
        count = max(1, round(length / size))
        cuts = [length * i // count for i in range(count)]
        for start, end in zip(cuts, [*cuts[1:], None], strict=True):
            yield replace(part, start=start, end=end), (length if end is None else end) - start
