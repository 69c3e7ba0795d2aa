"""Other columns for a table all of whose files go: a new schema, with new partition columns."""

from delvec.protocol.constraints import mentioned
from delvec.protocol.errors import DelvecError, InvalidTableChange
from delvec.protocol.types import DataType, StructType
from delvec.protocol.wire import ReplaceSchema
from delvec_service.delta.schema_checks import check_columns, checked_partition_columns
from delvec_service.delta.table_changes.clustering import check_clustering
from delvec_service.delta.table_changes.column_paths import ColumnPath, path_text, physical_path
from delvec_service.delta.table_changes.constraints import CONSTRAINT_PREFIX
from delvec_service.delta.table_changes.definition import without_mapping
from delvec_service.delta.table_changes.draft import Draft, Recorded
from delvec_service.delta.table_changes.stats_columns import STATS_COLUMNS, check_stats_columns

__all__ = ["replace_schema"]


def replace_schema(draft: Draft, change: ReplaceSchema) -> Recorded:
    """Give the table other columns. With column mapping each gets an id and a physical name that no column had.

    Raises:
        InvalidSchema: a name, a type or a partition column cannot be.
        InvalidTableChange: a constraint, the clustering or a property names a column that would be gone.
    """
    schema = without_mapping(StructType.from_json(change.table_schema))
    assert isinstance(schema, StructType)  # noqa: S101 - a struct stays one
    check_columns(schema, mapped=draft.is_mapped)
    partition_columns = checked_partition_columns(schema, change.partition_columns)
    _check_constraints(draft, schema)
    stats_columns = draft.configuration.get(STATS_COLUMNS)
    if stats_columns is not None:
        check_stats_columns(stats_columns, schema)
    clustering = [_names(draft.schema, path) for path in draft.clustering]
    if clustering:
        try:
            check_clustering(clustering, schema, partition_columns, draft.configuration)
        except DelvecError as error:
            raise InvalidTableChange(
                f"The table is clustered by {', '.join(path_text(path) for path in clustering)}: {error.message} Cluster "
                "it by other columns first."
            ) from error
    draft.schema, draft.partition_columns = schema, tuple(partition_columns)
    draft.assign_ids()
    draft.clustering = tuple(physical_path(draft.schema, path) for path in clustering)
    return Recorded("REPLACE COLUMNS", {"columns": schema.to_json()["fields"]}, listed="columns")


def _check_constraints(draft: Draft, schema: StructType) -> None:
    for key, expression in draft.configuration.items():
        if not key.lower().startswith(CONSTRAINT_PREFIX):
            continue
        gone = [name for name in mentioned(expression, draft.schema) if name not in schema]
        if gone:
            raise InvalidTableChange(
                f"Column '{gone[0]}' cannot be left out: constraint '{key[len(CONSTRAINT_PREFIX) :]}' ({expression}) "
                "depends on it; drop the constraint first.",
                column=gone[0],
            )


def _names(schema: StructType, physical: ColumnPath) -> ColumnPath:
    """Return the names of a field by its physical ones; of what is not there, those themselves."""
    kind: DataType = schema
    names = []
    for part in physical:
        fields = kind.fields if isinstance(kind, StructType) else ()
        field = next((each for each in fields if each.physical_name == part), None)
        names.append(part if field is None else field.name)
        kind = kind if field is None else field.type
    return tuple(names)
