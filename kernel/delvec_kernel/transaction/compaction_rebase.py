"""Our own compaction: what others deleted in its sources meanwhile is deleted in its outputs."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property

from pyroaring import BitMap64

from delvec_kernel import locations
from delvec_kernel.transaction.current_transaction import CurrentTransaction
from delvec_kernel.transaction.row_runs import SourceRuns, by_source, live_ranks
from delvec_kernel.transaction.transaction_changes import Changes
from delvec_kernel.transaction.winning_commit import num_records

__all__ = ["OurCompaction"]


class OurCompaction:
    """Where a compaction of ours put rows, as far as it says so."""

    def __init__(self, ours: CurrentTransaction) -> None:
        self._ours = ours
        self._left_out: set[str] = set()

    @cached_property
    def sources(self) -> Mapping[str, SourceRuns]:
        """Where the rows of each source are, by its canonical path.

        Nothing where the runs contradict each other, or are not all rows of an output.
        """
        location = self._ours.facts.location
        counts = {add.path: num_records(add) for add in self._ours.changes.adds}
        for output, runs in self._ours.changes.rewritten.items():
            if counts.get(output) not in (None, sum(run.count for run in runs)):
                return {}
        return by_source(
            {
                output: [
                    replace(run, source=locations.canonical_log_path(run.source, location)) for run in runs
                ]
                for output, runs in self._ours.changes.rewritten.items()
            }
        )

    def leave_out(self, source: str) -> set[str]:
        """Do without the files that share rows with ``source``; return which these sources are.

        Nothing is left out, and nothing returned, where it cannot be told which they are, or nothing would be left.
        """
        outputs = {add.path for add in self._ours.changes.adds}
        if source not in self.sources or not outputs <= self._ours.changes.rewritten.keys():
            return set()
        together, group = {source}, set(self.sources[source].outputs)
        while more := {
            key for key, runs in self.sources.items() if key not in together and runs.outputs & group
        }:
            together |= more
            group.update(*(self.sources[key].outputs for key in more))
        if outputs <= self._left_out | group:
            return set()
        self._left_out |= group
        return together

    def rebased(self, changes: Changes, went: Mapping[str, tuple[BitMap64, BitMap64] | None]) -> Changes:
        """Return ``changes`` with these rows deleted in their outputs; outputs of which nothing is left go.

        Args:
            changes: ours.
            went: by source, the rows that were deleted since we read it, and those that were deleted then; None
                where all rows went.
        """
        deleted: dict[str, BitMap64] = {path: rows.copy() for path, rows in changes.added_deletes.items()}
        for source, rows in went.items():
            runs = self.sources.get(source)
            if runs is None:
                continue
            placed = runs.all_rows() if rows is None else runs.rows_at(live_ranks(*rows))
            for output, found in placed.items():
                deleted[output] = deleted[output] | found if output in deleted else found
        rewritten = {path: runs for path, runs in changes.rewritten.items() if path not in self._left_out}
        total = {path: sum(run.count for run in runs) for path, runs in rewritten.items()}
        gone = self._left_out | {path for path, rows in deleted.items() if len(rows) == total.get(path)}
        return replace(
            changes,
            adds=[add for add in changes.adds if add.path not in gone],
            added_deletes={path: rows for path, rows in deleted.items() if rows and path not in gone},
            rewritten=rewritten,
        )
