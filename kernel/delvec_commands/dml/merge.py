"""MERGE: resolves the clauses, plans the scan, runs the engine and commits.

Tested in `tests/integration/engines/test_merge.py`.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa

from delvec_commands.dml import row_command, touched_files
from delvec_commands.dml.assignments import Relations, inserted, updated
from delvec_commands.dml.merge_builder import MergeStatement, When
from delvec_commands.dml.row_command import Clock
from delvec_commands.dml.schema_evolution import new_columns, with_new_columns
from delvec_commands.dml.self_reads import WritableTable
from delvec_commands.reading import ReadableTable
from delvec_commands.table_service import TableService
from delvec_commands.transaction import Metrics, Transaction, begin
from delvec_contract.tables import SnapshotResponse
from delvec_engines import identity_values, row_ids
from delvec_engines.protocol import WriteTarget
from delvec_engines.row_changes import SOURCE, TARGET, ChangedRows, Clause, MergeSource, RowChange
from delvec_engines.scan import Scan
from delvec_errors import DelvecError, InvalidTableChange
from delvec_kernel.expressions.expression import Expression, parse_expression
from delvec_kernel.expressions.join_condition import conjuncts, join_keys, key_ranges, target_terms
from delvec_kernel.schema.types import StructType

__all__ = ["merge", "planned"]

_METRICS: Final[Mapping[str, int]] = dict.fromkeys(
    (
        "numSourceRows",
        "numTargetRowsInserted",
        "numTargetRowsUpdated",
        "numTargetRowsDeleted",
        "numTargetRowsCopied",
        "numOutputRows",
        "numTargetFilesAdded",
        "numTargetFilesRemoved",
        "numTargetBytesAdded",
        "numTargetBytesRemoved",
        "numTargetDeletionVectorsAdded",
        "numTargetDeletionVectorsRemoved",
        "numTargetDeletionVectorsUpdated",
        "numTargetChangeFilesAdded",
        "executionTimeMs",
        "scanTimeMs",
        "rewriteTimeMs",
    ),
    0,
)
_EVERY_ROW: Final = "true"


@dataclass(frozen=True)
class _AtVersion:
    """A pinned version of a table, as a MERGE source."""

    table: ReadableTable
    version: int

    def plan(self) -> tuple[Scan, Any]:
        return self.table.plan(version=self.version)

    def to_batches(self, *, version: int) -> pa.RecordBatchReader:
        return self.table.to_batches(version=version)


@dataclass(frozen=True)
class _Resolved:
    """A MERGE whose names are resolved against one version of the table.

    Attributes:
        reads: predicate over the target that covers all rows the MERGE depends on.
    """

    clauses: Sequence[Clause]
    on: Expression
    reads: str


def merge(
    service: TableService,
    table: WritableTable,
    statement: MergeStatement,
    source: MergeSource,
    *,
    dry_run: bool = False,
    user_metadata: str | None = None,
) -> Metrics:
    """Run a MERGE on the newest version; see :meth:`delvec.DeltaTable.merge`.

    Args:
        service: of the table.
        table: the target.
        statement: what was asked for, checked.
        source: its rows.
        dry_run: return the metrics, and write nothing.
        user_metadata: text for the table's history.
    """
    clock = Clock()
    begin_response: SnapshotResponse
    transaction_id = None
    if dry_run:
        begin_response = table.snapshot()
        schema = StructType.from_json(begin_response.table_schema)
    else:
        begin_response, schema = begin(service, table.id, "MERGE")
        transaction_id = begin_response.transaction_id
    table.check_source_version(begin_response.version)
    source = _at_same_version(table, statement, source, begin_response.version)
    additions = new_columns(statement, schema, source.schema) if statement.merge_schema else []
    target_schema = with_new_columns(schema, additions)
    if additions and not dry_run:
        try:
            evolved_response, target_schema = begin(service, table.id, "MERGE", additions)
        except InvalidTableChange:
            # Another writer may have added the column meanwhile.
            if table.version() == begin_response.version:
                raise
            return merge(service, table, statement, source, user_metadata=user_metadata)
        begin_response, transaction_id = evolved_response, evolved_response.transaction_id
        table.check_source_version(begin_response.version)
    bound_statement = _resolve(statement, schema, target_schema, source)
    scan = _scan(table, bound_statement, begin_response.version)
    if scan.schema != schema:
        # The schema changed between the snapshot and the plan: resolve names again.
        return merge(service, table, statement, source, dry_run=dry_run, user_metadata=user_metadata)
    change = _change(bound_statement, scan, source, dry_run=dry_run)
    target = _target(bound_statement, scan, transaction_id, target_schema)
    changed_rows = table.engine.change_rows(*row_ids.add_to_change(scan, change, target))
    clock.scanned()
    counts = _counts(changed_rows, statement.clauses)
    if dry_run:
        files = touched_files.touched_files(scan, changed_rows.row_deletes, vectors=scan.deletes_by_vector)
        values = {**_METRICS, **counts, **row_command.foreseen(files, "numTarget"), **clock.metrics()}
        return touched_files.DryRun(values, files)
    transaction = Transaction(
        service,
        table.id,
        "MERGE",
        scan.version,
        read_mark=scan.read_mark,
        transaction_id=transaction_id,
        engine_info=table.engine.name,
        predicate=bound_statement.reads,
        operation_parameters=_parameters(statement),
        user_metadata=user_metadata,
    )
    reads_itself = table.source_version is not None or _reads_itself(table, statement)
    transaction.mark_read(whole_table=reads_itself, rows=changed_rows.matched)
    transaction.change_table([*additions, *identity_values.advances(target.identity, changed_rows.adds)])
    changed_rows = replace(changed_rows, adds=identity_values.without_marks(changed_rows.adds))
    kept = row_command.target_of(scan, transaction_id, target_schema)
    num_copied_rows = row_command.take_over(transaction, table, scan, changed_rows, kept)
    clock.rewritten()
    if transaction.is_empty:
        return Metrics({**_METRICS, **counts, **clock.metrics()}, None)
    counts["numTargetRowsCopied"] = num_copied_rows
    counts["numOutputRows"] = changed_rows.rows_inserted + changed_rows.rows_updated + num_copied_rows
    return Metrics.of(transaction.commit(metrics=counts | clock.metrics()), _METRICS)


def planned(
    table: WritableTable, statement: MergeStatement, source: MergeSource
) -> tuple[Scan, RowChange, WriteTarget]:
    """Return the files that a MERGE into the newest version reads, and the change of their rows, which writes no file."""
    snapshot = table.snapshot()
    schema = StructType.from_json(snapshot.table_schema)
    table.check_source_version(snapshot.version)
    source = _at_same_version(table, statement, source, snapshot.version)
    additions = new_columns(statement, schema, source.schema) if statement.merge_schema else []
    target_schema = with_new_columns(schema, additions)
    bound_statement = _resolve(statement, schema, target_schema, source)
    scan = _scan(table, bound_statement, snapshot.version)
    change = _change(bound_statement, scan, source, dry_run=True)
    return row_ids.add_to_change(scan, change, _target(bound_statement, scan, None, target_schema))


def _reads_itself(table: WritableTable, statement: MergeStatement) -> bool:
    return isinstance(statement.source, ReadableTable) and statement.source.id == table.id


def _at_same_version(
    table: WritableTable, statement: MergeStatement, source: MergeSource, version: int
) -> MergeSource:
    """Return the source; if that is the table itself, of the version that is changed."""
    if not _reads_itself(table, statement):
        return source
    # A source read from another version of this table would undo the changes since then.
    return table.engine.merge_source(_AtVersion(statement.source, version))


def _scan(table: WritableTable, bound_statement: _Resolved, version: int) -> Scan:
    reads = None if bound_statement.reads == _EVERY_ROW else bound_statement.reads
    scan, _ = table.plan(predicate=reads, version=version, row_ids=True)
    return scan


def _change(bound_statement: _Resolved, scan: Scan, source: MergeSource, *, dry_run: bool) -> RowChange:
    return RowChange(
        bound_statement.clauses,
        on=bound_statement.on,
        source=source,
        change_feed=scan.keeps_change_feed,
        dry_run=dry_run,
    )


def _target(
    bound_statement: _Resolved, scan: Scan, transaction_id: str | None, target_schema: StructType
) -> WriteTarget:
    target = row_command.target_of(scan, transaction_id, target_schema)
    if all(clause.action != "insert" for clause in bound_statement.clauses):
        return target
    return replace(
        target,
        schema=identity_values.fillable(target_schema),
        identity=identity_values.identity_columns(target_schema),
    )


# --- names --------------------------------------------------------------------------------------------------


def _resolve(
    statement: MergeStatement, schema: StructType, target_schema: StructType, source: MergeSource
) -> _Resolved:
    relations = {TARGET: schema, SOURCE: source.schema}
    aliases = {TARGET: statement.target_alias, SOURCE: statement.source_alias}
    tables = Relations(target_schema, schema, source.schema, aliases)
    on = parse_expression(statement.on, relations, aliases, boolean=True)
    row_command.check_deterministic(on, "The condition ON of a MERGE")
    clauses = [_clause(when, tables, evolves=statement.merge_schema) for when in statement.clauses]
    return _Resolved(clauses, on, _reads(statement, clauses, relations, aliases, source))


def _clause(when: When, tables: Relations, *, evolves: bool) -> Clause:
    readable = {"matched": (TARGET, SOURCE), "not-matched": (SOURCE,), "not-matched-by-source": (TARGET,)}[
        when.match
    ]
    condition = None
    if when.predicate is not None:
        try:
            condition = parse_expression(when.predicate, tables.of(*readable), tables.aliases, boolean=True)
        except DelvecError as error:
            raise type(error)(f"{when.name}: {error.message}", **error.details) from error
        row_command.check_deterministic(condition, f"The condition of {when.name}")
    values: Sequence[Expression | None] = ()
    if when.action == "update":
        values = updated(when.values, tables, when.name, readable, evolves=evolves)
    elif when.action == "insert":
        values = inserted(when.values, tables, when.name, evolves=evolves)
    return Clause(when.match, when.action, condition, values)


def _reads(
    statement: MergeStatement,
    clauses: Sequence[Clause],
    relations: Mapping[str, StructType],
    aliases: Mapping[str, str],
    source: MergeSource,
) -> str:
    """Return a predicate that covers all target rows the MERGE depends on."""
    if any(clause.match == "not-matched-by-source" for clause in clauses):
        return _EVERY_ROW
    terms = conjuncts(statement.on, relations, aliases)
    target_predicates = target_terms(terms, TARGET)
    keys = join_keys(terms, relations, TARGET, SOURCE)
    if keys and source.bounds is not None:
        target_predicates += key_ranges(keys, source.bounds(list(dict.fromkeys(key.source for key in keys))))
    matched = [clause for clause in clauses if clause.match == "matched"]
    if len(matched) == len(clauses):
        # Without inserts, target rows to which no clause can apply do not matter.
        conditions = [_condition(when.predicate, relations, aliases) for when in statement.clauses]
        if all(conditions):
            target_predicates.append(" OR ".join(f"({each})" for each in conditions))
    return " AND ".join(f"({each})" for each in target_predicates) or _EVERY_ROW


def _condition(text: str | None, relations: Mapping[str, StructType], aliases: Mapping[str, str]) -> str:
    """Return the part of a clause's condition that reads only the target; empty if there is none."""
    if text is None:
        return ""
    return " AND ".join(f"({each})" for each in target_terms(conjuncts(text, relations, aliases), TARGET))


# --- history ----------------------------------------------------------------------------------------------


def _counts(changed_rows: ChangedRows, clauses: Sequence[When]) -> dict[str, int]:
    counts = {
        "numSourceRows": changed_rows.source_rows,
        "numTargetRowsInserted": changed_rows.rows_inserted,
        "numTargetRowsUpdated": changed_rows.rows_updated,
        "numTargetRowsDeleted": changed_rows.rows_deleted,
        "numOutputRows": changed_rows.rows_inserted + changed_rows.rows_updated,
    }
    for action, done in (("update", "Updated"), ("delete", "Deleted")):
        matches = {clause.match for clause in clauses if clause.action == action}
        if len(matches) < 2:  # noqa: PLR2004 - the engine does not count the two kinds of matches separately
            total = changed_rows.rows_updated if action == "update" else changed_rows.rows_deleted
            counts[f"numTargetRowsMatched{done}"] = total if matches == {"matched"} else 0
            counts[f"numTargetRowsNotMatchedBySource{done}"] = (
                total if "not-matched-by-source" in matches else 0
            )
    return counts


def _parameters(statement: MergeStatement) -> dict[str, str]:
    parameters = {"predicate": json.dumps([f"({statement.on})"], ensure_ascii=False)}
    for name, match in (
        ("matchedPredicates", "matched"),
        ("notMatchedPredicates", "not-matched"),
        ("notMatchedBySourcePredicates", "not-matched-by-source"),
    ):
        entries: list[dict[str, Any]] = []
        for clause in statement.clauses:
            if clause.match == match:
                given = {} if clause.predicate is None else {"predicate": clause.predicate}
                entries.append({**given, "actionType": clause.action})
        parameters[name] = json.dumps(entries, ensure_ascii=False, separators=(",", ":"))
    return parameters
