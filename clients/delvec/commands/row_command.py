"""What UPDATE, MERGE and DELETE have in common once it is known which rows change."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from sqlglot import exp

from delvec.commands import touched_files
from delvec.commands.touched_files import TouchedFile
from delvec.engines.engine import WriteTarget
from delvec.engines.row_changes import ChangedRows
from delvec.protocol.constraints import generates
from delvec.protocol.errors import InvalidPredicate
from delvec.protocol.expression import Expression
from delvec.protocol.table_properties import is_true
from delvec.protocol.types import StructType
from delvec.protocol.wire import SnapshotResponse
from delvec.scan import Scan
from delvec.transaction import Transaction

if TYPE_CHECKING:
    from delvec.table import DeltaTable

__all__ = [
    "check_deterministic",
    "foreseen",
    "keeps_change_feed",
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


def metrics_of_rows(changed: str) -> dict[str, int]:
    """Return Delta's metrics of an UPDATE or a DELETE, all 0; ``changed`` is the name of the one that counts its rows."""
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
            changed,
            "numCopiedRows",
            "executionTimeMs",
            "scanTimeMs",
            "rewriteTimeMs",
        ),
        0,
    )


def target_of(begun: SnapshotResponse, scan: Scan, schema: StructType | None = None) -> WriteTarget:
    """Return where new files go.

    Args:
        begun: of the transaction; its id goes into the names.
        scan: the version that was read.
        schema: the table's as it will be, where it changes.
    """
    return WriteTarget(
        location=scan.location,
        schema=schema or scan.schema,
        partition_columns=scan.partition_columns,
        configuration=scan.configuration,
        transaction_id=str(getattr(begun, "transaction_id", "dry-run")),
        generated_columns=generates(begun.protocol),
    )


def keeps_change_feed(scan: Scan) -> bool:
    """Whether the table keeps a change data feed."""
    return is_true(scan.configuration, "delta.enableChangeDataFeed")


def check_deterministic(condition: Expression, what: str) -> None:
    """Refuse a condition that is true for other rows each time; a function that nobody here knows is let pass.

    Raises:
        InvalidPredicate: names the function.
    """
    for node in condition.root.walk():
        name = node.name if isinstance(node, exp.Anonymous) else node.key
        if name.lower() in _RANDOM:
            raise InvalidPredicate(
                f"{what}, {condition.text[:200]!r}, calls {name.lower()}(), which has another value each time; write the "
                "values into a column first."
            )


def take_over(
    transaction: Transaction, table: "DeltaTable", scan: Scan, changed: ChangedRows, target: WriteTarget
) -> int:
    """Put what an engine did into a transaction; return how many rows were written again as they were."""
    vectors = table.deletes_by_vector(scan)
    files = touched_files.touched_files(scan, changed.row_deletes, vectors=vectors)
    copied = touched_files.change(
        transaction, table.engine, scan, changed.row_deletes, files, target, vectors=vectors
    )
    transaction.add(changed.adds)
    transaction.keeps_row_ids = True
    if changed.change_files:
        transaction.add_change_files(changed.change_files)
    return copied


def foreseen(files: Sequence[TouchedFile], prefix: str = "num") -> Mapping[str, int]:
    """Return the metrics that are known before anything is done.

    Args:
        files: that lose rows.
        prefix: of the names.
    """
    by_means = [file.means for file in files]
    return {
        f"{prefix}RemovedFiles" if prefix == "num" else f"{prefix}FilesRemoved": len(files)
        - by_means.count("vector"),
        f"{prefix}DeletionVectorsAdded": by_means.count("vector"),
    }
