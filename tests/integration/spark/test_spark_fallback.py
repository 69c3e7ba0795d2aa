"""What a user gets if DuckDB fails in the driver or in tasks: the error at once, or Spark's rows and a word about it."""

import logging
from dataclasses import replace

import duckdb
import pyarrow as pa
import pytest

from delvec_engines.spark import choosing_engine, duckdb_tasks, fallback, local_execution
from delvec_engines.spark.local_execution import LocalExecution
from delvec_engines.spark.recent_failures import RecentFailures
from delvec_errors import (
    ConstraintViolation,
    EngineUnavailable,
    MultipleMatches,
    SchemaMismatch,
    StorageDenied,
)

pytestmark = [
    pytest.mark.spark,
    pytest.mark.full_on_spark("the gate has one case of each outcome: each starts jobs of Spark"),
]

FIND_ROWS = "delvec_engines.duckdb.engine.find_rows"


@pytest.fixture(autouse=True)
def _first_time(monkeypatch, caplog):
    monkeypatch.setattr(fallback, "_warned", set())
    monkeypatch.setattr(duckdb_tasks, "_failures", RecentFailures())
    for module in (choosing_engine, fallback):
        caplog.set_level(logging.INFO, module.__name__)


@pytest.fixture
def people(lake, tmp_path):
    table = lake.create_table(tmp_path / "people", "id long NOT NULL, n byte, name string")
    table.append([{"id": number, "n": number, "name": f"n{number}"} for number in range(5)])
    table.alter.add_constraint("small", "n < 50")
    return lambda session: lake.table(tmp_path / "people", engine=session)


@pytest.fixture(params=["driver", "tasks"])
def session(request):
    return request.getfixturevalue(f"spark_{request.param}")


def runs_on_spark(caplog):
    """Return the reasons why Spark ran commands."""
    lines = [record.getMessage() for record in caplog.records if record.name == choosing_engine.__name__]
    return [line.partition(" runs on Spark: ")[2] for line in lines if " runs on Spark: " in line]


def warnings(caplog):
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def too_large(table):
    return table.update({"n": "n + 46"})


def ambiguous(table):
    doubled = pa.table({"id": [1, 1]})
    return table.merge(doubled, "target.id = source.id").when_matched_update({"n": "1"}).execute()


def without_id(table):
    return table.update({"id": "nullif(id, 3)"})


@pytest.mark.parametrize(
    ("kind", "command"),
    [(ConstraintViolation, too_large), (MultipleMatches, ambiguous), (ConstraintViolation, without_id)],
)
def test_what_is_wrong_with_a_command_is_said_at_once(people, session, caplog, tmp_path, kind, command):
    table = people(session)
    before = sorted(tmp_path.rglob("*.parquet"))
    with pytest.raises(kind):
        command(table)
    assert runs_on_spark(caplog) == []
    assert warnings(caplog) == []
    assert table.version() == 2
    assert sorted(tmp_path.rglob("*.parquet")) == before


def test_the_error_is_the_one_that_spark_would_raise(people, spark, session):
    messages = []
    for each in (session, spark):
        with pytest.raises(ConstraintViolation) as raised:
            people(each).update({"n": "n + 50"}, "id = 4")
        messages.append(str(raised.value))
    assert messages[0] == messages[1]


def test_spark_says_which_value_does_not_fit(people, spark, session, caplog):
    messages = []
    for each in (session, spark):
        with pytest.raises(SchemaMismatch) as raised:
            people(each).update({"n": "n * 1000"}, "id = 4")
        messages.append(str(raised.value))
    assert messages[0] == messages[1]
    assert "a value does not fit into column 'n'" in runs_on_spark(caplog)[0]


@pytest.mark.gate
def test_a_constraint_that_duckdb_cannot_evaluate_is_checked_by_spark(
    people, spark_driver, caplog, monkeypatch
):
    def over(*_args, **_more):
        raise duckdb.ConversionException("an operand that Spark would skip")

    monkeypatch.setattr("delvec_engines.duckdb.statement_runner.DuckDBSession.over", over)
    done = people(spark_driver).update({"n": "n + 1"}, "id = 3")
    assert done["numUpdatedRows"] == 1
    assert done.executed_by.startswith("Spark: DuckDB in the driver failed: Constraint small (n < 50)")
    assert warnings(caplog) == []


@pytest.mark.gate
def test_after_a_defect_spark_runs_the_command_and_the_user_is_warned_once(
    people, spark_driver, caplog, monkeypatch
):
    def broken(*_args, **_more):
        raise AttributeError("a defect")

    monkeypatch.setattr(FIND_ROWS, broken)
    table = people(spark_driver)
    done = [table.delete("id = 1"), table.delete("id = 2")]
    assert [metrics["numDeletedRows"] for metrics in done] == [1, 1]
    reason = "DuckDB in the driver failed unexpectedly: AttributeError: a defect"
    assert {metrics.executed_by for metrics in done} == {f"Spark: {reason}"}
    assert runs_on_spark(caplog) == [f"{reason}."] * 2
    assert warnings(caplog) == ["DuckDB failed unexpectedly, so Spark runs DELETE; please report this"]


def test_after_a_defect_in_tasks_spark_runs_the_command(people, spark_tasks, caplog, monkeypatch):
    def broken(*_):
        raise AttributeError("a defect")

    # Nested functions are pickled by value, so the workers' own module is intact.
    monkeypatch.setattr(duckdb_tasks, "_run_share", broken)
    done = people(spark_tasks).delete("id = 1")
    assert done["numDeletedRows"] == 1
    assert done.executed_by.startswith("Spark: DuckDB in tasks failed unexpectedly: ")
    assert len(warnings(caplog)) == 1


def test_what_duckdb_has_too_little_memory_for_is_left_to_spark_without_a_warning(
    people, spark_driver, caplog, monkeypatch
):
    def full(*_args, **_more):
        raise EngineUnavailable("DuckDB ran out of memory")

    monkeypatch.setattr(FIND_ROWS, full)
    done = people(spark_driver).delete("id = 1")
    assert done.executed_by == "Spark: DuckDB in the driver failed: DuckDB ran out of memory"
    assert warnings(caplog) == []


@pytest.mark.parametrize("kind", [KeyboardInterrupt, duckdb.InterruptException])
def test_an_interrupted_command_is_not_run_again(people, spark_driver, caplog, monkeypatch, kind):
    def interrupted(*_args, **_more):
        raise kind

    monkeypatch.setattr(FIND_ROWS, interrupted)
    with pytest.raises(kind):
        people(spark_driver).delete("id = 1")
    assert runs_on_spark(caplog) == []
    assert people(spark_driver).version() == 2


def test_rules_of_the_table_that_may_differ_in_meaning_are_left_to_spark(
    lake, spark_driver, caplog, tmp_path
):
    table = lake.create_table(tmp_path / "t", "id long, name string")
    table.append([{"id": 1, "name": "a"}])
    table.alter.add_constraint("letters", "name RLIKE '^[a-z]+$'")
    done = lake.table(tmp_path / "t", engine=spark_driver).update({"name": "concat(name, 'b')"})
    assert "the table's expression" in done.executed_by
    assert "may not mean the same on both engines" in done.executed_by


@pytest.mark.gate
def test_if_executors_lack_a_package_spark_takes_over_and_tasks_are_not_tried_again(
    people, spark_tasks, caplog, monkeypatch
):
    def broken(*_):
        raise ModuleNotFoundError("No module named 'duckdb'")

    table = people(spark_tasks)
    with monkeypatch.context() as patch:
        patch.setattr(duckdb_tasks, "_run_share", broken)
        first = table.delete("id = 3")
    second = table.delete("id = 4")
    assert (first["numDeletedRows"], second["numDeletedRows"]) == (1, 1)
    assert first.executed_by.startswith("Spark: DuckDB in tasks failed: Spark's executors cannot run DuckDB")
    assert "tasks failed a few minutes ago: " in second.executed_by
    assert warnings(caplog) == []
    monkeypatch.setattr(duckdb_tasks, "_failures", RecentFailures())
    assert table.delete("id = 2").executed_by == "DuckDB in tasks"


def test_storage_that_the_driver_cannot_reach_is_not_tried_for_each_command(
    spark_driver, make_scan, monkeypatch, caplog
):
    monkeypatch.setattr(local_execution, "_unreachable", RecentFailures())
    scan = make_scan([{"name": "a.parquet", "rows": pa.table({"id": [1]})}], pa.schema([("id", pa.int64())]))
    scan, other = (replace(scan, location=f"s3://{bucket}/t") for bucket in ("ours", "theirs"))
    execution = LocalExecution(spark_driver)

    def refused(_):
        raise StorageDenied("no credentials")

    choice = choosing_engine._Choice(execution)
    assert execution.unsuitable(scan) is None
    assert choosing_engine._executed(scan, choice, refused, lambda: "by Spark") == "by Spark"
    assert "no credentials" in runs_on_spark(caplog)[0]
    assert execution.unsuitable(scan) == "storage did not respond to the driver a few minutes ago"
    assert execution.unsuitable(other) is None
