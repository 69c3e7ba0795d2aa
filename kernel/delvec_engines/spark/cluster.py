"""Sorts rows along a space-filling curve with Spark: a shuffle by ranges of the key, and one task per new file.

Tested in `tests/integration/engines/test_cluster.py`.
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64
from pyspark.sql import DataFrame
from pyspark.sql import types as T  # noqa: N812 - as everyone calls it

from delvec_contract.codec import as_json, from_json
from delvec_engines.compacted_files import Compacted, ReadRows, check_rows
from delvec_engines.parquet_writer import DEFAULT_FILE_SIZE, DataFileWriter
from delvec_engines.protocol import WriteTarget
from delvec_engines.row_map_writer import RowMapWriter
from delvec_engines.scan import Scan
from delvec_engines.space_filling_curves import SAMPLE_ROWS, CurveKeys
from delvec_engines.spark.file_values import FILE
from delvec_engines.spark.job_descriptions import described
from delvec_engines.spark.manifest import file_numbers
from delvec_engines.spark.row_sets import drop_zip_importers
from delvec_engines.spark.scan import ROW, ScanFrames
from delvec_engines.spark.write import in_tasks
from delvec_errors import DelvecError, from_wire
from delvec_kernel.actions.actions import AddFile
from delvec_kernel.schema.column_paths import ColumnPath, backticked
from delvec_kernel.transaction.transaction_changes import RowMapFile
from delvec_maintenance.compaction import target_file_size
from delvec_maintenance.zcubes import files_to_come

__all__ = ["cluster"]

_KEY: Final = "key"
_ANSWER_SCHEMA: Final = "adds string, row_map string, file int, count bigint, rows binary, error string"
_WRITTEN_SCHEMA: Final = pa.schema(
    [
        ("adds", pa.string()),
        ("row_map", pa.string()),
        ("file", pa.int32()),
        ("count", pa.int64()),
        ("rows", pa.binary()),
        ("error", pa.string()),
    ]
)


def cluster(
    frames: ScanFrames,
    scan: Scan,
    bins: Sequence[Sequence[str]],
    columns: Sequence[ColumnPath],
    target: WriteTarget,
) -> list[Compacted]:
    """Write the live rows of each bin's files sorted; see :meth:`delvec_engines.protocol.Engine.cluster`.

    Raises:
        CorruptTable: a file does not have numRecords rows.
        StorageError: storage did not answer.
    """
    with described(frames.spark, scan.name, "sort files"):
        return [_cluster_bin(frames, scan.only(paths), columns, target) for paths in bins]


def _cluster_bin(
    frames: ScanFrames, scan: Scan, columns: Sequence[ColumnPath], target: WriteTarget
) -> Compacted:
    names, numbers = scan.schema.names, file_numbers(len(scan))
    located = frames.located(scan, names, numbers, only_live=True)
    source_rows = located.select(*(backticked(name) for name in (*names, FILE, ROW)))
    keys = CurveKeys.of(_sample(source_rows, scan, columns), columns)
    plain = T.StructType(
        [
            *(
                T.StructField(f"c{place}", item.dataType, nullable=True)
                for place, item in enumerate(source_rows.schema.fields)
            ),
            T.StructField(_KEY, T.LongType(), nullable=True),
        ]
    )
    files = files_to_come(scan.files, target_file_size(target.configuration) or DEFAULT_FILE_SIZE)
    # All rows of one key are in one task, however many, so limit the rows of a file as well.
    rows = sum(count or 0 for count in scan.files["num_records"].to_pylist())
    file_rows = max(1, -(-rows * 5 // (files * 4))) if rows else None
    keyed = in_tasks(source_rows, partial(_with_keys, keys), plain)
    # One task and one file per range.
    ordered = keyed.repartitionByRange(files, _KEY).sortWithinPartitions(_KEY).drop(_KEY)
    paths = dict(zip(numbers, scan.files["path"].to_pylist(), strict=True))
    answers = in_tasks(
        ordered, partial(_write_task, target, list(names), file_rows, paths), _ANSWER_SCHEMA
    ).toArrow()
    places = {number: place for place, number in enumerate(numbers)}
    adds: list[AddFile] = []
    row_map: list[RowMapFile] = []
    read: dict[int, BitMap64] = {}
    count = 0
    for answer in answers.to_pylist():
        if answer["error"]:
            raise from_wire(json.loads(answer["error"]))
        adds += [from_json(AddFile, add) for add in json.loads(answer["adds"] or "[]")]
        row_map += [from_json(RowMapFile, file) for file in json.loads(answer["row_map"] or "[]")]
        count += answer["count"] or 0
        if answer["file"] is not None:
            read.setdefault(places[answer["file"]], BitMap64()).update(BitMap64.deserialize(answer["rows"]))
    check_rows(scan, count, read)
    return Compacted(adds, {}, row_map)


def _sample(located: DataFrame, scan: Scan, columns: Sequence[ColumnPath]) -> pa.Table:
    names = list(dict.fromkeys(path[0] for path in columns))
    rows = sum(count or 0 for count in scan.files["num_records"].to_pylist()) or SAMPLE_ROWS
    part = located.select(*(backticked(name) for name in names))
    return part.sample(min(1.0, SAMPLE_ROWS / rows)).limit(2 * SAMPLE_ROWS).toArrow()


def _with_keys(keys: CurveKeys, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Runs on executors."""
    for batch in batches:
        names = [*(f"c{place}" for place in range(batch.num_columns)), _KEY]
        yield pa.RecordBatch.from_arrays([*batch.columns, keys(batch)], names=names)


def _write_task(
    target: WriteTarget,
    names: Sequence[str],
    file_rows: int | None,
    paths: Mapping[int, str],
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Write the rows of a task; runs on executors. The columns are the table's, then file and row.

    Args:
        target: the table.
        names: the names of its columns.
        file_rows: maximum rows per file.
        paths: the paths of the source files by number.
        batches: the rows.
    """
    from pyspark import TaskContext

    drop_zip_importers()
    context = TaskContext.get()
    read = ReadRows()
    try:
        task = context.partitionId() if context else 0
        sorted_numbers = np.array(sorted(paths), np.int64)
        with (
            DataFileWriter(target, task=task, file_size=sys.maxsize, file_rows=file_rows) as writer,
            RowMapWriter(target.location, [paths[number] for number in sorted_numbers.tolist()]) as row_map,
        ):
            for batch in batches:
                files, rows = (
                    column.to_numpy(zero_copy_only=False) for column in batch.columns[len(names) :]
                )
                read.add(files, rows)
                row_map.write(np.searchsorted(sorted_numbers, files), rows.astype(np.int64))
                writer.write(batch.select(range(len(names))).rename_columns(list(names)))
            adds, row_map_files = writer.finish(), row_map.finish()
    except DelvecError as failed:
        yield _answer(error=json.dumps(failed.to_wire()))
        for _ in batches:
            pass
        return
    count, rows_by_number = read.finish()
    yield _answer(adds=_as_text(adds), row_map=_as_text(row_map_files), count=count)
    for number, rows_of_file in rows_by_number.items():
        yield _answer(file=number, rows=rows_of_file.serialize())


def _as_text(files: Sequence[AddFile] | Sequence[RowMapFile]) -> str:
    return json.dumps([as_json(file) for file in files])


def _answer(**values: object) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([values], schema=_WRITTEN_SCHEMA)
