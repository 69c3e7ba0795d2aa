"""Delvec's own commands on catalog-managed tables, whose versions 0 other clients write."""

import json
import os
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from sqlalchemy import update

import delvec
from delvec.cli import main
from delvec_kernel import locations
from delvec_kernel.features.managed_tables import TABLE_ID
from delvec_service.store.models import DroppedTableRow

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


# --- drop and undrop ------------------------------------------------------------------------------------------


def test_a_dropped_table_comes_back_by_python_and_by_sql(managed, lake):
    managed.append(pa.table({"id": pa.array([1], pa.int64())}))
    lake.drop_table("people")
    with pytest.raises(delvec.TableNotFound):
        managed.to_arrow()
    (dropped,) = lake.dropped_tables()
    assert (dropped.name, dropped.id) == ("people", managed.id)
    assert lake.undrop_table("people").to_arrow().num_rows == 1

    lake.drop("people")
    assert lake.sql("UNDROP TABLE people").num_rows == 0
    assert lake.table("people").to_arrow().num_rows == 1
    with pytest.raises(delvec.TableNotFound, match="only managed tables"):
        lake.sql("UNDROP TABLE people")


def test_maintenance_deletes_what_is_no_longer_kept(managed, lake, tmp_path):
    lake.drop("people")
    with pytest.raises(delvec.RetentionTooShort, match="DELVEC_DROPPED_TABLE_DAYS"):
        lake.delete_dropped_table("people")
    assert lake.maintenance.run() == []
    long_ago = datetime.now(UTC) - timedelta(days=8)
    with lake._service.service.database.write() as session:
        session.execute(update(DroppedTableRow).values(dropped_at=long_ago))
    for path in (tmp_path / "people").rglob("*"):
        os.utime(path, (long_ago.timestamp(),) * 2)

    (due,) = lake.maintenance.run(dry_run=True)
    assert (due.table, due.state) == ("people", "due")
    (result,) = lake.maintenance.run()
    assert (result.state, result.measured_gain_files) == ("done", 1), result
    assert not (tmp_path / "people").exists()
    assert lake.dropped_tables() == []


def test_the_shell_drops_and_undrops(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("DELVEC_DATABASE_URL", f"sqlite:///{tmp_path / 'store.db'}")
    folder = tmp_path / "people"
    first_version(folder, locations.table_id(locations.canonical(str(folder))))

    def run(*arguments):
        with pytest.raises(SystemExit) as ended:
            main(["--json", "--warehouse", str(tmp_path), *arguments])
        return ended.value.code, json.loads(capsys.readouterr().out)

    assert run("register", str(folder), "sales.people")[0] == 0
    assert run("drop", "sales.people")[0] == 0
    assert [table["name"] for table in run("tables", "sales", "--dropped")[1]] == ["sales.people"]
    assert run("tables", "hr", "--dropped")[1] == []
    assert run("undrop", "sales.people", "sales.again")[1]["name"] == "sales.again"
    assert [table["name"] for table in run("tables")[1]] == ["sales.again"]
