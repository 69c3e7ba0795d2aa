import os
import tracemalloc
import uuid
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path
from urllib.parse import quote

import obstore
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64

from delvec_errors import (
    CorruptDeletionVector,
    DeletionVectorCardinalityMismatch,
    DeletionVectorChecksumMismatch,
    DeletionVectorNotFound,
    DeletionVectorSizeMismatch,
    DeletionVectorTruncated,
    LocationNotAllowed,
    StorageError,
)
from delvec_kernel import locations
from delvec_kernel.deletion_vectors.deletion_vector import Descriptor, encode, frame, inline
from delvec_kernel.deletion_vectors.dv_packing import pack
from delvec_storage import files as storage
from delvec_storage.file_locations import locate

TABLE = pa.table({"id": list(range(10_000)), "name": [f"n{i}" for i in range(10_000)]})


def put_packed(location, items, **options):
    """Write deletion vectors as the service does and return the descriptors by data file path."""
    entries = {}
    for file in pack(items, **options):
        storage.write_file(location, file.path, file.content)
        entries.update(file.entries)
    return entries


def fetch(location, descriptors, **options):
    return storage.read_deletion_vectors(
        location, list(descriptors.items()), table="people", version=7, **options
    )


# --- deletion vectors -----------------------------------------------------------------------------------


def test_deletion_vectors_are_read_from_many_shared_files_and_the_log(location):
    items = [
        (f"part-{i}.parquet", BitMap64(range(i, 100_000, i + 2)) | BitMap64([2**33 + i])) for i in range(40)
    ]
    descriptors = put_packed(location, items, target_size=40_000, prefix_length=2)
    assert len({dv.path_or_inline_dv for dv in descriptors.values()}) > 3
    descriptors["inline.parquet"] = inline(BitMap64([5]))
    assert fetch(location, descriptors) == {**dict(items), "inline.parquet": BitMap64([5])}


def test_neighbours_in_one_file_are_fetched_with_one_request(memory_location, monkeypatch):
    items = [(f"part-{i}.parquet", BitMap64(range(0, 30_000, i + 3))) for i in range(30)]
    descriptors = put_packed(memory_location, items)
    requests = []
    get = obstore.get
    monkeypatch.setattr(obstore, "get", lambda *a, **k: (requests.append(a[1]), get(*a, **k))[1])
    assert fetch(memory_location, descriptors) == dict(items)
    assert len(requests) == 1


def test_distant_ranges_are_fetched_apart(location, monkeypatch):
    storage.write_file(location, "f", b"a" * 10 + bytes(3_000_000) + b"b" * 10)
    ranges = [(3_000_010, 3_000_020), (0, 5), (5, 10), (3_000_015, 4_000_000), (9_000_000, 9_000_001)]
    found = [bytes(part) for part in storage.read_ranges(location, "f", ranges)]
    assert found == [b"b" * 10, b"a" * 5, b"a" * 5, b"b" * 5, b""]


def test_fetching_no_vectors_reads_nothing(location):
    assert fetch(location, {}) == {}


@pytest.mark.parametrize("name", ["dv a.bin", "dv%20a.bin", "dv[1]#+=é.bin"])
def test_an_absolute_descriptor_inside_the_table_is_read(location, name):
    payload = encode(BitMap64([1, 2]))
    storage.write_file(location, f"sub/{quote(name)}", b"\x01" + frame(payload))
    descriptor = Descriptor("p", f"{location}/sub/{quote(name)}", 1, len(payload), 2)
    assert fetch(location, {"a.parquet": descriptor}) == {"a.parquet": BitMap64([1, 2])}


def test_an_absolute_descriptor_outside_the_table_needs_permission(location):
    payload = encode(BitMap64([1, 2]))
    shared = f"{location}-shared"
    storage.write_file(shared, "dv.bin", b"\x01" + frame(payload))
    descriptor = Descriptor("p", f"{shared}/dv.bin", 1, len(payload), 2)
    with pytest.raises(LocationNotAllowed, match="outside"):
        fetch(location, {"a.parquet": descriptor})
    found = fetch(location, {"a.parquet": descriptor}, is_allowed=lambda url: url.startswith(shared))
    assert found == {"a.parquet": BitMap64([1, 2])}


@pytest.mark.parametrize("path", ["ftp://host/dv.bin", "file://host/dv.bin", "file:///a/../dv.bin"])
def test_an_absolute_descriptor_that_is_no_url_is_corrupt(location, path):
    with pytest.raises(CorruptDeletionVector, match=r"part-0\.parquet"):
        fetch(location, {"part-0.parquet": Descriptor("p", path, 1, 10, 2)})


def test_a_descriptor_without_an_offset_is_read(location):
    payload = encode(BitMap64([1, 2]))
    identifier = uuid.uuid4()
    for content in (b"\x01" + frame(payload), frame(payload)):
        with_offset = next(
            iter(pack([("a", BitMap64([1, 2]))], new_uuid=lambda: identifier)[0].entries.values())
        )
        storage.write_file(location, with_offset.relative_path(), content)
        descriptor = Descriptor("u", with_offset.path_or_inline_dv, None, len(payload), 2)
        assert fetch(location, {"a.parquet": descriptor}) == {"a.parquet": BitMap64([1, 2])}


GOOD = b"\x01" + frame(encode(BitMap64([3, 4, 7])))


@pytest.mark.parametrize(
    ("content", "change", "error"),
    [
        (None, {}, DeletionVectorNotFound),
        (b"", {}, DeletionVectorTruncated),
        (GOOD[:1], {}, DeletionVectorTruncated),
        (GOOD[:-1], {}, DeletionVectorTruncated),
        (GOOD, {"offset": 2**31 - 1}, DeletionVectorTruncated),
        (GOOD, {"size_in_bytes": 2**31 - 1}, DeletionVectorSizeMismatch),
        (GOOD, {"size_in_bytes": 0}, DeletionVectorSizeMismatch),
        (GOOD[:-1] + b"\0", {}, DeletionVectorChecksumMismatch),
        (GOOD, {"cardinality": 4}, DeletionVectorCardinalityMismatch),
        (b"\x01" + frame(bytes(len(GOOD) - 9)), {}, CorruptDeletionVector),
        (GOOD, {"path_or_inline_dv": "é" * 20}, CorruptDeletionVector),
    ],
    ids=[
        "missing",
        "empty",
        "version only",
        "cut",
        "offset beyond the end",
        "size too large",
        "size zero",
        "checksum",
        "cardinality",
        "magic",
        "no uuid",
    ],
)
def test_each_defect_has_its_error_and_costs_no_more_than_the_file(location, content, change, error):
    [packed] = pack([("part-0.parquet", BitMap64([3, 4, 7]))])
    if content is not None:
        storage.write_file(location, packed.path, content)
    [good] = packed.entries.values()
    fields = {name: getattr(good, name) for name in Descriptor.__slots__}
    tracemalloc.start()
    try:
        with pytest.raises(error) as caught:
            fetch(location, {"part-0.parquet": Descriptor(**{**fields, **change})})
        assert tracemalloc.get_traced_memory()[1] < 100_000_000  # the S3 server runs in this process
    finally:
        tracemalloc.stop()
    assert type(caught.value) is error
    for part in ("people", "version 7", "part-0.parquet"):
        assert part in caught.value.message
    assert caught.value.details["file"] == "part-0.parquet"
    if "path_or_inline_dv" not in change:
        assert packed.path in caught.value.message


def test_a_descriptor_that_lies_about_its_size_does_not_read_a_whole_data_file(local_location):
    path = locations.local_path(local_location) / "data.parquet"
    with path.open("wb") as file:
        file.truncate(1 << 31)
    descriptor = Descriptor("p", f"{local_location}/data.parquet", 1, 2**31 - 20, 2)
    tracemalloc.start()
    try:
        with pytest.raises(DeletionVectorSizeMismatch):
            fetch(local_location, {"part-0.parquet": descriptor})
        assert tracemalloc.get_traced_memory()[1] < 100_000_000  # of 2 GiB; includes other threads
    finally:
        tracemalloc.stop()


def test_one_bad_file_among_many_fails_the_whole_read(location):
    items = [(f"part-{i}.parquet", BitMap64([i])) for i in range(20)]
    descriptors = put_packed(location, items, target_size=1)
    storage.write_file(location, descriptors["part-7.parquet"].relative_path(), b"\x01junk")
    with pytest.raises(CorruptDeletionVector, match=r"part-7\.parquet"):
        fetch(location, descriptors)


# --- files ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a b.parquet", "x=1/100%25+é[#].parquet"])
def test_parquet_is_written_and_read_in_place(location, name):
    path = quote(name)
    with storage.open_output(location, path) as file:
        pq.write_table(TABLE, file, row_group_size=1000)
    with storage.open_input(location, path) as source:
        assert pq.read_table(source, columns=["id"]).equals(TABLE.select(["id"]))
    assert storage.stat(location, path).size == len(storage.read(location, path))


@pytest.mark.parametrize("written", [b"x" * 100, b"x" * 30_000_000])
def test_a_write_that_fails_leaves_no_file(location, written):
    def engine():
        with storage.open_output(location, "data/part.parquet") as file:
            file.write(written)
            raise pa.ArrowInvalid("the engine failed")

    with pytest.raises(pa.ArrowInvalid):
        engine()
    assert storage.stat(location, "data/part.parquet") is None


def test_a_data_file_is_never_overwritten_on_local_disk(local_location):
    storage.write_file(local_location, "part.parquet", b"first")
    with pytest.raises(FileExistsError), storage.open_output(local_location, "part.parquet") as file:
        file.write(b"second")
    assert storage.read(local_location, "part.parquet") == b"first"


def test_a_large_file_is_streamed(location, tmp_path):
    source = tmp_path / "source"
    source.write_bytes(os.urandom(12_000_000))
    with source.open("rb") as file:
        storage.write_file(location, "copy", file, durable=True)
    assert storage.read(location, "copy") == source.read_bytes()
    storage.write_file(location, "copy", BytesIO(b"small"))
    assert storage.read(location, "copy") == b"small"


def test_durable_output_is_synced_with_its_directories(local_location, monkeypatch):
    synced = []
    fsync = os.fsync
    monkeypatch.setattr(
        os, "fsync", lambda fd: (synced.append(str(Path(f"/proc/self/fd/{fd}").readlink())), fsync(fd))[1]
    )
    with storage.open_output(local_location, "p=1/part.parquet") as file:
        file.write(b"x")
    root = str(locations.local_path(local_location))
    assert synced == [root, f"{root}/p=1/part.parquet", f"{root}/p=1"]


def test_reading_what_is_missing(location):
    with pytest.raises(FileNotFoundError):
        storage.read(location, "nothing")
    with pytest.raises(FileNotFoundError):
        storage.open_input(location, "nothing")
    with pytest.raises(FileNotFoundError):
        storage.read_ranges(location, "nothing", [(0, 1)])
    storage.write_file(location, "file", b"")
    assert storage.stat(location, "file/below") is None
    assert storage.read_ranges(location, "file", [(0, 1), (0, 0)]) == [b"", b""]


def test_a_link_out_of_the_allowed_roots_is_not_followed(local_location, tmp_path):
    (tmp_path / "secret").write_bytes(b"secret")
    inside = locations.local_path(local_location)
    (inside / "file").write_bytes(b"here")
    (inside / "out").symlink_to(tmp_path / "secret")
    (inside / "within").symlink_to(inside / "file")

    def allowed(url):
        return locations.local_path(url).resolve().is_relative_to(inside)

    with pytest.raises(LocationNotAllowed, match="symbolic link"):
        storage.read(local_location, "out", is_allowed=allowed)
    assert storage.read(local_location, "within", is_allowed=allowed) == b"here"
    assert storage.read(local_location, "out", is_allowed=bool) == b"secret"
    with pytest.raises(LocationNotAllowed, match="symbolic link"):
        storage.read(local_location, "out")
    assert storage.read(local_location, "within") == b"here"


# --- stores ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["memory", "s3"])
def test_a_location_has_one_store_for_all_threads(kind, request):
    location = request.getfixturevalue(f"{kind}_location")
    with ThreadPoolExecutor(8) as pool:
        stores = list(pool.map(storage.store_for, [location] * 8))
    assert all(store is stores[0] for store in stores)


def test_memory_locations_are_isolated(memory_location):
    storage.write_file(memory_location, "a", b"1")
    assert storage.stat(f"{memory_location}2", "a") is None
    assert bytes(obstore.get(storage.store_for(memory_location), "a").bytes()) == b"1"


def test_opening_a_store_creates_nothing(tmp_path):
    with pytest.raises(StorageError):
        storage.store_for(locations.canonical(str(tmp_path / "missing")))
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_scheme_is_a_storage_error():
    with pytest.raises(StorageError, match="ftp"):
        storage.store_for("ftp://host/t")


@pytest.mark.parametrize(
    "bucket", ["s3://bucket", "gs://bucket", "abfss://files@account.dfs.core.windows.net"]
)
def test_files_outside_a_table_share_the_store_of_their_bucket(bucket, monkeypatch):
    monkeypatch.setenv("GOOGLE_SKIP_SIGNATURE", "true")
    files = [
        locate(f"{bucket}/clone", f"{bucket}/table/p={number}/a%20b.parquet", is_allowed=lambda _: True)
        for number in range(2)
    ]

    assert [file.key for file in files] == ["table/p=0/a b.parquet", "table/p=1/a b.parquet"]
    assert files[0].remote is files[1].remote
