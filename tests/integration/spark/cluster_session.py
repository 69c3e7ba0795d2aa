"""Run by test_spark_cluster in a separate process: executors are processes that have only the package."""

import sys
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

import delvec
from delvec.spark import DeltaTable, use
from delvec_engines.spark import SparkEngine, vector_tasks

_EXECUTORS = 2


def session(folder):
    nowhere = "/dev/null/nowhere"
    spark = (
        SparkSession.builder.master(f"local-cluster[{_EXECUTORS},1,1024]")
        .config("spark.driver.host", "localhost")
        .config("spark.driver.memory", "512m")
        .config("spark.executor.memory", "512m")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.local.dir", str(folder / "local"))
        # A task that looks for the service finds neither a running one nor a folder to start one in.
        .config("spark.executorEnv.DELVEC_URL", "http://127.0.0.1:9")
        .config("spark.executorEnv.XDG_STATE_HOME", nowhere)
        .config("spark.executorEnv.HOME", nowhere)
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    return spark


def main(folder):
    spark = session(folder)
    with delvec.connect() as lake:
        use(lake)
        try:
            check_executors(spark)
            check_commands(spark, lake, folder / "people")
            check_data_source(spark, lake, folder / "written")
            check_stream(spark, lake, folder)
        finally:
            use(None)
    spark.stop()


def check_executors(spark):
    """Tasks run in other processes and cannot reach a service."""

    def of_task(batches):
        import os

        for _ in batches:
            yield pa.RecordBatch.from_pydict({"pid": [os.getpid()], "url": [os.environ.get("DELVEC_URL")]})

    found = (
        spark.range(0, 8, 1, 4).mapInArrow(of_task, "pid long, url string").distinct().toArrow().to_pydict()
    )
    assert set(found["url"]) == {"http://127.0.0.1:9"}
    assert len(set(found["pid"])) >= _EXECUTORS


def frame_of(spark, *numbers):
    return spark.range(*numbers).selectExpr(
        "id", "cast(id as int) AS n", "concat('n', id) AS name", "id % 2 AS part"
    )


def check_commands(spark, lake, location):
    table = lake.create_table(
        location,
        "id long, n int, name string, part long",
        partition_by=["part"],
        properties={"delta.enableChangeDataFeed": "true"},
        engine=spark,
    )
    table.append(frame_of(spark, 1000))
    table.overwrite(frame_of(spark, 2000))
    assert table.count() == 2000
    assert table.delete("id % 10 = 3")["numDeletedRows"] == 200
    vector_tasks.SENT_BYTES, vector_tasks._FILE_BYTES = 0, 128
    large = lake.table(location, engine=SparkEngine(spark, max_rows_for_bitmaps=0, broadcast_limit=0))
    before = set(location.rglob("deletion_vector_*.bin"))
    assert large.delete("id % 10 = 4")["numDeletedRows"] == 200
    assert set(location.rglob("deletion_vector_*.bin")) > before
    assert table.update({"n": "n * 2", "name": delvec.lit("x")}, "id >= 1990")["numUpdatedRows"] == 8
    source = spark.range(1995, 2005).selectExpr("id", "cast(id as int) AS n", "'m' AS name", "id % 2 AS part")
    merge = table.merge(source, "target.id = source.id").when_matched_update({"n": "-1"})
    done = merge.when_not_matched_insert_all().execute()
    assert (done["numTargetRowsUpdated"], done["numTargetRowsInserted"]) == (5, 5)
    DeltaTable.forPath(spark, str(location)).delete(F.col("id") == 0)

    expected = {
        i: -1 if 1995 <= i < 2000 else i * 2 if 1990 <= i < 2000 else i
        for i in range(1, 2005)
        if i % 10 not in (3, 4) or i > 2000
    }
    for frame in (table.to_df(), large.to_df(), spark.read.format("delvec").load(str(location))):
        assert {row.id: row.n for row in frame.select("id", "n").collect()} == expected
    assert table.to_df().where("id > 1500").agg(F.count("*")).first()[0] == sum(i > 1500 for i in expected)
    feed = table.changes_df(start_version=3).groupBy("_change_type").count().collect()
    assert {row["_change_type"]: row["count"] for row in feed} == {
        "delete": 401,
        "insert": 5,
        "update_preimage": 13,
        "update_postimage": 13,
    }
    with pytest.raises(delvec.SchemaMismatch):
        table.update({"n": "5000000000 + id - id"}, "id = 1")
    assert not table.check()["num-errors"]


def check_data_source(spark, lake, location):
    frame_of(spark, 100).write.format("delvec").mode("append").save(str(location))
    frame_of(spark, 100, 110).write.format("delvec").mode("append").save(str(location))
    table = lake.table(location)
    assert table.count() == 110
    replaced = frame_of(spark, 10).write.format("delvec").mode("overwrite").option("replaceWhere", "id < 10")
    replaced.save(str(location))
    assert (table.count(), table.version()) == (110, 2)
    spark.sql(f"CREATE TEMPORARY VIEW written USING delvec OPTIONS (path '{location}')")
    assert spark.sql("SELECT count(*) FROM written WHERE part = 0").first()[0] == 55


def check_stream(spark, lake, folder):
    """Stream rows from one table into another, then some more: each arrives exactly once."""
    lake.table(folder / "written").append(
        pa.table({"id": [500], "n": pa.array([1], pa.int32()), "name": ["s"], "part": [0]})
    )
    for count in (1, 2):
        query = (
            spark.readStream.format("delvec")
            .load(str(folder / "written"))
            .writeStream.format("delvec")
            .option("checkpointLocation", str(folder / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(folder / "copy"))
        )
        query.awaitTermination()
        assert lake.table(folder / "copy").count() == 110 + count
        frame_of(spark, 600, 601).write.format("delvec").mode("append").save(str(folder / "written"))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
    print("all is well")  # noqa: T201 - the answer
