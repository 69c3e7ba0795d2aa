import json
import os
import struct
import subprocess
import sys
import uuid
import zlib
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyroaring import BitMap, BitMap64

from delvec_errors import (
    CorruptDeletionVector,
    DeletionVectorCardinalityMismatch,
    DeletionVectorChecksumMismatch,
    DeletionVectorSizeMismatch,
    DeletionVectorTruncated,
    InvalidCommit,
)
from delvec_kernel.deletion_vectors import z85
from delvec_kernel.deletion_vectors.deletion_vector import (
    FILE_VERSION,
    MAX_ROW_INDEX,
    Descriptor,
    Where,
    decode,
    decode_inline,
    decode_uuid,
    deserialize_bitmap,
    encode,
    encode_uuid,
    file_name,
    frame,
    inline,
    serialize_bitmap,
    unframe,
)

WHERE = Where("people", 7, "part-0.parquet")
KERNEL_RS = "^Bg9^0rr910000000000iXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L"
BLOBS = (
    Path(os.environ.get("DELVEC_CORPUS", Path(__file__).parents[4] / ".." / "shared" / "corpus"))
    / "dev/_blobs"
)

rows = st.integers(0, MAX_ROW_INDEX)
bitmaps = st.builds(
    lambda single, ranges: BitMap64(single) | BitMap64.union(BitMap64(), *(BitMap64(r) for r in ranges)),
    st.sets(st.one_of(st.integers(0, 200_000), rows), max_size=60),
    st.lists(
        st.builds(lambda a, n: range(a, a + n), st.integers(0, 2**34), st.integers(1, 9000)), max_size=4
    ),
)


def native(*buckets):
    parts = [struct.pack("<II", 1681511376, len(buckets))]
    for bucket in buckets:
        data = BitMap(bucket).serialize()
        parts.append(struct.pack("<I", len(data)) + data)
    return b"".join(parts)


def on_disk(payload, cardinality, offset=1):
    return Descriptor("u", encode_uuid("", uuid.UUID(int=5)), offset, len(payload), cardinality)


# --- bitmaps --------------------------------------------------------------------------------------------


@given(bitmaps)
@example(BitMap64())
@example(BitMap64([MAX_ROW_INDEX]))
@example(BitMap64(range(2**32 - 5, 2**32 + 5)))
def test_every_format_round_trips(bitmap):
    payload = encode(bitmap)
    assert deserialize_bitmap(serialize_bitmap(bitmap)) == bitmap
    assert decode(payload) == bitmap
    assert decode_inline(inline(bitmap), WHERE) == bitmap
    assert unframe(frame(payload), on_disk(payload, len(bitmap)), WHERE) == bitmap


def test_runs_are_stored_as_runs_and_the_caller_s_bitmap_is_left_alone():
    bitmap = BitMap64(list(range(100_000)), optimize=False)
    before = bitmap.serialize()
    assert len(serialize_bitmap(bitmap)) < 100
    assert bitmap.serialize() == before


def test_row_indexes_beyond_deltas_limit_are_refused():
    assert MAX_ROW_INDEX == 0x7FFFFFFE_80000000  # RoaringBitmapArray.MAX_REPRESENTABLE_VALUE of delta-spark
    with pytest.raises(InvalidCommit, match="largest"):
        encode(BitMap64([MAX_ROW_INDEX + 1]))


def test_kernel_rs_reads_and_writes_the_same_bytes():
    bitmap = BitMap64([3, 4, 7, 11, 18, 29])
    assert z85.encode(encode(bitmap)) == KERNEL_RS
    assert decode_inline(Descriptor("i", KERNEL_RS, None, 44, 6), WHERE) == bitmap


def test_inline_text_that_rust_cut_to_its_size_is_read():
    text = "^Bg9^0rr910000000000iXQKl0rr91000005c8Xg##093"
    assert decode_inline(Descriptor("i", text, None, 34, 1), WHERE) == BitMap64([3])


def test_padding_of_inline_text_is_cut_off_at_its_size():
    payload = encode(BitMap64([1, 2, 3]))
    padded = Descriptor("i", z85.encode(payload + bytes(8)), None, len(payload), 3)
    assert decode_inline(padded, WHERE) == BitMap64([1, 2, 3])


def test_delta_spark_s_empty_deletion_vector_is_empty():
    assert decode_inline(Descriptor("i", "", None, 0, 0), WHERE) == BitMap64()


def test_empty_buckets_between_full_ones_are_read():
    # delta-spark writes a bucket for every high half up to the last.
    buckets = [[1], [], [5, 6]]
    data = struct.pack("<Q", 3) + b"".join(
        struct.pack("<I", key) + BitMap(rows).serialize() for key, rows in enumerate(buckets)
    )
    assert deserialize_bitmap(data) == BitMap64([1, (2 << 32) + 5, (2 << 32) + 6])


def test_the_older_native_layout_is_read():
    assert decode(native([0, 7], [], [3])) == BitMap64([0, 7, (2 << 32) + 3])
    assert decode(native()) == BitMap64()


@pytest.mark.skipif(not BLOBS.is_dir(), reason="no corpus (DELVEC_CORPUS)")
def test_published_bitmaps_decode_as_documented():
    manifest = json.loads((BLOBS.parent / "MANIFEST.json").read_text())
    for entry in manifest["blobs"]:
        data = (BLOBS.parent / entry["path"]).read_bytes()
        expected = entry["expected"]
        if "no framing" in entry["format"]:
            bitmap = deserialize_bitmap(data)
        else:
            bitmap = unframe(data, on_disk(data[8:], expected["cardinality"]), WHERE)
        assert len(bitmap) == expected["cardinality"]
        if bitmap:
            assert (bitmap.min(), bitmap.max()) == (expected["min"], expected["max"])


# --- hostile bytes --------------------------------------------------------------------------------------


def mutated(data, edits):
    out = bytearray(data)
    for position, value in edits:
        out[position % len(out)] = value
    return bytes(out)


edits = st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), min_size=1, max_size=6)


@settings(max_examples=500)
@given(st.one_of(st.binary(max_size=300), st.builds(mutated, bitmaps.map(encode), edits)))
@example(struct.pack("<IQ", 1681511377, 2**63))
@example(struct.pack("<IQ", 1681511377, 2**32 - 1) + bytes(100))
@example(struct.pack("<II", 1681511376, 2**32 - 1) + bytes(100))
@example(struct.pack("<III", 1681511376, 1, 2**32 - 1) + bytes(100))
@example(b"")
def test_any_bytes_are_a_bitmap_or_a_corrupt_deletion_vector(data):
    try:
        bitmap = decode(data)
    except CorruptDeletionVector:
        return
    # An accepted bitmap is valid: it can be used and serialized again.
    assert decode(encode(bitmap)) == bitmap if not bitmap or bitmap.max() <= MAX_ROW_INDEX else True
    assert len(bitmap | BitMap64([1])) >= len(bitmap)


@settings(max_examples=300)
@given(
    st.one_of(st.binary(max_size=300), st.builds(mutated, bitmaps.map(lambda b: frame(encode(b))), edits)),
    st.integers(0, 2**31 - 1),
    st.integers(0, 2**40),
    st.sampled_from([None, 0, 1, 2**31 - 1]),
)
def test_any_file_is_a_bitmap_or_a_corrupt_deletion_vector(data, size, cardinality, offset):
    for claimed in (size, max(0, len(data) - 8)):
        descriptor = Descriptor("u", "0" * 20, offset, claimed, cardinality)
        try:
            found = unframe(data, descriptor, WHERE)
        except CorruptDeletionVector as refusal:
            error: CorruptDeletionVector | None = refusal
        else:
            error = None
            assert len(found) == cardinality
        assert error is None or ("part-0.parquet" in error.message and error.details["version"] == 7)


HOSTILE = """
import random, resource, sys
from pyroaring import BitMap64
from delvec_kernel.deletion_vectors.deletion_vector import decode, encode
from delvec_errors import CorruptDeletionVector

resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
rng = random.Random(int(sys.argv[1]))
seeds = [
    encode(BitMap64(list(range(70000)))),
    encode(BitMap64(range(0, 200000, 2))),
    encode(BitMap64(range(0, 100000, 37)) | BitMap64(range(2**33, 2**33 + 5000, 3))),
    encode(BitMap64([1, 2**32, 2**40])),
]
accepted = 0
for _ in range(4000):
    data = bytearray(rng.choice(seeds))
    for _ in range(rng.randint(1, 8)):
        # The headers are where a lie does most.
        position = rng.randrange(min(len(data), 60) if rng.random() < 0.8 else len(data))
        data[position] = rng.choice([0, 1, 255, 127, 128, rng.randrange(256)])
    if rng.random() < 0.3:
        del data[rng.randrange(len(data)):]
    try:
        bitmap = decode(bytes(data))
    except CorruptDeletionVector:
        continue
    accepted += 1
    if bitmap.max() < 2**62 if bitmap else True:
        bitmap |= BitMap64([5, 2**35])
        assert len(bitmap) == bitmap.rank(bitmap.max())
        bitmap.serialize()
print("accepted", accepted)
"""


@pytest.mark.parametrize("seed", [1, 2])
def test_hostile_bitmaps_neither_crash_the_process_nor_exhaust_its_memory(seed):
    done = subprocess.run(
        [sys.executable, "-c", HOSTILE, str(seed)], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.startswith("accepted")


# --- descriptors ----------------------------------------------------------------------------------------


def test_a_prefix_is_a_directory_and_the_last_20_characters_are_the_uuid():
    assert decode_uuid("ab^-aqEH.-t@S}K{vb[*k^") == ("ab", uuid.UUID("d2c639aa-8816-431a-aaf6-d3fe2512ff61"))
    descriptor = Descriptor("u", "ab^-aqEH.-t@S}K{vb[*k^", 4, 40, 6)
    name = "ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"
    assert descriptor.relative_path() == name
    assert descriptor.absolute_path("s3://bucket/t/") == f"s3://bucket/t/{name}"
    assert descriptor.unique_id == "uab^-aqEH.-t@S}K{vb[*k^@4"
    assert not descriptor.is_inline


@given(st.uuids(), st.text("abcXYZ09", max_size=6))
def test_file_names_round_trip(identifier, prefix):
    text = encode_uuid(prefix, identifier)
    assert decode_uuid(text) == (prefix, identifier)
    path = Descriptor("u", text, 1, 1, 1).relative_path()
    assert path == (f"{prefix}/" if prefix else "") + file_name(identifier)


@pytest.mark.parametrize(
    "text", ["", "short", "../" + "0" * 20, "/x" + "0" * 20, "a/../b" + "0" * 20, "~" * 20]
)
def test_an_invalid_uuid_path_is_corrupt(text):
    with pytest.raises(CorruptDeletionVector):
        Descriptor("u", text, 1, 1, 1).relative_path()


def test_an_odd_prefix_is_encoded_and_cannot_become_a_url():
    assert (
        Descriptor("u", "s3:a b" + "0" * 20, 1, 1, 1)
        .relative_path()
        .startswith("s3%3Aa%20b/deletion_vector_")
    )


def test_a_descriptor_with_an_absolute_path_keeps_it():
    descriptor = Descriptor("p", "s3://bucket/t/a%20b.bin", 4, 40, 6)
    assert descriptor.relative_path() is None
    assert descriptor.absolute_path("s3://other/t") == "s3://bucket/t/a%20b.bin"
    assert descriptor.unique_id == "ps3://bucket/t/a%20b.bin@4"


def test_descriptors_keep_delta_s_spelling_and_always_write_the_offset_of_a_file():
    value = {"storageType": "u", "pathOrInlineDv": "0" * 20, "offset": 0, "sizeInBytes": 40, "cardinality": 6}
    assert Descriptor.from_json({**value, "maxRowIndex": 9}).to_json() == value
    in_log = inline(BitMap64([1]))
    assert in_log.absolute_path("file:///t") is None
    assert "offset" not in in_log.to_json()
    assert Descriptor.from_json({**in_log.to_json(), "offset": None}) == in_log


@pytest.mark.parametrize(
    "change",
    [
        {"storageType": ""},
        {"storageType": "r"},
        {"storageType": None},
        {"storageType": []},
        {"storageType": {"u": 1}},
        {"pathOrInlineDv": None},
        {"offset": -1},
        {"offset": 2**31},
        {"offset": "1"},
        {"sizeInBytes": None},
        {"sizeInBytes": -1},
        {"sizeInBytes": 2**31},
        {"cardinality": True},
        {"cardinality": 1.5},
    ],
)
def test_a_malformed_descriptor_is_corrupt(change):
    value = {"storageType": "u", "pathOrInlineDv": "0" * 20, "offset": 1, "sizeInBytes": 40, "cardinality": 6}
    with pytest.raises(CorruptDeletionVector):
        Descriptor.from_json({**value, **change})


# --- files ----------------------------------------------------------------------------------------------

PAYLOAD = encode(BitMap64([3, 4, 7, 11]))


def test_size_and_checksum_surround_the_payload_big_endian():
    framed = frame(PAYLOAD)
    assert framed[:4] == len(PAYLOAD).to_bytes(4, "big")
    assert framed[4:8] == bytes.fromhex("d1d33964")
    assert framed[-4:] == zlib.crc32(PAYLOAD).to_bytes(4, "big")


@pytest.mark.parametrize(
    ("buffer", "cardinality", "error", "says"),
    [
        (b"", 4, DeletionVectorTruncated, "0 bytes left"),
        (frame(PAYLOAD)[:-1], 4, DeletionVectorTruncated, "ends after"),
        (frame(PAYLOAD + b"\0"), 4, DeletionVectorSizeMismatch, "bytes in its file"),
        (frame(PAYLOAD)[:-4] + bytes(4), 4, DeletionVectorChecksumMismatch, "CRC-32"),
        (frame(PAYLOAD), 5, DeletionVectorCardinalityMismatch, "4 rows, not 5"),
        (frame(bytes(len(PAYLOAD))), 4, CorruptDeletionVector, "magic number 0x00000000"),
        (frame(PAYLOAD[:12] + bytes(len(PAYLOAD) - 12)), 4, CorruptDeletionVector, "not a 64-bit Roaring"),
    ],
)
def test_each_file_defect_has_a_specific_error_that_names_table_version_and_file(
    buffer, cardinality, error, says
):
    descriptor = on_disk(PAYLOAD, cardinality)
    with pytest.raises(error) as caught:
        unframe(buffer, descriptor, WHERE)
    assert type(caught.value) is error
    message = caught.value.message
    for part in (
        "people",
        "version 7",
        "part-0.parquet",
        descriptor.relative_path(),
        "offset 1",
        "restore",
        says,
    ):
        assert part in message
    assert caught.value.details["table"] == "people"
    assert caught.value.details["deletion_vector"] == descriptor.relative_path()


@pytest.mark.parametrize(
    ("text", "size", "cardinality", "error"),
    [
        (KERNEL_RS, 48, 6, DeletionVectorTruncated),
        (KERNEL_RS, 44, 7, DeletionVectorCardinalityMismatch),
        (KERNEL_RS[:-1], 44, 6, CorruptDeletionVector),
        ("wi5b=" + KERNEL_RS[5:], 44, 6, CorruptDeletionVector),
    ],
)
def test_each_inline_defect_has_a_specific_error(text, size, cardinality, error):
    with pytest.raises(error) as caught:
        decode_inline(Descriptor("i", text, None, size, cardinality), WHERE)
    assert type(caught.value) is error
    assert "inline" in caught.value.message
    assert "part-0.parquet" in caught.value.message


@pytest.mark.parametrize("version_byte", [FILE_VERSION, b""])
def test_an_absent_offset_means_the_start_with_or_without_a_version_byte(version_byte):
    descriptor = on_disk(PAYLOAD, 4, offset=None)
    start, end = descriptor.byte_range
    assert unframe((version_byte + frame(PAYLOAD))[start:end], descriptor, WHERE) == BitMap64([3, 4, 7, 11])


def test_the_byte_range_is_one_framed_deletion_vector():
    text = encode_uuid("", uuid.UUID(int=1))

    assert Descriptor("u", text, 60, 40, 6).byte_range == (60, 108)
    assert Descriptor("u", text, None, 40, 6).byte_range == (0, 49)  # with or without a version byte
