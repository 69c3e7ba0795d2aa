"""What Spark's executors write, and what they report to the driver."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64

from delvec_engines.protocol import WriteTarget
from delvec_engines.spark import write as copying
from delvec_errors import ConstraintViolation, CorruptTable, SchemaMismatch, StorageError
from delvec_kernel.schema.types import StructType, schema_from
from delvec_storage.files import open_input

pytestmark = [
    pytest.mark.spark,
    pytest.mark.full_on_spark("the gate has the main cases: each starts jobs of Spark"),
]

TRANSACTION = "0198c0de-0000-7000-8000-000000000001"
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string()), ("born", pa.date32())])


@pytest.fixture
def target(tmp_path):
    def make(schema=SCHEMA, partition_by=(), **configuration):
        return WriteTarget(
            location=f"file://{tmp_path}/table",
            schema=schema if isinstance(schema, StructType) else schema_from(schema),
            partition_columns=list(partition_by),
            configuration=configuration,
            transaction_id=TRANSACTION,
        )

    return make


def written(adds, target):
    tables = []
    for add in adds:
        with open_input(target.location, add.path) as file:
            tables.append(pq.read_table(file))
    return sorted((row for table in tables for row in table.to_pylist()), key=repr)


def files_in(tmp_path):
    return sorted(path for path in tmp_path.rglob("*") if path.is_file())


@pytest.mark.gate
def test_a_spark_frame_is_written_by_tasks(spark, engine, target, tmp_path):
    frame = spark.range(1000).repartition(3).selectExpr("id", "concat('n', id) name", "date'2024-01-01' born")

    adds = engine.write(frame, target())

    assert len(adds) == len({add.path for add in adds}) == 3
    rows = written(adds, target())
    assert sorted(row["id"] for row in rows) == list(range(1000))
    assert sum(json.loads(add.stats)["numRecords"] for add in adds) == 1000
    assert min(json.loads(add.stats)["minValues"]["id"] for add in adds) == 0
    for add in adds:
        path = tmp_path / "table" / add.path
        assert path.stat().st_size == add.size
        assert TRANSACTION in add.path
    assert len(files_in(tmp_path)) == 3


def test_local_rows_are_written_by_this_process(engine, target):
    rows = [{"id": 1, "name": "a"}, {"id": 2, "name": None}]
    table = pa.Table.from_pylist(rows, schema=pa.schema([("id", pa.int32()), ("name", pa.string())]))

    for data in (table, table.to_pandas(), rows, table.to_reader()):
        adds = engine.write(data, target())
        assert written(adds, target()) == [row | {"born": None} for row in rows]


@pytest.mark.gate
def test_partitions(spark, engine, target):
    frame = spark.createDataFrame([(1, "a/b é"), (2, None), (3, "a/b é")], "id long, name string")
    to = target(partition_by=["name"])

    adds = engine.write(frame.coalesce(1), to)

    values = {add.partition_values["name"]: json.loads(add.stats)["numRecords"] for add in adds}
    assert values == {"a/b é": 2, None: 1}
    assert {row["id"] for row in written(adds, to)} == {1, 2, 3}


def test_no_rows_write_no_file(spark, engine, target, tmp_path):
    assert engine.write(spark.range(0).selectExpr("id"), target()) == []
    assert files_in(tmp_path) == []


@pytest.mark.gate
def test_types_survive(spark, engine, target):
    schema = StructType.from_json(
        spark.sql(
            """select cast(1 as byte) b, 1S s, 1 i, 1L l, 1.5F f, 2.5D d, true t, 1.25BD dec, 'x' str, x'01' bin,
            date'2020-02-29' dt, timestamp'2024-03-10 12:00:00.123456 UTC' ts,
            timestamp_ntz'2024-03-10 02:30:00' ntz, array(1, null) a, map('k', named_struct('x', 1)) m"""
        ).schema.jsonValue()
    )
    frame = spark.sql(
        """select cast(1 as byte) b, 1S s, 1 i, 1L l, 1.5F f, 2.5D d, true t, 1.25BD dec, 'x' str, x'01' bin,
        date'2020-02-29' dt, timestamp'2024-03-10 12:00:00.123456 UTC' ts,
        timestamp_ntz'2024-03-10 02:30:00' ntz, array(1, null) a, map('k', named_struct('x', 1)) m"""
    )
    to = target(schema)

    (add,) = engine.write(frame, to)

    with open_input(to.location, add.path) as file:
        assert frame.collect() == spark.createDataFrame(pq.read_table(file), frame.schema).collect()


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (["id", "'x' as other"], "other"),
        (["'x' as name"], "id"),
        (["'text' as id"], "id"),
        (["id", "id as ID"], "id"),
    ],
)
def test_columns_that_do_not_fit_are_refused_and_leave_no_file(
    spark, engine, target, tmp_path, columns, message
):
    frame = spark.range(10).selectExpr(*columns)

    with pytest.raises(SchemaMismatch, match=f"(?i)'{message}'"):
        engine.write(frame, target())

    assert files_in(tmp_path) == []


@pytest.mark.gate
def test_nulls_found_by_a_task_are_refused(spark, engine, target, tmp_path):
    for nulls in ("if(id = 77, null, id) as id", "cast(null as long) as id"):
        with pytest.raises(ConstraintViolation, match="NOT NULL constraint violated for column: id"):
            engine.write(spark.range(100).selectExpr(nulls), target())

    assert not [path for path in files_in(tmp_path) if TRANSACTION not in path.name]


def test_refused_storage_access_is_a_storage_error(spark, engine, target, tmp_path):
    (tmp_path / "table").write_text("a file where the table should be")

    with pytest.raises(StorageError):
        engine.write(spark.range(3), target())


# --- copy-on-write ------------------------------------------------------------------------------------------


@pytest.fixture
def scan(make_scan):
    rows = pa.table({"id": range(10), "name": ["x"] * 10})
    files = [
        {"name": "keeps some.parquet", "rows": rows, "values": {"p": "1"}, "deleted": [0, 3]},
        {"name": "untouched.parquet", "rows": rows.slice(0, 3), "values": {"p": "1"}},
        {"name": "all gone.parquet", "rows": rows.slice(5), "values": {"p": None}},
        {
            "name": "only the deleted.parquet",
            "rows": rows,
            "values": {"p": "2"},
            "deleted": list(range(3, 10)),
        },
    ]
    schema = pa.schema([("id", pa.int64()), ("name", pa.string()), ("p", pa.int32())])
    return make_scan(files, schema, partition_by=["p"])


GONE = {
    "keeps%20some.parquet": BitMap64(range(3, 10)),
    "untouched.parquet": BitMap64(),
    "all%20gone.parquet": BitMap64(range(5)),
    "only%20the%20deleted.parquet": BitMap64([9]),
}


def test_copies_leave_out_rows_deleted_before(engine, scan, target):
    to = target(scan.schema, partition_by=["p"])

    adds = engine.copy_rows(scan, GONE, to)

    assert [row["id"] for row in written(adds, to)] == [0, 0, 1, 1, 1, 2, 2, 2]
    assert {add.partition_values["p"] for add in adds} == {"1", "2"}


def test_nothing_is_written_if_no_row_is_left(engine, scan, target):
    everything = {path: BitMap64(range(10)) for path in scan.files["path"].to_pylist()}

    assert engine.copy_rows(scan, everything, target(scan.schema, partition_by=["p"])) == []


def test_a_copy_that_loses_a_row_is_not_committed(engine, scan, target, monkeypatch):
    genuine = copying.write_frame
    monkeypatch.setattr(copying, "write_frame", lambda frame, to: genuine(frame.limit(1), to))

    with pytest.raises(CorruptTable, match=r"copied 1 rows.*say 8"):
        engine.copy_rows(scan, GONE, target(scan.schema, partition_by=["p"]))


@pytest.mark.parametrize(("optimized", "files"), [("true", 4), ("false", 32)])
def test_optimized_writes_combine_many_tasks_into_few_files(engine, spark, target, optimized, files):
    schema = pa.schema([("id", pa.int64()), ("part", pa.int64())])
    frame = spark.range(800).repartition(8).selectExpr("id", "id % 4 part")
    table = target(schema, ["part"], **{"delta.autoOptimize.optimizeWrite": optimized})
    adds = engine.write(frame, table)
    assert len(adds) == files
    assert sum(json.loads(add.stats)["numRecords"] for add in adds) == 800
