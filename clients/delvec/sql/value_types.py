"""The types of the values of a query, from the schemas of the tables that it reads.

Tested in `tests/integration/client/sql/test_spark_values.py`.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final, cast

from sqlglot import exp

from delvec_engines.duckdb.dialect import TRANSLATED
from delvec_kernel.expressions.expression_kinds import INTEGER_TYPES, kind_of
from delvec_kernel.expressions.functions import function_of
from delvec_kernel.schema.types import DataType, DecimalType, PrimitiveType, StructField, StructType

__all__ = ["PLAIN", "ValueTypes", "is_translated", "with_columns"]

PLAIN: Final = (exp.Boolean, exp.Column, exp.HexString, exp.Literal, exp.Null, exp.Star)
"""Values that are the same in every dialect."""
_WITHIN: Final = (
    exp.All,
    exp.Any,
    exp.DataType,
    exp.DataTypeParam,
    exp.Identifier,
    exp.If,
    exp.PropertyEQ,
    exp.Tuple,
    exp.Var,
)
"""Parts of values that are no values."""
_AROUND: Final = (exp.Filter, exp.IgnoreNulls, exp.Paren, exp.RespectNulls, exp.Window)
_PASSING: Final = (
    exp.AnyValue,
    exp.First,
    exp.FirstValue,
    exp.Lag,
    exp.Last,
    exp.LastValue,
    exp.Lead,
    exp.Max,
    exp.Min,
)
_COUNTING: Final = (exp.Ceil, exp.Count, exp.DenseRank, exp.Floor, exp.Ntile, exp.Rank, exp.RowNumber)
_INT_END: Final = 2**31
_CAST_TO: Final = {exp.DType.INT: "integer", exp.DType.BIGINT: "long", exp.DType.DATE: "date"}
_SIMPLE: Final = {
    "integer": PrimitiveType("long"),
    **{
        name: PrimitiveType(name)
        for name in ("binary", "boolean", "date", "double", "float", "string", "timestamp", "timestamp_ntz")
    },
}


def is_translated(node: exp.Expr) -> bool:
    """Return whether the engine may have SQL for this kind of value."""
    if isinstance(node, exp.In) and any(node.args.get(key) for key in ("query", "unnest", "field")):
        return False
    return type(node) in TRANSLATED or function_of(node) is not None


def with_columns(node: exp.Expr, column: Callable[[exp.Expr], exp.Column]) -> exp.Expr:
    """Return a copy of a value with another column for each column, and for each part that is not translated."""
    copy = node.copy()
    for part, twin in list(zip(_outermost(node), _outermost(copy), strict=True)):
        if part is node:
            return column(part)
        twin.replace(column(part))
    return copy


def _outermost(node: exp.Expr) -> Iterator[exp.Expr]:
    if isinstance(node, exp.Column) or not (is_translated(node) or isinstance(node, (*PLAIN, *_WITHIN))):
        yield node
        return
    if isinstance(node, exp.DataType):
        return  # the numbers of a type are no values
    for child in node.iter_expressions():
        yield from _outermost(child)


class ValueTypes:
    """Infers types; those of decimal results, and of functions that Delvec does not know, stay unknown.

    Args:
        schemas: the schemas of the tables, by name.
    """

    def __init__(self, schemas: Mapping[str, StructType]) -> None:
        self._schemas = schemas

    def of(self, node: object) -> DataType | None:
        """Return the type of a value of the query; None if it is unknown."""
        if isinstance(node, exp.Column):
            return self._column(node)
        if isinstance(node, (*_AROUND, *_PASSING)):
            return self.of(node.this)
        if isinstance(node, _COUNTING):
            return None if node.args.get("decimals") else _SIMPLE["integer"]
        if isinstance(node, exp.Sum | exp.Avg):
            return self._aggregated(node)
        if isinstance(node, exp.Subquery) and isinstance(node.this, exp.Select):
            return self.of(node.this.expressions[0].unalias())
        is_inferred = isinstance(node, exp.Expr) and (is_translated(node) or isinstance(node, PLAIN))
        return self._translated(cast(exp.Expr, node)) if is_inferred else None

    def pivoted(self, value: object, pivot: exp.Pivot) -> DataType | None:
        """Return the type of what an aggregate of a PIVOT is of, if that is a column; None if it is unknown."""
        source, query = pivot.parent, pivot.find_ancestor(exp.Select)
        if not isinstance(value, exp.Column) or source is None or query is None:
            return None
        return self._field(source, value.name, query)

    def width(self, value: exp.Expr) -> str | None:
        """Return the name of the type of a whole number, or ``date``; None if it is another type, or unknown."""
        value = value.unnest()
        literal = value.this if isinstance(value, exp.Neg) else value
        if isinstance(literal, exp.Literal) and not literal.is_string:
            return ("integer" if int(literal.name) < _INT_END else "long") if literal.is_int else None
        if isinstance(value, exp.Cast):
            return _CAST_TO.get(value.to.this)
        if isinstance(value, exp.ArraySize | exp.Length):
            return "integer"
        kind = self.of(value)
        name = kind.name if isinstance(kind, PrimitiveType) else None
        # The type of other whole numbers is only known to be one of them.
        return (
            name
            if name == "date" or (isinstance(value, exp.Column) and name in ("integer", "long"))
            else None
        )

    def _aggregated(self, node: exp.Sum | exp.Avg) -> DataType | None:
        of = self.of(node.this)
        if of is None or isinstance(of, DecimalType):
            return None
        is_whole = isinstance(of, PrimitiveType) and of.name in INTEGER_TYPES and isinstance(node, exp.Sum)
        return _SIMPLE["integer" if is_whole else "double"]

    def _translated(self, node: exp.Expr) -> DataType | None:
        fields: list[StructField] = []

        def column(part: exp.Expr) -> exp.Column:
            fields.append(StructField(f"v{len(fields)}", self.of(part) or PrimitiveType("void")))
            return exp.column(fields[-1].name)

        kind = kind_of(with_columns(node, column), StructType(tuple(fields)))
        return None if kind is None else _SIMPLE.get(kind)

    # --- columns ----------------------------------------------------------------------------------------------

    def _column(self, column: exp.Column) -> DataType | None:
        names = [part.name for part in column.parts]
        inside, query = _around(column)
        while query is not None:
            if _is_result(names, inside, query):
                return None
            sources = list(_sources(query))
            for relation, source in sources:
                if len(names) > 1 and relation.lower() == names[0].lower():
                    return self._path(source, names[1:], query)
            for _, source in sources:
                kind = self._path(source, names, query)
                if kind is not None:
                    return kind
            inside, query = _around(query)
        return None

    def _path(self, source: exp.Expr, names: list[str], query: exp.Expr) -> DataType | None:
        kind = None if source.args.get("pivots") else self._field(source, names[0], query)
        for name in names[1:]:
            item = kind.get(name) if isinstance(kind, StructType) else None
            kind = None if item is None else item.type
        return kind

    def _field(self, source: exp.Expr, name: str, query: exp.Expr) -> DataType | None:
        body: exp.Expr | None = source.this
        if isinstance(source, exp.Table):
            schema = self._schemas.get(source.name)
            if schema is not None:
                item = schema.get(name)
                return None if item is None else item.type
            body = _defined(source.name, query)
        while isinstance(body, exp.Subquery):
            body = body.this
        if not isinstance(body, exp.Select):  # branches of a UNION may have different types
            return None
        for item in body.expressions:
            if item.alias_or_name.lower() == name.lower():
                return self.of(item.unalias())
        if any(item.is_star for item in body.expressions):
            kinds = (self._path(each, [name], body) for _, each in _sources(body))
            return next((kind for kind in kinds if kind is not None), None)
        return None


def _around(node: exp.Expr) -> tuple[exp.Expr, exp.Select | None]:
    """Return the SELECT around a node, and its part that has the node."""
    while node.parent is not None and not isinstance(node.parent, exp.Select):
        node = node.parent
    return node, node.parent if isinstance(node.parent, exp.Select) else None


def _is_result(names: list[str], inside: exp.Expr, query: exp.Select) -> bool:
    """Whether a column is one of the query's own results, which ORDER BY can name."""
    results = {each.alias.lower() for each in query.expressions}
    return isinstance(inside, exp.Order) and len(names) == 1 and names[0].lower() in results


def _sources(query: exp.Expr) -> Iterator[tuple[str, exp.Expr]]:
    """Yield the relations of a SELECT with the names under which it refers to them."""
    clause = query.args.get("from_") or query.args.get("from")
    pending = [] if clause is None else [clause.this]
    pending += [join.this for join in query.args.get("joins") or ()]
    while pending:
        source = pending.pop(0)
        if isinstance(source, exp.Table | exp.Subquery):
            pending += [join.this for join in source.args.get("joins") or ()]
            if isinstance(source, exp.Table) or isinstance(source.this, exp.Query):
                yield source.alias_or_name, source
            else:
                pending.append(source.this)


def _defined(name: str, query: exp.Expr | None) -> exp.Expr | None:
    """Return the query that WITH defines under a name; None if there is none, or it may refer to itself."""
    inside: exp.Expr | None = None
    while query is not None:
        clause = query if isinstance(query, exp.With) else query.args.get("with_") or query.args.get("with")
        if clause is not None and clause is not inside:
            for each in clause.expressions:
                if each is inside:
                    break  # a query sees only those before it
                if each.alias.lower() == name.lower():
                    body: exp.Expr = each.this
                    return None if clause.args.get("recursive") else body
        inside, query = query, query.parent
    return None
