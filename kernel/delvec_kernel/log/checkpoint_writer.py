"""Writes checkpoints (PROTOCOL.md, "Checkpoints"): columnar, one Parquet row group at a time.

Nothing loops over files in Python or holds more than one row group, so a table of a million files is written in the
memory of about ten thousand.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from delvec_kernel.actions.action_json import json_text, present
from delvec_kernel.actions.actions import DomainMetadata, Metadata, Protocol, Sidecar, Txn
from delvec_kernel.file_index.file_rows import DELETION_VECTOR, TEXT_MAP
from delvec_kernel.file_index.segment_parts import joined
from delvec_kernel.log.log_policy import LogPolicy
from delvec_kernel.log.tombstones import TOMBSTONES
from delvec_kernel.log.typed_columns import TypedPartitionValues, TypedStatistics
from delvec_kernel.snapshot.snapshot import Snapshot
from delvec_kernel.statistics.file_statistics import with_plain_text

__all__ = [
    "LAST_CHECKPOINT",
    "ROW_GROUP",
    "CheckpointFile",
    "CheckpointForm",
    "LastCheckpoint",
    "OtherActions",
    "hinted_version",
    "row_groups",
]

ROW_GROUP: Final = 32 * 1024
"""Files per row group; statistics of eleven columns then take about 30 MB."""

_ROW_GROUP_BYTES: Final = 512 * 1024 * 1024
"""Maximum bytes per row group: an Arrow string column is limited to 2 GiB, which statistics of very wide tables exceed."""

_MANY_FILES: Final = 100_000
"""Beyond this many files, typed statistics are written only if the table requests them: parsing takes longer (20 s for a
million files) than it saves for readers, who can parse the text instead."""

_TEXTS: Final = pa.list_(pa.field("element", pa.string()))
_PROTOCOL: Final = pa.struct(
    [
        ("minReaderVersion", pa.int32()),
        ("minWriterVersion", pa.int32()),
        ("readerFeatures", _TEXTS),
        ("writerFeatures", _TEXTS),
    ]
)
_METADATA: Final = pa.struct(
    [
        ("id", pa.string()),
        ("name", pa.string()),
        ("description", pa.string()),
        ("format", pa.struct([("provider", pa.string()), ("options", TEXT_MAP)])),
        ("schemaString", pa.string()),
        ("partitionColumns", _TEXTS),
        ("configuration", TEXT_MAP),
        ("createdTime", pa.int64()),
    ]
)
_TXN: Final = pa.struct([("appId", pa.string()), ("version", pa.int64()), ("lastUpdated", pa.int64())])
_DOMAIN: Final = pa.struct([("domain", pa.string()), ("configuration", pa.string()), ("removed", pa.bool_())])
_MANIFEST: Final = pa.struct([("version", pa.int64()), ("tags", TEXT_MAP)])
_SIDECAR: Final = pa.struct(
    [
        ("path", pa.string()),
        ("sizeInBytes", pa.int64()),
        ("modificationTime", pa.int64()),
        ("tags", TEXT_MAP),
    ]
)
_REMOVE: Final = pa.struct(
    [TOMBSTONES.field("path"), TOMBSTONES.field("deletionTimestamp"), pa.field("dataChange", pa.bool_())]
    + [field for field in TOMBSTONES if field.name not in ("path", "deletionTimestamp")]
)
_ADD: Final[Mapping[str, tuple[str, pa.DataType]]] = {
    "path": ("path", pa.string()),
    "partitionValues": ("partition_values", TEXT_MAP),
    "size": ("size", pa.int64()),
    "modificationTime": ("modification_time", pa.int64()),
    "dataChange": ("", pa.bool_()),
    "tags": ("tags", TEXT_MAP),
    "deletionVector": ("deletion_vector", DELETION_VECTOR),
    "baseRowId": ("base_row_id", pa.int64()),
    "defaultRowCommitVersion": ("default_row_commit_version", pa.int64()),
    "clusteringProvider": ("clustering_provider", pa.string()),
}


@dataclass(frozen=True)
class OtherActions:
    """The actions in a checkpoint other than file actions.

    Attributes:
        sidecars: the sidecars of a V2 checkpoint; None for a classic one.
        version: the version of the checkpoint.
    """

    protocol: Protocol
    metadata: Metadata
    txns: Sequence[Txn]
    domains: Sequence[DomainMetadata]
    version: int
    sidecars: Sequence[Sidecar] | None = None

    @classmethod
    def of(cls, snapshot: Snapshot, policy: LogPolicy, now: int) -> "OtherActions":
        """Take the actions from a snapshot, without transaction identifiers that have expired at ``now`` (ms)."""
        retention = policy.transaction_retention
        oldest = None if retention is None else now - retention.total_seconds() * 1000
        txns = [
            txn
            for txn in snapshot.txns.values()
            # Keep those without a timestamp.
            if oldest is None or txn.last_updated is None or txn.last_updated > oldest
        ]
        domains = list(snapshot.domain_metadata.values())
        return cls(snapshot.protocol, snapshot.metadata, txns, domains, snapshot.version)

    def with_sidecars(self, sidecars: Sequence[Sidecar]) -> "OtherActions":
        """Return the actions in the manifest of a V2 checkpoint."""
        return replace(self, sidecars=sidecars)

    @property
    def rows(self) -> list[tuple[str, dict[str, Any]]]:
        """Return the actions as (name in the log, struct for Arrow)."""
        v2: list[tuple[str, dict[str, Any]]] = []
        if self.sidecars is not None:
            v2 = [("checkpointMetadata", {"version": self.version, "tags": None})]
            v2 += [("sidecar", sidecar.to_json()) for sidecar in self.sidecars]
        return [
            *v2,
            ("protocol", self.protocol.to_json()),
            ("metaData", self.metadata.to_json()),
            *(("txn", txn.to_json()) for txn in self.txns),
            *(("domainMetadata", domain.to_json()) for domain in self.domains),
        ]


class CheckpointForm:
    """The schema of a checkpoint's files, the same for all of its parts.

    Args:
        snapshot: the version to write.
        policy: the statistics to write, and their format.
        typed_partition_values: False to omit typed partition values, see :meth:`can_type`.
    """

    def __init__(self, snapshot: Snapshot, policy: LogPolicy, *, typed_partition_values: bool = True) -> None:
        self.v2 = policy.v2
        stats_as_struct = policy.stats_as_struct
        if stats_as_struct is None:
            stats_as_struct = snapshot.num_files <= _MANY_FILES
        self._stats_as_json = policy.stats_as_json or not stats_as_struct
        self._statistics: TypedStatistics | None = None
        self._partition_values: TypedPartitionValues | None = None
        if stats_as_struct:
            partition_columns = snapshot.partition_columns
            self._statistics = TypedStatistics(snapshot.schema, partition_columns, snapshot.configuration)
            if partition_columns and typed_partition_values:
                self._partition_values = TypedPartitionValues(snapshot.schema, partition_columns)
        fields = [(name, kind) for name, (_, kind) in _ADD.items()]
        if self._stats_as_json:
            fields.append(("stats", pa.string()))
        if self._statistics is not None:
            fields.append(("stats_parsed", self._statistics.type))
        if self._partition_values is not None:
            fields.append(("partitionValues_parsed", self._partition_values.type))
        self._add = pa.struct(fields)

    @property
    def has_typed_partition_values(self) -> bool:
        """Whether the checkpoint has partition values as typed columns."""
        return self._partition_values is not None

    def can_type(self, files: pa.RecordBatch) -> bool:
        """Whether typed partition values can represent these files' values exactly."""
        if self._partition_values is None:
            return True
        return self._partition_values.parse(files.column("partition_values")) is not None

    def file_schema(self) -> pa.Schema:
        """The schema of a file with file actions, such as a sidecar."""
        columns = [("add", self._add), ("remove", _REMOVE)]
        return pa.schema(columns if self.v2 else [*columns, *_OTHER_ACTIONS.items()])

    def manifest_schema(self) -> pa.Schema:
        """The schema of a V2 checkpoint's manifest; it includes empty file actions, which delta-spark expects."""
        others = [*_OTHER_ACTIONS.items(), ("checkpointMetadata", _MANIFEST), ("sidecar", _SIDECAR)]
        return pa.schema([("add", self._add), ("remove", _REMOVE), *others])

    def adds(self, files: pa.RecordBatch) -> pa.StructArray:
        """Return rows of FILES_SCHEMA as ``add`` actions."""
        columns: dict[str, pa.Array] = {
            name: files.column(source) if source else _false(files.num_rows)
            for name, (source, _) in _ADD.items()
        }
        if self._stats_as_json:
            columns["stats"] = _with_plain_text(files.column("stats"))
        if self._statistics is not None:
            columns["stats_parsed"] = self._statistics.parse(
                files.column("stats"), files.column("num_records")
            )
        if self._partition_values is not None:
            parsed = self._partition_values.parse(files.column("partition_values"))
            assert parsed is not None  # noqa: S101 - by can_type
            columns["partitionValues_parsed"] = parsed
        arrays = [columns[field.name] for field in self._add]
        return pa.StructArray.from_arrays(arrays, fields=list(self._add))


_OTHER_ACTIONS: Final[Mapping[str, pa.DataType]] = {
    "txn": _TXN,
    "metaData": _METADATA,
    "protocol": _PROTOCOL,
    "domainMetadata": _DOMAIN,
}


class CheckpointFile:
    """One Parquet file of a checkpoint, being written; a context manager to close before the sink.

    Attributes:
        adds: adds written so far.
        removes: tombstones written so far.
        others: other actions written so far.
    """

    def __init__(self, sink: Any, form: CheckpointForm, *, manifest: bool = False) -> None:
        """Open the file.

        Args:
            sink: a file open for writing.
            form: of the checkpoint.
            manifest: whether it is the manifest of a V2 checkpoint, not a classic checkpoint or a sidecar.
        """
        self._form = form
        self._schema = form.manifest_schema() if manifest else form.file_schema()
        # All Delta readers support Snappy. Dictionaries only for repetitive columns, since unique text just fills them.
        self._writer = pq.ParquetWriter(
            sink,
            self._schema,
            compression="snappy",
            use_dictionary=_dictionaries(self._schema),
            store_schema=False,
        )
        self.adds = self.removes = self.others = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # Otherwise an abandoned writer would write its footer on garbage collection, to a closed sink.
        with suppress(Exception):
            self._writer.close()

    def __len__(self) -> int:
        return self.adds + self.removes + self.others

    def write_adds(self, files: pa.RecordBatch) -> None:
        """Write rows of FILES_SCHEMA as a row group."""
        if files.num_rows:
            self._write("add", self._form.adds(files))
            self.adds += files.num_rows

    def write_removes(self, tombstones: pa.RecordBatch) -> None:
        """Write rows of TOMBSTONES as a row group."""
        if not tombstones.num_rows:
            return
        columns = {field.name: tombstones.column(field.name) for field in TOMBSTONES}
        columns["dataChange"] = _false(tombstones.num_rows)
        arrays = [columns[field.name] for field in _REMOVE]
        self._write("remove", pa.StructArray.from_arrays(arrays, fields=list(_REMOVE)))
        self.removes += tombstones.num_rows

    def write_others(self, actions: OtherActions) -> None:
        """Write all other actions as a row group."""
        rows = [{name: value} for name, value in actions.rows]
        columns = [
            pa.array([_pairs(row.get(field.name), field.type) for row in rows], field.type)
            for field in self._schema
        ]
        self._writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=self._schema))
        self.others += len(rows)

    def close(self) -> None:
        """Write the Parquet footer."""
        self._writer.close()

    def _write(self, name: str, actions: pa.StructArray) -> None:
        columns = [
            actions if field.name == name else pa.nulls(len(actions), field.type) for field in self._schema
        ]
        self._writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=self._schema))


def row_groups(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Regroup rows into batches of about ROW_GROUP rows, since many small row groups make an expensive footer."""
    waiting: list[pa.RecordBatch] = []
    count = nbytes = 0
    for batch in batches:
        for start in range(0, batch.num_rows, ROW_GROUP):
            part = batch.slice(start, ROW_GROUP)
            full = count + part.num_rows > ROW_GROUP or nbytes + part.nbytes > _ROW_GROUP_BYTES
            if waiting and full:
                yield joined(waiting)
                waiting, count, nbytes = [], 0, 0
            waiting.append(part)
            count += part.num_rows
            nbytes += part.nbytes
    if waiting:
        yield joined(waiting)


def _with_plain_text(stats: pa.StringArray) -> pa.StringArray:
    escaped = pc.fill_null(pc.match_substring(stats, "\\u"), fill_value=False)
    if not pc.any(escaped).as_py():
        return stats
    plain = [with_plain_text(text) for text in stats.filter(escaped).to_pylist()]
    return pc.replace_with_mask(stats, escaped, pa.array(plain, stats.type))


def _false(length: int) -> pa.Array:
    return pa.repeat(pa.scalar(value=False), length)


def _pairs(value: Any, kind: pa.DataType) -> Any:
    """Convert a JSON value for Arrow: maps become lists of pairs."""
    if value is None:
        return None
    if pa.types.is_map(kind):
        return list(value.items())
    if pa.types.is_struct(kind):
        return {field.name: _pairs(value.get(field.name), field.type) for field in kind}
    return value


def _dictionaries(schema: pa.Schema) -> list[str]:
    """Return the paths of columns with repetitive values."""
    unique = {"add.path", "add.stats", "remove.path", "add.size", "add.modificationTime", "remove.size"}
    dictionary_columns: list[str] = []
    waiting = [(field.name, field.type) for field in schema]
    while waiting:
        name, kind = waiting.pop()
        if pa.types.is_struct(kind):
            waiting += [(f"{name}.{field.name}", field.type) for field in kind]
        elif pa.types.is_map(kind):
            dictionary_columns += [f"{name}.key_value.key", f"{name}.key_value.value"]
        elif pa.types.is_list(kind):
            dictionary_columns.append(f"{name}.list.element")
        elif name not in unique and not pa.types.is_boolean(kind):
            dictionary_columns.append(name)
    return dictionary_columns


LAST_CHECKPOINT: Final = "_last_checkpoint"
_UNKNOWN: Final = -1


@dataclass(frozen=True)
class LastCheckpoint:
    """The content of ``_last_checkpoint``.

    Attributes:
        size: number of actions, including those in sidecars; None if not counted.
        size_in_bytes: the size in bytes of all files, including sidecars.
        num_of_add_files: live files.
        parts: the parts of a multi-part checkpoint.
        manifest: name, bytes and modification time (milliseconds since the epoch) of a V2 checkpoint's top-level file.
    """

    version: int
    size: int | None = None
    size_in_bytes: int | None = None
    num_of_add_files: int | None = None
    parts: int | None = None
    manifest: tuple[str, int, int] | None = None

    def serialize(self) -> bytes:
        """Return the content of the file."""
        v2: Mapping[str, Any] | None = None
        if self.manifest is not None:
            name, size, time = self.manifest
            v2 = {"path": name, "sizeInBytes": size, "modificationTime": time}
        document = present(
            version=self.version,
            size=_UNKNOWN if self.size is None else self.size,
            parts=self.parts,
            sizeInBytes=self.size_in_bytes,
            numOfAddFiles=self.num_of_add_files,
            v2Checkpoint=v2,
        )
        return json_text(document).encode()


def hinted_version(data: bytes) -> int | None:
    """Return the version in a hint; None if the hint is invalid."""
    try:
        version = json.loads(data)["version"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    usable = isinstance(version, int) and not isinstance(version, bool) and 0 <= version < 2**63
    return version if usable else None
