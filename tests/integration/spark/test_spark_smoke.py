"""Each command once, with functions, in each of the places where it can run: quick enough for every PySpark version.

``python3 dev/versions.py --newest --smoke`` runs it on the PySpark that a fresh installation takes.
"""

import datetime as dt
import logging
import uuid

import pytest
from pyspark.sql import datasource
from pyspark.sql import functions as F  # noqa: N812

from delvec.spark import DeltaTable

pytestmark = [
    pytest.mark.spark,
    pytest.mark.full("the gate runs it on the newest PySpark, in an environment of its own"),
]

SCHEMA = "id long, name string, price decimal(10,2), day date, part string"
ROWS = [
    {
        "id": number,
        "name": None if number == 7 else f"n{number}",
        "price": number * 100,
        "day": dt.date(2024, 1, 1 + number),
        "part": "ab"[number % 2],
    }
    for number in range(12)
]
SESSIONS = {"as jobs": "spark", "in the driver": "spark_driver", "in tasks": "spark_tasks"}
PLACES = {"as jobs": "", "in the driver": " ran in the driver, on DuckDB", "in tasks": " tasks, on DuckDB"}


@pytest.fixture(scope="module")
def lake(used_connection):
    return used_connection


@pytest.fixture
def make(lake, tmp_path):
    def make(session, rows=ROWS):
        table = lake.create_table(
            tmp_path / uuid.uuid4().hex,
            SCHEMA,
            partition_by=["part"],
            properties={"delta.enableChangeDataFeed": "true"},
        )
        for part in (rows[::2], rows[1::2]):
            table.append(part)
        return lake.table(table.location, engine=session)

    return make


def values(frame, *columns):
    return sorted(tuple(row) for row in frame.select(*columns).collect())


@pytest.mark.parametrize("place", SESSIONS)
def test_row_changes_with_functions(make, request, caplog, place):
    caplog.set_level(logging.INFO, "delvec_engines")
    session = request.getfixturevalue(SESSIONS[place])
    table = make(session)

    table.delete("coalesce(length(name), 0) = 0 OR (year(day) = 2024 AND dayofmonth(day) = 11)")
    table.update(
        {"name": "concat(upper(name), '-', CAST(id % 3 AS STRING))", "price": "abs(price) + 1"},
        "mod(id, 4) = 1",
    )
    source = session.createDataFrame([(2, " two "), (40, "FORTY")], "id long, name string")
    done = (
        table.merge(source, "t.id = s.id", target_alias="t", source_alias="s")
        .when_matched_update({"name": "trim(s.name)", "day": "date_add(t.day, 1)"}, "length(s.name) > 0")
        .when_not_matched_insert({"id": "s.id", "name": "lower(s.name)", "part": "substring('xyz', 1, 1)"})
        .when_not_matched_by_source_delete("greatest(t.id, 0) = 11")
        .execute()
    )

    assert [done[f"numTargetRows{what}"] for what in ("Updated", "Inserted", "Deleted")] == [1, 1, 1]
    assert values(table.to_df(), "id", "name") == [
        (0, "n0"),
        (1, "N1-1"),
        (2, "two"),
        (3, "n3"),
        (4, "n4"),
        (5, "N5-2"),
        (6, "n6"),
        (8, "n8"),
        (9, "N9-0"),
        (40, "forty"),
    ]
    assert values(table.to_df().where("id = 2"), "day") == [(dt.date(2024, 1, 4),)]
    lines = [record.getMessage() for record in caplog.records]
    assert not [line for line in lines if "failed" in line or "cannot decide" in line]
    assert sum(PLACES[place] in line for line in lines if line.startswith(("DELETE", "UPDATE", "MERGE"))) >= 3


def test_delta_sparks_api_with_columns(lake, spark, make):
    table = DeltaTable.forPath(spark, make(spark).location)

    table.delete(F.length("name") > F.lit(2))
    table.update(F.col("id").isin(1, 2), {"name": F.concat(F.upper("name"), F.lit("!"))})
    source = spark.createDataFrame([(3, "three"), (50, "fifty")], "id long, name string").alias("s")
    merge = table.alias("t").merge(source, F.expr("t.id = s.id"))
    merge = merge.whenMatchedUpdate(set={"name": "initcap(s.name)"})
    merge.whenNotMatchedInsert(values={"id": F.col("s.id"), "name": F.lower(F.col("s.name"))}).execute()

    assert values(table.toDF().where("id IN (1, 2, 3, 50)"), "id", "name") == [
        (1, "N1!"),
        (2, "N2!"),
        (3, "Three"),
        (50, "fifty"),
    ]
    assert table.history(1).first().operation == "MERGE"
    assert values(table.toDF().where("id > 9"), "id") == [(50,)]
    table.restoreToVersion(2)
    assert table.toDF().count() == 12


def test_appends_overwrites_and_sql(lake, spark, make, tmp_path):
    table = make(spark)
    new = spark.range(100, 103).selectExpr(
        "id", "concat('n', id) name", "CAST(1 AS decimal(10,2)) price", "'c' part"
    )

    table.append(new)
    table.overwrite(new.where("id = 100"), replace_where="part = 'c'")
    table.overwrite(table.to_df().where("upper(name) <> 'N3'"))
    lake.sql(f"UPDATE '{table.location}' SET name = reverse(name) WHERE id = 100", engine=spark)

    assert table.count() == 11
    asked = f"SELECT upper(name) name FROM '{table.location}' WHERE id = 100"
    assert lake.sql(asked, engine=spark).collect()[0].name == "001N"


def test_maintenance(make, spark):
    table = make(spark, ROWS * 3)
    table.delete("pmod(id, 5) = 0")
    before = values(table.to_df(), "id", "name")

    table.optimize()
    table.optimize.z_order(["id"])
    table.optimize.purge()
    table.alter.add_columns("more string")
    table.vacuum(dry_run=True)

    assert values(table.to_df(), "id", "name") == before
    assert values(table.to_df().where("more IS NULL"), "id", "name") == before


def test_the_data_source(spark, make):
    table = make(spark)
    path = table.location
    spark.read.format("delvec").load(path).where("id < 2").selectExpr(
        "id + 100 id", "upper(name) name"
    ).write.format("delvec").mode("append").save(path)
    table.update({"name": "lower(name)"}, "id >= 100")

    assert spark.read.format("delvec").load(path).count() == 14
    assert values(spark.read.format("delvec").load(path).where("id >= 100"), "id", "name") == [
        (100, "n0"),
        (101, "n1"),
    ]
    feed = (
        spark.read.format("delvec").option("readChangeFeed", "true").option("startingVersion", 3).load(path)
    )
    assert values(feed.where("_change_type LIKE 'update%'"), "name") == [("N0",), ("N1",), ("n0",), ("n1",)]


@pytest.mark.skipif(
    not hasattr(datasource, "DataSourceStreamArrowWriter"),
    reason="this PySpark has no sinks of Arrow batches",
)
def test_a_stream_by_the_data_source(lake, spark, make, tmp_path):
    path, copy = make(spark).location, lake.create_table(tmp_path / "copy", SCHEMA)
    stream = spark.readStream.format("delvec").load(path).writeStream.format("delvec")
    stream = stream.option("checkpointLocation", str(tmp_path / "state")).trigger(availableNow=True)

    stream.start(copy.location).awaitTermination()

    assert copy.count() == len(ROWS)
