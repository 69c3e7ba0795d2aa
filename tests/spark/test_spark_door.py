"""A program written for delta-spark changes one import: UPDATE, MERGE, builders, exceptions, and what is not there yet."""

import inspect

import pytest
from pyspark.sql import functions as F  # noqa: N812

import delvec
from delvec.spark import DeltaMergeBuilder, DeltaTable, DeltaTableBuilder, IdentityGenerator, exceptions, use

pytestmark = pytest.mark.spark

SCHEMA = "id long, name string, age int, place struct<city: string, zip: int>"


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    database = tmp_path_factory.mktemp("state") / "delvec.db"
    with delvec.connect(database_url=f"sqlite:///{database}") as connection:
        use(connection)
        yield connection
        use(None)


@pytest.fixture
def people(lake, spark, tmp_path):
    lake.create_table(tmp_path / "people", SCHEMA).append(
        [{"id": n, "name": f"n{n}", "age": n * 10, "place": {"city": "Rome", "zip": n}} for n in range(1, 5)]
    )
    return DeltaTable.forPath(spark, str(tmp_path / "people"))


def rows(table, *columns):
    return sorted(tuple(row) for row in table.toDF().select(*columns).collect())


def test_update_by_text_and_by_column(people):
    people.update("id = 1", {"name": "'Ada'", "age": "age + id"})
    people.update(F.col("id") == 2, {"name": F.concat(F.col("name"), F.lit("!")), "age": F.expr("age * 2")})
    people.alias("t").update(condition="t.id = 3", set={"t.age": F.col("t.place.zip") + 100})

    assert rows(people, "id", "name", "age") == [
        (1, "Ada", 11),
        (2, "n2!", 40),
        (3, "n3", 103),
        (4, "n4", 40),
    ]
    assert people.update(set={"age": F.lit(0)}) is None
    assert {age for (age,) in rows(people, "age")} == {0}
    assert people.history(1).first().operation == "UPDATE"


def test_update_says_what_is_wrong(people):
    for wrong in (None, {}, {1: "age"}):
        with pytest.raises(delvec.BadRequest, match="set must"):
            people.update(set=wrong)
    with pytest.raises(delvec.UnknownColumn, match="nope"):
        people.update(set={"nope": "1"})


def test_merge_with_every_clause(people, spark):
    changes = spark.createDataFrame(
        [(1, "gone", 0), (2, "two", 22), (3, "three", -1), (9, "new", 90), (8, "odd", -8)],
        "id long, name string, age int",
    )
    done = (
        people.alias("t")
        .merge(changes.alias("s"), "t.id = s.id")
        .whenMatchedDelete("s.name = 'gone'")
        .whenMatchedUpdate(F.col("s.age") > 0, set={"name": F.col("s.name"), "t.age": "t.age + s.age"})
        .whenNotMatchedInsert("s.age > 0", values={"id": "s.id", "name": F.upper(F.col("s.name"))})
        .whenNotMatchedBySourceUpdate("t.id = 4", set={"age": "t.age - 1"})
        .execute()
    )

    assert rows(people, "id", "name", "age") == [
        (2, "two", 42),
        (3, "n3", 30),
        (4, "n4", 39),
        (9, "NEW", None),
    ]
    assert done.first().asDict() == {
        "num_affected_rows": 4,
        "num_updated_rows": 2,
        "num_deleted_rows": 1,
        "num_inserted_rows": 1,
    }


def test_merge_all_columns_and_schema_evolution(people, spark):
    changes = spark.createDataFrame(
        [(1, "one", 1, ("Oslo", 5), True), (7, "seven", 7, None, False)], f"{SCHEMA}, is_new boolean"
    )
    people.merge(
        changes, "target.id = source.id"
    ).withSchemaEvolution().whenMatchedUpdateAll().whenNotMatchedInsertAll().whenNotMatchedBySourceDelete(
        "target.id > 2"
    ).execute()

    assert rows(people, "id", "name", "is_new") == [(1, "one", True), (2, "n2", None), (7, "seven", False)]


def test_several_matches_are_refused_under_a_typed_error(people, spark):
    twice = spark.createDataFrame([(1,), (1,)], "id long").alias("s")
    with pytest.raises(delvec.MultipleMatches):
        people.alias("t").merge(twice, "t.id = s.id").whenMatchedUpdate(set={"age": "1"}).execute()
    assert people.history(1).first().operation == "WRITE"


def test_tables_are_built(lake, spark, tmp_path):
    place = str(tmp_path / "built")
    builder = (
        DeltaTable.create(spark)
        .tableName("built")
        .location(place)
        .comment("what it is")
        .addColumn("id", "long", nullable=False, comment="number")
        .addColumns(spark.createDataFrame([], "country string, born timestamp").schema)
        .partitionedBy("country")
        .property("team", "red")
    )
    made = builder.execute()

    detail = made.detail().first()
    assert detail.description == "what it is"
    assert detail.partitionColumns == ["country"]
    assert detail.properties["team"] == "red"
    assert made.toDF().columns == ["id", "country", "born"]
    with pytest.raises(delvec.TableAlreadyExists):
        builder.execute()
    again = DeltaTable.createIfNotExists(spark).location(place).addColumn("x", "int").execute()
    assert again.toDF().columns == made.toDF().columns
    with pytest.raises(delvec.TableNotFound):
        DeltaTable.replace(spark).location(str(tmp_path / "none")).addColumn("x", "int").execute()
    with pytest.raises(delvec.BadRequest, match="tableName"):
        DeltaTable.create(spark).addColumn("x", "int").execute()


@pytest.mark.parametrize("begin", ["replace", "createOrReplace"])
def test_tables_are_replaced(lake, spark, tmp_path, begin):
    place = str(tmp_path / "replaced")
    first = lake.create_table(place, "id long, day date", partition_by=["day"], properties={"team": "red"})
    first.append([{"id": 1, "day": None}, {"id": 2, "day": None}])

    made = (
        getattr(DeltaTable, begin)(spark)
        .location(place)
        .comment("new")
        .addColumn("name", "string")
        .addColumn("id", "int")
        .property("delta.columnMapping.mode", "name")
        .clusterBy("id")
        .execute()
    )

    detail = made.detail().first()
    assert made.toDF().columns == ["name", "id"]
    assert made.toDF().count() == 0
    assert (detail.description, detail.partitionColumns, detail.clusteringColumns) == ("new", [], ["id"])
    assert "team" not in detail.properties
    last = made.history(1).first()
    assert last.operation == ("REPLACE TABLE" if begin == "replace" else "CREATE OR REPLACE TABLE")
    assert last.version == 2
    assert first.to_arrow(version=1).num_rows == 2


def test_clustered_tables_are_built(lake, spark, tmp_path):
    made = (
        DeltaTable.createOrReplace(spark)
        .tableName(f"delta.`{tmp_path}/clustered`")
        .addColumn("id", "long")
        .clusterBy(["id"])
        .execute()
    )
    assert made.detail().first().clusteringColumns == ["id"]


def test_protocol_and_features(people):
    people.upgradeTableProtocol(1, 2)
    people.addFeatureSupport("timestampNtz")
    people.dropFeatureSupport("appendOnly")
    features = people.detail().first().tableFeatures
    assert "timestampNtz" in features
    assert "appendOnly" not in features


def test_a_name_of_sparks_catalog_comes_first(people, lake, spark, tmp_path):
    lake.create_table(tmp_path / "same_name", "other int", name="same_name")
    spark.sql("CREATE TABLE same_name USING parquet AS SELECT 1 AS x")
    try:
        # No Delta table: the name is then Delvec's.
        assert DeltaTable.forName(spark, "same_name").toDF().columns == ["other"]
    finally:
        spark.sql("DROP TABLE same_name")


SIGNATURES = {
    DeltaTable: {
        "forPath": "sparkSession path hadoopConf",
        "forName": "sparkSession tableOrViewName",
        "isDeltaTable": "sparkSession identifier",
        "convertToDelta": "sparkSession identifier partitionSchema",
        "create": "sparkSession",
        "createIfNotExists": "sparkSession",
        "replace": "sparkSession",
        "createOrReplace": "sparkSession",
        "toDF": "",
        "alias": "aliasName",
        "generate": "mode",
        "delete": "condition",
        "update": "condition set",
        "merge": "source condition",
        "vacuum": "retentionHours",
        "history": "limit",
        "detail": "",
        "optimize": "",
        "restoreToVersion": "version",
        "restoreToTimestamp": "timestamp",
        "upgradeTableProtocol": "readerVersion writerVersion",
        "addFeatureSupport": "featureName",
        "dropFeatureSupport": "featureName truncateHistory",
        "clone": "target isShallow replace properties",
        "cloneAtVersion": "version target isShallow replace properties",
        "cloneAtTimestamp": "timestamp target isShallow replace properties",
    },
    DeltaMergeBuilder: {
        "whenMatchedUpdate": "condition set",
        "whenMatchedUpdateAll": "condition",
        "whenMatchedDelete": "condition",
        "whenNotMatchedInsert": "condition values",
        "whenNotMatchedInsertAll": "condition",
        "whenNotMatchedBySourceUpdate": "condition set",
        "whenNotMatchedBySourceDelete": "condition",
        "withSchemaEvolution": "",
        "execute": "",
    },
    DeltaTableBuilder: {
        "tableName": "identifier",
        "location": "location",
        "comment": "comment",
        "addColumn": "colName dataType nullable generatedAlwaysAs generatedByDefaultAs comment",
        "addColumns": "cols",
        "partitionedBy": "cols",
        "clusterBy": "cols",
        "property": "key value",
        "execute": "",
    },
}


@pytest.mark.parametrize("cls", SIGNATURES)
def test_every_method_has_delta_sparks_name_and_arguments(cls):
    for method, expected in SIGNATURES[cls].items():
        found = [name for name in inspect.signature(getattr(cls, method)).parameters if name != "self"]
        assert found == expected.split(), method


def test_what_is_not_there_yet_says_what_to_use(people, spark):
    for call in (
        lambda: DeltaTable.convertToDelta(spark, "parquet.`/x`"),
        people.optimize,
        people.vacuum,
        lambda: people.restoreToVersion(0),
        lambda: people.restoreToTimestamp("2024-01-01"),
        lambda: people.generate("symlink_format_manifest"),
        lambda: people.clone("/x"),
        lambda: people.cloneAtVersion(0, "/x"),
        lambda: people.cloneAtTimestamp("2024-01-01", "/x"),
    ):
        with pytest.raises(delvec.UnsupportedOperation, match="not part of Delvec yet; "):
            call()


def test_exceptions_have_deltas_names_and_one_base():
    names = [name for name in exceptions.__all__ if name != "DeltaConcurrentModificationException"]
    for name in names:
        assert issubclass(getattr(exceptions, name), exceptions.DeltaConcurrentModificationException)
        assert getattr(exceptions, name)("x").type == name
    assert len(names) == 7


def test_generated_and_identity_columns_may_be_asked_for():
    column = DeltaTableBuilder(None, "create", None).addColumn(
        "n", "long", generatedByDefaultAs=IdentityGenerator(5, 2)
    )
    computed = DeltaTableBuilder(None, "create", None).addColumn(
        "day", "date", generatedAlwaysAs="CAST(b AS DATE)"
    )
    assert computed._fields[0].metadata == {"delta.generationExpression": "CAST(b AS DATE)"}
    assert column._fields[0].metadata == {
        "delta.identity.start": 5,
        "delta.identity.step": 2,
        "delta.identity.allowExplicitInsert": True,
    }
