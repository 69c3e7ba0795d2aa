"""Saves snapshots to the database in the background, and finds saved ones.

Tested in `tests/integration/contract/test_snapshot_store.py`.
"""

import contextlib
import ctypes
import threading
import time
import weakref
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from cachetools import LRUCache

from delvec_errors import ServiceUnavailable
from delvec_kernel.file_index.deferred_statistics import DeferredStatistics
from delvec_kernel.file_index.segment import Segment, SegmentsLost
from delvec_kernel.snapshot.snapshot import Snapshot
from delvec_service.background_worker import BackgroundWorker
from delvec_service.logs import logger
from delvec_service.store.snapshot_state import LogFileId
from delvec_service.store.snapshots import Head, SnapshotStore, StoredSnapshot

__all__ = ["SnapshotWriter"]

_DELAY_SECONDS: Final = 0.5
"""Between the first notification of a table and saving it."""
_SHARE: Final = 0.1
"""Of a processor: a table that is saved less often is read from an older version on after a restart."""
_QUIET_SECONDS: Final = 5.0
"""How long a database that did not answer is not asked for snapshots: each attempt may block."""
_TOUCH_SECONDS: Final = 60.0
_SWEEP_SECONDS: Final = 300.0
_TABLES: Final = 10_000
_MUCH_MEMORY: Final = 32 * 1024 * 1024
"""After saving this much, releasing memory is worthwhile: most of it was used by replay, or is now in the database."""


@dataclass
class _SavedState:
    """The known state of a table's saved snapshot.

    Attributes:
        generation: the last one read or written; None if nothing was saved.
        done: the last snapshot processed; it needs no more work unless its segments get new summaries.
        touched_at: by the monotonic clock.
        lost: damaged segments; a snapshot that was read earlier still has them.
    """

    generation: str | None = None
    done: Callable[[], Snapshot | None] = lambda: None
    touched_at: float = 0.0
    lost: frozenset[str] = frozenset()


class SnapshotWriter:
    """Saves snapshots and finds saved ones. Safe to share between threads.

    Nothing here delays or fails a request: a snapshot that is not saved is read from the log again.

    Args:
        store: where to save.
        max_bytes: of all tables' segments together; the least recently used tables are deleted.
        discard: called with a location whose saved snapshot belongs to another replica: the one in memory must be
            dropped, so that the next request uses that one. Otherwise two replicas would alternate in saving all
            files.
        lost: called with a snapshot whose parts the database has lost.
    """

    def __init__(
        self,
        store: SnapshotStore,
        max_bytes: int,
        discard: Callable[[str], None],
        on_lost: Callable[[Snapshot, SegmentsLost], None],
    ) -> None:
        self._store = store
        self._max_bytes = max_bytes
        self._discard = discard
        self._lost = on_lost
        self._delay = _DELAY_SECONDS
        self._worker = BackgroundWorker("delvec-snapshots", self._run, share=_SHARE)
        self._lock = threading.Lock()
        self._known: LRUCache[str, _SavedState] = LRUCache(_TABLES)
        self._deadline: float | None = None
        self._quiet_until = 0.0
        self._complained = False
        self._swept_at = 0.0

    # --- on the threads of requests -----------------------------------------------------------------------

    def find(self, location: str) -> StoredSnapshot | None:
        """Return the saved snapshot of a table; None also if the database does not answer."""
        if time.monotonic() < self._quiet_until:
            return None
        try:
            stored_snapshot = self._store.find(location)
        except ServiceUnavailable as error:
            self._failed(error)
            self._quiet_until = time.monotonic() + _QUIET_SECONDS
            return None
        with self._lock:
            self._of(location).generation = None if stored_snapshot is None else stored_snapshot.generation
        return stored_snapshot

    def note(self, snapshot: Snapshot, file: LogFileId) -> None:
        """Schedule saving a table's newest version, or new summaries of its segments."""
        # The time of the first notification counts, or a busy table would never be saved.
        self._worker.schedule(snapshot.location, (snapshot, file), after=self._delay)

    def forget(self, location: str, segments: frozenset[str] = frozenset()) -> None:
        """Delete the saved snapshot of a table; with ``segments``, only if it has one of them."""
        self._worker.discard(location)
        try:
            head = self._store.head(location)
            if head is not None and (not segments or head.segments & segments):
                if segments:
                    with self._lock:
                        self._of(location).lost = segments & head.segments
                self._store.forget(location, head.generation)
        except ServiceUnavailable as error:
            self._failed(error)

    def flush(self, timeout: float) -> bool:
        """Save everything pending now; return whether that finished in time."""
        return self._worker.wait(timeout)

    def close(self, timeout: float) -> None:
        """Save everything pending, as far as time allows, and stop."""
        self.flush(timeout)
        self._deadline = time.monotonic()  # running work stops where it can
        self._worker.close()

    # --- on its own thread --------------------------------------------------------------------------------

    def _run(self, noted: tuple[Snapshot, LogFileId]) -> None:
        snapshot, file = noted
        try:
            is_dropped = self._write(snapshot, file)
        except SegmentsLost as error:
            self._lost(snapshot, error)
        except ServiceUnavailable as error:
            self._failed(error)
            self._complete(snapshot)
        else:
            self._worked()
            if not is_dropped:
                self._complete(snapshot)

    def _complete(self, snapshot: Snapshot) -> None:
        """Read statistics that were not saved: nobody else does, and until then commits are slower and a checkpoint is open."""
        try:
            for source in _incomplete(snapshot.live.segments):
                source.complete(self._stopping)
        except SegmentsLost as error:
            self._lost(snapshot, error)

    def _write(self, snapshot: Snapshot, file: LogFileId) -> bool:
        """Save a snapshot, if it should be; return whether it was dropped from memory instead."""
        location = snapshot.location
        with self._lock:
            saved_state = self._of(location)
        segments = [member.segment for member in snapshot.live.members]
        unchanged = saved_state.done() is snapshot
        if unchanged and not any(segment.unsaved() for segment in segments):
            if time.monotonic() - saved_state.touched_at > _TOUCH_SECONDS:
                self._store.touch(location)
                saved_state.touched_at = time.monotonic()
            return False
        head = self._store.head(location)
        mine = frozenset(segment.id for segment in segments)
        if mine & saved_state.lost:
            return False
        if head is not None and _is_foreign(head, saved_state.generation):
            if mine and not head.segments & mine:
                self._discard(location)
                return True
            if head.version > snapshot.version:
                return False
        generation = self._save(snapshot, file, head)
        if generation is None:
            return False
        if mine & saved_state.lost:  # found out just now
            self._store.forget(location, generation)
        saved_state.generation, saved_state.done, saved_state.touched_at = (
            generation,
            weakref.ref(snapshot),
            time.monotonic(),
        )
        self._make_room()
        return False

    def _save(self, snapshot: Snapshot, file: LogFileId, head: Head | None) -> str | None:
        """Return the generation of the saved snapshot, or None if there is none."""
        segments = [member.segment for member in snapshot.live.members]
        there = frozenset() if head is None else head.segments
        same = head is not None and (head.version, head.file) == (snapshot.version, file)
        if head is not None and same and there == {segment.id for segment in segments}:
            self._store.add_parts(snapshot.location, segments, self._stopping)
            return head.generation
        new = [segment for segment in segments if segment.id not in there]
        for segment in new:
            segment.encode()
        needed_bytes = sum(segment.nbytes for segment in new)

        def check(needed_bytes: int) -> None:
            if needed_bytes > self._max_bytes:
                raise _TooLargeError

        def keep(whole: Sequence[Segment]) -> None:
            check(sum(segment.nbytes for segment in whole) * len(new) // len(whole))
            self._store.add_segments(snapshot.location, whole, self._stopping)

        try:
            check(needed_bytes)
            if not all(source.complete(self._stopping, keep) for source in _incomplete(segments)):
                return None
        except _TooLargeError:
            if head is not None:
                self._store.forget(snapshot.location, head.generation)
            return None
        replacing = None if head is None else head.generation
        # None if another replica was first: its snapshot is considered next time.
        generation = self._store.save(snapshot, file, replacing, self._stopping)
        if needed_bytes > _MUCH_MEMORY:
            _give_back()
        return generation

    def _make_room(self) -> None:
        self._store.evict(self._max_bytes, self._stopping)
        if not self._swept_at or time.monotonic() - self._swept_at > _SWEEP_SECONDS:
            self._swept_at = time.monotonic()
            self._store.sweep(stopping=self._stopping)

    def _stopping(self) -> bool:
        return self._deadline is not None and time.monotonic() >= self._deadline

    # --- both ---------------------------------------------------------------------------------------------

    def _of(self, location: str) -> _SavedState:
        return self._known.setdefault(location, _SavedState())

    def _failed(self, error: ServiceUnavailable) -> None:
        if not self._complained:
            self._complained = True
            logger.warning(
                "snapshots are not stored in the database: the log is read instead", reason=error.message
            )

    def _worked(self) -> None:
        if self._complained:
            self._complained = False
            logger.info("snapshots are stored in the database again")


class _TooLargeError(Exception):
    """A snapshot would take more space than there may be."""


def _incomplete(segments: Iterable[Segment]) -> Collection[DeferredStatistics]:
    """Return what has statistics of segments that were not read yet."""
    return {source for each in segments if isinstance(source := each.source, DeferredStatistics)}


def _is_foreign(head: Head, generation: str | None) -> bool:
    return head.generation != generation


def _give_back() -> None:
    """Return free memory to the system, as far as the platform's allocators can."""
    pa.default_memory_pool().release_unused()
    with contextlib.suppress(AttributeError, OSError, TypeError):  # another C library
        # Otherwise glibc never releases the memory of Python objects of some kilobytes.
        ctypes.CDLL(None).malloc_trim(0)
