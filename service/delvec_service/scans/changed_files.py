"""Files with changed rows, as a plan of the change data feed lists them.

Tested in `tests/integration/engines/test_changes.py`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import pyarrow as pa
from pyroaring import BitMap64

from delvec_errors import CorruptLog, MissingDataFile
from delvec_kernel.change_feed import feed_schema as change_feed
from delvec_kernel.change_feed.version_changes import FileChanges
from delvec_kernel.deletion_vectors.deletion_vector import Descriptor, serialize_bitmap
from delvec_kernel.file_index.file_rows import DELETION_VECTOR, TEXT_MAP, num_records_from_stats
from delvec_service.store.open_table import OpenTable
from delvec_storage.files import read_deletion_vectors

__all__ = ["CHANGES_SCHEMA", "ChangedRows", "files_of"]

CHANGES_SCHEMA: Final = pa.schema(
    [
        ("commit_version", pa.int64()),
        ("commit_timestamp", pa.int64()),
        ("change_type", pa.string()),
        ("path", pa.string()),
        ("partition_values", TEXT_MAP),
        ("size", pa.int64()),
        ("num_records", pa.int64()),
        ("marked_only", pa.bool_()),
        ("deletion_vector", DELETION_VECTOR),
        ("deleted_rows", pa.binary()),
    ]
)
"""The fields of :class:`~delvec_contract.ChangedFile` in snake case."""


@dataclass(frozen=True)
class ChangedRows:
    """Rows of a file that a version changed.

    Attributes:
        timestamp: the timestamp of the commit, milliseconds since the epoch.
    """

    version: int
    timestamp: int
    file: FileChanges

    @cached_property
    def feed_values(self) -> dict[str, str | None]:
        """What the feed's columns contain for all of these rows, as partition values."""
        return change_feed.feed_values(self.version, self.timestamp, self.file.change_type)


def files_of(
    table: OpenTable, changed_rows: Sequence[ChangedRows], partition_columns: Sequence[str]
) -> pa.Table:
    """Return the files, CHANGES_SCHEMA, in order, without those that have no changed rows.

    Raises:
        CorruptDeletionVector: or a subclass: a deletion vector that must be compared with another cannot be read.
        CorruptLog: the log does not have the partition of a file that it removes.
        MissingDataFile: neither the log nor storage has the size of a file.
        StorageError: storage did not answer.
    """
    differences = _differences(table, changed_rows)
    stats, rows = [], []
    for one in changed_rows:
        file = one.file
        difference = differences[id(one)] if file.less is not None else None
        if file.less is not None and not difference:
            continue
        vector = file.without if file.only is None else file.only
        stats.append(file.stats)
        rows.append(
            {
                "commit_version": one.version,
                "commit_timestamp": one.timestamp,
                "change_type": file.change_type,
                "path": file.path,
                "partition_values": _partition_values(table, one, partition_columns),
                "size": file.size or _size(table, one),
                "marked_only": file.only is not None,
                "deletion_vector": None if vector is None or difference else vector.to_json(),
                "deleted_rows": serialize_bitmap(difference) if difference else None,
            }
        )
    counts = num_records_from_stats(pa.array(stats, pa.string())).to_pylist()
    for row, count in zip(rows, counts, strict=True):
        row["num_records"] = count
    return pa.Table.from_pylist(rows, CHANGES_SCHEMA)


def _differences(table: OpenTable, changed: Sequence[ChangedRows]) -> dict[int, BitMap64]:
    """Return the rows that are in one deletion vector but not in another, by the entry's identity."""
    by_version: dict[int, list[ChangedRows]] = {}
    for one in changed:
        if one.file.less is not None:
            by_version.setdefault(one.version, []).append(one)
    differences = {}
    for version, group in by_version.items():
        # The same two vectors give the deleted rows of a file and the restored ones.
        first: dict[str, Descriptor] = {}
        second: dict[str, Descriptor] = {}
        for one in group:
            assert one.file.only is not None  # noqa: S101 - less is of it
            assert one.file.less is not None  # noqa: S101 - by the choice of the group
            if first.setdefault(one.file.path, one.file.only) == one.file.only:
                second[one.file.path] = one.file.less
        one_side, other_side = (
            read_deletion_vectors(
                table.location,
                list(side.items()),
                table=table.name,
                version=version,
                is_allowed=table.roots.allows,
            )
            for side in (first, second)
        )
        for one in group:
            path = one.file.path
            same = first[path] == one.file.only
            only, less = (one_side, other_side) if same else (other_side, one_side)
            differences[id(one)] = only[path] - less[path]
    return differences


def _partition_values(
    table: OpenTable, one: ChangedRows, partition_columns: Sequence[str]
) -> list[tuple[str, str | None]]:
    if one.file.partition_values is None and partition_columns:
        raise CorruptLog(
            f"Version {one.version} of table '{table.name}' removes the file '{one.file.path}' without its "
            "partition values, so its rows cannot be reported as changes. Start after that version.",
            table=table.name,
            version=one.version,
            file=one.file.path,
        )
    return list((one.file.partition_values or {}).items())


def _size(table: OpenTable, one: ChangedRows) -> int:
    """Return a file's size if the log does not have it: engines need sizes to read files."""
    object_meta = table.objects.head(one.file.path)
    if object_meta is None:
        raise MissingDataFile(
            f"File '{one.file.path}', which version {one.version} of table '{table.name}' removed, no longer exists "
            "in storage; VACUUM deletes such files. Start after that version.",
            table=table.name,
            version=one.version,
            file=one.file.path,
        )
    return object_meta.size
