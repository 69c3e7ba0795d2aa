"""Manifests in storage: written in parts that are cheap to rewrite, and found by the files that they list.

Tested in `tests/integration/service/iceberg/test_conversion.py`.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from delvec_errors import CorruptIcebergMetadata, UnusableFile
from delvec_iceberg.manifests import (
    DATA,
    DELETED,
    ManifestEntry,
    ManifestFile,
    describe,
    read_manifest,
    read_manifest_list,
    write_manifest,
)
from delvec_iceberg.partitions import PartitionSpec
from delvec_iceberg.position_deletes import CoveredFile, read_covered_files
from delvec_service.iceberg.metadata_directory import IcebergDirectory
from delvec_service.store.lru_cache import LruCache

__all__ = ["ENTRIES", "ManifestFiles", "ManifestIndex", "is_shared", "key_of"]

ENTRIES: Final = 1000
"""Maximum number of files in a manifest: a commit that changes one of them rewrites the whole manifest."""
_MAX_HELD: Final = 64 * 1024 * 1024
_AT_ONCE: Final = 8
_Hashes: TypeAlias = npt.NDArray[np.uint64]


def is_shared(entry: ManifestEntry) -> bool:
    """Whether an entry is a position delete file for several data files."""
    file = entry["data_file"]
    return (
        file["content"] != DATA
        and file["file_format"] == "PARQUET"
        and file.get("referenced_data_file") is None
    )


def key_of(entry: ManifestEntry) -> str:
    """Return the data file that an entry refers to; for deletes that are not shared, the one that they apply to."""
    file = entry["data_file"]
    return str(file["file_path"] if file["content"] == DATA else file["referenced_data_file"])


@dataclass(frozen=True)
class _IndexEntry:
    """The data files of a manifest or a shared delete file.

    Attributes:
        hashes: the hashes of the data files' paths, sorted.
        shared: the shared delete files that a manifest lists.
    """

    hashes: _Hashes
    shared: tuple[str, ...] = ()

    def refers_to(self, wanted: _Hashes) -> npt.NDArray[np.bool_]:
        """Return which of these hashes are in it."""
        if not len(self.hashes):
            return np.zeros(len(wanted), np.bool_)
        at = np.minimum(np.searchsorted(self.hashes, wanted), len(self.hashes) - 1)
        found: npt.NDArray[np.bool_] = self.hashes[at] == wanted
        return found


class ManifestIndex:
    """The data files of manifests and shared delete files, in memory: 8 bytes for each.

    These files never change. Safe to share.

    Args:
        max_bytes: the approximate maximum memory.
    """

    def __init__(self, max_bytes: int = _MAX_HELD) -> None:
        self._held: LruCache[str, _IndexEntry] = LruCache(max_bytes)

    def get(self, path: str) -> _IndexEntry | None:
        """Return what is known of a file, or None."""
        return self._held.get(path)

    def put(self, path: str, hashes: _Hashes, shared: Sequence[str] = ()) -> _IndexEntry:
        """Cache and return the data files of a file, and the shared delete files of a manifest."""
        found = _IndexEntry(np.sort(hashes), tuple(shared))
        self._held.put(path, found, hashes.nbytes + sum(map(len, shared)))
        return found


class ManifestFiles:
    """Reads and writes the manifests of one Iceberg table.

    Args:
        directory: the table's directory.
        index: the index of manifests that were read or written before.
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
            spec: the partition spec of all files in it.
            schema: the table's schema, as in the metadata.
            snapshot_id: the id of the snapshot that writes it.
            sequence_number: the sequence number of that snapshot.
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
        self._indexed(path, entries)
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
            if self._of_manifest(manifest).refers_to(wanted).any():
                yield manifest

    # --- shared delete files ----------------------------------------------------------------------------

    def note_covered(self, path: str, covered: Iterable[str]) -> None:
        """Remember the data files of a shared delete file that was just written."""
        self._index.put(path, _hashes(covered))

    def covered(self, path: str) -> list[CoveredFile]:
        """Return the data files of a shared delete file, from its footer.

        Raises:
            CorruptIcebergMetadata: it is missing or invalid.
            StorageError: storage did not answer.
        """
        try:
            with self._directory.open(path) as file:
                return read_covered_files(file, path)
        except (OSError, ValueError, pa.ArrowException, UnusableFile) as error:
            said = "it does not exist" if isinstance(error, FileNotFoundError) else str(error)[:200]
            raise CorruptIcebergMetadata(
                f"The delete file '{path}' cannot be read ({said.rstrip('.')}); convert the table again.",
                file=path,
            ) from error

    def shared_about(
        self, manifests: Iterable[ManifestFile], paths: Collection[str]
    ) -> Iterator[tuple[ManifestFile, ManifestEntry]]:
        """Yield the shared delete files for one of these data files, and perhaps a few others.

        Raises:
            CorruptIcebergMetadata: a manifest or a delete file is missing or invalid.
            StorageError: storage did not answer.
        """
        wanted = _hashes(paths)
        for manifest in self.about(manifests, paths):
            shared = self._of_shared(self._of_manifest(manifest).shared)
            found = {path for path, known in shared.items() if known.refers_to(wanted).any()}
            if found:
                for entry in self.live(manifest):
                    if entry["data_file"]["file_path"] in found:
                        yield manifest, entry

    def deletes_of(
        self, manifests: Iterable[ManifestFile], paths: Collection[str]
    ) -> Iterator[tuple[ManifestFile, ManifestEntry, list[str]]]:
        """Yield the deletes of data files, with those of ``paths`` that they are for, and perhaps a few others.

        Raises:
            CorruptIcebergMetadata: a manifest or a delete file is missing or invalid.
            StorageError: storage did not answer.
        """
        ordered_paths = list(paths)
        path_hashes = _hashes(ordered_paths)
        for manifest in self.about(manifests, paths):
            shared = self._of_shared(self._of_manifest(manifest).shared)
            for entry in self.live(manifest):
                known = shared.get(entry["data_file"]["file_path"])
                if known is not None:
                    its = [ordered_paths[at] for at in np.flatnonzero(known.refers_to(path_hashes)).tolist()]
                else:
                    its = [key_of(entry)] if key_of(entry) in paths else []
                if its:
                    yield manifest, entry, its

    def _of_manifest(self, manifest: ManifestFile) -> _IndexEntry:
        path = manifest["manifest_path"]
        return self._index.get(path) or self._indexed(path, self.live(manifest))

    def _indexed(self, path: str, entries: Iterable[ManifestEntry]) -> _IndexEntry:
        live = [entry for entry in entries if entry["status"] != DELETED]
        shared = [entry["data_file"]["file_path"] for entry in live if is_shared(entry)]
        hashes = [_hashes(key_of(entry) for entry in live if not is_shared(entry))]
        hashes += [known.hashes for known in self._of_shared(shared).values()]
        return self._index.put(path, np.concatenate(hashes), shared)

    def _of_shared(self, paths: Sequence[str]) -> dict[str, _IndexEntry]:
        index_entries = {path: self._index.get(path) for path in paths}
        unknown = [path for path, known in index_entries.items() if known is None]
        if unknown:
            with ThreadPoolExecutor(_AT_ONCE, "delvec-iceberg") as pool:
                for path, covered in zip(unknown, pool.map(self.covered, unknown), strict=True):
                    index_entries[path] = self._index.put(path, _hashes(one.file_path for one in covered))
        return {path: known for path, known in index_entries.items() if known is not None}


def _hashes(paths: Iterable[str]) -> _Hashes:
    return np.fromiter((xxhash.xxh3_64_intdigest(path.encode()) for path in paths), np.uint64)
