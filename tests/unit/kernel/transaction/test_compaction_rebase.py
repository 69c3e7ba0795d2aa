"""Our own compaction beside concurrent commits: deletes are repeated in its outputs, or outputs are dropped."""

from dataclasses import replace

import pytest
from pyroaring import BitMap64
from tests.support.conflict_table import COMPACTED, compaction, copy, spread
from tests.support.rows_in_files import Facts, changes

from delvec_errors import (
    ConcurrentDeleteDelete,
)
from delvec_kernel.transaction.conflict_checker import (
    Conflict,
    Passed,
)
from delvec_kernel.transaction.transaction_changes import RowRun


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


def test_deletes_are_repeated_beside_a_source_whose_rows_were_not_recorded(table):
    """Another writer computed its statistics again, which moves no row."""
    ours = compaction(table, [table.a], [table.b])
    first, second = ours.adds
    ours = replace(ours, rewritten={second.path: ours.rewritten[second.path]})
    table.win(replace(table.a, data_change=False))
    table.commit(table.delete(table.b, [0]))

    verdict = table.check(ours)

    assert verdict.changes.adds == [first, second]
    assert verdict.changes.added_deletes == {second.path: BitMap64([0])}
