"""Which files outside a table's own folder its log may name.

The service reads data files with its own rights on behalf of the table's maintainers, and anyone who can write to the table's folder
can forge its log. So a log may name files of another table only if the table is recorded as a shallow clone of it: Delvec
recorded it when it made the clone, or when a principal who reads both registered it.

Tested in `tests/integration/service/tables/test_named_files.py`.
"""

from collections.abc import Callable, Sequence
from typing import Final

import pyarrow.compute as pc

from delvec_errors import CorruptTable
from delvec_kernel.locations import canonical_log_paths, within
from delvec_kernel.snapshot.snapshot import Snapshot
from delvec_service.snapshots.loader import SnapshotLoader
from delvec_service.store.clone_records import read_clone_records, write_clone_record
from delvec_service.store.clones import CloneStore
from delvec_service.store.lru_cache import LruCache
from delvec_service.store.objects import ObjectStore
from delvec_service.tables.places import Places, Requester
from delvec_storage.roots import Roots

__all__ = ["NamedFiles"]

_MAX_KNOWN: Final = 100_000
"""Versions of tables, and folders outside them that their logs name."""


class NamedFiles:
    """Decides which files a log may name where tokens are required.

    Args:
        places: finds the table around a file.
        clones: the shallow clones that are recorded.
        loader: reads snapshots.
        everywhere: all roots of all owners.
        is_open: whether no token is required: then everybody reads every table.
    """

    def __init__(
        self,
        places: Places,
        clones: CloneStore,
        loader: SnapshotLoader,
        everywhere: Roots,
        is_open: Callable[[], bool],
    ) -> None:
        self._places = places
        self._clones = clones
        self._loader = loader
        self._everywhere = everywhere
        self._is_open = is_open
        self._elsewhere: LruCache[tuple[str, int], frozenset[str]] = LruCache(_MAX_KNOWN)

    def roots(self, roots: Roots, location: str, sources: Sequence[str] = ()) -> Roots:
        """Return the roots of the files of a table.

        Args:
            roots: the roots of the table's name.
            location: the table's canonical location.
            sources: places whose files the caller lets it name.
        """
        return roots if self._is_open() else _RootsOfFiles(roots, location, sources, self)

    def other_table(self, place: str, location: str) -> str | None:
        """Return the table at a place or around it, if it is not the one at a location."""
        return self._places.table_around(place, location)

    def is_clone(self, location: str, source: str, sources: Sequence[str]) -> bool:
        """Whether a table is known to need files of another one."""
        if any(within(each, source) for each in (*sources, *self._clones.above(location))):
            return True
        try:  # the database may have been lost
            records = read_clone_records(ObjectStore(source, is_allowed=self._everywhere.allows), source)
        except CorruptTable:
            return False
        return any(record.location == location for _, record in records)

    def record_sources(self, objects: ObjectStore, name: str, version: int, requester: Requester) -> None:
        """Record a table that is being registered as a clone of the tables whose files it names, if the requester reads them.

        Args:
            objects: the table's files.
            name: the table's name, for errors.
            version: the table's newest version.
            requester: the principal that registers it; clients do so whenever they open a table by its location.

        Raises:
            DelvecError: its log cannot be read, or the clone cannot be recorded.
        """
        if self._is_open():
            return
        location = objects.location
        folders = self._elsewhere.get((location, version))
        if folders is None:
            folders = self._loader.reading(objects, name, _folders_elsewhere, version=version)
            self._elsewhere.put((location, version), folders, 1 + len(folders))
        sources = {self.other_table(folder, location) for folder in folders}
        for source in sorted(filter(None, sources)):
            if self._places.shows(source, requester) and not self.is_clone(location, source, ()):
                record = self._clones.record(location, source, 0)
                write_clone_record(ObjectStore(source, is_allowed=self._everywhere.allows), record)


def _folders_elsewhere(snapshot: Snapshot) -> frozenset[str]:
    """Return the folders of a table's files that are outside its own."""
    folders: set[str] = set()
    for batch in snapshot.live.batches(("path",)):
        paths = canonical_log_paths(batch.column("path"), snapshot.location)
        urls = paths.filter(pc.match_substring(paths, "://"))  # in relative paths, a colon is encoded
        folders |= {url.rpartition("/")[0] for url in urls.to_pylist()}
    return frozenset(folders)


class _RootsOfFiles(Roots):
    """The roots of the files of one table. Remembers what it found out: it lasts as long as the table is open."""

    def __init__(self, roots: Roots, location: str, sources: Sequence[str], named: NamedFiles) -> None:
        super().__init__(*roots.arguments)
        self._location = location
        self._sources = sources
        self._named = named
        self._of_sources: set[str] = set()
        self._known: dict[str, bool] = {}

    def _contains(self, real: str) -> bool:
        if not super()._contains(real):
            return False
        if within(real, self._location) or any(within(real, source) for source in self._of_sources):
            return True
        if real not in self._known:
            # Of what is asked about some are folders, one of which may be the other table's own.
            source = self._named.other_table(real, self._location)
            is_free = source is None or self._named.is_clone(self._location, source, self._sources)
            if source is not None and is_free:
                self._of_sources.add(source)
            self._known[real] = is_free
        return self._known[real]
