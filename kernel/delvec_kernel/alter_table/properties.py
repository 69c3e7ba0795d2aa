"""Setting and removing table properties, features, comment, constraints and clustering columns."""

import re
from collections.abc import Mapping
from typing import Final

from delvec_errors import BadRequest, InvalidTableChange
from delvec_kernel.alter_table.change_types import (
    AddConstraint,
    AddFeature,
    ClusterBy,
    DropConstraint,
    SetComment,
    SetProperties,
    UnsetProperties,
    UpgradeProtocol,
)
from delvec_kernel.alter_table.clustering import check_clustering
from delvec_kernel.alter_table.columns import STATS_COLUMNS, check_stats_columns
from delvec_kernel.alter_table.constraints import constraint_key, parse_constraint
from delvec_kernel.alter_table.metadata_location import check_metadata_location
from delvec_kernel.alter_table.schema_checks import check_column_name
from delvec_kernel.alter_table.table_update import Recorded, Requirement, TableUpdate
from delvec_kernel.constraints.declared import CONSTRAINT_PREFIX
from delvec_kernel.features.managed_tables import MANAGED
from delvec_kernel.features.protocol_upgrade import FEATURES, feature_named
from delvec_kernel.features.table_features import WRITABLE
from delvec_kernel.schema.column_mapping import MODE, all_fields, mapping_mode
from delvec_kernel.schema.column_paths import logical_path, parse_path, physical_path, spelled
from delvec_kernel.schema.types import FIELD_ID, PHYSICAL_NAME
from delvec_kernel.table_properties import (
    ICEBERG_FORMAT_VERSIONS,
    PROPERTIES,
    known_property,
    parsed_value,
    suggestion,
)

__all__ = [
    "add_constraint",
    "add_feature",
    "cluster_by",
    "drop_constraint",
    "set_comment",
    "set_properties",
    "unset_properties",
    "upgrade_protocol",
]

_ICEBERG_PREFIX: Final = "delta.universalformat.config.iceberg."
"""Prefix of properties of the Iceberg table, any of which may be set."""
_FEATURE_PREFIX: Final = "delta.feature."
_CHANGE_FEED: Final = "delta.enableChangeDataFeed"
_VERSIONS: Final = {"delta.minreaderversion": 3, "delta.minwriterversion": 7}
"""Names in small letters, with the highest version. They are no properties: the table's protocol has them."""
_NAME: Final = re.compile(r"[^\s\x00-\x1f]+")


def set_properties(update: TableUpdate, change: SetProperties) -> Recorded:
    """Set properties; as in Delta, ``delta.feature.<name>`` adds a feature, and ``delta.minReaderVersion`` upgrades the protocol.

    Raises:
        InvalidTableChange: a property is unknown, not settable by users, or contradicts the table.
        BadRequest: a value is invalid for its property.
    """
    _need_versions(update, change.properties)
    for name, value in change.properties.items():
        if name.lower() in _VERSIONS:
            continue
        if name.lower().startswith(_FEATURE_PREFIX):
            if value.strip().lower() not in ("supported", "enabled"):
                raise BadRequest(
                    f"'{value}' is not a valid value for '{name}'; use 'supported'.", property=name
                )
            _add_feature(update, name[len(_FEATURE_PREFIX) :], change.properties)
            continue
        canonical_name = _checked_name(name, allow_unknown=change.allow_unknown, what="set")
        if canonical_name is None:
            check_metadata_location(name, value)
            update.configuration[name] = value
        elif canonical_name == MODE:
            _set_mode(update, parsed_value(canonical_name, value))
        else:
            update.configuration[canonical_name] = parsed_value(canonical_name, value)
            if canonical_name == STATS_COLUMNS:
                check_stats_columns(update.configuration[canonical_name], update.schema)
            if canonical_name == _CHANGE_FEED and update.configuration[canonical_name] == "true":
                _check_feed_columns(update)
    if ICEBERG_FORMAT_VERSIONS.name in change.properties:
        update.assign_ids()
    return Recorded("SET TBLPROPERTIES", {"properties": dict(change.properties)}, listed="properties")


def _need_versions(update: TableUpdate, properties: Mapping[str, str]) -> None:
    versions = {name.lower(): value for name, value in properties.items() if name.lower() in _VERSIONS}
    for name, value in versions.items():
        if not (value.strip().isdecimal() and 1 <= int(value) <= _VERSIONS[name]):
            raise BadRequest(
                f"'{value}' is not a version of the Delta protocol for '{name}'; use 1 to {_VERSIONS[name]}.",
                property=name,
            )
    if versions:
        reader, writer = (int(versions.get(name, 1)) for name in _VERSIONS)
        update.need_versions(reader, max(writer, update.protocol.min_writer_version))


def unset_properties(update: TableUpdate, change: UnsetProperties) -> Recorded:
    """Unset properties; features stay in the protocol.

    Raises:
        InvalidTableChange: a property is not set and ``if_exists`` is false, or users cannot unset it.
    """
    names = []
    spelling = {name.lower(): name for name in update.configuration}
    for requested_name in change.names:
        canonical_name = _checked_name(requested_name, allow_unknown=True, what="unset")
        name = (
            spelling.get(requested_name.lower(), requested_name)
            if canonical_name is not None
            else requested_name
        )
        names.append(canonical_name or requested_name)
        if name not in update.configuration:
            if not change.if_exists:
                raise InvalidTableChange(
                    f"The table property '{requested_name}' is not set; use if-exists to ignore properties that are "
                    "not set.",
                    property=requested_name,
                )
            continue
        if canonical_name == MODE:
            _set_mode(update, "none")
        del update.configuration[name]
    return Recorded(
        "UNSET TBLPROPERTIES", {"properties": names, "ifExists": change.if_exists}, listed="properties"
    )


def set_comment(update: TableUpdate, change: SetComment) -> Recorded:
    """Set or remove the table's description."""
    update.description = change.comment
    if change.comment is None:
        return Recorded(
            "UNSET TBLPROPERTIES", {"properties": ["comment"], "ifExists": True}, listed="properties"
        )
    return Recorded("SET TBLPROPERTIES", {"properties": {"comment": change.comment}}, listed="properties")


def add_constraint(update: TableUpdate, change: AddConstraint) -> Recorded:
    """Add a CHECK constraint, and require existing rows to satisfy it.

    Raises:
        InvalidTableChange: the name is taken, or the expression is not allowed in a constraint.
        InvalidPredicate: it is not a Boolean expression.
        UnknownColumn: it refers to an unknown column.
    """
    key = constraint_key(change.name)
    existing = {name.lower(): text for name, text in update.configuration.items()}.get(key.lower())
    if existing is not None:
        raise InvalidTableChange(
            f"Constraint '{change.name}' already exists: {existing}; drop it first, or choose another name.",
            constraint=change.name,
        )
    parse_constraint(change.name, change.expression, update.schema)
    update.configuration[key] = change.expression
    update.requirements.append(
        Requirement(change.expression, f"constraint '{change.name}' ({change.expression})")
    )
    return Recorded("ADD CONSTRAINT", {"name": change.name, "expr": change.expression})


def drop_constraint(update: TableUpdate, change: DropConstraint) -> Recorded:
    """Drop a CHECK constraint.

    Raises:
        InvalidTableChange: no such constraint, and ``if_exists`` is false.
    """
    key = constraint_key(change.name)
    name = next((each for each in update.configuration if each.lower() == key.lower()), None)
    if name is None:
        if not change.if_exists:
            constraint_names = [
                each[len(CONSTRAINT_PREFIX) :]
                for each in update.configuration
                if each.lower().startswith(CONSTRAINT_PREFIX)
            ]
            raise InvalidTableChange(
                f"Constraint '{change.name}' does not exist; the table has "
                f"{', '.join(sorted(constraint_names)) or 'none'}.",
                constraint=change.name,
            )
        return Recorded("DROP CONSTRAINT", {"name": change.name, "existed": "false"})
    text = update.configuration.pop(name)
    return Recorded("DROP CONSTRAINT", {"name": change.name, "expr": text, "existed": "true"})


def add_feature(update: TableUpdate, change: AddFeature) -> Recorded:
    """Add a table feature and its dependencies.

    Raises:
        InvalidTableChange: Delvec does not know the feature, or cannot write tables that have it.
    """
    name = _add_feature(update, change.feature, {})
    return Recorded(
        "SET TBLPROPERTIES", {"properties": {f"{_FEATURE_PREFIX}{name}": "supported"}}, listed="properties"
    )


def upgrade_protocol(update: TableUpdate, change: UpgradeProtocol) -> Recorded:
    """Upgrade the protocol versions.

    Raises:
        InvalidTableChange: the reader and writer versions are incompatible.
    """
    update.need_versions(change.min_reader_version, change.min_writer_version)
    return Recorded("UPGRADE PROTOCOL", {"newProtocol": update.protocol.to_json()})


def cluster_by(update: TableUpdate, change: ClusterBy) -> Recorded:
    """Set the clustering columns; an empty list turns clustering off.

    Raises:
        InvalidTableChange: a column cannot be a clustering column.
        UnknownColumn: no such column.
    """
    paths = [parse_path(text) for text in change.columns]
    if paths:
        check_clustering(paths, update.schema, update.partition_columns, update.configuration)
    before = ",".join(spelled(logical_path(update.schema, path)) for path in update.clustering)
    update.clustering = tuple(physical_path(update.schema, path) for path in paths)
    if paths:
        update.need("clustering")
    return Recorded(
        "CLUSTER BY",
        {"oldClusteringColumns": before, "newClusteringColumns": ",".join(spelled(path) for path in paths)},
    )


def _checked_name(name: str, *, allow_unknown: bool, what: str) -> str | None:
    """Return Delta's spelling of a property, or None for a user-defined one."""
    if not _NAME.fullmatch(name):
        raise BadRequest(f"'{name[:200]}' is not a valid name for a table property.", property=name[:200])
    lower = name.lower()
    if not lower.startswith("delta."):
        if lower in ("location", "provider", "external", "owner", "comment"):
            raise InvalidTableChange(
                f"'{name}' is reserved and cannot be {what} as a table "
                f"property{'; set the comment of the table instead' if lower == 'comment' else ''}.",
                property=name,
            )
        return None
    if lower.startswith(CONSTRAINT_PREFIX):
        raise InvalidTableChange(
            f"'{name}' is a constraint; add or drop it with ADD CONSTRAINT or DROP CONSTRAINT, so that the "
            "rows are checked.",
            property=name,
        )
    if lower.startswith(_FEATURE_PREFIX):
        raise InvalidTableChange(
            f"'{name}' is a table feature, which cannot be unset like a property; drop the feature.",
            property=name,
        )
    canonical_name = known_property(name)
    if canonical_name is None:
        if allow_unknown or lower.startswith(_ICEBERG_PREFIX):
            return None
        raise InvalidTableChange(
            f"Delvec does not know the table property '{name}'{suggestion(name)}", property=name
        )
    refusal = PROPERTIES[canonical_name].refusal
    if refusal is not None:
        raise InvalidTableChange(
            f"The table property '{canonical_name}' {refusal}; it cannot be {what} here.",
            property=canonical_name,
        )
    return canonical_name


def _set_mode(update: TableUpdate, mode: str) -> None:
    before = mapping_mode(update.configuration)
    if mode == before:
        return
    if before != "none":
        raise InvalidTableChange(
            f"{MODE} cannot be changed from {before} to {mode}, because the table's files already name "
            f"their columns for {before}.",
            property=MODE,
        )
    strange = [
        field.name for field in all_fields(update.schema) if {FIELD_ID, PHYSICAL_NAME} & set(field.metadata)
    ]
    if strange:
        raise InvalidTableChange(
            f"Columns {', '.join(strange[:10])} have ids or physical names left over from an earlier column "
            "mapping, although the table's columns are not mapped; turning column mapping on would read "
            "the wrong columns.",
            property=MODE,
        )
    if mode == "id":
        raise InvalidTableChange(
            f"{MODE}=id can only be set when the table is created, because existing files have no column "
            "ids; set it to name.",
            property=MODE,
        )
    update.configuration[MODE] = mode
    update.assign_ids(enabling=True)


def _add_feature(update: TableUpdate, name: str, requested_properties: Mapping[str, str]) -> str:
    feature = feature_named(name)
    if feature is None or feature.name not in WRITABLE:
        raise InvalidTableChange(
            f"Delvec does not know the table feature '{name}', or could no longer write to the table with "
            f"it. Features that can be added: {', '.join(sorted(WRITABLE.keys() & FEATURES.keys()))}.",
            feature=name,
        )
    update.need(feature.name)
    if feature.name == MANAGED:
        update.manage(requested_properties)
    return feature.name


def _check_feed_columns(update: TableUpdate) -> None:
    for field in update.schema.fields:
        check_column_name(field.name, has_mapping=True)
