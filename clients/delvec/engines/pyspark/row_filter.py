"""A predicate as a filter of a DataFrame that gives Spark's own answer for every value."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everyone calls it

from delvec.engines.internal_names import INTERNAL
from delvec.protocol.identifiers import backticked
from delvec.protocol.predicate import Predicate
from delvec.protocol.types import DataType, StructType, has_float

__all__ = ["filter_rows", "opaque"]


def filter_rows(frame: DataFrame, predicate: Predicate, schema: StructType) -> DataFrame:
    """Return the rows for which ``predicate``, over columns of ``schema``, is true.

    Spark pushes comparisons into the Parquet reader, which goes by the bounds of row groups: NaN is not within them,
    though Spark orders it above everything, and -0.0 is below them where they are 0.0, though Spark takes the two
    for equal. So floating-point columns are compared in a form that is not pushed.
    """
    hidden = {
        name: f"{INTERNAL('float')}_{number}"
        for number, name in enumerate(sorted(predicate.columns))
        if has_float(schema.field(name).type)
    }
    for name, alias in hidden.items():
        frame = frame.withColumn(alias, opaque(F.col(backticked(name)), schema.field(name).type))
    return frame.filter(predicate.sql("spark", hidden)).drop(*hidden.values())


def opaque(column: Column, kind: DataType) -> Column:
    """Return a column of floats, or of structs, of the same values that Spark does not recognise as one of the file."""
    return F.when(column.isNotNull(), column) if isinstance(kind, StructType) else F.nanvl(column, column)
