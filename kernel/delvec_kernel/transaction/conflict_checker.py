"""Conflicts with what we read but do not change: rows and files that must stay, and rows that must not be added."""

from collections.abc import Sequence
from typing import Final

from pyroaring import BitMap64

from delvec_errors import ConcurrentAppend, ConcurrentDeleteRead
from delvec_kernel import locations
from delvec_kernel.actions.actions import AddFile
from delvec_kernel.transaction.compaction_rebase import CompactedRows
from delvec_kernel.transaction.current_transaction import CurrentTransaction
from delvec_kernel.transaction.metadata_conflicts import TableRules
from delvec_kernel.transaction.rebase import DeletedRows, Rebase
from delvec_kernel.transaction.row_maps import RowMaps
from delvec_kernel.transaction.verdict import Conflict, Overlap, Passed, Vectors
from delvec_kernel.transaction.winning_commit import AddedFiles, WinningCommit

__all__ = [
    "AddedRows",
    "Conflict",
    "CurrentTransaction",
    "Overlap",
    "Passed",
    "RepairedFiles",
    "RestoredFiles",
    "RowsRead",
    "WinningCommit",
    "check",
]

_NO_ROWS: Final = BitMap64()
_VACUUM: Final = ("VACUUM START", "VACUUM END")


class RowsRead:
    """Rows and files that we read and that must stay; follows them through compactions."""

    def __init__(self, ours: CurrentTransaction, deleted: DeletedRows, compacted: CompactedRows) -> None:
        self._ours = ours
        self._deleted = deleted
        self._compacted = compacted
        reads, location = ours.changes.reads, ours.facts.location
        named = () if reads is None else reads.files
        rows = {} if reads is None else reads.rows
        self._files = {locations.canonical_log_path(path, location) for path in named}
        self._rows = {locations.canonical_log_path(path, location): each for path, each in rows.items()}

    def conflict(self, winner: WinningCommit) -> Conflict | None:
        """Return a conflict if ``winner`` removed any of them."""
        if not winner.removes or not (self._files or self._rows or self._ours.reads_whole_table):
            return None
        if not winner.changes_data:
            self._move(winner)
            return None
        if self._ours.reads_whole_table:
            lost = [key for key in winner.removes if self._loses_rows(winner, key)]
            return (
                self._conflict(winner, lost, "of the table, which this commit read as a whole,")
                if lost
                else None
            )
        overlaps = [
            Overlap.of(winner.removes[key].path, taken)
            for key in self._rows.keys() & winner.removes.keys()
            if (taken := self._removed_rows(winner, key, self._rows[key]))
        ]
        if overlaps:
            paths = [each.path for each in overlaps]
            what = "that this commit read and found a match for,"
            return self._conflict(winner, paths, what, tuple(overlaps))
        files = [key for key in self._files & winner.removes.keys() if self._loses_rows(winner, key)]
        return self._conflict(winner, files, "that this commit read,") if files else None

    def _loses_rows(self, winner: WinningCommit, key: str) -> bool:
        remove, add = winner.removes[key], winner.adds.get(key)
        if add is None:
            return True
        if add.deletion_vector is None or add.deletion_vector == remove.deletion_vector:
            return False
        return winner.only_deletes_more or not self._deleted.of(add) <= self._deleted.of(remove)

    def _removed_rows(self, winner: WinningCommit, key: str, rows: BitMap64) -> BitMap64:
        remove, add = winner.removes[key], winner.adds.get(key)
        if add is not None:
            rows = rows & self._deleted.of(add) if add.deletion_vector != remove.deletion_vector else _NO_ROWS
        return rows - self._deleted.of(remove) if rows else rows

    def _move(self, winner: WinningCommit) -> None:
        """Follow rows into the files that a compaction wrote: all of them, if it has no record of rows."""
        keys = (self._files | self._rows.keys()) & (winner.removes.keys() - winner.adds.keys())
        moved = self._compacted.of(winner, keys)
        for key in keys:
            rows = self._rows.pop(key, None)
            runs = moved.get(key)
            if runs is None or rows is None:
                self._files.discard(key)
                self._files |= winner.new_files.keys() if runs is None else runs.outputs
                continue
            deleted = self._deleted.of(winner.removes[key])
            outputs = {
                output: self._deleted.of(winner.adds[output]) if output in winner.adds else None
                for output in runs.outputs
            }
            placed = runs.moved(rows - deleted, deleted, outputs)
            if placed is None:
                self._files |= winner.new_files.keys()
                continue
            for output, found in placed.items():
                self._rows[output] = self._rows.get(output, _NO_ROWS) | found

    def _conflict(
        self, winner: WinningCommit, keys: Sequence[str], what: str, overlaps: tuple[Overlap, ...] = ()
    ) -> Conflict:
        paths = tuple(sorted(keys))
        files_text = f"file '{paths[0]}'" if len(paths) == 1 else f"{len(paths)} files"
        return Conflict(
            ConcurrentDeleteRead,
            self._ours.changes,
            winner,
            paths,
            f"removed rows of {files_text} {what}",
            overlaps,
        )


class AddedRows:
    """Rows added by winners that our reads should have included."""

    def __init__(self, ours: CurrentTransaction, deleted: DeletedRows, added: AddedFiles) -> None:
        self._ours = ours
        self._deleted = deleted
        self._added = added

    def conflict(
        self,
        winner: WinningCommit,
        earlier: Sequence[WinningCommit],
        rebase: Rebase,
    ) -> Conflict | None:
        """Return a conflict if ``winner`` added rows that match our reads.

        Args:
            winner: the winning commit.
            earlier: earlier winners, already checked.
            rebase: our removals, already rebased on the winner.
        """
        ours = self._ours
        if ours.reads_added == "nothing" or ours.isolation == "SnapshotIsolation":
            return None
        if winner.only_deletes_more and not winner.new_files and not rebase.resurfaced:
            return None  # the usual case in a table with many deletes
        files = {key: add for key, add in winner.new_files.items() if key not in rebase.without_new_rows}
        if not winner.only_deletes_more:
            files |= {
                key: add
                for key, add in winner.adds.items()
                if key in winner.removes
                and key not in rebase.without_new_rows
                and self._may_have_shrunk(winner, key)
            }
        if not (files or rebase.resurfaced) or not winner.changes_data:
            return None
        blind = winner.is_blind_append and not winner.removes
        keeps = ours.changes.metadata is None and not ours.changes.replaces_schema
        if blind and ours.isolation == "WriteSerializable" and keeps:
            return None
        added_files = [*files.values(), *rebase.resurfaced]
        if ours.reads_added == "matching":
            added_files = self._added.matching(added_files)
        # Read deletion vectors only for these.
        keys = {id(add): key for key, add in files.items() if key not in rebase.moved_files}
        added_files = [
            add
            for add in added_files
            if id(add) not in keys or self._is_new(keys[id(add)], add, winner, earlier)
        ]
        if not added_files:
            return None
        paths = tuple(sorted(add.path for add in added_files))
        files_text = f"file '{paths[0]}'" if len(paths) == 1 else f"{len(paths)} files"
        which = (
            "that may contain rows that match this commit's condition"
            if ours.reads_added == "matching" and ours.predicate is not None
            else "that this commit would have had to read"
        )
        return Conflict(ConcurrentAppend, ours.changes, winner, paths, f"added {files_text} {which}")

    def _may_have_shrunk(self, winner: WinningCommit, key: str) -> bool:
        before, after = winner.removes[key].deletion_vector, winner.adds[key].deletion_vector
        return before is not None and before.cardinality > 0 and before != after

    def _is_new(
        self, key: str, add: AddFile, winner: WinningCommit, earlier: Sequence[WinningCommit]
    ) -> bool:
        """Whether the file has a row that was not live when we read."""
        first = next(each for each in (*earlier, winner) if key in each.removes or key in each.adds)
        # A file added again with new statistics, or moved there by a compaction, has no new rows. A file first added after our
        # read, then removed and restored, had none when we read.
        before = first.removes.get(key) or (None if first.changes_data else first.adds[key])
        return before is None or not self._deleted.of(before) <= self._deleted.of(add)


class RepairedFiles:
    """Files that our repair fixes, which any other change invalidates."""

    def __init__(self, ours: CurrentTransaction) -> None:
        self._ours = ours
        location = ours.facts.location
        self._keys = {locations.canonical_log_path(repair.path, location) for repair in ours.changes.repairs}

    def conflict(self, winner: WinningCommit) -> Conflict | None:
        """Return a conflict if ``winner`` touched one of them."""
        if not self._keys:
            return None
        touched = self._keys & (winner.adds.keys() | winner.removes.keys() | winner.stale_removes)
        if not touched:
            return None
        files_text = f"file '{min(touched)}'" if len(touched) == 1 else f"{len(touched)} files"
        what = f"changed {files_text} that this commit repairs"
        return Conflict(ConcurrentDeleteRead, self._ours.changes, winner, tuple(sorted(touched)), what)


class RestoredFiles:
    """Files that our RESTORE brings back, which a concurrent VACUUM may have deleted since we checked them."""

    def __init__(self, ours: CurrentTransaction) -> None:
        self._ours = ours
        self._brings_back = ours.changes.operation == "RESTORE" and bool(ours.changes.restores)

    def conflict(self, winner: WinningCommit) -> Conflict | None:
        """Return a conflict if ``winner`` started or ended a VACUUM."""
        if not self._brings_back or winner.operation not in _VACUUM:
            return None
        what = "may have deleted files that this commit brings back"
        return Conflict(ConcurrentDeleteRead, self._ours.changes, winner, (), what)


def check(
    ours: CurrentTransaction,
    winners: Sequence[WinningCommit],
    vectors: Vectors,
    row_maps: RowMaps | None = None,
) -> Passed | Conflict:
    """Check whether ``ours`` can be committed after ``winners``, and return the rebased changes.

    Args:
        ours: the current transaction.
        winners: all commits after the version that was read, in order.
        vectors: reads deletion vectors.
        row_maps: reads the row maps of sorting compactions; without it they are unknown.

    Raises:
        CorruptDeletionVector: or a subclass: a deletion vector that is needed cannot be read.
    """
    deleted, files = DeletedRows(vectors), AddedFiles(ours, winners)
    compacted = CompactedRows(row_maps)
    table, rebase = TableRules(ours), Rebase(ours, deleted, files, compacted, row_maps)
    reads, added_rows = RowsRead(ours, deleted, compacted), AddedRows(ours, deleted, files)
    repaired, restored = RepairedFiles(ours), RestoredFiles(ours)
    for place, winner in enumerate(winners):
        conflict = (
            table.conflict(winner)
            or repaired.conflict(winner)
            or restored.conflict(winner)
            or rebase.conflict(winner)
            or reads.conflict(winner)
            or added_rows.conflict(winner, winners[:place], rebase)
        )
        if conflict is not None:
            return conflict
    changes, gone = rebase.result()
    return Passed(tuple(winner.version for winner in winners), changes, gone)
