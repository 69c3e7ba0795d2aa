"""DEFAULT in the rows of ``INSERT … VALUES``."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sqlglot import exp

from delvec.sql.queries import DIALECTS, parse_query
from delvec_errors import BadRequest
from delvec_kernel.constraints.declared import DEFAULT, Generated
from delvec_kernel.expressions.expression import parse_expression
from delvec_kernel.schema.types import GENERATION, IDENTITY_START, StructField, StructType

if TYPE_CHECKING:
    from delvec.table import DeltaTable

__all__ = ["with_defaults"]


def with_defaults(
    text: str, table: "DeltaTable", columns: Sequence[str] | None
) -> tuple[str, list[str] | None]:
    """Return a query without DEFAULT, and the columns it fills.

    A column that is DEFAULT in every row is left out, so that the write fills it, as it also numbers and computes columns.
    Elsewhere DEFAULT becomes the SQL of the column's default, or NULL without one.

    Args:
        text: a query.
        table: what it fills.
        columns: those it fills; None for all.

    Raises:
        BadRequest: some rows give a value to a generated or identity column, and others DEFAULT.
        ExpressionNotAllowed: the default uses a function or syntax that defaults may not use.
    """
    tree = parse_query(text, "spark").tree
    original = text, None if columns is None else list(columns)
    if not isinstance(tree, exp.Values) or not any(map(_is_default, tree.find_all(exp.Var, exp.Column))):
        return original
    schema = StructType.from_json(table.snapshot().table_schema)
    names = schema.names if columns is None else list(columns)
    rows = [list(row.expressions) for row in tree.expressions]
    if any(len(row) != len(names) for row in rows) or not all(name in schema for name in names):
        return original  # The statement's own check says what is wrong.
    fields = [schema.field(name) for name in names]
    column_positions = [
        place for place, values in enumerate(zip(*rows, strict=True)) if not all(map(_is_default, values))
    ]
    # A row needs a column.
    column_positions = (
        column_positions or [place for place, item in enumerate(fields) if not _is_computed(item)][:1]
    )
    for row in rows:
        for place in column_positions:
            if _is_default(row[place]):
                row[place] = _default(fields[place])
    filled = exp.values([tuple(row[place] for place in column_positions) for row in rows])
    return filled.sql(dialect=DIALECTS["spark"], comments=False), [names[place] for place in column_positions]


def _is_default(node: exp.Expr) -> bool:
    is_name = isinstance(node, exp.Var) or (isinstance(node, exp.Column) and not node.this.args.get("quoted"))
    return is_name and not node.args.get("table") and node.name.upper() == "DEFAULT"


def _is_computed(item: StructField) -> bool:
    return GENERATION in item.metadata or IDENTITY_START in item.metadata


def _default(item: StructField) -> exp.Expr:
    if _is_computed(item):
        raise BadRequest(
            f"Column '{item.name}' is computed for rows that say DEFAULT, and given in others; use two INSERT statements.",
            column=item.name,
        )
    text = item.metadata.get(DEFAULT)
    sql = Generated(item.name, str(text), (), is_default=True).sql if text else "NULL"
    return exp.Paren(this=parse_expression(sql, {}).root.copy())
