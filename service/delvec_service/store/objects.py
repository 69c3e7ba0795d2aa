"""The files of one table that the service accesses: the log and deletion vector files."""

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

import obstore
import pyarrow as pa

from delvec_errors import LocationNotAllowed
from delvec_kernel.locations import table_id
from delvec_kernel.log.log_segment import commit_path
from delvec_kernel.snapshot.snapshot import Snapshot
from delvec_service.store.commit_coordinator import Maintenance
from delvec_service.telemetry.observer import NO_OBSERVER, Observer
from delvec_storage import files as storage
from delvec_storage import local_files as _local_files
from delvec_storage.files import Allowed, FileLocation, StagedFile, content_tag, milliseconds, storage_errors

__all__ = ["MAX_COMMIT_BYTES", "ObjectMeta", "ObjectStore"]

MAX_COMMIT_BYTES: Final = 256 * 1024 * 1024
_MAX_WHOLE: Final = 1024 * 1024 * 1024
"""The maximum size of files, other than commits, that are read into memory as a whole."""
_LIST_CHUNK: Final = 1000
_HIDDEN: Final = (".", "_")
_UNORDERED: Final = re.compile(r"s3://[^/]+--x-s3(?:/|$)")
"""S3 directory buckets list in no particular order, and cannot start at a given key."""


@dataclass(frozen=True, slots=True)
class ObjectMeta:
    """One file of a listing.

    Attributes:
        name: the last path segment, not URL-encoded.
        size: bytes.
        last_modified_ms: milliseconds since the epoch, by the storage's clock.
        e_tag: the object store's identifier of this content, if any; local disks have none.
    """

    name: str
    size: int
    last_modified_ms: int
    e_tag: str | None = None


class ObjectStore:
    """Lists, reads and durably writes files below a table's location.

    Paths are spelled as in the log: URL-encoded, relative to the location or absolute.

    Attributes:
        is_coordinated: whether another catalog decides on commits, and not the log.
    """

    is_coordinated = False

    def __init__(
        self,
        location: str,
        *,
        is_allowed: Allowed | None = None,
        max_commit_bytes: int = MAX_COMMIT_BYTES,
        observer: Observer = NO_OBSERVER,
    ) -> None:
        """Bind to a table.

        Args:
            location: canonical, without a trailing slash.
            is_allowed: decides by URL whether a file outside ``location`` may be read, and whether links may lead there
                when reading, listing, writing and deleting; by default neither.
            max_commit_bytes: larger JSON files of the log are rejected.
            observer: notified of each request.
        """
        self.location = location
        self.max_commit_bytes = max_commit_bytes
        self._allowed = is_allowed
        self._observer = observer

    @property
    def is_local(self) -> bool:
        """Whether files may appear piece by piece, and a missing one will not appear later: on a local disk."""
        return self.location.startswith("file:")

    @property
    def catalog_id(self) -> str:
        """The id by which the metadata of a managed table names this table."""
        return table_id(self.location)

    def allows(self, maintenance: Maintenance) -> bool:  # noqa: ARG002
        """Whether whoever decides on commits leaves this kind of maintenance to Delvec."""
        return True

    def unpublished(self) -> frozenset[str]:
        """Return the names of staged commits that are versions, and that the log may lack."""
        return frozenset()

    def list_from(self, prefix: str, start_after: str = "") -> list[ObjectMeta]:
        """Return the files directly in the directory ``prefix`` whose names sort after ``start_after``.

        They are ordered by the UTF-8 bytes of their names. Names that start with ``_`` or ``.`` are left out: none of
        them is a commit or a checkpoint, and on an object store a listing that starts near the end of a long log ends
        before it reaches ``_sidecars``.

        Raises:
            StorageError: storage did not answer. A missing directory counts as empty, even below a file.
        """
        directory = prefix.rstrip("/")
        place = storage.locate(
            self.location, f"{directory}/_" if directory else "_", is_allowed=self._allowed
        )
        try:
            with self._observer.storage("list"), storage_errors("list", place.url.removesuffix("/_")):
                list_ = _list_remote if place.local is None else _list_local
                return sorted(list_(place, start_after), key=lambda meta: os.fsencode(meta.name))
        except FileNotFoundError:
            return []

    def get(self, path: str) -> bytes:
        """Return a whole file.

        Raises:
            FileNotFoundError: it does not exist.
            UnusableFile: it is not a regular file, or too large for its kind; then nothing is read.
            StorageError: storage did not answer.
        """
        most = self.max_commit_bytes if path.endswith(".json") else _MAX_WHOLE
        with self._observer.storage("get"):
            return storage.read(self.location, path, is_allowed=self._allowed, max_bytes=most)

    def get_start(self, path: str, max_bytes: int) -> bytes:
        """Return the first ``max_bytes`` bytes of a file, or all if it is shorter.

        Raises:
            FileNotFoundError: it does not exist.
            StorageError: storage did not answer.
        """
        with self._observer.storage("get"):
            return bytes(
                storage.read_ranges(self.location, path, [(0, max_bytes)], is_allowed=self._allowed)[0]
            )

    def head(self, path: str) -> ObjectMeta | None:
        """Return a file's listing entry without reading it, or None if it does not exist.

        Raises:
            StorageError: storage did not answer.
        """
        with self._observer.storage("head"):
            info = storage.stat(self.location, path, is_allowed=self._allowed)
        if info is None:
            return None
        return ObjectMeta(unquote(path).rpartition("/")[2], info.size, info.last_modified_ms, info.e_tag)

    def look_up(self, prefix: str, names: Iterable[str]) -> Iterator[ObjectMeta | None]:
        """Yield the listing entries of files directly in the directory ``prefix``, None for missing ones.

        Each file is checked when its turn comes; the directory is resolved once.

        Raises:
            StorageError: storage did not answer.
        """
        place = storage.locate(self.location, f"{prefix}/_", is_allowed=self._allowed)
        if place.local is None:
            yield from (self.head(f"{prefix}/{name}") for name in names)
            return
        with ExitStack() as stack:
            directory = None
            with suppress(FileNotFoundError), storage_errors("look up", place.url):
                directory = stack.enter_context(place.opened_directory())
            for name in names:
                file_stat = None
                if directory is not None:
                    url = f"{place.url[:-1]}{name}"
                    with (
                        suppress(FileNotFoundError),
                        self._observer.storage("head"),
                        storage_errors("look up", url),
                    ):
                        file_stat = _local_files.look_up(directory, place.local.with_name(name), place.check)
                if file_stat is None:
                    yield None
                else:
                    yield ObjectMeta(name, file_stat.st_size, file_stat.st_mtime_ns // 1_000_000)

    def put_if_absent(self, path: str, data: bytes, *, directories: bool = True) -> bool:
        """Create a file atomically: the commit point. It is durable when this returns True.

        ``data`` must differ from anything another writer may write (a commit contains its transaction id): a file
        that contains exactly ``data`` counts as this writer's own, whose answer was lost. Without ``directories`` it
        fails if the directory is missing: a deleted table stays deleted.

        Returns:
            False if the file already exists with other content.

        Raises:
            AtomicCreateUnsupported: the storage cannot create a file atomically.
            StorageError: storage did not answer, and the file may or may not exist.
        """
        with self._observer.storage("create"):
            return storage.create_file(
                self.location, path, data, is_allowed=self._allowed, directories=directories
            )

    def commit(self, version: int, data: bytes, before: Snapshot | None) -> bool:  # noqa: ARG002
        """Create a version of the log, durably; see :meth:`put_if_absent`.

        Args:
            version: the version.
            data: its actions.
            before: the newest known version, usually the one before.
        """
        return self.put_if_absent(commit_path(version), data)

    def publish(self, version: int) -> None:
        """Make sure that the log itself has a version that was read."""

    def put(self, path: str, data: bytes) -> None:
        """Write a whole file, replacing an existing one. It is durable on return.

        Raises:
            StorageError: storage did not answer.
        """
        with self._observer.storage("put"):
            storage.write_file(self.location, path, data, durable=True, is_allowed=self._allowed)

    def make_directory(self, path: str) -> None:
        """Make a directory in an existing one of a local table; object stores have none.

        Raises:
            FileNotFoundError: the directory above does not exist.
            StorageError: the directory cannot be made.
        """
        storage.make_directory(self.location, path, is_allowed=self._allowed)

    def stage(self, path: str) -> AbstractContextManager[StagedFile]:
        """Start a large file; see :class:`~delvec_storage.files.StagedFile`. It is published whole or not at all."""
        return storage.stage(self.location, path, is_allowed=self._allowed)

    def open(self, path: str) -> pa.NativeFile:
        """Open a file for random access by Arrow.

        Raises:
            FileNotFoundError: it does not exist.
            StorageError: storage did not answer.
        """
        with self._observer.storage("open"):
            return storage.open_input(self.location, path, is_allowed=self._allowed)

    def delete(self, path: str) -> None:
        """Delete a file. A missing file is not an error.

        Raises:
            StorageError: storage did not answer, and the file may or may not exist.
        """
        with self._observer.storage("delete"):
            storage.delete_file(self.location, path, is_allowed=self._allowed)


def _list_local(place: FileLocation, start_after: str) -> Iterator[ObjectMeta]:
    after = os.fsencode(start_after)
    with place.opened_directory() as directory, _local_files.entries(directory) as entries:
        # Comparing names first keeps a long log cheap: only new files are examined.
        wanted = [
            entry
            for entry in entries
            if not entry.name.startswith(_HIDDEN) and os.fsencode(entry.name) > after
        ]
        for entry in wanted:
            try:
                # Whether to follow a link is decided when its target is read.
                is_link = entry.is_symlink()
                if not is_link and entry.is_dir():
                    continue
                file_stat = (
                    _local_files.look_up(directory, place.path.with_name(entry.name), place.check)
                    if is_link
                    else entry.stat()
                )
            except FileNotFoundError:  # removed in the meantime: log cleanup runs alongside readers
                continue
            except (LocationNotAllowed, OSError):
                file_stat = entry.stat(follow_symlinks=False)
            yield ObjectMeta(entry.name, file_stat.st_size, file_stat.st_mtime_ns // 1_000_000)


def _list_remote(place: FileLocation, start_after: str) -> Iterator[ObjectMeta]:
    prefix = place.key.removesuffix("_")
    unordered = _UNORDERED.match(place.url) is not None
    offset = prefix + start_after if start_after and not unordered else None
    for chunk in obstore.list(place.remote, prefix, offset=offset, chunk_size=_LIST_CHUNK):
        for meta in chunk:
            name = meta["path"][len(prefix) :]
            if name.startswith("_") and not unordered:
                # Digits sort before the underscore, and these stores list in order.
                return
            if name > start_after and "/" not in name and not name.startswith(_HIDDEN):
                yield ObjectMeta(
                    name, meta["size"], milliseconds(meta["last_modified"]), content_tag(meta.get("e_tag"))
                )
