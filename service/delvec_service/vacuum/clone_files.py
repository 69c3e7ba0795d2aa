"""The files of a table that its shallow clones need.

Tested in `tests/integration/client/test_clone.py`.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from delvec_errors import DelvecError, LocationNotAllowed, NotADeltaTable, VersionNotFound
from delvec_kernel.locations import canonical_log_paths
from delvec_kernel.log.log_policy import LogPolicy
from delvec_kernel.snapshot.snapshot import Snapshot
from delvec_maintenance.vacuum.references import References
from delvec_service.snapshots.loader import SnapshotLoader
from delvec_service.snapshots.log_reader import LogReader
from delvec_service.snapshots.tombstone_reader import with_tombstones
from delvec_service.store.clone_records import read_clone_records
from delvec_service.store.clones import CloneRecord, CloneStore
from delvec_service.store.objects import ObjectStore
from delvec_service.store.open_table import OpenTable
from delvec_storage.roots import Roots

__all__ = ["CloneReferences"]

_BEING_MADE: Final = timedelta(hours=24)


@dataclass
class CloneReferences:
    """Keeps the files that clones of a table need, each version of a clone once.

    Args:
        table: the table to VACUUM.
        roots: all roots of all owners: a clone in another namespace also protects its source.
        loader: reads snapshots.
        store: knows the clones.
        now: milliseconds since the epoch.
        shows: whether errors may tell the caller of a clone at a location.
    """

    table: OpenTable
    roots: Roots
    loader: SnapshotLoader
    store: CloneStore
    now: int
    shows: Callable[[str], bool] = lambda _location: True
    _seen: dict[CloneRecord, int | None] = field(default_factory=dict)
    _files: dict[str, list[tuple[ObjectStore, str, CloneRecord]]] = field(default_factory=dict)

    def keep(self, references: References) -> None:
        """Keep what clones need that were created, or got another version, since the last call: RESTORE brings files back.

        Raises:
            LocationNotAllowed: a clone is now outside the roots, so what it needs is unknown.
            CorruptTable: or a subclass: its log cannot be read.
            StorageError: storage did not answer.
        """
        for record in self._records():
            try:
                self._seen[record] = self._keep(record, references)
            except DelvecError as error:
                if self.shows(record.location) and self.shows(record.source_location):
                    raise
                raise type(error)(
                    f"Table '{self.table.name}' has a shallow clone that cannot be read, so which files it needs is unknown, and "
                    "none is deleted. An admin of all tables learns which clone, and why, from the same VACUUM.",
                    table=self.table.name,
                ) from error

    def _records(self) -> Iterable[CloneRecord]:
        """Return the clones known to the database, and those named by folders: the table's, and those of its clones."""
        records_by_location = {record.location: record for record in self.store.of(self.table.location)}
        folders, looked_at = [self.table.objects], {self.table.location}
        while folders:
            objects = folders.pop()
            for path, record in read_clone_records(objects, self.table.name):
                self._files.setdefault(record.location, []).append((objects, path, record))
                known = records_by_location.get(record.location)
                if known is None or known.created_at < record.created_at:
                    records_by_location[record.location] = record
                if record.location not in looked_at and self.roots.allows(record.location):
                    looked_at.add(record.location)
                    folders.append(self._objects(record.location))
        return records_by_location.values()

    def _forget(self, record: CloneRecord) -> None:
        self.store.forget(record)
        for objects, path, found in self._files.get(record.location, ()):
            if found.created_at <= record.created_at:
                objects.delete(path)

    def _keep(self, record: CloneRecord, references: References) -> int | None:
        """Keep what a clone needs; return its version, or None if it has no log."""
        for location in (record.location, record.source_location):
            if not self.roots.allows(location):
                raise LocationNotAllowed(
                    f"Table '{self.table.name}' has a shallow clone at {record.location}, cloned from "
                    f"{record.source_location}, but {location} is now outside the roots. Which files the clone "
                    "needs is unknown, so none is deleted. Add the directory to DELVEC_ROOTS, or to a namespace's "
                    "roots.",
                    table=self.table.name,
                    location=location,
                )
        is_young = abs(datetime.now(UTC) - record.created_at) < _BEING_MADE
        if is_young and record not in self._seen:
            self._keep_source(record, references)
        objects = self._objects(record.location)
        try:
            snapshot = self.loader.load(objects, record.location)
        except NotADeltaTable:
            if not is_young:
                self._forget(record)
            return None
        if snapshot.version == self._seen.get(record):
            return snapshot.version
        self.loader.reading(objects, record.location, lambda found: self._keep_live(found, references))
        retention = LogPolicy.of(snapshot.configuration, snapshot.protocol).deleted_file_retention
        since = self.now - int(retention / timedelta(milliseconds=1))
        with_tombstones(
            LogReader(objects, record.location),
            snapshot.version,
            since - 1,
            lambda tombstones: self._keep_files(tombstones, "deletionVector", record.location, references),
        )
        return snapshot.version

    def _keep_source(self, record: CloneRecord, references: References) -> None:
        """Keep the version that is being cloned: the clone may not have a log yet."""
        try:
            self.loader.reading(
                self._objects(record.source_location),
                record.source_location,
                lambda found: self._keep_live(found, references),
                version=record.source_version,
            )
        except (VersionNotFound, NotADeltaTable):
            return

    def _keep_live(self, snapshot: Snapshot, kept: References) -> None:
        self._keep_files(
            snapshot.live.batches(("path", "deletion_vector")), "deletion_vector", snapshot.location, kept
        )

    def _keep_files(
        self, batches: Iterable[pa.RecordBatch], vector: str, location: str, references: References
    ) -> None:
        """Keep the files that a log names by absolute path; for the table itself, all of them."""
        own = location == self.table.location
        for batch in batches:
            vectors = batch.column(vector)
            if not own:
                vectors = vectors.filter(pc.equal(pc.struct_field(vectors, "storageType"), "p"))
            references.add_vectors(vectors)
            paths = batch.column("path")
            if not own:
                keys = canonical_log_paths(paths, location)
                paths = keys.filter(pc.match_substring(keys, "://"))
            references.add_paths(paths)

    def _objects(self, location: str) -> ObjectStore:
        return ObjectStore(
            location,
            is_allowed=self.roots.allows,
            max_commit_bytes=self.table.max_commit_bytes,
            observer=self.table.observer,
        )
