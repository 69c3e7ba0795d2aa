"""The health of one table, of all tables, and over time.

Tested in `tests/integration/service/scans/test_history_detail_health.py` and
`tests/integration/service/api/test_health_list.py`.
"""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field

from delvec_contract.health_metrics import FileMetrics, Metric, SampledMetrics, Spot
from delvec_contract.shapes import Answer

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
    """A file affected by a recommendation."""

    path: str = Field(description="The path as in the log; for a commit, below `_delta_log`.")
    size_in_bytes: int
    points: float = Field(description="Points deducted from the score.")
    gain_bytes: int = Field(
        description="Estimated bytes of the file that no longer have to be read, or stored, afterwards."
    )


class Recommendation(Answer):
    """A finding: what is wrong, what to do, the gain and cost, and the files affected."""

    finding: Literal[
        "small-files",
        "deleted-rows",
        "deletion-vector-files",
        "overlapping-files",
        "old-checkpoint",
        "removed-files",
        "damaged-files",
    ] = Field(description="What is wrong.")
    action: Literal["OPTIMIZE", "OPTIMIZE FULL", "PURGE", "DV COMPACTION", "CHECKPOINT", "VACUUM", "CHECK"]
    command: str = Field(description="The same as a shell command.")
    points: float = Field(description="Points deducted from the score of 100.")
    reason: str
    expected_gain: str
    expected_gain_bytes: int | None = Field(
        description="Estimated bytes that a full scan no longer reads, or that are freed in storage; absent if "
        "there is no estimate."
    )
    expected_gain_files: int = Field(description="The reduction in files to open, or to store.")
    cost_bytes: int | None = Field(
        description="Bytes that are read and rewritten; absent if not known beforehand."
    )
    num_files: int = Field(description="Files affected.")
    files: list[FindingFile] = Field(
        default_factory=list, description="The files that cost the most points, up to the request's limit."
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
    points: float = Field(description="Points deducted from the table's score for its files.")


class OverlapFile(Answer):
    """A file whose range in a column overlaps those of others."""

    path: str = Field(description="As in the log.")
    size_in_bytes: int
    depth: float = Field(
        description="Files that a lookup of a value at its bounds opens, itself included; the average of both bounds."
    )
    overlaps: int = Field(description="Other files whose range overlaps its own.")


class ColumnOverlap(Answer):
    """How many files of a partition a lookup of one value of a column opens, according to statistics."""

    column: str = Field(description="By logical name; fields of structs by their path.")
    average_depth: float | None = Field(
        description="Files that a lookup of a value at a file's bounds opens, on average over the files with "
        "bounds: 1 if none overlap. Absent if no file has bounds."
    )
    max_depth: int | None = Field(
        description=("The most files that a lookup opens; absent if no file has bounds.")
    )
    average_overlaps: float | None = Field(
        description="Other files whose range overlaps a file's own, on average; absent if no file has bounds."
    )
    num_files: int = Field(description="Files with bounds of the column.")
    unbounded_files: int = Field(
        description=("Files without bounds, which every lookup opens; included in the depths.")
    )
    depth_histogram: dict[str, int] = Field(description="Files with bounds, by their depth.")
    files: list[OverlapFile] = Field(
        default_factory=list, description="The files with the greatest depths, up to the request's limit."
    )


class OverwrittenCommit(Answer):
    """A commit that took effect, but was replaced by a writer that does not create versions atomically."""

    version: int
    transaction_id: str = Field(
        description=("The transaction id of the lost commit, or of its group of commits.")
    )
    by_operation: str | None = Field(
        description="The operation of the commit in its place, if the commit says it, as for the next two fields."
    )
    by_engine: str | None
    by_transaction_id: str | None
    found_at: datetime


class CommitCounts(Answer):
    """The outcomes of commits by services of this database; approximate, as a crash loses the latest counts."""

    since: datetime | None = Field(description="When counting began; absent if there was no commit yet.")
    committed: int = Field(description="Commits that took effect.")
    rebased: int = Field(
        description="The number of them that were rebased onto a newer version than the one they read."
    )
    rows_saved: int = Field(
        description=("Rows changed by the rebased commits, which did not have to be found again.")
    )
    conflicts: int = Field(description="Commits that failed with a conflict.")


class IcebergHealth(Answer):
    """The lag of a table's Iceberg metadata behind the table."""

    format_version: int = Field(description="2 or 3.")
    metadata_location: str | None = Field(
        description=(
            "The location of the newest metadata; absent if the table has conversion turned on, but was "
            "not converted yet."
        )
    )
    delta_version: int | None = Field(
        description=("The Delta version that was converted last; absent if there was none yet.")
    )
    lag_versions: int = Field(description="Versions that are not converted yet.")
    lag_seconds: int | None = Field(
        description="The age of the oldest of them; absent if its commit has no timestamp."
    )


class _VersionHealth(Answer):
    table: str
    version: int
    score: float = Field(description="From 0 to 100 (best): 100 less the points of the recommendations.")


# The bases are in this order because pydantic has the fields of the last base first.
class HealthResponse(FileMetrics, _VersionHealth):
    """How much maintenance a table needs."""

    checkpoint_age_seconds: int | None = Field(
        description="The age of this version's newest checkpoint; absent if there is none."
    )
    deleted_ratio_histogram: dict[str, int]
    file_size_histogram: dict[str, int] = Field(
        default_factory=dict, description="The number of files in each size class."
    )
    recommendations: list[Recommendation]
    partitions: list[PartitionHealth] = Field(
        default_factory=list,
        description="The partitions that cost the most points, up to the request's limit.",
    )
    overlaps: list[ColumnOverlap] = Field(
        default_factory=list,
        description="How much files overlap, for each clustering column and each column in the request.",
    )
    commits: CommitCounts | None = Field(
        default=None, description="What became of commits to the table; absent for an earlier version."
    )
    overwritten_commits: list[OverwrittenCommit] = Field(
        default_factory=list, description="Delvec's commits that other writers replaced, latest first."
    )
    iceberg: list[IcebergHealth] = Field(
        default_factory=list,
        description=(
            "Iceberg metadata by format version, if the table is converted; empty for an earlier version."
        ),
    )


class _SampledVersion(Answer):
    version: Annotated[int, Metric("Version", gauge=("version", "Version that the other metrics describe."))]
    sampled_at: datetime = Field(description="When the table was examined; ISO 8601.")
    score: Annotated[
        float,
        Metric(
            "Health",
            "score",
            gauge=("health_score", "Health score, 100 at best."),
            plot=Spot("Health score", "score", 10),
        ),
    ] = Field(description="From 0 to 100 (best).")


class HealthSample(SampledMetrics, _SampledVersion):
    """The state of a table after a version, as recorded at that time."""

    gain_bytes: Annotated[int, Metric("Bytes saved in reads", "bytes")] = Field(
        description="Bytes that scans would no longer read, by the recommendation that gains the most."
    )
    cost_bytes: int = Field(description="Bytes to rewrite for the same recommendation.")
    actions: list[str] = Field(description="The recommended actions.")


class HealthSamplesResponse(Answer):
    """The state of a table over time; one old sample per hour is kept, and one older sample per day."""

    table: str
    samples: list[HealthSample] = Field(description="The newest first.")


class TableHealth(Answer):
    """A registered table, and its state when it was last examined."""

    id: str
    name: str
    location: str
    sample: HealthSample | None = Field(
        description=(
            "The version of the newest commit by a service of this database; absent if there was none."
        )
    )


class HealthListResponse(Answer):
    """A page of tables; the ones that need the most maintenance come first."""

    tables: list[TableHealth]
    num_tables: int = Field(description="Tables on all pages.")
    num_before: int = Field(description="Tables on the pages before this one.")
    next_page_token: str | None = None
