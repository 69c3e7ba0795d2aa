"""Names in Spark's catalog, in a session with delta-spark: Delta tables are found anywhere, others are reported."""

import pytest

import delvec
from delvec.spark import DeltaTable, sql, use

pytestmark = [
    pytest.mark.jars,
    pytest.mark.spark,
    pytest.mark.full_on_spark(
        "delta-spark takes seconds for each; the gate has both ways of reading and writing, and a race"
    ),
]


def test_a_name_is_looked_up_in_the_catalog_first(lake, delta_spark, tmp_path):
    use(lake)
    try:
        lake.create_table(tmp_path / "by path", "id long").append([{"id": 1}])
        delta_spark.sql(f"CREATE TABLE external_one USING delta LOCATION '{tmp_path}/by path'")
        delta_spark.sql("CREATE TABLE managed_one USING delta AS SELECT 2L AS id, 'x' AS Location")
        delta_spark.sql("CREATE DATABASE IF NOT EXISTS others")
        delta_spark.sql("CREATE TABLE others.managed_one USING delta AS SELECT 3L AS id")
        delta_spark.sql(f"CREATE TABLE of_parquet USING parquet LOCATION '{tmp_path}/p' AS SELECT 4L AS id")
        delta_spark.sql("CREATE VIEW view_of_one AS SELECT * FROM managed_one")
        lake.create_table(tmp_path / "mine", "mine long", name="managed_one")

        found = {
            name: DeltaTable.forName(delta_spark, name).toDF().first()[0]
            for name in (
                "external_one",
                "managed_one",
                "others.managed_one",
                "spark_catalog.default.managed_one",
            )
        }

        assert list(found.values()) == [1, 2, 3, 2]
        for name, what in (("of_parquet", "USING parquet"), ("view_of_one", "a view")):
            with pytest.raises(delvec.NotADeltaTable, match=what):
                DeltaTable.forName(delta_spark, name)
        with pytest.raises(delvec.TableAlreadyExists):
            DeltaTable.create(delta_spark).tableName("managed_one").addColumn("x", "int").execute()
        there = (
            DeltaTable.createIfNotExists(delta_spark).tableName("managed_one").addColumn("x", "int").execute()
        )
        assert there.toDF().first()[0] == 2
        for mode, name in (("replace", "managed_one"), ("createOrReplace", "others.managed_one")):
            getattr(DeltaTable, mode)(delta_spark).tableName(name).addColumn("x", "int").execute()
            assert delta_spark.table(name).columns == ["x"]
        assert lake.table("managed_one").schema().names == ["mine"]
        DeltaTable.forName(delta_spark, "external_one").delete("id = 1")
        assert delta_spark.table("external_one").count() == 0
    finally:
        use(None)
        delta_spark.sql("DROP DATABASE IF EXISTS others CASCADE")
        for name in ("external_one", "managed_one", "of_parquet"):
            delta_spark.sql(f"DROP TABLE IF EXISTS {name}")
        delta_spark.sql("DROP VIEW IF EXISTS view_of_one")


def test_a_built_table_has_its_name_in_the_catalog_until_it_is_dropped(lake, delta_spark):
    use(lake)
    session = sql(delta_spark, lake)
    try:
        builder = DeltaTable.create(delta_spark).tableName("built").addColumn("id", "long")
        built = builder.addColumn("next", "long", generatedAlwaysAs="id + 1").execute()
        delta_spark.sql("INSERT INTO built (id) VALUES (1)")
        built.update(set={"id": "5"})
        assert [tuple(row) for row in delta_spark.table("built").collect()] == [(5, 6)]
        session.sql("DROP TABLE built")
        delta_spark.sql("CREATE TABLE only_there (id int) USING parquet")
        session.sql("DROP TABLE IF EXISTS only_there")
        assert not any(delta_spark.catalog.tableExists(name) for name in ("built", "only_there"))
    finally:
        use(None)
        for name in ("built", "only_there"):
            delta_spark.sql(f"DROP TABLE IF EXISTS {name}")
