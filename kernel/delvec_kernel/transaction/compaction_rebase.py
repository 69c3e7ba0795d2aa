"""Where compactions put rows: winning ones, and ours, in whose outputs concurrent deletes of its sources are repeated."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import cached_property

import numpy as np
from pyroaring import BitMap64

from delvec_kernel import locations
from delvec_kernel.transaction.current_transaction import CurrentTransaction
from delvec_kernel.transaction.row_maps import MovedRows, RowMaps
from delvec_kernel.transaction.row_runs import Rows, SourceRuns, by_source, live_ranks, row_array
from delvec_kernel.transaction.transaction_changes import Changes, RowMap
from delvec_kernel.transaction.winning_commit import WinningCommit, num_records

__all__ = ["CompactedRows", "OurCompaction"]


class CompactedRows:
    """Where winners put the rows of files that they compacted; reads each row map once.

    Args:
        row_maps: reads row maps; None if they cannot be read.
    """

    def __init__(self, row_maps: RowMaps | None) -> None:
        self._row_maps = row_maps
        self._known: dict[tuple[int, str], MovedRows | None] = {}

    def of(self, winner: WinningCommit, sources: Collection[str]) -> Mapping[str, MovedRows]:
        """Return where a winner put the rows of these files, by canonical path, omitting unknown ones."""
        row_map = winner.row_map
        if row_map is None or self._row_maps is None:
            return {key: winner.sources[key] for key in sources if key in winner.sources}
        unknown = [key for key in sources if (winner.version, key) not in self._known]
        if unknown:
            found = self._row_maps(row_map, [key for key in unknown if key in winner.removes])
            self._known |= {(winner.version, key): found.get(key) for key in unknown}
        known = {key: self._known[winner.version, key] for key in sources}
        return {key: rows for key, rows in known.items() if rows is not None}


class OurCompaction:
    """Where our compaction put rows, if known."""

    def __init__(self, ours: CurrentTransaction, row_maps: RowMaps | None) -> None:
        self._ours = ours
        self._row_maps = row_maps
        self._wanted: set[str] = set()
        self._mapped: dict[str, MovedRows | None] = {}
        self._left_out: set[str] = set()

    def prefetch(self, sources: Collection[str]) -> None:
        """Announce sources that will be requested, so that a row map is read once for all of them."""
        self._wanted |= set(sources)

    def of(self, source: str) -> MovedRows | None:
        """Return where the rows of a source, given by canonical path, are; None if unknown."""
        row_map = self._row_map
        if row_map is None or self._row_maps is None:
            return self._runs.get(source)
        if source not in self._mapped:
            unknown = [key for key in {*self._wanted, source} if key not in self._mapped]
            found = self._row_maps(row_map, [key for key in unknown if key in self._ours.removes])
            self._mapped |= {key: found.get(key) for key in unknown}
        return self._mapped[source]

    def knows_positions(self, source: str, base: Callable[[], BitMap64], live: int | None) -> bool:
        """Whether the new position is known of every row of a source that was live when we read it.

        Args:
            source: canonical path.
            base: returns its deleted rows at that time.
            live: the number of live rows at that time, or None if unknown.
        """
        runs = self.of(source)
        if runs is None:
            return False
        copied = self._copied(runs)
        if not len(copied):
            return live in (None, runs.total)
        # For a file copied whole, the rows deleted in the output must be those deleted in the source.
        return np.array_equal(copied, row_array(base())) and live in (None, runs.total - len(copied))

    def _ranks(self, runs: MovedRows, rows: BitMap64, base: BitMap64) -> Rows:
        """Return the ranks of rows that were live when we read their source."""
        places, copied = live_ranks(rows, base), self._copied(runs)
        return places + np.searchsorted(copied - np.arange(len(copied)), places, side="right")

    def _copied(self, runs: MovedRows) -> Rows:
        """Return the ranks of deleted rows that were copied."""
        deletes = self._ours.changes.added_deletes
        return runs.ranks_of({output: deletes.get(output, BitMap64()) for output in runs.outputs})

    @cached_property
    def _row_map(self) -> RowMap | None:
        """Our row map, with outputs as in our adds; None if it does not match them."""
        row_map = self._ours.changes.row_map
        if row_map is None:
            return None
        counts = {add.path: num_records(add) for add in self._ours.changes.adds}
        rows_by_output = row_map.rows_by_output
        is_ours = counts.keys() == rows_by_output.keys()
        return (
            row_map
            if is_ours and all(counts[path] in (None, rows) for path, rows in rows_by_output.items())
            else None
        )

    @cached_property
    def _runs(self) -> Mapping[str, SourceRuns]:
        """Where the rows of each source are, by canonical path.

        Empty if the runs contradict each other, or do not cover all rows of an output.
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

    def drop_source(self, source: str) -> set[str]:
        """Drop ``source`` and all sources that share outputs with it from the compaction; return the dropped ones.

        Returns an empty set, and drops nothing, if these are unknown or nothing would be left.
        """
        outputs = {add.path for add in self._ours.changes.adds}
        if source not in self._runs or not outputs <= self._ours.changes.rewritten.keys():
            return set()
        together, group = {source}, set(self._runs[source].outputs)
        while more := {
            key for key, runs in self._runs.items() if key not in together and runs.outputs & group
        }:
            together |= more
            group.update(*(self._runs[key].outputs for key in more))
        if outputs <= self._left_out | group:
            return set()
        self._left_out |= group
        return together

    def rebased(self, changes: Changes, went: Mapping[str, tuple[BitMap64, BitMap64] | None]) -> Changes:
        """Return ``changes`` with these rows deleted in the outputs; outputs without live rows are removed.

        Args:
            changes: ours.
            went: by source, the rows deleted since we read it, and the rows deleted then; None if all rows were
                removed.
        """
        deleted_rows: dict[str, BitMap64] = {
            path: rows.copy() for path, rows in changes.added_deletes.items()
        }
        for source, rows in went.items():
            runs = self.of(source)
            if runs is None:
                continue
            placed = runs.all_rows() if rows is None else runs.rows_at(self._ranks(runs, *rows))
            for output, found in placed.items():
                deleted_rows[output] = deleted_rows[output] | found if output in deleted_rows else found
        rewritten = {path: runs for path, runs in changes.rewritten.items() if path not in self._left_out}
        total = {path: sum(run.count for run in runs) for path, runs in rewritten.items()}
        if changes.row_map is not None:
            total |= changes.row_map.rows_by_output
        gone = self._left_out | {path for path, rows in deleted_rows.items() if len(rows) == total.get(path)}
        return replace(
            changes,
            adds=[add for add in changes.adds if add.path not in gone],
            added_deletes={path: rows for path, rows in deleted_rows.items() if rows and path not in gone},
            rewritten=rewritten,
        )
