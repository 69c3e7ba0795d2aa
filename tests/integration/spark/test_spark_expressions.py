"""SQL from table metadata, checked against Spark's own parser."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812
from sqlglot import exp
from tests.support.constant_expressions import CONSTANTS
from tests.support.expression_cases import COLUMNS, HOSTILE, LEGITIMATE, ROW

from delvec_errors import ExpressionNotAllowed
from delvec_kernel.expressions.predicate import parse
from delvec_kernel.expressions.spark_dialect import SCALARS, SparkDialect
from delvec_kernel.expressions.table_expressions import allowed_expression
from delvec_kernel.schema.types import PrimitiveType, StructField, StructType

pytestmark = pytest.mark.full_on_spark("the gate has the main cases: each starts jobs of Spark")

NUMBERS = StructType((StructField("id", PrimitiveType("long")),))

PIECES = [
    *("id", "name", "nums", "values", "table", "date", "s", "`my col`", "`table`", "secret", "x", "Über"),
    *(
        "upper",
        "concat",
        "exists",
        "transform",
        "map",
        "reduce",
        "filter",
        "java_method",
        "`reflect`",
        "identifier",
        "array",
    ),
    *(
        "SELECT",
        "TABLE",
        "FROM",
        "VALUES",
        "WITH",
        "USING",
        "EXISTS",
        "IN",
        "ANY",
        "AS",
        "CASE",
        "WHEN",
        "THEN",
        "END",
        "LATERAL",
    ),
    *(
        "AND",
        "NOT",
        "OVER",
        "BETWEEN",
        "INTERVAL",
        "DAY",
        "DATE",
        "CAST",
        "struct",
        "\u017felect",
        "\uff33ELECT",
    ),
    *(
        "(",
        ")",
        "(",
        ")",
        "[",
        "]",
        ",",
        ".",
        ":",
        "::",
        "|>",
        "->",
        "=>",
        "<",
        ">",
        ">>",
        "<=>",
        "=",
        "*",
        "-",
        "--",
        "/*",
        "*/",
        "/*+",
    ),
    *(
        "'a'",
        '"a"',
        "'",
        '"',
        "`",
        "\\",
        "''",
        "r'\\'",
        'R"\'"',
        "'\\''",
        "x'0a'",
        "1",
        "1.5",
        "1e3",
        "1L",
        ".5",
        "\n",
        " ",
        "\\\n",
        ";",
        "?",
        "@",
        "{{",
    ),
    *("ALL", "DISTINCT", "SOME", "array <", "map<", "week", "user", "'${env:PATH}'", "`${env:PATH}`"),
    *("(TABLE secret)", "java_method('a', 'b')", "(FROM secret)", "x -> ", "array(1)", "upper(name)"),
]

OPERATORS = {"and", "any", "between", "div", "in", "mod", "not", "or", "some", "when"}
"""The parser's names for constructs without a name in SQL, and aggregates that are keywords of LIKE."""


WITHOUT_BRACKETS = {
    "current_date",
    "current_time",
    "current_timestamp",
    "current_user",
    "localtimestamp",
    "session_user",
    "user",
}
"""Functions that the parser reports as columns."""
OPERATOR_WORDS = {
    "and",
    "as",
    "between",
    "both",
    "case",
    "cast",
    "collate",
    "distinct",
    "div",
    "else",
    "end",
    "escape",
    "false",
    "for",
    "from",
    "ilike",
    "in",
    "is",
    "leading",
    "like",
    "not",
    "null",
    "or",
    "placing",
    "regexp",
    "rlike",
    "then",
    "to",
    "trailing",
    "true",
    "when",
}
"""Keywords reported as columns where no operator can stand; no session has a variable of such a name."""


def found_in(spark, text):
    """Return the functions, node classes and names that Spark's parser finds; None if it rejects the expression."""
    parser = spark._jsparkSession.sessionState().sqlParser()
    try:
        pending = [parser.parseExpression(f"(\n{text}\n)")]
    except Exception:  # noqa: BLE001 - Spark's own errors, by way of Py4J
        return None
    functions, classes, names = set(), set(), set()
    while pending:
        node = pending.pop()
        name = node.getClass().getSimpleName()
        classes.add(name)
        if name == "UnresolvedFunction":
            functions.add(node.nameParts().mkString(".").lower())
        elif name == "UnresolvedAttribute":
            names.add(node.nameParts().head().lower())
        children = node.children()
        pending += [children.apply(number) for number in range(children.size())]
    return functions, classes, names


def check(spark, text):
    """Return whether Spark parses an expression; everything in it must be on the list."""
    assert "${" not in text
    found = found_in(spark, text)
    if found is None:
        return False
    functions, classes, names = found
    assert names <= {name.lower() for name in COLUMNS} | WITHOUT_BRACKETS | OPERATOR_WORDS, text
    assert {each for each in functions if each[0].isalpha()} <= SCALARS | OPERATORS, text
    assert not {
        each
        for each in classes
        if "Subquery" in each
        or "Plan" in each
        or "Window" in each
        or "Star" in each
        or "Parameter" in each
        or "Identifier" in each
    } | (classes & {"Exists", "ListQuery", "InSubquery", "FunctionTableSubqueryArgumentExpression"}), text
    return True


def test_legitimate_expressions_keep_their_meaning_when_rewritten(spark):
    row = spark.sql(ROW)
    for text in LEGITIMATE:
        assert check(spark, allowed_expression(text, COLUMNS, "It is")), text
    columns = []
    for number, text in enumerate(LEGITIMATE):
        columns += [
            F.expr(f"(\n{text}\n)").alias(f"a{number}"),
            F.expr(f"({allowed_expression(text, COLUMNS, 'It is')})").alias(f"b{number}"),
        ]
    (found,) = row.select(*columns).collect()
    for number, text in enumerate(LEGITIMATE):
        assert found[f"a{number}"] == found[f"b{number}"], text


@pytest.mark.gate
def test_the_list_names_functions_that_spark_has(spark):
    known = {row[0].rpartition(".")[2] for row in spark.sql("SHOW SYSTEM FUNCTIONS").collect()}
    # Parser-only functions, and those of other Spark versions.
    assert (
        len(
            SCALARS
            - known
            - {"cast", "try_cast", "timestampadd", "timestampdiff", "extract", "position", "overlay"}
        )
        < 40
    )


@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.sampled_from(PIECES), min_size=1, max_size=9), st.booleans())
@pytest.mark.gate
def test_spark_finds_nothing_unlisted_in_accepted_expressions(spark, pieces, spaced):
    text = (" " if spaced else "").join(pieces)
    try:
        written = allowed_expression(text, COLUMNS, "It is")
    except ExpressionNotAllowed:
        return
    check(spark, written)


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.sampled_from(HOSTILE + LEGITIMATE),
    st.sampled_from(LEGITIMATE + HOSTILE),
    st.integers(0, 60),
    st.integers(0, 60),
    st.integers(0, 60),
)
def test_spark_finds_nothing_unlisted_in_spliced_expressions(spark, one, other, start, end, at):
    text = one[:at] + other[min(start, end) : max(start, end)] + one[at:]
    try:
        written = allowed_expression(text, COLUMNS, "It is")
    except ExpressionNotAllowed:
        return
    check(spark, written)


@pytest.mark.parametrize(
    "name", ["spark.sql.ansi.doubleQuotedIdentifiers", "spark.sql.parser.escapedStringLiterals"]
)
def test_lexer_settings_do_not_turn_strings_into_functions(spark, name):
    before = spark.conf.get(name, "false")
    spark.conf.set(name, "true")
    try:
        for text in (*LEGITIMATE, *HOSTILE):
            try:
                written = allowed_expression(text, COLUMNS, "It is")
            except ExpressionNotAllowed:
                continue
            check(spark, written)
    finally:
        spark.conf.set(name, before)


def test_session_variables_are_not_read(spark):
    try:
        spark.sql("DECLARE OR REPLACE VARIABLE delvec_secret STRING DEFAULT 'hidden'")
    except PySparkException:
        pytest.skip("this Spark has no variables")
    with pytest.raises(ExpressionNotAllowed, match="'delvec_secret' is neither a column"):
        allowed_expression("concat(name, delvec_secret)", COLUMNS, "It is")


@pytest.mark.parametrize("ansi", ["true", "false"])
@pytest.mark.gate
def test_folded_constants_have_the_value_that_spark_computes(spark, ansi):
    """None fails, overflows or becomes NULL, with ``spark.sql.ansi.enabled`` on or off."""
    session = spark.newSession()
    session.conf.set("spark.sql.ansi.enabled", ansi)
    folded = {}
    for text in CONSTANTS:
        predicate = parse(f"id = ({text})", NUMBERS)
        after = predicate.folded.args["expression"]
        if after is not predicate.expression.args["expression"] and not _has_operator(after):
            folded[text] = after.sql(SparkDialect)
    assert len(folded) > len(CONSTANTS) // 4
    texts = list(folded)
    for start in range(0, len(texts), 100):
        some = texts[start : start + 100]
        pairs = [
            f"named_struct('a', ({text}), 'b', {folded[text]}, 'same', ({text}) <=> {folded[text]})"
            for text in some
        ]
        (row,) = session.sql(f"SELECT {', '.join(pairs)}").collect()
        for text, pair in zip(some, row, strict=True):
            assert (pair["same"], pair["a"] is None) == (True, False), (text, folded[text], pair)


def _has_operator(node):
    return node.find(exp.Binary, exp.TsOrDsAdd, exp.Interval, exp.TryCast) is not None
