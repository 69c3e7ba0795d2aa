"""VACUUM's retention: removed files by the log's clock, unreferenced files by the storage's clock."""

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from delvec_errors import BadRequest, RetentionTooShort

__all__ = ["Retention", "hidden_names"]

_HOUR: Final = 3_600_000
_MIN_AGE: Final = 24 * _HOUR
"""An unreferenced file may belong to a commit in progress, none of which takes a day."""
_VISIBLE_DIRECTORIES: Final = ("_change_data", "_delta_index")


@dataclass(frozen=True)
class Retention:
    """Retention periods, in milliseconds.

    Attributes:
        configured: from ``delta.deletedFileRetentionDuration``.
        specified: in the command, or None.
        is_enforced: whether the minimum age of 24 hours also applies.
    """

    configured: int
    specified: int | None
    is_enforced: bool

    @classmethod
    def of(cls, table_retention: timedelta, hours: float | None, *, enforce: bool, table: str) -> "Retention":
        """Return the retention for a command.

        Args:
            table_retention: the table's.
            hours: the command's, rounded to whole hours if above one; None for the table's.
            enforce: whether it may not be shorter than the table's.
            table: the table's name, for errors.

        Raises:
            BadRequest: it is negative or not a number.
            RetentionTooShort: it is shorter than the table's.
        """
        own = int(table_retention / timedelta(milliseconds=1))
        if hours is None:
            return cls(own, None, enforce)
        if not (math.isfinite(hours) and hours >= 0):
            raise BadRequest(f"The retention of VACUUM must be a number of hours of at least 0, not {hours}.")
        retention_ms = round(hours * _HOUR)
        if enforce and retention_ms < own:
            raise RetentionTooShort(
                f"VACUUM of table '{table}' with a retention of {hours:g} hour{'' if hours == 1 else 's'} would delete files that "
                "readers of older versions and commits in progress may still need: the table keeps them "
                f"for {own / _HOUR:g} hours (delta.deletedFileRetentionDuration). Use at least that many "
                "hours, change the property, or, if nothing reads or writes the table, disable the check "
                "with enforce_retention_duration=False, in the shell --no-retention-check, in a Spark session "
                "spark.databricks.delta.retentionDurationCheck.enabled = false.",
                table=table,
                retention_hours=hours,
                configured_hours=own / _HOUR,
            )
        return cls(own, retention_ms, enforce)

    @property
    def milliseconds(self) -> int:
        """The effective retention: the command's, or else the table's."""
        return self.configured if self.specified is None else self.specified

    def removed_before(self, now: int) -> int:
        """Return the time before which removed files have expired."""
        return now - self.milliseconds

    def written_before(self, now: int) -> int:
        """Return the time before which an unreferenced file must have been written to be deleted."""
        return now - (max(self.milliseconds, _MIN_AGE) if self.is_enforced else self.milliseconds)


def hidden_names(partition_columns: Collection[str]) -> Callable[[str], bool]:
    """Return delta-spark's rule for names that VACUUM ignores.

    These start with ``_`` or ``.``, except for directories of the change data feed, of indexes, and of partition columns
    with such a name.

    Args:
        partition_columns: logical and physical names.
    """
    shown = (*_VISIBLE_DIRECTORIES, *(f"{column}=" for column in partition_columns))

    def is_hidden(name: str) -> bool:
        return name.startswith(("_", ".")) and not name.startswith(shown)

    return is_hidden
