"""Data files of Iceberg snapshots that are no longer in storage."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final
from urllib.parse import quote

from delvec_errors import InvalidLocation, LocationNotAllowed
from delvec_iceberg.data_files import file_path
from delvec_kernel.actions.actions import AddFile, RemoveFile
from delvec_kernel.locations import canonical_log_path, local_path
from delvec_kernel.snapshot.replay import Commit
from delvec_service.store.open_table import OpenTable

__all__ = ["lost_files", "passing_files"]

_CONCURRENT: Final = 32
_AT_ONCE: Final = 1000


def passing_files(commits: Sequence[Commit], location: str) -> set[str]:
    """Return the data files, as in Iceberg, that versions between these commits have and later ones of them remove.

    Args:
        commits: consecutive ones.
        location: the table's canonical location.
    """
    removed_paths: set[str] = set()
    for commit in commits[1:]:
        removes, adds = set(), set()
        for action in commit.actions:
            if isinstance(action, RemoveFile):
                removes.add(canonical_log_path(action.path, location))
            elif isinstance(action, AddFile):
                adds.add(canonical_log_path(action.path, location))
        removed_paths |= removes - adds
    return {file_path(location, path) for path in removed_paths}


def lost_files(table: OpenTable, paths: Sequence[str]) -> Iterator[str]:
    """Yield the data files that do not exist in storage or may not be accessed, in order: one request each.

    Args:
        table: the Delta table.
        paths: as in Iceberg, which does not encode names.

    Raises:
        StorageError: storage did not answer.
    """

    def is_lost(path: str) -> bool:
        url = quote(path, safe=":/")
        try:
            return table.objects.head(f"file://{url}" if path.startswith("/") else url) is None
        except (LocationNotAllowed, InvalidLocation):
            return True

    if local_path(table.location) is not None:
        yield from filter(is_lost, paths)
        return
    with ThreadPoolExecutor(_CONCURRENT, "delvec-head") as pool:
        for start in range(0, len(paths), _AT_ONCE):
            some = paths[start : start + _AT_ONCE]
            yield from (path for path, lost in zip(some, pool.map(is_lost, some), strict=True) if lost)
