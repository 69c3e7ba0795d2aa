"""The systems compared for row changes: one class each, with the same jobs, each in its own process."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

import delvec
from benchmarks.contenders import CODEC, read_all, read_all_of, spark_session

__all__ = ["CLASSES", "NAMES", "PEER", "Contender", "make"]

PEER = "delta-spark with DVs"
Sources = Mapping[str, Path]


class Contender:
    """A system that changes rows of a Delta table.

    Attributes:
        name: its name in the report.
        template: ``dv`` or ``plain``: the kind of its tables.
        rewrites: whether it rewrites files, which is so slow that it warms up on a small table.
        on_spark: whether it uses Spark.
        only_changes: whether it differs from another contender only in row changes.
        spark: its session, if any.
    """

    name = ""
    template = "dv"
    rewrites = False
    on_spark = False
    only_changes = False
    spark: Any = None

    def close(self) -> None:
        """Release all resources."""

    def settle(self) -> None:
        """Release memory of earlier jobs if possible."""
        pa.default_memory_pool().release_unused()

    def touch(self, table: Path) -> None:
        """Open the table, so that this is not measured."""
        raise NotImplementedError

    def delete(self, table: Path, predicate: str) -> None:
        """Delete the matching rows."""
        raise NotImplementedError

    def update(self, table: Path, predicate: str) -> None:
        """Raise the salary of the matching rows by one."""
        raise NotImplementedError

    def merge(self, table: Path, source: Path) -> None:
        """Update rows with matching ids in the source, and insert the others."""
        raise NotImplementedError

    def append(self, table: Path, source: Path) -> None:
        """Append the rows of the source."""
        raise NotImplementedError

    def changes(self, table: Path, version: int) -> None:
        """Read the changes of a version, and discard them."""
        raise NotImplementedError

    def scan(self, table: Path) -> None:
        """Read every column of every live row, and discard them."""
        raise NotImplementedError


class _OnSpark(Contender):
    """Base of the contenders on Spark, each with its own session."""

    on_spark = True

    def __init__(self, scratch: Path) -> None:
        self.spark = spark_session(Path(os.environ["DELVEC_TEST_JARS"]), scratch, os.cpu_count() or 1)

    def close(self) -> None:
        self.spark.stop()

    def settle(self) -> None:
        super().settle()
        self.spark.sparkContext._jvm.System.gc()  # noqa: SLF001 - the one way to the JVM


class DelvecOnSpark(_OnSpark):
    """Delvec on PySpark, with an embedded service."""

    name = "Delvec on Spark"

    def __init__(self, scratch: Path) -> None:
        super().__init__(scratch)
        self.lake = delvec.connect()

    def close(self) -> None:
        self.lake.close()
        super().close()

    def _table(self, table: Path) -> delvec.DeltaTable:
        return self.lake.table(str(table), engine=self.spark)

    def _rows(self, source: Path) -> Any:
        return self.spark.read.parquet(str(source))

    def touch(self, table: Path) -> None:
        self._table(table).version()

    def delete(self, table: Path, predicate: str) -> None:
        self._table(table).delete(predicate)

    def update(self, table: Path, predicate: str) -> None:
        self._table(table).update({"salary": "salary + 1"}, predicate)

    def merge(self, table: Path, source: Path) -> None:
        merge = self._table(table).merge(self._rows(source), "target.id = source.id")
        merge.when_matched_update_all().when_not_matched_insert_all().execute()

    def append(self, table: Path, source: Path) -> None:
        self._table(table).append(self._rows(source))

    def changes(self, table: Path, version: int) -> None:
        read_all(self._table(table).changes_df(version))

    def scan(self, table: Path) -> None:
        read_all(self._table(table).to_df())


class DelvecAsSparkJobs(DelvecOnSpark):
    """Delvec on PySpark, without DuckDB."""

    name = "Delvec on Spark, as jobs"
    only_changes = True

    def __init__(self, scratch: Path) -> None:
        super().__init__(scratch)
        self.spark.conf.set("spark.delvec.localExecution.enabled", "false")
        self.spark.conf.set("spark.delvec.duckdbTasks.enabled", "false")


class DelvecOnDuckDB(DelvecOnSpark):
    """Delvec on DuckDB, with an embedded service."""

    name = "Delvec on DuckDB"
    on_spark = False

    def __init__(self, scratch: Path) -> None:  # noqa: ARG002 - no session
        self.lake = delvec.connect()

    def close(self) -> None:
        self.lake.close()

    def settle(self) -> None:
        Contender.settle(self)

    def _table(self, table: Path) -> delvec.DeltaTable:
        return self.lake.table(str(table), engine="duckdb")

    def _rows(self, source: Path) -> Any:
        return pq.read_table(source)

    def changes(self, table: Path, version: int) -> None:
        self._table(table).changes(version)

    def scan(self, table: Path) -> None:
        read_all_of(self._table(table).to_duckdb())


class DeltaSpark(_OnSpark):
    """delta-spark, on tables with deletion vectors."""

    name = PEER

    def touch(self, table: Path) -> None:
        self.spark.read.format("delta").load(str(table)).limit(1).collect()

    def delete(self, table: Path, predicate: str) -> None:
        self.spark.sql(f"DELETE FROM delta.`{table}` WHERE {predicate}").collect()

    def update(self, table: Path, predicate: str) -> None:
        self.spark.sql(f"UPDATE delta.`{table}` SET salary = salary + 1 WHERE {predicate}").collect()

    def merge(self, table: Path, source: Path) -> None:
        self.spark.read.parquet(str(source)).createOrReplaceTempView("source")
        self.spark.sql(
            f"MERGE INTO delta.`{table}` t USING source s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        ).collect()

    def append(self, table: Path, source: Path) -> None:
        self.spark.read.parquet(str(source)).write.format("delta").mode("append").save(str(table))

    def changes(self, table: Path, version: int) -> None:
        feed = self.spark.read.format("delta").option("readChangeFeed", "true")
        read_all(feed.option("startingVersion", version).load(str(table)))

    def scan(self, table: Path) -> None:
        read_all(self.spark.read.format("delta").load(str(table)))


class DeltaSparkRewriting(DeltaSpark):
    """delta-spark, on tables without deletion vectors."""

    name = "delta-spark without DVs"
    template = "plain"
    rewrites = True


class DeltaLake(Contender):
    """deltalake, which does not write deletion vectors."""

    name = "deltalake"
    template = "plain"
    rewrites = True

    def __init__(self, scratch: Path) -> None:  # noqa: ARG002 - needs none
        import deltalake

        self._deltalake = deltalake
        self._writing = deltalake.WriterProperties(compression=CODEC.upper())

    def _table(self, table: Path) -> Any:
        return self._deltalake.DeltaTable(str(table))

    def touch(self, table: Path) -> None:
        self._table(table).version()

    def delete(self, table: Path, predicate: str) -> None:
        self._table(table).delete(predicate, writer_properties=self._writing)

    def update(self, table: Path, predicate: str) -> None:
        self._table(table).update(
            {"salary": "salary + 1"}, predicate=predicate, writer_properties=self._writing
        )

    def merge(self, table: Path, source: Path) -> None:
        merge = self._table(table).merge(
            pq.read_table(source),
            "t.id = s.id",
            source_alias="s",
            target_alias="t",
            writer_properties=self._writing,
        )
        merge.when_matched_update_all().when_not_matched_insert_all().execute()

    def append(self, table: Path, source: Path) -> None:
        self._deltalake.write_deltalake(
            str(table), pq.read_table(source), mode="append", writer_properties=self._writing
        )

    def changes(self, table: Path, version: int) -> None:
        for _ in self._table(table).load_cdf(starting_version=version):
            pass

    def scan(self, table: Path) -> None:
        read_all_of(duckdb.from_arrow(self._table(table).to_pyarrow_dataset()))


CLASSES = {
    each.name: each
    for each in (
        DelvecOnSpark,
        DelvecAsSparkJobs,
        DelvecOnDuckDB,
        DeltaSpark,
        DeltaSparkRewriting,
        DeltaLake,
    )
}
NAMES = tuple(CLASSES)


def make(name: str, scratch: Path) -> Contender:
    """Return the contender with this name; ``scratch`` is a directory for its session."""
    return CLASSES[name](scratch)
