"""The files that unexpired Iceberg snapshots of a table need, for VACUUM.

Tested in `tests/integration/service/iceberg/test_conversion.py`.
"""

import re
from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa

from delvec_errors import IcebergUnsupported
from delvec_iceberg.data_files import file_path
from delvec_iceberg.manifests import DATA
from delvec_iceberg.table_metadata import expired_snapshots
from delvec_kernel.locations import canonical_relative
from delvec_maintenance.vacuum.references import References
from delvec_service.iceberg.conversion import FORMAT_VERSIONS
from delvec_service.iceberg.manifest_files import ManifestFiles, ManifestIndex
from delvec_service.iceberg.metadata_directory import DIRECTORIES, IcebergDirectory, Published
from delvec_service.logs import logger
from delvec_service.store.open_table import OpenTable
from delvec_storage.trees import TreeListing

__all__ = ["IcebergFiles"]

_is_written_by_us = re.compile(
    r"(?:.*/)?(?:(?:snap-\d+-)?[0-9a-f]{32}(?:-[^/]*)?\.(?:avro|parquet|puffin)|\.[^/]+\.[0-9a-f]{32}\.tmp)"
).fullmatch
"""Whether a path has the name of a file that a conversion writes before the metadata, or leaves when it crashes."""


class IcebergFiles:
    """The files that the Iceberg metadata of a table refers to, in both format versions.

    Args:
        table: the Delta table.
        configuration: its properties.
        now: milliseconds since the epoch.

    Raises:
        CorruptIcebergMetadata: it is unknown what they need, so nothing may be deleted.
        CorruptTable: the property with the location of the metadata is invalid.
        LocationNotAllowed: that location is outside the roots.
        StorageError: storage did not answer.
    """

    def __init__(self, table: OpenTable, configuration: Mapping[str, str], now: int) -> None:
        self._table = table
        self._prefix = f"{file_path(table.location, '_')[:-1]}"
        self._data: set[str] = set()
        self._own: list[tuple[IcebergDirectory, set[str]]] = []
        self._all: list[IcebergDirectory] = []
        for format_version in FORMAT_VERSIONS:
            directory = IcebergDirectory(table, format_version, configuration)
            self._all.append(directory)
            try:
                publication = directory.newest()
                if publication is not None:
                    needed_names = self._read(directory, publication, now)
                    directory.check_only_ours()
                    self._own.append((directory, needed_names))
            except IcebergUnsupported as error:
                # A different table, which is not ours to clean.
                logger.info("Iceberg directory left alone", table=table.name, reason=error.message)

    def keep(self, kept: References) -> None:
        """Keep the data files inside the table's directory."""
        kept.add_paths(pa.array(sorted(self._data), pa.string()))

    @property
    def paths(self) -> list[str]:
        """The directories of Iceberg's files below the table, relative to it, which :meth:`unneeded` is about."""
        return sorted(
            {
                f"{each.path}/{name}".lstrip("/")
                for each in self._all
                if each.path is not None
                for name in DIRECTORIES
            }
        )

    def without_elsewhere(self, files: Iterable[str]) -> list[str]:
        """Return the paths that are not URLs of files in a directory outside the table, as dry runs have."""
        urls = tuple(f"{each.url}/" for each in self._all if each.path is None)
        return [path for path in files if not (urls and path.startswith(urls))]

    def unneeded(self) -> Iterator[pa.RecordBatch]:
        """Yield the files below the table that no unexpired snapshot needs, LISTED, by path relative to the table."""
        for directory, needed_names in self._own:
            if directory.path is not None:
                yield from self._unneeded(directory, needed_names, f"{directory.path}/".lstrip("/"))

    def unneeded_elsewhere(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Yield such files outside the table: the URL of a directory, and LISTED, by path relative to it."""
        for directory, needed_names in self._own:
            if directory.path is None:
                for batch in self._unneeded(directory, needed_names, ""):
                    yield directory.url, batch

    def _unneeded(
        self, directory: IcebergDirectory, needed_names: set[str], prefix: str
    ) -> Iterator[pa.RecordBatch]:
        for name in DIRECTORIES:
            listing = TreeListing(f"{directory.url}/{name}", lambda _name: False, self._table.roots.allows)
            listing.hides_metadata = False
            for batch in listing.batches():
                paths = [f"{name}/{path}" for path in batch.column("path").to_pylist()]
                mask = [path not in needed_names and _is_written_by_us(path) is not None for path in paths]
                below = pa.array([prefix + path for path in paths], pa.string())
                old = batch.set_column(
                    batch.schema.get_field_index("path"), batch.schema.field("path"), below
                )
                yield old.filter(pa.array(mask, pa.bool_()))

    def _read(self, directory: IcebergDirectory, publication: Published, now: int) -> set[str]:
        expired = set(expired_snapshots(publication.metadata, now))
        needed_names: set[str] = set()
        manifests = ManifestFiles(directory, ManifestIndex(0))
        for snapshot in publication.metadata["snapshots"]:
            if snapshot["snapshot-id"] in expired:
                continue
            needed_names.add(directory.name_of(snapshot["manifest-list"]))
            for manifest in manifests.of_snapshot(snapshot):
                name = directory.name_of(manifest["manifest_path"])
                if name in needed_names:
                    continue
                needed_names.add(name)
                for entry in manifests.live(manifest):
                    path = entry["data_file"]["file_path"]
                    if entry["data_file"]["content"] != DATA:
                        needed_names.add(directory.name_of(path))
                    elif path.startswith(self._prefix):
                        self._data.add(canonical_relative(path[len(self._prefix) :]))
                    else:
                        self._data.update(self._spelled_otherwise(path))
        return needed_names

    def _spelled_otherwise(self, path: str) -> Iterator[str]:
        """Yield the file inside the table's directory that a plain path refers to; see :func:`file_path`."""
        plain = self._prefix.removeprefix("file://")
        if path.startswith(plain):
            yield canonical_relative(path[len(plain) :])
