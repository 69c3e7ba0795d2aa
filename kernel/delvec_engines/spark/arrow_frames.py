"""Converts between Arrow tables of this process and DataFrames."""

from collections.abc import Callable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from delvec_engines.arrow_conversion import cast_batch
from delvec_engines.spark.scan import spark_schema
from delvec_kernel.schema.types import (
    ArrayType,
    DataType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    has_variant,
    has_void,
)

__all__ = ["frame_of", "to_arrow"]


def frame_of(spark: SparkSession, rows: pa.Table, schema: StructType) -> DataFrame:
    """Return rows as a frame.

    Args:
        spark: classic or Connect.
        rows: a table with or without rows.
        schema: the schema of the rows. Without it, Spark accepts fewer Arrow types, and takes TIMESTAMP_NTZ for TIMESTAMP.
    """
    # Spark cannot make a frame of nested columns that have no rows.
    return spark.createDataFrame(rows if rows.num_rows else [], spark_schema(schema))


def to_arrow(frame: DataFrame, schema: StructType) -> pa.Table:
    """Collect ``frame``, whose columns are those of ``schema``, as ``schema.to_arrow()``.

    Raises:
        SchemaMismatch: a value does not fit, which would be a bug in Spark.
    """
    target = schema.to_arrow()
    if not schema.fields:
        # Arrow data from Spark loses the row count if there are no columns.
        return pa.Table.from_struct_array(pa.array([{}] * frame.count(), pa.struct([])))
    if has_variant(schema):
        frame = frame.mapInArrow(_casting(schema), spark_schema(StructType(_encoded(schema).fields)))
    table = frame.toArrow()
    if has_void(schema):
        batches = [cast_batch(each, schema, target, check_nulls=False) for each in table.to_batches()]
        return pa.Table.from_batches(batches, target)
    # Timestamps arrive in the session's time zone.
    return table.cast(target)


def _encoded(kind: StructType) -> StructType:
    """Return the schema with variants as structs of two binaries."""

    def of(kind: DataType) -> DataType:
        if isinstance(kind, StructType):
            return StructType(tuple(StructField(item.name, of(item.type)) for item in kind.fields))
        if isinstance(kind, ArrayType):
            return ArrayType(of(kind.element))
        if isinstance(kind, MapType):
            return MapType(of(kind.key), of(kind.value))
        return _VARIANT if kind == PrimitiveType("variant") else kind

    return StructType(tuple(StructField(item.name, of(item.type)) for item in kind.fields))


_BINARY = PrimitiveType("binary")
_VARIANT = StructType((StructField("metadata", _BINARY), StructField("value", _BINARY)))


def _casting(schema: StructType) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a function for executors: PySpark's own conversion fails on NULL variants.

    A nested function, because those are pickled by value, so that executors do not need Delvec to read.
    """
    fields = zip(schema.to_arrow(), schema.fields, strict=True)
    types = [field.type if has_variant(item.type) else None for field, item in fields]

    def cast(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            columns = [
                column if kind is None else column.cast(kind)
                for column, kind in zip(batch.columns, types, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(columns, batch.schema.names)

    return cast
