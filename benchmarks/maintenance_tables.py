"""Tables for maintenance benchmarks, one per job."""

import json
import os
import time
import uuid
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

import delvec
from delvec_kernel.deletion_vectors.deletion_vector import (
    FILE_VERSION,
    Descriptor,
    encode,
    encode_uuid,
    file_name,
    frame,
)

__all__ = ["SOURCES", "TARGET", "write_old_files"]

TARGET = 4 << 20
_FILES, _ROWS = 200, 20_000
_PURGED_FILES, _PURGED_ROWS = 32, 312_500
_LARGE_FILES, _LARGE_ROWS = 16, 524_288
_OLD_DAYS = 30


def small_files(location: Path, scale: float) -> None:
    """Write 4 M rows into 200 files, in an order that prevents data skipping."""
    table = delvec.connect().create_table(
        location,
        "id long, a long, b double, s string, c int",
        properties={"delta.enableDeletionVectors": "false", "delta.targetFileSize": str(TARGET)},
    )
    draw, rows = np.random.default_rng(0), max(1, int(_ROWS * scale))
    for number in range(_FILES):
        table.append(
            pa.table(
                {
                    "id": np.arange(number * rows, (number + 1) * rows),
                    "a": draw.integers(0, 10**9, rows),
                    "b": draw.normal(size=rows),
                    "s": [f"v{each}" for each in draw.integers(0, 10**6, rows)],
                    "c": draw.integers(0, 1000, rows).astype(np.int32),
                }
            )
        )


def large_row_groups(location: Path, scale: float) -> None:
    """Write 8 M rows into 16 files of two row groups each, 16 MB in total."""
    table = delvec.connect().create_table(
        location,
        "id long, a long, b double, s string, c int",
        properties={"delta.enableDeletionVectors": "false"},
    )
    draw, rows = np.random.default_rng(0), max(1, int(_LARGE_ROWS * scale))
    for number in range(_LARGE_FILES):
        table.append(
            pa.table(
                {
                    "id": np.arange(number * rows, (number + 1) * rows),
                    "a": draw.integers(0, 10**9, rows),
                    "b": draw.normal(size=rows),
                    "s": pa.array(draw.integers(0, 10**6, rows)).cast(pa.string()),
                    "c": draw.integers(0, 1000, rows).astype(np.int32),
                }
            )
        )


def deleted_rows(location: Path, scale: float) -> None:
    """Write 10 M rows into 32 files, and delete 30 % of the rows by deletion vectors."""
    table = delvec.connect().create_table(
        location, "id long, a long, s string", properties={"delta.enableDeletionVectors": "true"}
    )
    draw, rows = np.random.default_rng(0), max(10, int(_PURGED_ROWS * scale))
    for number in range(_PURGED_FILES):
        texts = pa.array(draw.integers(0, 10**9, rows)).cast(pa.string())
        ids = np.arange(number * rows, (number + 1) * rows)
        table.append(pa.table({"id": ids, "a": draw.integers(0, 10**9, rows), "s": texts}))
    table.delete("id % 10 < 3")


def small_vectors(location: Path, scale: float) -> None:
    """Write 10,000 files with a deletion vector each, in a file of its own, as DELETEs of one file each leave them."""
    files = max(10, int(10_000 * scale))
    with delvec.connect() as lake:
        table = lake.create_table(
            location,
            "id long, p int",
            partition_by=["p"],
            properties={"delta.enableDeletionVectors": "true"},
        )
        numbers = np.repeat(np.arange(files, dtype=np.int32), 10)
        version = table.append(pa.table({"id": np.arange(files * 10), "p": numbers})).version
    log = location / "_delta_log"
    lines = ['{"commitInfo":{"operation":"DELETE"}}']
    payload = encode(BitMap64([3]))
    for line in (log / f"{version:020}.json").read_text().splitlines():
        add = json.loads(line).get("add")
        if add is None:
            continue
        identifier = uuid.uuid4()
        (location / file_name(identifier)).write_bytes(FILE_VERSION + frame(payload))
        text = encode_uuid("", identifier)
        vector = Descriptor("u", text, len(FILE_VERSION), len(payload), 1).to_json()
        remove = {"path": add["path"], "partitionValues": add["partitionValues"], "dataChange": True}
        lines.append(json.dumps({"remove": remove | {"deletionTimestamp": time.time_ns() // 1_000_000}}))
        lines.append(json.dumps({"add": add | {"deletionVector": vector}}))
    (log / f"{version + 1:020}.json").write_text("\n".join(lines))


def one_file(location: Path, scale: float) -> None:
    """Write a table among unreferenced files."""
    del scale
    table = delvec.connect().create_table(location, "id long")
    table.append(pa.table({"id": pa.array(range(1000), pa.int64())}))


def many_files(location: Path, scale: float) -> None:
    """Write a log with 900,000 live files, and an empty object for each, since VACUUM does not read them."""
    delvec.connect().create_table(location, "id long", properties={"delta.enableDeletionVectors": "false"})
    files, at_once = max(10, int(900_000 * scale)), 50_000
    now = time.time_ns() // 1_000_000
    for version, start in enumerate(range(0, files, at_once), 1):
        lines = ['{"commitInfo":{"operation":"WRITE"}}']
        for number in range(start, min(files, start + at_once)):
            name = f"part-{number:07}.parquet"
            (location / name).touch()
            lines.append(
                f'{{"add":{{"path":"{name}","partitionValues":{{}},"size":0,"modificationTime":{now},"dataChange":true}}}}'
            )
        (location / "_delta_log" / f"{version:020}.json").write_text("\n".join(lines))


def write_old_files(location: Path, count: int) -> None:
    """Write unreferenced files that are a month old."""
    old = time.time() - _OLD_DAYS * 86400
    for number in range(count):
        path = location / f"old-{number:07}.parquet"
        path.touch()
        os.utime(path, (old, old))


SOURCES = {
    "small files": small_files,
    "large row groups": large_row_groups,
    "deleted rows": deleted_rows,
    "small vectors": small_vectors,
    "one file": one_file,
    "many files": many_files,
}
