"""Loading snapshots: the log once, then only what was committed since."""

import threading
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

from delvec.protocol.errors import BadRequest, MissingLogFile
from delvec_service.delta.checksum_check import ChecksumPolicy
from delvec_service.delta.log_segment import ListedFile, LogListing
from delvec_service.delta.snapshot import Snapshot
from delvec_service.operations.log_reader import LogReader
from delvec_service.operations.log_replay import file_of, followed, replayed
from delvec_service.operations.time_travel import version_at
from delvec_service.store.objects import ObjectStore

__all__ = ["SnapshotLoader"]

_BUDGET: Final = 512 * 1024 * 1024
_OLD_VERSIONS: Final = 8
_MANY_COMMITS: Final = 100
"""From so many new commits on, a newer checkpoint is the shorter way."""


@dataclass(frozen=True)
class _Held:
    """A snapshot, and the file that tells whether the log is still the one that it was read from."""

    snapshot: Snapshot
    file: ListedFile

    def still(self, found: ListedFile | None) -> bool:
        return found is not None and (found.name, found.size, found.last_modified_ms) == (
            self.file.name,
            self.file.size,
            self.file.last_modified_ms,
        )


@dataclass
class _Table:
    """What is held of one table; ``lock`` guards all of it.

    Attributes:
        listed_at: when the listing that ``latest`` rests on began, by the monotonic clock.
        old: earlier versions that were asked for.
    """

    lock: threading.Lock = field(default_factory=threading.Lock)
    latest: _Held | None = None
    listed_at: float = 0.0
    old: OrderedDict[int, _Held] = field(default_factory=OrderedDict)
    nbytes: int = 0

    def keep(self, held: _Held) -> None:
        self.old[held.snapshot.version] = held
        self.old.move_to_end(held.snapshot.version)
        while len(self.old) > _OLD_VERSIONS:
            self.old.popitem(last=False)

    def measure(self) -> None:
        # Versions share most of what they hold.
        snapshots = [held.snapshot for held in (self.latest, *self.old.values()) if held is not None]
        shared = {member.segment for snapshot in snapshots for member in snapshot.live.members}
        self.nbytes = sum(segment.nbytes for segment in shared)


class SnapshotLoader:
    """Snapshots of any table; keeps those used last in memory. Safe to share between threads.

    A snapshot is as new as the log was when it was asked for: storage is listed every time.

    Args:
        max_bytes: of memory for snapshots, about; the table in use is kept whatever its size.
        checksums: what to do about a version checksum that contradicts the log.
    """

    def __init__(self, max_bytes: int = _BUDGET, checksums: ChecksumPolicy = "check") -> None:
        self._checksums: ChecksumPolicy = checksums
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._tables: OrderedDict[str, _Table] = OrderedDict()

    def load(
        self,
        objects: ObjectStore,
        table: str,
        *,
        version: int | None = None,
        timestamp: str | None = None,
    ) -> Snapshot:
        """Return the newest version, or the one asked for.

        Args:
            objects: the table's files.
            table: the name that errors give.
            version: a version.
            timestamp: ISO 8601 (UTC without a zone) or milliseconds since the epoch; the version of that time.

        Raises:
            NotADeltaTable: there is no log.
            VersionNotFound: the version or the time lies outside what the log retains.
            MissingLogFile: the log has a gap.
            CorruptLog: a file of it cannot be read, or protocol or metadata are missing.
            UnsupportedReaderFeature: Delvec could read the table wrong.
            BadRequest: both version and timestamp, or no timestamp.
        """
        if version is not None and timestamp is not None:
            raise BadRequest("Give a version or a timestamp, not both.")
        reader = LogReader(objects, table, self._checksums)
        if timestamp is not None:
            version = version_at(reader, timestamp, self._latest(reader))
        return self._latest(reader) if version is None else self._version(reader, version)

    def discard(self, location: str) -> None:
        """Drop what is held of a table."""
        with self._lock:
            self._tables.pop(location, None)

    def _latest(self, reader: LogReader) -> Snapshot:
        asked = time.monotonic()
        held = self._table(reader)
        with held.lock:
            # Whoever waited here while another thread listed the log later than it was asked is served.
            if held.latest is None or held.listed_at < asked:
                began = time.monotonic()
                newest = self._newest(reader, held.latest)
                if held.latest is not None and held.latest is not newest:
                    held.keep(held.latest)
                held.latest, held.listed_at = newest, began
                held.measure()
            snapshot = held.latest.snapshot
        self._evict(reader.objects.location)
        return snapshot

    def _newest(self, reader: LogReader, before: _Held | None) -> _Held:
        if before is not None:
            after = self._advanced(reader, before)
            if after is not None:
                return after
        return _held(reader, reader.list_recent())

    def _advanced(self, reader: LogReader, before: _Held) -> _Held | None:
        """Return the newest version by way of an older one, None where that is not possible or not shorter."""
        snapshot = before.snapshot
        listing = reader.list_after(snapshot.version)
        if not listing or not before.still(file_of(listing, snapshot.version)):
            return None  # cleaned up, or deleted and created again
        new = [version for version, _ in listing.after(snapshot.version)]
        checkpoint = max(listing.checkpoints, default=None)
        gap = listing.latest != snapshot.version + len(new)
        if gap or (checkpoint is not None and checkpoint > snapshot.version and len(new) > _MANY_COMMITS):
            return None
        if not new:
            if checkpoint is None or checkpoint == snapshot.checkpoint_version:
                return before
            return _Held(snapshot.with_checkpoint(checkpoint), before.file)
        try:
            return _Held(followed(reader, snapshot, new, listing), listing.commits[new[-1]])
        except MissingLogFile:
            return None

    def _version(self, reader: LogReader, version: int) -> Snapshot:
        held = self._table(reader)
        with held.lock:
            known = [item for item in (held.latest, held.old.get(version)) if item is not None]
            for item in known:
                if item.snapshot.version == version and item.still(reader.head(version)):
                    return item.snapshot
            listing = reader.list_all()
            found = _held(reader, listing, version)
            held.keep(found)
            held.measure()
        self._evict(reader.objects.location)
        return found.snapshot

    def _table(self, reader: LogReader) -> _Table:
        with self._lock:
            held = self._tables.setdefault(reader.objects.location, _Table())
            self._tables.move_to_end(reader.objects.location)
            return held

    def _evict(self, location: str) -> None:
        with self._lock:
            total = sum(held.nbytes for held in self._tables.values())
            for name in list(self._tables):
                if total <= self._max_bytes or name == location:
                    break
                total -= self._tables.pop(name).nbytes


def _held(reader: LogReader, listing: LogListing, version: int | None = None) -> _Held:
    found = replayed(reader, listing, version)
    return _Held(found.snapshot, found.file)
