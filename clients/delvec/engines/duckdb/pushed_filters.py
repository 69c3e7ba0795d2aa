"""Conditions that DuckDB's Parquet reader gets wrong, and the form in which it does not.

DuckDB 2.0 takes the bounds of a row group for all of its values. Where the least and the greatest text are the same and the
column has no dictionary, a condition that is true for NULL counts as true for every row: of NULL and 'a', ``s IS NULL`` finds both.
Inside a CASE each row is looked at.
"""

import re
from collections.abc import Iterator
from typing import Final

from sqlglot import exp

from delvec_kernel.expressions.expression_kinds import column_path, column_type
from delvec_kernel.schema.types import PrimitiveType, StructType, leaves

__all__ = ["conjuncts", "may_accept_null_text", "mentions_null", "shielded"]

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
"""Not true where an operand is NULL."""
_ACCEPTING: Final = re.compile(
    r"\b(?:is|isnull|distinct|coalesce|ifnull|nvl2?|nullif|case|if|iff|concat|concat_ws|greatest|least|decode|list|array|"
    r"struct|map|row|json)\b|<=>|\|\||\[|\{",
    re.IGNORECASE,
)


def shielded(condition: str) -> str:
    """Return a condition that is true for the same rows, in a form that DuckDB evaluates for each row."""
    return f"CASE WHEN {condition} THEN TRUE END"


def conjuncts(root: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the conditions that a condition is the AND of."""
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
    """Whether a resolved condition reads text or bytes and may be true where these are NULL."""
    return not _rejects_null(node) and any(_is_text(each, schema) for each in node.find_all(exp.Column))


def mentions_null(query: str) -> bool:
    """Whether a query in SQL may have a condition that is true for NULL."""
    return _ACCEPTING.search(query) is not None


def _rejects_null(node: exp.Expr) -> bool:
    """Whether a condition is certainly not true where any of its columns is NULL."""
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
    return found is None or not _TEXTS.isdisjoint(leaves(found))
