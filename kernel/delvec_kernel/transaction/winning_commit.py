"""A winning commit's actions by kind, and the files from which the current transaction removes rows.

Tested in `tests/unit/kernel/transaction/test_conflict_checker.py` and
`tests/unit/kernel/transaction/test_rebase.py`.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import pyarrow as pa
from pyroaring import BitMap64

from delvec_errors import CorruptLog, CorruptTable, DelvecError
from delvec_kernel import locations
from delvec_kernel.actions.action_json import json_text
from delvec_kernel.actions.actions import (
    Action,
    AddFile,
    CommitInfo,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    Txn,
)
from delvec_kernel.data_skipping.truth import prune
from delvec_kernel.file_index.file_rows import TEXT_MAP, num_records_from_stats
from delvec_kernel.statistics import file_statistics as statistics
from delvec_kernel.transaction import row_maps, row_runs
from delvec_kernel.transaction.current_transaction import CurrentTransaction
from delvec_kernel.transaction.group_commit import MemberInfo, members_of
from delvec_kernel.transaction.row_runs import SourceRuns
from delvec_kernel.transaction.transaction_changes import RowMap, RowRun

__all__ = ["AddedFiles", "Target", "WinningCommit", "live_rows", "num_records", "stale_files_tag"]


@dataclass
class Target:
    """A file, or rows of it, that we remove, followed through the winners.

    Attributes:
        path: as to be written in our commit.
        rows: row indexes to remove; None for all rows that were live when we read the file.
        first: the file action with the deletion vector that we read; None while no winner has touched the file.
        base: the rows deleted then, once they have been read.
        last: the file as the last winner left it.
        is_live: whether the file is still live.
    """

    path: str
    rows: BitMap64 | None
    first: AddFile | RemoveFile | None = None
    base: BitMap64 | None = None
    last: AddFile | RemoveFile | None = None
    is_live: bool = True

    @property
    def is_whole(self) -> bool:
        """Whether we remove all rows."""
        return self.rows is None


def live_rows(file: AddFile | RemoveFile) -> int | None:
    """Return the number of live rows of a file, None if unknown."""
    physical = num_records(file)
    num_deleted_rows = file.deletion_vector.cardinality if file.deletion_vector else 0
    return None if physical is None else physical - num_deleted_rows


def num_records(file: AddFile | RemoveFile) -> int | None:
    """Return the number of physical rows of a file, None if unknown."""
    try:
        return None if file.stats is None else statistics.num_records(file.stats)
    except (CorruptLog, CorruptTable):
        return None


_STALE_FILES: Final = "delvec.staleFiles"
_MANY_ROWS: Final = 2**27
_DELETING_OPERATIONS: Final = frozenset({"DELETE", "UPDATE", "MERGE"})


@dataclass(frozen=True)
class WinningCommit:
    """The actions of a winning commit.

    Attributes:
        adds: by canonical path; the last add if a path is added twice.
        removes: by canonical path.
        txns: by application.
        domains: by name.
        stale_removes: paths of which a repair removed only a superseded logical file. They stay live, so they are not in
            ``removes``.
    """

    version: int
    info: CommitInfo | None
    adds: Mapping[str, AddFile]
    removes: Mapping[str, RemoveFile]
    metadata: Metadata | None
    protocol: Protocol | None
    txns: Mapping[str, Txn]
    domains: Mapping[str, DomainMetadata]
    location: str
    stale_removes: frozenset[str] = frozenset()

    @classmethod
    def of(cls, version: int, actions: Iterable[Action], location: str) -> "WinningCommit":
        """Group the actions of a commit to the table at ``location``.

        Raises:
            CorruptLog: or a sibling: a path is invalid.
        """
        info: CommitInfo | None = None
        metadata: Metadata | None = None
        protocol: Protocol | None = None
        adds: dict[str, AddFile] = {}
        removes: dict[str, RemoveFile] = {}
        txns: dict[str, Txn] = {}
        domains: dict[str, DomainMetadata] = {}
        for action in actions:
            match action:
                case AddFile():
                    adds[locations.canonical_log_path(action.path, location)] = action
                case RemoveFile():
                    removes[locations.canonical_log_path(action.path, location)] = action
                case CommitInfo():
                    info = info or action
                case Metadata():
                    metadata = action
                case Protocol():
                    protocol = action
                case Txn():
                    txns[action.app_id] = action
                case DomainMetadata():
                    domains[action.domain] = action
        stale = _stale_files(info, location) & removes.keys()
        for key in stale:
            del removes[key]
        return cls(version, info, adds, removes, metadata, protocol, txns, domains, location, stale)

    @property
    def operation(self) -> str:
        """The operation in commitInfo."""
        return (self.info.operation if self.info else None) or "unknown operation"

    @property
    def txn_id(self) -> str | None:
        """The transaction id; None if the commit has none, as group commits do."""
        return self.info.txn_id if self.info else None

    @cached_property
    def members(self) -> Sequence[MemberInfo]:
        """The members of a group commit; empty for other commits, or if the list is malformed."""
        return members_of(self.info) if self.info else ()

    @property
    def is_blind_append(self) -> bool:
        """Whether it claims to be a blind append, and only adds files."""
        return self.info is not None and self.info.is_blind_append is True and not self.removes

    @cached_property
    def new_files(self) -> Mapping[str, AddFile]:
        """Adds of paths that it does not also remove: new files, or files added again unchanged."""
        if not self.adds or self.adds.keys() <= self.removes.keys():
            return {}
        return {path: add for path, add in self.adds.items() if path not in self.removes}

    @cached_property
    def changes_data(self) -> bool:
        """Whether any action changes rows, rather than rearranging them."""
        return any(add.data_change for add in self.adds.values()) or any(
            remove.data_change for remove in self.removes.values()
        )

    @property
    def only_deletes_more(self) -> bool:
        """Whether its deletion vectors certainly contain those they replace."""
        return self.operation in _DELETING_OPERATIONS

    @property
    def is_restore(self) -> bool:
        """Whether it is a RESTORE or a CLONE."""
        return self.operation in ("RESTORE", "CLONE")

    @cached_property
    def sources(self) -> Mapping[str, SourceRuns]:
        """Where it put the rows of files that it compacted, by canonical path; empty if unknown.

        Also empty if the record has more rows than the file, since following those would take unbounded memory.
        """
        return {
            key: runs
            for key, runs in row_runs.by_source(self._runs).items()
            if key in self.removes and runs.total <= (num_records(self.removes[key]) or _MANY_ROWS)
        }

    def rows_of(self, output: str) -> int:
        """Return the number of rows a compaction wrote to an output, including those deleted there at once."""
        return self._rows_by_output.get(output, 0)

    @cached_property
    def _rows_by_output(self) -> Mapping[str, int]:
        if self.row_map is not None:
            return self.row_map.rows_by_output
        return {output: sum(run.count for run in runs) for output, runs in self._runs.items()}

    @cached_property
    def row_map(self) -> RowMap | None:
        """The row map of a sorting compaction, with outputs by canonical path."""
        text = (self.info.tags or {}).get(row_maps.TAG) if self.info else None
        if not isinstance(text, str) or self.changes_data:
            return None
        return row_maps.decode(text, self.location)

    @cached_property
    def _runs(self) -> Mapping[str, Sequence[RowRun]]:
        text = (self.info.tags or {}).get(row_runs.TAG) if self.info else None
        if not isinstance(text, str) or self.changes_data:
            return {}
        return row_runs.decode(text, self.location)


def stale_files_tag(paths: Sequence[str]) -> dict[str, str]:
    """Return the commitInfo tag with the paths of which only a superseded logical file is removed."""
    return {_STALE_FILES: json_text(list(paths))} if paths else {}


def _stale_files(info: CommitInfo | None, location: str) -> frozenset[str]:
    text = (info.tags or {}).get(_STALE_FILES) if info else None
    if not isinstance(text, str):
        return frozenset()
    try:
        paths = json.loads(text)
        return frozenset(
            locations.canonical_log_path(path, location) for path in paths if isinstance(path, str)
        )
    except (ValueError, TypeError, RecursionError, DelvecError):
        return frozenset()


class AddedFiles:
    """Selects the winners' files that may match our predicate, by partition values and statistics.

    Evaluates all files on first use, since one costs as much as a hundred.
    """

    def __init__(self, ours: CurrentTransaction, winners: Sequence[WinningCommit]) -> None:
        self._ours = ours
        self._winners = winners
        self._may_match: dict[int, bool] = {}

    def matching(self, files: Iterable[AddFile]) -> list[AddFile]:
        """Return those of these added files that may have rows matching our predicate.

        Returns all of them if there is no predicate, if it cannot be parsed, or if partition values or statistics are
        invalid.
        """
        candidates = list(files)
        if self._ours.predicate is None or not candidates:
            return candidates
        unknown = {id(file): file for file in candidates if id(file) not in self._may_match}
        if unknown:
            if not self._may_match:
                unknown |= {
                    id(file): file
                    for winner in self._winners
                    if winner.changes_data
                    for file in winner.new_files.values()
                }
            self._may_match |= zip(unknown, self._judged(list(unknown.values())), strict=True)
        return [file for file in candidates if self._may_match[id(file)]]

    def _judged(self, files: Sequence[AddFile]) -> list[bool]:
        predicate, facts = self._ours.predicate, self._ours.facts
        stats = pa.array([file.stats for file in files], pa.string())
        table = pa.table(
            {
                "partition_values": pa.array(
                    [list(file.partition_values.items()) for file in files], TEXT_MAP
                ),
                "stats": stats,
                "num_records": num_records_from_stats(stats),
            }
        )
        try:
            pruned = prune(table, predicate, facts.schema, facts.metadata.partition_columns)
        except CorruptLog:
            return [True] * len(files)
        return list(pruned.may_match.to_pylist())
