"""Iceberg table metadata: JSON with the table's schemas, specs, snapshots and properties, and its updates.

It also records the progress of the conversion: the converted Delta version is a table property, and part of every
snapshot's summary.

Tested in `tests/integration/service/iceberg/test_conversion.py`.
"""

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from delvec_errors import CorruptIcebergMetadata, IcebergUnsupported
from delvec_iceberg.partitions import FIRST_FIELD_ID, PartitionSpec
from delvec_iceberg.schema import V3, IcebergSchema, field_ids, field_types, merged_name_mapping, promotes
from delvec_kernel.row_tracking import MATERIALIZED
from delvec_kernel.schema.column_mapping import is_mapped

__all__ = [
    "DELTA_LOCATION",
    "DELTA_OPERATION",
    "DELTA_TABLE_ID",
    "DELTA_TIMESTAMP",
    "DELTA_VERSION",
    "NAME_MAPPING",
    "VERSION_TAG",
    "SnapshotSummary",
    "changes_types",
    "current_schema",
    "current_snapshot",
    "delta_version",
    "expired_snapshots",
    "is_continued_by",
    "new_metadata",
    "partition_spec_of",
    "read_metadata",
    "with_previous_file",
    "with_snapshot",
    "with_table_definition",
    "with_version",
    "with_version_tag",
    "without_snapshots",
]

DELTA_VERSION: Final = "delta-version"
DELTA_TIMESTAMP: Final = "delta-timestamp"
DELTA_TABLE_ID: Final = "delta-table-id"
DELTA_LOCATION: Final = "delta-location"
DELTA_MAPPED: Final = "delta-column-mapping"
DELTA_OPERATION: Final = "delta-operation"
MAX_SNAPSHOT_AGE: Final = "history.expire.max-snapshot-age-ms"
NAME_MAPPING: Final = "schema.name-mapping.default"
VERSION_TAG: Final = "delta-"
"""Prefix of the tags that name Delta versions."""
_MAIN: Final = "main"
_CONFIGURED: Final = "delta.universalformat.config.iceberg."
_MAX_LOG_ENTRIES: Final = 100
_NO_SNAPSHOT: Final = -1
_CHANGE_TYPE_ID: Final = 2147483440
_FIRST_HIDDEN: Final = _CHANGE_TYPE_ID
_ROW_ID: Final = 2147483540
_ROW_COMMIT_VERSION: Final = 2147483539
"""Reserved field ids of the row lineage columns."""
_WEEK_MS: Final = 7 * 24 * 3600 * 1000


@dataclass(frozen=True)
class SnapshotSummary:
    """A snapshot's summary.

    Attributes:
        operation: append, delete, overwrite or replace.
        totals: ``added-…``, ``removed-…`` and ``total-…`` counts.
        delta_version: the converted version.
        delta_timestamp: of that version, milliseconds since the epoch.
        delta_operation: from the commit's commitInfo.
    """

    operation: str
    totals: Mapping[str, int]
    delta_version: int
    delta_timestamp: int
    delta_operation: str | None

    def to_json(self) -> dict[str, str]:
        """Return the summary's JSON object."""
        summary = {
            "operation": self.operation,
            **{name: str(count) for name, count in self.totals.items()},
            DELTA_VERSION: str(self.delta_version),
            DELTA_TIMESTAMP: str(self.delta_timestamp),
        }
        return summary | ({} if self.delta_operation is None else {DELTA_OPERATION: self.delta_operation})


def new_metadata(
    delta_table_id: str, delta_location: str, location: str, format_version: int
) -> dict[str, Any]:
    """Return the metadata of a new, empty table.

    Args:
        delta_table_id: the ``id`` in the Delta metadata.
        delta_location: the Delta table's canonical location.
        location: the location of the Iceberg table, without a trailing slash.
        format_version: 2 or 3.
    """
    try:
        table_uuid = uuid.UUID(delta_table_id)
    except ValueError:
        table_uuid = uuid.uuid5(uuid.NAMESPACE_URL, f"delta:{delta_table_id}")
    metadata: dict[str, Any] = {
        "format-version": format_version,
        "table-uuid": str(table_uuid),
        "location": location,
        "last-sequence-number": 0,
        "last-updated-ms": 0,
        "last-column-id": 0,
        "current-schema-id": 0,
        "schemas": [],
        "default-spec-id": 0,
        "partition-specs": [],
        "last-partition-id": FIRST_FIELD_ID - 1,
        "default-sort-order-id": 0,
        "sort-orders": [{"order-id": 0, "fields": []}],
        "properties": {DELTA_TABLE_ID: delta_table_id, DELTA_LOCATION: delta_location},
        "current-snapshot-id": _NO_SNAPSHOT,
        "refs": {},
        "snapshots": [],
        "statistics": [],
        "partition-statistics": [],
        "snapshot-log": [],
        "metadata-log": [],
    }
    if format_version >= V3:
        metadata["next-row-id"] = 0
    return metadata


def read_metadata(data: bytes, path: str) -> dict[str, Any]:
    """Parse table metadata that Delvec wrote.

    Args:
        data: the file.
        path: the path, for errors.

    Raises:
        CorruptIcebergMetadata: it is not table metadata.
        IcebergUnsupported: the table is not a conversion of a Delta table.
    """
    try:
        metadata = json.loads(data)
        properties = metadata["properties"]
        for name in ("schemas", "partition-specs", "snapshots", "location", "last-sequence-number"):
            metadata[name]
        ours = DELTA_VERSION in properties and DELTA_TABLE_ID in properties
        if ours:
            int(properties[DELTA_VERSION])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CorruptIcebergMetadata(
            f"The file '{path}' is not the metadata of an Iceberg table ({error!r}); restore it from a "
            "backup, or delete the directory 'metadata' that it is in to convert from scratch.",
            file=path,
        ) from error
    if not ours:
        raise IcebergUnsupported(
            f"The Iceberg table at '{path}' was not converted from a Delta table: it does not have the "
            f"properties {DELTA_VERSION} and {DELTA_TABLE_ID}. It was left unchanged; convert into another "
            "directory (property delvec.iceberg.location).",
            file=path,
        )
    return dict(metadata)


def delta_version(metadata: Mapping[str, Any]) -> int:
    """Return the converted Delta version."""
    return int(metadata["properties"][DELTA_VERSION])


def current_schema(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the current schema's JSON object."""
    wanted = metadata["current-schema-id"]
    found: Mapping[str, Any] = next(one for one in metadata["schemas"] if one["schema-id"] == wanted)
    return found


def partition_spec_of(metadata: Mapping[str, Any], spec_id: int) -> PartitionSpec:
    """Return a partition spec, with column types from the newest schema that has each column."""
    document = next(one for one in metadata["partition-specs"] if one["spec-id"] == spec_id)
    types: dict[int, Any] = {}
    for schema in metadata["schemas"]:
        types.update(field_types(schema["fields"]))
    return PartitionSpec.from_json(document, types)


def current_snapshot(metadata: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the current snapshot's JSON object, or None."""
    wanted = metadata.get("current-snapshot-id")
    return next((one for one in metadata["snapshots"] if one["snapshot-id"] == wanted), None)


def is_continued_by(
    metadata: Mapping[str, Any], schema: IcebergSchema, configuration: Mapping[str, str]
) -> bool:
    """Whether older snapshots remain readable with a new schema.

    Types may only be widened. Turning column mapping on or off may assign new ids unless the old ones were Delta's.
    """
    before = current_schema(metadata)["fields"]
    old, new = field_types(before), field_types(schema.fields)
    if not all(promotes(old[field_id], kind) for field_id, kind in new.items() if field_id in old):
        return False
    if metadata["properties"].get(DELTA_MAPPED) == _mapped(configuration):
        return True
    ids_by_path = dict(field_ids(before))
    return all(ids_by_path.get(path, field_id) == field_id for path, field_id in field_ids(schema.fields))


def changes_types(metadata: Mapping[str, Any], schema: IcebergSchema) -> bool:
    """Whether a schema widens a type, so that existing manifests have bounds of the narrower type."""
    old, new = field_types(current_schema(metadata)["fields"]), field_types(schema.fields)
    return any(old[field_id] != kind for field_id, kind in new.items() if field_id in old)


def _mapped(configuration: Mapping[str, str]) -> str:
    return "true" if is_mapped(configuration) else "false"


def with_table_definition(
    metadata: Mapping[str, Any],
    schema: IcebergSchema,
    spec: PartitionSpec,
    configuration: Mapping[str, str],
    *,
    retention_ms: int,
) -> dict[str, Any]:
    """Return metadata with this schema, spec and properties as the current ones.

    Args:
        metadata: the current metadata.
        schema: the schema of the table.
        spec: the partition spec of the table.
        configuration: Delta table properties; ``delta.universalformat.config.iceberg.*`` become Iceberg properties.
        retention_ms: how long snapshots are kept.
    """
    result = dict(metadata)
    fields = list(schema.fields)
    same = next((one for one in metadata["schemas"] if one["fields"] == fields), None)
    if same is None:
        schema_id = max((one["schema-id"] for one in metadata["schemas"]), default=-1) + 1
        same = schema.to_json(schema_id)
        result["schemas"] = [*metadata["schemas"], same]
    result["current-schema-id"] = same["schema-id"]
    result["last-column-id"] = max(metadata["last-column-id"], schema.last_column_id)
    if all(one["spec-id"] != spec.spec_id for one in metadata["partition-specs"]):
        result["partition-specs"] = [*metadata["partition-specs"], spec.to_json()]
    result["default-spec-id"] = spec.spec_id
    given = [item.field_id for item in spec.fields]
    result["last-partition-id"] = max([metadata["last-partition-id"], *given])
    stored = json.loads(metadata["properties"].get(NAME_MAPPING, "[]"))
    earlier = [entry for entry in stored if entry["field-id"] < _FIRST_HIDDEN]
    mapping = [*merged_name_mapping(earlier, schema.name_mapping), *_hidden_columns(configuration)]
    configured_properties = {
        name.removeprefix(_CONFIGURED): value
        for name, value in configuration.items()
        if name.startswith(_CONFIGURED)
    }
    kept = {name: value for name, value in metadata["properties"].items() if name.startswith("delta-")}
    result["properties"] = {
        **configured_properties,
        **kept,
        DELTA_MAPPED: _mapped(configuration),
        NAME_MAPPING: json.dumps(mapping, ensure_ascii=False, separators=(",", ":")),
        # Delta owns the data files, so Iceberg engines must not delete them when they expire snapshots.
        "gc.enabled": "false",
        MAX_SNAPSHOT_AGE: str(retention_ms),
    }
    return result


def _hidden_columns(configuration: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return name mappings of the hidden columns in Delta's files, since readers by id reject unknown names."""
    found = [{"field-id": _CHANGE_TYPE_ID, "names": ["_change_type"]}]
    for name, field_id in zip(MATERIALIZED, (_ROW_ID, _ROW_COMMIT_VERSION), strict=True):
        if configuration.get(name):
            found.append({"field-id": field_id, "names": [configuration[name]]})
    return found


def with_version(metadata: Mapping[str, Any], version: int, timestamp: int) -> dict[str, Any]:
    """Return metadata that records a Delta version.

    Args:
        metadata: the current metadata.
        version: the version of the Delta table.
        timestamp: the timestamp of the version, milliseconds since the epoch.
    """
    properties = {**metadata["properties"], DELTA_VERSION: str(version), DELTA_TIMESTAMP: str(timestamp)}
    return {
        **metadata,
        "properties": properties,
        "last-updated-ms": max(metadata["last-updated-ms"], timestamp),
    }


def with_snapshot(
    metadata: Mapping[str, Any],
    *,
    snapshot_id: int,
    sequence_number: int,
    manifest_list: str,
    summary: SnapshotSummary,
    first_row_id: int | None,
    added_rows: int,
) -> dict[str, Any]:
    """Return metadata with one more snapshot, which becomes the current one.

    Args:
        metadata: the current metadata, with the snapshot's schema as the current schema.
        snapshot_id: the id of the snapshot.
        sequence_number: the sequence number of the snapshot.
        manifest_list: the URI of its manifest list.
        summary: the summary of the snapshot.
        first_row_id: the first row id that the snapshot assigns; None in format version 2.
        added_rows: the number of row ids it assigns.
    """
    parent = current_snapshot(metadata)
    # Readers reject a snapshot log whose timestamps decrease.
    timestamp = max(summary.delta_timestamp, metadata["last-updated-ms"])
    snapshot: dict[str, Any] = {
        "snapshot-id": snapshot_id,
        "sequence-number": sequence_number,
        "timestamp-ms": timestamp,
        "summary": summary.to_json(),
        "manifest-list": manifest_list,
        "schema-id": metadata["current-schema-id"],
    }
    if parent is not None:
        snapshot["parent-snapshot-id"] = parent["snapshot-id"]
    result = with_version(metadata, summary.delta_version, summary.delta_timestamp)
    if first_row_id is not None:
        snapshot["first-row-id"] = first_row_id
        snapshot["added-rows"] = added_rows
        result["next-row-id"] = first_row_id + added_rows
    result["last-sequence-number"] = max(metadata["last-sequence-number"], sequence_number)
    result["last-updated-ms"] = timestamp
    result["snapshots"] = [*metadata["snapshots"], snapshot]
    result["current-snapshot-id"] = snapshot_id
    result["refs"] = {**metadata["refs"], _MAIN: {"snapshot-id": snapshot_id, "type": "branch"}}
    logged = {"snapshot-id": snapshot_id, "timestamp-ms": timestamp}
    result["snapshot-log"] = [*metadata["snapshot-log"], logged]
    return result


def with_version_tag(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return metadata with a tag ``delta-<version>`` on the current snapshot, if there is one."""
    current = current_snapshot(metadata)
    if current is None:
        return dict(metadata)
    tag = {f"{VERSION_TAG}{delta_version(metadata)}": {"snapshot-id": current["snapshot-id"], "type": "tag"}}
    return {**metadata, "refs": {**metadata["refs"], **tag}}


def with_previous_file(metadata: Mapping[str, Any], path: str, updated: int) -> dict[str, Any]:
    """Return metadata that lists its predecessor in the metadata log."""
    entry = {"metadata-file": path, "timestamp-ms": updated}
    return {**metadata, "metadata-log": [*metadata["metadata-log"], entry][-_MAX_LOG_ENTRIES:]}


def expired_snapshots(metadata: Mapping[str, Any], now: int) -> list[int]:
    """Return the ids of snapshots superseded longer ago than the table's maximum snapshot age.

    Args:
        metadata: the metadata of the table.
        now: milliseconds since the epoch.
    """
    age = int(metadata["properties"].get(MAX_SNAPSHOT_AGE, _WEEK_MS))
    snapshots = metadata["snapshots"]
    return [
        one["snapshot-id"]
        for one, after in pairwise(snapshots)
        if after["timestamp-ms"] < now - age and one["snapshot-id"] != metadata["current-snapshot-id"]
    ]


def without_snapshots(metadata: Mapping[str, Any], gone: Sequence[int]) -> dict[str, Any]:
    """Return metadata without these snapshots and their tags; the current snapshot is always kept."""
    ids = set(gone) - {metadata["current-snapshot-id"]}
    retained_snapshots = [one for one in metadata["snapshots"] if one["snapshot-id"] not in ids]
    retained_ids = {one["snapshot-id"] for one in retained_snapshots}
    log = list(metadata["snapshot-log"])
    for at in range(len(log) - 1, -1, -1):
        if log[at]["snapshot-id"] not in retained_ids:
            # Drop earlier entries too, or each would seem to be current until the next remaining one.
            log = log[at + 1 :]
            break
    refs = {name: ref for name, ref in metadata["refs"].items() if ref["snapshot-id"] in retained_ids}
    return {**metadata, "snapshots": retained_snapshots, "snapshot-log": log, "refs": refs}
