"""Transactions as clients plan them: their reads, requests and effects."""

import uuid
from dataclasses import dataclass, field
from itertools import count

from pyroaring import BitMap64
from tests.integration.state_machine.conditions import (
    EVERYTHING,
    Condition,
    any_condition,
    between_ids,
    part_is,
)
from tests.integration.state_machine.data_files import write_file, write_files, write_vector
from tests.integration.state_machine.rows import (
    Appends,
    Effect,
    Merges,
    Nothing,
    RemovesFiles,
    RemovesRows,
    Replaces,
    Row,
    Updates,
)

from delvec_kernel.actions.actions import Metadata, Txn
from delvec_kernel.transaction.transaction_changes import Changes, Reads, RowRun

__all__ = ["FAMILIES", "PLANS", "Pending", "Planner"]

ENGINE = "state-machine"


@dataclass
class Pending:
    """A planned transaction that is not committed yet.

    Attributes:
        kind: the plan that created it.
        by_rows: whether it removes rows by deletion vector, or whole files, and copies nothing.
        parts: the partitions that it reads or writes.
    """

    kind: str
    changes: Changes
    effect: Effect
    by_rows: bool = True
    parts: tuple = ()
    answers: list = field(default_factory=list)

    @property
    def key(self):
        return self.changes.transaction_id

    @property
    def is_pure_delete(self):
        return self.changes.operation == "DELETE" and not self.changes.adds

    @property
    def in_partitions(self):
        """Whether changes in partitions other than ``parts`` cannot affect it."""
        rests_on_predicate = self.kind in (
            "delete",
            "update",
            "delete by copy",
            "update by copy",
            "replaceWhere",
        )
        return rests_on_predicate and bool(self.parts)

    @property
    def is_blind_append(self):
        return self.changes.is_blind_append


class Planner:
    """Plans transactions at a version as clients do.

    Args:
        location: the table's.
        partitioned: whether the table is partitioned by ``part``.
        statistics: whether files have bounds.
    """

    def __init__(self, location, *, partitioned, statistics):
        self._location = location
        self._partitioned = partitioned
        self._statistics = statistics
        self.next_id = 0
        # Not random, so that hypothesis replays files in the same order.
        self._names = map("f{:06}".format, count())

    def new_rows(self, choices, most=6, part=None):
        number = choices.integer(1, most)
        first, self.next_id = self.next_id, self.next_id + number
        return [
            Row(
                first + place,
                None if choices.flag(10) else choices.integer(0, 9),
                part or choices.pick(("a", "b", "c")),
            )
            for place in range(number)
        ]

    def write(self, rows, **options):
        return write_files(
            self._location,
            self._names,
            rows,
            partitioned=self._partitioned,
            statistics=self._statistics,
            **options,
        )

    # --- plans --------------------------------------------------------------------------------------------

    def append(self, choices, version, _states):
        rows = self.new_rows(choices)
        changes = self._changes(version, "WRITE", adds=self.write(rows), parameters={"mode": "Append"})
        return Pending("append", changes, Appends(tuple(rows)))

    def stream_append(self, choices, version, _states):
        """Plan an application's micro-batch, numbered one above the last it has read."""
        rows = self.new_rows(choices, 3)
        application = choices.pick(("s1", "s2"))
        txn = Txn(application, version.txns.get(application, 0) + choices.integer(1, 2))
        changes = self._changes(version, "STREAMING UPDATE", adds=self.write(rows), app_transaction=txn)
        return Pending("stream append", changes, Appends(tuple(rows)))

    def delete(self, choices, version, _states):
        condition = any_condition(choices, self.next_id)
        taken = self._taken(choices, version, condition)
        return self._deletion("delete", version, condition, taken, writes_vectors=choices.flag(20))

    def delete_in_partition(self, choices, version, _states):
        condition = part_is(choices.pick(("a", "b", "c")))
        taken = self._taken(choices, version, condition)
        return self._deletion("delete", version, condition, taken)

    def _deletion(self, kind, version, condition, taken, *, writes_vectors=False):
        removes, marks = taken
        if not removes and not marks:
            return None
        vectors = {}
        if writes_vectors:
            # A deletion vector written by an engine includes the rows deleted before.
            marks = {path: rows | version.by_path[path].deleted for path, rows in marks.items()}
            vectors = {path: write_vector(self._location, rows) for path, rows in marks.items()}
        changes = self._changes(
            version,
            "DELETE",
            predicate=condition.sql,
            removes=removes,
            row_deletes=marks,
            written_vectors=vectors,
        )
        return Pending(kind, changes, Replaces(condition), parts=condition.parts)

    def delete_rows(self, choices, version, states):
        """Plan a DELETE of rows given by file and index, without a condition."""
        files = self._some_files(choices, version)
        if not files:
            return None
        chosen = {file.path: choices.some(file.live, 3) for file in files if file.live}
        state = states[version.number]
        rows = _named(state, [row for live in chosen.values() for _, row in live])
        marks = {path: BitMap64([index for index, _ in live]) for path, live in chosen.items()}
        if not marks:
            return None
        return Pending("delete rows", self._changes(version, "DELETE", row_deletes=marks), RemovesRows(rows))

    def delete_files(self, choices, version, states):
        files = self._some_files(choices, version)
        if not files:
            return None
        paths = tuple(file.path for file in files)
        state = states[version.number]
        rows = _named(state, [row for file in files for _, row in file.live])
        return Pending(
            "delete files", self._changes(version, "DELETE", removes=list(paths)), RemovesFiles(rows, paths)
        )

    def delete_by_copy(self, choices, version, _states):
        condition = any_condition(choices, self.next_id)
        removes, copied = self._rewritten(version, condition)
        if not removes:
            return None
        changes = self._changes(
            version,
            "DELETE",
            predicate=condition.sql,
            removes=removes,
            adds=self.write(copied) if copied else [],
            metrics={"numCopiedRows": len(copied)},
        )
        return Pending(
            "delete by copy", changes, Replaces(condition), by_rows=not copied, parts=condition.parts
        )

    def update(self, choices, version, _states):
        condition, value = any_condition(choices, self.next_id), choices.integer(0, 9)
        # Whole-file removals stand for copies; an in-place update names rows.
        _, marks = self._taken(choices, version, condition, whole=False)
        if not marks:
            return None
        rows = [Row(row.id, value, row.part) for row in self._matching(version, condition)]
        changes = self._changes(
            version,
            "UPDATE",
            predicate=condition.sql,
            row_deletes=marks,
            adds=self.write(rows),
        )
        return Pending("update", changes, Updates(condition, value), parts=condition.parts)

    def update_by_copy(self, choices, version, _states):
        condition, value = any_condition(choices, self.next_id), choices.integer(0, 9)
        removes, copied = self._rewritten(version, condition)
        if not removes:
            return None
        copied += [Row(row.id, value, row.part) for row in self._matching(version, condition)]
        changes = self._changes(
            version, "UPDATE", predicate=condition.sql, removes=removes, adds=self.write(copied)
        )
        effect = Updates(condition, value)
        return Pending("update by copy", changes, effect, by_rows=False, parts=condition.parts)

    def merge(self, choices, version, _states):
        """Plan a MERGE whose source has ids of the table, and new ids that several MERGEs may insert."""
        present = sorted(row.id for row in version.rows)
        inserts = choices.flag(60)
        ids = set(choices.some(present, 4)) if present else set()
        if inserts:
            # Only MERGE inserts negative ids, so that two MERGEs may insert the same one.
            ids |= {-choices.integer(1, 6) for _ in range(choices.integer(1, 3))}
        if not ids:
            return None
        source = [Row(each, choices.integer(0, 9), choices.pick(("a", "b", "c"))) for each in sorted(ids)]
        matched = any_condition(choices, self.next_id)
        by_id = {row.id: row for row in version.rows}
        values = {row.id: row.value for row in source}
        updated = {row.id for row in source if row.id in by_id and matched(by_id[row.id])}
        inserted = [row for row in source if row.id not in by_id] if inserts else []
        marks = {
            file.path: BitMap64([index for index, row in file.live if row.id in updated])
            for file in version.files.values()
        }
        unchanged = {
            file.path: BitMap64(
                [index for index, row in file.live if row.id in values and row.id not in updated]
            )
            for file in version.files.values()
        }
        marks = {path: rows for path, rows in marks.items() if rows}
        unchanged = {path: rows for path, rows in unchanged.items() if rows}
        new = [Row(each, values[each], by_id[each].part) for each in sorted(updated)] + inserted
        if not new:
            return None
        exact = choices.flag(70)
        changes = self._changes(
            version,
            "MERGE",
            predicate=between_ids(min(ids), max(ids)).sql,
            reads=Reads(rows=unchanged if inserts else {}) if exact else None,
            row_deletes=marks,
            adds=self.write(new),
        )
        return Pending("merge", changes, Merges(tuple(source), matched, inserts))

    def overwrite(self, choices, version, _states):
        return self._replacement(choices, version, "overwrite", EVERYTHING, None)

    def replace_where(self, choices, version, _states):
        part = choices.pick(("a", "b", "c"))
        return self._replacement(choices, version, "replaceWhere", part_is(part), part)

    def _replacement(self, choices, version, kind, condition, part):
        rows = self.new_rows(choices, 4, part)
        removes, marks = self._taken(choices, version, condition)
        changes = self._changes(
            version,
            "WRITE",
            predicate=condition.sql,
            parameters={"mode": "Overwrite", "predicate": condition.sql},
            removes=removes,
            row_deletes=marks,
            adds=self.write(rows),
        )
        return Pending(kind, changes, Replaces(condition, tuple(rows)), parts=condition.parts)

    def optimize(self, choices, version, _states):
        """Plan a compaction that keeps row order, with or without a record of where each row went."""
        part = choices.pick(("a", "b", "c")) if self._partitioned else None
        files = [
            file
            for file in version.files.values()
            if not self._partitioned or file.add["partitionValues"]["part"] == part
        ]
        files = [file for file in files if file.live]
        if not files:
            return None
        sources = choices.some(sorted(files, key=lambda file: file.path))
        rows, runs = [], []
        for source in sources:
            runs.append(RowRun(source.path, 0, len(source.live), len(rows)))
            rows += [row for _, row in source.live]
        cut = choices.integer(1, len(rows)) if choices.flag(30) else len(rows)
        adds, rewritten = [], {}
        for first, last in ((0, cut), (cut, len(rows))):
            if first < last:
                add = write_file(
                    self._location,
                    next(self._names),
                    rows[first:last],
                    part,
                    statistics=self._statistics,
                    data_change=False,
                )
                adds.append(add)
                rewritten[add.path] = _within(runs, first, last)
        recorded = choices.flag(75)
        changes = self._changes(
            version,
            "OPTIMIZE",
            adds=adds,
            removes=[source.path for source in sources],
            data_change=False,
            rewritten=rewritten if recorded else {},
        )
        return Pending("optimize" if recorded else "optimize unrecorded", changes, Nothing())

    def set_property(self, choices, version, _states):
        metadata = Metadata.from_json(version.metadata)
        name, values = choices.pick(
            (
                ("delta.isolationLevel", ("Serializable", "WriteSerializable")),
                ("delvec.groupCommit", ("true", "false")),
                ("note", ("1", "2", "3")),
            )
        )
        configuration = {**metadata.configuration, name: choices.pick(values)}
        if configuration == metadata.configuration:
            return None
        changed = Metadata.from_json(metadata.to_json() | {"configuration": configuration})
        return Pending(
            "set property", self._changes(version, "SET TBLPROPERTIES", metadata=changed), Nothing()
        )

    # --- shared by plans ---------------------------------------------------------------------------------

    def _changes(self, version, operation, **given):
        return Changes(
            operation=operation,
            read_version=version.number,
            transaction_id=str(uuid.uuid4()),
            engine_info=ENGINE,
            **given,
        )

    @staticmethod
    def _matching(version, condition):
        return [row for row in version.rows if condition(row)]

    @staticmethod
    def _some_files(choices, version):
        files = sorted(version.files.values(), key=lambda file: file.path)
        return choices.some(files, 3) if files else []

    @staticmethod
    def _taken(choices, version, condition: Condition, *, whole=True):
        """Return the files removed whole, and the rows removed from others, by path."""
        removes, marks = [], {}
        for file in version.files.values():
            found = [index for index, row in file.live if condition(row)]
            if whole and found and len(found) == len(file.live) and choices.flag(70):
                removes.append(file.path)
            elif found:
                # A client may also send rows that the file's deletion vector already holds.
                marks[file.path] = BitMap64(found) | (file.deleted if choices.flag(20) else BitMap64())
        return removes, marks

    @staticmethod
    def _rewritten(version, condition):
        """Return the files with matching rows, and their other rows."""
        removes, copied = [], []
        for file in version.files.values():
            rest = [row for _, row in file.live if not condition(row)]
            if len(rest) < len(file.live):
                removes.append(file.path)
                copied += rest
        return removes, copied


def _named(state, rows):
    stored = [state[row.id] for row in rows]
    return frozenset((one.row.id, one.birth, one.origin) for one in stored)


def _within(runs, first, last):
    """Return the runs of output rows ``first`` to ``last``, renumbered as a separate output."""
    found = []
    for run in runs:
        start = max(first, run.first_output_row)
        end = min(last, run.first_output_row + run.count)
        if start < end:
            rank = run.first_rank + start - run.first_output_row
            found.append(RowRun(run.source, rank, end - start, start - first))
    return found


FAMILIES = (
    # Plans made at the same version and sent together: some may share a version, others conflict.
    (Planner.delete, Planner.delete_rows),
    (Planner.append,),
    (Planner.merge, Planner.delete, Planner.delete_rows),
    (Planner.update, Planner.optimize, Planner.delete_rows),
)
PLANS = (
    # plans and their weights
    *[Planner.delete] * 6,
    *[Planner.delete_rows] * 4,
    *[Planner.append] * 4,
    *[Planner.update] * 4,
    *[Planner.optimize] * 4,
    *[Planner.merge] * 4,
    Planner.delete_in_partition,
    Planner.delete_files,
    Planner.delete_by_copy,
    Planner.update_by_copy,
    Planner.stream_append,
    Planner.replace_where,
    Planner.overwrite,
    Planner.set_property,
)
