"""Commits that must precede a table change; each is a valid version by itself.

They are derived from the table's current state, so that the next preparation continues an interrupted one.

Tested in `tests/integration/service/alter_table/test_row_tracking.py` and
`tests/integration/service/alter_table/test_drop_feature.py`.
"""

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from delvec_errors import InvalidTableChange
from delvec_kernel.alter_table import row_tracking_change
from delvec_kernel.alter_table.change_types import (
    AddFeature,
    DropFeature,
    SetProperties,
    TableChange,
    UnsetProperties,
)
from delvec_kernel.alter_table.drop_feature import (
    leaves_deletion_vectors,
    needs_barrier,
    properties_turned_off,
)
from delvec_kernel.alter_table.table_update import files_by_row_ids
from delvec_kernel.features.table_features import writer_features
from delvec_kernel.file_index.segment import SegmentsLost
from delvec_kernel.log.log_policy import LogPolicy
from delvec_kernel.log.tombstones import vector_files_without_tombstone
from delvec_kernel.row_tracking import SUSPENDED, gives_ids
from delvec_kernel.snapshot.snapshot import Snapshot
from delvec_kernel.table_properties import is_true
from delvec_kernel.transaction.conflict_checker import Conflict
from delvec_kernel.transaction.transaction_changes import Changes
from delvec_service.commits.commit import CommitResult, Commits
from delvec_service.commits.metadata_changes import alteration_of, draft_of
from delvec_service.maintenance.log_maintenance import LogMaintenance
from delvec_service.snapshots.loader import SnapshotLoader, keeps_losing
from delvec_service.snapshots.log_reader import LogReader
from delvec_service.snapshots.tombstone_reader import with_tombstones
from delvec_service.store.open_table import OpenTable
from delvec_service.tables.new_table import ENGINE_INFO

__all__ = ["TablePreparation"]

_ATTEMPTS: Final = 20
_FEATURE: Final = "rowTracking"
_FILES_AT_ONCE: Final = 10_000
_BARRIERS: Final = 3
"""A reader that cannot read a checkpoint tries the ones before it, three in all; it must not need any older ones."""


class TablePreparation:
    """Prepares changes of one table.

    Args:
        table: the table.
        loader: reads snapshots.
        commits: commits.
        log_maintenance: writes checkpoints.
    """

    def __init__(
        self, table: OpenTable, loader: SnapshotLoader, commits: Commits, log_maintenance: LogMaintenance
    ) -> None:
        self._table = table
        self._loader = loader
        self._commits = commits
        self._log_maintenance = log_maintenance

    def prepare(self, changes: Sequence[TableChange]) -> bool:
        """Do what changes need beforehand; return whether they need anything.

        Raises:
            InvalidTableChange: the table cannot be changed this way.
            ConcurrentModification: or a subclass: others changed the table during every one of many attempts.
        """
        if row_tracking_change.enables_row_tracking(changes, self._newest().configuration):
            self._number_rows(changes)
            return True
        drop = next((change for change in changes if isinstance(change, DropFeature)), None)
        if drop is None:
            return False
        if len(changes) > 1:
            raise InvalidTableChange(
                f"The table feature '{drop.feature}' must be dropped in a request of its own: it may take "
                "several versions.",
                feature=drop.feature,
            )
        self._turn_off(drop)
        if leaves_deletion_vectors(drop):
            self._keep_vectors()
        if needs_barrier(drop):
            self._write_barrier()
        return True

    def finish(self, changes: Sequence[TableChange]) -> None:
        """Do what has to follow committed changes."""
        if any(isinstance(change, DropFeature) and needs_barrier(change) for change in changes):
            self._log_maintenance.checkpoint(self._table)

    # --- row ids ----------------------------------------------------------------------------------------

    def _number_rows(self, changes: Sequence[TableChange]) -> None:
        """Assign ids to the rows of all files, so that the table can claim that each row has one."""
        snapshot = self._newest()
        configurations = [snapshot.configuration]
        others = row_tracking_change.without_enabling(changes)
        if others:
            # Errors in the other changes are raised now, before anything is done.
            found = alteration_of(self._table, others, snapshot)
            configurations += [] if found.metadata is None else [found.metadata.configuration]
        if any(is_true(each, SUSPENDED) for each in configurations):
            raise InvalidTableChange(
                f"{SUSPENDED} is true, so the rows of table '{self._table.name}' cannot get ids. Set it to false "
                "first.",
                table=self._table.name,
                property=SUSPENDED,
            )
        version, files, _ = self._files(have=False)
        self._check_counted(files, version)
        # First, so that all later commits assign ids.
        self._change_table(
            lambda snapshot: (
                [] if _FEATURE in writer_features(snapshot.protocol) else [AddFeature(feature=_FEATURE)]
            )
        )
        self._readd_files("ROW TRACKING BACKFILL", have=False)

    # --- dropping a feature -----------------------------------------------------------------------------

    def _turn_off(self, change: DropFeature) -> None:
        def off(snapshot: Snapshot) -> list[TableChange]:
            return _as_changes(properties_turned_off(draft_of(self._table, snapshot), change))

        self._change_table(off)
        if is_true(self._newest().configuration, SUSPENDED):
            self._readd_files("ROW TRACKING UNBACKFILL", have=True)

    def _keep_vectors(self) -> None:
        """Write tombstones for the deletion vector files that older versions need.

        A VACUUM by a writer without support for deletion vectors would treat them as orphans.
        """
        snapshot = self._newest()
        paths = self._vector_files_without_tombstone(snapshot)
        for start in range(0, len(paths), _FILES_AT_ONCE):
            result = self._send(
                "Deletion Vector Tombstones",
                snapshot.version,
                tombstones=paths[start : start + _FILES_AT_ONCE],
                data_change=False,
            )
            if isinstance(result, Conflict):
                raise result.error(self._table.name)

    def _vector_files_without_tombstone(self, snapshot: Snapshot) -> list[str]:
        """Return the paths of deletion vectors that only tombstones name."""
        reader = LogReader(self._table.objects, self._table.name)
        retention = LogPolicy.of(snapshot.configuration, snapshot.protocol).deleted_file_retention
        since = time.time_ns() // 1_000_000 - int(retention.total_seconds() * 1000)
        return with_tombstones(
            reader,
            snapshot.version,
            since,
            lambda tombstones: vector_files_without_tombstone(tombstones, self._table.location),
        )

    def _write_barrier(self) -> None:
        for _ in range(_BARRIERS):
            self._send("Empty Commit", self._newest().version, makes_version=True)
            self._log_maintenance.checkpoint(self._table)

    # --- commits ----------------------------------------------------------------------------------------

    def _newest(self) -> Snapshot:
        return self._loader.load(self._table.objects, self._table.name)

    def _change_table(self, wanted: Callable[[Snapshot], Sequence[TableChange]]) -> None:
        """Commit changes computed from the newest version, if any; retry if others change the table meanwhile."""
        for number in range(_ATTEMPTS):
            snapshot = self._newest()
            try:
                changes = wanted(snapshot)
                if not changes:
                    return
                alteration = alteration_of(self._table, changes, snapshot)
            except SegmentsLost as error:
                self._loader.lost(snapshot, error)
                continue
            if alteration.is_empty:
                return
            result = self._send(
                alteration.operation,
                snapshot.version,
                parameters=alteration.parameters,
                metadata=alteration.metadata,
                protocol=alteration.protocol,
                domains=alteration.domains,
            )
            if not isinstance(result, Conflict):
                return
            if number == _ATTEMPTS - 1:
                raise result.error(self._table.name)
        raise keeps_losing(self._table.name)

    def _readd_files(self, operation: str, *, have: bool) -> None:
        """Re-add files that have, or lack, row ids until none is left; the commit assigns or removes the ids.

        If the table's properties change so that commits no longer do, this stops: the change itself reports that.
        """
        batch = 0
        while True:
            version, files, gives = self._files(have=have)
            if not files.num_rows or gives is not (not have):
                return
            if not have:
                self._check_counted(files, version)
            paths = files["path"].slice(0, _FILES_AT_ONCE).to_pylist()
            result = self._send(
                operation, version, parameters={"batchId": str(batch)}, again=paths, data_change=False
            )
            if isinstance(result, Conflict):
                raise result.error(self._table.name)
            batch += 1

    def _files(self, *, have: bool) -> tuple[int, pa.Table, bool | None]:
        """Return the newest version, its files with or without row ids, and whether it assigns ids to files."""
        return self._loader.reading(
            self._table.objects,
            self._table.name,
            lambda snapshot: (snapshot.version, files_by_row_ids(snapshot, have=have), gives_ids(snapshot)),
        )

    def _check_counted(self, files: pa.Table, version: int) -> None:
        paths = files.filter(pc.is_null(files["num_records"]))["path"].slice(0, 5).to_pylist()
        if paths:
            raise InvalidTableChange(
                f"Rows of table '{self._table.name}' (version {version}) cannot get ids, because the statistics of "
                f"these files lack the number of rows: {', '.join(paths)}. Rewrite the files first.",
                table=self._table.name,
                version=version,
                files=paths,
            )

    def _send(self, operation: str, read_version: int, **changes: Any) -> CommitResult:
        return self._commits.commit(
            self._table,
            Changes(operation, read_version, str(uuid.uuid4()), ENGINE_INFO, **changes),
        )


def _as_changes(properties: Mapping[str, str | None]) -> list[TableChange]:
    """Return the changes that set and unset properties."""
    wanted = {name: value for name, value in properties.items() if value is not None}
    unwanted = [name for name, value in properties.items() if value is None]
    found: list[TableChange] = []
    if wanted:
        found.append(SetProperties(properties=wanted))
    if unwanted:
        found.append(UnsetProperties(names=unwanted, if_exists=True))
    return found
