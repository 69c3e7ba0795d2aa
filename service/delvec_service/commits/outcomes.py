"""Outcomes of commits by their keys, for clients that lost the answer.

Tested in `tests/integration/client/http/test_lost_answers.py`.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from delvec_errors import MissingLogFile, ServiceUnavailable
from delvec_service.commits.commit_log import CommitLog, LogEntry
from delvec_service.commits.commit_result import Committed, Rebased
from delvec_service.commits.idempotency import Answers
from delvec_service.snapshots.loader import SnapshotLoader
from delvec_service.store.answers import StoredAnswer
from delvec_service.store.ledger import Ledger
from delvec_service.store.open_table import OpenTable

__all__ = ["Outcome", "Outcomes"]

_MAX_SEARCHED_VERSIONS: Final = 10_000


@dataclass(frozen=True)
class Outcome:
    """What is known of a commit.

    Attributes:
        committed: the version that contains it.
        answer: the stored answer, if no version contains it.
        searched: the first and last version searched.
    """

    committed: Committed | None
    answer: StoredAnswer | None
    searched: tuple[int, int]


class Outcomes:
    """Finds commits by their keys: in the log, which is the source of truth, then among the stored answers.

    Args:
        loader: knows the newest version.
        log: reads commits.
        ledger: may know the version.
        answers: has conflicts, and commits that had nothing to do.
    """

    def __init__(self, loader: SnapshotLoader, log: CommitLog, ledger: Ledger, answers: Answers) -> None:
        self._loader = loader
        self._log = log
        self._ledger = ledger
        self._answers = answers

    def find(self, table: OpenTable, key: str, read_version: int | None) -> Outcome:
        """Return the outcome of a commit; empty if it is still running, was never sent, or has been cleaned up.

        Args:
            table: the table.
            key: the transaction id.
            read_version: what the commit read, if known: no version up to there can contain it. Without it the newest
                10,000 versions are searched.

        Raises:
            CorruptLog: a commit cannot be read.
            StorageError: storage did not answer.
        """
        newest = self._loader.load(table.objects, table.name).version
        first = (
            max(0, newest - _MAX_SEARCHED_VERSIONS + 1)
            if read_version is None
            else min(read_version, newest) + 1
        )
        searched = newest + 1
        for entry in self._entries(table, key, first, newest):
            version, said = entry.winner.version, entry.transaction(key)
            if said is not None:
                passed = tuple(range(said.read_version + 1, version))
                kind = Rebased if passed else Committed
                done = kind(version, said.read_version, key, said.metrics, passed)
                return Outcome(done, None, (version, newest))
            if version + 1 == searched:
                searched = version
        return Outcome(None, self._answers.of_commit(key, table.name, table.record.id), (searched, newest))

    def _entries(self, table: OpenTable, key: str, first: int, newest: int) -> Iterator[LogEntry]:
        """Yield the versions to search: the one that the ledger knows first, then all of them, newest first."""
        try:
            known = self._ledger.transaction(table.record.id, key)
        except ServiceUnavailable:
            known = None
        with suppress(MissingLogFile):
            if known is not None and known.version is not None and known.version <= newest:
                yield from self._log.entries(table, known.version, known.version)
        yield from self._log.newest_first(table, first, newest)
