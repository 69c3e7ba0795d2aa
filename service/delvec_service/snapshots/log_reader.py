"""Reads a log from storage: listings, commits, checkpoints and checksums of one table.

Tested in `tests/integration/service/snapshots/test_loader.py` and
`tests/integration/contract/test_unusable_files.py`.
"""

import json
import threading
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain, count, takewhile
from typing import Final

import pyarrow as pa

from delvec_errors import CorruptLog, DelvecError, MissingLogFile, NotADeltaTable, UnusableFile
from delvec_kernel.actions.action_json import LogFile
from delvec_kernel.actions.actions import CommitInfo, Metadata, RemoveFile
from delvec_kernel.features.managed_tables import check_catalog, is_catalog_managed
from delvec_kernel.features.table_features import check_readable
from delvec_kernel.file_index.deferred_statistics import DeferredStatistics
from delvec_kernel.file_index.live_files import LiveFiles
from delvec_kernel.file_index.segment import SegmentsLost
from delvec_kernel.log.checkpoint_reader import CheckpointPart, read_checkpoint
from delvec_kernel.log.commit_file import known_protocol, parse_commit, parse_only
from delvec_kernel.log.log_segment import ListedFile, LogCheckpoint, LogCompaction, LogListing, commit_name
from delvec_kernel.log.version_checksum import ChecksumPolicy, VersionChecksum
from delvec_kernel.snapshot.replay import Commit, ReplayState
from delvec_kernel.snapshot.snapshot import Snapshot
from delvec_service.background_worker import BackgroundWorker
from delvec_service.store.file_index_engine import FILE_INDEX_ENGINE
from delvec_service.store.objects import ObjectStore

__all__ = ["LogReader", "StatisticsBacklog"]

_LOG: Final = "_delta_log"
_CONCURRENT: Final = 16
_MIN_CONCURRENT: Final = 4
_LAST: Final = 16
_MAX_HINT: Final = 4 * 1024 * 1024
_MAX_CHECKSUM: Final = 64 * 1024 * 1024
_DELAY_SECONDS: Final = 0.5
_MAX_OPEN: Final = 16
"""Files of a checkpoint that stay open for their statistics."""
_MAX_WAITING: Final = 8
_UNKNOWN_METADATA: Final = Metadata("", "")


@dataclass(frozen=True)
class LogReader:
    """One table's log.

    Attributes:
        objects: the table's files.
        table: the name that errors give.
        checksums: what to do if a version checksum contradicts the log.
        backlog: reads statistics of checkpoints later; without it they are read at once.
        is_saved: whether what is read is given to a SnapshotWriter, which then reads those statistics.
    """

    objects: ObjectStore
    table: str
    checksums: ChecksumPolicy = "check"
    backlog: "StatisticsBacklog | None" = None
    is_saved: bool = False

    def list_all(self) -> LogListing:
        """List the whole log.

        Raises:
            NotADeltaTable: there is no log.
        """
        listing = self._listing("")
        if not listing:
            raise NotADeltaTable(
                f"{self.objects.location} is not a Delta table: it has no {_LOG} with a commit in it.",
                location=self.objects.location,
            )
        return listing

    def list_recent(self) -> LogListing:
        """List the log from the newest checkpoint on, if its hint can be trusted, else the whole log.

        Raises:
            NotADeltaTable: there is no log.
        """
        hint = self._last_checkpoint()
        if hint is not None:
            listing = self.list_after(hint)
            # A hint is written after the checkpoint and may outlive it: what counts is what exists.
            if listing.checkpoints:
                return listing
        return self.list_all()

    def list_after(self, version: int) -> LogListing:
        """List the files of ``version`` and of the versions after it."""
        return self._listing(f"{version:020d}")

    def list_next(self, version: int) -> LogListing | None:
        """Return the commits from ``version`` on, found by their names; None if a listing is needed to find them.

        On local disk this checks one file per commit, while a listing checks every file of the log. It finds no
        checkpoints.
        """
        if not self.is_local:
            return None
        looks = self.objects.look_up(_LOG, map(commit_name, count(version)))
        found = [file for file in takewhile(lambda file: file is not None, looks) if file is not None]
        if not found or next(looks) is not None:
            return None  # there is a gap, or there was one while commits were being created
        return LogListing(found)

    @property
    def is_local(self) -> bool:
        """Whether files of this log may appear piece by piece: object stores only show complete ones."""
        return self.objects.is_local

    def check_catalog(self, snapshot: Snapshot) -> None:
        """Reject a version of a table that another catalog manages than the one that the log is read through.

        Raises:
            UnsupportedReaderFeature: another one does.
        """
        if is_catalog_managed(snapshot.protocol):
            # Only another catalog can vouch for a table that does not say whose it is.
            catalog_id = self.objects.catalog_id if self.objects.is_coordinated else None
            check_catalog(snapshot.protocol, snapshot.metadata, self.table, snapshot.location, catalog_id)

    def first_incomplete(self, versions: Iterable[int]) -> int | None:
        """Return the first of these commits that is truncated: its writer has not finished, or never will."""
        for version in versions:
            try:
                data = self.objects.get(f"{_LOG}/{commit_name(version)}")
            except (FileNotFoundError, UnusableFile):
                continue
            if not data.strip() or not (data.endswith(b"\n") or _is_json(data.rpartition(b"\n")[2])):
                return version
        return None

    def changed_after(self, version: int, file: ListedFile) -> int | None:
        """Return the first recent commit before a version that changed after ``file``, the version's own commit, did."""
        if not self.is_local:
            return None
        before = self.commit_files(range(max(0, version - _LAST), version))
        later = (one for one, found in before.items() if found.last_modified_ms > file.last_modified_ms)
        return min(later, default=None)

    def commit_files(self, versions: Collection[int]) -> dict[int, ListedFile]:
        """Return the listing entries of those of these commits that exist, without reading them."""
        if not versions:
            return {}
        if not self.is_local:
            listed = self.list_after(min(versions)).commits  # one request for all
            return {version: listed[version] for version in versions if version in listed}
        looks = self.objects.look_up(_LOG, map(commit_name, versions))
        return {version: file for version, file in zip(versions, looks, strict=True) if file is not None}

    def _listing(self, start_after: str) -> LogListing:
        listing = LogListing(self.objects.list_from(_LOG, start_after=start_after))
        if listing.gap:
            # A directory read while commits are being created may show the later of two but not the earlier.
            listing = LogListing(self.objects.list_from(_LOG, start_after=start_after))
        return listing

    def where(self, version: int, name: str) -> LogFile:
        """Return the name of a file of this log for errors."""
        return LogFile(self.table, version, name)

    def commit(self, version: int) -> Commit:
        """Read one commit.

        Raises:
            MissingLogFile: it should exist, or was deleted just now.
            CorruptLog: it cannot be read.
        """
        where = LogFile(self.table, version, commit_name(version))
        return Commit(where, parse_commit(self._get(where), where))

    def removes(self, version: int) -> Commit:
        """Read only what one commit removes; raises as :meth:`commit`."""
        where = LogFile(self.table, version, commit_name(version))
        return Commit(where, parse_only(self._get(where), where, RemoveFile))

    def commits(self, versions: Sequence[int]) -> list[Commit]:
        """Read commits, several at once if that saves time, in the given order.

        Raises:
            MissingLogFile: one does not exist.
            CorruptLog: one cannot be read.
            UnsupportedReaderFeature: one cannot be read, and they require a feature that Delvec does not know.
        """
        try:
            return list(self.each(versions))
        except CorruptLog:
            self.refuse_unknown(map(commit_name, reversed(versions)))
            raise

    def compaction(self, compaction: LogCompaction) -> Commit:
        """Read a log compaction of several commits.

        Raises:
            MissingLogFile: it no longer exists.
            CorruptLog: it cannot be read.
        """
        where = LogFile(self.table, compaction.last, compaction.file.name)
        return Commit(where, parse_commit(self._get(where), where), compacted=True)

    def checksum(self, file: ListedFile) -> VersionChecksum | None:
        """Return a version checksum, or None if it is damaged, missing or oversized: it is only a check."""
        if file.size > _MAX_CHECKSUM:
            return None
        try:
            return VersionChecksum.parse(self.objects.get(f"{_LOG}/{file.name}"))
        except (FileNotFoundError, UnusableFile):
            return None

    def refuse_unknown(self, names: Iterable[str]) -> None:
        """Reject the table if the first of these files with a protocol has one that Delvec cannot read.

        Args:
            names: commits and checkpoints, newest first; they may be damaged or missing.

        Raises:
            UnsupportedReaderFeature: names the features, or the reader version.
        """
        for name in names:
            try:
                protocol = known_protocol(self.objects.get(f"{_LOG}/{name}"), name)
            except (FileNotFoundError, UnusableFile):
                continue
            if protocol is not None:
                check_readable(protocol, _UNKNOWN_METADATA, self.table)
                return

    def each(self, versions: Sequence[int], *, removes_only: bool = False) -> Iterator[Commit]:
        """Yield commits in the given order, reading a few ahead."""
        read = self.removes if removes_only else self.commit
        if len(versions) < _MIN_CONCURRENT or self.objects.location.startswith(("file:", "memory:")):
            yield from map(read, versions)
            return
        with ThreadPoolExecutor(min(_CONCURRENT, len(versions)), "delvec-log") as pool:
            for start in range(0, len(versions), _CONCURRENT):
                yield from pool.map(read, versions[start : start + _CONCURRENT])

    def commit_info(self, version: int) -> CommitInfo | None:
        """Return a commit's commitInfo, if any; raises as :meth:`commit`."""
        where = LogFile(self.table, version, commit_name(version))
        return next(iter(parse_only(self._get(where), where, CommitInfo)), None)

    def checkpoint(self, checkpoint: LogCheckpoint) -> ReplayState:
        """Read a checkpoint with all its parts and sidecars.

        Raises:
            MissingLogFile: a part or a sidecar does not exist.
            CorruptLog: one cannot be read.
        """
        where = LogFile(self.table, checkpoint.version, checkpoint.files[0].name)
        deferred_files = ExitStack()
        deferred_statistics = (
            None if self.backlog is None else self.backlog.begin(deferred_files.close, self.is_local)
        )
        with ExitStack() as open_files:
            deferred_statistics = deferred_statistics if len(checkpoint.files) <= _MAX_OPEN else None
            parts = [
                self._part(
                    LogFile(self.table, checkpoint.version, file.name),
                    f"{_LOG}/{file.name}",
                    open_files,
                    deferred_statistics,
                )
                for file in checkpoint.files
            ]
            sidecars = [sidecar.path for part in parts for sidecar in part.sidecars]
            read = (
                partial(self._sidecar, checkpoint.version)
                if deferred_statistics is None or len(sidecars) > _MAX_OPEN
                else partial(self._deferred_sidecar, checkpoint.version, open_files, deferred_statistics)
            )
            # One after the other: each file is read, converted to segments and released before the next.
            batches = chain(
                chain.from_iterable(part.batches for part in parts),
                chain.from_iterable(map(read, sidecars)),
            )
            actions = [action for part in parts for action in part.actions]
            state = ReplayState.from_checkpoint(
                batches, actions, where, self.objects.location, FILE_INDEX_ENGINE, deferred_statistics
            )
            if self.backlog is not None and deferred_statistics is not None and len(deferred_statistics):
                deferred_files.push(open_files.pop_all())
                self.backlog.add(deferred_statistics, is_read=not self.is_saved)
        return state

    def nothing(self) -> ReplayState:
        """Return the state before the first commit."""
        return ReplayState(LiveFiles(self.objects.location, engine=FILE_INDEX_ENGINE))

    def head(self, version: int) -> ListedFile | None:
        """Return the listing entry of a commit's file without reading it, or None if it does not exist."""
        return self.objects.head(f"{_LOG}/{commit_name(version)}")

    def _sidecar(self, version: int, path: str) -> Iterator[pa.RecordBatch]:
        with ExitStack() as open_files:
            part = self._part(LogFile(self.table, version, path), _sidecar_path(path), open_files)
            yield from part.batches

    def _deferred_sidecar(
        self, version: int, open_files: ExitStack, deferred_statistics: DeferredStatistics, path: str
    ) -> Iterable[pa.RecordBatch]:
        where = LogFile(self.table, version, path)
        return self._part(where, _sidecar_path(path), open_files, deferred_statistics).batches

    def _part(
        self,
        where: LogFile,
        path: str,
        open_files: ExitStack,
        deferred_statistics: DeferredStatistics | None = None,
    ) -> CheckpointPart:
        """Start reading a file of a checkpoint, which may stay open as long as ``open_files``."""
        # A local file is read as it is decoded; others are read as a whole, with one request instead of many.
        if not (self.is_local and path.endswith(".parquet")):
            return read_checkpoint(self._get(where, path), where, deferred_statistics)
        with self._naming(where):
            file = open_files.enter_context(self.objects.open(path))
        return read_checkpoint(file, where, deferred_statistics)

    def _get(self, where: LogFile, path: str | None = None) -> bytes:
        with self._naming(where):
            return self.objects.get(f"{_LOG}/{where.name}" if path is None else path)

    @contextmanager
    def _naming(self, where: LogFile) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as error:
            raise MissingLogFile(
                f"The log of table '{self.table}' lacks {where.name}, which version {where.version} requires; "
                "restore that file from a backup.",
                table=self.table,
                version=where.version,
                file=where.name,
            ) from error
        except UnusableFile as error:
            limit = error.details.get("limit")
            setting = "; raise DELVEC_MAX_COMMIT_BYTES if it is genuine" if limit else ""
            raise where.corrupt(f"is not read: {error.message.rstrip('.')}{setting}") from error

    def _last_checkpoint(self) -> int | None:
        """Return the version that ``_last_checkpoint`` names; an invalid file counts as no hint.

        Its checksum is not verified: the version only determines where a listing may begin.
        """
        try:
            content = self.objects.get_start(f"{_LOG}/_last_checkpoint", _MAX_HINT)
            hint = json.loads(content) if len(content) < _MAX_HINT else {}
            version = hint["version"]
        except (FileNotFoundError, ValueError, TypeError, KeyError, RecursionError, DelvecError):
            return None
        usable = isinstance(version, int) and not isinstance(version, bool) and 0 <= version < 2**63
        return version if usable else None


class StatisticsBacklog:
    """Statistics of checkpoints that are not read yet: a thread reads them once the request that loaded one has its answer.

    Until then files are open, or in memory. Safe to share between threads.
    """

    def __init__(self, delay: float = _DELAY_SECONDS) -> None:
        self._worker: BackgroundWorker[DeferredStatistics] = BackgroundWorker("delvec-statistics", self._read)
        self._delay = delay
        self._numbers = count()
        self._lock = threading.Lock()
        self._begun: weakref.WeakSet[DeferredStatistics] = weakref.WeakSet()
        self._closed = False

    def begin(self, close: Callable[[], None], is_local: bool) -> DeferredStatistics | None:
        """Return where a checkpoint may leave its statistics; None where too much waits already."""
        with self._lock:
            waiting = sum(not each.is_complete for each in self._begun)
        # Of one that is not on local disk all bytes are in memory.
        room = waiting < (_MAX_WAITING if is_local else 1)
        return DeferredStatistics(threading.RLock(), close) if room else None

    def add(self, deferred_statistics: DeferredStatistics, *, is_read: bool) -> None:
        """Take statistics that wait, and have them read in a moment, unless another does that."""
        with self._lock:
            self._begun.add(deferred_statistics)
        if is_read:
            self._worker.schedule(str(next(self._numbers)), deferred_statistics, after=self._delay)

    def wait(self, timeout: float) -> bool:
        """Read all queued statistics now; return whether that finished in time."""
        return self._worker.wait(timeout)

    def close(self) -> None:
        """Stop reading."""
        self._closed = True
        self._worker.close()

    def _read(self, deferred_statistics: DeferredStatistics) -> None:
        # Readers of lost segments raise SegmentsLost themselves, and the log is read again.
        with suppress(SegmentsLost):
            deferred_statistics.complete(lambda: self._closed)


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def _sidecar_path(path: str) -> str:
    """Return the location of a sidecar: a bare name is in ``_sidecars``."""
    return path if "/" in path else f"{_LOG}/_sidecars/{path}"
