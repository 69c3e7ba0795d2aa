"""Writes deletion vectors on executors, for scans whose rows may exceed the memory of driver and service.

Bitmaps are shuffled by file, and the task with all rows of a file decides: small bitmaps are sent to
the driver; large ones are written as a deletion vector, whose descriptor is sent. Each task writes its own file, which the
service reserved before the job.

Tested in `tests/integration/spark/test_spark_vector_tasks.py`.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64
from pyspark.sql import DataFrame

from delvec_engines.dv_files import SENT_BYTES, DeletionVectorFiles, VectorFile
from delvec_engines.found_rows import FoundRows
from delvec_engines.marked_rows import MAX_AT_ONCE
from delvec_engines.scan import Scan
from delvec_engines.spark import failures
from delvec_engines.spark.dv_filter import VectorSource
from delvec_engines.spark.find_rows import folded, physical_rows
from delvec_engines.spark.row_sets import RowSets, drop_zip_importers
from delvec_errors import CorruptDeletionVector, DelvecError, from_wire
from delvec_kernel.deletion_vectors.deletion_vector import (
    Descriptor,
    deserialize_bitmap,
    encode,
    serialize_bitmap,
)

__all__ = ["find_into_vectors"]

_FILE_BYTES: Final = 2 << 20
"""Approximate maximum bytes of a deletion vector file."""
_MAX_TASKS: Final = 500
_BEYOND_FILES: Final = 1 << 33

_ANSWER: Final = "number int, rows binary, task int, offset int, size int, cardinality long, error string"
_ANSWER_SCHEMA: Final = pa.schema(
    [
        ("number", pa.int32()),
        ("rows", pa.binary()),
        ("task", pa.int32()),
        ("offset", pa.int32()),
        ("size", pa.int32()),
        ("cardinality", pa.int64()),
        ("error", pa.string()),
    ]
)


def find_into_vectors(
    matches: DataFrame, scan: Scan, numbers: list[int], dv_files: DeletionVectorFiles
) -> FoundRows:
    """Return the rows of a DataFrame with the columns FILE and ROW; large sets are written as deletion vectors.

    Args:
        matches: the rows found.
        scan: the files.
        numbers: the numbers of the files.
        dv_files: target of deletion vectors.

    Raises:
        CorruptDeletionVector: or a subclass: an existing deletion vector cannot be read.
        StorageError: a file cannot be written.
    """
    # The worst case is one bit per row.
    tasks = min(_MAX_TASKS, len(scan), 1 + physical_rows(scan) // 8 // _FILE_BYTES)
    files = dv_files.files(tasks)
    has_vector = pc.is_valid(scan.files["deletion_vector"])
    with_vector = [number for number, has in zip(numbers, has_vector.to_pylist(), strict=True) if has]
    work = _VectorJob(
        VectorSource.of(scan.filter(has_vector), with_vector),
        dict(zip(numbers, scan.files["num_records"].to_pylist(), strict=True)),
        files,
        SENT_BYTES // tasks,
    )
    answers = folded(matches).repartition(tasks, "file").mapInArrow(partial(_gather, work), _ANSWER).toArrow()
    paths = dict(zip(numbers, scan.files["path"].to_pylist(), strict=True))
    rows_by_path: dict[str, BitMap64] = {}
    descriptors: dict[str, Descriptor] = {}
    for answer in answers.to_pylist():
        if answer["error"]:
            raise from_wire(json.loads(answer["error"]))
        if answer["number"] not in paths:
            raise failures.unknown_file(scan)
        path = paths[answer["number"]]
        if answer["rows"] is not None:
            rows_by_path[path] = deserialize_bitmap(answer["rows"])
        else:
            descriptors[path] = Descriptor(
                storage_type="u",
                path_or_inline_dv=files[answer["task"]].path_or_inline_dv,
                offset=answer["offset"],
                size_in_bytes=answer["size"],
                cardinality=answer["cardinality"],
            )
    return FoundRows(scan, rows_by_path, descriptors)


@dataclass(frozen=True)
class _VectorJob:
    """The common state of all tasks; sent to executors.

    Attributes:
        source: existing deletion vectors.
        totals: physical rows by file number, if known.
        files: one file per task.
        budget: maximum bytes of bitmaps that a task may send.
    """

    source: VectorSource
    totals: Mapping[int, int | None]
    files: Sequence[VectorFile]
    budget: int


def _gather(work: _VectorJob, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Runs on executors."""
    from pyspark import TaskContext

    drop_zip_importers()
    context = TaskContext.get()
    try:
        yield _sent(_gathered(work, batches, context.partitionId() if context else 0))
    except DelvecError as error:
        # Not raised: Spark would retry in vain, and the error would reach the driver as text.
        yield _sent([{"error": json.dumps(error.to_wire())}])
        for _ in batches:
            pass


def _gathered(work: _VectorJob, batches: Iterator[pa.RecordBatch], task: int) -> list[dict[str, Any]]:
    row_sets = RowSets()
    for batch in batches:
        for number, rows in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True):
            row_sets.merge(number, rows, 0)
    few: list[dict[str, Any]] = []
    many: list[tuple[int, int, bytes]] = []
    for number in sorted(row_sets.found):
        rows = row_sets.found[number]
        if number in work.source.vectors:
            rows |= work.source.deleted_rows(number)
        if len(rows) == work.totals.get(number):
            few.append({"number": number, "rows": serialize_bitmap(rows)})  # next to nothing: the file goes
        else:
            many.append((number, len(rows), encode(_rebuilt(rows))))
    if sum(len(payload) for _, _, payload in many) <= work.budget:
        few += [{"number": number, "rows": payload[4:]} for number, _, payload in many]
        return few
    offsets = work.files[task].write(work.source.location, [payload for _, _, payload in many])
    return few + [
        {
            "number": number,
            "task": task,
            "offset": offset,
            "size": len(payload),
            "cardinality": cardinality,
        }
        for (number, cardinality, payload), offset in zip(many, offsets, strict=True)
    ]


def _rebuilt(rows: BitMap64) -> BitMap64:
    """Return the rows in a newly built bitmap, so that a retried task writes the same bytes.

    Raises:
        CorruptDeletionVector: a deletion vector has rows beyond the end of a file.
    """
    if len(rows) <= MAX_AT_ONCE:
        return BitMap64(rows.to_array())
    if rows.max() >= _BEYOND_FILES:
        raise CorruptDeletionVector(
            f"A deletion vector holds row index {rows.max()}, which no file can have; restore the table to a version "
            "before it."
        )
    made = BitMap64()
    for first in range(0, rows.max() + 1, MAX_AT_ONCE):
        made |= BitMap64((rows & BitMap64(range(first, first + MAX_AT_ONCE))).to_array())
    return made


def _sent(answers: Sequence[Mapping[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(list(answers), schema=_ANSWER_SCHEMA)
