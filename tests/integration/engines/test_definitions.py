"""CREATE TABLE with every property, and REPLACE TABLE, on each engine."""

import json

import pytest

import delvec
from delvec_errors import AppendOnlyTable, ConstraintViolation, InvalidTableChange, MetadataChanged

pytestmark = pytest.mark.full_on_spark("the same on DuckDB in the gate; there on Spark are the main cases")

SCHEMA = "id long, name string, place struct<city: string, zip: int>"
ROWS = [{"id": n, "name": f"n{n}", "place": {"city": "Rome", "zip": n} if n % 2 else None} for n in range(6)]


def sorted_rows(table):
    return sorted(table.to_arrow().to_pylist(), key=lambda row: row["id"])


@pytest.mark.parametrize("mode", ["name", "id"])
def test_columns_are_mapped_from_the_beginning(lake, engine, tmp_path, mode):
    table = lake.create_table(
        tmp_path / "mapped",
        SCHEMA.replace("name", "`the name`"),
        properties={"delta.columnMapping.mode": mode, "delta.enableChangeDataFeed": "true"},
        engine=engine,
    )
    table.append(
        [{"the name" if key == "name" else key: value for key, value in row.items()} for row in ROWS]
    )
    table.update({"`the name`": "'x'"}, "place.zip = 3")
    table.delete("id = 4")
    table.alter.rename_column("`the name`", "name")
    table.alter.add_columns("more int")
    table.append([{"id": 7, "name": "y", "more": 1, "place": None}])

    assert [(row["id"], row["name"], row["more"]) for row in sorted_rows(table)] == [
        (0, "n0", None),
        (1, "n1", None),
        (2, "n2", None),
        (3, "x", None),
        (5, "n5", None),
        (7, "y", 1),
    ]
    assert table.changes(start_version=2, end_version=3).num_rows == 3
    assert not table.check()["num-errors"]


@pytest.mark.gate
def test_constraints_and_clustering_from_the_beginning(lake, engine, tmp_path):
    table = lake.create_table(
        tmp_path / "checked",
        SCHEMA,
        properties={
            "delta.constraints.Positive": "id >= 0",
            "delta.feature.vacuumProtocolCheck": "supported",
            "delta.enableTypeWidening": True,
            "delta.enableRowTracking": True,
            "delta.checkpointPolicy": "v2",
        },
        cluster_by=["place.zip", "id"],
        engine=engine,
    )
    table.append(ROWS)
    with pytest.raises(ConstraintViolation, match="positive"):
        table.append([{"id": -1, "name": "n", "place": None}])
    assert table.version() == 1
    table.delete("id = 1")
    table.checkpoint()
    detail = table.detail()
    assert detail["clusteringColumns"] == ["place.zip", "id"]
    assert {"checkConstraints", "vacuumProtocolCheck", "v2Checkpoint", "rowTracking", "typeWidening"} <= set(
        detail["tableFeatures"]
    )
    assert len(sorted_rows(table)) == 5
    assert not table.check()["num-errors"]


@pytest.mark.gate
def test_a_table_in_the_place_of_another(lake, engine, tmp_path):
    old = lake.create_table(
        tmp_path / "t",
        SCHEMA,
        properties={"team": "red", "delta.enableRowTracking": "true", "delta.constraints.c": "id < 10"},
        cluster_by=["id"],
        engine=engine,
    )
    old.append(ROWS)
    before = old.snapshot()

    new = lake.create_table(
        tmp_path / "t",
        "day date, n int NOT NULL",
        partition_by=["day"],
        properties={"delta.columnMapping.mode": "name", "delta.appendOnly": "false"},
        description="other",
        replace=True,
        engine=engine,
    )

    assert new.id == old.id
    assert new.version() == before.version + 1
    assert new.to_arrow().num_rows == 0
    after = new.snapshot()
    assert after.partition_columns == ["day"]
    assert after.metadata_id == before.metadata_id
    assert {"team", "delta.constraints.c", "delta.enableRowTracking"}.isdisjoint(after.configuration)
    assert after.configuration["delta.columnMapping.mode"] == "name"
    assert set(before.protocol["writerFeatures"]) < set(after.protocol["writerFeatures"])
    assert new.detail()["clusteringColumns"] == []
    entry = new.history(1)[0]
    assert entry["operation"] == "CREATE OR REPLACE TABLE"
    assert json.loads(entry["operationParameters"]["partitionBy"]) == ["day"]
    new.append([{"day": None, "n": 1}])
    with pytest.raises(delvec.DelvecError):
        new.append([{"day": None, "n": None}])
    assert new.to_arrow().to_pylist() == [{"day": None, "n": 1}]
    assert old.to_arrow(version=before.version).num_rows == 6
    again = lake.create_table(tmp_path / "t", "n int", replace=True, engine=engine)
    assert again.to_arrow().schema.names == ["n"]
    assert not again.check()["num-errors"]


def test_row_tracking_goes_on_counting(lake, engine, tmp_path):
    on = {"delta.enableRowTracking": "true"}
    lake.create_table(tmp_path / "t", "id long", properties=on, engine=engine).append([{"id": 1}])
    table = lake.create_table(tmp_path / "t", "id long", properties=on, engine=engine, replace=True)
    table.append([{"id": 2}])
    plan, _ = table.plan(row_ids=True)
    assert plan.files["base_row_id"].to_pylist() == [1]
    off = lake.create_table(tmp_path / "u", "id long", engine=engine)
    off.append([{"id": 1}])
    turned_on = lake.create_table(tmp_path / "u", "id long", properties=on, engine=engine, replace=True)
    turned_on.append([{"id": 5}])
    assert turned_on.to_arrow()["id"].to_pylist() == [5]
    assert not turned_on.check()["num-errors"]


def test_an_equal_definition_does_not_pass_an_append(lake, engine, tmp_path, monkeypatch):
    weak = {"delta.isolationLevel": "WriteSerializable"}
    table = lake.create_table(tmp_path / "t", "id long", properties=weak, engine=engine)
    table.append([{"id": 1}])
    from delvec_commands import transaction

    real = transaction.Transaction.commit

    def commit(self, **options):
        monkeypatch.setattr(transaction.Transaction, "commit", real)
        table.append([{"id": 2}])
        return real(self, **options)

    monkeypatch.setattr(transaction.Transaction, "commit", commit)
    new = lake.create_table(tmp_path / "t", "id long", properties=weak, engine=engine, replace=True)
    assert (new.version(), new.to_arrow().num_rows) == (3, 0)


@pytest.mark.parametrize("has_location", [False, True])
def test_a_table_that_the_service_has_forgotten_is_replaced(engine, tmp_path, monkeypatch, has_location):
    monkeypatch.setenv("DELVEC_WAREHOUSE", str(tmp_path / "house"))
    with delvec.connect(database_url=f"sqlite:///{tmp_path}/own.db") as lake:
        where, called = (tmp_path / "t", "forgotten") if has_location else ("forgotten", None)
        lake.create_table(where, "id long", name=called, engine=engine).append([{"id": 1}])
        lake.drop_table(where)
        new = lake.create_table(where, "day date", name=called, engine=engine, replace=True)
        assert (new.version(), new.to_arrow().schema.names) == (2, ["day"])
        assert lake.table("forgotten").id == new.id
        # The name of another table is refused, and nothing is replaced.
        with pytest.raises(delvec.TableAlreadyExists):
            lake.create_table(tmp_path / "else", "id long", name="forgotten", engine=engine, replace=True)


@pytest.mark.parametrize("change", ["rows", "columns"])
def test_what_others_commit_is_replaced_knowingly(lake, engine, tmp_path, monkeypatch, change):
    """The replacement conflicts with a concurrent commit, and is retried on top of it."""
    table = lake.create_table(tmp_path / "t", "id long", engine=engine)
    table.append([{"id": 1}])
    from delvec_commands import transaction

    real = transaction.Transaction.commit

    def commit(self, **options):
        monkeypatch.setattr(transaction.Transaction, "commit", real)
        if change == "rows":
            table.append([{"id": 2}])
        else:
            table.alter.add_columns("more int")
        return real(self, **options)

    monkeypatch.setattr(transaction.Transaction, "commit", commit)
    new = lake.create_table(tmp_path / "t", "name string", engine=engine, replace=True)
    assert new.version() == 3
    assert new.to_arrow().num_rows == 0
    assert not new.check()["num-errors"]


def test_without_retries_a_replacement_loses(engine, tmp_path, monkeypatch):
    with delvec.connect(retries=0, database_url=f"sqlite:///{tmp_path}/own.db") as lake:
        table = lake.create_table(tmp_path / "t", "id long", engine=engine)
        from delvec_commands import transaction

        real = transaction.Transaction.commit

        def commit(self, **options):
            monkeypatch.setattr(transaction.Transaction, "commit", real)
            table.alter.add_columns("more int")
            return real(self, **options)

        monkeypatch.setattr(transaction.Transaction, "commit", commit)
        with pytest.raises(MetadataChanged):
            lake.create_table(tmp_path / "t", "name string", engine=engine, replace=True)
        assert table.to_arrow().schema.names == ["id", "more"]


def test_what_cannot_be_replaced(lake, engine, tmp_path):
    table = lake.create_table(
        tmp_path / "t", "id long", properties={"delta.appendOnly": "true"}, engine=engine
    )
    table.append([{"id": 1}])
    with pytest.raises(AppendOnlyTable):
        lake.create_table(tmp_path / "t", "name string", engine=engine, replace=True)
    constraints = {"delta.constraints.A": "id > 0", "delta.constraints.a": "id > 1"}
    for properties in ({"delta.nope": 1}, constraints):
        with pytest.raises(InvalidTableChange):
            lake.create_table(tmp_path / "t", "id long", properties=properties, engine=engine, replace=True)
    assert (table.version(), table.count()) == (1, 1)
