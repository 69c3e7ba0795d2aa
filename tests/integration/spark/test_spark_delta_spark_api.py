"""A delta-spark program runs after changing one import: UPDATE, MERGE, builders, exceptions."""

import inspect
import os
import re
import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest
from pyspark.errors import ParseException
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812
from tests.conftest import as_users_have_it

import delvec
from delvec.spark import DeltaMergeBuilder, DeltaTable, DeltaTableBuilder, IdentityGenerator, exceptions, use

pytestmark = [
    pytest.mark.spark,
    pytest.mark.full_on_spark("the gate has the main cases: each starts jobs of Spark"),
]

SCHEMA = "id long, name string, age int, place struct<city: string, zip: int>"


@pytest.fixture(scope="session")
def spark(spark):
    """A session as users have it: DuckDB runs small commands in the driver."""
    return as_users_have_it(spark)


@pytest.fixture(scope="module")
def lake(used_connection):
    return used_connection


@pytest.fixture
def people(lake, spark, tmp_path):
    lake.create_table(tmp_path / "people", SCHEMA).append(
        [{"id": n, "name": f"n{n}", "age": n * 10, "place": {"city": "Rome", "zip": n}} for n in range(1, 5)]
    )
    return DeltaTable.forPath(spark, str(tmp_path / "people"))


def rows(table, *columns):
    return sorted(tuple(row) for row in table.toDF().select(*columns).collect())


@pytest.mark.gate
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
    newest = people.history(1).first()
    assert newest.operation == "UPDATE"
    assert "(DuckDB in the driver)" in newest.engineInfo


def test_arguments_of_the_wrong_type_raise_pythons_own_errors(people, spark, tmp_path):
    """As in delta-spark; programs catch them."""
    before = people.history(1).first().version
    source = spark.createDataFrame([(1, 2)], "id long, age int")
    merge = people.merge(source, "id = 1")
    new = DeltaTable.create(spark).location(str(tmp_path / "new"))
    kinds = (
        (people.delete, {"condition": 1}),
        (people.update, {"set": 1}),
        (people.update, {"condition": 1, "set": {}}),
        (people.update, {"set": {"age": 1}}),
        (people.update, {"set": {1: "age"}}),
        (people.merge, {"source": 1, "condition": "id = 1"}),
        (people.merge, {"source": source, "condition": 1}),
        (merge.whenMatchedUpdate, {"condition": 1, "set": {"age": "1"}}),
        (merge.whenMatchedUpdate, {"set": {"age": 1}}),
        (merge.whenMatchedUpdateAll, {"condition": 1}),
        (merge.whenMatchedDelete, {"condition": 1}),
        (merge.whenNotMatchedInsert, {"values": {1: "age"}}),
        (merge.whenNotMatchedBySourceUpdate, {"set": ["age"]}),
        (merge.whenNotMatchedBySourceDelete, {"condition": {}}),
        (new.tableName, {"identifier": 1}),
        (new.location, {"location": 1}),
        (new.comment, {"comment": 1}),
        (new.addColumn, {"colName": 1, "dataType": "int"}),
        (new.addColumn, {"colName": "a", "dataType": 1}),
        (new.addColumn, {"colName": "a", "dataType": "int", "nullable": 1}),
        (new.addColumn, {"colName": "a", "dataType": "int", "comment": 1}),
        (new.addColumn, {"colName": "a", "dataType": "int", "generatedAlwaysAs": 1}),
        (new.addColumn, {"colName": "a", "dataType": "long", "generatedByDefaultAs": "id + 1"}),
        (new.addColumns, {"cols": 1}),
        (new.addColumns, {"cols": ["a"]}),
        (new.property, {"key": 1, "value": "1"}),
        (new.property, {"key": "a", "value": 1}),
    )
    for method, given in kinds:
        with pytest.raises(TypeError):
            method(**given)
    for names in ((1,), (1, "a"), ([1],)):
        for method in (new.partitionedBy, new.clusterBy):
            with pytest.raises(TypeError):
                method(*names)
    values = (
        (people.update, {"condition": "id = 1"}),
        (people.merge, {"source": None, "condition": "id = 1"}),
        (people.merge, {"source": source, "condition": None}),
        (merge.whenMatchedUpdate, {"condition": "id = 1"}),
        (merge.whenNotMatchedInsert, {}),
        (people.upgradeTableProtocol, {"readerVersion": "1", "writerVersion": 2}),
        (people.upgradeTableProtocol, {"readerVersion": 1, "writerVersion": [2]}),
        (people.addFeatureSupport, {"featureName": 1}),
        (people.dropFeatureSupport, {"featureName": None}),
        (new.addColumn, {"colName": "a", "dataType": "long", "generatedAlwaysAs": IdentityGenerator(step=0)}),
        (
            new.addColumn,
            {
                "colName": "a",
                "dataType": "long",
                "generatedAlwaysAs": "1",
                "generatedByDefaultAs": IdentityGenerator(),
            },
        ),
    )
    for method, given in values:
        with pytest.raises(ValueError, match=r"cannot be None|needs to be|step|give only one"):
            method(**given)
    with pytest.raises(ValueError, match="boolean"):
        people.dropFeatureSupport("deletionVectors", "false")
    assert people.history(1).first().version == before


def test_columns_keep_their_comments_and_take_sparks_types(lake, spark, tmp_path):
    made = (
        DeltaTable.create(spark)
        .location(str(tmp_path / "t"))
        .addColumn("id", "int", comment="which")
        .addColumn("v", "varchar(5)", comment="what")
        .addColumn("w", T.VarcharType(3))
        .addColumns(T.StructType().add("x", T.VarcharType(2)))
        .execute()
    )
    for _ in range(2):
        told = {field.name: (field.dataType.simpleString(), field.metadata) for field in made.toDF().schema}
        assert told == {
            "id": ("int", {"comment": "which"}),
            "v": ("string", {"comment": "what"}),
            "w": ("string", {}),
            "x": ("string", {}),
        }
        lake.table(str(tmp_path / "t")).append([{"id": 1, "v": "12345", "w": "123", "x": "12"}])
    for column, text in (("v", "123456"), ("w", "1234"), ("x", "123")):
        with pytest.raises(delvec.ConstraintViolation, match="length"):
            made.update(set={column: f"'{text}'"})
    read = spark.read.format("delvec").load(str(tmp_path / "t"))
    assert read.schema["id"].metadata == {"comment": "which"}


def test_a_table_by_name_alone_goes_into_sparks_warehouse(lake, spark, tmp_path):
    """If the service has no warehouse, as with delta-spark."""
    name = f"w_{tmp_path.name}"
    warehouse = spark.conf.get("spark.sql.warehouse.dir").removeprefix("file:").rstrip("/")

    def done(mode, called=name, column="x"):
        return getattr(DeltaTable, mode)(spark).tableName(called).addColumn(column, "int").execute()

    try:
        made = [done("create"), done("createIfNotExists"), done("createOrReplace", column="y")]
        places = {each.detail().first().location.removeprefix("file://") for each in made}
        assert places == {f"{warehouse}/{name}"}
        assert DeltaTable.forName(spark, name).history().count() == 2
        with pytest.raises(delvec.TableAlreadyExists):
            done("create")
        for other in (f"default.{name}", f"`spark_catalog`.`default`.`{name}`"):
            assert done("createIfNotExists", other).toDF().columns == ["y"]
            assert DeltaTable.forName(spark, other).toDF().columns == ["y"]
        with pytest.raises(delvec.BadRequest, match="no database 'nowhere'"):
            done("create", f"nowhere.{name}")
        spark.sql(f"CREATE DATABASE db_{name}")
        spark.sql(f"CREATE TABLE db_{name}.other USING parquet AS SELECT 1 AS id")
        assert done("create", f"db_{name}.t").detail().first().location.endswith(f"/db_{name}.db/t")
        with pytest.raises(delvec.TableAlreadyExists, match=r"already exists .* USING parquet"):
            done("create", f"db_{name}.other")
        lake.create_table(tmp_path / "elsewhere", "id long", name=f"e_{name}")
        with pytest.raises(delvec.TableAlreadyExists, match=rf"'e_{name}' already exists at .*elsewhere"):
            done("create", f"e_{name}")
        assert done("createOrReplace", f"e_{name}").detail().first().location.endswith("elsewhere")
        with pytest.raises(delvec.TableNotFound, match="cannot be found"):
            done("replace", f"n_{name}")
    finally:
        spark.sql(f"DROP DATABASE IF EXISTS db_{name} CASCADE")
        shutil.rmtree(f"{warehouse}/{name}", ignore_errors=True)


def test_update_errors_name_the_cause(people):
    with pytest.raises(delvec.BadRequest, match="set must"):
        people.update(set={})
    with pytest.raises(delvec.UnknownColumn, match="nope"):
        people.update(set={"nope": "1"})


@pytest.mark.full("the gate has the same MERGE by Delvec's own API")
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


def test_merge_evolves_the_schema_if_the_session_says_so(people, spark):
    name = "spark.databricks.delta.schema.autoMerge.enabled"
    changes = spark.createDataFrame([(8, True)], "id long, is_new boolean")
    spark.conf.set(name, "true")
    try:
        people.merge(changes, "target.id = source.id").whenNotMatchedInsertAll().execute()
    finally:
        spark.conf.unset(name)
    assert (8, True) in rows(people, "id", "is_new")


def test_multiple_matches_raise_a_typed_error(people, spark):
    twice = spark.createDataFrame([(1,), (1,)], "id long").alias("s")
    with pytest.raises(delvec.MultipleMatches):
        people.alias("t").merge(twice, "t.id = s.id").whenMatchedUpdate(set={"age": "1"}).execute()
    assert people.history(1).first().operation == "WRITE"


@pytest.mark.gate
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


@pytest.fixture
def quiet_lake(lake, tmp_path, monkeypatch):
    """A connection without background writes after a commit: they could recreate a removed folder."""
    monkeypatch.setenv("DELVEC_LOG_MAINTENANCE", "false")
    with delvec.connect(database_url=f"sqlite:///{tmp_path / 'quiet.db'}") as connection:
        use(connection)
        yield connection
    use(lake)


def test_a_table_whose_folder_is_gone_does_not_exist(quiet_lake, spark, tmp_path):
    """Even if the service still has it registered."""
    place = tmp_path / "gone"
    quiet_lake.create_table(place, "id long", name=f"gone_{tmp_path.name}").append([{"id": 1}])
    shutil.rmtree(place)

    assert not DeltaTable.isDeltaTable(spark, str(place))
    with pytest.raises(delvec.NotADeltaTable):
        DeltaTable.forPath(spark, str(place))
    with pytest.raises(delvec.TableNotFound):
        DeltaTable.replace(spark).location(str(place)).addColumn("x", "int").execute()
    made = DeltaTable.createIfNotExists(spark).location(str(place)).addColumn("x", "int").execute()
    assert made.toDF().columns == ["x"]
    assert DeltaTable.isDeltaTable(spark, str(place))
    shutil.rmtree(place)
    spark.createDataFrame([(7,)], "z int").write.format("delvec").mode("append").save(str(place))
    assert spark.read.format("delvec").load(str(place)).collect() == [(7,)]


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
    assert made.toDF().select("*").count() == 0
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
        # Not a Delta table, so the name is looked up in Delvec.
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
@pytest.mark.gate
def test_every_method_has_delta_sparks_name_and_arguments(cls):
    for method, expected in SIGNATURES[cls].items():
        found = [name for name in inspect.signature(getattr(cls, method)).parameters if name != "self"]
        assert found == expected.split(), method


def test_parquet_files_are_converted(people, spark, tmp_path):
    path = f"{tmp_path}/parquet"
    people.toDF().write.partitionBy("id").parquet(path)
    made = DeltaTable.convertToDelta(spark, f"parquet.`{path}`", "id bigint")
    assert made.toDF().select("*").count() == people.toDF().select("*").count()
    again = DeltaTable.convertToDelta(spark, f"parquet.`{path}`", T.StructType([]))
    assert again.history().count() == 1
    for identifier in ("orc.`/x`", "catalog.name", f"parquet.{path}"):
        with pytest.raises(delvec.UnsupportedOperation):
            DeltaTable.convertToDelta(spark, identifier)


def test_clones_take_delta_sparks_arguments(people, spark, tmp_path):
    rows = people.toDF().select("*").count()
    made = people.clone(f"{tmp_path}/shallow", True, properties={"a": "b"})
    assert isinstance(made, DeltaTable)
    assert made.toDF().select("*").count() == rows
    assert made.detail().first().properties["a"] == "b"
    assert people.cloneAtVersion(0, f"delta.`{tmp_path}/empty`").toDF().select("*").count() == 0
    moment = people.history(1).first().timestamp.isoformat()
    again = people.cloneAtTimestamp(moment, f"{tmp_path}/empty", isShallow=False, replace=True)
    assert (again.toDF().select("*").count(), again.history(1).first().operation) == (rows, "CLONE")
    with pytest.raises(delvec.TableAlreadyExists):
        people.clone(f"{tmp_path}/empty")
    for call in (
        lambda: people.clone(1),
        lambda: people.clone("/x", isShallow="yes"),
        lambda: people.cloneAtVersion("1", "/x"),
        lambda: people.cloneAtTimestamp(1, "/x"),
        lambda: people.clone("/x", properties=["a"]),
    ):
        with pytest.raises(ValueError, match="needs to be"):
            call()


def test_generate_writes_manifests(people, tmp_path):
    assert people.generate("symlink_format_manifest") is None
    lines = (tmp_path / "people" / "_symlink_format_manifest" / "manifest").read_text().splitlines()
    assert len(lines) == people.detail().first().numFiles
    with pytest.raises(delvec.BadRequest):
        people.generate("other")


def test_vacuum_deletes_unreferenced_files(people, spark, tmp_path):
    old = tmp_path / "people" / "old.parquet"
    old.write_bytes(b"left over")
    os.utime(old, (0, 0))
    assert people.vacuum().count() == 0
    assert not old.exists()
    with pytest.raises(delvec.RetentionTooShort, match="168 hours"):
        people.vacuum(0)
    spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    try:
        people.vacuum(0.0)
    finally:
        spark.conf.unset("spark.databricks.delta.retentionDurationCheck.enabled")
    assert people.toDF().select("*").count() == 4


@pytest.mark.gate
def test_optimize_returns_deltas_metrics(people):
    people.update("id = 1", {"age": "1"})
    before = rows(people, "*")

    (done,) = people.optimize().executeCompaction().collect()

    assert done.path.endswith("people")
    assert (done.metrics.numFilesAdded, done.metrics.numFilesRemoved) == (
        1,
        done.metrics.filesRemoved.totalFiles,
    )
    assert rows(people, "*") == before
    newest = people.history(1).first()
    assert newest.operation == "OPTIMIZE"
    assert "in the driver)" in newest.engineInfo
    assert done.metrics.zOrderStats is None
    refused = (
        "Predicate references non-partition column 'id'. Only the partition columns may be referenced: []"
    )
    with pytest.raises(delvec.InvalidPredicate, match=re.escape(refused)):
        people.optimize().where("id = 1").executeCompaction()
    (done,) = people.optimize().executeZOrderBy("id", ["age"]).collect()
    assert (done.metrics.zOrderStats.strategyName, done.metrics.zOrderStats.numOutputCubes) == ("all", 1)
    assert (done.metrics.numFilesAdded, rows(people, "*")) == (1, before)


def test_restore_returns_the_metrics_that_delta_spark_returns(people):
    names = [
        "table_size_after_restore",
        "num_of_files_after_restore",
        "num_removed_files",
        "num_restored_files",
        "removed_files_size",
        "restored_files_size",
    ]
    count = people.toDF().select("*").count()
    (newest,) = (row["version"] for row in people.history(1).collect())
    people.delete()

    found = people.restoreToVersion(newest)

    assert found.columns == names
    assert set(dict(found.dtypes).values()) == {"bigint"}
    assert found.collect()[0]["num_removed_files"] == 0
    assert people.toDF().select("*").count() == count
    assert people.restoreToVersion(newest + 2).collect() == []
    times = {row["version"]: row["timestamp"] for row in people.history().collect()}
    moment = times[newest + 1].astimezone().isoformat()
    assert people.restoreToTimestamp(moment).collect()[0]["num_of_files_after_restore"] == 0
    assert people.toDF().select("*").count() == 0
    with pytest.raises(ValueError, match="version needs to be an int but got '<class 'str'>'"):
        people.restoreToVersion("1")
    with pytest.raises(ValueError, match="timestamp needs to be a string but got '<class 'int'>'"):
        people.restoreToTimestamp(1)
    with pytest.raises(
        delvec.BadRequest, match=r"timestamp \('05/04/1999'\) cannot be converted to a valid timestamp"
    ):
        people.restoreToTimestamp("05/04/1999")


@pytest.mark.gate
def test_exceptions_have_deltas_names_and_one_base():
    names = [name for name in exceptions.__all__ if name != "DeltaConcurrentModificationException"]
    for name in names:
        assert issubclass(getattr(exceptions, name), exceptions.DeltaConcurrentModificationException)
        assert getattr(exceptions, name)("x").type == name
    assert len(names) == 7


def test_builders_take_generated_and_identity_columns():
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


def test_a_type_that_is_not_written_is_refused_with_its_column():
    with pytest.raises(delvec.InvalidSchema, match=r"^Column 'place': .* geometry .* use binary") as caught:
        DeltaTableBuilder(None, "create", None).addColumn("place", "geometry(4326)")
    assert isinstance(caught.value, ParseException)


def test_a_thread_writes_once_the_session_is_its_active_one(spark, tmp_path):
    def write(begin):
        begin()
        spark.range(2).write.format("delvec").mode("append").save(str(tmp_path / "t"))

    with ThreadPoolExecutor(1) as pool:
        with pytest.raises(delvec.EngineUnavailable, match=r"spark.createDataFrame\(\[\], 'x int'\)"):
            pool.submit(write, lambda: None).result()
        pool.submit(write, lambda: spark.createDataFrame([], "x int")).result()
    assert DeltaTable.isDeltaTable(spark, str(tmp_path / "t"))
