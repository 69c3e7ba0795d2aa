"""The compared systems: one class each, with the same four jobs."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import delvec

CODEC = "zstd"
"""The Parquet codec of all contenders, so that sizes and times are comparable."""


def read_all_of(relation: Any) -> None:
    """Read every column of a DuckDB relation; return one number."""
    relation.query("rows", "SELECT bit_xor(hash(COLUMNS(*))) FROM rows").fetchall()


def read_all(frame: Any) -> None:
    """Read every column of a Spark DataFrame; return one number."""
    frame.selectExpr("bit_xor(xxhash64(*)) as hash").collect()


def sums(frame: Any) -> tuple[int, ...]:
    """Read every column of a Spark DataFrame; return a checksum, which must be equal for all readers."""
    row = frame.selectExpr("count(1)", "sum(id)", "cast(sum(value) as long)", "bit_xor(xxhash64(*))").first()
    return tuple(row)


def _read_count(frame: Any) -> int:
    """Count rows by a query that neither Delvec nor delta-spark answers from statistics."""
    return int(frame.selectExpr("sum(1) as n").first().n)


class Contender(Protocol):
    """A system that deletes from and scans a Delta table."""

    name: str
    template: str
    on_spark: bool

    def touch(self, table: Path) -> None:
        """Open the table, so that this is not part of the measured job."""
        ...

    def delete(self, table: Path, predicate: str) -> None:
        """Delete the matching rows."""
        ...

    def scan(self, table: Path) -> None:
        """Read every column of every live row, and discard them."""
        ...

    def read_count(self, table: Path) -> int:
        """Return the number of live rows, counted in the files."""
        ...

    def count(self, table: Path) -> int:
        """Return the number of live rows, by the system's own method."""
        ...


class DelvecOnSpark:
    """Delvec on PySpark, with an embedded service."""

    name, template, on_spark = "Delvec on Spark", "dv", True

    def __init__(self, lake: delvec.Connection, spark: Any) -> None:
        self.lake, self.spark = lake, spark

    def _table(self, table: Path) -> delvec.DeltaTable:
        return self.lake.table(str(table), engine=self.spark)

    def touch(self, table: Path) -> None:
        self._table(table).version()

    def delete(self, table: Path, predicate: str) -> None:
        self._table(table).delete(predicate)

    def scan(self, table: Path) -> None:
        read_all(self._table(table).to_df())

    def read_count(self, table: Path) -> int:
        return _read_count(self._table(table).to_df())

    def count(self, table: Path) -> int:
        return int(self._table(table).to_df().count())

    def sums(self, table: Path) -> tuple[int, ...]:
        """Return what the rows of ids and values add up to."""
        return sums(self._table(table).to_df())


class DelvecOnDuckDB(DelvecOnSpark):
    """Delvec on DuckDB, with an embedded service."""

    name, template, on_spark = "Delvec on DuckDB", "dv", False

    def _table(self, table: Path) -> delvec.DeltaTable:
        return self.lake.table(str(table), engine="duckdb")

    def scan(self, table: Path) -> None:
        read_all_of(self._table(table).to_duckdb())

    def read_count(self, table: Path) -> int:
        return int(self._table(table).to_arrow(columns=["id"]).num_rows)

    def count(self, table: Path) -> int:
        return int(self._table(table).count())


class DeltaFormat:
    """Base of systems whose session has the format ``delta``."""

    spark: Any

    def touch(self, table: Path) -> None:
        """Open the table, so that this is not part of the measured job."""
        self.spark.read.format("delta").load(str(table)).limit(1).collect()

    def delete(self, table: Path, predicate: str) -> None:
        """Delete the matching rows."""
        self.spark.sql(f"DELETE FROM delta.`{table}` WHERE {predicate}").collect()

    def scan(self, table: Path) -> None:
        """Read every column of every live row, and discard them."""
        read_all(self.spark.read.format("delta").load(str(table)))


class DeltaSpark(DeltaFormat):
    """delta-spark, with or without deletion vectors, depending on the template."""

    on_spark = True

    def __init__(self, spark: Any, *, deletion_vectors: bool) -> None:
        self.spark = spark
        self.template = "dv" if deletion_vectors else "plain"
        self.name = f"delta-spark {'with' if deletion_vectors else 'without'} DVs"

    def read_count(self, table: Path) -> int:
        return _read_count(self.spark.read.format("delta").load(str(table)))

    def count(self, table: Path) -> int:
        return int(self.spark.read.format("delta").load(str(table)).count())

    def sums(self, table: Path) -> tuple[int, ...]:
        """Return what the rows of ids and values add up to."""
        return sums(self.spark.read.format("delta").load(str(table)))


def spark_session(jars: Path, scratch: Path, cores: int, more: Sequence[str] = ()) -> Any:
    """Return a session with delta-spark and ``more`` JARs, by the beginnings of their names, tuned for ``cores`` cores."""
    from pyspark.sql import SparkSession

    wanted = ("delta-spark", "delta-storage", "delta-kernel", "unitycatalog", "jts-core", *more)
    found = [str(jar) for jar in sorted(jars.glob("*.jar")) if jar.name.startswith(wanted)]
    session = (
        SparkSession.builder.master(f"local[{cores}]")
        .appName("delvec benchmarks")
        .config("spark.jars", ",".join(found))
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .config("spark.databricks.delta.snapshotPartitions", str(cores))
        .config("spark.sql.shuffle.partitions", str(cores))
        .config("spark.driver.memory", "6g")
        .config("spark.sql.parquet.compression.codec", CODEC)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.warehouse.dir", str(scratch / "warehouse"))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    return session
