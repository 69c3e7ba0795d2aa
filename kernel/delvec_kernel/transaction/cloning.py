"""CLONE: the actions that make a table a copy of another at some version, as in delta-spark.

A shallow clone refers to the source's data files and deletion vectors by absolute paths. Rows get new row ids, and
properties about the source's own history are not copied.

Tested in `tests/integration/client/test_clone.py`.
"""

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import unquote

from delvec_errors import InvalidTableChange
from delvec_kernel import locations, row_tracking
from delvec_kernel.actions.actions import Action, AddFile, CommitInfo, DomainMetadata, Metadata, Protocol
from delvec_kernel.alter_table.change_types import SetProperties
from delvec_kernel.alter_table.clustering import CLUSTERING_DOMAIN, clustering_domain
from delvec_kernel.alter_table.first_version import are_enabled
from delvec_kernel.alter_table.properties import set_properties
from delvec_kernel.alter_table.row_tracking_change import check_row_ids, with_materialized_columns
from delvec_kernel.alter_table.table_update import TableState, TableUpdate
from delvec_kernel.deletion_vectors.deletion_vector import Descriptor
from delvec_kernel.features.managed_tables import TABLE_ID, is_catalog_managed, without_catalog
from delvec_kernel.features.protocol_upgrade import merged
from delvec_kernel.file_index.file_rows import add_from_row
from delvec_kernel.file_index.live_files import LiveFiles
from delvec_kernel.schema.column_mapping import MAX_COLUMN_ID, MODE, is_mapped, mapping_mode, max_column_id
from delvec_kernel.snapshot.snapshot import Snapshot
from delvec_kernel.table_properties import IN_COMMIT_TIMESTAMPS, IN_COMMIT_TIMESTAMPS_SINCE, is_true

__all__ = ["Clone", "absolute", "clone_of", "cloned_files", "first_version_of"]

_HISTORY_PROPERTIES: Final = (
    *IN_COMMIT_TIMESTAMPS_SINCE,
    *row_tracking.MATERIALIZED,
    TABLE_ID,
    "delta.requireCheckpointProtectionBeforeVersion",
)
"""Properties about a table's own versions and files, which do not apply to a clone."""


@dataclass(frozen=True)
class Clone:
    """The metadata of a clone, without its files.

    Attributes:
        domains: domain metadata to set, or to remove as tombstones.
    """

    metadata: Metadata
    protocol: Protocol
    domains: tuple[DomainMetadata, ...]


def clone_of(source: Snapshot, target: Snapshot | None, properties: Mapping[str, str]) -> Clone:
    """Return the metadata of a clone: columns, properties, features and clustering columns of its source.

    Args:
        source: the version to clone.
        target: the newest version of the table to replace; None for a new table.
        properties: these override the source's.

    Raises:
        InvalidTableChange: or a sibling: a property cannot be set, or source and target have different column mappings.
    """
    metadata = replace(
        source.metadata,
        id=str(uuid.uuid4()) if target is None else target.metadata.id,
        name=None if target is None else target.metadata.name,
        description=None if target is None else target.metadata.description,
        configuration=_configuration(source, target),
    )
    protocol = without_catalog(source.protocol)
    protocol = protocol if target is None else merged(target.protocol, protocol)
    state = TableState(source.version, source.num_deletion_vectors, 0, 0, 0)
    draft = TableUpdate(
        metadata,
        protocol,
        {},
        source.schema,
        lambda: f"col-{uuid.uuid4()}",
        lambda: state,
        ""
        if target is None
        else target.metadata.configuration.get(TABLE_ID) or locations.table_id(target.location),
    )
    if properties:
        set_properties(draft, SetProperties(properties=dict(properties)))
    if is_catalog_managed(protocol):
        draft.manage(properties)
    check_row_ids(draft)
    changed, upgraded, _ = draft.finish()
    clone = Clone(changed or metadata, upgraded or protocol, _domains(source, target))
    _check_mapping(source, target, clone.metadata)
    return clone


def cloned_files(source: Snapshot, target_location: str) -> Iterator[AddFile]:
    """Yield the files of a version with the paths of a shallow clone.

    Raises:
        LocationNotAllowed: or a sibling: a path in the source's log is invalid.
        SegmentsLost: the store lost segments; reload the snapshot.
    """
    for batch in source.live.batches():
        for row in batch.to_pylist():
            add = add_from_row(row)
            vector = add.deletion_vector
            yield replace(
                add,
                path=absolute(source.location, add.path, target_location),
                deletion_vector=None if vector is None else _absolute_vector(vector, source.location),
                # As in delta-spark: row ids are unique to a table.
                base_row_id=None,
                default_row_commit_version=None,
            )


def absolute(location: str, path: str, target_location: str) -> str:
    """Return a file's path for the log of another table: absolute, in Spark's encoding, unless it is in that table."""
    url = locations.resolve(location, path)
    if locations.within(url, target_location):
        return locations.log_path(unquote(locations.relative_to(target_location, url)))
    # Hadoop and Rust readers support s3a, but Hadoop needs extra settings for s3.
    return locations.spark_file_path(f"s3a{url[2:]}" if url.startswith("s3://") else url)


def first_version_of(
    clone: Clone,
    files: list[AddFile],
    *,
    location: str,
    parameters: Mapping[str, object],
    metrics: Mapping[str, int],
    transaction_id: str,
    engine_info: str,
    now: int,
    operation: str = "CLONE",
) -> list[Action]:
    """Return the actions of version 0 of a table that starts with files.

    Raises:
        InvalidCommit: row tracking is enabled, and a file lacks its row count.
    """
    empty = Snapshot(
        location=location,
        version=-1,
        timestamp=0,
        protocol=clone.protocol,
        metadata=clone.metadata,
        live=LiveFiles(location),
        txns={},
        domain_metadata={},
        in_commit_timestamp=None,
        checkpoint_version=None,
    )
    adds, mark = row_tracking.assigned(files, empty, 0)
    info = CommitInfo(
        timestamp=now,
        in_commit_timestamp=now if are_enabled(clone.metadata) else None,
        operation=operation,
        operation_parameters=dict(parameters),
        isolation_level="Serializable",
        is_blind_append=False,
        operation_metrics={name: str(value) for name, value in metrics.items()},
        engine_info=engine_info,
        txn_id=transaction_id,
    )
    return [info, clone.protocol, clone.metadata, *clone.domains, *([] if mark is None else [mark]), *adds]


def _absolute_vector(vector: Descriptor, location: str) -> Descriptor:
    if vector.is_inline:
        return vector
    path = vector.relative_path() or vector.path_or_inline_dv
    return replace(vector, storage_type="p", path_or_inline_dv=absolute(location, path, ""))


def _configuration(source: Snapshot, target: Snapshot | None) -> dict[str, str]:
    configuration = {
        name: value for name, value in source.configuration.items() if name not in _HISTORY_PROPERTIES
    }
    target_configuration = {} if target is None else target.configuration
    both = is_true(configuration, IN_COMMIT_TIMESTAMPS) and is_true(
        target_configuration, IN_COMMIT_TIMESTAMPS
    )
    configuration |= {
        name: target_configuration[name]
        for name in _HISTORY_PROPERTIES
        if name in target_configuration and (both or name not in IN_COMMIT_TIMESTAMPS_SINCE)
    }
    if is_mapped(configuration):
        configuration[MAX_COLUMN_ID] = str(
            max(max_column_id(each) for each in (source.configuration, target_configuration))
        )
    return (
        with_materialized_columns(configuration)
        if is_true(configuration, row_tracking.ENABLED)
        else configuration
    )


def _check_mapping(source: Snapshot, target: Snapshot | None, metadata: Metadata) -> None:
    wanted = mapping_mode(metadata.configuration)
    for table, what in ((source, "its source"), *(() if target is None else ((target, "the table"),))):
        mode = mapping_mode(table.configuration)
        if mode != wanted:
            raise InvalidTableChange(
                f"A clone cannot have {MODE}={wanted}, because {what} at {table.location} has {mode} and "
                "its files name columns accordingly. Clone to another location, without the property.",
                property=MODE,
            )


def _domains(source: Snapshot, target: Snapshot | None) -> tuple[DomainMetadata, ...]:
    wanted = source.domain_metadata.get(CLUSTERING_DOMAIN)
    if wanted is not None and not wanted.removed:
        return (wanted,)
    now = None if target is None else target.domain_metadata.get(CLUSTERING_DOMAIN)
    return () if now is None or now.removed else (clustering_domain(()),)
