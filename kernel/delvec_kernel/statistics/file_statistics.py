"""The JSON of statistics: numbers with all their digits, and bounds of types that JSON lacks.

PROTOCOL.md, "Per-file Statistics".

Tested in `tests/unit/kernel/statistics/test_statistics.py` and
`tests/unit/kernel/statistics/test_merged_statistics.py`.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from math import isfinite
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from delvec_errors import CorruptLog, CorruptTable, SchemaMismatch
from delvec_kernel.schema.types import (
    DataType,
    DecimalType,
    PrimitiveType,
    StructField,
    StructType,
    arrow_type,
)

__all__ = [
    "MAX_STRING",
    "Number",
    "Path",
    "StatisticsCollector",
    "bound",
    "collect",
    "columns_with_statistics",
    "dump",
    "indexed_columns",
    "load",
    "num_records",
    "recounted",
    "tree",
    "widen",
    "with_plain_text",
]

MAX_STRING: Final = 32
"""Code points of a string bound; a truncated maximum gets one more, which keeps it an upper bound."""

_LAST_ASCII: Final = "\x7f"
_LAST_CHARACTER: Final = "\U0010ffff"
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - the column's type says whether there is a zone
_EPOCH_DAY: Final = date(1970, 1, 1)


class Number(str):
    """A JSON number as written: a float would round decimals and long integers."""

    __slots__ = ()


def load(stats: str) -> dict[str, Any]:
    """Parse the statistics of a file; numbers become :class:`Number`.

    Raises:
        CorruptLog: they are not a JSON object.
    """
    try:
        found = json.loads(stats, parse_float=Number, parse_int=Number, parse_constant=Number)
    except (ValueError, RecursionError) as error:
        raise CorruptLog(f"the log has statistics that are not JSON: {stats[:200]!r}") from error
    if not isinstance(found, dict):
        raise CorruptLog(f"the log has statistics that are not a JSON object: {stats[:200]!r}")
    return found


def dump(value: Any) -> str:
    """Return the JSON of a value from :func:`load`, with non-ASCII characters unescaped."""
    if isinstance(value, Number):
        return str(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{dump(key)}:{dump(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(dump, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def with_plain_text(stats: str | None) -> str | None:
    """Return statistics with Unicode escapes replaced by the characters, since arrow-rs decodes some escapes wrongly.

    Text that is not statistics, or that escapes a lone surrogate, is returned unchanged.
    """
    if stats is None or "\\u" not in stats:
        return stats
    try:
        plain = dump(load(stats))
        plain.encode()
    except (CorruptLog, UnicodeEncodeError):
        return stats
    return plain


def bound(value: Any, kind: DataType, *, upper: bool) -> str | Number | None:
    """Return a column's minimum or maximum as a bound in statistics; None if JSON cannot represent it.

    Args:
        value: dates are days and timestamps microseconds since the epoch, other types are Python's.
        kind: the column's type.
        upper: whether to round up, not down, where strings and timestamps are truncated.
    """
    name = kind.name if isinstance(kind, PrimitiveType) else "decimal"
    match name:
        case "decimal":
            return Number(f"{value:f}")
        case "string":
            return _string_above(value) if upper else value[:MAX_STRING]
        case "date":
            return _day(value)
        case "timestamp" | "timestamp_ntz":
            milliseconds = -(-value // 1000) if upper else value // 1000
            return _millisecond(milliseconds, "Z" if name == "timestamp" else "")
        case "float" | "double":
            # -0.0 equals 0.0, but some readers order them.
            widest = value or (0.0 if upper else -0.0)
            return Number(repr(widest)) if isfinite(widest) else None
        case _:
            return Number(value)


def _string_above(text: str) -> str | None:
    """Return a truncated upper bound of ``text``; None where that takes too many characters.

    Readers compare UTF-8 bytes, which sort as code points do.
    """
    cut = MAX_STRING
    while cut < len(text) and text[cut] == _LAST_CHARACTER:
        cut += 1
    if cut > 2 * MAX_STRING:
        return None
    if cut >= len(text):
        return text
    return text[:cut] + (_LAST_ASCII if text[cut] < _LAST_ASCII else _LAST_CHARACTER)


def _day(days: int) -> str | None:
    try:
        return (_EPOCH_DAY + timedelta(days=days)).isoformat()
    except OverflowError:  # before the year 1 or after 9999
        return None


def _millisecond(milliseconds: int, zone: str) -> str | None:
    try:
        time = _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return None
    return time.isoformat(timespec="milliseconds") + zone


_NUM_INDEXED: Final = 32
_NAME: Final = re.compile(r"\s*((?:`(?:[^`]|``)*`|[^.,`])+)\s*([.,]|$)")
_WHOLE: Final = re.compile(r"(\d{1,18})(?:\.0+)?")
_NUMBERS: Final = frozenset(["byte", "short", "integer", "long", "float", "double"])
_BOUNDED: Final = _NUMBERS | {"string", "date", "timestamp", "timestamp_ntz"}

Path: TypeAlias = tuple[StructField, ...]


# --- which columns ------------------------------------------------------------------------------------------


def indexed_columns(
    schema: StructType, partition_columns: Sequence[str], configuration: Mapping[str, str]
) -> list[Path]:
    """Return the leaf columns that have statistics, each as its fields from the top level down.

    These are the columns that ``delta.dataSkippingStatsColumns`` names, or else the first
    ``delta.dataSkippingNumIndexedCols`` (default 32; -1 is all). An array or a map is a leaf. Partition columns have none.
    """
    leaves = list(_leaves(schema.without(partition_columns)))
    named = configuration.get("delta.dataSkippingStatsColumns")
    if named is not None:
        wanted = _column_names(named)
        return [leaf for leaf in leaves if any(_starts_with(leaf, name) for name in wanted)]
    try:
        count = int(configuration.get("delta.dataSkippingNumIndexedCols", _NUM_INDEXED))
    except ValueError:
        count = _NUM_INDEXED
    return leaves if count < 0 else leaves[:count]


def columns_with_statistics(
    schema: StructType, partition_columns: Sequence[str], configuration: Mapping[str, str]
) -> set[tuple[str, ...]]:
    """Return the paths of the :func:`indexed_columns`, as spelled in the schema."""
    leaves = indexed_columns(schema, partition_columns, configuration)
    return {tuple(field.name for field in leaf) for leaf in leaves}


def _leaves(schema: StructType, above: Path = ()) -> Iterator[Path]:
    for item in schema.fields:
        if isinstance(item.type, StructType):
            yield from _leaves(item.type, (*above, item))
        else:
            yield (*above, item)


def _column_names(text: str) -> list[tuple[str, ...]]:
    """Split ``a, b.c, `d.e` `` into lower-case name paths, as Spark does."""
    names: list[tuple[str, ...]] = []
    parts: list[str] = []
    for found in _NAME.finditer(text):
        part = found.group(1).strip()
        if part.startswith("`") and part.endswith("`"):
            part = part[1:-1].replace("``", "`")
        parts.append(part.lower())
        if found.group(2) != ".":
            names.append(tuple(parts))
            parts = []
    return names


def _starts_with(leaf: Path, name: tuple[str, ...]) -> bool:
    return tuple(item.name.lower() for item in leaf[: len(name)]) == name


# --- collecting ---------------------------------------------------------------------------------------------


@dataclass
class _Leaf:
    """Running statistics of one leaf column; ``low`` and ``high`` are Python values that compare as in Delta."""

    path: Path
    nulls: int = 0
    low: Any = None
    high: Any = None
    unbounded: bool = False

    @property
    def kind(self) -> DataType:
        return self.path[-1].type

    def update(self, values: pa.Array) -> None:
        values = _plain(values)
        self.nulls += values.null_count
        name = self.kind.name if isinstance(self.kind, PrimitiveType) else ""
        if self.unbounded or not (isinstance(self.kind, DecimalType) or name in _BOUNDED):
            return
        values = _comparable(values, self.kind)
        if pa.types.is_floating(values.type) and pc.any(pc.is_nan(values)).as_py():
            # NaN is above every number, and JSON cannot represent it.
            self.unbounded = True
            return
        found = pc.min_max(values)
        low, high = found["min"].as_py(), found["max"].as_py()
        if low is not None:
            self.low = low if self.low is None else min(self.low, low)
            self.high = high if self.high is None else max(self.high, high)

    def bound(self, *, upper: bool) -> str | Number | None:
        value = self.high if upper else self.low
        return None if self.unbounded or value is None else bound(value, self.kind, upper=upper)


def _plain(values: pa.Array) -> pa.Array:
    """Decode dictionary and run-end arrays, whose null_count misses nulls of their values."""
    if isinstance(values, pa.ExtensionArray):
        values = values.storage
    if pa.types.is_run_end_encoded(values.type):
        values = pc.run_end_decode(values)
    return values.dictionary_decode() if pa.types.is_dictionary(values.type) else values


def _comparable(values: pa.Array, kind: DataType) -> pa.Array:
    """Cast an array that represents ``kind`` to a type that min_max compares as Delta does."""
    target = arrow_type(kind)
    if target == pa.string():
        # Not string: that cast fails beyond 2 GiB.
        return values if values.type == target else values.cast(pa.large_string())
    if values.type != target:
        # The data file truncates nanoseconds, too.
        nanoseconds = pa.types.is_timestamp(values.type) and values.type.unit == "ns"
        values = values.cast(target, safe=not nanoseconds)
    if pa.types.is_timestamp(target):
        return values.cast(pa.timestamp("us")).cast(pa.int64())
    return values.cast(pa.int32()) if target == pa.date32() else values


class StatisticsCollector:
    """Collects the statistics of one file from its rows as they are written.

    Args:
        schema: of the table.
        partition_columns: these get no statistics; the data may contain them.
        configuration: table properties that select the columns with statistics.
        physical_names: whether the data uses the physical names of column mapping.
    """

    def __init__(
        self,
        schema: StructType,
        partition_columns: Sequence[str] = (),
        configuration: Mapping[str, str] | None = None,
        *,
        physical_names: bool = False,
    ) -> None:
        self._schema = schema
        self._physical = physical_names
        self._leaves = [
            _Leaf(path) for path in indexed_columns(schema, partition_columns, configuration or {})
        ]
        self._rows = 0

    def update(self, data: pa.RecordBatch | pa.Table) -> None:
        """Add rows; a column that they lack counts as null.

        Raises:
            SchemaMismatch: a column has another type, or is not in the schema. Ignoring a misspelled column would
                record the right one as all null.
        """
        if isinstance(data, pa.Table):
            for batch in data.to_batches():
                self.update(batch)
            return
        self._check_names(data.schema, self._schema)
        self._rows += data.num_rows
        for leaf in self._leaves:
            values = self._values(data, leaf.path)
            if values is None:
                leaf.nulls += data.num_rows
                continue
            try:
                leaf.update(values)
            except pa.ArrowException as error:
                name = ".".join(item.name for item in leaf.path)
                raise SchemaMismatch(
                    f"column {name!r} holds {values.type}, which is not {leaf.kind.to_json()}: {error}",
                    column=name,
                ) from error

    def _name(self, item: StructField) -> str:
        return item.physical_name if self._physical else item.name

    def _check_names(self, fields: Iterable[pa.Field], schema: StructType) -> None:
        types_by_name = {self._name(item): item.type for item in schema.fields}
        for arrow_field in fields:
            if arrow_field.name not in types_by_name:
                raise SchemaMismatch(
                    f"the data has a column {arrow_field.name!r}, which the table does not have; it has "
                    f"{', '.join(types_by_name)}",
                    column=arrow_field.name,
                )
            kind = types_by_name[arrow_field.name]
            if isinstance(kind, StructType) and pa.types.is_struct(arrow_field.type):
                self._check_names(arrow_field.type, kind)

    def _values(self, data: pa.RecordBatch, path: Path) -> pa.Array | None:
        """Return a leaf's values, null where an enclosing struct is; None if the data lacks the column."""
        index = data.schema.get_field_index(self._name(path[0]))
        if index < 0:
            return None
        values = data.column(index)
        for item in path[1:]:
            if not pa.types.is_struct(values.type):
                return None
            index = values.type.get_field_index(self._name(item))
            if index < 0:
                return None
            values = pc.struct_field(values, indices=[index])
        return values

    def to_json(self) -> str:
        """Return the ``stats`` of the file's add action."""
        return dump(
            {
                "numRecords": Number(self._rows),
                "minValues": tree((leaf.path, leaf.bound(upper=False)) for leaf in self._leaves),
                "maxValues": tree((leaf.path, leaf.bound(upper=True)) for leaf in self._leaves),
                "nullCount": tree((leaf.path, Number(leaf.nulls)) for leaf in self._leaves),
                "tightBounds": True,
            }
        )


def tree(leaves: Iterable[tuple[Path, str | Number | None]]) -> dict[str, Any]:
    """Nest leaf values by physical name; leaves without a value are omitted."""
    root: dict[str, Any] = {}
    for path, value in leaves:
        if value is not None:
            tree = root
            for item in path[:-1]:
                tree = tree.setdefault(item.physical_name, {})
            tree[path[-1].physical_name] = value
    return root


def collect(
    data: pa.Table | Iterable[pa.RecordBatch],
    schema: StructType,
    partition_columns: Sequence[str] = (),
    configuration: Mapping[str, str] | None = None,
    *,
    physical_names: bool = False,
) -> str:
    """Return the statistics of a file with these rows. See :class:`StatisticsCollector`."""
    collector = StatisticsCollector(schema, partition_columns, configuration, physical_names=physical_names)
    for batch in data.to_batches() if isinstance(data, pa.Table) else data:
        collector.update(batch)
    return collector.to_json()


# --- statistics in a log ------------------------------------------------------------------------------------


def num_records(stats: str | None) -> int | None:
    """Return ``numRecords``, the physical rows of a file; None if the statistics lack it.

    Raises:
        CorruptLog: the statistics are not a JSON object, or ``numRecords`` is not a row count.
    """
    return None if not stats else _count(load(stats).get("numRecords"), stats)


def _count(number: Any, stats: str) -> int | None:
    if number is None:
        return None
    whole = _WHOLE.fullmatch(number) if isinstance(number, Number) else None
    if whole is not None:
        return int(whole.group(1))
    raise CorruptLog(f"the log has statistics whose numRecords is not a row count: {stats[:200]!r}")


def widen(stats: str | None, num_physical_records: int | None = None, *, deleted_records: int = 0) -> str:
    """Return the statistics of a file that gets a deletion vector: bounds are kept, and marked as wide.

    With wide bounds a column's nullCount is 0 (no nulls), the number of physical records (only nulls), or else
    unknown (PROTOCOL.md, "Per-file Statistics").

    Args:
        stats: as in the log.
        num_physical_records: from the file's footer, used if the statistics lack it.
        deleted_records: cardinality of the file's deletion vector when ``stats`` were collected. Tight statistics
            count nulls among the remaining rows only.

    Raises:
        CorruptTable: the number of records is unknown.
        CorruptLog: the statistics are not a JSON object.
    """
    parsed_statistics = load(stats) if stats else {}
    physical = _count(parsed_statistics.get("numRecords"), stats or "")
    if physical is None:
        physical = num_physical_records
    if physical is None:
        raise CorruptTable(
            "a file without numRecords in its statistics cannot get a deletion vector; read its footer first"
        )
    try:
        if parsed_statistics.get("tightBounds") is not False and deleted_records:
            live = physical - deleted_records
            parsed_statistics["nullCount"] = _raised(
                parsed_statistics.get("nullCount"), str(live), Number(physical)
            )
        parsed_statistics = {"numRecords": None, **parsed_statistics} | {
            "numRecords": Number(physical),
            "tightBounds": False,
        }
        return dump(parsed_statistics)
    except RecursionError:  # Python's C parser accepts deeper nesting than json.dumps
        raise CorruptLog("the log has statistics that are nested too deeply") from None


def recounted(stats: str | None, num_physical_records: int) -> str:
    """Return the statistics of a file with a deletion vector whose ``numRecords`` was wrong or missing.

    Bounds are kept, and marked as wide. Null counts are kept only if 0, which holds for any subset of the rows.
    """
    try:
        found = load(stats) if stats else {}
        counts = _zeros(found.pop("nullCount", None))
        kept = {"nullCount": counts} if counts else {}
        right = {"numRecords": Number(num_physical_records), "tightBounds": False}
        return dump({"numRecords": None, **found, **kept} | right)
    except (CorruptLog, RecursionError):
        return dump({"numRecords": Number(num_physical_records), "tightBounds": False})


def _zeros(counts: Any) -> Any:
    if isinstance(counts, dict):
        kept = {name: _zeros(item) for name, item in counts.items()}
        return {name: item for name, item in kept.items() if item}
    return counts if isinstance(counts, Number) and counts == "0" else None


def _raised(counts: Any, live: str, physical: Number) -> Any:
    """Return null counts in which "all live rows" becomes "all physical rows"."""
    if isinstance(counts, dict):
        return {name: _raised(item, live, physical) for name, item in counts.items()}
    return physical if isinstance(counts, Number) and counts == live != "0" else counts
