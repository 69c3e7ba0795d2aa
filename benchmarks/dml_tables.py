"""Tables and sources of the row-change benchmarks, and measurement of objects written to storage."""

import json
import shutil
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import delvec
from benchmarks.tables import PEOPLE, clone, people_batches

__all__ = [
    "FEATURES",
    "Bin",
    "Listing",
    "Put",
    "listing",
    "listing_once_settled",
    "put_since",
    "row_state",
    "variant",
    "write_sources",
]

Listing = Mapping[str, tuple[int, int, int]]
Put = tuple[int, int]
_PATIENCE = 1.0

FEATURES: Mapping[str, tuple[dict[str, Any], dict[str, str]]] = {
    "dv": (
        {
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": ["deletionVectors"],
            "writerFeatures": ["deletionVectors", "appendOnly", "invariants"],
        },
        {"delta.enableDeletionVectors": "true"},
    ),
    "plain": ({"minReaderVersion": 1, "minWriterVersion": 2}, {}),
    "dv-feed": (
        {
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": ["deletionVectors"],
            "writerFeatures": ["deletionVectors", "appendOnly", "invariants", "changeDataFeed"],
        },
        {"delta.enableDeletionVectors": "true", "delta.enableChangeDataFeed": "true"},
    ),
    "plain-feed": ({"minReaderVersion": 1, "minWriterVersion": 4}, {"delta.enableChangeDataFeed": "true"}),
}
"""Protocol and properties of tables by name."""


def variant(made: Path, target: Path, name: str) -> Path:
    """Create a table with the data files of ``made`` in one version, with another protocol and properties; return ``target``.

    Args:
        made: a table whose log only adds files.
        target: location of the new table.
        name: one of :data:`FEATURES`.
    """
    protocol, properties = FEATURES[name]
    clone(made, target)
    lines, adds = [json.dumps({"protocol": protocol})], []
    log = target / "_delta_log"
    for file in sorted(log.glob("*.json")):
        for line in file.read_text().splitlines():
            action = json.loads(line)
            if "add" in action:
                adds.append(line)
            elif "metaData" in action:
                action["metaData"]["configuration"] = properties
                lines.append(json.dumps(action))
    shutil.rmtree(log)
    log.mkdir()
    (log / f"{0:020d}.json").write_text("\n".join([*lines, *adds]) + "\n")
    return target


def write_sources(folder: Path, rows: int) -> dict[str, Path]:
    """Write the sources for MERGE and append as Parquet files, for a table of ``rows`` rows; return them by name.

    ``upserts``: 2 % of the table's rows with other salaries. ``news``: 1 % of its rows, and as many new
    ones. ``appended``: new rows, a tenth of the table's number.
    """
    folder.mkdir(parents=True, exist_ok=True)
    made = {"upserts": [], "news": [], "appended": []}
    for batch in people_batches(rows):
        ids = batch["id"].to_numpy()
        other = batch.set_column(7, PEOPLE.field(7), pc.add(batch["salary"], pa.scalar(1, pa.int32())))
        made["upserts"].append(other.filter(pa.array(ids % 50 == 7)))
        made["news"].append(other.filter(pa.array(ids % 100 == 7)))
    fresh = pa.concat_tables(people_batches(rows // 10))
    fresh = fresh.set_column(0, PEOPLE.field(0), pa.array(np.arange(rows, rows + rows // 10)))
    made["news"].append(fresh.slice(0, rows // 100))
    made["appended"].append(fresh)
    sources = {name: folder / f"{name}.parquet" for name in made}
    for name, parts in made.items():
        pq.write_table(pa.concat_tables(parts), sources[name], compression="snappy")
    return sources


def listing_once_settled(table: Path) -> Listing:
    """Return :func:`listing` once the newest version has the checksum that its writer makes in the background, if it does."""
    limit = time.monotonic() + _PATIENCE
    log = table / "_delta_log"
    while time.monotonic() < limit:
        newest = max(file.stem for file in log.glob("*.json"))
        if (log / f"{newest}.crc").exists():
            break
        time.sleep(0.02)
    return listing(table)


class Bin:
    """Tables to remove once their writers have certainly finished."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[float, Path]] = deque()

    def put(self, table: Path) -> None:
        """Schedule a table for removal, and remove those scheduled long enough ago."""
        now = time.monotonic()
        self._waiting.append((now, table))
        while self._waiting[0][0] < now - _PATIENCE:
            shutil.rmtree(self._waiting.popleft()[1], ignore_errors=True)


def listing(folder: Path) -> Listing:
    """Return the objects of a table, without the hidden checksum files of Hadoop's local file system."""
    found = {}
    for file in folder.rglob("*"):
        if not file.name.startswith(".") and file.is_file():
            stat = file.stat()
            found[str(file.relative_to(folder))] = (stat.st_size, stat.st_mtime_ns, stat.st_ino)
    return found


def put_since(before: Listing, after: Listing) -> Put:
    """Return the number of new or rewritten objects, and their bytes."""
    sizes = [each[0] for path, each in after.items() if before.get(path) != each]
    return len(sizes), sum(sizes)


def row_state(table: Path, version: int | None = None) -> tuple[int, int]:
    """Return the number of rows of a table, by default in its newest version, and the sum of a hash over all columns per row."""
    with delvec.connect() as lake:
        rows = lake.table(str(table)).to_duckdb(version=version)
        columns = ", ".join(f'"{name}"' for name in rows.columns)
        # A sum, because a duplicate row would cancel out in an exclusive or.
        query = f"SELECT count(*), sum(CAST(hash({columns}) AS HUGEINT)) FROM rows"
        ((count, total),) = rows.query("rows", query).fetchall()
    return int(count), int(total or 0)
