"""Run by test_spark_repeated_tasks: commands on a Spark that loses each task once, after it has written its files."""

import os
import sys
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

import delvec
from delvec_engines.spark import SparkEngine, vector_tasks

LOG = "DELVEC_TEST_LOST_TASKS"


def session(folder):
    spark = (
        SparkSession.builder.master("local[2,3]")
        .config("spark.python.daemon.module", "losing_daemon")
        .config("spark.driver.host", "localhost")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.delvec.localExecution.enabled", "false")
        .config("spark.sql.warehouse.dir", f"{folder}/warehouse")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    return spark


def main(folder):
    spark = session(folder)
    with delvec.connect() as lake:
        spark.conf.set("spark.delvec.duckdbTasks.enabled", "false")
        commands(spark, lake, folder / "people")
        spark.conf.set("spark.delvec.duckdbTasks.enabled", "true")
        commands(spark, lake, folder / "with DuckDB")
        tasks_that_write_vectors(spark, lake, folder / "large")
    spark.stop()


def frame(spark, *numbers):
    return spark.range(*numbers, 1, 2).selectExpr("id", "cast(id as string) AS t")


def commands(spark, lake, place):
    """Run each command and check the table and its feed; without deletion vectors every command writes files."""
    properties = {"delta.enableDeletionVectors": "false", "delta.enableChangeDataFeed": "true"}
    table = lake.create_table(place, "id long, t string", properties=properties, engine=spark)
    expected = {}

    def check(command):
        log = Path(os.environ[LOG])
        assert log.exists(), f"no task was lost in {command}"
        log.unlink()
        rows = lake.table(str(place)).to_arrow().to_pylist()
        assert sorted((row["id"], row["t"]) for row in rows) == sorted(expected.items()), command

    table.append(frame(spark, 0, 100))
    expected |= {each: str(each) for each in range(100)}
    check("append")
    table.delete("id % 10 = 3")
    expected = {key: value for key, value in expected.items() if key % 10 != 3}
    check("delete")
    table.delete(keys=pa.table({"id": [1, 2, 200]}))
    expected = {key: value for key, value in expected.items() if key not in (1, 2)}
    check("delete by keys")
    table.update({"t": "concat(t, '!')"}, "id < 20")
    expected = {key: value + "!" if key < 20 else value for key, value in expected.items()}
    check("update")
    merge = table.merge(frame(spark, 95, 105), "target.id = source.id").when_matched_update({"t": "'m'"})
    merge.when_not_matched_insert_all().execute()
    expected |= {each: "m" if each in expected else str(each) for each in range(95, 105)}
    check("merge")
    table.optimize()
    check("optimize")
    kinds = table.changes_df(start_version=1).groupBy("_change_type").count().collect()
    assert {row["_change_type"]: row["count"] for row in kinds} == {
        "insert": 100 + 5,
        "delete": 10 + 2,
        "update_preimage": 16 + 5,
        "update_postimage": 16 + 5,
    }
    table.overwrite(frame(spark, 0, 10))
    expected = {each: str(each) for each in range(10)}
    check("overwrite")
    assert not table.check()["num-errors"]


def tasks_that_write_vectors(spark, lake, place):
    vector_tasks.SENT_BYTES, vector_tasks._FILE_BYTES = 0, 128
    engine = SparkEngine(spark, max_rows_for_bitmaps=0, broadcast_limit=0)
    table = lake.create_table(place, "id long, t string", engine=engine)
    table.append(frame(spark, 0, 1000))
    log = Path(os.environ[LOG])
    log.unlink()
    assert table.delete("id % 2 = 0")["numDeletedRows"] == 500
    assert set(log.read_text().split()) == {"VectorFile"}
    assert sorted(lake.table(str(place)).to_arrow(["id"])["id"].to_pylist()) == list(range(1, 1000, 2))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
    sys.stdout.write("all is well\n")
