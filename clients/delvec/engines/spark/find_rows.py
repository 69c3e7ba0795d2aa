"""Which rows of which files satisfy a predicate, found where the files are read.

Of a scan that is small enough, rows come as they are: one stage, nothing is moved between executors. Otherwise Spark
folds 64 neighbouring rows into one word: rows are grouped by file and word with a bitwise OR. That stays in
generated code, needs no Python on the executors, and brings back at most 24 bytes for 64 rows. Of a scan so large
that this may still be too much for the driver, each task makes Roaring bitmaps instead, which are as small as the
deletion vectors that they become, but cost a Python worker and some more time per row. Where even these would be too
large to bring together, they stay on the executors; see :mod:`delvec.engines.spark.vector_tasks`.

Deletion vectors are not applied: the service ignores rows that are deleted already.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everyone calls it

from delvec.engines.internal_names import INTERNAL
from delvec.engines.spark.dv_filter import bitmap_from_words
from delvec.engines.spark.file_values import FILE
from delvec.engines.spark.row_sets import RowSets, forget_archives
from delvec.engines.spark.scan import ROW
from delvec.engines.spark.session import refuse_variables
from delvec.scan import Scan
from delvec_kernel.expressions.predicate import Predicate
from delvec_kernel.schema.column_paths import backticked
from delvec_kernel.schema.types import DataType, StructType, has_float

__all__ = [
    "MAX_ROWS_AS_THEY_ARE",
    "MAX_ROWS_FOR_WORDS",
    "filter_rows",
    "fold_on_driver",
    "fold_on_executors",
    "fold_to_words",
    "folded",
    "opaque",
    "physical_rows",
]

MAX_ROWS_AS_THEY_ARE: Final = 1 << 24
"""Physical rows up to which the driver takes rows as they are: at most 200 MB, and only if every row matches."""

MAX_ROWS_FOR_WORDS: Final = 1 << 28
"""Physical rows up to which the driver takes words: at most 100 MB, and only if every row matches."""

_BYTES_PER_ROW: Final = 8


def physical_rows(scan: Scan) -> int:
    """Return the number of rows in the scan's files, an upper estimate where statistics are missing."""
    guess = pc.divide(scan.files["size"], _BYTES_PER_ROW)
    return int(pc.sum(pc.coalesce(scan.files["num_records"], guess)).as_py() or 0)


def fold_on_driver(matches: DataFrame) -> dict[int, BitMap64]:
    """Return the rows by file number, of a DataFrame with the columns FILE and ROW."""
    found = RowSets()
    for batch in matches.select(FILE, ROW).toArrow().to_batches():
        found.add(batch.column(0).to_numpy(), batch.column(1).to_numpy())
    return found.found


def fold_to_words(matches: DataFrame) -> dict[int, BitMap64]:
    """Return the same as :func:`fold_on_driver`, after a shuffle of far less."""
    row = F.col(ROW)
    bit = F.call_function("shiftleft", F.lit(1).cast("long"), row.bitwiseAND(63).cast("int"))
    words = (
        matches.select(FILE, F.shiftright(row, 6).alias("word"), bit.alias("bit"))
        .groupBy(FILE, "word")
        .agg(F.bit_or("bit").alias("bits"))
        .toArrow()
    )
    files, at, bits = (words[name].to_numpy() for name in (FILE, "word", "bits"))
    order = np.argsort(files, kind="stable")
    files, at, bits = files[order], at[order], bits[order]
    cuts = np.flatnonzero(files[1:] != files[:-1]) + 1
    return {
        int(files[start]): bitmap_from_words(at[start:end], bits[start:end])
        for start, end in zip([0, *cuts], [*cuts, len(files)], strict=True)
        if start < end
    }


def fold_on_executors(matches: DataFrame) -> dict[int, BitMap64]:
    """Return the same as :func:`fold_to_words`, with one bitmap per file and task as the only traffic."""
    table = folded(matches).toArrow()
    found = RowSets()
    for number, rows in zip(table["file"].to_pylist(), table["rows"], strict=True):
        found.merge(number, rows.as_py(), 0)
    return found.found


def folded(matches: DataFrame) -> DataFrame:
    """Return one row for each file and task: ``file``, and ``rows``, serialized."""
    return matches.select(FILE, ROW).mapInArrow(_fold, "file int, rows binary")


def _fold(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Runs on executors: one bitmap per file of the task's rows."""
    forget_archives()
    found = RowSets()
    for batch in batches:
        found.add(batch.column(0).to_numpy(), batch.column(1).to_numpy())
    schema = pa.schema([("file", pa.int32()), ("rows", pa.binary())])
    sent = list(found.serialized())
    columns = [[number for number, _, _ in sent], [rows for _, rows, _ in sent]]
    yield pa.RecordBatch.from_arrays(
        [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)], schema=schema
    )


def filter_rows(frame: DataFrame, predicate: Predicate, schema: StructType) -> DataFrame:
    """Return the rows for which ``predicate``, over columns of ``schema``, is true.

    Spark pushes comparisons into the Parquet reader, which goes by the bounds of row groups: NaN is not within them,
    though Spark orders it above everything, and -0.0 is below them where they are 0.0, though Spark takes the two
    for equal. So floating-point columns are compared in a form that is not pushed.

    Raises:
        InvalidPredicate: it has what Spark would replace by the value of a variable.
    """
    refuse_variables(predicate.text)
    hidden = {
        name: f"{INTERNAL('float')}_{number}"
        for number, name in enumerate(sorted(predicate.columns))
        if has_float(schema.field(name).type)
    }
    for name, alias in hidden.items():
        frame = frame.withColumn(alias, opaque(F.col(backticked(name)), schema.field(name).type))
    return frame.filter(predicate.sql(hidden)).drop(*hidden.values())


def opaque(column: Column, kind: DataType) -> Column:
    """Return a column of floats, or of structs, of the same values that Spark does not recognise as one of the file."""
    return F.when(column.isNotNull(), column) if isinstance(kind, StructType) else F.nanvl(column, column)
