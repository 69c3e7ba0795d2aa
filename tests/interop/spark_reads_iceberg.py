"""Run by test_iceberg_spark in a separate process: a session with Iceberg's runtime, beside a running service."""

import os
import sys
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession
from tests.iceberg_tables import iceberg_table

import delvec


def session(url, token):
    folder = Path(os.environ["DELVEC_TEST_JARS"])
    (runtime,) = folder.glob("iceberg-spark-runtime-*.jar")
    builder = SparkSession.builder.master("local[2]").config("spark.jars", str(runtime))
    for name, warehouse in (("two", "v2"), ("three", "v3")):
        catalog = f"spark.sql.catalog.{name}"
        builder = (
            builder.config(catalog, "org.apache.iceberg.spark.SparkCatalog")
            .config(f"{catalog}.type", "rest")
            .config(f"{catalog}.uri", f"{url}/iceberg")
            .config(f"{catalog}.token", token)
            .config(f"{catalog}.warehouse", warehouse)
            .config(f"{catalog}.cache-enabled", "false")
        )
    return (
        builder.config("spark.sql.shuffle.partitions", "1")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )


class Comparison:
    """One Delta table, as read by Delta and by Iceberg."""

    def __init__(self, spark, table, name):
        self._spark, self._table, self._name = spark, table, name

    def check(self):
        expected = self._table.to_arrow().sort_by("id").to_pylist()
        for catalog in ("two", "three"):
            rows = self._spark.table(f"{catalog}.{self._name}").orderBy("id").toArrow().to_pylist()
            assert rows == expected, (catalog, rows[:5], expected[:5])
        for format_version in (2, 3):
            done = self._table.to_iceberg(format_version=format_version)
            path = done["metadata-location"]
            rows = self._spark.read.format("iceberg").load(path).orderBy("id").toArrow().to_pylist()
            assert rows == expected, (format_version, rows[:5], expected[:5])


def statements(spark, lake):
    for name, parted in (("sales.plain", []), ("sales.parted", ["p"])):
        table = lake.create_table(name, "id long, p string, x double", partition_by=parted)
        table.append([{"id": n, "p": [None, "a b%1", "ä/="][n % 3], "x": n / 3} for n in range(100)])
        comparison = Comparison(spark, table, name)
        comparison.check()
        table.delete("id % 7 = 0")
        comparison.check()
        table.delete("id % 11 = 0")
        table.update({"x": "-1.0"}, "id % 5 = 0")
        comparison.check()
        table.restore(2)
        comparison.check()
        table.optimize.compact()
        table.optimize.purge()
        comparison.check()
        table.delete("p = 'a b%1'")
        comparison.check()
        counted = spark.sql(f"SELECT count(*) FROM two.{name} WHERE id > 50 AND p = 'ä/='").first()[0]
        assert counted == table.count("id > 50 AND p = 'ä/='")


def columns(spark, lake):
    for mode in ("name", "id"):
        properties = {"delta.columnMapping.mode": mode, "delta.enableTypeWidening": "true"}
        table = lake.create_table(f"sales.{mode}", "id long, a string, b int, w int", properties=properties)
        table.append([{"id": 1, "a": "x", "b": 7, "w": 1}])
        done = table.to_iceberg()
        table.alter.rename_column("a", "c")
        table.alter.drop_columns(["b"])
        table.alter.add_columns("a long")
        table.alter.change_type("w", "long")
        table.append([{"id": 2, "c": "y", "a": 9, "w": 2**40}])
        Comparison(spark, table, f"sales.{mode}").check()
        first = iceberg_table(done).current_snapshot().snapshot_id
        old = spark.sql(f"SELECT * FROM two.sales.{mode} VERSION AS OF {first}")
        assert [tuple(row) for row in old.collect()] == [(1, "x", 7, 1)]


def an_empty_table(spark, lake):
    table = lake.create_table("sales.nothing", pa.schema([("id", pa.int64())]))
    Comparison(spark, table, "sales.nothing").check()


def row_lineage(spark, lake):
    table = lake.create_table("sales.tracked", "id long", properties={"delta.enableRowTracking": "true"})
    table.append([{"id": n} for n in range(20)])
    table.delete("id = 3")
    table.append([{"id": 100}])
    Comparison(spark, table, "sales.tracked").check()
    rows = spark.sql("SELECT _row_id FROM three.sales.tracked").collect()
    assert len({row[0] for row in rows}) == 20
    assert all(row[0] is not None for row in rows)


def main(url, token):
    spark = session(url, token)
    spark.sparkContext.setLogLevel("OFF")
    with delvec.connect(url, token=token) as lake:
        an_empty_table(spark, lake)
        statements(spark, lake)
        columns(spark, lake)
        row_lineage(spark, lake)
    print("all is well")  # noqa: T201 - the answer


if __name__ == "__main__":
    main(*sys.argv[1:])
