"""Decoded deletion vectors in memory: the most recently read and written ones. Others are read when needed."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from pyroaring import BitMap64

from delvec_kernel.deletion_vectors.deletion_vector import Descriptor
from delvec_service.store.lru_cache import LruCache
from delvec_service.store.open_table import OpenTable
from delvec_storage import files as storage

__all__ = ["DeletionVectorCache", "StoredRows"]

_BUDGET: Final = 64 * 1024 * 1024
_OVERHEAD: Final = 400
_CONTAINER: Final = 32
_AT_ONCE: Final = 16 * 1024 * 1024
"""Bytes of deletion vectors to read at a time if they are too many to hold."""


class DeletionVectorCache:
    """Deletion vectors by the table's location and their unique id; safe to share between threads.

    A file of deletion vectors never changes, so entries never become stale. Callers must not modify them.

    Args:
        max_bytes: the approximate maximum memory.
    """

    def __init__(self, max_bytes: int = _BUDGET) -> None:
        self._held: LruCache[tuple[str, str], BitMap64] = LruCache(max_bytes)

    @property
    def nbytes(self) -> int:
        """The approximate memory that cached deletion vectors take, in bytes."""
        return self._held.weight

    def keep(self, location: str, descriptor: Descriptor, rows: BitMap64) -> None:
        """Add a deletion vector that was read or written."""
        if descriptor.is_inline:
            return  # decoding them is as fast
        self._held.put((location, descriptor.unique_id), rows, _nbytes(rows))

    def find(self, location: str, descriptor: Descriptor) -> BitMap64 | None:
        """Return a deletion vector's rows if they are cached."""
        found = self._held.get((location, descriptor.unique_id))
        return None if found is None or len(found) != descriptor.cardinality else found

    def load(
        self, table: OpenTable, descriptors: Sequence[tuple[str, Descriptor]], version: int | None
    ) -> dict[str, BitMap64]:
        """Return the deleted rows by data file path, reading those that are not cached.

        Args:
            table: the table.
            descriptors: the data file's path as in the log, and its descriptor.
            version: the version, for errors.

        Raises:
            CorruptDeletionVector: or a subclass: one cannot be read.
            LocationNotAllowed: a descriptor points outside the table.
            StorageError: storage did not answer.
        """
        deleted_rows: dict[str, BitMap64] = {}
        missing: dict[str, Descriptor] = {}
        for path, descriptor in descriptors:
            rows = self.find(table.location, descriptor)
            if rows is None:
                missing[path] = descriptor
            else:
                deleted_rows[path] = rows
        if missing:
            with table.observer.storage("read-deletion-vectors"):
                read = storage.read_deletion_vectors(
                    table.location,
                    list(missing.items()),
                    table=table.name,
                    version=version,
                    is_allowed=table.roots.allows,
                )
            for path, rows in read.items():
                self.keep(table.location, missing[path], rows)
            deleted_rows.update(read)
        table.observer.vectors_found(len(descriptors) - len(missing), len(missing))
        return deleted_rows


class StoredRows(Mapping[str, BitMap64]):
    """The rows of deletion vectors by the data file's path, read on access and not held here.

    The deletion vectors of a large DELETE may not fit in memory. If they are accessed in order, each is read once.

    Args:
        cache: keeps the most recently used ones.
        table: the table.
        vectors: the descriptors.
        version: the version, for errors.
        held: rows of other files, that are in memory anyway.

    Raises:
        CorruptDeletionVector: or a subclass, on access: a deletion vector cannot be read.
        LocationNotAllowed: on access: a descriptor points outside the table.
        StorageError: on access: storage did not answer.
    """

    def __init__(
        self,
        cache: DeletionVectorCache,
        table: OpenTable,
        vectors: Mapping[str, Descriptor],
        version: int | None,
        known_rows: Mapping[str, BitMap64] | None = None,
    ) -> None:
        self._cache = cache
        self._table = table
        self._vectors = vectors
        self._version = version
        self._held = known_rows or {}
        self._part_of = {path: part for part in _parts(vectors) for path in part}
        self._here: Mapping[str, BitMap64] = {}

    def __getitem__(self, path: str) -> BitMap64:
        if path in self._held:
            return self._held[path]
        if path not in self._here:
            part = self._part_of[path]
            wanted = [(each, self._vectors[each]) for each in part]
            self._here = self._cache.load(self._table, wanted, self._version)
        return self._here[path]

    def __iter__(self) -> Iterator[str]:
        yield from self._held
        yield from self._vectors

    def __len__(self) -> int:
        return len(self._held) + len(self._vectors)


def _parts(vectors: Mapping[str, Descriptor]) -> Iterator[tuple[str, ...]]:
    """Yield groups of adjacent paths whose deletion vectors fit in memory together."""
    part: list[str] = []
    size = 0
    for path, vector in vectors.items():
        if part and size + vector.size_in_bytes > _AT_ONCE:
            yield tuple(part)
            part, size = [], 0
        part.append(path)
        size += vector.size_in_bytes + _OVERHEAD
    if part:
        yield tuple(part)


def _nbytes(rows: BitMap64) -> int:
    """Return the approximate memory that a bitmap takes, in bytes."""
    # Not the size in the file, where a run of rows takes a few bytes: in memory it may be containers of 8 KiB.
    bitmap_statistics = rows.get_statistics()
    containers = (
        bitmap_statistics["n_bytes_array_containers"]
        + bitmap_statistics["n_bytes_run_containers"]
        + bitmap_statistics["n_bytes_bitset_containers"]
    )
    return containers + bitmap_statistics["n_containers"] * _CONTAINER + _OVERHEAD
