import json
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from delvec_errors import CorruptTable, RowIndexOutOfRange
from delvec_kernel import locations
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
from delvec_kernel.deletion_vectors.deletion_vector import Descriptor
from delvec_kernel.transaction import commit_builder, row_runs
from delvec_kernel.transaction.commit_builder import metrics, resolve
from delvec_kernel.transaction.transaction_changes import Changes, FileRepair, FileStatistics, RowRun
from delvec_kernel.transaction.winning_commit import WinningCommit

NOW = 1_700_000_000_000
OLD = Descriptor("u", "old", 1, 36, 2)
TIMESTAMPED = {"delta.enableInCommitTimestamps": "true"}
NEW = Descriptor("u", "new", 1, 38, 3)


def file(path="a", *, num_records=10, deletion_vector=None, **fields):
    stats = json.dumps({"numRecords": num_records, "nullCount": {"id": 0}})
    return AddFile(path, {"p": "1"}, 100, 5, stats=stats, deletion_vector=deletion_vector, **fields)


def changes(operation="DELETE", **fields):
    return Changes(operation, 7, "the-transaction", "engine/1", **fields)


@dataclass
class Version:
    """A stand-in for a snapshot."""

    in_commit_timestamps_enabled: bool
    in_commit_timestamp: int | None
    partition_columns: tuple = ("p",)
    configuration: dict = field(default_factory=dict)
    version: int = 7
    protocol: Protocol = field(
        default_factory=lambda: Protocol(3, 7, ("deletionVectors",), ("deletionVectors",))
    )
    metadata: Metadata = field(default_factory=lambda: Metadata("table", "{}"))
    location: str = ""
    domain_metadata: dict = field(default_factory=dict)


def snapshot(*, in_commit_timestamp=None):
    return Version(
        in_commit_timestamps_enabled=in_commit_timestamp is not None,
        in_commit_timestamp=in_commit_timestamp,
    )


@dataclass
class Built:
    actions: list
    metrics: dict


def build(request, outcome, descriptors, table, now):
    counted = metrics(request, outcome)
    found = commit_builder.build(request, outcome, descriptors, table, now, metrics=counted)
    return Built(found if outcome.changes_files(request) else [], counted)


def resolved(request, *files, deleted=None, num_records=10):
    live = {item.path: item for item in files}
    counts = dict.fromkeys(live, num_records)
    return resolve(request, live, deleted or {}, counts, table="people", version=7)


def delete(*rows, deleted=(), deletion_vector=None, num_records=10, **fields):
    """Delete rows of file ``a``; return actions and metrics."""
    request = changes(row_deletes={"a": BitMap64(rows)}, **fields)
    old = {"a": BitMap64(deleted)} if deleted else {}
    outcome = resolved(request, file(deletion_vector=deletion_vector), deleted=old, num_records=num_records)
    built = build(request, outcome, {"a": NEW}, snapshot(), NOW)
    return built.actions, built.metrics


def test_a_file_that_loses_rows_is_removed_and_added_with_a_new_deletion_vector():
    (info, remove, add), metrics = delete(3, 4, deleted=[0, 1], deletion_vector=OLD)

    assert isinstance(info, CommitInfo)
    assert isinstance(remove, RemoveFile)
    assert (remove.deletion_vector, add.deletion_vector) == (OLD, NEW)
    assert remove.deletion_timestamp == NOW
    assert remove.extended_file_metadata is True
    assert remove.partition_values == {"p": "1"}
    assert json.loads(add.stats)["tightBounds"] is False
    assert metrics["numDeletedRows"] == 2
    assert metrics["numDeletionVectorsUpdated"] == 1


def test_other_fields_of_an_add_are_kept():
    request = changes(row_deletes={"a": BitMap64([1])})
    live = file(tags={"x": "y"}, base_row_id=40, default_row_commit_version=3, clustering_provider="liquid")

    built = build(request, resolved(request, live), {"a": NEW}, snapshot(), NOW)

    _, remove, add = built.actions
    assert (add.tags, add.base_row_id, add.default_row_commit_version, add.clustering_provider) == (
        {"x": "y"},
        40,
        3,
        "liquid",
    )
    assert (remove.tags, remove.base_row_id, remove.default_row_commit_version) == ({"x": "y"}, 40, 3)
    assert (add.partition_values, add.size, add.modification_time, add.data_change) == (
        {"p": "1"},
        100,
        5,
        True,
    )


def test_deleting_the_last_rows_removes_the_file():
    (_, remove), metrics = delete(*range(2, 10), deleted=[0, 1], deletion_vector=OLD)

    assert remove.deletion_vector == OLD
    assert metrics["numDeletedRows"] == 8
    assert metrics["numRemovedFiles"] == 1
    assert metrics["numRemovedBytes"] == 100
    assert metrics["numDeletionVectorsRemoved"] == 1
    assert metrics["numDeletionVectorsAdded"] == 0


@pytest.mark.parametrize("rows", [(), (0,), (0, 1)])
def test_deleting_already_deleted_rows_changes_nothing(rows):
    actions, metrics = delete(*rows, deleted=[0, 1], deletion_vector=OLD)

    assert actions == []
    assert metrics["numDeletedRows"] == 0


@given(st.sets(st.integers(0, 9)), st.sets(st.integers(0, 9), min_size=1, max_size=9))
def test_rows_are_counted_once(rows, deleted):
    vector = Descriptor("u", "old", 1, 36, len(deleted))

    actions, metrics = delete(*rows, deleted=deleted, deletion_vector=vector)

    new = rows - deleted
    assert metrics["numDeletedRows"] == len(new)
    assert len(actions) == (0 if not new else 2 if len(rows | deleted) == 10 else 3)


@pytest.mark.parametrize("rows", [(10,), (0, 10), (2**40,)])
def test_a_row_beyond_the_file_is_named(rows):
    with pytest.raises(
        RowIndexOutOfRange, match=rf"'a' of table 'people' \(version 7\) has 10 rows.*{rows[-1]}"
    ):
        delete(*rows)


def test_a_deletion_vector_beyond_the_file_is_corrupt():
    with pytest.raises(CorruptTable, match="marks row 10"):
        delete(1, deleted=[10], deletion_vector=OLD)


def test_a_file_of_unknown_length_cannot_lose_rows():
    with pytest.raises(CorruptTable, match="no row count"):
        delete(1, num_records=None)


def test_a_whole_file_of_unknown_length_can_be_removed_without_counting():
    request = changes(removes=["a"])

    built = build(request, resolved(request, file(), num_records=None), {}, snapshot(), NOW)

    assert len(built.actions) == 2
    assert "numDeletedRows" not in built.metrics


def test_copies_are_not_deleted():
    request = changes(
        removes=["a"], adds=[file("b", num_records=7)], metrics={"numCopiedRows": 7, "scanTimeMs": 4}
    )

    built = build(request, resolved(request, file()), {}, snapshot(), NOW)

    assert built.metrics["numDeletedRows"] == 3
    assert built.metrics["numCopiedRows"] == 7
    assert built.metrics["scanTimeMs"] == 4
    assert built.metrics["numAddedFiles"] == built.metrics["numRemovedFiles"] == 1


def test_updates_use_the_metrics_of_the_engine():
    request = changes(
        "UPDATE",
        row_deletes={"a": BitMap64([1])},
        adds=[file("b", num_records=1)],
        metrics={"numUpdatedRows": 1},
        predicate="id = 1",
    )

    built = build(request, resolved(request, file()), {"a": NEW}, snapshot(), NOW)

    assert built.metrics["numUpdatedRows"] == 1
    assert built.metrics["numDeletionVectorsAdded"] == 1
    assert "numDeletedRows" not in built.metrics
    assert [type(action) for action in built.actions] == [CommitInfo, RemoveFile, AddFile, AddFile]


@pytest.mark.parametrize(
    ("request_", "blind"),
    [
        (changes("WRITE", adds=[file("b")]), True),
        (changes("STREAMING UPDATE", adds=[file("b")]), True),
        (changes("WRITE", adds=[file("b")], parameters={"mode": "Overwrite"}), False),
        (changes("WRITE", adds=[file("b")], predicate="p = 1"), False),
        (changes("WRITE", adds=[file("b")], removes=["a"]), False),
        (changes("DELETE", adds=[file("b")]), False),
        (changes("MERGE", adds=[file("b")], row_deletes={"a": BitMap64([1])}), False),
        (changes("MERGE", adds=[file("b")]), False),
        (changes("RESTORE", adds=[file("b")]), False),
    ],
)
def test_what_is_a_blind_append(request_, blind):
    assert request_.is_blind_append is blind


@pytest.mark.parametrize(
    ("request_", "parameters"),
    [
        (changes(removes=["a"], predicate="name = 'Zoë'"), {"predicate": "[\"(name = 'Zoë')\"]"}),
        (changes(removes=["a"]), {"predicate": "[]"}),
        (changes(removes=["a"], predicate="x", parameters={"predicate": '["y"]'}), {"predicate": '["y"]'}),
        (changes("WRITE", removes=["a"]), {"mode": "Append", "partitionBy": '["p"]'}),
        (changes("OPTIMIZE", removes=["a"], parameters={"zOrderBy": "[]"}), {"zOrderBy": "[]"}),
    ],
)
def test_operation_parameters_are_deltas(request_, parameters):
    built = build(request_, resolved(request_, file()), {}, snapshot(), NOW)

    assert built.actions[0].operation_parameters == parameters


def test_commit_info_fields():
    request = changes(removes=["a"], user_metadata="why")

    info = build(request, resolved(request, file()), {}, snapshot(), NOW).actions[0].to_json()

    assert info["timestamp"] == NOW
    assert "inCommitTimestamp" not in info
    assert (info["operation"], info["readVersion"], info["isolationLevel"]) == ("DELETE", 7, "Serializable")
    assert (info["txnId"], info["engineInfo"], info["userMetadata"]) == ("the-transaction", "engine/1", "why")
    assert info["isBlindAppend"] is False
    assert set(map(type, info["operationMetrics"].values())) == {str}


def test_commit_info_names_who_signed_in():
    def names(**who):
        request = changes(removes=["a"], **who)
        info = build(request, resolved(request, file()), {}, snapshot(), NOW).actions[0].to_json()
        return {name: value for name, value in info.items() if name == "userName"}

    assert names() == {}
    assert names(user_name="jane") == {"userName": "jane"}


@pytest.mark.parametrize(("previous", "expected"), [(NOW - 5, NOW), (NOW, NOW + 1), (NOW + 9, NOW + 10)])
def test_in_commit_timestamps_rise(previous, expected):
    request = changes(removes=["a"])

    actions = build(
        request, resolved(request, file()), {}, snapshot(in_commit_timestamp=previous), NOW
    ).actions

    assert actions[0].in_commit_timestamp == actions[0].timestamp == expected
    assert actions[1].deletion_timestamp == expected


@pytest.mark.parametrize(("previous", "expected"), [(NOW - 5, NOW), (NOW + 9, NOW + 10)])
def test_enabling_in_commit_timestamps_records_the_enablement_version(previous, expected):
    request = changes("SET TBLPROPERTIES", metadata=Metadata("table", "{}", configuration=TIMESTAMPED))
    table = snapshot()
    table.timestamp = previous

    info, metadata = commit_builder.build(request, resolved(request), {}, table, NOW, metrics={})

    assert info.in_commit_timestamp == info.timestamp == expected
    assert metadata.configuration == {
        **TIMESTAMPED,
        "delta.inCommitTimestampEnablementVersion": "8",
        "delta.inCommitTimestampEnablementTimestamp": str(expected),
    }


def test_in_commit_timestamps_are_enabled_only_once():
    request = changes("SET TBLPROPERTIES", metadata=Metadata("table", "{}", configuration=TIMESTAMPED))

    info, metadata = commit_builder.build(
        request, resolved(request), {}, snapshot(in_commit_timestamp=NOW - 5), NOW, metrics={}
    )

    assert info.in_commit_timestamp == NOW
    assert metadata.configuration == TIMESTAMPED


def test_a_commit_that_disables_in_commit_timestamps_has_none():
    request = changes("SET TBLPROPERTIES", metadata=Metadata("table", "{}"))

    info, _ = commit_builder.build(
        request, resolved(request), {}, snapshot(in_commit_timestamp=NOW + 5), NOW, metrics={}
    )

    assert (info.in_commit_timestamp, info.timestamp) == (None, NOW)


# --- metrics --------------------------------------------------------------------------------------------


def busy(operation, **more):
    """Return the metrics of a commit that adds b and c, deletes rows in a and d, and removes e and f."""
    request = changes(
        operation,
        row_deletes={"a": BitMap64([2]), "d": BitMap64([1, 2])},
        removes=["e", "f"],
        adds=[file("b", num_records=7), file("c", num_records=4)],
        **more,
    )
    files = [file("a", deletion_vector=OLD), file("d"), file("e", deletion_vector=OLD), file("f")]
    return metrics(request, resolved(request, *files, deleted={"a": BitMap64([0, 1])}))


FILES = {"FilesAdded": 2, "BytesAdded": 200, "FilesRemoved": 2, "BytesRemoved": 200}
VECTORS = {"DeletionVectorsAdded": 2, "DeletionVectorsRemoved": 2, "DeletionVectorsUpdated": 1}


def test_the_metrics_of_a_merge_count_files_and_deletion_vectors():
    feed = [Cdc("_change_data/c.parquet", {}, 10)]

    found = busy("MERGE", metrics={"numSourceRows": 3}, change_files=feed)

    assert found == {
        "numSourceRows": 3,
        **{f"numTarget{name}": count for name, count in (FILES | VECTORS).items()},
        "numTargetChangeFilesAdded": 1,
    }


@pytest.mark.parametrize(
    ("operation", "rows"), [("DELETE", {"numDeletedRows": 10}), ("UPDATE", {"numUpdatedRows": 3})]
)
def test_the_metrics_of_row_changes_count_files_vectors_and_rows(operation, rows):
    said = {"numCopiedRows": 11, **({} if operation == "DELETE" else rows)}

    found = busy(operation, metrics=said, change_files=[Cdc("_change_data/c.parquet", {}, 10)])

    assert found == {
        "numAddedFiles": 2,
        "numAddedBytes": 200,
        "numRemovedFiles": 2,
        "numRemovedBytes": 200,
        **{f"num{name}": count for name, count in VECTORS.items()},
        "numAddedChangeFiles": 1,
        "numCopiedRows": 11,
        **rows,
    }


def test_the_metrics_of_an_overwrite_distinguish_new_and_copied_rows():
    said = {"numCopiedRows": 4}

    assert busy("WRITE", metrics=said, parameters={"mode": "Overwrite", "predicate": "id < 5"}) == {
        **said,
        "numFiles": 2,
        "numOutputBytes": 200,
        "numOutputRows": 7,
        "numDeletedRows": 17,
        "numDeletionVectorsAdded": 2,
        "numDeletionVectorsRemoved": 2,
        "numRemovedFiles": 2,
        "numRemovedBytes": 200,
    }
    assert "numDeletedRows" not in busy("WRITE", metrics=said, parameters={"mode": "Overwrite"})


def test_the_metrics_of_an_append_count_added_files_and_rows():
    request = changes("WRITE", adds=[file("b", num_records=7)])

    assert metrics(request, resolved(request)) == {"numFiles": 1, "numOutputBytes": 100, "numOutputRows": 7}


@pytest.mark.parametrize("operation", ["OPTIMIZE", "REORG"])
def test_the_metrics_of_a_compaction_count_removed_deletion_vectors(operation):
    assert busy(operation, data_change=False) == {
        "numAddedFiles": 2,
        "numAddedBytes": 200,
        "numRemovedFiles": 2,
        "numRemovedBytes": 200,
        "numDeletionVectorsRemoved": 2,
        **dict.fromkeys(("minFileSize", "p25FileSize", "p50FileSize", "p75FileSize", "maxFileSize"), 100),
    }


def test_the_metrics_of_a_compaction_have_file_size_quartiles():
    new = changes(
        "OPTIMIZE", data_change=False, adds=[AddFile(f"{size}", {}, size, 5) for size in (50, 10, 40, 20, 30)]
    )
    found = metrics(new, resolved(new))
    assert [
        found[name] for name in ("minFileSize", "p25FileSize", "p50FileSize", "p75FileSize", "maxFileSize")
    ] == [10, 20, 30, 40, 50]


def test_the_metrics_of_a_stream_count_its_rows_where_they_are_known():
    assert busy("STREAMING UPDATE") == {
        "numAddedFiles": 2,
        "numRemovedFiles": 2,
        "numOutputBytes": 200,
        "numOutputRows": 11,
    }
    unknown = changes("STREAMING UPDATE", adds=[AddFile("b", {}, 100, 5)])
    assert metrics(unknown, resolved(unknown)) == {
        "numAddedFiles": 1,
        "numRemovedFiles": 0,
        "numOutputBytes": 100,
    }


# --- what else a commit may hold ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "preserved"),
    [
        ({"operation": "WRITE", "metrics": {"numCopiedRows": 1}}, "false"),
        ({"operation": "WRITE", "metrics": {"numCopiedRows": 1}, "keeps_row_ids": True}, "true"),
        ({"operation": "WRITE"}, "true"),
        ({"data_change": False}, "false"),
        ({"operation": "UPDATE"}, "false"),
        ({"operation": "UPDATE", "keeps_row_ids": True}, "true"),
    ],
)
def test_commit_info_records_whether_rewritten_rows_kept_their_row_ids(more, preserved):
    table = snapshot()
    table.protocol = Protocol(3, 7, (), ("rowTracking",))
    table.configuration = {"delta.enableRowTracking": "true"}
    table.domain_metadata = {}
    request = changes(**{"operation": "DELETE", "removes": ["a"], "adds": [file("b", num_records=4)], **more})

    info, mark, _, add = build(request, resolved(request, file()), {}, table, NOW).actions

    assert info.tags == {"delta.rowTracking.preserved": preserved}
    assert (add.base_row_id, add.default_row_commit_version) == (0, 8)
    assert json.loads(mark.configuration) == {"rowIdHighWaterMark": 3}


def test_new_statistics_apply_only_with_the_same_deletion_vector():
    new = '{"numRecords":10,"tightBounds":true}'
    kept = file("a", deletion_vector=OLD, base_row_id=5, default_row_commit_version=3, tags={"k": "v"})
    given = {
        "a": FileStatistics("a", new, OLD),
        "b": FileStatistics("b", new, OLD),
        "c": FileStatistics("c", new),
        "gone": FileStatistics("gone", new),
    }
    request = changes("COMPUTE STATS", statistics=given, data_change=False)
    outcome = resolved(request, kept, file("b", deletion_vector=NEW), file("c", deletion_vector=NEW))
    built = build(request, outcome, {}, snapshot(), NOW)
    assert built.actions[1:] == [replace(kept, stats=new, data_change=False)]
    assert built.metrics == {"numUpdatedFiles": 1}
    assert built.actions[0].isolation_level == "SnapshotIsolation"


def test_files_that_are_added_again_stay_as_they_are():
    request = changes("UPDATE STATISTICS", again=["a", "gone"], data_change=False)

    info, add = build(request, resolved(request, file(deletion_vector=OLD)), {}, snapshot(), NOW).actions

    assert info.isolation_level == "SnapshotIsolation"
    assert add == replace(file(deletion_vector=OLD), data_change=False)


def test_tombstones_alone_are_removes_without_live_files():
    request = changes("VACUUM", tombstones=["x", "y"], data_change=False)

    _, *removes = build(request, resolved(request), {}, snapshot(), NOW).actions

    assert removes == [RemoveFile(path, NOW, data_change=False) for path in ("x", "y")]


def test_the_order_of_actions():
    metadata, protocol = Metadata("id", "{}"), Protocol(3, 7, (), ())
    request = changes(
        row_deletes={"a": BitMap64([1])},
        adds=[file("b")],
        removes=["c"],
        metadata=metadata,
        protocol=protocol,
        domains=[DomainMetadata("d", "{}")],
        app_transaction=Txn("app", 3),
        change_files=[Cdc("_change_data/c.parquet", {}, 10)],
        operation="WRITE",
    )

    actions = build(request, resolved(request, file(), file("c")), {"a": NEW}, snapshot(), NOW).actions

    assert [action.key for action in actions] == [
        "commitInfo",
        "protocol",
        "metaData",
        "domainMetadata",
        "txn",
        "remove",
        "remove",
        "add",
        "add",
        "cdc",
    ]
    assert actions[-1] == Cdc("_change_data/c.parquet", {}, 10)
    assert actions[1:3] == [protocol, metadata]
    assert actions[4] == Txn("app", 3, NOW)


def test_a_compaction_changes_no_data():
    request = changes("OPTIMIZE", removes=["a"], adds=[file("b")], data_change=False)

    info, remove, add = build(request, resolved(request, file()), {}, snapshot(), NOW).actions

    assert info.isolation_level == "SnapshotIsolation"
    assert info.is_blind_append is False
    assert remove.data_change is add.data_change is False


def test_new_files_may_have_deleted_rows():
    request = changes(
        "OPTIMIZE",
        removes=["a"],
        adds=[file("b")],
        data_change=False,
        added_deletes={"b": BitMap64([2, 5])},
        rewritten={"b": [RowRun("a", 0, 10, 0)]},
    )
    outcome = resolved(request, file())

    (marked,) = outcome.with_vectors
    assert (marked.file.path, marked.rows) == ("b", BitMap64([2, 5]))
    info, _, add = build(request, outcome, {"b": NEW}, snapshot(), NOW).actions
    assert add.deletion_vector == NEW
    assert json.loads(add.stats)["tightBounds"] is False
    assert json.loads(add.stats)["numRecords"] == 10
    assert row_runs.decode(info.tags[row_runs.TAG], "memory:///t") == request.rewritten


def test_deleted_rows_beyond_a_new_file_are_refused():
    request = changes("OPTIMIZE", adds=[file("b")], added_deletes={"b": BitMap64([10])})

    with pytest.raises(RowIndexOutOfRange, match="no row index 10"):
        resolved(request)


@pytest.mark.parametrize(("rows", "taken"), [([0, 1, 2], True), ([0, 1, 2, 3], False)])
def test_an_engines_deletion_vector_is_used_if_complete(rows, taken):
    request = changes(row_deletes={"a": BitMap64(rows)}, written_vectors={"a": NEW})

    outcome = resolved(request, file(deletion_vector=OLD), deleted={"a": BitMap64([0, 1])})

    assert outcome.marked[0].written == (NEW if taken else None)


def test_rows_already_gone_are_a_metric_unless_zero():
    request = changes(row_deletes={"a": BitMap64([1])})
    outcome = resolved(request, file())

    assert commit_builder.ROWS_ALREADY_GONE not in metrics(request, outcome)
    assert metrics(request, outcome, rows_already_gone=2)[commit_builder.ROWS_ALREADY_GONE] == 2


def test_a_repaired_file_is_no_change_of_data_and_has_the_vector_that_is_written_for_it():
    live, stale = file(deletion_vector=OLD), file("b", deletion_vector=OLD)
    request = changes(
        "REPAIR",
        repairs=(
            FileRepair("a", live, replace(live, deletion_vector=None), BitMap64([1]), loses_rows=True),
            FileRepair("b", file("b"), stale=stale),
        ),
    )

    info, *actions = build(request, resolved(request, live, file("b")), {"a": NEW}, snapshot(), NOW).actions

    removes = [each for each in actions if isinstance(each, RemoveFile)]
    assert [(each.path, each.deletion_vector, each.data_change) for each in removes] == [
        ("a", OLD, True),
        ("b", OLD, False),
    ]
    (add,) = (each for each in actions if isinstance(each, AddFile))
    assert (add.path, add.deletion_vector, add.data_change) == ("a", NEW, False)
    location = "file:///lake/people"
    winner = WinningCommit.of(8, [info, *actions], location)
    assert winner.stale_removes == {locations.canonical_log_path("b", location)}


def test_vectors_are_packed_again_of_files_that_have_one():
    request = changes("OPTIMIZE", repacked=("a", "b", "c"), data_change=False)

    outcome = resolved(request, file("a", deletion_vector=OLD), file("b"), deleted={"a": BitMap64([3, 4])})

    assert [(each.file.path, list(each.rows), each.is_repacked) for each in outcome.marked] == [
        ("a", [3, 4], True)
    ]
