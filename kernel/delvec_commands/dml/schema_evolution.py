"""Schema evolution of MERGE: columns that it adds to the table."""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from delvec_commands.dml.merge_builder import MergeStatement
from delvec_kernel.alter_table.change_types import AddColumns, NewColumn
from delvec_kernel.schema.column_paths import backticked, with_type
from delvec_kernel.schema.types import ArrayType, DataType, MapType, StructField, StructType

__all__ = ["new_columns", "with_new_columns"]

_PART: Final = re.compile(r"`((?:[^`]|``)+)`|([^.`]+)")
_Chosen = Collection[tuple[str, ...]] | None
"""Paths of the assigned columns and fields, in lower case; None for all."""


def new_columns(statement: MergeStatement, target: StructType, source: StructType) -> list[AddColumns]:
    """Return the change that adds source columns and struct fields that clauses assign and the table lacks.

    Other type differences change nothing.
    """
    clauses = [clause for clause in statement.clauses if clause.match != "not-matched-by-source"]
    assigned_paths = None
    if not any(clause.values is None and clause.action != "delete" for clause in clauses):
        assigned_paths = {
            _named(name, statement.target_alias, source)
            for clause in clauses
            for name in clause.values or ()
            if isinstance(name, str)
        }
    columns = [
        NewColumn(column=".".join(backticked(name) for name in path), type=field.type.to_json())
        for path, field in _absent(source, target, (), assigned_paths)
    ]
    return [AddColumns(columns=columns)] if columns else []


def with_new_columns(target: StructType, changes: Sequence[AddColumns]) -> StructType:
    """Return the schema with these columns at the end; the service assigns their physical names."""
    for change in changes:
        for column in change.columns:
            path = [part.strip("`").replace("``", "`") for part in _parts(column.column)]
            kind = StructType.from_json(
                {
                    "type": "struct",
                    "fields": [{"name": path[-1], "type": column.type, "nullable": True, "metadata": {}}],
                }
            )
            added = with_type(target, path[:-1], partial(_with_field, kind.fields[0]))
            assert isinstance(added, StructType)  # noqa: S101 - the root stays a struct
            target = added
    return target


def _with_field(new: StructField, parent: DataType) -> DataType:
    assert isinstance(parent, StructType)  # noqa: S101 - only structs have fields
    return StructType((*parent.fields, new))


def _named(name: str, alias: str, source: StructType) -> tuple[str, ...]:
    """Return the path, in lower case, of the column or field that a clause assigns under this key."""
    if name in source:
        return (name.lower(),)
    path = tuple(
        (quoted.replace("``", "`") if quoted else plain.strip()).lower()
        for quoted, plain in _PART.findall(name)
    )
    return path[1:] if len(path) > 1 and path[0] == alias.lower() else path


def _absent(
    source: DataType, target: DataType, above: tuple[str, ...], assigned_paths: _Chosen
) -> Iterator[tuple[tuple[str, ...], StructField]]:
    """Yield the assigned columns and fields that the table lacks, with their paths; also those in arrays and maps."""
    match source, target:
        case StructType(), StructType():
            for field in _set(source.fields, above, assigned_paths):
                known = target.get(field.name)
                if known is None:
                    yield (*above, field.name), field
                else:
                    yield from _absent(field.type, known.type, (*above, known.name), assigned_paths)
        case ArrayType(), ArrayType():
            yield from _absent(source.element, target.element, (*above, "element"), assigned_paths)
        case MapType(), MapType():
            yield from _absent(source.key, target.key, (*above, "key"), assigned_paths)
            yield from _absent(source.value, target.value, (*above, "value"), assigned_paths)


def _set(
    fields: Sequence[StructField], above: tuple[str, ...], assigned_paths: _Chosen
) -> Iterator[StructField]:
    """Yield the assigned fields; partly assigned structs only have their assigned fields."""
    for field in fields:
        path = tuple(each.lower() for each in (*above, field.name))
        if assigned_paths is None or any(path[: len(each)] == each for each in assigned_paths):
            yield field
        elif isinstance(field.type, StructType) and (
            inside := tuple(_set(field.type.fields, (*above, field.name), assigned_paths))
        ):
            yield replace(field, type=StructType(inside))


def _parts(text: str) -> list[str]:
    """Split a path whose parts are all in backticks."""
    return text[1:-1].split("`.`")
