"""Rebases our removals on winning commits: which remain, and in which files."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from pyroaring import BitMap64

from delvec_errors import ConcurrentAppend, ConcurrentDeleteDelete
from delvec_kernel.actions.actions import AddFile, RemoveFile
from delvec_kernel.deletion_vectors.deletion_vector import Descriptor
from delvec_kernel.table_properties import DELETION_VECTORS, is_true
from delvec_kernel.transaction.compaction_rebase import CompactedRows, OurCompaction
from delvec_kernel.transaction.current_transaction import CurrentTransaction
from delvec_kernel.transaction.row_maps import MovedRows, RowMaps
from delvec_kernel.transaction.transaction_changes import Changes
from delvec_kernel.transaction.verdict import Conflict, Overlap, Vectors
from delvec_kernel.transaction.winning_commit import AddedFiles, Target, WinningCommit, live_rows, num_records

__all__ = ["DeletedRows", "Rebase"]


class DeletedRows:
    """Deleted rows by file; reads each deletion vector once."""

    def __init__(self, vectors: Vectors) -> None:
        self._vectors = vectors
        self._known: dict[Descriptor, BitMap64] = {}

    def of(self, file: AddFile | RemoveFile) -> BitMap64:
        """Return the deleted rows of a file; do not modify the bitmap."""
        descriptor = file.deletion_vector
        if descriptor is None:
            return BitMap64()
        if descriptor not in self._known:
            self._known[descriptor] = self._vectors(file)
        return self._known[descriptor]


@dataclass
class _ConflictingFiles:
    """Files with conflicts in one winner, by kind of conflict."""

    overlaps: list[Overlap] = field(default_factory=list)
    rewritten: list[str] = field(default_factory=list)
    replaced: list[str] = field(default_factory=list)
    returned: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    undeletable: list[str] = field(default_factory=list)


class Rebase:
    """Our removals after the winners so far.

    Args:
        ours: the current transaction.
        deleted: reads deletion vectors.
        added: selects winners' files by predicate.
        compacted: where winning compactions put rows.
        row_maps: reads the row map of our compaction.

    Attributes:
        resurfaced: our files in which the last winner made rows live that were deleted when we read them.
        without_new_rows: paths that the last winner added without any row that we had not seen.
        moved_files: our files that were compacted, so that their rows are in other files.
    """

    def __init__(
        self,
        ours: CurrentTransaction,
        deleted_rows: DeletedRows,
        added_files: AddedFiles,
        compacted_rows: CompactedRows,
        row_maps: RowMaps | None,
    ) -> None:
        self._ours = ours
        self._deleted = deleted_rows
        self._added = added_files
        self._removal_kind = ours.removal_kind
        self._targets = {key: Target(path, None) for key, path in ours.removes.items()} | {
            key: Target(path, rows) for key, (path, rows) in ours.row_deletes.items()
        }
        self._touched: set[str] = set()
        self._gone = 0
        self._compacted = compacted_rows
        self._compaction = OurCompaction(ours, row_maps)
        facts = ours.facts
        self._writes_vectors = "deletionVectors" in (facts.protocol.writer_features or ()) and is_true(
            facts.metadata.configuration, DELETION_VECTORS
        )
        self.resurfaced: list[AddFile] = []
        self.without_new_rows: set[str] = set()
        self.moved_files: set[str] = set()

    def conflict(self, winner: WinningCommit) -> Conflict | None:
        """Rebase our removals on ``winner``, or return the conflict."""
        self.resurfaced = []
        self.without_new_rows = set()
        keys = self._targets.keys()
        if keys.isdisjoint(winner.removes) and keys.isdisjoint(winner.adds):
            return self._check_restored_files(winner) if winner.is_restore else None
        conflicts = _ConflictingFiles()
        rearranged_keys: list[str] = []
        touched = [key for key in keys if key in winner.removes or key in winner.adds]
        self._compaction.prefetch(touched)
        for key in touched:
            if key not in self._targets:
                continue  # dropped from the compaction meanwhile
            target, remove, add = self._targets[key], winner.removes.get(key), winner.adds.get(key)
            self._touched.add(key)
            if add is not None:
                self._changed(key, target, remove, add, winner, conflicts)
            elif remove is not None and winner.changes_data:
                self._removed(key, target, remove, winner, conflicts)
            elif remove is not None:
                self._record_first_state(target, remove)
                rearranged_keys.append(key)
        if rearranged_keys:
            self._follow_compaction(rearranged_keys, winner, conflicts)
        return self._report(conflicts, winner) or (
            self._check_restored_files(winner) if winner.is_restore else None
        )

    def _check_restored_files(self, winner: WinningCommit) -> Conflict | None:
        """A RESTORE adds old files, and rows to files, which may be rows that we no longer remove."""
        if not self._touched or self._removal_kind != "idempotent":
            return None
        if self._ours.reads_added != "nothing":
            return None  # checked as added files
        files = [add.path for key, add in winner.new_files.items() if key not in self.without_new_rows]
        if any(map(self._has_lost_rows, self._touched)):
            files += [add.path for add in self.resurfaced]
            files += [
                add.path
                for key, add in winner.adds.items()
                if key not in self._targets and key in winner.removes and self._brings_rows(winner, key)
            ]
        return (
            self._conflict(winner, files, f"brought back {_files(files)}", appended=True) if files else None
        )

    def _has_lost_rows(self, key: str) -> bool:
        """Whether rows of ours are no longer in a file, and may have come back in another one."""
        target = self._targets.get(key)
        if target is None:
            return False
        return not target.is_live or bool(target.rows and target.rows & self._current_rows(target))

    def _brings_rows(self, winner: WinningCommit, key: str) -> bool:
        before, after = winner.removes[key], winner.adds[key]
        if before.deletion_vector is None or before.deletion_vector == after.deletion_vector:
            return False
        return not self._deleted.of(before) <= self._deleted.of(after)

    # --- one file -------------------------------------------------------------------------------------------

    def _record_first_state(self, target: Target, file: AddFile | RemoveFile) -> None:
        """Record the file's state when we read it, on the first winner that touches it."""
        if target.first is not None:
            return
        target.first = target.last = file
        if target.rows is not None:
            target.base = self._deleted.of(file)
            target.rows = target.rows - target.base

    def _base(self, target: Target) -> BitMap64:
        if target.base is None:
            assert target.first is not None  # noqa: S101 - by _record_first_state
            target.base = self._deleted.of(target.first)
        return target.base

    def _changed(
        self,
        key: str,
        target: Target,
        remove: RemoveFile | None,
        add: AddFile,
        winner: WinningCommit,
        conflicts: _ConflictingFiles,
    ) -> None:
        """Handle a winner that changed the file's deletion vector or added the file again."""
        self.without_new_rows.add(key)
        before = target.last if remove is None else remove
        if before is None:
            self._record_first_state(target, add)  # unchanged: a new deletion vector would need a remove
            return
        self._record_first_state(target, before)
        came_back, target.is_live, target.last = not target.is_live, True, add
        if before.deletion_vector == add.deletion_vector:
            return
        if target.is_whole and self._removal_kind == "idempotent" and _only_removes_rows(winner):
            return  # the descriptors' cardinality is enough
        if not self._base(target) <= self._deleted.of(add):
            if not target.is_whole:
                self.resurfaced.append(add)
            elif self._removal_kind != "rearrangement" or not self._drop_from_compaction(key):
                conflicts.returned.append(add.path)
        if not came_back:
            self._check_deleted_rows(key, target, before, winner, conflicts)

    def _check_deleted_rows(
        self,
        key: str,
        target: Target,
        before: AddFile | RemoveFile,
        winner: WinningCommit,
        conflicts: _ConflictingFiles,
    ) -> None:
        """Check the rows of a file that the winner deleted."""
        after = self._deleted.of(winner.adds[key])
        went = (after if target.rows is None else target.rows & after) - self._deleted.of(before)
        if not went:
            return
        if self._removal_kind == "rearrangement" and target.is_whole:
            self._check_deletable_in_outputs(key, target, before.path, conflicts)
        elif self._removal_kind != "idempotent" or not _only_removes(winner):
            conflicts.overlaps.append(Overlap.of(before.path, went))

    def _removed(
        self,
        key: str,
        target: Target,
        remove: RemoveFile,
        winner: WinningCommit,
        conflicts: _ConflictingFiles,
    ) -> None:
        """Handle a winner that removed the whole file."""
        self._record_first_state(target, remove)
        target.is_live, target.last = False, remove
        left = None if target.rows is None else target.rows - self._deleted.of(remove)
        if left is not None and not left:
            return
        if self._removal_kind == "idempotent":
            if self._added.matching(winner.new_files.values()):
                conflicts.replaced.append(remove.path)
        elif self._removal_kind == "exact" or left is not None:
            count = live_rows(remove)
            conflicts.overlaps.append(
                Overlap(remove.path, count or 0, ()) if left is None else Overlap.of(remove.path, left)
            )
        else:
            self._check_deletable_in_outputs(key, target, remove.path, conflicts)

    # --- compactions ----------------------------------------------------------------------------------------

    def _follow_compaction(
        self, keys: Sequence[str], winner: WinningCommit, conflicts: _ConflictingFiles
    ) -> None:
        """Handle a winner that moved the rows of files into other files."""
        if self._removes_all_sources(winner):
            for key in keys:
                self._mark_moved(key)
            self._targets |= {
                key: Target(add.path, None, add, None, add) for key, add in winner.new_files.items()
            }
            return
        outputs: dict[str, Target] = {}
        sources: dict[str, list[str]] = {}
        moved = {} if self._removal_kind == "rearrangement" else self._compacted.of(winner, keys)
        for key in keys:
            if self._removal_kind == "rearrangement" and self._drop_from_compaction(key):
                continue  # now, or before with another one of them
            placed = self._new_positions(key, self._targets[key], winner, moved.get(key))
            if placed is None:
                conflicts.rewritten.append(winner.removes[key].path)
                continue
            self._mark_moved(key)
            for output, rows in placed.items():
                add = winner.adds[output]
                here = outputs.setdefault(output, Target(add.path, BitMap64(), add, None, add))
                assert here.rows is not None  # noqa: S101 - set above
                sources.setdefault(output, []).append(winner.removes[key].path)
                here.base = self._deleted.of(add)
                here.rows |= rows - here.base
        for output, target in outputs.items():
            if len((target.rows or BitMap64()) | self._base(target)) == winner.rows_of(output):
                target.rows = None
            elif not self._writes_vectors:
                conflicts.rewritten += sources[output]  # we removed whole files, which are now parts of one
        self._targets |= outputs

    def _mark_moved(self, key: str) -> None:
        self._count_already_gone(self._targets.pop(key))
        self.moved_files.add(key)

    def _removes_all_sources(self, winner: WinningCommit) -> bool:
        """Whether we remove everything that a compaction rewrote, and therefore all its outputs."""
        return (
            self._removal_kind == "idempotent"
            and winner.adds.keys() == winner.new_files.keys()
            and all(key in self._targets and self._targets[key].is_whole for key in winner.removes)
        )

    def _new_positions(
        self, key: str, target: Target, winner: WinningCommit, runs: MovedRows | None
    ) -> dict[str, BitMap64] | None:
        # A RESTORE is recomputed from the new version, so parts of files need no tracking.
        restores = target.is_whole and self._ours.changes.operation in ("RESTORE", "CLONE")
        if runs is None or restores or self._removal_kind == "rearrangement":
            return None
        outputs = {
            output: self._deleted.of(winner.adds[output]) if output in winner.adds else None
            for output in runs.outputs
        }
        deleted_rows = self._deleted.of(winner.removes[key])
        physical = num_records(winner.removes[key])
        if physical is not None and physical - len(deleted_rows) != runs.total - len(runs.ranks_of(outputs)):
            return None  # the runs do not match this file
        for output in runs.outputs & winner.adds.keys():
            if num_records(winner.adds[output]) not in (None, winner.rows_of(output)):
                return None  # the runs do not match this output
        if target.rows is None:
            placed: dict[str, BitMap64] | None = runs.all_rows()
        else:
            placed = runs.moved(target.rows - deleted_rows, deleted_rows, outputs)
        if placed is None:
            return None
        return {output: rows for output, rows in placed.items() if outputs[output] is not None}

    def _check_deletable_in_outputs(
        self, key: str, target: Target, path: str, conflicts: _ConflictingFiles
    ) -> None:
        """Check whether rows removed from a source of our compaction can be deleted in its outputs."""
        if not self._has_known_positions(key, target):
            conflicts.lost.append(path)
        elif not self._writes_vectors and not self._drop_from_compaction(key):
            conflicts.undeletable.append(path)

    def _has_known_positions(self, key: str, target: Target) -> bool:
        """Whether our compaction records where it put every row that was live when we read the file."""
        live = None if target.first is None else live_rows(target.first)
        return self._compaction.knows_positions(key, lambda: self._base(target), live)

    def _drop_from_compaction(self, key: str) -> bool:
        """Drop the part of our compaction that includes a file, if others remain; return whether it was dropped."""
        left_out = self._compaction.drop_source(key)
        for each in left_out:
            self._targets.pop(each, None)
        return bool(left_out)

    # --- result ---------------------------------------------------------------------------------------------

    def _report(self, conflicts: _ConflictingFiles, winner: WinningCommit) -> Conflict | None:
        operation = self._ours.changes.operation
        if conflicts.overlaps:
            count = sum(each.count for each in conflicts.overlaps)
            paths = [each.path for each in conflicts.overlaps]
            rows = "rows" if not count else "a row" if count == 1 else f"{count:,} rows"
            what = f"removed or changed {rows} of {_files(paths)} that this commit also removes or changes,"
            return self._conflict(winner, paths, what, overlaps=tuple(conflicts.overlaps))
        if conflicts.rewritten:
            both = (
                "this commit also rewrites,"
                if self._removal_kind == "rearrangement"
                else "this commit removes rows of,"
            )
            what = f"rewrote {_files(conflicts.rewritten)} that {both}"
            if self._removal_kind != "rearrangement":
                what += " without recording where each row is now,"
            return self._conflict(winner, conflicts.rewritten, what)
        for paths, how in (
            (conflicts.lost, " without recording where each row is,"),
            (
                conflicts.undeletable,
                ", and without deletion vectors they cannot be deleted in the new files,",
            ),
        ):
            if paths:
                what = f"removed rows of {_files(paths)} that this {operation} rewrote{how}"
                return self._conflict(winner, paths, what)
        if conflicts.returned:
            what = f"restored rows in {_files(conflicts.returned)}, which this commit removes as a whole,"
            return self._conflict(winner, conflicts.returned, what, appended=True)
        if conflicts.replaced:
            what = f"replaced {_files(conflicts.replaced)} by files that may contain rows that this commit removes,"
            return self._conflict(
                winner, conflicts.replaced, what, appended=self._ours.reads_added != "nothing"
            )
        return None

    def _conflict(
        self,
        winner: WinningCommit,
        files: Sequence[str],
        what: str,
        *,
        overlaps: tuple[Overlap, ...] = (),
        appended: bool = False,
    ) -> Conflict:
        kind = ConcurrentAppend if appended else ConcurrentDeleteDelete
        return Conflict(kind, self._ours.changes, winner, tuple(files), what, overlaps)

    def result(self) -> tuple[Changes, int]:
        """Return the rebased changes, and how many of our rows winners had already removed."""
        changes = self._ours.changes
        if not self._touched:
            return changes, 0
        removes: list[str] = []
        row_deletes: dict[str, BitMap64] = {}
        for key, target in self._targets.items():
            if key not in self._touched:
                rows = target.rows
            elif not target.is_live:
                self._count_already_gone(target)
                continue
            else:
                self._count_already_gone(target)
                rows = None if target.rows is None else target.rows - self._current_rows(target)
            if rows is None:
                removes.append(target.path)
            elif rows:
                row_deletes[target.path] = rows
        untouched = {target.path for key, target in self._targets.items() if key not in self._touched}
        vectors = {path: each for path, each in changes.written_vectors.items() if path in untouched}
        changes = replace(changes, removes=removes, row_deletes=row_deletes, written_vectors=vectors)
        if self._removal_kind != "rearrangement":
            return changes, self._gone
        went: dict[str, tuple[BitMap64, BitMap64] | None] = {}
        for key, target in self._targets.items():
            if key in self._touched:
                base = self._base(target)
                went[key] = (self._current_rows(target) - base, base) if target.is_live else None
        return self._compaction.rebased(changes, went), 0

    def _current_rows(self, target: Target) -> BitMap64:
        assert target.last is not None  # noqa: S101 - by _record_first_state
        return self._deleted.of(target.last)

    def _count_already_gone(self, target: Target) -> None:
        if target.first is None or target.last is None:
            return
        if target.rows is not None:
            self._gone += len(target.rows if not target.is_live else target.rows & self._current_rows(target))
        elif target.is_live:
            self._gone += _cardinality(target.last) - _cardinality(target.first)
        else:
            self._gone += live_rows(target.first) or 0


def _only_removes(winner: WinningCommit) -> bool:
    """Whether none of the files it added contains a row that it deleted."""
    return not winner.new_files or not winner.changes_data


def _only_removes_rows(winner: WinningCommit) -> bool:
    """Whether it only deleted rows, which can be told without reading deletion vectors."""
    return winner.only_deletes_more and _only_removes(winner)


def _cardinality(file: AddFile | RemoveFile) -> int:
    return file.deletion_vector.cardinality if file.deletion_vector else 0


def _files(paths: Sequence[str]) -> str:
    return f"file '{paths[0]}'" if len(paths) == 1 else f"{len(paths)} files"
