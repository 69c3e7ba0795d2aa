"""Recursive listing and bulk deletion of the files below a table's location, without following links."""

import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import compress, groupby, islice
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt
import obstore
import pyarrow as pa
from obstore.exceptions import BaseError

from delvec_errors import DelvecError, StorageDenied
from delvec_errors.texts import is_text
from delvec_kernel import locations
from delvec_storage import local_files as _local_files
from delvec_storage.file_locations import Allowed, FileLocation, locate, storage_errors
from delvec_storage.files import milliseconds

__all__ = [
    "LISTED",
    "Deletion",
    "TreeListing",
    "delete_files",
    "inner_tables",
    "look_up_files",
    "remove_empty_directories",
    "table_below",
    "tables_among",
]

LISTED: Final = pa.schema([("path", pa.string()), ("size", pa.int64()), ("modified", pa.int64())])
"""``path`` as in a log, relative to the table; ``size`` in bytes; ``modified`` in milliseconds since the epoch, by
the storage's clock."""

_LOG: Final = "_delta_log"
_NO_TABLES: Final = (_LOG, "_delvec", "_change_data")
_PLAIN: Final = re.compile(r"[A-Za-z0-9_.~=+-]*")
_BATCH_ROWS: Final = 64 * 1024
_LIST_CHUNK: Final = 1000
_ENTRIES: Final = 16 * 1024
"""Directory entries held in memory at a time."""
_CONCURRENT_LISTINGS: Final = 8
_CONCURRENT_LOOKUPS: Final = 32
_MAX_DEPTH: Final = 64
_MAX_FAILURES: Final = 3


@dataclass
class TreeListing:
    """Lists the files below a table's location; other attributes are complete after :meth:`batches` ends.

    Omits names that are not UTF-8, links, special files, and other tables inside this one.

    Args:
        location: the table's canonical location.
        is_hidden: names of files and directories to omit, too.
        is_allowed: decides by URL whether the location itself may be a link.
        hides_metadata: whether to omit ``metadata``, the directory of Iceberg metadata.
        hides_log: whether to omit the table's own ``_delta_log``.
        wanted: a filter by path, applied to local files before they are examined.

    Attributes:
        directories: their number, including the table's own.
        empty: empty directories of a local table, and when they were modified.
        shielded: targets of links, and other tables: files to leave alone.
        links: paths of symbolic links, decoded.
        left_out: paths that no log could reference, because they are not UTF-8 or too deep.
    """

    location: str
    is_hidden: Callable[[str], bool]
    is_allowed: Allowed | None = None
    directories: int = 1
    empty: list[tuple[str, int]] = field(default_factory=list)
    shielded: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    hides_metadata: bool = field(default=True, kw_only=True)
    hides_log: bool = field(default=True, kw_only=True)
    wanted: Callable[[pa.Array], npt.NDArray[np.bool_]] | None = field(default=None, kw_only=True)
    left_out: list[str] = field(default_factory=list)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the files, LISTED.

        Raises:
            StorageError: storage did not answer. A missing directory has no files.
        """
        place = locate(self.location, "_", is_allowed=self.is_allowed)
        with suppress(FileNotFoundError), storage_errors("list", self.location):
            if place.local is None:
                yield from self._remote(place)
            else:
                with place.opened_directory() as directory:
                    root = os.path.realpath(place.local.parent)
                    yield from _batched(self._walk(directory, "", Path(root), Path(root), 0))

    def _walk(
        self, directory: int, prefix: str, path: Path, root: Path, depth: int
    ) -> Iterator[tuple[str, int, int]]:
        below: list[str] = []
        num_entries = 0
        if prefix and _contains(directory, _LOG):
            self.shielded.add(prefix.removesuffix("/"))
            return
        with _local_files.entries(directory) as found:
            # In chunks: a directory may have a million entries.
            while entries := list(islice(found, _ENTRIES)):
                num_entries += len(entries)
                names = [entry for entry in entries if self._is_file(entry, prefix, path, root, below)]
                yield from self._stat_files(prefix, names)
        if prefix and not num_entries:
            self.empty.append((prefix.removesuffix("/"), _milliseconds(os.fstat(directory))))
        yield from self._walk_below(directory, prefix, path, root, depth, below)

    def _is_file(
        self, entry: os.DirEntry[str], prefix: str, path: Path, root: Path, below: list[str]
    ) -> bool:
        """Whether an entry may be a file to list; records directories and links."""
        name = entry.name
        if prefix and name == _LOG:  # another table, created during the listing
            self.shielded.add(prefix.removesuffix("/"))
        if self._is_hidden(name, prefix):
            return False
        if entry.is_symlink():
            self.links.append(f"{prefix}{name}")
            self._shield_target(path / name, root)
            return False
        if entry.is_dir(follow_symlinks=False):
            below.append(name)
            return False
        if not name.isascii() and not is_text(name):
            self.left_out.append(_shown(prefix, name))  # no log could reference it
            return False
        return True

    def _stat_files(self, prefix: str, entries: Sequence[os.DirEntry[str]]) -> Iterator[tuple[str, int, int]]:
        paths = [f"{prefix}{name}" for name in _canonical_names([entry.name for entry in entries])]
        pairs: Iterable[tuple[str, os.DirEntry[str]]] = zip(paths, entries, strict=True)
        if self.wanted is not None and paths:
            pairs = compress(pairs, self.wanted(pa.array(paths, pa.string())).tolist())
        for path, entry in pairs:
            try:
                file_stat = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue  # deleted meanwhile
            if stat.S_ISREG(file_stat.st_mode):
                yield path, file_stat.st_size, file_stat.st_mtime_ns // 1_000_000

    def _walk_below(
        self, directory: int, prefix: str, path: Path, root: Path, depth: int, names: Sequence[str]
    ) -> Iterator[tuple[str, int, int]]:
        for name in names:
            if depth >= _MAX_DEPTH or not is_text(name):
                self.left_out.append(_shown(prefix, name))
                continue
            with suppress(FileNotFoundError, NotADirectoryError), _opened(directory, name) as inner:
                self.directories += 1
                inside = f"{prefix}{locations.canonical_relative(name)}/"
                yield from self._walk(inner, inside, path / name, root, depth + 1)

    def _is_hidden(self, name: str, prefix: str) -> bool:
        # The default location of this table's Iceberg metadata, which delta-spark also leaves alone.
        return (
            (name == _LOG and (self.hides_log or bool(prefix)))
            or self.is_hidden(name)
            or (self.hides_metadata and not prefix and name == "metadata")
        )

    def _shield_target(self, link: Path, root: Path) -> None:
        target = Path(os.path.realpath(link))
        if target.is_relative_to(root):
            self.shielded.add(locations.canonical_relative(str(target.relative_to(root))))

    def _remote(self, place: FileLocation) -> Iterator[pa.RecordBatch]:
        """List the directories of an object store concurrently, since each listing takes a while."""
        top = obstore.list_with_delimiter(place.remote)
        yield from _batched(self._visible(top["objects"]))
        prefixes = iter(name for name in top["common_prefixes"] if not self._is_hidden(name.strip("/"), ""))
        seen_prefixes: set[str] = set()
        with ThreadPoolExecutor(_CONCURRENT_LISTINGS, "delvec-list") as pool:
            while some := list(islice(prefixes, _CONCURRENT_LISTINGS)):
                if len(some) == 1:
                    yield from self._below(place, some[0], seen_prefixes)
                    continue
                for found in pool.map(lambda prefix: list(self._below(place, prefix, seen_prefixes)), some):
                    yield from found
        self.directories += len(seen_prefixes)

    def _below(self, place: FileLocation, prefix: str, seen_prefixes: set[str]) -> Iterator[pa.RecordBatch]:
        with storage_errors("list", self.location):
            for chunk in obstore.list(place.remote, prefix, chunk_size=_LIST_CHUNK):
                seen_prefixes.update(meta["path"].rpartition("/")[0] for meta in chunk)
                yield from _batched(self._visible(chunk))

    def _visible(self, chunk: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, int, int]]:
        for meta in chunk:
            path = meta["path"]
            parts = path.split("/")
            if _LOG in parts[1:]:
                self.shielded.add(locations.canonical_relative("/".join(parts[: parts.index(_LOG, 1)])))
            if not any(self._is_hidden(name, "/" if index else "") for index, name in enumerate(parts)):
                yield locations.canonical_relative(path), meta["size"], milliseconds(meta["last_modified"])


def _canonical_names(names: list[str]) -> list[str]:
    """Return names as a log spells them. Nearly all are unchanged, which one regular expression over all can tell."""
    if _PLAIN.fullmatch("".join(names)):
        return names
    return [locations.canonical_relative(name) for name in names]


def _contains(directory: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _shown(prefix: str, name: str) -> str:
    return prefix + name.encode("utf-8", "backslashreplace").decode()


@dataclass
class Deletion:
    """The outcome of deleting files.

    Attributes:
        deleted: paths of files that are gone, including those that others deleted.
        kept: paths of files that changed meanwhile.
        failed: paths of files that storage did not delete, or that were skipped after errors.
        error: the first error.
    """

    deleted: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    error: DelvecError | None = None


def look_up_files(location: str, paths: Sequence[str], *, is_allowed: Allowed | None = None) -> pa.Table:
    """Return size and modification time of files below a table's location, LISTED, without missing and special files.

    Args:
        location: the table's canonical location.
        paths: from :class:`TreeListing`, preferably in its order.
        is_allowed: decides by URL whether the location itself may be a link.

    Raises:
        StorageError: storage did not answer.
    """
    place = locate(location, "_", is_allowed=is_allowed, inside=True)
    if place.local is None:
        with ThreadPoolExecutor(_CONCURRENT_LOOKUPS, "delvec-look-up") as pool:
            found: Iterable[tuple[str, int, int] | None] = pool.map(partial(_head, place), paths)
            return pa.Table.from_batches(_batched(row for row in found if row is not None), LISTED)
    return pa.Table.from_batches(_batched(_look_up(place, paths)), LISTED)


def _look_up(place: FileLocation, paths: Sequence[str]) -> Iterator[tuple[str, int, int]]:
    for parent, group in groupby(paths, lambda path: path.rpartition("/")[0]):
        with (
            suppress(FileNotFoundError),
            storage_errors("look up files in", f"{place.url[:-1]}{parent}"),
            place.opened_directory() as root,
        ):
            try:
                with _local_files.descended(root, parent) as directory:
                    for path in group:
                        name = unquote(path.rpartition("/")[2])
                        with suppress(FileNotFoundError):
                            file_stat = os.stat(name, dir_fd=directory, follow_symlinks=False)
                            if stat.S_ISREG(file_stat.st_mode):
                                yield path, file_stat.st_size, _milliseconds(file_stat)
            except NotADirectoryError:
                continue  # a link or a file, so not a directory of this table


def _head(place: FileLocation, path: str) -> tuple[str, int, int] | None:
    with suppress(FileNotFoundError), storage_errors("look up", f"{place.url[:-1]}{path}"):
        meta = obstore.head(place.remote, unquote(path))
        return path, meta["size"], milliseconds(meta["last_modified"])
    return None


def inner_tables(location: str, paths: Iterable[str], *, is_allowed: Allowed | None = None) -> list[str]:
    """Return the directories between the location and these files that are Delta tables themselves.

    Args:
        location: the table's canonical location.
        paths: from :class:`TreeListing`.
        is_allowed: decides by URL whether the location itself may be a link.

    Raises:
        StorageError: storage did not answer.
    """
    parts = {tuple(path.split("/")[:-1]) for path in paths}
    directories = sorted({"/".join(each[:depth]) for each in parts for depth in range(1, len(each) + 1)})
    if not directories:
        return []
    place = locate(location, "_", is_allowed=is_allowed, inside=True)

    def has_log(directory: str) -> bool:
        with storage_errors("look into", f"{place.url[:-1]}{directory}"):
            if place.local is not None:
                return os.path.lexists(place.local.parent / unquote(directory) / _LOG)
            chunks = obstore.list(place.remote, f"{unquote(directory)}/{_LOG}", chunk_size=1)
            return any(True for _ in chunks)

    if place.local is not None:
        return list(filter(has_log, directories))
    with ThreadPoolExecutor(_CONCURRENT_LISTINGS, "delvec-look-up") as pool:
        return list(compress(directories, pool.map(has_log, directories)))


def tables_among(directories: Sequence[str]) -> list[str]:
    """Return those of some directories that have a ``_delta_log``: they are Delta tables, whoever wrote them.

    A directory that may not be listed counts as none.

    Args:
        directories: canonical locations of one store. One request for each, at the same time.

    Raises:
        StorageError: storage did not answer.
    """

    def is_one(location: str) -> bool:
        place = locate(location, "_")
        with suppress(StorageDenied), storage_errors("look into", location):
            if place.local is not None:
                return os.path.lexists(place.local.parent / _LOG)
            return any(True for _ in obstore.list(place.remote, _LOG, chunk_size=1))
        return False

    if len(directories) <= 1 or locations.local_path(directories[0]) is not None:
        return list(filter(is_one, directories))
    with ThreadPoolExecutor(_CONCURRENT_LISTINGS, "delvec-look-up") as pool:
        return list(compress(directories, pool.map(is_one, directories)))


def table_below(location: str, most: int | None = None) -> str | None:
    """Return the location of a Delta table in a directory below this one, or None. Does not follow links.

    Args:
        location: canonical; whether it is a table itself does not matter.
        most: how many files and directories to look at; by default all.

    Raises:
        StorageError: storage did not answer.
    """
    place = locate(location, "_")
    with suppress(FileNotFoundError, NotADirectoryError), storage_errors("look into", location):
        table_path = (
            _remote_table_below(place, most)
            if place.local is None
            else _local_table_below(str(place.local.parent), most)
        )
        if table_path is not None:
            # A name that is not UTF-8 is shown, too.
            return f"{location}/{locations.canonical_relative(table_path.encode(errors='replace').decode())}"
    return None


def _local_table_below(top: str, most: int | None) -> str | None:
    above, num_entries = [""], 0
    while above:
        directory = above.pop()
        with suppress(FileNotFoundError, PermissionError), os.scandir(f"{top}/{directory}") as entries:
            for entry in entries:
                num_entries += 1
                if directory and entry.name.casefold() == _LOG:
                    return directory
                if most is not None and num_entries > most:
                    return None
                if entry.is_dir(follow_symlinks=False) and (directory or entry.name not in _NO_TABLES):
                    above.append(f"{directory}/{entry.name}" if directory else entry.name)
    return None


def _remote_table_below(place: FileLocation, most: int | None) -> str | None:
    num_objects = 0
    for chunk in obstore.list(place.remote, chunk_size=_LIST_CHUNK):
        for path in (meta["path"] for meta in chunk):
            inside, is_log, _ = path.partition(f"/{_LOG}/")
            if is_log and inside.partition("/")[0] not in _NO_TABLES:
                return str(inside)
        num_objects += len(chunk)
        if most is not None and num_objects >= most:
            return None
    return None


def delete_files(
    location: str, paths: Sequence[str], before: int, *, is_allowed: Allowed | None = None
) -> Deletion:
    """Delete files below a table's location, except those that are no longer regular files.

    Args:
        location: the table's canonical location.
        paths: from :class:`TreeListing`, preferably in its order.
        before: milliseconds since the epoch; local files modified later are kept.
        is_allowed: decides by URL whether the location itself may be a link.
    """
    deletion = Deletion()
    place = locate(location, "_", is_allowed=is_allowed, inside=True)
    if place.local is None:
        _delete_remote(place, paths, deletion)
        return deletion
    for parent, group in groupby(paths, lambda path: path.rpartition("/")[0]):
        names = list(group)
        try:
            with (
                storage_errors("delete files in", f"{location}/{parent}", writing=True),
                place.opened_directory() as root,
                _local_files.descended(root, parent) as directory,
            ):
                _delete_local(directory, names, before, location, deletion)
        except DelvecError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                deletion.deleted += names  # the directory was deleted
            elif isinstance(error.__cause__, NotADirectoryError):
                deletion.kept += names  # a link or a file replaced the directory
            else:
                deletion.failed += names
                deletion.error = deletion.error or error
    return deletion


def _delete_local(
    directory: int, paths: Sequence[str], before: int, location: str, deletion: Deletion
) -> None:
    for path in paths:
        name = unquote(path.rpartition("/")[2])
        try:
            file_stat = os.stat(name, dir_fd=directory, follow_symlinks=False)
            if not stat.S_ISREG(file_stat.st_mode) or _milliseconds(file_stat) >= before:
                deletion.kept.append(path)
                continue
            _local_files.remove(directory, name)
        except FileNotFoundError:
            pass
        except (OSError, ValueError) as error:
            deletion.failed.append(path)
            deletion.error = deletion.error or _delete_error(error, f"{location}/{path}")
            continue
        deletion.deleted.append(path)


def _delete_error(error: Exception, path: str) -> DelvecError:
    try:
        with storage_errors("delete", path, writing=True):
            raise error
    except DelvecError as found:
        return found


def _delete_remote(place: FileLocation, paths: Sequence[str], deletion: Deletion) -> None:
    try:
        obstore.delete(place.remote, [unquote(path) for path in paths])
    except (BaseError, OSError):
        pass  # delete one by one to find out which failed
    else:
        deletion.deleted += paths
        return
    for path in paths:
        if len(deletion.failed) >= _MAX_FAILURES:
            deletion.failed.append(path)
            continue
        try:
            with storage_errors("delete", f"{place.url[:-1]}{path}"):
                obstore.delete(place.remote, unquote(path))
        except FileNotFoundError:
            pass
        except DelvecError as error:
            deletion.failed.append(path)
            deletion.error = deletion.error or error
            continue
        deletion.deleted.append(path)


def remove_empty_directories(
    location: str, paths: Iterable[str], *, is_allowed: Allowed | None = None
) -> list[str]:
    """Remove empty directories of a local table, innermost first; return those removed.

    Errors are ignored, since empty directories are harmless.
    """
    removed_directories: list[str] = []
    place = locate(location, "_", is_allowed=is_allowed, inside=True)
    if place.local is None:
        return removed_directories
    for path in sorted(paths, reverse=True):
        parent, _, name = path.rpartition("/")
        with (
            suppress(OSError),
            place.opened_directory() as root,
            _local_files.descended(root, parent) as directory,
        ):
            os.rmdir(unquote(name), dir_fd=directory)
            removed_directories.append(path)
    return removed_directories


@contextmanager
def _opened(directory: int, name: str) -> Iterator[int]:
    descriptor = os.open(name, _local_files.OPEN_DIRECTORY, dir_fd=directory)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _batched(rows: Iterable[tuple[str, int, int]]) -> Iterator[pa.RecordBatch]:
    waiting = iter(rows)
    while some := list(islice(waiting, _BATCH_ROWS)):
        columns = [
            pa.array(column, kind.type) for column, kind in zip(zip(*some, strict=True), LISTED, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=LISTED)


def _milliseconds(file_stat: os.stat_result) -> int:
    return file_stat.st_mtime_ns // 1_000_000
