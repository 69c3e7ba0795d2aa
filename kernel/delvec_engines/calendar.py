"""Dates and timestamps in Spark 2's hybrid Julian calendar, which DuckDB does not rebase.

Spark 2 wrote days in the hybrid calendar (Julian before 1582-10-15) and shifted timestamps before 1900
by its own time zone tables; later versions do so in LEGACY mode and record it in the footer. DuckDB reads these
values unchanged, days off. They are rare, so footers are only read once such an early value is seen.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from delvec_kernel.expressions.expression_kinds import TEMPORAL_TYPES
from delvec_kernel.schema.types import DataType, PrimitiveType, leaves

__all__ = ["holds_times", "is_legacy", "may_ask_for_early", "shows_early"]

_FIRST_DAY: Final = -141_427
"""1582-10-15."""
_FIRST_MICROSECOND: Final = -2_208_988_800_000_000
"""1900-01-01."""
_EARLY_YEAR: Final = re.compile(r"(?<![\d.:-])(?:1[0-8]\d\d|0\d\d\d|[5-9]\d\d)(?![\d.:])|'-\d")
_VERSION: Final = re.compile(r"(\d+)\.(\d+)")
_FIRST_RIGHT: Final = (3, 1)


def shows_early(batch: pa.RecordBatch | pa.Table) -> bool:
    """Whether a date before 1582-10-15 or a timestamp before 1900 is among the rows."""
    return any(_is_early(column) for column in batch.columns)


def _is_early(column: pa.Array | pa.ChunkedArray) -> bool:
    kind = column.type
    if not _has_times(kind):
        return False
    if pa.types.is_date32(kind):
        return _below(column.cast(pa.int32()), _FIRST_DAY)
    if pa.types.is_timestamp(kind):
        return _below(column.cast(pa.timestamp("us", kind.tz)).cast(pa.int64()), _FIRST_MICROSECOND)
    return any(_is_early(inner) for chunk in _chunks(column) for inner in _inside(chunk))


def _chunks(column: pa.Array | pa.ChunkedArray) -> list[pa.Array]:
    return column.chunks if isinstance(column, pa.ChunkedArray) else [column]


def _inside(column: pa.Array) -> list[pa.Array]:
    if pa.types.is_struct(column.type):
        return list(column.flatten())
    if pa.types.is_map(column.type):
        return [column.keys, column.items]
    return [column.flatten()]


def _below(numbers: pa.Array | pa.ChunkedArray, limit: int) -> bool:
    least = pc.min(numbers).as_py()
    return least is not None and least < limit


def _has_times(kind: pa.DataType) -> bool:
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return True
    return any(_has_times(kind.field(number).type) for number in range(kind.num_fields))


def may_ask_for_early(text: str, kinds: Iterable[DataType]) -> bool:
    """Whether the result of an expression may depend on early times: it has time columns and a year before 1900."""
    if not _EARLY_YEAR.search(text):
        return False
    return any(holds_times(kind) for kind in kinds)


def holds_times(kind: DataType) -> bool:
    """Whether values of this type are, or hold, dates or timestamps."""
    return any(isinstance(leaf, PrimitiveType) and leaf.name in TEMPORAL_TYPES for leaf in leaves(kind))


def is_legacy(footer: Mapping[str, str]) -> bool:
    """Whether a footer's key-value metadata says that early times are in Spark 2's calendar."""
    if "org.apache.spark.legacyDateTime" in footer or "org.apache.spark.legacyINT96" in footer:
        return True
    version = _VERSION.match(footer.get("org.apache.spark.version", ""))
    return version is not None and (int(version[1]), int(version[2])) < _FIRST_RIGHT
