"""The kind of an expression's value, inferred from the expression and the schema.

Tested in `tests/unit/kernel/expressions/test_predicate.py`.
"""

from typing import Final

from sqlglot import exp

from delvec_kernel.expressions.functions import SAME, function_of
from delvec_kernel.schema.types import ArrayType, DataType, DecimalType, MapType, PrimitiveType, StructType

__all__ = [
    "CAST_TYPES",
    "INTEGER_TYPES",
    "NUMERIC_KINDS",
    "TEMPORAL_TYPES",
    "column_path",
    "column_type",
    "kind_of",
    "kind_of_type",
]

INTEGER_TYPES: Final = frozenset({"byte", "short", "integer", "long"})
TEMPORAL_TYPES: Final = frozenset({"date", "timestamp", "timestamp_ntz"})
NUMERIC_KINDS: Final = frozenset({"integer", "decimal", "float", "double"})

CAST_TYPES: Final = {
    exp.DType.BOOLEAN: "boolean",
    exp.DType.TINYINT: "byte",
    exp.DType.SMALLINT: "short",
    exp.DType.INT: "integer",
    exp.DType.BIGINT: "long",
    exp.DType.FLOAT: "float",
    exp.DType.DOUBLE: "double",
    exp.DType.DECIMAL: "decimal",
    exp.DType.TEXT: "string",
    exp.DType.DATE: "date",
    exp.DType.TIMESTAMP: "timestamp",
    exp.DType.TIMESTAMPTZ: "timestamp",
    exp.DType.TIMESTAMPLTZ: "timestamp",
    exp.DType.TIMESTAMPNTZ: "timestamp_ntz",
}
"""Delta's names of types that a value may be cast to, with ``decimal`` for all decimals."""
_CAST_KINDS: Final = {
    **{cast: "integer" if name in INTEGER_TYPES else name for cast, name in CAST_TYPES.items()},
    exp.DType.VARCHAR: "string",
    exp.DType.CHAR: "string",
    exp.DType.BINARY: "binary",
    exp.DType.VARBINARY: "binary",
}

_BOOLEAN: Final = (
    exp.Between,
    exp.Boolean,
    exp.Connector,
    exp.EQ,
    exp.Escape,
    exp.Exists,
    exp.GT,
    exp.GTE,
    exp.ILike,
    exp.In,
    exp.Is,
    exp.Like,
    exp.LT,
    exp.LTE,
    exp.NEQ,
    exp.Not,
    exp.NullSafeEQ,
    exp.NullSafeNEQ,
)
_INTEGER: Final = (
    exp.BitwiseAnd,
    exp.BitwiseNot,
    exp.BitwiseOr,
    exp.BitwiseXor,
    exp.IntDiv,
)
_KINDS: Final[tuple[tuple[type[exp.Expr] | tuple[type[exp.Expr], ...], str], ...]] = (
    (_BOOLEAN, "boolean"),
    (_INTEGER, "integer"),
    (exp.DPipe, "string"),
    (exp.Null, "null"),
    (exp.HexString, "binary"),
    (exp.Interval, "interval"),
    (exp.Struct, "struct"),
)
_TRANSPARENT: Final = (exp.Paren, exp.Neg, exp.Collate)


def column_path(node: exp.Expr) -> tuple[str, ...] | None:
    """Return the path of a resolved column or struct field; None for other expressions."""
    fields: list[str] = []
    while isinstance(node, exp.Dot) and isinstance(node.expression, exp.Identifier):
        fields.append(node.expression.name)
        node = node.this
    if not isinstance(node, exp.Column):
        return None
    return (node.name, *reversed(fields))


def column_type(path: tuple[str, ...], schema: StructType) -> DataType | None:
    """Return the type of a column or struct field, as spelled in the schema; None if there is none."""
    found: DataType | None = schema
    for name in path:
        field = found.get(name) if isinstance(found, StructType) else None
        found = None if field is None or field.name != name else field.type
    return found


def kind_of_type(data_type: DataType | None) -> str | None:
    """Return the kind of a Delta type: its name, with all integral types as ``integer``."""
    if isinstance(data_type, PrimitiveType):
        return "integer" if data_type.name in INTEGER_TYPES else data_type.name
    for cls, kind in (
        (DecimalType, "decimal"),
        (ArrayType, "array"),
        (MapType, "map"),
        (StructType, "struct"),
    ):
        if isinstance(data_type, cls):
            return kind
    return None


def kind_of(node: exp.Expr, schema: StructType) -> str | None:  # noqa: PLR0911 - one answer per family
    """Return ``boolean``, ``integer``, ``decimal``, ``float``, ``double``, ``string``, ... or None if unknown.

    ``null`` is an untyped NULL.
    """
    if isinstance(node, (exp.Column, exp.Dot)):
        path = column_path(node)
        return kind_of_type(column_type(path, schema)) if path else None
    if isinstance(node, exp.Literal):
        return "string" if node.is_string else _number_kind(node.name)
    if isinstance(node, exp.Cast):
        return _CAST_KINDS.get(node.to.this)
    function = function_of(node)
    if function is not None:
        return kind_of(node.this, schema) if function.result == SAME else function.result
    if isinstance(node, _TRANSPARENT):
        return kind_of(node.this, schema)
    if isinstance(node, (exp.Add, exp.Sub, exp.Mul, exp.Mod, exp.Div)):
        return _arithmetic_kind(node, schema)
    return next((kind for classes, kind in _KINDS if isinstance(node, classes)), None) or _branch_kind(
        node, schema
    )


def _number_kind(text: str) -> str:
    lower = text.lower()
    if "e" in lower:
        return "double"
    return "decimal" if "." in lower else "integer"


def _arithmetic_kind(node: exp.Binary, schema: StructType) -> str | None:
    kinds = {kind_of(node.this, schema), kind_of(node.expression, schema)} - {"null"}
    if not kinds <= NUMERIC_KINDS or not kinds:
        return "date" if kinds == {"date", "integer"} and not isinstance(node, exp.Div) else None
    for kind in ("double", "float", "decimal"):
        if kind in kinds:
            return "double" if len(kinds) > 1 and kind == "float" else kind
    return "double" if isinstance(node, exp.Div) else "integer"


def _branch_kind(node: exp.Expr, schema: StructType) -> str | None:
    branches: list[exp.Expr | None]
    if isinstance(node, exp.If):
        branches = [node.args.get("true"), node.args.get("false")]
    elif isinstance(node, exp.Case):
        branches = [*(each.args.get("true") for each in node.args["ifs"]), node.args.get("default")]
    elif isinstance(node, (exp.Coalesce, exp.Greatest, exp.Least)):
        branches = [node.this, *node.expressions]
    elif isinstance(node, exp.Nullif):
        branches = [node.this]
    else:
        return None
    kinds = {kind_of(each, schema) for each in branches if each is not None} - {"null"}
    return kinds.pop() if len(kinds) == 1 else None
