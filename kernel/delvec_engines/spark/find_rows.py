"""Finds the rows that satisfy a predicate, on the executors that read the files.

Each task folds its rows into Roaring bitmaps, which are as small as the deletion vectors that they become. If even these
may be too large for the driver, they stay on the executors; see :mod:`delvec_engines.spark.vector_tasks`.

Deletion vectors are not applied: the service ignores rows that are deleted already.

Tested in `tests/integration/spark/test_spark_find_rows.py`.
"""

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everyone calls it

from delvec_engines.internal_names import INTERNAL
from delvec_engines.scan import Scan
from delvec_engines.spark.file_values import FILE
from delvec_engines.spark.row_sets import RowSets, drop_zip_importers
from delvec_engines.spark.scan import ROW
from delvec_engines.spark.session_properties import refuse_variables
from delvec_kernel.expressions.predicate import Predicate
from delvec_kernel.schema.column_paths import backticked
from delvec_kernel.schema.types import DataType, StructType, has_float

__all__ = [
    "MAX_ROWS_FOR_BITMAPS",
    "filter_rows",
    "fold",
    "folded",
    "opaque",
    "physical_rows",
]

MAX_ROWS_FOR_BITMAPS: Final = 1 << 28
"""Maximum physical rows of a scan whose bitmaps are collected, if they can stay on the executors instead."""

_BYTES_PER_ROW: Final = 8


def physical_rows(scan: Scan) -> int:
    """Return the number of physical rows in the scan's files, an upper estimate if statistics are missing."""
    guess = pc.divide(scan.files["size"], _BYTES_PER_ROW)
    return int(pc.sum(pc.coalesce(scan.files["num_records"], guess)).as_py() or 0)


def fold(matches: DataFrame) -> dict[int, BitMap64]:
    """Return the rows by file number, of a DataFrame with the columns FILE and ROW."""
    table = folded(matches).toArrow()
    row_sets = RowSets()
    for number, rows in zip(table["file"].to_pylist(), table["rows"], strict=True):
        row_sets.merge(number, rows.as_py(), 0)
    return row_sets.found


def folded(matches: DataFrame) -> DataFrame:
    """Return one row for each file and task: ``file``, and ``rows``, serialized."""
    return matches.select(FILE, ROW).mapInArrow(_fold, "file int, rows binary")


def _fold(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Fold a task's rows into one bitmap per file; runs on executors."""
    drop_zip_importers()
    row_sets = RowSets()
    for batch in batches:
        row_sets.add(batch.column(0).to_numpy(), batch.column(1).to_numpy())
    schema = pa.schema([("file", pa.int32()), ("rows", pa.binary())])
    sent = list(row_sets.serialized())
    columns = [[number for number, _, _ in sent], [rows for _, rows, _ in sent]]
    yield pa.RecordBatch.from_arrays(
        [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)], schema=schema
    )


def filter_rows(frame: DataFrame, predicate: Predicate, schema: StructType) -> DataFrame:
    """Return the rows for which ``predicate``, over columns of ``schema``, is true.

    Spark pushes comparisons into the Parquet reader, which skips row groups by their bounds. These leave out NaN,
    the greatest value in Spark, and -0.0 is below a bound of 0.0, although Spark treats the two
    as equal. So floating-point columns are compared in a form that is not pushed.

    Raises:
        InvalidPredicate: it contains a variable reference (``${...}``), which Spark would substitute.
    """
    refuse_variables(predicate.text)
    aliases = {
        name: f"{INTERNAL('float')}_{number}"
        for number, name in enumerate(sorted(predicate.columns))
        if has_float(schema.field(name).type)
    }
    for name, alias in aliases.items():
        frame = frame.withColumn(alias, opaque(F.col(backticked(name)), schema.field(name).type))
    return frame.filter(predicate.sql(aliases)).drop(*aliases.values())


def opaque(column: Column, kind: DataType) -> Column:
    """Return a float or struct column with the same values, in a form that Spark does not push into the scan."""
    return F.when(column.isNotNull(), column) if isinstance(kind, StructType) else F.nanvl(column, column)
