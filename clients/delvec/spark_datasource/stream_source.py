"""``spark.readStream.format("delvec")``: a table's rows as they are added, in micro-batches.

One process on the driver answers for a query as long as it runs: how far the next batch goes, and which files it has.
Only the query's checkpoint says what it has read, as positions; a batch that is planned again has the same files.

PySpark 4.2 and later say where a batch starts, and that it may be limited. Before, Spark only asks for the newest
offset: the reader remembers where it is, and learns it after a restart from the empty range that Spark then plans.
"""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from delvec.change_feed.stream_options import StreamOptions
from delvec.engines.spark.file_slices import read_slices
from delvec.engines.spark.row_sets import plainly
from delvec.spark_datasource.partitions import FilesOfTask, cut
from delvec_kernel.errors import UnsupportedOperation

try:
    from pyspark.sql.streaming import datasource as limits
except ImportError:  # PySpark 4.0 and 4.1
    limits = None

if TYPE_CHECKING:
    from delvec.change_feed.stream import TableStream

__all__ = ["StreamReader", "default_limits", "reader_of"]

_FILES: Final = 1000
_IDLE_SECONDS: Final = 0.1
_BEHIND_SECONDS: Final = 3600.0
"""How long versions that added nothing are skipped without a batch, which would record them in the checkpoint.
A checkpoint that stays behind for longer than the log's retention cannot be resumed."""


class StreamReader(DataSourceStreamReader):  # type: ignore[misc]
    """What answers Spark for one query.

    Args:
        stream: the table.
        options: what to read; the limits among them are the stream's.
        columns: to read, by the spelling of the stream's schema.
        partition_bytes: about what a task reads.
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
        # Executors get the reader too, and need neither the service nor the token.
        return {}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return that nothing was read; where that is, the first batch's end says."""
        return dict(self._stream.beginning)

    @plainly
    def latestOffset(self, start: dict[str, Any] | None = None, limit: Any = None) -> dict[str, Any]:  # noqa: N802
        """Return where the next batch ends; the start where nothing is to be read.

        Args:
            start: from PySpark 4.2 on.
            limit: likewise.
        """
        if start is not None:
            everything = limits is not None and isinstance(limit, limits.ReadAllAvailable)
            return self._end_of_batch(start, limited=not everything)
        if self._at is None:
            self._at, self._guessed = self._stream.beginning, True
        self._at = self._end_of_batch(self._at, limited=True)
        return dict(self._at)

    def _end_of_batch(self, start: Mapping[str, Any], *, limited: bool) -> dict[str, Any]:
        """Return where a batch ends; versions that added nothing make one when a query starts, and now and then."""
        time.sleep(max(0.0, self._looked_at + _IDLE_SECONDS - time.monotonic()))
        begin = start if self._passed is None or self._passed[0] != start else self._passed[1]
        step = self._stream.step(begin, limited=limited, last_version=self._last_version)
        now = time.monotonic()
        is_due = now - self._noted_at >= _BEHIND_SECONDS and step.end != start
        if step.found or start == self._stream.beginning or is_due:
            self._passed, self._noted_at = None, now
            return dict(step.end)
        # Spark asks again at once, and the whole time.
        self._passed, self._looked_at = (start, step.end), now
        return dict(start)

    @plainly
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the tasks of a batch; nothing where it is empty."""
        if start == end:
            self._go_on_at(end)
            return []
        scans = self._stream.scans(start, end)
        return [part for scan in scans for part in cut(scan, self._columns, self._partition_bytes)]

    def _go_on_at(self, position: Mapping[str, Any]) -> None:
        """Take note of where a query was that is started again."""
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
        """The same for a Spark that limits batches, and stops at what there was when it began."""

        def getDefaultReadLimit(self) -> Any:  # noqa: N802 - Spark's name
            """Return what tells Spark that there are limits; those that count are the options."""
            if self._options.max_files is None and self._options.max_bytes is not None:
                return limits.ReadMaxBytes(self._options.max_bytes)
            return limits.ReadMaxFiles(self._options.max_files)

        def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
            """Take note of what there is now."""
            self._last_version = self._stream.newest()


def default_limits(options: StreamOptions) -> StreamOptions:
    """Return options with Delta's limit where none is given.

    Before PySpark 4.2 there is none: Trigger.AvailableNow would stop after one batch, and not after all that there is.
    """
    if limits is None or options.max_files is not None or options.max_bytes is not None:
        return options
    return replace(options, max_files=_FILES)


def reader_of(
    stream: "TableStream", options: StreamOptions, columns: Sequence[str], partition_bytes: int
) -> StreamReader:
    """Return what this PySpark can work with."""
    kind = StreamReader if limits is None else _LimitedReader
    return kind(stream, options, columns, partition_bytes)
