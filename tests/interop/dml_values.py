"""Values of every type that the histories use: awkward ones to choose from, literals, Spark's comparisons and casts."""

import datetime as dt
import math
import struct
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal

import pyarrow as pa

__all__ = [
    "ARROW",
    "EXACT",
    "INTEGERS",
    "NESTED",
    "POOLS",
    "STRUCTS",
    "WIDER",
    "Column",
    "FailedValueError",
    "Field",
    "UncertainValueError",
    "assign",
    "assign_at",
    "compare",
    "literal",
    "plain",
    "starred",
]

UTC = dt.UTC
EXACT = Context(prec=120)
"""For decimals: by default Python keeps only 28 digits."""
INTEGERS = {"byte": 8, "short": 16, "int": 32, "long": 64}
STRUCTS = {
    "struct": {"x": "int", "y": "string"},
    "struct more": {"x": "int", "y": "string", "z": "double"},
    "deep": {"inner": "struct", "k": "long"},
    "deep more": {"inner": "struct more", "k": "long"},
}
"""Field types by struct type."""
WIDER = {"struct": "struct more", "deep": "deep more"}
"""The wider struct types that schema evolution leads to."""
NESTED = frozenset({*STRUCTS, "array", "ints", "structs", "map"})
_STRUCT = pa.struct({"x": pa.int32(), "y": pa.string()})
_MORE = pa.struct([*_STRUCT, ("z", pa.float64())])
ARROW = {
    "byte": pa.int8(),
    "short": pa.int16(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "decimal(5,0)": pa.decimal128(5, 0),
    "decimal(10,2)": pa.decimal128(10, 2),
    "decimal(20,6)": pa.decimal128(20, 6),
    "decimal(38,18)": pa.decimal128(38, 18),
    "string": pa.string(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "struct": _STRUCT,
    "struct more": _MORE,
    "deep": pa.struct({"inner": _STRUCT, "k": pa.int64()}),
    "deep more": pa.struct({"inner": _MORE, "k": pa.int64()}),
    "array": pa.list_(pa.string()),
    "ints": pa.list_(pa.int32()),
    "structs": pa.list_(_STRUCT),
    "map": pa.map_(pa.string(), pa.int32()),
}
LONG_TEXT = "é" * 40 + "z"
MOMENTS = [
    dt.datetime.fromisoformat(text)
    for text in (
        "2024-02-29T12:00:00",
        "1970-01-01T00:00:00",
        "1969-12-31T23:59:59.999999",
        "1850-06-01T01:02:03.000004",
    )
]
POOLS = {
    "byte": [*range(12), -5, 127, -128],
    "short": [*range(12), -5, 2**15 - 1],
    "int": [*range(12), -5, 100, 2**31 - 1, -(2**31)],
    "long": [*range(20), -7, 2**63 - 1, -(2**63)],
    "float": [0.0, -0.0, math.nan, 1.5, -2.25, 0.10000000149011612, math.inf, 16777216.0],
    "double": [0.0, -0.0, math.nan, 1.5, -2.25, 0.1, math.inf, -math.inf, 1e300, 3.0],
    **{
        kind: [Decimal(text) for text in texts.split()]
        for kind, texts in {
            "decimal(5,0)": "0 1 -1 2 3 7 99999",
            "decimal(10,2)": "0.00 1.50 -1.50 0.01 99999999.99 2.68 7.00",
            "decimal(20,6)": "0.000000 1.500000 -0.000001 99999999999999.999999 7.000000",
            "decimal(38,18)": "0.000000000000000000 -0.000000000000000001 99999999999999999999.999999999999999999",
        }.items()
    },
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
    "timestamp": [each.replace(tzinfo=UTC) for each in MOMENTS],
    "timestamp_ntz": MOMENTS,
    "struct": [{"x": 1, "y": "a"}, {"x": None, "y": "é"}, {"x": 7, "y": None}],
    "struct more": [
        {"x": 1, "y": "a", "z": 1.5},
        {"x": None, "y": None, "z": None},
        {"x": 3, "y": "b", "z": None},
    ],
    "deep more": [{"inner": {"x": 2, "y": "b", "z": 0.5}, "k": 5}, {"inner": None, "k": None}],
    "deep": [
        {"inner": {"x": 2, "y": "b"}, "k": 5},
        {"inner": None, "k": 2**40},
        {"inner": {"x": None, "y": None}, "k": None},
    ],
    "array": [[], ["a", None], ["é", "o'clock"]],
    "ints": [[], [1, None, 2**31 - 1], [7]],
    "structs": [[], [{"x": 1, "y": "a"}, None], [{"x": None, "y": "é"}]],
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

    def value(self, row):
        return row[self.name]


@dataclass(frozen=True)
class Field:
    """A field of a struct column, at any depth.

    Attributes:
        of: the column or field that contains it.
    """

    of: object
    name: str
    kind: str

    @property
    def quoted(self):
        return f"{self.of.quoted}.`{self.name}`"

    def value(self, row):
        found = self.of.value(row)
        return None if found is None else found[self.name]


class FailedValueError(Exception):
    """An error in Spark's ANSI mode."""


class UncertainValueError(FailedValueError):
    """A part of a condition fails that engines may skip."""


def literal(value, kind):  # noqa: PLR0911 - one answer per kind
    """Return a non-NULL value as a Spark SQL literal."""
    if kind == "boolean":
        return "TRUE" if value else "FALSE"
    if kind in INTEGERS:
        return f"CAST({value} AS BIGINT)" if abs(value) >= 2**31 else str(value)
    if kind in ("float", "double"):
        return f"CAST('{_float_text(value)}' AS {kind.upper()})"
    if kind.startswith("decimal"):
        return f"{value:f}"
    if kind == "string":
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    if kind == "binary":
        return f"X'{value.hex()}'"
    if kind == "date":
        return f"DATE '{value.isoformat()}'"
    if kind == "timestamp":
        return f"TIMESTAMP '{value.strftime('%Y-%m-%d %H:%M:%S.%f').rjust(26, '0')}Z'"
    if kind == "timestamp_ntz":
        return f"TIMESTAMP_NTZ '{value.strftime('%Y-%m-%d %H:%M:%S.%f').rjust(26, '0')}'"
    raise AssertionError(kind)


def _float_text(value):
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return repr(value)


def compare(left, right):
    """Return -1, 0 or 1 in Spark's order of two non-NULL values: NaN is greatest, and 0.0 equals -0.0."""
    if isinstance(left, float) or isinstance(right, float):
        left, right = ((math.isnan(each), 0 if math.isnan(each) else each) for each in (left, right))
    return (left > right) - (left < right)


# --- assignment ---------------------------------------------------------------------------------------------


def assign(value, found, kind):  # noqa: PLR0911 - one answer per kind
    """Return a value of type ``found`` cast to a column's type.

    Raises:
        FailedValueError: the value does not fit.
    """
    if value is None or found == kind:
        return value
    if kind in STRUCTS:
        fields = STRUCTS[found]
        return {
            name: assign(value.get(name), fields.get(name), inner) for name, inner in STRUCTS[kind].items()
        }
    if kind in INTEGERS:
        return whole(value, INTEGERS[kind])
    if kind == "double":
        return float(value)
    if kind == "float":
        return single(float(value))
    if kind.startswith("decimal"):
        precision, scale = kind[8:-1].split(",")
        return decimal(value, int(precision), int(scale))
    if kind == "string" and (found in INTEGERS or found == "date"):
        return str(value)
    raise AssertionError((found, kind))


def starred(value, found, old, kind):
    """Return a struct assigned by ``*`` with schema evolution: fields that only the table has are kept.

    Args:
        value: the source's, of type ``found``.
        found: its type.
        old: the table's value; None for a new row.
        kind: the table's type.
    """
    if kind not in STRUCTS:
        return value
    if value is None and (old is None or not _has_more_fields(kind, found)):
        return None
    return {
        name: starred((value or {}).get(name), STRUCTS[found][name], (old or {}).get(name), inner)
        if name in STRUCTS[found]
        else (old or {}).get(name)
        for name, inner in STRUCTS[kind].items()
    }


def _has_more_fields(kind, found):
    inside = STRUCTS.get(found, {})
    return any(
        name not in inside or _has_more_fields(inner, inside[name])
        for name, inner in STRUCTS.get(kind, {}).items()
    )


def assign_at(value, path, new, found, kind):
    """Return a struct, or NULL, with one field replaced.

    Args:
        value: the struct.
        path: field names from the outside in; empty for the value itself.
        new: the new field value, of type ``found``.
        found: its type.
        kind: the struct's type.

    Raises:
        FailedValueError: the value does not fit.
    """
    if not path:
        return assign(new, found, kind)
    fields = STRUCTS[kind]
    inside = dict(value or dict.fromkeys(fields))
    inside[path[0]] = assign_at(inside[path[0]], path[1:], new, found, fields[path[0]])
    return inside


def whole(value, bits):
    """Return a number truncated to an integer.

    Raises:
        FailedValueError: it needs more bits.
    """
    if isinstance(value, float) and not math.isfinite(value):
        raise FailedValueError(value)
    number = math.trunc(value)
    if not -(2 ** (bits - 1)) <= number < 2 ** (bits - 1):
        raise FailedValueError(value)
    return number


def single(value):
    """Return the float nearest to a double; it may be infinite."""
    try:
        return struct.unpack("f", struct.pack("f", value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)


def decimal(value, precision, scale):
    """Return a number as a decimal of this precision and scale, rounded half up.

    Raises:
        FailedValueError: its integer part has too many digits.
    """
    if isinstance(value, float) and not math.isfinite(value):
        raise FailedValueError(value)
    exact = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
    found = exact.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP, EXACT)
    if abs(found) >= 10 ** (precision - scale):
        raise FailedValueError(value)
    return found


# --- rows as they are compared ------------------------------------------------------------------------------


def plain(value):  # noqa: PLR0911 - one answer per kind
    """Return a value comparable by ``==``: 0.0 differs from -0.0, all NaNs are equal, nested values too."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else f"float {value!r}"
    if isinstance(value, dict):
        return tuple((name, plain(each)) for name, each in value.items())
    if isinstance(value, list):
        return tuple(plain(each) for each in value)
    if isinstance(value, tuple):
        return tuple(plain(each) for each in value)
    if isinstance(value, dt.datetime):
        return f"moment {value.astimezone(UTC) if value.tzinfo else value}"
    if isinstance(value, Decimal) and value == 0:
        # Only Python has a decimal minus zero.
        return abs(value)
    return value
