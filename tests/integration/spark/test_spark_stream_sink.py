"""``df.writeStream.format("delvec")``: each row of a stream is in the table once, whatever fails in between."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pyspark.sql.datasource
import pytest

import delvec

pytestmark = [
    pytest.mark.spark,
    pytest.mark.full_on_spark("the gate has the main cases: each starts jobs of Spark"),
]

SCHEMA = "id long, name string"
HAS_SINK = hasattr(pyspark.sql.datasource, "DataSourceStreamArrowWriter")
"""PySpark 4.0 has no Arrow for streaming sinks."""


@pytest.fixture
def lake(spark, monkeypatch):
    """The service that Spark's own processes use, too."""
    monkeypatch.setenv("XDG_STATE_HOME", _state(spark))
    with delvec.connect() as connection:
        yield connection


def _state(spark):
    return spark._jvm.java.lang.System.getenv("XDG_STATE_HOME")


class Feed:
    """Input files, one for each batch."""

    def __init__(self, spark, folder):
        self._spark, self.folder = spark, folder
        folder.mkdir()

    def put(self, *rows):
        place = len(list(self.folder.iterdir()))
        lines = "".join(json.dumps({"id": number, "name": name}) + "\n" for number, name in rows)
        # Spark takes the oldest first, and must not see half a file.
        part = self.folder.parent / f"part-{place}"
        part.write_text(lines)
        os.utime(part, (place, place))
        part.rename(self.folder / f"{place:04}.json")

    def frame(self):
        return self._spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(self.folder))


@pytest.fixture
def feed(spark, tmp_path):
    return Feed(spark, tmp_path / "in")


def write(frame, place, checkpoint, *, mode="append", **options):
    """Write all available input, and wait for the query to end."""
    if not HAS_SINK:
        pytest.skip("writeStream.format('delvec') needs PySpark 4.1 or later")
    query = (
        frame.writeStream.format("delvec")
        .outputMode(mode)
        .option("checkpointLocation", str(checkpoint))
        .options(**options)
        .trigger(availableNow=True)
        .start(str(place))
    )
    query.awaitTermination()
    return query


def rows(table):
    return sorted((row["id"], row["name"]) for row in table.to_arrow().to_pylist())


@pytest.mark.full("the gate has the test of a batch that runs again")
def test_each_batch_is_one_version(lake, feed, tmp_path):
    place = tmp_path / "people"
    feed.put((1, "a"), (2, "é"))
    feed.put((3, None))
    query = write(feed.frame(), place, tmp_path / "checkpoint", userMetadata="by a stream")
    table = lake.table(place)
    assert rows(table) == [(1, "a"), (2, "é"), (3, None)]
    assert table.version() == 1  # version 0 created the table with the rows of the first batch
    last, first = table.history()
    assert first["operation"] == last["operation"] == "STREAMING UPDATE"
    assert last["userMetadata"] == "by a stream"
    assert last["operationParameters"] == {"outputMode": "Append", "queryId": query.id, "epochId": "1"}
    assert first["operationMetrics"].keys() == {
        "numAddedFiles",
        "numRemovedFiles",
        "numOutputRows",
        "numOutputBytes",
    }
    assert first["operationMetrics"]["numOutputRows"] == "2"
    # It resumes where it stopped.
    feed.put((4, "d"))
    write(feed.frame(), place, tmp_path / "checkpoint")
    assert rows(table) == [(1, "a"), (2, "é"), (3, None), (4, "d")]
    assert table.version() == 2


@pytest.mark.gate
def test_a_batch_that_runs_again_is_written_once(lake, feed, tmp_path):
    place, checkpoint = tmp_path / "people", tmp_path / "checkpoint"
    for number in range(3):
        feed.put((number, f"n{number}"))
    write(feed.frame(), place, checkpoint)
    table = lake.table(place)
    files = table.files()
    # As if Spark had been killed before it recorded the batch that is in the table.
    for name in ("2", ".2.crc"):
        (checkpoint / "commits" / name).unlink(missing_ok=True)
    feed.put((3, "n3"))
    write(feed.frame(), place, checkpoint)
    assert rows(table) == [(number, f"n{number}") for number in range(4)]
    assert table.version() == 3
    # Nor were its files written.
    assert len(list(place.glob("*.parquet"))) == len(files) + 1


def test_complete_mode_replaces_the_rows(lake, feed, tmp_path):
    place, checkpoint = tmp_path / "counts", tmp_path / "checkpoint"
    feed.put((1, "a"), (2, "b"), (3, "a"))
    counts = feed.frame().groupBy("name").count()
    write(counts, place, checkpoint, mode="complete")
    feed.put((4, "b"), (5, "c"))
    write(counts, place, checkpoint, mode="complete")
    table = lake.table(place)
    assert sorted(table.to_arrow().to_pylist(), key=lambda row: row["name"]) == [
        {"name": "a", "count": 2},
        {"name": "b", "count": 2},
        {"name": "c", "count": 1},
    ]
    assert table.version() == 1
    last = table.history(1)[0]
    assert last["operationParameters"]["outputMode"] == "Complete"
    assert last["operationMetrics"]["numRemovedFiles"] != "0"
    (checkpoint / "commits" / "1").unlink()
    (checkpoint / "commits" / ".1.crc").unlink(missing_ok=True)
    write(counts, place, checkpoint, mode="complete")
    assert table.version() == 1


def test_columns_are_added_if_the_stream_allows_it(lake, feed, tmp_path):
    place = tmp_path / "people"
    lake.create_table(place, "id long")
    feed.put((1, "a"))
    with pytest.raises(delvec.SchemaMismatch):
        write(feed.frame(), place, tmp_path / "refused")
    write(feed.frame(), place, tmp_path / "checkpoint", mergeSchema="true")
    table = lake.table(place)
    assert rows(table) == [(1, "a")]
    feed.put((2, "b"))
    write(feed.frame(), place, tmp_path / "checkpoint", mergeSchema="true")
    assert rows(table) == [(1, "a"), (2, "b")]


def test_constraints_apply_to_streams(lake, feed, tmp_path):
    place = tmp_path / "people"
    table = lake.create_table(place, "n long generated by default as identity, id long, name string")
    table.alter.add_constraint("positive", "id > 0")
    feed.put((1, "a"), (2, "b"))
    write(feed.frame(), place, tmp_path / "checkpoint")
    feed.put((3, "c"))
    feed.put((0, "zero"))
    with pytest.raises(Exception, match="positive"):
        write(feed.frame(), place, tmp_path / "checkpoint")
    assert rows(table) == [(1, "a"), (2, "b"), (3, "c")]
    assert len(set(table.to_arrow(["n"])["n"].to_pylist())) == 3


def test_an_application_may_have_a_name(lake, feed, tmp_path):
    place = tmp_path / "people"
    feed.put((1, "a"))
    write(feed.frame(), place, tmp_path / "one", txnAppId="import")
    # Another checkpoint makes another query, whose batches would be written again.
    write(feed.frame(), place, tmp_path / "other", txnAppId="import")
    assert rows(lake.table(place)) == [(1, "a")]


def test_partitions_of_a_table_that_a_stream_creates(lake, feed, tmp_path):
    place = tmp_path / "people"
    feed.put((1, "a"), (2, "b"))
    write(feed.frame(), place, tmp_path / "checkpoint", partitionBy="name")
    assert lake.table(place).detail()["partitionColumns"] == ["name"]
    with pytest.raises(Exception, match="partitioned by"):
        write(feed.frame(), place, tmp_path / "other", partitionBy="id")


def test_batches_written_by_foreach_batch_are_written_once(lake, feed, tmp_path):
    """The documented way with PySpark 4.0."""
    place, checkpoint = str(tmp_path / "people"), tmp_path / "checkpoint"

    def keep(batch, number):
        options = {"txnAppId": "people-copy", "txnVersion": str(number)}
        batch.write.format("delvec").mode("append").options(**options).save(place)

    def run():
        writer = feed.frame().writeStream.foreachBatch(keep).option("checkpointLocation", str(checkpoint))
        writer.trigger(availableNow=True).start().awaitTermination()

    feed.put((1, "a"))
    feed.put((2, "b"))
    run()
    for name in ("1", ".1.crc"):
        (checkpoint / "commits" / name).unlink(missing_ok=True)
    feed.put((3, "c"))
    run()
    assert rows(lake.table(place)) == [(1, "a"), (2, "b"), (3, "c")]


def test_unsupported_modes_and_options_are_refused(lake, feed, tmp_path):
    place = tmp_path / "people"
    lake.create_table(place, SCHEMA)
    feed.put((1, "a"))
    with pytest.raises(Exception, match="Update"):
        write(feed.frame(), place, tmp_path / "a", mode="update")
    for option in ("txnVersion", "replaceWhere", "partitionOverwriteMode", "nope"):
        with pytest.raises(Exception, match=option):
            write(feed.frame(), place, tmp_path / option, **{option: "1"})
    assert lake.table(place).version() == 0


CHILD = """
import json, sys
from pyspark.sql import SparkSession
folder = sys.argv[1]
spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.ui.enabled", "false").config("spark.sql.shuffle.partitions", "2")
    .config("spark.driver.host", "localhost").config("spark.sql.warehouse.dir", folder + "/warehouse")
    .getOrCreate()
)
frame = spark.readStream.schema("id long, name string").option("maxFilesPerTrigger", 1).json(folder + "/in")
query = (
    frame.repartition(2).writeStream.format("delvec").option("checkpointLocation", folder + "/checkpoint")
    .trigger(availableNow=True).start(folder + "/people")
)
query.awaitTermination()
"""


class Killable:
    """A driver with all its processes, JVM and Python, found by a marker in their environment."""

    def __init__(self, folder):
        self._mark = f"DELVEC_TEST_MARK={uuid.uuid4()}"
        name, _, value = self._mark.partition("=")
        environment = {**os.environ, name: value, "XDG_STATE_HOME": str(folder / "state")}
        self._log = (folder / f"log-{value}").open("wb")
        self.process = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(folder)],
            env={**environment, "PYSPARK_PYTHON": sys.executable},
            stdout=self._log,
            stderr=self._log,
        )

    def _pids(self):
        for folder in Path("/proc").iterdir():
            if folder.name.isdecimal():
                try:
                    if self._mark.encode() in (folder / "environ").read_bytes():
                        yield int(folder.name)
                except OSError:
                    continue  # gone, or another user's

    def kill(self):
        while pids := list(self._pids()):
            for pid in pids:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            self.process.poll()
        self.process.wait()
        self._log.close()

    def finish(self):
        code = self.process.wait()
        self.kill()
        return code


@pytest.mark.long("kills the driver of a stream again and again")
@pytest.mark.timeout(1800)
@pytest.mark.skipif(not HAS_SINK, reason="writeStream.format('delvec') needs PySpark 4.1 or later")
@pytest.mark.skipif(sys.platform != "linux", reason="processes are found by /proc")
@pytest.mark.skipif(
    not (os.environ.get("JAVA_HOME") or shutil.which("java")), reason="no Java: Spark needs Java 17 or later"
)
def test_a_killed_driver_loses_nothing_and_repeats_nothing(tmp_path):
    feed = Feed(None, tmp_path / "in")
    for number in range(5):
        feed.put(*((number * 10 + each, f"n{each}") for each in range(10)))
    log = tmp_path / "people" / "_delta_log"
    for versions in (1, 3):
        driver = Killable(tmp_path)
        try:
            # Between the table's commit and Spark's record of it, or a little later.
            while driver.process.poll() is None and not (log / f"{versions:020}.json").exists():
                time.sleep(0.005)
        finally:
            driver.kill()
    assert Killable(tmp_path).finish() == 0
    with delvec.connect(database_url=f"sqlite:///{tmp_path / 'state' / 'delvec' / 'embedded.db'}") as lake:
        table = lake.table(tmp_path / "people")
        assert sorted(table.to_arrow(["id"])["id"].to_pylist()) == list(range(50))
        assert table.version() == 4


def test_on_pyspark_4_0_the_error_names_the_alternative(monkeypatch):
    from delvec.spark_datasource.source import DelvecSource

    if HAS_SINK:
        monkeypatch.setitem(sys.modules, "delvec.spark_datasource.stream_sink", None)
    source = DelvecSource({"path": "t"})
    with pytest.raises(delvec.UnsupportedOperation, match="foreachBatch"):
        source.streamWriter(None, overwrite=False)
