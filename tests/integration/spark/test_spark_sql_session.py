"""Statements of Delvec in a Spark session: they see its views, and the rest is Spark's."""

import pytest
from pyspark.errors import AnalysisException
from tests.conftest import as_users_have_it

import delvec
from delvec.spark import sql

pytestmark = [pytest.mark.spark]


@pytest.fixture(scope="session")
def spark(spark):
    """A session as users have it: DuckDB runs small commands in the driver."""
    return as_users_have_it(spark)


@pytest.fixture
def lake(tmp_path):
    with delvec.connect(tmp_path / "lake", database_url="sqlite://") as lake:
        lake.sql("CREATE TABLE folk (id BIGINT, name STRING)")
        lake.sql("INSERT INTO folk VALUES (1, 'Ada'), (2, 'Bob'), (3, 'Cy')")
        yield lake


@pytest.fixture
def fresh(spark):
    spark.createDataFrame([(2, "Bo"), (4, "Di")], "id long, name string").createOrReplaceTempView("fresh")
    yield
    spark.catalog.dropTempView("fresh")


def test_statements_see_the_views_of_the_session_and_other_statements_are_spark_s(lake, spark, fresh):
    session = sql(spark, lake)
    merged = session.sql(
        "MERGE INTO folk USING fresh ON folk.id = fresh.id WHEN MATCHED AND folk.id IN (SELECT id FROM fresh) THEN UPDATE "
        "SET * WHEN NOT MATCHED THEN INSERT *"
    ).collect()[0]
    assert (merged.numTargetRowsUpdated, merged.numTargetRowsInserted) == (1, 1)
    assert "(DuckDB in the driver)" in lake.table("folk").history(1)[0]["engineInfo"]
    session.sql(
        "DELETE FROM folk WHERE id = (SELECT min(id) FROM folk) OR EXISTS (SELECT 1 FROM fresh f WHERE f.id = folk.id)"
    )
    assert [tuple(row) for row in session.sql("SELECT * FROM folk LEFT JOIN fresh USING (id)").collect()] == [
        (3, "Cy", None)
    ]
    assert session.sql("CREATE TABLE made AS SELECT * FROM fresh").count() == 1
    assert session.table("made").count() == 2
    assert session.table("fresh").count() == 2
    assert session.sql("SET spark.sql.ansi.enabled").count() == 1
    assert session.sql("DESCRIBE folk").count() == 2
    detail = session.sql("DESCRIBE DETAIL folk").first()
    assert (detail.format, detail.partitionColumns, detail.properties["delta.enableDeletionVectors"]) == (
        "delta",
        [],
        "true",
    )
    history = session.sql("DESC HISTORY folk LIMIT 2")
    assert [(row.operation, row.operationMetrics["numDeletedRows"]) for row in history.take(1)] == [
        ("DELETE", "3")
    ]
    with pytest.raises(delvec.RetentionTooShort):
        session.sql("VACUUM folk RETAIN 0 HOURS")
    session.sql("SET spark.databricks.delta.retentionDurationCheck.enabled = false")
    assert session.sql("VACUUM folk RETAIN 0 HOURS").first().path.endswith("folk")
    session.conf.unset("spark.databricks.delta.retentionDurationCheck.enabled")
    assert session.sql("SELECT id FROM fresh WHERE id > :least", args={"least": 3}).count() == 1
    assert session.range(3).count() == 3
    explained = lake.sql("EXPLAIN DELETE FROM folk WHERE id = 3", engine=spark).to_pylist()
    assert explained[0]["engine"] == "DuckDB in the driver"
    with pytest.raises(AnalysisException):
        session.sql("SELECT * FROM nobody")
    with pytest.raises(delvec.TableNotFound):
        lake.sql("SELECT * FROM nobody", engine=spark)


def test_a_statement_numbers_its_few_rows_without_gaps(lake, spark):
    lake.sql("CREATE TABLE visits (n BIGINT GENERATED ALWAYS AS IDENTITY, who STRING)")
    for who in ("('Ada'), ('Bob')", "('Cy')"):
        sql(spark, lake).sql(f"INSERT INTO visits (who) VALUES {who}")
    assert sorted(lake.table("visits").to_arrow()["n"].to_pylist()) == [1, 2, 3]
