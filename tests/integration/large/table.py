"""Tables of many rows that cost next to no disk: one data file under many names."""

import json
import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from delvec_kernel import locations

__all__ = ["make"]

_SCHEMA = {
    "type": "struct",
    "fields": [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in (("id", "long"), ("k", "integer"))
    ],
}
_PROTOCOL = {
    "minReaderVersion": 3,
    "minWriterVersion": 7,
    "readerFeatures": ["deletionVectors"],
    "writerFeatures": ["deletionVectors"],
}


def make(folder, *, files, rows, seed=0):
    """Make a table and return its location.

    Args:
        folder: its directory, which is not there yet.
        files: how many; each is a hard link of the first.
        rows: of each file. ``id`` is the row's index in its file, ``k`` a random number from 0 to 15.
        seed: of the dice.
    """
    log = folder / "_delta_log"
    log.mkdir(parents=True)
    dice = np.random.default_rng(seed)
    content = pa.table(
        {"id": np.arange(rows, dtype=np.int64), "k": dice.integers(0, 16, rows, dtype=np.int32)}
    )
    first = folder / name(0)
    pq.write_table(
        content,
        first,
        use_dictionary=["k"],
        column_encoding={"id": "DELTA_BINARY_PACKED"},
        row_group_size=1 << 20,
    )
    for number in range(1, files):
        os.link(first, folder / name(number))
    size = first.stat().st_size
    stats = json.dumps(
        {
            "numRecords": rows,
            "minValues": {"id": 0, "k": 0},
            "maxValues": {"id": rows - 1, "k": 15},
            "nullCount": {"id": 0, "k": 0},
        }
    )
    metadata = {
        "id": "00000000-0000-0000-0000-000000000001",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(_SCHEMA),
        "partitionColumns": [],
        "configuration": {"delta.enableDeletionVectors": "true"},
    }
    actions = [{"commitInfo": {"operation": "WRITE"}}, {"protocol": _PROTOCOL}, {"metaData": metadata}]
    actions += [
        {
            "add": {
                "path": name(number),
                "partitionValues": {},
                "size": size,
                "modificationTime": 1,
                "dataChange": True,
                "stats": stats,
            }
        }
        for number in range(files)
    ]
    (log / f"{0:020d}.json").write_text("".join(json.dumps(action) + "\n" for action in actions))
    return locations.canonical(str(folder))


def name(number):
    """Return the name of a file."""
    return f"part-{number:05d}.parquet"
