"""What executed the attempts of a command."""

from delvec_engines.operation import Execution, attempt, executions, note_execution


def test_each_attempt_has_its_own_executions():
    note_execution(Execution("DuckDB in tasks"))
    assert executions() == []
    with attempt() as first:
        note_execution(Execution("DuckDB in tasks"))
        note_execution(Execution("DuckDB in tasks"))
        note_execution(Execution("Spark", "the plan is large"))
        with attempt() as inner:
            note_execution(Execution("DuckDB in the driver"))
            assert executions() == inner
        assert executions() == [Execution("DuckDB in tasks"), Execution("Spark", "the plan is large")]
    assert len(first) == 3
    assert executions() == []


def test_a_reason_follows_what_executes():
    assert str(Execution("DuckDB in tasks")) == "DuckDB in tasks"
    assert str(Execution("Spark", "the plan is large")) == "Spark: the plan is large"
