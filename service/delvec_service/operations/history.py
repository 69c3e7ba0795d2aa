"""A table's history: who committed what, as Delta's DESCRIBE HISTORY tells it."""

from collections.abc import Mapping
from typing import Any, Final

from delvec.protocol.wire import HistoryEntry
from delvec_service.delta.actions import CommitInfo, Metadata
from delvec_service.delta.group import members_of
from delvec_service.delta.log.log_json import json_text
from delvec_service.delta.log.replay import Commit
from delvec_service.operations.log.log_reader import LogReader
from delvec_service.operations.time_travel import first_stamped
from delvec_service.store.objects import ObjectStore

__all__ = ["history"]

_FREE_FORM: Final = ("userId", "userName", "job", "notebook", "clusterId")


def history(objects: ObjectStore, table: str, limit: int | None = None) -> list[HistoryEntry]:
    """Return the commits that the log holds, newest first.

    Also of tables that Delvec cannot read: nothing but commitInfo is looked at.

    Args:
        objects: the table's files.
        table: the name that errors give.
        limit: the newest so many.

    Returns:
        Delta's columns. Parameters and metrics are text, whatever the writer made of them; a commit without
        commitInfo has a version and a timestamp. Timestamps are those of time travel. ``members`` are the transactions
        that Delvec committed together.

    Raises:
        NotADeltaTable: there is no log.
        MissingLogFile: a commit vanished meanwhile.
        CorruptLog: a commit cannot be read.
    """
    reader = LogReader(objects, table)
    listing = reader.list_all()
    times = listing.times
    versions = sorted(listing.commits, reverse=True)[:limit]
    entries = []
    # Until the newest metadata is met, what a commit says of itself is believed.
    known, stamped_from = False, 0
    for version, commit in zip(versions, reader.each(versions), strict=True):
        metadata = [action for action in commit.actions if isinstance(action, Metadata)]
        if metadata and not known:
            since = first_stamped(metadata[-1].configuration)
            known, stamped_from = True, version + 1 if since is None else since
        entries.append(_entry(version, commit, times[version], is_stamped=version >= stamped_from))
    return entries


def _entry(version: int, commit: Commit, file_time: int, *, is_stamped: bool) -> HistoryEntry:
    infos = (action for action in commit.actions if isinstance(action, CommitInfo))
    info = next(infos, CommitInfo())
    stamp = info.in_commit_timestamp if is_stamped else None
    free = {name: info.extra.get(name) for name in _FREE_FORM}
    return HistoryEntry.model_validate(
        {
            "version": version,
            "timestamp": file_time if stamp is None else stamp,
            "userId": free["userId"],
            "userName": free["userName"],
            "operation": info.operation,
            "operationParameters": _texts(info.operation_parameters),
            "job": free["job"],
            "notebook": free["notebook"],
            "clusterId": free["clusterId"],
            "readVersion": info.read_version,
            "isolationLevel": info.isolation_level,
            "isBlindAppend": info.is_blind_append,
            "operationMetrics": _texts(info.operation_metrics),
            "userMetadata": info.user_metadata,
            "engineInfo": info.engine_info,
            "members": [
                {
                    "key": member.key,
                    "readVersion": member.read_version,
                    "predicate": member.predicate,
                    "metrics": member.metrics,
                }
                for member in members_of(info)
            ]
            or None,
        }
    )


def _texts(values: Mapping[str, Any] | None) -> dict[str, str | None] | None:
    """Return values as text, as delta-spark reads them: what is no text stands as JSON."""
    if values is None:
        return None
    return {
        name: value if value is None or isinstance(value, str) else json_text(value)
        for name, value in values.items()
    }
