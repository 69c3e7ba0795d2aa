"""What has to be in the log before a change of a table can be made: versions of their own, each of them right by itself.

They are found out from the table as it is, so that a preparation that was broken off is gone on with by the next one.
"""

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from delvec_kernel.alter_table import row_ids
from delvec_kernel.alter_table.drop_feature import leaves_vectors, needs_barrier, turned_off
from delvec_kernel.alter_table.table_update import files_by_row_ids
from delvec_kernel.errors import InvalidTableChange
from delvec_kernel.features.table_features import writer_features
from delvec_kernel.file_index.segment import SegmentsLost
from delvec_kernel.log.log_policy import LogPolicy
from delvec_kernel.log.tombstones import vectors_without_own
from delvec_kernel.row_tracking import SUSPENDED, gives_ids
from delvec_kernel.snapshot.snapshot import Snapshot
from delvec_kernel.table_properties import is_true
from delvec_kernel.transaction.conflict_checker import Conflict
from delvec_kernel.transaction.transaction_changes import Changes
from delvec_kernel.wire import AddFeature, DropFeature, SetProperties, TableChange, UnsetProperties
from delvec_service.commits.commit import CommitResult, Commits
from delvec_service.commits.metadata_changes import alteration_of, draft_of
from delvec_service.maintenance.log_upkeep import LogUpkeep
from delvec_service.snapshots.loader import SnapshotLoader
from delvec_service.snapshots.log_reader import LogReader
from delvec_service.snapshots.tombstones import with_tombstones
from delvec_service.store.open_table import OpenTable
from delvec_service.tables.registry import ENGINE_INFO

__all__ = ["TablePreparation"]

_ATTEMPTS: Final = 20
_FEATURE: Final = "rowTracking"
_FILES_AT_ONCE: Final = 10_000
_BARRIERS: Final = 3
"""A reader that cannot read a checkpoint tries those before it, three in all: beyond these it must not come."""


class TablePreparation:
    """Prepares changes of one table.

    Args:
        table: the table.
        loader: reads snapshots.
        commits: commits.
        upkeep: writes checkpoints.
    """

    def __init__(self, table: OpenTable, loader: SnapshotLoader, commits: Commits, upkeep: LogUpkeep) -> None:
        self._table = table
        self._loader = loader
        self._commits = commits
        self._upkeep = upkeep

    def prepare(self, changes: Sequence[TableChange]) -> bool:
        """Do what changes need to be there before them; return whether they are such that need something.

        Raises:
            InvalidTableChange: the table cannot be changed so.
            ConcurrentModification: or a subclass: others changed the table in every one of many attempts.
        """
        if row_ids.are_wanted(changes, self._newest().configuration):
            self._number_rows(changes)
            return True
        dropped = next((change for change in changes if isinstance(change, DropFeature)), None)
        if dropped is None:
            return False
        if len(changes) > 1:
            raise InvalidTableChange(
                f"The table feature '{dropped.feature}' is dropped in a request of its own: it may take several versions.",
                feature=dropped.feature,
            )
        self._turn_off(dropped)
        if leaves_vectors(dropped):
            self._keep_vectors()
        if needs_barrier(dropped):
            self._bar()
        return True

    def finish(self, changes: Sequence[TableChange]) -> None:
        """Do what is to be there after changes that were committed."""
        if any(isinstance(change, DropFeature) and needs_barrier(change) for change in changes):
            self._upkeep.checkpoint(self._table)

    # --- row ids ----------------------------------------------------------------------------------------

    def _number_rows(self, changes: Sequence[TableChange]) -> None:
        """Give ids to the rows of all files, so that the table may say that each row has one."""
        snapshot = self._newest()
        configurations = [snapshot.configuration]
        others = row_ids.others(changes)
        if others:
            # What else is asked for is refused now, before anything is done.
            found = alteration_of(self._table, others, snapshot)
            configurations += [] if found.metadata is None else [found.metadata.configuration]
        if any(is_true(each, SUSPENDED) for each in configurations):
            raise InvalidTableChange(
                f"{SUSPENDED} is true, so that no row of table '{self._table.name}' gets an id; set it to false first.",
                table=self._table.name,
                property=SUSPENDED,
            )
        version, files, _ = self._files(have=False)
        self._check_counted(files, version)
        # First, so that all who commit from then on give ids.
        self._change_table(
            lambda snapshot: (
                []
                if _FEATURE in writer_features(snapshot.protocol)
                else [AddFeature(change="add-feature", feature=_FEATURE)]
            )
        )
        self._again("ROW TRACKING BACKFILL", have=False)

    # --- a feature that goes ----------------------------------------------------------------------------

    def _turn_off(self, change: DropFeature) -> None:
        def off(snapshot: Snapshot) -> list[TableChange]:
            return _as_changes(turned_off(draft_of(self._table, snapshot), change))

        self._change_table(off)
        if is_true(self._newest().configuration, SUSPENDED):
            self._again("ROW TRACKING UNBACKFILL", have=True)

    def _keep_vectors(self) -> None:
        """Give tombstones to the files of deletion vectors that older versions need.

        A VACUUM by who does not know deletion vectors takes them for files of nobody.
        """
        snapshot = self._newest()
        paths = self._vectors_without_own(snapshot)
        for start in range(0, len(paths), _FILES_AT_ONCE):
            result = self._send(
                "Deletion Vector Tombstones",
                snapshot.version,
                tombstones=paths[start : start + _FILES_AT_ONCE],
                data_change=False,
            )
            if isinstance(result, Conflict):
                raise result.error(self._table.name)

    def _vectors_without_own(self, snapshot: Snapshot) -> list[str]:
        """Return the paths of deletion vectors that only tombstones name."""
        reader = LogReader(self._table.objects, self._table.name)
        retention = LogPolicy.of(snapshot.configuration, snapshot.protocol).deleted_file_retention
        since = time.time_ns() // 1_000_000 - int(retention.total_seconds() * 1000)
        return with_tombstones(
            reader,
            snapshot.version,
            since,
            lambda tombstones: vectors_without_own(tombstones, self._table.location),
        )

    def _bar(self) -> None:
        for _ in range(_BARRIERS):
            self._send("Empty Commit", self._newest().version, makes_version=True)
            self._upkeep.checkpoint(self._table)

    # --- commits ----------------------------------------------------------------------------------------

    def _newest(self) -> Snapshot:
        return self._loader.load(self._table.objects, self._table.name)

    def _change_table(self, wanted: Callable[[Snapshot], Sequence[TableChange]]) -> None:
        """Commit what is wanted of the newest version, if anything is; again where others change the table meanwhile."""
        for number in range(_ATTEMPTS):
            snapshot = self._newest()
            try:
                changes = wanted(snapshot)
                if not changes:
                    return
                found = alteration_of(self._table, changes, snapshot)
            except SegmentsLost as error:
                self._loader.lost(snapshot, error)
                continue
            if found.is_empty:
                return
            result = self._send(
                found.operation,
                snapshot.version,
                parameters=found.parameters,
                metadata=found.metadata,
                protocol=found.protocol,
                domains=found.domains,
            )
            if not isinstance(result, Conflict):
                return
            if number == _ATTEMPTS - 1:
                raise result.error(self._table.name)

    def _again(self, operation: str, *, have: bool) -> None:
        """Add files again that have row ids, or have none, until there is none; the log gives them, or takes them.

        Where the table does not do that any more, it is left as it is: the change itself finds out.
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
        """Return the newest version, its files that have row ids or have none, and whether it gives ids to files."""
        return self._loader.reading(
            self._table.objects,
            self._table.name,
            lambda snapshot: (snapshot.version, files_by_row_ids(snapshot, have=have), gives_ids(snapshot)),
        )

    def _check_counted(self, files: pa.Table, version: int) -> None:
        uncounted = files.filter(pc.is_null(files["num_records"]))["path"].slice(0, 5).to_pylist()
        if uncounted:
            raise InvalidTableChange(
                f"Rows of table '{self._table.name}' (version {version}) cannot be given ids: files have no statistics that "
                f"say how many rows they have: {', '.join(uncounted)}. Write them again first.",
                table=self._table.name,
                version=version,
                files=uncounted,
            )

    def _send(self, operation: str, read_version: int, **changes: Any) -> CommitResult:
        return self._commits.commit(
            self._table,
            Changes(operation, read_version, str(uuid.uuid4()), ENGINE_INFO, **changes),
        )


def _as_changes(properties: Mapping[str, str | None]) -> list[TableChange]:
    """Return what sets and unsets properties."""
    wanted = {name: value for name, value in properties.items() if value is not None}
    unwanted = [name for name, value in properties.items() if value is None]
    found: list[TableChange] = []
    if wanted:
        found.append(SetProperties(change="set-properties", properties=wanted))
    if unwanted:
        found.append(UnsetProperties(change="unset-properties", names=unwanted, if_exists=True))
    return found
