"""The files of a deep clone: copies of data files and deletion vector files, each made once.

Tested in `tests/integration/client/test_clone.py`.
"""

import time
import uuid
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import unquote

from delvec_errors import DelvecError, MissingCloneFiles
from delvec_kernel import locations
from delvec_kernel.actions.actions import AddFile
from delvec_kernel.deletion_vectors.deletion_vector import Descriptor, encode_uuid, file_name
from delvec_storage.file_copies import copy_file
from delvec_storage.files import Allowed, delete_file, stat

__all__ = ["copied_files", "remove_copies"]

_AT_ONCE: Final = 8
_LONGEST_NAME: Final = 200
_MAX_LISTED: Final = 100
_RESERVED_DIRECTORIES: Final = ("_delta_log", "_delvec")
"""Directories of a table in which files are not data files."""
_LONG_SECONDS: Final = 3600.0


@dataclass(frozen=True)
class _Copy:
    path: str
    new_path: str
    size: int | None


def copied_files(
    adds: Sequence[AddFile], source: str, target: str, *, version: int, is_allowed: Allowed
) -> list[AddFile]:
    """Copy the files of a version, and return the copies as in the clone's log; on failure none remain.

    Args:
        adds: the files as in the source's log.
        source: canonical location.
        target: canonical location.
        version: the version of the source, for errors.
        is_allowed: decides by URL what may be read outside the source.

    Raises:
        MissingCloneFiles: files are missing from storage, or their sizes differ from the log; up to 100 are listed.
        LocationNotAllowed: a file is where it must not be read.
        StorageError: storage did not answer.
    """
    mark = uuid.uuid4().hex[:8]
    vectors: dict[str, uuid.UUID] = {}
    files: list[AddFile] = []
    copies: list[_Copy] = []
    for number, add in enumerate(adds):
        key = locations.canonical_log_path(add.path, source)
        new_path = _new_path(key, f"{mark}-{number:05}")
        copies.append(_Copy(add.path, new_path, add.size))
        vector = add.deletion_vector
        if vector is not None and not vector.is_inline:
            path = vector.relative_path() or vector.path_or_inline_dv
            if path not in vectors:
                vectors[path] = uuid.uuid4()
                copies.append(_Copy(path, file_name(vectors[path]), None))
            vector = replace(vector, storage_type="u", path_or_inline_dv=encode_uuid("", vectors[path]))
        files.append(_file(add, new_path, vector))
    _copy(copies, source, target, version, is_allowed)
    return files


def _file(add: AddFile, new_path: str, vector: Descriptor | None) -> AddFile:
    return replace(
        add,
        path=locations.log_path(unquote(new_path)),
        deletion_vector=vector,
        base_row_id=None,
        default_row_commit_version=None,
    )


def _new_path(key: str, mark: str) -> str:
    """Return the path of a copy: in its partition's directory, with a name that no file in the target has."""
    # Files outside the table are below the directories of another table.
    directory, _, name = ("" if "://" in key else key).rpartition("/")
    if directory.partition("/")[0] in _RESERVED_DIRECTORIES:
        directory = ""
    name = unquote(name or key.rpartition("/")[2])
    while len(name.encode()) > _LONGEST_NAME:
        name = name[1:]
    return "/".join(part for part in (directory, locations.canonical_relative(f"{mark}-{name}")) if part)


def _copy(copies: Sequence[_Copy], source: str, target: str, version: int, is_allowed: Allowed) -> None:
    began = time.monotonic()
    missing: list[str] = []
    new_paths: list[str] = []

    def one(copy: _Copy) -> None:
        try:
            size = copy_file(source, copy.path, target, copy.new_path, is_allowed=is_allowed)
        except FileNotFoundError:
            missing.append(copy.path)
            return
        new_paths.append(copy.new_path)
        if copy.size is not None and size != copy.size:
            missing.append(copy.path)

    try:
        with ThreadPoolExecutor(_AT_ONCE, "delvec-copy") as pool:
            futures = [pool.submit(one, copy) for copy in copies]
            try:
                for future in futures:
                    future.result()
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
        if time.monotonic() - began > _LONG_SECONDS:
            # A VACUUM of the target may have deleted the first copies as orphans.
            missing += [copy.path for copy in copies if stat(target, copy.new_path) is None]
        if missing:
            named = "one of its files is" if len(missing) == 1 else f"{len(missing)} of its files are"
            raise MissingCloneFiles(
                f"Version {version} of the table at {source} cannot be cloned, because {named} missing from "
                f"storage, or of a different size than in the log, for example '{missing[0]}'. Clone another "
                "version, or restore the files from a backup first.",
                version=version,
                count=len(missing),
                missing=sorted(missing)[:_MAX_LISTED],
            )
    except DelvecError:
        _delete(target, new_paths)
        raise


def remove_copies(files: Sequence[AddFile], target: str) -> None:
    """Delete the files of a failed deep clone, as far as storage allows."""
    vectors = {
        path
        for add in files
        if add.deletion_vector is not None and (path := add.deletion_vector.relative_path()) is not None
    }
    _delete(target, [*(add.path for add in files), *vectors])


def _delete(target: str, paths: Iterable[str]) -> None:
    for path in paths:
        with suppress(DelvecError):
            delete_file(target, path)
