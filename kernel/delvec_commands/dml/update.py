"""UPDATE: deletes matching rows, and writes them with new values to new files."""

import json
from collections.abc import Mapping
from typing import Any, Final

from delvec_commands.dml import row_command, touched_files
from delvec_commands.dml.assignments import Relations, updated
from delvec_commands.dml.row_command import Clock
from delvec_commands.dml.self_reads import WritableTable
from delvec_commands.table_service import TableService
from delvec_commands.transaction import Metrics, Transaction, begin
from delvec_engines import row_ids
from delvec_engines.row_changes import TARGET, Clause, RowChange
from delvec_engines.scan import Scan
from delvec_kernel.expressions import predicate as predicates
from delvec_kernel.expressions.expression import parse_expression

__all__ = ["planned", "update"]

_METRICS: Final = row_command.metrics_of_rows("numUpdatedRows")


def update(
    service: TableService,
    table: WritableTable,
    assignments: Mapping[str, Any],
    predicate: str | None,
    *,
    dry_run: bool = False,
    user_metadata: str | None = None,
) -> Metrics:
    """Update the matching rows of the newest version; see :meth:`delvec.DeltaTable.update`."""
    clock = Clock()
    scan, change = planned(table, assignments, predicate)
    if dry_run:
        return _dry_run(table, scan, predicate, clock)
    if not len(scan):
        return Metrics({**_METRICS, **clock.metrics()}, None)
    begin_response, _ = begin(service, table.id, "UPDATE")
    target = row_command.target_of(scan, begin_response.transaction_id)
    changed_rows = table.engine.change_rows(*row_ids.add_to_change(scan, change, target))
    clock.scanned()
    transaction = Transaction(
        service,
        table.id,
        "UPDATE",
        scan.version,
        read_mark=scan.read_mark,
        transaction_id=begin_response.transaction_id,
        engine_info=table.engine.name,
        predicate=predicate,
        operation_parameters={
            "predicate": json.dumps([] if predicate is None else [f"({predicate})"], ensure_ascii=False)
        },
        user_metadata=user_metadata,
    )
    if table.source_version is not None:
        transaction.mark_read(whole_table=True)
    num_copied_rows = row_command.take_over(transaction, table, scan, changed_rows, target)
    clock.rewritten()
    if transaction.is_empty:
        return Metrics({**_METRICS, **clock.metrics()}, None)
    metrics = {"numUpdatedRows": changed_rows.rows_updated, "numCopiedRows": num_copied_rows}
    return Metrics.of(transaction.commit(metrics=metrics | clock.metrics()), _METRICS)


def planned(
    table: WritableTable, assignments: Mapping[str, Any], predicate: str | None
) -> tuple[Scan, RowChange]:
    """Return the files that an UPDATE of the newest version reads, and the change of their rows."""
    scan, _ = table.plan(predicate=predicate, row_ids=True)
    table.check_source_version(scan.version)
    clause = _clause(scan, assignments, predicate)
    return scan, RowChange([clause], change_feed=scan.keeps_change_feed)


def _clause(scan: Scan, assignments: Mapping[str, Any], predicate: str | None) -> Clause:
    aliases = {TARGET: ""}
    condition = None
    if predicate is not None:
        condition = parse_expression(predicate, {TARGET: scan.schema}, aliases, boolean=True)
        row_command.check_deterministic(condition, "The condition of an UPDATE")
    tables = Relations(scan.schema, scan.schema, aliases=aliases)
    return Clause("matched", "update", condition, updated(assignments, tables, "UPDATE SET", (TARGET,)))


def _dry_run(table: WritableTable, scan: Scan, predicate: str | None, clock: Clock) -> Metrics:
    condition = predicates.parse("true" if predicate is None else predicate, scan.schema)
    matching_rows = table.engine.find_rows(scan, condition) if len(scan) else {}
    files = touched_files.touched_files(scan, matching_rows, vectors=scan.deletes_by_vector)
    return touched_files.DryRun(
        {
            **_METRICS,
            "numUpdatedRows": touched_files.rows_of(files),
            **row_command.foreseen(files),
            **clock.metrics(),
        },
        files,
    )
