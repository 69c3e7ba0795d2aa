"""Reads checkpoints, converting typed ``stats_parsed`` and ``partitionValues_parsed`` columns back to text.

Checkpoints may have statistics as typed columns only (``delta.checkpoint.writeStatsAsJson=false``).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from delvec_errors import UnusableFile
from delvec_kernel.actions.action_json import LogFile, MalformedActionError, json_text
from delvec_kernel.actions.actions import (
    Action,
    AddFile,
    CheckpointMetadata,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    Sidecar,
    Txn,
)
from delvec_kernel.file_index.deferred_statistics import DEFERRED_ROW, DeferredStatistics
from delvec_kernel.file_index.file_rows import (
    DELETION_VECTOR,
    FILES_SCHEMA,
    TEXT_MAP,
    batch_from_adds,
    num_records_from_stats,
)
from delvec_kernel.log.commit_file import parse_commit
from delvec_kernel.statistics.typed_statistics import STATS_PARSED
from delvec_parquet.parquet_file import open_parquet, plain_type

__all__ = ["CheckpointPart", "partition_values", "read_checkpoint", "stats_json"]

_ESCAPED: Final = r'[\x00-\x1f"\\]'


def stats_json(parsed: pa.StructArray) -> pa.Array:
    """Return statistics as JSON text, null where the struct is null, without null fields."""
    return _object(parsed)


def partition_values(parsed: pa.StructArray) -> pa.Array:
    """Return partition values as a map of strings, like ``partitionValues``."""
    names = [field.name for field in parsed.type]
    texts = [_text(child).to_pylist() for child in parsed.flatten()]
    rows = zip(*texts, strict=True) if texts else ([()] * len(parsed))
    return pa.array([list(zip(names, row, strict=True)) for row in rows], TEXT_MAP)


def _object(value: pa.StructArray) -> pa.Array:
    members = []
    for field, child in zip(value.type, value.flatten(), strict=True):
        text = _json(child)
        if text is not None:
            named = pc.binary_join_element_wise(f"{json_text(field.name)}:", text, ",", "")
            members.append(pc.fill_null(named, ""))
    if not members:
        body = pa.array([""] * len(value), pa.string())
    else:
        # Only the last member's separator can be at the end.
        body = pc.utf8_rtrim(pc.binary_join_element_wise(*members, ""), ",")
    text = pc.binary_join_element_wise("{", body, "}", "")
    return pc.if_else(pc.is_valid(value), text, pa.scalar(None, pa.string()))


def _json(value: pa.Array) -> pa.Array | None:
    """Return each value as JSON text, null where null or not finite; None for a type without a JSON form."""
    kind = value.type
    if pa.types.is_struct(kind):
        return _object(value)
    if pa.types.is_floating(kind):
        finite = pc.is_finite(value)
        return pc.if_else(finite, value.cast(pa.string()), pa.scalar(None, pa.string()))
    if pa.types.is_integer(kind) or pa.types.is_decimal(kind) or pa.types.is_boolean(kind):
        return value.cast(pa.string())
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _quoted(value.cast(pa.string()))
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return pc.binary_join_element_wise('"', _text(value), '"', "")
    return None


def _text(value: pa.Array) -> pa.Array:
    if pa.types.is_timestamp(value.type):
        value = value.cast(pa.timestamp("us", value.type.tz), safe=False)
    return value.cast(pa.string())


def _quoted(text: pa.Array) -> pa.Array:
    plain = pc.binary_join_element_wise('"', text, '"', "")
    special = pc.fill_null(pc.match_substring_regex(text, _ESCAPED), fill_value=False)
    if not pc.any(special).as_py():
        return plain
    escaped = [json_text(item) for item in text.filter(special).to_pylist()]
    return pc.replace_with_mask(plain, special, pa.array(escaped, pa.string()))


_PARSED_RECORDS: Final = f"{STATS_PARSED}.numRecords"
_MIN_DEFERRED_ROWS: Final = 16_384
"""Minimum rows of a file for deferring its statistics."""
_BUFFER: Final = 1024 * 1024
_READ_OPTIONS: Final[Mapping[str, Any]] = {"pre_buffer": False, "coerce_int96_timestamp_unit": "us"}
"""Nanoseconds overflow before the year 9999."""
_BATCH_ROWS: Final = 8192
_ADD_FIELDS: Final = {
    "path": "path",
    "partition_values": "partitionValues",
    "size": "size",
    "modification_time": "modificationTime",
    "stats": "stats",
    "deletion_vector": "deletionVector",
    "tags": "tags",
    "base_row_id": "baseRowId",
    "default_row_commit_version": "defaultRowCommitVersion",
    "clustering_provider": "clusteringProvider",
}
_OTHER_ACTIONS: Final[
    tuple[type[Protocol | Metadata | Txn | DomainMetadata | CheckpointMetadata | Sidecar], ...]
] = (
    Protocol,
    Metadata,
    Txn,
    DomainMetadata,
    Sidecar,
)
_FIRST_FIELD: Final = {
    "protocol": "minReaderVersion",
    "metaData": "id",
    "txn": "appId",
    "domainMetadata": "domain",
    "sidecar": "path",
}


@dataclass(frozen=True)
class CheckpointPart:
    """The content of one checkpoint file, without tombstones.

    Attributes:
        batches: its live files, FILES_SCHEMA and possibly STATS_PARSED; a one-shot iterable that decodes the file
            lazily.
        actions: protocol, metadata, transactions, domains.
        sidecars: files with the remaining actions of a V2 checkpoint.
    """

    batches: Iterable[pa.RecordBatch]
    actions: Sequence[Action]
    sidecars: Sequence[Sidecar]


def read_checkpoint(
    data: bytes | pa.NativeFile, where: LogFile, deferred_statistics: DeferredStatistics | None = None
) -> CheckpointPart:
    """Read a checkpoint, a part of one, a V2 manifest or a sidecar.

    Args:
        data: the file; an open Parquet file must stay open until the batches are read.
        where: where it is, for errors; a name ending in ``.json`` is a JSON manifest.
        deferred_statistics: takes over statistics that can be read later: those of row groups in which every file has typed
            statistics. ``data`` must then stay open until it is complete.

    Raises:
        CorruptLog: the file is truncated or lacks required fields; also raised while the batches are read.
    """
    if isinstance(data, bytes) and where.name.endswith(".json"):
        actions = parse_commit(data, where)
        adds = [action for action in actions if isinstance(action, AddFile)]
        sidecars = [action for action in actions if isinstance(action, Sidecar)]
        rest = [action for action in actions if not isinstance(action, AddFile | RemoveFile | Sidecar)]
        return CheckpointPart([batch_from_adds(adds)] if adds else [], rest, sidecars)
    with _read_errors(where):
        if isinstance(data, bytes):
            file = open_parquet(data, where.name, **_READ_OPTIONS)
        else:
            # Without a buffer, or with pre_buffer, whole columns of a row group are read, and often there is only one group.
            file = open_parquet(data, where.name, buffer_size=_BUFFER, **_READ_OPTIONS)
        _check_names(file.schema_arrow)
        others = _others(file, where)
        return CheckpointPart(
            _add_batches(file, where, deferred_statistics),
            [action for action in others if not isinstance(action, Sidecar)],
            [action for action in others if isinstance(action, Sidecar)],
        )


@contextmanager
def _read_errors(where: LogFile) -> Iterator[None]:
    """Convert read errors to CorruptLog errors that name the file."""
    try:
        yield
    except MalformedActionError as error:
        raise where.corrupt(f"has an action that {error}") from error
    # Arrow raises many kinds of errors for corrupt Parquet, including OSError; nothing here accesses storage.
    except (
        pa.ArrowException,
        OSError,
        ValueError,
        TypeError,
        KeyError,
        OverflowError,
        MemoryError,
        UnusableFile,
    ) as error:
        reason = (str(error) or type(error).__name__).partition("\n")[0][:200]
        raise where.corrupt(f"is not a readable Parquet checkpoint ({reason})") from error


def _check_names(schema: pa.Schema) -> None:
    """Reject duplicate columns: Arrow finds neither by name, so they would seem absent."""
    structs = [field.type for field in schema if pa.types.is_struct(field.type)]
    for names in (schema.names, *([field.name for field in each] for each in structs)):
        if len(set(names)) < len(names):
            raise MalformedActionError(
                f"has several fields with the same name: {', '.join(sorted(names))[:100]}"
            )


def _others(file: pq.ParquetFile, where: LogFile) -> list[Any]:
    present = {field.name: field for field in file.schema_arrow if pa.types.is_struct(field.type)}
    action_kinds = [kind for kind in _OTHER_ACTIONS if kind.key in present]
    if not action_kinds:
        return []
    actions_by_kind: dict[str, list[Any]] = {kind.key: [] for kind in action_kinds}
    for batch in file.iter_batches(batch_size=_BATCH_ROWS, columns=list(actions_by_kind)):
        for kind in action_kinds:
            column = batch.column(kind.key)
            column = column.cast(plain_type(column.type))
            is_present = pc.is_valid(pc.struct_field(column, _FIRST_FIELD[kind.key]))
            if kind is Sidecar:
                _check_absent(column.filter(pc.invert(is_present)), "sizeInBytes", where)
            rows = column.filter(is_present)
            actions_by_kind[kind.key] += [
                kind.from_json(_plain(value, column.type)) for value in rows.to_pylist()
            ]
    return [action for actions in actions_by_kind.values() for action in actions]


def _plain(value: Any, kind: pa.DataType) -> Any:
    """Convert a value from ``to_pylist`` to its JSON form: maps are lists of pairs in Arrow."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {field.name: _plain(value[field.name], field.type) for field in kind}
    return dict(value) if pa.types.is_map(kind) else value


def _add_batches(
    file: pq.ParquetFile, where: LogFile, deferred_statistics: DeferredStatistics | None
) -> Iterator[pa.RecordBatch]:
    schema = file.schema_arrow
    position = schema.get_field_index("add")
    if position < 0 or not pa.types.is_struct(schema.field(position).type):
        return
    present = {field.name: field for field in schema.field(position).type}
    if "path" not in present:
        raise where.corrupt("has a column 'add' without 'path'")
    field_names = [name for name in _ADD_FIELDS.values() if name in present]
    field_names += ["partitionValues_parsed"] if "partitionValues_parsed" in present else []
    statistics = [STATS_PARSED] if STATS_PARSED in present else []
    with _read_errors(where):
        deferred_file = None if deferred_statistics is None else _DeferredFile.of(file, where, present)
        first = (
            None
            if deferred_statistics is None or deferred_file is None
            else deferred_statistics.add_file(deferred_file)
        )
        if deferred_file is None or first is None:
            yield from _read_adds(file, [*field_names, *statistics], where)
            return
        for groups, is_deferred in deferred_file.runs():
            if is_deferred:
                yield from _without_statistics(
                    deferred_file, groups, [name for name in field_names if name != "stats"], first
                )
            else:
                yield from _read_adds(file, [*field_names, *statistics], where, groups)


def _actions(
    file: pq.ParquetFile, fields: Sequence[str], groups: range | None = None
) -> Iterator[pa.StructArray]:
    """Yield ``add`` structs with these fields, null where a row is another action."""
    columns = [f"add.{name}" for name in fields]
    zoned = _int96(file)
    for batch in file.iter_batches(
        _BATCH_ROWS, row_groups=None if groups is None else list(groups), columns=columns
    ):
        adds = batch.column(0)
        kind = _in_utc(plain_type(adds.type), "add", zoned)
        yield adds if kind == adds.type else adds.cast(kind)


def _int96(file: pq.ParquetFile) -> frozenset[str]:
    """Return the paths of INT96 columns, with which Spark writes timestamps with a time zone only."""
    columns = (file.schema.column(place) for place in range(len(file.schema)))
    return frozenset(column.path for column in columns if column.physical_type == "INT96")


def _in_utc(kind: pa.DataType, path: str, zoned: frozenset[str]) -> pa.DataType:
    if pa.types.is_struct(kind) and any(each.startswith(f"{path}.") for each in zoned):
        fields = [field.with_type(_in_utc(field.type, f"{path}.{field.name}", zoned)) for field in kind]
        return pa.struct(fields)
    return pa.timestamp("us", "UTC") if path in zoned else kind


def _read_adds(
    file: pq.ParquetFile, fields: Sequence[str], where: LogFile, groups: range | None = None
) -> Iterator[pa.RecordBatch]:
    for actions in _actions(file, fields, groups):
        added = _where_added(actions, where)
        adds = actions if added is None else actions.filter(added)
        if len(adds):
            yield _files(adds, where)


def _without_statistics(
    deferred_file: "_DeferredFile", groups: range, fields: Sequence[str], first: int
) -> Iterator[pa.RecordBatch]:
    """Yield files with row counts and the location of their statistics."""
    for start, actions in deferred_file.read(groups, [*fields, _PARSED_RECORDS]):
        added = _where_added(actions, deferred_file.where)
        adds, rows = actions, pa.array(np.arange(first + start, first + start + len(actions)))
        if added is not None:
            adds, rows = adds.filter(added), rows.filter(added)
        if len(adds):
            records = pc.struct_field(adds, [STATS_PARSED, "numRecords"])
            records = pc.if_else(pc.greater_equal(records, 0), records, pa.scalar(None, records.type))
            yield _files(adds, deferred_file.where, records).append_column(DEFERRED_ROW, rows)


class _DeferredFile:
    """A checkpoint file whose statistics are read later; a StatisticsFile."""

    def __init__(self, file: pq.ParquetFile, where: LogFile, parsed: pa.StructType, has_text: bool) -> None:
        self.where = where
        self.parsed = parsed
        self.has_text = has_text
        self._file = file
        counts = [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]
        self.starts: Sequence[int] = np.cumsum([0, *counts]).tolist()

    @classmethod
    def of(
        cls, file: pq.ParquetFile, where: LogFile, present: Mapping[str, pa.Field]
    ) -> "_DeferredFile | None":
        """Return the file; None if it has no typed statistics or is too small to defer."""
        parsed = present[STATS_PARSED].type if STATS_PARSED in present else None
        if file.metadata.num_rows < _MIN_DEFERRED_ROWS or parsed is None or not pa.types.is_struct(parsed):
            return None
        counted = [field for field in parsed if field.name == "numRecords" and field.type == pa.int64()]
        typed = _in_utc(plain_type(parsed), f"add.{STATS_PARSED}", _int96(file))
        return cls(file, where, typed, "stats" in present) if counted else None

    def runs(self) -> Iterator[tuple[range, bool]]:
        """Yield ranges of row groups, and whether every file in them has typed statistics."""
        groups = range(self._file.num_row_groups)
        for found, run in groupby(groups, self._has_all_counts):
            numbers = list(run)
            yield range(numbers[0], numbers[-1] + 1), found

    def read(self, groups: range, fields: Sequence[str]) -> Iterator[tuple[int, pa.StructArray]]:
        """Yield batches in order: the number of the first row, and ``add`` with the fields that exist.

        Raises:
            CorruptLog: the file cannot be read.
        """
        start = self.starts[groups.start]
        with _read_errors(self.where):
            for adds in _actions(self._file, fields, groups):
                yield start, adds
                start += len(adds)

    def texts(self, adds: pa.StructArray) -> pa.Array:
        """Return the statistics in ``adds`` as JSON, from ``stats`` or else ``stats_parsed``."""
        found = dict(zip((field.name for field in adds.type), adds.flatten(), strict=True))
        texts = found.get("stats")
        if texts is None:
            return stats_json(found[STATS_PARSED])
        return pc.coalesce(texts, stats_json(found[STATS_PARSED])) if texts.null_count else texts

    def _has_all_counts(self, group: int) -> bool:
        """Whether every add in a row group has a typed record count, by comparing null counts."""
        found = self._file.metadata.row_group(group)
        columns = {"add.path", f"add.{_PARSED_RECORDS}"}
        nulls: dict[str, int] = {}
        for place in range(found.num_columns):
            column = found.column(place)
            if column.path_in_schema in columns:
                known = column.statistics
                if known is None or not known.has_null_count:
                    return False
                nulls[column.path_in_schema] = known.null_count
        return nulls.keys() == columns and len(set(nulls.values())) == 1


def _where_added(actions: pa.StructArray, where: LogFile) -> pa.BooleanArray | None:
    """Return a mask of the rows that add a file; None if all do."""
    added = pc.is_valid(pc.struct_field(actions, "path"))
    if pc.all(added).as_py():
        return None
    _check_absent(actions.filter(pc.invert(added)), "size", where)
    return added


def _check_absent(actions: pa.StructArray, field: str, where: LogFile) -> None:
    """Reject an add whose path is null but other fields are not, since skipping it would lose a file."""
    # Not actions.field(): under a null action, a required field has a non-null placeholder.
    if actions.type.get_field_index(field) >= 0 and pc.struct_field(actions, field).null_count < len(actions):
        raise where.corrupt("has a file action without 'path'")


def _files(adds: pa.StructArray, where: LogFile, num_records: pa.Array | None = None) -> pa.RecordBatch:
    """Convert adds to rows of FILES_SCHEMA, without statistics if ``num_records`` is given."""
    add_fields = {field.name: adds.field(index) for index, field in enumerate(adds.type)}
    count = len(adds)
    columns: dict[str, pa.Array] = {}
    for name, spelling in _ADD_FIELDS.items():
        kind = FILES_SCHEMA.field(name).type
        if name == "deletion_vector":
            columns[name] = _deletion_vectors(add_fields.get(spelling), count, where)
        elif spelling in add_fields:
            columns[name] = add_fields[spelling].cast(kind)
        else:
            columns[name] = pa.nulls(count, kind)
    typed_stats = add_fields.get(STATS_PARSED) if num_records is None else None
    if typed_stats is not None and columns["stats"].null_count:
        columns["stats"] = pc.coalesce(columns["stats"], stats_json(typed_stats))
    columns["num_records"] = num_records_from_stats(columns["stats"]) if num_records is None else num_records
    if columns["partition_values"].null_count:
        parsed = add_fields.get("partitionValues_parsed")
        columns["partition_values"] = _without_null_maps(columns["partition_values"], parsed)
    for name in ("size", "modification_time"):
        if columns[name].null_count:
            raise where.corrupt(f"has an 'add' action without '{_ADD_FIELDS[name]}'")
    batch = pa.RecordBatch.from_arrays([columns[name] for name in FILES_SCHEMA.names], schema=FILES_SCHEMA)
    if typed_stats is not None:
        batch = batch.append_column(STATS_PARSED, typed_stats)
    batch.validate(full=True)  # Arrow does not check strings for valid UTF-8 on read
    return batch


def _without_null_maps(maps: pa.MapArray, parsed: pa.StructArray | None) -> pa.Array:
    """Fill null partition value maps from the typed columns."""
    typed = [[]] * len(maps) if parsed is None else partition_values(parsed).to_pylist()
    rows = zip(maps.to_pylist(), typed, strict=True)
    return pa.array([other if pairs is None else pairs for pairs, other in rows], TEXT_MAP)


def _deletion_vectors(descriptors: pa.StructArray | None, count: int, where: LogFile) -> pa.Array:
    if descriptors is None:
        return pa.nulls(count, DELETION_VECTOR)
    names: Mapping[str, int] = {field.name: index for index, field in enumerate(descriptors.type)}
    parts = descriptors.flatten()
    columns = []
    for field in DELETION_VECTOR:
        part = parts[names[field.name]] if field.name in names else pa.nulls(count, field.type)
        columns.append(part.cast(field.type))
    kind, text, offset, size, cardinality = columns
    # Some writers use a struct with an empty storage type for no deletion vector.
    absent = pc.fill_null(pc.equal(kind, ""), fill_value=True)
    good = pc.and_(
        pc.and_(pc.is_in(kind, value_set=pa.array(["u", "p", "i"])), pc.is_valid(text)),
        pc.and_(
            pc.and_(
                pc.fill_null(pc.greater_equal(size, 0), fill_value=False),
                pc.fill_null(pc.greater_equal(cardinality, 0), fill_value=False),
            ),
            pc.fill_null(pc.greater_equal(offset, 0), fill_value=True),
        ),
    )
    bad = pc.and_(pc.invert(absent), pc.invert(good))
    if pc.any(bad).as_py():
        row = descriptors.filter(bad)[0].as_py()
        raise where.corrupt(f"has an 'add' action whose deletion vector cannot be used: {str(row)[:200]}")
    return pa.StructArray.from_arrays(columns, fields=list(DELETION_VECTOR), mask=absent)
