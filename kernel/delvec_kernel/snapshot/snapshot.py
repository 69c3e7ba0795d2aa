"""A table at one version."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from delvec_kernel.actions.action_json import LogFile
from delvec_kernel.actions.actions import AddFile, DomainMetadata, Metadata, Protocol, Txn
from delvec_kernel.errors import CorruptLog, InvalidSchema, UnsupportedTable
from delvec_kernel.file_index.live_files import LiveFiles
from delvec_kernel.schema.column_mapping import is_mapped, without_physical_names
from delvec_kernel.schema.types import StructType
from delvec_kernel.snapshot.replay import Commit, ReplayState, replay
from delvec_kernel.table_properties import is_true

__all__ = ["Snapshot"]


@dataclass(frozen=True, eq=False)
class Snapshot:
    """One version; immutable and shared between threads.

    Attributes:
        location: the table's canonical location.
        timestamp: when the version was committed, milliseconds since the epoch.
        in_commit_timestamp: the same as the commit itself says, where it does.
        checkpoint_version: the version of the newest checkpoint that is not newer, None without one.
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
            version: of the last commit.
            file_time: when that commit's file was written, milliseconds since the epoch.
            checkpoint_version: of the newest checkpoint up to ``version``.

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
        enabled = is_true(state.metadata.configuration, "delta.enableInCommitTimestamps")
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

    def after(
        self, commits: list[Commit], *, file_time: int, checkpoint_version: int | None = None
    ) -> "Snapshot":
        """Return the snapshot that the next commits lead to; costs what they hold.

        Args:
            commits: at least one; they follow this version without a gap.
            file_time: when the last one's file was written, milliseconds since the epoch.
            checkpoint_version: of a checkpoint that is newer than this version, if there is one.

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
        found = Snapshot.of(
            replay(before, commits),
            commits[-1].where,
            version=self.version + len(commits),
            file_time=max(file_time, self.timestamp + 1),
            checkpoint_version=self.checkpoint_version if checkpoint_version is None else checkpoint_version,
        )
        return self._with_schema(found)

    def with_checkpoint(self, version: int) -> "Snapshot":
        """Return the same snapshot, knowing of a newer checkpoint."""
        return self._with_schema(replace(self, checkpoint_version=version))

    def _with_schema(self, other: "Snapshot") -> "Snapshot":
        """Hand the parsed schema on: the versions of a table nearly always have the same one."""
        if "schema" in self.__dict__ and other.metadata == self.metadata:
            other.__dict__["schema"] = self.schema
        return other

    # --- what the table is ------------------------------------------------------------------------------

    @cached_property
    def schema(self) -> StructType:
        """The schema, partition columns included; physical names are there only where columns are mapped.

        Raises:
            UnsupportedTable: it has a type that Delvec does not know.
            CorruptLog: it is not a schema.
        """
        try:
            return _schema(self.metadata.schema_string, is_mapped(self.metadata.configuration))
        except InvalidSchema as error:
            kind: Any = UnsupportedTable if error.details.get("type") else CorruptLog
            raise kind(
                f"The schema of the table at {self.location}, version {self.version}, cannot be used: "
                f"{error.message}.",
                **{"version": self.version, "location": self.location, **error.details},
            ) from error

    @property
    def partition_columns(self) -> tuple[str, ...]:
        """By name, in order."""
        return self.metadata.partition_columns

    @property
    def configuration(self) -> Mapping[str, str]:
        """The table's properties."""
        return self.metadata.configuration

    @property
    def dv_enabled(self) -> bool:
        """Whether writers may write deletion vectors: the feature is supported, and turned on."""
        features = self.protocol.writer_features or ()
        return "deletionVectors" in features and is_true(self.configuration, "delta.enableDeletionVectors")

    @property
    def append_only(self) -> bool:
        """Whether rows may be added but never removed."""
        return is_true(self.configuration, "delta.appendOnly")

    @property
    def cdf_enabled(self) -> bool:
        """Whether the change data feed is on."""
        return is_true(self.configuration, "delta.enableChangeDataFeed")

    @property
    def in_commit_timestamps_enabled(self) -> bool:
        """Whether every commit has to say when it was made."""
        return is_true(self.configuration, "delta.enableInCommitTimestamps")

    @property
    def commits_since_checkpoint(self) -> int:
        """Commits that a reader has to read after the newest checkpoint."""
        return self.version - (-1 if self.checkpoint_version is None else self.checkpoint_version)

    # --- its files --------------------------------------------------------------------------------------

    @property
    def files(self) -> pa.Table:
        """The live files, FILES_SCHEMA, made anew each time: for those who need all of it."""
        return self.live.table

    def file(self, path: str) -> AddFile | None:
        """Return the live file of that path, in any spelling, or None."""
        return self.live.find(path)

    @property
    def num_files(self) -> int:
        """Live files."""
        return self.live.counts.num_files

    @property
    def size_in_bytes(self) -> int:
        """Bytes of the live files, without deletion vectors."""
        return self.live.counts.size_in_bytes

    @property
    def num_deletion_vectors(self) -> int:
        """Live files that have one."""
        return self.live.counts.num_deletion_vectors

    @property
    def num_deleted_rows(self) -> int:
        """Rows that deletion vectors hold."""
        return self.live.counts.num_deleted_rows

    @property
    def num_records(self) -> int | None:
        """Physical rows, deleted ones included; None where a file has no statistics."""
        return self.live.counts.num_records

    @property
    def num_rows(self) -> int | None:
        """Live rows; None where the statistics of a file do not say how many it has."""
        return self.live.counts.num_rows


def _schema(text: str, mapped: bool) -> StructType:
    schema = StructType.from_json(text)
    # Where mapping is off, names of an earlier one may be left over, and mean nothing.
    return schema if mapped else without_physical_names(schema)
