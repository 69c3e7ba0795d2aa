import pytest

from delvec_kernel import locations
from delvec_service.store.objects import ObjectStore
from delvec_storage import files
from delvec_storage import staged_files as _staged_files

PATH = "_delta_log/00000000000000000010.checkpoint.parquet"


@pytest.fixture
def objects(location):
    return ObjectStore(location)


def write(objects, content, path=PATH):
    with objects.stage(path) as staged:
        staged.file.write(content)
        return staged.publish()


def test_a_draft_appears_whole_when_it_is_published(objects):
    with objects.stage(PATH) as staged:
        staged.file.write(b"part of a checkpoint")
        assert objects.head(PATH) is None
        assert objects.list_from("_delta_log") == []
        assert staged.publish()
    assert objects.get(PATH) == b"part of a checkpoint"
    assert [meta.name for meta in objects.list_from("_delta_log")] == [PATH.partition("/")[2]]


def test_the_first_published_draft_of_a_name_wins(objects):
    assert write(objects, b"one")
    assert not write(objects, b"two")
    assert objects.get(PATH) == b"one"


def test_an_unpublished_draft_leaves_nothing(objects, location):
    with objects.stage(PATH) as staged:
        staged.file.write(b"one")
    assert staged.file.closed
    assert objects.head(PATH) is None
    directory = locations.local_path(location)
    assert directory is None or list((directory / "_delta_log").iterdir()) == []


def test_a_large_draft_is_published_in_parts(objects, monkeypatch):
    monkeypatch.setattr(_staged_files, "_ONE_REQUEST", 1000)
    content = bytes(range(256)) * 40_000
    assert write(objects, content)
    assert not write(objects, b"x" * 2000)
    assert objects.get(PATH) == content


def test_deleting_a_file_twice_is_allowed(objects):
    objects.put("_delta_log/_sidecars/a.parquet", b"x")
    objects.delete("_delta_log/_sidecars/a.parquet")
    objects.delete("_delta_log/_sidecars/a.parquet")
    assert objects.head("_delta_log/_sidecars/a.parquet") is None


def test_ranges_of_a_file_can_be_read(objects):
    objects.put("a.bin", b"0123456789")
    with objects.open("a.bin") as file:
        file.seek(4)
        assert file.read(3) == b"456"


def test_hadoops_checksum_file_is_deleted_with_its_file(tmp_path):
    objects = ObjectStore(locations.canonical(str(tmp_path)))
    for number, change in enumerate((objects.delete, lambda path: objects.put(path, b"new"))):
        (tmp_path / f"{number}").write_bytes(b"old")
        (tmp_path / f".{number}.crc").write_bytes(b"of old")
        change(f"{number}")
        assert not (tmp_path / f".{number}.crc").exists()


def test_deleting_a_file_that_the_store_reports_missing_succeeds(s3_location, s3_server):
    """Azure and GCS report it; S3 does not."""
    missing = "404 Not Found", [("Content-Type", "application/xml")], b"<Error><Code>NoSuchKey</Code></Error>"
    s3_server.fault = lambda request: missing if request.kind in ("DELETE", "POST") else None
    try:
        files.delete_file(s3_location, "_delta_log/a.parquet")
    finally:
        s3_server.fault = None
