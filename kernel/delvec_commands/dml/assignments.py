"""Assignments of UPDATE and MERGE: one expression for every column of the new row.

Resolves names, expands stars, fills in defaults and checks types once for all engines.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

from delvec_errors import BadRequest, DelvecError, InvalidPredicate, SchemaMismatch, UnknownColumn
from delvec_kernel.constraints.declared import DEFAULT, Generated
from delvec_kernel.expressions.expression import Expression, column_expression, parse_expression
from delvec_kernel.expressions.expression_kinds import (
    NUMERIC_KINDS,
    TEMPORAL_TYPES,
    column_path,
    kind_of_type,
)
from delvec_kernel.expressions.literals import literal
from delvec_kernel.expressions.predicate_checks import names_hint, near_names
from delvec_kernel.schema.column_paths import backticked
from delvec_kernel.schema.types import (
    GENERATION,
    IDENTITY_ALLOWS_EXPLICIT,
    IDENTITY_START,
    DataType,
    PrimitiveType,
    StructField,
    StructType,
    type_name,
)

__all__ = ["Relations", "inserted", "updated"]


_FITS: Final[Mapping[str, frozenset[str]]] = {
    **dict.fromkeys(
        ("integer", "decimal", "float", "double"), frozenset({*NUMERIC_KINDS, "string", "boolean"})
    ),
    "string": frozenset({*NUMERIC_KINDS, *TEMPORAL_TYPES, "string", "boolean", "binary"}),
    "boolean": frozenset({*NUMERIC_KINDS, "boolean", "string"}),
    "binary": frozenset({"binary", "string", "integer"}),
    **dict.fromkeys(TEMPORAL_TYPES, frozenset({*TEMPORAL_TYPES, "string"})),
    **{kind: frozenset({kind}) for kind in ("array", "map", "struct")},
}
"""For each column kind, the value kinds that Spark's ANSI store assignment accepts; some casts can fail at run time."""


@dataclass(frozen=True)
class Relations:
    """The relations that an assignment may read, and their aliases.

    Attributes:
        target: the table's schema with the columns that schema evolution adds.
        present: the table's schema as it is.
        source: schema of the source; None for an UPDATE.
        aliases: by the names ``t`` and ``s``.
    """

    target: StructType
    present: StructType
    source: StructType | None = None
    aliases: Mapping[str, str] = field(default_factory=dict)

    def of(self, *names: str) -> dict[str, StructType]:
        """Return schemas by name."""
        both = {"t": self.present, "s": self.source}
        return {name: schema for name in names if (schema := both[name]) is not None}


def updated(
    assignments: Mapping[str, Any] | None,
    tables: Relations,
    where: str,
    readable: Sequence[str] = ("t", "s"),
    *,
    evolves: bool = False,
) -> list[Expression | None]:
    """Return the values of an updated row, one per column of ``tables.target``; None keeps the column.

    Args:
        assignments: values by column, or by field of a struct with dots: SQL text, :func:`~delvec.lit`, or another Python
            value. None assigns all columns from the source by name (``UPDATE SET *``).
        tables: relations that values may read.
        where: the clause, for errors.
        readable: ``t``, ``s`` or both.
        evolves: whether ``SET *`` keeps columns that the source lacks; otherwise they are an error.

    Raises:
        UnknownColumn: an assigned column, or one that a value reads, does not exist.
        SchemaMismatch: a value can never fit its column.
        BadRequest: a column is assigned twice or not at all, or cannot be assigned.
        InvalidPredicate: a value is not an SQL expression.
    """
    tree = _Tree(where)
    for path, value in _given(assignments, tables, where, evolves=evolves):
        if IDENTITY_START in path[0].metadata:
            if assignments is None:
                continue
            raise BadRequest(
                f"{where} sets column '{path[0].name}', an identity column, whose values cannot be updated; leave it "
                "out.",
                column=path[0].name,
            )
        tree.put(path, _value(value, path[-1], tables, readable, where, evolves=evolves))
    return [_updated(column, tree, tables, where) for column in tables.target.fields]


def inserted(
    assignments: Mapping[str, Any] | None, tables: Relations, where: str, *, evolves: bool = False
) -> list[Expression | None]:
    """Return the values of an inserted row, one per column of ``tables.target``.

    Columns without a value get their default, or NULL.

    Args:
        assignments: values by column; None inserts all columns of the source by name (``INSERT *``).
        tables: relations; values may only read the source.
        where: the clause, for errors.
        evolves: whether ``INSERT *`` fills columns that the source lacks with their defaults; otherwise they are an error.

    Raises:
        UnknownColumn: or another error of :func:`updated`.
    """
    tree = _Tree(where)
    for path, value in _given(assignments, tables, where, evolves=evolves):
        column = path[0]
        if len(path) > 1:
            raise BadRequest(
                f"{where} names '{_dotted(path)}'; an INSERT sets whole columns: give '{column.name}' as "
                "named_struct('field', value, ...).",
                column=_dotted(path),
            )
        if IDENTITY_START in column.metadata and not column.metadata.get(IDENTITY_ALLOWS_EXPLICIT):
            raise BadRequest(
                f"{where} sets column '{column.name}', which is GENERATED ALWAYS AS IDENTITY_START; leave it out.",
                column=column.name,
            )
        tree.put(path, _value(value, column, tables, ("s",), where, evolves=evolves))
    return [_inserted(column, tree, tables, where) for column in tables.target.fields]


# --- what was given -----------------------------------------------------------------------------------------


def _given(
    assignments: Mapping[str, Any] | None, tables: Relations, where: str, *, evolves: bool
) -> Iterator[tuple[list[StructField], Any]]:
    if assignments is None:
        yield from _starred(tables, where, evolves=evolves)
        return
    if not isinstance(assignments, Mapping) or not assignments:
        raise BadRequest(f"{where} needs a dictionary with at least one column and its value.")
    for name, value in assignments.items():
        yield _path(name, tables, where), value


def _starred(tables: Relations, where: str, *, evolves: bool) -> Iterator[tuple[list[StructField], Any]]:
    source = tables.source
    assert source is not None  # noqa: S101 - a star is of a MERGE
    for column in tables.target.fields:
        if column.name in source:
            if not (IDENTITY_START in column.metadata and not column.metadata.get(IDENTITY_ALLOWS_EXPLICIT)):
                yield [column], _SourceColumn(source.field(column.name).name)
        elif column.name in tables.present and not evolves and not _is_computed(column):
            raise UnknownColumn(
                f"{where} sets all columns from the source, which has no column '{column.name}'; it has "
                f"{', '.join(repr(name) for name in source.names[:20])}. Name the columns to set.",
                column=column.name,
                suggestions=[],
            )


@dataclass(frozen=True)
class _SourceColumn:
    name: str


def _path(name: Any, tables: Relations, where: str) -> list[StructField]:
    if not isinstance(name, str):
        raise BadRequest(f"{where} needs column names that are strings, not {type(name).__name__}.")
    if name in tables.target:
        return [tables.target.field(name)]
    try:
        parsed = parse_expression(name, {"t": tables.target}, {"t": tables.aliases.get("t", "")})
        path = column_path(parsed.root)
    except InvalidPredicate:
        path = None
    except UnknownColumn as error:
        raise _unknown(error, tables, where) from error
    if path is None:
        raise UnknownColumn(
            f"{where} names the column {name!r}, which the table does not have; there are "
            f"{', '.join(repr(each) for each in tables.target.names[:20])}.",
            column=name,
            suggestions=[],
        )
    fields: list[StructField] = []
    inside: Any = tables.target
    for part in path[1:]:
        fields.append(inside.field(part))
        inside = fields[-1].type
    return fields


def _unknown(error: UnknownColumn, tables: Relations, where: str) -> UnknownColumn:
    parts = str(error.details["column"]).split(".")
    if len(parts) > 1 and parts[0].lower() == tables.aliases.get("t", ""):
        parts = parts[1:]
    if parts[0] in tables.target:  # a field of a struct is missing
        return UnknownColumn(f"{where}: {error.message}", **error.details)
    names = tables.target.names
    near = near_names(parts[0], names)
    return UnknownColumn(
        f"{where} sets the column {parts[0]!r}, which the table does not have{names_hint(near, names)}",
        column=error.details["column"],
        suggestions=near,
    )


def _value(
    value: Any, column: StructField, tables: Relations, readable: Sequence[str], where: str, *, evolves: bool
) -> Expression:
    """Return the expression of one value, which may read the relations ``readable``."""
    if isinstance(value, _SourceColumn):
        expression = _taken(value.name, column, tables, readable, where, evolves=evolves)
    elif isinstance(value, str):
        text = value
        if value.strip().upper() == "DEFAULT" and not any(
            "default" in each for each in tables.of(*readable).values()
        ):
            text = _default(column)
        expression = _parsed(text, tables, readable, f"{where}, column '{column.name}'")
    else:
        expression = parse_expression(literal(value, column.type), {})
    _check_kind(expression, column, where)
    return expression


def _taken(
    name: str, column: StructField, tables: Relations, readable: Sequence[str], where: str, *, evolves: bool
) -> Expression:
    """Return the source column of that name; fields of structs that the source lacks keep the target's values."""
    assert tables.source is not None  # noqa: S101 - a star is of a MERGE
    present_type = (
        tables.present.field(column.name).type if column.name in tables.present and "t" in readable else None
    )
    kind = tables.source.field(name).type
    if not isinstance(kind, StructType) and not isinstance(column.type, StructType):
        return column_expression("s", name, tables.source)
    text = _taken_text(("s", name), kind, ("t", column.name), present_type, column.type)
    if text is None or (not evolves and not _same_fields(kind, column.type)):
        raise SchemaMismatch(
            f"{where}: column '{name}' of the source has different fields than the struct '{column.name}' of the "
            "table; name the fields to set, or merge with merge_schema=True.",
            column=column.name,
        )
    return parse_expression(text, tables.of("t", "s"))


def _taken_text(
    source: tuple[str, ...],
    kind: DataType,
    target: tuple[str, ...],
    present_type: DataType | None,
    target_type: DataType,
) -> str | None:
    """Return Spark SQL that converts a source column to the wanted struct fields; None if the types are incompatible.

    Args:
        source: path of the column or field.
        kind: its type.
        target: path of the column or field that it replaces.
        present_type: present type of the target; None if schema evolution adds it.
        target_type: type of the target after the change.
    """
    text = ".".join(backticked(each) for each in source)
    if kind == PrimitiveType("void"):
        return text
    if not isinstance(kind, StructType) or not isinstance(target_type, StructType):
        return None if isinstance(kind, StructType) != isinstance(target_type, StructType) else text
    if [each.name for each in kind.fields] == target_type.names and not any(
        isinstance(each.type, StructType) for each in target_type.fields
    ):
        return text
    parts = []
    for each in target_type.fields:
        old = _kept(present_type, each.name)
        path = (*target, each.name)
        value: str | None = "NULL" if old is None else ".".join(backticked(part) for part in path)
        if each.name in kind:
            inner = kind.field(each.name)
            value = _taken_text((*source, inner.name), inner.type, path, old, each.type)
        if value is None:
            return None
        parts.append(f"{literal(each.name)}, {value}")
    given = f"{text} IS NOT NULL"
    if isinstance(present_type, StructType) and _has_more_fields(target_type, kind):
        # Fields that only the table has keep their values even if the source's struct is NULL.
        given += f" OR {'.'.join(backticked(each) for each in target)} IS NOT NULL"
    return f"CASE WHEN {given} THEN named_struct({', '.join(parts)}) END"


def _has_more_fields(target_type: DataType, kind: DataType) -> bool:
    if not isinstance(target_type, StructType) or not isinstance(kind, StructType):
        return False
    return any(
        each.name not in kind or _has_more_fields(each.type, kind.field(each.name).type)
        for each in target_type.fields
    )


def _same_fields(kind: DataType, target_type: DataType) -> bool:
    if not isinstance(kind, StructType) or not isinstance(target_type, StructType):
        return True
    return {each.lower() for each in kind.names} == {each.lower() for each in target_type.names} and all(
        _same_fields(kind.field(each.name).type, each.type) for each in target_type.fields
    )


def _parsed(text: str, tables: Relations, readable: Sequence[str], where: str) -> Expression:
    try:
        return parse_expression(text, tables.of(*readable), tables.aliases)
    except DelvecError as error:
        raise type(error)(f"{where}: {error.message}", **error.details) from error


def _check_kind(value: Expression, column: StructField, where: str) -> None:
    wanted, kind = kind_of_type(column.type), value.kind
    fitting = _FITS.get(wanted or "")
    if kind in (None, "null", "void", "interval") or fitting is None or kind in fitting:
        return
    raise SchemaMismatch(
        f"{where}: {value.text[:200]!r} has type {kind}, which does not fit column '{column.name}' of type "
        f"{type_name(column.type)}; cast it.",
        column=column.name,
    )


# --- the row ------------------------------------------------------------------------------------------------


class _Tree:
    """Values by the path of the column or field that gets them."""

    def __init__(self, where: str) -> None:
        self._where = where
        self.values: dict[tuple[str, ...], Expression] = {}
        self._by_column: dict[str, list[tuple[str, ...]]] = {}

    def put(self, path: Sequence[StructField], value: Expression) -> None:
        names = tuple(each.name for each in path)
        same_column = self._by_column.setdefault(names[0], [])
        for other in same_column:
            shared = min(len(other), len(names))
            if other[:shared] == names[:shared]:
                both = (
                    "twice"
                    if other == names
                    else f"along with '{'.'.join(other)}', one of which is part of the other"
                )
                raise BadRequest(
                    f"{self._where} sets '{'.'.join(names)}' {both}; give each column once.",
                    column=".".join(names),
                )
        same_column.append(names)
        self.values[names] = value

    def below(self, path: tuple[str, ...]) -> bool:
        return any(each[: len(path)] == path for each in self._by_column.get(path[0], ()))


def _updated(column: StructField, tree: _Tree, tables: Relations, where: str) -> Expression | None:
    path = (column.name,)
    if path in tree.values:
        return tree.values[path]
    if tree.below(path):
        text = _struct_text(path, column, tree, _kept(tables.present, column.name))
        return _parsed(text, Relations(tables.target, tables.present, tables.source), ("t", "s"), where)
    if GENERATION in column.metadata:
        return None
    present_column = tables.present.get(column.name)
    return _null() if present_column is None else column_expression("t", present_column.name, tables.present)


def _inserted(column: StructField, tree: _Tree, tables: Relations, where: str) -> Expression | None:
    if (column.name,) in tree.values:
        return tree.values[(column.name,)]
    if _is_computed(column):
        return None
    if column.metadata.get(DEFAULT) is None:
        return _null()
    return _parsed(_default(column), tables, (), f"{where}, the default of column '{column.name}'")


@cache
def _null() -> Expression:
    return parse_expression("NULL", {})


def _is_computed(column: StructField) -> bool:
    return GENERATION in column.metadata or IDENTITY_START in column.metadata


def _default(column: StructField) -> str:
    """Return the SQL of a column's default, once checked.

    Raises:
        ExpressionNotAllowed: it uses a function or syntax that defaults may not use.
    """
    text = column.metadata.get(DEFAULT)
    return Generated(column.name, str(text), (), is_default=True).sql if text else "NULL"


def _struct_text(path: tuple[str, ...], item: StructField, tree: _Tree, present_type: DataType | None) -> str:
    """Return Spark SQL of a struct with some fields assigned and the others kept; ``present_type`` is its present type."""
    if path in tree.values:
        return f"({tree.values[path].sql()}\n)"
    if not tree.below(path) or not isinstance(item.type, StructType):
        return ".".join(backticked(each) for each in ("t", *path)) if present_type is not None else "NULL"
    fields = ", ".join(
        f"{literal(each.name)}, {_struct_text((*path, each.name), each, tree, _kept(present_type, each.name))}"
        for each in item.type.fields
    )
    return f"named_struct({fields})"


def _kept(kind: DataType | None, name: str) -> DataType | None:
    """Return the present type of a field; None if schema evolution adds it."""
    return kind.field(name).type if isinstance(kind, StructType) and name in kind else None


def _dotted(path: Sequence[StructField]) -> str:
    return ".".join(each.name for each in path)
