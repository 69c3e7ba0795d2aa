"""How long VACUUM keeps files: what was removed, by the log's clock, and what nothing refers to, by the storage's."""

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from delvec_kernel.errors import BadRequest, RetentionTooShort

__all__ = ["Retention", "hidden_names"]

_HOUR: Final = 3_600_000
_MIN_AGE: Final = 24 * _HOUR
"""A file that nothing refers to may belong to a commit that is being written: none takes a day."""
_SHOWN: Final = ("_change_data", "_delta_index")


@dataclass(frozen=True)
class Retention:
    """How long files are kept, in milliseconds.

    Attributes:
        configured: by ``delta.deletedFileRetentionDuration``.
        specified: by the command, None where it does not say.
        is_enforced: whether the minimum age of 24 hours holds, too.
    """

    configured: int
    specified: int | None
    is_enforced: bool

    @classmethod
    def of(cls, configured: timedelta, hours: float | None, *, enforce: bool, table: str) -> "Retention":
        """Return the retention of a command.

        Args:
            configured: the table's.
            hours: the command's, rounded to whole ones where they are more than one; None for the table's.
            enforce: whether it may not be less than the table's.
            table: for errors.

        Raises:
            BadRequest: it is negative or not a number.
            RetentionTooShort: it is less than the table's.
        """
        own = int(configured / timedelta(milliseconds=1))
        if hours is None:
            return cls(own, None, enforce)
        if not (math.isfinite(hours) and hours >= 0):
            raise BadRequest(f"The retention of VACUUM must be a number of hours of at least 0, not {hours}.")
        specified = round(hours * _HOUR)
        if enforce and specified < own:
            raise RetentionTooShort(
                f"VACUUM of table '{table}' with a retention of {hours:g} hours would delete files that "
                "readers of older versions and commits in progress may still need: the table keeps them "
                f"for {own / _HOUR:g} hours (delta.deletedFileRetentionDuration). Use at least that many "
                "hours, change the property, or, if nothing reads or writes the table, disable the check "
                "with enforce_retention_duration=False.",
                table=table,
                retention_hours=hours,
                configured_hours=own / _HOUR,
            )
        return cls(own, specified, enforce)

    @property
    def milliseconds(self) -> int:
        """What counts: the command's, else the table's."""
        return self.configured if self.specified is None else self.specified

    def removed_before(self, now: int) -> int:
        """Return the time before which a removed file need not be kept any more."""
        return now - self.milliseconds

    def written_before(self, now: int) -> int:
        """Return the time before which a file that nothing refers to must have been written to be deleted."""
        return now - (max(self.milliseconds, _MIN_AGE) if self.is_enforced else self.milliseconds)


def hidden_names(partition_columns: Collection[str]) -> Callable[[str], bool]:
    """Return the rule for names of files and directories that are none of VACUUM's: delta-spark's.

    They start with ``_`` or ``.``, but for directories of the change data feed, of indexes, and of partition columns that
    are called so.

    Args:
        partition_columns: logical names, and physical ones.
    """
    shown = (*_SHOWN, *(f"{column}=" for column in partition_columns))

    def is_hidden(name: str) -> bool:
        return name.startswith(("_", ".")) and not name.startswith(shown)

    return is_hidden
