"""Special files and oversized files in place of regular ones, and errors of the file system."""

import errno
import os
import socket
import threading
from pathlib import Path

import pytest

from delvec_errors import (
    CorruptDeletionVector,
    CorruptLog,
    DelvecError,
    InvalidLocation,
    StorageDenied,
    StorageError,
    StorageFull,
    UnusableFile,
)
from delvec_kernel import locations
from delvec_kernel.deletion_vectors.deletion_vector import Descriptor
from delvec_service.snapshots.log_reader import LogReader
from delvec_service.store.objects import ObjectStore
from delvec_storage import files as storage

COMMIT = f"_delta_log/{0:020}.json"
GIB = 1 << 30


@pytest.fixture
def objects(tmp_path):
    (tmp_path / "_delta_log").mkdir()
    return ObjectStore(locations.canonical(str(tmp_path)))


def put_fifo(path):
    os.mkfifo(path)


def put_socket(path):
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))


def put_link_to_fifo(path):
    os.mkfifo(path.with_name("fifo"))
    path.symlink_to("fifo")


def put_circle(path):
    path.symlink_to("other")
    path.with_name("other").symlink_to(path.name)


KINDS = {
    "fifo": put_fifo,
    "socket": put_socket,
    "directory": Path.mkdir,
    "link to a fifo": put_link_to_fifo,
    "circle of links": put_circle,
}


def in_time(call, seconds=20):
    """Return the error that a call raises; it must not block."""
    raised = []

    def run():
        try:
            call()
        except DelvecError as error:
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    assert not thread.is_alive(), "it waits"
    return raised[0] if raised else None


@pytest.mark.parametrize("kind", KINDS)
def test_only_regular_files_are_opened(objects, tmp_path, kind, monkeypatch):
    monkeypatch.chdir(tmp_path)
    KINDS[kind](Path(COMMIT))
    for use in (
        lambda: objects.get(COMMIT),
        lambda: objects.get_start(COMMIT, 10),
        lambda: objects.open(COMMIT),
        lambda: objects.head(COMMIT),
        lambda: list(objects.look_up("_delta_log", [f"{0:020}.json"])),
        lambda: objects.put_if_absent(COMMIT, b"x"),
    ):
        error = in_time(use)
        assert isinstance(error, UnusableFile)
        assert not error.retryable


def test_a_device_is_not_opened(objects, tmp_path):
    try:
        os.mknod(tmp_path / COMMIT, 0o20666, os.makedev(1, 5))  # /dev/zero is endless
    except PermissionError:
        pytest.skip("only root makes devices")
    assert isinstance(in_time(lambda: objects.get(COMMIT)), UnusableFile)
    link = tmp_path / "_delta_log" / f"{1:020}.json"
    link.symlink_to("/dev/zero")
    everywhere = ObjectStore(objects.location, is_allowed=lambda _: True)
    assert isinstance(in_time(lambda: everywhere.get(f"_delta_log/{1:020}.json")), UnusableFile)


@pytest.mark.parametrize("kind", KINDS)
def test_a_commit_that_is_not_a_regular_file_is_a_damaged_log(objects, tmp_path, kind, monkeypatch):
    monkeypatch.chdir(tmp_path)
    KINDS[kind](Path(COMMIT))
    reader = LogReader(objects, "people")
    error = in_time(lambda: reader.commit(0))
    assert isinstance(error, CorruptLog)
    assert error.details["file"] == f"{0:020}.json"


def test_a_commit_beyond_the_limit_is_refused_before_it_is_read(objects, tmp_path):
    with (tmp_path / COMMIT).open("wb") as file:
        file.truncate(100 * GIB)
    with pytest.raises(CorruptLog, match="DELVEC_MAX_COMMIT_BYTES"):
        LogReader(objects, "people").commit(0)
    small = ObjectStore(objects.location, max_commit_bytes=1024)
    with (tmp_path / COMMIT).open("wb") as file:
        file.write(b"{}" * 1024)
    with pytest.raises(UnusableFile, match="2048 bytes"):
        small.get(COMMIT)


def test_a_limit_holds_on_object_stores_too(memory_location):
    objects = ObjectStore(memory_location, max_commit_bytes=10)
    objects.put(COMMIT, b"x" * 11)
    with pytest.raises(UnusableFile, match="11 bytes"):
        objects.get(COMMIT)
    objects.put(COMMIT, b"x" * 10)
    assert objects.get(COMMIT) == b"x" * 10


def test_a_deletion_vector_of_absurd_size_is_refused_before_it_is_read(objects, tmp_path):
    size = 2**31 - 1
    with (tmp_path / "dv.bin").open("wb") as file:
        file.write(b"\x01" + size.to_bytes(4, "big"))
        file.truncate(8 * GIB)
    url = f"{objects.location}/dv.bin"
    descriptor = Descriptor("p", url, 1, size, 10)
    with pytest.raises(CorruptDeletionVector, match="bytes"):
        storage.read_deletion_vectors(objects.location, [("a", descriptor)], table="t", version=1)


CODES = {
    errno.ENOSPC: (StorageFull, 507, False),
    errno.EDQUOT: (StorageFull, 507, False),
    errno.EACCES: (StorageDenied, 502, False),
    errno.EPERM: (StorageDenied, 502, False),
    errno.EROFS: (StorageDenied, 502, False),
    errno.ENAMETOOLONG: (InvalidLocation, 400, False),
    errno.ELOOP: (UnusableFile, 422, False),
    errno.ENOTDIR: (UnusableFile, 422, False),
    errno.EISDIR: (UnusableFile, 422, False),
    errno.EIO: (StorageError, 502, True),
    errno.EMFILE: (StorageError, 502, True),
    errno.ENFILE: (StorageError, 502, True),
    errno.ESTALE: (StorageError, 502, True),
}


@pytest.mark.parametrize("code", CODES, ids=errno.errorcode.get)
def test_file_system_errors_are_typed(objects, monkeypatch, code):
    real = os.open

    def failing(path, flags, *args, **named):
        if flags & os.O_CREAT:
            raise OSError(code, os.strerror(code), path)
        return real(path, flags, *args, **named)

    monkeypatch.setattr(os, "open", failing)
    kind, status, retryable = CODES[code]
    for write in (objects.put_if_absent, objects.put):
        with pytest.raises(DelvecError, match=os.strerror(code)) as caught:
            write(COMMIT, b"x")
        assert type(caught.value) is kind
        assert (caught.value.status, caught.value.retryable) == (status, retryable)


def test_a_file_with_too_long_a_name_does_not_exist(objects):
    name = "x" * 300
    assert objects.head(name) is None
    assert objects.list_from(name) == []
    with pytest.raises(FileNotFoundError):
        objects.get(name)
    with pytest.raises(InvalidLocation, match="shorter"):
        objects.put(name, b"x")
    objects.delete(name)


def test_search_permission_on_a_directory_is_enough_to_read_a_file_in_it(objects, tmp_path):
    objects.put(COMMIT, b"x")
    (tmp_path / "_delta_log").chmod(0o111)
    try:
        assert objects.get(COMMIT) == b"x"
    finally:
        (tmp_path / "_delta_log").chmod(0o755)
