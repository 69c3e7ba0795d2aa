"""Reads and writes a table's files, on local disk or in object stores.

Functions take the table's canonical ``location`` and a ``path`` as in the log: URL-encoded, relative
to the location or absolute. Local files are plain files; everything else goes through obstore, configured
by the environment (``AWS_*``, ``GOOGLE_*``, ``AZURE_*``).
"""

import os
import stat as stat_
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, timedelta
from datetime import datetime as DateTime  # noqa: N812
from typing import IO, Final, Generic, TypeVar, cast

import obstore
import pyarrow as pa
from obstore.exceptions import AlreadyExistsError, NotSupportedError
from pyroaring import BitMap64

from delvec_errors import (
    AtomicCreateUnsupported,
    CorruptDeletionVector,
    CorruptLog,
    DeletionVectorNotFound,
    DeletionVectorSizeMismatch,
    InvalidLocation,
    UnusableFile,
)
from delvec_kernel.deletion_vectors.deletion_vector import (
    Descriptor,
    Where,
    check_rows_exist,
    check_size,
    decode_inline,
    portable_record_in_file,
    portable_record_inline,
    unframe,
)
from delvec_kernel.locations import canonical_log_path, is_plain_relative, local_path
from delvec_storage import local_files as _local_files
from delvec_storage.file_locations import Allowed, FileLocation, locate, storage_errors, store_for
from delvec_storage.remote_files import RemoteFile, RemoteOutput, read_range
from delvec_storage.staged_files import StagedFile, stage

__all__ = [
    "Allowed",
    "FileInfo",
    "FileLocation",
    "StagedFile",
    "check_regular",
    "content_tag",
    "create_file",
    "delete_file",
    "locate",
    "make_directory",
    "milliseconds",
    "open_input",
    "open_output",
    "read",
    "read_deletion_vector_records",
    "read_deletion_vectors",
    "read_ranges",
    "remove_directories",
    "stage",
    "stat",
    "storage_errors",
    "store_for",
    "write_file",
]

_Vector = TypeVar("_Vector")

_MAX_GAP: Final = 1 << 20
_LARGE: Final = 64 << 20
_MAX_VECTOR: Final = 1 << 30
"""More than any bitmap of eight billion rows takes."""
_CONCURRENT_FILES: Final = 32
_EPOCH: Final = DateTime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class FileInfo:
    """A file in storage.

    Attributes:
        size: bytes.
        last_modified_ms: milliseconds since the epoch, by the storage's clock.
        e_tag: the object store's ETag, if any.
    """

    size: int
    last_modified_ms: int
    e_tag: str | None = None


def stat(location: str, path: str, *, is_allowed: Allowed | None = None) -> FileInfo | None:
    """Return size and time of a file, or None if it does not exist.

    Raises:
        StorageError: storage did not answer.
    """
    place = locate(location, path, is_allowed=is_allowed)
    try:
        with storage_errors("look up", place.url):
            if place.local is not None:
                with place.opened_directory() as directory:
                    found = _local_files.look_up(directory, place.local, place.check)
                return FileInfo(found.st_size, found.st_mtime_ns // 1_000_000)
            meta = obstore.head(place.remote, place.key)
            return FileInfo(meta["size"], milliseconds(meta["last_modified"]), content_tag(meta.get("e_tag")))
    except FileNotFoundError:
        return None


def check_regular(location: str, paths: Iterable[str], *, is_allowed: Allowed | None = None) -> None:
    """Reject special files before an engine opens them, which would block forever on a FIFO.

    Missing and remote files are left to the engine.

    Raises:
        UnusableFile: a path is not a regular file.
        LocationNotAllowed: a file is outside the location and not allowed, or a link leads there.
    """
    directory = local_path(location)
    if directory is None:
        return
    prefix = f"{directory}/"
    folders: dict[str, bool] = {}
    for path in paths:
        if is_allowed is not None and is_plain_relative(path):
            # As below, without making a Path and resolving links for each of up to a million files: one that is no link is
            # where its folder is.
            folder = path.rpartition("/")[0]
            if folder not in folders:
                folders[folder] = is_allowed(f"{location}/{folder}" if folder else location)
            with suppress(OSError):
                if folders[folder] and stat_.S_ISREG(os.lstat(prefix + path).st_mode):
                    continue
        place = locate(location, path, is_allowed=is_allowed)
        with suppress(FileNotFoundError), storage_errors("read", place.url):
            if place.local is not None:
                mode = os.stat(place.local).st_mode  # noqa: PTH116 - for every file of a scan
                if not stat_.S_ISREG(mode):
                    raise _local_files.not_regular(mode, place.local)
                if is_allowed is None or not is_allowed(place.url):
                    place.check(os.path.realpath(place.local))


def milliseconds(time: DateTime) -> int:
    """Return a datetime as milliseconds since the epoch, without rounding through floating point."""
    return (time - _EPOCH) // timedelta(milliseconds=1)


def content_tag(e_tag: str | None) -> str | None:
    """Return an ETag in the same form for listings and single objects.

    Azure quotes it in responses about one object (RFC 9110), but not in listings.
    """
    return None if e_tag is None else e_tag.strip('"')


def read(
    location: str, path: str, *, is_allowed: Allowed | None = None, max_bytes: int | None = None
) -> bytes:
    """Return a whole file.

    Raises:
        FileNotFoundError: the file does not exist.
        UnusableFile: it exceeds ``max_bytes`` (nothing is read then), or is not a regular file.
        StorageError: storage did not answer.
    """
    place = locate(location, path, is_allowed=is_allowed)
    with storage_errors("read", place.url):
        if place.local is not None:
            with _opened(place) as file:
                _check_size(place, os.fstat(file.fileno()).st_size, max_bytes)
                return file.read()
        found = obstore.get(place.remote, place.key)
        _check_size(place, found.meta["size"], max_bytes)
        return bytes(found.bytes())


def _check_size(place: FileLocation, size: int, most: int | None) -> None:
    if most is not None and size > most:
        raise UnusableFile(
            f"The file {place.url} has {size} bytes, which is more than the limit of {most} for such a file.",
            file=place.url,
            size=size,
            limit=most,
        )


def _opened(place: FileLocation) -> IO[bytes]:
    return os.fdopen(_local_files.open_file(place.path, place.check), "rb", buffering=0)


def read_ranges(
    location: str, path: str, ranges: Sequence[tuple[int, int]], *, is_allowed: Allowed | None = None
) -> list[memoryview]:
    """Return the bytes of each ``(start, end)`` of a file, fewer if the file ends earlier.

    Ranges less than 1 MiB apart share one request. Memory is bounded by the file's size, whatever the ranges.

    Raises:
        FileNotFoundError: the file does not exist.
        StorageError: storage did not answer.
    """
    place = locate(location, path, is_allowed=is_allowed)
    spans: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if spans and start <= spans[-1][1] + _MAX_GAP:
            spans[-1] = (spans[-1][0], max(spans[-1][1], end))
        else:
            spans.append((start, end))
    with storage_errors("read", place.url):
        if place.local is not None:
            chunks = _read_local(place, spans)
        else:
            chunks = {start: read_range(place, start, end) for start, end in spans}
    starts = [start for start, _ in spans]
    found = []
    for start, end in ranges:
        base = starts[bisect_right(starts, start) - 1]
        found.append(chunks[base][start - base : end - base])
    return found


def _read_local(place: FileLocation, spans: Sequence[tuple[int, int]]) -> dict[int, memoryview]:
    with _opened(place) as file:
        descriptor = file.fileno()
        size = os.fstat(descriptor).st_size
        chunks = {}
        for start, end in spans:
            data = bytearray(max(0, min(end, size) - start))
            view, done = memoryview(data), 0
            while done < len(data) and (count := os.preadv(descriptor, [view[done:]], start + done)):
                done += count
            chunks[start] = view[:done]
        return chunks


def open_input(location: str, path: str, *, is_allowed: Allowed | None = None) -> pa.NativeFile:
    """Open a file for random access by Arrow.

    Raises:
        FileNotFoundError: the file does not exist.
        StorageError: storage did not answer.
    """
    place = locate(location, path, is_allowed=is_allowed)
    with storage_errors("read", place.url):
        if place.local is not None:
            with _opened(place) as file:
                return pa.OSFile(os.fsencode(_local_files.by_descriptor(file.fileno(), place.local)), "rb")
        size = obstore.head(place.remote, place.key)["size"]
        return pa.PythonFile(RemoteFile(place, size), mode="r")


def write_file(
    location: str,
    path: str,
    data: bytes | memoryview | IO[bytes],
    *,
    durable: bool = False,
    is_allowed: Allowed | None = None,
) -> None:
    """Write a whole file, replacing any existing one; a file object is streamed.

    Args:
        location: the table's canonical location.
        path: URL-encoded, relative to the location.
        data: the content, or a file object open for reading in binary mode.
        durable: whether to sync file and directories on local disk before returning. Object stores always are durable.
        is_allowed: decides by URL where links may lead; only within the table by default.

    Raises:
        StorageError: storage did not answer; a local file is then missing or unchanged.
        LocationNotAllowed: a link leads elsewhere.
    """
    place = locate(location, path, is_allowed=is_allowed, inside=True)
    with storage_errors("write", place.url, writing=True):
        if place.local is not None:
            with place.opened_directory(create=True, durable=durable) as directory:
                _local_files.replace(directory, place.local, data, durable=durable)
        else:
            obstore.put(place.remote, place.key, data)


def create_file(
    location: str, path: str, data: bytes, *, is_allowed: Allowed | None = None, directories: bool = True
) -> bool:
    """Create a file atomically: exactly one of several writers succeeds. Durable when this returns True.

    ``data`` must be unique to this writer (a commit has its transaction id): if the file exists with exactly ``data``,
    an earlier attempt succeeded but its response was lost, and this returns True.

    Args:
        location: the table's canonical location.
        path: URL-encoded, relative to the location.
        data: the content.
        is_allowed: decides by URL where links may lead; only within the table by default.
        directories: whether to create missing local directories.

    Returns:
        False if the file already exists with other content.

    Raises:
        AtomicCreateUnsupported: the storage cannot create a file atomically.
        StorageError: storage did not answer, and the file may or may not exist.
        LocationNotAllowed: a link leads elsewhere.
    """
    place = locate(location, path, is_allowed=is_allowed, inside=True)
    with storage_errors("create", place.url, writing=True):
        if place.local is not None:
            with place.opened_directory(create=directories, durable=True) as directory:
                if _local_files.create(directory, place.local, data):
                    return True
                with _opened(place) as file:
                    if file.read(len(data) + 1) != data:
                        return False
                # The previous attempt may have failed while syncing the directory.
                _local_files.sync_directory(directory)
                return True
        try:
            obstore.put(place.remote, place.key, data, mode="create", use_multipart=False)
        except (AlreadyExistsError, FileExistsError):
            return bytes(obstore.get(place.remote, place.key).bytes()) == data
        except (NotSupportedError, NotImplementedError) as error:
            raise AtomicCreateUnsupported(
                f"The object store of {place.url} does not support conditional writes (creating a file only "
                "if it does not exist), so commits would not be safe; move the table to one that does.",
                file=place.url,
            ) from error
        return True


def make_directory(location: str, path: str, *, is_allowed: Allowed | None = None) -> None:
    """Make a directory in an existing one of a local table; object stores have none.

    Raises:
        FileNotFoundError: the directory above does not exist.
        StorageError: the directory can be neither made nor used.
        LocationNotAllowed: a link leads elsewhere.
    """
    place = locate(location, path, is_allowed=is_allowed, inside=True)
    if place.local is not None:
        with (
            storage_errors("create", place.url, writing=True),
            place.opened_directory() as above,
            suppress(FileExistsError),
        ):
            os.mkdir(place.local.name, dir_fd=above)


def delete_file(location: str, path: str, *, is_allowed: Allowed | None = None) -> None:
    """Delete a file, or a link itself; a missing file counts as deleted.

    Raises:
        StorageError: storage did not answer, and the file may or may not exist.
        LocationNotAllowed: a link in the path leads elsewhere.
    """
    place = locate(location, path, is_allowed=is_allowed, inside=True)
    with suppress(FileNotFoundError), storage_errors("delete", place.url, writing=place.local is None):
        if place.local is not None:
            with place.opened_directory() as directory:
                _local_files.remove(directory, place.local.name)
            return
        try:
            obstore.delete(place.remote, place.key)
        except FileNotFoundError:
            # NotFound may mean the file (Azure, GCS) or the bucket (all stores). Only a missing bucket fails a listing.
            next(iter(obstore.list(place.remote, place.key, chunk_size=1)), None)


@contextmanager
def open_output(location: str, path: str) -> Iterator[IO[bytes]]:
    """Open a new file for streaming, durable at the end of the block; if the block raises, no file is left.

    Raises:
        FileExistsError: the local file already exists.
        StorageError: storage did not answer.
        LocationNotAllowed: a link leads out of the table.
    """
    place = locate(location, path, inside=True)
    if place.local is None:
        with storage_errors("write", place.url, writing=True):
            writer = obstore.open_writer(place.remote, place.key)
        # Do not close the writer on an error: that would complete the upload, whereas leaving it open aborts it.
        yield cast("IO[bytes]", RemoteOutput(writer, place.url))
        with storage_errors("write", place.url, writing=True):
            writer.close()
        return
    with ExitStack() as stack:
        with storage_errors("write", place.url, writing=True):
            directory = stack.enter_context(place.opened_directory(create=True, durable=True))
            new = _local_files.NewFile(directory, place.local)
        try:
            yield new.file
        except BaseException:
            new.discard()
            raise
        with storage_errors("write", place.url, writing=True):
            new.finish()


def remove_directories(location: str, path: str, is_chosen: Callable[[str], bool]) -> None:
    """Remove directories of a local table with their content, ignoring what cannot be removed.

    Args:
        location: the table's canonical location.
        path: the path of the parent directory, URL-encoded, relative to the location.
        is_chosen: selects directories by name.

    Raises:
        StorageError: storage did not answer.
        LocationNotAllowed: a link leads out of the table.
    """
    place = locate(location, f"{path}/_", inside=True)
    with (
        suppress(FileNotFoundError),
        storage_errors("clean up", place.url),
        place.opened_directory() as directory,
        _local_files.entries(directory) as found,
    ):
        names = [entry.name for entry in found if is_chosen(entry.name)]
        _local_files.remove_directories(directory, names)


def read_deletion_vectors(
    location: str,
    descriptors: Sequence[tuple[str, Descriptor]],
    *,
    table: str,
    version: int | None,
    is_allowed: Allowed | None = None,
    num_records: Mapping[str, int | None] | None = None,
) -> dict[str, BitMap64]:
    """Return the deleted rows by data file path.

    Adjacent deletion vectors in one file are read with one request; several files are read concurrently.

    Args:
        location: the table's canonical location.
        descriptors: pairs of the data file's path as in the log and its descriptor.
        table: the table's name, for errors.
        version: the version, for errors.
        is_allowed: decides by URL whether a file outside ``location`` may be read; none may by default.
        num_records: physical rows by the data file's path, where known.

    Raises:
        CorruptDeletionVector: or a subclass, naming table, version, data file and deletion vector file; also if one marks a
            row beyond ``num_records``.
        LocationNotAllowed: a descriptor points outside ``location``.
        StorageError: storage did not answer.
    """
    bitmaps = _read_vectors(
        location,
        ((Where(table, version, path), descriptor) for path, descriptor in descriptors),
        _Reader(decode_inline, unframe, is_allowed),
    )
    if num_records is not None:
        for path, descriptor in descriptors:
            check_rows_exist(bitmaps[path], num_records.get(path), descriptor, Where(table, version, path))
    return bitmaps


def read_deletion_vector_records(
    location: str,
    descriptors: Sequence[tuple[str, Descriptor]],
    *,
    table: str,
    version: int | None,
    is_allowed: Allowed | None = None,
) -> dict[str, bytes | memoryview]:
    """Return deletion vectors framed in the portable layout, verified but not decoded, by data file path.

    See :func:`read_deletion_vectors` for arguments and errors.
    """
    return _read_vectors(
        location,
        ((Where(table, version, path), descriptor) for path, descriptor in descriptors),
        _Reader(portable_record_inline, portable_record_in_file, is_allowed),
    )


@dataclass(frozen=True, slots=True)
class _Reader(Generic[_Vector]):
    """Functions that decode an inline deletion vector, and the bytes of one in a file."""

    in_log: Callable[[Descriptor, Where], _Vector]
    in_file: Callable[[memoryview, Descriptor, Where], _Vector]
    is_allowed: Allowed | None


def _read_vectors(
    location: str, descriptors: Iterable[tuple[Where, Descriptor]], reader: _Reader[_Vector]
) -> dict[str, _Vector]:
    vectors_by_path: dict[str, _Vector] = {}
    by_file: dict[str, list[tuple[Where, Descriptor]]] = {}
    for where, descriptor in descriptors:
        if descriptor.is_inline:
            vectors_by_path[where.file] = reader.in_log(descriptor, where)
            continue
        name = _file_of(descriptor, location, where)
        by_file.setdefault(name, []).append((where, descriptor))

    def read_file(item: tuple[str, list[tuple[Where, Descriptor]]]) -> list[tuple[str, _Vector]]:
        return _read_file(location, *item, reader)

    if len(by_file) == 1 or location.startswith("file:"):
        # Local reads are faster than handing them to a thread.
        for item in by_file.items():
            vectors_by_path.update(read_file(item))
    elif by_file:
        with ThreadPoolExecutor(min(_CONCURRENT_FILES, len(by_file)), "delvec-dv") as pool:
            for vectors in pool.map(read_file, by_file.items()):
                vectors_by_path.update(vectors)
    return vectors_by_path


def _file_of(descriptor: Descriptor, location: str, where: Where) -> str:
    """Return one canonical name for all spellings of a descriptor's file."""
    facts = {"table": where.table, "version": where.version, "file": where.file}
    try:
        return descriptor.relative_path() or canonical_log_path(descriptor.path_or_inline_dv, location)
    except CorruptDeletionVector as error:
        raise CorruptDeletionVector(f"{where}: {error.message}", **facts) from error
    except (InvalidLocation, CorruptLog) as error:
        name = descriptor.path_or_inline_dv[:300]
        raise CorruptDeletionVector(
            f"The log says that the deletion vector of {where} is in {name!r}, which is not a path or URL; "
            "restore the table to a version before that log entry.",
            **facts,
            deletion_vector=name,
        ) from error


def _read_file(
    location: str, name: str, members: Sequence[tuple[Where, Descriptor]], reader: _Reader[_Vector]
) -> list[tuple[str, _Vector]]:
    """Return the deletion vectors in the file ``name``, by data file path."""
    where = members[0][0]
    facts = {"table": where.table, "version": where.version, "file": where.file, "deletion_vector": name}
    try:
        for member, dv in members:
            if dv.size_in_bytes > _MAX_VECTOR:
                raise DeletionVectorSizeMismatch(
                    f"The descriptor of deletion vector '{name}' of {member} claims {dv.size_in_bytes} bytes; the limit is "
                    f"{_MAX_VECTOR}. Restore the table to a version before that log entry.",
                    **(facts | {"file": member.file}),
                )
            if dv.size_in_bytes > _LARGE:
                # A forged descriptor could otherwise load a whole data file into memory.
                start, _ = dv.byte_range
                [head] = read_ranges(location, name, [(start, start + 5)], is_allowed=reader.is_allowed)
                check_size(head, dv, member)
        buffers = read_ranges(
            location, name, [dv.byte_range for _, dv in members], is_allowed=reader.is_allowed
        )
    except FileNotFoundError as error:
        raise DeletionVectorNotFound(
            f"The deletion vector file '{name}' of {where} does not exist, so its deleted rows are unknown; "
            "restore that file from a backup, or restore the table to a version before it.",
            **facts,
        ) from error
    return [
        (where.file, reader.in_file(buffer, dv, where))
        for buffer, (where, dv) in zip(buffers, members, strict=True)
    ]
