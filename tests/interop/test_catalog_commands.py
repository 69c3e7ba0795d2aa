"""What delta-spark does to tables of Delvec's catalog besides INSERT and DELETE, after the cases of Delta's own suite for it."""

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from tests.interop.unity_catalog import catalog_session

import delvec
from delvec_kernel import locations

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


def test_the_path_of_a_managed_table_is_refused(made, sql, lake):
    _, ours = made()
    path = locations.local_path(lake.table(ours).location)
    with pytest.raises(Exception, match="DELTA_PATH_BASED_ACCESS_TO_CATALOG_MANAGED_TABLE_BLOCKED"):
        sql(f"SELECT * FROM delta.`{path}`")


# --- rows ------------------------------------------------------------------------------------------------------


def test_a_partitioned_table_is_created_as_select_merged_into_and_updated(sql, lake):
    table = "delvec.cases.partitioned"
    properties = "PARTITIONED BY (day) COMMENT 'days' TBLPROPERTIES ('app' = '2')"
    sql(f"CREATE TABLE {table} USING DELTA {properties} AS SELECT id, 'mon' AS day FROM range(3)")
    ours = lake.table("cases.partitioned")
    detail = ours.detail()
    assert (detail["partitionColumns"], detail["description"], detail["properties"]["app"]) == (
        ["day"],
        "days",
        "2",
    )
    sql(
        f"MERGE INTO {table} t USING (SELECT 2L AS id, 'wed' AS day UNION ALL SELECT 3L, 'wed') s ON t.id = s.id "
        "WHEN MATCHED AND t.id = 2 THEN UPDATE SET day = 'tue' WHEN NOT MATCHED THEN INSERT * "
        "WHEN NOT MATCHED BY SOURCE AND t.id = 0 THEN DELETE"
    )
    sql(f"UPDATE {table} SET day = 'thu' WHERE id = 1")
    ours.delete("id = 3")
    rows = [{"id": 1, "day": "thu"}, {"id": 2, "day": "tue"}]
    assert sql(f"SELECT * FROM {table} ORDER BY id") == rows
    assert sorted(ours.to_arrow().to_pylist(), key=lambda row: row["id"]) == rows


def test_partitions_are_overwritten_and_a_table_is_truncated(made, sql, catalog, lake):
    table, ours = made("id LONG, day STRING", "PARTITIONED BY (day)", "(1, 'mon'), (2, 'tue')")
    catalog[0].conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    try:
        sql(f"INSERT OVERWRITE {table} VALUES (9, 'tue')")
    finally:
        catalog[0].conf.unset("spark.sql.sources.partitionOverwriteMode")
    assert ids(lake.table(ours)) == [1, 9]
    sql(f"TRUNCATE TABLE {table}")
    assert ids(lake.table(ours)) == []
    assert lake.table(ours).to_arrow(version=1).num_rows == 2


def test_time_travel_history_and_restore(made, sql, lake):
    table, ours = made()
    sql(f"DELETE FROM {table} WHERE id = 1")
    history = sql(f"DESCRIBE HISTORY {table}")
    assert [row["operation"] for row in history] == ["DELETE", "WRITE", "CREATE TABLE"]
    stamps = [row["timestamp"] for row in lake.table(ours).history()]
    assert [round(row["timestamp"].timestamp() * 1000) for row in history] == stamps
    moment = datetime.fromtimestamp(stamps[1] / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
    assert sql(f"SELECT count(*) AS n FROM {table} TIMESTAMP AS OF '{moment}'") == [{"n": 2}]
    assert lake.table(ours).to_arrow(timestamp=moment).num_rows == 2
    sql(f"RESTORE TABLE {table} TO VERSION AS OF 1")
    assert ids(lake.table(ours)) == [1, 2]
    lake.table(ours).restore(0)
    assert sql(f"SELECT * FROM {table}") == []


def test_the_change_feed_of_both(made, sql, lake):
    table, ours = made(rest="TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')")
    sql(f"UPDATE {table} SET name = 'z' WHERE id = 1")
    lake.table(ours).delete("id = 2")
    theirs = sql(f"SELECT id, _change_type AS kind FROM table_changes('{table}', 2) ORDER BY id, kind")
    expected = [(1, "update_postimage"), (1, "update_preimage"), (2, "delete")]
    assert [(row["id"], row["kind"]) for row in theirs] == expected
    changes = lake.table(ours).changes(2)
    rows = zip(changes["id"].to_pylist(), changes["_change_type"].to_pylist(), strict=True)
    assert sorted(rows) == expected


# --- streams ---------------------------------------------------------------------------------------------------


def test_streams_in_and_out(made, catalog, sql, lake, tmp_path):
    source, ours = made()
    sql("CREATE TABLE delvec.cases.sink (id LONG, name STRING) USING DELTA")
    sink = lake.table("cases.sink")

    def run():
        stream = catalog[0].readStream.table(source).writeStream.format("delta").trigger(availableNow=True)
        stream.option("checkpointLocation", str(tmp_path / "checkpoint")).toTable(
            "delvec.cases.sink"
        ).awaitTermination()

    run()
    assert ids(sink) == [1, 2]
    lake.table(ours).append(pa.table({"id": pa.array([3], pa.int64()), "name": ["c"]}))
    run()
    sink.delete("id = 1")  # between two batches
    sql(f"INSERT INTO {source} VALUES (4, 'd')")
    run()
    run()
    assert ids(sink) == [2, 3, 4]
    lake.table(ours).delete("id = 4")
    with pytest.raises(Exception, match=r"DELTA_SOURCE_(TABLE_IGNORE_CHANGES|IGNORE_DELETE)"):
        run()
    assert ids(sink) == [2, 3, 4]


# --- tables that were not always managed -----------------------------------------------------------------------


def test_an_external_table_is_created_read_and_dropped(sql, catalog, lake):
    folder = catalog[2] / "elsewhere"
    sql(f"CREATE TABLE delvec.cases.outside (id LONG) USING DELTA LOCATION '{folder}'")
    sql("INSERT INTO delvec.cases.outside VALUES (1), (2)")
    table = lake.table("cases.outside")
    assert ids(table) == [1, 2]
    assert "catalogManaged" not in table.detail()["tableFeatures"]
    table.delete("id = 1")
    assert sql("SELECT id FROM delvec.cases.outside") == [{"id": 2}]
    sql("DROP TABLE delvec.cases.outside")
    assert Path(folder, "_delta_log").exists()
    assert "cases.outside" not in [dropped.name for dropped in lake.dropped_tables()]


def test_a_dropped_table_comes_back_to_spark(made, sql, lake):
    table, ours = made()
    sql(f"DROP TABLE {table}")
    lake.undrop_table(ours)
    assert sql(f"SELECT count(*) AS n FROM {table}") == [{"n": 2}]


def test_a_path_table_is_given_to_the_catalog_and_taken_back(sql, lake, catalog):
    location = str(catalog[2] / "given")
    plain = lake.create_table(location, "id long", name="cases.given")
    plain.append(pa.table({"id": pa.array([1], pa.int64())}))
    lake.register(location, "cases.given", managed=True)
    sql("INSERT INTO delvec.cases.given VALUES (2)")
    sql("DELETE FROM delvec.cases.given WHERE id = 1")
    assert ids(plain) == [2]
    plain.alter.drop_feature("catalogManaged")
    sql("INSERT INTO delvec.cases.given VALUES (3)")
    assert ids(plain) == [2, 3]
