"""Scans of ten thousand files, three in ten with deletion vectors, by Delvec and delta-spark."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import delvec
from benchmarks.contenders import DeltaSpark, DelvecOnSpark
from benchmarks.measure import Figure, timed
from benchmarks.tables import made_once

__all__ = ["measure_vectors"]

ROWS = 1_000
BUCKETS = 10
_TIME = 1_767_225_600_000


def measure_vectors(
    lake: delvec.Connection,
    spark: Any,
    tables: Path,
    *,
    files: int,
    warm: int,
    runs: int,
    say: Callable[[str], None],
) -> list[Figure]:
    """Return a figure per contender for a scan of all columns; delta-spark writes the deletion vectors.

    Raises:
        SystemExit: the contenders do not read the same rows.
    """

    def make(folder: Path) -> None:
        _write(folder, files)
        # One row in ten of three files in ten.
        spark.sql(f"DELETE FROM delta.`{folder.absolute()}` WHERE bucket < 3 AND id % 10 = 7").collect()

    location = made_once(tables / f"vectors-{files}", make)
    scanned = lake.table(str(location)).plan()[0]
    with_vectors = scanned.files["deletion_vector"].null_count
    if len(scanned) != files or files - with_vectors != files * 3 // BUCKETS:
        raise SystemExit(f"{files - with_vectors} of {len(scanned)} files have deletion vectors")
    contenders = [DelvecOnSpark(lake, spark), DeltaSpark(spark, deletion_vectors=True)]
    figures = [Figure("scan, 30 % of the files with DVs", each.name, files=files) for each in contenders]
    sums = {}
    for contender in contenders:
        for _ in range(warm):
            sums[contender.name] = contender.sums(location.absolute())
    if len(set(sums.values())) != 1:
        raise SystemExit(f"the contenders read different rows: {sums}")
    for _ in range(runs):
        for contender, figure in zip(contenders, figures, strict=True):
            figure.seconds.append(timed(lambda c=contender: c.sums(location.absolute())))
    for figure in figures:
        say(f"{figure.job}, {figure.contender}: {figure.median:.2f} s ({figure.spread})")
    return figures


def _write(location: Path, files: int) -> None:
    """Write a table of ``files`` files, hard links to one file per bucket; statistics are correct."""
    log = location / "_delta_log"
    log.mkdir(parents=True)
    kinds = {"id": "long", "value": "double", "bucket": "integer"}
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in kinds.items()]
    features = ["deletionVectors"]
    metadata = {
        "id": "0c7b6f4e-8a0c-4d7e-9a55-2f7f0d0b6c1e",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "partitionColumns": ["bucket"],
        "configuration": {"delta.enableDeletionVectors": "true"},
        "createdTime": _TIME,
    }
    protocol = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": features,
        "writerFeatures": features,
    }
    lines: list[dict[str, Any]] = [{"protocol": protocol}, {"metaData": metadata}]
    firsts: list[Path] = []
    for bucket in range(BUCKETS):
        (location / f"bucket={bucket}").mkdir()
        firsts.append(location / f"bucket={bucket}" / "part-00000.snappy.parquet")
        ids = np.arange(ROWS) + bucket * ROWS
        pq.write_table(pa.table({"id": ids, "value": ids * 0.5}), firsts[-1])
    sizes = [first.stat().st_size for first in firsts]
    for number in range(files):
        bucket = number % BUCKETS
        path = f"bucket={bucket}/part-{number // BUCKETS:05d}.snappy.parquet"
        if number >= BUCKETS:
            os.link(firsts[bucket], location / path)
        low, high = bucket * ROWS, bucket * ROWS + ROWS - 1
        stats = {
            "numRecords": ROWS,
            "minValues": {"id": low, "value": low * 0.5},
            "maxValues": {"id": high, "value": high * 0.5},
            "nullCount": {"id": 0, "value": 0},
        }
        add = {
            "path": path,
            "partitionValues": {"bucket": str(bucket)},
            "size": sizes[bucket],
            "modificationTime": _TIME,
            "dataChange": True,
            "stats": json.dumps(stats),
        }
        lines.append({"add": add})
    (log / f"{0:020d}.json").write_text("".join(json.dumps(line) + "\n" for line in lines))
