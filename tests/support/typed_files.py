"""Parquet files with each physical type and annotation, and what each type of table reads from them.

Arrow writes the values, and the annotations are then put into the footer, so that files of other writers are had without these.
"""

import datetime as dt
import struct
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq

from delvec_engines.scan import Scan
from delvec_kernel.schema.types import StructType
from delvec_parquet.file_schema import schema_of_footer
from delvec_parquet.thrift import STRUCT, CompactReader, list_header, varint, zigzag
from delvec_service.scans.plan import PLAN_SCHEMA

__all__ = [
    "FORMS",
    "SHAPES",
    "TYPES",
    "Form",
    "Shape",
    "annotate",
    "annotate_maps_as_hive",
    "give_old_bounds",
    "nested",
    "scan_of",
    "schema_in",
    "without",
    "write_form",
]

TYPES = [
    *(
        "boolean",
        "byte",
        "short",
        "integer",
        "long",
        "float",
        "double",
        "string",
        "binary",
        "date",
        "timestamp",
    ),
    *("timestamp_ntz", "decimal(5,2)", "decimal(9,2)", "decimal(10,2)", "decimal(10,3)", "decimal(12,0)"),
    *("decimal(20,0)", "decimal(20,2)", "decimal(38,18)"),
]
"""Delta's names of the types of tables."""

_CONVERTED, _SCALE, _PRECISION, _LOGICAL = 6, 7, 8, 10
_SCHEMA, _NAME, _CHILDREN = 2, 4, 5
_ROW_GROUPS, _COLUMN_ORDERS = 4, 7
_BINARY = 8
_INTEGER = 5


@dataclass(frozen=True)
class Form:
    """A form in which a file has values.

    Attributes:
        values: as Arrow writes them.
        annotation: fields of the schema's element, by number; None for what Arrow writes.
        read: the table's values by Delta's type; all other types are refused.
        beyond_spark: types of ``read`` that Spark refuses.
        only_spark: other types that Spark reads, mostly as other values.
    """

    values: pa.Array
    annotation: dict = field(default_factory=dict)
    read: dict = field(default_factory=dict)
    beyond_spark: frozenset = frozenset()
    only_spark: frozenset = frozenset()


# --- annotations ----------------------------------------------------------------------------------------------


def _number(value):
    return _INTEGER, zigzag(value)


def _member(number, body=b"\0"):
    return STRUCT, bytes([number << 4 | STRUCT]) + body + b"\0"


def converted(number):
    """Return the older annotation."""
    return {_CONVERTED: _number(number)}


def logical(number):
    """Return the newer annotation."""
    return {_LOGICAL: _member(number)}


def integer(number, bits, *, signed):
    """Return both annotations of an integer."""
    flag = 0x11 if signed else 0x12
    return {**converted(number), _LOGICAL: _member(10, bytes([0x13, bits, flag, 0]))}


def decimal(precision, scale):
    """Return both annotations of a decimal."""
    body = b"\x15" + zigzag(scale) + b"\x15" + zigzag(precision) + b"\0"
    numbers = {_SCALE: _number(scale), _PRECISION: _number(precision)}
    return {**converted(5), **numbers, _LOGICAL: _member(5, body)}


def moment(unit, *, utc):
    """Return the newer annotation of a timestamp: 1 for milliseconds, 2, 3 for nanoseconds."""
    body = bytes([0x11 if utc else 0x12, 0x1C, unit << 4 | STRUCT, 0, 0, 0])
    return {_LOGICAL: _member(8, body)}


def time(unit):
    """Return the newer annotation of a time of day."""
    return {_LOGICAL: _member(7, bytes([0x11, 0x1C, unit << 4 | STRUCT, 0, 0, 0]))}


def annotate(path, annotation, names=("v", "element", "value")):
    """Give the columns of these names this annotation and no other."""

    def edited(element):
        if _CHILDREN not in element and element[_NAME][1][1:].decode() in names:
            for number in (_CONVERTED, _SCALE, _PRECISION, _LOGICAL):
                element.pop(number, None)
            element.update(annotation)

    _edit(path, edited)


def annotate_maps_as_hive(path):
    """Give maps the annotation of their entries, and no other."""

    def edited(element):
        if element.get(_CONVERTED) == _number(1):
            element[_CONVERTED] = _number(2)
            element.pop(_LOGICAL, None)

    _edit(path, edited)


def without(path, number):
    """Remove a field of all elements of the schema: 6 for the older annotations, 10 for the newer."""
    _edit(path, lambda element: element.pop(number, None))


def give_old_bounds(path, bounds):
    """Make the footer that of a writer before column orders, with these bounds of each column: encoded minimum and maximum."""
    body, fields = _footer(path)
    fields.pop(_COLUMN_ORDERS, None)
    groups = _structs(fields[_ROW_GROUPS][1])
    for group in groups:
        columns = _structs(group[1][1])
        for column, (low, high) in zip(columns, bounds, strict=True):
            inside = _struct(column[3][1], CompactReader(column[3][1]))
            found = _struct(inside[12][1], CompactReader(inside[12][1]))
            nulls = {number: value for number, value in found.items() if number == 3}
            old = {1: (_BINARY, varint(len(high)) + high), 2: (_BINARY, varint(len(low)) + low)}
            inside[12] = STRUCT, _encoded(old | nulls)
            column[3] = STRUCT, _encoded(inside)
        group[1] = group[1][0], _list(columns)
    fields[_ROW_GROUPS] = fields[_ROW_GROUPS][0], _list(groups)
    _write(path, body, fields)


def _edit(path, edit):
    body, fields = _footer(path)
    elements = _structs(fields[_SCHEMA][1])
    for element in elements:
        edit(element)
    fields[_SCHEMA] = fields[_SCHEMA][0], _list(elements)
    _write(path, body, fields)


def _footer(path):
    data = path.read_bytes()
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    return data[:start], _struct(data[start:-8], CompactReader(data[start:-8]))


def _write(path, body, fields):
    footer = _encoded(fields)
    path.write_bytes(body + footer + len(footer).to_bytes(4, "little") + b"PAR1")


def _structs(data):
    reader = CompactReader(data)
    count, _ = reader.list_header()
    return [_struct(data, reader) for _ in range(count)]


def _list(structs):
    return list_header(len(structs), STRUCT) + b"".join(map(_encoded, structs))


def _struct(data, reader):
    found = {}
    for number, kind in reader.fields():
        start = reader.at
        reader.skip(kind)
        found[number] = kind, data[start : reader.at]
    return found


def _encoded(fields):
    parts, last = [], 0
    for number, (kind, value) in sorted(fields.items()):
        parts.append(bytes([(number - last) << 4 | kind]) + value)
        last = number
    return b"".join(parts) + b"\0"


# --- files ----------------------------------------------------------------------------------------------------


def nested(values):
    """Return values as columns: ``v``, and ``v`` in a struct ``s``, an array ``a`` and a map ``m``."""
    count = len(values)
    places = pa.array(range(count + 1), pa.int32())
    return pa.table(
        {
            "id": pa.array(range(count), pa.int64()),
            "v": values,
            "s": pa.StructArray.from_arrays([values], ["v"]),
            "a": pa.ListArray.from_arrays(places, values),
            "m": pa.MapArray.from_arrays(places, pa.array(["k"] * count), values),
        }
    )


def write_form(path, form):
    """Write a file with the columns of :func:`nested`."""
    is_int96 = pa.types.is_timestamp(form.values.type)
    # Spark refuses some types only where values have no dictionary, and reads others only then.
    pq.write_table(
        nested(form.values),
        path,
        store_schema=False,
        use_dictionary=False,
        use_deprecated_int96_timestamps=is_int96,
    )
    if not is_int96:
        annotate(path, form.annotation)


def schema_in(path):
    """Return the schema in a file's footer."""
    data = path.read_bytes()
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    found, end = schema_of_footer(data[start:-8])
    assert schema_of_footer(data[start : start + end])[0] == found
    return found


def scan_of(folder, names, schema, configuration=None):
    """Return a scan of these files of a folder, of version 7 of the table ``people``."""
    files = [
        {
            "path": name,
            "partition_values": [],
            "size": (folder / name).stat().st_size,
            "modification_time": 0,
            "matches_all": False,
        }
        for name in names
    ]
    return Scan(
        "id",
        "people",
        folder.as_uri(),
        7,
        schema,
        [],
        configuration or {},
        pa.Table.from_pylist(files, PLAN_SCHEMA),
        len(files),
    )


# --- forms ----------------------------------------------------------------------------------------------------


def _array(kind, *values):
    return pa.array([*values, None], kind)


_int32, _int64 = partial(_array, pa.int32()), partial(_array, pa.int64())
_bytes = partial(_array, pa.binary())


def _fixed(length, *values):
    return _array(pa.binary(length), *values)


def _big(value, length):
    return value.to_bytes(length, "big", signed=True)


def _read(kinds, *values):
    return {kind: [*values, None] for kind in kinds.split()}


def _decimals(kinds, *values):
    return _read(kinds, *map(Decimal, values))


_WIDER = "decimal(12,0) decimal(20,0) decimal(20,2) decimal(38,18)"
_RAW = {"only_spark": frozenset({"byte", "short", "integer", "long", "double", "date"})}


def _integers(kinds, *values, date=False):
    found = _read(kinds, *values) | _decimals(_WIDER, *values) | _read("double", *map(float, values))
    return found | (
        _read("date", *(dt.date(1970, 1, 1) + dt.timedelta(value) for value in values)) if date else {}
    )


_NUMBERS = "byte short integer long"
_CENTS = ("10.05", "-0.01", "0.05")
_TEXTS = ["aé", "\\x41", "a'b\"c\\d\t\n", "", "\N{MUSICAL SYMBOL G CLEF}"]
_ENCODED = [text.encode() for text in _TEXTS]
_TEXT_READ = _read("string", *_TEXTS) | _read("binary", *_ENCODED)
_EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - without a zone, as in the table
_MICROSECONDS = [1_600_000_000_123_456, -1_500_001, 0]


def _moments(*microseconds):
    local = [_EPOCH + dt.timedelta(microseconds=value) for value in microseconds]
    zoned = [value.replace(tzinfo=dt.UTC) for value in local]
    return _read("timestamp_ntz", *local) | _read("timestamp", *zoned)


_AT = _moments(*_MICROSECONDS)
_AT_MILLISECONDS = _moments(*(value // 1000 * 1000 for value in _MICROSECONDS))
_NANOSECONDS = [1_600_000_000_123_456_999, -1_500_001_999, -1, 1, 0]
_CUT = _moments(*(value // 1000 for value in _NANOSECONDS))
_DAYS = [1, -2, 18000]
_MILLISECONDS = _int64(*(value // 1000 for value in _MICROSECONDS))
_BOTH_MOMENTS = frozenset({"timestamp", "timestamp_ntz"})
_AS_LONG = {"only_spark": frozenset({"long"})}
_AS_BYTES = {"only_spark": frozenset({"binary", "string"})}
_AS_FIXED = {"only_spark": frozenset({"binary"})}
_OF_BYTES = "decimal(9,2) decimal(10,2) decimal(10,3)"
_OF_CENTS = "decimal(10,2) decimal(20,2) decimal(38,18)"

FORMS = {
    "boolean": Form(_array(pa.bool_(), True, False), {}, _read("boolean", True, False)),
    "int32": Form(_int32(1, -2, 100), {}, _integers(_NUMBERS, 1, -2, 100, date=True)),
    "int8": Form(
        _int32(1, -2, 100),
        integer(15, 8, signed=True),
        _integers(_NUMBERS, 1, -2, 100) | _decimals(f"decimal(5,2) {_OF_BYTES}", 1, -2, 100),
        beyond_spark=frozenset(f"decimal(5,2) {_OF_BYTES}".split()),
        only_spark=frozenset({"date"}),
    ),
    "int16": Form(
        _int32(1, -2, 100),
        integer(16, 16, signed=True),
        _integers(_NUMBERS, 1, -2, 100) | _decimals(_OF_BYTES, 1, -2, 100),
        beyond_spark=frozenset(_OF_BYTES.split()),
        only_spark=frozenset({"date"}),
    ),
    "a long number in int32": Form(
        _int32(1, -2, 100_000),
        integer(17, 32, signed=True),
        _integers("integer long", 1, -2, 100_000),
        only_spark=frozenset({"byte", "short", "date"}),
    ),
    "uint8": Form(
        _int32(1, 200),
        integer(11, 8, signed=False),
        _read("short integer long", 1, 200) | _read("double", 1.0, 200.0),
        only_spark=frozenset({"byte", "date"}),
    ),
    "uint16": Form(
        _int32(1, 60_000),
        integer(12, 16, signed=False),
        _read("integer long", 1, 60_000) | _read("double", 1.0, 60_000.0),
        only_spark=frozenset({"byte", "short", "date"}),
    ),
    "uint32": Form(
        _int32(1, -2),
        integer(13, 32, signed=False),
        _read("long", 1, 4_294_967_294),
        only_spark=frozenset({"byte", "short", "integer", "double", "date"}),
    ),
    "date": Form(
        _int32(*_DAYS),
        converted(6) | logical(6),
        _read("date", *(_EPOCH.date() + dt.timedelta(day) for day in _DAYS))
        | _read("timestamp_ntz", *(_EPOCH + dt.timedelta(day) for day in _DAYS)),
        only_spark=frozenset({"byte", "short", "integer", "long", "double"}),
    ),
    "date, newer annotation": Form(
        _int32(*_DAYS),
        logical(6),
        _read("date", *(_EPOCH.date() + dt.timedelta(day) for day in _DAYS))
        | _read("timestamp_ntz", *(_EPOCH + dt.timedelta(day) for day in _DAYS)),
        only_spark=frozenset({"byte", "short", "integer", "long", "double"}),
    ),
    "time in milliseconds": Form(_int32(1, 2, 1000), converted(7) | time(1), **_RAW),
    "decimal(9,2) in int32": Form(
        _int32(1005, -1, 5),
        decimal(9, 2),
        _decimals(f"decimal(9,2) decimal(10,3) {_OF_CENTS}", *_CENTS),
        **_RAW,
    ),
    "decimal(5,0) in int32": Form(
        _int32(1005, -1, 5),
        decimal(5, 0),
        _decimals(f"decimal(9,2) decimal(10,2) decimal(10,3) {_WIDER}", "1005", "-1", "5"),
        **_RAW,
    ),
    "int64": Form(
        _int64(1, -2, 1 << 40),
        {},
        _read("long", 1, -2, 1 << 40) | _decimals("decimal(20,0) decimal(38,18)", 1, -2, 1 << 40),
    ),
    "int64, annotated": Form(
        _int64(1, -2, 1 << 40),
        integer(18, 64, signed=True),
        _read("long", 1, -2, 1 << 40) | _decimals("decimal(20,0) decimal(38,18)", 1, -2, 1 << 40),
    ),
    "uint64": Form(
        _int64(1, -2), integer(14, 64, signed=False), _decimals("decimal(20,0)", 1, (1 << 64) - 2), **_AS_LONG
    ),
    "time in microseconds": Form(_int64(1, 2, 1000), converted(8) | time(2), **_AS_LONG),
    "decimal(10,3) in int64": Form(
        _int64(1005, -1, 5),
        decimal(10, 3),
        _decimals("decimal(10,3) decimal(38,18)", "1.005", "-0.001", "0.005"),
        **_AS_LONG,
    ),
    "decimal(10,2) in int64": Form(
        _int64(1005, -1, 5), decimal(10, 2), _decimals(_OF_CENTS, *_CENTS), **_AS_LONG
    ),
    "microseconds": Form(_int64(*_MICROSECONDS), converted(10) | moment(2, utc=True), _AT, **_AS_LONG),
    "microseconds, older annotation": Form(_int64(*_MICROSECONDS), converted(10), _AT, **_AS_LONG),
    "microseconds, newer annotation": Form(_int64(*_MICROSECONDS), moment(2, utc=True), _AT, **_AS_LONG),
    "milliseconds": Form(_MILLISECONDS, converted(9) | moment(1, utc=True), _AT_MILLISECONDS, **_AS_LONG),
    "nanoseconds": Form(
        _int64(*_NANOSECONDS), moment(3, utc=True), _CUT, beyond_spark=_BOTH_MOMENTS, **_AS_LONG
    ),
    "microseconds without zone": Form(_int64(*_MICROSECONDS), moment(2, utc=False), _AT, **_AS_LONG),
    "milliseconds without zone": Form(_MILLISECONDS, moment(1, utc=False), _AT_MILLISECONDS, **_AS_LONG),
    "nanoseconds without zone": Form(
        _int64(*_NANOSECONDS), moment(3, utc=False), _CUT, beyond_spark=_BOTH_MOMENTS, **_AS_LONG
    ),
    "int96": Form(pa.array([*_NANOSECONDS, None], pa.timestamp("ns")), {}, _CUT),
    "float": Form(_array(pa.float32(), 1.5, -0.0), {}, _read("float double", 1.5, -0.0)),
    "double": Form(_array(pa.float64(), 1.5, -0.0, 3e300), {}, _read("double", 1.5, -0.0, 3e300)),
    "bytes": Form(_bytes(*_ENCODED), {}, _TEXT_READ),
    "string": Form(_bytes(*_ENCODED), converted(0) | logical(1), _TEXT_READ),
    "string, older annotation": Form(_bytes(*_ENCODED), converted(0), _TEXT_READ),
    "string, newer annotation": Form(_bytes(*_ENCODED), logical(1), _TEXT_READ),
    "enum": Form(_bytes(*_ENCODED), converted(4) | logical(4), _TEXT_READ),
    "json": Form(
        _bytes(b'{"a": 1}', b"[1 ,2]"),
        converted(19) | logical(12),
        _read("string", '{"a": 1}', "[1 ,2]") | _read("binary", b'{"a": 1}', b"[1 ,2]"),
    ),
    "bson": Form(_bytes(b"\x05\0\0\0\0"), converted(20) | logical(13), **_AS_BYTES),
    "decimal(10,2) in bytes": Form(
        _bytes(_big(1005, 2), _big(-1, 1), _big(5, 5)),
        decimal(10, 2),
        _decimals(_OF_CENTS, *_CENTS),
        beyond_spark=frozenset({"decimal(10,2)"}),
        **_AS_BYTES,
    ),
    "fixed bytes": Form(_fixed(4, b"aaaa", b"\\x41"), {}, _read("binary", b"aaaa", b"\\x41")),
    "uuid": Form(_fixed(16, bytes(range(16))), logical(14), _read("binary", bytes(range(16)))),
    "decimal(10,2) in fixed bytes": Form(
        _fixed(5, _big(1005, 5), _big(-1, 5), _big(5, 5)),
        decimal(10, 2),
        _decimals(_OF_CENTS, *_CENTS),
        **_AS_FIXED,
    ),
    "decimal(20,0) in fixed bytes": Form(
        _fixed(9, _big(1005, 9), _big(-1, 9)),
        decimal(20, 0),
        _decimals("decimal(20,0) decimal(38,18)", 1005, -1),
        **_AS_FIXED,
    ),
    "decimal(38,18) in fixed bytes": Form(
        _fixed(16, _big(1005 * 10**18, 16), _big(-1, 16)),
        decimal(38, 18),
        _decimals("decimal(38,18)", "1005", "-1E-18"),
        **_AS_FIXED,
    ),
    "float16": Form(
        _fixed(2, struct.pack("<e", 1.5)),
        logical(15),
        _read("float double", 1.5),
        beyond_spark=frozenset({"float", "double"}),
        **_AS_FIXED,
    ),
    "interval": Form(_fixed(12, bytes(12)), converted(21), **_AS_FIXED),
    "null": Form(
        _int32(None),
        logical(11),
        {kind: [None, None] for kind in TYPES},
        beyond_spark=frozenset(TYPES) - {"byte", "short", "integer", "long", "double", "date"},
    ),
}


# --- shapes ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Shape:
    """A file whose columns are not those of a table.

    Attributes:
        file: its rows.
        table: the table's schema, in Arrow.
        rows: as the table has them; None if the file is refused.
    """

    file: pa.Table
    table: pa.Schema
    rows: list | None = None

    @property
    def schema(self):
        """The table's schema."""
        return StructType.from_arrow(self.table)


def _shape(values, kind, wanted, rows=None):
    """Return a file and a table with one column, ``s``."""
    found = None if rows is None else [{"s": row} for row in rows]
    return Shape(pa.table({"s": pa.array(values, kind)}), pa.schema({"s": wanted}), found)


_LONG, _STRING = pa.int64(), pa.string()
_W, _X = pa.struct({"w": _LONG}), pa.struct({"x": _STRING})
_WX = pa.struct({"w": _LONG, "x": _STRING})
_NO_X = {"x": None}


def _names(*names, wanted="sf"):
    columns = [pa.array([number, number + 10]) for number in range(len(names))]
    return Shape(pa.table(columns, names=list(names)), pa.schema({wanted: _LONG}))


SHAPES = {
    "no field in common": _shape([{"w": 1}, None, {"w": None}], _W, _X, [_NO_X, None, _NO_X]),
    "in an array": _shape(
        [[{"w": 1}, None], None, []], pa.list_(_W), pa.list_(_X), [[_NO_X, None], None, []]
    ),
    "in a map": _shape(
        [[("a", {"w": 1}), ("b", None)], None],
        pa.map_(_STRING, _W),
        pa.map_(_STRING, _X),
        [[("a", _NO_X), ("b", None)], None],
    ),
    "in a struct": _shape(
        [{"t": {"w": 1}, "z": 1}, None, {"t": None, "z": 2}],
        pa.struct({"t": _W, "z": _LONG}),
        pa.struct({"t": _X}),
        [{"t": _NO_X}, None, {"t": None}],
    ),
    "only an array": _shape(
        [{"l": [{"w": 1}]}, None, {"l": None}], pa.struct({"l": pa.list_(_W)}), _X, [_NO_X, None, _NO_X]
    ),
    "one field in common": _shape(
        [{"w": 1, "x": "a"}, None, {"w": None, "x": None}],
        _WX,
        pa.struct({"y": pa.int32(), "x": _STRING}),
        [{"y": None, "x": "a"}, None, {"y": None, "x": None}],
    ),
    "another order": _shape(
        [{"w": 1, "x": "a"}], _WX, pa.struct({"x": _STRING, "w": _LONG}), [{"x": "a", "w": 1}]
    ),
    "types inside": _shape(
        [{"l": [1], "m": [(b"\xc3\xa9", 1.5)]}, None],
        pa.struct({"l": pa.list_(pa.int32()), "m": pa.map_(pa.binary(), pa.float32())}),
        pa.struct({"m": pa.map_(_STRING, pa.float64()), "l": pa.list_(_LONG), "n": pa.int32()}),
        [{"m": [("é", 1.5)], "l": [1], "n": None}, None],
    ),
    "no column in common": Shape(pa.table({"id": [1]}), pa.schema({"s": _X}), [{"s": None}]),
    "two names": _names("sf", "SF"),
    "two names, none exact": _names("sF", "SF"),
    "two names of another column": replace(
        _names("sf", "SF", "id", wanted="id"), rows=[{"id": 2}, {"id": 12}]
    ),
    "two names in a struct": _shape(
        [{"a": 1, "A": 2}], pa.struct({"a": _LONG, "A": _LONG}), pa.struct({"a": _LONG})
    ),
    "capitals": replace(_names("SF"), rows=[{"sf": 0}, {"sf": 10}]),
    "capitals with an accent": replace(_names("Ä", wanted="ä"), rows=[{"ä": 0}, {"ä": 10}]),
    "capitals in a struct": _shape([{"A": 2}], pa.struct({"A": _LONG}), pa.struct({"a": _LONG}), [{"a": 2}]),
    "a struct as text": _shape([{"w": 1}], _W, _STRING),
    "text as a struct": _shape(["a"], _STRING, _X),
    "an array as text": _shape([["a"]], pa.list_(_STRING), _STRING),
    "text as an array": _shape(["a"], _STRING, pa.list_(_STRING)),
    "an array as a struct": _shape([["a"]], pa.list_(_STRING), pa.struct({"list": _STRING})),
    "a map as an array": _shape(
        [[("a", 1)]], pa.map_(_STRING, _LONG), pa.list_(pa.struct({"key": _STRING, "value": _LONG}))
    ),
    "an array as a map": _shape(
        [[{"key": "a", "value": 1}]],
        pa.list_(pa.struct({"key": _STRING, "value": _LONG})),
        pa.map_(_STRING, _LONG),
    ),
    "a map as a struct": _shape([[("a", 1)]], pa.map_(_STRING, _LONG), pa.struct({"key": _STRING})),
    "a struct as a map": _shape([{"w": 1}], _W, pa.map_(_STRING, _LONG)),
    "a struct as an array": _shape([{"w": 1}], _W, pa.list_(_LONG)),
    "text as numbers in an array": _shape([["1"]], pa.list_(_STRING), pa.list_(_LONG)),
    "numbers as text in a map": _shape([[("a", 1)]], pa.map_(_STRING, _LONG), pa.map_(_STRING, _STRING)),
}
