"""The columns that the change data feed has beside the table's own, and their values for the rows of a file.

What is the same for all rows of a file is told as partition values are, so that whatever reads or skips files by
those does so by these.
"""

from datetime import UTC, datetime, timedelta
from typing import Final

from delvec.protocol.types import PrimitiveType, StructField, StructType

__all__ = [
    "CHANGE_TYPE",
    "COMMIT_TIMESTAMP",
    "COMMIT_VERSION",
    "feed_columns",
    "feed_schema",
    "feed_values",
]

CHANGE_TYPE: Final = "_change_type"
"""insert, delete, update_preimage or update_postimage."""
COMMIT_VERSION: Final = "_commit_version"
COMMIT_TIMESTAMP: Final = "_commit_timestamp"

_COLUMNS: Final = (
    StructField(CHANGE_TYPE, PrimitiveType("string")),
    StructField(COMMIT_VERSION, PrimitiveType("long")),
    StructField(COMMIT_TIMESTAMP, PrimitiveType("timestamp")),
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def feed_schema(schema: StructType) -> StructType:
    """Return a table's schema with the columns of the feed."""
    return StructType((*schema.fields, *_COLUMNS))


def feed_columns(*, is_change_file: bool) -> list[str]:
    """Return the columns of the feed that are the same for all rows of a file: change files tell the type of each row."""
    return [COMMIT_VERSION, COMMIT_TIMESTAMP] + ([] if is_change_file else [CHANGE_TYPE])


def feed_values(version: int, timestamp: int, change_type: str | None) -> dict[str, str | None]:
    """Return partition values for the columns of the feed.

    Args:
        version: of the commit.
        timestamp: of the commit, milliseconds since the epoch.
        change_type: of all rows, None where each row says it.
    """
    moment = _EPOCH + timedelta(milliseconds=timestamp)
    values: dict[str, str | None] = {
        COMMIT_VERSION: str(version),
        COMMIT_TIMESTAMP: moment.isoformat(sep=" ", timespec="milliseconds").replace("+00:00", "Z"),
    }
    return values if change_type is None else values | {CHANGE_TYPE: change_type}
