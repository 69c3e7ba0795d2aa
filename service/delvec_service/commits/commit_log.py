"""The log as commits need it: which commit came first, whether it was ours, and creating a version."""

import random
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from itertools import chain
from typing import Final

from delvec_errors import (
    AtomicCreateUnsupported,
    CommitOutcomeUnknown,
    MissingLogFile,
    RequestTooLarge,
    StorageError,
)
from delvec_kernel.log.log_segment import commit_path
from delvec_kernel.snapshot.replay import Commit
from delvec_kernel.transaction.conflict_checker import WinningCommit
from delvec_kernel.transaction.group_commit import REQUEST_HASH_TAG, MemberInfo, members_of
from delvec_service.commits import fault_points
from delvec_service.commits.commit_result import Committed, Rebased
from delvec_service.commits.idempotency import Answers, key_reused
from delvec_service.snapshots.loader import SnapshotLoader
from delvec_service.snapshots.log_reader import LogReader
from delvec_service.store.lru_cache import LruCache
from delvec_service.store.objects import ObjectStore
from delvec_service.store.open_table import OpenTable

__all__ = ["AmbiguousPutError", "CommitLog", "LogEntry", "check_size"]

_PUT_ATTEMPTS: Final = 4
_PUT_PAUSE_SECONDS: Final = 0.2
_MAX_ACTIONS: Final = 40_000
"""For all cached entries; about 60 MB."""
_OVERHEAD: Final = 10
"""Of an entry, in actions: at most 4,000 entries are cached."""
_LARGE: Final = 2000
_MAX_DIGITS: Final = 18
_AT_ONCE: Final = 64
_MAX_SEARCHED_VERSIONS: Final = 1000
"""A search of 8,000 took 1.7 s on a local disk, for each request with a key; the entries of so few stay in memory."""
_CLOCKS: Final = timedelta(minutes=5)
"""How far the clocks of storage and service may differ, and how long a request goes on when the database is lost."""


class AmbiguousPutError(Exception):
    """Storage failed while creating a version, and cannot tell whether it was created."""

    def __init__(self, version: int, failure: StorageError) -> None:
        super().__init__(version)
        self.version = version
        self.failure = failure

    def outcome(self, table: OpenTable, key: str) -> CommitOutcomeUnknown:
        """Return the error for the transaction that was to be in the version."""
        return CommitOutcomeUnknown(
            f"Storage failed while version {self.version} of table '{table.name}' was being created: "
            f"{self.failure.message} Send the same request again, or look for transaction {key} in the table's history.",
            table=table.name,
            version=self.version,
            transaction_id=key,
        )


@dataclass(frozen=True, eq=False)
class LogEntry:
    """A version that is in the log.

    Attributes:
        commit: the commit as it was read.
        winner: the same, in the form the conflict check needs.
    """

    commit: Commit
    winner: WinningCommit

    def transaction(self, key: str) -> MemberInfo | None:
        """Return what the version records about a transaction, if it contains it."""
        return self._transactions.get(key)

    @cached_property
    def _transactions(self) -> dict[str, MemberInfo]:
        info = self.winner.info
        if info is None:
            return {}
        transactions = {member.key: member for member in members_of(info)}
        if not transactions and info.txn_id is not None:
            metrics = {
                name: int(value)
                for name, value in (info.operation_metrics or {}).items()
                if str(value).isdecimal() and len(str(value)) <= _MAX_DIGITS
            }
            read = self.winner.version - 1 if info.read_version is None else info.read_version
            hashed = (info.tags or {}).get(REQUEST_HASH_TAG)
            transactions[info.txn_id] = MemberInfo(
                info.txn_id, read, None, metrics, hashed if isinstance(hashed, str) else None
            )
        return transactions


def check_size(table: OpenTable, data: bytes) -> None:
    """Check that readers accept a commit.

    Raises:
        RequestTooLarge: it is too large.
    """
    if len(data) > table.objects.max_commit_bytes:
        raise RequestTooLarge(
            f"The commit to table '{table.name}' has {len(data)} bytes as JSON, and the limit is "
            f"{table.objects.max_commit_bytes}. Commit in several parts, or raise DELVEC_MAX_COMMIT_BYTES.",
            table=table.name,
        )


class CommitLog:
    """Reads and creates versions. Safe to share between threads.

    Args:
        loader: has already read most of the entries.
        answers: note what was the newest version when a request was first sent.
    """

    def __init__(self, loader: SnapshotLoader, answers: Answers) -> None:
        self._loader = loader
        self._answers = answers
        self._may_follow: Callable[[OpenTable, int], bool] = lambda *_: True
        self._entries: LruCache[tuple[str, int], LogEntry] = LruCache(_MAX_ACTIONS)

    def entries(self, table: OpenTable, first: int, last: int) -> list[LogEntry]:
        """Return the versions from ``first`` to ``last``.

        They are the commits that the newest snapshot was built from, even if another writer has replaced one since.

        Raises:
            MissingLogFile: an entry has been cleaned up.
            CorruptLog: one cannot be read.
            StorageError: storage did not answer.
        """
        if first > last:
            return []
        versions = range(first, last + 1)
        commits = self._loader.commits(table.objects, table.name, versions)
        return [
            self._entry(table, version, commit) for version, commit in zip(versions, commits, strict=True)
        ]

    def newest_first(self, table: OpenTable, first: int, last: int) -> Iterator[LogEntry]:
        """Yield the versions from ``last`` down to ``first``, as far back as the log goes.

        Raises:
            CorruptLog: one cannot be read.
            StorageError: storage did not answer.
        """
        with suppress(MissingLogFile):
            for high in range(last, first - 1, -_AT_ONCE):
                low = max(first, high - _AT_ONCE + 1)
                try:
                    yield from reversed(self.entries(table, low, high))
                except MissingLogFile:
                    for version in range(high, low - 1, -1):
                        yield from self.entries(table, version, version)
                    return

    def earlier(
        self, table: OpenTable, key: str | None, request_hash: str, since: int | None, newest: int
    ) -> tuple[Committed, WinningCommit] | None:
        """Return the commit of an earlier copy of a request that is computed from the newest version.

        Args:
            table: the table.
            key: its transaction id; None: it has none that another copy could have.
            request_hash: its hash.
            since: a version that was the newest before the request was first sent; None: the one that its first copy
                noted in the database.
            newest: the version to search to.

        Raises:
            CommitOutcomeUnknown: the log no longer has all the versions since.
            IdempotencyKeyReused: another request was committed under the key.
            ServiceUnavailable: the database does not store the note; nothing was done.
            CorruptLog: a version cannot be read.
            StorageError: storage did not answer.
        """
        if key is None:
            return None
        forgotten = range(0)
        if since is None:
            since = self._answers.first_version(key, request_hash, newest)
            forgotten = self._forgotten(table, since)
        try:
            entries = self.entries(table, since + 1, newest)
        except MissingLogFile as error:
            raise CommitOutcomeUnknown(
                f"The log of table '{table.name}' no longer has all the versions from {since + 1} on, so it is unknown "
                f"whether transaction {key} was committed. Check the table and decide again.",
                table=table.name,
                version=since,
                transaction_id=key,
            ) from error
        for entry in chain(entries, self.newest_first(table, forgotten.start, forgotten.stop - 1)):
            said = entry.transaction(key)
            if said is not None:
                if said.request_hash not in (None, request_hash):
                    raise key_reused(key)
                winners = tuple(range(said.read_version + 1, entry.winner.version))
                kind = Rebased if winners else Committed
                committed = kind(
                    entry.winner.version, said.read_version, key, said.metrics, winners, replayed=True
                )
                return committed, entry.winner
        return None

    def _forgotten(self, table: OpenTable, until: int) -> range:
        """Return the versions up to one that may be commits of requests whose notes were lost with the database.

        A database that was lost does not know the table until it is registered again: one that has known it for as long
        as notes are kept has lost none. The times are those of the files, as everything in them may be wrong.
        """
        registered = table.record.created_at.astimezone(UTC)
        oldest = datetime.now(UTC) - self._answers.kept
        if registered < oldest:
            return range(0)
        times = range(_milliseconds(oldest - _CLOCKS), _milliseconds(registered + _CLOCKS) + 1)
        commits = LogReader(table.objects, table.name).list_all().commits
        versions = [
            number for number, file in commits.items() if number <= until and file.last_modified_ms in times
        ]
        if not versions:
            return range(0)
        return range(max(min(versions), max(versions) + 1 - _MAX_SEARCHED_VERSIONS), max(versions) + 1)

    def _entry(self, table: OpenTable, version: int, commit: Commit) -> LogEntry:
        key = table.location, version
        found = self._entries.get(key)
        if found is not None and found.commit is commit:
            return found
        entry = LogEntry(commit, WinningCommit.of(version, commit.actions, table.location))
        if len(commit.actions) <= _LARGE:
            self._entries.put(key, entry, max(_OVERHEAD, len(commit.actions)))
        return entry

    def create(self, table: OpenTable, version: int, data: bytes) -> bool:
        """Create a version. Returns False if another commit has it or will get it, or if the version before was replaced.

        If storage fails midway, the entry may or may not exist. Reading it settles that: the bytes contain the
        transaction id, so an entry with the same bytes is this commit.

        Raises:
            AtomicCreateUnsupported: storage cannot create a file atomically; no entry was created.
            AmbiguousPutError: the entry may exist, or may appear later.
            RequestTooLarge: readers reject an entry that large.
            StorageError: storage failed, and no entry was created.
        """
        check_size(table, data)
        if not self._loader.is_unchanged(table.objects, version - 1):
            return False  # another program was still writing it
        return self._may_follow(table, version - 1) and self.publish(table.objects, version, data)

    def when_following(self, may_follow: Callable[[OpenTable, int], bool]) -> None:
        """Register what decides whether a commit may follow a version; it may wait until it knows."""
        self._may_follow = may_follow

    def publish(self, objects: ObjectStore, version: int, data: bytes) -> bool:
        """Create a version that is this commit's alone to create; as :meth:`create`, for the rest."""
        before = self._loader.known(objects.location)
        # A catalog is asked more thoroughly than that: see ManagedLog.
        for number in range(1 if objects.is_coordinated else _PUT_ATTEMPTS):
            try:
                fault_points.reach("before-put")
                created = objects.commit(version, data, before)
                fault_points.reach("after-put")
            except AtomicCreateUnsupported:
                raise
            except StorageError as error:
                failure = error
                time.sleep(random.uniform(0, _PUT_PAUSE_SECONDS * 2**number))  # noqa: S311 - spreads load
            else:
                if created:
                    self._loader.created(objects.location, version, len(data))
                return created
        return self._settled(objects, version, data, failure)

    def _settled(self, objects: ObjectStore, version: int, data: bytes, failure: StorageError) -> bool:
        """Check after a failure whether an entry is ours, by reading it."""
        is_local = objects.is_local
        try:
            ours = objects.get(commit_path(version)) == data
        except FileNotFoundError:
            if is_local:
                raise failure from None  # a missing local file will not appear later
            raise AmbiguousPutError(version, failure) from failure
        except StorageError:
            raise AmbiguousPutError(version, failure) from failure
        if ours and is_local:
            raise AmbiguousPutError(version, failure)  # it exists, but may not survive a power failure
        return ours


def _milliseconds(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)
