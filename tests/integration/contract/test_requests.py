"""How many requests a plan and a scan send to object storage, counted by an S3 server.

docs/deletion-vectors.md, "Requests", promises these numbers.
"""

from collections import Counter
from contextlib import contextmanager
from urllib.parse import unquote

import pyarrow as pa
import pytest
from pyroaring import BitMap64

import delvec
from delvec_kernel.deletion_vectors.deletion_vector import Descriptor, encode, frame
from delvec_kernel.deletion_vectors.dv_packing import pack
from delvec_storage import files as storage

SCHEMA = pa.schema([("id", pa.int64())])


@pytest.fixture
def lake(tmp_path, monkeypatch):
    for name in ("DELVEC_URL", "DELVEC_TOKEN", "DELVEC_ROOTS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DELVEC_DATABASE_URL", f"sqlite:///{tmp_path / 'state.db'}")
    # A commit's background work would add to the requests counted here.
    monkeypatch.setenv("DELVEC_LOG_MAINTENANCE", "false")
    monkeypatch.setenv("DELVEC_COMMIT_WATCH_SECONDS", "0")
    with delvec.connect() as connection:
        yield connection


def filled(lake, location, files, rows):
    """Create a table with this many files of this many rows each."""
    table = lake.create_table(location, SCHEMA)
    for number in range(files):
        table.append(pa.table({"id": range(number * rows, (number + 1) * rows)}, SCHEMA))
    return table


@contextmanager
def counted(server):
    """Yield a counter of (file kind, request kind), filled when the block ends."""
    server.requests.clear()
    counter = Counter()
    yield counter
    counter.update((_kind_of_file(request.key), request.kind) for request in server.requests)


def _kind_of_file(key):
    if "/_delta_log/" in key:
        return "log"
    return "vector" if key.endswith(".bin") else "data"


def test_a_scan_costs_one_request_for_all_small_vectors_that_share_a_file(lake, s3_location, s3_server):
    table = filled(lake, s3_location, files=3, rows=20_000)
    assert table.delete("id % 3 = 0")["numDeletedRows"] == 20_000
    table.to_arrow()  # so that the plan below finds nothing new in the log
    with counted(s3_server) as requests:
        assert table.to_arrow().num_rows == 40_000
    assert requests == {("log", "LIST"): 1, ("vector", "GET"): 1, ("data", "GET"): 6}


def test_a_first_scan_requests_the_footer_of_a_file_once(lake, s3_location, s3_server):
    """By its schema it is decided how DuckDB reads the file."""
    table = filled(lake, s3_location, files=3, rows=20_000)
    with counted(s3_server) as requests:
        assert table.to_arrow().num_rows == 60_000
    assert requests[("data", "GET")] == 6


def test_a_scan_costs_one_request_for_all_large_vectors_that_share_a_file(lake, s3_location, s3_server):
    table = filled(lake, s3_location, files=2, rows=600_000)
    assert table.delete("id % 3 = 0")["numDeletedRows"] == 400_000
    table.to_arrow()
    with counted(s3_server) as requests:
        assert table.to_arrow().num_rows == 800_000
    assert requests[("vector", "GET")] == 1
    assert requests[("log", "LIST")] == 1
    assert sum(count for (file, _), count in requests.items() if file != "data") == 2


def test_a_scan_costs_one_more_request_per_data_file_with_a_separate_vector_file(
    lake, s3_location, s3_server
):
    table = filled(lake, s3_location, files=3, rows=1000)
    for number in range(3):
        table.delete(f"id = {number * 1000}")
    table.to_arrow()
    with counted(s3_server) as requests:
        assert table.to_arrow().num_rows == 2997
    assert requests == {("log", "LIST"): 1, ("vector", "GET"): 3, ("data", "GET"): 6}


def test_a_scan_that_skips_a_file_does_not_read_its_vector(lake, s3_location, s3_server):
    table = filled(lake, s3_location, files=3, rows=1000)
    for number in range(3):
        table.delete(f"id = {number * 1000}")
    table.to_arrow()
    with counted(s3_server) as requests:
        assert table.to_arrow(predicate="id BETWEEN 1000 AND 1009").num_rows == 9
    assert requests[("vector", "GET")] == 1
    assert requests[("data", "GET")] <= 2


def test_the_first_plan_reads_each_log_file_once(lake, s3_location, s3_server, tmp_path):
    filled(lake, s3_location, files=4, rows=10)
    with (
        delvec.connect(database_url=f"sqlite:///{tmp_path / 'empty.db'}") as fresh,
        counted(s3_server) as requests,
    ):
        assert fresh.table(s3_location).count() == 40
    hint, commits, checksum = 1, 5, 1
    assert commits <= requests[("log", "GET")] <= hint + commits + checksum
    assert requests[("log", "LIST")] == 4  # to look for tables here and above, to register it, and to plan


def test_a_plan_after_a_foreign_commit_reads_only_that_commit(lake, s3_location, s3_server):
    table = filled(lake, s3_location, files=2, rows=10)
    table.to_arrow()
    with delvec.connect() as other:
        other.table(s3_location).append(pa.table({"id": [100]}, SCHEMA))
    with counted(s3_server) as requests:
        assert table.to_arrow().num_rows == 21
    # If the other service has saved its snapshot in their shared database, nothing needs to be read.
    assert requests[("log", "GET")] <= 2  # the commit and its checksum
    assert requests[("log", "LIST")] == 1


def test_the_place_of_a_table_costs_one_listing_for_each_folder_above_it(lake, s3_location, s3_server):
    s3_server.requests.clear()
    table = lake.create_table(s3_location, "id long, p string", partition_by=["p"])
    own = unquote(s3_location.removeprefix("s3://lake/"))
    listed = Counter(request.key for request in s3_server.requests if request.kind == "LIST")
    around = ["_delta_log/", f"{own.partition('/')[0]}/_delta_log/", f"{own}/"]
    assert {key: listed[key] for key in around} == dict.fromkeys(around, 1)
    assert set(listed) - set(around) == {f"{own}/_delta_log/"}  # whether there is a table already

    # Files in folders of their own cost a listing each, others none.
    s3_server.requests.clear()
    table.append([{"id": 1, "p": "a"}, {"id": 2, "p": "b"}])
    listed = Counter(request.key for request in s3_server.requests if request.kind == "LIST")
    folders = {f"{own}/p={value}/_delta_log/": 1 for value in "ab"}
    assert {key: count for key, count in listed.items() if key != f"{own}/_delta_log/"} == folders
    flat = filled(lake, f"{s3_location}-flat", files=1, rows=1)
    s3_server.requests.clear()
    flat.append(pa.table({"id": [2]}, SCHEMA))
    assert {request.key for request in s3_server.requests if request.kind == "LIST"} <= {
        f"{own}-flat/_delta_log/"
    }


# --- vectors that share a file --------------------------------------------------------------------------


def shared_file(location, gaps):
    """Write a file of four vectors with ``gaps`` other bytes between them; return the descriptors."""
    [packed] = pack([("x", BitMap64([1]))])
    text = packed.entries["x"].path_or_inline_dv
    bitmaps = [BitMap64([number, 2**33 + number]) for number in range(4)]
    content, descriptors = bytearray(b"\x01"), {}
    for number, (bitmap, gap) in enumerate(zip(bitmaps, [0, *gaps], strict=True)):
        content += bytes(gap)
        payload = encode(bitmap)
        descriptors[f"part-{number}.parquet"] = Descriptor("u", text, len(content), len(payload), 2)
        content += frame(payload)
    storage.write_file(location, packed.path, bytes(content))
    return descriptors, dict(zip(descriptors, bitmaps, strict=True))


@pytest.mark.parametrize(
    ("gaps", "expected"),
    [
        ([0, 0, 0], 1),
        ([1_000_000, 1_000_000, 1_000_000], 1),
        ([10, 1_500_000, 10], 2),
        ([1_500_000, 1_500_000, 1_500_000], 4),
    ],
)
def test_vectors_less_than_1_mib_apart_share_a_request(s3_location, s3_server, gaps, expected):
    descriptors, bitmaps = shared_file(s3_location, gaps)
    with counted(s3_server) as requests:
        found = storage.read_deletion_vectors(s3_location, list(descriptors.items()), table="t", version=1)
    assert found == bitmaps
    assert requests == {("vector", "GET"): expected}
    # Never the whole file: bytes between distant vectors are not read.
    fetched = sum(_length(request.range) for request in s3_server.requests)
    assert fetched <= 4 * 100 + sum(gap for gap in gaps if gap < 1_048_576)


def _length(header):
    start, end = header.removeprefix("bytes=").split("-")
    return int(end) - int(start) + 1


def test_one_vector_of_a_large_shared_file_costs_only_its_own_bytes(s3_location, s3_server):
    descriptors, bitmaps = shared_file(s3_location, [2_000_000, 100_000, 100_000])
    path = "part-2.parquet"
    with counted(s3_server) as requests:
        found = storage.read_deletion_vectors(s3_location, [(path, descriptors[path])], table="t", version=1)
    assert found == {path: bitmaps[path]}
    assert requests == {("vector", "GET"): 1}
    [request] = s3_server.requests
    assert _length(request.range) == descriptors[path].size_in_bytes + 8


def test_inline_vectors_cost_nothing_and_absolute_paths_as_much_as_relative_ones(s3_location, s3_server):
    descriptors, bitmaps = shared_file(s3_location, [0, 0, 0])
    first = descriptors["part-0.parquet"]
    absolute = Descriptor("p", first.absolute_path(s3_location), first.offset, first.size_in_bytes, 2)
    wanted = [("absolute", absolute), *descriptors.items()]
    with counted(s3_server) as requests:
        found = storage.read_deletion_vectors(s3_location, wanted, table="t", version=1)
    assert found == {**bitmaps, "absolute": bitmaps["part-0.parquet"]}
    assert requests == {("vector", "GET"): 1}
