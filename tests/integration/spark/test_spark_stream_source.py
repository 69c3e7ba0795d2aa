"""``spark.readStream.format("delvec")``: every row added to a table arrives once, whatever happens to the query."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException

import delvec
from delvec.spark import DeltaTable, use
from delvec.spark_datasource.stream_source import limits

pytestmark = [
    pytest.mark.spark,
    pytest.mark.full_on_spark("the gate has the main cases: each starts jobs of Spark"),
]

_ATTEMPTS = 20
SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("country", pa.string())])


def people(start, count, country="NZ"):
    ids = range(start, start + count)
    return pa.table({"id": ids, "name": [f"n{i}" for i in ids], "country": [country] * count}, schema=SCHEMA)


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    with delvec.connect(database_url=f"sqlite:///{tmp_path_factory.mktemp('state')}/delvec.db") as lake:
        yield lake


@pytest.fixture
def folder(tmp_path):
    return str(tmp_path / "people é [1] 100%")


class Job:
    """A query that is restarted repeatedly with one checkpoint, and keeps the rows of its batches."""

    def __init__(self, spark, folder, checkpoint, **options):
        self.spark, self.folder, self.checkpoint, self.options = spark, folder, str(checkpoint), options
        self.batches = {}

    def start(self, trigger, wait):
        """Start the query and wait for it; Spark gives its Python process ten seconds to start."""
        for attempt in range(_ATTEMPTS):
            frame = self.spark.readStream.format("delvec").options(**self.options).load(self.folder)
            writer = frame.writeStream.option("checkpointLocation", self.checkpoint).foreachBatch(self.keep)
            query = writer.trigger(**trigger).start()
            try:
                wait(query)
            except StreamingQueryException as error:
                if "failed to connect back" not in str(error) or attempt + 1 == _ATTEMPTS:
                    raise
            else:
                return query
        raise AssertionError

    def go_on(self):
        """Return the query once it has read all available rows."""
        return self.start({"processingTime": "0 seconds"}, lambda query: query.processAllAvailable())

    def keep(self, frame, number):
        self.batches[number] = frame.toArrow().to_pylist()

    def run(self):
        """Read and return all available rows."""
        known = set(self.batches)
        self.start({"availableNow": True}, lambda query: query.awaitTermination())
        return [row for number in sorted(set(self.batches) - known) for row in self.batches[number]]

    def sizes(self, **trigger):
        """Read what the trigger allows; return the number of rows in each batch."""
        known = set(self.batches)
        self.start(trigger, lambda query: query.awaitTermination())
        return [len(rows) for number, rows in sorted(self.batches.items()) if number not in known and rows]

    def ids(self):
        return sorted(row["id"] for row in self.run())


@pytest.fixture
def job(spark, folder, tmp_path):
    """``job(**options)`` creates a query on the table in ``folder``."""
    made = []

    def make(**options):
        made.append(Job(spark, folder, tmp_path / f"checkpoint {len(made)}", **options))
        return made[-1]

    return make


def test_a_query_is_started_again_and_again(lake, folder, job):
    """Partitions, deletion vectors, a refused version, an added column: each run resumes where the last one stopped."""
    table = lake.create_table(folder, SCHEMA, partition_by=["country"], engine="duckdb")
    for start, country in ((0, "NZ"), (100, "a=b/c é"), (200, None)):
        table.append(people(start, 20, country))
    table.delete("id % 10 = 3")
    query = job()

    assert sorted(query.run(), key=repr) == sorted(table.to_arrow().to_pylist(), key=repr)
    table.append(people(300, 5))
    table.append(people(310, 5, None))
    assert query.ids() == [*range(300, 305), *range(310, 315)]
    table.delete("id < 5")
    with pytest.raises(delvec.SourceRowsChanged, match=r"Version 7 .*ignoreDeletes"):
        query.run()
    query.options = {"ignoreDeletes": "true"}
    running = query.go_on()
    table.alter.add_columns("age int")
    with pytest.raises(delvec.StreamSchemaChanged, match=r"restart the query"):
        running.awaitTermination()
    table.append(people(400, 2).append_column("age", pa.array([1, 2], pa.int32())))
    assert [(row["id"], row["age"]) for row in query.run()] == [(400, 1), (401, 2)]


def test_batches_respect_max_files_per_trigger(lake, folder, job):
    table = lake.create_table(folder, SCHEMA, engine="duckdb")
    for number in range(5):
        table.append(people(number * 10, 10))
    limited = job(maxFilesPerTrigger="2")

    query = limited.go_on()
    table.append(people(50, 10))
    query.processAllAvailable()
    query.stop()

    found = [rows for _, rows in sorted(limited.batches.items()) if rows]
    assert [len(rows) for rows in found] == [20, 20, 10, 10]
    assert sorted(row["id"] for rows in found for row in rows) == list(range(60))


@pytest.mark.parametrize("option", [{"maxFilesPerTrigger": "2"}, {"maxBytesPerTrigger": "1"}])
def test_limits_and_available_now(lake, folder, job, option):
    """Before PySpark 4.2 such a query ends after one batch, and the next run continues."""
    table = lake.create_table(folder, SCHEMA, engine="duckdb")
    for number in range(3):
        table.append(people(number * 10, 10))
    sizes = [20, 10] if "maxFilesPerTrigger" in option else [10, 10, 10]

    limited = job(**option)
    if limits is None:
        assert [limited.sizes(availableNow=True) for _ in sizes] == [[size] for size in sizes]
        assert job(**option).sizes(once=True) == sizes[:1]
    else:
        assert limited.sizes(availableNow=True) == sizes
        assert job(**option).sizes(once=True) == [30]
    assert limited.sizes(availableNow=True) == []
    assert sorted(row["id"] for rows in limited.batches.values() for row in rows) == list(range(30))


def test_rows_added_meanwhile_are_left_to_the_next_run(lake, folder, job):
    table = lake.create_table(folder, SCHEMA, engine="duckdb")
    table.append(people(0, 10))
    table.append(people(10, 10))
    query = job(maxFilesPerTrigger="1")
    keep = query.keep

    def add(frame, number):
        keep(frame, number)
        if number == 0:
            table.append(people(20, 10))

    query.keep = add
    first = query.ids()
    assert first == list(range(10 if limits is None else 20))
    rest = [number for _ in range(3) for number in query.ids()]
    assert first + rest == list(range(30))


def test_a_table_that_follows_another_by_merge(lake, spark, folder, tmp_path, job):
    table = lake.create_table(folder, SCHEMA, engine="duckdb")
    copy = str(tmp_path / "copy")
    use(lake)
    lake.create_table(copy, SCHEMA, engine=spark)
    query = job(skipChangeCommits="true")

    def upsert(frame, number):
        target = DeltaTable.forPath(spark, copy).alias("t")
        merge = target.merge(frame.alias("s"), "t.id = s.id")
        merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()

    query.keep = upsert
    table.append(people(0, 10))
    query.run()
    table.append(people(5, 10, "UA"))
    query.run()

    found = {row["id"]: row["country"] for row in lake.table(copy).to_arrow().to_pylist()}
    assert found == {i: "NZ" if i < 5 else "UA" for i in range(15)}


def test_a_query_that_is_killed_goes_on_where_it_was(lake, spark, folder, tmp_path):
    """The interrupted batch is planned again with the same files, though the table has grown since."""
    table = lake.create_table(folder, SCHEMA, engine="duckdb")
    for number in range(6):
        table.append(people(number * 10, 10))
    table.delete("id = 55")
    results, checkpoint = tmp_path / "results", tmp_path / "checkpoint"
    script = Path(__file__).with_name("killed_stream.py")
    command = [sys.executable, str(script), folder, str(results), str(checkpoint)]
    environment = {key: value for key, value in os.environ.items() if key != "SPARK_REMOTE"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, env=environment, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr[-3000:]
    committed, logged = (
        {path.name for path in (checkpoint / kind).iterdir() if path.name.isdigit()}
        for kind in ("commits", "offsets")
    )
    assert logged - committed == {"2"}
    before = spark.read.parquet(str(results / "batch=2")).toArrow().to_pylist()
    table.append(people(100, 10))

    def keep(frame, number):
        frame.write.mode("overwrite").parquet(str(results / f"batch={number}"))

    query = Job(spark, folder, checkpoint, maxFilesPerTrigger="1")
    query.keep = keep
    query.go_on().stop()

    assert spark.read.parquet(str(results / "batch=2")).toArrow().to_pylist() == before
    ids = sorted(row.id for row in spark.read.parquet(str(results)).collect())
    assert ids == [i for i in [*range(60), *range(100, 110)] if i != 55]
