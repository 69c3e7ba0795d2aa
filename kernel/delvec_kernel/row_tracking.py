"""Row tracking: ids and commit versions of the rows that a commit adds (PROTOCOL.md, "Row Tracking").

The rows of a file have consecutive ids from its ``baseRowId``. Ids are never reused, so the log has a high-water mark.
They depend on the version that a commit gets, so they are reassigned at each attempt.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from delvec_errors import CorruptLog, InvalidCommit
from delvec_kernel.actions.action_json import json_text
from delvec_kernel.actions.actions import AddFile, DomainMetadata
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
"""Property: every row has a stable row id."""
SUSPENDED: Final = "delta.rowTrackingSuspended"
"""Property: no row ids are assigned although the protocol has the feature; used while dropping the feature."""
MATERIALIZED: Final = (
    "delta.rowTracking.materializedRowIdColumnName",
    "delta.rowTracking.materializedRowCommitVersionColumnName",
)
"""Properties: the columns of data files with materialized row ids and row commit versions."""
_HIGH_WATER_MARK: Final = "rowIdHighWaterMark"
_NO_ID_YET: Final = -1


def is_enabled(snapshot: Snapshot) -> bool:
    """Whether row tracking is enabled, so that readers rely on every row's id."""
    return _is_supported(snapshot) and is_true(snapshot.configuration, ENABLED)


def gives_ids(snapshot: Snapshot) -> bool | None:
    """Whether added files get row ids; False if they lose them, None if they stay unchanged."""
    return not is_true(snapshot.configuration, SUSPENDED) if _is_supported(snapshot) else None


def high_water_mark(snapshot: Snapshot) -> int:
    """Return the highest row id ever assigned, or -1.

    Raises:
        CorruptLog: the high-water mark in the log is not a number.
    """
    domain = snapshot.domain_metadata.get(DOMAIN)
    if domain is None or domain.removed:
        return _NO_ID_YET
    try:
        mark = json.loads(domain.configuration)[_HIGH_WATER_MARK]
    except (ValueError, KeyError, TypeError, RecursionError):
        mark = None
    if not isinstance(mark, int) or isinstance(mark, bool) or mark < _NO_ID_YET:
        raise CorruptLog(
            f"The log of the table at {snapshot.location} (version {snapshot.version}) does not say which "
            f"row ids have been assigned: its domain metadata {DOMAIN} is {domain.configuration[:100]!r}; "
            "restore an earlier version.",
            version=snapshot.version,
            location=snapshot.location,
        )
    return mark


def assigned(
    adds: Sequence[AddFile], snapshot: Snapshot, version: int
) -> tuple[list[AddFile], DomainMetadata | None]:
    """Return the files with row ids and commit versions, and the new high-water mark, if any.

    Files that are added again keep theirs. Without row tracking support nothing changes; if it is suspended, files lose
    their row ids.

    Args:
        adds: all files that the version adds, in order.
        snapshot: the previous version.
        version: the version to commit.

    Raises:
        InvalidCommit: a file lacks its row count.
        CorruptLog: the high-water mark in the log is invalid.
    """
    if not _is_supported(snapshot):
        return list(adds), None
    if is_true(snapshot.configuration, SUSPENDED):
        return [replace(add, base_row_id=None, default_row_commit_version=None) for add in adds], None
    before = mark = high_water_mark(snapshot)
    adds_with_ids = []
    for add in adds:
        base = add.base_row_id
        if base is None:
            base = mark + 1
            mark += _num_records(add, snapshot)
        since = version if add.default_row_commit_version is None else add.default_row_commit_version
        adds_with_ids.append(replace(add, base_row_id=base, default_row_commit_version=since))
    if mark == before:
        return adds_with_ids, None
    return adds_with_ids, DomainMetadata(DOMAIN, json_text({_HIGH_WATER_MARK: mark}))


def tags(snapshot: Snapshot, *, loses_ids: bool) -> Mapping[str, str]:
    """Return commitInfo tags about row tracking: whether all rewritten rows kept their row ids.

    Args:
        snapshot: the previous version.
        loses_ids: whether added files contain rows of removed ones under new row ids.
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
