"""GENERATE symlink_format_manifest, and the manifests that commits keep up to date.

Partitions are independent, as in delta-spark: a reader may see some of them before a commit and others after it. Each
writer then checks for newer versions, so that the last one to write has written the newest.

Tested in `tests/integration/client/test_symlink_manifests.py`.
"""

import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import pyarrow.compute as pc

from delvec_errors import DelvecError
from delvec_kernel.locations import canonical_log_paths
from delvec_kernel.snapshot.snapshot import Snapshot
from delvec_kernel.symlink_manifest import MANIFESTS, Manifest, are_kept_fresh, directories, manifests
from delvec_service.logs import logger
from delvec_service.snapshots.loader import SnapshotLoader
from delvec_service.store.open_table import OpenTable
from delvec_storage.trees import TreeListing, delete_files, remove_empty_directories

__all__ = ["GeneratedManifests", "SymlinkManifests"]

_AT_ONCE: Final = 8
_MAX_KNOWN: Final = 10_000
_NO_AGE_LIMIT: Final = 1 << 62
_ROUNDS: Final = 3
"""How many times to check for newer versions: a table that is written all the time always has one."""
_NAME: Final = "manifest"
_CHECKSUM: Final = ".manifest.crc"
"""Hadoop's checksum of a local manifest that Spark wrote: Hadoop would refuse to read what has been written since."""


@dataclass(frozen=True)
class GeneratedManifests:
    """What was written.

    Attributes:
        version: the version of the table.
        num_manifests: number of manifests written.
        num_files: number of data files in them.
        num_deleted: number of manifests deleted because their partitions are empty.
    """

    version: int
    num_manifests: int
    num_files: int
    num_deleted: int


class SymlinkManifests:
    """Writes manifests.

    Args:
        loader: reads snapshots.
    """

    def __init__(self, loader: SnapshotLoader) -> None:
        self._loader = loader
        self._locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        self._fresh: dict[str, tuple[str, int]] = {}

    def generate(self, table: OpenTable) -> GeneratedManifests:
        """Write the manifests of the newest version, and delete those of partitions it no longer has.

        Raises:
            ManifestUnsupported: files have deletion vectors, or columns are mapped.
            CorruptLog: a manifest cannot contain the name of a file.
            LocationNotAllowed: a file of the table is outside the roots.
            StorageError: storage did not answer; only some manifests may be updated.
        """
        with self._locks[table.location]:
            return self._generate(table)

    def committed(self, table: OpenTable, version: int, configuration: Mapping[str, str]) -> None:
        """Update the manifests after a commit of this service, if the table wants them.

        The commit has already been made: errors are logged, and the update is retried after the next commit.

        Args:
            table: the table.
            version: the committed version.
            configuration: the configuration of that version.
        """
        if not are_kept_fresh(configuration):
            return
        with self._locks[table.location]:
            try:
                self._refresh(table)
            except DelvecError as error:
                self._fresh.pop(table.location, None)
                logger.warning(
                    "manifests not updated",
                    table=table.name,
                    version=version,
                    type=error.type,
                    error=error.message,
                )

    def _refresh(self, table: OpenTable) -> None:
        manifest_state = self._fresh.get(table.location)
        snapshot = self._loader.load(table.objects, table.name)
        if (
            manifest_state is None
            or manifest_state[0] != snapshot.metadata.id
            or snapshot.version < manifest_state[1]
        ):
            # They lack what others have committed, if there are any; or another table is here by now.
            self._generate(table)
            return
        _, seen_version = manifest_state
        for _ in range(_ROUNDS):
            if snapshot.version <= seen_version:
                break
            changed_directories: set[str] = set()
            for commit in self._loader.commits(
                table.objects, table.name, range(seen_version + 1, snapshot.version + 1)
            ):
                found = directories(commit.actions, snapshot.partition_columns)
                if found is None:
                    self._generate(table)
                    return
                changed_directories |= found
            if changed_directories:
                self._write(table, snapshot.version, changed_directories)
            seen_version = snapshot.version
            snapshot = self._loader.load(table.objects, table.name)
        self._know(table, snapshot.metadata.id, seen_version)

    def _generate(self, table: OpenTable) -> GeneratedManifests:
        seen_version, generate_result = -1, GeneratedManifests(-1, 0, 0, 0)
        for _ in range(_ROUNDS):
            snapshot = self._loader.load(table.objects, table.name)
            if snapshot.version == seen_version:
                break
            seen_version, generate_result = snapshot.version, self._write(table, snapshot.version, None)
            # Commits after this one update their own directories.
            self._know(table, snapshot.metadata.id, seen_version)
        return generate_result

    def _know(self, table: OpenTable, metadata_id: str, version: int) -> None:
        if len(self._fresh) >= _MAX_KNOWN:
            self._fresh.clear()
        self._fresh[table.location] = metadata_id, version

    def _write(
        self, table: OpenTable, version: int, changed_directories: Collection[str] | None
    ) -> GeneratedManifests:
        """Write the manifests of a version, for all or some directories; delete those of empty ones."""
        symlink_manifests = self._loader.reading(
            table.objects, table.name, _of(table, changed_directories), version=version
        )
        with ThreadPoolExecutor(_AT_ONCE, "delvec-manifests") as pool:
            list(pool.map(lambda one: _put(table, one), symlink_manifests))
        written_directories = {one.directory for one in symlink_manifests}
        stale = (
            _stale(table, written_directories)
            if changed_directories is None
            else set(changed_directories) - written_directories
        )
        _remove(table, stale)
        return GeneratedManifests(
            version, len(symlink_manifests), sum(len(one.paths) for one in symlink_manifests), len(stale)
        )


def _of(
    table: OpenTable, changed_directories: Collection[str] | None
) -> Callable[[Snapshot], list[Manifest]]:
    def of(snapshot: Snapshot) -> list[Manifest]:
        symlink_manifests = list(manifests(snapshot, table.name, among=changed_directories))
        for one in symlink_manifests:
            keys = canonical_log_paths(one.paths, table.location)
            outside = one.paths.filter(pc.match_substring(keys, "://"))
            table.roots.check_files(
                table.location, outside.to_pylist(), table=table.name, version=snapshot.version
            )
        return symlink_manifests

    return of


def _put(table: OpenTable, manifest: Manifest) -> None:
    folder = _path(manifest.directory)
    if table.location.startswith("file:"):
        table.objects.delete(f"{folder}/{_CHECKSUM}")
    table.objects.put(f"{folder}/{_NAME}", manifest.text(table.location))


def _stale(table: OpenTable, written_directories: Collection[str]) -> set[str]:
    """Return the directories that have manifests and should not."""
    listing = TreeListing(_path("", table.location), lambda _name: False, table.roots.allows)
    manifest_directories = {
        path.rpartition("/")[0]
        for batch in listing.batches()
        for path in batch.column("path").to_pylist()
        if path.rpartition("/")[2] in (_NAME, _CHECKSUM)
    }
    return manifest_directories.difference(written_directories)


def _remove(table: OpenTable, directories: Collection[str]) -> None:
    paths = [f"{_path(each)}/{name}" for each in sorted(directories) for name in (_CHECKSUM, _NAME)]
    done = delete_files(table.location, paths, _NO_AGE_LIMIT, is_allowed=table.roots.allows)
    if done.error is not None:
        raise done.error
    above = {
        _path("/".join(parts[:depth]))
        for parts in (each.split("/") for each in directories if each)
        for depth in range(1, len(parts) + 1)
    }
    remove_empty_directories(table.location, above, is_allowed=table.roots.allows)


def _path(directory: str, location: str = "") -> str:
    return "/".join(part for part in (location, MANIFESTS, directory) if part)
