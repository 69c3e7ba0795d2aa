"""Row tracking: ids and versions of the rows that a commit adds (PROTOCOL.md, "Row Tracking").

A file's rows have the ids from its ``baseRowId`` on. No id is given twice, so the highest one is kept in the log.
Numbers depend on the version that a commit takes: they are given anew at each attempt.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from delvec_kernel.actions.action_json import json_text
from delvec_kernel.actions.actions import AddFile, DomainMetadata
from delvec_kernel.errors import CorruptLog, InvalidCommit
from delvec_kernel.features.table_features import writer_features
from delvec_kernel.snapshot.snapshot import Snapshot
from delvec_kernel.statistics import file_statistics as statistics
from delvec_kernel.table_properties import is_true

__all__ = [
    "DOMAIN",
    "ENABLED",
    "MATERIALIZED",
    "SUSPENDED",
    "assigned",
    "gives_ids",
    "high_water_mark",
    "is_enabled",
    "tags",
]

DOMAIN: Final = "delta.rowTracking"
ENABLED: Final = "delta.enableRowTracking"
"""Property: every row has an id that stays."""
SUSPENDED: Final = "delta.rowTrackingSuspended"
"""Property: no ids are given, although the protocol has the feature; on its way out of it."""
MATERIALIZED: Final = (
    "delta.rowTracking.materializedRowIdColumnName",
    "delta.rowTracking.materializedRowCommitVersionColumnName",
)
"""Properties: the columns of data files that hold what rows of other files brought along."""
_MARK: Final = "rowIdHighWaterMark"
_NO_ID_YET: Final = -1


def is_enabled(snapshot: Snapshot) -> bool:
    """Whether readers rely on the ids of every row."""
    return _is_supported(snapshot) and is_true(snapshot.configuration, ENABLED)


def gives_ids(snapshot: Snapshot) -> bool | None:
    """Whether files that are added get ids; False: they lose them; None: they stay as they are."""
    return not is_true(snapshot.configuration, SUSPENDED) if _is_supported(snapshot) else None


def high_water_mark(snapshot: Snapshot) -> int:
    """Return the highest row id that was ever given, -1 where none was.

    Raises:
        CorruptLog: the log says something that is not a number.
    """
    found = snapshot.domain_metadata.get(DOMAIN)
    if found is None or found.removed:
        return _NO_ID_YET
    try:
        mark = json.loads(found.configuration)[_MARK]
    except (ValueError, KeyError, TypeError, RecursionError):
        mark = None
    if not isinstance(mark, int) or isinstance(mark, bool) or mark < _NO_ID_YET:
        raise CorruptLog(
            f"The log of the table at {snapshot.location} (version {snapshot.version}) does not say which "
            f"row ids have been assigned: its domain metadata {DOMAIN} is {found.configuration[:100]!r}; "
            "restore an earlier version.",
            version=snapshot.version,
            location=snapshot.location,
        )
    return mark


def assigned(
    adds: Sequence[AddFile], snapshot: Snapshot, version: int
) -> tuple[list[AddFile], DomainMetadata | None]:
    """Return the files with row ids and commit versions, and the new high-water mark where there is one.

    Files that have theirs, because they are added again, keep them. Where the table does not support row
    tracking nothing changes; where it is suspended, files lose them.

    Args:
        adds: every file that the version adds, in its order.
        snapshot: the version before.
        version: the one that is tried.

    Raises:
        InvalidCommit: a file does not say how many rows it has.
        CorruptLog: the log does not say which ids were given.
    """
    if not _is_supported(snapshot):
        return list(adds), None
    if is_true(snapshot.configuration, SUSPENDED):
        return [replace(add, base_row_id=None, default_row_commit_version=None) for add in adds], None
    before = mark = high_water_mark(snapshot)
    found = []
    for add in adds:
        base = add.base_row_id
        if base is None:
            base = mark + 1
            mark += _num_records(add, snapshot)
        since = version if add.default_row_commit_version is None else add.default_row_commit_version
        found.append(replace(add, base_row_id=base, default_row_commit_version=since))
    if mark == before:
        return found, None
    return found, DomainMetadata(DOMAIN, json_text({_MARK: mark}))


def tags(snapshot: Snapshot, *, loses_ids: bool) -> Mapping[str, str]:
    """Return what commitInfo says of row tracking: whether every row that is rewritten kept its id.

    Args:
        snapshot: the version before.
        loses_ids: whether added files hold rows of removed ones, under new ids.
    """
    if not is_enabled(snapshot):
        return {}
    return {"delta.rowTracking.preserved": "false" if loses_ids else "true"}


def _is_supported(snapshot: Snapshot) -> bool:
    return "rowTracking" in writer_features(snapshot.protocol)


def _num_records(add: AddFile, snapshot: Snapshot) -> int:
    count = statistics.num_records(add.stats)
    if count is None:
        raise InvalidCommit(
            f"File '{add.path}' has no numRecords in its statistics, but the table at {snapshot.location} "
            f"(version {snapshot.version}) assigns an id to each row; send the number of rows.",
            file=add.path,
            version=snapshot.version,
        )
    return count
