"""Converts a commit request to changes, with all the checks that need neither a snapshot nor storage.

Tested in `tests/integration/service/commits/test_commit.py` and
`tests/integration/service/commits/test_commit_checks.py`.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from pyroaring import BitMap64

from delvec_contract.commits import CommitRequest, RewrittenFile, RowDelete
from delvec_errors import CorruptDeletionVector, InvalidBitmap, InvalidCommit, InvalidDeletionVector
from delvec_kernel.deletion_vectors.deletion_vector import Descriptor, deserialize_bitmap
from delvec_kernel.transaction import commit_rules as rules
from delvec_kernel.transaction.row_maps import is_row_map_path
from delvec_kernel.transaction.transaction_changes import Changes, FileStatistics, Reads, RowMap, RowRun
from delvec_service.store.open_table import OpenTable
from delvec_service.tables.registry import ENGINE_INFO

__all__ = ["changes_of"]

_MAX_ID: Final = 128


def changes_of(request: CommitRequest, transaction_id: str, table: OpenTable) -> Changes:
    """Return a request's content.

    Rows for which the engine wrote a deletion vector are left empty; see
    :func:`~delvec_service.commits.uploaded_dvs.read`.

    Raises:
        InvalidCommit: or a subclass: a file is named twice, a path is invalid, a bitmap does not parse, or a
            descriptor was not allocated by this service.
    """
    if not request.operation.strip():
        raise InvalidCommit("A commit needs the name of its operation, such as WRITE or DELETE.")
    if not transaction_id.isprintable() or not 0 < len(transaction_id) <= _MAX_ID:
        raise InvalidCommit(f"A transaction id has 1 to {_MAX_ID} printable characters; use a UUID.")
    if any(value < 0 for value in request.operation_metrics.values()):
        raise InvalidCommit("A metric cannot be negative.")
    if request.change_files and not request.data_change:
        raise InvalidCommit("A commit with data-change: false cannot have change-files.")
    touched = [remove.path for remove in request.removes] + [entry.path for entry in request.row_deletes]
    _distinct(touched, table, "is removed, or loses rows,")
    rules.check_new_paths(request.adds, request.change_files, table.location)
    new = [add.path for add in request.adds] + [file.path for file in request.change_files]
    _distinct(new + touched, table, "is changed")
    return Changes(
        operation=request.operation,
        read_version=request.read_version,
        transaction_id=transaction_id,
        engine_info=f"{request.engine_info} {ENGINE_INFO}" if request.engine_info else ENGINE_INFO,
        adds=request.adds,
        removes=[remove.path for remove in request.removes],
        row_deletes={
            entry.path: BitMap64() if entry.rows is None else _rows(entry.path, entry.rows)
            for entry in request.row_deletes
        },
        written_vectors=_written_vectors(request.row_deletes),
        predicate=request.predicate,
        parameters=request.operation_parameters,
        metrics=request.operation_metrics,
        reads=_reads(request, table),
        data_change=request.data_change,
        change_files=request.change_files,
        rewritten=_rewritten(request.rewritten, touched, [add.path for add in request.adds], table),
        row_map=_row_map(request),
        added_deletes=_added_deletes(request, table),
        statistics=_statistics(request, table),
        app_transaction=request.app_transaction,
        table_changes=request.table_changes,
        keeps_row_ids=request.keeps_row_ids,
        user_metadata=request.user_metadata,
        read_mark=request.read_mark,
    )


def _written_vectors(row_deletes: Iterable[RowDelete]) -> dict[str, Descriptor]:
    deletion_vectors = {}
    for entry in row_deletes:
        vector = entry.deletion_vector
        if vector is None:
            continue
        try:
            place = vector.relative_path()
        except CorruptDeletionVector:
            place = None
        if place is None or vector.offset is None or vector.offset < 1:
            raise InvalidDeletionVector(
                f"The deletion vector of file '{entry.path[:300]}' is not at a descriptor that this service "
                "allocated. Request one from deletion-vectors; it has storage type 'u' and an offset.",
                file=entry.path[:300],
            )
        deletion_vectors[entry.path] = vector
    return deletion_vectors


def _reads(request: CommitRequest, table: OpenTable) -> Reads | None:
    reads = request.reads
    if reads is None:
        return None
    for path in (*reads.files, *(entry.path for entry in reads.rows)):
        _key(path, table)
    _distinct([entry.path for entry in reads.rows], table, "has rows that were read")
    return Reads(
        reads.whole_table, reads.files, {entry.path: _rows(entry.path, entry.rows) for entry in reads.rows}
    )


def _rewritten(
    rewritten_files: Sequence[RewrittenFile], removed: Sequence[str], added: Sequence[str], table: OpenTable
) -> dict[str, list[RowRun]]:
    if not rewritten_files:
        return {}
    sources = {_key(path, table) for path in removed}
    for entry in rewritten_files:
        if entry.path not in added:
            raise InvalidCommit(
                f"`rewritten` lists '{entry.path[:300]}', but this commit does not add it.",
                file=entry.path[:300],
            )
        for run in entry.runs:
            if _key(run.source, table) not in sources:
                raise InvalidCommit(
                    f"`rewritten` takes rows of '{entry.path[:300]}' from '{run.source[:300]}', but this commit "
                    "does not remove that file.",
                    file=run.source[:300],
                )
    _distinct([entry.path for entry in rewritten_files], table, "is listed in `rewritten`")
    return {entry.path: entry.runs for entry in rewritten_files}


def _added_deletes(request: CommitRequest, table: OpenTable) -> dict[str, BitMap64]:
    added_deletes = request.added_deletes
    if not added_deletes:
        return {}
    if request.data_change:
        raise InvalidCommit("`added-deletes` are for a commit with `data-change: false`.")
    listed = {entry.path for entry in request.rewritten}
    for entry in added_deletes:
        if entry.path not in listed:
            raise InvalidCommit(
                f"`added-deletes` lists '{entry.path[:300]}', of which `rewritten` does not tell where its rows come from.",
                file=entry.path[:300],
            )
    _distinct([entry.path for entry in added_deletes], table, "is listed in `added-deletes`")
    found = {entry.path: _rows(entry.path, entry.rows) for entry in added_deletes}
    return {path: rows for path, rows in found.items() if rows}


def _statistics(request: CommitRequest, table: OpenTable) -> dict[str, FileStatistics]:
    statistics = request.statistics
    if not statistics:
        return {}
    others = request.adds or request.removes or request.row_deletes or request.table_changes
    if request.data_change or others:
        raise InvalidCommit("`statistics` require a commit with `data-change: false` and no other changes.")
    _distinct([entry.path for entry in statistics], table, "gets statistics")
    return {entry.path: entry for entry in statistics}


def _row_map(request: CommitRequest) -> RowMap | None:
    row_map = request.row_map
    if row_map is None:
        return None
    if request.rewritten or request.data_change:
        raise InvalidCommit("`row-map` requires a commit with `data-change: false` and without `rewritten`.")
    for file in row_map.files:
        if not is_row_map_path(file.path):
            raise InvalidCommit(
                f"'{file.path}' is not a row map file; their paths have the form _delvec/row_maps/<uuid>.parquet.",
                file=file.path,
            )
    outputs = [each.path for each in row_map.outputs]
    if sorted(outputs) != sorted(add.path for add in request.adds):
        raise InvalidCommit(
            "`row-map` must list every file that the commit adds exactly once, and no others."
        )
    if sum(each.num_rows for each in row_map.outputs) != sum(each.num_rows for each in row_map.files):
        raise InvalidCommit("The number of rows in the files of `row-map` differs from that of its outputs.")
    return RowMap(
        tuple(row_map.files), tuple(row_map.outputs)
    )  # tuples, so that it can be the key of a cache


def _rows(path: str, data: bytes) -> BitMap64:
    try:
        return deserialize_bitmap(data)
    except CorruptDeletionVector as error:
        raise InvalidBitmap(
            f"The rows of file '{path}' are not a 64-bit Roaring bitmap in the portable format; serialize them "
            "again.",
            file=path,
        ) from error


def _distinct(paths: Sequence[str], table: OpenTable, what: str) -> None:
    rules.distinct(paths, table.name, table.location, what)


def _key(path: str, table: OpenTable) -> str:
    return rules.file_key(path, table.name, table.location)
