"""ANSI store assignment in Spark: a value that does not fit its column is an error.

With ANSI mode off, Spark's casts give NULL or wrap around on overflow. So casts that may fail are written as TRY_CAST
whose NULL raises an error in any session. Structs are matched by name.

Tested in `tests/integration/spark/test_spark_row_changes.py` and `tests/integration/engines/test_update.py`.
"""

import json
from collections.abc import Callable
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - as everyone calls it
from pyspark.sql import types as T  # noqa: N812

from delvec_errors import SchemaMismatch

__all__ = ["UNASSIGNABLE", "assigned", "exactly_assigned", "is_same"]

UNASSIGNABLE: Final = "Delvec cannot assign: "
"""Prefix of the error message; followed by column and type as JSON, and the value."""

_MAX_SHOWN: Final = 100
_INTEGERS: Final = {T.ByteType: 3, T.ShortType: 5, T.IntegerType: 10, T.LongType: 19}
_DATE_TIME_TYPES: Final = (T.DateType, T.TimestampType, T.TimestampNTZType)


def is_same(found: T.DataType, wanted: T.DataType) -> bool:
    """Whether values need no cast; ignores nullability."""
    return bool(found.simpleString() == wanted.simpleString())


def assigned(
    value: Column, value_type: T.DataType, target_type: T.DataType, name: str, *, is_utc: bool = False
) -> Column:
    """Return a value as its column's type.

    Args:
        value: evaluated several times, so must be cheap and deterministic, such as a column.
        value_type: its type.
        target_type: the column's type.
        name: the column, for errors.
        is_utc: whether timestamps without time zone are in UTC instead of the session's time zone.

    Raises:
        SchemaMismatch: the types are incompatible.
    """
    if is_same(value_type, target_type):
        return value
    if isinstance(value_type, T.NullType):
        return value.cast(target_type)
    if isinstance(value_type, T.StructType) and isinstance(target_type, T.StructType):
        return _struct(value, value_type, target_type, name, is_utc=is_utc)
    if isinstance(value_type, T.ArrayType) and isinstance(target_type, T.ArrayType):
        element = _part(value_type.elementType, target_type.elementType, f"{name}.element", is_utc=is_utc)
        return F.transform(value, element)
    if isinstance(value_type, T.MapType) and isinstance(target_type, T.MapType):
        keys = _part(value_type.keyType, target_type.keyType, f"{name}.key", is_utc=is_utc)
        values = _part(value_type.valueType, target_type.valueType, f"{name}.value", is_utc=is_utc)
        with_keys = (
            value
            if is_same(value_type.keyType, target_type.keyType)
            else F.transform_keys(value, lambda k, _: keys(k))
        )
        return F.transform_values(with_keys, lambda _, v: values(v))
    return _leaf(value, value_type, target_type, name, is_utc=is_utc)


def _part(
    value_type: T.DataType, column_type: T.DataType, name: str, *, is_utc: bool
) -> Callable[[Column], Column]:
    return lambda value: assigned(value, value_type, column_type, name, is_utc=is_utc)


def _struct(
    value: Column, value_type: T.StructType, column_type: T.StructType, name: str, *, is_utc: bool
) -> Column:
    places = {field.name.lower(): field for field in value_type.fields}
    unknown = [
        field.name
        for field in value_type.fields
        if field.name.lower() not in {each.name.lower() for each in column_type}
    ]
    if unknown:
        raise SchemaMismatch(
            f"The value for column '{name}' has a field '{unknown[0]}' that the table does not have; leave it out, or "
            "allow schema evolution",
            column=f"{name}.{unknown[0]}",
        )
    parts = []
    for field in column_type.fields:
        source = places.get(field.name.lower())
        inner = f"{name}.{field.name}"
        part = (
            F.lit(None).cast(field.dataType)
            if source is None
            else assigned(value.getField(source.name), source.dataType, field.dataType, inner, is_utc=is_utc)
        )
        parts.append(part.alias(field.name))
    return F.when(value.isNotNull(), F.struct(*parts))


def _leaf(
    value: Column, value_type: T.DataType, column_type: T.DataType, name: str, *, is_utc: bool
) -> Column:
    if not _may_be_assigned(value_type, column_type):
        raise SchemaMismatch(
            f"A value of type {value_type.simpleString()} cannot be assigned to column '{name}', which is "
            f"{column_type.simpleString()}; convert it with CAST",
            column=name,
        )
    if is_utc and isinstance(value_type, T.TimestampNTZType) and isinstance(column_type, T.TimestampType):
        return F.concat(value.cast("string"), F.lit("Z")).cast(column_type)
    if _always_fits(value_type, column_type):
        return value.cast(column_type)
    attempt = value.try_cast(column_type)
    return F.when(value.isNotNull() & attempt.isNull(), _refused(value, column_type, name)).otherwise(attempt)


def exactly_assigned(value: Column, value_type: T.DataType, target_type: T.DataType, name: str) -> Column:
    """Return a number as its column's type if that is lossless; otherwise an error at run time.

    Args:
        value: as for :func:`assigned`.
        value_type: its numeric type.
        target_type: the column's numeric type.
        name: the column, for errors.
    """
    is_binary = isinstance(value_type, T.FractionalType) and not isinstance(value_type, T.DecimalType)
    if (
        is_same(value_type, target_type)
        or _always_holds(value_type, target_type)
        or (isinstance(target_type, T.FloatType | T.DoubleType) and isinstance(value_type, T.FractionalType))
    ):
        return value.cast(target_type)
    attempt = value.try_cast(target_type)
    holds = attempt.isNotNull()
    if not (is_binary and isinstance(target_type, T.DecimalType)):
        holds &= attempt.try_cast(value_type) == value
    return F.when(value.isNull() | F.coalesce(holds, F.lit(False)), attempt).otherwise(
        _refused(value, target_type, name)
    )


def _refused(value: Column, column_type: T.DataType, name: str) -> Column:
    facts = json.dumps({"column": name, "type": column_type.simpleString()})
    shown = F.substring(value.cast("string"), 1, _MAX_SHOWN)
    return F.raise_error(F.concat(F.lit(f"{UNASSIGNABLE}{facts} "), shown)).cast(column_type)


def _always_holds(value_type: T.DataType, column_type: T.DataType) -> bool:
    """Whether every integer of one type fits the other."""
    if isinstance(column_type, T.FloatType | T.DoubleType):
        return isinstance(value_type, T.ByteType | T.ShortType) or (
            isinstance(value_type, T.IntegerType) and isinstance(column_type, T.DoubleType)
        )
    return _always_fits(value_type, column_type)


def _may_be_assigned(value_type: T.DataType, column_type: T.DataType) -> bool:
    """Whether Spark's ANSI store assignment allows the cast."""
    if isinstance(column_type, T.StringType):
        return bool(isinstance(value_type, T.AtomicType))
    if isinstance(column_type, T.BinaryType):
        return bool(isinstance(value_type, T.StringType))
    plain = (T.NumericType, T.BooleanType)
    if isinstance(column_type, plain):
        return bool(isinstance(value_type, (*plain, T.StringType)))
    return bool(
        isinstance(column_type, _DATE_TIME_TYPES)
        and isinstance(value_type, (*_DATE_TIME_TYPES, T.StringType))
    )


def _always_fits(value_type: T.DataType, column_type: T.DataType) -> bool:
    if isinstance(column_type, T.StringType | T.BinaryType) or isinstance(value_type, _DATE_TIME_TYPES):
        return True
    digits = next((size for kind, size in _INTEGERS.items() if isinstance(value_type, kind)), None)
    if isinstance(column_type, T.FloatType | T.DoubleType):
        return bool(isinstance(value_type, T.NumericType))
    if isinstance(column_type, T.DecimalType):
        if isinstance(value_type, T.DecimalType):
            whole = value_type.precision - value_type.scale
            return bool(
                value_type.scale <= column_type.scale and whole <= column_type.precision - column_type.scale
            )
        return digits is not None and bool(digits <= column_type.precision - column_type.scale)
    room = next((size for kind, size in _INTEGERS.items() if isinstance(column_type, kind)), 0)
    return digits is not None and digits <= room
