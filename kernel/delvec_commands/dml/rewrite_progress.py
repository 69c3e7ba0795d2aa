"""Progress of a rewrite, reported to the caller and to the service, which shows it to other users."""

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from delvec_commands.table_service import TableService, request
from delvec_contract import operations
from delvec_contract.policies import TaskReport

__all__ = ["Done", "Progress", "RewriteProgress", "reported"]

Progress: TypeAlias = Callable[[int, int], None]
"""Called with the bytes done and the total."""

_CALLBACK_SECONDS: Final = 0.1
_REPORT_SECONDS: Final = 1.0


@dataclass(frozen=True)
class Done:
    """Work done, out of the total; bytes are those of the old files."""

    files: int = 0
    num_files: int = 0
    bytes: int = 0
    size: int = 0


class RewriteProgress:
    """Counts the files and bytes that an OPTIMIZE has rewritten; safe to share between threads.

    Engines report rows. Within a commit, files and bytes follow from them as if files were read one after the other.

    Args:
        callback: called at most ten times a second while rows are read, and after each commit.
    """

    def __init__(self, callback: Progress | None = None) -> None:
        self._callback = callback
        self._lock = threading.Lock()
        self._called = 0.0
        self._committed = Done()
        self._num_files = self._size = 0
        self._rows = self._bytes = np.zeros(1, np.int64)
        self._read = 0

    def plan(self, num_files: int, size: int) -> None:
        """Set how many files and bytes remain to be rewritten; earlier commits count as done."""
        with self._lock:
            self._num_files = self._committed.files + num_files
            self._size = self._committed.bytes + size
            self._rows = self._bytes = np.zeros(1, np.int64)
            self._read = 0

    def skip(self, num_files: int, size: int) -> None:
        """Remove planned files that stay unchanged; negative numbers add files back."""
        with self._lock:
            self._num_files -= num_files
            self._size -= size

    def begin(self, files: pa.Table, passes: int = 1) -> None:
        """Set the files of the next commit.

        Args:
            files: the files in order, with the columns of ``Scan.files``.
            passes: how many times each row is reported.
        """
        with self._lock:
            self._rows = _sums(_live_rows(files)) * passes
            self._bytes = _sums(files["size"].to_numpy())
            self._read = 0

    def advance(self, rows: int) -> None:
        """Count rows as read or written."""
        now = time.monotonic()
        with self._lock:
            self._read += rows
            if self._callback is None or now - self._called < _CALLBACK_SECONDS:
                return
            self._called = now
        self._call()

    def commit(self) -> None:
        """Count the files of the current commit as rewritten."""
        with self._lock:
            done = self._committed
            self._committed = Done(done.files + len(self._bytes) - 1, 0, done.bytes + int(self._bytes[-1]), 0)
            self._rows = self._bytes = np.zeros(1, np.int64)
            self._read = 0
        self._call()

    @property
    def committed_bytes(self) -> int:
        """Bytes of the old files whose rewrite is committed."""
        return self._committed.bytes

    @property
    def done(self) -> Done:
        """The work done so far, including uncommitted work."""
        with self._lock:
            files = int(np.searchsorted(self._rows, self._read, "right")) - 1 if self._read else 0
            size = int(self._bytes[files])
            if files < len(self._rows) - 1:
                share = (self._read - self._rows[files]) / max(self._rows[files + 1] - self._rows[files], 1)
                size += int((self._bytes[files + 1] - size) * share)
            done = self._committed
            return Done(done.files + files, self._num_files, done.bytes + size, self._size)

    def _call(self) -> None:
        if self._callback is not None:
            task_progress = self.done
            self._callback(task_progress.bytes, task_progress.size)


@contextmanager
def reported(
    service: TableService, table_id: str, operation: str, engine: str, progress: RewriteProgress
) -> Iterator[None]:
    """Report progress to the service every second while the block runs, and how the block ended.

    Blocks that take less than a second are not reported. Failed reports are ignored: they must not fail the rewrite.
    """
    began, stop_event = time.monotonic(), threading.Event()
    task = service.task_id or str(uuid.uuid4())

    def report(state: Literal["running", "done", "failed"]) -> None:
        task_progress = progress.done
        with suppress(Exception):
            body = request(
                TaskReport,
                id=task,
                operation=operation,
                engine=engine,
                state=state,
                elapsed_seconds=time.monotonic() - began,
                num_files=task_progress.num_files,
                files_done=task_progress.files,
                size_in_bytes=task_progress.size,
                bytes_done=task_progress.bytes,
            )
            service.call(operations.REPORT_TASK, body, table=table_id)

    def keep() -> None:
        while not stop_event.wait(_REPORT_SECONDS):
            report("running")

    reporter = threading.Thread(target=keep, name="delvec-progress", daemon=True)
    reporter.start()
    state: Literal["done", "failed"] = "failed"
    try:
        yield
        state = "done"
    finally:
        stop_event.set()
        reporter.join()
        if time.monotonic() - began >= _REPORT_SECONDS:
            report(state)


def _live_rows(files: pa.Table) -> npt.NDArray[np.int64]:
    """Return the live rows of each file; 0 if unknown."""
    deleted = pc.fill_null(pc.struct_field(files["deletion_vector"], "cardinality"), 0)
    rows: npt.NDArray[np.int64] = pc.fill_null(pc.subtract(files["num_records"], deleted), 0).to_numpy()
    return rows


def _sums(values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(values, dtype=np.int64)])
