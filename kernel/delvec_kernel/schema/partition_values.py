"""Partition values: parsing and serializing ``partitionValues``, and partition directories.

PROTOCOL.md, "Partition Value Serialization". There the empty string is null for every type, but delta-spark 4.4 and
delta-kernel-rs read it as itself in string and binary columns, and so does Delvec: a table must not have other rows in
another engine. delta-spark writes null for it, and so does Delvec, except for rows that already have it. Hive's directory
name for nulls also means null, except in string columns. Timestamps are written with a zone, because readers take
timestamps without one as local.
"""

import re
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from delvec_errors import CorruptLog, DelvecError, InvalidSchema, SchemaMismatch
from delvec_kernel.schema.partition_spellings import respelled
from delvec_kernel.schema.types import (
    ArrayType,
    DataType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    arrow_type,
)

__all__ = [
    "HIVE_DEFAULT_PARTITION",
    "check_partition_columns",
    "column_of_files",
    "contradiction",
    "has_empty",
    "naming_files",
    "parse",
    "parse_column",
    "partition_path",
    "serialize",
]

HIVE_DEFAULT_PARTITION: Final = "__HIVE_DEFAULT_PARTITION__"

_ZONED: Final = r":\d{2}(?:\.\d+)?\s?(?:Z|UTC|GMT|[+-]\d{2}(?::?\d{2})?)$"
_ZONE: Final = r"(:\d{2}(?:\.\d+)?)\s?(?:Z|UTC|GMT|[+-]\d{2}(?::?\d{2})?)$"
_NAMED_ZONE: Final = r"\s?(?:Z|UTC|GMT)$"
_FAR_YEAR: Final = re.compile(r"([+-]?\d{4,7})(-\d{2}-\d{2}.*)", re.DOTALL)
_NOT_FOUR_DIGITS: Final = r"^(?:[+-]|\d{5})"
_CYCLE_YEARS: Final = 400
_CYCLE_DAYS: Final = 146_097
_MICROSECONDS_PER_DAY: Final = 86_400_000_000
_ZEROS_BELOW_MICROSECONDS: Final = r"(\.\d{6})0+"
_ESCAPED: Final = frozenset([*map(chr, range(0x20)), *"\"#%'*/:=?\\\x7f{[]^"])
_FLOAT_DIGITS: Final = range(6, 10)


# --- writing ------------------------------------------------------------------------------------------------


def serialize(value: Any, kind: DataType, *, keeps_empty: bool = False) -> str | None:
    """Serialize a partition value; None for null, and as in Spark for an empty string.

    Args:
        value: a Python value or an Arrow scalar; a timestamp without a zone is UTC.
        kind: the column's type.
        keeps_empty: whether an empty string or binary stays one.

    Raises:
        SchemaMismatch: the value has another type, or is binary and not UTF-8, which has no faithful text.
        InvalidSchema: the type cannot partition a table.
    """
    _check_type(kind)
    value = value.as_py() if isinstance(value, pa.Scalar) else value
    if value is None:
        return None
    try:
        value = _as_plain_python(pa.scalar(value, arrow_type(kind)))
        text = _text(value, kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise SchemaMismatch(f"{value!r} is not a valid partition value of type {kind.to_json()}") from error
    return text if text or keeps_empty else None


def _text(value: Any, kind: DataType) -> str:
    match value:
        case bool():
            text = "true" if value else "false"
        case float():
            text = _float_text(value, single=kind == PrimitiveType("float"))
        case Decimal():
            text = f"{value:f}"
        case bytes():
            text = value.decode("utf-8")
        case datetime() if value.tzinfo is not None:
            text = value.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
        case datetime():
            whole, point, fraction = value.isoformat(sep=" ").partition(".")
            text = whole + point + fraction.rstrip("0")
        case _:
            text = str(value)
    return text


def _float_text(value: float, *, single: bool) -> str:
    """Return the shortest decimal that reads as the same number, with Java's infinity and NaN."""
    if value != value or value in (float("inf"), float("-inf")):  # noqa: PLR0124 - NaN
        return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]
    if not single:
        return repr(value)
    candidates = (float(f"{value:.{digits}g}") for digits in _FLOAT_DIGITS)
    return repr(next((found for found in candidates if _single(found) == value), value))


def _single(value: float) -> float:
    try:
        found: float = struct.unpack("f", struct.pack("f", value))[0]
    except OverflowError:  # rounds to infinity
        return float("inf")
    return found


def partition_path(values: Mapping[str, str | None]) -> str:
    """Return a partition's directory as named in storage: ``country=NZ/day=2020-01-01``.

    Names and values are escaped as by Hive and Spark. In the log the path is additionally URL-encoded
    (:func:`delvec_kernel.locations.log_path`), so a colon is ``%3A`` in storage and ``%253A`` in the log.

    Args:
        values: serialized values by column name, in the order of the partition columns.
    """
    return "/".join(
        f"{_escaped(name)}={_escaped(value) if value else HIVE_DEFAULT_PARTITION}"
        for name, value in values.items()
    )


def _escaped(text: str) -> str:
    return "".join(f"%{ord(letter):02X}" if letter in _ESCAPED else letter for letter in text)


# --- reading ------------------------------------------------------------------------------------------------


def parse(text: str | None, kind: DataType) -> Any:
    """Parse a partition value; a timestamp without a zone is UTC.

    Raises:
        CorruptLog: the text cannot be parsed as the type.
        InvalidSchema: the type cannot partition a table.
    """
    return _as_plain_python(parse_column(pa.array([text], pa.string()), kind)[0])


def parse_column(texts: pa.Array, kind: DataType, *, strict: bool = False) -> pa.Array:
    """Parse a partition column to the Arrow type of ``kind``; except in text and binary, "" is null.

    Args:
        texts: the serialized values.
        kind: the column's type.
        strict: whether to refuse what no Delta writer should write, see :mod:`~delvec_kernel.schema.partition_spellings`.

    Raises:
        CorruptLog: a text cannot be parsed as the type; names the first one.
        InvalidSchema: the type cannot partition a table.
    """
    _check_type(kind)
    texts = texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts
    if not has_empty(kind):
        texts = pc.if_else(pc.equal(texts, ""), pa.scalar(None, texts.type), texts)
    try:
        return _parsed(texts, kind)
    except pa.ArrowException as error:
        plain = texts if strict else _respelled(texts, kind)
        culprit = _first_refused(plain, kind)
        if culprit is None:
            return _parsed(plain, kind)
        text = texts[culprit].as_py()
        raise CorruptLog(
            f"the log has the partition value {text!r}, which is not of type {kind.to_json()}", value=text
        ) from error


def column_of_files(
    files: pa.Table | pa.RecordBatch, key: str, field: StructField, *, table: str, version: int
) -> pa.Array:
    """Parse the values of files in a partition column.

    Args:
        files: with ``path`` and ``partition_values``.
        key: the key of the column in the log.
        field: the column.
        table: name, for the error.
        version: for the error.

    Raises:
        CorruptLog: a value cannot be parsed as the column's type; names the table, the version, the file and the column.
    """
    values = files.column("partition_values")
    values = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    texts = pc.map_lookup(values, pa.scalar(key, values.type.key_type), "last").cast(pa.string())
    distinct = texts.dictionary_encode()
    try:
        return parse_column(distinct.dictionary, field.type).take(distinct.indices)
    except CorruptLog as error:
        text = error.details["value"]
        path = files.column("path")[pc.index(texts, text).as_py()].as_py()
        raise CorruptLog(
            f"In version {version} of table '{table}' the file '{path}' has the partition value {text!r} for column "
            f"'{field.name}', which is not of type {field.type.to_json()}; write the file's rows again with the writer that "
            "made them, or remove the file from the table.",
            table=table,
            version=version,
            file=path,
            column=field.name,
            value=text,
        ) from error


def contradiction(
    values: Mapping[str, str | None], columns: Sequence[StructField], *, strict: bool = False
) -> str | None:
    """Return how a file's partition values contradict the table, to follow the file's name; None if they do not.

    Args:
        values: by physical name.
        columns: the partition columns.
        strict: as for :func:`parse_column`.
    """
    by_name = {column.physical_name: column for column in columns}
    if set(values) != set(by_name):
        return f"has partition values for {sorted(values)}, but the table is partitioned by {list(by_name)}"
    for name, value in values.items():
        try:
            # Not Python's dates: Spark supports days that Python does not.
            parse_column(pa.array([value], pa.string()), by_name[name].type, strict=strict)
        except DelvecError:
            return f"has the partition value {value!r}, which is not valid for column '{by_name[name].name}'"
    return None


@contextmanager
def naming_files(
    files: Iterable[pa.Table | pa.RecordBatch],
    schema: StructType,
    partition_columns: Sequence[str],
    *,
    table: str,
    version: int,
) -> Iterator[None]:
    """Name the file and the column in errors about partition values, as :func:`column_of_files` does.

    Args:
        files: with ``path`` and ``partition_values``; only read after an error.
        schema: the schema of the table.
        partition_columns: logical names.
        table: name.
        version: the version of the table.
    """
    try:
        yield
    except CorruptLog as error:
        if "value" in error.details:
            fields = [schema.field(name) for name in partition_columns]
            for some in files:
                for field in fields:
                    column_of_files(some, field.physical_name, field, table=table, version=version)
        raise


def check_partition_columns(schema: StructType, names: Iterable[str]) -> None:
    """Check that a schema has the partition columns.

    Raises:
        InvalidSchema: it lacks one, or one has a nested type.
    """
    for name in names:
        field = schema.get(name)
        if field is None:
            raise InvalidSchema(f"the partition column {name!r} is not among the columns", column=name)
        _check_type(field.type, name)


def has_empty(kind: DataType) -> bool:
    """Return whether the empty string is a partition value of the type, and not null."""
    return kind in (PrimitiveType("string"), PrimitiveType("binary"))


def _respelled(texts: pa.Array, kind: DataType) -> pa.Array:
    return pa.array(
        [None if text is None else respelled(text, kind) for text in texts.to_pylist()], texts.type
    )


def _parsed(texts: pa.Array, kind: DataType) -> pa.Array:
    name = kind.name if isinstance(kind, PrimitiveType) else ""
    if name == "void":
        return pa.nulls(len(texts))
    if name not in ("string", "binary"):
        texts = pc.if_else(pc.equal(texts, HIVE_DEFAULT_PARTITION), pa.scalar(None, texts.type), texts)
    if name not in ("date", "timestamp", "timestamp_ntz"):
        return texts.cast(arrow_type(kind))
    if pc.any(pc.match_substring_regex(texts, _NOT_FOUR_DIGITS)).as_py():
        return _far_times(texts, kind)
    return _times(texts, kind)


def _times(texts: pa.Array, kind: DataType) -> pa.Array:
    if kind == PrimitiveType("timestamp"):
        return _timestamps(texts)
    if kind == PrimitiveType("timestamp_ntz"):
        # As in Spark, keep the wall clock time and ignore the zone.
        return _microseconds(pc.replace_substring_regex(texts, _ZONE, r"\1")).cast(pa.timestamp("us"))
    return texts.cast(pa.date32())


def _far_times(texts: pa.Array, kind: DataType) -> pa.Array:
    """Parse negative years and years of more than four digits, which Arrow cannot.

    The calendar repeats every 400 years, so each text is parsed in an equivalent year near 2000 and shifted back.
    """
    near: list[str | None] = []
    cycles: list[int] = []
    for text in texts.to_pylist():
        found = None if text is None else _FAR_YEAR.fullmatch(text)
        moved, year = divmod(int(found[1]), _CYCLE_YEARS) if found else (0, 0)
        near.append(f"{2000 + year}{found[2]}" if found else text)
        cycles.append(moved - 2000 // _CYCLE_YEARS if found else 0)
    parsed = _times(pa.array(near, texts.type), kind)
    number = pa.int32() if pa.types.is_date(parsed.type) else pa.int64()
    step = _CYCLE_DAYS if pa.types.is_date(parsed.type) else _CYCLE_DAYS * _MICROSECONDS_PER_DAY
    offsets = pc.multiply_checked(pa.array(cycles, pa.int64()), step).cast(number)
    return pc.add_checked(parsed.cast(number), offsets).cast(parsed.type)


def _timestamps(texts: pa.Array) -> pa.Array:
    zoned = pc.match_substring_regex(texts, _ZONED)
    nothing = pa.scalar(None, texts.type)
    with_zone = pc.replace_substring_regex(pc.if_else(zoned, texts, nothing), _NAMED_ZONE, "Z")
    without = pc.if_else(zoned, nothing, texts)
    utc = pa.timestamp("us", "UTC")
    return pc.coalesce(
        _microseconds(with_zone).cast(utc), _microseconds(without).cast(pa.timestamp("us")).cast(utc)
    )


def _microseconds(texts: pa.Array) -> pa.Array:
    return pc.replace_substring_regex(texts, _ZEROS_BELOW_MICROSECONDS, r"\1")


def _first_refused(texts: pa.Array, kind: DataType) -> int | None:
    """Return the place of a text that cannot be parsed, found by bisection; None if all can."""
    if _parses(texts, kind):
        return None
    start, stop = 0, len(texts)
    while stop - start > 1:
        middle = (start + stop) // 2
        if _parses(texts.slice(start, middle - start), kind):
            start = middle
        else:
            stop = middle
    return start


def _parses(texts: pa.Array, kind: DataType) -> bool:
    try:
        _parsed(texts, kind)
    except pa.ArrowException:
        return False
    return True


def _as_plain_python(scalar: pa.Scalar) -> Any:
    if pa.types.is_timestamp(scalar.type) and scalar.type.tz and scalar.is_valid:
        # as_py of a zoned timestamp needs the system's time zone database, which slim containers lack.
        return scalar.cast(pa.timestamp("us")).as_py().replace(tzinfo=UTC)
    return scalar.as_py()


def _check_type(kind: DataType, name: str | None = None) -> None:
    if isinstance(kind, ArrayType | MapType | StructType):
        column = "a column" if name is None else f"column {name!r}"
        raise InvalidSchema(f"{column} of a nested type cannot be a partition column", column=name)
