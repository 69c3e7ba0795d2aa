"""The DuckDB engine reads files of other writers: the live rows, in the schema of the table."""

import datetime as dt
import json
import resource
from decimal import Decimal

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyroaring import BitMap64
from tests.support.scanned_table import PEOPLE, Table, ids, mapped, people

from delvec_engines.duckdb import scan as scan_module
from delvec_engines.duckdb.relation import relation
from delvec_errors import (
    CorruptTable,
    UnknownColumn,
    UnsupportedTable,
)
from delvec_kernel.schema.types import ArrayType, MapType, PrimitiveType, StructField, StructType

ODD_NAMES = [
    "sp ace",
    "100%",
    "a+b",
    "k=v",
    "[1]",
    "x*y?z",
    "#frag",
    "é漢",
    "it's",
    'qu"ote',
    "%41",
    "a{b,c}",
    "semi;colon",
]


def test_deleted_rows_are_gone_and_others_stay(engine, location):
    table = Table(location, PEOPLE)
    table.add("plain.parquet", people(0, 10))
    table.add("some gone.parquet", people(10, 20), deleted=[0, 3, 9])
    table.add("none gone.parquet", people(20, 30), deleted=[])
    table.add("all gone.parquet", people(30, 40), deleted=range(10))
    live = sorted({*range(30)} - {10, 13, 19})
    found = engine.read(table.scan(), None, None)
    assert found.schema == PEOPLE
    assert ids(found) == live
    assert engine.count(table.scan(), None) == len(live)
    assert ids(engine.read(table.scan(), None, table.where("id >= 9 AND id <= 13"))) == [9, 11, 12]
    assert engine.count(table.scan(), table.where("name IN ('n10', 'n11')")) == 1


@pytest.mark.parametrize("name", ODD_NAMES)
@pytest.mark.parametrize("deleted", [None, [1]])
def test_odd_file_names(engine, location, name, deleted):
    table = Table(location, PEOPLE, partition_by=[])
    path = table.add(f"{name}/{name}.parquet", people(0, 3), deleted=deleted)
    table.add("1/1.parquet", people(3, 6))
    assert ids(engine.read(table.scan(), None, None)) == ([0, 2, 3, 4, 5] if deleted else [0, 1, 2, 3, 4, 5])
    assert engine.find_rows(table.scan(), table.where("id = 2")) == {path: BitMap64([2])}


def test_a_path_that_is_a_pattern_means_only_itself(engine, local):
    table = Table(local, PEOPLE)
    table.add("x1.parquet", people(0, 1))
    other = Table(local, PEOPLE)
    other.add("x[0-9].parquet", people(1, 2))
    other.add("x?.parquet", people(2, 3))
    assert ids(engine.read(other.scan(), None, None)) == [1, 2]


def test_files_outside_the_location_and_absolute_paths(engine, tmp_path, local):
    table = Table(local, PEOPLE)
    table.add("inside.parquet", people(0, 2), deleted=[0])
    outside = tmp_path / "source of a clone.parquet"
    pq.write_table(people(2, 4), outside)
    table.rows.append({**table.rows[0], "path": outside.as_uri()})
    assert ids(engine.read(table.scan(), None, None)) == [1, 3]


def test_a_vector_that_speaks_of_billions_of_rows_costs_no_memory(engine, location):
    table = Table(location, PEOPLE)
    table.add("a.parquet", people(0, 10), deleted=[3, 2**31 - 100], num_records=False)
    table.add("b.parquet", people(10, 20), deleted=[0, 2**40], num_records=False)
    resource_before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert ids(engine.read(table.scan(), None, None)) == [0, 1, 2, *range(4, 10), *range(11, 20)]
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - resource_before < 100_000  # KiB


@pytest.mark.parametrize("query", ["count(*)", "sum(id)", "max(name)", "count(*) FILTER (name = 'n5')"])
def test_rows_of_files_with_vectors_are_streamed(local, query):
    """Also where only a narrow column is read: DuckDB keeps the side of a cross product in memory that looks smaller."""
    table = Table(local, PEOPLE)
    table.add("part.parquet", people(0, 10), deleted=[2])
    table.add("other.parquet", people(10, 20), deleted=[3, 4])
    with duckdb.connect() as database:
        relation(table.scan(), None, database).create_view("people")
        streamed, kept = children(database, f"SELECT {query} FROM people", "CROSS_PRODUCT")
    assert "READ_PARQUET" in streamed
    assert "ARROW_SCAN" in kept


@pytest.mark.parametrize(
    "tables", ["people JOIN teams ON team = people.id", "teams JOIN people ON team = people.id"]
)
@pytest.mark.parametrize("deleted", [None, [7]])
def test_joins_keep_the_smaller_table_in_memory(local, tables, deleted):
    table = Table(local, PEOPLE)
    table.add("part.parquet", people(0, 5000), deleted=deleted)
    with duckdb.connect() as database:
        relation(table.scan(), None, database).create_view("people")
        database.execute("CREATE TABLE teams AS SELECT n AS team FROM range(100) r(n)")
        streamed, kept = children(database, f"SELECT name, team FROM {tables}", "HASH_JOIN")
        assert len(database.sql(f"SELECT name, team FROM {tables}").fetchall()) == 100 - len(deleted or [])
    assert "READ_PARQUET" in streamed
    assert "SEQ_SCAN" in kept


def children(database, query, operator):
    """Both children of the only operator of this kind in the plan of a query, as text."""
    pending = json.loads(database.execute(f"EXPLAIN (FORMAT json) {query}").fetchall()[0][1])
    found = []
    while pending:
        node = pending.pop()
        pending += node["children"]
        found += [node] if node["name"] == operator and "RANGE" not in node["children"][0]["name"] else []
    (node,) = found
    return [json.dumps(child) for child in node["children"]]


def test_a_deletion_vector_beyond_the_statistics_and_without_them(engine, local):
    table = Table(local, PEOPLE)
    table.add("a.parquet", people(0, 2500), deleted=[1200, 1000], num_records=False)
    table.add("b.parquet", people(2500, 2600), deleted=[0])
    found = engine.read(table.scan(), None, None)
    assert set(range(2600)) - set(ids(found)) == {1200, 1000, 2500}


def test_a_file_with_more_rows_than_its_statistics_say_is_an_error(engine, local, monkeypatch):
    table = Table(local, PEOPLE)
    table.add("a.parquet", people(0, 2500), deleted=[10])
    table.rows[0]["num_records"] = 2000
    with pytest.raises(CorruptTable, match=r"'a\.parquet'.*more rows than its statistics say") as caught:
        engine.read(table.scan(), None, None)
    assert caught.value.details["file"] == "a.parquet"
    table.rows[0]["num_records"] = 2**31  # so many that the footer is read
    assert len(ids(engine.read(table.scan(), None, None))) == 2499
    monkeypatch.setattr("delvec_engines.duckdb.scan._MAX_ROWS", 2000)
    with pytest.raises(UnsupportedTable, match="Spark"):
        engine.read(table.scan(), None, None)


def test_partition_values_come_from_the_plan_whatever_the_path_says(engine, location):
    schema = pa.schema(
        [
            ("day", pa.date32()),
            ("id", pa.int64()),
            ("country", pa.string()),
            ("level", pa.int32()),
            ("at", pa.timestamp("us", "UTC")),
            ("price", pa.decimal128(5, 2)),
        ]
    )
    table = Table(location, schema, partition_by=["country", "day", "level", "at", "price"])
    first = {"country": "NZ", "day": "2024-02-29", "level": "1", "at": "2024-01-01 00:00:00", "price": "1.50"}
    only = pa.schema([("id", pa.int64())])
    table.add("country=DE/day=1999-01-01/a.parquet", pa.table({"id": [1, 2]}, only), values=first)
    nothing = dict.fromkeys(first)
    table.add("country=NZ/b.parquet", pa.table({"id": [3, 4]}, only), values=nothing, deleted=[0])
    found = engine.read(table.scan(), None, None).sort_by("id")
    assert found.schema == schema
    row = {
        "day": dt.date(2024, 2, 29),
        "country": "NZ",
        "level": 1,
        "at": dt.datetime(2024, 1, 1, tzinfo=dt.UTC),
        "price": Decimal("1.50"),
    }
    assert found.to_pylist() == [{**row, "id": 1}, {**row, "id": 2}, {**dict.fromkeys(row), "id": 4}]
    assert ids(engine.read(table.scan(), ["id"], table.where("country = 'NZ' AND level = 1"))) == [1, 2]
    assert engine.count(table.scan(), table.where("country IS NULL")) == 1
    assert engine.read(table.scan(), ["level"], None).to_pydict() == {"level": [1, 1, None]}


def test_columns_by_any_case_in_the_tables_order(engine, local):
    table = Table(local, pa.schema([("Id", pa.int64()), ("Name", pa.string()), ("Age", pa.int32())]))
    table.add("a.parquet", pa.table({"ID": [1], "name": ["x"], "aGe": pa.array([3], pa.int32())}), deleted=[])
    found = engine.read(table.scan(), ["AGE", "id"], table.where("NAME = 'x'"))
    assert found.to_pylist() == [{"Id": 1, "Age": 3}]
    with pytest.raises(UnknownColumn):
        engine.read(table.scan(), ["nope"], None)


def test_columns_added_later_are_null_and_narrow_ones_are_widened(engine, local):
    inner = pa.struct([("x", pa.int64()), ("late", pa.string())])
    schema = pa.schema([("id", pa.int64()), ("late", pa.string()), ("s", inner), ("l", pa.list_(inner))])
    table = Table(local, schema)
    old = pa.struct([("x", pa.int32())])
    data = pa.table(
        {
            "id": pa.array([1], pa.int32()),
            "s": pa.array([{"x": 5}], old),
            "l": pa.array([[{"x": 6}]], pa.list_(old)),
        }
    )
    table.add("old.parquet", data, deleted=[])
    found = engine.read(table.scan(), None, None)
    assert found.to_pylist() == [
        {"id": 1, "late": None, "s": {"x": 5, "late": None}, "l": [{"x": 6, "late": None}]}
    ]
    assert engine.count(table.scan(), table.where("late IS NULL AND s.late IS NULL")) == 1


@pytest.mark.parametrize("deleted", [None, range(0, 3000, 7)])
def test_conditions_that_duckdb_takes_into_the_reader_mean_the_same_rows(engine, local, monkeypatch, deleted):
    kinds = [
        ("id", pa.int64()),
        ("v", pa.float64()),
        ("at", pa.timestamp("us", "UTC")),
        ("late", pa.string()),
    ]
    table = Table(local, pa.schema(kinds))
    numbers = range(3000)
    moments = [dt.datetime(2020, 1, 1, tzinfo=dt.UTC) + dt.timedelta(hours=number) for number in numbers]
    old = {"id": pa.array(numbers, pa.int32()), "v": pa.array([each / 2 for each in numbers], pa.float32())}
    table.add("old.parquet", pa.table({**old, "at": pa.array(moments, pa.timestamp("us"))}), deleted)
    values = [float("nan") if each % 5 == 0 else None if each % 3 == 0 else each / 2 for each in numbers]
    new = {
        "late": [None if each % 4 == 0 else str(each) for each in numbers],
        "at": moments,
        "v": values,
        "id": numbers,
    }
    table.add("new.parquet", pa.table(new, pa.schema({name: dict(kinds)[name] for name in new})), deleted)
    found = {}
    texts = [
        "id % 100 = 42",
        "coalesce(late, '7') LIKE '%7'",
        "late IS NULL AND id % 2 = 1",
        "v * 2 > 2900",
        "v > 1400 OR id % 1000 = 1",
        "v / 2 IS NULL",
        "hour(at) = 5",
        "CASE WHEN id > 5 THEN id % 7 ELSE 0 END = 3",
        "id + 1 IN (4, 8, 3000)",
    ]
    for way in ("inside", "outside"):
        if way == "outside":
            monkeypatch.setattr(scan_module, "_nameable", lambda *_: frozenset())
        for text in texts:
            where = table.where(text)
            rows = engine.find_rows(table.scan(), where)
            found.setdefault(text, []).append((str(engine.read(table.scan(), None, where).to_pylist()), rows))
    for text, (inside, outside) in found.items():
        assert inside == outside, text
        assert inside[1], text


@pytest.mark.parametrize("deleted", [None, [1]])
def test_a_condition_is_evaluated_before_other_columns_are_converted(engine, local, monkeypatch, deleted):
    table = Table(local, PEOPLE)
    table.add("a.parquet", people(0, 3000), deleted)
    where = table.where("id % 100 = 42")
    plans = []
    run = engine._session.table

    def explained(scan, source, sql, *rest):
        plans.append(run(scan, source, f"EXPLAIN {sql}", *rest)["explain_value"][0].as_py())
        return run(scan, source, sql, *rest)

    monkeypatch.setattr(engine._session, "table", explained)
    assert engine.read(table.scan(), None, where).num_rows == 30
    assert "Filters: (c0 % 100) = 42" in plans[0]


@pytest.mark.parametrize("mode", ["none", "name"])
def test_predicates_on_struct_fields_when_files_have_other_fields_or_another_order(engine, local, mode):
    long = PrimitiveType("long")
    if mode == "none":
        fields = tuple(StructField(name, long) for name in ("new", "z", "x"))
        table = Table(local, StructType((StructField("id", long), StructField("s", StructType(fields)))))
        physical = {"id": "id", "s": "s", "x": "x", "z": "z"}
    else:
        inner = StructType((mapped("new", long, 5), mapped("z", long, 4), mapped("x", long, 3)))
        table = Table(
            local,
            StructType((mapped("id", long, 1), mapped("s", inner, 2))),
            configuration={"delta.columnMapping.mode": "name"},
        )
        physical = {"id": "col-1", "s": "col-2", "x": "col-3", "z": "col-4"}
    rows = [{physical["x"]: 5, "y": 6, physical["z"]: 7}, {physical["x"]: 7, "y": 5, physical["z"]: 5}, None]
    path = table.add("a.parquet", pa.table({physical["id"]: [1, 2, 3], physical["s"]: rows}))
    for text, expected in [
        ("s.x = 5", [1]),
        ("s.z = 5", [2]),
        ("s.x = 6 OR s.new = 5", []),
        ("s.new IS NULL", [1, 2, 3]),
        ("s.x + s.z = 12", [1, 2]),
        ("s IS NULL", [3]),
        ("s.z IN (7) AND id < 3", [1]),
    ]:
        where = table.where(text)
        assert ids(engine.read(table.scan(), ["id"], where)) == expected, text
        assert ids(engine.read(table.scan(), None, where)) == expected, text
        assert engine.count(table.scan(), where) == len(expected), text
        rows_found = BitMap64([number - 1 for number in expected])
        assert engine.find_rows(table.scan(), where) == ({path: rows_found} if expected else {}), text


@pytest.mark.parametrize("mode", ["name", "id"])
def test_column_mapping(engine, local, mode):
    long = PrimitiveType("long")
    inner = StructType(
        (
            mapped("x y", long, 3),
            mapped("z", MapType(PrimitiveType("string"), StructType((mapped("w", long, 5),))), 4),
        )
    )
    fields = (
        mapped("id", long, 1),
        mapped("s", ArrayType(inner), 2),
        mapped("p", long, 6),
        mapped("t", inner, 7),
    )
    table = Table(
        local, StructType(fields), partition_by=["p"], configuration={"delta.columnMapping.mode": mode}
    )
    value = {"x y": 8, "z": [("k", {"w": 9})]}
    rows = [{"id": 1, "s": [value, None], "p": 4, "t": value}, {"id": 2, "s": None, "p": 4, "t": None}]
    (add,) = engine.write(pa.Table.from_pylist(rows, table.schema.to_arrow()), table.target())
    table.rows.append(
        {
            "path": add.path,
            "partition_values": list(add.partition_values.items()),
            "size": add.size,
            "modification_time": add.modification_time,
            "matches_all": False,
            "num_records": 2,
        }
    )
    found = engine.read(table.scan(), None, None)
    assert found.schema == table.schema.to_arrow()
    assert found.to_pylist() == rows
    assert ids(engine.read(table.scan(), ["id"], table.where("t.`x y` = 8 AND p = 4"))) == [1]
    assert engine.find_rows(table.scan(), table.where("t IS NULL")) == {add.path: BitMap64([1])}


def test_mapping_mode_id_ignores_the_names_in_files(engine, local):
    table = Table(
        local,
        StructType((mapped("id", PrimitiveType("long"), 1),)),
        configuration={"delta.columnMapping.mode": "id"},
    )
    renamed = pa.schema(
        [pa.field("other", pa.int64(), metadata={"PARQUET:field_id": "1"}), ("col-1", pa.int64())]
    )
    table.add("a.parquet", pa.table([[5], [6]], schema=renamed), deleted=[])
    assert ids(engine.read(table.scan(), None, None)) == [5]


def test_column_names_that_duckdb_uses_itself(engine, local):
    names = [
        "filename",
        "file_row_number",
        "file_index",
        "f",
        "l",
        "c0",
        "i",
        "name",
        "__delvec_scan",
        'a"b',
        "select",
    ]
    table = Table(local, pa.schema([(name, pa.int64()) for name in names]), partition_by=["l"])
    data = pa.table({name: [number, 100] for number, name in enumerate(names) if name != "l"})
    path = table.add("a.parquet", data, deleted=[1], values={"l": "4"})
    assert engine.read(table.scan(), None, None).to_pylist() == [
        {name: number for number, name in enumerate(names)}
    ]
    assert engine.find_rows(table.scan(), table.where('file_row_number = 1 AND `a"b` = 9 AND l = 4')) == {
        path: BitMap64([0])
    }
    for number, name in enumerate(names):
        assert engine.count(table.scan(), table.where(f"`{name}` * 2 = {number} * 2")) == 1, name


def test_no_files_and_no_columns(engine, local):
    table = Table(local, PEOPLE)
    assert engine.read(table.scan(), None, None).equals(PEOPLE.empty_table())
    assert engine.count(table.scan(), None) == 0
    assert engine.find_rows(table.scan(), table.where("id = 1")) == {}
    assert list(engine.read_batches(table.scan())) == []
    table.add("a.parquet", people(0, 5), deleted=[1])
    assert engine.read(table.scan(), [], None).num_rows == 4


def test_many_files_are_read_in_several_statements(engine, local, monkeypatch):
    monkeypatch.setattr(scan_module, "_MAX_BITS", 2500)
    table = Table(local, PEOPLE)
    for number in range(7):
        start = number * 1000
        table.add(f"{number}.parquet", people(start, start + 1000), deleted=[number, 999])
    monkeypatch.setattr(scan_module, "_MAX_FILES", 2)
    assert len(list(scan_module.sources(table.scan(), ["id"]))) == 4
    live = (
        set(range(7000))
        - {number * 1001 for number in range(7)}
        - {number * 1000 + 999 for number in range(7)}
    )
    assert len(list(scan_module.sources(table.scan(), ["id"]))) > 1
    assert set(ids(engine.read(table.scan(), None, None))) == live
    assert engine.count(table.scan(), None) == len(live)


def test_rows_keep_the_order_of_the_files(engine, local):
    table = Table(local, PEOPLE)
    for number in range(4):
        table.add(f"{number}.parquet", people(number * 5000, number * 5000 + 5000), deleted=[0])
    assert engine.read(table.scan(), None, None)["id"].to_pylist() == [
        each for each in range(20000) if each % 5000
    ]


def test_read_batches_gives_the_same_rows_as_they_come(engine, location):
    table = Table(location, PEOPLE)
    table.add("a.parquet", people(0, 300_000), deleted=[5])
    table.add("b.parquet", people(300_000, 300_010))
    batches = list(engine.read_batches(table.scan(), ["id"], table.where("id <> 7")))
    assert len(batches) > 2
    assert sorted(each for batch in batches for each in batch["id"].to_pylist()) == [
        each for each in range(300_010) if each not in (5, 7)
    ]


def test_a_stream_that_is_dropped_frees_its_connection(engine, local):
    table = Table(local, PEOPLE)
    table.add("a.parquet", people(0, 300_000))
    for _ in range(3):
        batches = engine.read_batches(table.scan())
        next(batches)
        batches.close()
    assert engine.count(table.scan(), None) == 300_000


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(st.integers(1, 200), st.none() | st.sets(st.integers(0, 199))), min_size=1, max_size=5
    ),
    st.integers(0, 1000),
)
def test_live_rows_are_those_outside_the_vectors(engine, tmp_path_factory, files, bound):
    table = Table(tmp_path_factory.mktemp("table").as_uri(), PEOPLE)
    live, physical, start = set(), {}, 0
    for number, (count, deleted) in enumerate(files):
        gone = None if deleted is None else {row for row in deleted if row < count}
        path = table.add(f"{number}.parquet", people(start, start + count), deleted=gone)
        live |= {start + row for row in range(count) if row not in (gone or ())}
        matching = [row for row in range(count) if start + row < bound]
        if matching:
            physical[path] = (set(matching), gone or set())
        start += count
    assert set(ids(engine.read(table.scan(), None, None))) == live
    assert engine.count(table.scan(), table.where(f"id < {bound}")) == len(
        [each for each in live if each < bound]
    )
    found = engine.find_rows(table.scan(), table.where(f"id < {bound}"))
    assert {path: set(rows) for path, rows in found.items()} == {
        path: rows for path, (rows, _) in physical.items()
    }
