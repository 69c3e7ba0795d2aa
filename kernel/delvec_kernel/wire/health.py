"""How much care tables need: one of them, all of them, and over time."""

from datetime import datetime
from typing import Literal

from pydantic import Field

from delvec_kernel.wire.shapes import Answer

__all__ = [
    "ColumnOverlap",
    "CommitCounts",
    "FindingFile",
    "HealthListResponse",
    "HealthResponse",
    "HealthSample",
    "HealthSamplesResponse",
    "IcebergHealth",
    "OverlapFile",
    "OverwrittenCommit",
    "PartitionHealth",
    "Recommendation",
    "TableHealth",
]


class FindingFile(Answer):
    """A file that a recommendation is about."""

    path: str = Field(description="As in the log; of a commit below `_delta_log`.")
    size_in_bytes: int
    points: float = Field(description="What it costs the score.")
    gain_bytes: int = Field(
        description="Estimated bytes of it that are not read, or stored, any more afterwards."
    )


class Recommendation(Answer):
    """A finding: what is wrong, what to do, what that brings and costs, and which files it is about."""

    finding: Literal[
        "small-files",
        "deleted-rows",
        "deletion-vector-files",
        "overlapping-files",
        "old-checkpoint",
        "removed-files",
    ] = Field(description="What is wrong.")
    action: Literal["OPTIMIZE", "OPTIMIZE FULL", "PURGE", "DV COMPACTION", "CHECKPOINT", "VACUUM"]
    command: str = Field(description="The same in the shell.")
    points: float = Field(description="What it costs the score of 100.")
    reason: str
    expected_gain: str
    expected_gain_bytes: int | None = Field(
        description="Estimated bytes that a full scan does not read any more, or that storage has free; absent where "
        "there is no such number."
    )
    expected_gain_files: int = Field(description="Files fewer to open, or to store.")
    cost_bytes: int | None = Field(
        description="Bytes that are read and written again; absent where they are not known beforehand."
    )
    num_files: int = Field(description="Files that it is about.")
    files: list[FindingFile] = Field(
        default_factory=list, description="Those that cost most, as many as the request asks for."
    )


class PartitionHealth(Answer):
    """One partition's files."""

    partition_values: dict[str, str | None] = Field(
        description="Per partition column, the value as text; null for NULL."
    )
    num_files: int
    size_in_bytes: int
    num_deleted_rows: int
    deleted_bytes: int
    num_files_with_deletion_vectors: int
    small_files: int = Field(description="Files under 16 MiB.")
    points: float = Field(description="What its files cost the table's score.")


class OverlapFile(Answer):
    """A file whose range in a column meets those of others."""

    path: str = Field(description="As in the log.")
    size_in_bytes: int
    depth: float = Field(
        description="Files that a lookup of a value at its bounds opens, itself included; the average of both bounds."
    )
    overlaps: int = Field(description="Other files whose range meets its own.")


class ColumnOverlap(Answer):
    """How many files a lookup of one value of a column opens, by statistics; files of other partitions do not count."""

    column: str = Field(description="By logical name; fields of structs by their path.")
    average_depth: float | None = Field(
        description="Files that a lookup of a value at a file's bounds opens, on average over the files with bounds: 1 where none "
        "overlap. Absent where no file has bounds."
    )
    max_depth: int | None = Field(description="The most that a lookup opens; absent likewise.")
    average_overlaps: float | None = Field(
        description="Other files whose range meets a file's own, on average; absent likewise."
    )
    num_files: int = Field(description="Files with bounds of the column.")
    unbounded_files: int = Field(description="Files without, which every lookup opens; depths include them.")
    depth_histogram: dict[str, int] = Field(description="Files with bounds, by their depth.")
    files: list[OverlapFile] = Field(
        default_factory=list, description="The deepest, as many as the request asks for."
    )


class OverwrittenCommit(Answer):
    """A commit that took effect and that a writer replaced which does not create versions atomically."""

    version: int
    transaction_id: str = Field(description="Of the commit that is gone; of a group of commits, the group's.")
    by_operation: str | None = Field(
        description="Of the commit in its place, as far as it says; so the next two."
    )
    by_engine: str | None
    by_transaction_id: str | None
    found_at: datetime


class CommitCounts(Answer):
    """What became of the commits that services of this database were asked for, about: a crash loses the latest counts."""

    since: datetime | None = Field(
        description="Since when they are counted; absent where there was none yet."
    )
    committed: int = Field(description="Commits that took effect.")
    rebased: int = Field(
        description="Of them, those that did so on a newer version than the one that they read."
    )
    rows_saved: int = Field(description="Rows that those changed: nobody had to look for them again.")
    conflicts: int = Field(description="Commits that did not take effect because others had.")


class IcebergHealth(Answer):
    """How far a table's Iceberg metadata is behind it."""

    format_version: int = Field(description="2 or 3.")
    metadata_location: str | None = Field(
        description="Of the newest metadata; absent where the table asks for conversions and there was none yet."
    )
    delta_version: int | None = Field(description="That was converted last; absent likewise.")
    lag_versions: int = Field(description="Versions that are not converted yet.")
    lag_seconds: int | None = Field(
        description="How long the oldest of them has been there; absent where its commit does not say when it was made."
    )


class HealthResponse(Answer):
    """How much care a table needs."""

    table: str
    version: int
    score: float = Field(description="From 0 to 100, the best: 100 less the points of the recommendations.")
    num_files: int
    size_in_bytes: int
    num_physical_rows: int | None = Field(description="Absent where some file has no statistics.")
    num_deleted_rows: int
    deleted_ratio: float | None
    deleted_bytes: int
    read_amplification: float | None = Field(
        description="Bytes of data files that a full scan reads, by those of live rows; absent where no row is live."
    )
    num_files_with_deletion_vectors: int
    num_deletion_vector_files: int
    live_deletion_vector_bytes: int
    dead_deletion_vector_bytes: int | None = Field(
        description="Bytes of replaced deletion vectors in files that also hold live ones, as far as tombstones tell; "
        "absent where these cannot be read."
    )
    num_removed_files: int | None = Field(
        description="Data files that the log still remembers as removed; absent likewise."
    )
    removed_bytes: int | None = Field(
        description="Of these files, as far as the log says it; absent likewise."
    )
    small_files: int = Field(description="Files under 16 MiB.")
    median_file_size: int | None
    commits_since_checkpoint: int
    checkpoint_age_seconds: int | None = Field(
        description="How long ago the newest checkpoint of this version was written; absent without one."
    )
    deleted_ratio_histogram: dict[str, int]
    file_size_histogram: dict[str, int] = Field(
        default_factory=dict, description="Files by their size; each file is in one class."
    )
    recommendations: list[Recommendation]
    partitions: list[PartitionHealth] = Field(
        default_factory=list,
        description="The partitions that cost most points, as many as the request asks for.",
    )
    overlaps: list[ColumnOverlap] = Field(
        default_factory=list,
        description="Per clustering column, and per column that the request names, how much files overlap.",
    )
    commits: CommitCounts | None = Field(
        default=None, description="What became of commits to the table; absent for an earlier version."
    )
    overwritten_commits: list[OverwrittenCommit] = Field(
        default_factory=list, description="Own commits that others replaced, the latest first."
    )
    iceberg: list[IcebergHealth] = Field(
        default_factory=list,
        description="Iceberg metadata by format version, where the table is converted; none for an earlier version.",
    )


class HealthSample(Answer):
    """A table after a version, as it was kept then."""

    version: int
    sampled_at: datetime = Field(description="When it was looked at; ISO 8601.")
    score: float = Field(description="From 0 to 100, the best.")
    num_files: int
    size_in_bytes: int
    num_physical_rows: int | None = Field(description="Absent where some file has no statistics.")
    num_deleted_rows: int
    deleted_ratio: float | None
    deleted_bytes: int
    num_files_with_deletion_vectors: int
    small_files: int = Field(description="Files under 16 MiB.")
    commits_since_checkpoint: int
    gain_bytes: int = Field(
        description="Of the recommendation that gains most: bytes that scans would not read."
    )
    cost_bytes: int = Field(description="Of the same: bytes to write again.")
    actions: list[str] = Field(description="That are recommended.")


class HealthSamplesResponse(Answer):
    """How a table was after its versions; of old samples one per hour is kept, and of older ones one per day."""

    table: str
    samples: list[HealthSample] = Field(description="The newest first.")


class TableHealth(Answer):
    """A registered table, and how it was when it was last looked at."""

    id: str
    name: str
    location: str
    sample: HealthSample | None = Field(
        description="After its newest commit by a service of this database; absent where there was none."
    )


class HealthListResponse(Answer):
    """A page of tables, those first that need most care."""

    tables: list[TableHealth]
    next_page_token: str | None = None
