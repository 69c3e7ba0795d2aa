"""``spark.readStream.format("delvec")``: the stream reader, which reads new rows in micro-batches.

One process on the driver serves a query while it runs: it plans the end and the files of each batch.
The query's progress is only in its checkpoint, as positions; planning a batch again gives the same files.

PySpark 4.2 and later pass the start and the limit of a batch. Earlier versions only ask for the newest
offset: the reader remembers its position, and after a restart learns it from the empty range that Spark plans first.

Tested in `tests/integration/spark/test_spark_stream_source.py`.
"""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from delvec.spark_datasource.input_partitions import FilesOfTask, cut
from delvec_commands.change_feed.stream_options import StreamOptions
from delvec_engines.spark.file_slices import read_slices
from delvec_engines.spark.row_sets import without_traceback
from delvec_errors import UnsupportedOperation

try:
    from pyspark.sql.streaming import datasource as limits
except ImportError:  # PySpark 4.0 and 4.1
    limits = None

if TYPE_CHECKING:
    from delvec_commands.change_feed.stream import TableStream

__all__ = ["StreamReader", "default_limits", "reader_of"]

_FILES: Final = 1000
_IDLE_SECONDS: Final = 0.1
_BEHIND_SECONDS: Final = 3600.0
"""How long versions without new rows are skipped without a batch, which would record them in the checkpoint.
A checkpoint that stays behind for longer than the log's retention cannot be resumed."""


class StreamReader(DataSourceStreamReader):  # type: ignore[misc]
    """The stream reader of one query.

    Args:
        stream: the table.
        options: what to read, with limits.
        columns: the columns to read, spelled as in the stream's schema.
        partition_bytes: approximate bytes per task.
    """

    def __init__(
        self, stream: "TableStream", options: StreamOptions, columns: Sequence[str], partition_bytes: int
    ) -> None:
        self._stream = stream
        self._options = options
        self._columns = columns
        self._partition_bytes = partition_bytes
        self._at: Mapping[str, Any] | None = None
        self._guessed = False
        self._last_version: int | None = None
        self._passed: tuple[Mapping[str, Any], Mapping[str, Any]] | None = None
        self._looked_at = 0.0
        self._noted_at = -math.inf

    def __getstate__(self) -> dict[str, Any]:
        # Without connection and token, which executors do not need.
        return {}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the position of a stream that has read nothing; the end of the first batch records the real start."""
        return dict(self._stream.beginning)

    @without_traceback
    def latestOffset(self, start: dict[str, Any] | None = None, limit: Any = None) -> dict[str, Any]:  # noqa: N802
        """Return the end of the next batch; the start if there is nothing to read.

        Args:
            start: from PySpark 4.2 on.
            limit: from PySpark 4.2 on.
        """
        if start is not None:
            everything = limits is not None and isinstance(limit, limits.ReadAllAvailable)
            return self._end_of_batch(start, limited=not everything)
        if self._at is None:
            self._at, self._guessed = self._stream.beginning, True
        self._at = self._end_of_batch(self._at, limited=True)
        return dict(self._at)

    def _end_of_batch(self, start: Mapping[str, Any], *, limited: bool) -> dict[str, Any]:
        """Return the end of a batch; versions without new rows are a batch only at the query's start and now and then."""
        time.sleep(max(0.0, self._looked_at + _IDLE_SECONDS - time.monotonic()))
        begin = start if self._passed is None or self._passed[0] != start else self._passed[1]
        step = self._stream.step(begin, with_limits=limited, last_version=self._last_version)
        now = time.monotonic()
        is_due = now - self._noted_at >= _BEHIND_SECONDS and step.end != start
        if step.found or start == self._stream.beginning or is_due:
            self._passed, self._noted_at = None, now
            return dict(step.end)
        # Spark polls continuously: remember the answer, and plan again only after a pause.
        self._passed, self._looked_at = (start, step.end), now
        return dict(start)

    @without_traceback
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the tasks of a batch; none if it is empty."""
        if start == end:
            self._resume_at(end)
            return []
        scans = self._stream.scans(start, end)
        return [part for scan in scans for part in cut(scan, self._columns, self._partition_bytes)]

    def _resume_at(self, position: Mapping[str, Any]) -> None:
        """Record the position of a restarted query."""
        if self._guessed and self._at != position:
            raise UnsupportedOperation(
                "Spark asked for the latest offset before it gave the query's position: format('delvec') does not work "
                "with spark.sql.streaming.triggerAvailableNowWrapper.enabled on this PySpark; unset it"
            )
        if self._at is None:
            self._at = position

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Runs on executors."""
        assert isinstance(partition, FilesOfTask)  # noqa: S101 - of partitions()
        return read_slices(partition.read, partition.slices)


if limits is not None:

    class _LimitedReader(StreamReader, limits.SupportsTriggerAvailableNow):  # type: ignore[misc]
        """A reader with rate limits and Trigger.AvailableNow, for PySpark 4.2 and later."""

        def getDefaultReadLimit(self) -> Any:  # noqa: N802 - Spark's name
            """Return a placeholder limit: the real limits are in the options."""
            if self._options.max_files is None and self._options.max_bytes is not None:
                return limits.ReadMaxBytes(self._options.max_bytes)
            return limits.ReadMaxFiles(self._options.max_files)

        def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
            """Record the newest version, at which the query will stop."""
            self._last_version = self._stream.newest()


def default_limits(options: StreamOptions) -> StreamOptions:
    """Return options with Delta's default limit if none is given.

    Before PySpark 4.2 there is no limit: Trigger.AvailableNow would stop after the first batch.
    """
    if limits is None or options.max_files is not None or options.max_bytes is not None:
        return options
    return replace(options, max_files=_FILES)


def reader_of(
    stream: "TableStream", options: StreamOptions, columns: Sequence[str], partition_bytes: int
) -> StreamReader:
    """Return the reader class for the installed PySpark."""
    kind = StreamReader if limits is None else _LimitedReader
    return kind(stream, options, columns, partition_bytes)
