"""Tables for commit benchmarks: with one file, with many, and with files to add."""

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from benchmarks.large_table import FIRST_DAY, LargeTable, metadata, paths_of
from benchmarks.tables import many_files

__all__ = ["FIRST_FILE", "NewFiles", "enable_vectors", "live_paths", "new_files"]

FIRST_FILE = "part-00000.snappy.parquet"
_LINKS = 10_000
"""Maximum hard links per file; file systems allow some tens of thousands."""


class NewFiles:
    """Files in a table's directory that are not part of it yet.

    Attributes:
        rows: of each.
        size: bytes of each.
    """

    def __init__(self, paths: list[str], rows: int, size: int) -> None:
        self.paths, self.rows, self.size = paths, rows, size


def new_files(table: Path, count: int, folder: str = "") -> NewFiles:
    """Create files to add: ``count`` hard links to a few files."""
    made = table / "_new"
    many_files(made, 1)
    data = (made / FIRST_FILE).read_bytes()
    shutil.rmtree(made)
    (table / folder).mkdir(exist_ok=True)
    paths = [f"{folder}/new-{number}.parquet".lstrip("/") for number in range(count)]
    for number, path in enumerate(paths):
        if number % _LINKS == 0:
            (table / path).write_bytes(data)
        else:
            os.link(table / paths[number - number % _LINKS], table / path)
    return NewFiles(paths, 1000, len(data))


def live_paths(table: LargeTable, count: int) -> list[str]:
    """Return files spread over a large table."""
    gaps = set(table.gaps)
    numbers = range(0, table.files, max(1, table.files // (2 * count)))
    kept = [number for number in numbers if number not in gaps][:count]
    return [str(path) for path in paths_of(np.array(kept), table.files).to_pylist()]


def enable_vectors(location: Path, version: int) -> Mapping[str, str]:
    """Enable deletion vectors on a copy of a large table; return the partition for appends."""
    features = ["deletionVectors"]
    protocol = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": features,
        "writerFeatures": features,
    }
    facts = metadata() | {
        "format": {"provider": "parquet", "options": {}},
        "configuration": {"delta.enableDeletionVectors": "true"},
    }
    info = {"timestamp": facts["createdTime"], "operation": "SET TBLPROPERTIES", "operationParameters": {}}
    lines = [{"commitInfo": info}, {"protocol": protocol}, {"metaData": facts}]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (location / "_delta_log" / f"{version + 1:020d}.json").write_text(text)
    return {"day": str(FIRST_DAY)}
