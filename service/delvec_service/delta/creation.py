"""The first version of a table: its protocol, metadata and commitInfo (PROTOCOL.md, "Change Metadata").

Only table features that Delvec implements are turned on. Whatever a property or a column's metadata would
need beyond those is refused by name, because a table that Delvec creates and then cannot write helps nobody.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from delvec.protocol.errors import BadRequest, InvalidSchema
from delvec.protocol.types import (
    ArrayType,
    DataType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    has_variant,
)
from delvec_service.delta import computed_columns
from delvec_service.delta.actions import Action, CommitInfo, Metadata, Protocol
from delvec_service.delta.column_names import check_column_name
from delvec_service.delta.row_tracking import ENABLED
from delvec_service.delta.table_changes import row_ids
from delvec_service.delta.table_properties import PROPERTIES, known_property, parsed_value

__all__ = ["check_columns", "checked_partition_columns", "first_version"]

_DV: Final = "delta.enableDeletionVectors"
_ICT: Final = "delta.enableInCommitTimestamps"
_CDF: Final = "delta.enableChangeDataFeed"
# What delta-spark lists for a table of writer version 2 once it has to spell features out.
_LEGACY_FEATURES: Final = ("appendOnly", "invariants")


_NARROWER: Final[Mapping[str, tuple[str, ...]]] = {
    "delta.checkpointPolicy": ("classic",),
    "delta.columnMapping.mode": ("none",),
}
"""What a new table may not begin with can be set once it is there."""


def first_version(
    schema: StructType,
    *,
    partition_columns: Sequence[str],
    properties: Mapping[str, str],
    description: str | None,
    metadata_id: str,
    transaction_id: str,
    engine_info: str,
    now: int,
) -> list[Action]:
    """Return the actions of version 0.

    Deletion vectors are enabled unless the properties say otherwise.

    Args:
        schema: partition columns included.
        partition_columns: in order; case does not matter.
        properties: user's own and ``delta.*``.
        description: free text.
        metadata_id: a new UUID.
        transaction_id: recorded as txnId.
        engine_info: recorded as engineInfo.
        now: milliseconds since the epoch.

    Raises:
        InvalidSchema: a name, a type or a partition column cannot be.
        BadRequest: a property is unknown, or its value is not one.
    """
    check_columns(schema, computed=True)
    partitions = checked_partition_columns(schema, partition_columns)
    configuration = {_DV: "true"} | _configuration(properties)
    if configuration.get(ENABLED) == "true":
        configuration = row_ids.with_columns(configuration)
    described = {
        "partitionBy": json.dumps(partitions),
        "clusterBy": "[]",
        "description": description,
        "isManaged": "false",
        "properties": json.dumps(configuration, separators=(",", ":")),
    }
    timestamped = configuration.get(_ICT) == "true"
    return [
        CommitInfo(
            timestamp=now,
            in_commit_timestamp=now if timestamped else None,
            operation="CREATE TABLE",
            operation_parameters=described,
            isolation_level="Serializable",
            is_blind_append=True,
            operation_metrics={},
            engine_info=engine_info,
            txn_id=transaction_id,
        ),
        _protocol(schema, configuration),
        Metadata(
            id=metadata_id,
            description=description,
            schema_string=json.dumps(schema.to_json(), separators=(",", ":")),
            partition_columns=tuple(partitions),
            configuration=configuration,
            created_time=now,
        ),
    ]


def _configuration(properties: Mapping[str, str]) -> dict[str, str]:
    configuration: dict[str, str] = {}
    for given, value in properties.items():
        if not given.lower().startswith("delta."):
            configuration[given] = value
            continue
        name = known_property(given)
        if name is None or not PROPERTIES[name].at_creation:
            raise BadRequest(
                f"Delvec does not know the table property '{given}', or does not implement what it turns on; "
                "leave it out.",
                property=given,
            )
        parsed = parsed_value(name, value)
        if parsed not in _NARROWER.get(name, (parsed,)):
            raise BadRequest(f"'{value}' is not a value of the table property '{name}' here.", property=name)
        configuration[name] = parsed
    return configuration


def _protocol(schema: StructType, configuration: Mapping[str, str]) -> Protocol:
    both = []
    writer = list(_LEGACY_FEATURES)
    if configuration.get(_DV) == "true":
        both.append("deletionVectors")
    if any(kind == PrimitiveType("timestamp_ntz") for kind in _types(schema)):
        both.append("timestampNtz")
    if configuration.get(_CDF) == "true":
        writer.append("changeDataFeed")
    if configuration.get(_ICT) == "true":
        writer.append("inCommitTimestamp")
    if configuration.get(ENABLED) == "true":
        writer += ["domainMetadata", "rowTracking"]
    writer += computed_columns.features(schema)
    if not both and len(writer) == len(_LEGACY_FEATURES):
        return Protocol(1, 2, None, None)
    if not both:
        return Protocol(1, 7, None, tuple(writer))
    return Protocol(3, 7, tuple(both), tuple(writer + both))


def check_columns(schema: StructType, *, mapped: bool = False, computed: bool = False) -> None:
    """Refuse a schema that a table written by Delvec cannot have.

    Args:
        schema: partition columns included.
        mapped: whether files name columns by physical names, so that names may have any character.
        computed: whether columns may have defaults, be generated or be identity columns.

    Raises:
        InvalidSchema: names the column.
    """
    if not schema.fields:
        raise InvalidSchema("A table needs at least one column.")
    known = computed_columns.check(schema) if computed else frozenset()
    for field in _fields(schema):
        check_column_name(field.name, mapped=mapped)
        for key in field.metadata:
            if (field.name, key) in known:
                continue
            if key.startswith("delta.") or key in ("CURRENT_DEFAULT", "__CHAR_VARCHAR_TYPE_STRING"):
                raise InvalidSchema(
                    f"The column '{field.name}' has '{key}', which Delvec does not enforce yet; leave it out.",
                    column=field.name,
                )
    if any(kind == PrimitiveType("void") for kind in _types(schema)):
        raise InvalidSchema("A column of type void holds nothing; give it a type.")
    if has_variant(schema):
        raise InvalidSchema("Delvec reads columns of type variant and does not write them yet; use strings.")


def checked_partition_columns(schema: StructType, wanted: Sequence[str]) -> list[str]:
    """Return partition columns as the schema spells them.

    Raises:
        InvalidSchema: one is not in the schema, is named twice or has a type that cannot be; or no other is left.
    """
    found: list[str] = []
    for name in wanted:
        if name not in schema:
            raise InvalidSchema(f"The partition column '{name}' is not in the schema.", column=name)
        field = schema.field(name)
        if field.name in found:
            raise InvalidSchema(f"The partition column '{name}' is named twice.", column=name)
        if isinstance(field.type, StructType | ArrayType | MapType):
            raise InvalidSchema(
                f"The column '{name}' of type {json.dumps(field.type.to_json())[:80]} cannot partition a table.",
                column=name,
            )
        found.append(field.name)
    if len(found) == len(schema.fields):
        raise InvalidSchema("At least one column must not be a partition column.")
    return found


def _fields(kind: DataType) -> list[StructField]:
    """Return the fields of a type and of everything nested in it."""
    if isinstance(kind, StructType):
        return [inner for field in kind.fields for inner in (field, *_fields(field.type))]
    if isinstance(kind, ArrayType):
        return _fields(kind.element)
    if isinstance(kind, MapType):
        return _fields(kind.key) + _fields(kind.value)
    return []


def _types(kind: DataType) -> list[Any]:
    """Return a type and everything nested in it."""
    if isinstance(kind, StructType):
        return [kind, *(inner for field in kind.fields for inner in _types(field.type))]
    if isinstance(kind, ArrayType):
        return [kind, *_types(kind.element)]
    if isinstance(kind, MapType):
        return [kind, *_types(kind.key), *_types(kind.value)]
    return [kind]
