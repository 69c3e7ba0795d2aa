"""Constant folding of predicates by Spark's rules.

Only expressions with the same value under all session settings are folded: integers within the range of their type,
decimals without rounding, division by a nonzero value, and casts that neither fail nor round. NULL, and anything that
could raise an error or depends on a time zone, is left unchanged.
"""

import calendar
import datetime as dt
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any, Final, TypeAlias

from sqlglot import exp

from delvec_kernel.expressions.expression_kinds import CAST_TYPES
from delvec_kernel.expressions.predicate_checks import replace_node
from delvec_kernel.schema.types import INTEGER_BITS

__all__ = ["folded"]

_DIGITS: Final = {"byte": 3, "short": 5, "integer": 10, "long": 20}
_MAX_DIGITS: Final = 38
_QUOTIENT_SCALE: Final = 6
"""Minimum scale of the quotient of two decimals."""
_EXACT: Final = Context(prec=400)
_INTEGER: Final = re.compile(r"[+-]?\d{1,19}", re.ASCII)
_NUMBER: Final = re.compile(r"[+-]?\d{1,38}(?:\.\d{1,38})?", re.ASCII)
_COUNT: Final = re.compile(r"[+-]?\d{1,9}", re.ASCII)
_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_LOCAL: Final = re.compile(r"\d{4}-\d{2}-\d{2}(?:[ T]\d{2}:\d{2}:\d{2}(?:\.\d{1,6})?)?", re.ASCII)
_ZONE: Final = re.compile(r"Z|[+-](?:0\d|1[0-7]):[0-5]\d", re.ASCII)
_CASTS: Final = {cast: name for cast, name in CAST_TYPES.items() if name not in {"boolean", "float"}}
_TYPES: Final = {
    "byte": exp.DType.TINYINT,
    "short": exp.DType.SMALLINT,
    "long": exp.DType.BIGINT,
    "date": exp.DType.DATE,
    "timestamp": exp.DType.TIMESTAMPTZ,
    "timestamp_ntz": exp.DType.TIMESTAMPNTZ,
}
_MONTHS: Final = {"MONTH": 1, "MONTHS": 1, "YEAR": 12, "YEARS": 12}
_SECONDS: Final = {
    "HOUR": 3600,
    "HOURS": 3600,
    "MINUTE": 60,
    "MINUTES": 60,
    "SECOND": 1,
    "SECONDS": 1,
}
_DAYS: Final = {"DAY", "DAYS"}


@dataclass(frozen=True)
class _Constant:
    """A value and its kind: the name of a Delta type, with ``decimal`` for all decimals.

    Attributes:
        kind: Delta's name of the type.
        value: int, Decimal, float, str, bool, date or datetime (aware for ``timestamp``, naive for ``timestamp_ntz``).
        digits: for a decimal, the maximum number of integer digits of its type.
        scale: for a decimal, the scale of its type.
    """

    kind: str
    value: Any
    digits: int = 0
    scale: int = 0


_MaybeConstant: TypeAlias = _Constant | None
_Value: TypeAlias = Callable[[exp.Expr], _MaybeConstant]


def folded(expression: exp.Expr) -> exp.Expr:
    """Return an expression that is TRUE, FALSE and NULL for the same rows, with constant parts as literals.

    Args:
        expression: as in a :class:`~delvec_kernel.expressions.predicate.Predicate`; not modified.
    """
    if not _constants(expression):
        return expression
    root = exp.Paren(this=expression.copy())
    for node, constant in _constants(root.this):
        replace_node(node, _literal(constant))
    found: exp.Expr = root.this.pop()
    return found


def _constants(root: exp.Expr) -> list[tuple[exp.Expr, _Constant]]:
    """Return the largest constant parts that are not literals, with their values."""
    constants: list[tuple[exp.Expr, _Constant]] = []
    constant_cache: dict[int, _MaybeConstant] = {}
    pending = [root]
    while pending:
        node = pending.pop()
        if isinstance(node, exp.Literal | exp.Boolean | exp.DataType | exp.Column):
            continue
        constant = _constant(node, constant_cache)
        if constant is None:
            pending += node.iter_expressions()
        elif not _is_literal(node.unnest(), constant):
            constants.append((node, constant))
    return constants


def _is_literal(node: exp.Expr, constant: _Constant) -> bool:
    if constant.kind in {"double", "timestamp"} and isinstance(node, exp.Cast):
        return isinstance(node.this, exp.Literal) and node.this.is_string == (constant.kind == "timestamp")
    return _literal(constant) == node


def _constant(node: exp.Expr, constant_cache: dict[int, _MaybeConstant]) -> _MaybeConstant:
    if isinstance(node, exp.Literal):
        return _Constant("string", node.name) if node.is_string else _number(node.name)
    rule = _RULES.get(type(node))
    if rule is None:
        return None
    if id(node) not in constant_cache:
        constant_cache[id(node)] = rule(node, lambda each: _constant(each, constant_cache))
    return constant_cache[id(node)]


# --- literals -----------------------------------------------------------------------------------------------


def _number(text: str) -> _MaybeConstant:
    """Parse an unquoted number, including its minus, which belongs to the number in Spark's grammar."""
    if "e" in text.lower():
        return _double(float(text))
    if _NUMBER.fullmatch(text) is None:
        return None
    if "." in text:
        return _decimal(Decimal(text))
    number = int(text)
    for kind in ("integer", "long"):
        if _is_within(number, kind):
            return _Constant(kind, number)
    return _decimal(Decimal(number))


def _is_within(number: int, kind: str) -> bool:
    limit = 1 << INTEGER_BITS[kind] - 1
    return -limit <= number < limit


def _integer(number: int, kind: str) -> _MaybeConstant:
    return _Constant(kind, number) if _is_within(number, kind) else None


def _double(number: float) -> _MaybeConstant:
    # Drop the sign of zero: -0.0 = 0.0 in SQL, and nothing that is folded distinguishes them.
    return _Constant("double", number or 0.0) if math.isfinite(number) else None


def _decimal(number: Decimal) -> _MaybeConstant:
    """Return a decimal with the type of a decimal literal."""
    _, digits, exponent = number.as_tuple()
    scale = -exponent if isinstance(exponent, int) else _MAX_DIGITS + 1
    whole = max(0, len(digits) - scale)
    return _Constant("decimal", number, whole, scale) if 0 <= scale <= _MAX_DIGITS - whole else None


def _literal(constant: _Constant) -> exp.Expr:
    """Return the literal of a value, with its type except for decimals, whose type is not kept."""
    kind, value = constant.kind, constant.value
    if kind == "boolean":
        return exp.Boolean(this=value)
    if kind == "string":
        return exp.Literal.string(value)
    if kind == "decimal":
        text = format(value, "f")
        scale = len(text.partition(".")[2])
        return exp.Cast(
            this=exp.Literal.string(text),
            to=exp.DataType(
                this=exp.DType.DECIMAL,
                expressions=[
                    exp.DataTypeParam(this=exp.Literal.number(each)) for each in (_MAX_DIGITS, scale)
                ],
            ),
        )
    node: exp.Expr
    if kind in INTEGER_BITS or kind == "double":
        text = str(abs(value)) if kind in INTEGER_BITS else repr(abs(value))
        node = exp.Literal.number(text if kind in INTEGER_BITS or "e" in text else text + "e0")
        node = exp.Neg(this=node) if value < 0 else node
    else:
        node = exp.Literal.string(value.isoformat() if kind == "date" else value.isoformat(" "))
    return exp.Cast(this=node, to=exp.DataType(this=_TYPES[kind], nested=False)) if kind in _TYPES else node


# --- operators ----------------------------------------------------------------------------------------------


def _paren(node: exp.Expr, value: _Value) -> _MaybeConstant:
    return value(node.this)


def _negative(node: exp.Expr, value: _Value) -> _MaybeConstant:
    if isinstance(node.this, exp.Literal) and not node.this.is_string:
        return _number("-" + node.this.name)
    inner = value(node.this)
    if inner is None:
        return None
    if inner.kind in INTEGER_BITS:
        return _integer(-inner.value, inner.kind)
    if inner.kind == "double":
        return _double(-inner.value)
    if inner.kind == "decimal":
        return _Constant("decimal", inner.value.copy_negate(), inner.digits, inner.scale)
    return None


def _arithmetic(node: exp.Expr, value: _Value) -> _MaybeConstant:  # noqa: PLR0911 - one answer per kind of operands
    left = value(node.this)
    if left is None:
        return None
    right_node = node.args["expression"]
    if isinstance(right_node, exp.Interval):
        return _add_interval(left, right_node, -1 if isinstance(node, exp.Sub) else 1)
    right = value(right_node)
    if right is None:
        return None
    if left.kind == "date":
        if right.kind not in {"byte", "short", "integer"} or not isinstance(node, exp.Add | exp.Sub):
            return None
        return _add_days(left, -right.value if isinstance(node, exp.Sub) else right.value)
    kinds = {left.kind, right.kind}
    if not kinds <= {*INTEGER_BITS, "decimal", "double"}:
        return None
    if isinstance(node, exp.Div | exp.IntDiv | exp.Mod) and not right.value:
        return None
    if "double" in kinds:
        return _double_arithmetic(type(node), left, right)
    if "decimal" in kinds:
        return _decimal_arithmetic(type(node), _as_decimal(left), _as_decimal(right))
    return _integer_arithmetic(type(node), left, right)


def _integer_arithmetic(operator: type[exp.Expr], left: _Constant, right: _Constant) -> _MaybeConstant:
    a, b = left.value, right.value
    if operator is exp.Div:
        return _double(float(a) / float(b))
    if operator is exp.IntDiv:
        return _integer(_quotient(a, b), "long")
    kind = max(left.kind, right.kind, key=INTEGER_BITS.__getitem__)
    result: dict[type[exp.Expr], int] = {
        exp.Add: a + b,
        exp.Sub: a - b,
        exp.Mul: a * b,
        exp.Mod: a - b * _quotient(a, b) if b else 0,
    }
    return _integer(result[operator], kind)


def _quotient(a: int, b: int) -> int:
    """Divide integers, truncating towards zero."""
    if not b:
        return 0
    found = abs(a) // abs(b)
    return found if (a < 0) == (b < 0) else -found


def _as_decimal(number: _Constant) -> _Constant:
    if number.kind == "decimal":
        return number
    return _Constant("decimal", Decimal(number.value), _DIGITS[number.kind], 0)


def _decimal_arithmetic(operator: type[exp.Expr], left: _Constant, right: _Constant) -> _MaybeConstant:
    """Compute only if no rounding is needed, whatever session settings for decimals say."""
    a, b = left.value, right.value
    if operator is exp.Add or operator is exp.Sub:
        number = _EXACT.add(a, b) if operator is exp.Add else _EXACT.subtract(a, b)
        digits, scale = max(left.digits, right.digits) + 1, max(left.scale, right.scale)
    elif operator is exp.Mul:
        number = _EXACT.multiply(a, b)
        digits, scale = left.digits + right.digits + 1, left.scale + right.scale
    elif operator is exp.Mod:
        number = _EXACT.remainder(a, b)
        digits, scale = max(left.digits, right.digits), max(left.scale, right.scale)
    elif operator is exp.Div:
        number = _EXACT.divide(a, b)
        digits = left.digits + right.scale
        least = max(_QUOTIENT_SCALE, left.scale + right.digits + right.scale + 1)
        if digits + least > _MAX_DIGITS or Fraction(number) != Fraction(a) / Fraction(b):
            return None
        number = number.normalize(_EXACT)
        if -int(number.as_tuple().exponent) > _QUOTIENT_SCALE:
            return None
        # The scale depends on whether the divisor was a literal, so the result is not folded further.
        return _Constant("decimal", number, _MAX_DIGITS, _QUOTIENT_SCALE)
    else:
        return None
    return _Constant("decimal", number, digits, scale) if digits + scale <= _MAX_DIGITS else None


def _have_common_type(left: _Constant, right: _Constant) -> bool:
    return max(left.digits, right.digits) + max(left.scale, right.scale) <= _MAX_DIGITS


def _double_arithmetic(operator: type[exp.Expr], left: _Constant, right: _Constant) -> _MaybeConstant:
    """Compute only if exact: the result is then the same if a setting turns such literals into decimals."""
    a, b = Fraction(left.value), Fraction(right.value)
    if operator is exp.Add:
        exact = a + b
    elif operator is exp.Sub:
        exact = a - b
    elif operator is exp.Mul:
        exact = a * b
    elif operator is exp.Div:
        exact = a / b
    else:
        return None
    try:
        are_exact = all(Fraction(float(each)) == each for each in (a, b, exact))
    except OverflowError:
        return None
    return _double(float(exact)) if are_exact else None


def _comparison(node: exp.Expr, value: _Value) -> _MaybeConstant:
    """Compare integers and decimals."""
    left, right = value(node.this), value(node.args["expression"])
    if left is None or right is None or not {left.kind, right.kind} <= {*INTEGER_BITS, "decimal"}:
        return None
    a, b = left.value, right.value
    if "decimal" in {left.kind, right.kind} and not _have_common_type(_as_decimal(left), _as_decimal(right)):
        return None
    result: dict[type[exp.Expr], bool] = {
        exp.EQ: a == b,
        exp.NullSafeEQ: a == b,
        exp.NEQ: a != b,
        exp.LT: a < b,
        exp.LTE: a <= b,
        exp.GT: a > b,
        exp.GTE: a >= b,
    }
    return _Constant("boolean", result[type(node)])


# --- casts --------------------------------------------------------------------------------------------------


def _cast(node: exp.Expr, value: _Value) -> _MaybeConstant:  # noqa: PLR0911 - one answer per target
    to = node.args["to"]
    target = _CASTS.get(to.this)
    if target is None or node.args.get("format") or (to.expressions and target != "decimal"):
        return None
    inner = value(node.this)
    if inner is None:
        return None
    if inner.kind == target and target != "decimal":
        return inner
    if target in INTEGER_BITS:
        return _to_integer(inner, target)
    if target == "double":
        return _to_double(inner)
    if target == "decimal":
        return _to_decimal(inner, to)
    if target == "string":
        return _Constant("string", str(inner.value)) if inner.kind in INTEGER_BITS else None
    return _date_time(target, inner.value) if inner.kind == "string" else None


def _to_integer(inner: _Constant, target: str) -> _MaybeConstant:
    if inner.kind == "string":
        return _integer(int(inner.value), target) if _INTEGER.fullmatch(inner.value) else None
    if inner.kind in {*INTEGER_BITS, "decimal", "double"}:
        return _integer(math.trunc(inner.value), target)
    return None


def _to_double(inner: _Constant) -> _MaybeConstant:
    if inner.kind == "string" and not _NUMBER.fullmatch(inner.value):
        return None
    return _double(float(inner.value)) if inner.kind in {*INTEGER_BITS, "decimal", "string"} else None


def _to_decimal(inner: _Constant, to: exp.Expr) -> _MaybeConstant:
    sizes = [each.name for each in to.expressions] or ["10"]
    if not all(each.isdecimal() and len(each) <= 2 for each in sizes):  # noqa: PLR2004 - at most 38
        return None
    precision, scale = (*map(int, sizes), 0)[:2]
    if not 0 <= scale <= precision <= _MAX_DIGITS or inner.kind not in {*INTEGER_BITS, "decimal", "string"}:
        return None
    if inner.kind == "string" and not _NUMBER.fullmatch(inner.value):
        return None
    number = Decimal(inner.value)
    scaled = number.scaleb(scale, _EXACT)
    # Comparison is exact, whereas abs() rounds to the context's precision.
    limit = 10**precision
    fits = scaled == scaled.to_integral_value(context=_EXACT) and -limit < scaled < limit
    return _Constant("decimal", number, precision - scale, scale) if fits else None


# --- dates and times ----------------------------------------------------------------------------------------


def _date_time(kind: str, text: str) -> _MaybeConstant:
    """Parse a date or timestamp in the usual formats; an instant only if it has an offset."""
    if kind == "date":
        matches = _DATE.fullmatch(text) is not None
    else:
        zone = _ZONE.search(text, 10) if kind == "timestamp" else None
        local = text[: zone.start()] if zone and zone.end() == len(text) else text
        matches = _LOCAL.fullmatch(local) is not None and (zone is not None) == (kind == "timestamp")
    if not matches:
        return None
    try:
        return _Constant(
            kind, dt.date.fromisoformat(text) if kind == "date" else dt.datetime.fromisoformat(text)
        )
    except ValueError:
        return None


def _add_interval(date_time: _Constant, interval: exp.Interval, sign: int) -> _MaybeConstant:
    """Add ``INTERVAL n unit`` where daylight saving cannot affect the result."""
    unit, amount = interval.args.get("unit"), interval.this
    if (
        not isinstance(unit, exp.Var)
        or not isinstance(amount, exp.Literal)
        or not _COUNT.fullmatch(amount.name)
    ):
        return None
    name, count = unit.name.upper(), sign * int(amount.name)
    if date_time.kind == "date" and name in _DAYS:
        return _add_days(date_time, count)
    if date_time.kind == "date" and name in _MONTHS:
        return _add_months(date_time, count * _MONTHS[name])
    if date_time.kind in {"timestamp", "timestamp_ntz"} and name in _SECONDS:
        return _add_duration(date_time, dt.timedelta(seconds=1), count * _SECONDS[name])
    if date_time.kind == "timestamp_ntz" and name in _DAYS:
        return _add_duration(date_time, dt.timedelta(days=1), count)
    return None


def _add_days(date: _Constant, count: int) -> _MaybeConstant:
    return _add_duration(date, dt.timedelta(days=1), count)


def _add_duration(date_time: _Constant, unit: dt.timedelta, count: int) -> _MaybeConstant:
    try:
        return _Constant(date_time.kind, date_time.value + count * unit)
    except OverflowError:
        return None


def _add_months(date: _Constant, count: int) -> _MaybeConstant:
    """Add months, clipping the day to the end of the month."""
    year, month = divmod(date.value.year * 12 + date.value.month - 1 + count, 12)
    if not dt.MINYEAR <= year <= dt.MAXYEAR:
        return None
    last = calendar.monthrange(year, month + 1)[1]
    return _Constant("date", dt.date(year, month + 1, min(date.value.day, last)))


def _date_add(node: exp.Expr, value: _Value) -> _MaybeConstant:
    """Evaluate ``date_add`` and ``date_sub``."""
    unit, start, count = node.args.get("unit"), value(node.this), value(node.args["expression"])
    if start is None or count is None or unit is None or unit.name.upper() != "DAY":
        return None
    if start.kind == "string":
        start = _date_time("date", start.value)
    if start is None or start.kind != "date" or count.kind not in {"byte", "short", "integer"}:
        return None
    return _add_days(start, count.value)


_RULES: Final[dict[type[exp.Expr], Callable[[Any, _Value], _MaybeConstant]]] = {
    exp.Paren: _paren,
    exp.Neg: _negative,
    exp.Cast: _cast,
    exp.TryCast: _cast,
    exp.TsOrDsAdd: _date_add,
    **dict.fromkeys((exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod), _arithmetic),
    **dict.fromkeys(
        (exp.EQ, exp.NullSafeEQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE),
        _comparison,
    ),
}
