"""Files on local disk, written so that they survive a crash or leave nothing that looks like a file.

The object store library's local store links but never syncs, and it cannot name every file a local table
may hold, so local locations use plain files.

Every function works in a directory that is held open (:func:`opened_directory`), and takes names in it, which it does not
follow where they are links. The kernel says where an open directory is, so that a symbolic link that leads out of a table is
found whenever it was put there: looking at the path first, and using it afterwards, would leave a gap between the two.
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

from delvec_kernel.errors import AtomicCreateUnsupported

__all__ = [
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
"""Raises where a path, which holds no links, is out of bounds."""

_NO_HARD_LINKS: Final = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})
_IS_LINK: Final = frozenset({errno.ELOOP, errno.EMLINK, getattr(errno, "EFTYPE", errno.ELOOP)})
_CHUNK: Final = 1 << 20
# Where it can, a directory is opened without the right to list it, which its files do not need.
_DIRECTORY: Final = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
_BELOW: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Opening a FIFO would wait for its other end, and opening a terminal could make it ours.
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_CREATE: Final = os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


# --- where files are --------------------------------------------------------------------------------------


@contextmanager
def opened_directory(
    path: Path, check: Check, *, create: bool = False, durable: bool = False
) -> Iterator[int]:
    """Hold a directory open, wherever links lead; the block gets its descriptor.

    Args:
        path: absolute.
        check: is asked where the directory really is, unless that is ``path``.
        create: create it, and its parents, where they are missing.
        durable: make the names of new directories durable.

    Raises:
        FileNotFoundError: it does not exist.
        NotADirectoryError: it is something else, or something above it is.
    """
    descriptor = _open_directory(path, path, check, create=create, durable=durable)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _open_directory(path: Path, wanted: Path, check: Check, *, create: bool, durable: bool) -> int:
    """Open a directory on the way to ``wanted``, where ``check`` lets that be."""
    try:
        descriptor = os.open(path, _DIRECTORY)
    except FileNotFoundError:
        if not create or path == path.parent:
            raise
    else:
        try:
            real = _path_of(descriptor, path)
            if real != str(path):
                check(str(Path(real, wanted.relative_to(path))))
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor
    parent = _open_directory(path.parent, wanted, check, create=True, durable=durable)
    try:
        with suppress(FileExistsError):
            os.mkdir(path.name, dir_fd=parent)
            if durable:
                sync_directory(parent)
        try:
            return os.open(path.name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
        except OSError as error:
            if error.errno in _IS_LINK:  # one that leads nowhere, or has just been put there
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path)) from error
            raise
    finally:
        os.close(parent)


def _path_of(descriptor: int, path: Path) -> str:
    """Return where an open file or directory is, which was opened as ``path``; no part of that is a link."""
    if sys.platform == "linux":
        try:
            found = os.readlink(f"/proc/self/fd/{descriptor}")  # noqa: PTH115 - for every file
        except FileNotFoundError:  # /proc is not mounted
            pass
        else:
            if found.endswith(" (deleted)") and not os.path.lexists(found):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
            return found
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
                raise  # it leads in a circle
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
    """Return the error for something that is where a file should be."""
    code = errno.EISDIR if stat.S_ISDIR(mode) else errno.ENODEV
    return OSError(code, "it is not a regular file", str(path))


def _no_file(error: OSError, path: Path) -> OSError:
    # What open() says of a socket.
    return (
        OSError(errno.ENODEV, "it is not a regular file", str(path)) if error.errno == errno.ENXIO else error
    )


def look_up(directory: int, path: Path, check: Check) -> os.stat_result:
    """Return what is known of a regular file in a directory; of one that a link leads to, if it may.

    Raises:
        FileNotFoundError: it does not exist.
        OSError: it is not a regular file.
    """
    found = os.stat(path.name, dir_fd=directory, follow_symlinks=False)
    if stat.S_ISLNK(found.st_mode):
        descriptor = open_file(path, check)
        try:
            return os.fstat(descriptor)
        finally:
            os.close(descriptor)
    if not stat.S_ISREG(found.st_mode):
        raise not_regular(found.st_mode, path)
    return found


@contextmanager
def descended(root: int, path: str, *, create: bool = False) -> Iterator[int]:
    """Open a directory below another one, step by step: one step over a link could lead anywhere.

    Args:
        root: an open directory.
        path: below it, URL-encoded; empty for the directory itself.
        create: make the directories that are missing, durably.

    Raises:
        OSError: it cannot be opened; ``NotADirectoryError`` where a link or a file is in the way.
    """
    descriptor = os.open(".", _BELOW, dir_fd=root)
    try:
        for name in map(unquote, path.split("/") if path else ()):
            if create:
                with suppress(FileExistsError):
                    os.mkdir(name, dir_fd=descriptor)
                    sync_directory(descriptor)
            inner = os.open(name, _BELOW, dir_fd=descriptor)
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
    """Return a path by which a library can open an open file, wherever links lead by now."""
    found = Path(f"/dev/fd/{descriptor}")
    return found if found.exists() else path


# --- writing ----------------------------------------------------------------------------------------------


def create(directory: int, path: Path, data: bytes) -> bool:
    """Create the file ``path`` in ``directory`` with ``data`` unless it exists; durable when this returns.

    Returns:
        False if the file exists already; it is then left as it was.

    Raises:
        AtomicCreateUnsupported: the file system has no hard links.
        OSError: anything else; the file may exist only if the last step, syncing the directory, failed.
    """
    return publish(directory, _write_beside(directory, path, data, durable=True), path)


def publish(directory: int, temporary: str, path: Path) -> bool:
    """Give a complete and synced file its name unless that exists; durable when this returns.

    Args:
        directory: that both names are in.
        temporary: the file's name; it is gone afterwards, whatever happens.
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
            os.link(temporary, path.name, src_dir_fd=directory, dst_dir_fd=directory, follow_symlinks=False)
        except FileExistsError:
            # NFS repeats a link whose answer was lost, and then reports its own success as EEXIST.
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
    """Write ``path`` in ``directory`` whole, replacing what is there; a reader sees the old file or the new one."""
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
    """Remove the file ``name`` in ``directory``; of a link, the link."""
    if "/" in name:
        raise ValueError(f"{name!r} is not the name of a file in one directory")
    forget_checksum(directory, name)
    os.unlink(name, dir_fd=directory)


def remove_directories(directory: int, names: Iterable[str]) -> None:
    """Remove directories with all that is in them, as far as that can be done; links are not followed."""
    for name in names:
        # Renamed first, so that no reader finds half of one.
        removed = f".{name}.removed"
        with suppress(OSError):
            os.rename(name, removed, src_dir_fd=directory, dst_dir_fd=directory)
            shutil.rmtree(removed, dir_fd=directory)


def forget_checksum(directory: int, name: str) -> None:
    """Remove the checksum that Hadoop keeps beside a file: it would refuse any other content as damaged."""
    try:  # noqa: SIM105 - for every file
        os.unlink(f".{name}.crc", dir_fd=directory)
    except OSError:
        pass


class NewFile:
    """A file that did not exist, open for writing under its final name.

    Data files need no rename: nothing refers to them before the log does.

    Attributes:
        file: the open file, binary and buffered.
    """

    def __init__(self, directory: int, path: Path, *, durable: bool) -> None:
        """Create the file.

        Raises:
            FileExistsError: it exists already.
        """
        self._directory, self._name, self._durable = directory, path.name, durable
        descriptor = os.open(self._name, os.O_WRONLY | _CREATE, 0o666, dir_fd=directory)
        self.file: IO[bytes] = os.fdopen(descriptor, "wb", buffering=_CHUNK)

    def finish(self) -> None:
        """Write out what is buffered and close; durable if that was asked for. Removes the file on failure."""
        try:
            self.file.close()
            if self._durable:
                sync_file(self._directory, self._name)
        except BaseException:
            self.discard()
            raise
        if self._durable:
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
        # Some network file systems cannot sync a directory because every change of it is synchronous.
        if error.errno not in {errno.EINVAL, errno.ENOTSUP}:
            raise
    finally:
        os.close(descriptor)


def sync_file(directory: int, name: str) -> None:
    """Make a file's content durable."""
    # Its writer may have closed the file already; syncing is by inode, so a second descriptor does.
    descriptor = os.open(name, _READ, dir_fd=directory)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def create_hidden(directory: int, path: Path) -> tuple[str, int]:
    """Create a file that no reader of a log takes for one of it, next to ``path``; return its name and descriptor."""
    # A name may have 255 bytes: long ones keep only their start.
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
