"""VACUUM does not delete files of a table while a RESTORE brings removed files back.

VACUUM reads the log and then deletes; RESTORE checks storage and then commits. Either goes wrong if the other comes
in between. Neither RESTOREs nor VACUUMs exclude each other: commits conflict if necessary, and a file is deleted once.

Threads of a process wait for each other, and so do processes that share a SQL store: each puts up a flag there, a row
with an expiry time, and then looks for flags of the other kind, so that at least one of two sees the other. RESTORE keeps
its flag up while it waits; a VACUUM takes its own down and goes on after the RESTORE. A process that dies blocks others
only until its flag expires.
"""

import hashlib
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Final, Literal, TypeAlias
from weakref import WeakValueDictionary

from sqlalchemy import delete, func, select, update
from sqlalchemy.orm import Session

from delvec_errors import ServiceUnavailable
from delvec_service.store.database import Database
from delvec_service.store.models import FileLeaseRow

__all__ = ["DeletionLocks", "FileLease"]

_SECONDS: Final = 60.0
_RENEWALS: Final = 4
"""How often a flag is renewed in the time that it holds."""
_SHORTEST_PAUSE: Final = 0.02
_LONGEST_PAUSE: Final = 0.5
_GUARD: Final = threading.Lock()

_Kind: TypeAlias = Literal["deleting", "restoring"]
_OPPOSITE: Final[dict[_Kind, _Kind]] = {"deleting": "restoring", "restoring": "deleting"}


class FileLease:
    """A flag of this process in the SQL store, renewed by a thread until it is released.

    Attributes:
        owner: names it.
    """

    def __init__(self, database: Database, location: str, kind: _Kind, seconds: float) -> None:
        self.owner = str(uuid.uuid4())
        self._database, self._kind, self._seconds = database, kind, seconds
        self._key = hashlib.sha256(location.encode()).hexdigest()
        self._released = threading.Event()
        self._until = 0.0

    def show(self) -> None:
        """Put the flag up, and remove expired ones.

        Raises:
            ServiceUnavailable: the database does not answer.
        """
        row, began = FileLeaseRow, time.monotonic()
        with self._database.write() as session:
            now = _now(session)
            session.execute(delete(row).where(row.location_hash == self._key, row.expires_at <= now))
            session.add(
                row(
                    location_hash=self._key,
                    owner=self.owner,
                    kind=self._kind,
                    expires_at=now + timedelta(seconds=self._seconds),
                )
            )
        self._until = began + self._seconds
        threading.Thread(target=self._renew, name="delvec-file-lease", daemon=True).start()

    def is_opposed(self) -> bool:
        """Whether a flag of the other kind is up.

        Raises:
            ServiceUnavailable: the database does not answer.
        """
        row = FileLeaseRow
        with self._database.read() as session:
            query = select(row.owner).where(
                row.location_hash == self._key,
                row.kind == _OPPOSITE[self._kind],
                row.expires_at > _now(session),
            )
            return session.execute(query.limit(1)).first() is not None

    def check(self) -> None:
        """Check that the flag has been up all the time; call this just before the work that it protects.

        Raises:
            ServiceUnavailable: it may have been down: the database did not answer for too long, or lost it.
        """
        if time.monotonic() > self._until - self._seconds / _RENEWALS:
            raise ServiceUnavailable(
                "The service's database did not answer for too long, or lost this lease, so a RESTORE and a VACUUM of this "
                "table may have run at once. Nothing more was done; try again."
            )

    def take_down(self) -> None:
        """Take the flag down; if the database does not answer, it expires."""
        self._released.set()
        row = FileLeaseRow
        with suppress(ServiceUnavailable), self._database.write() as session:
            session.execute(delete(row).where(row.location_hash == self._key, row.owner == self.owner))

    def _renew(self) -> None:
        row, pause = FileLeaseRow, self._seconds / _RENEWALS
        while not self._released.wait(pause):
            began = time.monotonic()
            try:
                with self._database.write() as session:
                    now = _now(session)
                    still = session.execute(
                        update(row)
                        .where(row.location_hash == self._key, row.owner == self.owner, row.expires_at > now)
                        .values(expires_at=now + timedelta(seconds=self._seconds))
                        .returning(row.owner)
                    ).first()
            except ServiceUnavailable:
                continue
            if still is None:
                self._until = 0.0  # somebody deleted the database; the other kind may have begun
                return
            self._until = began + self._seconds


class DeletionLocks:
    """Keeps RESTORE and what deletes files apart, table by table; safe to share between threads.

    Args:
        database: that other processes share.
        seconds: how long a process that dies blocks the other kind.
    """

    def __init__(self, database: Database, *, seconds: float = _SECONDS) -> None:
        self._database, self._seconds = database, seconds

    @contextmanager
    def deleting(self, location: str) -> Iterator[FileLease]:
        """Block RESTOREs of the table at a canonical location while its files are deleted; waits for running ones.

        Raises:
            ServiceUnavailable: the database does not answer.
        """
        pause = _Backoff()
        with _lock(location).deleting():
            while True:
                with self._lease(location, "deleting") as lease:
                    if not lease.is_opposed():
                        yield lease
                        return
                pause()

    @contextmanager
    def restoring(self, location: str) -> Iterator[FileLease]:
        """Block deletes of files of the table at a canonical location while some are restored; waits for running ones.

        Raises:
            ServiceUnavailable: the database does not answer.
        """
        pause = _Backoff()
        with _lock(location).restoring(), self._lease(location, "restoring") as lease:
            while lease.is_opposed():
                pause()
            yield lease

    @contextmanager
    def _lease(self, location: str, kind: _Kind) -> Iterator[FileLease]:
        lease = FileLease(self._database, location, kind, self._seconds)
        lease.show()
        try:
            yield lease
        finally:
            lease.take_down()


class _Backoff:
    """Waits longer each time."""

    def __init__(self) -> None:
        self._seconds = _SHORTEST_PAUSE

    def __call__(self) -> None:
        time.sleep(self._seconds)
        self._seconds = min(2 * self._seconds, _LONGEST_PAUSE)


def _now(session: Session) -> datetime:
    """Return the time by the clock that all processes share: the server's, or for SQLite this machine's."""
    if session.get_bind().dialect.name != "postgresql":
        return datetime.now(UTC)
    found: datetime = session.execute(select(func.clock_timestamp())).scalar_one()
    return found


class _TableLock:
    """Within a process: shared by any number of RESTOREs, or held by one VACUUM."""

    def __init__(self) -> None:
        self._released = threading.Condition()
        self._restores = 0
        self._is_deleting = False

    @contextmanager
    def restoring(self) -> Iterator[None]:
        with self._released:
            self._released.wait_for(lambda: not self._is_deleting)
            self._restores += 1
        try:
            yield
        finally:
            with self._released:
                self._restores -= 1
                self._released.notify_all()

    @contextmanager
    def deleting(self) -> Iterator[None]:
        with self._released:
            self._released.wait_for(lambda: not self._is_deleting and not self._restores)
            self._is_deleting = True
        try:
            yield
        finally:
            with self._released:
                self._is_deleting = False
                self._released.notify_all()


_LOCKS: Final[WeakValueDictionary[str, _TableLock]] = WeakValueDictionary()


def _lock(location: str) -> _TableLock:
    with _GUARD:
        lock = _LOCKS.get(location)
        if lock is None:
            lock = _LOCKS[location] = _TableLock()
        return lock
