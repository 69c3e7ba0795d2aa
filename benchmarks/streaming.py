"""Streams of a hundred small batches, written to a table and read from one."""

import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from benchmarks.dml_contenders import Contender
from benchmarks.dml_tables import listing, listing_once_settled, put_since
from benchmarks.dml_worker import Runs
from benchmarks.measure import timed
from benchmarks.tables import clone, people_batches

__all__ = ["read_stream", "write_batches", "write_stream"]

_FORMATS = {"Delvec on Spark": "delvec", "delta-spark with DVs": "delta", "delta-spark without DVs": "delta"}


def write_batches(folder: Path, batches: int, rows: int) -> Path:
    """Write the batches as Parquet files, which a stream reads in the order of their names; return the directory."""
    folder.mkdir(parents=True)
    for number, batch in enumerate(people_batches(batches * rows, rows)):
        path = folder / f"batch-{number:05d}.parquet"
        pq.write_table(batch, path)
    return folder


def write_stream(contender: Contender, scratch: Path, template: Path, batches: Path, warm: Path) -> Runs:
    """Write each file of ``batches`` to a copy of a table as one batch; runs in the worker.

    Args:
        contender: the contender.
        scratch: directory for the copy and for checkpoints.
        template: a table without rows.
        batches: a directory of Parquet files.
        warm: another one with few files, streamed first as a warm-up.
    """
    contender.settle()
    write = _writer(contender, scratch)
    write(clone(template, scratch / f"stream-{uuid.uuid4()}"), warm)
    table = clone(template, scratch / f"stream-{uuid.uuid4()}")
    contender.touch(table)
    before = listing(table)
    seconds = timed(lambda: write(table, batches))
    return Runs([seconds], [put_since(before, listing_once_settled(table))], table)


def _writer(contender: Contender, scratch: Path) -> Callable[[Path, Path], None]:
    if contender.spark is not None:
        return lambda table, batches: _stream(contender, scratch, table, batches)
    if contender.name == "deltalake":
        return _append_with_deltalake
    return lambda table, batches: _append(contender, table, batches)


def _stream(contender: Contender, scratch: Path, table: Path, batches: Path) -> None:
    spark = contender.spark
    schema = spark.read.parquet(str(batches)).schema
    source = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(batches))
    query = (
        source.writeStream.format(_FORMATS[contender.name])
        .option("checkpointLocation", str(scratch / f"checkpoint-{uuid.uuid4()}"))
        .trigger(availableNow=True)
        .start(str(table))
    )
    query.awaitTermination()


def _append(contender: Any, table: Path, batches: Path) -> None:
    """Emulate a stream in one process: one version per batch, exactly once."""
    target = contender.lake.table(str(table))
    for number, path in enumerate(sorted(batches.glob("*.parquet"))):
        target.append(pq.read_table(path), txn=("stream", number))


def _append_with_deltalake(table: Path, batches: Path) -> None:
    from deltalake import CommitProperties, Transaction, write_deltalake

    for number, path in enumerate(sorted(batches.glob("*.parquet"))):
        properties = CommitProperties(app_transactions=[Transaction("stream", number)])
        write_deltalake(str(table), pq.read_table(path), mode="append", commit_properties=properties)


def read_stream(contender: Contender, scratch: Path, table: Path, rows: int) -> Runs:
    """Stream a table, one file per batch, and discard its rows; runs in the worker, only on Spark.

    Raises:
        ValueError: rows are missing or duplicated.
    """
    contender.settle()
    spark = contender.spark
    spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", 10_000)
    runs = Runs()
    # The first run, of one batch, is a warm-up.
    for files in (rows, 1):
        source = spark.readStream.format(_FORMATS[contender.name]).option("maxFilesPerTrigger", files)
        writer = source.load(str(table)).writeStream.format("noop")
        writer = writer.option("checkpointLocation", str(scratch / f"checkpoint-{uuid.uuid4()}"))
        started = time.perf_counter()
        query = writer.start()
        try:
            query.processAllAvailable()
            runs.seconds = [time.perf_counter() - started]
            progress = query.recentProgress
        finally:
            query.stop()
        seen = sum(each.numInputRows for each in progress)
        if seen != rows:
            raise ValueError(f"{seen} rows came, and there are {rows}")
        runs.batches = sum(each.numInputRows > 0 for each in progress)
    return runs
