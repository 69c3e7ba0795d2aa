"""Live files as Arrow: one row per active ``add`` action (PROTOCOL.md, "Add File and Remove File").

Tested in `tests/unit/kernel/file_index/test_live_files.py`.
"""

import json
import re
from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from delvec_kernel.actions.actions import AddFile
from delvec_kernel.deletion_vectors.deletion_vector import Descriptor

__all__ = [
    "DELETION_VECTOR",
    "FILES_SCHEMA",
    "TEXT_MAP",
    "add_from_row",
    "batch_from_adds",
    "num_records_from_stats",
    "records_in",
    "table_from_adds",
]

TEXT_MAP: Final = pa.map_(pa.string(), pa.string())
DELETION_VECTOR: Final = pa.struct(
    [
        ("storageType", pa.string()),
        ("pathOrInlineDv", pa.string()),
        ("offset", pa.int32()),
        ("sizeInBytes", pa.int32()),
        ("cardinality", pa.int64()),
    ]
)

FILES_SCHEMA: Final = pa.schema(
    [
        ("path", pa.string()),
        ("partition_values", TEXT_MAP),
        ("size", pa.int64()),
        ("modification_time", pa.int64()),
        ("stats", pa.string()),
        ("num_records", pa.int64()),
        ("deletion_vector", DELETION_VECTOR),
        ("tags", TEXT_MAP),
        ("base_row_id", pa.int64()),
        ("default_row_commit_version", pa.int64()),
        ("clustering_provider", pa.string()),
    ]
)
"""``path`` as in the log; ``partition_values`` serialized, by physical name; ``size`` in bytes; ``modification_time``
in milliseconds since the epoch; ``stats`` as JSON text; ``num_records`` the physical rows, deleted ones included, or
null where the statistics do not say; ``deletion_vector`` null where there is none."""

_NUM_RECORDS: Final = r'^\s*\{\s*"numRecords"\s*:\s*(?P<found>[0-9]{1,18})\s*[,}]'
_FIRST_NUM_RECORDS: Final = re.compile(_NUM_RECORDS, re.ASCII)
_INT64: Final = 2**63


def batch_from_adds(adds: Sequence[AddFile]) -> pa.RecordBatch:
    """Return adds as rows of FILES_SCHEMA, in order."""
    stats = pa.array([add.stats for add in adds], pa.string())
    columns = [
        pa.array([add.path for add in adds], pa.string()),
        pa.array([list(add.partition_values.items()) for add in adds], TEXT_MAP),
        pa.array([add.size for add in adds], pa.int64()),
        pa.array([add.modification_time for add in adds], pa.int64()),
        stats,
        num_records_from_stats(stats),
        pa.array([add.deletion_vector and add.deletion_vector.to_json() for add in adds], DELETION_VECTOR),
        pa.array([None if add.tags is None else list(add.tags.items()) for add in adds], TEXT_MAP),
        pa.array([add.base_row_id for add in adds], pa.int64()),
        pa.array([add.default_row_commit_version for add in adds], pa.int64()),
        pa.array([add.clustering_provider for add in adds], pa.string()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=FILES_SCHEMA)


def table_from_adds(adds: Sequence[AddFile]) -> pa.Table:
    """Return adds as a table of FILES_SCHEMA, in order."""
    return pa.Table.from_batches([batch_from_adds(adds)], FILES_SCHEMA)


def add_from_row(row: dict[str, Any]) -> AddFile:
    """Return a row of FILES_SCHEMA, from Arrow's ``to_pylist``, as an ``add`` action."""
    dv, tags = row["deletion_vector"], row["tags"]
    return AddFile(
        path=row["path"],
        partition_values=dict(row["partition_values"] or ()),
        size=row["size"],
        modification_time=row["modification_time"],
        stats=row["stats"],
        tags=None if tags is None else dict(tags),
        deletion_vector=None if dv is None else Descriptor.from_json(dv),
        base_row_id=row["base_row_id"],
        default_row_commit_version=row["default_row_commit_version"],
        clustering_provider=row["clustering_provider"],
    )


def num_records_from_stats(stats: pa.Array) -> pa.Array:
    """Return ``numRecords`` of each statistics document, null where it is missing or invalid."""
    # Nearly every writer puts it first, where a regular expression finds it without parsing.
    found = pc.struct_field(pc.extract_regex(stats, _NUM_RECORDS), "found").cast(pa.int64())
    elsewhere = pc.and_(pc.is_valid(stats), pc.is_null(found))
    if not pc.any(elsewhere).as_py():
        return found
    rest = pa.array([_num_records(text) for text in stats.filter(elsewhere).to_pylist()], pa.int64())
    return pc.replace_with_mask(found, elsewhere, rest)


def records_in(stats: str | None) -> int | None:
    """Return ``numRecords`` of one statistics document. See :func:`num_records_from_stats`."""
    if stats is None:
        return None
    found = _FIRST_NUM_RECORDS.match(stats)
    return int(found["found"]) if found else _num_records(stats)


def _num_records(stats: str) -> int | None:
    try:
        document = json.loads(stats)
    except (ValueError, RecursionError):
        return None
    count = document.get("numRecords") if isinstance(document, dict) else None
    usable = isinstance(count, int) and not isinstance(count, bool) and 0 <= count < _INT64
    return count if usable else None
