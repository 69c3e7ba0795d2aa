"""Files with missing, additional or differently spelled columns."""

import pyarrow as pa
import pytest
from tests.support.schema_json import struct

from delvec_errors import UnsupportedTable
from delvec_kernel.schema.types import StructType

pytestmark = pytest.mark.full_on_spark("the same on DuckDB in the gate; there on Spark are the main cases")


def text_list(kind):
    return pa.list_(pa.field("element", kind))


def map_of(kind):
    return pa.map_(pa.string(), pa.field("value", kind))


INNER = pa.struct(
    [("x", pa.int64()), ("Late", pa.string()), ("deep", pa.struct([("y", pa.int64()), ("z", pa.int64())]))]
)
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("CamelCase", pa.string()),
        ("s", INNER),
        ("l", text_list(INNER)),
        ("m", map_of(INNER)),
        ("new", pa.int32()),
        ("nowhere", pa.struct([("a", text_list(pa.string()))])),
    ]
)


def inner(x, late, y, z):
    return {"x": x, "Late": late, "deep": None if y is z is None else {"y": y, "z": z}}


@pytest.fixture(scope="module")
def evolved(write_shared_table, data_file):
    """Files of five generations of a table: current, older, with other case and order, and with dropped columns."""
    old = pa.struct([("x", pa.int64())])
    other = pa.struct(
        [
            ("DEEP", pa.struct([("Z", pa.int64()), ("gone", pa.int64()), ("Y", pa.int64())])),
            ("LATE", pa.string()),
            ("X", pa.int64()),
        ]
    )
    value = inner(1, "t", 2, 3)
    today = pa.table(
        {
            "id": [1, 2],
            "CamelCase": ["a", None],
            "s": pa.array([value, None], INNER),
            "l": pa.array([[value, None], []], text_list(INNER)),
            "m": pa.array([[("k", value), ("n", None)], []], map_of(INNER)),
            "new": pa.array([7, None], pa.int32()),
        }
    )
    older = pa.table(
        {
            "id": [3, 4],
            "s": pa.array([{"x": 5}, None], old),
            "l": pa.array([[{"x": 6}, None], None], pa.list_(old)),
            "m": pa.array([[("k", {"x": 8})], None], pa.map_(pa.string(), old)),
        }
    )
    shuffled = {"DEEP": {"Z": 33, "gone": 9, "Y": 22}, "LATE": "u", "X": 11}
    elsewhere = pa.table(
        {
            "NEW": pa.array([8], pa.int32()),
            "gone": [99],
            "M": pa.array([[("k", shuffled)]], pa.map_(pa.string(), other)),
            "L": pa.array([[shuffled]], pa.list_(other)),
            "S": pa.array([shuffled], other),
            "camelcase": ["b"],
            "ID": [5],
        }
    )
    only_gone = pa.table({"gone": ["x", "y"]})
    files = [
        data_file(today),
        data_file(older, deleted=[]),
        data_file(elsewhere, deleted=[]),
        data_file(only_gone, deleted=[0]),
        data_file(today.slice(0, 0)),
    ]
    folder = write_shared_table("evolved", SCHEMA, files)
    again = inner(11, "u", 22, 33)
    rows = [
        {
            "id": 1,
            "CamelCase": "a",
            "s": value,
            "l": [value, None],
            "m": [("k", value), ("n", None)],
            "new": 7,
        },
        {"id": 2, "l": [], "m": []},
        {
            "id": 3,
            "s": inner(5, None, None, None),
            "l": [inner(6, None, None, None), None],
            "m": [("k", inner(8, None, None, None))],
        },
        {"id": 4},
        {"id": 5, "CamelCase": "b", "s": again, "l": [again], "m": [("k", again)], "new": 8},
        {},
    ]
    return folder, pa.Table.from_pylist(rows, SCHEMA)


@pytest.mark.gate
def test_files_of_other_schemas(evolved, read, same):
    folder, expected = evolved
    same(read(folder), expected)


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("new IS NULL", [2, 3, 4, None]),
        ("NEW > 7 OR camelcase = 'a'", [1, 5]),
        ("s.X = 5 OR s.deep.Y = 22", [3, 5]),
        ("s.late IS NULL AND s IS NOT NULL", [3]),
        ("s.deep.z < 30", [1]),
        ("nowhere.a IS NULL AND id < 3", [1, 2]),
        ("id IS NULL", [None]),
    ],
)
def test_predicates_on_files_of_other_schemas(evolved, read, text, ids):
    found = read(evolved[0], ["ID"], text)
    assert found.column_names == ["id"]
    assert sorted(found["id"].to_pylist(), key=str) == ids


ODD = [
    "a.b",
    "with space",
    "back`tick",
    "com,ma",
    "semi;colon",
    "{brace}",
    "(paren)",
    "é漢字",
    "=",
    'quo"te',
    "it's",
    "percent%20",
    "slash/back\\",
    "star*?[x]",
    "_metadata",
    "filename",
    "file_row_number",
    "select",
    "c0",
    "f",
    "l",
    "tab\there",
]


def backticked(name):
    return "`" + name.replace("`", "``") + "`"


@pytest.mark.parametrize("mode", ["none", "name", "id"])
def test_odd_names_of_columns_fields_and_partitions(write_table, data_file, read, mode):
    odd = ODD if mode == "none" else ODD[:8]  # a mapped name has physical names for company, whatever it is
    count = len(odd)
    names = [*odd, *(f"p {name}" for name in odd), "s"]
    numbers = dict(zip(names, range(1, 2 * count + 2), strict=True))

    def field(name, kind, number):
        if mode == "none":
            return {"name": name, "type": kind, "nullable": True, "metadata": {}}
        metadata = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": f"col-{number}"}
        return {"name": name, "type": kind, "nullable": True, "metadata": metadata}

    def column(name, kind, number, metadata=None):
        tagged = None if mode == "none" else {b"PARQUET:field_id": str(number).encode()}
        return pa.field(name if mode == "none" else f"col-{number}", kind, metadata=tagged)

    inside = [field(name, "long", 100 + number) for number, name in enumerate(odd)]
    fields = [
        *(field(name, "long", numbers[name]) for name in names[:count]),
        *(field(name, "string", numbers[name]) for name in names[count:-1]),
        field("s", {"type": "struct", "fields": inside}, numbers["s"]),
    ]
    struct = pa.struct([column(name, pa.int64(), 100 + number) for number, name in enumerate(odd)])
    stored = pa.schema(
        [
            *(column(name, pa.int64(), numbers[name]) for name in names[:count]),
            column("s", struct, numbers["s"]),
        ]
    )
    rows = [[number, number + 1000] for number in range(count)]
    structs = [{item.name: base + number for number, item in enumerate(struct)} for base in (0, 500)]
    table = pa.table([*rows, pa.array(structs, struct)], schema=stored)
    values = {name if mode == "none" else f"col-{numbers[name]}": f"v {name[2:]}" for name in names[count:-1]}
    folder = write_table(
        "odd",
        {"type": "struct", "fields": fields},
        [data_file(table, values=values, deleted=[1] if mode == "name" else None)],
        partition_by=names[count:-1],
        properties={} if mode == "none" else {"delta.columnMapping.mode": mode},
        features=[] if mode == "none" else ["columnMapping"],
    )
    expected = {
        **{name: number for number, name in enumerate(odd)},
        **{f"p {name}": f"v {name}" for name in odd},
        "s": {name: number for number, name in enumerate(odd)},
    }
    conditions = [f"{backticked(name)} = {number}" for number, name in enumerate(odd)]
    for name in odd:
        text = "v " + name
        quote = "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
        conditions.append(f"{backticked('p ' + name)} = {quote}")
    conditions += [f"s.{backticked(name)} = {number}" for number, name in enumerate(odd)][:8]

    assert read(folder, None, " AND ".join(conditions)).to_pylist() == [expected]


@pytest.mark.gate
def test_no_files_no_rows_and_no_columns(write_table, data_file, read, lake, engine):
    rows = pa.table({"id": range(10), "t": ["x"] * 10})
    empty = write_table("empty", rows.schema, [])
    assert read(empty).equals(rows.slice(0, 0))
    assert read(empty, ["t"], "id = 3").schema == pa.schema([("t", pa.string())])
    hollow = write_table(
        "hollow", rows.schema, [data_file(rows.slice(0, 0)), data_file(rows.slice(0, 0), deleted=[])]
    )
    assert read(hollow).equals(rows.slice(0, 0))
    full = write_table(
        "full",
        rows.schema,
        [
            data_file(rows, deleted=[0, 9]),
            data_file(rows.slice(0, 0)),
            data_file(rows, options={"row_group_size": 3}),
        ],
    )
    table = lake.table(str(full), engine=engine)
    assert table.count() == 18
    assert table.count("id >= 5") == 9
    assert table.count("t = 'y'") == 0
    assert read(full, []).num_rows == 18
    assert read(full, []).num_columns == 0


@pytest.mark.parametrize(
    ("name", "kind", "reason"),
    [
        ("", "long", "an empty name"),
        ("a\0b", "long", "a NUL character"),
        ("s", {"type": "struct", "fields": []}, "a struct without fields"),
        ("s", {"type": "array", "elementType": struct(), "containsNull": True}, "a struct without fields"),
        ("s", struct({"name": "", "type": "long", "nullable": True, "metadata": {}}), "an empty name"),
    ],
)
def test_columns_that_duckdb_cannot_have_are_refused_by_name(
    write_table, data_file, lake, name, kind, reason
):
    columns = [
        {"name": each, "type": of, "nullable": True, "metadata": {}}
        for each, of in (("id", "long"), (name, kind))
    ]
    folder = write_table("odd", struct(*columns), [data_file(pa.table({"id": [1]}))])
    table = lake.table(str(folder))
    for predicate in (None, "id = 1"):
        with pytest.raises(UnsupportedTable, match=reason) as caught:
            table.to_arrow(predicate=predicate)
        assert caught.value.details["column"] == name
    assert table.to_arrow(["id"], "id = 1")["id"].to_pylist() == [1]
    with pytest.raises(UnsupportedTable, match=reason):
        table.append([{"id": 2}])


def test_many_small_files(write_table, data_file, read):
    files = [
        data_file(pa.table({"id": [n, -n]}), values={"p": str(n % 7)}, deleted=[1] if n % 3 == 0 else None)
        for n in range(300)
    ]
    schema = pa.schema([("id", pa.int64()), ("p", pa.int32())])
    folder = write_table("many", schema, files, partition_by=["p"])
    found = read(folder)
    wanted = [(n, n % 7) for n in range(300)] + [(-n, n % 7) for n in range(300) if n % 3]
    assert sorted(zip(*(found[name].to_pylist() for name in ("id", "p")), strict=True)) == sorted(wanted)
    assert read(folder, ["id"], "p = 3 AND id > 290")["id"].to_pylist() == [297]


def test_columns_of_type_void(write_table, data_file, read):
    void = {"type": "void", "nullable": True, "metadata": {}}
    inside = {"type": "struct", "fields": [{"name": "n", **void}, {**void, "name": "x", "type": "long"}]}
    fields = [
        {**void, "name": "id", "type": "long"},
        {"name": "v", **void},
        {**void, "name": "s", "type": inside},
    ]
    schema = StructType.from_json({"type": "struct", "fields": fields})
    stored = pa.table({"id": [1, 2], "s": pa.array([{"x": 3}, None], pa.struct([("x", pa.int64())]))})
    folder = write_table("void", schema, [data_file(stored)])
    found = read(folder)
    assert found.schema == schema.to_arrow()
    assert found.sort_by("id").to_pylist() == [
        {"id": 1, "v": None, "s": {"n": None, "x": 3}},
        {"id": 2, "v": None, "s": None},
    ]
    assert read(folder, ["id"], "v IS NULL AND s.n IS NULL AND id = 1")["id"].to_pylist() == [1]
