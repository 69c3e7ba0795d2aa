"""The checks of a commit's request that need neither a snapshot nor storage.

Tested in `tests/integration/service/commits/test_commit.py` and
`tests/integration/service/commits/test_commit_checks.py`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from delvec_errors import CorruptDeletionVector, InvalidCommit, InvalidDeletionVector
from delvec_kernel.transaction import commit_rules as rules
from delvec_kernel.transaction.row_maps import is_row_map_path
from delvec_kernel.transaction.transaction_changes import Changes, RowMap
from delvec_service.store.open_table import OpenTable
from delvec_service.tables.new_table import ENGINE_INFO

__all__ = ["accepted"]

_MAX_ID: Final = 128


def accepted(changes: Changes, transaction_id: str, request_hash: str | None, table: OpenTable) -> Changes:
    """Return a client's changes as they are committed, under an idempotency key, after checking them.

    Rows for which the engine wrote a deletion vector are left empty; see
    :func:`~delvec_service.commits.uploaded_dvs.read`.

    Raises:
        InvalidCommit: or a subclass: a file is named twice, a path is invalid, or a descriptor was not allocated by
            this service.
    """
    if not changes.operation.strip():
        raise InvalidCommit("A commit needs the name of its operation, such as WRITE or DELETE.")
    if not transaction_id.isprintable() or not 0 < len(transaction_id) <= _MAX_ID:
        raise InvalidCommit(f"A transaction id has 1 to {_MAX_ID} printable characters; use a UUID.")
    if any(value < 0 for value in changes.metrics.values()):
        raise InvalidCommit("A metric cannot be negative.")
    if changes.change_files and not changes.data_change:
        raise InvalidCommit("A commit with data-change: false cannot have change-files.")
    touched_paths = [*changes.removes, *changes.row_deletes]
    _distinct(touched_paths, table, "is removed, or loses rows,")
    rules.check_new_paths(changes.adds, changes.change_files, table.location)
    added_paths = [add.path for add in changes.adds]
    _distinct(
        [*added_paths, *(file.path for file in changes.change_files), *touched_paths], table, "is changed"
    )
    _check_written_vectors(changes)
    _check_reads(changes, table)
    _check_rewritten(changes, touched_paths, added_paths, table)
    _check_row_map(changes, added_paths)
    _check_added_deletes(changes, table)
    _check_statistics(changes, table)
    return replace(
        changes,
        transaction_id=transaction_id,
        request_hash=request_hash,
        engine_info=f"{changes.engine_info} {ENGINE_INFO}" if changes.engine_info else ENGINE_INFO,
        row_map=changes.row_map and RowMap(tuple(changes.row_map.files), tuple(changes.row_map.outputs)),
        added_deletes={path: rows for path, rows in changes.added_deletes.items() if rows},
    )


def _check_written_vectors(changes: Changes) -> None:
    for path, vector in changes.written_vectors.items():
        try:
            place = vector.relative_path()
        except CorruptDeletionVector:
            place = None
        if place is None or vector.offset is None or vector.offset < 1:
            raise InvalidDeletionVector(
                f"The deletion vector of file '{path[:300]}' is not at a descriptor that this service "
                "allocated. Request one from deletion-vectors; it has storage type 'u' and an offset.",
                file=path[:300],
            )


def _check_reads(changes: Changes, table: OpenTable) -> None:
    if changes.reads is not None:
        for path in changes.reads.files:
            _key(path, table)
        _distinct(changes.reads.rows, table, "has rows that were read")


def _check_rewritten(
    changes: Changes, removed: Sequence[str], added_paths: Sequence[str], table: OpenTable
) -> None:
    if not changes.rewritten:
        return
    sources, new = {_key(path, table) for path in removed}, set(added_paths)
    for path, runs in changes.rewritten.items():
        if path not in new:
            raise InvalidCommit(
                f"`rewritten` lists '{path[:300]}', but this commit does not add it.",
                file=path[:300],
            )
        for run in runs:
            if _key(run.source, table) not in sources:
                raise InvalidCommit(
                    f"`rewritten` takes rows of '{path[:300]}' from '{run.source[:300]}', but this commit "
                    "does not remove that file.",
                    file=run.source[:300],
                )
    _distinct(changes.rewritten, table, "is listed in `rewritten`")


def _check_added_deletes(changes: Changes, table: OpenTable) -> None:
    if not changes.added_deletes:
        return
    if changes.data_change:
        raise InvalidCommit("`added-deletes` are for a commit with `data-change: false`.")
    for path in changes.added_deletes:
        if path not in changes.rewritten:
            raise InvalidCommit(
                f"`added-deletes` lists '{path[:300]}', of which `rewritten` does not tell where its rows come from.",
                file=path[:300],
            )
    _distinct(changes.added_deletes, table, "is listed in `added-deletes`")


def _check_statistics(changes: Changes, table: OpenTable) -> None:
    if not changes.statistics:
        return
    others = changes.adds or changes.removes or changes.row_deletes or changes.table_changes
    if changes.data_change or others:
        raise InvalidCommit("`statistics` require a commit with `data-change: false` and no other changes.")
    _distinct(changes.statistics, table, "gets statistics")


def _check_row_map(changes: Changes, added_paths: Sequence[str]) -> None:
    row_map = changes.row_map
    if row_map is None:
        return
    if changes.rewritten or changes.data_change:
        raise InvalidCommit("`row-map` requires a commit with `data-change: false` and without `rewritten`.")
    for file in row_map.files:
        if not is_row_map_path(file.path):
            raise InvalidCommit(
                f"'{file.path}' is not a row map file; their paths have the form _delvec/row_maps/<uuid>.parquet.",
                file=file.path,
            )
    if sorted(each.path for each in row_map.outputs) != sorted(added_paths):
        raise InvalidCommit(
            "`row-map` must list every file that the commit adds exactly once, and no others."
        )
    if sum(each.num_rows for each in row_map.outputs) != sum(each.num_rows for each in row_map.files):
        raise InvalidCommit("The number of rows in the files of `row-map` differs from that of its outputs.")


def _distinct(paths: Iterable[str], table: OpenTable, what: str) -> None:
    rules.distinct(paths, table.name, table.location, what)


def _key(path: str, table: OpenTable) -> str:
    return rules.file_key(path, table.name, table.location)
