"""Columns that rows may omit: default, generated and identity columns (PROTOCOL.md).

Tested in `tests/integration/engines/test_given_columns.py`.
"""

from collections.abc import Mapping
from typing import Any, Final

from sqlglot import exp
from sqlglot.errors import SqlglotError

from delvec_errors import InvalidPredicate, InvalidSchema, UnknownColumn
from delvec_kernel.constraints.constant_casts import is_impossible
from delvec_kernel.constraints.declared import DEFAULT, Generated
from delvec_kernel.expressions import predicate as predicates
from delvec_kernel.expressions.spark_dialect import SPARK
from delvec_kernel.schema.types import (
    GENERATION,
    IDENTITY_ALLOWS_EXPLICIT,
    IDENTITY_START,
    IDENTITY_STEP,
    PrimitiveType,
    StructField,
    StructType,
)

__all__ = ["check", "check_default", "features"]

_IDENTITY: Final = "delta.identity."
_NAMES: Final = (exp.Alias, exp.Aliases)
_MULTI_ROW_EXPRESSIONS: Final = (exp.AggFunc, exp.UDTF, exp.Window, exp.Query)
_LONG: Final = range(-(2**63), 2**63)


def features(schema: StructType) -> list[str]:
    """Return the writer features that a new table's columns need."""
    keys = {key for field in schema.fields for key in field.metadata}
    wanted = (
        (GENERATION, "generatedColumns"),
        (IDENTITY_START, "identityColumns"),
        (DEFAULT, "allowColumnDefaults"),
    )
    return [feature for key, feature in wanted if key in keys]


def check(schema: StructType) -> frozenset[tuple[str, str]]:
    """Reject invalid rules; return the valid ones as (column name, metadata key).

    Raises:
        InvalidSchema: names the column.
        ExpressionNotAllowed: an expression is not allowed.
    """
    valid_rules: set[tuple[str, str]] = set()
    for field in schema.fields:
        rules = [key for key in (DEFAULT, GENERATION, IDENTITY_START) if key in field.metadata]
        if len(rules) > 1:
            raise _refused(
                field, "can have only one of a default, a generation expression and identity numbers"
            )
        if DEFAULT in field.metadata:
            _check_expression(field, field.metadata[DEFAULT], StructType(()), "default")
        if GENERATION in field.metadata:
            others = schema.without(
                [
                    each.name
                    for each in schema.fields
                    if GENERATION in each.metadata or IDENTITY_START in each.metadata
                ]
            )
            _check_expression(field, field.metadata[GENERATION], others, "generation expression")
        if IDENTITY_START in field.metadata:
            _check_identity(field, field.metadata)
        valid_rules |= {(field.name, key) for key in (*rules, IDENTITY_STEP, IDENTITY_ALLOWS_EXPLICIT)}
    return frozenset(valid_rules)


def check_default(field: StructField, text: str) -> None:
    """Reject an invalid default of a column.

    Raises:
        InvalidSchema: it reads columns, is not one expression, or cannot be cast to the column's type, or the
            column is generated or an identity column.
        ExpressionNotAllowed: it is not allowed.
    """
    if GENERATION in field.metadata or IDENTITY_START in field.metadata:
        raise _refused(field, "is a generated or identity column, which cannot have a default")
    _check_expression(field, text, StructType(()), "default")


def _check_expression(field: StructField, text: Any, schema: StructType, what: str) -> None:
    if not isinstance(text, str):
        raise _refused(field, f"has a {what} that is not a string")
    asked_text = f"({text}\n) IS NULL"
    try:
        with predicates.limited_nesting():
            found = SPARK.parser().parse(predicates.bounded_tokens(asked_text), asked_text)
        asked = found[0] if len(found) == 1 else None
        if not isinstance(asked, exp.Is) or not isinstance(asked.this, exp.Paren):
            raise _refused(field, f"has a {what} that is not a single expression: {text[:200]!r}")
        if isinstance(asked.this.this, _NAMES) or asked.find(*_MULTI_ROW_EXPRESSIONS):
            raise _refused(
                field,
                f"has a {what} that cannot be computed for each row: {text[:200]!r}; do not use an alias, "
                "aggregate functions, or functions that return several rows",
            )
    except SqlglotError as error:
        raise _refused(field, f"has the {what} {text[:200]!r}, which cannot be parsed as SQL") from error
    except InvalidPredicate as error:
        reason = error.message.replace("The predicate", "the expression", 1).removesuffix(".")
        raise _refused(field, f"has the {what} {text[:200]!r}, which cannot be parsed: {reason}") from error
    try:
        root = predicates.parse(asked_text, schema).expression
    except UnknownColumn as error:
        raise _refused(
            field,
            f"has the {what} {text[:200]!r}, which may only read columns of the table that are not computed "
            f"themselves: {error.message}",
        ) from error
    except InvalidPredicate:
        pass  # may be a function that only the engine knows
    else:
        if what == "default" and isinstance(root, exp.Is) and is_impossible(root.this, field.type):
            kind = field.type.to_json()
            shown = kind if isinstance(kind, str) else kind["type"]
            raise _refused(field, f"has the default {text[:200]!r}, which cannot be cast to its type {shown}")
    Generated(field.name, text, tuple(schema.names), is_default=what == "default").sql  # noqa: B018 - raises ExpressionNotAllowed


def _check_identity(field: StructField, metadata: Mapping[str, Any]) -> None:
    numbers = [metadata.get(key) for key in (IDENTITY_START, IDENTITY_STEP)]
    whole = all(isinstance(each, int) and not isinstance(each, bool) and each in _LONG for each in numbers)
    if field.type != PrimitiveType("long") or not whole or not numbers[1]:
        raise _refused(
            field, "is an identity column, which must have type long, a start, and a step other than 0"
        )
    if not isinstance(metadata.get(IDENTITY_ALLOWS_EXPLICIT), bool):
        raise _refused(
            field, f"is an identity column whose {IDENTITY_ALLOWS_EXPLICIT} is neither true nor false"
        )


def _refused(field: StructField, what: str) -> InvalidSchema:
    return InvalidSchema(f"Column '{field.name}' {what}.", column=field.name)
