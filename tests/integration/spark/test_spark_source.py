"""``spark.read.format("delvec")``: the rows of ``to_df()`` at one version, without registration or a visible token."""

import datetime as dt
import decimal
import pickle
import socket
import subprocess
import sys
import time
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

import delvec
from delvec.spark_datasource import source
from delvec.spark_datasource.input_partitions import cut
from delvec.spark_datasource.source import DelvecSource, _Options
from delvec_engines.spark.file_slices import read_slices
from delvec_engines.spark.scan import spark_schema
from delvec_kernel.schema.types import schema_from

pytestmark = [
    pytest.mark.spark,
    pytest.mark.full_on_spark("the gate has the main cases: each starts jobs of Spark"),
]

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("country", pa.string())])


def people(start, country, count=100):
    ids = range(start, start + count)
    return pa.table({"id": ids, "name": [f"n{i}" for i in ids], "country": [country] * count}, schema=SCHEMA)


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    with delvec.connect(database_url=f"sqlite:///{tmp_path_factory.mktemp('state')}/delvec.db") as lake:
        yield lake


@pytest.fixture
def table(lake, spark, tmp_path):
    """300 people of three countries in versions 1 to 3, of whom version 4 deletes every tenth."""
    location = str(tmp_path / "people é [1] 100%")
    table = lake.create_table(location, SCHEMA, partition_by=["country"], engine="duckdb")
    for number, country in enumerate(["NZ", "a=b/c é", None]):
        table.append(people(number * 100, country))
    table.delete("id % 10 = 3")
    on_spark = lake.table(location, engine=spark)
    on_spark.folder = location
    return on_spark


@pytest.fixture
def served(tmp_path):
    """A service in a separate process, which requires a token."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    token = "s3cr3t-t0ken"
    main = "from delvec.cli import main; main()"
    command = [sys.executable, "-c", main, "serve", "--port", str(port)]
    command += [
        "--roots",
        str(tmp_path),
        "--token",
        token,
        "--database-url",
        f"sqlite:///{tmp_path}/served.db",
    ]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        url = f"http://127.0.0.1:{port}"
        try:
            deadline = time.monotonic() + 60
            while True:
                try:
                    delvec.connect(url, token=token).tables()
                    break
                except delvec.ServiceUnavailable:
                    assert time.monotonic() < deadline
                    time.sleep(0.2)
            yield SimpleNamespace(url=url, token=token)
        finally:
            process.terminate()


def rows(frame):
    return sorted(frame.toArrow().to_pylist(), key=repr)


def test_rows_and_schema_equal_those_of_to_df(spark, table):
    frame = spark.read.format("delvec").load(table.folder)

    assert frame.schema == table.to_df().schema
    assert rows(frame) == rows(table.to_df())
    assert frame.count() == 270
    assert frame.filter("country is null and id < 205").select("name").collect() == [
        ("n200",),
        ("n201",),
        ("n202",),
        ("n204",),
    ]


def test_a_frame_stays_at_the_version_it_was_created_at(spark, table):
    frame = spark.read.format("delvec").load(table.folder)
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW people USING delvec OPTIONS (path '{table.folder}')")
    frame.createOrReplaceTempView("people_too")
    table.to_df().createOrReplaceTempView("people_as_well")
    table.delete("country = 'NZ'")  # a whole partition, for which no job is needed

    assert frame.count() == 270
    for view in ("people", "people_too", "people_as_well"):
        assert spark.sql(f"SELECT count(*), min(id) FROM {view}").collect() == [(270, 0)]
    assert spark.read.format("delvec").load(table.folder).count() == 180


@pytest.mark.parametrize("spelling", ["version", "versionAsOf", "timestamp", "timestampAsOf"])
@pytest.mark.gate
def test_time_travel(spark, table, spelling):
    moments = {entry["version"]: entry["timestamp"] for entry in table.history()}
    moment = dt.datetime.fromtimestamp(moments[2] / 1000, dt.UTC).isoformat()
    value = "2" if spelling.startswith("version") else moment

    assert spark.read.format("delvec").option(spelling, value).load(table.folder).count() == 200


def test_filters_of_one_query_do_not_reach_the_next(spark, table):
    """Spark would reuse the plan with the first query's filters, so the source must not accept them."""
    setting = "spark.sql.python.filterPushdown.enabled"
    spark.conf.set(setting, "true")
    try:
        frame = spark.read.format("delvec").load(table.folder)
        assert frame.filter("country = 'NZ' and id > 95").count() == 4
        assert frame.count() == 270
        few, many = frame.filter("id = 1"), frame.filter("id >= 100")
        assert (few.count(), many.count(), few.count()) == (1, 180, 1)
        assert few.join(many, "country", "outer").count() == 181
    finally:
        spark.conf.unset(setting)


def test_files_can_be_skipped(spark, table):
    reader = spark.read.format("delvec").option("skipFilesUnless", "country = 'NZ'")

    assert reader.load(table.folder).select("country").distinct().collect() == [("NZ",)]


def test_column_selection(spark, table):
    reader = spark.read.format("delvec")

    assert reader.option("columns", "NAME, id").load(table.folder).columns == ["name", "id"]
    pinned = spark.read.format("delvec").option("version", 4).schema("country string, id long")
    assert pinned.load(table.folder).filter("id = 1").collect() == [("NZ", 1)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"colour": "red"}, "no option 'colour'"),
        ({"version": "x"}, "whole number"),
        ({"version": "1", "timestamp": "2024-01-01"}, "not both"),
        ({"version": "1", "versionAsOf": "2"}, "twice"),
    ],
    ids=str,
)
def test_contradictory_options(options, message):
    with pytest.raises(delvec.BadRequest, match=message):
        _Options.of({"path": "people", **options})


@pytest.mark.parametrize(
    ("options", "schema", "message"),
    [
        ({"columns": "id,shoe", "version": "99"}, None, "Version 99 of table"),
        ({}, "id long", "option columns"),
        ({"version": "1"}, "id string", "leave out .schema"),
    ],
    ids=str,
)
def test_options_and_schemas_that_do_not_fit_the_table(spark, table, options, schema, message):
    reader = spark.read.format("delvec").options(**options)

    with pytest.raises(Exception, match=message):
        (reader if schema is None else reader.schema(schema)).load(table.folder).count()


def test_a_table_is_needed(spark, tmp_path):
    with pytest.raises(Exception, match="needs a table"):
        spark.read.format("delvec").load()
    with pytest.raises(delvec.NotADeltaTable):
        spark.read.format("delvec").load(str(tmp_path))


def test_tasks_share_files_by_bytes(make_scan):
    numbers = np.random.default_rng(0).integers(0, 2**60, 60_000)
    big = pa.table({"x": numbers})
    deleted = [0, 4_999, 5_000, 31_234, 59_999]
    options = {"row_group_size": 5_000, "compression": "none"}
    small = [{"name": f"{i}.parquet", "rows": pa.table({"x": [i]})} for i in range(3)]
    scan = make_scan(
        [{"name": "big.parquet", "rows": big, "deleted": deleted, "options": options}, *small], big.schema
    )

    few = list(cut(scan, scan.schema.names, 10 << 20))
    many = list(cut(scan, scan.schema.names, 100_000))

    assert [len(task.slices) for task in few] == [3, 1]
    assert len(many) > len(few) + 3
    expected = sorted([*np.delete(numbers, deleted).tolist(), 0, 1, 2])
    for tasks in (few, many):
        batches = [batch for task in tasks for batch in read_slices(task.read, task.slices)]
        assert sorted(pa.Table.from_batches(batches)["x"].to_pylist()) == expected


def test_columns_that_are_never_null(lake, spark, tmp_path):
    """Spark treats them as nullable, and PySpark 4.2 and later compare what tasks return with that."""
    folder = str(tmp_path / "strict")
    columns = (
        "id long not null, s struct<x: int not null, ys: array<struct<y: int not null>>>, day date not null"
    )
    table = lake.create_table(folder, columns, partition_by=["day"], engine=spark)
    table.append(
        spark.sql(
            "SELECT 1L id, named_struct('x', 2, 'ys', array(named_struct('y', 3))) s, DATE'2024-02-29' day"
        )
    )
    frame = spark.read.format("delvec").load(folder)

    assert rows(frame) == rows(table.to_df())
    described = [(item.name, item.dataType) for item in frame.schema]
    assert described == [(item.name, item.dataType) for item in table.to_df().schema]
    assert [item.nullable for item in frame.schema] == [True, True, True]
    assert not table.to_df().schema["id"].nullable
    day = dt.date(2024, 2, 29)
    assert rows(frame) == [{"id": 1, "s": {"x": 2, "ys": [{"y": 3}]}, "day": day}]
    assert spark.read.format("delvec").option("columns", "day,s").load(folder).count() == 1


def test_files_whose_schema_differs_from_the_tables(make_scan):
    """Missing columns, another order and case, narrower types, structs with fewer fields; only partition columns."""
    kind = pa.struct([("b", pa.int64()), ("a", pa.string())])
    schema = pa.schema([("id", pa.int64()), ("s", kind), ("p", pa.date32()), ("new", pa.list_(kind))])
    older = pa.table(
        {
            "S": pa.array([{"a": "x"}, None], pa.struct([("a", pa.string())])),
            "ID": pa.array([1, 2], pa.int32()),
        }
    )
    newer = pa.table({"new": pa.array([[{"b": 1, "a": "y"}], [None]], pa.list_(kind)), "id": [3, 4]})
    values = {"p": "2024-02-29"}
    scan = make_scan(
        [
            {"name": "a", "rows": older, "values": values, "deleted": [1]},
            {"name": "b", "rows": newer, "values": {"p": None}},
        ],
        schema,
        partition_by=["p"],
    )

    def rows(columns):
        chosen = scan.schema.select(columns)
        (task,) = cut(scan, columns, 64 << 20)
        return pa.Table.from_batches(read_slices(task.read, task.slices), chosen.to_arrow()).to_pylist()

    day, nothing = dt.date(2024, 2, 29), {"s": None, "p": None}
    assert rows(schema.names) == [
        {"id": 1, "s": {"b": None, "a": "x"}, "p": day, "new": None},
        {"id": 3, **nothing, "new": [{"b": 1, "a": "y"}]},
        {"id": 4, **nothing, "new": [None]},
    ]
    assert rows(["p"]) == [{"p": day}, {"p": None}, {"p": None}]
    (make_scan.folder / "b").unlink()
    with pytest.raises(delvec.MissingDataFile, match="'b' of table 'people'"):
        rows(["id"])
    (make_scan.folder / "a").write_bytes(b"PAR1 nothing PAR1")
    with pytest.raises(delvec.CorruptTable, match="'a' of table 'people'"):
        rows(["id"])


@pytest.mark.gate
def test_every_type(spark, lake, tmp_path):
    moment = dt.datetime(2024, 3, 10, 2, 30, 0, 123456)  # noqa: DTZ001 - the hour that New York leaves out
    deep = pa.struct([("a", pa.int32()), ("b", pa.list_(pa.struct([("c", pa.string())])))])
    columns = {
        "i8": pa.array([-128, None], pa.int8()),
        "i16": pa.array([-32768, None], pa.int16()),
        "i32": pa.array([-(2**31), None], pa.int32()),
        "i64": pa.array([2**63 - 1, None], pa.int64()),
        "f32": pa.array([1.5, None], pa.float32()),
        "f64": pa.array([float("-inf"), None], pa.float64()),
        "flag": pa.array([True, None]),
        "text": pa.array(["é\x00漢", None]),
        "bytes": pa.array([b"\x00\xff", None]),
        "day": pa.array([dt.date(1, 1, 1), None]),
        "at": pa.array([moment.replace(tzinfo=dt.UTC), None], pa.timestamp("us", "UTC")),
        "local": pa.array([moment, None], pa.timestamp("us")),
        "price": pa.array([decimal.Decimal("-12345678901234567890.123456789"), None], pa.decimal128(38, 9)),
        "deep": pa.array([{"a": 1, "b": [{"c": "x"}, None, {"c": None}]}, None], deep),
        "list": pa.array([[1, None, 3], None], pa.list_(pa.int64())),
        "map": pa.array([[("k", {"a": 2, "b": []})], None], pa.map_(pa.string(), deep)),
    }
    data = pa.table(columns)
    table = lake.create_table(str(tmp_path / "t"), data.schema, engine="duckdb")
    table.append(data)

    frame = spark.read.format("delvec").load(str(tmp_path / "t"))

    spark_table = lake.table(str(tmp_path / "t"), engine=spark)
    assert frame.schema == spark_table.to_df().schema
    assert frame.toArrow().to_pylist() == spark_table.to_df().toArrow().to_pylist()
    assert frame.count() == 2


# --- the token ----------------------------------------------------------------------------------------------


@pytest.mark.gate
def test_tasks_get_no_token():
    secret = "s3cr3t-t0ken"
    made = DelvecSource({"path": "p", "token": secret, "url": "http://localhost:9"})
    schema = schema_from(SCHEMA)
    made._pin = source._Pin(_Options.of(made.options), 1, schema)
    assert secret.encode() in pickle.dumps(made)  # planning needs it

    reader = made.reader(spark_schema(schema))

    assert secret.encode() not in pickle.dumps((made, reader))


def test_the_token_is_not_visible_anywhere(spark, table, capfd):
    secret = "s3cr3t-t0ken"
    options = {"url": "http://127.0.0.1:9", "token": secret}
    assert secret not in repr(_Options.of({"path": "p", **options}))
    assert secret not in repr(DelvecSource({"path": "p", **options}))
    with pytest.raises(Exception, match="cannot be reached") as caught:
        spark.read.format("delvec").options(**options).load(table.folder)
    assert secret not in str(caught.value)


def test_a_remote_service_set_by_options(spark, table, served, capfd):
    frame = spark.read.format("delvec").options(url=served.url, token=served.token).load(table.folder)

    assert frame.count() == 270
    frame.explain(extended=True)
    plan = str(frame._jdf.queryExecution()) + capfd.readouterr().out
    assert served.token not in plan
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW remote USING delvec "
        f"OPTIONS (path '{table.folder}', url '{served.url}', token '{served.token}')"
    )
    assert spark.table("remote").count() == 270
    spark.table("remote").explain(extended=True)
    assert served.token not in capfd.readouterr().out


def test_the_change_feed_is_read_in_one_batch(lake, spark, tmp_path):
    """As with delta-spark's readChangeFeed, both ends are inclusive."""
    location = str(tmp_path / "changing")
    table = lake.create_table(
        location, SCHEMA, partition_by=["country"], properties={"delta.enableChangeDataFeed": "true"}
    )
    table.append(people(0, "NZ", 4))
    table.update({"name": "'new'"}, "id = 1")
    table.delete("id = 2")

    def read(**options):
        reader = spark.read.format("delvec").option("readChangeFeed", "true")
        return reader.options(**options).load(location)

    frame = read(startingVersion=0)
    table.delete("id = 3")
    kinds = sorted((row.id, row._change_type, row._commit_version) for row in frame.collect())
    assert kinds == [
        (0, "insert", 1),
        (1, "insert", 1),
        (1, "update_postimage", 2),
        (1, "update_preimage", 2),
        (2, "delete", 3),
        (2, "insert", 1),
        (3, "insert", 1),
    ]
    expected = lake.table(location, engine=spark).changes_df(2, 3)
    assert read(startingVersion=2, endingVersion=3).exceptAll(expected).count() == 0
    assert read(startingVersion=2, endingVersion=3).count() == expected.count() == 3
    assert read(startingTimestamp="2020-01-01", columns="id,_change_type").columns == ["id", "_change_type"]
    assert read(startingVersion=4, endingVersion=9).count() == 1

    with pytest.raises(delvec.BadRequest, match="startingVersion"):
        read().collect()
    with pytest.raises(delvec.BadRequest, match="endingVersion"):
        read(startingVersion=0, version=2).collect()
    with pytest.raises(delvec.BadRequest, match="need readChangeFeed"):
        spark.read.format("delvec").option("startingVersion", 1).load(location).collect()
    stream = spark.readStream.format("delvec").option("readChangeFeed", "true").option("endingVersion", 2)
    query = (
        stream.load(location).writeStream.format("noop").option("checkpointLocation", str(tmp_path / "cp"))
    )
    with pytest.raises(delvec.BadRequest, match="a stream runs until it is stopped"):
        query.start().awaitTermination()
