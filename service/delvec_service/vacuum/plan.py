"""What a VACUUM would delete: files in storage that no version, tombstone or transaction needs, and that are old enough."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from delvec_kernel.actions.actions import Cdc
from delvec_kernel.errors import MissingLogFile
from delvec_kernel.features.table_features import check_writable
from delvec_kernel.log.log_policy import LogPolicy
from delvec_kernel.snapshot.snapshot import Snapshot
from delvec_kernel.storage.trees import LISTED, TreeListing
from delvec_kernel.vacuum.references import References
from delvec_kernel.vacuum.retention import Retention, hidden_names
from delvec_kernel.wire import VacuumRequest
from delvec_service.snapshots.loader import SnapshotLoader
from delvec_service.snapshots.log_reader import LogReader
from delvec_service.snapshots.tombstones import with_tombstones
from delvec_service.store.ledger import Ledger
from delvec_service.store.open_table import OpenTable

__all__ = ["VacuumPlan", "make_plan"]

_IN_FLIGHT: Final = timedelta(hours=24)


@dataclass(frozen=True)
class VacuumPlan:
    """What may be deleted.

    Attributes:
        version: the newest when it was made.
        retention: that it is made by.
        before: milliseconds since the epoch; files that were written since stay.
        files: LISTED, by path.
        directories: empty ones that may go.
        num_directories: that were looked into.
    """

    version: int
    retention: Retention
    before: int
    files: pa.Table
    directories: Sequence[str] = field(default=())
    num_directories: int = 1

    @property
    def size_in_bytes(self) -> int:
        """Of the files."""
        return pc.sum(self.files["size"], min_count=0).as_py() or 0


def make_plan(
    table: OpenTable, loader: SnapshotLoader, ledger: Ledger, request: VacuumRequest, now: int
) -> VacuumPlan:
    """Find out what may be deleted; changes nothing.

    Args:
        table: the table.
        loader: reads snapshots.
        ledger: knows of transactions under way.
        request: which kind, and what to keep.
        now: milliseconds since the epoch.

    Raises:
        RetentionTooShort: less is to be kept than the table says.
        UnsupportedTable: or a subclass: the table must not be written.
        VersionNotFound: a version to keep is not there.
        CorruptTable: or a subclass: the log does not say for sure which files are needed.
        StorageError: storage did not answer.
    """
    snapshot = loader.load(table.objects, table.name)
    check_writable(snapshot.protocol, snapshot.metadata, table.name)
    policy = LogPolicy.of(snapshot.configuration, snapshot.protocol)
    retention = Retention.of(
        policy.deleted_file_retention,
        request.retention_hours,
        enforce=request.enforce_retention_duration,
        table=table.name,
    )
    kept = References(table.location)
    _keep_version(table, loader, snapshot.version, kept)
    _keep_tombstones(table, snapshot, retention, now, kept)
    for version in request.keep_versions:
        _keep_version(table, loader, version, kept)
        _keep_change_files(table, loader, version, kept)
    announced = ledger.in_flight(table.record.id, datetime.now(UTC) - _IN_FLIGHT)
    kept.add_paths(pa.array(announced, pa.string()))
    before = retention.written_before(now)
    physical = {snapshot.schema.field(name).physical_name for name in snapshot.partition_columns}
    hidden = hidden_names({*snapshot.partition_columns, *physical})
    listing = TreeListing(table.location, hidden, table.roots.allows)
    found = pa.Table.from_batches(_unreferenced(listing.batches(), kept, before), LISTED)
    return VacuumPlan(
        version=snapshot.version,
        retention=retention,
        before=before,
        files=_outside(found, listing.shielded).sort_by("path"),
        directories=[path for path, changed in listing.empty if changed < before],
        num_directories=listing.directories,
    )


def _keep_version(table: OpenTable, loader: SnapshotLoader, version: int, kept: References) -> None:
    loader.reading(
        table.objects,
        table.name,
        lambda snapshot: kept.add_files(
            snapshot.live.batches(("path", "deletion_vector")), "deletion_vector"
        ),
        version=version,
    )


def _keep_change_files(table: OpenTable, loader: SnapshotLoader, version: int, kept: References) -> None:
    with suppress(MissingLogFile):  # a version may be known by a checkpoint alone
        [commit] = loader.commits(table.objects, table.name, range(version, version + 1))
        kept.add_actions(action for action in commit.actions if isinstance(action, Cdc))


def _keep_tombstones(
    table: OpenTable, snapshot: Snapshot, retention: Retention, now: int, kept: References
) -> None:
    reader = LogReader(table.objects, table.name)
    since = retention.removed_before(now)
    before = None
    if retention.milliseconds > retention.configured:
        listed = reader.list_all().commits
        before = max((one for one, file in listed.items() if file.last_modified_ms < since), default=0)
    with_tombstones(
        reader,
        snapshot.version,
        since - 1,  # what was removed right then is kept
        lambda tombstones: kept.add_files(tombstones, "deletionVector"),
        before=before,
    )


def _unreferenced(
    batches: Iterable[pa.RecordBatch], kept: References, before: int
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        old = batch.filter(pc.less(batch.column("modified"), before))
        if old.num_rows:
            yield old.filter(pa.array(~kept.has(old.column("path"))))


def _outside(files: pa.Table, shielded: Collection[str]) -> pa.Table:
    """Return the files that are in none of these directories, and are none of these."""
    for path in shielded:
        inside = pc.or_(pc.equal(files["path"], path), pc.starts_with(files["path"], f"{path}/"))
        files = files.filter(pc.invert(inside))
    return files
