import json
from dataclasses import replace

import pytest
from pyroaring import BitMap64

from delvec_kernel.actions.actions import AddFile, Cdc, CommitInfo, DomainMetadata, Metadata, Protocol, Txn
from delvec_kernel.deletion_vectors.deletion_vector import Descriptor
from delvec_kernel.transaction.group_commit import (
    Group,
    MemberInfo,
    combined,
    members_of,
    members_tag,
    request_size,
    without,
)
from delvec_kernel.transaction.transaction_changes import Changes, Reads, RowRun

LOCATION = "file:///data/people"
DV = Descriptor("u", "vBn[lx{q8@P<9BNH/isA", 1, 36, 2)


def delete(key="k", rows=(), removes=(), **more):
    row_deletes = {path: BitMap64(indexes) for path, indexes in dict(rows).items()}
    return Changes("DELETE", 4, key, "engine", removes=removes, row_deletes=row_deletes, **more)


def append(key="k", *paths, **more):
    return Changes("WRITE", 4, key, "engine", adds=[AddFile(path, {}, 10, 0) for path in paths], **more)


A_ROW = delete("a row", {"a.parquet": [1]})
A_FILE = delete("a file", removes=["b.parquet"])
AN_APPEND = append("an append", "new.parquet")


def compatible(ours, other, configuration):
    return Group(ours, configuration).admit(other)


ALONE = {
    "an UPDATE": replace(A_ROW, operation="UPDATE"),
    "rows that are copied": replace(A_FILE, adds=[AddFile("new.parquet", {}, 10, 0)]),
    "an overwrite": replace(AN_APPEND, parameters={"mode": "Overwrite"}),
    "an append that read the table": replace(AN_APPEND, predicate="id = 1"),
    "nothing": replace(A_ROW, row_deletes={}),
} | {
    f"{one.transaction_id} with {what}": replace(one, **more)
    for one in (A_ROW, A_FILE, AN_APPEND)
    for what, more in {
        "no change of data": {"data_change": False},
        "reads that matter": {"reads": Reads(whole_table=True)},
        "metadata": {"metadata": Metadata("id", "{}")},
        "a protocol": {"protocol": Protocol(1, 2)},
        "a domain": {"domains": [DomainMetadata("d", "")]},
        "an application's progress": {"app_transaction": Txn("app", 1)},
        "a record of a compaction": {"rewritten": {"new.parquet": [RowRun("a", 0, 1, 0)]}},
        "deleted rows of its own files": {"added_deletes": {"new.parquet": BitMap64([1])}},
        "change files": {"change_files": [Cdc("_change_data/c.parquet", {}, 10)]},
    }.items()
}


@pytest.mark.parametrize("what", ALONE)
def test_transactions_that_need_a_separate_version(what):
    for other in (A_ROW, AN_APPEND, replace(ALONE[what], transaction_id="again")):
        assert not compatible(ALONE[what], other, {})
        assert not compatible(other, ALONE[what], {})


def test_deletes_share_a_version_with_deletes_and_appends_with_appends():
    assert compatible(A_ROW, A_FILE, {})
    assert compatible(AN_APPEND, append("another", "other.parquet"), {})
    assert not compatible(A_ROW, AN_APPEND, {})
    assert not compatible(AN_APPEND, A_ROW, {})


def test_a_table_property_disables_groups():
    assert not compatible(A_ROW, A_FILE, {"delvec.groupCommit": "false"})
    assert compatible(A_ROW, A_FILE, {"delvec.groupCommit": "true"})


def test_a_repeated_transaction_does_not_join_its_group():
    assert not compatible(A_ROW, replace(A_FILE, transaction_id="a row"), {})


def test_adds_of_the_same_file_do_not_share_a_group():
    group = Group(AN_APPEND, {})
    assert group.admit(append("2", "other.parquet"))
    assert not group.admit(append("3", "fine.parquet", "othe%72.parquet"))
    assert group.admit(append("4", "fine.parquet"))


def test_appends_of_different_operations_do_not_share_a_group():
    assert compatible(AN_APPEND, append("2", "other.parquet"), {})
    assert not compatible(AN_APPEND, replace(append("2", "other.parquet"), operation="STREAMING UPDATE"), {})


def test_different_user_metadata_does_not_share_a_group():
    assert not compatible(A_ROW, replace(A_FILE, user_metadata="nightly"), {})
    assert compatible(replace(A_ROW, user_metadata="nightly"), replace(A_FILE, user_metadata="nightly"), {})


def test_a_single_member_is_unchanged():
    assert combined([A_ROW], "group", LOCATION) is A_ROW


def test_combined_members_remove_each_row_and_file_once():
    members = [
        delete("1", {"a.parquet": [1, 2], "c d.parquet": [7]}),
        delete("2", {"file:///data/people/a.parquet": [2, 3]}, ["c%20d.parquet"]),
        delete("3", {"e.parquet": [5]}, ["c d.parquet"]),
    ]
    members = [replace(one, read_version=version) for one, version in zip(members, (9, 7, 8), strict=True)]
    both = combined(members, "group", LOCATION)
    assert both.row_deletes == {"a.parquet": BitMap64([1, 2, 3]), "e.parquet": BitMap64([5])}
    assert both.removes == ["c%20d.parquet"]
    assert (both.operation, both.transaction_id, both.read_version) == ("DELETE", "group", 7)


def test_combined_members_add_all_files():
    both = combined([append("1", "a", "b"), append("2", "c")], "group", LOCATION)
    assert [add.path for add in both.adds] == ["a", "b", "c"]
    assert both.is_blind_append


def test_combined_members_keep_common_parameters():
    members = [
        delete(
            "1", {"a": [1]}, predicate="id = 1", parameters={"x": "1", "y": "2"}, metrics={"scanTimeMs": 5}
        ),
        delete("2", {"a": [2]}, predicate="id = 2", parameters={"x": "1"}),
        delete("3", {"a": [3]}, predicate="id = 2", parameters={"x": "1", "y": "3"}),
    ]
    both = combined(members, "group", LOCATION)
    assert both.predicate == "(id = 1) OR (id = 2)"
    assert both.parameters == {"x": "1"}
    assert both.metrics == {}
    assert combined([*members, delete("4", {"a": [4]})], "group", LOCATION).predicate is None
    long = delete("5", {"a": [5]}, predicate="id = " + "9" * 5000)
    assert combined([*members, long], "group", LOCATION).predicate is None


def test_engine_written_deletion_vectors_are_kept_for_files_of_one_member():
    first = delete("1", {"a": [1], "b": [1], "c": [1]}, written_vectors={"a": DV, "b": DV, "c": DV})
    second = delete("2", {"b": [2]}, ["c"])
    assert combined([first, second], "group", LOCATION).written_vectors == {"a": DV}
    assert without(first, [second], LOCATION).written_vectors == {"a": DV}
    assert without(first, [delete("3", {"b": [2]})], LOCATION).written_vectors == {"a": DV, "c": DV}


def test_rows_of_earlier_members_are_subtracted_from_later_ones():
    earlier = [delete("1", {"a": [1, 2]}), delete("2", {"/data/people/a": [3]}, ["b"])]
    left = without(delete("3", {"a": [2, 3, 4], "b": [1]}, ["c", "b"]), earlier, LOCATION)
    assert (left.row_deletes, left.removes) == ({"a": BitMap64([4])}, ["c"])
    nothing = without(delete("4", {"a": [1, 3], "b": [9]}), earlier, LOCATION)
    assert not nothing.row_deletes
    assert without(A_ROW, [], LOCATION) is A_ROW


def test_the_members_tag_round_trips():
    members = (
        MemberInfo("key-1", 4, "naïve = 'ü'", {"numDeletedRows": 1}),
        MemberInfo("key-2", 5, None, {}, "0123"),
    )
    tags = members_tag(members)
    assert all(
        isinstance(value, str) for value in tags.values()
    )  # otherwise delta-spark cannot read the commit
    assert json.loads(tags["delvec.members"])[0] == {
        "key": "key-1",
        "readVersion": 4,
        "predicate": "naïve = 'ü'",
        "metrics": {"numDeletedRows": 1},
    }
    assert members_of(CommitInfo(tags={"other": "1", **tags})) == members


@pytest.mark.parametrize(
    "tags",
    [
        None,
        {},
        {"delvec.members": None},
        {"delvec.members": 3},
        {"delvec.members": "{"},
        {"delvec.members": "[" * 10_000},
        {"delvec.members": "{}"},
        {"delvec.members": '[1, {}, {"key": 1}, {"key": "k"}, {"key": "k", "readVersion": true}]'},
    ],
)
def test_malformed_members_tags_are_ignored(tags):
    assert members_of(CommitInfo(tags=tags)) == ()


def test_members_with_invalid_metrics_are_kept():
    tag = '[{"key": "k", "readVersion": 3, "predicate": 5, "metrics": {"a": 1, "b": "2"}}]'
    assert members_of(CommitInfo(tags={"delvec.members": tag})) == (MemberInfo("k", 3, None, {"a": 1}),)


def test_weight_grows_with_what_a_request_holds():
    assert request_size(A_ROW) < 1000
    assert request_size(delete("k", {"a": range(0, 4_000_000, 2)})) > 400_000
    assert request_size(append("k", *map(str, range(100)))) > 20_000
    assert request_size(append("k", "p" * 4000)) > 4000
    assert request_size(delete("k", removes=["p" * 4000])) > 4000
