"""Data files: names, partitions, statistics, types, and clean-up after failures."""

import datetime as dt
import json
import re
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delvec_engines import parquet_writer
from delvec_engines.parquet_writer import DataFileWriter, write_data_files
from delvec_engines.protocol import WriteTarget
from delvec_errors import ConstraintViolation, SchemaMismatch, StorageError
from delvec_kernel.schema.types import ArrayType, DecimalType, MapType, PrimitiveType, StructField, StructType
from delvec_storage import files as storage

TRANSACTION = "0192f0c1-7d3a-7b5e-9c44-1f2e3d4c5b6a"
LONG, INTEGER, STRING = PrimitiveType("long"), PrimitiveType("integer"), PrimitiveType("string")
NAME = re.compile(
    rf"part-00003-[0-9a-f]{{8}}-[0-9a-f]{{4}}-7[0-9a-f-]{{18,}}-{TRANSACTION}\.c\d{{3}}\.zstd\.parquet"
)


def target(location, *fields, partition_by=(), **configuration):
    schema = StructType(tuple(fields))
    properties = {key.replace("_", "."): value for key, value in configuration.items()}
    return WriteTarget(location.as_uri(), schema, list(partition_by), properties, TRANSACTION)


def stored(location, add):
    with storage.open_input(location.as_uri(), add.path) as file:
        return pq.ParquetFile(file).read()


def everything_in(location):
    return [path for path in Path(location).rglob("*") if path.is_file()]


def write(data, where, **options):
    return write_data_files(data.to_batches(), where, **options)


def test_a_file_is_named_after_its_transaction_and_described_exactly(tmp_path):
    where = target(tmp_path, StructField("id", LONG), StructField("name", STRING))
    (add,) = write(pa.table({"id": [3, 1, 2], "name": ["c", None, "a"]}), where, task=3)
    assert NAME.fullmatch(add.path)
    path = tmp_path / add.path
    assert add.size == path.stat().st_size
    assert add.modification_time == path.stat().st_mtime_ns // 1_000_000
    assert add.partition_values == {}
    assert json.loads(add.stats) == {
        "numRecords": 3,
        "minValues": {"id": 1, "name": "a"},
        "maxValues": {"id": 3, "name": "c"},
        "nullCount": {"id": 0, "name": 1},
        "tightBounds": True,
    }
    assert stored(tmp_path, add).to_pydict() == {"id": [3, 1, 2], "name": ["c", None, "a"]}


@pytest.mark.parametrize(
    ("asked", "codec"),
    [
        (None, "ZSTD"),
        ("snappy", "SNAPPY"),
        ("GZIP", "GZIP"),
        ("uncompressed", "UNCOMPRESSED"),
        ("rar", "ZSTD"),
    ],
)
def test_files_are_compressed_as_the_table_says(tmp_path, asked, codec):
    properties = {"delta_parquet_compression_codec": asked} if asked else {}
    where = target(tmp_path, StructField("id", LONG), **properties)
    (add,) = write(pa.table({"id": [1, 2, 3]}), where)
    column = pq.read_metadata(tmp_path / add.path).row_group(0).column(0)
    assert column.compression == codec
    assert stored(tmp_path, add)["id"].to_pylist() == [1, 2, 3]


def test_only_columns_whose_values_repeat_have_a_dictionary(tmp_path):
    pair = StructType((StructField("city.name", STRING), StructField("tags", ArrayType(STRING, True))))
    where = target(
        tmp_path,
        StructField("id", LONG),
        StructField("a.b", STRING),
        StructField("empty", STRING),
        StructField("at", pair),
        StructField("sizes", MapType(STRING, LONG, True)),
    )
    count = 20_000
    data = pa.table(
        {
            "id": range(count),
            "a.b": [f"n{number % 7}" for number in range(count)],
            "empty": pa.nulls(count, pa.string()),
            "at": [{"city.name": "x", "tags": ["a", "b"]}] * count,
            "sizes": pa.array([{"k": number} for number in range(count)], pa.map_(pa.string(), pa.int64())),
        }
    )
    (add,) = write(data, where)
    group = pq.read_metadata(tmp_path / add.path).row_group(0)
    columns = [group.column(place) for place in range(group.num_columns)]
    with_dictionary = {each.path_in_schema for each in columns if "RLE_DICTIONARY" in each.encodings}
    nested = {"at.city.name", "at.tags.list.element", "sizes.key_value.key", "sizes.key_value.value"}
    assert with_dictionary == {"a.b", "empty"} | nested
    assert stored(tmp_path, add).equals(data.cast(stored(tmp_path, add).schema))


def test_without_rows_there_is_no_file(tmp_path):
    where = target(tmp_path, StructField("id", LONG))
    assert write(pa.table({"id": pa.array([], pa.int64())}), where) == []
    assert write_data_files([], where) == []
    assert everything_in(tmp_path) == []


def test_partitions_become_directories_and_are_not_stored(tmp_path):
    fields = (StructField("id", LONG), StructField("city", STRING), StructField("day", PrimitiveType("date")))
    where = target(tmp_path, *fields, partition_by=["day", "city"])
    day = dt.date(2024, 2, 29)
    names = ["a b", "50%+1=x", "Åre#[1]", "2024/01", None, "a b"]
    data = pa.table({"id": list(range(6)), "city": names, "day": [day, day, day, None, day, day]})
    adds = write(data, where)
    found = {}
    for add in adds:
        values = tuple(add.partition_values.items())
        table = stored(tmp_path, add)
        assert table.column_names == ["id"]
        found[values] = table["id"].to_pylist()
        assert (tmp_path / unquote(add.path)).exists()
    text = "2024-02-29"
    assert found == {
        (("day", text), ("city", "a b")): [0, 5],
        (("day", text), ("city", "50%+1=x")): [1],
        (("day", text), ("city", "Åre#[1]")): [2],
        (("day", None), ("city", "2024/01")): [3],
        (("day", text), ("city", None)): [4],
    }
    directories = {str(path.parent.relative_to(tmp_path)) for path in everything_in(tmp_path)}
    assert "day=2024-02-29/city=a b" in directories
    assert "day=__HIVE_DEFAULT_PARTITION__/city=2024%2F01" in directories
    assert "day=2024-02-29/city=__HIVE_DEFAULT_PARTITION__" in directories


def test_partition_timestamps_say_their_zone(tmp_path):
    where = target(
        tmp_path, StructField("id", LONG), StructField("at", PrimitiveType("timestamp")), partition_by=["at"]
    )
    at = pa.array([1_700_000_000_123_456], pa.timestamp("us", "Pacific/Auckland"))
    (add,) = write(pa.table({"id": [1], "at": at}), where)
    assert add.partition_values == {"at": "2023-11-14T22:13:20.123456Z"}


def test_files_end_at_the_target_size(tmp_path):
    where = target(tmp_path, StructField("id", LONG), delta_targetFileSize="200kb")
    data = pa.table({"id": range(1_000_000)})
    adds = write(data, where)
    assert len(adds) > 1
    assert sum(json.loads(add.stats)["numRecords"] for add in adds) == 1_000_000
    assert pa.concat_tables(stored(tmp_path, add) for add in adds).equals(data)
    assert [add.path.split(".c")[1][:3] for add in adds] == [f"{number:03d}" for number in range(len(adds))]


def test_more_partitions_than_open_files(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet_writer, "_OPEN_FILES", 3)
    monkeypatch.setattr(parquet_writer, "_ROW_GROUP_ROWS", 2)
    where = target(tmp_path, StructField("id", LONG), StructField("p", LONG), partition_by=["p"])
    data = pa.table({"id": range(100), "p": [number % 10 for number in range(100)]})
    adds = write(data, where)
    rows = [
        (row, add.partition_values["p"]) for add in adds for row in stored(tmp_path, add)["id"].to_pylist()
    ]
    assert sorted(rows) == [(number, str(number % 10)) for number in range(100)]


def test_memory_is_bounded_by_writing_the_fullest_partition(tmp_path):
    where = target(tmp_path, StructField("id", LONG), StructField("p", LONG), partition_by=["p"])
    where = replace(where, row_group_bytes=2000)
    most = 0
    with DataFileWriter(where) as writer:
        for start in range(0, 5000, 50):
            writer.write(pa.record_batch({"id": range(start, start + 50), "p": [start // 50 % 20] * 50}))
            most = max(most, writer._buffered)
        adds = writer.finish()
    assert 2000 < most <= 8 * 2000  # the partitions together would fill 20
    assert sum(json.loads(add.stats)["numRecords"] for add in adds) == 5000


def test_timestamps_are_stored_as_utc_microseconds(tmp_path):
    fields = [
        StructField("at", PrimitiveType("timestamp")),
        StructField("wall", PrimitiveType("timestamp_ntz")),
    ]
    where = target(tmp_path, *fields)
    at = pa.array([1_700_000_000_000_000_000], pa.timestamp("ns", "Europe/Berlin"))
    wall = pa.array([1_700_000_000], pa.timestamp("s"))
    (add,) = write(pa.table({"at": at, "wall": wall}), where)
    schema = pq.read_schema(tmp_path / add.path)
    assert (schema.field("at").type, schema.field("wall").type) == (
        pa.timestamp("us", "UTC"),
        pa.timestamp("us"),
    )
    columns = pq.ParquetFile(tmp_path / add.path).schema
    assert [columns.column(i).physical_type for i in range(2)] == ["INT64", "INT64"]
    assert pq.ParquetFile(tmp_path / add.path).metadata.metadata is None


def test_a_timestamp_without_zone_is_utc(tmp_path):
    where = target(tmp_path, StructField("at", PrimitiveType("timestamp")))
    (add,) = write(pa.table({"at": pa.array([5], pa.timestamp("us"))}), where)
    assert stored(tmp_path, add)["at"].cast(pa.int64()).to_pylist() == [5]


def test_column_mapping_gives_files_physical_names_and_ids(tmp_path):
    def mapped(name, kind, number):
        names = {"delta.columnMapping.physicalName": f"col-{number}", "delta.columnMapping.id": number}
        return StructField(name, kind, metadata=names)

    inner = StructType((mapped("x", LONG, 3),))
    fields = [mapped("id", LONG, 1), mapped("s", ArrayType(inner), 2), mapped("p", STRING, 4)]
    where = target(tmp_path, *fields, partition_by=["p"], delta_columnMapping_mode="name")
    (add,) = write(pa.table({"id": [7], "s": [[{"X": 8}]], "p": ["q"]}), where)
    assert add.partition_values == {"col-4": "q"}
    schema = pq.read_schema(tmp_path / unquote(add.path))
    assert schema.names == ["col-1", "col-2"]
    assert [field.metadata[b"PARQUET:field_id"] for field in schema] == [b"1", b"2"]
    assert schema.field("col-2").type.value_type.field("col-3").metadata == {b"PARQUET:field_id": b"3"}
    assert json.loads(add.stats)["minValues"] == {"col-1": 7}


# --- what fits ----------------------------------------------------------------------------------------------


def test_order_and_case_of_columns_do_not_matter_and_nullable_ones_may_be_absent(tmp_path):
    fields = [
        StructField("Id", LONG, nullable=False),
        StructField("Name", STRING),
        StructField("Age", INTEGER),
    ]
    (add,) = write(pa.table({"AGE": [4], "id": pa.array([1], pa.int32())}), target(tmp_path, *fields))
    assert stored(tmp_path, add).to_pylist() == [{"Id": 1, "Name": None, "Age": 4}]


FITS = [
    (pa.array([1, None], pa.int8()), LONG, [1, None]),
    (pa.array([2**31 - 1]), INTEGER, [2**31 - 1]),
    (pa.array([255], pa.uint8()), PrimitiveType("short"), [255]),
    (pa.array([1.0, None]), LONG, [1, None]),
    (pa.array([7]), PrimitiveType("double"), [7.0]),
    (pa.array([0.5, float("nan"), float("inf")]).slice(0, 1), PrimitiveType("float"), [0.5]),
    (pa.array([12]), DecimalType(4, 2), [Decimal("12.00")]),
    (pa.array([Decimal("1.50")]), DecimalType(10, 1), [Decimal("1.5")]),
    (pa.array(["a", None], pa.large_string()), STRING, ["a", None]),
    (pa.array(["a", "b", "a"]).dictionary_encode(), STRING, ["a", "b", "a"]),
    (pa.array(["a"], pa.string_view()), STRING, ["a"]),
    (pa.array([b"ab"], pa.binary(2)), PrimitiveType("binary"), [b"ab"]),
    (pa.array([dt.date(2020, 1, 2)], pa.date64()), PrimitiveType("date"), [dt.date(2020, 1, 2)]),
    (pa.array([None, None]), STRING, [None, None]),
    (pa.array([[1], None], pa.large_list(pa.int32())), ArrayType(LONG), [[1], None]),
    (pa.array([[1, 2]], pa.list_(pa.int64(), 2)), ArrayType(INTEGER), [[1, 2]]),
    (
        pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int32())),
        MapType(STRING, LONG),
        [[("k", 1)], None, []],
    ),
]


@pytest.mark.parametrize(
    ("array", "kind", "expected"), FITS, ids=lambda each: str(getattr(each, "type", each))[:40]
)
def test_values_that_fit_are_stored_as_the_tables_type(tmp_path, array, kind, expected):
    (add,) = write(pa.table({"v": array}), target(tmp_path, StructField("v", kind)))
    assert stored(tmp_path, add)["v"].to_pylist() == expected


DOES_NOT_FIT = [
    (pa.array([2**31]), INTEGER),
    (pa.array([2**63], pa.uint64()), LONG),
    (pa.array([1.5]), LONG),
    (pa.array([0.1]), PrimitiveType("float")),
    (pa.array([2**53 + 1]), PrimitiveType("double")),
    (pa.array(["1"]), LONG),
    (pa.array([1]), STRING),
    (pa.array([1]), PrimitiveType("boolean")),
    (pa.array([b"a"]), STRING),
    (pa.array([100]), DecimalType(4, 2)),
    (pa.array([Decimal("1.55")]), DecimalType(10, 1)),
    (pa.array([1], pa.timestamp("ns")), PrimitiveType("timestamp_ntz")),
    (pa.array([1], pa.timestamp("us", "UTC")), PrimitiveType("timestamp_ntz")),
    (pa.array([dt.date(2020, 1, 1)]), PrimitiveType("timestamp")),
    (pa.array([1]), ArrayType(LONG)),
    (pa.array([[1]]), StructType((StructField("x", LONG),))),
    (pa.array([{"x": 1, "y": 2}]), StructType((StructField("x", LONG),))),
    (pa.array([{}], pa.struct([])), StructType((StructField("x", LONG, nullable=False),))),
]

NULLS_WHERE_NONE_MAY_BE = [
    (
        "v.x",
        pa.array([{"x": None}], pa.struct([("x", pa.int64())])),
        StructType((StructField("x", LONG, nullable=False),)),
    ),
    ("v.element", pa.array([[1, None]]), ArrayType(LONG, contains_null=False)),
    (
        "v.value",
        pa.array([[("k", None)]], pa.map_(pa.string(), pa.int64())),
        MapType(STRING, LONG, value_contains_null=False),
    ),
]


@pytest.mark.parametrize(
    ("array", "kind"), DOES_NOT_FIT, ids=lambda each: str(getattr(each, "type", each))[:40]
)
def test_values_that_do_not_fit_are_refused_by_column_and_nothing_is_left(tmp_path, array, kind):
    with pytest.raises(SchemaMismatch, match=r"'v[.a-z]*'"):
        write(pa.table({"v": array}), target(tmp_path, StructField("v", kind)))
    assert everything_in(tmp_path) == []


@pytest.mark.parametrize(("name", "array", "kind"), NULLS_WHERE_NONE_MAY_BE)
def test_nulls_where_none_may_be_are_refused_by_column_and_nothing_is_left(tmp_path, name, array, kind):
    with pytest.raises(ConstraintViolation, match=f"NOT NULL constraint violated for column: {name}"):
        write(pa.table({"v": array}), target(tmp_path, StructField("v", kind)))
    assert everything_in(tmp_path) == []


def test_nulls_that_no_value_sees_are_allowed(tmp_path):
    inner = StructType((StructField("x", LONG, nullable=False),))
    fields = [StructField("s", inner), StructField("l", ArrayType(LONG, contains_null=False))]
    structs = pa.array([{"x": 1}, None, {"x": 3}], pa.struct([("x", pa.int64())]))
    lists = pa.array([[None], [1], None, [2]], pa.list_(pa.int64())).slice(1)
    (add,) = write(pa.table({"s": structs, "l": lists}), target(tmp_path, *fields))
    assert stored(tmp_path, add).to_pylist() == [
        {"s": {"x": 1}, "l": [1]},
        {"s": None, "l": None},
        {"s": {"x": 3}, "l": [2]},
    ]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ({"id": [1], "extra": [2]}, "extra"),
        ({"name": ["a"]}, "lacks column 'id'"),
    ],
)
def test_columns_that_do_not_fit(tmp_path, data, reason):
    where = target(tmp_path, StructField("id", LONG, nullable=False), StructField("name", STRING))
    with pytest.raises(SchemaMismatch, match=reason):
        write(pa.table(data), where)
    assert everything_in(tmp_path) == []


def test_a_null_in_a_column_that_allows_none(tmp_path):
    where = target(tmp_path, StructField("id", LONG, nullable=False))
    with pytest.raises(ConstraintViolation, match=r"violated for column: id\. The data has 1 NULL"):
        write(pa.table({"id": [1, None]}), where)
    assert everything_in(tmp_path) == []


def test_a_column_twice_is_refused(tmp_path):
    twice = pa.RecordBatch.from_arrays([pa.array([1]), pa.array([2])], names=["id", "ID"])
    with pytest.raises(SchemaMismatch, match="twice"):
        write_data_files([twice], target(tmp_path, StructField("id", LONG)))


# --- failures -----------------------------------------------------------------------------------------------


def test_a_failure_removes_the_files_written_so_far_and_no_others(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet_writer, "_ROW_GROUP_ROWS", 10)
    other = tmp_path / "part-00000-someone-else.parquet"
    other.write_bytes(b"live data")
    where = target(tmp_path, StructField("id", LONG), delta_targetFileSize="1")

    def batches():
        yield pa.record_batch({"id": range(100)})
        yield pa.record_batch({"id": ["not a number"]})

    with pytest.raises(SchemaMismatch):
        write_data_files(batches(), where)
    assert everything_in(tmp_path) == [other]


def test_a_failing_disk_is_an_error_and_leaves_nothing(tmp_path, monkeypatch):
    where = target(tmp_path, StructField("id", LONG))

    def broken(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(parquet_writer.pq.ParquetWriter, "write_table", broken)
    with pytest.raises(StorageError, match="No space left"):
        write(pa.table({"id": [1]}), where)
    assert everything_in(tmp_path) == []


def test_files_stay_once_they_were_handed_out(tmp_path):
    where = target(tmp_path, StructField("id", LONG))
    written = []

    def lose_the_answer():
        with DataFileWriter(where) as writer:
            writer.write(pa.record_batch({"id": [1]}))
            written.extend(writer.finish())
            raise ConnectionError("the commit's answer was lost")

    with pytest.raises(ConnectionError):
        lose_the_answer()
    assert (tmp_path / written[0].path).exists()


def test_in_memory_and_other_object_stores(tmp_path):
    schema = StructType((StructField("id", LONG), StructField("p", STRING)))
    where = WriteTarget("memory:///parquet-writer", schema, ["p"], {}, TRANSACTION)
    (add,) = write(pa.table({"id": [1, 2], "p": ["a b%", "a b%"]}), where)
    assert storage.stat(where.location, add.path).size == add.size
    with pytest.raises(SchemaMismatch):
        write(pa.table({"id": [1, 2], "p": [3, 4]}), where)
    with storage.open_input(where.location, add.path) as file:
        assert pq.ParquetFile(file).read()["id"].to_pylist() == [1, 2]


@settings(max_examples=30, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(-(2**63), 2**63 - 1), st.none() | st.text(max_size=5)), min_size=1, max_size=60
    ),
    st.integers(1, 20),
)
def test_every_row_is_in_exactly_one_file_of_its_partition(tmp_path_factory, rows, batch_size):
    location = tmp_path_factory.mktemp("table")
    where = target(location, StructField("id", LONG), StructField("p", STRING), partition_by=["p"])
    data = pa.table({"id": [row[0] for row in rows], "p": pa.array([row[1] for row in rows], pa.string())})
    adds = write_data_files(data.to_batches(batch_size), where)
    found = [
        (row, add.partition_values["p"]) for add in adds for row in stored(location, add)["id"].to_pylist()
    ]
    expected = [(row, text or None) for row, text in rows]
    assert sorted(found, key=repr) == sorted(expected, key=repr)
    assert len({tuple(add.partition_values.items()) for add in adds}) == len(adds)


def test_empty_lists_without_offsets_are_written(tmp_path):
    """Java sends empty nested lists without offsets, on which pyarrow's ``nbytes`` crashes."""
    kind = ArrayType(ArrayType(INTEGER))
    where = target(tmp_path, StructField("lists", kind))
    arrow = kind.to_arrow()
    inner = pa.Array.from_buffers(
        arrow.value_type, 0, [None, pa.foreign_buffer(0, 0)], 0, 0, [pa.array([], pa.int32())]
    )
    offsets = pa.array([0, 0, 0], pa.int32()).buffers()[1]
    lists = pa.Array.from_buffers(arrow, 2, [None, offsets], 0, 0, [inner])
    (add,) = write_data_files([pa.record_batch([lists], schema=where.schema.to_arrow())], where)
    assert stored(tmp_path, add).to_pylist() == [{"lists": []}, {"lists": []}]
