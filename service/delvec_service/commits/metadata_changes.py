"""Changes of the table that come with rows: a column that the new files have, a whole new schema, an identity column.

They are computed from the version that the commit has read. If another commit changes metadata meanwhile, this one
loses, as in Delta: its files were written for a different table.

Tested in `tests/integration/service/commits/test_write_changes.py`.
"""

import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace

from delvec_errors import (
    DelvecError,
    InvalidTableChange,
    StaleReadVersion,
    UnsupportedTable,
    VersionFromFuture,
    VersionNotFound,
)
from delvec_kernel.alter_table.alteration import Alteration, altered
from delvec_kernel.alter_table.change_types import ReplaceSchema, ReplaceTable, TableChange, WriteChange
from delvec_kernel.alter_table.table_update import TableState, TableUpdate
from delvec_kernel.features.table_features import check_writable
from delvec_kernel.schema.column_mapping import physical_names
from delvec_kernel.snapshot.snapshot import Snapshot
from delvec_kernel.transaction.transaction_changes import Changes
from delvec_service.snapshots.loader import SnapshotLoader
from delvec_service.snapshots.log_reader import LogReader
from delvec_service.store.open_table import OpenTable

__all__ = ["alteration_of", "as_written", "draft_of", "resolved", "table_as_written"]


def alteration_of(
    table: OpenTable,
    changes: Sequence[TableChange | WriteChange],
    snapshot: Snapshot,
    new_name: Callable[[], str] | None = None,
) -> Alteration:
    """Return the result of applying changes to a version.

    Args:
        table: the table.
        changes: in order.
        snapshot: the version.
        new_name: returns a unique physical column name.

    Raises:
        InvalidTableChange: the table cannot be changed this way, or Delvec could not write it afterwards.
        SegmentsLost: a change depends on files, and the store has dropped data that the snapshot needs; load it
            again.
        BadRequest: or a subclass: a value, type, name or expression is invalid.
        UnsupportedTable: or a subclass: Delvec cannot write the table.
    """
    check_writable(snapshot.protocol, snapshot.metadata, table.name)
    try:
        alteration = altered(
            changes,
            metadata=snapshot.metadata,
            protocol=snapshot.protocol,
            domains=snapshot.domain_metadata,
            schema=snapshot.schema,
            catalog_id=table.objects.catalog_id,
            state=lambda: TableState.of(snapshot, _oldest_version(table)),
            **({} if new_name is None else {"new_name": new_name}),
        )
    except DelvecError as error:
        error.details.setdefault("table", table.name)
        error.details.setdefault("version", snapshot.version)
        raise
    try:
        check_writable(
            alteration.protocol or snapshot.protocol, alteration.metadata or snapshot.metadata, table.name
        )
    except UnsupportedTable as error:
        raise InvalidTableChange(
            f"After this change Delvec could no longer write table '{table.name}': {error.message}",
            **{"table": table.name, "version": snapshot.version, **error.details},
        ) from error
    return alteration


def draft_of(table: OpenTable, snapshot: Snapshot) -> TableUpdate:
    """Return a version for planning changes to it.

    Raises:
        UnsupportedTable: or a subclass: Delvec cannot write the table.
    """
    check_writable(snapshot.protocol, snapshot.metadata, table.name)
    return TableUpdate(
        snapshot.metadata,
        snapshot.protocol,
        snapshot.domain_metadata,
        snapshot.schema,
        lambda: f"col-{uuid.uuid4()}",
        lambda: TableState.of(snapshot, _oldest_version(table)),
        table.objects.catalog_id,
    )


def table_as_written(
    table: OpenTable, snapshot: Snapshot, changes: Sequence[WriteChange], transaction_id: str
) -> Snapshot:
    """Return a version with a transaction's changes applied. New columns get the names that its commit will use.

    Raises:
        InvalidTableChange: or a sibling, see :func:`alteration_of`.
    """
    if not changes:
        return snapshot
    found = alteration_of(table, changes, snapshot, physical_names(transaction_id))
    return replace(
        snapshot, metadata=found.metadata or snapshot.metadata, protocol=found.protocol or snapshot.protocol
    )


def resolved(table: OpenTable, loader: SnapshotLoader, changes: Changes) -> Changes:
    """Return a commit with the metadata and protocol that result from its table changes.

    Raises:
        InvalidTableChange: or a sibling, see :func:`alteration_of`.
        StaleReadVersion: the log no longer has the version that was read.
        VersionFromFuture: it does not exist yet.
    """
    if not changes.table_changes:
        return changes
    snapshot = loader.load(table.objects, table.name, checkpoints=False)
    if snapshot.version < changes.read_version:
        # Not left to the commit: the version may exist by then, and the rows would be added without their columns.
        raise VersionFromFuture(
            f"The commit claims to have read version {changes.read_version} of table '{table.name}', whose newest "
            f"version is {snapshot.version}.",
            table=table.name,
            version=changes.read_version,
        )
    if snapshot.version > changes.read_version:
        try:
            snapshot = loader.load(table.objects, table.name, version=changes.read_version)
        except VersionNotFound as error:
            raise StaleReadVersion(
                f"The log of table '{table.name}' no longer has version {changes.read_version}, which this "
                f"{changes.operation} read and whose columns it changes. Read the table again.",
                table=table.name,
                version=changes.read_version,
                transaction_id=changes.transaction_id,
            ) from error
    found = alteration_of(table, changes.table_changes, snapshot, physical_names(changes.transaction_id))
    return replace(
        changes,
        metadata=found.metadata,
        protocol=found.protocol,
        domains=found.domains,
        replaces_schema=any(isinstance(each, ReplaceSchema | ReplaceTable) for each in changes.table_changes),
    )


def as_written(snapshot: Snapshot, changes: Changes) -> Snapshot:
    """Return the version before a commit, with the metadata and protocol that its new files are written for."""
    if changes.metadata is None and changes.protocol is None:
        return snapshot
    return replace(
        snapshot,
        metadata=changes.metadata or snapshot.metadata,
        protocol=changes.protocol or snapshot.protocol,
    )


def _oldest_version(table: OpenTable) -> int:
    listing = LogReader(table.objects, table.name).list_all()
    return min([*listing.commits, *listing.checkpoints], default=0)
