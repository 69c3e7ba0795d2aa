"""``spark.read.format("delvec")``: the data source, and its readers of tables and of the change data feed.

Tested in `tests/integration/spark/test_spark_source.py`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import types as T  # noqa: N812 - as everyone calls it
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)

from delvec.spark_datasource.driver_connection import driver_connection
from delvec.spark_datasource.input_partitions import FilesOfTask, cut
from delvec.spark_datasource.sink_options import NOT_IN_CATALOGS, refuse_catalog
from delvec.spark_datasource.stream_source import default_limits, reader_of
from delvec_commands.change_feed.stream_options import FORMAT, VERSION_OPTIONS, StreamOptions
from delvec_engines.spark.file_slices import read_slices
from delvec_engines.spark.row_sets import without_traceback
from delvec_errors import BadRequest, SchemaMismatch, UnsupportedOperation, UnsupportedTable
from delvec_kernel.change_feed.feed_schema import feed_schema
from delvec_kernel.schema.types import StructType, has_variant

__all__ = ["DelvecSource"]


if TYPE_CHECKING:
    from delvec.table import DeltaTable
    from delvec_contract.tables import SnapshotResponse


_OPTIONS: Final = {
    "path": "path",
    "url": "url",
    "token": "token",
    **VERSION_OPTIONS,
    "columns": "columns",
    "skipfilesunless": "skip_files_unless",
    "partitionbytes": "partition_bytes",
    "endingversion": "ending_version",
    "endingtimestamp": "ending_timestamp",
}
_OF_CHANGES: Final = frozenset({"readchangefeed", "readchangedata", "startingversion", "startingtimestamp"})
"""Options of streams that ``spark.read`` also has."""
_PARTITION_BYTES: Final = 64 << 20


@dataclass(frozen=True)
class _Options:
    """The options given by ``option()``. Never shown, as they include the token."""

    path: str
    url: str | None = None
    token: str | None = None
    version: int | None = None
    timestamp: str | None = None
    columns: tuple[str, ...] | None = None
    skip_files_unless: str | None = None
    partition_bytes: int = _PARTITION_BYTES
    ending_version: int | None = None
    ending_timestamp: str | None = None
    of_streams: Mapping[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"delvec({self.path!r})"

    @classmethod
    def of(cls, given: Mapping[str, str]) -> "_Options":
        refuse_catalog(given)
        values: dict[str, Any] = {}
        of_streams: dict[str, str] = {}
        for key, value in given.items():
            if key.lower() in StreamOptions.names():
                of_streams[key.lower()] = value
                continue
            name = _OPTIONS.get(key.lower())
            if name is None:
                known = (
                    "path, url, token, version, timestamp, columns, skipFilesUnless, partitionBytes, and of changes "
                    "readChangeFeed, startingVersion, startingTimestamp, endingVersion, endingTimestamp"
                )
                raise BadRequest(f"format('delvec') has no option '{key}'; its options are {known}")
            if name in values and values[name] != value:
                raise BadRequest(f"the option '{key}' is given twice, in two spellings")
            values[name] = value
        if "path" not in values:
            raise BadRequest(
                f"format('delvec') needs a table: .load('/path/to/table'), or its name. {NOT_IN_CATALOGS}"
            )
        _check_versions(values)
        if "columns" in values:
            values["columns"] = tuple(name.strip() for name in values["columns"].split(","))
        return cls(**values, of_streams=of_streams)

    @property
    def has_end(self) -> bool:
        """Whether the options give an end of the change data feed."""
        return self.ending_version is not None or self.ending_timestamp is not None

    @property
    def stream(self) -> StreamOptions:
        """The options for ``readStream``."""
        return default_limits(StreamOptions.of(self.of_streams))


def _check_versions(values: dict[str, Any]) -> None:
    for name in ("version", "partition_bytes", "ending_version"):
        if name in values:
            values[name] = _whole_number(name, values[name])
    for one, other, said in (
        ("version", "timestamp", "version or timestamp"),
        ("ending_version", "ending_timestamp", "endingVersion or endingTimestamp"),
    ):
        if one in values and other in values:
            raise BadRequest(f"give the option {said}, not both")


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
        # Without options: Spark also sends the source to tasks, which do not need the token.
        return {"options": {}, "_pin": None, "_planned": True} if self._planned else self.__dict__

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format()``."""
        return FORMAT

    @without_traceback
    def schema(self) -> T.StructType:
        """Return the table's schema, and pin the version.

        Raises:
            TableNotFound: or another error of the service.
        """
        pin = self._pinned()
        columns = pin.options.columns
        schema = pin.schema if columns is None else pin.schema.select(columns)
        if has_variant(schema):
            raise UnsupportedTable(
                f"Table '{pin.options.path}' (version {pin.version}) has a column of type variant, which Spark does "
                "not accept from Python data sources; leave it out with the option columns, or use DeltaTable.to_df()",
                table=pin.options.path,
                version=pin.version,
            )
        return _spark_schema(schema)

    @without_traceback
    def reader(self, schema: T.StructType) -> DataSourceReader:
        """Return the batch reader.

        Args:
            schema: the columns to read: those of :meth:`schema`, or of the user's ``.schema()``.
        """
        if self._pin is None and _Options.of(self.options).version is None:
            raise BadRequest(
                "with .schema() Spark determines the version only when a query runs, so it could differ between "
                "queries; use the option columns instead, or also give the option version"
            )
        self._planned = True
        pin = self._pinned()
        of_streams = pin.options.of_streams.keys() - _OF_CHANGES
        is_feed = pin.options.stream.read_change_feed
        if of_streams:
            raise BadRequest(
                f"only spark.readStream has {', '.join(sorted(of_streams))}; leave it out of spark.read"
            )
        if (pin.options.of_streams or pin.options.has_end) and not is_feed:
            raise BadRequest(
                "the options for the start and end of changes need readChangeFeed=true; to read one version, use the "
                "option version"
            )
        return _ChangesReader(pin, schema) if is_feed else _Reader(pin, schema)

    @without_traceback
    def streamReader(self, schema: T.StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return the stream reader; see :mod:`delvec.spark_datasource.stream_source`."""
        from delvec_commands.change_feed.stream import TableStream

        pin = self._pinned()
        options = pin.options
        if (
            options.version is not None
            or options.timestamp is not None
            or options.skip_files_unless is not None
        ):
            raise BadRequest(
                "version, timestamp and skipFilesUnless are not options of spark.readStream; use startingVersion or "
                "startingTimestamp to set its start"
            )
        if options.has_end:
            raise BadRequest(
                "endingVersion and endingTimestamp are options of spark.read; a stream runs until it is stopped"
            )
        self._planned = True
        stream = TableStream(_table(options)._service, pin.snapshot, options.stream)  # noqa: SLF001
        return reader_of(stream, options.stream, _checked_names(pin, schema), options.partition_bytes)

    @without_traceback
    def writer(self, schema: T.StructType, overwrite: bool) -> DataSourceWriter:
        """Return the batch writer for rows with these columns; see :mod:`delvec.spark_datasource.sink`."""
        from delvec.spark_datasource.sink import DelvecWriter
        from delvec.spark_datasource.sink_options import WriteRequest

        return DelvecWriter(WriteRequest.of(self.options, overwrite=overwrite), schema, overwrite=overwrite)

    @without_traceback
    def streamWriter(self, schema: T.StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 - Spark's
        """Return the stream writer; see :mod:`delvec.spark_datasource.stream_sink`.

        Raises:
            UnsupportedOperation: PySpark 4.0, which does not pass rows as Arrow.
        """
        from delvec.spark_datasource.sink_options import WriteRequest

        try:
            from delvec.spark_datasource.stream_sink import DelvecStreamWriter
        except ImportError as error:
            raise UnsupportedOperation(
                "writeStream.format('delvec') needs PySpark 4.1 or later; write each batch with foreachBatch, and the options "
                "txnAppId and txnVersion (the batch's id) so that no batch is written twice"
            ) from error
        request = WriteRequest.of(self.options, overwrite=overwrite, streaming=True)
        return DelvecStreamWriter(request, schema, overwrite=overwrite)

    def _pinned(self) -> "_Pin":
        if self._pin is None:
            options = _Options.of(self.options)
            found = _table(options).snapshot(options.version, options.timestamp)
            schema = StructType.from_json(found.table_schema)
            fed = options.stream.read_change_feed
            self._pin = _Pin(options, found, feed_schema(schema) if fed else schema)
        return self._pin


@dataclass(frozen=True)
class _Pin:
    """The table and version of a source, pinned on first use."""

    options: _Options
    snapshot: "SnapshotResponse"
    schema: StructType

    @property
    def version(self) -> int:
        """The pinned version."""
        return self.snapshot.version


def _table(options: _Options) -> "DeltaTable":

    return driver_connection(options.url, options.token).table(options.path, engine=_NoEngine())


class _NoEngine:
    """A placeholder engine that refuses everything: tasks read the rows."""

    name = "delvec-spark-source"
    copier = None
    compacts_in_process = False

    def progress(self) -> None:
        """Return None: nothing runs here."""

    def close(self) -> None:
        """Do nothing: nothing is open."""

    def _refuse(self, *_: Any) -> Any:
        raise NotImplementedError("format('delvec') reads only in tasks")

    bounded = execution = find_rows = write = read = read_batches = to_df = count = _refuse
    merge_source = change_rows = copy_rows = compact = cluster = _refuse


class _Reader(DataSourceReader):  # type: ignore[misc]
    def __init__(self, pin: _Pin, schema: T.StructType) -> None:
        self._pin = pin
        self._names = _checked_names(pin, schema)

    def __getstate__(self) -> dict[str, Any]:
        # Without connection and token, which executors do not need.
        return {}

    @without_traceback
    def partitions(self) -> Sequence[InputPartition]:
        """Plan the scan, and group its files by bytes."""
        options = self._pin.options
        scan, _ = _table(options).plan(self._names, options.skip_files_unless, self._pin.version)
        return list(cut(scan, self._names, options.partition_bytes))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Runs on executors."""
        if not isinstance(partition, FilesOfTask):
            # Without partitions, PySpark runs one task with a partition of its own class.
            return iter(())
        return read_slices(partition.read, partition.slices)


class _ChangesReader(_Reader):
    """Reads the change data feed, up to the version that was the newest when the schema was requested."""

    @without_traceback
    def partitions(self) -> Sequence[InputPartition]:
        """Plan the change data feed."""
        from delvec_commands.change_feed.feed import plan_changes

        options, table = self._pin.options, _table(self._pin.options)
        start = options.stream
        if start.starting_version == "latest" or (
            start.starting_version is None and start.starting_timestamp is None
        ):
            raise BadRequest(
                "readChangeFeed needs the option startingVersion or startingTimestamp; start and end are inclusive"
            )
        if (
            options.version is not None
            or options.timestamp is not None
            or options.skip_files_unless is not None
        ):
            raise BadRequest(
                "version, timestamp and skipFilesUnless cannot be combined with readChangeFeed; use endingVersion or "
                "endingTimestamp to set the end"
            )
        feed = plan_changes(
            table._service,  # noqa: SLF001
            table.id,
            columns=self._names,
            start_version=start.starting_version,
            start_timestamp=start.starting_timestamp,
            end_version=options.ending_version if options.has_end else self._pin.version,
            end_timestamp=options.ending_timestamp,
        )
        if feed.schema.select(self._names) != self._pin.schema.select(self._names):
            raise SchemaMismatch(
                f"The columns of table '{options.path}' at the end of these changes differ from those in version "
                f"{self._pin.version}; read them with DeltaTable.changes_df()",
                table=options.path,
            )
        return [part for scan in feed.scans for part in cut(scan, self._names, options.partition_bytes)]


def _checked_names(pin: _Pin, schema: T.StructType) -> list[str]:
    """Return the requested columns, spelled as in the table."""
    names = pin.schema.select(schema.names).names
    wanted = _spark_schema(pin.schema.select(names))
    for item, given in zip(wanted.fields, schema.fields, strict=True):
        if item.dataType != given.dataType or item.name != given.name:
            raise SchemaMismatch(
                f"Column '{item.name}' of table '{pin.options.path}' (version {pin.version}) is "
                f"{item.dataType.simpleString()}, but .schema() says {given.name} {given.dataType.simpleString()}; "
                "leave out .schema(), or use it only to choose columns",
                column=item.name,
            )
    return names


def _spark_schema(schema: StructType) -> T.StructType:
    from delvec_engines.spark.scan import spark_schema

    return spark_schema(schema)
