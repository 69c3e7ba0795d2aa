"""Row changes that Spark distributes and DuckDB computes: each task runs the DuckDB engine over its share of the files.

A share is a set of files, or a row range of a large one: DuckDB decodes the other columns only for rows that the
condition selects, and reads nothing outside a range. Only a task's input and result pass
between JVM and Python: bitmaps, the actions of new files, and small numbers of new rows.

Tested in `tests/integration/spark/test_spark_duckdb_tasks.py`.
"""

import os
import pickle
import re
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64
from pyspark.sql import SparkSession

from delvec_contract.codec import as_json, from_json
from delvec_engines.change_files import ChangeFileWriter
from delvec_engines.parquet_writer import DataFileWriter
from delvec_engines.protocol import WriteTarget
from delvec_engines.row_changes import ChangedRows, RowChange
from delvec_engines.scan import Scan
from delvec_engines.spark.fallback import error_of_task, first_line, is_cancelled, sent_to_driver
from delvec_engines.spark.find_rows import MAX_ROWS_FOR_BITMAPS, physical_rows
from delvec_engines.spark.job_descriptions import described
from delvec_engines.spark.local_execution import (
    OBJECT_STORES,
    driver_engine,
    is_enabled,
    is_out_of_reach,
    local_source,
)
from delvec_engines.spark.recent_failures import RecentFailures
from delvec_engines.spark.row_sets import drop_zip_importers
from delvec_engines.spark.session_properties import is_remote
from delvec_engines.spark.task_rows import BufferedWriter, batches_in, sendable_bytes
from delvec_errors import DelvecError, EngineUnavailable, StorageError
from delvec_kernel.actions.actions import AddFile, Cdc
from delvec_kernel.deletion_vectors.deletion_vector import deserialize_bitmap, serialize_bitmap
from delvec_kernel.expressions.predicate import Predicate
from delvec_kernel.schema.types import StructType, has_variant
from delvec_kernel.table_properties import parse_byte_size

__all__ = ["ENABLED", "DuckDBTasks", "Share", "shares", "task_memory"]

ENABLED: Final = "spark.delvec.duckdbTasks.enabled"

_CANNOT_START: Final = re.compile(
    r"ModuleNotFoundError: |ImportError: |Can't get attribute |PYTHON_VERSION_MISMATCH|Cannot run program"
)
"""In Spark's messages about executors that lack a package, or have another version of it, or of Python."""
_SCHEMES: Final = ("file:", *OBJECT_STORES)
_MIN_BYTES: Final = 8 << 20
"""Bytes that are worth a task; smaller files are not divided."""
_MAX_BYTES: Final = 128 << 20
_MAX_SHARES: Final = 1 << 14
"""Tasks of a command; sizes are the log's word, and a false one must not make millions of them."""
_LARGEST_FILE: Final = 1 << 44
"""Bytes above which a size is taken for false: the sum of all must be a number of 64 bits."""
_MEMORY: Final = 512 << 20
"""DuckDB's memory limit per task, in bytes; beyond it DuckDB spills."""
_MIN_MEMORY: Final = 128 << 20
_CONTAINERS: Final = ("yarn", "k8s:")
"""Masters that end an executor which takes more memory than it was given."""
_MAX_FILES: Final = 1 << 17
_NO_LAST_ROW: Final = 1 << 62
"""The end of the row range of a share that has the rest of its file."""
_failures: Final = RecentFailures()
"""Why jobs failed, by application: executors may lack a package, and a job fails only after several attempts."""
_Answer = dict[str, Any]


@dataclass(frozen=True)
class Share:
    """The files and rows that one task reads.

    Attributes:
        scan: files.
        within: the task's row range by path, for files that several tasks share.
    """

    scan: Scan
    within: Mapping[str, range]


@dataclass(frozen=True)
class _TaskConfig:
    """What all tasks of a job share; sent to executors.

    Attributes:
        predicate: the rows to find; None for a row change.
        change: the row change, without its source.
        source: the source's rows as an Arrow IPC stream.
        source_schema: the source's schema.
        target: the table after the change.
        sends_few: whether a few new rows are sent to the driver instead of written.
        threads: threads per task.
        memory: bytes for DuckDB in a task.
    """

    threads: int
    memory: int
    predicate: Predicate | None = None
    change: RowChange | None = None
    source: bytes | None = None
    source_schema: StructType | None = None
    target: WriteTarget | None = None
    sends_few: bool = False


class DuckDBTasks:
    """Runs a session's commands on the DuckDB engine, in Spark tasks.

    Args:
        spark: a classic or Spark Connect session.
        parquet_bytes: see :class:`~delvec_engines.duckdb.DuckDBEngine`.
    """

    where: Final = "in tasks"

    def __init__(self, spark: SparkSession, *, parquet_bytes: bool | None = None) -> None:
        self._spark = spark
        self._parquet_bytes = parquet_bytes

    def unsuitable(
        self, scan: Scan, change: RowChange | None = None, target: WriteTarget | None = None
    ) -> str | None:
        """Return why tasks cannot run a command, for logs; None if they can.

        Raises:
            BadRequest: a setting is not understood.
        """
        reason = _turned_off(self._spark) or _unsuitable_scan(scan)
        if reason is not None:
            return reason
        if change is not None and target is not None:
            return _unsuitable_change(change, target)
        rows = physical_rows(scan)
        return f"the plan has {rows:,} rows" if rows > MAX_ROWS_FOR_BITMAPS else None

    def find_rows(self, scan: Scan, predicate: Predicate) -> Mapping[str, BitMap64]:
        """Find rows; see :meth:`delvec_engines.protocol.Engine.find_rows`."""
        return _bitmaps(self._run(scan, self._config(predicate=predicate), "find rows"), "changed")

    def change_rows(
        self, scan: Scan, change: RowChange, source: pa.Table | None, target: WriteTarget
    ) -> ChangedRows:
        """Change rows, with the source's rows in this process; see :meth:`delvec_engines.protocol.Engine.change_rows`."""
        work = self._config(
            change=replace(change, source=None),
            source=None if source is None else _stream(source),
            source_schema=None if change.source is None else change.source.schema,
            target=target,
            # Rows of many partitions are better written by the tasks in parallel.
            sends_few=not target.partition_columns,
        )
        return _ShareResults(work, self._run(scan, work, "change rows")).complete(
            scan, driver_engine(self._spark, self._parquet_bytes)
        )

    def _config(self, **work: Any) -> _TaskConfig:
        return _TaskConfig(_threads(self._spark), task_memory(self._spark), **work)

    def _run(self, scan: Scan, work: _TaskConfig, step: str) -> list[_Answer]:
        context = self._spark.sparkContext
        parts = shares(scan, context.defaultParallelism)
        try:
            sent = context.parallelize([pickle.dumps(part) for part in parts], len(parts))
            with described(self._spark, scan.name, step):
                answers: list[_Answer] = sent.mapPartitionsWithIndex(
                    partial(_run_share, pickle.dumps(work))
                ).collect()
        except Exception as error:
            if not is_cancelled(error):
                _failures.note(context.applicationId, f"tasks failed a few minutes ago: {first_line(error)}")
            if _CANNOT_START.search(str(error)):
                raise EngineUnavailable(
                    f"Spark's executors cannot run DuckDB in tasks: {first_line(error)}. Install Delvec with its extra "
                    f"'local' there, or set {ENABLED} to false."
                ) from error
            raise
        for answer in answers:
            failed = error_of_task(answer)
            if failed is not None:
                raise failed
        return answers


def task_memory(spark: SparkSession) -> int:
    """Return the bytes that DuckDB may take in a task.

    Where containers limit an executor's memory, half of a task's part of what it has beside Java: the rest is for
    Python, the source of a MERGE and the rows being written.
    """
    context = spark.sparkContext
    if not context.master.startswith(_CONTAINERS):
        return _MEMORY
    conf = context.getConf()
    java = _mebibytes(conf.get("spark.executor.memory"), 1024)
    factor = float(conf.get("spark.executor.memoryOverheadFactor", "0.1") or 0.1)
    beside = _mebibytes(conf.get("spark.executor.memoryOverhead"), max(384, int(java * factor)))
    beside = _mebibytes(conf.get("spark.executor.pyspark.memory"), beside)
    cores = int(conf.get("spark.executor.cores", "1") or 1)
    return min(_MEMORY, (beside << 20) // max(1, cores // _threads(spark)) // 2)


def _mebibytes(text: str | None, default: int) -> int:
    """Return a setting of Spark that is in MiB unless it has a unit."""
    if not text:
        return default
    size = int(text) << 20 if text.isdecimal() else parse_byte_size(text)
    return default if size is None else size >> 20


def shares(scan: Scan, parallel: int) -> list[Share]:
    """Divide a scan's files, in order, into shares of similar size.

    Args:
        scan: a scan with at least one file.
        parallel: how many tasks run concurrently.
    """
    sizes = np.clip(scan.files["size"].to_numpy().astype(np.int64), 1, _LARGEST_FILE)
    counts = scan.files["num_records"].to_pylist()
    ends = np.cumsum(sizes)
    total = int(ends[-1])
    tasks = max(1, min(parallel, total // _MIN_BYTES), -(-total // _MAX_BYTES))
    tasks = min(tasks, _MAX_SHARES)
    share = -(-total // tasks)
    files: list[list[int]] = [[] for _ in range(tasks)]
    within: list[dict[int, range]] = [{} for _ in range(tasks)]
    for number, (end, size) in enumerate(zip(ends.tolist(), sizes.tolist(), strict=True)):
        start, count = end - size, counts[number]
        first, last = start // share, (end - 1) // share
        if first == last or count is None or size < _MIN_BYTES:
            files[(start + size // 2) // share].append(number)
            continue
        cuts = [0, *(count * (at * share - start) // size for at in range(first + 1, last + 1)), None]
        for task, (row, stop) in enumerate(pairwise(cuts), first):
            # The last range is open-ended, because statistics may undercount the rows.
            rows = range(row or 0, _NO_LAST_ROW if stop is None else stop)
            if rows:
                files[task].append(number)
                within[task][number] = rows
    paths = scan.files["path"]
    return [
        Share(
            replace(scan, files=scan.files.take(pa.array(chosen, pa.int64()))),
            {paths[number].as_py(): rows for number, rows in parts.items()},
        )
        for chosen, parts in zip(files, within, strict=True)
        if chosen
    ]


def _turned_off(spark: SparkSession) -> str | None:
    if is_remote(spark):
        return "with Spark Connect, tasks cannot be given work of their own"
    if not is_enabled(spark, ENABLED, default=True):
        return f"{ENABLED} is false"
    if not find_spec("duckdb"):
        return "DuckDB is not installed"
    memory = task_memory(spark)
    if memory < _MIN_MEMORY:
        return (
            f"a task has {memory:,} bytes beside Java for DuckDB, which spark.executor.memoryOverhead gives"
        )
    return _failures.reason(spark.sparkContext.applicationId)


def _unsuitable_scan(scan: Scan) -> str | None:
    if not 0 < len(scan) <= _MAX_FILES:
        return f"the plan has {len(scan):,} files"
    if has_variant(scan.schema):
        return "the table has columns of type variant"
    if not scan.location.startswith(_SCHEMES):
        return "executors may not have access to the table's storage"
    return "storage did not respond a few minutes ago" if is_out_of_reach(scan) else None


def _unsuitable_change(change: RowChange, target: WriteTarget) -> str | None:
    if target.identity:
        return "the table has identity columns"
    for each in change.expressions():
        if not each.is_deterministic:
            # Each task would have its own current time.
            return f"the expression {each.text[:200]!r} has another value in each task"
    return None


def _threads(spark: SparkSession) -> int:
    return max(1, int(spark.sparkContext.getConf().get("spark.task.cpus", "1") or 1))


def _stream(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_table(rows)
    sent: bytes = sink.getvalue().to_pybytes()
    return sent


def _bitmaps(answers: Sequence[_Answer], kind: str) -> dict[str, BitMap64]:
    found: dict[str, BitMap64] = {}
    for answer in answers:
        for path, sent in answer[kind]:
            rows = deserialize_bitmap(sent)
            found[path] = found[path] | rows if path in found else rows
    return found


# --- in the driver, after the tasks ---------------------------------------------------------------------------


@dataclass(frozen=True)
class _ShareResults:
    """The tasks' results, and the work that needs all of them."""

    work: _TaskConfig
    answers: Sequence[_Answer]

    def complete(self, scan: Scan, engine: Any) -> ChangedRows:
        """Insert unmatched source rows, write the rows that tasks sent, and sum up."""
        change, target = _change(self.work), self.work.target
        assert target is not None  # noqa: S101 - rows are changed
        answers = self.answers
        adds = [from_json(AddFile, add) for each in answers for add in each["adds"]]
        changes = [from_json(Cdc, file) for each in answers for file in each["changes"]]
        rows_inserted = 0
        if change.inserts or any(each["few"] or each["few_changes"] for each in answers):
            with DataFileWriter(target) as writer, ChangeFileWriter(target) as feed:
                for answer in answers:
                    for sink, sent in ((writer, answer["few"]), (feed, answer["few_changes"])):
                        for rows in sent:
                            for batch in batches_in(rows):
                                sink.write(batch)
                if change.inserts and change.source is not None:
                    rows_inserted = engine.insert_rows(
                        scan, change, target, self._matched(), _sinks(writer, feed)
                    )
                changes += feed.finish()
                adds += writer.finish()
        counts = np.sum([each["counts"] for each in answers], axis=0)
        by_action = dict.fromkeys(("update", "delete"), 0)
        for count, clause in zip(counts.tolist(), change.clauses, strict=True):
            if clause.action in by_action:
                by_action[clause.action] += count
        return ChangedRows(
            row_deletes=_bitmaps(answers, "changed"),
            adds=adds,
            change_files=changes,
            matched=_bitmaps(answers, "matched") if change.inserts else {},
            rows_updated=by_action["update"],
            rows_deleted=by_action["delete"],
            rows_inserted=rows_inserted,
            source_rows=self._source_rows,
        )

    @property
    def _source_rows(self) -> int:
        return max(int(each["source_rows"]) for each in self.answers)

    def _matched(self) -> np.ndarray:
        matched = np.zeros(self._source_rows, np.bool_)
        for answer in self.answers:
            numbers = np.frombuffer(deserialize_bitmap(answer["sources"]).to_array(), np.uint64)
            matched[numbers.astype(np.int64)] = True
        return matched


def _change(work: _TaskConfig) -> RowChange:
    """Return the change with its source decoded."""
    assert work.change is not None  # noqa: S101 - rows are changed
    if work.source is None or work.source_schema is None:
        return work.change
    with pa.ipc.open_stream(pa.py_buffer(work.source)) as stream:
        rows = stream.read_all()
    return replace(work.change, source=local_source(rows, work.source_schema))


def _sinks(rows: Any, changes: Any) -> Any:
    from delvec_engines.duckdb.write import RowSinks

    return RowSinks(rows, changes)


# --- on executors ---------------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def _engine(threads: int, memory: int) -> Any:
    """Return this worker's engine, cached because creating a database takes longer than a small share."""
    from delvec_engines.duckdb import DuckDBEngine

    # A directory of the executor's: on disks made for it, closed to others, and removed with it, which may be killed.
    local = os.environ.get("SPARK_LOCAL_DIRS", "").partition(",")[0] or tempfile.gettempdir()
    spilled = Path(local) / f"delvec-{uuid.uuid4()}"
    return DuckDBEngine(memory_limit=memory, temp_directory=str(spilled), threads=threads)


def _run_share(sent: bytes, number: int, parts: Iterator[bytes]) -> Iterator[_Answer]:
    drop_zip_importers()
    work: _TaskConfig = pickle.loads(sent)  # noqa: S301 - the driver's own
    for each in parts:
        part: Share = pickle.loads(each)  # noqa: S301
        try:
            engine = _engine(work.threads, work.memory)
            if work.predicate is not None:
                matching_rows = engine.find_part(part.scan, work.predicate, part.within)
                yield {"changed": _sent(matching_rows)}
            else:
                yield _changed(engine, work, part, number)
        except DelvecError as error:
            yield sent_to_driver(error)
        except OSError as error:
            yield sent_to_driver(StorageError(f"A task cannot read or write files of the table: {error}"))


def _changed(engine: Any, work: _TaskConfig, part: Share, number: int) -> _Answer:
    change, target = _change(work), work.target
    assert target is not None  # noqa: S101 - rows are changed
    limit = 0
    if work.sends_few:
        # The budget for rows sent to the driver includes those of the change feed.
        limit = sendable_bytes(number) // (3 if change.change_feed else 1)
    with (
        BufferedWriter(limit, lambda: DataFileWriter(target, task=number)) as writer,
        BufferedWriter(limit, lambda: ChangeFileWriter(target, task=number)) as feed,
    ):
        row_changes = engine.change_part(part.scan, change, target, part.within, _sinks(writer, feed))
        changes, few_changes = feed.finish()
        adds, few = writer.finish()
    return {
        "changed": _sent(row_changes.changed),
        "matched": _sent(row_changes.matched),
        "sources": serialize_bitmap(BitMap64(np.flatnonzero(row_changes.is_matched).astype(np.uint64))),
        "source_rows": len(row_changes.is_matched),
        "counts": row_changes.counts.tolist(),
        "adds": [as_json(add) for add in adds],
        "changes": [as_json(file) for file in changes],
        "few": few,
        "few_changes": few_changes,
    }


def _sent(rows_by_path: Mapping[str, BitMap64]) -> list[tuple[str, bytes]]:
    return [(path, serialize_bitmap(rows)) for path, rows in rows_by_path.items() if rows]
