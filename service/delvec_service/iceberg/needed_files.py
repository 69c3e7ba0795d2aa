"""The files that unexpired Iceberg snapshots of a table need, for VACUUM."""

from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from delvec_kernel.errors import IcebergUnsupported
from delvec_kernel.iceberg.data_files import file_path
from delvec_kernel.iceberg.manifests import DATA
from delvec_kernel.iceberg.table_metadata import expired_snapshots
from delvec_kernel.locations import canonical_relative
from delvec_kernel.storage.trees import TreeListing
from delvec_kernel.vacuum.references import References
from delvec_service.iceberg.conversion import FORMAT_VERSIONS
from delvec_service.iceberg.directory import IcebergDirectory, Published
from delvec_service.iceberg.manifest_files import ManifestFiles, ManifestIndex
from delvec_service.store.open_table import OpenTable

__all__ = ["IcebergFiles"]

_PUBLISHED: Final = (".metadata.json", "version-hint.text")


class IcebergFiles:
    """The files that the Iceberg metadata of a table refers to, in both format versions.

    Args:
        table: the Delta table.
        now: milliseconds since the epoch.

    Raises:
        CorruptIcebergMetadata: it is unknown what they need, so nothing may be deleted.
        StorageError: storage did not answer.
    """

    def __init__(self, table: OpenTable, now: int) -> None:
        self._table = table
        self._prefix = f"{file_path(table.location, '_')[:-1]}"
        self._data: set[str] = set()
        self._own: dict[int, set[str]] = {}
        for format_version in FORMAT_VERSIONS:
            directory = IcebergDirectory(table, format_version)
            try:
                published = directory.newest()
            except IcebergUnsupported:
                continue  # a different table, which is not ours to clean
            if published is not None:
                self._read(directory, published, now)

    def keep(self, kept: References) -> None:
        """Keep the data files inside the table's directory."""
        kept.add_paths(pa.array(sorted(self._data), pa.string()))

    def unneeded(self) -> Iterator[pa.RecordBatch]:
        """Yield the files in the Iceberg directories that no unexpired snapshot needs, LISTED, by relative path."""
        for format_version, needed in self._own.items():
            directory = IcebergDirectory(self._table, format_version)
            listing = TreeListing(
                f"{self._table.location}/{directory.path}", lambda _name: False, self._table.roots.allows
            )
            listing.hides_metadata = False
            for batch in listing.batches():
                paths = batch.column("path").to_pylist()
                mask = [path not in needed and not path.endswith(_PUBLISHED) for path in paths]
                old = batch.filter(pa.array(mask, pa.bool_()))
                below = [f"{directory.path}/{path}" for path in old.column("path").to_pylist()]
                yield old.set_column(
                    old.schema.get_field_index("path"), old.schema.field("path"), pa.array(below, pa.string())
                )

    def _read(self, directory: IcebergDirectory, published: Published, now: int) -> None:
        expired = set(expired_snapshots(published.metadata, now))
        needed = self._own.setdefault(directory.format_version, set())
        manifests = ManifestFiles(directory, ManifestIndex(0))
        for snapshot in published.metadata["snapshots"]:
            if snapshot["snapshot-id"] in expired:
                continue
            needed.add(directory.name_of(snapshot["manifest-list"]))
            for manifest in manifests.of_snapshot(snapshot):
                name = directory.name_of(manifest["manifest_path"])
                if name in needed:
                    continue
                needed.add(name)
                for entry in manifests.live(manifest):
                    path = entry["data_file"]["file_path"]
                    if entry["data_file"]["content"] != DATA:
                        needed.add(directory.name_of(path))
                    elif path.startswith(self._prefix):
                        self._data.add(canonical_relative(path[len(self._prefix) :]))
                    else:
                        self._data.update(self._spelled_otherwise(path))

    def _spelled_otherwise(self, path: str) -> Iterator[str]:
        """Yield the file inside the table's directory that a plain path refers to; see :func:`file_path`."""
        plain = self._prefix.removeprefix("file://")
        if path.startswith(plain):
            yield canonical_relative(path[len(plain) :])
