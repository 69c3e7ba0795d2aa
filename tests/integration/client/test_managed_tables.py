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


def test_the_id_of_a_managed_table_cannot_be_changed(managed):
    with pytest.raises(delvec.InvalidTableChange, match=TABLE_ID):
        managed.alter.set_properties({TABLE_ID: "another"})
    with pytest.raises(delvec.InvalidTableChange, match=TABLE_ID):
        managed.alter.unset_properties([TABLE_ID])


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
    lake.sql("UNDROP TABLE people")
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


# --- created, replaced and given to the catalog by Delvec ---------------------------------------------------------

IDS = pa.table({"id": pa.array([1, 2, 3], pa.int64())})


@pytest.fixture
def warehouse(tmp_path):
    with delvec.connect(tmp_path / "lake", database_url=f"sqlite:///{tmp_path / 'store.db'}") as connection:
        yield connection


def is_managed(table):
    return "catalogManaged" in table.detail()["tableFeatures"]


def test_a_managed_table_is_created_by_name_in_a_folder_of_its_own(warehouse):
    table = warehouse.create_table("sales.people", "id long", managed=True, properties={"a": "b"})
    folder = table.location.rpartition("/")[2]
    assert folder.startswith("people-")
    assert len(folder) == len("people-") + 32
    table.append(IDS)
    table.delete("id = 2")
    properties = table.detail()["properties"]
    assert properties | {TABLE_ID: table.id, "a": "b", "delta.checkpointPolicy": "v2"} == properties
    assert is_managed(table)
    assert table.history()[-1]["operationParameters"]["isManaged"] == "true"
    warehouse.drop("sales.people")
    successor = warehouse.create_table("sales.people", "id long", managed=True)
    assert successor.location != table.location
    assert warehouse.undrop_table("sales.people", "sales.old").to_arrow().num_rows == 2


def test_a_managed_table_is_created_at_a_location_too(warehouse, tmp_path):
    assert is_managed(warehouse.create_table(tmp_path / "lake" / "there", "id long", managed=True))


def test_a_property_that_contradicts_the_catalog_is_refused(warehouse):
    with pytest.raises(delvec.InvalidTableChange, match=r"delta\.checkpointPolicy=v2, not 'classic'"):
        warehouse.create_table(
            "people", "id long", managed=True, properties={"delta.checkpointPolicy": "classic"}
        )
    assert warehouse.tables() == []


def test_a_managed_table_is_replaced_under_the_same_id(warehouse):
    table = warehouse.create_table("people", "id long", managed=True)
    table.append(IDS)
    replaced = warehouse.create_table("people", "name string", replace=True, properties={"x": "y"})
    assert (replaced.id, replaced.location) == (table.id, table.location)
    replaced.append(pa.table({"name": ["a"]}))
    assert replaced.to_arrow().to_pylist() == [{"name": "a"}]
    assert is_managed(replaced)
    assert replaced.detail()["properties"][TABLE_ID] == table.id
    assert table.to_arrow(version=1).num_rows == 3
    assert warehouse.create_table("people", "z int", if_not_exists=True, managed=True).version() == 3


def test_replace_does_not_give_a_table_to_the_catalog(warehouse):
    warehouse.create_table("plain", "id long")
    with pytest.raises(delvec.InvalidTableChange, match="managed=True"):
        warehouse.create_table("plain", "id long", managed=True, replace=True)


def test_a_clone_replaces_a_managed_table_which_stays_managed(warehouse):
    source = warehouse.create_table("source", "id long")
    source.append(IDS)
    target = warehouse.create_table("target", "id long", managed=True)
    source.clone(locations.local_path(target.location), replace=True)
    assert is_managed(target)
    assert target.to_arrow().num_rows == 3
    target.delete("id = 1")


def test_a_path_table_is_given_to_the_catalog_and_taken_back(warehouse, tmp_path):
    folder = tmp_path / "lake" / "plain"
    plain = warehouse.create_table(folder, "id long", properties={"delta.enableDeletionVectors": "false"})
    plain.append(IDS)
    table = warehouse.register(folder, managed=True)
    assert (table.id, table.version()) == (plain.id, 2)
    assert is_managed(table)
    assert warehouse.register(folder, managed=True).version() == 2
    table.delete("id = 1")
    assert commit_infos(table)[-1]["inCommitTimestamp"] > commit_infos(table)[2]["inCommitTimestamp"]
    assert table.to_arrow(version=1).num_rows == 3
    with pytest.raises(delvec.InvalidTableChange, match="catalogManaged depends on it"):
        table.alter.drop_feature("inCommitTimestamp")

    table.alter.drop_feature("catalogManaged")
    assert not is_managed(table)
    assert TABLE_ID not in table.detail()["properties"]
    table.append(IDS)
    assert sorted(table.to_arrow()["id"].to_pylist()) == [1, 2, 2, 3, 3]
    warehouse.drop("plain")
    assert warehouse.dropped_tables() == []


def test_add_feature_gives_a_table_to_the_catalog_and_a_bad_property_keeps_it_out(warehouse):
    table = warehouse.create_table("plain", "id long")
    table.alter.add_feature("catalogManaged")
    assert is_managed(table)
    manifests = {"delta.compatibility.symlinkFormatManifest.enabled": "true"}
    other = warehouse.create_table("other", "id long", properties=manifests)
    with pytest.raises(delvec.InvalidTableChange, match="cannot both be true"):
        other.alter.add_feature("catalogManaged")
    assert not is_managed(other)


def test_the_shell_creates_and_registers_managed_tables(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("DELVEC_DATABASE_URL", f"sqlite:///{tmp_path / 'store.db'}")
    monkeypatch.setenv("DELVEC_WAREHOUSE", str(tmp_path / "lake"))

    def run(*arguments):
        with pytest.raises(SystemExit) as ended:
            main(["--json", *arguments])
        assert ended.value.code == 0
        return json.loads(capsys.readouterr().out)

    made = run("create", "people", "--schema", "id long", "--managed")
    assert "/people-" in made["location"]
    plain = run("create", str(tmp_path / "lake" / "plain"), "--schema", "id long")
    run("register", plain["location"], "sales.plain", "--managed")
    assert "catalogManaged" in run("detail", "sales.plain")["tableFeatures"]
