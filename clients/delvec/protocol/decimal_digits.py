"""How many digits Spark gives the result of arithmetic with decimals, and where it rounds to have room for them."""

from typing import Final

from sqlglot import exp

from delvec.protocol.expression_kinds import column_path, column_type, kind_of
from delvec.protocol.types import DecimalType, PrimitiveType, StructType

__all__ = ["rounded"]

_MOST: Final = 38
_FEWEST_PLACES: Final = 6
_OF_TYPES: Final = {"byte": 3, "short": 5, "integer": 10, "long": 20}
_OF_CASTS: Final = {exp.DType.TINYINT: 3, exp.DType.SMALLINT: 5, exp.DType.INT: 10, exp.DType.BIGINT: 20}


def rounded(node: exp.Expr, schema: StructType) -> DecimalType | None:
    """Return the type that Spark rounds a sum, a difference or a product to; None where it is exact, or nobody knows."""
    if not isinstance(node, (exp.Add, exp.Sub, exp.Mul)) or kind_of(node, schema) != "decimal":
        return None
    digits = _exact(node, schema)
    return _with_room(*digits) if digits and digits[0] > _MOST else None


def _with_room(precision: int, scale: int) -> DecimalType:
    if precision <= _MOST:
        return DecimalType(precision, scale)
    return DecimalType(_MOST, max(_MOST - (precision - scale), min(scale, _FEWEST_PLACES)))


def _exact(node: exp.Binary, schema: StructType) -> tuple[int, int] | None:
    left, right = _digits(node.this, schema), _digits(node.expression, schema)
    if left is None or right is None:
        return None
    if isinstance(node, exp.Mul):
        return left.precision + right.precision + 1, left.scale + right.scale
    scale = max(left.scale, right.scale)
    return max(left.precision - left.scale, right.precision - right.scale) + scale + 1, scale


def _digits(node: exp.Expr, schema: StructType) -> DecimalType | None:  # noqa: PLR0911 - one answer per family
    """Return the decimal type that Spark takes an operand for."""
    if isinstance(node, (exp.Paren, exp.Neg, exp.Abs)):
        return _digits(node.this, schema)
    if isinstance(node, (exp.Column, exp.Dot)):
        path = column_path(node)
        found = column_type(path, schema) if path else None
        if isinstance(found, PrimitiveType) and found.name in _OF_TYPES:
            return DecimalType(_OF_TYPES[found.name], 0)
        return found if isinstance(found, DecimalType) else None
    if isinstance(node, exp.Literal) and not node.is_string and "e" not in node.name.lower():
        whole, _, places = node.name.partition(".")
        return DecimalType(max(1, len((whole + places).lstrip("0")), len(places)), len(places))
    if isinstance(node, exp.Cast):
        return _of_cast(node.to)
    if isinstance(node, (exp.Add, exp.Sub, exp.Mul)) and kind_of(node, schema) == "decimal":
        digits = _exact(node, schema)
        return None if digits is None else _with_room(*digits)
    return None


def _of_cast(to: exp.DataType) -> DecimalType | None:
    if to.this == exp.DType.DECIMAL:
        sizes = [int(each.name) for each in to.expressions if each.name.isdecimal()]
        precision, scale = (*sizes, 0) if len(sizes) == 1 else sizes or (10, 0)
        return DecimalType(precision, scale)
    return DecimalType(_OF_CASTS[to.this], 0) if to.this in _OF_CASTS else None
