"""Adding, dropping, renaming and changing columns, and updating ``delta.dataSkippingStatsColumns`` to match."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from delvec_errors import InvalidTableChange
from delvec_kernel.alter_table.change_types import (
    AddColumns,
    ChangeColumn,
    DropColumns,
    NewColumn,
    RenameColumn,
)
from delvec_kernel.alter_table.constraints import check_no_dependents
from delvec_kernel.alter_table.schema_checks import check_column_name
from delvec_kernel.alter_table.table_update import Recorded, Requirement, TableUpdate
from delvec_kernel.constraints.computed_columns import check_default
from delvec_kernel.constraints.declared import DEFAULT
from delvec_kernel.features.protocol_upgrade import supported
from delvec_kernel.schema.column_mapping import MODE, all_fields
from delvec_kernel.schema.column_paths import (
    ColumnPath,
    field_at,
    parse_path,
    path_text,
    physical_path,
    quoted,
    spelled,
    split_at_field,
    type_at,
    with_field,
    with_type,
)
from delvec_kernel.schema.type_widening import TYPE_CHANGES, widens, with_type_change
from delvec_kernel.schema.types import (
    IDENTITY_START,
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
    data_type_from_json,
    has_geospatial,
    has_variant,
    has_void,
    type_name,
)

__all__ = [
    "STATS_COLUMNS",
    "add_columns",
    "change_column",
    "check_stats_columns",
    "described",
    "drop_columns",
    "dropped_from",
    "rename_column",
    "renamed_in",
]

STATS_COLUMNS: Final = "delta.dataSkippingStatsColumns"


def check_stats_columns(text: str, schema: StructType) -> None:
    """Check a value of ``delta.dataSkippingStatsColumns``.

    Raises:
        InvalidTableChange: a name is malformed or repeated.
        UnknownColumn: no such column.
    """
    paths = [parse_path(each.strip()) for each in _split(text)]
    for path in paths:
        field_at(schema, path)
    if len({tuple(part.lower() for part in path) for path in paths}) < len(paths):
        raise InvalidTableChange(
            f"{STATS_COLUMNS} lists a column twice: {text[:200]}.", property=STATS_COLUMNS
        )


def dropped_from(configuration: Mapping[str, str], path: Sequence[str]) -> dict[str, str]:
    """Return the properties to set when a column is dropped: the list without the column and its fields."""
    columns = _columns(configuration)
    left = [column for column in columns if not _within(column, path)]
    return {} if len(left) == len(columns) else {STATS_COLUMNS: ",".join(spelled(column) for column in left)}


def renamed_in(configuration: Mapping[str, str], old: Sequence[str], new: Sequence[str]) -> dict[str, str]:
    """Return the properties to set when a column is renamed: the list with the new name."""
    columns = _columns(configuration)
    renamed = [(*new, *column[len(old) :]) if _within(column, old) else column for column in columns]
    return {} if renamed == columns else {STATS_COLUMNS: ",".join(spelled(column) for column in renamed)}


def _columns(configuration: Mapping[str, str]) -> list[ColumnPath]:
    try:
        return [parse_path(text.strip()) for text in _split(configuration.get(STATS_COLUMNS, ""))]
    except InvalidTableChange:
        return []  # other readers ignore a malformed list, too


def _split(text: str) -> list[str]:
    parts, quoted = [""], False
    for character in text:
        quoted ^= character == "`"
        if character == "," and not quoted:
            parts.append("")
        else:
            parts[-1] += character
    return [part for part in parts if part.strip()]


def _within(column: Sequence[str], path: Sequence[str]) -> bool:
    return [part.lower() for part in column[: len(path)]] == [part.lower() for part in path]


_COMMENT: Final = "comment"
_DEFAULTS: Final = "allowColumnDefaults"
_PREVIEW: Final = "typeWidening-preview"


def add_columns(update: TableUpdate, change: AddColumns) -> Recorded:
    """Add columns; existing rows have NULL in them.

    Raises:
        InvalidTableChange: a column exists already, is NOT NULL, or has a type that Delvec does not write.
        InvalidSchema: a name or a type is invalid.
        UnknownColumn: the parent, or the column to follow, does not exist.
    """
    entries = []
    for column in change.columns:
        path = parse_path(column.column)
        field = _new_field(column, path[-1], has_mapping=update.is_mapped)
        parent = type_at(update.schema, path[:-1])
        if not isinstance(parent, StructType):
            raise InvalidTableChange(
                f"'{path_text(path[:-1])}' is not a struct; columns can only be added to the table or to a "
                "struct.",
                column=path_text(path),
            )
        if field.name in parent:
            raise InvalidTableChange(
                f"Column '{path_text(path)}' already exists; column names are not case-sensitive.",
                column=path_text(path),
            )
        update.schema = _with_struct(update.schema, path[:-1], _inserted(parent, field, column))
        entry: dict[str, Any] = {"column": described(path, field)}
        if column.position is not None:
            entry["position"] = column.position
        entries.append(entry)
    update.assign_ids()  # in schema order, as in delta-spark
    return Recorded("ADD COLUMNS", {"columns": entries}, listed="columns")


def drop_columns(update: TableUpdate, change: DropColumns) -> Recorded:
    """Drop columns.

    Raises:
        InvalidTableChange: column mapping is off, the column is used by the partitioning, the clustering, a
            constraint or a generated column, or no column would be left.
        UnknownColumn: no such column.
    """
    _check_mapped(update, "dropped")
    dropped_names = []
    for text in change.columns:
        path = parse_path(text)
        if change.if_exists and not _exists(update.schema, path):
            continue
        field = field_at(update.schema, path)
        name = path_text(path)
        if len(path) == 1 and field.name in update.partition_columns:
            raise InvalidTableChange(
                f"Column '{name}' is a partition column and cannot be dropped.", column=name
            )
        if _holds_clustering_column(update, path):
            raise InvalidTableChange(
                f"Column '{name}' is a clustering column; cluster the table by other columns first.",
                column=name,
            )
        check_no_dependents(path, update.schema, update.configuration, "dropped")
        parent = type_at(update.schema, path[:-1])
        assert isinstance(parent, StructType)  # noqa: S101 - by field_at
        left = parent.without([field.name])
        if not left.fields or (len(path) == 1 and len(left.fields) == len(update.partition_columns)):
            raise InvalidTableChange(
                f"Column '{name}' is the only one left; drop the struct that contains it, or the table.",
                column=name,
            )
        update.configuration |= dropped_from(update.configuration, path)
        update.schema = _with_struct(update.schema, path[:-1], left)
        dropped_names.append(name)
    return Recorded("DROP COLUMNS", {"columns": dropped_names}, listed="columns")


def rename_column(update: TableUpdate, change: RenameColumn) -> Recorded:
    """Rename a column; its physical name stays the same.

    Raises:
        InvalidTableChange: column mapping is off, the name is taken, or a constraint or generated column reads it.
        InvalidSchema: the new name is invalid.
        UnknownColumn: no such column.
    """
    _check_mapped(update, "renamed")
    path = parse_path(change.column)
    field = field_at(update.schema, path)
    check_column_name(change.to, has_mapping=True)
    new_path = (*path[:-1], change.to)
    parent = type_at(update.schema, path[:-1])
    assert isinstance(parent, StructType)  # noqa: S101 - by field_at
    if change.to in parent and parent.field(change.to) is not field:
        raise InvalidTableChange(
            f"Column '{path_text(new_path)}' already exists; column names are not case-sensitive.",
            column=path_text(new_path),
        )
    check_no_dependents(path, update.schema, update.configuration, "renamed")
    if len(path) == 1:
        update.partition_columns = tuple(
            change.to if name == field.name else name for name in update.partition_columns
        )
    update.configuration |= renamed_in(update.configuration, path, new_path)
    update.schema = with_field(update.schema, path, lambda found: replace(found, name=change.to))
    return Recorded("RENAME COLUMN", {"oldColumnPath": path_text(path), "newColumnPath": path_text(new_path)})


def change_column(update: TableUpdate, change: ChangeColumn) -> Recorded:
    """Change a column's type, nullability, default, comment or position.

    Raises:
        InvalidTableChange: the type change is not a widening, or type widening is off; the column is inside an array
            or a map and more than its type changes; a constraint or generated column reads it.
        InvalidSchema: the default is invalid for the column.
        UnknownColumn: no such column.
    """
    path = parse_path(change.column)
    field_path, inside = split_at_field(update.schema, path)
    if inside and any(
        each is not None for each in (change.nullable, change.default, change.comment, change.position)
    ):
        raise InvalidTableChange(
            f"'{path_text(path)}' is inside an array or a map, so only its type can be changed.",
            column=path_text(path),
        )
    changes_before = field_at(update.schema, field_path).metadata.get(TYPE_CHANGES)
    if change.type is not None:
        _widen(update, field_path, inside, data_type_from_json(change.type))
    if change.comment is not None:
        update.schema = with_field(update.schema, field_path, lambda field: _commented(field, change.comment))
    if change.nullable is not None:
        _set_nullable(update, field_path, nullable=change.nullable)
    if change.default is not None:
        _set_default(update, field_path, change.default)
    if change.position is not None:
        _move(update, field_path, change)
    field = field_at(update.schema, field_path)
    if inside:
        kind = type_at(update.schema, path)
        definition = {"name": path_text(path), "type": type_name(kind), "nullable": True, "metadata": {}}
    else:
        # Delta's history shows the column as requested, without the type change recorded in its metadata.
        metadata = {key: value for key, value in field.metadata.items() if key != TYPE_CHANGES}
        metadata |= {} if changes_before is None else {TYPE_CHANGES: changes_before}
        definition = described(field_path, replace(field, metadata=metadata))
    if change.position is not None:
        return Recorded("CHANGE COLUMN", {"column": definition, "position": change.position}, listed="column")
    return Recorded("CHANGE COLUMN", {"column": definition}, listed="column")


# --- adding -------------------------------------------------------------------------------------------------


def _new_field(column: NewColumn, name: str, *, has_mapping: bool) -> StructField:
    field = StructField(
        name,
        data_type_from_json(column.type),
        column.nullable,
        {} if column.comment is None else {_COMMENT: column.comment},
    )
    unwritten = {"void": has_void, "variant": has_variant, "geometry or geography": has_geospatial}
    for kind, has in unwritten.items():
        if has(field.type):
            raise InvalidTableChange(
                f"Column '{name}' cannot be added: Delvec does not write values of type {kind}.", column=name
            )
    for each in all_fields(StructType((field,))):
        check_column_name(each.name, has_mapping=has_mapping)
        if not each.nullable:
            raise InvalidTableChange(
                f"Column '{name}' cannot be added as NOT NULL, because existing rows have no value for it; "
                "add it, fill it, then set NOT NULL.",
                column=name,
            )
        if set(each.metadata) - {_COMMENT}:
            raise InvalidTableChange(
                f"Column '{name}' has the metadata {sorted(set(each.metadata) - {_COMMENT})}, which Delvec "
                "does not set; leave it out.",
                column=name,
            )
    return field


def _inserted(parent: StructType, field: StructField, column: NewColumn) -> StructType:
    fields = list(parent.fields)
    if column.first:
        place = 0
    elif column.after is None:
        place = len(fields)
    else:
        place = fields.index(parent.field(column.after)) + 1
    fields.insert(place, field)
    return StructType(tuple(fields))


# --- changing -----------------------------------------------------------------------------------------------


def _widen(update: TableUpdate, path: ColumnPath, inside: ColumnPath, kind: DataType) -> None:
    full = (*path, *inside)
    before = type_at(update.schema, full)
    if before == kind:
        return
    name = path_text(full)
    old, new = before.to_json(), kind.to_json()
    if not (isinstance(old, str) and isinstance(new, str)):
        raise InvalidTableChange(
            f"Column '{name}' cannot be changed to {type_name(kind)}: nested types cannot be changed as a "
            "whole; name the field, 'element', 'key' or 'value' to change.",
            column=name,
        )
    if not widens(old, new):
        raise InvalidTableChange(
            f"Column '{name}' of type {old} cannot be changed to {new}, because not every {old} fits it; "
            "write the values into a new column.",
            column=name,
        )
    if not update.widens_types:
        raise InvalidTableChange(
            f"Column '{name}' of type {old} can only be changed to {new} if type widening is on; set "
            "delta.enableTypeWidening=true first.",
            column=name,
        )
    if _PREVIEW in supported(update.protocol):
        raise InvalidTableChange(
            f"The table has the feature {_PREVIEW}, which requires the schema to record the version of each "
            "type change; Delvec does not write it. Use another writer.",
            feature=_PREVIEW,
        )
    if IDENTITY_START in field_at(update.schema, path).metadata:
        raise InvalidTableChange(f"The type of identity column '{name}' cannot be changed.", column=name)
    check_no_dependents(full, update.schema, update.configuration, f"changed to {new}")

    def changed(field: StructField) -> StructField:
        inner = with_type(field.type, inside, lambda _: kind)
        return with_type_change(replace(field, type=inner), old, new, inside)

    update.schema = with_field(update.schema, path, changed)


def _commented(field: StructField, comment: str | None) -> StructField:
    metadata = {key: value for key, value in field.metadata.items() if key != _COMMENT}
    return replace(field, metadata={**metadata, _COMMENT: comment} if comment else metadata)


def _set_nullable(update: TableUpdate, path: ColumnPath, *, nullable: bool) -> None:
    field = field_at(update.schema, path)
    if field.nullable == nullable:
        return
    name = path_text(path)
    if not nullable:
        kind: DataType = update.schema
        for number, part in enumerate(path[:-1]):
            if not isinstance(kind, StructType) or kind.field(part).nullable:
                raise InvalidTableChange(
                    f"Column '{name}' cannot be NOT NULL, because '{path_text(path[: number + 1])}', which "
                    "contains it, is nullable or is an array or a map.",
                    column=name,
                )
            kind = kind.field(part).type
        update.requirements.append(Requirement(f"{quoted(path)} IS NOT NULL", f"NOT NULL on column '{name}'"))
    update.schema = with_field(update.schema, path, lambda found: replace(found, nullable=nullable))


def _set_default(update: TableUpdate, path: ColumnPath, text: str) -> None:
    field = field_at(update.schema, path)
    if len(path) > 1:
        raise InvalidTableChange(
            f"'{path_text(path)}' is a field of a struct; only top-level columns can have defaults.",
            column=path_text(path),
        )
    metadata = {key: value for key, value in field.metadata.items() if key != DEFAULT}
    if text.strip():
        check_default(field, text)
        update.need(_DEFAULTS)
        metadata[DEFAULT] = text
    update.schema = with_field(update.schema, path, lambda found: replace(found, metadata=metadata))


def _move(update: TableUpdate, path: ColumnPath, change: ChangeColumn) -> None:
    parent = type_at(update.schema, path[:-1])
    assert isinstance(parent, StructType)  # noqa: S101 - by field_at
    field = parent.field(path[-1])
    others = [each for each in parent.fields if each is not field]
    if change.first:
        place = 0
    else:
        before = parent.field(change.after or "")
        place = parent.fields.index(field) if before is field else others.index(before) + 1
    others.insert(place, field)
    update.schema = _with_struct(update.schema, path[:-1], StructType(tuple(others)))


# --- shared -------------------------------------------------------------------------------------------------


def _check_mapped(update: TableUpdate, what: str) -> None:
    if not update.is_mapped:
        raise InvalidTableChange(
            f"A column can be {what} only if the table has column mapping, which its readers must then support. First "
            f"run ALTER TABLE … SET TBLPROPERTIES ('{MODE}' = 'name'), in the shell delvec alter set TABLE {MODE}=name.",
            feature="columnMapping",
        )


def _with_struct(schema: StructType, path: Sequence[str], struct: StructType) -> StructType:
    result = with_type(schema, path, lambda _: struct)
    assert isinstance(result, StructType)  # noqa: S101 - the root stays a struct
    return result


def _exists(schema: StructType, path: ColumnPath) -> bool:
    kind: DataType = schema
    for part in path:
        if isinstance(kind, StructType) and part not in kind:
            return False
        if not isinstance(kind, StructType | ArrayType | MapType):
            return False
        kind = type_at(kind, [part])
    return True


def _holds_clustering_column(update: TableUpdate, path: ColumnPath) -> bool:
    _, inside = split_at_field(update.schema, path[:-1])
    if inside:
        return False  # no clustering column is inside an array or a map
    physical = physical_path(update.schema, path)
    return any(each[: len(physical)] == physical for each in update.clustering)


def described(path: Sequence[str], field: StructField) -> dict[str, Any]:
    """Return a column as shown in Delta's history."""
    metadata = json.loads(json.dumps(dict(field.metadata)))
    name = path_text((*path[:-1], field.name))
    return {"name": name, "type": type_name(field.type), "nullable": field.nullable, "metadata": metadata}
