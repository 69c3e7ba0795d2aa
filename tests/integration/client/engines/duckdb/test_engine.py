"""The DuckDB engine as a whole: types, failures and their errors, connections and threads."""

import datetime as dt
import json
import pickle
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path

import deltalake
import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake.transaction import AddAction
from pyroaring import BitMap64
from tests.support.scanned_table import PEOPLE, Table, ids, people

import delvec
from delvec_engines.duckdb import DuckDBEngine
from delvec_engines.duckdb import scan as scan_module
from delvec_engines.protocol import Engine
from delvec_errors import (
    CorruptTable,
    EngineUnavailable,
    InternalError,
    InvalidPredicate,
    MissingDataFile,
    UnsupportedTable,
)
from delvec_storage import files as storage


def test_it_is_an_engine(engine):
    assert isinstance(engine, Engine)
    assert engine.name.startswith("delvec-duckdb/")


def test_a_program_that_only_appends_opens_no_database(tmp_path, monkeypatch):
    monkeypatch.setattr(duckdb, "connect", lambda *_, **__: pytest.fail("a database was opened"))
    with delvec.connect(tmp_path, database_url="sqlite://") as lake:
        table = lake.create_table(tmp_path / "people", "id long")
        table.append(pa.table({"id": [1, 2]}))
        assert (table.count(), len(table.history())) == (2, 2)


def test_every_type_comes_back_as_it_was_written(engine, location):
    inner = pa.struct(
        [pa.field("a b", pa.int32()), pa.field("n", pa.list_(pa.field("element", pa.string())))]
    )
    map_type = pa.map_(pa.field("key", pa.string(), nullable=False), pa.field("value", inner))
    schema = pa.schema(
        [
            pa.field("i8", pa.int8()),
            pa.field("i16", pa.int16()),
            pa.field("i32", pa.int32(), nullable=False),
            pa.field("i64", pa.int64()),
            pa.field("f", pa.float32()),
            pa.field("d", pa.float64()),
            pa.field("b", pa.bool_()),
            pa.field("s", pa.string()),
            pa.field("bin", pa.binary()),
            pa.field("day", pa.date32()),
            pa.field("at", pa.timestamp("us", "UTC")),
            pa.field("wall", pa.timestamp("us")),
            pa.field("dec", pa.decimal128(38, 18)),
            pa.field("small", pa.decimal128(4, 1)),
            pa.field("st", inner),
            pa.field("li", pa.list_(pa.field("element", inner))),
            pa.field("ma", map_type),
            pa.field("nothing", pa.null()),
        ]
    )
    rows = [
        {
            "i8": -128,
            "i16": 32767,
            "i32": 1,
            "i64": -(2**63),
            "f": 1.5,
            "d": float("inf"),
            "b": True,
            "s": "ü\0'",
            "bin": b"\xff\x00",
            "day": dt.date(1, 1, 1),
            "at": dt.datetime(1900, 1, 1, 0, 0, 0, 1, tzinfo=dt.UTC),
            "wall": dt.datetime(9999, 12, 31, 23, 59, 59, 999999),  # noqa: DTZ001 - a wall clock
            "dec": Decimal("12345678901234567890.123456789012345678"),
            "small": Decimal("-1.5"),
            "st": {"a b": 1, "n": ["x", None]},
            "li": [{"a b": None, "n": []}, None],
            "ma": [("k", {"a b": 2, "n": None}), ("l", None)],
            "nothing": None,
        },
        {name: 2 if name == "i32" else None for name in schema.names},
    ]
    table = Table(location, schema)
    data = pa.Table.from_pylist(rows, schema)
    adds = engine.write(data, table.target())
    for add in adds:
        table.rows.append(
            {
                "path": add.path,
                "partition_values": [],
                "size": add.size,
                "modification_time": add.modification_time,
                "num_records": 2,
                "matches_all": False,
            }
        )
    found = engine.read(table.scan(), None, None)
    assert found.schema == table.schema.to_arrow()
    assert found.to_pylist() == rows
    assert pa.Table.from_batches(engine.read_batches(table.scan())).equals(found)
    assert engine.count(table.scan(), table.where("nothing IS NULL AND st.`a b` = 1")) == 1


def test_write_takes_what_users_hold(engine, local):
    table = Table(local, PEOPLE)
    data = people(0, 5)
    for each in (data, data.to_reader(), data.to_pandas(), data.to_pylist()):
        (add,) = engine.write(each, table.target())
        assert json.loads(add.stats)["numRecords"] == 5


def test_a_file_read_at_another_position_than_planned_is_an_error(engine, local, monkeypatch):
    table = Table(local, PEOPLE)
    for number in range(2):
        table.add(f"{number}.parquet", people(number * 10, number * 10 + 10), deleted=[number])
    original = scan_module._Statement._source

    def shuffled(*arguments, **options):
        source = original(*arguments, **options)
        first, second = (scan_module.string_literal(name) for name in source.names)
        swapped = source.sql.replace(f"{first}, {second}", f"{second}, {first}")
        assert swapped != source.sql
        return scan_module.ScanSource(source.files, source.names, source.lookup, swapped, source.live)

    monkeypatch.setattr(scan_module._Statement, "_source", shuffled)
    with pytest.raises(InternalError, match="stopped, because it would return wrong rows"):
        engine.read(table.scan(), None, None)
    with pytest.raises(InternalError):
        engine.count(table.scan(), None)
    with pytest.raises(InternalError, match="a different order"):
        engine.find_rows(table.scan(), table.where("id > 5"))
    with pytest.raises(InternalError):
        engine.copy_rows(table.scan(), {}, table.target())


@pytest.mark.parametrize("deleted", [None, [0]])
def test_a_missing_file_is_named(engine, location, deleted):
    table = Table(location, PEOPLE)
    table.add("there.parquet", people(0, 3))
    path = table.add("go ne[1].parquet", people(3, 6), deleted=deleted)
    place = storage.locate(location, path)
    if place.local is not None:
        place.local.unlink()
    else:
        place.remote.delete(place.key)
    for action in (
        lambda: engine.read(table.scan(), None, None),
        lambda: engine.find_rows(table.scan(), table.where("id = 4")),
        lambda: engine.copy_rows(table.scan(), {path: BitMap64([1])}, table.target()),
        lambda: list(engine.read_batches(table.scan())),
    ):
        with pytest.raises(MissingDataFile) as caught:
            action()
        assert caught.value.details == {"table": "people", "version": 7, "file": path}
        assert "people" in caught.value.message
        assert path in caught.value.message


def test_a_file_that_is_not_parquet_is_named(engine, location):
    table = Table(location, PEOPLE)
    path = table.add("broken.parquet", people(0, 3))
    storage.write_file(location, path, b"x" * table.rows[0]["size"])
    with pytest.raises(CorruptTable) as caught:
        engine.read(table.scan(), None, table.where("id = 1"))
    assert caught.value.details["file"] == path


def test_a_column_of_another_type_is_not_blamed_on_the_predicate(engine, local):
    table = Table(local, PEOPLE)
    path = table.add("a.parquet", pa.table({"id": [{"x": 1}], "name": ["a"]}))
    with pytest.raises(CorruptTable) as caught:
        engine.read(table.scan(), None, table.where("name = 'a'"))
    assert caught.value.details["file"] == path


def test_a_predicate_that_fails_on_rows_says_so(engine, local):
    table = Table(local, PEOPLE)
    table.add("a.parquet", people(0, 3))
    for action in (engine.count, engine.find_rows, lambda scan, where: engine.read(scan, None, where)):
        with pytest.raises(
            InvalidPredicate, match=r"'CAST\(name AS INT\) = 1' failed on rows of table 'people'"
        ):
            action(table.scan(), table.where("CAST(name AS INT) = 1"))


def test_a_predicate_that_would_fail_only_on_deleted_rows_works(engine, local):
    table = Table(local, PEOPLE)
    data = pa.table({"id": range(4), "name": ["1", "x", "1", "2"]}, PEOPLE)
    path = table.add("a.parquet", data, deleted=[1])
    where = table.where("CAST(name AS INT) = 1")
    assert ids(engine.read(table.scan(), None, where)) == [0, 2]
    assert engine.count(table.scan(), where) == 2
    assert engine.find_rows(table.scan(), where) == {path: BitMap64([0, 2])}
    assert [batch["id"].to_pylist() for batch in engine.read_batches(table.scan(), None, where)] == [[0, 2]]


def test_variables_of_the_caller_are_not_tables(local):
    engine = DuckDBEngine()
    __delvec_lookup = people(0, 1)
    assert __delvec_lookup.num_rows == 1
    with engine._session.connected() as cursor, pytest.raises(duckdb.CatalogException):
        cursor.sql("SELECT * FROM __delvec_lookup")
    engine.close()


def test_a_connection_that_was_passed_in_keeps_its_settings_and_stays_open(local):
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'Pacific/Auckland'").fetchall()
    schema = pa.schema([("at", pa.timestamp("us", "UTC"))])
    table = Table(local, schema)
    table.add("a.parquet", pa.table({"at": [0]}, schema), deleted=[])
    engine = DuckDBEngine(connection)
    assert engine.read(table.scan(), None, None).schema == schema
    assert engine.count(table.scan(), table.where("at = TIMESTAMP '1970-01-01 00:00:00'")) == 1
    engine.close()
    assert connection.sql("SELECT current_setting('TimeZone')").fetchall() == [("Pacific/Auckland",)]
    connection.close()


def test_object_stores_need_fsspec_and_local_files_do_not(engine, local, monkeypatch):
    monkeypatch.delitem(sys.modules, "delvec_engines.duckdb.remote", raising=False)
    monkeypatch.setitem(sys.modules, "fsspec", None)
    table, remote = Table(local, PEOPLE), Table("memory:///duckdb-no-fsspec", PEOPLE)
    for each in (table, remote):
        each.add("a.parquet", people(0, 2), deleted=[0])
    assert ids(engine.read(table.scan(), None, None)) == [1]
    with pytest.raises(EngineUnavailable, match="fsspec"):
        engine.read(remote.scan(), None, None)


def test_threads_share_an_engine(engine, location):
    tables = []
    for number in range(4):
        table = Table(f"{location}{number}", PEOPLE)
        table.add("a.parquet", people(0, 20_000), deleted=range(number, 20_000, 4))
        tables.append(table)
    barrier = threading.Barrier(4)

    def work(number):
        barrier.wait()
        table = tables[number]
        for _ in range(5):
            found = engine.read(table.scan(), ["id"], None)["id"]
            assert found.length() == 15_000
            assert not pc.any(pc.equal(pc.bit_wise_and(found, 3), number)).as_py()
        return engine.find_rows(table.scan(), table.where("id < 10"))

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(work, range(4)))
    assert all(list(found.values()) == [BitMap64(range(10))] for found in results)


def test_large_remote_files_are_read_by_several_threads_at_once(engine):
    location = "memory:///duckdb-large"
    table = Table(location, PEOPLE)
    table.add("a.parquet", people(0, 400_000), deleted=[0])
    for _ in range(5):
        assert engine.read(table.scan(), None, table.where("name <> 'n3'")).num_rows == 399_998


def test_files_are_where_the_location_says(engine, local, tmp_path):
    table = Table(local, PEOPLE)
    table.add("a.parquet", people(0, 1))
    assert Path(tmp_path / "table" / "a.parquet").exists()
    assert ids(engine.read(table.scan(), None, None)) == [0]


def test_limits_of_one_engine_are_no_defaults_of_the_next():
    def limits(engine):
        with engine._session.connected() as connection:
            sql = "SELECT current_setting('threads'), current_setting('memory_limit')"
            return connection.sql(sql).fetchall()

    before = limits(DuckDBEngine())
    limited = DuckDBEngine(memory_limit=256 << 20, threads=1)
    assert limits(limited) == [(1, "256.0 MiB")]
    assert limits(pickle.loads(pickle.dumps(limited))) == [(1, "256.0 MiB")]
    assert limits(DuckDBEngine()) == before


def test_an_encoding_that_duckdb_lacks_is_not_called_damage(tmp_path):
    numbers = pa.table({"n": pa.array([Decimal("1.00"), None], pa.decimal128(38, 2))})
    (tmp_path / "t").mkdir()
    created = deltalake.DeltaTable.create(tmp_path / "t", numbers.schema)
    path = tmp_path / "t" / "a.parquet"
    pq.write_table(numbers, path, use_dictionary=False, use_byte_stream_split=["n"])
    add = AddAction(path.name, path.stat().st_size, {}, 1_700_000_000_000, True, '{"numRecords":2}')
    created.create_write_transaction([add], "append", created.schema())
    with (
        delvec.connect(tmp_path, database_url="sqlite://") as lake,
        pytest.raises(UnsupportedTable, match=r"a\.parquet.*BYTE_STREAM_SPLIT.*Use Spark") as caught,
    ):
        lake.table(tmp_path / "t").to_arrow()
    assert caught.value.details["file"] == "a.parquet"
