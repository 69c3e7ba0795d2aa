"""Replay: derives the state of a version from actions (PROTOCOL.md, "Action Reconciliation")."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from delvec_errors import DelvecError
from delvec_kernel.actions.action_json import LogFile
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
from delvec_kernel.deletion_vectors.deletion_vector import Descriptor
from delvec_kernel.file_index.deferred_statistics import DeferredStatistics
from delvec_kernel.file_index.engine_port import SERIAL, FileIndexEngine
from delvec_kernel.file_index.live_files import LiveFiles
from delvec_kernel.file_index.packed_files import FileChange
from delvec_kernel.locations import canonical_log_path

__all__ = ["Commit", "ReplayState", "replay"]


@dataclass(frozen=True)
class Commit:
    """The actions of one version, in file order.

    Attributes:
        compacted: whether it is a log compaction of several versions, which may remove a file with several deletion vectors.
    """

    where: LogFile
    actions: Sequence[Action]
    compacted: bool = False


@dataclass(frozen=True)
class ReplayState:
    """The state of the log at a version.

    Attributes:
        live: the live files.
        txns: by application id.
        domain_metadata: by domain, without tombstones.
        in_commit_timestamp: the in-commit timestamp of the last commit, milliseconds since the epoch, or None.
    """

    live: LiveFiles
    protocol: Protocol | None = None
    metadata: Metadata | None = None
    txns: Mapping[str, Txn] = field(default_factory=dict)
    domain_metadata: Mapping[str, DomainMetadata] = field(default_factory=dict)
    in_commit_timestamp: int | None = None

    @classmethod
    def from_checkpoint(
        cls,
        batches: Iterable[pa.RecordBatch],
        actions: Sequence[Action],
        where: LogFile,
        location: str,
        engine: FileIndexEngine = SERIAL,
        deferred_statistics: DeferredStatistics | None = None,
    ) -> "ReplayState":
        """Build the state from a checkpoint.

        Args:
            batches: its files, FILES_SCHEMA.
            actions: its other actions; tombstones are ignored.
            where: the checkpoint, for errors.
            location: the table's canonical location.
            engine: cache and threads for work on segments.
            deferred_statistics: the statistics of batches that lack them.

        Raises:
            CorruptLog: a file occurs twice; also errors from reading the batches.
        """
        unreadable: list[DelvecError] = []

        def read() -> Iterator[pa.RecordBatch]:
            try:
                yield from batches
            except DelvecError as error:
                unreadable.append(error)
                raise

        try:
            live = LiveFiles.from_batches(read(), location, engine, deferred_statistics)
            twice = live.duplicate()
        except DelvecError as error:
            if error in unreadable:
                raise
            raise where.corrupt(f"refers to an invalid file path: {error.message}") from error
        if twice is not None:
            raise where.corrupt(f"contains the file '{twice}' twice")
        kept = [action for action in actions if not isinstance(action, RemoveFile)]
        return replay(cls(live), [Commit(where, kept)])

    def stamped(self, info: CommitInfo | None) -> "ReplayState":
        """Return the state with the in-commit timestamp of its last commit, which checkpoints lack."""
        return replace(self, in_commit_timestamp=None if info is None else info.in_commit_timestamp)


def replay(state: ReplayState, commits: Sequence[Commit]) -> ReplayState:
    """Return the state after ``commits``, which follow ``state`` in ascending order without gaps.

    Costs O(actions in the commits), not O(files in the table). The order of actions in a commit does not matter.

    Raises:
        CorruptLog: a commit adds or removes a path twice, or adds and removes the same file.
    """
    protocol, metadata, timestamp = state.protocol, state.metadata, state.in_commit_timestamp
    txns, domains = dict(state.txns), dict(state.domain_metadata)
    changes: dict[str, FileChange] = {}
    for commit in commits:
        timestamp = None
        _follow_files(commit, state.live.location, changes)
        for action in commit.actions:
            match action:
                case Protocol():
                    protocol = action
                case Metadata():
                    metadata = action
                case Txn():
                    txns[action.app_id] = action
                case DomainMetadata(removed=True):
                    domains.pop(action.domain, None)
                case DomainMetadata():
                    domains[action.domain] = action
                case CommitInfo():
                    timestamp = action.in_commit_timestamp
                case _:
                    pass
    live = state.live.apply(changes) if changes else state.live
    return ReplayState(live, protocol, metadata, txns, domains, timestamp)


def _follow_files(commit: Commit, location: str, changes: dict[str, FileChange]) -> None:
    adds: dict[str, AddFile] = {}
    removes: dict[str, dict[str | None, Descriptor | None]] = {}
    for action in commit.actions:
        if not isinstance(action, AddFile | RemoveFile):
            continue
        try:
            key = canonical_log_path(action.path, location)
        except DelvecError as error:
            raise commit.where.corrupt(f"refers to an invalid file path: {error.message}") from error
        if isinstance(action, AddFile):
            twice = adds.setdefault(key, action) is not action
        else:
            known = removes.setdefault(key, {})
            twice = _id(action) in known or (bool(known) and not commit.compacted)
            known[_id(action)] = action.deletion_vector
        if twice:
            raise commit.where.corrupt(f"has two '{action.key}' actions for the file '{action.path}'")
    # Not a set, whose order, and with it that of the live files, differs between processes.
    for key in {**adds, **removes}:
        add, removed_vectors = adds.get(key), removes.get(key, {})
        if add is not None and _id(add) in removed_vectors:
            raise commit.where.corrupt(
                f"both adds and removes the file '{add.path}' with the same deletion vector"
            )
        change = changes.setdefault(key, FileChange())
        for deletion_vector in removed_vectors.values():
            change.follow(None, deletion_vector, is_removed=True)
        if add is not None:
            change.follow(add, None, is_removed=False)


def _id(action: AddFile | RemoveFile) -> str | None:
    return None if action.deletion_vector is None else action.deletion_vector.unique_id
