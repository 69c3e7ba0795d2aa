"""Managed tables by unmodified delta-spark, whose catalog is Delvec, and by Delvec at the same time."""

from pathlib import Path

import pyarrow as pa
import pytest
from tests.interop.unity_catalog import catalog_session

import delvec
from delvec_kernel import locations

REST = pytest.mark.full("the first test shows creation, commits of both sides, and time travel")
PEOPLE = "delvec.sales.people"


@pytest.fixture(scope="module")
def catalog(tmp_path_factory, delta_spark):
    folder = tmp_path_factory.mktemp("catalog")
    with (
        catalog_session(folder, delta_spark) as (session, url, token),
        delvec.connect(url, token=token) as lake,
    ):
        yield session, lake


@pytest.fixture(scope="module")
def sql(catalog):
    def run(statement):
        found = catalog[0].sql(statement)
        return [row.asDict() for row in found.collect()] if found.columns else None

    return run


def log_of(table):
    return sorted((Path(locations.local_path(table.location)) / "_delta_log").glob("*.json"))


@pytest.mark.slow("each statement of delta-spark takes several requests and a stage of Spark")
def test_spark_creates_changes_and_reads_and_python_does_on_the_same_table(catalog, sql):
    sql(f"CREATE TABLE {PEOPLE} (id LONG, name STRING) USING DELTA")
    sql(f"INSERT INTO {PEOPLE} VALUES (1, 'a'), (2, 'b'), (3, 'c'), (4, 'd')")
    assert sql(f"DELETE FROM {PEOPLE} WHERE id = 2") == [{"num_affected_rows": 1}]
    table = catalog[1].table("sales.people")
    assert sorted(table.to_arrow()["id"].to_pylist()) == [1, 3, 4]

    table.delete("id = 3")  # of the same file, beside the vector of Spark
    assert sql(f"SELECT id FROM {PEOPLE} ORDER BY id") == [{"id": 1}, {"id": 4}]
    sql(f"UPDATE {PEOPLE} SET name = 'z' WHERE id = 4")
    table.append(pa.table({"id": pa.array([5], pa.int64()), "name": ["e"]}))
    assert sql(f"SELECT * FROM {PEOPLE} ORDER BY id") == [
        {"id": 1, "name": "a"},
        {"id": 4, "name": "z"},
        {"id": 5, "name": "e"},
    ]
    assert sql(f"SELECT count(*) AS n FROM {PEOPLE} VERSION AS OF 1") == [{"n": 4}]
    assert [path.stem for path in log_of(table)] == [f"{version:020}" for version in range(6)]


@REST
def test_spark_alters_a_table_and_python_follows(catalog, sql):
    sql("CREATE TABLE delvec.sales.altered (id LONG, day STRING) USING DELTA PARTITIONED BY (day)")
    sql("ALTER TABLE delvec.sales.altered ADD COLUMN age INT")
    sql("ALTER TABLE delvec.sales.altered SET TBLPROPERTIES ('owner.team' = 'x')")
    sql("INSERT INTO delvec.sales.altered VALUES (1, 'mon', 10)")
    table = catalog[1].table("sales.altered")
    assert table.to_arrow().to_pylist() == [{"id": 1, "day": "mon", "age": 10}]
    assert table.detail()["properties"]["owner.team"] == "x"


@REST
def test_spark_creates_a_table_as_select_and_drops_it(catalog, sql):
    sql("CREATE TABLE delvec.sales.made USING DELTA AS SELECT id, id * 2 AS twice FROM range(5)")
    table = catalog[1].table("sales.made")
    assert table.to_arrow().num_rows == 5
    sql("DROP TABLE delvec.sales.made")
    with pytest.raises(delvec.TableNotFound):
        catalog[1].table("sales.made").to_arrow()


@REST
def test_spark_reads_a_path_table_through_the_catalog(catalog, sql):
    made = catalog[1].create_table("sales.plain", "id long")
    made.append(pa.table({"id": pa.array([1, 2], pa.int64())}))
    assert sql("SELECT * FROM delvec.sales.plain ORDER BY id") == [{"id": 1}, {"id": 2}]
