"""The tables of the benchmarks, like people10m: one with a single file, and one with many small files."""

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

FIRST = ["Ada", "Ben", "Carla", "Dmitri", "Elena", "Farid", "Grace", "Hiro", "Ines", "Jonas"]
LAST = ["Adler", "Brandt", "Costa", "Dubois", "Eriksen", "Fischer", "Greco", "Haas", "Ito", "Jansen"]
PEOPLE = pa.schema(
    [
        ("id", pa.int64()),
        ("firstName", pa.string()),
        ("middleName", pa.string()),
        ("lastName", pa.string()),
        ("gender", pa.string()),
        ("birthDate", pa.timestamp("us", "UTC")),
        ("ssn", pa.string()),
        ("salary", pa.int32()),
    ]
)


def made_once(folder: Path, make: Callable[[Path], object]) -> Path:
    """Return a folder that ``make`` fills, unless an earlier run of a benchmark has filled it."""
    mark = folder / "_generated"
    if not mark.exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        make(folder)
        mark.touch()
    return folder


def people_batches(rows: int, step: int = 1_000_000) -> Iterator[pa.Table]:
    """Yield ``rows`` people with ids from 0; reproducible."""
    random = np.random.default_rng(7)
    pick = {
        "firstName": pa.array([f"{a}{n}" for a in FIRST for n in range(300)]),
        "middleName": pa.array([f"{a}{n}" for a in FIRST for n in range(400)]),
        "lastName": pa.array([f"{a}{n}" for a in LAST for n in range(900)]),
        "gender": pa.array(["F", "M"]),
    }
    for start in range(0, rows, step):
        count = min(step, rows - start)
        columns: dict[str, Any] = {"id": pa.array(np.arange(start, start + count))}
        for name, values in pick.items():
            columns[name] = values.take(pa.array(random.integers(0, len(values), count)))
        born = random.integers(-631_152_000, 1_104_537_600, count) * 1_000_000
        columns["birthDate"] = pa.array(born).cast(pa.timestamp("us", "UTC"))
        numbers = random.integers(100_000_000, 999_999_999, count)
        text = pa.array(numbers).cast(pa.string())
        columns["ssn"] = text
        columns["salary"] = pa.array(random.integers(20_000, 200_000, count).astype(np.int32))
        yield pa.table(columns).select(PEOPLE.names).cast(PEOPLE)


def write_people(path: Path, rows: int) -> None:
    """Write the people as one Parquet file."""
    with pq.ParquetWriter(path, PEOPLE, compression="snappy") as writer:
        for batch in people_batches(rows):
            writer.write_table(batch)


def clone(template: Path, target: Path) -> Path:
    """Copy a table to ``target``, with hard links to its data files; return ``target``."""
    shutil.rmtree(target, ignore_errors=True)
    for file in template.rglob("*"):
        copy = target / file.relative_to(template)
        if file.is_dir():
            copy.mkdir(parents=True, exist_ok=True)
            continue
        copy.parent.mkdir(parents=True, exist_ok=True)
        if "_delta_log" in file.parts:
            shutil.copy2(file, copy)
        else:
            os.link(file, copy)
    return target


def many_files(
    location: Path, files: int, *, rows: int = 1000, properties: Mapping[str, str] | None = None
) -> None:
    """Write a Delta table of ``files`` files of ``rows`` rows, each with ids from 0, in one commit.

    Every file is a hard link to the first; statistics are correct.
    """
    (location / "_delta_log").mkdir(parents=True)
    first = location / "part-00000.snappy.parquet"
    pq.write_table(pa.table({"id": np.arange(rows), "value": np.arange(rows) * 0.5}), first)
    size, now = first.stat().st_size, int(time.time() * 1000)
    fields = [
        {"name": "id", "type": "long", "nullable": True, "metadata": {}},
        {"name": "value", "type": "double", "nullable": True, "metadata": {}},
    ]
    features = {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}
    metadata = {
        "id": "5b3cbd73-1e3e-4c63-9f27-0f2f7a8cf3c9",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "partitionColumns": [],
        "configuration": {"delta.enableDeletionVectors": "true", **(properties or {})},
        "createdTime": now,
    }
    lines: list[dict[str, Any]] = [
        {"commitInfo": {"timestamp": now, "operation": "WRITE", "operationParameters": {}}},
        {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}},
        {"metaData": metadata},
    ]
    for number in range(files):
        path = f"part-{number:05d}.snappy.parquet"
        if number:
            os.link(first, location / path)
        stats = {
            "numRecords": rows,
            "minValues": {"id": 0, "value": 0.0},
            "maxValues": {"id": rows - 1, "value": (rows - 1) * 0.5},
            "nullCount": {"id": 0, "value": 0},
        }
        add = {
            "path": path,
            "partitionValues": {},
            "size": size,
            "modificationTime": now,
            "dataChange": True,
            "stats": json.dumps(stats),
        }
        lines.append({"add": add})
    text = "\n".join(json.dumps(line) for line in lines)
    (location / "_delta_log" / f"{0:020d}.json").write_text(text + "\n")
