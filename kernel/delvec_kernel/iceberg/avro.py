"""Avro files of Iceberg's metadata, whose sizes are not believed (Avro spec, "Object Container Files").

fastavro inflates a block to whatever it has in it: a megabyte may become a gigabyte. Here blocks are inflated up to a limit, and a
schema whose values may take no room at all, so that a count of them costs a writer nothing, is refused.
"""

import io
import json
import zlib
from collections.abc import Iterable, Mapping
from typing import Any, Final

import fastavro

__all__ = ["MOST_BYTES", "read_records", "write_records"]

MOST_BYTES: Final = 256 << 20
"""Of all blocks of a file, when they are inflated."""

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
    """Return the bytes of a file with these records, and these texts in its header."""
    file = io.BytesIO()
    fastavro.writer(file, schema, records, codec="deflate", codec_compression_level=1, metadata=dict(header))
    return file.getvalue()


def read_records(data: bytes, *, max_bytes: int = MOST_BYTES) -> list[dict[str, Any]]:
    """Return the records of a file, with the values of Avro's plain types: days, microseconds, bytes of decimals.

    Logical types are left aside because Python's dates end in the year 9999.

    Raises:
        ValueError: the file is damaged, has a codec other than deflate and null, or takes more than ``max_bytes`` inflated.
        Exception: others of fastavro, which has no error of its own for damaged files.
    """
    file = io.BytesIO(data)
    header: Any = fastavro.schemaless_reader(file, _HEADER, None)
    if header["magic"] != _MAGIC:
        raise ValueError("it does not begin like an Avro file")
    parsed = fastavro.parse_schema(_plain(json.loads(header["meta"]["avro.schema"]), set(), ()))
    codec = header["meta"].get("avro.codec", b"null")
    if codec not in (b"null", b"deflate"):
        raise ValueError(f"its codec is {codec[:20]!r}; only deflate and null are supported")
    found: list[dict[str, Any]] = []
    room = max_bytes
    while file.tell() < len(data):
        count: Any = fastavro.schemaless_reader(file, "long", None)
        block: Any = fastavro.schemaless_reader(file, "bytes", None)
        if codec == b"deflate":
            block = _inflated(block, room)
        room -= len(block)
        if room < 0:
            raise ValueError(f"it has more than {max_bytes} bytes when decompressed")
        if not 0 <= count <= len(block):
            raise ValueError(f"a block claims to have {count} records")
        content = io.BytesIO(block)
        for _ in range(count):
            record: Any = fastavro.schemaless_reader(content, parsed, None)
            found.append(record)
        if file.read(_SYNC_BYTES) != header["sync"]:
            raise ValueError("a block does not end as the header says")
    return found


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
        empty: names of the types met so far whose values take no bytes; grows.
        around: names of the types that it is part of.

    Raises:
        ValueError: it has an array of values that take no bytes, or a type that holds itself.
    """
    if isinstance(schema, list):
        return [_plain(item, empty, around) for item in schema]
    if not isinstance(schema, dict):
        if schema in around or str(schema).rpartition(".")[2] in around:
            # Values could be as deep as the file is long, and fastavro's recursion in C ends the process.
            raise ValueError(f"its schema has a recursive type, {schema!r}")
        return schema
    around = (*around, schema["name"]) if "name" in schema else around
    plain = {key: value for key, value in schema.items() if key != _LOGICAL}
    kind = schema["type"]
    if kind == "array":
        plain["items"] = _plain(schema["items"], empty, around)
        if _is_empty(plain["items"], empty):
            raise ValueError("its schema has an array of values that take no bytes")
    elif kind == "map":
        plain["values"] = _plain(schema["values"], empty, around)
    elif kind == "record":
        plain["fields"] = [
            field | {"type": _plain(field["type"], empty, around)} for field in schema["fields"]
        ]
    elif isinstance(kind, dict | list):
        plain["type"] = _plain(kind, empty, around)
    if "name" in schema and _is_empty(plain, empty):
        empty.add(schema["name"])
    return plain


def _is_empty(schema: Any, empty: set[str]) -> bool:
    """Return whether a value takes no bytes."""
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
