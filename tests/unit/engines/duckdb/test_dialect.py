"""Predicates of Spark SQL select the same rows as DuckDB SQL; what is not known to is refused, and nothing else is run."""

import datetime as dt
import re
from decimal import Decimal

import duckdb
import pyarrow as pa
import pytest

from delvec_engines.duckdb.dialect import filter_sql, predicate_sql
from delvec_errors import BadRequest, InvalidPredicate
from delvec_kernel.expressions import predicate
from delvec_kernel.expressions.spark_dialect import SPARK
from delvec_kernel.expressions.table_expressions import allowed_expression
from delvec_kernel.schema.types import StructType

ROWS = pa.table(
    {
        "id": pa.array([1, 2, 3, 4], pa.int64()),
        "tiny": pa.array([127, -1, None, 0], pa.int8()),
        "name": ["a_b", "axb", "straße", None],
        "f": pa.array([0.1, 0.5, None, 2.0], pa.float32()),
        "x": [1.9, -1.9, float("nan"), None],
        "d": pa.array([Decimal("0.29"), Decimal("2.50"), None, Decimal("-7.00")], pa.decimal128(10, 2)),
        "day": [dt.date(2024, 2, 29), dt.date(2024, 3, 3), None, dt.date(1969, 12, 31)],
    }
)
SCHEMA = StructType.from_arrow(ROWS.schema)

# The ids that Spark 4.1 with ANSI mode finds.
SELECTED = {
    "id = 1 OR id = 4": [1, 4],
    "NOT (id BETWEEN 2 AND 3)": [1, 4],
    "name <=> NULL": [4],
    "name <> 'axb'": [1, 3],
    "name IN ('a_b', NULL)": [1],
    "name LIKE 'a_b'": [1, 2],
    r"name LIKE 'a\_b'": [1],
    "name LIKE 'a!_b' ESCAPE '!'": [1],
    "name RLIKE '^a.b$'": [1, 2],
    "upper(name) = 'STRASSE'": [3],
    "length(name) = 6": [3],
    "substring(name, 2, 2) = '_b'": [1],
    "name || id = 'a_b1'": [1],
    "startswith(name, 'a')": [1, 2],
    "tiny * 100 = 12700": [1],
    "tiny + 1 = 128": [1],
    "id / 2 = 1.5": [3],
    "id DIV 2 = 1": [2, 3],
    "-id % 3 = -1": [1, 4],
    "d DIV 0.01 = 29": [1],
    "f = 0.1": [],
    "f = CAST(0.1 AS FLOAT)": [1],
    "CAST(x AS INT) = 1 AND id < 3": [1],
    "CAST(x AS INT) = -1 AND id < 3": [2],
    "x > 1.0E300": [3],
    "x = CAST('NaN' AS DOUBLE)": [3],
    "isnan(x)": [3],
    "dayofweek(day) = 1": [2],
    "to_date('2024-3-3') = day": [2],
    "instr(name, 'x') = 2 OR isnull(name)": [2, 4],
    "abs(x) = 1.9": [1, 2],
    "contains(name, '_') AND endswith(name, 'b')": [1],
    "date_add(day, 1) = DATE '2024-03-01'": [1],
    "year(day) < 1970": [4],
    "CASE WHEN id > 2 THEN id ELSE 0 END = 0": [1, 2],
    "coalesce(name, 'none') = 'none'": [4],
}


@pytest.fixture(scope="module")
def connection():
    with duckdb.connect() as made:
        made.register("rows", ROWS)
        yield made


def selected(connection, condition):
    query = f"SELECT id FROM rows WHERE {condition} ORDER BY id"
    return [number for (number,) in connection.execute(query).fetchall()]


@pytest.mark.parametrize("write", [predicate_sql, filter_sql])
@pytest.mark.parametrize("text", SELECTED)
def test_a_predicate_selects_the_rows_that_spark_selects(connection, write, text):
    assert selected(connection, write(predicate.parse(text, SCHEMA))) == SELECTED[text]


@pytest.mark.parametrize("text", ["id / tiny = 1", "id % tiny = 1", "id DIV tiny = 1"])
def test_division_by_zero_is_an_error_as_in_ansi_mode(connection, text):
    with pytest.raises(duckdb.Error, match="division by zero"):
        selected(connection, predicate_sql(predicate.parse(text, SCHEMA)))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("d / 3 > 1", "division of decimals"),
        ("f + d > 1", "float and decimal"),
        ("(id, name) IN ((1, 'a'))", "one by one"),
        ("x || name = 'x'", "cast it to string"),
        ("substring(name, -2) = '_b'", "positive integer literals"),
        ("soundex(name) = 'A100'", "soundex"),
        ("to_date(name, 'yyyy-dd-MM') = day", "to_date with these arguments"),
        ("locate('x', name, 2) = 2", "locate or position with these arguments"),
        ("rand(1) < 2", "rand or random with these arguments"),
        ("hour(name) = 2", "hour may mean"),
    ],
)
def test_what_is_not_known_to_give_sparks_answer_is_refused(text, message):
    with pytest.raises(InvalidPredicate, match=f"(?i){message}"):
        predicate_sql(predicate.parse(text, SCHEMA))


def test_columns_are_quoted():
    schema = StructType.from_arrow(pa.schema([('a"b', pa.int64()), ("select", pa.int64())]))
    rows = pa.table({'a"b': [1, 2], "select": [2, 1]})

    condition = predicate_sql(predicate.parse('`a"b` > `select`', schema))

    assert duckdb.sql(f"SELECT * FROM rows WHERE {condition}").fetchall() == [(2, 1)]
    assert rows.num_rows == 2


INJECTED = "5)) > 0 OR injected(1) --"
IN_QUOTES = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*\"""")
OF_TYPES = {
    "id = CAST(d AS DECIMAL(12, 3)) AND CAST(name AS STRING) = 'a'": [],
    "d = 12.5BD OR id = 3L OR x = 1e2 OR name = r'a' OR name = X'41'": [],
    "day + INTERVAL 1 DAY = DATE '2024-03-01'": [],
    "named_struct('a', id).a = 1": [],
}


def hostile(text):
    """Return the predicate with one word replaced by what would end an SQL expression, or with that after a word."""
    for token in SPARK.tokenize(text):
        for quote in ("'", '"', "`", "r'"):
            word = f"{quote}{INJECTED}{quote[-1]}"
            yield f"{text[: token.start]}{word}{text[token.end + 1 :]}"
            yield f"{text[: token.end + 1]} {word}{text[token.end + 1 :]}"


@pytest.mark.parametrize("text", [*SELECTED, *OF_TYPES])
def test_no_text_of_a_predicate_is_written_without_quotes(text):
    for attempt in hostile(text):
        try:
            written = predicate_sql(predicate.parse(attempt, SCHEMA))
        except BadRequest:
            continue
        assert "injected" not in IN_QUOTES.sub("", written), attempt


@pytest.mark.parametrize("size", [f"'{INJECTED}'", f"10, `{INJECTED}`", "id", "max", "10 'x'", "1.5"])
@pytest.mark.parametrize("kind", ["DECIMAL({})", "ARRAY<DECIMAL({})>", "TIMESTAMP({})"])
def test_the_size_of_a_type_is_a_number(size, kind):
    text = f"coalesce(CAST(id AS {kind.format(size)}), NULL) IS NULL"

    with pytest.raises(InvalidPredicate, match="size is not a whole number"):
        predicate.parse(text, SCHEMA)


@pytest.mark.parametrize("size", ["100", "999999999", "10, 999999999"])
def test_a_decimal_type_of_any_number_of_digits_is_refused(size):
    with pytest.raises(InvalidPredicate, match="more than 38 digits"):
        predicate.parse(f"CAST(id AS DECIMAL({size})) = 1", SCHEMA)


def test_a_constraint_in_a_log_runs_nothing_but_itself():
    allowed = allowed_expression(
        f'coalesce(CAST(id AS DECIMAL("{INJECTED}"))) = 1', ["id"], "The constraint is"
    )

    with pytest.raises(InvalidPredicate, match="size is not a whole number"):
        predicate.parse(allowed, SCHEMA)
