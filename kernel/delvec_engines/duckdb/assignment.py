"""ANSI store assignment as in Spark: a value that does not fit its column is an error, never changed.

DuckDB's own casts round where Spark truncates and read more texts as numbers, so each pair of types is written out.

Tested in `tests/integration/client/engines/duckdb/test_row_changes.py` and
`tests/integration/engines/test_update.py`.
"""

from typing import Any, Final

from delvec_engines.duckdb.dialect_functions import to_real
from delvec_engines.duckdb.file_columns import TYPES, sql_type
from delvec_engines.duckdb.scan import quoted, string_literal
from delvec_errors import InvalidPredicate, SchemaMismatch
from delvec_kernel.schema.types import ArrayType, DataType, DecimalType, MapType, PrimitiveType, StructType

__all__ = ["FAILED", "assigned"]

FAILED: Final = "delvec: a value does not fit into column "
"""Prefix of DuckDB's errors for values."""

_RANKS: Final = {
    "boolean": 0,
    "tinyint": 1,
    "utinyint": 2,
    "smallint": 2,
    "usmallint": 3,
    "integer": 3,
    "uinteger": 4,
    "bigint": 4,
    "ubigint": 5,
    "hugeint": 5,
    "uhugeint": 5,
}
"""Ranks of integer types: a value fits all types of its type's rank and above."""
_FRACTIONS: Final = frozenset({"float", "double", "decimal"})
_TIMES: Final = frozenset({"date", "timestamp", "timestamp with time zone"})
_AS_TEXT: Final = frozenset({*_RANKS, "date"})
_INTEGER_TEXT: Final = r"\s*[+-]?\d+\s*"
_NUMBER: Final = r"[^_]*"
_DAY: Final = r"\s*-?\d{4,6}-\d{1,2}-\d{1,2}(?:[ T][^(]*)?\s*"


def assigned(value: str, value_type: Any, kind: DataType, column: str) -> str:
    """Return the SQL of ``value`` as a column's type.

    Args:
        value: SQL, without side effects, as it may be evaluated twice.
        value_type: its DuckDB type; None if it is always NULL.
        kind: the column's type.
        column: its name, for errors.

    Raises:
        InvalidPredicate: DuckDB cannot convert between these types as Spark does.
    """
    return _converted(value, value_type, kind, column, 0)


def _converted(value: str, value_type: Any, kind: DataType, column: str, depth: int) -> str:  # noqa: PLR0911 - one per family
    if value_type is None or value_type.id == "null" or kind == PrimitiveType("void"):
        return f"CAST(NULL AS {sql_type(kind, has_mapping=False)})"
    if isinstance(kind, StructType):
        return _struct(value, value_type, kind, column, depth)
    if isinstance(kind, ArrayType):
        return _list(value, value_type, kind, column, depth)
    if isinstance(kind, MapType):
        return _map(value, value_type, kind, column, depth)
    target = sql_type(kind, has_mapping=False)
    if _is_same(value_type, kind):
        return value
    attempt = _attempt(value, value_type.id, kind, target)
    if attempt is None:
        raise _refused(value_type, kind, column)
    if attempt.startswith("CAST("):
        return attempt
    message = string_literal(f"{FAILED}'{column}' ({target}): ")
    failure = f"error({message} || CAST({value} AS VARCHAR))"
    return f"coalesce({attempt}, CASE WHEN {value} IS NOT NULL THEN {failure} END)"


def _attempt(value: str, value_type: str, kind: DataType, target: str) -> str | None:  # noqa: PLR0911 - one per family
    """Return a CAST that gives NULL for values that do not fit; None if the types cannot be converted."""
    if isinstance(kind, DecimalType):
        return _decimal(value, value_type, target)
    name = kind.name if isinstance(kind, PrimitiveType) else ""
    rank = _RANKS.get(TYPES.get(name, "").lower(), 0)
    if rank:
        return _whole_number(value, value_type, target, rank)
    if name in {"float", "double"}:
        return _floating(value, value_type, target)
    if name == "boolean":
        if value_type in {*_RANKS, *_FRACTIONS}:
            return f"CAST({value} AS BOOLEAN)"
        return f"TRY_CAST({value} AS BOOLEAN)" if value_type == "varchar" else None
    if name == "string":
        return f"CAST({value} AS VARCHAR)" if value_type in _AS_TEXT else None
    if name == "binary":
        return f"CAST(encode({value}) AS BLOB)" if value_type == "varchar" else None
    return _time(value, value_type, target) if target.lower() in _TIMES else None


def _decimal(value: str, value_type: str, target: str) -> str | None:
    if value_type in {"float", "double"}:
        # Spark rounds the decimal digits, so 1.005 becomes 1.01; DuckDB rounds the binary value.
        value = f"CAST(CAST({value} AS DOUBLE) AS VARCHAR)"
    elif value_type == "varchar":
        value = _text(value, _NUMBER)
    elif value_type == "boolean":
        value = f"CAST({value} AS INTEGER)"
    return f"TRY_CAST({value} AS {target})" if value_type in {*_RANKS, *_FRACTIONS, "varchar"} else None


def _floating(value: str, value_type: str, target: str) -> str | None:
    if value_type in _RANKS or (target == "DOUBLE" and value_type in _FRACTIONS):
        return f"CAST({value} AS {target})"
    if value_type == "varchar":
        return f"TRY_CAST({_text(value, _NUMBER)} AS {target})"
    if value_type == "double":
        return to_real(value)
    return f"TRY_CAST({value} AS {target})" if value_type in _FRACTIONS else None


def _time(value: str, value_type: str, target: str) -> str | None:
    if value_type == "varchar":
        return f"TRY_CAST({_text(value, _DAY)} AS {target})"
    return f"CAST({value} AS {target})" if value_type in _TIMES else None


def _text(value: str, pattern: str) -> str:
    """Return a text, or NULL if Spark would not parse it: DuckDB also accepts 1_000, 'infinity' and '2020/01/02'."""
    return f"CASE WHEN regexp_full_match({value}, {string_literal(pattern)}) THEN {value} END"


def _whole_number(value: str, value_type: str, target: str, rank: int) -> str | None:
    if value_type in _RANKS:
        return f"{'CAST' if _RANKS[value_type] <= rank else 'TRY_CAST'}({value} AS {target})"
    if value_type in _FRACTIONS:
        return f"TRY_CAST(trunc({value}) AS {target})"
    if value_type == "varchar":
        # DuckDB would cast '5.7' to 6.
        return f"TRY_CAST({_text(value, _INTEGER_TEXT)} AS {target})"
    return None


def _struct(value: str, value_type: Any, kind: StructType, column: str, depth: int) -> str:
    if value_type.id != "struct":
        raise _refused(value_type, kind, column)
    inner = {name.lower(): (name, each) for name, each in value_type.children}
    for name, _ in value_type.children:
        if name not in kind:
            raise SchemaMismatch(
                f"The value for column '{column}' has a field '{name}' that the table does not have; leave it out, or merge "
                "with merge_schema=True.",
                column=f"{column}.{name}",
            )
    if _is_same(value_type, kind):
        return value
    fields = []
    for item in kind.fields:
        name, each = inner.get(item.name.lower(), ("", None))
        part = f"struct_extract({value}, {string_literal(name)})"
        fields.append(
            f"{quoted(item.name)} := {_converted(part, each, item.type, f'{column}.{item.name}', depth)}"
        )
    return f"CASE WHEN {value} IS NULL THEN NULL ELSE struct_pack({', '.join(fields)}) END"


def _list(value: str, value_type: Any, kind: ArrayType, column: str, depth: int) -> str:
    if value_type.id != "list":
        raise _refused(value_type, kind, column)
    if _is_same(value_type, kind):
        return value
    element = f"a{depth}"
    inner = _converted(
        element, dict(value_type.children)["child"], kind.element, f"{column}.element", depth + 1
    )
    return f"list_transform({value}, lambda {element}: {inner})"


def _map(value: str, value_type: Any, kind: MapType, column: str, depth: int) -> str:
    if value_type.id != "map":
        raise _refused(value_type, kind, column)
    if _is_same(value_type, kind):
        return value
    children, entry = dict(value_type.children), f"a{depth}"
    key = _converted(f"{entry}.key", children["key"], kind.key, f"{column}.key", depth + 1)
    item = _converted(f"{entry}.value", children["value"], kind.value, f"{column}.value", depth + 1)
    pairs = (
        f"list_transform(map_entries({value}), lambda {entry}: struct_pack(key := {key}, value := {item}))"
    )
    return f"CASE WHEN {value} IS NULL THEN NULL ELSE map_from_entries({pairs}) END"


def _is_same(value_type: Any, kind: DataType) -> bool:
    """Whether a DuckDB type equals the column's type, field by field; false for void columns."""
    if isinstance(kind, StructType):
        if value_type.id != "struct" or [name for name, _ in value_type.children] != kind.names:
            return False
        return all(
            _is_same(each, item.type)
            for (_, each), item in zip(value_type.children, kind.fields, strict=True)
        )
    children = dict(value_type.children) if value_type.id in {"list", "map"} else {}
    if isinstance(kind, ArrayType):
        return value_type.id == "list" and _is_same(children["child"], kind.element)
    if isinstance(kind, MapType):
        return (
            value_type.id == "map"
            and _is_same(children["key"], kind.key)
            and _is_same(children["value"], kind.value)
        )
    return str(value_type) == sql_type(kind, has_mapping=False).replace(", ", ",") and kind != PrimitiveType(
        "void"
    )


def _refused(value_type: Any, kind: DataType, column: str) -> InvalidPredicate:
    spelled = kind.to_json()
    return InvalidPredicate(
        f"A value of type {value_type} cannot be assigned to column '{column}', which is "
        f"{spelled if isinstance(spelled, str) else spelled['type']}, by the DuckDB engine; cast it, or run the command "
        "on Spark.",
        column=column,
    )
