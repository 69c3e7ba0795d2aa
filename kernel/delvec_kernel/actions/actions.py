"""Commit provenance: who committed a version, how and when (PROTOCOL.md, "Commit Provenance Information")."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Self, TypeAlias, TypeVar

from delvec_kernel.actions.action_json import (
    present,
    read_boolean,
    read_descriptor,
    read_integer,
    read_map,
    read_object,
    read_text,
    read_texts,
    required_integer,
    required_path,
    required_text,
)
from delvec_kernel.deletion_vectors.deletion_vector import Descriptor
from delvec_kernel.statistics.file_statistics import with_plain_text

__all__ = [
    "Action",
    "AddFile",
    "Cdc",
    "CheckpointMetadata",
    "CommitInfo",
    "DomainMetadata",
    "Metadata",
    "Protocol",
    "RemoveFile",
    "Sidecar",
    "Txn",
    "first_of",
]


@dataclass(frozen=True, slots=True)
class CommitInfo:
    """Provenance of a commit. Only history and in-commit timestamps depend on it.

    Attributes:
        in_commit_timestamp: milliseconds since the epoch.
        timestamp: the writer's clock, milliseconds since the epoch.
        extra: all other fields, as in the log.
    """

    key: ClassVar[str] = "commitInfo"
    in_commit_timestamp: int | None = None
    timestamp: int | None = None
    operation: str | None = None
    operation_parameters: Mapping[str, Any] | None = None
    read_version: int | None = None
    isolation_level: str | None = None
    is_blind_append: bool | None = None
    operation_metrics: Mapping[str, Any] | None = None
    user_metadata: str | None = None
    tags: Mapping[str, Any] | None = None
    engine_info: str | None = None
    txn_id: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Read the object under ``commitInfo``; fields of an unexpected type go to ``extra``."""
        attributes: dict[str, Any] = {}
        extra = {}
        for name, found in value.items():
            attribute, kind = _COMMIT_INFO.get(name, ("", object))
            if attribute and isinstance(found, kind) and not (kind is int and isinstance(found, bool)):
                attributes[attribute] = found
            elif found is not None:
                extra[name] = found
        return cls(**attributes, extra=extra)

    def to_json(self) -> dict[str, Any]:
        """Return the object under ``commitInfo``."""
        attributes = {name: getattr(self, attribute) for name, (attribute, _) in _COMMIT_INFO.items()}
        return present(**attributes) | dict(self.extra)


_COMMIT_INFO: Final[Mapping[str, tuple[str, type]]] = {
    "inCommitTimestamp": ("in_commit_timestamp", int),
    "timestamp": ("timestamp", int),
    "operation": ("operation", str),
    "operationParameters": ("operation_parameters", dict),
    "readVersion": ("read_version", int),
    "isolationLevel": ("isolation_level", str),
    "isBlindAppend": ("is_blind_append", bool),
    "operationMetrics": ("operation_metrics", dict),
    "userMetadata": ("user_metadata", str),
    "tags": ("tags", dict),
    "engineInfo": ("engine_info", str),
    "txnId": ("txn_id", str),
}


@dataclass(frozen=True, slots=True)
class Protocol:
    """The protocol versions and features that readers and writers must support.

    Attributes:
        reader_features: present from reader version 3 on.
        writer_features: present from writer version 7 on.
    """

    key: ClassVar[str] = "protocol"
    min_reader_version: int
    min_writer_version: int
    reader_features: tuple[str, ...] | None = None
    writer_features: tuple[str, ...] | None = None

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Read the object under ``protocol``."""
        return cls(
            required_integer(value, "minReaderVersion"),
            required_integer(value, "minWriterVersion"),
            read_texts(value, "readerFeatures"),
            read_texts(value, "writerFeatures"),
        )

    def to_json(self) -> dict[str, Any]:
        """Return the object under ``protocol``."""
        return present(
            minReaderVersion=self.min_reader_version,
            minWriterVersion=self.min_writer_version,
            readerFeatures=None if self.reader_features is None else list(self.reader_features),
            writerFeatures=None if self.writer_features is None else list(self.writer_features),
        )


@dataclass(frozen=True, slots=True)
class Metadata:
    """A table's metadata.

    Attributes:
        id: the table's UUID, the same in all versions.
        schema_string: the schema as JSON text; empty if the log lacks it.
        created_time: milliseconds since the epoch.
    """

    key: ClassVar[str] = "metaData"
    id: str
    schema_string: str
    partition_columns: tuple[str, ...] = ()
    configuration: Mapping[str, str] = field(default_factory=dict)
    name: str | None = None
    description: str | None = None
    created_time: int | None = None
    format_provider: str = "parquet"
    format_options: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Read the object under ``metaData``."""
        form = read_object(value, "format") or {}
        return cls(
            id=required_text(value, "id"),
            # This version is then unreadable, but later ones with new metadata need not be.
            schema_string=read_text(value, "schemaString") or "",
            partition_columns=read_texts(value, "partitionColumns") or (),
            configuration={
                name: text or "" for name, text in (read_map(value, "configuration") or {}).items()
            },
            name=read_text(value, "name"),
            description=read_text(value, "description"),
            created_time=read_integer(value, "createdTime"),
            format_provider=read_text(form, "provider") or "parquet",
            format_options={name: text or "" for name, text in (read_map(form, "options") or {}).items()},
        )

    def to_json(self) -> dict[str, Any]:
        """Return the object under ``metaData``."""
        return present(
            id=self.id,
            name=self.name,
            description=self.description,
            format={"provider": self.format_provider, "options": dict(self.format_options)},
            schemaString=self.schema_string,
            partitionColumns=list(self.partition_columns),
            configuration=dict(self.configuration),
            createdTime=self.created_time,
        )


@dataclass(frozen=True, slots=True)
class AddFile:
    """A data file added to the table, or given another deletion vector.

    Attributes:
        path: relative to the table's location or absolute, URL-encoded.
        partition_values: serialized, by physical name.
        size: bytes.
        modification_time: milliseconds since the epoch.
        stats: JSON text.
    """

    key: ClassVar[str] = "add"
    path: str
    partition_values: Mapping[str, str | None]
    size: int
    modification_time: int
    data_change: bool = True
    stats: str | None = None
    tags: Mapping[str, str | None] | None = None
    deletion_vector: Descriptor | None = None
    base_row_id: int | None = None
    default_row_commit_version: int | None = None
    clustering_provider: str | None = None

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Read the object under ``add``."""
        return cls(
            path=required_path(value),
            partition_values=read_map(value, "partitionValues") or {},
            size=required_integer(value, "size"),
            modification_time=required_integer(value, "modificationTime"),
            data_change=read_boolean(value, "dataChange") is not False,
            stats=read_text(value, "stats"),
            tags=read_map(value, "tags"),
            deletion_vector=read_descriptor(value.get("deletionVector")),
            base_row_id=read_integer(value, "baseRowId"),
            default_row_commit_version=read_integer(value, "defaultRowCommitVersion"),
            clustering_provider=read_text(value, "clusteringProvider"),
        )

    def to_json(self) -> dict[str, Any]:
        """Return the object under ``add``."""
        return present(
            path=self.path,
            partitionValues=dict(self.partition_values),
            size=self.size,
            modificationTime=self.modification_time,
            dataChange=self.data_change,
            stats=with_plain_text(self.stats),
            tags=None if self.tags is None else dict(self.tags),
            deletionVector=None if self.deletion_vector is None else self.deletion_vector.to_json(),
            baseRowId=self.base_row_id,
            defaultRowCommitVersion=self.default_row_commit_version,
            clusteringProvider=self.clustering_provider,
        )


@dataclass(frozen=True, slots=True)
class RemoveFile:
    """A data file removed from the table, identified by path and deletion vector.

    Attributes:
        deletion_timestamp: milliseconds since the epoch; the start of the retention period.
        extended_file_metadata: whether partition values and size are present.
    """

    key: ClassVar[str] = "remove"
    path: str
    deletion_timestamp: int | None = None
    data_change: bool = True
    extended_file_metadata: bool | None = None
    partition_values: Mapping[str, str | None] | None = None
    size: int | None = None
    stats: str | None = None
    tags: Mapping[str, str | None] | None = None
    deletion_vector: Descriptor | None = None
    base_row_id: int | None = None
    default_row_commit_version: int | None = None

    @classmethod
    def of(cls, add: AddFile, deletion_timestamp: int, *, data_change: bool = True) -> Self:
        """Return the removal of a live file with its current deletion vector."""
        return cls(
            path=add.path,
            deletion_timestamp=deletion_timestamp,
            data_change=data_change,
            extended_file_metadata=True,
            partition_values=add.partition_values,
            size=add.size,
            stats=add.stats,
            tags=add.tags,
            deletion_vector=add.deletion_vector,
            base_row_id=add.base_row_id,
            default_row_commit_version=add.default_row_commit_version,
        )

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Read the object under ``remove``."""
        return cls(
            path=required_path(value),
            deletion_timestamp=read_integer(value, "deletionTimestamp"),
            data_change=read_boolean(value, "dataChange") is not False,
            extended_file_metadata=read_boolean(value, "extendedFileMetadata"),
            partition_values=read_map(value, "partitionValues"),
            size=read_integer(value, "size"),
            stats=read_text(value, "stats"),
            tags=read_map(value, "tags"),
            deletion_vector=read_descriptor(value.get("deletionVector")),
            base_row_id=read_integer(value, "baseRowId"),
            default_row_commit_version=read_integer(value, "defaultRowCommitVersion"),
        )

    def to_json(self) -> dict[str, Any]:
        """Return the object under ``remove``."""
        return present(
            path=self.path,
            deletionTimestamp=self.deletion_timestamp,
            dataChange=self.data_change,
            extendedFileMetadata=self.extended_file_metadata,
            partitionValues=None if self.partition_values is None else dict(self.partition_values),
            size=self.size,
            stats=with_plain_text(self.stats),
            tags=None if self.tags is None else dict(self.tags),
            deletionVector=None if self.deletion_vector is None else self.deletion_vector.to_json(),
            baseRowId=self.base_row_id,
            defaultRowCommitVersion=self.default_row_commit_version,
        )


@dataclass(frozen=True, slots=True)
class Cdc:
    """A change data file, with rows for the change data feed only."""

    key: ClassVar[str] = "cdc"
    path: str
    partition_values: Mapping[str, str | None]
    size: int
    tags: Mapping[str, str | None] | None = None

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Read the object under ``cdc``."""
        partition_values = read_map(value, "partitionValues") or {}
        return cls(
            required_path(value), partition_values, required_integer(value, "size"), read_map(value, "tags")
        )

    def to_json(self) -> dict[str, Any]:
        """Return the object under ``cdc``."""
        return present(
            path=self.path,
            partitionValues=dict(self.partition_values),
            size=self.size,
            dataChange=False,
            tags=None if self.tags is None else dict(self.tags),
        )


@dataclass(frozen=True, slots=True)
class Txn:
    """An application's transaction identifier and latest version (PROTOCOL.md, "Transaction Identifiers")."""

    key: ClassVar[str] = "txn"
    app_id: str
    version: int
    last_updated: int | None = None

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Read the object under ``txn``."""
        return cls(
            required_text(value, "appId"),
            required_integer(value, "version"),
            read_integer(value, "lastUpdated"),
        )

    def to_json(self) -> dict[str, Any]:
        """Return the object under ``txn``."""
        return present(appId=self.app_id, version=self.version, lastUpdated=self.last_updated)


@dataclass(frozen=True, slots=True)
class DomainMetadata:
    """Configuration of a table feature or a user-defined domain; ``removed`` marks a tombstone."""

    key: ClassVar[str] = "domainMetadata"
    domain: str
    configuration: str
    removed: bool = False

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Read the object under ``domainMetadata``."""
        removed = read_boolean(value, "removed") is True
        return cls(required_text(value, "domain"), read_text(value, "configuration") or "", removed)

    def to_json(self) -> dict[str, Any]:
        """Return the object under ``domainMetadata``."""
        return {"domain": self.domain, "configuration": self.configuration, "removed": self.removed}


@dataclass(frozen=True, slots=True)
class CheckpointMetadata:
    """Marks a V2 checkpoint."""

    key: ClassVar[str] = "checkpointMetadata"
    version: int

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Read the object under ``checkpointMetadata``."""
        return cls(required_integer(value, "version"))

    def to_json(self) -> dict[str, Any]:
        """Return the object under ``checkpointMetadata``."""
        return {"version": self.version}


@dataclass(frozen=True, slots=True)
class Sidecar:
    """A Parquet file that holds the file actions of a V2 checkpoint.

    Attributes:
        path: a file name in ``_delta_log/_sidecars``, or a path or URL, URL-encoded.
    """

    key: ClassVar[str] = "sidecar"
    path: str
    size_in_bytes: int
    modification_time: int

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Read the object under ``sidecar``."""
        return cls(
            required_path(value),
            required_integer(value, "sizeInBytes"),
            required_integer(value, "modificationTime"),
        )

    def to_json(self) -> dict[str, Any]:
        """Return the object under ``sidecar``."""
        return {
            "path": self.path,
            "sizeInBytes": self.size_in_bytes,
            "modificationTime": self.modification_time,
        }


Action: TypeAlias = (
    AddFile
    | RemoveFile
    | Metadata
    | Protocol
    | Txn
    | DomainMetadata
    | CommitInfo
    | Cdc
    | CheckpointMetadata
    | Sidecar
)
_Kind = TypeVar("_Kind", bound=Action)


def first_of(kind: type[_Kind], actions: Iterable[Action]) -> _Kind | None:
    """Return a commit's first action of a kind, None without one."""
    return next((action for action in actions if isinstance(action, kind)), None)
