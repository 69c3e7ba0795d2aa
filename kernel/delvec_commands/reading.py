"""Reading a table on any engine: rows in several formats, and what the log knows."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from delvec_commands.change_feed.feed import plan_changes, read_changes, read_changes_lazily
from delvec_commands.display import History, columns_of, pairs, tree
from delvec_commands.filters import both, of_tuples
from delvec_commands.lazy_rows import Rows
from delvec_commands.peer_names import TABLE_HINTS, no_attribute
from delvec_commands.table_service import TableService, iso_time, request
from delvec_commands.vended_credentials import StorageCredentials, storage_credentials
from delvec_contract import operations
from delvec_contract.access import StorageOperation
from delvec_contract.plans import PlanRequest
from delvec_contract.tables import DetailResponse, SnapshotResponse, TableResource
from delvec_engines.protocol import Engine
from delvec_engines.scan import Scan
from delvec_errors import BadRequest, DelvecError
from delvec_kernel.expressions import predicate as predicates
from delvec_kernel.expressions.predicate import Predicate
from delvec_kernel.schema.types import StructType
from delvec_kernel.table_properties import byte_size_text

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import polars as pl
    from pyspark.sql import DataFrame

__all__ = ["ReadableTable", "partitions"]

_INTERNAL: Final = frozenset({"change_from_itself", "check_source_version", "source_version", "replace_with"})
"""Methods for other parts of Delvec, hidden from completion."""
_FILES_TO_ASK_ABOUT: Final = 10_000


class ReadableTable:
    """The reading half of :class:`~delvec.DeltaTable`.

    Attributes:
        id: the service's id of the table; stable when the table is renamed.
        name: the table's name in URLs.
        location: canonical URL, without a trailing slash.
        engine: reads and writes the data files.
    """

    def __init__(self, service: TableService, resource: TableResource, engine: Engine) -> None:
        self._service = service
        self.id = resource.id
        self.name = resource.name
        self.location = resource.location
        self.engine = engine
        service.opens(resource)

    @property
    def service(self) -> TableService:
        """The service that has the table."""
        return self._service

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if not name.startswith("_") and name not in _INTERNAL]

    if not TYPE_CHECKING:  # to type checkers an unknown name would be a method of any type

        def __getattr__(self, name: str) -> Any:
            raise no_attribute(type(self).__name__, name, TABLE_HINTS)

    def _repr_html_(self) -> str:
        facts: dict[str, Any] = {"location": self.location}
        with suppress(DelvecError):  # a table that cannot be read shows only its location
            now = self.snapshot()
            facts |= {
                "version": now.version,
                "columns": columns_of(StructType.from_json(now.table_schema)),
                "partitioned by": ", ".join(now.partition_columns) or None,
                "files": f"{now.num_files:,}",
                "size": byte_size_text(now.size_in_bytes),
                "deleted rows": f"{now.num_deleted_rows:,} in {now.num_deletion_vectors:,} deletion vectors",
            }
        return pairs(
            f"Delta table {self.name}", {name: value for name, value in facts.items() if value is not None}
        )

    def storage_credentials(self, operation: StorageOperation = "READ") -> StorageCredentials:
        """Return short-lived object store credentials for the files of this table only.

        For engines that read and write data files themselves; commits go through the service. Delvec's DuckDB engine
        uses them with ``connect(url, storage_credentials="vended")``.

        Args:
            operation: ``"READ"``, or ``"READ_WRITE"``, which also allows writing data files, but never the log.

        Raises:
            CredentialVendingUnsupported: the store does not issue any, or the service is not configured for it.
            PermissionDenied: ``READ_WRITE`` needs the role writer on the table.
        """
        return storage_credentials(self._service, self.id, operation)

    def scan(
        self,
        columns: Sequence[str] | None = None,
        predicate: str | None = None,
        version: int | None = None,
        timestamp: str | datetime | None = None,
        *,
        filters: Any = None,
    ) -> Rows:
        """Return lazy rows, read later in the chosen format; the version is fixed now.

        Args:
            columns: names of columns, in order; by default all. Names are case-insensitive.
            predicate: only rows that match this condition.
            version: the table as of this version.
            timestamp: the table as of this time.
            filters: conditions as in pyarrow and deltalake: ``[("age", ">", 17), ("country", "in", ["NZ"])]``, or lists
                of such lists, of which one must match.

        Raises:
            InvalidPredicate: the predicate cannot be parsed.
            UnknownColumn: the table has no such column.
            VersionNotFound: the log does not have the version.
            CorruptTable: or a subclass: the log is damaged.
        """
        predicate = both(predicate, filters)
        planned, condition = self.plan(columns, predicate, version, timestamp)
        return Rows(self.engine, planned, columns, condition, self._service)

    def to_arrow(
        self,
        columns: Sequence[str] | None = None,
        predicate: str | None = None,
        version: int | None = None,
        timestamp: str | datetime | None = None,
        *,
        filters: Any = None,
    ) -> pa.Table:
        """Return the live rows.

        Args:
            columns: names of columns, in order; by default all. Names are case-insensitive.
            predicate: only rows that match this condition.
            version: the table as of this version.
            timestamp: the table as of this time.
            filters: as for :meth:`scan`.

        Raises:
            InvalidPredicate: the predicate cannot be parsed.
            UnknownColumn: the table has no such column.
            VersionNotFound: the log does not have the version.
            CorruptTable: or a subclass: the log, a data file or a deletion vector is damaged or missing.
        """
        return self.scan(columns, predicate, version, timestamp, filters=filters).to_arrow()

    def to_batches(
        self,
        columns: Sequence[str] | None = None,
        predicate: str | None = None,
        version: int | None = None,
        timestamp: str | datetime | None = None,
        *,
        filters: Any = None,
    ) -> pa.RecordBatchReader:
        """Return the live rows as a stream, for tables larger than memory; as :meth:`to_arrow`."""
        return self.scan(columns, predicate, version, timestamp, filters=filters).to_batches()

    def to_pandas(
        self,
        columns: Sequence[str] | None = None,
        predicate: str | None = None,
        version: int | None = None,
        timestamp: str | datetime | None = None,
        *,
        types_mapper: Callable[[pa.DataType], Any] | None = None,
        filters: Any = None,
    ) -> "pd.DataFrame":
        """Return the live rows as a pandas DataFrame; as :meth:`to_arrow`.

        Args:
            columns: see :meth:`to_arrow`.
            predicate: see :meth:`to_arrow`.
            version: see :meth:`to_arrow`.
            timestamp: see :meth:`to_arrow`.
            filters: as for :meth:`scan`.
            types_mapper: see :meth:`delvec_commands.lazy_rows.Rows.to_pandas`.

        Raises:
            EngineUnavailable: pandas is not installed.
        """
        return self.scan(columns, predicate, version, timestamp, filters=filters).to_pandas(
            types_mapper=types_mapper
        )

    def to_polars(
        self,
        columns: Sequence[str] | None = None,
        predicate: str | None = None,
        version: int | None = None,
        timestamp: str | datetime | None = None,
        *,
        filters: Any = None,
    ) -> "pl.DataFrame":
        """Return the live rows as a polars DataFrame; as :meth:`to_arrow`.

        Raises:
            EngineUnavailable: polars is not installed.
        """
        return self.scan(columns, predicate, version, timestamp, filters=filters).to_polars()

    def to_lazyframe(
        self, *, version: int | None = None, timestamp: str | datetime | None = None
    ) -> "pl.LazyFrame":
        """Return the live rows as a polars LazyFrame, pinned to one version.

        Reads only the columns that a query needs, and only files that can match its filters, without deleted rows.

        Raises:
            EngineUnavailable: polars is not installed.
        """
        return self.scan(None, None, version, timestamp).to_lazyframe(
            lambda number, condition: self.plan(None, condition, number)[0]
        )

    def to_pyarrow_table(
        self, partitions: Any = None, columns: Sequence[str] | None = None, *, filters: Any = None
    ) -> pa.Table:
        """Same as :meth:`to_arrow`, with deltalake's name and arguments."""
        return self.to_arrow(columns, both(of_tuples(partitions), filters))

    def head(self, n: int = 5, columns: Sequence[str] | None = None) -> "pd.DataFrame":
        """Return some rows, in no particular order, as a pandas DataFrame; reads only as much as needed.

        Raises:
            EngineUnavailable: pandas is not installed.
        """
        return self.scan(columns).head(n)

    def to_duckdb(
        self,
        connection: Any = None,
        *,
        columns: Sequence[str] | None = None,
        predicate: str | None = None,
        version: int | None = None,
        timestamp: str | datetime | None = None,
    ) -> "duckdb.DuckDBPyRelation":
        """Return the live rows as a lazy DuckDB relation, pinned to one version.

        Args:
            connection: the DuckDB connection of the relation; by default a new one, in memory.
            columns: see :meth:`to_arrow`.
            predicate: see :meth:`to_arrow`; with it the rows are read now.
            version: see :meth:`to_arrow`.
            timestamp: see :meth:`to_arrow`.

        Raises:
            EngineUnavailable: DuckDB is not installed.
        """
        return self.scan(columns, predicate, version, timestamp).to_duckdb(connection)

    def to_df(
        self,
        *,
        columns: Sequence[str] | None = None,
        predicate: str | None = None,
        version: int | None = None,
        timestamp: str | datetime | None = None,
    ) -> "DataFrame":
        """Return the live rows as a lazy Spark DataFrame, pinned to one version.

        NOT NULL columns are not nullable in its schema only if the statistics of up to 10,000 files show that they have
        no NULL: otherwise Spark would compute wrong results from one.

        Raises:
            EngineUnavailable: the table's engine is not Spark.
        """
        planned, condition = self.plan(columns, predicate, version, timestamp)
        if _asks_for_statistics(planned):
            with_statistics, _ = self.plan(columns, predicate, planned.version, stats=True)
            planned = replace(planned, files=with_statistics.files)
        return Rows(self.engine, planned, columns, condition, self._service).to_df()

    def count(
        self,
        predicate: str | None = None,
        *,
        version: int | None = None,
        timestamp: str | datetime | None = None,
    ) -> int:
        """Return the number of live rows, from the log alone if its statistics suffice.

        Without a predicate, the service knows the number.
        """
        if predicate is None:
            known = self.snapshot(version, timestamp)
            if known.num_rows is not None:
                return known.num_rows
            version, timestamp = known.version, None
        return self.scan(None, predicate, version, timestamp).count()

    def files(
        self,
        predicate: str | None = None,
        *,
        version: int | None = None,
        timestamp: str | datetime | None = None,
    ) -> list[str]:
        """Return the URLs of the live data files; with a predicate, of those that may have matching rows."""
        return self.scan(None, predicate, version, timestamp).files()

    def partitions(
        self,
        predicate: str | None = None,
        *,
        version: int | None = None,
        timestamp: str | datetime | None = None,
    ) -> list[dict[str, Any]]:
        """Return one dictionary per partition, from the log alone; only one for an unpartitioned table.

        Each has ``values`` (the partition columns and their values), ``numFiles``, ``numRows`` (live ones; None where a
        file has no statistics) and ``sizeInBytes``, and they are in the order of their values.

        Args:
            predicate: only files that may have rows that match this condition, and their partitions.
            version: the table as of this version.
            timestamp: the table as of this time.
        """
        planned, _ = self.plan(None, predicate, version, timestamp)
        return partitions(planned)

    def changes(
        self,
        start_version: int | None = None,
        end_version: int | None = None,
        *,
        start_timestamp: str | datetime | None = None,
        end_timestamp: str | datetime | None = None,
        columns: Sequence[str] | None = None,
        predicate: str | None = None,
    ) -> pa.Table:
        """Return the rows that versions changed, with ``_change_type``, ``_commit_version`` and ``_commit_timestamp``.

        All of these versions need ``delta.enableChangeDataFeed=true``. Rows come in no particular order.

        Args:
            start_version: the first version; or
            start_timestamp: the first version committed at or after this time.
            end_version: the last version, by default the newest; or
            end_timestamp: the last version committed at or before this time.
            columns: names of columns of the table and the feed, in order; by default all.
            predicate: only rows that match this condition, which may use the columns of the feed.

        Raises:
            BadRequest: no start is given, or the end is before it.
            VersionNotFound: the log does not have the version.
            ChangeDataNotRecorded: the feed was off in one of the versions.
            IncompatibleSchemaChange: a column was renamed, dropped or retyped in between.
            CorruptTable: or a subclass: the log or a file is damaged, or VACUUM has deleted a file.
        """
        feed = plan_changes(
            self._service,
            self.id,
            columns=columns,
            predicate=predicate,
            start_version=start_version,
            end_version=end_version,
            start_timestamp=iso_time(start_timestamp),
            end_timestamp=iso_time(end_timestamp),
        )
        return read_changes(self.engine, feed)

    def changes_df(
        self,
        start_version: int | None = None,
        end_version: int | None = None,
        *,
        start_timestamp: str | datetime | None = None,
        end_timestamp: str | datetime | None = None,
        columns: Sequence[str] | None = None,
        predicate: str | None = None,
    ) -> Any:
        """Like :meth:`changes`, but return a lazy Spark DataFrame; the versions are fixed now.

        Raises:
            EngineUnavailable: the table's engine is not Spark.
        """
        feed = plan_changes(
            self._service,
            self.id,
            columns=columns,
            predicate=predicate,
            start_version=start_version,
            end_version=end_version,
            start_timestamp=iso_time(start_timestamp),
            end_timestamp=iso_time(end_timestamp),
        )
        return read_changes_lazily(self.engine, feed)

    def version(self) -> int:
        """Return the latest version."""
        return self.snapshot().version

    def snapshot(
        self,
        version: int | None = None,
        timestamp: str | datetime | None = None,
        *,
        ranges: Sequence[str] = (),
    ) -> SnapshotResponse:
        """Return the metadata of one version: number, schema, properties, protocol, counts.

        Args:
            version: the table as of this version.
            timestamp: the table as of this time.
            ranges: columns for ``column_ranges``, which has the least and greatest value of integer and date columns
                if statistics are exact. Reads no data file.

        Raises:
            VersionNotFound: the log does not have the version.
            UnknownColumn: the table does not have one of ``ranges``.
        """
        parameters = {"version": version, "timestamp": iso_time(timestamp), "range": list(ranges) or None}
        return self._service.call(operations.GET_SNAPSHOT, parameters=parameters, table=self.id)

    def schema(self, *, version: int | None = None, timestamp: str | datetime | None = None) -> pa.Schema:
        """Return the schema as an Arrow schema."""
        return StructType.from_json(self.snapshot(version, timestamp).table_schema).to_arrow()

    def print_schema(self, *, version: int | None = None, timestamp: str | datetime | None = None) -> None:
        """Print one line per column: its name, its type as in DDL, NOT NULL, and its comment."""
        print(tree(StructType.from_json(self.snapshot(version, timestamp).table_schema)))  # noqa: T201 - its job

    def history(self, limit: int | None = None) -> History:
        """Return one dictionary per commit, newest first, with Delta's history columns.

        The list has ``.to_pandas()`` and ``.to_arrow()``, with ``timestamp`` as a timestamp; notebooks show it as a
        table.
        """
        if limit is not None and limit < 1:
            raise BadRequest(f"limit must be at least 1 (given: {limit})")
        answered = self._service.call(operations.GET_HISTORY, parameters={"limit": limit}, table=self.id)
        return History(entry.model_dump(by_alias=True) for entry in answered.history)

    def conflicts(self, since: str | datetime | None = None, *, limit: int = 100) -> dict[str, Any]:
        """Return conflicts between commits, newest first, and the number of commits by hour.

        Names are as on the wire: ``conflicts`` has who lost against which version, over which files and rows;
        ``intervals`` has the outcomes of commits. Old entries are thinned out.

        Args:
            since: only conflicts since this time: ISO 8601 text or a datetime, UTC unless it has a zone.
            limit: maximum number of conflicts, newest first.
        """
        parameters = {"since": iso_time(since), "limit": limit}
        answered = self._service.call(operations.LIST_CONFLICTS, parameters=parameters, table=self.id)
        return answered.model_dump(by_alias=True)

    def detail(self) -> dict[str, Any]:
        """Return the result of DESCRIBE DETAIL, under Delta's names."""
        return self.described().detail

    def described(self) -> DetailResponse:
        """Return the result of DESCRIBE DETAIL, with the columns of that version as ``table_schema``, in one request."""
        return self._service.call(operations.GET_DETAIL, table=self.id)

    def plan(
        self,
        columns: Sequence[str] | None = None,
        predicate: str | None = None,
        version: int | None = None,
        timestamp: str | datetime | None = None,
        *,
        row_ids: bool = False,
        stats: bool = False,
        clustering: bool = False,
    ) -> tuple[Scan, Predicate | None]:
        """Return the files that a read must open, and the parsed predicate, for engines.

        With ``row_ids`` the scan also has the row tracking columns, if row tracking is enabled; with ``stats`` the
        files' statistics; with ``clustering`` the tags that record how files were clustered.
        """
        if isinstance(columns, str):
            raise BadRequest(f"columns must be a list of names, not the string {columns!r}")
        if columns is not None and not all(isinstance(name, str) for name in columns):
            raise BadRequest("columns must be a list of names; give conditions as filters= or predicate=")
        body = request(
            PlanRequest,
            columns=None if columns is None else list(columns),
            predicate=predicate,
            version=version,
            timestamp=iso_time(timestamp),
            row_ids=row_ids,
            stats=stats,
            clustering=clustering,
        )
        plan, files = self._service.plan(self.id, body)
        schema = StructType.from_json(plan.table_schema)
        scan = Scan(
            table_id=plan.table_id,
            name=plan.name,
            location=plan.location,
            version=plan.version,
            schema=schema,
            partition_columns=plan.partition_columns,
            configuration=plan.configuration,
            protocol=plan.protocol,
            files=files,
            num_files_total=plan.num_files_total,
            read_mark=plan.read_mark,
            is_newest=version is None and timestamp is None,
            roots=self._service.roots_of(plan.location),
        )
        return scan, None if predicate is None else predicates.parse(predicate, schema)


def _asks_for_statistics(scan: Scan) -> bool:
    """Whether statistics affect the nullability of a frame's schema."""
    return 0 < len(scan) <= _FILES_TO_ASK_ABOUT and any(
        not item.nullable and item.name not in scan.partition_columns for item in scan.schema.fields
    )


def partitions(scan: Scan) -> list[dict[str, Any]]:
    """Return values, files, live rows and bytes of each partition that has files in the scan, in order of values.

    Without partition columns there is one, unless the scan has no file. Numbers of rows are None where a file has
    none in its statistics.
    """
    fields = [scan.schema.field(name) for name in scan.partition_columns]
    typed = [scan.partition_column(item) for item in fields]
    vectors = scan.files["deletion_vector"].combine_chunks()
    gone = pc.fill_null(pc.struct_field(vectors, "cardinality"), 0)
    keys = [f"p{number}" for number in range(len(fields))]
    facts = {
        **dict(zip(keys, typed, strict=True)),
        "rows": pc.subtract(scan.files["num_records"], gone),
        "size": scan.files["size"],
    }
    # One unknown count makes the sum unknown.
    whole = pc.ScalarAggregateOptions(skip_nulls=False)
    sums = [("size", "count"), ("rows", "sum", whole), ("size", "sum")]
    groups = pa.table(facts).group_by(keys).aggregate(sums)
    if keys:
        groups = groups.sort_by([(key, "ascending") for key in keys])
    return [
        {
            "values": {item.name: row[key] for item, key in zip(fields, keys, strict=True)},
            "numFiles": row["size_count"],
            "numRows": row["rows_sum"],
            "sizeInBytes": row["size_sum"],
        }
        for row in groups.to_pylist()
        if row["size_count"]
    ]
