"""The newest version of each table, in SQL, so that a restart or another replica does not have to read the log.

Tested in `tests/integration/contract/test_snapshot_store.py`.
"""

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from sqlalchemy import delete, func, insert, select, update
from sqlalchemy.exc import IntegrityError, SQLAlchemyError
from sqlalchemy.orm import Session

from delvec_errors import ServiceUnavailable
from delvec_kernel.file_index.live_files import LiveSegment, dead_rows
from delvec_kernel.file_index.segment import Segment, SegmentRecord, SegmentsLost
from delvec_kernel.locations import table_id
from delvec_kernel.snapshot.snapshot import Snapshot
from delvec_service.store.database import Database
from delvec_service.store.file_index_engine import FILE_INDEX_ENGINE
from delvec_service.store.models import SegmentRow, SnapshotMemberRow, SnapshotRow
from delvec_service.store.segments import SegmentStore, unused
from delvec_service.store.snapshot_state import (
    FORMAT,
    LogFileId,
    StoredSegment,
    decode_state,
    digest,
    encode_state,
)

__all__ = ["Head", "SnapshotStore", "StoredSnapshot"]

_SEGMENT_PARTS: Final = frozenset({"files", "partitions", "stats", "rest", "keys"})
_UNTIL_SAVED: Final = timedelta(hours=1)
"""How long a snapshot may take from its first segment on until it is saved."""
_LONG_AGO: Final = datetime(1970, 1, 1, tzinfo=UTC)
_EXECUTION_OPTIONS: Final[Mapping[str, Any]] = {"synchronize_session": False}


@dataclass(frozen=True)
class StoredSnapshot:
    """A saved snapshot; its segments are read on access.

    Attributes:
        file: the file that the log must still have for the snapshot to be valid.
        generation: needed to replace it.
    """

    snapshot: Snapshot
    file: LogFileId
    generation: str


@dataclass(frozen=True)
class Head:
    """A summary of a table's saved snapshot: enough to decide whether, and what, to save."""

    generation: str
    version: int
    file: LogFileId
    segments: frozenset[str]


class SnapshotStore:
    """Snapshots by location; safe to share between threads, and between replicas.

    One version per table is kept. All of it is a cache: if a part is missing or damaged, the log is read.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self.segments = SegmentStore(database)

    # --- reading ------------------------------------------------------------------------------------------

    def find(self, location: str) -> StoredSnapshot | None:
        """Return the saved snapshot of the table at a location; a damaged one is deleted and counts as missing.

        Raises:
            ServiceUnavailable: the database does not answer.
        """
        with _failures():
            row, members = self._row(location)
        if row is None:
            return None
        snapshot = None
        if members is not None and row.format == FORMAT:
            try:
                snapshot = decode_state(row.state, row.version, map(self._member, members))
            except Exception:  # noqa: BLE001 - whatever is wrong with it, the log has the truth
                snapshot = None
        if snapshot is None or snapshot.location != location:
            self.forget(location, row.generation)
            return None
        return StoredSnapshot(snapshot, _mark(row), row.generation)

    def head(self, location: str) -> Head | None:
        """Return a summary of the saved snapshot of the table at a location.

        Raises:
            ServiceUnavailable: the database does not answer.
        """
        id_ = table_id(location)
        with _failures(), self._database.read() as session:
            row = session.get(SnapshotRow, id_)
            if row is None:
                return None
            query = select(SnapshotMemberRow.segment_id).where(SnapshotMemberRow.table_id == id_)
            segments = frozenset(session.scalars(query))
        return Head(row.generation, row.version, _mark(row), segments)

    # --- writing ------------------------------------------------------------------------------------------

    def save(
        self,
        snapshot: Snapshot,
        file: LogFileId,
        replacing: str | None,
        stopping: Callable[[], bool] = lambda: False,
    ) -> str | None:
        """Save a version of a table: whatever the database lacks of it.

        Args:
            snapshot: the version.
            file: the log file that identifies it.
            replacing: the generation that is currently saved, or None.
            stopping: called from time to time; returns whether to give up.

        Returns:
            The new generation; None if another one has been saved meanwhile, or if this was stopped.

        Raises:
            SegmentsLost: the database has lost parts that are no longer in memory.
            ServiceUnavailable: the database does not answer.
        """
        id_ = table_id(snapshot.location)
        records: list[tuple[Segment, SegmentRecord]] = []
        generation = uuid.uuid4().hex
        with _failures():
            known = self.segments.known(id_)
            for member in snapshot.live.members:
                record = _to_save(member.segment, known, self.segments)
                if record is not None:
                    records.append((member.segment, record))
            if not self.segments.add(id_, (record for _, record in records), stopping):
                return None
            try:
                with self._database.write() as session:
                    _point(session, id_, snapshot, file, replacing, generation)
            except (_ConcurrentSave, IntegrityError):
                return None
        for segment, record in records:
            segment.saved(record, self.segments)
        return generation

    def add_segments(
        self, location: str, segments: Sequence[Segment], stopping: Callable[[], bool] = lambda: False
    ) -> None:
        """Save segments of a snapshot that is yet to be saved, so that they need not be in memory until then.

        Raises:
            ServiceUnavailable: the database does not answer.
        """
        records = [(segment, segment.record()) for segment in segments]
        with _failures():
            some = (record for _, record in records)
            if not self.segments.add(table_id(location), some, stopping, _UNTIL_SAVED):
                return
        for segment, record in records:
            segment.saved(record, self.segments)

    def add_parts(self, location: str, segments: Sequence[Segment], stopping: Callable[[], bool]) -> int:
        """Save new summaries of saved segments; return how many there were.

        Raises:
            ServiceUnavailable: the database does not answer.
        """
        new = [(segment, segment.unsaved()) for segment in segments if segment.source is self.segments]
        records = [(segment, record) for segment, record in new if record is not None]
        if not records:
            return 0
        with _failures():
            known = self.segments.known(table_id(location))
            records = [(segment, record) for segment, record in records if segment.id in known]
            if not self.segments.add(table_id(location), (record for _, record in records), stopping):
                return 0
        for segment, record in records:
            segment.saved(record, self.segments)
        return len(records)

    def forget(self, location: str, generation: str | None = None) -> None:
        """Delete the saved snapshot of a table if it has that generation; None matches any.

        Raises:
            ServiceUnavailable: the database does not answer.
        """
        id_ = table_id(location)
        query = delete(SnapshotRow).where(SnapshotRow.table_id == id_)
        if generation is not None:
            query = query.where(SnapshotRow.generation == generation)
        with _failures(), self._database.write() as session:
            if session.execute(query, execution_options=_EXECUTION_OPTIONS).rowcount:  # type: ignore[attr-defined]
                _delete_members(session, id_)
                unused(session, id_)

    def touch(self, location: str) -> None:
        """Record that a table was used.

        Raises:
            ServiceUnavailable: the database does not answer.
        """
        query = update(SnapshotRow).where(SnapshotRow.table_id == table_id(location))
        with _failures(), self._database.write() as session:
            session.execute(query.values(used_at=datetime.now(UTC)), execution_options=_EXECUTION_OPTIONS)

    def evict(self, max_bytes: int, stopping: Callable[[], bool] = lambda: False) -> int:
        """Delete the least recently used tables until the rest takes at most ``max_bytes``; return how many.

        Raises:
            ServiceUnavailable: the database does not answer.
        """
        count = 0
        with _failures():
            while not stopping():
                with self._database.write() as session:
                    # Segments waiting to be deleted do not count.
                    total = select(func.coalesce(func.sum(SegmentRow.nbytes), 0))
                    used = session.scalar(total.where(SegmentRow.unused_since.is_(None)))
                    oldest = select(SnapshotRow.table_id).order_by(SnapshotRow.used_at).limit(1)
                    id_ = session.scalar(oldest) if int(used or 0) > max_bytes else None
                    if id_ is None:
                        break
                    session.execute(
                        delete(SnapshotRow).where(SnapshotRow.table_id == id_),
                        execution_options=_EXECUTION_OPTIONS,
                    )
                    _delete_members(session, id_)
                    unused(session, id_, since=_LONG_AGO)
                count += 1
            if count:
                self.segments.sweep(stopping=stopping)
        return count

    def sweep(self, grace: timedelta | None = None, stopping: Callable[[], bool] = lambda: False) -> int:
        """Delete segments that no snapshot has had for this long, by default minutes; return how many.

        Raises:
            ServiceUnavailable: the database does not answer.
        """
        with _failures():
            if grace is None:
                return self.segments.sweep(stopping=stopping)
            return self.segments.sweep(grace, stopping)

    def _member(self, member: StoredSegment) -> LiveSegment:
        segment = Segment.stored(member.segment_id, member.num_rows, self.segments, FILE_INDEX_ENGINE)
        return LiveSegment(segment, dead_rows(member.dead))

    def _row(self, location: str) -> tuple[SnapshotRow | None, list[StoredSegment] | None]:
        """Return the row of a table, if any, and its members, if they are complete and unchanged."""
        row = None
        for _ in range(2):  # another replica may have saved between the two queries of one attempt
            with self._database.read() as session:
                row = session.get(SnapshotRow, table_id(location))
                members = None if row is None else _members(session, row)
            if row is None or members is not None:
                return row, members
        return row, None


class _ConcurrentSave(Exception):
    """Another replica has saved in the meantime."""


@contextmanager
def _failures() -> Iterator[None]:
    """Treat any other database error as "it does not answer": everything here is a cache."""
    try:
        yield
    except SQLAlchemyError as error:
        reason = str(getattr(error, "orig", None) or error).partition("\n")[0][:300]
        raise ServiceUnavailable(f"The service's database cannot be used for snapshots: {reason}.") from error


def _members(session: Session, row: SnapshotRow) -> list[StoredSegment] | None:
    """Return the members of a snapshot in order, or None if they are not those saved with it."""
    member = SnapshotMemberRow
    query = (
        select(member.segment_id, SegmentRow.num_rows, member.dead)
        .join(SegmentRow, SegmentRow.id == member.segment_id)
        .where(member.table_id == row.table_id)
        .order_by(member.position, member.segment_id)
    )
    found = [StoredSegment(*values) for values in session.execute(query)]
    return found if digest(row.table_id, row.version, _mark(row), row.state, found) == row.digest else None


def _mark(row: SnapshotRow) -> LogFileId:
    return LogFileId(row.file_name, row.file_size, row.file_time)


def _to_save(segment: Segment, known: frozenset[str], source: SegmentStore) -> SegmentRecord | None:
    """Return what has to be saved of a segment, or None if nothing."""
    if segment.id in known:
        # A segment saved by a failed attempt is unknown here; then all of it is saved.
        return segment.unsaved() if segment.source is source else segment.record()
    record = segment.record()
    if not record.blobs.keys() >= _SEGMENT_PARTS:
        raise SegmentsLost(segment.id)
    return record


def _point(
    session: Session,
    id_: str,
    snapshot: Snapshot,
    file: LogFileId,
    replacing: str | None,
    generation: str,
) -> None:
    """Make a version the saved one, if nobody else has saved in the meantime."""
    members = [StoredSegment.of(member) for member in snapshot.live.members]
    state = encode_state(snapshot)
    values = {
        "generation": generation,
        "format": FORMAT,
        "version": snapshot.version,
        "file_name": file.name,
        "file_size": file.size,
        "file_time": file.last_modified_ms,
        "state": state,
        "digest": digest(id_, snapshot.version, file, state, members),
        "used_at": datetime.now(UTC),
    }
    if replacing is None:
        session.execute(insert(SnapshotRow).values(table_id=id_, **values))
    else:
        mine = (SnapshotRow.table_id == id_, SnapshotRow.generation == replacing)
        changed = session.execute(
            update(SnapshotRow).where(*mine).values(**values), execution_options=_EXECUTION_OPTIONS
        )
        if changed.rowcount != 1:  # type: ignore[attr-defined]
            raise _ConcurrentSave
    ids = [member.segment_id for member in members]
    used = update(SegmentRow).where(SegmentRow.table_id == id_, SegmentRow.id.in_(ids))
    found = session.execute(used.values(unused_since=None), execution_options=_EXECUTION_OPTIONS)
    if found.rowcount != len(ids):  # type: ignore[attr-defined]
        raise SegmentsLost
    unused(session, id_, kept=ids)
    _write_members(session, id_, members)


def _write_members(session: Session, id_: str, members: Sequence[StoredSegment]) -> None:
    """Write the members that differ from the saved ones."""
    row = SnapshotMemberRow
    query = select(row.segment_id, row.position, row.dead).where(row.table_id == id_)
    before = {segment_id: (position, dead) for segment_id, position, dead in session.execute(query)}
    after = {member.segment_id: (position, member.dead) for position, member in enumerate(members)}
    gone = [segment_id for segment_id, value in before.items() if after.get(segment_id) != value]
    if gone:
        session.execute(
            delete(row).where(row.table_id == id_, row.segment_id.in_(gone)),
            execution_options=_EXECUTION_OPTIONS,
        )
    new = [
        {"table_id": id_, "segment_id": segment_id, "position": position, "dead": dead}
        for segment_id, (position, dead) in after.items()
        if before.get(segment_id) != (position, dead)
    ]
    if new:
        session.connection().execute(insert(row.__table__), new)  # type: ignore[arg-type]


def _delete_members(session: Session, id_: str) -> None:
    query = delete(SnapshotMemberRow).where(SnapshotMemberRow.table_id == id_)
    session.execute(query, execution_options=_EXECUTION_OPTIONS)
