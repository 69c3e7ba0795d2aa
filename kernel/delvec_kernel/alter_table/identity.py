"""Identity columns and their high-water marks (PROTOCOL.md, "Identity Columns")."""

from dataclasses import replace
from typing import Final

from delvec_errors import InvalidTableChange
from delvec_kernel.alter_table.change_types import AdvanceIdentity, SyncIdentity
from delvec_kernel.alter_table.columns import described
from delvec_kernel.alter_table.table_update import Recorded, Requirement, TableUpdate
from delvec_kernel.schema.column_paths import ColumnPath, field_at, parse_path, path_text, quoted, with_field
from delvec_kernel.schema.types import IDENTITY_HIGH_WATER_MARK, IDENTITY_START, IDENTITY_STEP, StructField

__all__ = ["advance_identity", "sync_identity"]

_LONG: Final = range(-(2**63), 2**63)


def advance_identity(update: TableUpdate, change: AdvanceIdentity) -> Recorded:
    """Move the high-water mark of an identity column in the direction of its step.

    Raises:
        InvalidTableChange: it is not an identity column, or the mark is not in its sequence or behind the current mark.
        UnknownColumn: no such column.
    """
    path = parse_path(change.column)
    start, step, before = _numbers(update, path)
    name, mark = path_text(path), change.high_water_mark
    least = start if before is None else before
    if (mark - start) % step or (mark - least) * step < 0:
        raise InvalidTableChange(
            f"Identity column '{name}' is at {least} with a step of {step}, so its high-water mark cannot "
            f"be set to {mark}.",
            column=name,
        )
    _set_mark(update, path, mark)
    return Recorded("SYNC IDENTITY", {"columnName": name})


def sync_identity(update: TableUpdate, change: SyncIdentity) -> Recorded:
    """Move the high-water mark of an identity column past all values in the table, as delta-spark does.

    The mark is rounded to the column's sequence, since users may have inserted other values. It stays unchanged if all
    values are before the start of the sequence.

    Raises:
        InvalidTableChange: it is not an identity column, or no 64-bit value is left.
        UnknownColumn: no such column.
    """
    path = parse_path(change.column)
    start, step, before = _numbers(update, path)
    entry = Recorded("CHANGE COLUMN", {"column": described(path, field_at(update.schema, path))}, "column")
    last_number = change.reached
    if last_number is None:
        return entry
    mark = start + -((start - last_number) // step) * step  # rounded up, in the direction of the step
    if before is not None and (before - mark) * step > 0:
        mark = before
    misplaced = before is not None and (before - start) * step < 0
    if mark == before or (not misplaced and (last_number - start) * step < 0):
        return entry
    if mark not in _LONG:
        raise InvalidTableChange(
            f"Identity column '{path_text(path)}' has run out of numbers: the next one after {last_number} is "
            f"{mark}, which does not fit in 64 bits.",
            column=path_text(path),
        )
    column = quoted(path)
    update.requirements.append(
        Requirement(
            f"{column} IS NULL OR {column} {'<=' if step > 0 else '>='} {last_number}",
            f"that no number of identity column '{path_text(path)}' is beyond {last_number}",
        )
    )
    _set_mark(update, path, mark)
    return entry


def _numbers(update: TableUpdate, path: ColumnPath) -> tuple[int, int, int | None]:
    """Return start, step and high-water mark.

    Raises:
        InvalidTableChange: it is not an identity column.
        UnknownColumn: no such column.
    """
    field = field_at(update.schema, path)
    start, step, before = (
        _number(field, key) for key in (IDENTITY_START, IDENTITY_STEP, IDENTITY_HIGH_WATER_MARK)
    )
    if start is None or not step:
        raise InvalidTableChange(
            f"Column '{path_text(path)}' is not an identity column.", column=path_text(path)
        )
    return start, step, before


def _set_mark(update: TableUpdate, path: ColumnPath, mark: int) -> None:
    update.schema = with_field(
        update.schema,
        path,
        lambda found: replace(found, metadata={**found.metadata, IDENTITY_HIGH_WATER_MARK: mark}),
    )


def _number(field: StructField, key: str) -> int | None:
    found = field.metadata.get(key)
    return found if isinstance(found, int) and not isinstance(found, bool) else None
