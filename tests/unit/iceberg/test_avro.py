import io
import json
import zlib

import fastavro
import pytest

from delvec_iceberg.avro import read_records, write_records

SCHEMA = {
    "type": "record",
    "name": "row",
    "fields": [
        {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}]},
        {"name": "nothing", "type": {"type": "record", "name": "r102", "fields": []}},
        {"name": "ids", "type": {"type": "array", "items": "long"}},
    ],
}
ROWS = [{"day": 3_000_000, "nothing": {}, "ids": [1, 2]}, {"day": None, "nothing": {}, "ids": []}]


def with_schema(schema, block, count=1):
    """A file with one block that claims ``count`` records of the schema."""
    sync = b"s" * 16
    file = io.BytesIO()
    meta = {"avro.schema": json.dumps(schema).encode(), "avro.codec": b"deflate"}
    file.write(b"Obj\x01")
    fastavro.schemaless_writer(file, {"type": "map", "values": "bytes"}, meta)
    file.write(sync)
    fastavro.schemaless_writer(file, "long", count)
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    fastavro.schemaless_writer(file, "bytes", packer.compress(block) + packer.flush())
    file.write(sync)
    return file.getvalue()


def test_records_round_trip_as_plain_types():
    data = write_records(SCHEMA, ROWS, {"format-version": "2"})

    assert read_records(data) == ROWS
    assert fastavro.reader(io.BytesIO(data)).metadata["format-version"] == "2"


def test_blocks_are_not_decompressed_beyond_the_limit():
    data = with_schema("bytes", bytes(50_000_000))
    assert len(data) < 100_000

    with pytest.raises(ValueError, match="more than 1000000 bytes"):
        read_records(data, max_bytes=1_000_000)


@pytest.mark.parametrize(
    "items",
    [
        "null",
        {"type": "record", "name": "e", "fields": []},
        {"type": "fixed", "name": "f", "size": 0},
        {"type": "record", "name": "o", "fields": [{"name": "a", "type": "null"}]},
        {"type": {"type": "null"}},
    ],
)
def test_arrays_whose_values_take_no_bytes_are_refused(items):
    block = io.BytesIO()
    fastavro.schemaless_writer(block, "long", 2**40)

    with pytest.raises(ValueError, match="take no bytes"):
        read_records(with_schema({"type": "array", "items": items}, block.getvalue() + b"\x00"))


def test_an_array_of_a_named_type_without_bytes_is_refused():
    empty = {"type": "record", "name": "e", "namespace": "n", "fields": []}
    fields = [{"name": "a", "type": empty}, {"name": "b", "type": {"type": "array", "items": "n.e"}}]

    with pytest.raises(ValueError, match="take no bytes"):
        read_records(with_schema({"type": "record", "name": "r", "fields": fields}, b"\x02\x00"))


def test_more_records_than_a_block_has_bytes_are_refused():
    with pytest.raises(ValueError, match="claims to have"):
        read_records(with_schema({"type": "record", "name": "e", "fields": []}, b"", count=2**40))


@pytest.mark.parametrize("cut", [1, 17, 20, 60])
def test_truncated_files_fail(cut):
    with pytest.raises((ValueError, EOFError, KeyError, IndexError)):
        read_records(write_records(SCHEMA, ROWS * 100, {})[:-cut])


def test_recursive_types_are_refused():
    schema = {"type": "record", "name": "r", "fields": [{"name": "next", "type": ["null", "r"]}]}

    with pytest.raises(ValueError, match="recursive type"):
        read_records(with_schema(schema, b"\x02" * 1_000_000 + b"\x00"))


INTS = {"type": "record", "name": "r", "fields": [{"name": "a", "type": {"type": "array", "items": "int"}}]}


@pytest.mark.parametrize(
    ("limit", "message"),
    [
        ("_MAX_RECORDS", "more than 5 records"),
        ("_MAX_ITEMS", "more than 5 items"),
        ("_MAX_BLOCK_BYTES", "a block has more"),
    ],
)
def test_what_would_become_many_objects_is_refused(monkeypatch, limit, message):
    """A byte of a file that is compressed a thousandfold can become a dictionary of two hundred bytes."""
    monkeypatch.setattr(f"delvec_iceberg.avro.{limit}", 5)
    with pytest.raises(ValueError, match=message):
        read_records(write_records(INTS, [{"a": [1]}] * 6, {}))


def test_items_of_all_records_count(monkeypatch):
    monkeypatch.setattr("delvec_iceberg.avro._MAX_ITEMS", 12)
    inner = {"type": "record", "name": "file", "fields": INTS["fields"]}
    schema = {"type": "record", "name": "entry", "fields": [{"name": "data_file", "type": inner}]}
    assert len(read_records(write_records(schema, [{"data_file": {"a": [1, 2]}}] * 3, {}))) == 3
    with pytest.raises(ValueError, match="more than 12 items"):
        read_records(write_records(schema, [{"data_file": {"a": [1, 2]}}] * 4, {}))


@pytest.mark.parametrize("inner", [{"type": "array", "items": "int"}, {"type": "map", "values": "int"}])
def test_an_array_in_an_array_is_refused(inner):
    deeper = {"type": "record", "name": "d", "fields": [{"name": "x", "type": ["null", inner]}]}
    for items in (inner, deeper):
        with pytest.raises(ValueError, match="in another one"):
            read_records(with_schema({"type": "array", "items": items}, b"\x00"))
