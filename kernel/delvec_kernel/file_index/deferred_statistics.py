"""Lazily loaded checkpoint statistics, read on demand or in the background.

Statistics are most of a checkpoint's bytes, and a plan needs only those of its predicate's columns. Segments use
:class:`DeferredStatistics` as their source until :meth:`DeferredStatistics.complete` has read everything.

Tested in `tests/integration/service/snapshots/test_statistics_backlog.py`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import pairwise
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from delvec_errors import CorruptLog
from delvec_kernel.file_index.column_bounds import KnownColumn, keep_bounds
from delvec_kernel.file_index.segment import Segment, SegmentsLost, Summary
from delvec_kernel.file_index.segment_parts import BLOCK_ROWS, STATS, encoded_batch
from delvec_kernel.statistics.typed_statistics import (
    STATS_PARSED,
    fields_of_bounds,
    typed_bounds,
    typed_columns,
)

__all__ = ["DEFERRED_ROW", "DeferredStatistics", "StatisticsFile"]

DEFERRED_ROW: Final = "deferred_row"
"""The extra column, after those of FILES_SCHEMA, with the row of a file's statistics in :class:`DeferredStatistics`."""

_GROUP: Final = 8
"""Segments that are kept together, after which memory is given back."""
_AT_ONCE: Final = 32_768
_AT_ONCE_BYTES: Final = 32 * 1024 * 1024
_LOOSE_BYTES: Final = 128 * 1024 * 1024
"""Of rows whose segment is not complete; what is beyond is compressed until it is."""

_Rows = npt.NDArray[np.uint32]
_Keep = Callable[[Sequence[Segment]], None]


class StatisticsFile(Protocol):
    """A checkpoint file that can be read again.

    Attributes:
        parsed: the type of its ``stats_parsed``.
        has_text: whether it also has ``stats``.
        starts: the first row of each row group, then the total number of rows.
    """

    parsed: pa.StructType
    has_text: bool
    starts: Sequence[int]

    def read(self, groups: range, fields: Sequence[str]) -> Iterator[tuple[int, pa.StructArray]]:
        """Yield batches in order: the number of the first row, and ``add`` with these fields.

        Raises:
            CorruptLog: the file is unreadable or has changed.
        """
        ...

    def texts(self, adds: pa.StructArray) -> pa.Array:
        """Return the statistics in ``adds`` as JSON, from ``stats`` or else ``stats_parsed``."""
        ...


class DeferredStatistics:
    """The statistics of one checkpoint's segments; a thread-safe SegmentSource.

    Args:
        lock: a reentrant lock that guards all reads.
        close: called once everything has been read.
    """

    def __init__(self, lock: AbstractContextManager[Any], close: Callable[[], None] = lambda: None) -> None:
        self._lock = lock
        self._close = close
        self._files: list[tuple[int, StatisticsFile]] = []
        self._num_rows = 0
        self._rows: dict[str, _Rows] = {}
        self._segments: dict[str, Segment] = {}
        self._read_columns: set[str] = set()
        self._background_read: Iterator[Segment] | None = None
        self._completed: set[str] = set()
        self._is_complete = False

    def __len__(self) -> int:
        """The number of segments whose statistics are read from here."""
        return len(self._segments)

    @property
    def num_rows(self) -> int:
        """Rows of the files that it has so far."""
        return self._num_rows

    @property
    def is_complete(self) -> bool:
        """Whether nothing is left to be read."""
        return self._is_complete

    # --- building segments ----------------------------------------------------------------------------------

    def add_file(self, file: StatisticsFile) -> int | None:
        """Add a file and return the DEFERRED_ROW of its first row; None if its schema differs from earlier files'."""
        if self._files and (file.parsed, file.has_text) != (
            self._files[0][1].parsed,
            self._files[0][1].has_text,
        ):
            return None
        first = self._num_rows
        self._files.append((first, file))
        self._num_rows += file.starts[-1]
        return first

    def adopt(self, segment: Segment, rows: npt.NDArray[np.int64]) -> None:
        """Register a segment built without statistics; ``rows`` are its DEFERRED_ROW values, ascending."""
        segment.source = self
        self._rows[segment.id] = rows.astype(np.uint32)
        self._segments[segment.id] = segment

    # --- SegmentSource --------------------------------------------------------------------------------------

    def blobs(self, ids: Sequence[str], name: str) -> Mapping[str, bytes]:
        """Return one part of each segment.

        Raises:
            SegmentsLost: the checkpoint can no longer be read.
        """
        if name != STATS:
            raise SegmentsLost(*ids)
        with self._lock:
            lacking = [self._segments[id_] for id_ in ids if self._lacks_text(self._segments[id_])]
            if lacking:
                self._read_texts(lacking)
        blobs_by_id, elsewhere = {}, []
        for id_ in ids:
            blob = self._segments[id_].blob(name)
            if blob is None:
                elsewhere.append(id_)  # another thread completed, saved and evicted it after this call began
            else:
                blobs_by_id[id_] = blob
        for id_ in elsewhere:
            source = self._segments[id_].source
            if source is None or source is self:
                raise SegmentsLost(id_)
            blobs_by_id.update(source.blobs([id_], name))
        return blobs_by_id

    def optional_blobs(self, ids: Sequence[str], name: str) -> Mapping[str, bytes]:
        """Return the bounds of a column for the segments that have it as a typed column."""
        self._read_column(lambda column: column.part == name)
        blobs_by_id: dict[str, bytes] = {}
        for id_ in ids:
            blob, source = self._segments[id_].blob(name), self._segments[id_].source
            if blob is not None:
                blobs_by_id[id_] = blob
            elif source is not None and source is not self:  # saved and forgotten since it was asked for
                blobs_by_id.update(source.optional_blobs([id_], name))
        return blobs_by_id

    def summaries(self, ids: Sequence[str], column: str) -> Mapping[str, Summary]:
        """Return the summaries of a column for the segments that have it as a typed column."""
        self._read_column(lambda each: each.key == column)
        found = {id_: self._segments[id_].summary(column) for id_ in ids}
        return {id_: summary for id_, summary in found.items() if summary is not None}

    # --- reading --------------------------------------------------------------------------------------------

    def complete(self, stopping: Callable[[], bool] = lambda: False, keep: _Keep = lambda _: None) -> bool:
        """Read everything still unread and release the checkpoint; return whether that finished.

        The lock is released between segments, so that requests can interleave.

        Args:
            stopping: called from time to time; returns whether to give up.
            keep: called with segments that are complete, and may save them, so that those of a large table are never in
                memory together. What it raises is raised. Only one thread at a time may pass one.

        Raises:
            SegmentsLost: the checkpoint can no longer be read.
        """
        whole: list[Segment] = []
        while not stopping():
            with self._lock:
                if self._is_complete:
                    return True
                if self._background_read is None:
                    self._background_read = self._read_all()
                read = next(self._background_read, None)
                if read is None and len(self._completed) < len(self._segments):  # an earlier call has failed
                    raise SegmentsLost(*self._segments)
            if read is not None:
                whole.append(read)
            if whole and (read is None or len(whole) == _GROUP):
                keep(whole)
                whole = []
                # Otherwise Arrow keeps freed memory and allocates more for the next read.
                pa.default_memory_pool().release_unused()
            if read is None:
                with self._lock:
                    self._release()
                return True
        return False

    def _read_all(self) -> Iterator[Segment]:
        """Read everything still unread, yielding each segment once it is complete."""
        segments = list(self._segments.values())
        texts = ["stats"] if any(map(self._lacks_text, segments)) else []
        for segment, adds in self._statistics_of(segments, [*texts, STATS_PARSED]):
            self._store(segment, adds)
            yield segment

    def _release(self) -> None:
        for segment in self._segments.values():
            if segment.source is self:
                segment.source = None
        self._is_complete = True
        self._files.clear()
        self._close()

    def _store(self, segment: Segment, adds: pa.StructArray) -> None:
        if self._lacks_text(segment):
            self._store_text(segment, adds)
        parsed = _child(adds, STATS_PARSED)
        records = _child(parsed, "numRecords")
        for names, (data_type, bounds) in typed_bounds(parsed, pa.nulls(len(adds)), records).items():
            column = KnownColumn(names, names, data_type, is_partition=False)
            if segment.blob(column.part) is None:
                keep_bounds(segment, column, bounds)
        self._completed.add(segment.id)

    def _store_text(self, segment: Segment, adds: pa.StructArray) -> None:
        texts = self._files[0][1].texts(adds).cast(pa.string())
        blob = encoded_batch(pa.RecordBatch.from_arrays([texts], [STATS]), BLOCK_ROWS)
        segment.keep_blob(STATS, blob, new=True)

    def _lacks_text(self, segment: Segment) -> bool:
        return segment.source is self and segment.blob(STATS) is None

    def _read_texts(self, segments: Sequence[Segment]) -> None:
        """Read the JSON text of these segments, and of others in the same row groups."""
        is_in_groups = np.zeros(self._num_rows + 1, np.bool_)
        for segment in segments:
            for start, end in self._group_ranges(self._rows[segment.id]):
                is_in_groups[start:end] = True
        others = [
            segment
            for id_, segment in self._segments.items()
            if self._lacks_text(segment) and is_in_groups[self._rows[id_]].all()
        ]
        for segment, adds in self._statistics_of(others, ["stats", STATS_PARSED]):
            self._store_text(segment, adds)

    def _read_column(self, is_wanted: Callable[[KnownColumn], bool]) -> None:
        """Read the bounds of one typed column for all segments; a no-op if the checkpoint lacks the column."""
        with self._lock:
            columns = typed_columns(self._files[0][1].parsed) if self._files else {}
            for names, data_type in columns.items():
                column = KnownColumn(names, names, data_type, is_partition=False)
                if column.key in self._read_columns or not is_wanted(column):
                    continue
                fields = [
                    f"{STATS_PARSED}.{field}" for field in fields_of_bounds(self._files[0][1].parsed, names)
                ]
                segments = [
                    each
                    for each in self._segments.values()
                    if each.source is self and each.blob(column.part) is None
                ]
                try:
                    for segment, adds in self._statistics_of(segments, fields):
                        parsed = _child(adds, STATS_PARSED)
                        records = _child(parsed, "numRecords")
                        bounds = typed_bounds(parsed, pa.nulls(len(adds)), records).get(names)
                        if bounds is not None and bounds[0] == data_type:
                            keep_bounds(segment, column, bounds[1])
                except SegmentsLost:
                    return  # the fallback to JSON text raises it
                self._read_columns.add(column.key)

    def _group_ranges(self, rows: _Rows) -> Iterator[tuple[int, int]]:
        """Yield the (start, end) rows of each row group that contains one of ``rows``."""
        for first, file in self._files:
            starts = np.asarray(file.starts) + first
            places = np.unique(np.searchsorted(starts, rows, "right")) - 1
            for place in places[(places >= 0) & (places < len(starts) - 1)]:
                yield int(starts[place]), int(starts[place + 1])

    def _statistics_of(
        self, segments: Sequence[Segment], fields: Sequence[str]
    ) -> Iterator[tuple[Segment, pa.StructArray]]:
        """Yield each segment with the statistics of its rows, in row order.

        Raises:
            SegmentsLost: the checkpoint can no longer be read.
        """
        waiting = sorted(segments, key=lambda segment: int(self._rows[segment.id][0]))
        pieces = {segment.id: _SegmentRows() for segment in segments}
        try:
            for start, adds in _joined(self._read(waiting, fields)):
                done = self._dealt(waiting, pieces, start, adds)
                del adds
                for segment in done:
                    waiting.remove(segment)
                    whole = pieces.pop(segment.id).joined()
                    whole.validate(full=True)  # Arrow does not check strings for valid UTF-8 on read
                    yield segment, whole
        except (CorruptLog, pa.ArrowException) as error:
            raise SegmentsLost(*self._segments) from error

    def _dealt(
        self,
        waiting: Sequence[Segment],
        pieces: Mapping[str, "_SegmentRows"],
        start: int,
        adds: pa.StructArray,
    ) -> list[Segment]:
        """Add to ``pieces`` what segments have of these rows, and return those that have all of theirs."""
        complete_segments = []
        loose = sum(each.loose_bytes for each in pieces.values())
        for segment in waiting:
            rows = self._rows[segment.id]
            if rows[0] >= start + len(adds):
                break
            low, high = np.searchsorted(rows, [start, start + len(adds)])
            if low < high:
                piece = adds.take(pa.array(rows[low:high] - start))
                is_last = high == len(rows)
                loose += pieces[segment.id].append(piece, compress=not is_last and loose > _LOOSE_BYTES)
            if high == len(rows):
                complete_segments.append(segment)
        return complete_segments

    def _read(
        self, segments: Sequence[Segment], fields: Sequence[str]
    ) -> Iterator[tuple[int, pa.StructArray]]:
        """Yield all rows of the row groups that contain rows of these segments."""
        row_mask = np.zeros(self._num_rows + 1, np.bool_)
        for segment in segments:
            row_mask[self._rows[segment.id]] = True
        for first, file in list(self._files):
            for run in _runs(
                [
                    group
                    for group, (start, end) in enumerate(pairwise(file.starts))
                    if row_mask[first + start : first + end].any()
                ]
            ):
                for start, adds in file.read(run, fields):
                    yield first + start, adds


class _SegmentRows:
    """The rows of a segment that have been read, in their order.

    Attributes:
        loose_bytes: of those that are not compressed.
    """

    def __init__(self) -> None:
        self.loose_bytes = 0
        self._found: list[pa.StructArray | bytes] = []

    def append(self, adds: pa.StructArray, *, compress: bool) -> int:
        """Add rows; return by how much ``loose_bytes`` has grown."""
        if compress:
            self._found.append(_compressed(adds))
            return 0
        self._found.append(adds)
        self.loose_bytes += adds.nbytes
        return int(adds.nbytes)

    def joined(self) -> pa.StructArray:
        """Return all rows."""
        return pa.concat_arrays([_loose(piece) for piece in self._found])


def _compressed(adds: pa.StructArray) -> bytes:
    batch, sink = pa.RecordBatch.from_arrays([adds], ["adds"]), pa.BufferOutputStream()
    # For a minute at most: what is quickly done counts more than what is small.
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def _loose(piece: pa.StructArray | bytes) -> pa.StructArray:
    if not isinstance(piece, bytes):
        return piece
    with pa.ipc.open_stream(piece) as reader:
        return reader.read_next_batch().column(0)


def _joined(read: Iterable[tuple[int, pa.StructArray]]) -> Iterator[tuple[int, pa.StructArray]]:
    """Yield rows that follow one another together: dealing them to segments costs by the array."""
    waiting: list[pa.StructArray] = []
    first = count = nbytes = 0
    for start, adds in read:
        is_full = count + len(adds) > _AT_ONCE or nbytes + adds.nbytes > _AT_ONCE_BYTES
        if waiting and (is_full or start != first + count):
            whole = pa.concat_arrays(waiting)
            waiting, count, nbytes = [], 0, 0
            yield first, whole
            del whole
        if not waiting:
            first = start
        waiting.append(adds)
        count += len(adds)
        nbytes += adds.nbytes
    if waiting:
        yield first, pa.concat_arrays(waiting)


def _runs(numbers: Sequence[int]) -> Iterator[range]:
    """Group ascending numbers into ranges of consecutive ones."""
    start = 0
    for place in range(1, len(numbers) + 1):
        if place == len(numbers) or numbers[place] != numbers[place - 1] + 1:
            yield range(numbers[start], numbers[place - 1] + 1)
            start = place


def _child(value: pa.StructArray, name: str) -> pa.Array:
    # Unlike StructArray.field, flatten keeps the parents' nulls.
    return value.flatten()[value.type.get_field_index(name)]
