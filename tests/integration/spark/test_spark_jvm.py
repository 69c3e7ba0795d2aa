"""What Spark tells through private handles: the same by each way to ask, on every version, and nothing if all are gone."""

import pytest
from pyspark.sql import functions as F  # noqa: N812

import delvec
from delvec.spark.column_texts import to_sql
from delvec.spark.delta_merge_builder import alias_of
from delvec_engines.spark import jvm
from delvec_engines.spark.choosing_engine import reason_for_spark
from delvec_engines.spark.engine_equivalence import _BUILT_IN
from delvec_engines.spark.frame_reads import options_of_reads, versions_read
from delvec_errors import BadRequest, InvalidPredicate, UnsupportedOperation

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    with delvec.connect(database_url=f"sqlite:///{tmp_path_factory.mktemp('lake')}/delvec.db") as lake:
        yield lake


@pytest.fixture(scope="module")
def table(lake, tmp_path_factory):
    table = lake.create_table(tmp_path_factory.mktemp("tables") / "t", "id long, name string")
    table.append([{"id": number, "name": f"n{number}"} for number in range(4)])
    return table


@pytest.fixture
def each_way(monkeypatch):
    """``each_way(ask)``: the answers if only the first ways work, only the second, ..., and the one if none works."""

    def each_way(ask):
        most = 0

        def only(number):
            def first(what, *ways):
                nonlocal most
                most = max(most, len(ways))
                return ways[min(number, len(ways) - 1)]()

            return first

        answers = []
        while len(answers) <= most - 1 or not answers:
            monkeypatch.setattr(jvm, "_first", only(len(answers)))
            answers.append(ask())
        monkeypatch.setattr(jvm, "_first", lambda *_: None)
        return answers, ask()

    return each_way


def test_settings(spark, each_way):
    spark.conf.set("spark.sql.legacy.doLooseUpcast", "false")
    try:
        answers, nothing = each_way(lambda: jvm.settings(spark))
        assert ["spark.sql.legacy.doLooseUpcast" in answer for answer in answers] == [True, True]
        assert nothing is None
    finally:
        spark.conf.unset("spark.sql.legacy.doLooseUpcast")


def test_functions(spark, each_way):
    answers, nothing = each_way(lambda: jvm.function_class(spark, "UPPER"))

    assert (answers, nothing) == (["org.apache.spark.sql.catalyst.expressions.Upper"], None)
    assert jvm.function_class(spark, "no_such_function") is None


def test_a_function_of_the_session_is_what_its_queries_call(spark):
    """Until Spark 4.2 it replaces the built-in one, later that depends on settings."""
    session = spark.newSession()
    session.udf.register("soundex", lambda _: "mine")

    is_built_in = session.sql("SELECT soundex('x')").first()[0] != "mine"

    assert (jvm.function_class(session, "soundex") or "").startswith(_BUILT_IN) == is_built_in


def test_the_size_of_a_frame(spark, each_way):
    frame = spark.range(100).selectExpr("explode(array(id, id)) n")

    (size,), nothing = each_way(lambda: jvm.expected_size(frame))

    assert (0 < size.nbytes < 10_000, "Generate" in size.plan, nothing) == (True, True, None)


@pytest.mark.parametrize("condition", ["id > 1", "id > (SELECT min(id) FROM own_rows)", "id > 100"])
def test_which_versions_a_frame_reads(spark, table, lake, each_way, condition):
    frame = lake.table(table.location, engine=spark).to_df()
    frame.createOrReplaceTempView("own_rows")

    answers, nothing = each_way(
        lambda: versions_read(spark.sql(f"SELECT id FROM own_rows WHERE {condition}"))
    )

    assert (answers, nothing) == ([{(table.id, 1)}] * len(answers), frozenset())
    assert len(answers) == 2


def test_an_overwrite_with_own_rows_of_an_unknown_version_is_refused(spark, lake, tmp_path, monkeypatch):
    table = lake.create_table(tmp_path / "a b", "id long")
    table.append([{"id": number} for number in range(4)])
    own = lake.table(table.location, engine=spark).to_df().where("id > 1")
    monkeypatch.setattr(jvm, "_first", lambda *_: None)

    with pytest.raises(UnsupportedOperation, match="does not tell their version"):
        lake.table(table.location, engine=spark).overwrite(own)
    lake.table(table.location, engine=spark).overwrite(spark.range(7, 9).toDF("id"))

    assert sorted(table.to_arrow()["id"].to_pylist()) == [7, 8]


@pytest.mark.full("the smoke on another PySpark runs this module")
def test_which_tables_a_frame_reads_by_format(spark, table, each_way):
    frame = spark.read.format("delvec").option("versionAsOf", 1).load(table.location).where("id > 1")

    answers, nothing = each_way(lambda: options_of_reads(frame, "delvec", ["path", "versionasof", "other"]))

    assert (answers[0], nothing) == ([{"path": table.location, "versionasof": "1"}], [])


@pytest.mark.parametrize(
    ("name", "made"),
    [
        ("s", lambda frame: frame.alias("s")),
        (None, lambda frame: frame.alias("s").where("id > 1")),
        (
            "own_view",
            lambda frame: frame.createOrReplaceTempView("own_view") or frame.sparkSession.table("own_view"),
        ),
    ],
)
def test_the_alias_of_a_frame(spark, each_way, name, made):
    frame = made(spark.range(3))

    answers, nothing = each_way(lambda: alias_of(frame))

    assert (answers, nothing) == ([name, name], None)


def test_a_column_whose_expression_is_unknown_is_refused(spark, each_way, monkeypatch):
    column = F.upper(F.col("name")) == F.lit("A")
    assert to_sql(column) == "(upper(`name`) = 'A')"

    monkeypatch.setattr(jvm, "_first", lambda *_: None)
    with pytest.raises(InvalidPredicate, match="give the SQL text, such as"):
        to_sql(column)


def test_file_systems(spark, each_way):
    answers, nothing = each_way(lambda: jvm.file_system_error(spark, "nosuch"))

    assert ["nosuch" in answer for answer in answers] == [True, True]
    assert nothing is None
    assert jvm.file_system_error(spark, "file") is None


@pytest.mark.parametrize("session", ["spark_driver", "spark_tasks"])
def test_commands_run_on_spark_if_nothing_is_known(lake, table, request, monkeypatch, tmp_path, session):
    spark = request.getfixturevalue(session)
    copy = lake.create_table(tmp_path / "t", "id long, name string")
    copy.append(table.to_arrow())
    copy = lake.table(copy.location, engine=spark)
    source = spark.createDataFrame([(1, "one"), (9, "nine")], "id long, name string")
    monkeypatch.setattr(jvm, "_first", lambda *_: None)

    copy.update({"name": "upper(name)"}, "length(name) = 2")
    copy.merge(source, "target.id = source.id").when_matched_delete().when_not_matched_insert_all().execute()
    copy.delete("lower(name) = 'n0'")

    assert sorted(copy.to_arrow().to_pylist(), key=lambda row: row["id"]) == [
        {"id": 2, "name": "N2"},
        {"id": 3, "name": "N3"},
        {"id": 9, "name": "nine"},
    ]


def test_a_decision_that_fails_is_for_spark(caplog):
    def fail():
        raise AssertionError("Function identifier must be fully qualified")

    assert "must be fully qualified" in reason_for_spark(fail)
    assert "cannot decide" in caplog.text

    def refuse():
        raise BadRequest("spark.delvec.localExecution.enabled must be true or false")

    with pytest.raises(BadRequest):
        reason_for_spark(refuse)
