"""The source of a MERGE as a Spark DataFrame with numbered, pinned rows.

A DataFrame may return different rows on each read: random values, a table with concurrent writers. A MERGE
reads its source twice, for matched and unmatched rows, so rows are pinned first: small sources are
collected to the driver; larger ones Spark persists on its executors, and fails instead of recomputing them if they are lost.

Tested in `tests/integration/spark/test_spark_row_changes.py` and
`tests/integration/spark/test_spark_local_execution.py`.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everyone calls it

from delvec_engines import input_data
from delvec_engines.arrow_conversion import bytes_in, cast_batch
from delvec_engines.internal_names import INTERNAL
from delvec_engines.row_changes import MergeSource, SourceTable
from delvec_engines.scan import Scan
from delvec_engines.spark import failures, jvm
from delvec_engines.spark.arrow_frames import frame_of, to_arrow
from delvec_engines.spark.job_descriptions import described
from delvec_engines.spark.session_properties import is_remote
from delvec_engines.spark.write import is_spark_frame
from delvec_errors import DelvecError, InvalidSchema
from delvec_kernel.schema.column_paths import backticked
from delvec_kernel.schema.types import (
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    has_variant,
    schema_from,
)
from delvec_kernel.table_properties import parse_byte_size

__all__ = ["SOURCE_ROW", "PinnedSource", "SourceRows", "merge_source"]

SOURCE_ROW: Final = INTERNAL("source_row")
"""Column with the number of a source row; numbers may have gaps."""

_STEP: Final = "read the source"
_MAX_BROUGHT: Final = 16 << 20
_RESULT_LIMIT: Final = "spark.driver.maxResultSize"
_THRESHOLD: Final = "spark.sql.autoBroadcastJoinThreshold"
_MULTIPLYING_NODE: Final = re.compile(r"\b(?:Generate|Expand|ScriptTransformation|\w*Map\w*)\b")
_TEXT_BYTES: Final = 40
_ELEMENTS: Final = 4
_BOUNDED: Final = frozenset({"byte", "short", "integer", "long", "string", "date"})


@dataclass(frozen=True)
class PinnedSource:
    """Rows that are the same on every read.

    Attributes:
        frame: the source's columns and :data:`SOURCE_ROW`.
        rows: number of rows.
        nbytes: approximate memory of the rows.
    """

    frame: DataFrame
    rows: int
    nbytes: int


class SourceRows:
    """Source rows, pinned on first use.

    Args:
        spark: the session.
        schema: their columns.
        data: a DataFrame, or an Arrow table in this process.
    """

    def __init__(self, spark: SparkSession, schema: StructType, data: DataFrame | pa.Table) -> None:
        self._spark = spark
        self._schema = schema
        self._data = data

    @property
    def is_local(self) -> bool:
        """Whether the rows come from this process, where a timestamp without a time zone is UTC."""
        return isinstance(self._data, pa.Table)

    @cached_property
    def brought(self) -> pa.Table | None:
        """The rows in this process, where they are here or Spark expects few: that is one job, where pinning takes four."""
        if isinstance(self._data, pa.Table):
            return self._data
        if is_remote(self._data) or has_variant(self._schema) or not _is_small(self._spark, self._data):
            return None
        return self._collected(self._data)

    @cached_property
    def pinned(self) -> PinnedSource:
        """The pinned rows, numbered.

        Raises:
            BadRequest: Spark cannot read them.
        """
        brought = self.brought
        if brought is not None:
            return self.numbered(brought)
        numbered = self._data.select("*", F.monotonically_increasing_id().alias(SOURCE_ROW))
        with failures.of_source(), described(self._spark, None, _STEP):
            # Kept by the first job over them, which is this one.
            kept = numbered.localCheckpoint(eager=False)
            rows = kept.count()
        return PinnedSource(kept, rows, rows * _row_bytes(self._schema))

    def numbered(self, rows: pa.Table) -> PinnedSource:
        """Return a frame of columns of the source that are in this process; rows are numbered by their positions."""
        fields = self._schema.select(rows.column_names).fields
        fields = (*fields, StructField(SOURCE_ROW, PrimitiveType("long")))
        table = rows.append_column(SOURCE_ROW, pa.array(np.arange(rows.num_rows)))
        frame = frame_of(self._spark, table, StructType(fields))
        return PinnedSource(frame, table.num_rows, sum(map(bytes_in, table.to_batches())))

    def collected(self, max_bytes: int) -> pa.Table | None:
        """Return the pinned rows in this process; None if they exceed ``max_bytes``, or what Spark sends to its driver.

        Raises:
            BadRequest: Spark cannot read them.
        """
        brought = self.brought
        if brought is not None:
            return brought if sum(map(bytes_in, brought.to_batches())) <= max_bytes else None
        return self._in_driver if self.pinned.nbytes <= max_bytes else None

    @cached_property
    def _in_driver(self) -> pa.Table | None:
        return self._collected(self.pinned.frame.drop(SOURCE_ROW))

    def _collected(self, frame: DataFrame) -> pa.Table | None:
        """Return rows that were expected to be few; None if Spark finds too many of them to send."""
        try:
            with failures.of_source(), described(self._spark, None, _STEP):
                return to_arrow(frame, self._schema)
        except DelvecError as error:
            if _RESULT_LIMIT not in str(error.__cause__):
                raise
            return None

    def bounds(self, columns: Sequence[str]) -> dict[str, tuple[Any, Any]]:
        """Return the least and greatest value of each column that has usable ones."""
        names = [item.name for item in self._schema.select(columns).fields if _is_bounded(item.type)]
        if not names:
            return {}
        brought = self.brought
        if brought is not None:
            found = [pc.min_max(brought[name]).as_py() for name in names]
            ends = [(each["min"], each["max"]) for each in found]
        else:
            frame = self.pinned.frame
            both = [end(backticked(name)) for name in names for end in (F.min, F.max)]
            with described(self._spark, None, _STEP):
                row = (
                    frame.agg(*(each.alias(f"b{i}") for i, each in enumerate(both))).toArrow().to_pylist()[0]
                )
            ends = [(row[f"b{2 * i}"], row[f"b{2 * i + 1}"]) for i in range(len(names))]
        return {name: each for name, each in zip(names, ends, strict=True) if each[0] is not None}


def merge_source(spark: SparkSession, data: Any, frame_of: Callable[[Scan], DataFrame]) -> MergeSource:
    """Return a source for rows.

    Args:
        spark: the session.
        data: a DataFrame, classic or Connect; a :class:`~delvec.DeltaTable`, pinned to its newest
            version; or anything that :func:`~delvec_engines.input_data.to_arrow` takes.
        frame_of: makes the DataFrame of a scan.

    Raises:
        InvalidSchema: columns that have no Delta type, or two of one name.
        SchemaMismatch: ``data`` is not input_data.
    """
    if is_spark_frame(data):
        if data.isStreaming:
            raise InvalidSchema(
                "The source of a MERGE is a streaming DataFrame, which never ends; use foreachBatch, and merge the "
                "DataFrame of each batch"
            )
        _check_names(data.columns)
        return _source(spark, schema_from(data.schema), data)
    if isinstance(data, SourceTable):
        scan, _ = data.plan()
        # Without metadata: column mapping and generated columns of the source table do not apply to the target.
        return _source(spark, StructType.from_arrow(scan.schema.to_arrow()), frame_of(scan))
    table = input_data.to_arrow(data)
    _check_names(table.column_names)
    schema = StructType.from_arrow(table.schema)
    return _source(spark, schema, _conformed(table, schema))


def _source(spark: SparkSession, schema: StructType, data: DataFrame | pa.Table) -> MergeSource:
    rows = SourceRows(spark, schema, data)
    return MergeSource(schema, rows, is_repeatable=True, bounds=rows.bounds)


def _check_names(names: Sequence[str]) -> None:
    seen_names: set[str] = set()
    for name in names:
        if name.lower() in seen_names:
            raise InvalidSchema(
                f"The source of a MERGE has column '{name}' twice; rename one, or select the columns you need",
                column=name,
            )
        seen_names.add(name.lower())


def _conformed(table: pa.Table, schema: StructType) -> pa.Table:
    """Return the rows with types that Spark accepts, a subset of Arrow's."""
    target = schema.to_arrow()
    batches = [cast_batch(batch, schema, target, check_nulls=False) for batch in table.to_batches()]
    return pa.Table.from_batches(batches, target)


def _is_bounded(kind: DataType) -> bool:
    """Whether bounds of the type are safe: no NaN, no time zone, and exact in Python."""
    return isinstance(kind, DecimalType) or (isinstance(kind, PrimitiveType) and kind.name in _BOUNDED)


def _is_small(spark: SparkSession, frame: DataFrame) -> bool:
    """Whether Spark expects a frame to be so small that it would send it to all tasks of a join."""
    limit = parse_byte_size(str(spark.conf.get(_THRESHOLD)))
    expected = None if limit is None else jvm.expected_size(frame)
    if limit is None or expected is None:
        return False
    # What makes several rows of one is not part of what Spark expects.
    return expected.nbytes <= min(limit, _MAX_BROUGHT) and not _MULTIPLYING_NODE.search(expected.plan)


def _row_bytes(kind: DataType) -> int:
    """Return the estimated memory of a value."""
    if isinstance(kind, StructType):
        return sum((_row_bytes(item.type) for item in kind.fields), 8)
    if isinstance(kind, ArrayType):
        return _ELEMENTS * _row_bytes(kind.element)
    if isinstance(kind, MapType):
        return _ELEMENTS * (_row_bytes(kind.key) + _row_bytes(kind.value))
    return _TEXT_BYTES if kind in (PrimitiveType("string"), PrimitiveType("binary")) else 8
