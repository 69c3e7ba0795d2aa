"""Run by test_catalog_on_s3 in a separate process: delta-spark and the catalog on S3, where Spark has vended credentials only."""

import logging
import os
import re
import sys
from pathlib import Path

import boto3
import pyspark
from pyspark.sql import SparkSession
from tests.interop.unity_catalog import shim_jar
from tests.support.moto_server import S3Server
from tests.support.s3_bucket import BUCKET, create_bucket, settings
from tests.support.s3_session_policies import refusal, session_of

import delvec
from delvec.http import embedded

TOKEN = "secret"
TABLE = "delvec.sales.people"


def session(folder, endpoint):
    def artifact(jar):
        return re.sub(r"-\d.*", "", jar.name)

    of_spark = {artifact(jar) for jar in (Path(pyspark.__file__).parent / "jars").iterdir()}
    jars = [
        jar for jar in Path(os.environ["DELVEC_TEST_JARS"]).glob("*.jar") if artifact(jar) not in of_spark
    ]
    return (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", ",".join(str(jar) for jar in jars))
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .config("spark.databricks.delta.snapshotPartitions", "1")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.hadoop.fs.s3.impl", "org.apache.hadoop.fs.s3a.S3AFileSystem")
        .config("spark.hadoop.fs.s3a.endpoint", endpoint)
        .config("spark.hadoop.fs.s3a.endpoint.region", "us-east-1")
        .config("spark.hadoop.fs.s3a.path.style.access", "true")
        .getOrCreate()
    )


def use(spark, lake, server):
    def sql(statement):
        found = spark.sql(statement)
        return [tuple(row) for row in found.collect()] if found.columns else None

    sql(f"CREATE TABLE {TABLE} (id LONG, name STRING) USING DELTA")
    sql(f"INSERT INTO {TABLE} VALUES (1, 'a'), (2, 'b'), (3, 'c'), (4, 'd')")
    sql(f"DELETE FROM {TABLE} WHERE id = 2")
    people = lake.table("sales.people")
    assert people.location.startswith(f"s3://{BUCKET}/"), people.location
    people.delete("id = 3")
    sql(f"UPDATE {TABLE} SET name = 'z' WHERE id = 4")
    assert sql(f"SELECT id, name FROM {TABLE} ORDER BY id") == [(1, "a"), (4, "z")]
    assert sorted(people.to_arrow()["id"].to_pylist()) == [1, 4]
    sql("CREATE TABLE delvec.sales.made USING DELTA AS SELECT id FROM range(5)")
    assert lake.table("sales.made").to_arrow().num_rows == 5
    lake.create_table("sales.ours", "id long", managed=True)
    sql("INSERT INTO delvec.sales.ours VALUES (7)")
    assert lake.table("sales.ours").to_arrow()["id"].to_pylist() == [7]
    sql(f"DROP TABLE {TABLE}")
    lake.undrop_table("sales.people")
    assert sql(f"SELECT count(*) FROM {TABLE}") == [(2,)]
    writers = {
        request.access_key for request in server.requests if request.kind == "PUT" and "part-" in request.key
    }
    assert any(session_of(key) for key in writers), "Spark did not use the vended credentials"
    folder = people.location.removeprefix(f"s3://{BUCKET}/")
    lake.drop("sales.people")
    lake.delete_dropped_table("sales.people", enforce_retention=False)
    return folder


def main(folder):
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = S3Server()
    create_bucket(server.endpoint, "test", "test")
    server.fault = refusal
    spark = session(folder, server.endpoint)
    spark.sparkContext.setLogLevel("OFF")
    os.environ |= settings(server.endpoint, "test", "test")  # the service's; the JVM has none
    warehouse = f"s3://{BUCKET}/lake"
    with (
        embedded.served(
            database_url=f"sqlite:///{folder / 'store.db'}",
            roots=[warehouse],
            warehouse=warehouse,
            token=TOKEN,
            credential_role_arn="arn:aws:iam::123456789012:role/delvec-tables",
        ) as url,
        delvec.connect(url, token=TOKEN) as lake,
    ):
        spark.sql(f"ADD JAR '{shim_jar(folder, spark)}'")
        spark.conf.set("spark.sql.catalog.delvec", "io.unitycatalog.spark.UCSingleCatalog")
        spark.conf.set("spark.sql.catalog.delvec.uri", url)
        spark.conf.set("spark.sql.catalog.delvec.token", TOKEN)
        place = use(spark, lake, server)
    bucket = boto3.client("s3", endpoint_url=server.endpoint, region_name="us-east-1")
    left = bucket.list_objects_v2(Bucket=BUCKET, Prefix=f"{place}/").get("Contents", ())
    assert not [
        each["Key"] for each in left if not each["Key"].endswith("/")
    ]  # Hadoop's markers of folders stay
    print("all is well")  # noqa: T201


if __name__ == "__main__":
    main(Path(sys.argv[1]))
