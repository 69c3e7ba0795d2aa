"""Python values as Spark SQL literals."""

import datetime as dt
import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from delvec_errors import BadRequest
from delvec_kernel.schema.types import DataType, PrimitiveType

__all__ = ["Literal", "lit", "literal"]


@dataclass(frozen=True)
class Literal:
    """A literal value, as opposed to a SQL expression; see :func:`lit`."""

    value: Any


def lit(value: Any) -> Literal:
    """Mark a value of an UPDATE or a MERGE as a literal: ``lit("x")`` is the string x, ``"x"`` is the column x."""
    return value if isinstance(value, Literal) else Literal(value)


def literal(value: Any, kind: DataType | None = None) -> str:
    """Return a value as a Spark SQL literal.

    Args:
        value: None, a bool, int, float, Decimal, str, bytes, date or datetime, or a NumPy scalar of one of these.
        kind: the column's type; for ``timestamp``, a naive datetime is UTC.

    Raises:
        BadRequest: the value has another type.
    """
    if isinstance(value, Literal):
        value = value.value
    if type(value).__module__ == "numpy" and hasattr(value, "item"):
        value = value.item()
    if value is None:
        return "NULL"
    for cls, write in _WRITERS:
        if isinstance(value, cls):
            if isinstance(value, dt.datetime) and value.tzinfo is None and kind == PrimitiveType("timestamp"):
                value = value.replace(tzinfo=dt.UTC)
            return write(value)
    raise BadRequest(
        f"A value of type {type(value).__name__} cannot be written as SQL; give None, a bool, number, str, "
        "bytes, date or datetime, or write the SQL yourself."
    )


def _float(value: float) -> str:
    if math.isfinite(value):
        return f"CAST('{value!r}' AS DOUBLE)"
    return (
        "CAST('NaN' AS DOUBLE)"
        if math.isnan(value)
        else f"CAST('{'-' if value < 0 else ''}Infinity' AS DOUBLE)"
    )


def _decimal(value: Decimal) -> str:
    if not value.is_finite():
        raise BadRequest(f"{value} is not a decimal in SQL; give a finite number.")
    _, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)  # noqa: S101 - the value is finite
    scale = max(0, -exponent)
    precision = max(len(digits) + max(0, exponent), scale, 1)
    if precision > 38:  # noqa: PLR2004 - Spark's limit
        raise BadRequest(f"{value} has {precision} digits, but a decimal can have at most 38.")
    return f"CAST('{value:f}' AS DECIMAL({precision}, {scale}))"


def _text(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _date_time(value: dt.datetime) -> str:
    if value.tzinfo is None:
        return f"CAST('{value.isoformat(' ')}' AS TIMESTAMP_NTZ)"
    return f"CAST('{value.astimezone(dt.UTC).replace(tzinfo=None).isoformat(' ')}+00:00' AS TIMESTAMP)"


_WRITERS: Final[tuple[tuple[type, Callable[[Any], str]], ...]] = (
    (bool, lambda value: "TRUE" if value else "FALSE"),
    (int, str),
    (float, _float),
    (Decimal, _decimal),
    (str, _text),
    (bytes, lambda value: f"X'{value.hex()}'"),
    (dt.datetime, _date_time),
    (dt.date, lambda value: f"CAST('{value.isoformat()}' AS DATE)"),
)
