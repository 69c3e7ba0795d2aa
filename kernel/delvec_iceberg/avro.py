"""Avro files of Iceberg metadata, read with limits on their decompressed size (Avro spec, "Object Container Files").

fastavro decompresses blocks of any size, so that a megabyte may become a gigabyte. Here the total is limited, and
schemas with zero-byte values are rejected, since a small file could claim any number of those.
"""

import io
import json
import zlib
from collections.abc import Iterable, Mapping
from typing import Any, Final

import fastavro

__all__ = ["MAX_BYTES", "read_records", "write_records"]

MAX_BYTES: Final = 256 << 20
"""Limit on the total decompressed size of a file's blocks."""
_MAX_BLOCK_BYTES: Final = 16 << 20
"""Limit on one block: a byte may become a Python object of a hundred bytes."""
_MAX_RECORDS: Final = 1_000_000
"""Limit on the records of a file: manifests of 8 MiB, the usual size, have tens of thousands."""
_MAX_ITEMS: Final = 12_000_000
"""Limit on the items of all arrays and maps of a file: a manifest has a few per file and column."""
_COLLECTIONS: Final = ("array", "map")

_HEADER: Final = fastavro.parse_schema(
    {
        "type": "record",
        "name": "header",
        "fields": [
            {"name": "magic", "type": {"type": "fixed", "name": "magic", "size": 4}},
            {"name": "meta", "type": {"type": "map", "values": "bytes"}},
            {"name": "sync", "type": {"type": "fixed", "name": "sync", "size": 16}},
        ],
    }
)
_MAGIC: Final = b"Obj\x01"
_SYNC_BYTES: Final = 16
_LOGICAL: Final = "logicalType"


def write_records(
    schema: dict[str, Any], records: Iterable[Mapping[str, Any]], header: Mapping[str, str]
) -> bytes:
    """Serialize records to a file with this metadata in its header."""
    file = io.BytesIO()
    fastavro.writer(file, schema, records, codec="deflate", codec_compression_level=1, metadata=dict(header))
    return file.getvalue()


def read_records(data: bytes, *, max_bytes: int = MAX_BYTES) -> list[dict[str, Any]]:
    """Return the records of a file, without conversion of logical types: days, microseconds, bytes of decimals.

    Python's dates end in the year 9999, so fastavro's conversion would fail.

    Raises:
        ValueError: the file is corrupt, has a codec other than deflate and null, has an array in an array, exceeds
            ``max_bytes`` decompressed, or has more than a million records.
        Exception: other errors of fastavro, which has no error class for corrupt files.
    """
    file = io.BytesIO(data)
    header: Any = fastavro.schemaless_reader(file, _HEADER, None)
    if header["magic"] != _MAGIC:
        raise ValueError("it does not begin like an Avro file")
    writer_schema = fastavro.parse_schema(_plain(json.loads(header["meta"]["avro.schema"]), set(), ()))
    codec = header["meta"].get("avro.codec", b"null")
    if codec not in (b"null", b"deflate"):
        raise ValueError(f"its codec is {codec[:20]!r}; only deflate and null are supported")
    records: list[dict[str, Any]] = []
    room, items = max_bytes, 0
    while file.tell() < len(data):
        count: Any = fastavro.schemaless_reader(file, "long", None)
        block: Any = fastavro.schemaless_reader(file, "bytes", None)
        if codec == b"deflate":
            block = _inflated(block, min(room, _MAX_BLOCK_BYTES))
        room -= len(block)
        if room < 0:
            raise ValueError(f"it has more than {max_bytes} bytes when decompressed")
        _check_block(block, count, len(records))
        content = io.BytesIO(block)
        for _ in range(count):
            record: Any = fastavro.schemaless_reader(content, writer_schema, None)
            items += _items(record)
            if items > _MAX_ITEMS:
                raise ValueError(f"its arrays have more than {_MAX_ITEMS} items")
            records.append(record)
        if file.read(_SYNC_BYTES) != header["sync"]:
            raise ValueError("a block does not end as the header says")
    return records


def _check_block(block: bytes, count: int, before: int) -> None:
    """Reject a block whose records would take too much memory, or cannot be in it."""
    if len(block) > _MAX_BLOCK_BYTES:
        raise ValueError(f"a block has more than {_MAX_BLOCK_BYTES} bytes when decompressed")
    if not 0 <= count <= len(block):
        raise ValueError(f"a block claims to have {count} records")
    if before + count > _MAX_RECORDS:
        raise ValueError(f"it has more than {_MAX_RECORDS} records")


def _items(value: Any) -> int:
    """Return the number of items of the arrays and maps in a record, which have no others inside."""
    if isinstance(value, dict):
        # A map counts as a record whose fields have one value each.
        return len(value) + sum(_items(each) for each in value.values() if isinstance(each, dict | list))
    return len(value) if isinstance(value, list) else 0


def _inflated(block: bytes, room: int) -> bytes:
    inflater = zlib.decompressobj(-zlib.MAX_WBITS)
    found = inflater.decompress(block, room + 1)
    if len(found) <= room and not inflater.eof:
        raise ValueError("a block is truncated")
    return found


def _plain(schema: Any, empty: set[str], around: tuple[str, ...]) -> Any:
    """Return a schema without logical types.

    Args:
        schema: as JSON.
        empty: names of the types so far whose values take no bytes; updated.
        around: names of the enclosing types.

    Raises:
        ValueError: the schema has an array of zero-byte values, an array in an array, or a recursive type.
    """
    if isinstance(schema, list):
        return [_plain(item, empty, around) for item in schema]
    if not isinstance(schema, dict):
        if schema in around or str(schema).rpartition(".")[2] in around:
            # Values could be nested as deeply as the file is long, which overflows the stack of fastavro's C code.
            raise ValueError(f"its schema has a recursive type, {schema!r}")
        return schema
    around = (*around, schema["name"]) if "name" in schema else around
    plain = {key: value for key, value in schema.items() if key != _LOGICAL}
    kind = schema["type"]
    if kind == "array":
        plain["items"] = _plain(schema["items"], empty, _inside_collection(around))
        if _is_empty(plain["items"], empty):
            raise ValueError("its schema has an array of values that take no bytes")
    elif kind == "map":
        plain["values"] = _plain(schema["values"], empty, _inside_collection(around))
    elif kind == "record":
        plain["fields"] = [
            field | {"type": _plain(field["type"], empty, around)} for field in schema["fields"]
        ]
    elif isinstance(kind, dict | list):
        plain["type"] = _plain(kind, empty, around)
    if "name" in schema and _is_empty(plain, empty):
        empty.add(schema["name"])
    return plain


def _inside_collection(around: tuple[str, ...]) -> tuple[str, ...]:
    if set(_COLLECTIONS) <= set(around):
        raise ValueError("its schema has an array or a map in another one")
    return (*around, *_COLLECTIONS)


def _is_empty(schema: Any, empty: set[str]) -> bool:
    """Whether a value takes no bytes."""
    if isinstance(schema, str):
        return schema == "null" or schema in empty or schema.rpartition(".")[2] in empty
    if not isinstance(schema, dict):
        return False
    kind = schema["type"]
    if kind == "record":
        return all(_is_empty(field["type"], empty) for field in schema["fields"])
    if kind == "fixed":
        return bool(schema["size"] == 0)
    return isinstance(kind, dict | str) and kind not in ("array", "map", "enum") and _is_empty(kind, empty)
