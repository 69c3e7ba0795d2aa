"""What delta-spark does to tables of Delvec's catalog besides INSERT and DELETE, after the cases of Delta's own suite for it."""

import pyarrow as pa
import pytest
from tests.interop.unity_catalog import catalog_session

import delvec

pytestmark = [
    pytest.mark.full("test_catalog.py has the cases of the gate: each needs several jobs of Spark"),
    pytest.mark.slow("each statement of delta-spark takes several requests and a stage of Spark"),
]


@pytest.fixture(scope="module")
def catalog(tmp_path_factory, delta_spark):
    folder = tmp_path_factory.mktemp("catalog")
    with (
        catalog_session(folder, delta_spark) as (session, url, token),
        delvec.connect(url, token=token) as lake,
    ):
        yield session, lake, folder / "lake"


@pytest.fixture(scope="module")
def sql(catalog):
    def run(statement):
        found = catalog[0].sql(statement)
        return [row.asDict() for row in found.collect()] if found.columns else None

    return run


@pytest.fixture(scope="module")
def lake(catalog):
    return catalog[1]


@pytest.fixture
def made(sql, request):
    """Creates a table with two rows, named after the test; returns its name in Spark and in Delvec."""
    name = request.node.name.removeprefix("test_")[:60].rstrip("_").split("[")[0]
    full = f"delvec.cases.{name}"

    def create(columns="id LONG, name STRING", rest="", rows="(1, 'a'), (2, 'b')"):
        sql(f"CREATE TABLE {full} ({columns}) USING DELTA {rest}")
        if rows:
            sql(f"INSERT INTO {full} VALUES {rows}")
        return full, f"cases.{name}"

    return create


def ids(table):
    return sorted(table.to_arrow()["id"].to_pylist())


# --- REPLACE ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("by", "statement"),
    [
        ("delta_spark", "REPLACE TABLE {table} (id LONG, extra INT) {new}"),
        ("delta_spark", "CREATE OR REPLACE TABLE {table} {new} AS SELECT 7L AS id, 8 AS extra"),
        ("delvec", "REPLACE TABLE {table} {new} AS SELECT 7L AS id, 8 AS extra"),
        ("delvec", "CREATE OR REPLACE TABLE {table} (id LONG, extra INT) {new}"),
    ],
    ids=["spark-columns", "spark-query", "delvec-query", "delvec-columns"],
)
def test_replace_keeps_the_id_and_the_history(sql, lake, by, statement):
    query = "SELECT" in statement
    name = f"cases.replaced_{by}_{query}".lower()
    if by == "delvec":
        lake.create_table(name, "id long, name string", managed=True)
    else:
        sql(f"CREATE TABLE delvec.{name} (id LONG, name STRING) USING DELTA")
    sql(f"INSERT INTO delvec.{name} VALUES (1, 'a')")
    before = lake.table(name)
    new = "USING DELTA COMMENT 'new' TBLPROPERTIES ('app' = '2')"
    sql(statement.format(table=f"delvec.{name}", new=new))
    after = lake.table(name)
    assert (after.id, after.location) == (before.id, before.location)
    assert after.to_arrow().to_pylist() == ([{"id": 7, "extra": 8}] if query else [])
    assert after.to_arrow(version=1).num_rows == 1
    detail = after.detail()
    assert (detail["description"], detail["properties"]["app"]) == ("new", "2")
    assert "catalogManaged" in detail["tableFeatures"]
    sql(f"INSERT INTO delvec.{name} VALUES (9, 9)")
    assert 9 in ids(after)


def test_create_or_replace_creates_what_is_missing(sql, lake):
    sql("CREATE OR REPLACE TABLE delvec.cases.missing USING DELTA AS SELECT 1L AS id")
    assert ids(lake.table("cases.missing")) == [1]


def test_delvec_replaces_what_spark_created(made, sql, lake):
    table, ours = made()
    created = lake.table(ours)
    replaced = lake.create_table(ours, "id long, n int", replace=True)
    assert replaced.id == created.id
    sql(f"INSERT INTO {table} VALUES (6, 7)")
    assert replaced.to_arrow().to_pylist() == sql(f"SELECT * FROM {table}") == [{"id": 6, "n": 7}]


def test_a_replaced_table_is_clustered_as_the_statement_says(sql, lake):
    sql("CREATE TABLE delvec.cases.clustered (id LONG, name STRING) USING DELTA CLUSTER BY (id)")
    sql("INSERT INTO delvec.cases.clustered VALUES (1, 'a')")
    for clustering, columns in (("CLUSTER BY (id, name)", ["id", "name"]), ("", [])):
        sql(f"CREATE OR REPLACE TABLE delvec.cases.clustered (id LONG, name STRING) USING DELTA {clustering}")
        detail = lake.table("cases.clustered").detail()
        assert detail["clusteringColumns"] == columns
        assert not [name for name in detail["properties"] if "clustering" in name.lower()]


def test_a_replace_with_a_location_is_refused(made, sql, lake, tmp_path):
    table, ours = made()
    with pytest.raises(Exception, match="cannot specify 'location'"):
        sql(f"CREATE OR REPLACE TABLE {table} (id LONG) USING DELTA LOCATION '{tmp_path}'")
    assert ids(lake.table(ours)) == [1, 2]


def test_insert_overwrite_with_another_schema(made, catalog, sql, lake):
    table, ours = made()
    frame = catalog[0].sql("SELECT 4L AS id, 1.5D AS price")
    frame.write.format("delta").mode("overwrite").option("overwriteSchema", "true").saveAsTable(table)
    assert lake.table(ours).to_arrow().to_pylist() == [{"id": 4, "price": 1.5}]


# --- ALTER -----------------------------------------------------------------------------------------------------


def test_columns_are_added_commented_moved_dropped_and_renamed(made, sql, lake):
    mapped = "TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
    table, ours = made("id LONG, info STRUCT<name: STRING>, extra STRING", mapped, rows=None)
    sql(f"INSERT INTO {table} VALUES (1, named_struct('name', 'a'), 'x')")
    sql(f"ALTER TABLE {table} ADD COLUMNS (info.age INT AFTER name, more DECIMAL(10, 2))")
    sql(f"ALTER TABLE {table} ALTER COLUMN id COMMENT 'the id'")
    sql(f"ALTER TABLE {table} ALTER COLUMN more FIRST")
    sql(f"ALTER TABLE {table} DROP COLUMN extra")
    sql(f"ALTER TABLE {table} RENAME COLUMN more TO price")
    altered = lake.table(ours)
    assert altered.to_arrow().to_pylist() == [{"price": None, "id": 1, "info": {"name": "a", "age": None}}]
    assert sql(f"SELECT info.age, price FROM {table}") == [{"age": None, "price": None}]
    altered.alter.rename_column("price", "cost")
    sql(f"INSERT INTO {table} VALUES (2.5, 2, named_struct('name', 'b', 'age', 3))")
    assert sql(f"SELECT id FROM {table} WHERE cost = 2.5") == [{"id": 2}]
    assert ids(altered) == [1, 2]


def test_a_type_is_widened(made, sql, lake):
    table, ours = made("id INT", "TBLPROPERTIES ('delta.enableTypeWidening' = 'true')", "(1), (2)")
    sql(f"ALTER TABLE {table} ALTER COLUMN id TYPE BIGINT")
    sql(f"INSERT INTO {table} VALUES ({2**40})")
    assert ids(lake.table(ours)) == [1, 2, 2**40]
    assert [row["id"] for row in sql(f"SELECT id FROM {table} ORDER BY id")] == [1, 2, 2**40]


def test_properties_comment_constraint_and_clustering(made, sql, lake):
    table, ours = made()
    sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('a' = 'b', 'delta.enableChangeDataFeed' = 'true')")
    sql(f"ALTER TABLE {table} UNSET TBLPROPERTIES ('a')")
    sql(f"COMMENT ON TABLE {table} IS 'people'")
    sql(f"ALTER TABLE {table} ADD CONSTRAINT positive CHECK (id > 0)")
    sql(f"ALTER TABLE {table} CLUSTER BY (id)")
    detail = lake.table(ours).detail()
    assert detail["description"] == "people"
    assert "a" not in detail["properties"]
    assert detail["clusteringColumns"] == ["id"]
    with pytest.raises(delvec.ConstraintViolation):
        lake.table(ours).append(pa.table({"id": pa.array([-1], pa.int64()), "name": ["x"]}))
    with pytest.raises(Exception, match="CHECK constraint positive"):
        sql(f"INSERT INTO {table} VALUES (-1, 'x')")
    sql(f"ALTER TABLE {table} DROP CONSTRAINT positive")
    sql(f"INSERT INTO {table} VALUES (-1, 'x')")
    assert ids(lake.table(ours)) == [-1, 1, 2]


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE {table} DROP FEATURE 'catalogManaged'",
        "ALTER TABLE {table} SET TBLPROPERTIES ('delta.enableInCommitTimestamps' = 'false')",
        "OPTIMIZE {table}",
        "VACUUM {table}",
        "ALTER TABLE {table} SET LOCATION '/tmp/elsewhere'",
    ],
)
def test_delta_spark_refuses(sql, lake, statement):
    sql("CREATE TABLE IF NOT EXISTS delvec.cases.refusing (id LONG) USING DELTA")
    version = lake.table("cases.refusing").version()
    with pytest.raises(Exception, match=r"(?i)unsupported|not supported|cannot|DELTA_"):
        sql(statement.format(table="delvec.cases.refusing"))
    assert lake.table("cases.refusing").version() == version
