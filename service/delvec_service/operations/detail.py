"""What a table is, as Delta's DESCRIBE DETAIL tells it."""

import json
from typing import Any

from delvec.protocol.types import StructType
from delvec_service.delta.features import reader_features, writer_features
from delvec_service.delta.snapshot import Snapshot

__all__ = ["detail"]


def detail(snapshot: Snapshot, table: str) -> dict[str, Any]:
    """Return Delta's columns; times in milliseconds since the epoch.

    Args:
        snapshot: the version.
        table: the name, where the table has none of its own.
    """
    metadata, protocol = snapshot.metadata, snapshot.protocol
    return {
        "format": "delta",
        "id": metadata.id,
        "name": metadata.name or table,
        "description": metadata.description,
        "location": snapshot.location,
        "createdAt": metadata.created_time,
        "lastModified": snapshot.timestamp,
        "partitionColumns": list(snapshot.partition_columns),
        "clusteringColumns": _clustering_columns(snapshot),
        "numFiles": snapshot.num_files,
        "sizeInBytes": snapshot.size_in_bytes,
        "properties": dict(metadata.configuration),
        "minReaderVersion": protocol.min_reader_version,
        "minWriterVersion": protocol.min_writer_version,
        "tableFeatures": sorted(reader_features(protocol) | writer_features(protocol)),
    }


def _clustering_columns(snapshot: Snapshot) -> list[str]:
    """Return the columns that a table is clustered by (PROTOCOL.md, "Clustered Table"), by logical name."""
    domain = snapshot.domain_metadata.get("delta.clustering")
    try:
        document = json.loads(domain.configuration) if domain is not None else {}
        columns = document.get("clusteringColumns") or []
        paths = [[str(part) for part in ([path] if isinstance(path, str) else path)] for path in columns]
    except (ValueError, TypeError, AttributeError, RecursionError):
        return []
    return [".".join(_logical(path, snapshot.schema)) for path in paths]


def _logical(path: list[str], schema: StructType) -> list[str]:
    names: list[str] = []
    kind: Any = schema
    for part in path:
        fields = kind.fields if isinstance(kind, StructType) else ()
        field = next((field for field in fields if field.physical_name == part), None)
        names.append(part if field is None else field.name)
        kind = None if field is None else field.type
    return names
