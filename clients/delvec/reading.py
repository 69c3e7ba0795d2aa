"""How a table is read, whatever the engine: rows in the shapes that people use, and what the log tells."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from delvec._transport import ServiceClient, answer, request, table_path
from delvec.engines.engine import Engine
from delvec.protocol import locations
from delvec.protocol import predicate as predicates
from delvec.protocol.errors import BadRequest, EngineUnavailable
from delvec.protocol.predicate import Predicate
from delvec.protocol.types import StructType
from delvec.protocol.wire import DetailResponse, HistoryResponse, PlanRequest, SnapshotResponse, TableResource
from delvec.scan import Scan

__all__ = ["ReadableTable"]


class ReadableTable:
    """The reading half of :class:`~delvec.DeltaTable`.

    Attributes:
        id: the service's own id, stable when the table is renamed.
        name: what URLs call the table.
        location: canonical URL, without a trailing slash.
        engine: what reads and writes the data files.
    """

    def __init__(self, service: ServiceClient, resource: TableResource, engine: Engine) -> None:
        self._service = service
        self.id = resource.id
        self.name = resource.name
        self.location = resource.location
        self.engine = engine

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
