"""What a VACUUM would delete: old files in storage that no version, tombstone or transaction needs.

Tested in `tests/integration/service/vacuum/test_vacuum.py`.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from delvec_contract.maintenance import VacuumRequest
from delvec_errors import MissingLogFile, VacuumLiteImpossible
from delvec_kernel.actions.actions import Cdc
from delvec_kernel.features.table_features import check_writable
from delvec_kernel.log.log_policy import LogPolicy
from delvec_kernel.snapshot.snapshot import Snapshot
from delvec_kernel.transaction import row_maps
from delvec_maintenance.vacuum.candidates import (
    given_paths,
    old_and_unreferenced,
    outside,
    unreferenced,
    visible,
)
from delvec_maintenance.vacuum.references import References, removed_files
from delvec_maintenance.vacuum.retention import Retention, hidden_names
from delvec_service.iceberg.needed_files import IcebergFiles
from delvec_service.snapshots.loader import SnapshotLoader
from delvec_service.snapshots.log_reader import LogReader
from delvec_service.snapshots.tombstone_reader import with_tombstones
from delvec_service.store.commit_coordinator import CLEAN_DATA
from delvec_service.store.ledger import Ledger
from delvec_service.store.open_table import OpenTable
from delvec_service.vacuum.clone_files import CloneReferences
from delvec_storage.trees import LISTED, TreeListing, inner_tables, look_up_files

__all__ = ["VacuumPlan", "keep_tombstones", "make_plan", "write_reach"]

_IN_FLIGHT: Final = timedelta(hours=24)
_NOTE: Final = "_delta_log/_last_vacuum_info"
_RETENTION_WINDOW_KEY: Final = "latestCommitVersionOutsideOfRetentionWindow"
_MAX_NOTE: Final = 4096


@dataclass(frozen=True)
class VacuumPlan:
    """What may be deleted.

    Attributes:
        version: the newest one when the plan was made.
        retention: the retention that was applied.
        before: milliseconds since the epoch; files written later stay.
        files: LISTED, by path.
        directories: empty directories that may be deleted.
        num_directories: number of directories listed.
        reaches: for a VACUUM LITE, the last version whose removed files may be deleted, or None.
        elsewhere: superseded Iceberg files outside the table: URLs of directories, and LISTED, relative to them.
    """

    version: int
    retention: Retention
    before: int
    files: pa.Table
    directories: Sequence[str] = field(default=())
    num_directories: int = 1
    reaches: int | None = None
    elsewhere: Mapping[str, pa.Table] = field(default_factory=dict)

    @property
    def size_in_bytes(self) -> int:
        """The total size of the files in the table's directory."""
        return pc.sum(self.files["size"], min_count=0).as_py() or 0


def make_plan(
    table: OpenTable,
    loader: SnapshotLoader,
    ledger: Ledger,
    clones: CloneReferences,
    request: VacuumRequest,
    now: int,
) -> VacuumPlan:
    """Find out what may be deleted, without changing anything.

    Args:
        table: the table.
        loader: reads snapshots.
        ledger: knows running transactions.
        clones: knows the files that shallow clones of the table need.
        request: the kind of VACUUM, and what to keep.
        now: milliseconds since the epoch.

    Raises:
        RetentionTooShort: the retention is shorter than the table's.
        LocationNotAllowed: a given file is not in the table's directory.
        UnsupportedTable: or a subclass: Delvec cannot write the table.
        UnsupportedOperation: the table's catalog does not allow it.
        VersionNotFound: a version to keep does not exist.
        LocationNotAllowed: a shallow clone is now outside the roots.
        CorruptTable: or a subclass: the log or the Iceberg metadata does not reliably show which files are needed.
        StorageError: storage did not answer.
    """
    snapshot = loader.load(table.objects, table.name)
    table.check_maintenance(CLEAN_DATA)
    check_writable(snapshot.protocol, snapshot.metadata, table.name, writes_rows=False)
    policy = LogPolicy.of(snapshot.configuration, snapshot.protocol)
    retention = Retention.of(
        policy.deleted_file_retention,
        request.retention_hours,
        enforce=request.enforce_retention_duration,
        table=table.name,
    )
    references = References(table.location)
    _keep_version(table, loader, snapshot.version, references)
    keep_tombstones(table, snapshot, retention, now, references)
    for version in request.keep_versions:
        _keep_version(table, loader, version, references)
        _keep_change_files(table, loader, version, references)
    clones.keep(references)
    iceberg = IcebergFiles(table, snapshot.configuration, now)
    iceberg.keep(references)
    announced = ledger.in_flight(table.record.id, datetime.now(UTC) - _IN_FLIGHT)
    references.add_paths(pa.array(announced, pa.string()))
    before = retention.written_before(now)
    physical = {snapshot.schema.field(name).physical_name for name in snapshot.partition_columns}
    is_hidden = hidden_names({*snapshot.partition_columns, *physical})
    if request.files is not None:
        given = iceberg.without_elsewhere(request.files)
        plan = _given_plan(table, snapshot, retention, before, given, references, is_hidden)
        return _without_iceberg(plan, iceberg)
    if request.mode == "lite":
        return _without_iceberg(_lite_plan(table, snapshot, retention, now, references, is_hidden), iceberg)
    listing = TreeListing(
        table.location, is_hidden, table.roots.allows, wanted=lambda paths: ~references.has(paths)
    )
    unreferenced_files = pa.Table.from_batches(
        old_and_unreferenced(listing.batches(), references, before), LISTED
    )
    superseded = pa.Table.from_batches(old_and_unreferenced(iceberg.unneeded(), references, before), LISTED)
    unreferenced_files = pa.concat_tables(
        [outside(unreferenced_files, iceberg.paths), _old_row_maps(table, before), superseded]
    )
    return VacuumPlan(
        version=snapshot.version,
        retention=retention,
        before=before,
        files=outside(unreferenced_files, listing.shielded).sort_by("path"),
        directories=[path for path, changed in listing.empty if changed < before],
        num_directories=listing.directories,
        elsewhere={} if request.quarantine else _old_elsewhere(iceberg, before),
    )


def _without_iceberg(plan: VacuumPlan, iceberg: IcebergFiles) -> VacuumPlan:
    """Return a plan without files of Iceberg metadata: only a listing shows which are superseded."""
    return replace(plan, files=outside(plan.files, iceberg.paths))


def _given_plan(
    table: OpenTable,
    snapshot: Snapshot,
    retention: Retention,
    before: int,
    files: Sequence[str],
    kept: References,
    is_hidden: Callable[[str], bool],
) -> VacuumPlan:
    """Return the deletable files of a list from the user. Only the paths are used, nothing else in it."""
    paths = pa.array(visible(given_paths(files, table.location), is_hidden), pa.string())
    doomed = unreferenced(paths, kept).to_pylist()
    allowed = table.roots.allows
    inner = inner_tables(table.location, doomed, is_allowed=allowed)
    found = look_up_files(table.location, doomed, is_allowed=allowed)
    found = outside(found.filter(pc.less(found["modified"], before)), inner)
    return VacuumPlan(version=snapshot.version, retention=retention, before=before, files=found)


def _lite_plan(
    table: OpenTable,
    snapshot: Snapshot,
    retention: Retention,
    now: int,
    references: References,
    is_hidden: Callable[[str], bool],
) -> VacuumPlan:
    """Return the files that versions beyond the retention removed, by reading the log, without a listing."""
    reader = LogReader(table.objects, table.name)
    listing = reader.list_all()
    since = retention.removed_before(now)
    old = [one for one, time in listing.times.items() if time < since and one <= snapshot.version]
    last, seen, first = max(old, default=None), _read_reach(table), min(listing.commits, default=0)
    start = first if seen is None else seen + 1
    if start < first or (seen is None and first > 0):
        raise VacuumLiteImpossible(
            f"VACUUM LITE of table '{table.name}' has to read the log from version "
            f"{(start if seen is not None else 0)} on, but its oldest commit is version {first}, so files removed "
            "before that are unknown. Run a full VACUUM.",
            table=table.name,
            version=first,
        )
    sizes: dict[str, int] = {}
    for commit in reader.each(range(start, -1 if last is None else last + 1)):
        sizes |= removed_files(commit.actions, table.location)
    doomed = unreferenced(pa.array(visible(sizes, is_hidden), pa.string()), references)
    columns = [doomed, [sizes[path] for path in doomed.to_pylist()], [0] * len(doomed)]
    return VacuumPlan(
        version=snapshot.version,
        retention=retention,
        before=retention.written_before(now),
        files=pa.table(columns, schema=LISTED),
        reaches=last,
    )


def _read_reach(table: OpenTable) -> int | None:
    """Return how far the last VACUUM LITE got, from delta-spark's or Delvec's record of it, or None."""
    try:
        found = json.loads(table.objects.get_start(_NOTE, _MAX_NOTE))[_RETENTION_WINDOW_KEY]
    except (FileNotFoundError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return found if isinstance(found, int) and not isinstance(found, bool) and found >= 0 else None


def write_reach(table: OpenTable, version: int) -> None:
    """Record how far a VACUUM LITE got, as delta-spark does."""
    table.objects.put(_NOTE, json.dumps({_RETENTION_WINDOW_KEY: version}, separators=(",", ":")).encode())


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
    with suppress(MissingLogFile):  # only a checkpoint may know a version
        [commit] = loader.commits(table.objects, table.name, range(version, version + 1))
        kept.add_actions(action for action in commit.actions if isinstance(action, Cdc))


def keep_tombstones(
    table: OpenTable, snapshot: Snapshot, retention: Retention, now: int, references: References
) -> None:
    """Keep the files removed within the retention, with their deletion vectors.

    Args:
        table: the table.
        snapshot: its newest version.
        retention: how long removed files are kept.
        now: milliseconds since the epoch.
        references: collects the files.

    Raises:
        CorruptTable: or a subclass: the log does not have the information.
    """
    reader = LogReader(table.objects, table.name)
    since = retention.removed_before(now)
    before = None
    if retention.milliseconds > retention.configured:
        listed = reader.list_all().commits
        before = max((one for one, file in listed.items() if file.last_modified_ms < since), default=0)
    with_tombstones(
        reader,
        snapshot.version,
        since - 1,  # files removed at exactly that time are kept
        lambda tombstones: references.add_files(tombstones, "deletionVector"),
        before=before,
        include_readded=True,  # live files are kept anyway
    )


def _old_elsewhere(iceberg: IcebergFiles, before: int) -> dict[str, pa.Table]:
    found: defaultdict[str, list[pa.RecordBatch]] = defaultdict(list)
    for url, batch in iceberg.unneeded_elsewhere():
        found[url].append(batch.filter(pc.less(batch.column("modified"), before)))
    return {url: pa.Table.from_batches(batches, LISTED) for url, batches in found.items()}


def _old_row_maps(table: OpenTable, before: int) -> pa.Table:
    """Return the old row map files, which say where rows went that were sorted.

    Only their age matters: transactions that read the files from before need them, and no such transaction needs to
    be supported for longer. Without them a conflict is an ordinary one.
    """
    old = [
        {"path": path, "size": meta.size, "modified": meta.last_modified_ms}
        for meta in table.objects.list_from(row_maps.FOLDER)
        if row_maps.is_row_map_path(path := f"{row_maps.FOLDER}/{meta.name}")
        and meta.last_modified_ms < before
    ]
    return pa.Table.from_pylist(old, LISTED)
