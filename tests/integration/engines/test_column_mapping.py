"""Column mapping by name and by field id: renamed, dropped and re-added columns, on each engine."""

import pyarrow as pa
import pytest
from tests.support.schema_json import struct

from delvec_errors import CorruptLog, CorruptTable

pytestmark = pytest.mark.full_on_spark("the same on DuckDB in the gate; there on Spark are the main cases")


def field(name, kind, number, physical=None):
    metadata = {
        "delta.columnMapping.id": number,
        "delta.columnMapping.physicalName": physical or f"col-{number}",
    }
    return {"name": name, "type": kind, "nullable": True, "metadata": metadata}


def stored(name, kind, number):
    return pa.field(name, kind, metadata={b"PARQUET:field_id": str(number).encode()})


def values_of(name, *rows):
    return {"numRecords": len(rows), "minValues": {name: min(rows)}, "maxValues": {name: max(rows)}}


@pytest.fixture(params=["name", "id"])
def table(request, write_table, data_file):
    """Column ``b`` was dropped and re-added, ``x`` renamed to ``y`` and another ``x`` added, in structs, too."""
    inner = struct(field("y", "long", 5, "x"), field("x", "string", 6))
    schema = struct(
        field("id", "long", 1, "id"),
        field("b", "long", 8),
        field("y", "long", 3, "x"),
        field("x", "long", 9),
        field("s", inner, 4, "s"),
        field("l", {"type": "array", "elementType": inner, "containsNull": True}, 10, "l"),
        field(
            "m", {"type": "map", "keyType": "string", "valueType": inner, "valueContainsNull": True}, 11, "m"
        ),
        field("part", "string", 7, "country"),
    )
    was = pa.struct([stored("x", pa.int64(), 5)])
    first = pa.table(
        [
            pa.array([1, 2]),
            pa.array([100, 200]),
            pa.array([11, 12]),
            pa.array([{"x": 51}, None], was),
            pa.array([[{"x": 52}], None], pa.list_(was)),
            pa.array([[("k", {"x": 53})], None], pa.map_(pa.string(), was)),
        ],
        schema=pa.schema(
            [
                stored("id", pa.int64(), 1),
                stored("b", pa.int64(), 2),  # the column that was dropped
                stored("x", pa.int64(), 3),
                stored("s", was, 4),
                stored("l", pa.list_(was), 10),
                stored("m", pa.map_(pa.string(), was), 11),
            ]
        ),
    )
    now = pa.struct([stored("col-6", pa.string(), 6), stored("x", pa.int64(), 5)])
    second = pa.table(
        [
            pa.array([{"col-6": "t", "x": 61}], now),
            pa.array([19]),
            pa.array([13]),
            pa.array([300]),
            pa.array([3]),
        ],
        schema=pa.schema(
            [
                stored("s", now, 4),
                stored("col-9", pa.int64(), 9),
                stored("x", pa.int64(), 3),
                stored("col-8", pa.int64(), 8),
                stored("id", pa.int64(), 1),
            ]
        ),
    )
    files = [
        data_file(first, values={"country": "NZ"}, stats=values_of("x", 11, 12), deleted=[]),
        data_file(second, values={"country": None}, stats=values_of("x", 13)),
    ]
    return write_table(
        "mapped",
        schema,
        files,
        partition_by=["part"],
        properties={"delta.columnMapping.mode": request.param, "delta.columnMapping.maxColumnId": "11"},
        protocol={"minReaderVersion": 2, "minWriterVersion": 5} if request.param == "name" else None,
        features=["columnMapping"],
    )


@pytest.mark.gate
def test_columns_are_found_by_what_the_schema_says(table, read):
    empty = {"b": None, "x": None}
    assert read(table).sort_by("id").to_pylist() == [
        {
            "id": 1,
            "y": 11,
            "s": {"y": 51, "x": None},
            "l": [{"y": 52, "x": None}],
            "m": [("k", {"y": 53, "x": None})],
            "part": "NZ",
        }
        | empty,
        {"id": 2, "y": 12, "s": None, "l": None, "m": None, "part": "NZ"} | empty,
        {"id": 3, "b": 300, "y": 13, "x": 19, "s": {"y": 61, "x": "t"}, "l": None, "m": None, "part": None},
    ]


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("b IS NULL AND x IS NULL", [1, 2]),
        ("y >= 12", [2, 3]),
        ("x = 19 OR part = 'NZ' AND s.y = 51", [1, 3]),
        ("s.x = 't' AND part IS NULL", [3]),
        ("b = 100", []),
    ],
)
def test_predicates_go_by_the_names_of_today(table, read, text, ids):
    assert sorted(read(table, ["id"], text)["id"].to_pylist()) == ids


@pytest.mark.gate
def test_columns_that_are_the_same_in_files_are_refused(write_table, data_file, read):
    schema = struct(field("a", "long", 1, "x"), field("b", "long", 2, "x"))
    properties = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "2"}
    files = [data_file(pa.table({"x": [1]}))]
    folder = write_table("same", schema, files, properties=properties, features=["columnMapping"])
    with pytest.raises(CorruptLog, match="columns 'a' and 'b' have the same physical name, 'x'"):
        read(folder)


@pytest.mark.gate
def test_a_file_with_a_field_id_twice_is_refused(write_table, data_file, read):
    schema = struct(field("a", "long", 1, "x"), field("b", "long", 2, "y"))
    properties = {"delta.columnMapping.mode": "id", "delta.columnMapping.maxColumnId": "2"}
    rows = pa.table([[1], [2]], schema=pa.schema([stored("x", pa.int64(), 1), stored("y", pa.int64(), 1)]))
    folder = write_table("ids", schema, [data_file(rows)], properties=properties, features=["columnMapping"])
    with pytest.raises(CorruptTable, match="several columns of the field id 1: 'x', 'y'"):
        read(folder, None, "a = 1")
