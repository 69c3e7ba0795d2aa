"""Row changes beside concurrent commits: rows are followed into the files that hold them now."""

import json
from dataclasses import replace

import pytest
from pyroaring import BitMap64
from tests.support.conflict_table import COMPACTED, compaction
from tests.support.rows_in_files import LOCATION, Facts, changes

from delvec_errors import (
    ConcurrentAppend,
    ConcurrentDeleteDelete,
    CorruptDeletionVector,
)
from delvec_kernel.actions.actions import (
    AddFile,
    Cdc,
    CommitInfo,
    RemoveFile,
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
from delvec_kernel.transaction.transaction_changes import Reads, RowRun


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


@pytest.mark.parametrize("deletes_beside", [True, False])
def test_rows_that_a_restore_brings_back_may_be_those_that_a_delete_removes(table, deletes_beside):
    copy = table.file([3])
    table.commit(changes("DELETE", 1, row_deletes={table.a.path: BitMap64([2, 3])}, adds=[copy]))
    beside = {table.a.path: BitMap64([0, 2, 3])} if deletes_beside else {}
    ours = changes("DELETE", 2, removes=[copy.path], row_deletes=beside)

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


def test_conflicts_on_removed_files_name_the_rows(table):
    for ours in (
        changes("UPDATE", 1, row_deletes={table.a.path: BitMap64([3])}, adds=[table.file([1])]),
        changes("OPTIMIZE", 1, row_deletes={table.a.path: BitMap64([3])}, **COMPACTED),
    ):
        table.commit(changes("DELETE", table.version, removes=[table.a.path]))
        assert table.check(ours).overlaps == (Overlap(table.a.path, 1, (3,)),)
        table.restore(1)
        table.versions, table.commits = table.versions[:2], table.commits[:2]


def test_a_file_without_statistics_that_both_remove_has_no_count_of_rows(table):
    bare = replace(table.file(range(300, 310)), stats=None)
    table.commit(changes("WRITE", 1, adds=[bare]))
    ours = changes("UPDATE", table.version, removes=[bare.path], adds=[table.file([1])])
    table.commit(changes("DELETE", table.version, removes=[bare.path]))

    assert table.check(ours).overlaps == (Overlap(bare.path, 0, ()),)
