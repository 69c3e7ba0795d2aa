"""Queries in Spark's SQL on DuckDB: what is refused, and what is left as it is; values are compared with Spark's elsewhere.

See `tests/integration/engines/test_spark_values.py`.
"""

import datetime as dt

import pytest

from delvec_errors import InvalidStatement


@pytest.fixture
def numbers(lake, tmp_path):
    table = lake.create_table(tmp_path / "numbers", "id long, x double", name="numbers")
    table.append([{"id": 1, "x": 2.7}, {"id": 2, "x": 2.2}, {"id": 3, "x": 1.6}])
    return table


def ids(lake, text, **options):
    return sorted(lake.sql(text, **options)["id"].to_pylist())


def test_a_condition_selects_the_rows_that_a_delete_removes(lake, numbers):
    condition = "CAST(x AS INT) = 2"
    assert ids(lake, f"SELECT id FROM numbers WHERE {condition}") == [1, 2]
    lake.sql(f"DELETE FROM numbers WHERE {condition}")
    assert ids(lake, "SELECT id FROM numbers") == [3]


def test_statements_store_the_values_of_their_queries(lake, numbers, tmp_path):
    lake.sql(
        f"CREATE TABLE delta.`{tmp_path}/made` AS SELECT id, CAST(x AS INT) AS c, sum(id) OVER () AS s FROM numbers"
    )
    lake.sql(
        "MERGE INTO numbers t USING (SELECT id, CAST(x AS INT) AS c FROM numbers) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET x = s.c"
    )
    assert sorted(lake.sql(f"SELECT c FROM delta.`{tmp_path}/made`")["c"].to_pylist()) == [1, 2, 2]
    assert sorted(lake.sql("SELECT x FROM numbers")["x"].to_pylist()) == [1.0, 2.0, 2.0]


@pytest.mark.usefixtures("numbers")
@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("id / 0", "division by zero"),
        ("id % (id - id)", "division by zero"),
        ("CAST('2.7' AS INT)", "not a whole number"),
        ("hash(id)", "hash.. is not supported when DuckDB runs the query. Pass engine=spark"),
        ("uper('a')", "Spark has no function uper..; did you mean 'upper'"),
        ("my_own(id)", "engine=spark and functions=..my_own"),
    ],
)
def test_values_that_spark_refuses_or_duckdb_has_otherwise(lake, value, reason):
    with pytest.raises(InvalidStatement, match=reason):
        lake.sql(f"SELECT {value} AS v FROM numbers")


def test_times_are_written_without_a_zone(lake, tmp_path):
    times = lake.create_table(tmp_path / "times", "at timestamp", name="times")
    times.append([{"at": dt.datetime(2024, 1, 1, 2, 3, 4, 500000, tzinfo=dt.UTC)}])
    text = "SELECT CAST(at AS STRING) AS a, string(at) AS b, 'at ' || CAST(at AS STRING) AS c FROM times"
    written = "2024-01-01 02:03:04.5"
    assert lake.sql(text).to_pylist() == [{"a": written, "b": written, "c": f"at {written}"}]


@pytest.mark.usefixtures("numbers")
def test_queries_in_duckdbs_dialect_have_its_values(lake):
    assert ids(lake, "SELECT id FROM numbers WHERE CAST(x AS INT) = 2", dialect="duckdb") == [2, 3]
    assert lake.sql("SELECT count(*) FROM numbers", dialect="duckdb").column_names == ["count_star()"]


@pytest.mark.usefixtures("numbers")
def test_long_conditions(lake):
    anything = " OR ".join(f"id = {number}" for number in range(1500))
    assert ids(lake, f"SELECT id FROM numbers WHERE {anything}") == [1, 2, 3]
