"""The systems compared for row changes: one class each, with the same jobs, each in its own process."""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

import delvec
from benchmarks.contenders import CODEC, DeltaFormat, read_all, read_all_of, spark_session

__all__ = ["CLASSES", "NAMES", "PEER", "Contender", "Merge", "Sail", "make"]

PEER = "delta-spark with DVs"
Sources = Mapping[str, Path]


@dataclass(frozen=True)
class Merge:
    """A MERGE of a Parquet file; ``t`` is the table and ``s`` the file.

    Attributes:
        source: the file.
        on: the condition.
        update: whether matched rows get all the source's values.
        delete: whether matched rows are deleted.
        inserts: the condition of each clause that inserts rows which are not matched; an empty one inserts every row.
    """

    source: Path
    on: str = "t.id = s.id"
    update: bool = True
    delete: bool = False
    inserts: tuple[str, ...] = ("",)

    def sql(self, table: Path) -> str:
        """Return the statement, for a source that is a view with the name ``source``."""
        clauses = ["WHEN MATCHED THEN UPDATE SET *"] * self.update + [
            "WHEN MATCHED THEN DELETE"
        ] * self.delete
        for condition in self.inserts:
            clauses.append(f"WHEN NOT MATCHED{' AND ' if condition else ''}{condition} THEN INSERT *")
        return f"MERGE INTO delta.`{table}` t USING source s ON {self.on} {' '.join(clauses)}"


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

    def merge(self, table: Path, merge: Merge) -> None:
        """Merge a file into the table."""
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

    def merge(self, table: Path, merge: Merge) -> None:
        rows = self._rows(merge.source)
        builder = self._table(table).merge(rows, merge.on, source_alias="s", target_alias="t")
        _with_clauses(builder, merge).execute()

    def append(self, table: Path, source: Path) -> None:
        self._table(table).append(self._rows(source))

    def changes(self, table: Path, version: int) -> None:
        read_all(self._table(table).changes_df(version))

    def scan(self, table: Path) -> None:
        read_all(self._table(table).to_df())


class DelvecAsSparkJobs(DelvecOnSpark):
    """Delvec on PySpark, as it runs commands that are too large for the driver: DuckDB in Spark's tasks."""

    name = "Delvec on Spark, as jobs"
    only_changes = True

    def __init__(self, scratch: Path) -> None:
        super().__init__(scratch)
        self.spark.conf.set("spark.delvec.localExecution.enabled", "false")


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


class DeltaSpark(DeltaFormat, _OnSpark):
    """delta-spark, on tables with deletion vectors."""

    name = PEER

    def update(self, table: Path, predicate: str) -> None:
        self.spark.sql(f"UPDATE delta.`{table}` SET salary = salary + 1 WHERE {predicate}").collect()

    def merge(self, table: Path, merge: Merge) -> None:
        self.spark.read.parquet(str(merge.source)).createOrReplaceTempView("source")
        self.spark.sql(merge.sql(table)).collect()

    def append(self, table: Path, source: Path) -> None:
        self.spark.read.parquet(str(source)).write.format("delta").mode("append").save(str(table))

    def changes(self, table: Path, version: int) -> None:
        feed = self.spark.read.format("delta").option("readChangeFeed", "true")
        read_all(feed.option("startingVersion", version).load(str(table)))


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

    def merge(self, table: Path, merge: Merge) -> None:
        builder = self._table(table).merge(
            pq.read_table(merge.source),
            merge.on,
            source_alias="s",
            target_alias="t",
            writer_properties=self._writing,
        )
        _with_clauses(builder, merge).execute()

    def append(self, table: Path, source: Path) -> None:
        self._deltalake.write_deltalake(
            str(table), pq.read_table(source), mode="append", writer_properties=self._writing
        )

    def changes(self, table: Path, version: int) -> None:
        for _ in self._table(table).load_cdf(starting_version=version):
            pass

    def scan(self, table: Path) -> None:
        read_all_of(duckdb.from_arrow(self._table(table).to_pyarrow_dataset()))


class Sail(DeltaFormat, Contender):
    """Sail, called through Spark Connect; only deletes.

    It is not in the environment of the tests: ``pip install --target .build/sail pysail grpcio grpcio-status
    googleapis-common-protos zstandard pandas`` makes it a contender.
    """

    name = "Sail"
    folder = Path(__file__).resolve().parent.parent / ".build" / "sail"

    def __init__(self, scratch: Path) -> None:  # noqa: ARG002 - needs none
        # It would end the session while other contenders have their turns.
        os.environ.setdefault("SAIL_SPARK__SESSION_TIMEOUT_SECS", "86400")
        # At the end, so that everything else comes from the environment.
        sys.path.append(str(self.folder))
        from pysail.spark import SparkConnectServer
        from pyspark.sql.connect.session import SparkSession

        self._server = SparkConnectServer("127.0.0.1", 0)
        self._server.start(background=True)
        _, port = self._server.listening_address
        self.spark = SparkSession.builder.remote(f"sc://127.0.0.1:{port}").getOrCreate()

    def close(self) -> None:
        self.spark.stop()
        self._server.stop()


def _with_clauses(builder: Any, merge: Merge) -> Any:
    """Add the clauses to a builder; Delvec's and deltalake's have the same methods."""
    if merge.update:
        builder = builder.when_matched_update_all()
    if merge.delete:
        builder = builder.when_matched_delete()
    for condition in merge.inserts:
        builder = builder.when_not_matched_insert_all(condition or None)
    return builder


CLASSES = {
    each.name: each
    for each in (
        DelvecOnSpark,
        DelvecAsSparkJobs,
        DelvecOnDuckDB,
        DeltaSpark,
        DeltaSparkRewriting,
        DeltaLake,
        Sail,
    )
}
NAMES = tuple(name for name in CLASSES if name != Sail.name)
"""Contenders that do every job."""


def make(name: str, scratch: Path) -> Contender:
    """Return the contender with this name; ``scratch`` is a directory for its session."""
    return CLASSES[name](scratch)
