"""Columns that a MERGE brings into the table."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from delvec.commands.merge_builder import MergeStatement
from delvec.protocol.types import StructField, StructType
from delvec.protocol.wire import AddColumns, NewColumn

__all__ = ["new_columns", "with_new_columns"]


def new_columns(statement: MergeStatement, target: StructType, source: StructType) -> list[AddColumns]:
    """Return the change that adds the source's columns, and fields of structs, that the clauses set and the table lacks.

    Columns of types that differ otherwise stay as they are.
    """
    all_columns = any(
        clause.values is None and clause.action != "delete" and clause.match != "not-matched-by-source"
        for clause in statement.clauses
    )
    named = {
        name.strip("`").partition(".")[0].strip("`").lower()
        for clause in statement.clauses
        if clause.values is not None and clause.match != "not-matched-by-source"
        for name in clause.values
    }
    wanted = [field for field in source.fields if all_columns or field.name.lower() in named]
    columns = [
        NewColumn(column=".".join(_quoted(name) for name in path), type=field.type.to_json())
        for path, field in _absent(wanted, target, ())
    ]
    return [AddColumns(change="add-columns", columns=columns)] if columns else []


def with_new_columns(target: StructType, changes: Sequence[AddColumns]) -> StructType:
    """Return the schema with those columns at the end; their names in files are the service's to give."""
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


def _absent(
    wanted: Sequence[StructField], target: StructType, above: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], StructField]]:
    for field in wanted:
        if field.name not in target:
            yield (*above, field.name), field
            continue
        known = target.field(field.name)
        if isinstance(known.type, StructType) and isinstance(field.type, StructType):
            yield from _absent(field.type.fields, known.type, (*above, known.name))


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


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _parts(text: str) -> list[str]:
    """Split a path whose every part stands in back-ticks."""
    return text[1:-1].split("`.`")
