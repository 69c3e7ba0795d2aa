"""The Avro schemas of manifests and manifest lists, with the names and field ids of the Iceberg specification.

Tested in `tests/integration/service/iceberg/test_conversion.py`.
"""

from typing import Any

from delvec_iceberg.partitions import PartitionSpec, avro_type
from delvec_iceberg.schema import V3

__all__ = ["manifest_list_schema", "manifest_schema"]


def _field(name: str, kind: Any, field_id: int) -> dict[str, Any]:
    return {"name": name, "type": kind, "field-id": field_id}


def _optional(name: str, kind: Any, field_id: int) -> dict[str, Any]:
    return {"name": name, "type": ["null", kind], "default": None, "field-id": field_id}


def _map(key_id: int, value_id: int, value: str) -> dict[str, Any]:
    """A map with integer keys, which Avro represents as an array of key-value records."""
    pair = {
        "type": "record",
        "name": f"k{key_id}_v{value_id}",
        "fields": [_field("key", "int", key_id), _field("value", value, value_id)],
    }
    return {"type": "array", "logicalType": "map", "items": pair}


def _array(element: str, element_id: int) -> dict[str, Any]:
    return {"type": "array", "items": element, "element-id": element_id}


def manifest_schema(spec: PartitionSpec, format_version: int) -> dict[str, Any]:
    """Return the schema of a manifest's entries.

    Args:
        spec: the partition spec of all files in the manifest.
        format_version: 2 or 3.
    """
    partition = {
        "type": "record",
        "name": "r102",
        "fields": [_optional(item.avro_name, avro_type(item.type), item.field_id) for item in spec.fields],
    }
    data_file = [
        _field("content", "int", 134),
        _field("file_path", "string", 100),
        _field("file_format", "string", 101),
        _field("partition", partition, 102),
        _field("record_count", "long", 103),
        _field("file_size_in_bytes", "long", 104),
        _optional("value_counts", _map(119, 120, "long"), 109),
        _optional("null_value_counts", _map(121, 122, "long"), 110),
        _optional("lower_bounds", _map(126, 127, "bytes"), 125),
        _optional("upper_bounds", _map(129, 130, "bytes"), 128),
        _optional("split_offsets", _array("long", 133), 132),
        _optional("equality_ids", _array("int", 136), 135),
        _optional("sort_order_id", "int", 140),
        _optional("referenced_data_file", "string", 143),
    ]
    if format_version >= V3:
        data_file += [
            _optional("first_row_id", "long", 142),
            _optional("content_offset", "long", 144),
            _optional("content_size_in_bytes", "long", 145),
        ]
    return {
        "type": "record",
        "name": "manifest_entry",
        "fields": [
            _field("status", "int", 0),
            _optional("snapshot_id", "long", 1),
            _optional("sequence_number", "long", 3),
            _optional("file_sequence_number", "long", 4),
            _field("data_file", {"type": "record", "name": "r2", "fields": data_file}, 2),
        ],
    }


def manifest_list_schema(format_version: int) -> dict[str, Any]:
    """Return the schema of a manifest list."""
    summary = {
        "type": "record",
        "name": "r508",
        "fields": [
            _field("contains_null", "boolean", 509),
            _optional("contains_nan", "boolean", 518),
            _optional("lower_bound", "bytes", 510),
            _optional("upper_bound", "bytes", 511),
        ],
    }
    fields = [
        _field("manifest_path", "string", 500),
        _field("manifest_length", "long", 501),
        _field("partition_spec_id", "int", 502),
        _field("content", "int", 517),
        _field("sequence_number", "long", 515),
        _field("min_sequence_number", "long", 516),
        _field("added_snapshot_id", "long", 503),
        _field("added_files_count", "int", 504),
        _field("existing_files_count", "int", 505),
        _field("deleted_files_count", "int", 506),
        _field("added_rows_count", "long", 512),
        _field("existing_rows_count", "long", 513),
        _field("deleted_rows_count", "long", 514),
        _optional("partitions", {"type": "array", "items": summary, "element-id": 508}, 507),
    ]
    if format_version >= V3:
        fields.append(_optional("first_row_id", "long", 520))
    return {"type": "record", "name": "manifest_file", "fields": fields}
