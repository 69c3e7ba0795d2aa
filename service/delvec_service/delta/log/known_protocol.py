"""The protocol that a file of a log demands, told even where the rest of that file makes no sense.

A feature that a reader does not know may well be what makes no sense to it, so the feature is what to name.
"""

import json
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from delvec_service.delta.actions import Protocol
from delvec_service.delta.log.log_json import MalformedActionError

__all__ = ["known_protocol"]

_KEY: Final = b'"protocol"'
_UNREADABLE: Final = (ValueError, TypeError, KeyError, RecursionError, MalformedActionError)


def known_protocol(data: bytes, name: str) -> Protocol | None:
    """Return the last protocol in a commit or a checkpoint; None if it holds none, or none that can be read.

    Args:
        data: the file.
        name: ends in ``.parquet`` where it is a checkpoint in Parquet, a part or a manifest of one.
    """
    found = _in_parquet(data) if name.endswith(".parquet") else _in_lines(data)
    for value in reversed(found):
        try:
            return Protocol.from_json(value)
        except _UNREADABLE:
            continue
    return None


def _in_lines(data: bytes) -> list[dict[str, object]]:
    found = []
    for line in data.split(b"\n"):
        if _KEY in line:
            try:
                value = json.loads(line)["protocol"]
            except _UNREADABLE:
                continue
            found += [value] if isinstance(value, dict) else []
    return found


def _in_parquet(data: bytes) -> list[dict[str, object]]:
    try:
        column = pq.ParquetFile(pa.BufferReader(data)).read(columns=["protocol"])["protocol"]
        rows = column.to_pylist()
    # Damaged Parquet makes Arrow raise almost anything; nothing here touches storage.
    except (pa.ArrowException, OSError, MemoryError, OverflowError, *_UNREADABLE):
        return []
    return [row for row in rows if isinstance(row, dict) and row.get("minReaderVersion") is not None]
