"""A commit as a line of DESCRIBE HISTORY."""

from collections.abc import Mapping
from typing import Any, Final

from delvec_contract.tables import HistoryEntry
from delvec_kernel.actions.action_json import json_text
from delvec_kernel.actions.actions import CommitInfo
from delvec_kernel.transaction.group_commit import members_of

__all__ = ["history_entry"]

_FREE_FORM: Final = ("userId", "userName", "job", "notebook", "clusterId")


def history_entry(version: int, info: CommitInfo, timestamp: int) -> HistoryEntry:
    """Return Delta's columns; values that may have any type are text."""
    free = {name: info.extra.get(name) for name in _FREE_FORM}
    return HistoryEntry.model_validate(
        {
            "version": version,
            "timestamp": timestamp,
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
    """Return values as text, in delta-spark's form: values that are not text are written as JSON."""
    if values is None:
        return None
    return {
        name: value if value is None or isinstance(value, str) else json_text(value)
        for name, value in values.items()
    }
