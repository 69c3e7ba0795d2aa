"""Table features that change what files hold or how the log names it, on each engine alike."""

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest

import delvec

# Old type, its values, new type in Delta's words, how the values read then.
WIDENINGS = [
    (pa.int8(), [-128, 127, None], "short", pa.int16(), None),
    (pa.int8(), [-128, 127, None], "integer", pa.int32(), None),
    (pa.int8(), [-128, 127, None], "long", pa.int64(), None),
    (pa.int16(), [-32768, 32767, None], "integer", pa.int32(), None),
    (pa.int16(), [-32768, 32767, None], "long", pa.int64(), None),
    (pa.int32(), [-(2**31), 2**31 - 1, None], "long", pa.int64(), None),
    (pa.int8(), [-128, 127, None], "double", pa.float64(), None),
    (pa.int16(), [-32768, 32767, None], "double", pa.float64(), None),
    (pa.int32(), [-(2**31), 2**31 - 1, None], "double", pa.float64(), None),
    (pa.float32(), [1.5, float("-inf"), None], "double", pa.float64(), None),
    (pa.int8(), [-128, 127, None], "decimal(10,0)", pa.decimal128(10, 0), None),
    (pa.int16(), [-32768, 32767, None], "decimal(12,2)", pa.decimal128(12, 2), None),
    (pa.int32(), [-(2**31), 2**31 - 1, None], "decimal(20,5)", pa.decimal128(20, 5), None),
    (pa.int64(), [-(2**63), 2**63 - 1, None], "decimal(20,0)", pa.decimal128(20, 0), None),
    (pa.int64(), [-(2**63), 2**63 - 1, None], "decimal(38,10)", pa.decimal128(38, 10), None),
    (pa.decimal128(5, 2), ["-999.99", "0.01", None], "decimal(10,4)", pa.decimal128(10, 4), None),
    (pa.decimal128(5, 2), ["-999.99", "0.01", None], "decimal(38,20)", pa.decimal128(38, 20), None),
    (pa.decimal128(18, 2), ["-999.99", "0.01", None], "decimal(20,4)", pa.decimal128(20, 4), None),
    (pa.decimal128(20, 2), ["-999.99", "0.01", None], "decimal(38,2)", pa.decimal128(38, 2), None),
    (
        pa.date32(),
        [dt.date(1500, 2, 28), dt.date(2024, 3, 10), None],
        "timestamp_ntz",
        pa.timestamp("us"),
        None,
    ),
]
NAMES = {
    pa.int8(): "byte",
    pa.int16(): "short",
    pa.int32(): "integer",
    pa.int64(): "long",
    pa.float32(): "float",
}


def old_column(kind, values):
    if pa.types.is_decimal(kind):
        values = [value and Decimal(value) for value in values]
    return pa.array(values, kind)


def old_name(kind):
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    return NAMES.get(kind, "date")


def field(name, kind, **metadata):
    return {"name": name, "type": kind, "nullable": True, "metadata": metadata}


def struct(*fields):
    return {"type": "struct", "fields": list(fields)}


def change(before, after, **path):
    return [{"fromType": before, "toType": after, "tableVersion": 1, **path}]


def json_value(value):
    """A value as statistics have it."""
    if value == float("-inf"):
        return "-Infinity"
    return (
        value.isoformat()
        if isinstance(value, dt.date)
        else float(value)
        if isinstance(value, Decimal)
        else value
    )


def widened(column, kind):
    """The column as the new type, by way of Python: not by the casts that are under test."""
    if pa.types.is_timestamp(kind):
        return column.cast(pa.timestamp("s")).cast(kind)
    values = column.to_pylist()
    if pa.types.is_decimal(kind):
        values = [None if value is None else Decimal(value) for value in values]
    elif pa.types.is_floating(kind):
        values = [None if value is None else float(value) for value in values]
    return pa.array(values, kind)


@pytest.fixture(scope="module")
def widened_table(write_shared_table, data_file):
    """One column per change of type, and the same inside a struct, a list and a map; an old file and a new one."""
    fields, old, new = [field("id", "long")], {"id": pa.array([0, 1, 2])}, {"id": pa.array([3, 4, 5])}
    for number, (kind, values, name, wide, _) in enumerate(WIDENINGS):
        before = old_column(kind, values)
        after = widened(before, wide)
        was = old_name(kind)
        fields.append(field(f"c{number}", name, **{"delta.typeChanges": change(was, name)}))
        inner = struct(field("x", name, **{"delta.typeChanges": change(was, name)}))
        fields.append(field(f"s{number}", inner))
        element = {"type": "array", "elementType": name, "containsNull": True}
        fields.append(
            field(f"a{number}", element, **{"delta.typeChanges": change(was, name, fieldPath="element")})
        )
        entries = {"type": "map", "keyType": "string", "valueType": name, "valueContainsNull": True}
        fields.append(
            field(f"m{number}", entries, **{"delta.typeChanges": change(was, name, fieldPath="value")})
        )
        for columns, flat in ((old, before), (new, after)):
            columns[f"c{number}"] = flat
            columns[f"s{number}"] = pa.StructArray.from_arrays([flat], ["x"])
            offsets = pa.array([0, 1, 2, 3], pa.int32())
            columns[f"a{number}"] = pa.ListArray.from_arrays(offsets, flat)
            columns[f"m{number}"] = pa.MapArray.from_arrays(offsets, pa.array(["k"] * 3), flat)
    stats = {"numRecords": 3, "minValues": {}, "maxValues": {}}
    for name, column in old.items():
        if name[0] in "ic":
            ends = [value for value in column.to_pylist() if value is not None]
            stats["minValues"][name], stats["maxValues"][name] = json_value(min(ends)), json_value(max(ends))
    expected = pa.concat_tables([pa.table({**new, "id": old["id"]}), pa.table(new)])
    files = [
        data_file(pa.table(old), deleted=[1], stats=stats),
        data_file(pa.table(new), options={"use_dictionary": False}),
    ]
    folder = write_shared_table("widened", struct(*fields), files, features=["typeWidening"])
    return folder, expected.filter(pa.array([n != 1 for n in range(6)]))


def test_types_that_were_widened(widened_table, read, rows):
    folder, expected = widened_table
    found = read(folder)
    for name in expected.column_names[1:]:
        # Arrow names the inside of lists and maps in its own way.
        assert rows(found.select(["id", name])) == rows(expected.select(["id", name])), name


PREDICATES_ON_WIDE = [
    ("c0 = 127", "c0", lambda v: v == 127),
    ("c0 < 1000", "c0", lambda v: v < 1000),
    ("c5 > 3000000000", "c5", lambda v: v > 3000000000),
    ("c5 <= -2147483648", "c5", lambda v: v <= -(2**31)),
    ("c8 >= 2147483647.0D", "c8", lambda v: v >= 2**31 - 1),
    ("c9 = 1.5", "c9", lambda v: v == 1.5),
    ("c12 = 2147483647.00000", "c12", lambda v: v == 2**31 - 1),
    ("c13 > 0", "c13", lambda v: v > 0),
    ("c15 = 0.0100", "c15", lambda v: v == Decimal("0.01")),
    ("c15 < 0", "c15", lambda v: v < 0),
    ("c18 IN (0.01, 5)", "c18", lambda v: v in (Decimal("0.01"), 5)),
    ("c19 = TIMESTAMP_NTZ '2024-03-10 00:00:00'", "c19", lambda v: v.year == 2024),
    ("c19 < TIMESTAMP_NTZ '2000-01-01 00:00:00'", "c19", lambda v: v.year < 2000),
    ("s5.x > 0", "c5", lambda v: v > 0),
]


def test_predicates_on_columns_that_were_widened(widened_table, read):
    folder, expected = widened_table
    for text, name, matches in PREDICATES_ON_WIDE:
        pairs = zip(expected["id"].to_pylist(), expected[name].to_pylist(), strict=True)
        wanted = [number for number, value in pairs if value is not None and matches(value)]
        assert sorted(read(folder, ["id"], text)["id"].to_pylist()) == wanted, text


def test_a_change_of_type_that_is_no_widening_is_refused(write_table, data_file, read):
    rows = pa.table({"id": [1]})
    for before, after in [
        ("long", "integer"),
        ("decimal(10,2)", "decimal(12,6)"),
        ("string", "binary"),
        ("date", "x"),
    ]:
        schema = struct(
            field("id", "long"), field("x", "long", **{"delta.typeChanges": change(before, after)})
        )
        folder = write_table(
            f"{before} to {after}", schema, [data_file(rows)], features=["typeWidening-preview"]
        )
        with pytest.raises(delvec.UnsupportedReaderFeature, match=r"Column 'x' .*widening"):
            read(folder)
