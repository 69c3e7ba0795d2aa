"""Data files and engine-written vectors: tiny Parquet files, encoded once per content and stored under a new name each time."""

import io
import json
import time
import uuid
from functools import lru_cache

import pyarrow as pa
import pyarrow.parquet as pq

from delvec_kernel.actions.actions import AddFile
from delvec_kernel.deletion_vectors.deletion_vector import (
    FILE_VERSION,
    Descriptor,
    encode,
    encode_uuid,
    file_name,
    frame,
)
from delvec_storage import files as storage

__all__ = ["write_file", "write_files", "write_vector"]


def write_files(location, names, rows, *, partitioned, statistics, data_change=True):
    """Write rows, one file per partition; return the adds. ``names``: an iterator of file names."""
    groups = {}
    for row in rows:
        groups.setdefault(row.part if partitioned else None, []).append(row)
    return [
        write_file(location, next(names), group, part, statistics=statistics, data_change=data_change)
        for part, group in sorted(groups.items(), key=lambda item: item[0] or "")
    ]


def write_file(location, name, rows, part, *, statistics, data_change=True):
    """Write one file.

    Args:
        location: the table's.
        name: the file's.
        rows: the rows, in order.
        part: the partition; None in an unpartitioned table.
        statistics: whether the statistics have bounds, or only the number of rows.
        data_change: as in the action.
    """
    content = _encoded(tuple(rows), part is None)
    path = f"{'' if part is None else f'part={part}/'}{name}.parquet"
    storage.write_file(location, path, content)
    return AddFile(
        path=path,
        partition_values={} if part is None else {"part": part},
        size=len(content),
        modification_time=time.time_ns() // 1_000_000,
        data_change=data_change,
        stats=_statistics(rows, part is None, statistics),
    )


def write_vector(location, rows):
    """Write a deletion vector to its own file; return its descriptor."""
    identifier, payload = uuid.uuid4(), encode(rows)
    storage.write_file(location, file_name(identifier), FILE_VERSION + frame(payload))
    return Descriptor("u", encode_uuid("", identifier), 1, len(payload), len(rows))


@lru_cache(maxsize=50_000)
def _encoded(rows, with_part):
    columns = {
        "id": pa.array([row.id for row in rows], pa.int64()),
        "value": pa.array([row.value for row in rows], pa.int32()),
    }
    if with_part:
        columns["part"] = pa.array([row.part for row in rows], pa.string())
    buffer = io.BytesIO()
    pq.write_table(pa.table(columns), buffer, compression="none", use_dictionary=False)
    return buffer.getvalue()


def _statistics(rows, with_part, bounds):
    document = {"numRecords": len(rows), "tightBounds": True}
    if bounds:
        columns = {"id": [row.id for row in rows], "value": [row.value for row in rows]}
        if with_part:
            columns["part"] = [row.part for row in rows]
        known = {name: [item for item in values if item is not None] for name, values in columns.items()}
        document["minValues"] = {name: min(values) for name, values in known.items() if values}
        document["maxValues"] = {name: max(values) for name, values in known.items() if values}
        document["nullCount"] = {name: len(rows) - len(values) for name, values in known.items()}
    return json.dumps(document)
