"""A Delta table and its commands: one implementation of each, whatever the engine."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Unpack

import pyarrow as pa
import pyarrow.compute as pc

from delvec import checking
from delvec._transport import ServiceClient, answer, request, table_path
from delvec.alterations import Alterations
from delvec.commands.append import append, is_repeatable
from delvec.commands.delete import delete
from delvec.commands.reruns import DEFAULT_RETRIES, checked, with_retries
from delvec.engines.engine import Engine
from delvec.protocol import locations
from delvec.protocol import predicate as predicates
from delvec.protocol.errors import BadRequest, EngineUnavailable
from delvec.protocol.predicate import Predicate
from delvec.protocol.types import StructType
from delvec.protocol.wire import (
    CheckpointRequest,
    CheckpointResponse,
    DetailResponse,
    HealthResponse,
    HistoryResponse,
    PlanRequest,
    SnapshotResponse,
    TableResource,
)
from delvec.scan import Scan
from delvec.transaction import Metrics, Transaction, TransactionOptions, begin

__all__ = ["DeltaTable"]


class DeltaTable:
    """A table, through its service, on one engine. Get one from a :class:`~delvec.Connection`.

    Every read is of one version: the latest when the method is called, or the one asked for. ``timestamp``
    takes ISO 8601 text or a datetime; without a time zone it is UTC. A predicate is a Boolean expression in
    Spark's SQL.

    Attributes:
        id: the service's own id, stable when the table is renamed.
        name: what URLs call the table.
        location: canonical URL, without a trailing slash.
        engine: what reads and writes the data files.
    """

    def __init__(
        self,
        service: ServiceClient,
        resource: TableResource,
        engine: Engine,
        retries: int = DEFAULT_RETRIES,
    ) -> None:
        self._service = service
        self._retries = retries
        self._dv_feature: bool | None = None
        self.id = resource.id
        self.name = resource.name
        self.location = resource.location
        self.engine = engine

    def __repr__(self) -> str:
        return f"DeltaTable(name={self.name!r}, location={self.location!r}, engine={self.engine.name!r})"

    @property
    def alter(self) -> Alterations:
        """Changes of the table itself: ``table.alter.add_columns("age int")``, and so on."""
        return Alterations(self._service, self)

    # --- reading --------------------------------------------------------------------------------------

    def to_arrow(
        self,
        columns: Sequence[str] | None = None,
        predicate: str | None = None,
        version: int | None = None,
        timestamp: str | datetime | None = None,
    ) -> pa.Table:
        """Return the live rows.

        Args:
            columns: which ones, and in what order; all of them by default. Names are matched without regard to case.
            predicate: only rows for which this is true.
            version: the table as of this version.
            timestamp: the table as of this moment.

        Raises:
            InvalidPredicate: the predicate cannot be parsed.
            UnknownColumn: the table has no such column.
            VersionNotFound: the log does not reach there.
            CorruptTable: or a subclass: the log, a data file or a deletion vector is damaged or missing.
        """
        scan, condition = self.plan(columns, predicate, version, timestamp)
        names = _spelled(columns, scan.schema)
        rows = self.engine.read(scan, names, condition)
        return rows if names is None else rows.select(names)

    def to_batches(
        self,
        columns: Sequence[str] | None = None,
        predicate: str | None = None,
        version: int | None = None,
        timestamp: str | datetime | None = None,
    ) -> pa.RecordBatchReader:
        """Return the live rows as a stream, for tables that do not fit in memory; as :meth:`to_arrow`."""
        scan, condition = self.plan(columns, predicate, version, timestamp)
        names = _spelled(columns, scan.schema)
        stream = getattr(self.engine, "read_batches", None)
        batches = (stream or self.engine.read)(scan, names, condition)
        if isinstance(batches, pa.Table):
            batches = batches.to_batches()
        schema = scan.schema.to_arrow()
        if names is not None:
            schema = pa.schema([schema.field(name) for name in names])
            batches = (batch.select(names) for batch in batches)
        return pa.RecordBatchReader.from_batches(schema, batches)

    def to_df(
        self,
        *,
        columns: Sequence[str] | None = None,
        predicate: str | None = None,
        version: int | None = None,
        timestamp: str | datetime | None = None,
    ) -> Any:
        """Return the live rows as a lazy Spark DataFrame, pinned to one version.

        Raises:
            EngineUnavailable: the table's engine is not Spark.
        """
        to_df = getattr(self.engine, "to_df", None)
        if to_df is None:
            raise EngineUnavailable(
                f"to_df() makes a Spark DataFrame, and the engine of table '{self.name}' is {self.engine.name}; "
                "pass engine=spark to .table(), or call .to_arrow()"
            )
        scan, condition = self.plan(columns, predicate, version, timestamp)
        return to_df(scan, _spelled(columns, scan.schema), condition)

    def count(
        self,
        predicate: str | None = None,
        *,
        version: int | None = None,
        timestamp: str | datetime | None = None,
    ) -> int:
        """Return the number of live rows; from the log alone where its statistics are enough."""
        scan, condition = self.plan(None, predicate, version, timestamp)
        known = pc.is_valid(scan.files["num_records"])
        if condition is not None:
            known = pc.and_(known, scan.files["matches_all"])
        exact = _live_rows(scan.filter(known))
        rest = scan.filter(pc.invert(known))
        return exact + (self.engine.count(rest, condition) if len(rest) else 0)

    def files(self, *, version: int | None = None, timestamp: str | datetime | None = None) -> list[str]:
        """Return the URLs of the live data files."""
        scan, _ = self.plan(None, None, version, timestamp)
        return [locations.resolve(scan.location, path) for path in scan.files["path"].to_pylist()]

    def version(self) -> int:
        """Return the latest version."""
        return self.snapshot().version

    def snapshot(
        self, version: int | None = None, timestamp: str | datetime | None = None
    ) -> SnapshotResponse:
        """Return what the table is at one version: number, schema, properties, protocol, counts.

        Raises:
            VersionNotFound: the log does not reach there.
        """
        parameters = {"version": version, "timestamp": _iso(timestamp)}
        return answer(SnapshotResponse, self._service.get(table_path(self.id, "snapshot"), parameters))

    def schema(self, *, version: int | None = None, timestamp: str | datetime | None = None) -> pa.Schema:
        """Return the schema as Arrow's."""
        return StructType.from_json(self.snapshot(version, timestamp).table_schema).to_arrow()

    def history(self, limit: int | None = None) -> list[dict[str, Any]]:
        """Return one dictionary per commit, newest first, with Delta's history columns."""
        if limit is not None and limit < 1:
            raise BadRequest(f"limit must be at least 1 (given: {limit})")
        body = self._service.get(table_path(self.id, "history"), {"limit": limit})
        return [entry.model_dump(by_alias=True) for entry in answer(HistoryResponse, body).history]

    def detail(self) -> dict[str, Any]:
        """Return what DESCRIBE DETAIL shows, under Delta's names."""
        return answer(DetailResponse, self._service.get(table_path(self.id, "detail"))).detail

    def health(self) -> dict[str, Any]:
        """Return how much care the table needs, with recommendations; names are as on the wire."""
        body = self._service.get(table_path(self.id, "health"))
        return answer(HealthResponse, body).model_dump(by_alias=True)

    def check(self, *, data_files: bool = True) -> dict[str, Any]:
        """Check the log version by version, and the live files in storage; the table is sound without ``num-errors``.

        Args:
            data_files: also look up each live data file, one request each.
        """
        return checking.check(self._service, self.id, data_files=data_files)

    def checkpoint(self, *, clean_up: bool = False, dry_run: bool = False) -> dict[str, Any]:
        """Write a checkpoint of the newest version, unless there is one; returns what was done.

        Args:
            clean_up: also delete what the log need not keep by ``delta.logRetentionDuration``.
            dry_run: write and delete nothing; say what a clean-up would delete now.

        Raises:
            UnsupportedWriterFeature: the table has features that Delvec does not know.
        """
        body = request(CheckpointRequest, clean_up=clean_up, dry_run=dry_run)
        answered = self._service.post(table_path(self.id, "checkpoint"), body)
        return answer(CheckpointResponse, answered).model_dump(by_alias=True)

    def plan(
        self,
        columns: Sequence[str] | None = None,
        predicate: str | None = None,
        version: int | None = None,
        timestamp: str | datetime | None = None,
    ) -> tuple[Scan, Predicate | None]:
        """Return which files a read has to open, and the parsed predicate: what engines work with."""
        if isinstance(columns, str):
            raise BadRequest(f"columns must be a list of names, not the text {columns!r}")
        body = request(
            PlanRequest,
            columns=None if columns is None else list(columns),
            predicate=predicate,
            version=version,
            timestamp=_iso(timestamp),
        )
        plan, files = self._service.plan(table_path(self.id, "plan"), body)
        schema = StructType.from_json(plan.table_schema)
        scan = Scan(
            table_id=plan.table_id,
            name=plan.name,
            location=plan.location,
            version=plan.version,
            schema=schema,
            partition_columns=plan.partition_columns,
            configuration=plan.configuration,
            files=files,
            num_files_total=plan.num_files_total,
        )
        return scan, None if predicate is None else predicates.parse(predicate, schema)

    # --- writing --------------------------------------------------------------------------------------

    def append(self, data: Any, *, txn: tuple[str, int] | None = None, retries: int | None = None) -> Metrics:
        """Add rows; without any, nothing is committed.

        Args:
            data: an Arrow table or stream, a pandas or polars DataFrame, a list of dictionaries; on Spark also
                a Spark DataFrame.
            txn: an application's id and how far it has got, as a stream's query and batch: where the table has
                that or more, nothing is added, and ``.already_applied`` says so.
            retries: how often to write anew where the table was changed meanwhile in a way that matters; by default
                the connection's. Data that can be read only once is written once.

        Returns:
            Delta's metrics of a write, and the version in ``.version``.

        Raises:
            SchemaMismatch: the data does not fit the table's schema.
            UnsupportedWriterFeature: the table needs more of a writer than Delvec does.
            ConcurrentModification: or a subclass: another writer changed the table; ``.conflict`` says how.
            CommitOutcomeUnknown: the answer was lost, and the service does not know what became of the commit.
        """
        allowed = self._allowed(retries) if is_repeatable(data) else 0
        return with_retries(self._service, allowed, lambda: append(self._service, self, data, txn))

    def delete(self, predicate: str | None = None, *, retries: int | None = None) -> Metrics:
        """Delete the rows for which ``predicate`` is true; all rows without one.

        Files that lose all their rows are removed. Of the others the rows are marked in deletion vectors, or
        the files are written again where the table does not have deletion vectors enabled.

        Args:
            predicate: a Boolean expression in Spark's SQL.
            retries: how often to run again, on the new version, where another writer won and the service cannot
                pass the two; by default the connection's. ``.retries`` of what is returned says how often it was.

        Returns:
            Delta's metrics of a delete, and the version in ``.version``: None where no row matched, as then
            nothing is committed.

        Raises:
            InvalidPredicate: the predicate cannot be parsed.
            ConcurrentModification: or a subclass: another writer won, the last time too; ``.conflict`` says which.
            AppendOnlyTable: the table does not let rows be removed.
            CommitOutcomeUnknown: the answer was lost, and the service does not know what became of the commit.
        """
        return with_retries(
            self._service, self._allowed(retries), lambda: delete(self._service, self, predicate)
        )

    def transaction(
        self, operation: str, *, read_version: int | None = None, **options: Unpack[TransactionOptions]
    ) -> Transaction:
        """Begin a transaction whose changes the caller knows, for programs that find rows or write files themselves.

        ::

            with people.transaction("DELETE", read_version=7, predicate="id = 3") as change:
                change.delete_rows({"part-0.parquet": [17, 18]})
            print(change.result.version)

        Args:
            operation: Delta's operation name: WRITE, DELETE, UPDATE, MERGE, OPTIMIZE, ...
            read_version: the version that the changes rest on; without one the newest, which is then in
                ``.read_version``.
            options: see :class:`~delvec.transaction.Transaction`.

        Raises:
            UnsupportedWriterFeature: the table needs more of a writer than Delvec does.
        """
        if read_version is None:
            begun, _ = begin(self._service, self.id, operation)
            read_version = begun.version
            options.setdefault("transaction_id", begun.transaction_id)
        options.setdefault("engine_info", self.engine.name)
        return Transaction(self._service, self.id, operation, read_version, **options)

    def _allowed(self, retries: int | None) -> int:
        return self._retries if retries is None else checked(retries)

    def deletes_by_vector(self, scan: Scan) -> bool:
        """Whether rows may be deleted by deletion vector: the property is on and the protocol has the feature.

        The protocol is asked for once: a feature that is dropped later makes the commit fail, not go wrong.
        """
        if scan.configuration.get("delta.enableDeletionVectors", "false").lower() != "true":
            return False
        if not self._dv_feature:
            features = self.snapshot(scan.version).protocol.get("writerFeatures") or ()
            self._dv_feature = "deletionVectors" in features
        return self._dv_feature


def _live_rows(scan: Scan) -> int:
    physical = pc.sum(scan.files["num_records"]).as_py() or 0
    vectors = scan.files["deletion_vector"].combine_chunks()
    deleted = pc.sum(pc.struct_field(vectors, "cardinality")).as_py() or 0
    return int(physical) - int(deleted)


def _spelled(columns: Sequence[str] | None, schema: StructType) -> list[str] | None:
    """Return the columns as the schema spells them, each once."""
    return None if columns is None else list(dict.fromkeys(schema.field(name).name for name in columns))


def _iso(timestamp: str | datetime | None) -> str | None:
    return timestamp.isoformat() if isinstance(timestamp, datetime) else timestamp
