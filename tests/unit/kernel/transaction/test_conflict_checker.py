"""Conflicts of what a commit read, or sets of the table, with concurrent commits."""

from dataclasses import replace

import pytest
from pyroaring import BitMap64
from tests.support.conflict_table import Table, compaction
from tests.support.rows_in_files import Facts, changes

from delvec_errors import (
    ConcurrentAppend,
    ConcurrentDeleteRead,
    ConcurrentTransaction,
)
from delvec_kernel.actions.actions import (
    AddFile,
    Cdc,
    CommitInfo,
    DomainMetadata,
    Metadata,
    Protocol,
    Txn,
)
from delvec_kernel.deletion_vectors.deletion_vector import inline
from delvec_kernel.transaction.conflict_checker import (
    Conflict,
    Overlap,
    Passed,
)
from delvec_kernel.transaction.transaction_changes import Reads


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


def test_a_first_deletion_vector_brings_no_rows_back_whatever_wrote_it(table):
    ours = table.delete(table.a, [1], predicate="id >= 0")
    table.commit(replace(table.delete(table.b, [5]), operation="of another engine"))

    assert isinstance(table.check(ours), Passed)


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


def test_change_data_files_are_not_rows(table):
    ours = table.delete(table.a, [3], predicate="true")
    table.win(CommitInfo(operation="WRITE"), Cdc("_change_data/x", {}, 1))

    assert isinstance(table.check(ours), Passed)


def test_an_append_with_a_domain_reads_no_rows(table):
    noting = changes("WRITE", 1, adds=[table.file([8])], domains=[DomainMetadata("app", "{}")])
    table.append([8])

    assert isinstance(table.check(noting), Passed)


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
