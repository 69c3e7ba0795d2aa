"""Copies files between tables, server-side within a store if possible."""

from typing import Final
from urllib.parse import unquote

import obstore

from delvec_errors import UnusableFile
from delvec_kernel import locations
from delvec_storage.file_locations import Allowed, locate, storage_errors, store_for
from delvec_storage.files import check_regular, open_input, open_output, stat

__all__ = ["copy_file"]

_CHUNK: Final = 8 << 20
_MAX_COPY_BYTES: Final = 5_000_000_000
"""S3's limit for copying an object in one request."""


def copy_file(
    source: str, path: str, target: str, new_path: str, *, is_allowed: Allowed | None = None
) -> int:
    """Copy a file into another table, durably; never replaces a file on local disk.

    Args:
        source: the canonical location of the table whose log references the file.
        path: as in that log.
        target: the canonical location of the other table.
        new_path: URL-encoded, relative to ``target``.
        is_allowed: decides by URL whether a file outside the source's location may be read, and where links may lead.

    Returns:
        The size in bytes.

    Raises:
        FileNotFoundError: the file does not exist.
        UnusableFile: it is not a regular file, or shrank during the copy.
        LocationNotAllowed: it is not allowed, or a link leads out of the target.
        StorageError: storage did not answer.
    """
    check_regular(source, [path], is_allowed=is_allowed)
    found = stat(source, path, is_allowed=is_allowed)
    if found is None:
        raise FileNotFoundError(path)
    if not _copied_within(source, path, target, new_path, found.size, is_allowed):
        _streamed(source, path, target, new_path, found.size, is_allowed)
    return found.size


def _copied_within(
    source: str, path: str, target: str, new_path: str, size: int, is_allowed: Allowed | None
) -> bool:
    url = locate(source, path, is_allowed=is_allowed).url
    bucket = "/".join(url.split("/", 3)[:3])
    if (
        not locations.within(target, bucket)
        or bucket.startswith(("file:", "memory:"))
        or size > _MAX_COPY_BYTES
    ):
        return False
    place = locate(target, new_path, inside=True)
    keys = [unquote(each[len(bucket) + 1 :]) for each in (url, place.url)]
    with storage_errors("copy", url):
        obstore.copy(store_for(bucket), *keys)
    return True


def _streamed(
    source: str, path: str, target: str, new_path: str, size: int, is_allowed: Allowed | None
) -> None:
    left = size
    with (
        open_input(source, path, is_allowed=is_allowed) as file,
        open_output(target, new_path) as new,
    ):
        while left and (data := file.read(min(_CHUNK, left))):
            new.write(data)
            left -= len(data)
        if left:
            raise UnusableFile(
                f"The file {path} of the table at {source} ended {left} bytes early while it was being "
                "copied; try again.",
                file=path,
                size=size,
            )
