"""Crash-safe writes of local files: a file is complete or absent.

obstore's local store links but never syncs, and it cannot handle every file name that a local table may
have, so local locations use plain files.

Every function works relative to an open directory (:func:`opened_directory`) and does not follow links in the names it
takes. The operating system reports where an open directory really is, so links out of a table are detected whenever they
were created; checking a path before using it would leave a race.

Tested in `tests/integration/contract/test_commit_storage.py` and
`tests/integration/contract/test_unusable_files.py`.
"""

import errno
import os
import shutil
import stat
import sys
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Final
from urllib.parse import unquote

from delvec_errors import AtomicCreateUnsupported

__all__ = [
    "OPEN_DIRECTORY",
    "Check",
    "NewFile",
    "by_descriptor",
    "create",
    "create_hidden",
    "descended",
    "entries",
    "forget_checksum",
    "look_up",
    "not_regular",
    "open_file",
    "opened_directory",
    "publish",
    "remove",
    "remove_directories",
    "replace",
    "sync_directory",
    "sync_file",
]

Check = Callable[[str], None]
"""Raises if a path without links is out of bounds."""

_NO_HARD_LINKS: Final = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})
_IS_LINK: Final = frozenset({errno.ELOOP, errno.EMLINK, getattr(errno, "EFTYPE", errno.ELOOP)})
_CHUNK: Final = 1 << 20
# O_PATH, where available, works without permission to list the directory, which its files do not need.
_DIRECTORY: Final = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
OPEN_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# O_NONBLOCK: opening a FIFO would block. O_NOCTTY: opening a terminal could make it the controlling one.
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_CREATE: Final = os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


# --- where files are --------------------------------------------------------------------------------------


@contextmanager
def opened_directory(
    path: Path, check: Check, *, create: bool = False, durable: bool = False
) -> Iterator[int]:
    """Open a directory, following links; yields its descriptor.

    Args:
        path: absolute.
        check: called with the directory's real path, unless that is ``path``.
        create: whether to create it and its parents if missing.
        durable: whether to sync new directories.

    Raises:
        FileNotFoundError: it does not exist.
        NotADirectoryError: it, or one of its parents, is not a directory.
    """
    descriptor = _open_directory(path, path, check, create=create, durable=durable)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _open_directory(path: Path, target: Path, check: Check, *, create: bool, durable: bool) -> int:
    """Open a directory on the way to ``target``, if ``check`` allows."""
    try:
        descriptor = os.open(path, _DIRECTORY)
    except FileNotFoundError:
        if not create or path == path.parent:
            raise
    else:
        try:
            real = _path_of(descriptor, path)
            if real != str(path):
                check(str(Path(real, target.relative_to(path))))
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor
    parent = _open_directory(path.parent, target, check, create=True, durable=durable)
    try:
        with suppress(FileExistsError):
            os.mkdir(path.name, dir_fd=parent)
            if durable:
                sync_directory(parent)
        try:
            return os.open(path.name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
        except OSError as error:
            if error.errno in _IS_LINK:  # a dangling link, or one created meanwhile
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path)) from error
            raise
    finally:
        os.close(parent)


def _path_of(descriptor: int, path: Path) -> str:
    """Return the link-free path of an open file or directory, which was opened as ``path``."""
    if sys.platform == "linux":
        try:
            real_path = os.readlink(f"/proc/self/fd/{descriptor}")  # noqa: PTH115 - for every file
        except FileNotFoundError:  # /proc is not mounted
            pass
        else:
            if real_path.endswith(" (deleted)") and not os.path.lexists(real_path):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
            return real_path
    elif sys.platform == "darwin":
        import fcntl

        return os.fsdecode(fcntl.fcntl(descriptor, fcntl.F_GETPATH, bytes(1024)).rstrip(b"\0"))
    real = os.path.realpath(path)
    if not os.path.samestat(Path(real).stat(), os.fstat(descriptor)):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    return real


def open_file(path: Path, check: Check) -> int:
    """Open a regular file for reading; return its descriptor.

    Raises:
        FileNotFoundError: it does not exist.
        OSError: it is not a regular file (``EISDIR``, ``ENODEV``), or cannot be opened.
    """
    with opened_directory(path.parent, check) as directory:
        try:
            descriptor = os.open(path.name, _READ, dir_fd=directory)
        except OSError as error:
            if error.errno not in _IS_LINK:
                raise _no_file(error, path) from error
            real = Path(os.path.realpath(path))
            if real.is_symlink():
                raise  # a cycle
        else:
            return _regular(descriptor, path)
    check(str(real))
    with opened_directory(real.parent, check) as directory:
        try:
            return _regular(os.open(real.name, _READ, dir_fd=directory), real)
        except OSError as error:
            raise _no_file(error, real) from error


def _regular(descriptor: int, path: Path) -> int:
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return descriptor
    os.close(descriptor)
    raise not_regular(mode, path)


def not_regular(mode: int, path: Path) -> OSError:
    """Return the error for a path that is not a regular file."""
    code = errno.EISDIR if stat.S_ISDIR(mode) else errno.ENODEV
    return OSError(code, "it is not a regular file", str(path))


def _no_file(error: OSError, path: Path) -> OSError:
    # The same error as open() of a socket.
    return (
        OSError(errno.ENODEV, "it is not a regular file", str(path)) if error.errno == errno.ENXIO else error
    )


def look_up(directory: int, path: Path, check: Check) -> os.stat_result:
    """Return the stat of a regular file in a directory, following links if ``check`` allows.

    Raises:
        FileNotFoundError: it does not exist.
        OSError: it is not a regular file.
    """
    file_stat = os.stat(path.name, dir_fd=directory, follow_symlinks=False)
    if stat.S_ISLNK(file_stat.st_mode):
        descriptor = open_file(path, check)
        try:
            return os.fstat(descriptor)
        finally:
            os.close(descriptor)
    if not stat.S_ISREG(file_stat.st_mode):
        raise not_regular(file_stat.st_mode, path)
    return file_stat


@contextmanager
def descended(root: int, path: str, *, create: bool = False) -> Iterator[int]:
    """Open a directory below another, one component at a time, so that no link is followed.

    Args:
        root: an open directory.
        path: relative to it, URL-encoded; empty for the directory itself.
        create: whether to create missing directories, durably.

    Raises:
        OSError: it cannot be opened; ``NotADirectoryError`` if a component is a link or a file.
    """
    descriptor = os.open(".", OPEN_DIRECTORY, dir_fd=root)
    try:
        for name in map(unquote, path.split("/") if path else ()):
            if create:
                with suppress(FileExistsError):
                    os.mkdir(name, dir_fd=descriptor)
                    sync_directory(descriptor)
            inner = os.open(name, OPEN_DIRECTORY, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = inner
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def entries(directory: int) -> Iterator[Iterator[os.DirEntry[str]]]:
    """List an open directory."""
    descriptor = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=directory)
    try:
        with os.scandir(descriptor) as found:
            yield found
    finally:
        os.close(descriptor)


def by_descriptor(descriptor: int, path: Path) -> Path:
    """Return a path by which a library can open an already open file, even if links have changed."""
    found = Path(f"/dev/fd/{descriptor}")
    return found if found.exists() else path


# --- writing ----------------------------------------------------------------------------------------------


def create(directory: int, path: Path, data: bytes) -> bool:
    """Create the file ``path`` in ``directory`` with ``data`` unless it exists; durable when this returns.

    Returns:
        False if the file already exists; it is left unchanged.

    Raises:
        AtomicCreateUnsupported: the file system has no hard links.
        OSError: anything else; the file may exist only if the last step, syncing the directory, failed.
    """
    return publish(directory, _write_beside(directory, path, data, durable=True), path)


def publish(directory: int, temporary: str, path: Path) -> bool:
    """Give a complete and synced file its final name unless that exists; durable when this returns.

    Args:
        directory: contains both names.
        temporary: the file's current name, which is always removed.
        path: the final name.

    Returns:
        False if the file already exists; it is left unchanged.

    Raises:
        AtomicCreateUnsupported: the file system has no hard links.
        OSError: anything else; the file may exist only if the last step, syncing the directory, failed.
    """
    try:
        try:
            # rename() would replace a commit that another process made meanwhile.
            os.link(temporary, path.name, src_dir_fd=directory, dst_dir_fd=directory, follow_symlinks=False)
        except FileExistsError:
            # NFS retries a link whose response was lost, and then reports EEXIST for its own success.
            if os.stat(temporary, dir_fd=directory).st_nlink < 2:  # noqa: PLR2004 - the temporary name and the final one
                return False
        except OSError as error:
            if error.errno in _NO_HARD_LINKS:
                raise AtomicCreateUnsupported(
                    f"The file system of '{path.parent}' does not support hard links ({error.strerror}), so "
                    "commits there cannot be atomic; move the table to a file system that does.",
                    file=str(path),
                ) from error
            raise
        sync_directory(directory)
    finally:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=directory)
    return True


def replace(directory: int, path: Path, data: bytes | memoryview | IO[bytes], *, durable: bool) -> None:
    """Write ``path`` in ``directory`` atomically, replacing any existing file; readers see the old or the new one."""
    temporary = _write_beside(directory, path, data, durable=durable)
    try:
        forget_checksum(directory, path.name)
        os.replace(temporary, path.name, src_dir_fd=directory, dst_dir_fd=directory)
    except OSError:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=directory)
        raise
    if durable:
        sync_directory(directory)


def remove(directory: int, name: str) -> None:
    """Remove the file ``name`` in ``directory``, or a link itself."""
    if "/" in name:
        raise ValueError(f"{name!r} is not the name of a file in one directory")
    forget_checksum(directory, name)
    os.unlink(name, dir_fd=directory)


def remove_directories(directory: int, names: Iterable[str]) -> None:
    """Remove directories with their content, ignoring errors and not following links."""
    for name in names:
        # Rename first, so that no reader finds a partial directory.
        removed = f".{name}.removed"
        with suppress(OSError):
            os.rename(name, removed, src_dir_fd=directory, dst_dir_fd=directory)
            shutil.rmtree(removed, dir_fd=directory)


def forget_checksum(directory: int, name: str) -> None:
    """Remove the Hadoop checksum file, which would make Hadoop reject any other content as corrupt."""
    try:  # noqa: SIM105 - for every file
        os.unlink(f".{name}.crc", dir_fd=directory)
    except OSError:
        pass


class NewFile:
    """A new file, open for writing under its final name.

    Data files need no temporary name, since nothing refers to them before the commit.

    Attributes:
        file: the open file, binary and buffered.
    """

    def __init__(self, directory: int, path: Path) -> None:
        """Create the file.

        Raises:
            FileExistsError: the file already exists.
        """
        self._directory, self._name = directory, path.name
        descriptor = os.open(self._name, os.O_WRONLY | _CREATE, 0o666, dir_fd=directory)
        self.file: IO[bytes] = os.fdopen(descriptor, "wb", buffering=_CHUNK)

    def finish(self) -> None:
        """Flush, close and sync. Removes the file on failure."""
        try:
            self.file.close()
            sync_file(self._directory, self._name)
        except BaseException:
            self.discard()
            raise
        sync_directory(self._directory)

    def discard(self) -> None:
        """Close and remove the file."""
        with suppress(OSError):
            self.file.close()
        with suppress(OSError):
            os.unlink(self._name, dir_fd=self._directory)


def sync_directory(directory: int) -> None:
    """Make the names in an open directory durable."""
    descriptor = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=directory)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network file systems cannot sync a directory because they change it synchronously.
        if error.errno not in {errno.EINVAL, errno.ENOTSUP}:
            raise
    finally:
        os.close(descriptor)


def sync_file(directory: int, name: str) -> None:
    """Make a file's content durable."""
    # The writer may have closed the file; fsync works on the inode, so any descriptor will do.
    descriptor = os.open(name, _READ, dir_fd=directory)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def create_hidden(directory: int, path: Path) -> tuple[str, int]:
    """Create a hidden file next to ``path``, which log readers ignore; return its name and descriptor."""
    # File names are limited to 255 bytes, so shorten long ones.
    stem = os.fsencode(path.name)[:180].decode("utf-8", "ignore")
    name = f".{stem}.{uuid.uuid4().hex}.tmp"
    return name, os.open(name, os.O_RDWR | _CREATE, 0o666, dir_fd=directory)


def _write_beside(directory: int, path: Path, data: bytes | memoryview | IO[bytes], *, durable: bool) -> str:
    """Write a hidden file next to ``path``; return its name."""
    temporary, descriptor = create_hidden(directory, path)
    try:
        whole = isinstance(data, (bytes, memoryview))
        with os.fdopen(descriptor, "wb", buffering=0 if whole else _CHUNK) as file:
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
            os.unlink(temporary, dir_fd=directory)
        raise
    return temporary
