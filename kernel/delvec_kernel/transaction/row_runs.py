"""Row runs: the record in the log of where an order-preserving compaction put each row, and the mapping by it.

Runs say that so many adjacent live rows of a source are adjacent rows of an output. They are stored in
``commitInfo.tags["delvec.rowRuns"]`` as JSON text: ``{output: [[source, first rank, count, first output row], ...]}``, with
paths as in the log.

Ranks count the rows that were live when the compaction read the source. Rows that others deleted before the compaction
was committed are also deleted in its outputs, so neither ranks nor outputs ever need rewriting. An output without any
live row is not added; its runs are kept.

If a compaction copies a whole source including deleted rows, ranks count all rows of the source. The deleted rows are
deleted in the output from the start, as if by a concurrent commit, so the same arithmetic applies.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64

from delvec_errors import DelvecError
from delvec_kernel import locations
from delvec_kernel.actions.action_json import json_text
from delvec_kernel.transaction.transaction_changes import RowRun

__all__ = ["TAG", "Rows", "SourceRuns", "by_source", "decode", "encode", "live_ranks", "row_array"]

TAG: Final = "delvec.rowRuns"

_MAX_ROWS: Final = 2**40

Rows: TypeAlias = npt.NDArray[np.int64]


def encode(rewritten: Mapping[str, Sequence[RowRun]]) -> str:
    """Return the runs of each output as the tag's text."""
    return json_text(
        {
            output: [[run.source, run.first_rank, run.count, run.first_output_row] for run in runs]
            for output, runs in rewritten.items()
        }
    )


def decode(text: str, location: str) -> dict[str, list[RowRun]]:
    """Parse a tag's runs, with canonical paths; empty if malformed."""
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
    if any(type(each) is not int or not 0 <= each < _MAX_ROWS for each in numbers) or count < 1:
        raise ValueError("not counts of rows")
    return RowRun(locations.canonical_log_path(source, location), first_rank, count, first_output_row)


class SourceRuns:
    """The runs of one source, by rank.

    Attributes:
        total: the number of its rows; ranks are below it.
        outputs: canonical paths of the files that contain its rows.
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
        """Return row indexes by output for these ascending ranks below ``total``."""
        rows_by_output: dict[str, BitMap64] = {}
        if not len(ranks):
            return rows_by_output
        places = np.searchsorted(self._first_ranks, ranks, side="right") - 1
        rows = ranks - self._first_ranks[places] + self._first_rows[places]
        starts = [0, *(np.flatnonzero(np.diff(places)) + 1).tolist(), len(ranks)]
        for start, end in pairwise(starts):
            output = self._outputs[int(places[start])]
            rows_by_output.setdefault(output, BitMap64()).update(rows[start:end].tolist())
        return rows_by_output

    def all_rows(self) -> dict[str, BitMap64]:
        """Return row indexes by output of all rows."""
        rows_by_output: dict[str, BitMap64] = {}
        for output, first, count in zip(
            self._outputs, self._first_rows.tolist(), self._counts.tolist(), strict=True
        ):
            rows_by_output.setdefault(output, BitMap64()).add_range(first, first + count)
        return rows_by_output

    def ranks_of(self, deleted_outputs: Mapping[str, BitMap64 | None]) -> Rows:
        """Return the ascending ranks of rows deleted in the outputs; None means all rows of an output."""
        deleted_ranks: list[Rows] = []
        for place, output in enumerate(self._outputs):
            rows = deleted_outputs[output]
            first, count = int(self._first_rows[place]), int(self._counts[place])
            if rows is None:
                here = np.arange(count, dtype=np.int64)
            elif not rows:
                continue
            else:
                run = BitMap64()
                run.add_range(first, first + count)
                here = row_array(rows & run) - first
            deleted_ranks.append(here + self._first_ranks[place])
        return np.concatenate(deleted_ranks) if deleted_ranks else np.zeros(0, np.int64)

    def moved(
        self, rows: BitMap64, deleted_rows: BitMap64, deleted_outputs: Mapping[str, BitMap64 | None]
    ) -> dict[str, BitMap64] | None:
        """Return where the compaction put these live rows of the source.

        The n-th live row of the source before the commit is the n-th live one of its rows in the outputs, whatever was
        deleted during the compaction.

        Args:
            rows: row indexes in the source, none of them deleted.
            deleted_rows: the source's deleted rows just before the commit.
            deleted_outputs: deleted rows of each output just after the commit, None for an output that was not added.

        Returns:
            Row indexes by output, or None if the runs do not cover a row.
        """
        taken = self.ranks_of(deleted_outputs)
        places = live_ranks(rows, deleted_rows)
        ranks = places + np.searchsorted(taken - np.arange(len(taken)), places, side="right")
        if len(ranks) and ranks[-1] >= self.total:
            return None
        return self.rows_at(ranks)


def by_source(rewritten: Mapping[str, Sequence[RowRun]]) -> dict[str, SourceRuns]:
    """Return the runs by source; empty if they contradict each other."""
    runs_by_source: dict[str, list[tuple[str, RowRun]]] = {}
    for output, runs in rewritten.items():
        if not _is_tiled(runs):
            return {}
        for run in runs:
            runs_by_source.setdefault(run.source, []).append((output, run))
    sources = {source: SourceRuns(runs) for source, runs in runs_by_source.items()}
    return sources if all(each.is_complete for each in sources.values()) else {}


def live_ranks(rows: BitMap64, deleted: BitMap64) -> Rows:
    """Return the rank of each of these live rows: the number of live rows before it in its file."""
    found = row_array(rows)
    return found - np.searchsorted(row_array(deleted), found) if deleted else found


def _is_tiled(runs: Iterable[RowRun]) -> bool:
    """Whether the runs of one output are contiguous from its first row on."""
    end = 0
    for run in sorted(runs, key=lambda each: each.first_output_row):
        if run.first_output_row != end:
            return False
        end += run.count
    return True


def row_array(rows: BitMap64) -> Rows:
    """Return row indexes as an ascending array."""
    return np.frombuffer(rows.to_array(), np.uint64).astype(np.int64) if rows else np.zeros(0, np.int64)
