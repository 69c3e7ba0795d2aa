"""The table of functions agrees with itself, with DuckDB, and with what is written elsewhere for its functions."""

import inspect
import re

import duckdb
import pytest
from sqlglot import exp, parse_one

from delvec_engines.duckdb import dialect
from delvec_errors import InvalidPredicate
from delvec_kernel.data_skipping import monotone
from delvec_kernel.expressions.functions import FUNCTIONS, function_of
from delvec_kernel.expressions.predicate import parse
from delvec_kernel.expressions.spark_dialect import SPARK
from delvec_kernel.schema.types import StructType

SCHEMA = StructType.from_json(
    {
        "type": "struct",
        "fields": [
            {"name": name, "type": name, "nullable": True, "metadata": {}}
            for name in ("string", "date", "timestamp", "double")
        ],
    }
)
ARGUMENTS = {
    "any": "1",
    "string": "'a'",
    "date": "DATE '2024-02-29'",
    "moment": "TIMESTAMP '2024-02-29 1:2:3'",
}
TRANSLATED = [each for each in FUNCTIONS if each.duckdb is not None]


def test_monotone_functions_are_those_with_rules_for_bounds():
    assert {each.node for each in FUNCTIONS if each.is_monotone} == monotone._RULES.keys()


def test_a_call_is_of_one_function():
    nodes = [each.node for each in FUNCTIONS if each.node]
    names = [name for each in FUNCTIONS if not each.node for name in each.names]
    assert len(nodes) == len(set(nodes))
    assert len(names) == len(set(names))


@pytest.mark.parametrize("function", TRANSLATED, ids=lambda each: each.names[0])
def test_duckdb_has_the_function(function):
    assert function.duckdb.count("{}") == len(function.parameters)
    arguments = [ARGUMENTS[each] for each in function.parameters]

    duckdb.sql(f"SELECT {function.duckdb.format(*arguments)}").fetchall()


@pytest.mark.parametrize("function", TRANSLATED, ids=lambda each: each.names[0])
def test_spark_parses_to_the_function_and_other_arguments_are_refused(function):
    name, *_ = function.names
    arguments = [ARGUMENTS[each] for each in function.parameters]
    call = parse_one(f"{name}({', '.join(arguments)})", dialect=SPARK)
    assert function_of(call) is function
    assert len(function.arguments(call)) == len(function.parameters)
    call.set("more", exp.Literal.string("b"))
    if not isinstance(call, exp.Anonymous):
        assert function.arguments(call) is None


def test_handwritten_sql_is_of_functions_without_a_template():
    source = inspect.getsource(dialect._Writer)
    written = {getattr(exp, name) for name in re.findall(r"^ +exp\.(\w+):", source, re.MULTILINE)}
    assert not written & {each.node for each in TRANSLATED}


@pytest.mark.parametrize(
    ("text", "deterministic"),
    [
        ("year(date) = 2024", True),
        ("now() > timestamp", False),
        ("user() = 'a'", False),
        ("uniform(0, 9) = 1", False),
        ("size(shuffle(array(1, 2))) = 2", False),
        ("rand() < 0.5", False),
    ],
)
def test_functions_of_the_clock_the_session_and_chance_are_not_deterministic(text, deterministic):
    assert parse(text, SCHEMA).is_deterministic is deterministic


def test_what_the_format_of_a_date_means_is_not_ignored():
    with pytest.raises(InvalidPredicate):
        dialect.predicate_sql(parse("to_date(string, 'yyyy-dd-MM') = date", SCHEMA))
