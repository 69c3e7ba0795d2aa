"""Copies row groups on executors, one task per new file.

No rows pass through Spark: a task receives the files to copy, and returns the new file's path.

Tested in `tests/integration/engines/test_copy_plan.py`.
"""

import json
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import SparkSession

from delvec_engines.copy_jobs import CopiedFile, CopyJob, named_sizes, outcome
from delvec_engines.scan import Scan
from delvec_engines.spark.job_descriptions import described
from delvec_engines.spark.write import in_tasks
from delvec_errors import DelvecError, from_wire
from delvec_parquet.row_group_copy import SourceFile
from delvec_storage.row_groups import read_footers

__all__ = ["TaskCopier"]

_FOOTERS_OF_A_TASK: Final = 64
_ANSWER: Final = "number long, done binary, error string"
_ANSWER_SCHEMA: Final = pa.schema([("number", pa.int64()), ("done", pa.binary()), ("error", pa.string())])

_Work = Callable[[int], Any]


class TaskCopier:
    """Reads footers and copies row groups in Spark tasks; see :class:`~delvec_engines.copy_jobs.RowGroupCopier`.

    Args:
        spark: a classic or Spark Connect session.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def footers(self, scan: Scan) -> Sequence[SourceFile]:
        """Return the footers of a scan's files; see :class:`~delvec_engines.copy_jobs.RowGroupCopier`."""
        files = named_sizes(scan)
        parts = [
            files[first : first + _FOOTERS_OF_A_TASK] for first in range(0, len(files), _FOOTERS_OF_A_TASK)
        ]
        source_files: list[SourceFile] = []
        for each in self._run(
            scan, "read footers", partial(_footers, scan.location, scan.roots, parts), parts
        ):
            if isinstance(each, DelvecError):
                raise each
            source_files += each
        return source_files

    def copy(self, scan: Scan, jobs: Sequence[CopyJob]) -> Iterable[CopiedFile | DelvecError]:
        """Run the jobs; see :class:`~delvec_engines.copy_jobs.RowGroupCopier`."""
        return self._run(scan, "copy row groups", partial(_copy, jobs), jobs)

    def _run(self, scan: Scan, step: str, work: _Work, parts: Sequence[Any]) -> list[Any]:
        """Run a task for each part; return each result or error."""
        count = len(parts)
        with described(self._spark, scan.name, step):
            numbers = self._spark.range(0, count, 1, count)
            answers = in_tasks(numbers, partial(_task, work), _ANSWER).toArrow()
        # Trusted: pickled by this package's own tasks.
        task_results = {
            each["number"]: from_wire(json.loads(each["error"]))
            if each["error"]
            else pickle.loads(each["done"])  # noqa: S301
            for each in answers.to_pylist()
        }
        return [task_results[number] for number in range(count)]


def _task(work: _Work, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Runs on executors."""
    for batch in batches:
        for number in batch.column(0).to_pylist():
            answer = {"number": number}
            try:
                task_result = work(number)
            except DelvecError as error:
                # Retrying would not help, and a raised error would reach the driver as text.
                task_result = error
            if isinstance(task_result, DelvecError):
                answer["error"] = json.dumps(task_result.to_wire())
            else:
                answer["done"] = pickle.dumps(task_result)
            yield pa.RecordBatch.from_pylist([answer], schema=_ANSWER_SCHEMA)


def _footers(location: str, roots: Any, parts: Sequence[Sequence[tuple[str, int]]], number: int) -> Any:
    """Runs on executors."""
    return read_footers(location, parts[number], is_allowed=roots.allows)


def _copy(jobs: Sequence[CopyJob], number: int) -> CopiedFile | DelvecError:
    """Runs on executors."""
    return outcome(jobs[number])
