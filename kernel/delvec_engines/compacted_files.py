"""Results of OPTIMIZE: the new files, and a row map that says where each old row went.

With the row map, OPTIMIZE and concurrent DML do not conflict: a row deleted in an old file meanwhile is also
deleted in the new one. The map comes from the rows actually read, and must cover all live rows before files are removed.

Tested in `tests/unit/engines/test_read_rows.py` and `tests/integration/engines/test_optimize.py`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64

from delvec_engines.marked_rows import MarkedRows
from delvec_engines.scan import Scan
from delvec_errors import CorruptTable
from delvec_kernel.actions.actions import AddFile
from delvec_kernel.statistics.file_statistics import num_records
from delvec_kernel.transaction.transaction_changes import RowMapFile, RowRun

__all__ = ["Compacted", "ReadOrder", "ReadRows", "RowRange", "check_rows", "row_runs"]


@dataclass(frozen=True)
class Compacted:
    """The files that a compaction wrote.

    Attributes:
        adds: the new files; none if all rows were deleted.
        rewritten: for each of them, the source of its rows; empty if rows were reordered.
        row_map: files with the source of each row of all new files, in order, if rows were reordered.
        deleted: rows of new files that are deleted from the start: deleted rows of copied row groups.
    """

    adds: Sequence[AddFile]
    rewritten: Mapping[str, Sequence[RowRun]]
    row_map: Sequence[RowMapFile] = ()
    deleted: Mapping[str, BitMap64] = field(default_factory=dict)


@dataclass(frozen=True)
class RowRange:
    """Live rows of one file that were read one after the other: all that there are from the first to the last.

    Attributes:
        file: position in the scan.
        first: physical index of the first row.
        last: physical index of the last row.
        count: number of rows.
    """

    file: int
    first: int
    last: int
    count: int


class ReadOrder:
    """Records the order in which live rows are read, as row ranges. Any order will do: engines promise none.

    Args:
        deleted_rows: returns the deleted rows of the file at a position in the scan.
    """

    def __init__(self, deleted_rows: Callable[[int], BitMap64]) -> None:
        self._deleted_rows = deleted_rows
        self._file = -1
        self._deleted = BitMap64()
        self._marked = MarkedRows(self._deleted)
        self._row_ranges: list[RowRange] = []

    @property
    def row_ranges(self) -> Sequence[RowRange]:
        """The row ranges in the order of reading."""
        return self._row_ranges

    def add(self, files: npt.NDArray[np.int64], rows: npt.NDArray[np.int64]) -> None:
        """Record a batch: for each row, the file's position in the scan and the physical index."""
        if not len(rows):
            return
        breaks = (np.diff(files) != 0) | (np.diff(rows) <= 0)
        starts = np.append(0, np.flatnonzero(breaks) + 1)
        ends = np.append(starts[1:], len(rows))
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            self._look_at(int(files[start]))
            self._add_ascending(rows[start:end], self._marked.among(rows[start:end].astype(np.uint64)))

    def _look_at(self, file: int) -> None:
        """Make a file the current one; rows mostly arrive file by file."""
        if file != self._file:
            self._file, self._deleted = file, self._deleted_rows(file)
            self._marked = MarkedRows(self._deleted)

    def _add_ascending(self, rows: npt.NDArray[np.int64], is_deleted: npt.NDArray[np.bool_]) -> None:
        """Record ascending rows of the current file; where a live row is missing between two, the range ends."""
        first, last, count = int(rows[0]), int(rows[-1]), len(rows)
        left_out = last - first + 1 - count
        if count == 1 or (
            left_out == _deleted_between(self._deleted, first, last + 1) and not is_deleted.any()
        ):
            self._append(RowRange(self._file, first, last, count))
            return
        # By halves: a range per row left out would take a look at each, and most are deleted.
        self._add_ascending(rows[: count // 2], is_deleted[: count // 2])
        self._add_ascending(rows[count // 2 :], is_deleted[count // 2 :])

    def _append(self, more: RowRange) -> None:
        before = self._row_ranges[-1] if self._row_ranges else None
        if before is not None and before.file == more.file and before.last < more.first:
            left_out = more.first - before.last - 1
            if left_out == _deleted_between(self._deleted, before.last + 1, more.first):
                self._row_ranges[-1] = RowRange(more.file, before.first, more.last, before.count + more.count)
                return
        self._row_ranges.append(more)


_FOLDED_ROWS: Final = 1 << 20


class ReadRows:
    """Records the rows read in any order, as one bitmap per file."""

    def __init__(self) -> None:
        self._rows: dict[int, BitMap64] = {}
        self._waiting: list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]] = []
        self._num_waiting = 0
        self._count = 0

    def add(self, files: npt.NDArray[np.int64], rows: npt.NDArray[np.int64]) -> None:
        """Record a batch: for each row, the file's number and the physical index."""
        self._waiting.append((files, rows))
        self._count += len(rows)
        # Counted along: a file may have a row group, and so a batch, for each row.
        self._num_waiting += len(rows)
        if self._num_waiting >= _FOLDED_ROWS:
            self._fold()

    def finish(self) -> tuple[int, dict[int, BitMap64]]:
        """Return the number of rows, and their bitmaps by file number."""
        self._fold()
        return self._count, self._rows

    def _fold(self) -> None:
        if not self._num_waiting:
            return
        files = np.concatenate([each for each, _ in self._waiting])
        rows = np.concatenate([each for _, each in self._waiting])
        self._waiting, self._num_waiting = [], 0
        order = np.lexsort((rows, files))
        files, rows = files[order], rows[order]
        numbers, starts = np.unique(files, return_index=True)
        ends = [*starts[1:].tolist(), len(files)]
        for number, start, end in zip(numbers.tolist(), starts.tolist(), ends, strict=True):
            found = self._rows.setdefault(number, BitMap64())
            found.update(rows[start:end].astype(np.uint64))


def check_rows(scan: Scan, count: int, rows: Mapping[int, BitMap64]) -> None:
    """Prove that each live row of a scan was read once.

    Args:
        scan: the files that were read.
        count: how many rows were read.
        rows: which, by the place of their file in the scan.

    Raises:
        CorruptTable: one was not, or twice; nothing may be removed.
    """
    deleted = scan.deletion_vectors if scan.has_deletion_vectors else {}
    counts = scan.files["num_records"].to_pylist()
    for place, path in enumerate(scan.files["path"].to_pylist()):
        rows_read, deletion_vector = rows.get(place, BitMap64()), deleted.get(path, BitMap64())
        count -= len(rows_read)
        end = counts[place] if counts[place] is not None else (rows_read.max() + 1 if rows_read else 0)
        if rows_read & deletion_vector or len(rows_read | deletion_vector) != max(
            end, deletion_vector.max() + 1 if deletion_vector else 0
        ):
            raise _lost(scan, f"not every live row of '{path}' was read")
    if count:
        raise _lost(scan, f"{count} rows were read twice")


def row_runs(
    scan: Scan, row_ranges: Sequence[RowRange], adds: Sequence[AddFile]
) -> dict[str, Sequence[RowRun]]:
    """Return the row map of each new file.

    Args:
        scan: the files that were read; row ranges number them in its order.
        row_ranges: the row ranges of the rows in the order they were written.
        adds: the new files in the order they were written.

    Raises:
        CorruptTable: not every live row was read once; nothing may be removed.
    """
    paths = scan.files["path"].to_pylist()
    deleted = scan.deletion_vectors if scan.has_deletion_vectors else {}
    _check_complete(scan, paths, row_ranges, deleted)
    outputs = [(add.path, num_records(add.stats) or 0) for add in adds]
    if sum(count for _, count in outputs) != sum(each.count for each in row_ranges):
        raise _lost(scan, "the new files do not have the rows that were read")
    runs_by_path: dict[str, list[RowRun]] = {path: [] for path, _ in outputs}
    output, room, place = -1, 0, 0
    for each in row_ranges:
        rank = each.first - _deleted_below(deleted.get(paths[each.file]), each.first)
        left = each.count
        while left:
            while not room:
                output, place = output + 1, 0
                room = outputs[output][1]
            taken = min(left, room)
            runs_by_path[outputs[output][0]].append(
                RowRun(source=paths[each.file], first_rank=rank, count=taken, first_output_row=place)
            )
            rank, place, left, room = rank + taken, place + taken, left - taken, room - taken
    return {path: runs for path, runs in runs_by_path.items() if runs}


def _check_complete(
    scan: Scan, paths: Sequence[str], row_ranges: Sequence[RowRange], deleted: Mapping[str, BitMap64]
) -> None:
    """Check that each live row was read once: row ranges only skip deleted rows and do not overlap."""
    counts = scan.files["num_records"].to_pylist()
    by_file: dict[int, list[RowRange]] = {}
    for each in row_ranges:
        by_file.setdefault(each.file, []).append(each)
    for number, path in enumerate(paths):
        deletion_vector = deleted.get(path)
        end, read = -1, 0
        for each in sorted(by_file.get(number, ()), key=lambda stretch: stretch.first):
            between = each.first - end - 1 - _deleted_between(deletion_vector, end + 1, each.first)
            inside = each.last - each.first + 1 - _deleted_between(deletion_vector, each.first, each.last + 1)
            if each.first <= end or between or inside != each.count:
                raise _lost(scan, f"rows near row {each.first} of '{path}' were not read once each")
            end, read = each.last, read + each.count
        live = None if counts[number] is None else counts[number] - len(deletion_vector or ())
        if live is not None and read != live:
            raise _lost(scan, f"{read} rows of '{path}' were read, but it has {live} by its statistics")


def _deleted_below(deletion_vector: BitMap64 | None, row: int) -> int:
    """Return the number of deleted rows before a row."""
    return 0 if not deletion_vector or not row else deletion_vector.rank(row - 1)


def _deleted_between(deletion_vector: BitMap64 | None, start: int, end: int) -> int:
    return _deleted_below(deletion_vector, end) - _deleted_below(deletion_vector, start)


_ADVICE: Final = "Nothing was committed; run `delvec check`, then retry."


def _lost(scan: Scan, what: str) -> CorruptTable:
    return CorruptTable(
        f"Table '{scan.name}' (version {scan.version}) cannot be compacted: {what}. {_ADVICE}",
        table=scan.name,
        version=scan.version,
    )
