"""Properties of a Spark session: Connect or classic, time zone, variable substitution.

Tested in `tests/integration/spark/test_spark_session_settings.py` and
`tests/integration/spark/test_spark_connect.py`.
"""

import re
import time
from collections.abc import Collection, Iterator
from typing import Any, Final

import pyarrow as pa
from pyspark import TaskContext
from sqlglot import exp

from delvec_errors import InvalidPredicate, UnknownColumn
from delvec_kernel.constraints.declared import Check, Constraints
from delvec_kernel.expressions.expression_kinds import column_path, kind_of
from delvec_kernel.expressions.predicate import parse
from delvec_kernel.schema.types import StructType

__all__ = ["in_local_time", "is_remote", "is_utc", "refuse_variables", "zone_of_session"]


def is_remote(given: Any) -> bool:
    """Return whether a session, a DataFrame or a Column belongs to Spark Connect, without importing Connect."""
    return type(given).__module__.startswith("pyspark.sql.connect.")


_PROPERTY: Final = "spark.sql.session.timeZone"
_UTC: Final = re.compile(
    r"(?:Etc/)?(?:UTC|UCT|GMT|Zulu|Universal|Greenwich|Z)(?:[+-]?0{1,2}(?::?00)?)?|[+-]0{1,2}(?::?00)?",
    re.IGNORECASE,
)
_ZONED: Final = re.compile(r"\d.*(?:Z|UTC|GMT|[+-]\d{2}:\d{2})\s*")
_COMPARISONS: Final = (
    exp.Between,
    exp.EQ,
    exp.GT,
    exp.GTE,
    exp.In,
    exp.LT,
    exp.LTE,
    exp.NEQ,
    exp.NullSafeEQ,
    exp.NullSafeNEQ,
)


def in_local_time(
    constraints: Constraints, schema: StructType, input_columns: Collection[str]
) -> Check | None:
    """Return the first of a table's expressions whose result may depend on the time zone; None if there is none.

    Args:
        constraints: the constraints of the table.
        schema: the table's.
        input_columns: columns of the rows in lower case, whose defaults are not evaluated.

    Raises:
        ExpressionNotAllowed: an expression is not allowed in tables.
    """
    candidates = [(check, check.sql) for check in constraints.checks]
    candidates += [(rule.check, rule.sql) for rule in constraints.generated]
    for rule in constraints.defaults:
        if rule.column.lower() in input_columns:
            continue
        kind = schema.field(rule.column).type.to_json()
        # With the cast of its evaluation, which may convert a string to a timestamp.
        cast = f"CAST(({rule.sql}) AS {kind})" if kind in ("timestamp", "date", "string") else None
        candidates.append((rule.check, cast or rule.sql))
    return next((check for check, text in candidates if _is_local(text, schema)), None)


def zone_of_session(rows: pa.Schema | None) -> str:
    """Return the session's time zone; runs in tasks.

    Args:
        rows: schema of the task's Arrow rows, whose timestamps have the session's time zone; None without rows.
    """
    found = next((kind.tz for kind in _timestamps(rows) if kind.tz), None)
    context = TaskContext.get()
    setting = context.getLocalProperty(_PROPERTY) if found is None and context is not None else None
    # If nothing is set, it is the machine's time zone.
    return found or setting or ("/".join(time.tzname) if time.timezone or time.daylight else "UTC")


def is_utc(zone: str) -> bool:
    """Whether a time zone is UTC, all year."""
    return _UTC.fullmatch(zone.strip()) is not None


def _timestamps(rows: pa.Schema | None) -> Iterator[pa.TimestampType]:
    return (kind for kind in (() if rows is None else rows.types) if pa.types.is_timestamp(kind))


def _is_local(text: str, schema: StructType) -> bool:
    try:
        root = parse(f"(\n{text}\n) IS NULL", schema).expression
    except (InvalidPredicate, UnknownColumn):
        return True  # evaluation refuses it anyway
    return any(_depends(node, schema) for node in root.walk())


def _depends(node: exp.Expr, schema: StructType) -> bool:
    """Whether a node converts between timestamps and other types, which depends on the time zone."""
    if isinstance(node, exp.CurrentDate):
        return True
    kind = kind_of(node, schema)
    if isinstance(node, exp.Column) and kind in ("array", "map", "struct"):
        is_field = node.parent is not None and column_path(node.parent) is not None
        return "timestamp" in str(schema.field(node.name).type.to_json()) and not is_field
    if kind != "timestamp":
        return False
    if isinstance(node, exp.Cast) and not _is_instant(node.this, schema):
        return True
    parent = node.parent
    if isinstance(parent, _COMPARISONS):
        sides = [
            each
            for name in ("this", "expression", "expressions", "low", "high")
            for each in _listed(parent, name)
        ]
        return not all(_is_instant(each, schema) for each in sides)
    return not (isinstance(parent, exp.Is | exp.Paren) or (isinstance(parent, exp.Cast) and _same(parent)))


def _listed(node: exp.Expr, name: str) -> list[exp.Expr]:
    found = node.args.get(name)
    return found if isinstance(found, list) else [] if found is None else [found]


def _is_instant(node: exp.Expr, schema: StructType) -> bool:
    if isinstance(node, exp.Literal) and node.is_string:
        return _ZONED.fullmatch(node.name.strip()) is not None
    if isinstance(node, exp.Paren):
        return _is_instant(node.this, schema)
    return kind_of(node, schema) in ("timestamp", "null")


def _same(cast: exp.Cast) -> bool:
    return kind_of(cast, StructType(())) == "timestamp"


def refuse_variables(text: str) -> None:
    """Refuse an expression in which Spark would substitute a setting or an environment variable.

    Spark substitutes before parsing, even inside string literals (``spark.sql.variable.substitute``), so it would find other
    rows than those for which the service planned the files.

    Raises:
        InvalidPredicate: it contains ``${``.
    """
    if "${" in text:
        raise InvalidPredicate(
            f"The expression {text[:200]!r} contains '${{', which Spark replaces by the value of a setting or an environment "
            "variable. Put the value there, or write concat('$', '{') for the characters themselves.",
            predicate=text,
        )
