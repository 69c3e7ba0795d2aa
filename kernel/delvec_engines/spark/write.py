"""Writes data files on executors, directly to the table's location.

Each task writes the final files of its rows and returns their actions as JSON rows; files are not moved, renamed or
listed afterwards. Files of failed tasks carry the transaction's id in their names and are never
referred to. A task returns errors about data as rows, so that they arrive typed.

Tested in `tests/integration/spark/test_spark_write.py`.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import replace
from functools import partial
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everyone calls it
from pyspark.sql import types as T  # noqa: N812

from delvec_contract.codec import as_json, from_json
from delvec_engines.arrow_conversion import cast_batch
from delvec_engines.compacted_files import Compacted, ReadOrder, RowRange, row_runs
from delvec_engines.parquet_writer import DataFileWriter, write_data_files
from delvec_engines.protocol import WriteTarget
from delvec_engines.scan import Scan
from delvec_engines.spark import jvm
from delvec_engines.spark.dv_filter import VectorSource
from delvec_engines.spark.file_values import FILE
from delvec_engines.spark.job_descriptions import described
from delvec_engines.spark.manifest import file_numbers
from delvec_engines.spark.row_expressions import TaskChecks
from delvec_engines.spark.row_sets import drop_zip_importers
from delvec_engines.spark.scan import ROW, ScanFrames, spark_schema
from delvec_engines.spark.session_properties import is_remote
from delvec_errors import CorruptTable, DelvecError, InvalidSchema, SchemaMismatch, StorageError, from_wire
from delvec_kernel.actions.actions import AddFile
from delvec_kernel.schema.column_paths import backticked
from delvec_kernel.schema.types import schema_from
from delvec_kernel.transaction.transaction_changes import RowRun

__all__ = [
    "check_schema",
    "compact",
    "copy_rows",
    "in_tasks",
    "is_spark_frame",
    "ntz_to_timestamp",
    "num_records",
    "rebalanced",
    "with_writers",
    "write_frame",
]

_OverBatches = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
_RESULT: Final = "add string, error string"
_RESULT_SCHEMA: Final = pa.schema([("add", pa.string()), ("error", pa.string())])
_ANSWER_SCHEMA: Final = "adds string, row_ranges string, error string"
_COMPACTED_SCHEMA: Final = pa.schema([(name, pa.string()) for name in ("adds", "row_ranges", "error")])
_FEW_BYTES: Final = 4 << 20
_BINS_AT_ONCE: Final = 15
"""As delta-spark's ``spark.databricks.delta.optimize.maxThreads``."""


def is_spark_frame(data: Any) -> bool:
    """Whether ``data`` is a Spark DataFrame, classic or Connect; imports neither."""
    return isinstance(data, DataFrame) or is_remote(data)


def check_schema(frame: DataFrame, target: WriteTarget, computed_columns: Sequence[str] = ()) -> None:
    """Compare names and types before a job starts; columns that are ``computed_columns`` may be absent.

    Raises:
        SchemaMismatch: the frame has columns that the table lacks, or vice versa.
    """
    try:
        arrow = schema_from(frame.schema).to_arrow()
    except InvalidSchema as error:
        raise SchemaMismatch(f"The DataFrame does not fit the table: {error.message}") from error
    given = target.schema.without(computed_columns)
    cast_batch(
        pa.RecordBatch.from_pylist([], schema=arrow),
        given,
        given.to_arrow(),
        check_nulls=True,
    )


def ntz_to_timestamp(frame: DataFrame, target: WriteTarget) -> DataFrame:
    """Cast TIMESTAMP_NTZ to TIMESTAMP where the table has that type, in the session's time zone.

    Tasks would take them for UTC, regardless of the session's time zone.
    """
    fields_by_name = {field.name.lower(): field.dataType for field in spark_schema(target.schema).fields}
    kinds = [
        (field, _ntz_to_timestamp(field.dataType, fields_by_name.get(field.name.lower())))
        for field in frame.schema.fields
    ]
    if all(kind == field.dataType for field, kind in kinds):
        return frame
    columns = ((field.name, kind, F.col(backticked(field.name))) for field, kind in kinds)
    return frame.select(*(column.cast(kind).alias(name) for name, kind, column in columns))


def _ntz_to_timestamp(value_type: T.DataType, column_type: T.DataType | None) -> T.DataType:
    match value_type, column_type:
        case T.TimestampNTZType(), T.TimestampType():
            return column_type
        case T.ArrayType(), T.ArrayType():
            return T.ArrayType(
                _ntz_to_timestamp(value_type.elementType, column_type.elementType), value_type.containsNull
            )
        case T.MapType(), T.MapType():
            key = _ntz_to_timestamp(value_type.keyType, column_type.keyType)
            return T.MapType(
                key,
                _ntz_to_timestamp(value_type.valueType, column_type.valueType),
                value_type.valueContainsNull,
            )
        case T.StructType(), T.StructType():
            inner = {field.name.lower(): field.dataType for field in column_type.fields}
            kinds = (
                (field, _ntz_to_timestamp(field.dataType, inner.get(field.name.lower())))
                for field in value_type.fields
            )
            return T.StructType([T.StructField(field.name, kind, field.nullable) for field, kind in kinds])
    return value_type


def rebalanced(frame: DataFrame, target: WriteTarget) -> DataFrame:
    """Rebalance rows into tasks of similar size with few partitions, if the table has optimized writes enabled.

    Otherwise each task writes a file for each partition of its rows.
    """
    if target.configuration.get("delta.autoOptimize.optimizeWrite", "").strip().lower() != "true":
        return frame
    names = {name.lower(): name for name in frame.columns}
    partitioned = [names[name.lower()] for name in target.partition_columns if name.lower() in names]
    return frame.hint("rebalance", *(F.col(backticked(name)) for name in partitioned))


def with_writers(frame: DataFrame, target: WriteTarget) -> tuple[DataFrame, WriteTarget]:
    """Divide rows among tasks that all know how many they are, which unique identity values require.

    One task numbers few rows, without gaps.
    """
    size = jvm.expected_size(frame)
    is_few = size is not None and size.nbytes <= _FEW_BYTES
    writers = 1 if is_few else int(frame.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1)
    return frame.repartition(writers), replace(target, writers=writers)


def write_frame(frame: DataFrame, target: WriteTarget, checks: TaskChecks | None = None) -> list[AddFile]:
    """Run the job that writes the frame's rows; return the new files.

    Args:
        frame: the rows.
        target: the table.
        checks: checks that tasks run on new rows.

    Raises:
        SchemaMismatch: a value does not fit the table.
        ConstraintViolation: a row does not satisfy the table's constraints.
        StorageError: storage did not answer.
    """
    answers = in_tasks(frame, partial(_write_task, target, checks), _RESULT).toArrow()
    adds = []
    for answer in answers.to_pylist():
        if answer["error"]:
            raise from_wire(json.loads(answer["error"]))
        adds.append(from_json(AddFile, answer["add"]))
    return adds


def in_tasks(frame: DataFrame, function: _OverBatches, answer: str | T.StructType) -> DataFrame:
    """Apply a function to a frame's rows with ``mapInArrow``, under safe column names, as it does not accept all."""
    names = list(frame.columns)
    plain = frame.toDF(*(f"c{position}" for position in range(len(names))))
    return plain.mapInArrow(partial(_named, function, names), answer)


def _named(
    function: _OverBatches, names: list[str], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Runs on executors."""
    drop_zip_importers()
    return function(batch.rename_columns(names) for batch in batches)


def _write_task(
    target: WriteTarget, checks: TaskChecks | None, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Runs on executors."""
    from pyspark import TaskContext

    context = TaskContext.get()
    task = context.partitionId() if context else 0
    try:
        adds = _write(batches if checks is None else checks.checked(batches), target, task)
    except DelvecError as error:
        # Not raised: Spark would retry in vain, and the error would reach the driver as text.
        yield _answer([], [json.dumps(error.to_wire())])
        for _ in batches:
            pass
        return
    yield _answer([as_json(add) for add in adds], [])


def _write(batches: Iterator[pa.RecordBatch], target: WriteTarget, task: int) -> list[AddFile]:
    try:
        return write_data_files(batches, target, task=task)
    except OSError as error:
        raise StorageError(
            f"A task cannot write its files to {target.location}: {error}; retry, or check storage."
        ) from error


def _answer(adds: list[str], errors: list[str]) -> pa.RecordBatch:
    columns = [[*adds, *[None] * len(errors)], [*[None] * len(adds), *errors]]
    return pa.RecordBatch.from_arrays(
        [pa.array(each, pa.string()) for each in columns], schema=_RESULT_SCHEMA
    )


def copy_rows(
    frames: ScanFrames, scan: Scan, deleted_rows: Mapping[str, BitMap64], target: WriteTarget
) -> list[AddFile]:
    """Copy the live rows of the scan's files, without those in ``deleted_rows``, to new files.

    Constraints are not checked again.

    Args:
        frames: the frames of the session.
        scan: the files.
        deleted_rows: by path; may include rows that are already deleted.
        target: the table after the commit.

    Raises:
        CorruptTable: the files do not have the rows that their statistics say.
        StorageError: storage did not answer.
    """
    absent = _absent_rows(scan, deleted_rows)
    rest = scan.filter(_keeps_rows(scan, absent))
    if not len(rest):
        return []
    adds = write_frame(frames.live(rest, scan.schema.names, deleted_rows=absent), target)
    _check_all_read(rest, absent, sum(num_records(add) for add in adds))
    return adds


def compact(frames: ScanFrames, scan: Scan, bins: Sequence[Sequence[str]], target: WriteTarget) -> Compacted:
    """Write the live rows of each bin's files together; see :meth:`delvec_engines.protocol.Engine.compact`.

    Each bin is a job with one task, and several jobs run at once, as in delta-spark: no shuffle, and a row's position
    in the new file is known. Not one job over a union of the bins: Spark 4.1 may run that as a single task.

    Raises:
        CorruptTable: the files do not have the rows that their statistics say.
        StorageError: storage did not answer.
    """
    parts = [scan.only(paths) for paths in bins]
    adds: list[AddFile] = []
    rewritten: dict[str, Sequence[RowRun]] = {}
    with ThreadPoolExecutor(_BINS_AT_ONCE, "delvec-compact") as pool:
        jobs = [
            pool.submit(copy_context().run, _write_bin, frames, part, target, number)
            for number, part in enumerate(parts)
        ]
        try:
            for part, job in zip(parts, jobs, strict=True):
                written, row_ranges = job.result()
                rewritten |= row_runs(part, row_ranges, written)
                adds += written
        finally:
            for job in jobs:
                job.cancel()
    return Compacted(adds, rewritten)


def _write_bin(
    frames: ScanFrames, scan: Scan, target: WriteTarget, number: int
) -> tuple[list[AddFile], list[RowRange]]:
    names, numbers = scan.schema.names, file_numbers(len(scan))
    located = frames.located(scan, names, numbers, only_live=True).coalesce(1)
    source_rows = located.select(*(backticked(name) for name in (*names, FILE, ROW)))
    with described(frames.spark, scan.name, "compact files"):
        task = partial(_compact_task, target, len(names), number, _vectors(frames, scan, numbers))
        answers = in_tasks(source_rows, task, _ANSWER_SCHEMA).toArrow()
    places = {file: place for place, file in enumerate(numbers)}
    adds: list[AddFile] = []
    row_ranges: list[RowRange] = []
    for answer in answers.to_pylist():
        if answer["error"]:
            raise from_wire(json.loads(answer["error"]))
        adds += [from_json(AddFile, add) for add in json.loads(answer["adds"])]
        row_ranges += [RowRange(places[file], *rest) for file, *rest in json.loads(answer["row_ranges"])]
    return adds, row_ranges


def _vectors(frames: ScanFrames, scan: Scan, numbers: list[int]) -> VectorSource:
    """Return the deletion vectors for a task: themselves, or where to read them if they are too large to send."""
    if frames.in_tasks(scan):
        return VectorSource.of(scan, numbers)
    vectors = scan.deletion_vectors if scan.has_deletion_vectors else {}
    return VectorSource.of(
        scan, numbers, {path: vectors.get(path, BitMap64()) for path in scan.files["path"].to_pylist()}
    )


def _compact_task(
    target: WriteTarget,
    width: int,
    number: int,
    vectors: VectorSource,
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Write a task's rows; runs on executors. The first ``width`` columns are the table's, then file and row."""
    order, error = ReadOrder(vectors.deleted_rows), None
    adds: list[AddFile] = []
    try:
        with DataFileWriter(target, task=number) as writer:
            for batch in batches:
                files, rows = (column.to_numpy(zero_copy_only=False) for column in batch.columns[width:])
                order.add(files, rows)
                writer.write(batch.select(range(width)))
            adds = writer.finish()
    except DelvecError as failed:
        error = json.dumps(failed.to_wire())
        for _ in batches:
            pass
    row_ranges = [[each.file, each.first, each.last, each.count] for each in order.row_ranges]
    answer = {
        "adds": json.dumps([as_json(add) for add in adds]),
        "row_ranges": json.dumps(row_ranges),
        "error": error,
    }
    yield pa.RecordBatch.from_pylist([answer], schema=_COMPACTED_SCHEMA)


def num_records(add: AddFile) -> int:
    """Return the number of rows of a new file."""
    return int(json.loads(add.stats or "{}")["numRecords"])


def _absent_rows(scan: Scan, row_deletes: Mapping[str, BitMap64]) -> dict[str, BitMap64]:
    """Return all rows to leave out, by path: those in ``row_deletes``, and those already deleted."""
    absent = dict(scan.deletion_vectors)
    for path in scan.files["path"].to_pylist():
        if row_deletes.get(path):
            absent[path] = absent[path] | row_deletes[path] if path in absent else row_deletes[path]
    return absent


def _keeps_rows(scan: Scan, absent: Mapping[str, BitMap64]) -> pa.Array:
    """Return which files keep rows, according to statistics; true if unknown."""
    deleted = [len(absent.get(path, ())) for path in scan.files["path"].to_pylist()]
    return pc.fill_null(pc.greater(scan.files["num_records"], pa.array(deleted, pa.int64())), fill_value=True)


def _check_all_read(scan: Scan, absent: Mapping[str, BitMap64], num_copied_rows: int) -> None:
    """Check that every remaining row was copied, before the old files are removed."""
    numbers = scan.files["num_records"].to_pylist()
    if None in numbers:
        return
    expected = sum(numbers) - sum(len(absent.get(path, ())) for path in scan.files["path"].to_pylist())
    if expected != num_copied_rows:
        raise CorruptTable(
            f"Rewriting {len(scan)} files of table '{scan.name}', version {scan.version}, copied {num_copied_rows} rows, but "
            f"their statistics say {expected}; nothing was committed. Run `delvec check`.",
            table=scan.name,
            version=scan.version,
        )
