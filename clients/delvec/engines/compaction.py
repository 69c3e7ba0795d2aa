"""Files written again by OPTIMIZE: the rows that stay, in the order that they had, and a record of where each of them went.

With that record, the commit and the DML of others pass each other: a row that somebody deletes meanwhile in an old file is
deleted in the new one. It is made of what was really read, row by row, and proven to be complete before files are removed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64

from delvec.scan import Scan
from delvec_kernel.errors import CorruptTable
from delvec_kernel.statistics.file_statistics import num_records
from delvec_kernel.wire import AddFile, RowRun

__all__ = ["Compacted", "ReadOrder", "Stretch", "row_runs"]


@dataclass(frozen=True)
class Compacted:
    """What was written.

    Attributes:
        adds: the new files; none where no row stayed.
        rewritten: for each of them, where its rows come from.
    """

    adds: Sequence[AddFile]
    rewritten: Mapping[str, Sequence[RowRun]]


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
                scan, f"of '{path}' {read} rows were read, and its statistics have {counts[number]} rows"
            )


def _deleted_below(gone: BitMap64 | None, row: int) -> int:
    """Return how many deleted rows come before a row."""
    return 0 if not gone or not row else gone.rank(row - 1)


def _deleted_between(gone: BitMap64 | None, start: int, end: int) -> int:
    return _deleted_below(gone, end) - _deleted_below(gone, start)


_ADVICE: Final = "Nothing was committed; run `delvec check`, and try again."


def _lost(scan: Scan, what: str) -> CorruptTable:
    return CorruptTable(
        f"Table '{scan.name}' (version {scan.version}) cannot be compacted: {what}. {_ADVICE}",
        table=scan.name,
        version=scan.version,
    )
