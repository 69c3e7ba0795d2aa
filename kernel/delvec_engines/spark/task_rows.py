"""Sends small numbers of rows from tasks to the driver, which writes them to one file.

Otherwise, a change of a few rows in each of many tasks would write a tiny file per task.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from itertools import groupby
from types import TracebackType
from typing import Any, Final, Generic, Protocol, Self, TypeVar

import pyarrow as pa

from delvec_engines.arrow_conversion import bytes_in

__all__ = ["BufferedWriter", "ReplayableRows", "batches_in", "sendable_bytes"]

_MAX_OF_A_TASK: Final = 8 << 20
_MAX_TOGETHER: Final = 24 << 20


class _Writer(Protocol):
    """A writer of data files or change files."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def write(self, batch: pa.RecordBatch) -> None: ...

    def finish(self) -> list[Any]: ...


_Kind = TypeVar("_Kind", bound=_Writer)


def sendable_bytes(task: int) -> int:
    """Return the maximum bytes of rows that a task may send.

    Tasks do not know how many they are. The total grows with the logarithm of their number: 24 MiB
    for three tasks, 180 MiB for a thousand.
    """
    return min(_MAX_OF_A_TASK, _MAX_TOGETHER // (1 + task))


class BufferedWriter(Generic[_Kind]):
    """A writer that buffers rows, and opens files only above a limit; a context manager.

    Args:
        limit: maximum bytes of buffered rows.
        open_writer: opens the file writer.
    """

    def __init__(self, limit: int, open_writer: Callable[[], _Kind]) -> None:
        self._limit = limit
        self._open_writer = open_writer
        self._writer: _Kind | None = None
        self._held: list[pa.RecordBatch] = []
        self._size = 0
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def write(self, batch: pa.RecordBatch) -> None:
        """Buffer or write rows; raises the writer's errors."""
        self._size += bytes_in(batch)
        if self._writer is None and self._size <= self._limit:
            self._held.append(batch)
        else:
            self.opened().write(batch)

    def opened(self) -> _Kind:
        """Open the file writer, which receives all rows; return it."""
        if self._writer is None:
            opened = self._open_writer()
            self._stack.enter_context(opened)
            for held in self._held:
                opened.write(held)
            self._writer, self._held = opened, []
        return self._writer

    def finish(self) -> tuple[list[Any], list[bytes]]:
        """Complete the files; return their actions, or the buffered rows as Arrow IPC streams."""
        if self._writer is not None:
            return self._writer.finish(), []
        # One stream per schema: old rows may allow NULLs where new ones do not.
        return [], [_stream(schema, list(batches)) for schema, batches in groupby(self._held, _schema)]


def _schema(batch: pa.RecordBatch) -> pa.Schema:
    return batch.schema


def _stream(schema: pa.Schema, batches: list[pa.RecordBatch]) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as stream:
        for batch in batches:
            stream.write_batch(batch)
    sent: bytes = sink.getvalue().to_pybytes()
    return sent


def batches_in(sent: bytes) -> Iterator[pa.RecordBatch]:
    """Yield the rows that a task sent."""
    with pa.ipc.open_stream(pa.py_buffer(sent)) as stream:
        yield from stream


_BYTES: Final = 64 << 20


class ReplayableRows:
    """Rows that can be iterated again while :attr:`is_whole`.

    Args:
        batches: read once and lazily.
        limit: bytes above which rows are no longer kept.
    """

    def __init__(self, batches: Iterable[pa.RecordBatch], limit: int = _BYTES) -> None:
        self._coming = iter(batches)
        self._limit = limit
        self._kept: list[pa.RecordBatch] = []
        self._nbytes = 0
        self._is_broken = False

    @property
    def is_whole(self) -> bool:
        """Whether all rows read so far are kept."""
        return self._nbytes <= self._limit and not self._is_broken

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        yield from list(self._kept)
        while (batch := self._next()) is not None:
            self._keep(batch)
            yield batch

    def _next(self) -> pa.RecordBatch | None:
        try:
            return next(self._coming, None)
        except BaseException:
            # A failed generator would end silently if it were asked again.
            self._is_broken = True
            raise

    def _keep(self, batch: pa.RecordBatch) -> None:
        self._nbytes += bytes_in(batch)
        if self.is_whole:
            self._kept.append(batch)
        else:
            self._kept.clear()
