"""The columns that the change data feed adds to a table's own, and their values per file.

Values that are the same for all rows of a file are represented as partition values, so that file skipping and
readers handle them without special cases.

Tested in `tests/unit/kernel/change_feed/test_change_feed_schema.py`.
"""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

from delvec_kernel.actions.actions import Metadata
from delvec_kernel.schema.column_mapping import is_mapped, mapping_mode
from delvec_kernel.schema.types import ArrayType, DataType, MapType, PrimitiveType, StructField, StructType

__all__ = [
    "CHANGE_DATA",
    "CHANGE_TYPE",
    "COMMIT_TIMESTAMP",
    "COMMIT_VERSION",
    "feed_columns",
    "feed_schema",
    "feed_values",
    "is_readable_with",
]

CHANGE_DATA: Final = "_change_data/"
"""The folder of change files (PROTOCOL.md, "Change Data Files")."""
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
    """Return the feed columns with one value per file; in change data files, ``_change_type`` varies by row."""
    return [COMMIT_VERSION, COMMIT_TIMESTAMP] + ([] if is_change_file else [CHANGE_TYPE])


def feed_values(version: int, timestamp: int, change_type: str | None) -> dict[str, str | None]:
    """Return partition values for the feed columns.

    Args:
        version: the version of the commit.
        timestamp: the timestamp of the commit, milliseconds since the epoch.
        change_type: the change type of all rows, None if it varies by row.
    """
    time = _EPOCH + timedelta(milliseconds=timestamp)
    values: dict[str, str | None] = {
        COMMIT_VERSION: str(version),
        COMMIT_TIMESTAMP: time.isoformat(sep=" ", timespec="milliseconds").replace("+00:00", "Z"),
    }
    return values if change_type is None else values | {CHANGE_TYPE: change_type}


def is_readable_with(read: Metadata, read_version: int, other: Metadata, version: int) -> bool:
    """Whether rows written under ``other`` can be read with the schema of ``read``.

    Columns may have been added or made nullable, but not renamed, dropped or retyped, and the partition columns
    must be the same.

    Args:
        read: metadata to read with.
        read_version: its version.
        other: metadata set in the range, or in effect at its start.
        version: the version of ``other``.

    Raises:
        InvalidSchema: a schema cannot be parsed.
    """
    old, new = (other, read) if version <= read_version else (read, other)
    if not _keeps_columns(old, new):
        return False
    ours, theirs = _schema(read), _schema(other)
    if version <= read_version:
        return _has_fields(theirs, ours, may_tighten=False)
    return _has_fields(ours, theirs, may_tighten=True)


def _schema(metadata: Metadata) -> StructType:
    return StructType.from_json(metadata.schema_string)


def _keeps_columns(old: Metadata, new: Metadata) -> bool:
    """Whether no column was renamed or dropped, by physical names, and the partition columns are the same."""
    if list(old.partition_columns) != list(new.partition_columns):
        return False  # other partition columns are missing from the files
    was, is_ = is_mapped(old.configuration), is_mapped(new.configuration)
    if not is_:
        return not was
    if was and mapping_mode(old.configuration) != mapping_mode(new.configuration):
        return False
    # Enabling column mapping makes the current names the physical ones.
    before = dict(_names(_schema(old), (), physical=was))
    after: Mapping[tuple[str, ...], str] = dict(_names(_schema(new), (), physical=True))
    return all(after.get(path) == name for path, name in before.items())


def _names(kind: DataType, path: tuple[str, ...], *, physical: bool) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield every field's path of physical names, and its name."""
    match kind:
        case StructType():
            for item in kind.fields:
                inner = (*path, item.physical_name if physical else item.name)
                yield inner, item.name
                yield from _names(item.type, inner, physical=physical)
        case ArrayType():
            yield from _names(kind.element, (*path, "element"), physical=physical)
        case MapType():
            yield from _names(kind.key, (*path, "key"), physical=physical)
            yield from _names(kind.value, (*path, "value"), physical=physical)


def _has_fields(existing: StructType, read: StructType, *, may_tighten: bool) -> bool:
    """Whether ``read`` has all fields of ``existing``, with the same types.

    Args:
        existing: the older schema.
        read: the newer schema.
        may_tighten: whether ``read`` may be NOT NULL where ``existing`` is nullable, instead of the reverse.
    """
    known = {item.name.lower(): item for item in existing.fields}
    if not known.keys() <= {item.name.lower() for item in read.fields}:
        return False
    for item in read.fields:
        before = known.get(item.name.lower())
        if before is None:
            continue
        same = before.name == item.name and _nulls(before.nullable, item.nullable, may_tighten=may_tighten)
        if not same or not _same_type(before.type, item.type, may_tighten=may_tighten):
            return False
    return True


def _nulls(existing: bool, read: bool, *, may_tighten: bool) -> bool:
    return existing or not read if may_tighten else read or not existing


def _same_type(existing: DataType, read: DataType, *, may_tighten: bool) -> bool:
    match existing, read:
        case StructType(), StructType():
            return _has_fields(existing, read, may_tighten=may_tighten)
        case ArrayType(), ArrayType():
            return _nulls(existing.contains_null, read.contains_null, may_tighten=may_tighten) and _same_type(
                existing.element, read.element, may_tighten=may_tighten
            )
        case MapType(), MapType():
            return (
                _nulls(existing.value_contains_null, read.value_contains_null, may_tighten=may_tighten)
                and _same_type(existing.key, read.key, may_tighten=may_tighten)
                and _same_type(existing.value, read.value, may_tighten=may_tighten)
            )
    return existing in (PrimitiveType("void"), read)
