"""``df.write.format("delvec")``: rows become files of a table in tasks, and one commit of the driver.

Most tests do what Spark does, without it: the writer is made, sent to tasks, and a copy of it commits.
"""

import pickle

import pyarrow as pa
import pytest

import delvec
from delvec.engines.pyspark.scan import spark_schema
from delvec.engines.pyspark.sink import DelvecWriter, WriteRequest
from delvec.protocol.types import schema_from

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("country", pa.string())])


@pytest.fixture(autouse=True)
def _own_state(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
    for name in ("DELVEC_URL", "DELVEC_TOKEN", "DELVEC_DATABASE_URL"):
        monkeypatch.delenv(name, raising=False)


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
    """Write batches, one per task, as Spark calls the parts."""
    request = WriteRequest.of({"path": str(place), **options})
    writer = DelvecWriter(request, spark_schema(schema_from(tasks[0].schema)), overwrite=overwrite)
    sent = pickle.dumps(writer)
    messages = [pickle.loads(pickle.dumps(pickle.loads(sent).write(iter([batch])))) for batch in tasks]
    pickle.loads(sent).commit([*messages, None])


def ids(table):
    return sorted(table.to_arrow(["id"])["id"].to_pylist())


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


def test_schemas_change_with_the_rows(people, tmp_path):
    place = tmp_path / "people"
    wider = pa.schema([*SCHEMA, ("is_new", pa.bool_())])
    write(place, rows((9, "nine", "NZ", True), schema=wider), mergeSchema="true")
    assert people.schema().names == ["id", "name", "country", "is_new"]
    other = pa.schema([("id", pa.int64()), ("country", pa.string())])
    write(place, rows((1, "NZ"), schema=other), overwrite=True, overwriteSchema="true")
    assert people.schema().names == ["id", "country"]
    assert ids(people) == [1]


def test_a_batch_of_an_application_is_written_once(people, tmp_path):
    for _ in range(2):
        write(tmp_path / "people", rows((10, "a", "NZ")), txnAppId="job", txnVersion="3")
    assert ids(people) == [0, 1, 2, 3, 10]


def test_a_table_that_is_not_there_is_created(lake, tmp_path):
    write(tmp_path / "new", rows((1, "a", "NZ")))
    assert lake.table(tmp_path / "new").to_arrow().to_pylist() == [{"id": 1, "name": "a", "country": "NZ"}]


def test_errors_of_tasks_arrive_typed_and_nothing_is_committed(people, lake, tmp_path):
    more = pa.schema([*SCHEMA, ("more", pa.int32())])
    with pytest.raises(delvec.SchemaMismatch):
        write(tmp_path / "people", rows((1, "x", "NZ", 1), schema=more))
    strict = lake.create_table(tmp_path / "strict", "id long NOT NULL, name string, country string")
    with pytest.raises(delvec.ConstraintViolation):
        write(tmp_path / "strict", rows((1, "x", "NZ")), rows((None, "x", "NZ")))
    assert strict.version() == 0
    assert people.version() == 1


def test_an_aborted_job_leaves_the_table_as_it_was(people, tmp_path):
    request = WriteRequest.of({"path": str(tmp_path / "people")})
    writer = DelvecWriter(request, spark_schema(schema_from(SCHEMA)), overwrite=False)
    writer.abort([writer.write(iter([rows((10, "a", "NZ"))])), None])
    assert people.version() == 1
    assert ids(people) == [0, 1, 2, 3]


def test_what_tasks_cannot_evaluate_is_refused(people, tmp_path):
    people.alter.add_constraint("positive", "id >= 0")
    with pytest.raises(delvec.UnsupportedOperation, match="CHECK constraints"):
        write(tmp_path / "people", rows((1, "x", "NZ")))


def test_options_are_checked():
    for given, text in (
        ({}, "needs a table"),
        ({"path": "t", "nope": "1"}, "has no option 'nope'"),
        ({"path": "t", "mergeSchema": "yes"}, "true or false"),
        ({"path": "t", "txnAppId": "a"}, "belong together"),
        ({"path": "t", "txnAppId": "a", "txnVersion": "x"}, "whole number"),
        ({"path": "t", "replaceWhere": "id = 1"}, "replace_where"),
    ):
        with pytest.raises(delvec.BadRequest, match=text):
            WriteRequest.of(given)
    request = WriteRequest.of({"PATH": "t", "token": "s3cr3t", "MERGESCHEMA": "TRUE"})
    assert request.merge_schema
    assert "s3cr3t" not in repr(request)


def test_overwrite_schema_goes_with_overwrite(people, tmp_path):
    with pytest.raises(delvec.BadRequest, match="overwrite"):
        write(tmp_path / "people", rows((1, "x", "NZ")), overwriteSchema="true")


def test_tasks_get_no_token(people, tmp_path):
    writer = DelvecWriter(
        WriteRequest(str(tmp_path / "people")), spark_schema(schema_from(SCHEMA)), overwrite=False
    )
    writer._request = WriteRequest(str(tmp_path / "people"), token="s3cr3t")
    assert b"s3cr3t" not in pickle.dumps(writer)


@pytest.mark.spark
def test_spark_writes_by_it(people, spark, tmp_path):
    more = spark.range(10, 30, 1, 2).selectExpr("id", "concat('n', id) AS name", "'NZ' AS country")
    more.write.format("delvec").mode("append").option("userMetadata", "by Spark").save(
        str(tmp_path / "people")
    )
    assert people.version() == 2
    assert people.count() == 24
    assert people.history(1)[0]["userMetadata"] == "by Spark"


def test_numbers_of_rows_are_refused_because_tasks_do_not_know_of_each_other(lake, tmp_path):
    place = tmp_path / "numbered"
    table = lake.create_table(place, "n long generated by default as identity, id long")
    some = pa.schema([("id", pa.int64())])
    with pytest.raises(delvec.UnsupportedOperation, match="identity"):
        write(place, rows((1,), (2,), schema=some), rows((3,), (4,), schema=some))
    assert table.version() == 0
