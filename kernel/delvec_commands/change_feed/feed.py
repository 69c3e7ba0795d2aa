"""The change data feed, read by any engine as scans of the changed rows of files.

Values that are the same for all rows of a file (version, time, mostly the change type) are read as partition columns.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import pyarrow as pa

from delvec_commands.change_feed.change_scans import scans_of
from delvec_commands.table_service import TableService, request
from delvec_contract.plans import ChangesRequest
from delvec_engines.protocol import Engine
from delvec_engines.scan import Scan
from delvec_errors import BadRequest
from delvec_kernel.change_feed.feed_schema import feed_schema
from delvec_kernel.expressions import predicate as predicates
from delvec_kernel.expressions.predicate import Predicate
from delvec_kernel.schema.types import StructType

__all__ = ["ChangeFeed", "plan_changes", "read_changes", "read_changes_lazily"]


@dataclass(frozen=True)
class ChangeFeed:
    """A planned read of the feed.

    Attributes:
        scans: at least one; together they give each changed row once.
        schema: the table's schema with the columns of the feed.
        columns: the requested columns in the requested order, spelled as in the schema.
        predicate: filter of the rows.
    """

    scans: Sequence[Scan]
    schema: StructType
    columns: Sequence[str]
    predicate: Predicate | None


def plan_changes(
    service: TableService,
    table_id: str,
    *,
    columns: Sequence[str] | None = None,
    predicate: str | None = None,
    **bounds: Any,
) -> ChangeFeed:
    """Plan a read of the change data feed.

    Args:
        service: of the table.
        table_id: the table.
        columns: the columns of the table and the feed; None for all.
        predicate: over these columns.
        bounds: fields of :class:`~delvec_contract.ChangesRequest`.

    Raises:
        BadRequest: or a subclass: see :meth:`delvec.DeltaTable.changes`.
    """
    if isinstance(columns, str):
        raise BadRequest(f"columns must be a list of names, not the string {columns!r}")
    asked = request(
        ChangesRequest, columns=None if columns is None else list(columns), predicate=predicate, **bounds
    )
    plan, files = service.changes(table_id, asked)
    schema = feed_schema(StructType.from_json(plan.table_schema))
    names = schema.names if columns is None else [schema.field(name).name for name in columns]
    parsed = None if predicate is None else predicates.parse(predicate, schema)
    return ChangeFeed(
        list(scans_of(plan, schema, files, service.roots_of(plan.location))), schema, names, parsed
    )


def read_changes(engine: Engine, feed: ChangeFeed) -> pa.Table:
    """Return the rows, in no particular order."""
    read = [engine.read(scan, feed.columns, feed.predicate).select(feed.columns) for scan in feed.scans]
    return pa.concat_tables(read)


def read_changes_lazily(engine: Engine, feed: ChangeFeed) -> Any:
    """Return the rows as a lazy Spark DataFrame.

    Raises:
        EngineUnavailable: the engine is not Spark.
    """
    frames = [engine.to_df(scan, feed.columns, feed.predicate) for scan in feed.scans]
    return reduce(lambda left, right: left.union(right), frames)
