"""Run by test_spark_connect in a separate process, because a process can have only one kind of session."""

import sys
from pathlib import Path

import pyarrow as pa
import pyspark.sql.datasource
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812
from tests.support.sql_statements import STATEMENTS

import delvec
from delvec.spark import DeltaTable, use
from delvec_engines.spark import SparkEngine

HAS_SINK = hasattr(pyspark.sql.datasource, "DataSourceStreamArrowWriter")


def session(folder):
    spark = (
        SparkSession.builder.remote("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .getOrCreate()
    )
    assert "connect" in type(spark).__module__
    return spark


def commands(folder):
    spark = session(folder)
    location = folder / "people [1] 100%"
    schema = pa.schema([("id", pa.int64()), ("name", pa.string()), ("country", pa.string())])
    with delvec.connect(database_url=f"sqlite:///{folder}/delvec.db") as lake:
        use(lake)
        table = lake.create_table(str(location), schema, partition_by=["country"], engine=spark)
        table.append(
            spark.range(1000).selectExpr("id", "concat('n', id) name", "if(id < 500, 'é=', null) country")
        )
        table.append(pa.table({"id": [2000], "name": ["x"], "country": ["NZ"]}))
        table.delete("id % 10 = 3")
        few = SparkEngine(spark, max_rows_for_bitmaps=0)
        lake.table(str(location), engine=few).delete("id % 10 = 4")

        shell = DeltaTable.forPath(spark, str(location))
        frame = shell.toDF()
        shell.delete((F.col("id") >= 900) & (F.col("name") != "n'\\x") | F.col("country").isNull())
        assert frame.count() == frame.select("*").count() == 801
        left = sorted(row.id for row in shell.toDF().collect())
        assert left == [i for i in range(500) if i % 10 not in (3, 4)], left
        assert table.to_arrow(predicate="country = 'é='").schema == schema
        assert shell.history().first().operation == "DELETE"
        assert shell.detail().first().numFiles >= 1
        assert DeltaTable.isDeltaTable(spark, str(location))
        assert not DeltaTable.isDeltaTable(spark, str(folder))
        assert list((location / "_delvec" / "scans").iterdir())
    spark.stop()


def data_source(folder):
    """``format("delvec")``, and typed errors."""
    spark = session(folder)
    location = folder / "people"
    with delvec.connect(database_url=f"sqlite:///{folder}/delvec.db") as lake:
        use(lake)
        table = lake.create_table(
            str(location), "id long, name string, country string", partition_by=["country"], engine=spark
        )
        table.append(
            spark.range(500).selectExpr("id", "concat('n', id) name", "if(id < 400, 'é=', null) country")
        )
        table.delete("id % 10 = 3 or id % 10 = 4")
        check_data_source(spark, lake, location)
        with pytest.raises(delvec.InvalidPredicate, match="no_such_function"):
            table.delete("no_such_function(id) = 1")
        with pytest.raises(delvec.SchemaMismatch):
            table.append(spark.range(3).selectExpr("'text' as id"))
        for file in location.glob("country=*/*.parquet"):
            file.unlink()
        with pytest.raises(delvec.MissingDataFile):
            table.to_arrow()
    spark.stop()


def check_data_source(spark, lake, location):
    """format("delvec") and deletion vectors fetched by tasks give the rows of to_df(); views pin a version."""
    expected = lake.table(str(location), engine=spark).to_df().select("*").count()
    in_tasks = lake.table(str(location), engine=SparkEngine(spark, broadcast_limit=0))
    assert in_tasks.to_df().count() == in_tasks.to_df().select("*").count() == expected
    frame = spark.read.format("delvec").load(str(location))
    assert frame.count() == expected
    frame.createOrReplaceTempView("people")
    version = lake.table(str(location)).version()
    in_tasks.delete("id = 0")
    assert spark.sql("SELECT * FROM people").count() == expected
    pinned = spark.read.format("delvec").option("version", version).load(str(location))
    assert (pinned.count(), pinned.filter("id < 10").count()) == (expected, 8)


def row_changes(folder):
    """UPDATE and MERGE: clauses are applied, a nondeterministic source is read once, and errors are typed."""
    spark = session(folder)
    with delvec.connect(database_url=f"sqlite:///{folder}/delvec.db") as lake:
        check_row_changes(spark, lake, folder / "changed")
    spark.stop()


def check_row_changes(spark, lake, location):
    table = lake.create_table(str(location), "id long, n int, name string", engine=spark)
    table.append(spark.range(100).selectExpr("id", "cast(id as int) n", "concat('n', id) name"))
    assert table.update({"n": "n * 2", "name": delvec.lit("x")}, "id >= 90")["numUpdatedRows"] == 10
    source = spark.range(95, 105).selectExpr("id", "cast(rand() * 10 as int) + 1000 n", "uuid() name")
    merge = table.merge(source, "target.id = source.id").when_matched_update(
        {"n": "source.n"}, "target.id <> 96"
    )
    found = merge.when_matched_delete().when_not_matched_insert_all().execute()
    counts = [found[f"numTargetRows{done}"] for done in ("Updated", "Deleted", "Inserted")]
    assert (counts, found["numSourceRows"]) == ([4, 1, 5], 10)
    rows = {row["id"]: row for row in table.to_arrow(predicate="id >= 90").to_pylist()}
    assert sorted(rows) == [*range(90, 96), *range(97, 105)]
    assert (rows[90]["n"], rows[95]["name"]) == (180, "x")
    assert all(rows[number]["n"] >= 1000 for number in (95, *range(97, 105)))
    with pytest.raises(delvec.SchemaMismatch, match="5000000000"):
        table.update({"n": "5000000000 + id - id"}, "id = 0")
    with pytest.raises(delvec.InvalidPredicate, match="by zero"):
        table.update({"n": "1 div id"})
    with pytest.raises(delvec.MultipleMatches):
        table.merge([{"id": 1}, {"id": 1}], "target.id = source.id").when_matched_update({"n": 1}).execute()


def statements(folder):
    """``connection.sql``: the statements that other engines run, too."""
    spark = session(folder)
    with delvec.connect(database_url=f"sqlite:///{folder}/delvec.db") as lake:
        for number, each in enumerate(STATEMENTS):
            place = folder / f"statements_{number}"
            place.mkdir()
            each(lake, spark, place)
        check_own_rows(spark, lake, folder / "own")
    spark.stop()


def check_own_rows(spark, lake, location):
    """A table overwritten with its own rows: only if it is still at the version that they were read from."""
    table = lake.create_table(location, "id long", engine=spark)
    table.append(spark.range(5))
    rows = table.to_df().where("id > 1").join(spark.range(4), "id")
    assert table.overwrite(rows)["numOutputRows"] == 2
    table.append(spark.range(10, 11))
    with pytest.raises(delvec.ConcurrentWrite, match="version 1"):
        table.overwrite(rows)
    assert sorted(table.to_arrow()["id"].to_pylist()) == [2, 3, 10]


def streams(folder):
    """A stream from one table into another, and one whose batches are merged: both resume where they stopped."""
    spark = session(folder)
    feed = {"delta.enableChangeDataFeed": "true"}
    # Spark's own processes use this service, too.
    with delvec.connect() as lake:
        source, copy, merged = (
            lake.create_table(folder / name, "id long, name string", properties=properties, engine=spark)
            for name, properties in (("source", feed), ("copy", {}), ("merged", {}))
        )
        for name in ("first", "second"):
            source.append(spark.range(10).selectExpr("id", f"'{name}' name"))
            if HAS_SINK:
                _stream(
                    spark, source, folder / "copies", lambda writer: writer.format("delvec"), copy.location
                )
                assert copy.count() == source.count()
            _merge_stream(spark, source, merged, folder / "merges")
            rows = merged.to_arrow().sort_by("id").to_pylist()
            assert rows == [{"id": number, "name": name} for number in range(10)], rows
        source.delete("id < 5")
        with pytest.raises((delvec.SourceRowsChanged, StreamingQueryException)):
            _merge_stream(spark, source, merged, folder / "merges")
        _check_feed(spark, source, folder / "changes")
    spark.stop()


def _stream(spark, source, checkpoint, into, *where):
    """Process all available input."""
    frame = spark.readStream.format("delvec").load(source.location)
    writer = into(frame.writeStream.option("checkpointLocation", str(checkpoint)))
    writer.trigger(availableNow=True).start(*where).awaitTermination()


def _merge_stream(spark, source, target, checkpoint):
    location = target.location

    # Connect sends it to another process, which shares no state with this one.
    def merge(batch, number):
        into = DeltaTable.forPath(batch.sparkSession, location).alias("t")
        merging = into.merge(batch.alias("s"), "t.id = s.id")
        merging.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()

    _stream(spark, source, checkpoint, lambda writer: writer.foreachBatch(merge))


def _check_feed(spark, source, checkpoint):
    """Stream a table's change feed from its start."""
    frame = spark.readStream.format("delvec").option("readChangeFeed", "true").load(source.location)
    counts = frame.groupBy("_change_type").count().writeStream.outputMode("complete").format("memory")
    query = counts.option("checkpointLocation", str(checkpoint)).queryName("changes").start()
    query.processAllAvailable()
    query.stop()
    assert spark.table("changes").collect() == [("insert", 10)]


if __name__ == "__main__":
    cases = {
        "commands": commands,
        "data source": data_source,
        "row changes": row_changes,
        "statements": statements,
        "streams": streams,
    }
    cases[sys.argv[1]](Path(sys.argv[2]))
    print("all is well")  # noqa: T201 - the answer
