"""Row ids and row commit versions of rewritten rows (PROTOCOL.md, "Row Tracking").

A row's id is the value in the materialized row id column; if NULL, it is ``baseRowId`` of the file plus the row's index.
The row commit version falls back to ``defaultRowCommitVersion`` in the same way. A scan that rewrites rows reads both as
extra columns marked with :data:`FILE_DEFAULT`, and the writer stores them in the materialized columns. The table's schema
does not contain them.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from delvec_engines.protocol import WriteTarget
from delvec_engines.row_changes import TARGET, Clause, RowChange
from delvec_engines.scan import Scan
from delvec_errors import UnsupportedWriterFeature
from delvec_kernel.expressions.expression import Expression, parse_expression
from delvec_kernel.row_tracking import ENABLED, MATERIALIZED
from delvec_kernel.schema.column_mapping import mapping_mode
from delvec_kernel.schema.column_paths import backticked
from delvec_kernel.schema.types import PHYSICAL_NAME, PrimitiveType, StructField, StructType
from delvec_kernel.table_properties import is_true

__all__ = ["BASE_ROW_ID", "FILE_DEFAULT", "add_to_change", "add_to_rewrite", "file_default", "table_columns"]

FILE_DEFAULT: Final = "delvec.perFile"
"""Metadata key of a scan's column: the column of ``Scan.files`` with the default for rows where this one is NULL."""
BASE_ROW_ID: Final = "base_row_id"
"""The default for row ids in ``Scan.files``; the row's index in its file is added."""

_COLUMNS: Final = tuple(zip(MATERIALIZED, (BASE_ROW_ID, "default_row_commit_version"), strict=True))


class _FileColumn(str):
    """Name of a column of ``Scan.files``. A separate type, because a table's own metadata may hold any plain string."""

    __slots__ = ()


def file_default(item: StructField) -> str | None:
    """Return the column of ``Scan.files`` with a column's default per file; None for columns of the table."""
    found = item.metadata.get(FILE_DEFAULT)
    return found if isinstance(found, _FileColumn) else None


def table_columns(schema: StructType) -> StructType:
    """Return the schema without the row tracking columns."""
    return schema.without([item.name for item in schema.fields if file_default(item) is not None])


def add_to_rewrite(scan: Scan, target: WriteTarget) -> tuple[Scan, WriteTarget]:
    """Add the row tracking columns to a scan and its target; both are unchanged if row tracking is off.

    Args:
        scan: planned with ``row_ids``.
        target: the table after the commit.

    Raises:
        UnsupportedWriterFeature: column mapping is by field id, or the materialized column names are not set.
    """
    fields = _fields(scan)
    if not fields:
        return scan, target
    return (
        replace(scan, schema=StructType((*scan.schema.fields, *fields))),
        replace(target, schema=StructType((*target.schema.fields, *fields))),
    )


def add_to_change(scan: Scan, change: RowChange, target: WriteTarget) -> tuple[Scan, RowChange, WriteTarget]:
    """Add the row tracking columns to an UPDATE or MERGE: updated rows keep their ids and get the new commit version.

    Inserted rows get new ids.

    Args:
        scan: as for :func:`add_to_rewrite`.
        change: over the scan's schema.
        target: the table after the commit.

    Raises:
        UnsupportedWriterFeature: as for :func:`add_to_rewrite`.
    """
    tracked_scan, write_target = add_to_rewrite(scan, target)
    if tracked_scan is scan:
        return scan, change, target
    names = [item.name for item in tracked_scan.schema.fields[len(scan.schema.fields) :]]
    kept = parse_expression(f"{TARGET}.{backticked(names[0])}", {TARGET: tracked_scan.schema})
    null = parse_expression("NULL", {})
    clauses = [_with_ids(clause, kept, null) for clause in change.clauses]
    return tracked_scan, replace(change, clauses=clauses), write_target


def _with_ids(clause: Clause, kept: Expression, null: Expression) -> Clause:
    if clause.action == "delete":
        return clause
    tracked: Sequence[Expression] = (kept if clause.action == "update" else null, null)
    return replace(clause, values=(*clause.values, *tracked))


def _fields(scan: Scan) -> list[StructField]:
    configuration = scan.configuration
    if BASE_ROW_ID not in scan.files.column_names or not is_true(configuration, ENABLED):
        return []
    missing = [name for name, _ in _COLUMNS if name not in configuration]
    if missing:
        raise UnsupportedWriterFeature(
            f"Table '{scan.name}' (version {scan.version}) has row tracking, but lacks the property {missing[0]}, which "
            "names the column for the ids of rewritten rows. Delete with deletion vectors, or turn off "
            "delta.enableRowTracking.",
            table=scan.name,
            version=scan.version,
            features=["rowTracking"],
        )
    if mapping_mode(configuration) == "id":
        raise UnsupportedWriterFeature(
            f"Table '{scan.name}' (version {scan.version}) has row tracking and column mapping by field id, but the "
            "columns for row ids have no field ids, so Delvec cannot rewrite its rows. Delete with deletion vectors, "
            "or use delta-spark.",
            table=scan.name,
            version=scan.version,
            features=["rowTracking"],
        )
    return [
        StructField(
            configuration[name],
            PrimitiveType("long"),
            nullable=True,
            metadata={PHYSICAL_NAME: configuration[name], FILE_DEFAULT: _FileColumn(column)},
        )
        for name, column in _COLUMNS
    ]
