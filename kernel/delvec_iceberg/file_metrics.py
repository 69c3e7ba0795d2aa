"""Metrics of data files from Delta statistics: value counts, null counts and bounds, keyed by field id.

Metrics that the statistics cannot support are omitted, as Iceberg allows. Bounds are outer bounds already
(:mod:`delvec_kernel.statistics.bounds`).

Tested in `tests/integration/service/iceberg/test_conversion.py`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from delvec_iceberg.partitions import in_fewest_bytes, unscaled
from delvec_iceberg.schema import Leaf
from delvec_kernel.schema.types import DataType, DecimalType, PrimitiveType
from delvec_kernel.statistics.bounds import Bounds, parsed_bounds

__all__ = ["Metrics", "column_metrics"]

_Entry: TypeAlias = dict[str, Any]

_LITTLE_ENDIAN_FORMATS: Final = {
    "byte": "<i4",
    "short": "<i4",
    "integer": "<i4",
    "long": "<i8",
    "date": "<i4",
    "timestamp": "<i8",
    "timestamp_ntz": "<i8",
    "float": "<f4",
    "double": "<f8",
}


@dataclass(frozen=True)
class Metrics:
    """Metrics of one file: lists of ``key`` and ``value`` pairs, as manifests represent integer-keyed maps."""

    value_counts: list[_Entry]
    null_value_counts: list[_Entry]
    lower_bounds: list[_Entry]
    upper_bounds: list[_Entry]


def column_metrics(stats: pa.Array, num_records: pa.Array, leaves: Sequence[Leaf]) -> list[Metrics]:
    """Return the metrics of files, in order.

    Args:
        stats: Delta's statistics as JSON text, or null.
        num_records: physical rows of each file, or null.
        leaves: the columns that may have statistics.
    """
    metrics_by_file = [Metrics([], [], [], []) for _ in range(len(stats))]
    if not leaves or stats.null_count == len(stats):
        return metrics_by_file
    bounds = parsed_bounds(stats, num_records, {leaf.path: leaf.type for leaf in leaves})
    counts = num_records.to_pylist()
    for leaf in leaves:
        of_leaf = bounds[leaf.path]
        _add_counts(metrics_by_file, leaf.field_id, of_leaf, counts)
        for side, low in (("lower_bounds", True), ("upper_bounds", False)):
            values = of_leaf.low if low else of_leaf.high
            if not isinstance(values, pa.Array) or values.null_count == len(values):
                continue
            for metrics, value in zip(
                metrics_by_file, _encoded(values, leaf.type, upper=not low), strict=True
            ):
                if value is not None:
                    getattr(metrics, side).append({"key": leaf.field_id, "value": value})
    return metrics_by_file


def _add_counts(found: list[Metrics], field_id: int, bounds: Bounds, counts: list[int | None]) -> None:
    for metrics, nullable, only_null, count in zip(
        found, bounds.nullable.tolist(), bounds.only_null.tolist(), counts, strict=True
    ):
        if count is not None:
            metrics.value_counts.append({"key": field_id, "value": count})
            # A count other than zero or all may date from before the current deletion vector.
            if not nullable or only_null:
                metrics.null_value_counts.append({"key": field_id, "value": count if only_null else 0})


def _encoded(values: pa.Array, kind: DataType, *, upper: bool) -> Iterable[bytes | None]:
    if isinstance(kind, DecimalType):
        return [
            None if value is None else in_fewest_bytes(unscaled(value, kind.scale))
            for value in values.to_pylist()
        ]
    name = kind.name if isinstance(kind, PrimitiveType) else ""
    if name in _LITTLE_ENDIAN_FORMATS:
        return _numbers(values, _LITTLE_ENDIAN_FORMATS[name], upper=upper)
    if name == "string":
        return [None if value is None else value.encode() for value in values.to_pylist()]
    return [None] * len(values)


def _numbers(values: pa.Array, form: str, *, upper: bool) -> Iterable[bytes | None]:
    valid = pc.is_valid(values).to_numpy(zero_copy_only=False)
    numbers = np.asarray(pc.fill_null(values, 0).to_numpy(zero_copy_only=False))
    kind = np.dtype(form)
    if kind.kind == "i":
        limits = np.iinfo(kind)
        # Ignore bounds out of range of the type.
        valid = valid & (numbers >= limits.min) & (numbers <= limits.max)
    elif not upper:
        # A lower bound of zero must be -0.0, which sorts below 0.0.
        numbers = np.where(numbers == 0, -0.0, numbers)
    with np.errstate(over="ignore", invalid="ignore"):
        data = numbers.astype(kind).tobytes()
    size = kind.itemsize
    return [data[at * size : (at + 1) * size] if there else None for at, there in enumerate(valid.tolist())]
