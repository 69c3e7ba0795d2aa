"""Tables created with rows: one version, on each engine, and nothing where the rows cannot be written."""

import json

import pyarrow as pa
import pytest

from delvec_errors import ConstraintViolation, NotADeltaTable, SchemaMismatch, TableAlreadyExists

pytestmark = pytest.mark.full_on_spark("the same on DuckDB in the gate; there on Spark is the main case")

EVERYTHING = {
    "delta.columnMapping.mode": "name",
    "delta.enableRowTracking": "true",
    "delta.enableInCommitTimestamps": "true",
    "delta.enableChangeDataFeed": "true",
    "delta.constraints.positive": "id >= 0",
}


def sorted_rows(table):
    return sorted(table.to_arrow().to_pylist(), key=lambda row: row["id"])


@pytest.mark.gate
def test_rows_are_in_the_first_version(lake, engine, tmp_path):
    rows = pa.table({"id": [1, 2, 3], "country": ["NZ", None, "NZ"]})
    table = lake.create_table(
        tmp_path / "people",
        rows=rows,
        partition_by=["country"],
        properties=EVERYTHING,
        description="who",
        user_metadata="first",
        engine=engine,
    )
    (only,) = table.history()
    assert (only["version"], only["operation"], only["userMetadata"]) == (
        0,
        "CREATE TABLE AS SELECT",
        "first",
    )
    assert only["isBlindAppend"]
    assert only["operationMetrics"]["numOutputRows"] == "3"
    assert json.loads(only["operationParameters"]["partitionBy"]) == ["country"]
    assert table.detail()["description"] == "who"
    assert table.changes(start_version=0).num_rows == 3
    # What follows finds files, row ids and names of columns as any other version does.
    table.delete("id = 1")
    table.update({"country": "'AU'"}, "id = 3")
    table.append([{"id": 4, "country": "NZ"}])
    assert [(row["id"], row["country"]) for row in sorted_rows(table)] == [(2, None), (3, "AU"), (4, "NZ")]
    assert not table.check()["num-errors"]


def test_computed_columns(lake, engine, tmp_path):
    schema = "id long GENERATED ALWAYS AS IDENTITY, v string, up string GENERATED ALWAYS AS (upper(v)), d int DEFAULT 7"
    properties = {"delta.feature.allowColumnDefaults": "supported"}
    table = lake.create_table(
        tmp_path / "computed", schema, properties=properties, rows=[{"v": "a"}, {"v": "b"}], engine=engine
    )
    table.append([{"v": "c"}])
    rows = sorted_rows(table)
    assert [(row["v"], row["up"], row["d"]) for row in rows] == [("a", "A", 7), ("b", "B", 7), ("c", "C", 7)]
    assert len({row["id"] for row in rows}) == 3
    assert table.version() == 1
    with pytest.raises(SchemaMismatch, match="GENERATED ALWAYS"):
        lake.create_table(tmp_path / "given", schema, rows=[{"id": 1, "v": "a"}], engine=engine)


def test_clustering_and_no_rows(lake, engine, tmp_path):
    table = lake.create_table(
        tmp_path / "clustered", rows=pa.table({"id": [1]}), cluster_by="id", engine=engine
    )
    assert table.detail()["clusteringColumns"] == ["id"]
    empty = lake.create_table(tmp_path / "empty", rows=pa.table({"id": pa.array([], "int64")}), engine=engine)
    assert (empty.version(), empty.to_arrow().num_rows, empty.history()[0]["operation"]) == (
        0,
        0,
        "CREATE TABLE AS SELECT",
    )


def test_rows_that_cannot_be_written_create_nothing(lake, engine, tmp_path):
    place = tmp_path / "people"
    with pytest.raises(ConstraintViolation):
        lake.create_table(
            place,
            "id long",
            properties={"delta.constraints.positive": "id > 0"},
            rows=[{"id": -1}],
            engine=engine,
        )
    with pytest.raises(SchemaMismatch):
        lake.create_table(place, "id long", rows=[{"id": 1, "more": 2}], engine=engine)
    assert not (place / "_delta_log").exists()
    with pytest.raises(NotADeltaTable):
        lake.table(place)
    assert lake.create_table(place, "id long", rows=[{"id": 1}], engine=engine).version() == 0


def test_existing_tables(lake, engine, tmp_path):
    place = tmp_path / "people"
    lake.create_table(place, rows=[{"id": 1}], engine=engine)
    with pytest.raises(TableAlreadyExists):
        lake.create_table(place, rows=[{"id": 2}], engine=engine)
    same = lake.create_table(place, rows=[{"id": 2}], if_not_exists=True, engine=engine)
    assert (same.version(), sorted_rows(same)) == (0, [{"id": 1}])
    replaced = lake.create_table(place, rows=[{"id": 3, "x": "y"}], replace=True, engine=engine)
    assert (replaced.version(), sorted_rows(replaced)) == (1, [{"id": 3, "x": "y"}])
    assert replaced.history(1)[0]["operation"] == "CREATE OR REPLACE TABLE AS SELECT"


@pytest.mark.gate
def test_sql(lake, engine, tmp_path):
    spark = None if engine is None or isinstance(engine, str) else engine
    source = f"delta.`{tmp_path}/people`"
    lake.create_table(tmp_path / "people", rows=[{"id": 1}, {"id": 2}])
    made = lake.sql(f"CREATE TABLE delta.`{tmp_path}/twice` AS SELECT id * 2 AS id FROM {source}", spark)
    assert (made.version, made["numOutputRows"]) == (0, 2)
    replaced = lake.sql(f"CREATE OR REPLACE TABLE delta.`{tmp_path}/new` AS SELECT id FROM {source}", spark)
    table = lake.table(tmp_path / "new")
    assert (replaced.version, sorted_rows(table)) == (0, [{"id": 1}, {"id": 2}])
    assert table.history(1)[0]["operation"] == "CREATE OR REPLACE TABLE AS SELECT"
    with pytest.raises(Exception, match=r"(?i)cast|number"):
        lake.sql(
            f"CREATE OR REPLACE TABLE delta.`{tmp_path}/new` AS SELECT CAST('x' AS INT) AS y FROM {source}",
            spark,
        )
    assert (table.version(), sorted_rows(table)) == (0, [{"id": 1}, {"id": 2}])
