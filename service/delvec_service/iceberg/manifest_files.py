"""Manifests in storage: written in parts that are cheap to rewrite, and found by the files that they list."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import xxhash

from delvec_kernel.iceberg.manifests import (
    DATA,
    DELETED,
    ManifestEntry,
    ManifestFile,
    describe,
    read_manifest,
    read_manifest_list,
    write_manifest,
)
from delvec_kernel.iceberg.partitions import PartitionSpec
from delvec_service.iceberg.directory import IcebergDirectory
from delvec_service.store.lru_cache import LruCache

__all__ = ["ENTRIES", "ManifestFiles", "ManifestIndex", "key_of"]

ENTRIES: Final = 1000
"""Maximum number of files in a manifest: a commit that changes one of them rewrites the whole manifest."""
_MOST_HELD: Final = 64 * 1024 * 1024
_Hashes: TypeAlias = npt.NDArray[np.uint64]


def key_of(entry: ManifestEntry) -> str:
    """Return the data file that an entry refers to; for deletes, the one that they apply to."""
    file = entry["data_file"]
    return str(file["file_path"] if file["content"] == DATA else file["referenced_data_file"])


class ManifestIndex:
    """The data files of manifests, in memory: 8 bytes for each. Manifests never change. Safe to share.

    Args:
        max_bytes: the approximate maximum memory.
    """

    def __init__(self, max_bytes: int = _MOST_HELD) -> None:
        self._held: LruCache[str, _Hashes] = LruCache(max_bytes)

    def get(self, path: str) -> _Hashes | None:
        """Return the sorted hashes of a manifest's data files, or None if not cached."""
        return self._held.get(path)

    def put(self, path: str, entries: Iterable[ManifestEntry]) -> _Hashes:
        """Cache and return the hashes of a manifest's data files, without those marked as deleted."""
        hashes = np.sort(_hashes(key_of(entry) for entry in entries if entry["status"] != DELETED))
        self._held.put(path, hashes, hashes.nbytes)
        return hashes


class ManifestFiles:
    """Reads and writes the manifests of one Iceberg table.

    Args:
        directory: the table's directory.
        index: of manifests that were read or written before.
    """

    def __init__(self, directory: IcebergDirectory, index: ManifestIndex) -> None:
        self._directory = directory
        self._index = index

    def write(
        self,
        entries: Sequence[ManifestEntry],
        *,
        content: int,
        spec: PartitionSpec,
        schema: Mapping[str, Any],
        snapshot_id: int,
        sequence_number: int,
        name: str,
    ) -> ManifestFile:
        """Write a manifest and return its row for the manifest list.

        Args:
            entries: at least one.
            content: DATA or DELETES.
            spec: of all files in it.
            schema: the table's schema, as in the metadata.
            snapshot_id: of the snapshot that writes it.
            sequence_number: likewise.
            name: a unique file name.
        """
        data = write_manifest(
            entries,
            content=content,
            spec=spec,
            schema=schema,
            format_version=self._directory.format_version,
        )
        path = self._directory.put(f"metadata/{name}.avro", data)
        self._index.put(path, entries)
        return describe(
            entries,
            path=path,
            length=len(data),
            content=content,
            spec=spec,
            snapshot_id=snapshot_id,
            sequence_number=sequence_number,
        )

    def of_snapshot(self, snapshot: Mapping[str, Any]) -> list[ManifestFile]:
        """Return the manifests of a snapshot.

        Raises:
            CorruptIcebergMetadata: its manifest list is missing or invalid.
            StorageError: storage did not answer.
        """
        path = snapshot["manifest-list"]
        return read_manifest_list(self._directory.get(path), path)

    def live(self, manifest: ManifestFile) -> list[ManifestEntry]:
        """Return a manifest's entries, without those marked as deleted.

        Raises:
            CorruptIcebergMetadata: it is missing or invalid.
            StorageError: storage did not answer.
        """
        entries = read_manifest(self._directory.get(manifest["manifest_path"]), manifest)
        return [entry for entry in entries if entry["status"] != DELETED]

    def about(self, manifests: Iterable[ManifestFile], paths: Collection[str]) -> Iterator[ManifestFile]:
        """Yield the manifests that refer to one of these data files, and perhaps a few others.

        Raises:
            CorruptIcebergMetadata: one is missing or invalid.
            StorageError: storage did not answer.
        """
        wanted = _hashes(paths)
        if not len(wanted):
            return
        for manifest in manifests:
            path = manifest["manifest_path"]
            known = self._index.get(path)
            if known is None:
                known = self._index.put(path, self.live(manifest))
            if len(known):
                at = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
                if (known[at] == wanted).any():
                    yield manifest


def _hashes(paths: Iterable[str]) -> _Hashes:
    return np.fromiter((xxhash.xxh3_64_intdigest(path.encode()) for path in paths), np.uint64)
