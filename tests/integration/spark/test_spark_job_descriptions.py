"""Spark's UI says what each job is for; a program's own description is kept."""

import pytest

import delvec
from delvec_engines.operation import operation, running
from delvec_engines.spark import SparkEngine
from delvec_engines.spark.job_descriptions import described

pytestmark = [
    pytest.mark.spark,
    pytest.mark.full_on_spark("the gate has the main cases: each starts jobs of Spark"),
]

DESCRIPTION = "spark.job.description"


@pytest.fixture
def events(spark, tmp_path):
    with delvec.connect(database_url=f"sqlite:///{tmp_path}/delvec.db") as lake:
        table = lake.create_table(tmp_path / "events", "id long, kind string", engine=SparkEngine(spark))
        table.append(spark.range(100).selectExpr("id", "'a' kind"))
        yield table


def jobs(spark, action):
    """Return the descriptions of an action's jobs."""
    store = spark.sparkContext._jsc.sc().statusStore()

    def ids():
        found = store.jobsList(None)
        return {found.apply(at).jobId(): found.apply(at).description() for at in range(found.size())}

    before = ids()
    action()
    told = {number: text for number, text in ids().items() if number not in before}
    assert told
    return {text.get() if text.isDefined() else None for text in told.values()}


@pytest.mark.full("runs all commands on Spark once more")
def test_jobs_of_commands_are_described(spark, events):
    source = spark.createDataFrame([(1, "b"), (1000, "c")], "id long, kind string")
    merge = (
        events.merge(source, "source.id = target.id").when_matched_update_all().when_not_matched_insert_all()
    )
    spark.sparkContext.setJobDescription(None)

    assert jobs(spark, lambda: events.delete("id % 10 = 3")) == {"delvec DELETE events: find rows"}
    assert jobs(spark, lambda: events.update({"kind": "'u'"}, "id = 5")) == {
        "delvec UPDATE events: change rows"
    }
    assert jobs(spark, merge.execute) == {
        "delvec MERGE: read the source",
        "delvec MERGE events: change rows",
        "delvec MERGE events: insert rows",
    }
    assert jobs(spark, lambda: events.append(spark.range(2).selectExpr("id", "'x' kind"))) == {
        "delvec WRITE events: write files"
    }
    assert jobs(spark, events.to_arrow) == {"delvec READ events: read rows"}
    # Actions on a DataFrame are the program's own.
    assert jobs(spark, lambda: events.to_df().collect()) == {None}
    assert spark.sparkContext.getLocalProperty(DESCRIPTION) is None


def test_the_programs_own_description_is_kept(spark, events):
    spark.sparkContext.setJobDescription("nightly load")
    try:
        assert jobs(spark, lambda: events.delete("id % 10 = 4")) == {
            "nightly load: delvec DELETE events: find rows"
        }
        with pytest.raises(delvec.InvalidPredicate):
            events.delete("id / 0 > 1 AND kind > raise_error('x')")
        assert spark.sparkContext.getLocalProperty(DESCRIPTION) == "nightly load"
        with running("MERGE"), running("DELETE"), described(spark, "t", "one"), described(spark, "t", "two"):
            assert spark.sparkContext.getLocalProperty(DESCRIPTION) == "nightly load: delvec MERGE t: two"
        assert operation() == "READ"
    finally:
        spark.sparkContext.setJobDescription(None)


def test_spark_connect_has_tags():
    tags = {"own"}
    methods = {"getTags": lambda _: set(tags), "addTag": lambda _, tag: tags.add(tag)}
    methods["removeTag"] = lambda _, tag: tags.discard(tag)
    remote = type("SparkSession", (), methods | {"__module__": "pyspark.sql.connect.session"})()

    with described(remote, "a,b", "find rows"), described(remote, "a,b", "find rows"):
        assert tags == {"own", "delvec READ a;b: find rows"}
    assert tags == {"own"}
