"""Checkpoints and log clean-up on every kind of storage."""

import json
from types import SimpleNamespace

import pytest

from delvec_service.maintenance.checkpoints import Checkpoints
from delvec_service.maintenance.log_cleanup import clean_up
from delvec_service.snapshots.loader import SnapshotLoader
from delvec_service.store.objects import ObjectStore

FEATURES = ["deletionVectors", "v2Checkpoint"]
PROTOCOL = {
    "minReaderVersion": 3,
    "minWriterVersion": 7,
    "readerFeatures": FEATURES,
    "writerFeatures": FEATURES,
}
COLUMN = {"name": "id", "type": "long", "nullable": True, "metadata": {}}


@pytest.fixture
def table(location):
    return SimpleNamespace(name="t", location=location, objects=ObjectStore(location))


def commit(table, version, *actions):
    data = "".join(json.dumps(action) + "\n" for action in actions).encode()
    assert table.objects.put_if_absent(f"_delta_log/{version:020}.json", data)


def metadata(policy):
    return {
        "id": "0c8e1c8a-7f8b-4cf5-8a0b-0f7c3c7a5f00",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": [COLUMN]}),
        "partitionColumns": [],
        "configuration": {"delta.checkpointPolicy": policy, "delta.logRetentionDuration": "0 days"},
    }


def add(name):
    stats = json.dumps({"numRecords": 1, "minValues": {"id": 1}})
    fields = {"path": name, "partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": True}
    return {"add": {**fields, "stats": stats}}


def log(table):
    return sorted(meta.name for meta in table.objects.list_from("_delta_log"))


def paths(table):
    snapshot = SnapshotLoader().load(table.objects, "t")
    return snapshot.version, sorted(snapshot.files["path"].to_pylist())


@pytest.mark.parametrize("policy", ["classic", "v2"])
def test_a_table_is_read_from_its_checkpoint(table, policy):
    commit(table, 0, {"protocol": PROTOCOL}, {"metaData": metadata(policy)})
    commit(table, 1, add("a"), add("b"))
    commit(table, 2, {"remove": {"path": "a", "dataChange": True, "deletionTimestamp": 1}}, add("c"))
    loader = SnapshotLoader()
    writer = Checkpoints(loader, sidecar_actions=1)

    done = writer.write(table)

    assert done.written
    assert done.form == policy
    assert not writer.write(table).written
    hint = json.loads(table.objects.get("_delta_log/_last_checkpoint"))
    assert (hint["version"], hint["numOfAddFiles"]) == (2, 2)
    for version in (0, 1):
        table.objects.delete(f"_delta_log/{version:020}.json")
    assert paths(table) == (2, ["b", "c"])
    commit(table, 3, add("d"))
    assert writer.write(table).written
    assert paths(table) == (3, ["b", "c", "d"])


def test_old_log_files_are_deleted(table):
    commit(table, 0, {"protocol": PROTOCOL}, {"metaData": metadata("classic")})
    commit(table, 1, add("a"))
    loader = SnapshotLoader()
    Checkpoints(loader).write(table)
    assert not clean_up(table, loader).deleted  # today's
    times = [meta.last_modified_ms for meta in table.objects.list_from("_delta_log")]

    listed = table.objects.list_from
    earlier = lambda meta: type(meta)(meta.name, meta.size, meta.last_modified_ms - 3 * 86_400_000)  # noqa: E731
    table.objects.list_from = lambda *given, **named: [earlier(meta) for meta in listed(*given, **named)]
    done = clean_up(table, SnapshotLoader(), now=max(times))

    assert list(done.deleted) == [f"_delta_log/{0:020}.json"]
    assert log(table) == [f"{1:020}.checkpoint.parquet", f"{1:020}.json"]
    assert paths(table) == (1, ["a"])


def test_a_damaged_checkpoint_does_not_stop_the_next(table):
    commit(table, 0, {"protocol": PROTOCOL}, {"metaData": metadata("classic")})
    writer = Checkpoints(SnapshotLoader())
    writer.write(table)
    commit(table, 1, add("a"))
    writer.write(table)
    table.objects.put(f"_delta_log/{1:020}.checkpoint.parquet", b"PAR1 damaged PAR1")
    commit(table, 2, add("b"))

    assert Checkpoints(SnapshotLoader()).write(table).written

    assert paths(table) == (2, ["a", "b"])
