"""Each command of Delvec does to a managed table what it does to a path table."""

import pyarrow as pa
import pytest

import delvec
from delvec_kernel import locations

PROPERTIES = {"delta.enableChangeDataFeed": "true"}


@pytest.fixture
def lake(tmp_path):
    with delvec.connect(tmp_path / "lake", database_url="sqlite://") as connection:
        yield connection


def rows_of(*ids):
    return pa.table({"id": pa.array(ids, pa.int64()), "day": [f"d{number % 2}" for number in ids]})


@pytest.fixture(params=["managed", "by path"])
def table(lake, request):
    """A table of three commits with six rows, of which one is deleted by a vector: managed, or the same by its path."""
    made = lake.create_table(
        "sales.people", "id long, day string", managed=request.param == "managed", properties=PROPERTIES
    )
    for start in (0, 3):
        made.append(rows_of(start, start + 1, start + 2))
    made.delete("id = 4")
    return made


def ids(table, **options):
    return sorted(table.to_arrow(**options)["id"].to_pylist())


def test_the_change_feed(table):
    table.update({"day": "'x'"}, "id = 0")
    changes = table.changes(3)
    kinds = sorted(zip(changes["id"].to_pylist(), changes["_change_type"].to_pylist(), strict=True))
    assert kinds == [(0, "update_postimage"), (0, "update_preimage"), (4, "delete")]


def test_optimize_purge_and_their_history(table):
    assert table.optimize()["numRemovedFiles"] == 2
    table.delete("id = 1")
    assert table.optimize.purge()["numDeletionVectorsRemoved"] == 1
    assert ids(table) == [0, 2, 3, 5]
    assert table.snapshot().num_deletion_vectors == 0


def test_z_order_and_merge(table):
    table.optimize.z_order(["id"])
    source = rows_of(5, 9)
    table.merge(source, "target.id = source.id").when_matched_delete().when_not_matched_insert_all().execute()
    assert ids(table) == [0, 1, 2, 3, 9]


def test_vacuum_deletes_what_no_version_needs(table):
    table.optimize()
    done = table.vacuum(0, enforce_retention_duration=False)
    assert done["num-files"] >= 2
    assert ids(table) == [0, 1, 2, 3, 5]
    assert table.check()["num-errors"] == 0


def test_checkpoints_and_the_log(table):
    done = table.checkpoint()
    assert done["result"] == "written"
    assert ids(table) == [0, 1, 2, 3, 5]
    assert table.check()["num-errors"] == 0


def test_restore_goes_back_and_keeps_the_table_as_it_is(table):
    features = table.detail()["tableFeatures"]
    table.restore(1)
    assert ids(table) == [0, 1, 2]
    assert set(features) <= set(table.detail()["tableFeatures"])
    table.restore(0)
    table.append(rows_of(7))
    assert ids(table) == [7]


@pytest.mark.parametrize("shallow", [True, False])
def test_clones(table, lake, shallow):
    clone = table.clone("copy", shallow=shallow)
    clone.delete("id = 0")
    assert ids(clone) == [1, 2, 3, 5]
    assert ids(table) == [0, 1, 2, 3, 5]
    table.vacuum(0, enforce_retention_duration=False)
    assert ids(clone) == [1, 2, 3, 5]


def test_health_and_policies(table, lake):
    assert table.health()["num-files-with-deletion-vectors"] == 1
    lake.maintenance.set_policy("checkpoint", "system.checkpoint", {"min_commits": 1})
    lake.maintenance.set_policy("purge", "system.dv-purge", {"min_deleted_ratio": 0.01, "min_gain_bytes": 0})
    states = {one.type: one.state for one in lake.maintenance.run()}
    assert states == {"system.checkpoint": "done", "system.dv-purge": "done"}
    assert ids(table) == [0, 1, 2, 3, 5]


def test_iceberg(table):
    assert table.to_iceberg(format_version=3)["delta-version"] == 3
    table.append(rows_of(8))
    assert table.to_iceberg(format_version=3)["delta-version"] == 4


def test_columns_properties_and_transactions(table):
    table.alter.add_columns("age int")
    table.alter.set_properties({"delta.columnMapping.mode": "name"})
    table.alter.rename_column("day", "weekday")
    table.alter.drop_columns("age")
    assert table.to_arrow().column_names == ["id", "weekday"]
    table.alter.set_properties({"delta.enableTypeWidening": "true"})
    assert ids(table) == [0, 1, 2, 3, 5]


def test_restore_across_the_commit_that_gave_a_table_to_the_catalog(lake):
    plain = lake.create_table("plain", "id long, day string")
    plain.append(rows_of(1, 2))
    plain.alter.add_feature("catalogManaged")
    plain.delete("id = 1")
    plain.restore(1)
    assert ids(plain) == [1, 2]
    assert "catalogManaged" in plain.detail()["tableFeatures"]
    plain.append(rows_of(3))
    assert locations.table_id(plain.location) == plain.detail()["properties"]["io.unitycatalog.tableId"]
    assert "catalogManaged" in lake.table("plain").detail()["tableFeatures"]
    plain.alter.drop_feature("catalogManaged")
    plain.restore(3)
    assert "catalogManaged" not in plain.detail()["tableFeatures"]
    assert "io.unitycatalog.tableId" not in plain.detail()["properties"]
    assert ids(plain) == [2]
