"""Records the commits of logs as events, in the background: the log says which are missing.

Neither a process that dies after a commit nor a lost database loses an event: the next look at the log finds the commit.

Tested in `tests/integration/service/events/test_commit_events.py`.
"""

import json
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from delvec_errors import DelvecError, ServiceUnavailable
from delvec_kernel.actions.actions import CommitInfo
from delvec_kernel.log.log_segment import LogListing
from delvec_service.background_worker import BackgroundWorker
from delvec_service.logs import logger
from delvec_service.snapshots.history_entry import history_entry
from delvec_service.snapshots.log_reader import LogReader
from delvec_service.store.event_store import Event, EventMark, EventStore, event_id
from delvec_service.store.open_table import OpenTable
from delvec_service.store.registry import TableRecord
from delvec_service.tables.registry import Tables

__all__ = ["CommitEvents"]

_BATCH: Final = 200
_PAUSE_SECONDS: Final = 0.1
_SHARE: Final = 0.1
_AGAIN_SECONDS: Final = 5.0
_CLOCKS: Final = timedelta(minutes=5)
"""How far the clocks of storage and service may differ; a table is created before it is registered."""
_PAGE: Final = 1000
_TABLES: Final = "all tables"
_LARGEST: Final = 64 * 1024
"""Characters of an event's data: a page, of which each reader may ask, has the data of a thousand."""
_SHORT: Final = ("version", "timestamp", "operation", "readVersion", "isolationLevel", "isBlindAppend")
_LONGEST: Final = 1000


class CommitEvents:
    """Records the commits of all tables; safe to share between threads.

    Args:
        store: the outbox.
        tables: the tables.
        alone: whether no other replica looks at all logs, see :meth:`Database.alone`.
        days: how long events are kept.
        seconds: how often to look at all logs, for commits of other writers, and of processes that died.

    Attributes:
        store: the same, for readers.
    """

    def __init__(
        self,
        store: EventStore,
        tables: Tables,
        alone: Callable[[str], AbstractContextManager[bool]],
        *,
        days: float,
        seconds: float,
    ) -> None:
        self.store = store
        self._tables = tables
        self._alone = alone
        self._kept = timedelta(days=days)
        self._seconds = seconds
        self._recorder = BackgroundWorker("delvec-events", self._look, share=_SHARE)
        self._patrol = BackgroundWorker("delvec-event-patrol", self._look_at_all, share=_SHARE)
        self._is_closed = False

    def start(self) -> None:
        """Look at all logs now, and from time to time."""
        if self.store.is_enabled:
            self._patrol.schedule(_TABLES, None)

    def committed(self, table: OpenTable) -> None:
        """Record the newest commits of a table soon. Returns at once."""
        if self.store.is_enabled:
            self._recorder.schedule(table.location, table, after=_PAUSE_SECONDS)

    def wait(self, seconds: float) -> bool:
        """Look at all logs now; return whether that finished in time."""
        end = time.monotonic() + seconds
        return self._patrol.wait(seconds) and self._recorder.wait(max(0.0, end - time.monotonic()))

    def close(self, seconds: float = 10.0) -> None:
        """Record what is queued within a time limit, then stop."""
        self._is_closed = True
        self._patrol.close()
        self._recorder.wait(seconds)
        self._recorder.close()

    def record(self, table: OpenTable) -> None:
        """Record the commits of a table that are not recorded yet.

        Raises:
            NotADeltaTable: there is no log.
            CorruptLog: a commit cannot be read; those before it are recorded.
            StorageError: storage did not answer.
            ServiceUnavailable: the database does not answer.
        """
        reader = LogReader(table.objects, table.name)
        while not self._is_closed:
            before = self.store.mark(table.record.id)
            listing, versions = _missing(reader, before, table.record)
            if not versions:
                if before is None and listing.commits:
                    newest = max(listing.commits)
                    self.store.record(table.record.id, None, _mark(listing, newest), ())
                return
            self._record(table, reader, listing, before, versions[:_BATCH])

    def _record(
        self,
        table: OpenTable,
        reader: LogReader,
        listing: LogListing,
        before: EventMark | None,
        versions: Sequence[int],
    ) -> None:
        events: list[Event] = []
        try:
            for version in versions:
                events.append(_event(table, reader, listing, version))  # noqa: PERF401 - reading one may fail
        finally:
            if events:
                earliest = datetime.now(UTC) - self._kept
                recent = [one for one in events if one.occurred_at >= earliest]
                mark = _mark(listing, versions[len(events) - 1])
                self.store.record(table.record.id, before, mark, recent)

    # --- on the threads of the workers --------------------------------------------------------------------

    def _look(self, table: OpenTable) -> None:
        try:
            self.record(table)
        except DelvecError as error:
            logger.info("events not recorded", table=table.name, reason=error.message)
            if error.retryable:
                self._recorder.schedule(table.location, table, after=_AGAIN_SECONDS)

    def _look_at_all(self, _item: None) -> None:
        try:
            with self._alone("events of all tables") as ours:
                if ours:
                    self._look_at_each()
        except ServiceUnavailable as error:
            logger.info("events not recorded", reason=error.message)
        finally:
            self._patrol.schedule(_TABLES, None, after=self._seconds)

    def _look_at_each(self) -> None:
        self.store.expire(datetime.now(UTC) - self._kept)
        place = ("", "")
        while records := self._tables.page(place, _PAGE):
            for record in records:
                if self._is_closed:
                    return
                with suppress(DelvecError):  # of a table that cannot be opened
                    self._look(self._tables.opening(record))
            place = (records[-1].name, records[-1].id)


def _missing(
    reader: LogReader, mark: EventMark | None, record: TableRecord
) -> tuple[LogListing, Sequence[int]]:
    """Return a listing of the log, and the versions in it that are not recorded, ascending.

    Without a mark these are the versions since the table was registered. If the commit of the mark is another one, it was
    replaced, or the whole table was: then these are also the versions that are newer than that commit was.
    """
    if mark is not None:
        listing = reader.list_after(mark.version)
        file = listing.commits.get(mark.version)
        if file is not None and (file.last_modified_ms, file.size) == (mark.modified_at, mark.size):
            return listing, sorted(listing.commits.keys() - {mark.version})
        since = mark.modified_at
    else:
        since = int((record.created_at - _CLOCKS).timestamp() * 1000)
    listing = reader.list_all()
    later = (version for version, file in listing.commits.items() if file.last_modified_ms > since)
    first = min(later, default=2**63)
    if mark is not None:
        first = min(first, mark.version + 1)
    return listing, sorted(version for version in listing.commits if version >= first)


def _mark(listing: LogListing, version: int) -> EventMark:
    file = listing.commits[version]
    return EventMark(version, file.last_modified_ms, file.size)


def _event(table: OpenTable, reader: LogReader, listing: LogListing, version: int) -> Event:
    info = reader.commit_info(version) or CommitInfo()
    file_time = listing.commits[version].last_modified_ms
    at = file_time if info.in_commit_timestamp is None else info.in_commit_timestamp
    data = _bounded(
        history_entry(version, info, at).model_dump(mode="json", by_alias=True, exclude_none=True)
    )
    id_ = event_id("commit", table.record.id, version, info.txn_id or file_time)
    return Event(id_, table.record.id, "delvec.commit", _time(at), data)


def _bounded(data: dict[str, Any]) -> dict[str, Any]:
    """Return the data of an event without what makes it too large: anybody may have written the log."""
    if len(json.dumps(data)) <= _LARGEST:
        return data
    return {name: data[name] for name in _SHORT if name in data and len(str(data[name])) <= _LONGEST}


def _time(milliseconds: int) -> datetime:
    """Return a time in a log, which anybody may have written."""
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return datetime.now(UTC)
