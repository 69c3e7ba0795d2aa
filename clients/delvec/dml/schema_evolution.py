"""Schema evolution of MERGE: columns that it adds to the table."""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Final

from delvec.dml.merge_builder import MergeStatement
from delvec_kernel.schema.column_paths import backticked
from delvec_kernel.schema.types import StructField, StructType
from delvec_kernel.wire import AddColumns, NewColumn

__all__ = ["new_columns", "with_new_columns"]

_PART: Final = re.compile(r"`((?:[^`]|``)+)`|([^.`]+)")
_Chosen = Collection[tuple[str, ...]] | None
"""Paths of the assigned columns and fields, in lower case; None for all."""


def new_columns(statement: MergeStatement, target: StructType, source: StructType) -> list[AddColumns]:
    """Return the change that adds source columns and struct fields that clauses assign and the table lacks.

    Other type differences change nothing.
    """
    clauses = [clause for clause in statement.clauses if clause.match != "not-matched-by-source"]
    chosen = None
    if not any(clause.values is None and clause.action != "delete" for clause in clauses):
        chosen = {
            _named(name, statement.target_alias, source)
            for clause in clauses
            for name in clause.values or ()
            if isinstance(name, str)
        }
    columns = [
        NewColumn(column=".".join(backticked(name) for name in path), type=field.type.to_json())
        for path, field in _absent(source.fields, target, (), chosen)
    ]
    return [AddColumns(change="add-columns", columns=columns)] if columns else []


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
            target = _with(target, path, kind.fields[0])
    return target


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
    fields: Sequence[StructField], target: StructType, above: tuple[str, ...], chosen: _Chosen
) -> Iterator[tuple[tuple[str, ...], StructField]]:
    for field in _set(fields, above, chosen):
        path = (*above, field.name)
        if field.name not in target:
            yield path, field
            continue
        known = target.field(field.name)
        if isinstance(known.type, StructType) and isinstance(field.type, StructType):
            yield from _absent(field.type.fields, known.type, (*above, known.name), chosen)


def _set(fields: Sequence[StructField], above: tuple[str, ...], chosen: _Chosen) -> Iterator[StructField]:
    """Yield the assigned fields; partly assigned structs only have their assigned fields."""
    for field in fields:
        path = tuple(each.lower() for each in (*above, field.name))
        if chosen is None or any(path[: len(each)] == each for each in chosen):
            yield field
        elif isinstance(field.type, StructType) and (
            inside := tuple(_set(field.type.fields, (*above, field.name), chosen))
        ):
            yield replace(field, type=StructType(inside))


def _with(target: StructType, path: Sequence[str], new: StructField) -> StructType:
    if len(path) == 1:
        return StructType((*target.fields, new))
    fields = []
    for field in target.fields:
        if field.name == path[0] and isinstance(field.type, StructType):
            fields.append(replace(field, type=_with(field.type, path[1:], new)))
        else:
            fields.append(field)
    return StructType(tuple(fields))


def _parts(text: str) -> list[str]:
    """Split a path whose parts are all in backticks."""
    return text[1:-1].split("`.`")
