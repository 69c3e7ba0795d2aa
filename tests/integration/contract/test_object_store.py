import errno
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote

import pytest

from delvec_errors import AtomicCreateUnsupported, LocationNotAllowed, StorageError
from delvec_kernel import locations
from delvec_service.store.objects import ObjectStore
from delvec_storage import file_locations as _file_locations
from delvec_storage import local_files as _local_files

ODD_NAMES = [
    "a b.bin",
    "a%20b.bin",
    "100%.bin",
    "a+b=c.bin",
    "a[b].bin",
    "a#b?c.bin",
    "é 漢字.bin",
    "a:b&c.bin",
]


def commit(version):
    return f"_delta_log/{version:020}.json"


def names(directory):
    return [entry.name for entry in directory.iterdir()]


@pytest.fixture
def objects(location):
    return ObjectStore(location)


@pytest.fixture
def local(local_location):
    return ObjectStore(local_location), locations.local_path(local_location)


def test_a_put_object_has_its_size_and_time(objects):
    objects.put("ab/deletion_vector_1.bin", b"one")
    objects.put("ab/deletion_vector_1.bin", b"three")
    assert objects.get("ab/deletion_vector_1.bin") == b"three"
    meta = objects.head("ab/deletion_vector_1.bin")
    assert (meta.name, meta.size) == ("deletion_vector_1.bin", 5)
    assert meta.last_modified_ms > 1_600_000_000_000


def test_etags_distinguish_content_of_equal_size(objects):
    tags = []
    for content in (b"one", b"two"):
        objects.put(commit(0), content)
        (listed,) = objects.list_from("_delta_log")
        assert listed.e_tag == objects.head(commit(0)).e_tag
        tags.append(listed.e_tag)
    assert tags == [None, None] or len({None, *tags}) == 3


def test_missing_objects_differ_from_failures(objects):
    assert objects.head("nothing") is None
    assert objects.head("no/directory/nothing") is None
    with pytest.raises(FileNotFoundError):
        objects.get("nothing")


def test_put_if_absent_creates_a_file_once(objects):
    assert objects.put_if_absent(commit(0), b"first")
    assert not objects.put_if_absent(commit(0), b"second")
    assert objects.get(commit(0)) == b"first"


def test_a_writer_whose_answer_was_lost_recognises_its_own_commit(objects):
    assert objects.put_if_absent(commit(0), b"mine")
    assert objects.put_if_absent(commit(0), b"mine")


def test_of_eight_racing_writers_exactly_one_wins_each_version(objects):
    writers, versions = 8, 6
    start = threading.Barrier(writers)

    def race(writer):
        won = []
        for version in range(versions):
            start.wait()
            if objects.put_if_absent(commit(version), f"writer {writer}".encode()):
                won.append(version)
        return won

    with ThreadPoolExecutor(writers) as pool:
        wins = list(pool.map(race, range(writers)))
    assert sorted(version for won in wins for version in won) == list(range(versions))
    for writer, won in enumerate(wins):
        assert all(objects.get(commit(version)) == f"writer {writer}".encode() for version in won)


RACER = """
import sys
from delvec_service.store.objects import ObjectStore
objects = ObjectStore(sys.argv[1])
sys.stdin.readline()
won = [v for v in range(200) if objects.put_if_absent(f"_delta_log/{v:020}.json", sys.argv[2].encode())]
print(*won)
"""


def test_of_racing_processes_exactly_one_wins_each_version(local_location):
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", RACER, local_location, str(n)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for n in range(3)
    ]
    for racer in racers:
        racer.stdin.write("go\n")
        racer.stdin.flush()
    won = [[int(v) for v in racer.communicate(timeout=120)[0].split()] for racer in racers]
    assert sorted(v for versions in won for v in versions) == list(range(200))
    objects = ObjectStore(local_location)
    for n, versions in enumerate(won):
        assert all(objects.get(commit(v)) == str(n).encode() for v in versions)


def test_a_listing_starts_after_a_name_and_is_sorted(objects):
    for version in (3, 0, 2, 10, 1):
        objects.put(commit(version), b"x" * (version + 1))
    objects.put("_delta_log/00000000000000000002.checkpoint.parquet", b"c")
    objects.put("_delta_log/_last_checkpoint", b"{}")
    objects.put("_delta_log/.00000000000000000004.json.tmp", b"")
    objects.put("_delta_log/_sidecars/1.parquet", b"s")
    objects.put("_delta_log/00000000000000000009/nested.json", b"n")
    objects.put("other/00000000000000000011.json", b"o")
    listed = objects.list_from("_delta_log", f"{1:020}.json")
    assert [meta.name for meta in listed] == [
        f"{2:020}.checkpoint.parquet",
        f"{2:020}.json",
        f"{3:020}.json",
        f"{10:020}.json",
    ]
    assert listed[-1].size == 11
    assert listed[-1].last_modified_ms > 1_600_000_000_000
    assert [m.name for m in objects.list_from("_delta_log/")][:2] == [f"{0:020}.json", f"{1:020}.json"]


@pytest.mark.full("makes thousands of objects")
def test_a_listing_spans_pages(s3_location):
    objects = ObjectStore(s3_location)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda v: objects.put(commit(v), b""), range(1100)))
    assert [m.name for m in objects.list_from("_delta_log", f"{49:020}.json")] == [
        f"{v:020}.json" for v in range(50, 1100)
    ]


def test_a_missing_directory_lists_as_empty(objects):
    assert objects.list_from("_delta_log") == []


def test_a_path_below_a_file_does_not_exist(local):
    objects, folder = local
    folder.mkdir(exist_ok=True)
    (folder / "_delta_log").write_bytes(b"")
    assert objects.list_from("_delta_log") == []
    assert ObjectStore(f"{objects.location}/_delta_log").list_from("_delta_log") == []
    with pytest.raises(StorageError, match="Not a directory"):
        objects.put_if_absent(commit(0), b"")
    with pytest.raises(StorageError, match="Not a directory"):
        objects.put("_delta_log/a.bin", b"")


@pytest.mark.parametrize("name", ODD_NAMES)
def test_names_that_need_encoding_round_trip(objects, location, name):
    path = f"{quote('dir é %41')}/{quote(name)}"
    objects.put(path, name.encode())
    assert objects.get(path) == name.encode()
    assert objects.head(path).name == name
    assert [meta.name for meta in objects.list_from(quote("dir é %41"))] == [name]
    root = locations.local_path(location)
    if root:
        assert (root / "dir é %41" / name).read_bytes() == name.encode()


@pytest.mark.parametrize("path", ["../outside", "a/../../outside", "a/%2E%2E/%2e%2e/outside", "a%00b"])
def test_a_path_that_leaves_the_table_is_refused(objects, path):
    for use in (
        objects.get,
        objects.head,
        lambda p: objects.put(p, b""),
        lambda p: objects.put_if_absent(p, b""),
    ):
        with pytest.raises(LocationNotAllowed):
            use(path)


def test_an_absolute_path_outside_the_table_needs_permission(local_location, tmp_path):
    (tmp_path / "shared.bin").write_bytes(b"shared")
    url = locations.canonical(str(tmp_path / "shared.bin"))
    with pytest.raises(LocationNotAllowed, match="outside"):
        ObjectStore(local_location).get(url)
    asked = []
    objects = ObjectStore(local_location, is_allowed=lambda candidate: asked.append(candidate) or True)
    assert objects.get(url) == b"shared"
    assert asked == [url]


# --- local disk: durability -----------------------------------------------------------------------------


def open_name(descriptor):
    return Path(f"/proc/self/fd/{descriptor}").readlink().name


@pytest.fixture
def calls(monkeypatch):
    """Record the order in which files are synced, linked and renamed."""
    recorded = []
    fsync, link, replace = os.fsync, os.link, os.replace

    monkeypatch.setattr(os, "fsync", lambda fd: (recorded.append(("sync", open_name(fd))), fsync(fd))[1])
    monkeypatch.setattr(os, "link", lambda a, b, **at: (recorded.append(("link", b)), link(a, b, **at))[1])
    monkeypatch.setattr(
        os, "replace", lambda a, b, **at: (recorded.append(("rename", b)), replace(a, b, **at))[1]
    )
    return recorded


def test_a_commit_is_on_disk_before_it_is_visible_and_its_name_before_it_is_acknowledged(local, calls):
    objects, root = local
    objects.put_if_absent(commit(0), b"x")
    assert calls[0] == ("sync", root.name)  # the new _delta_log directory's entry
    kind, temporary = calls[1]
    assert kind == "sync"
    assert temporary.startswith(".")
    assert calls[2:] == [("link", f"{0:020}.json"), ("sync", "_delta_log")]
    assert names(root / "_delta_log") == [f"{0:020}.json"]


def test_a_deletion_vector_file_and_its_new_directories_are_on_disk_before_put_returns(local, calls):
    objects, root = local
    objects.put("ab/cd/dv.bin", b"x")
    synced = [name for kind, name in calls if kind == "sync"]
    assert synced[:2] == [root.name, "ab"]
    assert synced[-1] == "cd"
    assert names(root / "ab" / "cd") == ["dv.bin"]


@pytest.mark.parametrize("code", [errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP])
def test_a_file_system_without_hard_links_is_refused(local, monkeypatch, code):
    objects, root = local

    def link(*_, **__):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "link", link)
    with pytest.raises(AtomicCreateUnsupported, match="hard links"):
        objects.put_if_absent(commit(0), b"x")
    assert names(root / "_delta_log") == []


def test_a_full_disk_leaves_nothing(local, monkeypatch):
    objects, root = local
    objects.put(commit(0), b"0")

    def fsync(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", fsync)
    for write in (objects.put_if_absent, objects.put):
        with pytest.raises(StorageError, match="No space left"):
            write(commit(1), b"x")
    assert names(root / "_delta_log") == [f"{0:020}.json"]


def test_an_entry_whose_name_was_not_synced_is_synced_before_it_is_acknowledged(local, monkeypatch):
    objects, _ = local
    real, synced = _local_files.sync_directory, []

    def failing(directory):
        raise OSError(errno.EIO, "Input/output error")

    objects.put_if_absent(commit(0), b"first")
    monkeypatch.setattr(_local_files, "sync_directory", failing)
    with pytest.raises(StorageError):
        objects.put_if_absent(commit(1), b"mine")
    with pytest.raises(StorageError):
        objects.put_if_absent(commit(1), b"mine")

    monkeypatch.setattr(_local_files, "sync_directory", lambda fd: (synced.append(open_name(fd)), real(fd)))
    assert objects.put_if_absent(commit(1), b"mine")
    assert synced == ["_delta_log"]


def test_nfs_repeating_a_link_that_succeeded_is_a_success(local, monkeypatch):
    objects, _ = local
    link = os.link

    def twice(source, target, **at):
        link(source, target, **at)
        link(source, target, **at)

    monkeypatch.setattr(os, "link", twice)
    assert objects.put_if_absent(commit(0), b"x")


CRASH = """
import os, sys
from delvec_service.store.objects import ObjectStore
objects = ObjectStore(sys.argv[1])
if sys.argv[2] == "before":
    os.link = lambda *_, **__: os._exit(9)
else:
    os.unlink = lambda *_, **__: os._exit(9)
objects.put_if_absent("_delta_log/00000000000000000001.json", b"one")
"""


@pytest.mark.parametrize(("moment", "visible"), [("before", [0]), ("after", [0, 1])])
def test_a_crash_leaves_no_entry_or_a_whole_one_and_the_version_can_be_written(local, moment, visible):
    objects, _ = local
    objects.put_if_absent(commit(0), b"zero")
    done = subprocess.run([sys.executable, "-c", CRASH, objects.location, moment], check=False, timeout=60)
    assert done.returncode == 9
    assert [m.name for m in objects.list_from("_delta_log")] == [f"{v:020}.json" for v in visible]
    assert objects.put_if_absent(commit(1), b"next") == (visible == [0])
    assert objects.get(commit(1)) == (b"next" if visible == [0] else b"one")


def test_a_bucket_that_does_not_exist_is_a_storage_error_that_names_it(s3_location):
    objects = ObjectStore("s3://no-such-bucket-here/t")
    for use in (
        objects.list_from,
        lambda path: objects.put(path, b""),
        lambda path: objects.put_if_absent(path, b""),
        objects.delete,
    ):
        with pytest.raises(StorageError, match="no-such-bucket-here") as caught:
            use("_delta_log/x")
        assert "\n" not in caught.value.message
        assert "xml" not in caught.value.message


def test_an_endpoint_that_does_not_answer_is_a_storage_error(s3_location, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setattr(_file_locations, "_RETRIES", {"max_retries": 0})
    objects = ObjectStore(s3_location)
    for use in (objects.get, objects.head, objects.list_from, lambda path: objects.put_if_absent(path, b"")):
        with pytest.raises(StorageError):
            use("x")
