"""One transaction as it was asked for: what it read, and what it changes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pyroaring import BitMap64

from delvec_kernel.actions.actions import AddFile, Cdc, DomainMetadata, Metadata, Protocol, Txn
from delvec_kernel.deletion_vectors.deletion_vector import Descriptor
from delvec_kernel.wire import WriteChange

__all__ = ["Changes", "FileRepair", "NewStatistics", "Reads", "RowMap", "RowMapFile", "RowRun"]

_APPENDS: Final = frozenset({"WRITE", "STREAMING UPDATE"})
"""Operations that may add files without having read the table; what any other adds may rest on what it read."""
_REWRITING: Final = frozenset({"DELETE", "UPDATE", "MERGE"})
"""Operations whose new files hold rows that were in the files that they take rows from."""


@dataclass(frozen=True, slots=True)
class Reads:
    """What a commit rests on, beyond the rows that it deletes and those that match its predicate.

    Attributes:
        whole_table: any change of data matters.
        files: paths; any row that leaves one of them matters.
        rows: physical row indexes by path; that one of them leaves matters.
    """

    whole_table: bool = False
    files: Sequence[str] = ()
    rows: Mapping[str, BitMap64] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RowRun:
    """Neighbouring rows of a compaction's output that are neighbouring live rows of one source.

    Attributes:
        source: path of the source, as in the log.
        first_rank: of the first of them, among the rows of the source that were live, from 0; among all of its rows where
            they were copied with the deleted ones.
        count: of rows.
        first_output_row: physical row index in the output.
    """

    source: str
    first_rank: int
    count: int
    first_output_row: int


@dataclass(frozen=True, slots=True)
class RowMapFile:
    """A file next to the table that says of rows, one after the other, where each came from.

    Attributes:
        path: relative to the table.
        size: in bytes.
        num_rows: how many rows it tells of.
    """

    path: str
    size: int
    num_rows: int


@dataclass(frozen=True, slots=True)
class RowMap:
    """The record of a compaction that gave rows another order; see :mod:`delvec_kernel.transaction.row_maps`.

    Attributes:
        files: they follow each other.
        outputs: path and number of rows of each output; the files tell of their rows in this order.
    """

    files: tuple[RowMapFile, ...]
    outputs: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class NewStatistics:
    """Statistics of a live file that stays as it is.

    Attributes:
        stats: JSON text.
        deletion_vector: that the file had when they were made; None for none. With another they are not true.
    """

    stats: str
    deletion_vector: Descriptor | None = None


@dataclass(frozen=True, slots=True)
class FileRepair:
    """What a repair makes of one file; nobody may have changed it since.

    Attributes:
        path: as in the log.
        live: the file as it is live; None where no reader that knows one file of a path has it live.
        becomes: what it is from now on: with other statistics, or a new deletion vector. None: it is gone, or stays.
        rows: all of its deleted rows, where it gets a new deletion vector.
        stale: a logical file of the same path that goes, with another deletion vector; ``live`` stays then.
        loses_rows: whether rows go that nobody was told of: otherwise change feeds have told of them when they went.
    """

    path: str
    live: AddFile | None = None
    becomes: AddFile | None = None
    rows: BitMap64 | None = None
    stale: AddFile | None = None
    loses_rows: bool = False

    @property
    def is_gone(self) -> bool:
        """Whether the path is no longer live."""
        return self.becomes is None and self.stale is None

    @property
    def removed(self) -> AddFile | None:
        """The logical file that goes: at most one of a path may in a version."""
        if self.stale is not None:
            return self.stale
        return self.live if self.is_gone or self.rows is not None else None


@dataclass(frozen=True)
class Changes:
    """One transaction, as requested.

    Attributes:
        removes: paths of whole files.
        row_deletes: physical row indexes by the file's path; rows that are gone already may be among them.
        written_vectors: descriptors by path, of deletion vectors that the engine wrote: the rows that were gone in
            the version that was read, and those of ``row_deletes``, which are in there too.
        added_deletes: rows of ``adds`` that are not to live: what others deleted while a compaction was written, and what was
            deleted before in files that it copied whole.
        metrics: what only the engine knows: times in milliseconds, rows copied.
        reads: None means what operation and predicate imply.
        data_change: False where the same rows are written another way.
        change_files: the change data feed of the whole commit; where there are none, it follows from the files.
        rewritten: the sources of each row, by the path of an added file.
        row_map: the same where rows have another order; in files, for it is as long as the rows are many.
        again: paths of live files that are added again as they are, for the row ids that the table gives them then, or
            takes from them; those that are not live any more are left out.
        statistics: of live files that are added again with them, by path; those that are not live any more, or have another
            deletion vector, are left out.
        repacked: paths of live files whose deletion vectors are rewritten as they are, into files with others; those
            that are not live any more, or have none, are left out.
        restores: files of an earlier version that are back as they were then; what ``removes`` names may be back, with
            the deletion vector that it had.
        tombstones: paths of files that are kept as long as a removed data file is, though they never were one.
        repairs: files that a repair puts right.
        keeps_row_ids: whether rows that are rewritten bring their row ids along.
        makes_version: even where nothing changes: a version that others can be told from.
        table_changes: what the commit changes of its table, as requested; ``metadata`` and so on are what it comes to.
        replaces_schema: whether all columns are new, so that no file may stay.
        metadata: of the table from this version on, None where it stays.
        protocol: the same.
        domains: domain metadata that is set or, as a tombstone, removed.
        app_transaction: how far an application has got.
        read_mark: of the log file that ``read_version`` had when it was read.
        request_hash: of the request's body, so that its key is not taken for another's.
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
    statistics: Mapping[str, NewStatistics] = field(default_factory=dict)
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
    read_mark: str | None = None
    request_hash: str | None = None

    @property
    def copies_rows(self) -> bool:
        """Whether new files hold rows that the table had already, changed or not."""
        if not self.adds or not (self.removes or self.row_deletes):
            return False
        return (
            not self.data_change or self.operation in _REWRITING or self.metrics.get("numCopiedRows", 0) > 0
        )

    @property
    def is_blind_append(self) -> bool:
        """Whether the commit is right whatever rows the table holds."""
        return (
            self.operation in _APPENDS
            and self.reads is None
            and self.predicate is None
            and not (self.removes or self.row_deletes or self.metadata or self.protocol or self.domains)
            and self.parameters.get("mode", "").lower() != "overwrite"
        )
