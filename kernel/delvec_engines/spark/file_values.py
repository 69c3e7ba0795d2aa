"""Values per file, looked up for each row by its file number, and never silently missing.

Small values are arrays indexed by file number, each in a scalar subquery: a query that does not need
them has no cost, not even a join. Large ones are a broadcast join. In both cases a row of an unknown file fails
the query, since without its deletion vector it would count as live.

Partition values of a moderate number of files are literals in the query instead. A filter on them then only depends on
constants and the file number, which Spark knows before it opens a file, so it skips files even
if the filter is added long after the plan.

Tested in `tests/integration/spark/test_spark_scan.py`.
"""

import datetime as dt
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everyone calls it
from pyspark.sql import types as T  # noqa: N812

from delvec_engines.internal_names import INTERNAL
from delvec_engines.repeated_rows import RepeatedRows
from delvec_engines.scan import Scan
from delvec_engines.spark.manifest import UNUSED_MULTIPLE

__all__ = [
    "FILE",
    "SUBQUERY_LIMIT",
    "UNKNOWN_FILE",
    "FileValue",
    "attach",
    "constant",
    "never_null",
    "repeated",
]

FILE: Final = INTERNAL("file")
"""Column with the number of a row's file."""
SUBQUERY_LIMIT: Final = 8 << 20
"""Maximum bytes of values in scalar subqueries, which are sent with every task."""
LITERAL_LIMIT: Final = 64 << 10
"""Maximum characters of values as literals, which EXPLAIN shows."""
UNKNOWN_FILE: Final = "Delvec does not know file number "
"""Prefix of the error message."""

_EXACT_TEXT: Final = (
    T.StringType,
    T.BooleanType,
    T.ByteType,
    T.ShortType,
    T.IntegerType,
    T.LongType,
    T.DecimalType,
)
_STAND_INS: Final = {
    T.StringType: "",
    T.BooleanType: False,
    T.ByteType: 0,
    T.ShortType: 0,
    T.IntegerType: 0,
    T.LongType: 0,
    T.DateType: dt.date(1970, 1, 1),
    T.TimestampType: dt.datetime(1970, 1, 1, tzinfo=dt.UTC),
}
_FACTS: Final = INTERNAL("facts")
_NUMBER: Final = INTERNAL("facts_file")


@dataclass(frozen=True)
class FileValue:
    """One value per file of a scan, in the order of the files.

    Attributes:
        values: one per file.
        type: their Spark type.
        nullable: whether ``values`` may contain NULL.
    """

    values: pa.Array
    type: T.DataType
    nullable: bool


def attach(
    spark: SparkSession,
    frame: DataFrame,
    numbers: Sequence[int],
    facts: Sequence[FileValue],
    *,
    subquery_limit: int = SUBQUERY_LIMIT,
) -> tuple[DataFrame, list[Column]]:
    """Make values per file available to the rows of ``frame``, which has the column FILE.

    Returns:
        The frame to use from now on, possibly with more columns, and the expression of each value.
    """
    if sum(fact.values.nbytes for fact in facts) <= subquery_limit:
        places = np.full(numbers[-1] + 1, -1)
        places[np.asarray(numbers)] = np.arange(len(numbers))
        spread = pa.array(places, mask=places < 0)
        value_columns = []
        for fact in facts:
            value = _literal(fact, spread) if fact.nullable else None
            value_columns.append(_from_subquery(spark, fact, spread) if value is None else value)
        return frame, [
            _checked(value, fact, numbers[-1]) for value, fact in zip(value_columns, facts, strict=True)
        ]
    names = [f"f{position}" for position in range(len(facts))]
    kind = T.StructType([T.StructField(name, fact.type) for name, fact in zip(names, facts, strict=True)])
    table = pa.table(
        {
            _NUMBER: pa.array(numbers, pa.int32()),
            _FACTS: pa.StructArray.from_arrays([fact.values for fact in facts], names=names),
        }
    )
    schema = T.StructType([T.StructField(_NUMBER, T.IntegerType()), T.StructField(_FACTS, kind)])
    right = F.broadcast(spark.createDataFrame(table, schema))
    joined = frame.join(right, F.col(FILE) == F.col(_NUMBER), "left")
    # Refers to both sides of the join, or the optimizer could drop rows without a match, which must fail.
    value_columns = F.coalesce(F.col(_FACTS), _failure(kind))
    return joined, [value_columns[name] for name in names]


def _from_subquery(spark: SparkSession, fact: FileValue, spread: pa.Array) -> Column:
    values = fact.values.take(spread)
    table = pa.table({"x": pa.LargeListArray.from_arrays(pa.array([0, len(values)], pa.int64()), values)})
    schema = T.StructType([T.StructField("x", T.ArrayType(fact.type))])
    return F.get(spark.createDataFrame(table, schema).scalar(), F.col(FILE))


def constant(fact: FileValue) -> Column | None:
    """Return a nullable value that is equal for all files as a literal; None if it is not, or cannot be one exactly."""
    if fact.values.null_count == len(fact.values):
        return F.lit(None).cast(fact.type)
    text = _as_text(fact)
    if text is None or len(fact.values.unique()) > 1:
        return None
    kind, values, convert = text
    value = convert(F.lit(values[0].cast(pa.string()).as_py()).cast(kind))
    # Keep the column nullable, whatever its value; the optimizer removes this.
    return F.nullif(value, F.lit(None).cast(fact.type))


def never_null(value: Column, kind: T.DataType) -> Column:
    """Return a value that is never NULL as a non-nullable column; unchanged if Spark has no literal of its type."""
    stand_in = _STAND_INS.get(type(kind))
    # The optimizer folds it together with the value's constants, before files are read.
    return value if stand_in is None else F.coalesce(value, F.lit(stand_in).cast(kind))


def _as_text(fact: FileValue) -> tuple[T.DataType, pa.Array, Callable[[Column], Column]] | None:
    """Return a type with exact literals, the values in this type, and the cast back to the original type."""
    kind, values = fact.type, fact.values
    if isinstance(kind, T.DateType):
        return T.IntegerType(), values.view(pa.int32()), F.date_from_unix_date
    if isinstance(kind, T.TimestampType):
        return T.LongType(), values.view(pa.int64()), F.timestamp_micros
    return (kind, values, lambda value: value) if isinstance(kind, _EXACT_TEXT) else None


def _literal(fact: FileValue, spread: pa.Array) -> Column | None:
    """Return the values as literals; None if they are too long, or their type has no exact literals."""
    text = _as_text(fact)
    if text is None:
        return None
    kind, values, convert = text
    coded = values.dictionary_encode()
    codes = json.dumps(coded.indices.take(spread).to_pylist(), separators=(",", ":"))
    texts = json.dumps(coded.dictionary.cast(pa.string()).to_pylist(), separators=(",", ":"))
    if len(codes) + len(texts) > LITERAL_LIMIT:
        return None
    code = F.get(F.from_json(F.lit(codes), "array<int>"), F.col(FILE))
    # Casting a literal is constant-folded, too.
    return convert(F.get(F.from_json(F.lit(texts), "array<string>").cast(T.ArrayType(kind)), code))


def _checked(value: Column, fact: FileValue, last: int) -> Column:
    """Return the value, or fail if the file is unknown."""
    if not fact.nullable:
        return F.coalesce(value, _failure(fact.type))
    file = F.col(FILE)
    known = file.between(1, last) & (file % UNUSED_MULTIPLE != 0)
    return F.when(known, value).otherwise(_failure(fact.type))


def _failure(kind: T.DataType) -> Column:
    number = F.coalesce(F.col(FILE).cast("string"), F.lit("NULL"))
    return F.raise_error(F.concat(F.lit(UNKNOWN_FILE), number)).cast(kind)


_KEY: Final = INTERNAL("occurrence")


def repeated(
    spark: SparkSession, frame: DataFrame, key: Column, scan: Scan, numbers: Sequence[int]
) -> DataFrame:
    """Return the rows of a frame joined with their occurrences, which all tasks get.

    Args:
        spark: the session.
        frame: rows of the scan.
        key: the key of a row of it, as in :meth:`~delvec_engines.repeated_rows.RepeatedRows.key`.
        scan: with occurrences.
        numbers: the numbers of its files.
    """
    found = RepeatedRows.of(scan.files, numbers)
    # As integers, because converting timestamps depends on the session's time zone.
    moments = {name for name, values in found.columns.items() if pa.types.is_timestamp(values.type)}
    columns = {name: v.cast(pa.int64()) if name in moments else v for name, v in found.columns.items()}
    listed = spark.createDataFrame(pa.table({_KEY: pa.array(found.keys), **columns}))
    named = [(F.timestamp_micros(name) if name in moments else F.col(name)).alias(name) for name in columns]
    return frame.join(F.broadcast(listed.select(_KEY, *named)), key == F.col(_KEY))
