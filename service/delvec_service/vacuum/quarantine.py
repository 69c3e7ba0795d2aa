"""Quarantines: files that VACUUM moved within the table's directory, and that undo puts back or purge deletes.

The files of a quarantine are below ``_delvec/quarantined/<id>/`` under their old paths; that directory is the source
of truth. A JSON file in ``_delvec/quarantines/`` has the time and the version. No VACUUM looks into directories whose
names begin with ``_``.
"""

import json
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from delvec_contract.maintenance import Quarantine
from delvec_errors import CorruptTable, QuarantineNotFound
from delvec_kernel.features.table_features import check_writable
from delvec_kernel.transaction import row_maps
from delvec_service.snapshots.loader import SnapshotLoader
from delvec_service.store.open_table import OpenTable
from delvec_storage.moves import move_files
from delvec_storage.trees import LISTED, Deletion, TreeListing, delete_files, remove_empty_directories

__all__ = ["EmptiedQuarantine", "NewQuarantine", "purge_quarantine", "quarantines", "undo_quarantine"]

_RECORDS: Final = "_delvec/quarantines"
_FILES: Final = "_delvec/quarantined"
_MAX_RECORD: Final = 64 * 1024
_BATCH_FILES: Final = 1000
_AT_ONCE: Final = 8


@dataclass(frozen=True)
class NewQuarantine:
    """A quarantine that a VACUUM moves files into.

    Attributes:
        id: its time and a random part.
    """

    table: OpenTable
    id: str

    @classmethod
    def create(cls, table: OpenTable, version: int, num_files: int, size: int) -> "NewQuarantine":
        """Record a quarantine before the first file moves: no file in it is ever without a record.

        Args:
            table: the table.
            version: the version of VACUUM START.
            num_files: number of files to move.
            size: their total bytes.

        Raises:
            StorageError: the record cannot be written.
        """
        now = datetime.now(UTC)
        record = Quarantine(
            id=f"{now:%Y%m%dT%H%M%SZ}-{uuid.uuid4().hex[:8]}",
            created_at=now.isoformat(),
            version=version,
            num_files=num_files,
            size_in_bytes=size,
            state="quarantined",
        )
        _write(table, record)
        return cls(table, record.id)

    def move(self, paths: Sequence[str], before: int) -> Deletion:
        """Move files into it; local files changed at or after ``before`` stay."""
        location, is_allowed = self.table.location, self.table.roots.allows
        return move_files(location, paths, "", f"{_FILES}/{self.id}", before=before, is_allowed=is_allowed)


@dataclass
class EmptiedQuarantine:
    """The result of an undo or a purge.

    Attributes:
        record: as it is afterwards.
        num_files: number of files put back or deleted.
        size_in_bytes: the size in bytes of these files.
        kept: files that stay, because another file has taken their place.
    """

    record: Quarantine
    num_files: int = 0
    size_in_bytes: int = 0
    kept: list[str] = field(default_factory=list)


def quarantines(table: OpenTable) -> list[Quarantine]:
    """Return the quarantines of a table, newest first.

    Raises:
        CorruptTable: a record cannot be read.
        StorageError: storage did not answer.
    """
    quarantine_records = []
    for meta in table.objects.list_from(_RECORDS):
        name, _, kind = meta.name.rpartition(".")
        if kind == "json":
            try:
                quarantine_records.append(_read(table, name))
            except QuarantineNotFound:
                continue  # purged in the meantime
    return sorted(quarantine_records, key=lambda one: one.id, reverse=True)


def undo_quarantine(table: OpenTable, loader: SnapshotLoader, identifier: str) -> EmptiedQuarantine:
    """Put the files of a quarantine back under their old paths; existing files are not replaced.

    If it is interrupted, the next call continues.

    Raises:
        QuarantineNotFound: no quarantine has that name.
        UnsupportedTable: or a subclass: Delvec cannot write the table.
        CorruptTable: its record cannot be read.
        StorageError: storage failed or did not answer; some files may have been put back.
    """
    emptied_quarantine = _found(table, loader, identifier)

    def put_back(paths: Sequence[str]) -> Deletion:
        files = [path for path in paths if _may_return(path)]
        location, is_allowed = table.location, table.roots.allows
        moved = move_files(location, files, f"{_FILES}/{identifier}", "", is_allowed=is_allowed)
        moved.kept += sorted({*paths} - {*files})
        return moved

    _empty(table, emptied_quarantine, put_back)
    if not emptied_quarantine.kept:
        now = datetime.now(UTC).isoformat()
        emptied_quarantine.record = emptied_quarantine.record.model_copy(
            update={"state": "undone", "undone_at": now}
        )
        _write(table, emptied_quarantine.record)
    return emptied_quarantine


def purge_quarantine(table: OpenTable, loader: SnapshotLoader, identifier: str) -> EmptiedQuarantine:
    """Delete the files of a quarantine, and then its record.

    Raises:
        DelvecError: as for :func:`undo_quarantine`; some files may have been deleted.
    """
    emptied_quarantine = _found(table, loader, identifier)
    inside = f"{table.location}/{_FILES}/{identifier}"

    def delete(paths: Sequence[str]) -> Deletion:
        return delete_files(inside, paths, 2**62, is_allowed=table.roots.allows)

    _empty(table, emptied_quarantine, delete)
    table.objects.delete(_record(identifier))
    return emptied_quarantine


def _found(table: OpenTable, loader: SnapshotLoader, identifier: str) -> EmptiedQuarantine:
    """Return a quarantine of a table that may be written, before it is emptied."""
    snapshot = loader.load(table.objects, table.name)
    check_writable(snapshot.protocol, snapshot.metadata, table.name, writes_rows=False)
    return EmptiedQuarantine(_read(table, identifier))


def _may_return(path: str) -> bool:
    """Whether a file may be put back: no file may become a part of the log, or one of Delvec's records."""
    names = unquote(path).split("/")
    return row_maps.is_row_map_path(path) or (names[0] != "_delvec" and "_delta_log" not in names)


def _empty(
    table: OpenTable, emptied_quarantine: EmptiedQuarantine, leave: Callable[[Sequence[str]], Deletion]
) -> None:
    """Move or delete all files, in batches; directories that become empty are removed, too."""
    inside = f"{table.location}/{_FILES}/{emptied_quarantine.record.id}"
    listing = TreeListing(inside, lambda _: False, table.roots.allows, hides_metadata=False)
    listed = pa.Table.from_batches(listing.batches(), LISTED).sort_by("path")
    with ThreadPoolExecutor(_AT_ONCE, "delvec-quarantine") as pool:
        for result in pool.map(leave, _slices(listed["path"])):
            emptied_quarantine.num_files += len(result.deleted)
            gone = pc.is_in(listed["path"], value_set=pa.array(result.deleted, pa.string()))
            emptied_quarantine.size_in_bytes += pc.sum(listed["size"].filter(gone), min_count=0).as_py()
            emptied_quarantine.kept += result.kept
            if result.error is not None:
                raise result.error
    _remove_directories(table, emptied_quarantine.record.id)


def _remove_directories(table: OpenTable, identifier: str) -> None:
    """Remove empty directories, from the deepest up; those that cannot be removed do no harm."""
    inside, is_allowed = f"{table.location}/{_FILES}/{identifier}", table.roots.allows
    while True:
        left = TreeListing(inside, lambda _: False, is_allowed, hides_metadata=False)
        list(left.batches())
        if not remove_empty_directories(inside, [path for path, _ in left.empty], is_allowed=is_allowed):
            break
    remove_empty_directories(f"{table.location}/{_FILES}", [identifier], is_allowed=is_allowed)


def _slices(paths: pa.ChunkedArray) -> Iterator[list[str]]:
    for start in range(0, len(paths), _BATCH_FILES):
        yield paths.slice(start, _BATCH_FILES).to_pylist()


def _record(identifier: str) -> str:
    return f"{_RECORDS}/{identifier}.json"


def _write(table: OpenTable, record: Quarantine) -> None:
    table.objects.put(_record(record.id), record.model_dump_json(by_alias=True).encode())


def _read(table: OpenTable, identifier: str) -> Quarantine:
    path = _record(identifier)
    try:
        quarantine_record = Quarantine.model_validate(json.loads(table.objects.get_start(path, _MAX_RECORD)))
    except FileNotFoundError:
        raise QuarantineNotFound(
            f"Table '{table.name}' has no quarantine '{identifier}'; list them with `delvec quarantine list`.",
            table=table.name,
            quarantine=identifier,
        ) from None
    except (ValueError, RecursionError) as error:
        raise CorruptTable(
            f"The record of quarantine '{identifier}' of table '{table.name}', {path}, cannot be read. Its files "
            f"are below {_FILES}/{identifier}: move them back or delete them by hand, then delete the record.",
            table=table.name,
            file=path,
        ) from error
    # The name of the file counts, not its content: it becomes part of paths.
    return quarantine_record.model_copy(update={"id": identifier})
