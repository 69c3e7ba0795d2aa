"""The check that each live row was read once, before sorted files replace the old ones."""

import numpy as np
import pyarrow as pa
import pytest
from pyroaring import BitMap64

from delvec_engines import compacted_files
from delvec_engines.compacted_files import ReadRows, check_rows
from delvec_engines.scan import Scan
from delvec_errors import CorruptTable
from delvec_kernel.deletion_vectors.deletion_vector import serialize_bitmap
from delvec_kernel.schema.types import StructType


@pytest.fixture
def scan():
    """Files of four and of three rows; row 2 of the first is deleted."""
    vector = {"storageType": "u", "pathOrInlineDv": "x", "offset": 1, "sizeInBytes": 40, "cardinality": 1}
    files = pa.table(
        {
            "path": ["a", "b"],
            "num_records": [4, 3],
            "deletion_vector": [vector, None],
            "deleted_rows": pa.array([serialize_bitmap(BitMap64([2])), None], pa.binary()),
        }
    )
    return Scan("id", "t", "file:///t", 1, StructType(()), (), {}, files, 2)


def read(*pairs):
    found = ReadRows()
    for file, row in pairs:
        found.add(np.array([file], np.int64), np.array([row], np.int64))
    return found.finish()


WHOLE = [(1, 0), (0, 3), (1, 2), (0, 0), (1, 1), (0, 1)]


def test_each_row_once(scan):
    check_rows(scan, *read(*WHOLE))


@pytest.mark.parametrize(
    "rows",
    [WHOLE[1:], [*WHOLE, (1, 0)], [*WHOLE, (0, 2)], [*WHOLE, (1, 3)], []],
    ids=["one is missing", "one comes twice", "one is deleted", "one is not there", "none"],
)
def test_anything_else_is_refused(scan, rows):
    with pytest.raises(CorruptTable):
        check_rows(scan, *read(*rows))


def test_without_statistics_what_was_deleted_is_still_known(scan):
    unknown = scan.files.set_column(1, "num_records", pa.nulls(2, pa.int64()))
    scan = Scan("id", "t", "file:///t", 1, StructType(()), (), {}, unknown, 2)
    check_rows(scan, *read(*WHOLE))
    with pytest.raises(CorruptTable):
        check_rows(scan, *read(*[pair for pair in WHOLE if pair != (0, 1)]))


def test_many_batches_are_folded(scan, monkeypatch):
    monkeypatch.setattr(compacted_files, "_FOLDED_ROWS", 2)
    check_rows(scan, *read(*WHOLE))
    with pytest.raises(CorruptTable):
        check_rows(scan, *read(*WHOLE, (1, 0)))
