"""What a staged commit must be to follow a version, without storage."""

import json
from dataclasses import replace

import pytest
from pyroaring import BitMap64

from delvec_errors import (
    AppendOnlyTable,
    DuplicateFile,
    InvalidCommit,
    InvalidDeletionVector,
    UnsupportedTable,
)
from delvec_kernel.actions.action_json import LogFile
from delvec_kernel.actions.actions import Metadata, Protocol
from delvec_kernel.deletion_vectors.deletion_vector import inline
from delvec_kernel.features.managed_tables import TABLE_ID
from delvec_kernel.file_index.live_files import LiveFiles
from delvec_kernel.locations import table_id
from delvec_kernel.snapshot.replay import Commit
from delvec_kernel.snapshot.snapshot import Snapshot
from delvec_kernel.transaction import staged_commit

HERE = "file:///data/people"
NAME = "00000000000000000001.11111111-1111-4111-8111-111111111111.json"
NOW = 5000  # of the service, in milliseconds
FEATURES = (
    "catalogManaged",
    "deletionVectors",
    "inCommitTimestamp",
    "domainMetadata",
    "rowTracking",
    "appendOnly",
)
SCHEMA = '{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}}]}'
PROPERTIES = {
    TABLE_ID: table_id(HERE),
    "delta.enableInCommitTimestamps": "true",
    "delta.enableRowTracking": "true",
}
EMPTY = Snapshot(
    location=HERE,
    version=0,
    timestamp=1000,
    protocol=Protocol(3, 7, FEATURES[:2], FEATURES),
    metadata=Metadata("m", SCHEMA, configuration=PROPERTIES),
    live=LiveFiles(HERE),
    txns={},
    domain_metadata={},
    in_commit_timestamp=1000,
    checkpoint_version=None,
)


def info(stamp=1001, **more):
    return {"commitInfo": {"inCommitTimestamp": stamp, "txnId": "t1", "operation": "WRITE", **more}}


def added(path="a.parquet", rows=10, base=0, **more):
    add = {
        "path": path,
        "partitionValues": {},
        "size": 1,
        "modificationTime": 1,
        "dataChange": True,
        "stats": json.dumps({"numRecords": rows}),
        "baseRowId": base,
        "defaultRowCommitVersion": 1,
    }
    return {"add": {**add, **more}}


def mark(value):
    configuration = json.dumps({"rowIdHighWaterMark": value})
    return {
        "domainMetadata": {"domain": "delta.rowTracking", "configuration": configuration, "removed": False}
    }


def parsed(*actions, version=1):
    data = "".join(f"{json.dumps(action)}\n" for action in actions).encode()
    return staged_commit.parse(data, "people", HERE, version, NAME)


def check(*actions, snapshot=EMPTY):
    staged_commit.check(parsed(*actions), snapshot, "people", NOW)


def test_files_with_row_ids_below_the_mark_are_accepted():
    check(info(), added(), added("b.parquet", base=10), mark(19))


def test_a_time_may_be_a_day_ahead_of_the_clock_and_of_the_version_before():
    check(info(NOW + 24 * 3600 * 1000))
    late = replace(EMPTY, in_commit_timestamp=2**60)
    check(info(2**60 + 1), snapshot=late)


@pytest.mark.parametrize(
    ("actions", "match"),
    [
        ([info(), added(), mark(8)], "row ids up to 9, above the high-water mark 8"),
        ([info(), added()], "above the high-water mark -1"),
        ([info(), added(baseRowId=None), mark(9)], "without baseRowId"),
        ([info(1000), added(), mark(9)], "must be later than 1000"),
        ([info(NOW + 24 * 3600 * 1000 + 1), added(), mark(9)], "more than a day after the service's clock"),
        ([info(None), added(), mark(9)], "has no inCommitTimestamp"),
        ([info(), added(stats="{"), mark(9)], "statistics that are not JSON"),
        ([info(), added("s3://elsewhere/a.parquet"), mark(9)], "Name a new file by its URL-encoded path"),
    ],
)
def test_what_contradicts_the_version_is_refused(actions, match):
    with pytest.raises(InvalidCommit, match=match):
        check(*actions)


def test_files_of_a_writer_that_ignores_column_mapping_are_refused():
    """As of DuckDB 1.5: the file has the column ``name``, where the table's files have ``col-1``."""
    column = {"name": "name", "type": "string", "nullable": True}
    metadata = {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "col-1"}
    schema = json.dumps({"type": "struct", "fields": [{**column, "metadata": metadata}]})
    mapped = {**PROPERTIES, "delta.columnMapping.mode": "name"}
    snapshot = replace(EMPTY, metadata=replace(EMPTY.metadata, schema_string=schema, configuration=mapped))

    def stats(name):
        return json.dumps({"numRecords": 1, "nullCount": {name: 0}, "minValues": {name: "z"}})

    check(info(), added(rows=1, stats=stats("col-1")), mark(0), snapshot=snapshot)
    with pytest.raises(InvalidCommit, match=r"has the column 'name', which files .* call 'col-1'"):
        check(info(), added(rows=1, stats=stats("name")), mark(0), snapshot=snapshot)
    # An older file that comes back may have had another column of that name.
    restored = info(operation="RESTORE")
    check(restored, added(rows=1, stats=stats("name")), mark(0), snapshot=snapshot)


def test_the_mark_does_not_fall():
    after = replace(EMPTY, domain_metadata={"delta.rowTracking": parsed(info(), mark(50)).actions[1]})
    with pytest.raises(InvalidCommit, match="lowers the high-water mark of row ids from 50 to 20"):
        check(info(), mark(20), snapshot=after)


def test_rows_are_not_removed_from_an_append_only_table():
    metadata = replace(EMPTY.metadata, configuration={**PROPERTIES, "delta.appendOnly": "true"})
    commit = Commit(LogFile("people", 1, NAME), parsed(info(), added(), mark(9)).actions)
    snapshot = replace(EMPTY, metadata=metadata).after([commit], file_time=1001)
    with pytest.raises(AppendOnlyTable):
        check(info(1002), {"remove": {"path": "a.parquet", "dataChange": True}}, snapshot=snapshot)


@pytest.mark.parametrize(
    ("actions", "match"),
    [
        ([added()], "does not begin with a commitInfo"),
        ([info(txnId=None)], "that has a txnId"),
        ([info(), mark(1), mark(2)], "sets a domain twice"),
        ([info(), {"add": {"size": 1}}], "cannot be read"),
        ([info(), {"sidecar": {"path": "x", "sizeInBytes": 1, "modificationTime": 1}}], "has a 'sidecar'"),
    ],
)
def test_what_is_no_commit_is_refused(actions, match):
    with pytest.raises(InvalidCommit, match=match):
        parsed(*actions)


def test_a_file_is_named_once():
    with pytest.raises(DuplicateFile, match="is added twice in one commit"):
        parsed(info(), added(), added("./a.parquet"))


def test_the_name_says_the_version():
    assert staged_commit.is_staged_name(NAME, 1)
    for name in (
        NAME.replace("1.1", "2.1", 1),
        f"x/{NAME}",
        NAME[:-5],
        "00000000000000000001.json",
        f"../{NAME}",
    ):
        assert not staged_commit.is_staged_name(name, 1), name


@pytest.mark.parametrize(
    "path", ["a.parquet", "_change_data/../a.parquet", "file:///data/orders/_change_data/a.parquet"]
)
def test_changes_lie_where_cleanup_expects_them(path):
    with_feed = {**PROPERTIES, "delta.enableChangeDataFeed": "true"}
    snapshot = replace(EMPTY, metadata=replace(EMPTY.metadata, configuration=with_feed))
    file = {"path": path, "partitionValues": {}, "size": 1, "dataChange": False}

    with pytest.raises(InvalidCommit, match=r"not below _change_data/|Name a new file by its|outside table"):
        check(info(), {"cdc": file}, snapshot=snapshot)


def test_vectors_need_their_feature():
    protocol = replace(
        EMPTY.protocol, writer_features=("catalogManaged", "inCommitTimestamp"), reader_features=()
    )
    file = added(deletionVector=inline(BitMap64([1])).to_json())

    check(info(), file, mark(9))
    with pytest.raises(InvalidDeletionVector, match="does not have the feature deletionVectors"):
        check(info(), file, snapshot=replace(EMPTY, protocol=protocol))


def test_a_schema_that_cannot_be_read_is_refused():
    metadata = {
        "id": "m",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": '{"type":"struct","fields":[{"name":"id","type":"thing","nullable":true,"metadata":{}}]}',
        "partitionColumns": [],
        "configuration": PROPERTIES,
    }
    with pytest.raises((InvalidCommit, UnsupportedTable)):
        check(info(), {"metaData": metadata})


def test_what_a_commit_changes_is_said_as_of_any_commit():
    before = {"add": json.loads(json.dumps(added()["add"]))}
    old = inline(BitMap64([1])).to_json()
    actions = parsed(
        info(), before, added("b.parquet", base=10), added("c.parquet", base=20, deletionVector=old), mark(29)
    ).actions
    snapshot = EMPTY.after([Commit(LogFile("people", 1, NAME), actions)], file_time=1001)
    new = inline(BitMap64([1, 2])).to_json()
    removed = [
        {"remove": {"path": "a.parquet", "dataChange": True}},
        {"remove": {"path": "b.parquet", "dataChange": True}},
        {"remove": {"path": "c.parquet", "dataChange": True, "deletionVector": old}},
    ]
    staged = parsed(
        info(1002),
        *removed,
        added(deletionVector=new),
        added("c.parquet", base=20, deletionVector=new),
        added("d.parquet", base=30),
        mark(39),
        version=2,
    )

    changes = staged_commit.check(staged, snapshot, "people", NOW)

    assert [add.path for add in changes.adds] == ["d.parquet"]
    assert changes.removes == ["b.parquet"]
    assert sorted(changes.written_vectors) == ["a.parquet", "c.parquet"]
    assert list(staged_commit.vectors_before(staged, snapshot)) == ["c.parquet"]


def test_partition_values_have_the_columns_type():
    schema = SCHEMA.replace("]}", ',{"name":"day","type":"date","nullable":true,"metadata":{}}]}')
    metadata = replace(EMPTY.metadata, schema_string=schema, partition_columns=("day",))
    snapshot = replace(EMPTY, metadata=metadata)

    check(info(), added(partitionValues={"day": "2026-01-02"}), mark(9), snapshot=snapshot)
    with pytest.raises(InvalidCommit, match="'abc', which is not valid for column 'day'"):
        check(info(), added(partitionValues={"day": "abc"}), mark(9), snapshot=snapshot)
