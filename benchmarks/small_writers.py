"""The systems compared for small writes: MERGEs of a hundred rows, and the steps of an erasure."""

import os
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pyarrow.parquet as pq

from benchmarks.dml_contenders import PEER, Contender, DeltaLake, DeltaSpark, DelvecOnDuckDB, DelvecOnSpark

__all__ = ["CLASSES", "NAMES", "OURS", "PEERS", "SmallWriter", "make"]

_ON = "target.id = source.id"
_BATCH = (
    "id long, firstName string, middleName string, lastName string, gender string, birthDate timestamp, "
    "ssn string, salary int, op string"
)
_VACUUM = {
    "spark.databricks.delta.retentionDurationCheck.enabled": "false",
    # Otherwise it lists the table in 10,000 tasks, even on one machine.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": str(os.cpu_count() or 1),
}


class SmallWriter(Contender):
    """A system that merges batches of changes, and erases rows.

    Attributes:
        steps: what it takes until erased bytes are gone: methods, in this order.
    """

    steps: tuple[str, ...] = ("erase", "purge", "vacuum")

    def apply(self, table: Path, batch: Path) -> None:
        """MERGE a batch of changes: rows with ``op`` D are deleted, others update or are inserted."""
        raise NotImplementedError

    def look_up(self, table: Path, key: int) -> int:
        """Read the rows with this id; return how many there are."""
        raise NotImplementedError

    def compact(self, table: Path) -> None:
        """Run OPTIMIZE with its defaults."""
        raise NotImplementedError

    def erase(self, table: Path, keys: Path) -> None:
        """Delete the rows whose id is among the keys."""
        raise NotImplementedError

    def purge(self, table: Path, keys: Path) -> None:
        """Rewrite the files that have deleted rows."""
        raise NotImplementedError

    def vacuum(self, table: Path, keys: Path) -> None:
        """Delete the files that the newest version does not need, however young."""
        raise NotImplementedError


class SparkWriter(DelvecOnSpark, SmallWriter):
    """Delvec on PySpark, with an embedded service; small commands run in the driver, as by default."""

    def _rows(self, source: Path) -> Any:
        return _frame(self.spark, source)

    def apply(self, table: Path, batch: Path) -> None:
        merge = self._table(table).merge(self._rows(batch), _ON).when_matched_delete("source.op = 'D'")
        merge.when_matched_update_all().when_not_matched_insert_all("source.op <> 'D'").execute()

    def look_up(self, table: Path, key: int) -> int:
        return len(self._table(table).to_df().where(f"id = {key}").collect())

    def compact(self, table: Path) -> None:
        self._table(table).optimize()

    def erase(self, table: Path, keys: Path) -> None:
        self._table(table).delete(keys=self._rows(keys), on=["id"])

    def purge(self, table: Path, keys: Path) -> None:  # noqa: ARG002
        self._table(table).optimize.purge()

    def vacuum(self, table: Path, keys: Path) -> None:  # noqa: ARG002
        self._table(table).vacuum(0, enforce_retention_duration=False)


class DuckDBWriter(DelvecOnDuckDB, SparkWriter):
    """Delvec on DuckDB, with an embedded service."""

    def look_up(self, table: Path, key: int) -> int:
        return int(self._table(table).to_arrow(predicate=f"id = {key}").num_rows)


class DeltaSparkWriter(DeltaSpark, SmallWriter):
    """delta-spark, on tables with deletion vectors."""

    def apply(self, table: Path, batch: Path) -> None:
        self._merge(
            table,
            batch,
            "WHEN MATCHED AND source.op = 'D' THEN DELETE WHEN MATCHED THEN UPDATE SET * "
            "WHEN NOT MATCHED AND source.op <> 'D' THEN INSERT *",
        )

    def _merge(self, table: Path, source: Path, clauses: str) -> None:
        _frame(self.spark, source).createOrReplaceTempView("source")
        self.spark.sql(f"MERGE INTO delta.`{table}` target USING source ON {_ON} {clauses}").collect()

    def look_up(self, table: Path, key: int) -> int:
        return len(self.spark.read.format("delta").load(str(table)).where(f"id = {key}").collect())

    def compact(self, table: Path) -> None:
        self.spark.sql(f"OPTIMIZE delta.`{table}`").collect()

    def erase(self, table: Path, keys: Path) -> None:
        # Its DELETE takes no subquery.
        self._merge(table, keys, "WHEN MATCHED THEN DELETE")

    def purge(self, table: Path, keys: Path) -> None:  # noqa: ARG002
        self.spark.sql(f"REORG TABLE delta.`{table}` APPLY (PURGE)").collect()

    def vacuum(self, table: Path, keys: Path) -> None:  # noqa: ARG002
        for name, value in _VACUUM.items():
            self.spark.conf.set(name, value)
        self.spark.sql(f"VACUUM delta.`{table}` RETAIN 0 HOURS").collect()


class DeltaLakeWriter(DeltaLake, SmallWriter):
    """deltalake, which does not write deletion vectors: a DELETE rewrites the files."""

    steps = ("erase", "vacuum")

    def _merge(self, table: Path, source: Path) -> Any:
        return self._table(table).merge(
            pq.read_table(source), _ON, "source", "target", writer_properties=self._writing
        )

    def apply(self, table: Path, batch: Path) -> None:
        merge = self._merge(table, batch).when_matched_delete("source.op = 'D'")
        merge = merge.when_matched_update_all(except_cols=["op"])
        merge.when_not_matched_insert_all("source.op <> 'D'", except_cols=["op"]).execute()

    def look_up(self, table: Path, key: int) -> int:
        rows = self._table(table).to_pyarrow_dataset().to_table(filter=ds.field("id") == key)
        return int(rows.num_rows)

    def compact(self, table: Path) -> None:
        self._table(table).optimize.compact(writer_properties=self._writing)

    def erase(self, table: Path, keys: Path) -> None:
        self._merge(table, keys).when_matched_delete().execute()

    def vacuum(self, table: Path, keys: Path) -> None:  # noqa: ARG002
        self._table(table).vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)


def _frame(spark: Any, source: Path) -> Any:
    """Return the rows of a Parquet file; with a schema for batches, so that Spark need not read it first."""
    reader = spark.read
    return (reader if source.name.startswith("keys") else reader.schema(_BATCH)).parquet(str(source))


CLASSES = {each.name: each for each in (DuckDBWriter, SparkWriter, DeltaSparkWriter, DeltaLakeWriter)}
NAMES = tuple(CLASSES)
OURS = (DuckDBWriter.name, SparkWriter.name)
PEERS = (PEER, DeltaLakeWriter.name)


def make(name: str, scratch: Path) -> SmallWriter:
    """Return the contender with this name; ``scratch`` is a directory for its session."""
    return CLASSES[name](scratch)
