"""The systems that keep a table for ten rounds of refreshes, each with its own way of maintaining it."""

from pathlib import Path
from typing import Any

from benchmarks.dml_contenders import Contender, DeltaLake, DeltaSpark, DelvecOnDuckDB, DelvecOnSpark

__all__ = ["LIVING", "Living", "living"]

_POLICIES = ("data-compaction", "dv-purge", "dv-compaction", "checkpoint", "vacuum")


def _with_places(text: str, tables: dict[str, Path]) -> str:
    return text.format_map({name: f"delta.`{path}`" for name, path in tables.items()})


class Living(Contender):
    """A system that refreshes, maintains and queries a table.

    Attributes:
        settings: every setting that the contender was given, for the report.
        reads: what answers its queries.
    """

    settings = "none"
    reads = ""

    def begin(self, table: Path) -> None:
        """Open the table at this place, and set what the contender needs."""
        self.touch(table)

    def upkeep(self, table: Path) -> list[str]:
        """Maintain the table after a round; return what was done."""
        del table
        return []

    def query(self, text: str, tables: dict[str, Path]) -> None:
        """Run a query, with the places of ``{sales}`` and ``{item}``, and fetch its rows."""
        raise NotImplementedError


class _ByPolicies(Living):
    """Delvec with policies: maintained as ``delvec maintain`` does it, in the contender's process, on DuckDB."""

    settings = (
        "policies on the table, each with its [defaults](maintenance.md#policies): "
        + ", ".join(f"`system.{each}`" for each in _POLICIES)
        + "; `lake.maintenance.run([table])` after each round"
    )
    lake: Any

    def begin(self, table: Path) -> None:
        super().begin(table)
        for name in _POLICIES:
            self.lake.maintenance.set_policy(f"{table.name}-{name}", f"system.{name}", table=str(table))

    def upkeep(self, table: Path) -> list[str]:
        results = self.lake.maintenance.run([str(table)])
        failures = [each.reason for each in results if each.state not in ("done", "not-due")]
        if failures:
            raise RuntimeError("; ".join(failures))
        return [f"{each.type}: {each.reason}" for each in results if each.state == "done"]


class OnDuckDB(Living, DelvecOnDuckDB):
    """Delvec on DuckDB, unmaintained but for the checkpoints that the service always writes."""

    name = "Delvec on DuckDB, without policies"
    reads = "`lake.sql`"

    def query(self, text: str, tables: dict[str, Path]) -> None:
        self.lake.sql(_with_places(text, tables))


class OnDuckDBByPolicies(_ByPolicies, OnDuckDB):
    """Delvec on DuckDB, with policies."""

    name = "Delvec on DuckDB, with policies"


class OnSparkByPolicies(_ByPolicies, DelvecOnSpark):
    """Delvec on Spark, with policies."""

    name = "Delvec on Spark, with policies"
    reads = "`lake.sql(…, engine=spark)`"

    def query(self, text: str, tables: dict[str, Path]) -> None:
        self.lake.sql(_with_places(text, tables), engine=self.spark).collect()


class AutoCompacted(Living, DeltaSpark):
    """delta-spark with deletion vectors, whose commits compact small files."""

    name = "delta-spark, auto-compaction"
    settings = "`delta.enableDeletionVectors`, `delta.autoOptimize.autoCompact` and `delta.autoOptimize.optimizeWrite` = `true`"
    reads = "`spark.sql`"

    def begin(self, table: Path) -> None:
        self.spark.sql(
            f"ALTER TABLE delta.`{table}` SET TBLPROPERTIES "
            "('delta.autoOptimize.autoCompact' = 'true', 'delta.autoOptimize.optimizeWrite' = 'true')"
        ).collect()
        super().begin(table)

    def query(self, text: str, tables: dict[str, Path]) -> None:
        self.spark.sql(_with_places(text, tables)).collect()


class Compacted(Living, DeltaLake):
    """deltalake, whose table is compacted after each round."""

    name = "deltalake, compact()"
    settings = "`optimize.compact()` after each round"
    reads = "`deltalake.QueryBuilder` (DataFusion)"

    def upkeep(self, table: Path) -> list[str]:
        metrics = self._table(table).optimize.compact(writer_properties=self._writing)
        removed, added = metrics["numFilesRemoved"], metrics["numFilesAdded"]
        return [f"{removed} files became {added}"] if removed else []

    def query(self, text: str, tables: dict[str, Path]) -> None:
        builder = self._deltalake.QueryBuilder()
        for name, path in tables.items():
            builder = builder.register(name, self._table(path))
        builder.execute(text.format_map({name: name for name in tables})).read_all()


LIVING = {
    each.name: each for each in (OnDuckDBByPolicies, OnDuckDB, OnSparkByPolicies, AutoCompacted, Compacted)
}


def living(name: str, scratch: Path) -> Living:
    """Return the contender with this name; ``scratch`` is a directory for its session."""
    return LIVING[name](scratch)
