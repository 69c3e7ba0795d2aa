"""RESTORE: the actions that make a table's next version equal to an earlier one.

Files are compared by path and deletion vector, columnar; only differences become actions. As in delta-spark, some things
are never restored: table features, high-water marks of identity columns and row tracking, column ids.

Tested in `tests/integration/service/alter_table/test_restore.py`.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from delvec_errors import InvalidTableChange
from delvec_kernel import row_tracking
from delvec_kernel.actions.action_json import json_text
from delvec_kernel.actions.actions import AddFile, DomainMetadata, Metadata, Protocol
from delvec_kernel.alter_table.clustering import CLUSTERING_DOMAIN, clustering_domain
from delvec_kernel.features.managed_tables import TABLE_ID, is_catalog_managed, without_catalog
from delvec_kernel.features.protocol_upgrade import merged
from delvec_kernel.file_index.file_rows import FILES_SCHEMA, add_from_row
from delvec_kernel.file_index.live_files import LiveFiles
from delvec_kernel.locations import canonical_log_path
from delvec_kernel.schema.column_mapping import MAX_COLUMN_ID, is_mapped, max_column_id
from delvec_kernel.schema.types import IDENTITY_HIGH_WATER_MARK, IDENTITY_STEP, PHYSICAL_NAME
from delvec_kernel.snapshot.snapshot import Snapshot
from delvec_kernel.table_properties import IN_COMMIT_TIMESTAMPS, IN_COMMIT_TIMESTAMPS_SINCE, is_true

__all__ = ["Restoration", "restoration"]

_HISTORY_PROPERTIES: Final = ("delta.requireCheckpointProtectionBeforeVersion",)
_VECTOR: Final = ("storageType", "pathOrInlineDv", "offset")
"""Fields that identify a deletion vector."""


@dataclass(frozen=True)
class Restoration:
    """The changes of a RESTORE.

    Attributes:
        version: the version to restore.
        adds: its files that are not live now, or have another deletion vector now.
        removes: paths of live files that it lacks, or has with another deletion vector.
        metadata: the metadata of the version, except for what is never restored.
        protocol: None if unchanged.
        domains: domain metadata to set or remove.
        metrics: Delta's operationMetrics.
    """

    version: int
    adds: Sequence[AddFile]
    removes: Sequence[str]
    metadata: Metadata
    protocol: Protocol | None
    domains: Sequence[DomainMetadata]
    metrics: Mapping[str, int]


def restoration(target: Snapshot, latest: Snapshot) -> Restoration:
    """Return the changes that make the version after ``latest`` equal to ``target``.

    Raises:
        InvalidTableChange: files have lost the row ids that the earlier version had.
        SegmentsLost: the store lost segments; reload the snapshot.
    """
    adds, removals = _differences(target.live, latest.live)
    protocol = merged(latest.protocol, without_catalog(target.protocol))
    restore_changes = Restoration(
        version=target.version,
        adds=adds,
        removes=[path for path, _ in removals],
        metadata=_metadata(target, latest),
        protocol=None if protocol == latest.protocol else protocol,
        domains=_domains(target.domain_metadata, latest.domain_metadata),
        metrics={
            "tableSizeAfterRestore": target.size_in_bytes,
            "numOfFilesAfterRestore": target.num_files,
            "numRemovedFiles": len(removals),
            "numRestoredFiles": len(adds),
            "removedFilesSize": sum(size for _, size in removals),
            "restoredFilesSize": sum(add.size for add in adds),
        },
    )
    _check_row_ids(restore_changes, latest)
    return restore_changes


# --- files --------------------------------------------------------------------------------------------------


def _differences(target: LiveFiles, latest: LiveFiles) -> tuple[list[AddFile], list[tuple[str, int]]]:
    """Return the files that only ``target`` has, and path and size of those that only ``latest`` has."""
    before, now = _identities(target), _identities(latest)
    back = {_key(row, target.location): add_from_row(row) for row in _others(target, FILES_SCHEMA.names, now)}
    removed_files = {
        _key(row, latest.location): (row["path"], row["size"])
        for row in _others(latest, ("path", "size", "deletion_vector"), before)
    }
    # Skip files whose paths differ only in spelling.
    same = back.keys() & removed_files.keys()
    return (
        [add for key, add in back.items() if key not in same],
        [file for key, file in removed_files.items() if key not in same],
    )


def _identities(live: LiveFiles) -> pa.Array:
    """Return the identity of each file: path and deletion vector."""
    found = [_identity(batch) for batch in live.batches(("path", "deletion_vector"))]
    return pa.chunked_array(found, pa.large_string()).combine_chunks()


def _identity(batch: pa.RecordBatch) -> pa.Array:
    vectors = batch["deletion_vector"]
    parts = [pc.struct_field(vectors, name) for name in _VECTOR]
    texts = [pc.fill_null(part.cast(pa.large_string()), "") for part in parts]
    return pc.binary_join_element_wise(
        batch["path"].cast(pa.large_string()), *texts, pa.scalar("\0", pa.large_string())
    )


def _others(live: LiveFiles, names: Sequence[str], known: pa.Array) -> list[dict[str, Any]]:
    """Return columns of the files whose identities are not in ``known``."""
    found: list[dict[str, Any]] = []
    for batch in live.batches(names):
        new = pc.invert(pc.is_in(_identity(batch), value_set=known))
        if pc.any(new).as_py():
            found += batch.filter(new).to_pylist()
    return found


def _key(row: Mapping[str, Any], location: str) -> tuple[Any, ...]:
    vector = row["deletion_vector"] or {}
    return canonical_log_path(row["path"], location), *(vector.get(name) for name in _VECTOR)


# --- the table ----------------------------------------------------------------------------------------------


def _metadata(target: Snapshot, latest: Snapshot) -> Metadata:
    configuration = dict(target.configuration)
    _keep(configuration, latest, _HISTORY_PROPERTIES)
    if is_catalog_managed(latest.protocol):
        _keep(configuration, latest, (TABLE_ID, IN_COMMIT_TIMESTAMPS))
    else:
        configuration.pop(TABLE_ID, None)
    if is_true(configuration, IN_COMMIT_TIMESTAMPS) and latest.in_commit_timestamps_enabled:
        # The latest version knows when timestamps were last enabled, which may be after the restored one.
        _keep(configuration, latest, IN_COMMIT_TIMESTAMPS_SINCE)
    for name in row_tracking.MATERIALIZED:
        # Existing files have these materialized columns, so row tracking must not choose others.
        if name in latest.configuration:
            configuration.setdefault(name, latest.configuration[name])
    if is_mapped(configuration):
        highest = max(max_column_id(each.configuration) for each in (target, latest))
        configuration[MAX_COLUMN_ID] = str(highest)
    return replace(
        target.metadata,
        configuration=configuration,
        schema_string=_with_marks(target.metadata.schema_string, latest.metadata.schema_string),
    )


def _keep(configuration: dict[str, str], latest: Snapshot, names: Sequence[str]) -> None:
    for name in names:
        value = latest.configuration.get(name)
        if value is None:
            configuration.pop(name, None)
        else:
            configuration[name] = value


def _with_marks(schema_string: str, latest: str) -> str:
    """Return a schema with the latest version's high-water marks of identity columns."""
    marks = {
        _physical(field): mark
        for field in json.loads(latest)["fields"]
        if isinstance(mark := field.get("metadata", {}).get(IDENTITY_HIGH_WATER_MARK), int)
    }
    if not marks:
        return schema_string
    schema = json.loads(schema_string)
    is_changed = False
    for field in schema["fields"]:
        metadata, mark = field.get("metadata", {}), marks.get(_physical(field))
        step, own = metadata.get(IDENTITY_STEP), metadata.get(IDENTITY_HIGH_WATER_MARK)
        if mark is not None and step and (own is None or (mark - own) * step > 0):
            metadata[IDENTITY_HIGH_WATER_MARK] = mark
            is_changed = True
    return json_text(schema) if is_changed else schema_string


def _physical(field: Mapping[str, Any]) -> str:
    return str(field.get("metadata", {}).get(PHYSICAL_NAME, field["name"]))


def _domains(
    target: Mapping[str, DomainMetadata], latest: Mapping[str, DomainMetadata]
) -> list[DomainMetadata]:
    """Return the version's clustering domain; no other domain is restored."""
    wanted, now = (_set(domains) for domains in (target, latest))
    if wanted is not None:
        return [wanted]
    return [] if now is None else [clustering_domain(())]


def _set(domains: Mapping[str, DomainMetadata]) -> DomainMetadata | None:
    found = domains.get(CLUSTERING_DOMAIN)
    return None if found is None or found.removed else found


def _check_row_ids(restore_changes: Restoration, latest: Snapshot) -> None:
    """Reject restoring row ids of rows whose files have since lost them."""
    if not is_true(restore_changes.metadata.configuration, row_tracking.ENABLED) or is_true(
        latest.configuration, row_tracking.ENABLED
    ):
        return
    removed_paths = set(restore_changes.removes)
    lost_paths = [
        path
        for batch in latest.live.batches(("path", "base_row_id"))
        for path in batch.filter(pc.is_null(batch["base_row_id"]))["path"].to_pylist()
        if path not in removed_paths
    ]
    if lost_paths:
        raise InvalidTableChange(
            f"Version {restore_changes.version} cannot be restored: it has row tracking, and {len(lost_paths)} of its "
            f"files, such as '{lost_paths[0]}', have lost their row ids since. Read that version, and write its "
            "rows to the table instead.",
            version=latest.version,
            files=lost_paths[:100],
        )
