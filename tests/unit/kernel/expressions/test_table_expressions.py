"""Expressions in table metadata: allowed ones keep their meaning, all others are rejected."""

import pytest
from tests.support.expression_cases import CHANGING, COLUMNS, HOSTILE, LEGITIMATE

from delvec_errors import ExpressionNotAllowed
from delvec_kernel.expressions.predicate import parse
from delvec_kernel.expressions.table_expressions import allowed_expression, check_functions
from delvec_kernel.schema.types import StructType


def allowed(text, columns=tuple(COLUMNS)):
    return allowed_expression(text, columns, "Column 'c' has the default", column="c")


@pytest.mark.parametrize("text", HOSTILE)
def test_expressions_not_on_the_allow_list_are_refused_by_name(text):
    with pytest.raises(ExpressionNotAllowed, match=r"^Column 'c' has the default ") as caught:
        allowed(text)
    assert caught.value.details["expression"] == text
    assert caught.value.details["column"] == "c"
    assert "disallowed" in caught.value.details


@pytest.mark.parametrize("text", LEGITIMATE + CHANGING)
def test_expressions_found_in_tables_are_allowed(text):
    assert allowed(text)


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("id>0--x", "`id` > 0"),
        ("SELECT", None),
        ("values", "`values`"),
        ("(table)", "( `table` )"),
        ('"it\'s"', r"'it\'s'"),
        ('"a""b"', "'a\"b'"),
        ("s.table", "`s` . `table`"),
        ("transform(nums,X->x)", "transform ( `nums` , `X` -> `x` )"),
        ("/**/1/**/", "1"),
    ],
)
def test_the_engine_gets_rewritten_tokens(text, written):
    if written is None:
        with pytest.raises(ExpressionNotAllowed):
            allowed(text)
    else:
        assert allowed(text) == written


def test_columns_named_like_query_keywords_are_identifiers():
    names = ["select", "from", "table", "values", "with", "secret"]
    assert allowed("(table + 1)".replace("+", ">"), names) == "( `table` > 1 )"
    for text in ("(TABLE secret)", "(FROM secret)", "(SELECT secret)", "(VALUES secret)", "(from)"):
        with pytest.raises(ExpressionNotAllowed):
            allowed(text, names)
    assert allowed("`from` > `select`", names) == "`from` > `select`"


def test_deep_and_long_texts_are_refused_before_an_engine_sees_them():
    with pytest.raises(ExpressionNotAllowed, match="brackets are nested more than"):
        allowed("(" * 101 + "1" + ")" * 101)
    with pytest.raises(ExpressionNotAllowed, match="words"):
        allowed(" + ".join(["1"] * 10_001))


def test_a_user_names_the_functions_of_a_session():
    check_functions("upper(t.name) = s.other AND no_column > 0", ())
    check_functions("MY_UDF(name)", ["my_udf"])
    for text in (
        "my_udf(name)",
        "java_method('a', 'b')",
        "EXISTS (SELECT 1)",
        "(FROM x SELECT *)",
        "`my_udf`(1)",
    ):
        with pytest.raises(ValueError, match="is not evaluated"):
            check_functions(text, ())


@pytest.mark.full("thousands of random expressions")
def test_rewriting_does_not_change_the_parse():
    kinds = {"bigint": "long", "int": "integer"}
    schema = StructType.from_json(
        {
            "type": "struct",
            "fields": [
                {"name": name, "type": kinds.get(kind, kind), "nullable": True, "metadata": {}}
                for name, kind in COLUMNS.items()
                if "<" not in kind
            ],
        }
    )
    compared = 0
    for text in LEGITIMATE:
        try:
            expected = parse(f"({text}\n) IS NULL", schema)
        except Exception:  # noqa: BLE001 - not every expression of Spark's can be parsed here
            continue
        found = parse(f"({allowed(text)}) IS NULL", schema)
        assert found.expression.sql(identify=True, comments=False) == expected.expression.sql(
            identify=True, comments=False
        ), text
        compared += 1
    assert compared > 80
