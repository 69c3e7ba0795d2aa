"""Single-table parts of conditions over two tables, and Python values as SQL literals."""

import datetime as dt
from decimal import Decimal

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from delvec import BadRequest
from delvec_engines.duckdb.dialect import expression_sql
from delvec_kernel.expressions.expression import parse_expression
from delvec_kernel.expressions.join_condition import conjuncts, join_keys, key_ranges, target_terms
from delvec_kernel.expressions.literals import lit, literal
from delvec_kernel.schema.types import PrimitiveType, StructType

TARGET = StructType.from_arrow(
    pa.schema(
        {
            "id": pa.int64(),
            "a `b`": pa.string(),
            "day": pa.date32(),
            "x": pa.float64(),
            "at": pa.struct({"k": pa.int32()}),
        }
    )
)
SOURCE = StructType.from_arrow(
    pa.schema({"id": pa.int32(), "key": pa.string(), "day": pa.date32(), "x": pa.float64()})
)
BOTH = {"t": TARGET, "s": SOURCE}


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("t.id = s.id", ["t.id = s.id"]),
        ("t.id = s.id AND t.day = s.day and x1", None),
        ("t.id = s.id AND t.day = s.day", ["t.id = s.id", "t.day = s.day"]),
        ("(t.id = s.id AND (t.day = s.day))", ["t.id = s.id", "t.day = s.day"]),
        ("(t.id = 1) AND (t.id = s.id OR t.x > 1)", ["t.id = 1", "t.id = s.id OR t.x > 1"]),
        ("t.id BETWEEN 1 AND 3 AND t.x = 1", ["t.id BETWEEN 1 AND 3", "t.x = 1"]),
        ("t.id NOT BETWEEN 1 AND 3 AND NOT t.x = 1", ["t.id NOT BETWEEN 1 AND 3", "NOT t.x = 1"]),
        ("t.id = 1 AND t.x = 1 OR t.x = 2", ["t.id = 1 AND t.x = 1 OR t.x = 2"]),
        (
            "CASE WHEN t.id = 1 AND t.x = 2 THEN true END AND t.x = 3",
            ["CASE WHEN t.id = 1 AND t.x = 2 THEN true END", "t.x = 3"],
        ),
        ("t.id = 1 AND /* AND */ t.key = ' AND '", None),
        ("t.id = 1 AND /* AND */ s.key = ' AND '", ["t.id = 1", "s.key = ' AND '"]),
        ("t.id = 1 -- AND t.x = 1\nAND t.x = 2", ["t.id = 1", "t.x = 2"]),
    ],
)
def test_splitting_a_condition_into_and_terms(text, terms):
    if terms is None:
        with pytest.raises(BadRequest):
            conjuncts(text, BOTH)
    else:
        found = [parse_expression(each, BOTH).sql().split() for each in terms]
        assert [each.sql().split() for each in conjuncts(text, BOTH)] == found


def test_terms_of_the_target_alone_are_predicates_over_it():
    terms = conjuncts("t.id = s.id AND t.`a ``b``` = 'x' AND at.k > 1 AND t.x < rand()", BOTH)
    assert target_terms(terms, "t") == ["`a ``b``` = 'x'", "`at`.`k` > 1"]


def test_join_keys_are_plain_columns():
    text = "s.id = t.id AND t.`a ``b``` <=> s.key AND t.day = s.day + 1 AND t.x = s.x AND at.k = s.id AND t.day > s.day"
    keys = join_keys(conjuncts(text, BOTH), BOTH, "t", "s")
    assert [(key.target, key.source, key.null_safe) for key in keys] == [
        ("`id`", "id", False),
        ("`a ``b```", "key", True),
        ("`at`.`k`", "id", False),
    ]
    bounds = {"id": (3, 17), "key": ("a'b", "z" * 300)}
    assert key_ranges(keys, bounds) == ["`id` BETWEEN 3 AND 17", "`at`.`k` BETWEEN 3 AND 17"]
    assert key_ranges(keys, {"key": ("a'b", "c")}) == [
        "(`a ``b``` BETWEEN 'a\\'b' AND 'c' OR `a ``b``` IS NULL)"
    ]


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        -7,
        2**63 - 1,
        1.5,
        1e300,
        float("inf"),
        Decimal("-1.50"),
        Decimal("1E+3"),
        Decimal("0.001"),
        "it's \\ \" \n 'x' ß",
        b"\x00\xff",
        dt.date(1500, 2, 3),
        dt.datetime(2024, 1, 2, 3, 4, 5, 6, tzinfo=dt.UTC),
        dt.datetime.fromisoformat("2024-01-02 03:04:05"),
        np.int32(5),
    ],
)
def test_literals(value):
    sql = expression_sql(parse_expression(literal(lit(value)), {}))
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        found = connection.execute(f"SELECT {sql}").fetchone()[0]
    assert found == value


def test_naive_datetimes_are_utc_for_zoned_columns():
    moment = dt.datetime.fromisoformat("2024-01-02 03:00:00")
    assert "+00:00" in literal(moment, PrimitiveType("timestamp"))
    assert "+00:00" not in literal(moment, PrimitiveType("timestamp_ntz"))


def test_other_values_are_refused():
    with pytest.raises(BadRequest, match="type list"):
        literal([1])
