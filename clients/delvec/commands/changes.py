"""The change data feed, whatever the engine: the rows that versions changed are scans, of some of a file's rows.

What is the same for all rows of a file (version, time, most types of change) an engine reads as partition columns.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import pyarrow as pa

from delvec._transport import ServiceClient, request, table_path
from delvec.engines.engine import Engine
from delvec.protocol import predicate as predicates
from delvec.protocol.change_feed import feed_columns, feed_schema, feed_values
from delvec.protocol.deletion_vector import deserialize_bitmap, inline
from delvec.protocol.errors import BadRequest, EngineUnavailable
from delvec.protocol.predicate import Predicate
from delvec.protocol.types import StructType
from delvec.protocol.wire import ChangesRequest, ChangesResponse
from delvec.scan import Scan

__all__ = ["ChangeFeed", "plan_changes", "read_changes", "read_changes_lazily"]


@dataclass(frozen=True)
class ChangeFeed:
    """What to read of the feed.

    Attributes:
        scans: at least one; together they have every changed row once.
        schema: the table's, and the columns of the feed.
        columns: by the schema's spelling, in the order asked for.
        predicate: which rows.
    """

    scans: Sequence[Scan]
    schema: StructType
    columns: Sequence[str]
    predicate: Predicate | None


def plan_changes(
    service: ServiceClient,
    table_id: str,
    *,
    columns: Sequence[str] | None = None,
    predicate: str | None = None,
    **bounds: Any,
) -> ChangeFeed:
    """Ask the service which rows of which files changed.

    Args:
        service: the table's.
        table_id: the table.
        columns: of the table and the feed; None for all.
        predicate: over the same columns.
        bounds: fields of :class:`~delvec.protocol.wire.ChangesRequest`.

    Raises:
        BadRequest: or a subclass: see :meth:`delvec.DeltaTable.changes`.
    """
    if isinstance(columns, str):
        raise BadRequest(f"columns must be a list of names, not the text {columns!r}")
    asked = request(
        ChangesRequest, columns=None if columns is None else list(columns), predicate=predicate, **bounds
    )
    plan, files = service.changes(table_path(table_id, "changes"), asked)
    schema = feed_schema(StructType.from_json(plan.table_schema))
    names = schema.names if columns is None else [schema.field(name).name for name in columns]
    parsed = None if predicate is None else predicates.parse(predicate, schema)
    return ChangeFeed(list(_scans(plan, schema, files)), schema, names, parsed)


def read_changes(engine: Engine, feed: ChangeFeed) -> pa.Table:
    """Return the rows, in no particular order."""
    read = [engine.read(scan, feed.columns, feed.predicate).select(feed.columns) for scan in feed.scans]
    return pa.concat_tables(read)


def read_changes_lazily(engine: Engine, feed: ChangeFeed) -> Any:
    """Return the rows as a lazy Spark DataFrame.

    Raises:
        EngineUnavailable: the engine is not Spark.
    """
    to_df = getattr(engine, "to_df", None)
    if to_df is None:
        raise EngineUnavailable(
            f"changes_df() makes a Spark DataFrame, and the engine is {engine.name}; "
            "pass engine=spark to .table(), or call .changes()"
        )
    frames = [to_df(scan, feed.columns, feed.predicate) for scan in feed.scans]
    return reduce(lambda left, right: left.union(right), frames)


def _scans(plan: ChangesResponse, schema: StructType, files: pa.Table) -> Iterator[Scan]:
    """Yield scans in none of which a path occurs twice: rows are told apart by their file."""
    groups: dict[tuple[bool, bool, int], list[dict[str, Any]]] = {}
    seen: Counter[tuple[bool, bool, str]] = Counter()
    for row in files.to_pylist():
        kind = row["change_type"] is None, row["marked_only"]
        key = (*kind, row["path"])
        groups.setdefault((*kind, seen[key]), []).append(row)
        seen[key] += 1
    for (is_change_file, marked_only, _), rows in (groups or {(True, False, 0): []}).items():
        yield Scan(
            table_id=plan.table_id,
            name=plan.name,
            location=plan.location,
            version=plan.version,
            schema=schema,
            partition_columns=[*plan.partition_columns, *feed_columns(is_change_file=is_change_file)],
            configuration=_by_name(plan.configuration) if is_change_file else plan.configuration,
            files=_files(rows, files.schema),
            num_files_total=len(rows),
            marked_only=marked_only,
        )


def _by_name(configuration: Mapping[str, str]) -> dict[str, str]:
    """Return properties by which columns are found by physical name: in change files one of them has no id."""
    mode = "delta.columnMapping.mode"
    return {**configuration, **({mode: "name"} if configuration.get(mode, "").lower() == "id" else {})}


def _files(rows: Sequence[dict[str, Any]], schema: pa.Schema) -> pa.Table:
    vectors = [row["deletion_vector"] for row in rows]
    for place, row in enumerate(rows):
        if row["deleted_rows"] is not None:
            vector = inline(deserialize_bitmap(row["deleted_rows"]))
            vectors[place] = vector.to_json()
    values = [
        dict(row["partition_values"])
        | feed_values(row["commit_version"], row["commit_timestamp"], row["change_type"])
        for row in rows
    ]
    text_map = schema.field("partition_values").type
    return pa.table(
        {
            "path": pa.array([row["path"] for row in rows], pa.string()),
            "partition_values": pa.array([list(each.items()) for each in values], text_map),
            "size": pa.array([row["size"] for row in rows], pa.int64()),
            "modification_time": pa.array([row["commit_timestamp"] for row in rows], pa.int64()),
            "num_records": pa.array([row["num_records"] for row in rows], pa.int64()),
            "matches_all": pa.array([False] * len(rows), pa.bool_()),
            "deletion_vector": pa.array(vectors, schema.field("deletion_vector").type),
            "deleted_rows": pa.array([row["deleted_rows"] for row in rows], pa.binary()),
            "stats": pa.nulls(len(rows), pa.string()),
        }
    )
