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

from delvec_kernel.errors import SchemaMismatch

__all__ = ["UNASSIGNABLE", "assigned", "exactly_assigned", "is_same"]

UNASSIGNABLE: Final = "Delvec cannot assign: "
"""Prefix of the error message; followed by column and type as JSON, and the value."""

_SHOWN: Final = 100
_INTEGERS: Final = {T.ByteType: 3, T.ShortType: 5, T.IntegerType: 10, T.LongType: 19}
_MOMENTS: Final = (T.DateType, T.TimestampType, T.TimestampNTZType)


def is_same(found: T.DataType, wanted: T.DataType) -> bool:
    """Whether values need no cast; ignores nullability."""
    return bool(found.simpleString() == wanted.simpleString())


def assigned(
    value: Column, found: T.DataType, wanted: T.DataType, name: str, *, is_utc: bool = False
) -> Column:
    """Return a value as its column's type.

    Args:
        value: evaluated several times, so must be cheap and deterministic, such as a column.
        found: its type.
        wanted: the column's type.
        name: the column, for errors.
        is_utc: whether timestamps without time zone are in UTC instead of the session's time zone.

    Raises:
        SchemaMismatch: the types are incompatible.
    """
    if is_same(found, wanted):
        return value
    if isinstance(found, T.NullType):
        return value.cast(wanted)
    if isinstance(found, T.StructType) and isinstance(wanted, T.StructType):
        return _struct(value, found, wanted, name, is_utc=is_utc)
    if isinstance(found, T.ArrayType) and isinstance(wanted, T.ArrayType):
        element = _part(found.elementType, wanted.elementType, f"{name}.element", is_utc=is_utc)
        return F.transform(value, element)
    if isinstance(found, T.MapType) and isinstance(wanted, T.MapType):
        keys = _part(found.keyType, wanted.keyType, f"{name}.key", is_utc=is_utc)
        values = _part(found.valueType, wanted.valueType, f"{name}.value", is_utc=is_utc)
        with_keys = (
            value if is_same(found.keyType, wanted.keyType) else F.transform_keys(value, lambda k, _: keys(k))
        )
        return F.transform_values(with_keys, lambda _, v: values(v))
    return _leaf(value, found, wanted, name, is_utc=is_utc)


def _part(found: T.DataType, wanted: T.DataType, name: str, *, is_utc: bool) -> Callable[[Column], Column]:
    return lambda value: assigned(value, found, wanted, name, is_utc=is_utc)


def _struct(value: Column, found: T.StructType, wanted: T.StructType, name: str, *, is_utc: bool) -> Column:
    places = {field.name.lower(): field for field in found.fields}
    unknown = [
        field.name
        for field in found.fields
        if field.name.lower() not in {each.name.lower() for each in wanted}
    ]
    if unknown:
        raise SchemaMismatch(
            f"The value for column '{name}' has a field '{unknown[0]}' that the table does not have; leave it out, or "
            "allow schema evolution",
            column=f"{name}.{unknown[0]}",
        )
    parts = []
    for field in wanted.fields:
        source = places.get(field.name.lower())
        inner = f"{name}.{field.name}"
        part = (
            F.lit(None).cast(field.dataType)
            if source is None
            else assigned(value.getField(source.name), source.dataType, field.dataType, inner, is_utc=is_utc)
        )
        parts.append(part.alias(field.name))
    return F.when(value.isNotNull(), F.struct(*parts))


def _leaf(value: Column, found: T.DataType, wanted: T.DataType, name: str, *, is_utc: bool) -> Column:
    if not _may_be_assigned(found, wanted):
        raise SchemaMismatch(
            f"A value of type {found.simpleString()} cannot be assigned to column '{name}', which is "
            f"{wanted.simpleString()}; convert it with CAST",
            column=name,
        )
    if is_utc and isinstance(found, T.TimestampNTZType) and isinstance(wanted, T.TimestampType):
        return F.concat(value.cast("string"), F.lit("Z")).cast(wanted)
    if _always_fits(found, wanted):
        return value.cast(wanted)
    attempt = value.try_cast(wanted)
    return F.when(value.isNotNull() & attempt.isNull(), _refused(value, wanted, name)).otherwise(attempt)


def exactly_assigned(value: Column, found: T.DataType, wanted: T.DataType, name: str) -> Column:
    """Return a number as its column's type if that is lossless; otherwise an error at run time.

    Args:
        value: as for :func:`assigned`.
        found: its numeric type.
        wanted: the column's numeric type.
        name: the column, for errors.
    """
    is_binary = isinstance(found, T.FractionalType) and not isinstance(found, T.DecimalType)
    if (
        is_same(found, wanted)
        or _always_holds(found, wanted)
        or (isinstance(wanted, T.FloatType | T.DoubleType) and isinstance(found, T.FractionalType))
    ):
        return value.cast(wanted)
    attempt = value.try_cast(wanted)
    holds = attempt.isNotNull()
    if not (is_binary and isinstance(wanted, T.DecimalType)):
        holds &= attempt.try_cast(found) == value
    return F.when(value.isNull() | F.coalesce(holds, F.lit(False)), attempt).otherwise(
        _refused(value, wanted, name)
    )


def _refused(value: Column, wanted: T.DataType, name: str) -> Column:
    facts = json.dumps({"column": name, "type": wanted.simpleString()})
    shown = F.substring(value.cast("string"), 1, _SHOWN)
    return F.raise_error(F.concat(F.lit(f"{UNASSIGNABLE}{facts} "), shown)).cast(wanted)


def _always_holds(found: T.DataType, wanted: T.DataType) -> bool:
    """Whether every integer of one type fits the other."""
    if isinstance(wanted, T.FloatType | T.DoubleType):
        return isinstance(found, T.ByteType | T.ShortType) or (
            isinstance(found, T.IntegerType) and isinstance(wanted, T.DoubleType)
        )
    return _always_fits(found, wanted)


def _may_be_assigned(found: T.DataType, wanted: T.DataType) -> bool:
    """Whether Spark's ANSI store assignment allows the cast."""
    if isinstance(wanted, T.StringType):
        return bool(isinstance(found, T.AtomicType))
    if isinstance(wanted, T.BinaryType):
        return bool(isinstance(found, T.StringType))
    plain = (T.NumericType, T.BooleanType)
    if isinstance(wanted, plain):
        return bool(isinstance(found, (*plain, T.StringType)))
    return bool(isinstance(wanted, _MOMENTS) and isinstance(found, (*_MOMENTS, T.StringType)))


def _always_fits(found: T.DataType, wanted: T.DataType) -> bool:
    if isinstance(wanted, T.StringType | T.BinaryType) or isinstance(found, _MOMENTS):
        return True
    digits = next((size for kind, size in _INTEGERS.items() if isinstance(found, kind)), None)
    if isinstance(wanted, T.FloatType | T.DoubleType):
        return bool(isinstance(found, T.NumericType))
    if isinstance(wanted, T.DecimalType):
        if isinstance(found, T.DecimalType):
            whole = found.precision - found.scale
            return bool(found.scale <= wanted.scale and whole <= wanted.precision - wanted.scale)
        return digits is not None and bool(digits <= wanted.precision - wanted.scale)
    room = next((size for kind, size in _INTEGERS.items() if isinstance(wanted, kind)), 0)
    return digits is not None and digits <= room
