"""Changes of a table's metadata that a commit which did not know of them may follow: delta-spark's allow-list.

They turn on a feature that concerns writers only from the next file on, or fill in numbers that no writer of data
looks at. Everything else - a column, a constraint, a property - could make what was written wrong.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from delvec.protocol.table_properties import is_true
from delvec_service.delta.actions import Metadata, Protocol
from delvec_service.delta.features import writer_features

__all__ = ["that_matter", "turns_row_tracking_on"]

_MODE: Final = "delta.columnMapping.mode"
_ROW_TRACKING: Final = "delta.enableRowTracking"
_MATERIALIZED: Final = (
    "delta.rowTracking.materializedRowIdColumnName",
    "delta.rowTracking.materializedRowCommitVersionColumnName",
)
_COLUMN_MAPPING: Final = frozenset(
    {"delta.columnMapping.id", "delta.columnMapping.physicalName", "delta.columnMapping.nested.ids"}
)
_HIGH_WATER_MARK: Final = "delta.identity.highWaterMark"


def that_matter(before: Metadata, after: Metadata, protocol: Protocol) -> list[str]:
    """Return the names of what changed and matters to a commit that read ``before``; ``protocol`` is that of after."""
    found = _properties(before.configuration, after.configuration, writer_features(protocol))
    named = _mode(before.configuration) == "none" and _mode(after.configuration) == "name"
    if before.schema_string != after.schema_string and not _same_schema(before, after, named=named):
        found.append("schema")
    for name in ("id", "partition_columns", "name", "description", "format_provider", "format_options"):
        if getattr(before, name) != getattr(after, name):
            found.append(name.replace("_", " "))
    return found


def turns_row_tracking_on(before: Metadata, after: Metadata) -> bool:
    """Whether rows have ids that stay from ``after`` on."""
    return not is_true(before.configuration, _ROW_TRACKING) and is_true(after.configuration, _ROW_TRACKING)


def _properties(before: Mapping[str, str], after: Mapping[str, str], features: frozenset[str]) -> list[str]:
    changed = [name for name in sorted(before.keys() | after.keys()) if before.get(name) != after.get(name)]
    enables_row_tracking = (
        "delta.enableRowTracking" in changed and after.get("delta.enableRowTracking") == "true"
    )
    maps_columns = _mode(before) == "none" and _mode(after) == "name"
    stamps = is_true(after, "delta.enableInCommitTimestamps")
    allowed: dict[str, Callable[[], bool]] = {
        "delta.enableDeletionVectors": lambda: (
            is_true(after, "delta.enableDeletionVectors") and "deletionVectors" in features
        ),
        "delta.enableRowTracking": lambda: enables_row_tracking and "rowTracking" in features,
        _MODE: lambda: maps_columns,
        "delta.columnMapping.maxColumnId": lambda: maps_columns,
        "delta.checkpointPolicy": lambda: after.get("delta.checkpointPolicy") == "v2",
        "delta.enableInCommitTimestamps": lambda: stamps,
        "delta.inCommitTimestampEnablementVersion": lambda: stamps,
        "delta.inCommitTimestampEnablementTimestamp": lambda: stamps,
        "io.unitycatalog.tableId": lambda: "io.unitycatalog.tableId" not in before,
        "ucTableId": lambda: "ucTableId" not in before,
        **dict.fromkeys(_MATERIALIZED, lambda: enables_row_tracking),
    }
    return [name for name in changed if name not in allowed or not allowed[name]()]


def _same_schema(before: Metadata, after: Metadata, *, named: bool) -> bool:
    """Whether nothing but the numbers of identity columns and, where columns got ``named``, their mapping differs."""
    try:
        return bool(
            _bare(json.loads(before.schema_string), named) == _bare(json.loads(after.schema_string), named)
        )
    except (ValueError, RecursionError):
        return False


def _bare(node: Any, named: bool) -> Any:
    if isinstance(node, list):
        return [_bare(each, named) for each in node]
    if not isinstance(node, dict):
        return node
    kept = {key: _bare(value, named) for key, value in node.items() if key != "metadata"}
    if isinstance(node.get("metadata"), dict):
        physical = node["metadata"].get("delta.columnMapping.physicalName", node.get("name"))
        # A name of its own would not be the one that is in files written without it.
        mapping = _COLUMN_MAPPING if named and physical == node.get("name") else frozenset[str]()
        kept["metadata"] = {
            key: value
            for key, value in node["metadata"].items()
            if key != _HIGH_WATER_MARK and key not in mapping
        }
    return kept


def _mode(configuration: Mapping[str, str]) -> str:
    return configuration.get(_MODE, "none").strip().lower()
