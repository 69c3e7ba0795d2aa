"""Files on local disk, written so that they survive a crash or leave nothing that looks like a file.

The object store library's local store links but never syncs, and it cannot name every file a local table
may hold, so local locations use plain files.
"""

import errno
import os
import shutil
import uuid
from contextlib import suppress
from pathlib import Path
from typing import IO, Final

from delvec.protocol.errors import AtomicCreateUnsupported

__all__ = [
    "NewFile",
    "create",
    "create_directory",
    "forget_checksum",
    "hidden_beside",
    "publish",
    "replace",
    "sync_directory",
    "sync_file",
]

_NO_HARD_LINKS: Final = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})
_CHUNK: Final = 1 << 20


def create(path: Path, data: bytes) -> bool:
    """Create ``path`` with ``data`` unless it exists; durable when this returns.

    Returns:
        False if the file exists already; it is then left as it was.

    Raises:
        AtomicCreateUnsupported: the file system has no hard links.
        OSError: anything else; the file may exist only if the last step, syncing the directory, failed.
    """
    create_directory(path.parent, durable=True)
    return publish(_write_beside(path, data, durable=True), path)


def publish(temporary: Path, path: Path) -> bool:
    """Give a complete and synced file its name unless that exists; durable when this returns.

    Args:
        temporary: next to ``path``; it is gone afterwards, whatever happens.
        path: the name to give.

    Returns:
        False if the file exists already; it is then left as it was.

    Raises:
        AtomicCreateUnsupported: the file system has no hard links.
        OSError: anything else; the file may exist only if the last step, syncing the directory, failed.
    """
    try:
        try:
            # A rename would replace a commit that another process made in between.
            os.link(temporary, path)
        except FileExistsError:
            # NFS repeats a link whose answer was lost, and then reports its own success as EEXIST.
            if temporary.stat().st_nlink < 2:  # noqa: PLR2004 - the temporary name and the final one
                return False
        except OSError as error:
            if error.errno in _NO_HARD_LINKS:
                raise AtomicCreateUnsupported(
                    f"The file system of '{path.parent}' has no hard links ({error.strerror}), so commits there "
                    "cannot be atomic; put the table on a file system that has them.",
                    file=str(path),
                ) from error
            raise
        sync_directory(path.parent)
    finally:
        with suppress(OSError):
            temporary.unlink()
    return True


def replace(path: Path, data: bytes | memoryview | IO[bytes], *, durable: bool) -> None:
    """Write ``path`` whole, replacing what is there; a reader sees the old file or the new one."""
    create_directory(path.parent, durable=durable)
    temporary = _write_beside(path, data, durable=durable)
    try:
        forget_checksum(path)
        temporary.replace(path)
    except OSError:
        with suppress(OSError):
            temporary.unlink()
        raise
    if durable:
        sync_directory(path.parent)


def forget_checksum(path: Path) -> None:
    """Remove the checksum that Hadoop keeps beside a file: it would refuse any other content as damaged."""
    with suppress(OSError):
        path.with_name(f".{path.name}.crc").unlink()


class NewFile:
    """A file that did not exist, open for writing under its final name.

    Data files need no rename: nothing refers to them before the log does.

    Attributes:
        file: the open file, binary and buffered.
    """

    def __init__(self, path: Path, *, durable: bool) -> None:
        """Create the file.

        Raises:
            FileExistsError: it exists already.
        """
        create_directory(path.parent, durable=durable)
        self._path, self._durable = path, durable
        self.file: IO[bytes] = path.open("xb", buffering=_CHUNK)

    def finish(self) -> None:
        """Write out what is buffered and close; durable if that was asked for. Removes the file on failure."""
        try:
            self.file.close()
            if self._durable:
                sync_file(self._path)
        except BaseException:
            self.discard()
            raise
        if self._durable:
            sync_directory(self._path.parent)

    def discard(self) -> None:
        """Close and remove the file."""
        with suppress(OSError):
            self.file.close()
        with suppress(OSError):
            self._path.unlink()


def create_directory(path: Path, *, durable: bool) -> None:
    """Create the directory and its parents where they are missing; their names are durable on request."""
    missing = []
    while not path.is_dir():
        missing.append(path)
        if path == path.parent:
            break
        path = path.parent
    for directory in reversed(missing):
        try:
            directory.mkdir(exist_ok=True)
        except FileExistsError as error:
            # To whoever creates a file below, this would say that the file exists.
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(directory)) from error
        if durable:
            sync_directory(directory.parent)


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network file systems cannot sync a directory because every change of it is synchronous.
        if error.errno not in {errno.EINVAL, errno.ENOTSUP}:
            raise
    finally:
        os.close(descriptor)


def sync_file(path: Path) -> None:
    """Make a file's content durable."""
    # Its writer may have closed the file already; syncing is by inode, so a second descriptor does.
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def hidden_beside(path: Path) -> Path:
    """Return a new name next to ``path`` that no reader of a log takes for a file of it."""
    # A name may have 255 bytes: long ones keep only their start.
    stem = os.fsencode(path.name)[:180].decode("utf-8", "ignore")
    return path.with_name(f".{stem}.{uuid.uuid4().hex}.tmp")


def _write_beside(path: Path, data: bytes | memoryview | IO[bytes], *, durable: bool) -> Path:
    """Write a hidden file next to ``path``; no reader of the log takes such a name for a commit."""
    temporary = hidden_beside(path)
    try:
        with temporary.open("xb", buffering=0 if isinstance(data, (bytes, memoryview)) else _CHUNK) as file:
            if isinstance(data, (bytes, memoryview)):
                view = memoryview(data)
                while view:
                    view = view[file.write(view) :]
            else:
                shutil.copyfileobj(data, file, _CHUNK)
            file.flush()
            if durable:
                os.fsync(file.fileno())
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
    return temporary
