"""Column bounds parsed once per segment, and their summaries: the bounds of a whole segment."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from delvec_errors import CorruptLog
from delvec_kernel.expressions.expression_kinds import INTEGER_TYPES
from delvec_kernel.file_index.segment import Bound, Chosen, Segment, SegmentSource, Summary, load_parts
from delvec_kernel.file_index.segment_parts import FILES, PARTITIONS, STATS, decoded, encoded_batch
from delvec_kernel.schema.types import DataType, DecimalType, PrimitiveType, StructType
from delvec_kernel.statistics.bounds import (
    Bounds,
    Mask,
    Path,
    column_name,
    leaf_type,
    parsed_bounds,
    partition_bounds,
)
from delvec_kernel.statistics.outer_bounds import bound_type
from delvec_kernel.statistics.typed_statistics import STATS_PARSED, typed_bounds

__all__ = [
    "KnownColumn",
    "bounds_at",
    "keep_bounds",
    "keep_typed",
    "known_columns",
    "least_and_greatest",
    "segment_bounds",
    "summarized",
    "summary_bounds",
]

_BOUNDS_VERSION: Final = 3
"""Increment when bounds are computed differently, which invalidates those in a store."""
_AT_ONCE: Final = 8
_MAX_LENGTH: Final = 64
_LAST_CHARACTER: Final = "\U0010ffff"


@dataclass(frozen=True)
class KnownColumn:
    """A column or struct field of a predicate, resolved to partition values or statistics.

    Attributes:
        path: as the predicate spells it.
        names: physical names.
        is_partition: whether its values are partition values in the log.
    """

    path: Path
    names: Path
    data_type: DataType
    is_partition: bool

    @cached_property
    def key(self) -> str:
        """Cache key of the bounds; differs by physical column and by type."""
        facts = (_BOUNDS_VERSION, self.is_partition, self.names, _type_name(self.data_type))
        return xxhash.xxh3_128_hexdigest(repr(facts))

    @property
    def part(self) -> str:
        """The name of its segment part."""
        return f"bounds/{self.key}"


def known_columns(
    paths: Iterable[Path], schema: StructType, partition_columns: Sequence[str]
) -> list[KnownColumn]:
    """Resolve columns against the schema; partition columns are given by logical name."""
    partitioned = {name.lower() for name in partition_columns}
    return [
        KnownColumn(path, column_name(path, schema), leaf_type(path, schema), path[0].lower() in partitioned)
        for path in paths
    ]


def _type_name(data_type: DataType) -> str:
    if isinstance(data_type, DecimalType):
        return f"decimal({data_type.precision},{data_type.scale})"
    return data_type.name if isinstance(data_type, PrimitiveType) else "nested"


# --- bounds of files ----------------------------------------------------------------------------------------


def segment_bounds(
    segments: Sequence[Segment], columns: Sequence[KnownColumn]
) -> dict[str, list[pa.RecordBatch]]:
    """Return the bounds from statistics, by column key, one batch per segment.

    Returns:
        Batches of ``nullable``, ``low`` and ``high`` (if the type has bounds), and ``only_null`` and ``exact`` (if true for
        any file). The masks are 0 or 1, but for ``exact``, which is Boolean.

    Raises:
        SegmentsLost: the store has lost a segment's statistics.
    """
    batches_by_column = {column.key: _stored_parts(segments, column.part) for column in columns}
    for start in range(0, len(segments), _AT_ONCE):
        group = [
            (segment, missing)
            for segment in segments[start : start + _AT_ONCE]
            if (missing := [column for column in columns if segment.id not in batches_by_column[column.key]])
        ]
        for segment, column, batch in _parsed(group):
            batches_by_column[column.key][segment.id] = batch
    if len(segments) > _AT_ONCE:
        # The memory for parsing JSON is not needed again soon.
        pa.default_memory_pool().release_unused()
    return {key: [batches[segment.id] for segment in segments] for key, batches in batches_by_column.items()}


def _stored_parts(segments: Sequence[Segment], part: str) -> dict[str, pa.RecordBatch]:
    """Return the part of each segment that has it in memory or in the store, by segment id."""
    parts_by_segment: dict[str, pa.RecordBatch] = {}
    stores: dict[int, tuple[SegmentSource, list[str]]] = {}
    blobs: dict[str, bytes] = {}
    for segment in segments:
        batch = segment.decoded(part)
        blob = segment.blob(part)
        if batch is not None:
            parts_by_segment[segment.id] = batch
        elif blob is not None:
            blobs[segment.id] = blob
        elif segment.source is not None:
            stores.setdefault(id(segment.source), (segment.source, []))[1].append(segment.id)
    for source, ids in stores.values():
        blobs.update(source.optional_blobs(ids, part))
    for segment in segments:
        if segment.id in blobs:
            batch, nbytes = decoded(part, blobs[segment.id])
            segment.keep_decoded(part, batch, nbytes)
            parts_by_segment[segment.id] = batch
    return parts_by_segment


def _parsed(
    group: Sequence[tuple[Segment, Sequence[KnownColumn]]],
) -> list[tuple[Segment, KnownColumn, pa.RecordBatch]]:
    """Parse the statistics of a few segments."""
    if not group:
        return []
    segments = [segment for segment, _ in group]
    texts, files = (load_parts(segments, part, keep=False) for part in (STATS, FILES))

    def parse(place: int) -> list[tuple[Segment, KnownColumn, pa.RecordBatch]]:
        segment, columns = group[place]
        return _read(segment, columns, texts[place], files[place])

    return [each for found in segments[0].engine.parallel(parse, range(len(group))) for each in found]


def _read(
    segment: Segment, columns: Sequence[KnownColumn], texts: pa.RecordBatch, files: pa.RecordBatch
) -> list[tuple[Segment, KnownColumn, pa.RecordBatch]]:
    counted = "num_records" in files.schema.names
    num_records = files.column("num_records") if counted else pa.nulls(segment.num_rows, pa.int64())
    bounds = parsed_bounds(
        texts.column("stats"), num_records, {column.names: column.data_type for column in columns}
    )
    bound_batches = []
    for column in columns:
        # Keep the decoded copy: the arrays from the JSON reader hold on to larger buffers.
        batch, nbytes = decoded(column.part, keep_bounds(segment, column, bounds[column.names]))
        segment.keep_decoded(column.part, batch, nbytes)
        bound_batches.append((segment, column, batch))
    return bound_batches


def keep_typed(segment: Segment, batch: pa.RecordBatch) -> None:
    """Store the bounds from a checkpoint's typed columns; the segment was built from ``batch``."""
    if STATS_PARSED not in batch.schema.names:
        return
    columns = (batch.column(name) for name in (STATS_PARSED, "stats", "num_records"))
    for names, (data_type, bounds) in typed_bounds(*columns).items():
        keep_bounds(segment, KnownColumn(names, names, data_type, is_partition=False), bounds)


def keep_bounds(segment: Segment, column: KnownColumn, bounds: Bounds) -> bytes:
    """Store a column's bounds and their summary; return the bounds as a blob."""
    blob = encoded_batch(_batch(bounds))
    segment.keep_blob(column.part, blob, new=True)
    segment.keep_summary(column.key, summarized(bounds), new=True)
    return blob


def _batch(bounds: Bounds) -> pa.RecordBatch:
    # Bytes, not bits, become a mask without a copy. Few columns have a file with only nulls.
    columns = {
        "nullable": pa.array(bounds.nullable.view(np.uint8)),
        "low": bounds.low,
        "high": bounds.high,
        "only_null": pa.array(bounds.only_null.view(np.uint8)) if bounds.only_null.any() else None,
        "exact": bounds.exact if bounds.exact is not None and pc.any(bounds.exact).as_py() else None,
    }
    return pa.RecordBatch.from_pydict({name: each for name, each in columns.items() if each is not None})


def bounds_at(batches: Sequence[pa.RecordBatch], rows: Sequence[npt.NDArray[Any] | None]) -> Bounds:
    """Concatenate bounds of several segments: the given rows of each batch, or all rows for None."""
    low, high, exact = (_joined(batches, rows, name) for name in ("low", "high", "exact"))
    return Bounds(low, high, _mask(batches, rows, "nullable"), _mask(batches, rows, "only_null"), exact)


def _joined(
    batches: Sequence[pa.RecordBatch], rows: Sequence[npt.NDArray[Any] | None], name: str
) -> pa.Array | None:
    if any(name not in batch.schema.names for batch in batches):
        return None
    columns = [batch.column(name) for batch in batches]
    taken = [
        column if each is None else column.take(pa.array(each))
        for column, each in zip(columns, rows, strict=True)
    ]
    return pa.concat_arrays(taken)


def _mask(batches: Sequence[pa.RecordBatch], rows: Sequence[npt.NDArray[Any] | None], name: str) -> Mask:
    masks = [
        batch.column(name).to_numpy().view(np.bool_)
        if name in batch.schema.names
        else np.zeros(batch.num_rows, np.bool_)
        for batch in batches
    ]
    return np.concatenate(
        [mask if each is None else mask[each] for mask, each in zip(masks, rows, strict=True)]
    )


# --- minimum and maximum -----------------------------------------------------------------------------------


def least_and_greatest(
    selection: Sequence[Chosen], column: KnownColumn
) -> tuple[int | None, int | None] | None:
    """Return the minimum and maximum of a column over some files, from statistics alone.

    Args:
        selection: the files. None may have a deletion vector: statistics also count deleted rows.
        column: not a partition column.

    Returns:
        None if the bounds of a file are not exact (:mod:`~delvec_kernel.statistics.outer_bounds`), or the column is neither of
        integers nor of dates; (None, None) if all values are null. Dates are days since the epoch.

    Raises:
        SegmentsLost: the store has lost a segment's statistics.
    """
    kind = column.data_type.name if isinstance(column.data_type, PrimitiveType) else ""
    if column.is_partition or (kind not in INTEGER_TYPES and kind != "date"):
        return None
    segments = [segment for segment, _ in selection]
    lows, highs = [], []
    for batch, (_, rows) in zip(segment_bounds(segments, [column])[column.key], selection, strict=True):
        bounds = bounds_at([batch], [rows])
        has_value = pa.array(~bounds.only_null)
        if not pc.any(has_value).as_py():
            continue
        if bounds.exact is None or not pc.all(bounds.exact.filter(has_value)).as_py():
            return None
        assert bounds.low is not None  # noqa: S101 - nothing is exact otherwise
        assert bounds.high is not None  # noqa: S101
        low, high = bounds.low.filter(has_value), bounds.high.filter(has_value)
        lows.append(pc.min(low).as_py())
        highs.append(pc.max(high).as_py())
    return min(lows, default=None), max(highs, default=None)


# --- bounds of segments -------------------------------------------------------------------------------------


def summary_bounds(segments: Sequence[Segment], columns: Sequence[KnownColumn]) -> dict[Path, Bounds]:
    """Return bounds by column with one entry per segment, unknown where a segment has no summary.

    Raises:
        SegmentsLost: the store has lost a segment's partition values.
    """
    column_bounds = {}
    for column in columns:
        summaries = _summaries(segments, column)
        segment_summaries = [summaries.get(segment.id) for segment in segments]
        kind = bound_type(column.data_type)
        column_bounds[column.path] = Bounds(
            None if kind is None else pa.array([each and each.low for each in segment_summaries], kind),
            None if kind is None else pa.array([each and each.high for each in segment_summaries], kind),
            np.array([each is None or each.nullable for each in segment_summaries], np.bool_),
            np.array([each is not None and each.only_null for each in segment_summaries], np.bool_),
        )
    return column_bounds


def _summaries(segments: Sequence[Segment], column: KnownColumn) -> dict[str, Summary]:
    summaries: dict[str, Summary] = {}
    missing: list[Segment] = []
    for segment in segments:
        summary = segment.summary(column.key)
        if summary is None:
            missing.append(segment)
        else:
            summaries[segment.id] = summary
    stores = {id(each.source): each.source for each in missing if each.source is not None}
    for source in stores.values():
        ids = [segment.id for segment in missing if segment.source is source]
        stored = source.summaries(ids, column.key)
        for segment in missing:
            if segment.id in stored:
                summaries[segment.id] = stored[segment.id]
                segment.keep_summary(column.key, stored[segment.id], new=False)
    if column.is_partition:
        left = [segment for segment in missing if segment.id not in summaries]
        for segment, values in zip(left, load_parts(left, PARTITIONS), strict=True):
            try:
                bounds = partition_bounds(values.distinct, column.names[0], column.data_type)
            except CorruptLog:
                continue  # A dead file may have the invalid value; if a live one does, reading its partition value raises.
            summaries[segment.id] = summarized(bounds)
            segment.keep_summary(column.key, summaries[segment.id], new=True)
    return summaries


def summarized(bounds: Bounds) -> Summary:
    """Return the overall bounds of all files."""
    valued = pa.array(~bounds.only_null)
    return Summary(
        _outer(_extreme(bounds.low, valued, pc.min), upper=False),
        _outer(_extreme(bounds.high, valued, pc.max), upper=True),
        bool(bounds.nullable.any()),
        bool(bounds.only_null.all()),
    )


def _extreme(values: Any, valued: pa.Array, of: Any) -> Any:
    values = None if values is None else values.filter(valued)
    return None if values is None or values.null_count or not len(values) else of(values).as_py()


def _outer(value: Any, *, upper: bool) -> Bound:
    """Return a bound that databases can store, widened if necessary."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if not isinstance(value, str):
        return value if isinstance(value, int | Decimal) else None
    cut = value[:_MAX_LENGTH].partition("\0")[0]
    if len(cut) == len(value) or not upper:
        return cut
    following = value[len(cut)]
    if following == "\0":
        return cut + "\1"
    return None if following == _LAST_CHARACTER else cut + _LAST_CHARACTER
