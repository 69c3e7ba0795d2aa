"""Delvec's own commands on catalog-managed tables, whose versions 0 other clients write."""

import json

import pyarrow as pa
import pytest

import delvec
from delvec_kernel import locations
from delvec_kernel.features.managed_tables import TABLE_ID

FEATURES = ["catalogManaged", "deletionVectors", "inCommitTimestamp", "v2Checkpoint", "vacuumProtocolCheck"]
SCHEMA = '{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}}]}'
NOW = 1_800_000_000_000


def first_version(folder, table_id):
    """Write version 0 as a client does that creates a managed table."""
    readers = [name for name in FEATURES if name != "inCommitTimestamp"]
    protocol = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": readers,
        "writerFeatures": FEATURES,
    }
    configuration = {
        TABLE_ID: table_id,
        "delta.enableDeletionVectors": "true",
        "delta.enableInCommitTimestamps": "true",
        "delta.checkpointPolicy": "v2",
    }
    metadata = {
        "id": "00000000-0000-4000-8000-000000000000",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": SCHEMA,
        "partitionColumns": [],
        "configuration": configuration,
    }
    actions = [
        {
            "commitInfo": {
                "inCommitTimestamp": NOW,
                "timestamp": NOW,
                "operation": "CREATE TABLE",
                "txnId": "t0",
            }
        },
        {"protocol": protocol},
        {"metaData": metadata},
    ]
    (folder / "_delta_log").mkdir(parents=True)
    log = folder / "_delta_log" / f"{0:020}.json"
    log.write_text("".join(f"{json.dumps(action)}\n" for action in actions))


@pytest.fixture
def managed(lake, tmp_path):
    folder = tmp_path / "people"
    first_version(folder, locations.table_id(locations.canonical(str(folder))))
    return lake.table(str(folder))


def test_rows_are_written_deleted_and_read(managed):
    managed.append(pa.table({"id": pa.array(range(10), pa.int64())}))
    managed.delete("id >= 8")
    managed.update({"id": "id + 100"}, "id = 7")
    assert sorted(managed.to_arrow()["id"].to_pylist()) == [*range(7), 107]
    stamps = [entry["inCommitTimestamp"] for entry in commit_infos(managed)]
    assert stamps == sorted(set(stamps))
    assert stamps[0] == NOW


def test_a_managed_table_cannot_be_taken_out_of_the_catalog(managed):
    with pytest.raises(delvec.InvalidTableChange, match=TABLE_ID):
        managed.alter.set_properties({TABLE_ID: "another"})
    with pytest.raises(delvec.InvalidTableChange, match="catalogManaged"):
        managed.alter.drop_feature("catalogManaged")


def test_a_clone_is_not_managed(managed, tmp_path):
    managed.append(pa.table({"id": pa.array([1], pa.int64())}))
    clone = managed.clone(str(tmp_path / "clone"))
    clone.delete("id = 1")
    assert "catalogManaged" not in clone.detail()["tableFeatures"]
    assert TABLE_ID not in clone.detail()["properties"]
    assert managed.to_arrow().num_rows == 1


def test_a_copy_of_the_folder_is_refused(managed, lake, tmp_path):
    copy = tmp_path / "copy"
    first_version(copy, locations.table_id(managed.location))
    with pytest.raises(delvec.UnsupportedReaderFeature, match="other than Delvec, or was copied"):
        lake.table(str(copy)).to_arrow()


def commit_infos(table):
    log = locations.local_path(table.location) / "_delta_log"
    return [json.loads(path.read_text().splitlines()[0])["commitInfo"] for path in sorted(log.glob("*.json"))]
