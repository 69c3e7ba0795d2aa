import json
from dataclasses import replace

import pytest
from pyroaring import BitMap64
from tests.support.rows_in_files import LOCATION, SCHEMA, Facts, RowsInFiles, changes

from delvec_kernel.actions.actions import (
    AddFile,
    Cdc,
    CommitInfo,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    Txn,
)
from delvec_kernel.deletion_vectors.deletion_vector import inline
from delvec_kernel.errors import (
    ConcurrentAppend,
    ConcurrentDeleteDelete,
    ConcurrentDeleteRead,
    ConcurrentTransaction,
    CorruptDeletionVector,
    MetadataChanged,
    ProtocolChanged,
)
from delvec_kernel.transaction import row_runs
from delvec_kernel.transaction.conflict_checker import (
    Conflict,
    CurrentTransaction,
    Overlap,
    Passed,
    WinningCommit,
    check,
)
from delvec_kernel.transaction.current_transaction import isolation_level
from delvec_kernel.transaction.metadata_conflicts import conflicting_changes
from delvec_kernel.transaction.transaction_changes import Reads, RowRun

COMPACTED = {"data_change": False}


class Table(RowsInFiles):
    """A table with one version and files a (ids 0 to 99) and b (ids 200 to 209)."""

    def __init__(self):
        super().__init__()
        self.a, self.b = self.file(range(100)), self.file(range(200, 210))
        self.commit(changes("WRITE", 0, adds=[self.a, self.b]))

    def file(self, ids, **how):
        return self.write(self.new_rows(ids), **how)

    def check(self, what, facts=None):
        winners = self.winners(what.read_version)
        return check(CurrentTransaction.of(what, facts or Facts(what.read_version)), winners, self.vectors)

    def delete(self, add, rows, read_version=None, **more):
        version = self.version if read_version is None else read_version
        return changes("DELETE", version, row_deletes={add.path: BitMap64(rows)}, **more)

    def win(self, *actions):
        return self.record(list(actions), dict(self.versions[-1]))

    def append(self, ids, **how):
        return self.commit(changes("WRITE", self.version, adds=[self.file(ids, **how)]))

    def actions(self, what):
        """Return the actions of changes without committing them."""
        before, commits = self.versions[:], self.commits[:]
        self.commit(what)
        actions = self.commits[-1]
        self.versions, self.commits = before, commits
        return actions

    def compact(self, *files):
        """Compact files into one; return its add."""
        live = {file.path: list(self.rows_of(file.path).values()) for file in files}
        output = self.write([row for rows in live.values() for row in rows], data_change=False)
        runs, first = [], 0
        for path, rows in live.items():
            runs.append(RowRun(path, 0, len(rows), first))
            first += len(rows)
        what = changes(
            "OPTIMIZE",
            self.version,
            removes=list(live),
            adds=[output],
            data_change=False,
            rewritten={output.path: runs},
        )
        self.commit(what)
        return output


@pytest.fixture
def table():
    return Table()


# --- rows -----------------------------------------------------------------------------------------------------


def test_without_winners_changes_are_unchanged(table):
    ours = table.delete(table.a, [3])

    assert table.check(ours) == Passed((), ours)


def test_an_overlap_is_counted_and_its_first_rows_are_named(table):
    ours = replace(
        table.delete(table.a, range(50)), operation="UPDATE", adds=[table.file([1])], reads=Reads()
    )
    table.commit(table.delete(table.a, range(20, 60)))

    verdict = table.check(ours)

    assert isinstance(verdict, Conflict)
    assert verdict.kind is ConcurrentDeleteDelete
    assert verdict.overlaps == (Overlap(table.a.path, 30, tuple(range(20, 40))),)
    error = verdict.error("people")
    assert error.message == (
        f"Version 2 of table 'people' (DELETE) removed or changed 30 rows of file '{table.a.path}' that "
        "this commit also removes or changes, after this UPDATE had read version 1; run the UPDATE again: "
        "it will read the new version."
    )
    assert error.details == {
        "table": "people",
        "version": 1,
        "conflict": {
            "winning-version": 2,
            "winning-operation": "DELETE",
            "read-version": 1,
            "advice": "run the UPDATE again: it will read the new version.",
            "files": [table.a.path],
            "overlapping-rows": 30,
            "overlaps": [{"path": table.a.path, "count": 30, "row-indexes": list(range(20, 40))}],
        },
    }


def test_rows_deleted_before_our_read_do_not_conflict(table):
    table.commit(table.delete(table.a, [1, 2]))
    ours = replace(
        table.delete(table.a, [1, 2, 3]), operation="UPDATE", adds=[table.file([1])], reads=Reads()
    )
    table.commit(table.delete(table.a, [4]))

    verdict = table.check(ours)

    assert isinstance(verdict, Passed)
    assert verdict.changes.row_deletes == {table.a.path: BitMap64([3])}
    assert verdict.rows_already_gone == 0


def test_deletes_follow_rows_through_deletes_and_compactions(table):
    ours = table.delete(table.a, [10, 20, 30, 40])
    table.commit(table.delete(table.a, [5, 10]))
    first = table.compact(table.a, table.b)
    table.commit(table.delete(first, [19]))  # a's row 21
    table.commit(table.delete(first, [18]))  # a's row 20, one of ours
    last = table.compact(first)

    verdict = table.check(ours)

    assert isinstance(verdict, Passed)
    assert verdict.rows_already_gone == 2
    (rows,) = verdict.changes.row_deletes.values()
    assert [table.contents[last.path][row].value for row in rows] == [30, 40]


def test_removing_a_whole_file_becomes_deleting_its_remaining_rows(table):
    ours = changes("DELETE", 1, removes=[table.a.path], predicate="id < 100")
    table.commit(table.delete(table.a, [1, 2, 3]))

    verdict = table.check(ours)

    assert verdict == Passed((2,), ours, rows_already_gone=3)


def test_removing_a_compacted_file_becomes_deleting_rows_of_the_output(table):
    ours = changes("DELETE", 1, removes=[table.b.path], predicate="id >= 200")
    output = table.compact(table.a, table.b)

    verdict = table.check(ours)

    assert isinstance(verdict, Passed)
    assert verdict.changes.removes == []
    assert verdict.changes.row_deletes == {output.path: BitMap64(range(100, 110))}


@pytest.mark.parametrize("operation", ["UPDATE", "MERGE"])
def test_removing_a_file_with_rewritten_rows_becomes_deleting_rows_of_the_output(table, operation):
    """All its rows were changed, or unchanged ones were copied; either way our removal applies to the old rows."""
    ours = changes(operation, 1, removes=[table.b.path], adds=[table.file([1])], predicate="id >= 200")
    output = table.compact(table.a, table.b)

    verdict = table.check(ours)

    assert isinstance(verdict, Passed)
    assert verdict.changes.removes == []
    assert verdict.changes.row_deletes == {output.path: BitMap64(range(100, 110))}


@pytest.mark.parametrize("late", [[0], [0, 9]])
def test_rewriting_rows_deleted_before_a_compaction_conflicts(table, late):
    ours = changes("UPDATE", 1, removes=[table.b.path], adds=[table.file([1])], predicate="id >= 200")
    table.commit(table.delete(table.b, late))
    table.compact(table.a, table.b)

    verdict = table.check(ours)

    assert isinstance(verdict, Conflict)
    assert verdict.overlaps == (Overlap(table.b.path, len(late), tuple(late)),)


@pytest.mark.parametrize("operation", ["DELETE", "UPDATE"])
def test_without_deletion_vectors_removing_a_compacted_file_conflicts(table, operation):
    """It must conflict, so that the command is rerun: a commit that writes deletion vectors would be invalid."""
    facts = Facts(1).with_properties(enableDeletionVectors="false")
    adds = [] if operation == "DELETE" else [table.file([1])]
    ours = changes(operation, 1, removes=[table.b.path], adds=adds, predicate="id >= 200")
    table.compact(table.a, table.b)

    verdict = table.check(ours, facts)

    assert isinstance(verdict, Conflict)
    assert verdict.kind is ConcurrentDeleteDelete


def test_without_deletion_vectors_a_file_compacted_alone_is_removed_whole(table):
    facts = Facts(1).with_properties(enableDeletionVectors="false")
    ours = changes("UPDATE", 1, removes=[table.b.path], adds=[table.file([1])], predicate="id >= 200")
    output = table.compact(table.b)

    assert table.check(ours, facts).changes.removes == [output.path]


@pytest.mark.parametrize("count", [10**9, 2**39, 2**41, 2**61])
def test_row_runs_beyond_the_file_are_ignored(table, count):
    """Its other output does not exist; following all rows into it would take unbounded memory."""
    ours = table.delete(table.a, [3])
    output = table.compact(table.a)
    info, *actions = table.commits[-1]
    lie = {
        output.path: [RowRun(table.a.path, 0, 100, 0)],
        "gone.parquet": [RowRun(table.a.path, 100, count, 0)],
    }
    table.commits[-1] = [replace(info, tags={row_runs.TAG: row_runs.encode(lie)}), *actions]

    verdict = table.check(ours)

    assert isinstance(verdict, Conflict)
    assert verdict.kind is ConcurrentDeleteDelete


def test_row_runs_are_trusted_only_in_compactions(table):
    """A commit that changes data may have changed the rows it moved."""
    ours = table.delete(table.a, [3])
    table.compact(table.a)
    assert isinstance(table.check(ours), Passed)

    table.commits[-1] = [
        replace(each, data_change=True) if isinstance(each, AddFile | RemoveFile) else each
        for each in table.commits[-1]
    ]

    assert table.check(ours).kind is ConcurrentDeleteDelete


def test_removing_all_sources_of_a_compaction_removes_its_output(table):
    ours = changes("DELETE", 1, removes=[table.a.path, table.b.path], predicate="true")
    output = table.compact(table.a, table.b)

    verdict = table.check(ours)

    assert isinstance(verdict, Passed)
    assert verdict.changes.removes == [output.path]
    assert verdict.changes.row_deletes == {}


def test_removing_a_file_compacted_alone_removes_its_output(table):
    ours = changes("DELETE", 1, removes=[table.a.path], predicate="id < 100")
    both = compaction(table, [table.a], [table.b])
    table.commit(both)

    verdict = table.check(ours)

    assert verdict.changes.removes == [both.adds[0].path]
    assert verdict.changes.row_deletes == {}


def test_rows_deleted_during_a_compaction_are_counted_once(table):
    ours = changes("DELETE", 1, removes=[table.b.path], predicate="id >= 200")
    late = compaction(table, [table.a, table.b])
    table.commit(table.delete(table.b, [0, 9]))
    table.commit(table.check(late).changes)

    verdict = table.check(ours)

    assert verdict.changes.row_deletes == {late.adds[0].path: BitMap64(range(101, 109))}
    assert verdict.rows_already_gone == 2


def test_engine_written_deletion_vectors_are_kept_for_untouched_files(table):
    written = {path: table.vectors.write([3]) for path in (table.a.path, table.b.path)}
    rows = {path: BitMap64([3]) for path in written}
    ours = changes("DELETE", 1, row_deletes=rows, written_vectors=written)
    table.commit(table.delete(table.b, [4]))

    verdict = table.check(ours)

    assert verdict.changes.written_vectors == {table.a.path: written[table.a.path]}
    assert verdict.changes.row_deletes == rows


@pytest.mark.parametrize("groups", [1, 2])
def test_without_deletion_vectors_a_compaction_drops_concurrently_rewritten_files(table, groups):
    """It cannot delete rows in its outputs, so it drops such an output or is planned again."""
    facts = Facts(1).with_properties(enableDeletionVectors="false")
    ours = compaction(table, *([[table.a], [table.b]] if groups == 2 else [[table.a, table.b]]))
    table.commit(changes("UPDATE", 1, removes=[table.b.path], adds=[table.file([1])], predicate="id >= 200"))

    verdict = table.check(ours, facts)

    if groups == 1:
        assert isinstance(verdict, Conflict)
        assert verdict.kind is ConcurrentDeleteDelete
        assert "without deletion vectors" in verdict.error("people").message
    else:
        assert isinstance(verdict, Passed)
        assert verdict.changes.removes == [table.a.path]
        assert [add.path for add in verdict.changes.adds] == [ours.adds[0].path]
        assert not verdict.changes.added_deletes


def test_a_file_with_recomputed_statistics_is_not_new(table):
    """COMPUTE STATS adds a file again without a remove; a partial overwrite then deletes rows of it."""
    table.commit(table.delete(table.a, [7]))
    ours = changes("WRITE", 2, row_deletes={table.b.path: BitMap64([3])}, predicate="id = 50 OR id = 203")
    table.win(
        CommitInfo(operation="COMPUTE STATS"), replace(table.versions[-1][table.a.path], data_change=False)
    )
    rows = {table.a.path: BitMap64([8])}
    table.commit(
        changes("WRITE", 3, row_deletes=rows, adds=[table.file([300])], predicate="id BETWEEN 8 AND 300")
    )

    assert isinstance(table.check(ours), Passed)


def test_a_compaction_output_that_loses_rows_is_not_new(table):
    ours = changes("WRITE", 1, row_deletes={table.b.path: BitMap64([3])}, predicate="id = 50 OR id = 203")
    output = table.compact(table.a)
    table.commit(table.delete(output, [7]))
    rows = {output.path: BitMap64([8])}
    table.commit(changes("WRITE", 3, row_deletes=rows, adds=[table.file([300])], predicate="id = 300"))

    assert isinstance(table.check(ours), Passed)


def test_a_repacked_deletion_vector_is_no_change(table):
    table.commit(table.delete(table.a, [7]))
    ours = changes("UPDATE", 2, removes=[table.a.path], adds=[table.file([1])], predicate="id = 3")
    add = table.versions[-1][table.a.path]
    again = replace(add, deletion_vector=table.vectors.write([7]), data_change=False)
    table.win(CommitInfo(operation="REORG"), RemoveFile.of(add, 0, data_change=False), again)

    assert isinstance(table.check(ours), Passed)


@pytest.mark.parametrize("operation", ["DELETE", "UPDATE", "MERGE", "OPTIMIZE"])
def test_a_file_that_is_added_again_as_it_was_is_no_change(table, operation):
    ours = changes(
        operation,
        1,
        removes=[table.a.path],
        adds=[table.file(range(100))],
        reads=Reads(files=[table.b.path]),
        predicate="id = 3",
        data_change=operation != "OPTIMIZE",
    )
    table.add_again(table.a.path)
    table.add_again(table.b.path)

    assert table.check(ours) == Passed((2, 3), ours)


def test_winners_on_other_files_need_no_deletion_vector_reads(table):
    ours = table.delete(table.a, [3], predicate="id = 3")
    for row in range(5):
        table.commit(table.delete(table.b, [row]))
    table.vectors.reads = 0

    assert table.check(ours).changes is ours
    assert table.vectors.reads == 0


def test_unreadable_deletion_vectors_raise(table):
    ours = table.delete(table.a, [3])
    table.commit(table.delete(table.a, [4]))

    def broken(_):
        raise CorruptDeletionVector("It is broken.")

    with pytest.raises(CorruptDeletionVector):
        check(CurrentTransaction.of(ours, Facts(1)), table.winners(1), broken)


def test_a_restored_row_in_a_compacted_file_is_new(table):
    ours = table.delete(table.a, [3], predicate="id = 3")
    output = table.compact(table.a)
    table.commit(table.delete(output, [3]))
    assert table.check(ours).rows_already_gone == 1

    table.restore(1)

    assert table.check(ours).kind is ConcurrentAppend


@pytest.mark.parametrize("whole", [True, False])
def test_rows_of_a_restored_file_are_deleted_again(table, whole):
    path = table.a.path
    rows = {"removes": [path]} if whole else {"row_deletes": {path: BitMap64([3])}}
    ours = changes("DELETE", 1, **rows)
    table.commit(changes("DELETE", 1, removes=[path]))
    assert table.check(ours).rows_already_gone == (100 if whole else 1)

    table.restore(1)

    verdict = table.check(ours)
    assert [*verdict.changes.removes, *verdict.changes.row_deletes] == [path]
    assert verdict.rows_already_gone == 0


@pytest.mark.parametrize("until_restored", [True, False])
def test_restored_older_files_may_contain_rows_that_a_delete_removes(table, until_restored):
    output = table.compact(table.a, table.b)
    rest = table.compact(output)
    c = table.file([1])
    table.commit(changes("WRITE", 3, adds=[c]))
    ours = changes("DELETE", 4, row_deletes={c.path: BitMap64([0]), rest.path: BitMap64([3])})
    table.commit(changes("DELETE", 4, removes=[c.path], row_deletes={rest.path: BitMap64([3])}))
    if not until_restored:
        table.commit(changes("DELETE", 5, removes=[rest.path]))
    assert table.check(ours).rows_already_gone == 2

    table.restore(1)

    assert table.check(ours).kind is ConcurrentAppend


@pytest.mark.parametrize("spelling", ["{}", "./{}", "file:/data/people/{}", "/data/people/{}"])
def test_paths_are_compared_canonically(table, spelling):
    ours = changes("DELETE", 1, row_deletes={spelling.format(table.a.path): BitMap64([3])})
    table.commit(table.delete(table.a, [3]))

    assert table.check(ours).rows_already_gone == 1


def test_a_group_commit_of_deletes_is_passed_like_one(table):
    ours = table.delete(table.a, [1, 2])
    table.commit(table.delete(table.a, [2, 3]), group=["one", "two"])

    verdict = table.check(ours)

    assert verdict.changes.row_deletes == {table.a.path: BitMap64([1])}
    assert [member.key for member in table.winners(1)[0].members] == ["one", "two"]


def test_commits_without_commit_info_are_classified_by_their_actions(table):
    ours = table.delete(table.a, [1, 2], predicate="id < 3")
    table.commit(table.delete(table.a, [2, 3]), says_what=False)
    table.win(AddFile("far.parquet", {}, 1, 0, stats='{"numRecords": 1, "minValues": {"id": 500}}'))

    assert table.check(ours).changes.row_deletes == {table.a.path: BitMap64([1])}

    table.win(AddFile("near.parquet", {}, 1, 0))

    verdict = table.check(ours)
    assert verdict.kind is ConcurrentAppend
    assert "unknown operation" in verdict.error("people").message


# --- added files ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("condition", "passes"),
    [
        ("id = 3", True),
        ("id = 503", False),
        ("id = 3 AND upper(day) = 'X'", True),
        ("nothing = 3", False),
        ("id = = 3", False),
        ("id = 3 AND rand() < 2", False),
        ("id = 3 AND my_own(day)", False),
        ("true", False),
        (None, True),
    ],
)
def test_statistics_decide_if_the_predicate_can_be_parsed(table, condition, passes):
    ours = table.delete(table.a, [3], predicate=condition)
    table.append(range(500, 510))

    verdict = table.check(ours)

    assert isinstance(verdict, Passed) is passes
    assert passes or verdict.kind is ConcurrentAppend


def test_files_without_statistics_always_match(table):
    ours = table.delete(table.a, [3], predicate="id = 3")
    table.append(range(500, 510), stats=False)

    assert table.check(ours).kind is ConcurrentAppend


@pytest.mark.parametrize(("day", "passes"), [("2024-01-01", False), ("2024-01-02", True), (None, True)])
def test_partition_values_decide_too(table, day, passes):
    ours = table.delete(table.a, [3], predicate="day = '2024-01-01'")
    table.win(CommitInfo(operation="WRITE"), AddFile("new.parquet", {"day": day}, 1, 0))
    facts = Facts(1)

    verdict = table.check(ours, replace(facts, metadata=replace(facts.metadata, partition_columns=("day",))))

    assert isinstance(verdict, Passed) is passes


def test_invalid_partition_values_prove_nothing(table):
    ours = table.delete(table.a, [3], predicate="id = 3")
    table.win(CommitInfo(operation="WRITE"), AddFile("new.parquet", {"id": "many"}, 1, 0))
    facts = Facts(1)

    verdict = table.check(ours, replace(facts, metadata=replace(facts.metadata, partition_columns=("id",))))

    assert verdict.kind is ConcurrentAppend


def test_only_unseen_rows_of_a_restored_file_are_new(table):
    table.commit(table.delete(table.a, [5]))
    ours = table.delete(table.b, [1], predicate="id >= 0")
    table.commit(table.delete(table.a, [6]))
    table.restore(2)
    table.commit(changes("DELETE", 4, removes=[table.a.path]))
    table.restore(2)
    assert isinstance(table.check(ours), Passed)

    table.restore(1)

    verdict = table.check(ours)
    assert verdict.kind is ConcurrentAppend
    assert verdict.winner.version == 7
    assert verdict.files == (table.a.path,)


def test_our_file_added_again_has_no_new_rows(table):
    ours = table.delete(table.a, [1], predicate="id >= 0")
    table.win(CommitInfo(operation="WRITE"), replace(table.a, data_change=True, tags={"again": "yes"}))

    assert isinstance(table.check(ours), Passed)


def test_the_error_of_a_large_winner_stays_small(table):
    ours = table.delete(table.a, [3], predicate="true")
    table.win(*(AddFile(f"{number:04}", {}, 1, 0) for number in range(500)))

    error = table.check(ours).error("people")

    assert "added 500 files that may contain rows that match this commit's condition" in error.message
    assert error.conflict["files"] == [f"{number:04}" for number in range(20)]


def test_under_write_serializable_only_blind_appends_count_as_later(table):
    facts = Facts(1).with_properties(isolationLevel="WriteSerializable")
    ours = table.delete(table.a, [3], predicate="true")
    table.append([3])
    assert isinstance(table.check(ours, facts), Passed)

    metadata = replace(ours, metadata=Metadata("table", "{}"))
    assert table.check(metadata, facts).kind is ConcurrentAppend

    table.commit(changes("MERGE", 2, adds=[table.file([4])]))
    assert table.check(ours, facts).kind is ConcurrentAppend


@pytest.mark.parametrize("how", ["delete", "vector"])
def test_a_restore_is_never_a_blind_append(table, how):
    facts = Facts(1).with_properties(isolationLevel="WriteSerializable")
    ours = table.delete(table.a, [3], predicate="true")
    late = table.file([4, 5])
    table.commit(changes("WRITE", 1, adds=[late]))
    table.commit(changes("DELETE", 2, removes=[late.path]) if how == "delete" else table.delete(late, [0]))
    assert isinstance(table.check(ours, facts), Passed)

    table.restore(2)

    assert table.check(ours, facts).kind is ConcurrentAppend


@pytest.mark.parametrize(
    ("what", "level"),
    [
        ({}, "Serializable"),
        ({"data_change": False, "removes": ["a"]}, "SnapshotIsolation"),
        (
            {"data_change": False, "removes": ["a"], "domains": [DomainMetadata("delta.rowTracking", "{}")]},
            "SnapshotIsolation",
        ),
        ({"data_change": False, "removes": ["a"], "domains": [DomainMetadata("mine", "{}")]}, "Serializable"),
        ({"data_change": False, "removes": ["a"], "app_transaction": Txn("stream", 1)}, "Serializable"),
        ({"data_change": False, "removes": ["a"], "metadata": Metadata("table", "{}")}, "Serializable"),
        ({"data_change": False, "removes": ["a"], "protocol": Protocol(1, 2)}, "Serializable"),
        ({"data_change": False, "adds": [AddFile("a", {}, 1, 0)]}, "SnapshotIsolation"),
        ({"data_change": False, "row_deletes": {"a": BitMap64([1])}}, "SnapshotIsolation"),
        ({"data_change": False, "again": ["a"]}, "SnapshotIsolation"),
        ({"data_change": False}, "Serializable"),
    ],
)
def test_the_isolation_level_follows_from_what_a_commit_does(what, level):
    assert isolation_level(changes("OPTIMIZE", 1, **what), {}) == level


@pytest.mark.parametrize(
    ("said", "level"),
    [
        ("WriteSerializable", "WriteSerializable"),
        ("Serializable", "Serializable"),
        ("Whatever", "Serializable"),
    ],
)
def test_the_isolation_level_is_the_tables(said, level):
    assert isolation_level(changes("DELETE", 1), {"delta.isolationLevel": said}) == level


# --- reads ----------------------------------------------------------------------------------------------------


def reading(table, **reads):
    return changes("MERGE", table.version, adds=[table.file([1])], reads=Reads(**reads))


def test_read_files_must_keep_their_rows_through_compactions(table):
    ours = reading(table, files=[table.a.path])
    table.commit(table.delete(table.b, [1]))
    output = table.compact(table.a)
    assert isinstance(table.check(ours), Passed)

    table.commit(table.delete(output, [1]))

    verdict = table.check(ours)
    assert verdict.kind is ConcurrentDeleteRead
    assert verdict.winner.version == 4


def test_read_rows_must_stay_through_compactions(table):
    ours = reading(table, rows={table.a.path: BitMap64([50])})
    table.commit(table.delete(table.a, [49, 51]))
    output = table.compact(table.b, table.a)
    table.commit(table.delete(output, [58, 60]))  # a's rows 48 and 52
    assert isinstance(table.check(ours), Passed)

    table.commit(table.delete(output, [59]))

    verdict = table.check(ours)
    assert verdict.kind is ConcurrentDeleteRead
    assert verdict.overlaps == (Overlap(output.path, 1, (59,)),)


def test_read_rows_may_be_in_any_output_of_a_compaction_without_a_record(table):
    ours = reading(table, rows={table.a.path: BitMap64([50])})
    output = table.file(range(100), data_change=False)
    table.commit(changes("OPTIMIZE", 1, removes=[table.a.path], adds=[output], data_change=False))
    assert isinstance(table.check(ours), Passed)

    table.commit(table.delete(output, [1]))

    assert table.check(ours).kind is ConcurrentDeleteRead


@pytest.mark.parametrize(
    ("operation", "adds", "whole"),
    [
        ("UPDATE", True, True),
        ("MERGE", False, True),
        ("RESTORE", False, True),
        ("MADE UP", True, True),
        ("MADE UP", False, False),
        ("DELETE", False, False),
        ("WRITE", True, False),
    ],
)
def test_commits_without_reads_use_the_defaults_of_their_operation(table, operation, adds, whole):
    more = {"adds": [table.file([1])]} if adds else {}
    ours = changes(operation, 1, row_deletes={table.a.path: BitMap64([3])}, **more)
    table.commit(table.delete(table.b, [1]))

    verdict = table.check(ours)

    assert isinstance(verdict, Conflict) is whole
    assert not whole or verdict.kind is ConcurrentDeleteRead


def test_rows_of_two_files_that_were_read_are_both_followed_into_one(table):
    ours = reading(table, rows={table.a.path: BitMap64([50]), table.b.path: BitMap64([5])})
    output = table.compact(table.a, table.b)
    table.commit(table.delete(output, [50, 105]))

    assert table.check(ours).overlaps == (Overlap(output.path, 2, (50, 105)),)


def test_files_and_rows_that_one_compaction_moves_are_all_followed(table):
    files = [table.file(range(number, number + 10)) for number in range(300, 360, 10)]
    table.commit(changes("WRITE", 1, adds=files))
    whole, by_row = files[:3], files[3:]
    ours = reading(
        table, files=[each.path for each in whole], rows={each.path: BitMap64([5]) for each in by_row}
    )
    moved = compaction(table, *([each] for each in files))
    table.commit(moved)
    assert isinstance(table.check(ours), Passed)

    for number, output in enumerate(moved.adds):
        last = Table.__new__(Table)
        last.__dict__.update(
            {name: list(each) if isinstance(each, list) else each for name, each in vars(table).items()}
        )
        last.commit(last.delete(output, [4]))
        assert isinstance(last.check(ours), Passed) is (number >= len(whole))
        last.commit(last.delete(output, [5]))
        assert last.check(ours).kind is ConcurrentDeleteRead, number


def test_rows_deleted_before_the_read_do_not_matter(table):
    table.commit(table.delete(table.a, [50]))
    ours = reading(table, rows={table.a.path: BitMap64([50])})
    table.commit(changes("DELETE", 2, removes=[table.a.path]))

    assert isinstance(table.check(ours), Passed)


# --- the table itself -----------------------------------------------------------------------------------------


def test_transactions_of_one_application_conflict(table):
    ours = changes("STREAMING UPDATE", 1, adds=[table.file([1])], app_transaction=Txn("stream", 8))
    table.win(Txn("other", 9))
    assert isinstance(table.check(ours), Passed)

    table.win(Txn("stream", 7))

    verdict = table.check(ours)
    assert verdict.kind is ConcurrentTransaction
    assert "to transaction 7" in verdict.error("people").message


@pytest.mark.parametrize(
    ("left", "domain", "passes"),
    [
        (["appendOnly"], "theirs", False),
        (["appendOnly"], "delta.clustering", False),
        (["domainMetadata"], "theirs", True),
        (["domainMetadata"], "delta.clustering", False),
        (["domainMetadata", "clustering"], "delta.clustering", True),
    ],
)
def test_setting_a_domain_conflicts_with_dropping_its_feature(table, left, domain, passes):
    """The table would have domain metadata that its protocol does not make writers preserve."""
    ours = changes("DROP FEATURE", 1, protocol=Protocol(1, 7, None, tuple(left)))
    table.win(CommitInfo(operation="SET"), DomainMetadata(domain, "{}"))

    verdict = table.check(ours)

    assert isinstance(verdict, Passed) is passes
    assert passes or verdict.kind is ConcurrentTransaction


def test_removing_a_domain_passes_while_its_feature_is_dropped(table):
    table.win(CommitInfo(operation="SET"), DomainMetadata("theirs", "", removed=True))

    assert isinstance(table.check(changes("DROP FEATURE", 1, protocol=Protocol(1, 2))), Passed)


@pytest.mark.parametrize("left", ["deletionVectors", "rowTracking"])
def test_restoring_a_file_conflicts_with_dropping_a_feature_it_needs(table, left):
    """RESTORE adds files as they were, whatever the current properties."""
    (dropped,) = {"deletionVectors", "rowTracking"} - {left}
    needs = {
        "deletionVectors": replace(table.file([7]), deletion_vector=inline(BitMap64([0]))),
        "rowTracking": replace(table.file([8]), base_row_id=0),
    }
    ours = changes("DROP FEATURE", 1, protocol=Protocol(3, 7, (), (left,)))
    table.win(CommitInfo(operation="RESTORE"), needs[left])
    assert isinstance(table.check(ours), Passed)

    table.win(CommitInfo(operation="RESTORE"), needs[dropped])

    error = table.check(ours).error("people")
    assert isinstance(error, ConcurrentAppend)
    assert dropped in error.message


@pytest.mark.parametrize(
    ("domain", "passes"), [("mine", False), ("yours", True), ("delta.rowTracking", True)]
)
def test_concurrent_changes_of_a_domain_conflict(table, domain, passes):
    named = [DomainMetadata("mine", "{}"), DomainMetadata("delta.rowTracking", "{}")]
    ours = changes("SET", 1, domains=named)
    table.win(CommitInfo(operation="SET"), DomainMetadata(domain, "{}"))

    verdict = table.check(ours)

    assert isinstance(verdict, Passed) is passes
    assert passes or verdict.kind is ConcurrentTransaction


def test_metadata_changes_since_an_unknown_version_conflict(table):
    ours = table.delete(table.a, [3])
    facts = Facts(2)
    table.win(CommitInfo(operation="SET"), facts.metadata)
    assert table.check(ours, facts).kind is MetadataChanged
    assert isinstance(
        check(CurrentTransaction.of(ours, facts, Facts(1)), table.winners(1), table.vectors), Passed
    )

    table.win(CommitInfo(operation="UPGRADE"), facts.protocol)

    assert (
        check(CurrentTransaction.of(ours, facts), table.winners(1)[1:], table.vectors).kind is ProtocolChanged
    )


def test_change_data_files_are_not_rows(table):
    ours = table.delete(table.a, [3], predicate="true")
    table.win(CommitInfo(operation="WRITE"), Cdc("_change_data/x", {}, 1))

    assert isinstance(table.check(ours), Passed)


def schema_with(**metadata):
    schema = SCHEMA.to_json()
    schema["fields"][0]["metadata"] = metadata
    return json.dumps(schema)


BEFORE = Metadata("table", schema_with(), configuration={"delta.enableRowTracking": "false"})
FEATURES = ("deletionVectors", "rowTracking", "columnMapping", "inCommitTimestamp")
NAMED = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "2"}


@pytest.mark.parametrize(
    ("change", "matters"),
    [
        ({}, []),
        ({"created_time": 7}, []),
        ({"configuration": {"delta.enableDeletionVectors": "true"}}, []),
        ({"configuration": {"delta.enableDeletionVectors": "false"}}, ["delta.enableDeletionVectors"]),
        (
            {
                "configuration": {
                    "delta.enableRowTracking": "true",
                    "delta.rowTracking.materializedRowIdColumnName": "_row",
                    "delta.rowTracking.materializedRowCommitVersionColumnName": "_version",
                }
            },
            [],
        ),
        (
            {"configuration": {"delta.rowTracking.materializedRowIdColumnName": "_row"}},
            ["delta.rowTracking.materializedRowIdColumnName"],
        ),
        (
            {
                "configuration": {
                    "delta.enableInCommitTimestamps": "true",
                    "delta.inCommitTimestampEnablementVersion": "2",
                    "delta.inCommitTimestampEnablementTimestamp": "2",
                }
            },
            [],
        ),
        ({"configuration": {"delta.checkpointPolicy": "v2"}}, []),
        ({"configuration": {"delta.checkpointPolicy": "classic"}}, ["delta.checkpointPolicy"]),
        ({"configuration": NAMED}, []),
        (
            {
                "configuration": NAMED,
                "schema_string": schema_with(
                    **{"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "id"}
                ),
            },
            [],
        ),
        (
            {
                "configuration": NAMED,
                "schema_string": schema_with(
                    **{"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "col-1"}
                ),
            },
            ["schema"],
        ),
        ({"schema_string": schema_with(**{"delta.columnMapping.id": 1})}, ["schema"]),
        ({"configuration": {"delta.columnMapping.mode": "id"}}, ["delta.columnMapping.mode"]),
        ({"schema_string": schema_with(**{"delta.identity.highWaterMark": 7})}, []),
        ({"schema_string": schema_with(comment="the number")}, ["schema"]),
        ({"schema_string": schema_with().replace('"long"', '"string"')}, ["schema"]),
        ({"schema_string": schema_with().replace("true", "false")}, ["schema"]),
        ({"schema_string": "no schema"}, ["schema"]),
        ({"configuration": {"delta.constraints.c": "id > 0"}}, ["delta.constraints.c"]),
        ({"partition_columns": ("id",)}, ["partition columns"]),
        ({"name": "people"}, ["name"]),
        ({"description": "people"}, ["description"]),
    ],
)
def test_the_allow_list_of_metadata(change, matters):
    configuration = {**BEFORE.configuration, **change.get("configuration", {})}
    after = replace(BEFORE, **{**change, "configuration": configuration})

    assert conflicting_changes(BEFORE, after, Protocol(3, 7, (), FEATURES)) == matters


@pytest.mark.parametrize("name", ["io.unitycatalog.tableId", "ucTableId"])
def test_a_catalog_may_set_the_table_id_but_not_change_it(name):
    protocol = Protocol(3, 7, (), FEATURES)
    given = replace(BEFORE, configuration={**BEFORE.configuration, name: "1"})
    other = replace(BEFORE, configuration={**BEFORE.configuration, name: "2"})

    assert conflicting_changes(BEFORE, given, protocol) == []
    assert (
        conflicting_changes(given, other, protocol) == conflicting_changes(given, BEFORE, protocol) == [name]
    )


def test_materialized_row_id_columns_may_be_named_only_when_row_tracking_is_enabled():
    protocol, name = Protocol(3, 7, (), FEATURES), "delta.rowTracking.materializedRowIdColumnName"
    on = {"delta.enableRowTracking": "true", name: "_row"}
    off = {"delta.enableRowTracking": "false", name: "_other"}
    before, after = (replace(BEFORE, configuration=each) for each in (on, {**on, name: "_other"}))

    assert conflicting_changes(before, after, protocol) == [name]
    assert conflicting_changes(before, replace(BEFORE, configuration=off), protocol) == [
        "delta.enableRowTracking",
        name,
    ]


@pytest.mark.parametrize("name", ["delta.enableDeletionVectors", "delta.enableRowTracking"])
def test_a_property_without_its_feature_conflicts(name):
    after = replace(BEFORE, configuration={**BEFORE.configuration, name: "true"})

    assert conflicting_changes(BEFORE, after, Protocol(3, 7, (), ())) == [name]


def test_enabling_row_tracking_conflicts_only_with_copied_rows(table):
    """Copies were written without row ids; new rows get theirs, and deletes need none."""
    off = replace(Facts(1), protocol=Protocol(3, 7, FEATURES, FEATURES), metadata=BEFORE)
    appended, deleted = changes("WRITE", 1, adds=[table.file([8])]), table.delete(table.a, [3])
    copied = changes("UPDATE", 1, adds=[table.file([3])], row_deletes={table.a.path: BitMap64([3])})
    on = {
        "delta.enableRowTracking": "true",
        "delta.rowTracking.materializedRowIdColumnName": "_row",
        "delta.rowTracking.materializedRowCommitVersionColumnName": "_version",
    }
    table.win(replace(BEFORE, configuration=on))

    assert isinstance(table.check(appended, off), Passed)
    assert isinstance(table.check(deleted, off), Passed)
    verdict = table.check(copied, off)
    assert verdict.kind is MetadataChanged
    assert "delta.enableRowTracking" in verdict.error("people").message


def test_an_append_with_a_domain_reads_no_rows(table):
    noting = changes("WRITE", 1, adds=[table.file([8])], domains=[DomainMetadata("app", "{}")])
    table.append([8])

    assert isinstance(table.check(noting), Passed)


# --- our own compaction ---------------------------------------------------------------------------------------


def compaction(table, *groups):
    """Return a compaction of ours with one output per group of files."""
    adds, rewritten = [], {}
    for group in groups:
        live = {file.path: list(table.rows_of(file.path).values()) for file in group}
        output = table.write([row for rows in live.values() for row in rows], data_change=False)
        runs, first = [], 0
        for path, rows in live.items():
            runs.append(RowRun(path, 0, len(rows), first))
            first += len(rows)
        adds.append(output)
        rewritten[output.path] = runs
    removes = [file.path for group in groups for file in group]
    return changes("OPTIMIZE", table.version, adds=adds, removes=removes, rewritten=rewritten, **COMPACTED)


def test_concurrent_deletes_are_repeated_in_the_output(table):
    table.commit(table.delete(table.a, [0, 1]))
    ours = compaction(table, [table.a, table.b])
    table.commit(table.delete(table.a, [5]))
    table.commit(table.delete(table.a, [6]))
    table.commit(table.delete(table.b, [0]))

    verdict = table.check(ours)

    (output,) = ours.adds
    assert verdict.changes.added_deletes == {output.path: BitMap64([3, 4, 98])}
    assert verdict.changes.removes == ours.removes
    assert verdict.rows_already_gone == 0


def copy(table, add, deleted):
    """Return a compaction that copies a file whole, with these rows recorded as deleted."""
    output = table.write(table.contents[add.path], data_change=False)
    runs = [RowRun(add.path, 0, len(table.contents[add.path]), 0)]
    return changes(
        "OPTIMIZE",
        table.version,
        adds=[output],
        removes=[add.path],
        rewritten={output.path: runs},
        added_deletes={output.path: BitMap64(deleted)},
        **COMPACTED,
    )


def test_earlier_and_concurrent_deletes_are_repeated_in_a_copy(table):
    table.commit(table.delete(table.a, [0, 7]))
    ours = copy(table, table.a, [0, 7])
    table.commit(table.delete(table.a, [5, 8]))
    table.commit(table.delete(table.a, [99]))

    verdict = table.check(ours)

    (output,) = ours.adds
    assert verdict.changes.added_deletes == {output.path: BitMap64([0, 5, 7, 8, 99])}
    late = table.delete(table.a, [6, 98])
    table.commit(verdict.changes)
    assert table.check(late).changes.row_deletes == {output.path: BitMap64([6, 98])}


@pytest.mark.parametrize("deleted", [[0], [0, 8], [0, 7, 8]])
def test_a_copy_with_other_deleted_rows_than_its_source_does_not_pass_row_changes(table, deleted):
    """The positions of rows would be unknown: a row deleted now might be another one in the copy."""
    table.commit(table.delete(table.a, [0, 7]))
    ours = copy(table, table.a, deleted)
    table.commit(table.delete(table.a, [5]))

    assert table.check(ours).kind is ConcurrentDeleteDelete


def test_a_copy_of_an_emptied_source_is_not_added(table):
    table.commit(table.delete(table.b, [0]))
    ours = copy(table, table.b, [0])
    table.commit(changes("DELETE", table.version, removes=[table.b.path]))

    assert table.check(ours).changes.adds == []


@pytest.mark.parametrize("gone", [{"removes": True}, {"row_deletes": True}])
@pytest.mark.parametrize("told", [99, 101])
def test_row_runs_that_contradict_our_files_are_ignored(table, told, gone):
    output = table.file(range(100), data_change=False)
    ours = changes("OPTIMIZE", 1, adds=[output], removes=[table.a.path], **COMPACTED)
    rows = RowRun(table.a.path, 0, told, 0)
    too_few = replace(ours, rewritten={output.path: [rows]}, adds=[replace(output, stats=None)])
    too_short = replace(
        ours, rewritten={output.path: [replace(rows, count=100)]}, adds=[table.file(range(told))]
    )
    too_short = replace(too_short, rewritten={too_short.adds[0].path: [replace(rows, count=100)]})
    path = table.a.path
    table.commit(changes("DELETE", 1, removes=[path]) if "removes" in gone else table.delete(table.a, [3]))

    assert table.check(too_few).kind is ConcurrentDeleteDelete
    assert table.check(too_short).kind is ConcurrentDeleteDelete


@pytest.mark.parametrize("told", [99, 101])
def test_row_runs_that_contradict_a_winners_files_are_ignored(table, told):
    ours = table.delete(table.a, [3])
    for stats in (None, json.dumps({"numRecords": 100})):
        output = replace(table.file(range(100), data_change=False), stats=stats)
        rows = RowRun(table.a.path, 0, told, 0)
        what = changes(
            "OPTIMIZE", 1, removes=[table.a.path], adds=[output], rewritten={output.path: [rows]}, **COMPACTED
        )
        winner = WinningCommit.of(2, table.actions(what), LOCATION)

        verdict = check(CurrentTransaction.of(ours, Facts(1)), [winner], table.vectors)

        assert verdict.kind is ConcurrentDeleteDelete
        assert "without recording where each row is now" in verdict.what


@pytest.mark.parametrize("operation", ["DELETE", "MERGE", "MADE UP"])
def test_a_whole_file_is_removed_after_rows_of_it_were_deleted(table, operation):
    ours = changes("DELETE", 1, removes=[table.a.path])
    table.commit(changes(operation, 1, row_deletes={table.a.path: BitMap64([5, 6])}))

    verdict = table.check(ours)

    assert verdict.changes.removes == [table.a.path]
    assert verdict.rows_already_gone == 2


def test_rows_in_change_data_files_must_all_be_live(table):
    without = table.delete(table.a, [3, 4], predicate="id IN (3, 4)")
    ours = replace(without, change_files=[Cdc("_change_data/c.parquet", {}, 10)])
    table.commit(table.delete(table.a, [3]))

    assert table.check(without).rows_already_gone == 1
    assert table.check(ours).kind is ConcurrentDeleteDelete


def test_updating_deleted_rows_conflicts_even_without_adds(table):
    ours = changes("UPDATE", 1, row_deletes={table.a.path: BitMap64([3])}, reads=Reads())
    table.commit(table.delete(table.a, [3]))

    assert table.check(ours).kind is ConcurrentDeleteDelete


def test_rows_are_followed_without_statistics(table):
    bare = replace(table.file(range(300, 310)), stats=None)
    table.commit(changes("WRITE", 1, adds=[bare]))
    ours = table.delete(bare, [3])
    output = table.compact(bare)

    assert table.check(ours).changes.row_deletes == {output.path: BitMap64([3])}


@pytest.mark.parametrize(
    ("operation", "what", "rests_on"),
    [
        ("WRITE", {}, "nothing"),
        ("STREAMING UPDATE", {}, "nothing"),
        ("WRITE", {"removes": ["a"]}, "anything"),
        ("WRITE", {"removes": ["a"], "predicate": "id = 1"}, "matching"),
        ("WRITE", {"parameters": {"mode": "Overwrite"}}, "anything"),
        ("WRITE", {"removes": ["a"], "reads": Reads()}, "nothing"),
        ("DELETE", {"removes": ["a"]}, "nothing"),
        ("DELETE", {"removes": ["a"], "predicate": "id = 1"}, "matching"),
        ("DELETE", {"removes": ["a"], "reads": Reads()}, "nothing"),
        ("UPDATE", {"removes": ["a"]}, "anything"),
        ("MERGE", {"removes": ["a"]}, "anything"),
        ("OPTIMIZE", {"removes": ["a"], "data_change": False}, "nothing"),
    ],
)
def test_concurrent_appends_conflict_with_reads_of_the_whole_table(operation, what, rests_on):
    ours = CurrentTransaction.of(changes(operation, 1, **what), Facts(1))

    assert ours.reads_added == rests_on


def test_conflicts_on_removed_files_name_the_rows(table):
    for ours in (
        changes("UPDATE", 1, row_deletes={table.a.path: BitMap64([3])}, adds=[table.file([1])]),
        changes("OPTIMIZE", 1, row_deletes={table.a.path: BitMap64([3])}, **COMPACTED),
    ):
        table.commit(changes("DELETE", table.version, removes=[table.a.path]))
        assert table.check(ours).overlaps == (Overlap(table.a.path, 1, (3,)),)
        table.restore(1)
        table.versions, table.commits = table.versions[:2], table.commits[:2]


def test_an_empty_output_is_not_added_but_keeps_its_runs(table):
    ours = compaction(table, [table.a], [table.b])
    table.commit(changes("DELETE", 1, removes=[table.b.path]))

    verdict = table.check(ours)

    assert verdict.changes.adds == ours.adds[:1]
    assert verdict.changes.removes == [table.a.path]
    assert verdict.changes.rewritten == ours.rewritten
    assert verdict.changes.added_deletes == {}


def test_concurrently_compacted_files_are_dropped_with_all_that_share_outputs(table):
    c, d = table.file(range(300, 310)), table.file(range(400, 410))
    table.commit(changes("WRITE", 1, adds=[c, d]))
    ours = compaction(table, [table.a, c], [table.b, d])
    table.compact(c)

    verdict = table.check(ours)

    assert verdict.changes.removes == [table.b.path, d.path]
    assert verdict.changes.adds == ours.adds[1:]
    assert verdict.changes.rewritten.keys() == {ours.adds[1].path}

    table.compact(d)

    assert table.check(ours).kind is ConcurrentDeleteDelete


def spread(table, *outputs):
    """Return a compaction of ours: for each output its source files, each with the (start, end) of its rows."""
    adds, rewritten = [], {}
    for parts in outputs:
        ids = [number for _, first, end in parts for number in range(first, end)]
        adds.append(table.file(ids, data_change=False))
        runs, place = [], 0
        for file, first, end in parts:
            runs.append(RowRun(file.path, first, end - first, place))
            place += end - first
        rewritten[adds[-1].path] = runs
    removes = list(dict.fromkeys(file.path for parts in outputs for file, _, _ in parts))
    return changes("OPTIMIZE", table.version, adds=adds, removes=removes, rewritten=rewritten, **COMPACTED)


def test_dropping_a_source_is_transitive(table):
    c, d = table.file(range(300, 310)), table.file(range(400, 410))
    table.commit(changes("WRITE", 1, adds=[c, d]))
    ours = spread(
        table,
        [(table.a, 0, 100), (table.b, 0, 5)],
        [(table.b, 5, 10), (c, 0, 5)],
        [(c, 5, 10)],
        [(d, 0, 10)],
    )
    table.compact(table.a)

    verdict = table.check(ours)

    assert verdict.changes.removes == [d.path]
    assert verdict.changes.adds == ours.adds[3:]


def test_nothing_is_dropped_if_an_output_has_no_record(table):
    c = table.file(range(300, 310))
    table.commit(changes("WRITE", 1, adds=[c]))
    ours = compaction(table, [table.a], [table.b], [c])
    _, second, _ = ours.adds
    ours = replace(
        ours, rewritten={path: runs for path, runs in ours.rewritten.items() if path != second.path}
    )
    table.compact(table.a)

    assert table.check(ours).kind is ConcurrentDeleteDelete


@pytest.mark.parametrize("who", ["says nothing of reads", "names what it read"])
@pytest.mark.parametrize("copied", [1, 95])
def test_an_overwrite_with_copied_rows_does_not_resurrect_deleted_rows(table, who, copied):
    copy = table.file(range(5, 100))
    reads = Reads() if who == "names what it read" else None
    ours = changes(
        "WRITE",
        table.version,
        adds=[copy],
        removes=[table.a.path],
        predicate="id < 5",
        metrics={"numCopiedRows": copied},
        reads=reads,
    )
    table.commit(table.delete(table.a, [50]))

    verdict = table.check(ours)

    # The reads of a commit that names them are trusted.
    assert isinstance(verdict, Conflict) == (reads is None)
