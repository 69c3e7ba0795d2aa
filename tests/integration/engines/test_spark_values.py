"""Queries in Spark's SQL have Spark's values on each engine."""

import datetime as dt
from decimal import Decimal

import pytest

pytestmark = pytest.mark.full_on_spark("the same on DuckDB in the gate, with the values that Spark gave")

VALUES = [
    ("CAST(x AS INT)", 2),
    ("CAST(-x AS INT)", -2),
    ("CAST(avg(x) OVER () AS INT)", 2),
    ("CAST(m AS INT)", 19),
    ("CAST((SELECT max(m) FROM spark_values) AS INT)", 19),
    ("CAST(' 7 ' AS INT)", 7),
    ("TRY_CAST(s AS INT)", None),
    ("dayofweek(d)", 1),
    ("weekday(d)", 6),
    ("date_add(d, 2)", dt.date(2024, 1, 9)),
    ("date_sub(d, 2)", dt.date(2024, 1, 5)),
    ("datediff(d, DATE'2024-01-01')", 6),
    ("unix_timestamp(ts)", 1704067200),
    ("substring('hello', 0, 2)", "he"),
    ("upper('straße')", "STRASSE"),
    ("i / 2", 3.5),
    ("i DIV 2", 3),
    ("i % 4", 3),
    ("m + 1", Decimal("20.99")),
    ("st.n + i", 10),
    ("a[0]", 1),
    ("mp['k']", 5),
    ("f = 0.1", False),
    ("s LIKE 'h_llo'", True),
    ("s RLIKE '^h.*o$'", True),
    ("coalesce(nothing, 'none')", "none"),
    ("if(x > 2, 'big', 'small')", "big"),
    ("i BETWEEN 7 AND 9 AND x NOT IN (1.5)", True),
    ("i = '7'", True),
    ("size(filter(a, v -> CAST(v + 0.7 AS INT) = 1))", 1),
]
RESULTS = [
    ("SELECT sum(i) AS v FROM spark_values", [7]),
    ("SELECT sum(CASE WHEN CAST(x AS INT) = 2 THEN 1 ELSE 0 END) AS v FROM spark_values", [1]),
    ("SELECT CAST(sum(x) / count(*) AS INT) AS v FROM spark_values", [2]),
    ("SELECT collect_list(nothing) AS v FROM spark_values", [[]]),
    ("SELECT collect_set(nothing) AS v FROM spark_values", [[]]),
    ("WITH w AS (SELECT x AS y FROM spark_values) SELECT CAST(y AS INT) AS v FROM w", [2]),
    ("SELECT CAST(y AS INT) AS v FROM (SELECT x AS y FROM spark_values) AS inner_query", [2]),
    ("SELECT CAST(b.x AS INT) AS v FROM spark_values AS a JOIN spark_values AS b ON a.i = b.i", [2]),
    ("SELECT i AS v FROM spark_values WHERE CAST(x AS INT) = 2", [7]),
    ("SELECT i AS v FROM spark_values WHERE i IN (SELECT i FROM spark_values WHERE CAST(x AS INT) = 2)", [7]),
    (
        "SELECT CAST(x AS INT) AS v FROM spark_values GROUP BY CAST(x AS INT) HAVING CAST(sum(x) AS INT) = 2",
        [2],
    ),
    ("SELECT x AS i FROM spark_values ORDER BY i + 1", [2.7]),
    ("SELECT i AS v FROM spark_values UNION ALL SELECT CAST(x AS INT) FROM spark_values ORDER BY v", [2, 7]),
]


@pytest.fixture
def rows(lake, tmp_path, engine):
    """``rows(text)`` runs a query over the table ``spark_values``."""
    table = lake.create_table(
        tmp_path / "values",
        "x double, i int, m decimal(10,2), d date, ts timestamp, s string, nothing string, f float, st struct<n: int>, "
        "a array<int>, mp map<string, int>",
    )
    row = {"x": 2.7, "i": 7, "m": Decimal("19.99"), "d": dt.date(2024, 1, 7), "s": "hello", "f": 0.1}
    row |= {"ts": dt.datetime(2024, 1, 1, tzinfo=dt.UTC), "st": {"n": 3}, "a": [1, 2], "mp": {"k": 5}}
    table.append([row])

    def run(text):
        found = lake.sql(text.replace("spark_values", f"delta.`{tmp_path}/values`"), engine=engine)
        return (found.toArrow() if hasattr(found, "toArrow") else found).to_pylist()

    return run


def test_values(rows):
    listed = ", ".join(f"{value} AS v{number}" for number, (value, _) in enumerate(VALUES))
    (found,) = rows(f"SELECT {listed} FROM spark_values")
    assert dict(zip((value for value, _ in VALUES), found.values(), strict=True)) == dict(VALUES)


def test_values_in_every_part_of_a_query(rows):
    found = {text: [next(iter(row.values())) for row in rows(text)] for text, _ in RESULTS}
    assert found == dict(RESULTS)


def test_names_of_results(rows):
    text = "SELECT count(*), sum(i), max(m), CAST(max(x) AS INT), sum(i) + 1 FROM spark_values"
    (found,) = rows(text)
    assert list(found) == ["count(1)", "sum(i)", "max(m)", "CAST(max(x) AS INT)", "(sum(i) + 1)"]
