"""Partition specs of Delta tables, which use identity transforms, and partition values in Avro's types.

Values are as stored in manifests (days, microseconds, unscaled bytes of decimals), since Python's dates end in year 9999.

Tested in `tests/integration/service/iceberg/test_conversion.py`.
"""

import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from delvec_errors import IcebergUnsupported
from delvec_iceberg.schema import IcebergSchema
from delvec_kernel.schema.partition_values import parse_column
from delvec_kernel.schema.types import DataType, DecimalType, PrimitiveType, StructType

__all__ = [
    "FIRST_FIELD_ID",
    "PartitionField",
    "PartitionSpec",
    "avro_type",
    "decimal_of",
    "in_fewest_bytes",
    "partition_spec",
    "partition_tuples",
    "single_value",
    "unscaled",
]

FIRST_FIELD_ID: Final = 1000
_EXACT: Final = Context(prec=100)
_FORMATS: Final[Mapping[str, str]] = {
    "int": "<i",
    "date": "<i",
    "long": "<q",
    "timestamp": "<q",
    "timestamptz": "<q",
    "float": "<f",
    "double": "<d",
}


@dataclass(frozen=True)
class PartitionField:
    """A partition column.

    Attributes:
        source_id: the column's field id.
        field_id: the field id of the partition field, from 1000 on.
        type: the column's Iceberg type.
    """

    name: str
    source_id: int
    field_id: int
    type: str

    def to_json(self) -> dict[str, Any]:
        """Return the partition field's JSON object."""
        return {
            "name": self.name,
            "transform": "identity",
            "source-id": self.source_id,
            "field-id": self.field_id,
        }

    @property
    def avro_name(self) -> str:
        """The field's name in manifests: Avro allows letters, digits and underscores."""
        text = "".join(
            letter if re.fullmatch(r"[A-Za-z0-9_]", letter) else f"_x{ord(letter):X}" for letter in self.name
        )
        return f"_{text}" if text[0].isdigit() else text


@dataclass(frozen=True)
class PartitionSpec:
    """A partition spec, without fields if the table is unpartitioned."""

    spec_id: int
    fields: tuple[PartitionField, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the spec's JSON object."""
        return {"spec-id": self.spec_id, "fields": [item.to_json() for item in self.fields]}

    @classmethod
    def from_json(cls, document: Mapping[str, Any], types: Mapping[int, Any]) -> "PartitionSpec":
        """Parse a spec; ``types`` are the columns' types by field id."""
        return cls(
            int(document["spec-id"]),
            tuple(
                PartitionField(
                    str(item["name"]),
                    int(item["source-id"]),
                    int(item["field-id"]),
                    str(types[int(item["source-id"])]),
                )
                for item in document["fields"]
            ),
        )


def partition_spec(
    schema: IcebergSchema,
    columns: Sequence[str],
    earlier: Sequence[Mapping[str, Any]] = (),
    last_partition_id: int = FIRST_FIELD_ID - 1,
) -> PartitionSpec:
    """Return the spec of a table partitioned by these columns, reusing an equal earlier spec.

    Args:
        schema: the schema of the table.
        columns: names of the partition columns, in order.
        earlier: existing specs of the table.
        last_partition_id: the highest partition field id ever assigned.
    """
    by_id = {int(item["id"]): item for item in schema.fields}
    sources = [schema.id_of(name) for name in columns]
    for document in earlier:
        if [int(item["source-id"]) for item in document["fields"]] == sources:
            types = {source: by_id[source]["type"] for source in sources}
            return PartitionSpec.from_json(document, types)
    ids_by_source = {
        int(item["source-id"]): int(item["field-id"]) for one in earlier for item in one["fields"]
    }
    fields = []
    for source in sources:
        if source not in ids_by_source:
            last_partition_id += 1
            ids_by_source[source] = last_partition_id
        item = by_id[source]
        fields.append(PartitionField(item["name"], source, ids_by_source[source], str(item["type"])))
    spec_id = max((int(one["spec-id"]) for one in earlier), default=-1) + 1
    return PartitionSpec(spec_id, tuple(fields))


def avro_type(kind: str) -> Any:
    """Return the Avro type of a partition value.

    Raises:
        IcebergUnsupported: Delta does not partition by this type.
    """
    match kind:
        case "boolean" | "int" | "long" | "float" | "double" | "string":
            return kind
        case "binary":
            return "bytes"
        case "date":
            return {"type": "int", "logicalType": "date"}
        case "timestamp" | "timestamptz":
            zoned = kind == "timestamptz"
            return {"type": "long", "logicalType": "timestamp-micros", "adjust-to-utc": zoned}
    if kind.startswith("decimal("):
        precision, scale = (int(part) for part in kind[len("decimal(") : -1].split(","))
        return {
            "type": "fixed",
            "name": f"decimal_{precision}_{scale}",
            "size": _decimal_bytes(precision),
            "logicalType": "decimal",
            "precision": precision,
            "scale": scale,
        }
    raise IcebergUnsupported(
        f"Iceberg tables cannot be partitioned by values of type {kind}.", data_type=kind
    )


def _decimal_bytes(precision: int) -> int:
    """Return the minimum number of bytes for a signed number with this many digits."""
    return ((10**precision).bit_length() + 8) // 8 if precision else 1


def partition_tuples(
    values: pa.Array, schema: StructType, columns: Sequence[str], spec: PartitionSpec
) -> list[dict[str, Any]]:
    """Return the partition tuple of each file, keyed by field name in manifests.

    Args:
        values: ``partition_values`` of the files, by physical name.
        schema: the schema of the table.
        columns: names of the partition columns, in the order of the spec's fields.
        spec: the partition spec.

    Raises:
        CorruptLog: a value cannot be parsed as its column's type.
    """
    column_values: list[list[Any]] = []
    for name, item in zip(columns, spec.fields, strict=True):
        field = schema.field(name)
        texts = pc.map_lookup(values, pa.scalar(field.physical_name), "first").dictionary_encode()
        parsed = _plain(parse_column(texts.dictionary.cast(pa.string()), field.type), field.type, item.type)
        distinct = [*parsed, None]
        column_values.append([distinct[-1 if at is None else at] for at in texts.indices.to_pylist()])
    names = [item.avro_name for item in spec.fields]
    if not names:
        return [{} for _ in range(len(values))]
    return [dict(zip(names, row, strict=True)) for row in zip(*column_values, strict=True)]


def _plain(values: pa.Array, kind: DataType, iceberg: str) -> list[Any]:
    name = kind.name if isinstance(kind, PrimitiveType) else ""
    if isinstance(kind, DecimalType):
        size = _decimal_bytes(kind.precision)
        numbers = [None if value is None else unscaled(value, kind.scale) for value in values.to_pylist()]
        return [None if number is None else number.to_bytes(size, "big", signed=True) for number in numbers]
    if name == "date":
        return list(values.cast(pa.int32()).to_pylist())
    if name in {"timestamp", "timestamp_ntz"}:
        return list(values.cast(pa.int64()).to_pylist())
    if iceberg == "binary":
        return list(values.cast(pa.binary()).to_pylist())
    return list(values.to_pylist())


def unscaled(value: Decimal, scale: int) -> int:
    """Return the unscaled integer of a decimal: ``value`` times ten to the power of ``scale``."""
    return int(value.scaleb(scale, _EXACT))


def decimal_of(data: bytes, scale: int) -> Decimal:
    """Return the decimal of an unscaled integer in two's complement, big-endian, with any number of digits."""
    # Via text: decimal arithmetic would round to 28 digits.
    return Decimal(f"{int.from_bytes(data, 'big', signed=True)}e-{scale}")


def in_fewest_bytes(number: int) -> bytes:
    """Return an integer in minimal two's complement, big-endian, as in Iceberg's single-value serialization of decimals."""
    size = ((number if number >= 0 else ~number).bit_length() + 8) // 8
    return number.to_bytes(size, "big", signed=True)


def single_value(value: Any, kind: str) -> bytes:
    """Return a partition value in Iceberg's binary single-value serialization, used for bounds."""
    if kind == "boolean":
        return b"\x01" if value else b"\x00"
    if kind in _FORMATS:
        return struct.pack(_FORMATS[kind], value)
    if kind == "string":
        return str(value).encode()
    return (
        in_fewest_bytes(int.from_bytes(value, "big", signed=True))
        if kind.startswith("decimal(")
        else bytes(value)
    )
