"""Shields conditions from a DuckDB bug with filters on NULL text in Parquet files.

DuckDB 2.0 applies a filter to a row group's bounds. If its least and greatest text are equal and the
column has no dictionary, a condition that is true for NULL is taken as true for every row: of NULL and 'a', ``s IS NULL``
finds both. Conditions inside a CASE are evaluated for each row, and so are those on a column inside a CASE. The latter keeps all
filters of the column out of the reader, so it is for queries whose conditions are not ours.
"""

import re
from collections.abc import Iterator
from typing import Final

from sqlglot import exp

from delvec_kernel.expressions.expression_kinds import column_path, column_type
from delvec_kernel.schema.types import DataType, PrimitiveType, StructType, leaves

__all__ = ["conjuncts", "has_text", "may_accept_null_text", "mentions_null", "shielded"]

_TEXTS: Final = frozenset({PrimitiveType("string"), PrimitiveType("binary")})
_COMPARISONS: Final = (
    exp.EQ,
    exp.NEQ,
    exp.LT,
    exp.LTE,
    exp.GT,
    exp.GTE,
    exp.In,
    exp.Between,
    exp.Like,
    exp.ILike,
)
"""Operators that are not true if an operand is NULL."""
_ACCEPTING: Final = re.compile(
    r"\b(?:is|isnull|distinct|coalesce|ifnull|nvl2?|nullif|case|if|iff|concat|concat_ws|greatest|least|decode|list|array|"
    r"struct|map|row|json)\b|<=>|\|\||\[|\{",
    re.IGNORECASE,
)


def shielded(condition: str) -> str:
    """Return an equivalent condition that DuckDB evaluates for each row."""
    return f"CASE WHEN {condition} THEN TRUE END"


def has_text(kind: DataType) -> bool:
    """Whether a type is text or binary, or contains one at any depth."""
    return not _TEXTS.isdisjoint(leaves(kind))


def conjuncts(root: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the conjuncts of a condition."""
    pending = [root]
    while pending:
        node = pending.pop()
        if isinstance(node, exp.Paren):
            pending.append(node.this)
        elif isinstance(node, exp.And):
            pending += [node.expression, node.this]
        else:
            yield node


def may_accept_null_text(node: exp.Expr, schema: StructType) -> bool:
    """Whether a resolved condition reads text or binary columns and may be true if they are NULL."""
    return not _rejects_null(node) and any(_is_text(each, schema) for each in node.find_all(exp.Column))


def mentions_null(query: str) -> bool:
    """Whether an SQL query may contain a condition that is true for NULL."""
    return _ACCEPTING.search(query) is not None


def _rejects_null(node: exp.Expr) -> bool:
    """Whether a condition is certainly not true if any of its columns is NULL."""
    node = node.unnest()
    if isinstance(node, exp.Not):
        inner = node.this.unnest()
        if isinstance(inner, exp.Is):
            return isinstance(inner.expression, exp.Null) and column_path(inner.this.unnest()) is not None
        return isinstance(inner, _COMPARISONS) and _rejects_null(inner)
    if isinstance(node, exp.Or | exp.And):
        return _rejects_null(node.this) and _rejects_null(node.expression)
    return isinstance(node, _COMPARISONS) and all(map(_is_plain, node.iter_expressions()))


def _is_plain(node: exp.Expr) -> bool:
    node = node.unnest()
    if isinstance(node, exp.Cast | exp.Neg):
        return _is_plain(node.this)
    return isinstance(node, exp.Literal | exp.Boolean) or column_path(node) is not None


def _is_text(column: exp.Expr, schema: StructType) -> bool:
    node = column
    while isinstance(node.parent, exp.Dot) and node.parent.this is node:
        node = node.parent
    path = column_path(node)
    found = None if path is None else column_type(path, schema)
    return found is None or has_text(found)
