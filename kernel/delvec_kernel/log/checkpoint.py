"""Struct columns of a checkpoint back into text: ``stats_parsed`` and ``partitionValues_parsed``.

Checkpoints may hold statistics as typed columns only (``delta.checkpoint.writeStatsAsJson=false``).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

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
from delvec_kernel.file_index.files import (
    DELETION_VECTOR,
    FILES_SCHEMA,
    TEXT_MAP,
    batch_from_adds,
    num_records_from_stats,
)
from delvec_kernel.log.commit_file import parse_commit
from delvec_kernel.statistics.typed_statistics import STATS_PARSED

__all__ = ["CheckpointPart", "partition_values", "read_checkpoint", "stats_json"]

_ESCAPED: Final = r'[\x00-\x1f"\\]'


def stats_json(parsed: pa.StructArray) -> pa.Array:
    """Return statistics as JSON text, null where the struct is null; fields that are null are left out."""
    return _object(parsed)


def partition_values(parsed: pa.StructArray) -> pa.Array:
    """Return partition values as a map of text, as ``partitionValues`` would hold them."""
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
        # Nothing but the last member's own comma can stand at the end.
        body = pc.utf8_rtrim(pc.binary_join_element_wise(*members, ""), ",")
    text = pc.binary_join_element_wise("{", body, "}", "")
    return pc.if_else(pc.is_valid(value), text, pa.scalar(None, pa.string()))


def _json(value: pa.Array) -> pa.Array | None:
    """Return each value as JSON text, null where it is null or not finite; None for a type without JSON."""
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


_BUFFER: Final = 1024 * 1024
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
_OTHERS: Final[
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
    """What one file of a checkpoint holds; tombstones are not read.

    Attributes:
        batches: its live files, FILES_SCHEMA and perhaps STATS_PARSED; they can be read once, and only then is the
            file decoded.
        actions: protocol, metadata, transactions, domains.
        sidecars: files that hold the rest of a V2 checkpoint.
    """

    batches: Iterable[pa.RecordBatch]
    actions: Sequence[Action]
    sidecars: Sequence[Sidecar]


def read_checkpoint(data: bytes | pa.NativeFile, where: LogFile) -> CheckpointPart:
    """Read a checkpoint, a part of one, a V2 manifest or a sidecar.

    Args:
        data: the file; one in Parquet may be open, and has to stay so until the batches are read.
        where: for errors; a name that ends in ``.json`` is a manifest in JSON.

    Raises:
        CorruptLog: the file is truncated or lacks what the protocol demands; also raised as the batches are read.
    """
    if isinstance(data, bytes) and where.name.endswith(".json"):
        actions = parse_commit(data, where)
        adds = [action for action in actions if isinstance(action, AddFile)]
        sidecars = [action for action in actions if isinstance(action, Sidecar)]
        rest = [action for action in actions if not isinstance(action, AddFile | RemoveFile | Sidecar)]
        return CheckpointPart([batch_from_adds(adds)] if adds else [], rest, sidecars)
    with _telling(where):
        if isinstance(data, bytes):
            file = pq.ParquetFile(pa.BufferReader(data))
        else:
            # Without a buffer a column of a row group is read whole, and often there is but one row group.
            file = pq.ParquetFile(data, buffer_size=_BUFFER)
        _check_names(file.schema_arrow)
        others = _others(file, where)
        return CheckpointPart(
            _add_batches(file, where),
            [action for action in others if not isinstance(action, Sidecar)],
            [action for action in others if isinstance(action, Sidecar)],
        )


@contextmanager
def _telling(where: LogFile) -> Iterator[None]:
    """Say which file it is that cannot be read."""
    try:
        yield
    except MalformedActionError as error:
        raise where.corrupt(f"has an action that {error}") from error
    # Damaged Parquet makes Arrow raise almost anything, OSError among it; nothing here touches storage.
    except (pa.ArrowException, OSError, ValueError, TypeError, KeyError, OverflowError, MemoryError) as error:
        reason = (str(error) or type(error).__name__).partition("\n")[0][:200]
        raise where.corrupt(f"is not a readable Parquet checkpoint ({reason})") from error


def _check_names(schema: pa.Schema) -> None:
    """Refuse a column that is there twice: Arrow finds neither by name, which would look like an absent one."""
    structs = [field.type for field in schema if pa.types.is_struct(field.type)]
    for names in (schema.names, *([field.name for field in each] for each in structs)):
        if len(set(names)) < len(names):
            raise MalformedActionError(
                f"has several fields with the same name: {', '.join(sorted(names))[:100]}"
            )


def _others(file: pq.ParquetFile, where: LogFile) -> list[Any]:
    present = {field.name: field for field in file.schema_arrow if pa.types.is_struct(field.type)}
    wanted = [kind for kind in _OTHERS if kind.key in present]
    if not wanted:
        return []
    found: dict[str, list[Any]] = {kind.key: [] for kind in wanted}
    for batch in file.iter_batches(batch_size=_BATCH_ROWS, columns=list(found)):
        for kind in wanted:
            column = batch.column(kind.key)
            named = pc.is_valid(pc.struct_field(column, _FIRST_FIELD[kind.key]))
            if kind is Sidecar:
                _check_absent(column.filter(pc.invert(named)), "sizeInBytes", where)
            rows = column.filter(named)
            found[kind.key] += [kind.from_json(_plain(value, column.type)) for value in rows.to_pylist()]
    return [action for actions in found.values() for action in actions]


def _plain(value: Any, kind: pa.DataType) -> Any:
    """Return a value of ``to_pylist`` as JSON would have it: maps come as lists of pairs."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {field.name: _plain(value[field.name], field.type) for field in kind}
    return dict(value) if pa.types.is_map(kind) else value


def _add_batches(file: pq.ParquetFile, where: LogFile) -> Iterator[pa.RecordBatch]:
    schema = file.schema_arrow
    position = schema.get_field_index("add")
    if position < 0 or not pa.types.is_struct(schema.field(position).type):
        return
    present = {field.name for field in schema.field(position).type}
    if "path" not in present:
        raise where.corrupt("has a column 'add' without 'path'")
    wanted = [name for name in _ADD_FIELDS.values() if name in present]
    wanted += ["partitionValues_parsed"] if "partitionValues_parsed" in present else []
    wanted += [STATS_PARSED] if STATS_PARSED in present else []
    with _telling(where):
        yield from _read_adds(file, wanted, where)


def _read_adds(file: pq.ParquetFile, fields: Sequence[str], where: LogFile) -> Iterator[pa.RecordBatch]:
    columns = [f"add.{name}" for name in fields]
    for batch in file.iter_batches(batch_size=_BATCH_ROWS, columns=columns):
        adds = batch.column(0)
        added = pc.is_valid(pc.struct_field(adds, "path"))
        if not pc.all(added).as_py():
            _check_absent(adds.filter(pc.invert(added)), "size", where)
            adds = adds.filter(added)
        if len(adds):
            yield _files(adds, where)


def _check_absent(actions: pa.StructArray, field: str, where: LogFile) -> None:
    """Refuse an action of which only the path is null: passing over it would lose a file."""
    # Not actions.field(): below an absent action, a field that the file requires is there and not null.
    if actions.type.get_field_index(field) >= 0 and pc.struct_field(actions, field).null_count < len(actions):
        raise where.corrupt("has a file action without 'path'")


def _files(adds: pa.StructArray, where: LogFile) -> pa.RecordBatch:
    found = {field.name: adds.field(index) for index, field in enumerate(adds.type)}
    count = len(adds)
    columns: dict[str, pa.Array] = {}
    for name, spelling in _ADD_FIELDS.items():
        kind = FILES_SCHEMA.field(name).type
        if name == "deletion_vector":
            columns[name] = _deletion_vectors(found.get(spelling), count, where)
        elif spelling in found:
            columns[name] = found[spelling].cast(kind)
        else:
            columns[name] = pa.nulls(count, kind)
    if STATS_PARSED in found and columns["stats"].null_count:
        columns["stats"] = pc.coalesce(columns["stats"], stats_json(found[STATS_PARSED]))
    columns["num_records"] = num_records_from_stats(columns["stats"])
    if columns["partition_values"].null_count:
        parsed = found.get("partitionValues_parsed")
        columns["partition_values"] = _without_null_maps(columns["partition_values"], parsed)
    for name in ("size", "modification_time"):
        if columns[name].null_count:
            raise where.corrupt(f"has an 'add' action without '{_ADD_FIELDS[name]}'")
    batch = pa.RecordBatch.from_arrays([columns[name] for name in FILES_SCHEMA.names], schema=FILES_SCHEMA)
    if STATS_PARSED in found:
        batch = batch.append_column(STATS_PARSED, found[STATS_PARSED])
    batch.validate(full=True)  # Arrow reads text without looking whether it is UTF-8
    return batch


def _without_null_maps(maps: pa.MapArray, parsed: pa.StructArray | None) -> pa.Array:
    """Return maps of text, from typed columns where there is no map."""
    typed = [[]] * len(maps) if parsed is None else partition_values(parsed).to_pylist()
    rows = zip(maps.to_pylist(), typed, strict=True)
    return pa.array([other if pairs is None else pairs for pairs, other in rows], TEXT_MAP)


def _deletion_vectors(found: pa.StructArray | None, count: int, where: LogFile) -> pa.Array:
    if found is None:
        return pa.nulls(count, DELETION_VECTOR)
    names: Mapping[str, int] = {field.name: index for index, field in enumerate(found.type)}
    parts = found.flatten()
    columns = []
    for field in DELETION_VECTOR:
        part = parts[names[field.name]] if field.name in names else pa.nulls(count, field.type)
        columns.append(part.cast(field.type))
    kind, text, offset, size, cardinality = columns
    # Some writers leave a struct of empty text where there is no deletion vector.
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
        row = found.filter(bad)[0].as_py()
        raise where.corrupt(f"has an 'add' action whose deletion vector cannot be used: {str(row)[:200]}")
    return pa.StructArray.from_arrays(columns, fields=list(DELETION_VECTOR), mask=absent)
