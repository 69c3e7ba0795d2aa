"""The commits of the conflict matrix: a small table, and the effect of each operation, as ours or as the winner.

We have read version 3: file ``a`` with ids 0 to 9, of which 7 is deleted, and ``b`` with 20 to 29. In
version 1 the ids 0 to 9 were in file ``z``.
"""

from dataclasses import replace

from pyroaring import BitMap64
from tests.support.rows_in_files import Facts, RowsInFiles, changes

from delvec_kernel.actions.actions import CommitInfo, Metadata, Protocol, Txn
from delvec_kernel.transaction.conflict_checker import CurrentTransaction
from delvec_kernel.transaction.transaction_changes import Reads, RowRun

READ = 3
ID_3, ID_4, ID_5 = (BitMap64([row]) for row in (3, 4, 5))
ONE, RANGE = "id = 3", "id < 10"
FEATURES = ("deletionVectors", "columnMapping")


class Scene:
    """The table, and the two commits."""

    def __init__(self):
        self.table = RowsInFiles()
        z, self.b = self.write(range(10)), self.write(range(20, 30))
        self.table.commit(changes("WRITE", 0, adds=[z, self.b]))
        self.a = self.write(range(10))
        self.table.commit(changes("WRITE", 1, adds=[self.a], removes=[z.path]))
        self.table.commit(changes("DELETE", 2, row_deletes={self.a.path: BitMap64([7])}))
        self.facts = replace(Facts(READ), protocol=Protocol(3, 7, FEATURES, FEATURES))

    def write(self, ids, **how):
        """Write a file of new rows with these ids."""
        return self.table.write(self.table.new_rows(ids), **how)

    def rows_again(self, path, *, without=()):
        """Write a copy of a file's live rows."""
        live = self.table.rows_of(path, READ)
        return self.table.write([row for index, row in live.items() if index not in without])

    def ours(self, operation, variant):
        """Return our changes."""
        facts = self.facts
        if variant == "under WriteSerializable":
            facts, variant = facts.with_properties(isolationLevel="WriteSerializable"), ""
        return CurrentTransaction.of(getattr(self, operation.lower())(variant), facts)

    def win(self, operation, variant):
        """Commit the winner."""
        by_hand = getattr(self, f"win_{operation.lower()}", None)
        if by_hand is not None:
            by_hand(variant)
        else:
            self.table.commit(getattr(self, operation.lower())(variant))

    # --- commands, as ours or as the winner -----------------------------------------------------------------

    def append(self, variant):
        ids = [100, 101] if variant == "of other rows" else [3]
        return changes("WRITE", READ, adds=[self.write(ids)])

    def overwrite(self, variant):
        ids = [100, 101] if variant == "with other rows" else [3]
        removes = [self.a.path, self.b.path]
        return changes(
            "WRITE", READ, adds=[self.write(ids)], removes=removes, parameters={"mode": "Overwrite"}
        )

    def replacewhere(self, variant):
        file, ids, condition = self.a, [3], RANGE
        if variant == "of another range":
            file, ids, condition = self.b, [25], "id >= 20"
        return changes(
            "WRITE",
            READ,
            adds=[self.write(ids)],
            removes=[file.path],
            predicate=condition,
            parameters={"mode": "Overwrite"},
        )

    def delete(self, variant):
        a, b = self.a.path, self.b.path
        what = {
            "": {"row_deletes": {a: ID_3}, "predicate": ONE},
            "of the same row": {"row_deletes": {a: ID_3}, "predicate": ONE},
            "of rows that it names, without a condition": {"row_deletes": {a: ID_3}},
            "of another row of the file": {"row_deletes": {a: ID_5}},
            "of a row that was matched": {"row_deletes": {a: ID_4}},
            "of the whole file": {"removes": [a], "predicate": RANGE},
            "in another file": {"row_deletes": {b: ID_5}},
        }
        if variant == "by copying":
            return changes(
                "DELETE", READ, removes=[a], adds=[self.rows_again(a, without=[5])], predicate="id = 5"
            )
        return changes("DELETE", READ, **what[variant])

    def update(self, variant, operation="UPDATE", **more):
        a, b = self.a.path, self.b.path
        rows, ids, condition = {
            "": ({a: ID_3}, [3], ONE),
            "of the same row": ({a: ID_3}, [3], ONE),
            "of another row, which cannot match now": ({a: ID_5}, [105], "id = 5"),
            "of another row, which matches now": ({a: ID_5}, [3], "id = 5"),
            "in another file": ({b: ID_5}, [125], "id = 25"),
        }[variant]
        more.setdefault("predicate", condition)
        return changes(operation, READ, row_deletes=rows, adds=[self.write(ids)], **more)

    def merge(self, variant):
        if variant == "that names the rows that it matched":
            reads = Reads(rows={self.a.path: ID_3 | ID_4})
            return self.update("", "MERGE", predicate=None, reads=reads)
        if variant == "that only deletes the same row":
            return changes("MERGE", READ, row_deletes={self.a.path: ID_3})
        return self.update(variant, "MERGE")

    def optimize(self, variant):
        a, b = self.a.path, self.b.path
        groups = {
            "of another file": [[b]],
            "of this file alone": [[a]],
            "of each file by itself": [[a], [b]],
        }.get(variant, [[a, b]])
        adds, rewritten = [], {}
        for sources in groups:
            live = {path: list(self.table.rows_of(path, READ).values()) for path in sources}
            adds.append(self.table.write([row for path in sources for row in live[path]], data_change=False))
            runs, first = [], 0
            for path in sources:
                runs.append(RowRun(path, 0, len(live[path]), first))
                first += len(live[path])
            rewritten[adds[-1].path] = runs
        if variant == "without a record of its sources":
            rewritten = {}
        removes = [path for sources in groups for path in sources]
        return changes("OPTIMIZE", READ, removes=removes, adds=adds, data_change=False, rewritten=rewritten)

    def restore(self, _):
        return changes("RESTORE", READ, removes=[self.a.path], adds=[self.write(range(10))])

    def metadata(self, variant):
        reads = Reads(whole_table=True) if variant == "that has to hold for every row" else None
        return changes(
            "SET TBLPROPERTIES", READ, metadata=self.with_property("delta.logRetentionDuration"), reads=reads
        )

    def protocol(self, _):
        return changes("UPGRADE PROTOCOL", READ, protocol=self.with_features(*FEATURES, "typeWidening"))

    def txn(self, variant):
        ids = [3] if variant == "of matching rows" else [100, 101]
        application = Txn("other" if variant == "of another application" else "stream", 7)
        return changes("STREAMING UPDATE", READ, adds=[self.write(ids)], app_transaction=application)

    # --- winners that cannot be expressed as changes ----------------------------------------------------------

    def win_restore(self, variant):
        self.table.restore(2 if variant == "that undoes deletes in the file" else 1)

    def win_metadata(self, variant):
        name = "delta.enableDeletionVectors" if variant == "on the allow-list" else "delta.appendOnly"
        self.record("SET TBLPROPERTIES", self.with_property(name))

    def win_protocol(self, variant):
        kept = FEATURES[:1] if variant == "that drops a feature" else (*FEATURES, "typeWidening")
        self.record("UPGRADE PROTOCOL", self.with_features(*kept))

    def win_txn(self, variant):
        what = self.txn(variant)
        version = self.table.commit(what)
        self.table.commits[version].append(what.app_transaction)

    def record(self, operation, action):
        info = CommitInfo(operation=operation, is_blind_append=True)
        self.table.record([info, action], dict(self.table.versions[-1]))

    def with_property(self, name) -> Metadata:
        return replace(self.facts.metadata, configuration={name: "true"})

    def with_features(self, *names):
        return Protocol(3, 7, names, names)


def delta_spark(scene, ours):  # noqa: PLR0911 - one answer per rule
    """Return delta-spark's result by path-based rules, in its order, for an unpartitioned table.

    Args:
        scene: after the winner.
        ours: our changes.
    """
    (winner,) = scene.table.winners(READ)
    wanted, reads = ours.changes, _reads(ours.changes)
    if winner.protocol and (wanted.protocol or not set(FEATURES) <= set(winner.protocol.writer_features)):
        return "ProtocolChanged"
    harmless = {"delta.enableDeletionVectors": "true"}
    if winner.metadata and (wanted.metadata or winner.metadata.configuration != harmless):
        return "MetadataChanged"
    if wanted.app_transaction and wanted.app_transaction.app_id in winner.txns:
        return "ConcurrentTransaction"
    level = ours.facts.metadata.configuration.get("delta.isolationLevel", "Serializable")
    level = level if wanted.data_change else "SnapshotIsolation"
    looks_at_adds = level == "Serializable" or (level == "WriteSerializable" and not winner.is_blind_append)
    if reads != [] and looks_at_adds and winner.adds:
        return "ConcurrentAppend"
    if (reads is None and winner.removes) or set(reads or ()) & winner.removes.keys():
        return "ConcurrentDeleteRead"
    if {*wanted.removes, *wanted.row_deletes} & winner.removes.keys():
        return "ConcurrentDeleteDelete"
    return "succeeds"


def _reads(wanted):
    """Return the files that delta-spark counts as read, None for all."""
    touched = [*wanted.removes, *wanted.row_deletes]
    overwrites = wanted.parameters.get("mode") == "Overwrite" and wanted.predicate is None
    return None if touched and (overwrites or wanted.operation in ("MERGE", "RESTORE")) else touched
