"""Tables by name in Spark SQL: queries see the views' versions or the newest ones, as the program chooses."""

import pyarrow as pa
import pytest

import delvec

pytestmark = [
    pytest.mark.spark,
    pytest.mark.full_on_spark("the gate has the main cases: each starts jobs of Spark"),
]


@pytest.fixture
def lake(tmp_path):
    with delvec.connect(database_url=f"sqlite:///{tmp_path}/delvec.db") as lake:
        yield lake


@pytest.fixture
def people(lake, tmp_path):
    table = lake.create_table(tmp_path / "people", "id long, age int")
    table.append(pa.table({"id": [1, 2, 3], "age": pa.array([12, 40, 17], pa.int32())}))
    table.delete("id = 1")
    return table


@pytest.mark.full("several jobs of Spark")
def test_queries_see_the_versions_of_the_views_until_they_are_refreshed(lake, people, spark, tmp_path):
    other = lake.create_table(tmp_path / "Orders-2", "id long")
    other.append(pa.table({"id": [2]}))
    views = lake.register_views(spark)
    try:
        query = "SELECT p.id, p.age FROM people p JOIN `orders-2` o ON p.id = o.id"
        assert sorted(views.names) == sorted(table.name for table in lake.tables())
        assert [tuple(row) for row in spark.sql(query).collect()] == [(2, 40)]
        # Spark reads the Parquet files itself, with filters pushed down.
        plan = spark.sql("SELECT age FROM people WHERE age > 20")._jdf.queryExecution().toString()
        assert "PushedFilters: [IsNotNull(age), GreaterThan(age,20)]" in plan
        assert "ReadSchema: struct<age:int,_tmp_metadata_row_index:bigint>" in plan

        frame = spark.table("people")
        people.update({"age": "41"}, "id = 2")

        assert [tuple(row) for row in spark.sql(query).collect()] == [(2, 40)]
        assert [tuple(row) for row in views.sql(query).collect()] == [(2, 41)]
        assert [tuple(row) for row in spark.sql(query).collect()] == [(2, 41)]
        assert sorted(row.age for row in frame.collect()) == [17, 40]
    finally:
        views.drop()
    assert not spark.catalog.tableExists("people")
    assert views.names == []


def test_names_taken_in_spark_are_refused_and_others_can_be_chosen(lake, people, spark):
    spark.range(1).createOrReplaceTempView("people")
    try:
        with pytest.raises(delvec.TableAlreadyExists, match="already has a table or view 'people'"):
            lake.register_views(spark)
        with pytest.raises(delvec.TableNotFound):
            lake.register_views(spark, ["nothing"])
        with pytest.raises(delvec.BadRequest, match="list of names"):
            lake.register_views(spark, "people")

        views = lake.register_views(spark, {"grown_ups": people.location})

        assert spark.table("grown_ups").count() == 2
        assert spark.table("people").count() == 1
        views.drop()
    finally:
        spark.catalog.dropTempView("people")


def test_an_unreadable_table_does_not_affect_the_others(lake, people, spark, tmp_path):
    gone = lake.create_table(tmp_path / "gone", "id long")
    # Moved in one step: the service may be writing a checksum there.
    (tmp_path / "gone").rename(tmp_path / "elsewhere")

    with pytest.warns(UserWarning, match=f"No view was made of table '{gone.name}'"):
        views = lake.register_views(spark)

    assert views.names == ["people"]
    views.drop()
