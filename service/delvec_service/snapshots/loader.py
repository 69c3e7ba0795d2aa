"""Loads snapshots: from memory, the database or the log, then adds what was committed since.

Memory and database are only shortcuts to the content of the log. A cached version is valid as long as the log has the
same file for it; what the database loses during a request is read from the log instead. On local disk, another
program's commit may appear piece by piece, for example when a log is copied, and its first lines can be a valid
commit. A truncated commit is not a version yet if none follows it, and recently changed commits are checked again for
a while: what is based on one that has changed is dropped.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

from cachetools import LRUCache

from delvec_errors import BadRequest, CorruptLog, MissingLogFile, StorageError, VersionNotFound
from delvec_kernel.actions.actions import CommitInfo, first_of
from delvec_kernel.file_index.segment import SegmentsLost
from delvec_kernel.log.log_segment import ListedFile, LogListing, commit_name
from delvec_kernel.log.version_checksum import ChecksumPolicy
from delvec_kernel.snapshot.replay import Commit
from delvec_kernel.snapshot.snapshot import Snapshot
from delvec_service.snapshots.log_reader import LogReader, StatisticsBacklog
from delvec_service.snapshots.log_replay import file_of, followed, replayed
from delvec_service.snapshots.saved_snapshots import SnapshotWriter
from delvec_service.snapshots.time_travel import version_at
from delvec_service.store.objects import ObjectStore
from delvec_service.store.snapshot_state import LogFileId
from delvec_service.store.snapshots import SnapshotStore
from delvec_service.telemetry.observer import NO_OBSERVER, Observer

__all__ = ["SnapshotLoader", "keeps_losing"]

_BUDGET: Final = 512 * 1024 * 1024
_STORE_BUDGET: Final = 4 * 1024 * 1024 * 1024
_CLOSE_SECONDS: Final = 5.0
_ATTEMPTS: Final = 2
_MEASURE_SECONDS: Final = 1.0
_OLD_VERSIONS: Final = 8
_MAX_ACTIONS: Final = 4000
_ACTION_BYTES: Final = 1500
_MANY_COMMITS: Final = 100
"""From this many new commits on, a newer checkpoint is the faster way."""

_YOUNG_SECONDS: Final = 10.0
"""A commit unchanged for this long is complete."""
_YOUNG_AT_ONCE: Final = 16
_ALL_YOUNG_SECONDS: Final = 1.0
_MAX_CREATED: Final = 256
_MAX_UNREAD: Final = 1024

_T = TypeVar("_T")


@dataclass(frozen=True)
class _CachedSnapshot:
    """A snapshot, and the file that shows whether the log is still the one it was read from.

    Attributes:
        base: the snapshot that it was derived from with ``commits``, if any.
        files: the commit files that it was built from, with size and time before they were read.
    """

    snapshot: Snapshot
    file: ListedFile
    base: Snapshot | None = None
    commits: Sequence[Commit] = ()
    files: Mapping[int, ListedFile] = field(default_factory=dict)

    def is_current(self, found: ListedFile | None) -> bool:
        return found is not None and found.name == self.file.name and _same(found, self.file)


class _UnsettledCommits:
    """Recently changed commits that may change again, of a table on local disk; guarded by the table's lock."""

    def __init__(self) -> None:
        self._files: dict[int, tuple[ListedFile, float]] = {}
        self._foreign: set[int] = set()
        self._created: LRUCache[int, int] = LRUCache(_MAX_CREATED)
        self._all_at = 0.0

    def __bool__(self) -> bool:
        return any(version in self._foreign for version in self._files)

    def created(self, version: int, size: int) -> None:
        """Record one of our commits, which appeared as a whole, with its size."""
        self._created[version] = size

    def add(self, files: Mapping[int, ListedFile], commits: Sequence[Commit]) -> None:
        """Record commits that were read. Delvec's own appear as a whole, unless they are copied."""
        by_delvec = {commit.where.version for commit in commits if _is_by_delvec(commit)}
        now = time.monotonic()
        for version, file in _young(files).items():
            if self._created.get(version) != file.size:
                self._files[version] = file, now
                self._foreign |= {version} - by_delvec

    def get(self, version: int) -> ListedFile | None:
        """Return the file of a version that may still change, as it was when read."""
        found = self._files.get(version)
        return None if found is None else found[0]

    @property
    def first(self) -> int:
        """The oldest of these versions."""
        return min(self._files, default=0)

    def changed(self, reader: LogReader, latest: int) -> bool:
        """Return whether one has changed, apart from the latest, which is always checked."""
        now = time.monotonic()
        for version, (file, since) in list(self._files.items()):
            if now - since > _YOUNG_SECONDS:
                # This is its last check.
                if _any_changed(reader, {version: file}):
                    return True
                del self._files[version]
                self._foreign.discard(version)
        versions = [version for version in self._files if version != latest]
        if now - self._all_at < _ALL_YOUNG_SECONDS:
            versions = versions[-_YOUNG_AT_ONCE:]
        else:
            self._all_at = now
        return _any_changed(reader, {version: self._files[version][0] for version in versions})


@dataclass
class _Table:
    """The cached data of one table.

    Attributes:
        checking: held by the thread that asks the log for the newest version, the only one that sets ``latest``,
            ``young`` and the times.
        lock: guards the rest; never held while storage is asked, so that no version waits for another.
        flights: locks of the earlier versions that are being loaded.
        asked_at: when the check of the log behind ``latest`` began, by the monotonic clock.
        listed_at: when the last listing began, by the same clock.
        old: earlier versions that were requested.
        commits: the last commits of the log that ``latest`` was built from, by version.
        counted: how much of ``nbytes`` the loader's total includes; guarded by the loader's lock.
    """

    checking: threading.Lock = field(default_factory=threading.Lock)
    lock: threading.Lock = field(default_factory=threading.Lock)
    flights: dict[int, threading.Lock] = field(default_factory=dict)
    latest: _CachedSnapshot | None = None
    asked_at: float = 0.0
    listed_at: float = 0.0
    old: OrderedDict[int, _CachedSnapshot] = field(default_factory=OrderedDict)
    commits: OrderedDict[int, Commit] = field(default_factory=OrderedDict)
    actions: int = 0
    nbytes: int = 0
    counted: int = 0
    young: _UnsettledCommits = field(default_factory=_UnsettledCommits)
    measured: _CachedSnapshot | None = None
    measured_at: float = 0.0

    @property
    def versions(self) -> list[_CachedSnapshot]:
        return [
            cached_table for cached_table in (self.latest, *self.old.values()) if cached_table is not None
        ]

    def keep(self, cached_table: _CachedSnapshot) -> None:
        self.old[cached_table.snapshot.version] = cached_table
        self.old.move_to_end(cached_table.snapshot.version)
        while len(self.old) > _OLD_VERSIONS:
            self.old.popitem(last=False)

    def follow(self, newest: _CachedSnapshot) -> None:
        """Make a version the latest."""
        if self.latest is None or newest.base is not self.latest.snapshot:
            self.commits, self.actions = OrderedDict(), 0  # they may belong to another log
        self.latest = _CachedSnapshot(newest.snapshot, newest.file)
        self.young.add(newest.files, newest.commits)
        for commit in newest.commits:
            assert commit.where.version is not None  # noqa: S101 - it is a commit's
            self.commits[commit.where.version] = commit
            self.actions += len(commit.actions)
        while self.actions > _MAX_ACTIONS and len(self.commits) > 1:
            self.actions -= len(self.commits.popitem(last=False)[1].actions)

    def remember(self, older: Sequence[Commit], beside: Mapping[int, Commit]) -> None:
        """Cache commits older than the cached ones, newest first, while there is space.

        Args:
            older: the commits.
            beside: :attr:`commits` when they were read; if it has been replaced since, they may belong to another
                log.
        """
        with self.lock:
            if self.commits is not beside:
                return
            for commit in reversed(older):
                self.actions += len(commit.actions)
                if commit.where.version in self.commits or self.actions > _MAX_ACTIONS:
                    self.actions -= len(commit.actions)
                    return
                assert commit.where.version is not None  # noqa: S101 - it is a commit's
                self.commits[commit.where.version] = commit
                self.commits.move_to_end(commit.where.version, last=False)

    def measure(self) -> None:
        now = time.monotonic()
        if self.measured is self.latest and now - self.measured_at < _MEASURE_SECONDS:
            return
        self.measured, self.measured_at = self.latest, now
        # Versions share most of their data, and segments grow and shrink as they are used and saved.
        shared = {
            segment for cached_table in self.versions for segment in cached_table.snapshot.live.segments
        }
        self.nbytes = sum(segment.nbytes for segment in shared) + self.actions * _ACTION_BYTES


def keeps_losing(table: str) -> StorageError:
    """Return the error for work whose every attempt met :class:`SegmentsLost`."""
    return StorageError(
        f"The database keeps losing its cached data for table '{table}'; nothing was committed. Try again.",
        table=table,
    )


class SnapshotLoader:
    """Snapshots of any table; keeps the most recently used in memory. Safe to share between threads.

    A snapshot is as new as the log at the time of the request: storage is listed every time.

    Args:
        max_bytes: approximate memory for snapshots; the table in use is kept whatever its size.
        checksums: what to do if a version checksum contradicts the log.
        store: stores the newest version of each table for restarts and other replicas; None: memory only.
        max_stored_bytes: approximate space in the store, for all tables together.
        observer: notified of where the newest version came from.
    """

    def __init__(
        self,
        max_bytes: int = _BUDGET,
        checksums: ChecksumPolicy = "check",
        *,
        store: SnapshotStore | None = None,
        max_stored_bytes: int = _STORE_BUDGET,
        observer: Observer = NO_OBSERVER,
    ) -> None:
        self._checksums: ChecksumPolicy = checksums
        self._max_bytes = max_bytes
        self._observer = observer
        self._lock = threading.Lock()
        self._tables: OrderedDict[str, _Table] = OrderedDict()
        self._total = 0
        self.store = store
        self._replaced: Callable[[ObjectStore, str], None] = lambda *_: None
        self._grown: Callable[[ObjectStore, str, int], None] = lambda *_: None
        self._publishes: Callable[[ObjectStore, str, Snapshot], bool] = lambda *_: False
        self._backlog = StatisticsBacklog()
        self._unread: LRUCache[str, bool] = LRUCache(_MAX_UNREAD)
        self._writer = (
            None if store is None else SnapshotWriter(store, max_stored_bytes, self.discard, self.lost)
        )

    def load(
        self,
        objects: ObjectStore,
        table: str,
        *,
        version: int | None = None,
        timestamp: str | None = None,
        checkpoints: bool = True,
    ) -> Snapshot:
        """Return the newest version, or the requested one.

        Args:
            objects: the table's files.
            table: the table's name, for errors.
            version: a version.
            timestamp: ISO 8601 (UTC without a zone) or milliseconds since the epoch; the version of that time.
            checkpoints: whether the existing checkpoints have to be known; otherwise less is listed.

        Raises:
            NotADeltaTable: there is no log.
            VersionNotFound: the version or the time is outside the range that the log retains.
            MissingLogFile: the log has a gap.
            CorruptLog: a file of it cannot be read, or protocol or metadata are missing.
            UnsupportedReaderFeature: Delvec might read the table incorrectly.
            BadRequest: version and timestamp are both given, or the timestamp is invalid.
        """
        if version is not None and timestamp is not None:
            raise BadRequest("Give either a version or a timestamp, not both.")
        reader = self._reader(objects, table)
        if timestamp is not None:
            version = version_at(reader, timestamp, self._published(reader))
        if version is None:
            snapshot = self._published(reader, checkpoints)
        else:
            try:
                snapshot = self._version(reader, version)
            except VersionNotFound:
                # Its writer may have been told of a version that is committed, and could not be published at the time.
                if self._published(reader, checkpoints).version < version:
                    raise
                snapshot = self._version(reader, version)
        reader.check_catalog(snapshot)  # it may have been cached by a request that came through the catalog
        return snapshot

    def reading(
        self,
        objects: ObjectStore,
        table: str,
        work: Callable[[Snapshot], _T],
        *,
        version: int | None = None,
        timestamp: str | None = None,
    ) -> _T:
        """Return the result of ``work`` on a version: use this to read files, not only metadata.

        Files may have to come from the database, which may lose them meanwhile: then ``work`` runs again, with the
        version from the log. It must be safe to run twice, and must not read files after it returns.

        Args:
            objects: the table's files.
            table: the table's name, for errors.
            work: a function of the version.
            version: a version.
            timestamp: see :meth:`load`, also for the errors raised.
        """
        for _ in range(_ATTEMPTS):
            snapshot = self.load(objects, table, version=version, timestamp=timestamp)
            try:
                result = work(snapshot)
            except SegmentsLost as error:
                self.lost(snapshot, error)
                version, timestamp = (snapshot.version, None) if timestamp else (version, None)
            else:
                self._note_newest(objects.location)
                return result
        # The data is being lost faster than it is read; this version is not shared with anybody.
        reader = LogReader(objects, table, self._checksums)
        return work(replayed(reader, reader.list_all(), version).snapshot)

    def commits(self, objects: ObjectStore, table: str, versions: range) -> list[Commit]:
        """Return commits as :meth:`load` read them; the others are read now.

        Raises:
            MissingLogFile: one no longer exists.
            CorruptLog: one cannot be read.
        """
        cached_table = self._tables.get(objects.location)
        cached_commits: Mapping[int, Commit] = {} if cached_table is None else cached_table.commits
        commits_by_version = {
            version: commit for version in versions if (commit := cached_commits.get(version)) is not None
        }
        missing = [version for version in versions if version not in commits_by_version]
        if missing:
            read = LogReader(objects, table).commits(missing)
            commits_by_version.update(zip(missing, read, strict=True))
            if cached_table is not None:
                cached_table.remember(read, cached_commits)
        return [commits_by_version[version] for version in versions]

    def cached_commit(self, location: str, version: int) -> Commit | None:
        """Return a commit if it is in memory. Does not access storage."""
        cached_table = self._tables.get(location)
        return None if cached_table is None else cached_table.commits.get(version)

    def lost(self, snapshot: Snapshot, error: SegmentsLost) -> None:
        """Drop a snapshot whose files the database has lost; the next :meth:`load` does without them."""
        lost_segment_ids = _lost_segments(snapshot, error)
        self._read_at_once(snapshot)
        with self._lock:
            table = self._tables.get(snapshot.location)
            cached_table = [] if table is None else [one.snapshot for one in table.versions]
            if not error.args or any(
                segment.id in lost_segment_ids for one in cached_table for segment in one.live.segments
            ):
                self._drop(snapshot.location)
        self._forget_stored(snapshot, lost_segment_ids)

    def file_of(self, snapshot: Snapshot) -> ListedFile | None:
        """Return the log file that identified a version when it was loaded; None if it is not cached."""
        table = self._tables.get(snapshot.location)
        for cached_table in () if table is None else table.versions:
            # The same files, but the known checkpoints may have changed since.
            if (
                cached_table.snapshot.version == snapshot.version
                and cached_table.snapshot.live is snapshot.live
            ):
                return cached_table.file
        return None

    def when_replaced(self, call: Callable[[ObjectStore, str], None]) -> None:
        """Register a callback for tables, with their names, whose log has a different file for a version read."""
        self._replaced = call

    def created(self, location: str, version: int, size: int) -> None:
        """Record a version that this service created as a whole, with its size in bytes."""
        with self._lock:
            table = self._tables.setdefault(location, _Table())
        table.young.created(version, size)

    def is_settled(self, location: str) -> bool:
        """Return whether none of the commits read may still change: only then may derived data be stored."""
        table = self._tables.get(location)
        return table is None or not table.young

    def is_unchanged(self, objects: ObjectStore, version: int) -> bool:
        """Return whether a recently read version is unchanged; asks storage only if it may not be.

        Raises:
            StorageError: storage did not answer.
        """
        table = self._tables.get(objects.location)
        known = None if table is None else table.young.get(version)
        found = None if known is None else objects.head(f"_delta_log/{commit_name(version)}")
        return known is None or found is None or _same(found, known)

    def when_grown(self, call: Callable[[ObjectStore, str, int], None]) -> None:
        """Register a callback for a table, its name, and the version from which data read from it may be wrong."""
        self._grown = call

    def when_loaded(self, publishes: Callable[[ObjectStore, str, Snapshot], bool]) -> None:
        """Register what publishes the version after a table's newest, if that is committed; it returns whether it did."""
        self._publishes = publishes

    def know_checkpoint(self, location: str, version: int) -> None:
        """Record a checkpoint: one that took long may be of a version that listings no longer include."""
        table = self._tables.get(location)
        if table is None:
            return
        with table.checking:
            cached_table = table.latest
            if (
                cached_table is not None
                and (cached_table.snapshot.checkpoint_version or 0) < version <= cached_table.snapshot.version
            ):
                table.latest = _CachedSnapshot(
                    cached_table.snapshot.with_checkpoint(version), cached_table.file
                )

    def known(self, location: str) -> Snapshot | None:
        """Return the newest known version of a table, if it is in memory. Does not access storage."""
        table = self._tables.get(location)
        cached_table = None if table is None else table.latest
        return None if cached_table is None else cached_table.snapshot

    @property
    def nbytes(self) -> int:
        """Approximate memory that the snapshots take, in bytes."""
        return self._total

    def discard(self, location: str) -> None:
        """Drop the cached data of a table from memory."""
        with self._lock:
            self._drop(location)

    def forget(self, location: str) -> None:
        """Drop the cached data of a table everywhere; it may be loaded again."""
        self.discard(location)
        if self._writer is not None:
            self._writer.forget(location)

    def flush(self, timeout: float = 60.0) -> bool:
        """Read pending statistics and save pending snapshots now; return whether that finished within this many seconds."""
        is_read = self._backlog.wait(timeout)
        return is_read and (self._writer is None or self._writer.flush(timeout))

    def close(self, timeout: float = _CLOSE_SECONDS) -> None:
        """Save pending snapshots, for at most this many seconds."""
        if self._writer is not None:
            self._writer.close(timeout)
        self._backlog.close()

    def _note_newest(self, location: str) -> None:
        """Schedule saving what ``work`` has found out about segments."""
        if self._writer is not None:
            table = self._tables.get(location)
            cached_table = None if table is None else table.latest
            if cached_table is not None:
                self._note(cached_table)

    def _note(self, cached_table: _CachedSnapshot) -> None:
        if self._writer is not None:
            self._writer.note(cached_table.snapshot, LogFileId.of(cached_table.file))

    def _forget_stored(self, snapshot: Snapshot, gone: frozenset[str]) -> None:
        if self._writer is not None:
            self._writer.forget(snapshot.location, gone)

    def _published(self, reader: LogReader, checkpoints: bool = True) -> Snapshot:
        """Return the newest version, after publishing the one that follows it if that is already committed."""
        snapshot = self._latest(reader, checkpoints)
        if self._publishes(reader.objects, reader.table, snapshot):
            return self._latest(reader, checkpoints)
        return snapshot

    def _latest(self, reader: LogReader, checkpoints: bool = True) -> Snapshot:
        arrival = time.monotonic()
        cached_table = self._table(reader)
        with cached_table.checking:
            # A request that waited while another thread checked the log after its arrival is served.
            if (
                cached_table.latest is None
                or (cached_table.listed_at if checkpoints else cached_table.asked_at) < arrival
            ):
                began = time.monotonic()
                if cached_table.latest is not None and cached_table.young.changed(
                    reader, cached_table.latest.snapshot.version
                ):
                    # Everything since contains what was read from its first lines.
                    first = cached_table.young.first
                    with cached_table.lock:
                        cached_table.latest, cached_table.young = None, _UnsettledCommits()
                        cached_table.old.clear()
                    if self._writer is not None:
                        self._writer.forget(reader.objects.location)
                    self._grown(reader.objects, reader.table, first)
                before, newest = cached_table.latest, self._newest(reader, cached_table.latest, checkpoints)
                if before is not newest:
                    self._note(newest)
                with cached_table.lock:
                    if before is not newest:
                        if before is not None:
                            cached_table.keep(before)
                        cached_table.follow(newest)
                    cached_table.measure()
                cached_table.asked_at = began
                cached_table.listed_at = began if checkpoints else cached_table.listed_at
                snapshot = newest.snapshot
            else:
                snapshot = cached_table.latest.snapshot
        self._evict(reader.objects.location, cached_table)
        return snapshot

    def _newest(
        self, reader: LogReader, before: _CachedSnapshot | None, checkpoints: bool
    ) -> _CachedSnapshot:
        for in_memory in (True, False):
            start = before if in_memory else self._stored(reader)
            if start is not None:
                try:
                    after = self._advanced(reader, start, checkpoints or not in_memory)
                except SegmentsLost as error:
                    self._read_at_once(start.snapshot)
                    self._forget_stored(start.snapshot, _lost_segments(start.snapshot, error))
                    continue
                if after is not None:
                    self._observer.loaded("memory" if in_memory else "database")
                    return after
        self._observer.loaded("log")
        return self._replayed(self._saving(reader), reader.list_recent())

    def _reader(self, objects: ObjectStore, table: str) -> LogReader:
        backlog = None if objects.location in self._unread else self._backlog
        return LogReader(objects, table, self._checksums, backlog)

    def _saving(self, reader: LogReader) -> LogReader:
        """Return a reader of what will be the newest version, which is saved."""
        return reader if self._writer is None else replace(reader, is_saved=True)

    def _read_at_once(self, snapshot: Snapshot) -> None:
        """Have a table's statistics read with its checkpoint if it is the checkpoint that could not be read later."""
        if any(segment.lacks_statistics for segment in snapshot.live.segments):
            with self._lock:
                self._unread[snapshot.location] = True

    def _replayed(
        self, reader: LogReader, listing: LogListing, version: int | None = None
    ) -> _CachedSnapshot:
        try:
            return _held(reader, listing, version)
        except SegmentsLost:  # of a checkpoint whose statistics were left for later
            return _held(replace(reader, backlog=None), listing, version)

    def _stored(self, reader: LogReader) -> _CachedSnapshot | None:
        """Return the database's snapshot, which has not been compared with the log yet."""
        stored_snapshot = None if self._writer is None else self._writer.find(reader.objects.location)
        if stored_snapshot is None:
            return None
        changed = reader.changed_after(stored_snapshot.snapshot.version, stored_snapshot.file)
        if changed is not None:
            self._grown(reader.objects, reader.table, changed)
            return None
        return _CachedSnapshot(stored_snapshot.snapshot, stored_snapshot.file)

    def _advanced(
        self, reader: LogReader, before: _CachedSnapshot, checkpoints: bool
    ) -> _CachedSnapshot | None:
        """Return the newest version derived from an older one, or None if that is impossible or not faster."""
        version = before.snapshot.version
        listing = (None if checkpoints else reader.list_next(version)) or reader.list_after(version)
        return self._advanced_over(reader, before, listing)

    def _advanced_over(
        self, reader: LogReader, before: _CachedSnapshot, listing: LogListing
    ) -> _CachedSnapshot | None:
        snapshot = before.snapshot
        file = file_of(listing, snapshot.version)
        if not listing or not before.is_current(file):
            # Cleaned up, deleted and created again, or replaced by a writer that does not create atomically.
            if file is not None:
                self._replaced(reader.objects, reader.table)
            return None
        new = [version for version, _ in listing.after(snapshot.version)]
        checkpoint = max(listing.checkpoints, default=None)
        gap = listing.latest != snapshot.version + len(new)
        if gap or (checkpoint is not None and checkpoint > snapshot.version and len(new) > _MANY_COMMITS):
            return None
        if not new:
            if checkpoint is None or checkpoint == snapshot.checkpoint_version:
                return before
            return _CachedSnapshot(snapshot.with_checkpoint(checkpoint), before.file, snapshot)
        return self._followed(reader, before, listing, new)

    def _followed(
        self, reader: LogReader, before: _CachedSnapshot, listing: LogListing, new: Sequence[int]
    ) -> _CachedSnapshot | None:
        """Return the version that new commits lead to, without those that are still being written."""
        snapshot = before.snapshot
        files = {version: listing.commits[version] for version in new}
        young = _young(files) if reader.is_local else {}
        try:
            commits = reader.commits(new)
            after = followed(reader, snapshot, commits, listing)
        except MissingLogFile:
            return None
        except CorruptLog:
            end = reader.first_incomplete(young)
            if end is None and _any_changed(reader, young):
                return None
            if end != new[-1]:
                raise
            return before if end == new[0] else self._advanced_over(reader, before, listing.before(end))
        return _CachedSnapshot(after, files[new[-1]], snapshot, commits, young)

    def _version(self, reader: LogReader, version: int) -> Snapshot:
        cached_table = self._table(reader)
        with cached_table.lock:
            flight = cached_table.flights.setdefault(version, threading.Lock())
        with flight:
            try:
                found = self._at_version(reader, cached_table, version)
            finally:
                cached_table.flights.pop(version, None)
        self._evict(reader.objects.location, cached_table)
        return found.snapshot

    def _at_version(self, reader: LogReader, cached_table: _Table, version: int) -> _CachedSnapshot:
        young, newest = cached_table.young, cached_table.latest
        cached = [newest or self._stored(reader), cached_table.old.get(version)]
        at_version = next(
            (
                each
                for each in cached
                if each is not None
                and each.snapshot.version == version
                and each.is_current(reader.head(version))
            ),
            None,
        ) or self._replayed(reader, reader.list_all(), version)
        with cached_table.lock:
            # Unless a commit that it was read from has changed meanwhile.
            if at_version is not newest and cached_table.young is young:
                cached_table.keep(at_version)
                cached_table.measure()
        return at_version

    def _table(self, reader: LogReader) -> _Table:
        with self._lock:
            cached_table = self._tables.setdefault(reader.objects.location, _Table())
            self._tables.move_to_end(reader.objects.location)
            return cached_table

    def _evict(self, location: str, cached_table: _Table) -> None:
        """Count a table that was just used, and drop others if all take too much; every load asks, of however many."""
        with self._lock:
            if self._tables.get(location) is cached_table:
                self._total += cached_table.nbytes - cached_table.counted
                cached_table.counted = cached_table.nbytes
            while self._total > self._max_bytes and (first := next(iter(self._tables), location)) != location:
                self._drop(first)

    def _drop(self, location: str) -> None:
        dropped = self._tables.pop(location, None)
        if dropped is not None:
            self._total -= dropped.counted


def _lost_segments(snapshot: Snapshot, error: SegmentsLost) -> frozenset[str]:
    """Return the segments that were lost; all of the snapshot's if unknown."""
    named = frozenset(map(str, error.args))
    return named or frozenset(segment.id for segment in snapshot.live.segments)


def _held(reader: LogReader, listing: LogListing, version: int | None = None) -> _CachedSnapshot:
    young = _young(listing.commits) if reader.is_local else {}
    try:
        replay_result = replayed(reader, listing, version)
    except CorruptLog:
        end = reader.first_incomplete(young)
        if end is None and _any_changed(reader, young):
            return _held(reader, reader.list_all(), version)  # it grew while it was read
        whole = listing.before(listing.latest)
        if version is not None or end != listing.latest or not whole:
            raise
        return _held(reader, whole)
    return _CachedSnapshot(replay_result.snapshot, replay_result.file, files=young)


def _is_by_delvec(commit: Commit) -> bool:
    info = first_of(CommitInfo, commit.actions)
    return info is not None and (info.engine_info or "").startswith("Delvec/")


def _any_changed(reader: LogReader, files: Mapping[int, ListedFile]) -> bool:
    """Return whether one of some commits has changed."""
    found = reader.commit_files(list(files))
    return any(not _same(file, files[version]) for version, file in found.items())


def _young(files: Mapping[int, ListedFile]) -> dict[int, ListedFile]:
    """Return the recently changed ones of some commits, ascending."""
    oldest = (time.time() - _YOUNG_SECONDS) * 1000
    return {version: files[version] for version in sorted(files) if files[version].last_modified_ms > oldest}


def _same(one: ListedFile, other: ListedFile) -> bool:
    return (one.size, one.last_modified_ms) == (other.size, other.last_modified_ms)
