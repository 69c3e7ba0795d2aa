"""Where a compaction put each row: the record of it in the log, and the mapping of rows by it.

A compaction that keeps the order of rows is described by runs: so many neighbouring live rows of a source are
neighbouring rows of an output. They stand in ``commitInfo.tags["delvec.rowRuns"]`` as JSON text:
``{output: [[source, first rank, count, first output row], ...]}``, paths as in the log.

Ranks count the rows that were live when the compaction read the source. Rows that others deleted before it was
committed are deleted in its outputs, too, so neither ranks nor outputs ever have to be written anew. An output of
which no row was left is not added; its runs stay.

Where a compaction copies a source whole, with its deleted rows, ranks count all rows of the source. The deleted ones are deleted in
the output from the start, as if somebody had deleted them meanwhile, so the same arithmetic holds.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64

from delvec_kernel import locations
from delvec_kernel.actions.action_json import json_text
from delvec_kernel.errors import DelvecError
from delvec_kernel.transaction.transaction_changes import RowRun

__all__ = ["TAG", "Rows", "SourceRuns", "by_source", "decode", "encode", "live_ranks", "row_array"]

TAG: Final = "delvec.rowRuns"

_MOST_ROWS: Final = 2**40

Rows: TypeAlias = npt.NDArray[np.int64]


def encode(rewritten: Mapping[str, Sequence[RowRun]]) -> str:
    """Return the runs of each output as the text of the tag."""
    return json_text(
        {
            output: [[run.source, run.first_rank, run.count, run.first_output_row] for run in runs]
            for output, runs in rewritten.items()
        }
    )


def decode(text: str, location: str) -> dict[str, list[RowRun]]:
    """Return the runs that a tag holds, all paths canonical; nothing where the text is not what encode writes."""
    try:
        found = json.loads(text)
        return {
            locations.canonical_log_path(output, location): [_run(entry, location) for entry in runs]
            for output, runs in found.items()
        }
    except (ValueError, TypeError, AttributeError, RecursionError, DelvecError):
        return {}


def _run(entry: Any, location: str) -> RowRun:
    source, *numbers = entry
    first_rank, count, first_output_row = numbers
    if any(type(each) is not int or not 0 <= each < _MOST_ROWS for each in numbers) or count < 1:
        raise ValueError("not counts of rows")
    return RowRun(locations.canonical_log_path(source, location), first_rank, count, first_output_row)


class SourceRuns:
    """The runs of one source, by rank.

    Attributes:
        total: of its rows; ranks are below it.
        outputs: canonical paths of the files that its rows are in.
    """

    def __init__(self, runs: Sequence[tuple[str, RowRun]]) -> None:
        ordered = sorted(runs, key=lambda each: each[1].first_rank)
        self._outputs = [output for output, _ in ordered]
        self._first_ranks = np.array([run.first_rank for _, run in ordered], np.int64)
        self._first_rows = np.array([run.first_output_row for _, run in ordered], np.int64)
        self._counts = np.array([run.count for _, run in ordered], np.int64)
        self.total = int(self._counts.sum())
        self.outputs = frozenset(self._outputs)

    @property
    def is_complete(self) -> bool:
        """Whether every rank below ``total`` is in exactly one run."""
        ends = np.cumsum(self._counts)
        return bool((self._first_ranks[1:] == ends[:-1]).all()) and self._first_ranks[0] == 0

    def rows_at(self, ranks: Rows) -> dict[str, BitMap64]:
        """Return where the rows of these ranks, ascending and below ``total``, are: row indexes by output."""
        found: dict[str, BitMap64] = {}
        if not len(ranks):
            return found
        places = np.searchsorted(self._first_ranks, ranks, side="right") - 1
        rows = ranks - self._first_ranks[places] + self._first_rows[places]
        starts = [0, *(np.flatnonzero(np.diff(places)) + 1).tolist(), len(ranks)]
        for start, end in pairwise(starts):
            output = self._outputs[int(places[start])]
            found.setdefault(output, BitMap64()).update(rows[start:end].tolist())
        return found

    def all_rows(self) -> dict[str, BitMap64]:
        """Return where all the rows are: row indexes by output."""
        found: dict[str, BitMap64] = {}
        for output, first, count in zip(
            self._outputs, self._first_rows.tolist(), self._counts.tolist(), strict=True
        ):
            found.setdefault(output, BitMap64()).add_range(first, first + count)
        return found

    def ranks_of(self, deleted: Mapping[str, BitMap64 | None]) -> Rows:
        """Return the ranks, ascending, of rows that are deleted in the outputs; None: all rows of that output."""
        found: list[Rows] = []
        for place, output in enumerate(self._outputs):
            rows = deleted[output]
            first, count = int(self._first_rows[place]), int(self._counts[place])
            if rows is None:
                here = np.arange(count, dtype=np.int64)
            elif not rows:
                continue
            else:
                run = BitMap64()
                run.add_range(first, first + count)
                here = row_array(rows & run) - first
            found.append(here + self._first_ranks[place])
        return np.concatenate(found) if found else np.zeros(0, np.int64)

    def moved(
        self, rows: BitMap64, deleted: BitMap64, deleted_outputs: Mapping[str, BitMap64 | None]
    ) -> dict[str, BitMap64] | None:
        """Return where the compaction has put live rows of the source.

        The n-th live row of the source before its commit is the n-th live one of its rows in the outputs, whatever was
        deleted while it was written.

        Args:
            rows: row indexes in the source, none of them deleted.
            deleted: the source's deleted rows just before the commit.
            deleted_outputs: those of each output just after, None for one that was not added.

        Returns:
            Row indexes by output, or None where the runs have no place for a row.
        """
        taken = self.ranks_of(deleted_outputs)
        places = live_ranks(rows, deleted)
        ranks = places + np.searchsorted(taken - np.arange(len(taken)), places, side="right")
        if len(ranks) and ranks[-1] >= self.total:
            return None
        return self.rows_at(ranks)


def by_source(rewritten: Mapping[str, Sequence[RowRun]]) -> dict[str, SourceRuns]:
    """Return the runs of each source; nothing at all where they contradict each other."""
    found: dict[str, list[tuple[str, RowRun]]] = {}
    for output, runs in rewritten.items():
        if not _is_tiled(runs):
            return {}
        for run in runs:
            found.setdefault(run.source, []).append((output, run))
    sources = {source: SourceRuns(runs) for source, runs in found.items()}
    return sources if all(each.is_complete for each in sources.values()) else {}


def live_ranks(rows: BitMap64, deleted: BitMap64) -> Rows:
    """Return for each of these live rows, in ascending order, how many live rows are before it in its file."""
    found = row_array(rows)
    return found - np.searchsorted(row_array(deleted), found) if deleted else found


def _is_tiled(runs: Iterable[RowRun]) -> bool:
    """Return whether the runs of one output follow each other from its first row on."""
    end = 0
    for run in sorted(runs, key=lambda each: each.first_output_row):
        if run.first_output_row != end:
            return False
        end += run.count
    return True


def row_array(rows: BitMap64) -> Rows:
    """Return row indexes, ascending."""
    return np.frombuffer(rows.to_array(), np.uint64).astype(np.int64) if rows else np.zeros(0, np.int64)
