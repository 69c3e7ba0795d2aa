"""Run by test_iceberg_spark in a separate process: a session with Iceberg's runtime, beside a running service."""

import json
import os
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

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
        first = {
            catalog: table.to_iceberg(format_version=format_version)["snapshot-id"]
            for catalog, format_version in (("two", 2), ("three", 3))
        }
        table.alter.rename_column("a", "c")
        table.alter.drop_columns(["b"])
        table.alter.add_columns("a long")
        table.alter.change_type("w", "long")
        table.append([{"id": 2, "c": "y", "a": 9, "w": 2**40}])
        Comparison(spark, table, f"sales.{mode}").check()
        for catalog in ("two", "three"):
            old = spark.sql(f"SELECT * FROM {catalog}.sales.{mode} VERSION AS OF {first[catalog]}")
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


def shared_delete_files(spark, lake):
    for parted in ([], ["p"]):
        name = f"sales.shared{len(parted)}"
        properties = {"delvec.iceberg.deleteGranularity": "partition"}
        table = lake.create_table(
            name, "id long, p string, x double", partition_by=parted, properties=properties
        )
        for start in (0, 40, 80):
            table.append(
                [{"id": n, "p": [None, "a b%1"][n % 2], "x": n / 3} for n in range(start, start + 40)]
            )
        comparison = Comparison(spark, table, name)
        table.delete("id % 7 = 0")
        comparison.check()
        first = table.to_iceberg()["snapshot-id"]
        before = table.to_arrow().sort_by("id").to_pylist()
        table.delete("id in (41, 43)")
        table.update({"x": "-1.0"}, "id % 5 = 0")
        comparison.check()
        table.delete("id < 40")
        comparison.check()
        table.optimize.purge()
        comparison.check()
        old = spark.sql(f"SELECT * FROM two.{name} VERSION AS OF {first} ORDER BY id")
        assert old.toArrow().to_pylist() == before


def partition_types(spark, lake):
    values = {
        "i": (pa.int32(), [1, -5, None]),
        "day": (pa.date32(), [date(2024, 1, 1), date(1960, 1, 1), None]),
        "ts": (pa.timestamp("us", "UTC"), [datetime(2024, 1, 1, 0, 0, 0, 7, UTC), None]),
        "ntz": (pa.timestamp("us"), [datetime(2024, 1, 1, 0, 0, 0, 7), None]),  # noqa: DTZ001 - it has no zone
        "money": (pa.decimal128(12, 3), [Decimal("1.500"), Decimal("-2.250"), None]),
        "flag": (pa.bool_(), [True, False, None]),
        "double": (pa.float64(), [1.5, float("inf"), None]),
        "text": (pa.string(), ["a b", "%41", "ä", "x/y=z#?", None]),
        "raw": (pa.binary(), [b"ab", b"c", None]),
    }
    for kind, (arrow, found) in values.items():
        schema = pa.schema([("id", pa.int64()), ("p", arrow)])
        table = lake.create_table(f"sales.by_{kind}", schema, partition_by=["p"])
        rows = [{"id": n, "p": found[n % len(found)]} for n in range(20)]
        table.append(pa.Table.from_pylist(rows, schema))
        table.delete("id in (3, 4, 5)")
        Comparison(spark, table, f"sales.by_{kind}").check()


def every_type(spark, lake):
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("b", pa.int8()),
            ("f", pa.float32()),
            ("raw", pa.binary()),
            ("day", pa.date32()),
            ("at", pa.timestamp("us", "UTC")),
            ("local", pa.timestamp("us")),
            ("money", pa.decimal128(38, 10)),
            ("list", pa.list_(pa.struct([("k", pa.string()), ("v", pa.int32())]))),
            ("map", pa.map_(pa.string(), pa.list_(pa.int64()))),
            ("deep", pa.struct([("a", pa.int32()), ("n", pa.struct([("z", pa.string())]))])),
        ]
    )
    row = {
        "id": 1,
        "b": -1,
        "f": 1.5,
        "raw": b"\x00\xff",
        "day": date(2024, 2, 29),
        "at": datetime(2024, 2, 29, 1, 2, 3, 456789, UTC),
        "local": datetime(1969, 12, 31, 23, 59, 59, 999999),  # noqa: DTZ001 - it has no zone
        "money": Decimal("-1234567890123456789012345678.0123456789"),
        "list": [{"k": "x", "v": 1}, None],
        "map": [("k", [1, 2])],
        "deep": {"a": 1, "n": {"z": "q"}},
    }
    for mapping in ("none", "name", "id"):
        properties = {"delta.columnMapping.mode": mapping, "delvec.iceberg.formatVersions": "3"}
        table = lake.create_table(f"sales.types_{mapping}", schema, properties=properties)
        table.append(pa.Table.from_pylist([row, dict.fromkeys(schema.names) | {"id": 2}], schema))
        Comparison(spark, table, f"sales.types_{mapping}").check()


def int96_timestamps(spark, lake, folder):
    at = datetime(2024, 2, 29, 1, 2, 3, 456789, UTC)
    data = pa.table(
        {"id": [1, 2, 3], "at": [at, None, at]},
        pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC"))]),
    )
    (folder / "int96").mkdir()
    pq.write_table(data, folder / "int96" / "a.parquet", use_deprecated_int96_timestamps=True)
    table = lake.convert(folder / "int96", properties={"delta.enableDeletionVectors": "true"})
    table.delete("id = 3")
    expected = table.to_arrow().sort_by("id").to_pylist()
    for format_version in (2, 3):
        path = table.to_iceberg(format_version=format_version)["metadata-location"]
        found = spark.read.format("iceberg").load(path).orderBy("id").toArrow().to_pylist()
        assert found == expected, (format_version, found)


def variants(spark, lake, folder):
    frame = spark.sql("SELECT id, parse_json(concat('{\"a\": ', id, '}')) AS v FROM range(10)")
    frame.coalesce(1).write.parquet(str(folder / "variants"))
    (data,) = (folder / "variants").glob("*.parquet")
    features = ["variantType", "deletionVectors"]
    actions = [
        {
            "protocol": {
                "minReaderVersion": 3,
                "minWriterVersion": 7,
                "readerFeatures": features,
                "writerFeatures": features,
            }
        },
        {
            "metaData": {
                "id": "6b3cbd73-1e3e-4c63-9f27-0f2f7a8cf3c9",
                "format": {"provider": "parquet", "options": {}},
                "schemaString": frame.schema.json(),
                "partitionColumns": [],
                "configuration": {"delta.enableDeletionVectors": "true"},
            }
        },
        {
            "add": {
                "path": data.name,
                "partitionValues": {},
                "size": data.stat().st_size,
                "modificationTime": 0,
                "dataChange": True,
                "stats": json.dumps({"numRecords": 10}),
            }
        },
    ]
    (folder / "variants" / "_delta_log").mkdir()
    log = folder / "variants" / "_delta_log" / f"{0:020}.json"
    log.write_text("\n".join(map(json.dumps, actions)))
    table = lake.table(folder / "variants")
    table.delete("id = 3")
    path = table.to_iceberg(format_version=3)["metadata-location"]
    found = spark.read.format("iceberg").load(path)
    rows = found.selectExpr("id", "variant_get(v, '$.a', 'long')").orderBy("id").collect()
    assert [tuple(row) for row in rows] == [(n, n) for n in range(10) if n != 3]


def main(url, token, folder):
    spark = session(url, token)
    spark.sparkContext.setLogLevel("OFF")
    with delvec.connect(url, token=token) as lake:
        an_empty_table(spark, lake)
        statements(spark, lake)
        columns(spark, lake)
        row_lineage(spark, lake)
        shared_delete_files(spark, lake)
        partition_types(spark, lake)
        every_type(spark, lake)
        int96_timestamps(spark, lake, Path(folder))
        variants(spark, lake, Path(folder))
    print("all is well")  # noqa: T201 - the answer


if __name__ == "__main__":
    main(*sys.argv[1:])
