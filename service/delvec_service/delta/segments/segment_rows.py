"""Rows of segments as Arrow, FILES_SCHEMA or some of its columns, a few segments at a time."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

import pyarrow as pa

from delvec_service.delta.segments.files import FILES_SCHEMA
from delvec_service.delta.segments.segment import Segment, load_parts
from delvec_service.delta.segments.segment_parts import PART_OF, PARTITIONS, Rows

__all__ = ["Chosen", "rows_of"]

Chosen: TypeAlias = tuple[Segment, Rows | None]
"""Rows of a segment; None is all of them."""

_AT_ONCE: Final = 16


def rows_of(
    chosen: Sequence[Chosen], columns: Sequence[str] = tuple(FILES_SCHEMA.names), *, keep: bool = True
) -> Iterator[pa.RecordBatch]:
    """Yield one batch per segment, in order.

    Args:
        chosen: the rows.
        columns: names of FILES_SCHEMA.
        keep: whether the segments are likely to be asked for again (:func:`~delvec_service.delta.segments.segment.load_parts`).

    Raises:
        SegmentsLost: a store does not have a part of them any more.
    """
    schema = pa.schema([FILES_SCHEMA.field(name) for name in columns])
    needed = sorted({PART_OF[name] for name in columns})
    for start in range(0, len(chosen), _AT_ONCE):
        group = chosen[start : start + _AT_ONCE]
        loaded = [load_parts([segment for segment, _ in group], part, keep=keep) for part in needed]
        for place, (segment, rows) in enumerate(group):
            parts = {name: values[place] for name, values in zip(needed, loaded, strict=True)}
            count = segment.num_rows if rows is None else len(rows)
            arrays = [_column(parts, name, rows, count) for name in columns]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _column(parts: Mapping[str, Any], name: str, rows: Rows | None, count: int) -> pa.Array:
    part = parts[PART_OF[name]]
    if PART_OF[name] == PARTITIONS:
        return part.rows(rows)
    if name not in part.schema.names:
        return pa.nulls(count, FILES_SCHEMA.field(name).type)
    return part.column(name) if rows is None else part.column(name).take(pa.array(rows))
