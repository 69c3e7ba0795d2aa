"""``df.write.format("delvec")``: rows become files of a table in tasks, and one commit of the driver.

Most tests do without Spark what it does: create the writer, pickle it for tasks, and commit with a copy.
"""

import datetime as dt
import pickle
import shutil
import sys
import tempfile
from contextlib import contextmanager
from types import SimpleNamespace

import pyarrow as pa
import pytest
from tests.support.tables import ids

import delvec
from delvec.spark_datasource import sink
from delvec.spark_datasource.sink import DelvecWriter
from delvec.spark_datasource.sink_options import WriteRequest
from delvec_engines.spark.scan import spark_schema
from delvec_kernel.schema.types import schema_from

pytestmark = pytest.mark.full_on_spark("the gate has the main cases: each starts jobs of Spark")

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("country", pa.string())])


@pytest.fixture(autouse=True)
def _own_state(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
    for name in ("DELVEC_URL", "DELVEC_TOKEN", "DELVEC_DATABASE_URL"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def quiet(monkeypatch):
    """No background writes after a commit, which could recreate a removed folder."""
    monkeypatch.setenv("DELVEC_LOG_MAINTENANCE", "false")


@pytest.fixture
def lake():
    with delvec.connect() as connection:
        yield connection


@pytest.fixture
def people(lake, tmp_path):
    table = lake.create_table(tmp_path / "people", SCHEMA, partition_by=["country"])
    table.append([{"id": n, "name": f"n{n}", "country": "NZ" if n % 2 else "DE"} for n in range(4)])
    return table


def rows(*given, schema=SCHEMA):
    return pa.RecordBatch.from_pylist([dict(zip(schema.names, row, strict=True)) for row in given], schema)


def write(place, *tasks, overwrite=False, **options):
    """Write batches, one per task, calling the writer as Spark does."""
    request = WriteRequest.of({"path": str(place), **options}, overwrite=overwrite)
    made = DelvecWriter(request, spark_schema(schema_from(tasks[0].schema)), overwrite=overwrite)
    sent = pickle.dumps(made)
    messages = []
    for number, batch in enumerate(tasks):
        with as_task(number):
            messages.append(pickle.loads(pickle.dumps(pickle.loads(sent).write(iter([batch])))))
    pickle.loads(sent).commit([*messages, None])


def writer(place, schema=SCHEMA, **options):
    request = WriteRequest.of({"path": str(place), **options}, overwrite=False)
    return DelvecWriter(request, spark_schema(schema_from(schema)), overwrite=False)


@contextmanager
def as_task(number):
    """Stand in for the task context of that partition."""
    with pytest.MonkeyPatch.context() as patch:
        context = SimpleNamespace(partitionId=lambda: number, getLocalProperty={}.get)
        patch.setattr(sink.TaskContext, "get", lambda: context)
        yield


def test_append(people, tmp_path):
    write(tmp_path / "people", rows((10, "a", "NZ")), rows((11, "b", "DE")), userMetadata="by Spark")
    assert ids(people) == [0, 1, 2, 3, 10, 11]
    assert people.version() == 2
    assert people.history(1)[0]["userMetadata"] == "by Spark"


def test_overwrite(people, tmp_path):
    place = tmp_path / "people"
    write(place, rows((7, "seven", "NZ")), overwrite=True, partitionOverwriteMode="DYNAMIC")
    assert ids(people) == [0, 2, 7]
    write(place, rows((8, "eight", "NZ")), overwrite=True)
    assert ids(people) == [8]
    assert people.version() == 3


def test_schema_evolution(people, tmp_path):
    place = tmp_path / "people"
    wider = pa.schema([*SCHEMA, ("is_new", pa.bool_())])
    write(place, rows((9, "nine", "NZ", True), schema=wider), mergeSchema="true")
    assert people.schema().names == ["id", "name", "country", "is_new"]
    other = pa.schema([("id", pa.int64()), ("country", pa.string())])
    write(place, rows((1, "NZ"), schema=other), overwrite=True, overwriteSchema="true")
    assert people.schema().names == ["id", "country"]
    assert ids(people) == [1]


def test_a_batch_with_an_application_id_is_written_once(people, tmp_path):
    for _ in range(2):
        write(tmp_path / "people", rows((10, "a", "NZ")), txnAppId="job", txnVersion="3")
    assert ids(people) == [0, 1, 2, 3, 10]


def test_a_missing_table_is_created(lake, tmp_path):
    strict = pa.schema([field.with_nullable(False) for field in SCHEMA])
    write(tmp_path / "new", rows((1, "a", "NZ"), schema=strict))
    table = lake.table(tmp_path / "new")
    assert table.to_arrow().to_pylist() == [{"id": 1, "name": "a", "country": "NZ"}]
    assert all(field.nullable for field in table.schema())


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_table_whose_folder_is_gone_is_created_again(quiet, people, tmp_path, overwrite):
    shutil.rmtree(tmp_path / "people")
    with pytest.raises(delvec.NotADeltaTable):
        people.append([{"id": 1, "name": "a", "country": "NZ"}])

    write(tmp_path / "people", rows((1, "a", "NZ")), overwrite=overwrite)

    assert people.to_arrow().to_pylist() == [{"id": 1, "name": "a", "country": "NZ"}]
    assert people.version() == 0


def test_task_errors_arrive_typed_and_nothing_is_committed(people, lake, tmp_path):
    more = pa.schema([*SCHEMA, ("more", pa.int32())])
    with pytest.raises(delvec.SchemaMismatch):
        write(tmp_path / "people", rows((1, "x", "NZ", 1), schema=more))
    strict = lake.create_table(tmp_path / "strict", "id long NOT NULL, name string, country string")
    with pytest.raises(delvec.ConstraintViolation):
        write(tmp_path / "strict", rows((1, "x", "NZ")), rows((None, "x", "NZ")))
    assert strict.version() == 0
    assert people.version() == 1


def test_an_aborted_job_leaves_the_table_as_it_was(people, tmp_path):
    made = writer(tmp_path / "people")
    made.abort([made.write(iter([rows((10, "a", "NZ"))])), None])
    assert people.version() == 1
    assert ids(people) == [0, 1, 2, 3]


def test_constraints_and_generated_columns_are_evaluated_in_tasks(lake, tmp_path):
    place = tmp_path / "orders"
    columns = "id long, price long, doubled long GENERATED ALWAYS AS (price * 2)"
    table = lake.create_table(place, columns)
    table.alter.add_constraint("positive", "id >= 0")
    some = pa.schema([("id", pa.int64()), ("price", pa.int64())])
    write(place, rows((1, 15), schema=some), rows((2, None), schema=some))
    assert sorted(table.to_arrow().to_pylist(), key=lambda row: row["id"]) == [
        {"id": 1, "price": 15, "doubled": 30},
        {"id": 2, "price": None, "doubled": None},
    ]
    with pytest.raises(delvec.ConstraintViolation, match="positive") as caught:
        write(place, rows((3, None), schema=some), rows((-4, None), schema=some))
    assert caught.value.details["values"]["id"] == "-4"
    more = rows((3, 1, 3), schema=pa.schema([*some, ("doubled", pa.int64())]))
    with pytest.raises(delvec.ConstraintViolation, match="Generated Column"):
        write(place, more)
    assert table.count() == 2


def test_expressions_only_spark_can_evaluate_are_refused_before_tasks_start(people, tmp_path):
    request = WriteRequest.of({"path": str(tmp_path / "people"), "replaceWhere": "soundex(name) = 'x'"})
    with pytest.raises(delvec.UnsupportedWriterFeature, match=r"table\.overwrite"):
        DelvecWriter(request, spark_schema(schema_from(SCHEMA)), overwrite=True)
    assert people.version() == 1


NOON = dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC)


def events(zone, *hours):
    """Rows as Spark passes them in a session with that time zone."""
    kind = pa.timestamp("us", zone)
    times = [NOON + dt.timedelta(hours=hour) for hour in hours]
    return pa.record_batch({"id": pa.array(hours, pa.int64()), "at": pa.array(times, kind)})


@pytest.mark.parametrize(
    "where", ["at >= '2026-01-31'", "CAST(at AS DATE) = DATE'2026-01-31'", "hour(at) BETWEEN 0 AND 23"]
)
def test_replace_where_in_local_time_removes_no_rows_of_other_hours(where, lake, tmp_path):
    """In New York the day begins five hours after UTC's."""
    place = tmp_path / "events"
    table = lake.create_table(place, "id long, at timestamp")
    table.append(pa.Table.from_batches([events("UTC", -10, 0)]))
    new = events("America/New_York", 1)
    with pytest.raises(delvec.UnsupportedWriterFeature, match=r"replaceWhere .* America/New_York"):
        write(place, new, overwrite=True, replaceWhere=where)
    assert ids(table) == [-10, 0]
    write(place, events("Etc/UTC", 1), overwrite=True, replaceWhere=where)
    assert ids(table) == [1]


def test_expressions_independent_of_time_zone_are_evaluated_in_any(lake, tmp_path):
    place = tmp_path / "events"
    columns = (
        "id long, at timestamp, seen timestamp GENERATED ALWAYS AS (at), n long GENERATED ALWAYS AS (id + 1)"
    )
    table = lake.create_table(place, columns)
    table.alter.add_constraint("order", "at <= seen AND at IS NOT NULL")
    table.alter.add_constraint(
        "new", "at > TIMESTAMP'2020-01-01 00:00:00Z' AND at < '2050-01-01T00:00:00+01:00'"
    )
    write(
        place,
        events("Asia/Kathmandu", 1),
        overwrite=True,
        replaceWhere="at > '2026-01-31 12:00:00Z' AND id = 1",
    )
    assert ids(table) == [1]


def test_a_generated_day_is_not_that_of_another_time_zone(lake, tmp_path):
    place = tmp_path / "events"
    table = lake.create_table(place, "id long, at timestamp, day date GENERATED ALWAYS AS (CAST(at AS DATE))")
    with pytest.raises(delvec.UnsupportedWriterFeature, match=r"CAST\(at AS DATE\)"):
        write(place, events("Asia/Tokyo", 9))
    write(place, events("UTC", 9))
    assert [str(day) for day in table.to_arrow()["day"].to_pylist()] == ["2026-01-31"]


def test_a_default_only_matters_if_it_is_used(lake, tmp_path):
    place = tmp_path / "events"
    table = lake.create_table(place, "id long, at timestamp, seen timestamp DEFAULT '2026-01-31 00:00:00'")
    given = events("Asia/Tokyo", 9)
    with pytest.raises(delvec.UnsupportedWriterFeature, match="Asia/Tokyo"):
        write(place, given)
    write(place, given.append_column("seen", given["at"]))
    (row,) = table.to_arrow().to_pylist()
    assert row["at"] == row["seen"] == NOON + dt.timedelta(hours=9)


def test_without_duckdb_the_error_says_so(people, tmp_path, monkeypatch):
    people.alter.add_constraint("positive", "id >= 0")
    monkeypatch.setitem(sys.modules, "delvec_engines.duckdb.write", None)
    with pytest.raises(delvec.EngineUnavailable, match="CHECK constraints"):
        writer(tmp_path / "people")


def test_rows_that_match_a_condition_are_replaced(people, tmp_path):
    place = tmp_path / "people"
    write(place, rows((10, "x", "NZ")), overwrite=True, replaceWhere="country = 'NZ'")
    assert ids(people) == [0, 2, 10]
    # Some rows of one file are removed, the others stay.
    write(place, rows((1, "y", "DE"), (2, "z", "DE")), overwrite=True, replaceWhere="id < 3 AND id > 0")
    assert ids(people) == [0, 1, 2, 10]
    last = people.history(1)[0]
    assert last["operationParameters"]["predicate"] == "id < 3 AND id > 0"
    assert last["operationMetrics"]["numDeletedRows"] == "1"
    with pytest.raises(delvec.ConstraintViolation, match="replace_where") as caught:
        write(place, rows((1, "a", "NZ"), (7, "b", "DE")), overwrite=True, replaceWhere="country = 'NZ'")
    assert caught.value.details["constraint"] == "replace_where"
    assert people.version() == 3


def test_identity_values_are_assigned_in_tasks(lake, tmp_path):
    place = tmp_path / "numbered"
    table = lake.create_table(
        place, "n long generated always as identity (start with 10 increment by -3), id long"
    )
    some = pa.schema([("id", pa.int64())])
    write(place, rows((1,), (2,), schema=some), rows((3,), (4,), schema=some), rows((5,), schema=some))
    write(place, rows((6,), schema=some))
    found = {row["id"]: row["n"] for row in table.to_arrow().to_pylist()}
    assert len(set(found.values())) == 6
    assert [found[1], found[2]] == [10, 7]
    assert found[3] - found[4] == 3
    assert found[6] < min(number for each, number in found.items() if each < 6)
    assert all((number - 10) % 3 == 0 for number in found.values())
    with pytest.raises(delvec.SchemaMismatch, match="GENERATED ALWAYS"):
        write(place, rows((1, 1), schema=pa.schema([("n", pa.int64()), ("id", pa.int64())])))


def test_a_task_beyond_the_identity_ranges_is_refused(lake, tmp_path):
    lake.create_table(tmp_path / "numbered", "n long generated by default as identity, id long")
    made = writer(tmp_path / "numbered", pa.schema([("id", pa.int64())]))
    with as_task(1 << 16):
        message = made.write(iter([rows((1,), schema=pa.schema([("id", pa.int64())]))]))
    with pytest.raises(delvec.UnsupportedOperation, match="65536 tasks"):
        made.commit([message])


def test_a_created_table_may_be_partitioned(lake, people, tmp_path):
    write(tmp_path / "new", rows((1, "a", "NZ")), partitionBy="country, name")
    assert lake.table(tmp_path / "new").detail()["partitionColumns"] == ["country", "name"]
    with pytest.raises(delvec.BadRequest, match="partitioned by"):
        write(tmp_path / "people", rows((1, "a", "NZ")), partitionBy="name")
    write(
        tmp_path / "people", rows((1, "a", "NZ")), overwrite=True, partitionBy="name", overwriteSchema="true"
    )
    assert people.detail()["partitionColumns"] == ["name"]


def test_options_are_checked():
    for given, text in (
        ({}, "needs a table"),
        ({"path": "t", "nope": "1"}, "has no write option 'nope'"),
        ({"path": "t", "mergeSchema": "yes"}, "true or false"),
        ({"path": "t", "txnAppId": "a"}, "must be given together"),
        ({"path": "t", "txnAppId": "a", "txnVersion": "x"}, "whole number"),
        ({"path": "t", "replaceWhere": "id = 1", "partitionOverwriteMode": "dynamic"}, "not both"),
        ({"path": "t", "partitionOverwriteMode": "sometimes"}, "static"),
        ({"path": "t", "checkpointLocation": "c"}, "has no write option 'checkpointLocation'"),
    ):
        with pytest.raises(delvec.BadRequest, match=text):
            WriteRequest.of(given)
    for name in ("overwriteSchema", "replaceWhere"):
        with pytest.raises(delvec.BadRequest, match="overwrite"):
            WriteRequest.of({"path": "t", name: "true"}, overwrite=False)
    with pytest.raises(delvec.UnsupportedOperation, match="TEMPORARY VIEW"):
        WriteRequest.of({"path": "t", "owner": "somebody", "provider": "delvec"})
    request = WriteRequest.of({"PATH": "t", "token": "s3cr3t", "MERGESCHEMA": "TRUE"})
    assert request.merge_schema
    assert "s3cr3t" not in repr(request)


def test_tasks_get_no_token_and_a_crash_leaves_none(people, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    made = writer(tmp_path / "people")
    made._request = WriteRequest(str(tmp_path / "people"), token="s3cr3t-t0ken")
    made._secret = sink._Secret("s3cr3t-t0ken")
    sent = pickle.dumps(made)
    (left,) = tmp_path.glob("delvec-*")
    assert b"s3cr3t-t0ken" not in sent
    assert b"s3cr3t-t0ken" not in left.read_bytes()
    assert left.stat().st_mode & 0o777 == 0o600
    assert pickle.loads(sent)._secret.take() == "s3cr3t-t0ken"
    assert not left.exists()


@pytest.mark.spark
@pytest.mark.gate
def test_spark_writes_through_the_sink(people, spark, tmp_path):
    more = spark.range(10, 30, 1, 2).selectExpr("id", "concat('n', id) AS name", "'NZ' AS country")
    more.write.format("delvec").mode("append").option("userMetadata", "by Spark").save(
        str(tmp_path / "people")
    )
    assert people.version() == 2
    assert people.count() == 24
    assert people.history(1)[0]["userMetadata"] == "by Spark"


@pytest.mark.spark
def test_tasks_know_the_sessions_time_zone(lake, spark, tmp_path):
    lake.create_table(tmp_path / "events", "id long, at timestamp")
    zone = spark.conf.get("spark.sql.session.timeZone")
    assert zone != "UTC"
    given = spark.sql("SELECT 1L AS id, timestamp'2026-01-31 12:00:00' AS at").write.format("delvec")
    given = given.mode("overwrite").option("replaceWhere", "at >= '2026-01-31'")
    with pytest.raises(Exception, match=f"replaceWhere.*{zone}"):
        given.save(str(tmp_path / "events"))
