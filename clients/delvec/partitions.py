"""What partitions a table has, as its log tells."""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from delvec.protocol import partition_values
from delvec.protocol.types import DataType
from delvec.scan import Scan

__all__ = ["partitions"]


def partitions(scan: Scan) -> list[dict[str, Any]]:
    """Return values, files, live rows and bytes of each partition that has files in the scan, in order of values.

    Without partition columns there is one, unless the scan has no file. Numbers of rows are None where a file has
    none in its statistics.
    """
    mapped = scan.configuration.get("delta.columnMapping.mode", "none").lower() != "none"
    fields = [scan.schema.field(name) for name in scan.partition_columns]
    values = scan.files["partition_values"].combine_chunks()
    typed = [_values(values, item.physical_name if mapped else item.name, item.type) for item in fields]
    vectors = scan.files["deletion_vector"].combine_chunks()
    gone = pc.fill_null(pc.struct_field(vectors, "cardinality"), 0)
    keys = [f"p{number}" for number in range(len(fields))]
    facts = {
        **dict(zip(keys, typed, strict=True)),
        "rows": pc.subtract(scan.files["num_records"], gone),
        "size": scan.files["size"],
    }
    # One number that is not known makes the sum not known.
    whole = pc.ScalarAggregateOptions(skip_nulls=False)
    sums = [("size", "count"), ("rows", "sum", whole), ("size", "sum")]
    grouped = pa.table(facts).group_by(keys).aggregate(sums)
    if keys:
        grouped = grouped.sort_by([(key, "ascending") for key in keys])
    return [
        {
            "values": {item.name: row[key] for item, key in zip(fields, keys, strict=True)},
            "numFiles": row["size_count"],
            "numRows": row["rows_sum"],
            "sizeInBytes": row["size_sum"],
        }
        for row in grouped.to_pylist()
        if row["size_count"]
    ]


def _values(values: pa.Array, key: str, kind: DataType) -> pa.Array:
    text = pc.map_lookup(values, pa.scalar(key, values.type.key_type), "last").cast(pa.string())
    return partition_values.parse_column(text, kind)
