"""A table at one version.

Tested in `tests/unit/kernel/snapshot/test_replay.py` and
`tests/integration/service/snapshots/test_loader.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from delvec_errors import CorruptLog, InvalidSchema, UnsupportedTable
from delvec_kernel.actions.action_json import LogFile
from delvec_kernel.actions.actions import AddFile, DomainMetadata, Metadata, Protocol, Txn
from delvec_kernel.features.table_features import deletes_by_vector
from delvec_kernel.file_index.live_files import LiveFiles
from delvec_kernel.schema.column_mapping import check_mapping, is_mapped, without_physical_names
from delvec_kernel.schema.partition_values import check_partition_columns
from delvec_kernel.schema.types import StructType
from delvec_kernel.snapshot.replay import Commit, ReplayState, replay
from delvec_kernel.table_properties import IN_COMMIT_TIMESTAMPS, is_true

__all__ = ["Snapshot"]


@dataclass(frozen=True, eq=False)
class Snapshot:
    """A table at one version; immutable and shared between threads.

    Attributes:
        location: the table's canonical location.
        timestamp: the timestamp of the commit, milliseconds since the epoch.
        in_commit_timestamp: the commit's own timestamp, if it has one.
        checkpoint_version: the version of the newest checkpoint up to this version, or None.
    """

    location: str
    version: int
    timestamp: int
    protocol: Protocol
    metadata: Metadata
    live: LiveFiles
    txns: Mapping[str, Txn]
    domain_metadata: Mapping[str, DomainMetadata]
    in_commit_timestamp: int | None
    checkpoint_version: int | None

    @classmethod
    def of(
        cls,
        state: ReplayState,
        where: LogFile,
        *,
        version: int,
        file_time: int,
        checkpoint_version: int | None,
    ) -> "Snapshot":
        """Return the snapshot of a replayed log.

        Args:
            state: after the last commit.
            where: the last file that was read, for errors.
            version: the version of the last commit.
            file_time: when that commit's file was written, milliseconds since the epoch.
            checkpoint_version: the version of the newest checkpoint up to ``version``, or None.

        Raises:
            CorruptLog: there is no protocol, no metadata or no schema.
        """
        if state.protocol is None or state.metadata is None or not state.metadata.schema_string:
            missing = (
                "protocol" if state.protocol is None else "metadata" if state.metadata is None else "schema"
            )
            raise CorruptLog(
                f"The log of table '{where.table}' contains no {missing} up to version {version} "
                f"({where.name}), so the table cannot be read; restore the log from a backup.",
                table=where.table,
                version=version,
                file=where.name,
            )
        enabled = is_true(state.metadata.configuration, IN_COMMIT_TIMESTAMPS)
        stamped = state.in_commit_timestamp if enabled else None
        return cls(
            location=state.live.location,
            version=version,
            timestamp=file_time if stamped is None else stamped,
            protocol=state.protocol,
            metadata=state.metadata,
            live=state.live,
            txns=state.txns,
            domain_metadata=state.domain_metadata,
            in_commit_timestamp=state.in_commit_timestamp,
            checkpoint_version=checkpoint_version,
        )

    @classmethod
    def before_first(cls, location: str, protocol: Protocol, metadata: Metadata) -> "Snapshot":
        """Return the state before version 0 of a table, with its definition: version -1, without files."""
        return cls(
            location=location,
            version=-1,
            timestamp=0,
            protocol=protocol,
            metadata=metadata,
            live=LiveFiles(location),
            txns={},
            domain_metadata={},
            in_commit_timestamp=None,
            checkpoint_version=None,
        )

    def after(
        self, commits: list[Commit], *, file_time: int, checkpoint_version: int | None = None
    ) -> "Snapshot":
        """Return the snapshot after further commits; costs O(their actions).

        Args:
            commits: at least one, following this version without gaps.
            file_time: when the last commit file was written, milliseconds since the epoch.
            checkpoint_version: the version of a checkpoint newer than this version, if there is one.

        Raises:
            CorruptLog: see :func:`~delvec_kernel.snapshot.replay.replay`.
        """
        before = ReplayState(
            self.live,
            self.protocol,
            self.metadata,
            self.txns,
            self.domain_metadata,
            self.in_commit_timestamp,
        )
        snapshot = Snapshot.of(
            replay(before, commits),
            commits[-1].where,
            version=self.version + len(commits),
            file_time=max(file_time, self.timestamp + 1),
            checkpoint_version=self.checkpoint_version if checkpoint_version is None else checkpoint_version,
        )
        return self._with_schema(snapshot)

    def with_checkpoint(self, version: int) -> "Snapshot":
        """Return the snapshot with the version of a newer checkpoint."""
        return self._with_schema(replace(self, checkpoint_version=version))

    def _with_schema(self, other: "Snapshot") -> "Snapshot":
        """Reuse the other snapshot's parsed schema if unchanged, as it nearly always is."""
        if "schema" in self.__dict__ and other.metadata == self.metadata:
            other.__dict__["schema"] = self.schema
        return other

    # --- table definition -------------------------------------------------------------------------------

    @cached_property
    def schema(self) -> StructType:
        """The schema including partition columns, with physical names only under column mapping.

        Raises:
            UnsupportedTable: Delvec does not know a type.
            CorruptLog: the schema cannot be parsed, or has no such partition columns.
        """
        try:
            schema = _schema(self.metadata.schema_string, self.metadata.configuration)
            check_partition_columns(schema, self.partition_columns)
        except InvalidSchema as error:
            kind: Any = UnsupportedTable if error.details.get("type") else CorruptLog
            raise kind(
                f"The schema of the table at {self.location}, version {self.version}, cannot be used: "
                f"{error.message}.",
                **{"version": self.version, "location": self.location, **error.details},
            ) from error
        return schema

    @property
    def partition_columns(self) -> tuple[str, ...]:
        """Names of the partition columns, in order."""
        return self.metadata.partition_columns

    @property
    def configuration(self) -> Mapping[str, str]:
        """The table properties."""
        return self.metadata.configuration

    @property
    def dv_enabled(self) -> bool:
        """Whether writers may write deletion vectors: the feature is supported and enabled."""
        return deletes_by_vector(self.protocol.writer_features, self.configuration)

    @property
    def append_only(self) -> bool:
        """Whether rows may not be deleted or updated."""
        return is_true(self.configuration, "delta.appendOnly")

    @property
    def cdf_enabled(self) -> bool:
        """Whether the change data feed is enabled."""
        return is_true(self.configuration, "delta.enableChangeDataFeed")

    @property
    def in_commit_timestamps_enabled(self) -> bool:
        """Whether in-commit timestamps are enabled."""
        return is_true(self.configuration, IN_COMMIT_TIMESTAMPS)

    @property
    def commits_since_checkpoint(self) -> int:
        """Commits after the newest checkpoint, which readers must replay."""
        return self.version - (-1 if self.checkpoint_version is None else self.checkpoint_version)

    # --- files ------------------------------------------------------------------------------------------

    @property
    def files(self) -> pa.Table:
        """All live files as a new FILES_SCHEMA table; prefer ``live`` for parts of it."""
        return self.live.table

    def file(self, path: str) -> AddFile | None:
        """Return the live file with this path, in any spelling, or None."""
        return self.live.find(path)

    @property
    def num_files(self) -> int:
        """The number of live files."""
        return self.live.counts.num_files

    @property
    def size_in_bytes(self) -> int:
        """Total size of the live files, without deletion vectors."""
        return self.live.counts.size_in_bytes

    @property
    def num_deletion_vectors(self) -> int:
        """Live files with a deletion vector."""
        return self.live.counts.num_deletion_vectors

    @property
    def num_deleted_rows(self) -> int:
        """Total cardinality of the deletion vectors."""
        return self.live.counts.num_deleted_rows

    @property
    def num_records(self) -> int | None:
        """Physical rows, including deleted ones; None if unknown for a file."""
        return self.live.counts.num_records

    @property
    def num_rows(self) -> int | None:
        """Live rows; None if unknown for a file."""
        return self.live.counts.num_rows


def _schema(text: str, configuration: Mapping[str, str]) -> StructType:
    schema = StructType.from_json(text)
    if not is_mapped(configuration):
        # Ignore physical names left over from an earlier column mapping.
        return without_physical_names(schema)
    check_mapping(schema, configuration)
    return schema
