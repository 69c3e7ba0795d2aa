"""Files written again by OPTIMIZE: the rows that stay, in the order that they had, and a record of where each of them went.

With that record, the commit and the DML of others pass each other: a row that somebody deletes meanwhile in an old file is
deleted in the new one. It is made of what was really read, row by row, and proven to be complete before files are removed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64

from delvec.scan import Scan
from delvec_kernel.errors import CorruptTable
from delvec_kernel.statistics.file_statistics import num_records
from delvec_kernel.wire import AddFile, RowMapFile, RowRun

__all__ = ["Compacted", "ReadOrder", "ReadRows", "Stretch", "check_complete", "check_rows", "row_runs"]


@dataclass(frozen=True)
class Compacted:
    """What was written.

    Attributes:
        adds: the new files; none where no row stayed.
        rewritten: for each of them, where its rows come from; empty where rows have another order than they had.
        row_map: files that say so where they have; of the rows of all new files, in their order.
        deleted: rows of new files that are deleted from the start, because they were in what was copied.
    """

    adds: Sequence[AddFile]
    rewritten: Mapping[str, Sequence[RowRun]]
    row_map: Sequence[RowMapFile] = ()
    deleted: Mapping[str, BitMap64] = field(default_factory=dict)


@dataclass(frozen=True)
class Stretch:
    """Rows that were read one after the other from one file, in the order of the file.

    Attributes:
        file: its place among the files read.
        first: physical index of the first row.
        last: and of the last.
        count: how many rows.
    """

    file: int
    first: int
    last: int
    count: int


class ReadOrder:
    """Notes which rows are read, batch by batch, as stretches."""

    def __init__(self) -> None:
        self._stretches: list[Stretch] = []

    @property
    def stretches(self) -> Sequence[Stretch]:
        """In the order of reading."""
        return self._stretches

    def add(self, files: npt.NDArray[np.int64], rows: npt.NDArray[np.int64]) -> None:
        """Note a batch: of each row the file's place, and its physical index."""
        if not len(rows):
            return
        breaks = (np.diff(files) != 0) | (np.diff(rows) <= 0)
        starts = np.append(0, np.flatnonzero(breaks) + 1)
        ends = np.append(starts[1:], len(rows))
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            self._append(Stretch(int(files[start]), int(rows[start]), int(rows[end - 1]), end - start))

    def _append(self, more: Stretch) -> None:
        before = self._stretches[-1] if self._stretches else None
        if before is not None and before.file == more.file and before.last < more.first:
            self._stretches[-1] = Stretch(more.file, before.first, more.last, before.count + more.count)
        else:
            self._stretches.append(more)


_FOLDED_ROWS: Final = 1 << 20


class ReadRows:
    """Notes which rows are read in any order, batch by batch, as a bitmap for each file."""

    def __init__(self) -> None:
        self._rows: dict[int, BitMap64] = {}
        self._waiting: list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]] = []
        self._count = 0

    def add(self, files: npt.NDArray[np.int64], rows: npt.NDArray[np.int64]) -> None:
        """Note a batch: of each row the file's number, and its physical index."""
        self._waiting.append((files, rows))
        self._count += len(rows)
        if sum(len(each) for each, _ in self._waiting) >= _FOLDED_ROWS:
            self._fold()

    def finish(self) -> tuple[int, dict[int, BitMap64]]:
        """Return how many rows were noted, and which, by the number of their file."""
        self._fold()
        return self._count, self._rows

    def _fold(self) -> None:
        if not sum(len(each) for each, _ in self._waiting):
            return
        files = np.concatenate([each for each, _ in self._waiting])
        rows = np.concatenate([each for _, each in self._waiting])
        self._waiting = []
        order = np.lexsort((rows, files))
        files, rows = files[order], rows[order]
        numbers, starts = np.unique(files, return_index=True)
        ends = [*starts[1:].tolist(), len(files)]
        for number, start, end in zip(numbers.tolist(), starts.tolist(), ends, strict=True):
            found = self._rows.setdefault(number, BitMap64())
            found.update(rows[start:end].astype(np.uint64))


def check_complete(scan: Scan, stretches: Sequence[Stretch]) -> None:
    """Prove that each live row of a scan was read once.

    Args:
        scan: the files that were read; stretches number them in its order.
        stretches: of the rows, in any order.

    Raises:
        CorruptTable: one was not; nothing may be removed.
    """
    deleted = scan.deletion_vectors if scan.has_deletion_vectors else {}
    _check_complete(scan, scan.files["path"].to_pylist(), stretches, deleted)


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
        found, gone = rows.get(place, BitMap64()), deleted.get(path, BitMap64())
        count -= len(found)
        end = counts[place] if counts[place] is not None else (found.max() + 1 if found else 0)
        if found & gone or len(found | gone) != max(end, gone.max() + 1 if gone else 0):
            raise _lost(scan, f"not every live row of '{path}' was read")
    if count:
        raise _lost(scan, f"{count} rows were read twice")


def row_runs(
    scan: Scan, stretches: Sequence[Stretch], adds: Sequence[AddFile]
) -> dict[str, Sequence[RowRun]]:
    """Return the runs of each new file.

    Args:
        scan: the files that were read; stretches number them in its order.
        stretches: of the rows as they were written, one after the other.
        adds: the files that they were written to, one after the other.

    Raises:
        CorruptTable: not every live row was read once; nothing may be removed.
    """
    paths = scan.files["path"].to_pylist()
    deleted = scan.deletion_vectors if scan.has_deletion_vectors else {}
    _check_complete(scan, paths, stretches, deleted)
    outputs = [(add.path, num_records(add.stats) or 0) for add in adds]
    if sum(count for _, count in outputs) != sum(each.count for each in stretches):
        raise _lost(scan, "the new files do not have the rows that were read")
    found: dict[str, list[RowRun]] = {path: [] for path, _ in outputs}
    output, room, place = -1, 0, 0
    for each in stretches:
        rank = each.first - _deleted_below(deleted.get(paths[each.file]), each.first)
        left = each.count
        while left:
            while not room:
                output, place = output + 1, 0
                room = outputs[output][1]
            taken = min(left, room)
            found[outputs[output][0]].append(
                RowRun(source=paths[each.file], first_rank=rank, count=taken, first_output_row=place)
            )
            rank, place, left, room = rank + taken, place + taken, left - taken, room - taken
    return {path: runs for path, runs in found.items() if runs}


def _check_complete(
    scan: Scan, paths: Sequence[str], stretches: Sequence[Stretch], deleted: Mapping[str, BitMap64]
) -> None:
    """Prove that each live row was read once: no stretch has a hole but deleted rows, none overlaps another."""
    counts = scan.files["num_records"].to_pylist()
    by_file: dict[int, list[Stretch]] = {}
    for each in stretches:
        by_file.setdefault(each.file, []).append(each)
    for number, path in enumerate(paths):
        gone = deleted.get(path)
        end, read = -1, 0
        for each in sorted(by_file.get(number, ()), key=lambda stretch: stretch.first):
            between = each.first - end - 1 - _deleted_between(gone, end + 1, each.first)
            inside = each.last - each.first + 1 - _deleted_between(gone, each.first, each.last + 1)
            if each.first <= end or between or inside != each.count:
                raise _lost(scan, f"rows near row {each.first} of '{path}' were not read once each")
            end, read = each.last, read + each.count
        if counts[number] is not None and read != counts[number] - (len(gone) if gone else 0):
            raise _lost(
                scan, f"{read} rows of '{path}' were read, but its statistics say {counts[number]} rows"
            )


def _deleted_below(gone: BitMap64 | None, row: int) -> int:
    """Return how many deleted rows come before a row."""
    return 0 if not gone or not row else gone.rank(row - 1)


def _deleted_between(gone: BitMap64 | None, start: int, end: int) -> int:
    return _deleted_below(gone, end) - _deleted_below(gone, start)


_ADVICE: Final = "Nothing was committed; run `delvec check`, then retry."


def _lost(scan: Scan, what: str) -> CorruptTable:
    return CorruptTable(
        f"Table '{scan.name}' (version {scan.version}) cannot be compacted: {what}. {_ADVICE}",
        table=scan.name,
        version=scan.version,
    )
