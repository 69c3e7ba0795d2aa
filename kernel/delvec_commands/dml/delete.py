"""DELETE by deletion vectors, by rewriting files, or by removing whole files.

Tested in `tests/integration/client/dml/test_row_commands.py`.
"""

import json
from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from delvec_commands.dml import row_command, touched_files
from delvec_commands.dml.row_command import Clock
from delvec_commands.dml.self_reads import WritableTable
from delvec_commands.dml.touched_files import TouchedFile
from delvec_commands.table_service import TableService
from delvec_commands.transaction import Metrics, Transaction, begin
from delvec_engines.footers import with_row_counts
from delvec_engines.row_changes import SOURCE, TARGET, Clause, MergeSource, RowChange
from delvec_engines.scan import Scan
from delvec_errors import BadRequest, UnknownColumn
from delvec_kernel.expressions.expression import parse_expression
from delvec_kernel.expressions.join_condition import conjuncts, join_keys, key_ranges, target_terms
from delvec_kernel.expressions.predicate import Predicate
from delvec_kernel.schema.column_paths import backticked
from delvec_kernel.schema.types import StructType

__all__ = ["delete", "delete_keys"]

_METRICS: Final = row_command.metrics_of_rows("numDeletedRows")
_EVERYTHING: Final = "true"
"""The predicate of a DELETE without one, so that concurrent appends conflict with it."""


def delete(
    service: TableService,
    table: WritableTable,
    predicate: str | None,
    *,
    dry_run: bool = False,
    user_metadata: str | None = None,
) -> Metrics:
    """Delete the matching rows of the newest version; see :meth:`delvec.DeltaTable.delete`."""
    clock = Clock()
    scan, condition = table.plan(predicate=predicate, row_ids=True)
    table.check_source_version(scan.version)
    vectors = scan.deletes_by_vector
    if condition is None:
        whole, rest = with_row_counts(scan), scan.filter(pa.repeat(False, len(scan)))
    else:
        whole = with_row_counts(scan.filter(scan.files["matches_all"]))
        rest = scan.filter(pc.invert(scan.files["matches_all"]))
    feed = scan.keeps_change_feed
    if condition is not None and len(rest) and feed and not vectors and not dry_run:
        return _with_change_files(service, table, scan, condition, user_metadata, clock)
    transaction = _transaction(service, table, scan, predicate, user_metadata)
    dv_files = transaction.deletion_vector_files(scan.location) if vectors and not dry_run else None
    row_deletes = (
        table.engine.find_rows(rest, condition, dv_files) if condition is not None and len(rest) else {}
    )
    clock.scanned()
    # Without change files, readers of the feed would take copied rows for changes.
    files = touched_files.touched_files(rest, row_deletes, vectors=vectors, may_rewrite=not feed)
    if dry_run:
        return _dry_run([*_whole_files(whole), *files], clock)
    target = None
    if any(file.means == "rewrite" for file in files):
        if not touched_files.written_vectors(
            row_deletes
        ):  # otherwise the transaction has begun, with files of its own
            transaction.transaction_id = begin(service, table.id, "DELETE")[0].transaction_id
        target = row_command.target_of(scan, transaction.transaction_id)
    num_copied_rows = touched_files.change(
        transaction, table.engine, rest, row_deletes, files, target, vectors=vectors
    )
    if target is not None:
        clock.rewritten()
    transaction.remove(whole.files["path"].to_pylist())
    if transaction.is_empty:
        return Metrics({**_METRICS, **clock.metrics()}, None)
    num_deleted_rows = touched_files.rows_of([*_whole_files(whole), *files])
    # The service's count takes precedence: it uses the statistics in the log.
    counted = {} if num_deleted_rows is None else {"numDeletedRows": num_deleted_rows}
    commit_response = transaction.commit(
        metrics={"numCopiedRows": num_copied_rows, **counted, **clock.metrics()}
    )
    return Metrics.of(commit_response, {**_METRICS, "numDeletedRows": num_deleted_rows})


def delete_keys(
    service: TableService,
    table: WritableTable,
    predicate: str | None,
    source: MergeSource,
    on: str | Sequence[str] | None,
    *,
    dry_run: bool = False,
    user_metadata: str | None = None,
) -> Metrics:
    """Delete the rows whose key occurs in ``source``; NULL matches nothing.

    Args:
        service: of the table.
        table: the target.
        predicate: delete only rows that also satisfy it.
        source: the keys.
        on: the key columns; all columns of the source by default.
        dry_run: return the metrics, and write nothing.
        user_metadata: text for the table's history.
    """
    clock = Clock()
    transaction_id = None
    if dry_run:
        schema = StructType.from_json(table.snapshot().table_schema)
    else:
        begin_response, schema = begin(service, table.id, "DELETE")
        transaction_id = begin_response.transaction_id
    text = _join(schema, source.schema, on)
    relations = {TARGET: schema, SOURCE: source.schema}
    terms = conjuncts(text, relations)
    target_predicates: list[str] = []
    on_text = text
    if predicate is not None:
        condition = parse_expression(predicate, {TARGET: schema}, {TARGET: ""}, boolean=True)
        row_command.check_deterministic(condition, "The condition of a DELETE by keys")
        target_predicates = target_terms([condition], TARGET)
        # Not a condition of the clause: then a duplicate key would be an error (MultipleMatches).
        on_text = f"{text} AND ({condition.sql()})"
    if source.bounds is not None:
        keys = join_keys(terms, relations, TARGET, SOURCE)
        target_predicates += key_ranges(keys, source.bounds([key.source for key in keys])) if keys else []
    reads = " AND ".join(f"({each})" for each in target_predicates)
    scan, _ = table.plan(predicate=reads or None, row_ids=True)
    if scan.schema != schema:
        # The schema changed between the snapshot and the plan: resolve names again.
        return delete_keys(
            service, table, predicate, source, on, dry_run=dry_run, user_metadata=user_metadata
        )
    feed, vectors = scan.keeps_change_feed, scan.deletes_by_vector
    # With deletion vectors, readers of the feed derive deletes from them, and change files are not needed.
    by_files = feed and not vectors
    change = RowChange(
        [Clause("matched", "delete")],
        on=parse_expression(on_text, relations, boolean=True),
        source=source,
        change_feed=by_files,
        dry_run=dry_run,
    )
    target = row_command.target_of(scan, transaction_id)
    changed_rows = table.engine.change_rows(scan, change, target)
    clock.scanned()
    files = touched_files.touched_files(scan, changed_rows.row_deletes, vectors=vectors, may_rewrite=not feed)
    if dry_run:
        return _dry_run(files, clock)
    shown = text if predicate is None else f"{text} AND ({predicate})"
    transaction = _transaction(service, table, scan, reads or _EVERYTHING, user_metadata, shown)
    transaction.transaction_id = target.transaction_id
    transaction.add_change_files(changed_rows.change_files)
    row_deletes = changed_rows.row_deletes
    num_copied_rows = touched_files.change(
        transaction, table.engine, scan, row_deletes, files, target, vectors=vectors
    )
    clock.rewritten()
    if transaction.is_empty:
        return Metrics({**_METRICS, **clock.metrics()}, None)
    metrics = {"numCopiedRows": num_copied_rows, "numDeletedRows": touched_files.rows_of(files) or 0}
    return Metrics.of(transaction.commit(metrics=metrics | clock.metrics()), _METRICS)


def _with_change_files(
    service: TableService,
    table: WritableTable,
    scan: Scan,
    condition: Predicate,
    user_metadata: str | None,
    clock: Clock,
) -> Metrics:
    """Delete from a table with change data feed but without deletion vectors, writing change files."""
    begin_response, _ = begin(service, table.id, "DELETE")
    target = row_command.target_of(scan, begin_response.transaction_id)
    clause = Clause(
        "matched", "delete", parse_expression(condition.text, {TARGET: scan.schema}, {TARGET: ""})
    )
    changed_rows = table.engine.change_rows(scan, RowChange([clause], change_feed=True), target)
    clock.scanned()
    transaction = _transaction(service, table, scan, condition.text, user_metadata)
    transaction.transaction_id = begin_response.transaction_id
    num_copied_rows = row_command.take_over(transaction, table, scan, changed_rows, target)
    clock.rewritten()
    if transaction.is_empty:
        return Metrics({**_METRICS, **clock.metrics()}, None)
    metrics = {"numCopiedRows": num_copied_rows, "numDeletedRows": changed_rows.rows_deleted}
    return Metrics.of(transaction.commit(metrics=metrics | clock.metrics()), _METRICS)


def _transaction(
    service: TableService,
    table: WritableTable,
    scan: Scan,
    predicate: str | None,
    user_metadata: str | None,
    shown: str | None = None,
) -> Transaction:
    parameters = None if shown is None else {"predicate": json.dumps([f"({shown})"], ensure_ascii=False)}
    transaction = Transaction(
        service,
        table.id,
        "DELETE",
        scan.version,
        read_mark=scan.read_mark,
        engine_info=table.engine.name,
        predicate=_EVERYTHING if predicate is None else predicate,
        operation_parameters=parameters,
        user_metadata=user_metadata,
    )
    if table.source_version is not None:
        transaction.mark_read(whole_table=True)
    return transaction


def _whole_files(scan: Scan) -> list[TouchedFile]:
    columns = (scan.files[name].to_pylist() for name in ("path", "num_records", "deletion_vector"))
    found = []
    for path, total, vector in zip(*columns, strict=True):
        live = None if total is None else total - (vector["cardinality"] if vector else 0)
        found.append(TouchedFile(path, live, live, "removal"))
    return found


def _dry_run(files: Sequence[TouchedFile], clock: Clock) -> Metrics:
    return touched_files.DryRun(
        {
            **_METRICS,
            "numDeletedRows": touched_files.rows_of(files),
            **row_command.foreseen(files),
            **clock.metrics(),
        },
        files,
    )


def _join(target: StructType, source: StructType, on: str | Sequence[str] | None) -> str:
    names = source.names if on is None else [on] if isinstance(on, str) else list(on)
    if not names:
        raise BadRequest("delete(keys=...) needs columns to compare; give on=[...].")
    for name in names:
        for schema, side in ((target, "the table"), (source, "keys")):
            if name not in schema:
                raise UnknownColumn(
                    f"delete(keys=...) compares column {name!r}, which {side} does not have; there are "
                    f"{', '.join(repr(each) for each in schema.names[:20])}. Choose columns with on=[...].",
                    column=name,
                    suggestions=[],
                )
    quoted = [backticked(name) for name in names]
    return " AND ".join(f"{TARGET}.{each} = {SOURCE}.{each}" for each in quoted)
