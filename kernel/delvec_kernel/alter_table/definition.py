"""The complete definition of a table, as applied by CREATE TABLE and REPLACE TABLE.

Tested in `tests/unit/kernel/alter_table/test_first_version.py` and
`tests/integration/engines/test_definitions.py`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from delvec_errors import DelvecError, InvalidTableChange
from delvec_kernel.alter_table.change_types import ReplaceSchema, ReplaceTable, SetProperties
from delvec_kernel.alter_table.clustering import check_clustering
from delvec_kernel.alter_table.columns import STATS_COLUMNS, check_stats_columns
from delvec_kernel.alter_table.constraints import constraint_key, parse_constraint
from delvec_kernel.alter_table.metadata_location import check_metadata_location
from delvec_kernel.alter_table.properties import set_properties
from delvec_kernel.alter_table.row_tracking_change import check_row_ids
from delvec_kernel.alter_table.schema_checks import check_columns, checked_partition_columns
from delvec_kernel.alter_table.table_update import Recorded, TableState, TableUpdate
from delvec_kernel.constraints import computed_columns
from delvec_kernel.constraints.declared import CONSTRAINT_PREFIX, mentioned
from delvec_kernel.features.managed_tables import MANAGED
from delvec_kernel.features.protocol_upgrade import supported
from delvec_kernel.row_tracking import MATERIALIZED
from delvec_kernel.schema.column_mapping import MAX_COLUMN_ID, MODE, NESTED_IDS, with_fields
from delvec_kernel.schema.column_paths import logical_path, parse_path, path_text, physical_path
from delvec_kernel.schema.types import (
    FIELD_ID,
    PHYSICAL_NAME,
    DataType,
    PrimitiveType,
    StructField,
    StructType,
    leaves,
)
from delvec_kernel.table_properties import (
    DELETION_VECTORS,
    IN_COMMIT_TIMESTAMPS,
    IN_COMMIT_TIMESTAMPS_SINCE,
    SYMLINK_MANIFESTS,
    is_true,
    parsed_value,
)

__all__ = ["NO_FILES", "Definition", "define", "replace_schema", "replace_table", "without_mapping"]

_KEPT_PROPERTIES: Final = (*MATERIALIZED, "delta.requireCheckpointProtectionBeforeVersion")
"""Properties that REPLACE TABLE keeps: they describe older versions, or the column names in existing files."""
_MAPPING: Final = (FIELD_ID, PHYSICAL_NAME, NESTED_IDS)

NO_FILES: Final = TableState(0, 0, 0, 0, 0)
"""The state of a table that has, or will have, no files."""


@dataclass(frozen=True)
class Definition:
    """The definition of a table, as its owner requests it.

    Attributes:
        schema: partition columns included.
        partition_columns: in order, case-insensitive.
        properties: user-defined and ``delta.*`` properties, including features and constraints.
        description: free text.
        cluster_by: columns or struct fields.
    """

    schema: StructType
    partition_columns: Sequence[str] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    description: str | None = None
    cluster_by: Sequence[str] = ()


def define(update: TableUpdate, definition: Definition, *, deletion_vectors: bool = True) -> None:
    """Apply a definition to a table without columns and properties.

    Args:
        update: the update of a table without files.
        definition: to apply.
        deletion_vectors: whether to enable them by default, unless the properties enable manifests.

    Raises:
        InvalidSchema: a name, a type or a partition column is invalid.
        BadRequest: or a subclass: a property is unknown or has an invalid value; a constraint or a clustering column
            is invalid.
    """
    own, delta, constraints, mode = _partition_properties(definition.properties)
    lower = {name.lower(): value for name, value in delta.items()}
    deletion_vectors = deletion_vectors and not is_true(lower, SYMLINK_MANIFESTS.lower())
    schema = without_mapping(definition.schema)
    assert isinstance(schema, StructType)  # noqa: S101 - without_mapping keeps the kind of type
    check_columns(schema, has_mapping=mode != "none", allow_computed=True)
    update.partition_columns = tuple(checked_partition_columns(schema, definition.partition_columns))
    update.schema = schema
    update.description = definition.description
    update.configuration |= ({DELETION_VECTORS: "true"} if deletion_vectors else {}) | own
    for feature in (
        *computed_columns.features(schema),
        *(["timestampNtz"] if PrimitiveType("timestamp_ntz") in leaves(schema) else []),
    ):
        update.need(feature)
    if delta:
        set_properties(update, SetProperties(properties=delta))
    if mode != "none":
        update.configuration[MODE] = mode
        update.assign_ids()
    for name, expression in constraints.items():
        parse_constraint(name, expression, update.schema)
        update.configuration[constraint_key(name)] = expression
    paths = [parse_path(text) for text in definition.cluster_by]
    if paths:
        check_clustering(paths, update.schema, update.partition_columns, update.configuration)
        update.need("clustering")
    update.clustering = tuple(physical_path(update.schema, path) for path in paths)
    check_row_ids(update)


def replace_table(update: TableUpdate, change: ReplaceTable) -> Recorded:
    """Replace a table's definition, for a commit that removes every file; features stay in the protocol.

    Deletion vectors are enabled by default if the protocol already supports them.

    Raises:
        InvalidSchema: or a sibling, see :func:`define`.
    """
    before = update.configuration_before
    update.state = NO_FILES
    update.configuration = {name: before[name] for name in _KEPT_PROPERTIES if name in before}
    wanted = {name.lower(): value for name, value in change.properties.items()}
    if (
        before.get(MODE, "none").lower() != "none"
        and wanted.get(MODE.lower(), "none").strip().lower() != "none"
    ):
        update.configuration[MAX_COLUMN_ID] = before.get(MAX_COLUMN_ID, "0")
    definition = Definition(
        StructType.from_json(change.table_schema),
        change.partition_columns,
        change.properties,
        change.description,
        change.cluster_by,
    )
    define(update, definition, deletion_vectors="deletionVectors" in supported(update.protocol))
    if MANAGED in supported(update.protocol):
        update.manage(change.properties)
    if is_true(before, IN_COMMIT_TIMESTAMPS) and is_true(update.configuration, IN_COMMIT_TIMESTAMPS):
        update.configuration |= {name: before[name] for name in IN_COMMIT_TIMESTAMPS_SINCE if name in before}
    return Recorded("REPLACE TABLE", {"properties": dict(update.configuration)})


def without_mapping(kind: DataType) -> DataType:
    """Return a type without column mapping ids and physical names."""

    def strip(field: StructField) -> StructField:
        metadata = {key: value for key, value in field.metadata.items() if key not in _MAPPING}
        return replace(field, metadata=metadata)

    return with_fields(kind, strip)


def _partition_properties(
    properties: Mapping[str, str],
) -> tuple[dict[str, str], dict[str, str], dict[str, str], str]:
    """Return the user-defined properties, Delta's, the constraints by name, and the column mapping mode."""
    own: dict[str, str] = {}
    delta: dict[str, str] = {}
    constraints: dict[str, str] = {}
    mode = "none"
    for name, value in properties.items():
        lower = name.lower()
        if not lower.startswith("delta."):
            check_metadata_location(name, value)
            own[name] = value
        elif lower.startswith(CONSTRAINT_PREFIX):
            constraint = name[len(CONSTRAINT_PREFIX) :]
            if constraint.lower() in (each.lower() for each in constraints):
                raise InvalidTableChange(
                    f"There are two constraints named '{constraint}'; rename one of them"
                )
            constraints[constraint] = value
        elif lower == MODE.lower():
            mode = parsed_value(MODE, value)
        else:
            delta[name] = value
    return own, delta, constraints, mode


def replace_schema(update: TableUpdate, change: ReplaceSchema) -> Recorded:
    """Replace the table's columns. With column mapping each gets a new id and physical name.

    Raises:
        InvalidSchema: a name, a type or a partition column is invalid.
        InvalidTableChange: a constraint, the clustering or a property refers to a removed column.
    """
    schema = without_mapping(StructType.from_json(change.table_schema))
    assert isinstance(schema, StructType)  # noqa: S101 - without_mapping keeps the kind of type
    check_columns(schema, has_mapping=update.is_mapped)
    partition_columns = checked_partition_columns(schema, change.partition_columns)
    _check_constraints(update, schema)
    stats_columns = update.configuration.get(STATS_COLUMNS)
    if stats_columns is not None:
        check_stats_columns(stats_columns, schema)
    clustering = [logical_path(update.schema, path) for path in update.clustering]
    if clustering:
        try:
            check_clustering(clustering, schema, partition_columns, update.configuration)
        except DelvecError as error:
            raise InvalidTableChange(
                f"The table is clustered by {', '.join(path_text(path) for path in clustering)}: {error.message} Cluster "
                "it by other columns first."
            ) from error
    update.schema, update.partition_columns = schema, tuple(partition_columns)
    update.assign_ids()
    update.clustering = tuple(physical_path(update.schema, path) for path in clustering)
    return Recorded("REPLACE COLUMNS", {"columns": schema.to_json()["fields"]}, listed="columns")


def _check_constraints(update: TableUpdate, schema: StructType) -> None:
    for key, expression in update.configuration.items():
        if not key.lower().startswith(CONSTRAINT_PREFIX):
            continue
        gone = [name for name in mentioned(expression, update.schema) if name not in schema]
        if gone:
            raise InvalidTableChange(
                f"Column '{gone[0]}' cannot be removed: constraint '{key[len(CONSTRAINT_PREFIX) :]}' "
                f"({expression}) depends on it; drop the constraint first.",
                column=gone[0],
            )
