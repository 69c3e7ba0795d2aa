"""Run by test_spark_s3 in a separate process: a session with Hadoop's S3 connector and delta-spark."""

import os
import re
import sys
from pathlib import Path

import pyarrow as pa
import pyspark
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

import delvec
from delvec.spark import DeltaTable, use

BUCKET = "lake"
URL = f"s3://{BUCKET}/a b/{{}}"
HADOOPS = f"s3a://{BUCKET}/a b/{{}}"


def session(folder):
    def artifact(jar):
        return re.sub(r"-\d.*", "", jar.name)

    of_spark = {artifact(jar) for jar in (Path(pyspark.__file__).parent / "jars").iterdir()}
    jars = [
        jar for jar in Path(os.environ["DELVEC_TEST_JARS"]).glob("*.jar") if artifact(jar) not in of_spark
    ]
    assert any(artifact(jar) == "hadoop-aws" for jar in jars), "no JARs with hadoop-aws"
    return (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", ",".join(str(jar) for jar in jars))
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .config("spark.databricks.delta.snapshotPartitions", "2")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.delvec.localExecution.enabled", "false")
        .config("spark.delvec.duckdbTasks.enabled", "false")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.hadoop.fs.s3a.endpoint", os.environ["AWS_ENDPOINT_URL"])
        .config("spark.hadoop.fs.s3a.endpoint.region", os.environ["AWS_REGION"])
        .config("spark.hadoop.fs.s3a.access.key", os.environ["AWS_ACCESS_KEY_ID"])
        .config("spark.hadoop.fs.s3a.secret.key", os.environ["AWS_SECRET_ACCESS_KEY"])
        .config("spark.hadoop.fs.s3a.path.style.access", "true")
        .getOrCreate()
    )


class Readers:
    """All readers of one table."""

    def __init__(self, spark, lake, name):
        self._spark, self._lake, self._name = spark, lake, name

    def agree(self):
        """Return the rows as sorted tuples; Delvec's engines, its data source and delta-spark must agree."""
        url, hadoops = URL.format(self._name), HADOOPS.format(self._name)
        found = {
            "delta-spark": self._spark.read.format("delta").load(hadoops).collect(),
            "delvec.spark": DeltaTable.forPath(self._spark, hadoops).toDF().collect(),
            "format('delvec')": self._spark.read.format("delvec").load(url).collect(),
        }
        rows = {name: sorted(tuple(row) for row in answer) for name, answer in found.items()}
        columns = self._lake.table(url, engine="duckdb").to_arrow().to_pydict()
        rows["DuckDB"] = sorted(zip(*columns.values(), strict=True))
        reference = rows["delta-spark"]
        for name, answer in rows.items():
            assert answer == reference, name
        return reference


def row_changes(spark, lake, readers):
    schema = pa.schema([("id", pa.int64()), ("name", pa.string()), ("p", pa.string())])
    feed = {"delta.enableChangeDataFeed": "true"}
    table = lake.create_table(URL.format("people"), schema, partition_by=["p"], engine=spark, properties=feed)
    table.append(spark.range(1000).selectExpr("id", "concat('n', id) name", "if(id % 2 = 0, 'e', 'ö %/=') p"))
    table.delete("id % 10 = 3")
    table.update({"name": "'x'"}, "id % 10 = 4")
    source = spark.range(990, 1010).selectExpr("id", "'m' name", "'e' p")
    people = DeltaTable.forPath(spark, HADOOPS.format("people"))
    merge = people.alias("t").merge(source.alias("s"), "t.id = s.id")
    merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()

    names = {row[0]: row[1] for row in readers.agree()}
    expected = {i: "x" if i % 10 == 4 else f"n{i}" for i in range(1000) if i % 10 != 3}
    assert names == expected | dict.fromkeys(range(990, 1010), "m")


def feeds_and_streams(spark, folder):
    def kinds(frame):
        return {row[0]: row[1] for row in frame.groupBy("_change_type").count().collect()}

    peer = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 0)
    ours = kinds(DeltaTable.forPath(spark, HADOOPS.format("people")).changes(0))
    assert ours == kinds(peer.load(HADOOPS.format("people")))
    assert ours["delete"] == 100

    rows = spark.readStream.format("delvec").option("skipChangeCommits", "true").load(URL.format("people"))
    copied = rows.writeStream.format("delvec").option("checkpointLocation", str(folder / "checkpoint"))
    copied.trigger(availableNow=True).start(URL.format("copy")).awaitTermination()
    assert spark.read.format("delta").load(HADOOPS.format("copy")).where("name = 'm'").count() == 20


def maintenance(spark, lake, readers):
    before = readers.agree()
    people = DeltaTable.forPath(spark, URL.format("people"))
    appended = lake.table(URL.format("people")).version()
    people.optimize().executeCompaction()
    people.optimize().executeZOrderBy("id")
    people.vacuum()
    assert readers.agree() == before

    people.delete(F.col("id") > 500)
    people.restoreToVersion(appended)
    assert readers.agree() == before
    assert lake.table(URL.format("people")).check()["num-errors"] == 0

    people.clone(URL.format("clone"), isShallow=True)
    assert spark.read.format("delta").load(HADOOPS.format("clone")).count() == len(before)


def main(folder):
    spark = session(folder)
    spark.sparkContext.setLogLevel("OFF")
    with delvec.connect(roots=[f"s3://{BUCKET}"], database_url=f"sqlite:///{folder}/delvec.db") as lake:
        use(lake)
        readers = Readers(spark, lake, "people")
        row_changes(spark, lake, readers)
        feeds_and_streams(spark, folder)
        maintenance(spark, lake, readers)
    print("all is well")  # noqa: T201


if __name__ == "__main__":
    main(Path(sys.argv[1]))
