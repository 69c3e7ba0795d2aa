"""Bounds of one column's values in a file, from its partition values and statistics.

PROTOCOL.md, "Per-file Statistics". Bounds are outer bounds: they may be wider than the data, never narrower. What a writer
states becomes bounds in one place, :func:`stated_bounds`, whether it is in a log, in a checkpoint's typed columns or in an
Iceberg table's metrics; :mod:`~delvec_kernel.statistics.outer_bounds` knows what writers lose.

Tested in `tests/unit/kernel/statistics/test_typed_statistics.py` and
`tests/unit/kernel/data_skipping/test_skipping.py`.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from delvec_kernel.expressions.expression_kinds import INTEGER_TYPES
from delvec_kernel.schema.partition_values import parse_column
from delvec_kernel.schema.types import DataType, DecimalType, PrimitiveType, StructType
from delvec_kernel.statistics.literal_bounds import DECIMAL_DIGITS, ZONE_MARGIN
from delvec_kernel.statistics.outer_bounds import as_mask, outer_bounds, stored_type

__all__ = [
    "Bounds",
    "Mask",
    "Path",
    "column_name",
    "leaf_type",
    "parsed_bounds",
    "partition_bounds",
    "stated_bounds",
    "statistics_bounds",
]

Mask: TypeAlias = npt.NDArray[np.bool_]
Path: TypeAlias = tuple[str, ...]

_TIGHT: Final = "tightBounds"
_MIN_PIECE_ROWS: Final = 256
_BLOCK: Final = 1 << 20
_MAX_DIGITS: Final = 400
_NOT_FINITE: Final = r':\s*"(?:NaN|[+-]?Infinity)"'
_SECOND_VALUE: Final = r"[}\]]\s*[^\s,}\]]"
_ZONED: Final = r"(?:Z|[+-]\d{2}:?\d{2})$"
_DATE_FORM: Final = r"^\d{4}-\d{2}-\d{2}$"
_ZONED_FORM: Final = r"^\d{4}-\d{2}-\d{2}[ T]\d{2}:\d{2}:\d{2}(?:\.\d{1,6})?(?:Z|[+-]\d{2}:\d{2})$"
_LOCAL_FORM: Final = r"^\d{4}-\d{2}-\d{2}[ T]\d{2}:\d{2}:\d{2}(?:\.\d{1,6})?$"


@dataclass(frozen=True)
class Bounds:
    """Bounds of one column (or literal) over all files; arrays have one entry per file.

    Attributes:
        low: lower bound of the non-null values; null where unknown. Types are those of ``literal_bounds``.
            None: unknown for all files.
        high: upper bound of the same values.
        nullable: whether the file may contain a null.
        only_null: whether all values are null.
        exact: whether ``low`` and ``high`` are the least and the greatest value of all physical rows. None: certain for no
            file. Whatever computes bounds from others leaves it out.
    """

    low: pa.Array | pa.Scalar | None
    high: pa.Array | pa.Scalar | None
    nullable: Mask
    only_null: Mask
    exact: pa.BooleanArray | None = None

    def take(self, rows: npt.NDArray[Any]) -> "Bounds":
        """Return the bounds of these files; ``low`` and ``high`` must each be an array or None."""
        low, high, exact = (
            None if each is None else each.take(pa.array(rows)) for each in (self.low, self.high, self.exact)
        )
        return Bounds(low, high, self.nullable[rows], self.only_null[rows], exact)

    def with_ends(self, low: pa.Array | None, high: pa.Array | None) -> "Bounds":
        """Return other bounds for values that are null in the same rows; none of them is exact."""
        return Bounds(low, high, self.nullable, self.only_null)


def column_name(path: Path, schema: StructType) -> Path:
    """Return the physical names along the path of a column or struct field."""
    names, data_type = [], schema
    for name in path:
        field = data_type.field(name)
        names.append(field.physical_name)
        data_type = field.type if isinstance(field.type, StructType) else StructType(())
    return tuple(names)


# --- partition values ---------------------------------------------------------------------------------------


def partition_bounds(values: pa.Array, physical_name: str, data_type: DataType) -> Bounds:
    """Return a partition column's bounds, which are its exact values.

    Args:
        values: ``partition_values`` of the files, map<string, string>, keyed by physical names.
        physical_name: of the column.
        data_type: of the column.

    Raises:
        CorruptLog: a value cannot be parsed as the column's type.
    """
    dictionary_array = pc.map_lookup(values, pa.scalar(physical_name), "first").dictionary_encode()
    partition_values = parse_column(dictionary_array.dictionary.cast(pa.string()), data_type)
    low = high = _normal(partition_values, data_type)
    kind = data_type.name if isinstance(data_type, PrimitiveType) else ""
    if kind in {"float", "double"} and low is not None:
        # NaN is greater than every number, so it must not be compared as one.
        nan = pc.is_nan(low)
        low = pc.if_else(nan, pa.scalar(float("inf")), low)
        high = pc.if_else(nan, pa.scalar(None, pa.float64()), high)
    elif kind == "timestamp" and low is not None:
        # A timestamp without a zone is in the writer's local time.
        zoned = pc.match_substring_regex(dictionary_array.dictionary.cast(pa.string()), _ZONED)
        margin = pc.if_else(zoned, pa.scalar(0, pa.int64()), pa.scalar(ZONE_MARGIN, pa.int64()))
        low, high = pc.subtract(low, margin), pc.add(high, margin)
    null = as_mask(pc.is_null(partition_values.take(dictionary_array.indices)))
    if low is None or high is None:
        return Bounds(None, None, null, null)
    return Bounds(low.take(dictionary_array.indices), high.take(dictionary_array.indices), null, null)


def _normal(  # noqa: PLR0911 - one answer per type
    values: pa.Array, data_type: DataType
) -> pa.Array | None:
    """Convert typed values to the types of ``literal_bounds``; None for types that are not compared."""
    if isinstance(data_type, DecimalType):
        return values.cast(pa.decimal128(DECIMAL_DIGITS, data_type.scale))
    name = data_type.name if isinstance(data_type, PrimitiveType) else ""
    if name in INTEGER_TYPES or name == "boolean":
        return values.cast(pa.int64())
    if name in {"float", "double"}:
        return values.cast(pa.float64())
    if name == "string":
        return values.cast(pa.string())
    if name == "date":
        return values.cast(pa.date32()).cast(pa.int32()).cast(pa.int64())
    if name in {"timestamp", "timestamp_ntz"}:
        return values.cast(pa.timestamp("us", values.type.tz)).cast(pa.int64())
    return None


# --- statistics ---------------------------------------------------------------------------------------------


def statistics_bounds(
    stats: pa.Array, num_records: pa.Array, columns: Iterable[Path], schema: StructType
) -> Mapping[Path, Bounds]:
    """Parse the statistics of these columns only, for all files at once.

    Args:
        stats: Delta's statistics as JSON text, or null.
        num_records: physical rows of each file, or null.
        columns: paths of columns and struct fields, as spelled in the schema.
        schema: of the table.

    Returns:
        Bounds by path. ``tightBounds=false`` needs no special case: deleting rows leaves bounds valid, a nullCount
        of 0 or of ``num_records`` stays true, and other null counts are not used.
    """
    names = {path: column_name(path, schema) for path in columns}
    found = parsed_bounds(stats, num_records, {names[path]: leaf_type(path, schema) for path in names})
    return {path: found[names[path]] for path in names}


def parsed_bounds(
    stats: pa.Array, num_records: pa.Array, columns: Mapping[Path, DataType]
) -> Mapping[Path, Bounds]:
    """Like :func:`statistics_bounds`, for columns given as physical names with their types."""
    explicit = _json_schema(columns.items())
    parsed_stats = _read(stats, explicit)
    count = len(stats)
    tight = _nested_column(parsed_stats, (_TIGHT,), pa.bool_(), count)
    column_bounds = {}
    for names, data_type in columns.items():
        nulls = _nested_column(parsed_stats, ("nullCount", *names), pa.int64(), count)
        kind = stored_type(data_type)
        low, high = (
            None
            if kind is None
            else _comparable(_nested_column(parsed_stats, (side, *names), kind, count), data_type)
            for side in ("minValues", "maxValues")
        )
        column_bounds[names] = stated_bounds(low, high, data_type, nulls, num_records, tight)
    return column_bounds


def stated_bounds(
    low: pa.Array | None,
    high: pa.Array | None,
    data_type: DataType,
    nulls: pa.Array,
    num_records: pa.Array,
    tight: pa.Array,
) -> Bounds:
    """Return the bounds of a column that follow from what the writers of files have stated.

    A minimum above the maximum says that the writer compares in another order, so neither counts.

    Args:
        low: its minimums, as :func:`~delvec_kernel.statistics.outer_bounds.outer_bounds` takes them.
        high: its maximums.
        data_type: of the column.
        nulls: its null counts; below 0 where unknown, as parquet-mr says it.
        num_records: physical rows.
        tight: ``tightBounds``, by default true.
    """
    nullable = as_mask(pc.fill_null(pc.not_equal(nulls, 0), fill_value=True))
    only_null = as_mask(pc.fill_null(pc.equal(nulls, num_records), fill_value=False))
    if low is None or high is None:
        return Bounds(None, None, nullable, only_null)
    wrong = pc.fill_null(pc.greater(low, high), fill_value=False)
    if pa.types.is_floating(high.type):
        # In JSON, infinity is not a number.
        wrong = pc.and_(wrong, pc.fill_null(pc.is_finite(high), fill_value=False))
    if pc.any(wrong).as_py():
        low, high = (pc.if_else(wrong, pa.scalar(None, each.type), each) for each in (low, high))
    least = outer_bounds(low, data_type, upper=False)
    greatest = outer_bounds(high, data_type, upper=True)
    exact = pc.and_(pc.and_(least.exact, greatest.exact), pc.fill_null(tight, fill_value=True))
    return Bounds(least.values, greatest.values, nullable, only_null, exact)


def leaf_type(path: Path, schema: StructType) -> DataType:
    """Return the type of the column or struct field at a path."""
    data_type: DataType = schema
    for name in path:
        data_type = data_type.field(name).type if isinstance(data_type, StructType) else data_type
    return data_type


def _json_schema(wanted: Iterable[tuple[Path, DataType]]) -> pa.Schema:
    tree: dict[str, Any] = {}
    for names, data_type in wanted:
        if isinstance(data_type, StructType):
            continue
        kind = stored_type(data_type)
        leaves = [("nullCount", pa.int64()), ("minValues", kind), ("maxValues", kind)]
        for side, leaf in leaves:
            if leaf is not None:
                node = tree.setdefault(side, {})
                for name in names[:-1]:
                    node = node.setdefault(name, {})
                node[names[-1]] = leaf
    if tree:
        tree[_TIGHT] = pa.bool_()
    return pa.schema([pa.field(name, _arrow(node)) for name, node in tree.items()])


def _arrow(node: Any) -> pa.DataType:
    if isinstance(node, dict):
        return pa.struct([pa.field(name, _arrow(child)) for name, child in node.items()])
    return node


def _read(stats: pa.Array, explicit: pa.Schema) -> pa.Table | None:
    """Read all texts as one buffer of JSON lines; split around unexpected texts, down to reading them singly."""
    if not len(explicit) or stats.null_count == len(stats):
        return None
    texts = pc.fill_null(stats.cast(pa.large_string()), "{}")
    table = _lines(texts, explicit)
    if table is not None:
        return table.combine_chunks()
    # Spark writes NaN and infinity as text, and they are no bounds. In all files with a NaN it is the maximum.
    texts = pc.replace_substring_regex(texts, _NOT_FINITE, ":null")
    return pa.concat_tables(
        _read_pieces(texts, explicit, max(_MIN_PIECE_ROWS, len(texts) // 32))
    ).combine_chunks()


def _read_pieces(texts: pa.Array, explicit: pa.Schema, smallest: int) -> Iterator[pa.Table]:
    table = _lines(texts, explicit)
    if table is not None:
        yield table
    elif len(texts) > smallest:
        middle = len(texts) // 2
        yield from _read_pieces(texts.slice(0, middle), explicit, smallest)
        yield from _read_pieces(texts.slice(middle), explicit, smallest)
    else:
        yield pa.Table.from_pylist(
            [_parse_singly(text, explicit) for text in texts.to_pylist()], schema=explicit
        )


def _lines(texts: pa.Array, explicit: pa.Schema) -> pa.Table | None:
    """Return one row per text, or None if a text is not one JSON object of the expected types."""
    lines = _joined(texts)
    if lines is None:
        texts = pc.replace_substring_regex(pc.utf8_trim_whitespace(texts), r"[\t\n\r]", " ")
        lines = (
            None
            if pc.any(pc.match_substring_regex(texts, _SECOND_VALUE)).as_py()
            else _joined(texts, sure=True)
        )
    if lines is None:
        return None
    longest = pc.max(pc.binary_length(texts)).as_py()
    options = pj.ReadOptions(use_threads=len(lines) > _BLOCK, block_size=max(_BLOCK, 2 * longest))
    try:
        table = pj.read_json(
            pa.BufferReader(lines),
            read_options=options,
            parse_options=pj.ParseOptions(explicit_schema=explicit, unexpected_field_behavior="ignore"),
        )
    except pa.ArrowInvalid:
        return None
    return table if table.num_rows == len(texts) else None


def _joined(texts: pa.Array, *, sure: bool = False) -> pa.Buffer | None:
    """Return the texts as JSON lines; None if a text is not in braces or, unless ``sure``, may hold several objects.

    Arrow's reader crashes on a null line, even after an object, and reads two objects on a line as two rows.
    """
    if not pc.all(pc.and_(pc.starts_with(texts, "{"), pc.ends_with(texts, "}"))).as_py():
        return None
    # A string array's values are contiguous, so appending a line end to each makes its buffer JSON lines.
    empty, line_end = pa.scalar("", pa.large_string()), pa.scalar("\n", pa.large_string())
    array = pc.binary_join_element_wise(texts, empty, line_end)
    lines = array.buffers()[2].slice(0, pc.sum(pc.binary_length(array)).as_py())
    letters = np.frombuffer(lines, np.uint8)
    following = letters[np.flatnonzero(letters == ord("}")) + 1]
    plain = np.isin(following, np.frombuffer(b",}\n", np.uint8)).all()
    whole = np.count_nonzero(letters == ord("\n")) == len(texts)
    return lines if sure or (plain and whole) else None


def _parse_singly(text: str, explicit: pa.Schema) -> dict[str, Any]:
    try:
        document = json.loads(text, parse_float=Decimal)
    except (ValueError, RecursionError):
        return {}
    found = {field.name: _of_type(_get(document, field.name), field.type) for field in explicit}
    # What is neither true nor missing says nothing that can be relied on.
    return found | {_TIGHT: not isinstance(document, dict) or document.get(_TIGHT, True) is True}


def _get(document: Any, name: str) -> Any:
    return document.get(name) if isinstance(document, dict) else None


def _of_type(value: Any, kind: pa.DataType) -> Any:
    """Return ``value`` if it has the type ``kind``, else None: a bound of another type is ignored."""
    if pa.types.is_struct(kind):
        fields = [kind.field(i) for i in range(kind.num_fields)]
        return {field.name: _of_type(_get(value, field.name), field.type) for field in fields}
    if pa.types.is_string(kind):
        # Writers that truncate between two surrogates leave one that UTF-8 cannot encode.
        whole = isinstance(value, str) and value == value.encode(errors="ignore").decode()
        return value if whole else None
    if pa.types.is_boolean(kind):
        return None
    numeric = isinstance(value, int | Decimal | str) and not isinstance(value, bool)
    return _number(value, kind) if numeric else None


def _number(value: int | Decimal | str, kind: pa.DataType) -> Any:
    try:
        number = Decimal(value)
        if number.is_finite() and number.adjusted() > _MAX_DIGITS:
            return None  # int() of 1e999999999 takes hours
        if pa.types.is_floating(kind):
            return float(number) if number.is_finite() else None
        if pa.types.is_integer(kind):
            return pa.scalar(int(number), kind).as_py() if number == int(number) else None
        return pa.scalar(number, kind).as_py()
    except (InvalidOperation, OverflowError, ValueError, pa.ArrowInvalid):
        return None


def _nested_column(parsed: pa.Table | None, names: Sequence[str], kind: pa.DataType, length: int) -> pa.Array:
    if parsed is None or names[0] not in parsed.column_names:
        return pa.nulls(length, kind)
    column = parsed[names[0]]
    array = column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)
    for name in names[1:]:
        if not pa.types.is_struct(array.type) or array.type.get_field_index(name) < 0:
            return pa.nulls(length, kind)
        # Unlike StructArray.field, struct_field keeps the parents' nulls.
        array = pc.struct_field(array, [array.type.get_field_index(name)])
    return array if array.type == kind else pa.nulls(length, kind)


def _comparable(bounds: pa.Array, data_type: DataType) -> pa.Array:
    """Convert a column's minValues or maxValues, as read from JSON, to the column's type."""
    name = data_type.name if isinstance(data_type, PrimitiveType) else ""
    if name == "date":
        return _parsed(bounds, _DATE_FORM, pa.date32())
    if name in {"timestamp", "timestamp_ntz"}:
        form, zone = (_ZONED_FORM, "UTC") if name == "timestamp" else (_LOCAL_FORM, None)
        return _parsed(bounds, form, pa.timestamp("us", zone))
    return bounds


def _parsed(texts: pa.Array, form: str, kind: pa.DataType) -> pa.Array:
    """Cast texts that match ``form``; null where they do not match or name an impossible date."""
    cleaned = pc.if_else(pc.match_substring_regex(texts, form), texts, pa.scalar(None, pa.string()))
    try:
        return cleaned.cast(kind)
    except pa.ArrowInvalid:
        return pa.array([_parse_date_time(text, kind) for text in cleaned.to_pylist()], kind)


def _parse_date_time(text: str | None, kind: pa.DataType) -> Any:
    try:
        return None if text is None else pa.scalar(text).cast(kind).as_py()
    except (pa.ArrowInvalid, ValueError, OverflowError):
        return None
