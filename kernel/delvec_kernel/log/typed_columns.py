"""Statistics and partition values as typed columns of a checkpoint: ``stats_parsed`` and ``partitionValues_parsed``.

PROTOCOL.md, "Checkpoint Schema". They duplicate the text columns so that readers need not parse those. A statistic
that has no exact representation is null, which readers treat as unknown. A partition value cannot be unknown: if one
has no exact representation, the checkpoint omits typed partition values.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from delvec_errors import DelvecError
from delvec_kernel.schema.partition_values import parse_column
from delvec_kernel.schema.types import DataType, DecimalType, PrimitiveType, StructType, arrow_type
from delvec_kernel.statistics.file_statistics import indexed_columns

__all__ = ["TypedPartitionValues", "TypedStatistics"]

_BOUNDED: Final = frozenset(
    ["byte", "short", "integer", "long", "float", "double", "string", "date", "timestamp", "timestamp_ntz"]
)
_TIMES: Final = {
    "date": r"^\d{4}-\d{2}-\d{2}$",
    "timestamp": r"^\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}:\d{2}(?:\.\d{1,6})?(?:Z|[+-]\d{2}:\d{2})$",
    "timestamp_ntz": r"^\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}:\d{2}(?:\.\d{1,6})?$",
}
_OBJECT: Final = r"(?s)^\s*\{.*\}\s*$"
_ZONED: Final = r"(?:Z|[+-]\d{2}:?\d{2})$"
_MAX_BYTES: Final = 32 * 1024 * 1024
_MAX_FAILURES: Final = 64
"""Invalid documents are found by bisection; after this many failures the rest of a batch is left null."""


class TypedStatistics:
    """The struct of ``stats_parsed`` for one schema.

    Args:
        schema: the schema of the table.
        partition_columns: these have no statistics.
        configuration: table properties that select the columns with statistics.
    """

    def __init__(
        self, schema: StructType, partition_columns: Sequence[str], configuration: Mapping[str, str]
    ) -> None:
        leaves = indexed_columns(schema, partition_columns, configuration)
        paths = [(tuple(item.physical_name for item in leaf), leaf[-1].type) for leaf in leaves]
        bounds = [(path, arrow_type(kind)) for path, kind in paths if _bounded(kind)]
        typed = [("numRecords", pa.int64())]
        if bounds:
            typed += [("minValues", _struct(bounds)), ("maxValues", _struct(bounds))]
        if paths:
            typed.append(("nullCount", _struct([(path, pa.int64()) for path, _ in paths])))
        self.type: Final = pa.struct([*typed, ("tightBounds", pa.bool_())])
        self._written = _as_in_json(self.type)

    def parse(self, stats: pa.Array, num_records: pa.Array) -> pa.StructArray:
        """Parse statistics into the struct's type, null where there are none.

        Args:
            stats: JSON text.
            num_records: known ``numRecords``, used where the text cannot be parsed.
        """
        usable = pc.fill_null(pc.match_substring_regex(stats, _OBJECT), fill_value=False)
        if not pc.any(usable).as_py():
            return self._only_counts(num_records)
        texts = stats.filter(usable)
        if pc.any(pc.match_substring(texts, "\n")).as_py():
            texts = pc.replace_substring(
                texts, "\n", " "
            )  # between tokens: JSON strings contain no raw newline
        pieces = self._pieces(texts, [_MAX_FAILURES])
        stats_parsed = _exact(pa.concat_arrays(pieces), self.type)
        if len(stats_parsed) != len(stats):
            places = pc.cumulative_sum(usable.cast(pa.int64()))
            rows = pc.if_else(usable, pc.subtract(places, 1), pa.scalar(None, pa.int64()))
            stats_parsed = stats_parsed.take(rows)
        # Use the row counts from replay, whatever the text says.
        parts = [num_records, *stats_parsed.flatten()[1:]]
        has_stats = pc.or_(pc.is_valid(num_records), pc.is_valid(stats_parsed))
        return pa.StructArray.from_arrays(parts, fields=list(self.type), mask=pc.invert(has_stats))

    def _only_counts(self, num_records: pa.Array) -> pa.StructArray:
        parts = [num_records, *(pa.nulls(len(num_records), field.type) for field in list(self.type)[1:])]
        return pa.StructArray.from_arrays(parts, fields=list(self.type), mask=pc.is_null(num_records))

    def _pieces(self, texts: pa.Array, tries: list[int]) -> list[pa.Array]:
        """Parse documents, bisecting on failure; ``tries`` is a budget shared by all halves."""
        if tries[0] > 0:
            if texts.nbytes <= _MAX_BYTES:
                found = _read(texts, self._written)
                if found is not None:
                    return [found]
                tries[0] -= 1
            if len(texts) > 1:
                half = len(texts) // 2
                return self._pieces(texts.slice(0, half), tries) + self._pieces(texts.slice(half), tries)
        return [pa.nulls(len(texts), self._written)]


class TypedPartitionValues:
    """The struct of ``partitionValues_parsed`` for one table.

    Args:
        schema: the schema of the table.
        partition_columns: names, in order; at least one.
    """

    def __init__(self, schema: StructType, partition_columns: Sequence[str]) -> None:
        self._columns = [
            (schema.field(name).physical_name, schema.field(name).type) for name in partition_columns
        ]
        self.type: Final = pa.struct([(name, arrow_type(kind)) for name, kind in self._columns])

    def parse(self, values: pa.MapArray) -> pa.StructArray | None:
        """Return partition values in the struct's type; None if one has no exact representation."""
        columns = []
        for name, kind in self._columns:
            texts = pc.map_lookup(values, pa.scalar(name), "first").dictionary_encode()
            column = _partition_column(texts.dictionary.cast(pa.string()), kind)
            if column is None:
                return None
            columns.append(column.take(texts.indices))
        return pa.StructArray.from_arrays(columns, fields=list(self.type))


def _partition_column(texts: pa.Array, kind: DataType) -> pa.Array | None:
    name = kind.name if isinstance(kind, PrimitiveType) else ""
    if name in ("binary", "void"):
        return None  # not all text was valid UTF-8
    if name == "timestamp":
        empty = pc.equal(texts, "")
        zoned = pc.or_(empty, pc.match_substring_regex(texts, _ZONED))
        if not pc.all(pc.fill_null(zoned, fill_value=True)).as_py():
            return None  # a timestamp without a zone is in the writer's local time
    try:
        return parse_column(texts, kind)
    except DelvecError:
        return None


def _bounded(kind: DataType) -> bool:
    return isinstance(kind, DecimalType) or (isinstance(kind, PrimitiveType) and kind.name in _BOUNDED)


def _struct(leaves: Sequence[tuple[tuple[str, ...], pa.DataType]]) -> pa.DataType:
    """Return nested structs of leaves, in their order."""
    below: dict[str, list[tuple[tuple[str, ...], pa.DataType]]] = {}
    for path, kind in leaves:
        below.setdefault(path[0], []).append((path[1:], kind))
    return pa.struct(
        [(name, found[0][1] if not found[0][0] else _struct(found)) for name, found in below.items()]
    )


def _as_in_json(kind: pa.DataType) -> pa.DataType:
    """Return the type as Arrow's JSON reader should parse it, with dates and timestamps as text."""
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _as_in_json(field.type)) for field in kind])
    return pa.string() if pa.types.is_date(kind) or pa.types.is_timestamp(kind) else kind


def _read(texts: pa.Array, kind: pa.DataType) -> pa.StructArray | None:
    """Return one struct per document; None if a document does not match the type."""
    json_lines = pc.binary_join(pa.ListArray.from_arrays(pa.array([0, len(texts)], pa.int32()), texts), "\n")[
        0
    ].as_buffer()
    parsing = pj.ParseOptions(explicit_schema=pa.schema(list(kind)), unexpected_field_behavior="ignore")
    # One block, so that no document is split; one thread, since the machine is shared with requests.
    reading = pj.ReadOptions(use_threads=False, block_size=json_lines.size + 1)
    try:
        table = pj.read_json(pa.BufferReader(json_lines), reading, parsing)
    except (pa.ArrowException, ValueError, OverflowError):
        return None
    # Each text is one object or an error, so equal counts mean one row per text.
    if table.num_rows != len(texts):
        return None
    columns = [table[field.name].combine_chunks() for field in kind]
    return pa.StructArray.from_arrays([_one(column) for column in columns], fields=list(kind))


def _one(column: Any) -> pa.Array:
    return pa.concat_arrays(column.chunks) if isinstance(column, pa.ChunkedArray) else column


def _exact(json_values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Cast JSON values to their type; inexact values become null."""
    if pa.types.is_struct(kind):
        parts = [_exact(part, field.type) for part, field in zip(json_values.flatten(), kind, strict=True)]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=pc.is_null(json_values))
    if pa.types.is_floating(kind):
        return pc.if_else(pc.is_finite(json_values), json_values, pa.scalar(None, kind))
    if pa.types.is_date(kind):
        return _times(json_values, "date", kind)
    if pa.types.is_timestamp(kind):
        return _times(json_values, "timestamp" if kind.tz else "timestamp_ntz", kind)
    return json_values


def _times(texts: pa.Array, name: str, kind: pa.DataType) -> pa.Array:
    good = pc.match_substring_regex(texts, _TIMES[name])
    texts = pc.if_else(good, texts, pa.scalar(None, pa.string()))
    try:
        return parse_column(texts, PrimitiveType(name))
    except DelvecError:  # an impossible date
        return pa.nulls(len(texts), kind)
