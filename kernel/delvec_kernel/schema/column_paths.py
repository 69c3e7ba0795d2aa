"""Column paths: ``address.city``, ``tags.element``, with backticks around names that are not plain."""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from delvec_errors import InvalidTableChange, UnknownColumn
from delvec_kernel.schema.types import ArrayType, DataType, MapType, StructField, StructType

__all__ = [
    "ColumnPath",
    "as_in_schema",
    "backticked",
    "field_at",
    "logical_path",
    "parse_path",
    "path_text",
    "physical_path",
    "quoted",
    "spelled",
    "split_at_field",
    "type_at",
    "with_field",
    "with_type",
]

ColumnPath: TypeAlias = tuple[str, ...]

_PART: Final = re.compile(r"`((?:[^`]|``)+)`|([^`.]+)")
_PLAIN: Final = re.compile(r"[A-Za-z0-9_]+")


def parse_path(text: str) -> ColumnPath:
    """Split a path into names.

    Raises:
        InvalidTableChange: it has an empty name or an unclosed backtick.
    """
    parts: list[str] = []
    position = 0
    while found := _PART.match(text, position):
        inside, plain = found.groups()
        parts.append(plain if inside is None else inside.replace("``", "`"))
        position = found.end()
        if position == len(text):
            return tuple(parts)
        if text[position] != ".":
            break
        position += 1
    raise InvalidTableChange(
        f"'{text[:200]}' is not a column path; separate names by dots, and put backticks around a name that "
        "has characters other than letters, digits and underscores.",
        column=text[:200],
    )


def path_text(path: Sequence[str]) -> str:
    """Return a path as in Delta's history: names with a dot in backticks; :func:`parse_path` can parse it."""
    return ".".join(backticked(part) if {*part} & {".", "`"} else part for part in path)


def quoted(path: Sequence[str]) -> str:
    """Return a path for SQL, with every name in backticks."""
    return ".".join(backticked(part) for part in path)


def spelled(path: Sequence[str]) -> str:
    """Return a path with backticks where needed; :func:`parse_path` can parse it."""
    return ".".join(part if _PLAIN.fullmatch(part) else quoted([part]) for part in path)


def type_at(kind: DataType, path: Sequence[str]) -> DataType:
    """Return the type at a path.

    Raises:
        UnknownColumn: no such column.
    """
    types_at_path: list[DataType] = []

    def keep(inner: DataType) -> DataType:
        types_at_path.append(inner)
        return inner

    with_type(kind, path, keep)
    return types_at_path[0]


def with_type(kind: DataType, path: Sequence[str], change: Callable[[DataType], DataType]) -> DataType:
    """Return a type in which the type at a path is changed.

    Raises:
        UnknownColumn: no such column.
    """
    if not path:
        return change(kind)
    name, rest = path[0], path[1:]
    if isinstance(kind, StructType):
        field = kind.field(name)
        return _replaced(kind, field, replace(field, type=with_type(field.type, rest, change)))
    part = name.lower()
    if isinstance(kind, ArrayType) and part == "element":
        return replace(kind, element=with_type(kind.element, rest, change))
    if isinstance(kind, MapType) and part == "key":
        return replace(kind, key=with_type(kind.key, rest, change))
    if isinstance(kind, MapType) and part == "value":
        return replace(kind, value=with_type(kind.value, rest, change))
    raise UnknownColumn(
        f"'{name}' does not exist in a column of type {str(kind.to_json())[:100]}; use the names of a "
        "struct's fields, 'element' of an array, and 'key' or 'value' of a map",
        column=name,
    )


def field_at(schema: StructType, path: Sequence[str]) -> StructField:
    """Return the column or struct field at a path.

    Raises:
        UnknownColumn: no such column.
        InvalidTableChange: it is the element of an array, or the key or value of a map.
    """
    parent = type_at(schema, path[:-1])
    if not isinstance(parent, StructType):
        raise InvalidTableChange(
            f"'{path_text(path)}' is inside an array or a map, so only its type can be changed.",
            column=path_text(path),
        )
    return parent.field(path[-1])


def as_in_schema(schema: StructType, path: Sequence[str]) -> ColumnPath:
    """Return a path as spelled in the schema.

    Raises:
        UnknownColumn: no such column.
        InvalidTableChange: it is the element of an array, or the key or value of a map.
    """
    return tuple(field_at(schema, path[: depth + 1]).name for depth in range(len(path)))


def with_field(
    schema: StructType, path: Sequence[str], change: Callable[[StructField], StructField]
) -> StructType:
    """Return a schema with one column or struct field changed.

    Raises:
        UnknownColumn: no such column.
        InvalidTableChange: it is the element of an array, or the key or value of a map.
    """
    field = field_at(schema, path)

    def changed(parent: DataType) -> DataType:
        assert isinstance(parent, StructType)  # noqa: S101 - by field_at
        return _replaced(parent, field, change(field))

    result = with_type(schema, path[:-1], changed)
    assert isinstance(result, StructType)  # noqa: S101 - the root stays a struct
    return result


def split_at_field(schema: StructType, path: Sequence[str]) -> tuple[ColumnPath, ColumnPath]:
    """Split a path after its innermost field; the first part is spelled as in the schema.

    The second part consists of ``element``, ``key`` and ``value``; it is empty if the path is that of a field.

    Raises:
        UnknownColumn: no such column.
    """
    kind: DataType = schema
    names: list[str] = []
    fields = 0
    for number, name in enumerate(path):
        if isinstance(kind, StructType):
            names.append(kind.field(name).name)
            fields = number + 1
        else:
            names.append(name.lower())
        kind = type_at(kind, [name])
    return tuple(names[:fields]), tuple(names[fields:])


def physical_path(schema: StructType, path: Sequence[str]) -> ColumnPath:
    """Return the physical path of a field, as used in files and statistics.

    Raises:
        UnknownColumn: no such column, or it is inside an array or a map.
    """
    kind: DataType = schema
    physical_names: list[str] = []
    for name in path:
        if not isinstance(kind, StructType):
            raise UnknownColumn(
                f"'{path_text(path)}' leads through an array or a map, and only structs are allowed here",
                column=path_text(path),
            )
        field = kind.field(name)
        physical_names.append(field.physical_name)
        kind = field.type
    return tuple(physical_names)


def logical_path(schema: StructType, physical: Sequence[str]) -> ColumnPath:
    """Return a field's path by its physical one; names that the schema does not have are returned unchanged."""
    names: list[str] = []
    kind: DataType | None = schema
    for part in physical:
        fields = kind.fields if isinstance(kind, StructType) else ()
        field = next((each for each in fields if each.physical_name == part), None)
        names.append(part if field is None else field.name)
        kind = None if field is None else field.type
    return tuple(names)


def _replaced(struct: StructType, old: StructField, new: StructField) -> StructType:
    return StructType(tuple(new if field is old else field for field in struct.fields))


def backticked(name: str) -> str:
    """Return any name as one quoted identifier."""
    return "`" + name.replace("`", "``") + "`"
