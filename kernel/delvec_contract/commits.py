"""Transactions: beginning, allocating deletion vectors, committing.

Tested in `tests/integration/service/commits/test_commit.py` and
`tests/integration/service/commits/test_commit_checks.py`.
"""

from collections.abc import Iterable, Mapping
from typing import Annotated, Final, Literal, TypeAlias, TypeVar

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator
from pyroaring import BitMap64

from delvec_contract.action_bodies import (
    AddFile,
    AppTransaction,
    ChangeFile,
    DeletionVectorDescriptor,
    RemoveFile,
)
from delvec_contract.alterations import AnyWriteChange
from delvec_contract.codec import Body, WireForm
from delvec_contract.shapes import (
    FILES,
    Answer,
    Base64,
    Delta,
    Envelope,
    ErrorBody,
    Expression,
    FilePath,
    Long,
    Metrics,
    Properties,
    Text,
    TransactionId,
)
from delvec_contract.tables import SnapshotResponse
from delvec_errors import CorruptDeletionVector, InvalidBitmap
from delvec_kernel.actions import actions
from delvec_kernel.deletion_vectors.deletion_vector import deserialize_bitmap, serialize_bitmap
from delvec_kernel.transaction import commit_rules as rules
from delvec_kernel.transaction import transaction_changes
from delvec_kernel.transaction.transaction_changes import Changes, Reads

__all__ = [
    "AllocateRequest",
    "AllocateResponse",
    "AllocatedDeletionVector",
    "AllocatedVectorFile",
    "BeginRequest",
    "BeginResponse",
    "Commit",
    "CommitOutcome",
    "CommitRequest",
    "CommitResponse",
]

_PLAIN_FIELDS: Final = (
    "read_version",
    "read_mark",
    "operation",
    "predicate",
    "data_change",
    "row_map",
    "keeps_row_ids",
    "app_transaction",
    "user_metadata",
)
"""The fields of a commit that are the same on the wire."""
_Value = TypeVar("_Value")


class BeginRequest(Envelope):
    """Begin a transaction before data files are written, so that the service knows about them."""

    operation: str = Field(max_length=64, description="Delta's operation name: WRITE, DELETE, ...")
    table_changes: list[AnyWriteChange] = Field(
        default_factory=list,
        max_length=1000,
        fail_fast=True,
        description="The changes that the commit will make: the response describes the table after them, with the "
        "column names and ids for the new files.",
    )


class BeginResponse(SnapshotResponse):
    """The state of the table for writers, which must include the transaction id in names of data files."""

    transaction_id: str
    deletion_vectors_enabled: bool


class AllocateRequest(Envelope):
    """Reserve descriptors for deletion vectors that the engine will write itself."""

    transaction_id: TransactionId | None = None
    sizes: list[Annotated[int, Field(ge=1, lt=2**31)]] = Field(
        default_factory=list,
        max_length=100_000,
        fail_fast=True,
        description="Serialized size of each bitmap, in order (sizeInBytes).",
    )
    files: int = Field(
        default=0,
        ge=0,
        le=10_000,
        description=(
            "The number of files for bitmaps whose sizes are not known yet; the engine decides on their "
            "layout."
        ),
    )

    @model_validator(mode="after")
    def _something(self) -> "AllocateRequest":
        if not (self.sizes or self.files):
            raise ValueError("give sizes, or files")
        return self


class AllocatedDeletionVector(Delta):
    """The location for one deletion vector: ``offset`` bytes into ``file``.

    Together with the cardinality it is the descriptor for a commit.
    """

    storage_type: Literal["u"] = Field(default="u", alias="storageType")
    path_or_inline_dv: str = Field(alias="pathOrInlineDv")
    offset: int
    size_in_bytes: int = Field(alias="sizeInBytes")
    file: str = Field(description="Relative to the table's location.")


class AllocatedVectorFile(Delta):
    """A deletion vector file whose layout the engine decides: the version byte, then contiguous deletion vectors."""

    path_or_inline_dv: str = Field(alias="pathOrInlineDv")
    file: str = Field(description="Relative to the table's location.")


class AllocateResponse(Answer):
    """In the order of the request; several deletion vectors may share a file."""

    transaction_id: str
    deletion_vectors: list[AllocatedDeletionVector]
    files: list[AllocatedVectorFile] = Field(default_factory=list)


class RowDelete(Envelope):
    """Deleted rows of one live file: as a bitmap, or as a deletion vector that the engine has written."""

    path: FilePath
    rows: Base64 | None = Field(
        default=None,
        description="Physical row indexes in the portable 64-bit roaring format; "
        "rows that the file's deletion vector already holds are ignored.",
    )
    deletion_vector: DeletionVectorDescriptor | None = Field(
        default=None,
        description="A deletion vector at a descriptor that the service allocated, with the rows of the file's "
        "earlier one (as of the read version) and the newly deleted rows.",
    )

    @model_validator(mode="after")
    def _one_of_both(self) -> "RowDelete":
        if (self.rows is None) == (self.deletion_vector is None):
            raise ValueError("give rows, or deletion-vector")
        return self


class FileRows(Envelope):
    """Rows of one file."""

    path: FilePath
    rows: Base64 = Field(description="Physical row indexes in the portable 64-bit roaring format.")


class CommitReads(Envelope):
    """What a commit read, besides the rows that it deletes and the rows that match its predicate."""

    whole_table: bool = Field(
        default=False,
        description=("Any change of data is a conflict: for subqueries and functions with unknown inputs."),
    )
    files: list[FilePath] = Field(
        default_factory=list,
        max_length=FILES,
        fail_fast=True,
        description="Any row that is removed from these files is a conflict.",
    )
    rows: list[FileRows] = Field(
        default_factory=list,
        max_length=FILES,
        fail_fast=True,
        description="The removal of these rows is a conflict: the rows that a MERGE with inserts matched.",
    )


_RowRun: TypeAlias = Annotated[
    transaction_changes.RowRun,
    Body(
        Envelope,
        doc="Adjacent rows of an output that are adjacent live rows of one source.",
        source=Annotated[FilePath, Field(description="Path of a file that the commit removes.")],
        first_rank=Annotated[
            Long,
            Field(
                description="The position of the first row among the source's live rows; among all its rows if the "
                "output is in `added-deletes`."
            ),
        ],
        count=Field(ge=1, lt=2**63),
        first_output_row=Long,
    ),
]


class RewrittenFile(Envelope):
    """The origin of all rows of a file that a compaction added."""

    path: FilePath = Field(description="The path of a file that the commit adds.")
    runs: list[_RowRun] = Field(max_length=FILES, fail_fast=True)


_RowMapFile: TypeAlias = Annotated[
    transaction_changes.RowMapFile,
    Body(
        Envelope,
        doc="A Parquet file of a row map, as the engine has written it.",
        path=Field(
            max_length=128, description="Relative to the table's location: `_delvec/row_maps/<uuid>.parquet`."
        ),
        size_in_bytes=Field(gt=0, le=2**28),
        num_rows=Field(gt=0, le=2**24, description="The number of rows that the file describes."),
    ),
]


_MappedOutput: TypeAlias = Annotated[
    transaction_changes.MappedOutput,
    Body(
        Envelope,
        path=FilePath,
        num_rows=Field(gt=0, le=2**32, description="The number of rows in the file."),
    ),
]


_RowMap: TypeAlias = Annotated[
    transaction_changes.RowMap,
    Body(
        Envelope,
        doc="The origin of rows that a compaction sorted, in files next to the table: `source` and `row` of each row.",
        files=Annotated[
            list[_RowMapFile],
            Field(max_length=FILES, fail_fast=True, description="The map's files, in order."),
        ],
        outputs=Annotated[
            list[_MappedOutput],
            Field(
                max_length=FILES,
                fail_fast=True,
                description="All files of the commit, in the order of the rows.",
            ),
        ],
    ),
]


_FileStatistics: TypeAlias = Annotated[
    transaction_changes.FileStatistics,
    Body(
        Envelope,
        path=Annotated[FilePath, Field(description="As in the log.")],
        stats=Field(
            max_length=4_000_000,
            description="Statistics as a JSON document; numRecords counts physical rows.",
        ),
        deletion_vector=Annotated[
            DeletionVectorDescriptor | None,
            Field(
                description="The deletion vector that the file had when they were computed; a file that has another "
                "one by now keeps its statistics."
            ),
        ],
    ),
]


class CommitRequest(Envelope):
    """One transaction: what it read, and what it changes."""

    read_version: Long
    read_mark: str | None = Field(
        default=None,
        max_length=64,
        description="The mark of the read version, from the plan or from begin: it shows whether another writer "
        "has replaced that version since.",
    )
    transaction_id: TransactionId | None = Field(
        default=None, description="From begin; if absent, a new one is created."
    )
    operation: str = Field(max_length=64, description="Delta's operation name: WRITE, DELETE, ...")
    operation_parameters: Properties = Field(default_factory=dict)
    operation_metrics: Metrics = Field(
        default_factory=dict,
        description="Timings and counts that only the engine knows; the rest is computed.",
    )
    predicate: Expression | None = Field(
        default=None,
        description="The condition of the changed rows: matching rows that were added since are a conflict. If "
        "absent, the commit depends only on the rows that it names.",
    )
    reads: CommitReads | None = Field(
        default=None, description="If absent, it follows from the operation and the predicate."
    )
    adds: list[AddFile] = Field(default_factory=list, max_length=FILES, fail_fast=True)
    removes: list[RemoveFile] = Field(default_factory=list, max_length=FILES, fail_fast=True)
    row_deletes: list[RowDelete] = Field(default_factory=list, max_length=FILES, fail_fast=True)
    change_files: list[ChangeFile] = Field(
        default_factory=list,
        max_length=FILES,
        fail_fast=True,
        description=(
            "The change data feed of the whole commit, for changes that deletion vectors do not show."
        ),
    )
    table_changes: list[AnyWriteChange] = Field(
        default_factory=list,
        max_length=1000,
        fail_fast=True,
        description="Schema changes that the new files need, made in the same version. With column mapping, send "
        "them with begin as well.",
    )
    data_change: bool = Field(
        default=True, description="False if the same rows are only rearranged, as in compaction."
    )
    rewritten: list[RewrittenFile] = Field(
        default_factory=list,
        max_length=FILES,
        fail_fast=True,
        description=(
            "For a compaction that keeps the order of rows: lets it commit concurrently with row-level "
            "changes."
        ),
    )
    row_map: _RowMap | None = Field(
        default=None,
        description=("The same for a compaction that sorts rows; cannot be combined with `rewritten`."),
    )
    added_deletes: list[FileRows] = Field(
        default_factory=list,
        max_length=FILES,
        fail_fast=True,
        description="Rows of added files that are deleted from the start: a compaction that copies whole files carries over those of its "
        "sources. The file must be in `rewritten`, where `first-rank` and `count` then count all rows of a source.",
    )
    statistics: list[_FileStatistics] = Field(
        default_factory=list,
        max_length=FILES,
        fail_fast=True,
        description="New statistics for live files, which do not change otherwise; only with `data-change: false` "
        "and without other changes. Files that are no longer live are left out.",
    )
    keeps_row_ids: bool = Field(
        default=False,
        description="Whether rows copied into the new files keep their row ids and commit versions there, in the "
        "columns named by delta.rowTracking.materialized…ColumnName; required for a table with row "
        "tracking.",
    )
    app_transaction: AppTransaction | None = None
    user_metadata: Text | None = None
    engine_info: str | None = Field(default=None, max_length=256)


def _changes(body: CommitRequest) -> Changes:
    """Read a commit; the rows of deletion vectors that the engine wrote are left empty.

    Raises:
        DuplicateFile: a file is named twice.
        InvalidBitmap: rows are no bitmap.
    """
    reads = body.reads
    return Changes(
        transaction_id=body.transaction_id or "",
        engine_info=body.engine_info or "",
        parameters=body.operation_parameters,
        metrics=body.operation_metrics,
        reads=None
        if reads is None
        else Reads(reads.whole_table, reads.files, _by_path(map(_rows, reads.rows))),
        adds=body.adds,
        change_files=body.change_files,
        table_changes=body.table_changes,
        removes=[remove.path for remove in body.removes],
        row_deletes=_by_path(map(_rows, body.row_deletes)),
        written_vectors={
            each.path: each.deletion_vector for each in body.row_deletes if each.deletion_vector is not None
        },
        rewritten=_by_path((each.path, each.runs) for each in body.rewritten),
        added_deletes=_by_path(map(_rows, body.added_deletes)),
        statistics=_by_path((each.path, each) for each in body.statistics),
        **{name: getattr(body, name) for name in _PLAIN_FIELDS},
    )


def _request(changes: Changes) -> CommitRequest:
    """Write a commit, which was checked when it was made."""
    reads, vectors = changes.reads, changes.written_vectors
    return CommitRequest.model_construct(
        transaction_id=changes.transaction_id or None,
        engine_info=changes.engine_info or None,
        operation_parameters=dict(changes.parameters),
        operation_metrics=dict(changes.metrics),
        reads=None
        if reads is None
        else CommitReads.model_construct(
            whole_table=reads.whole_table, files=list(reads.files), rows=_file_rows(reads.rows)
        ),
        removes=[actions.RemoveFile(path) for path in changes.removes],
        row_deletes=[
            RowDelete.model_construct(
                path=path,
                rows=None if path in vectors else serialize_bitmap(rows),
                deletion_vector=vectors.get(path),
            )
            for path, rows in changes.row_deletes.items()
        ],
        rewritten=[
            RewrittenFile.model_construct(path=path, runs=list(runs))
            for path, runs in changes.rewritten.items()
        ],
        added_deletes=_file_rows(changes.added_deletes),
        statistics=list(changes.statistics.values()),
        adds=list(changes.adds),
        change_files=list(changes.change_files),
        table_changes=list(changes.table_changes),
        **{name: getattr(changes, name) for name in _PLAIN_FIELDS},
    )


def _rows(entry: RowDelete | FileRows) -> tuple[str, BitMap64]:
    try:
        return entry.path, BitMap64() if entry.rows is None else deserialize_bitmap(entry.rows)
    except CorruptDeletionVector as error:
        raise InvalidBitmap(
            f"The rows of file '{entry.path}' are not a 64-bit Roaring bitmap in the portable format; serialize them "
            "again.",
            file=entry.path,
        ) from error


def _by_path(entries: Iterable[tuple[str, _Value]]) -> dict[str, _Value]:
    found: dict[str, _Value] = {}
    for path, value in entries:
        rules.put(found, path, value)
    return found


def _file_rows(rows_by_path: Mapping[str, BitMap64]) -> list[FileRows]:
    return [
        FileRows.model_construct(path=path, rows=serialize_bitmap(rows))
        for path, rows in rows_by_path.items()
    ]


Commit: TypeAlias = Annotated[Changes, WireForm(Changes, CommitRequest, _changes, _request)]
"""The body of a commit: in process its changes, on the wire a :class:`CommitRequest`."""


class CommitResponse(Answer):
    """A commit that took effect. A conflict is an error response with status 409."""

    result: Literal["committed", "rebased", "nothing-to-do", "already-applied"]
    version: int | None = Field(description="Absent if no version was created.")
    read_version: int
    transaction_id: str
    winners_passed: list[int] = Field(default_factory=list)
    operation_metrics: dict[str, int]
    auto_compact: list[dict[str, str | None]] | None = Field(
        default=None,
        description="If the table has compaction after commits (delta.autoOptimize.autoCompact): the partitions of "
        "the commit's new files, at most 128, by physical column name, which the client then compacts. "
        "Otherwise absent.",
    )

    @model_serializer(mode="wrap")
    def _without_absent(self, written: SerializerFunctionWrapHandler):  # type: ignore[no-untyped-def]  # noqa: ANN202 - it would be the schema
        found = written(self)
        if self.auto_compact is None:
            found = {
                name: value for name, value in found.items() if name not in ("auto-compact", "auto_compact")
            }
        return found


class CommitOutcome(Answer):
    """The outcome of a commit, by its transaction id."""

    transaction_id: str
    result: Literal["committed", "nothing-to-do", "already-applied", "conflict", "refused", "unknown"] = (
        Field(
            description="`unknown`: it is not among the commits that were searched. It may be in progress, may "
            "never have been sent, or may be in commits that the log no longer has."
        )
    )
    commit: CommitResponse | None = Field(default=None, description="The response, if it was not an error.")
    error: ErrorBody | None = Field(default=None, description="The error, if the response was one.")
    searched_from: int = Field(description="The first version that was searched.")
    searched_to: int = Field(description="The last version that was searched: the table's newest.")
