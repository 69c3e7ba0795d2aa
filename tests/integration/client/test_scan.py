import pyarrow as pa
import pytest
from pyroaring import BitMap64

from delvec_engines.scan import Scan
from delvec_errors import CorruptDeletionVector
from delvec_kernel.deletion_vectors.deletion_vector import inline, serialize_bitmap
from delvec_kernel.schema.types import StructType
from delvec_service.scans.plan import PLAN_SCHEMA


def file(path, **values):
    defaults = {
        "partition_values": [],
        "size": 1,
        "modification_time": 2,
        "num_records": 10,
        "matches_all": False,
    }
    return {**dict.fromkeys(PLAN_SCHEMA.names), **defaults, "path": path, **values}


def scan(*files):
    return Scan(
        table_id="1",
        name="people",
        location="file:///data/people",
        version=3,
        schema=StructType.from_json({"type": "struct", "fields": []}),
        partition_columns=["country"],
        configuration={},
        files=pa.Table.from_pylist(list(files), PLAN_SCHEMA),
        num_files_total=9,
    )


@pytest.fixture
def rows():
    return BitMap64([1, 5, 2**33])


def test_files_are_values(rows):
    descriptor = inline(rows)
    first, second = scan(
        file("a.parquet", partition_values=[("country", None)], matches_all=True),
        file("b.parquet", deletion_vector=descriptor.to_json(), num_records=None),
    )
    assert dict(first.partition_values) == {"country": None}
    assert (first.matches_all, first.descriptor, first.num_records) == (True, None, 10)
    assert (second.descriptor, second.num_records) == (descriptor, None)


def test_filter_keeps_the_version_and_the_table():
    both = scan(file("a.parquet", matches_all=True), file("b.parquet"))
    kept = both.filter(both.files["matches_all"])
    assert [entry.path for entry in kept] == ["a.parquet"]
    assert (kept.version, kept.name, kept.num_files_total, len(kept), len(both)) == (3, "people", 9, 1, 2)


def test_deletion_vectors_come_from_the_plan_or_from_the_descriptor(rows):
    descriptor = inline(rows).to_json()
    found = scan(
        file("none.parquet"),
        file(
            "sent.parquet",
            deletion_vector=descriptor,
            deleted_rows=serialize_bitmap(rows),
            num_records=2**33 + 1,
        ),
        file("inline.parquet", deletion_vector=descriptor, num_records=None),
    )
    assert found.has_deletion_vectors
    assert dict(found.deletion_vectors) == {"sent.parquet": rows, "inline.parquet": rows}


@pytest.mark.parametrize("is_sent", [True, False])
def test_rows_that_a_file_lacks_are_refused(rows, is_sent):
    sent = {"deleted_rows": serialize_bitmap(rows)} if is_sent else {}
    found = scan(file("a.parquet", deletion_vector=inline(rows).to_json(), **sent))
    with pytest.raises(CorruptDeletionVector, match=f"marks row {2**33}, but the file has 10 rows") as caught:
        _ = found.deletion_vectors
    assert caught.value.details == {"table": "people", "version": 3, "file": "a.parquet"}


def test_scan_without_files_has_no_deletion_vectors():
    assert not scan().has_deletion_vectors
    assert dict(scan().deletion_vectors) == {}
    assert list(scan()) == []
