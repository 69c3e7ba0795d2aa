"""Deletion of the folder of a dropped table, when its retention has ended.

As VACUUM does, it leaves other tables in the folder alone, and what links lead to. The log goes last: until then the folder
is a table's, and nobody creates another one there.

Tested in `tests/integration/service/catalog/test_dropped_tables.py`.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from delvec_errors import NotADeltaTable, RetentionTooShort, TableInUse, VacuumIncomplete
from delvec_maintenance.vacuum.candidates import outside
from delvec_maintenance.vacuum.references import References
from delvec_service.snapshots.loader import SnapshotLoader
from delvec_service.snapshots.log_reader import LogReader
from delvec_service.store.clones import CloneStore
from delvec_service.store.dropped_tables import DroppedTable
from delvec_service.store.open_table import OpenTable
from delvec_service.tables.registry import Tables
from delvec_service.vacuum.clone_files import CloneReferences
from delvec_storage.trees import LISTED, TreeListing, delete_files, remove_empty_directories

__all__ = ["DeletedTable", "delete_dropped"]

_BATCH_FILES: Final = 1000
_IN_FLIGHT: Final = timedelta(hours=1)
"""A commit that began before the table was dropped ends within this time."""
_NO_AGE_LIMIT: Final = 2**62
"""Milliseconds since the epoch after which no file was written: the whole folder goes, whatever its age."""


@dataclass(frozen=True)
class DeletedTable:
    """What was deleted.

    Attributes:
        num_files: files, of which storage had that many.
        size_in_bytes: their size.
        kept: links, and folders of other tables, which were left alone.
    """

    num_files: int
    size_in_bytes: int
    kept: list[str]


def delete_dropped(
    tables: Tables,
    loader: SnapshotLoader,
    clone_store: CloneStore,
    dropped_table: DroppedTable,
    now: datetime,
    *,
    retention: timedelta,
    shows: Callable[[str], bool] = lambda _location: True,
) -> DeletedTable:
    """Delete the files of a dropped table, and forget it. Continues a deletion that was interrupted.

    Args:
        tables: the registered tables, and the dropped ones.
        loader: reads snapshots of clones.
        clone_store: knows the shallow clones.
        dropped_table: the table.
        now: the time.
        retention: how long it is kept.
        shows: whether errors may name a clone at a location.

    Raises:
        RetentionTooShort: it was dropped too recently.
        TableInUse: a shallow clone needs its files, or somebody still commits to it.
        TableNotFound: it was brought back meanwhile.
        LocationNotAllowed: it is inside another table, or outside the roots.
        VacuumIncomplete: storage did not delete all files.
        DelvecError: what clones need is unknown, or storage does not answer; nothing was deleted.
    """
    record = dropped_table.record
    tables.within_roots(record.location, record.name)
    table = tables.unregistered(record.location, record.name)
    tables.places.check_deletions(record)
    if not dropped_table.is_being_deleted:
        until = dropped_table.dropped_at + retention
        if now < until:
            raise RetentionTooShort(
                f"Table '{record.name}' was dropped at {dropped_table.dropped_at:%Y-%m-%d %H:%M} UTC, and its files are kept until "
                f"{until:%Y-%m-%d %H:%M} UTC (DELVEC_DROPPED_TABLE_DAYS). Wait, or turn the check off.",
                table=record.name,
            )
        _check_unused(table, dropped_table)
        _check_clones(
            table, CloneReferences(table, tables.roots.everywhere, loader, clone_store, _ms(now), shows)
        )
        tables.dropped.begin_deletion(record)
    deleted_table = _deleted(table)
    tables.remove(record)
    return deleted_table


def _check_unused(table: OpenTable, dropped_table: DroppedTable) -> None:
    """Reject a table to which somebody commits: a service with another database may have registered it, too."""
    try:
        commits = LogReader(table.objects, table.name).list_all().commits
    except NotADeltaTable:
        return  # the folder is gone
    newest = max((file.last_modified_ms for file in commits.values()), default=0)
    if newest > _ms(dropped_table.dropped_at + _IN_FLIGHT):
        raise TableInUse(
            f"Somebody has committed to table '{table.name}' at {table.location} since it was dropped, so its files were "
            "not deleted. Find out which service or program uses it, or bring the table back.",
            table=table.name,
            location=table.location,
        )


def _check_clones(table: OpenTable, clones: CloneReferences) -> None:
    """Reject a table whose files shallow clones need."""
    references = References(table.location)
    clones.keep(references)
    for batch in _listing(table).batches():
        needed = batch.filter(pa.array(references.has(batch.column("path"))))
        if needed.num_rows:
            raise TableInUse(
                f"A shallow clone of the dropped table '{table.name}' needs its files, such as "
                f"{needed.column('path')[0]}, so none was deleted. Drop the clone, or replace it by a deep one.",
                table=table.name,
                location=table.location,
            )


def _deleted(table: OpenTable) -> DeletedTable:
    listing = _listing(table)
    files = pa.Table.from_batches(listing.batches(), LISTED)
    files = outside(files, listing.shielded).sort_by("path")
    in_log = pc.starts_with(files["path"], "_delta_log/")
    is_allowed = table.roots.allows
    for part in (files.filter(pc.invert(in_log)), files.filter(in_log)):
        for start in range(0, part.num_rows, _BATCH_FILES):
            paths = part["path"].slice(start, _BATCH_FILES).to_pylist()
            deletion = delete_files(table.location, paths, _NO_AGE_LIMIT, is_allowed=is_allowed)
            if deletion.error is not None:
                raise VacuumIncomplete(
                    f"Not all files of the dropped table '{table.name}' at {table.location} could be deleted: "
                    f"{deletion.error.message} It can no longer be brought back; remove the cause and delete it again.",
                    table=table.name,
                    remaining=len(deletion.failed),
                    cause=deletion.error.type,
                ) from deletion.error
    emptied = [*(path for path, _ in listing.empty), *_folders(files["path"].to_pylist())]
    remove_empty_directories(table.location, emptied, is_allowed=is_allowed)
    above, _, folder = table.location.rpartition("/")
    remove_empty_directories(above, [folder], is_allowed=is_allowed)
    size = pc.sum(files["size"], min_count=0).as_py() or 0
    return DeletedTable(files.num_rows, size, sorted({*listing.links, *listing.shielded}))


def _listing(table: OpenTable) -> TreeListing:
    return TreeListing(
        table.location, lambda _name: False, table.roots.allows, hides_metadata=False, hides_log=False
    )


def _folders(paths: Iterable[str]) -> set[str]:
    """Return all folders above some files, up to the table's own."""
    folders: set[str] = set()
    for path in paths:
        folder = path.rpartition("/")[0]
        while folder and folder not in folders:
            folders.add(folder)
            folder = folder.rpartition("/")[0]
    return folders


def _ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)
