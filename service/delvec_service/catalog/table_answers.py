"""A table as clients of the Unity Catalog APIs see it: all of it follows from a snapshot.

Tested in `tests/integration/service/catalog/test_unity_catalog.py`.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from delvec_contract.unity_catalog import hyphenated
from delvec_kernel import row_tracking
from delvec_kernel.actions.action_json import json_text
from delvec_kernel.features.managed_tables import is_catalog_managed
from delvec_kernel.features.table_features import reader_features, writer_features
from delvec_kernel.snapshot.snapshot import Snapshot
from delvec_service.store.registry import TableRecord

__all__ = ["etag", "loaded", "properties_of", "table_info"]

_CLUSTERING: Final = "delta.clustering"
_TYPE_NAMES: Final = {
    "integer": "INT",
    "timestamp_ntz": "TIMESTAMP_NTZ",
}


def etag(snapshot: Snapshot) -> str:
    """Return a tag that changes with metadata and protocol only, in plain ASCII."""
    text = json_text([snapshot.metadata.to_json(), snapshot.protocol.to_json()])
    return f"etag-{hashlib.sha256(text.encode()).hexdigest()[:32]}"


def loaded(record: TableRecord, snapshot: Snapshot, maintenance: Sequence[str] = ()) -> dict[str, Any]:
    """Return the answer to a request that loads a table of the Delta API.

    ``commits`` is empty: a version is in the log before the request that ratifies it is answered.

    Args:
        record: of the table.
        snapshot: its newest version.
        maintenance: what clients may do to a managed table.
    """
    is_managed = is_catalog_managed(snapshot.protocol)
    schema = json.loads(snapshot.metadata.schema_string)
    metadata: dict[str, Any] = {
        "etag": etag(snapshot),
        "table-type": "MANAGED" if is_managed else "EXTERNAL",
        "table-uuid": record.id,
        "location": record.location,
        "created-time": snapshot.metadata.created_time or int(record.created_at.timestamp() * 1000),
        "updated-time": snapshot.timestamp,
        "columns": hyphenated(schema),
        "properties": properties_of(snapshot),
        "last-commit-version": snapshot.version,
        "last-commit-timestamp-ms": snapshot.timestamp,
    }
    if snapshot.partition_columns:
        metadata["partition-columns"] = list(snapshot.partition_columns)
    answer: dict[str, Any] = {"metadata": metadata}
    if is_managed:
        answer |= {"commits": [], "latest-table-version": snapshot.version}
        if maintenance:
            answer["allowed-maintenance-operations"] = list(maintenance)
    return answer


def properties_of(snapshot: Snapshot) -> dict[str, str]:
    """Return the table properties, and those that a catalog derives from protocol and domain metadata."""
    protocol = snapshot.protocol
    properties = {
        "delta.minReaderVersion": str(protocol.min_reader_version),
        "delta.minWriterVersion": str(protocol.min_writer_version),
        "delta.lastUpdateVersion": str(snapshot.version),
        "delta.lastCommitTimestamp": str(snapshot.timestamp),
    }
    for feature in sorted(reader_features(protocol) | writer_features(protocol)):
        properties[f"delta.feature.{feature}"] = "supported"
    mark = row_tracking.high_water_mark(snapshot)
    if mark >= 0:
        properties["delta.rowTracking.rowIdHighWaterMark"] = str(mark)
    clustering = snapshot.domain_metadata.get(_CLUSTERING)
    if clustering is not None and not clustering.removed:
        # Not delta.clusteringColumns: on REPLACE delta-spark copies what begins with "delta." into the log.
        properties["clusteringColumns"] = json_text(_clustering(clustering.configuration))
    return {**snapshot.configuration, **properties}


def table_info(catalog: str, schema: str, record: TableRecord, snapshot: Snapshot | None) -> dict[str, Any]:
    """Return a table in the form of the classic routes; without a snapshot, what is known without reading the log."""
    name = record.name.rpartition(".")[2]
    created_at = int(record.created_at.timestamp() * 1000)
    is_managed = snapshot is not None and is_catalog_managed(snapshot.protocol)
    info: dict[str, Any] = {
        "name": name,
        "catalog_name": catalog,
        "schema_name": schema,
        "full_name": f"{catalog}.{schema}.{name}",
        "table_type": "MANAGED" if is_managed else "EXTERNAL",
        "data_source_format": "DELTA",
        "columns": [],
        "storage_location": record.location,
        "properties": {},
        "table_id": record.id,
        "created_at": created_at,
        "updated_at": created_at,
    }
    if snapshot is None:
        return info
    fields = json.loads(snapshot.metadata.schema_string)["fields"]
    info["columns"] = [
        _column_info(position, field, snapshot.partition_columns) for position, field in enumerate(fields)
    ]
    info |= {
        "comment": snapshot.metadata.description,
        "properties": properties_of(snapshot),
        "updated_at": snapshot.timestamp,
    }
    return info


def _column_info(
    position: int, field: Mapping[str, Any], partition_columns: tuple[str, ...]
) -> dict[str, Any]:
    kind = field["type"]
    text = _type_text(kind)
    name = kind["type"] if isinstance(kind, dict) else kind.partition("(")[0]
    column: dict[str, Any] = {
        "name": field["name"],
        "type_text": text,
        "type_json": json_text(dict(field)),
        "type_name": _TYPE_NAMES.get(name, name.upper()),
        "position": position,
        "nullable": field.get("nullable", True),
        "comment": (field.get("metadata") or {}).get("comment"),
    }
    if field["name"] in partition_columns:
        column["partition_index"] = partition_columns.index(field["name"])
    return column


def _type_text(kind: Any) -> str:
    """Return a type in SQL."""
    if not isinstance(kind, dict):
        return {"integer": "int", "long": "bigint", "short": "smallint", "byte": "tinyint"}.get(
            kind, str(kind)
        )
    if kind["type"] == "array":
        return f"array<{_type_text(kind['elementType'])}>"
    if kind["type"] == "map":
        return f"map<{_type_text(kind['keyType'])},{_type_text(kind['valueType'])}>"
    fields = [f"{each['name']}:{_type_text(each['type'])}" for each in kind["fields"]]
    return f"struct<{','.join(fields)}>"


def _clustering(configuration: str) -> Any:
    try:
        return json.loads(configuration)["clusteringColumns"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return []
