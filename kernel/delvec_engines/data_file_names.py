"""The names of new data files.

Tested in `tests/unit/engines/test_parquet_writer.py`.
"""

import hashlib
import os
import re
import time
import uuid
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote

from delvec_kernel import locations
from delvec_kernel.schema import partition_values

__all__ = ["data_file_path"]

_NOT_ASCII: Final = re.compile(r"[^\x00-\x7f]+")
_LONGEST_FOLDER: Final = 200
"""Characters; local disks take 255 bytes."""


def data_file_path(
    partition: Mapping[str, str | None],
    transaction_id: str,
    *,
    task: int,
    number: int,
    codec: str,
    folder: str = "",
    prefix: str = "part",
) -> str:
    """Return the path of a new file, as in the log.

    Args:
        partition: values by physical name, in the table's order.
        transaction_id: the id of the transaction.
        task: number of the writer.
        number: the number of the file within the task.
        codec: shown in the name.
        folder: below the table's location, ending with a slash.
        prefix: the prefix of the name.
    """
    name = f"{prefix}-{task:05d}-{_uuid7()}-{transaction_id}.c{number:03d}.{codec}.parquet"
    directory = partition_values.partition_path(partition)
    # ASCII alone: deltalake and delta-spark disagree on how a log spells other characters.
    directory = "/".join(map(_folder_name, directory.split("/")))
    return locations.log_path(folder + (f"{directory}/{name}" if directory else name))


def _folder_name(name: str) -> str:
    """Return an ASCII name of limited length for a partition's folder; the log has the exact values."""
    found = _NOT_ASCII.sub(lambda part: quote(part[0]), name)
    if len(found) <= _LONGEST_FOLDER:
        return found
    return f"{found[: _LONGEST_FOLDER // 2]}-{hashlib.sha256(name.encode()).hexdigest()[:32]}"


def _uuid7() -> uuid.UUID:
    """Return a UUIDv7 (RFC 9562), whose time shows the age of unreferenced files."""
    milliseconds = time.time_ns() // 1_000_000
    random = int.from_bytes(os.urandom(10), "big")
    value = (milliseconds & (1 << 48) - 1) << 80 | random
    value = value & ~(0xF << 76) | 0x7 << 76
    return uuid.UUID(int=value & ~(0x3 << 62) | 0x2 << 62)
