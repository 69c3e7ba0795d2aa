"""Deletion vectors in every storage type and layout of the protocol, on each engine."""

import struct
import uuid
import zlib
from urllib.parse import quote

import pyarrow as pa
import pytest
from pyroaring import BitMap, BitMap64
from tests.integration.engines.conftest import DataFile

import delvec
from delvec_kernel import locations
from delvec_kernel.deletion_vectors import z85

pytestmark = pytest.mark.full_on_spark("the same on DuckDB in the gate; there on Spark are the main cases")

IDS = pa.table({"id": range(10)})
UUID = uuid.UUID(int=0x123456789ABCDEF)


def portable(rows):
    return struct.pack("<I", 1681511377) + BitMap64(rows).serialize()


def native(rows):
    """The older layout: one 32-bit bitmap per 2^32 rows, each after its length."""
    buckets = [
        BitMap([row & 0xFFFFFFFF for row in rows if row >> 32 == key]).serialize()
        for key in range(max((row >> 32 for row in rows), default=-1) + 1)
    ]
    framed = b"".join(struct.pack("<I", len(bucket)) + bucket for bucket in buckets)
    return struct.pack("<II", 1681511376, len(buckets)) + framed


def framed(payload):
    return struct.pack(">I", len(payload)) + payload + struct.pack(">I", zlib.crc32(payload))


def inline(payload, count):
    padded = payload + b"\0" * (-len(payload) % 4)
    return {
        "storageType": "i",
        "pathOrInlineDv": z85.encode(padded),
        "sizeInBytes": len(payload),
        "cardinality": count,
    }


@pytest.fixture
def stored(tmp_path):
    """``stored(kind, payloads, counts, prefix)`` writes a file of deletion vectors, and returns their descriptors."""

    def write(kind, payloads, counts, prefix=""):
        name = uuid.UUID(int=UUID.int + len(list(tmp_path.rglob("deletion_vector_*"))))
        folder = tmp_path / "table" / ("vectors é" if kind == "p" else "") / prefix
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"deletion_vector_{name}.bin"
        content, found = b"\x01", []
        where = f"file://{quote(str(path))}" if kind == "p" else prefix + z85.encode(name.bytes)
        for payload, count in zip(payloads, counts, strict=True):
            found.append(
                {
                    "storageType": kind,
                    "pathOrInlineDv": where,
                    "offset": len(content),
                    "sizeInBytes": len(payload),
                    "cardinality": count,
                }
            )
            content += framed(payload)
        path.write_bytes(content)
        return found

    return write


FAR = [2, 2**32 + 1, 2**33 + 7]
"""The last two are beyond the end of every file here, which bitmaps may contain."""


def test_every_kind_of_descriptor_and_both_layouts(write_table, data_file, read, lake, engine, stored):
    masks = {
        "none": None,
        "inline": ({1, 3}, inline(portable([1, 3]), 2)),
        "inline, older layout": ({0, 9}, inline(native([0, 9]), 2)),
        "inline, empty": (set(), inline(portable([]), 0)),
        "all rows": (set(range(10)), inline(portable(range(10)), 10)),
        "far rows": ({2}, inline(portable(FAR), 3)),
        "far rows, older layout": ({2}, inline(native(FAR), 3)),
    }
    first, second, third = stored("u", [portable([4]), native([5, 6]), portable(range(9))], [1, 2, 9])
    masks |= {"file": ({4}, first), "same file": ({5, 6}, second), "dense": (set(range(9)), third)}
    (prefixed,) = stored("u", [portable([7])], [1], prefix="ab")
    (absolute,) = stored("p", [native([8])], [1])
    masks |= {"prefix": ({7}, prefixed), "absolute": ({8}, absolute)}
    files, wanted = [], []
    for number, mask in enumerate(masks.values()):
        rows = pa.table({"id": [10 * number + row for row in range(10)]})
        deleted, descriptor = mask or (set(), None)
        # With statistics, rows beyond the end of a file are refused.
        far = descriptor and descriptor["cardinality"] == len(FAR)
        files.append(data_file(rows, deleted=descriptor, stats=None if far or not number % 2 else {}))
        wanted += [10 * number + row for row in range(10) if row not in deleted]
    folder = write_table("table", IDS.schema, files)

    assert sorted(read(folder)["id"].to_pylist()) == wanted
    assert lake.table(str(folder), engine=engine).count("id >= 0") == len(wanted)
    assert sorted(read(folder, ["id"], "id % 10 = 4")["id"].to_pylist()) == [n for n in wanted if n % 10 == 4]


@pytest.mark.parametrize("kind", ["inline", "file", "large file"])
def test_a_vector_that_marks_rows_which_its_file_lacks_is_refused(
    write_table, data_file, lake, engine, stored, kind
):
    """It may be another file's; and the rows that the log counts would not be those that are read."""
    # The last is not sent with a plan.
    rows = [2, *range(10**6, 10**6 + 700_000, 3)] if kind == "large file" else [2, 12]
    if kind == "inline":
        descriptor = inline(portable(rows), len(rows))
    else:
        (descriptor,) = stored("u", [portable(rows)], [len(rows)])
    files = [
        data_file(IDS, name="bad.parquet", deleted=descriptor),
        data_file(IDS, name="good.parquet", deleted=[3]),
    ]
    folder = write_table(
        "table",
        IDS.schema,
        files,
        properties={"delta.enableDeletionVectors": "true"},
        features=["deletionVectors"],
    )
    table = lake.table(str(folder), engine=engine)
    for use in (
        table.to_arrow,
        lambda: table.count("id > 4"),
        lambda: table.delete("id = 5"),
        lambda: table.update({"id": "id + 1"}, "id = 5"),
        table.optimize,
        table.optimize.purge,
    ):
        with pytest.raises(
            delvec.CorruptDeletionVector, match=f"marks row {rows[-1]}, but .* 10 rows"
        ) as caught:
            use()
        assert caught.value.details["file"] == "bad.parquet"
    assert len(list((folder / "_delta_log").glob("*.json"))) == 1


def test_a_property_that_is_true_with_blanks_around_it_is_true(lake, engine, write_table):
    files = [DataFile(IDS)]
    folder = write_table(
        "blanks",
        IDS.schema,
        files,
        properties={"delta.enableDeletionVectors": " True "},
        features=["appendOnly", "invariants", "deletionVectors"],
    )
    done = lake.table(str(folder), engine=engine).delete("id = 1")
    assert done["numDeletionVectorsAdded"] == 1


@pytest.fixture
def uncounted(lake, engine, write_table, data_file):
    """Files of ten rows: one with statistics, one without, and one with three deleted rows."""
    files = [
        data_file(IDS, values={"part": part}, deleted=deleted, stats=stats, name=f"{part}.parquet")
        for part, deleted, stats in (("counted", None, {}), ("bare", None, None), ("marked", [1, 2, 3], None))
    ]
    schema = pa.schema([("id", pa.int64()), ("part", pa.string())])
    properties = {"delta.enableDeletionVectors": "true"}
    folder = write_table("uncounted", schema, files, partition_by=["part"], properties=properties)
    return lake.table(str(folder), engine=engine)


@pytest.mark.parametrize(
    ("predicate", "rows"),
    [(None, 27), ("part = 'bare'", 10), ("part = 'marked'", 7), ("part = 'bare' OR id < 2", 13)],
)
def test_rows_of_whole_files_without_statistics_are_counted(uncounted, predicate, rows):
    assert uncounted.delete(predicate, dry_run=True)["numDeletedRows"] == rows
    assert uncounted.delete(predicate)["numDeletedRows"] == rows
    assert uncounted.history(1)[0]["operationMetrics"]["numDeletedRows"] == str(rows)
    assert uncounted.count() == 27 - rows


def test_rows_of_a_file_that_cannot_be_read_are_unknown(uncounted):
    (locations.local_path(uncounted.location) / "bare.parquet").unlink()

    rehearsed = uncounted.delete("part = 'bare'", dry_run=True)
    assert rehearsed["numDeletedRows"] is None
    assert "all rows" in str(rehearsed)
    assert uncounted.delete("part = 'bare'")["numDeletedRows"] is None
    assert "numDeletedRows" not in uncounted.history(1)[0]["operationMetrics"]
    assert uncounted.count() == 17
