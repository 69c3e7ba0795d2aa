"""Metadata changes that do not conflict with concurrent commits: delta-spark's allow-list.

They enable a feature that concerns only new files, or fill in values that data writers ignore. Any other change, such as
of a column, a constraint or a property, could make concurrently written files wrong.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from delvec_errors import (
    ConcurrentAppend,
    ConcurrentModification,
    ConcurrentTransaction,
    MetadataChanged,
    ProtocolChanged,
)
from delvec_kernel import row_tracking
from delvec_kernel.actions.actions import AddFile, Metadata, Protocol
from delvec_kernel.alter_table.clustering import CLUSTERING_DOMAIN
from delvec_kernel.features.table_features import reader_features, writer_features
from delvec_kernel.schema.column_mapping import MODE, NESTED_IDS, mapping_mode
from delvec_kernel.schema.types import FIELD_ID, IDENTITY_HIGH_WATER_MARK, PHYSICAL_NAME
from delvec_kernel.table_properties import (
    DELETION_VECTORS,
    IN_COMMIT_TIMESTAMPS,
    IN_COMMIT_TIMESTAMPS_SINCE,
    is_true,
)
from delvec_kernel.transaction.current_transaction import ROW_TRACKING, CurrentTransaction
from delvec_kernel.transaction.verdict import Conflict
from delvec_kernel.transaction.winning_commit import WinningCommit

__all__ = ["TableRules", "conflicting_changes", "enables_row_tracking"]

_COLUMN_MAPPING: Final = frozenset({FIELD_ID, PHYSICAL_NAME, NESTED_IDS})
_FEATURES_OF_FILES: Final[Mapping[str, Callable[[AddFile], bool]]] = {
    "deletionVectors": lambda add: add.deletion_vector is not None,
    "rowTracking": lambda add: add.base_row_id is not None,
}
"""Features that an add action can need, with a test for that."""


def conflicting_changes(before: Metadata, after: Metadata, protocol: Protocol) -> list[str]:
    """Return the names of changes that conflict with a commit that read ``before``; ``protocol`` belongs to ``after``."""
    change_names = _properties(before.configuration, after.configuration, writer_features(protocol))
    is_mapping_upgrade = (
        mapping_mode(before.configuration) == "none" and mapping_mode(after.configuration) == "name"
    )
    if before.schema_string != after.schema_string and not _same_schema(
        before, after, is_mapping_upgrade=is_mapping_upgrade
    ):
        change_names.append("schema")
    for name in ("id", "partition_columns", "name", "description", "format_provider", "format_options"):
        if getattr(before, name) != getattr(after, name):
            change_names.append(name.replace("_", " "))
    return change_names


def enables_row_tracking(before: Metadata, after: Metadata) -> bool:
    """Whether ``after`` enables row tracking."""
    return not is_true(before.configuration, row_tracking.ENABLED) and is_true(
        after.configuration, row_tracking.ENABLED
    )


def _properties(before: Mapping[str, str], after: Mapping[str, str], features: frozenset[str]) -> list[str]:
    changed_names = [
        name for name in sorted(before.keys() | after.keys()) if before.get(name) != after.get(name)
    ]
    just_enabled = row_tracking.ENABLED in changed_names and after.get(row_tracking.ENABLED) == "true"
    maps_columns = mapping_mode(before) == "none" and mapping_mode(after) == "name"
    stamps = is_true(after, IN_COMMIT_TIMESTAMPS)
    rules: dict[str, Callable[[], bool]] = {
        DELETION_VECTORS: lambda: is_true(after, DELETION_VECTORS) and "deletionVectors" in features,
        row_tracking.ENABLED: lambda: just_enabled and "rowTracking" in features,
        MODE: lambda: maps_columns,
        "delta.columnMapping.maxColumnId": lambda: maps_columns,
        "delta.checkpointPolicy": lambda: after.get("delta.checkpointPolicy") == "v2",
        IN_COMMIT_TIMESTAMPS: lambda: stamps,
        **dict.fromkeys(IN_COMMIT_TIMESTAMPS_SINCE, lambda: stamps),
        "io.unitycatalog.tableId": lambda: "io.unitycatalog.tableId" not in before,
        "ucTableId": lambda: "ucTableId" not in before,
        **dict.fromkeys(row_tracking.MATERIALIZED, lambda: just_enabled),
    }
    return [name for name in changed_names if name not in rules or not rules[name]()]


def _same_schema(before: Metadata, after: Metadata, *, is_mapping_upgrade: bool) -> bool:
    """Whether schemas differ at most in identity columns' high-water marks and, if ``is_mapping_upgrade``, in new column mapping."""
    try:
        return bool(
            _bare(json.loads(before.schema_string), is_mapping_upgrade)
            == _bare(json.loads(after.schema_string), is_mapping_upgrade)
        )
    except (ValueError, RecursionError):
        return False


def _bare(node: Any, is_mapping_upgrade: bool) -> Any:
    if isinstance(node, list):
        return [_bare(each, is_mapping_upgrade) for each in node]
    if not isinstance(node, dict):
        return node
    bare_node = {key: _bare(value, is_mapping_upgrade) for key, value in node.items() if key != "metadata"}
    if isinstance(node.get("metadata"), dict):
        physical = node["metadata"].get(PHYSICAL_NAME, node.get("name"))
        # A physical name other than the logical one would not match files written without mapping.
        mapping = _COLUMN_MAPPING if is_mapping_upgrade and physical == node.get("name") else frozenset[str]()
        bare_node["metadata"] = {
            key: value
            for key, value in node["metadata"].items()
            if key != IDENTITY_HIGH_WATER_MARK and key not in mapping
        }
    return bare_node


class TableRules:
    """Tracks the winners' changes to the table's metadata."""

    def __init__(self, ours: CurrentTransaction) -> None:
        self._ours = ours
        self._before = ours.before

    def conflict(self, winner: WinningCommit) -> Conflict | None:
        """Return a conflict with ``winner``, or else record its changes."""
        files = self._files(winner)
        if files is not None or not (winner.protocol or winner.metadata or winner.domains or winner.txns):
            return files
        return self._protocol(winner) or self._metadata(winner) or self._domains(winner) or self._txns(winner)

    def _protocol(self, winner: WinningCommit) -> Conflict | None:
        new = winner.protocol
        if new is None:
            return None
        if self._ours.changes.protocol is not None:
            return self._conflict(
                ProtocolChanged, winner, "changed the table's protocol, as does this commit,"
            )
        if self._before is None:
            return self._conflict(ProtocolChanged, winner, "changed the table's protocol")
        metadata, old = self._before
        dropped = (reader_features(old) - reader_features(new)) | (
            writer_features(old) - writer_features(new)
        )
        if dropped:
            named = ", ".join(sorted(dropped))
            return self._conflict(ProtocolChanged, winner, f"dropped the table feature {named}")
        self._before = metadata, new
        return None

    def _metadata(self, winner: WinningCommit) -> Conflict | None:
        new = winner.metadata
        if new is None:
            return None
        if self._ours.changes.metadata is not None:
            return self._conflict(
                MetadataChanged, winner, "changed the table's metadata, as does this commit,"
            )
        if self._before is None:
            return self._conflict(MetadataChanged, winner, "changed the table's metadata")
        old, protocol = self._before
        matters = conflicting_changes(old, new, protocol)
        if enables_row_tracking(old, new) and self._ours.changes.copies_rows:
            # Our rows were written without row ids; a retry preserves them.
            matters = [*matters, row_tracking.ENABLED]
        if matters:
            named = ", ".join(matters[:5])
            return self._conflict(MetadataChanged, winner, f"changed the table's metadata ({named})")
        self._before = new, protocol
        return None

    def _domains(self, winner: WinningCommit) -> Conflict | None:
        for each in self._ours.changes.domains:
            # Row ids are reassigned at each attempt.
            if each.domain in winner.domains and each.domain != ROW_TRACKING:
                what = f"changed the domain metadata '{each.domain}', as does this commit,"
                return self._conflict(ConcurrentTransaction, winner, what)
        for name, domain in winner.domains.items():
            feature = self._missing_feature(name)
            if feature is not None and not domain.removed:
                what = (
                    f"set the domain metadata '{name}', which needs the table feature {feature}, which this "
                    "commit drops,"
                )
                return self._conflict(ConcurrentTransaction, winner, what)
        return None

    def _missing_feature(self, domain: str) -> str | None:
        """Return the feature that a metadata domain needs and that our protocol lacks, or None."""
        protocol = self._ours.changes.protocol
        if protocol is None:
            return None
        needed = ("domainMetadata", *(["clustering"] if domain == CLUSTERING_DOMAIN else []))
        return next((feature for feature in needed if feature not in writer_features(protocol)), None)

    def _files(self, winner: WinningCommit) -> Conflict | None:
        """Return a conflict if a winner added files that need a feature which our protocol lacks.

        A RESTORE may bring back such files even if current properties do not enable the feature.
        """
        protocol = self._ours.changes.protocol
        if protocol is None:
            return None
        left = writer_features(protocol)
        for feature, needs in _FEATURES_OF_FILES.items():
            if feature in left:
                continue
            paths = tuple(sorted(add.path for add in winner.adds.values() if needs(add)))
            if paths:
                files_text = f"file '{paths[0]}'" if len(paths) == 1 else f"{len(paths)} files"
                what = (
                    f"added {files_text} that need the table feature {feature}, which the table does not have "
                    "after this commit,"
                )
                return self._conflict(ConcurrentAppend, winner, what, paths)
        return None

    def _txns(self, winner: WinningCommit) -> Conflict | None:
        application = self._ours.changes.app_transaction
        if application is None or application.app_id not in winner.txns:
            return None
        reached = winner.txns[application.app_id].version
        what = f"set application '{application.app_id}' to transaction {reached}"
        return self._conflict(ConcurrentTransaction, winner, what)

    def _conflict(
        self,
        kind: type[ConcurrentModification],
        winner: WinningCommit,
        what: str,
        files: tuple[str, ...] = (),
    ) -> Conflict:
        return Conflict(kind, self._ours.changes, winner, files, what, is_of_the_table=True)
