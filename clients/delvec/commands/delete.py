"""DELETE: rows that match a predicate go, by deletion vector, by rewriting their files, or with whole files."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from delvec._transport import ServiceClient
from delvec.commands.clock import Clock
from delvec.engines.engine import WriteTarget
from delvec.protocol.predicate import Predicate
from delvec.scan import Scan
from delvec.transaction import Metrics, Transaction, begin

if TYPE_CHECKING:
    from delvec.table import DeltaTable

__all__ = ["delete"]

_METRICS: Final[Mapping[str, int]] = dict.fromkeys(
    (
        "numAddedFiles",
        "numAddedBytes",
        "numRemovedFiles",
        "numRemovedBytes",
        "numDeletionVectorsAdded",
        "numDeletionVectorsRemoved",
        "numDeletionVectorsUpdated",
        "numAddedChangeFiles",
        "numDeletedRows",
        "numCopiedRows",
        "executionTimeMs",
        "scanTimeMs",
        "rewriteTimeMs",
    ),
    0,
)
_EVERYTHING: Final = "true"
"""The predicate of a DELETE without one: rows that others add meanwhile are its business, too."""


def delete(service: ServiceClient, table: "DeltaTable", predicate: str | None) -> Metrics:
    """Delete the matching rows of the newest version; see :meth:`delvec.DeltaTable.delete`."""
    clock = Clock()
    scan, condition = table.plan(predicate=predicate)
    whole, rest = scan, scan.filter(pa.repeat(False, len(scan)))
    if condition is not None:
        whole = scan.filter(scan.files["matches_all"])
        rest = scan.filter(pc.invert(scan.files["matches_all"]))
    transaction = Transaction(
        service,
        table.id,
        "DELETE",
        scan.version,
        engine_info=table.engine.name,
        predicate=_EVERYTHING if predicate is None else predicate,
    )
    metrics: dict[str, int] = {}
    if condition is not None and len(rest):
        if table.deletes_by_vector(scan):
            transaction.delete_rows(table.engine.find_rows(rest, condition))
        else:
            metrics = _rewrite(service, table, transaction, rest, condition, clock)
    clock.scanned()
    transaction.remove(whole.files["path"].to_pylist())
    if "numDeletedRows" in metrics and len(whole):
        # The service counts what it can; this is for files without statistics, and half a count is none.
        del metrics["numDeletedRows"]
    if transaction.is_empty:
        return Metrics({**_METRICS, **clock.metrics()}, None)
    return Metrics.of(transaction.commit(metrics=metrics | clock.metrics()), _METRICS)


def _rewrite(
    service: ServiceClient,
    table: "DeltaTable",
    transaction: Transaction,
    scan: Scan,
    condition: Predicate,
    clock: Clock,
) -> dict[str, int]:
    """Write files again without the matching rows; return the metrics that only this knows."""
    begun, _ = begin(service, table.id, "DELETE")
    transaction.transaction_id = begun.transaction_id
    target = WriteTarget(
        location=scan.location,
        schema=scan.schema,
        partition_columns=scan.partition_columns,
        configuration=scan.configuration,
        transaction_id=begun.transaction_id,
    )
    clock.scanned()
    rewritten = table.engine.rewrite(scan, condition, target)
    clock.rewritten()
    transaction.add(rewritten.adds)
    transaction.remove(rewritten.removed)
    return {"numDeletedRows": rewritten.rows_deleted, "numCopiedRows": rewritten.rows_copied}
