"""A Spark session with delta-spark's JARs."""

import os
import sys
from pathlib import Path

__all__ = ["delta_session"]

_SMALL = {  # for tables so small that planning costs more than reading
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.adaptive.enabled": "false",
    "spark.default.parallelism": "1",
}
WANTED = ("delta-spark", "delta-storage", "delta-kernel", "unitycatalog", "jts-core")


def delta_session(warehouse):
    """Start a session tuned for tables of a few rows, with its warehouse in a folder; None if the JARs are missing."""
    folder = os.environ.get("DELVEC_TEST_JARS")
    if not folder:
        return None
    jars = [str(jar) for jar in sorted(Path(folder).glob("*.jar")) if jar.name.startswith(WANTED)]
    assert jars, f"no delta-spark JAR in {folder}"
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master("local[2]")
    for name, value in _SMALL.items():
        builder = builder.config(name, value)
    session = (
        builder.config("spark.jars", ",".join(jars))
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .config("spark.databricks.delta.snapshotPartitions", "1")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.delvec.localExecution.enabled", "false")
        .config("spark.delvec.duckdbTasks.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.warehouse.dir", str(warehouse))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    return session
