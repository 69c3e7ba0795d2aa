"""Programs written for delta-spark's DeltaTable, run on Delvec; and the client's commands on Spark, end to end."""

import datetime as dt
import decimal
import inspect

import pyarrow as pa
import pytest
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812
from tests.conftest import as_users_have_it

import delvec
from delvec.spark import DeltaTable
from delvec.spark.column_texts import to_sql, without_alias

pytestmark = [
    pytest.mark.spark,
    pytest.mark.full_on_spark("the gate has the main cases: each starts jobs of Spark"),
]

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("country", pa.string())])


@pytest.fixture(scope="session")
def spark(spark):
    """A session as users have it: DuckDB runs small commands in the driver."""
    return as_users_have_it(spark)


@pytest.fixture(scope="module")
def lake(used_connection):
    return used_connection


@pytest.fixture
def people(lake, spark, tmp_path):
    table = lake.create_table(str(tmp_path / "people"), SCHEMA, partition_by=["country"], engine=spark)
    frame = spark.range(100).selectExpr("id", "concat('n', id) name", "if(id % 2 = 0, 'NZ', null) country")
    table.append(frame)
    return DeltaTable.forPath(spark, str(tmp_path / "people"))


def ids(table):
    return sorted(row.id for row in table.toDF().select("id").collect())


@pytest.mark.gate
def test_delete_by_sql_by_column_and_without_condition(people):
    people.delete("id < 10")
    people.delete((F.col("id") >= 90) & F.col("name").startswith("n9") | F.col("country").isNull())

    assert ids(people) == list(range(10, 90, 2))
    people.delete("id < 12")
    people.delete()
    assert ids(people) == []


def test_a_new_column_keeps_its_whole_type(lake, spark, tmp_path):
    parts = T.StructType(
        [
            T.StructField("number", T.LongType(), False, {"comment": "why"}),
            T.StructField("names", T.ArrayType(T.StringType(), False)),
        ]
    )
    where = str(tmp_path / "nested")
    DeltaTable.create(spark).location(where).addColumn("parts", parts).addColumn("id", "long").execute()

    (column, _) = lake.table(where).snapshot().table_schema["fields"]
    assert T.StructType.fromJson(column["type"]) == parts


@pytest.mark.gate
def test_a_frame_stays_at_its_version(people):
    before = people.toDF()

    people.delete("id >= 50")

    assert before.select("*").count() == 100
    assert people.toDF().select("*").count() == 50


def test_alias(people):
    aliased = people.alias("t")

    aliased.delete("t.id > 3 and T.name != 't.x'")

    assert aliased.toDF().selectExpr("max(t.id)").first()[0] == 3


@pytest.mark.gate
def test_history(people):
    people.delete("id = 1")

    rows = people.history().collect()

    assert [row.version for row in rows] == [2, 1, 0]
    assert rows[0].operation == "DELETE"
    assert rows[0].operationMetrics["numDeletedRows"] == "1"
    assert "id = 1" in rows[0].operationParameters["predicate"]
    assert rows[0].engineInfo.startswith("delvec-spark/")
    assert ["(DuckDB in the driver)" in row.engineInfo for row in rows] == [True, False, False]
    assert rows[0].timestamp >= rows[1].timestamp
    assert [row.version for row in people.history(1).collect()] == [2]


def test_detail(people, tmp_path):
    row = people.detail().first()

    assert row.format == "delta"
    assert row.location == f"file://{tmp_path}/people"
    assert row.partitionColumns == ["country"]
    assert row.numFiles >= 2
    assert row.properties["delta.enableDeletionVectors"] == "true"
    assert "deletionVectors" in row.tableFeatures
    assert row.createdAt <= row.lastModified


@pytest.mark.gate
def test_for_name(lake, people, spark, tmp_path):
    lake.rename(tmp_path / "people", "people_by_name")  # other tests use that folder name, too
    by_name = DeltaTable.forName(spark, "people_by_name")

    assert by_name.toDF().columns == ["id", "name", "country"]
    with pytest.raises(delvec.TableNotFound):
        DeltaTable.forName(spark, "nobody_knows_this")
    (tmp_path / "people").rename(tmp_path / "elsewhere")
    with pytest.raises(
        delvec.NotADeltaTable, match=r"'people_by_name' is registered with the service, but its .* gone"
    ):
        DeltaTable.forName(spark, "people_by_name")


def test_for_name_in_sparks_catalog(people, spark, tmp_path):
    spark.range(3).createOrReplaceTempView("not_delta")
    spark.sql(f"CREATE TABLE of_parquet USING parquet LOCATION '{tmp_path}/parquet' AS SELECT 1 AS Location")
    spark.sql("CREATE VIEW of_parquet_view AS SELECT * FROM of_parquet")
    spark.sql("CREATE DATABASE others")
    spark.sql("CREATE TABLE others.of_parquet_too USING json AS SELECT 1 AS id")
    for name, what in (
        ("not_delta", "a view"),
        ("of_parquet_view", "a view"),
        ("of_parquet", "a table USING parquet"),
        ("`default`.of_parquet", "a table USING parquet"),
        ("others.`of_parquet_too`", "a table USING json"),
    ):
        with pytest.raises(delvec.NotADeltaTable, match=what):
            DeltaTable.forName(spark, name)
    spark.sql("DROP DATABASE others CASCADE")
    spark.sql("DROP VIEW of_parquet_view")
    spark.sql("DROP TABLE of_parquet")

    assert DeltaTable.forName(spark, f"delta.`{tmp_path}/people`").toDF().select("*").count() == 100


def test_an_entry_that_save_as_table_made_is_found_by_name(people, spark, tmp_path):
    """Spark itself cannot read it: it gives Python data sources a location but no table name."""
    place = tmp_path / "saved [1]"
    frame = spark.range(3).selectExpr("id", "concat('n', id) AS name")
    frame.write.format("delvec").mode("append").option("path", str(place)).saveAsTable("saved_by_name")
    try:
        assert DeltaTable.forName(spark, "saved_by_name").toDF().select("*").count() == 3
        DeltaTable.forName(spark, "default.saved_by_name").delete("id = 1")
        with pytest.raises(Exception, match="forName"):
            spark.table("saved_by_name").collect()
        place.rename(tmp_path / "elsewhere")
        with pytest.raises(
            delvec.NotADeltaTable, match=r"'saved_by_name' is registered with Spark's catalog.*DROP TABLE"
        ):
            DeltaTable.forName(spark, "saved_by_name")
        (tmp_path / "elsewhere").rename(place)
    finally:
        spark.sql("DROP TABLE saved_by_name")
    assert DeltaTable.forPath(spark, str(place)).toDF().select("*").count() == 2


def test_is_delta_table(people, lake, spark, tmp_path):
    known = len(lake.tables())
    (tmp_path / "no table").mkdir()

    assert DeltaTable.isDeltaTable(spark, str(tmp_path / "people"))
    assert DeltaTable.isDeltaTable(spark, f"delta.`{tmp_path}/people`")
    assert not DeltaTable.isDeltaTable(spark, str(tmp_path / "no table"))
    assert not DeltaTable.isDeltaTable(spark, str(tmp_path / "nowhere"))
    (tmp_path / "people").rename(tmp_path / "a [1]{2} %41")
    assert DeltaTable.isDeltaTable(spark, str(tmp_path / "a [1]{2} %41"))
    assert len(lake.tables()) == known


def test_for_path_of_no_table(spark, lake, tmp_path):
    with pytest.raises(delvec.NotADeltaTable):
        DeltaTable.forPath(spark, str(tmp_path))
    for place, option in (
        (str(tmp_path), "fs.file.impl"),
        ("s3://bucket/t", "fs.s3a.access.key"),
        (str(tmp_path), "key"),
    ):
        with pytest.raises(delvec.BadRequest, match=rf"hadoopConf is not supported .{option}"):
            DeltaTable.forPath(spark, place, {option: "x"})
    lake.create_table(tmp_path / "t", "id long")
    assert DeltaTable.forPath(spark, str(tmp_path / "t"), {"fs.s3a.access.key": "x"}).toDF().columns == ["id"]


def test_arguments_are_named_as_in_delta_spark():
    names = {
        "forPath": ["sparkSession", "path", "hadoopConf"],
        "forName": ["sparkSession", "tableOrViewName"],
        "isDeltaTable": ["sparkSession", "identifier"],
        "alias": ["self", "aliasName"],
        "delete": ["self", "condition"],
        "history": ["self", "limit"],
        "upgradeTableProtocol": ["self", "readerVersion", "writerVersion"],
        "addFeatureSupport": ["self", "featureName"],
    }
    for method, expected in names.items():
        parameters = list(inspect.signature(getattr(DeltaTable, method)).parameters)
        assert parameters == expected, method


@pytest.mark.parametrize(
    "text",
    [
        "id < 18 and name = 'x\\\\y\\'z\"'",
        "not(id = 1) or name in ('a', 'b')",
        "country is null and id is not null",
        "id % 2 = 0 and -id < 3 and id + 1 > 2",
        "lower(name) like 'a%'",
        "name <=> null",
        "id between -5 and 5000000000",
    ],
)
def test_columns_become_sql_that_selects_the_same_rows(spark, text):
    columns = {
        "id < 18 and name = 'x\\\\y\\'z\"'": (F.col("id") < 18) & (F.col("name") == "x\\y'z\""),
        "not(id = 1) or name in ('a', 'b')": ~(F.col("id") == 1) | F.col("name").isin("a", "b"),
        "country is null and id is not null": F.col("country").isNull() & F.col("id").isNotNull(),
        "id % 2 = 0 and -id < 3 and id + 1 > 2": (F.col("id") % 2 == 0)
        & (-F.col("id") < 3)
        & (F.col("id") + 1 > 2),
        "lower(name) like 'a%'": F.lower("name").like("a%"),
        "name <=> null": F.col("name").eqNullSafe(None),
        "id between -5 and 5000000000": F.col("id").between(-5, 5_000_000_000),
    }
    frame = spark.createDataFrame(
        [(i, name, None) for i in (-6, -1, 0, 1, 2, 17, 18) for name in ("A", "a", "x\\y'z\"", None)],
        "id long, name string, country string",
    )

    turned = frame.filter(to_sql(columns[text]))

    assert sorted(turned.collect(), key=repr) == sorted(frame.filter(text).collect(), key=repr)


def test_columns_of_every_kind_become_sql(spark):
    frame = spark.createDataFrame(
        [(1, 1.5, dt.date(2020, 1, 1), {"x": 3}, "it's"), (None, None, None, {"x": None}, None)],
        "a long, f double, d date, s struct<x: int>, `odd name` string",
    )
    moment = dt.datetime(2020, 1, 1, 12, tzinfo=dt.UTC)
    for column in (
        F.col("f") == 1.5,
        F.col("d") == dt.date(2020, 1, 1),
        F.col("d") < moment,
        F.col("a") == decimal.Decimal("1.0"),
        F.col("s.x") + 1,
        F.col("`odd name`") == "it's",
        F.lit("it's \\ text"),
        F.lit(b"ab"),
        F.expr("a > 0 or f is null -- whatever"),
        F.col("a").cast("string"),
        F.when(F.col("a") == 1, F.lit("one")).when(F.col("a").isNull(), "none").otherwise(F.col("odd name")),
        F.coalesce(F.col("a"), F.lit(0)) % 2,
    ):
        turned = frame.select(F.expr(to_sql(column))).collect()
        assert [row[0] for row in turned] == [row[0] for row in frame.select(column).collect()], str(column)


def test_columns_without_an_sql_equivalent_are_refused(spark):
    a = F.col("a")
    for column in (
        spark.range(1)["id"] == 1,
        a.alias("b"),
        F.countDistinct("a"),
        F.transform(a, lambda each: each + 1),
        F.udf(lambda each: each)(a),
        F.lit(dt.timedelta(days=1)),
        F.col("*"),
        a.desc(),
    ):
        with pytest.raises(delvec.InvalidPredicate, match=r"F\.col.* SQL text"):
            to_sql(column)
    with pytest.raises(delvec.InvalidPredicate, match="not int"):
        to_sql(5)


def test_alias_is_removed_only_outside_quotes():
    assert without_alias("t.a = 't.b' and `T`.`c` > x.t.d", "t") == "a = 't.b' and `c` > x.t.d"


def test_a_frame_of_a_table_knows_its_number_of_rows_without_a_job(spark, people):
    people.delete("id < 10")
    table = people._table
    jobs = spark.sparkContext.statusTracker()

    def counted(frame):
        spark.sparkContext.setJobGroup("counting", "")
        before = len(jobs.getJobIdsForGroup("counting"))
        try:
            return frame.count(), len(jobs.getJobIdsForGroup("counting")) - before
        finally:
            spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)

    frame = people.toDF()
    assert counted(frame) == (90, 0)
    assert counted(table.to_df(predicate="country = 'NZ'")) == (45, 0)  # tells the rows of whole partitions
    found, ran = counted(table.to_df(predicate="id < 20"))
    assert (found, ran > 0) == (10, True)
    people.delete("id < 50")
    assert counted(frame) == (90, 0)  # pinned to its version, as its rows are
    assert counted(people.toDF())[0] == len(people.toDF().collect()) == 50


def test_count_fills_the_cache_of_a_frame(spark, people):
    frame = people.toDF().cache()
    stored = spark.sparkContext._jsc.sc().getRDDStorageInfo
    try:
        before = len(stored())
        assert frame.count() == 100
        assert len(stored()) == before + 1
    finally:
        frame.unpersist()
    assert frame.count() == 100
