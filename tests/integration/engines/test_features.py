"""Table features that change the content of files or logs, on each engine."""

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest
from tests.support.schema_json import field, struct

import delvec

pytestmark = pytest.mark.full_on_spark("the same on DuckDB in the gate; there on Spark are the main cases")

# Old type, its values, new Delta type, and the values read with it.
WIDENINGS = [
    (pa.int8(), [-128, 127, None], "short", pa.int16()),
    (pa.int8(), [-128, 127, None], "integer", pa.int32()),
    (pa.int8(), [-128, 127, None], "long", pa.int64()),
    (pa.int16(), [-32768, 32767, None], "integer", pa.int32()),
    (pa.int16(), [-32768, 32767, None], "long", pa.int64()),
    (pa.int32(), [-(2**31), 2**31 - 1, None], "long", pa.int64()),
    (pa.int8(), [-128, 127, None], "double", pa.float64()),
    (pa.int16(), [-32768, 32767, None], "double", pa.float64()),
    (pa.int32(), [-(2**31), 2**31 - 1, None], "double", pa.float64()),
    (pa.float32(), [1.5, float("-inf"), None], "double", pa.float64()),
    (pa.int8(), [-128, 127, None], "decimal(10,0)", pa.decimal128(10, 0)),
    (pa.int8(), [-128, 127, None], "decimal(4,1)", pa.decimal128(4, 1)),
    (pa.int16(), [-32768, 32767, None], "decimal(12,2)", pa.decimal128(12, 2)),
    (pa.int32(), [-(2**31), 2**31 - 1, None], "decimal(20,5)", pa.decimal128(20, 5)),
    (pa.int64(), [-(2**63), 2**63 - 1, None], "decimal(20,0)", pa.decimal128(20, 0)),
    (pa.int64(), [-(2**63), 2**63 - 1, None], "decimal(38,10)", pa.decimal128(38, 10)),
    (pa.decimal128(5, 2), ["-999.99", "0.01", None], "decimal(10,4)", pa.decimal128(10, 4)),
    (pa.decimal128(5, 2), ["-999.99", "0.01", None], "decimal(38,20)", pa.decimal128(38, 20)),
    (pa.decimal128(18, 2), ["-999.99", "0.01", None], "decimal(20,4)", pa.decimal128(20, 4)),
    (pa.decimal128(20, 2), ["-999.99", "0.01", None], "decimal(38,2)", pa.decimal128(38, 2)),
    (
        pa.date32(),
        [dt.date(1500, 2, 28), dt.date(2024, 3, 10), None],
        "timestamp_ntz",
        pa.timestamp("us"),
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


def change(before, after, **path):
    return [{"fromType": before, "toType": after, "tableVersion": 1, **path}]


def json_value(value):
    """A value as in statistics."""
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
    """The column as the new type, converted by Python instead of the casts under test."""
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
    """One column per change of type, and all of them in a struct and in lists and maps; an old file and a new one."""
    fields, inner, old, new = [field("id", "long")], [], {"id": pa.array([0, 1, 2])}, {}
    for number, (kind, values, name, wide) in enumerate(WIDENINGS):
        before = old_column(kind, values)
        fields.append(field(f"c{number}", name, **{"delta.typeChanges": change(old_name(kind), name)}))
        inner.append({**fields[-1], "name": f"x{number}"})
        old[f"c{number}"], new[f"c{number}"] = before, widened(before, wide)
    stats = {"numRecords": 3, "minValues": {}, "maxValues": {}}
    for name, column in old.items():
        ends = [value for value in column.to_pylist() if value is not None]
        stats["minValues"][name], stats["maxValues"][name] = json_value(min(ends)), json_value(max(ends))
    offsets = pa.array([0, 1, 2, 3], pa.int32())
    nested = {
        "a11": ("c11", "array", "element"),
        "m18": ("c18", "map", "value"),
        "a20": ("c20", "array", "element"),
    }
    for name, (flat, shape, path) in nested.items():
        kind, _, after, _ = WIDENINGS[int(flat[1:])]
        types = {"elementType": after, "containsNull": True}
        if shape == "map":
            types = {"keyType": "string", "valueType": after, "valueContainsNull": True}
        changes = change(old_name(kind), after, fieldPath=path)
        fields.append(field(name, {"type": shape, **types}, **{"delta.typeChanges": changes}))
    fields += [
        field("s", struct(*inner)),
        field("l", {"type": "array", "elementType": struct(*inner), "containsNull": True}),
    ]
    for columns in (old, new):
        children = [columns[f"c{number}"] for number in range(len(WIDENINGS))]
        structs = pa.StructArray.from_arrays(children, [item["name"] for item in inner])
        for name, (flat, shape, _) in nested.items():
            values = columns[flat]
            keys = pa.array(["k"] * 3)
            columns[name] = (
                pa.ListArray.from_arrays(offsets, values)
                if shape == "array"
                else pa.MapArray.from_arrays(offsets, keys, values)
            )
        columns["s"], columns["l"] = structs, pa.ListArray.from_arrays(offsets, structs)
    expected = pa.concat_tables(
        [pa.table({"id": old["id"], **new}), pa.table({"id": pa.array([3, 4, 5]), **new})]
    )
    files = [
        data_file(pa.table(old), deleted=[1], stats=stats),
        data_file(expected.slice(3), options={"use_dictionary": False}),
    ]
    folder = write_shared_table("widened", struct(*fields), files, features=["typeWidening"])
    return folder, expected.filter(pa.array([n != 1 for n in range(6)]))


@pytest.mark.gate
def test_types_that_were_widened(widened_table, read, rows):
    folder, expected = widened_table
    found = read(folder)
    for name in expected.column_names[1:]:
        # Arrow has its own names for list elements and map entries.
        assert rows(found.select(["id", name])) == rows(expected.select(["id", name])), name


PREDICATES_ON_WIDE = [
    ("c0 = 127", "c0", lambda v: v == 127),
    ("c0 < 1000", "c0", lambda v: v < 1000),
    ("c5 > 3000000000", "c5", lambda v: v > 3000000000),
    ("c5 <= -2147483648", "c5", lambda v: v <= -(2**31)),
    ("c8 >= 2147483647.0D", "c8", lambda v: v >= 2**31 - 1),
    ("c9 = 1.5", "c9", lambda v: v == 1.5),
    ("c11 = 127.0", "c11", lambda v: v == 127),
    ("c13 = 2147483647.00000", "c13", lambda v: v == 2**31 - 1),
    ("c14 > 0", "c14", lambda v: v > 0),
    ("c16 = 0.0100", "c16", lambda v: v == Decimal("0.01")),
    ("c16 < 0", "c16", lambda v: v < 0),
    ("c19 IN (0.01, 5)", "c19", lambda v: v in (Decimal("0.01"), 5)),
    ("c20 = TIMESTAMP_NTZ '2024-03-10 00:00:00'", "c20", lambda v: v.year == 2024),
    ("c20 < TIMESTAMP_NTZ '2000-01-01 00:00:00'", "c20", lambda v: v.year < 2000),
    ("s.x5 > 0", "c5", lambda v: v > 0),
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
        with pytest.raises(delvec.UnsupportedReaderFeature, match=r"Column 'x' .*a type change"):
            read(folder)
