"""Values of every type that the histories use: pools of awkward ones, literals, Spark's comparisons and assignments."""

import datetime as dt
import math
import struct
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal

import pyarrow as pa

__all__ = [
    "ARROW",
    "FIELDS",
    "INTEGERS",
    "POOLS",
    "Column",
    "FailedValueError",
    "assign",
    "compare",
    "literal",
    "plain",
]

UTC = dt.UTC
INTEGERS = {"short": 16, "int": 32, "long": 64}
ARROW = {
    "short": pa.int16(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "decimal(10,2)": pa.decimal128(10, 2),
    "string": pa.string(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "struct": pa.struct({"x": pa.int32(), "y": pa.string()}),
    "array": pa.list_(pa.string()),
    "map": pa.map_(pa.string(), pa.int32()),
}
FIELDS = {"x": "int", "y": "string"}
"""Of a struct, with their kinds."""
LONG_TEXT = "é" * 40 + "z"
POOLS = {
    "short": [*range(12), -5, 2**15 - 1],
    "int": [*range(12), -5, 100, 2**31 - 1, -(2**31)],
    "long": [*range(20), -7, 2**63 - 1, -(2**63)],
    "float": [0.0, -0.0, math.nan, 1.5, -2.25, 0.10000000149011612, math.inf, 16777216.0],
    "double": [0.0, -0.0, math.nan, 1.5, -2.25, 0.1, math.inf, -math.inf, 1e300, 3.0],
    "decimal(10,2)": [
        Decimal(text) for text in ("0.00", "1.50", "-1.50", "0.01", "99999999.99", "2.68", "7.00")
    ],
    "string": [
        "",
        "a",
        "A",
        "b",
        "é",
        "e\u0301",
        "ß",
        "İ",
        "😀",
        "o'clock",
        'say "hi"',
        "100%",
        "a_b\\c",
        " sp ",
        LONG_TEXT,
    ],
    "boolean": [True, False],
    "binary": [b"", b"abc", b"\x00\xff"],
    "date": [
        dt.date.fromisoformat(text)
        for text in ("2024-02-29", "1970-01-01", "1969-12-31", "1500-03-01", "5999-12-31")
    ],
    "timestamp": [
        dt.datetime.fromisoformat(text).replace(tzinfo=UTC)
        for text in (
            "2024-02-29T12:00:00",
            "1970-01-01T00:00:00",
            "1969-12-31T23:59:59.999999",
            "1850-06-01T01:02:03.000004",
        )
    ],
    "struct": [{"x": 1, "y": "a"}, {"x": None, "y": "é"}, {"x": 7, "y": None}],
    "array": [[], ["a", None], ["é", "o'clock"]],
    "map": [[], [("a", 1)], [("é", None), ("b", 2)]],
}


@dataclass(frozen=True)
class Column:
    """A column of a table or of a source."""

    name: str
    kind: str

    @property
    def quoted(self):
        return "`" + self.name.replace("`", "``") + "`"


class FailedValueError(Exception):
    """Spark's ANSI mode makes an error of it."""


def literal(value, kind):  # noqa: PLR0911 - one answer per kind
    """Return Spark's text of a value that is not NULL."""
    if kind == "boolean":
        return "TRUE" if value else "FALSE"
    if kind in INTEGERS:
        return f"CAST({value} AS BIGINT)" if abs(value) >= 2**31 else str(value)
    if kind in ("float", "double"):
        return f"CAST('{_float_text(value)}' AS {kind.upper()})"
    if kind.startswith("decimal"):
        return str(value)
    if kind == "string":
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    if kind == "binary":
        return f"X'{value.hex()}'"
    if kind == "date":
        return f"DATE '{value.isoformat()}'"
    if kind == "timestamp":
        return f"TIMESTAMP '{value.strftime('%Y-%m-%d %H:%M:%S.%f').rjust(26, '0')}Z'"
    raise AssertionError(kind)


def _float_text(value):
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return repr(value)


def compare(left, right):
    """Return -1, 0 or 1 as Spark orders two values that are not NULL: NaN is the greatest, and zeros are equal."""
    if isinstance(left, float) or isinstance(right, float):
        left, right = ((math.isnan(each), 0 if math.isnan(each) else each) for each in (left, right))
    return (left > right) - (left < right)


# --- assignment ---------------------------------------------------------------------------------------------


def assign(value, found, kind):
    """Return a value of the kind ``found`` as one of a column's kind.

    Raises:
        FailedValueError: it does not fit.
    """
    if value is None or found == kind:
        return value
    if kind in INTEGERS:
        return whole(value, INTEGERS[kind])
    if kind == "double":
        return float(value)
    if kind == "float":
        return single(float(value))
    if kind.startswith("decimal"):
        return decimal(value)
    if kind == "string" and (found in INTEGERS or found == "date"):
        return str(value)
    raise AssertionError((found, kind))


def whole(value, bits):
    """Return a number without its fraction.

    Raises:
        FailedValueError: it has more bits.
    """
    if isinstance(value, float) and not math.isfinite(value):
        raise FailedValueError(value)
    number = math.trunc(value)
    if not -(2 ** (bits - 1)) <= number < 2 ** (bits - 1):
        raise FailedValueError(value)
    return number


def single(value):
    """Return a double as the nearest float, which may be infinite."""
    try:
        return struct.unpack("f", struct.pack("f", value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)


def decimal(value, precision=10, scale=2):
    """Return a number with so many digits, rounded half away from zero.

    Raises:
        FailedValueError: it has more digits before the point.
    """
    if isinstance(value, float) and not math.isfinite(value):
        raise FailedValueError(value)
    exact = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
    if abs(exact) >= 10 ** (precision - scale + 2):
        raise FailedValueError(value)
    found = exact.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP)
    if abs(found) >= 10 ** (precision - scale):
        raise FailedValueError(value)
    return found


# --- rows as they are compared ------------------------------------------------------------------------------


def plain(value):
    """Return a value that equals only itself: floats by their sign, all NaN alike, what is nested part by part."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else f"float {value!r}"
    if isinstance(value, dict):
        return tuple((name, plain(each)) for name, each in value.items())
    if isinstance(value, list):
        return tuple(plain(each) for each in value)
    if isinstance(value, tuple):
        return tuple(plain(each) for each in value)
    if isinstance(value, dt.datetime):
        return f"moment {value.astimezone(UTC).isoformat()}"
    # Nothing but Python has a decimal that is less than nothing and nothing.
    return value + 0 if isinstance(value, Decimal) else value
