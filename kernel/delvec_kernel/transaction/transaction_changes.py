"""A transaction as requested: what it read, and what it changes.

Tested in `tests/unit/kernel/transaction/test_commit_builder.py` and
`tests/unit/kernel/transaction/test_rebase.py`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pyroaring import BitMap64

from delvec_kernel.actions.actions import AddFile, Cdc, DomainMetadata, Metadata, Protocol, Txn
from delvec_kernel.alter_table.change_types import WriteChange
from delvec_kernel.deletion_vectors.deletion_vector import Descriptor

__all__ = [
    "APPENDS",
    "Changes",
    "FileRepair",
    "FileStatistics",
    "MappedOutput",
    "Reads",
    "RowMap",
    "RowMapFile",
    "RowRun",
]

APPENDS: Final = frozenset({"WRITE", "STREAMING UPDATE"})
"""Operations that may add files without reading the table; adds of any other operation may depend on what it read."""
_REWRITING: Final = frozenset({"DELETE", "UPDATE", "MERGE"})
"""Operations whose new files contain rows copied from files from which they remove rows."""


@dataclass(frozen=True, slots=True)
class Reads:
    """What a commit read, besides the rows it deletes and those that match its predicate.

    Attributes:
        whole_table: whether any data change conflicts.
        files: paths; removing any row of them conflicts.
        rows: physical row indexes by path; removing any of them conflicts.
    """

    whole_table: bool = False
    files: Sequence[str] = ()
    rows: Mapping[str, BitMap64] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RowRun:
    """Adjacent rows of a compaction's output that are adjacent live rows of one source.

    Attributes:
        source: path of the source, as in the log.
        first_rank: the rank of the first row, among the rows of the source that were live, from 0; among all its rows if they
            were copied with the deleted ones.
        count: number of rows.
        first_output_row: physical row index in the output.
    """

    source: str
    first_rank: int
    count: int
    first_output_row: int


@dataclass(frozen=True, slots=True)
class RowMapFile:
    """A file of a row map, stored next to the table: the origin of consecutive output rows.

    Attributes:
        path: relative to the table.
        num_rows: number of rows it describes.
    """

    path: str
    size_in_bytes: int
    num_rows: int


@dataclass(frozen=True, slots=True)
class MappedOutput:
    """A file that a compaction added and that a row map describes."""

    path: str
    num_rows: int


@dataclass(frozen=True, slots=True)
class RowMap:
    """The record of a sorting compaction; see :mod:`delvec_kernel.transaction.row_maps`.

    Attributes:
        files: in order.
        outputs: the files describe their rows in this order.
    """

    files: Sequence[RowMapFile]
    outputs: Sequence[MappedOutput]

    @property
    def rows_by_output(self) -> dict[str, int]:
        """The number of rows of each output, by path."""
        return {each.path: each.num_rows for each in self.outputs}


@dataclass(frozen=True, slots=True)
class FileStatistics:
    """New statistics of an otherwise unchanged live file.

    Attributes:
        path: the path, as in the log.
        stats: JSON text.
        deletion_vector: the file's when the statistics were collected, or None; with another they would be wrong.
    """

    path: str
    stats: str
    deletion_vector: Descriptor | None = None


@dataclass(frozen=True, slots=True)
class FileRepair:
    """The repair of one file, which conflicts with any other change of the file.

    Attributes:
        path: the path, as in the log.
        live: the live file; None if readers that track one file per path consider the path not live.
        becomes: the repaired file, with other statistics or a new deletion vector; None to remove it or leave it.
        rows: all deleted rows of a new deletion vector.
        stale: a logical file of the same path, with another deletion vector, to remove; ``live`` then stays.
        loses_rows: whether rows are removed that the change feed has not yet reported as deleted.
    """

    path: str
    live: AddFile | None = None
    becomes: AddFile | None = None
    rows: BitMap64 | None = None
    stale: AddFile | None = None
    loses_rows: bool = False

    @property
    def is_gone(self) -> bool:
        """Whether the path becomes not live."""
        return self.becomes is None and self.stale is None

    @property
    def removed(self) -> AddFile | None:
        """The logical file to remove, of which a version may have only one per path."""
        if self.stale is not None:
            return self.stale
        return self.live if self.is_gone or self.rows is not None else None


@dataclass(frozen=True)
class Changes:
    """A transaction, as requested.

    Clients fill in what :class:`delvec_contract.commits.CommitRequest` has; the rest is the service's.

    Attributes:
        transaction_id: the idempotency key; empty if a client leaves it to the service.
        engine_info: the engine info of the client; the service adds its own.
        removes: paths of whole files.
        row_deletes: physical row indexes by file path; may include rows already deleted.
        written_vectors: descriptors by path, of deletion vectors that the engine wrote: the deleted rows of the version
            that was read, plus ``row_deletes``, which lists the new ones.
        added_deletes: deleted rows of ``adds``: rows that others deleted during a compaction, and rows already deleted
            in files that it copied whole.
        metrics: those that only the engine knows: times in milliseconds, rows copied.
        reads: None for what operation and predicate imply.
        data_change: False if rows are only rearranged.
        change_files: the change data files of the whole commit; without them, changes are derived from the data files.
        rewritten: the sources of each row, by path of the added file.
        row_map: the same for reordered rows, in files because of its size.
        again: paths of live files to add again unchanged, to assign or remove row ids; files no longer live are
            skipped.
        statistics: new statistics of live files, by path; files that are no longer live, or have another deletion
            vector, are skipped.
        repacked: paths of live files whose deletion vectors are moved unchanged into shared files; files that are no
            longer live, or have no deletion vector, are skipped.
        restores: files of an earlier version to bring back; their paths may also be in ``removes``, with another
            deletion vector.
        tombstones: paths of files to retain like removed data files, though they are not data files.
        repairs: files to repair.
        keeps_row_ids: whether rewritten rows include their row ids.
        makes_version: whether to commit even if nothing changes, as a marker version.
        table_changes: changes to the table, as requested; ``metadata``, ``protocol`` and ``domains`` are their result.
        replaces_schema: whether all columns are new, so that no existing file may stay.
        metadata: the new metadata, None if unchanged.
        protocol: the new protocol, None if unchanged.
        domains: domain metadata to set or, as tombstones, to remove.
        app_transaction: an application's transaction identifier and version.
        user_name: the user name of the principal, for the history; None if nobody signed in.
        read_mark: version mark of the commit file of ``read_version`` when it was read.
        request_hash: the hash of the request's body, to detect a reused idempotency key.
    """

    operation: str
    read_version: int
    transaction_id: str
    engine_info: str
    adds: Sequence[AddFile] = ()
    removes: Sequence[str] = ()
    row_deletes: Mapping[str, BitMap64] = field(default_factory=dict)
    written_vectors: Mapping[str, Descriptor] = field(default_factory=dict)
    added_deletes: Mapping[str, BitMap64] = field(default_factory=dict)
    predicate: str | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, int] = field(default_factory=dict)
    reads: Reads | None = None
    data_change: bool = True
    change_files: Sequence[Cdc] = ()
    rewritten: Mapping[str, Sequence[RowRun]] = field(default_factory=dict)
    row_map: RowMap | None = None
    again: Sequence[str] = ()
    statistics: Mapping[str, FileStatistics] = field(default_factory=dict)
    repacked: Sequence[str] = ()
    restores: Sequence[AddFile] = ()
    tombstones: Sequence[str] = ()
    repairs: Sequence[FileRepair] = ()
    keeps_row_ids: bool = False
    makes_version: bool = False
    table_changes: Sequence[WriteChange] = ()
    replaces_schema: bool = False
    metadata: Metadata | None = None
    protocol: Protocol | None = None
    domains: Sequence[DomainMetadata] = ()
    app_transaction: Txn | None = None
    user_metadata: str | None = None
    user_name: str | None = None
    read_mark: str | None = None
    request_hash: str | None = None

    @property
    def copies_rows(self) -> bool:
        """Whether new files contain rows that were in the table before, changed or not."""
        if not self.adds or not (self.removes or self.row_deletes):
            return False
        return (
            not self.data_change or self.operation in _REWRITING or self.metrics.get("numCopiedRows", 0) > 0
        )

    @property
    def is_blind_append(self) -> bool:
        """Whether the commit is valid for any content of the table."""
        return (
            self.operation in APPENDS
            and self.reads is None
            and self.predicate is None
            and not (self.removes or self.row_deletes or self.metadata or self.protocol or self.domains)
            and self.parameters.get("mode", "").lower() != "overwrite"
        )
