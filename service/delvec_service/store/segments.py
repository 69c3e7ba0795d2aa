"""Segments of files in SQL: their parts as blobs, and the bounds of their columns as numbers and text.

Tested in `tests/integration/contract/test_snapshot_store.py`.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from sqlalchemy import delete, func, select, update
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from delvec_errors import ServiceUnavailable
from delvec_kernel.file_index.segment import SegmentRecord, SegmentsLost, Summary
from delvec_service.store.database import Database, insert_into
from delvec_service.store.models import SegmentBlobRow, SegmentRow, SegmentSummaryRow
from delvec_service.store.snapshot_state import checksum
from delvec_service.store.summary_columns import from_columns, to_columns

__all__ = ["SegmentStore", "unused"]

_ASKED_AT_ONCE: Final = 500
_CHUNK_BYTES: Final = 4 * 1024 * 1024
_CHUNK_SEGMENTS: Final = 32
_PAUSE_SECONDS: Final = 0.1
UNUSED_GRACE: Final = timedelta(minutes=10)
"""Readers of an older version may still need segments that no snapshot has, and a snapshot is saved in several steps.
"""


class SegmentStore:
    """Reads and writes segments; safe to share between threads.

    A SegmentSource. Every row has a checksum; a row that does not match counts as missing.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    # --- reading: a SegmentSource -------------------------------------------------------------------------

    def blobs(self, ids: Sequence[str], name: str) -> Mapping[str, bytes]:
        """Return one part of each segment.

        Raises:
            SegmentsLost: a part is missing or damaged; the arguments are the segment ids, none if the database does
                not answer.
        """
        try:
            blobs = self._blobs(ids, name)
        except (ServiceUnavailable, SQLAlchemyError) as error:
            raise SegmentsLost from error
        lost = [id_ for id_ in ids if id_ not in blobs]
        if lost:
            raise SegmentsLost(*lost)
        return blobs

    def optional_blobs(self, ids: Sequence[str], name: str) -> Mapping[str, bytes]:
        """Return one part of those segments that have it; damaged parts count as missing."""
        try:
            return self._blobs(ids, name)
        except (ServiceUnavailable, SQLAlchemyError):
            return {}

    def summaries(self, ids: Sequence[str], column: str) -> Mapping[str, Summary]:
        """Return the existing summaries of one column, by segment."""
        row = SegmentSummaryRow
        summaries: dict[str, Summary] = {}
        try:
            with self._database.read() as session:
                for some in _slices(ids):
                    query = select(row.__table__).where(row.column_key == column, row.segment_id.in_(some))
                    for values in session.execute(query).mappings():
                        summary = from_columns(dict(values))
                        if summary is not None:
                            summaries[values["segment_id"]] = summary
        except (ServiceUnavailable, SQLAlchemyError):
            return {}
        return summaries

    def _blobs(self, ids: Sequence[str], name: str) -> dict[str, bytes]:
        row = SegmentBlobRow
        blobs: dict[str, bytes] = {}
        with self._database.read() as session:
            for some in _slices(ids):
                query = select(row.segment_id, row.checksum, row.data).where(
                    row.name == name, row.segment_id.in_(some)
                )
                blobs |= {
                    segment_id: data
                    for segment_id, expected, data in session.execute(query)
                    if checksum(data, segment_id, name) == expected
                }
        return blobs

    # --- writing ------------------------------------------------------------------------------------------

    def known(self, table_id: str) -> frozenset[str]:
        """Return the ids of a table's segments, used or not."""
        with self._database.read() as session:
            query = select(SegmentRow.id).where(SegmentRow.table_id == table_id)
            return frozenset(session.scalars(query))

    def add(
        self,
        table_id: str,
        records: Iterable[SegmentRecord],
        stopping: Callable[[], bool] = lambda: False,
        ahead: timedelta = timedelta(0),
    ) -> bool:
        """Save new or updated segments in transactions of a few MiB; False if stopped in between.

        A new segment is unused until a snapshot has it, but counts as used for as long as it is saved ``ahead`` of one.
        """
        for chunk in _chunks(records):
            if stopping():
                return False
            began = time.monotonic()
            with self._database.write() as session:
                _put(session, table_id, chunk, datetime.now(UTC) + ahead)
            # Others wait for SQLite's only writer: leave them as much time as this takes.
            time.sleep(min(time.monotonic() - began, _PAUSE_SECONDS))
        return True

    def sweep(self, grace: timedelta = UNUSED_GRACE, stopping: Callable[[], bool] = lambda: False) -> int:
        """Delete segments unused for this long, and parts without a segment; return the number of segments."""
        count = 0
        before = datetime.now(UTC) - grace
        while not stopping():
            with self._database.write() as session:
                query = select(SegmentRow.id).where(SegmentRow.unused_since <= before).limit(_CHUNK_SEGMENTS)
                if session.get_bind().dialect.name == "postgresql":
                    # Except segments that a snapshot is loading right now.
                    query = query.with_for_update(skip_locked=True)
                gone = list(session.scalars(query))
                _delete(session, gone)
                if not gone:
                    _delete_orphans(session)
            count += len(gone)
            if not gone:
                self._database.give_back_space()
                break
        return count


def unused(session: Session, table_id: str, kept: Iterable[str] = (), since: datetime | None = None) -> None:
    """Mark the segments of a table that no snapshot has any more: all except ``kept``."""
    row = SegmentRow
    query = update(row).where(row.table_id == table_id, row.id.not_in(list(kept)))
    if since is None:
        query = query.where(row.unused_since.is_(None))
    session.execute(
        query.values(unused_since=datetime.now(UTC) if since is None else since),
        execution_options={"synchronize_session": False},
    )


def _put(session: Session, table_id: str, records: Sequence[SegmentRecord], unused_since: datetime) -> None:
    ids = sorted({record.id for record in records})
    _upsert(
        session,
        SegmentRow,
        ["id"],
        [
            {
                "id": record.id,
                "table_id": table_id,
                "num_rows": record.num_rows,
                "nbytes": 0,
                "unused_since": unused_since,
            }
            for record in records
        ],
        replace=False,
    )
    blobs = [
        {"segment_id": record.id, "name": name, "checksum": checksum(data, record.id, name), "data": data}
        for record in records
        for name, data in sorted(record.blobs.items())
    ]
    _upsert(session, SegmentBlobRow, ["segment_id", "name"], blobs)
    summaries = [
        columns
        for record in records
        for column, summary in sorted(record.summaries.items())
        if (columns := to_columns(record.id, column, summary)) is not None
    ]
    _upsert(session, SegmentSummaryRow, ["column_key", "segment_id"], summaries)
    blob = SegmentBlobRow
    size = select(func.coalesce(func.sum(func.length(blob.data)), 0)).where(blob.segment_id == SegmentRow.id)
    session.execute(
        update(SegmentRow).where(SegmentRow.id.in_(ids)).values(nbytes=size.scalar_subquery()),
        execution_options={"synchronize_session": False},
    )


def _upsert(
    session: Session, row: Any, key: list[str], values: list[dict[str, Any]], *, replace: bool = True
) -> None:
    if not values:
        return
    query = insert_into(session, row.__table__)
    if replace:
        others = {name: query.excluded[name] for name in values[0] if name not in key}
        query = query.on_conflict_do_update(index_elements=key, set_=others)
    else:
        query = query.on_conflict_do_nothing(index_elements=key)
    # In the same order everywhere, so that two replicas never wait for each other.
    values.sort(key=lambda value: [value[name] for name in key])
    session.connection().execute(query, values)


def _delete(session: Session, ids: Sequence[str]) -> None:
    for row in (SegmentSummaryRow, SegmentBlobRow):
        session.execute(
            delete(row).where(row.segment_id.in_(ids)), execution_options={"synchronize_session": False}
        )
    session.execute(
        delete(SegmentRow).where(SegmentRow.id.in_(ids)), execution_options={"synchronize_session": False}
    )


def _delete_orphans(session: Session) -> None:
    """Delete parts without a segment: the segment was deleted while something was added to it."""
    for row in (SegmentSummaryRow, SegmentBlobRow):
        known = select(SegmentRow.id).where(SegmentRow.id == row.segment_id)
        session.execute(delete(row).where(~known.exists()), execution_options={"synchronize_session": False})


def _chunks(records: Iterable[SegmentRecord]) -> Iterator[list[SegmentRecord]]:
    chunk: list[SegmentRecord] = []
    size = 0
    for record in records:
        chunk.append(record)
        size += sum(map(len, record.blobs.values()))
        if size >= _CHUNK_BYTES or len(chunk) >= _CHUNK_SEGMENTS:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _slices(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(ids), _ASKED_AT_ONCE):
        yield ids[start : start + _ASKED_AT_ONCE]
