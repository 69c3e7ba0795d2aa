"""Queries in Spark's SQL have Spark's values on each engine."""

import datetime as dt
import re
from decimal import Decimal

import pytest

from delvec_errors import InvalidStatement, SchemaMismatch

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
    ("CAST(i AS DECIMAL(10,2))", Decimal("7.00")),
    ("CAST(x + 0.05 AS DECIMAL(3,1))", Decimal("2.8")),
    ("CAST(sum(m) OVER () AS DECIMAL(4,1))", Decimal("20.0")),
    ("TRY_CAST(s AS DECIMAL(10,2))", None),
    ("TRY_CAST(m AS DECIMAL(3,2))", None),
    ("m = 19.990BD", True),
    ("s || CAST(i AS DECIMAL(3,1))", "hello7.0"),
    ("bigint(x)", 2),
    ("smallint(x)", 2),
    ("tinyint('7')", 7),
    ("decimal(m)", Decimal(20)),
    ("binary(s)", b"hello"),
    ("extract(DOW FROM d)", 1),
    ("extract(DAYOFWEEK FROM d)", 1),
    ("add_months(d, 1)", dt.date(2024, 2, 7)),
    ("trunc(d, 'year')", dt.date(2024, 1, 1)),
    ("date_from_unix_date(1)", dt.date(1970, 1, 2)),
    ("d + INTERVAL 1 DAY", dt.date(2024, 1, 8)),
    ("d - INTERVAL 2 MONTHS", dt.date(2023, 11, 7)),
    ("CAST(d + INTERVAL 1 WEEK AS STRING)", "2024-01-14"),
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
    ("SELECT i AS v FROM spark_values WHERE CAST(x AS DECIMAL(2,1)) = 2.7", [7]),
    ("SELECT CAST(m AS DECIMAL(3,0)) AS v FROM spark_values GROUP BY CAST(m AS DECIMAL(3,0))", [20]),
    ("SELECT x AS i FROM spark_values ORDER BY i + 1", [2.7]),
    ("SELECT i AS v FROM spark_values UNION ALL SELECT CAST(x AS INT) FROM spark_values ORDER BY v", [2, 7]),
]
TYPED = [
    ("year(d)", "int32", 2024),
    ("quarter(d)", "int32", 1),
    ("month(ts)", "int32", 1),
    ("day(d)", "int32", 7),
    ("dayofyear(d)", "int32", 7),
    ("dayofweek(d)", "int32", 1),
    ("weekday(d)", "int32", 6),
    ("weekofyear(d)", "int32", 1),
    ("hour(ts)", "int32", 0),
    ("extract(week FROM d)", "int32", 1),
    ("date_part('year', d)", "int32", 2024),
    ("datediff(d, DATE'2024-01-01')", "int32", 6),
    ("add_months(d, 1)", "date32[day]", dt.date(2024, 2, 7)),
    ("trunc(d, 'MM')", "date32[day]", dt.date(2024, 1, 1)),
    ("date_trunc('MONTH', d)", "timestamp[us, tz=UTC]", dt.datetime(2024, 1, 1, 0, 0, tzinfo=dt.UTC)),
    ("d + INTERVAL 1 MONTH", "date32[day]", dt.date(2024, 2, 7)),
    ("last_day(d)", "date32[day]", dt.date(2024, 1, 31)),
    ("next_day(d, 'MO')", "date32[day]", dt.date(2024, 1, 8)),
    ("date_format(ts, 'yyyy-MM-dd HH:mm')", "string", "2024-01-01 00:00"),
    (
        "to_timestamp('05/01/2024 10', 'dd/MM/yyyy HH')",
        "timestamp[us, tz=UTC]",
        dt.datetime(2024, 1, 5, 10, 0, tzinfo=dt.UTC),
    ),
    ("unix_timestamp(TIMESTAMP'1969-12-31 23:59:59.5')", "int64", 0),
    ("unix_seconds(TIMESTAMP'1969-12-31 23:59:59.5')", "int64", -1),
    ("CAST(TIMESTAMP'1969-12-31 23:59:59.5' AS STRING)", "string", "1969-12-31 23:59:59.5"),
    ("CAST(ts AS BIGINT)", "int64", 1704067200),
    ("date_from_unix_date(1)", "date32[day]", dt.date(1970, 1, 2)),
    ("CAST(12.5 AS DECIMAL(10,2))", "decimal128(10, 2)", Decimal("12.50")),
    ("CAST(x AS DECIMAL(5,1))", "decimal128(5, 1)", Decimal("2.7")),
    ("CAST(x AS STRING)", "string", "2.7"),
    ("TRY_CAST('a' AS INT)", "int32", None),
    ("floor(x)", "int64", 2),
    ("ceil(-x)", "int64", -2),
    ("floor(i)", "int64", 7),
    ("sign(-x)", "double", -1.0),
    ("ln(-x)", "double", None),
    ("log2(x - x)", "double", None),
    ("log10(100.0D)", "double", 2.0),
    ("round(2.675D, 2)", "double", 2.68),
    ("round(x)", "double", 3.0),
    ("bit_count(-3)", "int32", 63),
    ("factorial(5)", "int64", 120),
    ("length(s)", "int32", 5),
    ("octet_length('ä')", "int32", 2),
    ("instr(s, 'l')", "int32", 3),
    ("locate('l', s, 4)", "int32", 4),
    ("levenshtein(s, 'help')", "int32", 2),
    ("ascii(s)", "int32", 104),
    ("regexp_count(s, 'l')", "int32", 2),
    ("regexp_replace(s, 'l+', 'L')", "string", "heLo"),
    ("regexp_extract(s, '(h)(e)', 2)", "string", "e"),
    ("regexp_replace(concat('a', char(13), 'b'), 'a.b', 'x')", "string", "a\rb"),
    ("split(s, 'l')", "list<element: string>", ["he", "", "o"]),
    ("size(a)", "int32", 2),
    ("size(mp)", "int32", 1),
    ("cardinality(a)", "int32", 2),
    ("array_position(a, 9)", "int64", 0),
    ("array_contains(array(1, NULL), 2)", "bool", None),
    ("array_contains(a, 2)", "bool", True),
    ("sort_array(array(3, NULL, 1))", "list<element: int32>", [None, 1, 3]),
    ("sort_array(array(3, NULL, 1), false)", "list<element: int32>", [3, 1, None]),
    ("array_sort(array(3, NULL, 1))", "list<element: int32>", [1, 3, None]),
    ("row_number() OVER (ORDER BY i)", "int32", 1),
    ("rank() OVER (ORDER BY i)", "int32", 1),
    ("sum(i) OVER ()", "int64", 7),
    ("map_keys(mp)", "list<element: string>", ["k"]),
    ("i + 1", "int32", 8),
    ("-2147483648 + i", "int32", -2147483641),
    ("pmod(-i, 3)", "int32", 2),
    ("pmod(i, -3)", "int32", 1),
    ("pmod(-x, 2)", "double", 1.2999999999999998),
    ("exists(a, e -> e > 1)", "bool", True),
    ("element_at(a, 2)", "int32", 2),
    ("element_at(a, -1)", "int32", 2),
    ("element_at(CAST(NULL AS ARRAY<INT>), 1)", "int32", None),
    ("element_at(mp, 'z')", "int32", None),
    ("element_at(map(1, 'x'), 1)", "string", "x"),
    ("element_at(split(s, 'l'), 3)", "string", "o"),
    ("try_element_at(a, 4)", "int32", None),
    ("try_element_at(a, -4)", "int32", None),
    ("get(a, 0)", "int32", 1),
    ("get(a, 3)", "int32", None),
    ("get(a, -1)", "int32", None),
    ("get(a, CAST(NULL AS INT))", "int32", None),
    ("array_repeat(i, 2)", "list<element: int32>", [7, 7]),
    ("array_repeat(s, 0)", "list<element: string>", []),
    ("array_repeat(i, -1)", "list<element: int32>", []),
    ("array_repeat(i, CAST(NULL AS INT))", "list<element: int32>", None),
    ("flatten(array_repeat(array_repeat(i, 1), 2))", "list<element: int32>", [7, 7]),
    ("zip_with(a, a, (l, r) -> l * 10 + r)", "list<element: int32>", [11, 22]),
    ("zip_with(a, array(5), (l, r) -> coalesce(l, 0) + coalesce(r, 0))", "list<element: int32>", [6, 2]),
    ("zip_with(filter(a, e -> FALSE), filter(a, e -> FALSE), (l, r) -> l + r)", "list<element: int32>", []),
    ("zip_with(a, CAST(NULL AS ARRAY<INT>), (l, r) -> l)", "list<element: int32>", None),
    (
        "zip_with(a, a, (l, r) -> size(zip_with(a, array(l), (x, y) -> x + r)))",
        "list<element: int32>",
        [2, 2],
    ),
    ("size(map_filter(mp, (k, v) -> v > 5))", "int32", 0),
    ("element_at(map_filter(map('a', 1, 'b', 2), (k, v) -> k = 'b' OR v = 3), 'b')", "int32", 2),
    ("map_keys(map_filter(map('a', 1, 'b', NULL), (k, v) -> v IS NULL))", "list<element: string>", ["b"]),
    ("transform_values(mp, (k, v) -> v + 1)['k']", "int32", 6),
    ("map_values(transform_values(map(1, 2, 3, 4), (k, v) -> k * v))", "list<element: int32>", [2, 12]),
    ("transform_values(CAST(NULL AS MAP<INT, INT>), (k, v) -> v) IS NULL", "bool", True),
    ("map_keys(transform_keys(mp, (k, v) -> concat(k, v)))", "list<element: string>", ["k5"]),
    ("map_keys(map_concat(mp, map('z', 1)))", "list<element: string>", ["k", "z"]),
    ("map_concat(mp, CAST(NULL AS MAP<STRING, INT>)) IS NULL", "bool", True),
    ("e()", "double", 2.718281828459045),
    ("negative(i)", "int32", -7),
    ("nanvl(x, 0.0D)", "double", 2.7),
    ("nanvl(CAST('NaN' AS DOUBLE), 1.5D)", "double", 1.5),
    ("nanvl(CAST(NULL AS DOUBLE), 1.5D)", "double", None),
    ("regexp_substr(s, 'l+')", "string", "ll"),
    ("regexp_substr(s, 'z')", "string", None),
    ("dayname(d)", "string", "Sun"),
    ("monthname(d)", "string", "Jan"),
    ("dayname(CAST(NULL AS DATE))", "string", None),
    ("reverse(a)", "list<element: int32>", [2, 1]),
    ("substring_index('www.apache.org', '.', 2)", "string", "www.apache"),
    ("substring_index('www.apache.org', '.', -2)", "string", "apache.org"),
    ("substring_index('www.apache.org', '.', -9)", "string", "www.apache.org"),
    ("substring_index('www.apache.org', '.', 9)", "string", "www.apache.org"),
    ("substring_index('www', '.', 0)", "string", ""),
    ("substring_index('', '.', 1)", "string", ""),
    ("substring_index(nothing, '.', 1)", "string", None),
    ("exists(array(0, NULL), e -> e > 1)", "bool", None),
    ("exists(CAST(NULL AS ARRAY<INT>), e -> e > 1)", "bool", None),
    ("forall(array(3, NULL), e -> e > 1)", "bool", None),
    ("forall(array(0, NULL), e -> e > 1)", "bool", False),
    ("forall(array(), e -> e > 1)", "bool", True),
    ("filter(array(5, 6, 7), (e, n) -> n > 0)", "list<element: int32>", [6, 7]),
    ("transform(array(5, 6), (e, n) -> e * 10 + n)", "list<element: int32>", [50, 61]),
    ("array_distinct(array(3, 1, 3, NULL, 2, NULL))", "list<element: int32>", [3, 1, None, 2]),
    ("array_union(array(1, 2, 2), array(2, 3, NULL))", "list<element: int32>", [1, 2, 3, None]),
    ("array_intersect(array(1, 2, 2, NULL), array(2, NULL))", "list<element: int32>", [2, None]),
    ("array_except(array(1, 2, NULL, 1), array(2))", "list<element: int32>", [1, None]),
    ("arrays_overlap(array(1, NULL), array(2))", "bool", None),
    ("arrays_overlap(a, array(2))", "bool", True),
    ("map_contains_key(mp, 'k')", "bool", True),
    ("btrim('  a ')", "string", "a"),
    ("sequence(1, 3)", "list<element: int32>", [1, 2, 3]),
    ("sequence(i, 5)", "list<element: int32>", [7, 6, 5]),
    ("sequence(10, 1, -3)", "list<element: int32>", [10, 7, 4, 1]),
    ("sequence(1L, size(a))", "list<element: int64>", [1, 2]),
    ("sequence(1, 1, 0)", "list<element: int32>", [1]),
    ("sequence(CAST(NULL AS INT), 3)", "list<element: int32>", None),
    (
        "sequence(d, DATE'2024-01-05')",
        "list<element: date32[day]>",
        [dt.date(2024, 1, day) for day in (7, 6, 5)],
    ),
    (
        "sequence(DATE'2024-01-31', DATE'2024-04-30', INTERVAL 1 MONTH)",
        "list<element: date32[day]>",
        [dt.date(2024, 1, 31), dt.date(2024, 2, 29), dt.date(2024, 3, 31), dt.date(2024, 4, 30)],
    ),
    (
        "sequence(d, DATE'2024-01-20', INTERVAL 1 WEEK)",
        "list<element: date32[day]>",
        [dt.date(2024, 1, 7), dt.date(2024, 1, 14)],
    ),
    ("CASE WHEN CAST(NULL AS ARRAY<INT>) IS NULL THEN i END", "int32", 7),
    ("json_array_length('[1,2]')", "int32", 2),
]
TYPED_AGGREGATES = [
    ("count_if(i > 1)", "int64", 1),
    ("some(i > 7)", "bool", False),
    ("every(i > 1)", "bool", True),
    ("sum(DISTINCT i)", "int64", 7),
    ("sum(i) FILTER (WHERE x > 0)", "int64", 7),
    ("sum(m)", "decimal128(20, 2)", Decimal("19.99")),
    ("percentile(i, 0.5)", "double", 7.0),
    ("percentile_approx(i, 0.5)", "int32", 7),
    ("regr_count(x, i)", "int64", 1),
    ("stddev(x)", "double", None),
    ("max(ts)", "timestamp[us, tz=UTC]", dt.datetime(2024, 1, 1, 0, 0, tzinfo=dt.UTC)),
]


@pytest.fixture
def query(lake, tmp_path, engine):
    """``query(text)`` returns the Arrow table of a query over the table ``spark_values``."""
    table = lake.create_table(
        tmp_path / "values",
        "x double, i int, m decimal(10,2), d date, ts timestamp, s string, nothing string, f float, st struct<n: int>, "
        "a array<int>, mp map<string, int>",
    )
    row = {"x": 2.7, "i": 7, "m": Decimal("19.99"), "d": dt.date(2024, 1, 7), "s": "hello", "f": 0.1}
    row |= {"ts": dt.datetime(2024, 1, 1, tzinfo=dt.UTC), "st": {"n": 3}, "a": [1, 2], "mp": {"k": 5}}
    table.append([row])

    def run(text):
        answer = lake.sql(text.replace("spark_values", f"delta.`{tmp_path}/values`"), engine=engine)
        return answer.toArrow() if hasattr(answer, "toArrow") else answer

    return run


@pytest.fixture
def rows(query):
    """``rows(text)`` runs a query over the table ``spark_values``."""
    return lambda text: query(text).to_pylist()


def test_values(rows):
    listed = ", ".join(f"{value} AS v{number}" for number, (value, _) in enumerate(VALUES))
    (found,) = rows(f"SELECT {listed} FROM spark_values")
    assert dict(zip((value for value, _ in VALUES), found.values(), strict=True)) == dict(VALUES)


def test_values_in_every_part_of_a_query(rows):
    found = {text: [next(iter(row.values())) for row in rows(text)] for text, _ in RESULTS}
    assert found == dict(RESULTS)


@pytest.mark.parametrize(
    "value",
    [
        "2147483647 + i",
        "sequence(1, 5, -1)",
        "sequence(1, 5, 0)",
        "pmod(i, 0)",
        "element_at(a, 4)",
        "element_at(a, -4)",
        "element_at(a, 0)",
        "try_element_at(a, 0)",
        "map_concat(mp, mp)",
        "transform_keys(map(1, 1, 2, 2), (k, v) -> 1)",
        "transform_keys(map(1, 1), (k, v) -> CAST(NULL AS INT))",
        "sequence(d, d - 1, INTERVAL 1 DAY)",
    ],
)
def test_values_that_are_errors(rows, value):
    # On Spark the error comes with the rows.
    with pytest.raises(Exception, match=r"(?i)overflow|sequence|by zero|index|map.?key"):
        rows(f"SELECT {value} AS v FROM spark_values")


PIVOTS = [
    (
        "count(*), count(w) FOR k IN ('b', 'q')",
        [
            {"id": 1, "b_count(1)": 1, "b_count(w)": 1, "q_count(1)": None, "q_count(w)": None},
            {"id": 2, "b_count(1)": None, "b_count(w)": None, "q_count(1)": None, "q_count(w)": None},
        ],
    ),
    ("count(w) FOR k IN ('a', 'b')", [{"id": 1, "a": 0, "b": 1}, {"id": 2, "a": 0, "b": None}]),
    ("count(DISTINCT w) FOR k IN ('a', 'b')", [{"id": 1, "a": 0, "b": 1}, {"id": 2, "a": 0, "b": None}]),
    ("sum(w) AS s FOR k IN ('b' AS bb)", [{"id": 1, "bb": 5}, {"id": 2, "bb": None}]),
    ("collect_list(w) FOR k IN ('b')", [{"id": 1, "b": [5]}, {"id": 2, "b": []}]),
    (
        "sum(w) AS s, count(*) FOR k IN ('b' AS bb)",
        [{"id": 1, "bb_s": 5, "bb_count(1)": 1}, {"id": 2, "bb_s": None, "bb_count(1)": None}],
    ),
]


@pytest.mark.parametrize(("pivot", "expected"), PIVOTS)
def test_what_a_pivot_has_where_there_is_no_row(lake, tmp_path, engine, pivot, expected):
    table = lake.create_table(tmp_path / "pivoted", "id int, k string, w int")
    table.append(
        [{"id": 1, "k": "a", "w": None}, {"id": 1, "k": "b", "w": 5}, {"id": 2, "k": "a", "w": None}]
    )
    answer = lake.sql(f"SELECT * FROM delta.`{tmp_path}/pivoted` PIVOT ({pivot}) ORDER BY id", engine=engine)
    found = answer.toArrow() if hasattr(answer, "toArrow") else answer
    assert found.to_pylist() == expected
    assert not [kind for kind in found.schema.types if "decimal" in str(kind)]


@pytest.mark.parametrize(
    "clause", ["SORT BY v DESC", "DISTRIBUTE BY v SORT BY v DESC", "SORT BY v DESC NULLS LAST"]
)
def test_sort_by_sorts(lake, tmp_path, engine, clause):
    lake.create_table(tmp_path / "sorted", "v int").append([{"v": one} for one in (2, 3, 1)])
    answer = lake.sql(f"SELECT v FROM delta.`{tmp_path}/sorted` {clause}", engine=engine)
    found = answer.coalesce(1).toArrow() if hasattr(answer, "toArrow") else answer
    assert sorted(found["v"].to_pylist()) == [1, 2, 3]
    if engine == "duckdb":  # Spark sorts each of its partitions
        assert found["v"].to_pylist() == [3, 2, 1]


def test_functions_keep_the_name_by_which_they_are_called(rows):
    (found,) = rows("SELECT array_size(a), size(a), nvl(i, 2) FROM spark_values")
    assert list(found) == ["array_size(a)", "size(a)", "nvl(i, 2)"]


def test_names_of_results(rows):
    text = (
        "SELECT count(*), sum(i), max(m), CAST(max(x) AS INT), sum(i) + 1, current_date() FROM spark_values"
    )
    (found,) = rows(text)
    names = ["count(1)", "sum(i)", "max(m)", "CAST(max(x) AS INT)", "(sum(i) + 1)", "current_date()"]
    assert list(found) == names


@pytest.fixture
def in_utc(engine):
    """A Spark session shows times in its own zone."""
    if engine == "duckdb":
        yield
        return
    name = "spark.sql.session.timeZone"
    zone = engine.conf.get(name)
    engine.conf.set(name, "UTC")
    yield
    engine.conf.set(name, zone)


@pytest.mark.usefixtures("in_utc")
@pytest.mark.parametrize("cases", [TYPED, TYPED_AGGREGATES], ids=["values", "aggregates"])
def test_types_of_values(query, cases):
    listed = ", ".join(f"{value} AS v{number}" for number, (value, *_) in enumerate(cases))
    table = query(f"SELECT {listed} FROM spark_values")
    types = {
        value: re.sub("list<.*: (.*?)( not null)?>", r"list<element: \1>", str(kind))
        for (value, *_), kind in zip(cases, table.schema.types, strict=True)
    }
    assert types == {value: kind for value, kind, _ in cases}
    (row,) = table.to_pylist()
    assert dict(zip(types, row.values(), strict=True)) == {value: expected for value, _, expected in cases}


@pytest.mark.parametrize("engine", ["duckdb"], indirect=True)
@pytest.mark.parametrize(
    "value",
    [
        "months_between(d, d)",
        "timestampdiff(DAY, ts, ts)",
        "datediff(MONTH, d, d)",
        "extract(SECOND FROM ts)",
        "date_part('dow', d)",
        "date_part()",
        "date_format(ts, 'SSS')",
        "date_format(ts, s)",
        "to_utc_timestamp(ts, 'Europe/Zurich')",
        "typeof(i)",
        "url_encode(s)",
        "regexp_replace(s, '(h)', '$1x')",
        "regexp_replace(s, s, 'x')",
        "split(s, 'l', 2)",
        "sequence(ts, ts)",
        "sequence(i + 1, 3)",
        "sequence(d, d, INTERVAL '1' HOUR)",
        "arrays_zip(a, a)",
        "shuffle(a)",
        "substring_index(s, s, 2)",
        "map_filter(mp, (k, v) -> exists(a, v -> v > 1))",
        "to_json(st)",
        "from_json(s, 'a INT')",
        "kurtosis(x)",
        "max(struct(i, s))",
        "version()",
        "CAST(st AS STRING)",
    ],
)
def test_functions_that_duckdb_has_otherwise_are_refused_by_name(rows, value):
    name = value.partition("(")[0].lower()
    with pytest.raises(
        InvalidStatement, match=rf"{name}\(\) (may have other results in DuckDB|is not supported when DuckDB)"
    ):
        rows(f"SELECT {value} AS v FROM spark_values")


@pytest.mark.parametrize("engine", ["duckdb"], indirect=True)
def test_a_number_that_spark_writes_with_an_exponent_is_no_text(rows):
    assert rows("SELECT CAST(x * 1000 AS STRING) AS v FROM spark_values") == [{"v": "2700.0"}]
    with pytest.raises(InvalidStatement, match="exponent"):
        rows("SELECT CAST(x * 1e10 AS STRING) AS v FROM spark_values")


def test_insert_stores_values_of_other_types_as_spark_does(lake, tmp_path, engine):
    name = f"delta.`{tmp_path}/stored`"
    columns = "id int, d date, ts timestamp, n int, m decimal(5,2), b boolean, s string"
    table = lake.create_table(tmp_path / "stored", columns)
    lake.sql(
        f"INSERT INTO {name} VALUES (1, '2024-01-02', '2024-01-02 10:00:00Z', '7', '7.123', 'true', 7), "
        "(2, NULL, NULL, NULL, NULL, NULL, NULL)",
        engine=engine,
    )
    lake.sql(f"INSERT INTO {name} (id, d) SELECT 3, TIMESTAMP'2024-01-03 10:00:00Z'", engine=engine)
    stored = {"id": 1, "d": dt.date(2024, 1, 2), "ts": dt.datetime(2024, 1, 2, 10, tzinfo=dt.UTC)}
    stored |= {"n": 7, "m": Decimal("7.12"), "b": True, "s": "7"}
    rows = sorted(table.to_arrow().to_pylist(), key=lambda row: row["id"])
    empty = dict.fromkeys(stored)
    assert rows == [stored, empty | {"id": 2}, empty | {"id": 3, "d": dt.date(2024, 1, 3)}]
    version = table.version()
    for column, value in (("d", "'soon'"), ("n", "'x'"), ("b", "'maybe'"), ("m", "'1_000'")):
        with pytest.raises(SchemaMismatch, match=f"'{column}'"):
            lake.sql(f"INSERT INTO {name} (id, {column}) VALUES (4, {value})", engine=engine)
    assert table.version() == version
