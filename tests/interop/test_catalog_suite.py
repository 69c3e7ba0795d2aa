"""The cases of Delta's own suite for catalogs (``io.sparkuctest``) that test_catalog_commands.py does not have.

Each test names the class of that suite. What it has for features of the real ``UCSingleCatalog`` alone, such as tables that are not
Delta's, has no counterpart here: docs/catalog.md.
"""

import datetime as dt
from decimal import Decimal

import pytest
from tests.interop.unity_catalog import catalog_session

import delvec
from delvec_kernel import locations

pytestmark = [
    pytest.mark.full("test_catalog.py has the cases of the gate: each needs several jobs of Spark"),
    pytest.mark.slow("each statement of delta-spark takes several requests and a stage of Spark"),
]
MANAGED = "TBLPROPERTIES ('delta.feature.catalogManaged' = 'supported')"


@pytest.fixture(scope="module")
def catalog(tmp_path_factory, delta_spark):
    folder = tmp_path_factory.mktemp("suite")
    with (
        catalog_session(folder, delta_spark) as (session, url, token),
        delvec.connect(url, token=token) as lake,
    ):
        yield session, lake


@pytest.fixture(scope="module")
def spark(catalog):
    return catalog[0]


@pytest.fixture(scope="module")
def lake(catalog):
    return catalog[1]


@pytest.fixture(scope="module")
def sql(spark):
    def run(statement):
        found = spark.sql(statement)
        return [tuple(row) for row in found.collect()] if found.columns else None

    return run


@pytest.fixture
def made(sql, request):
    """Creates a table with two rows, named after the test; returns its name in Spark and in Delvec."""
    name = request.node.name.removeprefix("test_")[:60].rstrip("_").split("[")[0]

    def create(columns="id LONG, name STRING", rest="", rows="(1, 'a'), (2, 'b')", suffix=""):
        full = f"delvec.suite.{name}{suffix}"
        sql(f"CREATE TABLE {full} ({columns}) USING DELTA {rest}")
        if rows:
            sql(f"INSERT INTO {full} VALUES {rows}")
        return full, full.removeprefix("delvec.")

    return create


def ids(table):
    return sorted(table.to_arrow()["id"].to_pylist())


def rows_of(sql, table, columns="*"):
    return sorted(sql(f"SELECT {columns} FROM {table}"), key=repr)


def refuses(sql, lake, table, statement, match):
    """A statement fails with a message, and changes nothing."""
    version = lake.table(table.removeprefix("delvec.")).version()
    with pytest.raises(Exception, match=match):
        sql(statement.format(table=table))
    assert lake.table(table.removeprefix("delvec.")).version() == version


# --- UCDeltaTableCreationTest ----------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["", "PARTITIONED BY (i)", "CLUSTER BY (s)"])
@pytest.mark.parametrize("verb", ["CREATE", "REPLACE", "CREATE OR REPLACE"])
def test_create_and_replace_with_each_layout(sql, lake, verb, layout):
    name = f"suite.layout_{len(verb)}_{layout[:7].strip().lower()}"
    before = None
    if verb != "CREATE":
        sql(f"CREATE TABLE delvec.{name} (col1 STRING, col2 STRING) USING DELTA PARTITIONED BY (col1)")
        sql(f"INSERT INTO delvec.{name} VALUES ('seed', 'seed')")
        before = lake.table(name)
    said = f"USING DELTA {layout} TBLPROPERTIES ('Foo' = 'Bar') COMMENT 'This is comment.'"
    sql(f"{verb} TABLE delvec.{name} {said} AS SELECT 1 AS i, 'a' AS s")
    sql(f"INSERT INTO delvec.{name} SELECT 2, 'b'")
    after = lake.table(name)
    assert rows_of(sql, f"delvec.{name}", "i, s") == [(1, "a"), (2, "b")]
    assert sorted(after.to_arrow(columns=["i"])["i"].to_pylist()) == [1, 2]
    detail = after.detail()
    assert (detail["description"], detail["properties"]["Foo"]) == ("This is comment.", "Bar")
    assert detail["partitionColumns"] == (["i"] if "PARTITION" in layout else [])
    assert detail["clusteringColumns"] == (["s"] if "CLUSTER" in layout else [])
    if before is not None:
        assert (after.id, after.version()) == (before.id, 3)


@pytest.mark.parametrize(
    ("properties", "match"),
    [
        ("'delta.feature.catalogManaged' = 'disabled'", "(?i)disabled|unsupported"),
        ("'delta.enableDeletionVectors' = 'false'", "delta.enableDeletionVectors"),
    ],
)
def test_properties_that_contradict_the_catalog_create_nothing(sql, lake, properties, match):
    with pytest.raises(Exception, match=match):
        sql(f"CREATE TABLE delvec.suite.wrong (name STRING) USING DELTA TBLPROPERTIES ({properties})")
    assert not [each for each in lake.tables() if each.name == "suite.wrong"]


def test_all_types(sql, made, lake):
    table, ours = made(
        "a TINYINT, b SMALLINT, c INT, d BIGINT, e FLOAT, f DOUBLE, g DECIMAL(10, 2), h STRING, i BINARY, j BOOLEAN, "
        "k DATE, l TIMESTAMP, n TIMESTAMP_NTZ, o ARRAY<INT>, p MAP<STRING, ARRAY<LONG>>, q STRUCT<x: INT, y: STRUCT<z: STRING>>, "
        "r CHAR(3), s VARCHAR(5)",
        rows="(1, 2, 3, 4, 1.5, 2.5, 3.25, 'x', X'00ff', true, DATE'2026-01-02', TIMESTAMP'2026-01-02 03:04:05.678', "
        "TIMESTAMP_NTZ'2026-01-02 03:04:05.678', array(1, null), map('k', array(1L)), "
        "named_struct('x', 1, 'y', named_struct('z', 'deep')), 'abc', 'vc')",
    )
    (row,) = lake.table(ours).to_arrow().to_pylist()
    utc = dt.UTC
    assert row | {"n": None} == {
        "a": 1,
        "b": 2,
        "c": 3,
        "d": 4,
        "e": 1.5,
        "f": 2.5,
        "g": Decimal("3.25"),
        "h": "x",
        "i": b"\x00\xff",
        "j": True,
        "k": dt.date(2026, 1, 2),
        "l": dt.datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=utc),
        "n": None,
        "o": [1, None],
        "p": [("k", [1])],
        "q": {"x": 1, "y": {"z": "deep"}},
        "r": "abc",
        "s": "vc",
    }
    lake.table(ours).update({"q": "named_struct('x', 2, 'y', named_struct('z', 'new'))"}, "a = 1")
    assert sql(f"SELECT q.y.z, o[0], p['k'][0] FROM {table}") == [("new", 1, 1)]


def test_not_null(sql, made, lake):
    table, ours = made("id LONG NOT NULL, name STRING")
    refuses(sql, lake, table, "INSERT INTO {table} VALUES (NULL, 'x')", "(?i)not.null")
    with pytest.raises(delvec.ConstraintViolation):
        lake.table(ours).append([{"id": None, "name": "x"}])


# --- UCDeltaTableVariantTest -----------------------------------------------------------------------------------


def test_a_variant(sql, made, lake):
    table, ours = made("id LONG, v VARIANT", rows=None)
    sql(f"INSERT INTO {table} SELECT 1, parse_json('{{\"a\": [1, 2]}}')")
    assert sql(f"SELECT variant_get(v, '$.a[1]', 'int') FROM {table}") == [(2,)]
    lake.table(ours).delete("id = 2")
    assert ids(lake.table(ours)) == [1]


# --- UCDeltaTableDDLTest ---------------------------------------------------------------------------------------


def test_truncate_keeps_the_properties_and_is_refused_by_path(sql, made, lake):
    table, ours = made(rest="TBLPROPERTIES ('app' = '2')")
    path = locations.local_path(lake.table(ours).location)
    refuses(sql, lake, table, f"TRUNCATE TABLE delta.`{path}`", "DELTA_")
    before = lake.table(ours).detail()
    sql(f"TRUNCATE TABLE {table}")
    after = lake.table(ours).detail()
    assert (after["properties"], after["tableFeatures"]) == (before["properties"], before["tableFeatures"])
    sql(f"INSERT INTO {table} VALUES (3, 'c')")
    assert ids(lake.table(ours)) == [3]


def test_identity_columns(sql, made, lake):
    table, ours = made(
        "id BIGINT GENERATED ALWAYS AS IDENTITY (START WITH 100 INCREMENT BY 5), "
        "other BIGINT GENERATED BY DEFAULT AS IDENTITY (START WITH -1 INCREMENT BY 1), val STRING",
        rows=None,
    )
    sql(f"INSERT INTO {table} (val) VALUES ('a'), ('b'), ('c')")
    numbers = [number for (number,) in sql(f"SELECT id FROM {table} ORDER BY id")]
    assert numbers == [100, 105, 110]
    refuses(sql, lake, table, "INSERT INTO {table} VALUES (999, 1, 'x')", "(?i)identity")
    lake.table(ours).append([{"val": "d"}])
    sql(f"INSERT INTO {table} (other, val) VALUES (1000, 'e')")
    assert sql(f"SELECT other FROM {table} WHERE val = 'e'") == [(1000,)]
    assert len(set(ids(lake.table(ours)))) == 5
    for columns, rest in (
        ("id INT GENERATED ALWAYS AS IDENTITY", ""),
        ("id BIGINT GENERATED ALWAYS AS IDENTITY (START WITH 1 INCREMENT BY 0)", ""),
        ("id BIGINT GENERATED ALWAYS AS IDENTITY, value INT", "PARTITIONED BY (id)"),
    ):
        with pytest.raises(Exception, match=r"(?i)identity"):
            made(columns, rest, None, "_wrong")
    again = "id BIGINT GENERATED ALWAYS AS IDENTITY (START WITH 50000 INCREMENT BY 1), val STRING"
    sql(f"CREATE OR REPLACE TABLE {table} ({again}) USING DELTA")
    sql(f"INSERT INTO {table} (val) VALUES ('after')")
    assert ids(lake.table(ours)) == [50000]


# --- UCDeltaGeneratedColumnTest --------------------------------------------------------------------------------


def test_generated_columns(sql, made, lake):
    table, ours = made(
        "id INT, ts TIMESTAMP, day DATE GENERATED ALWAYS AS (CAST(ts AS DATE)), base INT, "
        "times_ten INT GENERATED ALWAYS AS (base * 10)",
        "PARTITIONED BY (day)",
        None,
    )
    sql(f"INSERT INTO {table} (id, ts, base) VALUES (1, TIMESTAMP'2026-07-10 09:30:00', 2), (2, NULL, NULL)")
    sql(f"UPDATE {table} SET base = 3 WHERE id = 1")
    lake.table(ours).append([{"id": 3, "ts": dt.datetime(2026, 7, 11, tzinfo=dt.UTC), "base": 4}])
    lake.table(ours).update({"base": "base + 1"}, "id = 3")
    assert rows_of(sql, table, "id, CAST(day AS STRING), times_ten") == [
        (1, "2026-07-10", 30),
        (2, None, None),
        (3, "2026-07-11", 50),
    ]
    refuses(sql, lake, table, "UPDATE {table} SET times_ten = 99 WHERE id = 1", "(?i)generated column")
    refuses(sql, lake, table, "INSERT INTO {table} VALUES (5, NULL, NULL, 1, 11)", "(?i)generated")
    sql(
        f"MERGE INTO {table} t USING (SELECT 4 AS id, 5 AS base) s ON t.id = s.id "
        "WHEN NOT MATCHED THEN INSERT (id, base) VALUES (s.id, s.base)"
    )
    assert (4, 50) in sql(f"SELECT id, times_ten FROM {table}")
    for wrong in ("rand()", "missing + 1", "(SELECT 1)"):
        with pytest.raises(Exception, match=r"(?i)generat|DELTA_|UNRESOLVED|PARSE"):
            made(f"a INT, b INT GENERATED ALWAYS AS ({wrong})", "", None, "_wrong")


# --- UCDeltaManagedReplaceSemanticsTest ------------------------------------------------------------------------


def test_replace_keeps_features_and_takes_new_properties_and_defaults(sql, made, lake):
    table, ours = made("i INT, s STRING", "TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true', 'a' = '1')")
    sql(f"REPLACE TABLE {table} (i INT, s STRING) USING DELTA")
    assert "catalogManaged" in lake.table(ours).detail()["tableFeatures"]
    defaults = "TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported', 'b' = '2')"
    sql(f"REPLACE TABLE {table} (i INT, s STRING DEFAULT 'new-default') USING DELTA {defaults}")
    sql(f"INSERT INTO {table} (i) VALUES (2)")
    lake.table(ours).append([{"i": 3}])
    assert rows_of(sql, table) == [(2, "new-default"), (3, "new-default")]
    properties = lake.table(ours).detail()["properties"]
    assert properties["b"] == "2"
    assert "a" not in properties
    unknown = "REPLACE TABLE {table} (i INT) USING DELTA TBLPROPERTIES ('delta.random' = 'x')"
    refuses(sql, lake, table, unknown, "DELTA_UNKNOWN_CONFIGURATION")


def test_replacements_that_are_refused(sql, made, lake, tmp_path):
    table, _ = made("col1 STRING, col2 STRING", "CLUSTER BY (col1)", "('a', 'b')")
    partitioned = "REPLACE TABLE {table} (i INT, s STRING) USING DELTA PARTITIONED BY (i)"
    refuses(sql, lake, table, partitioned, "DELTA_CLUSTERING_REPLACE_TABLE_WITH_PARTITIONED_TABLE")
    with pytest.raises(Exception, match="TABLE_OR_VIEW_NOT_FOUND"):
        sql(f"REPLACE TABLE delta.`{tmp_path / 'none'}` (i INT) USING DELTA {MANAGED}")
    assert rows_of(sql, table) == [("a", "b")]


# --- UCDeltaTableAlterTest, UCDeltaTableMetadataUpdateTest -----------------------------------------------------


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE {table} ADD PARTITION (name = 'a')",
        "ALTER TABLE {table} DROP PARTITION (name = 'a')",
        "ALTER TABLE {table} RECOVER PARTITIONS",
        "ALTER TABLE {table} SET SERDEPROPERTIES ('serde.key' = 'serde.value')",
        "ALTER TABLE {table} RENAME TO delvec.suite.renamed",
        "ALTER TABLE {table} SET OWNER TO test_owner",
        "ALTER TABLE {table} SET TAGS ('purpose' = 'coverage')",
        "ALTER TABLE {table} SET TBLPROPERTIES ('io.unitycatalog.tableId' = 'other')",
        "REORG TABLE {table} APPLY (PURGE)",
    ],
)
def test_what_delta_spark_refuses(sql, lake, statement):
    sql(
        "CREATE TABLE IF NOT EXISTS delvec.suite.refusing (id LONG, name STRING) USING DELTA PARTITIONED BY (name)"
    )
    refuses(
        sql,
        lake,
        "delvec.suite.refusing",
        statement,
        r"(?is)support|syntax|DELTA_|owner|_TAGS|renam|managed by a catalog",
    )


def test_a_path_table_is_not_made_managed_by_a_property(sql, lake):
    lake.create_table("suite.plain", "id long")
    upgrade = "ALTER TABLE {table} SET TBLPROPERTIES ('delta.feature.catalogManaged' = 'supported')"
    refuses(sql, lake, "delvec.suite.plain", upgrade, "(?i)upgrad|not.*supported|UNSUPPORTED")


def test_writes_that_add_columns(sql, made, lake, spark):
    table, ours = made()
    source, _ = made("id LONG, name STRING, extra STRING", "", "(2, 'new', 'x'), (3, 'c', 'y')", "_source")
    spark.conf.set("spark.databricks.delta.schema.autoMerge.enabled", "true")
    try:
        sql(f"MERGE INTO {table} t USING {source} s ON t.id = s.id WHEN NOT MATCHED THEN INSERT *")
    finally:
        spark.conf.unset("spark.databricks.delta.schema.autoMerge.enabled")
    frame = spark.sql("SELECT 4L AS id, 'd' AS name, 'z' AS extra, 5 AS more")
    frame.write.format("delta").mode("append").option("mergeSchema", "true").saveAsTable(table)
    rows = sorted(lake.table(ours).to_arrow().to_pylist(), key=lambda row: row["id"])
    assert rows[0] == {"id": 1, "name": "a", "extra": None, "more": None}
    assert rows[2:] == [
        {"id": 3, "name": "c", "extra": "y", "more": None},
        {"id": 4, "name": "d", "extra": "z", "more": 5},
    ]


def test_clustering_is_changed_removed_and_restored(sql, made, lake):
    table, ours = made(rest="CLUSTER BY (id)")
    clustering = lambda: lake.table(ours).detail()["clusteringColumns"]  # noqa: E731
    sql(f"ALTER TABLE {table} CLUSTER BY (name)")
    sql(f"INSERT INTO {table} VALUES (3, 'c')")
    assert clustering() == ["name"]
    sql(f"ALTER TABLE {table} CLUSTER BY NONE")
    assert clustering() == []
    sql(f"RESTORE TABLE {table} TO VERSION AS OF 1")
    assert clustering() == ["id"]
    assert ids(lake.table(ours)) == [1, 2]


# --- UCDeltaTableDMLTest, UCDeltaTableDataFrameWriteTest -------------------------------------------------------


def test_inserts_that_replace(sql, made, lake, spark):
    table, ours = made("id LONG, status STRING", "", "(1, 'pending'), (2, 'pending'), (3, 'done')")
    sql(f"INSERT INTO {table} REPLACE WHERE id <= 2 VALUES (1, 'replaced'), (2, 'replaced')")
    assert rows_of(sql, table) == [(1, "replaced"), (2, "replaced"), (3, "done")]
    spark.range(9, 10).selectExpr("id", "'nine' AS status").write.mode("overwrite").option(
        "replaceWhere", "id > 1"
    ).insertInto(table)
    assert ids(lake.table(ours)) == [1, 9]
    sql(f"INSERT INTO {table} (status, id) SELECT status, id + 10 FROM {table}")
    assert ids(lake.table(ours)) == [1, 9, 11, 19]


def test_frames_are_written_in_each_way(sql, made, lake, spark):
    table, ours = made("id LONG, day STRING", "PARTITIONED BY (day)", "(1, 'mon'), (2, 'tue')")

    def frame(first, day):
        return spark.range(first, first + 1).selectExpr("id", f"'{day}' AS day")

    frame(3, "wed").write.format("delta").mode("append").saveAsTable(table)
    frame(4, "wed").write.insertInto(table)
    frame(5, "thu").writeTo(table).append()
    assert ids(lake.table(ours)) == [1, 2, 3, 4, 5]
    frame(6, "wed").writeTo(table).overwritePartitions()
    assert ids(lake.table(ours)) == [1, 2, 5, 6]
    frame(7, "mon").write.format("delta").mode("overwrite").option(
        "partitionOverwriteMode", "dynamic"
    ).saveAsTable(table)
    assert ids(lake.table(ours)) == [2, 5, 6, 7]
    frame(8, "tue").write.format("delta").mode("overwrite").option("replaceWhere", "day = 'tue'").saveAsTable(
        table
    )
    assert ids(lake.table(ours)) == [5, 6, 7, 8]
    from pyspark.sql import functions as F  # noqa: N812

    frame(9, "sun").writeTo(table).overwrite(F.col("id") > 5)
    assert ids(lake.table(ours)) == [5, 9]
    frame(10, "sun").write.format("delta").mode("overwrite").saveAsTable(table)
    assert ids(lake.table(ours)) == [10]
    frame(11, "sun").writeTo(f"{table}_new").using("delta").create()
    assert ids(lake.table(f"{ours}_new")) == [11]
    path = locations.local_path(lake.table(ours).location)
    with pytest.raises(Exception, match="DELTA_"):
        frame(12, "sun").write.format("delta").mode("append").save(str(path))
    assert ids(lake.table(ours)) == [10]


# --- UCDeltaTableDeltaAPITest, UCDeltaTableDataFrameReadTest ---------------------------------------------------


def test_delta_table_for_name(sql, made, lake, spark):
    table, ours = made()
    jvm = spark.sparkContext._jvm
    handle = jvm.io.delta.tables.DeltaTable.forName(spark._jsparkSession, table)
    handle.delete("id = 1")
    handle.updateExpr("id = 2", {"name": "'z'"})
    assert handle.toDF().count() == 1
    assert handle.history().count() == 4
    assert lake.table(ours).to_arrow().to_pylist() == [{"id": 2, "name": "z"}]
    handle.restoreToVersion(1)
    assert ids(lake.table(ours)) == [1, 2]
    with pytest.raises(Exception, match="DELTA_UNSUPPORTED_CATALOG_MANAGED_TABLE_OPERATION"):
        handle.optimize().executeCompaction()


def test_reads_of_a_frame(made, lake, spark):
    table, ours = made(rest="TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')")
    lake.table(ours).delete("id = 2")
    assert spark.read.format("delta").table(table).select("id").collect() == [(1,)]
    assert spark.read.format("delta").option("versionAsOf", 1).table(table).where("id = 2").count() == 1
    feed = (
        spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 1).table(table)
    )
    found = sorted((row["id"], row["_change_type"]) for row in feed.collect())
    assert found == [(1, "insert"), (2, "delete"), (2, "insert")]
    path = locations.local_path(lake.table(ours).location)
    with pytest.raises(Exception, match="DELTA_PATH_BASED_ACCESS"):
        spark.read.format("delta").load(str(path)).count()


# --- UCDeltaTableDataFrameStreamingTest ------------------------------------------------------------------------


def test_streams_with_options(sql, made, lake, spark, tmp_path):
    table, ours = made(rest="TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')", rows=None)
    for number in range(3):
        lake.table(ours).append([{"id": number, "name": "x"}])
    seen, batches, runs = [], [], iter(range(100))

    def take(frame, batch):
        batches.append(batch)
        seen.extend(tuple(row) for row in frame.collect())

    def run(columns, **options):
        seen.clear()
        batches.clear()
        reader = spark.readStream.format("delta")
        for name, value in options.items():
            reader = reader.option(name, value)
        place = str(tmp_path / f"checkpoint-{next(runs)}")
        stream = reader.table(table).select(*columns).writeStream.option("checkpointLocation", place)
        stream.trigger(availableNow=True).foreachBatch(take).start().awaitTermination()
        return sorted(seen)

    assert run(["id"], maxFilesPerTrigger=1) == [(0,), (1,), (2,)]
    assert len(batches) == 3
    assert run(["id"], startingVersion=3) == [(2,)]
    lake.table(ours).delete("id = 1")
    assert run(["id", "_change_type"], readChangeFeed="true", startingVersion=3) == [
        (1, "delete"),
        (2, "insert"),
    ]
    for version in (-1, 999_999):
        with pytest.raises(Exception, match=r"(?i)startingVersion|999999"):
            run(["id"], startingVersion=version)
    sink, _ = made(rows=None, suffix="_sink")
    with pytest.raises(Exception, match=r"(?i)complete"):
        spark.readStream.table(table).writeStream.format("delta").outputMode("complete").option(
            "checkpointLocation", str(tmp_path / "complete")
        ).toTable(sink).awaitTermination()


# --- UCDeltaUtilityTest, UCDeltaTableUniformIceberg…Test -------------------------------------------------------


def test_properties_are_shown(sql, made):
    table, _ = made(rest="TBLPROPERTIES ('myCustomProp' = 'myCustomValue')")
    shown = dict(sql(f"SHOW TBLPROPERTIES {table}"))
    assert shown["myCustomProp"] == "myCustomValue"
    assert "delta.minReaderVersion" in shown
    assert not [name for name in shown if name.startswith("option.fs.")]
    assert [(row[0], row[4]) for row in sql(f"DESCRIBE HISTORY {table}")] == [
        (1, "WRITE"),
        (0, "CREATE TABLE"),
    ]


@pytest.mark.parametrize("version", [2, 3])
def test_uniform_is_refused(sql, lake, version):
    properties = (
        "'delta.universalFormat.enabledFormats' = 'iceberg', 'delta.columnMapping.mode' = 'name', "
        f"'delta.enableIcebergCompatV{version}' = 'true'"
    )
    with pytest.raises(Exception, match=r"(?i)iceberg|deletion"):
        sql(f"CREATE TABLE delvec.suite.uniform (id INT) USING DELTA TBLPROPERTIES ({properties})")
    assert not [each for each in lake.tables() if each.name == "suite.uniform"]
