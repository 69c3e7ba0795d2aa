"""Clustering columns: domain metadata ``delta.clustering`` (PROTOCOL.md, "Clustered Table")."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from delvec_errors import CorruptTable, InvalidTableChange
from delvec_kernel.actions.action_json import json_text
from delvec_kernel.actions.actions import DomainMetadata
from delvec_kernel.schema.column_paths import ColumnPath, as_in_schema, field_at, path_text, physical_path
from delvec_kernel.schema.types import DecimalType, PrimitiveType, StructType
from delvec_kernel.statistics.file_statistics import columns_with_statistics

__all__ = ["CLUSTERING_DOMAIN", "check_clustering", "clustering_domain", "clustering_paths"]

CLUSTERING_DOMAIN: Final = "delta.clustering"
_MAX_COLUMNS: Final = 4
_WITHOUT_RANGE: Final = frozenset({"boolean", "binary", "variant", "void"})


def clustering_paths(domains: Mapping[str, DomainMetadata]) -> tuple[ColumnPath, ...]:
    """Return the physical paths of the clustering columns; empty if the table is not clustered.

    Raises:
        CorruptTable: the domain metadata is invalid.
    """
    domain = domains.get(CLUSTERING_DOMAIN)
    if domain is None or domain.removed:
        return ()
    try:
        columns: Any = json.loads(domain.configuration)["clusteringColumns"]
        return tuple(tuple(str(part) for part in column) for column in columns)
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptTable(
            f"The domain metadata {CLUSTERING_DOMAIN} does not list clustering columns: "
            f"{domain.configuration[:200]!r}; set the clustering columns again with another writer."
        ) from error


def clustering_domain(paths: Sequence[ColumnPath]) -> DomainMetadata:
    """Return the action that sets the clustering columns, given as physical paths."""
    configuration = {"clusteringColumns": [list(path) for path in paths], "domainName": CLUSTERING_DOMAIN}
    return DomainMetadata(CLUSTERING_DOMAIN, json_text(configuration))


def check_clustering(
    paths: Sequence[ColumnPath],
    schema: StructType,
    partition_columns: Sequence[str],
    configuration: Mapping[str, str],
) -> None:
    """Reject invalid clustering columns.

    Raises:
        UnknownColumn: no such column.
        InvalidTableChange: there are too many, one has no statistics or an unordered type, or the table is
            partitioned.
    """
    if partition_columns:
        raise InvalidTableChange(
            f"The table is partitioned by {', '.join(partition_columns)}; a table can be partitioned or "
            "clustered, but not both."
        )
    if len(paths) > _MAX_COLUMNS:
        raise InvalidTableChange(
            f"A table can be clustered by at most {_MAX_COLUMNS} columns, not {len(paths)}."
        )
    physical = [physical_path(schema, path) for path in paths]
    if len(set(physical)) < len(physical):
        raise InvalidTableChange("A clustering column is listed twice; list each column once.")
    with_statistics = columns_with_statistics(schema, partition_columns, configuration)
    for path in paths:
        kind = field_at(schema, path).type
        name = kind.name if isinstance(kind, PrimitiveType) else ""
        if not isinstance(kind, PrimitiveType | DecimalType) or name in _WITHOUT_RANGE:
            raise InvalidTableChange(
                f"Files cannot be clustered by '{path_text(path)}' of type {str(kind.to_json())[:80]}: file "
                "statistics have no minimum and maximum for this type.",
                column=path_text(path),
            )
        if as_in_schema(schema, path) not in with_statistics:
            raise InvalidTableChange(
                f"Files cannot be clustered by '{path_text(path)}', because it has no statistics; add it to "
                "delta.dataSkippingStatsColumns, or raise delta.dataSkippingNumIndexedCols.",
                column=path_text(path),
            )
