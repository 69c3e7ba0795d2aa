"""Rows that are written again keep their ids, where the table tracks them (PROTOCOL.md, "Row Tracking").

A row's id is what its file has for it in a column of its own, or else the file's base id and the row's place; likewise the
version that it is of. Read, the two are columns like others, with :data:`PER_FILE` in their metadata; written, they are
the columns that the table's properties name. They are no part of the table's schema.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from delvec.engines.protocol import WriteTarget
from delvec.engines.row_changes import TARGET, Clause, RowChange
from delvec.scan import Scan
from delvec_kernel.errors import UnsupportedWriterFeature
from delvec_kernel.expressions.expression import Expression, parse_expression
from delvec_kernel.row_tracking import ENABLED, MATERIALIZED
from delvec_kernel.schema.column_paths import backticked
from delvec_kernel.schema.types import PHYSICAL_NAME, PrimitiveType, StructField, StructType
from delvec_kernel.table_properties import is_true

__all__ = ["BASE_ROW_ID", "PER_FILE", "copying", "keeping", "per_file", "visible"]

PER_FILE: Final = "delvec.perFile"
"""Metadata of a column of a scan: the column of ``Scan.files`` that says what rows without a value of their own have."""
BASE_ROW_ID: Final = "base_row_id"
"""Such a column, to which the row's place is added."""

_COLUMNS: Final = tuple(zip(MATERIALIZED, (BASE_ROW_ID, "default_row_commit_version"), strict=True))


class _FileColumn(str):
    """A column of ``Scan.files``; of a type of its own, so that none comes from the metadata of a table's own columns."""

    __slots__ = ()


def per_file(item: StructField) -> str | None:
    """Return the column of ``Scan.files`` that stands for what is absent in a column of a file; None for most."""
    found = item.metadata.get(PER_FILE)
    return found if isinstance(found, _FileColumn) else None


def visible(schema: StructType) -> StructType:
    """Return the columns that are the table's."""
    return schema.without([item.name for item in schema.fields if per_file(item) is not None])


def copying(scan: Scan, target: WriteTarget) -> tuple[Scan, WriteTarget]:
    """Return a scan, and where its rows are written again, with the ids of rows, if the table tracks them.

    Args:
        scan: planned with ``row_ids``.
        target: the table as it will be.

    Raises:
        UnsupportedWriterFeature: columns are found by field ids, and those of row ids have none; or the table does not
            say where ids are kept.
    """
    fields = _fields(scan)
    if not fields:
        return scan, target
    return (
        replace(scan, schema=StructType((*scan.schema.fields, *fields))),
        replace(target, schema=StructType((*target.schema.fields, *fields))),
    )


def keeping(scan: Scan, change: RowChange, target: WriteTarget) -> tuple[Scan, RowChange, WriteTarget]:
    """Return a change by which updated rows keep their ids; they are of the new version, and inserted rows are new.

    Args:
        scan: as for :func:`copying`.
        change: over the scan's schema.
        target: the table as it will be.

    Raises:
        UnsupportedWriterFeature: as for :func:`copying`.
    """
    tracked, written = copying(scan, target)
    if tracked is scan:
        return scan, change, target
    names = [item.name for item in tracked.schema.fields[len(scan.schema.fields) :]]
    kept = parse_expression(f"{TARGET}.{backticked(names[0])}", {TARGET: tracked.schema})
    nothing = parse_expression("NULL", {})
    clauses = [_with_ids(clause, kept, nothing) for clause in change.clauses]
    return tracked, replace(change, clauses=clauses), written


def _with_ids(clause: Clause, kept: Expression, nothing: Expression) -> Clause:
    if clause.action == "delete":
        return clause
    own: Sequence[Expression] = (kept if clause.action == "update" else nothing, nothing)
    return replace(clause, values=(*clause.values, *own))


def _fields(scan: Scan) -> list[StructField]:
    configuration = scan.configuration
    if BASE_ROW_ID not in scan.files.column_names or not is_true(configuration, ENABLED):
        return []
    absent = [name for name, _ in _COLUMNS if name not in configuration]
    if absent:
        raise UnsupportedWriterFeature(
            f"Table '{scan.name}' (version {scan.version}) has row tracking, but lacks the property {absent[0]}, which "
            "names the column for the ids of rewritten rows. Delete with deletion vectors, or turn off "
            "delta.enableRowTracking.",
            table=scan.name,
            version=scan.version,
            features=["rowTracking"],
        )
    if configuration.get("delta.columnMapping.mode", "none").lower() == "id":
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
            metadata={PHYSICAL_NAME: configuration[name], PER_FILE: _FileColumn(column)},
        )
        for name, column in _COLUMNS
    ]
