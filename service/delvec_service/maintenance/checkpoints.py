"""Writes checkpoints of the newest version: from the loaded snapshot, and the tombstones in the log.

Any number of replicas may do so at once. A classic checkpoint has one name per version, which only the first writer
gets; since all of them write the same state, it does not matter which one. A V2 checkpoint has a unique name each
time.

Tested in `tests/integration/service/maintenance/test_log_maintenance.py` and
`tests/integration/service/maintenance/test_checkpoint_histories.py`.
"""

import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Final, Literal

import pyarrow as pa

from delvec_errors import ConcurrentWrite, CorruptTable, MissingLogFile, UnusableFile
from delvec_kernel.actions.actions import Sidecar
from delvec_kernel.log.checkpoint_writer import (
    LAST_CHECKPOINT,
    CheckpointFile,
    CheckpointForm,
    LastCheckpoint,
    OtherActions,
    hinted_version,
    row_groups,
)
from delvec_kernel.log.log_policy import LogPolicy, check_understood
from delvec_kernel.log.log_segment import ListedFile, LogCheckpoint, LogListing
from delvec_kernel.snapshot.snapshot import Snapshot
from delvec_service.snapshots.loader import SnapshotLoader
from delvec_service.snapshots.log_reader import LogReader
from delvec_service.snapshots.tombstone_reader import read_tombstones
from delvec_service.store.objects import ObjectStore
from delvec_service.store.open_table import OpenTable

__all__ = ["CheckpointResult", "Checkpoints"]

_LOG: Final = "_delta_log"
_SIDECARS: Final = f"{_LOG}/_sidecars"
_SIDECAR_ACTIONS: Final = 500_000
_MAX_HINT: Final = 4 * 1024 * 1024


@dataclass(frozen=True)
class CheckpointResult:
    """A checkpoint of the newest version.

    Attributes:
        written: whether this call wrote it; False if it already existed.
        size_in_bytes: the size in bytes of its files, sidecars included; None if it already existed.
        num_add_files: number of live files in it.
        num_actions: number of actions in it; None if it already existed.
        sidecars: number of files besides the top-level one; None if it already existed.
    """

    version: int
    written: bool
    form: Literal["classic", "v2"]
    num_add_files: int
    size_in_bytes: int | None = None
    num_actions: int | None = None
    sidecars: int | None = None


@dataclass
class _Locks:
    """One lock per table, so that a replica writes one checkpoint of a table at a time."""

    guard: threading.Lock = field(default_factory=threading.Lock)
    tables: dict[str, threading.Lock] = field(default_factory=dict)

    def of(self, location: str) -> threading.Lock:
        with self.guard:
            return self.tables.setdefault(location, threading.Lock())


class Checkpoints:
    """Checkpoints of any table.

    Args:
        loader: reads snapshots.
        sidecar_actions: maximum number of file actions in a sidecar of a V2 checkpoint.
    """

    def __init__(self, loader: SnapshotLoader, *, sidecar_actions: int = _SIDECAR_ACTIONS) -> None:
        self._loader = loader
        self._sidecar_actions = sidecar_actions
        self._locks = _Locks()

    def write(self, table: OpenTable) -> CheckpointResult:
        """Write a checkpoint of the newest version, unless it already has one.

        Raises:
            UnsupportedTable: or a subclass: the table has features that Delvec does not know.
            CorruptTable: or a subclass: the log cannot be read, or a property is invalid.
            ConcurrentWrite: the table was replaced by another one in the meantime.
            StorageError: storage did not answer; nothing refers to what was written so far.
        """
        with self._locks.of(table.location):
            return self._loader.reading(
                table.objects, table.name, lambda snapshot: self._write(table, snapshot)
            )

    def _write(self, table: OpenTable, snapshot: Snapshot) -> CheckpointResult:
        check_understood(snapshot.protocol, snapshot.metadata, table.name)
        table.objects.publish(snapshot.version)  # readers of a checkpoint expect its version in the log
        policy = LogPolicy.of(snapshot.configuration, snapshot.protocol)
        reader = LogReader(table.objects, table.name)
        listing = reader.list_recent()
        there = listing.checkpoints.get(snapshot.version)
        if there is not None:
            return self._existing_checkpoint(table.objects, snapshot, there)
        # The listing may contain a different commit than was read, if it was replaced in between.
        commit = self._loader.file_of(snapshot) or listing.commits.get(snapshot.version)
        writing = _CheckpointWriter.begin(reader, snapshot, policy, commit)
        try:
            hint = self._written(writing, listing)
        except CorruptTable:
            # The snapshot was read by skipping a damaged checkpoint, so tombstones can be, too.
            hint = self._written(writing, reader.list_all(), before=writing.base)
        _hint(table.objects, hint)
        self._loader.know_checkpoint(snapshot.location, snapshot.version)
        return CheckpointResult(
            snapshot.version,
            writing.published,
            "v2" if policy.v2 else "classic",
            snapshot.num_files,
            hint.size_in_bytes,
            hint.size,
            len(writing.sidecars),
        )

    def _written(
        self, writing: "_CheckpointWriter", listing: LogListing, *, before: LogCheckpoint | None = None
    ) -> LastCheckpoint:
        """Write the checkpoint, with tombstones from the newest readable checkpoint before it."""
        end = writing.snapshot.version if before is None else before.version
        base = max((found for found in listing.checkpoints if found < end), default=None)
        writing.base = None if base is None else listing.checkpoints[base]
        writing.sidecars = []
        return writing.v2(self._sidecar_actions) if writing.policy.v2 else writing.classic()

    def _existing_checkpoint(
        self, objects: ObjectStore, snapshot: Snapshot, there: LogCheckpoint
    ) -> CheckpointResult:
        """Return the existing checkpoint; its writer may have died before it wrote the hint."""
        parts = len(there.files)
        v2 = parts == 1 and there.files[0].name.count(".") > 2  # noqa: PLR2004 - version.checkpoint.parquet
        name, size, modification_time = (
            there.files[0].name,
            there.files[0].size,
            there.files[0].last_modified_ms,
        )
        _hint(
            objects,
            LastCheckpoint(
                there.version,
                parts=parts if parts > 1 else None,
                manifest=(name, size, modification_time) if v2 else None,
            ),
        )
        return CheckpointResult(there.version, False, "v2" if v2 else "classic", snapshot.num_files)


@dataclass
class _CheckpointWriter:
    """A checkpoint that is being written.

    Attributes:
        commit: the commit file of the version, as it was when the snapshot was current.
        now: milliseconds since the epoch.
        base: the previous checkpoint, or None.
        published: whether the checkpoint is ours.
    """

    reader: LogReader
    snapshot: Snapshot
    policy: LogPolicy
    form: CheckpointForm
    commit: ListedFile
    now: int
    base: LogCheckpoint | None = None
    published: bool = False
    sidecars: list[Sidecar] = field(default_factory=list)

    @classmethod
    def begin(
        cls, reader: LogReader, snapshot: Snapshot, policy: LogPolicy, commit: ListedFile | None
    ) -> "_CheckpointWriter":
        if commit is None:
            raise MissingLogFile(
                f"The log of table '{reader.table}' lacks the commit of its newest version {snapshot.version}, so "
                "no checkpoint can be written; restore that file from a backup.",
                table=reader.table,
                version=snapshot.version,
            )
        form = CheckpointForm(snapshot, policy)
        if form.has_typed_partition_values and not all(
            map(form.can_type, snapshot.live.batches(["partition_values"]))
        ):
            form = CheckpointForm(snapshot, policy, typed_partition_values=False)
        return cls(reader, snapshot, policy, form, commit, time.time_ns() // 1_000_000)

    @property
    def objects(self) -> ObjectStore:
        return self.reader.objects

    def classic(self) -> LastCheckpoint:
        """Write one file with everything; return its description."""
        version = self.snapshot.version
        path = f"{_LOG}/{version:020d}.checkpoint.parquet"
        with self.objects.stage(path) as staged_file, CheckpointFile(staged_file.file, self.form) as file:
            file.write_others(OtherActions.of(self.snapshot, self.policy, self.now))
            for files in row_groups(_live(self.snapshot)):
                file.write_adds(files)
            for tombstones in self._tombstones():
                file.write_removes(tombstones)
            file.close()
            size = staged_file.size
            self._check_unchanged()
            self.published = staged_file.publish()
        return LastCheckpoint(version, len(file), size, file.adds)

    def v2(self, sidecar_actions: int) -> LastCheckpoint:
        """Write sidecars and then the manifest that names them; return its description."""
        version, total = self.snapshot.version, _Total()
        with ExitStack() as stack:
            sidecar = _OpenSidecar(self, stack)
            for files in row_groups(_live(self.snapshot)):
                sidecar = sidecar.rolled_if_full(sidecar_actions, total)
                sidecar.file.write_adds(files)
            for tombstones in self._tombstones():
                sidecar = sidecar.rolled_if_full(sidecar_actions, total)
                sidecar.file.write_removes(tombstones)
            sidecar.finish(total)
        name = f"{version:020d}.checkpoint.{uuid.uuid4()}.parquet"
        others = OtherActions.of(self.snapshot, self.policy, self.now).with_sidecars(self.sidecars)
        with (
            self.objects.stage(f"{_LOG}/{name}") as staged_file,
            CheckpointFile(staged_file.file, self.form, manifest=True) as manifest,
        ):
            manifest.write_others(others)
            manifest.close()
            size = staged_file.size
            self._check_unchanged()
            self.published = staged_file.publish()
        found = self.objects.head(f"{_LOG}/{name}")
        modification_time = self.now if found is None else found.last_modified_ms
        return LastCheckpoint(
            version,
            total.actions + len(manifest),
            total.size + size,
            total.adds,
            manifest=(name, size, modification_time),
        )

    def _check_unchanged(self) -> None:
        """Refuse to write the state of one table to the log of another table that replaced it."""
        found = self.reader.head(self.snapshot.version)
        same = found is not None and (found.size, found.last_modified_ms) == (
            self.commit.size,
            self.commit.last_modified_ms,
        )
        if not same:
            raise ConcurrentWrite(
                f"Version {self.snapshot.version} of table '{self.reader.table}' was replaced while its checkpoint "
                "was being written, so the checkpoint was discarded; try again.",
                table=self.reader.table,
                version=self.snapshot.version,
            )

    def _tombstones(self) -> Iterator[pa.RecordBatch]:
        """Return the tombstones that have not expired."""
        retention = self.policy.deleted_file_retention
        since = self.now - int(retention.total_seconds() * 1000)
        return read_tombstones(self.reader, self.snapshot.version, self.base, since)


@dataclass
class _Total:
    """Totals over the sidecars."""

    actions: int = 0
    adds: int = 0
    size: int = 0


class _OpenSidecar:
    """A sidecar being written."""

    def __init__(self, writing: _CheckpointWriter, stack: ExitStack) -> None:
        self._writing, self._stack = writing, stack
        self._name = f"{uuid.uuid4()}.parquet"
        self._staged = stack.enter_context(writing.objects.stage(f"{_SIDECARS}/{self._name}"))
        self.file = stack.enter_context(CheckpointFile(self._staged.file, writing.form))

    def rolled_if_full(self, actions: int, total: _Total) -> "_OpenSidecar":
        """Return this sidecar, or a new one if it is full."""
        if len(self.file) < actions:
            return self
        self.finish(total)
        return _OpenSidecar(self._writing, self._stack)

    def finish(self, total: _Total) -> None:
        """Publish it."""
        self.file.close()
        size = self._staged.size
        self._staged.publish()
        found = self._writing.objects.head(f"{_SIDECARS}/{self._name}")
        modification_time = self._writing.now if found is None else found.last_modified_ms
        self._writing.sidecars.append(Sidecar(self._name, size, modification_time))
        total.actions += len(self.file)
        total.adds += self.file.adds
        total.size += size


def _live(snapshot: Snapshot) -> Iterator[pa.RecordBatch]:
    return snapshot.live.batches()


def _hint(objects: ObjectStore, hint: LastCheckpoint) -> None:
    """Write the hint for the newest checkpoint; never point it back to an older one."""
    path = f"{_LOG}/{LAST_CHECKPOINT}"
    try:
        known = hinted_version(objects.get_start(path, _MAX_HINT))
    except (FileNotFoundError, UnusableFile):
        known = None
    if known is None or known < hint.version:
        objects.put(path, hint.serialize())
