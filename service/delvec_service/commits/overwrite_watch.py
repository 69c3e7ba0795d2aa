"""Watches the commits of this service until no writer can replace them any more.

A writer that checks whether a version is free and then renames a file to it (delta-spark on local disk, or on S3
without a DynamoDB table) may replace a commit that was acknowledged in between. That cannot be prevented; it can be
detected and reported, and what was read before can be dropped. A thread does this, so that no commit waits for it.
"""

import json
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final

from cachetools import LRUCache

from delvec_errors import (
    CommitOverwritten,
    CorruptTable,
    DelvecError,
    MissingLogFile,
    ServiceUnavailable,
    UnsupportedTable,
)
from delvec_kernel.actions.actions import CommitInfo, first_of
from delvec_kernel.locations import table_id
from delvec_kernel.log.log_segment import ListedFile, LogListing
from delvec_kernel.transaction.group_commit import members_of
from delvec_service.background_worker import BackgroundWorker
from delvec_service.logs import logger
from delvec_service.snapshots.loader import SnapshotLoader
from delvec_service.snapshots.log_reader import LogReader
from delvec_service.store.answers import ANY_REQUEST, AnswerStore
from delvec_service.store.models import storable
from delvec_service.store.objects import ObjectStore
from delvec_service.store.own_commits import Overwritten, OwnCommit, OwnCommitStore

__all__ = ["OverwriteWatch", "overwritten_error"]

_PAUSE_SECONDS: Final = 0.5
_WATCHED_SECONDS: Final = 30.0
"""This long after it checked for a free version, a writer is no longer expected to rename its file."""
_MAX_WATCHED: Final = 256
_EVENTS: Final = 100
_LOST: Final = 1000


@dataclass
class _Watched:
    """An own commit that may still be replaced.

    Attributes:
        since: by the monotonic clock.
        keys: the keys of the transactions in it; empty if only the database knows them.
        modified: time of its file when first seen, None before.
    """

    commit: OwnCommit
    since: float
    keys: Sequence[str] = ()
    modified: int | None = None


@dataclass
class _Watch:
    """The watched commits of one table.

    Attributes:
        versions: the versions of ``commits``, by the keys of their transactions.
        suspected: something in its log was replaced; compare everything known about it.
    """

    objects: ObjectStore
    name: str
    commits: dict[int, _Watched] = field(default_factory=dict)
    versions: dict[str, int] = field(default_factory=dict)
    suspected: bool = False

    def keep(self, one: _Watched) -> None:
        self.commits[one.commit.version] = one
        self.versions.update(dict.fromkeys(one.keys, one.commit.version))
        if len(self.commits) > _MAX_WATCHED:
            self.drop(next(iter(self.commits)))

    def drop(self, version: int) -> None:
        for key in self.commits.pop(version).keys:
            self.versions.pop(key, None)


class OverwriteWatch:
    """Own commits of all tables. Safe to share between threads.

    Args:
        loader: its snapshots are dropped if a commit was replaced.
        store: knows the commits of other replicas and of processes before this one.
        answers: stores the answer for the writer of a replaced commit, should it ask again.
        pause: seconds between two checks of a log that is being written.
        watched: how many seconds to keep checking a commit; 0 to check only on suspicion.
    """

    def __init__(
        self,
        loader: SnapshotLoader,
        store: OwnCommitStore,
        answers: AnswerStore,
        *,
        pause: float = _PAUSE_SECONDS,
        watch_seconds: float = _WATCHED_SECONDS,
    ) -> None:
        self._loader = loader
        self._store = store
        self._answers = answers
        self._pause = pause
        self._seconds = watch_seconds
        self._worker = BackgroundWorker("delvec-own-commits", self._run)
        self._lock = threading.Lock()
        self._watches: dict[str, _Watch] = {}
        self._found: dict[str, LRUCache[tuple[int, str], Overwritten]] = {}
        self._lost: LRUCache[tuple[str, str], Overwritten] = LRUCache(_LOST)
        loader.when_replaced(self.suspect)
        loader.when_grown(self._drop_checksums)

    # --- on the threads of requests -----------------------------------------------------------------------

    def committed(
        self, objects: ObjectStore, table: str, commit: OwnCommit, transactions: Sequence[str]
    ) -> None:
        """Record a commit and the transactions in it. Returns at once."""
        if not self._seconds or objects.is_coordinated:  # no writer can replace what a catalog has ratified
            return
        with self._lock:
            self._watch(objects, table).keep(_Watched(commit, time.monotonic(), transactions))

    def version_of(self, location: str, key: str) -> int | None:
        """Return the version that this service committed a transaction as, or None if unknown."""
        watch = self._watches.get(location)
        return None if watch is None else watch.versions.get(key)

    def check(self, objects: ObjectStore, table: str, key: str, newest: int) -> None:
        """Fail if the transaction was committed but is in no version of the log up to ``newest``.

        Raises:
            CommitOverwritten: it was committed; another commit is in its place.
        """
        with self._lock:
            overwritten_commit = self._lost.get((objects.location, key))
        if overwritten_commit is None:
            version = self.version_of(objects.location, key)
            if version is None or version > newest:
                return
            self.suspect(objects, table)
            overwritten_commit = Overwritten(version, key, None, None, None, newest, _now())
        raise overwritten_error(replace(overwritten_commit, key=key), table)

    def suspect(self, objects: ObjectStore, table: str) -> None:
        """Schedule a comparison of all known commits of a table with its log. Returns at once."""
        with self._lock:
            watch = self._watch(objects, table)
            watch.suspected = True
            self._look_soon(watch)

    def explain(self, objects: ObjectStore, table: str, read_version: int) -> CommitOverwritten | None:
        """Return the error for a transaction that misses files it read, or None if no commit it read is gone.

        Raises:
            StorageError: storage did not answer.
        """
        self._compare(objects, table, self._known(objects.location), thoroughly=False)
        for one in self.overwritten(objects.location):
            if one.version <= read_version <= one.newest_version:
                return overwritten_error(one, table, reader=read_version)
        return None

    def overwritten(self, location: str) -> Sequence[Overwritten]:
        """Return the own commits of a table that were replaced, latest first."""
        with self._lock:
            found: dict[tuple[int, str], Overwritten] = dict(self._found.get(location, ()))
        with suppress(ServiceUnavailable):  # then those that this process found
            found |= {(one.version, one.key): one for one in self._store.overwritten(table_id(location))}
        return sorted(found.values(), key=lambda one: (one.found_at, one.version), reverse=True)[:_EVENTS]

    def compare(self, objects: ObjectStore, table: str) -> Sequence[Overwritten]:
        """Read all known own commits that are still in the log; return those found replaced, now or earlier.

        Raises:
            NotADeltaTable: there is no log.
            StorageError: storage did not answer.
        """
        # Whether a damaged log is still that of the same table, nobody can tell; the check of the log reports the damage.
        with suppress(CorruptTable, UnsupportedTable):
            self._compare(objects, table, self._known(objects.location), thoroughly=True)
        return self.overwritten(objects.location)

    def wait(self, seconds: float) -> bool:
        """Check everything now; return whether that finished in time."""
        with self._lock:
            for watch in self._watches.values():
                watch.suspected = True
                self._look_soon(watch)
        return self._worker.wait(seconds)

    def close(self) -> None:
        """Stop looking."""
        self._worker.close()

    def _watch(self, objects: ObjectStore, table: str) -> _Watch:
        watch = self._watches.get(objects.location)
        if watch is None:
            watch = self._watches[objects.location] = _Watch(objects, table)
            self._look_soon(watch, after=self._pause)
        return watch

    def _look_soon(self, watch: _Watch, *, after: float = 0.0) -> None:
        # Under the lock: a later task could otherwise replace a watch that was created since, with its commits.
        self._worker.schedule(watch.objects.location, watch, after=after)

    # --- on its own thread --------------------------------------------------------------------------------

    def _run(self, watch: _Watch) -> None:
        try:
            self._look(watch)
        except DelvecError as error:
            logger.info("own commits not compared", table=watch.name, reason=error.message)

    def _look(self, watch: _Watch) -> None:
        began = time.monotonic()
        with self._lock:
            thoroughly, watch.suspected = watch.suspected, False
            known = {one.commit.version: one for one in watch.commits.values()}
        if thoroughly:
            for commit in self._stored(watch.objects.location):
                known.setdefault(commit.version, _Watched(commit, began))
        try:
            self._compare(watch.objects, watch.name, known.values(), thoroughly=thoroughly)
        finally:
            with self._lock:
                for version, one in list(watch.commits.items()):
                    if began - one.since > self._seconds:
                        watch.drop(version)
                newest = max((one.since for one in watch.commits.values()), default=began)
                if watch.commits or watch.suspected:
                    # The longer ago the last commit, the less often.
                    self._look_soon(watch, after=max(self._pause, began - newest))
                elif self._watches.get(watch.objects.location) is watch:  # not one that was created since
                    self._watches.pop(watch.objects.location)

    # --- both ---------------------------------------------------------------------------------------------

    def _known(self, location: str) -> Sequence[_Watched]:
        now = time.monotonic()
        found = {commit.version: _Watched(commit, now) for commit in self._stored(location)}
        with self._lock:
            watch = self._watches.get(location)
            found |= {} if watch is None else watch.commits
        return list(found.values())

    def _stored(self, location: str) -> Sequence[OwnCommit]:
        try:
            return self._store.newest(table_id(location))
        except ServiceUnavailable:
            return ()

    def _compare(
        self, objects: ObjectStore, table: str, known: Iterable[_Watched], *, thoroughly: bool
    ) -> None:
        """Compare commits with the log: by size and time, and thoroughly by content."""
        by_version = {one.commit.version: one for one in known}
        if not by_version:
            return
        reader = LogReader(objects, table)
        listing = reader.list_after(min(by_version))
        overwritten_commits: list[tuple[_Watched, Overwritten]] = []
        for version, one in by_version.items():
            file = listing.commits.get(version)
            # A version that is not listed was cleaned up, or the table is gone: no other commit is in its place.
            if file is None:
                continue
            if thoroughly or not _same(one, file):
                found = self._replacement(reader, one, listing)
                overwritten_commits += [] if found is None else [(one, found)]
            one.modified = file.last_modified_ms
        known_overwrites = (
            {(one.version, one.key) for one in self.overwritten(objects.location)}
            if overwritten_commits
            else set()
        )
        overwritten_commits = [
            one for one in overwritten_commits if (one[1].version, one[1].key) not in known_overwrites
        ]
        if overwritten_commits:
            self._report(objects, table, overwritten_commits)

    def _replacement(self, reader: LogReader, one: _Watched, listing: LogListing) -> Overwritten | None:
        """Return the commit that replaced a watched one, or None if it was not replaced."""
        try:
            info = reader.commit_info(one.commit.version)
        except CorruptTable:
            return None  # it was deleted just now, or is damaged, which does not tell whose it is
        if info is not None and info.txn_id == one.commit.key:
            return None
        return Overwritten(
            one.commit.version,
            one.commit.key,
            None if info is None else info.operation,
            None if info is None else info.engine_info,
            None if info is None else info.txn_id,
            listing.latest,
            _now(),
        )

    def _report(
        self, objects: ObjectStore, table: str, overwritten_commits: Sequence[tuple[_Watched, Overwritten]]
    ) -> None:
        # Memory and database were filled before: they contain rows of commits that no longer exist.
        self._loader.forget(objects.location)
        self._drop_checksums(objects, table, min(found.version for _, found in overwritten_commits))
        metadata_id = storable(self._loader.load(objects, table).metadata.id)
        for one, found in overwritten_commits:
            if metadata_id.startswith(storable(one.commit.metadata_id)):  # not a different table in its place
                self._keep(objects, table, found, one.keys)
        with self._lock:
            watch = self._watches.get(objects.location)
            for one, _ in overwritten_commits:
                if watch is not None and watch.commits.get(one.commit.version) is one:
                    watch.drop(one.commit.version)

    def _drop_checksums(self, objects: ObjectStore, table: str, first: int) -> None:
        """Delete own checksums, from a version on, that were computed before the commit was replaced.

        Readers would reject the table because of them.
        """
        own = {one.commit.version: one.commit.key for one in self._known(objects.location)}
        reader = LogReader(objects, table)
        for version, file in reader.list_after(first).checksums.items():
            checksum = reader.checksum(file) if version in own else None
            if checksum is not None and checksum.txn_id == own[version]:
                objects.delete(f"_delta_log/{file.name}")

    def _keep(
        self, objects: ObjectStore, table: str, overwritten_commit: Overwritten, keys: Sequence[str]
    ) -> None:
        id_ = table_id(objects.location)
        with suppress(ServiceUnavailable):
            keys = keys or self._store.transactions(id_, overwritten_commit.version)
        again = self._committed_again(objects, table, overwritten_commit)
        keys = [key for key in keys or (overwritten_commit.key,) if key not in again]
        with self._lock:
            events = self._found.setdefault(objects.location, LRUCache(_EVENTS))
            news = (
                events.setdefault((overwritten_commit.version, overwritten_commit.key), overwritten_commit)
                is overwritten_commit
            )
            self._lost.update({(objects.location, key): overwritten_commit for key in keys})
        with suppress(ServiceUnavailable):
            news = self._store.note(id_, overwritten_commit)
            for key in keys if news else ():
                error = overwritten_error(replace(overwritten_commit, key=key), table)
                self._answers.keep(key, ANY_REQUEST, error.status, json.dumps(error.to_wire()).encode())
        if news:
            logger.error(
                "commit overwritten",
                table=table,
                version=overwritten_commit.version,
                transactions=list(keys),
                by_operation=overwritten_commit.by_operation,
                by_engine=overwritten_commit.by_engine,
                by_transaction=overwritten_commit.by_key,
            )

    def _committed_again(self, objects: ObjectStore, table: str, found: Overwritten) -> set[str]:
        """Return the transactions of the versions since: a writer may have retried before this was detected."""
        again: set[str] = set()
        try:
            since = LogReader(objects, table).commits(range(found.version + 1, found.newest_version + 1))
        except MissingLogFile:
            return again
        for commit in since:
            info = first_of(CommitInfo, commit.actions)
            if info is not None:
                again.update(member.key for member in members_of(info))
                again.add(info.txn_id or "")
        return again


def overwritten_error(
    overwritten_commit: Overwritten, table: str, *, reader: int | None = None
) -> CommitOverwritten:
    """Return the error for the writer of a replaced commit, or for one whose version ``reader`` includes it."""
    what = (
        f"a commit '{overwritten_commit.by_operation}'"
        if overwritten_commit.by_operation
        else "another commit"
    )
    who = f" by {overwritten_commit.by_engine}" if overwritten_commit.by_engine else ""
    loss = (
        "The transaction's changes are not in the table"
        if reader is None
        else f"Version {reader} of the table is not what it was when it was read"
    )
    return CommitOverwritten(
        f"Version {overwritten_commit.version} of table '{table}' was committed by transaction {overwritten_commit.key}, and has been "
        f"replaced by {what}{who}: the other writer does not create versions atomically. {loss}. Run the command "
        "again, and do not let such writers run at the same time as Delvec.",
        table=table,
        version=overwritten_commit.version,
        transaction_id=overwritten_commit.key,
        **({} if reader is None else {"replaced": "read-version"}),
        conflict={
            "winning-version": overwritten_commit.version,
            "winning-operation": overwritten_commit.by_operation,
            "winning-engine": overwritten_commit.by_engine,
            "winning-transaction": overwritten_commit.by_key,
            "advice": "run the command again: it will read the current version.",
        },
    )


def _same(one: _Watched, file: ListedFile) -> bool:
    return file.size == one.commit.size and one.modified in (None, file.last_modified_ms)


def _now() -> datetime:
    return datetime.now(UTC)
