"""Moves files between directories of a table, as quarantine and its restoration do.

On local disk a file is durably linked to its new name before it loses the old one; object stores copy, then delete. An
interrupted move leaves a file under both names, and repeating the call completes it.

Tested in `tests/integration/contract/test_trees.py`.
"""

import os
import stat
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import groupby
from typing import Final
from urllib.parse import unquote

from delvec_errors import DelvecError
from delvec_storage import local_files as _local_files
from delvec_storage.file_copies import copy_file
from delvec_storage.file_locations import Allowed, FileLocation, locate, storage_errors
from delvec_storage.files import stat as look_up
from delvec_storage.trees import Deletion, delete_files

__all__ = ["move_files"]

_CONCURRENT_COPIES: Final = 16


def move_files(
    location: str,
    paths: Sequence[str],
    source: str,
    target: str,
    *,
    before: int | None = None,
    is_allowed: Allowed | None = None,
) -> Deletion:
    """Move files from one directory of a table to another, without replacing files or following links.

    Args:
        location: the table's canonical location.
        paths: relative to ``source``, from :class:`~delvec_storage.trees.TreeListing`, preferably in its order.
        source: a directory below the location; empty for the location itself.
        target: another directory, created if missing.
        before: milliseconds since the epoch; local files modified later are kept.
        is_allowed: decides by URL whether the location itself may be a link.

    Returns:
        ``deleted`` are the moved files; ``kept`` those that are missing, changed or not regular files, or whose new
        name is taken.
    """
    deletion = Deletion()
    place = locate(location, "_", is_allowed=is_allowed, inside=True)
    if place.local is None:
        _move_remote(location, paths, source, target, deletion, is_allowed)
        return deletion
    for parent, group in groupby(paths, lambda path: path.rpartition("/")[0]):
        names = list(group)
        try:
            with storage_errors("move files in", f"{place.url[:-1]}{_joined(source, parent)}", writing=True):
                _move_local(place, _joined(source, parent), _joined(target, parent), names, before, deletion)
        except DelvecError as error:
            handled_paths = {*deletion.deleted, *deletion.kept}
            names = [name for name in names if name not in handled_paths]
            if isinstance(error.__cause__, FileNotFoundError | NotADirectoryError):
                deletion.kept += names  # missing, or a link replaced the directory
            else:
                deletion.failed += names
                deletion.error = deletion.error or error
    return deletion


def _move_local(
    place: FileLocation,
    source: str,
    target: str,
    paths: Sequence[str],
    before: int | None,
    deletion: Deletion,
) -> None:
    links: list[tuple[str, str]] = []
    with (
        place.opened_directory() as root,
        _local_files.descended(root, source) as old,
        _local_files.descended(root, target, create=True) as new,
    ):
        for path in paths:
            name = unquote(path.rpartition("/")[2])
            (links.append((path, name)) if _link(old, new, name, before) else deletion.kept.append(path))
        # Before unlinking the old names, or a crash could lose both.
        _local_files.sync_directory(new)
        for path, name in links:
            _local_files.remove(old, name)
            deletion.deleted.append(path)


def _link(old: int, new: int, name: str, before: int | None) -> bool:
    """Link a regular file to its new name; False if missing, too new or not regular, or if the name is taken."""
    try:
        file_stat = os.stat(name, dir_fd=old, follow_symlinks=False)
        if not stat.S_ISREG(file_stat.st_mode):
            return False
        if before is not None and file_stat.st_mtime_ns // 1_000_000 >= before:
            return False
        os.link(name, name, src_dir_fd=old, dst_dir_fd=new, follow_symlinks=False)
    except FileNotFoundError:
        return False
    except FileExistsError:
        # After an interrupted move, both names refer to the same file.
        return os.path.samestat(file_stat, os.stat(name, dir_fd=new, follow_symlinks=False))
    return True


def _move_remote(
    location: str,
    paths: Sequence[str],
    source: str,
    target: str,
    deletion: Deletion,
    is_allowed: Allowed | None,
) -> None:
    with ThreadPoolExecutor(_CONCURRENT_COPIES, "delvec-move") as pool:
        results = pool.map(partial(_copied, location, source, target, is_allowed), paths)
        copied_paths: list[str] = []
        for path, outcome in zip(paths, results, strict=True):
            if isinstance(outcome, DelvecError):
                deletion.failed.append(path)
                deletion.error = deletion.error or outcome
            else:
                (copied_paths if outcome else deletion.kept).append(path)
    remote_deletion = delete_files(
        location, [_joined(source, path) for path in copied_paths], 0, is_allowed=is_allowed
    )
    failed = {*remote_deletion.failed, *remote_deletion.kept}
    deletion.deleted += [path for path in copied_paths if _joined(source, path) not in failed]
    deletion.failed += [path for path in copied_paths if _joined(source, path) in failed]
    deletion.error = deletion.error or remote_deletion.error


def _copied(
    location: str, source: str, target: str, is_allowed: Allowed | None, path: str
) -> bool | DelvecError:
    old, new = _joined(source, path), _joined(target, path)
    try:
        found, there = (look_up(location, each, is_allowed=is_allowed) for each in (old, new))
        if found is None or (there is not None and (there.size, there.e_tag) != (found.size, found.e_tag)):
            return False
        if there is None:
            copy_file(location, old, location, new, is_allowed=is_allowed)
    except FileNotFoundError:
        return False
    except DelvecError as error:
        return error
    return True


def _joined(directory: str, path: str) -> str:
    return f"{directory}/{path}" if directory and path else directory or path
