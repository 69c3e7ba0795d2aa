"""Definitions of existing tables: as those of new ones, and as the text of CREATE TABLE.

Tested in `tests/integration/client/sql/test_table_definitions.py`.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from delvec_commands.dml.table_definition import TableDefinition
from delvec_kernel.constraints.declared import DEFAULT
from delvec_kernel.schema.char_varchar import CHARACTERS
from delvec_kernel.schema.types import (
    GENERATION,
    IDENTITY_ALLOWS_EXPLICIT,
    IDENTITY_HIGH_WATER_MARK,
    IDENTITY_START,
    IDENTITY_STEP,
    INTEGER_NAMES,
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
)
from delvec_kernel.table_properties import PROPERTIES

if TYPE_CHECKING:
    from delvec.table import DeltaTable

__all__ = ["creation_text", "definition_of"]

_PLAIN: Final = re.compile(r"[A-Za-z_]\w*", re.ASCII)


def definition_of(
    table: "DeltaTable", version: int | None = None, timestamp: str | None = None
) -> TableDefinition:
    """Return the definition of a table at a version, without what writers maintain: column ids, high-water marks."""
    now = table.snapshot(version, timestamp)
    detail = table.detail()
    schema = StructType.from_json(now.table_schema)
    fields = [
        replace(
            each,
            metadata={key: value for key, value in each.metadata.items() if key != IDENTITY_HIGH_WATER_MARK},
        )
        for each in schema.fields
    ]
    properties = {
        key: value
        for key, value in now.configuration.items()
        if key not in PROPERTIES or PROPERTIES[key].refusal is None
    }
    return TableDefinition(
        StructType(tuple(fields)),
        now.partition_columns,
        properties,
        detail["description"],
        detail["clusteringColumns"],
    )


def creation_text(table: "DeltaTable") -> str:
    """Return the CREATE TABLE that makes such a table at its location."""
    definition = definition_of(table)
    columns = ",\n  ".join(_column(each) for each in definition.schema.fields)
    lines = [f"CREATE TABLE {'.'.join(map(_name, table.name.split('.')))} (\n  {columns})", "USING DELTA"]
    if definition.partition_by:
        lines.append(f"PARTITIONED BY ({', '.join(map(_name, definition.partition_by))})")
    if definition.cluster_by:
        lines.append(f"CLUSTER BY ({', '.join(definition.cluster_by)})")
    lines.append(f"LOCATION {_text(table.location)}")
    if definition.description is not None:
        lines.append(f"COMMENT {_text(definition.description)}")
    if definition.properties:
        lines.append(f"TBLPROPERTIES ({_pairs(definition.properties)})")
    return "\n".join(lines)


def _pairs(properties: Mapping[str, str]) -> str:
    return ", ".join(f"{_text(key)} = {_text(value)}" for key, value in sorted(properties.items()))


def _column(item: StructField) -> str:
    metadata = item.metadata
    parts = [_name(item.name), str(metadata[CHARACTERS]) if CHARACTERS in metadata else _type(item.type)]
    if not item.nullable:
        parts.append("NOT NULL")
    if GENERATION in metadata:
        parts.append(f"GENERATED ALWAYS AS ({metadata[GENERATION]})")
    if IDENTITY_START in metadata:
        kind = "BY DEFAULT" if metadata.get(IDENTITY_ALLOWS_EXPLICIT) else "ALWAYS"
        start, step = metadata[IDENTITY_START], metadata[IDENTITY_STEP]
        parts.append(f"GENERATED {kind} AS IDENTITY (START WITH {start} INCREMENT BY {step})")
    if DEFAULT in metadata:
        parts.append(f"DEFAULT {metadata[DEFAULT]}")
    if "comment" in metadata:
        parts.append(f"COMMENT {_text(str(metadata['comment']))}")
    return " ".join(parts)


def _type(kind: DataType) -> str:
    match kind:
        case ArrayType():
            return f"ARRAY<{_type(kind.element)}>"
        case MapType():
            return f"MAP<{_type(kind.key)}, {_type(kind.value)}>"
        case StructType():
            return f"STRUCT<{', '.join(_nested(each) for each in kind.fields)}>"
    text = str(kind.to_json())
    return INTEGER_NAMES.get(text, text.upper())


def _nested(item: StructField) -> str:
    comment = f" COMMENT {_text(str(item.metadata['comment']))}" if "comment" in item.metadata else ""
    return f"{_name(item.name)}: {_type(item.type)}{'' if item.nullable else ' NOT NULL'}{comment}"


def _name(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else f"`{name.replace('`', '``')}`"


def _text(text: str) -> str:
    return f"""'{text.replace("'", "''")}'"""
