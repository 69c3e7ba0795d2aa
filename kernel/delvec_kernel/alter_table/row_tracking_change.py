"""Enabling row tracking: the requirements on files and metadata (PROTOCOL.md, "Row Tracking").

Before row tracking is enabled, every file needs row ids. Existing files get them in earlier commits that add the files
again (:mod:`~delvec_service.alter_table.table_preparation`).
"""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from delvec_errors import InvalidTableChange
from delvec_errors.texts import counted
from delvec_kernel.alter_table.change_types import SetProperties, TableChange
from delvec_kernel.alter_table.table_update import TableUpdate
from delvec_kernel.row_tracking import ENABLED, MATERIALIZED, SUSPENDED
from delvec_kernel.table_properties import is_true

__all__ = ["check_row_ids", "enables_row_tracking", "with_materialized_columns", "without_enabling"]

_PREFIXES: Final = ("_row-id-col-", "_row-commit-version-col-")


def enables_row_tracking(changes: Sequence[TableChange], configuration: Mapping[str, str]) -> bool:
    """Whether the changes enable row tracking on a table with these properties."""
    property_values = [
        value.strip().lower()
        for change in changes
        if isinstance(change, SetProperties)
        for name, value in change.properties.items()
        if name.lower() == ENABLED.lower()
    ]
    return bool(property_values) and property_values[-1] == "true" and not is_true(configuration, ENABLED)


def without_enabling(changes: Sequence[TableChange]) -> list[TableChange]:
    """Return the changes without those that enable row tracking."""
    remaining_changes: list[TableChange] = []
    for change in changes:
        if isinstance(change, SetProperties):
            left = {
                name: value for name, value in change.properties.items() if name.lower() != ENABLED.lower()
            }
            if left:
                remaining_changes.append(replace(change, properties=left))
        else:
            remaining_changes.append(change)
    return remaining_changes


def with_materialized_columns(configuration: Mapping[str, str]) -> dict[str, str]:
    """Return properties that name the columns for materialized row ids and row commit versions."""
    found = dict(configuration)
    for name, prefix in zip(MATERIALIZED, _PREFIXES, strict=True):
        found.setdefault(name, f"{prefix}{uuid.uuid4()}")
    return found


def check_row_ids(update: TableUpdate) -> None:
    """Name the materialized columns if row tracking has just been enabled.

    Raises:
        InvalidTableChange: row tracking is both enabled and suspended, or files have no row ids.
    """
    if not is_true(update.configuration, ENABLED):
        return
    if is_true(update.configuration, SUSPENDED):
        raise InvalidTableChange(
            f"{ENABLED} and {SUSPENDED} cannot both be true: one promises row ids, the other stops "
            f"assigning them; set {SUSPENDED}=false, then {ENABLED}=true.",
            property=ENABLED,
        )
    if is_true(update.configuration_before, ENABLED):
        return
    if update.state.without_row_ids:
        raise InvalidTableChange(
            f"Another writer has just added {counted(update.state.without_row_ids, 'file')} without row ids; try again.",
            property=ENABLED,
        )
    update.configuration = with_materialized_columns(update.configuration)
