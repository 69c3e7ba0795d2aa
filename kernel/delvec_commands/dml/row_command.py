"""Shared steps of UPDATE, MERGE and DELETE: targets, results of the engine, metrics and times."""

import time
from collections.abc import Mapping, Sequence
from typing import Final

from sqlglot import exp

from delvec_commands.dml import touched_files
from delvec_commands.dml.touched_files import TouchedFile
from delvec_commands.reading import ReadableTable
from delvec_commands.transaction import Transaction
from delvec_engines.protocol import WriteTarget
from delvec_engines.row_changes import ChangedRows
from delvec_engines.scan import Scan
from delvec_errors import InvalidPredicate
from delvec_kernel.constraints.declared import generates
from delvec_kernel.expressions.expression import Expression
from delvec_kernel.schema.types import StructType

__all__ = [
    "Clock",
    "check_deterministic",
    "foreseen",
    "metrics_of_rows",
    "take_over",
    "target_of",
]


_RANDOM: Final = frozenset(
    {
        "input_file_name",
        "monotonically_increasing_id",
        "rand",
        "randn",
        "random",
        "randstr",
        "shuffle",
        "spark_partition_id",
        "uniform",
        "uuid",
    }
)


def metrics_of_rows(count_name: str) -> dict[str, int]:
    """Return Delta's metrics of an UPDATE or DELETE, all 0; ``count_name`` is the name of its row count."""
    return dict.fromkeys(
        (
            "numAddedFiles",
            "numAddedBytes",
            "numRemovedFiles",
            "numRemovedBytes",
            "numDeletionVectorsAdded",
            "numDeletionVectorsRemoved",
            "numDeletionVectorsUpdated",
            "numAddedChangeFiles",
            count_name,
            "numCopiedRows",
            "executionTimeMs",
            "scanTimeMs",
            "rewriteTimeMs",
        ),
        0,
    )


def target_of(scan: Scan, transaction_id: str | None = None, schema: StructType | None = None) -> WriteTarget:
    """Return the target of new files.

    Args:
        scan: the version that was read.
        transaction_id: part of file names; None for a dry run, which writes none.
        schema: the table's schema after the commit; by default that of the scan.
    """
    return WriteTarget(
        location=scan.location,
        schema=schema or scan.schema,
        partition_columns=scan.partition_columns,
        configuration=scan.configuration,
        transaction_id=transaction_id or "dry-run",
        generated_columns=generates(scan.protocol),
        empty_texts=scan.empty_texts,
    )


def check_deterministic(condition: Expression, what: str) -> None:
    """Check that a condition has no function known to be non-deterministic; unknown functions pass.

    Raises:
        InvalidPredicate: names the function.
    """
    for node in condition.root.walk():
        name = node.name if isinstance(node, exp.Anonymous) else node.key
        if name.lower() in _RANDOM:
            raise InvalidPredicate(
                f"{what}, {condition.text[:200]!r}, calls {name.lower()}(), which is not deterministic; write its "
                "values to a column first."
            )


def take_over(
    transaction: Transaction, table: ReadableTable, scan: Scan, changed_rows: ChangedRows, target: WriteTarget
) -> int:
    """Add an engine's changes to a transaction; return the number of copied rows."""
    vectors = scan.deletes_by_vector
    files = touched_files.touched_files(scan, changed_rows.row_deletes, vectors=vectors)
    num_copied_rows = touched_files.change(
        transaction, table.engine, scan, changed_rows.row_deletes, files, target, vectors=vectors
    )
    transaction.add(changed_rows.adds)
    transaction.keeps_row_ids = True
    if changed_rows.change_files:
        transaction.add_change_files(changed_rows.change_files)
    return num_copied_rows


def foreseen(files: Sequence[TouchedFile], prefix: str = "num") -> Mapping[str, int]:
    """Return the file metrics of a dry run.

    Args:
        files: files that lose rows.
        prefix: the prefix of the metric names.
    """
    by_means = [file.means for file in files]
    return {
        f"{prefix}RemovedFiles" if prefix == "num" else f"{prefix}FilesRemoved": len(files)
        - by_means.count("vector"),
        f"{prefix}DeletionVectorsAdded": by_means.count("vector"),
    }


class Clock:
    """Milliseconds since the command began, split as Delta's metrics split them."""

    def __init__(self) -> None:
        self._start = time.perf_counter()
        self._scan: int | None = None
        self._rewrite = 0

    def _elapsed(self) -> int:
        return round((time.perf_counter() - self._start) * 1000)

    def scanned(self) -> None:
        """Note the end of the scan; only the first call counts."""
        if self._scan is None:
            self._scan = self._elapsed()

    def rewritten(self) -> None:
        """Note the end of the rewrite after the scan."""
        self._rewrite = self._elapsed() - (self._scan or 0)

    def metrics(self) -> dict[str, int]:
        """Return the times so far."""
        elapsed = self._elapsed()
        scan = elapsed if self._scan is None else self._scan
        return {"executionTimeMs": elapsed, "scanTimeMs": scan, "rewriteTimeMs": self._rewrite}
